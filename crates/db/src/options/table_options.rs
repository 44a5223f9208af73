//! Options of the tables of a column family.

use super::spec::option_struct;
use super::text::{self, OptionError};
use super::{ColumnFamilyOptions, OptionStruct};
use ironstone_base::checksum::ChecksumKind;
use ironstone_base::sync::Arc;
use ironstone_sst::{
    BlockCache, CacheUsageOptions, CuckooOptions, DataBlockIndexType, FilterPolicy, FlushBlockPolicyFactory,
    IndexShortening, IndexType, MetadataPinning, PersistentCache, PinningTier, PlainEncoding, PlainOptions,
    PrepopulateBlockCache, SimCache, TableFormat,
};

option_struct! {
    /// Options of block-based tables. Names, meanings and defaults are RocksDB's, unless it says otherwise.
    pub struct BlockBasedTableOptions, "BlockBasedTable";
    built {
        /// The size that a data block is cut at, before compression.
        block_size: usize = 4096, Mutable, V7;
        /// A block that is fuller than `100 - block_size_deviation` percent is closed early if the next
        /// entry would not fit.
        block_size_deviation: u32 = 10, Mutable, V7;
        /// Says where data blocks end instead; none: their size does.
        flush_block_policy_factory: Option<Arc<dyn FlushBlockPolicyFactory>> = None, Fixed, V7;
        /// Every so many entries of a data block the key is stored whole.
        block_restart_interval: u32 = 16, Mutable, V7;
        /// The same for index blocks.
        index_block_restart_interval: u32 = 1, Mutable, V7;
        /// The size that index and filter partitions are cut at.
        metadata_block_size: u64 = 4096, Mutable, V7;
        /// The checksum of each block.
        checksum: ChecksumKind = ChecksumKind::Xxh3, Mutable, V7;
        /// The version of the table format, 2 to 7. (RocksDB 11: 7. RocksDB 7 reads up to 5.)
        format_version: u32 = 5, Mutable, V7;
        /// The index to write.
        index_type: IndexType = IndexType::BinarySearch, Mutable, V7;
        /// The search structure inside data blocks to write.
        data_block_index_type: DataBlockIndexType = DataBlockIndexType::BinarySearch, Mutable, V7;
        /// Keys per bucket of the hash table in data blocks.
        data_block_hash_table_util_ratio: f64 = 0.75, Mutable, V7;
        /// The filter to write; which can be read does not depend on it. None is written or read where the
        /// comparator says that different bytes may be equal.
        filter_policy: Option<FilterPolicy> = None, Mutable, V7;
        /// Put whole keys into the filter.
        whole_key_filtering: bool = true, Mutable, V7;
        /// Cut the filter in partitions; needs a two-level index.
        partition_filters: bool = false, Mutable, V7;
        /// Let filter partitions end where they are full, and not where index partitions end.
        decouple_partitioned_filters: bool = true, Mutable, Later;
        /// Size filters to what the allocator would give anyway. (RocksDB 7: false.)
        optimize_filters_for_memory: bool = true, Mutable, V7;
        /// Check each filter against its keys after it is built.
        detect_filter_construct_corruption: bool = false, Mutable, V7;
        /// Store keys as the difference to the key before.
        use_delta_encoding: bool = true, Mutable, Later;
        /// Compress index blocks too.
        enable_index_compression: bool = true, Mutable, V7;
        /// How far the index may shorten keys.
        index_shortening: IndexShortening = IndexShortening::ShortenSeparators, Mutable, V7;
        /// Decompress each block after it was compressed, and compare.
        verify_compression: bool = false, Mutable, V7;
        /// Start data blocks at multiples of the page size where they would straddle one.
        block_align: bool = false, Mutable, V7;
        /// Keep index and filter blocks in the block cache, where they can be evicted.
        cache_index_and_filter_blocks: bool = false, Mutable, V7;
        /// Insert them with high priority.
        cache_index_and_filter_blocks_with_high_priority: bool = true, Mutable, V7;
        /// What `metadata_cache_options` leaves open of partitions and of what is not partitioned: `kFlushedAndSimilar` if true, else
        /// `kNone`.
        pin_l0_filter_and_index_blocks_in_cache: bool = false, Mutable, V7;
        /// What `metadata_cache_options` leaves open of the top level of partitioned ones: `kAll` if true, else `kNone`.
        pin_top_level_index_and_filter: bool = true, Mutable, V7;
        /// Of which tables they are held in the cache while the table is open.
        metadata_cache_options: MetadataCacheOptions = MetadataCacheOptions::default(), Fixed, V7;
        /// Where uncompressed blocks are kept; none: the database makes a cache of 32 MiB.
        block_cache: Option<Arc<BlockCache>> = None, Mutable, Later;
        /// Do without a cache.
        no_block_cache: bool = false, Mutable, V7;
        /// Put the blocks of new tables into the block cache as they are written, uncompressed: `kFlushOnly` those of flushes,
        /// `kFlushAndCompaction` those of compactions too, which are the first to leave again. Index and filter blocks with
        /// `cache_index_and_filter_blocks` only: others are in memory anyway. What does not fit is left out (RocksDB: with a strict
        /// limit the flush fails).
        prepopulate_block_cache: PrepopulateBlockCache = PrepopulateBlockCache::Disable, Mutable, V7;
        /// With statistics: how much of the data blocks that are read is looked at, by a bit for so many of their bytes, a power of
        /// two. 0: not counted. `rocksdb.read.amp.estimate.useful.bytes` and `rocksdb.read.amp.total.read.bytes` say it.
        read_amp_bytes_per_bit: u32 = 0, Mutable, V7;
        /// What automatic readahead grows to.
        max_auto_readahead_size: usize = 256 << 10, Mutable, V7;
        /// What automatic readahead starts with.
        initial_auto_readahead_size: usize = 8 << 10, Mutable, V7;
        /// How many blocks are read one by one before automatic readahead starts.
        num_file_reads_for_auto_readahead: u64 = 2, Mutable, V7;
    }
    rows {
        ignored("index_block_search_type", "BlockSearchType", "kBinary", Change::Mutable, Since::Later, "only the speed of reads depends on it");
        ignored("uniform_cv_threshold", "double", "-1.000000", Change::Mutable, Since::Later, "only the speed of reads depends on it");
        ignored("super_block_alignment_size", "size", "0", Change::Mutable, Since::Later, "only the speed of reads depends on it");
        ignored("super_block_alignment_space_overhead_ratio", "size", "128", Change::Mutable, Since::Later, "only the speed of reads depends on it");
        ignored("fail_if_no_udi_on_open", "bool", "false", Change::Mutable, Since::Later, "only user-defined indexes use it");
        ignored("use_udi_as_primary_index", "bool", "false", Change::Mutable, Since::Later, "only user-defined indexes use it");
        refused("user_defined_index_factory", "UserDefinedIndexFactory", &["nullptr", ""], Change::Mutable, Since::Later, "user-defined indexes");
        refused("separate_key_value_in_data_block", "bool", &["false"], Change::Mutable, Since::Later, "data blocks with keys and values apart");
        deprecated("hash_index_allow_collision", "bool");
        deprecated("index_per_partition", "uint64");
        deprecated("reserve_table_builder_memory", "bool");
        deprecated("reserve_table_reader_memory", "bool");
        deprecated("skip_table_builder_flush", "bool");
        deprecated("block_cache_compressed", "Cache");
    }
    fields {
        /// Told of all that the block cache is asked for; several column families and databases may have the same one.
        ///
        /// ```
        /// use ironstone::{BlockCache, CacheOptions, Db, Options, SimCache};
        /// use std::sync::Arc;
        ///
        /// let sized = |capacity| CacheOptions { capacity, ..CacheOptions::default() };
        /// let simulated = SimCache::new(sized(64 << 20));
        /// let mut options = Options::in_memory();
        /// options.cf.table.block_cache = Some(BlockCache::new(sized(0))); // Would 64 MiB help?
        /// options.cf.table.sim_cache = Some(Arc::clone(&simulated));
        /// let db = Db::open(&options, "/db")?;
        /// db.put(b"iron", b"Fe")?;
        /// db.flush()?;
        /// simulated.reset_counters();
        /// (0..10).try_for_each(|_| db.get(b"iron").map(drop))?;
        /// assert_eq!((simulated.misses(), simulated.hits()), (1, 9));
        /// # Ok::<_, ironstone::Error>(())
        /// ```
        sim_cache: Option<Arc<SimCache>> = None;
        /// Keeps blocks that were read on another medium, below the block cache ([`new_persistent_cache`](crate::new_persistent_cache));
        /// several column families and databases may have the same one. What reads with `fill_cache` and `verify_checksums` read
        /// from a file goes there, index and filter blocks too. Its failures are misses.
        ///
        /// ```
        /// use ironstone::{BlockCache, CacheOptions, Db, Options, PersistentCacheConfig, new_persistent_cache};
        /// use ironstone::{Statistics, statistics::Ticker};
        /// use std::sync::Arc;
        ///
        /// let statistics = Arc::new(Statistics::new());
        /// let mut options = Options::in_memory();
        /// let flash = options.db.env.clone(); // As if it were another disk.
        /// options.cf.table.persistent_cache = Some(new_persistent_cache(PersistentCacheConfig::new(flash, "/flash", 1 << 30))?);
        /// options.cf.table.block_cache = Some(BlockCache::new(CacheOptions { capacity: 0, ..CacheOptions::default() }));
        /// options.db.statistics = Some(Arc::clone(&statistics));
        /// let db = Db::open(&options, "/db")?;
        /// db.put(b"iron", b"Fe")?;
        /// db.flush()?;
        /// db.get(b"iron")?;
        /// let before = statistics.ticker(Ticker::PersistentCacheHit);
        /// db.get(b"iron")?;
        /// assert_eq!(statistics.ticker(Ticker::PersistentCacheHit), before + 1);
        /// # Ok::<_, ironstone::Error>(())
        /// ```
        persistent_cache: Option<Arc<dyn PersistentCache>> = None;
        /// What counts towards the block cache beside its blocks. Tables that are opened or begun from then on heed it. (RocksDB has no
        /// text for it either.)
        ///
        /// ```
        /// use ironstone::{BlockCache, CacheOptions, CacheUsageOptions, Db, Options};
        ///
        /// let cache = BlockCache::new(CacheOptions { capacity: 8 << 20, ..CacheOptions::default() });
        /// let mut options = Options::in_memory();
        /// options.cf.table.block_cache = Some(cache.clone());
        /// options.cf.table.cache_usage_options =
        ///     CacheUsageOptions { file_metadata: true, block_based_table_reader: true, ..CacheUsageOptions::default() };
        /// let db = Db::open(&options, "/db")?;
        /// let before = cache.usage();
        /// db.put(b"iron", b"Fe")?;
        /// db.flush()?;
        /// db.get(b"iron")?; // Opens the table.
        /// assert!(cache.usage() > before + 1000);
        /// # Ok::<_, ironstone::Error>(())
        /// ```
        cache_usage_options: CacheUsageOptions = CacheUsageOptions::default();
    }
}

