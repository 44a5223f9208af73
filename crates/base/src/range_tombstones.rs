//! Range tombstones, cut into fragments that do not overlap.
//!
//! ```text
//! tombstones   |------- 7 -------|            fragments   |--|-----|------|---|
//!                 |----- 4 -----------|       sequences    7  7 4    7 4    4
//! ```
//! A question about a key finds one fragment, and in it the newest tombstone that the reader may see. Tombstones
//! that overlap much have many sequence numbers in their fragments; beyond a bound only the newest is kept
//! there, and older ones are looked for in the list of all.

use crate::hash::xxh3_64;
use crate::{SequenceNumber, UserComparator};
use std::collections::BTreeMap;
use std::ops::Range;

/// Deletes the keys in `begin..end` that are older than `sequence`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeTombstone {
    /// The first user key.
    pub begin: Vec<u8>,
    /// The user key after the last.
    pub end: Vec<u8>,
    /// When it was written.
    pub sequence: SequenceNumber,
}

/// Tombstones as fragments in key order.
#[derive(Clone, Debug, Default)]
pub struct FragmentedTombstones {
    /// `bounds[i]` is where fragment or gap `i` begins; the last one ends the last fragment.
    bounds: Vec<Vec<u8>>,
    /// What all bounds begin with, and the order prefixes of what follows: searches look at these first, and
    /// at a bound itself only if its prefix is that of the key. Empty for custom orders.
    shared: Vec<u8>,
    prefixes: Vec<u64>,
    /// Of fragment `i`, newest first; empty for a gap.
    newest_first: Vec<Range<u32>>,
    sequences: Vec<SequenceNumber>,
    /// Fragments hold their newest sequence number only; the others are found here.
    all: Option<Vec<RangeTombstone>>,
    newest: SequenceNumber,
    oldest: SequenceNumber,
    /// Of each fragment, if they are protected, and of `all`.
    checksums: Vec<u64>,
    checksum_of_all: u64,
}

/// The keys around a key for which an answer is the same.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// The first of them; `None`: from the beginning.
    pub begin: Option<&'a [u8]>,
    /// The first after them; `None`: to the end.
    pub end: Option<&'a [u8]>,
    /// The newest tombstone over them; zero if there is none.
    pub sequence: SequenceNumber,
}

/// So many sequence numbers for each tombstone are kept in fragments.
const MAX_SEQUENCES_PER_TOMBSTONE: usize = 16;

impl FragmentedTombstones {
    /// Cuts `tombstones` into fragments. Those that end before they begin are left out.
    pub fn new(order: &UserComparator, tombstones: Vec<RangeTombstone>) -> Self {
        let budget = tombstones.len() * MAX_SEQUENCES_PER_TOMBSTONE;
        if let Some(fragments) = Self::build(order, &tombstones, budget, |active, out| {
            out.extend(active.keys().rev().map(|&sequence| SequenceNumber(sequence)));
        }) {
            return fragments;
        }
        let newest_only = |active: &BTreeMap<u64, u32>, out: &mut Vec<SequenceNumber>| {
            out.extend(active.last_key_value().map(|(&sequence, _)| SequenceNumber(sequence)));
        };
        let mut fragments =
            Self::build(order, &tombstones, usize::MAX, newest_only).expect("there is no bound to exceed");
        fragments.oldest = tombstones.iter().map(|t| t.sequence).min().unwrap_or_default();
        fragments.all = Some(tombstones);
        fragments
    }

    /// Cuts `tombstones` into fragments that keep, for each stripe between two of `snapshots` (ascending), the
    /// newest tombstone: what a reader can tell apart.
    pub fn for_snapshots(
        order: &UserComparator,
        tombstones: &[RangeTombstone],
        snapshots: &[SequenceNumber],
    ) -> Self {
        let per_stripe = |active: &BTreeMap<u64, u32>, out: &mut Vec<SequenceNumber>| {
            let mut stripes = snapshots.len() + 1;
            for &sequence in active.keys().rev() {
                let stripe = snapshots.partition_point(|snapshot| snapshot.0 < sequence);
                if stripe < stripes {
                    out.push(SequenceNumber(sequence));
                    stripes = stripe;
                }
                if stripe == 0 {
                    break;
                }
            }
        };
        Self::build(order, tombstones, usize::MAX, per_stripe).expect("there is no bound to exceed")
    }

