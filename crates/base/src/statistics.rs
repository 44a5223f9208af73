//! Counters and histograms under RocksDB's names.
//!
//! [`Statistics`] may be shared by several databases. Each of the first threads adds to a shard of its own, all others to
//! one of a few shards, so that threads rarely touch the same cache line. Counters of shards only grow, so that none who
//! counts waits for one who resets; reading sums the shards, less what they had when they were last reset.

mod activity;
mod counts;
mod histogram;
mod shard;
mod thread_number;
mod ticker;
mod unbuilt;

pub use activity::{ActivityGuard, BlocksRead, IoActivity};
pub use counts::{HistogramCounts, HistogramData};
pub use histogram::Histogram;
pub use ticker::Ticker;

use crate::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::*};
use crate::sync::{Mutex, OnceLock, thread::processors};
use shard::{Shard, Writers};
use thread_number::{THREAD_NUMBERS, thread_number};

/// Declares an enum numbered from 0 whose members have names.
macro_rules! named_enum {
    ($(#[$meta:meta])* pub enum $enum:ident { $($(#[$doc:meta])* $member:ident = $name:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        #[allow(missing_docs)]
        pub enum $enum { $($(#[$doc])* $member,)* }

        impl $enum {
            /// All members, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$member,)*];

            /// RocksDB's name.
            pub fn name(self) -> &'static str {
                const NAMES: &[&str] = &[$($name,)*];
                NAMES[self as usize]
            }

            /// The member of that name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|member| member.name() == name)
            }
        }
    };
}
pub(crate) use named_enum;

/// How much is collected. Numbers are RocksDB's (`StatsLevel`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[repr(u8)]
pub enum StatsLevel {
    /// Nothing.
    DisableAll = 0,
    /// Tickers only.
    ExceptHistogramOrTimers = 1,
    /// Tickers, and histograms that do not measure time.
    ExceptTimers = 2,
    /// All but time under locks and time in compression.
    #[default]
    ExceptDetailedTimers = 3,
    /// All but time under locks.
    ExceptTimeForMutex = 4,
    /// Everything.
    All = 5,
}

impl StatsLevel {
    /// The level of that number.
    pub fn from_number(number: u8) -> Option<Self> {
        use StatsLevel::*;
        let all = [
            DisableAll,
            ExceptHistogramOrTimers,
            ExceptTimers,
            ExceptDetailedTimers,
            ExceptTimeForMutex,
            All,
        ];
        all.get(usize::from(number)).copied()
    }
}

/// A histogram for each level of a tree.
#[derive(Debug)]
pub struct LevelHistograms(Vec<Mutex<HistogramCounts>>);

impl LevelHistograms {
    /// For so many levels.
    pub fn new(levels: usize) -> Self {
        Self((0..levels).map(|_| Mutex::new(HistogramCounts::new())).collect())
    }
    /// Adds a value; levels beyond the last count for that.
    pub fn add(&self, level: u32, value: u64) {
        if let Some(histogram) = self.0.get(level as usize).or(self.0.last()) {
            histogram.lock().add(value);
        }
    }
    /// Forgets all values.
    pub fn clear(&self) {
        self.0.iter().for_each(|histogram| *histogram.lock() = HistogramCounts::new());
    }
    /// The histograms that have values, with their levels.
    pub fn filled(&self) -> Vec<(usize, HistogramCounts)> {
        let all = self.0.iter().map(|histogram| histogram.lock().clone()).enumerate();
        all.filter(|(_, counts)| counts.count() > 0).collect()
    }
}

const TICKERS: usize = Ticker::ALL.len();
const HISTOGRAMS: usize = Histogram::ALL.len();
const _: () = assert!(TICKERS == 263 && HISTOGRAMS == 80); // RocksDB 11.8.1.

/// Shared counters and histograms.
///
/// All counters are relaxed: each is exact once its writers are done, but two of them read together
/// may be from different moments. Each thread that counts takes 3.4 KiB, of 64 that live at a time, and 904 bytes for each
/// histogram that it adds to; all others together as much as 4 to 32 of them, by the number of processors.
pub struct Statistics {
    /// One for each number of a thread.
    own: Box<[OnceLock<Box<Shard>>]>,
    /// For threads without a number. A power of two of them.
    shared: Box<[Shard]>,
    level: AtomicU8,
    /// What the shards had of each ticker when it was last reset; less what it was set to.
    tickers_before: Box<[AtomicU64]>,
    /// The same of histograms. Resetting and setting hold it.
    before: Mutex<Vec<HistogramCounts>>,
}

impl Default for Statistics {
    fn default() -> Self {
        Self::new()
    }
}

/// Threads without a number spread evenly.
#[cold]
fn turn() -> usize {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static TURN: u32 = NEXT.fetch_add(1, Relaxed));
    TURN.try_with(|turn| *turn).unwrap_or(0) as usize
}

impl Statistics {
    /// All zero, at level [`StatsLevel::ExceptDetailedTimers`].
    pub fn new() -> Self {
        let shared = (2 * processors()).clamp(4, 32).next_power_of_two();
        Self {
            own: (0..THREAD_NUMBERS).map(|_| OnceLock::new()).collect(),
            shared: (0..shared).map(|_| Shard::new()).collect(),
            level: AtomicU8::new(StatsLevel::default() as u8),
            tickers_before: (0..TICKERS).map(|_| AtomicU64::new(0)).collect(),
            before: Mutex::new(Vec::new()),
        }
    }

    /// How much is collected.
    pub fn level(&self) -> StatsLevel {
        StatsLevel::from_number(self.level.load(Relaxed)).unwrap_or_default()
    }

    /// Collects more or less from now on.
    pub fn set_level(&self, level: StatsLevel) {
        self.level.store(level as u8, Relaxed);
    }

    /// Whether [`Statistics::measure_time`] has an effect: do not read the clock if not.
    #[inline]
    pub fn timers_enabled(&self) -> bool {
        self.level.load(Relaxed) > StatsLevel::ExceptTimers as u8
    }

    /// Whether time under locks and in compression is wanted at `level`.
    #[inline]
    pub fn enabled(&self, level: StatsLevel) -> bool {
        self.level.load(Relaxed) >= level as u8
    }

    #[inline]
    fn shard(&self) -> (&Shard, Writers) {
        match thread_number() {
            Some(number) => (self.own[number].get_or_init(|| Box::new(Shard::new())), Writers::One),
            None => (&self.shared[turn() & (self.shared.len() - 1)], Writers::Many),
        }
    }
    fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.own.iter().filter_map(OnceLock::get).map(Box::as_ref).chain(&self.shared)
    }
    /// The sum of all shards.
    fn ticker_ever(&self, ticker: Ticker) -> u64 {
        self.shards().fold(0, |sum, shard| sum.wrapping_add(shard.ticker(ticker)))
    }
    fn histogram_ever(&self, histogram: Histogram) -> HistogramCounts {
        let mut counts = HistogramCounts::new();
        self.shards().for_each(|shard| shard.add_to(histogram, &mut counts));
        counts
    }

    /// Adds `count` to a ticker.
    #[inline]
    pub fn record(&self, ticker: Ticker, count: u64) {
        if self.level.load(Relaxed) > StatsLevel::DisableAll as u8 {
            let (shard, writers) = self.shard();
            shard.record(writers, ticker, count);
        }
    }

    /// Adds a value (a size, a count) to a histogram.
    #[inline]
    pub fn measure(&self, histogram: Histogram, value: u64) {
        if self.level.load(Relaxed) > StatsLevel::ExceptHistogramOrTimers as u8 {
            let (shard, writers) = self.shard();
            shard.measure(writers, histogram, value);
        }
    }

    /// Adds a duration, in the histogram's unit, to a histogram of times.
    #[inline]
    pub fn measure_time(&self, histogram: Histogram, value: u64) {
        if self.timers_enabled() {
            self.measure(histogram, value);
        }
    }

    /// The value of a ticker.
    pub fn ticker(&self, ticker: Ticker) -> u64 {
        // Acquire: whoever sees that it was reset sees in the shards what was there then.
        let before = self.tickers_before[ticker as usize].load(Acquire);
        self.ticker_ever(ticker).wrapping_sub(before)
    }

    /// Sets a ticker, which otherwise only grows.
    pub fn set_ticker(&self, ticker: Ticker, count: u64) {
        let _lock = self.before.lock();
        let before = self.ticker_ever(ticker).wrapping_sub(count);
        self.tickers_before[ticker as usize].store(before, Release);
    }

    /// The value of a ticker, which starts again at 0. No count is lost or seen twice.
    pub fn take_ticker(&self, ticker: Ticker) -> u64 {
        let _lock = self.before.lock();
        let ever = self.ticker_ever(ticker);
        ever.wrapping_sub(self.tickers_before[ticker as usize].swap(ever, AcqRel))
    }

    /// All values of a histogram, summed up.
    pub fn histogram(&self, histogram: Histogram) -> HistogramData {
        self.histogram_counts(histogram).data()
    }

    /// The buckets of a histogram.
    pub fn histogram_counts(&self, histogram: Histogram) -> HistogramCounts {
        let all_before = self.before.lock();
        let mut counts = self.histogram_ever(histogram);
        if let Some(before) = all_before.get(histogram as usize) {
            counts.forget(before);
        }
        counts
    }

    /// Sets everything to zero.
    pub fn reset(&self) {
        let mut before = self.before.lock();
        for &ticker in Ticker::ALL {
            self.tickers_before[ticker as usize].store(self.ticker_ever(ticker), Release);
        }
        *before = Histogram::ALL.iter().map(|&histogram| self.histogram_ever(histogram)).collect();
        self.shards().for_each(Shard::forget_extremes);
    }
}

