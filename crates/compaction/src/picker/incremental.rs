//! Universal compaction in parts (`incremental`): instead of all runs, neighbouring files of the second last run are
//! merged with what they overlap of the last.
//!
//! ```text
//! run before    |--a--|     |--b--|                 taken along where it lies within the window
//! second last   |---c---||---d---|  |---e---|       a window of files: c d
//! last            |--1--||--2--||--3--|  |--4--|    what it overlaps: 1 2;  fan-out = (1 + 2) / (c + d)
//! ```
//! Of all windows of about half of `max_compaction_bytes` the one with the smallest fan-out goes, if it is smaller
//! than what the caller accepts.

use super::universal::SortedRun;
use crate::picker::Picker;
use crate::plan::{CompactionPlan, CompactionReason, LevelInputs, user_key_range};
use ironstone_base::sync::Arc;
use ironstone_version::FileMetaData;
use std::ops::Range;

impl Picker<'_> {
    /// A compaction into the last of `runs`, of which none is busy, that rewrites less than `most_fan_out` bytes of it
    /// for each newer byte.
    pub(super) fn merge_part(&self, runs: &[SortedRun<'_>], most_fan_out: f64) -> Option<CompactionPlan> {
        let [newer @ .., second, last] = runs else { return None };
        if second.level == 0 {
            return None; // Its one file cannot be taken in parts.
        }
        let window = self.cheapest_window(second.files, last, most_fan_out)?;
        let start = self.idle_clean_cut(second.level, window)?;
        let draft = self.with_output(second.level, start, last.level)?;
        let mut inputs = self.within(newer, &draft.start);
        inputs.push(LevelInputs { level: second.level, files: draft.start });
        if !draft.output.is_empty() {
            inputs.push(LevelInputs { level: last.level, files: draft.output });
        }
        let plan = self.plan_of(inputs, last.level, CompactionReason::UniversalSizeAmplification);
        self.admits(&plan).then_some(plan)
    }

    /// The window of `files` with the smallest fan-out below `most`.
    fn cheapest_window(
        &self,
        files: &[Arc<FileMetaData>],
        last: &SortedRun<'_>,
        most: f64,
    ) -> Option<Range<usize>> {
        // Half, to leave room for clean cuts and for what is taken along from newer runs.
        let limit = self.options.max_compaction_bytes() / 2;
        let bytes_of = |files: &[Arc<FileMetaData>]| files.iter().map(|file| file.file_size).sum::<u64>();
        let sizes = |window: &Range<usize>| {
            let files = &files[window.clone()];
            let (low, high) = (files[0].smallest.user_key(), files[files.len() - 1].largest.user_key());
            (bytes_of(files), bytes_of(&last.files[self.overlap(last.level, low, high)]))
        };
        let mut best: Option<(f64, Range<usize>)> = None;
        let mut window = 0..0;
        while window.end < files.len() {
            if !window.is_empty() && self.has_gap(last, &files[window.end - 1], &files[window.end]) {
                window.start = window.end;
            }
            window.end += 1;
            let (mut newer, mut older) = sizes(&window);
            if newer.saturating_add(older) <= limit && window.end < files.len() {
                continue;
            }
            let fan_out = older as f64 / newer.max(1) as f64;
            if fan_out < best.as_ref().map_or(most, |best| best.0) {
                best = Some((fan_out, window.clone()));
            }
            while newer.saturating_add(older) > limit {
                window.start += 1;
                (newer, older) = if window.is_empty() { (0, 0) } else { sizes(&window) };
            }
        }
        best.map(|(_, window)| window)
    }

    /// Whether a file of `last` lies wholly between `left` and `right`: a window over both would rewrite it for nothing.
    fn has_gap(&self, last: &SortedRun<'_>, left: &FileMetaData, right: &FileMetaData) -> bool {
        let user = &self.version.comparator.user;
        let (from, to) = (left.largest.user_key(), right.smallest.user_key());
        last.files[self.overlap(last.level, from, to)].iter().any(|file| {
            user.compare(file.smallest.user_key(), from).is_gt()
                && user.compare(file.largest.user_key(), to).is_lt()
        })
    }

    /// The files of `newer`, newest run first, that may go down with `start`, newest run first. Going up, a file goes
    /// along only if all that it overlaps of the runs between does.
    fn within(&self, newer: &[SortedRun<'_>], start: &[Arc<FileMetaData>]) -> Vec<LevelInputs> {
        let user = &self.version.comparator.user;
        let (low, high) = user_key_range(user, start).expect("a window has files");
        let (mut low, mut high) = (low.to_vec(), high.to_vec());
        // The end that a range tombstone gives a file is not a key of it, but may be one of the file after it.
        let mut high_is_exclusive = start.last().is_some_and(|file| file.largest_is_exclusive());
        let mut inputs = Vec::new();
        for run in newer.iter().rev().take_while(|run| run.level > 0) {
            let overlap = self.overlap(run.level, &low, &high);
            if overlap.is_empty() {
                continue;
            }
            let inner = self.files_within(run.level, overlap, &low, &high, high_is_exclusive);
            let files = &self.version.files(run.level)[inner];
            if files.is_empty() || self.running.any_busy(files) {
                break; // Newer entries must not sink below those that stay here.
            }
            let (first, last) = user_key_range(user, files).expect("there are some");
            (low, high) = (first.to_vec(), last.to_vec());
            high_is_exclusive = files.last().is_some_and(|file| file.largest_is_exclusive());
            inputs.push(LevelInputs { level: run.level, files: files.to_vec() });
        }
        inputs.reverse();
        inputs
    }
}
