//! What a table is built with, and how it is opened and read.

use crate::block_trace::BlockCacheWatch;
use crate::block_warmer::{PrepopulateBlockCache, WarmCache};
use crate::cache_usage::CacheUsageOptions;
use crate::cached_block::BlockCache;
use crate::collector::TablePropertiesCollectorFactory;
use crate::cuckoo::CuckooOptions;
use crate::demand::Demand;
use crate::disk_share::DiskShare;
use crate::file_checksum::FileChecksumGenFactory;
use crate::filter::FilterPolicy;
use crate::flush_block_policy::FlushBlockPolicyFactory;
use crate::lsm_info::LsmInfoAtCreation;
use crate::persistent_cache::PersistentCache;
use crate::plain::PlainOptions;
use crate::properties::TableProperties;
use crate::sim_cache::SimCache;
use crate::table::TableFormat;
use ironstone_base::checksum::ChecksumKind;
use ironstone_base::statistics::LevelHistograms;
use ironstone_base::sync::Arc;
use ironstone_base::{
    ColumnFamilyId, DataInErrors, FileNumber, PrefixSeek, SequenceNumber, SliceTransform, Statistics,
    UserComparator,
};
use ironstone_compress::{CompressionKind, CompressionOptions};
use ironstone_vfs::{Clock, IoPriority, RateLimiter, SystemClock};
use std::time::Duration;

/// How a table finds the data block of a key. Numbers are RocksDB's, as stored in the property
/// `rocksdb.block.based.table.index.type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum IndexType {
    /// One block with one separator for each data block.
    #[default]
    BinarySearch = 0,
    /// [`BinarySearch`](Self::BinarySearch) plus a map from key prefixes to data blocks.
    HashSearch = 1,
    /// The index is itself cut in blocks, and a second index finds those.
    TwoLevel = 2,
    /// [`BinarySearch`](Self::BinarySearch) whose entries also carry the first key of the block, so that
    /// an iterator can put off reading it.
    BinarySearchWithFirstKey = 3,
}

impl IndexType {
    /// The index type with that number.
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::BinarySearch,
            1 => Self::HashSearch,
            2 => Self::TwoLevel,
            3 => Self::BinarySearchWithFirstKey,
            _ => return None,
        })
    }
    /// RocksDB's option name: `kBinarySearch`, ...
    pub const fn name(self) -> &'static str {
        match self {
            Self::BinarySearch => "kBinarySearch",
            Self::HashSearch => "kHashSearch",
            Self::TwoLevel => "kTwoLevelIndexSearch",
            Self::BinarySearchWithFirstKey => "kBinarySearchWithFirstKey",
        }
    }
}

/// How a data block finds a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum DataBlockIndexType {
    /// Binary search over the restart points.
    #[default]
    BinarySearch = 0,
    /// As well, a small hash table from user keys to restart points at the end of the block.
    BinarySearchAndHash = 1,
}

/// How far the index may shorten the separators between data blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum IndexShortening {
    /// Whole keys.
    None = 0,
    /// Separators are shortened, the key after the last block is not.
    #[default]
    ShortenSeparators = 1,
    /// The key after the last block is shortened too.
    ShortenSeparatorsAndSuccessor = 2,
}

