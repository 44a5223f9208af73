//! Traces of what a database is asked, and their replay.

use crate::disk::{Disk, all, all_of, refused};
use ironstone::statistics::Ticker;
use ironstone::vfs::fault::{Fault, FaultError, FaultRule};
use ironstone::vfs::{Clock, FileSystem, ManualClock, OpKind};
use ironstone::{
    Code, ColumnFamily, Db, FileTraceReader, FileTraceWriter, ReadOptions, ReplayOptions, Replayer,
    Statistics, TraceOperation, TraceOptions, WriteBatch, WriteOptions,
};
use std::path::Path;
use std::sync::Arc;

const TRACE: &str = "/trace";

fn start(disk: &Disk, db: &Db, options: &TraceOptions) {
    let writer = FileTraceWriter::create(&*disk.env().fs, TRACE).unwrap();
    db.start_trace(options, Box::new(writer)).unwrap();
}
fn reader(disk: &Disk) -> Box<FileTraceReader> {
    Box::new(FileTraceReader::open(&*disk.env().fs, TRACE).unwrap())
}
/// The operations of the trace in short.
fn operations(disk: &Disk, db: &Db) -> Vec<String> {
    let mut replayer = Replayer::new(db, &[], reader(disk)).unwrap();
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let mut operations = Vec::new();
    while let Some(record) = replayer.next().unwrap() {
        operations.push(match &record.operation {
            TraceOperation::Write(batch) => format!("write {}", batch.count()),
            TraceOperation::Get { column_family, key } => format!("get {} {}", column_family.0, text(key)),
            TraceOperation::Seek { column_family, key, lower_bound, upper_bound, backward } => {
                let name = if *backward { "seek_for_prev" } else { "seek" };
                let (lower, upper) = (text(lower_bound), text(upper_bound));
                format!("{name} {} {} in {lower}..{upper}", column_family.0, text(key))
            }
            TraceOperation::MultiGet(asked) => asked
                .iter()
                .fold("multi_get".to_owned(), |all, (cf, key)| format!("{all} {} {}", cf.0, text(key))),
            _ => unreachable!(),
        });
    }
    operations
}
/// Everything that goes into a trace, and some of what does not.
fn work(db: &Db, other: &ColumnFamily) {
    db.put("a", "1").unwrap();
    let mut batch = WriteBatch::new();
    batch.put("b", "2");
    batch.put_cf(other, "c", "3");
    batch.delete("a");
    db.write(&batch, &WriteOptions::default()).unwrap();
    db.get("b").unwrap();
    db.get_cf(&ReadOptions::default(), other, "c").unwrap();
    db.multi_get(&["a", "b"]).into_iter().for_each(|value| drop(value.unwrap()));
    db.multi_get_across(&ReadOptions::default(), &[(other, "c"), (db.default_column_family(), "b")]);
    db.multi_get::<&str>(&[]);
    let options = ReadOptions {
        iterate_lower_bound: Some(b"a".to_vec()),
        iterate_upper_bound: Some(b"x".to_vec()),
        ..ReadOptions::default()
    };
    let mut iter = db.iter_cf(&options, other).unwrap();
    iter.seek("b").unwrap();
    iter.next().unwrap();
    let mut iter = db.iter().unwrap();
    iter.seek_to_first().unwrap();
    iter.seek_for_prev("z").unwrap();
}
const WORK: [&str; 8] = [
    "write 1",
    "write 3",
    "get 0 b",
    "get 1 c",
    "multi_get 0 a 0 b",
    "multi_get 1 c 0 b",
    "seek 1 b in a..x",
    "seek_for_prev 0 z in ..",
];

fn traced() -> (Disk, Db, ColumnFamily) {
    let disk = Disk::new();
    let db = disk.open();
    let other = db.create_column_family("other", &disk.options().cf).unwrap();
    (disk, db, other)
}