option_struct! {
    /// Which index and filter blocks stay in the block cache for as long as their table is open, where they are there at all
    /// (`cache_index_and_filter_blocks`; without it each table has its own in memory, partitions included). They count as
    /// what the cache holds, and are beyond its bound if need be. `None`: as the two options say that were there before,
    /// `pin_l0_filter_and_index_blocks_in_cache` and `pin_top_level_index_and_filter`. Holds for tables that are opened from then on.
    /// Names, meanings and defaults are RocksDB's.
    pub struct MetadataCacheOptions, "MetadataCacheOptions";
    built {
        /// Those that are not partitioned.
        unpartitioned_pinning: Option<PinningTier> = None, Fixed, V7;
        /// The partitions of those that are.
        partition_pinning: Option<PinningTier> = None, Fixed, V7;
        /// What leads to the partitions.
        top_level_index_pinning: Option<PinningTier> = None, Fixed, V7;
    }
    rows {}
    fields {}
}

impl BlockBasedTableOptions {
    pub(crate) fn metadata_pinning(&self) -> MetadataPinning {
        let by_level = match self.pin_l0_filter_and_index_blocks_in_cache {
            true => PinningTier::FlushedAndSimilar,
            false => PinningTier::None,
        };
        let by_kind = if self.pin_top_level_index_and_filter { PinningTier::All } else { PinningTier::None };
        let said = &self.metadata_cache_options;
        MetadataPinning {
            top_level: said.top_level_index_pinning.unwrap_or(by_kind),
            partitions: said.partition_pinning.unwrap_or(by_level),
            unpartitioned: said.unpartitioned_pinning.unwrap_or(by_level),
        }
    }
}

