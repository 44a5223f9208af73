//! Random options: small buffers and files, so that everything happens often, and every format.

use crate::sorted_list::SortedLists;
use ironstone::options::{ChecksumHandoffFileTypes, DbOptions, Options};
use ironstone::{
    BlockCache, CacheOptions, ColumnFamilyOptions, CompactOnDeletionCollectorFactory, CompactionFilter,
    CompactionFilterFactory, CompactionPriority, CompactionStyle, CompressionKind, FilterContext,
    FilterDecision, FilterKind, FilterPolicy, FlushBlockEveryKeyPolicyFactory, GenericRateLimiter,
    MemTableKind, PersistentCacheConfig, PinningTier, PlainEncoding, RateLimiter, RateLimiterMode,
    RateLimiterOptions, RowCache, SstFileManager, SstFileManagerOptions, SstPartitionerFixedPrefix,
    StopStyle, TableFileCreationReason, TableFormat, ThreadPool, merge_operators, new_persistent_cache,
    slice_transform,
};
use ironstone_base::checksum::ChecksumKind;
use ironstone_vfs::Env;
use rand::Rng;
use rand::seq::IndexedRandom;
use std::sync::Arc;
use std::time::Duration;

/// Options of a database in `env`, chosen by `rng`.
pub fn random_db_options(rng: &mut impl Rng, env: &Env) -> DbOptions {
    let mut options = DbOptions {
        env: env.clone(),
        create_if_missing: true,
        create_missing_column_families: true,
        max_background_jobs: rng.random_range(1..6),
        max_subcompactions: rng.random_range(1..4),
        max_open_files: *[-1, -1, 4, 12].choose(rng).expect("not empty"),
        db_write_buffer_size: *[0, 0, 0, 100_000].choose(rng).expect("not empty"),
        max_total_wal_size: *[0, 0, 20_000].choose(rng).expect("not empty"),
        max_manifest_file_size: *[1 << 30, 2_000].choose(rng).expect("not empty"),
        max_manifest_space_amp_pct: 50,
        avoid_flush_during_recovery: rng.random_bool(0.3),
        manual_wal_flush: rng.random_bool(0.1),
        atomic_flush: rng.random_bool(0.2),
        writable_file_max_buffer_size: *[1 << 20, 4096].choose(rng).expect("not empty"),
        compaction_readahead_size: *[2 << 20, 8192].choose(rng).expect("not empty"),
        prefix_seek_opt_in_only: rng.random_bool(0.2),
        max_bgerror_resume_count: *[i32::MAX, 0].choose(rng).expect("not empty"),
        open_files_async: rng.random_bool(0.2),
        allow_fallocate: rng.random_bool(0.8),
        checksum_handoff_file_types: ChecksumHandoffFileTypes {
            wal: rng.random_bool(0.2),
            table: rng.random_bool(0.2),
            descriptor: rng.random_bool(0.2),
        },
        recycle_log_file_num: *[0, 0, 2].choose(rng).expect("not empty"),
        // Nobody waits so long, and a simulated wait is not allowed to end by itself for ever.
        max_compaction_trigger_wakeup_seconds: 0,
        stats_dump_period_sec: 0,
        stats_persist_period_sec: 0,
        rate_limiter: random_rate_limiter(rng, env),
        sst_file_manager: random_file_manager(rng),
        row_cache: random_row_cache(rng),
        ..DbOptions::default()
    };
    options.wal_compression = *[CompressionKind::None, CompressionKind::None, CompressionKind::Zstd]
        .choose(rng)
        .expect("not empty");
    // Column families with updates in place need it, and nothing else depends on it.
    options.set("allow_concurrent_memtable_write", "false").expect("it is an option");
    options
}

/// Threads of the background: those of the process, or some of its own, of which up to two may be for the last level.
pub fn random_thread_pool(rng: &mut impl Rng) -> Arc<ThreadPool> {
    if rng.random_bool(0.4) {
        return ThreadPool::shared();
    }
    let pool = ThreadPool::new();
    pool.set_bottom_threads(Some(rng.random_range(0..3)));
    pool
}

