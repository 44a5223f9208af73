//! Slows writers down before compaction falls behind, and stops them when it has.
//!
//! One smooth rule instead of steps: with the debt `d` (0 where slowing starts, 1 where writes stop),
//! writers get `drain * 4^(1 - 2d)` bytes per second, where `drain` is what compactions have lately taken
//! out of level 0 per second, or flushes out of memtables if it is these that wait. At small debt that
//! is four times what drains and nobody notices; at half the debt the two are equal; near the stop it
//! is a quarter, so the debt shrinks before anybody has to wait for long. While a compaction takes files out of level 0
//! they get no more than lasts until it ends: one of many gigabytes takes long, and nothing shrinks before its end. For
//! memtables the base is 4096 instead of 4: a flush ends in less than a second unless its sync takes long, and then writers get ever less
//! and do not stand still where the last memtable ends.

use crate::listener::WriteStallCause;
use crate::write::fill_rate::smoothed;
use crate::write::stalls::Waits;
use ironstone_base::perf::PerfMetric;
use ironstone_base::statistics::{Histogram, Ticker};
use ironstone_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ironstone_base::sync::{Arc, Condvar, Mutex};
use ironstone_base::{ColumnFamilyId, Error, Result, Statistics};
use ironstone_vfs::{Clock, PerfTimer};
use std::collections::BTreeMap;
use std::time::Duration;

/// Writers run ahead of the rate by this much before they sleep. One long sleep meets one write, many short ones would meet many,
/// and wake up as often.
const SLACK_NANOS: u64 = 5_000_000;
/// The longest single sleep: the rate is looked at again after it, since the flush or compaction that is paid for may have ended.
const MAX_SLEEP_NANOS: u64 = 1_000_000;

/// By what factor the rate of writers changes with the debt of memtables from 0 to a half, or from there to 1.
const MEMTABLE_RANGE: f64 = 4096.0;
/// Writers fill at least so much of a memtable while another is flushed. Then the two are never both full, and there is room left for a sync that
/// takes long.
pub(crate) const LEAST_BESIDE_FLUSH: f64 = 0.21;
/// At most they may be so much ahead of the flush: with more they hit the end of the memtable at once.
const MOST_BESIDE_FLUSH: f64 = 1.5;
/// Records of so many bytes and more are large.
const LARGE_RECORD: f64 = 4096.0;

/// How much of a memtable writers may fill while another is flushed, if by themselves they are so many times as fast as the flush, and write records of
/// `record_bytes`. Those that are much slower than it fill little anyway. Those that are as fast would stand still for half of the time if writing and
/// flushing took turns, and may be ahead of it until the memtable is full, which is a memtable more at the peak. So it is for large records,
/// whose rate is what memory and disk take, and ever less for smaller ones.
pub(crate) fn part_beside_flush(writers_to_flush: f64, record_bytes: f64) -> f64 {
    let more = 3.0 * (writers_to_flush - 0.6).max(0.0) * (record_bytes / LARGE_RECORD).min(1.0);
    (LEAST_BESIDE_FLUSH + more).min(MOST_BESIDE_FLUSH)
}

/// How far one column family is behind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Debt {
    /// The column family that has it.
    pub(crate) of: ColumnFamilyId,
    pub(crate) cause: WriteStallCause,
    /// 0 where slowing starts, 1 where writes stop; may be larger.
    pub(crate) amount: f64,
    /// Bytes per second that may be written until help comes, if it is known when that will be.
    pub(crate) lasting: Option<f64>,
}

/// What a column family's state is held against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StallLimits {
    pub(crate) max_write_buffer_number: usize,
    pub(crate) min_write_buffer_number_to_merge: usize,
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
    /// How much of the memtable that takes writes is used, of 1.
    pub(crate) active_fill: f64,
    /// How far the flush of those that wait has come, of 1.
    pub(crate) flush_done: f64,
    /// How much of it writers may fill while a flush takes one out of memory, of 1.
    pub(crate) beside_flush: f64,
    pub(crate) level0_files: usize,
    /// Of such a file, on average.
    pub(crate) level0_file_bytes: u64,
    /// How long the compaction that takes files out of level 0 will go on, if that is known.
    pub(crate) draining_nanos: Option<u64>,
    pub(crate) pending_bytes: u64,
}

