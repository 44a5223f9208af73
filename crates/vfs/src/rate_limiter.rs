//! Paces writes, and reads if that is wished: a bucket of bytes that is refilled from time to time, and queues before it.
//!
//! ```text
//! request -> [user]  [high]  [mid]  [low]  -> available bytes <- refilled every period, unused ones are lost
//! ```
//! The queues are served in this order, but now and then a lower one goes first, so that nothing waits for
//! ever. Of those that wait one sleeps until the next refill and then serves all; the others wait for it.

use crate::{Clock, SystemClock};
use ironstone_base::Statistics;
use ironstone_base::statistics::{Histogram, Ticker};
use ironstone_base::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// How urgent I/O is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[repr(u8)]
pub enum IoPriority {
    /// Compaction.
    Low = 0,
    /// Between the two.
    Mid = 1,
    /// Flush: writers may be waiting.
    High = 2,
    /// Somebody waits for it now.
    User = 3,
}

const PRIORITIES: usize = 4;

/// Whether bytes are read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum IoKind {
    /// They come from a file.
    Read,
    /// They go to a file.
    Write,
}

/// What a [`RateLimiter`] paces. Names are RocksDB's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum RateLimiterMode {
    /// `kReadsOnly`: reads, and no writes.
    ReadsOnly,
    /// `kWritesOnly`: writes, and no reads.
    #[default]
    WritesOnly,
    /// `kAllIo`: both, at one rate together.
    AllIo,
}

impl RateLimiterMode {
    /// Whether I/O of that kind is paced.
    pub const fn covers(self, kind: IoKind) -> bool {
        match self {
            Self::ReadsOnly => matches!(kind, IoKind::Read),
            Self::WritesOnly => matches!(kind, IoKind::Write),
            Self::AllIo => true,
        }
    }
}

/// Paces the writing of tables, and their reading if its [`mode`](Self::mode) says so.
pub trait RateLimiter: Send + Sync {
    /// Returns when `bytes` more may be read or written. Called once per chunk handed to the file or asked of it.
    fn request(&self, bytes: u64, priority: IoPriority);
    /// The same, and counts in `statistics` what is asked for and how long that waits, for which `kind` of I/O.
    fn request_counted(
        &self,
        bytes: u64,
        priority: IoPriority,
        _statistics: Option<&Statistics>,
        _kind: IoKind,
    ) {
        self.request(bytes, priority);
    }
    /// What is paced. Default: writes only, as RocksDB's does.
    fn mode(&self) -> RateLimiterMode {
        RateLimiterMode::WritesOnly
    }
    /// Asks, if I/O of that kind is paced.
    fn pace(&self, bytes: u64, priority: IoPriority, statistics: Option<&Statistics>, kind: IoKind) {
        if self.mode().covers(kind) {
            self.request_counted(bytes, priority, statistics, kind);
        }
    }
    /// What it was set to, in bytes per second, where that is a number.
    fn bytes_per_second(&self) -> Option<u64> {
        None
    }
}

/// How a [`GenericRateLimiter`] works. Defaults are RocksDB's.
#[derive(Clone, Debug)]
pub struct RateLimiterOptions {
    /// How often bytes become available. Shorter is smoother and costs more.
    pub refill_period: Duration,
    /// In one of so many refills a lower priority goes before a higher one; at most 100.
    pub fairness: u32,
    /// Use `bytes_per_second` as a limit, and find the lowest rate between a twentieth of it and it that the
    /// work needs.
    pub auto_tuned: bool,
    /// Larger requests are served in pieces of so many bytes; 0: what one refill brings.
    pub single_burst_bytes: u64,
    /// What is paced.
    pub mode: RateLimiterMode,
}

impl Default for RateLimiterOptions {
    fn default() -> Self {
        Self {
            refill_period: Duration::from_millis(100),
            fairness: 10,
            auto_tuned: false,
            single_burst_bytes: 0,
            mode: RateLimiterMode::WritesOnly,
        }
    }
}

