//! Entries, and the arena that they live in.
//!
//! A node never moves, and the memory of a node stays a node until the whole cache is gone, whatever
//! entry it holds meanwhile. That is what lets readers look at a node without a lock: the worst that a
//! late reader finds is another entry, which it tells by the key.
//!
//! # The state word
//!
//! ```text
//! bits  0..32   references
//! bits 32..48   how often it was found lately; what eviction looks at
//! bits 62..64   state
//!
//!            insert                     erase, evict with references
//!   FREE ----------------> VISIBLE --------------------------------> INVISIBLE
//!    ^                        | evict, erase without references          |
//!    +------------------------+------------------------------------------+
//!                                              last reference dropped
//! ```
//! Only who brings a node to FREE, and then inserts it again under the shard's lock, touches key, charge
//! and value; everybody else reads them, holding a reference that was taken while the node was VISIBLE.
//! References counted on a FREE node mean nothing: the next insertion overwrites them.
//!
//! # Safety argument
//! 1. A reference keeps its node from becoming FREE: every step to FREE is a compare-and-swap from a word
//!    with no references. So what a holder of a reference reads does not change meanwhile.
//! 2. The step to VISIBLE is a release store after key, charge and value were written; a reader's
//!    increment acquires it. The step to FREE acquires the releases of all references (they are all
//!    read-modify-writes, so the release sequence is not broken).
//! 3. Nodes are in zeroed chunks that are freed with the `Shared` they belong to, and all zeros are a
//!    valid FREE node. Whoever touches a node holds the `Shared`: by a `&Cache`, by a reference on a
//!    VISIBLE node, or by an anchor (see `shared.rs`).

use super::CacheKey;
use super::shard::Shard;
use super::shared::{Anchored, Shared};
use crate::block_memory::{BlockMemory, Piece};
use ironstone_base::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use ironstone_base::sync::plain;
use ironstone_base::sync::{Arc, Mutex};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

pub const REFERENCE: u64 = 1;
const REFERENCES: u64 = (1 << 32) - 1;
const FOUND: u64 = 1 << 32;
const FOUND_MASK: u64 = 0xffff << 32;
/// More finds than this say no more.
pub const FOUND_MAX: u64 = 3;
const STATE: u64 = 3 << 62;
const VISIBLE: u64 = 1 << 62;
const INVISIBLE: u64 = 2 << 62;
/// Far more references than there can be threads with handles; beyond it somebody leaks them in a loop.
const TOO_MANY: u64 = 1 << 31;

pub fn references(word: u64) -> u64 {
    word & REFERENCES
}
pub fn found(word: u64) -> u64 {
    (word & FOUND_MASK) / FOUND
}
pub fn is_visible(word: u64) -> bool {
    word & STATE == VISIBLE
}
fn is_invisible(word: u64) -> bool {
    word & STATE == INVISIBLE
}

/// What belongs to the shard: read and written under its lock only.
pub struct Links<V> {
    pub previous: *mut Node<V>,
    pub next: *mut Node<V>,
}

/// Room for one entry: a line of the processor's cache, and the value behind it.
#[repr(C, align(64))]
pub struct Node<V> {
    word: AtomicU64,
    key: UnsafeCell<CacheKey>,
    charge: UnsafeCell<usize>,
    pub links: UnsafeCell<Links<V>>,
    /// Set once, before the node is first used, as `number` is.
    shard: UnsafeCell<*const Shard<V>>,
    number: UnsafeCell<u32>,
    /// Which queue it is in: as the links.
    pub queue: UnsafeCell<u8>,
    value: UnsafeCell<MaybeUninit<V>>,
}
const _: () = assert!(std::mem::offset_of!(Node<u8>, value) < 64);

/// Asks the processor for the cache line at an address, which may be any: it is a hint, and nothing is read.
#[inline]
pub fn prefetch_line<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: prefetching has no effect that a program can see, and does not fault.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    let _ = at; // Elsewhere nothing is asked for.
}

/// Asks for all of a node but its value.
pub fn fetch<V>(node: *const Node<V>) {
    prefetch_line(node);
}

/// Asks for the whole of a node.
#[inline]
pub fn fetch_all<V>(node: *const Node<V>) {
    for at in (0..size_of::<Node<V>>()).step_by(64) {
        prefetch_line(node.wrapping_byte_add(at));
    }
}

