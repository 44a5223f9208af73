//! Tables that RocksDB and LevelDB wrote are read as they meant them. How they were made: testdata/README.md.

use ironstone_base::checksum::ChecksumKind;
use ironstone_base::sync::Arc;
use ironstone_base::{
    Code, FileNumber, InternalKeyBuf, InternalKeyComparator, Result, SequenceNumber, UserComparator,
    ValueType, slice_transform,
};
use ironstone_cache::{Cache, CacheOptions};
use ironstone_iter::InternalIterator;
use ironstone_sst::{
    IndexType, MetadataPinning, OpenOptions, PinningTier, PlainOptions, ReadContext, TableFormat,
    TableOptions, TableReadOptions, TableReader,
};
use ironstone_vfs::os::OsFileSystem;
use ironstone_vfs::{FileSystem, OpenHints};
use std::path::{Path, PathBuf};

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata")
}

fn open(name: &str, table: TableOptions) -> Result<Arc<TableReader>> {
    let file = OsFileSystem::new().open_random(&testdata().join(name), OpenHints::default())?;
    let size = file.size();
    TableReader::open(file, size, OpenOptions::new(Arc::new(table), FileNumber(1))).map(Arc::new)
}

type Entries = Vec<(InternalKeyBuf, Vec<u8>)>;

fn key(i: u64) -> String {
    format!("{:03}/key{i:05}", i / 20)
}
fn value(i: u64) -> String {
    format!("value of {i}{}", " again".repeat(i as usize % 5))
}

/// What `MakeGolden.java` writes.
fn entries_of_rocksdb(order: &UserComparator) -> Entries {
    let mut entries = Vec::new();
    let mut sequence = 0;
    let mut add = |i: u64, value_type, value: String| {
        sequence += 1;
        let key = InternalKeyBuf::new(key(i).as_bytes(), SequenceNumber(sequence), value_type);
        entries.push((key, value.into_bytes()));
    };
    for i in 0..200 {
        match i % 10 {
            3 => add(i, ValueType::Deletion, String::new()),
            4 => add(i, ValueType::SingleDeletion, String::new()),
            5 => add(i, ValueType::Merge, value(i)),
            6 => {
                add(i, ValueType::Value, "old".into());
                add(i, ValueType::Value, value(i));
            }
            _ => add(i, ValueType::Value, value(i)),
        }
    }
    sorted(entries, order)
}

/// One version of each key: at sequence number 0 in an ingested file, in order of writing in LevelDB's.
fn entries_written_once(first: u64, step: u64) -> Entries {
    let key =
        |i: u64| InternalKeyBuf::new(key(i).as_bytes(), SequenceNumber(first + i * step), ValueType::Value);
    (0..200).map(|i| (key(i), value(i).into_bytes())).collect()
}

fn sorted(mut entries: Entries, order: &UserComparator) -> Entries {
    let order = InternalKeyComparator::new(order.clone());
    entries.sort_by(|a, b| order.compare(a.0.as_key(), b.0.as_key()));
    entries
}

fn check(name: &str, reader: &Arc<TableReader>, entries: &Entries) {
    let fail = |error| panic!("{name}: {error}");
    reader.verify_checksums().unwrap_or_else(fail);
    let mut iter = reader.iter(&TableReadOptions::default());
    let mut more = iter.seek_to_first().unwrap_or_else(|error| panic!("{name}: {error}"));
    for (key, value) in entries {
        assert!(more, "{name} ends before {key:?}");
        assert_eq!((iter.key(), iter.value()), (key.as_key(), &value[..]), "{name}");
        more = iter.next().unwrap();
    }
    assert!(!more, "{name}: more entries than there should be");
    let mut more = iter.seek_to_last().unwrap();
    for (key, value) in entries.iter().rev() {
        assert!(more, "{name} ends before {key:?}");
        assert_eq!((iter.key(), iter.value()), (key.as_key(), &value[..]), "{name}");
        more = iter.prev().unwrap();
    }
    for (key, value) in entries {
        let found = reader.get(&ReadContext::default(), key.as_key()).unwrap();
        let found = found.unwrap_or_else(|| panic!("{name}: {key:?} is not found"));
        assert_eq!((found.sequence, &*found.value), (key.as_key().sequence(), &value[..]), "{name}");
        assert!(reader.prefix_may_match(&ReadContext::default(), key.as_key()).unwrap(), "{name}: {key:?}");
    }
    for i in 0..200u64 {
        let absent =
            InternalKeyBuf::for_seek(format!("{:03}/kez{i}", i / 20).as_bytes(), SequenceNumber::MAX);
        assert!(reader.get(&ReadContext::default(), absent.as_key()).unwrap().is_none(), "{name}");
    }
}

