//! What a search needs of a block's entries, in one place: the keys themselves lie spread over the block, most of them
//! not whole, and each look at one would be a cache miss.

use super::{Block, common_len, compare_start, entry_at};
use ironstone_base::comparator::big_endian_prefix;
use ironstone_base::hash::xxh3_64;
use ironstone_base::{Corrupt, UserComparator};
use smallvec::SmallVec;
use std::cmp::Ordering;

/// The beginnings of the user keys of a few entries, evenly spread. A [`Hint`] each, in order.
pub(super) enum SearchHints {
    Few { common: Common, count: u8, hints: [u64; FEW] },
    Many { common: Common, hints: Box<[u64]> },
}

/// What all user keys begin with.
#[derive(Clone, Copy, Default)]
pub(super) struct Common {
    /// As far as there is room; if there is not, the block's first key begins with it as well.
    bytes: [u8; COMMON_ROOM],
    len: u8,
    descending: bool,
}

/// So many bytes of entries lie between two hints, where there are many. The search goes through half of them on average.
const SPACING: u32 = 448;
/// Blocks of 4 KiB have no more hints.
const FEW: usize = 8;
/// The entries of such blocks.
const FEW_BYTES: u32 = 4608;
const COMMON_ROOM: usize = 19;

/// How a search for a user key begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Beginning {
    /// At the first entry.
    First,
    /// After an entry whose user key comes before the one that is searched. What follows it shares nothing of its trailer.
    After {
        /// Where the entry ends.
        end: u32,
        /// Where the restart interval begins that it is in.
        interval: u32,
        /// How many bytes it has in common with the user key that is searched.
        matched: usize,
    },
    /// With the restart points: the hints do not tell.
    Unknown,
}

/// The entry of a hint, in a word: the 4 bytes of its user key that follow the common ones, as a number that orders like
/// the key, then 16 bits for each place.
#[derive(Clone, Copy)]
struct Hint {
    prefix: u32,
    /// Where the entry ends.
    end: u16,
    /// Where the restart interval begins that it is in.
    interval: u16,
}

/// Bytes of a user key in its hint.
const PREFIX_LEN: usize = 4;

impl Hint {
    fn to_bits(self) -> u64 {
        u64::from(self.prefix) << 32 | u64::from(self.end) << 16 | u64::from(self.interval)
    }
    #[inline]
    fn from_bits(bits: u64) -> Self {
        Self { prefix: (bits >> 32) as u32, end: (bits >> 16) as u16, interval: bits as u16 }
    }
}

impl Default for SearchHints {
    fn default() -> Self {
        Self::Few { common: Common::default(), count: 0, hints: [0; FEW] }
    }
}

