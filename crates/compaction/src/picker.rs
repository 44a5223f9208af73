//! Automatic compaction: what to do next. For universal and FIFO style see `universal` and `fifo`.
//!
//! In this order, the first that can run beside what runs already:
//! 1. the levels whose score is at least 1, most urgent first;
//! 2. files marked for compaction;
//! 3. files of the bottom with old versions or tombstones that a released snapshot was holding;
//! 4. files older than `ttl`, 5. files older than `periodic_compaction_seconds`, or soon to be in off-peak hours (`offpeak`);
//! 6. files that were often asked for what they do not have.
//!
//! The rules that keep reads right, whatever is picked:
//! * All files of a level that hold entries of one user key go together (*clean cut*): a newer entry
//!   never sinks below an older one.
//! * A level 0 file goes down only together with all older level 0 files that it overlaps.
//! * The inputs hold every file of the output level that overlaps their key range, and no running
//!   compaction reads an input or writes into that range.

pub mod drop_ranges;
mod fifo;
mod incremental;
mod inputs;
mod level0;
pub mod manual;
mod order;
#[cfg(test)]
mod tests;
mod universal;

use crate::options::{CompactionOptions, CompactionPriority, CompactionStyle};
use crate::plan::{CompactionPlan, CompactionReason};
use crate::running::RunningCompactions;
use crate::shape::LevelShape;
use inputs::Draft;
use ironstone_base::sync::Arc;
use ironstone_base::{FileNumber, SequenceNumber};
use ironstone_version::{FileMetaData, Version};
use std::collections::BTreeSet;
use universal::is_older;
pub use universal::sorted_run_count;

/// What a picker must know besides the version, the options and what runs now.
#[derive(Clone, Copy, Default)]
pub struct PickContext<'a> {
    /// Seconds since 1970, for files that got too old.
    pub now_seconds: u64,
    /// Files of the bottom whose newest entry is older than this hold nothing back for a snapshot any more,
    /// and are rewritten once. When a snapshot is released, the database raises it to the oldest snapshot
    /// left, or to the last sequence number if none is left. Zero if none was ever released.
    pub bottommost_threshold: SequenceNumber,
    /// The size of a file with its tombstones weighed in, where the caller knows better than the file's
    /// length.
    pub compensate: Option<&'a dyn Fn(&FileMetaData) -> u64>,
    /// Files that somebody wants compacted, besides those that are marked in the MANIFEST.
    pub suggested: Option<&'a BTreeSet<FileNumber>>,
    /// Files that reads would be better off without, the worst first.
    pub often_read: &'a [FileNumber],
    /// Which compactions the caller has a thread for.
    pub wanted: Wanted,
}

/// Which compactions are asked for: those that write the last level may have threads of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wanted {
    /// All of them.
    #[default]
    All,
    /// Only those that rewrite files into the last level.
    LastLevel,
    /// All but these: the next that is due is found behind them.
    AllButLastLevel,
}

impl PickContext<'_> {
    /// Whether somebody, or a collector of tombstones, asked for the file to be compacted.
    pub(crate) fn is_marked(&self, file: &FileMetaData) -> bool {
        file.marked_for_compaction || self.suggested.is_some_and(|files| files.contains(&file.number))
    }
    /// The size that counts for scores and priorities.
    pub(crate) fn size_of(&self, file: &FileMetaData) -> u64 {
        let plain = file.file_size.saturating_add(file.compensated_range_deletion_size);
        self.compensate.map_or(plain, |compensate| compensate(file).max(plain))
    }
}

/// The next automatic compaction, or `None` if nothing is due or can run now. Pure: the caller registers the
/// plan with `running` before it asks again.
pub fn pick_automatic(
    version: &Version,
    options: &CompactionOptions,
    running: &RunningCompactions,
    context: &PickContext<'_>,
) -> Option<CompactionPlan> {
    if running.has_exclusive() {
        return None;
    }
    let picker = Picker::new(version, options, running, context);
    let wanted = |plan: &CompactionPlan| picker.is_wanted(plan);
    match options.style {
        CompactionStyle::Universal => return picker.pick_universal(),
        CompactionStyle::Fifo => return picker.pick_fifo().filter(wanted),
        CompactionStyle::Level if version.num_levels() < 2 => return None,
        CompactionStyle::Level => {}
    }
    // Of each rule what it would do next, wanted or not: to look for another file of the same level would take long.
    picker
        .by_score()
        .or_else(|| picker.marked().filter(wanted))
        .or_else(|| picker.released().filter(wanted))
        .or_else(|| picker.expired().filter(wanted))
        .or_else(|| picker.periodic().filter(wanted))
        .or_else(|| picker.often_read().filter(wanted))
}

