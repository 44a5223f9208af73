//! Finds a node by the hash of its key, without a lock.
//!
//! A line of 64 bytes holds seven nodes and the word of their tags:
//!
//! ```text
//! bytes 0..7 of the word   a tag (8 bits of the hash, never 0) for each node; 0: no node
//! byte  7 of the word      how many nodes had to pass this line because it was full; 255: sticky
//! ```
//! A search starts in the line of the hash and goes on while nodes have passed. Lines change under the
//! shard's lock only. A reader that looks meanwhile may miss a node that comes or goes, never one that
//! stays; what it finds may be another entry by then, so it compares keys.
//!
//! # Safety argument
//! 1. Lines are allocated zeroed, which is a valid empty line, and freed with the [`Index`], which lives
//!    as long as the `Shard`: outgrown ones are kept, since a reader may still look at them.
//! 2. The number of a line is masked by the count of lines, which is kept beside the pointer to them.

use super::node::{Node, prefetch_line};
use ironstone_base::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

const WAYS: usize = 7;
/// The average fill of a line at which the index is outgrown.
const FULL: usize = 5;
const PASSED: u64 = 1 << 56;
const STICKY: u64 = 0xff << 56;
const LOW_BITS: u64 = 0x0001_0101_0101_0101;
const HIGH_BITS: u64 = LOW_BITS << 7;

#[repr(C, align(64))]
pub struct Line<V> {
    tags: AtomicU64,
    nodes: [AtomicPtr<Node<V>>; WAYS],
}
const _: () = assert!(size_of::<Line<u8>>() == 64);

fn tag_of(hash: u64) -> u64 {
    ((hash >> 40) & 0xff).max(1)
}

impl<V> Line<V> {
    /// The nodes of that tag, perhaps among others: also such that left the line, and have another entry or none by now.
    #[inline]
    fn candidates(&self, word: u64, tag: u64) -> impl Iterator<Item = NonNull<Node<V>>> {
        // A byte of `differences` is zero where the tag is the same. The subtraction borrows into the
        // next byte, so a hit may be followed by a false one.
        let differences = word ^ (tag * LOW_BITS);
        let mut hits = differences.wrapping_sub(LOW_BITS) & !differences & HIGH_BITS;
        std::iter::from_fn(move || {
            while hits != 0 {
                let way = hits.trailing_zeros() as usize / 8;
                hits &= hits - 1;
                // Acquire: pairs with `put`; the node's fields are published by its own word anyway.
                if let Some(node) = NonNull::new(self.nodes[way].load(Ordering::Acquire)) {
                    return Some(node);
                }
            }
            None
        })
    }

    fn free_way(&self) -> Option<usize> {
        let word = self.tags.load(Ordering::Relaxed);
        (0..WAYS).find(|way| (word >> (8 * way)) & 0xff == 0)
    }

    fn put(&self, way: usize, tag: u64, node: NonNull<Node<V>>) {
        self.nodes[way].store(node.as_ptr(), Ordering::Release);
        let word = self.tags.load(Ordering::Relaxed);
        self.tags.store(word | tag << (8 * way), Ordering::Release); // After the node: pairs with `find`.
    }

    fn way_of(&self, node: NonNull<Node<V>>) -> Option<usize> {
        let word = self.tags.load(Ordering::Relaxed);
        let holds = |way: usize| self.nodes[way].load(Ordering::Relaxed) == node.as_ptr();
        (0..WAYS).find(|&way| (word >> (8 * way)) & 0xff != 0 && holds(way))
    }

    /// Leaves the pointer: a reader that saw the tag may be on its way to it.
    fn clear(&self, way: usize) {
        let word = self.tags.load(Ordering::Relaxed);
        self.tags.store(word & !(0xff << (8 * way)), Ordering::Relaxed);
    }

    fn count_passing(&self, up: bool) {
        let word = self.tags.load(Ordering::Relaxed);
        if word & STICKY != STICKY {
            let word = if up { word + PASSED } else { word - PASSED };
            self.tags.store(word, Ordering::Release);
        }
    }
}

/// One size of the table.
pub struct Index<V> {
    lines: NonNull<Line<V>>,
    count_log2: u32,
}

