//! What time it is, and waiting.

use ironstone_base::sync::atomic::{AtomicU64, Ordering};
use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A clock. The wall clock may jump; the monotonic one never goes back.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Microseconds since 1970, by the wall clock.
    fn now_micros(&self) -> u64;
    /// Nanoseconds since some fixed moment, never less than before.
    fn monotonic_nanos(&self) -> u64;
    /// Waits.
    fn sleep(&self, duration: Duration);
    /// A number that hardly comes twice, in this process or another: part of the ids of databases. A simulator
    /// draws it from its seed.
    fn entropy(&self) -> u64 {
        static CALLS: AtomicU64 = AtomicU64::new(0);
        let calls = CALLS.fetch_add(1, Ordering::Relaxed);
        // The addresses that the system gave this process.
        let address = (&raw const CALLS).addr() as u64 ^ (&raw const calls).addr() as u64;
        (u64::from(std::process::id()) << 32 ^ address).rotate_left(20) ^ calls
    }
    /// Seconds since 1970, by the wall clock.
    fn now_seconds(&self) -> u64 {
        self.now_micros() / 1_000_000
    }
}

/// The system's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    #[allow(clippy::disallowed_methods)] // This is where the time comes from.
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods)]
    fn now_micros(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
    fn monotonic_nanos(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
    #[allow(clippy::disallowed_methods)]
    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// A clock that a test moves by hand. Sleeping moves it on and returns at once.
#[derive(Debug, Default)]
pub struct ManualClock {
    wall_micros: AtomicU64,
    monotonic_nanos: AtomicU64,
}

impl ManualClock {
    /// A clock that says `micros` since 1970.
    pub fn new(micros: u64) -> Self {
        Self { wall_micros: AtomicU64::new(micros), monotonic_nanos: AtomicU64::new(0) }
    }
    /// Sets the wall clock, forward or back; the monotonic one stays.
    pub fn set_micros(&self, micros: u64) {
        self.wall_micros.store(micros, Ordering::SeqCst);
    }
    /// Moves both clocks on.
    pub fn advance(&self, by: Duration) {
        self.wall_micros.fetch_add(by.as_micros() as u64, Ordering::SeqCst);
        self.monotonic_nanos.fetch_add(by.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_micros(&self) -> u64 {
        self.wall_micros.load(Ordering::SeqCst)
    }
    fn monotonic_nanos(&self) -> u64 {
        self.monotonic_nanos.load(Ordering::SeqCst)
    }
    fn sleep(&self, duration: Duration) {
        self.advance(duration);
    }
}
