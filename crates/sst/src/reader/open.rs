//! Opens a table.

use super::fetch::{BlockFormat, BlockRole};
use super::{BlockBasedReader, FilterHome, FilterPartitions, Home, IndexHome};
use crate::block::{Block, MetaCursor, apply_global};
use crate::block_trace::TableReaderCaller;
use crate::block_warmer::{file_id, warmed_file_id};
use crate::cached_block::BlockRef;
use crate::filter::{FULL_FILTER_PREFIX, PARTITIONED_FILTER_PREFIX};
use crate::filter_block::ParsedFilter;
use crate::footer::{FOOTER_LEN, Footer};
use crate::handle::{BLOCK_TRAILER_LEN, BlockHandle};
use crate::index::{FlatIndex, IndexFormat};
use crate::metaindex::{self, MetaBlock, find};
use crate::options::{IndexType, OpenOptions, PinningTier, ReadContext};
use crate::properties::{self, BUILTIN_COMPRESSION_MANAGER, StoredProperties, TableProperties};
use crate::unique_id::forced_unique_id;
use ironstone_base::statistics::{Histogram, Ticker};
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::AtomicBool;
use ironstone_base::{
    Error, FragmentedTombstones, InternalKey, InternalKeyComparator, RangeTombstone, Result, SequenceNumber,
    ValueType, slice_transform,
};
use ironstone_compress::Decompressor;
use ironstone_vfs::RandomAccessFile;
use std::borrow::Cow;

/// How much of the end of the file is read at once if nobody says how much there is.
const TAIL_GUESS: u64 = 64 << 10;
const EMBEDDED_BLOBS: &str = "rocksdb.embedded.blob.stats";

/// The end of the file, read in one go.
#[derive(Clone, Copy)]
pub(crate) struct Tail<'a> {
    pub bytes: &'a [u8],
    /// Where it begins.
    at: u64,
}

/// Blocks of a file whose reader is not there yet.
struct TailBlocks<'a> {
    file: &'a dyn RandomAccessFile,
    format: BlockFormat<'a>,
    tail: Tail<'a>,
}

/// Opens the block-based table in `file`, which is `file_size` bytes long, and whose end was read already. Reads footer,
/// metaindex, properties (which are in `properties` afterwards) and, unless they live in the block cache, index and filter.
pub(crate) fn open(
    file: Box<dyn RandomAccessFile>,
    file_size: u64,
    options: &OpenOptions,
    tail: Tail<'_>,
    properties: &mut TableProperties,
) -> Result<BlockBasedReader> {
    let table = Arc::clone(&options.table);
    let statistics = table.statistics.as_deref();
    if let Some(statistics) = statistics {
        statistics.measure(Histogram::TableOpenPrefetchTailReadBytes, tail.bytes.len() as u64);
    }
    let footer_at = file_size.saturating_sub(FOOTER_LEN as u64);
    let footer = Footer::decode(tail.bytes, file_size).map_err(|bad| {
        if let Some(statistics) = statistics {
            statistics.record(Ticker::SstFooterCorruptionCount, 1);
        }
        bad.at(file.path(), footer_at)
    })?;
    let path = file.path();
    let max_block_size = table.max_block_size;
    let format = BlockFormat { path, footer: &footer, file_size, max_block_size, statistics };
    let blocks = TailBlocks { file: &*file, format, tail };

    let metaindex = blocks.metaindex()?;
    let stored_properties = blocks.properties(&metaindex, properties)?;
    check_supported(path, properties, options)?;
    let global_sequence = global_sequence(properties, options.largest_sequence).map_err(|what| {
        Error::corruption_at(path, metaindex_offset(&metaindex, "rocksdb.properties"), what)
    })?;
    let dictionary = blocks.dictionary(&metaindex)?;
    let range_tombstones = blocks.range_tombstones(&metaindex, global_sequence)?;
    let range_fragments = Arc::new(FragmentedTombstones::new(&table.comparator, range_tombstones.clone()));
    let (index_type, index_at) = blocks.index_place(&metaindex, properties)?;
    let index_format = IndexFormat {
        user_keys: properties.index_key_is_user_key != 0,
        delta_values: properties.index_value_is_delta_encoded != 0,
        first_keys: index_type == IndexType::BinarySearchWithFirstKey,
    };
    let filter_extractor = filter_extractor(properties, options);
    let cache = table.block_cache.clone().filter(|_| !table.no_block_cache);
    let unused = cache.as_ref().map(|cache| cache.new_file_id());
    let is_warmed = warmed_file_id(properties).is_some();
    let persistent = table.persistent_cache.as_ref().map(|cache| cache.new_id());
    let persistent_id = cache_file_id(properties, &footer, file_size, persistent);
    let cache_file_id = cache_file_id(properties, &footer, file_size, unused);

    let mut reader = BlockBasedReader {
        order: InternalKeyComparator::new(table.comparator.clone()),
        index: IndexHome {
            top: Home::Cached(index_at),
            is_two_level: index_type == IndexType::TwoLevel,
            pinned: Vec::new(),
        },
        filter: FilterHome::None,
        filters_keys: properties.user_flag(properties::WHOLE_KEY_FILTERING, true),
        filter_extractor,
        range_fragments,
        range_tombstones,
        global_sequence,
        data_decompressor: Decompressor::new(dictionary),
        meta_decompressor: Decompressor::new(None),
        cache,
        cache_file_id,
        is_warmed,
        is_for_scans: false,
        _charge: None,
        persistent_id,
        file_size,
        footer,
        level: options.level,
        is_protected: table.block_protection_bytes_per_key > 0,
        is_watched: match &table.watch {
            Some(watch) if table.sim_cache.is_none() => Arc::clone(watch.is_on()),
            _ => Arc::new(AtomicBool::new(table.sim_cache.is_some())),
        },
        file_number: options.file_number,
        table,
        data_end: match properties.tail_start_offset {
            0 => properties.data_size.min(file_size),
            tail => tail.min(file_size),
        },
        properties: stored_properties,
        metaindex,
        index_type,
        index_format,
        file,
    };
    reader.is_for_scans = options.for_scans && !reader.keeps_metadata_in_cache();
    let _call = reader.traced_call(TableReaderCaller::Prefetch);
    reader.settle_index(options, index_at, tail)?;
    reader.settle_filter(options, tail)?;
    reader.charge_memory()?;
    Ok(reader)
}

