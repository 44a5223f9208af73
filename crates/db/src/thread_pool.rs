//! Threads that flush, compact and clean for all databases that share them.

use ironstone_base::perf::{self, Pool};
use ironstone_base::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, thread};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

/// Threads of the background, for all databases whose [`DbOptions::thread_pool`](crate::DbOptions::thread_pool) it is:
/// some only flush, some compact, some compact into the last level alone, if wanted
/// ([`set_bottom_threads`](Self::set_bottom_threads)), and one removes files and looks after the rest.
///
/// How many jobs of a database may run at once, its own options say (`max_background_jobs` and the like). Of each kind
/// there are as many threads as the databases ask for together, but no more than the machine has processors, or than the
/// one asks for that asks for the most; [`set_flush_threads`](Self::set_flush_threads) and
/// [`set_compaction_threads`](Self::set_compaction_threads) set another limit. (RocksDB's `Env` has as many as the one
/// asks for.) Databases take turns. The threads end when the last of these databases closes.
///
/// A listener, compaction filter or merge operator that waits holds up the others that share its thread: databases that
/// wait for each other in such code need pools of their own.
///
/// ```
/// use ironstone::{Db, Options, ThreadPool};
///
/// # fn main() -> ironstone::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let pool = ThreadPool::new();
/// pool.set_compaction_threads(Some(2));
/// let mut options = Options::default();
/// options.db.create_if_missing = true;
/// options.db.thread_pool = pool;
/// let orders = Db::open(&options, dir.path().join("orders"))?;
/// let stock = Db::open(&options, dir.path().join("stock"))?;
/// # orders.close()?;
/// # stock.close()
/// # }
/// ```
pub struct ThreadPool {
    state: Mutex<State>,
    /// Told when no thread works for a tenant any more.
    left: Condvar,
}

/// What a thread is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Duty {
    Flush,
    Compact,
    /// To compact into the last level.
    Bottom,
    Clean,
}

const DUTIES: [Duty; 4] = [Duty::Flush, Duty::Compact, Duty::Bottom, Duty::Clean];

/// Who has work for the threads.
pub(crate) trait Tenant: Send + Sync {
    /// Does one piece of work, if one is due and may begin. `alarm`: the time that the last answer named has passed.
    fn work(self: Arc<Self>, duty: Duty, alarm: bool) -> Next;
    /// Its monotonic clock, in nanoseconds, by which alarms of several tenants are told apart.
    fn now(&self) -> u64;
}

/// When a tenant is to be asked again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// When it says so.
    WhenPoked,
    /// When it says so, or after that time.
    After(Duration),
    /// After the others.
    Again,
}

/// How things stand with the threads for the last level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BottomThreads {
    /// There are none.
    None,
    /// All of them are at work, for this tenant or another one, or on their way.
    Busy,
    /// At least one waits for work.
    Waiting,
}

/// A tenant's place in a pool.
#[derive(Clone)]
pub(crate) struct Seat {
    pool: Arc<ThreadPool>,
    id: u64,
}

impl PartialEq for Seat {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pool, &other.pool) && self.id == other.id
    }
}

struct State {
    last_id: u64,
    tenants: BTreeMap<u64, Tenancy>,
    lanes: [Lane; 4],
    /// Threads of an older one end.
    generation: u64,
}

struct Tenancy {
    tenant: Arc<dyn Tenant>,
    /// How many threads it asks for.
    wants: [usize; 4],
    /// Whether it is in the queue of a lane.
    queued: [bool; 4],
    /// When to ask it without being told, by its clock.
    alarms: [Option<u64>; 4],
    /// How many threads work for it.
    inside: usize,
    leaving: bool,
}

/// The threads of one duty.
#[derive(Default)]
struct Lane {
    due: VecDeque<u64>,
    /// The most threads that there may be.
    most: Option<usize>,
    /// How many there are to be.
    size: usize,
    threads: Vec<Option<Thread>>,
    /// Those that wait. The first are woken first: each thread keeps memory in an arena of the allocator, and processor
    /// caches are warm where the last job ran.
    idle: BTreeSet<usize>,
}

