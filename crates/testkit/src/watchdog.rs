//! Ends the process when a step of a test takes too long, and says which step it was.
//!
//! A hang is a failure like any other, but a thread that hangs cannot report it. So somebody else does.

use ironstone_base::sync::atomic::{AtomicU64, Ordering};
use ironstone_base::sync::{Arc, Condvar, Mutex, thread};
use ironstone_vfs::{Clock, SystemClock};
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

/// Watches steps of any number of threads.
pub struct Watchdog {
    shared: Arc<Shared>,
    checker: Option<thread::JoinHandle<()>>,
}

struct Shared {
    clock: SystemClock,
    limit: Duration,
    last_words: Box<dyn Fn(&str) + Send + Sync>,
    next: AtomicU64,
    state: Mutex<State>,
    stop: Condvar,
}

#[derive(Default)]
struct State {
    steps: BTreeMap<u64, Step>,
    stopped: bool,
}

struct Step {
    started_nanos: u64,
    what: String,
}

/// A step that is watched until this is dropped.
pub struct Watched<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Watchdog {
    /// Lets no step take longer than `limit`.
    pub fn new(limit: Duration) -> Self {
        Self::with_last_words(limit, |_| {})
    }

    /// As [`Watchdog::new`]; calls `last_words` with the step that hangs before it ends the process.
    pub fn with_last_words(limit: Duration, last_words: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let shared = Arc::new(Shared {
            clock: SystemClock::new(),
            limit,
            last_words: Box::new(last_words),
            next: AtomicU64::new(0),
            state: Mutex::default(),
            stop: Condvar::new(),
        });
        let checked = Arc::clone(&shared);
        let checker = thread::spawn_named("watchdog", move || checked.check());
        Self { shared, checker: Some(checker) }
    }

    /// Watches the step `what` from now on.
    #[must_use = "the step ends when this is dropped"]
    pub fn watch(&self, what: impl Into<String>) -> Watched<'_> {
        let shared = &*self.shared;
        let id = shared.next.fetch_add(1, Ordering::Relaxed);
        let step = Step { started_nanos: shared.clock.monotonic_nanos(), what: what.into() };
        shared.state.lock().steps.insert(id, step);
        Watched { shared, id }
    }
}

impl Shared {
    fn check(&self) {
        let mut state = self.state.lock();
        while !state.stopped {
            self.stop.wait_for(&mut state, Duration::from_millis(200));
            let now = self.clock.monotonic_nanos();
            let late = |step: &&Step| now.saturating_sub(step.started_nanos) > self.limit.as_nanos() as u64;
            if let Some(step) = state.steps.values().find(late) {
                // Written directly, since a test's captured output dies with the process.
                let _ = writeln!(std::io::stderr(), "hangs for more than {:?}: {}", self.limit, step.what);
                (self.last_words)(&step.what);
                std::process::abort();
            }
        }
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.shared.state.lock().steps.remove(&self.id);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.state.lock().stopped = true;
        self.shared.stop.notify_all();
        if let Some(checker) = self.checker.take() {
            let _ = checker.join(); // It cannot panic, and nothing depends on it any more.
        }
    }
}
