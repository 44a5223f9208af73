//! Buckets of a histogram, and what is computed from them. Bounds, percentiles and texts are RocksDB's,
//! so that numbers can be compared.

use std::fmt;

/// How many buckets a histogram has.
pub const BUCKET_COUNT: usize = 109;

/// The largest value of each bucket: 1, 2, then each 1.5 times the last, cut to two digits.
static BOUNDS: [u64; BUCKET_COUNT] = bounds();
/// For each number of significant bits, the first bucket that may hold such a value.
static FIRST_BUCKET: [u8; 65] = first_buckets();

const fn bounds() -> [u64; BUCKET_COUNT] {
    let mut bounds = [0; BUCKET_COUNT];
    (bounds[0], bounds[1]) = (1, 2);
    let mut exact = 2.0f64;
    let mut index = 2;
    while index < BUCKET_COUNT {
        exact *= 1.5;
        let (mut digits, mut scale) = (exact as u64, 1);
        while digits / 10 > 10 {
            digits /= 10;
            scale *= 10;
        }
        bounds[index] = digits * scale;
        index += 1;
    }
    assert!(exact * 1.5 > u64::MAX as f64, "the last bucket reaches as far as it can");
    bounds
}

const fn first_buckets() -> [u8; 65] {
    let bounds = bounds();
    let mut first = [0; 65];
    let mut bits = 1;
    while bits <= 64 {
        let least = 1u64 << (bits - 1);
        let mut bucket = 0;
        while bucket + 1 < BUCKET_COUNT && bounds[bucket] < least {
            bucket += 1;
        }
        first[bits] = bucket as u8;
        bits += 1;
    }
    first
}

/// The bucket that counts `value`: the first whose bound is not below it.
#[inline]
pub fn bucket_of(value: u64) -> usize {
    let mut bucket = usize::from(FIRST_BUCKET[(u64::BITS - value.leading_zeros()) as usize]);
    while bucket < BUCKET_COUNT - 1 && BOUNDS[bucket] < value {
        bucket += 1; // At most four steps: bounds grow by a half.
    }
    bucket
}

/// A histogram in numbers.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[allow(missing_docs)]
pub struct HistogramData {
    pub median: f64,
    pub percentile95: f64,
    pub percentile99: f64,
    pub average: f64,
    pub standard_deviation: f64,
    pub max: f64,
    pub count: u64,
    pub sum: u64,
    pub min: f64,
}

/// A histogram for one thread; also what a shared one sums up to.
#[derive(Clone, PartialEq, Eq)]
pub struct HistogramCounts {
    pub(super) buckets: [u64; BUCKET_COUNT],
    pub(super) sum: u64,
    pub(super) sum_squares: u64,
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Default for HistogramCounts {
    fn default() -> Self {
        Self::new()
    }
}

impl HistogramCounts {
    /// Without values.
    pub fn new() -> Self {
        Self { buckets: [0; BUCKET_COUNT], sum: 0, sum_squares: 0, min: u64::MAX, max: 0 }
    }

    /// Adds a value.
    pub fn add(&mut self, value: u64) {
        self.buckets[bucket_of(value)] += 1;
        self.sum = self.sum.wrapping_add(value);
        self.sum_squares = self.sum_squares.wrapping_add(value.wrapping_mul(value));
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds the values of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(into, count)| *into += count);
        self.sum = self.sum.wrapping_add(other.sum);
        self.sum_squares = self.sum_squares.wrapping_add(other.sum_squares);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Forgets the values that were there `before`. The least and the largest stay.
    pub(super) fn forget(&mut self, before: &Self) {
        self.buckets.iter_mut().zip(&before.buckets).for_each(|(count, before)| *count -= before);
        self.sum = self.sum.wrapping_sub(before.sum);
        self.sum_squares = self.sum_squares.wrapping_sub(before.sum_squares);
    }

    /// Forgets all values.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// The largest value of each bucket, ascending, and how many values the bucket has.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        BOUNDS.iter().copied().zip(self.buckets.iter().copied())
    }
    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
    /// The sum of the values.
    pub fn sum(&self) -> u64 {
        self.sum
    }
    /// The least value; 0 without values.
    pub fn min(&self) -> u64 {
        if self.min == u64::MAX { 0 } else { self.min }
    }
    /// The largest value; 0 without values.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The value below which `percent` of the values lie, as well as the buckets tell: linear inside
    /// the bucket, never outside of what was seen.
    pub fn percentile(&self, percent: f64) -> f64 {
        let threshold = self.count() as f64 * (percent / 100.0);
        let mut below = 0u64;
        for (bucket, &count) in self.buckets.iter().enumerate() {
            if (below + count) as f64 >= threshold {
                let left = bucket.checked_sub(1).map_or(0, |previous| BOUNDS[previous]);
                let share = if count == 0 { 0.0 } else { (threshold - below as f64) / count as f64 };
                let value = left as f64 + (BOUNDS[bucket] - left) as f64 * share;
                return value.max(self.min() as f64).min(self.max as f64);
            }
            below += count;
        }
        self.max as f64
    }

