//! What a search needs of a block's entries, in one place: the keys themselves lie spread over the block, most of them
//! not whole, and each look at one would be a cache miss.

use super::{Block, common_len, compare_start, entry_at};
use ironstone_base::comparator::big_endian_prefix;
use ironstone_base::hash::xxh3_64;
use ironstone_base::internal_key::TRAILER_LEN;
use ironstone_base::{Corrupt, UserComparator};
use smallvec::SmallVec;
use std::cmp::Ordering;

/// The beginnings of the user keys of a few entries, evenly spread.
#[derive(Default)]
pub(super) struct SearchHints {
    /// What all of them begin with, as far as there is room.
    common: [u8; COMMON_ROOM],
    common_len: u8,
    descending: bool,
    /// First for each hint the 8 bytes that follow, as a number that orders like the key, then for each its [`Place`].
    words: SmallVec<[u64; 2 * INLINE]>,
}

/// So many bytes of entries lie between two hints. The search goes through half of them on average.
const SPACING: u32 = 448;
/// Blocks of 4 KiB rarely have more hints.
const INLINE: usize = 8;
const COMMON_ROOM: usize = 22;

/// How a search for a user key begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Beginning {
    /// At the first entry.
    First,
    /// After an entry whose user key comes before the one that is searched.
    After {
        /// Where the entry ends.
        end: u32,
        /// Where the restart interval begins that it is in.
        interval: u32,
        /// How many bytes it has in common with the user key that is searched.
        matched: usize,
        /// How long its user key is.
        user_len: usize,
    },
    /// With the restart points: the hints do not tell.
    Unknown,
}

/// Where the entry of a hint is, in a word.
#[derive(Clone, Copy)]
struct Place {
    /// Below [`MOST_BYTES`], as `interval` is.
    end: u32,
    interval: u32,
    user_len: u16,
}

/// Entries behind so many bytes of a block get no hints: the bits of a place are counted.
const MOST_BYTES: u32 = 1 << 24;

impl Place {
    fn to_bits(self) -> u64 {
        u64::from(self.end) | u64::from(self.interval) << 24 | u64::from(self.user_len) << 48
    }
    #[inline]
    fn from_bits(bits: u64) -> Self {
        let offset = |bits: u64| bits as u32 & (MOST_BYTES - 1);
        Self { end: offset(bits), interval: offset(bits >> 24), user_len: (bits >> 48) as u16 }
    }
}

impl SearchHints {
    /// Looks at every entry once. Orders that we do not know get no hints, nor do entries from the first on that makes
    /// no sense: whoever reads that one finds it out.
    pub fn of(block: &Block, order: &UserComparator) -> Result<Self, Corrupt> {
        let descending = match order {
            UserComparator::Bytewise => false,
            UserComparator::ReverseBytewise => true,
            UserComparator::Custom(_) => return Ok(Self::default()),
        };
        let mut hints = Self { descending, ..Self::default() };
        if block.is_empty() {
            return Ok(hints);
        }
        let (first, last) =
            (restart_user_key(block, 0)?, restart_user_key(block, block.restart_count() - 1)?);
        let len = common_len(first, last).min(COMMON_ROOM);
        hints.common[..len].copy_from_slice(&first[..len]);
        hints.common_len = len as u8;
        let mut places: SmallVec<[u64; INLINE]> = SmallVec::new();
        let mut walk = Walk::new(block);
        let mut covered = 0;
        while let Some(place) = walk.next(&hints.common[..len]) {
            if place.end - covered >= SPACING {
                hints.words.push(if descending { !walk.prefix } else { walk.prefix });
                places.push(place.to_bits());
                covered = place.end;
            }
        }
        hints.words.extend_from_slice(&places);
        Ok(hints)
    }

    pub fn memory_usage(&self) -> usize {
        if self.words.spilled() { self.words.capacity() * 8 } else { 0 }
    }

