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
//!
//! Some things are counted for each level of the tree apart, once a thread asks for it:
//!
//! ```
//! use ironstone_base::perf::{self, LevelMetric};
//!
//! perf::enable_by_level();
//! perf::count_at_level(LevelMetric::BloomFilterUseful, 2);
//! assert_eq!(perf::get_at_level(LevelMetric::BloomFilterUseful, 2), 1);
//! assert_eq!(perf::report(true), "bloom_filter_useful = 1@level2");
//! # perf::clear_by_level();
//! ```

mod metric;

pub use metric::{IoMetric, LevelMetric, PerfMetric};

use std::cell::{Cell, RefCell};
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
    /// Counts, and the time that writes wait for others, are slowed down, or put what they write into memtables.
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
    /// Whether there are counts of levels apart, which are in `LEVELS`.
    by_level: Cell<bool>,
    /// What follows from the two.
    mode: Cell<Mode>,
    perf: [Cell<u64>; PerfMetric::ALL.len()],
    io: [Cell<u64>; IoMetric::ALL.len()],
}

thread_local! {
    static COUNTS: ThreadCounts = const {
        ThreadCounts {
            level: Cell::new(PerfLevel::EnableCount),
            by_level: Cell::new(false),
            mode: Cell::new(Mode::Counts),
            perf: [const { Cell::new(0) }; PerfMetric::ALL.len()],
            io: io_at_first(),
        }
    };
}

/// What is to be done about a count: asked once for each.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Nothing,
    Counts,
    CountsByLevel,
}

/// RocksDB's number for threads of none of its pools (`Env::Priority::TOTAL`).
const NO_POOL: u64 = 4;

const fn io_at_first() -> [Cell<u64>; IoMetric::ALL.len()] {
    let mut io = [const { Cell::new(0) }; IoMetric::ALL.len()];
    io[IoMetric::ThreadPoolId as usize] = Cell::new(NO_POOL);
    io
}

/// The pools of threads, by the numbers of RocksDB's `Env::Priority`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Pool {
    /// Threads that compact into the last level alone.
    Bottom = 0,
    /// Threads that compact.
    Low = 1,
    /// Threads that flush, and those that remove files.
    High = 2,
}

/// Says whose work this thread does from now on: [`IoMetric::ThreadPoolId`], at every level.
pub fn enter_pool(pool: Pool) {
    COUNTS.with(|counts| counts.io[IoMetric::ThreadPoolId as usize].set(pool as u64));
}

const LEVEL_METRICS: usize = LevelMetric::ALL.len();

thread_local! {
    /// Apart, since what is not `const` all over makes each access dearer.
    static LEVELS: RefCell<Vec<[u64; LEVEL_METRICS]>> = const { RefCell::new(Vec::new()) };
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
    settle();
}

fn settle() {
    COUNTS.with(|counts| {
        counts.mode.set(match (counts.level.get() >= PerfLevel::EnableCount, counts.by_level.get()) {
            (false, _) => Mode::Nothing,
            (true, false) => Mode::Counts,
            (true, true) => Mode::CountsByLevel,
        });
    });
}

/// Whether anything is counted for this thread: to be asked where there are several counts, or one that takes work.
#[inline]
pub fn is_counting() -> bool {
    level() >= PerfLevel::EnableCount
}

