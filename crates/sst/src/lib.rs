//! Tables (SST files) in RocksDB's formats: builders and readers.
//!
//! [`TableBuilder`] takes entries in order and writes a file; [`TableReader`] opens one, answers point
//! reads with values that stay in their block ([`PinnedBytes`]), and hands out [`TableIter`]s.
//! Format reference: docs/format/sst.md.
#![forbid(unsafe_code)]

pub mod block;
pub mod block_builder;
pub mod block_trace;
mod block_warmer;
pub mod builder;
mod cache_usage;
pub mod cached_block;
pub mod collector;
pub mod cuckoo;
mod demand;
pub mod disk_share;
pub mod file_checksum;
pub mod filter;
pub mod filter_block;
mod flat;
pub mod flush_block_policy;
pub mod footer;
pub mod handle;
pub mod index;
mod index_builder;
mod limited_file;
mod lsm_info;
mod metaindex;
pub mod options;
pub mod persistent_cache;
pub mod plain;
mod prefetch;
pub mod properties;
mod readahead;
pub mod reader;
pub mod sim_cache;
pub mod table;
mod table_iter;
mod timed_file;
pub mod unique_id;

pub use block_warmer::{PrepopulateBlockCache, WarmCache};
pub use builder::{BuiltTable, WrittenFile};
pub use cache_usage::CacheUsageOptions;
pub use cached_block::{BlockCache, CachedBlock, PinnedBytes};
pub use collector::{
    Collected, CollectedBlock, CollectedEntry, CollectorContext, CompactOnDeletionCollectorFactory,
    EntryKind, TablePropertiesCollector, TablePropertiesCollectorFactory,
};
pub use cuckoo::CuckooOptions;
pub use demand::Demand;
pub use file_checksum::{
    FileChecksum, FileChecksumContext, FileChecksumGenCrc32cFactory, FileChecksumGenFactory,
    FileChecksumGenerator,
};
pub use filter::{FilterBuilder, FilterKind, FilterPolicy, FilterReader};
pub use filter_block::{KeyHash, PointTarget};
pub use flush_block_policy::{
    FLUSH_BLOCK_BY_SIZE, FlushBlockContext, FlushBlockEveryKeyPolicyFactory, FlushBlockPolicy,
    FlushBlockPolicyFactory, OpenBlock,
};
pub use ironstone_cache::Priority as CachePriority;
pub use ironstone_compress::{CompressionKind, CompressionOptions};
pub use lsm_info::LsmInfoAtCreation;
pub use metaindex::MetaBlock;
pub use options::{
    BuildOptions, DataBlockIndexType, IndexShortening, IndexType, MetadataPinning, OpenOptions, PinningTier,
    ReadContext, ReadLimits, ReadTier, TableFilter, TableOptions, TableReadOptions,
};
pub use persistent_cache::{PersistentCache, PersistentCacheConfig, PersistentKey, new_persistent_cache};
pub use plain::{PlainEncoding, PlainOptions};
pub use properties::TableProperties;
pub use reader::{LikelyBlock, MissingBlock, PendingGet, TableEntry, read_blocks};
pub use sim_cache::SimCache;
pub use table::{OpenBuffers, TableBuilder, TableFormat, TableIter, TableReader};
