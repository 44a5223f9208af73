//! Tables that are not block-based: RocksDB reads ours, and we read RocksDB's, in databases that both write in turn.

use ironstone::vfs::FileSystem;
use ironstone::vfs::os::OsFileSystem;
use ironstone_compat::directory::{Scratch, files};
use ironstone_compat::driver::{Driver, Options, Writes, ran, tool, without_way_back};
use ironstone_compat::workload::Workload;
use std::path::Path;

const IRONSTONE: Driver = Driver::Ironstone(env!("CARGO_BIN_EXE_ironstone_driver"));
const WORKLOAD: Workload = Workload { seed: 71, cfs: 2, keys: 300 };
const PLAIN_MAGIC: u64 = 0x4f34_18eb_7a8f_13b8;

const CUCKOO_MAGIC: u64 = 0x9267_89d0_c5f1_7873;

const PLAIN: [&str; 6] = [
    "prefix_extractor=rocksdb.FixedPrefix.9;table_factory={id=PlainTable;}",
    "prefix_extractor=rocksdb.CappedPrefix.10;table_factory={id=PlainTable;store_index_in_file=true;}",
    "prefix_extractor=rocksdb.FixedPrefix.10;table_factory={id=PlainTable;encoding_type=kPrefix;index_sparseness=4;}",
    "prefix_extractor=rocksdb.FixedPrefix.9;table_factory={id=PlainTable;encoding_type=kPrefix;store_index_in_file=true;\
     bloom_bits_per_key=3;hash_table_ratio=4;}",
    "table_factory={id=PlainTable;hash_table_ratio=0;}",
    "table_factory={id=PlainTable;hash_table_ratio=0;store_index_in_file=true;index_sparseness=3;}",
];

/// How many tables there are; all of them have to end with `magic`.
fn tables_with(dir: &Path, magic: u64) -> usize {
    let tables = files(dir, "", ".sst");
    for table in &tables {
        let bytes = OsFileSystem::new().read_all(table).expect("readable");
        let found = bytes.last_chunk().map(|magic| u64::from_le_bytes(*magic));
        assert_eq!(found, Some(magic), "{}", table.display());
    }
    tables.len()
}

#[test]
fn both_write_plain_tables_in_turn() {
    let seven =
        PLAIN.iter().flat_map(|cf| [(Driver::RocksDb7, cf, "flush"), (Driver::RocksDb7, cf, "none,compact")]);
    // Starting Java takes its time.
    let eleven = [(Driver::RocksDb11, &PLAIN[1], "flush"), (Driver::RocksDb11, &PLAIN[3], "compact")];
    for (theirs, cf, after) in seven.chain(eleven) {
        for writers in [[theirs, IRONSTONE], [IRONSTONE, theirs]] {
            in_turn(theirs, writers, after, Options { db: "", cf });
        }
    }
}

fn in_turn(theirs: Driver, writers: [Driver; 2], after: &str, options: Options<'_>) {
    let scratch = Scratch::new();
    for turn in 0..3u64 {
        let rounds = turn * 2..turn * 2 + 2;
        let end = rounds.end;
        let writes = Writes { workload: WORKLOAD, rounds, after, abrupt: turn % 2 == 0, options };
        let Some(()) = ran(writers[turn as usize % 2].write(&scratch.db(), &writes)) else { return };
        let expected = WORKLOAD.expected(0..end);
        let what = format!("{options:?}, after {after}, turn {turn} of {writers:?}");
        let copy = Scratch::copy_of(&scratch.db());
        let Some(found) = ran(theirs.dump_forward(&copy.db(), WORKLOAD, options)) else { return };
        assert_eq!(found, without_way_back(&expected), "{what}: {}", theirs.name());
        let mapped = Options { db: "allow_mmap_reads=true", ..options };
        for our_options in [options, mapped, Options::default()] {
            let copy = Scratch::copy_of(&scratch.db());
            let found = ran(IRONSTONE.dump(&copy.db(), WORKLOAD, our_options)).expect("Ironstone is here");
            assert_eq!(found, expected, "{what}: Ironstone with {our_options:?}");
        }
    }
    assert!(tables_with(&scratch.db(), PLAIN_MAGIC) > 0);
}

