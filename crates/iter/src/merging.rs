//! The merge of several iterators into one.
//!
//! ```text
//!        tree[0]          the child stood on
//!        tree[1]          of each pair the loser waits,
//!     tree[2] tree[3]     the winner plays on upwards
//!      a   b   c   d      children
//! ```
//! After a step only the path from one child to the top is played again, one comparison per level.
//! What is compared are ranks: 8 bytes of the key as a number, inverted when walking backwards. Equal
//! ranks compare the keys, and equal keys the numbers of the children: the order is total, which is
//! what makes turning around exact. How ranks stay different is told in `ranking`.

mod loser_tree;
mod ranking;

use crate::{BoxedIterator, EmptyIterator, InternalIterator};
use ironstone_base::perf::{self, PerfMetric};
use ironstone_base::{InternalKey, InternalKeyBuf, InternalKeyComparator, Result, SequenceNumber, ValueType};
use loser_tree::{Head, LoserTree};
use ranking::Ranking;
use std::cmp::Ordering;

/// The iterator over everything that `children` hold. One child is handed back as it is.
pub fn merge(comparator: InternalKeyComparator, mut children: Vec<BoxedIterator>) -> BoxedIterator {
    match children.len() {
        0 => Box::new(EmptyIterator),
        1 => children.swap_remove(0),
        _ => Box::new(MergingIterator::new(comparator, children)),
    }
}

/// Walks the entries of all its children in order. Of equal internal keys in several children, that
/// of the first child comes first.
///
/// An error of any child is returned by the move that met it and leaves the iterator standing
/// nowhere; the next seek starts afresh.
pub struct MergingIterator<I = BoxedIterator> {
    children: Vec<I>,
    ranking: Ranking,
    tree: LoserTree,
    /// The child stood on.
    current: usize,
    direction: Direction,
    valid: bool,
    /// The key stood on while the children turn around.
    pivot: InternalKeyBuf,
}

/// Where a walk goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To larger keys.
    Forward,
    /// To smaller keys.
    Backward,
}

impl<I: InternalIterator> MergingIterator<I> {
    /// A merge of `children`. Stands nowhere, and does not look at where they stand.
    pub fn new(comparator: InternalKeyComparator, children: Vec<I>) -> Self {
        Self {
            tree: LoserTree::default(),
            children,
            ranking: Ranking::new(comparator),
            current: 0,
            direction: Direction::Forward,
            valid: false,
            pivot: InternalKeyBuf::new(b"", SequenceNumber::ZERO, ValueType::Value),
        }
    }

    /// The children, to be changed before the next seek: it stands nowhere until then.
    pub fn children_mut(&mut self) -> &mut Vec<I> {
        self.valid = false;
        &mut self.children
    }
    /// How many children there are.
    pub fn child_count(&self) -> usize {
        self.children.len()
    }

    /// Places every child with `place` and stands on the first of them in `direction`.
    fn start(&mut self, direction: Direction, place: impl FnMut(&mut I) -> Result<bool>) -> Result<bool> {
        self.place(direction, place)?;
        Ok(self.play_all())
    }

    /// The first half of a seek, for whoever takes the times of both: places every child with `place`. It stands nowhere
    /// until [`play_all`](Self::play_all).
    #[inline]
    pub fn place(
        &mut self,
        direction: Direction,
        mut place: impl FnMut(&mut I) -> Result<bool>,
    ) -> Result<()> {
        (self.direction, self.valid) = (direction, false); // Until all children are where they belong.
        for child in &mut self.children {
            place(child)?;
        }
        Ok(())
    }

    /// The second half: ranks all children and stands on the first of them.
    #[inline(never)]
    pub fn play_all(&mut self) -> bool {
        let children = &self.children;
        let standing = children.iter().filter(|child| child.valid());
        self.ranking.start(self.direction, standing.map(|child| child.key().user_key()));
        let ranking = &self.ranking;
        let head = |child: &I| match child.valid().then(|| ranking.rank(child.key().user_key())) {
            Some(rank) => rank.expect("the shared prefix was taken from these keys"),
            None => Head::NONE,
        };
        self.tree.build(children.iter().map(head), |a, b| ranking.break_tie(children, a, b));
        perf::count(PerfMetric::UserKeyComparisonCount, children.len().saturating_sub(1) as u64);
        self.stand_on_winner()
    }

    /// One step on in the direction of travel.
    #[inline]
    fn step(&mut self, direction: Direction) -> Result<bool> {
        let Self { children, ranking, tree, current, .. } = self;
        let child = &mut children[*current];
        let moved = match direction {
            Direction::Forward => child.next(),
            Direction::Backward => child.prev(),
        };
        let rank = match moved {
            Ok(true) if children.len() == 1 => return Ok(true),
            Ok(true) => match ranking.rank(children[*current].key().user_key()) {
                Some(rank) => rank,
                None => return Ok(self.play_all()), // The walk has left the shared prefix.
            },
            Ok(false) => Head::NONE,
            Err(error) => {
                self.valid = false;
                return Err(error);
            }
        };
        let mut ties = 0;
        tree.replace_winner(rank, |a, b| {
            ties += 1;
            ranking.break_tie(children, a, b)
        });
        if ties > 0 && ranking.is_worn(ties) {
            return Ok(self.play_all());
        }
        Ok(self.stand_on_winner())
    }

