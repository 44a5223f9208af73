//! Index blocks in memory, decoded for searching.
//!
//! ```text
//! separators   end to end, with an offset for each
//! prefixes     for each separator 8 bytes, taken after what all of them begin with, as a number that
//!              orders like the key: the search looks at nothing else unless two are equal
//! samples      the last of every 32 prefixes: searched first, they stay in the processor's cache, and the
//!              32 that are left come from memory at once
//! places       for each block its handle, and where the cache had it last
//! ```

use crate::block::{Block, common_len, compare_start, entry_at};
use crate::handle::{BlockHandle, IndexValue};
use crate::prefetch::prefetch;
use ironstone_base::coding::get_varint32;
use ironstone_base::comparator::big_endian_prefix;
use ironstone_base::internal_key::TRAILER_LEN;
use ironstone_base::perf::{self, PerfMetric};
use ironstone_base::protection::PROTECTION_LEN;
use ironstone_base::protection::planted::{self, Place as Planted};
use ironstone_base::sync::atomic::{AtomicU32, Ordering::Relaxed};
use ironstone_base::{Corrupt, InternalKey, Protection, UserComparator, ValueType};
use ironstone_cache::SlotHint;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::hint::select_unpredictable;

/// So many prefixes have one sample: four lines of the processor's cache.
const RUN: usize = 32;

/// How the values and keys of a table's index blocks are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexFormat {
    /// Keys are user keys, not internal keys.
    pub user_keys: bool,
    /// Values leave out what the value before implies.
    pub delta_values: bool,
    /// Values carry the first key of their block.
    pub first_keys: bool,
}

/// An index block, decoded: for each block in order a key at or after its last one, and its place.
pub struct FlatIndex {
    /// How many bytes every separator begins with alike.
    common_len: usize,
    prefixes: Vec<u64>,
    samples: Vec<u64>,
    separators: Vec<u8>,
    places: Vec<Place>,
    first_keys: Option<FirstKeys>,
    user_keys: bool,
    /// What the prefixes can tell: nothing for orders that we do not know.
    order: PrefixOrder,
    /// A checksum of each separator and its handle, so many bytes each.
    checksums: Vec<u8>,
    checksum_len: usize,
}

/// What a read needs to know about a block, together in memory.
struct Place {
    /// Low half, high half: 20 bytes in all, and not 24.
    offset: [u32; 2],
    /// Written with what [`ironstone_cache::Handle::hint`] says, read as a guess: a stale value costs a
    /// search, nothing more, so `Relaxed` is enough.
    slot: AtomicU32,
    size: u32,
    /// Where the separator after the block ends in `separators`.
    separator_end: u32,
}

#[derive(Default)]
struct FirstKeys {
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PrefixOrder {
    Ascending,
    Descending,
    Unknown,
}

impl FlatIndex {
    /// Decodes an index block whose blocks all lie in the first `data_end` bytes of the file.
    pub fn decode(
        block: &Block,
        format: IndexFormat,
        order: &UserComparator,
        data_end: u64,
    ) -> Result<Self, Corrupt> {
        let mut index = Self::empty(format, order);
        index.append(block, format, data_end)?;
        index.complete();
        Ok(index)
    }

    /// One index of the partitions of a two-level index, which come in order.
    pub fn decode_partitions<E: From<Corrupt>>(
        partitions: impl Iterator<Item = Result<Block, E>>,
        format: IndexFormat,
        order: &UserComparator,
        data_end: u64,
    ) -> Result<Self, E> {
        let mut index = Self::empty(format, order);
        for block in partitions {
            index.append(&block?, format, data_end)?;
        }
        index.complete();
        Ok(index)
    }

    fn empty(format: IndexFormat, order: &UserComparator) -> Self {
        Self {
            common_len: 0,
            prefixes: Vec::new(),
            samples: Vec::new(),
            separators: Vec::new(),
            places: Vec::new(),
            first_keys: format.first_keys.then(FirstKeys::default),
            checksums: Vec::new(),
            checksum_len: 0,
            user_keys: format.user_keys,
            order: match order {
                UserComparator::Bytewise => PrefixOrder::Ascending,
                UserComparator::ReverseBytewise => PrefixOrder::Descending,
                UserComparator::Custom(_) => PrefixOrder::Unknown,
            },
        }
    }

