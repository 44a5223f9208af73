//! How one read is done.

use crate::Snapshot;
use ironstone_sst::{ReadContext, ReadTier, TableReadOptions};

/// How one read is done. The default suits most reads.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Read as of this snapshot. `None`: as of now.
    pub snapshot: Option<Snapshot>,
    /// Check the checksum of every block that comes from a file. Default true.
    pub verify_checksums: bool,
    /// Keep the data blocks that were read in the block cache. Default true; turn it off for large scans.
    pub fill_cache: bool,
    /// How far down the read may go. Where it may not go further, it answers `Incomplete`.
    pub read_tier: ReadTier,
    /// Iterators only return keys at or after this one.
    pub iterate_lower_bound: Option<Vec<u8>>,
    /// Iterators only return keys before this one.
    pub iterate_upper_bound: Option<Vec<u8>>,
    /// Iterators read so many bytes ahead, always. 0, the default: automatic, growing while blocks are read in order.
    pub readahead_size: usize,
    /// Keep out of prefix filters: the iterator crosses from prefix to prefix. Default false.
    pub total_order_seek: bool,
    /// Iterators end where the prefix of the seek target ends. Default false.
    pub prefix_same_as_start: bool,
    /// Read the blocks of a `multi_get` at once where the system can. Default true.
    pub async_io: bool,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            snapshot: None,
            verify_checksums: true,
            fill_cache: true,
            read_tier: ReadTier::All,
            iterate_lower_bound: None,
            iterate_upper_bound: None,
            readahead_size: 0,
            total_order_seek: false,
            prefix_same_as_start: false,
            async_io: true,
        }
    }
}

impl ReadOptions {
    pub(crate) fn context(&self) -> ReadContext {
        ReadContext {
            verify_checksums: self.verify_checksums,
            fill_cache: self.fill_cache,
            read_tier: self.read_tier,
            ..ReadContext::default()
        }
    }
    pub(crate) fn table_options(&self) -> TableReadOptions {
        TableReadOptions {
            read: self.context(),
            readahead_size: self.readahead_size,
            upper_bound: self.iterate_upper_bound.clone(),
            total_order_seek: self.total_order_seek,
            prefix_same_as_start: self.prefix_same_as_start,
        }
    }
}