/// What became of a node that lost its place in the cache.
pub enum Removed<V> {
    /// It is free now; this was its value.
    Free(V),
    /// The last reference frees it.
    Pinned,
}

impl<V> Node<V> {
    /// Makes it an entry with one reference: VISIBLE and found so many times, or INVISIBLE.
    ///
    /// # Safety
    /// The node is FREE, and the caller took it off the free list.
    pub unsafe fn fill(&self, key: CacheKey, value: V, charge: usize, visible: Option<u64>) {
        plain::wrote(self);
        // SAFETY: FREE, and ours alone (caller); nobody reads these fields of a FREE node (2).
        unsafe {
            *self.key.get() = key;
            *self.charge.get() = charge;
            (*self.value.get()).write(value);
        }
        let state = visible.map_or(INVISIBLE, |finds| VISIBLE | (finds * FOUND));
        self.word.store(state | REFERENCE, Ordering::Release); // Pairs with `acquire`.
    }

    /// Takes a reference if it is a visible entry of `key`.
    ///
    /// # Safety
    /// The `Shared` is held by a `&Cache`.
    #[inline]
    pub unsafe fn acquire(&self, key: &CacheKey) -> bool {
        let word = self.word.fetch_add(REFERENCE, Ordering::Acquire); // Pairs with `fill`.
        if is_visible(word) {
            plain::reads(self);
            // SAFETY: VISIBLE and we hold a reference (1, 2).
            if unsafe { *self.key.get() } == *key {
                if found(word) < FOUND_MAX {
                    // Threads may pass the maximum together, by at most their number. Relaxed: a hint.
                    self.word.fetch_add(FOUND, Ordering::Relaxed);
                }
                return true;
            }
            // SAFETY: ours, taken above.
            unsafe { Self::release(NonNull::from(self)) };
        } else if is_invisible(word) {
            // SAFETY: the caller's `&Cache` holds the `Shared`.
            unsafe { self.undo_on_invisible(word) };
        }
        // On a FREE node the increment means nothing.
        false
    }

    /// # Safety
    /// As [`Node::acquire`]; `word` is what its increment found.
    #[cold]
    unsafe fn undo_on_invisible(&self, word: u64) {
        if references(word) == 0 {
            // Somebody dropped the last reference and is about to free the node. Going back from one to
            // none is a second last drop, so it needs an anchor of its own.
            Anchored::add(self.shared());
        }
        // SAFETY: ours, taken by `acquire`.
        unsafe { Self::release(NonNull::from(self)) };
    }

    /// Forgets how often it was found lately, and answers that.
    pub fn forget_finds(&self) -> u64 {
        // Relaxed: a hint, as when it is counted.
        found(self.word.fetch_and(!FOUND_MASK, Ordering::Relaxed))
    }

    /// Takes another reference for who holds one.
    pub fn add_reference(&self) {
        // Relaxed: the reference that the caller holds already acquired everything.
        let word = self.word.fetch_add(REFERENCE, Ordering::Relaxed);
        if references(word) >= TOO_MANY {
            std::process::abort(); // As `Arc`: the count must not run over, and there is no way back.
        }
    }

    /// Gives a reference back. Takes a pointer, since the node may be gone before this returns.
    ///
    /// # Safety
    /// The caller holds one, and does not touch the node afterwards.
    #[inline]
    pub unsafe fn release(node: NonNull<Self>) {
        // SAFETY: the reference keeps the node (3) until it is given back, in this one step.
        let word = unsafe { (*node.as_ptr()).word.fetch_sub(REFERENCE, Ordering::Release) };
        if word & (STATE | REFERENCES) == INVISIBLE | REFERENCE {
            // SAFETY: this was the last reference on an invisible node, so an anchor came with it (3).
            unsafe { Self::free_invisible(node) };
        }
    }

