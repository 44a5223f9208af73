//! Threads for the last level alone.

use crate::disk::Disk;
use ironstone::{
    BackgroundJobPressure, Code, CompactRangeOptions, CompactionJobInfo, CompactionStyle, CompressionKind,
    Db, EventListener, Options, ThreadPool, ThreadType, WaitForCompactOptions,
};
use ironstone_base::sync::{Condvar, Mutex};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const LAST: usize = 2;

/// Holds up rewrites of the last level, and notes which threads compact, into which level.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    opened: Condvar,
}

#[derive(Default)]
struct GateState {
    closed: bool,
    /// How many wait at it.
    waiting: usize,
    rewrites: BTreeSet<(String, usize)>,
    pressures: Vec<BackgroundJobPressure>,
}

impl Gate {
    fn closed() -> Arc<Self> {
        let gate = Self::default();
        gate.state.lock().closed = true;
        Arc::new(gate)
    }
    fn open(&self) {
        self.state.lock().closed = false;
        self.opened.notify_all();
    }
    fn waiting(&self) -> usize {
        self.state.lock().waiting
    }
    fn rewrites(&self) -> Vec<(String, usize)> {
        self.state.lock().rewrites.iter().cloned().collect()
    }
}

impl EventListener for Gate {
    fn on_compaction_begin(&self, compaction: &CompactionJobInfo) {
        if compaction.is_trivial || compaction.reason == ironstone::CompactionReason::ManualCompaction {
            return;
        }
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        let mut state = self.state.lock();
        state.rewrites.insert((name, compaction.output_level));
        state.waiting += 1;
        while compaction.output_level == LAST && state.closed {
            self.opened.wait(&mut state);
        }
        state.waiting -= 1;
    }
    fn on_background_job_pressure_changed(&self, pressure: &BackgroundJobPressure) {
        self.state.lock().pressures.push(*pressure);
    }
}

/// One thread that compacts, and `bottom` for the last level. Three compactions may run at once.
fn pool_with(bottom: Option<usize>) -> Arc<ThreadPool> {
    let pool = ThreadPool::new();
    pool.set_compaction_threads(Some(1));
    pool.set_bottom_threads(bottom);
    pool
}

/// Three levels, of which level 1 is soon full.
fn options(disk: &Disk, pool: &Arc<ThreadPool>, gate: &Arc<Gate>) -> Options {
    let mut options = disk.options();
    options.db.thread_pool = Arc::clone(pool);
    options.db.listeners.push(Arc::<Gate>::clone(gate));
    options.db.max_background_jobs = 4;
    options.db.enable_thread_tracking = true;
    options.cf.disable_auto_compactions = false;
    options.cf.level_compaction_dynamic_level_bytes = false;
    options.cf.num_levels = 3;
    options.cf.level0_file_num_compaction_trigger = 2;
    options.cf.max_bytes_for_level_base = 4000;
    options.cf.compression = CompressionKind::None;
    options
}

fn fill(db: &Db, prefix: char, round: u32) {
    for key in 0..100 {
        db.put(format!("{prefix}{key:03}"), format!("{round:0100}")).unwrap();
    }
    db.flush().unwrap();
}

fn check(db: &Db, prefix: char, round: u32) {
    for key in 0..100 {
        let value = db.get(format!("{prefix}{key:03}")).unwrap();
        assert_eq!(value.as_deref(), Some(format!("{round:0100}").as_bytes()), "{prefix}{key:03}");
    }
}

/// How many tables each level has.
fn levels(db: &Db) -> [usize; 3] {
    let mut counts = [0; 3];
    db.live_files().iter().for_each(|file| counts[file.level] += 1);
    counts
}

/// Has level 1 to be compacted into the last.
fn fill_until_last_level_is_due(db: &Db) {
    fill(db, 'a', 0);
    let options = CompactRangeOptions {
        change_level: true,
        target_level: Some(LAST),
        ..CompactRangeOptions::default()
    };
    db.compact_range(&options, db.default_column_family(), None, None).unwrap();
    fill(db, 'a', 1);
    fill(db, 'a', 2);
}

fn running(db: &Db) -> u64 {
    db.int_property("rocksdb.num-running-compactions").unwrap()
}

fn is_pending(db: &Db) -> bool {
    db.int_property("rocksdb.compaction-pending") == Some(1)
}

/// Opens the gate where a test fails: else its database would never close.
struct OpenedAtLast(Arc<Gate>);

impl Drop for OpenedAtLast {
    fn drop(&mut self) {
        self.0.open();
    }
}

fn is_idle(db: &Db) -> bool {
    let options =
        WaitForCompactOptions { timeout: Some(Duration::from_millis(1)), ..WaitForCompactOptions::default() };
    match db.wait_for_compact_with(&options) {
        Err(error) => {
            assert_eq!(error.code(), Code::TimedOut, "{error}");
            false
        }
        Ok(()) => true,
    }
}

