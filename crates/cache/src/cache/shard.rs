//! A shard: an index for readers, and behind a lock what inserts and evicts.
//!
//! Eviction is S3-FIFO: new entries go to a small queue, a tenth of the shard. Who was found there moves
//! on to the main queue, who was not is evicted, and its hash remembered for a while: if it comes back, it
//! goes to the main queue at once. The main queue gives another round to who was found since the last.
//! So a scan passes through the small queue and leaves the rest alone.
//!
//! # Safety argument
//! 1. Nodes in a queue are VISIBLE, and only who has the lock takes them out of the queue or out of that
//!    state. Links are only touched under the lock.

use super::CacheKey;
use super::Priority;
use super::index::{Index, Line, PackedIndex};
use super::node::{Arena, FOUND_MAX, Node, Removed, fetch, fetch_all, found, is_visible, references};
use super::shared::Shared;
use crate::block_memory::BlockMemory;
use ironstone_base::sync::atomic::{AtomicPtr, Ordering};
use ironstone_base::sync::{Arc, Mutex};
use smallvec::SmallVec;
use std::ptr::NonNull;

/// Values that lost their place, to be dropped after the lock is.
pub type Dropped<V> = SmallVec<[V; 8]>;

/// One of these is not enough reason to scan a whole shard of pinned entries on each insertion.
const PINNED_PER_VISIT: usize = 64;
/// The small queue gets one part in so many.
const SMALL_PART: usize = 10;

/// By the last so many newcomers it is judged whether the next are worth their place: they are if at least [`WORTH_IT`] of
/// those were found in the small queue, or would have been.
const JUDGED: u32 = 256;
const WORTH_IT: u32 = 8;

const SMALL: u8 = 0;
const MAIN: u8 = 1;

/// Oldest at the front.
struct Queue<V> {
    first: *mut Node<V>,
    last: *mut Node<V>,
    bytes: usize,
    len: usize,
}

/// Hashes of entries that left the small queue, each with the time in evictions.
struct Ghosts {
    slots: Vec<(u32, u32)>,
    time: u32,
}

impl Ghosts {
    fn slot(&mut self, hash: u64) -> Option<&mut (u32, u32)> {
        let mask = self.slots.len().checked_sub(1)?;
        self.slots.get_mut(hash as usize & mask)
    }
    fn remember(&mut self, hash: u64, entries: usize) {
        let wanted = entries.next_power_of_two().clamp(16, 1 << 20);
        if self.slots.len() < wanted {
            self.slots = vec![(0, 0); wanted]; // Forgets them all; it doubles, so seldom.
        }
        self.time = self.time.wrapping_add(1);
        let time = self.time;
        if let Some(slot) = self.slot(hash) {
            *slot = ((hash >> 32) as u32, time);
        }
    }
    /// How many left, or were turned away, since one of that hash was, if no more than `entries`.
    fn age(&mut self, hash: u64, entries: usize) -> Option<usize> {
        let now = self.time;
        let slot = self.slot(hash).filter(|slot| slot.0 == (hash >> 32) as u32 && slot.1 != 0)?;
        Some(now.wrapping_sub(slot.1) as usize).filter(|&age| age <= entries)
    }
    /// Whether it has an age, which it has no longer.
    fn take(&mut self, hash: u64, entries: usize) -> bool {
        let known = self.age(hash, entries).is_some();
        if let Some(slot) = self.slot(hash).filter(|_| known) {
            *slot = (0, 0);
        }
        known
    }
}

/// Whether it is worth its while to take in those who come for the first time.
#[derive(Default)]
struct Newcomers {
    found: u32,
    not_found: u32,
    /// They are turned away.
    is_closed: bool,
}

impl Newcomers {
    /// One has left the small queue, or was turned away: was it found there, or would it have been?
    fn note(&mut self, found: bool) {
        *(if found { &mut self.found } else { &mut self.not_found }) += 1;
        if self.found + self.not_found >= JUDGED {
            self.is_closed = self.found < WORTH_IT;
            (self.found, self.not_found) = (0, 0);
        }
    }
    fn note_departure(&mut self, found: bool) {
        if !self.is_closed {
            self.note(found);
        }
    }
}

