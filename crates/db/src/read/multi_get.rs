//! Many point lookups at once, in steps that each go over all keys, so that what one key waits for (memory, blocks of the
//! file) is on its way while the others go on.
//!
//! ```text
//! candidates   for each key the tables of all levels that may hold it; their filters are asked for
//! a round      each key goes on to the first table whose filter lets it pass; the blocks that they want come from the
//!              cache or, all together, from the files; each is searched
//! ```
//! Keys that were not found there go on in the next round. There seldom is one: filters are seldom wrong.

use super::get::{Found, count_hit, from_table, in_memtable, not_in_memtables};
use super::pinned_value::PinnedValue;
use super::read_options::ReadOptions;
use super::view::SuperVersion;
use crate::table_cache::TableSlot;
use ironstone_base::perf::{self, LevelMetric, PerfMetric};
use ironstone_base::statistics::{BlocksRead, Histogram, Ticker};
use ironstone_base::sync::Arc;
use ironstone_base::{Error, InternalKeyBuf, Result, SequenceNumber, Statistics};
use ironstone_sst::block_trace;
use ironstone_sst::{
    KeyHash, MissingBlock, PendingGet, PointTarget, ReadContext, ReadTier, TableEntry, TableReader,
    read_blocks,
};
use ironstone_vfs::{Clock, PerfTimer};
use std::ops::Range;

/// A key that is not in the memtables.
struct Pending<'a> {
    /// Its place among the keys that were asked for.
    index: usize,
    user_key: &'a [u8],
    target: InternalKeyBuf,
    hash: KeyHash,
}

impl Pending<'_> {
    fn target(&self) -> PointTarget<'_> {
        PointTarget { key: self.target.as_key(), hash: self.hash }
    }
}

/// A table that may hold some key, and the gets that wait there for their blocks.
struct Group<'a, 'k> {
    slot: &'a Arc<TableSlot>,
    /// Once it is open.
    reader: Option<Arc<TableReader>>,
    /// By their places among the pending ones.
    keys: Vec<usize>,
    gets: Vec<PendingGet<'k>>,
    /// Blocks that are not in the cache.
    missing: Vec<MissingBlock>,
}

/// Blocks read from files of each level, where statistics are kept.
struct LevelsRead<'a> {
    statistics: Option<&'a Statistics>,
    levels: Vec<BlocksRead>,
}

impl<'a> LevelsRead<'a> {
    fn new(statistics: Option<&'a Statistics>, levels: usize) -> Self {
        BlocksRead::take();
        Self {
            statistics,
            levels: vec![BlocksRead::default(); if statistics.is_some() { levels } else { 0 }],
        }
    }
    /// What the thread has read since the last time was of `level`.
    #[inline]
    fn note(&mut self, level: u32) {
        if let Some(sum) = self.levels.get_mut(level as usize) {
            let BlocksRead { meta, data } = BlocksRead::take();
            (sum.meta, sum.data) = (sum.meta + meta, sum.data + data);
        }
    }
    /// What it has read since then were these, of several levels.
    fn note_groups(&mut self, groups: &[Group<'_, '_>]) {
        for Group { slot, missing, .. } in groups {
            if let Some(sum) = self.levels.get_mut(slot.level() as usize) {
                sum.data += missing.len() as u64;
            }
        }
        BlocksRead::take();
    }
    fn measure(self) {
        let Some(statistics) = self.statistics else { return };
        for BlocksRead { meta, data } in &self.levels {
            if *meta > 0 {
                statistics.measure(Histogram::NumIndexAndFilterBlocksReadPerLevel, *meta);
            }
            if *data > 0 {
                statistics.measure(Histogram::NumSstReadPerLevel, *data);
            }
        }
        let levels_read = self.levels.iter().filter(|level| level.data > 0).count() as u64;
        if levels_read > 0 {
            statistics.measure(Histogram::NumLevelReadPerMultiget, levels_read);
        }
    }
}

/// How many keys are looked for between two looks at what a read may still do. RocksDB's number.
const LIMITED_BATCH: usize = 32;

/// What one read of many keys may do yet.
pub(crate) struct MultiGetLimits<'a> {
    deadline_micros: u64,
    clock: &'a dyn Clock,
    soft_limit: u64,
    found_bytes: u64,
}

