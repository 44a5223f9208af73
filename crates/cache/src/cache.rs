//! The cache: how its parts work together, and how much it holds.
//!
//! ```text
//! Cache --+-- usage, capacity             one count of bytes over all shards
//!         +-- Shard 0..64 --+-- Index     hash -> node, read without a lock
//!                           +-- queues    what is evicted next, under the shard's lock
//!                           +-- Arena     nodes: entries, or free room for one
//! ```
//! A hit takes no lock: find the node, add one reference to its word, compare the key. Room is made before
//! an entry is added, in whatever shard has it, so the capacity is one for all and an entry may be larger
//! than a shard's part.
//!
//! # Safety argument
//! 1. A `Handle` owns one reference to its node, which is an entry as long as that is held (`node.rs`, 1).
//! 2. `Cache` owns an anchor, and calls that need the `Shared` held by a cache happen behind `&self`.
//!    Dropping the cache makes every node FREE or INVISIBLE before it lets go of that anchor, so handles
//!    that outlive it have their own (`shared.rs`).
//! 3. Handles give out `&V` and drop `V` on any thread, and the cache takes `V` from any: `V` is
//!    `Send + Sync`.

mod index;
mod node;
mod shard;
mod shared;

use crate::block_memory::{BlockBytes, BlockMemory};
use crate::budget::ChargeTarget;
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::Ordering;
use ironstone_base::{Code, Error, Result, SubCode};
use node::Node;
pub use node::prefetch_line;
use shard::Dropped;
use shared::{Anchored, MAX_SHARDS, Shared};
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;

/// Names an entry: which file, and where in it. File ids come from [`Cache::new_file_id`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CacheKey(pub u64, pub u64);

impl CacheKey {
    /// Every bit depends on every bit of the key; shard, line and tag are taken from different ones.
    #[inline]
    fn hash(&self) -> u64 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        const MIX: u64 = 0xd6e8_feb8_6659_fd93;
        let mixed = self.0.wrapping_mul(ODD) ^ self.1.rotate_left(32);
        let product = u128::from(mixed ^ MIX) * u128::from(ODD);
        let folded = product as u64 ^ (product >> 64) as u64;
        folded.wrapping_mul(MIX) ^ folded
    }
}

/// How long an entry should stay compared with others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Priority {
    /// Index and filter blocks.
    High,
    /// Data blocks.
    #[default]
    Low,
    /// What is unlikely to be used again.
    Bottom,
}

/// How a cache is set up.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Bytes that it may hold, its own bookkeeping per entry included.
    pub capacity: usize,
    /// log2 of the number of shards, at most 6; negative chooses by capacity.
    pub num_shard_bits: i32,
    /// Refuse inserts that do not fit, instead of holding more than `capacity` while handles pin it.
    pub strict_capacity_limit: bool,
    /// Keep blocks in extents of 2 to 64 MiB, where the system has them ([`Cache::memory`]) and the capacity is 8 MiB or more:
    /// the allocator of the process does not see them, and they leave no gaps there. From 64 MiB on the extents are on huge pages,
    /// and reads of a large cache wait less for memory. Default true.
    pub huge_pages: bool,
    /// Expected bytes per entry, to size the tables at once; 0 lets them grow as needed.
    pub estimated_entry_charge: usize,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            capacity: 32 << 20,
            num_shard_bits: -1,
            strict_capacity_limit: false,
            huge_pages: true,
            estimated_entry_charge: 0,
        }
    }
}

impl CacheOptions {
    fn shards(&self) -> usize {
        // Shards of 2 MiB and up, so that each has enough entries for its queues to mean something.
        let by_capacity = (self.capacity >> 21).max(1).ilog2();
        let bits = u32::try_from(self.num_shard_bits).unwrap_or(by_capacity);
        (1 << bits.min(MAX_SHARDS.ilog2())) as usize
    }
}

/// Where an entry sits, for finding it again without a search. May be stale: then it finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotHint(u32);

impl SlotHint {
    /// Finds nothing.
    pub const NONE: Self = Self(0);
    /// Below the number of the shard stands that of the entry, plus 1.
    const NUMBER_BITS: u32 = u32::BITS - (MAX_SHARDS as u32).ilog2();
    const NUMBER_MASK: u32 = (1 << Self::NUMBER_BITS) - 1;