struct Thread {
    wake: Arc<Condvar>,
    handle: thread::JoinHandle<()>,
}

impl ThreadPool {
    /// A pool without threads; databases that open with it bring some.
    pub fn new() -> Arc<Self> {
        let mut lanes = <[Lane; 4]>::default();
        lanes[Duty::Bottom as usize].most = Some(0);
        lanes[Duty::Clean as usize].most = Some(1);
        let state = State { last_id: 0, tenants: BTreeMap::new(), lanes, generation: 0 };
        Arc::new(Self { state: Mutex::new(state), left: Condvar::new() })
    }

    /// The pool of this process: that of every database whose options name no other.
    pub fn shared() -> Arc<Self> {
        static SHARED: OnceLock<Arc<ThreadPool>> = OnceLock::new();
        Arc::clone(SHARED.get_or_init(Self::new))
    }

    /// The most threads that flush; 0 counts as 1. None, the default: see above. (RocksDB: `SetBackgroundThreads` of an
    /// `Env`, priority high.)
    pub fn set_flush_threads(self: &Arc<Self>, most: Option<usize>) {
        self.set_most(Duty::Flush, most.map(|most| most.max(1)));
    }
    /// The most threads that compact; 0 counts as 1. None, the default: see above. (RocksDB: `SetBackgroundThreads` of an
    /// `Env`, priority low.)
    pub fn set_compaction_threads(self: &Arc<Self>, most: Option<usize>) {
        self.set_most(Duty::Compact, most.map(|most| most.max(1)));
    }
    /// The most threads for compactions that rewrite the last level; None, the default, or 0: there are none, and the others do
    /// that, too. With them, a compaction which is due by itself and writes the last level of several is left to these threads (one
    /// that callers wait for runs on their thread, as ever). These compactions are the longest, and no writer waits for them: so the
    /// threads that others share are free for what writers do wait for. How many compactions of a database run at once, on
    /// threads of both kinds together, its options say, and until level 0 or what there is to compact grows, one. (RocksDB:
    /// `SetBackgroundThreads` of an `Env`, priority bottom.)
    ///
    /// ```
    /// use ironstone::{Db, Options, ThreadPool};
    ///
    /// # fn main() -> ironstone::Result<()> {
    /// let mut options = Options::in_memory();
    /// options.db.thread_pool = ThreadPool::new();
    /// options.db.thread_pool.set_bottom_threads(Some(1));
    /// options.db.max_background_jobs = 4; // 1 to flush, 3 to compact.
    /// let db = Db::open(&options, "/db")?;
    /// db.put(b"iron", b"Fe")?;
    /// # db.close()
    /// # }
    /// ```
    pub fn set_bottom_threads(self: &Arc<Self>, most: Option<usize>) {
        self.set_most(Duty::Bottom, Some(most.unwrap_or(0)));
    }
    fn set_most(self: &Arc<Self>, duty: Duty, most: Option<usize>) {
        let mut state = self.state.lock();
        state.lanes[duty as usize].most = most;
        self.resize(&mut state);
    }

    /// How many threads there are now.
    pub fn thread_count(&self) -> usize {
        self.state.lock().lanes.iter().map(|lane| lane.threads.iter().flatten().count()).sum()
    }

    /// A place for a tenant, who is to [`Seat::attach`].
    pub(crate) fn seat(self: &Arc<Self>) -> Seat {
        let mut state = self.state.lock();
        state.last_id += 1;
        Seat { pool: Arc::clone(self), id: state.last_id }
    }

