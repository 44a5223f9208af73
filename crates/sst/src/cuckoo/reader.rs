//! Reads cuckoo tables.

use super::iter::CuckooIter;
use super::{
    BLOCK_SIZE, EMPTY_KEY, HASH_TABLE_SIZE, Hashing, IDENTITY_AS_FIRST_HASH, IS_LAST_LEVEL, MAX_HASHES,
    NUM_HASH_FUNC, USE_MODULE_HASH, USER_KEY_LENGTH, VALUE_LENGTH,
};
use crate::cached_block::PinnedBytes;
use crate::flat::{FlatFile, FlatIter, FlatTable};
use crate::options::OpenOptions;
use crate::properties::TableProperties;
use crate::reader::TableEntry;
use ironstone_base::internal_key::TRAILER_LEN;
use ironstone_base::sync::{Arc, OnceLock};
use ironstone_base::{
    Corrupt, Error, InternalKey, InternalKeyBuf, Result, SequenceNumber, SliceTransform, ValueType,
};

/// An open cuckoo table.
pub(super) struct CuckooTable {
    pub file: FlatFile,
    shape: Shape,
    /// The user key of empty buckets.
    unused: Vec<u8>,
    /// Buckets in the order of their keys. Made when somebody needs it first.
    sorted: OnceLock<Vec<u32>>,
}

/// What the properties say.
#[derive(Clone, Copy, Debug)]
struct Shape {
    hashing: Hashing,
    hashes: u32,
    block_size: u64,
    /// The length of keys in buckets.
    key_len: usize,
    user_key_len: usize,
    value_len: usize,
    /// Keys are user keys: all are of values with sequence number 0.
    without_trailers: bool,
    bucket_count: u64,
}

/// Opens the cuckoo table in `file`.
pub(crate) fn open(file: FlatFile, options: &OpenOptions) -> Result<Arc<dyn FlatTable>> {
    if options.table.comparator.different_bytes_may_be_equal() {
        let path = file.path.display();
        let what = format!("{path}: a cuckoo table by a comparator to which different bytes may be equal");
        return Err(Error::not_supported(what));
    }
    let at = file.properties_at();
    let shape = Shape::decode(&file.properties).map_err(|bad| file.corrupt(at, bad.0))?;
    let unused = file.properties.user_collected.get(EMPTY_KEY).cloned().unwrap_or_default();
    if unused.len() != shape.key_len {
        return Err(file.corrupt(at, "properties: the key of empty buckets has not the length of keys"));
    }
    let unused = unused[..shape.user_key_len].to_vec();
    Ok(Arc::new(CuckooTable { file, shape, unused, sorted: OnceLock::new() }))
}

impl Shape {
    fn decode(properties: &TableProperties) -> std::result::Result<Self, Corrupt> {
        const MISSING: Corrupt = Corrupt("properties: what a cuckoo table needs is missing");
        const ODD: Corrupt = Corrupt("properties: the lengths of a cuckoo table do not go together");
        let u32_of = |name: &str| properties.user_fixed32(name).ok_or(MISSING);
        let flag = |name: &str| {
            let value = properties.user_collected.get(name).and_then(|value| value.first());
            value.map(|&value| value != 0).ok_or(MISSING)
        };
        let len = |value: u64| usize::try_from(value).map_err(|_| ODD);
        let key_len = len(properties.fixed_key_len)?;
        let shape = Self {
            hashing: Hashing {
                table_size: properties.user_fixed64(HASH_TABLE_SIZE).ok_or(MISSING)?,
                identity_first: flag(IDENTITY_AS_FIRST_HASH)?,
                by_modulo: flag(USE_MODULE_HASH)?,
            },
            hashes: u32_of(NUM_HASH_FUNC)?,
            block_size: u64::from(u32_of(BLOCK_SIZE)?),
            key_len,
            user_key_len: u32_of(USER_KEY_LENGTH)? as usize,
            value_len: u32_of(VALUE_LENGTH)? as usize,
            without_trailers: flag(IS_LAST_LEVEL)?,
            bucket_count: 0,
        };
        if properties.num_entries == 0 && properties.data_size == 0 {
            return Ok(shape);
        }
        let trailer_len = if shape.without_trailers { 0 } else { TRAILER_LEN };
        let fits = shape.user_key_len > 0
            && shape.user_key_len.checked_add(trailer_len) == Some(key_len)
            && shape.hashing.table_size > 0
            && (1..=MAX_HASHES).contains(&shape.hashes)
            && shape.block_size > 0
            && (shape.user_key_len >= 8 || !shape.hashing.identity_first);
        let bucket_count =
            shape.hashing.table_size.checked_add(shape.block_size - u64::from(shape.block_size > 0));
        let data_len = bucket_count.and_then(|count| count.checked_mul(shape.bucket_len() as u64));
        match bucket_count {
            Some(bucket_count)
                if fits && data_len == Some(properties.data_size) && bucket_count < u64::from(u32::MAX) =>
            {
                Ok(Self { bucket_count, ..shape })
            }
            _ => Err(ODD),
        }
    }

