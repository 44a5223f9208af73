//! The nodes of the radix tree.
//!
//! ```text
//! meta     u32        lock | replaced | prefix is a witness | versions | kind | end slot | count
//! level    u32        how many symbols of the keys come before the one that decides here
//! keys     N bytes    the deciding byte of each child, in the order of arrival; to a multiple of 4
//! prefix   u32        the last 4 bytes before `level`, or the witness: an entry below this node
//! children N x u32    in the same order
//! ```
//! N is 4, 10, 23 or 60, so that nodes fill half a cache line, one, two or five. The fifth kind has
//! no keys but 257 children, by byte; the last one is for keys that end here. In the others that
//! child takes a slot as every other one, and `meta` says which (plus 1; 0 for none). Slots are only
//! ever added, and a full node is replaced by a larger copy, so a reader needs no lock and may go on
//! reading a node that has been replaced.
//!
//! # Safety argument
//! 1. A node is initialized before its index is published (Release) and lives as long as the tree.
//!    A [`Node<'a>`] borrows the tree for `'a`.
//! 2. `kind`, `level`, `prefix` and the two flags never change. Everything else is atomic.
//! 3. Offsets follow from `kind`, and the piece was allocated with the size of that kind.
//! 4. Slot `i` is written before `count` grows past it (Release), and read after `count` (Acquire).

use crate::arena::PieceIndex;
use crate::prefetch::CACHE_LINE;
use ironstone_base::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use ironstone_base::sync::{plain, thread};
use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ptr::NonNull;

const LOCKED: u32 = 1 << 31;
const REPLACED: u32 = 1 << 30;
const WITNESS: u32 = 1 << 29;
const VERSIONS: u32 = 1 << 28;
const KIND_AT: u32 = 16;
const END_AT: u32 = 10;
const COUNT: u32 = (1 << END_AT) - 1;
const END: u32 = 63 << END_AT;

/// Offsets in a node.
const LEVEL: usize = 4;
const KEYS: usize = 8;
const CAPACITY: [usize; 5] = [4, 10, 23, 60, 257];
const KEY_BYTES: [usize; 5] = [4, 12, 24, 60, 0];
/// The kind that is indexed by byte.
const FULL: usize = 4;
const END_CHILD: usize = 256;

/// What a slot leads to: 0 for nothing, otherwise a piece index; the top bit tells entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Child(u32);

impl Child {
    const ENTRY: u32 = 1 << 31;
    pub fn entry(index: PieceIndex) -> Self {
        Self(index.0 | Self::ENTRY)
    }
    pub fn node(index: PieceIndex) -> Self {
        Self(index.0)
    }
    #[inline]
    pub fn is_entry(self) -> bool {
        self.0 & Self::ENTRY != 0
    }
    #[inline]
    pub fn index(self) -> PieceIndex {
        PieceIndex(self.0 & !Self::ENTRY)
    }
    #[inline]
    fn from_slot(slot: u32) -> Option<Self> {
        (slot != 0).then_some(Self(slot))
    }
}

/// One step of a key: a byte, or that the key ends. The number is the place in the order, which is
/// before all bytes or after them: [`END_FIRST`] or [`END_LAST`], the same in all of a tree.
pub(crate) type Symbol = i16;
pub(crate) const END_FIRST: Symbol = -1;
pub(crate) const END_LAST: Symbol = 256;

fn as_byte(symbol: Symbol) -> Option<u8> {
    u8::try_from(symbol).ok()
}

/// What comes between a node and its parent.
#[derive(Clone, Copy)]
pub(crate) enum Prefix {
    /// The last 4 bytes before the level.
    Bytes([u8; 4]),
    /// An entry below the node, which has the same symbols.
    Witness(PieceIndex),
}

/// What a new node is made of, its children apart.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub level: u32,
    pub prefix: Prefix,
    /// Whether all entries below have the same user key.
    pub versions: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    address: NonNull<u8>,
    tree: PhantomData<&'a AtomicU32>,
}

/// A node whose lock is held.
pub(crate) struct LockedNode<'a> {
    node: Node<'a>,
    meta: u32,
}

/// The slots of a node in order, as they were when a walk first went from one child to another, and
/// where the walk is.
pub(crate) struct SlotOrder {
    slots: [u8; 64],
    len: u8,
    /// How many children come before the place of the walk.
    before: u8,
    /// Whether the walk stands on a child (and not between two).
    on_child: bool,
    kind: u8,
}

