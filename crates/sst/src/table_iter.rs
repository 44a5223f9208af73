//! Walks the entries of a block-based table.

use crate::block::{Block, Cursor, apply_global};
use crate::cached_block::BlockRef;
use crate::options::TableReadOptions;
use crate::readahead::Readahead;
use crate::reader::{BlockBasedReader, IndexCursor};
use crate::table::BlockBasedRef;
use ironstone_base::perf::{self, PerfMetric};
use ironstone_base::prefix_seek::Direction;
use ironstone_base::{Corrupt, Error, InternalKey, InternalKeyBuf, Result, SequenceNumber};
use ironstone_iter::InternalIterator;
use ironstone_vfs::PerfTimer;

/// Walks the entries of a block-based table, in both directions. Keys and values are lent from the block stood in.
pub(crate) struct BlockBasedIter {
    reader: BlockBasedRef,
    /// The table's, asked for by every move.
    global_sequence: Option<SequenceNumber>,
    options: TableReadOptions,
    /// `None` before the first move, or if the index could not be had.
    blocks: Option<IndexCursor>,
    /// The block stood in, or the last one.
    block: Option<BlockRef>,
    /// Where that is in the file.
    block_at: u64,
    cursor: Cursor,
    readahead: Readahead,
    /// The key stood on with the table's sequence number, for tables whose entries carry none.
    patched_key: Option<InternalKeyBuf>,
    /// The last seek read data, or nobody wants to know.
    counted: bool,
    /// It asked the filter.
    filter_used: bool,
    /// It read data, and nobody has used any of that so far.
    awaits_use: bool,
    /// The reader does not want the table: it has nothing to show.
    is_left_out: bool,
}

impl BlockBasedIter {
    pub(crate) fn new(reader: BlockBasedRef, options: &TableReadOptions) -> Self {
        let readahead = reader.readahead(options);
        let cursor = Cursor::default();
        let is_left_out =
            options.table_filter.as_ref().is_some_and(|filter| !filter.takes(reader.properties()));
        Self {
            global_sequence: reader.global_sequence(),
            reader,
            options: options.clone(),
            blocks: None,
            block: None,
            block_at: 0,
            cursor,
            readahead,
            patched_key: None,
            counted: true,
            filter_used: false,
            awaits_use: false,
            is_left_out,
        }
    }

    /// Pins the value stood on, without a copy. Call only when valid.
    pub fn pinned_value(&self) -> crate::PinnedBytes {
        let (start, len) = self.cursor.value_range();
        match &self.block {
            Some(block) => crate::PinnedBytes::in_block(block.clone(), start, len),
            None => crate::PinnedBytes::owned([]),
        }
    }

    /// Whether somebody else asked the filter before the next seek, for what is counted of seeks.
    pub fn set_filter_used(&mut self, used: bool) {
        self.filter_used = used;
    }

    #[inline]
    fn entries(&self) -> Option<&Block> {
        self.block.as_ref().and_then(BlockRef::data)
    }

    fn leave(&mut self) {
        self.cursor.reset();
        self.block = None;
    }

    /// Opens the index if that was not done yet, and stands nowhere.
    fn start(&mut self) -> Result<()> {
        self.cursor.reset();
        self.counted = !self.options.counts_seeks;
        self.awaits_use = false;
        if self.blocks.is_none() {
            let mut blocks = IndexCursor::new(&self.reader, &self.options.read)?;
            if let Some(bound) = &self.options.upper_bound {
                let bound = InternalKeyBuf::for_seek(bound, SequenceNumber::MAX);
                blocks.seek(&self.reader, &self.options.read, bound.as_key())?;
                if let Some(handle) = blocks.handle(&self.reader) {
                    self.readahead.set_limit(handle.end());
                }
            }
            self.blocks = Some(blocks);
        }
        Ok(())
    }

    /// Moves over the blocks with `step`.
    fn move_blocks(
        &mut self,
        step: impl FnOnce(&mut IndexCursor, &BlockBasedReader, &crate::ReadContext) -> Result<bool>,
    ) -> Result<bool> {
        match &mut self.blocks {
            Some(blocks) => step(blocks, &self.reader, &self.options.read).inspect_err(|_| self.block = None),
            None => Ok(false),
        }
    }

