//! Gets blocks from the cache or the file.

use super::BlockBasedReader;
use crate::block::Block;
use crate::block_trace::{
    self, BlockCacheTraceRecord, BlockPlace, TableReaderCaller, TracedBlock, TracedCall,
};
use crate::cached_block::{BlockRef, CachedBlock};
use crate::filter_block::ParsedFilter;
use crate::footer::Footer;
use crate::handle::{BLOCK_TRAILER_LEN, BlockHandle};
use crate::index::FlatIndex;
use crate::limited_file::LimitedFile;
use crate::options::{ReadContext, ReadTier};
use crate::persistent_cache::{PersistentCache, PersistentKey};
use crate::readahead::Readahead;
use crate::sim_cache::SimCache;
use ironstone_base::checksum::{ChecksumKind, block_checksum, context_modifier};
use ironstone_base::coding::put_varint64;
use ironstone_base::hash::xxh3_64;
use ironstone_base::perf::{self, LevelMetric, PerfMetric};
use ironstone_base::protection::changed_in_memory;
use ironstone_base::statistics::{BlocksRead, Histogram, IoActivity, Ticker};
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::Ordering::Relaxed;
use ironstone_base::{Error, InternalKey, Result, Statistics};
use ironstone_cache::{CacheKey, Priority};
use ironstone_compress::{CompressionKind, Decompressor};
use ironstone_vfs::{PerfCpuTimer, PerfTimer, RandomAccessFile, StatsTimer};
use std::borrow::Cow;
use std::path::Path;

/// What a block is, for messages and for choosing how to read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockRole {
    Data,
    Index,
    Filter,
    /// The top level of a partitioned filter.
    FilterIndex,
    Dictionary,
    RangeTombstones,
    Properties,
    Metaindex,
    Other,
}

impl BlockRole {
    fn name(self) -> &'static str {
        match self {
            Self::Data => "data block",
            Self::Index => "index block",
            Self::Filter | Self::FilterIndex => "filter block",
            Self::Dictionary => "compression dictionary",
            Self::RangeTombstones => "range tombstone block",
            Self::Properties => "properties block",
            Self::Metaindex => "metaindex block",
            Self::Other => "meta block",
        }
    }

    /// What is counted for a block of the cache.
    pub(crate) fn tickers(self) -> &'static RoleTickers {
        match self {
            Self::Data => &DATA_TICKERS,
            Self::Index => &INDEX_TICKERS,
            _ => &FILTER_TICKERS,
        }
    }

    /// Notes a read of so many bytes of the file.
    pub(super) fn count_read(self, bytes: usize) {
        use PerfMetric::*;
        let bytes = bytes as u64;
        perf::count_all([(BlockReadCount, 1), (BlockReadByte, bytes)]);
        match self {
            Self::Data => perf::count(DataBlockReadByte, bytes),
            Self::Index => perf::count_all([(IndexBlockReadCount, 1), (IndexBlockReadByte, bytes)]),
            Self::Filter | Self::FilterIndex => {
                perf::count_all([(FilterBlockReadCount, 1), (FilterBlockReadByte, bytes)])
            }
            Self::Dictionary => {
                perf::count_all([(CompressionDictBlockReadCount, 1), (CompressionDictBlockReadByte, bytes)]);
            }
            _ => perf::count(MetadataBlockReadByte, bytes),
        }
    }
}

/// What it takes to make a block of the bytes in the file.
pub(super) struct BlockFormat<'a> {
    pub path: &'a Path,
    pub footer: &'a Footer,
    pub file_size: u64,
    pub max_block_size: usize,
    pub statistics: Option<&'a Statistics>,
}

