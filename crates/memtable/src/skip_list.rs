//! A skip list in an arena: any comparator, concurrent writers, readers that never wait.
//!
//! ```text
//!   link to the next node at level h-1 .. link at level 0 | order prefix, u64 | entry
//!                                                         ^ a node's address
//! ```
//! Most comparisons are decided by the order prefix, in the cache line that holds the links.
//!
//! # Safety argument
//! 1. A node is complete (entry, prefix, link of that level) before a Release store or
//!    compare-exchange makes it reachable; links are loaded with Acquire. Entry and prefix never
//!    change afterwards, and links change atomically.
//! 2. Nodes belong to the arena of this list and live as long as the list. A [`Node<'a>`] borrows
//!    the list for `'a`.
//! 3. A node that was reached through level `n` has links `0..=n`: it was put there with a tower
//!    of that height. The head has all of them.
//! 4. A [`Splice`] belongs to one list: it sits inside the list, or in a writer that borrows the
//!    memtable.

use crate::arena::Arena;
use crate::entry::{Entry, EntryKey, encoded_len, is_ordered, newest_first};
use ironstone_base::UserComparator;
use ironstone_base::perf::{self, PerfMetric};
use ironstone_base::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};
use ironstone_base::sync::{Mutex, plain};
use std::cell::Cell;
use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ptr::NonNull;

const MAX_HEIGHT: usize = 12;
/// One node in `1 << BRANCHING_BITS` reaches the next level.
const BRANCHING_BITS: u32 = 2;
const LINK: usize = size_of::<AtomicPtr<u8>>();
const PREFIX: usize = size_of::<u64>();

pub(crate) struct SkipList {
    arena: Arena,
    head: NonNull<u8>,
    /// The tallest tower. Relaxed: a search that sees too small a height is slower, not wrong.
    height: AtomicUsize,
    /// Where the last write was; the next one is often right behind it.
    hint: Mutex<Splice>,
}

// SAFETY: everything behind `head` is in the arena and changes by atomic operations only (1, 2).
unsafe impl Send for SkipList {}
// SAFETY: as above.
unsafe impl Sync for SkipList {}

#[derive(Clone, Copy)]
struct Node<'a> {
    address: NonNull<u8>,
    list: PhantomData<&'a SkipList>,
}

impl<'a> Node<'a> {
    /// # Safety
    /// `address` is a node of a list that is borrowed for `'a` (2).
    unsafe fn at(address: NonNull<u8>) -> Self {
        Self { address, list: PhantomData }
    }
    fn link(self, level: usize) -> &'a AtomicPtr<u8> {
        // SAFETY: callers come through `level` (3); aligned, since nodes and links are.
        unsafe { self.address.sub(LINK * (level + 1)).cast().as_ref() }
    }
    #[inline]
    fn next(self, level: usize) -> Option<Self> {
        let next = NonNull::new(self.link(level).load(Acquire))?;
        // SAFETY: a link leads to a complete node (1) of the same list (2).
        Some(unsafe { Self::at(next) })
    }
    /// Call on nodes other than the head.
    #[inline]
    fn prefix(self) -> u64 {
        plain::reads(self.address.as_ptr());
        // SAFETY: written before the node became reachable (1).
        unsafe { self.address.cast().read() }
    }
    /// Call on nodes other than the head.
    #[inline]
    fn entry(self) -> Entry<'a> {
        // SAFETY: written before the node became reachable (1), alive (2).
        unsafe { Entry::at(self.address.add(PREFIX)) }
    }
}

/// What is searched for. How often it was compared is counted when the search is over.
struct Target<'a> {
    user: &'a UserComparator,
    prefix: u64,
    key: EntryKey<'a>,
    compared: Cell<u64>,
}

impl Drop for Target<'_> {
    #[inline]
    fn drop(&mut self) {
        perf::count(PerfMetric::UserKeyComparisonCount, self.compared.get());
    }
}