/// The last `hint` bytes of the file, or what is likely enough, read into `buffer`.
pub(crate) fn read_tail<'a>(
    file: &dyn RandomAccessFile,
    file_size: u64,
    hint: u64,
    buffer: &'a mut Vec<u8>,
) -> Result<Tail<'a>> {
    let wanted = if hint > 0 { hint } else { TAIL_GUESS };
    let len = wanted.max(FOOTER_LEN as u64).min(file_size);
    let at = file_size - len;
    if buffer.len() < len as usize {
        buffer.resize(len as usize, 0);
    }
    let bytes = &mut buffer[..len as usize];
    let count = file.read_at(at, bytes)?;
    if count < bytes.len() {
        let what = format!("the file should be {file_size} bytes long, but ends at {}", at + count as u64);
        return Err(Error::corruption_at(file.path(), at + count as u64, what));
    }
    Ok(Tail { bytes, at })
}

impl<'a> Tail<'a> {
    /// The `len` bytes at `offset` of the file, if they are here.
    fn slice(self, offset: u64, len: usize) -> Option<&'a [u8]> {
        let start = usize::try_from(offset.checked_sub(self.at)?).ok()?;
        self.bytes.get(start..start.checked_add(len)?)
    }
}

impl TailBlocks<'_> {
    /// Reads a block, from memory if it is there, and checks it.
    fn stored(&self, role: BlockRole, handle: BlockHandle) -> Result<Vec<u8>> {
        let stored = self.stored_unchecked(role, handle)?;
        self.format.verify(role, handle.offset, &stored)?;
        Ok(stored)
    }

    fn stored_unchecked(&self, role: BlockRole, handle: BlockHandle) -> Result<Vec<u8>> {
        let len = self.format.stored_len(role, handle)?;
        let stored = self.tail.slice(handle.offset, len);
        self.format.count(tail_ticker(stored.is_some()), 1);
        match stored {
            Some(stored) => Ok(stored.to_vec()),
            None => self.format.read(self.file, role, handle),
        }
    }

    fn unpack(&self, role: BlockRole, handle: BlockHandle, stored: Vec<u8>) -> Result<Vec<u8>> {
        self.format.unpack_owned(role, handle.offset, stored, &Decompressor::new(None))
    }

    fn block(&self, role: BlockRole, handle: BlockHandle) -> Result<Block> {
        let raw = self.unpack(role, handle, self.stored(role, handle)?)?;
        Block::new(raw).map_err(|bad| self.format.corrupt(role, handle.offset, bad.0))
    }

    fn metaindex(&self) -> Result<Vec<MetaBlock>> {
        let (role, at) = (BlockRole::Metaindex, self.format.footer.metaindex);
        metaindex::decode(&self.block(role, at)?).map_err(|bad| self.format.corrupt(role, at.offset, bad.0))
    }

    /// Decodes the properties into `properties`. LevelDB's tables have none.
    fn properties(
        &self,
        metaindex: &[MetaBlock],
        properties: &mut TableProperties,
    ) -> Result<StoredProperties> {
        let role = BlockRole::Properties;
        // Old versions had another name for it.
        let at = find(metaindex, "rocksdb.properties").or_else(|| find(metaindex, "rocksdb.stats"));
        let Some(at) = at else {
            if self.format.footer.leveldb_magic {
                *properties = TableProperties::default();
                return Ok(StoredProperties::new(None, 0));
            }
            let at = self.format.footer.metaindex.offset;
            return Err(self.format.corrupt(BlockRole::Metaindex, at, "it names no properties block"));
        };
        let stored = self.stored_unchecked(role, at)?;
        let verified = self.format.verify(role, at.offset, &stored);
        let copy = verified.is_err().then(|| stored.clone());
        let parsed = self.unpack(role, at, stored).and_then(|raw| {
            let decoded = Block::new(raw).and_then(|block| {
                properties.decode_over(&block, at.offset)?;
                Ok(block)
            });
            decoded.map_err(|bad| self.format.corrupt(role, at.offset, bad.0))
        });
        match (parsed, verified) {
            (Ok(block), verified) => {
                if let (Err(error), Some(copy)) = (verified, copy) {
                    self.verify_without_global_sequence(at, copy, properties).map_err(|_| error)?;
                }
                Ok(StoredProperties::new(Some(block), at.offset))
            }
            // Of two failures the checksum's says more: bad bytes may seem to ask for an unknown codec.
            (Err(_), Err(error)) | (Err(error), Ok(())) => Err(error),
        }
    }

    /// Old RocksDB wrote the global sequence number into the file without mending the checksum, which
    /// is still the one for 0.
    fn verify_without_global_sequence(
        &self,
        at: BlockHandle,
        mut stored: Vec<u8>,
        properties: &TableProperties,
    ) -> Result<()> {
        let place = properties.external_sst_file_global_seqno_offset.checked_sub(at.offset);
        if let Some(field) = place.and_then(|start| stored.get_mut(start as usize..)?.first_chunk_mut::<8>())
        {
            *field = [0; 8];
        }
        self.format.verify(BlockRole::Properties, at.offset, &stored)
    }

    fn dictionary(&self, metaindex: &[MetaBlock]) -> Result<Option<Arc<[u8]>>> {
        let Some(at) = find(metaindex, "rocksdb.compression_dict").filter(|at| !at.is_null()) else {
            return Ok(None);
        };
        let role = BlockRole::Dictionary;
        Ok(Some(self.unpack(role, at, self.stored(role, at)?)?.into()))
    }

    fn range_tombstones(
        &self,
        metaindex: &[MetaBlock],
        global_sequence: Option<u64>,
    ) -> Result<Vec<RangeTombstone>> {
        let Some(at) = find(metaindex, "rocksdb.range_del").filter(|at| !at.is_null()) else {
            return Ok(Vec::new());
        };
        let role = BlockRole::RangeTombstones;
        let block = self.block(role, at)?;
        let corrupt = |what: &str| self.format.corrupt(role, at.offset, what);
        let mut cursor = MetaCursor::new(&block);
        let mut tombstones = Vec::new();
        while let Some((key, _, end)) = cursor.next().map_err(|bad| corrupt(bad.0))? {
            let key = InternalKey::from_bytes(key).map_err(|bad| corrupt(bad.0))?;
            if key.value_type() != Ok(ValueType::RangeDeletion) {
                return Err(corrupt("an entry is not a range tombstone"));
            }
            tombstones.push(RangeTombstone {
                begin: key.user_key().to_vec(),
                end: end.to_vec(),
                sequence: SequenceNumber(apply_global(key.trailer(), global_sequence) >> 8),
            });
        }
        Ok(tombstones)
    }

    fn index_place(
        &self,
        metaindex: &[MetaBlock],
        properties: &TableProperties,
    ) -> Result<(IndexType, BlockHandle)> {
        let footer = self.format.footer;
        let number = properties.user_fixed32(properties::INDEX_TYPE).unwrap_or(0);
        let Some(index_type) = IndexType::from_number(number) else {
            let message = format!("{}: index type {number}", self.format.path.display());
            return Err(Error::not_supported(message));
        };
        let at = if footer.index.is_null() { find(metaindex, "rocksdb.index") } else { Some(footer.index) };
        let missing =
            || self.format.corrupt(BlockRole::Metaindex, footer.metaindex.offset, "it names no index");
        Ok((index_type, at.ok_or_else(missing)?))
    }
}

