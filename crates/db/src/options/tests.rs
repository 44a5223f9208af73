use super::*;
use ironstone_base::FileNumber;
use ironstone_base::sync::Arc;
use ironstone_base::{Code, Comparator};
use ironstone_sst::{PlainEncoding, TableFormat};
use ironstone_vfs::FileSystem;
use ironstone_vfs::os::OsFileSystem;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const GOLDEN: [(&str, [u32; 3]); 6] = [
    ("rocksdb-7.8.3.ini", [7, 8, 3]),
    ("rocksdb-7.8.3-defaults.ini", [7, 8, 3]),
    ("rocksdb-9.8.4.ini", [9, 8, 4]),
    ("rocksdb-9.8.4-defaults.ini", [9, 8, 4]),
    ("rocksdb-11.8.1.ini", [11, 8, 1]),
    ("rocksdb-11.8.1-defaults.ini", [11, 8, 1]),
];

fn golden(name: &str) -> (PathBuf, Vec<u8>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/options").join(name);
    let bytes = OsFileSystem::new().read_all(&path).unwrap();
    (path, bytes)
}

/// The comparator that rocksdict gives to databases with Python keys.
struct RocksDict;
impl Comparator for RocksDict {
    fn name(&self) -> &str {
        "rocksdict"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        a.cmp(b)
    }
}

fn lenient() -> LoadOptions {
    let rules = SetRules { ignore_unsupported: true, ..SetRules::default() };
    LoadOptions { rules, comparators: vec![Arc::new(RocksDict)], ..LoadOptions::default() }
}