/// Which way a walk goes.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Direction {
    #[default]
    Forward,
    Backward,
}

impl SlotOrder {
    /// Counts for each of at most N keys how many others are smaller: that is its place.
    fn sort<const N: usize>(&mut self, node: Node<'_>, meta: u32) {
        let (kind, used) = (kind_of(meta), used_slots(meta));
        let mut keys = [0u8; N];
        for (first, word) in (0..KEY_BYTES[kind]).step_by(8).zip(keys.as_chunks_mut().0) {
            *word = node.keys_from(kind, first).to_le_bytes();
        }
        let in_use = (0..count_of(meta)).filter(|slot| (used >> slot) & 1 != 0);
        let mut places = [self.len; N];
        for slot in in_use.clone() {
            let key = keys[slot];
            for (place, other) in places.iter_mut().zip(&keys) {
                *place += u8::from(*other > key);
            }
        }
        for slot in in_use {
            self.slots[places[slot] as usize % 64] = slot as u8;
            self.len += 1;
        }
    }

    fn add_end_slot(&mut self, meta: u32) {
        if let Some(slot) = end_slot(meta) {
            self.slots[self.len as usize] = slot as u8;
            self.len += 1;
        }
    }

    /// Moves to the next child, if there is one. Answers its slot.
    #[inline]
    fn step(&mut self, direction: Direction) -> Option<u8> {
        match direction {
            Direction::Forward => {
                self.before += u8::from(self.on_child);
                self.on_child = self.before < self.len;
            }
            Direction::Backward => {
                self.on_child = self.before > 0;
                self.before -= u8::from(self.on_child);
            }
        }
        self.on_child.then(|| self.slots[self.before as usize % 64])
    }

    /// The slot that a step would lead to.
    fn peek(&self, direction: Direction) -> Option<u8> {
        let index = match direction {
            Direction::Forward => self.before + u8::from(self.on_child),
            Direction::Backward => self.before.checked_sub(1)?,
        };
        (index < self.len).then(|| self.slots[index as usize])
    }
}

const fn kind_of(meta: u32) -> usize {
    (meta >> KIND_AT & 7) as usize
}
const fn count_of(meta: u32) -> usize {
    (meta & COUNT) as usize
}

const fn prefix_at(kind: usize) -> usize {
    KEYS + KEY_BYTES[kind]
}
const fn children_at(kind: usize) -> usize {
    prefix_at(kind) + 4
}
pub(crate) const fn size_of_kind(kind: usize) -> usize {
    let used = children_at(kind) + CAPACITY[kind] * 4;
    if kind == SMALLEST { used } else { used.next_multiple_of(CACHE_LINE) }
}
const _: () = assert!(size_of_kind(SMALLEST) == CACHE_LINE / 2 && size_of_kind(1) == CACHE_LINE);
const _: () = assert!(size_of_kind(2) == 2 * CACHE_LINE && size_of_kind(3) == 5 * CACHE_LINE);

/// The kind of a node that is made for two children.
pub(crate) const SMALLEST: usize = 0;
/// The kind of the root, which is never full.
pub(crate) const LARGEST: usize = FULL;

impl<'a> Node<'a> {
    /// # Safety
    /// `address` is a node of a tree that is borrowed for `'a` (1).
    #[inline]
    pub unsafe fn at(address: NonNull<u8>) -> Self {
        Self { address, tree: PhantomData }
    }

    /// Makes a node without children.
    ///
    /// # Safety
    /// `address` leads to [`size_of_kind`] bytes that are the caller's alone and live for `'a`.
    pub unsafe fn create(address: NonNull<u8>, kind: usize, shape: Shape) -> Self {
        // SAFETY: the caller's memory; all zeros are valid atomics.
        unsafe { address.write_bytes(0, size_of_kind(kind)) };
        let node = Self { address, tree: PhantomData };
        let mut meta = (kind as u32) << KIND_AT;
        if shape.versions {
            meta |= VERSIONS;
        }
        let prefix = match shape.prefix {
            Prefix::Bytes(bytes) => u32::from_le_bytes(bytes),
            Prefix::Witness(entry) => {
                meta |= WITNESS;
                entry.0
            }
        };
        node.meta().store(meta, Relaxed); // Whoever publishes the node publishes this.
        // SAFETY: inside the node, aligned, and still the caller's alone.
        unsafe {
            address.add(LEVEL).cast().write(shape.level);
            address.add(prefix_at(kind)).cast().write(prefix);
        }
        plain::wrote(address.as_ptr());
        node
    }

