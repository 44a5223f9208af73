//! Builds a block-based table.
//!
//! ```text
//! data blocks
//! filter, index, compression dictionary, range tombstones, properties: one block each, or several
//! metaindex block: the places of those, by name
//! footer
//! ```
//! Each block is followed by a byte with its compression type and 4 bytes of checksum.
//! Format reference: docs/format/sst.md.

mod compression_samples;
mod dictionary;
mod writer;

use crate::block::common_len;
use crate::block_builder::BlockBuilder;
use crate::block_warmer::BlockWarmer;
use crate::collector::{self, Collected, Collectors};
use crate::file_checksum::{ChecksumSoFar, FileChecksum, watched};
use crate::filter::{FULL_FILTER_PREFIX, PARTITIONED_FILTER_PREFIX};
use crate::filter_block::FilterBlockBuilder;
use crate::flush_block_policy::BlockEnds;
use crate::footer::Footer;
use crate::handle::{BLOCK_TRAILER_LEN, BlockHandle};
use crate::index::IndexFormat;
use crate::index_builder::{FinishedIndex, IndexBuilder};
use crate::options::{BuildOptions, DataBlockIndexType, IndexType, TableOptions};
use crate::properties::{self, TableProperties};
use crate::reader::BlockRole;
use crate::unique_id::unique_id;
use compression_samples::CompressionSamples;
pub(crate) use compression_samples::SampledSizes;
use dictionary::DictionarySampler;
use ironstone_base::internal_key::TRAILER_LEN;
use ironstone_base::sync::Arc;
use ironstone_base::{
    Error, InternalKey, InternalKeyBuf, InternalKeyComparator, Result, SequenceNumber, UserComparator,
    ValueType,
};
use ironstone_compress::CompressionKind;
use ironstone_vfs::WritableFile;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use writer::BlockWriter;
pub use writer::WrittenFile;

/// The format versions that can be written.
pub const WRITABLE_FORMAT_VERSIONS: std::ops::RangeInclusive<u32> = 2..=7;
const PAGE_SIZE: usize = 4096;
/// What properties, metaindex and footer take, about.
const FIXED_TAIL_LEN: usize = 2048;
/// A block without entries.
const MIN_BLOCK_LEN: usize = 16;

/// Builds a block-based table from entries that come in internal-key order.
pub(crate) struct BlockBasedBuilder {
    table: Arc<TableOptions>,
    order: InternalKeyComparator,
    writer: BlockWriter,
    data_block: BlockBuilder,
    /// `None` if blocks end by their size.
    block_ends: Option<BlockEnds>,
    range_tombstones: BlockBuilder,
    index: IndexBuilder,
    filter: Option<FilterBlockBuilder>,
    /// Holds data blocks back until there is a dictionary to compress them with.
    sampler: Option<DictionarySampler>,
    /// `None` if nobody wants to know what codecs would make of the data.
    compression_samples: Option<CompressionSamples>,
    properties: TableProperties,
    /// At most what properties, metaindex and footer take, without what collectors add.
    fixed_tail_bound: usize,
    /// `None` if nobody collects properties.
    collectors: Option<Collectors>,
    smallest_sequence: SequenceNumber,
    largest_sequence: SequenceNumber,
    smallest: Option<InternalKeyBuf>,
    largest_range_end: Option<InternalKeyBuf>,
    /// How long the key of the last point entry is; 0 before the first.
    last_key_len: usize,
    /// About how long filter and index are of the blocks that were written.
    estimated_tail: usize,
    /// The failure that ended the building.
    failed: Option<Error>,
    unique_id: [u64; 2],
    file_checksum: ChecksumSoFar,
}

/// What was built.
#[derive(Clone, Debug)]
pub struct BuiltTable {
    /// The length of the file.
    pub file_size: u64,
    /// The bytes from the end of the data blocks to the end of the file.
    pub tail_size: u64,
    /// What the table says about itself.
    pub properties: TableProperties,
    /// The first internal key, range tombstones' bounds included; `None` for an empty table.
    pub smallest: Option<InternalKeyBuf>,
    /// The last internal key, range tombstones' bounds included.
    pub largest: Option<InternalKeyBuf>,
    /// The smallest sequence number, `SequenceNumber::MAX` for an empty table.
    pub smallest_sequence: SequenceNumber,
    /// The largest sequence number.
    pub largest_sequence: SequenceNumber,
    /// RocksDB's unique id of the table, for the MANIFEST; zeros if the options lack what it is made of.
    pub unique_id: [u64; 2],
    /// Of the whole file, if it was asked for.
    pub file_checksum: FileChecksum,
    /// What collectors of properties said.
    pub collected: Collected,
}