struct State<V> {
    small: Queue<V>,
    main: Queue<V>,
    ghosts: Ghosts,
    newcomers: Newcomers,
    index: Index<V>,
    /// Smaller indexes that readers may still look at.
    outgrown: Vec<Index<V>>,
    /// FREE nodes, linked by `next`.
    free: *mut Node<V>,
    /// How many nodes there are in the arena.
    nodes: u32,
}

// SAFETY: nodes are shared by their own rules; the rest is owned.
unsafe impl<V: Send + Sync> Send for State<V> {}

#[repr(align(128))]
pub struct Shard<V> {
    /// What readers search: `State::index`, packed.
    index: AtomicPtr<Line<V>>,
    arena: Arena<V>,
    shared: NonNull<Shared<V>>,
    number: usize,
    state: Mutex<State<V>>,
}

impl<V> Queue<V> {
    const EMPTY: Self = Self { first: std::ptr::null_mut(), last: std::ptr::null_mut(), bytes: 0, len: 0 };
}

impl<V> State<V> {
    fn queue(&mut self, which: u8) -> &mut Queue<V> {
        if which == SMALL { &mut self.small } else { &mut self.main }
    }

    /// Adds a VISIBLE node at the end that is evicted last, or first.
    fn push(&mut self, which: u8, node: NonNull<Node<V>>, evict_first: bool) {
        let queue = self.queue(which);
        let null = std::ptr::null_mut();
        // SAFETY: nodes in queues and the one that goes in are VISIBLE and the lock is ours (1).
        unsafe {
            let links = &mut *node.as_ref().links.get();
            *node.as_ref().queue.get() = which;
            (links.previous, links.next) = if evict_first { (null, queue.first) } else { (queue.last, null) };
            let (previous, next) = (links.previous, links.next);
            match NonNull::new(previous) {
                Some(previous) => (*previous.as_ref().links.get()).next = node.as_ptr(),
                None => queue.first = node.as_ptr(),
            }
            match NonNull::new(next) {
                Some(next) => (*next.as_ref().links.get()).previous = node.as_ptr(),
                None => queue.last = node.as_ptr(),
            }
            queue.bytes += node.as_ref().charge();
        }
        queue.len += 1;
    }

    /// Takes a VISIBLE node out of the queue that it is in.
    fn unlink(&mut self, node: NonNull<Node<V>>) {
        // SAFETY: nodes in queues are VISIBLE and the lock is ours (1).
        unsafe {
            let links = &*node.as_ref().links.get();
            let (previous, next) = (links.previous, links.next);
            let queue = self.queue(*node.as_ref().queue.get());
            match NonNull::new(previous) {
                Some(previous) => (*previous.as_ref().links.get()).next = next,
                None => queue.first = next,
            }
            match NonNull::new(next) {
                Some(next) => (*next.as_ref().links.get()).previous = previous,
                None => queue.last = previous,
            }
            queue.bytes -= node.as_ref().charge();
            queue.len -= 1;
        }
    }

    fn entries(&self) -> usize {
        self.small.len + self.main.len
    }
    fn bytes(&self) -> usize {
        self.small.bytes + self.main.bytes
    }

    /// Calls `visit` with every entry. It must not unlink any but the one that it gets.
    fn each(&self, mut visit: impl FnMut(NonNull<Node<V>>)) {
        for first in [self.small.first, self.main.first] {
            let mut at = first;
            while let Some(node) = NonNull::new(at) {
                // SAFETY: nodes in queues are VISIBLE and the lock is ours (1).
                at = unsafe { (*node.as_ref().links.get()).next };
                visit(node);
            }
        }
    }

    fn find(&self, key: &CacheKey, hash: u64) -> Option<NonNull<Node<V>>> {
        // Candidates may be false, and then nodes that are not in the index: FREE ones still have the key that they had.
        // SAFETY: the index is alive; a VISIBLE node stays so under the lock (1).
        unsafe {
            self.index.packed().find(hash, |node| {
                let node = node.as_ref();
                is_visible(node.word()) && node.key() == *key
            })
        }
    }

