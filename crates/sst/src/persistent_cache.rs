//! Blocks kept on another medium than the tables: below the block cache, above files that are slow to read.
//!
//! ```text
//! read -> block cache -> persistent cache -> table file
//!              ^                ^                |
//!              '----------------'----------------'  what was read and checked enters both
//! ```
//! Whatever the cache does, a read answers what the table file holds: an error of the cache is a miss, and what it answers is held
//! to the block's own checksum (compressed) or to that of the cache's record.

mod file_tier;

pub use file_tier::{PersistentCacheConfig, new_persistent_cache};

use ironstone_base::Result;
use std::collections::BTreeMap;

/// Names a block: 8 bytes for the table, 8 for its place there.
pub type PersistentKey = [u8; 16];

/// Keeps blocks, for all tables that have it (the option `persistent_cache`). Names are RocksDB's.
///
/// Methods are called on the threads that read, after the block cache had a miss.
pub trait PersistentCache: Send + Sync {
    /// Keeps `data` under `key`, or does not: where there is no room, or after a failure. What is there already stays.
    fn insert(&self, key: &PersistentKey, data: &[u8]) -> Result<()>;
    /// What was inserted under `key`, if it is there still.
    fn lookup(&self, key: &PersistentKey) -> Result<Option<Vec<u8>>>;
    /// Whether blocks are kept as the table file has them, with their trailers. Otherwise as they are read, without.
    fn is_compressed(&self) -> bool;
    /// Counts by name, for each tier, the uppermost first.
    fn stats(&self) -> Vec<BTreeMap<String, f64>>;
    /// The options in words, for LOG.
    fn printable_options(&self) -> String;
    /// A number for a table that has none of its own, which no other gets from this cache.
    fn new_id(&self) -> u64;
}