    /// Starts the threads that are missing, and lets those go that are too many.
    fn resize(self: &Arc<Self>, state: &mut State) {
        let had_bottom_threads = state.has_threads(Duty::Bottom);
        for duty in DUTIES {
            let wants = || state.tenants.values().map(|tenancy| tenancy.wants[duty as usize]);
            let (sum, largest) = (wants().sum::<usize>(), wants().max().unwrap_or(0));
            let lane = &mut state.lanes[duty as usize];
            let most = lane.most.unwrap_or_else(|| largest.max(thread::processors()));
            lane.size = sum.min(most);
            lane.idle.range(lane.size..).for_each(|&index| lane.wake(index));
            for index in 0..lane.size {
                if lane.threads.len() == index {
                    lane.threads.push(None);
                }
                if lane.threads[index].is_none() {
                    let wake = Arc::new(Condvar::new());
                    let (pool, generation, woken) = (Arc::clone(self), state.generation, Arc::clone(&wake));
                    let run = move || pool.run(duty, index, generation, &woken);
                    lane.threads[index] =
                        Some(Thread { wake, handle: thread::spawn_named(duty.name(), run) });
                }
            }
        }
        if state.has_threads(Duty::Bottom) != had_bottom_threads {
            // What was left to these threads is for the others again; or whoever had none is asked what there is for them.
            let ids: Vec<u64> = state.tenants.keys().copied().collect();
            for id in ids {
                state.queue(id, Duty::Compact);
                state.queue(id, Duty::Bottom);
            }
        }
    }

    /// What a thread does.
    fn run(&self, duty: Duty, index: usize, generation: u64, wake: &Condvar) {
        let mut state = self.state.lock();
        loop {
            if state.generation != generation {
                return;
            }
            let lane = &mut state.lanes[duty as usize];
            if index >= lane.size {
                lane.threads[index] = None;
                return;
            }
            if let Some((id, alarm)) = state.next(duty, index) {
                self.work(&mut state, duty, id, alarm);
                continue;
            }
            let alarm = if index == 0 { state.first_alarm(duty) } else { None };
            state.lanes[duty as usize].idle.insert(index);
            match alarm {
                // Whoever waited that long is asked, even if its clock stands still.
                Some((left, id)) if wake.wait_for(&mut state, left).timed_out() => state.ring(id, duty),
                Some(_) => {}
                None => wake.wait(&mut state),
            }
            if state.generation == generation {
                state.lanes[duty as usize].idle.remove(&index);
            }
        }
    }

    fn work(&self, state: &mut MutexGuard<'_, State>, duty: Duty, id: u64, alarm: bool) {
        let tenancy = state.tenants.get_mut(&id).expect("it was found under this lock");
        tenancy.inside += 1;
        let tenant = Arc::clone(&tenancy.tenant);
        let lane = &state.lanes[duty as usize];
        if !lane.due.is_empty() {
            lane.wake_first(); // Whoever is next does not wait for this one.
        }
        let (next, now) = MutexGuard::unlocked(state, || {
            perf::enter_pool(duty.pool());
            let next = Arc::clone(&tenant).work(duty, alarm);
            let now = tenant.now();
            drop(tenant);
            (next, now)
        });
        let tenancy = state.tenants.get_mut(&id).expect("who leaves waits for its threads");
        tenancy.inside -= 1;
        if tenancy.leaving && tenancy.inside == 0 {
            self.left.notify_all();
        }
        match next {
            Next::WhenPoked => {}
            Next::After(time) => {
                let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                tenancy.alarms[duty as usize] = Some(now.saturating_add(nanos));
                state.lanes[duty as usize].wake_watch();
            }
            Next::Again => state.queue(id, duty),
        }
    }
}

impl State {
    /// Takes the tenant who is next, and says whether its alarm went.
    fn next(&mut self, duty: Duty, index: usize) -> Option<(u64, bool)> {
        while let Some(id) = self.lanes[duty as usize].due.pop_front() {
            if let Some(tenancy) = self.tenants.get_mut(&id).filter(|tenancy| !tenancy.leaving) {
                tenancy.queued[duty as usize] = false;
                tenancy.alarms[duty as usize] = None;
                return Some((id, false));
            }
        }
        if index > 0 {
            return None; // The first one watches the alarms.
        }
        self.tenants.iter_mut().find_map(|(&id, tenancy)| {
            let alarm = &mut tenancy.alarms[duty as usize];
            let rings = !tenancy.leaving && alarm.is_some_and(|at| at <= tenancy.tenant.now());
            rings.then(|| *alarm = None).map(|()| (id, true))
        })
    }

