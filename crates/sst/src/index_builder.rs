//! Builds the index of a table: for each data block a key at or after its last one and before the next
//! block's first, and where the block is.
//!
//! ```text
//! one level     an index block: separator -> index value
//! two levels    several of those, and then one more: last separator of each -> its place
//! hash search   one level, and two meta blocks: all prefixes laid end to end, and for each prefix
//!               length varint32 | first data block varint32 | number of data blocks varint32
//! ```
//! Separators are user keys, unless somewhere two neighbouring blocks divide one user key's entries (or
//! the format version is below 3): then they are internal keys everywhere.
//! Format reference: docs/format/sst.md, "Index".

use crate::block_builder::BlockBuilder;
use crate::handle::{BLOCK_TRAILER_LEN, BlockHandle, IndexValue};
use crate::options::{IndexShortening, IndexType, TableOptions};
use ironstone_base::coding::{put_varint32, varint_len};
use ironstone_base::internal_key::{TRAILER_LEN, pack_trailer};
use ironstone_base::sync::Arc;
use ironstone_base::{
    Corrupt, InternalKey, Result, SequenceNumber, SliceTransform, UserComparator, ValueType,
};

/// Collects the index while data blocks are written.
pub(crate) struct IndexBuilder {
    index_type: IndexType,
    order: UserComparator,
    shortening: IndexShortening,
    restart_interval: u32,
    may_use_delta_values: bool,
    /// How many data blocks do not begin where the one before them ends.
    gaps: usize,
    needs_sequence: bool,
    entries: Vec<Entry>,
    /// The separators, internal keys, end to end.
    separators: Vec<u8>,
    /// The first keys of the blocks, end to end, if the index type wants them.
    first_keys: Vec<u8>,
    block_has_key: bool,
    partitions: Partitions,
    prefixes: Option<PrefixBlocks>,
}

struct Entry {
    handle: BlockHandle,
    separator_end: usize,
    first_key_end: usize,
}

/// Where a two-level index is cut.
struct Partitions {
    size_limit: usize,
    /// The entries that begin a partition, the first one left out.
    starts: Vec<usize>,
    /// About how long the open partition is.
    open_len: usize,
    cut_requested: bool,
    filter_cut_due: bool,
    /// The bytes of the separators that end the partitions before the open one.
    ends_len: usize,
}

/// What [`IndexBuilder::finish`] wrote.
pub(crate) struct FinishedIndex {
    pub root: BlockHandle,
    /// Bytes of all index blocks, without trailers.
    pub size: u64,
    /// 0 for one level.
    pub partition_count: u64,
    pub top_level_size: u64,
    pub key_is_user_key: bool,
    pub uses_delta_values: bool,
    /// Meta blocks to be named in the metaindex.
    pub meta_blocks: Vec<(&'static str, BlockHandle)>,
}

/// At most what an entry takes besides its keys: three lengths, a handle, a restart point.
const ENTRY_OVERHEAD: usize = 3 * 5 + BlockHandle::MAX_ENCODED_LEN + 4;
/// What a block takes besides its entries: the count of its restart points, the trailer.
const PARTITION_OVERHEAD: usize = 8 + BLOCK_TRAILER_LEN;

pub(crate) const HASH_PREFIXES: &str = "rocksdb.hashindex.prefixes";
pub(crate) const HASH_METADATA: &str = "rocksdb.hashindex.metadata";

impl IndexBuilder {
    pub fn new(options: &TableOptions) -> Self {
        let hash = options.index_type == IndexType::HashSearch;
        Self {
            index_type: options.index_type,
            order: options.comparator.clone(),
            shortening: options.index_shortening,
            restart_interval: if hash { 1 } else { options.index_block_restart_interval },
            may_use_delta_values: options.format_version >= 4 && !options.block_align,
            gaps: 0,
            needs_sequence: options.format_version <= 2,
            entries: Vec::new(),
            separators: Vec::new(),
            first_keys: Vec::new(),
            block_has_key: false,
            partitions: Partitions {
                size_limit: options.metadata_block_size,
                starts: Vec::new(),
                open_len: 0,
                cut_requested: false,
                filter_cut_due: false,
                ends_len: 0,
            },
            prefixes: options.prefix_extractor.as_ref().filter(|_| hash).map(PrefixBlocks::new),
        }
    }

