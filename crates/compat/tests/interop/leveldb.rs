//! A LevelDB directory opens as it is, and is an ordinary one from then on.

use ironstone_compat::directory::Scratch;
use ironstone_compat::driver::{Driver, Options, Writes, ran};
use ironstone_compat::workload::Workload;

const IRONSTONE: Driver = Driver::Ironstone(env!("CARGO_BIN_EXE_ironstone_driver"));
const WORKLOAD: Workload = Workload { seed: 41, cfs: 1, keys: 1500 };

fn written_by_leveldb(cf_options: &str, abrupt: bool) -> Option<Scratch> {
    let db = Scratch::new();
    let options = Options { db: "", cf: cf_options };
    let writes = Writes { workload: WORKLOAD, rounds: 0..3, after: "none,compact,none", abrupt, options };
    ran(Driver::LevelDb.write(&db.db(), &writes)).map(|()| db)
}

#[test]
fn a_leveldb_directory_opens() {
    for (cf_options, abrupt) in [("snappy", true), ("none", false), ("snappy,bloom", true)] {
        let Some(db) = written_by_leveldb(cf_options, abrupt) else { return };
        for _ in 0..2 {
            let digests = IRONSTONE.dump(&db.db(), WORKLOAD, Options::default());
            assert_eq!(digests, Ok(WORKLOAD.expected(0..3)), "{cf_options}");
        }
    }
}

#[test]
fn writing_goes_on_after_leveldb() {
    let Some(db) = written_by_leveldb("snappy,bloom", true) else { return };
    let options = Options::default();
    for (round, after) in [(3, "none"), (4, "flush"), (5, "compact")] {
        let writes = Writes { workload: WORKLOAD, rounds: round..round + 1, after, abrupt: true, options };
        IRONSTONE.write(&db.db(), &writes).expect("write after LevelDB");
        let digests = IRONSTONE.dump(&db.db(), WORKLOAD, options);
        assert_eq!(digests, Ok(WORKLOAD.expected(0..round + 1)));
    }
    // Everything was rewritten, so releases that no longer read LevelDB's tables read this directory.
    if let Some(digests) = ran(Driver::RocksDb11.dump(&db.db(), WORKLOAD, options)) {
        assert_eq!(digests, WORKLOAD.expected(0..6));
    }
}