/// A token bucket. Share it between databases with `Arc`: they share its rate.
pub struct GenericRateLimiter {
    options: RateLimiterOptions,
    clock: Arc<dyn Clock>,
    max_bytes_per_second: u64,
    state: Mutex<State>,
    served: Condvar,
}

struct State {
    bytes_per_second: u64,
    available: u64,
    next_refill_nanos: u64,
    queues: [VecDeque<Waiting>; PRIORITIES],
    next_ticket: u64,
    /// Whether somebody sleeps until the next refill.
    sleeping: bool,
    /// How often the bucket was found empty since the rate was last tuned.
    drains: u64,
    tuned_nanos: u64,
    random: u64,
    total_bytes: [u64; PRIORITIES],
    total_requests: [u64; PRIORITIES],
}

struct Waiting {
    ticket: u64,
    missing: u64,
}

impl GenericRateLimiter {
    /// Lets `bytes_per_second` through, at least 1, as RocksDB's limiter does by default.
    pub fn new(bytes_per_second: u64) -> Self {
        Self::with_options(bytes_per_second, RateLimiterOptions::default(), Arc::new(SystemClock::new()))
    }

    /// Lets `bytes_per_second` through, at least 1, or fewer if it tunes itself.
    pub fn with_options(
        bytes_per_second: u64,
        mut options: RateLimiterOptions,
        clock: Arc<dyn Clock>,
    ) -> Self {
        options.fairness = options.fairness.clamp(1, 100);
        options.refill_period = options.refill_period.max(Duration::from_millis(1));
        let max = bytes_per_second.max(1);
        let now = clock.monotonic_nanos();
        Self {
            max_bytes_per_second: max,
            state: Mutex::new(State {
                bytes_per_second: if options.auto_tuned { (max / 2).max(1) } else { max },
                available: 0,
                next_refill_nanos: now,
                queues: Default::default(),
                next_ticket: 0,
                sleeping: false,
                drains: 0,
                tuned_nanos: now,
                random: clock.entropy() | 1,
                total_bytes: [0; PRIORITIES],
                total_requests: [0; PRIORITIES],
            }),
            served: Condvar::new(),
            options,
            clock,
        }
    }

    /// Changes the rate. One that tunes itself goes on from there, within its old bounds.
    pub fn set_bytes_per_second(&self, bytes_per_second: u64) {
        self.state.lock().bytes_per_second = bytes_per_second.max(1);
    }
    /// How many bytes went through at that priority.
    pub fn total_bytes_through(&self, priority: IoPriority) -> u64 {
        self.state.lock().total_bytes[priority as usize]
    }
    /// How many requests were made at that priority.
    pub fn total_requests(&self, priority: IoPriority) -> u64 {
        self.state.lock().total_requests[priority as usize]
    }