/// One with room for some rows.
fn random_row_cache(rng: &mut impl Rng) -> Option<Arc<RowCache>> {
    let capacity = *[5_000, 1 << 20].choose(rng).expect("not empty");
    rng.random_bool(0.3).then(|| RowCache::new(CacheOptions { capacity, ..CacheOptions::default() }))
}

/// One that removes files bit by bit.
fn random_file_manager(rng: &mut impl Rng) -> Option<Arc<SstFileManager>> {
    let options = SstFileManagerOptions {
        rate_bytes_per_sec: *[1_000_000, 10_000].choose(rng).expect("not empty"),
        max_trash_db_ratio: *[0.25, 10.0].choose(rng).expect("not empty"),
        bytes_max_delete_chunk: *[0, 2_000].choose(rng).expect("not empty"),
    };
    rng.random_bool(0.2).then(|| SstFileManager::new(options))
}

fn random_rate_limiter(rng: &mut impl Rng, env: &Env) -> Option<Arc<dyn RateLimiter>> {
    let options = RateLimiterOptions {
        refill_period: Duration::from_millis(rng.random_range(1..20)),
        fairness: rng.random_range(1..12),
        auto_tuned: rng.random(),
        single_burst_bytes: *[0, 1000].choose(rng).expect("not empty"),
        mode: *[RateLimiterMode::WritesOnly, RateLimiterMode::ReadsOnly, RateLimiterMode::AllIo]
            .choose(rng)
            .expect("not empty"),
    };
    let rate = *[4 << 20, 100 << 20].choose(rng).expect("not empty");
    let limiter = GenericRateLimiter::with_options(rate, options, Arc::clone(&env.clock));
    rng.random_bool(0.2).then(|| Arc::new(limiter) as Arc<dyn RateLimiter>)
}

/// A compaction filter that changes nothing, in one way or the other.
struct Neutral;

impl CompactionFilter for Neutral {
    fn name(&self) -> &str {
        "testkit.Neutral"
    }
    fn filter(&self, _level: usize, key: &[u8], value: &[u8]) -> FilterDecision {
        match value.len() % 3 {
            0 => FilterDecision::Keep,
            1 => FilterDecision::Change(value.to_vec()),
            _ => FilterDecision::RemoveAndSkipUntil(key.to_vec()), // Skips nothing.
        }
    }
    fn filter_merge_operand(&self, level: usize, key: &[u8], operand: &[u8]) -> FilterDecision {
        self.filter(level, key, operand)
    }
}

impl CompactionFilterFactory for Neutral {
    fn name(&self) -> &str {
        "testkit.NeutralFactory"
    }
    fn should_filter_table_file_creation(&self, _reason: TableFileCreationReason) -> bool {
        true
    }
    fn create(&self, context: &FilterContext) -> Option<Box<dyn CompactionFilter>> {
        (!context.is_full_compaction).then(|| Box::new(Self) as Box<dyn CompactionFilter>)
    }
}