    /// The mean; 0 without values.
    pub fn average(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.sum as f64 / count as f64,
        }
    }

    /// How far values are from the mean; 0 without values.
    pub fn standard_deviation(&self) -> f64 {
        let (count, sum) = (self.count() as f64, self.sum as f64);
        if count == 0.0 {
            return 0.0;
        }
        let variance = (self.sum_squares as f64 * count - sum * sum) / (count * count);
        variance.max(0.0).sqrt()
    }

    /// The usual numbers.
    pub fn data(&self) -> HistogramData {
        HistogramData {
            median: self.percentile(50.0),
            percentile95: self.percentile(95.0),
            percentile99: self.percentile(99.0),
            average: self.average(),
            standard_deviation: self.standard_deviation(),
            max: self.max as f64,
            count: self.count(),
            sum: self.sum,
            min: self.min() as f64,
        }
    }
}

/// The text of RocksDB's `Histogram::ToString`: numbers, then a line per bucket with marks.
impl fmt::Display for HistogramCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.count();
        let (average, deviation) = (self.average(), self.standard_deviation());
        writeln!(f, "Count: {count} Average: {average:.4}  StdDev: {deviation:.2}")?;
        writeln!(f, "Min: {}  Median: {:.4}  Max: {}", self.min(), self.percentile(50.0), self.max)?;
        f.write_str("Percentiles:")?;
        for percent in ["50", "75", "99", "99.9", "99.99"] {
            let value = self.percentile(percent.parse().unwrap_or(0.0));
            write!(f, " P{percent}: {value:.2}")?;
        }
        writeln!(f, "\n------------------------------------------------------")?;
        let mut below = 0;
        for (bucket, &here) in self.buckets.iter().enumerate().filter(|&(_, &here)| here > 0) {
            below += here;
            let (open, left) = bucket.checked_sub(1).map_or(('[', 0), |previous| ('(', BOUNDS[previous]));
            let percent = |part: u64| 100.0 / count as f64 * part as f64;
            let right = BOUNDS[bucket];
            write!(f, "{open} {left:>7}, {right:>7} ] {here:>8} ")?;
            write!(f, "{:>7.3}% {:>7.3}% ", percent(here), percent(below))?;
            writeln!(f, "{}", "#".repeat((percent(here) / 5.0 + 0.5) as usize))?;
        }
        Ok(())
    }
}

impl fmt::Debug for HistogramCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.data().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_rocksdbs() {
        let head = [1, 2, 3, 4, 6, 10, 15, 22, 34, 51, 76, 110, 170, 250, 380, 580, 870, 1300, 1900, 2900];
        assert_eq!(BOUNDS[..20], head);
        assert_eq!(BOUNDS[BUCKET_COUNT - 1], 13_000_000_000_000_000_000);
    }

    #[test]
    fn every_value_is_in_its_bucket() {
        let edges = BOUNDS.iter().flat_map(|&bound| [bound - 1, bound, bound.saturating_add(1)]);
        let powers = (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit]);
        for value in edges.chain(powers).chain([u64::MAX]) {
            let expected = BOUNDS.partition_point(|&bound| bound < value).min(BUCKET_COUNT - 1);
            assert_eq!(bucket_of(value), expected, "{value}");
        }
    }

    #[test]
    fn text_is_rocksdbs() {
        let mut counts = HistogramCounts::new();
        for value in [0, 1, 5, 5, 100] {
            counts.add(value);
        }
        let expected = "\
Count: 5 Average: 22.2000  StdDev: 38.95
Min: 0  Median: 4.5000  Max: 100
Percentiles: P50: 4.50 P75: 5.75 P99: 100.00 P99.9: 100.00 P99.99: 100.00
------------------------------------------------------
[       0,       1 ]        2  40.000%  40.000% ########
(       4,       6 ]        2  40.000%  80.000% ########
(      76,     110 ]        1  20.000% 100.000% ####
";
        assert_eq!(counts.to_string(), expected);
    }

    #[test]
    fn empty_histogram_is_all_zero() {
        assert_eq!(HistogramCounts::new().data(), HistogramData::default());
    }
}