    fn per_refill(&self, state: &State) -> u64 {
        let bytes = u128::from(state.bytes_per_second) * self.options.refill_period.as_micros() / 1_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX).max(1)
    }

    fn burst(&self, state: &State) -> u64 {
        match self.options.single_burst_bytes {
            0 => self.per_refill(state),
            set => set,
        }
    }

    /// Waits until `bytes`, no more than a burst, are served. Answers whether it had to wait, and how often it found the
    /// bucket empty with nobody waiting for the next refill.
    fn take(&self, state: &mut MutexGuard<'_, State>, bytes: u64, priority: IoPriority) -> (bool, u64) {
        let taken = bytes.min(state.available);
        state.available -= taken;
        state.total_bytes[priority as usize] += bytes;
        if taken == bytes {
            return (false, 0);
        }
        let mut drains = 0;
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.queues[priority as usize].push_back(Waiting { ticket, missing: bytes - taken });
        let waits =
            |state: &State| state.queues[priority as usize].iter().any(|waiting| waiting.ticket == ticket);
        while waits(state) {
            let now = self.clock.monotonic_nanos();
            if now >= state.next_refill_nanos {
                self.refill(state, now);
                self.served.notify_all();
            } else if state.sleeping {
                self.served.wait(state);
            } else {
                state.sleeping = true;
                state.drains += 1;
                drains += 1;
                let left = Duration::from_nanos(state.next_refill_nanos - now);
                MutexGuard::unlocked(state, || self.clock.sleep(left));
                state.sleeping = false;
            }
        }
        self.served.notify_all(); // One of those that still wait sleeps next.
        (true, drains)
    }

    fn refill(&self, state: &mut State, now: u64) {
        state.next_refill_nanos = now.saturating_add(self.options.refill_period.as_nanos() as u64);
        state.available = self.per_refill(state);
        for priority in self.order(state) {
            let State { queues, available, .. } = state;
            let queue = &mut queues[priority];
            while let Some(first) = queue.front_mut() {
                let given = first.missing.min(*available);
                first.missing -= given;
                *available -= given;
                if first.missing > 0 {
                    return;
                }
                queue.pop_front();
            }
        }
    }

    /// In which order the queues are served this time.
    fn order(&self, state: &mut State) -> [usize; PRIORITIES] {
        let [low, mid, high, user] = [0, 1, 2, 3];
        let (high_last, low_before_mid) = (self.one_in_fairness(state), self.one_in_fairness(state));
        let lower = if low_before_mid { [low, mid] } else { [mid, low] };
        match high_last {
            true => [user, lower[0], lower[1], high],
            false => [user, high, lower[0], lower[1]],
        }
    }

    fn one_in_fairness(&self, state: &mut State) -> bool {
        // xorshift64: fairness needs no better randomness.
        state.random ^= state.random << 13;
        state.random ^= state.random >> 7;
        state.random ^= state.random << 17;
        state.random.is_multiple_of(u64::from(self.options.fairness))
    }

    /// Raises the rate where the bucket was mostly found empty, lowers it where it was mostly not.
    fn tune(&self, state: &mut State) {
        const REFILLS: u64 = 100;
        const RANGE: u64 = 20;
        let now = self.clock.monotonic_nanos();
        let period = self.options.refill_period.as_nanos() as u64;
        let elapsed = now.saturating_sub(state.tuned_nanos);
        if elapsed < period.saturating_mul(REFILLS) {
            return;
        }
        state.tuned_nanos = now;
        let percent = state.drains * 100 / elapsed.div_ceil(period).max(1);
        state.drains = 0;
        let lowest = (self.max_bytes_per_second / RANGE).max(1);
        let rate = u128::from(state.bytes_per_second);
        let times = |numerator: u128, denominator: u128| {
            u64::try_from(rate * numerator / denominator).unwrap_or(u64::MAX)
        };
        state.bytes_per_second = match percent {
            0 => lowest,
            1..50 => times(100, 105).max(lowest),
            91.. => times(105, 100).min(self.max_bytes_per_second),
            _ => state.bytes_per_second,
        };
    }
}

/// What is counted for a kind of I/O.
struct Counts {
    requests: Ticker,
    bytes: Ticker,
    delayed: Ticker,
    total_wait: Ticker,
    wait: Histogram,
}

static READS: Counts = Counts {
    requests: Ticker::RateLimiterRequestsRead,
    bytes: Ticker::RateLimiterBytesRead,
    delayed: Ticker::RateLimiterDelayedRequestsRead,
    total_wait: Ticker::RateLimiterTotalWaitMicrosRead,
    wait: Histogram::RateLimiterWaitMicrosRead,
};
static WRITES: Counts = Counts {
    requests: Ticker::RateLimiterRequestsWrite,
    bytes: Ticker::RateLimiterBytesWrite,
    delayed: Ticker::RateLimiterDelayedRequestsWrite,
    total_wait: Ticker::RateLimiterTotalWaitMicrosWrite,
    wait: Histogram::RateLimiterWaitMicrosWrite,
};

