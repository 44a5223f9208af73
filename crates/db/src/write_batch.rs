//! Write batches, in RocksDB's wire format: the same bytes go into the WAL.
//!
//! ```text
//! batch:   sequence, 8 bytes LE | record count, 4 bytes LE | record *
//! record:  type, 1 byte | column family id, varint32 (types that carry one) | key | value (types that have one)
//! key, value: varint32 length | bytes
//! ```
//! Log data and the transaction markers do not count as records. Format reference: docs/format/wal.md, "Write batch".

use ironstone_base::coding::{get_length_prefixed, get_varint32, put_length_prefixed, put_varint32};
use ironstone_base::protection::{PROTECTION_LEN, changed_in_memory};
use ironstone_base::{ColumnFamilyId, Corrupt, Error, Protection, Result, SequenceNumber, ValueType};

/// Bytes in front of the first record.
pub const HEADER_LEN: usize = 12;
/// A batch that was emptied keeps no more memory than this.
const MOST_KEPT: usize = 64 << 10;
/// The longest key, and the longest value: lengths are 32 bits wide, and memtables add a few bytes.
pub const MAX_SLICE_BYTES: usize = u32::MAX as usize - 16;

/// The sequence number of the first write of `record`, if that is long enough for a batch.
pub(crate) fn sequence_of(record: &[u8]) -> Option<SequenceNumber> {
    let header = record.get(..HEADER_LEN)?;
    Some(SequenceNumber(u64::from_le_bytes(*header.first_chunk()?)))
}

/// Several writes that take effect together or not at all.
///
/// ```
/// let mut batch = ironstone::WriteBatch::new();
/// batch.put(b"k1", b"v1");
/// batch.delete(b"k2");
/// assert_eq!(batch.count(), 2);
/// ```
#[derive(Clone, Debug)]
pub struct WriteBatch {
    rep: Vec<u8>,
    save_points: Vec<SavePoint>,
    /// A write that cannot be encoded was asked for; the batch cannot be written.
    too_large: bool,
    /// A checksum of each write, with its column family.
    protection: Option<Vec<Protection>>,
}

#[derive(Clone, Copy, Debug)]
struct SavePoint {
    len: usize,
    count: u32,
}

/// One write of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchRecord<'a> {
    /// Sets a key.
    Put {
        /// Where.
        cf: ColumnFamilyId,
        /// Which key.
        key: &'a [u8],
        /// To what.
        value: &'a [u8],
    },
    /// Deletes a key.
    Delete {
        /// Where.
        cf: ColumnFamilyId,
        /// Which key.
        key: &'a [u8],
    },
    /// Deletes a key that was put at most once since its last delete.
    SingleDelete {
        /// Where.
        cf: ColumnFamilyId,
        /// Which key.
        key: &'a [u8],
    },
    /// Adds a merge operand.
    Merge {
        /// Where.
        cf: ColumnFamilyId,
        /// Which key.
        key: &'a [u8],
        /// The operand.
        operand: &'a [u8],
    },
    /// Deletes the keys of `begin..end`.
    DeleteRange {
        /// Where.
        cf: ColumnFamilyId,
        /// The first key.
        begin: &'a [u8],
        /// The key after the last.
        end: &'a [u8],
    },
    /// Bytes for whoever reads the log; no key is changed and no sequence number is used.
    LogData(&'a [u8]),
    /// Changes nothing.
    Noop,
}