    fn put_free(&mut self, node: NonNull<Node<V>>) {
        // SAFETY: FREE nodes that are in no list are ours under the lock.
        unsafe { (*node.as_ref().links.get()).next = self.free };
        self.free = node.as_ptr();
    }

    /// Which queue gives the next victim: the small one if it has more than its part, or if the main
    /// queue seems to hold nothing but pinned entries.
    fn next_victim(&self, pinned_in_a_row: usize) -> Option<NonNull<Node<V>>> {
        let small_has_too_much = self.small.bytes.saturating_mul(SMALL_PART) > self.bytes();
        let small = small_has_too_much || pinned_in_a_row >= self.main.len;
        let (one, other) = (self.small.first, self.main.first);
        NonNull::new(if small && !one.is_null() || other.is_null() { one } else { other })
    }

    /// Asks for the memory that the next evictions will touch. Each visit finds what the last one asked
    /// for: the second in line then, whose hash now tells the line of the index.
    fn fetch_next_victims(&self) {
        for first in [self.small.first, self.main.first].into_iter().filter_map(NonNull::new) {
            // SAFETY: VISIBLE, and the lock is ours (1).
            let (hash, second) = unsafe { (first.as_ref().hash(), (*first.as_ref().links.get()).next) };
            self.index.fetch(hash);
            fetch(second);
        }
    }

    /// Takes an entry out of index and queue, and if no reference is held, out of the cache.
    /// Returns its value and charge then.
    fn remove(&mut self, node: NonNull<Node<V>>) -> Option<(V, usize)> {
        // SAFETY: VISIBLE, and the lock is ours (1).
        let (entry, hash, charge) = unsafe { (node.as_ref(), node.as_ref().hash(), node.as_ref().charge()) };
        self.index.remove(hash, node);
        self.unlink(node);
        match entry.remove() {
            Removed::Free(value) => {
                self.put_free(node);
                Some((value, charge))
            }
            Removed::Pinned => None,
        }
    }

    /// Evicts `node`, the next victim of its queue, or gives it another round. Returns the bytes freed,
    /// or `None` if it is pinned.
    fn evict_or_requeue(&mut self, node: NonNull<Node<V>>, dropped: &mut Dropped<V>) -> Option<usize> {
        // SAFETY: VISIBLE, and the lock is ours (1).
        let (entry, hash, charge) = unsafe { (node.as_ref(), node.as_ref().hash(), node.as_ref().charge()) };
        // SAFETY: as the links it is ours under the lock.
        let was_small = unsafe { *entry.queue.get() } == SMALL;
        let word = entry.word();
        self.unlink(node);
        if references(word) == 0 && found(word) == 0 {
            if let Ok(value) = entry.evict(word) {
                self.index.remove(hash, node);
                self.put_free(node);
                if was_small {
                    self.ghosts.remember(hash, self.small.len + self.main.len);
                    self.newcomers.note_departure(false);
                }
                dropped.push(value);
                return Some(charge);
            }
        } else if references(word) == 0 {
            entry.forget_one_find();
            if was_small {
                self.newcomers.note_departure(true);
            }
        }
        self.push(MAIN, node, false);
        (references(word) == 0).then_some(0)
    }
}

impl<V> Shard<V> {
    /// An empty shard with room for so many entries before its index grows.
    pub fn new(
        room: usize,
        memory: Option<Arc<BlockMemory>>,
        shared: NonNull<Shared<V>>,
        number: usize,
    ) -> Self {
        let index = Index::with_room_for(room);
        Self {
            index: AtomicPtr::new(index.packed().into_raw()),
            arena: Arena::new(memory),
            shared,
            number,
            state: Mutex::new(State {
                small: Queue::EMPTY,
                main: Queue::EMPTY,
                ghosts: Ghosts { slots: Vec::new(), time: 0 },
                newcomers: Newcomers::default(),
                index,
                outgrown: Vec::new(),
                free: std::ptr::null_mut(),
                nodes: 0,
            }),
        }
    }