/// What RocksDB calls `BlockBasedTableOptions` and its likes for other formats, plus the parts of the column family's options that
/// a table needs. Defaults are RocksDB's.
#[derive(Clone)]
pub struct TableOptions {
    /// The format to write; which can be read does not depend on it.
    pub format: TableFormat,
    /// How plain tables are written and read.
    pub plain: PlainOptions,
    /// How cuckoo tables are written.
    pub cuckoo: CuckooOptions,
    /// The order of the user keys.
    pub comparator: UserComparator,
    /// Which part of a key the prefix filter and the hash index use.
    pub prefix_extractor: Option<Arc<dyn SliceTransform>>,
    /// The size that a data block is cut at, before compression.
    pub block_size: usize,
    /// A block that is fuller than `100 - block_size_deviation` percent is closed early if the next
    /// entry would make it larger than `block_size`.
    pub block_size_deviation: u32,
    /// Says where data blocks end instead; none: their size does.
    pub flush_block_policy: Option<Arc<dyn FlushBlockPolicyFactory>>,
    /// Every so many entries of a data block the key is stored whole.
    pub block_restart_interval: u32,
    /// The same for index blocks.
    pub index_block_restart_interval: u32,
    /// The size that index and filter partitions are cut at.
    pub metadata_block_size: usize,
    /// The checksum of each block.
    pub checksum: ChecksumKind,
    /// The version of the table format to write: 2 to 7.
    pub format_version: u32,
    /// The index to write.
    pub index_type: IndexType,
    /// The search structure inside data blocks to write.
    pub data_block_index_type: DataBlockIndexType,
    /// Keys per bucket of the hash table in data blocks.
    pub data_block_hash_table_util_ratio: f64,
    /// The filter to write; which filters can be read does not depend on it.
    pub filter_policy: Option<FilterPolicy>,
    /// Put whole user keys into the filter.
    pub whole_key_filtering: bool,
    /// Cut the filter in partitions. Needs [`IndexType::TwoLevel`]; without it the filter is whole.
    pub partition_filters: bool,
    /// Let filter partitions end where they are full, and not where index partitions end.
    pub decouple_partitioned_filters: bool,
    /// Store keys as the difference to the key before.
    pub use_delta_encoding: bool,
    /// Compress index blocks too.
    pub enable_index_compression: bool,
    /// How far separators are shortened.
    pub index_shortening: IndexShortening,
    /// Size filters to what the allocator would give anyway.
    pub optimize_filters_for_memory: bool,
    /// Check each filter against its keys after it is built.
    pub detect_filter_construct_corruption: bool,
    /// Decompress each block after it was compressed, and compare.
    pub verify_compression: bool,
    /// Whether messages of errors may show keys.
    pub data_in_errors: DataInErrors,
    /// Start data blocks at multiples of the page size where they would straddle one.
    pub block_align: bool,
    /// Keep index and filter blocks in the block cache, where they can be evicted, and not in the table.
    pub cache_index_and_filter_blocks: bool,
    /// Insert index and filter blocks with high priority.
    pub cache_index_and_filter_blocks_with_high_priority: bool,
    /// Of which tables such blocks are held in the cache while the table is open.
    pub pinning: MetadataPinning,
    /// A table of level 0 of so many bytes at most may come from a flush: [`PinningTier::FlushedAndSimilar`].
    pub max_flushed_table_size: u64,
    /// Put blocks of new tables there as they are written ([`BuildOptions::warm_cache`]).
    pub prepopulate_block_cache: PrepopulateBlockCache,
    /// Where uncompressed blocks are kept.
    pub block_cache: Option<Arc<BlockCache>>,
    /// Told of all that the cache is asked for.
    pub sim_cache: Option<Arc<SimCache>>,
    /// Where blocks are kept below the block cache.
    pub persistent_cache: Option<Arc<dyn PersistentCache>>,
    /// Told of it too, for traces. Who sets it sets it for all tables of a database.
    pub watch: Option<Arc<dyn BlockCacheWatch>>,
    /// Where reads of the file are noted that wait for the disk, for compactions to leave them their share of it. Who sets it
    /// sets it for all tables of a database.
    pub disk_share: Option<Arc<DiskShare>>,
    /// Do without a cache, whatever `block_cache` says.
    pub no_block_cache: bool,
    /// Not 0: blocks in memory have checksums, which every read of one compares. Entries of indexes have so many bytes: 1,
    /// 2, 4 or 8; a data block has one checksum of 8 bytes.
    pub block_protection_bytes_per_key: u8,
    /// What automatic readahead grows to.
    pub max_auto_readahead_size: usize,
    /// What automatic readahead starts with.
    pub initial_auto_readahead_size: usize,
    /// How many blocks are read one by one before automatic readahead starts.
    pub num_file_reads_for_auto_readahead: u64,
    /// The largest block that will be allocated when reading; what a damaged size field asks for
    /// beyond it is corruption.
    pub max_block_size: usize,
    /// By which deadlines are told.
    pub clock: Arc<dyn Clock>,
    /// Paces reads of files that ask for it ([`ReadContext::rate_limiter_priority`]), if its mode covers reads.
    pub rate_limiter: Option<Arc<dyn RateLimiter>>,
    /// Where to count.
    pub statistics: Option<Arc<Statistics>>,
    /// What counts towards the block cache beside its blocks.
    pub cache_usage: CacheUsageOptions,
    /// With statistics: a bit for so many bytes of each data block says whether they were looked at. 0: nothing is counted.
    pub read_amp_bytes_per_bit: u32,
    /// Where to note how long reads of the file take, in microseconds.
    pub read_latencies: Option<Arc<LevelHistograms>>,
    /// The deepest level that there is: seeks on it are counted apart.
    pub last_level: u32,
    /// Levels say how old the data of a table is. Not so with FIFO compaction: filters know of no level then.
    pub has_levels: bool,
    /// One data block in so many is compressed by a fast and by a slow codec, to tell what these would make of the data. 0: none.
    pub sample_for_compression: u64,
    /// What makes collectors of properties, one of each for every table that is built.
    pub collectors: Vec<Arc<dyn TablePropertiesCollectorFactory>>,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            format: TableFormat::BlockBased,
            plain: PlainOptions::default(),
            cuckoo: CuckooOptions::default(),
            comparator: UserComparator::Bytewise,
            prefix_extractor: None,
            block_size: 4096,
            block_size_deviation: 10,
            flush_block_policy: None,
            block_restart_interval: 16,
            index_block_restart_interval: 1,
            metadata_block_size: 4096,
            checksum: ChecksumKind::Xxh3,
            format_version: 5,
            index_type: IndexType::BinarySearch,
            data_block_index_type: DataBlockIndexType::BinarySearch,
            data_block_hash_table_util_ratio: 0.75,
            filter_policy: None,
            whole_key_filtering: true,
            partition_filters: false,
            decouple_partitioned_filters: false,
            use_delta_encoding: true,
            enable_index_compression: true,
            index_shortening: IndexShortening::ShortenSeparators,
            optimize_filters_for_memory: true,
            detect_filter_construct_corruption: false,
            verify_compression: false,
            data_in_errors: DataInErrors(false),
            block_align: false,
            cache_index_and_filter_blocks: false,
            cache_index_and_filter_blocks_with_high_priority: true,
            pinning: MetadataPinning::default(),
            max_flushed_table_size: u64::MAX,
            prepopulate_block_cache: PrepopulateBlockCache::Disable,
            block_cache: None,
            sim_cache: None,
            persistent_cache: None,
            watch: None,
            disk_share: None,
            no_block_cache: false,
            block_protection_bytes_per_key: 0,
            max_auto_readahead_size: 256 << 10,
            initial_auto_readahead_size: 8 << 10,
            num_file_reads_for_auto_readahead: 2,
            max_block_size: u32::MAX as usize,
            clock: Arc::new(SystemClock::new()),
            rate_limiter: None,
            statistics: None,
            cache_usage: CacheUsageOptions::default(),
            read_amp_bytes_per_bit: 0,
            read_latencies: None,
            last_level: 6,
            has_levels: true,
            sample_for_compression: 0,
            collectors: Vec::new(),
        }
    }
}

