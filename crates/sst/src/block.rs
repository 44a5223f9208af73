//! Blocks of entries, and how to walk and search them.
//!
//! ```text
//! entry           shared len varint32 | unshared len varint32 | value len varint32 | key bytes | value
//! ... entries
//! restart points  u32 LE each: where an entry with shared len 0 begins
//! hash index      u8 each: restart point of the keys of a bucket (254 several, 255 none)   optional
//! bucket count    u16 LE                                                                   optional
//! footer          u32 LE: bits 0-27 number of restart points, 31 there is a hash index,
//!                         28 keys and values apart, 29 evenly spread keys
//! ```
//! An entry's key is the first `shared len` bytes of the key before it and then the key bytes.
//! In memory a block may be *bare*: the trailers of its keys are left out (`bare.rs`).
//! Index blocks may leave out `value len`. Format reference: docs/format/sst.md, "Blocks".

mod bare;
mod cursor;
mod lookup;
mod meta_cursor;
mod read_amp;
mod search_hints;

pub use cursor::Cursor;
pub use lookup::Lookup;
pub(crate) use lookup::{apply_global, common_len, compare_start};
pub use meta_cursor::{MetaCursor, MetaEntry};
pub(crate) use search_hints::Beginning;

use crate::cached_block::BlockCache;
use bare::PLAIN_TRAILER;
use ironstone_base::coding::get_varint32;
use ironstone_base::hash::xxh3_64;
use ironstone_base::internal_key::TRAILER_LEN;
use ironstone_base::protection::planted::{self, Place};
use ironstone_base::sync::Arc;
use ironstone_base::{Corrupt, Statistics, UserComparator};
use ironstone_cache::BlockBytes;
use read_amp::ReadAmp;
use search_hints::SearchHints;

/// The footer bit that says that a hash index is there.
pub(crate) const HASH_INDEX_BIT: u32 = 1 << 31;
const RESERVED_BIT: u32 = 1 << 30;
/// The bit of a block in memory that says that its keys have no trailers.
const BARE_BIT: u32 = RESERVED_BIT;
const UNIFORM_KEYS_BIT: u32 = 1 << 29;
const SEPARATED_VALUES_BIT: u32 = 1 << 28;
/// A bucket of the hash index that has keys of several restart points.
pub(crate) const BUCKET_COLLISION: u8 = 254;
/// A bucket of the hash index that has no keys.
pub(crate) const BUCKET_EMPTY: u8 = 255;
/// The largest restart point that a bucket can hold.
pub(crate) const MAX_HASHED_RESTART: usize = 253;
/// The seed of the hash that picks a bucket.
pub(crate) const BUCKET_HASH_SEED: u32 = 397;

/// The bytes of an uncompressed block, their ends checked.
pub struct Block {
    bytes: BlockBytes,
    hints: SearchHints,
    /// Where the entries end and the restart points begin.
    entries_end: u32,
    /// [`HASH_INDEX_BIT`], [`BARE_BIT`] and the number of restart points.
    footer: u32,
    extras: Option<Box<Extras>>,
}
// The block cache has one for every few KiB of blocks, each in so many lines of the processor's cache.
const _: () = assert!(size_of::<Block>() <= 2 * 64);

/// A block of a few entries, all of which a search asks for at once, is shorter.
const LARGE: usize = 1024;

/// What is seldom asked for.
#[derive(Default)]
struct Extras {
    /// Of all bytes and the hints.
    checksum: Option<u64>,
    /// What was looked at.
    read_amp: Option<ReadAmp>,
}

/// Where the parts of one entry are.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    /// How many bytes of the previous key begin this one.
    pub shared: u32,
    /// Where the other bytes of the key are.
    pub key_at: u32,
    pub key_len: u32,
    pub value_len: u32,
}

impl Entry {
    #[inline(always)]
    pub fn value_at(&self) -> u32 {
        self.key_at + self.key_len
    }
    #[inline(always)]
    pub fn end(&self) -> u32 {
        self.value_at() + self.value_len
    }
}

