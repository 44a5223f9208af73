//! One bound on compactions over several databases.

use crate::disk::{Disk, all, shape};
use ironstone::vfs::{Clock, SystemClock};
use ironstone::{
    CompactRangeOptions, CompactionJobInfo, ConcurrentTaskLimiter, Db, EventListener, SubcompactionJobInfo,
    WaitForCompactOptions,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Sees how many compactions run at once.
#[derive(Default)]
struct Gauge {
    running: AtomicUsize,
    most: AtomicUsize,
    done: AtomicUsize,
    /// Each waits a while until so many have come.
    together: AtomicUsize,
}

impl EventListener for Gauge {
    fn on_subcompaction_begin(&self, _part: &SubcompactionJobInfo) {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        let clock = SystemClock::new();
        let patience = if self.together.load(Ordering::SeqCst) > 0 { 10_000 } else { 5 };
        for _ in 0..patience {
            let together = self.together.load(Ordering::SeqCst);
            if together > 0 && self.most.load(Ordering::SeqCst) >= together {
                return;
            }
            clock.sleep(Duration::from_millis(1));
        }
    }
    fn on_subcompaction_completed(&self, _part: &SubcompactionJobInfo) {
        self.running.fetch_sub(1, Ordering::SeqCst);
    }
    fn on_compaction_completed(&self, compaction: &CompactionJobInfo) {
        compaction.status.clone().unwrap();
        self.done.fetch_add(1, Ordering::SeqCst);
    }
}

/// Two databases, each with threads of its own, in which compactions are due.
fn two_databases(limit: Option<usize>) -> (Arc<ConcurrentTaskLimiter>, Arc<Gauge>, [(Disk, Db); 2]) {
    let (limiter, gauge) = (ConcurrentTaskLimiter::new("both", limit), Arc::<Gauge>::default());
    let open = || {
        let disk = Disk::new();
        let mut options = disk.options();
        options.db.listeners.push(gauge.clone());
        options.cf.disable_auto_compactions = false;
        options.cf.level0_file_num_compaction_trigger = 2;
        options.cf.compaction_thread_limiter = Some(Arc::clone(&limiter));
        let db = disk.open_with(&options);
        (disk, db)
    };
    let both = [open(), open()];
    for (_, db) in &both {
        for value in ["1", "2"] {
            db.put("a", value).unwrap();
            db.put("b", value).unwrap();
            db.flush().unwrap();
        }
    }
    (limiter, gauge, both)
}

fn wait(db: &Db) {
    let options = WaitForCompactOptions { timeout: Some(Duration::from_secs(20)), ..Default::default() };
    db.wait_for_compact_with(&options).unwrap();
}

#[test]
fn no_more_run_at_once_than_may_and_who_waits_is_woken() {
    let (limiter, gauge, both) = two_databases(Some(0));
    // Nothing begins, however often it is due.
    SystemClock::new().sleep(Duration::from_millis(50));
    assert!(both.iter().all(|(_, db)| shape(db) == [2]));
    assert_eq!((gauge.done.load(Ordering::SeqCst), limiter.outstanding_tasks()), (0, 0));
    assert_eq!(both[0].1.int_property("rocksdb.num-unscheduled-compactions"), Some(1));
    limiter.set_max_outstanding_tasks(Some(1));
    // Whoever waits for compactions would ask for them as well.
    both[0].0.wait_until("both have had their turn", || gauge.done.load(Ordering::SeqCst) == 2);
    for (_, db) in &both {
        wait(db);
        assert_eq!(all(db), "a=2 b=2");
        assert_eq!(shape(db)[0], 0);
    }
    assert_eq!(gauge.most.load(Ordering::SeqCst), 1);
    assert_eq!(limiter.outstanding_tasks(), 0);
}

#[test]
fn with_room_for_two_they_run_together() {
    let (limiter, gauge, both) = two_databases(Some(0));
    gauge.together.store(2, Ordering::SeqCst);
    limiter.set_max_outstanding_tasks(Some(2));
    both.iter().for_each(|(_, db)| wait(db));
    assert_eq!(gauge.most.load(Ordering::SeqCst), 2);
}

#[test]
fn what_callers_wait_for_is_counted_and_not_held_back() {
    let (limiter, gauge, both) = two_databases(Some(0));
    for (_, db) in &both {
        db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None).unwrap();
        assert_eq!(all(db), "a=2 b=2");
    }
    assert_eq!(gauge.done.load(Ordering::SeqCst), 2);
    assert_eq!(limiter.outstanding_tasks(), 0);
    assert_eq!((limiter.name(), limiter.max_outstanding_tasks()), ("both", Some(0)));
}