/// The style of compaction, with what belongs to it. Nothing is dropped because of its size or age.
fn random_style(rng: &mut impl Rng, options: &mut ColumnFamilyOptions) {
    use CompactionStyle::{Fifo, Level, Universal};
    options.compaction_style =
        *[Level, Level, Level, Universal, Universal, Fifo].choose(rng).expect("not empty");
    let priorities = (0..5).filter_map(CompactionPriority::from_byte).collect::<Vec<_>>();
    options.compaction_pri = *priorities.choose(rng).expect("not empty");
    options.periodic_compaction_seconds =
        *[options.periodic_compaction_seconds, 0, 1, 1000].choose(rng).expect("not empty");
    match options.compaction_style {
        Level => options.ttl = *[options.ttl, 0, 1, 1000].choose(rng).expect("not empty"),
        Universal => {
            options.num_levels = rng.random_range(1..8);
            let trigger = options.level0_file_num_compaction_trigger;
            let universal = &mut options.compaction_options_universal;
            universal.size_ratio = *[0, 1, 100].choose(rng).expect("not empty");
            universal.min_merge_width = rng.random_range(1..4);
            universal.max_merge_width = *[2, u32::MAX].choose(rng).expect("not empty");
            universal.max_size_amplification_percent = *[20, 200].choose(rng).expect("not empty");
            universal.compression_size_percent = *[-1, 0, 60].choose(rng).expect("not empty");
            universal.max_read_amp = *[-1, 0, trigger + 2].choose(rng).expect("not empty");
            universal.stop_style =
                *[StopStyle::SimilarSize, StopStyle::TotalSize].choose(rng).expect("not empty");
            universal.allow_trivial_move = rng.random();
            universal.incremental = rng.random();
        }
        Fifo => {
            options.num_levels = rng.random_range(1..4);
            options.ttl = 0;
            options.compaction_options_fifo.max_table_files_size = 1 << 50;
            options.compaction_options_fifo.allow_compaction = rng.random_bool(0.7);
        }
    }
    match rng.random_range(0..10) {
        0 => options.compaction_filter = Some(Arc::new(Neutral)),
        1 => options.compaction_filter_factory = Some(Arc::new(Neutral)),
        _ => {}
    }
    if rng.random_bool(0.15) {
        let (window, trigger) = (rng.random_range(0..300), rng.random_range(1..20));
        let ratio = *[0.0, 0.2].choose(rng).expect("not empty");
        let least = *[0, 2000].choose(rng).expect("not empty");
        let collector = CompactOnDeletionCollectorFactory::factory(window, trigger, ratio, least);
        options.table_properties_collector_factories = vec![collector];
    }
    if rng.random_bool(0.15) {
        options.sst_partitioner_factory = Some(SstPartitionerFixedPrefix::factory(rng.random_range(0..4)));
    }
}

/// Makes a column family drop its oldest tables: when they are too large together, too old, or either.
pub fn let_oldest_go(rng: &mut impl Rng, options: &mut ColumnFamilyOptions) {
    let (by_size, by_age) =
        *[(true, false), (true, false), (false, true), (true, true)].choose(rng).expect("not empty");
    options.compaction_style = CompactionStyle::Fifo;
    options.num_levels = 1;
    options.disable_auto_compactions = false;
    options.cf_allow_ingest_behind = false;
    options.periodic_compaction_seconds = 0;
    options.ttl = if by_age { rng.random_range(1..20) } else { 0 };
    let fifo = &mut options.compaction_options_fifo;
    let sizes = [10_000, 30_000, 100_000];
    fifo.max_table_files_size = if by_size { *sizes.choose(rng).expect("not empty") } else { 1 << 50 };
    fifo.allow_compaction = rng.random();
    // A value that was merged on its way into a table would outlive its older parts.
    options.max_successive_merges = 0;
    options.write_buffer_size = *[4 << 10, 8 << 10, 32 << 10].choose(rng).expect("not empty");
}

