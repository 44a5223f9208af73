//! Moments that cost little to take, for lengths of time by which nothing is decided.
//!
//! Asking the system for the time takes 20 to 30 ns, more where loads are on their way: it waits for them, so that moments have an order
//! among other things that happen. A histogram needs none. Where the kernel takes its own time from the processor's counter (clock source
//! `tsc`, which it checks: at a constant rate, the same on all processors), a moment is that counter, read without waiting. What a
//! tick is in nanoseconds is learnt by looking at both clocks twice, 100 ms or more between them; until then, and everywhere
//! else, moments are the system's.
//! What it gains is in docs/design/0012-times-of-operations.md.
//!
//! # Safety argument
//! 1. `rdtsc` reads a register of the processor, which every x86-64 has, and no memory. A system that forbids it to processes does not
//!    name `tsc` as the source of its own clock, which processes read the same way.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods)] // Nothing is decided by these times, so they are real even where a simulator owns the database's.

use std::time::Instant;

/// A moment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moment {
    /// By the processor's counter.
    #[cfg_attr(not(all(target_arch = "x86_64", target_os = "linux", not(miri))), allow(dead_code))]
    Ticks(u64),
    /// By the system's clock.
    System(Instant),
}

impl Moment {
    /// This moment.
    #[inline]
    pub(crate) fn now() -> Self {
        match counter::unit() {
            0 => Self::System(counter::learn()),
            _ => Self::Ticks(counter::read()),
        }
    }
    /// Nanoseconds that have passed since.
    #[inline]
    pub(crate) fn nanos_passed(self) -> u64 {
        match self {
            Self::Ticks(then) => nanos_of(counter::read().saturating_sub(then), counter::unit()),
            Self::System(then) => u64::try_from(then.elapsed().as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

/// The length of `ticks`, a tick having `unit` nanoseconds, times 2^32.
#[inline]
fn nanos_of(ticks: u64, unit: u64) -> u64 {
    u64::try_from((u128::from(ticks) * u128::from(unit)) >> 32).unwrap_or(u64::MAX)
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
mod counter {
    pub(super) fn unit() -> u64 {
        0
    }
    pub(super) fn read() -> u64 {
        0
    }
    pub(super) fn learn() -> std::time::Instant {
        std::time::Instant::now()
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
mod counter {
    use std::sync::OnceLock;
    // Not those of `base::sync`: that the unit is known depends on real time, which must not move a simulator's schedule.
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    /// Two readings within a microsecond each, so far apart, tell the rate to 20 in a million.
    pub(super) const LEARNT_AFTER: Duration = Duration::from_millis(100);

    /// Nanoseconds of a tick, times 2^32; 0 while they are not known. Relaxed: goes with no other memory.
    static UNIT: AtomicU64 = AtomicU64::new(0);

    #[inline]
    pub(super) fn unit() -> u64 {
        UNIT.load(Relaxed)
    }
    #[inline]
    pub(super) fn read() -> u64 {
        // SAFETY: no memory (1).
        unsafe { std::arch::x86_64::_rdtsc() }
    }

    /// The time by the system's clock. On the way the unit is learnt, if it can be.
    #[cold]
    pub(super) fn learn() -> Instant {
        static FIRST: OnceLock<Option<(Instant, u64)>> = OnceLock::new();
        let now = Instant::now();
        if let Some((first, first_ticks)) = FIRST.get_or_init(|| kernel_counts_ticks().then(both))
            && now.saturating_duration_since(*first) >= LEARNT_AFTER
        {
            let (second, ticks) = both();
            let unit = unit_of(second.saturating_duration_since(*first), ticks.saturating_sub(*first_ticks));
            // The first to learn it: lengths that are being measured keep their unit.
            let _ = UNIT.compare_exchange(0, unit, Relaxed, Relaxed);
        }
        now
    }

    /// The length of a tick, or 0 if there were fewer than 10 in a microsecond or more than 10 in a nanosecond: that is no such counter.
    pub(super) fn unit_of(passed: Duration, ticks: u64) -> u64 {
        let nanos = passed.as_nanos();
        let ticks = u128::from(ticks);
        if ticks > 10 * nanos || ticks * 100 < nanos || ticks == 0 {
            return 0;
        }
        ((nanos << 32) / ticks) as u64
    }

    /// Whether the kernel's clock is this counter.
    fn kernel_counts_ticks() -> bool {
        let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        std::fs::read_to_string(source).is_ok_and(|source| source.trim() == "tsc")
    }

    /// The time and the counter at one moment: of five readings the one in which the least time passed between the two.
    fn both() -> (Instant, u64) {
        let reading = |_| {
            let before = read();
            let time = Instant::now();
            let took = read().saturating_sub(before);
            (took, (time, before + took / 2))
        };
        let readings: [_; 5] = std::array::from_fn(reading);
        readings.into_iter().min_by_key(|(took, _)| *took).expect("there are five").1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits until `is_over` or ten seconds have passed.
    fn spin(is_over: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_over() && start.elapsed().as_secs() < 10 {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn lengths_are_those_of_the_systems_clock() {
        let agree = |outer: u64, inner: u64| outer + outer / 100 + 1000 >= inner;
        // From the first moment of a process to long after its counter is known.
        for _ in 0..30 {
            let (outside, moment, inside) = (Instant::now(), Moment::now(), Instant::now());
            spin(|| inside.elapsed().as_millis() >= 10);
            let (inside, passed, outside) = (inside.elapsed(), moment.nanos_passed(), outside.elapsed());
            assert!(agree(passed, inside.as_nanos() as u64), "{passed} ns in {inside:?}");
            assert!(agree(outside.as_nanos() as u64, passed), "{passed} ns in {outside:?}");
        }
    }

    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    #[test]
    fn counters_that_run_at_no_likely_rate_are_not_used() {
        use std::time::Duration;
        let second = Duration::from_secs(1);
        assert_eq!(counter::unit_of(second, 1 << 31), ((1_000_000_000_u128 << 32) >> 31) as u64);
        assert_eq!(nanos_of(1 << 31, counter::unit_of(second, 1 << 31)), 1_000_000_000);
        for ticks in [0, 1, 9_999_999, 10_000_000_001, u64::MAX] {
            assert_eq!(counter::unit_of(second, ticks), 0, "{ticks}");
        }
        assert!(counter::unit_of(second, 10_000_000) > 0 && counter::unit_of(second, 10_000_000_000) > 0);
        assert_eq!(nanos_of(u64::MAX, u64::MAX), u64::MAX);
    }

    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    #[test]
    fn the_counter_is_used_where_the_kernel_uses_it_once_its_unit_is_known() {
        let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        let is_tsc = std::fs::read_to_string(source).is_ok_and(|source| source.trim() == "tsc");
        let start = Instant::now();
        let is_ticks = || matches!(Moment::now(), Moment::Ticks(_));
        spin(|| is_ticks() || start.elapsed() > 3 * counter::LEARNT_AFTER);
        assert_eq!(is_ticks(), is_tsc);
    }
}