    fn append(&mut self, block: &Block, format: IndexFormat, data_end: u64) -> Result<(), Corrupt> {
        let entries = block.entries();
        // As much as is needed where every entry has its restart, and keys as long as what they are stored in:
        // growing by doubling would leave holes in the allocator as large as the index.
        if self.places.is_empty() {
            self.places.reserve_exact(block.restart_count() as usize);
            self.separators.reserve_exact(entries.len());
        }
        let mut at = 0;
        let mut key = Vec::new();
        let mut previous = None;
        while at < entries.len() {
            let (value, next_at) = match format.delta_values {
                true => read_delta_entry(entries, at, &mut key, format, previous)?,
                false => read_whole_entry(entries, at, &mut key, format)?,
            };
            self.push(&key, value, data_end)?;
            previous = Some(value.handle);
            at = next_at;
        }
        Ok(())
    }

    fn push(&mut self, key: &[u8], value: IndexValue<'_>, data_end: u64) -> Result<(), Corrupt> {
        const BAD: Corrupt = Corrupt("index: a block lies outside of the file");
        if !self.user_keys && key.len() < TRAILER_LEN {
            return Err(Corrupt("index: a key is shorter than its 8-byte trailer"));
        }
        if value.handle.end() > data_end {
            return Err(BAD);
        }
        let size =
            u32::try_from(value.handle.size).map_err(|_| Corrupt("index: a block of 4 GiB or more"))?;
        self.separators.extend_from_slice(key);
        let separator_end = offset32(self.separators.len())?;
        let offset = [value.handle.offset as u32, (value.handle.offset >> 32) as u32];
        self.places.push(Place { offset, slot: AtomicU32::new(0), size, separator_end });
        if let Some(first_keys) = &mut self.first_keys {
            first_keys.bytes.extend_from_slice(value.first_key);
            first_keys.ends.push(offset32(first_keys.bytes.len())?);
        }
        Ok(())
    }

    /// Computes what the search needs once all entries are there.
    fn complete(&mut self) {
        let count = self.len();
        self.separators.shrink_to_fit();
        self.places.shrink_to_fit();
        if self.order == PrefixOrder::Unknown || count == 0 {
            return;
        }
        let (first, last) = (self.separator_user_key(0), self.separator_user_key(count - 1));
        self.common_len = common_len(first, last);
        self.prefixes = (0..count).map(|at| self.prefix(self.separator_user_key(at))).collect();
        self.samples = self.prefixes.chunks_exact(RUN).map(|run| run[RUN - 1]).collect();
        // Damage that a checksum did not catch could break the order; searches then only miss keys.
    }

    /// A number that orders like `user_key` among keys that begin with the common bytes.
    #[inline]
    fn prefix(&self, user_key: &[u8]) -> u64 {
        let rest = user_key.get(self.common_len..).unwrap_or_default();
        let number = big_endian_prefix(rest);
        if self.order == PrefixOrder::Descending { !number } else { number }
    }

    /// Gives each separator with its handle a checksum of so many bytes; 0: none.
    pub(crate) fn protect(&mut self, bytes: u8) {
        self.checksum_len = usize::from(bytes);
        if bytes > 0 {
            self.checksums = (0..self.len()).flat_map(|at| self.checksum(at)).collect();
            planted::flip(Planted::IndexBlock, &mut self.separators);
        }
    }
    fn checksum(&self, at: usize) -> SmallVec<[u8; PROTECTION_LEN]> {
        let BlockHandle { offset, size } = self.handle(at);
        let place = u128::from(offset) << 64 | u128::from(size);
        let whole = Protection::new(ValueType::Noop, self.separator(at), &place.to_le_bytes());
        SmallVec::from_slice(&whole.to_bytes()[..self.checksum_len])
    }
    /// Whether separator `at` and its handle are as they were when they got their checksum, if they did.
    #[inline]
    pub(crate) fn is_intact(&self, at: usize) -> bool {
        let len = self.checksum_len;
        len == 0 || self.checksums[at * len..(at + 1) * len] == *self.checksum(at)
    }

