//! Walks the data blocks of a table in key order, over one or two levels of index.

use super::{BlockBasedReader, Home};
use crate::cached_block::BlockRef;
use crate::handle::BlockHandle;
use crate::index::FlatIndex;
use crate::options::ReadContext;
use ironstone_base::{InternalKey, Result};

/// Stands on a data block, or beyond the last.
pub(crate) struct IndexCursor {
    /// The top level, if it is not the reader's own.
    top: Option<BlockRef>,
    top_at: usize,
    /// The partition that `top_at` names, for two levels.
    partition: Option<BlockRef>,
    partition_at: usize,
}

impl IndexCursor {
    /// Stands beyond the last block.
    pub fn new(reader: &BlockBasedReader, context: &ReadContext) -> Result<Self> {
        let top = match &reader.index.top {
            Home::Resident(_) => None,
            Home::Pinned(block) => Some(block.clone()),
            Home::Cached(handle) => Some(reader.index_block(context, *handle)?),
        };
        Ok(Self { top, top_at: usize::MAX, partition: None, partition_at: 0 })
    }

    fn top<'a>(&'a self, reader: &'a BlockBasedReader) -> Option<&'a FlatIndex> {
        match (&self.top, &reader.index.top) {
            (Some(block), _) => block.index(),
            (None, Home::Resident(index)) => Some(index),
            (None, _) => None,
        }
    }

    /// The index and the place in it of the block stood on.
    #[inline]
    pub fn current<'a>(&'a self, reader: &'a BlockBasedReader) -> Option<(&'a FlatIndex, usize)> {
        let (index, at) = match reader.index.is_two_level {
            false => (self.top(reader)?, self.top_at),
            true => (self.partition.as_ref()?.index()?, self.partition_at),
        };
        (at < index.len()).then_some((index, at))
    }

    /// Where the partitions of the index are, if it has two levels.
    pub fn partitions(&self, reader: &BlockBasedReader) -> Vec<BlockHandle> {
        let top = self.top(reader).filter(|_| reader.index.is_two_level);
        top.map_or_else(Vec::new, |top| (0..top.len()).map(|at| top.handle(at)).collect())
    }

    /// Where the block stood on is.
    pub fn handle(&self, reader: &BlockBasedReader) -> Option<BlockHandle> {
        self.current(reader).map(|(index, at)| index.handle(at))
    }

    /// Stands nowhere.
    pub fn clear(&mut self) {
        self.top_at = usize::MAX;
        self.partition = None;
    }

    /// Moves to the first block that may hold an entry at or after `target`.
    pub fn seek(
        &mut self,
        reader: &BlockBasedReader,
        context: &ReadContext,
        target: InternalKey<'_>,
    ) -> Result<bool> {
        let at = match self.top(reader) {
            Some(top) => reader.find_block(top, target)?,
            None => usize::MAX,
        };
        self.enter(reader, context, at)?;
        if let Some(partition) = self.partition.as_ref().and_then(BlockRef::index) {
            self.partition_at = reader.find_block(partition, target)?;
            if self.partition_at >= partition.len() {
                return self.enter_next(reader, context);
            }
        }
        Ok(self.current(reader).is_some())
    }

    /// Moves to the first block.
    pub fn seek_to_first(&mut self, reader: &BlockBasedReader, context: &ReadContext) -> Result<bool> {
        self.enter(reader, context, 0)?;
        if reader.index.is_two_level && self.current(reader).is_none() {
            return self.enter_next(reader, context);
        }
        Ok(self.current(reader).is_some())
    }

    /// Moves to the last block.
    pub fn seek_to_last(&mut self, reader: &BlockBasedReader, context: &ReadContext) -> Result<bool> {
        self.enter_last_of(reader, context, usize::MAX)
    }

    /// Moves to the next block.
    pub fn next(&mut self, reader: &BlockBasedReader, context: &ReadContext) -> Result<bool> {
        if !reader.index.is_two_level {
            self.top_at = self.top_at.saturating_add(1);
            return Ok(self.current(reader).is_some());
        }
        self.partition_at += 1;
        if self.current(reader).is_some() {
            return Ok(true);
        }
        self.enter_next(reader, context)
    }

    /// Moves to the previous block.
    pub fn prev(&mut self, reader: &BlockBasedReader, context: &ReadContext) -> Result<bool> {
        if reader.index.is_two_level && self.partition_at > 0 {
            self.partition_at -= 1;
            return Ok(self.current(reader).is_some());
        }
        self.enter_last_of(reader, context, self.top_at)
    }

    /// Stands on the first block below entry `at` of the top level.
    fn enter(&mut self, reader: &BlockBasedReader, context: &ReadContext, at: usize) -> Result<()> {
        self.top_at = at;
        self.partition_at = 0;
        self.partition = None;
        if reader.index.is_two_level
            && let Some(top) = self.top(reader).filter(|top| at < top.len())
        {
            reader.check_entry(top, at)?;
            self.partition = Some(match reader.index.pinned.get(at) {
                Some(block) => block.clone(),
                None => reader.index_block(context, top.handle(at))?,
            });
        }
        Ok(())
    }

    /// Goes on to the next partition that has a block.
    fn enter_next(&mut self, reader: &BlockBasedReader, context: &ReadContext) -> Result<bool> {
        let count = self.top(reader).map_or(0, FlatIndex::len);
        for at in self.top_at.saturating_add(1)..count {
            self.enter(reader, context, at)?;
            if self.current(reader).is_some() {
                return Ok(true);
            }
        }
        self.clear();
        Ok(false)
    }

    /// Stands on the last block below the first `end` entries of the top level.
    fn enter_last_of(
        &mut self,
        reader: &BlockBasedReader,
        context: &ReadContext,
        end: usize,
    ) -> Result<bool> {
        let count = self.top(reader).map_or(0, FlatIndex::len);
        for at in (0..end.min(count)).rev() {
            self.enter(reader, context, at)?;
            if let Some(partition) = self.partition.as_ref().and_then(BlockRef::index) {
                self.partition_at = partition.len().saturating_sub(1);
            }
            if self.current(reader).is_some() {
                return Ok(true);
            }
        }
        self.clear();
        Ok(false)
    }
}
