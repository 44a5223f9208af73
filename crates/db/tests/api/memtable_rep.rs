//! Memtables whose order the application keeps (`memtable_rep`).

use crate::disk::{Disk, all, backward, get, get_with, here};
use ironstone::{EntryId, MemTableEntries, MemTableRep, MemTableRepFactory, ReadOptions, SearchKey};
use ironstone_base::sync::Mutex;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// User keys, the newest write of each first. For the bytewise order.
type Key = (Vec<u8>, Reverse<u64>);

/// Keeps entries in a map of its own keys.
struct Map {
    entries: Mutex<BTreeMap<Key, EntryId>>,
    inserted: Arc<AtomicUsize>,
    sealed: Arc<AtomicUsize>,
}

impl Map {
    fn find<R: std::ops::RangeBounds<Key>>(&self, range: R, last: bool) -> Option<EntryId> {
        let entries = self.entries.lock();
        let mut range = entries.range(range);
        let found = if last { range.next_back() } else { range.next() };
        found.map(|(_, id)| *id)
    }
}

fn key_of(entries: MemTableEntries<'_>, entry: EntryId) -> Key {
    (entries.user_key(entry).to_vec(), Reverse(entries.sequence(entry).0))
}
fn key_of_search(key: SearchKey<'_>) -> Key {
    (key.user_key().to_vec(), Reverse(key.sequence().0))
}

impl MemTableRep for Map {
    fn insert(&self, entries: MemTableEntries<'_>, entry: EntryId) -> bool {
        let mut map = self.entries.lock();
        let key = key_of(entries, entry);
        let is_new = !map.contains_key(&key);
        map.entry(key).or_insert(entry);
        self.inserted.fetch_add(usize::from(is_new), Ordering::Relaxed);
        is_new
    }
    fn first(&self, _: MemTableEntries<'_>) -> Option<EntryId> {
        self.find(.., false)
    }
    fn last(&self, _: MemTableEntries<'_>) -> Option<EntryId> {
        self.find(.., true)
    }
    fn at_or_after(&self, _: MemTableEntries<'_>, key: SearchKey<'_>) -> Option<EntryId> {
        self.find(key_of_search(key).., false)
    }
    fn at_or_before(&self, entries: MemTableEntries<'_>, key: SearchKey<'_>) -> Option<EntryId> {
        let found = self.find(..=key_of_search(key), true)?;
        match entries.compare_with(found, key).is_le() {
            true => Some(found),
            false => self.prev(entries, found), // The same write, looked for under a type that comes before its own.
        }
    }
    fn next(&self, entries: MemTableEntries<'_>, entry: EntryId) -> Option<EntryId> {
        self.find((Bound::Excluded(key_of(entries, entry)), Bound::Unbounded), false)
    }
    fn prev(&self, entries: MemTableEntries<'_>, entry: EntryId) -> Option<EntryId> {
        self.find(..key_of(entries, entry), true)
    }
    fn mark_read_only(&self, _: MemTableEntries<'_>) {
        self.sealed.fetch_add(1, Ordering::Relaxed);
    }
    fn memory_usage(&self) -> usize {
        64 * self.entries.lock().len()
    }
}

#[derive(Default)]
struct Maps {
    inserted: Arc<AtomicUsize>,
    sealed: Arc<AtomicUsize>,
}

impl MemTableRepFactory for Maps {
    fn name(&self) -> &str {
        "test.Map"
    }
    fn create(&self) -> Box<dyn MemTableRep> {
        let (inserted, sealed) = (Arc::clone(&self.inserted), Arc::clone(&self.sealed));
        Box::new(Map { entries: Mutex::default(), inserted, sealed })
    }
}

#[test]
fn a_database_works_with_memtables_of_the_application() {
    let (disk, maps) = (Disk::new(), Arc::new(Maps::default()));
    let mut options = disk.options();
    options.cf.memtable_rep = Some(Arc::clone(&maps) as Arc<dyn MemTableRepFactory>);
    let db = disk.open_with(&options);
    for number in [3, 1, 2, 5, 4] {
        db.put(format!("key{number}"), format!("{number}")).unwrap();
    }
    let snapshot = db.snapshot();
    db.put("key2", "two").unwrap();
    db.delete("key4").unwrap();
    assert_eq!(maps.inserted.load(Ordering::Relaxed), 7);
    let check = |db: &ironstone::Db| {
        assert_eq!(all(db), "key1=1 key2=two key3=3 key5=5");
        assert_eq!(backward(db.iter().unwrap()), "key5=5 key3=3 key2=two key1=1");
        assert_eq!((get(db, "key2"), get(db, "key4")), ("two".to_owned(), "-".to_owned()));
        let mut iter = db.iter().unwrap();
        assert!(iter.seek_for_prev("key4").unwrap());
        assert_eq!(here(&iter), "key3=3");
        assert!(iter.seek("key4").unwrap());
        assert_eq!(here(&iter), "key5=5");
    };
    check(&db);
    let at = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
    assert_eq!(get_with(&db, &at, db.default_column_family(), "key2"), "2");
    drop(at);
    db.flush().unwrap();
    assert!(maps.sealed.load(Ordering::Relaxed) >= 1);
    check(&db);
    db.put("key6", "in the log").unwrap();
    db.close().unwrap();
    drop(db);
    let before = maps.inserted.load(Ordering::Relaxed);
    let db = disk.open_with(&options); // Replays the log into one of them.
    assert_eq!(get(&db, "key6"), "in the log");
    assert!(maps.inserted.load(Ordering::Relaxed) > before);
}