/// Whether [`pick_automatic`] would find something. Costs as much.
pub fn needs_compaction(
    version: &Version,
    options: &CompactionOptions,
    running: &RunningCompactions,
    context: &PickContext<'_>,
) -> bool {
    pick_automatic(version, options, running, context).is_some()
}

/// One pick.
pub(crate) struct Picker<'a> {
    version: &'a Version,
    options: &'a CompactionOptions,
    running: &'a RunningCompactions,
    context: &'a PickContext<'a>,
    shape: LevelShape,
}

impl<'a> Picker<'a> {
    pub(crate) fn new(
        version: &'a Version,
        options: &'a CompactionOptions,
        running: &'a RunningCompactions,
        context: &'a PickContext<'a>,
    ) -> Self {
        Self { version, options, running, context, shape: LevelShape::new(version, options) }
    }

    /// The deepest level with files, but for one that is kept for files ingested behind: no compaction touches it.
    fn last_level(&self) -> Option<usize> {
        (0..=self.options.max_output_level()).rev().find(|&level| !self.version.files(level).is_empty())
    }

    /// Whether the caller has a thread for `plan`.
    fn is_wanted(&self, plan: &CompactionPlan) -> bool {
        match self.context.wanted {
            Wanted::All => true,
            Wanted::LastLevel => plan.rewrites_last_level(self.options),
            Wanted::AllButLastLevel => !plan.rewrites_last_level(self.options),
        }
    }

    /// Whether it may run beside what runs, and the caller has a thread for it.
    fn admits(&self, plan: &CompactionPlan) -> bool {
        self.running.admits(plan) && self.is_wanted(plan)
    }

    fn by_score(&self) -> Option<CompactionPlan> {
        let mut level0_waits = false;
        for due in self.shape.scores(self.version, self.options, self.running, self.context) {
            if due.score < 1.0 {
                return None;
            }
            if due.level == 0 {
                if let Some(plan) = self.pick_level0(due.score) {
                    return Some(plan);
                }
                level0_waits = true;
            } else if level0_waits && due.level == self.shape.base_level {
                // More work from the base level would keep level 0 waiting, and with it the writers.
            } else if let Some(plan) = self
                .pick_lower(due.level, due.score, CompactionReason::LevelMaxLevelSize)
                .filter(|plan| self.is_wanted(plan))
            {
                return Some(plan);
            }
        }
        None
    }

    /// A compaction of `level`, which is not 0, into the next.
    fn pick_lower(&self, level: usize, score: f64, reason: CompactionReason) -> Option<CompactionPlan> {
        let round_robin = self.options.compaction_pri == CompactionPriority::RoundRobin;
        let mut order = self.files_by_priority(level);
        if round_robin {
            order.truncate(1); // Nobody overtakes: the cursor says whose turn it is.
        }
        let draft = order.into_iter().find_map(|at| self.draft_lower(level, at, round_robin))?;
        let mut plan = self.plan(draft, reason);
        plan.score = score;
        if round_robin {
            plan.compact_cursor = self.next_cursor(&plan);
        }
        Some(plan)
    }

    /// Where the round continues after `plan`.
    fn next_cursor(&self, plan: &CompactionPlan) -> Option<(usize, ironstone_base::InternalKeyBuf)> {
        let level = plan.start_level();
        let files = self.version.files(level);
        let last = plan.inputs.first()?.files.last()?;
        let at = files.iter().position(|file| file.number == last.number)?;
        Some((level, files[(at + 1) % files.len()].smallest.clone()))
    }

    /// Files that somebody, or a collector of tombstones, asked to be compacted. On the last level with files
    /// there is nowhere to go.
    fn marked(&self) -> Option<CompactionPlan> {
        let levels = 0..self.last_level().unwrap_or(0).max(1);
        self.first_file(levels, |_, file| self.context.is_marked(file), |level| Some(level + 1))
            .map(|draft| self.plan(draft, CompactionReason::FilesMarkedForCompaction))
    }

    /// Files with nothing older below, that keep old versions or tombstones which no snapshot needs any more.
    fn released(&self) -> Option<CompactionPlan> {
        let threshold = self.context.bottommost_threshold;
        if threshold == SequenceNumber::ZERO || self.options.allow_ingest_behind {
            return None;
        }
        let newest = match self.options.bottommost_file_compaction_delay {
            0 => u64::MAX,
            delay => self.context.now_seconds.checked_sub(delay)?,
        };
        let due = |_: usize, file: &FileMetaData| {
            file.largest_seqno != SequenceNumber::ZERO
                && file.largest_seqno < threshold
                && file.file_creation_time <= newest
        };
        // Only if the rewrite as a whole stands at the bottom: otherwise it would change nothing, for ever.
        self.all_drafts(0..self.options.max_output_level() + 1, due, Some)
            .map(|draft| self.plan(draft, CompactionReason::BottommostFiles))
            .find(|plan| plan.bottommost)
    }