impl BlockFormat<'_> {
    #[cold]
    pub fn corrupt(&self, role: BlockRole, offset: u64, what: impl std::fmt::Display) -> Error {
        Error::corruption_at(self.path, offset, format_args!("{}: {what}", role.name()))
    }

    /// How many bytes the block and its trailer take, if they can be there.
    pub fn stored_len(&self, role: BlockRole, handle: BlockHandle) -> Result<usize> {
        if handle.end() > self.file_size {
            let what = format!("its {} bytes reach beyond the end of the file", handle.size);
            return Err(self.corrupt(role, handle.offset, what));
        }
        if handle.size > self.max_block_size as u64 {
            let what = format!("its {} bytes exceed the largest block allowed", handle.size);
            return Err(self.corrupt(role, handle.offset, what));
        }
        Ok(handle.size as usize + BLOCK_TRAILER_LEN)
    }

    /// Reads a block and its trailer.
    pub fn read(&self, file: &dyn RandomAccessFile, role: BlockRole, handle: BlockHandle) -> Result<Vec<u8>> {
        let mut stored = vec![0; self.stored_len(role, handle)?];
        let timer =
            (PerfTimer::start(PerfMetric::BlockReadTime), PerfCpuTimer::start(PerfMetric::BlockReadCpuTime));
        let count = file.read_at(handle.offset, &mut stored)?;
        drop(timer);
        role.count_read(count);
        if count < stored.len() {
            return Err(self.corrupt(role, handle.offset, "the file ends within the block"));
        }
        Ok(stored)
    }

    /// Checks the trailer of `stored`, a block as the file has it.
    pub fn verify(&self, role: BlockRole, offset: u64, stored: &[u8]) -> Result<()> {
        let (payload, kind, sum) = split_trailer(stored).ok_or_else(|| self.too_short(role, offset))?;
        if self.footer.checksum == ChecksumKind::None {
            return Ok(());
        }
        self.count(Ticker::BlockChecksumComputeCount, 1);
        let _timer = PerfTimer::start(PerfMetric::BlockChecksumTime);
        let modifier = context_modifier(self.footer.base_context_checksum, offset);
        let computed = block_checksum(self.footer.checksum, payload, kind).wrapping_add(modifier);
        if computed != sum {
            self.count(Ticker::BlockChecksumMismatchCount, 1);
            let what = format!("checksum is {computed:#010x}, trailer says {sum:#010x}");
            return Err(self.corrupt(role, offset, what));
        }
        Ok(())
    }

    pub fn count(&self, ticker: Ticker, by: u64) {
        if let Some(statistics) = self.statistics {
            statistics.record(ticker, by);
        }
    }

    #[cold]
    fn too_short(&self, role: BlockRole, offset: u64) -> Error {
        self.corrupt(role, offset, "shorter than its trailer")
    }

    /// The uncompressed block that `stored` holds.
    pub fn unpack_owned(
        &self,
        role: BlockRole,
        offset: u64,
        mut stored: Vec<u8>,
        decompressor: &Decompressor,
    ) -> Result<Vec<u8>> {
        let (payload, kind, _) = split_trailer(&stored).ok_or_else(|| self.too_short(role, offset))?;
        if kind == CompressionKind::None as u8 {
            stored.truncate(stored.len() - BLOCK_TRAILER_LEN);
            return Ok(stored);
        }
        self.decompress(role, offset, payload, kind, decompressor)
    }

    /// The same of borrowed bytes: a part of them where they are not compressed.
    pub fn unpack<'s>(
        &self,
        role: BlockRole,
        offset: u64,
        stored: &'s [u8],
        decompressor: &Decompressor,
    ) -> Result<Cow<'s, [u8]>> {
        let (payload, kind, _) = split_trailer(stored).ok_or_else(|| self.too_short(role, offset))?;
        if kind == CompressionKind::None as u8 {
            return Ok(Cow::Borrowed(payload));
        }
        self.decompress(role, offset, payload, kind, decompressor).map(Cow::Owned)
    }

    fn decompress(
        &self,
        role: BlockRole,
        offset: u64,
        payload: &[u8],
        kind: u8,
        decompressor: &Decompressor,
    ) -> Result<Vec<u8>> {
        let Some(kind) = CompressionKind::from_byte(kind).filter(|kind| kind.is_supported()) else {
            let message = format!("{} at {offset}: compression type {kind}", self.path.display());
            return Err(Error::not_supported(message));
        };
        let _timer = PerfTimer::start(PerfMetric::BlockDecompressTime);
        let timer = StatsTimer::detailed_nanos(self.statistics, Histogram::DecompressionTimesNanos);
        perf::count(PerfMetric::BlockDecompressCount, 1);
        let mut raw = Vec::new();
        let version = self.footer.format_version;
        decompressor
            .decompress(kind, payload, version, self.max_block_size, &mut raw)
            .map_err(|bad| self.corrupt(role, offset, bad.0))?;
        drop(timer);
        if let Some(statistics) = self.statistics {
            statistics.record(Ticker::NumberBlockDecompressed, 1);
            statistics.record(Ticker::BytesDecompressedFrom, payload.len() as u64);
            statistics.record(Ticker::BytesDecompressedTo, raw.len() as u64);
        }
        Ok(raw)
    }
}

