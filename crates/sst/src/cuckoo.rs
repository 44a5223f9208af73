//! Cuckoo tables: a hash table of buckets of one length, each with one key and its value. A key is in one of few buckets, so a read looks
//! at few places, and seeks have to sort first. For data that memory holds, whose keys and values have one length each.
//!
//! ```text
//! bucket   key | value
//! key      internal key; the user key alone if all are values with sequence number 0
//! buckets  table size + block size - 1
//! ```
//! Hash `i` of a user key is the first of `block size` buckets in a row that it may be in; hash 0 comes first. A bucket that holds the
//! unused key is empty, and ends the search. A tombstone has a value of any bytes.
//!
//! hash 0   the first 8 bytes of the key, u64 LE, with `identity_as_first_hash`
//! hash i   MurmurHash64A with seed 816922183 * i, modulo 2^32
//! Either modulo the table size.
//!
//! There are no checksums. What can be checked is checked by the first seek, and by `TableReader::verify_checksums`.
//! Format reference: docs/format/flat-tables.md, "Cuckoo tables".

mod builder;
mod iter;
mod reader;
#[cfg(test)]
mod tests;

pub(crate) use builder::builder;
pub(crate) use reader::open;

use ironstone_base::hash::murmur64a;

/// Ends cuckoo tables.
pub const MAGIC: u64 = 0x9267_89d0_c5f1_7873;

const EMPTY_KEY: &str = "rocksdb.cuckoo.bucket.empty.key";
const NUM_HASH_FUNC: &str = "rocksdb.cuckoo.hash.num";
const HASH_TABLE_SIZE: &str = "rocksdb.cuckoo.hash.size";
const VALUE_LENGTH: &str = "rocksdb.cuckoo.value.length";
const IS_LAST_LEVEL: &str = "rocksdb.cuckoo.file.islastlevel";
const BLOCK_SIZE: &str = "rocksdb.cuckoo.hash.cuckooblocksize";
const IDENTITY_AS_FIRST_HASH: &str = "rocksdb.cuckoo.hash.identityfirst";
const USE_MODULE_HASH: &str = "rocksdb.cuckoo.hash.usemodule";
const USER_KEY_LENGTH: &str = "rocksdb.cuckoo.hash.userkeylength";

const SEED: u32 = 816_922_183;
/// No key has more hashes than this.
const MAX_HASHES: u32 = 64;

/// What RocksDB calls `CuckooTableOptions`. Defaults are RocksDB's.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CuckooOptions {
    /// Entries per bucket, at most 1: the less the larger, and the fewer places a key may be in.
    pub hash_table_ratio: f64,
    /// How many keys are moved at most to make room for one.
    pub max_search_depth: u32,
    /// So many buckets in a row are tried for each hash.
    pub cuckoo_block_size: u32,
    /// The first hash is the first 8 bytes of the key.
    pub identity_as_first_hash: bool,
    /// The table has as many buckets as it takes, and not a power of two.
    pub use_module_hash: bool,
}

impl Default for CuckooOptions {
    fn default() -> Self {
        Self {
            hash_table_ratio: 0.9,
            max_search_depth: 100,
            cuckoo_block_size: 5,
            identity_as_first_hash: false,
            use_module_hash: true,
        }
    }
}

/// How keys are hashed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Hashing {
    table_size: u64,
    identity_first: bool,
    by_modulo: bool,
}

impl Hashing {
    /// The first bucket of hash `number` of `user_key`, which has 8 bytes or more if the first hash is the identity. The
    /// table has buckets.
    fn bucket(self, user_key: &[u8], number: u32) -> u64 {
        let hash = match user_key.first_chunk::<8>() {
            Some(first) if number == 0 && self.identity_first => u64::from_le_bytes(*first),
            _ => murmur64a(user_key, SEED.wrapping_mul(number)),
        };
        if self.by_modulo { hash % self.table_size } else { hash & (self.table_size - 1) }
    }
}