/// What one table is built with, and the circumstances that go into its properties.
#[derive(Clone)]
pub struct BuildOptions {
    /// How to build.
    pub table: Arc<TableOptions>,
    /// The codec of the data blocks.
    pub compression: CompressionKind,
    /// Its parameters.
    pub compression_options: CompressionOptions,
    /// The column family that the table belongs to.
    pub column_family_id: ColumnFamilyId,
    /// Its name.
    pub column_family_name: String,
    /// The level that the table goes to, 0 for a flush; `None` outside of a database. Collectors are told, and filters may
    /// depend on it.
    pub level: Option<u32>,
    /// The table is a flush of an open database, which filters take for a level before 0
    /// ([`FilterContext::level`](crate::filter::FilterContext::level)). What recovery writes is none.
    pub is_flush: bool,
    /// No table below holds keys of its range. The table says so, with `level`, to whoever looks at its properties.
    pub bottommost: bool,
    /// Put the blocks into the block cache as they are written. Index and filter blocks only where readers look for them there
    /// ([`TableOptions::cache_index_and_filter_blocks`]).
    pub warm_cache: Option<WarmCache>,
    /// Leave the filter out, as `optimize_filters_for_hits` does at the bottom.
    pub skip_filters: bool,
    /// Goes into the properties; with the two below it makes the table's unique id.
    pub db_id: String,
    /// Names one opening of the database.
    pub db_session_id: String,
    /// Names the machine.
    pub db_host_id: String,
    /// The number that the file is created under.
    pub file_number: FileNumber,
    /// When the oldest data of the table was first written to a table, in seconds since 1970.
    pub creation_time: u64,
    /// When the oldest key was written, in seconds since 1970; 0 if unknown.
    pub oldest_key_time: u64,
    /// When the newest key was written, in seconds since 1970; 0 if unknown.
    pub newest_key_time: u64,
    /// When this file was made, in seconds since 1970.
    pub file_creation_time: u64,
    /// The size that the compaction aims at, for the preset dictionary's sample buffer; 0 if unknown.
    pub target_file_size: u64,
    /// Properties of the application's own, added to the table's.
    pub user_properties: Vec<(String, Vec<u8>)>,
    /// The name that the merge operator goes by; `nullptr` if there is none.
    pub merge_operator_name: String,
    /// Makes the checksum of the whole file, if there is to be one.
    pub file_checksum: Option<Arc<dyn FileChecksumGenFactory>>,
    /// Checksums go with the data to the file ([`WritableFile::append_checked`](ironstone_vfs::WritableFile::append_checked)).
    pub checksum_handoff: bool,
}