#[test]
fn a_trace_has_what_was_asked() {
    let (disk, db, other) = traced();
    db.put("before", "").unwrap();
    start(&disk, &db, &TraceOptions::default());
    work(&db, &other);
    let again = FileTraceWriter::create(&*disk.env().fs, "/second").unwrap();
    refused(db.start_trace(&TraceOptions::default(), Box::new(again)), Code::InvalidArgument, "already");
    db.end_trace().unwrap();
    db.put("after", "").unwrap();
    db.get("after").unwrap();
    assert_eq!(operations(&disk, &db), WORK);
    refused(db.end_trace(), Code::InvalidArgument, "no trace");

    let skipping =
        TraceOptions { skip_gets: true, skip_seeks: true, skip_multi_gets: true, ..TraceOptions::default() };
    start(&disk, &db, &skipping);
    work(&db, &other);
    db.end_trace().unwrap();
    assert_eq!(operations(&disk, &db), ["write 1", "write 3", "seek_for_prev 0 z in .."]);

    start(&disk, &db, &TraceOptions { sampling_frequency: 3, ..TraceOptions::default() });
    work(&db, &other);
    db.end_trace().unwrap();
    assert_eq!(operations(&disk, &db), ["get 0 b", "multi_get 1 c 0 b"]);

    start(&disk, &db, &TraceOptions { max_trace_file_size: 200, ..TraceOptions::default() });
    work(&db, &other);
    db.end_trace().unwrap();
    let kept = operations(&disk, &db);
    assert!(!kept.is_empty() && kept.len() < WORK.len() && kept[..] == WORK[..kept.len()], "{kept:?}");
}

#[test]
fn a_replay_does_the_same_again() {
    for threads in [1, 4] {
        let (disk, db, other) = traced();
        start(&disk, &db, &TraceOptions::default());
        work(&db, &other);
        (0..500).for_each(|key| db.put(format!("key {key}"), "value").unwrap());
        db.end_trace().unwrap();

        let copy = Disk::new();
        let mut options = copy.options();
        let statistics = Arc::new(Statistics::new());
        options.db.statistics = Some(Arc::clone(&statistics));
        let replica = copy.open_with(&options);
        let second = replica.create_column_family("other", &options.cf).unwrap();
        let replay = ReplayOptions { threads, fast_forward: f64::INFINITY };
        let report = Replayer::new(&replica, &[&second], reader(&disk)).unwrap().replay(&replay).unwrap();
        assert_eq!((report.done, report.failed), (508, 0), "{:?}", report.first_failure);
        let counts = [Ticker::NumberKeysRead, Ticker::NumberDbSeek, Ticker::NumberMultigetKeysRead];
        assert_eq!(counts.map(|ticker| statistics.ticker(ticker)), [2, 2, 4]);
        if threads == 1 {
            assert_eq!((all(&replica), all_of(&replica, &second)), (all(&db), all_of(&db, &other)));
        }
        // A column family that is not there fails its operations, and no others.
        let report = Replayer::new(&replica, &[], reader(&disk)).unwrap().replay(&replay).unwrap();
        assert_eq!((report.done, report.failed), (505, 3));
        assert!(report.first_failure.unwrap().to_string().contains("column family 1"));
    }
}

#[test]
fn a_replay_keeps_the_pace() {
    let clock = Arc::new(ManualClock::new(1_000_000));
    let disk = Disk::with_clock(&clock);
    let db = disk.open();
    start(&disk, &db, &TraceOptions::default());
    clock.sleep(std::time::Duration::from_secs(10));
    db.put("a", "1").unwrap();
    db.end_trace().unwrap();
    let passed = |fast_forward| {
        let before = clock.monotonic_nanos();
        let options = ReplayOptions { fast_forward, ..ReplayOptions::default() };
        Replayer::new(&db, &[], reader(&disk)).unwrap().replay(&options).unwrap();
        (clock.monotonic_nanos() - before) / 1_000_000
    };
    assert_eq!([passed(1.0), passed(4.0), passed(f64::INFINITY)], [10_000, 2_500, 0]);
    let stopped = ReplayOptions { fast_forward: 0.0, ..ReplayOptions::default() };
    refused(
        Replayer::new(&db, &[], reader(&disk)).unwrap().replay(&stopped),
        Code::InvalidArgument,
        "fast_forward",
    );
}

