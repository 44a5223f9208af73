//! What the counts of a thread (`base::perf`) and histograms say of times. Nothing is decided by them, so they are real times even where
//! a simulator owns the database's clock, and come from the cheapest one there is (`moment`).

use crate::moment::Moment;
use ironstone_base::Statistics;
use ironstone_base::perf::{self, IoMetric, LevelMetric, PerfLevel, PerfMetric};
use ironstone_base::statistics::{Histogram, StatsLevel, Ticker};

/// Adds the time until it is dropped to a count of the thread, in nanoseconds.
#[must_use]
#[derive(Debug)]
pub struct PerfTimer {
    running: Option<(Counted, Moment)>,
}

#[derive(Clone, Copy, Debug)]
enum Counted {
    Perf(PerfMetric),
    Io(IoMetric),
}

impl Counted {
    #[inline]
    fn add(self, nanos: u64) {
        match self {
            Self::Perf(metric) => perf::count(metric, nanos),
            Self::Io(metric) => perf::count_io(metric, nanos),
        }
    }
}

impl PerfTimer {
    /// Counts the time of work.
    #[inline]
    pub fn start(metric: PerfMetric) -> Self {
        Self::at(PerfLevel::EnableTimeExceptForMutex, Counted::Perf(metric))
    }
    /// Counts time spent waiting for others.
    #[inline]
    pub fn wait(metric: PerfMetric) -> Self {
        Self::at(PerfLevel::EnableWait, Counted::Perf(metric))
    }
    /// Counts time spent waiting for a lock.
    #[inline]
    pub fn lock(metric: PerfMetric) -> Self {
        Self::at(PerfLevel::EnableTime, Counted::Perf(metric))
    }
    /// Counts the time of input or output.
    #[inline]
    pub fn io(metric: IoMetric) -> Self {
        Self::at(PerfLevel::EnableTimeExceptForMutex, Counted::Io(metric))
    }
    /// Whether anything is timed.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }
    #[inline]
    fn at(level: PerfLevel, counted: Counted) -> Self {
        Self { running: if perf::level() >= level { begin(counted) } else { None } }
    }
}

#[cold]
fn begin(counted: Counted) -> Option<(Counted, Moment)> {
    Some((counted, Moment::now()))
}

impl Drop for PerfTimer {
    #[inline]
    fn drop(&mut self) {
        if let Some((counted, start)) = self.running {
            counted.add(start.nanos_passed());
        }
    }
}

/// Adds the time until it is dropped to a count of a level, in nanoseconds. Only where times are counted by level.
#[must_use]
#[derive(Debug)]
pub struct LevelTimer {
    metric: LevelMetric,
    level: u32,
    start: Moment,
}

impl LevelTimer {
    /// Counts the time of work on `level`.
    #[cold]
    pub fn start(metric: LevelMetric, level: u32) -> Self {
        Self { metric, level, start: Moment::now() }
    }
}

impl Drop for LevelTimer {
    fn drop(&mut self) {
        perf::add_at_level(self.metric, self.level, self.start.nanos_passed());
    }
}

/// Adds the processor time of the thread until it is dropped to one of its counts, in nanoseconds.
#[must_use]
#[derive(Debug)]
pub struct PerfCpuTimer {
    running: Option<(Counted, u64)>,
}

impl PerfCpuTimer {
    /// Counts processor time.
    #[inline]
    pub fn start(metric: PerfMetric) -> Self {
        Self::counting(Counted::Perf(metric))
    }
    /// Counts the processor time of input or output.
    #[inline]
    pub fn io(metric: IoMetric) -> Self {
        Self::counting(Counted::Io(metric))
    }
    #[inline]
    fn counting(counted: Counted) -> Self {
        let is_on = perf::level() >= PerfLevel::EnableTimeAndCpuTimeExceptForMutex;
        Self { running: is_on.then(|| (counted, cpu_nanos())) }
    }
}

impl Drop for PerfCpuTimer {
    #[inline]
    fn drop(&mut self) {
        if let Some((counted, start)) = self.running {
            counted.add(cpu_nanos().saturating_sub(start));
        }
    }
}

/// Adds the time until it is dropped to histograms of a [`Statistics`], in the unit of their names.
///
/// Nothing is done, and no clock is read, without statistics or below the level of times ([`StatsLevel::ExceptTimers`]).
#[must_use]
#[derive(Debug)]
pub struct StatsTimer<'a> {
    running: Option<Running<'a>>,
}

#[derive(Debug)]
struct Running<'a> {
    statistics: &'a Statistics,
    histograms: [Option<Histogram>; 2],
    in_nanos: bool,
    start: Moment,
}

impl<'a> StatsTimer<'a> {
    /// Counts microseconds.
    #[inline]
    pub fn start(statistics: Option<&'a Statistics>, histogram: Histogram) -> Self {
        Self::both(statistics, histogram, None)
    }
    /// Counts microseconds in two histograms.
    #[inline]
    pub fn both(statistics: Option<&'a Statistics>, first: Histogram, second: Option<Histogram>) -> Self {
        match statistics {
            Some(statistics) if statistics.timers_enabled() => {
                Self { running: Some(Running::begin(statistics, [Some(first), second], false)) }
            }
            _ => Self { running: None },
        }
    }
    /// Counts nanoseconds, where detailed timers are wanted ([`StatsLevel::ExceptTimeForMutex`] and above).
    #[inline]
    pub fn detailed_nanos(statistics: Option<&'a Statistics>, histogram: Histogram) -> Self {
        match statistics {
            Some(statistics) if statistics.enabled(StatsLevel::ExceptTimeForMutex) => {
                Self { running: Some(Running::begin(statistics, [Some(histogram), None], true)) }
            }
            _ => Self { running: None },
        }
    }
    /// Counts nothing after all.
    pub fn cancel(mut self) {
        self.running = None;
    }
}

