//! Finds one entry of a data block, without assembling keys.
//!
//! Two keys are compared once per byte at most: the scan of a restart interval remembers how many bytes
//! of the target the previous key had right. An entry that shares more than that with the previous key
//! is on the same side of the target, and one that shares less is compared from there on.

use super::prefetch::prefetch;
use super::restart_hints::RestartRange;
use super::{Block, Cursor, HashedRestart, entry_at};
use ironstone_base::internal_key::TRAILER_LEN;
use ironstone_base::{Corrupt, InternalKey, InternalKeyComparator, UserComparator};
use std::cell::Cell;
use std::cmp::Ordering;

/// About as much as a search looks through.
const SCAN_AHEAD: usize = 1024;

/// What a block has of a user key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// The newest entry at or below the target's sequence number.
    Found {
        /// Its sequence number and type, the table's global sequence number applied.
        trailer: u64,
        /// Where in the block its value begins.
        value_at: u32,
        /// How long the value is.
        value_len: u32,
    },
    /// No such entry, and none in later blocks.
    Absent,
    /// Every entry of the block comes before the target: a later block may have it.
    Beyond,
}

thread_local! {
    /// For orders that need whole keys. Taken out while in use: a comparator may call back into us.
    static SCRATCH: Cell<Option<Cursor>> = const { Cell::new(None) };
}

impl Block {
    /// Finds the newest entry of `target`'s user key at or below its sequence number. With
    /// `global_sequence` every entry counts as written then, whatever its key says.
    #[inline]
    pub fn lookup(
        &self,
        order: &InternalKeyComparator,
        target: InternalKey<'_>,
        global_sequence: Option<u64>,
    ) -> Result<Lookup, Corrupt> {
        if self.is_empty() {
            return Ok(Lookup::Beyond);
        }
        match &order.user {
            UserComparator::Bytewise => self.lookup_in_bytes::<false>(target, global_sequence),
            UserComparator::ReverseBytewise => self.lookup_in_bytes::<true>(target, global_sequence),
            UserComparator::Custom(_) => self.lookup_with_cursor(order, target, global_sequence),
        }
    }

    fn lookup_in_bytes<const REVERSE: bool>(
        &self,
        target: InternalKey<'_>,
        global_sequence: Option<u64>,
    ) -> Result<Lookup, Corrupt> {
        let search =
            Search::<REVERSE> { user_key: target.user_key(), trailer: target.trailer(), global_sequence };
        let restart = match self.hashed_restart(search.user_key) {
            // The key would come after the block's entries or between them; what comes next can only be
            // told by looking at the last interval.
            Some(HashedRestart::Absent) => self.restart_count - 1,
            Some(HashedRestart::At(restart)) => restart,
            None => self.last_restart_before(&search)?,
        };
        match self.scan(&search, self.scan_start(restart)?)? {
            Some(result) => Ok(result),
            // Rare: a key that is the same as the one before but for its sequence number.
            None => {
                let user = if REVERSE { UserComparator::ReverseBytewise } else { UserComparator::Bytewise };
                self.lookup_with_cursor(&InternalKeyComparator { user }, target, global_sequence)
            }
        }
    }

    /// Where restart point `index` is, for reading on from there.
    #[inline]
    pub(super) fn scan_start(&self, index: u32) -> Result<u32, Corrupt> {
        let at = match self.hints.start(index) {
            Some(at) => at,
            None => self.restart(index)?,
        };
        let entries = self.entries();
        prefetch(&entries[at as usize..entries.len().min(at as usize + SCAN_AHEAD)]);
        Ok(at)
    }

