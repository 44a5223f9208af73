//! Merges sorted inputs, forward only.
//!
//! A loser tree: each inner node remembers who lost there, so that the next entry is found with one comparison
//! per tree level, along one path. What is compared first is a cached number: the 8 bytes of the user
//! key that follow what all keys of the job have in common.
//!
//! ```text
//!             winner: 2               keys "user0001", "user0002", ... share "user000":
//!               |                     the cached numbers start at the bytes behind it
//!              [0]          <- loser of the final
//!            /     \
//!         [1]       [3]
//!        /   \     /   \
//!       0     1   2     3   inputs
//! ```
//! `ironstone_iter::MergingIterator` goes both ways and over boxed children; a compaction needs neither, and this loop
//! is the hottest of the engine.

use ironstone_base::{Error, InternalKey, InternalKeyComparator, Result, UserComparator};
use ironstone_iter::InternalIterator;
use std::cmp::Ordering;

/// The inputs and who is first. Among equal keys the input with the smaller index goes first.
pub(crate) struct ForwardMerge<'a, I> {
    order: &'a InternalKeyComparator,
    /// How many leading bytes all user keys share; they are left out of the cached numbers.
    shared_len: usize,
    inputs: Vec<I>,
    /// The cached number of each input; `None` for an exhausted one.
    heads: Vec<Option<u64>>,
    /// `losers[0]` is the winner. `losers[n]` with children `2n` and `2n + 1`; input `i` is leaf `len + i`.
    losers: Vec<usize>,
}

impl<'a, I: InternalIterator> ForwardMerge<'a, I> {
    /// Over `inputs` as they stand now. `shared_len`: see [`shared_prefix_len`]; 0 is always right.
    pub(crate) fn new(order: &'a InternalKeyComparator, shared_len: usize, inputs: Vec<I>) -> Self {
        let mut new = Self { order, shared_len, heads: vec![None; inputs.len()], losers: vec![0; inputs.len()], inputs };
        for at in 0..new.inputs.len() {
            new.take_head(at);
        }
        if new.inputs.len() > 1 {
            let winner = new.play(1);
            new.losers[0] = winner;
        }
        new
    }

    /// The winner below `node`; the losers of all matches on the way stay behind.
    fn play(&mut self, node: usize) -> usize {
        let count = self.inputs.len();
        if node >= count {
            return node - count;
        }
        let (left, right) = (self.play(2 * node), self.play(2 * node + 1));
        let (winner, loser) = if self.beats(left, right) { (left, right) } else { (right, left) };
        self.losers[node] = loser;
        winner
    }

    #[inline]
    fn take_head(&mut self, at: usize) {
        let input = &self.inputs[at];
        self.heads[at] = input.valid().then(|| {
            let key = input.key().user_key();
            self.order.user.order_prefix(key.get(self.shared_len..).unwrap_or_default())
        });
    }

    /// Whether input `a` goes before input `b`.
    #[inline]
    fn beats(&self, a: usize, b: usize) -> bool {
        match (self.heads[a], self.heads[b]) {
            (Some(head_a), Some(head_b)) if head_a != head_b => head_a < head_b,
            (Some(_), Some(_)) => match self.order.compare(self.inputs[a].key(), self.inputs[b].key()) {
                Ordering::Equal => a < b,
                order => order.is_lt(),
            },
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => a < b,
        }
    }

    #[inline]
    fn winner(&self) -> usize {
        self.losers.first().copied().unwrap_or(0)
    }
}

impl<I: InternalIterator> InternalIterator for ForwardMerge<'_, I> {
    #[inline]
    fn valid(&self) -> bool {
        self.heads.get(self.winner()).is_some_and(Option::is_some)
    }
    #[inline]
    fn next(&mut self) -> Result<bool> {
        let mut winner = self.winner();
        let moved = self.inputs[winner].next();
        if moved.is_err() {
            self.heads.fill(None); // An error is not the end, and nothing may be read past it.
        }
        moved?;
        self.take_head(winner);
        let mut node = (winner + self.inputs.len()) / 2;
        while node > 0 {
            let other = self.losers[node];
            if self.beats(other, winner) {
                self.losers[node] = winner;
                winner = other;
            }
            node /= 2;
        }
        self.losers[0] = winner;
        Ok(self.valid())
    }
    #[inline]
    fn key(&self) -> InternalKey<'_> {
        self.inputs[self.winner()].key()
    }
    #[inline]
    fn value(&self) -> &[u8] {
        self.inputs[self.winner()].value()
    }
    fn seek_to_first(&mut self) -> Result<bool> {
        Err(forward_only())
    }
    fn seek_to_last(&mut self) -> Result<bool> {
        Err(forward_only())
    }
    fn seek(&mut self, _target: InternalKey<'_>) -> Result<bool> {
        Err(forward_only())
    }
    fn seek_for_prev(&mut self, _target: InternalKey<'_>) -> Result<bool> {
        Err(forward_only())
    }
    fn prev(&mut self) -> Result<bool> {
        Err(forward_only())
    }
}

#[cold]
pub(crate) fn forward_only() -> Error {
    Error::not_supported("moving a compaction's merge otherwise than forward")
}

/// How many leading bytes every user key in `low..=high` shares, for orders where that follows from the two.
pub(crate) fn shared_prefix_len(order: &UserComparator, low: &[u8], high: &[u8]) -> usize {
    match order {
        UserComparator::Bytewise | UserComparator::ReverseBytewise => {
            low.iter().zip(high).take_while(|(a, b)| a == b).count()
        }
        UserComparator::Custom(_) => 0,
    }
}
