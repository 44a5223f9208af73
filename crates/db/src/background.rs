//! Background work: flushes, compactions, and the removal of files that nobody needs.
//!
//! The threads are those of a [`ThreadPool`](crate::ThreadPool), in four kinds: some that only flush, so that writers
//! never wait behind a compaction; some that compact; where they are wanted, some that compact into the last level alone; and
//! one that removes files and tries to go on after a full disk.

pub(crate) mod abort;
pub(crate) mod compaction;
pub(crate) mod flush;
pub(crate) mod job;
pub(crate) mod manual;
mod pressure;
pub(crate) mod purge;
pub(crate) mod resume;
mod tombstones;
mod verify_manifest;

use crate::engine::{Engine, State};
use crate::listener::BackgroundErrorReason;
use crate::memtables::FlushReason;
use crate::open::follower::catch_up_in_background;
use crate::options::DbOptions;
use crate::table_cache::{TableSlot, open_in_turn};
use crate::thread_list::{ThreadId, ThreadType};
use crate::thread_pool::{Duty, Next, Seat, Tenant};
use crate::write::switch::Which;
use ironstone_base::statistics::IoActivity;
use ironstone_base::sync::atomic::Ordering;
use ironstone_base::sync::{Arc, Mutex, thread};
use ironstone_base::{Error, FileNumber, Result, Severity};
use ironstone_vfs::Clock;
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// What works for one database in the background: its place among the threads that flush, compact and clean, and threads of
/// its own that open tables.
pub(crate) struct Workers {
    seat: Seat,
    opening: Vec<thread::JoinHandle<()>>,
}

/// What is to be done beside flushes and compactions: to remove files, to pass tombstones before others have to, to try to go
/// on after a full disk, to tell LOG how things stand and to keep the history of statistics.
#[derive(Default)]
pub(crate) struct Cleaner {
    wanted: Mutex<Wanted>,
    /// Where a thread is asked for; none does it for a database that is only read.
    seat: Option<Seat>,
}

#[derive(Default)]
struct Wanted {
    clean: bool,
    /// A thread is at it.
    cleaning: bool,
    /// How many wait until that has ended.
    awaited: usize,
    /// Tables that are to be removed, and since when, in that order.
    doomed: VecDeque<(FileNumber, u64)>,
    /// When the next one may be.
    rests_until: u64,
    /// A memtable has grown.
    pass_tombstones: bool,
    /// The number of the next try to go on after a full disk, and since when it waits.
    next_try: Option<(u32, Option<u64>)>,
    /// When LOG was told how things stand, by the monotonic clock.
    dumped_at: Option<u64>,
    /// When a period of the history of statistics ended.
    kept_at: Option<u64>,
    /// When a follower last tried to catch up.
    followed_at: Option<u64>,
}

/// After a table was removed, the next one waits for as long as that took: many at once, as a large compaction leaves them,
/// would keep the disk from all else. There are no rests before tables that have waited for this long, in nanoseconds.
const LONGEST_REST: u64 = 10_000_000_000;

/// What is to be done next.
enum Chore {
    Clean,
    /// Removes a table.
    Remove(FileNumber),
    PassTombstones,
    /// The so many-th try.
    Resume(u32),
    /// Tells LOG how things stand.
    DumpStats,
    /// Adds a period to the history of statistics.
    KeepStats,
    /// Catches up with the leader.
    CatchUp,
    /// Nothing before that time, or until somebody asks for it.
    Wait(Option<Duration>),
}