impl BlockBasedBuilder {
    /// A builder that appends to `file`, which must be empty. Refuses options that contradict each other.
    pub fn new(options: BuildOptions, file: Box<dyn WritableFile>) -> Result<Self> {
        check(&options)?;
        let table = Arc::clone(&options.table);
        let mut data_block = BlockBuilder::new(table.block_restart_interval, table.use_delta_encoding);
        let hashed = table.data_block_index_type == DataBlockIndexType::BinarySearchAndHash;
        if hashed && !table.comparator.different_bytes_may_be_equal() {
            data_block = data_block.with_hash_index(table.data_block_hash_table_util_ratio);
        }
        let filter = match options.skip_filters {
            true => None,
            false => FilterBlockBuilder::new(&table, options.filter_level(), file.path()),
        };
        let (file, file_checksum) = watched(file, &options);
        let properties = initial_properties(&options);
        let warmer = BlockWarmer::new(&options, &properties);
        let id = unique_id(&options.db_id, &options.db_session_id, options.file_number.0);
        Ok(Self {
            order: InternalKeyComparator::new(table.comparator.clone()),
            data_block,
            block_ends: BlockEnds::new(&table),
            range_tombstones: BlockBuilder::new(1, true),
            index: IndexBuilder::new(&table),
            filter,
            sampler: DictionarySampler::new(&options),
            compression_samples: CompressionSamples::new(&options)?,
            fixed_tail_bound: FIXED_TAIL_LEN + FIXED_TAIL_LEN / 2 + properties.memory_usage(),
            properties,
            collectors: Collectors::new(&options),
            smallest_sequence: SequenceNumber::MAX,
            largest_sequence: SequenceNumber::ZERO,
            smallest: None,
            largest_range_end: None,
            last_key_len: 0,
            estimated_tail: 0,
            failed: None,
            unique_id: id.unwrap_or_default(),
            file_checksum,
            writer: BlockWriter::new(options, file, warmer)?,
            table,
        })
    }

    /// Adds an entry; its key must come after the last one's. A range tombstone may come at any time,
    /// see [`BlockBasedBuilder::add_range_tombstone`].
    pub fn add(&mut self, key: InternalKey<'_>, value: &[u8]) -> Result<()> {
        let value_type = key.value_type().map_err(|corrupt| self.refuse(corrupt.0))?;
        if value_type == ValueType::RangeDeletion {
            return self.add_range_tombstone(key, value);
        }
        let shared = self.check_entry(key, value, value_type)?;
        self.put(key, value, shared).inspect_err(|error| self.failed = Some(error.clone()))?;
        self.count(key, value, value_type);
        Ok(())
    }

    /// A failure here leaves the table unfit to be finished. `shared`: what the key has in common with the last.
    #[inline]
    fn put(&mut self, key: InternalKey<'_>, value: &[u8], shared: usize) -> Result<()> {
        if self.is_block_full(key, value) {
            self.flush_block(Some(key))?;
        }
        if self.sampler.is_none() {
            if let Some(filter) = &mut self.filter {
                let previous = &self.data_block.last_key()[..self.last_key_len.saturating_sub(TRAILER_LEN)];
                filter.add(key.user_key(), previous, &mut self.index)?;
            }
            self.index.on_key_added(key);
        }
        self.data_block.add_internal_matched(key.as_bytes(), shared, key.user_key().len(), value);
        if self.smallest.is_none() {
            self.smallest = Some(key.to_buf());
        }
        self.last_key_len = key.as_bytes().len();
        Ok(())
    }

    #[inline]
    fn count(&mut self, key: InternalKey<'_>, value: &[u8], value_type: ValueType) {
        if self.collectors.is_some() {
            self.collect(key, value, value_type);
        }
        self.smallest_sequence = self.smallest_sequence.min(key.sequence());
        self.largest_sequence = self.largest_sequence.max(key.sequence());
        let properties = &mut self.properties;
        properties.num_entries += 1;
        properties.raw_key_size += key.as_bytes().len() as u64;
        properties.raw_value_size += value.len() as u64;
        match value_type {
            ValueType::Value => {}
            ValueType::RangeDeletion => {
                properties.num_deletions += 1;
                properties.num_range_deletions += 1;
            }
            ValueType::Merge => properties.num_merge_operands += 1,
            other if other.is_tombstone() => properties.num_deletions += 1,
            _ => {}
        }
    }

