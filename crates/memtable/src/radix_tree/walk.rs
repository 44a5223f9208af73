//! Walking the radix tree in order, both ways.
//!
//! A walk keeps the nodes from the root to where it is. What is added while it goes on may be missed
//! or seen; what was there when it was last positioned by a seek is always seen: a node that has
//! been replaced meanwhile still has all of that.
//!
//! # Safety argument
//! 1. Nothing is freed before the tree, and a walk is used with the tree that it was first used with
//!    (its owner holds that tree), so the addresses in its frames stay good.

use super::RadixTree;
use super::node::{Child, Direction, END_FIRST, END_LAST, Node, SlotOrder, Symbol};
use crate::entry::{Entry, EntryKey};
use crate::prefetch::{CACHE_LINE, prefetch};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::ptr::NonNull;

/// A place in the tree, and where it was last heading. A walk that goes on in one direction finds
/// entries ahead of time, so that their memory comes while others are looked at.
#[derive(Default)]
pub(crate) struct Walk {
    path: Path,
    /// Entries already found in this direction. While there are some, or the walk has `ended`,
    /// `path` is not at the current entry.
    ahead: Ahead,
    direction: Direction,
    ended: bool,
    /// How many entries to find ahead.
    width: usize,
}

/// The nodes from the root to an entry.
type Path = SmallVec<[Frame; 8]>;

/// A node, and at which child of it a walk is.
struct Frame {
    node: NonNull<u8>,
    /// The child, unless there is an `order`.
    symbol: Symbol,
    order: Option<SlotOrder>,
}

const BEFORE_ALL: Symbol = END_FIRST - 1;
const AFTER_ALL: Symbol = END_LAST + 1;

/// A short queue of children, nearest first.
#[derive(Default)]
struct Ahead {
    ring: [Option<Child>; Self::ROOM],
    first: usize,
    len: usize,
}

