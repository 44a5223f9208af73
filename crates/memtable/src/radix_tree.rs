//! An adaptive radix tree in an arena, for the bytewise comparators: one cache miss or two where a
//! search by comparisons takes twenty. Any number of writers; readers never wait and never retry.
//!
//! ```text
//! key as symbols:   user key bytes | END | ~trailer, big-endian
//!
//!   node(level 0) --'u'--> node(level 6, prefix "ser00") --'1'--> entry user001..
//!                                                        --'2'--> node(level 8) --..
//! ```
//! A node decides by one symbol and skips those that all keys below it share. The inverted trailer
//! sorts the newest entry of a user key first; END comes before all bytes (after them in the
//! reverse order, where bytes are inverted), so keys may be prefixes of each other.
//!
//! Writers lock the one node that they change, and its parent if it is full and a larger copy takes
//! its place. Lookups skip prefixes unseen, since the entry at the end holds the whole key.
//!
//! # Safety argument
//! 1. Indexes in slots and prefixes come from this tree's arenas: those of entries from `entries`,
//!    those of nodes from `nodes`. Both live as long as the tree.
//! 2. Entries and nodes are complete before a Release store puts their index into a slot, and slots
//!    are loaded with Acquire. A witness was complete before the node that names it.
//! 3. Nothing is freed before the tree, so addresses in a [`Walk`] stay good while the tree is
//!    borrowed or held; a walk belongs to one tree.
//! 4. A half in `spare_half` is taken out (swap) by one writer only, who is its only owner then.

mod node;
mod walk;

pub(crate) use walk::Walk;

use crate::arena::{Arena, PieceIndex};
use crate::entry::{Entry, EntryKey, encoded_len, newest_first, shared_len};
use crate::prefetch::{prefetch, prefetch_line};
use ironstone_base::UserComparator;
use ironstone_base::sync::CachePadded;
use ironstone_base::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use node::{Child, END_FIRST, END_LAST, LARGEST, Node, Prefix, SMALLEST, Shape, Symbol};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::ptr::NonNull;

pub(crate) struct RadixTree {
    entries: Arena,
    /// Nodes are kept apart from entries: they are read much more often, and are dense this way.
    nodes: Arena,
    /// A node of the largest kind at level 0: never full, never replaced.
    root: NonNull<u8>,
    root_name: Child,
    order: ByteOrder,
    /// About how long an entry is, as it was of one in a thousand or so. Relaxed: a hint of where others end.
    usual_len: AtomicU32,
    /// Apart from what readers look at.
    of_writers: CachePadded<OfWriters>,
}

/// What only writers look at, who change it all the time.
#[derive(Default)]
struct OfWriters {
    /// Half a cache line of `nodes` that waits for the next small node; 0 if there is none.
    spare_half: AtomicU32,
    /// A [`LastWrite`]. Released after node and entry are in the tree, for others to start from.
    last_write: AtomicU64,
}

// SAFETY: everything behind `root` is in the arenas and changes by atomic operations only (1, 2).
unsafe impl Send for RadixTree {}
// SAFETY: as above.
unsafe impl Sync for RadixTree {}

/// Of so many entries one tells how long they are.
const LOOKED_AT: u64 = 1024;

/// How bytes become symbols.
#[derive(Clone, Copy)]
struct ByteOrder {
    flip: u8,
    end: Symbol,
}

/// Where a key parts from one that is there.
#[derive(Clone, Copy)]
struct Fork {
    position: usize,
    /// The other key's symbol at that position.
    there: Symbol,
}

/// A node and what it is called in its parent.
#[derive(Clone, Copy)]
struct Named<'a> {
    node: Node<'a>,
    name: Child,
}

/// Where a new entry belongs: in `at`, for `symbol`.
struct Place<'a> {
    /// The parent of `at` and where it has that, unless `at` is where the search started.
    parent: Option<(Node<'a>, Symbol)>,
    at: Named<'a>,
    symbol: Symbol,
    /// What is there now, and where that parts from the new key.
    beside: Option<(Child, Fork)>,
}

