//! What one thread's operations cost: RocksDB's `PerfContext` and `IOStatsContext`.
//!
//! Each thread has its own counts, which only it sees and sets to nothing. Counting costs a thread-local addition;
//! times are taken from [`PerfLevel::EnableTimeExceptForMutex`] on only (the timers are in `ironstone_vfs`).
//!
//! ```
//! use ironstone_base::perf::{self, PerfLevel, PerfMetric};
//!
//! perf::reset();
//! perf::count(PerfMetric::BlockReadCount, 2);
//! assert_eq!(perf::get(PerfMetric::BlockReadCount), 2);
//! assert_eq!(perf::report(true), "block_read_count = 2");
//!
//! perf::set_level(PerfLevel::Disable);
//! perf::count(PerfMetric::BlockReadCount, 2);
//! assert_eq!(perf::get(PerfMetric::BlockReadCount), 2);
//! # perf::set_level(PerfLevel::default());
//! ```

mod metric;

pub use metric::{IoMetric, PerfMetric};

use std::cell::Cell;
use std::fmt::Write;

/// How much is counted for a thread. Numbers are RocksDB's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[repr(u8)]
pub enum PerfLevel {
    /// Nothing.
    Disable = 1,
    /// Counts.
    #[default]
    EnableCount = 2,
    /// Counts, and the time that writes wait for others or are slowed down.
    EnableWait = 3,
    /// Also the times of all but locks.
    EnableTimeExceptForMutex = 4,
    /// Also processor time.
    EnableTimeAndCpuTimeExceptForMutex = 5,
    /// Everything.
    EnableTime = 6,
}

impl PerfLevel {
    /// The level of that number.
    pub fn from_number(number: u8) -> Option<Self> {
        use PerfLevel::*;
        let all = [
            Disable,
            EnableCount,
            EnableWait,
            EnableTimeExceptForMutex,
            EnableTimeAndCpuTimeExceptForMutex,
            EnableTime,
        ];
        all.into_iter().find(|level| *level as u8 == number)
    }
}

struct ThreadCounts {
    level: Cell<PerfLevel>,
    perf: [Cell<u64>; PerfMetric::ALL.len()],
    io: [Cell<u64>; IoMetric::ALL.len()],
}

thread_local! {
    static COUNTS: ThreadCounts = const {
        ThreadCounts {
            level: Cell::new(PerfLevel::EnableCount),
            perf: [const { Cell::new(0) }; PerfMetric::ALL.len()],
            io: [const { Cell::new(0) }; IoMetric::ALL.len()],
        }
    };
}

#[inline]
fn add(cell: &Cell<u64>, count: u64) {
    cell.set(cell.get().wrapping_add(count));
}

/// How much is counted for this thread.
#[inline]
pub fn level() -> PerfLevel {
    COUNTS.with(|counts| counts.level.get())
}
/// Changes it. What was counted stays.
pub fn set_level(level: PerfLevel) {
    COUNTS.with(|counts| counts.level.set(level));
}

/// Adds to a count of this thread, unless its level is `Disable`.
#[inline]
pub fn count(metric: PerfMetric, by: u64) {
    count_all([(metric, by)]);
}
/// Adds to several.
#[inline]
pub fn count_all<const N: usize>(counted: [(PerfMetric, u64); N]) {
    COUNTS.with(|counts| {
        if counts.level.get() >= PerfLevel::EnableCount {
            for (metric, by) in counted {
                add(&counts.perf[metric as usize], by);
            }
        }
    });
}
/// Adds to a count of input and output.
#[inline]
pub fn count_io(metric: IoMetric, by: u64) {
    COUNTS.with(|counts| {
        if counts.level.get() >= PerfLevel::EnableCount {
            add(&counts.io[metric as usize], by);
        }
    });
}

/// What this thread has counted since its last [`reset`].
pub fn get(metric: PerfMetric) -> u64 {
    COUNTS.with(|counts| counts.perf[metric as usize].get())
}
/// The same of input and output, since the last [`reset_io`].
pub fn get_io(metric: IoMetric) -> u64 {
    COUNTS.with(|counts| counts.io[metric as usize].get())
}
/// Sets the counts of this thread to nothing.
pub fn reset() {
    COUNTS.with(|counts| counts.perf.iter().for_each(|cell| cell.set(0)));
}
/// Sets those of input and output to nothing.
pub fn reset_io() {
    COUNTS.with(|counts| counts.io.iter().for_each(|cell| cell.set(0)));
}

/// The counts as RocksDB writes them: `name = count`, separated by commas; with `exclude_zero` only those that are not 0.
pub fn report(exclude_zero: bool) -> String {
    join(PerfMetric::ALL.iter().map(|metric| (metric.name(), get(*metric))), exclude_zero)
}
/// The same of input and output.
pub fn report_io(exclude_zero: bool) -> String {
    join(IoMetric::ALL.iter().map(|metric| (metric.name(), get_io(*metric))), exclude_zero)
}

fn join(counts: impl Iterator<Item = (&'static str, u64)>, exclude_zero: bool) -> String {
    let mut text = String::new();
    for (name, count) in counts.filter(|(_, count)| !exclude_zero || *count > 0) {
        let comma = if text.is_empty() { "" } else { ", " };
        // Writing to a string does not fail.
        let _ = write!(text, "{comma}{name} = {count}");
    }
    text
}
