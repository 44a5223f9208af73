//! What a cache and its handles share, and how long it lives.
//!
//! The cache holds one *anchor*. Every INVISIBLE node that is referenced holds one, for its last
//! reference to free it with. A handle on a VISIBLE node needs none: the cache makes all nodes FREE or
//! INVISIBLE before it lets go of its own. The last anchor frees everything.
//!
//! # Safety argument
//! 1. An anchor is only added by who has one: the cache while somebody borrows it.
//! 2. The anchors released pair with the acquire of the last one, which alone frees.

use super::shard::Shard;
use crate::block_memory::BlockMemory;
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// The most shards a cache has.
pub const MAX_SHARDS: usize = 64;

pub struct Shared<V> {
    pub shards: [Shard<V>; MAX_SHARDS],
    pub shard_mask: usize,
    pub usage: AtomicUsize,
    pub capacity: AtomicUsize,
    pub strict: AtomicBool,
    pub next_file_id: AtomicU64,
    /// The shard that is asked next to make room.
    pub hand: AtomicUsize,
    anchors: AtomicUsize,
}

impl<V> Shared<V> {
    /// On the heap, with one anchor, the caller's.
    pub fn create(
        shards: usize,
        capacity: usize,
        strict: bool,
        room_per_shard: usize,
        memory: Option<&Arc<BlockMemory>>,
    ) -> Anchored<V> {
        debug_assert!(shards.is_power_of_two() && shards <= MAX_SHARDS);
        let place = NonNull::from(Box::leak(Box::<Self>::new_uninit())).cast::<Self>();
        let room = |shard| if shard < shards { room_per_shard } else { 0 };
        let shared = Self {
            shards: std::array::from_fn(|shard| Shard::new(room(shard), memory.cloned(), place, shard)),
            shard_mask: shards - 1,
            usage: AtomicUsize::new(0),
            capacity: AtomicUsize::new(capacity),
            strict: AtomicBool::new(strict),
            next_file_id: AtomicU64::new(1),
            hand: AtomicUsize::new(0),
            anchors: AtomicUsize::new(1),
        };
        // SAFETY: the place is ours and of the right size; the shards know its address but do not use it.
        unsafe { place.write(shared) };
        Anchored::new(place)
    }
}

/// Holds one anchor.
pub struct Anchored<V> {
    shared: NonNull<Shared<V>>,
    owns: PhantomData<Shared<V>>,
}

// SAFETY: it shares what is behind it, which is made for that: atomics, locks, and nodes by their rules.
unsafe impl<V: Send + Sync> Send for Anchored<V> {}
// SAFETY: as above.
unsafe impl<V: Send + Sync> Sync for Anchored<V> {}

impl<V> Anchored<V> {
    /// Adds an anchor for somebody who will take it with [`Anchored::new`].
    pub fn add(shared: NonNull<Shared<V>>) {
        // SAFETY: the caller has an anchor, or borrows a cache that has (1). Relaxed: as `Arc::clone`.
        unsafe { &(*shared.as_ptr()).anchors }.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes over an anchor that exists.
    pub fn new(shared: NonNull<Shared<V>>) -> Self {
        Self { shared, owns: PhantomData }
    }

    /// For adding anchors.
    pub fn pointer(&self) -> NonNull<Shared<V>> {
        self.shared
    }

    #[inline]
    pub fn get(&self) -> &Shared<V> {
        // SAFETY: our anchor keeps it.
        unsafe { self.shared.as_ref() }
    }
}

impl<V> Drop for Anchored<V> {
    fn drop(&mut self) {
        // SAFETY: ours until this step.
        let anchors = unsafe { &(*self.shared.as_ptr()).anchors }.fetch_sub(1, Ordering::Release);
        if anchors == 1 {
            // Pairs with the releases of the others. A load, since ThreadSanitizer does not understand fences.
            // SAFETY: ours was the last anchor, so nobody else frees it (2).
            unsafe { &(*self.shared.as_ptr()).anchors }.load(Ordering::Acquire);
            // SAFETY: made by `Box::leak` in `create`, and ours was the last anchor (2).
            drop(unsafe { Box::from_raw(self.shared.as_ptr()) });
        }
    }
}
