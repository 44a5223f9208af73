//! RocksDB's own tools accept every kind of table that we write.
//!
//! Needs `sst_dump` (Debian package `rocksdb-tools`) for format versions up to 5, and the Python package
//! `rocksdict` for version 6; what is missing is skipped with a line that says so.

use ironstone_base::checksum::ChecksumKind;
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::{AtomicU64, Ordering};
use ironstone_base::{
    FileNumber, InternalKeyBuf, Result, SequenceNumber, SliceTransform, UserComparator, ValueType,
    slice_transform,
};
use ironstone_compress::CompressionKind;
use ironstone_sst::properties::{EXTERNAL_SST_GLOBAL_SEQNO, EXTERNAL_SST_VERSION};
use ironstone_sst::{
    BuildOptions, CollectedEntry, CollectorContext, DataBlockIndexType, FilterKind, FilterPolicy,
    IndexShortening, IndexType, TableBuilder, TableOptions, TablePropertiesCollector,
    TablePropertiesCollectorFactory,
};
use ironstone_vfs::os::OsFileSystem;
use ironstone_vfs::{FileSystem, WriteOptions};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const KEYS: u64 = 2000;

fn key(i: u64) -> String {
    format!("{:03}/key{i:06}", i / 50)
}
fn value(i: u64) -> String {
    format!("value of {i}, which repeats itself, repeats itself, {}", i * 7919 % 1000)
}

/// Writes `KEYS` entries, as a file to be ingested if `external`.
fn write(path: &Path, mut options: BuildOptions, external: bool) {
    if external {
        options.user_properties = vec![
            (EXTERNAL_SST_VERSION.into(), 2u32.to_le_bytes().to_vec()),
            (EXTERNAL_SST_GLOBAL_SEQNO.into(), 0u64.to_le_bytes().to_vec()),
        ];
    }
    options.db_id = "a database".into();
    options.db_session_id = "ESKYLARFR5J4ACA1WHUT".into();
    options.db_host_id = "somewhere".into();
    // RocksDB finds blocks in its cache by session and number, so no two files may have the same.
    static NUMBER: AtomicU64 = AtomicU64::new(12);
    options.file_number = FileNumber(NUMBER.fetch_add(1, Ordering::Relaxed));
    let reverse = matches!(options.table.comparator, UserComparator::ReverseBytewise);
    let file = OsFileSystem::new().create(path, WriteOptions::default()).unwrap();
    let mut builder = TableBuilder::new(options, file).unwrap();
    for i in 0..KEYS {
        let i = if reverse { KEYS - 1 - i } else { i };
        let sequence = if external { 0 } else { i + 1 };
        let key = InternalKeyBuf::new(key(i).as_bytes(), SequenceNumber(sequence), ValueType::Value);
        builder.add(key.as_key(), value(i).as_bytes()).unwrap();
    }
    builder.finish(true).unwrap();
}

/// One of everything, each under a name.
fn kinds(format_version: u32) -> Vec<(String, BuildOptions)> {
    let mut kinds = Vec::new();
    let mut add = |name: &str, table: TableOptions, compression: CompressionKind, dictionary: u32| {
        let table = TableOptions { format_version, block_size: 1024, metadata_block_size: 512, ..table };
        let mut options = BuildOptions::new(Arc::new(table));
        options.compression = compression;
        options.compression_options.max_dict_bytes = dictionary;
        options.compression_options.zstd_max_train_bytes = dictionary * 20;
        kinds.push((format!("v{format_version}-{name}"), options));
    };
    let default = TableOptions::default;
    let bloom = || Some(FilterPolicy::bloom(10.0));
    let none = CompressionKind::None;
    for kind in CompressionKind::ALL.into_iter().filter(|kind| kind.is_supported()) {
        add(kind.name(), default(), kind, 0);
        add(&format!("{}-dictionary", kind.name()), default(), kind, 4000);
    }
    for checksum in (0..=4).filter_map(ChecksumKind::from_byte) {
        add(checksum.option_name(), TableOptions { checksum, ..default() }, none, 0);
    }
    let prefix = || -> Option<Arc<dyn SliceTransform>> { Some(slice_transform::fixed_prefix(3)) };
    for index_type in [
        IndexType::BinarySearch,
        IndexType::HashSearch,
        IndexType::TwoLevel,
        IndexType::BinarySearchWithFirstKey,
    ] {
        for index_block_restart_interval in [1, 8] {
            let table = TableOptions {
                index_type,
                index_block_restart_interval,
                prefix_extractor: prefix(),
                filter_policy: bloom(),
                partition_filters: true,
                ..default()
            };
            add(
                &format!("{}-{index_block_restart_interval}", index_type.name()),
                table,
                CompressionKind::Lz4,
                0,
            );
        }
    }
    for (name, policy) in [
        ("bloom", FilterPolicy::bloom(10.0)),
        ("ribbon", FilterPolicy::ribbon(10.0, -1)),
        ("legacy", FilterPolicy::new(FilterKind::LegacyBloom, 10.0)),
    ] {
        add(name, TableOptions { filter_policy: Some(policy), ..default() }, none, 0);
    }
    let decoupled = TableOptions {
        index_type: IndexType::TwoLevel,
        partition_filters: true,
        decouple_partitioned_filters: true,
        filter_policy: bloom(),
        ..default()
    };
    add("decoupled", decoupled, none, 0);
    let hashed = DataBlockIndexType::BinarySearchAndHash;
    add("block-hash-index", TableOptions { data_block_index_type: hashed, ..default() }, none, 0);
    add("no-delta", TableOptions { use_delta_encoding: false, ..default() }, none, 0);
    add("aligned", TableOptions { block_align: true, ..default() }, none, 0);
    add("reverse", TableOptions { comparator: UserComparator::ReverseBytewise, ..default() }, none, 0);
    for index_shortening in [IndexShortening::None, IndexShortening::ShortenSeparatorsAndSuccessor] {
        add(&format!("{index_shortening:?}"), TableOptions { index_shortening, ..default() }, none, 0);
    }
    kinds
}

