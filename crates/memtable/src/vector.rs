//! The vector kind: entries in the order of arrival, sorted when somebody looks.
//!
//! Writers append to one of a few shards under its lock. The first reader after a write takes what
//! the shards hold and sorts it together with what was sorted before; after
//! [`VectorTable::mark_read_only`] nobody waits for anybody.
//!
//! # Safety argument
//! 1. Slots are made from entries of this table's arena, after these were written, and go from
//!    thread to thread through a lock or a `OnceLock`.
//! 2. The arena lives as long as the table, and a slot's entry is only shown to borrowers of the
//!    table.

use crate::arena::Arena;
use crate::entry::{Entry, EntryKey, encoded_len, find_damaged, newest_first, shared_len};
use crate::prefetch::{CACHE_LINE, prefetch};
use ironstone_base::UserComparator;
use ironstone_base::perf;
use ironstone_base::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use ironstone_base::sync::{Arc, Mutex, OnceLock};
use std::cmp::Ordering;
use std::ptr::NonNull;

const SHARDS: usize = 8;

pub(crate) struct VectorTable {
    arena: Arena,
    shards: [Shard; SHARDS],
    /// Set after a shard got an entry, cleared before the shards are emptied: a reader that finds
    /// it clear misses nothing that was added before.
    unsorted: AtomicBool,
    sorted: Mutex<Arc<Sorted>>,
    read_only: OnceLock<Arc<Sorted>>,
}

#[repr(align(64))]
#[derive(Default)]
struct Shard(Mutex<Vec<Slot>>);

/// Entries in order.
#[derive(Default)]
pub(crate) struct Sorted {
    /// How many bytes all user keys share. Prefixes are taken from there on.
    shared: usize,
    slots: Vec<Slot>,
}

#[derive(Clone, Copy)]
struct Slot {
    prefix: u64,
    entry: NonNull<u8>,
}

// SAFETY: an address of shared bytes that nobody changes (1).
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    fn entry<'a>(&self) -> Entry<'a> {
        // SAFETY: written (1); callers show it to borrowers of the table only (2).
        unsafe { Entry::at(self.entry) }
    }
    #[inline]
    fn compare(&self, user: &UserComparator, prefix: u64, key: EntryKey<'_>) -> Ordering {
        self.prefix.cmp(&prefix).then_with(|| {
            let own = self.entry().key();
            user.compare(own.user_key, key.user_key).then_with(|| newest_first(own.trailer, key.trailer))
        })
    }
    /// The order of writes: equal for two with the same user key and sequence number.
    #[inline]
    fn compare_write(&self, user: &UserComparator, other: &Slot) -> Ordering {
        self.prefix.cmp(&other.prefix).then_with(|| {
            let (own, other) = (self.entry().key(), other.entry().key());
            user.compare(own.user_key, other.user_key).then_with(|| other.sequence().cmp(&own.sequence()))
        })
    }
}

impl VectorTable {
    pub fn new(arena: Arena) -> Self {
        Self {
            arena,
            shards: Default::default(),
            unsorted: AtomicBool::new(false),
            sorted: Mutex::default(),
            read_only: OnceLock::new(),
        }
    }

    /// Appends an entry.
    pub fn insert(&self, key: EntryKey<'_>, value: &[u8]) {
        let to = self.arena.allocate_one_of_many(encoded_len(key.user_key, value)).pointer;
        // SAFETY: the piece is ours alone and large enough; the entry goes no further than (2).
        let entry = unsafe { Entry::write(to, key, value) };
        self.shards[shard_of_thread()].0.lock().push(Slot { prefix: 0, entry: entry.address() });
        if !self.unsorted.load(Relaxed) {
            self.unsorted.store(true, Release);
        }
    }

    /// Everything added so far, in order.
    pub fn sorted(&self, user: &UserComparator) -> Arc<Sorted> {
        if let Some(sorted) = self.read_only.get() {
            return Arc::clone(sorted);
        }
        let mut sorted = self.sorted.lock();
        if self.unsorted.swap(false, AcqRel) {
            let mut slots = sorted.slots.clone();
            for shard in &self.shards {
                slots.append(&mut shard.0.lock());
            }
            *sorted = Arc::new(Sorted::new(user, slots));
        }
        Arc::clone(&sorted)
    }

    /// Sorts for good. Entries added later stay unseen.
    pub fn mark_read_only(&self, user: &UserComparator) {
        let sorted = self.sorted(user);
        self.read_only.get_or_init(|| sorted);
    }

