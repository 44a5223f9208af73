//! What one thread counts in, or a few.

use super::counts::{BUCKET_COUNT, HistogramCounts, bucket_of};
use super::{HISTOGRAMS, Histogram, TICKERS, Ticker};
use crate::sync::OnceLock;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters that only grow. Aligned so that no two shards share a cache line (or a pair of them).
#[repr(align(128))]
pub struct Shard {
    tickers: [AtomicU64; TICKERS],
    histograms: [OnceLock<Box<HistogramShard>>; HISTOGRAMS], // Most are never used.
}

/// How many threads add to a shard.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    /// One. It need not lock the processor's bus for each count.
    One,
    Many,
}

impl Writers {
    #[inline]
    fn add(self, counter: &AtomicU64, count: u64) {
        match self {
            Self::One => counter.store(counter.load(Relaxed).wrapping_add(count), Relaxed),
            Self::Many => _ = counter.fetch_add(count, Relaxed),
        }
    }
}

impl Shard {
    pub fn new() -> Self {
        Self {
            tickers: [const { AtomicU64::new(0) }; TICKERS],
            histograms: [const { OnceLock::new() }; HISTOGRAMS],
        }
    }

    #[inline]
    pub fn record(&self, writers: Writers, ticker: Ticker, count: u64) {
        writers.add(&self.tickers[ticker as usize], count);
    }
    #[inline]
    pub fn measure(&self, writers: Writers, histogram: Histogram, value: u64) {
        self.histograms[histogram as usize].get_or_init(HistogramShard::new).add(writers, value);
    }

    pub fn ticker(&self, ticker: Ticker) -> u64 {
        self.tickers[ticker as usize].load(Relaxed)
    }
    pub fn add_to(&self, histogram: Histogram, counts: &mut HistogramCounts) {
        if let Some(shard) = self.histograms[histogram as usize].get() {
            shard.add_to(counts);
        }
    }
    /// Forgets the least and the largest value of each histogram.
    pub fn forget_extremes(&self) {
        for shard in self.histograms.iter().filter_map(OnceLock::get) {
            shard.min.store(u64::MAX, Relaxed);
            shard.max.store(0, Relaxed);
        }
    }
}

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

    fn add(&self, writers: Writers, value: u64) {
        writers.add(&self.buckets[bucket_of(value)], 1);
        writers.add(&self.sum, value);
        writers.add(&self.sum_squares, value.wrapping_mul(value));
        // Seldom; and others reset these.
        if value < self.min.load(Relaxed) {
            self.min.fetch_min(value, Relaxed);
        }
        if value > self.max.load(Relaxed) {
            self.max.fetch_max(value, Relaxed);
        }
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
