//! Range tombstones on their way through a job.
//!
//! The fragments of all inputs decide what is dropped (`iterator`). Those that are still needed are shared out to
//! the output files, cut where a file ends, so that files of a level never overlap.

use super::input::KeyRange;
use crate::job::JobContext;
use crate::plan::CompactionPlan;
use ironstone_base::sync::Arc;
use ironstone_base::{FragmentedTombstones, RangeTombstone, SequenceNumber, UserComparator};
use ironstone_sst::TableReader;
use ironstone_version::FileMetaData;

/// The range tombstones of `tables`, the inputs of `plan`, as far as the live snapshots can tell them apart.
pub(super) fn of_inputs(
    plan: &CompactionPlan,
    context: &JobContext<'_>,
    tables: &[Arc<TableReader>],
) -> FragmentedTombstones {
    let order = &context.comparator.user;
    let mut all = Vec::new();
    for ((_, file), table) in plan.input_files().zip(tables) {
        all.extend(table.range_tombstones().iter().filter_map(|tombstone| clipped(order, file, tombstone)));
    }
    FragmentedTombstones::for_snapshots(order, &all, context.snapshots)
}

/// The part of `tombstone` that counts: the bounds of its file. RocksDB leaves the rest in the table.
fn clipped(
    order: &UserComparator,
    file: &FileMetaData,
    tombstone: &RangeTombstone,
) -> Option<RangeTombstone> {
    let mut clipped = tombstone.clone();
    if order.compare(&clipped.begin, file.smallest.user_key()).is_lt() {
        clipped.begin = file.smallest.user_key().to_vec();
    }
    if order.compare(&clipped.end, file.largest.user_key()).is_gt() {
        clipped.end = file.largest.user_key().to_vec();
        if !file.largest_is_exclusive() && matches!(order, UserComparator::Bytewise) {
            clipped.end.push(0); // The next key: the last one of the file is deleted too.
        }
    }
    order.compare(&clipped.begin, &clipped.end).is_lt().then_some(clipped)
}

/// The tombstones that are written again, in order.
pub(crate) struct KeptTombstones<'a> {
    rest: Vec<(&'a [u8], &'a [u8], &'a [SequenceNumber])>,
    /// The first of `rest` that was not wholly handed out.
    at: usize,
    /// Where the next file's share begins.
    from: Option<Vec<u8>>,
    end: Option<&'a [u8]>,
    /// How many begin in the range that have nothing left to hide.
    obsolete: u64,
}

impl<'a> KeptTombstones<'a> {
    /// All of them: of a flush.
    pub(crate) fn all(tombstones: &'a FragmentedTombstones) -> Self {
        Self { rest: tombstones.iter().collect(), at: 0, from: None, end: None, obsolete: 0 }
    }

    /// Of a compaction: without those that have nothing left to hide.
    pub(super) fn of_compaction(
        plan: &CompactionPlan,
        context: &JobContext<'_>,
        tombstones: &'a FragmentedTombstones,
        range: &'a KeyRange,
    ) -> Self {
        let order = &context.comparator.user;
        let nothing_below = |begin: &[u8], end: &[u8]| {
            plan.bottommost
                || (plan.output_level > 0
                    && !plan.ingest_behind
                    && plan.below.iter().all(|files| !overlaps(order, files, begin, end)))
        };
        let oldest_snapshot = context.snapshots.first().copied().unwrap_or(SequenceNumber::MAX);
        let mut obsolete = 0;
        let begins_here = |begin: &[u8]| {
            range.begin.as_deref().is_none_or(|from| order.compare(begin, from).is_ge())
                && range.end.as_deref().is_none_or(|until| order.compare(begin, until).is_lt())
        };
        let rest = tombstones.iter().filter_map(|(begin, end, sequences)| {
            let seen_by_all = sequences.partition_point(|&sequence| sequence > oldest_snapshot);
            let kept = match seen_by_all < sequences.len() && nothing_below(begin, end) {
                true => &sequences[..seen_by_all],
                false => sequences,
            };
            if begins_here(begin) {
                obsolete += (sequences.len() - kept.len()) as u64;
            }
            (!kept.is_empty()).then_some((begin, end, kept))
        });
        let rest = rest.collect();
        Self { rest, at: 0, from: range.begin.clone(), end: range.end.as_deref(), obsolete }
    }

    /// How many begin in the range that have nothing left to hide.
    pub(super) fn obsolete(&self) -> u64 {
        self.obsolete
    }

    /// The share of the file that ends before `next`, or of the last one.
    pub(crate) fn take_before(&mut self, order: &UserComparator, next: Option<&[u8]>) -> Vec<RangeTombstone> {
        let mut share = Vec::new();
        if self.at == self.rest.len() {
            return share;
        }
        let until = next.or(self.end);
        let from = std::mem::replace(&mut self.from, next.map(<[u8]>::to_vec));
        while let Some(&(begin, end, sequences)) = self.rest.get(self.at) {
            let begin = from.as_deref().filter(|from| order.compare(begin, from).is_lt()).unwrap_or(begin);
            let cut = until.filter(|until| order.compare(end, until).is_gt());
            let end = cut.unwrap_or(end);
            if order.compare(begin, end).is_lt() {
                share.extend(sequences.iter().map(|&sequence| RangeTombstone {
                    begin: begin.to_vec(),
                    end: end.to_vec(),
                    sequence,
                }));
            }
            if cut.is_some() {
                break;
            }
            self.at += 1;
        }
        share
    }
}

/// Whether one of `files`, which are sorted, holds keys of `begin..end`.
fn overlaps(order: &UserComparator, files: &[Arc<FileMetaData>], begin: &[u8], end: &[u8]) -> bool {
    let at = files.partition_point(|file| order.compare(file.largest.user_key(), begin).is_lt());
    files.get(at).is_some_and(|file| order.compare(file.smallest.user_key(), end).is_lt())
}