impl Default for WriteBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::with_capacity(0)
    }
    /// An empty batch with room for `bytes` of records.
    pub fn with_capacity(bytes: usize) -> Self {
        let mut rep = Vec::with_capacity(HEADER_LEN + bytes);
        rep.resize(HEADER_LEN, 0);
        Self { rep, save_points: Vec::new(), too_large: false, protection: None }
    }
    /// An empty batch whose writes get a checksum when they are put in, which [`Db::write`](crate::Db::write) compares
    /// before it logs them, and hands on to memtables with `memtable_protection_bytes_per_key`: memory that changes on
    /// the way is a `Corruption` error. `bytes` is 8, or 0 for none; others are `InvalidArgument`.
    ///
    /// ```
    /// # fn main() -> ironstone::Result<()> {
    /// let mut batch = ironstone::WriteBatch::with_protection(8)?;
    /// batch.put(b"k", b"v");
    /// batch.verify_checksum()
    /// # }
    /// ```
    pub fn with_protection(bytes: usize) -> Result<Self> {
        check_protection_bytes(bytes)?;
        Ok(Self { protection: (bytes > 0).then(Vec::new), ..Self::new() })
    }
    /// Takes bytes in the wire format, for instance from a log. The records are checked when they are read.
    pub fn from_data(rep: Vec<u8>) -> Result<Self> {
        if rep.len() < HEADER_LEN {
            return Err(Error::corruption("write batch: shorter than its 12-byte header"));
        }
        Ok(Self { rep, save_points: Vec::new(), too_large: false, protection: None })
    }

    /// Sets `key` to `value` in the default column family.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.put_in(ColumnFamilyId::DEFAULT, key.as_ref(), value.as_ref());
    }
    /// Deletes `key` in the default column family.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) {
        self.delete_in(ColumnFamilyId::DEFAULT, key.as_ref());
    }
    /// Deletes `key`, which was put at most once since its last delete, in the default column family.
    pub fn single_delete(&mut self, key: impl AsRef<[u8]>) {
        self.single_delete_in(ColumnFamilyId::DEFAULT, key.as_ref());
    }
    /// Merges `operand` into the value of `key` in the default column family.
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) {
        self.merge_in(ColumnFamilyId::DEFAULT, key.as_ref(), operand.as_ref());
    }
    /// Deletes the keys of `begin..end` in the default column family. Nothing if `begin` is `end`; a batch in which
    /// `end` comes before `begin` is refused when it is written.
    pub fn delete_range(&mut self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) {
        self.delete_range_in(ColumnFamilyId::DEFAULT, begin.as_ref(), end.as_ref());
    }
    /// Sets `key` to `value` in `cf`.
    pub fn put_cf(&mut self, cf: &crate::ColumnFamily, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.put_in(cf.id(), key.as_ref(), value.as_ref());
    }
    /// Deletes `key` in `cf`.
    pub fn delete_cf(&mut self, cf: &crate::ColumnFamily, key: impl AsRef<[u8]>) {
        self.delete_in(cf.id(), key.as_ref());
    }
    /// Deletes `key`, which was put at most once since its last delete, in `cf`.
    pub fn single_delete_cf(&mut self, cf: &crate::ColumnFamily, key: impl AsRef<[u8]>) {
        self.single_delete_in(cf.id(), key.as_ref());
    }

    /// Merges `operand` into the value of `key` in `cf`.
    pub fn merge_cf(&mut self, cf: &crate::ColumnFamily, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) {
        self.merge_in(cf.id(), key.as_ref(), operand.as_ref());
    }
    /// Deletes the keys of `begin..end` in `cf`; see [`delete_range`](Self::delete_range).
    pub fn delete_range_cf(
        &mut self,
        cf: &crate::ColumnFamily,
        begin: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
    ) {
        self.delete_range_in(cf.id(), begin.as_ref(), end.as_ref());
    }

    /// Sets `key` to `value` in the column family with that id.
    pub fn put_in(&mut self, cf: ColumnFamilyId, key: &[u8], value: &[u8]) {
        if self.fits(key, value) {
            self.start(ValueType::Value, ValueType::ColumnFamilyValue, cf);
            put_length_prefixed(&mut self.rep, key);
            put_length_prefixed(&mut self.rep, value);
            self.protect(ValueType::Value, cf, key, value);
        }
    }
    /// Deletes `key` in the column family with that id.
    pub fn delete_in(&mut self, cf: ColumnFamilyId, key: &[u8]) {
        if self.fits(key, &[]) {
            self.start(ValueType::Deletion, ValueType::ColumnFamilyDeletion, cf);
            put_length_prefixed(&mut self.rep, key);
            self.protect(ValueType::Deletion, cf, key, &[]);
        }
    }
    /// Like [`single_delete`](Self::single_delete) in the column family with that id.
    pub fn single_delete_in(&mut self, cf: ColumnFamilyId, key: &[u8]) {
        if self.fits(key, &[]) {
            self.start(ValueType::SingleDeletion, ValueType::ColumnFamilySingleDeletion, cf);
            put_length_prefixed(&mut self.rep, key);
            self.protect(ValueType::SingleDeletion, cf, key, &[]);
        }
    }
    /// Merges `operand` into the value of `key` in the column family with that id.
    pub fn merge_in(&mut self, cf: ColumnFamilyId, key: &[u8], operand: &[u8]) {
        if self.fits(key, operand) {
            self.start(ValueType::Merge, ValueType::ColumnFamilyMerge, cf);
            put_length_prefixed(&mut self.rep, key);
            put_length_prefixed(&mut self.rep, operand);
            self.protect(ValueType::Merge, cf, key, operand);
        }
    }
    /// Like [`delete_range`](Self::delete_range) in the column family with that id.
    pub fn delete_range_in(&mut self, cf: ColumnFamilyId, begin: &[u8], end: &[u8]) {
        if self.fits(begin, end) {
            self.start(ValueType::RangeDeletion, ValueType::ColumnFamilyRangeDeletion, cf);
            put_length_prefixed(&mut self.rep, begin);
            put_length_prefixed(&mut self.rep, end);
            self.protect(ValueType::RangeDeletion, cf, begin, end);
        }
    }
    /// Adds bytes that go into the log with the batch and nowhere else.
    pub fn put_log_data(&mut self, blob: &[u8]) {
        if self.fits(blob, &[]) {
            self.rep.push(ValueType::LogData as u8);
            put_length_prefixed(&mut self.rep, blob);
        }
    }

    fn fits(&mut self, key: &[u8], value: &[u8]) -> bool {
        let fits = key.len() <= MAX_SLICE_BYTES && value.len() <= MAX_SLICE_BYTES;
        self.too_large |= !fits;
        fits
    }

    #[inline]
    fn protect(&mut self, kind: ValueType, cf: ColumnFamilyId, key: &[u8], value: &[u8]) {
        if self.protection.is_some() {
            self.add_protection(kind, cf, key, value);
        }
    }
    #[cold]
    fn add_protection(&mut self, kind: ValueType, cf: ColumnFamilyId, key: &[u8], value: &[u8]) {
        let added = Protection::new(kind, key, value).toggle_column_family(cf);
        self.protection.get_or_insert_default().push(added);
    }

    fn start(&mut self, plain: ValueType, with_cf: ValueType, cf: ColumnFamilyId) {
        self.set_count(self.count() + 1);
        if cf == ColumnFamilyId::DEFAULT {
            self.rep.push(plain as u8);
        } else {
            self.rep.push(with_cf as u8);
            put_varint32(&mut self.rep, cf.0);
        }
    }

    /// How many writes are in the batch.
    pub fn count(&self) -> u32 {
        u32::from_le_bytes(*self.rep[8..].first_chunk().expect("the header is there"))
    }
    fn set_count(&mut self, count: u32) {
        self.rep[8..HEADER_LEN].copy_from_slice(&count.to_le_bytes());
    }
    /// The sequence number of the first write, for batches that came from a log.
    pub fn sequence(&self) -> SequenceNumber {
        SequenceNumber(u64::from_le_bytes(*self.rep.first_chunk().expect("the header is there")))
    }
    pub(crate) fn set_sequence(&mut self, first: SequenceNumber) {
        self.rep[..8].copy_from_slice(&first.0.to_le_bytes());
    }
    /// Whether there is nothing in the batch, log data included.
    pub fn is_empty(&self) -> bool {
        self.rep.len() == HEADER_LEN
    }
    /// The batch in the wire format.
    pub fn data(&self) -> &[u8] {
        &self.rep
    }
    /// How many bytes [`data`](Self::data) has.
    pub fn size_bytes(&self) -> usize {
        self.rep.len()
    }
    /// Forgets all writes and save points; keeps the memory.
    pub fn clear(&mut self) {
        self.rep.truncate(HEADER_LEN);
        self.rep.fill(0);
        self.save_points.clear();
        if let Some(protection) = &mut self.protection {
            protection.clear();
        }
        self.too_large = false;
    }
    /// Adds the writes of `other` behind the ones here.
    pub fn append(&mut self, other: &WriteBatch) {
        if let Some(protection) = &mut self.protection {
            match &other.protection {
                Some(others) => protection.extend_from_slice(others),
                None => protection.extend(other.iter().filter_map(|record| record.ok()?.protection())),
            }
        }
        self.set_count(self.count() + other.count());
        self.rep.extend_from_slice(&other.rep[HEADER_LEN..]);
        self.too_large |= other.too_large;
    }

    /// Remembers this state for [`rollback_to_save_point`](Self::rollback_to_save_point).
    pub fn set_save_point(&mut self) {
        self.save_points.push(SavePoint { len: self.rep.len(), count: self.count() });
    }
    /// Takes back what was added since the last save point, and forgets that save point.
    /// `NotFound` if there is none.
    pub fn rollback_to_save_point(&mut self) -> Result<()> {
        let point = self.save_points.pop().ok_or_else(no_save_point)?;
        self.rep.truncate(point.len);
        self.set_count(point.count);
        if let Some(protection) = &mut self.protection {
            protection.truncate(point.count as usize);
        }
        Ok(())
    }
    /// Forgets the last save point and keeps the writes. `NotFound` if there is none.
    pub fn pop_save_point(&mut self) -> Result<()> {
        self.save_points.pop().map(drop).ok_or_else(no_save_point)
    }

    /// Compares each write with the checksum that it got when it was put in, if the batch was made
    /// [`with_protection`](Self::with_protection): `Corruption` if they differ.
    pub fn verify_checksum(&self) -> Result<()> {
        self.protection.as_ref().map_or(Ok(()), |protection| check_protection(&self.rep, protection))
    }
    /// What it was made with.
    pub(crate) fn protection(&self) -> Option<&[Protection]> {
        self.protection.as_deref()
    }
    /// Checksums of what it holds now.
    pub(crate) fn new_protection(&self) -> Result<Vec<Protection>> {
        self.iter().filter_map(|record| record.map(|record| record.protection()).transpose()).collect()
    }

    /// The writes in order. Bytes that are no record end it with an error.
    pub fn iter(&self) -> BatchIter<'_> {
        BatchIter::new(&self.rep)
    }

    /// Gives back memory that one large write took.
    pub(crate) fn shrink(&mut self) {
        if self.rep.capacity() > MOST_KEPT {
            self.rep = self.rep[..HEADER_LEN].to_vec();
        } else {
            self.rep.truncate(HEADER_LEN);
        }
    }

    /// Whether the batch can be written.
    pub(crate) fn check(&self) -> Result<()> {
        if self.too_large {
            return Err(Error::invalid_argument("write batch: a key or value has 4 GiB or more"));
        }
        Ok(())
    }
}

