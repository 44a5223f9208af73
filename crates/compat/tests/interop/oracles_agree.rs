//! The oracles among themselves: what they read of each other's directories is what the model says. This
//! shows that the drivers and the model mean the same, so that a difference elsewhere is Ironstone's.

use ironstone_compat::directory::Scratch;
use ironstone_compat::driver::{Driver, Options, ROCKSDBS, Writes, ran};
use ironstone_compat::formats::FORMATS;
use ironstone_compat::workload::Workload;

#[test]
fn rocksdb_releases_read_each_other() {
    let workload = Workload { seed: 3, cfs: 2, keys: 200 };
    for format in [FORMATS[1], FORMATS[6]] {
        let options = format.options();
        for writer in ROCKSDBS {
            let source = Scratch::new();
            let after = "compact,flush,none";
            let writes = Writes { workload, rounds: 0..3, after, abrupt: true, options };
            if ran(writer.write(&source.db(), &writes)).is_none() {
                continue;
            }
            for reader in ROCKSDBS {
                let copy = Scratch::copy_of(&source.db());
                if let Some(digests) = ran(reader.dump(&copy.db(), workload, Options::default())) {
                    assert_eq!(digests, workload.expected(0..3), "{} by {reader:?}", writer.name());
                }
            }
        }
    }
}

#[test]
fn leveldb_agrees_with_the_model() {
    let workload = Workload { seed: 4, cfs: 1, keys: 1000 };
    let db = Scratch::new();
    let options = Options { cf: "bloom", ..Options::default() };
    let writes = Writes { workload, rounds: 0..2, after: "compact,none", abrupt: true, options };
    if ran(Driver::LevelDb.write(&db.db(), &writes)).is_some()
        && let Some(digests) = ran(Driver::LevelDb.dump(&db.db(), workload, Options::default()))
    {
        assert_eq!(digests, workload.expected(0..2));
    }
}