/// Options of a column family, chosen by `rng`. The comparator stays what it is. One in ten updates in place, which nobody
/// may read at a snapshot.
pub fn random_family_options(rng: &mut impl Rng) -> ColumnFamilyOptions {
    let codecs = [
        CompressionKind::None,
        CompressionKind::Snappy,
        CompressionKind::Zlib,
        CompressionKind::Bzip2,
        CompressionKind::Lz4,
        CompressionKind::Lz4hc,
        CompressionKind::Zstd,
    ];
    let mut options = ColumnFamilyOptions {
        write_buffer_size: *[8 << 10, 32 << 10, 128 << 10].choose(rng).expect("not empty"),
        max_write_buffer_number: rng.random_range(2..5),
        min_write_buffer_number_to_merge: rng.random_range(1..3),
        num_levels: rng.random_range(3..8),
        level0_file_num_compaction_trigger: rng.random_range(1..5),
        target_file_size_base: *[4 << 10, 16 << 10, 64 << 10].choose(rng).expect("not empty"),
        target_file_size_multiplier: rng.random_range(1..3),
        max_bytes_for_level_base: *[16 << 10, 64 << 10, 256 << 10].choose(rng).expect("not empty"),
        max_bytes_for_level_multiplier: *[2.0, 4.0, 10.0].choose(rng).expect("not empty"),
        level_compaction_dynamic_level_bytes: rng.random_bool(0.5),
        compression: *codecs.choose(rng).expect("not empty"),
        disable_auto_compactions: rng.random_bool(0.1),
        merge_operator: Some(merge_operators::string_append(",")),
        max_successive_merges: *[0, 0, 1, 3].choose(rng).expect("not empty"),
        strict_max_successive_merges: rng.random_bool(0.5),
        report_bg_io_stats: rng.random_bool(0.1),
        min_tombstones_for_range_conversion: *[2, 5, 1000].choose(rng).expect("not empty"),
        memtable_op_scan_flush_trigger: *[0, 0, 1, 4, 30].choose(rng).expect("not empty"),
        memtable_avg_op_scan_flush_trigger: *[0, 0, 1, 4].choose(rng).expect("not empty"),
        read_triggered_compaction_threshold: *[0.0, 0.0, 0.02].choose(rng).expect("not empty"),
        ..ColumnFamilyOptions::default()
    };
    if rng.random_bool(0.3) {
        options.bottommost_compression = Some(*codecs.choose(rng).expect("not empty"));
    }
    if rng.random_bool(0.3) {
        options.compression_opts.max_dict_bytes = 2048;
        options.compression_opts.zstd_max_train_bytes = *[0, 16 << 10].choose(rng).expect("not empty");
    }
    if rng.random_bool(0.1) {
        options.memtable_factory =
            *[MemTableKind::Vector, MemTableKind::SkipList].choose(rng).expect("not empty");
    }
    if rng.random_bool(0.05) {
        options.memtable_rep = Some(Arc::new(SortedLists));
    }
    options.memtable_whole_key_filtering = rng.random_bool(0.3);
    if rng.random_bool(0.3) {
        let len = rng.random_range(1..5);
        options.prefix_extractor = Some(match rng.random_range(0..5) {
            0 => slice_transform::noop(),
            1..3 => slice_transform::fixed_prefix(len),
            _ => slice_transform::capped_prefix(len),
        });
        options.memtable_prefix_bloom_size_ratio = *[0.0, 0.05, 0.25].choose(rng).expect("not empty");
    }
    options.inplace_update_support = rng.random_bool(0.1);
    options.inplace_update_num_locks = *[0, 1, 50].choose(rng).expect("not empty");
    options.memtable_protection_bytes_per_key = *[0, 0, 0, 1, 8].choose(rng).expect("not empty");
    options.paranoid_memory_checks = rng.random_bool(0.1);
    options.memtable_verify_per_key_checksum_on_seek = rng.random_bool(0.2);
    options.block_protection_bytes_per_key = *[0, 0, 0, 1, 8].choose(rng).expect("not empty");
    random_style(rng, &mut options);
    random_table_options(rng, &mut options);
    options.cf_allow_ingest_behind = rng.random_bool(0.15);
    if options.cf_allow_ingest_behind {
        options.num_levels = options.num_levels.max(3);
    }
    options.sample_for_compression = *[0, 0, 0, 1, 5].choose(rng).expect("not empty");
    options
}