impl<'a> MultiGetLimits<'a> {
    pub(crate) fn new(options: &ReadOptions, clock: &'a dyn Clock) -> Self {
        let deadline_micros = options.context().limits.deadline_micros;
        Self { deadline_micros, clock, soft_limit: options.value_size_soft_limit, found_bytes: 0 }
    }
    /// Whether there is time and room for more.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_size()?;
        match self.deadline_micros > 0 && self.clock.now_micros() >= self.deadline_micros {
            true => Err(Error::timed_out("multi-get: the deadline passed before the key was looked for")),
            false => Ok(()),
        }
    }
    fn check_size(&self) -> Result<()> {
        match self.found_bytes > self.soft_limit {
            true => Err(Error::aborted(format!(
                "multi-get: value_size_soft_limit: the keys before have {} bytes, more than {}",
                self.found_bytes, self.soft_limit
            ))),
            false => Ok(()),
        }
    }
    /// `found`, unless what came before it was too much.
    pub(crate) fn take(&mut self, found: Result<Option<PinnedValue>>) -> Result<Option<PinnedValue>> {
        self.check_size()?;
        if let Ok(Some(value)) = &found {
            self.found_bytes += value.len() as u64;
        }
        found
    }
}

impl SuperVersion {
    /// As [`multi_get`](Self::multi_get), within the limits of `options`: in the order of the keys, a few at a time.
    #[cold]
    pub(crate) fn multi_get_within(
        &self,
        keys: &[&[u8]],
        at: SequenceNumber,
        options: &ReadOptions,
        clock: &dyn Clock,
    ) -> Vec<Result<Option<PinnedValue>>> {
        let (context, order) = (options.context(), &self.comparator.user);
        let mut places: Vec<usize> = (0..keys.len()).collect();
        places.sort_by(|&a, &b| order.compare(keys[a], keys[b]));
        let mut results: Vec<Result<Option<PinnedValue>>> = keys.iter().map(|_| Ok(None)).collect();
        let mut limits = MultiGetLimits::new(options, clock);
        for batch in places.chunks(LIMITED_BATCH) {
            if let Err(error) = limits.check() {
                batch.iter().for_each(|&place| results[place] = Err(error.clone()));
                continue;
            }
            let asked: Vec<&[u8]> = batch.iter().map(|&place| keys[place]).collect();
            for (&place, found) in batch.iter().zip(self.multi_get(&asked, at, &context)) {
                results[place] = limits.take(found);
            }
        }
        results
    }

