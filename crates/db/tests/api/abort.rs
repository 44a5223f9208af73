//! Compactions are told to stop, and to begin again.

use crate::disk::{Disk, all, refused};
use ironstone::statistics::Ticker;
use ironstone::vfs::{Clock, SystemClock};
use ironstone::{
    BottommostPolicy, Code, CompactFilesOptions, CompactRangeOptions, CompactionFilter, CompactionJobInfo,
    Db, Error, EventListener, FilterDecision, Options, Result, Statistics, SubCode,
};
use ironstone_base::sync::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Makes compactions take their time as long as one is wanted that does, and tells that one runs.
#[derive(Default)]
struct Slow {
    seen: AtomicUsize,
    fast: AtomicBool,
}

impl CompactionFilter for Slow {
    fn name(&self) -> &str {
        "Slow"
    }
    fn filter(&self, _level: usize, _key: &[u8], _value: &[u8]) -> FilterDecision {
        self.seen.fetch_add(1, Ordering::SeqCst);
        if !self.fast.load(Ordering::SeqCst) {
            SystemClock::new().sleep(Duration::from_millis(1));
        }
        FilterDecision::Keep
    }
}

#[derive(Default)]
struct Ends(Mutex<Vec<Result<()>>>);

impl EventListener for Ends {
    fn on_compaction_completed(&self, compaction: &CompactionJobInfo) {
        self.0.lock().push(compaction.status.clone());
    }
}

struct Stage {
    disk: Disk,
    slow: Arc<Slow>,
    ends: Arc<Ends>,
    statistics: Arc<Statistics>,
    options: Options,
}

impl Stage {
    fn new() -> Self {
        let (disk, slow, ends, statistics) =
            (Disk::new(), Arc::<Slow>::default(), Arc::<Ends>::default(), Arc::new(Statistics::new()));
        let mut options = disk.options();
        options.db.listeners.push(ends.clone());
        options.db.statistics = Some(Arc::clone(&statistics));
        options.db.create_missing_column_families = true;
        options.cf.compaction_filter = Some(slow.clone());
        options.cf.level0_file_num_compaction_trigger = 2;
        options.cf.target_file_size_base = 4 << 10; // So that some tables are done when it is stopped.
        Self { disk, slow, ends, statistics, options }
    }
    fn fill(&self, db: &Db) {
        for value in ["1", "2"] {
            (0..10_000).for_each(|number| db.put(format!("key{number:06}"), value).unwrap());
            db.flush().unwrap();
        }
    }
    /// Waits until a compaction reads.
    fn wait(&self) {
        self.disk.wait_until("a compaction", || self.slow.seen.load(Ordering::SeqCst) > 0);
    }
    /// A database whose compaction began by itself and was aborted.
    fn aborted_by_itself(&self) -> (Options, Db) {
        let mut options = self.options.clone();
        options.cf.disable_auto_compactions = false;
        let db = self.disk.open_with(&options);
        self.fill(&db);
        self.wait();
        db.abort_all_compactions();
        (options, db)
    }
    fn aborted(&self) -> u64 {
        self.statistics.ticker(Ticker::CompactionAborted)
    }
}

fn is_aborted(error: &Error) -> bool {
    (error.code(), error.sub_code()) == (Code::Incomplete, SubCode::CompactionAborted)
}

fn compact(db: &Db) -> Result<()> {
    let options = CompactRangeOptions {
        bottommost_level_compaction: BottommostPolicy::Force,
        ..CompactRangeOptions::default()
    };
    db.compact_range(&options, db.default_column_family(), None, None)
}

#[test]
fn a_compaction_that_runs_by_itself_stops_and_leaves_nothing() {
    let stage = Stage::new();
    let (_, db) = stage.aborted_by_itself();
    let before = db.live_files();
    assert_eq!(before.iter().map(|file| file.level).collect::<Vec<_>>(), [0, 0]);
    assert_eq!(stage.disk.files(".sst").len(), 2, "what was written is removed");
    assert_eq!(stage.aborted(), 1);
    let ends = stage.ends.0.lock().clone();
    assert!(matches!(&ends[..], [Err(error)] if is_aborted(error)), "{ends:?}");
    db.put("a", "1").expect("it is no failure of the database");
    db.flush().expect("flushes go on");
    let seen = stage.slow.seen.load(Ordering::SeqCst);
    stage.disk.clock_sleep(Duration::from_millis(20));
    assert_eq!(stage.slow.seen.load(Ordering::SeqCst), seen, "it has not begun again");

    stage.slow.fast.store(true, Ordering::SeqCst);
    db.abort_all_compactions();
    db.resume_all_compactions();
    stage.disk.clock_sleep(Duration::from_millis(20));
    assert_eq!(stage.slow.seen.load(Ordering::SeqCst), seen, "the first one holds");
    db.resume_all_compactions();
    db.wait_for_compact().unwrap();
    assert!(
        db.live_files().iter().filter(|file| file.level > 0).count() > 2,
        "the two tables were compacted"
    );
    assert!(stage.ends.0.lock().last().is_some_and(|status| status.is_ok()));
    assert_eq!(db.iter().unwrap().entries().count(), 10_001);
    db.resume_all_compactions(); // One too many changes nothing.
    db.abort_all_compactions();
    assert!(is_aborted(&compact(&db).unwrap_err()));
}