fn random_table_options(rng: &mut impl Rng, options: &mut ColumnFamilyOptions) {
    use ironstone::{DataBlockIndexType, IndexType};
    let with_prefix = options.prefix_extractor.is_some();
    let table = &mut options.table;
    table.block_size = *[128, 1024, 4096].choose(rng).expect("not empty");
    table.block_restart_interval = *[1, 2, 16].choose(rng).expect("not empty");
    table.index_block_restart_interval = *[1, 4].choose(rng).expect("not empty");
    table.format_version = rng.random_range(2..=7);
    let checksums = [
        ChecksumKind::None,
        ChecksumKind::Crc32c,
        ChecksumKind::XxHash,
        ChecksumKind::XxHash64,
        ChecksumKind::Xxh3,
    ];
    table.checksum = *checksums.choose(rng).expect("not empty");
    let mut indexes = vec![IndexType::BinarySearch, IndexType::TwoLevel, IndexType::BinarySearchWithFirstKey];
    if with_prefix {
        indexes.push(IndexType::HashSearch);
    }
    table.index_type = *indexes.choose(rng).expect("not empty");
    if table.index_type == IndexType::HashSearch {
        table.index_block_restart_interval = 1;
    }
    if rng.random_bool(0.3) {
        table.data_block_index_type = DataBlockIndexType::BinarySearchAndHash;
    }
    table.metadata_block_size = *[200, 4096].choose(rng).expect("not empty");
    if rng.random_bool(0.1) {
        table.flush_block_policy_factory = Some(Arc::new(FlushBlockEveryKeyPolicyFactory));
    }
    table.use_delta_encoding = rng.random_bool(0.8);
    table.cache_index_and_filter_blocks = rng.random_bool(0.3);
    let tiers = [None, Some(PinningTier::None), Some(PinningTier::FlushedAndSimilar), Some(PinningTier::All)];
    let mut tier = || *tiers.choose(rng).expect("not empty");
    let pinning = &mut table.metadata_cache_options;
    (pinning.top_level_index_pinning, pinning.partition_pinning) = (tier(), tier());
    pinning.unpartitioned_pinning = tier();
    if rng.random_bool(0.1) {
        // From this size on blocks are in memory of the cache.
        let capacity = 64 << 20;
        table.block_cache = Some(BlockCache::new(CacheOptions { capacity, ..CacheOptions::default() }));
    }
    if rng.random_bool(0.15) {
        let mut tier = PersistentCacheConfig::new(Env::in_memory(), "/tier", 200_000);
        tier.cache_file_size = 20_000;
        tier.is_compressed = rng.random();
        table.persistent_cache = Some(new_persistent_cache(tier).expect("there is room for ten files"));
    }
    table.filter_policy = match rng.random_range(0..4) {
        0 => None,
        1 => Some(FilterPolicy::bloom(10.0)),
        2 => Some(FilterPolicy::new(FilterKind::LegacyBloom, 8.0)),
        _ => Some(FilterPolicy::ribbon(10.0, 0)),
    };
    table.partition_filters = table.index_type == IndexType::TwoLevel && rng.random_bool(0.5);
    table.whole_key_filtering = rng.random_bool(0.8);
}

/// The same for a column family that knows puts and deletes alone, of keys of one length of 8 or more, and values of one length: its
/// tables may be cuckoo tables.
pub fn random_cuckoo_family_options(rng: &mut impl Rng) -> ColumnFamilyOptions {
    let mut options = random_family_options(rng);
    options.min_tombstones_for_range_conversion = 0;
    options.cf_allow_ingest_behind = false;
    options.merge_operator = None;
    options.max_successive_merges = 0;
    if rng.random_bool(0.3) {
        return options;
    }
    options.table_format = TableFormat::Cuckoo;
    let cuckoo = &mut options.cuckoo_table;
    cuckoo.hash_table_ratio = *[0.3, 0.5, 0.8].choose(rng).expect("not empty");
    cuckoo.cuckoo_block_size = *[1, 5, 8].choose(rng).expect("not empty");
    cuckoo.identity_as_first_hash = rng.random();
    cuckoo.use_module_hash = rng.random();
    options
}