impl Block {
    /// Takes `bytes` as a block if its end makes sense. Entries are checked when they are read.
    pub fn new(bytes: impl Into<BlockBytes>) -> Result<Self, Corrupt> {
        const SHORT: Corrupt = Corrupt("block: too short for its restart points");
        let bytes = bytes.into();
        if u32::try_from(bytes.len()).is_err() {
            return Err(Corrupt("block: larger than 4 GiB"));
        }
        let (body, footer) = bytes.split_last_chunk::<4>().ok_or(SHORT)?;
        let packed = u32::from_le_bytes(*footer);
        if packed & SEPARATED_VALUES_BIT != 0 {
            return Err(Corrupt("block: keys and values are stored apart, which is not supported"));
        }
        if packed & RESERVED_BIT != 0 {
            return Err(Corrupt("block: the footer uses a feature that is newer than this reader"));
        }
        let restart_count = packed & !(HASH_INDEX_BIT | UNIFORM_KEYS_BIT);
        let mut restarts_end = body.len();
        if packed & HASH_INDEX_BIT != 0 {
            let (rest, count) = body.split_last_chunk::<2>().ok_or(SHORT)?;
            let buckets = usize::from(u16::from_le_bytes(*count));
            let at = rest.len().checked_sub(buckets).filter(|_| buckets > 0);
            restarts_end = at.ok_or(Corrupt("block: the hash index is larger than the block"))?;
        }
        let restarts_len = (restart_count as usize).checked_mul(4).ok_or(SHORT)?;
        let entries_end = restarts_end.checked_sub(restarts_len).ok_or(SHORT)? as u32;
        if restart_count == 0 && entries_end != 0 {
            return Err(Corrupt("block: entries without a restart point"));
        }
        Ok(Self {
            hints: SearchHints::default(),
            entries_end,
            footer: packed & !UNIFORM_KEYS_BIT,
            extras: None,
            bytes,
        })
    }

    /// As [`Block::new`] for a block that will stay in memory and be searched often, under `order`.
    pub fn for_cache(bytes: impl Into<BlockBytes>, order: &UserComparator) -> Result<Self, Corrupt> {
        let mut block = Self::new(bytes)?;
        block = block.stripped().unwrap_or(block);
        block.hints = SearchHints::of(&block, order)?;
        Ok(block)
    }

    /// Lets [`is_intact`](Self::is_intact) find out what changes from now on.
    pub(crate) fn protect(&mut self) {
        let checksum = Some(self.checksum_now());
        self.extras.get_or_insert_default().checksum = checksum;
        planted::flip(Place::DataBlock, &mut self.bytes);
    }
    /// Whether bytes and hints are those that were there when it was protected, if it was.
    pub(crate) fn is_intact(&self) -> bool {
        let checksum = self.extras.as_ref().and_then(|extras| extras.checksum);
        checksum.is_none_or(|checksum| checksum == self.checksum_now())
    }
    fn checksum_now(&self) -> u64 {
        xxh3_64(&self.bytes) ^ self.hints.checksum()
    }

    /// Counts the block as read, and what [`note_read`](Self::note_read) is told of as useful.
    pub(crate) fn count_read_amp(&mut self, bytes_per_bit: u32, salt: u64, statistics: &Arc<Statistics>) {
        let read_amp = ReadAmp::new(self.bytes.len(), bytes_per_bit, salt, statistics);
        self.extras.get_or_insert_default().read_amp = Some(read_amp);
    }
    /// Bytes `start..end` are handed to a reader.
    #[inline]
    pub(crate) fn note_read(&self, start: u32, end: u32) {
        if let Some(read_amp) = self.read_amp() {
            read_amp.mark(start, end);
        }
    }

    #[inline]
    fn read_amp(&self) -> Option<&ReadAmp> {
        self.extras.as_ref()?.read_amp.as_ref()
    }

