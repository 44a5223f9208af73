//! Puts the blocks of a table into the block cache while the table is written (`prepopulate_block_cache`).
//!
//! Cache keys begin with an id of the file, which for other tables goes by what is known only once they are complete. These
//! are given one from the start, and say so in a property.

use crate::block::Block;
use crate::cached_block::{BlockCache, CachedBlock};
use crate::filter_block::ParsedFilter;
use crate::handle::BlockHandle;
use crate::index::{FlatIndex, IndexFormat};
use crate::options::{BuildOptions, TableOptions};
use crate::properties::{BLOCK_CACHE_ID, TableProperties};
use crate::reader::{BlockRole, count_add};
use ironstone_base::hash::hash64;
use ironstone_base::statistics::Ticker;
use ironstone_base::sync::Arc;
use ironstone_base::{Corrupt, UserComparator};
use ironstone_cache::{CacheKey, Priority};

/// Whether the blocks of new tables go to the block cache as they are written. Names are RocksDB's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PrepopulateBlockCache {
    /// They do not: a block enters the cache when it is read.
    #[default]
    Disable,
    /// Those of flushes do.
    FlushOnly,
    /// Those of flushes do, and those of compactions, to leave first again.
    FlushAndCompaction,
}

/// The id of a table in cache keys, by what it says about itself and `layout`.
pub(crate) fn file_id(properties: &TableProperties, layout: &[u64]) -> u64 {
    let layout: Vec<u8> = layout.iter().flat_map(|number| number.to_le_bytes()).collect();
    let of_database = hash64(properties.db_id.as_bytes(), hash64(&layout, 0));
    hash64(properties.db_session_id.as_bytes(), of_database)
}

/// The same of a table that was put into the cache when it was written.
pub(crate) fn warmed_file_id(properties: &TableProperties) -> Option<u64> {
    let id = properties.user_fixed64(BLOCK_CACHE_ID)?;
    Some(file_id(properties, &[properties.original_file_number, id]))
}

/// Puts the blocks of one table into the cache. A block that does not get in is read from the file later.
pub(crate) struct BlockWarmer {
    cache: Arc<BlockCache>,
    file_id: u64,
    priority: Priority,
    table: Arc<TableOptions>,
}

impl BlockWarmer {
    /// For the table that `properties` describe; `None` if its blocks are not to be in the cache.
    pub fn new(options: &BuildOptions, properties: &mut TableProperties) -> Option<Self> {
        let (priority, table) = (options.warm_cache?, &options.table);
        let cache = table.block_cache.clone().filter(|_| !table.no_block_cache)?;
        if options.db_session_id.is_empty() || options.file_number.0 == 0 {
            return None; // Whoever opens it could not tell that it is this one.
        }
        let id = cache.new_file_id().to_le_bytes().to_vec();
        properties.user_collected.insert(BLOCK_CACHE_ID.to_owned(), id);
        let file_id = warmed_file_id(properties)?;
        Some(Self { cache, file_id, priority, table: Arc::clone(table) })
    }

    /// Whether readers of the table look for indexes and filters in the cache.
    pub fn takes_meta_blocks(&self) -> bool {
        self.table.cache_index_and_filter_blocks
    }

    pub fn keep_data(&self, handle: BlockHandle, raw: &[u8]) {
        let block = Block::for_cache(raw.to_vec(), self.order()).map(|mut block| {
            if self.table.block_protection_bytes_per_key > 0 {
                block.protect();
            }
            CachedBlock::Data(block.moved_to(&self.cache, self.file_id))
        });
        self.keep(BlockRole::Data, handle, block);
    }

    /// `role`: of the index of data blocks, or of that of filters. Its entries lie before `end`.
    pub fn keep_index(
        &self,
        role: BlockRole,
        handle: BlockHandle,
        raw: Vec<u8>,
        format: IndexFormat,
        end: u64,
    ) {
        let index = Block::new(raw).and_then(|block| FlatIndex::decode(&block, format, self.order(), end));
        let block = index.map(|mut index| {
            index.protect(self.table.block_protection_bytes_per_key);
            CachedBlock::Index(Box::new(index))
        });
        self.keep(role, handle, block);
    }

    pub fn keep_filter(&self, handle: BlockHandle, raw: Vec<u8>) {
        let filter = ParsedFilter::new(self.cache.hold(raw, handle.offset));
        self.keep(BlockRole::Filter, handle, Ok(CachedBlock::Filter(filter)));
    }

    fn order(&self) -> &UserComparator {
        &self.table.comparator
    }

    fn keep(&self, role: BlockRole, handle: BlockHandle, block: Result<CachedBlock, Corrupt>) {
        let Ok(block) = block else {
            return; // Whoever reads it finds out more.
        };
        let (key, charge) = (CacheKey(self.file_id, handle.offset), block.memory_usage());
        if let Some(simulated) = &self.table.sim_cache {
            simulated.add(key, charge, self.priority);
        }
        let kept = self.cache.insert(key, block, charge, self.priority);
        if let Some(statistics) = &self.table.statistics {
            match kept {
                Ok(_) => count_add(statistics, role.tickers(), charge, false),
                Err(_) => statistics.record(Ticker::BlockCacheAddFailures, 1),
            }
        }
    }
}
