//! A locked WAL: nothing is written, switched or lost until it is unlocked.

use crate::disk::{Disk, all, fresh, get, put_unlogged, refused, shape};
use ironstone::vfs::OpKind;
use ironstone::vfs::fault::{FaultError, FaultRule};
use ironstone::{
    Code, Db, Error, FileNumber, FlushOptions, IngestOptions, Options, SstFileWriter, WaitForCompactOptions,
    WriteOptions,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const NO_WAIT: FlushOptions =
    FlushOptions { wait: false, allow_write_stall: true, force_atomic_flush: false };

fn put_impatient(db: &Db) -> Result<(), Error> {
    let impatient = WriteOptions { no_slowdown: true, ..WriteOptions::default() };
    db.put_cf(&impatient, db.default_column_family(), "impatient", "v")
}

fn newest_wal(db: &Db) -> FileNumber {
    db.sorted_wal_files().unwrap().last().unwrap().number
}

/// Does `act` on another thread while the WAL is locked, where it has to wait until it is unlocked.
fn waits(disk: &Disk, db: &Db, act: impl FnOnce() + Send) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let locked = db.locked_wal().unwrap();
        scope.spawn(|| {
            act();
            done.store(true, Ordering::SeqCst);
        });
        disk.clock_sleep(Duration::from_millis(30));
        assert!(!done.load(Ordering::SeqCst), "it did not wait");
        drop(locked);
    });
    assert!(done.load(Ordering::SeqCst));
}

#[test]
fn writes_wait_until_it_is_unlocked() {
    let (disk, db) = fresh();
    db.put("a", "1").unwrap();
    waits(&disk, &db, || {
        assert_eq!(all(&db), "a=1", "reads go on");
        db.put("b", "2").unwrap();
    });
    assert_eq!(all(&db), "a=1 b=2");
    db.lock_wal().unwrap();
    assert_eq!(db.int_property("rocksdb.is-write-stopped"), Some(1));
    refused(put_impatient(&db), Code::Incomplete, "stopped");
    refused(db.put("c", "3"), Code::Aborted, "deadlock");
    let gives_way = WriteOptions { low_pri: true, ..WriteOptions::default() };
    refused(db.put_cf(&gives_way, db.default_column_family(), "c", "3"), Code::Aborted, "deadlock");
    db.unlock_wal().unwrap();
    assert_eq!(db.int_property("rocksdb.is-write-stopped"), Some(0));
    put_impatient(&db).unwrap();
    assert!(db.property("rocksdb.dbstats").unwrap().contains("0 stops"), "nothing was behind");
}

#[test]
fn it_is_locked_as_long_as_any_thread_has_locked_it() {
    let (_disk, db) = fresh();
    refused(db.unlock_wal(), Code::Aborted, "has not locked");
    db.lock_wal().unwrap();
    db.lock_wal().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            refused(db.unlock_wal(), Code::Aborted, "has not locked");
            let _locked = db.locked_wal().unwrap();
        });
    });
    db.unlock_wal().unwrap();
    refused(put_impatient(&db), Code::Incomplete, "stopped");
    db.unlock_wal().unwrap();
    put_impatient(&db).unwrap();
    refused(db.unlock_wal(), Code::Aborted, "has not locked");
}

#[test]
fn what_was_written_before_is_in_it() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.manual_wal_flush = true;
    let db = disk.open_with(&options);
    db.put("a", "1").unwrap();
    assert_eq!(all(&disk.kill().open()), "");
    let _locked = db.locked_wal().unwrap();
    assert_eq!(all(&disk.kill().open()), "a=1");
}

