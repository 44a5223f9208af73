//! Which filters over prefixes an iterator may ask, and for what.
//!
//! A filter that denies a prefix says that its memtable or table has no key with it. That answers a seek
//! only where no key with another prefix is wanted, and there are two ways to know: the caller said so, or every key
//! from the seek target up to the upper bound has the target's prefix.

use crate::slice_transform::SliceTransform;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crate::{Result, UserComparator};

/// What an iterator and the places that it merges agree on about prefixes.
pub struct PrefixSeek {
    extractor: Arc<dyn SliceTransform>,
    order: UserComparator,
    /// The first key that is not wanted.
    upper_bound: Option<Vec<u8>>,
    wanted: Wanted,
}

enum Wanted {
    /// The keys with the prefix of the last seek target, if that had one. Relaxed: one thread at a time uses
    /// an iterator.
    TargetPrefix { has_one: AtomicBool },
    /// All keys within the bounds.
    AllInBounds,
}

/// Where a seek looks for the next key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// At or after the target.
    Forward,
    /// At or before the target.
    Backward,
}

impl PrefixSeek {
    /// For an iterator that has to find the keys with the prefix of its seek target, and maybe no others.
    pub fn of_target(
        extractor: Arc<dyn SliceTransform>,
        order: UserComparator,
        upper_bound: Option<Vec<u8>>,
    ) -> Arc<Self> {
        let wanted = Wanted::TargetPrefix { has_one: AtomicBool::new(false) };
        Arc::new(Self { extractor, order, upper_bound, wanted })
    }
    /// For an iterator that has to find every key before `upper_bound`.
    pub fn within_bound(
        extractor: Arc<dyn SliceTransform>,
        order: UserComparator,
        upper_bound: Option<Vec<u8>>,
    ) -> Arc<Self> {
        Arc::new(Self { extractor, order, upper_bound, wanted: Wanted::AllInBounds })
    }

    /// The iterator is sent to `target`; with `None` to one end of all keys. To be called before the places seek.
    /// From an end, and from a target without a prefix, all keys are wanted.
    pub fn note_seek(&self, target: Option<&[u8]>) {
        if let Wanted::TargetPrefix { has_one } = &self.wanted {
            has_one.store(target.is_some_and(|target| self.extractor.transform(target).is_some()), Relaxed);
        }
    }

    /// What filters are asked for when the iterator is sent to `target`, if they are.
    pub fn asked_for<'a>(&self, target: &'a [u8]) -> Option<&'a [u8]> {
        self.extractor.transform(target)
    }

    /// Whether a place has nothing to show from `target` on, because its filter over the prefixes of `filter`
    /// does not hold the prefix that `holds` is asked for.
    #[inline]
    pub fn is_ruled_out(
        &self,
        target: &[u8],
        direction: Direction,
        filter: &Arc<dyn SliceTransform>,
        holds: impl FnOnce(&[u8]) -> Result<bool>,
    ) -> Result<bool> {
        let is_answer = match &self.wanted {
            Wanted::TargetPrefix { has_one } if !has_one.load(Relaxed) => false,
            Wanted::TargetPrefix { .. } if self.is_extractor(filter) => true,
            _ => direction == Direction::Forward && self.bound_keeps_prefix(target, &**filter),
        };
        if !is_answer {
            return Ok(false);
        }
        match filter.transform(target) {
            Some(prefix) => Ok(!holds(prefix)?),
            None => Ok(false),
        }
    }

    /// Whether a table that begins with `first` can have a key that is wanted, when the tables before it
    /// have none from `target` on.
    pub fn may_go_on(&self, target: &[u8], first: &[u8]) -> bool {
        match &self.wanted {
            Wanted::TargetPrefix { has_one } if has_one.load(Relaxed) => {
                let prefix = self.extractor.transform(target);
                prefix.is_none() || prefix == self.extractor.transform(first)
            }
            _ => true,
        }
    }

    fn is_extractor(&self, other: &Arc<dyn SliceTransform>) -> bool {
        Arc::ptr_eq(&self.extractor, other) || self.extractor.name() == other.name()
    }

    /// Whether every key from `target` up to the upper bound has the prefix that `extractor` gives `target`.
    fn bound_keeps_prefix(&self, target: &[u8], extractor: &dyn SliceTransform) -> bool {
        let (Some(bound), Some(prefix)) = (&self.upper_bound, extractor.transform(target)) else {
            return false;
        };
        // The keys of a prefix lie side by side, so between two of them there are no others.
        if extractor.transform(bound) == Some(prefix) {
            return true;
        }
        // Or the bound is the next prefix. Were there a carry, a key that is too short for a prefix could lie
        // between: "ac" between "ab\xff" and "ac\0".
        let is_next = match (prefix.split_last(), bound.split_last()) {
            (Some((last, head)), Some((bound_last, bound_head))) => {
                head == bound_head && last.checked_add(1) == Some(*bound_last)
            }
            _ => false,
        };
        is_next
            && extractor.full_length() == Some(prefix.len())
            && matches!(self.order, UserComparator::Bytewise)
    }
}

