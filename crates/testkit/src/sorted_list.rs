//! A memtable's order as an application may keep it: for random runs.

use ironstone::{EntryId, MemTableEntries, MemTableRep, MemTableRepFactory, SearchKey};
use ironstone_base::sync::Mutex;

/// Entries in a sorted list.
#[derive(Default)]
struct SortedList(Mutex<Vec<EntryId>>);

impl MemTableRep for SortedList {
    fn insert(&self, entries: MemTableEntries<'_>, entry: EntryId) -> bool {
        let mut list = self.0.lock();
        let at = list.binary_search_by(|other| entries.compare(*other, entry));
        at.inspect_err(|at| list.insert(*at, entry)).is_err()
    }
    fn first(&self, _: MemTableEntries<'_>) -> Option<EntryId> {
        self.0.lock().first().copied()
    }
    fn last(&self, _: MemTableEntries<'_>) -> Option<EntryId> {
        self.0.lock().last().copied()
    }
    fn at_or_after(&self, entries: MemTableEntries<'_>, key: SearchKey<'_>) -> Option<EntryId> {
        let list = self.0.lock();
        list.get(list.partition_point(|entry| entries.compare_with(*entry, key).is_lt())).copied()
    }
    fn at_or_before(&self, entries: MemTableEntries<'_>, key: SearchKey<'_>) -> Option<EntryId> {
        let list = self.0.lock();
        list[..list.partition_point(|entry| entries.compare_with(*entry, key).is_le())].last().copied()
    }
    fn next(&self, entries: MemTableEntries<'_>, entry: EntryId) -> Option<EntryId> {
        let list = self.0.lock();
        list.get(list.partition_point(|other| entries.compare(*other, entry).is_le())).copied()
    }
    fn prev(&self, entries: MemTableEntries<'_>, entry: EntryId) -> Option<EntryId> {
        let list = self.0.lock();
        list[..list.partition_point(|other| entries.compare(*other, entry).is_lt())].last().copied()
    }
    fn memory_usage(&self) -> usize {
        self.0.lock().capacity() * size_of::<EntryId>()
    }
}

/// Makes memtables that a sorted list keeps in order.
pub struct SortedLists;

impl MemTableRepFactory for SortedLists {
    fn name(&self) -> &str {
        "testkit.SortedList"
    }
    fn create(&self) -> Box<dyn MemTableRep> {
        Box::new(SortedList::default())
    }
}
