//! Flushes that take several column families, all or none.

use crate::disk::{Disk, refused};
use ironstone::options::DbOptions;
use ironstone::statistics::Ticker;
use ironstone::vfs::FileSystem;
use ironstone::vfs::fault::{FaultError, FaultRule};
use ironstone::vfs::mem::CrashPolicy;
use ironstone::{
    BackupEngine, BackupEngineOptions, Code, ColumnFamily, ColumnFamilyDescriptor, ColumnFamilyOptions,
    CreateBackupOptions, CreateCheckpointOptions, Db, FlushOptions, LiveFilesStorageInfoOptions, Options,
    ReadOptions, RestoreOptions, Result, Statistics, WriteBatch, WriteOptions,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const NAMES: [&str; 3] = ["default", "one", "two"];

fn atomic(disk: &Disk) -> Options {
    let mut options = disk.options();
    options.db.atomic_flush = true;
    options.db.create_missing_column_families = true;
    options
}

fn families(db: &Db) -> Vec<ColumnFamily> {
    NAMES.iter().map(|name| db.column_family(name).unwrap()).collect()
}

fn flush_all(db: &Db, options: FlushOptions) -> Result<()> {
    db.flush_cfs(&options, &families(db).iter().collect::<Vec<_>>())
}

fn unlogged() -> WriteOptions {
    WriteOptions { disable_wal: true, ..WriteOptions::default() }
}

/// Writes `number` under the key `n` of all column families, in one batch that no WAL holds.
fn put_everywhere(db: &Db, number: usize) -> Result<()> {
    let mut batch = WriteBatch::new();
    for (family, cf) in families(db).iter().enumerate() {
        batch.put_cf(cf, "n", number.to_string());
        // They fill up at different times.
        batch.put_cf(cf, format!("k{number:05}"), vec![b'x'; 300 * (2 - family)]);
    }
    db.write(&batch, &unlogged())
}

/// The number that each column family has.
fn numbers(db: &Db) -> Vec<usize> {
    let get = |cf: &ColumnFamily| db.get_cf(&ReadOptions::default(), cf, "n").unwrap();
    let number = |value: &[u8]| std::str::from_utf8(value).unwrap().parse().unwrap();
    families(db).iter().map(|cf| get(cf).map_or(0, |value| number(&value))).collect()
}

/// The number that all column families have.
fn common_number(db: &Db, when: &str) -> usize {
    let numbers = numbers(db);
    assert!(numbers.iter().all(|number| *number == numbers[0]), "{when}: {numbers:?}");
    // Not only that of the last write: everything up to there, and nothing from behind it.
    for (family, cf) in families(db).iter().enumerate() {
        let iter = db.iter_cf(&ReadOptions::default(), cf).unwrap();
        let entries = iter.entries().map(|entry| entry.unwrap()).filter(|(key, _)| key.starts_with(b"k"));
        assert_eq!(entries.count(), numbers[0], "{when}: column family {family}");
    }
    numbers[0]
}

fn open(disk: &Disk, options: &Options) -> Db {
    disk.open_families(options, &NAMES[1..]).unwrap()
}

#[test]
fn what_no_wal_holds_is_at_one_point_in_all_column_families_whenever_the_power_goes() {
    let run = |disk: &Disk| {
        let mut options = atomic(disk);
        options.cf.write_buffer_size = 6 << 10;
        let Ok(db) = disk.open_families(&options, &NAMES[1..]) else { return 0 };
        let mut flushed = 0;
        for number in 1..=40 {
            // Waits, or how many flushes come by themselves would be a matter of time.
            if put_everywhere(&db, number).is_err() || db.wait_for_compact().is_err() {
                break;
            }
            if number % 15 == 0 && flush_all(&db, FlushOptions::default()).is_ok() {
                flushed = number;
            }
        }
        drop(db);
        flushed
    };
    let disk = Disk::new();
    run(&disk);
    let operations = disk.fs.op_count();
    let mut found = std::collections::BTreeSet::new();
    for operation in (0..operations).step_by(3) {
        let disk = Disk::new();
        disk.fs.set_crash_point(operation);
        let flushed = run(&disk);
        for policy in [CrashPolicy::DropUnsynced, CrashPolicy::KeepAll] {
            let after = disk.crash(policy);
            let when = format!("power lost at operation {operation} of {operations}, {policy:?}");
            let number = common_number(&open(&after, &atomic(&after)), &when);
            assert!(number >= flushed, "{when}: {number}, but {flushed} was flushed");
            found.insert(number);
        }
    }
    assert!(found.len() > 6, "flushes by themselves were between: {found:?}");
}

#[test]
fn a_batch_that_is_being_applied_is_flushed_with_all_its_parts() {
    let disk = Disk::new();
    let mut options = atomic(&disk);
    options.cf.write_buffer_size = 8 << 10;
    let db = open(&disk, &options);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (1..=400).for_each(|number| put_everywhere(&db, number).unwrap()));
        while !writer.is_finished() {
            match flush_all(&db, FlushOptions { wait: false, ..FlushOptions::default() }) {
                Err(error) if error.code() == Code::TryAgain => {} // Writes are stopped.
                flushed => flushed.unwrap(),
            }
            common_number(&open(&disk.lose_power(), &atomic(&disk)), "while batches are written");
        }
    });
    flush_all(&db, FlushOptions::default()).unwrap();
    assert_eq!(common_number(&open(&disk.lose_power(), &atomic(&disk)), "at the end"), 400);
}

