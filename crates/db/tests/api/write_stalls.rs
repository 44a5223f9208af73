//! Every stall has a cause, which is counted and timed.

use crate::disk::{Disk, refused};
use ironstone::{
    Code, CompactionJobInfo, Db, EventListener, FlushOptions, Options, SstFileManager, SstFileManagerOptions,
    WriteBufferManager, WriteOptions, WriteStall, WriteStallCause, WriteStallCondition,
};
use ironstone_base::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

fn stall(db: &Db, family: Option<&str>, cause: WriteStallCause) -> WriteStall {
    let mut stalls = db.write_stalls();
    stalls.retain(|stall| stall.column_family.as_deref() == family && stall.cause == cause);
    assert_eq!(stalls.len(), 1, "{stalls:?}");
    stalls.remove(0)
}

/// The only cause that ever had an effect.
#[track_caller]
fn only(db: &Db, family: Option<&str>, cause: WriteStallCause) -> WriteStall {
    for other in db.write_stalls() {
        // The last memtable is filled slower for a moment, whenever another one is flushed.
        let quiet = other.stops + other.waits == 0
            && (other.delays == 0 || other.cause == WriteStallCause::MemtableLimit);
        assert!(quiet || (other.cause == cause && other.column_family.as_deref() == family), "{other:?}");
    }
    stall(db, family, cause)
}

/// Lets a write wait until `release`, and answers once it went through.
fn wait_while(disk: &Disk, db: &Db, waits: impl Fn() -> u64, release: impl FnOnce()) {
    let before = waits();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| db.put("patient", "v"));
        disk.clock_sleep(Duration::from_millis(100));
        release();
        writer.join().unwrap().unwrap();
    });
    disk.wait_until("the wait is counted", || waits() > before);
}

#[test]
fn memtables_that_wait_for_their_flush() {
    let disk = Disk::new();
    let db = disk.open();
    let other = db.create_column_family("other", &disk.options().cf).unwrap();
    db.pause_background_work().unwrap();
    for _ in 0..2 {
        db.put_cf(&WriteOptions::default(), &other, "k", "v").unwrap();
        db.flush_cf(
            &FlushOptions { wait: false, allow_write_stall: true, ..FlushOptions::default() },
            &other,
        )
        .unwrap();
    }
    let of_other = || stall(&db, Some("other"), WriteStallCause::MemtableLimit);
    let begun = of_other();
    assert_eq!((begun.condition, begun.stops), (WriteStallCondition::Stopped, 1));
    wait_while(&disk, &db, || of_other().waits, || db.continue_background_work().unwrap());
    disk.wait_until("flushed", || of_other().condition == WriteStallCondition::Normal);
    let ended = only(&db, Some("other"), WriteStallCause::MemtableLimit);
    assert!(
        ended.stopped >= Duration::from_millis(15) && ended.waited >= Duration::from_millis(15),
        "{ended:?}"
    );
    assert!(ended.stopped > begun.stopped);
    disk.clock_sleep(Duration::from_millis(5));
    assert_eq!(of_other(), ended, "it is over");
}

/// Keeps compactions from going on.
#[derive(Default)]
struct Gate(Mutex<bool>, Condvar);

impl EventListener for Gate {
    fn on_compaction_begin(&self, _info: &CompactionJobInfo) {
        let mut open = self.0.lock();
        while !*open {
            self.1.wait(&mut open);
        }
    }
}

impl Gate {
    fn open(&self) {
        *self.0.lock() = true;
        self.1.notify_all();
    }
}

fn gated(change: impl FnOnce(&mut Options)) -> (Disk, Arc<Gate>, Db) {
    let (disk, gate) = (Disk::new(), Arc::new(Gate::default()));
    let mut options = disk.options();
    options.cf.disable_auto_compactions = false;
    options.db.listeners.push(gate.clone());
    change(&mut options);
    let db = disk.open_with(&options);
    (disk, gate, db)
}