fn split_trailer(stored: &[u8]) -> Option<(&[u8], u8, u32)> {
    let (payload, &[kind, a, b, c, d]) = stored.split_last_chunk::<BLOCK_TRAILER_LEN>()?;
    Some((payload, kind, u32::from_le_bytes([a, b, c, d])))
}

impl BlockBasedReader {
    pub(super) fn format(&self) -> BlockFormat<'_> {
        BlockFormat {
            path: self.file.path(),
            footer: &self.footer,
            file_size: self.file_size,
            max_block_size: self.table.max_block_size,
            statistics: self.statistics(),
        }
    }

    /// Data block `at` of `index`.
    #[inline]
    pub(super) fn data_block(&self, context: &ReadContext, index: &FlatIndex, at: usize) -> Result<BlockRef> {
        self.prefetch_block(index, at); // Its hints too: taking the reference waits for the first line.
        match self.cached_data_block(context, index, at) {
            Some(block) => self.checked(block, index, at),
            None => self.load_data_block(context, index, at, None),
        }
    }

    /// Data block `at` of `index`, if it is in the cache.
    #[inline]
    pub(super) fn cached_data_block(
        &self,
        context: &ReadContext,
        index: &FlatIndex,
        at: usize,
    ) -> Option<BlockRef> {
        let block = self.cache.as_ref()?.get_at(index.slot(at), &self.cache_key(index.handle(at)))?;
        index.note_place(at, block.hint(), || block.bytes_first());
        self.count_hit(context, &DATA_TICKERS, index.handle(at), &block);
        Some(BlockRef::Cached(block))
    }

    /// Asks for the whole of the cache's entry for data block `at`, for who will search the block, and for what is looked at
    /// first of its bytes.
    #[inline]
    pub(crate) fn prefetch_block(&self, index: &FlatIndex, at: usize) {
        if let Some(cache) = &self.cache {
            cache.prefetch(index.slot(at));
            index.prefetch_bytes(at);
        }
    }

    /// Data block `at` for an iterator: it comes from the cache, or from what was read ahead, if it is there.
    pub(crate) fn data_block_ahead(
        &self,
        context: &ReadContext,
        index: &FlatIndex,
        at: usize,
        readahead: &mut Readahead,
    ) -> Result<BlockRef> {
        let handle = index.handle(at);
        if !context.past_cache
            && let Some(block) = self.cached_data_block(context, index, at)
        {
            readahead.pass(handle.offset, handle.size as usize + BLOCK_TRAILER_LEN);
            return self.checked(block, index, at);
        }
        self.load_data_block(context, index, at, Some(readahead))
    }

    /// `block`, unless it, or what `index` says about it, changed since it was read.
    #[inline]
    pub(super) fn checked(&self, block: BlockRef, index: &FlatIndex, at: usize) -> Result<BlockRef> {
        if self.is_protected {
            self.check_block(&block, index, at)?;
        }
        Ok(block)
    }

    #[cold]
    fn check_block(&self, block: &BlockRef, index: &FlatIndex, at: usize) -> Result<()> {
        self.check_entry(index, at)?;
        match block.data().is_none_or(Block::is_intact) {
            true => Ok(()),
            false => Err(self.changed(&format!("the cached data block at {}", index.handle(at).offset))),
        }
    }

    /// [`FlatIndex::find`], unless what it went by changed since it was read.
    #[inline]
    pub(super) fn find_block(&self, index: &FlatIndex, target: InternalKey<'_>) -> Result<usize> {
        let at = index.find(&self.order.user, target);
        if self.is_protected {
            self.check_found(index, target, at)?;
        }
        Ok(at)
    }

    #[cold]
    fn check_found(&self, index: &FlatIndex, target: InternalKey<'_>, at: usize) -> Result<()> {
        match index.is_found(&self.order.user, target, at) {
            true => Ok(()),
            false => Err(self.changed(&format!("the index in memory around entry {at}"))),
        }
    }

    /// `Corruption` if entry `at` of an index changed since it was read.
    pub(super) fn check_entry(&self, index: &FlatIndex, at: usize) -> Result<()> {
        match index.is_intact(at) {
            true => Ok(()),
            false => Err(self.changed(&format!("entry {at} of the index in memory"))),
        }
    }

    #[cold]
    fn changed(&self, what: &str) -> Error {
        let what = format!("{}: {what}", self.path().display());
        changed_in_memory(&what, "block_protection_bytes_per_key")
    }

    #[inline(never)]
    fn load_data_block(
        &self,
        context: &ReadContext,
        index: &FlatIndex,
        at: usize,
        readahead: Option<&mut Readahead>,
    ) -> Result<BlockRef> {
        let handle = index.handle(at);
        self.count_miss(&DATA_TICKERS, handle);
        self.check_tier(context, BlockRole::Data, handle)?;
        let timer = self.block_timer();
        let raw = match readahead {
            Some(readahead) => self.read_ahead(context, handle, readahead)?,
            None => self.read_alone(context, BlockRole::Data, handle)?,
        };
        drop(timer);
        if self.statistics().is_some() {
            BlocksRead { meta: 0, data: 1 }.add();
        }
        let block = self.keep_data_block(context, index, at, raw)?;
        self.checked(block, index, at)
    }

    pub(super) fn parse_data_block(
        &self,
        context: &ReadContext,
        handle: BlockHandle,
        raw: Vec<u8>,
    ) -> Result<Block> {
        // What only passes by, as for compactions, is not searched again: hints would cost more than they save.
        let block = match context.fill_cache {
            true => Block::for_cache(raw, &self.order.user),
            false => Block::new(raw),
        };
        let mut block = block.map_err(|bad| self.format().corrupt(BlockRole::Data, handle.offset, bad.0))?;
        if self.is_protected {
            block.protect();
        }
        if let (Some(statistics), 1..) = (&self.table.statistics, self.table.read_amp_bytes_per_bit) {
            let salt = xxh3_64(&handle.offset.to_le_bytes());
            block.count_read_amp(self.table.read_amp_bytes_per_bit, salt, statistics);
        }
        Ok(block)
    }

    fn read_alone(&self, context: &ReadContext, role: BlockRole, handle: BlockHandle) -> Result<Vec<u8>> {
        match self.persisted(role, handle) {
            Some(raw) => Ok(raw),
            None => self.read_file(context, role, handle),
        }
    }

    /// Reads a block of the file.
    pub(super) fn read_file(
        &self,
        context: &ReadContext,
        role: BlockRole,
        handle: BlockHandle,
    ) -> Result<Vec<u8>> {
        let format = self.format();
        let stored = match context.is_limited() {
            false => format.read(&*self.file, role, handle),
            true => format.read(&self.limited(context), role, handle),
        }?;
        self.unpack_read(context, role, handle, stored)
    }

    /// Checks and uncompresses what was read from the file.
    pub(super) fn unpack_read(
        &self,
        context: &ReadContext,
        role: BlockRole,
        handle: BlockHandle,
        stored: Vec<u8>,
    ) -> Result<Vec<u8>> {
        let format = self.format();
        if context.verify_checksums {
            format.verify(role, handle.offset, &stored)?;
        }
        let tier = self.tier_for(context);
        if let Some(tier) = tier.filter(|tier| tier.is_compressed()) {
            self.persist(tier, handle, &stored);
        }
        let raw = format.unpack_owned(role, handle.offset, stored, self.decompressor(role))?;
        if let Some(tier) = tier.filter(|tier| !tier.is_compressed()) {
            self.persist(tier, handle, &raw);
        }
        Ok(raw)
    }

    /// The persistent cache, if it is to have what a read with `context` reads from the file. It has what was checked only.
    fn tier_for(&self, context: &ReadContext) -> Option<&dyn PersistentCache> {
        let tier = self.table.persistent_cache.as_deref();
        tier.filter(|_| context.fill_cache && context.verify_checksums)
    }

    #[cold]
    fn persist(&self, tier: &dyn PersistentCache, handle: BlockHandle, block: &[u8]) {
        let _ = tier.insert(&self.persistent_key(handle), block); // A cache that fails has no block.
    }

    fn persistent_key(&self, handle: BlockHandle) -> PersistentKey {
        let mut key = [0; size_of::<PersistentKey>()];
        key[..8].copy_from_slice(&self.persistent_id.to_le_bytes());
        key[8..].copy_from_slice(&handle.offset.to_le_bytes());
        key
    }

    /// A block from the persistent cache, uncompressed. Whatever is wrong there, it is not there.
    pub(super) fn persisted(&self, role: BlockRole, handle: BlockHandle) -> Option<Vec<u8>> {
        let tier = self.table.persistent_cache.as_deref()?;
        let found = self.look_up(tier, role, handle);
        let ticker = if found.is_some() { Ticker::PersistentCacheHit } else { Ticker::PersistentCacheMiss };
        self.format().count(ticker, 1);
        found
    }

    #[cold]
    fn look_up(&self, tier: &dyn PersistentCache, role: BlockRole, handle: BlockHandle) -> Option<Vec<u8>> {
        let block = tier.lookup(&self.persistent_key(handle)).ok()??;
        if !tier.is_compressed() {
            return Some(block);
        }
        let format = self.format();
        if block.len() != format.stored_len(role, handle).ok()? {
            return None;
        }
        format.verify(role, handle.offset, &block).ok()?;
        format.unpack_owned(role, handle.offset, block, self.decompressor(role)).ok()
    }

    /// Data block `at` of `index` from the persistent cache; from now on in the block cache, if that takes it in.
    pub(super) fn persisted_data_block(
        &self,
        context: &ReadContext,
        index: &FlatIndex,
        at: usize,
    ) -> Option<BlockRef> {
        let raw = self.persisted(BlockRole::Data, index.handle(at))?;
        self.keep_data_block(context, index, at, raw).ok()
    }

    pub(super) fn read_ahead(
        &self,
        context: &ReadContext,
        handle: BlockHandle,
        ahead: &mut Readahead,
    ) -> Result<Vec<u8>> {
        let (role, format) = (BlockRole::Data, self.format());
        let len = format.stored_len(role, handle)?;
        // What only passes by, as for compactions, is read from the file, where what comes next is read along.
        if context.fill_cache
            && let Some(raw) = self.persisted(role, handle)
        {
            ahead.pass(handle.offset, len);
            return Ok(raw);
        }
        let stored = match context.is_limited() {
            false => ahead.read(&*self.file, handle.offset, len),
            true => ahead.read(&self.limited(context), handle.offset, len),
        }?;
        let Some(stored) = stored else {
            return self.read_file(context, role, handle);
        };
        if self.tier_for(context).is_some() {
            let stored = stored.to_vec();
            return self.unpack_read(context, role, handle, stored);
        }
        if context.verify_checksums {
            format.verify(role, handle.offset, stored)?;
        }
        format.unpack(role, handle.offset, stored, self.decompressor(role)).map(Cow::into_owned)
    }

    /// The file, within the limits of `context`.
    #[cold]
    pub(super) fn limited(&self, context: &ReadContext) -> LimitedFile<'_> {
        LimitedFile {
            file: &*self.file,
            limits: context.limits,
            clock: &*self.table.clock,
            rate: self.table.rate_limiter.as_deref().zip(context.rate_limiter_priority),
            statistics: self.statistics(),
        }
    }

    pub(super) fn decompressor(&self, role: BlockRole) -> &Decompressor {
        if role == BlockRole::Data { &self.data_decompressor } else { &self.meta_decompressor }
    }

    /// An index block or partition.
    pub(crate) fn index_block(&self, context: &ReadContext, handle: BlockHandle) -> Result<BlockRef> {
        self.index_block_of(context, BlockRole::Index, handle)
    }

    fn index_block_of(
        &self,
        context: &ReadContext,
        role: BlockRole,
        handle: BlockHandle,
    ) -> Result<BlockRef> {
        self.meta_block(context, role, handle, |raw| {
            let corrupt = |what: &str| self.format().corrupt(role, handle.offset, what);
            let block = Block::new(raw).map_err(|bad| corrupt(bad.0))?;
            let format = self.index_format;
            let mut index = FlatIndex::decode(&block, format, &self.order.user, self.file_size)
                .map_err(|bad| corrupt(bad.0))?;
            index.protect(self.table.block_protection_bytes_per_key);
            Ok(CachedBlock::Index(Box::new(index)))
        })
    }

    /// The top level of a partitioned filter.
    pub(super) fn filter_index_block(&self, context: &ReadContext, handle: BlockHandle) -> Result<BlockRef> {
        self.index_block_of(context, BlockRole::FilterIndex, handle)
    }

    /// A filter block or partition.
    pub(super) fn filter_block(&self, context: &ReadContext, handle: BlockHandle) -> Result<BlockRef> {
        self.meta_block(context, BlockRole::Filter, handle, |raw| {
            let bytes = match &self.cache {
                Some(cache) => cache.hold(raw, handle.offset),
                None => raw.into(),
            };
            Ok(CachedBlock::Filter(ParsedFilter::new(bytes)))
        })
    }

    /// The filter in `raw`, for the table to keep, with its bytes where those of cached blocks are.
    pub(super) fn own_filter(&self, handle: BlockHandle, raw: Cow<'_, [u8]>) -> ParsedFilter {
        ParsedFilter::new(match &self.cache {
            Some(cache) => cache.hold_outside(raw, handle.offset),
            None => raw.into_owned().into(),
        })
    }

    fn meta_block(
        &self,
        context: &ReadContext,
        role: BlockRole,
        handle: BlockHandle,
        parse: impl FnOnce(Vec<u8>) -> Result<CachedBlock>,
    ) -> Result<BlockRef> {
        let tickers = role.tickers();
        if !self.is_for_scans {
            if let Some(block) = self.cached_meta_block(role, handle) {
                self.count_hit(context, tickers, handle, &block);
                return Ok(block);
            }
            self.count_miss(tickers, handle);
        }
        self.check_tier(context, role, handle)?;
        let _timer = PerfTimer::start(match role {
            BlockRole::Index => PerfMetric::ReadIndexBlockNanos,
            _ => PerfMetric::ReadFilterBlockNanos,
        });
        let timer = self.block_timer();
        let raw = self.read_alone(context, role, handle)?;
        drop(timer);
        if self.statistics().is_some() {
            BlocksRead { meta: 1, data: 0 }.add();
        }
        let block = parse(raw)?;
        let charge = block.memory_usage();
        // Whoever asked, the next read will want it too.
        let context = ReadContext { fill_cache: !self.is_for_scans, ..*context };
        self.keep(&context, handle, block, charge, self.meta_priority(), tickers)
    }

    fn cached_meta_block(&self, role: BlockRole, handle: BlockHandle) -> Option<BlockRef> {
        let block = BlockRef::Cached(self.cache.as_ref()?.get(&self.cache_key(handle))?);
        let is_kind = match role {
            BlockRole::Index | BlockRole::FilterIndex => block.index().is_some(),
            _ => block.filter().is_some(),
        };
        is_kind.then_some(block)
    }

    fn keep(
        &self,
        context: &ReadContext,
        handle: BlockHandle,
        block: CachedBlock,
        charge: usize,
        priority: Priority,
        tickers: &RoleTickers,
    ) -> Result<BlockRef> {
        self.tell_of_new(context, handle, &block, charge, priority, tickers);
        match &self.cache {
            Some(cache) if context.fill_cache => {
                let key = self.cache_key(handle);
                let is_redundant = self.statistics().is_some() && cache.contains(&key);
                match cache.insert(key, block, charge, priority) {
                    Ok(kept) => {
                        if let Some(statistics) = self.statistics() {
                            count_add(statistics, tickers, charge, is_redundant);
                        }
                        Ok(BlockRef::Cached(kept))
                    }
                    Err(error) => {
                        self.format().count(Ticker::BlockCacheAddFailures, 1);
                        Err(error)
                    }
                }
            }
            _ => Ok(BlockRef::Owned(Arc::new(block))),
        }
    }

    /// Data block `at` of `index`, which `raw` is; in the cache from now on, if the reader wants that and the cache takes it in.
    pub(super) fn keep_data_block(
        &self,
        context: &ReadContext,
        index: &FlatIndex,
        at: usize,
        raw: Vec<u8>,
    ) -> Result<BlockRef> {
        let handle = index.handle(at);
        let cache = self.cache.as_ref().filter(|_| context.fill_cache);
        if cache.is_some_and(|cache| !cache.admits(&self.cache_key(handle), raw.len())) {
            let once = ReadContext { fill_cache: false, ..*context };
            let block = CachedBlock::Data(self.parse_data_block(&once, handle, raw)?);
            let charge = block.memory_usage();
            self.tell_of_new(context, handle, &block, charge, Priority::Low, &DATA_TICKERS);
            return Ok(BlockRef::Owned(Arc::new(block)));
        }
        let mut block = self.parse_data_block(context, handle, raw)?;
        if let Some(cache) = cache {
            block = block.moved_to(cache, self.cache_file_id); // What is read in order lies in order.
        }
        let charge = block.memory_usage();
        let block =
            self.keep(context, handle, CachedBlock::Data(block), charge, Priority::Low, &DATA_TICKERS)?;
        if let BlockRef::Cached(cached) = &block {
            index.note_place(at, cached.hint(), || cached.bytes_first());
        }
        Ok(block)
    }

    /// Tells traces of a block that was not in the cache, and a simulated cache, if the reader wants it kept. Whether the cache
    /// takes it in makes no difference to them.
    fn tell_of_new(
        &self,
        context: &ReadContext,
        handle: BlockHandle,
        block: &CachedBlock,
        charge: usize,
        priority: Priority,
        tickers: &RoleTickers,
    ) {
        let is_wanted = context.fill_cache && self.cache.is_some();
        if self.is_traced() {
            let size = if is_wanted { charge } else { 0 };
            self.trace(context, tickers, handle, false, size as u64, block.restart_count());
        }
        if let Some(simulated) = self.table.sim_cache.as_ref().filter(|_| is_wanted) {
            simulated.add(self.cache_key(handle), charge, priority);
        }
    }

    #[inline]
    pub(super) fn cache_key(&self, handle: BlockHandle) -> CacheKey {
        CacheKey(self.cache_file_id, handle.offset)
    }

    /// Refuses to read from the file if the caller said so.
    pub(super) fn check_tier(
        &self,
        context: &ReadContext,
        role: BlockRole,
        handle: BlockHandle,
    ) -> Result<()> {
        match context.read_tier {
            ReadTier::All | ReadTier::Persisted => Ok(()),
            ReadTier::BlockCache | ReadTier::Memtable => Err(self.refused(context, role, handle)),
        }
    }

    #[cold]
    fn refused(&self, context: &ReadContext, role: BlockRole, handle: BlockHandle) -> Error {
        // A point read ends there, and traces nothing.
        if self.is_traced() && !block_trace::is_point_read() {
            self.trace(context, role.tickers(), handle, false, 0, 0);
        }
        Error::incomplete(format!(
            "{} at {}: {} is not in the block cache, and the file may not be read",
            self.path().display(),
            handle.offset,
            role.name()
        ))
    }

    #[inline]
    pub(super) fn statistics(&self) -> Option<&Statistics> {
        self.table.statistics.as_deref()
    }
    /// Times how long a block takes that is not in the cache, until it is there uncompressed.
    fn block_timer(&self) -> StatsTimer<'_> {
        let histogram = match IoActivity::current() {
            IoActivity::Compaction => Histogram::ReadBlockCompactionMicros,
            _ => Histogram::ReadBlockGetMicros,
        };
        StatsTimer::start(self.statistics(), histogram)
    }
    #[inline(always)] // On the way of every read.
    pub(super) fn count_hit(
        &self,
        context: &ReadContext,
        tickers: &RoleTickers,
        handle: BlockHandle,
        block: &CachedBlock,
    ) {
        if self.is_watched.load(Relaxed) {
            self.tell_hit(context, tickers, handle, block);
        }
        if perf::is_counting() {
            let bytes = block.memory_usage() as u64;
            perf::count_with_level(PerfMetric::BlockCacheHitCount, || {
                (LevelMetric::BlockCacheHitCount, self.level)
            });
            perf::count(PerfMetric::BlockCacheReadByte, bytes);
            if let Some([hits, read]) = tickers.perf {
                perf::count_all([(hits, 1), (read, bytes)]);
            }
        }
        if let Some(statistics) = self.statistics() {
            statistics.record(Ticker::BlockCacheHit, 1);
            statistics.record(Ticker::BlockCacheBytesRead, block.memory_usage() as u64);
            statistics.record(tickers.hit, 1);
        }
    }
    #[cold]
    fn tell_hit(
        &self,
        context: &ReadContext,
        tickers: &RoleTickers,
        handle: BlockHandle,
        block: &CachedBlock,
    ) {
        if let Some(simulated) = &self.table.sim_cache {
            self.simulate_hit(simulated, tickers, handle, block.memory_usage());
        }
        let size = block.memory_usage() as u64;
        self.trace(context, tickers, handle, true, size, block.restart_count());
    }
    fn simulate_hit(&self, simulated: &SimCache, tickers: &RoleTickers, handle: BlockHandle, charge: usize) {
        let priority = if tickers.perf.is_some() { self.meta_priority() } else { Priority::Low };
        simulated.look_up(&self.cache_key(handle), Some((charge, priority)), self.statistics());
    }
    pub(super) fn count_miss(&self, tickers: &RoleTickers, handle: BlockHandle) {
        if let Some(simulated) = self.table.sim_cache.as_ref().filter(|_| self.cache.is_some()) {
            simulated.look_up(&self.cache_key(handle), None, self.statistics());
        }
        if self.cache.is_some() {
            perf::count_at_level(LevelMetric::BlockCacheMissCount, self.level);
        }
        if let Some(statistics) = self.statistics().filter(|_| self.cache.is_some()) {
            statistics.record(Ticker::BlockCacheMiss, 1);
            statistics.record(tickers.miss, 1);
        }
    }
}