fn tables(of: impl Fn(&str) -> bool) -> Vec<String> {
    let mut names = OsFileSystem::new().list(&testdata()).unwrap();
    names.retain(|name| (name.ends_with(".sst") || name.ends_with(".ldb")) && of(name));
    names.sort();
    assert!(!names.is_empty());
    names
}

fn options_for(name: &str) -> TableOptions {
    TableOptions {
        comparator: if name == "reverse.sst" {
            UserComparator::ReverseBytewise
        } else {
            UserComparator::Bytewise
        },
        prefix_extractor: Some(slice_transform::fixed_prefix(4)),
        ..TableOptions::default()
    }
}

fn is_standard(name: &str) -> bool {
    !["cuckoo", "db_bench", "external", "leveldb", "separated"].iter().any(|other| name.starts_with(other))
}

#[test]
fn tables_of_rocksdb_11_8_are_read() {
    for name in tables(is_standard) {
        let options = options_for(&name);
        let entries = entries_of_rocksdb(&options.comparator);
        check(&name, &open(&name, options).unwrap(), &entries);
        // And with index and filter in the cache.
        let options = TableOptions {
            block_cache: Some(Cache::new(CacheOptions::default())),
            cache_index_and_filter_blocks: true,
            pinning: match name.len() % 2 {
                0 => MetadataPinning::default(),
                _ => MetadataPinning { top_level: PinningTier::None, ..MetadataPinning::default() },
            },
            ..options_for(&name)
        };
        check(&name, &open(&name, options).unwrap(), &entries);
    }
}

#[test]
fn what_the_names_promise_is_in_the_tables() {
    let reader = |name: &str| open(name, options_for(name)).unwrap();
    for version in 2..=7 {
        assert_eq!(reader(&format!("format-{version}.sst")).footer().unwrap().format_version, version);
        assert_eq!(reader(&format!("partitioned-{version}.sst")).index_type(), Some(IndexType::TwoLevel));
        assert!(reader(&format!("partitioned-{version}.sst")).properties().index_partitions > 1);
    }
    for kind in (0..=4).filter_map(ChecksumKind::from_byte) {
        assert_eq!(reader(&format!("checksum-{}.sst", kind.option_name())).footer().unwrap().checksum, kind);
    }
    let named =
        |name: &str, part: &str| reader(name).meta_blocks().iter().any(|(name, _)| name.starts_with(part));
    assert!(named("filter-ribbon.sst", "fullfilter.") && named("partitioned-5.sst", "partitionedfilter."));
    assert!(named("dictionary-trained.sst", "rocksdb.compression_dict"));
    assert!(named("index-hash.sst", "rocksdb.hashindex.prefixes"));
    for (name, codec) in [("codec-LZ4HC.sst", "LZ4"), ("zstd-5.sst", "ZSTD"), ("codec-BZip2.sst", "BZip2")] {
        assert!(reader(name).properties().compression_name.starts_with(codec), "{name}");
    }
    assert_eq!(reader("index-first-key.sst").index_type(), Some(IndexType::BinarySearchWithFirstKey));
    let properties = reader("format-6.sst").properties().clone();
    assert_eq!(
        (properties.num_entries, properties.num_deletions, properties.num_merge_operands),
        (220, 40, 20)
    );
    assert_eq!(properties.merge_operator_name, "StringAppendOperator");
    assert_eq!((properties.key_smallest_seqno, properties.key_largest_seqno), (1, 220));
}

