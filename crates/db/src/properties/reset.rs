//! Counting what properties report anew.

use super::report::Shown;
use crate::Db;
use crate::totals::Totals;
use ironstone_base::sync::atomic::{AtomicU64, Ordering};

/// Where that begins what is counted of a whole database. Relaxed: statistics publish nothing.
pub(crate) struct CountedSince {
    /// By the monotonic clock.
    pub(crate) nanos: AtomicU64,
    /// The last write before.
    pub(crate) sequence: AtomicU64,
    /// How many bytes of WALs were written before.
    pub(crate) log_bytes: AtomicU64,
}

impl Db {
    /// Begins anew to count what properties, LOG and [`write_stalls`](Self::write_stalls) say of flushes, compactions, stalls, failures
    /// and the time since opening: RocksDB's `ResetStats`. [`Statistics`](crate::Statistics) are reset by themselves.
    pub fn reset_stats(&self) {
        let engine = self.engine();
        let now = engine.env.clock.monotonic_nanos();
        let mut state = engine.state.lock();
        for family in state.families.values_mut() {
            *family.data.totals.lock() = Totals::default();
            *family.data.shown.lock() = Shown::default();
            family.stall.restart(now);
            family.data.settings().read_latencies().into_iter().for_each(|latencies| latencies.clear());
        }
        engine.counters.reset();
        engine.controller.reset_totals();
        engine.stalls.restart(now);
        let since = &engine.counted_since;
        since.nanos.store(now, Ordering::Relaxed);
        since.sequence.store(engine.pipeline.visible().0, Ordering::Relaxed);
        since.log_bytes.store(engine.pipeline.log_end(), Ordering::Relaxed);
    }
}
