//! Builds cuckoo tables.

use super::{
    BLOCK_SIZE, CuckooOptions, EMPTY_KEY, HASH_TABLE_SIZE, Hashing, IDENTITY_AS_FIRST_HASH, IS_LAST_LEVEL,
    MAGIC, MAX_HASHES, NUM_HASH_FUNC, USE_MODULE_HASH, USER_KEY_LENGTH, VALUE_LENGTH,
};
use crate::builder::{BuiltTable, WrittenFile};
use crate::flat::{FlatBuilder, FlatWriter, Totals};
use crate::options::BuildOptions;
use crate::properties::TableProperties;
use ironstone_base::internal_key::{TRAILER_LEN, pack_trailer};
use ironstone_base::{Error, InternalKey, Result, SequenceNumber, ValueType};
use std::path::Path;

/// What fills the value of a tombstone, and of an empty bucket.
const FILLER: u8 = b'a';
const EMPTY: u32 = u32::MAX;
/// More entries than this have no place.
const MAX_ENTRIES: usize = i32::MAX as usize - 1;

struct CuckooBuilder {
    options: BuildOptions,
    cuckoo: CuckooOptions,
    writer: FlatWriter,
    totals: Totals,
    /// Internal keys, one after the other.
    keys: Vec<u8>,
    key_len: usize,
    /// Values, one after the other.
    values: Vec<u8>,
    /// `None` before the first value.
    value_len: Option<usize>,
    /// Which value each entry has; `EMPTY` for tombstones.
    value_numbers: Vec<u32>,
    /// The entries are values with sequence number 0, all of them.
    without_trailers: bool,
    /// The failure that ended the building.
    failed: Option<Error>,
}

/// A builder of a cuckoo table at the end of `writer`, which must be empty.
pub(crate) fn builder(options: BuildOptions, writer: FlatWriter) -> Result<Box<dyn FlatBuilder>> {
    let totals = Totals::new(&options, writer.path());
    if options.table.comparator.different_bytes_may_be_equal() {
        return Err(
            totals.unsupported("a cuckoo table by a comparator to which different bytes may be equal")
        );
    }
    let cuckoo = options.table.cuckoo;
    if !(cuckoo.hash_table_ratio > 0.0 && cuckoo.hash_table_ratio <= 1.0) {
        return Err(totals.refuse("hash_table_ratio of a cuckoo table has to be above 0, and at most 1"));
    }
    Ok(Box::new(CuckooBuilder {
        cuckoo,
        totals,
        writer,
        keys: Vec::new(),
        key_len: 0,
        values: Vec::new(),
        value_len: None,
        value_numbers: Vec::new(),
        without_trailers: true,
        failed: None,
        options,
    }))
}

impl CuckooBuilder {
    fn put(&mut self, key: InternalKey<'_>, value: &[u8]) -> Result<()> {
        self.check(key, value)?;
        let value_type = self.totals.add(key, value)?;
        self.keys.extend_from_slice(key.as_bytes());
        self.key_len = key.as_bytes().len();
        if value_type == ValueType::Deletion {
            self.value_numbers.push(EMPTY);
        } else {
            self.value_len = Some(value.len());
            let number = self.value_numbers.len() as u32 - self.totals.properties.num_deletions as u32;
            self.values.extend_from_slice(value);
            self.value_numbers.push(number);
        }
        self.without_trailers &= key.trailer() == pack_trailer(SequenceNumber::ZERO, ValueType::Value);
        self.totals.collect(key, value, value_type, || (self.keys.len() + self.values.len()) as u64);
        Ok(())
    }

    /// Whether the format has a place for the entry.
    fn check(&self, key: InternalKey<'_>, value: &[u8]) -> Result<()> {
        let value_type = key.value_type().map_err(|bad| self.totals.refuse(bad.0))?;
        let unsupported = |what: String| Err(self.totals.unsupported(what));
        if !matches!(value_type, ValueType::Value | ValueType::Deletion | ValueType::RangeDeletion) {
            return unsupported(format!("an entry of type {value_type:?} in a cuckoo table"));
        }
        if self.value_numbers.len() >= MAX_ENTRIES {
            return unsupported("2^31 entries in a cuckoo table".to_owned());
        }
        let (len, user_key) = (key.as_bytes().len(), key.user_key());
        if self.key_len > 0 && len != self.key_len {
            let known = self.key_len - TRAILER_LEN;
            return unsupported(format!(
                "a key of {} bytes in a cuckoo table with keys of {known}",
                user_key.len()
            ));
        }
        if user_key.is_empty() || self.cuckoo.identity_as_first_hash && user_key.len() < 8 {
            return unsupported(format!("a key of {} bytes in a cuckoo table", user_key.len()));
        }
        if let Some(known) = self.value_len
            && value_type == ValueType::Value
            && value.len() != known
        {
            return unsupported(format!(
                "a value of {} bytes in a cuckoo table with values of {known}",
                value.len()
            ));
        }
        if self.totals.largest.as_ref().is_some_and(|last| last.user_key() == user_key) {
            return unsupported("two entries of one key in a cuckoo table".to_owned());
        }
        Ok(())
    }