    #[cold]
    fn collect(&mut self, key: InternalKey<'_>, value: &[u8], value_type: ValueType) {
        let file_size = self.file_size();
        if let Some(collectors) = &mut self.collectors {
            collectors.add(key, value, value_type, file_size);
        }
    }

    /// Refuses what does not come after the last entry; answers how many bytes both keys begin with.
    #[inline]
    fn check_entry(&self, key: InternalKey<'_>, value: &[u8], value_type: ValueType) -> Result<usize> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if !value_type.is_point_entry() {
            return Err(self.refuse("an entry has a value type that tables do not hold"));
        }
        const LIMIT: usize = u32::MAX as usize - (1 << 20);
        if key.as_bytes().len() > LIMIT || value.len() > LIMIT {
            return Err(self.refuse("a key or value of almost 4 GiB or more"));
        }
        if self.last_key_len == 0 {
            return Ok(0);
        }
        let last = InternalKey::from_bytes(self.data_block.last_key()).map_err(|bad| self.refuse(bad.0))?;
        let (order, shared) = compare_and_match(&self.order, last, key);
        match order.is_lt() {
            true => Ok(shared),
            false => Err(self.out_of_order(last, key)),
        }
    }

    #[cold]
    fn out_of_order(&self, last: InternalKey<'_>, key: InternalKey<'_>) -> Error {
        let (path, shown) = (self.writer.path().display(), self.table.data_in_errors);
        let (last, key) = (shown.key(last), shown.key(key));
        Error::corruption(format!("{path}: keys out of order: {last} then {key}"))
    }

    #[cold]
    fn refuse(&self, what: &str) -> Error {
        Error::invalid_argument(format!("building {}: {what}", self.writer.path().display()))
    }

    /// Adds a range tombstone: every key in `begin.user_key()..end` older than `begin`'s sequence
    /// number is deleted. In order of `begin`, at any time between other entries.
    pub fn add_range_tombstone(&mut self, begin: InternalKey<'_>, end: &[u8]) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if begin.value_type() != Ok(ValueType::RangeDeletion) {
            return Err(self.refuse("a range tombstone's key has another value type"));
        }
        if self.range_tombstones.len_with(begin.as_bytes().len(), end.len()) > u32::MAX as usize {
            return Err(self.refuse("the range tombstones exceed 4 GiB"));
        }
        if !self.range_tombstones.is_empty() {
            let last = InternalKey::from_bytes(self.range_tombstones.last_key())
                .map_err(|bad| self.refuse(bad.0))?;
            if self.order.compare(last, begin).is_gt() {
                return Err(self.refuse("range tombstones are out of order"));
            }
        }
        self.range_tombstones.add(begin.as_bytes(), end);
        self.count(begin, end, ValueType::RangeDeletion);
        self.widen_to_range(begin, end);
        Ok(())
    }

    /// The table's bounds cover the tombstone; the end is exclusive, so it sorts before every entry.
    fn widen_to_range(&mut self, begin: InternalKey<'_>, end: &[u8]) {
        let order = &self.order;
        if self.smallest.as_ref().is_none_or(|smallest| order.compare(begin, smallest.as_key()).is_lt()) {
            self.smallest = Some(begin.to_buf());
        }
        let end = InternalKeyBuf::new(end, SequenceNumber::MAX, ValueType::RangeDeletion);
        let widest = self.largest_range_end.as_ref();
        if widest.is_none_or(|widest| order.compare(end.as_key(), widest.as_key()).is_gt()) {
            self.largest_range_end = Some(end);
        }
    }

    #[inline]
    fn is_block_full(&mut self, key: InternalKey<'_>, value: &[u8]) -> bool {
        if let Some(ends) = &mut self.block_ends {
            return ends.come_before(&self.data_block, key, value);
        }
        if self.data_block.is_empty() {
            return false;
        }
        let (len, limit) = (self.data_block.len(), self.table.block_size);
        if len >= limit {
            return true;
        }
        let mut len_after = self.data_block.len_with(key.as_bytes().len(), value.len());
        if self.writer.pads() {
            len_after += BLOCK_TRAILER_LEN;
        }
        if self.table.block_align {
            return len_after > limit;
        }
        let fill = 100usize.saturating_sub(self.table.block_size_deviation as usize);
        len_after > limit && len > limit.saturating_mul(fill).div_ceil(100)
    }

    /// Writes the open data block, or keeps it for sampling. `next` is the key that comes after it.
    fn flush_block(&mut self, next: Option<InternalKey<'_>>) -> Result<()> {
        if self.data_block.is_empty() {
            return Ok(());
        }
        if self.data_block.len() > u32::MAX as usize {
            return Err(self.refuse("a data block exceeds 4 GiB"));
        }
        let block = self.data_block.finish();
        let sizes = match &mut self.compression_samples {
            Some(samples) => samples.see(block)?,
            None => None,
        };
        if let Some(collectors) = &mut self.collectors {
            collectors.add_block(block.len() as u64, sizes.unwrap_or_default());
        }
        if let Some(sampler) = &mut self.sampler {
            sampler.keep(std::mem::take(block));
            self.data_block.reset();
            if sampler.is_full() {
                self.write_sampled(next)?;
            }
            return Ok(());
        }
        let handle = self.writer.write_data(block)?;
        let last =
            InternalKey::from_bytes(self.data_block.last_key()).map_err(|bad| Error::corruption(bad.0))?;
        self.index.add_block(last, next, handle);
        self.data_block.reset();
        let filter = self.filter.as_mut().map_or(0, |filter| {
            filter.count_memory();
            filter.estimated_len()
        });
        self.estimated_tail = self.index.estimated_len() + filter;
        Ok(())
    }

    /// How large the file is so far, the open data block not counted.
    pub fn file_size(&self) -> u64 {
        self.writer.offset() + self.sampler.as_ref().map_or(0, |sampler| sampler.kept_len() as u64)
    }
    /// About how large the file would be if it were finished now. Cheap enough to be asked before every entry.
    #[inline]
    pub fn estimated_file_size(&self) -> u64 {
        let tail = self.estimated_tail + self.range_tombstones.len() + FIXED_TAIL_LEN;
        let open = if self.data_block.is_empty() { 0 } else { self.data_block.len() };
        self.file_size() + (open + tail) as u64
    }
    /// At most how large the file would be if it were finished after this entry. Not counted are range tombstones that come yet
    /// and what collectors of properties add; of blocks that are held back for a dictionary, index and filter are estimated.
    pub fn file_size_bound_with(&self, key: InternalKey<'_>, value: &[u8]) -> u64 {
        let (key_len, last_len) = (key.as_bytes().len(), self.last_key_len);
        let held_back = self.sampler.as_ref().map_or(0, DictionarySampler::block_count);
        let blocks = held_back + 2; // The entry may begin a block behind the open one.
        let around_blocks = blocks * (MIN_BLOCK_LEN + BLOCK_TRAILER_LEN + self.writer.padding_bound());
        let open = self.data_block.len_bound_with(key_len, value.len());
        let index = self.index.len_bound_with(blocks, blocks * (key_len + last_len));
        let filter = self.filter.as_ref().map_or(0, |filter| {
            let unseen = if held_back > 0 { filter.len_of(self.properties.num_entries as usize) } else { 0 };
            filter.len_bound_with(key_len.max(last_len)) + unseen
        });
        let dictionary = match (&self.sampler, self.writer.dictionary()) {
            (Some(sampler), _) => sampler.dictionary_bound(),
            (None, dictionary) => dictionary.map_or(0, |dictionary| dictionary.len()),
        };
        let tail = index + filter + dictionary + self.range_tombstones.len() + self.fixed_tail_bound;
        self.file_size() + (around_blocks + open + tail) as u64
    }
    /// The properties so far: counts of entries and bytes.
    pub fn properties(&self) -> &TableProperties {
        &self.properties
    }

    /// Writes the rest of the file.
    pub fn finish(mut self) -> Result<(BuiltTable, WrittenFile)> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.flush_block(None)?;
        self.write_sampled(None)?;
        let tail_start = self.writer.offset();
        let mut metaindex = BTreeMap::new();
        self.write_filter(&mut metaindex)?;
        let index = self.write_index(&mut metaindex)?;
        self.write_dictionary(&mut metaindex)?;
        self.write_range_tombstones(&mut metaindex)?;
        self.complete_properties(&index, tail_start);
        let collectors = self.collectors.take();
        let collected = collectors.map(|collectors| collectors.finish(&mut self.properties));
        let properties = self.writer.write_meta(&mut self.properties.encode())?;
        metaindex.insert("rocksdb.properties".to_owned(), properties);
        self.write_metaindex_and_footer(metaindex, &index)?;
        self.built(tail_start, collected.unwrap_or_default())
    }

    fn write_filter(&mut self, metaindex: &mut BTreeMap<String, BlockHandle>) -> Result<()> {
        let Some(filter) = self.filter.take() else {
            return Ok(());
        };
        let last = &self.data_block.last_key()[..self.last_key_len.saturating_sub(TRAILER_LEN)];
        let (writer, mut copies) = (&mut self.writer, Copies::default());
        let write = &mut |block: &mut Vec<u8>| copies.of(block, writer, BlockWriter::write_meta);
        let finished = filter.finish(last, &self.index, write)?;
        if let Some(finished) = &finished {
            let top = finished.is_partitioned.then_some(finished.root);
            self.warm_filter(copies, top);
        }
        if let (Some(finished), Some(policy)) = (finished, &self.table.filter_policy) {
            let prefix = if finished.is_partitioned { PARTITIONED_FILTER_PREFIX } else { FULL_FILTER_PREFIX };
            metaindex.insert(format!("{prefix}{}", policy.compatibility_name()), finished.root);
            self.properties.filter_size = finished.size;
            self.properties.num_filter_entries = finished.entry_count;
        }
        Ok(())
    }

    fn write_index(&mut self, metaindex: &mut BTreeMap<String, BlockHandle>) -> Result<FinishedIndex> {
        let index = std::mem::replace(&mut self.index, IndexBuilder::new(&self.table));
        let (writer, mut copies) = (&mut self.writer, Copies::default());
        let finished = index.finish(&mut |block| copies.of(block, writer, BlockWriter::write_index))?;
        self.warm_index(copies, &finished);
        for &(name, handle) in &finished.meta_blocks {
            metaindex.insert(name.to_owned(), handle);
        }
        if self.writer.has_context() {
            metaindex.insert("rocksdb.index".to_owned(), finished.root);
        }
        Ok(finished)
    }

    /// `top`: the block that is an index of the others, if they are partitions.
    fn warm_filter(&mut self, copies: Copies, top: Option<BlockHandle>) {
        let end = self.writer.offset();
        let format = IndexFormat {
            user_keys: self.index.key_is_user_key(),
            delta_values: self.index.uses_delta_values(),
            first_keys: false,
        };
        let Some(warmer) = self.writer.warmer_mut() else { return };
        for (handle, raw) in copies.0 {
            match Some(handle) == top {
                true => warmer.keep_index(BlockRole::FilterIndex, handle, raw, format, end),
                false => warmer.keep_filter(handle, raw),
            }
        }
    }

    fn warm_index(&mut self, copies: Copies, finished: &FinishedIndex) {
        let end = self.writer.offset();
        let format = IndexFormat {
            user_keys: finished.key_is_user_key,
            delta_values: finished.uses_delta_values,
            first_keys: self.table.index_type == IndexType::BinarySearchWithFirstKey,
        };
        let Some(warmer) = self.writer.warmer_mut() else { return };
        let is_index = |handle| finished.meta_blocks.iter().all(|(_, other)| *other != handle);
        for (handle, raw) in copies.0.into_iter().filter(|(handle, _)| is_index(*handle)) {
            warmer.keep_index(BlockRole::Index, handle, raw, format, end);
        }
    }

    fn write_dictionary(&mut self, metaindex: &mut BTreeMap<String, BlockHandle>) -> Result<()> {
        if let Some(dictionary) = self.writer.dictionary() {
            let handle = self.writer.write_meta(&mut dictionary.to_vec())?;
            metaindex.insert("rocksdb.compression_dict".to_owned(), handle);
        }
        Ok(())
    }

    fn write_range_tombstones(&mut self, metaindex: &mut BTreeMap<String, BlockHandle>) -> Result<()> {
        if !self.range_tombstones.is_empty() {
            let handle = self.writer.write_meta(self.range_tombstones.finish())?;
            metaindex.insert("rocksdb.range_del".to_owned(), handle);
        }
        Ok(())
    }

    fn complete_properties(&mut self, index: &FinishedIndex, tail_start: u64) {
        let blocks = self.writer.counts();
        let properties = &mut self.properties;
        properties.user_collected.extend(self.writer.warmer().and_then(BlockWarmer::property));
        properties.index_size = index.size + BLOCK_TRAILER_LEN as u64;
        properties.index_partitions = index.partition_count;
        properties.top_level_index_size = index.top_level_size;
        properties.index_key_is_user_key = u64::from(index.key_is_user_key);
        properties.index_value_is_delta_encoded = u64::from(index.uses_delta_values);
        properties.data_size = blocks.data_len;
        properties.uncompressed_data_size = blocks.raw_len;
        properties.num_data_blocks = blocks.blocks;
        properties.num_data_blocks_compression_rejected = blocks.rejected;
        properties.num_data_blocks_compression_bypassed = blocks.bypassed;
        properties.tail_start_offset = tail_start;
        if let Some(name) = self.writer.compression_name() {
            properties.compression_name = name;
        }
        if let Some(samples) = &self.compression_samples {
            let SampledSizes { fast, slow } = samples.estimate();
            properties.fast_compression_estimated_data_size = fast;
            properties.slow_compression_estimated_data_size = slow;
        }
        if properties.num_entries > 0 {
            properties.key_largest_seqno = self.largest_sequence.0;
            properties.key_smallest_seqno = self.smallest_sequence.0;
        }
    }

    fn write_metaindex_and_footer(
        &mut self,
        metaindex: BTreeMap<String, BlockHandle>,
        index: &FinishedIndex,
    ) -> Result<()> {
        let mut block = BlockBuilder::new(1, true);
        let mut value = Vec::new();
        for (name, handle) in &metaindex {
            value.clear();
            handle.encode(&mut value);
            block.add(name.as_bytes(), &value);
        }
        let metaindex = self.writer.write_meta(block.finish())?;
        let has_context = self.writer.has_context();
        self.writer.write_footer(&Footer {
            format_version: self.table.format_version,
            leveldb_magic: false,
            checksum: self.table.checksum,
            base_context_checksum: self.writer.base_context_checksum(),
            metaindex,
            index: if has_context { BlockHandle::NULL } else { index.root },
        })
    }

    fn built(self, tail_start: u64, collected: Collected) -> Result<(BuiltTable, WrittenFile)> {
        let last_point = match self.last_key_len {
            0 => None,
            _ => InternalKey::from_bytes(self.data_block.last_key()).ok().map(InternalKey::to_buf),
        };
        let largest = match (last_point, self.largest_range_end) {
            (Some(point), Some(end)) if self.order.compare(point.as_key(), end.as_key()).is_gt() => {
                Some(point)
            }
            (point, None) => point,
            (_, end) => end,
        };
        let file_size = self.writer.offset();
        let file = self.writer.into_file()?;
        let built = BuiltTable {
            file_size,
            tail_size: file_size - tail_start,
            properties: self.properties,
            smallest: self.smallest,
            largest,
            smallest_sequence: self.smallest_sequence,
            largest_sequence: self.largest_sequence,
            unique_id: self.unique_id,
            file_checksum: self.file_checksum.get(),
            collected,
        };
        Ok((built, file))
    }

    /// Gives up: the file is closed as it is, for the caller to remove.
    pub fn abandon(self) {
        self.writer.abandon();
    }
}