    /// Notes a key that goes into the open data block.
    #[inline]
    pub fn on_key_added(&mut self, key: InternalKey<'_>) {
        if !self.block_has_key {
            self.block_has_key = true;
            if self.index_type == IndexType::BinarySearchWithFirstKey {
                self.first_keys.extend_from_slice(key.as_bytes());
            }
        }
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.add(key.user_key(), self.entries.len() as u32);
        }
    }

    /// Adds the entry of the data block that was written to `handle`. `next` is the first key of the
    /// block after it, if there will be one.
    pub fn add_block(&mut self, last: InternalKey<'_>, next: Option<InternalKey<'_>>, handle: BlockHandle) {
        if self.index_type == IndexType::TwoLevel && next.is_some() {
            self.maybe_cut_partition();
        }
        let separator_start = self.separators.len();
        self.put_separator(last, next);
        let separator_len = self.separators.len() - separator_start;
        self.partitions.open_len += separator_len + self.entry_overhead(handle);
        self.partitions.filter_cut_due |= next.is_none();
        self.gaps +=
            usize::from(self.entries.last().is_some_and(|entry| entry.handle.end() != handle.offset));
        self.entries.push(Entry {
            handle,
            separator_end: self.separators.len(),
            first_key_end: self.first_keys.len(),
        });
        self.block_has_key = false;
    }

    fn put_separator(&mut self, last: InternalKey<'_>, next: Option<InternalKey<'_>>) {
        let user_key = last.user_key();
        let mut shortened = Vec::new();
        match (next, self.shortening) {
            (Some(next), shortening) => {
                self.needs_sequence |= self.order.equal(user_key, next.user_key());
                if shortening != IndexShortening::None {
                    shortened.extend_from_slice(user_key);
                    self.order.find_shortest_separator(&mut shortened, next.user_key());
                }
            }
            (None, IndexShortening::ShortenSeparatorsAndSuccessor) => {
                shortened.extend_from_slice(user_key);
                self.order.find_short_successor(&mut shortened);
            }
            (None, _) => {}
        }
        let is_useful = !shortened.is_empty()
            && shortened.len() <= user_key.len()
            && self.order.compare(user_key, &shortened).is_lt();
        if is_useful {
            // Before every entry of a key that is not in the table, so after all of this block.
            let trailer = pack_trailer(SequenceNumber::MAX, ValueType::FOR_SEEK);
            self.separators.extend_from_slice(&shortened);
            self.separators.extend_from_slice(&trailer.to_le_bytes());
        } else {
            self.separators.extend_from_slice(last.as_bytes());
        }
    }

    /// What an entry takes in its block besides the key, about.
    fn entry_overhead(&self, handle: BlockHandle) -> usize {
        let value = match self.uses_delta_values() && self.restart_interval > 1 {
            true => 2,
            false => varint_len(handle.offset) + varint_len(handle.size),
        };
        3 + value + (4 / self.restart_interval as usize).max(1)
    }

    fn maybe_cut_partition(&mut self) {
        let first = self.partitions.starts.last().copied().unwrap_or(0);
        let is_empty = self.entries.len() == first;
        let is_full = self.partitions.open_len >= self.partitions.size_limit;
        if !is_empty && (is_full || self.partitions.cut_requested) {
            self.partitions.ends_len += self.separator(self.entries.len() - 1).len();
            self.partitions.starts.push(self.entries.len());
            self.partitions.open_len = 0;
            self.partitions.cut_requested = false;
            self.partitions.filter_cut_due = true;
        }
    }

    /// Ends the open partition after the next block: the filter partition that goes with it is full.
    pub fn request_partition_cut(&mut self) {
        self.partitions.cut_requested = true;
    }
    /// Whether a partition was ended since this was last asked.
    pub fn take_filter_cut(&mut self) -> bool {
        std::mem::take(&mut self.partitions.filter_cut_due)
    }
    /// The separator after the last block that was written.
    pub fn last_separator(&self) -> &[u8] {
        let start = self.entries.len().checked_sub(2).map_or(0, |at| self.entries[at].separator_end);
        &self.separators[start..]
    }
    /// Whether separators will be written as user keys, as far as is known.
    pub fn key_is_user_key(&self) -> bool {
        !self.needs_sequence
    }
    /// Whether values will be delta encoded, as far as is known: behind a gap one cannot be, and its key is stored whole then.
    pub fn uses_delta_values(&self) -> bool {
        self.may_use_delta_values && self.gaps * 2 <= self.entries.len()
    }
    /// About how long the index will be.
    pub fn estimated_len(&self) -> usize {
        self.separators.len() + self.first_keys.len() + 12 * self.entries.len()
    }

