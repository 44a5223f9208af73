//! Slows writers down before compaction falls behind, and stops them when it has.
//!
//! One smooth rule instead of steps: with the debt `d` (0 where slowing starts, 1 where writes stop),
//! writers get `drain * 4^(1 - 2d)` bytes per second, where `drain` is what flushes and compactions
//! have lately taken out of level 0 per second. At small debt that is four times what drains and
//! nobody notices; at half the debt the two are equal; near the stop it is a quarter, so the debt
//! shrinks before anybody has to wait for long.

use ironstone_base::sync::atomic::{AtomicU64, Ordering};
use ironstone_base::sync::{Condvar, Mutex};
use ironstone_base::{Error, Result};
use ironstone_vfs::Clock;
use std::time::Duration;

/// Writers run ahead of the rate by this much before they sleep, so that sleeps are not shorter
/// than the system can time.
const SLACK_NANOS: u64 = 1_000_000;
/// The longest single sleep: the rate is looked at again after it.
const MAX_SLEEP_NANOS: u64 = 10_000_000;

/// Why writes are slowed down or stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StallCause {
    /// Memtables wait for their flush.
    Memtables,
    /// Level 0 has too many files.
    Level0Files,
    /// Compaction has too many bytes to rewrite.
    PendingCompactionBytes,
}

/// How far one column family is behind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Debt {
    pub(crate) cause: StallCause,
    /// 0 where slowing starts, 1 where writes stop; may be larger.
    pub(crate) amount: f64,
}

/// What a column family's state is held against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StallLimits {
    pub(crate) max_write_buffer_number: usize,
    pub(crate) level0_trigger: usize,
    pub(crate) level0_slowdown: usize,
    pub(crate) level0_stop: usize,
    pub(crate) soft_pending_bytes: u64,
    pub(crate) hard_pending_bytes: u64,
    /// Without automatic compactions nothing would ever take the debt away.
    pub(crate) compactions_disabled: bool,
}

/// What is measured of a column family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StallState {
    pub(crate) unflushed_memtables: usize,
    pub(crate) level0_files: usize,
    pub(crate) pending_bytes: u64,
}

impl StallLimits {
    /// Whether compaction should use all its threads, so that writers need not be slowed down soon. Else one
    /// at a time leaves the processors and the disk to writers, readers and flushes. (The bounds are RocksDB's,
    /// where memtables that wait for their flush count too, though compactions only keep that back.)
    pub(crate) fn is_pressing(&self, state: StallState) -> bool {
        let quarter_way = self.level0_trigger + self.level0_slowdown.saturating_sub(self.level0_trigger) / 4;
        self.debt(StallState { unflushed_memtables: 0, ..state }).is_some()
            || state.level0_files >= quarter_way.min(2 * self.level0_trigger)
            || (self.soft_pending_bytes > 0 && state.pending_bytes >= self.soft_pending_bytes / 4)
    }

    /// The largest debt of `state`, if there is any.
    pub(crate) fn debt(&self, state: StallState) -> Option<Debt> {
        let memtables = if state.unflushed_memtables >= self.max_write_buffer_number {
            Some(1.0)
        } else if self.max_write_buffer_number > 3
            && state.unflushed_memtables + 1 >= self.max_write_buffer_number
        {
            Some(0.0)
        } else {
            None
        };
        let mut debts = vec![(StallCause::Memtables, memtables)];
        if !self.compactions_disabled {
            let between = |value: f64, low: f64, high: f64| {
                (low > 0.0 && value >= low)
                    .then(|| if high > low { (value - low) / (high - low) } else { 1.0 })
            };
            let files = state.level0_files as f64;
            debts.push((
                StallCause::Level0Files,
                between(files, self.level0_slowdown as f64, self.level0_stop as f64),
            ));
            let bytes = state.pending_bytes as f64;
            let soft = self.soft_pending_bytes as f64;
            let hard =
                if self.hard_pending_bytes == 0 { f64::INFINITY } else { self.hard_pending_bytes as f64 };
            debts.push((StallCause::PendingCompactionBytes, between(bytes, soft, hard)));
        }
        let known =
            debts.into_iter().filter_map(|(cause, amount)| amount.map(|amount| Debt { cause, amount }));
        known.max_by(|a, b| a.amount.total_cmp(&b.amount))
    }
}