    /// All bytes of the block.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
    /// About how many bytes this takes in memory.
    pub fn memory_usage(&self) -> usize {
        let extras = self.extras.as_ref().map_or(0, |_| size_of::<Extras>());
        let read_amp = self.read_amp().map_or(0, ReadAmp::memory_usage);
        size_of::<Self>() + self.bytes.memory_usage() + self.hints.memory_usage() + extras + read_amp
    }
    /// Gives the memory back for another block.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes.into_vec()
    }
    /// As [`Block::for_cache`] of a copy of `bytes` in the memory of a cache.
    pub(crate) fn copied_to(
        cache: &BlockCache,
        which: u64,
        bytes: &[u8],
        order: &UserComparator,
    ) -> Result<Self, Corrupt> {
        let block = Self::for_cache(cache.hold_copy(bytes, which), order)?;
        Ok(if block.is_bare() { block.moved_to(cache, which) } else { block })
    }
    /// The same block with its bytes in the memory of a cache.
    pub(crate) fn moved_to(self, cache: &BlockCache, which: u64) -> Self {
        Self { bytes: cache.hold(self.bytes.into_vec(), which), ..self }
    }
    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries_end == 0
    }
    /// Whether it is one large entry or two, so that a search begins at its first line, or in its middle.
    pub(crate) fn is_of_large_entries(&self) -> bool {
        self.hints.len() <= 1 && self.bytes.len() > LARGE
    }
    /// How many restart points there are.
    pub fn restart_count(&self) -> u32 {
        self.footer & !(HASH_INDEX_BIT | BARE_BIT)
    }
    /// Whether its keys have no trailers: each has the [`PLAIN_TRAILER`].
    #[inline(always)]
    fn is_bare(&self) -> bool {
        self.footer & BARE_BIT != 0
    }
    /// How many bytes of a trailer stand behind each key.
    #[inline(always)]
    fn trailer_len(&self) -> usize {
        if self.is_bare() { 0 } else { TRAILER_LEN }
    }
    /// The bytes of the entries.
    #[inline(always)]
    pub(crate) fn entries(&self) -> &[u8] {
        // `new` checked that the end is inside.
        &self.bytes[..self.entries_end as usize]
    }

    /// Where restart point `index` begins.
    #[inline]
    pub(crate) fn restart(&self, index: u32) -> Result<u32, Corrupt> {
        let at = self.entries_end as usize + 4 * index as usize;
        let point = self.bytes.get(at..).and_then(|tail| tail.first_chunk::<4>());
        let point = point.map_or(u32::MAX, |point| u32::from_le_bytes(*point));
        if point >= self.entries_end || index >= self.restart_count() {
            return Err(Corrupt("block: a restart point lies outside of the entries"));
        }
        Ok(point)
    }

    /// The user key and the trailer of the entry at restart point `index`.
    #[inline]
    pub(crate) fn restart_key(&self, index: u32) -> Result<(&[u8], u64), Corrupt> {
        let entries = self.entries();
        let entry = entry_at(entries, self.restart(index)?)?;
        if entry.shared != 0 {
            return Err(Corrupt("block: the key of a restart point is not whole"));
        }
        let key = &entries[entry.key_at as usize..entry.value_at() as usize];
        if self.is_bare() {
            return Ok((key, PLAIN_TRAILER));
        }
        let (user_key, trailer) = key.split_last_chunk().ok_or(NO_TRAILER)?;
        Ok((user_key, u64::from_le_bytes(*trailer)))
    }

    /// The bytes of the user key that stand at `entry`. `None` if its trailer is not in one piece there.
    #[inline]
    fn key_of(&self, entry: &Entry) -> Option<&[u8]> {
        let end = (entry.value_at() as usize).checked_sub(self.trailer_len())?;
        self.bytes.get(entry.key_at as usize..end)
    }
    /// The trailer at `entry`, which has one in one piece or is of a bare block.
    #[inline]
    fn trailer_of(&self, entry: &Entry) -> u64 {
        if self.is_bare() {
            return PLAIN_TRAILER;
        }
        let trailer = self.bytes[..entry.value_at() as usize].last_chunk();
        trailer.map_or(0, |trailer| u64::from_le_bytes(*trailer))
    }
    /// The 8 bytes that begin within the entries or at their end, as a number that orders like them: restart points and the
    /// footer follow.
    #[inline(always)]
    fn word_at(&self, at: usize) -> u64 {
        let word = self.bytes.get(at..).and_then(|rest| rest.first_chunk());
        word.map_or(0, |word| u64::from_be_bytes(*word))
    }

    /// What the hash index says about `user_key`: the restart point that would have it. `None` if the
    /// hash index cannot tell.
    #[inline]
    pub(crate) fn hashed_restart(&self, user_key: &[u8]) -> Option<HashedRestart> {
        if self.footer & HASH_INDEX_BIT == 0 {
            return None;
        }
        let start = self.entries_end as usize + 4 * self.restart_count() as usize;
        let buckets = self.bytes.get(start..)?.split_last_chunk::<6>()?.0;
        let hash = ironstone_base::hash::hash32(user_key, BUCKET_HASH_SEED);
        match buckets[hash as usize % buckets.len()] {
            BUCKET_COLLISION => None,
            BUCKET_EMPTY => Some(HashedRestart::Absent),
            restart if u32::from(restart) < self.restart_count() => {
                Some(HashedRestart::At(u32::from(restart)))
            }
            _ => None,
        }
    }
}

