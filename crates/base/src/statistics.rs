//! Counters and histograms under RocksDB's names.
//!
//! [`Statistics`] may be shared by several databases. Each thread adds to one of a few shards, so that
//! threads rarely touch the same cache line; reading sums the shards.

mod activity;
mod counts;
mod histogram;
mod ticker;
mod unbuilt;

pub use activity::{ActivityGuard, BlocksRead, IoActivity};
pub use counts::{HistogramCounts, HistogramData};
pub use histogram::Histogram;
pub use ticker::Ticker;

use crate::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::sync::{Mutex, OnceLock, thread::processors};
use counts::{BUCKET_COUNT, bucket_of};

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

/// One histogram of one shard. The number of values is the sum of the buckets.
struct HistogramShard {
    buckets: [AtomicU64; BUCKET_COUNT],
    sum: AtomicU64,
    sum_squares: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
}

impl HistogramShard {
    fn new() -> Box<Self> {
        Box::new(Self {
            buckets: [const { AtomicU64::new(0) }; BUCKET_COUNT],
            sum: AtomicU64::new(0),
            sum_squares: AtomicU64::new(0),
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
        })
    }

    fn add(&self, value: u64) {
        self.buckets[bucket_of(value)].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
        self.sum_squares.fetch_add(value.wrapping_mul(value), Relaxed);
        if value < self.min.load(Relaxed) {
            self.min.fetch_min(value, Relaxed);
        }
        if value > self.max.load(Relaxed) {
            self.max.fetch_max(value, Relaxed);
        }
    }

    fn clear(&self) {
        self.buckets.iter().for_each(|bucket| bucket.store(0, Relaxed));
        self.sum.store(0, Relaxed);
        self.sum_squares.store(0, Relaxed);
        self.min.store(u64::MAX, Relaxed);
        self.max.store(0, Relaxed);
    }

    fn add_to(&self, counts: &mut HistogramCounts) {
        for (into, bucket) in counts.buckets.iter_mut().zip(&self.buckets) {
            *into += bucket.load(Relaxed);
        }
        counts.sum = counts.sum.wrapping_add(self.sum.load(Relaxed));
        counts.sum_squares = counts.sum_squares.wrapping_add(self.sum_squares.load(Relaxed));
        counts.min = counts.min.min(self.min.load(Relaxed));
        counts.max = counts.max.max(self.max.load(Relaxed));
    }
}

/// What a few threads count in. Aligned so that no two shards share a cache line (or a pair of them).
#[repr(align(128))]
struct Shard {
    tickers: [AtomicU64; TICKERS],
    histograms: [OnceLock<Box<HistogramShard>>; HISTOGRAMS], // Most are never used.
}

impl Shard {
    fn new() -> Self {
        Self {
            tickers: [const { AtomicU64::new(0) }; TICKERS],
            histograms: [const { OnceLock::new() }; HISTOGRAMS],
        }
    }
}

/// Shared counters and histograms.
///
/// All counters are relaxed: each is exact once its writers are done, but two of them read together
/// may be from different moments.
pub struct Statistics {
    shards: Box<[Shard]>, // A power of two of them.
    level: AtomicU8,
    aggregate: Mutex<()>, // Makes resetting and setting atomic for each other.
}

impl Default for Statistics {
    fn default() -> Self {
        Self::new()
    }
}

/// Every thread gets a number on its first count, so that threads spread evenly over the shards.
fn thread_number() -> usize {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static NUMBER: u32 = NEXT.fetch_add(1, Relaxed));
    NUMBER.try_with(|number| *number).unwrap_or(0) as usize
}

impl Statistics {
    /// All zero, at level [`StatsLevel::ExceptDetailedTimers`].
    pub fn new() -> Self {
        let shards = (2 * processors()).clamp(4, 32).next_power_of_two();
        Self {
            shards: (0..shards).map(|_| Shard::new()).collect(),
            level: AtomicU8::new(StatsLevel::default() as u8),
            aggregate: Mutex::new(()),
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
    fn shard(&self) -> &Shard {
        &self.shards[thread_number() & (self.shards.len() - 1)]
    }

    /// Adds `count` to a ticker.
    #[inline]
    pub fn record(&self, ticker: Ticker, count: u64) {
        if self.level.load(Relaxed) > StatsLevel::DisableAll as u8 {
            self.shard().tickers[ticker as usize].fetch_add(count, Relaxed);
        }
    }

    /// Adds a value (a size, a count) to a histogram.
    #[inline]
    pub fn measure(&self, histogram: Histogram, value: u64) {
        if self.level.load(Relaxed) > StatsLevel::ExceptHistogramOrTimers as u8 {
            self.shard().histograms[histogram as usize].get_or_init(HistogramShard::new).add(value);
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
        self.shards
            .iter()
            .fold(0, |sum, shard| sum.wrapping_add(shard.tickers[ticker as usize].load(Relaxed)))
    }

    /// Sets a ticker, which otherwise only grows.
    pub fn set_ticker(&self, ticker: Ticker, count: u64) {
        let _lock = self.aggregate.lock();
        for (index, shard) in self.shards.iter().enumerate() {
            shard.tickers[ticker as usize].store(if index == 0 { count } else { 0 }, Relaxed);
        }
    }

    /// The value of a ticker, which starts again at 0. No count is lost or seen twice.
    pub fn take_ticker(&self, ticker: Ticker) -> u64 {
        let _lock = self.aggregate.lock();
        self.shards.iter().fold(0, |sum, s| sum.wrapping_add(s.tickers[ticker as usize].swap(0, Relaxed)))
    }

    /// All values of a histogram, summed up.
    pub fn histogram(&self, histogram: Histogram) -> HistogramData {
        self.histogram_counts(histogram).data()
    }

    /// The buckets of a histogram.
    pub fn histogram_counts(&self, histogram: Histogram) -> HistogramCounts {
        let mut counts = HistogramCounts::new();
        let used = self.shards.iter().filter_map(|shard| shard.histograms[histogram as usize].get());
        used.for_each(|shard| shard.add_to(&mut counts));
        counts
    }

    /// Sets everything to zero.
    pub fn reset(&self) {
        let _lock = self.aggregate.lock();
        for shard in &self.shards {
            shard.tickers.iter().for_each(|ticker| ticker.store(0, Relaxed));
            shard.histograms.iter().filter_map(OnceLock::get).for_each(|histogram| histogram.clear());
        }
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

    #[test]
    fn threads_lose_no_count() {
        let statistics = Arc::new(Statistics::new());
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let statistics = Arc::clone(&statistics);
                thread::spawn_named("count", move || {
                    for value in 0..1000 {
                        statistics.record(Ticker::BytesWritten, 3);
                        statistics.measure(Histogram::BytesPerWrite, value);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(statistics.ticker(Ticker::BytesWritten), 24_000);
        let data = statistics.histogram(Histogram::BytesPerWrite);
        assert_eq!((data.count, data.sum, data.min, data.max), (8000, 8 * 499_500, 0.0, 999.0));
        assert_eq!(statistics.take_ticker(Ticker::BytesWritten), 24_000);
        assert_eq!(statistics.ticker(Ticker::BytesWritten), 0);
        statistics.set_ticker(Ticker::BytesWritten, 7);
        assert_eq!(statistics.ticker(Ticker::BytesWritten), 7);
        statistics.reset();
        assert_eq!(statistics.histogram(Histogram::BytesPerWrite).count, 0);
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