    #[inline]
    fn meta(self) -> &'a AtomicU32 {
        // SAFETY: a node starts with it (1, 3).
        unsafe { self.address.cast().as_ref() }
    }
    /// See the head of the file.
    #[inline]
    pub fn level(self) -> usize {
        plain::reads(self.address.as_ptr());
        // SAFETY: never changes (2).
        unsafe { self.address.add(LEVEL).cast::<u32>().read() as usize }
    }
    /// Whether all entries below have the same user key.
    #[inline]
    pub fn has_versions_only(self) -> bool {
        self.meta().load(Relaxed) & VERSIONS != 0 // Never changes (2).
    }
    /// See the head of the file.
    #[inline]
    pub fn prefix(self) -> Prefix {
        let meta = self.meta().load(Relaxed); // The parts used here never change (2).
        // SAFETY: never changes (2); placed by kind (3).
        let prefix: u32 = unsafe { self.address.add(prefix_at(kind_of(meta))).cast().read() };
        match meta & WITNESS {
            0 => Prefix::Bytes(prefix.to_le_bytes()),
            _ => Prefix::Witness(PieceIndex(prefix)),
        }
    }
    fn shape(self) -> Shape {
        Shape { level: self.level() as u32, prefix: self.prefix(), versions: self.has_versions_only() }
    }
    #[inline]
    fn child_slot(self, kind: usize, slot: usize) -> &'a AtomicU32 {
        debug_assert!(slot < CAPACITY[kind]);
        // SAFETY: slots are below the capacity of the kind (3).
        unsafe { self.address.add(children_at(kind) + slot * 4).cast().as_ref() }
    }
    /// Eight keys, as a number whose lowest byte is the first one. `first` is a multiple of 8.
    #[inline]
    fn keys_from(self, kind: usize, first: usize) -> u64 {
        debug_assert!(first < KEY_BYTES[kind]);
        // SAFETY: the keys of a kind are 8-byte words and perhaps one 4-byte word at the end (3).
        unsafe {
            let word = self.address.add(KEYS + first);
            if first + 8 <= KEY_BYTES[kind] {
                word.cast::<AtomicU64>().as_ref().load(Relaxed)
            } else {
                word.cast::<AtomicU32>().as_ref().load(Relaxed) as u64
            }
        }
    }
    /// Call with the lock held, or before the node is published.
    fn set_key(self, kind: usize, slot: usize, byte: u8) {
        let first = slot & !7;
        let shift = (slot - first) * 8;
        let word = self.keys_from(kind, first) & !(0xff << shift) | (byte as u64) << shift;
        // SAFETY: as in `keys_from`.
        unsafe {
            let at = self.address.add(KEYS + first);
            if first + 8 <= KEY_BYTES[kind] {
                at.cast::<AtomicU64>().as_ref().store(word, Relaxed);
            } else {
                at.cast::<AtomicU32>().as_ref().store(word as u32, Relaxed);
            }
        }
    }

    /// The slot of `byte` in a node that has keys.
    #[inline]
    fn slot_of_byte(self, meta: u32, byte: u8) -> Option<usize> {
        let matches = match kind_of(meta) {
            0 => matches8(self.keys_from(0, 0), byte),
            1 => self.matches16(1, 0, byte),
            2 => self.matches16(2, 0, byte) | matches8(self.keys_from(2, 16), byte) << 16,
            _ => {
                self.matches16(3, 0, byte)
                    | self.matches16(3, 16, byte) << 16
                    | self.matches16(3, 32, byte) << 32
                    | self.matches16(3, 48, byte) << 48
            }
        };
        let matches = matches & used_slots(meta);
        (matches != 0).then(|| matches.trailing_zeros() as usize)
    }
    #[inline]
    fn matches16(self, kind: usize, first: usize, byte: u8) -> u64 {
        matches16(self.keys_from(kind, first), self.keys_from(kind, first + 8), byte)
    }

    #[inline]
    fn slot_of(self, meta: u32, symbol: Symbol) -> Option<usize> {
        match (as_byte(symbol), kind_of(meta)) {
            (Some(byte), FULL) => Some(byte as usize),
            (Some(byte), _) => self.slot_of_byte(meta, byte),
            (None, FULL) => Some(END_CHILD),
            (None, _) => end_slot(meta),
        }
    }

    /// The child for a byte.
    #[inline]
    pub fn child_of_byte(self, byte: u8) -> Option<Child> {
        let meta = self.meta().load(Acquire); // (4)
        let kind = kind_of(meta);
        let slot = if kind == FULL { byte as usize } else { self.slot_of_byte(meta, byte)? };
        // Acquire: whoever reads the child was made before it was put here.
        Child::from_slot(self.child_slot(kind, slot).load(Acquire))
    }

    /// The child for a symbol.
    #[inline]
    pub fn child_of(self, symbol: Symbol) -> Option<Child> {
        let meta = self.meta().load(Acquire); // (4)
        let slot = self.slot_of(meta, symbol)?;
        Child::from_slot(self.child_slot(kind_of(meta), slot).load(Acquire))
    }

    /// The order of the children for a walk that is at `symbol`; nothing for the largest kind, whose
    /// slots are in order. `end` is the place of the end in the order.
    pub fn slot_order(self, symbol: Symbol, end: Symbol) -> Option<SlotOrder> {
        let meta = self.meta().load(Acquire); // (4)
        let kind = kind_of(meta);
        if kind == FULL {
            return None;
        }
        let mut order = SlotOrder { slots: [0; 64], len: 0, before: 0, on_child: false, kind: kind as u8 };
        if end == END_FIRST {
            order.add_end_slot(meta);
        }
        match kind {
            0 | 1 => order.sort::<16>(self, meta),
            2 => order.sort::<32>(self, meta),
            _ => order.sort::<64>(self, meta),
        }
        if end == END_LAST {
            order.add_end_slot(meta);
        }
        let symbol_of = |slot: &u8| match end_slot(meta) {
            Some(at) if at == *slot as usize => end,
            _ => self.key_of_slot(kind, *slot as usize) as Symbol,
        };
        let slots = &order.slots[..order.len as usize];
        let before = slots.iter().take_while(|slot| symbol_of(slot) < symbol).count();
        order.on_child = slots.get(before).is_some_and(|slot| symbol_of(slot) == symbol);
        order.before = before as u8;
        Some(order)
    }

    /// Moves `order`, which is of this node, to the next child.
    #[inline]
    pub fn step(self, order: &mut SlotOrder, direction: Direction) -> Option<Child> {
        order.step(direction).map(|slot| self.child_at(order.kind, slot))
    }
    /// The child that [`step`](Self::step) would lead to.
    #[inline]
    pub fn peek(self, order: &SlotOrder, direction: Direction) -> Option<Child> {
        order.peek(direction).map(|slot| self.child_at(order.kind, slot))
    }
    #[inline]
    fn child_at(self, kind: u8, slot: u8) -> Child {
        Child(self.child_slot(kind as usize, slot as usize).load(Acquire))
    }

    /// The child next to `symbol` in a node of the largest kind.
    pub fn neighbour(self, symbol: Symbol, end: Symbol, direction: Direction) -> Option<(Symbol, Child)> {
        let (first, last) = (end.min(0), end.max(255));
        let found = |symbol| Some((symbol, self.child_of(symbol)?));
        match direction {
            Direction::Forward => (first.max(symbol + 1)..=last).find_map(found),
            Direction::Backward => (first..=last.min(symbol - 1)).rev().find_map(found),
        }
    }

    fn key_of_slot(self, kind: usize, slot: usize) -> u8 {
        (self.keys_from(kind, slot & !7) >> (slot % 8 * 8)) as u8
    }

    /// Which part of what is below comes before a place in the child of `symbol`, if that is behind
    /// the part `inside` of the child and all children weigh the same.
    pub fn share_before(self, symbol: Symbol, inside: f64, end: Symbol) -> f64 {
        let present = (0..256).chain([end]).filter(|other| self.child_of(*other).is_some());
        let (mut before, mut all) = (0.0, 0.0);
        for other in present {
            all += 1.0;
            before += match other.cmp(&symbol) {
                Ordering::Less => 1.0,
                Ordering::Equal => inside,
                Ordering::Greater => 0.0,
            };
        }
        if all > 0.0 { before / all } else { 0.0 }
    }

    /// Where the node starts.
    pub fn address(self) -> NonNull<u8> {
        self.address
    }

    /// Adds a child to a node that nobody else sees yet.
    pub fn add_unpublished(self, symbol: Symbol, child: Child) {
        let mut locked = LockedNode { node: self, meta: self.meta().load(Relaxed) };
        let added = locked.add(symbol, child);
        debug_assert!(added);
        self.meta().store(locked.meta, Relaxed);
        std::mem::forget(locked);
    }

    /// Takes the lock. Fails if the node has been replaced.
    pub fn lock(self) -> Option<LockedNode<'a>> {
        let mut waited = 0u32;
        loop {
            let meta = self.meta().load(Relaxed);
            if meta & REPLACED != 0 {
                return None;
            }
            if meta & LOCKED == 0
                && self.meta().compare_exchange_weak(meta, meta | LOCKED, Acquire, Relaxed).is_ok()
            {
                return Some(LockedNode { node: self, meta });
            }
            waited += 1;
            if waited.is_multiple_of(64) {
                thread::yield_now(); // The holder may have lost its core.
            } else {
                thread::spin_loop();
            }
        }
    }
}

