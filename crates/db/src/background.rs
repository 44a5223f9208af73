//! Background work: flushes, compactions, and the removal of files that nobody needs.
//!
//! Threads of three kinds wait for work: some that only flush, so that writers never wait behind a
//! compaction; some that compact; and one that removes files and tries to go on after a full disk.

pub(crate) mod abort;
pub(crate) mod compaction;
pub(crate) mod flush;
pub(crate) mod job;
pub(crate) mod manual;
pub(crate) mod purge;
pub(crate) mod resume;

use crate::engine::{Engine, State};
use crate::listener::BackgroundErrorReason;
use crate::memtables::FlushReason;
use crate::options::DbOptions;
use crate::table_cache::{TableSlot, open_in_turn};
use crate::thread_list::{ThreadId, ThreadType};
use crate::write::switch::Which;
use ironstone_base::statistics::IoActivity;
use ironstone_base::sync::atomic::Ordering;
use ironstone_base::sync::{Arc, Condvar, Mutex, MutexGuard, thread};
use ironstone_base::{Error, Result, Severity};
use ironstone_vfs::Clock;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The threads of one database.
pub(crate) struct Workers {
    threads: Vec<thread::JoinHandle<()>>,
    /// How many of each of [`KINDS`] were started.
    started: [usize; 2],
}

/// Wakes the thread that removes files, tries to go on after a full disk, tells LOG how things stand and keeps the history of
/// statistics.
#[derive(Default)]
pub(crate) struct Cleaner {
    wanted: Mutex<Wanted>,
    wake: Condvar,
}

#[derive(Default)]
struct Wanted {
    clean: bool,
    stop: bool,
    /// The number of the next try to go on after a full disk, and since when it waits.
    next_try: Option<(u32, Option<u64>)>,
    /// When LOG was told how things stand, by the monotonic clock.
    dumped_at: Option<u64>,
    /// When a period of the history of statistics ended.
    kept_at: Option<u64>,
}

/// What the thread does next.
enum Chore {
    Clean,
    /// The so many-th try.
    Resume(u32),
    /// Tells LOG how things stand.
    DumpStats,
    /// Adds a period to the history of statistics.
    KeepStats,
    Stop,
}

impl Cleaner {
    /// Something was let go of: look whether files can be removed.
    pub(crate) fn poke(&self) {
        self.wanted.lock().clean = true;
        self.wake.notify_one();
    }
    fn stop(&self) {
        self.wanted.lock().stop = true;
        self.wake.notify_one();
    }
    /// A disk was full: tries to go on are to begin, if they have not.
    pub(crate) fn resume_later(&self) {
        self.wanted.lock().next_try.get_or_insert((1, None));
        self.wake.notify_one();
    }
    fn try_again(&self, tries: u32) {
        self.wanted.lock().next_try = Some((tries, None));
    }
    /// Waits until there is something to do: for a try to go on, at least `interval`; at most until it is `dump_every`
    /// since LOG was told how things stand, or `keep_every` since the history of statistics was added to.
    fn wait(
        &self,
        clock: &dyn Clock,
        interval: Duration,
        dump_every: Option<Duration>,
        keep_every: Option<Duration>,
    ) -> Chore {
        let mut wanted = self.wanted.lock();
        loop {
            if wanted.stop {
                return Chore::Stop;
            }
            if std::mem::take(&mut wanted.clean) {
                return Chore::Clean;
            }
            let now = clock.monotonic_nanos();
            let Wanted { next_try, dumped_at, kept_at, .. } = &mut *wanted;
            let left = |since: &mut Option<u64>, whole: Duration| {
                whole.saturating_sub(Duration::from_nanos(now - *since.get_or_insert(now)))
            };
            let until_try = next_try.as_mut().map(|(_, since)| left(since, interval));
            let until_dump = dump_every.map(|every| left(dumped_at, every));
            let until_keep = keep_every.map(|every| left(kept_at, every));
            if let Some((number, _)) = next_try.filter(|_| until_try == Some(Duration::ZERO)) {
                wanted.next_try = None;
                return Chore::Resume(number);
            }
            if until_dump == Some(Duration::ZERO) {
                wanted.dumped_at = Some(now);
                return Chore::DumpStats;
            }
            if until_keep == Some(Duration::ZERO) {
                wanted.kept_at = Some(now);
                return Chore::KeepStats;
            }
            match until_try.into_iter().chain(until_dump).chain(until_keep).min() {
                None => self.wake.wait(&mut wanted),
                Some(longest) => {
                    self.wake.wait_for(&mut wanted, longest);
                }
            }
        }
    }
}