/// What is counted for a block that was looked for in the end of the file that was read at once.
fn tail_ticker(is_there: bool) -> Ticker {
    if is_there { Ticker::TableOpenPrefetchTailHit } else { Ticker::TableOpenPrefetchTailMiss }
}

fn metaindex_offset(metaindex: &[MetaBlock], name: &str) -> u64 {
    find(metaindex, name).map_or(0, |handle| handle.offset)
}

/// Refuses tables that need what is not built, and tables of another order or another identity.
pub(crate) fn check_supported(
    path: &std::path::Path,
    properties: &TableProperties,
    options: &OpenOptions,
) -> Result<()> {
    let unsupported = |what: &str| Err(Error::not_supported(format!("{}: {what}", path.display())));
    if properties.separate_key_value_in_data_block != 0 {
        return unsupported("data blocks with keys and values apart (separate_key_value_in_data_block)");
    }
    if properties.user_defined_timestamps_persisted == 0 {
        return unsupported(
            "keys without their user-defined timestamps (persist_user_defined_timestamps=false)",
        );
    }
    if properties.user_collected.contains_key(EMBEDDED_BLOBS) {
        return unsupported("blobs embedded in the table");
    }
    if let Some((manager, _)) = properties.compression_name.split_once(';')
        && !["", BUILTIN_COMPRESSION_MANAGER, "nullptr"].contains(&manager)
    {
        return unsupported(&format!("compression manager \"{manager}\""));
    }
    let (own, wanted) = (&properties.comparator_name, options.table.comparator.name());
    if !own.is_empty() && own != wanted {
        let message = format!("{}: made with comparator {own}, opened with {wanted}", path.display());
        return Err(Error::invalid_argument(message));
    }
    if let Some(expected) = options.expected_unique_id.filter(|id| *id != [0, 0]) {
        let (db, session) = (&properties.db_id, &properties.db_session_id);
        let actual = forced_unique_id(db, session, properties.original_file_number);
        if actual != expected {
            let what = format!("another file is expected: unique id {actual:x?} instead of {expected:x?}");
            return Err(Error::corruption_at(path, 0, what));
        }
    }
    Ok(())
}

