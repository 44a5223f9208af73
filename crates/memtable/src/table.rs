//! The memtable: one face for all kinds.
//!
//! # Safety argument
//! 1. Every byte that an [`Entry`] shows belongs to the arena inside the [`MemTable`], which never
//!    frees, moves or changes it while the memtable lives. So whoever keeps the memtable alive (by
//!    reference or by `Arc`) may keep the bytes. Of tables that update in place, only copies are shown.

use crate::arena::{Arena, BlockPool};
use crate::bloom::{Bloom, MemTableBloom};
use crate::custom::{CustomTable, MemTableRepFactory};
use crate::entry::{Entry, EntryKey, MAX_LEN};
use crate::in_place::{self, InPlace};
use crate::iterator::{Cursor, MemTableIter};
use crate::radix_tree::RadixTree;
use crate::range_tombstones::{RangeTombstones, protection_of};
use crate::skip_list::{SkipList, Splice};
use crate::vector::VectorTable;
use ironstone_base::internal_key::{SequenceNumber, TRAILER_LEN, ValueType, pack_trailer};
use ironstone_base::perf::{self, PerfMetric};
use ironstone_base::prefix_seek::Direction;
use ironstone_base::protection::planted::{self, Place};
use ironstone_base::protection::{Protection, changed_in_memory};
use ironstone_base::sync::atomic::{AtomicU64, Ordering::*};
use ironstone_base::sync::{CachePadded, MutexGuard};
use ironstone_base::{
    Error, FragmentedTombstones, InternalKeyComparator, PrefixSeek, RangeTombstone, Result, UserComparator,
};
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// How a memtable keeps its entries in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MemTableKind {
    /// A radix tree: the fastest to read and to fill in any order, for the two bytewise
    /// comparators. With others, and with write buffers of more than 4 GiB, a memtable that is made
    /// with this kind is a [`SkipList`](Self::SkipList).
    #[default]
    RadixTree,
    /// A skip list: any comparator, any number of writers, always sorted.
    SkipList,
    /// Unsorted until read: the fastest to fill, slow when reads and writes alternate.
    Vector,
    /// RocksDB's hash table of skip lists, one for each prefix. A name and its parameters, for OPTIONS files: a memtable that is
    /// made with it is a [`RadixTree`](Self::RadixTree), which is quick with a prefix and without.
    HashSkipList {
        /// Of the hash table.
        bucket_count: usize,
        /// Of a skip list.
        skiplist_height: i32,
        /// Of a skip list.
        branching_factor: i32,
    },
    /// RocksDB's hash table of lists. A name and its parameters, as [`HashSkipList`](Self::HashSkipList) is.
    HashLinkList {
        /// Of the hash table.
        bucket_count: usize,
        /// How many entries make a list a skip list.
        threshold: u32,
        /// Of the hash table's memory.
        huge_page_size: usize,
        /// How many entries of a list are worth a line in LOG.
        logging_threshold: i32,
        /// Whether LOG is told at a flush how long the lists were.
        log_when_flash: bool,
    },
}

impl MemTableKind {
    /// With RocksDB's defaults.
    pub const HASH_SKIP_LIST: Self =
        Self::HashSkipList { bucket_count: 1_000_000, skiplist_height: 4, branching_factor: 4 };
    /// With RocksDB's defaults.
    pub const HASH_LINK_LIST: Self = Self::HashLinkList {
        bucket_count: 50_000,
        threshold: 256,
        huge_page_size: 0,
        logging_threshold: 4096,
        log_when_flash: true,
    };

    /// What stands for it here.
    fn built(self) -> Self {
        match self {
            Self::HashSkipList { .. } | Self::HashLinkList { .. } => Self::RadixTree,
            kind => kind,
        }
    }
}

/// What a memtable is made for.
#[derive(Clone)]
pub struct MemTableOptions {
    /// How large it is expected to become, in bytes. A hint: nothing stops it from growing further.
    pub write_buffer_size: usize,
    /// Whether to ask the system for huge pages once it has grown. They come whole, used or not.
    pub huge_pages: bool,
    /// Its Bloom filter; none: no filter. Not for comparators to which keys of different bytes may be equal.
    pub bloom: Option<MemTableBloom>,
    /// Bytes of checksum that each entry carries and every read of it compares: 0, 1, 2, 4 or 8. With any, a
    /// range tombstone has 8, and so has each of the fragments that they are cut into.
    pub protection_bytes: u8,
    /// Values are overwritten by values that are not longer, under so many locks; `None`: each write is an entry of its
    /// own. The locks are no part of [`MemTable::memory_usage`].
    pub in_place_locks: Option<usize>,
    /// Reads compare the order of the entries that they pass, and answer `Corruption` where it is not kept.
    pub check_order: bool,
    /// Searches compare every entry that they pass with its checksum, and not only those that they show.
    pub check_on_seek: bool,
    /// Makes what keeps the entries in order, whatever the kind is.
    pub rep: Option<Arc<dyn MemTableRepFactory>>,
    /// Where its memory comes from and goes back to.
    pub pool: Arc<BlockPool>,
}

