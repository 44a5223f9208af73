//! Keys as numbers that order like them.
//!
//! ```text
//! user0000004711       user key
//! [shared]             the same in the keys of all children: says nothing, is skipped
//!         [ rank ]     8 bytes as a number
//! ```
//! What is shared is found when the walk starts. A key that lacks it makes the walk start over with
//! less; ranks that keep being equal make it start over in the hope of more. That is rare enough to
//! cost nothing: it looks at each child's key once.

use super::Direction;
use crate::InternalIterator;
use ironstone_base::perf::{self, PerfMetric};
use ironstone_base::{InternalKeyComparator, UserComparator};
use std::cmp::Ordering;

pub(super) struct Ranking {
    comparator: InternalKeyComparator,
    direction: Direction,
    shared: Vec<u8>,
    /// Since the last start.
    ties: u32,
    /// So many ties are worth a new start. Doubles when that did not help.
    patience: u32,
}

/// Longer shared prefixes are cut here: checking them costs more than ties do.
const MAX_SHARED: usize = 64;
const MIN_PATIENCE: u32 = 64;

impl Ranking {
    pub(super) fn new(comparator: InternalKeyComparator) -> Self {
        Self {
            comparator,
            direction: Direction::Forward,
            shared: Vec::new(),
            ties: 0,
            patience: MIN_PATIENCE,
        }
    }

    pub(super) fn comparator(&self) -> &InternalKeyComparator {
        &self.comparator
    }

    /// Prepares to rank in `direction`, beginning with the user keys `heads`.
    pub(super) fn start<'a>(&mut self, direction: Direction, mut heads: impl Iterator<Item = &'a [u8]>) {
        self.direction = direction;
        let skipped_before = self.shared.len();
        self.shared.clear();
        if let Some(first) = heads.next()
            && !matches!(self.comparator.user, UserComparator::Custom(_))
        {
            // Leaves 8 bytes of the key if there are as many: what comes next differs in the last.
            let mut len = first.len().saturating_sub(8).min(MAX_SHARED);
            for head in heads {
                len = shared_len(&first[..len], head).min(head.len().saturating_sub(8));
            }
            self.shared.extend_from_slice(&first[..len]);
        }
        // After a start for another reason than ties there is hope again.
        let in_vain = self.ties > self.patience && self.shared.len() <= skipped_before;
        self.patience = if in_vain { self.patience.saturating_mul(2) } else { MIN_PATIENCE };
        self.ties = 0;
    }

    /// The rank of a user key: of two keys the one that comes first has the smaller rank or the
    /// same. `None` if the key does not share what the others do.
    #[inline]
    pub(super) fn rank(&self, user_key: &[u8]) -> Option<u64> {
        if !starts_with(user_key, &self.shared) {
            return None;
        }
        let prefix = self.comparator.user.order_prefix(&user_key[self.shared.len()..]);
        Some(if self.direction == Direction::Forward { prefix } else { !prefix })
    }

    /// Whether child `a` comes before child `b`, which has the same rank.
    #[inline(never)]
    pub(super) fn break_tie<I: InternalIterator>(&self, children: &[I], a: u32, b: u32) -> bool {
        let (a_child, b_child) = (&children[a as usize], &children[b as usize]);
        if !a_child.valid() || !b_child.valid() {
            return a_child.valid(); // The order of those that have ended does not matter.
        }
        let order = self.comparator.compare(a_child.key(), b_child.key()).then(a.cmp(&b));
        order == if self.direction == Direction::Forward { Ordering::Less } else { Ordering::Greater }
    }

    /// Counts ties, and answers whether there were so many that a new start is worth a try.
    #[inline(never)] // Steps as a rule have none.
    pub(super) fn is_worn(&mut self, ties: u32) -> bool {
        perf::count(PerfMetric::UserKeyComparisonCount, u64::from(ties));
        self.ties += ties;
        self.ties > self.patience
    }
}

/// `starts_with` for prefixes that are too short for a call of `memcmp`.
#[inline]
fn starts_with(key: &[u8], prefix: &[u8]) -> bool {
    let Some(head) = key.get(..prefix.len()) else {
        return false;
    };
    let (Some(prefix_tail), Some(head_tail)) = (prefix.last_chunk::<8>(), head.last_chunk::<8>()) else {
        return head.iter().zip(prefix).all(|(a, b)| a == b);
    };
    if head_tail != prefix_tail {
        return false;
    }
    let (prefix_words, head_words) = (prefix.as_chunks::<8>().0, head.as_chunks::<8>().0);
    prefix_words.iter().zip(head_words).all(|(a, b)| a == b)
}

/// How many bytes at the start of `a` are the same in `b`.
fn shared_len(a: &[u8], b: &[u8]) -> usize {
    let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    let done = 8 * words.take_while(|(x, y)| x == y).count();
    done + a[done..].iter().zip(&b[done..]).take_while(|(x, y)| x == y).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_never_contradict_the_order() {
        let keys: Vec<Vec<u8>> = (0..40u8)
            .map(|number| {
                [&b"shared-by-them-all"[..], &vec![number / 7; usize::from(number % 5) * 3]].concat()
            })
            .collect();
        for comparator in [UserComparator::Bytewise, UserComparator::ReverseBytewise] {
            for direction in [Direction::Forward, Direction::Backward] {
                let mut ranking = Ranking::new(InternalKeyComparator::new(comparator.clone()));
                ranking.start(direction, keys.iter().map(Vec::as_slice));
                assert_eq!(ranking.shared, b"shared-by-");
                for (a, b) in keys.iter().flat_map(|a| keys.iter().map(move |b| (a, b))) {
                    let forward = comparator.compare(a, b);
                    let order = if direction == Direction::Forward { forward } else { forward.reverse() };
                    let ranks = ranking.rank(a).cmp(&ranking.rank(b));
                    assert!(ranks == order || ranks.is_eq(), "{a:?} {b:?}");
                }
                assert_eq!(ranking.rank(b"shared-by"), None);
                assert_eq!(ranking.rank(b"shared-by+and some more"), None);
                assert_eq!(ranking.rank(b"shores-by-and some more"), None);
            }
        }
    }

    #[test]
    fn prefixes_are_compared_to_the_last_byte() {
        let key: Vec<u8> = (0..40).collect();
        for len in 0..=40 {
            let mut prefix = key[..len].to_vec();
            assert!(starts_with(&key, &prefix));
            assert!(!starts_with(&key[..len.saturating_sub(1)], &prefix) || len == 0);
            for at in 0..len {
                prefix[at] ^= 0x40;
                assert!(!starts_with(&key, &prefix), "byte {at} of {len}");
                assert_eq!(shared_len(&prefix, &key), at);
                prefix[at] ^= 0x40;
            }
            assert_eq!(shared_len(&prefix, &key), len);
            assert_eq!(shared_len(&key, &prefix), len);
        }
    }
}
