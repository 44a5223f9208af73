//! What an iterator does, for statistics.

use ironstone_base::Statistics;
use ironstone_base::statistics::Ticker;
use ironstone_base::sync::Arc;

/// Counts of one iterator, which reach the statistics when it is dropped: until then nobody else waits for them.
pub(super) struct IteratorCounts {
    pub(super) statistics: Arc<Statistics>,
    pub(super) next: u64,
    pub(super) next_found: u64,
    pub(super) prev: u64,
    pub(super) prev_found: u64,
    pub(super) bytes: u64,
    pub(super) skipped: u64,
}

impl IteratorCounts {
    pub(super) fn new(statistics: Arc<Statistics>) -> Self {
        statistics.record(Ticker::NoIteratorCreated, 1);
        statistics.record(Ticker::NumberSuperversionAcquires, 1);
        Self { statistics, next: 0, next_found: 0, prev: 0, prev_found: 0, bytes: 0, skipped: 0 }
    }
}

impl Drop for IteratorCounts {
    fn drop(&mut self) {
        let counts = [
            (Ticker::NumberDbNext, self.next),
            (Ticker::NumberDbNextFound, self.next_found),
            (Ticker::NumberDbPrev, self.prev),
            (Ticker::NumberDbPrevFound, self.prev_found),
            (Ticker::IterBytesRead, self.bytes),
            (Ticker::NumberIterSkip, self.skipped),
            (Ticker::NoIteratorDeleted, 1),
            (Ticker::NumberSuperversionReleases, 1),
        ];
        for (ticker, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            self.statistics.record(ticker, count);
        }
    }
}
