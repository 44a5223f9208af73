//! Which blocks of a table readers want, by the block cache.

use super::{BlockBasedReader, IndexCursor};
use crate::block_trace::TableReaderCaller;
use crate::cached_block::BlockRef;
use crate::options::{ReadContext, ReadTier};
use ironstone_base::Result;

impl BlockBasedReader {
    /// Says that nobody will want `block` after this, and answers whether somebody did before. Blocks that entered the cache
    /// when they were written count once they were found there, others since somebody had them read.
    pub(crate) fn retire(&self, block: &BlockRef) -> bool {
        let BlockRef::Cached(block) = block else { return false };
        block.retire() > u64::from(self.is_warmed) // One of the finds is the job's own.
    }

    /// How many of at most `most` of its blocks, one in each so many, readers wanted, and how many that is out of.
    pub fn wanted_blocks(&self, most: u64) -> (u64, u64) {
        let step = (self.properties().num_data_blocks / most.max(1)).max(1);
        let _call = self.traced_call(TableReaderCaller::Uncategorized);
        let context = ReadContext { read_tier: ReadTier::BlockCache, ..ReadContext::default() };
        // What of the index is not in memory was not wanted for long.
        self.count_wanted(&context, step).unwrap_or_default()
    }

    fn count_wanted(&self, context: &ReadContext, step: u64) -> Result<(u64, u64)> {
        let (mut wanted, mut looked_at) = (0, 0);
        let Some(cache) = &self.cache else { return Ok((0, 0)) };
        let mut cursor = IndexCursor::new(self, context)?;
        let (mut more, mut number) = (cursor.seek_to_first(self, context)?, 0u64);
        while let (true, Some((index, at))) = (more, cursor.current(self)) {
            if number.is_multiple_of(step) {
                let finds = cache.finds(&self.cache_key(index.handle(at)));
                wanted += u64::from(finds.is_some_and(|finds| finds >= u64::from(self.is_warmed)));
                looked_at += 1;
            }
            more = cursor.next(self, context)?;
            number += 1;
        }
        Ok((wanted, looked_at))
    }
}