    /// At most how long it will be after `blocks` more blocks, whose keys take `keys_len` bytes together, trailers included.
    pub fn len_bound_with(&self, blocks: usize, keys_len: usize) -> usize {
        let entries = self.entries.len() + blocks;
        let first_keys = match self.index_type {
            IndexType::BinarySearchWithFirstKey => self.first_keys.len() + keys_len,
            _ => 0,
        };
        let top = match self.index_type {
            // A cut may come before each of them.
            IndexType::TwoLevel => {
                self.partitions.ends_len
                    + keys_len
                    + (self.partitions.starts.len() + blocks + 1) * (ENTRY_OVERHEAD + PARTITION_OVERHEAD)
            }
            _ => 0,
        };
        let prefixes = self.prefixes.as_ref().map_or(0, |prefixes| {
            prefixes.prefixes.len()
                + prefixes.metadata.len()
                + prefixes.prefix.len()
                + keys_len
                + ENTRY_OVERHEAD
        });
        let separators = self.separators.len() + keys_len + entries * ENTRY_OVERHEAD;
        separators + first_keys + top + prefixes + PARTITION_OVERHEAD
    }

    /// Writes the index with `write`, which answers where the block went.
    pub fn finish(
        mut self,
        write: &mut dyn FnMut(&mut Vec<u8>) -> Result<BlockHandle>,
    ) -> Result<FinishedIndex> {
        let mut finished = FinishedIndex {
            root: BlockHandle::NULL,
            size: 0,
            partition_count: 0,
            top_level_size: 0,
            key_is_user_key: !self.needs_sequence,
            uses_delta_values: self.uses_delta_values(),
            meta_blocks: Vec::new(),
        };
        if let Some(mut prefixes) = self.prefixes.take() {
            prefixes.end_prefix();
            finished.size += (prefixes.prefixes.len() + prefixes.metadata.len()) as u64;
            finished.meta_blocks.push((HASH_PREFIXES, write(&mut prefixes.prefixes)?));
            finished.meta_blocks.push((HASH_METADATA, write(&mut prefixes.metadata)?));
        }
        match self.index_type {
            IndexType::TwoLevel if !self.entries.is_empty() => self.write_two_levels(&mut finished, write)?,
            _ => {
                let mut block = self.block_of(0, self.entries.len())?;
                finished.size += block.len() as u64;
                finished.root = write(&mut block)?;
            }
        }
        Ok(finished)
    }

    fn write_two_levels(
        &self,
        finished: &mut FinishedIndex,
        write: &mut dyn FnMut(&mut Vec<u8>) -> Result<BlockHandle>,
    ) -> Result<()> {
        let mut top =
            IndexBlockBuilder::new(self.restart_interval, self.uses_delta_values(), self.needs_sequence);
        let ends = self.partitions.starts.iter().copied().chain([self.entries.len()]);
        let mut start = 0;
        for end in ends {
            let mut block = self.block_of(start, end)?;
            finished.size += block.len() as u64;
            let handle = write(&mut block)?;
            top.add(self.separator(end - 1), &IndexValue { handle, first_key: &[] }, false)?;
            finished.partition_count += 1;
            start = end;
        }
        let mut block = top.finish();
        finished.top_level_size = block.len() as u64;
        finished.size += finished.top_level_size;
        finished.root = write(&mut block)?;
        Ok(())
    }

    fn block_of(&self, start: usize, end: usize) -> Result<Vec<u8>> {
        let with_first_key = self.index_type == IndexType::BinarySearchWithFirstKey;
        let mut block =
            IndexBlockBuilder::new(self.restart_interval, self.uses_delta_values(), self.needs_sequence);
        let mut first_key_start = start.checked_sub(1).map_or(0, |at| self.entries[at].first_key_end);
        for at in start..end {
            let entry = &self.entries[at];
            let first_key = &self.first_keys[first_key_start..entry.first_key_end];
            first_key_start = entry.first_key_end;
            block.add(self.separator(at), &IndexValue { handle: entry.handle, first_key }, with_first_key)?;
        }
        Ok(block.finish())
    }

    fn separator(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.entries[before].separator_end);
        &self.separators[start..self.entries[at].separator_end]
    }
}