    /// How many blocks there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.places.len()
    }
    /// Whether there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
    /// Where block `at` is.
    #[inline]
    pub fn handle(&self, at: usize) -> BlockHandle {
        let place = &self.places[at];
        BlockHandle {
            offset: u64::from(place.offset[1]) << 32 | u64::from(place.offset[0]),
            size: u64::from(place.size),
        }
    }
    /// The separator after block `at`: a user key or an internal key.
    #[inline]
    pub fn separator(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.places[before].separator_end) as usize;
        &self.separators[start..self.places[at].separator_end as usize]
    }
    /// The user key of the separator after block `at`.
    #[inline]
    pub fn separator_user_key(&self, at: usize) -> &[u8] {
        let separator = self.separator(at);
        if self.user_keys { separator } else { &separator[..separator.len() - TRAILER_LEN] }
    }
    /// Whether separators are user keys.
    pub fn has_user_keys(&self) -> bool {
        self.user_keys
    }
    /// The first internal key of block `at`, if the index has it.
    pub fn first_key(&self, at: usize) -> Option<InternalKey<'_>> {
        let first_keys = self.first_keys.as_ref()?;
        let start = at.checked_sub(1).map_or(0, |before| first_keys.ends[before]) as usize;
        InternalKey::from_bytes(&first_keys.bytes[start..first_keys.ends[at] as usize]).ok()
    }
    /// Where the cache had block `at` last.
    #[inline]
    pub fn slot(&self, at: usize) -> SlotHint {
        SlotHint::from_bits(self.places[at].slot.load(Relaxed))
    }
    /// Notes where the cache has block `at`.
    #[inline]
    pub fn set_slot(&self, at: usize, hint: SlotHint) {
        if self.places[at].slot.load(Relaxed) != hint.to_bits() {
            self.places[at].slot.store(hint.to_bits(), Relaxed);
        }
    }
    /// About how many bytes this takes in memory.
    pub fn memory_usage(&self) -> usize {
        let first_keys = self.first_keys.as_ref();
        size_of::<Self>()
            + (self.prefixes.capacity() + self.samples.capacity()) * 8
            + self.separators.capacity()
            + self.places.capacity() * size_of::<Place>()
            + self.checksums.capacity()
            + first_keys.map_or(0, |keys| keys.ends.capacity() * 4 + keys.bytes.capacity())
    }

    /// The first block that may hold an entry at or after `target`; [`FlatIndex::len`] if none may.
    #[inline]
    pub fn find(&self, order: &UserComparator, target: InternalKey<'_>) -> usize {
        let user_key = target.user_key();
        let (mut low, mut high) = (0, self.len());
        let (mut numbers, mut separators) = (0, 0);
        if self.order != PrefixOrder::Unknown && high > 0 {
            match self.compare_common(user_key) {
                Ordering::Equal => {}
                order => {
                    perf::count(PerfMetric::UserKeyComparisonCount, 1);
                    return if order.is_lt() { 0 } else { high };
                }
            }
            let prefix = self.prefix(user_key);
            low = self.first_prefix_from(prefix);
            // Almost always there is at most one that is equal.
            high = low + self.prefixes[low..].iter().take_while(|&&other| other == prefix).take(8).count();
            if high == low + 8 {
                high = low + self.prefixes[low..].partition_point(|&other| other == prefix);
            }
            numbers = self.prefixes.len();
        }
        while low < high {
            let middle = low + (high - low) / 2;
            separators += 1;
            if self.is_before(order, middle, target, user_key) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        perf::count_search(numbers, separators);
        low
    }

    /// The first place whose prefix is `wanted` or more.
    #[inline]
    fn first_prefix_from(&self, wanted: u64) -> usize {
        let start = lower_bound(&self.samples, wanted) * RUN;
        let rest = &self.prefixes[start..];
        match rest.first_chunk::<RUN>() {
            Some(run) => {
                prefetch(run, size_of_val(run));
                start + lower_bound(run, wanted)
            }
            None => start + lower_bound(rest, wanted),
        }
    }

    /// Whether `at` is what [`find`](Self::find) answers, by what is there of the two separators beside it.
    pub(crate) fn is_found(&self, order: &UserComparator, target: InternalKey<'_>, at: usize) -> bool {
        let is_before = |at: usize| self.is_before(order, at, target, target.user_key());
        let after_last = at.checked_sub(1).is_none_or(|last| self.is_intact(last) && is_before(last));
        after_last && (at >= self.len() || self.is_intact(at) && !is_before(at))
    }

    /// Whether `user_key` comes before, among or after the keys that begin with the common bytes.
    #[inline]
    fn compare_common(&self, user_key: &[u8]) -> Ordering {
        if self.common_len == 0 {
            return Ordering::Equal;
        }
        let descending = self.order == PrefixOrder::Descending;
        compare_start(user_key, &self.separators[..self.common_len], descending)
    }

    /// Whether separator `at` comes before `target`.
    #[inline]
    fn is_before(&self, order: &UserComparator, at: usize, target: InternalKey<'_>, user_key: &[u8]) -> bool {
        let separator = self.separator(at);
        if self.user_keys {
            return order.compare(separator, user_key).is_lt();
        }
        let (key, trailer) = separator.split_at(separator.len() - TRAILER_LEN);
        match order.compare(key, user_key) {
            Ordering::Equal => {
                let trailer = trailer.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                trailer > target.trailer()
            }
            other => other.is_lt(),
        }
    }
}

