//! Positions in a memtable, and the iterator over them.
//!
//! # Safety argument
//! 1. A [`Cursor`] holds the memtable (by reference or by `Arc`) that its entry is from, for as
//!    long as it lives, and never another one.

use crate::custom::{CustomTable, EntryId};
use crate::entry::{Entry, EntryKey, is_ordered};
use crate::radix_tree::Walk;
use crate::table::{MemTable, Order, out_of_order};
use crate::vector::Sorted;
use ironstone_base::perf::{self, PerfMetric};
use ironstone_base::prefix_seek::Direction;
use ironstone_base::{InternalKey, PrefixSeek, Result};
use ironstone_iter::InternalIterator;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// A place in a memtable.
pub(crate) struct Cursor<T> {
    table: T,
    /// The entry that the cursor stands on.
    entry: Option<NonNull<u8>>,
    walk: Walk,
    vector: VectorPlace,
    custom: CustomPlace,
}

// SAFETY: the address is of shared bytes that nobody changes, and `table` keeps them (1).
unsafe impl<T: Send> Send for Cursor<T> {}

/// The run that a cursor walks in a vector table, as it was at the last seek.
#[derive(Default)]
struct VectorPlace {
    sorted: Option<Arc<Sorted>>,
    index: usize,
}

impl VectorPlace {
    /// Index `index` is past the end, or before the start when it wrapped around.
    fn moved_to(&mut self, index: usize) -> Option<NonNull<u8>> {
        self.index = index;
        Some(self.sorted.as_ref()?.entry(index)?.address())
    }
    /// Moves by `step`, 1 or -1, and has the processor fetch what the same way comes to later.
    #[inline]
    fn moved_by(&mut self, step: isize) -> Option<NonNull<u8>> {
        let index = self.index.wrapping_add_signed(step);
        self.sorted.as_ref()?.prefetch(index.wrapping_add_signed(step * Sorted::AHEAD));
        self.moved_to(index)
    }
    fn start(&mut self, sorted: Arc<Sorted>, index: usize) -> Option<NonNull<u8>> {
        self.sorted = Some(sorted);
        self.moved_to(index)
    }
}

/// The number of the entry stood on in a table whose order an application keeps.
#[derive(Default)]
struct CustomPlace(Option<EntryId>);

impl CustomPlace {
    fn moved_to(&mut self, table: &CustomTable, entry: Option<EntryId>) -> Option<NonNull<u8>> {
        self.0 = entry;
        Some(table.entry(entry?)?.address())
    }
}

impl<T: Deref<Target = MemTable>> Cursor<T> {
    pub fn new(table: T) -> Self {
        Self {
            table,
            entry: None,
            walk: Walk::default(),
            vector: VectorPlace::default(),
            custom: CustomPlace::default(),
        }
    }

