//! Reads block-based tables.

mod check;
mod demand;
mod fetch;
mod get;
mod index_cursor;
mod multi_get;
mod open;
mod uncache;

pub(crate) use fetch::{BlockRole, count_add};
pub use get::LikelyBlock;
pub(crate) use index_cursor::IndexCursor;
pub use multi_get::{MissingBlock, PendingGet, read_blocks};
pub(crate) use open::{check_supported, global_sequence, open, read_tail};

use crate::block_trace::TableReaderCaller;
use crate::cached_block::{BlockCache, BlockRef, CachedBlock, PinnedBytes};
use crate::filter_block::ParsedFilter;
use crate::footer::Footer;
use crate::handle::BlockHandle;
use crate::index::{FlatIndex, IndexFormat};
use crate::metaindex::MetaBlock;
use crate::options::{IndexType, ReadContext, TableOptions, TableReadOptions};
use crate::properties::{StoredProperties, TableProperties};
use crate::readahead::Readahead;
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::AtomicBool;
use ironstone_base::{
    Error, FileNumber, FragmentedTombstones, InternalKey, InternalKeyBuf, InternalKeyComparator,
    RangeTombstone, Result, SequenceNumber, SliceTransform, ValueType,
};
use ironstone_cache::{MemoryRole, Priority, Reservation};
use ironstone_compress::Decompressor;
use ironstone_vfs::RandomAccessFile;
use std::ops::Deref;
use std::path::Path;

/// An open block-based table.
pub(crate) struct BlockBasedReader {
    file: Box<dyn RandomAccessFile>,
    file_size: u64,
    footer: Footer,
    /// The level that it was opened on.
    level: u32,
    /// Blocks in memory have checksums.
    is_protected: bool,
    /// Somebody wants to hear of blocks that are in the cache. Relaxed: a block more or less when that changes.
    is_watched: Arc<AtomicBool>,
    /// The file's number, for traces.
    file_number: FileNumber,
    table: Arc<TableOptions>,
    order: InternalKeyComparator,
    properties: StoredProperties,
    /// Where the data blocks end.
    data_end: u64,
    /// The meta blocks, by name.
    metaindex: Vec<MetaBlock>,
    index_type: IndexType,
    index_format: IndexFormat,
    index: IndexHome,
    filter: FilterHome,
    /// Whether the filter holds whole keys.
    filters_keys: bool,
    /// The extractor whose prefixes the filter holds.
    filter_extractor: Option<Arc<dyn SliceTransform>>,
    range_tombstones: Vec<RangeTombstone>,
    range_fragments: Arc<FragmentedTombstones>,
    /// The sequence number that all entries count as written at, for ingested files.
    global_sequence: Option<u64>,
    /// The table in keys of the persistent cache.
    persistent_id: u64,
    /// For data blocks: has the table's dictionary.
    data_decompressor: Decompressor,
    meta_decompressor: Decompressor,
    cache: Option<Arc<BlockCache>>,
    /// The file's part of cache keys.
    cache_file_id: u64,
    /// Whether blocks entered the cache when they were written.
    is_warmed: bool,
    /// Each scan reads the index for itself, and it is kept nowhere else. There is no filter.
    is_for_scans: bool,
    /// What this takes in memory counts towards the block cache, for as long as the table is open.
    _charge: Option<Reservation>,
}

/// Where the index is.
struct IndexHome {
    top: Home<FlatIndex>,
    /// Whether the top level's blocks are index blocks. A two-level index that is held in memory is kept
    /// as one level.
    is_two_level: bool,
    /// These, if they are held in the cache; else none.
    pinned: Vec<BlockRef>,
}

/// Where the filter is.
enum FilterHome {
    None,
    Full(Home<ParsedFilter>),
    Partitioned { top: Box<Home<FlatIndex>>, partitions: FilterPartitions },
}

/// Where the partitions of a filter are.
enum FilterPartitions {
    /// In the table.
    Resident(Vec<ParsedFilter>),
    /// In the cache, held there.
    Pinned(Vec<BlockRef>),
    /// In the cache if there was room.
    Cached,
}