#[test]
fn a_compaction_that_was_asked_for_answers_that_it_was_aborted() {
    let stage = Stage::new();
    let db = stage.disk.open_with(&stage.options);
    stage.fill(&db);
    let files: Vec<_> = db.live_files().iter().map(|file| file.number).collect();
    std::thread::scope(|scope| {
        let compacting = scope.spawn(|| compact(&db));
        stage.wait();
        db.abort_all_compactions();
        let error = compacting.join().unwrap().unwrap_err();
        assert!(is_aborted(&error), "{error}");
    });
    assert_eq!(stage.aborted(), 1);
    db.put("not flushed", "1").unwrap();
    let error = refused(compact(&db), Code::Incomplete, "compactions are aborted");
    assert!(is_aborted(&error), "{error}");
    assert_eq!(db.live_files().len(), 2, "nor does it flush");
    let named = CompactFilesOptions::default();
    let error = db.compact_files(&named, db.default_column_family(), &files, 1).unwrap_err();
    assert!(is_aborted(&error), "{error}");
    assert_eq!(stage.aborted(), 1, "they did not begin");
    stage.slow.fast.store(true, Ordering::SeqCst);
    db.resume_all_compactions();
    compact(&db).unwrap();
    assert_eq!(db.iter().unwrap().entries().count(), 10_001);
}

#[test]
fn one_column_family_alone_can_be_stopped() {
    let stage = Stage::new();
    stage.slow.fast.store(true, Ordering::SeqCst);
    let db = stage.disk.open_families(&stage.options, &["other"]).unwrap();
    let other = db.column_family("other").unwrap();
    stage.fill(&db);
    db.abort_compactions(&other).unwrap();
    compact(&db).unwrap();
    db.put_cf(&ironstone::WriteOptions::default(), &other, "a", "1").unwrap();
    let compact_other = || db.compact_range(&CompactRangeOptions::default(), &other, None, None);
    assert!(is_aborted(&compact_other().unwrap_err()));
    db.abort_all_compactions();
    db.resume_compactions(&other).unwrap();
    assert!(is_aborted(&compact_other().unwrap_err()), "both have to be taken back");
    db.resume_all_compactions();
    compact_other().unwrap();
    assert!(all(&db).starts_with("key000000=2"));
}

#[test]
fn a_database_closes_while_its_compactions_are_aborted() {
    let stage = Stage::new();
    let (options, db) = stage.aborted_by_itself();
    db.close().unwrap();
    drop(db);
    stage.slow.fast.store(true, Ordering::SeqCst);
    let db = stage.disk.open_with(&options);
    db.wait_for_compact().unwrap();
    assert!(db.live_files().iter().all(|file| file.level > 0), "nobody remembers it");
}

fn is_disabled(error: &Error) -> bool {
    (error.code(), error.sub_code()) == (Code::Incomplete, SubCode::ManualCompactionPaused)
}

#[test]
fn manual_compactions_stop_while_they_are_disabled() {
    let stage = Stage::new();
    let db = stage.disk.open_with(&stage.options);
    stage.fill(&db);
    let before: Vec<_> = db.live_files().iter().map(|file| file.number).collect();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| compact(&db));
        stage.wait();
        db.disable_manual_compaction();
        let seen = stage.slow.seen.load(Ordering::SeqCst);
        stage.disk.clock_sleep(Duration::from_millis(20));
        assert_eq!(stage.slow.seen.load(Ordering::SeqCst), seen, "none runs");
        assert!(is_disabled(&running.join().unwrap().unwrap_err()));
    });
    assert_eq!(stage.disk.files(".sst").len(), 2, "what was written is removed");
    db.disable_manual_compaction();
    assert!(is_disabled(&compact(&db).unwrap_err()));
    let named = |canceled| CompactFilesOptions { canceled, ..CompactFilesOptions::default() };
    let compact_files = |options: &_| db.compact_files(options, db.default_column_family(), &before, 1);
    assert!(is_disabled(&compact_files(&named(None)).unwrap_err()));
    assert_eq!(db.live_files().iter().map(|file| file.number).collect::<Vec<_>>(), before);
    // What is due by itself goes on.
    stage.slow.fast.store(true, Ordering::SeqCst);
    db.set_options(&[("disable_auto_compactions", "false")]).unwrap();
    db.wait_for_compact().unwrap();
    assert!(db.live_files().iter().all(|file| file.level > 0), "they were compacted");
    db.enable_manual_compaction().unwrap();
    assert!(is_disabled(&compact(&db).unwrap_err()), "the first one holds");
    db.enable_manual_compaction().unwrap();
    refused(db.enable_manual_compaction(), Code::InvalidArgument, "not disabled");
    compact(&db).unwrap();
    assert_eq!(stage.aborted(), 0, "that is something else");
    db.put("a", "1").unwrap();
}

#[test]
fn a_compaction_of_named_files_is_canceled() {
    let stage = Stage::new();
    let db = stage.disk.open_with(&stage.options);
    stage.fill(&db);
    let files: Vec<_> = db.live_files().iter().map(|file| file.number).collect();
    let flag = Arc::new(AtomicBool::new(false));
    let limit = Some(4 << 10);
    let options = CompactFilesOptions {
        canceled: Some(Arc::clone(&flag)),
        output_file_size_limit: limit,
        ..CompactFilesOptions::default()
    };
    let compact = || db.compact_files(&options, db.default_column_family(), &files, 1);
    std::thread::scope(|scope| {
        let running = scope.spawn(compact);
        stage.wait();
        flag.store(true, Ordering::SeqCst);
        assert!(is_disabled(&running.join().unwrap().unwrap_err()));
    });
    assert!(is_disabled(&compact().unwrap_err()), "it does not begin either");
    assert_eq!(stage.disk.files(".sst").len(), 2, "what was written is removed");
    flag.store(false, Ordering::SeqCst);
    stage.slow.fast.store(true, Ordering::SeqCst);
    compact().unwrap();
    assert!(db.live_files().len() > 10);
}
