//! Builds blocks. Their layout is described in [`crate::block`].

use crate::block::{
    BUCKET_COLLISION, BUCKET_EMPTY, BUCKET_HASH_SEED, HASH_INDEX_BIT, MAX_HASHED_RESTART, common_len,
};
use ironstone_base::coding::varint_len;
use ironstone_base::hash::hash32;

/// Blocks larger than this get no hash index: its readers use 16-bit offsets.
const MAX_HASHED_BLOCK_LEN: usize = 1 << 16;
/// Bytes of the restart point that every block has, and of the footer.
const EMPTY_LEN: usize = 8;

/// Builds one block after another.
pub struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    restart_interval: u32,
    /// Entries since the last restart point.
    in_interval: u32,
    use_delta_encoding: bool,
    last_key: Vec<u8>,
    hash_index: Option<HashIndexBuilder>,
}

impl BlockBuilder {
    /// A builder that stores every `restart_interval`th key whole, and all of them without
    /// `use_delta_encoding`.
    pub fn new(restart_interval: u32, use_delta_encoding: bool) -> Self {
        Self {
            bytes: Vec::new(),
            restarts: vec![0],
            restart_interval: restart_interval.max(1),
            in_interval: 0,
            use_delta_encoding,
            last_key: Vec::new(),
            hash_index: None,
        }
    }
    /// Adds a hash index with `keys_per_bucket` to each block that is small enough for one.
    #[must_use]
    pub fn with_hash_index(mut self, keys_per_bucket: f64) -> Self {
        let ratio = if keys_per_bucket > 0.0 { keys_per_bucket } else { 0.75 };
        self.hash_index =
            Some(HashIndexBuilder { buckets_per_key: 1.0 / ratio, ..HashIndexBuilder::default() });
        self
    }

    /// Adds an entry. Keys come in order; key and value are smaller than 4 GiB.
    #[inline]
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        let shared = common_len(&self.last_key, key);
        self.add_matched(key, shared, value);
    }

    /// The same for a caller that knows how many bytes `key` shares with the last one.
    #[inline]
    fn add_matched(&mut self, key: &[u8], shared: usize, value: &[u8]) {
        debug_assert_eq!(shared, common_len(&self.last_key, key));
        let shared = self.begin_entry(shared);
        self.put_lengths(shared, key.len() - shared, Some(value.len()));
        self.bytes.extend_from_slice(&key[shared..]);
        self.bytes.extend_from_slice(value);
        self.end_entry(key);
    }

    /// Adds an internal key, whose user key goes into the hash index if there is one.
    pub fn add_internal(&mut self, key: &[u8], user_key_len: usize, value: &[u8]) {
        self.add_internal_matched(key, common_len(&self.last_key, key), user_key_len, value);
    }

    /// The same for a caller that knows how many bytes `key` shares with the last one.
    #[inline]
    pub fn add_internal_matched(&mut self, key: &[u8], shared: usize, user_key_len: usize, value: &[u8]) {
        self.add_matched(key, shared, value);
        if let Some(hash_index) = &mut self.hash_index {
            hash_index.add(&key[..user_key_len], self.restarts.len() - 1);
        }
    }

    /// Adds an entry of an index block that leaves out the value's length: `delta` is stored if the key
    /// shares bytes with the one before and the two blocks adjoin (`delta` is given), else `whole`.
    pub fn add_index_entry(&mut self, key: &[u8], whole: &[u8], delta: Option<&[u8]>) {
        let shared = common_len(&self.last_key, key);
        let mut shared = self.begin_entry(shared);
        if delta.is_none() {
            shared = 0; // Readers tell the forms apart by this.
        }
        self.put_lengths(shared, key.len() - shared, None);
        self.bytes.extend_from_slice(&key[shared..]);
        self.bytes.extend_from_slice(delta.filter(|_| shared > 0).unwrap_or(whole));
        self.end_entry(key);
    }

    /// Starts a new interval if it is time; answers how many of the bytes that are `shared` with the last key are left out.
    #[inline]
    fn begin_entry(&mut self, shared: usize) -> usize {
        if self.in_interval >= self.restart_interval {
            self.restarts.push(self.bytes.len() as u32);
            self.in_interval = 0;
        }
        match self.use_delta_encoding && self.in_interval > 0 {
            true => shared,
            false => 0,
        }
    }

    #[inline]
    fn put_lengths(&mut self, shared: usize, unshared: usize, value: Option<usize>) {
        if let Some(value) = value
            && (shared | unshared | value) < 0x80
        {
            return self.bytes.extend_from_slice(&[shared as u8, unshared as u8, value as u8]);
        }
        put_len(&mut self.bytes, shared);
        put_len(&mut self.bytes, unshared);
        if let Some(value) = value {
            put_len(&mut self.bytes, value);
        }
    }

    #[inline]
    fn end_entry(&mut self, key: &[u8]) {
        self.in_interval += 1;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
    }

    /// The key that was added last, also after the block was finished; empty before the first.
    #[inline]
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }
    /// Whether the block has no entry.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
    /// How long the block would be if it were finished now, without a hash index.
    #[inline]
    pub fn len(&self) -> usize {
        EMPTY_LEN - 4 + self.bytes.len() + 4 * self.restarts.len()
    }
    /// At most how long it would be with one more entry.
    #[inline]
    pub fn len_with(&self, key_len: usize, value_len: usize) -> usize {
        let restart = if self.in_interval >= self.restart_interval { 4 } else { 0 };
        let lengths = 4 + varint_len(key_len as u64) + varint_len(value_len as u64);
        self.len() + restart + lengths + key_len + value_len
    }

    /// The same with a hash index.
    pub fn len_bound_with(&self, key_len: usize, value_len: usize) -> usize {
        self.len_with(key_len, value_len) + self.hash_index.as_ref().map_or(0, HashIndexBuilder::len_with_one)
    }

    /// Completes the block and hands it out for changing in place; [`BlockBuilder::reset`] comes next.
    pub fn finish(&mut self) -> &mut Vec<u8> {
        let hashed = self
            .hash_index
            .as_ref()
            .filter(|index| index.is_usable && self.len() + index.len() <= MAX_HASHED_BLOCK_LEN);
        for restart in &self.restarts {
            self.bytes.extend_from_slice(&restart.to_le_bytes());
        }
        let mut footer = self.restarts.len() as u32;
        if let Some(index) = hashed {
            index.put(&mut self.bytes);
            footer |= HASH_INDEX_BIT;
        }
        self.bytes.extend_from_slice(&footer.to_le_bytes());
        &mut self.bytes
    }

    /// Starts the next block.
    pub fn reset(&mut self) {
        self.bytes.clear();
        self.restarts.truncate(1);
        self.in_interval = 0;
        if let Some(index) = &mut self.hash_index {
            index.reset();
        }
    }
}