/// Where a block that every read needs is kept.
enum Home<T> {
    /// In the table.
    Resident(T),
    /// In the cache, held there.
    Pinned(BlockRef),
    /// In the cache if there was room.
    Cached(BlockHandle),
}

/// A block out of its [`Home`].
enum Lent<'a, T> {
    Resident(&'a T),
    Block(BlockRef),
}

/// An entry that a point read found.
#[derive(Clone, Debug)]
pub struct TableEntry {
    /// When it was written.
    pub sequence: SequenceNumber,
    /// What it means.
    pub value_type: ValueType,
    /// Its value, in its block.
    pub value: PinnedBytes,
}

impl BlockBasedReader {
    /// The level that it was opened on; it may have moved since.
    #[inline]
    pub fn level(&self) -> u32 {
        self.level
    }

    /// What the table says about itself.
    pub fn properties(&self) -> &TableProperties {
        self.properties.get()
    }
    /// What its footer says.
    pub fn footer(&self) -> &Footer {
        &self.footer
    }
    /// Its meta blocks, by name.
    pub fn meta_blocks(&self) -> &[MetaBlock] {
        &self.metaindex
    }
    /// The index type that the table was written with.
    pub fn index_type(&self) -> IndexType {
        self.index_type
    }
    /// The order of its user keys.
    pub fn comparator(&self) -> &ironstone_base::UserComparator {
        &self.order.user
    }
    /// Where the file is.
    pub fn path(&self) -> &Path {
        self.file.path()
    }
    /// How long the file is.
    pub fn file_size(&self) -> u64 {
        self.file_size
    }
    /// The sequence number that all entries count as written at, if they carry none of their own.
    pub fn global_sequence(&self) -> Option<SequenceNumber> {
        self.global_sequence.map(SequenceNumber)
    }
    /// Whether there are range tombstones.
    pub fn has_range_deletions(&self) -> bool {
        !self.range_tombstones.is_empty()
    }
    /// The range tombstones, as stored: ordered by begin, maybe overlapping.
    pub fn range_tombstones(&self) -> &[RangeTombstone] {
        &self.range_tombstones
    }
    /// The range tombstones as fragments. They may reach beyond the bounds that the table has in its version.
    pub fn range_fragments(&self) -> &Arc<FragmentedTombstones> {
        &self.range_fragments
    }
    /// The newest range tombstone over `user_key` at or below `at`; zero if there is none.
    #[inline]
    pub fn covering(&self, user_key: &[u8], at: SequenceNumber) -> SequenceNumber {
        match self.has_range_deletions() {
            true => self.range_fragments.covering(&self.order.user, user_key, at),
            false => SequenceNumber::ZERO,
        }
    }

    /// Bytes that this table holds in memory outside of the block cache.
    pub fn memory_usage(&self) -> usize {
        let filter = match &self.filter {
            FilterHome::None => 0,
            FilterHome::Full(home) => home.memory_usage(ParsedFilter::memory_usage),
            FilterHome::Partitioned { top, partitions } => {
                let partitions = match partitions {
                    FilterPartitions::Resident(all) => all.iter().map(ParsedFilter::memory_usage).sum(),
                    FilterPartitions::Pinned(_) | FilterPartitions::Cached => 0,
                };
                top.memory_usage(FlatIndex::memory_usage) + partitions
            }
        };
        let tombstones = self.range_tombstones.iter().map(|t| size_of_val(t) + t.begin.len() + t.end.len());
        size_of::<Self>()
            + filter
            + self.index.top.memory_usage(FlatIndex::memory_usage)
            + self.properties.memory_usage()
            + self.data_decompressor.memory_usage()
            + tombstones.sum::<usize>()
            + self.range_fragments.memory_usage()
    }

    /// Counts what this takes in memory towards the block cache, where it is to be counted.
    fn charge_memory(&mut self) -> Result<()> {
        let Some(mut charge) = self.table.reserve_in_cache(MemoryRole::TableReader) else { return Ok(()) };
        charge.grow(self.memory_usage()).map_err(|error| error.context(self.path().display()))?;
        self._charge = Some(charge);
        Ok(())
    }