    fn bucket_len(&self) -> usize {
        self.key_len.saturating_add(self.value_len)
    }
}

impl CuckooTable {
    fn data(&self) -> &[u8] {
        &self.file.bytes[..self.file.properties.data_size as usize]
    }
    fn bucket_at(&self, number: u32) -> usize {
        number as usize * self.shape.bucket_len()
    }
    /// The user key in a bucket, which there is.
    pub fn user_key(&self, number: u32) -> &[u8] {
        &self.data()[self.bucket_at(number)..][..self.shape.user_key_len]
    }
    /// Whether a bucket, which there is, has an entry.
    fn is_used(&self, number: u32) -> bool {
        self.user_key(number) != self.unused
    }
    /// The sequence number and type of a bucket's entry.
    fn kind(&self, number: u32) -> Result<(SequenceNumber, ValueType)> {
        let sequence_of = |stored| self.file.global_sequence.map_or(stored, SequenceNumber);
        if self.shape.without_trailers {
            return Ok((sequence_of(SequenceNumber::ZERO), ValueType::Value));
        }
        let at = self.bucket_at(number);
        let key = &self.data()[at..][..self.shape.key_len];
        let kind = InternalKey::from_bytes(key).and_then(|key| Ok((key.sequence(), key.value_type()?)));
        match kind {
            Ok((sequence, value_type @ (ValueType::Value | ValueType::Deletion))) => {
                Ok((sequence_of(sequence), value_type))
            }
            Ok(_) => Err(self.file.corrupt(at as u64, "bucket: neither a value nor a tombstone")),
            Err(bad) => Err(self.file.corrupt(at as u64, bad.0)),
        }
    }
    /// Where the value of a bucket of that type is.
    fn value_range(&self, number: u32, value_type: ValueType) -> (usize, usize) {
        let len = if value_type == ValueType::Value { self.shape.value_len } else { 0 };
        (self.bucket_at(number) + self.shape.key_len, len)
    }
    pub fn value(&self, number: u32, value_type: ValueType) -> &[u8] {
        let (at, len) = self.value_range(number, value_type);
        &self.data()[at..at + len]
    }
    pub fn pinned_value(&self, number: u32, value_type: ValueType) -> PinnedBytes {
        let (at, len) = self.value_range(number, value_type);
        match (u32::try_from(at), u32::try_from(len)) {
            (Ok(at), Ok(len)) => PinnedBytes::in_file(&self.file.bytes, at, len),
            _ => PinnedBytes::owned(self.value(number, value_type)), // Places are kept in 32 bits.
        }
    }
    /// The internal key of a bucket's entry.
    pub fn key(&self, number: u32) -> Result<InternalKeyBuf> {
        let (sequence, value_type) = self.kind(number)?;
        Ok(InternalKeyBuf::new(self.user_key(number), sequence, value_type))
    }

    /// The bucket that has `user_key`.
    fn find(&self, user_key: &[u8]) -> Option<u32> {
        if user_key.len() != self.shape.user_key_len || self.shape.bucket_count == 0 {
            return None;
        }
        for hash in 0..self.shape.hashes {
            let first = self.shape.hashing.bucket(user_key, hash);
            for number in first..first + self.shape.block_size {
                let found = self.user_key(number as u32); // Fewer than 2^32, as was checked.
                if found == user_key {
                    return (user_key != self.unused).then_some(number as u32);
                }
                if found == self.unused {
                    return None;
                }
            }
        }
        None
    }