impl<'a> Running<'a> {
    #[cold]
    fn begin(statistics: &'a Statistics, histograms: [Option<Histogram>; 2], in_nanos: bool) -> Self {
        Self { statistics, histograms, in_nanos, start: Moment::now() }
    }
}

impl Drop for StatsTimer<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(Running { statistics, histograms, in_nanos, start }) = &self.running {
            let nanos = start.nanos_passed();
            let time = if *in_nanos { nanos } else { nanos / 1000 };
            for histogram in histograms.iter().flatten() {
                statistics.measure_time(*histogram, time);
            }
        }
    }
}

/// Adds the time until it is dropped to a ticker, in nanoseconds.
#[must_use]
#[derive(Debug)]
pub struct TickerTimer<'a> {
    running: Option<(&'a Statistics, Ticker, Moment)>,
}

impl<'a> TickerTimer<'a> {
    /// Counts from now on, if there are statistics.
    #[inline]
    pub fn start(statistics: Option<&'a Statistics>, ticker: Ticker) -> Self {
        Self { running: statistics.map(|statistics| (statistics, ticker, Moment::now())) }
    }
}

impl Drop for TickerTimer<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some((statistics, ticker, start)) = self.running {
            statistics.record(ticker, start.nanos_passed());
        }
    }
}

/// Answers how many microseconds have passed since: for histograms. What is decided by the time asks a [`Clock`](crate::Clock).
pub fn stopwatch() -> impl Fn() -> u64 {
    let start = Moment::now();
    move || start.nanos_passed() / 1000
}

/// Answers how many nanoseconds have passed since, for the same.
#[cold]
pub fn stopwatch_nanos() -> impl Fn() -> u64 {
    let start = Moment::now();
    move || start.nanos_passed()
}

/// The processor time that this thread has had, in nanoseconds.
#[cold]
pub fn cpu_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_have_their_units_and_levels() {
        let statistics = Statistics::new();
        let counted = |level| {
            statistics.reset();
            statistics.set_level(level);
            let timer = StatsTimer::both(Some(&statistics), Histogram::DbGet, Some(Histogram::DbSeek));
            let nanos = StatsTimer::detailed_nanos(Some(&statistics), Histogram::CompressionTimesNanos);
            StatsTimer::start(Some(&statistics), Histogram::DbWrite).cancel();
            drop(StatsTimer::start(None, Histogram::DbWrite));
            assert_ne!((0..100_000_u64).map(std::hint::black_box).sum::<u64>(), 0);
            drop(nanos);
            drop(timer);
            assert_eq!(statistics.histogram(Histogram::DbWrite).count, 0);
            [Histogram::DbGet, Histogram::DbSeek, Histogram::CompressionTimesNanos]
                .map(|histogram| statistics.histogram(histogram))
        };
        assert_eq!(counted(StatsLevel::ExceptTimers).map(|data| data.count), [0; 3]);
        assert_eq!(counted(StatsLevel::ExceptDetailedTimers).map(|data| data.count), [1, 1, 0]);
        let [micros, same, nanos] = counted(StatsLevel::ExceptTimeForMutex);
        assert_eq!(micros.sum, same.sum);
        assert!(nanos.sum >= 1000 && nanos.sum / 1000 <= micros.sum, "{nanos:?} within {micros:?}");
    }

    #[test]
    fn times_are_counted_from_their_level_on() {
        let spend = || {
            let (_time, _wait) =
                (PerfTimer::start(PerfMetric::WriteWalTime), PerfTimer::wait(PerfMetric::WriteDelayTime));
            let (_cpu, _io) =
                (PerfCpuTimer::start(PerfMetric::GetCpuNanos), PerfTimer::io(IoMetric::ReadNanos));
            let _io_cpu = PerfCpuTimer::io(IoMetric::CpuReadNanos);
            assert_ne!((0..100_000_u64).map(std::hint::black_box).sum::<u64>(), 0);
        };
        let counted = |level| {
            perf::set_level(level);
            perf::reset();
            perf::reset_io();
            spend();
            [
                perf::get(PerfMetric::WriteDelayTime),
                perf::get(PerfMetric::WriteWalTime),
                perf::get_io(IoMetric::ReadNanos),
                perf::get(PerfMetric::GetCpuNanos),
                perf::get_io(IoMetric::CpuReadNanos),
            ]
            .map(|nanos| nanos > 0)
        };
        assert_eq!(counted(PerfLevel::Disable), [false; 5]);
        assert_eq!(counted(PerfLevel::EnableCount), [false; 5]);
        assert_eq!(counted(PerfLevel::EnableWait), [true, false, false, false, false]);
        assert_eq!(counted(PerfLevel::EnableTimeExceptForMutex), [true, true, true, false, false]);
        assert_eq!(counted(PerfLevel::EnableTime), [true; 5]);
    }
}