impl StallLimits {
    /// Whether compaction should use all its threads, so that writers need not be slowed down soon. Else one
    /// at a time leaves the processors and the disk to writers, readers and flushes. (The bounds are RocksDB's,
    /// where memtables that wait for their flush count too, though compactions only keep that back.)
    pub(crate) fn is_pressing(&self, state: StallState) -> bool {
        let quarter_way = self.level0_trigger + self.level0_slowdown.saturating_sub(self.level0_trigger) / 4;
        self.debts(ColumnFamilyId::DEFAULT, StallState { unflushed_memtables: 0, ..state }).next().is_some()
            || state.level0_files >= quarter_way.min(2 * self.level0_trigger)
            || (self.soft_pending_bytes > 0 && state.pending_bytes >= self.soft_pending_bytes / 4)
    }

    /// Whether one more file of level 0, and one more immutable memtable if the active one has writes, would hold up writers. Not
    /// where neither a flush nor a compaction is due that could make room. RocksDB's rule, by which manual flushes wait.
    pub(crate) fn flush_would_stall(&self, now: StallState, has_writes: bool) -> bool {
        if now.unflushed_memtables < self.min_write_buffer_number_to_merge
            && now.level0_files < self.level0_trigger
        {
            return false;
        }
        let (memtables, most) =
            (now.unflushed_memtables + usize::from(has_writes), self.max_write_buffer_number);
        let delays = most > 3 && memtables + 1 >= most && memtables > self.min_write_buffer_number_to_merge;
        let rest = StallState { unflushed_memtables: 0, level0_files: now.level0_files + 1, ..now };
        memtables >= most || delays || self.debts(ColumnFamilyId::DEFAULT, rest).next().is_some()
    }

    /// What the column family `of` is behind with.
    pub(crate) fn debts(&self, of: ColumnFamilyId, state: StallState) -> impl Iterator<Item = Debt> {
        let memtables = if state.unflushed_memtables >= self.max_write_buffer_number {
            Some(1.0)
        } else if state.unflushed_memtables > 0
            && state.unflushed_memtables + 1 >= self.max_write_buffer_number
        {
            // Writers get that part of the flush's rate with which they fill as much as they may meanwhile. Those ahead of that get ever less,
            // since they would hit the end of the memtable and stand still, those behind it more.
            let (part, ahead) =
                (state.beside_flush, state.active_fill - state.beside_flush * state.flush_done);
            let even = 0.5 - part.ln() / (2.0 * MEMTABLE_RANGE.ln());
            Some((even + 0.667 * ahead).clamp(0.433, 0.99))
        } else {
            None
        };
        let mut debts = vec![(WriteStallCause::MemtableLimit, memtables)];
        if !self.compactions_disabled {
            let between = |value: f64, low: f64, high: f64| {
                (low > 0.0 && value >= low)
                    .then(|| if high > low { (value - low) / (high - low) } else { 1.0 })
            };
            let files = state.level0_files as f64;
            debts.push((
                WriteStallCause::L0FileCountLimit,
                between(files, self.level0_slowdown as f64, self.level0_stop as f64),
            ));
            let bytes = state.pending_bytes as f64;
            let soft = self.soft_pending_bytes as f64;
            let hard =
                if self.hard_pending_bytes == 0 { f64::INFINITY } else { self.hard_pending_bytes as f64 };
            debts.push((WriteStallCause::PendingCompactionBytes, between(bytes, soft, hard)));
        }
        let lasting = self.lasting_rate(state);
        debts.into_iter().filter_map(move |(cause, amount)| {
            let lasting = lasting.filter(|_| cause == WriteStallCause::L0FileCountLimit);
            Some(Debt { of, cause, amount: amount?, lasting })
        })
    }

