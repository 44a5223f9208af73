//! Point lookups.
//!
//! ```text
//! memtable -> immutable memtables, newest first -> level 0 tables, newest first -> one table per level
//! ```
//! The first entry found is the newest visible one: each place holds only what is older than the
//! places before it. A range tombstone of a place deletes what that place has before it, and all that the
//! places after it have. Merge operands are gathered down to the first entry that is none.

use super::db_iterator::unbuilt_entry;
use super::merging::merge_for_read;
use super::pinned_value::PinnedValue;
use super::row_cache::{RowInMaking, TableRows};
use super::sampler::ReadSampler;
use super::view::{LevelView, SuperVersion};
use crate::memtables::DbMemTable;
use crate::table_cache::TableSlot;
use ironstone_base::perf::{self, LevelMetric, PerfMetric};
use ironstone_base::statistics::Ticker;
use ironstone_base::sync::Arc;
use ironstone_base::{
    Error, InternalKey, InternalKeyBuf, Result, SequenceNumber, Statistics, ValueType, merge,
};
use ironstone_sst::block_trace;
use ironstone_sst::{LikelyBlock, PointTarget, ReadContext, ReadTier, TableEntry};
use ironstone_vfs::{LevelTimer, PerfTimer};
use smallvec::SmallVec;
use std::cell::Cell;
use std::ops::ControlFlow;

/// What a place says about a key.
pub(super) enum Found {
    /// Nothing: ask the next place.
    Nothing,
    Deleted,
    Value(PinnedValue),
    /// A merge operand: older entries count too.
    Operand,
}

/// One entry of a key, for whoever looks at more than the newest.
pub(crate) struct Versioned {
    pub(crate) kind: ValueType,
    pub(crate) value: PinnedValue,
}

/// A table that may hold a key.
struct Candidate<'a> {
    slot: &'a Arc<TableSlot>,
    target: PointTarget<'a>,
    /// No table is asked after it.
    is_last: bool,
    /// The block that likely has the key.
    likely: Option<LikelyBlock>,
}

thread_local! {
    /// Of the thread's searches in tables.
    static LATELY: Cell<Lately> = const { Cell::new(Lately { found: false, in_last: 0 }) };
    /// How many of the thread's reads went on from the memtables since it last said so.
    static WENT_ON: Cell<u64> = const { Cell::new(0) };
}

/// What searches found, to tell what the next one will find.
#[derive(Clone, Copy)]
struct Lately {
    /// Whether the last one found something.
    found: bool,
    /// As in the counters that predict branches: one more, up to `SURE`, each time that something was found in the last table
    /// that could be asked, and one less each other time.
    in_last: u8,
}

const SURE: u8 = 7;

impl Lately {
    fn look_ahead(self) -> LookAhead {
        match self.found {
            _ if self.in_last == SURE => LookAhead::WithBytes,
            _ if self.in_last > SURE / 2 => LookAhead::BeforeFilters,
            true => LookAhead::BeforeLastFilter,
            false => LookAhead::Never,
        }
    }
    /// After a search that found something, or not; in the last table, or not.
    fn then(self, found: bool, in_last: bool) -> Self {
        let in_last = if in_last { (self.in_last + 1).min(SURE) } else { self.in_last.saturating_sub(1) };
        Self { found, in_last }
    }
}

/// When the block of the last table that would have the key is looked for, so that its memory comes while filters are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LookAhead {
    /// As the next, and what of the block is looked at first as well.
    WithBytes,
    /// Before those of all tables: it is likely there, and not in a newer one.
    BeforeFilters,
    /// If none of the newer tables has the key.
    BeforeLastFilter,
    Never,
}

/// So many reads of a thread are counted at once, so that threads do not wait for each other.
const COUNTED_AT_ONCE: u64 = 64;

/// Hears where a point read found its key. The one that does nothing costs nothing.
trait Observer: Copy {
    fn in_memtables(self, found: bool);
    fn value_on_level(self, level: u32);
    /// A table was asked.
    fn asked_table(self, target: PointTarget<'_>, found: Option<&TableEntry>);
    /// What came of that.
    #[inline(always)]
    fn table_answered(self, _slot: &TableSlot, _found: &Found) {}
}

impl Observer for () {
    #[inline(always)]
    fn in_memtables(self, _found: bool) {}
    #[inline(always)]
    fn value_on_level(self, _level: u32) {}
    #[inline(always)]
    fn asked_table(self, _target: PointTarget<'_>, _found: Option<&TableEntry>) {}
}

/// Statistics, if there are some, and a trace of the block cache.
#[derive(Clone, Copy)]
struct Watched<'a> {
    statistics: Option<&'a Statistics>,
    is_traced: bool,
}

impl Observer for Watched<'_> {
    fn in_memtables(self, found: bool) {
        if let Some(statistics) = self.statistics {
            statistics.record(if found { Ticker::MemtableHit } else { Ticker::MemtableMiss }, 1);
        }
    }
    fn value_on_level(self, level: u32) {
        if let Some(statistics) = self.statistics {
            count_hit(statistics, level);
        }
    }
    fn asked_table(self, target: PointTarget<'_>, found: Option<&TableEntry>) {
        if self.is_traced {
            block_trace::note_answer(None, target.key, found);
        }
    }
}