impl<'a> LockedNode<'a> {
    /// The child for a symbol.
    pub fn child_of(&self, symbol: Symbol) -> Option<Child> {
        self.node.child_of(symbol)
    }

    /// Adds a child for a symbol that has none. Fails if there is no room.
    pub fn add(&mut self, symbol: Symbol, child: Child) -> bool {
        let (kind, count) = (kind_of(self.meta), count_of(self.meta));
        let slot = match as_byte(symbol) {
            Some(byte) if kind == FULL => byte as usize,
            None if kind == FULL => END_CHILD,
            _ if count == CAPACITY[kind] => return false,
            Some(byte) => {
                self.node.set_key(kind, count, byte);
                count
            }
            None => {
                self.meta |= (count as u32 + 1) << END_AT;
                count
            }
        };
        self.node.child_slot(kind, slot).store(child.0, Release);
        self.meta += 1; // Published by the store that unlocks (4).
        true
    }

    /// Puts `child` where a child is.
    pub fn replace(&mut self, symbol: Symbol, child: Child) {
        let slot =
            self.node.slot_of(self.meta, symbol).expect("the child to replace was seen under the lock");
        self.node.child_slot(kind_of(self.meta), slot).store(child.0, Release);
    }

    /// The kind of node that has room for one more child than this one, which is full.
    pub fn larger_kind(&self) -> usize {
        kind_of(self.meta) + 1
    }

