//! Filter blocks: what goes into a table's filter, and asking it.
//!
//! ```text
//! full          one filter over all keys and prefixes, in the meta block fullfilter.<name>
//! partitioned   filters over successive runs of keys; the meta block partitionedfilter.<name> is an
//!               index block: key at or after the last of the run -> place of its filter
//! ```
//! The prefix of the first key after a partition is in that partition as well, and the prefix of the last
//! key before it: a seek by prefix asks only the partition that it lands in.
//! Format reference: docs/format/sst.md, "Filters".

use crate::filter::{FilterBuilder, FilterContext, FilterReader};
use crate::handle::{BLOCK_TRAILER_LEN, BlockHandle, IndexValue};
use crate::index_builder::{IndexBlockBuilder, IndexBuilder};
use crate::options::{IndexType, TableOptions};
use crate::prefetch::prefetch;
use ironstone_base::internal_key::pack_trailer;
use ironstone_base::sync::Arc;
use ironstone_base::{InternalKey, Result, SequenceNumber, SliceTransform, ValueType};
use ironstone_cache::{BlockBytes, MemoryRole, Reservation};
use std::path::{Path, PathBuf};

/// Builds the filter of one table.
pub(crate) struct FilterBlockBuilder {
    bits: FilterBuilder,
    extractor: Option<Arc<dyn SliceTransform>>,
    whole_keys: bool,
    partitions: Option<FilterPartitions>,
    /// The table's, for messages.
    path: PathBuf,
    entries_in_partitions: usize,
    /// What all this takes counts towards the block cache.
    charge: Option<Reservation>,
}

struct FilterPartitions {
    keys_per_partition: usize,
    follow_index: bool,
    /// An internal key at or after the last of each partition, and its filter.
    done: Vec<(Vec<u8>, Vec<u8>)>,
    done_len: usize,
    /// What the top level takes for them, at most.
    top_len: usize,
    restart_interval: u32,
}

/// At most what a partition takes besides itself and its key in the top level: lengths, a handle, a restart point, trailers.
const TOP_OVERHEAD: usize = 3 * 5 + BlockHandle::MAX_ENCODED_LEN + 4 + 8 + 2 * BLOCK_TRAILER_LEN;

/// What [`FilterBlockBuilder::finish`] wrote.
pub(crate) struct FinishedFilter {
    pub root: BlockHandle,
    pub size: u64,
    pub entry_count: u64,
    pub is_partitioned: bool,
}

impl FilterBlockBuilder {
    /// A builder, or `None` if the options ask for no filter.
    pub fn new(options: &TableOptions, level: Option<i32>, path: &Path) -> Option<Self> {
        let context = FilterContext {
            format_version: options.format_version,
            level,
            detect_construct_corruption: options.detect_filter_construct_corruption,
        };
        let bits = options.filter_policy.as_ref()?.builder(&context)?;
        let is_partitioned = options.partition_filters && options.index_type == IndexType::TwoLevel;
        let keys = bits.keys_per_partition(options.metadata_block_size);
        // One is held back for the prefix of the key that follows.
        let keys = if options.prefix_extractor.is_some() { keys.saturating_sub(1).max(1) } else { keys };
        Some(Self {
            bits,
            extractor: options.prefix_extractor.clone(),
            whole_keys: options.whole_key_filtering,
            partitions: is_partitioned.then(|| FilterPartitions {
                keys_per_partition: keys,
                follow_index: !options.decouple_partitioned_filters,
                done: Vec::new(),
                done_len: 0,
                top_len: 0,
                restart_interval: options.index_block_restart_interval,
            }),
            path: path.to_owned(),
            entries_in_partitions: 0,
            charge: options.reserve_in_cache(MemoryRole::FilterConstruction),
        })
    }