fn run(tool: &str, args: &[&str]) -> Option<(bool, String)> {
    let output = Command::new(tool).args(args).output().ok()?;
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Some((output.status.success(), text))
}

#[test]
fn sst_dump_accepts_every_kind() {
    if run("sst_dump", &["--help"]).is_none() {
        println!("skipped: sst_dump is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (name, options) in (2..=5).flat_map(kinds) {
        let path = dir.path().join("000012.sst");
        write(&path, options, false);
        let file = format!("--file={}", path.display());
        let (_, check) =
            run("sst_dump", &[&file, "--command=check", "--verify_checksum", "--show_properties"]).unwrap();
        assert!(!check.contains("orruption") && !check.contains("rror"), "{name}: {check}");
        assert!(check.contains(&format!("# entries: {KEYS}")), "{name}: {check}");
        let (_, scan) = run("sst_dump", &[&file, "--command=scan"]).unwrap();
        for i in [0, 1, KEYS / 2, KEYS - 1] {
            let line = format!("'{}' seq:{}, type:1 => {}", key(i), i + 1, value(i));
            assert!(scan.contains(&line), "{name}: no line {line} in {}", &scan[..scan.len().min(2000)]);
        }
        assert_eq!(scan.matches(" => ").count() as u64, KEYS, "{name}");
    }
}

/// Counts entries.
struct Counts(u64);

impl TablePropertiesCollector for Counts {
    fn name(&self) -> &str {
        "Counts"
    }
    fn add(&mut self, _entry: &CollectedEntry<'_>) -> Result<()> {
        self.0 += 1;
        Ok(())
    }
    fn finish(&mut self) -> Result<BTreeMap<String, Vec<u8>>> {
        let count = self.0.to_be_bytes().to_vec();
        // Names on both sides of RocksDB's own.
        Ok([("a.count", count.clone()), ("s.count", count), ("z.empty", Vec::new())]
            .map(|(name, value)| (name.to_owned(), value))
            .into())
    }
}

impl TablePropertiesCollectorFactory for Counts {
    fn name(&self) -> &str {
        "Counts"
    }
    fn create(&self, _context: &CollectorContext) -> Option<Box<dyn TablePropertiesCollector>> {
        Some(Box::new(Self(0)))
    }
}

#[test]
fn sst_dump_shows_what_collectors_added() {
    if run("sst_dump", &["--help"]).is_none() {
        println!("skipped: sst_dump is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("000012.sst");
    let collectors: Vec<Arc<dyn TablePropertiesCollectorFactory>> = vec![Arc::new(Counts(0))];
    let table = TableOptions { collectors, ..TableOptions::default() };
    write(&path, BuildOptions::new(Arc::new(table)), false);
    let file = format!("--file={}", path.display());
    let (_, shown) = run("sst_dump", &[&file, "--command=none", "--show_properties"]).unwrap();
    let count = format!("0x{KEYS:016X}");
    for line in [format!("# a.count: {count}"), format!("# s.count: {count}"), "# z.empty: 0x".to_owned()] {
        assert!(shown.lines().any(|shown| shown.trim() == line), "no {line:?} in {shown}");
    }
    assert!(shown.contains("[Counts]"), "{shown}");
}

const INGEST: &str = r#"
import os, sys, tempfile
import rocksdict
directory, keys = sys.argv[1], int(sys.argv[2])
options = rocksdict.Options(raw_mode=True)
options.create_if_missing(True)
for name in sorted(os.listdir(directory)):
    print(name)
    with tempfile.TemporaryDirectory() as database:
        db = rocksdict.Rdict(database, options)
        db.ingest_external_file([os.path.join(directory, name)], rocksdict.IngestExternalFileOptions())
        found = list(db.items())
        assert len(found) == keys, len(found)
        for key, value in found:
            assert db[key] == value
            assert value.startswith(b"value of %d," % int(key[-6:]))
        assert db.get(b"not there") is None
        db.close()
"#;

#[test]
fn rocksdb_ingests_every_kind() {
    let works = run("python3", &["-c", "import rocksdict"]).is_some_and(|(ok, _)| ok);
    if !works {
        println!("skipped: the Python package rocksdict is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // The RocksDB in that package does not know version 7.
    for (name, options) in (2..=6).flat_map(kinds) {
        // The database that takes the file has the default comparator, and the zlib in that package neither
        // compresses nor decompresses.
        let is_reverse = matches!(options.table.comparator, UserComparator::ReverseBytewise);
        if !is_reverse && options.compression != CompressionKind::Zlib {
            write(&dir.path().join(name), options, true);
        }
    }
    let (ok, text) =
        run("python3", &["-c", INGEST, dir.path().to_str().unwrap(), &KEYS.to_string()]).unwrap();
    assert!(ok, "the last one named is refused: {text}");
}