/// The same for a column family that never has range tombstones: its tables may be plain.
pub fn random_flat_family_options(rng: &mut impl Rng) -> ColumnFamilyOptions {
    let mut options = random_family_options(rng);
    options.min_tombstones_for_range_conversion = 0;
    options.cf_allow_ingest_behind = false;
    if rng.random_bool(0.4) {
        return options;
    }
    options.table_format = TableFormat::Plain;
    let by_prefix = options.prefix_extractor.is_some();
    let plain = &mut options.plain_table;
    plain.bloom_bits_per_key = *[0, 3, 10].choose(rng).expect("not empty");
    plain.hash_table_ratio =
        if by_prefix { *[0.0, 0.2, 0.75, 4.0].choose(rng).expect("not empty") } else { 0.0 };
    plain.index_sparseness = *[0, 1, 3, 16].choose(rng).expect("not empty");
    if by_prefix && rng.random_bool(0.5) {
        plain.encoding_type = PlainEncoding::Prefix;
    }
    plain.store_index_in_file = rng.random();
    plain.full_scan_mode = rng.random_bool(0.1);
    options
}

/// One to three changes out of `pool`.
fn some_of(
    rng: &mut impl Rng,
    pool: &[(&'static str, &[&'static str])],
) -> Vec<(&'static str, &'static str)> {
    let count = rng.random_range(1..4);
    let chosen = pool.choose_multiple(rng, count).copied().collect::<Vec<_>>();
    chosen.into_iter().map(|(name, values)| (name, *values.choose(rng).expect("not empty"))).collect()
}

/// Changes for `set_options`. They may be `InvalidArgument` together with what is in force: a hash index needs
/// a prefix extractor.
pub fn random_family_changes(rng: &mut impl Rng) -> Vec<(&'static str, &'static str)> {
    some_of(
        rng,
        &[
            ("write_buffer_size", &["8K", "32K", "128K"]),
            ("max_write_buffer_number", &["2", "3", "4"]),
            ("disable_auto_compactions", &["true", "false", "false"]),
            ("level0_file_num_compaction_trigger", &["1", "2", "4"]),
            ("target_file_size_base", &["4K", "64K"]),
            ("max_bytes_for_level_base", &["16K", "256K"]),
            ("compression", &["kNoCompression", "kSnappyCompression", "kZSTD"]),
            ("bottommost_compression", &["kDisableCompressionOption", "kLZ4Compression"]),
            ("prefix_extractor", &["nullptr", "rocksdb.FixedPrefix.2", "rocksdb.CappedPrefix.3"]),
            ("memtable_prefix_bloom_size_ratio", &["0", "0.1"]),
            ("memtable_whole_key_filtering", &["true", "false"]),
            ("max_successive_merges", &["0", "2"]),
            ("inplace_update_num_locks", &["0", "1", "50"]),
            ("max_sequential_skip_in_iterations", &["0", "8"]),
            ("verify_output_flags", &["0", "1031", "5127"]),
            ("min_tombstones_for_range_conversion", &["0", "2", "20"]),
            ("memtable_op_scan_flush_trigger", &["0", "2", "10"]),
            ("memtable_avg_op_scan_flush_trigger", &["0", "2"]),
            ("block_based_table_factory", &["{block_size=128}", "{block_size=4K;format_version=3}"]),
            ("block_based_table_factory", &["{filter_policy=nullptr}", "{filter_policy=bloomfilter:10}"]),
            ("block_based_table_factory", &["{index_type=kBinarySearch}", "{whole_key_filtering=false}"]),
        ],
    )
}

/// Changes for `set_db_options`.
pub fn random_db_changes(rng: &mut impl Rng) -> Vec<(&'static str, &'static str)> {
    some_of(
        rng,
        &[
            ("max_background_jobs", &["1", "3", "6"]),
            ("max_subcompactions", &["1", "3"]),
            ("max_open_files", &["-1", "20"]),
            ("max_total_wal_size", &["0", "20000"]),
            ("max_manifest_file_size", &["2000", "1G"]),
            ("verify_manifest_content_on_close", &["true", "false"]),
            ("delayed_write_rate", &["0", "1M"]),
            ("wal_bytes_per_sync", &["0", "4096"]),
        ],
    )
}

/// One database with one column family, for tests that need no more.
pub fn random_options(rng: &mut impl Rng, env: &Env) -> Options {
    Options { db: random_db_options(rng, env), cf: random_family_options(rng) }
}