/// Builds one index block, of data blocks or of partitions.
pub(crate) struct IndexBlockBuilder {
    block: BlockBuilder,
    use_delta_values: bool,
    needs_sequence: bool,
    previous: Option<BlockHandle>,
    whole: Vec<u8>,
    delta: Vec<u8>,
}

impl IndexBlockBuilder {
    pub fn new(restart_interval: u32, use_delta_values: bool, needs_sequence: bool) -> Self {
        Self {
            block: BlockBuilder::new(restart_interval, true),
            use_delta_values,
            needs_sequence,
            previous: None,
            whole: Vec::new(),
            delta: Vec::new(),
        }
    }
    /// Adds an entry. `key` is an internal key, whatever is stored of it.
    pub fn add(&mut self, key: &[u8], value: &IndexValue<'_>, with_first_key: bool) -> Result<()> {
        let kept = if self.needs_sequence { key.len() } else { key.len() - TRAILER_LEN };
        let key = &key[..kept];
        self.whole.clear();
        value.encode(&mut self.whole, with_first_key, None);
        if self.block.len_with(key.len(), self.whole.len()) > u32::MAX as usize {
            return Err(ironstone_base::Error::not_supported("an index block of more than 4 GiB"));
        }
        if !self.use_delta_values {
            self.block.add(key, &self.whole);
            return Ok(());
        }
        self.delta.clear();
        let previous = self.previous.filter(|previous| previous.end() == value.handle.offset);
        if previous.is_some() {
            value.encode(&mut self.delta, with_first_key, previous);
        }
        self.block.add_index_entry(key, &self.whole, previous.map(|_| &self.delta[..]));
        self.previous = Some(value.handle);
        Ok(())
    }
    pub fn finish(mut self) -> Vec<u8> {
        std::mem::take(self.block.finish())
    }
}

/// The meta blocks of [`IndexType::HashSearch`].
struct PrefixBlocks {
    extractor: Arc<dyn SliceTransform>,
    prefixes: Vec<u8>,
    metadata: Vec<u8>,
    prefix: Vec<u8>,
    first_block: u32,
    /// 0 before the first key.
    block_count: u32,
}

impl PrefixBlocks {
    fn new(extractor: &Arc<dyn SliceTransform>) -> Self {
        Self {
            extractor: Arc::clone(extractor),
            prefixes: Vec::new(),
            metadata: Vec::new(),
            prefix: Vec::new(),
            first_block: 0,
            block_count: 0,
        }
    }
    fn add(&mut self, user_key: &[u8], block: u32) {
        let prefix = self.extractor.transform(user_key).unwrap_or(user_key);
        if self.block_count == 0 || prefix != self.prefix {
            self.end_prefix();
            self.prefix.clear();
            self.prefix.extend_from_slice(prefix);
            self.first_block = block;
            self.block_count = 1;
        } else if self.first_block + self.block_count - 1 != block {
            self.block_count += 1;
        }
    }
    fn end_prefix(&mut self) {
        if self.block_count == 0 {
            return;
        }
        self.prefixes.extend_from_slice(&self.prefix);
        put_varint32(&mut self.metadata, self.prefix.len() as u32);
        put_varint32(&mut self.metadata, self.first_block);
        put_varint32(&mut self.metadata, self.block_count);
        self.block_count = 0;
    }
}

/// One prefix of a hash index's meta blocks: `(prefix, first data block, number of data blocks)`.
pub(crate) type PrefixSpan<'a> = (&'a [u8], u32, u32);

/// Reads the meta blocks of a hash index. The reader itself searches by separators; this is for tools
/// and checks.
pub(crate) fn decode_prefix_blocks<'a>(
    prefixes: &'a [u8],
    mut metadata: &[u8],
) -> std::result::Result<Vec<PrefixSpan<'a>>, Corrupt> {
    use ironstone_base::coding::get_varint32;
    const BAD: Corrupt = Corrupt("hash index: the prefixes and their metadata do not agree");
    let mut spans = Vec::new();
    let mut rest = prefixes;
    while !metadata.is_empty() {
        let len = get_varint32(&mut metadata).ok_or(BAD)?;
        let first = get_varint32(&mut metadata).ok_or(BAD)?;
        let count = get_varint32(&mut metadata).ok_or(BAD)?;
        let (prefix, tail) = rest.split_at_checked(len as usize).ok_or(BAD)?;
        spans.push((prefix, first, count));
        rest = tail;
    }
    if rest.is_empty() { Ok(spans) } else { Err(BAD) }
}
