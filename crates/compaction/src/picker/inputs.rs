//! Puts the inputs of a compaction together, from a first file to a plan.

use crate::picker::Picker;
use crate::plan::{CompactionPlan, CompactionReason, LevelInputs, PlanKind, user_key_range};
use ironstone_base::sync::Arc;
use ironstone_version::FileMetaData;
use std::cmp::Ordering;
use std::ops::Range;

/// The inputs of a compaction that could run.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) start_level: usize,
    pub(super) start: Vec<Arc<FileMetaData>>,
    pub(super) output_level: usize,
    /// The files of the output level, if that is not the start level.
    pub(super) output: Vec<Arc<FileMetaData>>,
}

impl Draft {
    fn bytes(&self) -> u64 {
        self.start.iter().chain(&self.output).map(|file| file.file_size).sum()
    }
}

/// How many files a trivial move takes along at most: more would put pressure on the next level.
const MAX_FILES_MOVED: usize = 4;

impl Picker<'_> {
    /// The files of `level`, which is not 0, that overlap the user keys `low..=high`.
    pub(super) fn overlap(&self, level: usize, low: &[u8], high: &[u8]) -> Range<usize> {
        self.version
            .levels
            .get(level)
            .map_or(0..0, |files| files.overlapping(&self.version.comparator, Some(low), Some(high)))
    }

    /// Whether file `at` of `level` and the one after it may both hold entries of one user key.
    fn shares_key_with_next(&self, level: usize, at: usize) -> bool {
        let files = self.version.files(level);
        let (Some(file), Some(next)) = (files.get(at), files.get(at + 1)) else {
            return false;
        };
        !file.largest_is_exclusive()
            && self.version.comparator.user.equal(file.largest.user_key(), next.smallest.user_key())
    }

    /// Widens `range` until no user key lies on both sides of its ends.
    pub(super) fn clean_cut(&self, level: usize, mut range: Range<usize>) -> Range<usize> {
        if range.is_empty() {
            return range;
        }
        while range.start > 0 && self.shares_key_with_next(level, range.start - 1) {
            range.start -= 1;
        }
        while self.shares_key_with_next(level, range.end - 1) {
            range.end += 1;
        }
        range
    }

    /// The clean cut around `range`, if no running compaction has one of its files.
    pub(super) fn idle_clean_cut(&self, level: usize, range: Range<usize>) -> Option<Vec<Arc<FileMetaData>>> {
        let range = self.clean_cut(level, range);
        let files = &self.version.files(level)[range];
        (!self.running.any_busy(files)).then(|| files.to_vec())
    }

    /// Adds the files of the output level that `start` overlaps. `None` if one is busy, or if a running
    /// compaction writes into the range.
    pub(super) fn with_output(
        &self,
        start_level: usize,
        start: Vec<Arc<FileMetaData>>,
        output_level: usize,
    ) -> Option<Draft> {
        let user = &self.version.comparator.user;
        let mut draft = Draft { start_level, start, output_level, output: Vec::new() };
        let (low, high) = user_key_range(user, &draft.start)?;
        if output_level != start_level {
            draft.output = self.idle_clean_cut(output_level, self.overlap(output_level, low, high))?;
        }
        let (low, high) = user_key_range(user, draft.start.iter().chain(&draft.output))?;
        (!self.running.writes_into(output_level, low, high)).then_some(draft)
    }

    /// Takes more files of the start level along where that needs no more files of the output level: the
    /// bytes of the output level are rewritten anyway. `rightward`: only files with larger keys.
    pub(super) fn grow(&self, draft: Draft, rightward: bool) -> Draft {
        if draft.output.is_empty() {
            return draft;
        }
        let hull = user_key_range(&self.version.comparator.user, draft.start.iter().chain(&draft.output));
        let (mut low, high) = hull.expect("the draft has files");
        if rightward {
            low = draft.start.first().expect("the draft has files").smallest.user_key();
        }
        let candidates = if draft.start_level == 0 {
            [self.level0_group(low, high), Vec::new()]
        } else {
            let range = self.overlap(draft.start_level, low, high);
            let inner = self.files_within(draft.start_level, range.clone(), low, high, false);
            let idle =
                |range: Range<usize>| self.idle_clean_cut(draft.start_level, range).unwrap_or_default();
            [idle(range), if inner.is_empty() { Vec::new() } else { idle(inner) }]
        };
        // Twice the usual bound: work done here saves a compaction of its own.
        let limit = self.options.max_compaction_bytes().saturating_mul(2);
        let better = candidates
            .into_iter()
            .filter(|start| start.len() > draft.start.len())
            .filter(|start| draft.start.iter().all(|old| start.iter().any(|new| new.number == old.number)))
            .filter_map(|start| self.with_output(draft.start_level, start, draft.output_level))
            .find(|grown| grown.output.len() == draft.output.len() && grown.bytes() < limit);
        better.unwrap_or(draft)
    }

    /// The part of `range` whose files lie wholly within `low..=high`, or `low..high` if that is exclusive, and end in clean
    /// cuts.
    pub(super) fn files_within(
        &self,
        level: usize,
        mut range: Range<usize>,
        low: &[u8],
        high: &[u8],
        high_is_exclusive: bool,
    ) -> Range<usize> {
        let user = &self.version.comparator.user;
        let files = self.version.files(level);
        let ends_beyond = |file: &FileMetaData| match user.compare(file.largest.user_key(), high) {
            Ordering::Less => false,
            Ordering::Equal => high_is_exclusive && !file.largest_is_exclusive(),
            Ordering::Greater => true,
        };
        while !range.is_empty()
            && (user.compare(files[range.start].smallest.user_key(), low).is_lt()
                || (range.start > 0 && self.shares_key_with_next(level, range.start - 1)))
        {
            range.start += 1;
        }
        while !range.is_empty()
            && (ends_beyond(&files[range.end - 1]) || self.shares_key_with_next(level, range.end - 1))
        {
            range.end -= 1;
        }
        range
    }

    /// The compaction of file `at` of `level`, which is not 0, into the next level, with what should go
    /// along.
    pub(super) fn draft_lower(&self, level: usize, at: usize, rightward: bool) -> Option<Draft> {
        let start = self.idle_clean_cut(level, at..at + 1)?;
        let draft = self.with_output(level, start, level + 1)?;
        if draft.output.is_empty() && draft.start.len() == 1 {
            return Some(self.extend_move(draft, at, rightward));
        }
        let draft = if rightward { self.extend_round(draft, at) } else { draft };
        Some(self.grow(draft, rightward))
    }

    /// The neighbours of a file that moves may move with it, if they overlap nothing either.
    fn extend_move(&self, draft: Draft, at: usize, rightward: bool) -> Draft {
        if !self.options.compression_per_level.is_empty() || self.options.path_target_sizes.len() > 1 {
            return draft; // Then it may not become a move.
        }
        let level = draft.start_level;
        let mut best = (at..at + 1, draft);
        let try_range = |best: &mut (Range<usize>, Draft), range: Range<usize>| {
            let files = &self.version.files(level)[range.clone()];
            if self.clean_cut(level, range.clone()) != range || self.running.any_busy(files) {
                return false;
            }
            match self.with_output(level, files.to_vec(), level + 1) {
                Some(wider)
                    if wider.output.is_empty() && wider.bytes() <= self.options.max_compaction_bytes() =>
                {
                    *best = (range, wider);
                    true
                }
                _ => false,
            }
        };
        while best.0.len() < MAX_FILES_MOVED && best.0.end < self.version.files(level).len() {
            let wider = best.0.start..best.0.end + 1;
            if !try_range(&mut best, wider) {
                break;
            }
        }
        while !rightward && best.0.len() < MAX_FILES_MOVED && best.0.start > 0 {
            let wider = best.0.start - 1..best.0.end;
            if !try_range(&mut best, wider) {
                break;
            }
        }
        best.1
    }

    /// Round robin takes as many of the following files as bring the level down to its target.
    fn extend_round(&self, mut draft: Draft, at: usize) -> Draft {
        let level = draft.start_level;
        let files = self.version.files(level);
        let idle: u64 =
            files.iter().filter(|file| !self.running.is_busy(file.number)).map(|file| file.file_size).sum();
        let excess = idle.saturating_sub(self.shape.max_bytes[level]);
        let mut range = self.clean_cut(level, at..at + 1);
        while draft.start.iter().map(|file| file.file_size).sum::<u64>() < excess && range.end < files.len() {
            range = self.clean_cut(level, range.start..range.end + 1);
            let Some(start) = self.idle_clean_cut(level, range.clone()) else {
                break;
            };
            match self.with_output(level, start, draft.output_level) {
                Some(wider) if wider.bytes() <= self.options.max_compaction_bytes() => draft = wider,
                _ => break,
            }
        }
        draft
    }

    /// The plan that carries `draft` out.
    pub(super) fn plan(&self, draft: Draft, reason: CompactionReason) -> CompactionPlan {
        let Draft { start_level, start, output_level, output } = draft;
        let inputs = [(start_level, start), (output_level, output)]
            .into_iter()
            .filter(|(_, files)| !files.is_empty())
            .map(|(level, files)| LevelInputs { level, files })
            .collect();
        self.plan_of(inputs, output_level, reason)
    }

    /// The removal of `files` of `level` with all that is in them.
    pub(super) fn drop_files(
        &self,
        level: usize,
        files: Vec<Arc<FileMetaData>>,
        reason: CompactionReason,
    ) -> CompactionPlan {
        let mut plan = self.plan_of(vec![LevelInputs { level, files }], level, reason);
        plan.kind = PlanKind::Drop;
        plan
    }

    /// The plan for `inputs`, which must obey the rules at the top of this module.
    pub(super) fn plan_of(
        &self,
        inputs: Vec<LevelInputs>,
        output_level: usize,
        reason: CompactionReason,
    ) -> CompactionPlan {
        let user = &self.version.comparator.user;
        let files = || inputs.iter().flat_map(|inputs| &inputs.files);
        let (low, high) = user_key_range(user, files()).expect("a draft has files");
        let below: Vec<_> = (output_level + 1..self.version.num_levels())
            .map(|level| self.version.files(level)[self.overlap(level, low, high)].to_vec())
            .filter(|files| !files.is_empty())
            .collect();
        let bottommost = !self.options.allow_ingest_behind
            && if output_level == 0 { self.holds_oldest(&inputs) } else { below.is_empty() };
        let full = files().count() == self.version.num_files();
        let at_end = self.version.last_level().is_none_or(|last| output_level >= last);
        let (compression, compression_options) =
            self.options.compression_of_level(output_level, self.shape.base_level, at_end);
        let bytes = files().map(|file| file.file_size).fold(0, u64::saturating_add);
        let output_path_id = self.options.output_path(output_level, bytes);
        let mut plan = CompactionPlan {
            full,
            partitioning: self.options.partitioning.clone(),
            inputs,
            output_level,
            output_path_id,
            below,
            kind: PlanKind::Rewrite,
            reason,
            score: 0.0,
            target_file_size: self.options.target_file_size(output_level, self.shape.base_level),
            target_file_size_is_upper_bound: self.options.target_file_size_is_upper_bound,
            max_compaction_bytes: self.options.max_compaction_bytes(),
            compression,
            compression_options,
            bottommost,
            ingest_behind: self.options.allow_ingest_behind,
            max_subcompactions: self.options.max_subcompactions,
            manual: reason == CompactionReason::ManualCompaction,
            exclusive: false,
            compact_cursor: None,
        };
        if self.is_trivial_move(&plan) {
            plan.kind = PlanKind::TrivialMove;
        }
        plan
    }

    /// Whether nothing at all is older than the level 0 files of `inputs`.
    fn holds_oldest(&self, inputs: &[LevelInputs]) -> bool {
        let level0 = self.version.files(0);
        self.version.last_level() == Some(0)
            && level0.last().is_some_and(|oldest| {
                inputs.iter().flat_map(|inputs| &inputs.files).any(|file| file.number == oldest.number)
            })
    }

    fn is_trivial_move(&self, plan: &CompactionPlan) -> bool {
        let [inputs] = plan.inputs.as_slice() else {
            return false;
        };
        let user = &self.version.comparator.user;
        let disjoint = |files: &[Arc<FileMetaData>]| {
            files.iter().enumerate().all(|(at, file)| {
                let (low, high) = (Some(file.smallest.user_key()), Some(file.largest.user_key()));
                !files[..at].iter().any(|other| other.overlaps(user, low, high))
            })
        };
        let base_level = self.shape.base_level;
        let last = self.version.last_level().unwrap_or(0);
        let codec = |level| self.options.compression_of_level(level, base_level, level >= last).0;
        self.options.allow_trivial_move
            && inputs.level != plan.output_level
            && !(plan.manual && self.options.has_compaction_filter)
            && (inputs.level > 0 || disjoint(&inputs.files))
            && codec(inputs.level) == plan.compression
            && inputs.files.iter().all(|file| file.path_id == plan.output_path_id)
            // At the bottom, a rewrite frees what the tombstones hide; a move would bury them for ever.
            && !(plan.bottommost && inputs.files.iter().any(|file| self.context.is_marked(file)))
            && plan.partitioner_lets_move(user)
            && inputs.files.iter().all(|file| self.may_lie_over_grandparents(file, plan))
    }

    /// A moved file that overlaps too much of the next level would make a huge compaction later.
    fn may_lie_over_grandparents(&self, file: &FileMetaData, plan: &CompactionPlan) -> bool {
        let level = plan.output_level + 1;
        let range = self.overlap(level, file.smallest.user_key(), file.largest.user_key());
        let overlap: u64 = self.version.files(level)[range].iter().map(|below| below.file_size).sum();
        file.file_size.saturating_add(overlap) <= plan.max_compaction_bytes
    }
}