/// Counts tables that did not answer, besides what `observer` does.
#[derive(Clone, Copy)]
struct Sampling<'a, O> {
    observer: O,
    sampler: &'a ReadSampler,
}

impl<O: Observer> Observer for Sampling<'_, O> {
    fn in_memtables(self, found: bool) {
        self.observer.in_memtables(found);
    }
    fn value_on_level(self, level: u32) {
        self.observer.value_on_level(level);
    }
    fn asked_table(self, target: PointTarget<'_>, found: Option<&TableEntry>) {
        self.observer.asked_table(target, found);
    }
    fn table_answered(self, slot: &TableSlot, found: &Found) {
        if !matches!(found, Found::Value(_)) {
            self.sampler.note_wasted(slot);
        }
    }
}

/// Counts a value that was found in a table of `level`.
pub(super) fn count_hit(statistics: &Statistics, level: u32) {
    statistics.record(
        match level {
            0 => Ticker::GetHitL0,
            1 => Ticker::GetHitL1,
            _ => Ticker::GetHitL2AndUp,
        },
        1,
    );
}

impl SuperVersion {
    /// The value of `user_key` at `at`.
    pub(crate) fn get(
        &self,
        user_key: &[u8],
        at: SequenceNumber,
        context: &ReadContext,
    ) -> Result<Option<PinnedValue>> {
        match perf::is_timing() {
            false => self.get_untimed(user_key, at, context),
            true => self.get_observed::<_, true>(user_key, at, context, ()),
        }
    }

    /// The same for whoever has asked already whether times are taken: they are not.
    #[inline]
    pub(crate) fn get_untimed(
        &self,
        user_key: &[u8],
        at: SequenceNumber,
        context: &ReadContext,
    ) -> Result<Option<PinnedValue>> {
        self.get_observed::<_, false>(user_key, at, context, ())
    }

    /// As [`get`](Self::get), and tells statistics and a trace of the block cache where it was found.
    pub(crate) fn get_watched(
        &self,
        user_key: &[u8],
        at: SequenceNumber,
        context: &ReadContext,
        statistics: Option<&Statistics>,
    ) -> Result<Option<PinnedValue>> {
        let watched = Watched { statistics, is_traced: block_trace::is_traced() };
        match perf::is_timing() {
            false => self.get_observed::<_, false>(user_key, at, context, watched),
            true => self.get_observed::<_, true>(user_key, at, context, watched),
        }
    }

    #[inline]
    fn get_observed<O: Observer, const TIMED: bool>(
        &self,
        user_key: &[u8],
        at: SequenceNumber,
        context: &ReadContext,
        observer: O,
    ) -> Result<Option<PinnedValue>> {
        let mut found = Found::Nothing;
        if context.read_tier != ReadTier::Persisted {
            let _timer = TIMED.then(|| PerfTimer::start(PerfMetric::GetFromMemtableTime));
            for memtable in self.memtables() {
                perf::count(PerfMetric::GetFromMemtableCount, 1);
                found = in_memtable(memtable, user_key, at)?;
                if !matches!(found, Found::Nothing) {
                    break;
                }
            }
        }
        observer.in_memtables(!matches!(found, Found::Nothing));
        if matches!(found, Found::Nothing) {
            if context.read_tier == ReadTier::Memtable {
                return Err(not_in_memtables());
            }
            self.note_missed_memtables(1);
            let _timer = TIMED.then(|| PerfTimer::start(PerfMetric::GetFromOutputFilesTime));
            found = match &self.sampler {
                Some(sampler) => self.in_sampled_tables(user_key, at, context, observer, sampler)?,
                None => self.in_tables::<O, TIMED>(user_key, at, context, observer)?,
            };
        }
        match found {
            Found::Value(value) => Ok(Some(value)),
            Found::Nothing | Found::Deleted => Ok(None),
            Found::Operand => self.get_merged(user_key, at, context),
        }
    }