    /// Adds `user_key`, which follows `previous`. The index has the blocks before `user_key`.
    #[inline]
    pub fn add(&mut self, user_key: &[u8], previous: &[u8], index: &mut IndexBuilder) -> Result<()> {
        let prefix = self.extractor.as_ref().and_then(|extractor| extractor.transform(user_key));
        if self.partitions.is_some() && self.is_cut_due(index) {
            self.cut(Some(prefix), previous, index)?;
        }
        match prefix {
            Some(prefix) if self.whole_keys => self.bits.add_key_and_prefix(user_key, prefix),
            Some(prefix) => self.bits.add_key(prefix),
            None if self.whole_keys => self.bits.add_key(user_key),
            None => {}
        }
        Ok(())
    }

    fn is_cut_due(&self, index: &mut IndexBuilder) -> bool {
        let Some(partitions) = &self.partitions else {
            return false;
        };
        let is_full = self.bits.num_entries() >= partitions.keys_per_partition;
        if !partitions.follow_index {
            return is_full;
        }
        if is_full {
            index.request_partition_cut();
        }
        index.take_filter_cut()
    }

    /// Ends a partition after the key `previous`. `next_prefix` is there if more keys follow: the prefix
    /// of the next one, if that has one.
    fn cut(
        &mut self,
        next_prefix: Option<Option<&[u8]>>,
        previous: &[u8],
        index: &IndexBuilder,
    ) -> Result<()> {
        let Some(partitions) = &mut self.partitions else {
            return Ok(());
        };
        if let Some(Some(prefix)) = next_prefix {
            match self.whole_keys {
                true => self.bits.add_key_and_prefix(prefix, prefix),
                false => self.bits.add_key(prefix),
            }
        }
        self.entries_in_partitions += self.bits.num_entries();
        let key = match partitions.follow_index {
            true => index.last_separator().to_vec(),
            false => {
                let last = pack_trailer(SequenceNumber::ZERO, ValueType::Deletion);
                [previous, &last.to_le_bytes()].concat()
            }
        };
        let filter = self.finish_bits()?;
        let Some(partitions) = &mut self.partitions else { return Ok(()) };
        partitions.done_len += filter.len();
        partitions.top_len += key.len() + TOP_OVERHEAD;
        partitions.done.push((key, filter));
        if let (Some(extractor), Some(_)) = (&self.extractor, next_prefix)
            && let Some(prefix) = extractor.transform(previous)
        {
            self.bits.add_key(prefix);
        }
        Ok(())
    }

    /// Counts what this has in memory now, where it is to be counted.
    pub fn count_memory(&mut self) {
        if let Some(charge) = &mut self.charge {
            let done = self.partitions.as_ref().map_or(0, |partitions| partitions.done_len);
            charge.set(self.bits.memory_usage() + done);
        }
    }

    /// The filter of what was added since the last one.
    fn finish_bits(&mut self) -> Result<Vec<u8>> {
        if let Some(charge) = &mut self.charge
            && charge.grow(self.bits.solving_memory()).is_err()
        {
            self.bits.fall_back_to_bloom();
        }
        let filter = self.bits.finish().map_err(|bad| bad.at(&self.path, 0))?;
        self.count_memory();
        Ok(filter)
    }

    /// About how long the filter will be.
    pub fn estimated_len(&self) -> usize {
        let done = self.partitions.as_ref().map_or(0, |partitions| partitions.done_len);
        done + self.bits.space_for(self.bits.num_entries())
    }

    /// About how long a filter of `keys` keys is.
    pub fn len_of(&self, keys: usize) -> usize {
        self.bits.space_for(keys)
    }
    /// At most how long it will be with one more key of `key_len` bytes, trailers included, as far as the kind of filter tells.
    pub fn len_bound_with(&self, key_len: usize) -> usize {
        // A key comes with its prefix, and the prefix of the one after it.
        let open = self.bits.space_for(self.bits.num_entries() + 3) + key_len + TOP_OVERHEAD;
        let done = self.partitions.as_ref().map_or(0, |partitions| {
            partitions.done_len + partitions.top_len + partitions.done.len() * BLOCK_TRAILER_LEN
        });
        // The one that is cut off before the key, if it is.
        let cut = if self.partitions.is_some() { self.bits.space_for(3) + key_len + TOP_OVERHEAD } else { 0 };
        done + open + cut
    }