impl Cleaner {
    pub(crate) fn new(seat: Option<Seat>) -> Self {
        Self { wanted: Mutex::default(), seat }
    }
    /// Something was let go of: look whether files can be removed.
    pub(crate) fn poke(&self) {
        self.wanted.lock().clean = true;
        self.wake();
    }
    /// Whether files are being removed, or looked for, or wait for that and may be; never, where no thread does it.
    pub(crate) fn is_cleaning(&self, may_remove: bool) -> bool {
        let wanted = self.wanted.lock();
        let waits = may_remove && !wanted.doomed.is_empty();
        self.seat.is_some() && (wanted.clean || wanted.cleaning || waits)
    }
    /// Tables that nobody needs are to be removed in turn.
    fn doom(&self, tables: impl Iterator<Item = FileNumber>, now: u64) {
        self.wanted.lock().doomed.extend(tables.map(|number| (number, now)));
    }
    /// The tables that wait to be removed, for whoever does it at once.
    fn take_doomed(&self) -> Vec<FileNumber> {
        std::mem::take(&mut self.wanted.lock().doomed).into_iter().map(|(number, _)| number).collect()
    }
    /// No table is removed before that time, unless it has waited long or somebody waits for it.
    fn rest_until(&self, time: u64) {
        self.wanted.lock().rests_until = time;
    }
    /// Answers whether somebody waits for that.
    fn cleaned(&self) -> bool {
        let mut wanted = self.wanted.lock();
        wanted.cleaning = false;
        wanted.awaited > 0
    }
    /// The same as [`poke`](Self::poke) for somebody who waits until it has ended.
    pub(crate) fn poke_and_await(&self) -> Awaited<'_> {
        self.wanted.lock().awaited += 1;
        self.poke();
        Awaited(self)
    }
    /// A memtable has grown, of tombstones perhaps.
    pub(crate) fn pass_tombstones(&self) {
        self.wanted.lock().pass_tombstones = true;
        self.wake();
    }
    /// A failure may pass: tries to go on are to begin, if they have not.
    pub(crate) fn resume_later(&self) {
        self.wanted.lock().next_try.get_or_insert((1, None));
        self.wake();
    }
    fn wake(&self) {
        if let Some(seat) = &self.seat {
            seat.poke(&[Duty::Clean]);
        }
    }
    fn try_again(&self, tries: u32) {
        self.wanted.lock().next_try = Some((tries, None));
    }
    /// No more tries to go on. Answers whether one was to come.
    fn stop_trying(&self) -> bool {
        self.wanted.lock().next_try.take().is_some()
    }
    /// What there is to do: a try to go on, not before `interval` has passed; LOG, when it is `dump_every` since it was told
    /// how things stand; the history of statistics, when it is `keep_every` since it was added to; the leader, when it is
    /// `follow_every` since a follower last looked; a table, if they may be removed.
    fn next(
        &self,
        clock: &dyn Clock,
        interval: Duration,
        dump_every: Option<Duration>,
        keep_every: Option<Duration>,
        follow_every: Option<Duration>,
        may_remove: bool,
    ) -> Chore {
        let mut wanted = self.wanted.lock();
        if std::mem::take(&mut wanted.clean) {
            wanted.cleaning = true;
            return Chore::Clean;
        }
        if std::mem::take(&mut wanted.pass_tombstones) {
            return Chore::PassTombstones;
        }
        let now = clock.monotonic_nanos();
        let Wanted { next_try, dumped_at, kept_at, followed_at, doomed, rests_until, .. } = &mut *wanted;
        let left = |since: &mut Option<u64>, whole: Duration| {
            whole.saturating_sub(Duration::from_nanos(now - *since.get_or_insert(now)))
        };
        let until_try = next_try.as_mut().map(|(_, since)| left(since, interval));
        let until_dump = dump_every.map(|every| left(dumped_at, every));
        let until_keep = keep_every.map(|every| left(kept_at, every));
        let until_follow = follow_every.map(|every| left(followed_at, every));
        let until_removal = doomed.front().filter(|_| may_remove).map(|(_, since)| {
            let latest = since.saturating_add(LONGEST_REST);
            Duration::from_nanos(latest.min(*rests_until).saturating_sub(now))
        });
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
        if until_follow == Some(Duration::ZERO) {
            wanted.followed_at = Some(now);
            return Chore::CatchUp;
        }
        if (until_removal == Some(Duration::ZERO) || (until_removal.is_some() && wanted.awaited > 0))
            && let Some((number, _)) = wanted.doomed.pop_front()
        {
            wanted.cleaning = true;
            return Chore::Remove(number);
        }
        Chore::Wait(
            [until_try, until_dump, until_keep, until_follow, until_removal].into_iter().flatten().min(),
        )
    }
}