impl SearchHints {
    /// Looks at every entry once. Orders that we do not know get no hints, nor do entries behind the first 64 KiB, nor
    /// those from the first on that makes no sense: whoever reads that one finds it out.
    pub fn of(block: &Block, order: &UserComparator) -> Result<Self, Corrupt> {
        let descending = match order {
            UserComparator::Bytewise => false,
            UserComparator::ReverseBytewise => true,
            UserComparator::Custom(_) => return Ok(Self::default()),
        };
        if block.is_empty() {
            return Ok(Self::default());
        }
        let (first, _) = block.restart_key(0)?;
        let (last, _) = block.restart_key(block.restart_count() - 1)?;
        // Of keys of one length it leaves as much as fills a hint.
        let most = first.len().min(last.len()).saturating_sub(PREFIX_LEN).min(usize::from(u8::MAX));
        let len = common_len(first, last).min(most).min(shared_by_last_interval(block));
        let mut common = Common { bytes: [0; COMMON_ROOM], len: len as u8, descending };
        let inline = len.min(COMMON_ROOM);
        common.bytes[..inline].copy_from_slice(&first[..inline]);
        let mut hints = collect(block, &first[..len], descending, 1);
        if hints.len() > FEW {
            hints = collect(block, &first[..len], descending, spacing(block));
        }
        Ok(match *hints {
            ref few if few.len() <= FEW => {
                let mut hints = [0; FEW];
                hints[..few.len()].copy_from_slice(few);
                Self::Few { common, count: few.len() as u8, hints }
            }
            ref many => Self::Many { common, hints: many.into() },
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.parts().1.len()
    }

    #[inline]
    fn parts(&self) -> (&Common, &[u64]) {
        match self {
            Self::Few { common, count, hints } => (common, &hints[..usize::from(*count).min(FEW)]),
            Self::Many { common, hints } => (common, hints),
        }
    }

    pub fn memory_usage(&self) -> usize {
        if let Self::Many { hints, .. } = self { size_of_val(&**hints) } else { 0 }
    }

    /// Changes if any of the hints does.
    pub fn checksum(&self) -> u64 {
        let (common, hints) = self.parts();
        let sum = xxh3_64(&common.bytes) ^ u64::from(common.len) ^ u64::from(common.descending) << 8;
        hints.iter().fold(sum, |sum, hint| (sum ^ hint).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
    }
}

/// How many bytes the keys after the last restart point share with it: what is common to it and to the first key
/// need not be common to them.
fn shared_by_last_interval(block: &Block) -> usize {
    let entries = block.entries();
    let Ok(mut at) = block.restart(block.restart_count() - 1) else { return 0 };
    let (mut least, mut is_first) = (usize::MAX, true);
    while (at as usize) < entries.len() {
        let Ok(entry) = entry_at(entries, at) else { break };
        if !std::mem::take(&mut is_first) {
            least = least.min(entry.shared as usize);
        }
        at = entry.end();
    }
    least
}

/// How many bytes of entries there are between two hints, if there are not enough for all entries.
fn spacing(block: &Block) -> u32 {
    let entries_end = block.entries().len() as u32;
    // Few hints are evenly spread, however many bytes there are exactly.
    if entries_end <= FEW_BYTES { (entries_end / (FEW as u32 + 1) + 1).max(SPACING) } else { SPACING }
}

/// The hints of a block whose user keys begin with `common`, at least `spacing` bytes apart; if that is no more than a byte,
/// those of the first entries, up to one more than are few.
fn collect(block: &Block, common: &[u8], descending: bool, spacing: u32) -> SmallVec<[u64; 4 * FEW]> {
    let most = if spacing <= 1 { FEW } else { usize::MAX };
    let mut hints = SmallVec::new();
    let mut walk = Walk::new(block);
    let mut covered = 0;
    // The last one waits for the entry that follows to make sense.
    let mut last = None;
    while let Some(place) = walk.next(common) {
        hints.extend(last.take());
        if hints.len() > most {
            break;
        }
        if place.end - covered < spacing || walk.user_len < common.len() + PREFIX_LEN {
            continue;
        }
        let (Ok(end), Ok(interval)) = (u16::try_from(place.end), u16::try_from(place.interval)) else {
            break;
        };
        let prefix = (if descending { !walk.prefix } else { walk.prefix } >> 32) as u32;
        last = Some(Hint { prefix, end, interval }.to_bits());
        covered = place.end;
    }
    hints
}

impl Block {
    /// Where to begin a search for the entries of `user_key`, and where the next hint is: as a rule the entry that is found
    /// ends there at the latest. 0 if that is not known.
    #[inline]
    pub(super) fn begin_search(&self, user_key: &[u8]) -> (Beginning, u32) {
        const UNKNOWN: (Beginning, u32) = (Beginning::Unknown, 0);
        let (common, hints) = self.hints.parts();
        let end_of = |hint| u32::from(Hint::from_bits(hint).end);
        let first = || (Beginning::First, hints.first().map_or(self.entries_end, |&hint| end_of(hint)));
        if hints.is_empty() {
            return if self.restart_count() <= 1 { first() } else { UNKNOWN };
        }
        let len = usize::from(common.len);
        let Some(start) = common.bytes.get(..len).or_else(|| self.restart_key(0).ok()?.0.get(..len)) else {
            return UNKNOWN;
        };
        let after = |index: usize, matched: usize| {
            let Hint { end, interval, .. } = Hint::from_bits(hints[index]);
            if index == hints.len() - 1 && self.entries_end > LARGEST {
                return UNKNOWN; // Entries have no hints from somewhere on.
            }
            let until = hints.get(index + 1).map_or(self.entries_end, |&hint| end_of(hint));
            (Beginning::After { end: u32::from(end), interval: u32::from(interval), matched }, until)
        };
        match compare_start(user_key, start, common.descending) {
            Ordering::Less => return first(),
            Ordering::Greater => return after(hints.len() - 1, common_len(user_key, start)),
            Ordering::Equal => {}
        }
        let number = big_endian_prefix(&user_key[len..]);
        let prefix = (if common.descending { !number } else { number } >> 32) as u32;
        let prefix_of = |hint: u64| Hint::from_bits(hint).prefix;
        let (mut before, mut not_after) = (0, 0);
        if hints.len() <= 2 * FEW {
            for &hint in hints {
                before += usize::from(prefix_of(hint) < prefix);
                not_after += usize::from(prefix_of(hint) <= prefix);
            }
        } else {
            before = hints.partition_point(|&hint| prefix_of(hint) < prefix);
            not_after = hints.partition_point(|&hint| prefix_of(hint) <= prefix);
        }
        if not_after - before > 1 {
            return UNKNOWN; // Long ways through keys that all begin like this one.
        }
        let Some(index) = before.checked_sub(1) else { return first() };
        let same = ((prefix_of(hints[index]) ^ prefix).leading_zeros() / 8) as usize;
        after(index, (len + same).min(user_key.len()))
    }
}

/// Blocks with more bytes of entries have some without hints.
const LARGEST: u32 = u16::MAX as u32;

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

/// Where an entry ends, and where its restart interval begins.
struct Place {
    end: u32,
    interval: u32,
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
        let key = self.block.key_of(&entry)?;
        let (shared, unshared) = (entry.shared as usize, key.len());
        let user_len = shared + unshared;
        if shared > self.user_len || user_len < common.len() {
            return None;
        }
        if shared < common.len() && key[..common.len() - shared] != common[shared..] {
            return None;
        }
        let kept = shared.saturating_sub(common.len());
        if kept < 8 {
            // From here on the bytes are new ones.
            let from = common.len() + kept - shared;
            let new = self.block.word_at(entry.key_at as usize + from) & !zeros(unshared - from);
            self.prefix = self.prefix & !zeros(kept) | new >> (8 * kept);
        }
        self.user_len = user_len;
        self.at = entry.end();
        Some(Place { end: self.at, interval: self.interval })
    }
}

/// All bits but those of the first `len` bytes.
#[inline(always)]
pub(super) fn zeros(len: usize) -> u64 {
    if len < 8 { u64::MAX >> (8 * len) } else { 0 }
}