/// The first place whose number is `wanted` or more. No branch depends on the numbers.
#[inline(always)]
fn lower_bound(numbers: &[u64], wanted: u64) -> usize {
    let mut base = 0;
    let mut len = numbers.len();
    while len > 1 {
        let half = len / 2;
        base = select_unpredictable(numbers[base + half - 1] < wanted, base + half, base);
        len -= half;
    }
    base + usize::from(len == 1 && numbers[base] < wanted)
}

fn offset32(offset: usize) -> Result<u32, Corrupt> {
    u32::try_from(offset).map_err(|_| Corrupt("index: the keys of an index exceed 4 GiB"))
}

fn read_whole_entry<'a>(
    entries: &'a [u8],
    at: usize,
    key: &mut Vec<u8>,
    format: IndexFormat,
) -> Result<(IndexValue<'a>, usize), Corrupt> {
    let entry = entry_at(entries, at as u32)?;
    let (key_at, value_at, end) = (entry.key_at as usize, entry.value_at() as usize, entry.end() as usize);
    join_key(key, entry.shared as usize, &entries[key_at..value_at])?;
    let value = IndexValue::decode(&mut &entries[value_at..end], format.first_keys, None)?;
    Ok((value, end))
}

fn read_delta_entry<'a>(
    entries: &'a [u8],
    at: usize,
    key: &mut Vec<u8>,
    format: IndexFormat,
    previous: Option<BlockHandle>,
) -> Result<(IndexValue<'a>, usize), Corrupt> {
    const BAD: Corrupt = Corrupt("index: an entry reaches beyond the end of the entries");
    let mut rest = &entries[at..];
    let shared = get_varint32(&mut rest).ok_or(BAD)? as usize;
    let unshared = get_varint32(&mut rest).ok_or(BAD)? as usize;
    let (tail, mut rest) = rest.split_at_checked(unshared).ok_or(BAD)?;
    join_key(key, shared, tail)?;
    let previous = if shared == 0 { None } else { Some(previous.ok_or(BAD)?) };
    let value = IndexValue::decode(&mut rest, format.first_keys, previous)?;
    Ok((value, entries.len() - rest.len()))
}

fn join_key(key: &mut Vec<u8>, shared: usize, tail: &[u8]) -> Result<(), Corrupt> {
    if shared > key.len() {
        return Err(Corrupt("index: a key shares more than the key before it has"));
    }
    key.truncate(shared);
    key.extend_from_slice(tail);
    Ok(())
}

#[cfg(test)]
mod tests;