    /// The bytes per second at which level 0 is full when the compaction ends that makes room in it, with a tenth to spare: how
    /// long that takes is an estimate.
    fn lasting_rate(&self, state: StallState) -> Option<f64> {
        let seconds = state.draining_nanos?.max(1_000_000) as f64 / 1e9;
        let coming = (state.level0_files + state.unflushed_memtables) as f64 + state.active_fill;
        let room = (self.level0_stop as f64 - coming).max(0.0) * state.level0_file_bytes as f64;
        Some(0.9 * room / seconds)
    }
}

/// How long a compaction will go on at the pace that it had so far, and a twentieth of that time more: its last outputs are still to be
/// synced when it has read everything, and the disk may be slower by then. `None` while that is a guess.
pub(crate) fn nanos_left(passed: u64, done: f64) -> Option<u64> {
    (done >= 0.05).then(|| (passed as f64 * ((1.0 - done) / done + 0.05)) as u64)
}

/// Admits writes.
pub(crate) struct WriteController {
    /// Bytes per second; 0 for no limit, [`STOPPED`] for none at all.
    rate: AtomicU64,
    /// Whether the WAL is locked: whatever the debts, none is admitted. Changed under the state lock, as the rate. Relaxed: who is
    /// let through by the rate is turned back by the pipeline.
    locked: AtomicBool,
    /// When the bytes admitted so far have been paid for, by the monotonic clock.
    paid_until: AtomicU64,
    /// Rate below which slowing never goes (`delayed_write_rate`).
    floor: AtomicU64,
    /// What compactions take out of level 0.
    compacted: Drain,
    /// What flushes take out of memtables.
    flushed: Drain,
    /// Why writers wait now.
    cause: Mutex<Option<Blamed>>,
    /// Whether any debt is one of compactions, if not the one that sets the rate.
    behind_with_compactions: AtomicBool,
    statistics: Option<Arc<Statistics>>,
    stop: Mutex<()>,
    resumed: Condvar,
    /// For what how many waited, and how long.
    waits: Mutex<BTreeMap<Blamed, Waits>>,
    /// What writers waited, in total.
    delayed_micros: AtomicU64,
    stops: AtomicU64,
    delays: AtomicU64,
}

const STOPPED: u64 = u64::MAX;

/// Whose debt writers wait for.
type Blamed = (ColumnFamilyId, WriteStallCause);

/// Bytes per second, as lately measured; 0 before that.
#[derive(Default)]
struct Drain(Mutex<f64>);

impl Drain {
    fn note(&self, bytes: u64, nanos: u64) {
        let mut rate = self.0.lock();
        *rate = smoothed(*rate, bytes, nanos);
    }
    fn rate(&self) -> f64 {
        *self.0.lock()
    }
}

impl WriteController {
    pub(crate) fn new(delayed_write_rate: u64, statistics: Option<Arc<Statistics>>) -> Self {
        let controller = Self {
            rate: AtomicU64::new(0),
            locked: AtomicBool::new(false),
            paid_until: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            compacted: Drain::default(),
            flushed: Drain::default(),
            cause: Mutex::default(),
            behind_with_compactions: AtomicBool::new(false),
            statistics,
            waits: Mutex::default(),
            stop: Mutex::new(()),
            resumed: Condvar::new(),
            delayed_micros: AtomicU64::new(0),
            stops: AtomicU64::new(0),
            delays: AtomicU64::new(0),
        };
        controller.set_floor(delayed_write_rate);
        controller
    }

    /// Sets the rate below which slowing never goes; 0: 16 MiB per second.
    pub(crate) fn set_floor(&self, delayed_write_rate: u64) {
        let floor = if delayed_write_rate == 0 { 16 << 20 } else { delayed_write_rate };
        self.floor.store(floor, Ordering::Relaxed);
    }

    /// Learns that a compaction took `bytes` out of level 0 in `nanos`.
    pub(crate) fn note_compacted(&self, bytes: u64, nanos: u64) {
        self.compacted.note(bytes, nanos);
    }
    /// Learns that a flush took `bytes` out of memtables in `nanos`.
    pub(crate) fn note_flushed(&self, bytes: u64, nanos: u64) {
        self.flushed.note(bytes, nanos);
    }