// SAFETY: it owns its lines, and changes go through atomics; nodes are shared by their own rules.
unsafe impl<V: Send + Sync> Send for Index<V> {}
// SAFETY: as above.
unsafe impl<V: Send + Sync> Sync for Index<V> {}

/// A pointer to the lines with the logarithm of their count in the bits that alignment leaves: one load.
#[derive(Clone, Copy)]
pub struct PackedIndex<V>(*mut Line<V>);

impl<V> PackedIndex<V> {
    pub fn from_raw(raw: *mut Line<V>) -> Self {
        Self(raw)
    }
    pub fn into_raw(self) -> *mut Line<V> {
        self.0
    }

    /// The first node of `hash` that `accept` takes.
    ///
    /// # Safety
    /// The [`Index`] that it was packed from is alive.
    #[inline]
    pub unsafe fn find(
        self,
        hash: u64,
        mut accept: impl FnMut(NonNull<Node<V>>) -> bool,
    ) -> Option<NonNull<Node<V>>> {
        let mask = (1usize << (self.0.addr() & 63)) - 1;
        let lines = self.0.map_addr(|address| address & !63);
        let tag = tag_of(hash);
        let mut at = hash as usize & mask;
        for _ in 0..=mask {
            // SAFETY: alive (caller, 1) and in bounds (2).
            let line = unsafe { &*lines.add(at) };
            let word = line.tags.load(Ordering::Acquire); // Pairs with `put` and `count_passing`.
            if let Some(node) = line.candidates(word, tag).find(|&node| accept(node)) {
                return Some(node);
            }
            if word < PASSED {
                return None;
            }
            at = (at + 1) & mask;
        }
        None
    }
}

impl<V> Index<V> {
    /// An empty table with room for `entries` nodes.
    pub fn with_room_for(entries: usize) -> Self {
        let count_log2 = (entries / FULL + 1).next_power_of_two().ilog2();
        let layout = Self::layout(count_log2);
        // SAFETY: the layout is not empty.
        let lines = unsafe { alloc_zeroed(layout) }.cast::<Line<V>>();
        let Some(lines) = NonNull::new(lines) else { handle_alloc_error(layout) };
        Self { lines, count_log2 }
    }

    fn layout(count_log2: u32) -> Layout {
        Layout::array::<Line<V>>(1 << count_log2).expect("an index is far below isize::MAX")
    }

    /// How many nodes it takes before it is outgrown.
    pub fn room(&self) -> usize {
        FULL << self.count_log2
    }

    pub fn packed(&self) -> PackedIndex<V> {
        PackedIndex(self.lines.as_ptr().map_addr(|address| address | self.count_log2 as usize))
    }

    fn line(&self, at: u64) -> &Line<V> {
        let at = at as usize & ((1 << self.count_log2) - 1);
        // SAFETY: allocated (1) and in bounds (2).
        unsafe { self.lines.add(at).as_ref() }
    }

    /// Asks for the memory where a node of that hash is, most likely.
    pub fn fetch(&self, hash: u64) {
        prefetch_line(self.line(hash));
    }

    /// Adds a node; there is room. Under the shard's lock.
    pub fn insert(&self, hash: u64, node: NonNull<Node<V>>) {
        let mut at = hash;
        loop {
            let line = self.line(at);
            if let Some(way) = line.free_way() {
                return line.put(way, tag_of(hash), node);
            }
            line.count_passing(true);
            at = at.wrapping_add(1);
        }
    }

    /// Removes a node that is there. Under the shard's lock.
    pub fn remove(&self, hash: u64, node: NonNull<Node<V>>) {
        let mut at = hash;
        loop {
            let line = self.line(at);
            if let Some(way) = line.way_of(node) {
                return line.clear(way);
            }
            line.count_passing(false);
            at = at.wrapping_add(1);
        }
    }
}

impl<V> Drop for Index<V> {
    fn drop(&mut self) {
        // SAFETY: allocated in `with_room_for` with this layout.
        unsafe { dealloc(self.lines.as_ptr().cast(), Self::layout(self.count_log2)) };
    }
}