    /// `None` if fragments would hold more than `budget` sequence numbers.
    fn build(
        order: &UserComparator,
        tombstones: &[RangeTombstone],
        budget: usize,
        mut select: impl FnMut(&BTreeMap<u64, u32>, &mut Vec<SequenceNumber>),
    ) -> Option<Self> {
        /// A tombstone begins or ends here.
        struct Edge<'a> {
            key: &'a [u8],
            begins: bool,
            sequence: u64,
        }
        let mut edges: Vec<Edge<'_>> = tombstones
            .iter()
            .filter(|t| order.compare(&t.begin, &t.end).is_lt())
            .flat_map(|t| {
                [(&t.begin, true), (&t.end, false)].map(|(key, begins)| Edge {
                    key,
                    begins,
                    sequence: t.sequence.0,
                })
            })
            .collect();
        edges.sort_by(|a, b| order.compare(a.key, b.key));
        let mut new = Self::default();
        let mut active: BTreeMap<u64, u32> = BTreeMap::new();
        let mut edges = edges.into_iter().peekable();
        while let Some(edge) = edges.next() {
            let key = edge.key;
            let mut apply = |edge: Edge<'_>| {
                let count = active.entry(edge.sequence).or_default();
                *count = if edge.begins { *count + 1 } else { *count - 1 };
                if *count == 0 {
                    active.remove(&edge.sequence);
                }
            };
            apply(edge);
            while edges.peek().is_some_and(|next| order.equal(next.key, key)) {
                apply(edges.next().expect("it was looked at"));
            }
            let first = new.sequences.len();
            select(&active, &mut new.sequences);
            if new.sequences.len() > budget {
                return None;
            }
            let range = u32::try_from(first).ok()?..u32::try_from(new.sequences.len()).ok()?;
            let same = new.newest_first.last().is_some_and(|last| {
                new.sequences[last.start as usize..last.end as usize] == new.sequences[first..]
            });
            if same {
                new.sequences.truncate(first); // An edge that no reader can tell.
                continue;
            }
            new.bounds.push(key.to_vec());
            new.newest_first.push(range);
        }
        new.index(order);
        new.newest_first.pop(); // Behind the last bound nothing is deleted.
        new.newest = new.sequences.iter().copied().max().unwrap_or_default();
        new.oldest = new.sequences.iter().copied().min().unwrap_or_default();
        Some(new)
    }

    fn index(&mut self, order: &UserComparator) {
        let Some(first) = self.bounds.first().filter(|_| !matches!(order, UserComparator::Custom(_))) else {
            return;
        };
        let common = |key: &Vec<u8>| first.iter().zip(key).take_while(|(a, b)| a == b).count();
        let shared = self.bounds.iter().map(common).min().unwrap_or_default();
        self.shared = first[..shared].to_vec();
        self.prefixes = self.bounds.iter().map(|bound| order.order_prefix(&bound[shared..])).collect();
    }

    /// The number of bounds at or before `key`.
    #[inline]
    fn bounds_up_to(&self, order: &UserComparator, key: &[u8]) -> usize {
        let candidates = match (key.strip_prefix(&*self.shared), self.prefixes.is_empty()) {
            (Some(rest), false) => {
                let prefix = order.order_prefix(rest);
                let low = self.prefixes.partition_point(|&bound| bound < prefix);
                let same = self.prefixes[low..].iter().take_while(|&&bound| bound == prefix);
                low..low + same.count()
            }
            _ => 0..self.bounds.len(),
        };
        let begin = candidates.start;
        begin + self.bounds[candidates].partition_point(|bound| order.compare(bound, key).is_le())
    }

    /// Lets each fragment have a checksum: of its keys and its sequence numbers.
    pub fn protect(mut self) -> Self {
        self.checksums = (0..self.newest_first.len()).filter_map(|at| self.checksum(at)).collect();
        self.checksum_of_all = self.sum_all();
        self
    }
    /// `None` if there is no such fragment, or what it says of itself cannot be.
    fn checksum(&self, fragment: usize) -> Option<u64> {
        let range = self.newest_first.get(fragment)?;
        let sequences = self.sequences.get(range.start as usize..range.end as usize)?;
        let (begin, end) = (self.bounds.get(fragment)?, self.bounds.get(fragment + 1)?);
        let sequences = sequences.iter().map(|sequence| sequence.0);
        Some(chained([xxh3_64(begin), xxh3_64(end)].into_iter().chain(sequences)))
    }
    fn sum_all(&self) -> u64 {
        let parts = |t: &RangeTombstone| [xxh3_64(&t.begin), xxh3_64(&t.end), t.sequence.0];
        chained(self.all.iter().flatten().flat_map(parts))
    }
    fn is_fragment_intact(&self, fragment: usize) -> bool {
        self.checksum(fragment).is_some_and(|sum| self.checksums.get(fragment) == Some(&sum))
    }
    /// Whether all that is protected is as it was.
    pub fn is_intact(&self) -> bool {
        self.bounds.len().saturating_sub(1) == self.checksums.len()
            && (0..self.checksums.len()).all(|fragment| self.is_fragment_intact(fragment))
            && self.sum_all() == self.checksum_of_all
    }
    /// As [`covering`](Self::covering), of fragments that are protected. `None` if what the answer rests on is not as it
    /// was, or does not hold `key` after all: a search may have been led astray.
    pub fn covering_checked(
        &self,
        order: &UserComparator,
        key: &[u8],
        at: SequenceNumber,
    ) -> Option<SequenceNumber> {
        let fragments = self.checksums.len();
        if fragments == 0 {
            return self.bounds.is_empty().then_some(SequenceNumber::ZERO);
        }
        let after = self.bounds_up_to(order, key);
        let fragment = after.saturating_sub(1).min(fragments - 1);
        let is_sound = self.is_fragment_intact(fragment)
            && (after == 0) == order.compare(key, &self.bounds[0]).is_lt()
            && (after == 0 || order.compare(&self.bounds[fragment], key).is_le())
            && (after > fragments) == order.compare(&self.bounds[fragment + 1], key).is_le()
            && (self.all.is_none() || self.sum_all() == self.checksum_of_all);
        match is_sound {
            true if after == 0 || after > fragments => Some(SequenceNumber::ZERO),
            true => Some(self.covering(order, key, at)),
            false => None,
        }
    }

    /// Whether nothing is deleted.
    pub fn is_empty(&self) -> bool {
        self.newest_first.is_empty()
    }

    /// The newest sequence number.
    pub fn newest(&self) -> SequenceNumber {
        self.newest
    }

    /// About how many bytes of memory it takes.
    pub fn memory_usage(&self) -> usize {
        let keys = |tombstones: &Vec<RangeTombstone>| -> usize {
            tombstones.iter().map(|t| size_of_val(t) + t.begin.len() + t.end.len()).sum()
        };
        let bounds: usize = self.bounds.iter().map(|bound| size_of_val(bound) + bound.len()).sum();
        bounds
            + size_of_val(&*self.newest_first)
            + size_of_val(&*self.sequences)
            + size_of_val(&*self.prefixes)
            + self.all.as_ref().map_or(0, keys)
    }

    fn seen(&self, at: SequenceNumber, fragment: usize) -> Option<SequenceNumber> {
        let range = &self.newest_first[fragment];
        let sequences = &self.sequences[range.start as usize..range.end as usize];
        let older = sequences.partition_point(|&sequence| sequence > at);
        sequences.get(older).copied()
    }

    /// The newest tombstone over `key` that a read at `at` may see; zero if there is none.
    pub fn covering(&self, order: &UserComparator, key: &[u8], at: SequenceNumber) -> SequenceNumber {
        self.span(order, key, at).sequence
    }

    /// As [`covering`](Self::covering), with the keys that the answer holds for.
    pub fn span(&self, order: &UserComparator, key: &[u8], at: SequenceNumber) -> Span<'_> {
        let after = self.bounds_up_to(order, key);
        let end = self.bounds.get(after).map(Vec::as_slice);
        let Some(fragment) = after.checked_sub(1) else {
            return Span { begin: None, end, sequence: SequenceNumber::ZERO };
        };
        let begin = Some(&*self.bounds[fragment]);
        if fragment == self.newest_first.len() {
            return Span { begin, end, sequence: SequenceNumber::ZERO };
        }
        if let Some(sequence) = self.seen(at, fragment) {
            return Span { begin, end, sequence };
        }
        match &self.all {
            Some(all) if at >= self.oldest && !self.newest_first[fragment].is_empty() => {
                // Seldom: an old snapshot, and tombstones that overlap much.
                let covers = |t: &&RangeTombstone| {
                    t.sequence <= at
                        && order.compare(&t.begin, key).is_le()
                        && order.compare(key, &t.end).is_lt()
                };
                let sequence = all.iter().filter(covers).map(|t| t.sequence).max();
                Span { begin, end, sequence: sequence.unwrap_or_default() }
            }
            _ => Span { begin, end, sequence: SequenceNumber::ZERO },
        }
    }

    /// The fragments in key order, each with its sequence numbers, newest first.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], &[SequenceNumber])> {
        self.newest_first.iter().enumerate().filter(|(_, range)| !range.is_empty()).map(|(at, range)| {
            let sequences = &self.sequences[range.start as usize..range.end as usize];
            (&*self.bounds[at], &*self.bounds[at + 1], sequences)
        })
    }
}