/// Compares two keys, and answers how many bytes both begin with: of neighbours the builder needs both.
#[inline]
fn compare_and_match(
    order: &InternalKeyComparator,
    a: InternalKey<'_>,
    b: InternalKey<'_>,
) -> (Ordering, usize) {
    let shared = common_len(a.as_bytes(), b.as_bytes());
    let differing = a.user_key().get(shared).zip(b.user_key().get(shared));
    let order = match (&order.user, differing) {
        (UserComparator::Bytewise, Some((a, b))) => a.cmp(b),
        (UserComparator::ReverseBytewise, Some((a, b))) => b.cmp(a),
        _ => order.compare(a, b),
    };
    (order, shared)
}

fn check(options: &BuildOptions) -> Result<()> {
    let table = &options.table;
    let refuse = |what: &str| Err(Error::invalid_argument(format!("table options: {what}")));
    if !WRITABLE_FORMAT_VERSIONS.contains(&table.format_version) {
        return refuse("only format versions 2 to 7 can be written");
    }
    if table.index_type == IndexType::HashSearch && table.prefix_extractor.is_none() {
        return refuse("the hash search index needs a prefix extractor");
    }
    if table.block_align {
        if options.compression != CompressionKind::None {
            return refuse("block_align with compression");
        }
        if !table.block_size.is_power_of_two() {
            return refuse("block_align needs a block size that is a power of two");
        }
    }
    Ok(())
}