    /// How long it is until the first alarm, and whose that is.
    fn first_alarm(&self, duty: Duty) -> Option<(Duration, u64)> {
        let left = |(&id, tenancy): (&u64, &Tenancy)| {
            let at = tenancy.alarms[duty as usize].filter(|_| !tenancy.leaving)?;
            Some((Duration::from_nanos(at.saturating_sub(tenancy.tenant.now())), id))
        };
        self.tenants.iter().filter_map(left).min()
    }

    fn ring(&mut self, id: u64, duty: Duty) {
        if let Some(alarm) =
            self.tenants.get_mut(&id).and_then(|tenancy| tenancy.alarms[duty as usize].as_mut())
        {
            *alarm = 0;
        }
    }

    fn has_threads(&self, duty: Duty) -> bool {
        self.lanes[duty as usize].size > 0
    }

    fn queue(&mut self, id: u64, duty: Duty) {
        if !self.has_threads(duty) {
            return; // Nobody would take it from the queue.
        }
        let Some(tenancy) = self.tenants.get_mut(&id).filter(|tenancy| !tenancy.leaving) else { return };
        if !std::mem::replace(&mut tenancy.queued[duty as usize], true) {
            let lane = &mut self.lanes[duty as usize];
            lane.due.push_back(id);
            lane.wake_first();
        }
    }
}

impl Lane {
    fn wake(&self, index: usize) {
        if let Some(thread) = &self.threads[index] {
            thread.wake.notify_one();
        }
    }
    fn wake_first(&self) {
        if let Some(&index) = self.idle.first() {
            self.wake(index);
        }
    }
    /// Wakes who watches the alarms: there is a new one.
    fn wake_watch(&self) {
        if self.idle.contains(&0) {
            self.wake(0);
        }
    }
}

impl Seat {
    /// The tenant takes its place, and is asked for work of every duty. `wants`: how many threads it asks for.
    pub(crate) fn attach(&self, tenant: Arc<dyn Tenant>, wants: [usize; 4]) {
        let mut state = self.pool.state.lock();
        let tenancy =
            Tenancy { tenant, wants, queued: [false; 4], alarms: [None; 4], inside: 0, leaving: false };
        state.tenants.insert(self.id, tenancy);
        self.pool.resize(&mut state);
        for duty in DUTIES {
            state.queue(self.id, duty);
        }
    }

    /// It asks for so many threads from now on.
    pub(crate) fn set_wants(&self, wants: [usize; 4]) {
        let mut state = self.pool.state.lock();
        if let Some(tenancy) = state.tenants.get_mut(&self.id) {
            tenancy.wants = wants;
            self.pool.resize(&mut state);
        }
    }

    /// There may be work of these kinds. Takes a lock for a moment, under which no other is taken.
    pub(crate) fn poke(&self, duties: &[Duty]) {
        let mut state = self.pool.state.lock();
        duties.iter().for_each(|&duty| state.queue(self.id, duty));
    }

    /// The threads for the last level.
    pub(crate) fn bottom_threads(&self) -> BottomThreads {
        let state = self.pool.state.lock();
        let lane = &state.lanes[Duty::Bottom as usize];
        match (lane.size, lane.idle.is_empty()) {
            (0, _) => BottomThreads::None,
            (_, true) => BottomThreads::Busy,
            (_, false) => BottomThreads::Waiting,
        }
    }

    /// The tenant leaves. Waits for threads that work for it, so it must tell these to end before.
    pub(crate) fn detach(&self) {
        let mut state = self.pool.state.lock();
        let Some(tenancy) = state.tenants.get_mut(&self.id) else { return };
        tenancy.leaving = true;
        while state.tenants.get(&self.id).is_some_and(|tenancy| tenancy.inside > 0) {
            self.pool.left.wait(&mut state);
        }
        let tenancy = state.tenants.remove(&self.id);
        self.pool.resize(&mut state);
        let mut ended = Vec::new();
        if state.tenants.is_empty() {
            state.generation += 1;
            for lane in &mut state.lanes {
                lane.idle.clear();
                lane.due.clear();
                ended.extend(lane.threads.drain(..).flatten());
            }
        }
        drop(state);
        drop(tenancy);
        for Thread { wake, handle } in ended {
            wake.notify_one();
            handle.join().expect("tenants catch their panics");
        }
    }
}

