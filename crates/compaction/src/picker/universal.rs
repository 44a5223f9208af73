//! Universal compaction: the tree is a list of sorted runs, newest first, and neighbours in it are merged.
//! Each file of level 0 is a run, and so is each deeper level that has files.
//!
//! In this order, the first that can run beside what runs already:
//! 1. all runs, because a file is older than `periodic_compaction_seconds`;
//! 2. all runs, because those above the last are large beside it (*size amplification*); if `incremental`, only a
//!    part of the last two, where that is cheap: see `incremental`;
//! 3. runs of similar size (*size ratio*); 4. any, because there are too many (*read amplification*);
//! 5. level 0, because writers are stopped and no rule before this one lets them go on;
//! 6. files marked for compaction, 7. files that were often asked for what they do not have, as in levelled compaction.
//!
//! The output goes right above the next older run: to level 0 if that is a file of level 0, else to the level
//! before it, which is empty or an input; with no older run, to the last level. Runs stay in the order of
//! their age because inputs are neighbours and nothing that runs is passed over.

use crate::options::StopStyle;
use crate::picker::Picker;
use crate::plan::{CompactionPlan, CompactionReason, LevelInputs, PlanKind};
use ironstone_base::sync::Arc;
use ironstone_sst::CompressionKind;
use ironstone_version::FileMetaData;
use std::ops::Range;

/// How many times the bytes that a compaction of everything rewrites for each byte of newer runs a compaction of a part
/// may rewrite.
const PENALTY: f64 = 1.8;

/// A file of level 0, or all files of another level.
pub(super) struct SortedRun<'a> {
    pub(super) level: usize,
    pub(super) files: &'a [Arc<FileMetaData>],
    bytes: u64,
    /// With tombstones weighed in.
    compensated_bytes: u64,
    busy: bool,
}

/// How many sorted runs a version has, for universal compaction: what readers look into, and what counts for
/// write stalls.
pub fn sorted_run_count(version: &ironstone_version::Version) -> usize {
    version.files(0).len() + (1..version.num_levels()).filter(|&level| version.level_bytes(level) > 0).count()
}

