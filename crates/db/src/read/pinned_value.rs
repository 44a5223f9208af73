//! A value that a read found, where it was found.

use super::read_options::ReadOptions;
use super::row_cache::RowValue;
use ironstone_base::SubCode;
use ironstone_base::sync::Arc;
use ironstone_memtable::PinnedMemValue;
use ironstone_sst::PinnedBytes;
use std::fmt;
use std::ops::Deref;

/// A value, not copied: it keeps the block, the memtable or the cached row that it lives in. Drop it soon, or copy it
/// with `to_vec`, where many are kept for long.
#[derive(Clone)]
pub struct PinnedValue(Place);

#[derive(Clone)]
enum Place {
    Memtable(PinnedMemValue),
    Table(PinnedBytes),
    Row(RowValue),
    Merged(Arc<Merged>),
}

/// A value that the read made.
struct Merged {
    value: Vec<u8>,
    operand_count: usize,
}

impl PinnedValue {
    pub(crate) fn in_memtable(value: PinnedMemValue) -> Self {
        Self(Place::Memtable(value))
    }
    pub(crate) fn in_table(value: PinnedBytes) -> Self {
        Self(Place::Table(value))
    }
    pub(crate) fn in_row(value: RowValue) -> Self {
        Self(Place::Row(value))
    }
    pub(crate) fn merged(value: Vec<u8>, operand_count: usize) -> Self {
        Self(Place::Merged(Arc::new(Merged { value, operand_count })))
    }

    /// Of how many merge operands the read made it; 0 if it was found as it is.
    pub fn merge_operand_count(&self) -> usize {
        match &self.0 {
            Place::Merged(merged) => merged.operand_count,
            _ => 0,
        }
    }
    /// The subcode of the status with which RocksDB answers it: `MergeOperandThresholdExceeded` if these are more than the
    /// [`merge_operand_count_threshold`](ReadOptions::merge_operand_count_threshold) of `options`, with which it was read, else `None`.
    pub fn sub_code(&self, options: &ReadOptions) -> SubCode {
        match options.merge_operand_count_threshold {
            Some(threshold) if self.merge_operand_count() > threshold => {
                SubCode::MergeOperandThresholdExceeded
            }
            _ => SubCode::None,
        }
    }
}

impl Deref for PinnedValue {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Place::Memtable(value) => value,
            Place::Table(value) => value,
            Place::Row(value) => value.bytes(),
            Place::Merged(merged) => &merged.value,
        }
    }
}

impl AsRef<[u8]> for PinnedValue {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for PinnedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for PinnedValue {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}
