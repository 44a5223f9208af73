//! Many point lookups at once: tables are asked in steps for all keys that they may hold, so that what one key waits for
//! (memory, blocks of the file) is on its way while the others go on.

use super::get::{Found, count_hit, from_table, in_memtable, not_in_memtables};
use super::pinned_value::PinnedValue;
use super::read_options::ReadOptions;
use super::view::{LevelView, SuperVersion};
use crate::table_cache::TableSlot;
use ironstone_base::perf::{self, LevelMetric, PerfMetric};
use ironstone_base::statistics::{BlocksRead, Histogram, Ticker};
use ironstone_base::sync::Arc;
use ironstone_base::{Error, InternalKeyBuf, Result, SequenceNumber};
use ironstone_sst::block_trace;
use ironstone_sst::{
    KeyHash, MissingBlock, PendingGet, PointTarget, ReadContext, ReadTier, TableEntry, TableReader,
    read_blocks,
};
use ironstone_vfs::{Clock, PerfTimer};
use std::borrow::Cow;
use std::ops::Range;

/// A key that has not been found yet.
struct Pending<'a> {
    /// Its place among the keys that were asked for.
    index: usize,
    user_key: &'a [u8],
    target: InternalKeyBuf,
    hash: KeyHash,
    /// The answer is there.
    is_settled: bool,
}

impl Pending<'_> {
    fn target(&self) -> PointTarget<'_> {
        PointTarget { key: self.target.as_key(), hash: self.hash }
    }
}

/// Keys, by their places among the pending ones, that one table may hold.
struct Asked {
    table: usize,
    keys: Vec<usize>,
}

