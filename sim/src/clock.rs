//! Virtual time: it goes on when it is looked at, and when somebody sleeps. The wall clock may jump.

use ironstone_base::sync::thread;
use ironstone_vfs::Clock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The 1st of January 2026, in microseconds since 1970.
const START_MICROS: u64 = 1_767_225_600_000_000;
/// What one look at the clock costs.
const LOOK_NANOS: u64 = 200;
/// How often others may go on before a sleeper's time has come.
const TURNS: usize = 4;

/// The clock of one simulation.
#[derive(Debug)]
pub struct SimClock {
    nanos: AtomicU64,
    wall_micros: AtomicU64,
}

impl SimClock {
    /// A clock at the start of time.
    pub fn new() -> Self {
        Self { nanos: AtomicU64::new(0), wall_micros: AtomicU64::new(START_MICROS) }
    }
    /// Sets the wall clock; time goes on from there.
    pub fn jump_to(&self, micros: u64) {
        self.wall_micros.store(micros, Ordering::SeqCst);
    }
}

impl Clock for SimClock {
    fn now_micros(&self) -> u64 {
        self.wall_micros.fetch_add(1, Ordering::SeqCst)
    }
    fn monotonic_nanos(&self) -> u64 {
        self.nanos.fetch_add(LOOK_NANOS, Ordering::SeqCst)
    }
    fn entropy(&self) -> u64 {
        self.nanos.load(Ordering::SeqCst)
    }
    fn sleep(&self, duration: Duration) {
        let until = self.nanos.load(Ordering::SeqCst).saturating_add(duration.as_nanos() as u64);
        for _ in 0..TURNS {
            thread::yield_now();
            if self.nanos.load(Ordering::SeqCst) >= until {
                return;
            }
        }
        self.nanos.fetch_max(until, Ordering::SeqCst);
    }
}
