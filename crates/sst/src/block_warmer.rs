//! Puts the blocks of a table into the block cache while the table is written: all (`prepopulate_block_cache`), or those
//! that readers want ([`Demand`]).
//!
//! Cache keys begin with an id of the file, which for other tables goes by what is known only once they are complete. These
//! are given one from the start, and say so in a property if any of their blocks is there.

use crate::block::Block;
use crate::cached_block::{BlockCache, CachedBlock};
use crate::demand::Demand;
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

/// How the blocks of a new table enter the block cache.
#[derive(Clone, Debug)]
pub struct WarmCache {
    /// How long they should stay.
    pub priority: Priority,
    /// Only those that readers want; `None`: all.
    pub demand: Option<Arc<Demand>>,
}

/// The id of a table in cache keys, by what it says about itself and `layout`.
pub(crate) fn file_id(properties: &TableProperties, layout: &[u64]) -> u64 {
    let layout: Vec<u8> = layout.iter().flat_map(|number| number.to_le_bytes()).collect();
    let of_database = hash64(properties.db_id.as_bytes(), hash64(&layout, 0));
    hash64(properties.db_session_id.as_bytes(), of_database)
}

/// The same of a table that was put into the cache when it was written.
pub(crate) fn warmed_file_id(properties: &TableProperties) -> Option<u64> {
    properties.user_fixed64(BLOCK_CACHE_ID).map(|id| id_of_warmed(properties, id))
}

fn id_of_warmed(properties: &TableProperties, id: u64) -> u64 {
    file_id(properties, &[properties.original_file_number, id])
}

/// Puts the blocks of one table into the cache. A block that does not get in is read from the file later.
pub(crate) struct BlockWarmer {
    cache: Arc<BlockCache>,
    file_id: u64,
    /// What the property says.
    id: u64,
    warm: WarmCache,
    table: Arc<TableOptions>,
    has_kept: bool,
}

impl BlockWarmer {
    /// For the table that `properties` describe; `None` if its blocks are not to be in the cache.
    pub fn new(options: &BuildOptions, properties: &TableProperties) -> Option<Self> {
        let (warm, table) = (options.warm_cache.clone()?, &options.table);
        let cache = table.block_cache.clone().filter(|_| !table.no_block_cache)?;
        if options.db_session_id.is_empty() || options.file_number.0 == 0 {
            return None; // Whoever opens it could not tell that it is this one.
        }
        let id = cache.new_file_id();
        let file_id = id_of_warmed(properties, id);
        Some(Self { cache, file_id, id, warm, table: Arc::clone(table), has_kept: false })
    }

    /// What the table says about itself if it has blocks in the cache.
    pub fn property(&self) -> Option<(String, Vec<u8>)> {
        self.has_kept.then(|| (BLOCK_CACHE_ID.to_owned(), self.id.to_le_bytes().to_vec()))
    }

    /// Whether readers of the table look for indexes and filters in the cache, and will look for these.
    pub fn takes_meta_blocks(&self) -> bool {
        self.table.cache_index_and_filter_blocks && (self.has_kept || self.warm.demand.is_none())
    }

    pub fn keep_data(&mut self, handle: BlockHandle, raw: &[u8]) {
        if self.warm.demand.as_ref().is_some_and(|demand| !demand.is_there()) {
            return;
        }
        let block = Block::copied_to(&self.cache, self.file_id, raw, self.order()).map(|mut block| {
            if self.table.block_protection_bytes_per_key > 0 {
                block.protect();
            }
            CachedBlock::Data(block)
        });
        self.keep(BlockRole::Data, handle, block);
    }

    /// `role`: of the index of data blocks, or of that of filters. Its entries lie before `end`.
    pub fn keep_index(
        &mut self,
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

    pub fn keep_filter(&mut self, handle: BlockHandle, raw: Vec<u8>) {
        let filter = ParsedFilter::new(self.cache.hold(raw, handle.offset));
        self.keep(BlockRole::Filter, handle, Ok(CachedBlock::Filter(filter)));
    }

    fn order(&self) -> &UserComparator {
        &self.table.comparator
    }

    fn keep(&mut self, role: BlockRole, handle: BlockHandle, block: Result<CachedBlock, Corrupt>) {
        let Ok(block) = block else {
            return; // Whoever reads it finds out more.
        };
        let (key, charge) = (CacheKey(self.file_id, handle.offset), block.memory_usage());
        if let Some(simulated) = &self.table.sim_cache {
            simulated.add(key, charge, self.warm.priority);
        }
        let kept = self.cache.insert(key, block, charge, self.warm.priority);
        self.has_kept = true;
        if let Some(statistics) = &self.table.statistics {
            match kept {
                Ok(_) => count_add(statistics, role.tickers(), charge, false),
                Err(_) => statistics.record(Ticker::BlockCacheAddFailures, 1),
            }
        }
    }
}