impl BuildOptions {
    /// Uncompressed, default column family, no level, everything else empty.
    pub fn new(table: Arc<TableOptions>) -> Self {
        Self {
            table,
            compression: CompressionKind::None,
            compression_options: CompressionOptions::default(),
            column_family_id: ColumnFamilyId::DEFAULT,
            column_family_name: "default".to_owned(),
            level: None,
            is_flush: false,
            bottommost: false,
            warm_cache: None,
            skip_filters: false,
            db_id: String::new(),
            db_session_id: String::new(),
            db_host_id: String::new(),
            file_number: FileNumber(0),
            creation_time: 0,
            oldest_key_time: 0,
            newest_key_time: 0,
            file_creation_time: 0,
            target_file_size: 0,
            user_properties: Vec::new(),
            merge_operator_name: "nullptr".to_owned(),
            file_checksum: None,
            checksum_handoff: false,
        }
    }
}

impl BuildOptions {
    /// The level as filters count it.
    pub(crate) fn filter_level(&self) -> Option<i32> {
        match self.is_flush {
            _ if !self.table.has_levels => None,
            true => Some(-1),
            false => self.level.and_then(|level| i32::try_from(level).ok()),
        }
    }
    /// What the table says of its place.
    pub(crate) fn lsm_info(&self) -> LsmInfoAtCreation {
        match self.level {
            None => LsmInfoAtCreation::NotApplicable,
            level => LsmInfoAtCreation::Applicable { level, is_bottommost: self.bottommost },
        }
    }
}

/// Of which tables the index and filter blocks are held in the block cache. Names are RocksDB's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PinningTier {
    /// Of none.
    None,
    /// Of those that a flush may have made: tables of level 0 of at most one and a half times `write_buffer_size`, whoever
    /// made them.
    FlushedAndSimilar,
    /// Of all.
    All,
}

/// Which index and filter blocks are held in the block cache while a table is open, by what they are. Without
/// `cache_index_and_filter_blocks` all of them are in the table's own memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetadataPinning {
    /// The top level of those that are partitioned.
    pub top_level: PinningTier,
    /// Their partitions.
    pub partitions: PinningTier,
    /// Those that are not partitioned.
    pub unpartitioned: PinningTier,
}

impl Default for MetadataPinning {
    fn default() -> Self {
        let none = PinningTier::None;
        Self { top_level: PinningTier::All, partitions: none, unpartitioned: none }
    }
}

/// How a table is opened.
#[derive(Clone)]
pub struct OpenOptions {
    /// The options of the column family that it belongs to.
    pub table: Arc<TableOptions>,
    /// The level that it lies on, which decides about pinning.
    pub level: u32,
    /// The number that the file has now.
    pub file_number: FileNumber,
    /// The largest sequence number of the table, from the MANIFEST; needed for ingested files that
    /// carry no sequence numbers of their own.
    pub largest_sequence: Option<SequenceNumber>,
    /// How many bytes of the end of the file are not data blocks, from the MANIFEST: they are read in one
    /// go. 0 if unknown.
    pub tail_size: u64,
    /// Load index and filter now even if they live in the cache.
    pub prefetch_index_and_filter: bool,
    /// Do not load the filter: reads will not use it.
    pub skip_filters: bool,
    /// Only scans will read the table: pin nothing, load no filter, and leave the index to each of them.
    pub for_scans: bool,
    /// The unique id that the MANIFEST has for the file: opening another file is refused.
    pub expected_unique_id: Option<[u64; 2]>,
}

impl OpenOptions {
    /// Level 0, nothing expected.
    pub fn new(table: Arc<TableOptions>, file_number: FileNumber) -> Self {
        Self {
            table,
            level: 0,
            file_number,
            largest_sequence: None,
            tail_size: 0,
            prefetch_index_and_filter: true,
            skip_filters: false,
            for_scans: false,
            expected_unique_id: None,
        }
    }

