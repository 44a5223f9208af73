//! Filters: small summaries of a table's keys that answer "not here" without reading a data block.
//!
//! A full filter covers a whole table and sits in the meta block `fullfilter.<compatibility name>`; a
//! partitioned filter is a sequence of the same, found through an index in `partitionedfilter.<..>`.
//! Either way one filter is a body followed by a trailer of [`TRAILER_LEN`] bytes that says how to read
//! it, so a reader needs no policy:
//!
//! ```text
//! body      the bits, see the module of each kind
//! marker    u8     1..=127 legacy Bloom: number of probes
//!                  0xff    newer Bloom, 0xfe Ribbon
//!                  others  reserved: every key may match
//! settings  [u8; 4], meaning depends on the marker
//! ```
//!
//! A filter no longer than the trailer holds no key: nothing matches. Unknown or impossible settings
//! make every key match, which costs reads but never hides a key.
//! Format reference: docs/format/sst.md, "Filters".

mod builder;
mod false_positive_rate;
mod fast_local_bloom;
mod hashes;
mod legacy_bloom;
mod policy;
mod reader;
mod ribbon;

pub use builder::FilterBuilder;
pub use policy::{FilterContext, FilterKind, FilterPolicy};
pub use reader::FilterReader;

/// Meta block names of filters that cover a whole table start with this.
pub const FULL_FILTER_PREFIX: &str = "fullfilter.";
/// Meta block names of the top-level index over filter partitions start with this.
pub const PARTITIONED_FILTER_PREFIX: &str = "partitionedfilter.";
/// Meta block names of the filter per 2 KiB of data that LevelDB and old RocksDB wrote start with this.
/// Nobody reads them any more: a table with only such a filter is read as if it had none.
pub const OBSOLETE_FILTER_PREFIX: &str = "filter.";
/// What follows the prefix in the meta block name of every built-in filter, whatever its kind.
pub const BUILTIN_FILTER_NAME: &str = "rocksdb.BuiltinBloomFilter";

/// Bytes after the body of each filter.
pub const TRAILER_LEN: usize = 5;

/// Maps `hash` evenly to `0..range` without a division.
fn fast_range_32(hash: u32, range: u32) -> u32 {
    ((u64::from(hash) * u64::from(range)) >> 32) as u32
}

#[cfg(test)]
mod tests;
