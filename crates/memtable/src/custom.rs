//! Memtables whose order an application keeps.
//!
//! # Safety argument
//! 1. An address is put into `addresses` after its entry was written to this table's arena, and is read with Acquire from where
//!    it was stored with Release. It never changes afterwards.
//! 2. The arena lives as long as the table, and entries are shown to borrowers of the table only.
//!
//! The application has numbers, never addresses, so whatever it does with them no byte is read that is none of an entry's.

use crate::arena::Arena;
use crate::entry::{Entry, EntryKey, encoded_len, find_damaged, newest_first};
use ironstone_base::sync::OnceLock;
use ironstone_base::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};
use ironstone_base::{SequenceNumber, UserComparator};
use std::cmp::Ordering;
use std::fmt;
use std::ptr::{NonNull, null_mut};

/// Keeps the entries of one memtable in order, in a way of its own (RocksDB: `MemTableRep`). It is given numbers of entries, and
/// looks at their keys through [`MemTableEntries`].
///
/// All calls may come from several threads at once. An entry must be found from when [`insert`](Self::insert) has returned on, and
/// for good. What a structure that gets its order wrong makes of reads is undefined, but no memory is read that is not an entry's.
///
/// ```
/// use ironstone_memtable::{EntryId, MemTableEntries, MemTableRep, SearchKey};
/// use std::sync::RwLock;
///
/// /// A sorted list: quick to read, slow to fill.
/// struct SortedList(RwLock<Vec<EntryId>>);
///
/// impl MemTableRep for SortedList {
///     fn insert(&self, entries: MemTableEntries<'_>, entry: EntryId) -> bool {
///         let mut list = self.0.write().unwrap();
///         match list.binary_search_by(|other| entries.compare(*other, entry)) {
///             Ok(_) => false,
///             Err(at) => {
///                 list.insert(at, entry);
///                 true
///             }
///         }
///     }
///     fn first(&self, _: MemTableEntries<'_>) -> Option<EntryId> {
///         self.0.read().unwrap().first().copied()
///     }
///     fn last(&self, _: MemTableEntries<'_>) -> Option<EntryId> {
///         self.0.read().unwrap().last().copied()
///     }
///     fn at_or_after(&self, entries: MemTableEntries<'_>, key: SearchKey<'_>) -> Option<EntryId> {
///         let list = self.0.read().unwrap();
///         list.get(list.partition_point(|entry| entries.compare_with(*entry, key).is_lt())).copied()
///     }
///     fn at_or_before(&self, entries: MemTableEntries<'_>, key: SearchKey<'_>) -> Option<EntryId> {
///         let list = self.0.read().unwrap();
///         let end = list.partition_point(|entry| entries.compare_with(*entry, key).is_le());
///         list[..end].last().copied()
///     }
///     fn next(&self, entries: MemTableEntries<'_>, entry: EntryId) -> Option<EntryId> {
///         let list = self.0.read().unwrap();
///         list.get(list.partition_point(|other| entries.compare(*other, entry).is_le())).copied()
///     }
///     fn prev(&self, entries: MemTableEntries<'_>, entry: EntryId) -> Option<EntryId> {
///         let list = self.0.read().unwrap();
///         list[..list.partition_point(|other| entries.compare(*other, entry).is_lt())].last().copied()
///     }
///     fn memory_usage(&self) -> usize {
///         self.0.read().unwrap().capacity() * size_of::<EntryId>()
///     }
/// }
/// ```
pub trait MemTableRep: Send + Sync {
    /// Takes up an entry. `false`, and nothing is done, if one is there that [compares](MemTableEntries::compare) equal.
    fn insert(&self, entries: MemTableEntries<'_>, entry: EntryId) -> bool;
    /// The first entry.
    fn first(&self, entries: MemTableEntries<'_>) -> Option<EntryId>;
    /// The last entry.
    fn last(&self, entries: MemTableEntries<'_>) -> Option<EntryId>;
    /// The first entry that is equal to `key` or comes after it.
    fn at_or_after(&self, entries: MemTableEntries<'_>, key: SearchKey<'_>) -> Option<EntryId>;
    /// The last entry that is equal to `key` or comes before it.
    fn at_or_before(&self, entries: MemTableEntries<'_>, key: SearchKey<'_>) -> Option<EntryId>;
    /// The entry after `entry`.
    fn next(&self, entries: MemTableEntries<'_>, entry: EntryId) -> Option<EntryId>;
    /// The entry before `entry`.
    fn prev(&self, entries: MemTableEntries<'_>, entry: EntryId) -> Option<EntryId>;
    /// No entry comes any more.
    fn mark_read_only(&self, _entries: MemTableEntries<'_>) {}
    /// Bytes of its own, entries not counted. Asked after every write.
    fn memory_usage(&self) -> usize;
}

/// Makes a [`MemTableRep`] for each new memtable of a column family.
pub trait MemTableRepFactory: Send + Sync {
    /// For messages.
    fn name(&self) -> &str;
    /// An empty one.
    fn create(&self) -> Box<dyn MemTableRep>;
}

impl fmt::Debug for dyn MemTableRepFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The number of an entry of one memtable. Numbers are given out from 0 on, in the order of arrival.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EntryId(u32);

impl EntryId {
    /// As a number.
    pub fn to_index(self) -> usize {
        self.0 as usize
    }
}

/// What is searched for: a user key, and the sequence number up to which entries are seen.
#[derive(Clone, Copy)]
pub struct SearchKey<'a>(pub(crate) EntryKey<'a>);

impl<'a> SearchKey<'a> {
    /// The user key.
    pub fn user_key(self) -> &'a [u8] {
        self.0.user_key
    }
    /// Entries of the user key above it come before.
    pub fn sequence(self) -> SequenceNumber {
        self.0.sequence()
    }
}

/// The keys of a memtable's entries, in the order of its column family: user keys as its comparator says, newest first.
#[derive(Clone, Copy)]
pub struct MemTableEntries<'a> {
    table: &'a CustomTable,
    user: &'a UserComparator,
}

impl<'a> MemTableEntries<'a> {
    fn entry(&self, id: EntryId) -> Entry<'a> {
        self.table.entry(id).expect("a number that `insert` was called with")
    }
    /// The user key of `entry`. Panics, as all of these, if no entry has that number.
    pub fn user_key(&self, entry: EntryId) -> &'a [u8] {
        self.entry(entry).user_key()
    }
    /// When it was written.
    pub fn sequence(&self, entry: EntryId) -> SequenceNumber {
        self.entry(entry).key().sequence()
    }
    /// The order of two entries. Equal: the same write of the same user key.
    pub fn compare(&self, a: EntryId, b: EntryId) -> Ordering {
        let (a, b) = (self.entry(a).key(), self.entry(b).key());
        self.user.compare(a.user_key, b.user_key).then_with(|| b.sequence().cmp(&a.sequence()))
    }
    /// The order of an entry and what is searched for.
    pub fn compare_with(&self, entry: EntryId, key: SearchKey<'_>) -> Ordering {
        let (own, key) = (self.entry(entry).key(), key.0);
        self.user.compare(own.user_key, key.user_key).then_with(|| newest_first(own.trailer, key.trailer))
    }
}

/// Chunk i has room for `FIRST_CHUNK << i` addresses.
const FIRST_CHUNK: u32 = 1024;
const CHUNKS: usize = 22;

/// A memtable with a [`MemTableRep`].
pub(crate) struct CustomTable {
    arena: Arena,
    /// Of the entries, by number. Null: not there yet.
    addresses: [OnceLock<Box<[AtomicPtr<u8>]>>; CHUNKS],
    count: AtomicU32,
    rep: Box<dyn MemTableRep>,
}

fn place_of(id: EntryId) -> (usize, usize) {
    let chunk = (id.0 / FIRST_CHUNK + 1).ilog2();
    (chunk as usize, (id.0 - FIRST_CHUNK * ((1 << chunk) - 1)) as usize)
}

impl CustomTable {
    pub fn new(arena: Arena, rep: Box<dyn MemTableRep>) -> Self {
        Self { arena, addresses: [const { OnceLock::new() }; CHUNKS], count: AtomicU32::new(0), rep }
    }

