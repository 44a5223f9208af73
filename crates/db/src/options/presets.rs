//! Settings that go together.

use super::{ColumnFamilyOptions, DbOptions, Options};
use ironstone_base::sync::Arc;
use ironstone_cache::{Cache, CacheOptions};
use ironstone_compaction::CompactionStyle;
use ironstone_sst::{BlockCache, CompressionKind, DataBlockIndexType, FilterPolicy};

fn cache_of(bytes: usize) -> Arc<BlockCache> {
    Cache::new(CacheOptions { capacity: bytes, ..CacheOptions::default() })
}

impl DbOptions {
    /// Uses `total_threads` threads for flushes and compactions together.
    pub fn increase_parallelism(&mut self, total_threads: i32) -> &mut Self {
        self.max_background_jobs = total_threads;
        self
    }

    /// Few open files: for databases much smaller than a gigabyte.
    pub fn optimize_for_small_db(&mut self) -> &mut Self {
        self.max_open_files = 5000;
        self
    }
}

impl ColumnFamilyOptions {
    /// For reads of single keys, not of ranges: filters of tables and memtables, hashes in data blocks, and a block cache
    /// of so many MiB.
    pub fn optimize_for_point_lookup(&mut self, block_cache_mib: u64) -> &mut Self {
        self.table.data_block_index_type = DataBlockIndexType::BinarySearchAndHash;
        self.table.data_block_hash_table_util_ratio = 0.75;
        self.table.filter_policy = Some(FilterPolicy::bloom(10.0));
        self.table.block_cache = Some(cache_of(usize::try_from(block_cache_mib << 20).unwrap_or(usize::MAX)));
        self.memtable_prefix_bloom_size_ratio = 0.02;
        self.memtable_whole_key_filtering = true;
        self
    }

    /// For heavy writes, with about so many bytes in memtables (half as much again at worst): larger
    /// flushes, no compression where data is young.
    ///
    /// ```
    /// use ironstone::{Db, Options};
    ///
    /// let mut options = Options::in_memory();
    /// options.db.increase_parallelism(4);
    /// options.cf.optimize_level_style_compaction(256 << 20).optimize_for_point_lookup(64);
    /// assert_eq!(options.db.max_background_jobs, 4);
    /// assert_eq!(options.cf.write_buffer_size, 64 << 20);
    /// assert!(options.cf.table.filter_policy.is_some());
    /// options.cf.write_buffer_size = 32 << 20; // What you know better.
    /// let db = Db::open(&options, "/db")?;
    /// # Ok::<_, ironstone::Error>(())
    /// ```
    pub fn optimize_level_style_compaction(&mut self, memtable_memory_budget: u64) -> &mut Self {
        self.write_buffer_size = usize::try_from(memtable_memory_budget / 4).unwrap_or(usize::MAX);
        self.min_write_buffer_number_to_merge = 2;
        self.max_write_buffer_number = 6;
        // A file of level 0 is two memtables, so level 0 is compacted once it has reached the budget, and
        // the next level is as large.
        self.level0_file_num_compaction_trigger = 2;
        self.target_file_size_base = memtable_memory_budget / 8;
        self.max_bytes_for_level_base = memtable_memory_budget;
        let codec = |level| if level < 2 { CompressionKind::None } else { CompressionKind::Lz4 };
        self.compression_per_level = (0..self.num_levels).map(codec).collect();
        self
    }

    /// For heavy writes where space may be spent, with about so many bytes in memtables (half as much again at worst):
    /// universal compaction, and about the youngest fifth of the data not compressed.
    pub fn optimize_universal_style_compaction(&mut self, memtable_memory_budget: u64) -> &mut Self {
        self.write_buffer_size = usize::try_from(memtable_memory_budget / 4).unwrap_or(usize::MAX);
        self.min_write_buffer_number_to_merge = 2;
        self.max_write_buffer_number = 6;
        self.compaction_style = CompactionStyle::Universal;
        self.compaction_options_universal.compression_size_percent = 80;
        self
    }

    /// Small buffers and a small cache: for databases much smaller than a gigabyte.
    pub fn optimize_for_small_db(&mut self) -> &mut Self {
        self.write_buffer_size = 2 << 20;
        self.target_file_size_base = 2 << 20;
        self.max_bytes_for_level_base = 10 << 20;
        self.soft_pending_compaction_bytes_limit = 256 << 20;
        self.hard_pending_compaction_bytes_limit = 1 << 30;
        self.table.block_cache = Some(cache_of(16 << 20));
        self.table.cache_index_and_filter_blocks = true;
        self.table.index_type = ironstone_sst::IndexType::TwoLevel;
        self
    }
}

impl Options {
    /// For loading data in any order: everything stays in level 0, nothing is slowed down or compacted.
    /// Call `compact_range` when it is done.
    pub fn prepare_for_bulk_load(&mut self) -> &mut Self {
        self.cf.level0_file_num_compaction_trigger = 1 << 30;
        self.cf.level0_slowdown_writes_trigger = 1 << 30;
        self.cf.level0_stop_writes_trigger = 1 << 30;
        self.cf.soft_pending_compaction_bytes_limit = 0;
        self.cf.hard_pending_compaction_bytes_limit = 0;
        self.cf.disable_auto_compactions = true;
        self.cf.max_compaction_bytes = 1 << 60; // One compaction takes it all,
        self.cf.num_levels = 2; // in one step,
        self.cf.target_file_size_base = 256 << 20; // into large files.
        self.cf.max_write_buffer_number = 6;
        self.cf.min_write_buffer_number_to_merge = 1;
        self.db.max_background_flushes = 4;
        self.db.max_background_compactions = 2;
        self
    }
}
