//! Rules of an application's own for where data blocks end.

use crate::disk::{DIR, Disk, all, refused, rewrite_all};
use ironstone::options::{LoadOptions, OptionsFile};
use ironstone::{
    Code, Db, FlushBlockContext, FlushBlockPolicy, FlushBlockPolicyFactory, OpenBlock, Options,
    SstFileReader, SstFileWriter, object_registry,
};
use std::path::Path;
use std::sync::Arc;

/// Ends blocks where the first byte of the keys changes.
#[derive(Clone, Copy, Default)]
struct ByFirstByte(Option<u8>);

impl FlushBlockPolicyFactory for ByFirstByte {
    fn name(&self) -> &str {
        "by:first"
    }
    fn create(&self, _context: &FlushBlockContext) -> Box<dyn FlushBlockPolicy> {
        Box::new(*self)
    }
}

impl FlushBlockPolicy for ByFirstByte {
    fn ends_block(&mut self, _block: OpenBlock<'_>, user_key: &[u8], _value: &[u8]) -> bool {
        let last = self.0.replace(user_key[0]);
        last != self.0
    }
}

fn blocks(db: &Db) -> Vec<u64> {
    let tables = db.properties_of_all_tables(db.default_column_family()).unwrap();
    tables.values().map(|properties| properties.num_data_blocks).collect()
}

fn fill(db: &Db) -> String {
    let keys: Vec<String> =
        ["a", "b", "c"].iter().flat_map(|a| (0..9).map(move |i| format!("{a}{i}"))).collect();
    keys.iter().for_each(|key| db.put(key, "v").unwrap());
    db.flush().unwrap();
    keys.iter().map(|key| format!("{key}=v")).collect::<Vec<_>>().join(" ")
}

#[test]
fn tables_of_flushes_compactions_and_writers_have_the_blocks_that_were_asked_for() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.table.flush_block_policy_factory = Some(Arc::new(ByFirstByte::default()));
    let db = disk.open_with(&options);
    let expected = fill(&db);
    assert_eq!(blocks(&db), [3]);
    rewrite_all(&db);
    assert_eq!((blocks(&db), all(&db)), (vec![3], expected.clone()));
    drop(db);
    // Whoever reads needs no policy.
    let db = disk.open();
    assert_eq!(all(&db), expected);
    rewrite_all(&db);
    assert_eq!((blocks(&db), all(&db)), (vec![1], expected));

    let mut writer = SstFileWriter::new(&options);
    writer.open("/outside.sst").unwrap();
    ["x1", "x2", "y"].iter().for_each(|key| writer.put(key, "v").unwrap());
    writer.finish().unwrap();
    let reader = SstFileReader::open(&disk.options(), "/outside.sst").unwrap();
    assert_eq!(reader.properties().num_data_blocks, 2);
}

#[test]
fn policies_are_options_in_text() {
    const OPTION: &str = "flush_block_policy_factory";
    let set = |text: &str| {
        let mut options = Options::default();
        options.cf.table.set(OPTION, text).map(|()| options.cf.table.get(OPTION).unwrap())
    };
    for by_size in ["FlushBlockBySizePolicyFactory", "{id=FlushBlockBySizePolicyFactory;}", "nullptr", ""] {
        assert_eq!(set(by_size).unwrap(), "FlushBlockBySizePolicyFactory", "{by_size}");
    }
    for every in ["FlushBlockEveryKeyPolicyFactory", "{id=FlushBlockEveryKeyPolicyFactory}"] {
        assert_eq!(set(every).unwrap(), "FlushBlockEveryKeyPolicyFactory", "{every}");
    }
    refused(set("by\\:first"), Code::NotSupported, "flush block policy by:first");
    object_registry::register("by:first", |_: &str| {
        Ok(Arc::new(ByFirstByte::default()) as Arc<dyn FlushBlockPolicyFactory>)
    });
    assert_eq!(set("by\\:first").unwrap(), "by\\:first");

    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.table.set(OPTION, "FlushBlockEveryKeyPolicyFactory").unwrap();
    let db = disk.open_with(&options);
    fill(&db);
    assert_eq!(blocks(&db), [27]);
    db.close().unwrap();
    let loaded = OptionsFile::load_latest(&disk.fs, Path::new(DIR), &LoadOptions::default()).unwrap();
    let loaded = loaded.column_family("default").unwrap().table.get(OPTION);
    assert_eq!(loaded.as_deref(), Some("FlushBlockEveryKeyPolicyFactory"));
}
