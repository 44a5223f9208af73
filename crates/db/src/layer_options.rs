//! Fills the small option structs of the layers from the database's options.

use crate::options::{ColumnFamilyOptions, DbOptions};
use crate::table_paths::paths_of;
use crate::write::controller::StallLimits;
use crate::write_buffer_manager::MemTableMemory;
use ironstone_base::statistics::LevelHistograms;
use ironstone_base::sync::Arc;
use ironstone_base::{DataInErrors, Result};
use ironstone_compaction::{CompactionOptions, CompactionStyle, DailyOffpeak, FilterSource, Partitioning};
use ironstone_memtable::{MemTableBloom, MemTableOptions};
use ironstone_sst::{BlockCache, TableOptions};
use ironstone_version::ManifestLimits;

fn count(value: i32) -> usize {
    usize::try_from(value).unwrap_or(0)
}

impl ColumnFamilyOptions {
    pub(crate) fn compaction_options(&self, db: &DbOptions) -> CompactionOptions {
        let levelled = self.compaction_style == CompactionStyle::Level;
        CompactionOptions {
            style: self.compaction_style,
            universal: self.compaction_options_universal.layer(),
            fifo: self.compaction_options_fifo.layer(),
            write_buffer_size: self.write_buffer_size,
            level0_stop_writes_trigger: count(self.level0_stop_writes_trigger),
            has_compaction_filter: self.compaction_filter.is_some()
                || self.compaction_filter_factory.is_some(),
            partitioning: Partitioning(self.sst_partitioner_factory.clone()),
            comparator: self.comparator.clone(),
            num_levels: count(self.num_levels),
            level0_file_num_compaction_trigger: count(self.level0_file_num_compaction_trigger),
            max_bytes_for_level_base: self.max_bytes_for_level_base,
            max_bytes_for_level_multiplier: self.max_bytes_for_level_multiplier,
            max_bytes_for_level_multiplier_additional: self
                .max_bytes_for_level_multiplier_additional
                .iter()
                .map(|&factor| u32::try_from(factor).unwrap_or(1))
                .collect(),
            level_compaction_dynamic_level_bytes: levelled && self.level_compaction_dynamic_level_bytes,
            target_file_size_base: self.target_file_size_base,
            target_file_size_multiplier: u32::try_from(self.target_file_size_multiplier).unwrap_or(1),
            target_file_size_is_upper_bound: self.target_file_size_is_upper_bound,
            max_compaction_bytes: self.max_compaction_bytes,
            compaction_pri: self.compaction_pri,
            ttl: self.ttl,
            periodic_compaction_seconds: self.periodic_compaction_seconds,
            daily_offpeak: db.daily_offpeak(),
            bottommost_file_compaction_delay: self.bottommost_file_compaction_delay.into(),
            compression: self.compression,
            compression_per_level: self.compression_per_level.clone(),
            bottommost_compression: self.bottommost_compression,
            compression_options: self.compression_opts.clone(),
            bottommost_compression_options: self.bottommost_compression_opts.clone(),
            allow_ingest_behind: db.allow_ingest_behind || self.cf_allow_ingest_behind,
            path_target_sizes: paths_of(db, self).iter().map(|path| path.target_size).collect(),
            max_subcompactions: db.max_subcompactions.max(1) as usize,
            ..CompactionOptions::default()
        }
    }