    fn user_key_len(&self) -> usize {
        self.key_len.saturating_sub(TRAILER_LEN)
    }
    fn user_key(&self, number: u32) -> &[u8] {
        &self.keys[number as usize * self.key_len..][..self.user_key_len()]
    }
    /// The length of keys in buckets.
    fn stored_key_len(&self) -> usize {
        if self.without_trailers { self.user_key_len() } else { self.key_len }
    }
    fn bucket_len(&self) -> usize {
        self.stored_key_len() + self.value_len.unwrap_or(0)
    }

    fn table_size(&self, entries: u64) -> u64 {
        let wanted = entries as f64 / self.cuckoo.hash_table_ratio;
        if self.cuckoo.use_module_hash {
            return wanted as u64;
        }
        let mut size = 2u64;
        while (size as f64) < wanted {
            size *= 2;
        }
        size
    }

    /// Which entry each bucket has, and how many hashes a key may be looked up by.
    fn place_all(&self, hashing: Hashing) -> Result<(Vec<u32>, u32)> {
        let block = u64::from(self.cuckoo.cuckoo_block_size.max(1));
        let mut buckets = vec![EMPTY; (hashing.table_size + block - 1) as usize];
        // Marks what a search for room has looked at: with its number.
        let mut seen = vec![0u32; buckets.len()];
        let mut hashes = 2;
        for entry in 0..self.value_numbers.len() as u32 {
            let user_key = self.user_key(entry);
            let mut places = Vec::new();
            let in_block = |hash: u32| {
                let first = hashing.bucket(user_key, hash);
                first..first + block
            };
            let mut free = None;
            for hash in 0..hashes {
                free = in_block(hash).find(|&at| buckets[at as usize] == EMPTY);
                if free.is_some() {
                    break;
                }
                places.extend(in_block(hash));
            }
            while free.is_none() {
                free = self.make_room(hashing, hashes, &places, entry + 1, &mut buckets, &mut seen);
                if free.is_some() {
                    break;
                }
                if hashes >= MAX_HASHES {
                    return Err(self
                        .totals
                        .unsupported("too many keys of a cuckoo table share their hashes"));
                }
                free = in_block(hashes).find(|&at| buckets[at as usize] == EMPTY);
                places.extend(in_block(hashes));
                hashes += 1;
                seen.fill(0); // The search begins anew.
            }
            let at = free.expect("the loop ends with one");
            buckets[at as usize] = entry;
        }
        Ok((buckets, hashes))
    }

    /// Moves entries to other buckets of theirs so that one of `places` becomes free; answers which.
    fn make_room(
        &self,
        hashing: Hashing,
        hashes: u32,
        places: &[u64],
        search: u32,
        buckets: &mut [u32],
        seen: &mut [u32],
    ) -> Option<u64> {
        struct Node {
            at: u64,
            depth: u32,
            parent: usize,
        }
        let block = u64::from(self.cuckoo.cuckoo_block_size.max(1));
        let mut tree: Vec<Node> = Vec::new();
        for &at in places {
            if std::mem::replace(&mut seen[at as usize], search) != search {
                tree.push(Node { at, depth: 0, parent: usize::MAX });
            }
        }
        let mut next = 0;
        while let Some(&Node { at, depth, .. }) = tree.get(next) {
            if depth >= self.cuckoo.max_search_depth {
                return None;
            }
            for hash in 0..hashes {
                let first = hashing.bucket(self.user_key(buckets[at as usize]), hash);
                for child in first..first + block {
                    if std::mem::replace(&mut seen[child as usize], search) == search {
                        continue;
                    }
                    tree.push(Node { at: child, depth: depth + 1, parent: next });
                    if buckets[child as usize] == EMPTY {
                        return Some(move_along(
                            &tree.iter().map(|node| (node.at, node.parent)).collect::<Vec<_>>(),
                            buckets,
                        ));
                    }
                }
            }
            next += 1;
        }
        None
    }

    fn complete_properties(&mut self, hashing: Hashing, hashes: u32, buckets: u64, unused: &[u8]) {
        let entries = self.value_numbers.len() as u64;
        let (key_len, value_len) = (self.stored_key_len() as u64, self.value_len.unwrap_or(0) as u64);
        let (user_key_len, without_trailers) = (self.user_key_len() as u32, self.without_trailers);
        let cuckoo = self.cuckoo;
        let properties = &mut self.totals.properties;
        properties.fixed_key_len = key_len;
        properties.raw_key_size = entries * key_len;
        properties.raw_value_size = entries * value_len;
        properties.data_size = buckets * (key_len + value_len);
        properties.uncompressed_data_size = properties.data_size;
        properties.tail_start_offset = properties.data_size;
        let mut set = |name: &str, value: &[u8]| {
            properties.user_collected.insert(name.to_owned(), value.to_vec());
        };
        set(VALUE_LENGTH, &value_len.to_le_bytes());
        set(EMPTY_KEY, unused);
        set(NUM_HASH_FUNC, &hashes.to_le_bytes());
        set(HASH_TABLE_SIZE, &hashing.table_size.to_le_bytes());
        set(IS_LAST_LEVEL, &[u8::from(without_trailers)]);
        set(BLOCK_SIZE, &cuckoo.cuckoo_block_size.max(1).to_le_bytes());
        set(IDENTITY_AS_FIRST_HASH, &[u8::from(cuckoo.identity_as_first_hash)]);
        set(USE_MODULE_HASH, &[u8::from(cuckoo.use_module_hash)]);
        set(USER_KEY_LENGTH, &user_key_len.to_le_bytes());
    }