/// Counts a block that entered the cache. `is_redundant`: it was there already, put in by another thread.
pub(crate) fn count_add(statistics: &Statistics, tickers: &RoleTickers, charge: usize, is_redundant: bool) {
    statistics.record(Ticker::BlockCacheAdd, 1);
    statistics.record(tickers.add, 1);
    if is_redundant {
        statistics.record(Ticker::BlockCacheAddRedundant, 1);
        statistics.record(tickers.redundant, 1);
    }
    statistics.record(tickers.bytes, charge as u64);
    statistics.record(Ticker::BlockCacheBytesWrite, charge as u64);
}

impl BlockBasedReader {
    /// Whether what is asked of the cache goes into a trace.
    pub(super) fn is_traced(&self) -> bool {
        self.table.watch.as_ref().is_some_and(|watch| watch.is_on().load(Relaxed))
    }
    /// From now on blocks are asked for `caller`, if there is a trace.
    pub(super) fn traced_call(&self, caller: TableReaderCaller) -> Option<TracedCall> {
        self.is_traced().then(|| TracedCall::begin(caller))
    }
    /// A block by what traces and caches know it by.
    pub(super) fn place_of(&self, handle: BlockHandle) -> BlockPlace {
        (self.cache_file_id, handle.offset)
    }
    #[cold]
    fn trace(
        &self,
        context: &ReadContext,
        tickers: &RoleTickers,
        handle: BlockHandle,
        is_cache_hit: bool,
        block_size: u64,
        restart_count: u32,
    ) {
        let Some(watch) = self.table.watch.as_ref().filter(|_| self.is_traced()) else { return };
        let (file, offset) = self.place_of(handle);
        let mut block_key = Vec::new();
        if self.cache.is_some() {
            put_varint64(&mut block_key, file);
            put_varint64(&mut block_key, offset);
        }
        let record = BlockCacheTraceRecord {
            access_timestamp: 0,
            block_key,
            block_type: tickers.traced,
            block_size,
            cf_id: self.properties().column_family_id,
            cf_name: self.properties().column_family_name.clone(),
            level: self.level,
            sst_fd_number: self.file_number.0,
            caller: TableReaderCaller::Uncategorized,
            is_cache_hit,
            no_insert: context.read_tier == ReadTier::BlockCache || !context.fill_cache,
            get_id: 0,
            get_from_user_specified_snapshot: false,
            referenced_key: Vec::new(),
            referenced_data_size: 0,
            num_keys_in_block: 0,
            referenced_key_exist_in_block: false,
        };
        let keys = (u64::from(restart_count), u64::from(self.table.block_restart_interval));
        block_trace::note_access(watch, (file, offset), record, keys);
    }
}