    /// About where in the file the entry at or after `key` is; the end of the data beyond the last.
    pub fn approximate_offset_of(&self, key: InternalKey<'_>) -> Result<u64> {
        let _call = self.traced_call(TableReaderCaller::UserApproximateSize);
        let mut cursor = IndexCursor::new(self, &ReadContext::default())?;
        cursor.seek(self, &ReadContext::default(), key)?;
        Ok(cursor.handle(self).map_or(self.data_end, |handle| handle.offset))
    }

    /// Keys that cut the table in about equal parts, with about how many bytes lie before each and
    /// after the one before; at most `limit`, in order. Each is at or after every key before it.
    pub fn anchors(&self, limit: usize) -> Result<Vec<(InternalKeyBuf, u64)>> {
        let _call = self.traced_call(TableReaderCaller::Compaction);
        let step = self.data_end.div_ceil(limit.max(1) as u64);
        let mut anchors: Vec<(InternalKeyBuf, u64)> = Vec::new();
        let mut begun_at = 0;
        let context = ReadContext { fill_cache: false, ..ReadContext::default() };
        let mut cursor = IndexCursor::new(self, &context)?;
        let mut more = cursor.seek_to_first(self, &context)?;
        while let (true, Some((index, at))) = (more, cursor.current(self)) {
            let end = index.handle(at).end();
            let user_key = index.separator_user_key(at);
            more = cursor.next(self, &context)?;
            if end.saturating_sub(begun_at) >= step || !more {
                let key = InternalKeyBuf::new(&user_key, SequenceNumber::ZERO, ValueType::FOR_SEEK_FOR_PREV);
                anchors.push((key, end.saturating_sub(begun_at)));
                begun_at = end;
            }
        }
        Ok(anchors)
    }

    pub(crate) fn order(&self) -> &InternalKeyComparator {
        &self.order
    }

    /// How an iterator with `options` reads ahead.
    pub(crate) fn readahead(&self, options: &TableReadOptions) -> Readahead {
        let table = &self.table;
        let readahead = match options.readahead_size {
            0 => Readahead::growing(
                table.initial_auto_readahead_size,
                table.max_auto_readahead_size,
                table.num_file_reads_for_auto_readahead,
                self.data_end,
            ),
            size => Readahead::fixed(size, self.data_end),
        };
        match &table.statistics {
            Some(statistics) => readahead.counted(statistics, options.counts_seeks),
            None => readahead,
        }
    }

    /// What index and filter blocks are inserted with.
    fn meta_priority(&self) -> Priority {
        match self.table.cache_index_and_filter_blocks_with_high_priority {
            true => Priority::High,
            false => Priority::Low,
        }
    }

    #[cold]
    fn corrupt(&self, offset: u64, what: &str) -> Error {
        Error::corruption_at(self.path(), offset, what)
    }
}

impl<T> Home<T> {
    fn memory_usage(&self, of: impl Fn(&T) -> usize) -> usize {
        match self {
            Self::Resident(block) => of(block),
            // Without a cache a pinned block is this table's own.
            Self::Pinned(BlockRef::Owned(block)) => block.memory_usage(),
            Self::Pinned(BlockRef::Cached(_)) | Self::Cached(_) => 0,
        }
    }
}

/// A kind of block that a [`Home`] can hold.
trait InBlock: Sized {
    fn of(block: &CachedBlock) -> Option<&Self>;
}

impl InBlock for FlatIndex {
    fn of(block: &CachedBlock) -> Option<&Self> {
        if let CachedBlock::Index(index) = block { Some(index) } else { None }
    }
}

impl InBlock for ParsedFilter {
    fn of(block: &CachedBlock) -> Option<&Self> {
        if let CachedBlock::Filter(filter) = block { Some(filter) } else { None }
    }
}

impl<T: InBlock> Deref for Lent<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        match self {
            Self::Resident(block) => block,
            Self::Block(block) => T::of(block).expect("fetch checks the kind of each block"),
        }
    }
}

#[cfg(test)]
mod tests;