/// The node that got the last entry, and that entry: the next one often belongs there too. `again`
/// says that it did the last time.
#[derive(Clone, Copy)]
struct LastWrite {
    node: Child,
    entry: PieceIndex,
    again: bool,
}

/// As bits: again, 1 | node, 31 | 0 | entry, 31.
impl LastWrite {
    fn to_bits(self) -> u64 {
        (u64::from(self.again) << 63) | (u64::from(self.node.index().0) << 32) | u64::from(self.entry.0)
    }
    fn from_bits(bits: u64) -> Self {
        let node = Child::node(PieceIndex((bits << 1 >> 33) as u32));
        Self { node, entry: PieceIndex(bits as u32), again: bits >> 63 != 0 }
    }
}

impl ByteOrder {
    /// The symbol of `key` at `position`, which is below the number of its symbols.
    #[inline]
    fn symbol(self, key: EntryKey<'_>, position: usize) -> Symbol {
        let len = key.user_key.len();
        match position.cmp(&len) {
            Ordering::Less => (key.user_key[position] ^ self.flip) as Symbol,
            Ordering::Equal => self.end,
            Ordering::Greater => (!key.trailer).to_be_bytes()[position - len - 1] as Symbol,
        }
    }
    fn compare(self, a: EntryKey<'_>, b: EntryKey<'_>) -> Ordering {
        let order = a.user_key.cmp(b.user_key);
        let order = if self.flip == 0 { order } else { order.reverse() };
        order.then_with(|| newest_first(a.trailer, b.trailer))
    }
}

/// Where the symbols of two keys first differ, given that they do not before `from`.
fn first_difference(a: EntryKey<'_>, b: EntryKey<'_>, from: usize) -> usize {
    let len = a.user_key.len().min(b.user_key.len());
    let from = from.min(len);
    let shared = from + shared_len(&a.user_key[from..], &b.user_key[from..]);
    if shared < len || a.user_key.len() != b.user_key.len() {
        return shared;
    }
    len + 1 + ((a.trailer ^ b.trailer).leading_zeros() / 8) as usize
}

/// Whether a difference at `position` leaves the sequence number the same: only the type differs.
fn is_same_write(key: EntryKey<'_>, position: usize) -> bool {
    position >= key.user_key.len() + 8
}

impl RadixTree {
    /// The largest write buffer that it should be used for. Indexes reach twice as far.
    pub const MAX_BYTES: usize = 4 << 30;

    /// A tree for `user`, unless that is a comparator that it cannot follow.
    pub fn new(user: &UserComparator, arena: impl Fn() -> Arena) -> Option<Self> {
        let order = match user {
            UserComparator::Bytewise => ByteOrder { flip: 0, end: END_FIRST },
            UserComparator::ReverseBytewise => ByteOrder { flip: 0xff, end: END_LAST },
            UserComparator::Custom(_) => return None,
        };
        let (entries, nodes) = (arena(), arena());
        let root = nodes.allocate(node::size_of_kind(LARGEST));
        let shape = Shape { level: 0, prefix: Prefix::Bytes([0; 4]), versions: false };
        // SAFETY: a piece of the right size (3).
        unsafe { Node::create(root.pointer, LARGEST, shape) };
        let root_name = Child::node(root.index());
        let of_writers = CachePadded::default();
        let usual_len = AtomicU32::new(0);
        Some(Self { entries, nodes, root: root.pointer, root_name, order, usual_len, of_writers })
    }

    pub fn memory_usage(&self) -> usize {
        size_of::<Self>() + self.entries.memory_usage() + self.nodes.memory_usage()
    }