option_struct! {
    /// Options of plain tables: rows one after the other, found by the prefixes of their keys. For databases that memory holds:
    /// an open table is in memory as a whole, and nothing is compressed or has a checksum. There are no range tombstones:
    /// `delete_range` is `NotSupported`. Names, meanings and defaults are RocksDB's.
    pub struct PlainTableOptions, "PlainTable";
    built {
        /// The length of all keys, which is then not stored with each; 0: it varies. A flush that meets a key of another length
        /// fails.
        user_key_len: u32 = 0, Fixed, V7;
        /// Bits of the filter for each prefix, or for each key without a `prefix_extractor`; 0: no filter.
        bloom_bits_per_key: i32 = 10, Fixed, V7;
        /// How many prefixes the index has per bucket. 0: it is a sorted list, as it has to be without a `prefix_extractor`.
        hash_table_ratio: f64 = 0.75, Fixed, V7;
        /// Of each prefix every so many-th key is in the index; 0: every key.
        index_sparseness: usize = 16, Fixed, V7;
        /// How keys are stored: `kPlain`, or `kPrefix`: without the prefix where it is that of the key before.
        encoding_type: PlainEncoding = PlainEncoding::Plain, Fixed, V7;
        /// Open tables without index and filter. (RocksDB can only walk them, then; here reads and seeks work, by binary search
        /// in a list of rows that the first of them makes.)
        full_scan_mode: bool = false, Fixed, V7;
        /// Store index and filter in the file, so that opening it need not read all rows.
        store_index_in_file: bool = false, Fixed, V7;
    }
    rows {
        ignored("huge_page_tlb_size", "size", "0", Change::Fixed, Since::V7, "only the speed of reads depends on it");
    }
    fields {}
}