/// Admits writes.
pub(crate) struct WriteController {
    /// Bytes per second; 0 for no limit, [`STOPPED`] for none at all.
    rate: AtomicU64,
    /// When the bytes admitted so far have been paid for, by the monotonic clock.
    paid_until: AtomicU64,
    /// Rate below which slowing never goes (`delayed_write_rate`).
    floor: u64,
    drain: Mutex<Drain>,
    /// Why writers wait now.
    cause: Mutex<Option<StallCause>>,
    stop: Mutex<()>,
    resumed: Condvar,
    /// What writers waited, in total.
    delayed_micros: AtomicU64,
    stops: AtomicU64,
    delays: AtomicU64,
}

const STOPPED: u64 = u64::MAX;

#[derive(Default)]
struct Drain {
    bytes_per_second: f64,
}

impl WriteController {
    pub(crate) fn new(delayed_write_rate: u64) -> Self {
        Self {
            rate: AtomicU64::new(0),
            paid_until: AtomicU64::new(0),
            floor: if delayed_write_rate == 0 { 16 << 20 } else { delayed_write_rate },
            drain: Mutex::default(),
            cause: Mutex::default(),
            stop: Mutex::new(()),
            resumed: Condvar::new(),
            delayed_micros: AtomicU64::new(0),
            stops: AtomicU64::new(0),
            delays: AtomicU64::new(0),
        }
    }

    /// Learns that a job took `bytes` out of level 0 in `nanos`.
    pub(crate) fn note_drained(&self, bytes: u64, nanos: u64) {
        let sample = bytes as f64 * 1e9 / nanos.max(1) as f64;
        let mut drain = self.drain.lock();
        drain.bytes_per_second =
            if drain.bytes_per_second == 0.0 { sample } else { 0.7 * drain.bytes_per_second + 0.3 * sample };
    }

    /// Sets the rate from the largest debt of any column family.
    pub(crate) fn set_debt(&self, debt: Option<Debt>) {
        let rate = match debt {
            None => 0,
            Some(debt) if debt.amount >= 1.0 => STOPPED,
            Some(debt) => {
                let drain = self.drain.lock().bytes_per_second.max(self.floor as f64);
                ((drain * 4f64.powf(1.0 - 2.0 * debt.amount)) as u64).clamp(64 << 10, STOPPED - 1)
            }
        };
        *self.cause.lock() = debt.map(|debt| debt.cause);
        let before = self.rate.swap(rate, Ordering::SeqCst);
        if before == STOPPED && rate != STOPPED {
            let _stop = self.stop.lock();
            self.resumed.notify_all();
        } else if rate == STOPPED && before != STOPPED {
            self.stops.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether writes are stopped, and at what rate they are admitted otherwise (0: no limit).
    pub(crate) fn state(&self) -> (bool, u64) {
        match self.rate.load(Ordering::Relaxed) {
            STOPPED => (true, 0),
            rate => (false, rate),
        }
    }
    /// Why writers wait, if they do.
    pub(crate) fn cause(&self) -> Option<StallCause> {
        *self.cause.lock()
    }
    /// Microseconds that writers waited; how often writes were stopped; how many were delayed.
    pub(crate) fn totals(&self) -> (u64, u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.delayed_micros), load(&self.stops), load(&self.delays))
    }

    /// Wakes whoever waits, for good: the database is closing or has failed.
    pub(crate) fn release(&self) {
        self.set_debt(None);
        let _stop = self.stop.lock();
        self.resumed.notify_all();
    }

    /// Waits until `bytes` may be written. With `no_slowdown`, answers `Incomplete` instead of waiting.
    /// `abort` is asked while writes are stopped: its error ends the wait.
    #[inline]
    pub(crate) fn admit(
        &self,
        bytes: u64,
        no_slowdown: bool,
        clock: &dyn Clock,
        abort: impl Fn() -> Result<()>,
    ) -> Result<()> {
        if self.rate.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        self.wait(bytes, no_slowdown, clock, abort)
    }