/// One line per ticker and histogram, as RocksDB's `Statistics::ToString`.
impl std::fmt::Display for Statistics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for &ticker in Ticker::ALL {
            writeln!(f, "{} COUNT : {}", ticker.name(), self.ticker(ticker))?;
        }
        for &histogram in Histogram::ALL {
            let data = self.histogram(histogram);
            write!(f, "{} P50 : {:.6} P95 : {:.6} ", histogram.name(), data.median, data.percentile95)?;
            write!(f, "P99 : {:.6} P100 : {:.6} ", data.percentile99, data.max)?;
            writeln!(f, "COUNT : {} SUM : {}", data.count, data.sum)?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Statistics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let used = Ticker::ALL.iter().map(|&ticker| (ticker.name(), self.ticker(ticker)));
        f.debug_map().entries(used.filter(|&(_, count)| count != 0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{Arc, thread};

    #[test]
    fn names_are_unique_and_found_again() {
        for &ticker in Ticker::ALL {
            assert_eq!(Ticker::from_name(ticker.name()), Some(ticker));
        }
        for &histogram in Histogram::ALL {
            assert_eq!(Histogram::from_name(histogram.name()), Some(histogram));
        }
        assert_eq!(Ticker::BlockCacheMiss.name(), "rocksdb.block.cache.miss");
        assert_eq!(Ticker::ALL.last().map(|t| t.name()), Some("rocksdb.file.submit.async.read.fallback"));
    }

    /// Counts in so many threads that live together: 3 and `0..1000` a thousand times each.
    fn count_in(threads: usize, statistics: &Arc<Statistics>) -> Vec<thread::JoinHandle<()>> {
        let together = Arc::new(std::sync::Barrier::new(threads));
        let count = || {
            let (statistics, together) = (Arc::clone(statistics), Arc::clone(&together));
            thread::spawn_named("count", move || {
                together.wait();
                for value in 0..1000 {
                    statistics.record(Ticker::BytesWritten, 3);
                    statistics.measure(Histogram::BytesPerWrite, value);
                }
                together.wait();
            })
        };
        (0..threads).map(|_| count()).collect()
    }

    #[test]
    fn threads_lose_no_count() {
        for threads in [8, THREAD_NUMBERS + 8] {
            let statistics = Arc::new(Statistics::new());
            let count =
                |_| count_in(threads, &statistics).into_iter().for_each(|thread| thread.join().unwrap());
            (0..2).for_each(count); // The second time shards are used that others have left.
            let times = 2 * threads as u64;
            assert_eq!(statistics.ticker(Ticker::BytesWritten), times * 3000);
            let data = statistics.histogram(Histogram::BytesPerWrite);
            assert_eq!(
                (data.count, data.sum, data.min, data.max),
                (times * 1000, times * 499_500, 0.0, 999.0)
            );
        }
    }

    #[test]
    fn a_ticker_that_is_taken_while_threads_count_loses_nothing() {
        let statistics = Arc::new(Statistics::new());
        let threads = count_in(8, &statistics);
        let mut taken = 0;
        while !threads.iter().all(|thread| thread.is_finished()) {
            taken += statistics.take_ticker(Ticker::BytesWritten);
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(taken + statistics.take_ticker(Ticker::BytesWritten), 24_000);
    }

    #[test]
    fn what_was_reset_or_set_counts_on_from_there() {
        let statistics = Statistics::new();
        let count = |value| {
            statistics.record(Ticker::BytesWritten, value);
            statistics.measure(Histogram::BytesPerWrite, value);
        };
        let histogram = || {
            let data = statistics.histogram(Histogram::BytesPerWrite);
            (data.count, data.sum, data.min, data.max)
        };
        [5, 100].into_iter().for_each(count);
        assert_eq!(statistics.take_ticker(Ticker::BytesWritten), 105);
        assert_eq!(statistics.ticker(Ticker::BytesWritten), 0);
        statistics.set_ticker(Ticker::BytesWritten, 7);
        count(20);
        assert_eq!((statistics.ticker(Ticker::BytesWritten), histogram()), (27, (3, 125, 5.0, 100.0)));
        statistics.reset();
        assert_eq!((statistics.ticker(Ticker::BytesWritten), histogram()), (0, (0, 0, 0.0, 0.0)));
        [30, 40].into_iter().for_each(count);
        assert_eq!((statistics.ticker(Ticker::BytesWritten), histogram()), (70, (2, 70, 30.0, 40.0)));
    }

    #[test]
    fn levels_switch_kinds_off() {
        let statistics = Statistics::new();
        let count_all = || {
            statistics.record(Ticker::NumberKeysRead, 1);
            statistics.measure(Histogram::BytesPerRead, 1);
            statistics.measure_time(Histogram::DbGet, 1);
            let counts = (
                statistics.ticker(Ticker::NumberKeysRead),
                statistics.histogram(Histogram::BytesPerRead).count,
                statistics.histogram(Histogram::DbGet).count,
            );
            statistics.reset();
            counts
        };
        statistics.set_level(StatsLevel::DisableAll);
        assert_eq!(count_all(), (0, 0, 0));
        statistics.set_level(StatsLevel::ExceptHistogramOrTimers);
        assert_eq!(count_all(), (1, 0, 0));
        statistics.set_level(StatsLevel::ExceptTimers);
        assert_eq!(count_all(), (1, 1, 0));
        statistics.set_level(StatsLevel::All);
        assert_eq!(count_all(), (1, 1, 1));
    }

    #[test]
    fn text_has_one_line_each() {
        let statistics = Statistics::new();
        statistics.record(Ticker::BlockCacheHit, 2);
        statistics.measure(Histogram::BytesPerRead, 100);
        let text = statistics.to_string();
        assert_eq!(text.lines().count(), TICKERS + HISTOGRAMS);
        assert!(text.contains("rocksdb.block.cache.hit COUNT : 2\n"));
        let line = "rocksdb.bytes.per.read P50 : 100.000000 P95 : 100.000000 P99 : 100.000000 \
                    P100 : 100.000000 COUNT : 1 SUM : 100\n";
        assert!(text.contains(line), "{text}");
    }
}