    /// Some reads did not find their keys in the memtables and go on.
    #[inline]
    pub(super) fn note_missed_memtables(&self, count: usize) {
        let count = WENT_ON.get() + count as u64;
        WENT_ON.set(if count < COUNTED_AT_ONCE { count } else { 0 });
        if count >= COUNTED_AT_ONCE {
            self.mem.note_misses(count);
        }
    }

    /// The memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<DbMemTable>> {
        std::iter::once(&self.mem).chain(&self.imm)
    }

    /// Hands `add` the tables that may hold `target`'s user key, by their places in their levels, from the newest to the oldest.
    #[inline(always)]
    pub(super) fn candidates<'a>(
        &'a self,
        target: InternalKey<'_>,
        mut add: impl FnMut(&'a LevelView, usize),
    ) {
        let user_key = target.user_key();
        for (level, view) in self.levels.iter().enumerate() {
            let files = &view.files;
            if files.is_empty() {
                continue;
            }
            if level == 0 {
                let holds = |&index: &usize| files.may_hold(index, &self.comparator.user, user_key);
                (0..files.len()).filter(holds).for_each(|index| add(view, index));
                continue;
            }
            let mut holder = files.find_holder(&self.comparator, target);
            while let Some(index) = holder {
                add(view, index);
                // Only versions of one key that RocksDB put into two tables lead on to the next one.
                let next = index + 1;
                let leads_on = next < files.len() && files.may_hold(next, &self.comparator.user, user_key);
                holder = leads_on.then_some(next);
            }
        }
        if perf::is_counting() {
            self.count_search_of_tables(target);
        }
    }

    /// Asks the tables that may hold `user_key`, from the newest to the oldest, until one breaks.
    fn for_each_table<B>(
        &self,
        user_key: &[u8],
        at: SequenceNumber,
        look_ahead: LookAhead,
        mut ask: impl FnMut(Candidate<'_>) -> Result<ControlFlow<B>>,
    ) -> Result<Option<B>> {
        let target = InternalKeyBuf::for_seek(user_key, at);
        let mut candidates: SmallVec<[&Arc<TableSlot>; 16]> = SmallVec::new();
        self.candidates(target.as_key(), |view, index| candidates.push(&view.tables[index]));
        let target = PointTarget::from(target.as_key());
        candidates.iter().for_each(|slot| slot.prefetch(target.hash));
        let mut block_of_last = match (look_ahead, candidates.last()) {
            (LookAhead::WithBytes, Some(slot)) => slot.likely_block(target.key, true),
            (LookAhead::BeforeFilters, Some(slot)) => slot.likely_block(target.key, false),
            _ => None,
        };
        for (place, &slot) in candidates.iter().enumerate() {
            let is_last = place + 1 == candidates.len();
            if is_last && look_ahead == LookAhead::BeforeLastFilter {
                block_of_last = slot.likely_block(target.key, true);
            }
            let likely = block_of_last.filter(|_| is_last);
            let candidate = Candidate { slot, target, is_last, likely };
            if let ControlFlow::Break(answer) = ask(candidate)? {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    /// Counts what finding the tables took that may hold `key`.
    #[inline(never)] // Whoever wants no counts does without it.
    fn count_search_of_tables(&self, key: InternalKey<'_>) {
        let compared = self.levels.iter().enumerate().map(|(level, view)| match level {
            0 => view.files.len() as u64,
            _ => view.files.compared_by_find_holder(&self.comparator, key),
        });
        perf::count(PerfMetric::UserKeyComparisonCount, compared.sum());
    }

    /// `TIMED`: how long each table takes, and having and searching its blocks, is counted.
    fn in_tables<O: Observer, const TIMED: bool>(
        &self,
        user_key: &[u8],
        at: SequenceNumber,
        context: &ReadContext,
        observer: O,
    ) -> Result<Found> {
        let lately = LATELY.get();
        let look_ahead = if TIMED { LookAhead::Never } else { lately.look_ahead() };
        let mut in_last = false;
        let found = self.for_each_table(user_key, at, look_ahead, |candidate| {
            let Candidate { slot, target, is_last, likely } = candidate;
            let _timer = (TIMED && perf::times_by_level())
                .then(|| LevelTimer::start(LevelMetric::GetFromTableNanos, slot.level()));
            let found = match slot.rows() {
                Some(rows) => by_row(rows, slot, context, target, observer)?,
                None => slot.with_reader(|table| {
                    let covered = table.covering(user_key, at);
                    let entry = match TIMED {
                        true => table.get_timed(context, target),
                        false => table.get_likely(context, target, likely),
                    };
                    let entry = entry?;
                    observer.asked_table(target, entry.as_ref());
                    from_table(entry, covered)
                })?,
            };
            observer.table_answered(slot, &found);
            if let Found::Value(_) = &found {
                perf::count_at_level(LevelMetric::UserKeyReturnCount, slot.level());
                observer.value_on_level(slot.level());
            }
            Ok(if matches!(found, Found::Nothing) {
                ControlFlow::Continue(())
            } else {
                in_last = is_last;
                ControlFlow::Break(found)
            })
        })?;
        LATELY.set(lately.then(found.is_some(), in_last));
        Ok(found.unwrap_or(Found::Nothing))
    }

    #[cold]
    #[inline(never)]
    fn in_sampled_tables<O: Observer>(
        &self,
        user_key: &[u8],
        at: SequenceNumber,
        context: &ReadContext,
        observer: O,
        sampler: &ReadSampler,
    ) -> Result<Found> {
        let sampling = Sampling { observer, sampler };
        match perf::times_by_level() {
            false => self.in_tables::<_, false>(user_key, at, context, sampling),
            true => self.in_tables::<_, true>(user_key, at, context, sampling),
        }
    }

    /// As [`get`](Self::get), for a key whose newest entry is a merge operand.
    #[cold]
    pub(super) fn get_merged(
        &self,
        user_key: &[u8],
        at: SequenceNumber,
        context: &ReadContext,
    ) -> Result<Option<PinnedValue>> {
        let operator = merge::operator_of(self.merge_operator.as_ref())?;
        let mut newest_first: Vec<PinnedValue> = Vec::new();
        let base = self.visit_versions(user_key, at, context, &mut |entry| match entry.kind {
            ValueType::Merge => {
                newest_first.push(entry.value);
                let operands = || newest_first.iter().map(|operand| &**operand).collect::<Vec<_>>();
                match newest_first.len() > 1 && operator.should_merge(&operands()) {
                    true => ControlFlow::Break(None),
                    false => ControlFlow::Continue(()),
                }
            }
            ValueType::Value => ControlFlow::Break(Some(entry.value)),
            _ => ControlFlow::Break(None),
        })?;
        if newest_first.is_empty() {
            return Ok(base.flatten());
        }
        let oldest_first = newest_first.iter().rev().map(|operand| &**operand);
        perf::count(PerfMetric::InternalMergePointLookupCount, newest_first.len() as u64);
        let _timer = PerfTimer::start(PerfMetric::MergeOperatorTimeNanos);
        let (statistics, base) = (self.statistics.as_deref(), base.flatten());
        let value = merge_for_read(statistics, operator, user_key, base.as_deref(), oldest_first)?;
        Ok(Some(PinnedValue::merged(value, newest_first.len())))
    }

    /// Hands `visit` the entries of `user_key` at `at`, newest first, until it breaks or a range tombstone hides
    /// the rest. It breaks at the first entry that is no merge operand, if not before.
    pub(crate) fn visit_versions<B>(
        &self,
        user_key: &[u8],
        at: SequenceNumber,
        context: &ReadContext,
        visit: &mut dyn FnMut(Versioned) -> ControlFlow<B>,
    ) -> Result<Option<B>> {
        let mut covered = SequenceNumber::ZERO;
        if context.read_tier != ReadTier::Persisted {
            for memtable in self.memtables() {
                let table = memtable.table();
                covered = covered.max(table.covering(user_key, at)?);
                for entry in table.versions(user_key, at) {
                    entry.check()?;
                    if entry.sequence < covered {
                        return Ok(None);
                    }
                    let kind = known_type(entry.value_type)?;
                    let value = PinnedValue::in_memtable(table.pin(entry));
                    if let ControlFlow::Break(answer) = visit(Versioned { kind, value }) {
                        return Ok(Some(answer));
                    }
                }
                if covered > SequenceNumber::ZERO {
                    return Ok(None);
                }
            }
        }
        if context.read_tier == ReadTier::Memtable {
            return Err(not_in_memtables());
        }
        let answer = self.for_each_table(user_key, at, LookAhead::Never, |candidate| {
            let Candidate { slot, target, .. } = candidate;
            if let Some(row) = slot.rows().and_then(|rows| rows.find(target)) {
                let answer = row.entries().find_map(|entry| visit(entry).break_value());
                return Ok(
                    answer.map_or(ControlFlow::Continue(()), |answer| ControlFlow::Break(Some(answer)))
                );
            }
            slot.with_reader(|table| {
                let covered = table.covering(user_key, at);
                let mut row = RowInMaking::new(slot.rows(), context, table);
                let mut end: Option<Result<Option<B>>> = None;
                table.visit(context, target, &mut |entry| {
                    if entry.sequence < covered {
                        end = Some(Ok(None));
                        return false;
                    }
                    if let Some(row) = &mut row {
                        row.add(entry.value_type, &entry.value);
                    }
                    let value = PinnedValue::in_table(entry.value);
                    match known_type(entry.value_type).map(|kind| visit(Versioned { kind, value })) {
                        Ok(ControlFlow::Continue(())) => true,
                        Ok(ControlFlow::Break(answer)) => {
                            end = Some(Ok(Some(answer)));
                            false
                        }
                        Err(error) => {
                            end = Some(Err(error));
                            false
                        }
                    }
                })?;
                let end = end.transpose()?;
                if let Some(row) = row {
                    row.finish(target, end.is_none());
                }
                Ok(match end {
                    Some(answer) => ControlFlow::Break(answer),
                    None if covered > SequenceNumber::ZERO => ControlFlow::Break(None),
                    None => ControlFlow::Continue(()),
                })
            })
        })?;
        Ok(answer.flatten())
    }

    /// Whether `user_key` may exist, without reading data blocks that are not cached. Never wrong on
    /// the side of no.
    pub(crate) fn may_exist(&self, user_key: &[u8], at: SequenceNumber) -> bool {
        let context = ReadContext { read_tier: ReadTier::BlockCache, ..ReadContext::default() };
        match self.get(user_key, at, &context) {
            Ok(found) => found.is_some(),
            Err(_) => true, // Not known, for whatever reason: that is what "may" is for.
        }
    }
}

/// What the table of `slot` says about `target`: by its row if there is one, else it is made.
#[inline(never)] // Reads without a row cache do without it.
fn by_row(
    rows: &TableRows,
    slot: &Arc<TableSlot>,
    context: &ReadContext,
    target: PointTarget<'_>,
    observer: impl Observer,
) -> Result<Found> {
    if let Some(row) = rows.find(target) {
        return Ok(row.newest());
    }
    slot.with_reader(|table| {
        let covered = table.covering(target.key.user_key(), target.key.sequence());
        let entry = table.get(context, target)?;
        observer.asked_table(target, entry.as_ref());
        if let Some(entry) = &entry {
            rows.keep_newest(context, table, target, entry);
        }
        from_table(entry, covered)
    })
}

#[cold]
pub(super) fn not_in_memtables() -> Error {
    Error::incomplete("the key is in no memtable, and the read may not go further")
}

/// The type of an entry that reads can answer with.
fn known_type(kind: ValueType) -> Result<ValueType> {
    match kind {
        ValueType::Value | ValueType::Merge | ValueType::Deletion | ValueType::SingleDeletion => Ok(kind),
        other => Err(unbuilt_entry(other)),
    }
}

#[inline]
pub(super) fn in_memtable(memtable: &DbMemTable, user_key: &[u8], at: SequenceNumber) -> Result<Found> {
    let table = memtable.table();
    let covered = table.covering(user_key, at)?;
    let Some(entry) = table.get(user_key, at) else { return Ok(not_here(covered)) };
    entry.check()?;
    if entry.sequence < covered {
        return Ok(Found::Deleted);
    }
    match entry.value_type {
        ValueType::Value => Ok(Found::Value(PinnedValue::in_memtable(table.pin(entry)))),
        ValueType::Deletion | ValueType::SingleDeletion => Ok(Found::Deleted),
        ValueType::Merge => Ok(Found::Operand),
        other => Err(unbuilt_entry(other)),
    }
}

/// What a table says, whose newest range tombstone over the key is `covered`.
#[inline]
pub(super) fn from_table(entry: Option<TableEntry>, covered: SequenceNumber) -> Result<Found> {
    let Some(entry) = entry else { return Ok(not_here(covered)) };
    if entry.sequence < covered {
        return Ok(Found::Deleted);
    }
    match entry.value_type {
        ValueType::Value => Ok(Found::Value(PinnedValue::in_table(entry.value))),
        ValueType::Deletion | ValueType::SingleDeletion => Ok(Found::Deleted),
        ValueType::Merge => Ok(Found::Operand),
        other => Err(unbuilt_entry(other)),
    }
}

#[inline]
fn not_here(covered: SequenceNumber) -> Found {
    if covered > SequenceNumber::ZERO { Found::Deleted } else { Found::Nothing }
}
