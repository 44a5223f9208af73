//! Traces of queries: RocksDB replays ours (`db_bench` of 7.8), and we replay those of RocksDB (`db_bench` and RocksJava 11.8, which has
//! no replay itself).

use ironstone::merge_operators::builtin;
use ironstone::statistics::Ticker;
use ironstone::vfs::os::OsFileSystem;
use ironstone::{
    ColumnFamily, ColumnFamilyDescriptor, ColumnFamilyOptions, Db, DbOptions, FileTraceReader,
    FileTraceWriter, ReadOptions, ReplayOptions, Replayer, Statistics, TraceOptions, WriteBatch,
    WriteOptions,
};
use ironstone_compat::directory::Scratch;
use ironstone_compat::driver::{Driver, Options, Writes, ran, tool};
use ironstone_compat::workload::Workload;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const IRONSTONE: Driver = Driver::Ironstone(env!("CARGO_BIN_EXE_ironstone_driver"));
const WORKLOAD: Workload = Workload { seed: 91, cfs: 2, keys: 300 };
/// What db_bench calls its column families; without a second one it cannot replay anything.
const BENCH_FAMILIES: [&str; 2] = ["default", "column_family_name_000001"];

fn open(dir: &Path, names: [&str; 2]) -> (Db, Arc<Statistics>) {
    let statistics = Arc::new(Statistics::new());
    let options = DbOptions {
        create_if_missing: true,
        create_missing_column_families: true,
        statistics: Some(Arc::clone(&statistics)),
        ..DbOptions::default()
    };
    let descriptor = |name: &str| {
        let options =
            ColumnFamilyOptions { merge_operator: builtin("put"), ..ColumnFamilyOptions::default() };
        ColumnFamilyDescriptor::new(name, options)
    };
    let db = Db::open_column_families(&options, dir, names.map(descriptor).to_vec()).unwrap();
    (db, statistics)
}

/// Replays the trace in a new database: what was done, and what the statistics counted.
fn replayed_by_us(trace: &Path, dir: &Path, names: [&str; 2]) -> (u64, Counts) {
    let (db, statistics) = open(dir, names);
    let second = db.column_family(names[1]).unwrap();
    let reader = FileTraceReader::open(&OsFileSystem::new(), trace).unwrap();
    let mut replayer = Replayer::new(&db, &[&second], Box::new(reader)).unwrap();
    let fast = ReplayOptions { fast_forward: f64::INFINITY, ..ReplayOptions::default() };
    let report = replayer.replay(&fast).unwrap();
    assert_eq!(report.failed, 0, "{:?}", report.first_failure);
    db.close().unwrap();
    let count = |ticker| statistics.ticker(ticker);
    let counts = Counts {
        written: count(Ticker::NumberKeysWritten),
        read: count(Ticker::NumberKeysRead),
        sought: count(Ticker::NumberDbSeek),
        multi_gets: count(Ticker::NumberMultigetCalls),
        read_together: count(Ticker::NumberMultigetKeysRead),
    };
    (report.done, counts)
}

/// What both engines count of what they are asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    written: u64,
    read: u64,
    sought: u64,
    multi_gets: u64,
    read_together: u64,
}

fn bench(arguments: &[String]) -> Option<String> {
    let mut all = vec!["--num_column_families=2".to_owned(), "--merge_operator=put".to_owned()];
    all.extend_from_slice(arguments);
    let (succeeded, output) = tool("db_bench", &all)?;
    assert!(succeeded, "db_bench {all:?}: {output}");
    Some(output)
}