    /// The values of `keys` at `at`, in the order of `keys`.
    pub(crate) fn multi_get(
        &self,
        keys: &[&[u8]],
        at: SequenceNumber,
        context: &ReadContext,
    ) -> Vec<Result<Option<PinnedValue>>> {
        let mut results: Vec<Result<Option<PinnedValue>>> = keys.iter().map(|_| Ok(None)).collect();
        let timer = PerfTimer::start(PerfMetric::GetFromMemtableTime);
        let mut left = self.not_in_memtables(keys, at, context, &mut results);
        drop(timer);
        if context.read_tier == ReadTier::Memtable {
            left.into_iter().for_each(|(_, index)| results[index] = Err(not_in_memtables()));
            return results;
        }
        self.note_missed_memtables(left.len());
        let _timer = PerfTimer::start(PerfMetric::GetFromOutputFilesTime);
        let order = &self.comparator.user;
        left.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| order.compare(keys[a.1], keys[b.1])));
        let pending = left.into_iter().map(|(_, index)| Pending {
            index,
            user_key: keys[index],
            target: InternalKeyBuf::for_seek(keys[index], at),
            hash: KeyHash::of(keys[index]),
        });
        self.in_tables_together(&pending.collect::<Vec<_>>(), context, &mut results);
        results
    }

    /// Looks for `pending`, which ascend, in the tables.
    fn in_tables_together(
        &self,
        pending: &[Pending<'_>],
        context: &ReadContext,
        results: &mut [Result<Option<PinnedValue>>],
    ) {
        let mut groups: Vec<Group<'_, '_>> = Vec::new();
        // The groups that each key may be in, from the newest table to the oldest, end to end.
        let mut candidates: Vec<usize> = Vec::with_capacity(4 * pending.len());
        let mut ways: Vec<Range<usize>> = Vec::with_capacity(pending.len());
        let mut before = 0;
        for key in pending {
            let start = candidates.len();
            self.candidates(key.target.as_key(), |view, index| {
                let slot = &view.tables[index];
                // Keys that follow each other are mostly held by the same tables.
                let alike = candidates[before..start].get(candidates.len() - start).copied();
                let group = alike.filter(|&group| Arc::ptr_eq(groups[group].slot, slot));
                let group = group.unwrap_or_else(|| group_of(&mut groups, slot));
                if let Some(reader) = &groups[group].reader {
                    reader.prefetch(key.hash);
                }
                candidates.push(group);
            });
            ways.push(start..candidates.len());
            before = start;
        }
        let mut levels_read = LevelsRead::new(self.statistics.as_deref(), self.levels.len());
        let mut answers: Vec<(usize, Result<Found>)> = Vec::with_capacity(pending.len());
        loop {
            let mut some_wait = false;
            for (at, way) in ways.iter_mut().enumerate() {
                for place in way.by_ref() {
                    let group = &mut groups[candidates[place]];
                    match self.ask(group, at, &pending[at], context, &mut levels_read).transpose() {
                        Some(Ok(Found::Nothing)) => continue,
                        Some(answer) => answers.push((at, answer)),
                        None => some_wait = true,
                    }
                    break;
                }
            }
            self.finish_together(&mut groups, pending, context, &mut levels_read, &mut answers);
            for (at, answer) in answers.drain(..) {
                let key = &pending[at];
                let at_sequence = key.target.as_key().sequence();
                results[key.index] = self.settle(answer, key.user_key, at_sequence, context);
                ways[at] = 0..0;
            }
            if !some_wait {
                break;
            }
        }
        levels_read.measure();
    }

    /// Answers what the memtables know. For the other keys: something that orders like them, and their places.
    fn not_in_memtables(
        &self,
        keys: &[&[u8]],
        at: SequenceNumber,
        context: &ReadContext,
        results: &mut [Result<Option<PinnedValue>>],
    ) -> Vec<(u64, usize)> {
        let mut left = Vec::with_capacity(keys.len());
        'keys: for (index, &user_key) in keys.iter().enumerate() {
            if context.read_tier != ReadTier::Persisted {
                for memtable in self.memtables() {
                    match in_memtable(memtable, user_key, at) {
                        Ok(Found::Nothing) => {}
                        found => {
                            results[index] = self.settle(found, user_key, at, context);
                            continue 'keys;
                        }
                    }
                }
            }
            left.push((self.comparator.user.order_prefix(user_key), index));
        }
        if let Some(statistics) = &self.statistics {
            statistics.record(Ticker::MemtableHit, (keys.len() - left.len()) as u64);
            statistics.record(Ticker::MemtableMiss, left.len() as u64);
        }
        left
    }

    /// The answer for a key that a place knows about.
    fn settle(
        &self,
        found: Result<Found>,
        user_key: &[u8],
        at: SequenceNumber,
        context: &ReadContext,
    ) -> Result<Option<PinnedValue>> {
        match found? {
            Found::Value(value) => Ok(Some(value)),
            Found::Nothing | Found::Deleted => Ok(None),
            Found::Operand => self.get_merged(user_key, at, context),
        }
    }

    /// Asks the filter of a table for a key. What the table has of it, if that is known; if not, the get waits in the table's
    /// group, and what will be looked at is asked for.
    fn ask<'k>(
        &self,
        group: &mut Group<'_, 'k>,
        at: usize,
        key: &'k Pending<'_>,
        context: &ReadContext,
        levels_read: &mut LevelsRead<'_>,
    ) -> Result<Option<Found>> {
        let slot = group.slot;
        if let Some(row) = slot.rows().and_then(|rows| rows.find(key.target())) {
            let found = row.newest();
            self.count_found(&found, slot.level());
            return Ok(Some(found));
        }
        let reader = match &group.reader {
            Some(reader) => {
                slot.touch();
                reader
            }
            None => group.reader.insert(slot.reader()?),
        };
        let mut get = PendingGet::new(key.target());
        reader.begin_get(context, &mut get);
        levels_read.note(slot.level());
        if get.is_absent() {
            return match block_trace::is_traced() {
                false => self.found(slot, reader, key, None),
                true => self.finish(slot, reader, key, get, context),
            }
            .map(Some);
        }
        group.keys.push(at);
        group.gets.push(get);
        Ok(None)
    }

    /// Brings the blocks that gets wait for, all together, and searches them. Adds what was found to `answers`.
    fn finish_together(
        &self,
        groups: &mut [Group<'_, '_>],
        pending: &[Pending<'_>],
        context: &ReadContext,
        levels_read: &mut LevelsRead<'_>,
        answers: &mut Vec<(usize, Result<Found>)>,
    ) {
        let mut some_are_missing = false;
        for Group { reader, gets, missing, .. } in groups.iter_mut() {
            let Some(reader) = reader.as_ref().filter(|_| !gets.is_empty()) else { continue };
            if let Some(statistics) = &self.statistics {
                statistics.measure(Histogram::SstBatchSize, gets.len() as u64);
            }
            *missing = reader.cached_blocks(context, gets);
            some_are_missing |= !missing.is_empty();
        }
        if some_are_missing {
            fetch_missing(context, groups, levels_read);
        }
        for Group { slot, reader, keys, gets, .. } in groups {
            let Some(reader) = reader else { continue };
            for (at, get) in keys.drain(..).zip(gets.drain(..)) {
                let answer = self.finish(slot, reader, &pending[at], get, context);
                levels_read.note(slot.level());
                if !matches!(answer, Ok(Found::Nothing)) {
                    answers.push((at, answer));
                }
            }
        }
    }

    /// What a table has of a key.
    #[inline]
    fn finish(
        &self,
        slot: &Arc<TableSlot>,
        reader: &Arc<TableReader>,
        key: &Pending<'_>,
        get: PendingGet<'_>,
        context: &ReadContext,
    ) -> Result<Found> {
        let entry = match block_trace::is_traced() {
            false => reader.finish_get(context, get),
            true => finish_traced(reader, context, get),
        }?;
        if let (Some(rows), Some(entry)) = (slot.rows(), &entry) {
            rows.keep_newest(context, reader, key.target(), entry);
        }
        self.found(slot, reader, key, entry)
    }

    /// What `entry`, the newest that a table has of a key, says of it.
    #[inline]
    fn found(
        &self,
        slot: &TableSlot,
        reader: &TableReader,
        key: &Pending<'_>,
        entry: Option<TableEntry>,
    ) -> Result<Found> {
        let covered = reader.covering(key.user_key, key.target.as_key().sequence());
        let found = from_table(entry, covered)?;
        self.count_found(&found, reader.level());
        if let Some(sampler) = &self.sampler
            && !matches!(found, Found::Value(_))
        {
            sampler.note_wasted(slot);
        }
        Ok(found)
    }
}