/// What is counted for a kind of block.
pub(crate) struct RoleTickers {
    /// What it is in traces.
    traced: TracedBlock,
    hit: Ticker,
    miss: Ticker,
    add: Ticker,
    redundant: Ticker,
    bytes: Ticker,
    /// Of hits, and of their bytes, where these are counted apart.
    perf: Option<[PerfMetric; 2]>,
}

pub(super) static DATA_TICKERS: RoleTickers = RoleTickers {
    traced: TracedBlock::Data,
    hit: Ticker::BlockCacheDataHit,
    miss: Ticker::BlockCacheDataMiss,
    add: Ticker::BlockCacheDataAdd,
    redundant: Ticker::BlockCacheDataAddRedundant,
    bytes: Ticker::BlockCacheDataBytesInsert,
    perf: None,
};
static INDEX_TICKERS: RoleTickers = RoleTickers {
    traced: TracedBlock::Index,
    hit: Ticker::BlockCacheIndexHit,
    miss: Ticker::BlockCacheIndexMiss,
    add: Ticker::BlockCacheIndexAdd,
    redundant: Ticker::BlockCacheIndexAddRedundant,
    bytes: Ticker::BlockCacheIndexBytesInsert,
    perf: Some([PerfMetric::BlockCacheIndexHitCount, PerfMetric::BlockCacheIndexReadByte]),
};
static FILTER_TICKERS: RoleTickers = RoleTickers {
    traced: TracedBlock::Filter,
    hit: Ticker::BlockCacheFilterHit,
    miss: Ticker::BlockCacheFilterMiss,
    add: Ticker::BlockCacheFilterAdd,
    redundant: Ticker::BlockCacheFilterAddRedundant,
    bytes: Ticker::BlockCacheFilterBytesInsert,
    perf: Some([PerfMetric::BlockCacheFilterHitCount, PerfMetric::BlockCacheFilterReadByte]),
};