impl Default for MemTableOptions {
    fn default() -> Self {
        Self {
            write_buffer_size: 64 << 20,
            huge_pages: false,
            bloom: None,
            protection_bytes: 0,
            in_place_locks: None,
            check_order: false,
            check_on_seek: false,
            rep: None,
            pool: BlockPool::new(),
        }
    }
}

/// A sorted table in memory. Any number of threads may write and read at the same time, and no
/// reader waits for a writer (except with [`MemTableKind::Vector`] while it is written).
///
/// A write is visible to every read that starts after it returned; a read that runs meanwhile may
/// or may not see it. What makes a write visible to users is the sequence number that they read at.
pub struct MemTable {
    order: Order,
    comparator: InternalKeyComparator,
    /// Apart from the rest, which readers look at.
    counters: CachePadded<Counters>,
    /// Holds the keys of all entries; range tombstones are beside it.
    bloom: Option<Bloom>,
    range_tombstones: RangeTombstones,
    /// So many bytes of checksum stand behind each value.
    protection_bytes: usize,
    in_place: Option<InPlace>,
    check_order: bool,
    check_on_seek: bool,
    /// What entries hold is just their values, and reads take the order as it is: no checksums, no updates in place.
    is_plain: bool,
}

pub(crate) enum Order {
    RadixTree(Box<RadixTree>),
    SkipList(Box<SkipList>),
    Vector(Box<VectorTable>),
    Custom(Box<CustomTable>),
}

/// A value that a read found.
#[derive(Clone)]
pub enum MemBytes<'a> {
    /// Where it is.
    InTable(&'a [u8]),
    /// A copy, since it may be overwritten where it is.
    Copied(Arc<[u8]>),
}

/// An entry that a read found.
#[derive(Clone)]
pub struct MemEntry<'a> {
    /// When it was written.
    pub sequence: SequenceNumber,
    /// What it means.
    pub value_type: ValueType,
    /// The value; empty for tombstones.
    pub value: MemBytes<'a>,
    state: State,
    owner: &'a MemTable,
}

/// What is known of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Intact,
    /// It does not match its checksum.
    Damaged,
    /// It, or what a search passed before it, is not where its key belongs.
    OutOfOrder,
}

impl MemEntry<'_> {
    /// `Corruption` if the entry does not match its checksum, or is not where it belongs: then nothing that it says is to be believed. To be asked
    /// of every entry that a read goes by.
    #[inline]
    pub fn check(&self) -> Result<()> {
        match self.state {
            State::Intact => Ok(()),
            State::Damaged => Err(damaged(self.sequence)),
            State::OutOfOrder => Err(out_of_order(self.sequence)),
        }
    }
}

#[cold]
pub(crate) fn out_of_order(sequence: SequenceNumber) -> Error {
    Error::corruption(format!(
        "memtable: the entry with sequence number {sequence} is out of order (paranoid_memory_checks): memory was changed \
         behind the engine's back; check this machine's memory"
    ))
}

#[cold]
fn damaged_range() -> Error {
    changed_in_memory("memtable: a range tombstone", "memtable_protection_bytes_per_key")
}

#[cold]
fn damaged(sequence: SequenceNumber) -> Error {
    let what = format!("memtable: the entry with sequence number {sequence}");
    changed_in_memory(&what, "memtable_protection_bytes_per_key")
}

/// A value that keeps its memtable alive, or is a copy.
#[derive(Clone)]
pub struct PinnedMemValue {
    value: NonNull<[u8]>,
    #[allow(dead_code)] // Keeps the bytes alive (1).
    keeper: Keeper,
}

#[derive(Clone)]
#[allow(dead_code)]
enum Keeper {
    Table(Arc<MemTable>),
    Copy(Arc<[u8]>),
}

// SAFETY: shared bytes that nobody changes, kept by an Arc (1).
unsafe impl Send for PinnedMemValue {}
// SAFETY: as above.
unsafe impl Sync for PinnedMemValue {}

