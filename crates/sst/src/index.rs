//! Index blocks in memory, decoded for searching.
//!
//! ```text
//! common       what all separators begin with
//! prefixes     for each separator the 8 bytes after that, as a number that orders like the key: the search
//!              looks at nothing else unless two are equal
//! samples      the last of every 32 prefixes: searched first, they stay in the processor's cache, and the
//!              32 that are left come from memory at once
//! tails        what is left of the separators, end to end: often nothing, and then there is no list of their ends
//! places       for each block its handle and where the cache had it last, in 8 bytes
//! bytes        where in memory the blocks begin that have large entries: none unless there is such a block in the cache
//! bases        where the first of a few blocks begins: as many as begin within 64 KiB
//! ```
//! Orders that we do not know have whole separators as tails, and nothing else.

mod decode;

use crate::block::{Block, compare_start};
use crate::handle::BlockHandle;
use crate::prefetch::prefetch;
use decode::{Entries, Survey};
use ironstone_base::comparator::big_endian_prefix;
use ironstone_base::internal_key::TRAILER_LEN;
use ironstone_base::perf::{self, PerfMetric};
use ironstone_base::protection::PROTECTION_LEN;
use ironstone_base::protection::planted::{self, Place as Planted};
use ironstone_base::sync::OnceLock;
use ironstone_base::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};
use ironstone_base::{Corrupt, InternalKey, Protection, UserComparator, ValueType};
use ironstone_cache::{SlotHint, prefetch_line};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::hint::select_unpredictable;
use std::ptr;

/// So many prefixes have one sample: four lines of the processor's cache.
const RUN: usize = 32;

