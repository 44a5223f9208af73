//! Two engines never have one directory open at the same time.

use ironstone_compat::directory::Scratch;
use ironstone_compat::driver::{Driver, Failure, Options, ROCKSDBS, Writes, ran};
use ironstone_compat::workload::Workload;

const IRONSTONE: Driver = Driver::Ironstone(env!("CARGO_BIN_EXE_ironstone_driver"));
const WORKLOAD: Workload = Workload { seed: 1, cfs: 1, keys: 20 };

fn small_database() -> Scratch {
    let db = Scratch::new();
    let options = Options::default();
    let writes = Writes { workload: WORKLOAD, rounds: 0..1, after: "none", abrupt: false, options };
    IRONSTONE.write(&db.db(), &writes).expect("write the database");
    db
}

fn check_refused(reader: Driver, db: &Scratch) {
    match reader.dump(&db.db(), WORKLOAD, Options::default()) {
        Err(Failure::Failed(why)) => assert!(why.to_lowercase().contains("lock"), "{why}"),
        Err(other) => drop(ran::<()>(Err(other))),
        Ok(digests) => panic!("{} opened a locked database: {digests}", reader.name()),
    }
}

#[test]
fn a_live_rocksdb_keeps_ironstone_out() {
    for owner in ROCKSDBS {
        let db = small_database();
        let Some(held) = ran(owner.hold(&db.db())) else { continue };
        check_refused(IRONSTONE, &db);
        drop(held);
        assert_eq!(IRONSTONE.dump(&db.db(), WORKLOAD, Options::default()), Ok(WORKLOAD.expected(0..1)));
    }
}

#[test]
fn a_live_ironstone_keeps_rocksdb_out() {
    for reader in ROCKSDBS.into_iter().chain([IRONSTONE]) {
        let db = small_database();
        let held = IRONSTONE.hold(&db.db()).expect("open the database");
        check_refused(reader, &db);
        drop(held);
        if let Some(digests) = ran(reader.dump(&db.db(), WORKLOAD, Options::default())) {
            assert_eq!(digests, WORKLOAD.expected(0..1));
        }
    }
}
