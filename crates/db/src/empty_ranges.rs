//! Ranges of keys in which a memtable, and all that is older, have nothing to show: iterators pass them in one step.
//!
//! A range tombstone of the same memtable covers each of them. That alone says nothing about the entries beside it, which
//! may be newer.

use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ironstone_base::sync::{Mutex, Swap};
use ironstone_base::{SequenceNumber, UserComparator};

/// A memtable keeps no more than this: each write of a value to it compares its key with them.
const MOST: usize = 16;

/// The keys from `begin` until `end`.
pub(crate) struct EmptyRange {
    begin: Box<[u8]>,
    end: Box<[u8]>,
    /// There is nothing as of this number; the largest one while somebody is still looking.
    at: AtomicU64,
    /// No entry in it that is not a tombstone has a larger number than this one or `at`. Raised before an entry is added, and
    /// so before readers may see it.
    newest: AtomicU64,
}

impl EmptyRange {
    fn new(begin: &[u8], end: &[u8], at: SequenceNumber, last: SequenceNumber) -> Arc<Self> {
        let (at, newest) = (AtomicU64::new(at.0), AtomicU64::new(last.0));
        Arc::new(Self { begin: begin.into(), end: end.into(), at, newest })
    }
    pub(crate) fn begin(&self) -> &[u8] {
        &self.begin
    }
    pub(crate) fn end(&self) -> &[u8] {
        &self.end
    }
    pub(crate) fn holds(&self, order: &UserComparator, key: &[u8]) -> bool {
        order.compare(&self.begin, key).is_le() && order.compare(key, &self.end).is_lt()
    }
    /// The number as of which there is nothing, if that is so for reads at `at` too.
    pub(crate) fn empty_since(&self, at: SequenceNumber) -> Option<SequenceNumber> {
        let since = self.at.load(Ordering::Acquire);
        let is_empty = since <= at.0 && self.newest.load(Ordering::Relaxed) <= since;
        is_empty.then_some(SequenceNumber(since))
    }
}

/// Those of a memtable.
pub(crate) struct EmptyRanges {
    /// Whether there are any. Relaxed: set under the log lock, before later writes get their numbers.
    any: AtomicBool,
    list: Swap<Vec<Arc<EmptyRange>>>,
    /// Taken by who changes the list.
    changing: Mutex<()>,
}