    /// Where flushes and compactions have their compaction filters from.
    pub(crate) fn filter_source(&self) -> Option<FilterSource<'_>> {
        match (&self.compaction_filter, &self.compaction_filter_factory) {
            (Some(filter), _) => Some(FilterSource::Shared(&**filter)),
            (None, Some(factory)) => Some(FilterSource::Factory(&**factory)),
            (None, None) => None,
        }
    }

    pub(crate) fn stall_limits(&self) -> StallLimits {
        StallLimits {
            max_write_buffer_number: count(self.max_write_buffer_number).max(2),
            min_write_buffer_number_to_merge: count(self.min_write_buffer_number_to_merge).max(1),
            level0_trigger: count(self.level0_file_num_compaction_trigger),
            level0_slowdown: count(self.level0_slowdown_writes_trigger),
            level0_stop: count(self.level0_stop_writes_trigger),
            soft_pending_bytes: self.soft_pending_compaction_bytes_limit,
            hard_pending_bytes: self.hard_pending_compaction_bytes_limit,
            compactions_disabled: self.disable_auto_compactions,
        }
    }

    /// `filter_bytes`: it has a filter of whole keys of this size, if there should be one though nobody set one up.
    pub(crate) fn memtable_options(&self, memory: &MemTableMemory, filter_bytes: usize) -> MemTableOptions {
        let bytes = (self.write_buffer_size as f64 * self.memtable_prefix_bloom_size_ratio) as usize;
        let (whole_keys, prefix_extractor) =
            (self.memtable_whole_key_filtering, self.prefix_extractor.clone());
        let bloom = match bytes {
            0 => MemTableBloom { bytes: filter_bytes, whole_keys: true, prefix_extractor: None },
            _ => MemTableBloom { bytes, whole_keys, prefix_extractor },
        };
        MemTableOptions {
            write_buffer_size: self.write_buffer_size,
            huge_pages: self.memtable_huge_page_size > 0,
            // A filter hashes bytes: it would deny a key that is there in other bytes.
            bloom: Some(bloom).filter(|_| !self.comparator.different_bytes_may_be_equal()),
            protection_bytes: self.memtable_protection_bytes_per_key as u8, // At most 8, as was checked.
            in_place_locks: self.inplace_update_support.then_some(self.inplace_update_num_locks),
            check_order: self.paranoid_memory_checks,
            check_on_seek: self.memtable_verify_per_key_checksum_on_seek,
            rep: self.memtable_rep.clone(),
            pool: Arc::clone(&memory.pool),
        }
    }

    /// `database_cache` answers that of column families that have no block cache of their own.
    pub(crate) fn table_options(
        &self,
        db: &DbOptions,
        database_cache: impl FnOnce() -> Arc<BlockCache>,
        read_latencies: Option<Arc<LevelHistograms>>,
    ) -> Result<TableOptions> {
        let table = &self.table;
        let block_cache = || table.block_cache.clone().unwrap_or_else(database_cache);
        Ok(TableOptions {
            format: self.table_format,
            plain: self.plain_table.layer(),
            cuckoo: self.cuckoo_table.layer(),
            comparator: self.comparator.clone(),
            prefix_extractor: self.prefix_extractor.clone(),
            block_size: table.block_size,
            block_size_deviation: table.block_size_deviation,
            flush_block_policy: table.flush_block_policy_factory.clone(),
            block_restart_interval: table.block_restart_interval,
            index_block_restart_interval: table.index_block_restart_interval,
            metadata_block_size: table.metadata_block_size as usize,
            checksum: table.checksum,
            format_version: table.format_version,
            index_type: table.index_type,
            data_block_index_type: table.data_block_index_type,
            data_block_hash_table_util_ratio: table.data_block_hash_table_util_ratio,
            // A filter hashes bytes: it would deny a key that is there in other bytes.
            filter_policy: table
                .filter_policy
                .clone()
                .filter(|_| !self.comparator.different_bytes_may_be_equal()),
            whole_key_filtering: table.whole_key_filtering,
            partition_filters: table.partition_filters,
            decouple_partitioned_filters: table.decouple_partitioned_filters,
            use_delta_encoding: table.use_delta_encoding,
            enable_index_compression: table.enable_index_compression,
            index_shortening: table.index_shortening,
            optimize_filters_for_memory: table.optimize_filters_for_memory,
            detect_filter_construct_corruption: table.detect_filter_construct_corruption,
            verify_compression: table.verify_compression,
            data_in_errors: db.data_in_errors(),
            block_align: table.block_align,
            cache_index_and_filter_blocks: table.cache_index_and_filter_blocks,
            cache_index_and_filter_blocks_with_high_priority: table
                .cache_index_and_filter_blocks_with_high_priority,
            pinning: table.metadata_pinning(),
            // A flush writes a little more than a memtable has.
            max_flushed_table_size: (self.write_buffer_size as u64 / 2).saturating_mul(3),
            prepopulate_block_cache: table.prepopulate_block_cache,
            cache_usage: table.cache_usage_options,
            block_cache: (!table.no_block_cache).then(block_cache),
            sim_cache: table.sim_cache.clone(),
            persistent_cache: table.persistent_cache.clone(),
            rate_limiter: db.rate_limiter.clone(),
            no_block_cache: table.no_block_cache,
            block_protection_bytes_per_key: self.block_protection_bytes_per_key,
            max_auto_readahead_size: table.max_auto_readahead_size,
            initial_auto_readahead_size: table.initial_auto_readahead_size,
            num_file_reads_for_auto_readahead: table.num_file_reads_for_auto_readahead,
            clock: Arc::clone(&db.env.clock),
            statistics: db.statistics.as_ref().map(Arc::clone),
            read_amp_bytes_per_bit: table.read_amp_bytes_per_bit,
            read_latencies,
            last_level: (self.num_levels - 1).max(0) as u32,
            has_levels: self.compaction_style != CompactionStyle::Fifo,
            sample_for_compression: self.sample_for_compression,
            collectors: self.table_properties_collector_factories.clone(),
            ..TableOptions::default()
        })
    }
}