/// Runs RocksDB's own benchmark; `None` if it is not installed.
fn db_bench(dir: &Path, flags: &[&str]) -> Option<String> {
    let mut arguments = vec![format!("--db={}", dir.display())];
    let fixed = "--num=2000 --value_size=50 --key_size=16 --compression_type=none --allow_concurrent_memtable_write=0 \
                 --write_buffer_size=100000 --mmap_read=1 --cache_size=1000000";
    arguments.extend(fixed.split(' ').chain(flags.iter().copied()).map(str::to_owned));
    let (succeeded, output) = tool("db_bench", &arguments)?;
    assert!(succeeded, "{output}");
    Some(output)
}

#[test]
fn a_database_of_db_bench_is_read_and_goes_on() {
    let scratch = Scratch::new();
    let by_prefix = [
        "--use_plain_table=1",
        "--prefix_size=8",
        "--keys_per_prefix=10",
        "--memtablerep=prefix_hash",
        "--hash_bucket_count=100",
    ];
    let write = [&["--benchmarks=filluniquerandom,waitforcompaction"], &by_prefix[..]].concat();
    if db_bench(&scratch.db(), &write).is_none() {
        return;
    }
    assert!(tables_with(&scratch.db(), PLAIN_MAGIC) > 0);
    let copy = Scratch::copy_of(&scratch.db());
    let options = ironstone::Options::from_string("prefix_extractor=rocksdb.FixedPrefix.8").expect("known");
    let mut plain = options.clone();
    plain.cf.table_format = ironstone::TableFormat::Plain;
    let mut counts = Vec::new();
    for options in [&options, &plain] {
        let db = ironstone::Db::open(options, copy.db()).expect("it opens");
        let all = ironstone::ReadOptions { total_order_seek: true, ..Default::default() };
        let mut iter = db.iter_cf(&all, db.default_column_family()).expect("an iterator");
        let (mut more, mut count) = (iter.seek_to_first().expect("no damage"), 0);
        while more {
            let key = iter.key().expect("it stands on one").to_vec();
            assert!(db.get(&key).expect("no damage").is_some());
            count += 1;
            more = iter.next().expect("no damage");
        }
        counts.push(count);
        drop(iter);
        let force = ironstone::CompactRangeOptions {
            bottommost_level_compaction: ironstone::BottommostPolicy::Force,
            ..Default::default()
        };
        db.compact_range(&force, db.default_column_family(), None, None).expect("compacted");
        db.close().expect("closed");
    }
    assert_eq!(counts, [2000, 2000]);
    assert!(tables_with(&copy.db(), PLAIN_MAGIC) > 0, "compacted with the options for plain tables last");
    // And back: RocksDB reads all 2000 keys of what we made of it.
    let read = [&["--benchmarks=readseq", "--use_existing_db=1"], &by_prefix[..]].concat();
    let output = db_bench(&copy.db(), &read).expect("it ran a moment ago");
    assert!(output.contains("readseq"), "{output}");
}