/// `InvalidArgument` unless a write may have a checksum of so many bytes.
pub(crate) fn check_protection_bytes(bytes: usize) -> Result<()> {
    match bytes {
        0 | PROTECTION_LEN => Ok(()),
        _ => Err(Error::invalid_argument(format!(
            "protection_bytes_per_key of a write batch has to be 0 or {PROTECTION_LEN}, not {bytes}"
        ))),
    }
}

/// Compares each write of a batch in its wire format with its checksum.
pub(crate) fn check_protection(rep: &[u8], protection: &[Protection]) -> Result<()> {
    let what = |at: usize| changed_in_memory(&format!("write batch: write {at}"), "protection_bytes_per_key");
    let mut rest = protection.iter();
    let mut at = 0;
    for record in BatchIter::new(rep) {
        if let Some(found) = record.map_err(|_| what(at))?.protection() {
            if rest.next() != Some(&found) {
                return Err(what(at));
            }
            at += 1;
        }
    }
    rest.next().map_or(Ok(()), |_| Err(what(at)))
}

impl BatchRecord<'_> {
    /// Of a write; none of what changes nothing.
    fn protection(&self) -> Option<Protection> {
        let (cf, kind, key, value) = match *self {
            Self::Put { cf, key, value } => (cf, ValueType::Value, key, value),
            Self::Delete { cf, key } => (cf, ValueType::Deletion, key, &[][..]),
            Self::SingleDelete { cf, key } => (cf, ValueType::SingleDeletion, key, &[][..]),
            Self::Merge { cf, key, operand } => (cf, ValueType::Merge, key, operand),
            Self::DeleteRange { cf, begin, end } => (cf, ValueType::RangeDeletion, begin, end),
            Self::LogData(_) | Self::Noop => return None,
        };
        Some(Protection::new(kind, key, value).toggle_column_family(cf))
    }
}