    /// Copies everything into a new node.
    ///
    /// # Safety
    /// As for [`Node::create`], with a size of [`larger_kind`](Self::larger_kind).
    pub unsafe fn grow_into(&self, address: NonNull<u8>) -> Node<'a> {
        // SAFETY: the caller's word.
        let copy = unsafe { Node::create(address, self.larger_kind(), self.node.shape()) };
        let kind = kind_of(self.meta);
        let end = end_slot(self.meta);
        for slot in 0..count_of(self.meta) {
            let child = Child(self.node.child_slot(kind, slot).load(Relaxed)); // Changed under the lock only.
            let byte = self.node.key_of_slot(kind, slot);
            copy.add_unpublished(if end == Some(slot) { END_FIRST } else { byte as Symbol }, child);
        }
        copy
    }

    /// Unlocks a node that a copy has replaced. Writers that still come here start over.
    pub fn mark_replaced(mut self) {
        self.meta |= REPLACED;
    }
}

impl Drop for LockedNode<'_> {
    fn drop(&mut self) {
        self.node.meta().store(self.meta, Release); // (4)
    }
}

/// The slot of the child for keys that end here, in a node that has keys.
#[inline]
fn end_slot(meta: u32) -> Option<usize> {
    (((meta & END) >> END_AT) as usize).checked_sub(1)
}

/// The slots that have a byte.
#[inline]
fn used_slots(meta: u32) -> u64 {
    let end = 1u64 << ((meta & END) >> END_AT) >> 1; // Nothing when there is no end slot.
    ((1 << count_of(meta)) - 1) & !end
}

/// Which of the 8 bytes of `keys` are `byte`.
#[inline]
fn matches8(keys: u64, byte: u8) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let differences = keys ^ (byte as u64).wrapping_mul(0x0101_0101_0101_0101);
    let zeros = !(((differences & LOW) + LOW) | differences | LOW) >> 7;
    zeros.wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// Which of the 16 bytes of two words are `byte`.
#[inline]
fn matches16(low: u64, high: u64, byte: u8) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};
        // SAFETY: every x86-64 processor has SSE2.
        #[allow(unused_unsafe)]
        unsafe {
            let keys = _mm_set_epi64x(high as i64, low as i64);
            _mm_movemask_epi8(_mm_cmpeq_epi8(keys, _mm_set1_epi8(byte as i8))) as u16 as u64
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        matches8(low, byte) | matches8(high, byte) << 8
    }
}

#[cfg(test)]
mod tests;