    /// How many times as fast as flushes writers are that fill memtables at `rate`; 0 while neither is known.
    pub(crate) fn to_flushes(&self, rate: f64) -> f64 {
        let flushed = self.flushed.rate();
        if flushed > 0.0 { rate / flushed } else { 0.0 }
    }

    /// Says whether the WAL is locked, from the next [`set_debts`](Self::set_debts) on.
    pub(crate) fn set_locked(&self, locked: bool) {
        self.locked.store(locked, Ordering::Relaxed);
    }
    /// Whether it is.
    pub(crate) fn is_locked(&self) -> bool {
        self.locked.load(Ordering::Relaxed)
    }

    /// Sets the rate: the lowest that any debt of any column family asks for.
    pub(crate) fn set_debts(&self, debts: impl IntoIterator<Item = Debt>) {
        let mut behind = false;
        let debts = debts.into_iter().inspect(|debt| behind |= debt.cause != WriteStallCause::MemtableLimit);
        let rates = debts.filter_map(|debt| Some((self.rate_for(debt)?, (debt.of, debt.cause))));
        let slowest = rates.min_by_key(|(rate, _)| if *rate == STOPPED { 0 } else { *rate });
        self.behind_with_compactions.store(behind, Ordering::Relaxed);
        *self.cause.lock() = slowest.map(|(_, blamed)| blamed);
        let owed = slowest.map_or(0, |(rate, _)| rate);
        let rate = if self.is_locked() { STOPPED } else { owed };
        let before = self.rate.swap(rate, Ordering::SeqCst);
        if rate == 0 {
            // What is not paid by now was for a debt that is gone.
            self.paid_until.store(0, Ordering::Relaxed);
        }
        if before == STOPPED && rate != STOPPED {
            let _stop = self.stop.lock();
            self.resumed.notify_all();
        } else if owed == STOPPED && before != STOPPED {
            self.stops.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn rate_for(&self, debt: Debt) -> Option<u64> {
        if debt.amount >= 1.0 {
            return Some(STOPPED);
        }
        let (drain, range) = match debt.cause {
            // Before the first flush nobody knows how fast that is.
            WriteStallCause::MemtableLimit => {
                (Some(self.flushed.rate()).filter(|rate| *rate > 0.0)?, MEMTABLE_RANGE)
            }
            _ => (self.compacted.rate(), 4.0),
        };
        let drain = drain.max(self.floor.load(Ordering::Relaxed) as f64);
        let rate = drain * range.powf(1.0 - 2.0 * debt.amount);
        Some((debt.lasting.map_or(rate, |lasting| rate.min(lasting)) as u64).clamp(64 << 10, STOPPED - 1))
    }

    /// Whether writes are stopped, and at what rate they are admitted otherwise (0: no limit).
    pub(crate) fn state(&self) -> (bool, u64) {
        match self.rate.load(Ordering::Relaxed) {
            STOPPED => (true, 0),
            rate => (false, rate),
        }
    }
    /// Whether writes are stopped, or slowed down for what compactions have to do, if more so for a flush. A memtable that is being
    /// flushed slows writes down long before RocksDB does, which is no reason for that flush to be more urgent than others.
    pub(crate) fn holds_up_writers(&self) -> bool {
        self.state().0 || self.behind_with_compactions.load(Ordering::Relaxed)
    }
    /// Why writers wait, if they do.
    pub(crate) fn cause(&self) -> Option<WriteStallCause> {
        self.cause.lock().map(|(_, cause)| cause)
    }
    /// How many writes waited for `cause` in a column family, and how long.
    pub(crate) fn waits(&self, of: ColumnFamilyId, cause: WriteStallCause) -> Waits {
        self.waits.lock().get(&(of, cause)).copied().unwrap_or_default()
    }
    fn note_wait(&self, blamed: Option<Blamed>, nanos: u64) {
        if let Some(blamed) = blamed.filter(|_| nanos > 0) {
            let mut waits = self.waits.lock();
            let waits = waits.entry(blamed).or_default();
            (waits.count, waits.nanos) = (waits.count + 1, waits.nanos + nanos);
        }
    }
    /// Microseconds that writers waited; how often writes were stopped; how many were delayed.
    pub(crate) fn totals(&self) -> (u64, u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.delayed_micros), load(&self.stops), load(&self.delays))
    }

