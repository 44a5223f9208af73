//! What range tombstones hide from an iterator.
//!
//! The answer for a key holds for a span of keys around it, up to the next bound of a fragment or a table of
//! any place. The span is kept, so a scan asks the places once for each of them.

use super::view::LevelView;
use crate::empty_ranges::{EmptyRange, EmptyRanges};
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::{AtomicBool, Ordering};
use ironstone_base::{
    FragmentedTombstones, InternalKeyBuf, InternalKeyComparator, Result, SequenceNumber, ValueType,
};

/// The range tombstones that an iterator has to look at, and the answer for the keys around the last one.
pub(crate) struct Covering {
    order: InternalKeyComparator,
    at: SequenceNumber,
    places: Vec<Place>,
    /// Some table that a level's iterator opened has tombstones. Set by that iterator, on the same thread.
    in_levels: Arc<AtomicBool>,
    in_others: bool,
    known: Option<Known>,
}

struct Place {
    /// Which child of the merging iterator holds the entries beside the tombstones.
    child: usize,
    tombstones: Tombstones,
}

enum Tombstones {
    Here(Arc<FragmentedTombstones>),
    InLevel(Arc<LevelView>),
    /// Nothing since that number, in the entries beside it neither. (The one that has that very number is a tombstone: in
    /// memtables numbers are given once.)
    Empty(Arc<EmptyRange>, SequenceNumber),
}

/// An answer. The bounds are user keys; `begin` is the first key, or the last before (`begin_after`).
struct Known {
    begin: Option<Vec<u8>>,
    begin_after: bool,
    end: Option<Vec<u8>>,
    /// The span goes on through `end` itself.
    end_included: bool,
    newest: SequenceNumber,
    /// The first child that holds only entries that are older than some tombstone over the span.
    hides_from: usize,
    covered: usize,
    /// Those children were moved to the end of the span.
    skipped: bool,
}

/// After so many hidden entries of one span, the children that it hides altogether are moved to its end.
const STEPS_BEFORE_SKIP: usize = 4;

impl Covering {
    pub(crate) fn new(order: InternalKeyComparator, at: SequenceNumber) -> Self {
        Self {
            order,
            at,
            places: Vec::new(),
            in_levels: Arc::new(AtomicBool::new(false)),
            in_others: false,
            known: None,
        }
    }
    /// Tombstones of a memtable or of a table of level 0.
    pub(crate) fn add(&mut self, child: usize, fragments: &Arc<FragmentedTombstones>) {
        if !fragments.is_empty() {
            self.places.push(Place { child, tombstones: Tombstones::Here(Arc::clone(fragments)) });
            self.in_others = true;
        }
    }
    /// Where a memtable and everything older have nothing. Comes before the tombstones of that memtable.
    pub(crate) fn add_empty(&mut self, child: usize, ranges: &EmptyRanges) {
        for (range, since) in ranges.of_reads_at(self.at) {
            self.places.push(Place { child, tombstones: Tombstones::Empty(range, since) });
            self.in_others = true;
        }
    }
    /// The tables of a level; the flag is to be raised when one with tombstones is opened.
    pub(crate) fn add_level(&mut self, child: usize, level: &Arc<LevelView>) -> Arc<AtomicBool> {
        let tombstones = Tombstones::InLevel(Arc::clone(level));
        self.places.push(Place { child, tombstones });
        Arc::clone(&self.in_levels)
    }

    /// The iterator reads as of `at` from now on. Range tombstones that were written since are not among these.
    pub(crate) fn move_to(&mut self, at: SequenceNumber) {
        (self.at, self.known) = (at, None);
    }

