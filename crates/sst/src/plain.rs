//! Plain tables: rows one after the other, and a hash index over the prefixes of their keys. For data that memory holds.
//!
//! ```text
//! row     key | trailer | value size varint32 | value
//! key     as the encoding says, see `row`
//! trailer 8 bytes as in every internal key, or the one byte ff for a value with sequence number 0
//!
//! meta blocks, see `flat`
//! kBloomBlock            bits over prefixes, or over user keys without an extractor; see `bloom`
//! PlainTableIndexBlock   from prefixes to rows, see `index`
//! rocksdb.properties
//! ```
//! The first two are there only if the writer was told to store them (`store_index_in_file`); otherwise whoever opens the
//! table makes them. There are no checksums but that of the whole file, if the database keeps those. So what can be checked
//! without them is checked by reading all rows when the table is opened without a stored index, and by
//! `TableReader::verify_checksums`: that rows end where others begin, that keys are in order, and how many there are.
//! Format reference: docs/format/flat-tables.md, "Plain tables".

mod bloom;
mod builder;
mod index;
mod iter;
mod reader;
mod row;
#[cfg(test)]
mod tests;

pub(crate) use builder::builder;
pub(crate) use reader::open;

use ironstone_base::SliceTransform;
use ironstone_base::hash::hash32;
use ironstone_base::sync::Arc;

/// Ends plain tables with a footer of version 1 and later.
pub const MAGIC: u64 = 0x8242_2296_63bf_9564;
/// Ends plain tables with a footer of version 0: those that are written.
pub const LEGACY_MAGIC: u64 = 0x4f34_18eb_7a8f_13b8;

/// A plain table is at most so long: offsets have 31 bits.
pub(crate) const MAX_FILE_LEN: u64 = (1 << 31) - 1;

const BLOOM_BLOCK: &str = "kBloomBlock";
const INDEX_BLOCK: &str = "PlainTableIndexBlock";
/// The name of the property with the encoding of keys, as fixed32.
const ENCODING_TYPE: &str = "rocksdb.plain.table.encoding.type";
/// The name of the property that says that filter and index may be stored: `1`.
const BLOOM_VERSION: &str = "rocksdb.plain.table.bloom.version";
/// The name of the property with how many cache lines the filter has, as varint32; 0: its bits are spread over all of it.
const BLOOM_BLOCK_COUNT: &str = "rocksdb.plain.table.bloom.numblocks";
/// What prefixes and keys are hashed with.
const HASH_SEED: u32 = 397;

/// How keys are stored. Numbers are RocksDB's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum PlainEncoding {
    /// Whole.
    #[default]
    Plain = 0,
    /// Without the prefix, where that is the same as in the key before.
    Prefix = 1,
}

/// What RocksDB calls `PlainTableOptions`. Defaults are RocksDB's.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PlainOptions {
    /// The length of all user keys, which is then not stored with each; 0: it varies.
    pub user_key_len: u32,
    /// Bits of the filter for each prefix, or for each key without an extractor; 0: no filter.
    pub bloom_bits_per_key: u32,
    /// Prefixes per bucket of the index; 0: one bucket for all.
    pub hash_table_ratio: f64,
    /// Every so many rows of a prefix one is in the index, and stored whole; 0: every row is in the index.
    pub index_sparseness: usize,
    /// How keys are stored.
    pub encoding: PlainEncoding,
    /// Tables are opened without index and filter: for those who walk them once.
    pub full_scan_mode: bool,
    /// Index and filter are written to the file.
    pub store_index_in_file: bool,
}

impl Default for PlainOptions {
    fn default() -> Self {
        Self {
            user_key_len: 0,
            bloom_bits_per_key: 10,
            hash_table_ratio: 0.75,
            index_sparseness: 16,
            encoding: PlainEncoding::Plain,
            full_scan_mode: false,
            store_index_in_file: false,
        }
    }
}

/// The prefix that `key` is looked up by: that of `extractor`, or the key itself if it has none; empty without an extractor.
fn prefix_of<'a>(extractor: Option<&Arc<dyn SliceTransform>>, key: &'a [u8]) -> &'a [u8] {
    extractor.map_or(&[], |extractor| extractor.transform(key).unwrap_or(key))
}

fn hash(bytes: &[u8]) -> u32 {
    hash32(bytes, HASH_SEED)
}