    /// The buckets with entries in the order of their keys.
    pub fn sorted(&self) -> Result<&[u32]> {
        if let Some(sorted) = self.sorted.get() {
            return Ok(sorted);
        }
        let order = &self.file.order.user;
        let mut sorted: Vec<u32> =
            (0..self.shape.bucket_count as u32).filter(|&number| self.is_used(number)).collect();
        sorted.sort_by(|&a, &b| order.compare(self.user_key(a), self.user_key(b)));
        let stated = self.file.properties.num_entries;
        if sorted.len() as u64 != stated {
            let what = format!("{} buckets have entries, the properties say {stated}", sorted.len());
            return Err(self.file.corrupt(0, what));
        }
        let double = sorted.windows(2).find(|pair| self.user_key(pair[0]) == self.user_key(pair[1]));
        if let Some(pair) = double {
            return Err(self.file.corrupt(self.bucket_at(pair[1]) as u64, "two buckets have one key"));
        }
        Ok(self.sorted.get_or_init(|| sorted))
    }

    /// How many entries are before `target`.
    pub fn entries_before(&self, target: InternalKey<'_>) -> Result<usize> {
        let sorted = self.sorted()?;
        let order = &self.file.order;
        let at = sorted
            .partition_point(|&number| order.user.compare(self.user_key(number), target.user_key()).is_lt());
        // The one entry of that user key may come before the target, too.
        match sorted.get(at) {
            Some(&number) => Ok(at + usize::from(order.compare(self.key(number)?.as_key(), target).is_lt())),
            None => Ok(at),
        }
    }
}

impl FlatTable for CuckooTable {
    fn file(&self) -> &FlatFile {
        &self.file
    }
    fn visit(
        &self,
        target: InternalKey<'_>,
        _filtered: bool,
        visit: &mut dyn FnMut(TableEntry) -> bool,
    ) -> Result<()> {
        let Some(number) = self.find(target.user_key()) else { return Ok(()) };
        let (sequence, value_type) = self.kind(number)?;
        let key = InternalKeyBuf::new(target.user_key(), sequence, value_type);
        if key.as_key().trailer() <= target.trailer() {
            let value = self.pinned_value(number, value_type);
            visit(TableEntry { sequence, value_type, value });
        }
        Ok(())
    }
    fn may_have(&self, _user_key: &[u8]) -> bool {
        true
    }
    fn may_have_prefix_of(&self, _user_key: &[u8]) -> bool {
        true
    }
    fn filter_extractor(&self) -> Option<&Arc<dyn SliceTransform>> {
        None
    }
    fn iter(self: Arc<Self>) -> Box<dyn FlatIter> {
        Box::new(CuckooIter::new(self))
    }
    fn approximate_offset_of(&self, key: InternalKey<'_>) -> Result<u64> {
        let (data_len, count) = (self.file.properties.data_size, self.sorted()?.len() as u64);
        let before = self.entries_before(key)? as u64;
        Ok(if count == 0 {
            0
        } else {
            (u128::from(data_len) * u128::from(before) / u128::from(count)) as u64
        })
    }
    fn anchors(&self, limit: usize) -> Result<Vec<(InternalKeyBuf, u64)>> {
        let sorted = self.sorted()?;
        let step = sorted.len().div_ceil(limit.max(1)).max(1);
        let bytes = |entries: usize| {
            let data_len = u128::from(self.file.properties.data_size);
            (data_len * entries as u128 / sorted.len().max(1) as u128) as u64
        };
        let anchor = |part: &[u32]| {
            let last = part.last().map_or(&[][..], |&number| self.user_key(number));
            let key = InternalKeyBuf::new(last, SequenceNumber::ZERO, ValueType::FOR_SEEK_FOR_PREV);
            (key, bytes(part.len()))
        };
        Ok(sorted.chunks(step).map(anchor).collect())
    }
    fn verify(&self) -> Result<()> {
        for &number in self.sorted()? {
            self.kind(number)?;
            if self.find(self.user_key(number)) != Some(number) {
                let at = self.bucket_at(number) as u64;
                return Err(self.file.corrupt(at, "bucket: the hashes of its key do not lead to it"));
            }
        }
        Ok(())
    }
    fn memory_usage(&self) -> usize {
        let sorted = self.sorted.get().map_or(0, |sorted| size_of_val(&**sorted));
        size_of::<Self>() + self.file.memory_usage() + sorted
    }
}
