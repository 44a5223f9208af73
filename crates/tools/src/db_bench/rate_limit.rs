//! Holds threads back to a rate.

use ironstone_base::sync::{Arc, Mutex};
use ironstone_vfs::{Clock, SystemClock};
use std::time::Duration;

/// After a pause this much may be caught up on at once.
const BURST_NANOS: u64 = 100_000_000;

/// Lets so many units (bytes, operations) per second through, all threads together.
pub struct RateLimit {
    clock: Arc<SystemClock>,
    nanos_per_unit: f64,
    /// When the units that were let through are paid for.
    paid_until: Mutex<u64>,
}

impl RateLimit {
    /// `None` for a rate of 0, which means no limit.
    pub fn new(units_per_second: u64, clock: &Arc<SystemClock>) -> Option<Self> {
        let limit = || Self {
            clock: Arc::clone(clock),
            nanos_per_unit: 1e9 / units_per_second as f64,
            paid_until: Mutex::new(clock.monotonic_nanos()),
        };
        (units_per_second > 0).then(limit)
    }

    /// Waits until `units` may go through.
    pub fn request(&self, units: u64) {
        let now = self.clock.monotonic_nanos();
        let wait_until = {
            let mut paid_until = self.paid_until.lock();
            let start = (*paid_until).max(now.saturating_sub(BURST_NANOS));
            *paid_until = start + (units as f64 * self.nanos_per_unit) as u64;
            *paid_until
        };
        if wait_until > now {
            self.clock.sleep(Duration::from_nanos(wait_until - now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept() {
        let clock = Arc::new(SystemClock::new());
        assert!(RateLimit::new(0, &clock).is_none());
        let limit = RateLimit::new(1_000, &clock).unwrap();
        let start = clock.monotonic_nanos();
        (0..10).for_each(|_| limit.request(30));
        let millis = (clock.monotonic_nanos() - start) / 1_000_000;
        assert!((290..2_000).contains(&millis), "{millis}");
    }
}