impl RadixTree {
    /// Moves to the first entry.
    pub fn seek_to_first(&self, walk: &mut Walk) -> Option<Entry<'_>> {
        let path = walk.restart();
        path.push(Frame::new(self.root_node(), BEFORE_ALL));
        self.step(path, Direction::Forward)
    }

    /// Moves to the last entry.
    pub fn seek_to_last(&self, walk: &mut Walk) -> Option<Entry<'_>> {
        let path = walk.restart();
        path.push(Frame::new(self.root_node(), AFTER_ALL));
        self.step(path, Direction::Backward)
    }

    /// Moves to the first entry at or after `key`.
    pub fn seek(&self, walk: &mut Walk, key: EntryKey<'_>) -> Option<Entry<'_>> {
        self.seek_below(self.root_node(), walk.restart(), key)
    }

    fn seek_below(&self, from: Node<'_>, path: &mut Path, key: EntryKey<'_>) -> Option<Entry<'_>> {
        match self.descend(from, path, key) {
            Some((child, order)) if child.is_entry() && order.is_ge() => return Some(self.entry(child)),
            Some((child, Ordering::Greater)) => path.push(Frame::new(self.node(child), BEFORE_ALL)),
            _ => {}
        }
        self.step(path, Direction::Forward)
    }

    /// Moves to the last entry at or before `key`.
    pub fn seek_for_prev(&self, walk: &mut Walk, key: EntryKey<'_>) -> Option<Entry<'_>> {
        let path = walk.restart();
        match self.descend(self.root_node(), path, key) {
            Some((child, order)) if child.is_entry() && order.is_le() => return Some(self.entry(child)),
            Some((child, Ordering::Less)) => path.push(Frame::new(self.node(child), AFTER_ALL)),
            _ => {}
        }
        self.step(path, Direction::Backward)
    }

    /// The first entry below `node`.
    pub(super) fn first_below(&self, node: Node<'_>) -> Option<Entry<'_>> {
        let mut path = Path::new();
        path.push(Frame::new(node, BEFORE_ALL));
        self.step(&mut path, Direction::Forward)
    }

    /// The first entry below `node` at or after `key`, which has the node's prefix.
    pub(super) fn first_at_or_after_below(&self, node: Node<'_>, key: EntryKey<'_>) -> Option<Entry<'_>> {
        self.seek_below(node, &mut Path::new(), key)
    }

    /// Follows `key` down as far as it goes. Answers the child where it stops, if there is one, and
    /// how everything in it compares to `key`. A child that is an entry may be `Equal`.
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
        let direction = walk.direction;
        if walk.width == 0
            && let [.., above, _] = &mut walk.path[..]
        {
            self.ask_for_sibling(above, direction);
        }
        walk.width = (walk.width * 2).clamp(4, Ahead::ROOM);
        let (ahead, width) = (&mut walk.ahead, walk.width);
        walk.ended = !self.visit(&mut walk.path, direction, |child| {
            prefetch(self.entry(child).address(), 2 * CACHE_LINE);
            ahead.push(child);
            ahead.len < width
        });
    }

    /// Moves `path` to the next entry.
    fn step(&self, path: &mut Path, direction: Direction) -> Option<Entry<'_>> {
        let mut found = None;
        self.visit(path, direction, |child| {
            found = Some(self.entry(child));
            false
        });
        found
    }

    /// Moves `path` from entry to entry while `more` says so. Answers `false` at the end.
    #[inline]
    fn visit(&self, path: &mut Path, direction: Direction, mut more: impl FnMut(Child) -> bool) -> bool {
        let start = match direction {
            Direction::Forward => BEFORE_ALL,
            Direction::Backward => AFTER_ALL,
        };
        while let Some(frame) = path.last_mut() {
            let below = loop {
                match self.next_child(frame, direction) {
                    Some(child) if child.is_entry() => {
                        if !more(child) {
                            return true;
                        }
                    }
                    node_or_none => break node_or_none,
                }
            };
            if let Some(node) = below {
                self.ask_for_sibling(frame, direction);
                path.push(Frame::new(self.node(node), start));
            } else {
                path.pop();
            }
        }
        false
    }

    /// Moves `frame` to the next child of its node.
    #[inline]
    fn next_child(&self, frame: &mut Frame, direction: Direction) -> Option<Child> {
        let node = self.node_of(frame);
        if frame.order.is_none() {
            frame.order = node.slot_order(frame.symbol, self.order.end);
        }
        if let Some(order) = &mut frame.order {
            return node.step(order, direction);
        }
        let (symbol, child) = node.neighbour(frame.symbol, self.order.end, direction)?;
        frame.symbol = symbol;
        Some(child)
    }

    /// Prefetches the node that the walk will come to when it is done with the child it is at.
    #[inline]
    fn ask_for_sibling(&self, frame: &mut Frame, direction: Direction) {
        let node = self.node_of(frame);
        if frame.order.is_none() {
            frame.order = node.slot_order(frame.symbol, self.order.end);
        }
        let sibling = match &frame.order {
            Some(order) => node.peek(order, direction),
            None => node.neighbour(frame.symbol, self.order.end, direction).map(|(_, child)| child),
        };
        if let Some(sibling) = sibling.filter(|sibling| !sibling.is_entry()) {
            prefetch(self.node(sibling).address(), CACHE_LINE);
        }
    }

    #[inline]
    fn node_of(&self, frame: &Frame) -> Node<'_> {
        // SAFETY: a node of this tree (1).
        unsafe { Node::at(frame.node) }
    }

    /// About which part of the entries comes before `key`, if every child weighs the same.
    pub fn share_before(&self, key: EntryKey<'_>) -> f64 {
        let mut path = Path::new();
        self.descend(self.root_node(), &mut path, key);
        path.iter()
            .rev()
            .fold(0.0, |below, frame| self.node_of(frame).share_before(frame.symbol, below, self.order.end))
    }
}

impl Frame {
    fn new(node: Node<'_>, symbol: Symbol) -> Self {
        Self { node: node.address(), symbol, order: None }
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

impl Ahead {
    const ROOM: usize = 16;

    /// Call while there is room.
    #[inline]
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