fn no_save_point() -> Error {
    Error::not_found("write batch: no save point is set")
}

/// Reads the records of a batch in its wire format.
#[derive(Clone, Debug)]
pub struct BatchIter<'a> {
    rest: &'a [u8],
}

impl<'a> BatchIter<'a> {
    /// Reads `rep`, header included; a header that is cut short reads as an empty batch.
    pub fn new(rep: &'a [u8]) -> Self {
        Self { rest: rep.get(HEADER_LEN..).unwrap_or_default() }
    }

    #[inline]
    fn read(&mut self) -> Result<BatchRecord<'a>, ReadFailure> {
        let (&byte, rest) = self.rest.split_first().expect("called with bytes left");
        let kind = ValueType::from_byte(byte).ok_or(Corrupt("write batch: unknown record type"))?;
        let mut rest = rest;
        let cf = match kind {
            ValueType::ColumnFamilyValue
            | ValueType::ColumnFamilyDeletion
            | ValueType::ColumnFamilySingleDeletion
            | ValueType::ColumnFamilyMerge
            | ValueType::ColumnFamilyRangeDeletion => {
                ColumnFamilyId(get_varint32(&mut rest).ok_or(Corrupt("write batch: bad column family id"))?)
            }
            _ => ColumnFamilyId::DEFAULT,
        };
        let mut slice = || get_length_prefixed(&mut rest).ok_or(Corrupt("write batch: record cut short"));
        let record = match kind {
            ValueType::Value | ValueType::ColumnFamilyValue => {
                BatchRecord::Put { cf, key: slice()?, value: slice()? }
            }
            ValueType::Deletion | ValueType::ColumnFamilyDeletion => {
                BatchRecord::Delete { cf, key: slice()? }
            }
            ValueType::SingleDeletion | ValueType::ColumnFamilySingleDeletion => {
                BatchRecord::SingleDelete { cf, key: slice()? }
            }
            ValueType::Merge | ValueType::ColumnFamilyMerge => {
                BatchRecord::Merge { cf, key: slice()?, operand: slice()? }
            }
            ValueType::RangeDeletion | ValueType::ColumnFamilyRangeDeletion => {
                BatchRecord::DeleteRange { cf, begin: slice()?, end: slice()? }
            }
            ValueType::LogData => BatchRecord::LogData(slice()?),
            ValueType::Noop => BatchRecord::Noop,
            other => return Err(ReadFailure::Unbuilt(unbuilt(other))),
        };
        self.rest = rest;
        Ok(record)
    }
}

