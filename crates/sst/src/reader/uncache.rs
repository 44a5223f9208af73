//! Takes the blocks of a table that nobody will read again out of the block cache.

use super::{BlockBasedReader, FilterHome, FilterPartitions, Home, IndexCursor};
use crate::block_trace::TableReaderCaller;
use crate::cached_block::BlockRef;
use crate::handle::BlockHandle;
use crate::options::{ReadContext, ReadTier};
use ironstone_base::Result;
use ironstone_cache::CacheKey;

/// Says when looking for blocks that are not there is no longer worth it: RocksDB's `uncache_aggressiveness` a asks for a chance
/// of 0.99^(a-1).
struct Odds {
    least: f64,
    tries: f64,
    finds: f64,
}

impl Odds {
    fn new(aggressiveness: u32) -> Self {
        Self { least: 0.99f64.powf(f64::from(aggressiveness) - 1.0), tries: 0.0, finds: 0.0 }
    }
    fn note(&mut self, found: bool) {
        self.tries += 1.0;
        self.finds += f64::from(u8::from(found));
    }
    /// One find is given ahead: the first blocks say little.
    fn are_good(&self) -> bool {
        self.finds + 1.0 >= self.least * (self.tries + 1.0)
    }
}

impl BlockBasedReader {
    /// Takes its blocks out of the block cache, as far as their places are known without reading the file. The larger
    /// `aggressiveness`, the more blocks that are not there are looked for; 0: none.
    pub fn uncache(&self, aggressiveness: u32) {
        if self.cache.is_none() || aggressiveness == 0 {
            return;
        }
        let _call = self.traced_call(TableReaderCaller::Uncategorized);
        let context = ReadContext { read_tier: ReadTier::BlockCache, ..ReadContext::default() };
        // What is not in the cache is not known, and leaves it by age.
        let _ = self.uncache_filter(&context, aggressiveness);
        let _ = self.uncache_data_and_index(&context, aggressiveness);
        self.uncache_home(&self.index.top);
    }

    fn uncache_filter(&self, context: &ReadContext, aggressiveness: u32) -> Result<()> {
        match &self.filter {
            FilterHome::None => {}
            FilterHome::Full(home) => self.uncache_home(home),
            FilterHome::Partitioned { top, partitions: FilterPartitions::Resident(_) } => {
                self.uncache_home(top)
            }
            FilterHome::Partitioned { top, partitions: FilterPartitions::Pinned(partitions) } => {
                self.uncache_pinned(partitions);
                self.uncache_home(top);
            }
            FilterHome::Partitioned { top, partitions: FilterPartitions::Cached } => {
                let block = match &**top {
                    Home::Resident(_) => return Ok(()),
                    Home::Pinned(block) => block.clone(),
                    Home::Cached(handle) => self.filter_index_block(context, *handle)?,
                };
                if let Some(index) = block.index() {
                    self.uncache_all((0..index.len()).map(|at| index.handle(at)), aggressiveness);
                }
                drop(block);
                self.uncache_home(top);
            }
        }
        Ok(())
    }

    fn uncache_data_and_index(&self, context: &ReadContext, aggressiveness: u32) -> Result<()> {
        let mut cursor = IndexCursor::new(self, context)?;
        let partitions = cursor.partitions(self);
        let data = self.uncache_data(context, &mut cursor, aggressiveness);
        drop(cursor); // It pins a partition.
        match self.index.pinned.is_empty() {
            true => self.uncache_all(partitions.into_iter(), aggressiveness),
            false => self.uncache_pinned(&self.index.pinned),
        }
        data
    }

    fn uncache_data(
        &self,
        context: &ReadContext,
        cursor: &mut IndexCursor,
        aggressiveness: u32,
    ) -> Result<()> {
        let mut odds = Odds::new(aggressiveness);
        let mut more = cursor.seek_to_first(self, context)?;
        while let (true, true, Some((index, at))) = (more, odds.are_good(), cursor.current(self)) {
            odds.note(self.uncache_block(&self.cache_key(index.handle(at))));
            more = cursor.next(self, context)?;
        }
        Ok(())
    }

    fn uncache_all(&self, mut handles: impl Iterator<Item = BlockHandle>, aggressiveness: u32) {
        let mut odds = Odds::new(aggressiveness);
        while let (true, Some(handle)) = (odds.are_good(), handles.next()) {
            odds.note(self.uncache_block(&self.cache_key(handle)));
        }
    }

    fn uncache_home<T>(&self, home: &Home<T>) {
        match home {
            Home::Resident(_) => {}
            Home::Pinned(block) => self.uncache_pinned(std::slice::from_ref(block)),
            Home::Cached(handle) => {
                self.uncache_block(&self.cache_key(*handle));
            }
        }
    }

    /// They go when the table lets go of them.
    fn uncache_pinned(&self, blocks: &[BlockRef]) {
        for block in blocks {
            if let BlockRef::Cached(block) = block {
                self.uncache_block(&block.key());
            }
        }
    }

    /// Answers whether the block was there and nobody holds it.
    fn uncache_block(&self, key: &CacheKey) -> bool {
        if let Some(simulated) = &self.table.sim_cache {
            simulated.erase(key);
        }
        self.cache.as_ref().is_some_and(|cache| cache.try_erase(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many blocks that are not there `aggressiveness` gives up, if so many were there before.
    fn misses(aggressiveness: u32, finds: u32) -> u32 {
        let mut odds = Odds::new(aggressiveness);
        (0..finds).for_each(|_| odds.note(true));
        (0..100_000)
            .take_while(|_| {
                let good = odds.are_good();
                odds.note(false);
                good
            })
            .count() as u32
    }

    #[test]
    fn it_gives_up_the_later_the_more_aggressive_it_is() {
        assert_eq!([0, 1, 1000].map(|finds| misses(1, finds)), [1; 3], "the first miss is the end");
        assert_eq!([0, 97, 98, 1000].map(|finds| misses(2, finds)), [1, 1, 2, 11]);
        assert_eq!([0, 9].map(|finds| misses(69, finds)), [1, 10], "a half");
        assert_eq!([0, 9].map(|finds| misses(230, finds)), [9, 90], "a tenth");
        assert_eq!(misses(10_000, 0), 100_000);
        assert_eq!(misses(u32::MAX, 0), 100_000);
    }
}