/// Names and values by section, as the file has them.
fn statements(bytes: &[u8]) -> BTreeMap<(String, String), String> {
    let (mut section, mut found) = (String::new(), BTreeMap::new());
    for line in std::str::from_utf8(bytes).unwrap().lines().map(str::trim) {
        if line.starts_with('[') {
            section = line.to_owned();
        } else if let Some((name, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            found.insert((section.clone(), name.to_owned()), value.to_owned());
        }
    }
    found
}

#[test]
fn files_of_rocksdb_are_read() {
    for (name, version) in GOLDEN {
        let (path, bytes) = golden(name);
        let file = OptionsFile::parse(&path, &bytes, &lenient()).unwrap();
        assert_eq!(file.rocksdb_version, version);
        assert_eq!(file.column_families[0].0, "default");
    }
}

#[test]
fn values_of_rocksdb_arrive_in_fields() {
    let load = |name| {
        let (path, bytes) = golden(name);
        OptionsFile::parse(&path, &bytes, &lenient()).unwrap()
    };
    let seven = load("rocksdb-7.8.3.ini");
    let cf = &seven.column_families[1].1;
    assert_eq!(seven.column_families[1].0, "column_family_name_000001");
    assert_eq!(seven.db.wal_dir, Path::new("/wal"));
    assert_eq!((seven.db.max_background_jobs, cf.write_buffer_size, cf.num_levels), (4, 1 << 20, 5));
    assert_eq!(cf.get("filter_policy"), None);
    assert_eq!(cf.table.get("filter_policy").as_deref(), Some("ribbonfilter:10:0"));
    assert_eq!(cf.get("prefix_extractor").as_deref(), Some("rocksdb.FixedPrefix.8"));
    assert_eq!(
        (cf.compression_opts.max_dict_bytes, cf.compression_opts.zstd_max_train_bytes),
        (16384, 1 << 20)
    );
    assert_eq!(cf.get("compression").as_deref(), Some("kZSTD"));
    assert!(cf.table.partition_filters && cf.table.cache_index_and_filter_blocks);
    assert_eq!(cf.table.get("index_type").as_deref(), Some("kTwoLevelIndexSearch"));

    let nine = load("rocksdb-9.8.4.ini");
    let cf = nine.column_family("default").unwrap();
    assert_eq!(
        cf.get("compression_per_level").as_deref(),
        Some("kNoCompression:kSnappyCompression:kLZ4Compression")
    );
    assert_eq!(cf.get("bottommost_compression").as_deref(), Some("kZSTD"));
    assert_eq!((cf.table.block_size, cf.table.format_version), (16384, 6));
    assert!(nine.column_family("meta: a#b").is_some());

    let eleven = load("rocksdb-11.8.1.ini");
    let cf = eleven.column_family("default").unwrap();
    assert_eq!(cf.get("memtable_factory").as_deref(), Some("VectorRepFactory"));
    assert_eq!(cf.get("merge_operator").as_deref(), Some("UInt64AddOperator"));
    assert_eq!(cf.get("compaction_pri").as_deref(), Some("kRoundRobin"));
    assert_eq!(cf.table.get("filter_policy").as_deref(), Some("bloomfilter:9.9:false"));
    assert_eq!((cf.compression_opts.level, cf.compression_opts.enabled), (7, true));
    let reversed = eleven.column_family("reversed").unwrap();
    assert_eq!(reversed.get("comparator").as_deref(), Some("rocksdb.ReverseBytewiseComparator"));
}

#[test]
fn defaults_are_those_of_rocksdb_11() {
    // Where we differ on purpose: what RocksDB 7 reads, what opening made of 0, and what is on by default here.
    let ours = [
        ("format_version", "7", "5"),
        ("max_compaction_bytes", "1677721600", "0"),
        ("arena_block_size", "1048576", "0"),
        ("create_if_missing", "true", "false"),
        ("periodic_compaction_seconds", "0", "18446744073709551614"),
        ("min_tombstones_for_range_conversion", "0", "1000"),
        ("bytes_per_sync", "0", "1048576"),
        ("compaction_readahead_size", "2097152", "262144"),
        ("uncache_aggressiveness", "0", "10000"),
        ("blob_compression_opts", "", ""),
    ];
    let (_, bytes) = golden("rocksdb-11.8.1-defaults.ini");
    let options = Options::default();
    for ((section, name), theirs) in statements(&bytes) {
        if section == "[Version]" || ours.iter().any(|(known, ..)| *known == name) {
            continue;
        }
        let mine = if section.starts_with("[DB") { options.db.get(&name) } else { options.get(&name) };
        let mine = mine.unwrap_or_else(|| panic!("{section} {name} has no row"));
        // The order inside of braces is a hash table's.
        let sorted = |text: &str| {
            let mut parts: Vec<_> = text.trim_matches(['{', '}']).split(';').map(str::to_owned).collect();
            parts.retain(|part| !part.is_empty());
            parts.sort();
            parts
        };
        if name.ends_with("compression_opts") {
            let mut given = ironstone_sst::CompressionOptions { level: 0, ..Default::default() };
            text::set_nested(&mut given, &theirs).unwrap();
            assert_eq!(given, ironstone_sst::CompressionOptions::default(), "{name}");
        } else if name.starts_with("compaction_options_") {
            let mut given = ColumnFamilyOptions::default();
            given.set(&name, &theirs).unwrap();
            assert_eq!(given.get(&name).as_ref(), Some(&mine), "{name}");
        } else {
            assert_eq!(sorted(&mine), sorted(&theirs), "{section} {name}");
        }
    }
    for (name, _, mine) in ours.iter().take(9) {
        assert_eq!(options.get(name).as_deref(), Some(*mine));
    }
}

#[test]
fn what_rocksdb_7_writes_is_marked_so() {
    let (_, bytes) = golden("rocksdb-7.8.3-defaults.ini");
    let written = statements(&bytes);
    fn check<T: OptionStruct>(written: &BTreeMap<(String, String), String>, section: &str) {
        for spec in T::table() {
            let theirs = written.contains_key(&(section.to_owned(), spec.name.to_owned()));
            let shown = text::print_pairs(&T::default()).iter().any(|(name, _)| *name == spec.name);
            let given_up = matches!(spec.status, Status::Deprecated | Status::Alias { .. });
            // RocksDB 7 leaves these out while they are empty, and so do we.
            let empty = ["db_log_dir", "wal_dir"].contains(&spec.name);
            assert!(given_up || empty || shown == theirs, "{} shown {shown}, theirs {theirs}", spec.name);
        }
    }
    check::<DbOptions>(&written, "[DBOptions]");
    check::<ColumnFamilyOptions>(&written, "[CFOptions \"default\"]");
    check::<BlockBasedTableOptions>(&written, "[TableOptions/BlockBasedTable \"default\"]");
}

#[test]
fn written_files_are_read_back() {
    for (name, _) in GOLDEN {
        let (path, bytes) = golden(name);
        let first = OptionsFile::parse(&path, &bytes, &lenient()).unwrap();
        let families = || first.column_families.iter().map(|(name, options)| (name.as_str(), options));
        let text = OptionsFile::to_text(&first.db, families());
        let second = OptionsFile::parse(&path, text.as_bytes(), &lenient()).unwrap();
        assert_eq!(second.rocksdb_version, [11, 8, 1]);
        assert_eq!(first.db.to_string(), second.db.to_string());
        assert_eq!(format!("{:?}", first.column_families), format!("{:?}", second.column_families));
        let again =
            OptionsFile::to_text(&second.db, second.column_families.iter().map(|(n, o)| (n.as_str(), o)));
        assert_eq!(text, again);
    }
}

#[test]
fn every_flipped_byte_is_noticed_or_harmless() {
    let options = Options::default();
    let text = OptionsFile::to_text(&options.db, [("default", &options.cf)]);
    let path = Path::new("/db/OPTIONS-000007");
    let whole = OptionsFile::parse(path, text.as_bytes(), &LoadOptions::default()).unwrap();
    for at in 0..text.len() {
        let mut bytes = text.clone().into_bytes();
        bytes[at] ^= 1 << (at % 8);
        match OptionsFile::parse(path, &bytes, &LoadOptions::default()) {
            Err(error) => assert!(error.to_string().contains("/db/OPTIONS-000007"), "{error}"),
            Ok(read) => {
                let same = |one: &OptionsFile, other: &OptionsFile| {
                    one.db.to_string() == other.db.to_string()
                        && format!("{:?}", one.column_families) == format!("{:?}", other.column_families)
                };
                assert!(same(&read, &whole), "byte {at} changed what was read");
            }
        }
    }
    for len in 0..text.len() {
        let _ = OptionsFile::parse(path, &text.as_bytes()[..len], &LoadOptions::default());
    }
}

#[test]
fn errors_name_file_line_and_option() {
    let path = Path::new("/db/OPTIONS-000007");
    let parse = |text: &str| OptionsFile::parse(path, text.as_bytes(), &LoadOptions::default()).unwrap_err();
    let head = "[Version]\nrocksdb_version=11.8.1\n[DBOptions]\n";
    let cases = [
        (format!("{head}max_open_files=many\n"), "line 4: max_open_files=many: not a whole number"),
        (format!("{head}max_open_filse=1\n"), "line 4: DBOptions has no option max_open_filse"),
        (format!("{head}use_fsync\n"), "line 4: `use_fsync` is neither"),
        (format!("{head}[CFOptions \"a\"]\n"), "line 4: column family `default` has to come first"),
        (format!("{head}[Nonsense]\n"), "line 4: unknown section [Nonsense]"),
        (format!("{head}[DBOptions]\n"), "line 4: a second section [DBOptions]"),
        (
            format!("{head}[TableOptions/BlockBasedTable \"default\"]\n"),
            "line 4: tables of column family `default`",
        ),
        (head.to_owned(), "section [CFOptions \"default\"] is missing"),
        ("a=b\n".to_owned(), "line 1: a stands before all sections"),
        ("[Version]\nrocksdb_version=a.b\n".to_owned(), "line 2: rocksdb_version=a.b: no version"),
    ];
    for (text, expected) in cases {
        let error = parse(&text).to_string();
        assert!(error.starts_with("Invalid argument: /db/OPTIONS-000007"), "{error}");
        assert!(error.contains(expected), "{error}");
    }
    let error = parse(&format!("{head}allow_2pc=true\n"));
    assert_eq!(error.code(), Code::NotSupported);
    let expected = "/db/OPTIONS-000007 line 4: allow_2pc=true: two-phase commit";
    assert_eq!(error.message(), expected);
    assert!(parse(&format!("{head}a=\u{0}\n")).to_string().contains("line 4"));
}

#[test]
fn the_table_factory_has_a_section_of_its_own() {
    let text = "prefix_extractor=fixed:4;table_factory={id=PlainTable;user_key_len=8;encoding_type=kPrefix};\
                plain_table_factory={index_sparseness=4}";
    let options = ColumnFamilyOptions::from_string(text).unwrap();
    assert_eq!(
        (options.table_format, options.get("table_factory").as_deref()),
        (TableFormat::Plain, Some("PlainTable"))
    );
    let plain = &options.plain_table;
    assert_eq!(
        (plain.user_key_len, plain.encoding_type, plain.index_sparseness),
        (8, PlainEncoding::Prefix, 4)
    );
    assert_eq!((plain.bloom_bits_per_key, plain.hash_table_ratio), (10, 0.75));
    let again = ColumnFamilyOptions::from_string(&options.to_string()).unwrap();
    assert_eq!(again.to_string(), options.to_string());

    let text = OptionsFile::to_text(&DbOptions::default(), [("default", &options)]);
    assert!(
        text.contains("[TableOptions/PlainTable \"default\"]") && text.contains("encoding_type=kPrefix"),
        "{text}"
    );
    assert!(!text.contains("BlockBasedTable"), "{text}");
    let file = OptionsFile::parse(Path::new("O"), text.as_bytes(), &LoadOptions::default()).unwrap();
    assert_eq!(file.column_families[0].1.to_string(), options.to_string());

    let cuckoo = "table_factory={id=CuckooTable;hash_table_ratio=0.5;use_module_hash=false}";
    let cuckoo = ColumnFamilyOptions::from_string(cuckoo).unwrap();
    assert_eq!((cuckoo.table_format, cuckoo.cuckoo_table.hash_table_ratio), (TableFormat::Cuckoo, 0.5));
    assert_eq!(
        ColumnFamilyOptions::from_string(&cuckoo.to_string()).unwrap().to_string(),
        cuckoo.to_string()
    );
    let text = OptionsFile::to_text(&DbOptions::default(), [("default", &cuckoo)]);
    let file = OptionsFile::parse(Path::new("O"), text.as_bytes(), &LoadOptions::default()).unwrap();
    assert_eq!(file.column_families[0].1.to_string(), cuckoo.to_string());

    // Whoever names the other kind gets that.
    let mut options = options;
    options.set("block_based_table_factory", "{block_size=8k}").unwrap();
    assert_eq!((options.table_format, options.table.block_size), (TableFormat::BlockBased, 8192));
    assert!(options.set("plain_table_factory", "{user_key_len=5;nonsense=1}").is_err());
    assert_eq!((options.table_format, options.plain_table.user_key_len), (TableFormat::BlockBased, 8));
}

#[test]
fn comments_and_escapes_are_understood() {
    let text = "# head\n[Version] # of it\n rocksdb_version = 7.8.3 # old\n[DBOptions]\n\
                wal_dir=/a\\#b\\:c # here\n[CFOptions \"default\"]\n";
    let file = OptionsFile::parse(Path::new("O"), text.as_bytes(), &LoadOptions::default()).unwrap();
    assert_eq!(file.db.wal_dir, Path::new("/a#b:c"));
    assert!(file.db.to_string().contains("wal_dir=/a\\#b\\:c;"));
}

#[test]
fn values_that_are_kept_come_back_whole() {
    for value in ["a#b", "a\\#b", "a\\\\#b", "{x=#;y=\\}", "a\nb", "#"] {
        let mut options = ColumnFamilyOptions::default();
        options.table.set("index_block_search_type", value).unwrap();
        let text = OptionsFile::to_text(&DbOptions::default(), [("default", &options)]);
        let file = OptionsFile::parse(Path::new("O"), text.as_bytes(), &LoadOptions::default()).unwrap();
        let families = file.column_families.iter().map(|(name, options)| (name.as_str(), options));
        assert_eq!(OptionsFile::to_text(&file.db, families), text, "{value:?}");
    }
}

#[test]
fn option_strings_set_nested_options() {
    let mut options = Options::from_string(
        "max_open_files=100; write_buffer_size=16M; compression_opts={level=3;max_dict_bytes=1k};\
         block_based_table_factory={block_size=8k;filter_policy={id=bloomfilter;bits_per_key=7;};block_cache=8M};\
         memtable={id=VectorRepFactory;count=10};prefix_extractor=capped:4;checksum=kCRC32c",
    )
    .unwrap();
    assert_eq!((options.db.max_open_files, options.cf.write_buffer_size), (100, 16 << 20));
    assert_eq!((options.cf.compression_opts.level, options.cf.compression_opts.max_dict_bytes), (3, 1024));
    assert_eq!(options.cf.table.block_size, 8192);
    assert!(options.cf.table.get("filter_policy").unwrap().starts_with("bloomfilter:7"));
    assert_eq!(options.cf.table.block_cache.as_ref().map(|cache| cache.capacity()), Some(8 << 20));
    assert_eq!(options.get("memtable_factory").as_deref(), Some("VectorRepFactory"));
    assert_eq!(options.get("prefix_extractor").as_deref(), Some("rocksdb.CappedPrefix.4"));
    assert_eq!(options.get("checksum").as_deref(), Some("kCRC32c"));
    options.set("compression_opts.level", "5").unwrap();
    assert_eq!((options.cf.compression_opts.level, options.cf.compression_opts.max_dict_bytes), (5, 1024));
    options.set("compression_opts", "-14:9:0:4096:0:true").unwrap();
    assert!(options.cf.compression_opts.enabled && options.cf.compression_opts.level == 9);

    let text = options.to_string();
    let again = Options::from_string(&text).unwrap();
    assert_eq!(again.to_string(), text);
}

#[test]
fn failed_update_changes_nothing() {
    let mut options = Options::default();
    assert!(options.update("max_open_files=100;nonsense=1").is_err());
    assert!(options.set("block_based_table_factory", "{block_size=1k;nonsense=1}").is_err());
    assert_eq!(options.to_string(), Options::default().to_string());
}

#[test]
fn features_that_are_not_built_are_refused_by_name() {
    let mut options = Options::default();
    for (name, value, feature) in [
        ("compaction_options_fifo", "{max_data_files_size=1}", "blob files"),
        ("sst_partitioner_factory", "Mine", "SST partitioner Mine"),
        ("enable_blob_files", "true", "blob files"),
        ("compaction_filter", "Remove", "compaction filter Remove"),
        ("table_factory", "Mine", "table factory Mine"),
        ("memtable_factory", "Mine", "memtable Mine"),
        ("block_based_table_factory", "{separate_key_value_in_data_block=true}", "keys and values apart"),
        ("comparator", "my.Comparator", "comparator"),
    ] {
        let error = options.set(name, value).unwrap_err();
        assert_eq!(error.code(), Code::NotSupported, "{error}");
        assert!(error.message().contains(name) && error.message().contains(feature), "{error}");
    }
    // Off is off, in any spelling.
    options.set("enable_blob_files", "0").unwrap();
    options.set("compaction_filter", "nullptr").unwrap();
    options.set("read_triggered_compaction_threshold", "0").unwrap();
}

#[test]
fn memtables_of_hash_tables_keep_their_names_and_parameters() {
    let skip_list = |buckets: usize| {
        format!("{{id=HashSkipListRepFactory;branching_factor=4;skiplist_height=4;bucket_count={buckets};}}")
    };
    let link_list = "{id=HashLinkListRepFactory;threshold=256;bucket_count=50000;huge_page_size=0;\
                     logging_threshold=4096;log_when_flash=true;}";
    let other = "{id=HashLinkListRepFactory;threshold=9;bucket_count=7;huge_page_size=2097152;\
                 logging_threshold=-1;log_when_flash=false;}";
    let mut options = Options::default();
    for (set, printed) in [
        ("prefix_hash:1000", skip_list(1000)),
        ("HashSkipListRepFactory", skip_list(1_000_000)),
        (&skip_list(1_000_000), skip_list(1_000_000)),
        ("{id=prefix_hash;bucket_count=5}", skip_list(5)),
        ("hash_linkedlist", link_list.to_owned()),
        ("{id=HashLinkListRepFactory;}", link_list.to_owned()),
        (other, other.to_owned()),
    ] {
        options.set("memtable_factory", set).unwrap();
        assert_eq!(options.get("memtable_factory"), Some(printed.clone()), "{set}");
        let again = Options::from_string(&options.to_string()).unwrap();
        assert_eq!(again.get("memtable_factory"), Some(printed), "{set}");
    }
    for wrong in ["prefix_hash:many", "{id=HashSkipListRepFactory;threshold=3}", "{id=hash_linkedlist;x=1}"] {
        options.set("memtable_factory", wrong).unwrap_err();
    }
}

#[test]
fn ignored_options_are_kept_and_given_up_ones_are_not() {
    let mut options = Options::default();
    options.set("two_write_queues", "true").unwrap();
    options.set("stats_persist_period_sec", "0").unwrap();
    options.set("max_mem_compaction_level", "3").unwrap();
    assert_eq!(options.get("two_write_queues").as_deref(), Some("true"));
    assert!(options.to_string().contains("two_write_queues=true;"));
    assert!(!options.to_string().contains("max_mem_compaction_level"));
    assert!(options.set("two_write_queues", "maybe").is_err());
}

#[test]
fn only_mutable_options_change_in_an_open_database() {
    let rules = SetRules { mutable_only: true, ..SetRules::default() };
    let mut options = Options::default();
    options.cf.set_by("write_buffer_size", "1M", rules).unwrap();
    options.db.set_by("max_background_jobs", "5", rules).unwrap();
    options.cf.set_by("block_based_table_factory", "{block_size=16k}", rules).unwrap();
    let error = options.cf.set_by("num_levels", "3", rules).unwrap_err();
    assert_eq!(error.message(), "num_levels cannot change while the database is open");
    assert_eq!(options.cf.num_levels, 7);
}

#[test]
fn files_are_saved_whole_and_the_newest_is_found() {
    let env = ironstone_vfs::mem::MemFileSystem::new();
    let (fs, dir): (&dyn FileSystem, _) = (&env, Path::new("/db"));
    fs.create_dir_all(dir).unwrap();
    assert_eq!(OptionsFile::load_latest(fs, dir, &lenient()).unwrap_err().code(), Code::NotFound);
    let mut options = Options::default();
    for number in [9, 123, 45] {
        options.db.max_open_files = number;
        OptionsFile::save(fs, dir, FileNumber(number as u64), &options.db, [("default", &options.cf)])
            .unwrap();
    }
    assert_eq!(OptionsFile::load_latest(fs, dir, &lenient()).unwrap().db.max_open_files, 123);
    let mut names = fs.list(dir).unwrap();
    names.sort();
    assert_eq!(names, ["OPTIONS-000009", "OPTIONS-000045", "OPTIONS-000123"]);
}

/// `docs/options.md` is the tables in words. `REWRITE=1` rewrites it.
#[test]
fn documentation_is_up_to_date() {
    fn section<T: OptionStruct>(out: &mut String, title: &str) {
        let defaults = T::default();
        *out += &format!(
            "\n## {title}\n\n| Option | Type | Default | Changes | What we do |\n|---|---|---|---|---|\n"
        );
        for spec in T::table() {
            let default = text::get_one(&defaults, spec.name).unwrap_or_default();
            let default =
                if default.is_empty() { String::new() } else { format!("`{}`", default.replace('|', "\\|")) };
            let change = if spec.change == Change::Mutable { "any time" } else { "at opening" };
            let status = match &spec.status {
                Status::Built { .. } => "built".to_owned(),
                Status::Ignored { why, .. } => format!("accepted without effect: {why}"),
                Status::Refused { feature, .. } => format!("refused unless off: {feature}"),
                Status::Deprecated => "accepted without effect: RocksDB gave it up".to_owned(),
                Status::Alias { to, .. } => format!("other name of `{to}`"),
            };
            *out += &format!("| `{}` | {} | {default} | {change} | {status} |\n", spec.name, spec.kind);
        }
    }
    let mut expected = String::from(
        "# Options\n\nEvery option that RocksDB 11.8 knows, and what Ironstone does about it. Generated from the tables in\n\
         `crates/db/src/options`: `REWRITE=1 cargo test -p ironstone documentation_is_up_to_date`.\n\n\
         What is *accepted without effect* keeps its value in the OPTIONS file. What is *refused unless off* fails with\n\
         the name of the feature.\n\n\
         `memtable_factory` knows RocksDB's names. `HashSkipListRepFactory` and `HashLinkListRepFactory` keep theirs and their parameters, in\n\
         OPTIONS files, too; the memtable itself is the radix tree in their place, as in that of `SkipListFactory`.\n\n\
         `block_cache` is a size or `{capacity=8M;..}`. Of a cache's own options `capacity`, `num_shard_bits`, `strict_capacity_limit` and\n\
         `estimated_entry_charge` take effect. `high_pri_pool_ratio` and `low_pri_pool_ratio` are accepted without effect: there are no pools\n\
         of a fixed share. Index and filter blocks enter the queue of what was used again, and data blocks the one that they must be used in to\n\
         stay. `min_avg_entry_charge` and `id`, the kind of cache, are accepted without effect, too: there is one kind.\n",
    );
    section::<DbOptions>(&mut expected, "Database (`DBOptions`)");
    section::<ColumnFamilyOptions>(&mut expected, "Column family (`CFOptions`)");
    section::<BlockBasedTableOptions>(&mut expected, "Tables (`TableOptions/BlockBasedTable`)");
    section::<PlainTableOptions>(&mut expected, "Plain tables (`TableOptions/PlainTable`)");
    section::<CuckooTableOptions>(&mut expected, "Cuckoo tables (`TableOptions/CuckooTable`)");
    section::<UniversalCompactionOptions>(
        &mut expected,
        "Universal compaction (`compaction_options_universal`)",
    );
    section::<FifoCompactionOptions>(&mut expected, "FIFO compaction (`compaction_options_fifo`)");
    section::<ironstone_sst::CompressionOptions>(&mut expected, "Compression (`compression_opts`)");
    section::<MetadataCacheOptions>(&mut expected, "Pinning (`metadata_cache_options`)");

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/options.md");
    let fs = OsFileSystem::new();
    if std::env::var_os("REWRITE").is_some() {
        fs.write_all_synced(&path, expected.as_bytes()).unwrap();
    }
    let found = fs.read_all(&path).unwrap_or_default();
    assert!(found == expected.as_bytes(), "docs/options.md is out of date: run with REWRITE=1");
}

#[test]
fn tables_know_every_option_once() {
    fn names<T: OptionStruct>() -> usize {
        let mut names: Vec<_> = T::table().iter().map(|spec| spec.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{}: a name comes twice", T::NAME);
        count
    }
    assert_eq!(names::<DbOptions>(), 122);
    assert_eq!(names::<ColumnFamilyOptions>(), 118);
    assert_eq!(names::<BlockBasedTableOptions>(), 48);
    assert_eq!(names::<PlainTableOptions>(), 8);
    assert_eq!(names::<CuckooTableOptions>(), 5);
    assert_eq!(names::<UniversalCompactionOptions>(), 10);
    assert_eq!(names::<FifoCompactionOptions>(), 9);
    assert_eq!(names::<ironstone_sst::CompressionOptions>(), 11);
    assert_eq!(names::<MetadataCacheOptions>(), 3);
}