/// While there is one, those who wait for progress are told when files have been removed.
pub(crate) struct Awaited<'a>(&'a Cleaner);

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.0.wanted.lock().awaited -= 1;
    }
}

impl Workers {
    pub(crate) fn start(engine: &Arc<Engine>, seat: Seat) -> Self {
        engine.keep_stats(); // From here on the first period counts.
        seat.attach(Arc::<Engine>::clone(engine), wanted_threads(engine, &engine.options()));
        Self { seat, opening: Vec::new() }
    }

    /// Starts a thread that opens `slots`.
    pub(crate) fn open_tables(&mut self, engine: &Arc<Engine>, slots: Vec<Arc<TableSlot>>) {
        let engine = Arc::clone(engine);
        self.opening.push(thread::spawn_named("ironstone:open", move || {
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

    /// Asks for as many threads as the options say by now.
    pub(crate) fn options_changed(&self, engine: &Engine, options: &DbOptions) {
        self.seat.set_wants(wanted_threads(engine, options));
    }
}

/// For flushes, for compactions, for those into the last level, and for the rest.
fn wanted_threads(engine: &Engine, options: &DbOptions) -> [usize; 4] {
    if engine.read_only {
        return [0, 0, 0, 1];
    }
    [options.flush_threads(), options.compaction_threads(), options.compaction_threads(), 1]
}

impl Engine {
    /// A flush or a compaction may be due.
    pub(crate) fn wake_workers(&self) {
        if let Some(seat) = &self.seat {
            seat.poke(&[Duty::Flush, Duty::Compact, Duty::Bottom]);
        }
    }
}

impl Tenant for Engine {
    fn work(self: Arc<Self>, duty: Duty, alarm: bool) -> Next {
        match duty {
            Duty::Flush | Duty::Compact | Duty::Bottom if self.read_only => Next::WhenPoked,
            Duty::Flush => work(&self, &FLUSHES, alarm),
            Duty::Compact => work(&self, &COMPACTIONS, alarm),
            Duty::Bottom => work(&self, &BOTTOM_COMPACTIONS, alarm),
            Duty::Clean => do_chore(&self),
        }
    }
    fn now(&self) -> u64 {
        self.env.clock.monotonic_nanos()
    }
}

fn do_chore(engine: &Arc<Engine>) -> Next {
    let options = engine.options();
    let interval = Duration::from_micros(options.bgerror_resume_retry_interval);
    let dump_every = period(options.stats_dump_period_sec);
    let has_stats = engine.statistics.is_some();
    let keep_every = period(options.stats_persist_period_sec).filter(|_| has_stats);
    let follow_every = engine.follower.as_ref().map(|follower| follower.next_after(&options));
    drop(options);
    let clock = &*engine.env.clock;
    let may_remove = purge::may_remove(engine);
    let chore = match engine.cleaner.next(clock, interval, dump_every, keep_every, follow_every, may_remove) {
        Chore::Wait(None) => return Next::WhenPoked,
        Chore::Wait(Some(longest)) => return Next::After(longest),
        chore => chore,
    };
    guarded(engine, || {
        let _listed = engine.list_thread(ThreadType::HighPriority);
        match chore {
            Chore::Clean => {
                engine.tell_listeners();
                purge::doom_obsolete(engine);
                if engine.snapshots.take_freed() {
                    compaction::look_again(engine, &mut engine.state.lock());
                }
                tell_cleaned(engine);
            }
            Chore::Remove(number) => {
                let begun = clock.monotonic_nanos();
                purge::remove_table(engine, number);
                let ended = clock.monotonic_nanos();
                engine.cleaner.rest_until(ended + (ended - begun));
                tell_cleaned(engine);
            }
            Chore::PassTombstones => tombstones::pass_tombstones(engine),
            Chore::Resume(tries) => {
                if resume::try_again(engine, tries) {
                    engine.cleaner.try_again(tries.saturating_add(1));
                }
            }
            Chore::DumpStats => engine.dump_stats(),
            Chore::KeepStats => engine.keep_stats(),
            Chore::CatchUp => {
                if let Some(follower) = &engine.follower {
                    catch_up_in_background(engine, follower);
                }
            }
            Chore::Wait(_) => {}
        }
    });
    Next::Again
}

/// Tells whoever waits for it that some cleaning has ended.
fn tell_cleaned(engine: &Engine) {
    if engine.cleaner.cleaned() {
        drop(engine.state.lock()); // Whoever waits for it has looked before, or looks after it.
        engine.progress.notify_all();
    }
}

/// So many seconds; none: never.
fn period(seconds: u32) -> Option<Duration> {
    (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
}

/// A job that was taken and must be run without the state lock.
/// It says as which thread it runs, if threads are listed.
pub(crate) type Job = Box<dyn FnOnce(&Arc<Engine>, Option<ThreadId>) + Send>;

/// Jobs of a kind.
struct Kind {
    thread_type: ThreadType,
    /// How many may run at once.
    limit: fn(&DbOptions) -> usize,
    /// How many run.
    running: fn(&State) -> usize,
    /// Takes the next job, if one is due.
    next: fn(&Engine, &mut State) -> Option<Job>,
    /// How long none of them may begin.
    held_back: fn(&Engine, &State) -> Option<Duration>,
    /// After what time without a word to look again: tables grow old, and what failed is tried again.
    look_again: fn(&Engine, Option<Duration>) -> Option<Duration>,
}

const FLUSHES: Kind = Kind {
    thread_type: ThreadType::HighPriority,
    limit: DbOptions::flush_threads,
    running: |state| state.running_flushes,
    next: flush::next,
    held_back: |_, _| None,
    look_again: |_, _| None,
};

const COMPACTIONS: Kind = Kind {
    thread_type: ThreadType::LowPriority,
    limit: DbOptions::compaction_threads,
    running: |state| state.running_automatic,
    next: compaction::next,
    held_back: |engine, state| {
        [engine.until_next_compaction(state), engine.until_bottom_has_come(state)].into_iter().flatten().max()
    },
    look_again: |engine, held_back| {
        let seconds = engine.options().seconds_to_next_look(engine.env.clock.now_seconds());
        seconds.map(Duration::from_secs).into_iter().chain(held_back).min()
    },
};

/// Those into the last level, where there are threads for them.
const BOTTOM_COMPACTIONS: Kind = Kind {
    thread_type: ThreadType::BottomPriority,
    limit: DbOptions::compaction_threads,
    running: |state| state.running_automatic,
    next: compaction::next_bottom,
    held_back: Engine::until_next_compaction,
    look_again: |_, held_back| held_back,
};

/// Runs a job, if one is due. `quiet`: nobody said so, but it is time to look again.
fn work(engine: &Arc<Engine>, kind: &Kind, quiet: bool) -> Next {
    let mut state = engine.state.lock();
    if state.closing {
        return Next::WhenPoked;
    }
    if quiet {
        // These times have passed, even if the clock stands still.
        (state.no_compaction_before, state.bottom_first_until) = (0, 0);
        compaction::look_again(engine, &mut state);
    }
    let mut held_back = (kind.held_back)(engine, &state); // Before one is looked for: else it might pass unseen.
    let may_work =
        held_back.is_none() && !state.is_held() && (kind.running)(&state) < (kind.limit)(&engine.options());
    let job = if may_work { (kind.next)(engine, &mut state) } else { None };
    if may_work && job.is_none() {
        held_back = (kind.held_back)(engine, &state); // It may just have been left to others.
    }
    drop(state);
    let Some(job) = job else {
        return (kind.look_again)(engine, held_back).map_or(Next::WhenPoked, Next::After);
    };
    engine.wake_workers(); // There may be another one, for another thread.
    guarded(engine, || {
        let listed = engine.list_thread(kind.thread_type);
        job(engine, listed.as_ref().map(|listed| listed.id));
    });
    engine.wake_workers();
    engine.progress.notify_all();
    Next::WhenPoked
}

/// A job that panics is a bug of ours; it must not leave others waiting for ever.
fn guarded(engine: &Arc<Engine>, job: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
        let error = Error::io_message(format!("internal panic in a background job: {}", panic_text(&*panic)));
        let error = error.with_severity(Severity::Unrecoverable);
        engine.stop_writes(&mut engine.state.lock(), error, BackgroundErrorReason::Internal);
    }
}

/// What somebody panicked with, if it is text.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Ends the background work of a database and closes its log.
pub(crate) fn close(engine: &Arc<Engine>, workers: Workers) -> Result<()> {
    let flushed = flush_before_closing(engine);
    engine.listeners.tell_shutdown();
    let known = {
        let mut state = engine.state.lock();
        state.closing = true;
        engine.cancelled.store(true, Ordering::Relaxed);
        engine.writes_stopped.store(true, Ordering::Release);
        engine.controller.release();
        engine.progress.notify_all();
        state.background_error.is_some()
    };
    workers.seat.detach();
    engine.tell_listeners(); // Of what ends in the next step, too.
    if engine.cleaner.stop_trying() {
        let error = engine.state.lock().background_error.clone();
        error.into_iter().for_each(|error| engine.tell_not_recovered(error, Error::shutdown()));
    }
    let mut panicked = false;
    for thread in workers.opening {
        panicked |= thread.join().is_err();
    }
    engine.tell_listeners();
    // A flush that was under way failed: nobody else will hear of it. (A writer that comes now fails for itself.)
    let failed = engine.state.lock().background_error.clone().filter(|_| !known);
    // Whatever a writer got an answer for is in the log; what it buffered goes to the system.
    let closed = engine.pipeline.close();
    let verified = verify_manifest::verify_on_close(engine);
    purge::remove_obsolete(engine);
    if let Some(manager) = &engine.options().sst_file_manager {
        engine.place.dirs().iter().for_each(|dir| manager.forget_below(dir));
    }
    crate::info_log::info!(engine.log, "closed");
    drop(engine.lock.lock().take());
    flushed?;
    closed?;
    verified?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use ironstone_vfs::ManualClock;

    #[test]
    fn tables_are_removed_with_rests_between_them_unless_somebody_waits() {
        let (cleaner, clock) = (Cleaner::new(None), ManualClock::default());
        let next = || match cleaner.next(&clock, Duration::MAX, None, None, None, true) {
            Chore::Remove(number) => format!("remove {number}"),
            Chore::Wait(time) => format!("wait {time:?}"),
            _ => "another".to_owned(),
        };
        let ms = Duration::from_millis;
        let rest = |time: Duration| {
            assert!(!cleaner.cleaned());
            cleaner.rest_until((Duration::from_nanos(clock.monotonic_nanos()) + time).as_nanos() as u64);
        };
        cleaner.doom((1..=6).map(FileNumber), clock.monotonic_nanos());
        assert_eq!(next(), "remove 1");
        rest(ms(20));
        assert_eq!(next(), "wait Some(20ms)");
        clock.advance(ms(20));
        assert_eq!(next(), "remove 2");
        rest(ms(60_000));
        assert_eq!(next(), "wait Some(9.98s)", "ten seconds after it was obsolete");
        clock.advance(ms(9_980));
        assert_eq!(next(), "remove 3");
        rest(ms(60_000));
        assert_eq!(next(), "remove 4");
        cleaner.doom([FileNumber(7)].into_iter(), clock.monotonic_nanos());
        assert_eq!(cleaner.take_doomed(), [5, 6, 7].map(FileNumber));
        cleaner.doom([FileNumber(8)].into_iter(), clock.monotonic_nanos());
        rest(ms(60_000));
        assert_eq!(next(), "wait Some(10s)");
        let awaited = cleaner.poke_and_await();
        assert_eq!((next(), next()), ("another".to_owned(), "remove 8".to_owned()));
        assert!(cleaner.cleaned());
        drop(awaited);
        assert_eq!(next(), "wait None");
    }
}
