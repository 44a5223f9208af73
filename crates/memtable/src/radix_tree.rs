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

use crate::arena::{Arena, PieceIndex};
use crate::entry::{Entry, EntryKey, encoded_len, newest_first};
use crate::prefetch::{CACHE_LINE, prefetch};
use ironstone_base::UserComparator;
use ironstone_base::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use node::{Child, END_FIRST, END_LAST, LARGEST, Node, Prefix, SMALLEST, Shape, Siblings, Symbol};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::ptr::NonNull;

pub(crate) struct RadixTree {
    entries: Arena,
    /// Nodes are kept apart from entries: they are read much more often, and are dense this way.
    nodes: Arena,
    /// A node of the largest kind at level 0: never full, never replaced.
    root: NonNull<u8>,
    /// Half a cache line of `nodes` that waits for the next small node; 0 if there is none.
    spare_half: AtomicU32,
    /// The node that got the last entry, and that entry: the next one often belongs there too.
    last_write: AtomicU64,
    order: ByteOrder,
}

// SAFETY: everything behind `root` is in the arenas and changes by atomic operations only (1, 2).
unsafe impl Send for RadixTree {}
// SAFETY: as above.
unsafe impl Sync for RadixTree {}

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

/// Where a new entry belongs.
enum Place<'a> {
    /// It is there already.
    Taken,
    /// In a node that has nothing for its symbol. The parent says where it has that node.
    Empty { parent: Option<(Node<'a>, Symbol, Child)>, node: Node<'a>, symbol: Symbol },
    /// Beside `child`, which is in `node` for the same symbol but parts from it further on.
    Fork { node: Node<'a>, symbol: Symbol, child: Child, fork: Fork },
}

/// The nodes from the root to an entry.
type Path = SmallVec<[Frame; 8]>;

/// A place in the tree, and where it was last heading. A walk that goes on in one direction finds
/// entries ahead of time, so that their memory comes while others are looked at.
#[derive(Default)]
pub(crate) struct Walk {
    path: Path,
    /// Entries already found in this direction, nearest first. While there are some, or the walk
    /// has `ended`, `path` is not at the current entry.
    ahead: Ahead,
    direction: Direction,
    ended: bool,
    /// How many entries to find ahead.
    width: usize,
}

/// A short queue of children.
#[derive(Default)]
struct Ahead {
    ring: [Option<Child>; Self::ROOM],
    first: usize,
    len: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Direction {
    #[default]
    Forward,
    Backward,
}

/// A node, and at which child of it a walk is.
struct Frame {
    node: NonNull<u8>,
    symbol: Symbol,
    siblings: Option<Siblings>,
}

const BEFORE_ALL: Symbol = END_FIRST - 1;
const AFTER_ALL: Symbol = END_LAST + 1;

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
    let shared = from + shared_len(&a.user_key[from..len], &b.user_key[from..len]);
    if shared < len || a.user_key.len() != b.user_key.len() {
        return shared;
    }
    len + 1 + ((a.trailer ^ b.trailer).leading_zeros() / 8) as usize
}

/// How many leading bytes two slices of the same length share.
fn shared_len(a: &[u8], b: &[u8]) -> usize {
    let (a_words, b_words) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    for (at, (x, y)) in a_words.iter().zip(b_words).enumerate() {
        let differences = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differences != 0 {
            return at * 8 + (differences.trailing_zeros() / 8) as usize;
        }
    }
    let done = a_words.len() * 8;
    done + a[done..].iter().zip(&b[done..]).take_while(|(x, y)| x == y).count()
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
        let root = nodes.allocate(node::size_of_kind(LARGEST)).pointer;
        let shape = Shape { level: 0, prefix: Prefix::Bytes([0; 4]), versions: false };
        // SAFETY: a piece of the right size (3).
        unsafe { Node::create(root, LARGEST, shape) };
        Some(Self {
            entries,
            nodes,
            root,
            spare_half: AtomicU32::new(0),
            last_write: AtomicU64::new(0),
            order,
        })
    }

    pub fn memory_usage(&self) -> usize {
        size_of::<Self>() + self.entries.memory_usage() + self.nodes.memory_usage()
    }

    #[inline]
    fn root(&self) -> Node<'_> {
        // SAFETY: made by `new` (1).
        unsafe { Node::at(self.root) }
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
        let mut place = self.find_place(key, self.likely_start(key));
        // SAFETY: the piece is ours alone and large enough.
        unsafe { Entry::write(piece.pointer, key, value) };
        let entry = piece.index();
        loop {
            let done = match place {
                Place::Taken => return false,
                Place::Empty { parent, node, symbol } => {
                    self.add_child(parent, node, symbol, Child::entry(entry))
                }
                Place::Fork { node, symbol, child, fork } => {
                    self.add_joint(node, symbol, child, fork, key, entry)
                }
            };
            if let Some(node) = done {
                if let Some(node) = node {
                    let write = (u64::from(node.index().0) << 32) | u64::from(entry.0);
                    self.last_write.store(write, Release);
                }
                return true;
            }
            place = self.find_place(key, self.root());
        }
    }

    /// The node that got the last entry, if it is on the way of `key`; otherwise the root.
    #[inline]
    fn likely_start(&self, key: EntryKey<'_>) -> Node<'_> {
        let last = self.last_write.load(Acquire);
        if last != 0 {
            // SAFETY: a node and an entry that are in the tree (1, 2).
            let node = unsafe { Node::at(self.nodes.locate(PieceIndex((last >> 32) as u32))) };
            let neighbour = self.entry_at(PieceIndex(last as u32)).user_key();
            let level = node.level();
            // The neighbour is below the node, so the node is for keys that start as it does.
            if level < key.user_key.len() && neighbour.get(..level) == Some(&key.user_key[..level]) {
                return node;
            }
        }
        self.root()
    }

    /// Where a new entry belongs, looking from `start` down.
    #[inline]
    fn find_place<'a>(&'a self, key: EntryKey<'_>, start: Node<'a>) -> Place<'a> {
        let (mut parent, mut node) = (None, start);
        loop {
            let symbol = self.order.symbol(key, node.level());
            let depth = node.level() + 1;
            let Some(child) = node.child_of(symbol) else { return Place::Empty { parent, node, symbol } };
            if child.is_entry() {
                let there = self.entry(child).key();
                let position = first_difference(key, there, depth);
                if is_same_write(key, position) {
                    return Place::Taken;
                }
                let fork = Fork { position, there: self.order.symbol(there, position) };
                return Place::Fork { node, symbol, child, fork };
            }
            let below = self.node(child);
            if let Some(fork) = self.fork_above(below, key, depth) {
                return Place::Fork { node, symbol, child, fork };
            }
            (parent, node) = (Some((node, symbol, child)), below);
        }
    }

    /// Puts a new node over `child`, with the new entry beside it. Answers the new node, or nothing
    /// if somebody has changed the place.
    fn add_joint(
        &self,
        node: Node<'_>,
        symbol: Symbol,
        child: Child,
        fork: Fork,
        key: EntryKey<'_>,
        entry: PieceIndex,
    ) -> Option<Option<Child>> {
        let joint = self.make_joint(key, entry, node.level() + 1, fork, child);
        let mut locked = node.lock()?;
        if locked.child_of(symbol) != Some(child) {
            return None; // The joint is lost to the arena; that is rare.
        }
        locked.replace(symbol, joint);
        Some(Some(joint))
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
        if self.spare_half.load(Relaxed) != 0 {
            // Acquire: the block that the half is in was introduced before the store below.
            let spare = self.spare_half.swap(0, Acquire);
            if spare != 0 {
                return PieceIndex(spare);
            }
        }
        let index = self.nodes.allocate(2 * half).index();
        // A half that another writer left meanwhile is lost to the arena.
        self.spare_half.store(index.plus(half).0, Release);
        index
    }

    /// Gives `node` a child for a symbol that had none. Answers the node that has it now, if it is
    /// another one than the last write went to; or nothing if that did not work out: somebody was
    /// faster, or the node is full and its parent unknown.
    fn add_child(
        &self,
        parent: Option<(Node<'_>, Symbol, Child)>,
        node: Node<'_>,
        symbol: Symbol,
        child: Child,
    ) -> Option<Option<Child>> {
        let mut locked = node.lock()?;
        if locked.child_of(symbol).is_some() {
            return None;
        }
        if locked.add(symbol, child) {
            return Some(parent.map(|(_, _, node)| node));
        }
        drop(locked); // Locks are taken from the root down.
        let (parent, at, full) = parent?;
        let mut above = parent.lock()?;
        if above.child_of(at) != Some(full) {
            return None;
        }
        let locked = node.lock()?;
        if locked.child_of(symbol).is_some() {
            return None;
        }
        let piece = self.nodes.allocate(node::size_of_kind(locked.larger_kind()));
        // SAFETY: the piece is ours alone and has the size of the kind.
        let copy = unsafe { locked.grow_into(piece.pointer) };
        copy.add_unpublished(symbol, child);
        let copy = Child::node(piece.index());
        above.replace(at, copy);
        locked.mark_replaced();
        Some(Some(copy))
    }

    /// The newest entry of `target`'s user key that is not newer than `target`.
    #[inline]
    pub fn get(&self, target: EntryKey<'_>) -> Option<Entry<'_>> {
        let mut node = self.root();
        loop {
            let child = match target.user_key.get(node.level()) {
                Some(byte) => node.child_of_byte(byte ^ self.order.flip)?,
                None if node.level() == target.user_key.len() => node.child_of(self.order.end)?,
                None => return self.get_version(node, target),
            };
            if child.is_entry() {
                let entry = self.entry(child);
                let key = entry.key();
                return (key.user_key == target.user_key && key.trailer <= target.trailer).then_some(entry);
            }
            node = self.node(child);
        }
    }

    /// Goes on with `get` in a node that may hold the entries of that user key.
    #[cold]
    fn get_version(&self, node: Node<'_>, target: EntryKey<'_>) -> Option<Entry<'_>> {
        let Prefix::Witness(witness) = node.prefix() else { return None };
        if !node.has_versions_only() || self.entry_at(witness).user_key() != target.user_key {
            return None;
        }
        let mut path = Path::new();
        path.push(Frame::new(node, BEFORE_ALL));
        let newest = self.step_forward(&mut path).map(|child| self.entry(child));
        let newest = newest.filter(|entry| entry.key().trailer <= target.trailer);
        // If `target` parts from what they share, all are newer: the newest one was.
        if newest.is_some() || self.fork_above(node, target, target.user_key.len() + 1).is_some() {
            return newest;
        }
        path.clear();
        self.seek_below(node, &mut path, target).map(|child| self.entry(child))
    }

    /// Moves to the first entry.
    pub fn seek_to_first(&self, walk: &mut Walk) -> Option<Entry<'_>> {
        let path = walk.restart();
        path.push(Frame::new(self.root(), BEFORE_ALL));
        self.step_forward(path).map(|child| self.entry(child))
    }

    /// Moves to the last entry.
    pub fn seek_to_last(&self, walk: &mut Walk) -> Option<Entry<'_>> {
        let path = walk.restart();
        path.push(Frame::new(self.root(), AFTER_ALL));
        self.step_back(path).map(|child| self.entry(child))
    }

    /// Moves to the first entry at or after `key`.
    pub fn seek(&self, walk: &mut Walk, key: EntryKey<'_>) -> Option<Entry<'_>> {
        self.seek_below(self.root(), walk.restart(), key).map(|child| self.entry(child))
    }

    fn seek_below(&self, from: Node<'_>, path: &mut Path, key: EntryKey<'_>) -> Option<Child> {
        match self.descend(from, path, key) {
            Some((child, Ordering::Equal | Ordering::Greater)) if child.is_entry() => return Some(child),
            Some((child, Ordering::Greater)) => path.push(Frame::new(self.node(child), BEFORE_ALL)),
            _ => {}
        }
        self.step_forward(path)
    }

    /// Moves to the last entry at or before `key`.
    pub fn seek_for_prev(&self, walk: &mut Walk, key: EntryKey<'_>) -> Option<Entry<'_>> {
        let path = walk.restart();
        match self.descend(self.root(), path, key) {
            Some((child, Ordering::Equal | Ordering::Less)) if child.is_entry() => {
                return Some(self.entry(child));
            }
            Some((child, Ordering::Less)) => path.push(Frame::new(self.node(child), AFTER_ALL)),
            _ => {}
        }
        self.step_back(path).map(|child| self.entry(child))
    }

    /// Follows `key` down as far as it goes. Answers the child where it stops, if there is one, and
    /// how everything in it compares to `key`.
    fn descend(&self, from: Node<'_>, path: &mut Path, key: EntryKey<'_>) -> Option<(Child, Ordering)> {
        let mut node = from;
        loop {
            let symbol = self.order.symbol(key, node.level());
            path.push(Frame::new(node, symbol));
            let child = node.child_of(symbol)?;
            if child.is_entry() {
                return Some((child, self.order.compare(self.entry(child).key(), key)));
            }
            let below = self.node(child);
            if let Some(fork) = self.fork_above(below, key, node.level() + 1) {
                return Some((child, fork.there.cmp(&self.order.symbol(key, fork.position))));
            }
            node = below;
        }
    }

    /// Moves from `current`, where the walk is, to the next entry.
    #[inline]
    pub fn next(&self, walk: &mut Walk, current: Entry<'_>) -> Option<Entry<'_>> {
        self.go(walk, Direction::Forward, current)
    }
    /// Moves from `current`, where the walk is, to the previous entry.
    #[inline]
    pub fn prev(&self, walk: &mut Walk, current: Entry<'_>) -> Option<Entry<'_>> {
        self.go(walk, Direction::Backward, current)
    }

    #[inline]
    fn go(&self, walk: &mut Walk, direction: Direction, current: Entry<'_>) -> Option<Entry<'_>> {
        if walk.direction != direction {
            if walk.ended || walk.ahead.len > 0 {
                let found = self.seek(walk, current.key());
                debug_assert!(found.is_some_and(|found| found.address() == current.address()));
            }
            walk.direction = direction;
        }
        if walk.ahead.len * 2 <= walk.width && !walk.ended {
            self.look_ahead(walk);
        }
        walk.ahead.pop().map(|child| self.entry(child))
    }

    /// Finds more entries ahead, each time twice as many, up to a limit.
    fn look_ahead(&self, walk: &mut Walk) {
        if walk.width == 0
            && let [.., above, _] = &mut walk.path[..]
        {
            self.ask_for_sibling(above, walk.direction);
        }
        walk.width = (walk.width * 2).clamp(4, Ahead::ROOM);
        while walk.ahead.len < walk.width {
            let child = match walk.direction {
                Direction::Forward => self.step_forward(&mut walk.path),
                Direction::Backward => self.step_back(&mut walk.path),
            };
            let Some(child) = child else {
                walk.ended = true;
                return;
            };
            prefetch(self.entry(child).address(), 2 * CACHE_LINE);
            walk.ahead.push(child);
        }
    }

    /// Moves `path` to the next entry.
    fn step_forward(&self, path: &mut Path) -> Option<Child> {
        loop {
            let frame = path.last_mut()?;
            match self.next_child(frame) {
                Some(child) if child.is_entry() => return Some(child),
                Some(child) => {
                    self.ask_for_sibling(frame, Direction::Forward);
                    path.push(Frame::new(self.node(child), BEFORE_ALL));
                }
                None => drop(path.pop()),
            }
        }
    }

    /// Prefetches the node that the walk will come to when it is done with the one it is at.
    #[inline]
    fn ask_for_sibling(&self, frame: &mut Frame, direction: Direction) {
        // SAFETY: a node of this tree (3).
        let node = unsafe { Node::at(frame.node) };
        let sibling = node.peek(&mut frame.siblings, frame.symbol, direction == Direction::Forward);
        if let Some(sibling) = sibling.filter(|sibling| !sibling.is_entry()) {
            prefetch(self.node(sibling).address(), CACHE_LINE);
        }
    }

    /// Moves `path` to the previous entry.
    fn step_back(&self, path: &mut Path) -> Option<Child> {
        loop {
            let frame = path.last_mut()?;
            match self.prev_child(frame) {
                Some(child) if child.is_entry() => return Some(child),
                Some(child) => {
                    self.ask_for_sibling(frame, Direction::Backward);
                    path.push(Frame::new(self.node(child), AFTER_ALL));
                }
                None => drop(path.pop()),
            }
        }
    }

    #[inline]
    fn next_child(&self, frame: &mut Frame) -> Option<Child> {
        // SAFETY: a node of this tree (3).
        let node = unsafe { Node::at(frame.node) };
        let from = frame.symbol;
        let end = |frame: &mut Frame| {
            frame.symbol = self.order.end;
            node.child_of(self.order.end)
        };
        if self.order.end == END_FIRST && from < END_FIRST {
            let child = end(frame);
            if child.is_some() {
                return child;
            }
        }
        if let Some((symbol, child)) = node.next_by_byte(&mut frame.siblings, from) {
            frame.symbol = symbol;
            return Some(child);
        }
        if self.order.end == END_LAST && from < END_LAST { end(frame) } else { None }
    }

    fn prev_child(&self, frame: &mut Frame) -> Option<Child> {
        // SAFETY: a node of this tree (3).
        let node = unsafe { Node::at(frame.node) };
        let from = frame.symbol;
        let end = |frame: &mut Frame| {
            frame.symbol = self.order.end;
            node.child_of(self.order.end)
        };
        if self.order.end == END_LAST && from > END_LAST {
            let child = end(frame);
            if child.is_some() {
                return child;
            }
        }
        if let Some((symbol, child)) = node.prev_by_byte(&mut frame.siblings, from) {
            frame.symbol = symbol;
            return Some(child);
        }
        if self.order.end == END_FIRST && from > END_FIRST { end(frame) } else { None }
    }

    /// About which part of the entries comes before `key`, if every child weighs the same.
    pub fn share_before(&self, key: EntryKey<'_>) -> f64 {
        let mut path = Path::new();
        self.descend(self.root(), &mut path, key);
        path.iter().rev().fold(0.0, |below, frame| {
            // SAFETY: a node of this tree (3).
            let node = unsafe { Node::at(frame.node) };
            node.share_before(frame.symbol, below, self.order.end)
        })
    }
}

impl Ahead {
    const ROOM: usize = 16;

    /// Call while there is room.
    fn push(&mut self, child: Child) {
        self.ring[(self.first + self.len) % Self::ROOM] = Some(child);
        self.len += 1;
    }
    #[inline]
    fn pop(&mut self) -> Option<Child> {
        self.len = self.len.checked_sub(1)?;
        let child = self.ring[self.first];
        self.first = (self.first + 1) % Self::ROOM;
        child
    }
}

impl Walk {
    fn restart(&mut self) -> &mut Path {
        self.path.clear();
        self.ahead.len = 0;
        (self.ended, self.width) = (false, 0);
        &mut self.path
    }
}

impl Frame {
    fn new(node: Node<'_>, symbol: Symbol) -> Self {
        Self { node: node.address(), symbol, siblings: None }
    }
}