#[test]
fn a_flush_of_named_column_families_takes_these_alone() {
    let disk = Disk::new();
    let options = atomic(&disk);
    let db = open(&disk, &options);
    put_everywhere(&db, 1).unwrap();
    let all = families(&db);
    db.flush_cfs(&FlushOptions::default(), &[&all[0], &all[2]]).unwrap();
    assert_eq!(numbers(&open(&disk.lose_power(), &options)), [1, 0, 1]);
    // Whatever flushes without being told what, takes all.
    put_everywhere(&db, 2).unwrap();
    db.compact_range(&ironstone::CompactRangeOptions::default(), &all[0], None, None).unwrap();
    assert_eq!(common_number(&open(&disk.lose_power(), &options), "after a compaction"), 2);
}

/// Flushes all column families, atomically if `forced`, with a failure of the change number `after` of tables. Answers what
/// would be there if the power went after that.
fn flush_with_failure(after: u64, forced: bool) -> Vec<usize> {
    let disk = Disk::new();
    let options = Options { db: DbOptions { atomic_flush: false, ..atomic(&disk).db }, ..disk.options() };
    let db = open(&disk, &options);
    put_everywhere(&db, 1).unwrap();
    db.pause_background_work().unwrap();
    flush_all(&db, FlushOptions { wait: false, force_atomic_flush: forced, ..FlushOptions::default() })
        .unwrap();
    disk.faults.arm();
    disk.faults.add(FaultRule::error(FaultError::Io).on_changes().path(".sst").after(after));
    db.continue_background_work().unwrap();
    let failed = || db.background_error().is_some();
    disk.wait_until("the end", || failed() || db.live_files().len() == 3);
    disk.faults.clear();
    let found = numbers(&open(&disk.lose_power(), &options));
    if failed() && forced {
        assert_eq!(found, [0, 0, 0], "after {after}");
        disk.wait_until("nothing is left of the tables", || disk.files(".sst").is_empty());
    }
    db.resume().unwrap();
    assert_eq!(common_number(&open(&disk.lose_power(), &options), "after resuming"), 1);
    found
}

#[test]
fn a_single_flush_can_be_atomic() {
    let failures = (0..).find(|after| flush_with_failure(*after, true) == [1, 1, 1]).unwrap();
    assert!(failures > 12, "{failures} changes make three tables");
    let mut one_by_one = (0..failures).map(|after| flush_with_failure(after, false));
    assert!(one_by_one.any(|found| found == [1, 0, 0]), "they are made durable one after the other");
}

#[test]
fn a_column_family_that_is_dropped_meanwhile_is_left_out() {
    let disk = Disk::new();
    let options = atomic(&disk);
    let db = open(&disk, &options);
    put_everywhere(&db, 1).unwrap();
    db.pause_background_work().unwrap();
    flush_all(&db, FlushOptions { wait: false, ..FlushOptions::default() }).unwrap();
    db.drop_column_family(&families(&db)[1]).unwrap();
    db.continue_background_work().unwrap();
    db.flush().unwrap();
    let after = disk.lose_power();
    let db = after.open_families(&options, &["two"]).unwrap();
    for name in ["default", "two"] {
        let cf = db.column_family(name).unwrap();
        assert_eq!(db.get_cf(&ReadOptions::default(), &cf, "n").unwrap().as_deref(), Some(&b"1"[..]));
    }
}