    /// Whether there are any at all. Relaxed: one thread at a time uses the iterator.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.in_others || self.in_levels.load(Ordering::Relaxed)
    }

    /// Whether the entry of `key` written at `sequence` is deleted.
    pub(crate) fn hides(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<bool> {
        let order = &self.order.user;
        let holds = self.known.as_ref().is_some_and(|known| {
            known.begin.as_ref().is_none_or(|begin| {
                let side = order.compare(begin, key);
                side.is_lt() || (side.is_eq() && !known.begin_after)
            }) && known.end.as_ref().is_none_or(|end| {
                let side = order.compare(key, end);
                side.is_lt() || (side.is_eq() && known.end_included)
            })
        });
        if !holds {
            self.known = Some(self.ask(key)?);
        }
        let known = self.known.as_mut().expect("it was just asked");
        let hidden = sequence < known.newest;
        known.covered += usize::from(hidden);
        Ok(hidden)
    }

    /// Where walking on makes sense after several entries of a span were hidden: the children from that number
    /// on have nothing to show before that key.
    pub(crate) fn skip(&mut self) -> Option<(usize, InternalKeyBuf)> {
        let known = self.known.as_mut()?;
        if known.covered < STEPS_BEFORE_SKIP {
            return None;
        }
        known.covered = 0;
        // Once: afterwards these children are at the end.
        if std::mem::replace(&mut known.skipped, true) {
            return None;
        }
        let end = known.end.as_ref()?;
        let target = match known.end_included {
            false => InternalKeyBuf::for_seek(end, SequenceNumber::MAX),
            true => InternalKeyBuf::new(end, SequenceNumber::ZERO, ValueType::FOR_SEEK_FOR_PREV),
        };
        Some((known.hides_from, target))
    }

    fn ask(&self, key: &[u8]) -> Result<Known> {
        let mut known = Known {
            begin: None,
            begin_after: false,
            end: None,
            end_included: false,
            newest: SequenceNumber::ZERO,
            hides_from: usize::MAX,
            covered: 0,
            skipped: false,
        };
        for place in &self.places {
            let found = match &place.tombstones {
                Tombstones::Here(fragments) => {
                    let span = fragments.span(&self.order.user, key, self.at);
                    self.narrow(&mut known, span.begin, false, span.end, false);
                    span.sequence
                }
                Tombstones::InLevel(level) => self.ask_level(level, key, &mut known)?,
                Tombstones::Empty(range, since) => self.ask_empty(range, *since, key, &mut known),
            };
            known.newest = known.newest.max(found);
            if found > SequenceNumber::ZERO {
                // What the place itself has may be newer.
                let hides_itself = matches!(place.tombstones, Tombstones::Empty(..));
                known.hides_from = known.hides_from.min(place.child + usize::from(!hides_itself));
                if hides_itself {
                    break; // All places from here on have nothing to say.
                }
            }
        }
        Ok(known)
    }

    fn ask_level(&self, level: &LevelView, key: &[u8], known: &mut Known) -> Result<SequenceNumber> {
        let order = &self.order.user;
        let target = InternalKeyBuf::for_seek(key, self.at);
        let index = level.files.find(&self.order, target.as_key());
        let file = level.files.files().get(index);
        let before = index.checked_sub(1).map(|before| &level.files.files()[before]);
        let in_bounds = file.filter(|file| order.compare(file.smallest.user_key(), key).is_le());
        let Some(file) = in_bounds else {
            let begin = before.map(|before| before.largest.user_key());
            let begin_after = before.is_some_and(|before| !before.largest_is_exclusive());
            self.narrow(known, begin, begin_after, file.map(|file| file.smallest.user_key()), false);
            return Ok(SequenceNumber::ZERO);
        };
        let (smallest, largest) = (file.smallest.user_key(), file.largest.user_key());
        self.narrow(known, Some(smallest), false, Some(largest), !file.largest_is_exclusive());
        level.tables[index].with_reader(|table| {
            let span = table.range_fragments().span(order, key, self.at);
            self.narrow(known, span.begin, false, span.end, false);
            Ok(span.sequence)
        })
    }

    fn ask_empty(
        &self,
        range: &EmptyRange,
        since: SequenceNumber,
        key: &[u8],
        known: &mut Known,
    ) -> SequenceNumber {
        let order = &self.order.user;
        if order.compare(key, range.begin()).is_lt() {
            self.narrow(known, None, false, Some(range.begin()), false);
        } else if order.compare(range.end(), key).is_le() {
            self.narrow(known, Some(range.end()), false, None, false);
        } else {
            self.narrow(known, Some(range.begin()), false, Some(range.end()), false);
            return since;
        }
        SequenceNumber::ZERO
    }

    /// Takes the narrower bound on each side.
    fn narrow(
        &self,
        known: &mut Known,
        begin: Option<&[u8]>,
        begin_after: bool,
        end: Option<&[u8]>,
        end_included: bool,
    ) {
        let order = &self.order.user;
        if let Some(begin) = begin {
            let side = known.begin.as_ref().map(|known| order.compare(begin, known));
            if side.is_none_or(|side| side.is_gt() || (side.is_eq() && begin_after)) {
                (known.begin, known.begin_after) = (Some(begin.to_vec()), begin_after);
            }
        }
        if let Some(end) = end {
            let side = known.end.as_ref().map(|known| order.compare(end, known));
            if side.is_none_or(|side| side.is_lt() || (side.is_eq() && !end_included)) {
                (known.end, known.end_included) = (Some(end.to_vec()), end_included);
            }
        }
    }
}
