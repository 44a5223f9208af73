//! Writes that come faster than the background keeps up with are slowed down, stopped, or refused.

use crate::disk::{Disk, all, get, refused, shape};
use ironstone::vfs::{Clock, SystemClock};
use ironstone::{Code, CompactRangeOptions, Db, Error, FlushOptions, Options, WriteOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn open(change: impl FnOnce(&mut Options)) -> (Disk, Db) {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.disable_auto_compactions = false;
    change(&mut options);
    let db = disk.open_with(&options);
    (disk, db)
}

fn put_impatient(db: &Db, key: &str) -> Result<(), Error> {
    let impatient = WriteOptions { no_slowdown: true, ..WriteOptions::default() };
    db.put_cf(&impatient, db.default_column_family(), key, "v")
}

fn is_stopped(db: &Db) -> bool {
    db.int_property("rocksdb.is-write-stopped") == Some(1)
}

/// Fills memtables while nothing can be flushed.
fn fill_memtables(db: &Db) {
    let cf = db.default_column_family();
    db.pause_background_work().unwrap();
    for number in 0..2 {
        db.put(format!("k{number}"), "v").unwrap();
        db.flush_cf(&FlushOptions { wait: false, allow_write_stall: true, ..FlushOptions::default() }, cf)
            .unwrap();
    }
}

#[test]
fn too_many_memtables_stop_writes_until_they_are_flushed() {
    let (_disk, db) = open(|_| {});
    fill_memtables(&db);
    assert!(is_stopped(&db));
    refused(put_impatient(&db, "impatient"), Code::Incomplete, "stall");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            db.put("patient", "v").unwrap();
            done.store(true, Ordering::SeqCst);
        });
        std::thread::yield_now();
        assert!(!done.load(Ordering::SeqCst));
        db.continue_background_work().unwrap();
    });
    assert!(done.load(Ordering::SeqCst));
    db.wait_for_compact().unwrap();
    assert!(!is_stopped(&db));
    put_impatient(&db, "now").unwrap();
    assert_eq!(all(&db), "k0=v k1=v now=v patient=v");
}

#[test]
fn too_many_files_in_level_0_stop_writes_until_they_are_compacted() {
    let (_disk, db) = open(|options| {
        options.cf.level0_file_num_compaction_trigger = 3;
        options.cf.level0_slowdown_writes_trigger = 3;
        options.cf.level0_stop_writes_trigger = 3;
        // Nothing starts by itself: what is due is held back below.
        options.db.max_background_compactions = 1;
    });
    db.disable_file_deletions();
    // A compaction in the way: it claims the only thread of its kind for as long as it is paused.
    for number in 0..3 {
        db.put("k", number.to_string()).unwrap();
        if number == 2 {
            db.flush_cf(&FlushOptions { wait: false, ..FlushOptions::default() }, db.default_column_family())
                .unwrap();
        } else {
            db.flush().unwrap();
        }
    }
    db.wait_for_compact().unwrap();
    db.put("after", "v").unwrap();
    assert_eq!(shape(&db)[0], 0);
    assert!(!is_stopped(&db));
    let stats = db.property("rocksdb.dbstats").unwrap();
    assert!(stats.contains("1 stops"), "{stats}");
    assert_eq!(get(&db, "k"), "2");
}

#[test]
fn without_automatic_compactions_level_0_stops_nobody() {
    let (_disk, db) = open(|options| {
        options.cf.disable_auto_compactions = true;
        options.cf.level0_file_num_compaction_trigger = 2;
        options.cf.level0_slowdown_writes_trigger = 2;
        options.cf.level0_stop_writes_trigger = 3;
    });
    for number in 0..6 {
        db.put("k", number.to_string()).unwrap();
        db.flush().unwrap();
    }
    put_impatient(&db, "fine").unwrap();
    assert_eq!(shape(&db), [6]);
}

#[test]
fn a_stop_ends_with_the_database() {
    let (_disk, db) = open(|_| {});
    fill_memtables(&db);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| db.put("never", "v"));
        while db.property("rocksdb.dbstats").is_none() {}
        std::thread::yield_now();
        let _ = db.close();
        let result = waiting.join().unwrap();
        assert!(result.is_err() || get(&db, "never") == "v", "no answer is not an answer");
    });
}

