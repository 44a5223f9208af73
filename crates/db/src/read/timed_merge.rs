//! The merge of all places that an iterator walks, with times of its seeks.

use ironstone_base::perf::{self, PerfMetric};
use ironstone_base::{InternalKey, Result};
use ironstone_iter::{
    BoxedIterator, Direction, InternalIterator, MergingIterator, leave_steps_to_iterator_below,
};
use ironstone_vfs::PerfTimer;

/// A merge that takes the times of what RocksDB calls seeks of children, and heaps: here a tree.
pub(super) struct TimedMerge(pub(super) MergingIterator);

impl TimedMerge {
    fn start(
        &mut self,
        direction: Direction,
        place: impl FnMut(&mut BoxedIterator) -> Result<bool>,
    ) -> Result<bool> {
        perf::count(PerfMetric::SeekChildSeekCount, self.0.child_count() as u64);
        if perf::is_timing() {
            return self.start_timed(direction, place);
        }
        self.0.place(direction, place)?;
        Ok(self.0.play_all())
    }

    #[cold]
    fn start_timed(
        &mut self,
        direction: Direction,
        place: impl FnMut(&mut BoxedIterator) -> Result<bool>,
    ) -> Result<bool> {
        let timer = PerfTimer::start(PerfMetric::SeekChildSeekTime);
        self.0.place(direction, place)?;
        drop(timer);
        let _timer = PerfTimer::start(match direction {
            Direction::Forward => PerfMetric::SeekMinHeapTime,
            Direction::Backward => PerfMetric::SeekMaxHeapTime,
        });
        Ok(self.0.play_all())
    }
}

impl InternalIterator for TimedMerge {
    #[inline]
    fn valid(&self) -> bool {
        self.0.valid()
    }
    fn seek_to_first(&mut self) -> Result<bool> {
        self.start(Direction::Forward, |child| child.seek_to_first())
    }
    fn seek_to_last(&mut self) -> Result<bool> {
        self.start(Direction::Backward, |child| child.seek_to_last())
    }
    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool> {
        self.start(Direction::Forward, |child| child.seek(target))
    }
    fn seek_for_prev(&mut self, target: InternalKey<'_>) -> Result<bool> {
        self.start(Direction::Backward, |child| child.seek_for_prev(target))
    }
    leave_steps_to_iterator_below!(0);
}