impl RateLimiter for GenericRateLimiter {
    fn request(&self, bytes: u64, priority: IoPriority) {
        self.request_counted(bytes, priority, None, IoKind::Write);
    }
    fn request_counted(
        &self,
        bytes: u64,
        priority: IoPriority,
        statistics: Option<&Statistics>,
        kind: IoKind,
    ) {
        let start = self.clock.monotonic_nanos();
        let mut state = self.state.lock();
        if self.options.auto_tuned {
            self.tune(&mut state);
        }
        state.total_requests[priority as usize] += 1;
        let (mut left, mut has_waited, mut drains) = (bytes, false, 0);
        while left > 0 {
            let piece = left.min(self.burst(&state));
            let (waited, drained) = self.take(&mut state, piece, priority);
            (has_waited, drains) = (has_waited || waited, drains + drained);
            left -= piece;
        }
        drop(state);
        let Some(statistics) = statistics else { return };
        let counts = match kind {
            IoKind::Read => &READS,
            IoKind::Write => &WRITES,
        };
        statistics.record(counts.requests, 1);
        statistics.record(counts.bytes, bytes);
        if drains > 0 {
            statistics.record(Ticker::NumberRateLimiterDrains, drains);
        }
        if has_waited {
            let micros = (self.clock.monotonic_nanos() - start) / 1000;
            statistics.record(counts.delayed, 1);
            statistics.record(counts.total_wait, micros);
            statistics.measure_time(counts.wait, micros);
        }
    }
    fn mode(&self) -> RateLimiterMode {
        self.options.mode
    }
    fn bytes_per_second(&self) -> Option<u64> {
        Some(self.state.lock().bytes_per_second)
    }
}

