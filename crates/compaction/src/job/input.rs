//! The inputs of a job as one sorted stream.

use crate::job::{JobContext, TableSource};
use crate::merge::{ForwardMerge, shared_prefix_len};
use crate::plan::{CompactionPlan, LevelInputs, user_key_range};
use ironstone_base::sync::Arc;
use ironstone_base::{InternalKey, InternalKeyBuf, Result, SequenceNumber, UserComparator};
use ironstone_iter::InternalIterator;
use ironstone_sst::{TableIter, TableReadOptions};
use ironstone_version::FileMetaData;

/// The part of the user keys that a subcompaction works on: `begin..end`, `None` is unbounded.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyRange {
    pub(super) begin: Option<Vec<u8>>,
    pub(super) end: Option<Vec<u8>>,
}

/// The tables of one sorted run, one after the other: one level 0 file, or the files of a lower level.
/// A table is opened when the one before it is through.
pub(super) struct RunIterator<'a> {
    tables: &'a dyn TableSource,
    level: usize,
    files: &'a [Arc<FileMetaData>],
    /// The file after the one that `current` walks.
    next_file: usize,
    current: Option<TableIter>,
    read: TableReadOptions,
}

impl<'a> RunIterator<'a> {
    /// Stands on the first entry at or after `begin`.
    fn new(
        context: &JobContext<'a>,
        level: usize,
        files: &'a [Arc<FileMetaData>],
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<Self> {
        let order = &context.comparator.user;
        let mut read = TableReadOptions::for_compaction(context.readahead_size);
        read.upper_bound = end.map(<[u8]>::to_vec);
        let mut new = Self { tables: context.tables, level, files, next_file: 0, current: None, read };
        if let Some(begin) = begin {
            new.next_file = files.partition_point(|file| order.compare(file.largest.user_key(), begin).is_lt());
            if new.open_next()? {
                let target = InternalKeyBuf::for_seek(begin, SequenceNumber::MAX);
                new.current_mut().seek(target.as_key())?;
            }
        } else if new.open_next()? {
            new.current_mut().seek_to_first()?;
        }
        new.pass_empty()?;
        Ok(new)
    }

    fn current_mut(&mut self) -> &mut TableIter {
        self.current.as_mut().expect("a table was just opened")
    }

    /// `false` if there is no further table.
    fn open_next(&mut self) -> Result<bool> {
        let Some(file) = self.files.get(self.next_file) else {
            self.current = None;
            return Ok(false);
        };
        let table = self.tables.open(file, self.level)?;
        self.current = Some(table.iter(&self.read));
        self.next_file += 1;
        Ok(true)
    }

    /// Goes on to the next table while the current one is through.
    fn pass_empty(&mut self) -> Result<bool> {
        while !self.valid() {
            if !self.open_next()? {
                return Ok(false);
            }
            self.current_mut().seek_to_first()?;
        }
        Ok(true)
    }
}

impl InternalIterator for RunIterator<'_> {
    #[inline]
    fn valid(&self) -> bool {
        self.current.as_ref().is_some_and(TableIter::valid)
    }
    #[inline]
    fn next(&mut self) -> Result<bool> {
        if self.current_mut().next()? { Ok(true) } else { self.pass_empty() }
    }
    #[inline]
    fn key(&self) -> InternalKey<'_> {
        self.current.as_ref().expect("stands on an entry").key()
    }
    #[inline]
    fn value(&self) -> &[u8] {
        self.current.as_ref().expect("stands on an entry").value()
    }
    fn seek_to_first(&mut self) -> Result<bool> {
        self.next_file = 0;
        if self.open_next()? {
            self.current_mut().seek_to_first()?;
        }
        self.pass_empty()
    }
    fn seek_to_last(&mut self) -> Result<bool> {
        Err(crate::merge::forward_only())
    }
    fn seek(&mut self, _target: InternalKey<'_>) -> Result<bool> {
        Err(crate::merge::forward_only())
    }
    fn seek_for_prev(&mut self, _target: InternalKey<'_>) -> Result<bool> {
        Err(crate::merge::forward_only())
    }
    fn prev(&mut self) -> Result<bool> {
        Err(crate::merge::forward_only())
    }
}

/// The entries of all inputs of `plan` in `range`, merged; it may go on beyond the end of the range.
pub(super) fn merged_inputs<'a>(
    context: &JobContext<'a>,
    plan: &'a CompactionPlan,
    range: &KeyRange,
) -> Result<ForwardMerge<'a, RunIterator<'a>>> {
    let order = &context.comparator.user;
    let in_range = |file: &FileMetaData| {
        range.begin.as_deref().is_none_or(|begin| order.compare(file.largest.user_key(), begin).is_ge())
            && range.end.as_deref().is_none_or(|end| order.compare(file.smallest.user_key(), end).is_lt())
    };
    let mut runs = Vec::new();
    for files in plan.inputs.iter().flat_map(sorted_runs) {
        if files.1.iter().any(|file| in_range(file)) {
            runs.push(RunIterator::new(context, files.0, files.1, range.begin.as_deref(), range.end.as_deref())?);
        }
    }
    let shared_len = shared_len(order, plan);
    Ok(ForwardMerge::new(context.comparator, shared_len, runs))
}

/// The inputs of a level, as sorted runs.
fn sorted_runs(inputs: &LevelInputs) -> impl Iterator<Item = (usize, &[Arc<FileMetaData>])> {
    let per_run = if inputs.level == 0 { 1 } else { inputs.files.len().max(1) };
    inputs.files.chunks(per_run).map(|files| (inputs.level, files))
}

fn shared_len(order: &UserComparator, plan: &CompactionPlan) -> usize {
    user_key_range(order, plan.input_files().map(|(_, file)| file))
        .map_or(0, |(low, high)| shared_prefix_len(order, low, high))
}