    #[inline]
    fn root_node(&self) -> Node<'_> {
        // SAFETY: made by `new` (1).
        unsafe { Node::at(self.root) }
    }
    fn root(&self) -> Named<'_> {
        Named { node: self.root_node(), name: self.root_name }
    }
    /// Call on a child that is a node.
    #[inline]
    fn node(&self, child: Child) -> Node<'_> {
        debug_assert!(!child.is_entry());
        // SAFETY: came from a slot (1, 2).
        unsafe { Node::at(self.nodes.locate(child.index())) }
    }
    /// Call on a child that is an entry.
    #[inline]
    fn entry(&self, child: Child) -> Entry<'_> {
        debug_assert!(child.is_entry());
        self.entry_at(child.index())
    }
    #[inline]
    fn entry_at(&self, index: PieceIndex) -> Entry<'_> {
        // SAFETY: came from a slot or a prefix (1, 2).
        unsafe { Entry::at(self.entries.locate(index)) }
    }

    /// Adds an entry, unless one with this user key and sequence number is there.
    pub fn insert(&self, key: EntryKey<'_>, value: &[u8]) -> bool {
        let len = encoded_len(key.user_key, value);
        let piece = self.entries.allocate(len);
        // Fresh memory is far away; it comes while the tree is searched.
        prefetch(piece.pointer, len);
        if self.usual_len.load(Relaxed) == 0 || key.sequence().0.is_multiple_of(LOOKED_AT) {
            self.usual_len.store(len as u32, Relaxed);
        }
        let last = LastWrite::from_bits(self.of_writers.last_write.load(Acquire));
        let mut found = self.find_place(key, self.likely_start(key, last));
        // SAFETY: the piece is ours alone and large enough.
        unsafe { Entry::write(piece.pointer, key, value) };
        let entry = piece.index();
        while let Some(place) = found {
            let holder = match place.beside {
                None => self.add_child(&place, Child::entry(entry)),
                Some((child, fork)) => self.add_joint(&place, child, fork, key, entry),
            };
            if let Some(node) = holder {
                let again = place.at.name == last.node;
                if !(again && last.again && node == last.node) {
                    self.of_writers.last_write.store(LastWrite { node, entry, again }.to_bits(), Release);
                }
                return true;
            }
            // Another writer was faster, or the node is full and its parent not known.
            found = self.find_place(key, self.root());
        }
        false
    }

    /// Where to start the search for `key`'s place: the root, or further down if that is sure.
    #[inline]
    fn likely_start(&self, key: EntryKey<'_>, last: LastWrite) -> Named<'_> {
        if last.again {
            let node = self.node(last.node);
            let neighbour = self.entry_at(last.entry).user_key();
            let level = node.level();
            // The neighbour is below the node, so the node is for keys that start as it does.
            if level < key.user_key.len() && neighbour.get(..level) == Some(&key.user_key[..level]) {
                return Named { node, name: last.node };
            }
        }
        self.root()
    }

    /// Where `key` belongs, looking from `start` down; nothing if it is there already.
    #[inline]
    fn find_place<'a>(&'a self, key: EntryKey<'_>, start: Named<'a>) -> Option<Place<'a>> {
        let (mut parent, mut at) = (None, start);
        loop {
            let symbol = self.order.symbol(key, at.node.level());
            let depth = at.node.level() + 1;
            let Some(child) = at.node.child_of(symbol) else {
                return Some(Place { parent, at, symbol, beside: None });
            };
            if child.is_entry() {
                let there = self.entry(child).key();
                let position = first_difference(key, there, depth);
                if is_same_write(key, position) {
                    return None;
                }
                let fork = Fork { position, there: self.order.symbol(there, position) };
                return Some(Place { parent, at, symbol, beside: Some((child, fork)) });
            }
            let below = self.node(child);
            if let Some(fork) = self.fork_above(below, key, depth) {
                return Some(Place { parent, at, symbol, beside: Some((child, fork)) });
            }
            parent = Some((at.node, symbol));
            at = Named { node: below, name: child };
        }
    }

    /// Puts the entry where nothing is yet. Answers the node that has it then, or nothing if that did
    /// not work out.
    fn add_child(&self, place: &Place<'_>, entry: Child) -> Option<Child> {
        let Place { at, symbol, .. } = *place;
        let mut locked = at.node.lock()?;
        if locked.child_of(symbol).is_some() {
            return None;
        }
        if locked.add(symbol, entry) {
            return Some(at.name);
        }
        drop(locked); // Locks are taken from the root down.
        let (parent, its_symbol) = place.parent?;
        let mut above = parent.lock()?;
        if above.child_of(its_symbol) != Some(at.name) {
            return None;
        }
        let locked = at.node.lock()?;
        if locked.child_of(symbol).is_some() {
            return None;
        }
        let piece = self.nodes.allocate(node::size_of_kind(locked.larger_kind()));
        // SAFETY: the piece is ours alone and has the size of the kind.
        let copy = unsafe { locked.grow_into(piece.pointer) };
        copy.add_unpublished(symbol, entry);
        let name = Child::node(piece.index());
        above.replace(its_symbol, name);
        locked.mark_replaced();
        Some(name)
    }

    /// Puts a new node in the place of `child`, for it and the new entry. Answers that node, or
    /// nothing if that did not work out.
    fn add_joint(
        &self,
        place: &Place<'_>,
        child: Child,
        fork: Fork,
        key: EntryKey<'_>,
        entry: PieceIndex,
    ) -> Option<Child> {
        let node = place.at.node;
        let joint = self.make_joint(key, entry, node.level() + 1, fork, child);
        let mut locked = node.lock()?;
        if locked.child_of(place.symbol) != Some(child) {
            return None; // The joint is lost to the arena; that is rare.
        }
        locked.replace(place.symbol, joint);
        Some(joint)
    }

    /// Where `key` parts from what all keys below `node` share, if it does. It does not before
    /// `depth`.
    #[inline]
    fn fork_above(&self, node: Node<'_>, key: EntryKey<'_>, depth: usize) -> Option<Fork> {
        let level = node.level();
        if level == depth {
            return None;
        }
        match node.prefix() {
            Prefix::Bytes(bytes) => (depth..level).find_map(|position| {
                let there = bytes[4 + position - level] as Symbol;
                (self.order.symbol(key, position) != there).then_some(Fork { position, there })
            }),
            Prefix::Witness(index) => {
                let witness = self.entry_at(index).key();
                let position = first_difference(key, witness, depth);
                (position < level).then(|| Fork { position, there: self.order.symbol(witness, position) })
            }
        }
    }

    /// A new node for what is there (`child`) and the new entry, which part at `fork`.
    fn make_joint(
        &self,
        key: EntryKey<'_>,
        entry: PieceIndex,
        depth: usize,
        fork: Fork,
        child: Child,
    ) -> Child {
        let position = fork.position;
        let versions = position > key.user_key.len();
        let prefix = if versions || position - depth > 4 {
            Prefix::Witness(entry)
        } else {
            let mut bytes = [0; 4];
            for back in 1..=position.min(4) {
                bytes[4 - back] = key.user_key[position - back] ^ self.order.flip;
            }
            Prefix::Bytes(bytes)
        };
        let index = self.allocate_small_node();
        let shape = Shape { level: position as u32, prefix, versions };
        // SAFETY: the piece is ours alone and has the size of the kind (4).
        let joint = unsafe { Node::create(self.nodes.locate(index), SMALLEST, shape) };
        joint.add_unpublished(fork.there, child);
        joint.add_unpublished(self.order.symbol(key, position), Child::entry(entry));
        Child::node(index)
    }

    /// Room for a node of the smallest kind.
    fn allocate_small_node(&self) -> PieceIndex {
        let half = node::size_of_kind(SMALLEST);
        if self.of_writers.spare_half.load(Relaxed) != 0 {
            // Acquire: the block that the half is in was introduced before the store below.
            let spare = self.of_writers.spare_half.swap(0, Acquire);
            if spare != 0 {
                return PieceIndex(spare);
            }
        }
        let index = self.nodes.allocate(2 * half).index();
        // A half that another writer left meanwhile is lost to the arena.
        self.of_writers.spare_half.store(index.plus(half).0, Release);
        index
    }

    /// The newest entry of `target`'s user key that is not newer than `target`.
    #[inline]
    pub fn get(&self, target: EntryKey<'_>) -> Option<Entry<'_>> {
        let mut node = self.root_node();
        loop {
            let child = match target.user_key.get(node.level()) {
                Some(byte) => node.child_of_byte(byte ^ self.order.flip)?,
                None if node.level() == target.user_key.len() => node.child_of(self.order.end)?,
                None => return self.get_version(node, target),
            };
            if child.is_entry() {
                let entry = self.entry(child);
                // Who finds a value reads it, and waits for its beginning and its end together then.
                prefetch_line(
                    entry.address().as_ptr().wrapping_add(self.usual_len.load(Relaxed) as usize - 1),
                );
                let key = entry.key();
                return (key.user_key == target.user_key && key.trailer <= target.trailer).then_some(entry);
            }
            node = self.node(child);
        }
    }

    /// Goes where a search for `key` goes. Answers the entry that it comes upon if that has other symbols than those by
    /// which it was reached, or `is_good` denies it.
    pub fn find_damage<'a>(
        &'a self,
        key: EntryKey<'_>,
        is_good: impl Fn(Entry<'a>) -> bool,
    ) -> Option<Entry<'a>> {
        let symbols = |key: EntryKey<'_>| key.user_key.len() + 1 + size_of::<u64>();
        let mut path: SmallVec<[usize; 32]> = SmallVec::new();
        let mut node = self.root_node();
        loop {
            let level = node.level();
            if level >= symbols(key) {
                return None;
            }
            path.push(level);
            let child = node.child_of(self.order.symbol(key, level))?;
            if !child.is_entry() {
                node = self.node(child);
                continue;
            }
            let entry = self.entry(child);
            let found = entry.key();
            let is_here = |&at: &usize| {
                at < symbols(found) && self.order.symbol(found, at) == self.order.symbol(key, at)
            };
            return (!path.iter().all(is_here) || !is_good(entry)).then_some(entry);
        }
    }

    /// Goes on with `get` in a node that may hold the entries of that user key.
    #[cold]
    fn get_version(&self, node: Node<'_>, target: EntryKey<'_>) -> Option<Entry<'_>> {
        let Prefix::Witness(witness) = node.prefix() else { return None };
        if !node.has_versions_only() || self.entry_at(witness).user_key() != target.user_key {
            return None;
        }
        let newest = self.first_below(node).filter(|entry| entry.key().trailer <= target.trailer);
        // If `target` parts from what they share, all are newer: the newest one was.
        if newest.is_some() || self.fork_above(node, target, target.user_key.len() + 1).is_some() {
            return newest;
        }
        self.first_at_or_after_below(node, target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::BlockPool;
    use ironstone_base::SequenceNumber;

    #[test]
    fn the_usual_length_is_that_of_the_first_entry_and_then_of_one_in_many() {
        let tree = RadixTree::new(&UserComparator::Bytewise, || Arena::new(false, BlockPool::new())).unwrap();
        let add = |sequence: u64, value: &[u8]| {
            let user_key = sequence.to_be_bytes();
            assert!(tree.insert(EntryKey::newest_at(&user_key, SequenceNumber(sequence)), value));
            tree.usual_len.load(Relaxed) as usize
        };
        let len = |value: &[u8]| encoded_len(&[0; 8], value);
        assert_eq!(add(1, &[7; 100]), len(&[7; 100]));
        assert_eq!(add(2, &[7; 3000]), len(&[7; 100]), "others are not asked");
        assert_eq!(add(LOOKED_AT, &[7; 2000]), len(&[7; 2000]));
        assert_eq!(add(LOOKED_AT + 1, &[]), len(&[7; 2000]));
    }
}