    /// # Safety
    /// The caller dropped the last reference of an INVISIBLE node, and with it got an anchor.
    #[cold]
    unsafe fn free_invisible(node: NonNull<Self>) {
        // SAFETY: the anchor keeps the `Shared` and with it the node (3), until it is dropped at the end.
        let (this, _anchored) = unsafe { (node.as_ref(), Anchored::new(node.as_ref().shared())) };
        let mut word = this.word.load(Ordering::Relaxed);
        // A reader that came late may hold a reference for a moment: then its drop is the last one. Or
        // such a reader already freed the node, and this is another entry: then nothing is to be done,
        // or the same thing, if that one is invisible without references too.
        while is_invisible(word) && references(word) == 0 {
            match this.word.compare_exchange_weak(word, 0, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    // SAFETY: we brought it to FREE (1).
                    let (value, charge) = unsafe { this.take() };
                    drop(value);
                    this.shard().put_back(node, charge);
                    return;
                }
                Err(now) => word = now,
            }
        }
    }

    /// Takes the entry away if no reference is held. Under the shard's lock.
    pub fn evict(&self, word: u64) -> Result<V, u64> {
        debug_assert!(is_visible(word) && references(word) == 0);
        self.word.compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed)?;
        // SAFETY: we brought it to FREE (1).
        Ok(unsafe { self.take() }.0)
    }

    /// Takes the entry away; references keep it alive. Under the shard's lock, for a VISIBLE node.
    pub fn remove(&self) -> Removed<V> {
        let mut word = self.word();
        loop {
            debug_assert!(is_visible(word));
            if references(word) == 0 {
                match self.evict(word) {
                    Ok(value) => return Removed::Free(value),
                    Err(now) => word = now,
                }
                continue;
            }
            // The last reference comes with an anchor, so it has to exist before anybody can drop it.
            Anchored::add(self.shared());
            let invisible = word & !STATE | INVISIBLE;
            match self.word.compare_exchange(word, invisible, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Removed::Pinned,
                Err(now) => {
                    drop(Anchored::new(self.shared()));
                    word = now;
                }
            }
        }
    }

    /// Counts one find less; there was one. Under the shard's lock, and only there finds become fewer.
    pub fn forget_one_find(&self) {
        self.word.fetch_sub(FOUND, Ordering::Relaxed);
    }

    /// # Safety
    /// The caller brought the node to FREE, and so owns the entry.
    unsafe fn take(&self) -> (V, usize) {
        plain::wrote(self); // Nobody may read the entry from here on.
        // SAFETY: ours (caller), and initialized, since it was an entry (2).
        unsafe { ((*self.value.get()).assume_init_read(), *self.charge.get()) }
    }

    /// The word as it is now.
    pub fn word(&self) -> u64 {
        self.word.load(Ordering::Relaxed) // What is done about it compares and swaps.
    }

    /// # Safety
    /// The caller holds a reference, or the shard's lock while the node is VISIBLE.
    #[inline]
    pub unsafe fn value(&self) -> &V {
        plain::reads(self);
        // SAFETY: initialized before VISIBLE (2), and not freed meanwhile (1, or by the lock).
        unsafe { (*self.value.get()).assume_init_ref() }
    }
    /// # Safety
    /// As [`Node::value`].
    pub unsafe fn key(&self) -> CacheKey {
        // SAFETY: as `value`.
        unsafe { *self.key.get() }
    }
    /// # Safety
    /// As [`Node::value`].
    pub unsafe fn hash(&self) -> u64 {
        // SAFETY: as `value`.
        unsafe { *self.key.get() }.hash()
    }
    /// # Safety
    /// As [`Node::value`].
    pub unsafe fn charge(&self) -> usize {
        // SAFETY: as `value`.
        unsafe { *self.charge.get() }
    }

    /// The place of the node in its shard.
    pub fn number(&self) -> u32 {
        // SAFETY: written once, before the node was first used.
        unsafe { *self.number.get() }
    }
    /// Its shard.
    pub fn shard(&self) -> &Shard<V> {
        // SAFETY: written once, before the node was first used; the shard is part of the `Shared` (3).
        unsafe { &**self.shard.get() }
    }
    fn shared(&self) -> NonNull<Shared<V>> {
        self.shard().shared()
    }
}

const FIRST_CHUNK: usize = 64;
/// So many chunks are of one size; the next ones are twice as large, so a shard has room for a quarter more nodes at most.
const ALIKE: usize = 4;
const CHUNKS: usize = 100; // As many as nodes whose number is a u32 take.