    /// The first entry at or after `key`.
    pub fn first_at_or_after(&self, user: &UserComparator, key: EntryKey<'_>) -> Option<Entry<'_>> {
        if let Some(sorted) = self.read_only.get() {
            return sorted.entry(sorted.lower_bound(user, key));
        }
        let sorted = self.sorted(user);
        sorted.entry(sorted.lower_bound(user, key))
    }

    /// Looks at the entries on both sides of where a search for `key` ends. Answers one that does not stand behind the one
    /// before it, or that `is_good` denies.
    pub fn find_damage<'a>(
        &'a self,
        user: &UserComparator,
        key: EntryKey<'_>,
        is_good: impl Fn(Entry<'a>) -> bool,
    ) -> Option<Entry<'a>> {
        let sorted = self.sorted(user);
        let at = sorted.lower_bound(user, key);
        let around = [at.wrapping_sub(2), at.wrapping_sub(1), at, at + 1];
        let around: Vec<_> = around.into_iter().filter_map(|index| sorted.entry(index)).collect();
        find_damaged(user, &around, is_good)
    }

    /// How many entries come before `key`.
    pub fn rank(&self, user: &UserComparator, key: EntryKey<'_>) -> u64 {
        self.sorted(user).lower_bound(user, key) as u64
    }

    /// With so many `entries`. Takes no lock: it is asked after every write.
    pub fn memory_usage(&self, entries: u64) -> usize {
        size_of::<Self>() + self.arena.memory_usage() + entries as usize * size_of::<Slot>()
    }
}

impl Sorted {
    /// How many entries ahead of a walk memory is asked for.
    pub const AHEAD: isize = 8;

    /// Sorts `slots`, and drops all but the first of repeated writes.
    fn new(user: &UserComparator, mut slots: Vec<Slot>) -> Self {
        let shared = shared_by_all(&slots);
        for slot in &mut slots {
            slot.prefix = user.order_prefix(&slot.entry().user_key()[shared..]);
        }
        // Stable, which keeps the first of repeated writes first; quick where a run is sorted already.
        slots.sort_by(|a, b| a.compare_write(user, b));
        slots.dedup_by(|later, first| first.compare_write(user, later).is_eq());
        Self { shared, slots }
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }
    /// The entry at `index`, if there is one. Only for borrowers of the table (2).
    pub fn entry<'a>(&self, index: usize) -> Option<Entry<'a>> {
        self.slots.get(index).map(Slot::entry)
    }
    /// Asks for the memory of the entry at `index`, if there is one: neighbours in order are far apart in memory.
    #[inline]
    pub fn prefetch(&self, index: usize) {
        if let Some(slot) = self.slots.get(index) {
            prefetch(slot.entry, 2 * CACHE_LINE);
        }
    }
    /// The index of the first entry at or after `key`.
    pub fn lower_bound(&self, user: &UserComparator, key: EntryKey<'_>) -> usize {
        self.partition(user, key, Ordering::is_lt)
    }
    /// The index behind the last entry at or before `key`.
    pub fn upper_bound(&self, user: &UserComparator, key: EntryKey<'_>) -> usize {
        self.partition(user, key, Ordering::is_le)
    }

    /// The index of the first entry whose order relative to `key` is not `before`.
    fn partition(&self, user: &UserComparator, key: EntryKey<'_>, before: fn(Ordering) -> bool) -> usize {
        let Some(first) = self.entry(0) else { return 0 };
        perf::count_search(self.len(), 0);
        let start = &first.user_key()[..self.shared];
        if let Some(rest) = key.user_key.strip_prefix(start) {
            let prefix = user.order_prefix(rest);
            return self.slots.partition_point(|slot| before(slot.compare(user, prefix, key)));
        }
        // The prefixes say nothing about a key that starts in another way than all of them.
        self.slots.partition_point(|slot| before(slot.compare(user, slot.prefix, key)))
    }
}

/// How many leading bytes all user keys share.
fn shared_by_all(slots: &[Slot]) -> usize {
    let Some(first) = slots.first() else { return 0 };
    let first = first.entry().user_key();
    slots.iter().fold(first.len(), |shared, slot| shared_len(&first[..shared], slot.entry().user_key()))
}

/// Spreads threads over the shards.
fn shard_of_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static SHARD: usize = THREADS.fetch_add(1, Relaxed) % SHARDS);
    SHARD.with(|shard| *shard)
}