    /// The entry stood on.
    #[inline]
    pub fn entry(&self) -> Option<Entry<'_>> {
        // SAFETY: an entry of `table`, which `self` holds (1).
        self.entry.map(|address| unsafe { Entry::at(address) })
    }

    pub fn seek_to_first(&mut self) {
        self.entry = match self.table.order() {
            Order::RadixTree(tree) => tree.seek_to_first(&mut self.walk).map(Entry::address),
            Order::SkipList(list) => list.first().map(Entry::address),
            Order::Vector(vector) => self.vector.start(vector.sorted(self.table.user_comparator()), 0),
            Order::Custom(custom) => self.custom.moved_to(custom, custom.first(self.table.user_comparator())),
        };
    }

    pub fn seek_to_last(&mut self) {
        self.entry = match self.table.order() {
            Order::RadixTree(tree) => tree.seek_to_last(&mut self.walk).map(Entry::address),
            Order::SkipList(list) => list.last().map(Entry::address),
            Order::Vector(vector) => {
                let sorted = vector.sorted(self.table.user_comparator());
                let last = sorted.len().wrapping_sub(1);
                self.vector.start(sorted, last)
            }
            Order::Custom(custom) => self.custom.moved_to(custom, custom.last(self.table.user_comparator())),
        };
    }

    /// Moves to the first entry at or after `key`.
    pub fn seek(&mut self, key: EntryKey<'_>) {
        let user = self.table.user_comparator();
        self.entry = match self.table.order() {
            Order::RadixTree(tree) => tree.seek(&mut self.walk, key).map(Entry::address),
            Order::SkipList(list) => list.first_at_or_after(user, key).map(Entry::address),
            Order::Vector(vector) => {
                let sorted = vector.sorted(user);
                let index = sorted.lower_bound(user, key);
                self.vector.start(sorted, index)
            }
            Order::Custom(custom) => self.custom.moved_to(custom, custom.at_or_after(user, key)),
        };
    }

    /// Moves to the last entry at or before `key`.
    pub fn seek_for_prev(&mut self, key: EntryKey<'_>) {
        let user = self.table.user_comparator();
        self.entry = match self.table.order() {
            Order::RadixTree(tree) => tree.seek_for_prev(&mut self.walk, key).map(Entry::address),
            Order::SkipList(list) => list.last_at_or_before(user, key).map(Entry::address),
            Order::Vector(vector) => {
                let sorted = vector.sorted(user);
                let index = sorted.upper_bound(user, key).wrapping_sub(1);
                self.vector.start(sorted, index)
            }
            Order::Custom(custom) => self.custom.moved_to(custom, custom.at_or_before(user, key)),
        };
    }

    /// Moves to the next entry; stays nowhere if it stood nowhere.
    #[inline]
    pub fn next(&mut self) {
        let Some(address) = self.entry else { return };
        // SAFETY: an entry of `table`, which `self` holds (1).
        let entry = unsafe { Entry::at(address) };
        self.entry = match self.table.order() {
            Order::RadixTree(tree) => tree.next(&mut self.walk, entry).map(Entry::address),
            // SAFETY: the entry is of this table's list (1).
            Order::SkipList(list) => unsafe { list.next_of(entry) }.map(Entry::address),
            Order::Vector(_) => self.vector.moved_by(1),
            Order::Custom(custom) => {
                let next = self.custom.0.and_then(|at| custom.next(self.table.user_comparator(), at));
                self.custom.moved_to(custom, next)
            }
        };
    }

    /// Moves to the previous entry; stays nowhere if it stood nowhere.
    pub fn prev(&mut self) {
        let Some(address) = self.entry else { return };
        // SAFETY: as in `next`.
        let entry = unsafe { Entry::at(address) };
        let user = self.table.user_comparator();
        self.entry = match self.table.order() {
            Order::RadixTree(tree) => tree.prev(&mut self.walk, entry).map(Entry::address),
            Order::SkipList(list) => list.last_before(user, entry.key()).map(Entry::address),
            Order::Vector(_) => self.vector.moved_by(-1),
            Order::Custom(custom) => {
                let prev = self.custom.0.and_then(|at| custom.prev(user, at));
                self.custom.moved_to(custom, prev)
            }
        };
    }
}

impl<'a> Cursor<&'a MemTable> {
    pub fn table(&self) -> &'a MemTable {
        self.table
    }
    /// The entry stood on, for as long as the memtable is borrowed.
    pub fn entry_of_table(&self) -> Option<Entry<'a>> {
        // SAFETY: an entry of `table`, which is borrowed for 'a (1).
        self.entry.map(|address| unsafe { Entry::at(address) })
    }
}

/// Walks a memtable in internal-key order, both ways. A move fails only where an entry does not match its checksum. See [`MemTable::iter`].
pub struct MemTableIter {
    cursor: Cursor<Arc<MemTable>>,
    /// Of a table that updates in place: the value, as it was when the iterator came here.
    copy: Option<Vec<u8>>,
    /// When the Bloom filter may end a seek.
    prefix_seek: Option<Arc<PrefixSeek>>,
}

