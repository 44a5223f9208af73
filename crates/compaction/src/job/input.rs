//! The inputs of a job as one sorted stream.

use crate::job::JobContext;
use crate::plan::{CompactionPlan, LevelInputs};
use ironstone_base::sync::Arc;
use ironstone_base::{Error, InternalKey, InternalKeyBuf, Result, SequenceNumber};
use ironstone_iter::{InternalIterator, MergingIterator};
use ironstone_sst::{Demand, TableIter, TableReadOptions};
use ironstone_version::FileMetaData;

/// The part of the user keys that a subcompaction works on: `begin..end`, `None` is unbounded.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyRange {
    pub(super) begin: Option<Vec<u8>>,
    pub(super) end: Option<Vec<u8>>,
}

/// The tables of one sorted run, one after the other: one level 0 file, or the files of a lower level.
/// A table is opened when the one before it is through. Goes forward only.
pub(super) struct RunIterator<'a> {
    context: JobContext<'a>,
    level: usize,
    files: &'a [Arc<FileMetaData>],
    /// The file after the one that `current` walks.
    next_file: usize,
    current: Option<TableIter>,
    read: TableReadOptions,
}

impl<'a> RunIterator<'a> {
    /// `end`: the user key where reading ahead may stop.
    fn new(
        context: JobContext<'a>,
        level: usize,
        files: &'a [Arc<FileMetaData>],
        end: Option<&[u8]>,
        demand: &Arc<Demand>,
    ) -> Self {
        let mut read = context.table_reads();
        read.upper_bound = end.map(Arc::from);
        read.demand = Some(Arc::clone(demand));
        Self { context, level, files, next_file: 0, current: None, read }
    }

    /// The iterator of the next table, standing nowhere; `None` if there is no further table.
    fn open_next(&mut self) -> Result<Option<&mut TableIter>> {
        self.current = None;
        let Some(file) = self.files.get(self.next_file) else {
            return Ok(None);
        };
        let table = self.context.tables.open(file, self.level)?;
        self.next_file += 1;
        Ok(Some(self.current.insert(table.iter(&self.read))))
    }

    /// Goes on to the first entry of the next table that has one.
    fn next_table(&mut self) -> Result<bool> {
        while let Some(table) = self.open_next()? {
            if table.seek_to_first()? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl InternalIterator for RunIterator<'_> {
    #[inline]
    fn valid(&self) -> bool {
        self.current.as_ref().is_some_and(TableIter::valid)
    }
    fn seek_to_first(&mut self) -> Result<bool> {
        self.next_file = 0;
        self.next_table()
    }
    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool> {
        let order = self.context.comparator;
        self.next_file =
            self.files.partition_point(|file| order.compare(file.largest.as_key(), target).is_lt());
        match self.open_next()? {
            None => Ok(false),
            Some(table) => Ok(table.seek(target)? || self.next_table()?),
        }
    }
    #[inline]
    fn next(&mut self) -> Result<bool> {
        let table = self.current.as_mut().expect("stands on an entry");
        if table.next()? { Ok(true) } else { self.next_table() }
    }
    #[inline]
    fn key(&self) -> InternalKey<'_> {
        self.current.as_ref().expect("stands on an entry").key()
    }
    #[inline]
    fn value(&self) -> &[u8] {
        self.current.as_ref().expect("stands on an entry").value()
    }
    fn seek_to_last(&mut self) -> Result<bool> {
        Err(forward_only())
    }
    fn seek_for_prev(&mut self, _target: InternalKey<'_>) -> Result<bool> {
        Err(forward_only())
    }
    fn prev(&mut self) -> Result<bool> {
        Err(forward_only())
    }
}

#[cold]
fn forward_only() -> Error {
    Error::not_supported("walking the inputs of a compaction backwards")
}

/// All inputs of `plan`, merged, standing on the first entry of `range`. It may go on beyond the end of the
/// range. `demand` hears what readers want of them.
pub(super) fn merged_inputs<'a>(
    context: &JobContext<'a>,
    plan: &'a CompactionPlan,
    range: &KeyRange,
    demand: &Arc<Demand>,
) -> Result<MergingIterator<RunIterator<'a>>> {
    let end = range.end.as_deref();
    let runs = || plan.inputs.iter().flat_map(sorted_runs);
    let context =
        JobContext { readahead_size: readahead_of_each(runs().count(), context.readahead_size), ..*context };
    let runs = runs().map(|(level, files)| RunIterator::new(context, level, files, end, demand)).collect();
    let mut merged = MergingIterator::new(context.comparator.clone(), runs);
    match &range.begin {
        None => merged.seek_to_first()?,
        Some(begin) => merged.seek(InternalKeyBuf::for_seek(begin, SequenceNumber::MAX).as_key())?,
    };
    Ok(merged)
}

/// More runs share what so many would read ahead: else a compaction of many tables of level 0 takes as much memory as it
/// writes at once.
const MOST_WITH_ALL: usize = 16;

/// The system reads whole pages.
const PAGE: usize = 4 << 10;

/// How much is read ahead of each of so many runs.
fn readahead_of_each(runs: usize, all: usize) -> usize {
    if runs <= MOST_WITH_ALL {
        return all;
    }
    all.div_ceil(runs).saturating_mul(MOST_WITH_ALL).next_multiple_of(PAGE)
}

/// The inputs of a level, as sorted runs.
fn sorted_runs(inputs: &LevelInputs) -> impl Iterator<Item = (usize, &[Arc<FileMetaData>])> {
    let per_run = if inputs.level == 0 { 1 } else { inputs.files.len().max(1) };
    inputs.files.chunks(per_run).map(|files| (inputs.level, files))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_runs_share_what_is_read_ahead() {
        let all = 256 << 10;
        assert_eq!([1, 4, 16].map(|runs| readahead_of_each(runs, all)), [all; 3]);
        for runs in [17, 27, 100, 1000] {
            let each = readahead_of_each(runs, all);
            assert!(each < all && each.is_multiple_of(PAGE), "{each}");
            assert!(runs * each < 16 * all + runs * PAGE + 16 * runs, "{runs} of {each}");
        }
        assert_eq!([1, 100].map(|runs| readahead_of_each(runs, 0)), [0; 2]);
    }
}