    /// Begins anew to count these, and what writers waited for.
    pub(crate) fn reset_totals(&self) {
        let counters = [&self.delayed_micros, &self.stops, &self.delays];
        counters.into_iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
        self.waits.lock().clear();
    }

    /// Wakes whoever waits, for good: the database is closing or has failed.
    pub(crate) fn release(&self) {
        self.set_debts([]);
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
        let _timer = PerfTimer::wait(PerfMetric::WriteDelayTime);
        let start = clock.monotonic_nanos();
        let (mut paid, mut slack) = (None, SLACK_NANOS);
        let blamed = *self.cause.lock();
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
            if until <= now + slack {
                break;
            }
            if no_slowdown {
                return Err(Error::incomplete("write stall: writes are delayed"));
            }
            abort()?;
            clock.sleep(Duration::from_nanos((until - now).min(MAX_SLEEP_NANOS)));
            slack = 0; // Who sleeps pays for all who did not.
        }
        let waited = clock.monotonic_nanos() - start;
        self.note_wait(blamed, waited);
        let waited = waited / 1000;
        if waited > 0 {
            self.delayed_micros.fetch_add(waited, Ordering::Relaxed);
            self.delays.fetch_add(1, Ordering::Relaxed);
            if let Some(statistics) = &self.statistics {
                statistics.record(Ticker::StallMicros, waited);
                statistics.measure(Histogram::WriteStall, waited);
            }
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
        min_write_buffer_number_to_merge: 1,
        level0_slowdown: 20,
        level0_stop: 36,
        soft_pending_bytes: 64 << 30,
        hard_pending_bytes: 256 << 30,
        compactions_disabled: false,
    };

    const CALM: StallState = StallState {
        unflushed_memtables: 0,
        active_fill: 0.0,
        flush_done: 0.0,
        beside_flush: LEAST_BESIDE_FLUSH,
        level0_files: 0,
        level0_file_bytes: 0,
        draining_nanos: None,
        pending_bytes: 0,
    };

    fn debt(level0_files: usize) -> Option<Debt> {
        LIMITS.debts(ColumnFamilyId::DEFAULT, StallState { level0_files, ..CALM }).next()
    }

    #[test]
    fn the_rate_falls_smoothly_with_the_debt() {
        let controller = WriteController::new(8 << 20, None);
        controller.note_compacted(100 << 20, 1_000_000_000);
        let mut last = u64::MAX;
        assert!(debt(19).is_none());
        for files in 20..36 {
            controller.set_debts(debt(files));
            let (stopped, rate) = controller.state();
            assert!(!stopped && rate < last, "{files} files: {rate}");
            assert!(last == u64::MAX || rate * 5 / 4 > last * 3 / 4, "no cliff at {files} files");
            last = rate;
        }
        controller.set_debts(debt(36));
        assert!(controller.state().0);
    }