impl fmt::Debug for GenericRateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.state.lock().bytes_per_second;
        write!(f, "GenericRateLimiter({rate} bytes per second)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManualClock;
    use ironstone_base::sync::thread;

    fn limiter(rate: u64, options: RateLimiterOptions) -> (Arc<ManualClock>, GenericRateLimiter) {
        let clock = Arc::new(ManualClock::new(0));
        (clock.clone(), GenericRateLimiter::with_options(rate, options, clock))
    }

    #[test]
    fn so_many_bytes_pass_in_a_second() {
        let (clock, limiter) = limiter(1000, RateLimiterOptions::default());
        for _ in 0..100 {
            limiter.request(50, IoPriority::Low);
        }
        let millis = clock.monotonic_nanos() / 1_000_000;
        assert!((4800..=5000).contains(&millis), "{millis}");
        assert_eq!(limiter.total_bytes_through(IoPriority::Low), 5000);
        assert_eq!(limiter.total_requests(IoPriority::Low), 100);
        assert_eq!(limiter.total_bytes_through(IoPriority::High), 0);

        let statistics = Statistics::new();
        let before = clock.monotonic_nanos();
        for _ in 0..10 {
            limiter.request_counted(50, IoPriority::Low, Some(&statistics), IoKind::Write);
        }
        let micros = (clock.monotonic_nanos() - before) / 1000;
        let count = |ticker| statistics.ticker(ticker);
        assert_eq!(
            (count(Ticker::RateLimiterRequestsWrite), count(Ticker::RateLimiterBytesWrite)),
            (10, 500)
        );
        assert_eq!(count(Ticker::RateLimiterTotalWaitMicrosWrite), micros);
        // Two requests to each refill: the first of the two waits for it.
        assert_eq!(count(Ticker::RateLimiterDelayedRequestsWrite), 5);
        assert_eq!(count(Ticker::NumberRateLimiterDrains), 5);
        assert_eq!(statistics.histogram(Histogram::RateLimiterWaitMicrosWrite).sum, micros);
    }

    #[test]
    fn a_large_request_is_served_in_pieces_and_a_pause_saves_nothing_up() {
        let (clock, limiter) = limiter(1000, RateLimiterOptions::default());
        limiter.request(950, IoPriority::High);
        let first = clock.monotonic_nanos() / 1_000_000;
        assert!((900..=1000).contains(&first), "{first}");
        clock.advance(Duration::from_secs(100));
        let before = clock.monotonic_nanos();
        limiter.request(950, IoPriority::High);
        let millis = (clock.monotonic_nanos() - before) / 1_000_000;
        assert!((800..=1000).contains(&millis), "{millis}");
        limiter.request(0, IoPriority::High);
        limiter.set_bytes_per_second(1_000_000);
        assert_eq!(limiter.bytes_per_second(), Some(1_000_000));
        let before = clock.monotonic_nanos();
        limiter.request(100_000, IoPriority::High);
        assert!(clock.monotonic_nanos() - before <= 200_000_000);
    }

    #[test]
    fn queues_are_served_by_priority_and_now_and_then_by_fairness() {
        let options = RateLimiterOptions { fairness: 4, ..RateLimiterOptions::default() };
        let (_, limiter) = limiter(1000, options);
        let mut state = limiter.state.lock();
        let mut firsts = [0; PRIORITIES];
        for _ in 0..1000 {
            let order = limiter.order(&mut state);
            assert_eq!(order[0], IoPriority::User as usize);
            firsts[order[1]] += 1;
            let mut sorted = order;
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
        }
        assert!(firsts[2] > 600 && firsts[1] > 100 && firsts[0] > 20, "{firsts:?}");
        // What waits longest goes first, and what is short of bytes keeps what it was given.
        state.queues[2].extend([Waiting { ticket: 7, missing: 60 }, Waiting { ticket: 8, missing: 60 }]);
        state.queues[3].push_back(Waiting { ticket: 9, missing: 30 });
        limiter.refill(&mut state, 0);
        assert!(state.queues[3].is_empty());
        let missing: Vec<_> =
            state.queues[2].iter().map(|waiting| (waiting.ticket, waiting.missing)).collect();
        assert!(missing == [(8, 50)] || missing == [(7, 0), (8, 50)], "{missing:?}");
        assert_eq!(state.available, 0);
    }

    #[test]
    fn one_that_tunes_itself_follows_the_load() {
        let options = RateLimiterOptions { auto_tuned: true, ..RateLimiterOptions::default() };
        let (clock, limiter) = limiter(100_000, options);
        assert_eq!(limiter.bytes_per_second(), Some(50_000));
        for _ in 0..2000 {
            limiter.request(20_000, IoPriority::Low); // More than it lets through.
        }
        assert_eq!(limiter.bytes_per_second(), Some(100_000));
        for _ in 0..4000 {
            clock.advance(Duration::from_secs(20));
            limiter.request(1, IoPriority::Low);
        }
        assert_eq!(limiter.bytes_per_second(), Some(5_000));
    }

    #[test]
    fn many_threads_share_the_rate_and_all_are_served() {
        let options =
            RateLimiterOptions { refill_period: Duration::from_millis(1), ..RateLimiterOptions::default() };
        let limiter = GenericRateLimiter::with_options(10_000_000, options, Arc::new(SystemClock::new()));
        thread::scope(|scope| {
            for number in 0..8 {
                let limiter = &limiter;
                let priority =
                    [IoPriority::Low, IoPriority::Mid, IoPriority::High, IoPriority::User][number % 4];
                thread::Builder::new()
                    .spawn_scoped(scope, move || (0..50).for_each(|_| limiter.request(3000, priority)))
                    .unwrap();
            }
        });
        let through = |priority| limiter.total_bytes_through(priority);
        assert_eq!(through(IoPriority::Low) + through(IoPriority::User), 600_000);
        assert_eq!(through(IoPriority::Mid) + through(IoPriority::High), 600_000);
    }
}
