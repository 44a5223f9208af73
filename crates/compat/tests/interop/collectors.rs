//! RocksDB 11.8 and Ironstone know each other's collectors of table properties: their text, what tables record of them,
//! and the marks that they leave in the MANIFEST.

use ironstone::options::{LoadOptions, OptionsFile};
use ironstone::vfs::os::OsFileSystem;
use ironstone::{Db, Options as DatabaseOptions};
use ironstone_compat::directory::Scratch;
use ironstone_compat::driver::{Driver, Options, Writes, ran};
use ironstone_compat::workload::Workload;
use std::path::Path;

const IRONSTONE: Driver = Driver::Ironstone(env!("CARGO_BIN_EXE_ironstone_driver"));
const WORKLOAD: Workload = Workload { seed: 77, cfs: 1, keys: 300 };
const TEXT: &str = "{{id=CompactOnDeletionCollector;window_size=1000;deletion_trigger=3;deletion_ratio=0.500000;\
                    min_file_size=0;}}";
const REST: &str = "disable_auto_compactions=true;block_based_table_factory={format_version=5}";

fn writes<'a>(rounds: std::ops::Range<u64>, cf: &'a str) -> Writes<'a> {
    Writes { workload: WORKLOAD, rounds, after: "flush", abrupt: false, options: Options { db: "", cf } }
}

/// What the newest OPTIONS file has, in our words.
fn stored(dir: &Path) -> String {
    let file = OptionsFile::load_latest(&OsFileSystem::new(), dir, &LoadOptions::default()).unwrap();
    file.column_family("default").unwrap().get("table_properties_collectors").unwrap()
}

/// The collectors that each table names, and how many tables level 0 has once compactions came to rest that no number of
/// tables asks for.
fn names_and_rest(dir: &Path) -> (Vec<String>, usize) {
    let mut options = DatabaseOptions::default();
    options.cf.level0_file_num_compaction_trigger = 1000;
    let db = Db::open(&options, dir).unwrap();
    db.wait_for_compact().unwrap();
    let cf = db.default_column_family();
    let tables = db.properties_of_all_tables(cf).unwrap();
    let names = tables.values().map(|properties| properties.property_collectors_names.clone()).collect();
    (names, db.level_shape(cf)[0].0)
}

#[test]
fn compact_on_deletion_goes_both_ways() {
    let with = format!("{REST};table_properties_collectors={TEXT}");
    for writers in [[Driver::RocksDb11, IRONSTONE], [IRONSTONE, Driver::RocksDb11]] {
        let db = Scratch::new();
        let Some(()) = ran(writers[0].write(&db.db(), &writes(0..3, &with))) else { return };
        assert_eq!(stored(&db.db()), TEXT, "{writers:?}");

        let marked = Scratch::copy_of(&db.db());
        let (names, at_rest) = names_and_rest(&marked.db());
        assert!(!names.is_empty() && at_rest == 0, "{writers:?}: {names:?}, {at_rest} tables in level 0");

        // Each goes on where the other stopped, and both read the same.
        let Some(()) = ran(writers[1].write(&db.db(), &writes(3..5, &with))) else { return };
        assert_eq!(stored(&db.db()), TEXT, "{writers:?}");
        let options = Options { db: "", cf: &with };
        let dumps = writers.map(|reader| {
            let copy = Scratch::copy_of(&db.db());
            ran(reader.dump(&copy.db(), WORKLOAD, options)).expect("it ran a moment ago")
        });
        assert_eq!(dumps[0], dumps[1], "{writers:?}");
    }
}

#[test]
fn tables_record_collectors_by_name() {
    let with = format!("{REST};table_properties_collectors={TEXT}");
    for (writer, cf, expected) in [
        (Driver::RocksDb11, &*with, "[CompactOnDeletionCollector]"),
        (IRONSTONE, &*with, "[CompactOnDeletionCollector]"),
        (Driver::RocksDb11, REST, "[]"),
        (IRONSTONE, REST, "[]"),
    ] {
        let db = Scratch::new();
        let Some(()) = ran(writer.write(&db.db(), &writes(0..1, cf))) else { return };
        let options = DatabaseOptions::default();
        let descriptor = ironstone::ColumnFamilyDescriptor::new("default", options.cf.clone());
        let opened = Db::open_read_only(&options.db, db.db(), vec![descriptor]).unwrap();
        let tables = opened.properties_of_all_tables(opened.default_column_family()).unwrap();
        assert!(!tables.is_empty());
        for properties in tables.values() {
            assert_eq!(properties.property_collectors_names, expected, "{writer:?}");
        }
        drop(opened);
        if expected == "[]" {
            // Without the collector nothing asks for a compaction of so few tables.
            let few = Scratch::copy_of(&db.db());
            assert_eq!(names_and_rest(&few.db()).1, tables.len(), "{writer:?}");
        }
    }
}