    #[test]
    fn the_last_memtable_fills_as_fast_as_the_flush_lets_it() {
        let limits = StallLimits { max_write_buffer_number: 3, ..LIMITS };
        let debt = |unflushed_memtables, active_fill, flush_done| {
            let state = StallState { unflushed_memtables, active_fill, flush_done, ..CALM };
            limits.debts(ColumnFamilyId::DEFAULT, state).next()
        };
        let controller = WriteController::new(1 << 20, None);
        controller.note_flushed(300 << 20, 1_000_000_000);
        controller.note_compacted(100 << 20, 1_000_000_000);
        assert!(debt(1, 0.9, 0.0).is_none(), "one more is free");
        let rate = |fill, done| {
            controller.set_debts(debt(2, fill, done));
            let (stopped, rate) = controller.state();
            assert!(!stopped);
            rate >> 20
        };
        assert_eq!(rate(0.0, 0.0), 62, "a fifth of the flush's");
        assert_eq!(rate(0.21, 1.0), 62, "as far as the flush");
        assert!((17..23).contains(&rate(0.1, 0.0)), "ahead");
        assert!(rate(0.1, 0.8) > 100, "behind");
        assert!(rate(0.0, 0.9) > 400, "far behind");
        assert_eq!(rate(0.35, 0.0), 1, "far ahead");
        assert_eq!(rate(1.0, 0.0), 0, "nearly full");
        assert!(controller.state().1 >= 64 << 10, "but no standstill");
        controller.set_debts(debt(3, 0.0, 0.0));
        assert!(controller.state().0);
        // Writers that are nearly as fast as flushes fill more meanwhile, those that are faster are not slowed down before the end.
        let rate_beside = |part, fill, done| {
            let state = StallState {
                unflushed_memtables: 2,
                active_fill: fill,
                flush_done: done,
                beside_flush: part,
                ..CALM
            };
            controller.set_debts(limits.debts(ColumnFamilyId::DEFAULT, state).next());
            controller.state().1 >> 20
        };
        let half = part_beside_flush(0.7, 1e6);
        assert!((0.45..0.55).contains(&half) && part_beside_flush(0.5, 1e6) == LEAST_BESIDE_FLUSH);
        assert!(part_beside_flush(9.0, 100.0) > LEAST_BESIDE_FLUSH && part_beside_flush(1.0, 100.0) < 0.25);
        assert_eq!(rate_beside(half, 0.0, 0.0), (300.0 * half) as u64, "half of the flush's");
        assert_eq!(rate_beside(half, half, 1.0), (300.0 * half) as u64, "as far as it");
        assert!(rate_beside(half, 1.0, 1.0) < 2, "nearly full");
        assert_eq!(rate_beside(part_beside_flush(9.0, 4096.0), 0.0, 0.0), 450);
        assert!(rate_beside(part_beside_flush(9.0, 4096.0), 1.0, 0.7) > 300, "to the end of the memtable");
        assert!(rate_beside(part_beside_flush(9.0, 4096.0), 1.0, 0.0) < 2, "unless the flush has not begun");
        // The slowest counts, not the largest debt.
        let level0 = Debt {
            of: ColumnFamilyId(3),
            cause: WriteStallCause::L0FileCountLimit,
            amount: 0.5,
            lasting: None,
        };
        controller.set_debts(debt(2, 0.0, 0.5).into_iter().chain([level0]));
        assert_eq!(controller.state(), (false, 100 << 20));
        assert_eq!(controller.cause(), Some(WriteStallCause::L0FileCountLimit));
        // Nobody waits for a flush that does not run.
        let limits = StallLimits { max_write_buffer_number: 1, ..LIMITS };
        let state = StallState { active_fill: 1.0, ..CALM };
        assert!(limits.debts(ColumnFamilyId::DEFAULT, state).next().is_none());
    }

    #[test]
    fn writers_are_held_up_for_compactions_if_a_flush_slows_them_down_more() {
        let controller = WriteController::new(16 << 20, None);
        let of = ColumnFamilyId::DEFAULT;
        let memtable = Debt { of, cause: WriteStallCause::MemtableLimit, amount: 0.6, lasting: None };
        let level0 = Debt { of, cause: WriteStallCause::L0FileCountLimit, amount: 0.0, lasting: None };
        for (flushed, cause) in
            [(10 << 20, WriteStallCause::MemtableLimit), (1 << 30, WriteStallCause::L0FileCountLimit)]
        {
            (0..40).for_each(|_| controller.note_flushed(flushed, 1_000_000_000));
            controller.set_debts([memtable, level0]);
            assert_eq!(controller.cause(), Some(cause));
            assert!(controller.holds_up_writers());
        }
        controller.set_debts([memtable]);
        assert!(controller.state().1 > 0 && !controller.holds_up_writers());
        controller.set_debts([Debt { amount: 1.0, ..memtable }]);
        assert!(controller.holds_up_writers());
        controller.set_debts([]);
        assert!(!controller.holds_up_writers());
    }