    /// Moves within the block stood in with `step`; an error leaves the iterator nowhere.
    #[inline]
    fn move_in_block(
        &mut self,
        step: impl FnOnce(&mut Cursor, &Block) -> std::result::Result<bool, Corrupt>,
    ) -> Result<bool> {
        let moved = match self.block.as_ref().and_then(BlockRef::data) {
            Some(block) => step(&mut self.cursor, block),
            None => Ok(false),
        };
        moved.map_err(|bad| self.damaged(bad))
    }

    #[cold]
    fn damaged(&mut self, bad: Corrupt) -> Error {
        let handle = self.blocks.as_ref().and_then(|blocks| blocks.handle(&self.reader));
        self.leave();
        bad.at(self.reader.path(), handle.map_or(0, |handle| handle.offset))
    }

    /// Reads the block that the index stands on, unless it is the one at hand.
    #[inline]
    fn load(&mut self) -> Result<()> {
        self.load_for::<false>()
    }

    /// `SEARCH`: it will be searched.
    fn load_for<const SEARCH: bool>(&mut self) -> Result<()> {
        self.cursor.reset();
        let Some((index, at)) = self.blocks.as_ref().and_then(|blocks| blocks.current(&self.reader)) else {
            self.block = None;
            return Ok(());
        };
        let offset = index.handle(at).offset;
        if self.block.is_some() && self.block_at == offset {
            return Ok(());
        }
        self.block = None;
        let _timer = PerfTimer::start(PerfMetric::NewTableBlockIterNanos);
        if SEARCH {
            self.reader.prefetch_block(index, at);
        }
        let block = self.reader.data_block_ahead(&self.options.read, index, at, &mut self.readahead)?;
        if let Some(demand) = &self.options.demand {
            demand.note(self.reader.retire(&block));
        }
        self.block = Some(block);
        self.block_at = offset;
        if !self.counted {
            self.counted = true;
            self.awaits_use = true;
            self.reader.count_seek_data();
        }
        if self.entries().is_none() {
            return Err(self.damaged(Corrupt("the cache has another block in the place of a data block")));
        }
        Ok(())
    }

    /// Goes on to the next blocks until one has an entry.
    #[inline(never)]
    fn next_block(&mut self) -> Result<bool> {
        while self.move_blocks(IndexCursor::next)? {
            self.load()?;
            if self.move_in_block(Cursor::seek_to_first)? {
                return Ok(true);
            }
        }
        self.leave();
        Ok(false)
    }

    /// Goes back to the previous blocks until one has an entry.
    #[inline(never)]
    fn prev_block(&mut self) -> Result<bool> {
        while self.move_blocks(IndexCursor::prev)? {
            self.load()?;
            if self.move_in_block(Cursor::seek_to_last)? {
                return Ok(true);
            }
        }
        self.leave();
        Ok(false)
    }

    /// Whether the prefix filter says that nothing wanted is there; then the iterator stands nowhere.
    #[inline]
    fn is_filtered_out(&mut self, target: InternalKey<'_>, direction: Direction) -> Result<bool> {
        let Some(seek) = &self.options.prefix_seek else {
            return Ok(false);
        };
        let is_out = self.reader.is_ruled_out(&self.options.read, seek, target, direction);
        if !matches!(is_out, Ok((_, false))) {
            self.cursor.reset();
        }
        let (asked, is_out) = is_out?;
        self.filter_used = asked;
        Ok(is_out)
    }

    /// Ends a move: where entries carry no sequence number of their own, builds the key to show.
    #[inline]
    fn arrive(&mut self, moved: bool) -> bool {
        if let Some(sequence) = self.global_sequence {
            self.patch_key(moved, sequence);
        }
        moved
    }

    #[cold]
    fn patch_key(&mut self, moved: bool, sequence: SequenceNumber) {
        self.patched_key = None;
        if let (true, Some(block)) = (moved, self.entries()) {
            let key = self.cursor.key(block);
            let trailer = apply_global(key.trailer(), Some(sequence.0));
            let bytes = [key.user_key(), &trailer.to_le_bytes()].concat();
            self.patched_key = InternalKey::from_bytes(&bytes).ok().map(InternalKey::to_buf);
        }
    }

    #[inline]
    fn seek_entry(&mut self, target: InternalKey<'_>) -> Result<bool> {
        match perf::is_timing() {
            true => self.seek_entry_timed(target),
            false => self.seek_entry_in::<false>(target),
        }
    }

    #[cold]
    #[inline(never)]
    fn seek_entry_timed(&mut self, target: InternalKey<'_>) -> Result<bool> {
        self.seek_entry_in::<true>(target)
    }