/// Does `act` on another thread, where it has to wait until `release`; writers have not to.
fn waits_for_room(disk: &Disk, db: &Db, act: impl FnOnce() + Send, release: impl FnOnce()) {
    let done = AtomicBool::new(false);
    let immutable = || db.int_property("rocksdb.num-immutable-mem-table");
    let before = immutable();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            act();
            done.store(true, Ordering::SeqCst);
        });
        disk.clock_sleep(Duration::from_millis(30));
        assert_eq!((done.load(Ordering::SeqCst), immutable()), (false, before), "it did not wait");
        assert!(!is_stopped(db));
        release();
    });
}

#[test]
fn a_flush_waits_for_those_before_it() {
    let (disk, db) = open(|_| {});
    let cf = db.default_column_family();
    let start_flush = || {
        let no_wait = FlushOptions { wait: false, ..FlushOptions::default() };
        db.flush_cf(&no_wait, cf).unwrap();
    };
    db.pause_background_work().unwrap();
    db.put("a", "1").unwrap();
    start_flush();
    start_flush(); // Nothing more.
    db.put("b", "2").unwrap();
    waits_for_room(&disk, &db, start_flush, || db.continue_background_work().unwrap());
    db.wait_for_compact().unwrap();
    assert_eq!(shape(&db), [2]);

    // One that nobody waits for is not to be had while writes are stopped.
    fill_memtables(&db);
    refused(
        db.flush_cf(&FlushOptions { wait: false, ..FlushOptions::default() }, cf),
        Code::TryAgain,
        "stopped",
    );
    db.continue_background_work().unwrap();
}

/// As many files in level 0 as it may have before writers are slowed down.
fn fill_level0() -> (Disk, Db) {
    let (disk, db) = open(|options| {
        options.cf.level0_file_num_compaction_trigger = 2;
        options.cf.level0_slowdown_writes_trigger = 3;
        options.cf.level0_stop_writes_trigger = 4;
    });
    db.abort_all_compactions();
    for number in 0..2 {
        db.put("k", number.to_string()).unwrap();
        db.flush().unwrap();
    }
    assert_eq!(shape(&db), [2]);
    db.put("k", "last").unwrap();
    (disk, db)
}

#[test]
fn a_flush_waits_for_room_in_level_0() {
    let (disk, db) = fill_level0();
    waits_for_room(&disk, &db, || db.flush().unwrap(), || db.resume_all_compactions());
    db.wait_for_compact().unwrap();
    assert_eq!((shape(&db)[0], get(&db, "k")), (1, "last".to_owned()));
}

#[test]
fn a_compaction_waits_with_its_flush() {
    let (disk, db) = fill_level0();
    let at_once = CompactRangeOptions { allow_write_stall: true, ..CompactRangeOptions::default() };
    let compact = |options: &CompactRangeOptions| {
        db.compact_range(options, db.default_column_family(), None, None).unwrap();
    };
    db.pause_background_work().unwrap();
    db.resume_all_compactions();
    waits_for_room(
        &disk,
        &db,
        || compact(&CompactRangeOptions::default()),
        || db.continue_background_work().unwrap(),
    );
    assert_eq!(shape(&db)[0], 0);
    db.put("k", "at once").unwrap();
    compact(&at_once);
    assert_eq!(get(&db, "k"), "at once");
}

#[test]
fn a_compaction_does_not_wait_with_its_flush_while_compactions_are_aborted() {
    let (disk, db) = fill_level0();
    db.pause_background_work().unwrap();
    db.resume_all_compactions();
    let waiting = || {
        let options = CompactRangeOptions::default();
        refused(
            db.compact_range(&options, db.default_column_family(), None, None),
            Code::Incomplete,
            "aborted",
        )
    };
    waits_for_room(&disk, &db, || drop(waiting()), || db.abort_all_compactions());
    db.continue_background_work().unwrap();
    db.resume_all_compactions();
}

#[test]
fn what_somebody_else_has_flushed_needs_no_room() {
    let (disk, db) = fill_level0();
    let cf = db.default_column_family();
    let at_once = FlushOptions { allow_write_stall: true, ..FlushOptions::default() };
    let flush_and_write_more = || {
        db.flush_cf(&at_once, cf).unwrap();
        db.put("k", "more").unwrap();
    };
    waits_for_room(&disk, &db, || db.flush().unwrap(), flush_and_write_more);
    assert_eq!((shape(&db), get(&db, "k")), (vec![3], "more".to_owned()));
    db.resume_all_compactions();
}