#[test]
fn a_long_compaction_into_the_last_level_does_not_hold_up_level_0() {
    for bottom in [Some(1), None] {
        let (disk, gate, pool) = (Disk::new(), Gate::closed(), pool_with(bottom));
        let db = disk.open_with(&options(&disk, &pool, &gate));
        let _opened = OpenedAtLast(Arc::clone(&gate));
        assert_eq!(pool.thread_count(), if bottom.is_some() { 4 } else { 3 });
        fill_until_last_level_is_due(&db);
        disk.wait_until("a rewrite of the last level", || gate.waiting() == 1);
        (0..4).for_each(|round| fill(&db, 'b', round));
        let listed = db.thread_list().unwrap();
        let types: BTreeSet<_> = listed.iter().map(|thread| thread.thread_type.name()).collect();
        if bottom.is_some() {
            // As far as it is pressing; then one compaction at a time is enough.
            disk.wait_until("level 0 is compacted beside it", || levels(&db)[0] < 4);
            assert_eq!(gate.waiting(), 1, "which still runs");
            assert!(types.contains(ThreadType::BottomPriority.name()), "{types:?}");
            assert_eq!(ThreadType::BottomPriority.name(), "Bottom Pri");
            disk.wait_until("nothing else runs", || running(&db) == 1);
        } else {
            assert!(levels(&db)[0] >= 4, "the one thread is busy");
            assert!(!types.contains(ThreadType::BottomPriority.name()), "{types:?}");
        }
        gate.open();
        db.wait_for_compact().unwrap();
        check(&db, 'a', 2);
        check(&db, 'b', 3);
        let last_level = if bottom.is_some() { "ironstone:bottom" } else { "ironstone:compact" };
        let expected = [("ironstone:compact".to_owned(), 1), (last_level.to_owned(), LAST)];
        assert_eq!(gate.rewrites(), BTreeSet::from(expected).into_iter().collect::<Vec<_>>());
        let pressures = gate.state.lock().pressures.clone();
        for pressure in &pressures {
            let (low, bottom) = (pressure.compaction_low_running, pressure.compaction_bottom_running);
            assert_eq!(pressure.compaction_running, low + bottom, "{pressure:?}");
            let (low, bottom) = (pressure.compaction_low_scheduled, pressure.compaction_bottom_scheduled);
            assert_eq!(pressure.compaction_scheduled, low + bottom, "{pressure:?}");
        }
        assert_eq!(
            pressures.iter().any(|pressure| pressure.compaction_bottom_running == 1),
            bottom.is_some(),
            "{pressures:?}"
        );
    }
}

/// A database whose last level is due, while the only thread for that works for another one.
struct Waiting {
    _opened: OpenedAtLast,
    disks: [Disk; 2],
    gates: [Arc<Gate>; 2],
    pool: Arc<ThreadPool>,
    busy: Db,
    db: Db,
}

impl Waiting {
    fn new() -> Self {
        let (disks, pool) = ([Disk::new(), Disk::new()], pool_with(Some(1)));
        let gates = [Gate::closed(), Arc::new(Gate::default())];
        let busy = disks[0].open_with(&options(&disks[0], &pool, &gates[0]));
        fill_until_last_level_is_due(&busy);
        disks[0].wait_until("a rewrite of the last level", || gates[0].waiting() == 1);
        let db = disks[1].open_with(&options(&disks[1], &pool, &gates[1]));
        fill_until_last_level_is_due(&db);
        disks[1].wait_until("level 0 is compacted", || levels(&db) == [0, 1, 1] && running(&db) == 0);
        let _opened = OpenedAtLast(Arc::clone(&gates[0]));
        let waiting = Self { _opened, disks, gates, pool, busy, db };
        waiting.check();
        waiting
    }
    /// It waits, and no file of it is claimed.
    fn check(&self) {
        assert!(!is_idle(&self.db) && is_pending(&self.db));
        assert_eq!(levels(&self.db), [0, 1, 1]);
        assert!(!self.db.live_files().iter().any(|file| file.being_compacted));
        assert_eq!(running(&self.db), 0);
        assert!(!self.gates[1].rewrites().iter().any(|(_, level)| *level == LAST));
    }
    /// The other one lets go of the thread.
    fn end(self, threads: &str) {
        self.gates[0].open();
        self.db.wait_for_compact().unwrap();
        assert_eq!(levels(&self.db)[..LAST], [0, 0]);
        assert!(self.gates[1].rewrites().contains(&(threads.to_owned(), LAST)));
        self.busy.wait_for_compact().unwrap();
        check(&self.db, 'a', 2);
        check(&self.busy, 'a', 2);
    }
}

