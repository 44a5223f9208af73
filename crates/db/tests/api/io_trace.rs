//! Traces of I/O.

use crate::disk::{Disk, put_synced, refused};
use ironstone::vfs::fault::{FaultError, FaultRule};
use ironstone::vfs::{FileSystem, OpKind};
use ironstone::{
    Code, Db, FileTraceReader, FileTraceWriter, IoTraceReader, IoTraceRecord, TraceOptions, TraceWriter,
};

const TRACE: &str = "/io.trace";

fn start(disk: &Disk, db: &Db, options: &TraceOptions) {
    db.start_io_trace(options, Box::new(FileTraceWriter::create(&disk.fs, TRACE).unwrap())).unwrap();
}

fn records(disk: &Disk) -> Vec<IoTraceRecord> {
    let reader = FileTraceReader::open(&disk.fs, TRACE).unwrap();
    IoTraceReader::new(Box::new(reader)).unwrap().map(Result::unwrap).collect()
}

/// What was done to files whose names end in `suffix`.
fn done_to(records: &[IoTraceRecord], suffix: &str) -> Vec<String> {
    let of_file = records.iter().filter(|record| record.file_name.ends_with(suffix));
    of_file.map(|record| record.operation.clone()).collect()
}

#[test]
fn calls_of_writes_flushes_and_reads_are_traced() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.table.no_block_cache = true;
    let db = disk.open_with(&options);
    put_synced(&db, "before", "1");
    start(&disk, &db, &TraceOptions::default());
    put_synced(&db, "key", "value");
    db.flush().unwrap();
    assert!(db.get("key").unwrap().is_some());
    let found: Vec<_> =
        db.multi_get(&["key", "before"]).into_iter().map(|found| found.unwrap().is_some()).collect();
    assert_eq!(found, [true, true]);
    db.end_io_trace().unwrap();
    put_synced(&db, "after", "1");

    let records = records(&disk);
    let of_wal = done_to(&records, ".log");
    assert_eq!(of_wal[..2], ["Append", "Sync"], "{of_wal:?}");
    assert!(of_wal.iter().any(|operation| operation == "NewWritableFile"));
    let of_table = done_to(&records, ".sst");
    let mut expected = vec!["NewWritableFile", "Append", "Sync", "Close", "NewRandomAccessFile", "Read"];
    expected.retain(|operation| !of_table.iter().any(|done| done == operation));
    assert_eq!(expected, Vec::<&str>::new(), "missing in {of_table:?}");
    assert!(
        !done_to(&records, "MANIFEST-000001").is_empty()
            || records.iter().any(|record| record.file_name.starts_with("MANIFEST"))
    );

    let append = records.iter().find(|record| record.operation == "Append").unwrap();
    assert!(append.len.is_some_and(|len| len > 20) && append.offset.is_none() && append.status == "OK");
    let read = records
        .iter()
        .rfind(|record| record.operation == "Read" && record.file_name.ends_with(".sst"))
        .unwrap();
    assert!(read.len.is_some_and(|len| len > 0) && read.offset.is_some() && read.file_size.is_none());
    assert!(records.windows(2).all(|pair| pair[0].time_nanos <= pair[1].time_nanos));
    assert!(records.iter().any(|record| record.latency_nanos > 0));
    assert!(records.iter().all(|record| !record.file_name.contains('/')));
}

#[test]
fn failures_are_traced_as_such() {
    let disk = Disk::new();
    let db = disk.open();
    start(&disk, &db, &TraceOptions::default());
    disk.faults.arm();
    disk.faults.add(FaultRule::error(FaultError::Io).on(&[OpKind::Sync]).path(".log"));
    let sync = ironstone::WriteOptions::synced();
    assert!(db.put_cf(&sync, db.default_column_family(), "a", "1").is_err());
    disk.faults.clear();
    db.end_io_trace().unwrap();
    let records = records(&disk);
    let failed: Vec<_> = records.iter().filter(|record| record.status != "OK").collect();
    assert_eq!((failed.len(), failed[0].operation.as_str()), (1, "Sync"));
    assert!(failed[0].status.starts_with("IO error: "), "{}", failed[0].status);
}

#[test]
fn there_is_one_trace_at_a_time_and_it_has_a_largest_size() {
    let disk = Disk::new();
    let db = disk.open();
    refused(db.end_io_trace(), Code::InvalidArgument, "no trace of I/O");
    let small = TraceOptions { max_trace_file_size: 300, ..TraceOptions::default() };
    start(&disk, &db, &small);
    let second = FileTraceWriter::create(&disk.fs, "/second.trace").unwrap();
    refused(db.start_io_trace(&small, Box::new(second)), Code::Busy, "already");
    (0..100).for_each(|key| put_synced(&db, &key.to_string(), "value"));
    db.end_io_trace().unwrap();
    let few = records(&disk).len();
    assert!((1..10).contains(&few), "{few}");
    assert!(disk.fs.size(TRACE.as_ref()).unwrap() < 600);
    // Another one may follow.
    start(&disk, &db, &TraceOptions::default());
    (0..100).for_each(|key| put_synced(&db, &key.to_string(), "value"));
    db.end_io_trace().unwrap();
    assert!(records(&disk).len() >= 200);
}

/// Fails once it has taken so many records.
struct Failing(usize);

impl TraceWriter for Failing {
    fn write(&mut self, _record: &[u8]) -> ironstone::Result<()> {
        self.0 = self.0.checked_sub(1).ok_or_else(|| ironstone::Error::io_message("no more"))?;
        Ok(())
    }
    fn close(&mut self) -> ironstone::Result<()> {
        Ok(())
    }
    fn size(&self) -> u64 {
        0
    }
}

#[test]
fn a_failing_trace_harms_nothing() {
    let disk = Disk::new();
    let db = disk.open();
    refused(db.start_io_trace(&TraceOptions::default(), Box::new(Failing(0))), Code::IoError, "no more");
    db.start_io_trace(&TraceOptions::default(), Box::new(Failing(3))).unwrap();
    (0..10).for_each(|key| put_synced(&db, &key.to_string(), "value"));
    refused(db.end_io_trace(), Code::IoError, "no more");
    assert_eq!(db.iter().unwrap().entries().count(), 10);
}

#[test]
fn what_is_no_trace_of_io_is_refused() {
    let disk = Disk::new();
    let db = disk.open();
    let open = || IoTraceReader::new(Box::new(FileTraceReader::open(&disk.fs, TRACE).unwrap())).map(drop);
    db.start_trace(&TraceOptions::default(), Box::new(FileTraceWriter::create(&disk.fs, TRACE).unwrap()))
        .unwrap();
    db.put("a", "1").unwrap();
    db.end_trace().unwrap();
    refused(open(), Code::Corruption, "/io.trace at 0: not an I/O trace (bad magic)");
    disk.fs.corrupt(TRACE.as_ref(), Vec::clear).unwrap();
    refused(open(), Code::Corruption, "/io.trace at 0");
    start(&disk, &db, &TraceOptions::default());
    put_synced(&db, "a", "1");
    db.end_io_trace().unwrap();
    disk.fs.corrupt(TRACE.as_ref(), |bytes| bytes.truncate(bytes.len() - 1)).unwrap();
    let reader = IoTraceReader::new(Box::new(FileTraceReader::open(&disk.fs, TRACE).unwrap())).unwrap();
    assert_eq!(reader.version(), (11, 12));
    let last = reader.last().unwrap();
    refused(last, Code::Corruption, "/io.trace at ");
}
