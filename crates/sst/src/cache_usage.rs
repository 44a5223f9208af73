//! What else than blocks counts towards the block cache.

use crate::options::TableOptions;
use ironstone_base::sync::Arc;
use ironstone_cache::{ChargeTarget, MemoryBudget, MemoryRole, Reservation};

/// What counts towards the block cache beside its blocks: the cache holds so much less. Names (those of `CacheEntryRole`),
/// meanings and defaults are RocksDB's, whose `cache_usage_options` this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheUsageOptions {
    /// Data blocks that are held back until there are enough for a compression dictionary. A cache with a strict limit that is
    /// full ends the wait: the dictionary is made of what there is. On by default.
    pub compression_dictionary_building_buffer: bool,
    /// Filters under construction, and what their keys are kept in. Where a Ribbon filter needs more than a cache with a
    /// strict limit has, a Bloom filter is built. Off by default.
    pub filter_construction: bool,
    /// What open tables have in memory outside of the cache: properties, and index and filter if `cache_index_and_filter_blocks` is
    /// off. A table that is too much for a cache with a strict limit is not opened: `Incomplete`, `MemoryLimit`. Off by default.
    pub block_based_table_reader: bool,
    /// What is known of each table file, as versions have it. Nothing fails for it (RocksDB: new versions may). Off by default.
    pub file_metadata: bool,
}

impl Default for CacheUsageOptions {
    fn default() -> Self {
        Self {
            compression_dictionary_building_buffer: true,
            filter_construction: false,
            block_based_table_reader: false,
            file_metadata: false,
        }
    }
}

impl CacheUsageOptions {
    fn counts(&self, role: MemoryRole) -> bool {
        match role {
            MemoryRole::CompressionDictionary => self.compression_dictionary_building_buffer,
            MemoryRole::FilterConstruction => self.filter_construction,
            MemoryRole::TableReader => self.block_based_table_reader,
            MemoryRole::FileMetadata => self.file_metadata,
            _ => false,
        }
    }
}

impl TableOptions {
    /// Nothing yet of what is to count for `role`; `None` if that counts towards no cache.
    pub fn reserve_in_cache(&self, role: MemoryRole) -> Option<Reservation> {
        let cache =
            self.block_cache.as_ref().filter(|_| !self.no_block_cache && self.cache_usage.counts(role))?;
        let budget = MemoryBudget::charged_to(0, Arc::clone(cache) as Arc<dyn ChargeTarget>);
        Some(budget.reserve_unconditionally(role, 0))
    }
}

#[cfg(test)]
mod tests;