fn initial_properties(options: &BuildOptions) -> TableProperties {
    let table = &options.table;
    let flag = |on: bool| if on { b"1".to_vec() } else { b"0".to_vec() };
    let mut user_collected: BTreeMap<String, Vec<u8>> = options.user_properties.iter().cloned().collect();
    let index_type = (table.index_type as u32).to_le_bytes().to_vec();
    user_collected.insert(properties::INDEX_TYPE.to_owned(), index_type);
    user_collected.insert(properties::WHOLE_KEY_FILTERING.to_owned(), flag(table.whole_key_filtering));
    user_collected.insert(properties::PREFIX_FILTERING.to_owned(), flag(table.prefix_extractor.is_some()));
    if table.decouple_partitioned_filters {
        user_collected.insert(properties::DECOUPLED_FILTERS.to_owned(), flag(true));
    }
    let extractor = table.prefix_extractor.as_ref();
    TableProperties {
        original_file_number: options.file_number.0,
        format_version: u64::from(table.format_version),
        column_family_id: u64::from(options.column_family_id.0),
        creation_time: options.creation_time,
        oldest_key_time: options.oldest_key_time,
        newest_key_time: options.newest_key_time,
        file_creation_time: options.file_creation_time,
        data_block_restart_interval: u64::from(table.block_restart_interval),
        index_block_restart_interval: u64::from(table.index_block_restart_interval),
        lsm_info_at_creation: options.lsm_info().encode(),
        db_id: options.db_id.clone(),
        db_session_id: options.db_session_id.clone(),
        db_host_id: options.db_host_id.clone(),
        column_family_name: options.column_family_name.clone(),
        filter_policy_name: table.filter_policy.as_ref().map_or("", |policy| policy.name()).to_owned(),
        comparator_name: table.comparator.name().to_owned(),
        merge_operator_name: options.merge_operator_name.clone(),
        prefix_extractor_name: extractor.map_or("nullptr", |extractor| extractor.name()).to_owned(),
        property_collectors_names: collector::names(&table.collectors),
        compression_name: options.compression.name().to_owned(),
        compression_options: writer::describe(options),
        user_collected,
        ..TableProperties::default()
    }
}