impl MemTableIter {
    pub(crate) fn new(table: Arc<MemTable>, prefix_seek: Option<Arc<PrefixSeek>>) -> Self {
        let copy = table.updates_in_place().then(Vec::new);
        Self { cursor: Cursor::new(table), copy, prefix_seek }
    }
    /// Whether nothing wanted is there: nothing at all, or by the Bloom filter. Then the iterator stands nowhere.
    fn is_ruled_out(&mut self, target: InternalKey<'_>, direction: Direction) -> Result<bool> {
        let table = &self.cursor.table;
        let is_out = table.is_untouched()
            || match &self.prefix_seek {
                Some(seek) => table.is_ruled_out(seek, target.user_key(), direction)?,
                None => false,
            };
        if is_out {
            self.cursor.entry = None;
        }
        Ok(is_out)
    }
    /// Whether a move ended on an entry; an error if that does not match its checksum.
    #[inline]
    fn arrived(&mut self) -> Result<bool> {
        if !self.cursor.table.is_plain()
            && let Some(entry) = self.cursor.entry()
        {
            self.cursor.table.check(entry, self.copy.as_mut())?;
        }
        Ok(self.cursor.entry.is_some())
    }
    /// As [`arrived`](Self::arrived), by a step from the entry `before`.
    #[inline]
    fn arrived_from(&mut self, before: Option<NonNull<u8>>, direction: Direction) -> Result<bool> {
        if !self.cursor.table.is_plain() {
            self.check_step(before, direction)?;
        }
        self.arrived()
    }
    #[inline(never)]
    fn check_step(&self, before: Option<NonNull<u8>>, direction: Direction) -> Result<()> {
        let table = &self.cursor.table;
        let (true, Some(before), Some(here)) = (table.checks_order(), before, self.cursor.entry()) else {
            return Ok(());
        };
        // SAFETY: an entry of the table that the cursor holds (1).
        let before = unsafe { Entry::at(before) };
        let (first, second) = if direction == Direction::Forward { (before, here) } else { (here, before) };
        match is_ordered(table.user_comparator(), first, second) {
            true => Ok(()),
            false => Err(out_of_order(here.key().sequence())),
        }
    }
    /// An error if something on the way to `target` is not as it should be, where that is looked at.
    fn check_way(&mut self, target: InternalKey<'_>) -> Result<()> {
        match self.cursor.table.is_plain() {
            true => Ok(()),
            false => self.cursor.table.check_way(EntryKey::new(target)),
        }
    }
    #[inline]
    fn entry(&self) -> Entry<'_> {
        self.cursor.entry().expect("key and value are asked of a valid iterator")
    }
}

impl InternalIterator for MemTableIter {
    #[inline]
    fn valid(&self) -> bool {
        self.cursor.entry.is_some()
    }
    fn seek_to_first(&mut self) -> Result<bool> {
        self.cursor.seek_to_first();
        self.arrived()
    }
    fn seek_to_last(&mut self) -> Result<bool> {
        self.cursor.seek_to_last();
        self.arrived()
    }
    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool> {
        perf::count(PerfMetric::SeekOnMemtableCount, 1);
        if self.is_ruled_out(target, Direction::Forward)? {
            return Ok(false);
        }
        self.check_way(target)?;
        self.cursor.seek(EntryKey::new(target));
        self.arrived()
    }
    fn seek_for_prev(&mut self, target: InternalKey<'_>) -> Result<bool> {
        perf::count(PerfMetric::SeekOnMemtableCount, 1);
        if self.is_ruled_out(target, Direction::Backward)? {
            return Ok(false);
        }
        self.check_way(target)?;
        self.cursor.seek_for_prev(EntryKey::new(target));
        self.arrived()
    }
    #[inline]
    fn next(&mut self) -> Result<bool> {
        perf::count(PerfMetric::NextOnMemtableCount, 1);
        let before = self.cursor.entry;
        self.cursor.next();
        self.arrived_from(before, Direction::Forward)
    }
    fn prev(&mut self) -> Result<bool> {
        perf::count(PerfMetric::PrevOnMemtableCount, 1);
        let before = self.cursor.entry;
        self.cursor.prev();
        self.arrived_from(before, Direction::Backward)
    }
    #[inline]
    fn key(&self) -> InternalKey<'_> {
        InternalKey::from_bytes(self.entry().internal_key()).expect("every entry has a trailer")
    }
    #[inline]
    fn value(&self) -> &[u8] {
        match &self.copy {
            None => self.cursor.table.value_of(self.entry()),
            Some(copy) => copy,
        }
    }
}
