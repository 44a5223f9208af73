//! Walks the entries of a data block in both directions.

use super::bare::PLAIN_TRAILER;
use super::search_hints::Beginning;
use super::{Block, Entry, NO_TRAILER, entry_at};
use crate::prefetch::prefetch;
use ironstone_base::internal_key::TRAILER_LEN;
use ironstone_base::perf::{self, PerfMetric};
use ironstone_base::{Corrupt, InternalKey, InternalKeyComparator};

/// Stands on an entry of a data block, or nowhere. The block is handed to each call, always the same
/// one between two calls of [`Cursor::reset`]: the cursor's owner also owns the block.
pub struct Cursor {
    /// The entry stood on begins here; [`NOWHERE`] if there is none.
    entry_at: u32,
    /// The entry after it begins here.
    next_at: u32,
    value_at: u32,
    value_len: u32,
    /// Where in the block the key is, if it is there in one piece: `key` is stale then.
    whole_key_at: u32,
    key_len: u32,
    key_is_whole: bool,
    /// The key begins it; the rest is room for copying more than there is to copy, which is faster.
    key: Vec<u8>,
    /// The entries of the restart interval that lie before the one stood on, last one on top: walking
    /// back pops them.
    before: Vec<Passed>,
    before_keys: Vec<u8>,
}

/// An entry that walking back will come to.
struct Passed {
    entry_at: u32,
    entry: Entry,
    /// The end of its key in `before_keys`.
    key_end: u32,
}

const NOWHERE: u32 = u32::MAX;
/// How much of a block is asked for when a walk through it begins; the processor sees the pattern then.
const WALK_AHEAD: usize = 4096;
/// How much of a block is asked for when a search through a restart interval begins.
const SEEK_AHEAD: usize = 1024;
/// How much is copied at once.
const WIDE: usize = 32;

impl Default for Cursor {
    /// Stands nowhere.
    fn default() -> Self {
        Self {
            entry_at: NOWHERE,
            next_at: 0,
            value_at: 0,
            value_len: 0,
            whole_key_at: 0,
            key_len: 0,
            key_is_whole: false,
            key: Vec::new(),
            before: Vec::new(),
            before_keys: Vec::new(),
        }
    }
}