impl MemTable {
    /// An empty memtable.
    pub fn new(kind: MemTableKind, comparator: InternalKeyComparator, options: &MemTableOptions) -> Self {
        options.pool.make_room_for(options.write_buffer_size);
        let arena = || Arena::new(options.huge_pages, Arc::clone(&options.pool));
        let kind = kind.built();
        let radix_tree = || match kind {
            MemTableKind::RadixTree if options.write_buffer_size <= RadixTree::MAX_BYTES => {
                RadixTree::new(&comparator.user, arena)
            }
            _ => None,
        };
        let order = if let Some(factory) = &options.rep {
            Order::Custom(Box::new(CustomTable::new(arena(), factory.create())))
        } else if kind == MemTableKind::Vector {
            Order::Vector(Box::new(VectorTable::new(arena())))
        } else if let Some(tree) = radix_tree() {
            Order::RadixTree(Box::new(tree))
        } else {
            Order::SkipList(Box::new(SkipList::new(arena())))
        };
        Self {
            order,
            comparator,
            counters: CachePadded::default(),
            bloom: options.bloom.as_ref().and_then(Bloom::new),
            range_tombstones: RangeTombstones::default(),
            protection_bytes: usize::from(options.protection_bytes),
            in_place: options.in_place_locks.map(InPlace::new),
            check_order: options.check_order,
            check_on_seek: options.check_on_seek && options.protection_bytes > 0,
            is_plain: options.protection_bytes == 0
                && options.in_place_locks.is_none()
                && !options.check_order,
        }
    }

    /// Adds an entry. Answers whether it is new: of two entries with the same user key and sequence
    /// number (a WAL that is replayed twice) the first one stays. The vector kind answers `true`
    /// and drops the second one when it sorts. With [`MemTableOptions::in_place_locks`] a value may overwrite the newest
    /// entry at or below `sequence`, which keeps its number; then the answer is `false`, too.
    ///
    /// # Panics
    /// When the key or the value is longer than 4 GiB - 9 bytes; the write path refuses such sizes.
    pub fn add(
        &self,
        sequence: SequenceNumber,
        value_type: ValueType,
        user_key: &[u8],
        value: &[u8],
    ) -> bool {
        self.writer().add(sequence, value_type, user_key, value)
    }
    /// As [`add`](Self::add), with the checksum that the entry has so far: what changes from here on is found out.
    pub fn add_protected(
        &self,
        sequence: SequenceNumber,
        value_type: ValueType,
        user_key: &[u8],
        value: &[u8],
        protection: Protection,
    ) -> bool {
        self.writer().add_protected(sequence, value_type, user_key, value, protection)
    }

    /// As [`add`](Self::add), and never in the place of what is there.
    pub fn add_entry(
        &self,
        sequence: SequenceNumber,
        value_type: ValueType,
        user_key: &[u8],
        value: &[u8],
    ) -> bool {
        let protection = Protection::new(value_type, user_key, value);
        self.writer().add_entry(sequence, value_type, user_key, value, protection)
    }

