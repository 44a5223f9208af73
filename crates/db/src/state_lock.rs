//! The lock of a database's state, with an eye on how long threads wait for it.

use crate::engine::State;
use ironstone_base::Statistics;
use ironstone_base::perf::PerfMetric;
use ironstone_base::statistics::{StatsLevel, Ticker};
use ironstone_base::sync::{Arc, Mutex, MutexGuard};
use ironstone_vfs::{PerfTimer, stopwatch};

/// Guards what changes in an open database.
pub(crate) struct StateLock {
    state: Mutex<State>,
    statistics: Option<Arc<Statistics>>,
}

impl StateLock {
    pub(crate) fn new(state: State, statistics: Option<Arc<Statistics>>) -> Self {
        Self { state: Mutex::new(state), statistics }
    }

    /// Waits for the lock. The wait is counted where time under locks is wanted.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        let _timer = PerfTimer::lock(PerfMetric::DbMutexLockNanos);
        match &self.statistics {
            Some(statistics) if statistics.enabled(StatsLevel::All) => self.lock_timed(statistics),
            _ => self.state.lock(),
        }
    }

    #[cold]
    fn lock_timed(&self, statistics: &Statistics) -> MutexGuard<'_, State> {
        if let Some(state) = self.state.try_lock() {
            return state;
        }
        let passed = stopwatch();
        let state = self.state.lock();
        statistics.record(Ticker::DbMutexWaitMicros, passed().max(1));
        state
    }
}
