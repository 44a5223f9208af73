//! Point reads.

use super::fetch::BlockRole;
use super::{BlockBasedReader, FilterHome, FilterPartitions, Home, IndexCursor, Lent, TableEntry};
use crate::block::{Beginning, Cursor, Lookup, apply_global};
use crate::cached_block::{BlockRef, PinnedBytes};
use crate::filter_block::{KeyHash, ParsedFilter, PointTarget};
use crate::index::FlatIndex;
use crate::options::ReadContext;
use ironstone_base::perf::{self, LevelMetric, PerfMetric};
use ironstone_base::prefix_seek::Direction;
use ironstone_base::statistics::Ticker;
use ironstone_base::{InternalKey, InternalKeyBuf, PrefixSeek, Result, SequenceNumber, ValueType};
use ironstone_vfs::PerfTimer;

/// A block of a table that likely has a key.
#[derive(Clone, Copy)]
pub struct LikelyBlock(usize);

/// What one block told about a target.
pub(super) enum Answer {
    Entry(TableEntry),
    Absent,
    /// The next block may have it.
    GoOn,
}

impl BlockBasedReader {
    /// The newest entry of `target`'s user key at or below `target`'s sequence number.
    #[inline]
    pub fn get<'a>(
        &self,
        context: &ReadContext,
        target: impl Into<PointTarget<'a>>,
    ) -> Result<Option<TableEntry>> {
        self.get_likely(context, target.into(), None)
    }

    /// The block that has `target`'s key if the table has it. Where the cache had it last is asked for, to be had when
    /// filters were looked at, and if `with_bytes` the bytes that are looked at first. `None` where that takes more than a look at an index in memory.
    #[inline]
    pub fn likely_block(&self, target: InternalKey<'_>, with_bytes: bool) -> Option<LikelyBlock> {
        let (index, cache) = (self.resident_index()?, self.cache.as_ref()?);
        if self.is_protected {
            return None; // Whoever uses a block's place checks it, and answers for what is wrong with it.
        }
        let at = index.find(&self.order.user, target);
        if at < index.len() {
            match with_bytes {
                true => self.prefetch_block(index, at),
                false => cache.prefetch(index.slot(at)),
            }
        }
        Some(LikelyBlock(at))
    }

    /// The same as `get`, with what [`likely_block`](Self::likely_block) has answered for `target`.
    #[inline]
    pub fn get_likely(
        &self,
        context: &ReadContext,
        target: PointTarget<'_>,
        likely: Option<LikelyBlock>,
    ) -> Result<Option<TableEntry>> {
        if !self.filter_lets_pass(context, target)? {
            return Ok(None);
        }
        let found = match self.resident_index() {
            Some(index) => {
                let at = match likely {
                    Some(LikelyBlock(at)) => at,
                    None => self.find_block(index, target.key)?,
                };
                self.get_from(context, index, at, target.key)
            }
            None => self.get_by_cursor::<false>(context, target.key),
        }?;
        self.count_true_positive(found.is_some());
        Ok(found)
    }

    /// The same as `get`, and counts how long it takes to have blocks and to search them.
    #[cold]
    pub fn get_timed<'a>(
        &self,
        context: &ReadContext,
        target: impl Into<PointTarget<'a>>,
    ) -> Result<Option<TableEntry>> {
        let target = target.into();
        if !self.filter_lets_pass(context, target)? {
            return Ok(None);
        }
        let found = self.get_by_cursor::<true>(context, target.key)?;
        self.count_true_positive(found.is_some());
        Ok(found)
    }

    /// Asks for the memory that the filter's answer takes, to be had when something else is done.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        if let FilterHome::Full(Home::Resident(filter)) = &self.filter {
            filter.prefetch(hash);
        }
    }

    /// The index, if it is one level that is always there.
    #[inline]
    pub(super) fn resident_index(&self) -> Option<&FlatIndex> {
        match &self.index {
            super::IndexHome { top: Home::Resident(index), is_two_level: false, .. } => Some(index),
            _ => None,
        }
    }

    /// Looks for `target` from block `at` of `index` on.
    #[inline]
    pub(super) fn get_from(
        &self,
        context: &ReadContext,
        index: &FlatIndex,
        mut at: usize,
        target: InternalKey<'_>,
    ) -> Result<Option<TableEntry>> {
        while at < index.len() {
            let block = self.data_block(context, index, at)?;
            match self.search(block, index, at, target)? {
                Answer::Entry(entry) => return Ok(Some(entry)),
                Answer::Absent => return Ok(None),
                Answer::GoOn => at += 1,
            }
        }
        Ok(None)
    }

    /// `TIMED`: how long the steps take is counted.
    fn get_by_cursor<const TIMED: bool>(
        &self,
        context: &ReadContext,
        target: InternalKey<'_>,
    ) -> Result<Option<TableEntry>> {
        let mut cursor = IndexCursor::new(self, context)?;
        let timer = TIMED.then(|| PerfTimer::start(PerfMetric::BlockSeekNanos));
        let mut more = cursor.seek(self, context, target)?;
        drop(timer);
        while let (true, Some((index, at))) = (more, cursor.current(self)) {
            let timer = TIMED.then(|| PerfTimer::start(PerfMetric::NewTableBlockIterNanos));
            let block = self.data_block(context, index, at)?;
            drop(timer);
            let _timer = TIMED.then(|| PerfTimer::start(PerfMetric::BlockSeekNanos));
            match self.search(block, index, at, target)? {
                Answer::Entry(entry) => return Ok(Some(entry)),
                Answer::Absent => return Ok(None),
                Answer::GoOn => more = cursor.next(self, context)?,
            }
        }
        Ok(None)
    }

    /// Looks for `target` in `block`, which is block `at` of `index`.
    #[inline]
    fn search(
        &self,
        block: BlockRef,
        index: &FlatIndex,
        at: usize,
        target: InternalKey<'_>,
    ) -> Result<Answer> {
        let beginning = block.data().map(|entries| entries.begin_lookup(&self.order, target));
        self.search_from(beginning.unwrap_or(Beginning::Unknown), block, index, at, target)
    }

    /// The same from where the block was said to begin with.
    #[inline]
    pub(super) fn search_from(
        &self,
        beginning: Beginning,
        block: BlockRef,
        index: &FlatIndex,
        at: usize,
        target: InternalKey<'_>,
    ) -> Result<Answer> {
        let offset = || index.handle(at).offset;
        let Some(entries) = block.data() else {
            return Err(self.format().corrupt(BlockRole::Data, offset(), "the cache has another block here"));
        };
        let outcome = entries
            .lookup_from(beginning, &self.order, target, self.global_sequence)
            .map_err(|bad| self.format().corrupt(BlockRole::Data, offset(), bad.0))?;
        match outcome {
            Lookup::Found { trailer, value_at, value_len } => {
                let value_type = ValueType::from_byte(trailer as u8).filter(|kind| kind.is_point_entry());
                let Some(value_type) = value_type else {
                    let what = format!("an entry has value type {:#x}", trailer as u8);
                    return Err(self.format().corrupt(BlockRole::Data, offset(), what));
                };
                entries.note_read(value_at, value_at + value_len);
                let value = PinnedBytes::in_block(block, value_at, value_len);
                Ok(Answer::Entry(TableEntry { sequence: SequenceNumber(trailer >> 8), value_type, value }))
            }
            Lookup::Absent => Ok(Answer::Absent),
            // The next block begins with a key after the separator: only if that is the very key that
            // we look for can more of its entries follow.
            Lookup::Beyond if index.ends_with(&self.order.user, at, target.user_key()) => Ok(Answer::GoOn),
            Lookup::Beyond => Ok(Answer::Absent),
        }
    }

    /// Hands `visit` the entries of `target`'s user key at or below `target`'s sequence number, newest
    /// first, until it answers `false` or there are no more.
    pub fn visit<'a>(
        &self,
        context: &ReadContext,
        target: impl Into<PointTarget<'a>>,
        visit: &mut dyn FnMut(TableEntry) -> bool,
    ) -> Result<()> {
        let target = target.into();
        if !self.filter_lets_pass(context, target)? {
            return Ok(());
        }
        let target = target.key;
        let mut blocks = IndexCursor::new(self, context)?;
        let timer = PerfTimer::start(PerfMetric::BlockSeekNanos);
        let mut more = blocks.seek(self, context, target)?;
        drop(timer);
        let mut found = false;
        while let (true, Some((index, at))) = (more, blocks.current(self)) {
            let timer = PerfTimer::start(PerfMetric::NewTableBlockIterNanos);
            let block = self.data_block(context, index, at)?;
            drop(timer);
            let offset = index.handle(at).offset;
            let may_go_on = index.ends_with(&self.order.user, at, target.user_key());
            let ended = self.visit_block(&block, offset, target, &mut |entry| {
                found = true;
                visit(entry)
            })?;
            if ended || !may_go_on {
                break;
            }
            more = blocks.next(self, context)?;
        }
        self.count_true_positive(found);
        Ok(())
    }

    /// Answers whether the visit is over.
    fn visit_block(
        &self,
        block: &BlockRef,
        offset: u64,
        target: InternalKey<'_>,
        visit: &mut dyn FnMut(TableEntry) -> bool,
    ) -> Result<bool> {
        let corrupt = |what: &str| self.format().corrupt(BlockRole::Data, offset, what);
        let entries = block.data().ok_or_else(|| corrupt("the cache has another block here"))?;
        let mut cursor = Cursor::default();
        let timer = PerfTimer::start(PerfMetric::BlockSeekNanos);
        let mut more = cursor.seek(entries, &self.order, target).map_err(|bad| corrupt(bad.0))?;
        drop(timer);
        while more {
            let key = cursor.key(entries);
            if !self.order.user.equal(key.user_key(), target.user_key()) {
                return Ok(true);
            }
            let trailer = apply_global(key.trailer(), self.global_sequence);
            if trailer <= target.trailer() {
                let value_type = ValueType::from_byte(trailer as u8)
                    .filter(|kind| kind.is_point_entry())
                    .ok_or_else(|| corrupt("an entry has an unknown value type"))?;
                let (start, len) = cursor.value_range();
                entries.note_read(start, start + len);
                let value = PinnedBytes::in_block(block.clone(), start, len);
                if !visit(TableEntry { sequence: SequenceNumber(trailer >> 8), value_type, value }) {
                    return Ok(true);
                }
            }
            more = cursor.next(entries).map_err(|bad| corrupt(bad.0))?;
        }
        Ok(false)
    }

    /// Whether the table can hold `user_key`, by its filter. No blocks but those of the filter are read.
    pub fn may_match(&self, context: &ReadContext, user_key: &[u8]) -> Result<bool> {
        let target = InternalKeyBuf::for_seek(user_key, SequenceNumber::MAX);
        self.filter_lets_pass(context, target.as_key().into())
    }

    /// Whether the table can hold a key at or after `target` with the same prefix, by its filter.
    pub fn prefix_may_match(&self, context: &ReadContext, target: InternalKey<'_>) -> Result<bool> {
        let Some(extractor) = self.filter_extractor.as_ref().filter(|_| !context.skip_filters) else {
            return Ok(true);
        };
        match extractor.transform(target.user_key()) {
            Some(prefix) => self.ask_for_prefix(context, prefix, target),
            None => Ok(true),
        }
    }

    /// Whether the filter was asked, and whether it says that an iterator finds nothing that it wants from `target` on.
    pub fn is_ruled_out(
        &self,
        context: &ReadContext,
        seek: &PrefixSeek,
        target: InternalKey<'_>,
        direction: Direction,
    ) -> Result<(bool, bool)> {
        match &self.filter_extractor {
            Some(extractor) if !matches!(self.filter, FilterHome::None) && !context.skip_filters => {
                let mut asked = false;
                let ask = |prefix: &[u8]| {
                    asked = true;
                    self.ask_for_prefix(context, prefix, target)
                };
                let is_out = seek.is_ruled_out(target.user_key(), direction, extractor, ask)?;
                match (asked, is_out) {
                    (false, _) => {}
                    (_, true) => {
                        self.count_seek(Ticker::LastLevelSeekFiltered, Ticker::NonLastLevelSeekFiltered)
                    }
                    (_, false) => {
                        self.count_seek(
                            Ticker::LastLevelSeekFilterMatch,
                            Ticker::NonLastLevelSeekFilterMatch,
                        );
                    }
                }
                Ok((asked, is_out))
            }
            _ => Ok((false, false)),
        }
    }

    #[inline(never)] // Reads of keys ask for whole keys as a rule.
    fn ask_for_prefix(&self, context: &ReadContext, prefix: &[u8], target: InternalKey<'_>) -> Result<bool> {
        let may_match = self.ask_filter(context, prefix, KeyHash::of(prefix), target)?;
        perf::count(filter_count(may_match), 1);
        self.count(Ticker::BloomFilterPrefixChecked);
        if !may_match {
            self.count(Ticker::BloomFilterPrefixUseful);
        }
        Ok(may_match)
    }

    #[inline]
    pub(super) fn filter_lets_pass(&self, context: &ReadContext, target: PointTarget<'_>) -> Result<bool> {
        if context.skip_filters || matches!(self.filter, FilterHome::None) {
            return Ok(true);
        }
        if self.filters_keys {
            let passes = self.ask_filter(context, target.key.user_key(), target.hash, target.key)?;
            self.count_filter(passes);
            self.count(if passes { Ticker::BloomFilterFullPositive } else { Ticker::BloomFilterUseful });
            return Ok(passes);
        }
        self.prefix_filter_lets_pass(context, target.key)
    }

    #[inline(never)] // Reads of keys ask for whole keys as a rule.
    fn prefix_filter_lets_pass(&self, context: &ReadContext, target: InternalKey<'_>) -> Result<bool> {
        let Some(prefix) = self.filter_extractor.as_ref().and_then(|by| by.transform(target.user_key()))
        else {
            return Ok(true);
        };
        let passes = self.ask_for_prefix(context, prefix, target)?;
        perf::count_at_level(filter_metric(passes), self.level);
        Ok(passes)
    }

    /// Whether the filter of the partition around `target` may have been given `entry`.
    #[inline]
    fn ask_filter(
        &self,
        context: &ReadContext,
        entry: &[u8],
        hash: KeyHash,
        target: InternalKey<'_>,
    ) -> Result<bool> {
        match &self.filter {
            FilterHome::None => Ok(true),
            FilterHome::Full(Home::Resident(filter)) => Ok(filter.may_match(entry, hash)),
            FilterHome::Full(home) => self.ask_cached(context, home, entry, hash),
            FilterHome::Partitioned { top, partitions } => {
                self.ask_partition(context, top, partitions, (entry, hash), target)
            }
        }
    }

    fn ask_cached(
        &self,
        context: &ReadContext,
        home: &Home<ParsedFilter>,
        entry: &[u8],
        hash: KeyHash,
    ) -> Result<bool> {
        let filter: Lent<'_, ParsedFilter> = match home {
            Home::Resident(filter) => Lent::Resident(filter),
            Home::Pinned(block) => Lent::Block(block.clone()),
            Home::Cached(handle) => match self.filter_block(context, *handle) {
                // Whether the key is there cannot be told without the file: the data block will tell.
                Err(error) if error.is_incomplete() => return Ok(true),
                block => Lent::Block(block?),
            },
        };
        Ok(filter.may_match(entry, hash))
    }

    fn ask_partition(
        &self,
        context: &ReadContext,
        top: &Home<FlatIndex>,
        partitions: &FilterPartitions,
        (entry, hash): (&[u8], KeyHash),
        target: InternalKey<'_>,
    ) -> Result<bool> {
        let top: Lent<'_, FlatIndex> = match top {
            Home::Resident(index) => Lent::Resident(index),
            Home::Pinned(block) => Lent::Block(block.clone()),
            Home::Cached(handle) => match self.filter_index_block(context, *handle) {
                Err(error) if error.is_incomplete() => return Ok(true),
                block => Lent::Block(block?),
            },
        };
        if top.is_empty() {
            return Ok(true);
        }
        // Beyond the last key there is still the last partition: it may have the prefix.
        let at = top.find(&self.order.user, target).min(top.len() - 1);
        match partitions {
            FilterPartitions::Resident(all) => {
                Ok(all.get(at).is_none_or(|filter| filter.may_match(entry, hash)))
            }
            FilterPartitions::Pinned(all) => {
                let filter = all.get(at).and_then(BlockRef::filter);
                Ok(filter.is_none_or(|filter| filter.may_match(entry, hash)))
            }
            FilterPartitions::Cached => self.ask_cached(context, &Home::Cached(top.handle(at)), entry, hash),
        }
    }

    #[inline]
    fn count(&self, ticker: Ticker) {
        if let Some(statistics) = &self.table.statistics {
            statistics.record(ticker, 1);
        }
    }
    #[inline]
    fn count_filter(&self, passes: bool) {
        perf::count_with_level(filter_count(passes), || (filter_metric(passes), self.level));
    }
    /// Counts a seek, by level.
    fn count_seek(&self, on_last_level: Ticker, above: Ticker) {
        self.count(if self.level >= self.table.last_level { on_last_level } else { above });
    }
    /// Counts a seek that read data.
    #[inline]
    pub(crate) fn count_seek_data(&self) {
        self.count_seek(Ticker::LastLevelSeekData, Ticker::NonLastLevelSeekData);
    }
    /// Counts a seek whose data was of use.
    pub(crate) fn count_seek_use(&self, filter_used: bool) {
        match filter_used {
            true => self.count_seek(
                Ticker::LastLevelSeekDataUsefulFilterMatch,
                Ticker::NonLastLevelSeekDataUsefulFilterMatch,
            ),
            false => self.count_seek(
                Ticker::LastLevelSeekDataUsefulNoFilter,
                Ticker::NonLastLevelSeekDataUsefulNoFilter,
            ),
        }
    }
    #[inline]
    pub(super) fn count_true_positive(&self, found: bool) {
        if found && !matches!(self.filter, FilterHome::None) {
            if self.filters_keys {
                perf::count_at_level(LevelMetric::BloomFilterFullTruePositive, self.level);
                self.count(Ticker::BloomFilterFullTruePositive);
            } else if self.filter_extractor.is_some() {
                self.count(Ticker::BloomFilterPrefixTruePositive);
            }
        }
    }
}

#[inline]
fn filter_count(passes: bool) -> PerfMetric {
    if passes { PerfMetric::BloomSstHitCount } else { PerfMetric::BloomSstMissCount }
}
#[inline]
fn filter_metric(passes: bool) -> LevelMetric {
    if passes { LevelMetric::BloomFilterFullPositive } else { LevelMetric::BloomFilterUseful }
}