/// Opens the database in `path` with all its column families.
fn open_copy(disk: &Disk, path: &str) -> Db {
    let descriptors = NAMES.map(|name| ColumnFamilyDescriptor::new(name, disk.options().cf)).to_vec();
    Db::open_column_families(&disk.options().db, path, descriptors).unwrap()
}

/// Calls `copy` with its number again and again while batches that no WAL holds are written, at least one between two copies, and
/// memtables are flushed one by one.
fn copying_while_written(disk: &Disk, db: &Db, count: usize, mut copy: impl FnMut(usize)) {
    /// Ends the writer, even if a copy is wrong.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (stop, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let stops = Stop(&stop);
        let writer = scope.spawn(|| {
            for number in (1..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                put_everywhere(db, number).unwrap();
                written.store(number, Ordering::Relaxed);
            }
        });
        for number in 0..count {
            let before = written.load(Ordering::Relaxed);
            // The first may have been in the last copy.
            disk.wait_until("batches are written", || written.load(Ordering::Relaxed) > before + 1);
            copy(number);
        }
        drop(stops);
        writer.join().unwrap();
    });
}

#[test]
fn copies_have_what_no_wal_holds_at_one_point() {
    for by_option in [false, true] {
        let disk = Disk::new();
        let mut options = atomic(&disk);
        options.db.atomic_flush = by_option;
        options.cf.write_buffer_size = 8 << 10;
        let db = open(&disk, &options);
        let how = CreateCheckpointOptions { atomic_flush: !by_option, log_size_for_flush: 0 };
        let mut found = std::collections::BTreeSet::new();
        copying_while_written(&disk, &db, 25, |number| {
            let path = format!("/copy{number}");
            let before = numbers(&db);
            db.create_checkpoint(&path, &how).unwrap();
            let number = common_number(&open_copy(&disk, &path), &path);
            assert!(number >= before[0], "{number} of {before:?}");
            found.insert(number);
        });
        assert_eq!(found.len(), 25, "{found:?}");
        // What no WAL holds is flushed however small the WALs are.
        put_everywhere(&db, 1).unwrap();
        let how = CreateCheckpointOptions { log_size_for_flush: u64::MAX, ..how };
        db.create_checkpoint("/last", &how).unwrap();
        assert_eq!(numbers(&open_copy(&disk, "/last")), [1, 1, 1]);
    }
}

#[test]
fn backups_without_wals_have_everything_at_one_point() {
    let disk = Disk::new();
    let mut options = atomic(&disk);
    options.db.atomic_flush = false;
    options.cf.write_buffer_size = 8 << 10;
    let db = open(&disk, &options);
    let mut engine = BackupEngine::open(BackupEngineOptions {
        env: disk.env(),
        backup_log_files: false,
        ..BackupEngineOptions::new("/backups")
    })
    .unwrap();
    let how = CreateBackupOptions {
        flush_before_backup: true,
        atomic_flush: true,
        ..CreateBackupOptions::default()
    };
    copying_while_written(&disk, &db, 15, |number| {
        // These are logged: the WALs stay behind nevertheless.
        db.put("logged", number.to_string()).unwrap();
        let id = engine.create_backup_with(&db, &how).unwrap();
        let path = format!("/restored{number}");
        engine.restore(id, &disk.options().db, &path, &path, &RestoreOptions::default()).unwrap();
        let copy = open_copy(&disk, &path);
        common_number(&copy, &path);
        assert_eq!(copy.get("logged").unwrap().as_deref(), Some(number.to_string().as_bytes()));
        let said = engine.backups().iter().find(|backup| backup.id == id).map(|backup| backup.sequence);
        assert!(said <= Some(copy.latest_sequence().0), "{said:?} of {}", copy.latest_sequence());
    });
}

