//! An iterator over a memtable, with times of its seeks.

use ironstone_base::perf::{self, PerfMetric};
use ironstone_base::{InternalKey, Result};
use ironstone_iter::{InternalIterator, leave_steps_to_iterator_below};
use ironstone_memtable::MemTableIter;
use ironstone_vfs::PerfTimer;

/// Takes the times of seeks to a key, as RocksDB does: those to the first and the last entry are not among them.
pub(super) struct TimedMemTable(pub(super) MemTableIter);

#[cold]
fn timed(seek: impl FnOnce() -> Result<bool>) -> Result<bool> {
    let _timer = PerfTimer::start(PerfMetric::SeekOnMemtableTime);
    seek()
}

impl InternalIterator for TimedMemTable {
    #[inline]
    fn valid(&self) -> bool {
        self.0.valid()
    }
    fn seek_to_first(&mut self) -> Result<bool> {
        self.0.seek_to_first()
    }
    fn seek_to_last(&mut self) -> Result<bool> {
        self.0.seek_to_last()
    }
    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool> {
        if perf::is_timing() {
            return timed(|| self.0.seek(target));
        }
        self.0.seek(target)
    }
    fn seek_for_prev(&mut self, target: InternalKey<'_>) -> Result<bool> {
        if perf::is_timing() {
            return timed(|| self.0.seek_for_prev(target));
        }
        self.0.seek_for_prev(target)
    }
    leave_steps_to_iterator_below!(0);
}