/// The sequence number of all entries of an ingested file, from its properties and the MANIFEST.
pub(crate) fn global_sequence(
    properties: &TableProperties,
    largest: Option<SequenceNumber>,
) -> std::result::Result<Option<u64>, &'static str> {
    let stored = properties.user_fixed64(properties::EXTERNAL_SST_GLOBAL_SEQNO);
    let has_version = properties.user_collected.contains_key(properties::EXTERNAL_SST_VERSION);
    match (properties.user_fixed32(properties::EXTERNAL_SST_VERSION), stored) {
        (Some(2), stored) => {
            let stored = stored.unwrap_or(0);
            let sequence = match largest {
                Some(largest) if stored == 0 => largest.0,
                Some(largest) if stored != largest.0 => {
                    return Err(
                        "its global sequence number is not the largest one that the MANIFEST has for it",
                    );
                }
                _ => stored,
            };
            match sequence > SequenceNumber::MAX.0 {
                true => Err("its global sequence number is too large"),
                false => Ok(Some(sequence)),
            }
        }
        (Some(1), None) | (None, None) if !has_version || stored.is_none() => Ok(None),
        (Some(1), Some(_)) => Err("an external file of version 1 has a global sequence number"),
        (None, Some(_)) => Err("a global sequence number in a file that is not external"),
        _ => Err("an external file has an unknown version"),
    }
}

/// The extractor that made the prefixes of the table's filter: the one in the options if it is the same,
/// else the built-in one of that name.
fn filter_extractor(
    properties: &TableProperties,
    options: &OpenOptions,
) -> Option<Arc<dyn ironstone_base::SliceTransform>> {
    if !properties.user_flag(properties::PREFIX_FILTERING, true) {
        return None;
    }
    let name = properties.prefix_extractor_name.as_str();
    let current = options.table.prefix_extractor.as_ref().filter(|current| current.name() == name);
    current.cloned().or_else(|| slice_transform::builtin(name))
}