impl Cursor {
    /// Stands nowhere; the next calls may be about another block.
    #[inline]
    pub fn reset(&mut self) {
        self.entry_at = NOWHERE;
        self.before.clear();
    }
    /// Whether the cursor stands on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.entry_at != NOWHERE
    }
    /// The key stood on.
    #[inline]
    pub fn key<'a>(&'a self, block: &'a Block) -> InternalKey<'a> {
        let bytes = match self.key_is_whole {
            true => &block.bytes()[self.whole_key_at as usize..(self.whole_key_at + self.key_len) as usize],
            false => &self.key[..self.key_len as usize],
        };
        InternalKey::from_bytes(bytes).expect("checked when it was read")
    }
    /// The value stood on.
    #[inline]
    pub fn value<'a>(&self, block: &'a Block) -> &'a [u8] {
        &block.bytes()[self.value_at as usize..(self.value_at + self.value_len) as usize]
    }
    /// Where in the block the entry stood on is: from its beginning to the next one's.
    #[inline]
    pub fn entry_range(&self) -> (u32, u32) {
        (self.entry_at, self.next_at)
    }
    /// Where in the block the value is, and its length.
    #[inline]
    pub fn value_range(&self) -> (u32, u32) {
        (self.value_at, self.value_len)
    }

    /// Moves to the first entry.
    pub fn seek_to_first(&mut self, block: &Block) -> Result<bool, Corrupt> {
        prefetch(block.bytes(), WALK_AHEAD);
        self.start_at(0);
        self.read_next(block)
    }

    /// Moves to the last entry.
    pub fn seek_to_last(&mut self, block: &Block) -> Result<bool, Corrupt> {
        self.before.clear();
        if block.is_empty() {
            self.entry_at = NOWHERE;
            return Ok(false);
        }
        prefetch(&block.bytes()[block.bytes().len().saturating_sub(WALK_AHEAD)..], WALK_AHEAD);
        self.entry_at = block.entries().len() as u32;
        self.prev(block)
    }

    /// Moves to the first entry at or after `target`.
    pub fn seek(
        &mut self,
        block: &Block,
        order: &InternalKeyComparator,
        target: InternalKey<'_>,
    ) -> Result<bool, Corrupt> {
        self.reset();
        if block.is_empty() {
            return Ok(false);
        }
        let (start, passed) = match block.begin_search(target.user_key()).0 {
            Beginning::First => (0, 0),
            Beginning::After { end, interval, .. } => (interval, end),
            Beginning::Unknown => {
                let restart = block.last_restart_before(|user_key, trailer| {
                    order.compare_parts(user_key, trailer, target).is_lt()
                })?;
                (block.restart(restart)?, 0)
            }
        };
        prefetch(&block.entries()[start as usize..], SEEK_AHEAD);
        self.start_at(start);
        while self.next_at < passed {
            self.read_next(block)?;
        }
        let (mut found, mut compared) = (false, 0);
        while !found && self.read_next(block)? {
            found = order.compare(self.key(block), target).is_ge();
            compared += 1;
        }
        perf::count(PerfMetric::UserKeyComparisonCount, compared);
        Ok(found)
    }

    /// Moves to the next entry.
    #[inline]
    pub fn next(&mut self, block: &Block) -> Result<bool, Corrupt> {
        if !self.before.is_empty() {
            self.before.clear();
        }
        self.read_next(block)
    }

    fn start_at(&mut self, at: u32) {
        self.before.clear();
        self.entry_at = NOWHERE;
        self.next_at = at;
        self.key_is_whole = false;
        self.key_len = 0;
    }

    #[inline]
    fn read_next(&mut self, block: &Block) -> Result<bool, Corrupt> {
        let entries = block.entries();
        let at = self.next_at;
        self.entry_at = NOWHERE;
        if at as usize >= entries.len() {
            return Ok(false);
        }
        let entry = entry_at(entries, at)?;
        self.take_key(block, &entry)?;
        self.entry_at = at;
        self.next_at = entry.end();
        self.value_at = entry.value_at();
        self.value_len = entry.value_len;
        Ok(true)
    }

    /// Makes the key of `entry`, which follows the entry stood on, the key stood on.
    #[inline]
    fn take_key(&mut self, block: &Block, entry: &Entry) -> Result<(), Corrupt> {
        let shared = entry.shared as usize;
        if shared > self.key_len as usize {
            return Err(Corrupt("block: a key shares more than the key before it has"));
        }
        let key_len = entry.shared + entry.key_len;
        if block.is_bare() {
            self.put_key(block, shared, entry.key_at, entry.key_len);
            self.put_plain_trailer(key_len as usize);
            self.key_len = key_len + TRAILER_LEN as u32;
            return Ok(());
        }
        if (key_len as usize) < TRAILER_LEN {
            return Err(NO_TRAILER);
        }
        if shared == 0 {
            self.whole_key_at = entry.key_at;
            self.key_len = key_len;
            self.key_is_whole = true;
            return Ok(());
        }
        if self.key_is_whole {
            self.put_key(block, 0, self.whole_key_at, self.key_len);
            self.key_is_whole = false;
        }
        self.put_key(block, shared, entry.key_at, entry.key_len);
        self.key_len = key_len;
        Ok(())
    }

    /// Copies `len` bytes at `from` of the block to place `to` of `key`.
    #[inline]
    fn put_key(&mut self, block: &Block, to: usize, from: u32, len: u32) {
        let (from, len) = (from as usize, len as usize);
        if len <= WIDE
            && let Some(source) = block.bytes()[from..].first_chunk::<WIDE>()
            && let Some(place) = self.key.get_mut(to..).and_then(|rest| rest.first_chunk_mut::<WIDE>())
        {
            *place = *source;
            return;
        }
        self.put_long_key(&block.bytes()[from..from + len], to);
    }

    /// Puts the trailer of a bare block's keys behind a user key of `len` bytes.
    #[inline]
    fn put_plain_trailer(&mut self, len: usize) {
        if self.key.len() < len + TRAILER_LEN {
            self.key.resize((len + TRAILER_LEN) * 2 + WIDE, 0);
        }
        self.key[len..len + TRAILER_LEN].copy_from_slice(&PLAIN_TRAILER.to_le_bytes());
    }

    #[inline(never)]
    fn put_long_key(&mut self, part: &[u8], to: usize) {
        if self.key.len() < to + part.len() + WIDE {
            self.key.resize((to + part.len()) * 2 + WIDE, 0);
        }
        self.key[to..to + part.len()].copy_from_slice(part);
    }

    /// Moves to the previous entry.
    pub fn prev(&mut self, block: &Block) -> Result<bool, Corrupt> {
        if self.before.is_empty() {
            self.read_interval_before(block).inspect_err(|_| self.reset())?;
        }
        let Some(last) = self.before.pop() else {
            self.entry_at = NOWHERE;
            return Ok(false);
        };
        let key_start = self.before.last().map_or(0, |passed| passed.key_end) as usize;
        let key = &self.before_keys[key_start..last.key_end as usize];
        if self.key.len() < key.len() + WIDE {
            self.key.resize(key.len() * 2 + WIDE, 0);
        }
        self.key[..key.len()].copy_from_slice(key);
        self.key_len = key.len() as u32;
        self.key_is_whole = false;
        self.entry_at = last.entry_at;
        self.next_at = last.entry.end();
        self.value_at = last.entry.value_at();
        self.value_len = last.entry.value_len;
        Ok(true)
    }

    /// Fills `before` with the entries between the last restart point before the entry stood on and it.
    fn read_interval_before(&mut self, block: &Block) -> Result<(), Corrupt> {
        let limit = self.entry_at;
        let Some(restart) = last_restart_before(block, limit)? else {
            return Ok(());
        };
        self.before_keys.clear();
        let entries = block.entries();
        let (mut at, mut key_start) = (restart, 0);
        while at < limit {
            let entry = entry_at(entries, at)?;
            let key_end = self.before_keys.len();
            if entry.shared as usize > key_end - key_start {
                return Err(Corrupt("block: a key shares more than the key before it has"));
            }
            if entry.shared as usize + (entry.key_len as usize) < block.trailer_len() {
                return Err(NO_TRAILER);
            }
            self.before_keys.extend_from_within(key_start..key_start + entry.shared as usize);
            self.before_keys.extend_from_slice(&entries[entry.key_at as usize..entry.value_at() as usize]);
            if block.is_bare() {
                self.before_keys.extend_from_slice(&PLAIN_TRAILER.to_le_bytes());
            }
            key_start = key_end;
            let key_end = u32::try_from(self.before_keys.len())
                .map_err(|_| Corrupt("block: the keys of a restart interval exceed 4 GiB"))?;
            self.before.push(Passed { entry_at: at, entry, key_end });
            at = entry.end();
        }
        if at != limit {
            return Err(Corrupt("block: a restart point is not where an entry begins"));
        }
        Ok(())
    }
}

fn last_restart_before(block: &Block, limit: u32) -> Result<Option<u32>, Corrupt> {
    if limit == 0 {
        return Ok(None);
    }
    let (mut low, mut high) = (0, block.restart_count() - 1);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match block.restart(middle)? < limit {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    Some(block.restart(low)).transpose().map(|restart| restart.filter(|&at| at < limit))
}