    fn of<V>(node: &Node<V>) -> Self {
        // In a shard of more entries the later ones are found by a search only.
        let Some(number) = node.number().checked_add(1).filter(|number| *number <= Self::NUMBER_MASK) else {
            return Self::NONE;
        };
        Self((node.shard().number() as u32) << Self::NUMBER_BITS | number)
    }
    fn place(self) -> Option<(usize, u32)> {
        let number = (self.0 & Self::NUMBER_MASK).checked_sub(1)?;
        Some(((self.0 >> Self::NUMBER_BITS) as usize, number))
    }

    /// As a number, to keep it in an atomic.
    pub fn to_bits(self) -> u32 {
        self.0
    }
    /// From [`SlotHint::to_bits`]. Any number is safe: a wrong one finds nothing.
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

/// How often entries are evicted before a block does without the memory of the others.
const MOST_EVICTIONS_FOR_ROOM: usize = 8;

/// A cache of values by [`CacheKey`], bounded by the bytes that its entries are charged.
///
/// The usage passes the capacity by no more than what handles and outside charges pin.
pub struct Cache<V: Send + Sync + 'static> {
    shared: Anchored<V>,
    memory: Option<Arc<BlockMemory>>,
}

impl<V: Send + Sync + 'static> Cache<V> {
    /// What an entry is charged on top of what its inserter says.
    pub const CHARGE_PER_ENTRY: usize = size_of::<Node<V>>() + 16;

    /// An empty cache.
    pub fn new(options: CacheOptions) -> Arc<Self> {
        let shards = options.shards();
        let per_entry = options.estimated_entry_charge.saturating_add(Self::CHARGE_PER_ENTRY);
        let room = match options.estimated_entry_charge {
            0 => 0,
            _ => options.capacity / per_entry / shards,
        };
        let memory = options.huge_pages.then(|| BlockMemory::new(options.capacity)).flatten();
        let (capacity, strict) = (options.capacity, options.strict_capacity_limit);
        let shared = Shared::create(shards, capacity, strict, room, memory.as_ref());
        Arc::new(Self { shared, memory })
    }

    /// `bytes` where those of entries should be, for an entry that is about to be inserted: others are evicted if that
    /// memory has no room left. `which` is the same for what lies together best.
    pub fn hold(&self, bytes: Vec<u8>, which: u64) -> BlockBytes {
        self.hold_in_extents(&bytes, which).unwrap_or_else(|| bytes.into())
    }
    /// The same of a copy.
    pub fn hold_copy(&self, bytes: &[u8], which: u64) -> BlockBytes {
        self.hold_in_extents(bytes, which).unwrap_or_else(|| bytes.to_vec().into())
    }

    fn hold_in_extents(&self, bytes: &[u8], which: u64) -> Option<BlockBytes> {
        let memory = self.memory.as_ref().filter(|memory| memory.takes(bytes.len()))?;
        for _ in 0..MOST_EVICTIONS_FOR_ROOM {
            let held = memory.copy(bytes, which, self.usage());
            if held.is_some() {
                return held;
            }
            if memory.is_full_of_gaps() || !self.make_room(bytes.len() * 2, None) {
                break;
            }
        }
        None
    }

    /// `bytes` there for somebody who keeps them outside of the cache, and in no entry's stead; on the heap if that is sooner.
    pub fn hold_outside(&self, bytes: Cow<'_, [u8]>, which: u64) -> BlockBytes {
        let held = self.memory.as_ref().and_then(|memory| memory.copy_at_once(&bytes, which, self.usage()));
        held.unwrap_or_else(|| bytes.into_owned().into())
    }

    #[inline]
    fn shard(&self, hash: u64) -> &shard::Shard<V> {
        let shared = self.shared.get();
        &shared.shards[(hash >> 58) as usize & shared.shard_mask]
    }

    /// The shard of `hint`, and the number of the node there.
    #[inline]
    fn place(&self, hint: SlotHint) -> Option<(&shard::Shard<V>, u32)> {
        let (shard, number) = hint.place()?;
        Some((self.shared.get().shards.get(shard)?, number))
    }

    /// The entry of `key`, pinned. Takes no lock.
    #[inline]
    pub fn get(&self, key: &CacheKey) -> Option<Handle<V>> {
        let hash = key.hash();
        // SAFETY: behind `&self` (2).
        unsafe { self.shard(hash).get(key, hash) }.map(Handle)
    }

    /// As [`Cache::get`], looking at `hint` first: one from a handle of the same key makes it cheaper.
    #[inline]
    pub fn get_at(&self, hint: SlotHint, key: &CacheKey) -> Option<Handle<V>> {
        if let Some((shard, number)) = self.place(hint) {
            // SAFETY: behind `&self` (2).
            if let Some(node) = unsafe { shard.get_at(number, key) } {
                return Some(Handle(node));
            }
        }
        self.get(key)
    }

    /// Asks for the whole of the entry that [`Cache::get_at`] with this hint will find: for who needs more than the beginning
    /// of it, the sooner the better.
    #[inline]
    pub fn prefetch(&self, hint: SlotHint) {
        if let Some((shard, number)) = self.place(hint) {
            shard.prefetch(number);
        }
    }

    /// Adds `value` under `key`, replacing what is there, and pins it. `charge` is its size in bytes.
    ///
    /// If there is no room and evicting makes none: under a strict limit `Incomplete` with subcode
    /// `MemoryLimit`; otherwise the value comes back in a handle, counted as usage, but is not kept.
    pub fn insert(&self, key: CacheKey, value: V, charge: usize, priority: Priority) -> Result<Handle<V>> {
        let hash = key.hash();
        let shard = self.shard(hash);
        let charge = charge.saturating_add(Self::CHARGE_PER_ENTRY);
        if self.reserve(charge, Some(shard)) {
            let (node, old) = shard.insert(key, hash, value, charge, priority);
            self.let_go(old);
            return Ok(Handle(node));
        }
        if self.strict_capacity_limit() {
            return Err(self.full(charge));
        }
        // What had the key is outdated all the same.
        self.let_go(shard.erase(&key, hash));
        self.count_past_capacity(charge);
        Anchored::add(self.shared.pointer());
        Ok(Handle(shard.insert_detached(key, value, charge)))
    }

    /// Whether a value that can be had again should be inserted under `key`: there is room for it, or it is more likely to be
    /// looked for than what it would take the place of. While hardly any entry is found before it has to leave, those that come
    /// for the first time are turned away; who comes again soon is taken in.
    pub fn admits(&self, key: &CacheKey, charge: usize) -> bool {
        let charge = charge.saturating_add(Self::CHARGE_PER_ENTRY);
        let hash = key.hash();
        self.usage().saturating_add(charge) <= self.capacity() || self.shard(hash).admits(hash)
    }

    #[cold]
    fn full(&self, charge: usize) -> Error {
        let (usage, capacity) = (self.usage(), self.capacity());
        let message = format!("cache is full: {charge} bytes on top of {usage}, capacity {capacity}");
        Error::new(Code::Incomplete, message).with_sub_code(SubCode::MemoryLimit)
    }

    /// Drops an entry's value, then counts its bytes as free.
    fn let_go(&self, old: Option<(V, usize)>) {
        if let Some((value, charge)) = old {
            drop(value);
            self.shared.get().usage.fetch_sub(charge, Ordering::Relaxed);
        }
    }

    fn count_past_capacity(&self, charge: usize) {
        self.shared.get().usage.fetch_add(charge, Ordering::Relaxed);
    }

    /// Adds `charge` to the usage, evicting until it fits; `home` goes first if it has its share.
    fn reserve(&self, charge: usize, home: Option<&shard::Shard<V>>) -> bool {
        let shared = self.shared.get();
        loop {
            let capacity = self.capacity();
            // Relaxed: the count publishes nothing but itself.
            let fits = |usage: usize| usage.checked_add(charge).filter(|&sum| sum <= capacity);
            let Err(usage) = shared.usage.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) else {
                return true;
            };
            if charge > capacity || !self.make_room(usage.saturating_add(charge) - capacity, home) {
                return false;
            }
        }
    }

    /// Frees at least `need` bytes, as far as that goes. False if nothing can be freed.
    fn make_room(&self, need: usize, home: Option<&shard::Shard<V>>) -> bool {
        let shared = self.shared.get();
        let shards = shared.shard_mask + 1;
        // Its own shard first, if that has about its share: most insertions then touch one shard only.
        let share = self.capacity() / 2 / shards;
        let mut freed = home.map_or(0, |shard| self.evict(shard, need, share, false));
        let thorough = self.strict_capacity_limit();
        for thorough in [false, true].into_iter().filter(|&pass| !pass || thorough) {
            for _ in 0..shards {
                if freed >= need {
                    return true;
                }
                let at = shared.hand.fetch_add(1, Ordering::Relaxed) & shared.shard_mask;
                freed += self.evict(&shared.shards[at], need - freed, 0, thorough);
            }
        }
        freed > 0
    }

    fn evict(&self, shard: &shard::Shard<V>, need: usize, at_least: usize, thorough: bool) -> usize {
        let mut dropped = Dropped::new();
        let freed = shard.evict(need, at_least, thorough, &mut dropped);
        drop(dropped); // After the shard's lock: it may take long, and do anything.
        self.shared.get().usage.fetch_sub(freed, Ordering::Relaxed);
        freed
    }

    /// Forgets the entry of `key`; handles to it stay valid.
    pub fn erase(&self, key: &CacheKey) {
        self.try_erase(key);
    }
    /// The same; answers whether there was one that no handle pinned.
    pub fn try_erase(&self, key: &CacheKey) -> bool {
        let hash = key.hash();
        let erased = self.shard(hash).erase(key, hash);
        let was_idle = erased.is_some();
        self.let_go(erased);
        was_idle
    }

    /// Whether `key` is there, without pinning it or counting as a use.
    pub fn contains(&self, key: &CacheKey) -> bool {
        let hash = key.hash();
        self.shard(hash).contains(key, hash)
    }

    /// How often the entry of `key` was found lately, if it is there; beyond a few the number means no more. This is no find.
    pub fn finds(&self, key: &CacheKey) -> Option<u64> {
        let hash = key.hash();
        self.shard(hash).finds(key, hash)
    }

    /// Forgets every entry that is not pinned, and the pinned ones as soon as they are let go.
    pub fn clear(&self) {
        let shared = self.shared.get();
        shared.shards.iter().for_each(|shard| self.shrink(shard, 0));
    }

    fn shrink(&self, shard: &shard::Shard<V>, bytes: usize) {
        let mut dropped = Dropped::new();
        let freed = shard.shrink_to(bytes, &mut dropped);
        drop(dropped);
        self.shared.get().usage.fetch_sub(freed, Ordering::Relaxed);
    }

    /// Bytes held: all entries, those that only handles keep alive, and charges from outside.
    pub fn usage(&self) -> usize {
        self.shared.get().usage.load(Ordering::Relaxed)
    }

    /// Bytes of the entries that handles pin, and charges from outside. Looks at every entry, one after the other: while others
    /// add and remove entries it is an estimate.
    pub fn pinned_usage(&self) -> usize {
        let unpinned: usize = self.shared.get().shards.iter().map(shard::Shard::unpinned_bytes).sum();
        self.usage().saturating_sub(unpinned)
    }

    /// Bytes that it may hold.
    pub fn capacity(&self) -> usize {
        self.shared.get().capacity.load(Ordering::Relaxed)
    }

    /// Changes the capacity, evicting if it shrinks. What is pinned beyond it goes when it is let go.
    pub fn set_capacity(&self, capacity: usize) {
        let shared = self.shared.get();
        shared.capacity.store(capacity, Ordering::Relaxed);
        if let Some(memory) = &self.memory {
            memory.set_capacity(capacity);
        }
        let over = self.usage().saturating_sub(capacity);
        if over > 0 {
            self.make_room(over, None);
            let findable: usize = shared.shards.iter().map(shard::Shard::bytes).sum();
            let shards = shared.shard_mask + 1;
            if findable > capacity {
                shared.shards.iter().for_each(|shard| self.shrink(shard, capacity / shards));
            }
        }
    }

    /// Whether inserts that do not fit are refused.
    pub fn strict_capacity_limit(&self) -> bool {
        self.shared.get().strict.load(Ordering::Relaxed)
    }

    /// See [`CacheOptions::strict_capacity_limit`].
    pub fn set_strict_capacity_limit(&self, strict: bool) {
        self.shared.get().strict.store(strict, Ordering::Relaxed);
    }

    /// How many entries can be found.
    pub fn entry_count(&self) -> usize {
        self.shared.get().shards.iter().map(shard::Shard::entries).sum()
    }

    /// Calls `visit` with every entry that can be found, and its charge.
    pub fn for_each(&self, mut visit: impl FnMut(&CacheKey, &V, usize)) {
        for shard in &self.shared.get().shards {
            let held: Vec<_> = shard.hold_all().into_iter().map(Handle).collect();
            held.iter().for_each(|handle| visit(&handle.key(), handle, handle.charge()));
        }
    }

    /// A number for the file part of a [`CacheKey`] that this cache never gave out before.
    pub fn new_file_id(&self) -> u64 {
        self.shared.get().next_file_id.fetch_add(1, Ordering::Relaxed)
    }
}