#[test]
fn cuckoo_tables_go_both_ways() {
    let scratch = Scratch::new();
    let flags = ["--use_cuckoo_table=1", "--memtablerep=skip_list", "--identity_as_first_hash=0"];
    let write = [&["--benchmarks=filluniquerandom,waitforcompaction"], &flags[..]].concat();
    if db_bench(&scratch.db(), &write).is_none() {
        return;
    }
    assert!(tables_with(&scratch.db(), CUCKOO_MAGIC) > 0);
    let read = |expected: usize, db: &ironstone::Db| {
        let mut iter = db.iter().expect("an iterator");
        let (mut more, mut count) = (iter.seek_to_first().expect("no damage"), 0);
        while more {
            let (key, value) = iter.key().zip(iter.value()).expect("it stands on one");
            assert_eq!(db.get(key).expect("no damage").as_deref(), Some(value));
            count += 1;
            more = iter.next().expect("no damage");
        }
        assert_eq!(count, expected);
    };
    // Ours, over all of it: overwritten, deleted, compacted.
    let options =
        ironstone::Options::from_string("table_factory=CuckooTable;write_buffer_size=40000").expect("known");
    let db = ironstone::Db::open(&options, scratch.db()).expect("it opens");
    read(2000, &db);
    let keys: Vec<Vec<u8>> = {
        let mut iter = db.iter().expect("an iterator");
        let mut keys = Vec::new();
        let mut more = iter.seek_to_first().expect("no damage");
        while more {
            keys.push(iter.key().expect("it stands on one").to_vec());
            more = iter.next().expect("no damage");
        }
        keys
    };
    for (number, key) in keys.iter().enumerate() {
        match number % 4 {
            0 => db.delete(key).expect("deleted"),
            1 => db.put(key, [b'v'; 50]).expect("put"),
            _ => {}
        }
    }
    db.flush().expect("flushed");
    db.compact_range(&Default::default(), db.default_column_family(), None, None).expect("compacted");
    for key in keys.iter().step_by(4).take(30) {
        db.put(key, [b'w'; 50]).expect("put");
    }
    db.flush().expect("flushed");
    read(1530, &db);
    db.close().expect("closed");
    assert!(tables_with(&scratch.db(), CUCKOO_MAGIC) > 1);
    // RocksDB finds what is there, by single reads and by a walk. (It has no way back in cuckoo tables.)
    let options = Options { db: "allow_mmap_reads=true", cf: "table_factory={id=CuckooTable;}" };
    let workload = Workload { seed: 1, cfs: 1, keys: 1 };
    let Some(theirs) = ran(Driver::RocksDb7.dump_forward(&scratch.db(), workload, options)) else { return };
    let ours = ran(IRONSTONE.dump(&scratch.db(), workload, options)).expect("Ironstone is here");
    assert!(theirs.contains("count=1530"), "{theirs}");
    assert_eq!(theirs, without_way_back(&ours));
    let read = [&["--benchmarks=readseq,readrandom", "--use_existing_db=1"], &flags[..]].concat();
    let output = db_bench(&scratch.db(), &read).expect("it ran a moment ago");
    let found = output.lines().find(|line| line.starts_with("readrandom")).expect("it ran");
    assert!(found.contains(" of 2000 found") && !found.contains("(0 of"), "{output}");
}

#[test]
fn rocksdb_reads_databases_with_plain_and_cuckoo_files_from_outside() {
    let plain =
        "prefix_extractor=rocksdb.FixedPrefix.3;table_factory={id=PlainTable;store_index_in_file=true;}";
    for (cf, magic) in [(plain, PLAIN_MAGIC), ("table_factory={id=CuckooTable;}", CUCKOO_MAGIC)] {
        let scratch = Scratch::new();
        let mut options = ironstone::Options::from_string(cf).expect("known");
        options.db.create_if_missing = true;
        let db = ironstone::Db::open(&options, scratch.db()).expect("it opens");
        for number in 0..100 {
            db.put(format!("key{:013}", number * 2), "below").expect("put");
        }
        db.flush().expect("flushed");
        // What nothing lies below of, which RocksDB reads as written at 0, is what it is.
        let file = scratch.db().join("outside.sst");
        let mut writer = ironstone::SstFileWriter::new(&options);
        writer.open(&file).expect("begun");
        for number in 0..100 {
            writer.put(format!("new{number:013}"), "added").expect("in order");
        }
        writer.finish().expect("written");
        let moved = ironstone::IngestOptions { move_files: true, ..Default::default() };
        db.ingest_external_files(db.default_column_family(), &[file], &moved).expect("ingested");
        db.close().expect("closed");
        assert_eq!(tables_with(&scratch.db(), magic), 2);
        let options = Options { db: "allow_mmap_reads=true", cf };
        let workload = Workload { seed: 1, cfs: 1, keys: 1 };
        let ours = ran(IRONSTONE.dump(&scratch.db(), workload, options)).expect("Ironstone is here");
        assert!(ours.contains("count=200"), "{ours}");
        for theirs in [Driver::RocksDb7, Driver::RocksDb11] {
            let copy = Scratch::copy_of(&scratch.db());
            let Some(found) = ran(theirs.dump_forward(&copy.db(), workload, options)) else { continue };
            assert_eq!(found, without_way_back(&ours), "{cf}: {}", theirs.name());
        }
    }
}