    /// `TIMED`: how long the steps take is counted.
    fn seek_entry_in<const TIMED: bool>(&mut self, target: InternalKey<'_>) -> Result<bool> {
        let timer = TIMED.then(|| PerfTimer::start(PerfMetric::BlockSeekNanos));
        if !self.move_blocks(|blocks, reader, context| blocks.seek(reader, context, target))? {
            return Ok(false);
        }
        drop(timer);
        self.load_for::<true>()?;
        let timer = TIMED.then(|| PerfTimer::start(PerfMetric::BlockSeekNanos));
        let sought = match self.block.as_ref().and_then(BlockRef::data) {
            Some(block) => self.cursor.seek(block, self.reader.order(), target),
            None => Ok(false),
        };
        drop(timer);
        let mut found = sought.map_err(|bad| self.damaged(bad))?;
        if !found {
            found = self.next_block()?;
        }
        // Stored sequence numbers are 0 where the table has one for all: pass over what is too new.
        if let Some(sequence) = self.global_sequence {
            while found && self.is_newer_than(target, sequence) {
                found = self.step_forward()?;
            }
        }
        Ok(found)
    }

    fn is_newer_than(&self, target: InternalKey<'_>, sequence: SequenceNumber) -> bool {
        self.entries().is_some_and(|block| {
            let key = self.cursor.key(block);
            let trailer = apply_global(key.trailer(), Some(sequence.0));
            self.reader.order().user.equal(key.user_key(), target.user_key()) && trailer > target.trailer()
        })
    }

    #[inline]
    fn step_forward(&mut self) -> Result<bool> {
        if self.move_in_block(Cursor::next)? {
            return Ok(true);
        }
        self.next_block()
    }

    #[inline]
    fn step_back(&mut self) -> Result<bool> {
        if self.move_in_block(Cursor::prev)? {
            return Ok(true);
        }
        self.prev_block()
    }
}

impl InternalIterator for BlockBasedIter {
    #[inline]
    fn valid(&self) -> bool {
        self.cursor.valid()
    }

    fn seek_to_first(&mut self) -> Result<bool> {
        if self.is_left_out {
            return Ok(false);
        }
        self.start()?;
        let mut moved = self.move_blocks(IndexCursor::seek_to_first)?;
        if moved {
            self.load()?;
            moved = self.move_in_block(Cursor::seek_to_first)? || self.next_block()?;
        }
        Ok(self.arrive(moved))
    }

    fn seek_to_last(&mut self) -> Result<bool> {
        if self.is_left_out {
            return Ok(false);
        }
        self.start()?;
        let mut moved = self.move_blocks(IndexCursor::seek_to_last)?;
        if moved {
            self.load()?;
            moved = self.move_in_block(Cursor::seek_to_last)? || self.prev_block()?;
        }
        Ok(self.arrive(moved))
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool> {
        if self.is_left_out || self.is_filtered_out(target, Direction::Forward)? {
            return Ok(false);
        }
        self.start()?;
        let moved = self.seek_entry(target)?;
        Ok(self.arrive(moved))
    }

    fn seek_for_prev(&mut self, target: InternalKey<'_>) -> Result<bool> {
        if self.is_left_out || self.is_filtered_out(target, Direction::Backward)? {
            return Ok(false);
        }
        self.start()?;
        if !self.seek_entry(target)? {
            return self.seek_to_last();
        }
        self.arrive(true);
        if self.key() == target {
            return Ok(true);
        }
        let moved = self.step_back()?;
        Ok(self.arrive(moved))
    }

    #[inline]
    fn next(&mut self) -> Result<bool> {
        let moved = self.step_forward()?;
        Ok(self.arrive(moved))
    }

    fn prev(&mut self) -> Result<bool> {
        let moved = self.step_back()?;
        Ok(self.arrive(moved))
    }

    #[inline]
    fn key(&self) -> InternalKey<'_> {
        if let Some(key) = &self.patched_key {
            return key.as_key();
        }
        self.cursor.key(self.entries().expect("callers ask only where the iterator is valid"))
    }

    #[inline]
    fn value(&self) -> &[u8] {
        let entries = self.entries().expect("callers ask only where the iterator is valid");
        let (start, end) = self.cursor.entry_range();
        entries.note_read(start, end);
        self.cursor.value(entries)
    }

    fn note_use(&mut self) {
        if std::mem::take(&mut self.awaits_use) {
            self.reader.count_seek_use(self.filter_used);
        }
    }
}
