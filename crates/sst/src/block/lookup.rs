//! Finds one entry of a data block, without assembling keys.
//!
//! Two keys are compared once per byte at most: the scan of a restart interval remembers how many bytes
//! of the target the previous key had right. An entry that shares more than that with the previous key
//! is on the same side of the target, and one that shares less is compared from there on.

use super::search_hints::{Beginning, zeros};
use super::{Block, Cursor, HashedRestart, entry_at};
use crate::prefetch::prefetch;
use ironstone_base::comparator::big_endian_prefix;
use ironstone_base::perf::{self, PerfMetric};
use ironstone_base::{Corrupt, InternalKey, InternalKeyComparator, UserComparator};
use std::cell::Cell;
use std::cmp::Ordering;

/// About as much as a search looks through, and the value that it finds.
const SCAN_AHEAD: usize = 576;

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
        self.lookup_from(self.begin_lookup(order, target), order, target, global_sequence)
    }

    /// Where [`lookup_from`](Self::lookup_from) has to begin for `target`. Asks for the memory there.
    #[inline]
    pub(crate) fn begin_lookup(&self, order: &InternalKeyComparator, target: InternalKey<'_>) -> Beginning {
        let (beginning, until) = match order.user {
            UserComparator::Custom(_) => (Beginning::Unknown, 0),
            _ => self.begin_search(target.user_key()),
        };
        let end = if let Beginning::After { end, .. } = beginning { end } else { 0 };
        let ahead = self.entries().get(end as usize..).unwrap_or_default();
        prefetch(ahead, SCAN_AHEAD);
        // The end of a long value, which who reads it all would wait for once more.
        if let Some(last) = until.checked_sub(end + 1).filter(|&last| last as usize >= SCAN_AHEAD) {
            prefetch(ahead.get(last as usize..).unwrap_or_default(), 1);
        }
        beginning
    }

    /// As [`lookup`](Self::lookup), with what [`begin_lookup`](Self::begin_lookup) said.
    #[inline]
    pub(crate) fn lookup_from(
        &self,
        beginning: Beginning,
        order: &InternalKeyComparator,
        target: InternalKey<'_>,
        global_sequence: Option<u64>,
    ) -> Result<Lookup, Corrupt> {
        if self.is_empty() {
            return Ok(Lookup::Beyond);
        }
        match &order.user {
            UserComparator::Bytewise => self.lookup_in_bytes::<false>(beginning, target, global_sequence),
            UserComparator::ReverseBytewise => {
                self.lookup_in_bytes::<true>(beginning, target, global_sequence)
            }
            UserComparator::Custom(_) => self.lookup_with_cursor(order, target, global_sequence),
        }
    }

    fn lookup_in_bytes<const REVERSE: bool>(
        &self,
        beginning: Beginning,
        target: InternalKey<'_>,
        global_sequence: Option<u64>,
    ) -> Result<Lookup, Corrupt> {
        let search =
            Search::<REVERSE> { user_key: target.user_key(), trailer: target.trailer(), global_sequence };
        let found = match beginning {
            Beginning::First => self.scan(&search, Passed { end: 0, matched: 0, user_len: 0 })?,
            // The entry that follows shares no more than the user key: the hints saw to it.
            Beginning::After { end, matched, .. } => {
                self.scan(&search, Passed { end, matched, user_len: usize::MAX })?
            }
            Beginning::Unknown => self.scan_interval(&search)?,
        };
        match found {
            Some(result) => Ok(result),
            // Rare: a key that is the same as the one before but for its sequence number.
            None => {
                let user = if REVERSE { UserComparator::ReverseBytewise } else { UserComparator::Bytewise };
                self.lookup_with_cursor(&InternalKeyComparator { user }, target, global_sequence)
            }
        }
    }

    /// Looks through the one restart interval that may have the target.
    #[inline(never)]
    fn scan_interval<const REVERSE: bool>(
        &self,
        search: &Search<'_, REVERSE>,
    ) -> Result<Option<Lookup>, Corrupt> {
        let restart = match self.hashed_restart(search.user_key) {
            // The key would come after the block's entries or between them; what comes next can only be
            // told by looking at the last interval.
            Some(HashedRestart::Absent) => self.restart_count() - 1,
            Some(HashedRestart::At(restart)) => restart,
            None => {
                self.last_restart_before(|user_key, trailer| search.is_before_target(user_key, trailer))?
            }
        };
        self.scan(search, Passed { end: self.restart(restart)?, matched: 0, user_len: 0 })
    }

    /// The last restart point whose user key and trailer come before the target, or the first.
    pub(super) fn last_restart_before(&self, is_before: impl Fn(&[u8], u64) -> bool) -> Result<u32, Corrupt> {
        let (mut low, mut high) = (0, self.restart_count().saturating_sub(1));
        let mut compared = 0;
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            compared += 1;
            let (user_key, trailer) = self.restart_key(middle)?;
            match is_before(user_key, trailer) {
                true => low = middle,
                false => high = middle - 1,
            }
        }
        perf::count(PerfMetric::UserKeyComparisonCount, compared);
        Ok(low)
    }

    /// Looks through the entries that follow `passed`. `None` if a key cannot be judged without assembling it.
    #[inline]
    fn scan<const REVERSE: bool>(
        &self,
        search: &Search<'_, REVERSE>,
        passed: Passed,
    ) -> Result<Option<Lookup>, Corrupt> {
        let mut compared = 0;
        let found = self.scan_counting(search, passed, &mut compared);
        perf::count(PerfMetric::UserKeyComparisonCount, compared);
        found
    }

    /// The same; adds to `compared` how many keys it compared.
    #[inline(always)]
    fn scan_counting<const REVERSE: bool>(
        &self,
        search: &Search<'_, REVERSE>,
        mut passed: Passed,
        compared: &mut u64,
    ) -> Result<Option<Lookup>, Corrupt> {
        let entries = self.entries();
        let trailer_len = self.trailer_len() as u32;
        let target = search.user_key;
        let mut start = target_start(target, passed.matched);
        while (passed.end as usize) < entries.len() {
            let entry = entry_at(entries, passed.end)?;
            let shared = entry.shared as usize;
            if entry.key_len < trailer_len || shared > passed.user_len {
                return Ok(None); // The trailer is not in one piece, or shared bytes are of a trailer.
            }
            let unshared = (entry.key_len - trailer_len) as usize;
            passed.user_len = shared + unshared;
            if shared <= passed.matched {
                *compared += 1;
                if shared < passed.matched {
                    passed.matched = shared; // A restart point, as a rule.
                    start = target_start(target, shared);
                }
                let first = self.word_at(entry.key_at as usize) & !zeros(unshared);
                if first == start {
                    // Equal so far: the rest tells.
                    let unshared = &entries[entry.key_at as usize..][..unshared];
                    let rest = &target[shared..];
                    let same = common_len(unshared, rest);
                    match compare_rest::<REVERSE>(&unshared[same..], &rest[same..]) {
                        Ordering::Less => {}
                        Ordering::Equal => {
                            let trailer = apply_global(self.trailer_of(&entry), search.global_sequence);
                            if trailer <= search.trailer {
                                let (value_at, value_len) = (entry.value_at(), entry.value_len);
                                return Ok(Some(Lookup::Found { trailer, value_at, value_len }));
                            }
                        }
                        Ordering::Greater => return Ok(Some(Lookup::Absent)),
                    }
                    passed.matched = shared + same;
                    start = target_start(target, passed.matched);
                } else if (first < start) == REVERSE {
                    return Ok(Some(Lookup::Absent));
                } else if (first ^ start) >> 56 == 0 {
                    let same = ((first ^ start).leading_zeros() / 8) as usize;
                    passed.matched = (shared + same).min(passed.user_len).min(target.len());
                    start = target_start(target, passed.matched);
                }
            }
            passed.end = entry.end();
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
        let mut compared = 0;
        let result = self.lookup_with(&mut cursor, order, target, global_sequence, &mut compared);
        perf::count(PerfMetric::UserKeyComparisonCount, compared);
        SCRATCH.set(Some(cursor));
        result
    }

    fn lookup_with(
        &self,
        cursor: &mut Cursor,
        order: &InternalKeyComparator,
        target: InternalKey<'_>,
        global_sequence: Option<u64>,
        compared: &mut u64,
    ) -> Result<Lookup, Corrupt> {
        // With a global sequence number the stored ones are 0, so the target would skip nothing.
        let mut more = cursor.seek(self, order, target)?;
        if global_sequence.is_some() && !more {
            return Ok(Lookup::Beyond);
        }
        while more {
            let key = cursor.key(self);
            *compared += 1;
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

/// An entry whose key comes before the target, or what is before the first one.
struct Passed {
    /// Where it ends.
    end: u32,
    /// It begins with this many bytes of the target.
    matched: usize,
    /// How long its user key is, at most.
    user_len: usize,
}

struct Search<'a, const REVERSE: bool> {
    user_key: &'a [u8],
    trailer: u64,
    global_sequence: Option<u64>,
}

impl<const REVERSE: bool> Search<'_, REVERSE> {
    #[inline]
    fn is_before_target(&self, user_key: &[u8], trailer: u64) -> bool {
        let order = match REVERSE {
            false => user_key.cmp(self.user_key),
            true => self.user_key.cmp(user_key),
        };
        match order {
            Ordering::Less => true,
            Ordering::Equal => apply_global(trailer, self.global_sequence) > self.trailer,
            Ordering::Greater => false,
        }
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

/// Whether `user_key` comes before, among or after the keys that begin with `start`.
#[inline]
pub(crate) fn compare_start(user_key: &[u8], start: &[u8], descending: bool) -> Ordering {
    let order = match user_key.get(..start.len()) {
        Some(head) => head.cmp(start),
        // A key that ends within it comes before everything that goes on.
        None => user_key.cmp(&start[..user_key.len()]).then(Ordering::Less),
    };
    if descending { order.reverse() } else { order }
}

/// The 8 bytes of `target` at `at`. As numbers such bytes order as keys do that are the same before them, or are equal.
#[inline]
fn target_start(target: &[u8], at: usize) -> u64 {
    target.get(at..).map_or(0, big_endian_prefix)
}

/// Compares what follows the common beginning of two keys.
#[inline]
fn compare_rest<const REVERSE: bool>(key: &[u8], target: &[u8]) -> Ordering {
    // At most the first byte decides: it differs, or one of them ended.
    let order = key.first().cmp(&target.first());
    if REVERSE { order.reverse() } else { order }
}