    /// The last restart point whose key comes before the target, or the first.
    #[inline]
    fn last_restart_before<const REVERSE: bool>(&self, search: &Search<'_, REVERSE>) -> Result<u32, Corrupt> {
        let RestartRange { mut low, mut high } = self.hints.narrow(search.user_key, self.restart_count);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            match search.is_before_target(InternalKey::from_bytes(self.restart_key(middle)?)?) {
                true => low = middle,
                false => high = middle - 1,
            }
        }
        Ok(low)
    }

    /// Looks through the entries from `at` on. `None` if a key cannot be judged without assembling it.
    #[inline]
    fn scan<const REVERSE: bool>(
        &self,
        search: &Search<'_, REVERSE>,
        mut at: u32,
    ) -> Result<Option<Lookup>, Corrupt> {
        let entries = self.entries();
        let target = search.user_key;
        // The key before, which comes before the target, begins with this many bytes of it.
        let mut matched = 0usize;
        // The length of the user key before.
        let mut previous_len = 0usize;
        while (at as usize) < entries.len() {
            let entry = entry_at(entries, at)?;
            let (shared, key_len) = (entry.shared as usize, entry.key_len as usize);
            if key_len < TRAILER_LEN || shared > previous_len {
                return Ok(None); // The trailer is not in one piece, or shared bytes are of a trailer.
            }
            let user_len = shared + key_len - TRAILER_LEN;
            if shared <= matched {
                let key = &entries[entry.key_at as usize..entry.value_at() as usize];
                let (unshared, trailer) = key.split_at(key_len - TRAILER_LEN);
                let rest = &target[shared..];
                let same = common_len(unshared, rest);
                matched = shared + same;
                match compare_rest::<REVERSE>(&unshared[same..], &rest[same..]) {
                    Ordering::Less => {}
                    Ordering::Equal => {
                        let trailer = search.effective_trailer(trailer);
                        if trailer <= search.trailer {
                            let (value_at, value_len) = (entry.value_at(), entry.value_len);
                            return Ok(Some(Lookup::Found { trailer, value_at, value_len }));
                        }
                    }
                    Ordering::Greater => return Ok(Some(Lookup::Absent)),
                }
            }
            previous_len = user_len;
            at = entry.end();
        }
        Ok(Some(Lookup::Beyond))
    }

    #[cold]
    fn lookup_with_cursor(
        &self,
        order: &InternalKeyComparator,
        target: InternalKey<'_>,
        global_sequence: Option<u64>,
    ) -> Result<Lookup, Corrupt> {
        let mut cursor = SCRATCH.take().unwrap_or_default();
        cursor.reset();
        let result = self.lookup_with(&mut cursor, order, target, global_sequence);
        SCRATCH.set(Some(cursor));
        result
    }

    fn lookup_with(
        &self,
        cursor: &mut Cursor,
        order: &InternalKeyComparator,
        target: InternalKey<'_>,
        global_sequence: Option<u64>,
    ) -> Result<Lookup, Corrupt> {
        // With a global sequence number the stored ones are 0, so the target would skip nothing.
        let mut more = cursor.seek(self, order, target)?;
        if global_sequence.is_some() && !more {
            return Ok(Lookup::Beyond);
        }
        while more {
            let key = cursor.key(self);
            if !order.user.equal(key.user_key(), target.user_key()) {
                return Ok(Lookup::Absent);
            }
            let trailer = apply_global(key.trailer(), global_sequence);
            if trailer <= target.trailer() {
                let (value_at, value_len) = cursor.value_range();
                return Ok(Lookup::Found { trailer, value_at, value_len });
            }
            more = cursor.next(self)?;
        }
        Ok(Lookup::Beyond)
    }
}

struct Search<'a, const REVERSE: bool> {
    user_key: &'a [u8],
    trailer: u64,
    global_sequence: Option<u64>,
}

impl<const REVERSE: bool> Search<'_, REVERSE> {
    #[inline]
    fn is_before_target(&self, key: InternalKey<'_>) -> bool {
        let order = match REVERSE {
            false => key.user_key().cmp(self.user_key),
            true => self.user_key.cmp(key.user_key()),
        };
        match order {
            Ordering::Less => true,
            Ordering::Equal => apply_global(key.trailer(), self.global_sequence) > self.trailer,
            Ordering::Greater => false,
        }
    }
    #[inline]
    fn effective_trailer(&self, stored: &[u8]) -> u64 {
        let stored = stored.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        apply_global(stored, self.global_sequence)
    }
}

/// A trailer with its sequence number replaced by the table's, if it has one.
#[inline]
pub(crate) fn apply_global(trailer: u64, global_sequence: Option<u64>) -> u64 {
    match global_sequence {
        Some(sequence) => sequence << 8 | trailer & 0xff,
        None => trailer,
    }
}

/// How many bytes `a` and `b` have in common at their beginning.
#[inline]
pub(crate) fn common_len(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    let mut at = 0;
    let (a_words, a_rest) = a.as_chunks::<8>();
    let (b_words, b_rest) = b.as_chunks::<8>();
    for (x, y) in a_words.iter().zip(b_words) {
        let differing = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differing != 0 {
            return at + (differing.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    at + a_rest.iter().zip(b_rest).take_while(|(x, y)| x == y).count()
}

/// Compares what follows the common beginning of two keys.
#[inline]
fn compare_rest<const REVERSE: bool>(key: &[u8], target: &[u8]) -> Ordering {
    // At most the first byte decides: it differs, or one of them ended.
    let order = key.first().cmp(&target.first());
    if REVERSE { order.reverse() } else { order }
}