    /// Data older than `ttl` goes down.
    fn expired(&self) -> Option<CompactionPlan> {
        let now = self.context.now_seconds;
        let limit = now.checked_sub(self.options.ttl).filter(|_| self.options.ttl > 0)?;
        let due = |file: &FileMetaData| file.oldest_ancester_time > 0 && file.oldest_ancester_time < limit;
        let last = self.last_level()?;
        if self.options.compaction_pri == CompactionPriority::RoundRobin {
            let level = (1..last).find(|&level| self.version.files(level).iter().any(|file| due(file)));
            if let Some(plan) =
                level.and_then(|level| self.pick_lower(level, 0.0, CompactionReason::RoundRobinTtl))
            {
                return Some(plan);
            }
        }
        self.first_file(0..last, |_, file| due(file), |level| Some(level + 1))
            .map(|draft| self.plan(draft, CompactionReason::Ttl))
    }

    /// Files older than `periodic_compaction_seconds` are rewritten.
    fn periodic(&self) -> Option<CompactionPlan> {
        let limit = self.periodic_limit()?;
        let due = |_: usize, file: &FileMetaData| is_older(file, limit);
        let last = self.last_level()?;
        let down = self.options.level_compaction_dynamic_level_bytes;
        self.first_file(0..last + 1, due, |level| Some(if down && level < last { level + 1 } else { level }))
            .map(|draft| self.plan(draft, CompactionReason::PeriodicCompaction))
    }

    /// Files that were often asked for what they do not have go down, the worst first. As for [`marked`](Self::marked) files,
    /// on the last level there is nowhere to go.
    fn often_read(&self) -> Option<CompactionPlan> {
        let levels = 0..self.last_level().unwrap_or(0).max(1);
        let draft = self.context.often_read.iter().find_map(|&number| {
            self.first_file(levels.clone(), |_, file| file.number == number, |level| Some(level + 1))
        })?;
        Some(self.plan(draft, CompactionReason::ReadTriggered))
    }

    /// Files made before this are rewritten: those that are too old, and in off-peak hours those that would be before the next ones
    /// begin. What was made since these began waits for its time, or it would be rewritten again and again.
    fn periodic_limit(&self) -> Option<u64> {
        let (seconds, now) = (self.options.periodic_compaction_seconds, self.context.now_seconds);
        let limit = now.checked_sub(seconds).filter(|_| seconds > 0)?;
        let Some((offpeak, began)) =
            self.options.daily_offpeak.and_then(|offpeak| Some((offpeak, offpeak.began(now)?)))
        else {
            return Some(limit);
        };
        let ahead = limit.saturating_add(offpeak.seconds_to_next_start(now));
        Some(limit.max(ahead.min(began)))
    }

    fn first_file(
        &self,
        levels: std::ops::Range<usize>,
        due: impl Fn(usize, &FileMetaData) -> bool,
        output_level: impl Fn(usize) -> Option<usize>,
    ) -> Option<Draft> {
        self.all_drafts(levels, due, output_level).next()
    }

    /// For each idle file that is `due`: the compaction of it, if it can run. Level 0 goes to the base level,
    /// where `output_level` says level 1.
    fn all_drafts(
        &self,
        levels: std::ops::Range<usize>,
        due: impl Fn(usize, &FileMetaData) -> bool,
        output_level: impl Fn(usize) -> Option<usize>,
    ) -> impl Iterator<Item = Draft> {
        let base_level = self.shape.base_level;
        self.all_drafts_into(levels, due, move |level| {
            output_level(level).map(|output| if level == 0 && output > 0 { base_level } else { output })
        })
    }

    /// The same with the output level exactly as `output_level` says.
    fn all_drafts_into(
        &self,
        levels: std::ops::Range<usize>,
        due: impl Fn(usize, &FileMetaData) -> bool,
        output_level: impl Fn(usize) -> Option<usize>,
    ) -> impl Iterator<Item = Draft> {
        levels
            .flat_map(|level| (0..self.version.files(level).len()).map(move |at| (level, at)))
            .filter(move |&(level, at)| {
                let file: &Arc<FileMetaData> = &self.version.files(level)[at];
                due(level, file) && !self.running.is_busy(file.number)
            })
            .filter_map(move |(level, at)| {
                let output_level = output_level(level)?;
                if level == 0 {
                    return self.draft_level0_file(at, output_level);
                }
                let start = self.idle_clean_cut(level, at..at + 1)?;
                let draft = self.with_output(level, start, output_level)?;
                Some(self.grow(draft, false))
            })
    }
}