fn replayed_by_db_bench(trace: &Path, dir: &Path) -> Option<Counts> {
    let output = bench(&[
        "--benchmarks=replay".to_owned(),
        format!("--db={}", dir.display()),
        format!("--trace_file={}", trace.display()),
        "--trace_replay_fast_forward=1000".to_owned(),
        "--statistics=true".to_owned(),
    ])?;
    assert!(output.contains("Replay completed"), "{output}");
    let count = |name: &str| {
        let of_line = |line: &str| line.strip_prefix(name)?.strip_prefix(" COUNT : ")?.parse().ok();
        output.lines().find_map(of_line).unwrap_or_else(|| panic!("no {name} in {output}"))
    };
    Some(Counts {
        written: count("rocksdb.number.keys.written"),
        read: count("rocksdb.number.keys.read"),
        sought: count("rocksdb.number.db.seek"),
        multi_gets: count("rocksdb.number.multiget.get"),
        read_together: count("rocksdb.number.multiget.keys.read"),
    })
}

/// The entries of both column families.
fn contents(dir: &Path, names: [&str; 2]) -> Vec<(String, Vec<u8>, Vec<u8>)> {
    let (db, _) = open(dir, names);
    let of = |family: ColumnFamily| {
        let entries = db.iter_cf(&ReadOptions::default(), &family).unwrap().entries();
        let entry =
            |(key, value): (Box<[u8]>, Box<[u8]>)| (family.name().to_owned(), key.to_vec(), value.to_vec());
        entries.map(|found| entry(found.unwrap())).collect::<Vec<_>>()
    };
    names.into_iter().flat_map(|name| of(db.column_family(name).unwrap())).collect()
}

fn traced(db: &Db, trace: &Path, work: impl FnOnce(&Db, &ColumnFamily)) {
    let writer = FileTraceWriter::create(&OsFileSystem::new(), trace).unwrap();
    db.start_trace(&TraceOptions::default(), Box::new(writer)).unwrap();
    work(db, &db.column_family(BENCH_FAMILIES[1]).unwrap());
    db.end_trace().unwrap();
}

fn work(db: &Db, other: &ColumnFamily) {
    let default = db.default_column_family();
    let writing = WriteOptions::default();
    for i in 0..200u32 {
        let key = format!("key{:03}", i * 7 % 150);
        db.put(&key, format!("{i}")).unwrap();
        let mut batch = WriteBatch::new();
        batch.put_cf(other, &key, "other".repeat(i as usize % 50));
        batch.delete(format!("key{:03}", i * 11 % 150));
        batch.merge(format!("merged{}", i % 10), format!("{i}"));
        batch.put_log_data(b"who knows");
        db.write(&batch, &writing).unwrap();
    }
    db.delete_range(b"key020", b"key030").unwrap();
    db.single_delete_cf(&writing, other, "key001").unwrap();
    for i in 0..70u32 {
        db.get(format!("key{i:03}")).unwrap();
        db.get_cf(&ReadOptions::default(), other, format!("key{i:03}")).unwrap();
    }
    for i in 0..30u32 {
        let bounds = ReadOptions {
            iterate_lower_bound: i.is_multiple_of(2).then(|| b"key010".to_vec()),
            iterate_upper_bound: i.is_multiple_of(3).then(|| b"key100".to_vec()),
            ..ReadOptions::default()
        };
        for family in [default, other] {
            let mut iter = db.iter_cf(&bounds, family).unwrap();
            iter.seek(format!("key{i:03}")).unwrap();
            iter.seek_for_prev(format!("key{:03}", 100 - i)).unwrap();
        }
    }
    for i in 0..20u32 {
        let keys = [format!("key{i:03}"), "no".to_owned(), format!("key{:03}", i + 1)];
        db.multi_get(&keys).into_iter().for_each(|found| drop(found.unwrap()));
    }
}

