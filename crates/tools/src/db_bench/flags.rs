//! The flags of db_bench in one table. Names and defaults are those of RocksDB's db_bench (11.8; what
//! 7.8 knew as well is there too), but for `format_version`, which stays at what RocksDB 7 reads.

use super::flag::{FlagSpec, FlagValue, Kind::*, Role};
use super::flag::{column_family, database, flags, ignored, refused, retired, table};

flags! {
    /// The flags of a run.
    pub struct Flags;
    bench {
        #[doc = "The benchmarks to run, in this order, with commas between them; NAME[X3-W1] repeats one 3 times after 1 warm-up"]
        benchmarks: String = DEFAULT_BENCHMARKS.to_owned();
        #[doc = "How many keys there are; what the fill benchmarks write"]
        num: i64 = 1_000_000;
        #[doc = "How many reads each thread does; negative: num"]
        reads: i64 = -1;
        #[doc = "How many writes each thread does; negative: num"]
        writes: i64 = -1;
        #[doc = "How many deletes each thread does; negative: num"]
        deletes: i64 = -1;
        #[doc = "How many threads run each benchmark"]
        threads: i32 = 1;
        #[doc = "How many threads compact into the last level alone; 0: those that compact do that, too"]
        num_bottom_pri_threads: i32 = 0;
        #[doc = "Seconds to run random benchmarks for; 0: as many operations as asked for"]
        duration: i32 = 0;
        #[doc = "With duration: look at the clock after so many operations"]
        ops_between_duration_checks: i32 = 1000;
        #[doc = "A range of keys is deleted after each so many writes of a fill; 0: none"]
        writes_per_range_tombstone: i64 = 0;
        #[doc = "But not after the first so many"]
        writes_before_delete_range: i64 = 0;
        #[doc = "How many keys such a range has"]
        range_tombstone_width: i64 = 100;
        #[doc = "How many ranges are deleted at most"]
        max_num_range_tombstones: i64 = 0;
        #[doc = "Delete the keys of each range one by one instead"]
        expand_range_tombstones: bool = false;
        #[doc = "How many keys are merged into; negative: num"]
        merge_keys: i64 = -1;
        #[doc = "How many of a hundred operations of readrandommergerandom merge"]
        mergereadpercent: i32 = 70;
        #[doc = "The merge operator, by its long or short name"]
        merge_operator: String = String::new();
        #[doc = "How many column families are used"]
        num_column_families: i32 = 1;
        #[doc = "Bytes of each key"]
        key_size: i32 = 16;
        #[doc = "Bytes of each value"]
        value_size: i32 = 100;
        #[doc = "How value sizes are spread: fixed, uniform or normal"]
        value_size_distribution_type: String = "fixed".to_owned();
        #[doc = "The least size of values that are not fixed"]
        value_size_min: i32 = 100;
        #[doc = "The largest size of values that are not fixed"]
        value_size_max: i32 = 102_400;
        #[doc = "What values shrink to when compressed; above 1: in per cent"]
        compression_ratio: f64 = 0.5;
        #[doc = "How many percent of the values are one and the same"]
        same_value_percentage: i32 = 0;
        #[doc = "Time every operation and print the distribution"]
        histogram: bool = false;
        #[doc = "Collect the engine's statistics and print them at the end"]
        statistics: bool = false;
        #[doc = "How much the statistics collect, 0 to 5"]
        stats_level: i32 = 3;
        #[doc = "Report after each so many operations of a thread; 0: rarer and rarer"]
        stats_interval: i64 = 0;
        #[doc = "Report when so many seconds have passed; 0: by stats_interval"]
        stats_interval_seconds: i64 = 0;
        #[doc = "Report the engine's state along with stats_interval when above 0"]
        stats_per_interval: i32 = 0;
        #[doc = "Write the rate to report_file every so many seconds; 0: never"]
        report_interval_seconds: i64 = 0;
        #[doc = "Where report_interval_seconds writes to"]
        report_file: String = "report.csv".to_owned();
        #[doc = "With histogram: say so when an operation takes so many microseconds"]
        slow_usecs: u64 = 1_000_000;
        #[doc = "Print how many operations are done"]
        progress_reports: bool = true;
        #[doc = "For repeated benchmarks, print confidence intervals instead of averages"]
        confidence_interval_only: bool = false;
        #[doc = "Where random numbers start; 0: somewhere else each time"]
        seed: i64 = 0;
        #[doc = "How many entries one write, or one multi_get, has"]
        batch_size: i64 = 1;
        #[doc = "Sync the log with every write"]
        sync: bool = false;
        #[doc = "Write no log"]
        disable_wal: bool = false;
        #[doc = "Give each write a checksum of so many bytes in memory: 0 or 8"]
        write_batch_protection_bytes_per_key: u32 = 0;
        #[doc = "Check the checksum of every block that is read"]
        verify_checksum: bool = true;
        #[doc = "Keep the database that is there; fill benchmarks are skipped"]
        use_existing_db: bool = false;
        #[doc = "Open the database for reading only; implies use_existing_db"]
        readonly: bool = false;
        #[doc = "Where the database is"]
        db: String = String::new();
        #[doc = "Above 0: reads prefer some keys, the more so the larger it is"]
        read_random_exp_range: f64 = 0.0;
        #[doc = "How many percent of readrandomwriterandom are reads"]
        readwritepercent: i32 = 90;
        #[doc = "Use the multi_get that takes a batch at once"]
        multiread_batched: bool = false;
        #[doc = "How far the keys of one multi_get are apart; 0: random"]
        multiread_stride: i64 = 0;
        #[doc = "How often iterators move on after each seek"]
        seek_nexts: i32 = 0;
        #[doc = "Iterators move back after a seek"]
        reverse_iterator: bool = false;
        #[doc = "Bounds of iterators are so many keys from the seek target; 0: none"]
        max_scan_distance: i64 = 0;
        #[doc = "Seek keys that do not exist; needs prefix_size above 8"]
        seek_missing_prefix: bool = false;
        #[doc = "Iterators of readseq, seekrandom and readwhilescanning read as of a snapshot"]
        explicit_snapshot: bool = false;
        #[doc = "Bytes per second that writers may write; 0: no limit"]
        benchmark_write_rate_limit: u64 = 0;
        #[doc = "Reads per second that readers may do together; 0: no limit"]
        benchmark_read_rate_limit: u64 = 0;
        #[doc = "Writes per second of the writer beside readers; 0: no limit"]
        writes_per_second: i64 = 0;
        #[doc = "How many keys the writer beside readers uses; 0: num"]
        bgwriter_num: i64 = 0;
        #[doc = "The writer beside readers goes on until its writes are done"]
        finish_after_writes: bool = false;
        #[doc = "filluniquerandom writes a recent key again with this probability"]
        overwrite_probability: f64 = 0.0;
        #[doc = "How many recent keys overwrite_probability chooses from"]
        overwrite_window_size: u32 = 1;
        #[doc = "Bytes of the key that prefix filters use; 0: none"]
        prefix_size: i32 = 0;
        #[doc = "How many keys share a prefix; 0: keys have no prefix of their own"]
        keys_per_prefix: i64 = 0;
        #[doc = "Iterators do not use prefix filters"]
        total_order_seek: bool = false;
        #[doc = "Iterators end where the prefix of the seek target ends"]
        prefix_same_as_start: bool = false;
        #[doc = "Iterators use prefix filters where a bound allows it; seekrandom sets one behind the prefix of the target"]
        auto_prefix_mode: bool = false;
        #[doc = "Iterators see what is new; seekrandom uses one for all seeks"]
        use_tailing_iterator: bool = false;
        #[doc = "Bytes that iterators read ahead; 0: as they see fit"]
        readahead_size: i32 = 0;
        #[doc = "Read the blocks of a multi_get at once where the system can"]
        async_io: bool = false;
        #[doc = "Take the options from this OPTIONS file, and from flags only what it does not say"]
        options_file: String = String::new();
        #[doc = "Bytes of the block cache; 0: no cache"]
        cache_size: i64 = 32 << 20;
        #[doc = "log2 of the number of shards of the block cache; negative: by its size"]
        cache_numshardbits: i32 = -1;
        #[doc = "Bytes of a simulated block cache; below 0: none"]
        simcache_size: i64 = -1;
        #[doc = "Trace what the benchmarks ask to this file; what `replay` replays is taken from it"]
        trace_file: String = String::new();
        #[doc = "Trace what the benchmarks ask the block cache for to this file"]
        block_cache_trace_file: String = String::new();
        #[doc = "One in so many blocks goes into the trace of the block cache, chosen by their keys"]
        block_cache_trace_sampling_frequency: i32 = 1;
        #[doc = "Nothing is added to a trace of the block cache of more bytes"]
        block_cache_trace_max_trace_file_size_in_bytes: i64 = 64 << 30;
        #[doc = "How many times as fast as it was traced `replay` is; 0: as fast as it goes"]
        trace_replay_fast_forward: f64 = 1.0;
        #[doc = "How many threads `replay` has"]
        trace_replay_threads: i32 = 1;
        #[doc = "Bytes of the row cache; 0: no such cache"]
        row_cache_size: i64 = 0;
        #[doc = "The kind of block cache; the engine has one, which all names of RocksDB's stand for"]
        cache_type: String = "hyper_clock_cache".to_owned();
        #[doc = "Bits of the filter per key; 0 or below: no filter"]
        bloom_bits: f64 = -1.0;
        #[doc = "Make the filter a Ribbon filter"]
        use_ribbon_filter: bool = false;
        #[doc = "Write plain tables, for keys of key_size bytes; needs prefix_size"]
        use_plain_table: bool = false;
        #[doc = "Write cuckoo tables; all values have to have one size"]
        use_cuckoo_table: bool = false;
        #[doc = "Entries of a cuckoo table per bucket"]
        cuckoo_hash_ratio: f64 = 0.9;
        #[doc = "The first hash of a key in a cuckoo table is its first 8 bytes"]
        identity_as_first_hash: bool = false;
        #[doc = "The codec: none, snappy, zlib, bzip2, lz4, lz4hc or zstd"]
        compression_type: String = "snappy".to_owned();
        #[doc = "The codec of WALs: none or zstd"]
        wal_compression: String = "none".to_owned();
        #[doc = "The codec's level; 32767: its default"]
        compression_level: i32 = 32767;
        #[doc = "Bytes of the dictionary of each table; 0: none"]
        compression_max_dict_bytes: u32 = 0;
        #[doc = "Bytes of samples that a ZSTD dictionary is trained from; 0: it is not trained"]
        compression_zstd_max_train_bytes: u32 = 0;
        #[doc = "Threads that compress the blocks of one table"]
        compression_parallel_threads: u32 = 1;
        #[doc = "Bytes held back while samples are gathered; 0: no limit"]
        compression_max_dict_buffer_bytes: u64 = 0;
        #[doc = "Train ZSTD dictionaries with the trainer"]
        compression_use_zstd_dict_trainer: bool = true;
        #[doc = "Levels above this one are not compressed; negative: all are"]
        min_level_to_compress: i32 = -1;
        #[doc = "The kind of memtable: skip_list or vector"]
        memtablerep: String = "skip_list".to_owned();
        #[doc = "How compactions are picked; only 0, levelled"]
        compaction_style: i32 = 0;
        #[doc = "Which file of a level is compacted first, 0 to 4"]
        compaction_pri: i32 = 3;
        #[doc = "The checksum of blocks: 0 none, 1 CRC32c, 2 xxHash, 3 xxHash64, 4 XXH3"]
        checksum_type: i32 = 4;
        #[doc = "How far the index shortens keys, 0 to 2"]
        index_shortening_mode: i64 = 2;
        #[doc = "Put blocks of new tables into the block cache: 0 none, 1 those of flushes, 2 those of compactions too"]
        prepopulate_block_cache: i64 = 0;
        #[doc = "Write a two-level index"]
        partition_index: bool = false;
        #[doc = "Write a two-level index and filter partitions"]
        partition_index_and_filters: bool = false;
        #[doc = "Write the first key of each block to the index"]
        index_with_first_key: bool = false;
        #[doc = "Write a hash index; needs prefix_size"]
        use_hash_search: bool = false;
        #[doc = "Write a hash table into each data block"]
        use_data_block_hash_index: bool = false;
        #[doc = "Factors of the sizes of the levels, with commas between them"]
        max_bytes_for_level_multiplier_additional: String = String::new();
        #[doc = "In how many key ranges a compaction may be split"]
        subcompactions: u64 = 1;
        #[doc = "Older data is compacted down, in seconds; the default leaves it to the engine"]
        ttl_seconds: u64 = ENGINE_DECIDES;
        #[doc = "Older files are rewritten, in seconds; the default leaves it to the engine"]
        periodic_compaction_seconds: u64 = ENGINE_DECIDES;
        #[doc = "Accepted; the engine keeps no per-thread performance counters"]
        perf_level: i32 = 1;
        #[doc = "Print how long the database took to open"]
        report_open_timing: bool = false;
        #[doc = "The engine's LOG goes to the standard error output"]
        use_stderr_info_logger: bool = false;
    }
    rows {
        database("advise_random_on_open", Bool, "true", "advise_random_on_open");
        database("allow_concurrent_memtable_write", Bool, "true", "allow_concurrent_memtable_write");
        database("allow_data_in_errors", Bool, "false", "allow_data_in_errors");
        database("async_wal_precreate", Bool, "false", "async_wal_precreate");
        database("avoid_flush_during_recovery", Bool, "false", "avoid_flush_during_recovery");
        database("avoid_flush_during_shutdown", Bool, "false", "avoid_flush_during_shutdown");
        database("bytes_per_sync", Uint64, "0", "bytes_per_sync");
        database("compaction_readahead_size", Uint64, "2097152", "compaction_readahead_size");
        database("db_write_buffer_size", Int64, "0", "db_write_buffer_size");
        database("delayed_write_rate", Uint64, "8388608", "delayed_write_rate");
        database("delete_obsolete_files_period_micros", Uint64, "0", "delete_obsolete_files_period_micros");
        database("dump_malloc_stats", Bool, "true", "dump_malloc_stats");
        database("enable_pipelined_write", Bool, "true", "enable_pipelined_write");
        database("enable_write_thread_adaptive_yield", Bool, "true", "enable_write_thread_adaptive_yield");
        database("file_opening_threads", Int32, "16", "max_file_opening_threads");
        database("log_readahead_size", Int32, "0", "log_readahead_size");
        database("manual_wal_flush", Bool, "false", "manual_wal_flush");
        database("max_background_compactions", Int32, "-1", "max_background_compactions");
        database("max_background_flushes", Int32, "-1", "max_background_flushes");
        database("max_background_jobs", Int32, "2", "max_background_jobs");
        database("max_compaction_trigger_wakeup_seconds", Uint64, "43200", "max_compaction_trigger_wakeup_seconds");
        database("max_manifest_file_size", Int64, "1073741824", "max_manifest_file_size");
        database("max_manifest_space_amp_pct", Int32, "500", "max_manifest_space_amp_pct");
        database("max_total_wal_size", Uint64, "0", "max_total_wal_size");
        database("mmap_read", Bool, "false", "allow_mmap_reads");
        database("mmap_write", Bool, "false", "allow_mmap_writes");
        database("open_files", Int32, "-1", "max_open_files");
        database("open_files_async", Bool, "false", "open_files_async");
        database("paranoid_checks", Bool, "true", "paranoid_checks");
        database("persist_stats_to_disk", Bool, "false", "persist_stats_to_disk");
        database("rate_limiter_bytes_per_sec", Uint64, "0", "rate_limiter_bytes_per_sec");
        database("skip_stats_update_on_db_open", Bool, "false", "skip_stats_update_on_db_open");
        database("stats_dump_period_sec", Uint64, "600", "stats_dump_period_sec");
        database("stats_history_buffer_size", Uint64, "1048576", "stats_history_buffer_size");
        database("stats_persist_period_sec", Uint64, "600", "stats_persist_period_sec");
        database("table_cache_numshardbits", Int32, "4", "table_cache_numshardbits");
        database("track_and_verify_wals", Bool, "false", "track_and_verify_wals");
        database("track_and_verify_wals_in_manifest", Bool, "false", "track_and_verify_wals_in_manifest");
        database("unordered_write", Bool, "false", "unordered_write");
        database("use_adaptive_mutex", Bool, "false", "use_adaptive_mutex");
        database("use_direct_io_for_compaction_reads", Bool, "false", "use_direct_io_for_compaction_reads");
        database("use_direct_io_for_flush_and_compaction", Bool, "false", "use_direct_io_for_flush_and_compaction");
        database("use_direct_reads", Bool, "false", "use_direct_reads");
        database("use_fsync", Bool, "false", "use_fsync");
        database("verify_manifest_content_on_close", Bool, "false", "verify_manifest_content_on_close");
        database("wal_bytes_per_sync", Uint64, "0", "wal_bytes_per_sync");
        database("wal_dir", Text, "", "wal_dir");
        database("wal_size_limit_MB", Uint64, "0", "WAL_size_limit_MB");
        database("wal_ttl_seconds", Uint64, "0", "WAL_ttl_seconds");
        database("writable_file_max_buffer_size", Int32, "1048576", "writable_file_max_buffer_size");
        database("write_thread_max_yield_usec", Uint64, "100", "write_thread_max_yield_usec");
        database("write_thread_slow_yield_usec", Uint64, "3", "write_thread_slow_yield_usec");
        column_family("arena_block_size", Int64, "0", "arena_block_size");
        column_family("blob_compaction_readahead_size", Uint64, "0", "blob_compaction_readahead_size");
        column_family("blob_direct_write_partitions", Uint64, "1", "blob_direct_write_partitions");
        column_family("blob_file_size", Uint64, "268435456", "blob_file_size");
        column_family("blob_file_starting_level", Int32, "0", "blob_file_starting_level");
        column_family("blob_garbage_collection_age_cutoff", Double, "0.25", "blob_garbage_collection_age_cutoff");
        column_family("blob_garbage_collection_force_threshold", Double, "1", "blob_garbage_collection_force_threshold");
        column_family("block_protection_bytes_per_key", Uint32, "0", "block_protection_bytes_per_key");
        column_family("bloom_locality", Int32, "0", "bloom_locality");
        column_family("disable_auto_compactions", Bool, "false", "disable_auto_compactions");
        column_family("enable_blob_direct_write", Bool, "false", "enable_blob_direct_write");
        column_family("enable_blob_files", Bool, "false", "enable_blob_files");
        column_family("enable_blob_garbage_collection", Bool, "false", "enable_blob_garbage_collection");
        column_family("experimental_mempurge_threshold", Double, "0", "experimental_mempurge_threshold");
        column_family("force_consistency_checks", Bool, "true", "force_consistency_checks");
        column_family("hard_pending_compaction_bytes_limit", Uint64, "137438953472", "hard_pending_compaction_bytes_limit");
        column_family("inplace_update_num_locks", Uint64, "10000", "inplace_update_num_locks");
        column_family("inplace_update_support", Bool, "false", "inplace_update_support");
        column_family("level0_file_num_compaction_trigger", Int32, "4", "level0_file_num_compaction_trigger");
        column_family("level0_slowdown_writes_trigger", Int32, "20", "level0_slowdown_writes_trigger");
        column_family("level0_stop_writes_trigger", Int32, "36", "level0_stop_writes_trigger");
        column_family("level_compaction_dynamic_level_bytes", Bool, "false", "level_compaction_dynamic_level_bytes");
        column_family("max_bytes_for_level_base", Uint64, "268435456", "max_bytes_for_level_base");
        column_family("max_bytes_for_level_multiplier", Double, "10", "max_bytes_for_level_multiplier");
        column_family("max_compaction_bytes", Uint64, "0", "max_compaction_bytes");
        column_family("max_successive_merges", Int32, "0", "max_successive_merges");
        column_family("max_write_buffer_number", Int32, "2", "max_write_buffer_number");
        column_family("max_write_buffer_size_to_maintain", Int64, "0", "max_write_buffer_size_to_maintain");
        column_family("memtable_batch_lookup_optimization", Bool, "false", "memtable_batch_lookup_optimization");
        column_family("memtable_bloom_size_ratio", Double, "0", "memtable_prefix_bloom_size_ratio");
        column_family("memtable_op_scan_flush_trigger", Uint32, "0", "memtable_op_scan_flush_trigger");
        column_family("memtable_protection_bytes_per_key", Uint32, "0", "memtable_protection_bytes_per_key");
        column_family("memtable_verify_per_key_checksum_on_seek", Bool, "false", "memtable_verify_per_key_checksum_on_seek");
        column_family("memtable_whole_key_filtering", Bool, "false", "memtable_whole_key_filtering");
        column_family("min_blob_size", Uint64, "0", "min_blob_size");
        column_family("min_tombstones_for_range_conversion", Uint32, "0", "min_tombstones_for_range_conversion");
        column_family("min_write_buffer_number_to_merge", Int32, "1", "min_write_buffer_number_to_merge");
        column_family("num_levels", Int32, "7", "num_levels");
        column_family("optimize_filters_for_hits", Bool, "false", "optimize_filters_for_hits");
        column_family("paranoid_memory_checks", Bool, "false", "paranoid_memory_checks");
        column_family("preclude_last_level_data_seconds", Int64, "0", "preclude_last_level_data_seconds");
        column_family("preserve_internal_time_seconds", Int64, "0", "preserve_internal_time_seconds");
        column_family("read_triggered_compaction_threshold", Double, "0", "read_triggered_compaction_threshold");
        column_family("report_bg_io_stats", Bool, "false", "report_bg_io_stats");
        column_family("sample_for_compression", Int64, "0", "sample_for_compression");
        column_family("soft_pending_compaction_bytes_limit", Uint64, "68719476736", "soft_pending_compaction_bytes_limit");
        column_family("strict_max_successive_merges", Bool, "false", "strict_max_successive_merges");
        column_family("target_file_size_base", Int64, "67108864", "target_file_size_base");
        column_family("target_file_size_multiplier", Int32, "1", "target_file_size_multiplier");
        column_family("uncache_aggressiveness", Uint32, "10000", "uncache_aggressiveness");
        column_family("write_buffer_size", Int64, "67108864", "write_buffer_size");
        table("block_align", Bool, "false", "block_align");
        table("block_restart_interval", Int32, "16", "block_restart_interval");
        table("block_size", Int32, "4096", "block_size");
        table("cache_index_and_filter_blocks", Bool, "false", "cache_index_and_filter_blocks");
        table("data_block_hash_table_util_ratio", Double, "0.75", "data_block_hash_table_util_ratio");
        table("decouple_partitioned_filters", Bool, "true", "decouple_partitioned_filters");
        table("enable_index_compression", Bool, "true", "enable_index_compression");
        table("format_version", Int32, "5", "format_version");
        table("index_block_restart_interval", Int32, "1", "index_block_restart_interval");
        table("initial_auto_readahead_size", Uint64, "8192", "initial_auto_readahead_size");
        table("max_auto_readahead_size", Uint64, "262144", "max_auto_readahead_size");
        table("metadata_block_size", Int64, "4096", "metadata_block_size");
        table("num_file_reads_for_auto_readahead", Uint64, "2", "num_file_reads_for_auto_readahead");
        table("optimize_filters_for_memory", Bool, "true", "optimize_filters_for_memory");
        table("pin_l0_filter_and_index_blocks_in_cache", Bool, "false", "pin_l0_filter_and_index_blocks_in_cache");
        table("pin_top_level_index_and_filter", Bool, "false", "pin_top_level_index_and_filter");
        table("read_amp_bytes_per_bit", Int32, "0", "read_amp_bytes_per_bit");
        table("separate_key_value_in_data_block", Bool, "false", "separate_key_value_in_data_block");
        table("super_block_alignment_size", Uint64, "0", "super_block_alignment_size");
        table("super_block_alignment_space_overhead_ratio", Uint64, "128", "super_block_alignment_space_overhead_ratio");
        table("uniform_cv_threshold", Double, "-1", "uniform_cv_threshold");
        table("verify_compression", Bool, "false", "verify_compression");
        table("whole_key_filtering", Bool, "true", "whole_key_filtering");
        ignored("disable_seek_compaction", Int32, "0", "RocksDB itself does nothing with it");
        ignored("simulate_hybrid_hdd_multipliers", Int32, "1", "RocksDB retired the kinds of its cache");
        ignored("index_block_search_type", Text, "binary_search", "index blocks have one search");
        ignored("print_malloc_stats", Bool, "false", "it only changes what is printed");
        ignored("report_file_operations", Bool, "false", "it only changes what is printed");
        ignored("show_table_properties", Bool, "false", "it only changes what is printed");
        ignored("thread_status_per_interval", Int32, "0", "it only changes what is printed");
        ignored("compaction_fadvice", Text, "NORMAL", "it tunes the operating system or its threads");
        ignored("enable_cpu_prio", Bool, "false", "it tunes the operating system or its threads");
        ignored("enable_io_prio", Bool, "false", "it tunes the operating system or its threads");
        ignored("io_uring_enabled", Bool, "true", "it tunes the operating system or its threads");
        ignored("num_high_pri_threads", Int32, "0", "it tunes the operating system or its threads");
        ignored("num_low_pri_threads", Int32, "0", "it tunes the operating system or its threads");
        ignored("adaptive_readahead", Bool, "false", "iterators always read ahead on their own");
        ignored("auto_readahead_size", Bool, "false", "iterators always read ahead on their own");
        ignored("auto_refresh_iterator_with_snapshot", Bool, "false", "iterators keep their view unless they are refreshed");
        ignored("fifo_age_for_warm", Uint64, "0", "levelled compaction does not use it");
        ignored("fifo_compaction_allow_compaction", Bool, "true", "levelled compaction does not use it");
        ignored("fifo_compaction_max_data_files_size_mb", Uint64, "0", "levelled compaction does not use it");
        ignored("fifo_compaction_max_table_files_size_mb", Uint64, "0", "levelled compaction does not use it");
        ignored("fifo_compaction_ttl", Uint64, "0", "levelled compaction does not use it");
        ignored("fifo_compaction_use_kv_ratio_compaction", Bool, "false", "levelled compaction does not use it");
        ignored("universal_allow_trivial_move", Bool, "false", "levelled compaction does not use it");
        ignored("universal_compression_size_percent", Int32, "-1", "levelled compaction does not use it");
        ignored("universal_incremental", Bool, "false", "levelled compaction does not use it");
        ignored("universal_max_merge_width", Int32, "0", "levelled compaction does not use it");
        ignored("universal_max_read_amp", Int32, "-1", "levelled compaction does not use it");
        ignored("universal_max_size_amplification_percent", Int32, "0", "levelled compaction does not use it");
        ignored("universal_min_merge_width", Int32, "0", "levelled compaction does not use it");
        ignored("universal_reduce_file_locking", Bool, "false", "levelled compaction does not use it");
        ignored("universal_size_ratio", Int32, "0", "levelled compaction does not use it");
        ignored("universal_stop_style", Int32, "1", "levelled compaction does not use it");
        ignored("compressed_cache_size", Int64, "-1", "no compressed cache");
        ignored("compressed_secondary_cache_compress_format_version", Uint32, "2", "no compressed cache");
        ignored("compressed_secondary_cache_compression_level", Int32, "32767", "no compressed cache");
        ignored("compressed_secondary_cache_compression_type", Text, "lz4", "no compressed cache");
        ignored("compressed_secondary_cache_high_pri_pool_ratio", Double, "0", "no compressed cache");
        ignored("compressed_secondary_cache_low_pri_pool_ratio", Double, "0", "no compressed cache");
        ignored("compressed_secondary_cache_numshardbits", Int32, "6", "no compressed cache");
        ignored("compressed_secondary_cache_size", Int64, "8388608", "no compressed cache");
        ignored("tiered_adm_policy", Text, "auto", "no compressed cache");
        ignored("read_cache_direct_read", Bool, "true", "no read cache on a device");
        ignored("read_cache_direct_write", Bool, "true", "no read cache on a device");
        ignored("read_cache_size", Int64, "4294967296", "no read cache on a device");
        ignored("secondary_update_interval", Int32, "5", "no secondary instance");
        ignored("read_with_latest_user_timestamp", Bool, "true", "no user-defined timestamps");
        ignored("blob_db_bytes_per_sync", Uint64, "524288", "only BlobDB uses it");
        ignored("blob_db_compression_type", Text, "snappy", "only BlobDB uses it");
        ignored("blob_db_enable_gc", Bool, "false", "only BlobDB uses it");
        ignored("blob_db_file_size", Uint64, "268435456", "only BlobDB uses it");
        ignored("blob_db_gc_cutoff", Double, "0.25", "only BlobDB uses it");
        ignored("blob_db_is_fifo", Bool, "false", "only BlobDB uses it");
        ignored("blob_db_max_db_size", Uint64, "0", "only BlobDB uses it");
        ignored("blob_db_max_ttl_range", Uint64, "0", "only BlobDB uses it");
        ignored("blob_db_min_blob_size", Uint64, "0", "only BlobDB uses it");
        ignored("blob_db_ttl_range_secs", Uint64, "3600", "only BlobDB uses it");
        ignored("backup_dir", Text, "", "only a benchmark that is not built uses it");
        ignored("backup_rate_limit", Uint64, "0", "only a benchmark that is not built uses it");
        ignored("coro_jobs_per_thread", Int32, "1", "only a benchmark that is not built uses it");
        ignored("deletepercent", Int32, "2", "only a benchmark that is not built uses it");
        ignored("disposable_entries_delete_delay", Uint64, "0", "only a benchmark that is not built uses it");
        ignored("disposable_entries_value_size", Int32, "64", "only a benchmark that is not built uses it");
        ignored("expire_style", Text, "none", "only a benchmark that is not built uses it");
        ignored("ingest_external_file_batch_size", Int32, "10", "only a benchmark that is not built uses it");
        ignored("ingest_external_file_file_opening_threads", Int32, "1", "only a benchmark that is not built uses it");
        ignored("ingest_external_file_fill_cache", Bool, "true", "only a benchmark that is not built uses it");
        ignored("ingest_external_file_num_batches", Int32, "1", "only a benchmark that is not built uses it");
        ignored("ingest_external_file_prefetch_lmax_index_and_filter_blocks", Bool, "true", "only a benchmark that is not built uses it");
        ignored("ingest_external_file_use_file_info", Bool, "false", "only a benchmark that is not built uses it");
        ignored("io_dispatcher_max_prefetch_memory_bytes", Uint64, "0", "only a benchmark that is not built uses it");
        ignored("iter_k", Double, "2.517", "only a benchmark that is not built uses it");
        ignored("iter_sigma", Double, "14.236", "only a benchmark that is not built uses it");
        ignored("iter_theta", Double, "0", "only a benchmark that is not built uses it");
        ignored("key_dist_a", Double, "0", "only a benchmark that is not built uses it");
        ignored("key_dist_b", Double, "0", "only a benchmark that is not built uses it");
        ignored("key_id_range", Int32, "100000", "only a benchmark that is not built uses it");
        ignored("keyrange_dist_a", Double, "0", "only a benchmark that is not built uses it");
        ignored("keyrange_dist_b", Double, "0", "only a benchmark that is not built uses it");
        ignored("keyrange_dist_c", Double, "0", "only a benchmark that is not built uses it");
        ignored("keyrange_dist_d", Double, "0", "only a benchmark that is not built uses it");
        ignored("keyrange_num", Int64, "1", "only a benchmark that is not built uses it");
        ignored("mix_accesses", Int64, "-1", "only a benchmark that is not built uses it");
        ignored("mix_get_ratio", Double, "1", "only a benchmark that is not built uses it");
        ignored("mix_max_scan_len", Int64, "10000", "only a benchmark that is not built uses it");
        ignored("mix_max_value_size", Int64, "1024", "only a benchmark that is not built uses it");
        ignored("mix_put_ratio", Double, "0", "only a benchmark that is not built uses it");
        ignored("mix_seek_ratio", Double, "0", "only a benchmark that is not built uses it");
        ignored("multiscan_coalesce_threshold", Uint64, "16384", "only a benchmark that is not built uses it");
        ignored("multiscan_max_prefetch_size", Uint64, "0", "only a benchmark that is not built uses it");
        ignored("multiscan_size", Int64, "10", "only a benchmark that is not built uses it");
        ignored("multiscan_stride", Int64, "100", "only a benchmark that is not built uses it");
        ignored("multiscan_use_async_io", Bool, "false", "only a benchmark that is not built uses it");
        ignored("num_deletion_threads", Int32, "1", "only a benchmark that is not built uses it");
        ignored("num_short_wide_columns", Int32, "1", "only a benchmark that is not built uses it");
        ignored("num_wide_columns", Int32, "4", "only a benchmark that is not built uses it");
        ignored("numdistinct", Int64, "1000", "only a benchmark that is not built uses it");
        ignored("openandcompact_allow_resumption", Bool, "false", "only a benchmark that is not built uses it");
        ignored("openandcompact_cancel_after_millseconds", Uint32, "1", "only a benchmark that is not built uses it");
        ignored("openandcompact_test_cancel_on_odd", Bool, "false", "only a benchmark that is not built uses it");
        ignored("persistent_entries_value_size", Int32, "64", "only a benchmark that is not built uses it");
        ignored("restore_dir", Text, "", "only a benchmark that is not built uses it");
        ignored("restore_rate_limit", Uint64, "0", "only a benchmark that is not built uses it");
        ignored("sine_a", Double, "1", "only a benchmark that is not built uses it");
        ignored("sine_b", Double, "1", "only a benchmark that is not built uses it");
        ignored("sine_c", Double, "0", "only a benchmark that is not built uses it");
        ignored("sine_d", Double, "1", "only a benchmark that is not built uses it");
        ignored("sine_mix_rate", Bool, "false", "only a benchmark that is not built uses it");
        ignored("sine_mix_rate_interval_milliseconds", Uint64, "10000", "only a benchmark that is not built uses it");
        ignored("sine_mix_rate_noise", Double, "0", "only a benchmark that is not built uses it");
        ignored("sine_write_rate_interval_milliseconds", Uint64, "10000", "only a benchmark that is not built uses it");
        ignored("stddev", Double, "2000", "only a benchmark that is not built uses it");
        ignored("time_range", Uint64, "100000", "only a benchmark that is not built uses it");
        ignored("transaction_lock_timeout", Uint64, "100", "only a benchmark that is not built uses it");
        ignored("transaction_set_snapshot", Bool, "false", "only a benchmark that is not built uses it");
        ignored("transaction_sets", Uint64, "2", "only a benchmark that is not built uses it");
        ignored("transaction_sleep", Int32, "0", "only a benchmark that is not built uses it");
        ignored("truth_db", Text, "/dev/shm/truth_db/dbbench", "only a benchmark that is not built uses it");
        ignored("use_multiscan", Bool, "true", "only a benchmark that is not built uses it");
        ignored("value_k", Double, "0.2615", "only a benchmark that is not built uses it");
        ignored("value_sigma", Double, "25.45", "only a benchmark that is not built uses it");
        ignored("value_theta", Double, "0", "only a benchmark that is not built uses it");
        ignored("blob_cache_numshardbits", Int32, "6", "only blob files use it");
        ignored("blob_cache_size", Uint64, "8388608", "only blob files use it");
        ignored("blob_compression_type", Text, "none", "only blob files use it");
        ignored("embedded_blob_min_size", Uint64, "2048", "only blob files use it");
        ignored("prepopulate_blob_cache", Int32, "0", "only blob files use it");
        ignored("use_blob_cache", Bool, "false", "only blob files use it");
        ignored("use_shared_block_and_blob_cache", Bool, "true", "only blob files use it");
        ignored("use_single_deletes", Bool, "true", "only deletion benchmarks that are not built use it");
        ignored("optimize_multiget_for_io", Bool, "true", "the block reads of one multi_get always go out together");
        ignored("charge_blob_cache", Bool, "false", "the cache is charged with blocks only");
        ignored("charge_compression_dictionary_building_buffer", Bool, "false", "the cache is charged with blocks only");
        ignored("charge_file_metadata", Bool, "false", "the cache is charged with blocks only");
        ignored("charge_filter_construction", Bool, "false", "the cache is charged with blocks only");
        ignored("charge_table_reader", Bool, "false", "the cache is charged with blocks only");
        ignored("cost_write_buffer_to_cache", Bool, "false", "the cache is charged with blocks only");
        ignored("cache_high_pri_pool_ratio", Double, "0", "the engine has one kind of cache");
        ignored("cache_low_pri_pool_ratio", Double, "0", "the engine has one kind of cache");
        ignored("use_cache_jemalloc_no_dump_allocator", Bool, "false", "the engine has one kind of cache");
        ignored("use_cache_memkind_kmem_allocator", Bool, "false", "the engine has one kind of cache");
        ignored("hash_bucket_count", Int64, "1048576", "the memtable has its own structure");
        ignored("memtable_insert_with_hint_prefix_size", Int32, "0", "the memtable has its own structure");
        ignored("memtable_use_huge_page", Bool, "false", "the memtable has its own structure");
        ignored("skip_list_lookahead", Int32, "0", "the memtable has its own structure");
        ignored("rate_limit_auto_wal_flush", Bool, "false", "there is no rate limiter");
        ignored("rate_limit_bg_reads", Bool, "false", "there is no rate limiter");
        ignored("rate_limit_user_ops", Bool, "false", "there is no rate limiter");
        ignored("rate_limiter_auto_tuned", Bool, "false", "there is no rate limiter");
        ignored("rate_limiter_refill_period_us", Int64, "100000", "there is no rate limiter");
        ignored("rate_limiter_single_burst_bytes", Int64, "0", "there is no rate limiter");
        ignored("fatal_shutdown_watchdog_seconds", Uint64, "180", "this engine stops by itself");
        refused("build_info", Bool, "false", "a build description");
        refused("cache_uri", Text, "", "caches by URI");
        refused("column_family_distribution", Text, "", "column families with given shares");
        refused("compression_manager", Text, "none", "custom compression");
        refused("disposable_entries_batch_size", Uint64, "0", "entries that are deleted again");
        refused("enable_numa", Bool, "false", "placement on NUMA nodes");
        refused("env_uri", Text, "", "environments by URI");
        refused("fault_injection_read_after_reads", Int64, "0", "simulated devices");
        refused("file_checksum", Bool, "false", "checksums of whole files");
        refused("fs_uri", Text, "", "environments by URI");
        refused("leader_path", Text, "", "followers");
        refused("num_hot_column_families", Int32, "0", "column families made on the way");
        refused("num_multi_db", Int32, "0", "several databases in one run");
        refused("open_as_follower", Bool, "false", "followers");
        refused("optimistic_transaction_db", Bool, "false", "transactions");
        refused("persistent_entries_batch_size", Uint64, "0", "entries that are deleted again");
        refused("read_cache_path", Text, "", "a cache on a device");
        refused("secondary_cache_uri", Text, "", "caches by URI");
        refused("secondary_path", Text, "", "secondary instances");
        refused("simulate_hdd", Bool, "false", "simulated devices");
        refused("simulate_hybrid_fs_file", Text, "", "simulated devices");
        refused("sine_write_rate", Bool, "false", "write rates on a sine curve");
        refused("statistics_string", Text, "", "statistics from a string");
        refused("tolerate_io_errors_for_remote_dbs", Bool, "false", "tolerance of failed reads and writes");
        refused("transaction_db", Bool, "false", "transactions");
        refused("use_blob_db", Bool, "false", "blob files");
        refused("use_compressed_secondary_cache", Bool, "false", "compressed secondary caches");
        refused("use_existing_keys", Bool, "false", "benchmarks over the keys that exist");
        refused("use_keep_filter", Bool, "false", "compaction filters");
        refused("use_secondary_db", Bool, "false", "secondary instances");
        refused("use_tiered_cache", Bool, "false", "compressed secondary caches");
        refused("use_trie_index", Bool, "false", "user-defined indexes");
        refused("use_uint64_comparator", Bool, "false", "the uint64 comparator");
        refused("user_timestamp_size", Int32, "0", "user-defined timestamps");
        refused("seek_nexts_to_delete", Int32, "0", "deletes after a seek");
        retired("allow_os_buffer");
        retired("base_background_compactions");
        retired("bufferedio");
        retired("cache_remove_scan_count_limit");
        retired("check_flush_compaction_key_order");
        retired("compaction_measure_io_stats");
        retired("disable_data_sync");
        retired("disable_flashcache_for_background_threads");
        retired("expanded_compaction_factor");
        retired("filter_deletes");
        retired("flashcache_dev");
        retired("hard_rate_limit");
        retired("ignore_max_compaction_bytes_for_input");
        retired("level_compaction_dynamic_file_size");
        retired("max_grandparent_overlap_factor");
        retired("max_mem_compaction_level");
        retired("max_write_buffer_number_to_maintain");
        retired("memtable_bloom_bits");
        retired("memtable_prefix_bloom_bits");
        retired("min_partial_merge_operands");
        retired("new_table_reader_for_compaction_inputs");
        retired("purge_redundant_kvs_while_flush");
        retired("random_access_max_buffer_size");
        retired("rate_limit_delay_max_milliseconds");
        retired("report_thread_idle");
        retired("skip_table_builder_flush");
        retired("soft_rate_limit");
        retired("source_compaction_factor");
        retired("use_block_based_filter");
        retired("use_clock_cache");
        retired("use_direct_writes");
        retired("verify_checksums_in_compaction");
    }
}

/// For `ttl_seconds` and `periodic_compaction_seconds`.
pub const ENGINE_DECIDES: u64 = u64::MAX - 1;

/// Those of RocksDB's default list that are built.
const DEFAULT_BENCHMARKS: &str = "fillseq,fillsync,fillrandom,overwrite,readrandom,newiterator,\
    newiteratorwhilewriting,seekrandom,seekrandomwhilewriting,readseq,readreverse,compact,compactall,flush,\
    waitforcompaction,multireadrandom,readseq,readtocache,readreverse,readwhilewriting,readwhilescanning,\
    readrandomwriterandom,updaterandom,fill100K,crc32c,xxhash,xxhash64,xxh3,compress,uncompress,acquireload";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_defaults_are_values() {
        let mut names = std::collections::BTreeSet::new();
        for flag in Flags::table() {
            assert!(names.insert(flag.name), "{} is there twice", flag.name);
            if !matches!(flag.role, Role::Bench { .. }) {
                assert!(flag.kind.normalize(flag.default).is_some(), "{}", flag.name);
            }
        }
    }
}
