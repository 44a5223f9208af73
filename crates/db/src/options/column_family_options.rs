//! Options of one column family.

use super::spec::option_struct;
use super::style_options::{FifoCompactionOptions, UniversalCompactionOptions};
use super::table_options::{BlockBasedTableOptions, CuckooTableOptions, PlainTableOptions};
use crate::concurrent_task_limiter::ConcurrentTaskLimiter;
use crate::inplace_callback::InplaceCallback;
use crate::table_paths::DbPath;
use ironstone_base::sync::Arc;
use ironstone_base::{MergeOperator, SliceTransform, UserComparator};
use ironstone_compaction::{
    CompactionFilter, CompactionFilterFactory, CompactionPriority, CompactionStyle, SstPartitionerFactory,
};
use ironstone_memtable::{MemTableKind, MemTableRepFactory};
use ironstone_sst::{CompressionKind, CompressionOptions, TableFormat, TablePropertiesCollectorFactory};

option_struct! {
    /// Options of one column family. Names, meanings and defaults are RocksDB's, unless it says otherwise.
    pub struct ColumnFamilyOptions, "CFOptions";
    built {
        /// The order of the keys. A database has to be opened with the one that it was created with.
        comparator: UserComparator = UserComparator::Bytewise, Fixed, V7;
        /// Which part of a key prefix filters and the hash index use.
        ///
        /// ```
        /// use ironstone::{Db, FilterPolicy, Options, ReadOptions, Statistics, slice_transform, statistics::Ticker};
        /// use std::sync::Arc;
        ///
        /// let statistics = Arc::new(Statistics::new());
        /// let mut options = Options::in_memory();
        /// options.db.statistics = Some(Arc::clone(&statistics));
        /// options.cf.prefix_extractor = Some(slice_transform::fixed_prefix(3));
        /// options.cf.table.filter_policy = Some(FilterPolicy::bloom(10.0));
        /// let db = Db::open(&options, "/db")?;
        /// ["de/berlin", "de/bonn", "fr/paris"].iter().try_for_each(|key| db.put(key, b"city"))?;
        /// db.flush()?;
        ///
        /// let within = ReadOptions { prefix_same_as_start: true, ..ReadOptions::default() };
        /// let mut iter = db.iter_cf(&within, db.default_column_family())?;
        /// assert!(iter.seek(b"de/")? && iter.next()?);
        /// assert!(!iter.next()?); // "fr/paris" has another prefix.
        ///
        /// let bound = Some(b"es/zaragoza".to_vec());
        /// let auto = ReadOptions { auto_prefix_mode: true, iterate_upper_bound: bound, ..ReadOptions::default() };
        /// assert!(!db.iter_cf(&auto, db.default_column_family())?.seek(b"es/")?);
        /// assert_eq!(statistics.ticker(Ticker::LastLevelSeekFiltered) + statistics.ticker(Ticker::NonLastLevelSeekFiltered), 1);
        /// # Ok::<_, ironstone::Error>(())
        /// ```
        prefix_extractor: Option<Arc<dyn SliceTransform>> = None, Mutable, V7;
        /// What merge operands mean; none: merges are refused.
        merge_operator: Option<Arc<dyn MergeOperator>> = None, Fixed, V7;
        /// A merge operand that would be the so many-th in a row in a memtable is merged with what is there; 0: never.
        max_successive_merges: usize = 0, Mutable, V7;
        /// Do that even where it takes reading tables.
        strict_max_successive_merges: bool = false, Mutable, Later;
        /// What memtables are made of. RocksDB's names of hashed memtables stand for the radix tree.
        memtable_factory: MemTableKind = MemTableKind::RadixTree, Fixed, V7;
        /// A memtable of so many bytes is closed and flushed.
        write_buffer_size: usize = 64 << 20, Mutable, V7;
        /// If not 0, memtables have a Bloom filter of so much of `write_buffer_size`, at most 0.25, and are full the
        /// earlier. It holds the prefixes of keys if there is a `prefix_extractor`, for reads of keys and for seeks.
        memtable_prefix_bloom_size_ratio: f64 = 0.0, Mutable, V7;
        /// That filter holds whole keys as well, which is what reads of keys then ask it for.
        memtable_whole_key_filtering: bool = false, Mutable, V7;
        /// If not 0, memtables ask the system for huge pages, whose size the system knows. They come whole,
        /// used or not, and under a hypervisor that takes free memory back they are slow to get.
        memtable_huge_page_size: usize = 0, Mutable, V7;
        /// A put overwrites the newest value of its key where it is, if that is in the open memtable and not shorter. Writes
        /// to the column family enter memtables one at a time: `allow_concurrent_memtable_write` has to be false. Reads do
        /// not see one moment: values may be newer than that. So there are no reads of the column family at snapshots
        /// (`NotSupported`; RocksDB: no snapshots at all). Backward iteration works, unlike in RocksDB.
        inplace_update_support: bool = false, Fixed, V7;
        /// So many locks guard the values of a memtable against that; at least 1.
        inplace_update_num_locks: usize = 10_000, Mutable, V7;
        /// A memtable of so many range tombstones is closed and flushed; 0: their number does not matter.
        memtable_max_range_deletions: u32 = 0, Mutable, Later;
        /// How many memtables there may be, the open one included, before writes stop.
        max_write_buffer_number: i32 = 2, Mutable, V7;
        /// So many closed memtables are flushed together.
        min_write_buffer_number_to_merge: i32 = 1, Fixed, V7;
        /// The codec where nothing below says otherwise. (RocksDB before 11: Snappy.)
        compression: CompressionKind = CompressionKind::Lz4, Mutable, V7;
        /// The codec of level 0, then of the base level and those after it; the last entry holds for the rest.
        compression_per_level: Vec<CompressionKind> = Vec::new(), Mutable, Later;
        /// The codec of the last level that holds data; none: as the others.
        bottommost_compression: Option<CompressionKind> = None, Mutable, V7;
        /// The parameters of the codec.
        compression_opts: CompressionOptions = CompressionOptions::default(), Mutable, V7;
        /// The parameters of the codec of the last level, if `enabled`.
        bottommost_compression_opts: CompressionOptions = CompressionOptions::default(), Mutable, V7;
        /// How many levels there are, level 0 included.
        num_levels: i32 = 7, Fixed, V7;
        /// Files may be ingested behind everything (`ingest_behind`). The last level is kept for them and compactions
        /// leave it alone, no tombstone is dropped, and there are at least 3 levels. To be set from the first write on.
        /// FIFO compaction drops the last level first, and has as many levels as `num_levels` says, which have to be 2 or more.
        /// (RocksDB's text: universal compaction only.)
        cf_allow_ingest_behind: bool = false, Fixed, Later;
        /// Level 0 is compacted when it has so many files.
        level0_file_num_compaction_trigger: i32 = 4, Mutable, V7;
        /// Writes are slowed down when level 0 has so many files.
        level0_slowdown_writes_trigger: i32 = 20, Mutable, V7;
        /// Writes stop when level 0 has so many files.
        level0_stop_writes_trigger: i32 = 36, Mutable, V7;
        /// Table files of the first level below level 0 are cut at this size.
        target_file_size_base: u64 = 64 << 20, Mutable, V7;
        /// How much larger those of each further level are.
        target_file_size_multiplier: i32 = 1, Mutable, V7;
        /// Compactions cut table files before they would be larger than their target (`target_file_size_base`, times
        /// `target_file_size_multiplier` as often as the level asks for), index and filter included. Else the last block may reach
        /// beyond it, and where that suits the level after, a file may be twice as large (RocksDB: there with it, too). The
        /// entries of one key stay together, and range tombstones are not foreseen.
        target_file_size_is_upper_bound: bool = false, Mutable, Later;
        /// The size of the first level below level 0.
        max_bytes_for_level_base: u64 = 256 << 20, Mutable, V7;
        /// How much larger each further level is.
        max_bytes_for_level_multiplier: f64 = 10.0, Mutable, V7;
        /// Extra factors per level, without dynamic level sizes.
        max_bytes_for_level_multiplier_additional: Vec<i32> = vec![1; 7], Mutable, V7;
        /// Derive level sizes from the size of the last level, so that space amplification is bounded.
        level_compaction_dynamic_level_bytes: bool = true, Fixed, V7;
        /// Bounds the input of one compaction; 0: 25 times `target_file_size_base`.
        max_compaction_bytes: u64 = 0, Mutable, V7;
        /// How the tree is kept in shape.
        compaction_style: CompactionStyle = CompactionStyle::Level, Fixed, V7;
        /// For universal compaction.
        compaction_options_universal: UniversalCompactionOptions = UniversalCompactionOptions::default(), Mutable, V7;
        /// For FIFO compaction.
        compaction_options_fifo: FifoCompactionOptions = FifoCompactionOptions::default(), Mutable, V7;
        /// Sees the newest value of each key that a compaction passes. Called by several threads at once.
        ///
        /// ```
        /// use ironstone::{CompactionFilter, Db, FilterDecision, Options};
        /// use std::sync::Arc;
        ///
        /// struct NoDrafts;
        /// impl CompactionFilter for NoDrafts {
        ///     fn name(&self) -> &str {
        ///         "example.NoDrafts"
        ///     }
        ///     fn filter(&self, _level: usize, key: &[u8], _value: &[u8]) -> FilterDecision {
        ///         if key.starts_with(b"draft/") { FilterDecision::Remove } else { FilterDecision::Keep }
        ///     }
        /// }
        ///
        /// let mut options = Options::in_memory();
        /// options.cf.compaction_filter = Some(Arc::new(NoDrafts));
        /// let db = Db::open(&options, "/db")?;
        /// db.put(b"draft/1", b"...")?;
        /// db.put(b"page/1", b"...")?;
        /// db.compact_range(&Default::default(), db.default_column_family(), None, None)?;
        /// assert!(db.get(b"draft/1")?.is_none() && db.get(b"page/1")?.is_some());
        /// # Ok::<_, ironstone::Error>(())
        /// ```
        compaction_filter: Option<Arc<dyn CompactionFilter>> = None, Fixed, V7;
        /// Makes such a filter for each thread of work; not used if there is a `compaction_filter`.
        ///
        /// ```
        /// use ironstone::{CompactionFilter, CompactionFilterFactory, Db, FilterContext, FilterDecision, Options};
        /// use std::sync::Arc;
        ///
        /// /// Cuts values, in compactions that somebody asked for.
        /// struct Cut(usize);
        /// impl CompactionFilterFactory for Cut {
        ///     fn name(&self) -> &str {
        ///         "example.CutFactory"
        ///     }
        ///     fn create(&self, context: &FilterContext) -> Option<Box<dyn CompactionFilter>> {
        ///         context.is_manual_compaction.then(|| Box::new(Cut(self.0)) as Box<dyn CompactionFilter>)
        ///     }
        /// }
        /// impl CompactionFilter for Cut {
        /// #     fn name(&self) -> &str {
        /// #         "example.Cut"
        /// #     }
        ///     fn filter(&self, _level: usize, _key: &[u8], value: &[u8]) -> FilterDecision {
        ///         value.get(..self.0).map_or(FilterDecision::Keep, |start| FilterDecision::Change(start.to_vec()))
        ///     }
        /// }
        ///
        /// let mut options = Options::in_memory();
        /// options.cf.compaction_filter_factory = Some(Arc::new(Cut(4)));
        /// let db = Db::open(&options, "/db")?;
        /// db.put(b"ore", b"haematite")?;
        /// db.compact_range(&Default::default(), db.default_column_family(), None, None)?;
        /// assert_eq!(db.get(b"ore")?.as_deref(), Some(&b"haem"[..]));
        /// # Ok::<_, ironstone::Error>(())
        /// ```
        compaction_filter_factory: Option<Arc<dyn CompactionFilterFactory>> = None, Fixed, V7;
        /// Says where compactions end a table and begin the next.
        ///
        /// ```
        /// use ironstone::{Db, Options, SstPartitionerFixedPrefix};
        ///
        /// let mut options = Options::in_memory();
        /// options.cf.sst_partitioner_factory = Some(SstPartitionerFixedPrefix::factory(3));
        /// let db = Db::open(&options, "/db")?;
        /// ["de/berlin", "de/bonn", "fr/paris"].iter().try_for_each(|key| db.put(key, b"city"))?;
        /// db.compact_range(&Default::default(), db.default_column_family(), None, None)?;
        /// let mut first: Vec<_> = db.live_files().into_iter().map(|table| table.smallest).collect();
        /// first.sort();
        /// assert_eq!(first, [b"de/berlin".to_vec(), b"fr/paris".to_vec()]);
        /// # Ok::<_, ironstone::Error>(())
        /// ```
        sst_partitioner_factory: Option<Arc<dyn SstPartitionerFactory>> = None, Fixed, V7;
        /// Each makes a collector for every table that is written, which adds properties to it and may have it compacted.
        ///
        /// ```
        /// # use ironstone::{CollectedEntry, CollectorContext, Db, Options, Result, TablePropertiesCollector, TablePropertiesCollectorFactory};
        /// # use std::{collections::BTreeMap, sync::Arc};
        /// #[derive(Default)]
        /// struct LongestKey(usize);
        /// impl TablePropertiesCollector for LongestKey {
        /// #     fn name(&self) -> &str { "example.LongestKey" }
        ///     fn add(&mut self, entry: &CollectedEntry<'_>) -> Result<()> {
        ///         self.0 = self.0.max(entry.user_key.len());
        ///         Ok(())
        ///     }
        ///     fn finish(&mut self) -> Result<BTreeMap<String, Vec<u8>>> {
        ///         Ok(BTreeMap::from([("example.longest.key".to_owned(), self.0.to_string().into_bytes())]))
        ///     }
        /// }
        /// impl TablePropertiesCollectorFactory for LongestKey {
        /// #     fn name(&self) -> &str { "example.LongestKey" }
        ///     fn create(&self, _context: &CollectorContext) -> Option<Box<dyn TablePropertiesCollector>> {
        ///         Some(Box::new(LongestKey::default()))
        ///     }
        /// }
        ///
        /// let mut options = Options::in_memory();
        /// options.cf.table_properties_collector_factories.push(Arc::new(LongestKey::default()));
        /// let db = Db::open(&options, "/db")?;
        /// db.put(b"iron", b"Fe")?;
        /// db.flush()?;
        /// let (_path, properties) = db.properties_of_all_tables(db.default_column_family())?.pop_first().unwrap();
        /// assert_eq!(properties.user_collected["example.longest.key"], b"4");
        /// # Ok::<_, ironstone::Error>(())
        /// ```
        table_properties_collector_factories as "table_properties_collectors": Vec<Arc<dyn TablePropertiesCollectorFactory>> = Vec::new(), Fixed, Later;
        /// Which file of a level goes first.
        compaction_pri: CompactionPriority = CompactionPriority::MinOverlappingRatio, Fixed, V7;
        /// Writes are slowed down when compactions have so many bytes to do; 0: at the hard limit.
        soft_pending_compaction_bytes_limit: u64 = 64 << 30, Mutable, V7;
        /// Writes stop when compactions have so many bytes to do; 0: never.
        hard_pending_compaction_bytes_limit: u64 = 256 << 30, Mutable, V7;
        /// A table is compacted into the next level with files once it was asked so often, per byte of it, for what it does not
        /// have: a point read went on to older tables, ended at a tombstone, or found a merge operand; a seek of an iterator, below level 0,
        /// came upon a tombstone or an operand. One in 1024 of these is counted, as 1024. Looked at when tables change, and every
        /// [`max_compaction_trigger_wakeup_seconds`](crate::DbOptions::max_compaction_trigger_wakeup_seconds). 0.01 is a beginning; 0: never.
        /// Not with FIFO compaction. Counts are not kept over a reopening. While it is 0 nothing is counted.
        read_triggered_compaction_threshold: f64 = 0.0, Mutable, Later;
        /// Compact only when told to.
        disable_auto_compactions: bool = false, Mutable, V7;
        /// Data that is older than so many seconds is compacted down; with universal compaction the same as
        /// `periodic_compaction_seconds`; with FIFO compaction tables whose data is older are dropped. 0: never, which is
        /// what the default means with tables that are not block-based (and all that RocksDB knows for them).
        ttl: u64 = 30 * 24 * 60 * 60, Mutable, V7;
        /// A file that is older than so many seconds is rewritten; 0: never. Default (2^64 - 2): 30 days with
        /// universal compaction or with a compaction filter, else never; never with tables that are not block-based.
        periodic_compaction_seconds: u64 = UNSET_SECONDS, Mutable, V7;
        /// With levelled compaction, tables that keep what a snapshot needed, which was released since, are rewritten once they are so
        /// many seconds old. Looked at when tables change, when snapshots are released, and every
        /// [`max_compaction_trigger_wakeup_seconds`](crate::DbOptions::max_compaction_trigger_wakeup_seconds).
        bottommost_file_compaction_delay: u32 = 0, Mutable, Later;
        /// An iterator that passed so many entries of one key seeks instead.
        max_sequential_skip_in_iterations: u64 = 8, Mutable, V7;
        /// An iterator that passed so many deleted keys in a row, forward, leaves a range tombstone in the memtable that says
        /// the same at once: the next one does not pass them one by one. 0: never. (RocksDB: 0.)
        min_tombstones_for_range_conversion: u32 = 1000, Mutable, Later;
        /// A memtable is flushed, with one of the next writes, once an iterator has passed over so many entries of it in one move forward
        /// that were deleted or overwritten. 0: never. Not for tailing iterators. What is passed over by a range tombstone at
        /// once, or by a seek after eight versions of a key, does not count.
        memtable_op_scan_flush_trigger: u32 = 0, Mutable, Later;
        /// The same once an iterator has passed over so many on average of its moves from one seek to the next (or to its end), if that
        /// is at least `memtable_op_scan_flush_trigger` together. 0, or `memtable_op_scan_flush_trigger` 0: never.
        memtable_avg_op_scan_flush_trigger: u32 = 0, Mutable, Later;
        /// No filters on the last level: most reads find their key.
        optimize_filters_for_hits: bool = false, Fixed, V7;
        /// Read each table back after it was written, and compare it with what was put in.
        paranoid_file_checks: bool = false, Mutable, V7;
        /// What is checked of tables after they were written, and after which jobs: bits of
        /// [`VerifyOutputFlags`](super::VerifyOutputFlags). A table that does not pass fails its job, and is removed.
        verify_output_flags: u32 = 0, Mutable, Later;
        /// Each entry of a memtable carries so many bytes of checksum, which every read and the flush compare: 0, 1, 2, 4 or 8.
        /// Holds for memtables that are made from then on. With any, a range tombstone carries 8, and so do the fragments that
        /// they are cut into: a read of a key compares the one that it comes upon, a new iterator all of them. A flush that meets an entry that
        /// changed stops writes; the next opening replays the WAL, which has it as it was written.
        ///
        /// ```
        /// # use ironstone::{Db, Options};
        /// # let db = Db::open(&Options::in_memory(), "/db")?;
        /// // From the next memtable, and the next table that is opened, on.
        /// db.set_options(&[("memtable_protection_bytes_per_key", "8"), ("block_protection_bytes_per_key", "1")])?;
        /// let options = db.column_family_options(db.default_column_family());
        /// assert_eq!((options.memtable_protection_bytes_per_key, options.block_protection_bytes_per_key), (8, 1));
        /// assert!(db.set_options(&[("memtable_protection_bytes_per_key", "3")]).is_err());
        /// # Ok::<_, ironstone::Error>(())
        /// ```
        memtable_protection_bytes_per_key: u32 = 0, Mutable, V7;
        /// Reads and iterators compare the order of the memtable entries that they pass, and answer `Corruption` where it is
        /// not kept: a key has changed in memory. Where the change keeps the order, only a checksum shows it. Holds for memtables
        /// that are made from then on.
        paranoid_memory_checks: bool = false, Mutable, Later;
        /// Searches in memtables compare all entries on their way with their checksums, and not only those that they show.
        /// Without `memtable_protection_bytes_per_key` there are none. Holds for memtables that are made from then on.
        memtable_verify_per_key_checksum_on_seek: bool = false, Mutable, Later;
        /// Not 0: data blocks in memory, and the index entries that lead to them, are compared with a checksum by every read.
        /// An index entry has so many bytes: 1, 2, 4 or 8; a data block has 8 in all. Holds for tables that are opened
        /// from then on. Filters have none.
        block_protection_bytes_per_key: u8 = 0, Mutable, Later;
        /// How eagerly the blocks of obsolete tables are taken out of the block cache, where others can use the room: they are
        /// looked for as long as the chance of finding one is 0.99^(n-1) or better. 1: until the first that is not there; 69: one
        /// half; 300: one in twenty; 10000: always. 0: they leave by age, which is better for copies of a database that share its
        /// cache. (RocksDB: 0.)
        uncache_aggressiveness: u32 = 10_000, Mutable, Later;
        /// One data block in so many is compressed by LZ4 and by Zstandard, whatever it is stored in: tables say what their data
        /// would take under each (`TableProperties::fast_compression_estimated_data_size` and
        /// `slow_compression_estimated_data_size`), and collectors hear of each sample. 0: none. Holds for tables that are made
        /// from then on; plain and cuckoo tables have no samples.
        sample_for_compression: u64 = 0, Mutable, V7;
        /// Only files go to the column family, by ingestion and import: writes to it are `InvalidArgument`, and no part of a batch
        /// with one takes effect. Not for `default`. May differ from one opening to the next; opening fails where a WAL still holds
        /// writes to the column family.
        disallow_memtable_writes: bool = false, Fixed, Later;
        /// Flushes and compactions take the times of their files: the log's events of them say these, and listeners are told of them
        /// (`CompactionStats::file_times`). File systems of the application's own have none unless they count them themselves.
        report_bg_io_stats: bool = false, Mutable, V7;
        /// Check after each change of the tree that files of a level do not overlap.
        force_consistency_checks: bool = true, Fixed, V7;
    }
    rows {
        OptionSpec {
            name: "table_factory",
            kind: "TableFactory",
            change: Change::Mutable,
            since: Since::V7,
            status: Status::Built {
                get: |options| options.table_format.name().to_owned(),
                set: |options, text| options.set_table_factory(text),
            },
        };
        alias("block_based_table_factory", "BlockBasedTableOptions", Change::Mutable, |options: &mut ColumnFamilyOptions, text| options.set_table_options(TableFormat::BlockBased, text), "table_factory");
        alias("plain_table_factory", "PlainTableOptions", Change::Mutable, |options: &mut ColumnFamilyOptions, text| options.set_table_options(TableFormat::Plain, text), "table_factory");
        alias("memtable", "MemTableRepFactory", Change::Fixed, |options: &mut ColumnFamilyOptions, text| options.memtable_factory.set(text), "memtable_factory");
        ignored("arena_block_size", "size", "0", Change::Mutable, Since::V7, "arenas grow by their own rule");
        ignored("last_level_temperature", "Temperature", "kUnknown", Change::Mutable, Since::V7, "the file system takes no such hint");
        ignored("default_write_temperature", "Temperature", "kUnknown", Change::Mutable, Since::Later, "the file system takes no such hint");
        ignored("default_temperature", "Temperature", "kUnknown", Change::Fixed, Since::Later, "the file system takes no such hint");
        ignored("min_blob_size", "uint64", "0", Change::Mutable, Since::V7, "only blob files use it");
        ignored("blob_file_size", "uint64", "268435456", Change::Mutable, Since::V7, "only blob files use it");
        ignored("blob_compression_type", "CompressionType", "kNoCompression", Change::Mutable, Since::V7, "only blob files use it");
        ignored("blob_compression_opts", "CompressionOptions", "{}", Change::Mutable, Since::Later, "only blob files use it");
        ignored("enable_blob_garbage_collection", "bool", "false", Change::Mutable, Since::V7, "only blob files use it");
        ignored("blob_garbage_collection_age_cutoff", "double", "0.250000", Change::Mutable, Since::V7, "only blob files use it");
        ignored("blob_garbage_collection_force_threshold", "double", "1.000000", Change::Mutable, Since::V7, "only blob files use it");
        ignored("blob_compaction_readahead_size", "uint64", "0", Change::Mutable, Since::V7, "only blob files use it");
        ignored("blob_file_starting_level", "int", "0", Change::Mutable, Since::V7, "only blob files use it");
        ignored("prepopulate_blob_cache", "PrepopulateBlobCache", "kDisable", Change::Mutable, Since::V7, "only blob files use it");
        ignored("blob_cache", "Cache", "nullptr", Change::Fixed, Since::Later, "only blob files use it");
        ignored("blob_direct_write_partitions", "uint32", "1", Change::Fixed, Since::Later, "only blob files use it");
        ignored("blob_direct_write_partition_strategy", "BlobFilePartitionStrategy", "nullptr", Change::Fixed, Since::Later, "only blob files use it");
        ignored("experimental_mempurge_threshold", "double", "0.000000", Change::Mutable, Since::V7, "memtables are always flushed");
        ignored("max_write_buffer_size_to_maintain", "int64", "0", Change::Fixed, Since::V7, "only transactions use it");
        ignored("bloom_locality", "uint32", "0", Change::Fixed, Since::V7, "only the speed of memtable filters depends on it");
        ignored("memtable_insert_with_hint_prefix_extractor", "SliceTransform", "nullptr", Change::Fixed, Since::V7, "only the speed of inserts depends on it");
        ignored("memtable_batch_lookup_optimization", "bool", "false", Change::Fixed, Since::Later, "only the speed of reads depends on it");
        ignored("persist_user_defined_timestamps", "bool", "true", Change::Fixed, Since::Later, "there are no user-defined timestamps");
        refused("preclude_last_level_data_seconds", "uint64", &["0"], Change::Mutable, Since::V7, "tiered storage");
        refused("preserve_internal_time_seconds", "uint64", &["0"], Change::Mutable, Since::V7, "tiered storage");
        refused("enable_blob_files", "bool", &["false"], Change::Mutable, Since::V7, "blob files");
        refused("enable_blob_direct_write", "bool", &["false"], Change::Fixed, Since::Later, "blob files");
        alias("memtable_veirfy_per_key_checksum_on_seek", "bool", Change::Mutable, |options: &mut ColumnFamilyOptions, text| options.memtable_verify_per_key_checksum_on_seek.set(text), "memtable_verify_per_key_checksum_on_seek");
        refused("compression_manager", "CompressionManager", &["nullptr", ""], Change::Mutable, Since::Later, "custom compression");
        deprecated("filter_deletes", "bool");
        deprecated("check_flush_compaction_key_order", "bool");
        deprecated("verify_checksums_in_compaction", "bool");
        deprecated("hard_rate_limit", "double");
        deprecated("soft_rate_limit", "double");
        deprecated("ignore_max_compaction_bytes_for_input", "bool");
        deprecated("expanded_compaction_factor", "int");
        deprecated("max_grandparent_overlap_factor", "int");
        deprecated("source_compaction_factor", "int");
        deprecated("memtable_prefix_bloom_huge_page_tlb_size", "size");
        deprecated("memtable_prefix_bloom_bits", "uint32");
        deprecated("memtable_prefix_bloom_probes", "uint32");
        deprecated("min_partial_merge_operands", "uint32");
        deprecated("snap_refresh_nanos", "uint64");
        deprecated("bottommost_temperature", "Temperature");
        deprecated("compaction_measure_io_stats", "bool");
        deprecated("purge_redundant_kvs_while_flush", "bool");
        deprecated("level_compaction_dynamic_file_size", "bool");
        deprecated("max_mem_compaction_level", "int");
        deprecated("max_write_buffer_number_to_maintain", "int");
        deprecated("rate_limit_delay_max_milliseconds", "uint");
    }
    fields {
        /// Says what a put makes of the value that is there, with `inplace_update_support`.
        inplace_callback: Option<Arc<dyn InplaceCallback>> = None;
        /// Keeps the entries of its memtables in order, in the place of `memtable_factory`: a structure of your own, see
        /// [`MemTableRep`](crate::MemTableRep). (RocksDB: a `MemTableRepFactory` of one's own.) OPTIONS files do not name it.
        memtable_rep: Option<Arc<dyn MemTableRepFactory>> = None;
        /// Bounds how many of its compactions run at once, and of those of all others that have it, in other databases too.
        compaction_thread_limiter: Option<Arc<ConcurrentTaskLimiter>> = None;
        /// Where its tables are, in the place of the database's [`db_paths`](crate::DbOptions::db_paths).
        cf_paths: Vec<DbPath> = Vec::new();
        /// The format of the tables that are written (`table_factory`). Tables of all formats are read, whatever it is, with the options of
        /// theirs below. It cannot change while the database is open.
        table_format: TableFormat = TableFormat::BlockBased;
        /// The options of block-based tables.
        table: BlockBasedTableOptions = BlockBasedTableOptions::default();
        /// The options of plain tables.
        plain_table: PlainTableOptions = PlainTableOptions::default();
        /// The options of cuckoo tables.
        cuckoo_table: CuckooTableOptions = CuckooTableOptions::default();
    }
}

/// Stands for a number of seconds that depends on other options.
pub(super) const UNSET_SECONDS: u64 = u64::MAX - 1;