#[cfg(test)]
mod tests {
    use super::Direction::{Backward, Forward};
    use super::*;
    use crate::slice_transform::{capped_prefix, fixed_prefix, noop};

    fn rules_out(seek: &PrefixSeek, target: &[u8], direction: Direction) -> bool {
        rules_out_of(seek, target, direction, &seek.extractor)
    }
    fn rules_out_of(
        seek: &PrefixSeek,
        target: &[u8],
        direction: Direction,
        filter: &Arc<dyn SliceTransform>,
    ) -> bool {
        seek.is_ruled_out(target, direction, filter, |_| Ok(false)).unwrap()
    }

    #[test]
    fn kept_to_its_target_an_iterator_asks_for_the_prefix_of_the_target() {
        let seek = PrefixSeek::of_target(fixed_prefix(2), UserComparator::Bytewise, None);
        assert!(!rules_out(&seek, b"abc", Forward), "no seek was noted");
        seek.note_seek(Some(b"abc"));
        assert!(rules_out(&seek, b"abc", Forward) && rules_out(&seek, b"abc", Backward));
        let mut asked = Vec::new();
        let holds = |prefix: &[u8]| {
            asked.extend_from_slice(prefix);
            Ok(true)
        };
        assert!(!seek.is_ruled_out(b"abc", Forward, &seek.extractor, holds).unwrap());
        assert_eq!(asked, b"ab");
        assert!(!rules_out(&seek, b"a", Forward), "a key without a prefix");
        assert!(!rules_out_of(&seek, b"abc", Forward, &fixed_prefix(3)), "a filter of another extractor");
        assert!(rules_out_of(&seek, b"abc", Forward, &fixed_prefix(2)), "a filter of the same extractor");
        assert!(seek.may_go_on(b"abc", b"abd") && !seek.may_go_on(b"abc", b"ac"));
        for target in [None, Some(&b"a"[..])] {
            seek.note_seek(target);
            assert!(!rules_out(&seek, b"abc", Forward), "after {target:?} all keys are wanted");
            assert!(seek.may_go_on(b"abc", b"ac"));
        }
    }

    /// Where the bound decides, no key before it may have another prefix: tried with all keys of three letters.
    #[test]
    fn the_bound_decides_only_where_no_other_prefix_is_before_it() {
        let letters = [0, 1, 0xfe, 0xff];
        let mut keys: Vec<Vec<u8>> = vec![Vec::new()];
        for at in 0..85 {
            if keys[at].len() < 4 {
                letters.iter().for_each(|&letter| keys.push([keys[at].as_slice(), &[letter]].concat()));
            }
        }
        let mut decided = 0;
        let orders = [UserComparator::Bytewise, UserComparator::ReverseBytewise];
        for order in orders {
            for extractor in [fixed_prefix(2), capped_prefix(2), capped_prefix(3), fixed_prefix(0), noop()] {
                for bound in &keys {
                    let seek =
                        PrefixSeek::within_bound(Arc::clone(&extractor), order.clone(), Some(bound.clone()));
                    for target in &keys {
                        seek.note_seek(Some(target));
                        assert!(!rules_out(&seek, target, Backward));
                        if !rules_out(&seek, target, Forward) {
                            continue;
                        }
                        decided += 1;
                        let between = |key: &&Vec<u8>| {
                            order.compare(target, key).is_le() && order.compare(key, bound).is_lt()
                        };
                        for key in keys.iter().filter(between) {
                            let (a, b) = (extractor.transform(target), extractor.transform(key));
                            assert_eq!(a, b, "{key:?} in {target:?}..{bound:?}, {}", extractor.name());
                        }
                    }
                }
            }
        }
        assert!(decided > 10_000, "{decided}");
    }

    #[test]
    fn the_bound_may_be_the_next_prefix() {
        let within = |bound: &[u8]| {
            PrefixSeek::within_bound(fixed_prefix(2), UserComparator::Bytewise, Some(bound.to_vec()))
        };
        assert!(rules_out(&within(b"ac"), b"ab1", Forward));
        assert!(rules_out(&within(b"ab9"), b"ab1", Forward));
        assert!(!rules_out(&within(b"ac1"), b"ab1", Forward));
        assert!(!rules_out(&within(b"b"), b"ab1", Forward));
        assert!(!rules_out(&within(b"ac\0"), b"ab\xff", Forward));
        assert!(
            rules_out_of(&within(b"ab9"), b"ab1", Forward, &fixed_prefix(1)),
            "by the filter's own prefixes"
        );
        let unbounded = PrefixSeek::within_bound(fixed_prefix(2), UserComparator::Bytewise, None);
        assert!(!rules_out(&unbounded, b"ab1", Forward));
    }
}
