//! Atomic flushes are groups in the MANIFEST, which both engines take as a whole or leave.

use ironstone::options::DbOptions;
use ironstone::{ColumnFamilyDescriptor, ColumnFamilyOptions, Db, FlushOptions, WriteBatch, WriteOptions};
use ironstone_compat::directory::{Scratch, edit, files};
use ironstone_compat::driver::{Driver, Options, ROCKSDBS, Writes, ran};
use ironstone_compat::workload::{Operation, Workload, cf_name};

const IRONSTONE: Driver = Driver::Ironstone(env!("CARGO_BIN_EXE_ironstone_driver"));
const WORKLOAD: Workload = Workload { seed: 29, cfs: 3, keys: 30 };

/// Writes `round` to all column families, around the WAL, and flushes these together.
fn write_round(db: &Db, round: u64) {
    let mut batch = WriteBatch::new();
    let families: Vec<_> = (0..WORKLOAD.cfs).map(|cf| db.column_family(&cf_name(cf)).unwrap()).collect();
    for (cf, family) in families.iter().enumerate() {
        for operation in (0..WORKLOAD.keys).flat_map(|i| WORKLOAD.operations(round, cf as u64, i)) {
            match operation {
                Operation::Put(key, value) => batch.put_cf(family, key, value),
                Operation::Delete(key) => batch.delete_cf(family, key),
                Operation::SingleDelete(key) => batch.single_delete_cf(family, key),
            }
        }
    }
    db.write(&batch, &WriteOptions { disable_wal: true, ..WriteOptions::default() }).unwrap();
    db.flush_cfs(&FlushOptions::default(), &families.iter().collect::<Vec<_>>()).unwrap();
}

#[test]
fn a_group_that_was_cut_is_ignored_by_every_engine() {
    let source = Scratch::new();
    let mut options = DbOptions { create_if_missing: true, atomic_flush: true, ..DbOptions::default() };
    options.create_missing_column_families = true;
    let cf = ColumnFamilyOptions { disable_auto_compactions: true, ..ColumnFamilyOptions::default() };
    let descriptors = (0..WORKLOAD.cfs).map(|id| ColumnFamilyDescriptor::new(cf_name(id), cf.clone()));
    let db = Db::open_column_families(&options, source.db(), descriptors.collect()).unwrap();
    let manifest_size = || {
        let manifest = files(&source.db(), "MANIFEST", "").pop().expect("there is one");
        std::fs::metadata(manifest).unwrap().len() as usize
    };
    write_round(&db, 0);
    let before = manifest_size();
    write_round(&db, 1);
    let after = manifest_size();
    // What the process leaves that ends here.
    let image = Scratch::copy_of(&source.db());
    let step = (after - before) / 7;
    let cuts = (before..after).step_by(step).chain([after - 1, after]);
    for cut in cuts {
        let expected = WORKLOAD.expected(0..if cut == after { 2 } else { 1 });
        for driver in ROCKSDBS.into_iter().chain([IRONSTONE]) {
            let copy = Scratch::copy_of(&image.db());
            edit(&files(&copy.db(), "MANIFEST", "").pop().unwrap(), |bytes| bytes.truncate(cut));
            let Some(found) = ran(driver.dump(&copy.db(), WORKLOAD, Options::default())) else { continue };
            assert_eq!(found, expected, "{driver:?}, MANIFEST of {after} bytes cut at {cut}");
        }
    }
}

#[test]
fn both_engines_write_in_turn_with_atomic_flush() {
    let cf = "disable_auto_compactions=true;write_buffer_size=65536";
    let options = Options { db: "atomic_flush=true", cf };
    let workload = Workload { keys: 4000, ..WORKLOAD };
    for other in ROCKSDBS {
        let db = Scratch::new();
        for (round, driver) in [other, IRONSTONE, other, IRONSTONE].into_iter().enumerate() {
            let round = round as u64;
            let writes = Writes { workload, rounds: round..round + 1, after: "none", abrupt: true, options };
            let Some(()) = ran(driver.write(&db.db(), &writes)) else { break };
            assert!(!files(&db.db(), "", ".sst").is_empty(), "memtables were full in between");
            for reader in [other, IRONSTONE] {
                let copy = Scratch::copy_of(&db.db());
                let Some(found) = ran(reader.dump(&copy.db(), workload, options)) else { break };
                assert_eq!(found, workload.expected(0..round + 1), "{reader:?} after round {round}");
            }
        }
    }
}
