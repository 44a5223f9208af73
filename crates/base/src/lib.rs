//! The vocabulary of Ironstone: sequence numbers, internal keys, comparators, varints, checksums,
//! file names, the error type, statistics and the synchronisation shim.
//!
//! Nothing here does I/O. Every other crate may use this one; this one uses no other of ours.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod coding;
pub mod comparator;
pub mod error;
pub mod file_name;
pub mod hash;
pub mod internal_key;
pub mod key_in_error;
pub mod merge;
pub mod perf;
pub mod prefix_seek;
pub mod protection;
pub mod range_tombstones;
pub mod slice_transform;
pub mod statistics;
pub mod sync;

pub use comparator::{Comparator, InternalKeyComparator, UserComparator};
pub use error::{Code, Corrupt, Error, Result, Severity, SubCode};
pub use file_name::{FileKind, FileNumber, FileNumberMap};
pub use internal_key::{InternalKey, InternalKeyBuf, SequenceNumber, ValueType};
pub use key_in_error::DataInErrors;
pub use merge::MergeOperator;
pub use prefix_seek::PrefixSeek;
pub use protection::Protection;
pub use range_tombstones::{FragmentedTombstones, RangeTombstone, TombstoneCursor};
pub use slice_transform::SliceTransform;
pub use statistics::Statistics;

/// Identifies a column family in the WAL, the MANIFEST and in memory. 0 is `default`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ColumnFamilyId(pub u32);

impl ColumnFamilyId {
    /// The column family named `default`, which every database has.
    pub const DEFAULT: Self = Self(0);
}