impl SuperVersion {
    /// Counts what a table of `level` had.
    #[inline]
    fn count_found(&self, found: &Found, level: u32) {
        if let Found::Value(_) = found {
            perf::count_at_level(LevelMetric::UserKeyReturnCount, level);
            if let Some(statistics) = &self.statistics {
                count_hit(statistics, level);
            }
        }
    }
}

/// The last step of `get`, which tells a trace of the block cache what was there.
#[cold]
#[inline(never)]
fn finish_traced(
    reader: &TableReader,
    context: &ReadContext,
    get: PendingGet<'_>,
) -> Result<Option<TableEntry>> {
    let (target, place, waiting) = (get.target(), reader.place_of_get(&get), block_trace::waiting());
    let entry = reader.finish_get(context, get)?;
    // Without a place the read may have come by a block only now, or by none.
    if place.is_some() || block_trace::waiting() > waiting {
        block_trace::note_answer(place, target, entry.as_ref());
    }
    Ok(entry)
}

/// The group of a table, which may be new.
fn group_of<'a>(groups: &mut Vec<Group<'a, '_>>, slot: &'a Arc<TableSlot>) -> usize {
    groups.iter().rposition(|group| Arc::ptr_eq(group.slot, slot)).unwrap_or_else(|| {
        let (keys, gets, missing) = (Vec::new(), Vec::new(), Vec::new());
        groups.push(Group { slot, reader: slot.open_reader(), keys, gets, missing });
        groups.len() - 1
    })
}

/// Brings the blocks that the cache does not have, those of all tables together.
fn fetch_missing(context: &ReadContext, groups: &mut [Group<'_, '_>], levels_read: &mut LevelsRead<'_>) {
    let mut tables: Vec<(&TableReader, &mut Vec<MissingBlock>)> = Vec::new();
    for Group { reader, missing, .. } in &mut *groups {
        tables.extend(reader.as_ref().filter(|_| !missing.is_empty()).map(|reader| (&**reader, missing)));
    }
    read_blocks(context, &mut tables);
    levels_read.note_groups(groups);
    for Group { reader, gets, missing, .. } in groups {
        if let Some(reader) = reader.as_ref().filter(|_| !missing.is_empty()) {
            reader.take_blocks(context, gets, std::mem::take(missing));
        }
    }
}