#[test]
fn what_waits_for_the_last_level_holds_nobody_up() {
    let waiting = Waiting::new();
    let db = &waiting.db;
    db.abort_all_compactions();
    db.resume_all_compactions();
    db.abort_compactions(db.default_column_family()).unwrap();
    waiting.check();
    db.resume_compactions(db.default_column_family()).unwrap();
    db.pause_background_work().unwrap();
    waiting.check();
    db.continue_background_work().unwrap();
    db.set_options(&[("disable_auto_compactions", "true")]).unwrap();
    assert!(is_idle(db));
    db.set_options(&[("disable_auto_compactions", "false")]).unwrap();
    // Level 0 goes on, though level 1 is what is most urgent.
    (0..4).for_each(|round| fill(db, 'b', round));
    waiting.disks[1].wait_until("level 0 is compacted", || levels(db)[0] == 0);
    assert!(levels(db)[1] >= 1 && !waiting.gates[1].rewrites().iter().any(|(_, level)| *level == LAST));
    waiting.end("ironstone:bottom");
}

#[test]
fn level_0_is_compacted_while_the_last_level_waits_for_a_thread() {
    let waiting = Waiting::new();
    let (db, disk) = (&waiting.db, &waiting.disks[1]);
    // So little that level 1 is the first to be compacted.
    for value in ["1", "2"] {
        db.put("b", value).unwrap();
        db.flush().unwrap();
    }
    disk.wait_until("level 0 is compacted", || levels(db)[0] < 2 && running(db) == 0);
    assert!(!waiting.gates[1].rewrites().iter().any(|(_, level)| *level == LAST));
    waiting.gates[0].open();
    db.wait_for_compact().unwrap();
    check(db, 'a', 2);
    assert_eq!(db.get("b").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn a_caller_compacts_what_waits_for_the_last_level() {
    let waiting = Waiting::new();
    let alone = CompactRangeOptions { exclusive_manual_compaction: true, ..CompactRangeOptions::default() };
    waiting.db.compact_range(&alone, waiting.db.default_column_family(), None, None).unwrap();
    waiting.db.wait_for_compact().unwrap(); // Nothing waits any more.
    assert_eq!(levels(&waiting.db), [0, 0, 1]);
    assert_eq!(waiting.gates[0].waiting(), 1);
    assert!(!is_pending(&waiting.db));
    check(&waiting.db, 'a', 2);
    waiting.gates[0].open();
}

#[test]
fn a_database_closes_while_its_last_level_waits_for_a_thread() {
    let waiting = Waiting::new();
    waiting.db.close().unwrap();
    assert_eq!(waiting.gates[0].waiting(), 1);
    let again = waiting.disks[1].open_with(&options(&waiting.disks[1], &waiting.pool, &waiting.gates[1]));
    assert_eq!(levels(&again), [0, 1, 1]);
    check(&again, 'a', 2);
    Waiting { db: again, ..waiting }.end("ironstone:bottom");
}

#[test]
fn without_threads_of_its_own_the_last_level_is_for_the_others_again() {
    let waiting = Waiting::new();
    waiting.pool.set_bottom_threads(None);
    waiting.disks[1].wait_until("the last level", || levels(&waiting.db) == [0, 0, 1]);
    assert_eq!(waiting.gates[0].waiting(), 1);
    let pool = Arc::clone(&waiting.pool);
    waiting.end("ironstone:compact");
    assert_eq!(pool.thread_count(), 0);
}

#[test]
fn where_one_compaction_runs_at_once_both_kinds_of_threads_have_their_turn() {
    let (disk, gate, pool) = (Disk::new(), Arc::new(Gate::default()), pool_with(Some(1)));
    let mut options = options(&disk, &pool, &gate);
    options.db.max_background_jobs = 2; // 1 to flush, 1 to compact.
    let db = disk.open_with(&options);
    fill_until_last_level_is_due(&db);
    let turns = || gate.rewrites().iter().filter(|(name, _)| name == "ironstone:bottom").count();
    let round = Cell::new(3);
    disk.wait_until("a turn of the last level, while level 0 grows", || {
        fill(&db, 'a', round.get());
        round.set(round.get() + 1);
        turns() == 1
    });
    db.wait_for_compact().unwrap();
    check(&db, 'a', round.get() - 1);
    let pressures = gate.state.lock().pressures.clone();
    assert!(pressures.iter().all(|pressure| pressure.compaction_running <= 1), "{pressures:?}");
}

#[test]
fn universal_compaction_leaves_the_last_level_to_them_as_well() {
    let (disk, gate, pool) = (Disk::new(), Gate::closed(), pool_with(Some(1)));
    let mut options = options(&disk, &pool, &gate);
    options.cf.compaction_style = CompactionStyle::Universal;
    let db = disk.open_with(&options);
    let _opened = OpenedAtLast(Arc::clone(&gate));
    fill(&db, 'a', 0);
    fill(&db, 'a', 1);
    disk.wait_until("a rewrite of the last level", || gate.waiting() == 1);
    (2..8).for_each(|round| fill(&db, 'a', round));
    disk.wait_until("newer runs are merged beside it", || {
        gate.rewrites().iter().any(|(name, level)| name == "ironstone:compact" && *level < LAST)
    });
    assert_eq!(gate.waiting(), 1);
    gate.open();
    db.wait_for_compact().unwrap();
    check(&db, 'a', 7);
    assert!(gate.rewrites().iter().all(|(name, level)| (name == "ironstone:bottom") == (*level == LAST)));
}