#[test]
fn a_copy_flushes_atomically_only_if_it_is_to_flush() {
    let disk = Disk::new();
    let mut options = atomic(&disk);
    options.db.atomic_flush = false;
    let statistics = Arc::new(Statistics::new());
    options.db.statistics = Some(Arc::clone(&statistics));
    let db = open(&disk, &options);
    db.put("a", "1").unwrap();
    let requests = || statistics.ticker(Ticker::AtomicFlushRequestReasonOther);
    let list = |wal_size_for_flush, atomic_flush| {
        let how = LiveFilesStorageInfoOptions { wal_size_for_flush, atomic_flush };
        let files = db.live_files_storage_info_with(&how).unwrap();
        files.iter().filter(|file| file.name.ends_with(".sst")).count()
    };
    assert_eq!((list(u64::MAX, true), requests()), (0, 0));
    assert_eq!((list(0, true), requests()), (1, 1));
    assert_eq!((list(0, true), requests()), (1, 1), "nothing was written since");
    db.put("a", "2").unwrap();
    assert_eq!((list(0, false), requests()), (2, 1));
}

#[test]
fn requests_are_counted_by_their_reasons() {
    let disk = Disk::new();
    let statistics = Arc::new(Statistics::new());
    let mut options = atomic(&disk);
    options.db.statistics = Some(Arc::clone(&statistics));
    options.cf.write_buffer_size = 16 << 10;
    options.cf.memtable_max_range_deletions = 3;
    let db = open(&disk, &options);
    let counts = || {
        use Ticker::*;
        [
            AtomicFlushRequestReasonWriteBufferFull,
            AtomicFlushRequestReasonMemtableMaxRangeDeletions,
            AtomicFlushRequestReasonOther,
        ]
        .map(|ticker| statistics.ticker(ticker))
    };
    put_everywhere(&db, 1).unwrap();
    flush_all(&db, FlushOptions::default()).unwrap();
    assert_eq!(counts(), [0, 0, 1]);
    flush_all(&db, FlushOptions::default()).unwrap();
    assert_eq!(counts(), [0, 0, 1], "there was nothing to flush");
    for number in 0..3 {
        db.delete_range(format!("a{number}"), format!("b{number}")).unwrap();
    }
    assert_eq!(counts(), [0, 0, 1], "the next write switches");
    db.put("k", "v").unwrap();
    assert_eq!(counts(), [0, 1, 1]);
    db.wait_for_compact().unwrap();
    assert_eq!(statistics.ticker(Ticker::FlushReasonMemtableMaxRangeDeletions), 1);
    (2..100).for_each(|number| put_everywhere(&db, number).unwrap());
    let [full, ranges, other] = counts();
    assert!(full > 0 && (ranges, other) == (1, 1), "{:?}", counts());
}

#[test]
fn without_the_option_too_a_memtable_holds_only_so_many_range_tombstones() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.memtable_max_range_deletions = 2;
    let db = disk.open_with(&options);
    db.delete_range("a", "b").unwrap();
    db.put("k", "v").unwrap();
    db.wait_for_compact().unwrap();
    assert_eq!(db.live_files().len(), 0);
    db.delete_range("b", "c").unwrap();
    db.put("k", "w").unwrap();
    disk.wait_until("a flush", || db.live_files().len() == 1);
}

#[test]
fn what_does_not_go_with_it_is_refused_or_adjusted() {
    let disk = Disk::new();
    let mut options = atomic(&disk);
    options.db.set("enable_pipelined_write", "true").unwrap();
    refused(disk.try_open(&options), Code::InvalidArgument, "atomic_flush and enable_pipelined_write");
    let mut options = atomic(&disk);
    options.cf.max_write_buffer_number = 5;
    options.cf.min_write_buffer_number_to_merge = 3;
    let db = open(&disk, &options);
    let later = ColumnFamilyOptions { min_write_buffer_number_to_merge: 2, ..options.cf.clone() };
    let later = db.create_column_family("later", &later).unwrap();
    for cf in families(&db).iter().chain([&later]) {
        assert_eq!(db.column_family_options(cf).min_write_buffer_number_to_merge, 1, "{}", cf.name());
    }
    let written = disk.fs.read_all(&disk.newest_in_db("OPTIONS")).unwrap();
    let written = String::from_utf8_lossy(&written);
    assert!(written.contains("atomic_flush=true"), "{written}");
}