/// What the keys of one table have come to.
struct Group<'a> {
    reader: Arc<TableReader>,
    keys: Cow<'a, [usize]>,
    slot: &'a Arc<TableSlot>,
    /// Where their gets are.
    gets: Range<usize>,
    /// Blocks that are not in the cache.
    missing: Vec<MissingBlock>,
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
        let _timer = PerfTimer::start(PerfMetric::GetFromOutputFilesTime);
        let order = &self.comparator.user;
        left.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| order.compare(keys[a.1], keys[b.1])));
        let mut pending: Vec<Pending<'_>> = Vec::with_capacity(left.len());
        pending.extend(left.into_iter().map(|(_, index)| Pending {
            index,
            user_key: keys[index],
            target: InternalKeyBuf::for_seek(keys[index], at),
            hash: KeyHash::of(keys[index]),
            is_settled: false,
        }));
        let mut levels_read = 0;
        for (level, view) in self.levels.iter().enumerate().filter(|(_, view)| !view.files.is_empty()) {
            if pending.is_empty() {
                break;
            }
            if self.statistics.is_some() {
                BlocksRead::take();
            }
            match level {
                0 => self.ask_level0(view, context, &mut pending, &mut results),
                _ => self.ask_level(view, context, &mut pending, &mut results),
            }
            pending.retain(|key| !key.is_settled);
            if let Some(statistics) = &self.statistics {
                let BlocksRead { meta, data } = BlocksRead::take();
                if meta > 0 {
                    statistics.measure(Histogram::NumIndexAndFilterBlocksReadPerLevel, meta);
                }
                if data > 0 {
                    statistics.measure(Histogram::NumSstReadPerLevel, data);
                    levels_read += 1;
                }
            }
        }
        if let Some(statistics) = self.statistics.as_ref().filter(|_| levels_read > 0) {
            statistics.measure(Histogram::NumLevelReadPerMultiget, levels_read);
        }
        results
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

    fn covers(&self, view: &LevelView, table: usize, key: &Pending<'_>) -> bool {
        view.files.may_hold(table, &self.comparator.user, key.user_key)
    }

    /// Asks the tables of level 0, from the newest to the oldest.
    fn ask_level0(
        &self,
        view: &LevelView,
        context: &ReadContext,
        pending: &mut [Pending<'_>],
        results: &mut [Result<Option<PinnedValue>>],
    ) {
        for (table, slot) in view.tables.iter().enumerate() {
            let covered = |&at: &usize| !pending[at].is_settled && self.covers(view, table, &pending[at]);
            let keys: Vec<usize> = (0..pending.len()).filter(covered).collect();
            perf::count(PerfMetric::UserKeyComparisonCount, pending.len() as u64);
            if !keys.is_empty() {
                keys.iter().for_each(|&at| slot.prefetch(pending[at].hash));
                self.ask(view, &[Asked { table, keys }], context, pending, results);
            }
        }
    }

    /// Asks the tables of a sorted level, all at once.
    fn ask_level(
        &self,
        view: &LevelView,
        context: &ReadContext,
        pending: &mut [Pending<'_>],
        results: &mut [Result<Option<PinnedValue>>],
    ) {
        if perf::is_counting() {
            self.count_search_of_level(view, pending);
        }
        let mut asked: Vec<Asked> = Vec::new();
        for (at, key) in pending.iter().enumerate() {
            let Some(table) = view.files.find_holder(&self.comparator, key.target.as_key()) else { continue };
            view.tables[table].prefetch(key.hash);
            match asked.last_mut().filter(|last| last.table == table) {
                Some(last) => last.keys.push(at),
                None => asked.push(Asked { table, keys: vec![at] }),
            }
        }
        while !asked.is_empty() {
            self.ask(view, &asked, context, pending, results);
            asked.retain_mut(|Asked { table, keys }| {
                // Only versions of one key that RocksDB put into two tables lead on to the next one.
                *table += 1;
                keys.drain(..keys.len() - 1);
                let last = &pending[keys[0]];
                !last.is_settled && *table < view.tables.len() && self.covers(view, *table, last)
            });
        }
    }

    /// Counts what finding the tables of a sorted level took that may hold the keys.
    #[inline(never)] // Whoever wants no counts does without it.
    fn count_search_of_level(&self, view: &LevelView, pending: &[Pending<'_>]) {
        let compared =
            |key: &Pending<'_>| view.files.compared_by_find_holder(&self.comparator, key.target.as_key());
        perf::count(PerfMetric::UserKeyComparisonCount, pending.iter().map(compared).sum());
    }

    /// Asks tables for different keys, none of which is settled.
    fn ask(
        &self,
        view: &LevelView,
        asked: &[Asked],
        context: &ReadContext,
        pending: &mut [Pending<'_>],
        results: &mut [Result<Option<PinnedValue>>],
    ) {
        let mut groups: Vec<Group<'_>> = Vec::with_capacity(asked.len());
        let mut gets: Vec<PendingGet<'_>> = Vec::with_capacity(pending.len());
        let mut answers: Vec<(usize, Result<Found>)> = Vec::with_capacity(pending.len());
        for Asked { table, keys } in asked {
            if let Some(statistics) = &self.statistics {
                statistics.measure(Histogram::SstBatchSize, keys.len() as u64);
            }
            let slot = &view.tables[*table];
            let keys = match slot.rows() {
                Some(rows) => {
                    let mut left = keys.clone();
                    left.retain(|&at| match rows.find(pending[at].target()) {
                        Some(row) => {
                            let found = row.newest();
                            self.count_found(&found, slot.level());
                            answers.push((at, Ok(found)));
                            false
                        }
                        None => true,
                    });
                    Cow::Owned(left)
                }
                None => Cow::Borrowed(&**keys),
            };
            if keys.is_empty() {
                continue;
            }
            match slot.reader() {
                Ok(reader) => {
                    let start = gets.len();
                    for &at in &*keys {
                        let mut get = PendingGet::new(pending[at].target());
                        reader.begin_get(context, &mut get);
                        gets.push(get);
                    }
                    groups.push(Group { reader, keys, slot, gets: start..gets.len(), missing: Vec::new() });
                }
                Err(error) => answers.extend(keys.iter().map(|&at| (at, Err(error.clone())))),
            }
        }
        for group in &mut groups {
            group.missing = group.reader.cached_blocks(context, &mut gets[group.gets.clone()]);
        }
        fetch_missing(context, &mut groups, &mut gets);
        let is_traced = block_trace::is_traced();
        let mut gets = gets.into_iter();
        for Group { reader, keys, slot, .. } in &groups {
            let rows = slot.rows();
            for (&at, get) in keys.iter().zip(&mut gets) {
                let target = get.target();
                let covered = reader.covering(target.user_key(), target.sequence());
                let entry = match is_traced {
                    false => reader.finish_get(context, get),
                    true => finish_traced(reader, context, get),
                };
                if let Some(rows) = rows
                    && let Ok(Some(entry)) = &entry
                {
                    rows.keep_newest(context, reader, pending[at].target(), entry);
                }
                let found = entry.and_then(|entry| from_table(entry, covered));
                if let Ok(found) = &found {
                    self.count_found(found, reader.level());
                    if let Some(sampler) = &self.sampler
                        && !matches!(found, Found::Value(_))
                    {
                        sampler.note_wasted(slot);
                    }
                }
                answers.push((at, found));
            }
        }
        for (at, answer) in answers {
            if !matches!(answer, Ok(Found::Nothing)) {
                let key = &mut pending[at];
                results[key.index] =
                    self.settle(answer, key.user_key, key.target.as_key().sequence(), context);
                key.is_settled = true;
            }
        }
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

/// Brings the blocks that the cache does not have, those of all tables together.
fn fetch_missing(context: &ReadContext, groups: &mut [Group<'_>], gets: &mut [PendingGet<'_>]) {
    let misses = |group: &&mut Group<'_>| !group.missing.is_empty();
    let mut tables: Vec<(&TableReader, &mut Vec<MissingBlock>)> =
        groups.iter_mut().filter(misses).map(|group| (&*group.reader, &mut group.missing)).collect();
    read_blocks(context, &mut tables);
    for group in groups.iter_mut().filter(misses) {
        let blocks = std::mem::take(&mut group.missing);
        group.reader.take_blocks(context, &mut gets[group.gets.clone()], blocks);
    }
}