impl Workers {
    pub(crate) fn start(engine: &Arc<Engine>) -> Self {
        let mut workers = Self { threads: Vec::new(), started: [0; 2] };
        workers.start_missing(engine);
        engine.keep_stats(); // From here on the first period counts.
        let cleaning = Arc::clone(engine);
        workers.threads.push(thread::spawn_named("ironstone:clean", move || {
            let _listed = cleaning.list_thread(ThreadType::HighPriority);
            let interval = Duration::from_micros(cleaning.options().bgerror_resume_retry_interval);
            loop {
                let options = cleaning.options();
                let dump_every = period(options.stats_dump_period_sec);
                let has_stats = cleaning.statistics.is_some();
                let keep_every = period(options.stats_persist_period_sec).filter(|_| has_stats);
                drop(options);
                match cleaning.cleaner.wait(&*cleaning.env.clock, interval, dump_every, keep_every) {
                    Chore::Clean => {
                        cleaning.listeners.deliver();
                        purge::remove_obsolete(&cleaning);
                        if cleaning.snapshots.take_freed() {
                            compaction::look_again(&cleaning, &mut cleaning.state.lock());
                        }
                    }
                    Chore::Resume(tries) => {
                        if resume::try_again(&cleaning, tries) {
                            cleaning.cleaner.try_again(tries.saturating_add(1));
                        }
                    }
                    Chore::DumpStats => cleaning.dump_stats(),
                    Chore::KeepStats => cleaning.keep_stats(),
                    Chore::Stop => break,
                }
            }
        }));
        workers
    }

    /// Starts a thread that opens `slots`.
    pub(crate) fn open_tables(&mut self, engine: &Arc<Engine>, slots: Vec<Arc<TableSlot>>) {
        let engine = Arc::clone(engine);
        self.threads.push(thread::spawn_named("ironstone:open", move || {
            let _activity = engine.statistics.is_some().then(|| IoActivity::DbOpen.begin());
            let closing = || engine.cancelled.load(Ordering::Relaxed);
            open_in_turn(slots, closing, |number, error| {
                let mut state = engine.state.lock();
                // A compaction may have replaced it meanwhile.
                if state.versions.live_files().contains(&number) {
                    engine.stop_writes(&mut state, error, BackgroundErrorReason::AsyncFileOpen);
                }
            });
        }));
    }

    /// Starts the threads that the options ask for and that were never started.
    pub(crate) fn start_missing(&mut self, engine: &Arc<Engine>) {
        let options = engine.options();
        for (kind, started) in KINDS.iter().zip(&mut self.started) {
            while *started < (kind.threads)(&options) {
                let (engine, index) = (Arc::clone(engine), *started);
                self.threads.push(thread::spawn_named(kind.name, move || work(&engine, index, kind)));
                *started += 1;
            }
        }
    }
}

