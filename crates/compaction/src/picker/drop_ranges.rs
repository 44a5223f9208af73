//! Tables that are removed because all that is in them is no longer wanted.

use crate::options::CompactionOptions;
use crate::picker::{PickContext, Picker};
use crate::plan::{CompactionPlan, CompactionReason};
use crate::running::RunningCompactions;
use ironstone_version::{FileMetaData, Version};
use std::ops::Range;

/// User keys from the first on up to the second; `None` is unbounded.
pub type KeyRange<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// The removal of tables below level 0 whose keys all lie in one of `ranges`, with their ends if `include_end`: those of one
/// level, the deepest that has any. `None` if there are none left.
///
/// A table stays if a compaction reads it or writes beside it, if it shares a user key with one that stays, and if one
/// below that stays overlaps it: older values would come back.
pub fn drop_in_ranges(
    version: &Version,
    options: &CompactionOptions,
    running: &RunningCompactions,
    context: &PickContext<'_>,
    ranges: &[KeyRange<'_>],
    include_end: bool,
) -> Option<CompactionPlan> {
    if running.has_exclusive() {
        return None;
    }
    let picker = Picker::new(version, options, running, context);
    let order = &version.comparator.user;
    let goes = |level: usize, file: &FileMetaData| {
        let (smallest, largest) = (file.smallest.user_key(), file.largest.user_key());
        let lies_in = |&(begin, end): &KeyRange<'_>| {
            let ends_before = |end: &[u8]| {
                let place = order.compare(largest, end);
                if include_end { place.is_le() } else { place.is_lt() }
            };
            begin.is_none_or(|begin| order.compare(begin, smallest).is_le()) && end.is_none_or(ends_before)
        };
        let has_older = || {
            version.levels[level + 1..].iter().any(|below| {
                !below.overlapping(&version.comparator, Some(smallest), Some(largest)).is_empty()
            })
        };
        !running.is_busy(file.number) && ranges.iter().any(lies_in) && !has_older()
    };
    (1..version.num_levels()).rev().find_map(|level| {
        let files = version.files(level);
        let going: Vec<bool> = files.iter().map(|file| goes(level, file)).collect();
        let mut end = 0;
        going.chunk_by(|a, b| a == b).find_map(|run| {
            let all = end..end + run.len();
            end = all.end;
            let clean = if run[0] { within_clean_cut(&picker, level, all) } else { 0..0 };
            if clean.is_empty() {
                return None;
            }
            let plan = picker.drop_files(level, files[clean].to_vec(), CompactionReason::ManualCompaction);
            running.admits(&plan).then_some(plan)
        })
    })
}

/// `run` without the files at its ends that share a user key with one outside of it.
fn within_clean_cut(picker: &Picker<'_>, level: usize, mut run: Range<usize>) -> Range<usize> {
    while !run.is_empty() {
        let cut = picker.clean_cut(level, run.clone());
        if cut == run {
            break;
        }
        run.start += usize::from(cut.start < run.start);
        run.end -= usize::from(cut.end > run.end && !run.is_empty());
    }
    run
}