    fn view<'a>(&'a self, user: &'a UserComparator) -> MemTableEntries<'a> {
        MemTableEntries { table: self, user }
    }

    /// The entry of a number, if there is one.
    pub fn entry(&self, id: EntryId) -> Option<Entry<'_>> {
        let (chunk, at) = place_of(id);
        let address = self.addresses.get(chunk)?.get()?.get(at)?.load(Acquire);
        // SAFETY: an entry of our arena (1), for a borrower of the table (2).
        NonNull::new(address).map(|address| unsafe { Entry::at(address) })
    }

    /// Adds an entry, unless the same write is there.
    ///
    /// # Panics
    /// After 4 billion entries.
    pub fn insert(&self, user: &UserComparator, key: EntryKey<'_>, value: &[u8]) -> bool {
        let to = self.arena.allocate(encoded_len(key.user_key, value)).pointer;
        // SAFETY: the piece is ours alone and large enough; the entry goes no further than (2).
        let entry = unsafe { Entry::write(to, key, value) };
        let id = EntryId(self.count.fetch_add(1, Relaxed)); // Only gives out numbers.
        let (chunk, at) = place_of(id);
        let places = self.addresses.get(chunk).expect("a memtable of less than 4 billion entries");
        let places = places.get_or_init(|| {
            let room = (FIRST_CHUNK as usize) << chunk;
            (0..room).map(|_| AtomicPtr::new(null_mut())).collect()
        });
        places[at].store(entry.address().as_ptr(), Release);
        self.rep.insert(self.view(user), id)
    }