/// So many seconds; none: never.
fn period(seconds: u32) -> Option<Duration> {
    (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
}

/// A job that was taken and must be run without the state lock.
/// It says as which thread it runs, if threads are listed.
pub(crate) type Job = Box<dyn FnOnce(&Arc<Engine>, Option<ThreadId>) + Send>;

/// What a thread does.
struct Kind {
    name: &'static str,
    thread_type: ThreadType,
    /// How many threads of the kind may work.
    threads: fn(&DbOptions) -> usize,
    /// How many jobs of the kind run.
    running: fn(&State) -> usize,
    /// Takes the next job, if one is due.
    next: fn(&Engine, &mut State) -> Option<Job>,
    /// After how many seconds without a word to look again, since tables grow old.
    look_again: fn(&Engine) -> Option<u64>,
}

static KINDS: [Kind; 2] = [
    Kind {
        name: "ironstone:flush",
        thread_type: ThreadType::HighPriority,
        threads: DbOptions::flush_threads,
        running: |state| state.running_flushes,
        next: flush::next,
        look_again: |_| None,
    },
    Kind {
        name: "ironstone:compact",
        thread_type: ThreadType::LowPriority,
        threads: DbOptions::compaction_threads,
        running: |state| state.running_automatic,
        next: compaction::next,
        look_again: |engine| {
            Some(engine.options().max_compaction_trigger_wakeup_seconds).filter(|&seconds| seconds > 0)
        },
    },
];

/// Takes jobs and runs them until the database closes.
///
/// Of the threads of a kind, the first ones work and the others only when these are busy: each keeps memory
/// in an arena of the allocator, and processor caches are warm where the last job ran.
fn work(engine: &Arc<Engine>, index: usize, kind: &Kind) {
    let listed = engine.list_thread(kind.thread_type);
    let thread = listed.as_ref().map(|listed| listed.id);
    let mut state = engine.state.lock();
    while !state.closing {
        let may_work = index < (kind.threads)(&engine.options());
        let wanted = !state.is_held() && may_work && index <= (kind.running)(&state);
        let job = if wanted { (kind.next)(engine, &mut state) } else { None };
        match job {
            Some(job) => {
                MutexGuard::unlocked(&mut state, || run_guarded(engine, job, thread));
                engine.work.notify_all();
                engine.progress.notify_all();
            }
            None => match (kind.look_again)(engine).filter(|_| index == 0) {
                Some(seconds) => {
                    if engine.work.wait_for(&mut state, Duration::from_secs(seconds)).timed_out() {
                        compaction::look_again(engine, &mut state);
                    }
                }
                None => engine.work.wait(&mut state),
            },
        }
    }
}

/// A job that panics is a bug of ours; it must not leave others waiting for ever.
fn run_guarded(engine: &Arc<Engine>, job: Job, thread: Option<ThreadId>) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(engine, thread))) {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        let error = Error::io_message(format!("internal panic in a background job: {text}"));
        let error = error.with_severity(Severity::Unrecoverable);
        engine.stop_writes(&mut engine.state.lock(), error, BackgroundErrorReason::Internal);
    }
}

/// Ends the background work of a database and closes its log.
pub(crate) fn close(engine: &Arc<Engine>, workers: Workers) -> Result<()> {
    let flushed = flush_before_closing(engine);
    let known = {
        let mut state = engine.state.lock();
        state.closing = true;
        engine.cancelled.store(true, Ordering::Relaxed);
        engine.writes_stopped.store(true, Ordering::Release);
        engine.controller.release();
        engine.work.notify_all();
        engine.progress.notify_all();
        state.background_error.is_some()
    };
    engine.cleaner.stop();
    let mut panicked = false;
    for thread in workers.threads {
        panicked |= thread.join().is_err();
    }
    engine.listeners.deliver();
    // A flush that was under way failed: nobody else will hear of it. (A writer that comes now fails for itself.)
    let failed = engine.state.lock().background_error.clone().filter(|_| !known);
    // Whatever a writer got an answer for is in the log; what it buffered goes to the system.
    let closed = engine.pipeline.close();
    purge::remove_obsolete(engine);
    if let Some(manager) = &engine.options().sst_file_manager {
        engine.place.dirs().iter().for_each(|dir| manager.forget_below(dir));
    }
    crate::info_log::info!(engine.log, "closed");
    drop(engine.lock.lock().take());
    flushed?;
    closed?;
    if let Some(error) = failed {
        return Err(error);
    }
    if panicked { Err(Error::io_message("a background thread panicked")) } else { Ok(()) }
}

/// Writes that went around the log would be lost: flushes the memtables that hold some. Whoever paused
/// background work does not keep that from happening.
fn flush_before_closing(engine: &Arc<Engine>) -> Result<()> {
    if engine.options().avoid_flush_during_shutdown || engine.write_failure().is_err() {
        return Ok(());
    }
    let unlogged: Vec<_> = {
        let mut state = engine.state.lock();
        state.paused = 0;
        let families = state.families.values();
        families.filter(|family| family.has_unlogged_writes()).map(|family| family.data.id).collect()
    };
    if unlogged.is_empty() {
        return Ok(());
    }
    flush::flush_and_wait(engine, &Which::Of(unlogged.clone(), FlushReason::Shutdown), &unlogged)
}