    /// For several writes in a row by one thread: counts them at the end, and remembers where it
    /// was, which makes ascending keys cheap.
    pub fn writer(&self) -> MemTableWriter<'_> {
        let hint = match &self.order {
            Order::SkipList(list) => list.hint().try_lock(), // One writer at a time can use it.
            Order::RadixTree(_) | Order::Vector(_) | Order::Custom(_) => None,
        };
        MemTableWriter { table: self, hint, added: Added::default() }
    }

    /// The newest entry of `user_key` at or below `at`.
    #[inline]
    pub fn get(&self, user_key: &[u8], at: SequenceNumber) -> Option<MemEntry<'_>> {
        if let Some(bloom) = &self.bloom {
            let may_hold = bloom.may_hold(user_key);
            count_bloom(may_hold);
            if !may_hold {
                return None;
            }
        }
        let target = EntryKey::newest_at(user_key, at);
        if !self.is_plain
            && let Some(broken) = self.find_damage(target)
        {
            return Some(broken);
        }
        let user = &self.comparator.user;
        let entry = match &self.order {
            Order::RadixTree(tree) => return tree.get(target).map(|entry| self.found(entry)),
            Order::SkipList(list) => list.first_at_or_after(user, target),
            Order::Vector(vector) => vector.first_at_or_after(user, target),
            Order::Custom(custom) => custom.first_at_or_after(user, target),
        };
        let entry = entry.filter(|entry| user.equal(entry.user_key(), user_key))?;
        Some(self.found(entry))
    }

    /// As [`get`](Self::get), with a value that keeps the memtable alive.
    pub fn get_pinned(
        self: &Arc<Self>,
        user_key: &[u8],
        at: SequenceNumber,
    ) -> Option<(SequenceNumber, ValueType, PinnedMemValue)> {
        let entry = self.get(user_key, at)?;
        Some((entry.sequence, entry.value_type, self.pin(entry)))
    }

    /// Turns a borrowed entry's value into one that keeps this memtable alive.
    ///
    /// # Panics
    /// When the entry is from another memtable.
    pub fn pin(self: &Arc<Self>, entry: MemEntry<'_>) -> PinnedMemValue {
        assert!(std::ptr::eq(entry.owner, &raw const **self), "an entry is pinned by its own memtable");
        match entry.value {
            MemBytes::InTable(value) => {
                PinnedMemValue { value: NonNull::from(value), keeper: Keeper::Table(Arc::clone(self)) }
            }
            MemBytes::Copied(copy) => {
                PinnedMemValue { value: NonNull::from(&*copy), keeper: Keeper::Copy(copy) }
            }
        }
    }

    /// All entries of `user_key` at or below `at`, newest first.
    pub fn versions<'a>(&'a self, user_key: &'a [u8], at: SequenceNumber) -> Versions<'a> {
        let from = EntryKey::newest_at(user_key, at);
        let broken = if self.is_plain { None } else { self.find_damage(from) };
        let mut cursor = Cursor::new(self);
        cursor.seek(from);
        Versions { user_key, cursor, broken }
    }

    /// An iterator over everything, which keeps the memtable alive. It sees at least what was there
    /// when it was last positioned by a seek, and may see what was added since.
    pub fn iter(self: &Arc<Self>) -> MemTableIter {
        MemTableIter::new(Arc::clone(self), None)
    }
    /// As [`iter`](Self::iter). A seek may end where the Bloom filter says that nothing is there that `seek` wants.
    pub fn iter_by_prefix(self: &Arc<Self>, seek: Option<Arc<PrefixSeek>>) -> MemTableIter {
        let has_prefixes = self.bloom.as_ref().is_some_and(|bloom| bloom.extractor().is_some());
        MemTableIter::new(Arc::clone(self), seek.filter(|_| has_prefixes))
    }
    /// Whether the Bloom filter says that an iterator finds nothing that `seek` wants from `target` on.
    pub(crate) fn is_ruled_out(
        &self,
        seek: &PrefixSeek,
        target: &[u8],
        direction: Direction,
    ) -> Result<bool> {
        match self.bloom.as_ref().and_then(|bloom| Some((bloom, bloom.extractor()?))) {
            Some((bloom, extractor)) => seek.is_ruled_out(target, direction, extractor, |prefix| {
                let may_have = bloom.may_have(prefix);
                count_bloom(may_have);
                Ok(may_have)
            }),
            None => Ok(false),
        }
    }

    /// Says that no more writes come. The vector kind sorts itself.
    pub fn mark_read_only(&self) {
        match &self.order {
            Order::Vector(vector) => vector.mark_read_only(&self.comparator.user),
            Order::Custom(custom) => custom.mark_read_only(&self.comparator.user),
            Order::RadixTree(_) | Order::SkipList(_) => {}
        }
    }

    /// Bytes of memory in use, bookkeeping included.
    pub fn memory_usage(&self) -> usize {
        let order = match &self.order {
            Order::RadixTree(tree) => tree.memory_usage(),
            Order::SkipList(list) => list.memory_usage(),
            Order::Vector(vector) => vector.memory_usage(self.num_entries()),
            Order::Custom(custom) => custom.memory_usage(),
        };
        let bloom = self.bloom.as_ref().map_or(0, Bloom::memory_usage);
        size_of::<Self>() + order + bloom + self.range_tombstones.memory_usage()
    }

    /// Adds a range tombstone: keys in `begin..end` are deleted for whoever reads at `sequence` or later. With
    /// `protection`, the checksum that it has so far: what changes from here on is found out.
    pub fn add_range_tombstone(
        &self,
        sequence: SequenceNumber,
        begin: &[u8],
        end: &[u8],
        protection: Option<Protection>,
    ) {
        self.counters.saw_sequence(sequence);
        let tombstone = RangeTombstone { begin: begin.to_vec(), end: end.to_vec(), sequence };
        let protection = (self.protection_bytes > 0).then(|| match protection {
            Some(protection) => protection.toggle_sequence(sequence),
            None => protection_of(&tombstone),
        });
        self.range_tombstones.add(&self.comparator.user, tombstone, protection);
    }
    /// Whether a range tombstone was added.
    #[inline]
    pub fn has_range_tombstones(&self) -> bool {
        self.range_tombstones.count() > 0
    }
    /// How many range tombstones were added.
    pub fn num_range_tombstones(&self) -> u64 {
        self.range_tombstones.count()
    }
    /// The newest range tombstone over `user_key` at or below `at`; zero if there is none. `Corruption` if one that the
    /// answer rests on does not match its checksum.
    #[inline]
    pub fn covering(&self, user_key: &[u8], at: SequenceNumber) -> Result<SequenceNumber> {
        match self.has_range_tombstones() {
            true => self
                .range_tombstones
                .covering(&self.comparator.user, user_key, at, self.protection_bytes > 0)
                .ok_or_else(damaged_range),
            false => Ok(SequenceNumber::ZERO),
        }
    }
    /// The range tombstones as fragments, in several runs. `Corruption` if one does not match its checksum.
    pub fn range_tombstone_fragments(&self) -> Result<Vec<Arc<FragmentedTombstones>>> {
        self.range_tombstones.fragments(self.protection_bytes > 0).ok_or_else(damaged_range)
    }
    /// The range tombstones. `Corruption` if one does not match its checksum.
    pub fn range_tombstones(&self) -> Result<Vec<RangeTombstone>> {
        self.range_tombstones.all().ok_or_else(damaged_range)
    }

    /// How many entries were added, range tombstones not counted.
    pub fn num_entries(&self) -> u64 {
        self.counters.entries.load(Relaxed)
    }
    /// How many of them are tombstones.
    pub fn num_deletes(&self) -> u64 {
        self.counters.deletes.load(Relaxed)
    }
    /// Bytes of user keys, trailers and values.
    pub fn data_size(&self) -> u64 {
        self.counters.bytes.load(Relaxed)
    }
    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.num_entries() == 0 && !self.has_range_tombstones()
    }
    /// Whether nothing was added that a reader may see: writes that it sees were counted before.
    #[inline]
    pub(crate) fn is_untouched(&self) -> bool {
        self.counters.first_sequence() == u64::MAX
    }
    /// The smallest sequence number added.
    pub fn first_sequence(&self) -> Option<SequenceNumber> {
        let first = self.counters.first_sequence();
        (first <= SequenceNumber::MAX.0).then_some(SequenceNumber(first))
    }
    /// Which kind it is; none of them if an application keeps its order.
    pub fn kind(&self) -> Option<MemTableKind> {
        match self.order {
            Order::RadixTree(_) => Some(MemTableKind::RadixTree),
            Order::SkipList(_) => Some(MemTableKind::SkipList),
            Order::Vector(_) => Some(MemTableKind::Vector),
            Order::Custom(_) => None,
        }
    }
    /// The order of its entries.
    pub fn comparator(&self) -> &InternalKeyComparator {
        &self.comparator
    }

    /// About how many entries have a user key in `begin..end`: exact if there are few.
    pub fn approximate_count(&self, begin: &[u8], end: &[u8]) -> u64 {
        const COUNTED: u64 = 128;
        let user = &self.comparator.user;
        let [begin, end] = [begin, end].map(|key| EntryKey::newest_at(key, SequenceNumber::MAX));
        let mut cursor = Cursor::new(self);
        cursor.seek(begin);
        let mut count = 0;
        while cursor.entry().is_some_and(|entry| user.compare(entry.user_key(), end.user_key).is_lt()) {
            count += 1;
            if count == COUNTED {
                return (self.approximate_rank(end).saturating_sub(self.approximate_rank(begin)))
                    .max(COUNTED);
            }
            cursor.next();
        }
        count
    }

    /// About how many bytes of keys and values have a user key in `begin..end`.
    pub fn approximate_size(&self, begin: &[u8], end: &[u8]) -> u64 {
        let mean = self.data_size() / self.num_entries().max(1);
        self.approximate_count(begin, end) * mean
    }

    fn approximate_rank(&self, key: EntryKey<'_>) -> u64 {
        match &self.order {
            Order::RadixTree(tree) => (tree.share_before(key) * self.num_entries() as f64) as u64,
            Order::SkipList(list) => list.approximate_rank(&self.comparator.user, key, self.num_entries()),
            Order::Vector(vector) => vector.rank(&self.comparator.user, key),
            Order::Custom(custom) => custom.rank(&self.comparator.user, key),
        }
    }

    fn found<'a>(&'a self, entry: Entry<'a>) -> MemEntry<'a> {
        if !self.is_plain {
            return self.found_special(entry);
        }
        let key = entry.key();
        MemEntry {
            sequence: key.sequence(),
            value_type: entry.value_type(),
            value: MemBytes::InTable(entry.value()),
            state: State::Intact,
            owner: self,
        }
    }

    #[inline(never)]
    fn found_special<'a>(&'a self, entry: Entry<'a>) -> MemEntry<'a> {
        let sequence = entry.key().sequence();
        let value = match &self.in_place {
            None => self.is_intact(entry).then(|| MemBytes::InTable(self.value_of(entry))),
            Some(in_place) => {
                let mut stored = Vec::new();
                in_place.copy(entry, &mut stored);
                self.intact_value(entry.key(), &stored).map(|value| MemBytes::Copied(value.into()))
            }
        };
        match value {
            Some(value) => MemEntry {
                sequence,
                value_type: entry.value_type(),
                value,
                state: State::Intact,
                owner: self,
            },
            None => self.broken(sequence, State::Damaged),
        }
    }
    fn broken(&self, sequence: SequenceNumber, state: State) -> MemEntry<'_> {
        MemEntry { sequence, value_type: ValueType::Value, value: MemBytes::InTable(&[]), state, owner: self }
    }

    /// Goes where a search for `target` goes, and answers the first entry that should not be there as it is.
    #[inline(never)]
    fn find_damage(&self, target: EntryKey<'_>) -> Option<MemEntry<'_>> {
        if !self.check_order && !self.check_on_seek {
            return None;
        }
        let is_good = |entry: Entry<'_>| !self.check_on_seek || self.check(entry, None).is_ok();
        let user = &self.comparator.user;
        let entry = match &self.order {
            Order::RadixTree(tree) => tree.find_damage(target, is_good),
            Order::SkipList(list) => list.find_damage(user, target, is_good),
            Order::Vector(vector) => vector.find_damage(user, target, is_good),
            Order::Custom(custom) => custom.find_damage(user, target, is_good),
        }?;
        let state = if is_good(entry) { State::OutOfOrder } else { State::Damaged };
        (self.check_order || state == State::Damaged).then(|| self.broken(entry.key().sequence(), state))
    }
    /// `Corruption` if something on the way of a search for `target` is not as it should be.
    pub(crate) fn check_way(&self, target: EntryKey<'_>) -> Result<()> {
        self.find_damage(target).map_or(Ok(()), |broken| broken.check())
    }
    /// Whether the entries that an iterator goes by are compared with each other.
    pub(crate) fn checks_order(&self) -> bool {
        self.check_order
    }

    /// The value, without the checksum behind it. Not of tables that update in place.
    #[inline]
    pub(crate) fn value_of<'a>(&self, entry: Entry<'a>) -> &'a [u8] {
        debug_assert!(self.in_place.is_none(), "of these, copies are shown");
        let stored = entry.value();
        match self.protection_bytes {
            0 => stored,
            bytes => &stored[..stored.len().saturating_sub(bytes)],
        }
    }

    #[inline(never)]
    fn is_intact(&self, entry: Entry<'_>) -> bool {
        let stored = entry.value();
        let Some(value_len) = stored.len().checked_sub(self.protection_bytes) else { return false };
        let (value, checksum) = stored.split_at(value_len);
        self.matches(entry.key(), value, checksum)
    }
    fn matches(&self, key: EntryKey<'_>, value: &[u8], checksum: &[u8]) -> bool {
        ValueType::from_byte(key.trailer as u8).is_some_and(|kind| {
            let right = || Protection::new(kind, key.user_key, value).toggle_sequence(key.sequence());
            checksum.is_empty() || checksum == &right().to_bytes()[..self.protection_bytes]
        })
    }
    /// Of what an entry of a table that updates in place holds: the value, if it matches its checksum.
    fn intact_value<'a>(&self, key: EntryKey<'_>, stored: &'a [u8]) -> Option<&'a [u8]> {
        let parts = in_place::parts(stored, self.protection_bytes)?;
        self.matches(key, parts.value, parts.checksum).then_some(parts.value)
    }

    /// Whether an entry is just what it holds: nothing is to be compared, and nobody overwrites it.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.is_plain
    }
    /// `Corruption` if `entry` does not match its checksum. Of a table that updates in place, its value goes to `copy`.
    #[inline(never)]
    pub(crate) fn check(&self, entry: Entry<'_>, copy: Option<&mut Vec<u8>>) -> Result<()> {
        let mut own = Vec::new();
        let is_intact = match &self.in_place {
            Some(in_place) => {
                let copy = copy.unwrap_or(&mut own);
                in_place.copy(entry, copy);
                let value_len = self.intact_value(entry.key(), copy).map(<[u8]>::len);
                in_place::keep_value(copy, value_len.unwrap_or(0));
                value_len.is_some()
            }
            None => self.is_intact(entry),
        };
        if is_intact { Ok(()) } else { Err(damaged(entry.key().sequence())) }
    }

    /// Whether values may overwrite older ones.
    #[inline]
    pub fn updates_in_place(&self) -> bool {
        self.in_place.is_some()
    }

    /// The newest entry of `user_key` below `sequence`, if it is a value that no range tombstone hides. Nothing as well if
    /// an entry with that very number is there.
    fn newest_value(&self, user_key: &[u8], sequence: SequenceNumber) -> Option<Entry<'_>> {
        let target = EntryKey::newest_at(user_key, sequence);
        let user = &self.comparator.user;
        let entry = match &self.order {
            Order::RadixTree(tree) => tree.get(target),
            Order::SkipList(list) => list.first_at_or_after(user, target),
            Order::Vector(vector) => vector.first_at_or_after(user, target),
            Order::Custom(custom) => custom.first_at_or_after(user, target),
        }?;
        let key = entry.key();
        let is_value = user.equal(key.user_key, user_key)
            && ValueType::from_byte(key.trailer as u8) == Some(ValueType::Value)
            && key.sequence() < sequence
            && self.covering(user_key, sequence).is_ok_and(|covered| key.sequence() >= covered);
        is_value.then_some(entry)
    }

    /// Hands `change` a copy of the newest value of `user_key` below `sequence`, which it changes, and answers whether that is
    /// to take its place. `None` if there is no such value in this table, or it does not update in place. Nobody reads or
    /// writes the value meanwhile. One that has grown does not fit in, and is answered.
    ///
    /// `Corruption` if the value does not match its checksum.
    pub fn change_in_place<T>(
        &self,
        sequence: SequenceNumber,
        user_key: &[u8],
        change: impl FnOnce(&mut Vec<u8>) -> (bool, T),
    ) -> Result<Option<(T, Option<Vec<u8>>)>> {
        let Some(in_place) = &self.in_place else { return Ok(None) };
        let Some(entry) = self.newest_value(user_key, sequence) else { return Ok(None) };
        let key = entry.key();
        in_place.change(entry, |stored| {
            let old = self.intact_value(key, stored).ok_or_else(|| damaged(key.sequence()))?;
            let mut value = old.to_vec();
            let (replaces, answer) = change(&mut value);
            if replaces && value.len() > old.len() {
                return Ok(Some((answer, Some(value))));
            }
            if replaces {
                let protection = Protection::new(ValueType::Value, key.user_key, &value);
                self.put_in_place(key, stored, &value, protection);
            }
            Ok(Some((answer, None)))
        })
    }

    /// Overwrites the newest value of `user_key`, if there is one that is long enough.
    #[inline(never)]
    fn overwrite(
        &self,
        in_place: &InPlace,
        sequence: SequenceNumber,
        user_key: &[u8],
        value: &[u8],
        protection: Protection,
    ) -> bool {
        let Some(entry) = self.newest_value(user_key, sequence) else { return false };
        let key = entry.key();
        in_place.change(entry, |stored| {
            // One that is damaged stays, to be found.
            let fits = self.intact_value(key, stored).is_some_and(|old| value.len() <= old.len());
            if fits {
                self.put_in_place(key, stored, value, protection);
            }
            fits
        })
    }

    fn put_in_place(&self, key: EntryKey<'_>, stored: &mut [u8], value: &[u8], protection: Protection) {
        // The number that stays is the entry's.
        let checksum = &protection.toggle_sequence(key.sequence()).to_bytes()[..self.protection_bytes];
        in_place::overwrite(stored, value, checksum);
        if !checksum.is_empty() {
            planted::flip(Place::MemTable, stored);
        }
    }

    pub(crate) fn user_comparator(&self) -> &UserComparator {
        &self.comparator.user
    }
    pub(crate) fn order(&self) -> &Order {
        &self.order
    }
}