impl Picker<'_> {
    /// The next universal compaction.
    pub(super) fn pick_universal(&self) -> Option<CompactionPlan> {
        let runs = self.sorted_runs();
        let due = runs.len() >= self.options.level0_file_num_compaction_trigger.max(1);
        let plan = self.periodic_of_runs(&runs);
        let plan = plan.or_else(|| due.then(|| self.reduce_size_amplification(&runs)).flatten());
        let plan = plan.or_else(|| due.then(|| self.merge_similar(&runs)).flatten());
        let plan = plan.or_else(|| due.then(|| self.reduce_run_count(&runs)).flatten());
        let plan = plan.or_else(|| self.let_writers_go_on(&runs));
        let plan = plan.or_else(|| {
            let reason = CompactionReason::FilesMarkedForCompaction;
            self.files_of_runs(&runs, reason, |file| self.context.is_marked(file))
        });
        plan.or_else(|| {
            let reason = CompactionReason::ReadTriggered;
            let mut often_read = self.context.often_read.iter();
            often_read.find_map(|&number| self.files_of_runs(&runs, reason, |file| file.number == number))
        })
    }

    /// All runs in one, as a manual compaction wants it. `None` if something is busy, or if there is nothing.
    pub(super) fn all_runs(&self, reason: CompactionReason) -> Option<CompactionPlan> {
        let runs = self.sorted_runs();
        if runs.is_empty() || runs.iter().any(|run| run.busy) {
            return None;
        }
        self.plan_runs(&runs, 0..runs.len(), reason)
    }

    /// Newest first.
    fn sorted_runs(&self) -> Vec<SortedRun<'_>> {
        let level0 = self.version.files(0).chunks(1).map(|files| (0, files));
        let deeper = (1..=self.options.max_output_level()).map(|level| (level, self.version.files(level)));
        let runs = level0.chain(deeper).filter(|(_, files)| !files.is_empty());
        runs.map(|(level, files)| SortedRun {
            level,
            files,
            bytes: files.iter().map(|file| file.file_size).sum(),
            compensated_bytes: files.iter().map(|file| self.context.size_of(file)).sum(),
            busy: self.running.any_busy(files),
        })
        .collect()
    }

    fn periodic_of_runs(&self, runs: &[SortedRun<'_>]) -> Option<CompactionPlan> {
        let limit = self.periodic_limit()?;
        let old = |run: &SortedRun<'_>| run.files.iter().any(|file| is_older(file, limit));
        if !runs.iter().any(old) {
            return None;
        }
        let start = self.idle_tail(runs)?;
        // The last run alone is rewritten only if it is what got too old.
        if start + 1 == runs.len() && !old(&runs[start]) {
            return None;
        }
        self.plan_runs(runs, start..runs.len(), CompactionReason::PeriodicCompaction)
    }

    /// Where the longest idle stretch begins that ends with the oldest run.
    fn idle_tail(&self, runs: &[SortedRun<'_>]) -> Option<usize> {
        let start = runs.iter().rposition(|run| run.busy).map_or(0, |busy| busy + 1);
        (start < runs.len()).then_some(start)
    }

    /// All but the oldest run are taken to be what the data takes beyond its size.
    fn reduce_size_amplification(&self, runs: &[SortedRun<'_>]) -> Option<CompactionPlan> {
        let end = runs.len().checked_sub(1)?;
        let mut start = self.idle_tail(runs)?;
        if start >= end {
            return None;
        }
        let base = u128::from(runs[end].bytes);
        let limit = u128::from(self.options.universal.max_size_amplification_percent) * base;
        let size = |start: usize| -> u128 {
            runs[start..end].iter().map(|run| u128::from(run.compensated_bytes)).sum()
        };
        start += self.new_files_to_leave(runs, start, |start| size(start) * 100 >= limit, size(start));
        if size(start) * 100 < limit {
            return None;
        }
        if self.options.universal.incremental {
            let most = PENALTY * runs[end].bytes as f64 / size(start) as f64;
            if let Some(mut plan) = self.merge_part(&runs[start..], most) {
                plan.score = self.score_of(runs);
                return Some(plan);
            }
        }
        self.plan_runs(runs, start..end + 1, CompactionReason::UniversalSizeAmplification)
    }

    /// How many of the newest files a compaction of everything should leave alone: all of level 0 would be
    /// busy for a long time, and the flushes that come meanwhile could stop writers. Only small ones, without
    /// which the compaction is still due and nearly as large.
    fn new_files_to_leave(
        &self,
        runs: &[SortedRun<'_>],
        start: usize,
        is_due: impl Fn(usize) -> bool,
        all: u128,
    ) -> usize {
        let end = runs.len() - 1;
        let universal = &self.options.universal;
        let level0 = runs[start..end].iter().filter(|run| run.level == 0).count();
        // At least one file of level 0 and two runs remain.
        let most = level0.saturating_sub(1).min((end - start).saturating_sub(1));
        let room = self.options.level0_stop_writes_trigger.saturating_sub(end - start + 1);
        let wanted = |width: u32| (width as usize).saturating_sub(room).min(most);
        let (least, at_most) = (wanted(universal.min_merge_width), wanted(universal.max_merge_width));
        let mut left = 0;
        for count in least..=at_most {
            let rest: u128 =
                runs[start + count..end].iter().map(|run| u128::from(run.compensated_bytes)).sum();
            if !is_due(start + count) || rest * 10 < all * 9 {
                break;
            }
            left = count;
        }
        left
    }

    /// Neighbours of which each is not much larger than those above it together (or than the one above it).
    fn merge_similar(&self, runs: &[SortedRun<'_>]) -> Option<CompactionPlan> {
        let ratio = Some(self.options.universal.size_ratio);
        let range = self.neighbours(runs, ratio, usize::MAX)?;
        self.plan_runs(runs, range, CompactionReason::UniversalSizeRatio)
    }

    /// There are more runs than readers should have to look into.
    fn reduce_run_count(&self, runs: &[SortedRun<'_>]) -> Option<CompactionPlan> {
        let most = self.max_run_count(runs);
        let idle = runs.iter().filter(|run| !run.busy).count();
        let excess = idle.checked_sub(most).filter(|&excess| excess > 0)?;
        let range = self.neighbours(runs, None, excess + 1)?;
        self.plan_runs(runs, range, CompactionReason::UniversalSortedRunNum)
    }

    /// Writers are stopped for as many runs, and nothing runs that would make them fewer: `max_merge_width` is below
    /// `min_merge_width`, say, or `max_read_amp` allows more. They would wait for ever, as RocksDB's do.
    fn let_writers_go_on(&self, runs: &[SortedRun<'_>]) -> Option<CompactionPlan> {
        let stopped = sorted_run_count(self.version) >= self.options.level0_stop_writes_trigger;
        if !stopped || runs.iter().any(|run| run.busy) {
            return None;
        }
        let level0 = self.version.files(0).len();
        let merged = if level0 > 1 { level0 } else { runs.len() };
        self.plan_runs(runs, 0..merged, CompactionReason::UniversalSortedRunNum)
    }

    fn max_run_count(&self, runs: &[SortedRun<'_>]) -> usize {
        let universal = &self.options.universal;
        let trigger = self.options.level0_file_num_compaction_trigger.max(1);
        match (universal.max_read_amp, universal.stop_style) {
            (1.., _) => universal.max_read_amp.unsigned_abs() as usize,
            (0, StopStyle::TotalSize) => {
                // From memtables up, each run as large as the size ratio lets it become, until the largest fits.
                let largest = runs.iter().map(|run| run.bytes).max().unwrap_or(0) as f64;
                let growth = (100.0 + f64::from(universal.size_ratio)) / 100.0;
                let mut run = self.options.write_buffer_size.max(1) as f64;
                let (mut count, mut total) = (1, 0.0);
                while run < largest {
                    total += run;
                    run = growth * total;
                    count += 1;
                }
                count
            }
            _ => trigger,
        }
    }

    /// The first stretch of idle neighbours that is wide enough. `ratio`: by how many percent the next may be
    /// larger; `None`: any size.
    fn neighbours(
        &self,
        runs: &[SortedRun<'_>],
        ratio: Option<u32>,
        max_count: usize,
    ) -> Option<Range<usize>> {
        let universal = &self.options.universal;
        let widest = (universal.max_merge_width as usize).min(max_count);
        let narrowest = (universal.min_merge_width as usize).max(2);
        let growth = ratio.map_or(f64::INFINITY, |percent| (100.0 + f64::from(percent)) / 100.0);
        let similar = universal.stop_style == StopStyle::SimilarSize;
        let mut start = 0;
        while start < runs.len() {
            if runs[start].busy {
                start += 1;
                continue;
            }
            let mut size = runs[start].compensated_bytes as f64;
            let mut end = start + 1;
            while end < runs.len() && end - start < widest && !runs[end].busy {
                let next = &runs[end];
                if size * growth < next.bytes as f64 || (similar && next.bytes as f64 * growth < size) {
                    break;
                }
                let own = next.compensated_bytes as f64;
                size = if similar { own } else { size + own };
                end += 1;
            }
            if end - start >= narrowest {
                return Some(start..end);
            }
            start += 1;
        }
        None
    }

    /// Files that are to go: full of tombstones, say. With one level: with everything older. Else as if levelled, into the
    /// next level that has files.
    fn files_of_runs(
        &self,
        runs: &[SortedRun<'_>],
        reason: CompactionReason,
        goes: impl Fn(&FileMetaData) -> bool,
    ) -> Option<CompactionPlan> {
        let last = self.options.max_output_level();
        if last == 0 {
            let count = runs.len().saturating_sub(1); // The last has nothing older to merge with.
            let has_one = |run: &SortedRun<'_>| !run.busy && run.files.iter().any(|file| goes(file));
            let start = runs[..count].iter().position(has_one)?;
            let end = runs[start..].iter().position(|run| run.busy).map_or(runs.len(), |at| start + at);
            return (end - start > 1).then(|| self.plan_runs(runs, start..end, reason)).flatten();
        }
        let deepest = self.last_level()?;
        let below = |level: usize| (level + 1..=last).find(|&level| !self.version.files(level).is_empty());
        let output = |level: usize| below(level).or(Some(last).filter(|_| level == 0));
        let levels = 0..deepest.max(1);
        let draft = self.all_drafts_into(levels, |_, file| goes(file), output).next()?;
        let mut plan = self.plan(draft, reason);
        plan.kind = PlanKind::Rewrite;
        self.admits(&plan).then_some(plan)
    }

    /// The compaction of the neighbours `range`, if what runs allows it.
    fn plan_runs(
        &self,
        runs: &[SortedRun<'_>],
        range: Range<usize>,
        reason: CompactionReason,
    ) -> Option<CompactionPlan> {
        let output_level = match runs.get(range.end) {
            None => self.options.max_output_level(),
            Some(older) => older.level.saturating_sub(1),
        };
        let mut inputs: Vec<LevelInputs> = Vec::new();
        for run in &runs[range.clone()] {
            match inputs.last_mut() {
                Some(last) if last.level == run.level => last.files.extend_from_slice(run.files),
                _ => inputs.push(LevelInputs { level: run.level, files: run.files.to_vec() }),
            }
        }
        let moves = self.options.universal.allow_trivial_move
            && self.options.allow_trivial_move
            && output_level > 0
            && !matches!(reason, CompactionReason::PeriodicCompaction | CompactionReason::ManualCompaction)
            && inputs.iter().any(|inputs| inputs.level != output_level)
            && self.are_disjoint(&inputs);
        let mut plan = self.plan_of(inputs, output_level, reason);
        let moves = moves && plan.partitioner_lets_move(&self.version.comparator.user);
        plan.kind = if moves { PlanKind::TrivialMove } else { PlanKind::Rewrite };
        plan.score = self.score_of(runs);
        plan.max_compaction_bytes = match self.options.universal.incremental {
            // Files that end where those of the next run do can be merged with few of them.
            true => self.options.target_file_size_base / 2 * 3,
            false => u64::MAX, // Whole runs are merged: no later compaction is bounded by files.
        };
        if reason != CompactionReason::UniversalSizeAmplification && !self.is_compressed(runs, range.end) {
            plan.compression = CompressionKind::None;
        }
        self.admits(&plan).then_some(plan)
    }

    fn score_of(&self, runs: &[SortedRun<'_>]) -> f64 {
        runs.len() as f64 / self.options.level0_file_num_compaction_trigger.max(1) as f64
    }

    /// Whether an output right above the run `older` is small enough a part of all to be compressed.
    fn is_compressed(&self, runs: &[SortedRun<'_>], older: usize) -> bool {
        let Ok(percent) = u128::try_from(self.options.universal.compression_size_percent) else {
            return true;
        };
        let bytes = |runs: &[SortedRun<'_>]| runs.iter().map(|run| u128::from(run.bytes)).sum::<u128>();
        let all: u128 = runs.iter().map(|run| u128::from(run.compensated_bytes)).sum();
        older >= runs.len() || bytes(&runs[older..]) * 100 < all * percent
    }

    /// Whether no two of the files may hold the same user key.
    pub(super) fn are_disjoint(&self, inputs: &[LevelInputs]) -> bool {
        let user = &self.version.comparator.user;
        let mut files: Vec<_> = inputs.iter().flat_map(|inputs| &inputs.files).collect();
        files.sort_by(|a, b| user.compare(a.smallest.user_key(), b.smallest.user_key()));
        files
            .windows(2)
            .all(|pair| user.compare(pair[0].largest.user_key(), pair[1].smallest.user_key()).is_lt())
    }
}

/// Whether the file was made before `limit`, in seconds since 1970.
pub(super) fn is_older(file: &FileMetaData, limit: u64) -> bool {
    let made = if file.file_creation_time > 0 { file.file_creation_time } else { file.oldest_ancester_time };
    made > 0 && made < limit
}
