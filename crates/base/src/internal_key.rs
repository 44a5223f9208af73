//! Sequence numbers, value types and internal keys.
//!
//! ```text
//! internal key:  user key | trailer, 8 bytes LE = sequence << 8 | value type
//! ```
//! Internal keys sort by user key ascending, then by trailer descending: the newest entry of a user
//! key comes first. Format reference: docs/format/keys.md.

use crate::error::Corrupt;
use smallvec::SmallVec;
use std::fmt;

/// The order in which writes took effect. Between two entries for one user key, the larger wins.
/// Stored in 56 bits: the low byte of an internal key's trailer holds the [`ValueType`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct SequenceNumber(pub u64);

impl SequenceNumber {
    /// Before every write; also what an entry gets at the bottom level, where nothing older is left.
    pub const ZERO: Self = Self(0);
    /// The largest that a trailer can hold.
    pub const MAX: Self = Self((1 << 56) - 1);

    /// The sequence number `count` writes later.
    #[must_use]
    pub fn plus(self, count: u64) -> Self {
        Self(self.0 + count)
    }
}
const _: () = assert!(SequenceNumber::MAX.0 == u64::MAX >> 8); // Leaves exactly the type byte.

impl fmt::Display for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What an entry means. Numbers are RocksDB's (`ValueType` in `db/dbformat.h`); those that appear
/// in WAL records only are marked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum ValueType {
    Deletion = 0x0,
    Value = 0x1,
    Merge = 0x2,
    /// WAL only: bytes for whoever reads the log.
    LogData = 0x3,
    /// WAL only, with a column family id.
    ColumnFamilyDeletion = 0x4,
    /// WAL only, with a column family id.
    ColumnFamilyValue = 0x5,
    /// WAL only, with a column family id.
    ColumnFamilyMerge = 0x6,
    SingleDeletion = 0x7,
    /// WAL only, with a column family id.
    ColumnFamilySingleDeletion = 0x8,
    /// WAL only.
    BeginPrepareXid = 0x9,
    /// WAL only.
    EndPrepareXid = 0xA,
    /// WAL only.
    CommitXid = 0xB,
    /// WAL only.
    RollbackXid = 0xC,
    /// WAL only.
    Noop = 0xD,
    /// WAL only, with a column family id.
    ColumnFamilyRangeDeletion = 0xE,
    RangeDeletion = 0xF,
    /// WAL only, with a column family id.
    ColumnFamilyBlobIndex = 0x10,
    BlobIndex = 0x11,
    /// WAL only.
    BeginPersistedPrepareXid = 0x12,
    /// WAL only.
    BeginUnprepareXid = 0x13,
    DeletionWithTimestamp = 0x14,
    /// WAL only.
    CommitXidAndTimestamp = 0x15,
    WideColumnEntity = 0x16,
    /// WAL only, with a column family id.
    ColumnFamilyWideColumnEntity = 0x17,
    ValuePreferredSeqno = 0x18,
    /// WAL only, with a column family id.
    ColumnFamilyValuePreferredSeqno = 0x19,
}

impl ValueType {
    /// The type with the highest number that a table may hold: a seek target with this type lands
    /// before every entry of its sequence number.
    pub const FOR_SEEK: Self = Self::ValuePreferredSeqno;
    /// A backward seek target with this type lands after every entry of its sequence number.
    pub const FOR_SEEK_FOR_PREV: Self = Self::Deletion;

    /// The type with number `byte`, if there is one.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0x0 => Self::Deletion,
            0x1 => Self::Value,
            0x2 => Self::Merge,
            0x3 => Self::LogData,
            0x4 => Self::ColumnFamilyDeletion,
            0x5 => Self::ColumnFamilyValue,
            0x6 => Self::ColumnFamilyMerge,
            0x7 => Self::SingleDeletion,
            0x8 => Self::ColumnFamilySingleDeletion,
            0x9 => Self::BeginPrepareXid,
            0xA => Self::EndPrepareXid,
            0xB => Self::CommitXid,
            0xC => Self::RollbackXid,
            0xD => Self::Noop,
            0xE => Self::ColumnFamilyRangeDeletion,
            0xF => Self::RangeDeletion,
            0x10 => Self::ColumnFamilyBlobIndex,
            0x11 => Self::BlobIndex,
            0x12 => Self::BeginPersistedPrepareXid,
            0x13 => Self::BeginUnprepareXid,
            0x14 => Self::DeletionWithTimestamp,
            0x15 => Self::CommitXidAndTimestamp,
            0x16 => Self::WideColumnEntity,
            0x17 => Self::ColumnFamilyWideColumnEntity,
            0x18 => Self::ValuePreferredSeqno,
            0x19 => Self::ColumnFamilyValuePreferredSeqno,
            _ => return None,
        })
    }

    /// Whether an entry of this type may stand in a memtable or a table's point-key blocks.
    pub const fn is_point_entry(self) -> bool {
        use ValueType::*;
        matches!(
            self,
            Deletion
                | Value
                | Merge
                | SingleDeletion
                | BlobIndex
                | DeletionWithTimestamp
                | WideColumnEntity
                | ValuePreferredSeqno
        )
    }

    /// Whether an entry of this type hides what is older and has no value itself.
    pub const fn is_tombstone(self) -> bool {
        matches!(self, Self::Deletion | Self::SingleDeletion | Self::DeletionWithTimestamp)
    }
}

/// Packs the 8 trailer bytes as a number.
#[inline]
pub const fn pack_trailer(sequence: SequenceNumber, value_type: ValueType) -> u64 {
    debug_assert!(sequence.0 <= SequenceNumber::MAX.0);
    (sequence.0 << 8) | value_type as u64
}