    #[test]
    fn level_0_is_not_full_before_the_compaction_ends_that_makes_room() {
        let state = |level0_files, unflushed_memtables, active_fill, seconds: Option<u64>| StallState {
            unflushed_memtables,
            active_fill,
            level0_files,
            level0_file_bytes: 50 << 20,
            draining_nanos: seconds.map(|seconds| seconds * 1_000_000_000),
            ..CALM
        };
        let controller = WriteController::new(1 << 20, None);
        controller.note_compacted(100 << 20, 1_000_000_000);
        let mib = |state| {
            controller.set_debts(LIMITS.debts(ColumnFamilyId::DEFAULT, state));
            let (stopped, rate) = controller.state();
            assert!(!stopped);
            rate >> 20
        };
        assert_eq!(mib(state(28, 0, 0.0, None)), 100, "by the debt alone");
        assert_eq!(mib(state(28, 0, 0.0, Some(1))), 100, "not more than that");
        assert_eq!(mib(state(28, 0, 0.0, Some(20))), 18, "8 files in 20 seconds");
        assert_eq!(mib(state(28, 0, 0.5, Some(20))), 16, "half of one is in memory");
        assert_eq!(mib(state(34, 1, 0.5, Some(10))), 2, "and half a one is left");
        assert_eq!(mib(state(35, 1, 0.5, Some(10))), 0, "the last stop is made of crumbs");
        assert!(controller.state().1 > 0);
        assert_eq!(mib(state(10, 0, 0.0, Some(1000))), 0, "no debt");
        assert_eq!(controller.state().1, 0);
    }

    #[test]
    fn level_0_is_not_full_either_if_that_compaction_takes_longer_than_it_looked() {
        const FILE: f64 = 59e6;
        let controller = WriteController::new(0, None);
        controller.note_compacted(200_000_000, 1_000_000_000);
        // It has read everything after 19 seconds, and ends after 19.5. Writers take all that they may have.
        let (mut files, mut fill, mut seconds) = (20, 0.0, 0.0);
        while seconds < 19.5 {
            let state = StallState {
                active_fill: fill,
                level0_files: files,
                level0_file_bytes: FILE as u64,
                draining_nanos: nanos_left((seconds * 1e9) as u64, f64::min(seconds / 19.0, 1.0)),
                ..CALM
            };
            controller.set_debts(LIMITS.debts(ColumnFamilyId::DEFAULT, state));
            let (stopped, rate) = controller.state();
            assert!(!stopped, "after {seconds} seconds");
            // The rate is looked at anew with each 16th of a memtable.
            let rate = if rate == 0 { 200e6 } else { rate as f64 };
            (fill, seconds) = (fill + 0.0625, seconds + 0.0625 * FILE / rate);
            if fill >= 1.0 {
                (files, fill) = (files + 1, 0.0);
            }
        }
        assert!(files >= 34, "much of the room was left: {files} files");
    }

    #[test]
    fn a_delayed_write_pays_and_one_that_will_not_wait_is_refused() {
        let clock = ManualClock::new(0);
        let controller = WriteController::new(1 << 20, None);
        controller.set_debts(debt(28));
        let rate = controller.state().1;
        controller.admit(rate, false, &clock, || Ok(())).unwrap();
        let waited = clock.monotonic_nanos();
        assert!((980_000_000..1_020_000_000).contains(&waited), "{waited}");
        let refused = controller.admit(rate, true, &clock, || Ok(())).unwrap_err();
        assert!(refused.is_incomplete());
        let waits = controller.waits(ColumnFamilyId::DEFAULT, WriteStallCause::L0FileCountLimit);
        assert_eq!((waits.count, waits.nanos), (1, waited), "one that is refused does not wait");
        assert_eq!(controller.waits(ColumnFamilyId::DEFAULT, WriteStallCause::MemtableLimit).count, 0);
    }