#[test]
fn db_bench_replays_our_trace() {
    let scratch = Scratch::new();
    let trace = beside(&scratch, "trace");
    let (db, _) = open(&scratch.db(), BENCH_FAMILIES);
    traced(&db, &trace, work);
    db.close().unwrap();
    drop(db);
    let expected = contents(&scratch.db(), BENCH_FAMILIES);
    assert!(expected.len() > 200);

    let replica = Scratch::new();
    let Some(theirs) = replayed_by_db_bench(&trace, &replica.db()) else { return };
    assert_eq!(contents(&replica.db(), BENCH_FAMILIES), expected);
    let ours = Scratch::new();
    let (_, counts) = replayed_by_us(&trace, &ours.db(), BENCH_FAMILIES);
    assert_eq!(contents(&ours.db(), BENCH_FAMILIES), expected);
    // 200 puts, batches of three, a range and one more; two column families read and sought in.
    let asked = Counts { written: 802, read: 140, sought: 120, multi_gets: 20, read_together: 60 };
    assert_eq!((counts, theirs), (asked, asked));
}

fn beside(scratch: &Scratch, name: &str) -> PathBuf {
    scratch.db().parent().unwrap().join(name)
}

#[test]
fn we_replay_what_db_bench_traced() {
    for benchmark in [
        "fillrandom",
        "deleterandom",
        "mergerandom",
        "readrandomwriterandom",
        "readrandom",
        "seekrandom",
        "multireadrandom",
    ] {
        let scratch = Scratch::new();
        let trace = beside(&scratch, "trace");
        let mut arguments = vec![
            format!("--benchmarks={benchmark}"),
            format!("--db={}", scratch.db().display()),
            format!("--trace_file={}", trace.display()),
        ];
        arguments.extend(["--num=400", "--value_size=30", "--seed=17"].map(str::to_owned));
        if benchmark == "multireadrandom" {
            arguments.extend(["--multiread_batched=true", "--batch_size=8"].map(str::to_owned));
        }
        let Some(_) = bench(&arguments) else { return };
        let ours = Scratch::new();
        let (done, counts) = replayed_by_us(&trace, &ours.db(), BENCH_FAMILIES);
        let replica = Scratch::new();
        let theirs = replayed_by_db_bench(&trace, &replica.db()).expect("it ran a moment ago");
        assert_eq!(counts, theirs, "{benchmark}");
        assert_eq!(
            contents(&ours.db(), BENCH_FAMILIES),
            contents(&scratch.db(), BENCH_FAMILIES),
            "{benchmark}"
        );
        let Counts { written, read, sought, multi_gets, read_together } = counts;
        assert_eq!(written + read + sought + multi_gets, done, "{benchmark}: {counts:?}");
        assert!(written + read + sought + read_together >= 400, "{benchmark}: {counts:?}");
    }
}

#[test]
fn we_replay_what_rocksdb_11_traced() {
    let scratch = Scratch::new();
    let (written, read) = (beside(&scratch, "written"), beside(&scratch, "read"));
    let options = Options { db: "", cf: "block_based_table_factory={format_version=5}" };
    let writes = Writes { workload: WORKLOAD, rounds: 0..3, after: "flush", abrupt: false, options };
    let Some(()) = ran(Driver::RocksDb11.write_traced(&scratch.db(), &writes, &written)) else { return };
    let found = ran(Driver::RocksDb11.dump_traced(&scratch.db(), WORKLOAD, options, &read)).expect("it ran");
    assert_eq!(found, WORKLOAD.expected(0..3));

    let ours = Scratch::new();
    let (done, counts) = replayed_by_us(&written, &ours.db(), ["default", "cf1"]);
    assert_eq!(done, 3 * WORKLOAD.keys.div_ceil(8), "eight keys a batch");
    assert!(counts.written >= 3 * WORKLOAD.keys * WORKLOAD.cfs, "{counts:?}");
    assert_eq!(ran(IRONSTONE.dump(&ours.db(), WORKLOAD, options)).as_deref(), Some(&*found));
    // 200 lookups in each column family; moves to the first and last key are in no trace.
    let (done, counts) = replayed_by_us(&read, &ours.db(), ["default", "cf1"]);
    assert_eq!((done, counts), (400, Counts { read: 400, ..Counts::default() }));
}