/// An answer of a block's hash index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HashedRestart {
    /// The block does not have the key.
    Absent,
    /// If the block has the key, then in the interval of this restart point.
    At(u32),
}

const NO_TRAILER: Corrupt = Corrupt("block: a key is shorter than its 8-byte trailer");
const BAD_ENTRY: Corrupt = Corrupt("block: an entry reaches beyond the end of the entries");

/// Reads the lengths of the entry at `at` and checks that it lies within `entries`.
#[inline(always)]
pub(crate) fn entry_at(entries: &[u8], at: u32) -> Result<Entry, Corrupt> {
    if let Some(&[shared, unshared, value_len, more]) =
        entries.get(at as usize..).and_then(|rest| rest.first_chunk::<4>())
        && (shared | unshared | value_len & more) < 0x80
    {
        // Of one byte, or two.
        let (key_at, value_len) = match value_len < 0x80 {
            true => (at + 3, u32::from(value_len)),
            false => (at + 4, u32::from(value_len & 0x7f) | u32::from(more) << 7),
        };
        let entry = Entry { shared: u32::from(shared), key_at, key_len: u32::from(unshared), value_len };
        // Cannot overflow: `at` is within the entries, whose end fits with room for the footer.
        return if entry.end() as usize <= entries.len() { Ok(entry) } else { Err(BAD_ENTRY) };
    }
    // In registers: were the entry to come back in memory, every reader of it, also on the fast path, would
    // have to wait for its parts to be written.
    let (shared_and_place, lengths) = entry_with_long_lengths(entries, at);
    if shared_and_place == NO_ENTRY {
        return Err(BAD_ENTRY);
    }
    Ok(Entry {
        shared: shared_and_place as u32,
        key_at: (shared_and_place >> 32) as u32,
        key_len: lengths as u32,
        value_len: (lengths >> 32) as u32,
    })
}

/// Instead of an entry's place; no entry is there, since blocks are smaller than 4 GiB.
const NO_ENTRY: u64 = u64::MAX;

/// Answers `shared | key_at << 32` and `key_len | value_len << 32`.
#[inline(never)]
fn entry_with_long_lengths(entries: &[u8], at: u32) -> (u64, u64) {
    let parse = || {
        let all = entries.get(at as usize..)?;
        let mut rest = all;
        let shared = get_varint32(&mut rest)?;
        let key_len = get_varint32(&mut rest)?;
        let value_len = get_varint32(&mut rest)?;
        let fits = u64::from(key_len) + u64::from(value_len) <= rest.len() as u64;
        let key_at = u64::from(at) + (all.len() - rest.len()) as u64;
        let lengths = u64::from(key_len) | u64::from(value_len) << 32;
        fits.then_some((u64::from(shared) | key_at << 32, lengths))
    };
    parse().unwrap_or((NO_ENTRY, 0))
}

#[cfg(test)]
mod tests;