impl<'a> Target<'a> {
    fn new(user: &'a UserComparator, key: EntryKey<'a>) -> Self {
        Self { user, prefix: user.order_prefix(key.user_key), key, compared: Cell::new(0) }
    }
    /// Where `node` stands relative to the target.
    #[inline]
    fn order_of(&self, node: Node<'_>) -> Ordering {
        self.compared.set(self.compared.get() + 1);
        node.prefix().cmp(&self.prefix).then_with(|| {
            let key = node.entry().key();
            self.user
                .compare(key.user_key, self.key.user_key)
                .then_with(|| newest_first(key.trailer, self.key.trailer))
        })
    }
    /// Whether `node` has the same user key and sequence number.
    fn is_same_write(&self, node: Node<'_>) -> bool {
        node.prefix() == self.prefix && {
            let key = node.entry().key();
            key.sequence() == self.key.sequence() && {
                self.compared.set(self.compared.get() + 1);
                self.user.equal(key.user_key, self.key.user_key)
            }
        }
    }
}

/// The nodes around a place in the list, by level. Between writes it is only a hint.
pub(crate) struct Splice {
    /// How many levels are filled in.
    height: usize,
    before: [Option<NonNull<u8>>; MAX_HEIGHT],
    after: [Option<NonNull<u8>>; MAX_HEIGHT],
}

// SAFETY: addresses that are only used with their list (4).
unsafe impl Send for Splice {}

impl Default for Splice {
    fn default() -> Self {
        Self { height: 0, before: [None; MAX_HEIGHT], after: [None; MAX_HEIGHT] }
    }
}

impl SkipList {
    pub fn new(arena: Arena) -> Self {
        let tower = LINK * MAX_HEIGHT;
        let start = arena.allocate(tower + PREFIX).pointer;
        // SAFETY: the piece holds the tower, and zeroed atomic pointers are null links.
        let head = unsafe {
            start.write_bytes(0, tower + PREFIX);
            start.add(tower)
        };
        Self { arena, head, height: AtomicUsize::new(1), hint: Mutex::default() }
    }

