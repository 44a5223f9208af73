//! What a flush or a part of a compaction looks after while entries pass.

use crate::filter::{CompactionFilter, FilterDecision, PartFilter};
use crate::iterator::EntryRules;
use crate::job::{JobContext, subcompaction};
use ironstone_base::statistics::{StatsLevel, Ticker};
use ironstone_base::sync::atomic::{AtomicBool, Ordering};
use ironstone_base::{Result, Statistics};
use ironstone_sst::disk_share::CompactionTurns;
use ironstone_vfs::TickerTimer;

/// Counts progress, looks whether to stop, and asks the compaction filter.
pub(crate) struct Watch<'a> {
    pub(crate) context: JobContext<'a>,
    /// Set when another part of the same compaction has failed.
    pub(crate) failed: Option<&'a AtomicBool>,
    pub(crate) filter: Option<PartFilter<'a>>,
    /// Of a compaction, which shares the disk with readers.
    pub(crate) turns: Option<CompactionTurns>,
    /// What the filter is told.
    pub(crate) level: usize,
}

impl<'a> Watch<'a> {
    /// For how many nanoseconds it has left the disk to readers.
    pub(crate) fn rested(&self) -> u64 {
        self.turns.as_ref().map_or(0, CompactionTurns::rested)
    }
    /// Times the filter, if detailed timers are wanted.
    fn filter_timer(&self) -> TickerTimer<'a> {
        let detailed = |statistics: &&'a Statistics| statistics.enabled(StatsLevel::ExceptTimeForMutex);
        TickerTimer::start(self.context.statistics().filter(detailed), Ticker::FilterOperationTotalTime)
    }
}

impl EntryRules for Watch<'_> {
    fn tick(&mut self, entries: u64) -> Result<()> {
        if let Some(progress) = self.context.progress {
            progress.add_read(entries);
        }
        if self.failed.is_some_and(|failed| failed.load(Ordering::Relaxed)) {
            return Err(subcompaction::stopped());
        }
        if let Some(turns) = &mut self.turns {
            turns.rest();
        }
        (self.context.cancelled)()
    }
    #[inline]
    fn has_filter(&self) -> bool {
        self.filter.is_some()
    }
    fn filter(&mut self, user_key: &[u8], value: &[u8]) -> Result<FilterDecision> {
        let _timer = self.filter_timer();
        let filter = self.filter.as_ref().map(PartFilter::get);
        Ok(filter.map_or(FilterDecision::Keep, |filter| filter.filter(self.level, user_key, value)))
    }
    fn filter_operand(&mut self, user_key: &[u8], operand: &[u8]) -> Result<FilterDecision> {
        let _timer = self.filter_timer();
        let filter = self.filter.as_ref().map(PartFilter::get);
        let ask = |filter: &dyn CompactionFilter| filter.filter_merge_operand(self.level, user_key, operand);
        Ok(filter.map_or(FilterDecision::Keep, ask))
    }
}