/// Bytes of a separator in its prefix.
const PREFIX_LEN: usize = 8;

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
    common: Vec<u8>,
    prefixes: Vec<u64>,
    samples: Vec<u64>,
    /// Where some prefix is that of a shorter key, each begins with how many of the prefix's bytes are the key's.
    tails: Vec<u8>,
    /// Where the tail of each separator ends; empty if there are no tails.
    tail_ends: Vec<u32>,
    has_short_keys: bool,
    places: Vec<Place>,
    /// Where the bytes of blocks begin that are looked at first, one for each block, from when the first of these was found. As
    /// the slots, guesses: who asks for what is not there any more has asked in vain.
    bytes: OnceLock<Box<[AtomicPtr<u8>]>>,
    /// The offsets of the first of each `1 << base_shift` blocks.
    bases: Vec<u64>,
    base_shift: u32,
    /// The sizes of all blocks, if one is too large for its place.
    large_sizes: Vec<u32>,
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
    /// Written with what [`ironstone_cache::Handle::hint`] says, read as a guess: a stale value costs a
    /// search, nothing more, so `Relaxed` is enough.
    slot: AtomicU32,
    /// How far behind the base it begins.
    offset: u16,
    /// Cut off where there are large sizes.
    size: u16,
}

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
        Self::of(Entries { blocks: std::slice::from_ref(block), format, data_end }, order)
    }

    /// One index of the partitions of a two-level index, which come in order.
    pub fn decode_partitions<E: From<Corrupt>>(
        partitions: impl Iterator<Item = Result<Block, E>>,
        format: IndexFormat,
        order: &UserComparator,
        data_end: u64,
    ) -> Result<Self, E> {
        let blocks = partitions.collect::<Result<Vec<_>, E>>()?;
        Ok(Self::of(Entries { blocks: &blocks, format, data_end }, order)?)
    }

    fn of(entries: Entries<'_>, order: &UserComparator) -> Result<Self, Corrupt> {
        let order = match order {
            UserComparator::Bytewise => PrefixOrder::Ascending,
            UserComparator::ReverseBytewise => PrefixOrder::Descending,
            UserComparator::Custom(_) => PrefixOrder::Unknown,
        };
        let has_prefixes = order != PrefixOrder::Unknown;
        let survey = Survey::of(entries, has_prefixes)?;
        let Survey { count, common, has_short_keys, base_shift, has_large_blocks, .. } = survey;
        let in_prefixes = if has_prefixes && !has_short_keys { count * PREFIX_LEN } else { 0 };
        let tail_bytes = survey.rest_bytes - in_prefixes;
        let counted_if = |wanted: bool| if wanted { count } else { 0 };
        let mut prefixes = Vec::with_capacity(counted_if(has_prefixes));
        let mut tails = Vec::with_capacity(tail_bytes);
        let has_tails = has_short_keys || tail_bytes > 0;
        let mut tail_ends = Vec::with_capacity(counted_if(has_tails));
        let mut large_sizes = Vec::with_capacity(counted_if(has_large_blocks));
        let mut places = Vec::with_capacity(count);
        let mut bases = Vec::with_capacity(count.div_ceil(1 << base_shift));
        let mut first_keys = entries.format.first_keys.then(|| FirstKeys {
            ends: Vec::with_capacity(count),
            bytes: Vec::with_capacity(survey.first_key_bytes),
        });
        entries.visit(|user_key, trailer, value| {
            let mut rest = &user_key[common.len()..];
            if has_prefixes {
                prefixes.push(order.number(rest));
                let in_prefix = rest.len().min(PREFIX_LEN);
                rest = &rest[in_prefix..];
                if has_short_keys {
                    tails.push(in_prefix as u8);
                }
            }
            tails.extend_from_slice(rest);
            tails.extend_from_slice(trailer);
            // The survey and `visit` saw to it that all of these fit.
            if has_tails {
                tail_ends.push(tails.len() as u32);
            }
            if has_large_blocks {
                large_sizes.push(value.handle.size as u32);
            }
            if places.len().is_multiple_of(1 << base_shift) {
                bases.push(value.handle.offset);
            }
            let base = bases.last().copied().unwrap_or_default();
            places.push(Place {
                slot: AtomicU32::new(0),
                offset: (value.handle.offset - base) as u16,
                size: value.handle.size as u16,
            });
            if let Some(first_keys) = &mut first_keys {
                first_keys.bytes.extend_from_slice(value.first_key);
                first_keys.ends.push(first_keys.bytes.len() as u32);
            }
            Ok(())
        })?;
        tails.shrink_to_fit();
        Ok(Self {
            common,
            samples: prefixes.chunks_exact(RUN).map(|run| run[RUN - 1]).collect(),
            prefixes,
            tails,
            tail_ends,
            has_short_keys,
            places,
            bytes: OnceLock::new(),
            bases,
            base_shift,
            large_sizes,
            first_keys,
            user_keys: entries.format.user_keys,
            order,
            checksums: Vec::new(),
            checksum_len: 0,
        })
    }

    /// Gives each separator with its handle a checksum of so many bytes; 0: none.
    pub(crate) fn protect(&mut self, bytes: u8) {
        self.checksum_len = usize::from(bytes);
        if bytes > 0 {
            self.checksums = (0..self.len()).flat_map(|at| self.checksum(at)).collect();
            match self.prefixes.first_mut() {
                Some(prefix) => planted::flip_number(Planted::IndexBlock, prefix),
                None => planted::flip(Planted::IndexBlock, &mut self.tails),
            }
        }
    }
    fn checksum(&self, at: usize) -> SmallVec<[u8; PROTECTION_LEN]> {
        let BlockHandle { offset, size } = self.handle(at);
        let place = u128::from(offset) << 64 | u128::from(size);
        let whole = Protection::new(ValueType::Noop, &self.separator(at), &place.to_le_bytes());
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
        let base = self.bases[at >> self.base_shift];
        let size = self.large_sizes.get(at).copied().unwrap_or(u32::from(place.size));
        BlockHandle { offset: base + u64::from(place.offset), size: u64::from(size) }
    }
    /// What follows the prefix of separator `at`, and how many bytes of the prefix are of its key.
    #[inline]
    fn tail(&self, at: usize) -> (usize, &[u8]) {
        let end = |at: usize| self.tail_ends.get(at).map_or(0, |&end| end as usize);
        let tail = &self.tails[at.checked_sub(1).map_or(0, end)..end(at)];
        match (self.has_short_keys, tail.split_first()) {
            (true, Some((&len, tail))) => (usize::from(len), tail),
            _ => (if self.order == PrefixOrder::Unknown { 0 } else { PREFIX_LEN }, tail),
        }
    }
    /// The separator after block `at`: a user key or an internal key.
    pub fn separator(&self, at: usize) -> SmallVec<[u8; 64]> {
        let (in_prefix, tail) = self.tail(at);
        let mut key = SmallVec::from_slice(&self.common);
        if let Some(&prefix) = self.prefixes.get(at) {
            key.extend_from_slice(&self.order.bytes(prefix)[..in_prefix]);
        }
        key.extend_from_slice(tail);
        key
    }
    /// The user key of the separator after block `at`.
    pub fn separator_user_key(&self, at: usize) -> SmallVec<[u8; 64]> {
        let mut key = self.separator(at);
        key.truncate(key.len() - if self.user_keys { 0 } else { TRAILER_LEN });
        key
    }
    /// Whether the separator after block `at` has this user key.
    #[inline]
    pub(crate) fn ends_with(&self, order: &UserComparator, at: usize, user_key: &[u8]) -> bool {
        self.compare(order, at, user_key).0.is_eq()
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
    /// Notes where the cache has block `at`, and where the bytes are that are [looked at
    /// first](crate::CachedBlock::bytes_first), if any are.
    #[inline]
    pub(crate) fn note_place<'a>(
        &self,
        at: usize,
        hint: SlotHint,
        bytes_first: impl FnOnce() -> Option<&'a [u8]>,
    ) {
        let slot = &self.places[at].slot;
        let is_new = slot.load(Relaxed) != hint.to_bits();
        if is_new {
            slot.store(hint.to_bits(), Relaxed);
        }
        if is_new || self.bytes.get().is_some() {
            self.note_bytes(at, bytes_first());
        }
    }
    #[inline]
    fn note_bytes(&self, at: usize, bytes: Option<&[u8]>) {
        let start = bytes.map_or(ptr::null(), <[u8]>::as_ptr).cast_mut();
        let kept = match self.bytes.get() {
            None if start.is_null() => return,
            None => self.bytes.get_or_init(|| self.places.iter().map(|_| AtomicPtr::default()).collect()),
            Some(kept) => kept,
        };
        if kept[at].load(Relaxed) != start {
            kept[at].store(start, Relaxed);
        }
    }
    /// Asks for what is looked at first of the bytes of block `at`, both ends of them, if it is known where they are.
    #[inline]
    pub(crate) fn prefetch_bytes(&self, at: usize) {
        if let Some(start) = self.bytes_of(at) {
            let len = self.handle(at).size as usize;
            [0, 64, len].into_iter().for_each(|at| prefetch_line(start.wrapping_add(at)));
        }
    }
    /// Where the bytes of block `at` are that are looked at first, if that is known.
    #[inline]
    pub(crate) fn bytes_of(&self, at: usize) -> Option<*const u8> {
        let start = self.bytes.get()?[at].load(Relaxed).cast_const();
        (!start.is_null()).then_some(start)
    }
    /// About how many bytes this takes in memory.
    pub fn memory_usage(&self) -> usize {
        let first_keys = self.first_keys.as_ref();
        size_of::<Self>()
            + (self.prefixes.capacity() + self.samples.capacity()) * 8
            + self.bases.capacity() * 8
            + self.common.capacity()
            + self.tails.capacity()
            + (self.tail_ends.capacity() + self.large_sizes.capacity()) * 4
            + self.places.capacity() * size_of::<Place>()
            + self.bytes.get().map_or(0, |bytes| size_of_val(&**bytes))
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
            let prefix = self.order.number(&user_key[self.common.len()..]);
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
            if self.is_before(order, middle, target) {
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
                if let Some(places) = self.places.get(start..start + RUN) {
                    prefetch(places, size_of_val(places));
                }
                if let Some(bytes) = self.bytes.get().and_then(|bytes| bytes.get(start..start + RUN)) {
                    prefetch(bytes, size_of_val(bytes));
                }
                start + lower_bound(run, wanted)
            }
            None => start + lower_bound(rest, wanted),
        }
    }

    /// Whether `at` is what [`find`](Self::find) answers, by what is there of the two separators beside it.
    pub(crate) fn is_found(&self, order: &UserComparator, target: InternalKey<'_>, at: usize) -> bool {
        let is_before = |at: usize| self.is_before(order, at, target);
        let after_last = at.checked_sub(1).is_none_or(|last| self.is_intact(last) && is_before(last));
        after_last && (at >= self.len() || self.is_intact(at) && !is_before(at))
    }

    /// Whether `user_key` comes before, among or after the keys that begin with the common bytes.
    #[inline]
    fn compare_common(&self, user_key: &[u8]) -> Ordering {
        if self.common.is_empty() {
            return Ordering::Equal;
        }
        compare_start(user_key, &self.common, self.order == PrefixOrder::Descending)
    }

    /// How the user key of separator `at` compares to `user_key`; and the separator's trailer, if it has one.
    #[inline]
    fn compare(&self, order: &UserComparator, at: usize, user_key: &[u8]) -> (Ordering, &[u8]) {
        let (in_prefix, tail) = self.tail(at);
        let (tail, trailer) = tail.split_at(tail.len() - if self.user_keys { 0 } else { TRAILER_LEN });
        let Some(&prefix) = self.prefixes.get(at) else { return (order.compare(tail, user_key), trailer) };
        let compared = self.compare_common(user_key).reverse().then_with(|| {
            let rest = &user_key[self.common.len()..];
            prefix.cmp(&self.order.number(rest)).then_with(|| {
                // So far one of them is what the other begins with, or zeros follow it there.
                let ascending = match rest.get(PREFIX_LEN..) {
                    Some(rest) if in_prefix == PREFIX_LEN => tail.cmp(rest),
                    _ => (in_prefix + tail.len()).cmp(&rest.len()),
                };
                if self.order == PrefixOrder::Descending { ascending.reverse() } else { ascending }
            })
        });
        (compared, trailer)
    }

    /// Whether separator `at` comes before `target`.
    #[inline]
    fn is_before(&self, order: &UserComparator, at: usize, target: InternalKey<'_>) -> bool {
        let (compared, trailer) = self.compare(order, at, target.user_key());
        match compared {
            Ordering::Equal if !self.user_keys => {
                let trailer = trailer.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                trailer > target.trailer()
            }
            other => other.is_lt(),
        }
    }
}

impl PrefixOrder {
    /// A number that orders like what follows the common bytes of keys.
    #[inline]
    fn number(self, rest: &[u8]) -> u64 {
        let number = big_endian_prefix(rest);
        if self == Self::Descending { !number } else { number }
    }
    /// The bytes that have this number, and zeros behind them if there are fewer.
    fn bytes(self, number: u64) -> [u8; PREFIX_LEN] {
        (if self == Self::Descending { !number } else { number }).to_be_bytes()
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

#[cfg(test)]
mod tests;
