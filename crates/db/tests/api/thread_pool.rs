//! Databases that share the threads of the background.

use crate::disk::Disk;
use ironstone::{CompactionFilter, Db, FilterDecision, Options, Result, ThreadPool};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Databases on disks of their own, with the threads of one pool.
struct House {
    pool: Arc<ThreadPool>,
    disks: Vec<Disk>,
}

impl House {
    fn of(databases: usize) -> Self {
        Self { pool: ThreadPool::new(), disks: (0..databases).map(|_| Disk::new()).collect() }
    }
    fn options(&self, disk: &Disk) -> Options {
        let mut options = disk.options();
        options.db.thread_pool = Arc::clone(&self.pool);
        options.cf.disable_auto_compactions = false;
        options.cf.level0_file_num_compaction_trigger = 2;
        options
    }
    fn open(&self) -> Vec<Db> {
        self.disks.iter().map(|disk| disk.open_with(&self.options(disk))).collect()
    }
}

fn fill(db: &Db, round: u32) {
    for key in 0..100_u32 {
        db.put(key.to_be_bytes(), round.to_be_bytes()).unwrap();
    }
    db.flush().unwrap();
}

fn check(db: &Db, round: u32) {
    for key in 0..100_u32 {
        assert_eq!(db.get(key.to_be_bytes()).unwrap().as_deref(), Some(&round.to_be_bytes()[..]));
    }
}

#[test]
fn many_databases_get_by_with_three_threads() {
    let house = House::of(20);
    house.pool.set_flush_threads(Some(1));
    house.pool.set_compaction_threads(Some(1));
    assert_eq!(house.pool.thread_count(), 0);
    let databases = house.open();
    for round in 0..4 {
        databases.iter().for_each(|db| fill(db, round));
        assert_eq!(house.pool.thread_count(), 3);
    }
    for db in &databases {
        db.wait_for_compact().unwrap();
        check(db, 3);
        assert!(db.live_files().iter().any(|file| file.level > 0), "it was compacted");
    }
    for (db, disk) in databases.iter().zip(&house.disks) {
        db.close().unwrap();
        check(&disk.open_with(&house.options(disk)), 3);
    }
    assert_eq!(house.pool.thread_count(), 0, "they end with the last database");
}

#[test]
fn threads_come_and_go_with_what_databases_ask_for() {
    let house = House::of(2);
    let mut options = house.options(&house.disks[0]);
    options.db.max_background_jobs = 2; // 1 to flush, 1 to compact.
    let first = house.disks[0].open_with(&options);
    assert_eq!(house.pool.thread_count(), 3);
    options = house.options(&house.disks[1]);
    options.db.max_background_jobs = 8; // 2 to flush, 6 to compact.
    house.pool.set_compaction_threads(Some(6));
    house.pool.set_flush_threads(Some(2));
    let second = house.disks[1].open_with(&options);
    assert_eq!(house.pool.thread_count(), 9);
    second.set_db_options(&[("max_background_jobs", "4")]).unwrap();
    // 1 + 1 to flush, 1 + 3 to compact.
    house.disks[0].wait_until("two threads less", || house.pool.thread_count() == 7);
    house.pool.set_compaction_threads(Some(0));
    house.disks[0].wait_until("one thread that compacts", || house.pool.thread_count() == 4);
    house.pool.set_compaction_threads(None);
    assert!(house.pool.thread_count() >= 6, "as many as the second asks for, or more");
    second.close().unwrap();
    house.disks[0].wait_until("those of the first", || house.pool.thread_count() == 3);
    fill(&first, 0);
    fill(&first, 1);
    first.wait_for_compact().unwrap();
    check(&first, 1);
}

/// A compaction filter that waits until it is let go.
#[derive(Default)]
struct Waits {
    waiting: AtomicUsize,
    go: AtomicBool,
}

#[derive(Clone)]
struct Slow(Arc<Waits>);

impl CompactionFilter for Slow {
    fn name(&self) -> &str {
        "waits"
    }
    fn filter(&self, _level: usize, _key: &[u8], _value: &[u8]) -> FilterDecision {
        self.0.waiting.fetch_add(1, Ordering::SeqCst);
        while !self.0.go.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        FilterDecision::Keep
    }
}

#[test]
fn a_database_closes_and_flushes_while_another_one_compacts() -> Result<()> {
    let house = House::of(3);
    house.pool.set_compaction_threads(Some(1));
    let waits = Arc::new(Waits::default());
    let mut options = house.options(&house.disks[0]);
    options.cf.compaction_filter = Some(Arc::new(Slow(Arc::clone(&waits))));
    let slow = house.disks[0].open_with(&options);
    fill(&slow, 0);
    fill(&slow, 1);
    house.disks[0].wait_until("a compaction", || waits.waiting.load(Ordering::SeqCst) > 0);

    let other = house.disks[1].open_with(&house.options(&house.disks[1]));
    fill(&other, 0);
    fill(&other, 1);
    assert_eq!(other.live_files().len(), 2, "its compaction waits for the thread");
    other.close()?;
    let third = house.disks[2].open_with(&house.options(&house.disks[2]));
    fill(&third, 0);
    fill(&third, 1);

    waits.go.store(true, Ordering::SeqCst);
    slow.wait_for_compact()?;
    third.wait_for_compact()?;
    assert_eq!(third.live_files().len(), 1);
    check(&slow, 1);
    check(&third, 1);
    Ok(())
}

#[test]
fn databases_share_the_threads_of_the_process_unless_told_otherwise() {
    let mut options = Options::default();
    assert!(Arc::ptr_eq(&options.db.thread_pool, &ThreadPool::shared()));
    options.db.create_if_missing = true;
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(&options, dir.path()).unwrap();
    assert!(ThreadPool::shared().thread_count() >= 3);
    fill(&db, 0);
    db.close().unwrap();
}