/// Asks about keys in ascending order.
#[derive(Clone, Debug)]
pub struct TombstoneCursor<'a> {
    fragments: &'a FragmentedTombstones,
    span: Option<Span<'a>>,
}

impl<'a> TombstoneCursor<'a> {
    /// Before the first key.
    pub fn new(fragments: &'a FragmentedTombstones) -> Self {
        Self { fragments, span: None }
    }
    /// The newest tombstone over `key` that a read at `at` may see; zero if there is none. Keys must not go back.
    #[inline]
    pub fn covering(&mut self, order: &UserComparator, key: &[u8], at: SequenceNumber) -> SequenceNumber {
        let holds = |span: &Span<'_>| span.end.is_none_or(|end| order.compare(key, end).is_lt());
        let span = match self.span {
            Some(span) if holds(&span) => span,
            _ => *self.span.insert(self.fragments.span(order, key, SequenceNumber::MAX)),
        };
        match span.sequence {
            SequenceNumber::ZERO => SequenceNumber::ZERO,
            newest if newest <= at => newest,
            _ => self.fragments.covering(order, key, at),
        }
    }
}

/// One number for several, which depends on each and on their order.
fn chained(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, |sum, number| {
        let mut both = [0; 16];
        both[..8].copy_from_slice(&sum.to_le_bytes());
        both[8..].copy_from_slice(&number.to_le_bytes());
        xxh3_64(&both)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: UserComparator = UserComparator::Bytewise;

    /// With any bit of a bound or a number flipped, each answer is the right one or none, and some are none.
    #[test]
    fn flipped_bits_of_protected_fragments_are_found() {
        for all in samples() {
            let sound = FragmentedTombstones::new(&ORDER, all.clone()).protect();
            assert!(sound.is_intact());
            let keys: Vec<Vec<u8>> = all
                .iter()
                .take(40)
                .flat_map(|t| [t.begin.clone(), t.end.clone(), [&t.begin[..], b"\0"].concat()])
                .chain([b"".to_vec(), b"\xff".to_vec()])
                .collect();
            let newest = all.iter().map(|t| t.sequence.0).max().unwrap_or(0);
            let right = |key: &[u8], at: u64| SequenceNumber(expected(&all, key, at));
            for key in &keys {
                for at in [newest, newest / 2] {
                    let found = sound.covering_checked(&ORDER, key, SequenceNumber(at));
                    assert_eq!(found, Some(right(key, at)));
                }
            }
            let check_answers = |damaged: &FragmentedTombstones, what: &str| {
                for key in &keys {
                    let found = damaged.covering_checked(&ORDER, key, SequenceNumber(newest));
                    assert!(
                        found.is_none_or(|found| found == right(key, newest)),
                        "{what} at {key:?}: {found:?}"
                    );
                }
            };
            let check = |damaged: &FragmentedTombstones, what: &str| {
                assert!(!damaged.is_intact(), "{what}");
                check_answers(damaged, what);
            };
            // They lead searches, and are no part of an answer.
            for at in (0..sound.prefixes.len()).step_by(sound.prefixes.len() / 20 + 1) {
                for bit in 0..64 {
                    let mut damaged = sound.clone();
                    damaged.prefixes[at] ^= 1 << bit;
                    check_answers(&damaged, &format!("prefix {at} bit {bit}"));
                }
            }
            for at in (0..sound.bounds.len()).step_by(sound.bounds.len() / 20 + 1) {
                for bit in 0..sound.bounds[at].len() * 8 {
                    let mut damaged = sound.clone();
                    damaged.bounds[at][bit / 8] ^= 1 << (bit % 8);
                    check(&damaged, &format!("bound {at} bit {bit}"));
                }
            }
            for at in (0..sound.newest_first.len()).step_by(sound.newest_first.len() / 20 + 1) {
                for bit in 0..32 {
                    let mut damaged = sound.clone();
                    damaged.newest_first[at].end ^= 1 << bit;
                    check(&damaged, &format!("range {at} bit {bit}"));
                }
            }
            for at in (0..sound.sequences.len()).step_by(sound.sequences.len() / 20 + 1) {
                let mut damaged = sound.clone();
                damaged.sequences[at].0 ^= 1 << (at % 50);
                check(&damaged, &format!("sequence {at}"));
            }
        }
    }

    fn tombstone(begin: &str, end: &str, sequence: u64) -> RangeTombstone {
        RangeTombstone { begin: begin.into(), end: end.into(), sequence: SequenceNumber(sequence) }
    }

    fn expected(all: &[RangeTombstone], key: &[u8], at: u64) -> u64 {
        let covers = |t: &&RangeTombstone| t.sequence.0 <= at && *t.begin <= *key && *key < *t.end;
        all.iter().filter(covers).map(|t| t.sequence.0).max().unwrap_or(0)
    }

    /// Small ranges of few keys, and many that all overlap.
    fn samples() -> Vec<Vec<RangeTombstone>> {
        let mut random = 7u64;
        let mut next = move |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        let mut samples = vec![Vec::new(), vec![tombstone("b", "a", 3), tombstone("b", "b", 4)]];
        for (count, keys) in [(1, 60), (2, 60), (5, 60), (40, 60), (300, 600)] {
            let range = |sequence: u64| {
                let (a, b) = (next(keys), next(keys));
                tombstone(&format!("{a:03}"), &format!("{b:03}"), 1 + sequence / 2)
            };
            samples.push((0..count).map(range).collect());
        }
        samples
    }

    #[test]
    fn every_key_gets_the_newest_tombstone_that_may_be_seen() {
        for sample in samples() {
            let fragments = FragmentedTombstones::new(&ORDER, sample.clone());
            for at in [0, 1, 2, 7, 20, 77, 150, 200] {
                for key in (0..64).chain((64..602).step_by(7)) {
                    let key = format!("{key:03}");
                    let span = fragments.span(&ORDER, key.as_bytes(), SequenceNumber(at));
                    assert_eq!(span.sequence.0, expected(&sample, key.as_bytes(), at), "{key} at {at}");
                    assert!(span.begin.is_none_or(|begin| begin <= key.as_bytes()));
                    assert!(span.end.is_none_or(|end| key.as_bytes() < end));
                }
            }
        }
        let crowd = &samples()[6];
        assert!(FragmentedTombstones::new(&ORDER, crowd.clone()).all.is_some(), "the bound is tried too");
    }

    #[test]
    fn fragments_for_snapshots_answer_as_all_do_at_each_snapshot() {
        let snapshots = [3, 9, 60].map(SequenceNumber);
        for sample in samples() {
            let fragments = FragmentedTombstones::for_snapshots(&ORDER, &sample, &snapshots);
            for at in [3, 9, 60, 1000] {
                for key in (0..64).chain((64..602).step_by(7)) {
                    let key = format!("{key:03}");
                    let found = fragments.covering(&ORDER, key.as_bytes(), SequenceNumber(at)).0;
                    let stripe = |sequence: u64| snapshots.partition_point(|snapshot| snapshot.0 < sequence);
                    assert_eq!(found, expected(&sample, key.as_bytes(), at), "{key} at {at}");
                    let newest_first = fragments.iter().map(|(.., sequences)| sequences);
                    for sequences in newest_first {
                        assert!(sequences.is_sorted_by(|a, b| stripe(a.0) > stripe(b.0)));
                    }
                }
            }
        }
    }

    #[test]
    fn any_order_and_any_keys_are_searched_alike() {
        let keys = ["", "k", "key", "key00000001", "key00000001a", "key0000000100", "key1", "z"];
        for order in [UserComparator::Bytewise, UserComparator::ReverseBytewise] {
            for begin in keys {
                for end in keys {
                    let all = [tombstone(begin, end, 5), tombstone("key000000001", "key00000001b", 7)];
                    let fragments = FragmentedTombstones::new(&order, all.to_vec());
                    for key in keys.iter().map(|key| key.as_bytes()) {
                        let covers = |t: &&RangeTombstone| {
                            order.compare(&t.begin, key).is_le() && order.compare(key, &t.end).is_lt()
                        };
                        let newest = all.iter().filter(covers).map(|t| t.sequence).max().unwrap_or_default();
                        let found = fragments.covering(&order, key, SequenceNumber::MAX);
                        assert_eq!(found, newest, "{begin}..{end}, {}", key.escape_ascii());
                    }
                }
            }
        }
    }

    #[test]
    fn fragments_are_in_order_and_do_not_overlap() {
        for sample in samples() {
            let fragments = FragmentedTombstones::new(&ORDER, sample);
            let all: Vec<_> = fragments.iter().collect();
            assert!(all.iter().all(|(begin, end, sequences)| begin < end && !sequences.is_empty()));
            assert!(all.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        }
    }
}
