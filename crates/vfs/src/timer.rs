//! What the counts of a thread (`base::perf`) say of times. Nothing is decided by them, so they come from the
//! system's clocks even where a simulator owns the database's.

use ironstone_base::perf::{self, IoMetric, PerfLevel, PerfMetric};
use std::time::Instant;

/// Adds the time until it is dropped to a count of the thread, in nanoseconds.
#[must_use]
#[derive(Debug)]
pub struct PerfTimer {
    running: Option<(Counted, Instant)>,
}

#[derive(Clone, Copy, Debug)]
enum Counted {
    Perf(PerfMetric),
    Io(IoMetric),
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
    /// Counts the time of input or output.
    #[inline]
    pub fn io(metric: IoMetric) -> Self {
        Self::at(PerfLevel::EnableTimeExceptForMutex, Counted::Io(metric))
    }
    #[inline]
    fn at(level: PerfLevel, counted: Counted) -> Self {
        Self { running: if perf::level() >= level { begin(counted) } else { None } }
    }
}

#[cold]
#[allow(clippy::disallowed_methods)] // See the top.
fn begin(counted: Counted) -> Option<(Counted, Instant)> {
    Some((counted, Instant::now()))
}

impl Drop for PerfTimer {
    #[inline]
    fn drop(&mut self) {
        if let Some((counted, start)) = self.running {
            let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            match counted {
                Counted::Perf(metric) => perf::count(metric, nanos),
                Counted::Io(metric) => perf::count_io(metric, nanos),
            }
        }
    }
}

/// Adds the processor time of the thread until it is dropped to one of its counts, in nanoseconds.
#[must_use]
#[derive(Debug)]
pub struct PerfCpuTimer {
    running: Option<(PerfMetric, u64)>,
}

impl PerfCpuTimer {
    /// Counts processor time.
    #[inline]
    pub fn start(metric: PerfMetric) -> Self {
        let is_on = perf::level() >= PerfLevel::EnableTimeAndCpuTimeExceptForMutex;
        Self { running: is_on.then(|| (metric, cpu_nanos())) }
    }
}

impl Drop for PerfCpuTimer {
    #[inline]
    fn drop(&mut self) {
        if let Some((metric, start)) = self.running {
            perf::count(metric, cpu_nanos().saturating_sub(start));
        }
    }
}

/// Answers how many microseconds have passed since, by the system's clock: for histograms, by which nothing is decided.
#[allow(clippy::disallowed_methods)] // See the top.
pub fn stopwatch() -> impl FnOnce() -> u64 {
    let start = Instant::now();
    move || u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX)
}

#[cold]
fn cpu_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_from_their_level_on() {
        let spend = || {
            let (_time, _wait) =
                (PerfTimer::start(PerfMetric::WriteWalTime), PerfTimer::wait(PerfMetric::WriteDelayTime));
            let (_cpu, _io) =
                (PerfCpuTimer::start(PerfMetric::GetCpuNanos), PerfTimer::io(IoMetric::ReadNanos));
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
            ]
            .map(|nanos| nanos > 0)
        };
        assert_eq!(counted(PerfLevel::Disable), [false; 4]);
        assert_eq!(counted(PerfLevel::EnableCount), [false; 4]);
        assert_eq!(counted(PerfLevel::EnableWait), [true, false, false, false]);
        assert_eq!(counted(PerfLevel::EnableTimeExceptForMutex), [true, true, true, false]);
        assert_eq!(counted(PerfLevel::EnableTime), [true; 4]);
    }
}