    /// What the shard is part of.
    pub fn shared(&self) -> NonNull<Shared<V>> {
        self.shared
    }
    /// Which shard it is.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The entry of `key` with a reference taken.
    ///
    /// # Safety
    /// The `Shared` is held by a `&Cache`.
    #[inline]
    pub unsafe fn get(&self, key: &CacheKey, hash: u64) -> Option<NonNull<Node<V>>> {
        let index = PackedIndex::from_raw(self.index.load(Ordering::Acquire)); // Pairs with `outgrow`.
        // SAFETY: indexes live as long as the shard; the caller holds the `Shared`.
        unsafe { index.find(hash, |node| node.as_ref().acquire(key)) }
    }

    /// The entry of `key` with a reference taken, if it is in the node of that number.
    ///
    /// # Safety
    /// As [`Shard::get`].
    #[inline]
    pub unsafe fn get_at(&self, number: u32, key: &CacheKey) -> Option<NonNull<Node<V>>> {
        // SAFETY: the caller holds the `Shared`.
        self.arena.get(number).filter(|node| unsafe { node.as_ref().acquire(key) })
    }

    /// Asks for the memory of a node that is about to be looked at.
    #[inline]
    pub fn prefetch(&self, number: u32) {
        if let Some(node) = self.arena.get(number) {
            fetch_all(node.as_ptr());
        }
    }

    /// Adds an entry with one reference, taking the place of what has that key. The charge is already
    /// part of the usage; returned is what is not any more.
    pub fn insert(
        &self,
        key: CacheKey,
        hash: u64,
        value: V,
        charge: usize,
        priority: Priority,
    ) -> (NonNull<Node<V>>, Option<(V, usize)>) {
        let mut state = self.state.lock();
        let old = state.find(&key, hash).and_then(|node| state.remove(node));
        if state.entries() >= state.index.room() {
            self.outgrow(&mut state);
        }
        let entries = state.entries();
        let came_back = state.ghosts.take(hash, entries);
        let node = self.free_node(&mut state);
        let finds = if priority == Priority::High { FOUND_MAX - 1 } else { 0 };
        // SAFETY: FREE, and off the free list.
        unsafe { node.as_ref().fill(key, value, charge, Some(finds)) };
        let queue = if priority == Priority::High || came_back { MAIN } else { SMALL };
        state.push(queue, node, priority == Priority::Bottom);
        state.index.insert(hash, node);
        (node, old)
    }

    /// Whether an entry of that hash should take the place of another: if of those who come for the first time enough are found
    /// again, or if it was here or turned away lately.
    pub fn admits(&self, hash: u64) -> bool {
        let mut state = self.state.lock();
        if !state.newcomers.is_closed {
            return true;
        }
        let entries = state.entries();
        let Some(age) = state.ghosts.age(hash, entries) else {
            state.newcomers.note(false);
            state.ghosts.remember(hash, entries);
            return false;
        };
        if age <= entries / SMALL_PART {
            state.newcomers.note(true); // The small queue would still have it.
        }
        true
    }

    /// Makes an entry with one reference that nobody can find. The caller has added an anchor for it.
    pub fn insert_detached(&self, key: CacheKey, value: V, charge: usize) -> NonNull<Node<V>> {
        let node = self.free_node(&mut self.state.lock());
        // SAFETY: FREE, and off the free list.
        unsafe { node.as_ref().fill(key, value, charge, None) };
        node
    }

    fn free_node(&self, state: &mut State<V>) -> NonNull<Node<V>> {
        if let Some(node) = NonNull::new(state.free) {
            // SAFETY: nodes of the free list are ours under the lock.
            state.free = unsafe { (*node.as_ref().links.get()).next };
            return node;
        }
        let number = state.nodes;
        state.nodes = number.checked_add(1).expect("fewer entries than 2^32");
        self.arena.grow(number, self)
    }

    #[cold]
    fn outgrow(&self, state: &mut State<V>) {
        let larger = Index::with_room_for(2 * state.index.room());
        // SAFETY: VISIBLE, and the lock is ours (1).
        state.each(|node| larger.insert(unsafe { node.as_ref().hash() }, node));
        self.index.store(larger.packed().into_raw(), Ordering::Release); // Complete: pairs with `get`.
        let smaller = std::mem::replace(&mut state.index, larger);
        state.outgrown.push(smaller);
    }