#[test]
fn damage_to_a_trace_is_told_with_its_place() {
    let (disk, db, other) = traced();
    start(&disk, &db, &TraceOptions::default());
    work(&db, &other);
    db.end_trace().unwrap();
    let good = disk.fs.read_all(Path::new(TRACE)).unwrap();
    let replay = |bytes: &[u8]| {
        disk.fs.write_all_synced(Path::new(TRACE), bytes).unwrap();
        let mut replayer = Replayer::new(&db, &[&other], reader(&disk))?;
        replayer.replay(&ReplayOptions { fast_forward: f64::INFINITY, ..ReplayOptions::default() })
    };
    // Cut between two records a trace ends there: the process may have.
    let mut whole = 0;
    for len in 0..good.len() {
        match replay(&good[..len]) {
            Ok(_) => whole += 1,
            Err(error) => {
                assert_eq!(error.code(), Code::Corruption, "{error}");
                assert!(error.to_string().contains("/trace"), "{error}");
            }
        }
    }
    assert_eq!(whole, WORK.len() + 1);
    // What follows the end means nothing.
    assert_eq!(replay(&[&good[..], b"left over"].concat()).unwrap().done, WORK.len() as u64);
    let mut long = good.clone();
    let head = 13 + u32::from_le_bytes(good[9..13].try_into().unwrap()) as usize;
    long[head + 12] = 0xff;
    let error = replay(&long).unwrap_err();
    assert!(error.to_string().contains(&head.to_string()), "{error}");
    let text = String::from_utf8_lossy(&good[13..head]).into_owned();
    assert_eq!(
        text,
        "feedcafedeadbeef\tTrace Version: 0.2\tRocksDB Version: 11.12\tFormat: Timestamp OpType Payload\n"
    );
}

#[test]
fn a_trace_that_cannot_be_written_disturbs_nobody() {
    let (disk, db, other) = traced();
    disk.faults.arm();
    start(&disk, &db, &TraceOptions::default());
    let full = FaultRule::new(Fault::Error(FaultError::NoSpace));
    disk.faults.add(full.on(&[OpKind::Append, OpKind::Flush]).path("trace").forever());
    work(&db, &other);
    db.put("large", "x".repeat(100_000)).unwrap();
    assert!(db.end_trace().unwrap_err().to_string().contains("/trace"));
    disk.faults.clear();
    start(&disk, &db, &TraceOptions::default());
    db.end_trace().unwrap();
    assert!(operations(&disk, &db).is_empty());
}

/// Several threads write at once; the trace is in the order of the log.
#[test]
fn writes_stand_in_the_order_of_the_log_if_so_wished() {
    let (disk, db, other) = traced();
    let options = TraceOptions { preserve_write_order: true, ..TraceOptions::default() };
    start(&disk, &db, &options);
    let begun = db.latest_sequence();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let db = &db;
            scope.spawn(move || {
                for i in 0..200 {
                    db.put(format!("{thread} {i}"), "value").unwrap();
                }
            });
        }
    });
    work(&db, &other);
    db.end_trace().unwrap();
    let mut of_log = Vec::new();
    let mut updates = db.get_updates_since(begun.plus(1)).unwrap();
    while let Some(update) = updates.next_update().unwrap() {
        of_log.push(update.batch.data()[12..].to_vec());
    }
    let mut replayer = Replayer::new(&db, &[], reader(&disk)).unwrap();
    let (mut of_trace, mut others) = (Vec::new(), 0);
    while let Some(record) = replayer.next().unwrap() {
        match record.operation {
            TraceOperation::Write(batch) => of_trace.push(batch.data()[12..].to_vec()),
            _ => others += 1,
        }
    }
    assert_eq!((of_trace.len(), others), (802, WORK.len() - 2));
    assert!(of_trace == of_log, "in another order");

    // What a trace without it begins is not taken twice, and nothing is after its end.
    start(&disk, &db, &TraceOptions::default());
    work(&db, &other);
    db.end_trace().unwrap();
    assert_eq!(operations(&disk, &db), WORK);
    let skipping = TraceOptions { skip_writes: true, ..options };
    start(&disk, &db, &skipping);
    work(&db, &other);
    db.end_trace().unwrap();
    assert_eq!(operations(&disk, &db), WORK[2..]);
}