    pub(crate) fn prefetches_metadata(&self) -> bool {
        self.prefetch_index_and_filter && !self.for_scans
    }
}

/// How far down a read may go. Numbers are RocksDB's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum ReadTier {
    /// Cache and files.
    #[default]
    All = 0,
    /// Nothing that would block: memtable and block cache. What is not there is `Incomplete`.
    BlockCache = 1,
    /// What is on disk, memtables left out. For a table the same as [`ReadTier::All`].
    Persisted = 2,
    /// Memtables only: iterators pass over tables, and what else would be looked for in one answers `Incomplete`.
    Memtable = 3,
}

/// How blocks are read for one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadContext {
    /// Check the checksum of each block that comes from the file.
    pub verify_checksums: bool,
    /// Insert the data blocks that were read into the cache.
    pub fill_cache: bool,
    /// An iterator reads its data blocks from the file though the cache has them: it is to find out what the file has.
    pub past_cache: bool,
    /// How far down to go.
    pub read_tier: ReadTier,
    /// Do not ask the filter.
    pub skip_filters: bool,
    /// How long reads of the file may take.
    pub limits: ReadLimits,
    /// Wait for [`TableOptions::rate_limiter`] before each read of the file, at this priority; `None`: do not.
    pub rate_limiter_priority: Option<IoPriority>,
}

impl ReadContext {
    /// Whether reads of the file have to heed anything.
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.limits.any() || self.rate_limiter_priority.is_some()
    }
}

impl Default for ReadContext {
    fn default() -> Self {
        Self {
            verify_checksums: true,
            fill_cache: true,
            past_cache: false,
            read_tier: ReadTier::All,
            skip_filters: false,
            limits: ReadLimits::default(),
            rate_limiter_priority: None,
        }
    }
}

/// How long reads of files may take. Default: as long as they do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadLimits {
    /// No read of a file begins from then on, and none goes on for longer where the file can tell: microseconds since 1970 by
    /// [`TableOptions::clock`]. 0: none.
    pub deadline_micros: u64,
    /// How long each read of a file may take where the file can tell, in microseconds. 0: no limit.
    pub io_timeout_micros: u64,
}

impl ReadLimits {
    /// Whether there are any.
    #[inline]
    pub fn any(self) -> bool {
        self.deadline_micros | self.io_timeout_micros != 0
    }
    /// How long a read may take that begins now; `None` if the deadline has passed. Call only if there are limits.
    pub fn timeout(self, clock: &dyn Clock) -> Option<Duration> {
        let io_timeout = match self.io_timeout_micros {
            0 => u64::MAX,
            micros => micros,
        };
        let left = match self.deadline_micros {
            0 => u64::MAX,
            deadline => deadline.checked_sub(clock.now_micros()).filter(|&left| left > 0)?,
        };
        Some(Duration::from_micros(left.min(io_timeout)))
    }
}

/// How a table is iterated.
#[derive(Clone, Default)]
pub struct TableReadOptions {
    /// How blocks are read.
    pub read: ReadContext,
    /// Read so many bytes ahead, always. 0: automatic, growing while blocks are read in order.
    pub readahead_size: usize,
    /// A user key at which the iterator may stop (it may also go on): blocks beyond are not read ahead.
    pub upper_bound: Option<Arc<[u8]>>,
    /// When the prefix filter may end a seek; none: never.
    pub prefix_seek: Option<Arc<PrefixSeek>>,
    /// Count seeks that read data, as those of users.
    pub counts_seeks: bool,
    /// Which tables to look into; none: all.
    pub table_filter: Option<TableFilter>,
    /// Learns which blocks readers wanted. Whoever reads them for a job is the last one who does.
    pub demand: Option<Arc<Demand>>,
}

/// Chooses tables by their properties.
#[derive(Clone)]
pub struct TableFilter(Arc<dyn Fn(&TableProperties) -> bool + Send + Sync>);

impl TableFilter {
    /// Those for which `takes` answers true.
    pub fn new(takes: impl Fn(&TableProperties) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(takes))
    }
    pub(crate) fn takes(&self, properties: &TableProperties) -> bool {
        (self.0)(properties)
    }
}

impl std::fmt::Debug for TableFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TableFilter")
    }
}

impl TableReadOptions {
    /// For compactions: `readahead_size` bytes at a time, nothing put into the cache.
    pub fn for_compaction(readahead_size: usize) -> Self {
        Self {
            read: ReadContext { fill_cache: false, ..ReadContext::default() },
            readahead_size,
            ..Self::default()
        }
    }
}