#[inline]
fn put_len(dst: &mut Vec<u8>, len: usize) {
    ironstone_base::coding::put_varint32(dst, len as u32);
}

/// Maps the user keys of a block to its restart points.
#[derive(Default)]
struct HashIndexBuilder {
    buckets_per_key: f64,
    entries: Vec<(u32, u8)>,
    is_usable: bool,
}

impl HashIndexBuilder {
    fn add(&mut self, user_key: &[u8], restart: usize) {
        if self.entries.is_empty() {
            self.is_usable = true;
        }
        if restart > MAX_HASHED_RESTART {
            self.is_usable = false;
            return;
        }
        self.entries.push((hash32(user_key, BUCKET_HASH_SEED), restart as u8));
    }
    /// Odd, since the hash spreads badly over powers of two.
    fn bucket_count(&self) -> u16 {
        let wanted = self.buckets_per_key * self.entries.len() as f64;
        wanted as u16 | 1
    }
    fn len(&self) -> usize {
        usize::from(self.bucket_count()) + 2
    }
    /// At most how long it is with one more entry.
    fn len_with_one(&self) -> usize {
        self.len() + self.buckets_per_key as usize + 2
    }
    fn put(&self, dst: &mut Vec<u8>) {
        let count = self.bucket_count();
        let at = dst.len();
        dst.resize(at + usize::from(count), BUCKET_EMPTY);
        for &(hash, restart) in &self.entries {
            let bucket = &mut dst[at + (hash % u32::from(count)) as usize];
            *bucket = match *bucket {
                BUCKET_EMPTY => restart,
                same if same == restart => restart,
                _ => BUCKET_COLLISION,
            };
        }
        dst.extend_from_slice(&count.to_le_bytes());
    }
    fn reset(&mut self) {
        self.entries.clear();
        self.is_usable = false;
    }
}