#[test]
fn what_plain_tables_of_rocksdb_store_is_used() {
    for name in tables(|name| name.starts_with("plain")) {
        let with = |plain| {
            let table = TableOptions { plain, ..options_for(&name) };
            open(&name, table).unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        let reader = with(PlainOptions::default());
        assert_eq!((reader.format(), reader.index_type()), (TableFormat::Plain, None));
        let stored = |block: &str| reader.meta_blocks().iter().any(|(name, _)| name == block);
        assert_eq!(stored("PlainTableIndexBlock"), name.contains("stored"), "{name}");
        assert_eq!(
            stored("kBloomBlock"),
            name.contains("stored") && name != "plain-prefix-stored.sst",
            "{name}"
        );
        // Whatever is stored, and without index and filter, by all other sizes of index, without the extractor.
        let entries = entries_of_rocksdb(&UserComparator::Bytewise);
        check(&name, &with(PlainOptions { full_scan_mode: true, ..PlainOptions::default() }), &entries);
        for (hash_table_ratio, index_sparseness) in [(0.0, 0), (0.1, 1), (3.0, 7)] {
            let options = PlainOptions { hash_table_ratio, index_sparseness, ..PlainOptions::default() };
            check(&name, &with(options), &entries);
        }
        check(&name, &open(&name, TableOptions::default()).unwrap(), &entries);
        // Absent prefixes are told by the filter, those that a table is opened with as well as those that it stores.
        let strangers = (0..1000)
            .filter(|i| reader.may_match(&ReadContext::default(), format!("x{i:02}/").as_bytes()).unwrap());
        let passes = strangers.count();
        assert!(passes < 50 || name == "plain-prefix-stored.sst", "{name}: {passes} of 1000");
    }
}

#[test]
fn cuckoo_tables_of_rocksdb_are_read() {
    for name in tables(|name| name.starts_with("cuckoo")) {
        let reader = open(&name, TableOptions::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(reader.format(), TableFormat::Cuckoo);
        let is_last = ["cuckoo-last-level.sst", "cuckoo-powers.sst"].contains(&name.as_str());
        let entry = |i: u64| {
            let is_tombstone = i % 10 == 3 && !is_last;
            let value_type = if is_tombstone { ValueType::Deletion } else { ValueType::Value };
            let sequence = SequenceNumber(if is_last { 0 } else { i + 1 });
            let value = if is_tombstone { Vec::new() } else { format!("value{i:03}").into_bytes() };
            (InternalKeyBuf::new(key(i).as_bytes(), sequence, value_type), value)
        };
        check(&name, &reader, &(0..200).map(entry).collect());
    }
}

#[test]
fn filters_of_rocksdb_keep_strangers_out() {
    let filtered = |name: &str| name.starts_with("filter") || name.starts_with("partitioned");
    for name in tables(filtered) {
        let reader = open(&name, options_for(&name)).unwrap();
        let passes = |i: &u64| {
            let key = format!("{:03}/another{i}", i % 10);
            reader.may_match(&ReadContext::default(), key.as_bytes()).unwrap()
        };
        let count = (0..1000).filter(passes).count();
        assert!(count < 50, "{name}: {count} of 1000");
    }
}

#[test]
fn range_tombstones_of_rocksdb_are_read() {
    let reader = open("range-tombstones.sst", options_for("")).unwrap();
    let found: Vec<_> = reader
        .range_tombstones()
        .iter()
        .map(|tombstone| (&tombstone.begin[..], &tombstone.end[..], tombstone.sequence.0))
        .collect();
    assert_eq!(found, [(&b"002/"[..], &b"004/"[..], 221), (b"007/", b"007/key00145", 222)]);
}

#[test]
fn an_external_file_is_read() {
    let reader = open("external.sst", options_for("")).unwrap();
    assert_eq!(reader.global_sequence(), Some(SequenceNumber::ZERO));
    check("external.sst", &reader, &entries_written_once(0, 0));
}

#[test]
fn tables_of_rocksdb_7_8_are_read() {
    for name in tables(|name| name.starts_with("db_bench")) {
        let reader = open(&name, TableOptions::default()).unwrap();
        let entries = everything(&reader);
        assert_eq!(entries.len() as u64, reader.properties().num_entries);
        assert_eq!(entries.len(), 200);
        check(&name, &reader, &entries);
    }
}

fn everything(reader: &Arc<TableReader>) -> Entries {
    let mut iter = reader.iter(&TableReadOptions::for_compaction(1 << 20));
    let mut entries = Vec::new();
    let mut more = iter.seek_to_first().unwrap();
    while more {
        entries.push((iter.key().to_buf(), iter.value().to_vec()));
        more = iter.next().unwrap();
    }
    entries
}

#[test]
fn a_table_of_leveldb_is_read() {
    let reader = open("leveldb.ldb", TableOptions::default()).unwrap();
    assert!(reader.footer().unwrap().leveldb_magic);
    check("leveldb.ldb", &reader, &entries_written_once(1, 1));
}

#[test]
fn blocks_with_values_apart_are_refused_by_name() {
    let error = open("separated-values.sst", TableOptions::default()).map(|_| ()).unwrap_err();
    assert_eq!(error.code(), Code::NotSupported);
    assert!(error.to_string().contains("separate_key_value_in_data_block"), "{error}");
}