impl Duty {
    fn name(self) -> &'static str {
        match self {
            Self::Flush => "ironstone:flush",
            Self::Compact => "ironstone:compact",
            Self::Bottom => "ironstone:bottom",
            Self::Clean => "ironstone:clean",
        }
    }
    /// RocksDB's pool for such work.
    fn pool(self) -> Pool {
        match self {
            Self::Compact => Pool::Low,
            Self::Bottom => Pool::Bottom,
            Self::Flush | Self::Clean => Pool::High,
        }
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let databases = self.state.lock().tenants.len();
        f.debug_struct("ThreadPool")
            .field("databases", &databases)
            .field("threads", &self.thread_count())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironstone_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// Has `left` pieces of work; with `held`, each waits.
    #[derive(Default)]
    struct Fake {
        left: AtomicU64,
        done: AtomicU64,
        inside: AtomicU64,
        held: AtomicBool,
        alarms: AtomicU64,
        alarm: Option<Duration>,
        time: AtomicU64,
        /// How often it was asked, for each duty.
        asked: [AtomicU64; 4],
    }

    impl Tenant for Fake {
        fn work(self: Arc<Self>, duty: Duty, alarm: bool) -> Next {
            self.asked[duty as usize].fetch_add(1, Ordering::SeqCst);
            self.alarms.fetch_add(u64::from(alarm), Ordering::SeqCst);
            self.inside.fetch_add(1, Ordering::SeqCst);
            while self.held.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            self.inside.fetch_sub(1, Ordering::SeqCst);
            let one_less = |left: u64| left.checked_sub(1);
            if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
                self.done.fetch_add(1, Ordering::SeqCst);
                return Next::Again;
            }
            self.alarm.map_or(Next::WhenPoked, Next::After)
        }
        fn now(&self) -> u64 {
            self.time.load(Ordering::SeqCst)
        }
    }

    fn until(what: &str, done: impl Fn() -> bool) {
        for _ in 0..100_000_000_u64 {
            if done() {
                return;
            }
            thread::yield_now();
        }
        panic!("still not: {what}");
    }

    const COMPACTS: [usize; 4] = [0, 1, 0, 0];

    #[test]
    fn tenants_take_turns() {
        let pool = ThreadPool::new();
        pool.set_compaction_threads(Some(1));
        let (busy, brief) = (Arc::new(Fake::default()), Arc::new(Fake::default()));
        busy.left.store(u64::MAX, Ordering::SeqCst);
        let (of_busy, of_brief) = (pool.seat(), pool.seat());
        of_busy.attach(Arc::<Fake>::clone(&busy), COMPACTS);
        of_brief.attach(Arc::<Fake>::clone(&brief), COMPACTS);
        for _ in 0..10 {
            let done = brief.done.load(Ordering::SeqCst);
            brief.left.store(3, Ordering::SeqCst);
            of_brief.poke(&[Duty::Compact]);
            until("work of the second", || brief.done.load(Ordering::SeqCst) == done + 3);
        }
        of_busy.detach();
        of_brief.detach();
        assert_eq!(pool.thread_count(), 0);
    }

    #[test]
    fn who_leaves_waits_for_its_threads() {
        let pool = ThreadPool::new();
        let fake = Arc::new(Fake::default());
        fake.held.store(true, Ordering::SeqCst);
        let seat = pool.seat();
        seat.attach(Arc::<Fake>::clone(&fake), COMPACTS);
        until("work", || fake.inside.load(Ordering::SeqCst) == 1);
        let has_left = Arc::new(AtomicBool::new(false));
        let leaves = {
            let (seat, has_left) = (seat.clone(), Arc::clone(&has_left));
            thread::spawn_named("leaves", move || {
                seat.detach();
                has_left.store(true, Ordering::SeqCst);
            })
        };
        for _ in 0..1000 {
            thread::yield_now();
            assert!(!has_left.load(Ordering::SeqCst));
        }
        fake.held.store(false, Ordering::SeqCst);
        leaves.join().unwrap();
        assert_eq!(Arc::strong_count(&fake), 1, "the pool has forgotten it");
        seat.poke(&[Duty::Compact]); // Nobody is there.
    }

    #[test]
    fn one_tenant_gets_several_threads_if_it_asks_for_them() {
        let pool = ThreadPool::new();
        let fake = Arc::new(Fake::default());
        fake.held.store(true, Ordering::SeqCst);
        let seat = pool.seat();
        seat.attach(Arc::<Fake>::clone(&fake), [0, 3, 0, 0]);
        for threads in 1..=3 {
            until("another thread", || fake.inside.load(Ordering::SeqCst) == threads);
            seat.poke(&[Duty::Compact]);
        }
        fake.held.store(false, Ordering::SeqCst);
        seat.detach();
    }

    #[test]
    fn threads_for_the_last_level_come_and_go() {
        let pool = ThreadPool::new();
        let fake = Arc::new(Fake::default());
        let asked = |duty: Duty| fake.asked[duty as usize].load(Ordering::SeqCst);
        let seat = pool.seat();
        seat.attach(Arc::<Fake>::clone(&fake), [0, 1, 2, 0]);
        assert_eq!((pool.thread_count(), seat.bottom_threads()), (1, BottomThreads::None), "none by default");
        seat.poke(&[Duty::Bottom]);
        until("the first look", || asked(Duty::Compact) > 0);
        assert_eq!(asked(Duty::Bottom), 0);

        pool.set_bottom_threads(Some(3));
        assert_eq!(pool.thread_count(), 3, "no more than somebody asks for");
        until("a thread for the last level", || asked(Duty::Bottom) > 0);
        until("they wait", || seat.bottom_threads() == BottomThreads::Waiting);
        let idle = || asked(Duty::Compact) >= 2 && fake.inside.load(Ordering::SeqCst) == 0;
        until("the other kind was told, too", idle);
        fake.held.store(true, Ordering::SeqCst);
        for busy in 1..=2 {
            seat.poke(&[Duty::Bottom]);
            until("it works", || fake.inside.load(Ordering::SeqCst) == busy);
        }
        until("both work", || seat.bottom_threads() == BottomThreads::Busy);

        // What was left to them is asked for from the others.
        let before = asked(Duty::Compact);
        pool.set_bottom_threads(None);
        assert_eq!(seat.bottom_threads(), BottomThreads::None);
        until("another look", || asked(Duty::Compact) > before);
        let before = asked(Duty::Bottom);
        fake.held.store(false, Ordering::SeqCst);
        until("they are gone", || pool.thread_count() == 1);
        seat.poke(&[Duty::Bottom]);
        assert_eq!(asked(Duty::Bottom), before);
        seat.detach();
        assert_eq!(pool.thread_count(), 0);
    }

    #[test]
    fn alarms_go_after_their_time_or_by_the_tenants_clock() {
        let pool = ThreadPool::new();
        let after = |alarm| Arc::new(Fake { alarm: Some(alarm), ..Fake::default() });
        let (short, long) = (after(Duration::from_millis(1)), after(Duration::from_secs(3600)));
        let (of_short, of_long) = (pool.seat(), pool.seat());
        of_short.attach(Arc::<Fake>::clone(&short), COMPACTS);
        of_long.attach(Arc::<Fake>::clone(&long), COMPACTS);
        until("alarms of the short one", || short.alarms.load(Ordering::SeqCst) >= 3);
        assert_eq!(long.alarms.load(Ordering::SeqCst), 0);
        long.time.store(3_600_000_000_000, Ordering::SeqCst);
        until("an alarm of the long one", || long.alarms.load(Ordering::SeqCst) == 1);
        of_short.detach();
        of_long.detach();
    }
}