/// How many bytes follow the user key.
pub const TRAILER_LEN: usize = 8;

/// A borrowed internal key: at least 8 bytes long, otherwise unchecked. The type byte may be
/// anything; ask [`InternalKey::value_type`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct InternalKey<'a>(&'a [u8]);

impl<'a> InternalKey<'a> {
    /// Takes `bytes` as an internal key, unless they are too short to be one.
    #[inline]
    pub const fn from_bytes(bytes: &'a [u8]) -> Result<Self, Corrupt> {
        if bytes.len() < TRAILER_LEN {
            return Err(Corrupt("internal key: shorter than its 8-byte trailer"));
        }
        Ok(Self(bytes))
    }
    /// The whole key, trailer included.
    #[inline]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }
    /// What the user called the key.
    #[inline]
    pub fn user_key(self) -> &'a [u8] {
        &self.0[..self.0.len() - TRAILER_LEN]
    }
    /// Sequence and type as one number.
    #[inline]
    pub fn trailer(self) -> u64 {
        let bytes = self.0.last_chunk().expect("an internal key has 8 bytes or more");
        u64::from_le_bytes(*bytes)
    }
    /// When the entry was written.
    #[inline]
    pub fn sequence(self) -> SequenceNumber {
        SequenceNumber(self.trailer() >> 8)
    }
    /// What the entry means; an error for a number that no type has.
    #[inline]
    pub fn value_type(self) -> Result<ValueType, Corrupt> {
        let byte = self.0[self.0.len() - TRAILER_LEN];
        ValueType::from_byte(byte).ok_or(Corrupt("internal key: unknown value type"))
    }
    /// An owned copy.
    pub fn to_buf(self) -> InternalKeyBuf {
        InternalKeyBuf { bytes: SmallVec::from_slice(self.0) }
    }
}

impl fmt::Debug for InternalKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.0[self.0.len() - TRAILER_LEN];
        write!(f, "{}@{}:", self.user_key().escape_ascii(), self.sequence())?;
        match ValueType::from_byte(kind) {
            Some(known) => write!(f, "{known:?}"),
            None => write!(f, "{kind:#x}"),
        }
    }
}

/// An owned internal key. Short keys live inline, so building a seek target does not allocate.
#[derive(Clone, PartialEq, Eq)]
pub struct InternalKeyBuf {
    bytes: SmallVec<[u8; INLINE]>,
}

/// Longer keys are on the heap.
const INLINE: usize = 56;

impl InternalKeyBuf {
    /// Bytes that it has on the heap.
    pub fn heap_bytes(&self) -> usize {
        if self.bytes.spilled() { self.bytes.capacity() } else { 0 }
    }
    /// Builds the key of an entry.
    #[inline]
    pub fn new(user_key: &[u8], sequence: SequenceNumber, value_type: ValueType) -> Self {
        let trailer = pack_trailer(sequence, value_type).to_le_bytes();
        let len = user_key.len() + TRAILER_LEN;
        if len <= INLINE {
            let mut inline = [0; INLINE];
            inline[..user_key.len()].copy_from_slice(user_key);
            inline[user_key.len()..len].copy_from_slice(&trailer);
            return Self { bytes: SmallVec::from_buf_and_len(inline, len) };
        }
        let mut bytes = SmallVec::with_capacity(len);
        bytes.extend_from_slice(user_key);
        bytes.extend_from_slice(&trailer);
        Self { bytes }
    }
    /// The target that lands on the newest entry of `user_key` visible at `sequence`, or after it.
    #[inline]
    pub fn for_seek(user_key: &[u8], sequence: SequenceNumber) -> Self {
        Self::new(user_key, sequence, ValueType::FOR_SEEK)
    }
    /// Borrows the key.
    #[inline]
    pub fn as_key(&self) -> InternalKey<'_> {
        InternalKey(&self.bytes)
    }
    /// The whole key, trailer included.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
    /// What the user called the key.
    #[inline]
    pub fn user_key(&self) -> &[u8] {
        self.as_key().user_key()
    }
    /// Replaces the key without giving its memory back.
    #[inline]
    pub fn assign(&mut self, key: InternalKey<'_>) {
        self.bytes.clear();
        self.bytes.extend_from_slice(key.as_bytes());
    }
    /// Replaces the trailer.
    #[inline]
    pub fn set_trailer(&mut self, sequence: SequenceNumber, value_type: ValueType) {
        let at = self.bytes.len() - TRAILER_LEN;
        self.bytes[at..].copy_from_slice(&pack_trailer(sequence, value_type).to_le_bytes());
    }
}

impl fmt::Debug for InternalKeyBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_key().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_types_keep_their_numbers() {
        for byte in 0..=u8::MAX {
            if let Some(known) = ValueType::from_byte(byte) {
                assert_eq!(known as u8, byte);
            } else {
                assert!(byte > 0x19);
            }
        }
    }

    #[test]
    fn a_key_comes_apart_as_it_was_put_together() {
        let key = InternalKeyBuf::new(b"user", SequenceNumber(0x1234), ValueType::Merge);
        assert_eq!(key.as_bytes(), b"user\x02\x34\x12\0\0\0\0\0");
        assert_eq!(key.as_key().user_key(), b"user");
        assert_eq!(key.as_key().sequence(), SequenceNumber(0x1234));
        assert_eq!(key.as_key().value_type(), Ok(ValueType::Merge));
        assert_eq!(format!("{key:?}"), "user@4660:Merge");
        assert!(InternalKey::from_bytes(b"1234567").is_err());
    }
}