/// Writers that are on their way when it is locked have written, or wait.
#[test]
fn it_stands_still_while_it_is_locked() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.manual_wal_flush = true;
    options.cf.write_buffer_size = 64 << 10;
    let db = disk.open_with(&options);
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (db, stop, written) = (&db, &stop, &written);
            scope.spawn(move || {
                for number in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    db.put(format!("{writer}-{number:06}"), [0; 100]).unwrap();
                    written.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for _ in 0..30 {
            let locked = db.locked_wal().unwrap();
            let (accepted, sequence) = (written.load(Ordering::SeqCst), db.latest_sequence());
            let wal = newest_wal(&db);
            disk.clock_sleep(Duration::from_millis(2));
            assert_eq!(db.latest_sequence(), sequence);
            assert_eq!(newest_wal(&db), wal, "no memtable is switched");
            assert!(written.load(Ordering::SeqCst) - accepted <= 4, "what was in time is answered");
            let copy = disk.kill().open();
            assert_eq!(copy.latest_sequence(), sequence, "all of it is in the WAL");
            drop(copy);
            drop(locked);
            disk.clock_sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(db.latest_sequence().0, written.into_inner());
}

#[test]
fn memtables_are_not_switched() {
    let (disk, db) = fresh();
    let flush = |options: FlushOptions| db.flush_cf(&options, db.default_column_family());
    {
        let _locked = db.locked_wal().unwrap();
        flush(FlushOptions::default()).unwrap(); // Nothing is in it.
    }
    db.put("a", "1").unwrap();
    {
        let _locked = db.locked_wal().unwrap();
        refused(flush(FlushOptions::default()), Code::Aborted, "deadlock");
        refused(flush(NO_WAIT), Code::TryAgain, "stopped");
        let waiting = WaitForCompactOptions { flush: true, ..WaitForCompactOptions::default() };
        refused(db.wait_for_compact_with(&waiting), Code::Aborted, "deadlock");
    }
    assert!(shape(&db).is_empty());
    waits(&disk, &db, || flush(FlushOptions::default()).unwrap());
    assert_eq!(shape(&db), [1]);

    // One that is full waits for the next write.
    let mut options = disk.options();
    options.cf.write_buffer_size = 64 << 10;
    drop(db);
    let db = disk.open_with(&options);
    let first = newest_wal(&db);
    while newest_wal(&db) == first {
        let locked = db.locked_wal().unwrap();
        refused(put_impatient(&db), Code::Incomplete, "stopped");
        assert_eq!(newest_wal(&db), first);
        drop(locked);
        db.put("b", [0; 1000]).unwrap();
    }
}

#[test]
fn files_and_column_families_neither_come_nor_go() {
    let (disk, db) = fresh();
    let family = db.create_column_family("family", &disk.options().cf).unwrap();
    let mut writer = SstFileWriter::new(&disk.options());
    writer.open("/file.sst").unwrap();
    writer.put("f", "1").unwrap();
    writer.finish().unwrap();
    let ingest =
        || db.ingest_external_files(db.default_column_family(), &["/file.sst"], &IngestOptions::default());
    {
        let _locked = db.locked_wal().unwrap();
        refused(ingest(), Code::Aborted, "deadlock");
        refused(db.drop_column_family(&family), Code::Aborted, "deadlock");
    }
    waits(&disk, &db, || ingest().unwrap());
    assert_eq!(all(&db), "f=1");
    waits(&disk, &db, || db.drop_column_family(&family).unwrap());
    assert!(db.column_family("family").is_none());
}

#[test]
fn copies_are_made_without_a_flush() {
    let (disk, db) = fresh();
    db.put("a", "1").unwrap();
    let open = |path: &str| Db::open(&disk.options(), path).unwrap();
    {
        let _locked = db.locked_wal().unwrap();
        assert_eq!(db.checkpoint("/copy").unwrap(), db.latest_sequence());
    }
    assert!(shape(&db).is_empty());
    assert_eq!(all(&open("/copy")), "a=1");
    // What no WAL has needs one.
    put_unlogged(&db, "b", "2").unwrap();
    {
        let _locked = db.locked_wal().unwrap();
        refused(db.checkpoint("/second"), Code::Aborted, "deadlock");
    }
    waits(&disk, &db, || assert!(db.checkpoint("/second").is_ok()));
    assert_eq!(all(&open("/second")), "a=1 b=2");
}

#[test]
fn closing_ends_what_waits_for_it() {
    let (disk, db) = fresh();
    db.put("a", "1").unwrap();
    put_unlogged(&db, "b", "2").unwrap();
    std::thread::scope(|scope| {
        let locked = db.locked_wal().unwrap();
        let writer = scope.spawn(|| db.put("c", "3"));
        let flusher = scope.spawn(|| {
            let flushed = db.flush();
            assert!(flushed.is_ok() || flushed.is_err_and(|error| error.code() == Code::ShutdownInProgress));
        });
        disk.clock_sleep(Duration::from_millis(20));
        db.close().unwrap();
        refused(writer.join().unwrap(), Code::ShutdownInProgress, "closing");
        flusher.join().unwrap();
        drop(locked);
    });
    refused(db.lock_wal(), Code::ShutdownInProgress, "closing");
    drop(db);
    assert_eq!(all(&disk.open()), "a=1 b=2", "what no WAL held was flushed");
}

#[test]
fn one_that_cannot_be_flushed_is_not_locked() {
    let disk = Disk::new();
    let mut options: Options = disk.options();
    options.db.manual_wal_flush = true;
    options.db.max_bgerror_resume_count = 0;
    let db = disk.open_with(&options);
    db.put("a", "1").unwrap();
    disk.faults.arm();
    disk.faults.add(FaultRule::error(FaultError::NoSpace).on(&[OpKind::Append]).path(".log"));
    refused(db.lock_wal(), Code::IoError, ".log");
    refused(db.unlock_wal(), Code::Aborted, "has not locked");
    refused(db.put("b", "2"), Code::IoError, ".log");
    db.resume().unwrap();
    db.put("b", "2").unwrap();
    assert_eq!(all(&db), "a=1 b=2");
}

/// Going on after a failure writes nothing that was not accepted: it does not wait, and writes wait afterwards.
#[test]
fn resuming_does_not_let_writes_in() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.max_bgerror_resume_count = 0;
    let db = disk.open_with(&options);
    db.put("a", "1").unwrap();
    disk.faults.arm();
    disk.faults.add(FaultRule::error(FaultError::NoSpace).on(&[OpKind::Sync]).path(".log"));
    let locked = db.locked_wal().unwrap();
    refused(db.sync_wal(), Code::IoError, ".log");
    refused(put_impatient(&db), Code::IoError, ".log");
    db.resume().unwrap();
    refused(put_impatient(&db), Code::Incomplete, "stopped");
    drop(locked);
    db.put("b", "2").unwrap();
    assert_eq!((get(&db, "a"), get(&db, "b")), ("1".to_owned(), "2".to_owned()));
}

#[test]
fn a_database_that_is_only_read_has_none() {
    let (disk, db) = fresh();
    drop(db);
    let db = disk.open_read_only(&disk.options(), &[]).unwrap();
    refused(db.lock_wal(), Code::NotSupported, "reading only");
}