#[test]
fn files_of_level_0() {
    let (disk, gate, db) = gated(|options| {
        options.cf.level0_file_num_compaction_trigger = 2;
        options.cf.level0_slowdown_writes_trigger = 3;
        options.cf.level0_stop_writes_trigger = 4;
    });
    let of_default = || stall(&db, Some("default"), WriteStallCause::L0FileCountLimit);
    for (files, condition) in [
        (1, WriteStallCondition::Normal),
        (2, WriteStallCondition::Normal),
        (3, WriteStallCondition::Delayed),
        (4, WriteStallCondition::Stopped),
    ] {
        db.put("k", files.to_string()).unwrap();
        let at_once = FlushOptions { allow_write_stall: true, ..FlushOptions::default() };
        db.flush_cf(&at_once, db.default_column_family()).unwrap();
        assert_eq!(of_default().condition, condition, "{files} files");
    }
    wait_while(&disk, &db, || of_default().waits, || gate.open());
    db.wait_for_compact().unwrap();
    let ended = only(&db, Some("default"), WriteStallCause::L0FileCountLimit);
    assert_eq!((ended.delays, ended.stops, ended.condition), (1, 1, WriteStallCondition::Normal));
    assert!(ended.stopped >= Duration::from_millis(15), "{ended:?}");
    assert!(ended.delayed > Duration::ZERO && ended.waited >= Duration::from_millis(15), "{ended:?}");
}

#[test]
fn bytes_that_compaction_has_to_rewrite() {
    let (disk, gate, db) = gated(|options| {
        options.cf.level0_file_num_compaction_trigger = 1;
        options.cf.soft_pending_compaction_bytes_limit = 1;
        options.cf.hard_pending_compaction_bytes_limit = 2;
        options.cf.level_compaction_dynamic_level_bytes = false;
    });
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    let of_default = || stall(&db, Some("default"), WriteStallCause::PendingCompactionBytes);
    assert_eq!(of_default().condition, WriteStallCondition::Stopped);
    wait_while(&disk, &db, || of_default().waits, || gate.open());
    db.wait_for_compact().unwrap();
    let ended = only(&db, Some("default"), WriteStallCause::PendingCompactionBytes);
    assert_eq!((ended.stops, ended.condition), (1, WriteStallCondition::Normal));
}

#[test]
fn memory_of_the_write_buffer_manager() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.write_buffer_manager = Some(WriteBufferManager::new(256 << 10, None, true));
    let db = disk.open_with(&options);
    db.pause_background_work().unwrap();
    let impatient = WriteOptions { no_slowdown: true, ..WriteOptions::default() };
    let mut number = 0;
    while db.put_cf(&impatient, db.default_column_family(), format!("{number:05}"), [0; 1000]).is_ok() {
        number += 1;
        assert!(number < 10_000, "memory never runs out");
    }
    let of_all = || stall(&db, None, WriteStallCause::WriteBufferManagerLimit);
    assert_eq!(of_all().stops, 0, "nobody waited");
    wait_while(
        &disk,
        &db,
        || of_all().waits,
        || {
            disk.wait_until("the writer waits", || of_all().condition == WriteStallCondition::Stopped);
            db.continue_background_work().unwrap();
        },
    );
    let ended = of_all();
    assert_eq!((ended.stops, ended.waits, ended.condition), (1, 1, WriteStallCondition::Normal));
    assert!(ended.stopped >= Duration::from_millis(10) && ended.waited == ended.stopped, "{ended:?}");
}

#[test]
fn space_that_tables_may_take() {
    let disk = Disk::new();
    let manager = SstFileManager::new(SstFileManagerOptions::default());
    let mut options = disk.options();
    options.db.sst_file_manager = Some(Arc::clone(&manager));
    options.db.max_bgerror_resume_count = 0;
    let db = disk.open_with(&options);
    manager.set_max_allowed_space_usage(1);
    db.put("a", "1").unwrap();
    let _ = db.flush(); // The table is there, and the failure noted behind it.
    disk.wait_until("the failure", || db.put("b", "1").is_err());
    refused(db.put("b", "1"), Code::IoError, "sst_file_manager");
    let begun = only(&db, None, WriteStallCause::SpaceLimit);
    assert_eq!((begun.condition, begun.stops), (WriteStallCondition::Stopped, 1));
    disk.clock_sleep(Duration::from_millis(5));
    manager.set_max_allowed_space_usage(0);
    db.resume().unwrap();
    db.put("b", "1").unwrap();
    let ended = only(&db, None, WriteStallCause::SpaceLimit);
    assert_eq!((ended.condition, ended.stops), (WriteStallCondition::Normal, 1));
    assert!(ended.stopped >= Duration::from_millis(4), "{ended:?}");
}
