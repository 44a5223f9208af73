//! Writes that are under way while something else happens: a memtable is switched, a snapshot is taken, the
//! log fails. Each moment is brought about, not waited for.

use crate::disk::{Disk, all, get, get_with, shape};
use ironstone::vfs::fault::{Fault, FaultError, FaultRule};
use ironstone::vfs::{Clock, OpKind, SystemClock};
use ironstone::{Comparator, FlushOptions, ReadOptions, UserComparator, WriteOptions};
use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering as Memory};
use std::time::Duration;

fn sleep_ms(milliseconds: u64) {
    SystemClock::new().sleep(Duration::from_millis(milliseconds));
}

/// The order of bytes, except that nobody gets past a comparison with `slow` while the gate is closed.
#[derive(Default)]
struct Gate {
    open: AtomicBool,
    waiting: AtomicU64,
}

impl Gate {
    fn open(&self) {
        self.open.store(true, Memory::SeqCst);
    }
}

/// Opens the gate at last, so that a test that fails does not hang.
struct OpensAtLast<'a>(&'a Gate);

impl Drop for OpensAtLast<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

struct Gated(Arc<Gate>);

impl Comparator for Gated {
    fn name(&self) -> &str {
        "test.Gated"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        if a == b"slow" || b == b"slow" {
            self.0.waiting.fetch_add(1, Memory::SeqCst);
            while !self.0.open.load(Memory::SeqCst) {
                sleep_ms(1);
            }
        }
        a.cmp(b)
    }
}

/// A writer is on its way into a memtable that is switched and flushed, another one is done behind it, and a
/// snapshot is taken before either is visible.
#[test]
fn a_flush_waits_for_writers_and_keeps_what_a_snapshot_of_meanwhile_sees() {
    let (disk, gate) = (Disk::new(), Arc::new(Gate::default()));
    let mut options = disk.options();
    options.cf.comparator = UserComparator::Custom(Arc::new(Gated(Arc::clone(&gate))));
    let db = disk.open_with(&options);
    db.put("k", "old").unwrap();
    let before = db.latest_sequence();
    let property = |name: &str| db.int_property(name).unwrap();
    let snapshot = std::thread::scope(|scope| {
        let _opens = OpensAtLast(&gate);
        scope.spawn(|| db.put("slow", "s").unwrap());
        disk.wait_until("the slow writer is on its way", || gate.waiting.load(Memory::SeqCst) > 0);
        scope.spawn(|| db.put("k", "new").unwrap());
        let applied = || property("rocksdb.num-entries-active-mem-table") == 2;
        disk.wait_until("the other writer is done", applied);
        sleep_ms(20);
        assert_eq!(db.latest_sequence(), before, "nothing is visible ahead of the slow write");
        assert_eq!(get(&db, "k"), "old");

        db.flush_cf(&FlushOptions { wait: false, ..FlushOptions::default() }, db.default_column_family())
            .unwrap();
        let begun = || property("rocksdb.num-running-flushes") == 1 || !shape(&db).is_empty();
        disk.wait_until("the flush has begun", begun);
        sleep_ms(50);
        let snapshot = db.snapshot();
        assert_eq!(snapshot.sequence(), before);
        gate.open();
        snapshot
    });
    db.wait_for_compact().unwrap();
    assert_eq!(shape(&db), [1]);
    assert_eq!(all(&db), "k=new slow=s");
    let then = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
    assert_eq!(get_with(&db, &then, db.default_column_family(), "k"), "old");
    drop(db);
    assert_eq!(all(&disk.lose_power().open_with(&options)), "k=new slow=s");
}

/// A memtable is switched while the one before it is flushed: that flush strikes off its own WALs only.
#[test]
fn a_flush_leaves_the_wals_of_memtables_that_were_switched_meanwhile() {
    let disk = Disk::new();
    let db = disk.open();
    disk.faults.arm();
    let slow = FaultRule::new(Fault::Delay(Duration::from_millis(300))).on(&[OpKind::Sync]).path(".sst");
    let slow = disk.faults.add(slow.forever());
    let switch = || {
        db.flush_cf(
            &FlushOptions { wait: false, allow_write_stall: true, ..FlushOptions::default() },
            db.default_column_family(),
        )
        .unwrap()
    };
    db.put("a", "1").unwrap();
    switch();
    disk.wait_until("the first flush syncs its table", || slow.hits() == 1);
    db.put("b", "2").unwrap();
    switch();
    db.put("c", "3").unwrap();
    disk.wait_until("the second flush syncs its table", || slow.hits() == 2);
    let left = disk.kill();
    assert_eq!(shape(&db), [1], "the second flush is not done");
    assert_eq!(all(&left.open()), "a=1 b=2 c=3");
}

