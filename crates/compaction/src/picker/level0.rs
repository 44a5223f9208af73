//! Level 0, whose files overlap.

use crate::picker::Picker;
use crate::picker::inputs::Draft;
use crate::plan::{CompactionPlan, CompactionReason};
use ironstone_base::sync::Arc;
use ironstone_version::FileMetaData;

/// A compaction within level 0 must take so many files to be worth it.
const MIN_FILES_WITHIN_LEVEL0: usize = 4;

impl Picker<'_> {
    /// A compaction of level 0 into the base level, or within level 0 where that is blocked or too dear.
    pub(super) fn pick_level0(&self, score: f64) -> Option<CompactionPlan> {
        let plan_of = |draft| self.plan(draft, CompactionReason::LevelL0FilesNum);
        let wanted = |plan: &CompactionPlan| self.is_wanted(plan);
        let mut plan = (self.move_oldest().map(plan_of).filter(wanted))
            .or_else(|| self.merge_small_level0().map(plan_of).filter(wanted))
            .or_else(|| self.drain_level0().map(plan_of).filter(wanted))
            .or_else(|| self.merge_newest().map(plan_of).filter(wanted))?;
        plan.score = score;
        Some(plan)
    }

    /// The level 0 files, newest first, that go down together if `low..=high` goes down: those that overlap
    /// it or each other, but none that would leave behind an older file that it overlaps. Busy files stay
    /// behind.
    pub(super) fn level0_group(&self, low: &[u8], high: &[u8]) -> Vec<Arc<FileMetaData>> {
        let user = &self.version.comparator.user;
        let files = self.version.files(0);
        let range = |file: &'_ Arc<FileMetaData>| {
            (file.smallest.user_key().to_vec(), file.largest.user_key().to_vec())
        };
        let (mut low, mut high) = (low.to_vec(), high.to_vec());
        let mut chosen = vec![false; files.len()];
        loop {
            let mut grown = false;
            let mut stay: Vec<&FileMetaData> = Vec::new();
            for (at, file) in files.iter().enumerate().rev() {
                if chosen[at] {
                    continue; // What stayed behind then, and overlaps it, has been chosen since or never overlapped.
                }
                let (first, last) = (Some(file.smallest.user_key()), Some(file.largest.user_key()));
                if !file.overlaps(user, Some(&low), Some(&high))
                    || self.running.is_busy(file.number)
                    || stay.iter().any(|older| older.overlaps(user, first, last))
                {
                    stay.push(file);
                    continue;
                }
                (chosen[at], grown) = (true, true);
                let (first, last) = range(file);
                if user.compare(&first, &low).is_lt() {
                    low = first;
                }
                if user.compare(&last, &high).is_gt() {
                    high = last;
                }
            }
            if !grown {
                break;
            }
        }
        files.iter().zip(chosen).filter(|(_, chosen)| *chosen).map(|(file, _)| file.clone()).collect()
    }

    /// The compaction of level 0 file `at` with all that must go along.
    pub(super) fn draft_level0_file(&self, at: usize, output_level: usize) -> Option<Draft> {
        let file = &self.version.files(0)[at];
        if output_level == 0 {
            return (!self.running.is_busy(file.number)).then(|| Draft {
                start_level: 0,
                start: vec![file.clone()],
                output_level: 0,
                output: Vec::new(),
            });
        }
        let start = self.level0_group(file.smallest.user_key(), file.largest.user_key());
        if !start.iter().any(|chosen| chosen.number == file.number) {
            return None; // An older file that it overlaps is busy.
        }
        Some(self.grow(self.with_output(0, start, output_level)?, false))
    }

    /// The first group, from the oldest file on, that can go to the base level now. Groups that overlap in no
    /// key may go at the same time.
    fn drain_level0(&self) -> Option<Draft> {
        let count = self.version.files(0).len();
        (0..count)
            .rev()
            .filter(|&at| !self.running.is_busy(self.version.files(0)[at].number))
            .find_map(|at| self.draft_level0_file(at, self.shape.base_level))
    }

    /// The oldest files, as long as they overlap neither each other nor the base level: these only move.
    fn move_oldest(&self) -> Option<Draft> {
        let base = self.shape.base_level;
        let plain =
            self.options.compression_per_level.is_empty() && self.options.path_target_sizes.len() <= 1;
        if !plain || !self.options.allow_trivial_move || self.version.files(base).is_empty() {
            return None; // Into an empty level, the usual way moves as well.
        }
        let user = &self.version.comparator.user;
        let mut best: Option<Draft> = None;
        for file in self.version.files(0).iter().rev() {
            let mut files = best.as_ref().map_or(Vec::new(), |draft| draft.start.clone());
            let (low, high) = (Some(file.smallest.user_key()), Some(file.largest.user_key()));
            if self.running.is_busy(file.number) || files.iter().any(|older| older.overlaps(user, low, high))
            {
                break;
            }
            files.insert(0, file.clone());
            match self.with_output(0, files, base) {
                Some(wider) if wider.output.is_empty() => best = Some(wider),
                _ => break,
            }
        }
        best
    }

    /// All of level 0 into one file of level 0, where going to the base level would rewrite far more than it
    /// brings.
    fn merge_small_level0(&self) -> Option<Draft> {
        let files = self.version.files(0);
        let min_files = self.options.level0_file_num_compaction_trigger.max(2);
        let bytes: u64 = files.iter().map(|file| self.context.size_of(file)).sum();
        let factor = self.options.max_bytes_for_level_multiplier.max(10.0) * 2.0;
        if files.len() < min_files
            || (self.version.level_bytes(self.shape.base_level) as f64) <= bytes as f64 * factor
        {
            return None;
        }
        let newest: Vec<_> =
            files.iter().take_while(|file| !self.running.is_busy(file.number)).cloned().collect();
        (newest.len() >= min_files).then_some(Draft {
            start_level: 0,
            start: newest,
            output_level: 0,
            output: Vec::new(),
        })
    }

    /// Level 0 files wait for a compaction below them: meanwhile the newest can be merged, so that readers
    /// look into fewer. As many as make the work per file saved smaller.
    fn merge_newest(&self) -> Option<Draft> {
        let files = self.version.files(0);
        if files.len() < self.options.level0_file_num_compaction_trigger + 2 {
            return None;
        }
        let mut bytes = 0u64;
        let mut bytes_per_file_saved = u64::MAX;
        let mut count = 0;
        for (at, file) in files.iter().enumerate() {
            bytes = bytes.saturating_add(file.file_size);
            let per_file = if at == 0 { u64::MAX } else { bytes / at as u64 };
            if self.running.is_busy(file.number)
                || per_file > bytes_per_file_saved
                || (at > 0 && bytes > self.options.max_compaction_bytes())
            {
                break;
            }
            bytes_per_file_saved = per_file;
            count = at + 1;
        }
        (count >= MIN_FILES_WITHIN_LEVEL0).then(|| Draft {
            start_level: 0,
            start: files[..count].to_vec(),
            output_level: 0,
            output: Vec::new(),
        })
    }
}