    #[cold]
    fn wait(
        &self,
        bytes: u64,
        no_slowdown: bool,
        clock: &dyn Clock,
        abort: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let start = clock.monotonic_nanos();
        let mut paid = None;
        loop {
            let rate = self.rate.load(Ordering::SeqCst);
            if rate == 0 {
                break;
            }
            let now = clock.monotonic_nanos();
            if rate == STOPPED {
                if no_slowdown {
                    return Err(Error::incomplete("write stall: writes are stopped"));
                }
                abort()?;
                let mut stop = self.stop.lock();
                if self.rate.load(Ordering::SeqCst) == STOPPED {
                    // A bound, not a poll: `abort` is looked at again even if nobody wakes us.
                    self.resumed.wait_for(&mut stop, Duration::from_millis(100));
                }
                continue;
            }
            let until = *paid.get_or_insert_with(|| self.pay(bytes, rate, now));
            if until <= now + SLACK_NANOS {
                break;
            }
            if no_slowdown {
                return Err(Error::incomplete("write stall: writes are delayed"));
            }
            abort()?;
            clock.sleep(Duration::from_nanos((until - now).min(MAX_SLEEP_NANOS)));
        }
        let waited = (clock.monotonic_nanos() - start) / 1000;
        if waited > 0 {
            self.delayed_micros.fetch_add(waited, Ordering::Relaxed);
            self.delays.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Takes `bytes` worth of time from the shared account, and answers when they are paid for.
    fn pay(&self, bytes: u64, rate: u64, now: u64) -> u64 {
        let cost = (bytes as f64 * 1e9 / rate as f64) as u64;
        let advance = |until: u64| Some(until.max(now) + cost);
        let before = self
            .paid_until
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, advance)
            .expect("advance always answers");
        before.max(now) + cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironstone_vfs::ManualClock;

    const LIMITS: StallLimits = StallLimits {
        level0_trigger: 4,
        max_write_buffer_number: 2,
        level0_slowdown: 20,
        level0_stop: 36,
        soft_pending_bytes: 64 << 30,
        hard_pending_bytes: 256 << 30,
        compactions_disabled: false,
    };

    fn debt(level0_files: usize) -> Option<Debt> {
        LIMITS.debt(StallState { unflushed_memtables: 1, level0_files, pending_bytes: 0 })
    }

    #[test]
    fn the_rate_falls_smoothly_with_the_debt() {
        let controller = WriteController::new(8 << 20);
        controller.note_drained(100 << 20, 1_000_000_000);
        let mut last = u64::MAX;
        assert!(debt(19).is_none());
        for files in 20..36 {
            controller.set_debt(debt(files));
            let (stopped, rate) = controller.state();
            assert!(!stopped && rate < last, "{files} files: {rate}");
            assert!(last == u64::MAX || rate * 5 / 4 > last * 3 / 4, "no cliff at {files} files");
            last = rate;
        }
        controller.set_debt(debt(36));
        assert!(controller.state().0);
    }

    #[test]
    fn a_delayed_write_pays_and_one_that_will_not_wait_is_refused() {
        let clock = ManualClock::new(0);
        let controller = WriteController::new(1 << 20);
        controller.set_debt(debt(28));
        let rate = controller.state().1;
        controller.admit(rate, false, &clock, || Ok(())).unwrap();
        let waited = clock.monotonic_nanos();
        assert!((980_000_000..1_020_000_000).contains(&waited), "{waited}");
        let refused = controller.admit(rate, true, &clock, || Ok(())).unwrap_err();
        assert!(refused.is_incomplete());
    }

    #[test]
    fn compaction_presses_before_writers_are_slowed_but_not_for_memtables() {
        let pressing = |unflushed_memtables, level0_files, pending_bytes| {
            LIMITS.is_pressing(StallState { unflushed_memtables, level0_files, pending_bytes })
        };
        assert!(!pressing(1, 7, 15 << 30));
        assert!(pressing(1, 8, 0), "a quarter of the way from the trigger to slowing");
        assert!(pressing(1, 0, 16 << 30), "a quarter of the soft limit");
        assert!(!pressing(2, 0, 0), "writes are stopped, but only a flush can help");
    }

    #[test]
    fn a_stop_ends_when_the_database_fails() {
        let clock = ManualClock::new(0);
        let controller = WriteController::new(1 << 20);
        controller.set_debt(debt(40));
        let failed = controller.admit(1, false, &clock, || Err(Error::shutdown()));
        assert!(failed.is_err());
    }
}