option_struct! {
    /// Options of cuckoo tables: hash tables of buckets of one length, so all keys of a column family have one length, and so
    /// have all values; a flush that meets another fails. For databases that memory holds and that are read by single keys: an
    /// open table is in memory as a whole, nothing is compressed or has a checksum, and the first iterator over a table sorts it.
    /// A table holds one entry of a key, a value or a tombstone: merges, single deletes, `delete_range` and reads at snapshots are
    /// `NotSupported`. Names, meanings and defaults are RocksDB's.
    pub struct CuckooTableOptions, "CuckooTable";
    built {
        /// Entries per bucket, above 0 and at most 1.
        hash_table_ratio: f64 = 0.9, Fixed, V7;
        /// How many keys are moved at most to make room for one.
        max_search_depth: u32 = 100, Fixed, V7;
        /// So many buckets in a row are tried for each hash.
        cuckoo_block_size: u32 = 5, Fixed, V7;
        /// The first hash of a key is its first 8 bytes; keys have to have so many.
        identity_as_first_hash: bool = false, Fixed, V7;
        /// Tables have as many buckets as they need, and not a power of two.
        use_module_hash: bool = true, Fixed, V7;
    }
    rows {}
    fields {}
}

impl CuckooTableOptions {
    pub(crate) fn layer(&self) -> CuckooOptions {
        CuckooOptions {
            hash_table_ratio: self.hash_table_ratio,
            max_search_depth: self.max_search_depth,
            cuckoo_block_size: self.cuckoo_block_size,
            identity_as_first_hash: self.identity_as_first_hash,
            use_module_hash: self.use_module_hash,
        }
    }
}

impl PlainTableOptions {
    pub(crate) fn layer(&self) -> PlainOptions {
        PlainOptions {
            user_key_len: self.user_key_len,
            bloom_bits_per_key: u32::try_from(self.bloom_bits_per_key).unwrap_or(0),
            hash_table_ratio: self.hash_table_ratio,
            index_sparseness: self.index_sparseness,
            encoding: self.encoding_type,
            full_scan_mode: self.full_scan_mode,
            store_index_in_file: self.store_index_in_file,
        }
    }
}

impl ColumnFamilyOptions {
    /// Takes the text of `table_factory`: the factory's name, perhaps with options; all of it or nothing.
    pub(super) fn set_table_factory(&mut self, text: &str) -> Result<(), OptionError> {
        let (id, pairs) = text::object(text)?;
        let format = TableFormat::of_name(&id)
            .ok_or_else(|| OptionError::not_supported(format!("table factory {id}")))?;
        match format {
            TableFormat::BlockBased => self.table = changed(&self.table, &pairs)?,
            TableFormat::Plain => self.plain_table = changed(&self.plain_table, &pairs)?,
            TableFormat::Cuckoo => self.cuckoo_table = changed(&self.cuckoo_table, &pairs)?,
        }
        self.table_format = format;
        Ok(())
    }

    /// Takes options of the tables of `format` in the form `{a=b;c=d}`, all of them or none. Tables are of that format from then
    /// on.
    pub(super) fn set_table_options(&mut self, format: TableFormat, text: &str) -> Result<(), OptionError> {
        let pairs = text::pairs(text)?;
        match format {
            TableFormat::BlockBased => self.table = changed(&self.table, &pairs)?,
            TableFormat::Plain => self.plain_table = changed(&self.plain_table, &pairs)?,
            TableFormat::Cuckoo => self.cuckoo_table = changed(&self.cuckoo_table, &pairs)?,
        }
        self.table_format = format;
        Ok(())
    }
}

fn changed<T: OptionStruct>(options: &T, pairs: &[(String, String)]) -> Result<T, OptionError> {
    let mut changed = options.clone();
    pairs.iter().try_for_each(|(name, value)| text::set_one(&mut changed, name, value))?;
    Ok(changed)
}
