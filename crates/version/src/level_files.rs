//! The tables of one level, laid out for searching.

use crate::file_metadata::FileMetaData;
use ironstone_base::sync::Arc;
use ironstone_base::{FileNumber, InternalKey, InternalKeyComparator};
use std::ops::Range;

/// The tables of one level: level 0 newest first, the others by smallest key and disjoint.
///
/// Beside the metadata stand packed arrays of what searches look at, so that a lookup touches the
/// metadata of one or two files only.
#[derive(Clone, Debug, Default)]
pub struct LevelFiles {
    files: Vec<Arc<FileMetaData>>,
    numbers: Vec<FileNumber>,
    smallest_prefixes: Vec<u64>,
    largest_prefixes: Vec<u64>,
    bytes: u64,
}

impl LevelFiles {
    /// Takes `files` in the order that the level demands.
    pub fn new(order: &InternalKeyComparator, files: Vec<Arc<FileMetaData>>) -> Self {
        Self {
            numbers: files.iter().map(|file| file.number).collect(),
            smallest_prefixes: files
                .iter()
                .map(|file| order.user.order_prefix(file.smallest.user_key()))
                .collect(),
            largest_prefixes: files
                .iter()
                .map(|file| order.user.order_prefix(file.largest.user_key()))
                .collect(),
            bytes: files.iter().fold(0, |sum, file| sum.saturating_add(file.file_size)),
            files,
        }
    }
    /// The files in order.
    pub fn files(&self) -> &[Arc<FileMetaData>] {
        &self.files
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.files.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
    /// How many bytes they take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
    /// Where the file of that number is.
    pub fn position(&self, number: FileNumber) -> Option<usize> {
        self.numbers.iter().position(|&known| known == number)
    }
    /// Their numbers, in order.
    pub fn numbers(&self) -> &[FileNumber] {
        &self.numbers
    }

    /// The first file that ends at or after `key`; `len()` if none does. For levels below 0.
    #[inline]
    pub fn find(&self, order: &InternalKeyComparator, key: InternalKey<'_>) -> usize {
        let prefix = order.user.order_prefix(key.user_key());
        let low = self.largest_prefixes.partition_point(|&largest| largest < prefix);
        // Usually this is the end of the search: the next file's end has a larger prefix.
        if self.largest_prefixes.get(low).is_none_or(|&largest| largest > prefix) {
            return low;
        }
        let equal = self.largest_prefixes[low..].partition_point(|&largest| largest <= prefix);
        let ends_before = |file: &Arc<FileMetaData>| order.compare(file.largest.as_key(), key).is_lt();
        low + self.files[low..low + equal].partition_point(ends_before)
    }

    /// Whether file `index` may hold the user key `key` whose order prefix is `prefix`.
    #[inline]
    pub fn may_hold(&self, index: usize, order: &InternalKeyComparator, key: &[u8], prefix: u64) -> bool {
        if prefix < self.smallest_prefixes[index] || prefix > self.largest_prefixes[index] {
            return false;
        }
        let file = &self.files[index];
        order.user.compare(file.smallest.user_key(), key).is_le()
            && order.user.compare(key, file.largest.user_key()).is_le()
    }

    /// The files that may hold user keys in `begin..=end`; `None` is unbounded. For levels below 0.
    pub fn overlapping(
        &self,
        order: &InternalKeyComparator,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Range<usize> {
        let first = begin.map_or(0, |begin| {
            self.files.partition_point(|file| order.user.compare(file.largest.user_key(), begin).is_lt())
        });
        let last = end.map_or(self.len(), |end| {
            self.files.partition_point(|file| order.user.compare(file.smallest.user_key(), end).is_le())
        });
        first..last.max(first)
    }
}
