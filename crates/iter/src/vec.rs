//! An iterator over entries in memory, for tests and for small sets.

use crate::InternalIterator;
use ironstone_base::{InternalKey, InternalKeyBuf, InternalKeyComparator, Result};
use std::sync::Arc;

/// Walks a sorted vector. Clones share the entries, each with a position of its own.
#[derive(Clone)]
pub struct VecIterator {
    comparator: InternalKeyComparator,
    entries: Arc<[(InternalKeyBuf, Vec<u8>)]>,
    /// The entry stood on; anything past the end is nowhere.
    at: usize,
}

impl VecIterator {
    /// An iterator over `entries`, which come in any order. Stands nowhere.
    pub fn new(comparator: InternalKeyComparator, mut entries: Vec<(InternalKeyBuf, Vec<u8>)>) -> Self {
        entries.sort_by(|(a, _), (b, _)| comparator.compare(a.as_key(), b.as_key()));
        Self { comparator, entries: entries.into(), at: usize::MAX }
    }

    fn stand(&mut self, at: usize) -> Result<bool> {
        self.at = at;
        Ok(self.valid())
    }
}

impl InternalIterator for VecIterator {
    fn valid(&self) -> bool {
        self.at < self.entries.len()
    }
    fn seek_to_first(&mut self) -> Result<bool> {
        self.stand(0)
    }
    fn seek_to_last(&mut self) -> Result<bool> {
        self.stand(self.entries.len().wrapping_sub(1))
    }
    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool> {
        let before = |(key, _): &(InternalKeyBuf, _)| self.comparator.compare(key.as_key(), target).is_lt();
        self.stand(self.entries.partition_point(before))
    }
    fn seek_for_prev(&mut self, target: InternalKey<'_>) -> Result<bool> {
        let upto = |(key, _): &(InternalKeyBuf, _)| self.comparator.compare(key.as_key(), target).is_le();
        self.stand(self.entries.partition_point(upto).wrapping_sub(1))
    }
    fn next(&mut self) -> Result<bool> {
        self.stand(self.at + 1)
    }
    fn prev(&mut self) -> Result<bool> {
        self.stand(self.at.wrapping_sub(1))
    }
    fn key(&self) -> InternalKey<'_> {
        self.entries[self.at].0.as_key()
    }
    fn value(&self) -> &[u8] {
        &self.entries[self.at].1
    }
}