/// A reader opens the database while a table is there that no MANIFEST names yet.
#[test]
fn a_reader_leaves_the_table_of_a_flush_that_runs() {
    let disk = Disk::new();
    let db = disk.open();
    db.put("a", "1").unwrap();
    disk.faults.arm();
    let slow = FaultRule::new(Fault::Delay(Duration::from_millis(200))).on(&[OpKind::Sync]).path(".sst");
    let slow = disk.faults.add(slow);
    db.flush_cf(&FlushOptions { wait: false, ..FlushOptions::default() }, db.default_column_family())
        .unwrap();
    disk.wait_until("the flush syncs its table", || slow.hits() == 1);
    let table = disk.newest(".sst");
    let reader = disk.open_read_only(&disk.options(), &[]).unwrap();
    assert!(shape(&reader).is_empty(), "the flush is done");
    assert_eq!(all(&reader), "a=1");
    drop(reader);
    assert!(disk.exists(table));
    db.flush().unwrap();
    assert_eq!(all(&disk.lose_power().open()), "a=1");
}

/// Whoever has the log hands over what the others have put into its buffer. That is no sync yet.
#[test]
fn a_synced_write_is_durable_whoever_handed_it_over() {
    let disk = Disk::new();
    disk.faults.arm();
    let slow = FaultRule::new(Fault::Delay(Duration::from_millis(3)));
    disk.faults.add(slow.on(&[OpKind::Append]).path(".log").forever());
    let db = disk.open();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (db, done) = (&db, &done);
            scope.spawn(move || {
                for count in 0.. {
                    if done.load(Memory::SeqCst) {
                        break;
                    }
                    db.put(format!("plain {writer} {count}"), "v").unwrap();
                }
            });
        }
        for count in 0..30 {
            let key = format!("synced {count}");
            db.put_cf(&WriteOptions::synced(), db.default_column_family(), &key, "v").unwrap();
            let left = disk.lose_power();
            let found = get(&left.open(), &key);
            if found != "v" {
                done.store(true, Memory::SeqCst);
                panic!("{key} was acknowledged and is lost");
            }
        }
        done.store(true, Memory::SeqCst);
    });
}

/// Several writers wait for one sync, which fails: none of them may hear that it went well.
#[test]
fn a_failed_sync_is_reported_to_everybody_who_waited_for_it() {
    let disk = Disk::new();
    let db = disk.open();
    disk.faults.arm();
    let slow = FaultRule::new(Fault::Delay(Duration::from_millis(150))).on(&[OpKind::Sync]).path(".log");
    let slow = disk.faults.add(slow.forever());
    let broken = FaultRule::error(FaultError::Io).on(&[OpKind::Sync]).path(".log");
    disk.faults.add(broken.after(1));
    let accepted = AtomicU64::new(0);
    let put = |key: &str| {
        let result = db.put_cf(&WriteOptions::synced(), db.default_column_family(), key, "v");
        accepted.fetch_add(u64::from(result.is_ok()), Memory::SeqCst);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| put("first"));
        disk.wait_until("the first sync runs", || slow.hits() > 0);
        let put = &put;
        for key in ["b", "c", "d", "e"] {
            scope.spawn(move || put(key));
        }
    });
    assert_eq!(accepted.load(Memory::SeqCst), 1, "only the first sync went well");
    disk.faults.clear();
    assert_eq!(get(&disk.lose_power().open(), "first"), "v");
    db.resume().unwrap();
    put("after");
    assert_eq!(get(&disk.lose_power().open(), "after"), "v");
}

/// Writers sleep behind a sync that fails. Some of them wake up when `resume` has a new WAL already: what they
/// had handed over is in neither.
#[test]
fn a_write_that_slept_through_a_failure_is_not_taken_for_one_of_the_new_wal() {
    let disk = Disk::new();
    let db = disk.open();
    disk.faults.arm();
    for round in 0..6 {
        let slow = FaultRule::new(Fault::Delay(Duration::from_millis(40))).on(&[OpKind::Sync]).path(".log");
        disk.faults.add(slow);
        disk.faults.add(FaultRule::error(FaultError::Io).on(&[OpKind::Sync]).path(".log"));
        let left = AtomicU64::new(16);
        let put = |writer: u64| {
            let key = format!("{round} {writer}");
            let result = db.put_cf(&WriteOptions::synced(), db.default_column_family(), &key, "v");
            let image = disk.lose_power();
            left.fetch_sub(1, Memory::SeqCst);
            if result.is_ok() {
                assert_eq!(get(&image.open(), &key), "v", "acknowledged and lost");
            }
        };
        std::thread::scope(|scope| {
            for writer in 0..16 {
                let put = &put;
                scope.spawn(move || put(writer));
            }
            while left.load(Memory::SeqCst) > 0 {
                db.resume().unwrap();
                std::thread::yield_now();
            }
        });
        db.resume().unwrap();
    }
}