impl fmt::Debug for MemTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "MemTable({:?}, {} entries, {} bytes)",
            self.kind(),
            self.num_entries(),
            self.memory_usage()
        )
    }
}

impl Deref for PinnedMemValue {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: whatever owns the bytes is alive (1).
        unsafe { self.value.as_ref() }
    }
}

impl Deref for MemBytes<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::InTable(value) => value,
            Self::Copied(value) => value,
        }
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for MemBytes<'_> {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl fmt::Debug for MemBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.escape_ascii())
    }
}

impl fmt::Debug for PinnedMemValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.escape_ascii())
    }
}

impl fmt::Debug for MemEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:?} {}", self.sequence, self.value_type, self.value.escape_ascii())
    }
}

/// One thread's run of writes; see [`MemTable::writer`]. The counters of the memtable learn about
/// them when it is dropped; the entries can be read at once.
pub struct MemTableWriter<'a> {
    table: &'a MemTable,
    hint: Option<MutexGuard<'a, Splice>>,
    added: Added,
}

impl MemTableWriter<'_> {
    /// As [`MemTable::add`].
    #[inline]
    pub fn add(
        &mut self,
        sequence: SequenceNumber,
        value_type: ValueType,
        user_key: &[u8],
        value: &[u8],
    ) -> bool {
        if !self.table.is_plain {
            let protection = Protection::new(value_type, user_key, value);
            return self.add_protected(sequence, value_type, user_key, value, protection);
        }
        self.add_stored(sequence, value_type, user_key, value, value.len())
    }

    /// As [`add`](Self::add), with the checksum that the entry has so far: what changes from here on is found out.
    #[inline(never)]
    pub fn add_protected(
        &mut self,
        sequence: SequenceNumber,
        value_type: ValueType,
        user_key: &[u8],
        value: &[u8],
        protection: Protection,
    ) -> bool {
        if let Some(in_place) = &self.table.in_place
            && value_type == ValueType::Value
            && self.table.overwrite(in_place, sequence, user_key, value, protection)
        {
            return false;
        }
        self.add_entry(sequence, value_type, user_key, value, protection)
    }

    /// As [`add_protected`](Self::add_protected), and never in the place of what is there.
    #[inline]
    pub fn add_entry(
        &mut self,
        sequence: SequenceNumber,
        value_type: ValueType,
        user_key: &[u8],
        value: &[u8],
        protection: Protection,
    ) -> bool {
        let checksum = &protection.toggle_sequence(sequence).to_bytes()[..self.table.protection_bytes];
        let mut stored = match self.table.in_place {
            None => [value, checksum].concat(),
            Some(_) => in_place::stored(value, checksum),
        };
        if !checksum.is_empty() {
            planted::flip(Place::MemTable, &mut stored);
        }
        self.add_stored(sequence, value_type, user_key, &stored, value.len())
    }

    /// Adds what is stored of a value of `value_len` bytes.
    #[inline(always)] // Of two callers one is rare.
    fn add_stored(
        &mut self,
        sequence: SequenceNumber,
        value_type: ValueType,
        user_key: &[u8],
        stored: &[u8],
        value_len: usize,
    ) -> bool {
        assert!(user_key.len() <= MAX_LEN && value_len <= MAX_LEN, "an entry of more than 4 GiB");
        let table = self.table;
        let key = EntryKey { user_key, trailer: pack_trailer(sequence, value_type) };
        table.counters.saw_sequence(sequence);
        if let Some(bloom) = &table.bloom {
            bloom.add(user_key); // Before the entry: whoever may see that is not told that it is not there.
        }
        let new = self.insert(key, stored);
        if new {
            self.added.entries += 1;
            self.added.deletes += u64::from(value_type.is_tombstone());
            self.added.bytes += (user_key.len() + TRAILER_LEN + value_len) as u64;
        }
        new
    }

    #[inline]
    fn insert(&mut self, key: EntryKey<'_>, value: &[u8]) -> bool {
        let user = &self.table.comparator.user;
        match (&self.table.order, &mut self.hint) {
            (Order::RadixTree(tree), _) => tree.insert(key, value),
            (Order::SkipList(list), Some(hint)) => list.insert(user, key, value, hint),
            (Order::SkipList(list), None) => list.insert(user, key, value, &mut Splice::default()),
            (Order::Vector(vector), _) => {
                vector.insert(key, value);
                true
            }
            (Order::Custom(custom), _) => custom.insert(user, key, value),
        }
    }
}