impl EmptyRanges {
    pub(crate) fn new() -> Self {
        Self { any: AtomicBool::new(false), list: Swap::new(Vec::new()), changing: Mutex::new(()) }
    }
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }
    /// Those that are empty for reads at `at`. That number is to be taken before.
    pub(crate) fn of_reads_at(&self, at: SequenceNumber) -> Vec<(Arc<EmptyRange>, SequenceNumber)> {
        if !self.any() {
            return Vec::new();
        }
        let list = self.list.load();
        list.iter().filter_map(|range| Some((Arc::clone(range), range.empty_since(at)?))).collect()
    }
    /// `key` gets an entry that is no tombstone, or loses one.
    #[cold]
    pub(crate) fn note_write(&self, order: &UserComparator, key: &[u8], sequence: SequenceNumber) {
        for range in self.list.load().iter().filter(|range| range.holds(order, key)) {
            range.newest.fetch_max(sequence.0, Ordering::Relaxed);
        }
    }

    /// Watches what is written to `begin..end` after `last`, the last number that was given to a write. Under the log lock.
    pub(crate) fn watch(&self, begin: &[u8], end: &[u8], last: SequenceNumber) -> Arc<EmptyRange> {
        let _changing = self.changing.lock();
        let range = EmptyRange::new(begin, end, SequenceNumber(u64::MAX), last);
        let mut list = Vec::clone(&self.list.load());
        if list.len() == MOST {
            list.remove(0);
        }
        list.push(Arc::clone(&range));
        self.set(list);
        range
    }
    /// A read at `at` found nothing in what is watched.
    pub(crate) fn keep(&self, order: &UserComparator, watched: &Arc<EmptyRange>, at: SequenceNumber) {
        if watched.newest.load(Ordering::Relaxed) > at.0 {
            return self.forget(watched);
        }
        let _changing = self.changing.lock();
        watched.at.store(at.0, Ordering::Release);
        let is_within = |range: &EmptyRange| {
            order.compare(&watched.begin, &range.begin).is_le()
                && order.compare(&range.end, &watched.end).is_le()
        };
        let mut list = Vec::clone(&self.list.load());
        list.retain(|range| Arc::ptr_eq(range, watched) || !is_within(range));
        self.set(list);
    }
    /// Something is in it after all, or may be.
    pub(crate) fn forget(&self, watched: &Arc<EmptyRange>) {
        let _changing = self.changing.lock();
        let mut list = Vec::clone(&self.list.load());
        list.retain(|range| !Arc::ptr_eq(range, watched));
        self.set(list);
    }
    /// A read at `at`, the last number that was given to a write, found nothing in `begin..end`. Together with those that it
    /// overlaps or touches it is one. Under the log lock.
    pub(crate) fn add(&self, order: &UserComparator, begin: &[u8], end: &[u8], at: SequenceNumber) {
        let touching = |range: &&Arc<EmptyRange>| {
            range.empty_since(at).is_some()
                && order.compare(&range.begin, end).is_le()
                && order.compare(begin, &range.end).is_le()
        };
        let (mut whole_begin, mut whole_end) = (begin, end);
        let list = self.list.load_full();
        for range in list.iter().filter(touching) {
            if order.compare(&range.begin, whole_begin).is_lt() {
                whole_begin = &range.begin;
            }
            if order.compare(whole_end, &range.end).is_lt() {
                whole_end = &range.end;
            }
        }
        let range = self.watch(whole_begin, whole_end, at);
        self.keep(order, &range, at);
    }

    fn set(&self, list: Vec<Arc<EmptyRange>>) {
        self.any.store(!list.is_empty(), Ordering::Relaxed);
        self.list.store(Arc::new(list));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: UserComparator = UserComparator::Bytewise;

    fn shape(ranges: &EmptyRanges, at: u64) -> String {
        let text = |(range, since): &(Arc<EmptyRange>, SequenceNumber)| {
            format!("{}-{}@{}", range.begin.escape_ascii(), range.end.escape_ascii(), since.0)
        };
        let mut found: Vec<_> = ranges.of_reads_at(SequenceNumber(at)).iter().map(text).collect();
        found.sort();
        found.join(" ")
    }

    #[test]
    fn ranges_that_touch_are_one_and_writes_end_them() {
        let ranges = EmptyRanges::new();
        assert!(!ranges.any());
        ranges.add(&ORDER, b"b", b"d", SequenceNumber(10));
        ranges.add(&ORDER, b"m", b"p", SequenceNumber(11));
        assert_eq!((shape(&ranges, 10), shape(&ranges, 11)), ("b-d@10".into(), "b-d@10 m-p@11".into()));
        ranges.add(&ORDER, b"d", b"f", SequenceNumber(20));
        assert_eq!(shape(&ranges, 20), "b-f@20 m-p@11");
        ranges.note_write(&ORDER, b"f", SequenceNumber(21));
        ranges.note_write(&ORDER, b"a", SequenceNumber(22));
        assert_eq!(shape(&ranges, 22), "b-f@20 m-p@11", "nothing was written to them");
        ranges.note_write(&ORDER, b"b", SequenceNumber(23));
        assert_eq!(shape(&ranges, 23), "m-p@11");
        ranges.add(&ORDER, b"c", b"g", SequenceNumber(30));
        assert_eq!(shape(&ranges, 30), "c-g@30 m-p@11", "what is not empty does not become part of it");
    }

    #[test]
    fn what_is_watched_counts_once_it_was_found_empty() {
        let ranges = EmptyRanges::new();
        ranges.add(&ORDER, b"b", b"d", SequenceNumber(10));
        let watched = ranges.watch(b"b", b"f", SequenceNumber(15));
        assert_eq!(shape(&ranges, 100), "b-d@10");
        ranges.keep(&ORDER, &watched, SequenceNumber(15));
        assert_eq!((shape(&ranges, 14), shape(&ranges, 15)), (String::new(), "b-f@15".into()));
        let watched = ranges.watch(b"b", b"h", SequenceNumber(20));
        ranges.note_write(&ORDER, b"g", SequenceNumber(21));
        ranges.keep(&ORDER, &watched, SequenceNumber(20));
        assert_eq!(shape(&ranges, 30), "b-f@15", "it has a key by now");
        let watched = ranges.watch(b"x", b"y", SequenceNumber(20));
        ranges.forget(&watched);
        ranges.add(&ORDER, b"x", b"y", SequenceNumber(40));
        assert_eq!(shape(&ranges, 40), "b-f@15 x-y@40");
    }

    #[test]
    fn there_are_never_many() {
        let ranges = EmptyRanges::new();
        for number in 0..100u8 {
            ranges.add(&ORDER, &[number, 0], &[number, 9], SequenceNumber(u64::from(number) + 1));
        }
        assert_eq!(ranges.of_reads_at(SequenceNumber(100)).len(), MOST);
    }
}