/// Stable over closing and opening again where the table knows who it is. Its layout goes in as well, in
/// case that two files claim the same session and number.
fn cache_file_id(properties: &TableProperties, footer: &Footer, file_size: u64, unused: Option<u64>) -> u64 {
    if properties.db_session_id.is_empty() || properties.original_file_number == 0 {
        return unused.unwrap_or(0);
    }
    if let Some(id) = warmed_file_id(properties) {
        return id;
    }
    let layout = [
        properties.original_file_number,
        file_size,
        footer.metaindex.offset,
        footer.index.offset,
        properties.data_size,
        properties.key_smallest_seqno,
        properties.key_largest_seqno,
    ];
    file_id(properties, &layout)
}

impl BlockBasedReader {
    fn settle_index(&mut self, options: &OpenOptions, at: BlockHandle, tail: Tail<'_>) -> Result<()> {
        let context = ReadContext::default();
        if self.keeps_metadata_in_cache() {
            let (is_two_level, pinning) = (self.index.is_two_level, self.table.pinning);
            let top_is_pinned =
                self.is_pinned(options, if is_two_level { pinning.top_level } else { pinning.unpartitioned });
            let partitions_are_pinned = is_two_level && self.is_pinned(options, pinning.partitions);
            if !top_is_pinned && !partitions_are_pinned && !options.prefetches_metadata() {
                return Ok(());
            }
            let top = self.index_block(&context, at)?;
            if partitions_are_pinned {
                self.index.pinned = self.pin_partitions(&top, |at| self.index_block(&context, at))?;
            }
            if top_is_pinned {
                self.index.top = Home::Pinned(top);
            }
            return Ok(());
        }
        if self.is_for_scans {
            return Ok(());
        }
        let block = self.tail_block(BlockRole::Index, at, tail)?;
        let top = self.decode_index(&block, at)?;
        if !self.index.is_two_level {
            self.index.top = Home::Resident(top);
            return Ok(());
        }
        let places: Vec<BlockHandle> = (0..top.len()).map(|i| top.handle(i)).collect();
        let partitions = places.into_iter().map(|at| self.tail_block(BlockRole::Index, at, tail));
        let index = self.decode_partitions(partitions, at)?;
        self.index = IndexHome { top: Home::Resident(index), is_two_level: false, pinned: Vec::new() };
        Ok(())
    }

    /// Gets all blocks that the index block `top` names.
    fn pin_partitions(
        &self,
        top: &BlockRef,
        get: impl Fn(BlockHandle) -> Result<BlockRef>,
    ) -> Result<Vec<BlockRef>> {
        let Some(top) = top.index() else { return Ok(Vec::new()) };
        let get = |at| {
            self.check_entry(top, at)?;
            get(top.handle(at))
        };
        (0..top.len()).map(get).collect()
    }

    fn decode_index(&self, block: &Block, at: BlockHandle) -> Result<FlatIndex> {
        let mut index = FlatIndex::decode(block, self.index_format, &self.order.user, self.file_size)
            .map_err(|bad| self.format().corrupt(BlockRole::Index, at.offset, bad.0))?;
        index.protect(self.table.block_protection_bytes_per_key);
        Ok(index)
    }

    fn decode_partitions(
        &self,
        partitions: impl Iterator<Item = Result<Block>>,
        at: BlockHandle,
    ) -> Result<FlatIndex> {
        let mut failed = None;
        let blocks = partitions.map_while(|block| match block {
            Ok(block) => Some(Ok(block)),
            Err(error) => {
                failed = Some(error);
                None
            }
        });
        let index = FlatIndex::decode_partitions(blocks, self.index_format, &self.order.user, self.file_size);
        match failed {
            Some(error) => Err(error),
            None => {
                let mut index = index.map_err(|bad: ironstone_base::Corrupt| {
                    self.format().corrupt(BlockRole::Index, at.offset, bad.0)
                })?;
                index.protect(self.table.block_protection_bytes_per_key);
                Ok(index)
            }
        }
    }

    fn settle_filter(&mut self, options: &OpenOptions, tail: Tail<'_>) -> Result<()> {
        let named = |prefix: &str| {
            self.metaindex.iter().find(|(name, _)| name.starts_with(prefix)).map(|(_, handle)| *handle)
        };
        let (full, partitioned) = (named(FULL_FILTER_PREFIX), named(PARTITIONED_FILTER_PREFIX));
        if options.skip_filters || self.is_for_scans {
            return Ok(());
        }
        let in_cache = self.keeps_metadata_in_cache();
        self.filter = match (full, partitioned) {
            (Some(at), _) => FilterHome::Full(self.settle_full_filter(options, at, in_cache, tail)?),
            (None, Some(at)) => self.settle_partitioned_filter(options, at, in_cache, tail)?,
            (None, None) => FilterHome::None,
        };
        Ok(())
    }

