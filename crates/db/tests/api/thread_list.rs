//! What threads do, as the list of them says.

use crate::disk::{Disk, refused, rewrite_all};
use ironstone::statistics::Ticker;
use ironstone::vfs::{Clock, ManualClock, SystemClock};
use ironstone::{
    Code, CompactionFilter, CompressionKind, Db, EventListener, FilterDecision, FlushJobInfo, Options,
    Statistics, ThreadOperation, ThreadStage, ThreadState, ThreadStatus, ThreadType,
};
use ironstone_base::sync::Mutex;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

fn tracked(disk: &Disk) -> Options {
    let mut options = disk.options();
    options.db.enable_thread_tracking = true;
    options
}

/// Looks at the list from within a job, after letting a second pass.
#[derive(Default)]
struct Spy {
    db: OnceLock<Weak<Db>>,
    clock: OnceLock<Arc<ManualClock>>,
    seen: Mutex<Vec<ThreadStatus>>,
}

impl Spy {
    fn look(&self) {
        let Some(db) = self.db.get().and_then(Weak::upgrade) else { return };
        self.clock.get().unwrap().advance(Duration::from_secs(1));
        let busy = db.thread_list().unwrap().into_iter().filter(|t| t.operation != ThreadOperation::Unknown);
        self.seen.lock().extend(busy);
    }
}

struct Looks(Arc<Spy>);
impl EventListener for Looks {
    fn on_flush_begin(&self, _: &FlushJobInfo) {
        self.0.look();
    }
}
impl CompactionFilter for Looks {
    fn name(&self) -> &str {
        "Looks"
    }
    fn filter(&self, _level: usize, _key: &[u8], _value: &[u8]) -> FilterDecision {
        self.0.look();
        FilterDecision::Keep
    }
}

#[test]
fn flushes_and_compactions_are_listed_while_they_run() {
    let clock = Arc::new(ManualClock::new(1_000_000));
    let disk = Disk::with_clock(&clock);
    let spy = Arc::new(Spy::default());
    spy.clock.set(clock).unwrap();
    let mut options = tracked(&disk);
    options.db.listeners.push(Arc::new(Looks(Arc::clone(&spy))));
    options.cf.compaction_filter = Some(Arc::new(Looks(Arc::clone(&spy))));
    options.cf.disable_auto_compactions = false;
    options.cf.level0_file_num_compaction_trigger = 2;
    let db = Arc::new(disk.open_with(&options));
    spy.db.set(Arc::downgrade(&db)).unwrap();
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    let flush = spy.seen.lock().remove(0);
    assert_eq!(flush.thread_type, ThreadType::HighPriority);
    assert_eq!((&*flush.db_name, &*flush.cf_name), ("/db", "default"));
    assert_eq!((flush.operation, flush.stage), (ThreadOperation::Flush, ThreadStage::FlushRun));
    assert_eq!(flush.state, ThreadState::Unknown);
    assert!(flush.elapsed_micros >= 1_000_000, "{flush:?}");

    db.put("a", "2").unwrap();
    db.flush().unwrap(); // The second table of level 0: they are compacted.
    db.wait_for_compact().unwrap();
    let seen = std::mem::take(&mut *spy.seen.lock());
    let compaction = seen.iter().find(|t| t.operation == ThreadOperation::Compaction).unwrap();
    assert_eq!(compaction.thread_type, ThreadType::LowPriority);
    assert_eq!(compaction.stage.name(), "CompactionJob::ProcessKeyValueCompaction");
    let property = |name| compaction.properties.iter().find(|(other, _)| *other == name).unwrap().1;
    assert_eq!(property("InputOutputLevel") >> 32, 0);
    assert!(property("JobID") > 0 && property("TotalInputBytes") > 0);
    assert_eq!(property("Manual/Deletion/Trivial"), 0);

    // One that was asked for runs on the thread of who asked.
    crate::disk::rewrite_all(&db);
    let seen = std::mem::take(&mut *spy.seen.lock());
    assert_eq!((seen[0].thread_type, seen[0].operation.name()), (ThreadType::User, "Compaction"));
    assert!(seen[0].properties.contains(&("Manual/Deletion/Trivial", 1)));

    // Who waited may be back before the threads of the background have tidied up.
    disk.wait_until("threads without work", || db.thread_list().unwrap().is_empty());
}