    /// The key of empty buckets: one that no entry has.
    fn unused_key(&self) -> Result<Vec<u8>> {
        let keys = || (0..self.value_numbers.len() as u32).map(|number| self.user_key(number));
        let (Some(smallest), Some(largest)) = (keys().min(), keys().max()) else { return Ok(Vec::new()) };
        let mut unused = below(smallest).or_else(|| above(largest)).ok_or_else(|| {
            self.totals.unsupported("a cuckoo table in which no key is left over for empty buckets")
        })?;
        if !self.without_trailers {
            unused.extend_from_slice(&pack_trailer(SequenceNumber::ZERO, ValueType::Value).to_le_bytes());
        }
        Ok(unused)
    }

    fn write_buckets(&mut self, buckets: &[u32], unused: &[u8]) -> Result<()> {
        let (key_len, value_len) = (self.stored_key_len(), self.value_len.unwrap_or(0));
        let statistics = self.options.table.statistics.clone();
        for &entry in buckets {
            let out = self.writer.buffer();
            let value = match entry {
                EMPTY => {
                    out.extend_from_slice(unused);
                    EMPTY
                }
                entry => {
                    out.extend_from_slice(&self.keys[entry as usize * self.key_len..][..key_len]);
                    self.value_numbers[entry as usize]
                }
            };
            match value {
                EMPTY => out.resize(out.len() + value_len, FILLER),
                number => out.extend_from_slice(&self.values[number as usize * value_len..][..value_len]),
            }
            self.writer.pass_on(statistics.as_deref())?;
        }
        Ok(())
    }
}

/// Moves each entry on the way to the last node, which is empty, one node further; answers the bucket that is free then.
fn move_along(tree: &[(u64, usize)], buckets: &mut [u32]) -> u64 {
    let mut node = tree.len() - 1;
    loop {
        let (at, parent) = tree[node];
        if parent == usize::MAX {
            return at;
        }
        buckets[at as usize] = buckets[tree[parent].0 as usize];
        node = parent;
    }
}

/// A key of the same length that sorts before `key` by its bytes.
fn below(key: &[u8]) -> Option<Vec<u8>> {
    let mut below = key.to_vec();
    for at in (0..key.len()).rev() {
        below[at] = below[at].wrapping_sub(1);
        if *below < *key {
            return Some(below);
        }
    }
    None
}

/// A key of the same length that sorts after `key` by its bytes.
fn above(key: &[u8]) -> Option<Vec<u8>> {
    let mut above = key.to_vec();
    for at in (0..key.len()).rev() {
        above[at] = above[at].wrapping_add(1);
        if *above > *key {
            return Some(above);
        }
    }
    None
}

impl FlatBuilder for CuckooBuilder {
    fn add(&mut self, key: InternalKey<'_>, value: &[u8]) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.put(key, value).inspect_err(|error| self.failed = Some(error.clone()))
    }
    /// Nothing is written before all entries are there: the same as what is expected.
    fn file_size(&self) -> u64 {
        self.estimated_file_size()
    }
    fn estimated_file_size(&self) -> u64 {
        let entries = self.value_numbers.len() as u64;
        if entries == 0 { 0 } else { self.table_size(entries + 1) * self.bucket_len() as u64 }
    }
    fn properties(&self) -> &TableProperties {
        &self.totals.properties
    }
    fn path(&self) -> &Path {
        self.writer.path()
    }

    fn finish(mut self: Box<Self>) -> Result<(BuiltTable, WrittenFile)> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let entries = self.value_numbers.len() as u64;
        self.without_trailers &= entries > 0;
        let hashing = Hashing {
            table_size: self.table_size(entries),
            identity_first: self.cuckoo.identity_as_first_hash,
            by_modulo: self.cuckoo.use_module_hash,
        };
        let (buckets, hashes) = if entries == 0 { (Vec::new(), 2) } else { self.place_all(hashing)? };
        let unused = self.unused_key()?;
        self.write_buckets(&buckets, &unused)?;
        self.complete_properties(hashing, hashes, buckets.len() as u64, &unused);
        let Self { writer, totals, options, .. } = *self;
        writer.finish(MAGIC, totals, &options)
    }
    fn abandon(self: Box<Self>) {
        self.writer.abandon();
    }
}