/// Index and filter blocks that were written, if they are to go to the block cache.
#[derive(Default)]
struct Copies(Vec<(BlockHandle, Vec<u8>)>);

impl Copies {
    /// Writes `block` by `write`, which uses it up.
    fn of(
        &mut self,
        block: &mut Vec<u8>,
        writer: &mut BlockWriter,
        write: impl FnOnce(&mut BlockWriter, &mut Vec<u8>) -> Result<BlockHandle>,
    ) -> Result<BlockHandle> {
        let copy = writer.warmer().filter(|warmer| warmer.takes_meta_blocks()).map(|_| block.clone());
        let handle = write(writer, block)?;
        self.0.extend(copy.map(|copy| (handle, copy)));
        Ok(handle)
    }
}

/// What follows a data block, so that the next one does not cross a page that it need not cross: docs/design/0009.
#[derive(Clone, Copy)]
struct Padding {
    /// Blocks are padded to a multiple of so many bytes
    unit: usize,
    /// if that takes so many at most.
    most: usize,
}

impl Padding {
    fn of(options: &BuildOptions) -> Option<Self> {
        let table = &options.table;
        if table.block_align {
            let unit = table.block_size.min(PAGE_SIZE);
            return Some(Self { unit, most: unit });
        }
        let fills_pages = table.block_size > 0 && table.block_size.is_multiple_of(PAGE_SIZE);
        let is_plain = options.compression == CompressionKind::None;
        (is_plain && fills_pages).then_some(Self { unit: PAGE_SIZE, most: PAGE_SIZE / 16 })
    }
    /// What comes behind a block that ends at `offset`.
    fn after(self, offset: u64) -> usize {
        let past = (offset % self.unit as u64) as usize;
        let missing = self.unit - past;
        if past > 0 && missing <= self.most { missing } else { 0 }
    }
}

#[cfg(test)]
mod tests;