    #[test]
    fn a_delayed_write_goes_on_when_the_debt_is_gone() {
        let clock = ManualClock::new(0);
        let controller = WriteController::new(1 << 20, None);
        controller.set_debts(debt(28));
        let gone = || {
            controller.set_debts([]);
            Ok(())
        };
        controller.admit(controller.state().1, false, &clock, gone).unwrap();
        let waited = clock.monotonic_nanos();
        assert!((1..=1_000_000).contains(&waited), "{waited}");
        // Nor does the next debt begin with the rest of that one.
        controller.set_debts(debt(28));
        controller.admit(1, true, &clock, || Ok(())).unwrap();
        assert_eq!(clock.monotonic_nanos(), waited);
    }

    #[test]
    fn few_of_many_small_writes_wait_for_all_of_them() {
        let clock = ManualClock::new(0);
        let controller = WriteController::new(1 << 20, None);
        controller.note_compacted(100 << 20, 1_000_000_000);
        controller.set_debts(debt(28));
        let bytes = controller.state().1 / 100_000;
        (0..4000).for_each(|_| controller.admit(bytes, false, &clock, || Ok(())).unwrap());
        let waits = controller.waits(ColumnFamilyId::DEFAULT, WriteStallCause::L0FileCountLimit);
        assert!((35_000_000..=40_000_000).contains(&waits.nanos), "10 us for each: {waits:?}");
        assert!(waits.count < 10, "{waits:?}");
    }

    #[test]
    fn compaction_presses_before_writers_are_slowed_but_not_for_memtables() {
        let pressing = |unflushed_memtables, level0_files, pending_bytes| {
            LIMITS.is_pressing(StallState { unflushed_memtables, level0_files, pending_bytes, ..CALM })
        };
        assert!(!pressing(1, 7, 15 << 30));
        assert!(pressing(1, 8, 0), "a quarter of the way from the trigger to slowing");
        assert!(pressing(1, 0, 16 << 30), "a quarter of the soft limit");
        assert!(!pressing(2, 0, 0), "writes are stopped, but only a flush can help");
    }

    #[test]
    fn a_flush_waits_for_room_only_where_somebody_makes_it() {
        let state =
            |unflushed_memtables, level0_files| StallState { unflushed_memtables, level0_files, ..CALM };
        assert!(!LIMITS.flush_would_stall(state(0, 18), true), "the twentieth file would");
        assert!(LIMITS.flush_would_stall(state(0, 19), true));
        assert!(!LIMITS.flush_would_stall(state(1, 0), false));
        assert!(LIMITS.flush_would_stall(state(1, 0), true), "the second memtable stops writes");
        let four = StallLimits { max_write_buffer_number: 4, ..LIMITS };
        assert!(!four.flush_would_stall(state(1, 0), true));
        assert!(four.flush_would_stall(state(2, 0), true), "the third of four slows writes down");
        let four = StallLimits { min_write_buffer_number_to_merge: 3, ..four };
        assert!(!four.flush_would_stall(state(2, 0), true), "but not before a flush is due");
        let low = StallLimits { level0_slowdown: 1, level0_stop: 1, ..LIMITS };
        assert!(!low.flush_would_stall(state(0, 3), true), "no compaction is due");
        assert!(low.flush_would_stall(state(0, 4), true));
        let bytes = StallState { pending_bytes: 64 << 30, ..state(0, 4) };
        assert!(LIMITS.flush_would_stall(bytes, true));
        let manual = StallLimits { compactions_disabled: true, ..LIMITS };
        assert!(!manual.flush_would_stall(state(0, 19), true));
    }

    #[test]
    fn a_stop_ends_when_the_database_fails() {
        let clock = ManualClock::new(0);
        let controller = WriteController::new(1 << 20, None);
        controller.set_debts(debt(40));
        let failed = controller.admit(1, false, &clock, || Err(Error::shutdown()));
        assert!(failed.is_err());
    }
}