    fn head(&self) -> Node<'_> {
        // SAFETY: made by `new` (2).
        unsafe { Node::at(self.head) }
    }

    /// The shared hint, unless another writer has it.
    pub fn hint(&self) -> &Mutex<Splice> {
        &self.hint
    }

    /// Adds an entry, unless one with this user key and sequence number is there.
    pub fn insert(
        &self,
        user: &UserComparator,
        key: EntryKey<'_>,
        value: &[u8],
        splice: &mut Splice,
    ) -> bool {
        let target = Target::new(user, key);
        let height = tower_height(&target);
        if height > self.height.load(Relaxed) {
            self.height.fetch_max(height, Relaxed);
        }
        self.place(&target, height, splice);
        if self.is_repeated(&target, splice) {
            return false;
        }
        let node = self.make_node(height, &target, value);
        for level in 0..height {
            while !self.link(node, level, splice) {
                // Another writer was faster. What it added may stand on either side of the target.
                let before = splice.before[level].expect("the splice reaches every level of the tower");
                // SAFETY: a node of this list (4).
                self.look_between(&target, unsafe { Node::at(before) }, None, level, splice);
                if level == 0 && self.is_repeated(&target, splice) {
                    return false; // The new node stays unreachable until the arena goes.
                }
            }
            splice.before[level] = Some(node.address);
        }
        true
    }

    fn make_node(&self, height: usize, target: &Target<'_>, value: &[u8]) -> Node<'_> {
        let tower = LINK * height;
        let len = encoded_len(target.key.user_key, value);
        let start = self.arena.allocate(tower + PREFIX + len).pointer;
        // SAFETY: the piece is ours alone until it is linked, and large enough for all parts. The
        // tower is zeroed, so it holds links.
        unsafe {
            start.write_bytes(0, tower);
            let address = start.add(tower);
            address.cast().write(target.prefix);
            plain::wrote(address.as_ptr());
            Entry::write(address.add(PREFIX), target.key, value);
            Node::at(address)
        }
    }

    /// Puts `node` between its neighbours at `level`. Fails if they are no longer neighbours.
    fn link(&self, node: Node<'_>, level: usize, splice: &Splice) -> bool {
        let before = splice.before[level].expect("the splice reaches every level of the tower");
        let after = splice.after[level].map_or(std::ptr::null_mut(), NonNull::as_ptr);
        node.link(level).store(after, Relaxed); // Published by the exchange below.
        // SAFETY: a node of this list (4), found at this level (3).
        let before = unsafe { Node::at(before) };
        before.link(level).compare_exchange(after, node.address.as_ptr(), Release, Relaxed).is_ok()
    }

    fn is_repeated(&self, target: &Target<'_>, splice: &Splice) -> bool {
        [splice.before[0], splice.after[0]].into_iter().flatten().any(|address| {
            // SAFETY: a node of this list (4).
            address != self.head && target.is_same_write(unsafe { Node::at(address) })
        })
    }

    /// Brings levels `0..height` of `splice` around `target`, from what it remembers if that is
    /// near. Every level that is linked afterwards was compared here or found by a search.
    fn place(&self, target: &Target<'_>, height: usize, splice: &mut Splice) {
        let known = (0..splice.height).find(|&level| self.is_around(target, level, splice));
        if let Some(known) = known
            && height <= splice.height
            && (known + 1..height).all(|level| self.is_around(target, level, splice))
        {
            let before = splice.before[known].expect("checked above");
            // SAFETY: a node of this list (4).
            return self.descend(target, unsafe { Node::at(before) }, known, splice);
        }
        splice.height = self.height.load(Relaxed).max(height);
        self.descend(target, self.head(), splice.height, splice);
    }

    /// Whether `splice` has the target between two nodes at `level`.
    fn is_around(&self, target: &Target<'_>, level: usize, splice: &Splice) -> bool {
        let Some(before) = splice.before[level] else { return false };
        // SAFETY: nodes of this list (4).
        let order = |address| target.order_of(unsafe { Node::at(address) });
        (before == self.head || order(before).is_lt())
            && splice.after[level].is_none_or(|after| order(after).is_gt())
    }

    /// Fills in levels `0..below`, going right from `before` and down.
    fn descend<'a>(&'a self, target: &Target<'_>, mut before: Node<'a>, below: usize, splice: &mut Splice) {
        let mut after = None;
        for level in (0..below).rev() {
            (before, after) = self.look_between(target, before, after, level, splice);
        }
    }

    /// Finds the neighbours of `target` at `level`, right of `before`. `known_after` is known to
    /// stand after the target.
    fn look_between<'a>(
        &'a self,
        target: &Target<'_>,
        before: Node<'a>,
        known_after: Option<NonNull<u8>>,
        level: usize,
        splice: &mut Splice,
    ) -> (Node<'a>, Option<NonNull<u8>>) {
        let (before, after) = Self::walk(target, before, known_after, level, Ordering::is_lt);
        splice.before[level] = Some(before.address);
        splice.after[level] = after;
        (before, after)
    }

    /// Goes right at `level` while the next node is `passed`. Answers the last node passed and the
    /// next one.
    #[inline]
    fn walk<'a>(
        target: &Target<'_>,
        mut before: Node<'a>,
        known_after: Option<NonNull<u8>>,
        level: usize,
        passed: impl Fn(Ordering) -> bool,
    ) -> (Node<'a>, Option<NonNull<u8>>) {
        loop {
            let next = before.next(level);
            let address = next.map(|node| node.address);
            match next {
                Some(next) if address != known_after && passed(target.order_of(next)) => before = next,
                _ => return (before, address),
            }
        }
    }

    /// The last node whose order relative to the target is `passed` (the head if there is none),
    /// and the one after it.
    #[inline]
    fn search(
        &self,
        target: &Target<'_>,
        passed: impl Fn(Ordering) -> bool,
    ) -> (Node<'_>, Option<NonNull<u8>>) {
        let (mut before, mut after) = (self.head(), None);
        for level in (0..self.height.load(Relaxed)).rev() {
            (before, after) = Self::walk(target, before, after, level, &passed);
        }
        (before, after)
    }

    fn not_head<'a>(&'a self, node: Node<'a>) -> Option<Entry<'a>> {
        (node.address != self.head).then(|| node.entry())
    }

    /// The first entry at or after `key`.
    #[inline]
    pub fn first_at_or_after(&self, user: &UserComparator, key: EntryKey<'_>) -> Option<Entry<'_>> {
        let (_, after) = self.search(&Target::new(user, key), Ordering::is_lt);
        // SAFETY: a link leads to a complete node of this list (1, 2).
        after.map(|node| unsafe { Node::at(node) }.entry())
    }
    /// The last entry at or before `key`.
    pub fn last_at_or_before(&self, user: &UserComparator, key: EntryKey<'_>) -> Option<Entry<'_>> {
        self.not_head(self.search(&Target::new(user, key), Ordering::is_le).0)
    }
    /// The last entry before `key`.
    pub fn last_before(&self, user: &UserComparator, key: EntryKey<'_>) -> Option<Entry<'_>> {
        self.not_head(self.search(&Target::new(user, key), Ordering::is_lt).0)
    }
    /// Goes where a search for `key` goes. Answers the first entry on the way that does not stand behind the one before it,
    /// or that `is_good` denies.
    pub fn find_damage<'a>(
        &'a self,
        user: &UserComparator,
        key: EntryKey<'_>,
        is_good: impl Fn(Entry<'a>) -> bool,
    ) -> Option<Entry<'a>> {
        let target = Target::new(user, key);
        let mut before = self.head();
        for level in (0..self.height.load(Relaxed)).rev() {
            while let Some(next) = before.next(level) {
                let entry = next.entry();
                let is_behind = self.not_head(before).is_none_or(|before| is_ordered(user, before, entry));
                if !is_behind || next.prefix() != user.order_prefix(entry.user_key()) || !is_good(entry) {
                    return Some(entry);
                }
                if !target.order_of(next).is_lt() {
                    break;
                }
                before = next;
            }
        }
        None
    }
    pub fn first(&self) -> Option<Entry<'_>> {
        self.head().next(0).map(Node::entry)
    }
    pub fn last(&self) -> Option<Entry<'_>> {
        let mut last = self.head();
        for level in (0..self.height.load(Relaxed)).rev() {
            while let Some(next) = last.next(level) {
                last = next;
            }
        }
        self.not_head(last)
    }
    /// The entry after `entry`.
    ///
    /// # Safety
    /// `entry` belongs to this list.
    #[inline]
    pub unsafe fn next_of<'a>(&'a self, entry: Entry<'a>) -> Option<Entry<'a>> {
        // SAFETY: an entry of this list sits in a node, behind the prefix (2).
        let node = unsafe { Node::<'a>::at(entry.address().sub(PREFIX)) };
        node.next(0).map(Node::entry)
    }

    /// About how many of the `entries` entries come before `key`: walks a level with enough nodes
    /// for a guess, then refines it further down.
    pub fn approximate_rank(&self, user: &UserComparator, key: EntryKey<'_>, entries: u64) -> u64 {
        const STEPS: u64 = 128;
        let target = Target::new(user, key);
        let top = (entries / STEPS).checked_ilog2().unwrap_or(0) / BRANCHING_BITS;
        let top = (top as usize).min(self.height.load(Relaxed) - 1);
        let (mut node, mut rank) = (self.head(), 0);
        for level in (0..=top).rev() {
            while let Some(next) = node.next(level).filter(|next| target.order_of(*next).is_lt()) {
                (node, rank) = (next, rank + (1 << (BRANCHING_BITS as usize * level)));
            }
        }
        rank
    }

    pub fn memory_usage(&self) -> usize {
        self.arena.memory_usage()
    }
}

/// The height for a new tower: random over different writes, the same in every run.
fn tower_height(target: &Target<'_>) -> usize {
    let mut mixed = (target.key.trailer ^ target.prefix.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let height = 1 + (mixed ^ (mixed >> 32)).trailing_zeros() / BRANCHING_BITS;
    (height as usize).min(MAX_HEIGHT)
}