/// The nodes of one shard: four chunks of 64 nodes, four of 64 again, four of 128, of 256, ...
pub struct Arena<V> {
    chunks: [AtomicPtr<Node<V>>; CHUNKS],
    memory: Option<Arc<BlockMemory>>,
    /// The chunks that are in `memory`; the others are on the heap.
    pieces: Mutex<Vec<Piece>>,
}

/// Chunk and place in it of a node's number.
#[inline]
fn place(number: usize) -> (usize, usize) {
    // How often the first four chunks' nodes were doubled before this node's chunk.
    let doubled = (number / (ALIKE * FIRST_CHUNK)).max(1).ilog2() as usize;
    let size_bits = FIRST_CHUNK.ilog2() as usize + doubled;
    (ALIKE * doubled + (number >> size_bits), number & ((1 << size_bits) - 1))
}

fn size(chunk: usize) -> usize {
    FIRST_CHUNK << (chunk / ALIKE).saturating_sub(1)
}

fn layout<V>(chunk: usize) -> Layout {
    Layout::array::<Node<V>>(size(chunk)).expect("a chunk is far below isize::MAX")
}

impl<V> Arena<V> {
    pub fn new(memory: Option<Arc<BlockMemory>>) -> Self {
        let chunks = std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut()));
        Self { chunks, memory, pieces: Mutex::default() }
    }

    /// The node of that number, if there is one; it may be FREE.
    #[inline]
    pub fn get(&self, number: u32) -> Option<NonNull<Node<V>>> {
        let (chunk, at) = place(number as usize);
        let start = NonNull::new(self.chunks.get(chunk)?.load(Ordering::Acquire))?; // Pairs with `grow`.
        // SAFETY: `place` gives a place inside of the chunk (checked by a test), which is allocated (3).
        Some(unsafe { start.add(at) })
    }

    /// Makes the node of `number` usable: the one after all others so far. Under the shard's lock.
    pub fn grow(&self, number: u32, shard: &Shard<V>) -> NonNull<Node<V>> {
        let (chunk, at) = place(number as usize);
        if at == 0 {
            let start = self.zeroed(layout::<V>(chunk)).cast::<Node<V>>().as_ptr();
            self.chunks[chunk].store(start, Ordering::Release); // Zeros are FREE nodes: pairs with `get`.
        }
        let node = self.get(number).expect("the chunk was allocated with its first node");
        // SAFETY: in a chunk (3). Nobody else knows the node as an entry yet, so nobody reads these fields.
        unsafe {
            *node.as_ref().number.get() = number;
            *node.as_ref().shard.get() = shard;
        }
        node
    }
}

impl<V> Arena<V> {
    /// Memory for a chunk.
    fn zeroed(&self, layout: Layout) -> NonNull<u8> {
        let which = std::ptr::from_ref(self).addr() as u64 / size_of::<Shard<V>>() as u64;
        if let Some(piece) = self.memory.as_ref().and_then(|memory| memory.allocate(layout, which, 0)) {
            let start = piece.pointer;
            // SAFETY: the piece is so long, and ours alone.
            unsafe { start.write_bytes(0, layout.size()) };
            self.pieces.lock().push(piece);
            return start;
        }
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) };
        NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout))
    }
}

impl<V> Drop for Arena<V> {
    fn drop(&mut self) {
        let pieces = std::mem::take(&mut *self.pieces.lock());
        for (chunk, start) in self.chunks.iter_mut().enumerate() {
            let start = *start.get_mut();
            let is_piece = || pieces.iter().any(|piece| piece.pointer.as_ptr() == start.cast());
            if !start.is_null() && !is_piece() {
                // SAFETY: allocated in `grow` with this layout; no node holds an entry any more, for each
                // entry is anchored or in a cache that lives.
                unsafe { dealloc(start.cast(), layout::<V>(chunk)) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_fill_chunks_without_gaps() {
        let mut expected = (0, 0);
        for number in 0..100_000 {
            assert_eq!(place(number), expected);
            expected.1 += 1;
            if expected.1 == size(expected.0) {
                expected = (expected.0 + 1, 0);
            }
        }
        let (chunk, at) = place(u32::MAX as usize);
        assert!(chunk < CHUNKS && at < size(chunk));
    }
}