/// A merge operator that looks at the list: the read that calls it is in there.
#[test]
fn reads_are_listed_under_the_thread_that_reads() {
    let disk = Disk::new();
    let spy = Arc::new(Spy::default());
    spy.clock.set(Arc::new(ManualClock::new(0))).unwrap();
    let mut options = tracked(&disk);
    let looks = Arc::clone(&spy);
    options.cf.merge_operator =
        Some(ironstone::merge_operators::associative("looks", move |_, _, operand| {
            looks.look();
            Some(operand.to_vec())
        }));
    options.db.statistics = Some(Arc::new(Statistics::default()));
    let db = Arc::new(disk.open_with(&options));
    spy.db.set(Arc::downgrade(&db)).unwrap();
    db.merge("a", "1").unwrap();
    let seen = |act: &dyn Fn()| {
        act();
        let seen = std::mem::take(&mut *spy.seen.lock());
        (seen[0].thread_type, seen[0].operation.name(), seen[0].cf_name.clone())
    };
    let user = |name: &'static str| (ThreadType::User, name, "default".to_owned());
    assert_eq!(seen(&|| drop(db.get("a").unwrap())), user("Get"));
    assert_eq!(seen(&|| drop(db.multi_get(&["a"]))), user("MultiGet"));
    assert!(options.db.statistics.unwrap().ticker(Ticker::NumberKeysRead) > 0);
    assert!(db.thread_list().unwrap().iter().all(|thread| thread.thread_type != ThreadType::User));
}

#[test]
fn without_the_option_there_is_no_list() {
    let disk = Disk::new();
    refused(disk.open().thread_list(), Code::InvalidArgument, "enable_thread_tracking");
}

/// The number of the job that a thread works in.
fn job(thread: &ThreadStatus) -> Option<u64> {
    thread.properties.iter().find(|(name, _)| *name == "JobID").map(|(_, number)| *number)
}

/// Notes which threads compact, until two of them do at once.
struct Meets {
    db: OnceLock<Weak<Db>>,
    seen: Mutex<Vec<ThreadStatus>>,
}

impl CompactionFilter for Meets {
    fn name(&self) -> &str {
        "Meets"
    }
    fn filter(&self, _level: usize, _key: &[u8], _value: &[u8]) -> FilterDecision {
        let Some(db) = self.db.get().and_then(Weak::upgrade) else { return FilterDecision::Keep };
        let clock = SystemClock::new();
        while self.seen.lock().is_empty() && clock.monotonic_nanos() < 10_000_000_000 {
            let mut threads = db.thread_list().unwrap();
            threads.retain(|thread| thread.operation == ThreadOperation::Compaction);
            // A thread is listed a moment before it says what it does, and in which job.
            let says_all =
                |thread: &ThreadStatus| thread.stage != ThreadStage::Unknown && job(thread).is_some();
            if threads.len() >= 3 && threads.iter().all(says_all) {
                *self.seen.lock() = threads;
            }
        }
        FilterDecision::Keep
    }
}

#[test]
fn the_threads_that_a_compaction_divides_itself_among_are_listed() {
    let disk = Disk::new();
    let filter = Arc::new(Meets { db: OnceLock::new(), seen: Mutex::new(Vec::new()) });
    let mut options = tracked(&disk);
    options.db.max_subcompactions = 3;
    options.cf.target_file_size_base = 16 << 10;
    options.cf.compression = CompressionKind::None;
    let shared: Arc<dyn CompactionFilter> = filter.clone();
    options.cf.compaction_filter = Some(shared);
    let db = Arc::new(disk.open_with(&options));
    for _ in 0..2 {
        (0..200).for_each(|number| db.put(format!("key{number:05}"), [b'v'; 1000]).unwrap());
        db.flush().unwrap();
    }
    filter.db.set(Arc::downgrade(&db)).unwrap();
    rewrite_all(&db);
    let seen = std::mem::take(&mut *filter.seen.lock());
    assert_eq!(seen.len(), 3, "the caller's and two more: {seen:?}");
    for thread in &seen {
        assert_eq!((&*thread.cf_name, thread.stage), ("default", ThreadStage::CompactionProcessKv));
        assert!(job(thread).is_some() && job(thread) == job(&seen[0]), "{thread:?}");
    }
    let ids: std::collections::HashSet<u64> = seen.iter().map(|thread| thread.thread_id).collect();
    assert_eq!(ids.len(), 3);
    let left = db.thread_list().unwrap();
    assert!(left.iter().all(|thread| thread.operation == ThreadOperation::Unknown), "{left:?}");
}