    /// Changes if any of the hints does.
    pub fn checksum(&self) -> u64 {
        let common = xxh3_64(&self.common) ^ u64::from(self.common_len) ^ u64::from(self.descending) << 8;
        self.words
            .iter()
            .fold(common, |sum, word| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
    }

    #[inline]
    fn prefix(&self, user_key: &[u8]) -> u64 {
        let rest = user_key.get(usize::from(self.common_len)..).unwrap_or_default();
        let number = big_endian_prefix(rest);
        if self.descending { !number } else { number }
    }

    /// Where to begin a search for the entries of `user_key`.
    #[inline]
    pub fn begin(&self, user_key: &[u8]) -> Beginning {
        let (prefixes, places) = self.words.split_at(self.words.len() / 2);
        if prefixes.is_empty() {
            return Beginning::Unknown;
        }
        let common = usize::from(self.common_len);
        let after = |index: usize, matched: usize| {
            let Place { end, interval, user_len } = Place::from_bits(places[index]);
            Beginning::After { end, interval, matched, user_len: usize::from(user_len) }
        };
        match compare_start(user_key, &self.common[..common], self.descending) {
            Ordering::Less => return Beginning::First,
            Ordering::Greater => {
                return after(prefixes.len() - 1, common_len(user_key, &self.common[..common]));
            }
            Ordering::Equal => {}
        }
        let prefix = self.prefix(user_key);
        let (mut before, mut not_after) = (0, 0);
        if prefixes.len() <= 2 * INLINE {
            for &other in prefixes {
                before += usize::from(other < prefix);
                not_after += usize::from(other <= prefix);
            }
        } else {
            before = prefixes.partition_point(|&other| other < prefix);
            not_after = prefixes.partition_point(|&other| other <= prefix);
        }
        if not_after - before > 1 {
            return Beginning::Unknown; // Long ways through keys that all begin like this one.
        }
        let Some(index) = before.checked_sub(1) else { return Beginning::First };
        let same = ((prefixes[index] ^ prefix).leading_zeros() / 8) as usize;
        let longest = user_key.len().min(usize::from(Place::from_bits(places[index]).user_len));
        after(index, (common + same).min(longest))
    }
}

/// Goes through the entries of a block, keeping of each key no more than its prefix.
struct Walk<'a> {
    block: &'a Block,
    at: u32,
    /// Where the restart interval begins.
    interval: u32,
    next_restart: u32,
    /// Where the next restart interval begins.
    next_interval: u32,
    user_len: usize,
    /// The 8 bytes after the common ones, zeros after the user key's end.
    prefix: u64,
}

impl<'a> Walk<'a> {
    fn new(block: &'a Block) -> Self {
        let next_interval = block.restart(1).unwrap_or(u32::MAX);
        Self { block, at: 0, interval: 0, next_restart: 1, next_interval, user_len: 0, prefix: 0 }
    }

    /// The next entry, if it makes sense and its key begins with `common`.
    fn next(&mut self, common: &[u8]) -> Option<Place> {
        let entries = self.block.entries();
        if self.at as usize >= entries.len() {
            return None;
        }
        if self.at == self.next_interval {
            self.interval = self.at;
            self.next_restart += 1;
            self.next_interval = self.block.restart(self.next_restart).unwrap_or(u32::MAX);
        }
        let entry = entry_at(entries, self.at).ok()?;
        let key = &entries[entry.key_at as usize..entry.value_at() as usize];
        let (shared, unshared) = (entry.shared as usize, key.len().checked_sub(TRAILER_LEN)?);
        let user_len = shared + unshared;
        if shared > self.user_len || user_len < common.len() {
            return None;
        }
        if shared < common.len() && key[..common.len() - shared] != common[shared..] {
            return None;
        }
        let kept = shared.saturating_sub(common.len());
        if kept < 8 {
            // From here on the bytes are new ones. There are 8: if no others, the trailer's.
            let from = common.len() + kept - shared;
            let new = u64::from_be_bytes(*key[from..].first_chunk()?) & !zeros(unshared - from);
            self.prefix = self.prefix & !zeros(kept) | new >> (8 * kept);
        }
        self.user_len = user_len;
        self.at = entry.end();
        let user_len = u16::try_from(user_len).ok()?;
        (self.at < MOST_BYTES).then_some(Place { end: self.at, interval: self.interval, user_len })
    }
}

/// All bits but those of the first `len` bytes.
#[inline(always)]
pub(super) fn zeros(len: usize) -> u64 {
    if len < 8 { u64::MAX >> (8 * len) } else { 0 }
}

fn restart_user_key(block: &Block, index: u32) -> Result<&[u8], Corrupt> {
    let key = block.restart_key(index)?;
    let len = key.len().checked_sub(TRAILER_LEN);
    Ok(&key[..len.ok_or(Corrupt("block: a key is shorter than its 8-byte trailer"))?])
}