/// Whether times are taken for this thread: to be asked once by an operation that has several.
#[inline]
pub fn is_timing() -> bool {
    level() >= PerfLevel::EnableTimeExceptForMutex
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
/// Counts the comparisons of a binary search among `len` keys, and `more` of them.
#[inline]
pub fn count_search(len: usize, more: u64) {
    if is_counting() {
        add_search(len, more);
    }
}
#[inline(never)] // Searches are short, and have no registers to spare.
fn add_search(len: usize, more: u64) {
    count(PerfMetric::UserKeyComparisonCount, probes(len) + more);
}
/// How many of `len` keys in order a binary search looks at.
pub fn probes(len: usize) -> u64 {
    match len.checked_sub(1) {
        Some(last) => u64::from(usize::BITS - last.leading_zeros()) + 1,
        None => 0,
    }
}
/// Adds one to a count of this thread, and to that of a level if those are counted.
#[inline(always)] // As small as `count`, and called where blocks and filters are asked.
pub fn count_with_level(metric: PerfMetric, of_level: impl FnOnce() -> (LevelMetric, u32)) {
    COUNTS.with(|counts| {
        let mode = counts.mode.get();
        if mode != Mode::Nothing {
            add(&counts.perf[metric as usize], 1);
            if mode == Mode::CountsByLevel {
                let (level_metric, level) = of_level();
                add_at_level(level_metric, level, 1);
            }
        }
    });
}
/// Adds one to a count of a level, if those are counted.
#[inline]
pub fn count_at_level(metric: LevelMetric, level: u32) {
    COUNTS.with(|counts| {
        if counts.mode.get() == Mode::CountsByLevel {
            add_at_level(metric, level, 1);
        }
    });
}
/// Whether times are taken for each level apart.
#[inline]
pub fn times_by_level() -> bool {
    COUNTS.with(|counts| counts.by_level.get() && counts.level.get() >= PerfLevel::EnableTimeExceptForMutex)
}
/// Adds to a count of a level.
#[cold]
#[inline(never)]
pub fn add_at_level(metric: LevelMetric, level: u32, by: u64) {
    LEVELS.with_borrow_mut(|levels| {
        let level = level as usize;
        if levels.len() <= level {
            levels.resize(level + 1, [0; LEVEL_METRICS]);
        }
        levels[level][metric as usize] += by;
    });
}
/// Counts for each level apart from now on, in this thread. RocksDB: `EnablePerLevelPerfContext`.
pub fn enable_by_level() {
    COUNTS.with(|counts| counts.by_level.set(true));
    settle();
}
/// Stops that; what was counted stays.
pub fn disable_by_level() {
    COUNTS.with(|counts| counts.by_level.set(false));
    settle();
}
/// Stops it, and forgets what was counted.
pub fn clear_by_level() {
    disable_by_level();
    LEVELS.with_borrow_mut(Vec::clear);
}
/// What this thread has counted for `level` since its last [`reset`].
pub fn get_at_level(metric: LevelMetric, level: u32) -> u64 {
    LEVELS.with_borrow(|levels| levels.get(level as usize).map_or(0, |counts| counts[metric as usize]))
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
    LEVELS.with_borrow_mut(Vec::clear);
}
/// Sets those of input and output to nothing, and [`IoMetric::ThreadPoolId`] to no pool.
pub fn reset_io() {
    COUNTS.with(|counts| {
        counts.io.iter().for_each(|cell| cell.set(0));
        counts.io[IoMetric::ThreadPoolId as usize].set(NO_POOL);
    });
}

/// The counts as RocksDB writes them: `name = count`, separated by commas; with `exclude_zero` only those that are not 0.
/// Those of levels, if they are counted, follow as `name = count@level0, count@level1`.
pub fn report(exclude_zero: bool) -> String {
    let mut text = join(PerfMetric::ALL.iter().map(|metric| (metric.name(), get(*metric))), exclude_zero);
    if COUNTS.with(|counts| counts.by_level.get()) {
        for metric in LevelMetric::ALL {
            let of_levels = LEVELS.with_borrow(|levels| {
                let counts = levels.iter().map(|counts| counts[*metric as usize]).enumerate();
                let counts = counts.filter(|(_, count)| !exclude_zero || *count > 0);
                counts.map(|(level, count)| format!("{count}@level{level}")).collect::<Vec<_>>().join(", ")
            });
            if !of_levels.is_empty() {
                let comma = if text.is_empty() { "" } else { ", " };
                let _ = write!(text, "{comma}{} = {of_levels}", metric.name());
            }
        }
    }
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_searches_look_at_as_many_keys_as_is_counted() {
        for len in 0..2000_usize {
            let all: Vec<usize> = (0..len).collect();
            for wanted in [0, len / 3, len] {
                let mut looked_at = 0;
                let found = all.partition_point(|&one| {
                    looked_at += 1;
                    one < wanted
                });
                assert_eq!((found, looked_at), (wanted, probes(len)), "of {len}");
            }
        }
    }

    #[test]
    fn a_thread_is_of_no_pool_until_it_works_for_one() {
        let of_new_thread = crate::sync::thread::spawn_named("new", || report_io(true)).join().unwrap();
        assert_eq!(of_new_thread, "thread_pool_id = 4");
        set_level(PerfLevel::Disable);
        enter_pool(Pool::High);
        assert_eq!(get_io(IoMetric::ThreadPoolId), 2);
        enter_pool(Pool::Low);
        assert_eq!(get_io(IoMetric::ThreadPoolId), 1);
        set_level(PerfLevel::default());
        count_io(IoMetric::ReadNanos, 7);
        assert_eq!(report_io(true), "thread_pool_id = 1, read_nanos = 7");
        reset_io();
        assert_eq!(report_io(true), "thread_pool_id = 4");
    }

    #[test]
    fn searches_count_if_anything_does() {
        reset();
        count_search(7, 2);
        assert_eq!(get(PerfMetric::UserKeyComparisonCount), 4 + 2);
        set_level(PerfLevel::Disable);
        count_search(7, 2);
        set_level(PerfLevel::default());
        assert_eq!(get(PerfMetric::UserKeyComparisonCount), 4 + 2);
    }
}