impl Drop for MemTableWriter<'_> {
    fn drop(&mut self) {
        self.table.counters.count(&self.added);
    }
}

#[derive(Default)]
struct Added {
    entries: u64,
    deletes: u64,
    bytes: u64,
}

/// All Relaxed: statistics, which publish nothing.
struct Counters {
    entries: AtomicU64,
    deletes: AtomicU64,
    bytes: AtomicU64,
    first_sequence: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self { entries: zero(), deletes: zero(), bytes: zero(), first_sequence: AtomicU64::new(u64::MAX) }
    }
}

impl Counters {
    #[inline]
    fn saw_sequence(&self, sequence: SequenceNumber) {
        // Almost never stores: sequence numbers come about in order.
        if sequence.0 < self.first_sequence.load(Relaxed) {
            self.first_sequence.fetch_min(sequence.0, Relaxed);
        }
    }
    fn first_sequence(&self) -> u64 {
        self.first_sequence.load(Relaxed)
    }
    fn count(&self, added: &Added) {
        if added.entries > 0 {
            self.entries.fetch_add(added.entries, Relaxed);
            self.bytes.fetch_add(added.bytes, Relaxed);
        }
        if added.deletes > 0 {
            self.deletes.fetch_add(added.deletes, Relaxed);
        }
    }
}

/// The entries of one user key, newest first; see [`MemTable::versions`].
pub struct Versions<'a> {
    user_key: &'a [u8],
    cursor: Cursor<&'a MemTable>,
    /// Found on the way, and shown first.
    broken: Option<MemEntry<'a>>,
}

impl<'a> Iterator for Versions<'a> {
    type Item = MemEntry<'a>;
    fn next(&mut self) -> Option<MemEntry<'a>> {
        if let Some(broken) = self.broken.take() {
            return Some(broken);
        }
        let table = self.cursor.table();
        let entry = self.cursor.entry_of_table()?;
        if !table.comparator.user.equal(entry.user_key(), self.user_key) {
            return None;
        }
        self.cursor.next();
        Some(table.found(entry))
    }
}

#[inline]
fn count_bloom(passes: bool) {
    perf::count(
        if passes { PerfMetric::BloomMemtableHitCount } else { PerfMetric::BloomMemtableMissCount },
        1,
    );
}

#[cfg(test)]
mod in_place_tests;
#[cfg(test)]
mod tests;