impl<V: Send + Sync + 'static> Drop for Cache<V> {
    fn drop(&mut self) {
        self.clear(); // Every node is FREE, or INVISIBLE with an anchor of its own (2).
    }
}

impl<V: Send + Sync + 'static> fmt::Debug for Cache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("usage", &self.usage()).field("capacity", &self.capacity()).finish()
    }
}

impl<V: Send + Sync + 'static> ChargeTarget for Cache<V> {
    fn charge(&self, bytes: usize) -> Result<()> {
        if !self.reserve(bytes, None) {
            if self.strict_capacity_limit() {
                return Err(self.full(bytes));
            }
            self.count_past_capacity(bytes);
        }
        Ok(())
    }
    fn uncharge(&self, bytes: usize) {
        self.shared.get().usage.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Pins an entry of a [`Cache`]: its value stays, and stays counted, until the last handle is dropped.
pub struct Handle<V: Send + Sync + 'static>(NonNull<Node<V>>);

// SAFETY: `V` is `Send + Sync` (3), and the node's word is atomic.
unsafe impl<V: Send + Sync> Send for Handle<V> {}
// SAFETY: as above.
unsafe impl<V: Send + Sync> Sync for Handle<V> {}

impl<V: Send + Sync + 'static> Handle<V> {
    fn node(&self) -> &Node<V> {
        // SAFETY: our reference keeps it (1).
        unsafe { self.0.as_ref() }
    }
    /// What the entry was charged, bookkeeping included.
    pub fn charge(&self) -> usize {
        // SAFETY: as `node`.
        unsafe { self.node().charge() }
    }
    /// The entry's key.
    pub fn key(&self) -> CacheKey {
        // SAFETY: as `node`.
        unsafe { self.node().key() }
    }
    /// Says that nobody else will want the entry: it is to go as if it had not been found lately. Answers how often it was, by
    /// who holds this too; beyond a few the number means no more.
    pub fn retire(&self) -> u64 {
        self.node().forget_finds()
    }
    /// For finding the entry again with [`Cache::get_at`].
    pub fn hint(&self) -> SlotHint {
        SlotHint::of(self.node())
    }
}

impl<V: Send + Sync + 'static> Deref for Handle<V> {
    type Target = V;
    #[inline]
    fn deref(&self) -> &V {
        // SAFETY: our reference keeps it (1).
        unsafe { self.node().value() }
    }
}

impl<V: Send + Sync + 'static> Clone for Handle<V> {
    fn clone(&self) -> Self {
        self.node().add_reference();
        Self(self.0)
    }
}

impl<V: Send + Sync + 'static> Drop for Handle<V> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the reference is ours, and this is the last use of it (1).
        unsafe { Node::release(self.0) };
    }
}

impl<V: Send + Sync + fmt::Debug + 'static> fmt::Debug for Handle<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests;