    fn settle_full_filter(
        &self,
        options: &OpenOptions,
        at: BlockHandle,
        in_cache: bool,
        tail: Tail<'_>,
    ) -> Result<Home<ParsedFilter>> {
        let context = ReadContext::default();
        if !in_cache {
            return Ok(Home::Resident(self.tail_filter(at, tail)?));
        }
        if self.is_pinned(options, self.table.pinning.unpartitioned) {
            return Ok(Home::Pinned(self.filter_block(&context, at)?));
        }
        if options.prefetches_metadata() {
            self.filter_block(&context, at)?;
        }
        Ok(Home::Cached(at))
    }

    fn settle_partitioned_filter(
        &self,
        options: &OpenOptions,
        at: BlockHandle,
        in_cache: bool,
        tail: Tail<'_>,
    ) -> Result<FilterHome> {
        if in_cache {
            let (context, pinning) = (ReadContext::default(), self.table.pinning);
            let top_is_pinned = self.is_pinned(options, pinning.top_level);
            let partitions_are_pinned = self.is_pinned(options, pinning.partitions);
            let (mut home, mut partitions) = (Home::Cached(at), FilterPartitions::Cached);
            if top_is_pinned || partitions_are_pinned {
                let top = self.filter_index_block(&context, at)?;
                if partitions_are_pinned {
                    let all = self.pin_partitions(&top, |at| self.filter_block(&context, at))?;
                    partitions = FilterPartitions::Pinned(all);
                }
                if top_is_pinned {
                    home = Home::Pinned(top);
                }
            }
            return Ok(FilterHome::Partitioned { top: Box::new(home), partitions });
        }
        let top = self.decode_index(&self.tail_block(BlockRole::Filter, at, tail)?, at)?;
        let read = |i| self.tail_filter(top.handle(i), tail);
        let partitions: Result<Vec<ParsedFilter>> = (0..top.len()).map(read).collect();
        let partitions = FilterPartitions::Resident(partitions?);
        Ok(FilterHome::Partitioned { partitions, top: Box::new(Home::Resident(top)) })
    }

    /// Whether index and filter live in the block cache.
    fn keeps_metadata_in_cache(&self) -> bool {
        self.cache.is_some() && self.table.cache_index_and_filter_blocks
    }

    /// Whether blocks are pinned that are for tables of `tier`.
    fn is_pinned(&self, options: &OpenOptions, tier: PinningTier) -> bool {
        match tier {
            _ if options.for_scans => false,
            PinningTier::None => false,
            PinningTier::FlushedAndSimilar => {
                options.level == 0 && self.file_size <= self.table.max_flushed_table_size
            }
            PinningTier::All => true,
        }
    }

    /// The uncompressed block at `at`: a part of `tail`, if it can be.
    fn tail_raw<'a>(&self, role: BlockRole, at: BlockHandle, tail: Tail<'a>) -> Result<Cow<'a, [u8]>> {
        let format = self.format();
        let len = format.stored_len(role, at)?;
        debug_assert!(len >= BLOCK_TRAILER_LEN);
        let stored = tail.slice(at.offset, len);
        format.count(tail_ticker(stored.is_some()), 1);
        let context = ReadContext::default();
        match stored {
            Some(stored) if self.table.persistent_cache.is_none() => {
                format.verify(role, at.offset, stored)?;
                format.unpack(role, at.offset, stored, self.decompressor(role))
            }
            Some(stored) => self.unpack_read(&context, role, at, stored.to_vec()).map(Cow::Owned),
            None => {
                let stored = format.read(&*self.file, role, at)?;
                self.unpack_read(&context, role, at, stored).map(Cow::Owned)
            }
        }
    }

    fn tail_filter(&self, at: BlockHandle, tail: Tail<'_>) -> Result<ParsedFilter> {
        Ok(self.own_filter(at, self.tail_raw(BlockRole::Filter, at, tail)?))
    }

    fn tail_block(&self, role: BlockRole, at: BlockHandle, tail: Tail<'_>) -> Result<Block> {
        let raw = self.tail_raw(role, at, tail)?;
        Block::new(raw.into_owned()).map_err(|bad| self.format().corrupt(role, at.offset, bad.0))
    }
}