enum ReadFailure {
    Corrupt(Corrupt),
    Unbuilt(&'static str),
}
impl From<Corrupt> for ReadFailure {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(corrupt)
    }
}

fn unbuilt(kind: ValueType) -> &'static str {
    use ValueType::*;
    match kind {
        BlobIndex | ColumnFamilyBlobIndex => "write batch: blob files",
        WideColumnEntity | ColumnFamilyWideColumnEntity => "write batch: wide columns",
        ValuePreferredSeqno | ColumnFamilyValuePreferredSeqno => "write batch: TimedPut",
        DeletionWithTimestamp => "write batch: user-defined timestamps",
        _ => "write batch: two-phase commit of transactions",
    }
}

impl<'a> Iterator for BatchIter<'a> {
    type Item = Result<BatchRecord<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        Some(self.read().map_err(|failure| {
            self.rest = &[]; // What follows a bad record cannot be told apart.
            match failure {
                ReadFailure::Corrupt(Corrupt(what)) => Error::corruption(what),
                ReadFailure::Unbuilt(what) => Error::not_supported(what),
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(batch: &WriteBatch) -> Vec<BatchRecord<'_>> {
        batch.iter().map(|record| record.unwrap()).collect()
    }

    #[test]
    fn the_wire_format_is_rocksdbs() {
        let mut batch = WriteBatch::new();
        batch.put(b"k", b"vv");
        batch.delete_in(ColumnFamilyId(300), b"x");
        batch.put_log_data(b"blob");
        let expected = b"\0\0\0\0\0\0\0\0\x02\0\0\0\x01\x01k\x02vv\x04\xac\x02\x01x\x03\x04blob";
        assert_eq!(batch.data(), expected);
        let cf = ColumnFamilyId(300);
        let put = BatchRecord::Put { cf: ColumnFamilyId(0), key: b"k", value: b"vv" };
        assert_eq!(
            records(&batch),
            [put, BatchRecord::Delete { cf, key: b"x" }, BatchRecord::LogData(b"blob")]
        );
    }

    #[test]
    fn a_shrunk_batch_is_empty_and_keeps_little_memory() {
        let mut batch = WriteBatch::new();
        for (len, kept) in [(1000, true), (1 << 20, false), (10, true)] {
            batch.put(b"k", vec![1; len]);
            assert!(batch.rep.capacity() >= len);
            batch.shrink();
            assert_eq!(batch.rep.capacity() >= len, kept, "{len}");
            assert!(batch.rep.capacity() <= MOST_KEPT);
            batch.clear();
            assert!(batch.iter().next().is_none() && batch.data().len() == HEADER_LEN);
        }
    }

    #[test]
    fn save_points_nest() {
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1");
        batch.set_save_point();
        batch.put(b"b", b"2");
        batch.set_save_point();
        batch.delete(b"c");
        batch.rollback_to_save_point().unwrap();
        assert_eq!(batch.count(), 2);
        batch.pop_save_point().unwrap();
        assert!(batch.rollback_to_save_point().is_err());
        assert_eq!(records(&batch).len(), 2);
    }

    /// Whatever bit changes between the batch and the log, the write is refused and leaves nothing behind.
    #[test]
    fn every_flipped_bit_of_a_protected_batch_is_refused() {
        let fs = ironstone_base::sync::Arc::new(ironstone_vfs::mem::MemFileSystem::new());
        let mut options = crate::Options::default();
        options.db.env.fs = fs;
        options.db.create_if_missing = true;
        options.cf.merge_operator = Some(crate::merge_operators::string_append(","));
        let db = crate::Db::open(&options, "/db").unwrap();
        let mut batch = WriteBatch::with_protection(8).unwrap();
        batch.put("a", "1");
        batch.delete("b");
        batch.merge("c", "2");
        batch.delete_range("d", "e");
        for bit in HEADER_LEN * 8..batch.rep.len() * 8 {
            let mut flipped = batch.clone();
            flipped.rep[bit / 8] ^= 1 << (bit % 8);
            let error = db.write(&flipped, &crate::WriteOptions::default()).unwrap_err();
            assert_eq!(error.code(), ironstone_base::Code::Corruption, "bit {bit}: {error}");
            assert!(flipped.verify_checksum().is_err());
        }
        assert_eq!(db.latest_sequence(), SequenceNumber::ZERO);
        db.write(&batch, &crate::WriteOptions::default()).unwrap();
        assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    }

    #[test]
    fn every_cut_of_a_batch_is_an_error_or_a_shorter_batch() {
        let mut batch = WriteBatch::new();
        batch.put(b"key", b"value");
        batch.single_delete_in(ColumnFamilyId(7), b"other");
        for cut in HEADER_LEN..batch.data().len() {
            let short = WriteBatch::from_data(batch.data()[..cut].to_vec()).unwrap();
            let whole = short.iter().filter(Result::is_ok).count();
            assert!(whole < 2);
        }
    }
}