    #[inline]
    fn stand_on_winner(&mut self) -> bool {
        let Some(winner) = self.tree.winner() else {
            self.valid = false;
            return false;
        };
        self.current = winner.child as usize;
        // Only the rank of a child that has ended needs a second look: a key may have it too.
        self.valid = winner.rank != Head::NONE || self.children[self.current].valid();
        self.valid
    }

    /// Turns the children around and steps. All of the others are on the far side of the current
    /// entry and next to it, so one step each brings them to the near side.
    #[cold]
    fn turn(&mut self, direction: Direction) -> Result<bool> {
        let current = self.current;
        self.pivot.assign(self.children[current].key());
        (self.direction, self.valid) = (direction, false); // Until all children are where they belong.
        for index in 0..self.children.len() {
            if index == current {
                continue;
            }
            self.turn_child(index, current, direction)?;
        }
        match direction {
            Direction::Forward => self.children[current].next()?,
            Direction::Backward => self.children[current].prev()?,
        };
        Ok(self.play_all())
    }

    /// Moves child `index` to its nearest entry in `direction`, seen from entry `pivot` of `current`.
    fn turn_child(&mut self, index: usize, current: usize, direction: Direction) -> Result<()> {
        let (child, pivot) = (&mut self.children[index], self.pivot.as_key());
        let stands = match (direction, child.valid()) {
            (Direction::Forward, true) => child.next()?,
            (Direction::Forward, false) => child.seek_to_first()?,
            (Direction::Backward, true) => child.prev()?,
            (Direction::Backward, false) => child.seek_to_last()?,
        };
        let wrong_side = match direction {
            Direction::Forward => Ordering::Less,
            Direction::Backward => Ordering::Greater,
        };
        let comparator = self.ranking.comparator();
        let side = |child: &I| {
            perf::count(PerfMetric::UserKeyComparisonCount, 1);
            comparator.compare(child.key(), pivot).then(index.cmp(&current))
        };
        if !stands || side(child) != wrong_side {
            return Ok(());
        }
        // A memtable that is being written to: entries have come in between.
        let stands = match direction {
            Direction::Forward => child.seek(pivot)?,
            Direction::Backward => child.seek_for_prev(pivot)?,
        };
        if stands && side(child) == wrong_side {
            match direction {
                Direction::Forward => child.next()?,
                Direction::Backward => child.prev()?,
            };
        }
        Ok(())
    }
}

impl<I: InternalIterator> InternalIterator for MergingIterator<I> {
    #[inline]
    fn valid(&self) -> bool {
        self.valid
    }
    fn seek_to_first(&mut self) -> Result<bool> {
        self.start(Direction::Forward, |child| child.seek_to_first())
    }
    fn seek_to_last(&mut self) -> Result<bool> {
        self.start(Direction::Backward, |child| child.seek_to_last())
    }
    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool> {
        self.start(Direction::Forward, |child| child.seek(target))
    }
    fn seek_for_prev(&mut self, target: InternalKey<'_>) -> Result<bool> {
        self.start(Direction::Backward, |child| child.seek_for_prev(target))
    }
    #[inline]
    fn next(&mut self) -> Result<bool> {
        debug_assert!(self.valid, "next from nowhere");
        match self.direction {
            Direction::Forward => self.step(Direction::Forward),
            Direction::Backward => self.turn(Direction::Forward),
        }
    }
    #[inline]
    fn prev(&mut self) -> Result<bool> {
        debug_assert!(self.valid, "prev from nowhere");
        match self.direction {
            Direction::Backward => self.step(Direction::Backward),
            Direction::Forward => self.turn(Direction::Backward),
        }
    }
    #[inline]
    fn key(&self) -> InternalKey<'_> {
        debug_assert!(self.valid, "key of nowhere");
        self.children[self.current].key()
    }
    #[inline]
    fn value(&self) -> &[u8] {
        debug_assert!(self.valid, "value of nowhere");
        self.children[self.current].value()
    }
    fn note_use(&mut self) {
        if self.valid {
            self.children[self.current].note_use();
        }
    }
    fn skip_older_children(&mut self, child: usize, target: InternalKey<'_>) -> Result<bool> {
        debug_assert!(self.valid && self.direction == Direction::Forward, "skips while walking forward");
        self.valid = false; // Until all children are where they belong.
        let comparator = self.ranking.comparator();
        let mut compared = 0;
        for child in self.children.iter_mut().skip(child).filter(|child| child.valid()) {
            compared += 1;
            if comparator.compare(child.key(), target).is_lt() {
                child.seek(target)?;
            }
        }
        perf::count(PerfMetric::UserKeyComparisonCount, compared);
        Ok(self.play_all())
    }
}

#[cfg(test)]
mod tests;