#[test]
fn waiting_for_room_ends_with_the_database_and_the_column_family() {
    let (disk, db) = fill_level0();
    let waiting = || refused(db.flush(), Code::ShutdownInProgress, "closing");
    waits_for_room(&disk, &db, || drop(waiting()), || db.close().unwrap());

    let (disk, db) = fill_level0();
    let mut options = disk.options().cf;
    options.level0_file_num_compaction_trigger = 1;
    options.level0_slowdown_writes_trigger = 2;
    options.disable_auto_compactions = false;
    let family = db.create_column_family("family", &options).unwrap();
    let flush = || db.flush_cf(&FlushOptions::default(), &family);
    db.put_cf(&WriteOptions::default(), &family, "k", "1").unwrap();
    flush().unwrap();
    db.put_cf(&WriteOptions::default(), &family, "k", "2").unwrap();
    let waiting = || refused(flush(), Code::ColumnFamilyDropped, "");
    waits_for_room(&disk, &db, || drop(waiting()), || db.drop_column_family(&family).unwrap());
}

#[test]
fn low_priority_writes_give_way_first() {
    let (_disk, db) = open(|_| {});
    fill_memtables(&db);
    let low = WriteOptions { low_pri: true, no_slowdown: true, ..WriteOptions::default() };
    refused(db.put_cf(&low, db.default_column_family(), "low", "v"), Code::Incomplete, "low priority");
    db.continue_background_work().unwrap();
    db.wait_for_compact().unwrap();
    db.put_cf(&low, db.default_column_family(), "low", "v").unwrap();
}

#[test]
fn small_buffers_and_many_writers_get_through() {
    let (_disk, db) = open(|options| {
        options.cf.write_buffer_size = 8 << 10;
        options.cf.level0_file_num_compaction_trigger = 2;
        options.cf.level0_slowdown_writes_trigger = 4;
        options.cf.level0_stop_writes_trigger = 6;
        options.cf.target_file_size_base = 32 << 10;
        options.cf.max_bytes_for_level_base = 64 << 10;
    });
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let db = &db;
            scope.spawn(move || {
                for number in 0..400 {
                    db.put(format!("{thread}-{number:04}"), "v".repeat(200)).unwrap();
                }
            });
        }
    });
    db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None).unwrap();
    assert_eq!(db.iter().unwrap().entries().count(), 1600);
}

#[test]
fn writes_go_on_by_themselves_when_a_full_disk_has_room_again() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.write_buffer_size = 64 << 10;
    options.db.bgerror_resume_retry_interval = 2_000;
    let db = disk.open_with(&options);
    disk.fs.set_capacity(Some(300 << 10));
    let key = |number: usize| format!("key{number:05}");
    let mut accepted = 0;
    let error = loop {
        match db.put(key(accepted), "v".repeat(500)) {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
        assert!(accepted < 100_000, "the disk never fills up");
    };
    assert!(error.is_no_space(), "{error}");
    // Tables take less room than the WAL did: now there is none for them either.
    disk.fs.set_capacity(Some(1));
    while db.put(key(accepted), "v".repeat(500)).is_ok() {
        accepted += 1;
    }
    SystemClock::new().sleep(Duration::from_millis(20)); // Tries that fail do no harm.
    assert!(db.background_error().is_some_and(|error| error.is_no_space()));
    disk.fs.set_capacity(None);
    disk.wait_until("writes go on", || db.background_error().is_none());
    db.put("after", "v").unwrap();
    let check = |db: &Db| {
        let there = (0..accepted).filter(|&number| db.get(key(number)).unwrap().is_some()).count();
        assert_eq!((there, db.get("after").unwrap().is_some()), (accepted, true));
    };
    check(&db);
    drop(db);
    check(&disk.kill().open());
}

#[test]
fn a_full_disk_waits_for_resume_if_it_is_told_so() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.bgerror_resume_retry_interval = 100;
    options.db.max_bgerror_resume_count = 0;
    let db = disk.open_with(&options);
    disk.fs.set_capacity(Some(20 << 10));
    while db.put("key", "v".repeat(500)).is_ok() {}
    disk.fs.set_capacity(None);
    SystemClock::new().sleep(Duration::from_millis(20));
    assert!(db.put("key", "v").is_err());
    db.resume().unwrap();
    db.put("key", "v").unwrap();
}