    /// Forgets the entry of `key`. Returns value and charge if nobody holds it.
    pub fn erase(&self, key: &CacheKey, hash: u64) -> Option<(V, usize)> {
        let mut state = self.state.lock();
        let node = state.find(key, hash)?;
        state.remove(node)
    }

    /// Whether there is an entry of `key`.
    pub fn contains(&self, key: &CacheKey, hash: u64) -> bool {
        self.finds(key, hash).is_some()
    }

    /// How often the entry of `key` was found lately.
    pub fn finds(&self, key: &CacheKey, hash: u64) -> Option<u64> {
        let state = self.state.lock();
        // SAFETY: found under the lock, which keeps it VISIBLE (1).
        state.find(key, hash).map(|node| found(unsafe { node.as_ref() }.word()))
    }

    /// Evicts until `need` bytes are freed or nothing more can be; gives up early among pinned entries
    /// unless `thorough`. Does nothing in a shard below `at_least` bytes. Returns how much it freed.
    pub fn evict(&self, need: usize, at_least: usize, thorough: bool, dropped: &mut Dropped<V>) -> usize {
        let mut state = self.state.lock();
        if state.bytes() < at_least {
            return 0;
        }
        let (mut freed, mut pinned, mut pinned_in_a_row) = (0, 0, 0);
        // Each entry is requeued at most once per find and once to the main queue, if it is not pinned.
        let mut steps = state.entries() * (FOUND_MAX as usize + 2);
        while freed < need && steps > 0 && (thorough || pinned < PINNED_PER_VISIT) {
            let Some(node) = state.next_victim(pinned_in_a_row) else { break };
            match state.evict_or_requeue(node, dropped) {
                Some(bytes) => {
                    freed += bytes;
                    pinned_in_a_row = 0;
                }
                None => {
                    pinned += 1;
                    pinned_in_a_row += 1;
                }
            }
            steps -= 1;
        }
        state.fetch_next_victims();
        freed
    }

    /// Forgets entries until so many bytes are left that can be found. Returns what is free now.
    pub fn shrink_to(&self, bytes: usize, dropped: &mut Dropped<V>) -> usize {
        let mut state = self.state.lock();
        let mut freed = 0;
        while state.bytes() > bytes {
            let Some(node) = state.next_victim(0) else { break };
            if let Some((value, charge)) = state.remove(node) {
                dropped.push(value);
                freed += charge;
            }
        }
        freed
    }

    /// Takes back a node that was freed without the lock.
    pub fn put_back(&self, node: NonNull<Node<V>>, charge: usize) {
        self.state.lock().put_free(node);
        // SAFETY: the caller has an anchor.
        unsafe { self.shared.as_ref() }.usage.fetch_sub(charge, Ordering::Relaxed);
    }

    /// Bytes of the entries that can be found.
    pub fn bytes(&self) -> usize {
        self.state.lock().bytes()
    }

    /// How many entries can be found.
    pub fn entries(&self) -> usize {
        self.state.lock().entries()
    }

    /// Bytes of the entries that can be found and that nobody holds.
    pub fn unpinned_bytes(&self) -> usize {
        let state = self.state.lock();
        let mut bytes = 0;
        state.each(|node| {
            // SAFETY: VISIBLE, and the lock is ours (1).
            let entry = unsafe { node.as_ref() };
            if references(entry.word()) == 0 {
                // SAFETY: as above.
                bytes += unsafe { entry.charge() };
            }
        });
        bytes
    }

    /// All entries that can be found, each with a reference taken.
    pub fn hold_all(&self) -> Vec<NonNull<Node<V>>> {
        let state = self.state.lock();
        let mut held = Vec::with_capacity(state.entries());
        state.each(|node| {
            // SAFETY: VISIBLE, and the lock is ours (1).
            unsafe { node.as_ref().add_reference() };
            held.push(node);
        });
        held
    }
}
