//! What a column family must answer whose oldest writes go away by themselves: FIFO compaction drops tables.
//!
//! A batch is in one memtable and so in one table, and tables go from the oldest on. So whatever is found is what
//! the batches behind some point have made of nothing.

use crate::model::{Change, Entries};
use std::collections::{BTreeMap, BTreeSet};

/// The batches of a column family, in their order. Cloning it takes a snapshot.
#[derive(Clone, Default, Debug)]
pub struct WriteOrder {
    batches: Vec<Vec<Change>>,
}

/// What later batches have made of a key, seen from the newest on.
#[derive(Default)]
struct Seen {
    /// Merge operands, newest first, which whatever is older goes before.
    operands: Vec<Vec<u8>>,
    /// Nothing that is older shows.
    is_closed: bool,
}

impl Seen {
    fn value(&self) -> Option<Vec<u8>> {
        let oldest_first: Vec<&[u8]> = self.operands.iter().rev().map(Vec::as_slice).collect();
        (!oldest_first.is_empty()).then(|| oldest_first.join(&b','))
    }
}

impl WriteOrder {
    /// Takes the next batch in.
    pub fn push(&mut self, batch: Vec<Change>) {
        self.batches.push(batch);
    }
    /// How many there were.
    pub fn len(&self) -> usize {
        self.batches.len()
    }
    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }
    /// The order of writes of a column family in which none has gone.
    pub fn of(batches: impl IntoIterator<Item = Vec<Change>>) -> Self {
        Self { batches: batches.into_iter().collect() }
    }

    /// Which batches had a say in `key`, and what they said: for reports.
    pub fn changes_of(&self, key: &[u8]) -> Vec<(usize, String)> {
        let says = |change: &&Change| match change {
            Change::DeleteRange(_, begin, end) => begin.as_slice() <= key && key < end.as_slice(),
            other => other.key() == Some(key),
        };
        let all = self.batches.iter().enumerate();
        all.flat_map(|(at, batch)| batch.iter().filter(says).map(move |change| (at, change)))
            .map(|(at, change)| (at, format!("{change:?}").chars().take(24).collect()))
            .collect()
    }

    /// Of the first `upto` batches, how many must have gone at least for `found` to be what is left, if `least` have or
    /// more. `None`: it is not what any number of them leaves.
    pub fn gone(&self, found: &Entries, least: usize, upto: usize) -> Option<usize> {
        let mut fewest = found.is_empty().then_some(upto.max(least));
        let mut wrong: BTreeSet<Vec<u8>> = found.keys().cloned().collect();
        self.back(least, upto, |at, changed, seen| {
            for key in changed {
                match seen(key).as_ref() == found.get(key) {
                    true => wrong.remove(key),
                    false => wrong.insert(key.clone()),
                };
            }
            if wrong.is_empty() {
                fewest = Some(at);
            }
        });
        fewest
    }

    /// Whether `value` of `key` is what is left of the first `upto` batches once some of them have gone: `least` at least
    /// and `most` at most.
    pub fn may_be(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        (least, most): (usize, usize),
        upto: usize,
    ) -> bool {
        let mut now: Option<Vec<u8>> = None;
        let mut fits = most >= upto && value.is_none();
        self.back(least, upto, |at, changed, seen| {
            if changed.iter().any(|other| other == key) {
                now = seen(key);
            }
            fits |= at <= most && now.as_deref() == value;
        });
        fits
    }

    /// What the batches from number `gone` on come to.
    pub fn left(&self, gone: usize) -> Entries {
        let mut left = Entries::new();
        self.back(gone, self.len(), |_, changed, seen| {
            for key in changed {
                match seen(key) {
                    Some(value) => drop(left.insert(key.clone(), value)),
                    None => drop(left.remove(key)),
                }
            }
        });
        left
    }

    /// Goes from the newest of the first `upto` batches back to number `least`, and shows each one's number, the keys
    /// that it had a say in, and what it and those after it make of a key.
    fn back(
        &self,
        least: usize,
        upto: usize,
        mut show: impl FnMut(usize, &[Vec<u8>], &dyn Fn(&[u8]) -> Option<Vec<u8>>),
    ) {
        let mut keys: BTreeMap<Vec<u8>, Seen> = BTreeMap::new();
        let mut ranges: Vec<(&[u8], &[u8])> = Vec::new();
        for at in (least..upto).rev() {
            let mut changed = Vec::new();
            for change in self.batches[at].iter().rev() {
                if let Change::DeleteRange(_, begin, end) = change {
                    ranges.push((begin, end));
                    continue;
                }
                let key = change.key().expect("it is no range");
                let seen = keys.entry(key.to_vec()).or_default();
                seen.is_closed |= ranges.iter().any(|(begin, end)| *begin <= key && key < *end);
                if seen.is_closed {
                    continue;
                }
                match change {
                    Change::Put(_, _, value) => {
                        seen.operands.push(value.clone());
                        seen.is_closed = true;
                    }
                    Change::Append(_, _, operand) => seen.operands.push(operand.clone()),
                    Change::Delete(..) | Change::DeleteRange(..) => seen.is_closed = true,
                }
                changed.push(key.to_vec());
            }
            show(at, &changed, &|key| keys.get(key).and_then(Seen::value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str) -> Change {
        Change::Put(String::new(), key.into(), value.into())
    }
    fn append(key: &str, operand: &str) -> Change {
        Change::Append(String::new(), key.into(), operand.into())
    }
    fn entries(of: &[(&str, &str)]) -> Entries {
        of.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
    }

    #[test]
    fn what_is_left_is_what_the_batches_behind_some_point_make_of_nothing() {
        let order = WriteOrder::of([
            vec![put("a", "1"), put("b", "1")],
            vec![append("a", "2")],
            vec![Change::Delete(String::new(), b"b".to_vec()), put("c", "3")],
            vec![Change::DeleteRange(String::new(), b"c".to_vec(), b"d".to_vec()), put("e", "4")],
        ]);
        assert_eq!(order.left(0), entries(&[("a", "1,2"), ("e", "4")]));
        assert_eq!(order.gone(&order.left(0), 0, 4), Some(0));
        assert_eq!(order.gone(&entries(&[("a", "2"), ("e", "4")]), 0, 4), Some(1));
        assert_eq!(order.gone(&entries(&[("e", "4")]), 0, 4), Some(2));
        assert_eq!(order.gone(&entries(&[]), 0, 4), Some(4));
        // The oldest may not outlive the newer, what was overwritten or deleted does not come back.
        for wrong in [&[("a", "1,2")][..], &[("b", "1"), ("e", "4")], &[("c", "3"), ("e", "4")]] {
            assert_eq!(order.gone(&entries(wrong), 0, 4), None);
        }
        // Nor does what had gone before.
        assert_eq!(order.gone(&entries(&[("a", "1,2"), ("e", "4")]), 1, 4), None);
        // As of an earlier moment.
        assert_eq!(order.gone(&entries(&[("a", "1"), ("b", "1")]), 0, 1), Some(0));
        assert_eq!(order.gone(&entries(&[]), 3, 1), Some(3));
        let may_be = |key: &str, value: Option<&str>, gone, upto| {
            order.may_be(key.as_bytes(), value.map(str::as_bytes), gone, upto)
        };
        assert!(may_be("a", Some("2"), (0, 4), 4) && may_be("a", None, (0, 4), 4));
        assert!(!may_be("a", Some("1"), (0, 4), 4) && !may_be("a", Some("1,2"), (1, 4), 4));
        assert!(!may_be("b", Some("1"), (0, 4), 4) && may_be("b", Some("1"), (0, 4), 2));
        // Of what nobody has dropped, nothing is missing.
        assert!(
            !may_be("a", None, (0, 1), 4) && !may_be("a", None, (0, 0), 4) && !may_be("e", None, (0, 3), 4)
        );
    }
}