impl DbOptions {
    /// Whether compactions read their inputs past the page cache, from files that they open for it.
    pub(crate) fn reads_compactions_directly(&self) -> bool {
        self.use_direct_io_for_compaction_reads || self.use_direct_io_for_flush_and_compaction
    }
    /// Whether messages may show keys.
    pub(crate) fn data_in_errors(&self) -> DataInErrors {
        DataInErrors(self.allow_data_in_errors)
    }
    /// Threads that only flush: as set, or a quarter of all background jobs.
    pub(crate) fn flush_threads(&self) -> usize {
        if self.max_background_flushes > 0 {
            return count(self.max_background_flushes);
        }
        (count(self.max_background_jobs) / 4).max(1)
    }
    /// Threads that only compact: as set, or what is left of all background jobs.
    pub(crate) fn compaction_threads(&self) -> usize {
        if self.max_background_compactions > 0 {
            return count(self.max_background_compactions);
        }
        count(self.max_background_jobs).saturating_sub(self.flush_threads()).max(1)
    }
    pub(crate) fn manifest_limits(&self) -> ManifestLimits {
        ManifestLimits {
            max_file_size: self.max_manifest_file_size,
            max_space_amp_pct: u32::try_from(self.max_manifest_space_amp_pct).unwrap_or(0),
        }
    }
    /// When there is less to do.
    pub(crate) fn daily_offpeak(&self) -> Option<DailyOffpeak> {
        DailyOffpeak::parse(&self.daily_offpeak_time_utc).ok().flatten() // Any other text was refused.
    }
    /// In how many seconds to look for tables that grew old, if nothing else has somebody look: at the latest when off-peak
    /// hours begin.
    pub(crate) fn seconds_to_next_look(&self, now_seconds: u64) -> Option<u64> {
        let seconds = Some(self.max_compaction_trigger_wakeup_seconds).filter(|&seconds| seconds > 0)?;
        let until = self.daily_offpeak().map(|offpeak| offpeak.seconds_to_next_start(now_seconds));
        Some(until.map_or(seconds, |until| until.min(seconds)))
    }
    /// What tables say about the machine that wrote them.
    pub(crate) fn host_id(&self) -> String {
        if self.db_host_id == crate::options::HOST_NAME {
            return host_name();
        }
        self.db_host_id.clone()
    }
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_tables_are_looked_for_when_off_peak_hours_begin() {
        let mut db = DbOptions { max_compaction_trigger_wakeup_seconds: 4000, ..DbOptions::default() };
        assert_eq!(db.seconds_to_next_look(0), Some(4000));
        db.daily_offpeak_time_utc = "01:00-02:00".to_owned();
        assert_eq!(db.seconds_to_next_look(0), Some(3600));
        assert_eq!(db.seconds_to_next_look(3600), Some(4000), "they have begun");
        db.max_compaction_trigger_wakeup_seconds = 0;
        assert_eq!(db.seconds_to_next_look(0), None);
    }
}
