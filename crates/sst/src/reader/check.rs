//! Reads a whole table and checks everything that can be checked.

use super::fetch::BlockRole;
use super::{BlockBasedReader, IndexCursor};
use crate::block::{Block, Cursor};
use crate::block_trace::TableReaderCaller;
use crate::filter::PARTITIONED_FILTER_PREFIX;
use crate::handle::BlockHandle;
use crate::index::FlatIndex;
use crate::index_builder::{HASH_METADATA, HASH_PREFIXES, decode_prefix_blocks};
use crate::options::{IndexType, ReadContext};
use crate::readahead::Readahead;
use ironstone_base::{Corrupt, InternalKeyBuf, Result};

impl BlockBasedReader {
    /// Reads every block of the file, past the cache, as `context` says, and checks its checksum and its structure: keys
    /// in order, each data block where the index says, as many entries as the properties say.
    pub fn verify_checksums(&self, context: &ReadContext, readahead_size: usize) -> Result<()> {
        let _call = self.traced_call(TableReaderCaller::UserVerifyChecksum);
        let context = &ReadContext { verify_checksums: true, fill_cache: false, ..*context };
        self.verify_meta_blocks(context)?;
        let entries = self.verify_data_blocks(context, readahead_size)?;
        let stated = self.properties().num_entries.saturating_sub(self.properties().num_range_deletions);
        if self.properties().num_data_blocks > 0 && entries != stated {
            let what = format!("the data blocks have {entries} entries, the properties say {stated}");
            return Err(self.corrupt(self.data_end, &what));
        }
        Ok(())
    }

    fn verify_meta_blocks(&self, context: &ReadContext) -> Result<()> {
        let named = self.metaindex.iter().map(|(name, handle)| (role_of(name), *handle));
        let footer = [(BlockRole::Metaindex, self.footer.metaindex), (BlockRole::Index, self.footer.index)];
        for (role, handle) in named.chain(footer).filter(|(_, handle)| !handle.is_null()) {
            // The properties were checked when the table was opened, in the way that allows for a global
            // sequence number.
            if role != BlockRole::Properties {
                self.read_file(context, role, handle)?;
            }
        }
        self.verify_partitions(context)?;
        self.verify_prefix_blocks(context)
    }

    /// The blocks below the top levels of index and filter.
    fn verify_partitions(&self, context: &ReadContext) -> Result<()> {
        let named = |wanted: &str| self.metaindex.iter().find(|(name, _)| name.starts_with(wanted));
        let filter = named(PARTITIONED_FILTER_PREFIX).map(|(_, handle)| *handle);
        let index = match self.footer.index.is_null() {
            true => named("rocksdb.index").map(|(_, handle)| *handle),
            false => Some(self.footer.index),
        };
        let index = index.filter(|_| self.index_type == IndexType::TwoLevel);
        let tops = [(BlockRole::Index, index), (BlockRole::Filter, filter)];
        for (role, top) in tops.into_iter().filter_map(|(role, top)| Some((role, top?))) {
            let corrupt = |bad: Corrupt| self.format().corrupt(role, top.offset, bad.0);
            let block = Block::new(self.read_file(context, role, top)?).map_err(corrupt)?;
            let top = FlatIndex::decode(&block, self.index_format, &self.order.user, self.file_size);
            let top = top.map_err(corrupt)?;
            for at in 0..top.len() {
                self.read_file(context, role, top.handle(at))?;
            }
        }
        Ok(())
    }

    fn verify_prefix_blocks(&self, context: &ReadContext) -> Result<()> {
        let find =
            |wanted: &str| self.metaindex.iter().find(|(name, _)| name == wanted).map(|(_, handle)| *handle);
        if let (Some(prefixes_at), Some(metadata_at)) = (find(HASH_PREFIXES), find(HASH_METADATA)) {
            let prefixes = self.read_file(context, BlockRole::Index, prefixes_at)?;
            let metadata = self.read_file(context, BlockRole::Index, metadata_at)?;
            let spans = decode_prefix_blocks(&prefixes, &metadata);
            spans.map_err(|bad| self.format().corrupt(BlockRole::Index, metadata_at.offset, bad.0))?;
        }
        Ok(())
    }

    fn verify_data_blocks(&self, context: &ReadContext, readahead_size: usize) -> Result<u64> {
        let mut ahead = (readahead_size > 0).then(|| Readahead::fixed(readahead_size, self.data_end));
        let mut blocks = IndexCursor::new(self, context)?;
        let mut more = blocks.seek_to_first(self, context)?;
        let mut last: Option<InternalKeyBuf> = None;
        let mut entries = 0;
        while let (true, Some((index, at))) = (more, blocks.current(self)) {
            let handle = index.handle(at);
            let raw = match &mut ahead {
                Some(ahead) => self.read_ahead(context, handle, ahead)?,
                None => self.read_file(context, BlockRole::Data, handle)?,
            };
            let block = self.parse_data_block(context, handle, raw)?;
            entries += self.verify_order(&block, handle, &mut last)?;
            let limit = index.separator_user_key(at);
            if last.as_ref().is_some_and(|last| self.order.user.compare(last.user_key(), &limit).is_gt()) {
                let what = "a key comes after the index's separator";
                return Err(self.format().corrupt(BlockRole::Data, handle.offset, what));
            }
            more = blocks.next(self, context)?;
        }
        Ok(entries)
    }

    /// Checks that the keys of `block` follow `last` and each other; answers how many there are.
    fn verify_order(&self, block: &Block, at: BlockHandle, last: &mut Option<InternalKeyBuf>) -> Result<u64> {
        let corrupt = |what: &str| self.format().corrupt(BlockRole::Data, at.offset, what);
        let mut cursor = Cursor::default();
        let mut more = cursor.seek_to_first(block).map_err(|bad| corrupt(bad.0))?;
        let mut entries = 0;
        while more {
            let key = cursor.key(block);
            if last.as_ref().is_some_and(|last| !self.order.compare(last.as_key(), key).is_lt()) {
                return Err(corrupt("keys are out of order"));
            }
            match last {
                Some(last) => last.assign(key),
                None => *last = Some(key.to_buf()),
            }
            entries += 1;
            more = cursor.next(block).map_err(|bad| corrupt(bad.0))?;
        }
        for restart in 0..block.restart_count() * u32::from(!block.is_empty()) {
            block.restart_key(restart).map_err(|bad| corrupt(bad.0))?;
        }
        Ok(entries)
    }
}

fn role_of(name: &str) -> BlockRole {
    match name {
        "rocksdb.properties" | "rocksdb.stats" => BlockRole::Properties,
        "rocksdb.index" => BlockRole::Index,
        "rocksdb.compression_dict" => BlockRole::Dictionary,
        "rocksdb.range_del" => BlockRole::RangeTombstones,
        filter if filter.contains("filter.") => BlockRole::Filter,
        _ => BlockRole::Other,
    }
}