    /// Writes the filter with `write`, unless it has no keys. `last` is the last user key of the table.
    pub fn finish(
        mut self,
        last: &[u8],
        index: &IndexBuilder,
        write: &mut dyn FnMut(&mut Vec<u8>) -> Result<BlockHandle>,
    ) -> Result<Option<FinishedFilter>> {
        if self.partitions.is_none() {
            return self.finish_full(write);
        }
        if !self.bits.is_empty() {
            self.cut(None, last, index)?;
        }
        let Some(partitions) = self.partitions.filter(|partitions| !partitions.done.is_empty()) else {
            return Ok(None);
        };
        let needs_sequence = !index.key_is_user_key();
        let mut top =
            IndexBlockBuilder::new(partitions.restart_interval, index.uses_delta_values(), needs_sequence);
        let mut size = 0;
        for (key, mut filter) in partitions.done {
            size += filter.len() as u64;
            let handle = write(&mut filter)?;
            top.add(&key, &IndexValue { handle, first_key: &[] }, false)?;
        }
        let mut top = top.finish();
        size += top.len() as u64;
        let entry_count = self.entries_in_partitions as u64;
        Ok(Some(FinishedFilter { root: write(&mut top)?, size, entry_count, is_partitioned: true }))
    }

    fn finish_full(
        mut self,
        write: &mut dyn FnMut(&mut Vec<u8>) -> Result<BlockHandle>,
    ) -> Result<Option<FinishedFilter>> {
        if self.bits.is_empty() {
            return Ok(None);
        }
        let entry_count = self.bits.num_entries() as u64;
        let mut filter = self.finish_bits()?;
        let size = filter.len() as u64;
        Ok(Some(FinishedFilter { root: write(&mut filter)?, size, entry_count, is_partitioned: false }))
    }
}

/// A key as filters know it, computed once for all tables that are asked.
#[derive(Clone, Copy, Debug)]
pub struct KeyHash(u64);

impl KeyHash {
    /// That of `key`.
    #[inline]
    pub fn of(key: &[u8]) -> Self {
        Self(ironstone_base::hash::hash64(key, 0))
    }
    /// As a number.
    pub fn to_bits(self) -> u64 {
        self.0
    }
}

/// What a point read looks for in tables.
#[derive(Clone, Copy, Debug)]
pub struct PointTarget<'a> {
    /// Its newest entry at or below the sequence number is wanted.
    pub key: InternalKey<'a>,
    /// The hash of the user key.
    pub hash: KeyHash,
}

impl<'a> From<InternalKey<'a>> for PointTarget<'a> {
    #[inline]
    fn from(key: InternalKey<'a>) -> Self {
        Self { key, hash: KeyHash::of(key.user_key()) }
    }
}

/// A filter block in memory.
pub struct ParsedFilter {
    bytes: BlockBytes,
    reader: FilterReader,
}

impl ParsedFilter {
    /// Takes the contents of a filter block. Any bytes will do; what makes no sense matches every key.
    pub fn new(bytes: BlockBytes) -> Self {
        let reader = FilterReader::new(&bytes);
        Self { bytes, reader }
    }
    /// Whether the filter may have been given `key` (or prefix), whose hash this is.
    #[inline]
    pub fn may_match(&self, key: &[u8], hash: KeyHash) -> bool {
        self.reader.may_match_hashed(&self.bytes, key, hash.0)
    }
    /// Asks for the memory that is looked at for a key of this hash.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        if let Some(place) = self.reader.place_of_hash(&self.bytes, hash.0) {
            prefetch(place, 1);
        }
    }
    /// About how many bytes this takes in memory.
    pub fn memory_usage(&self) -> usize {
        size_of::<Self>() + self.bytes.memory_usage()
    }
}