    pub fn first(&self, user: &UserComparator) -> Option<EntryId> {
        self.rep.first(self.view(user))
    }
    pub fn last(&self, user: &UserComparator) -> Option<EntryId> {
        self.rep.last(self.view(user))
    }
    pub fn at_or_after(&self, user: &UserComparator, key: EntryKey<'_>) -> Option<EntryId> {
        self.rep.at_or_after(self.view(user), SearchKey(key))
    }
    pub fn at_or_before(&self, user: &UserComparator, key: EntryKey<'_>) -> Option<EntryId> {
        self.rep.at_or_before(self.view(user), SearchKey(key))
    }
    pub fn next(&self, user: &UserComparator, entry: EntryId) -> Option<EntryId> {
        self.rep.next(self.view(user), entry)
    }
    pub fn prev(&self, user: &UserComparator, entry: EntryId) -> Option<EntryId> {
        self.rep.prev(self.view(user), entry)
    }
    /// The first entry at or after `key`.
    pub fn first_at_or_after(&self, user: &UserComparator, key: EntryKey<'_>) -> Option<Entry<'_>> {
        self.entry(self.at_or_after(user, key)?)
    }

    pub fn mark_read_only(&self, user: &UserComparator) {
        self.rep.mark_read_only(self.view(user));
    }

    /// Looks at the entries on both sides of where a search for `key` ends. Answers one that does not stand behind the one
    /// before it, or that `is_good` denies.
    pub fn find_damage<'a>(
        &'a self,
        user: &UserComparator,
        key: EntryKey<'_>,
        is_good: impl Fn(Entry<'a>) -> bool,
    ) -> Option<Entry<'a>> {
        let at = self.at_or_after(user, key);
        let before = match at {
            Some(at) => self.prev(user, at),
            None => self.last(user),
        };
        let after = at.and_then(|at| self.next(user, at));
        let around: Vec<_> =
            [before, at, after].into_iter().flatten().filter_map(|id| self.entry(id)).collect();
        find_damaged(user, &around, is_good)
    }

    /// How many entries come before `key`: they are counted.
    pub fn rank(&self, user: &UserComparator, key: EntryKey<'_>) -> u64 {
        let view = self.view(user);
        let comes_before = |id: &EntryId| view.compare_with(*id, SearchKey(key)).is_lt();
        std::iter::successors(self.first(user), |id| self.next(user, *id)).take_while(comes_before).count()
            as u64
    }

    pub fn memory_usage(&self) -> usize {
        let (chunk, at) = place_of(EntryId(self.count.load(Relaxed)));
        let places = (FIRST_CHUNK as usize) * ((1 << chunk) - 1)
            + if at > 0 { (FIRST_CHUNK as usize) << chunk } else { 0 };
        size_of::<Self>()
            + self.arena.memory_usage()
            + places * size_of::<AtomicPtr<u8>>()
            + self.rep.memory_usage()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_places_one_after_the_other() {
        let mut expected = (0, 0);
        for id in 0..40_000 {
            assert_eq!(place_of(EntryId(id)), expected, "{id}");
            expected.1 += 1;
            if expected.1 == (FIRST_CHUNK as usize) << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        let last = FIRST_CHUNK * ((1 << CHUNKS) - 1) - 1;
        assert_eq!(place_of(EntryId(last)), (CHUNKS - 1, ((FIRST_CHUNK as usize) << (CHUNKS - 1)) - 1));
        assert_eq!(place_of(EntryId(last + 1)).0, CHUNKS, "for which there is no room");
    }
}
