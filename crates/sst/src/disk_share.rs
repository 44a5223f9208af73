//! How those who read tables and those who compact them share the disk.
//!
//! A compaction has the disk for as long as it takes, so one that writes as fast as it can leaves readers waiting behind it.
//! While compactions run, the time that readers wait for the disk is added up: over a turn of a compaction, it says how many
//! of them wait at a time. Then the compaction rests for as long as its turn took, for each of them, one at most: half the time is always
//! its own. Writers are slowed down by what compactions achieve, so that readers get their share of the disk from
//! them too.

use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use ironstone_vfs::Clock;
use std::time::Duration;

/// A read that takes less found its pages in memory.
const FROM_DISK_NANOS: u64 = 60_000;
/// The shortest turn: shorter sleeps are not what the system can time.
const TURN_NANOS: u64 = 1_000_000;
/// The longest rest: whoever stops a compaction waits for it.
const LONGEST_REST_NANOS: u64 = 10_000_000;
/// So few readers on average need no room.
const FEW_READERS: f64 = 0.05;

/// What the readers and the compactions of a database know of each other. All of it is relaxed: numbers that may be late.
#[derive(Debug, Default)]
pub struct DiskShare {
    /// Compactions that run.
    compactions: AtomicUsize,
    /// What readers have waited while some ran.
    waited_nanos: AtomicU64,
    is_urgent: AtomicBool,
}

impl DiskShare {
    /// Whether somebody wants to know how long reads take.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.compactions.load(Relaxed) > 0
    }
    /// A reader has waited so long.
    pub fn note_read(&self, nanos: u64) {
        if nanos >= FROM_DISK_NANOS {
            self.waited_nanos.fetch_add(nanos, Relaxed);
        }
    }
    /// Whether compactions shall not rest: writers stand still until they are done.
    pub fn set_urgent(&self, is_urgent: bool) {
        self.is_urgent.store(is_urgent, Relaxed);
    }
}

/// The turns of one thread that compacts.
#[derive(Debug)]
pub struct CompactionTurns {
    share: Arc<DiskShare>,
    clock: Arc<dyn Clock>,
    started: u64,
    waited: u64,
    /// How many readers wait at a time, as lately seen.
    readers: f64,
    rested: u64,
}

impl CompactionTurns {
    /// The first turn begins.
    pub fn start(share: &Arc<DiskShare>, clock: &Arc<dyn Clock>) -> Self {
        share.compactions.fetch_add(1, Relaxed);
        let (share, clock) = (Arc::clone(share), Arc::clone(clock));
        let mut turns = Self { share, clock, started: 0, waited: 0, readers: 0.0, rested: 0 };
        turns.begin();
        turns
    }

    fn begin(&mut self) {
        self.started = self.clock.monotonic_nanos();
        self.waited = self.share.waited_nanos.load(Relaxed);
    }

    /// For how many nanoseconds it has left the disk to readers.
    pub fn rested(&self) -> u64 {
        self.rested
    }

    /// If the turn was long enough, leaves the disk to those who waited for it meanwhile.
    pub fn rest(&mut self) {
        let turn = self.clock.monotonic_nanos().saturating_sub(self.started);
        if turn < TURN_NANOS {
            return;
        }
        let waited = self.share.waited_nanos.load(Relaxed).saturating_sub(self.waited);
        self.readers += 0.2 * (waited as f64 / turn as f64 - self.readers);
        if self.readers >= FEW_READERS && !self.share.is_urgent.load(Relaxed) {
            let rest = (turn.min(LONGEST_REST_NANOS) as f64 * self.readers.min(1.0)) as u64;
            self.clock.sleep(Duration::from_nanos(rest));
            self.rested += rest;
        }
        self.begin();
    }
}

impl Drop for CompactionTurns {
    fn drop(&mut self) {
        self.share.compactions.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironstone_vfs::ManualClock;

    const MILLISECOND: u64 = 1_000_000;

    /// Answers the rests of ten turns of so many milliseconds, in each of which readers wait so often for so many
    /// microseconds.
    fn rests(share: &Arc<DiskShare>, milliseconds: u64, reads: (u64, u64)) -> Vec<u64> {
        let clock = Arc::new(ManualClock::new(0));
        let shared: Arc<dyn Clock> = clock.clone();
        let mut turns = CompactionTurns::start(share, &shared);
        let rest = |_| {
            assert!(share.is_watched());
            clock.advance(Duration::from_millis(milliseconds));
            (0..reads.0).for_each(|_| share.note_read(reads.1 * 1000));
            let (before, rested) = (clock.monotonic_nanos(), turns.rested());
            turns.rest();
            let rest = clock.monotonic_nanos() - before;
            assert_eq!(turns.rested() - rested, rest);
            rest
        };
        (0..10).map(rest).collect()
    }

    #[test]
    fn a_compaction_rests_while_readers_wait_and_never_for_longer_than_it_worked() {
        let share = Arc::new(DiskShare::default());
        assert_eq!(rests(&share, 4, (0, 0)), [0; 10], "nobody reads");
        assert_eq!(rests(&share, 4, (1000, 59)), [0; 10], "from memory");
        assert_eq!(rests(&share, 4, (1, 190)), [0; 10], "few");
        let one = rests(&share, 4, (20, 200));
        assert!(one.is_sorted() && one[0] == 4 * MILLISECOND / 5, "{one:?}");
        assert!(one[9] > 4 * MILLISECOND * 85 / 100 && one[9] < 4 * MILLISECOND, "{one:?}");
        let half = rests(&share, 4, (10, 200));
        assert!(half[9] > 2 * MILLISECOND * 85 / 100 && half[9] < 2 * MILLISECOND, "{half:?}");
        assert_eq!(
            rests(&share, 4, (200, 200))[1..],
            [4 * MILLISECOND; 9],
            "ten of them have no more than half the time"
        );
        assert_eq!(rests(&share, 4000, (20_000, 200))[9] / MILLISECOND, 8, "long turns have short rests");
        assert!(!share.is_watched());
    }

    #[test]
    fn a_compaction_that_writers_wait_for_does_not_rest() {
        let share = Arc::new(DiskShare::default());
        share.set_urgent(true);
        assert_eq!(rests(&share, 4, (200, 200)), [0; 10]);
        share.set_urgent(false);
        assert!(rests(&share, 4, (200, 200))[9] > 0);
    }

    #[test]
    fn turns_are_not_shorter_than_can_be_timed() {
        let share = Arc::new(DiskShare::default());
        let clock = Arc::new(ManualClock::new(0));
        let shared: Arc<dyn Clock> = clock.clone();
        let mut turns = CompactionTurns::start(&share, &shared);
        share.note_read(10 * MILLISECOND);
        clock.advance(Duration::from_micros(999));
        turns.rest();
        assert_eq!(turns.rested(), 0);
        clock.advance(Duration::from_micros(1));
        turns.rest();
        assert_eq!(turns.rested(), MILLISECOND, "what was waited before counts in the whole turn");
    }
}
