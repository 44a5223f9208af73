//! Flush: immutable memtables become a table of level 0.

use super::Job;
use super::compaction::TOMBSTONE_MARK_RATIO;
use super::job::{Inputs, Outputs, build_options, say_file_times, write_options};
use crate::column_family::ColumnFamilyData;
use crate::engine::{Engine, Family, State};
use crate::info_log::{InfoLog, info};
use crate::listener::{BackgroundErrorReason, FlushJobInfo, Listeners, ManualFlushInfo, TableInfo};
use crate::memtables::{DbMemTable, FlushReason, ImmutableMemTable};
use crate::options::{DbOptions, VerifyOutputFlags};
use crate::table_paths::TablePaths;
use crate::thread_list::{Operation, ThreadId, ThreadOperation, ThreadStage};
use crate::write::switch::Which;
use ironstone_base::statistics::{Histogram, IoActivity, Ticker};
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::Ordering;
use ironstone_base::{Code, ColumnFamilyId, FileNumber, Result, SequenceNumber, Statistics};
use ironstone_compaction::flush::FlushInput;
use ironstone_compaction::{
    CompactionProgress, FileTimes, FlushOutput, JobContext, SerialWorkers, TableFileCreationReason, run_flush,
};
use ironstone_iter::BoxedIterator;
use ironstone_version::{FileMetaData, VersionEdit, VersionSet};
use ironstone_vfs::{Env, WriteOptions};
use std::collections::BTreeMap;

/// The flush of a column family's memtables that runs.
pub(crate) struct Flushing {
    pub(crate) progress: Arc<CompactionProgress>,
    memtables: usize,
}

/// What one flush takes of a column family.
struct Taken {
    data: Arc<ColumnFamilyData>,
    /// Oldest first; not empty.
    memtables: Vec<ImmutableMemTable>,
    epoch: u64,
    progress: Arc<CompactionProgress>,
}

impl Taken {
    fn of(family: &mut Family, versions: &mut VersionSet) -> Self {
        let memtables: Vec<ImmutableMemTable> = family.imm.iter().cloned().collect();
        let progress = Arc::<CompactionProgress>::default();
        progress.expect(memtables.iter().map(|imm| imm.memtable.table().num_entries()).sum());
        family.flush_requested = false;
        family.flushing = Some(Flushing { progress: Arc::clone(&progress), memtables: memtables.len() });
        let data = Arc::clone(&family.data);
        let epoch = versions.new_epoch_number(data.id);
        Self { data, memtables, epoch, progress }
    }

    fn let_go(&self, state: &mut State) {
        if let Some(family) = state.families.get_mut(&self.data.id) {
            family.flushing = None;
        }
    }
}

/// Takes the immutable memtables of a column family that is due, if there is one, with those that are to be installed
/// together with them.
pub(crate) fn next(engine: &Engine, state: &mut State) -> Option<Job> {
    if state.background_error.is_some() {
        return None;
    }
    let ids = due_together(&state.families, engine.options().atomic_flush)?;
    let State { families, versions, .. } = state;
    let chosen = families.values_mut().filter(|family| ids.contains(&family.data.id));
    let all: Vec<_> = chosen.map(|family| Taken::of(family, versions)).collect();
    engine.flush_begins(state);
    let job_id = engine.next_job();
    Some(Box::new(move |engine, thread| {
        let result = flush(engine, job_id, &all, thread);
        let mut state = engine.state.lock();
        engine.flush_ended(&mut state);
        all.iter().for_each(|taken| taken.let_go(&mut state));
        // Closing waits for it, and is told.
        if let Err(error) = result
            && !all.iter().all(|taken| taken.data.is_dropped())
        {
            engine.stop_writes(&mut state, error, BackgroundErrorReason::Flush);
        }
        drop(state);
        engine.cleaner.poke();
        engine.tell_pressure();
    }))
}

/// The column families that the next flush takes, if one can start: one that is due, and those that have memtables which
/// were switched with one of its own for an atomic flush; all that have any, if every flush is atomic (`all`).
fn due_together(families: &BTreeMap<ColumnFamilyId, Family>, all: bool) -> Option<Vec<ColumnFamilyId>> {
    let due = || families.values().filter(|family| is_due(family)).map(|family| family.data.id);
    let can_start = |ids: &Vec<ColumnFamilyId>| ids.iter().all(|id| families[id].flushing.is_none());
    if all {
        due().next()?;
        let waiting = families.values().filter(|family| !family.imm.is_empty()).map(|family| family.data.id);
        // One at a time: what was switched later must not be in tables sooner.
        let none_runs = families.values().all(|family| family.flushing.is_none());
        return none_runs.then(|| waiting.collect());
    }
    due().map(|id| switched_together(families, id)).find(can_start)
}

/// The column family `first`, and all that are tied to it by atomic flushes that wait.
fn switched_together(
    families: &BTreeMap<ColumnFamilyId, Family>,
    first: ColumnFamilyId,
) -> Vec<ColumnFamilyId> {
    let points = |family: &Family| {
        let atomic = family.imm.iter().filter(|imm| imm.atomic);
        atomic.map(|imm| imm.next_wal).collect::<Vec<_>>()
    };
    let mut ids = vec![first];
    let mut looked_at = 0;
    while let Some(id) = ids.get(looked_at) {
        looked_at += 1;
        let shared = points(&families[id]);
        if shared.is_empty() {
            continue;
        }
        for family in families.values().filter(|family| !ids.contains(&family.data.id)).collect::<Vec<_>>() {
            if points(family).iter().any(|point| shared.contains(point)) {
                ids.push(family.data.id);
            }
        }
    }
    ids
}

/// Whether a flush of the column family can start and should.
pub(crate) fn is_due(family: &Family) -> bool {
    family.flushing.is_none() && is_pending(family)
}

/// Whether there are memtables to flush, apart from those that a flush has taken already.
pub(crate) fn is_pending(family: &Family) -> bool {
    let merge =
        usize::try_from(family.data.settings().options.min_write_buffer_number_to_merge).unwrap_or(1).max(1);
    let taken = family.flushing.as_ref().map_or(0, |flushing| flushing.memtables);
    let waiting = family.imm.len().saturating_sub(taken);
    waiting > 0 && (family.flush_requested || waiting >= merge)
}

/// With `bytes_per_sync` 0 flushes start write-back after each so many bytes.
const BYTES_PER_SYNC: u64 = 1 << 20;

/// How the table is written. Writers may be waiting for the sync at its end, so that write-back never waits for it.
fn flush_write_options(options: &DbOptions) -> WriteOptions {
    let write = write_options(options);
    let bytes_per_sync = if write.bytes_per_sync == 0 { BYTES_PER_SYNC } else { write.bytes_per_sync };
    WriteOptions { bytes_per_sync, ..write }
}

/// One flush: what it reads and how it writes.
pub(crate) struct FlushOf<'a> {
    pub(crate) env: &'a Env,
    pub(crate) log: &'a InfoLog,
    pub(crate) paths: &'a TablePaths,
    pub(crate) options: &'a DbOptions,
    pub(crate) data: &'a ColumnFamilyData,
    pub(crate) db_id: &'a str,
    pub(crate) session_id: &'a str,
    /// Oldest first.
    pub(crate) memtables: &'a [Arc<DbMemTable>],
    pub(crate) epoch: u64,
    pub(crate) snapshots: &'a [SequenceNumber],
    pub(crate) progress: Option<&'a Arc<CompactionProgress>>,
    pub(crate) cancelled: &'a (dyn Fn() -> Result<()> + Sync),
    /// Whether writers are held up.
    pub(crate) writers_wait: &'a (dyn Fn() -> bool + Sync),
    /// Why, for the compaction filter.
    pub(crate) reason: TableFileCreationReason,
    pub(crate) listeners: &'a Listeners,
    pub(crate) job_id: u64,
}

impl FlushOf<'_> {
    /// Writes the table. Nothing is installed.
    pub(crate) fn run(&self, next_number: &(dyn Fn() -> FileNumber + Sync)) -> Result<FlushOutput> {
        self.memtables.iter().try_for_each(|memtable| memtable.check_whole())?;
        let settings = self.data.settings();
        let build = build_options(self.data, &settings, self.db_id, self.session_id, self.options);
        let compaction = &settings.compaction;
        // A small table of tombstones is not worth rewriting what lies below it.
        let bytes: usize = self.memtables.iter().map(|memtable| memtable.table().memory_usage()).sum();
        let is_large = bytes >= settings.options.write_buffer_size / 4;
        let context = JobContext {
            env: self.env,
            comparator: &self.data.comparator,
            tables: &Inputs { opener: &settings.opener, direct: false }, // To read back what was written.
            outputs: &Outputs {
                paths: self.paths,
                next: next_number,
                log: self.log,
                cf_name: &self.data.name,
                listeners: self.listeners,
                job_id: self.job_id,
                reason: self.reason,
                part: None,
            },
            build: &build,
            write: flush_write_options(self.options),
            snapshots: self.snapshots,
            earliest_write_conflict: None,
            merge_operator: settings.options.merge_operator.as_deref(),
            enforce_single_del_contracts: self.options.enforce_single_del_contracts,
            cancelled: self.cancelled,
            skip_filters_at_bottom: false,
            tombstone_mark_ratio: if is_large { TOMBSTONE_MARK_RATIO } else { 0.0 },
            filter: settings.options.filter_source(),
            rate_limiter: self.options.rate_limiter.as_ref(),
            writers_wait: self.writers_wait,
            workers: &SerialWorkers,
            progress: self.progress,
            readahead_size: JobContext::DEFAULT_READAHEAD,
            verify_record_count: self.options.flush_verify_memtable_count,
            measures_files: settings.options.report_bg_io_stats,
            output_checks: settings.options.output_checks(VerifyOutputFlags::ENABLE_FOR_FLUSH),
        };
        let (compression, compression_options) = compaction.compression_of_flush();
        let now = self.env.clock.now_seconds();
        let newest_first = self.memtables.iter().rev();
        let range_tombstones = self.memtables.iter().map(|memtable| memtable.table().range_tombstones());
        let range_tombstones = range_tombstones.collect::<Result<Vec<_>>>()?;
        let input = FlushInput {
            iterators: newest_first
                .map(|memtable| {
                    memtable.table().mark_read_only();
                    Box::new(memtable.table().iter()) as BoxedIterator
                })
                .collect(),
            range_tombstones: range_tombstones.concat(),
            expected_entries: None,
            epoch_number: self.epoch,
            oldest_key_time: now,
            newest_key_time: now,
            path_id: 0,
            reason: self.reason,
            compression,
            compression_options,
            is_wanted: self.data.view().wants_what_is_new(now),
        };
        run_flush(input, &context)
    }
}

/// A table that a flush wrote, or none if nothing was left of its memtables.
struct Flushed {
    info: FlushJobInfo,
    data: Arc<ColumnFamilyData>,
    records: u64,
    file: Option<Arc<FileMetaData>>,
    edit: VersionEdit,
    nanos: u64,
    file_times: Option<FileTimes>,
}

fn flush(engine: &Engine, job_id: u64, all: &[Taken], thread: Option<ThreadId>) -> Result<()> {
    let operation = engine.begin_operation(thread, ThreadOperation::Flush, &all[0].data.name);
    let written = write_tables(engine, job_id, all, &operation)?;
    // With several column families, a batch may span this flush and writes that are only in an older
    // WAL: those must not be lost while this becomes durable.
    if engine.state.lock().families.len() > 1 {
        let synced = engine.pipeline.sync_closed_logs()?;
        let mut state = engine.state.lock();
        for number in synced {
            state.wals.entry(number).and_modify(|wal| wal.synced = true);
        }
    }
    // Modes that refuse gaps know a MANIFEST that lost this flush by what the next WAL says was before it.
    if engine.pipeline.syncs_before_next() {
        engine.pipeline.sync_log()?;
    }
    install(engine, &written, &operation)
}

/// Writes all immutable memtables of all column families to tables, on this thread, and makes these
/// durable in one step. For `resume`: the WAL that was given up may hold batches of which one column
/// family's part must not survive without the others'. No other flush may start meanwhile.
pub(crate) fn flush_all_at_once(engine: &Engine) -> Result<()> {
    let all: Vec<Taken> = {
        let mut state = engine.state.lock();
        while state.running_flushes > 0 {
            engine.wait_for_progress(&mut state);
        }
        engine.flush_begins(&mut state);
        let State { families, versions, .. } = &mut *state;
        let waiting = families.values_mut().filter(|family| !family.imm.is_empty());
        waiting.map(|family| Taken::of(family, versions)).collect()
    };
    let operation = engine.begin_operation(None, ThreadOperation::Flush, "");
    let written = write_tables(engine, engine.next_job(), &all, &operation);
    let result = written.and_then(|all| install(engine, &all, &operation));
    drop(operation);
    let mut state = engine.state.lock();
    engine.flush_ended(&mut state);
    all.iter().for_each(|taken| taken.let_go(&mut state));
    drop(state);
    engine.progress.notify_all();
    engine.cleaner.poke();
    result
}

/// Writes a table for each of `all`: every one, or none stays. Nothing is installed.
fn write_tables(
    engine: &Engine,
    job_id: u64,
    all: &[Taken],
    operation: &Operation<'_>,
) -> Result<Vec<Flushed>> {
    let mut written = Vec::new();
    for taken in all {
        match write_table(engine, job_id, taken, operation) {
            Ok(flushed) => written.push(flushed),
            Err(error) => {
                remove_tables(engine, &written);
                return Err(error);
            }
        }
    }
    Ok(written)
}

/// Removes tables that no version ever names.
fn remove_tables<'a>(engine: &Engine, flushed: impl IntoIterator<Item = &'a Flushed>) {
    for file in flushed.into_iter().filter_map(|flushed| flushed.file.as_ref()) {
        super::purge::remove_stray(engine, file.number);
    }
}

/// Writes `taken` to a table. Nothing is installed.
fn write_table(engine: &Engine, job_id: u64, taken: &Taken, operation: &Operation<'_>) -> Result<Flushed> {
    operation.stage(ThreadStage::FlushRun);
    let _flushing = IoActivity::Flush.begin();
    let Taken { data, memtables: taken, epoch, progress } = taken;
    let newest = taken.last().expect("a flush takes at least one memtable");
    // Writers may still be inserting what they reserved before the switch.
    engine.pipeline.wait_applied(newest.last_sequence);
    let memtables: Vec<_> = taken.iter().map(|imm| Arc::clone(&imm.memtable)).collect();
    let entries: u64 = memtables.iter().map(|memtable| memtable.table().num_entries()).sum();
    let bytes: usize = memtables.iter().map(|memtable| memtable.table().memory_usage()).sum();
    let started = engine.env.clock.monotonic_nanos();
    engine.log.event(
        "flush_started",
        serde_json::json!({ "job": job_id, "cf_name": data.name, "num_memtables": taken.len(),
            "num_entries": entries, "flush_reason": newest.reason.name() }),
    );
    let info = FlushJobInfo {
        cf_id: data.id,
        cf_name: data.name.clone(),
        job_id,
        reason: newest.reason,
        num_memtables: taken.len(),
        num_entries: entries,
        file: None,
    };
    engine.listeners.tell(|listener| listener.on_flush_begin(&info));
    // The list is read after the wait: a snapshot taken later sees at least all of these memtables.
    let snapshots = engine.snapshots_of(data);
    let job = FlushOf {
        env: &engine.env,
        log: &engine.log,
        paths: &data.paths(),
        options: &engine.options(),
        data,
        db_id: &engine.db_id,
        session_id: &engine.session_id,
        memtables: &memtables,
        epoch: *epoch,
        snapshots: &snapshots,
        progress: Some(progress),
        // Closing waits for a flush that runs: it is short, and the next opening need not replay its WAL.
        cancelled: &|| Ok(()),
        writers_wait: &|| engine.controller.holds_up_writers(),
        reason: TableFileCreationReason::Flush,
        listeners: &engine.listeners,
        job_id,
    };
    if let Some(statistics) = &engine.statistics {
        count_memtables(statistics, bytes as u64, newest.reason);
    }
    operation.properties(&[("JobID", job_id), ("BytesMemtables", bytes as u64)]);
    operation.stage(ThreadStage::FlushWriteL0);
    let output = job.run(&|| engine.new_file_number())?;
    let nanos = engine.env.clock.monotonic_nanos() - started;
    if let Some(statistics) = &engine.statistics {
        let payload = output.stats.input_raw_bytes;
        statistics.measure(Histogram::FlushMemtableTotalDataSize, payload);
        statistics.record(Ticker::MemtablePayloadBytesAtFlush, payload);
        let garbage = payload.saturating_sub(output.stats.output_raw_bytes);
        statistics.record(Ticker::MemtableGarbageBytesAtFlush, garbage);
    }
    engine.controller.note_flushed(bytes as u64, nanos);
    let mut edit = VersionEdit::new(data.id);
    edit.log_number = Some(newest.next_wal);
    edit.last_sequence = Some(engine.pipeline.visible());
    let file = output.file.map(Arc::new);
    if let Some(file) = &file {
        edit.add_file(0, Arc::clone(file));
        engine.track_table(data, file);
    }
    let (records, file_times) = (output.stats.output_records, output.stats.file_times);
    Ok(Flushed { info, data: Arc::clone(data), records, file, edit, nanos, file_times })
}

fn count_memtables(statistics: &Statistics, memory: u64, reason: FlushReason) {
    statistics.measure(Histogram::FlushMemtableMemoryBytes, memory);
    let of_reason = match reason {
        FlushReason::WriteBufferFull => {
            (Ticker::FlushReasonWriteBufferFull, Histogram::FlushWriteBufferFullMemtableMemoryBytes)
        }
        FlushReason::WriteBufferManager => {
            (Ticker::FlushReasonWriteBufferManager, Histogram::FlushWriteBufferManagerMemtableMemoryBytes)
        }
        FlushReason::MemtableMaxRangeDeletions => {
            return statistics.record(Ticker::FlushReasonMemtableMaxRangeDeletions, 1);
        }
        _ => return,
    };
    statistics.record(of_reason.0, 1);
    statistics.measure(of_reason.1, memory);
}

/// Makes what was flushed durable and visible, all of it or nothing.
fn install(engine: &Engine, all: &[Flushed], operation: &Operation<'_>) -> Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    operation.stage(ThreadStage::FlushInstall);
    let flushed_of = |id| {
        let flushed = all.iter().find(|flushed| flushed.data.id == id);
        flushed.map_or(0, |flushed| flushed.info.num_memtables)
    };
    // Another flush may have become durable since this one began: only now is it known which WALs are needed.
    let edits = |state: &State| {
        let mut edits: Vec<_> = all.iter().map(|flushed| flushed.edit.clone()).collect();
        // In one that is not left out because its column family is gone.
        let there = |edit: &&mut VersionEdit| state.families.contains_key(&edit.column_family);
        if let Some(edit) = edits.iter_mut().find(there) {
            state.note_wals(edit, flushed_of);
        }
        edits
    };
    let mut left_out = Vec::new();
    let installed = engine.commit_edits_of(Some(operation), edits, |state, _| {
        let State { families, versions, .. } = state;
        for flushed in all {
            let Some(family) = families.get_mut(&flushed.data.id) else {
                left_out.push(flushed);
                continue;
            };
            family.imm.drain(..flushed.info.num_memtables);
            family.flush_requested &= !family.imm.is_empty();
            family.compaction_due = true;
            family.install_view(versions);
        }
        engine.update_stall(state);
        engine.pipeline.forget_closed_below(state.oldest_needed_wal(|_| 0).unwrap_or_default());
    });
    if installed.as_ref().is_err_and(|error| error.code() == Code::ColumnFamilyDropped) {
        left_out.extend(all);
    }
    remove_tables(engine, left_out.iter().copied()); // Their column families were dropped meanwhile.
    installed?;
    let is_in = |flushed: &&Flushed| !left_out.iter().any(|out| std::ptr::eq(*out, *flushed));
    all.iter().filter(is_in).for_each(|flushed| report(engine, flushed));
    engine.check_space(BackgroundErrorReason::Flush);
    Ok(())
}

fn report(engine: &Engine, flushed: &Flushed) {
    let Flushed { info, data, records, file, nanos, file_times, .. } = flushed;
    let job_id = info.job_id;
    let bytes = file.as_ref().map_or(0, |file| file.file_size);
    engine.counters.flushes.fetch_add(1, Ordering::Relaxed);
    engine.counters.flush_bytes.fetch_add(bytes, Ordering::Relaxed);
    engine.counters.flush_micros.fetch_add(nanos / 1000, Ordering::Relaxed);
    data.totals.lock().note_flush(bytes, info.num_entries, nanos / 1000);
    engine.count(Ticker::FlushWriteBytes, bytes);
    if let Some(statistics) = &engine.statistics {
        statistics.measure_time(Histogram::FlushTime, nanos / 1000);
    }
    if let Some(file) = file {
        engine.log.event(
            "table_file_creation",
            serde_json::json!({ "job": job_id, "cf_name": data.name, "file_number": file.number.0,
                "file_size": file.file_size, "num_entries": records }),
        );
    }
    let level0 = data.peek().version.files(0).len();
    let mut event = serde_json::json!({ "job": job_id, "cf_name": data.name, "output_bytes": bytes,
        "micros": nanos / 1000, "level0_files": level0 });
    say_file_times(&mut event, file_times.as_ref());
    engine.log.event("flush_finished", event);
    let (name, entries) = (&data.name, info.num_entries);
    info!(engine.log, "[{name}] flushed {entries} entries to {bytes} bytes in {} us", nanos / 1000);
    let file = file.as_ref().map(|file| TableInfo::of(&data.paths(), 0, file));
    let info = FlushJobInfo { file, ..info.clone() };
    engine.listeners.tell(|listener| listener.on_flush_completed(&info));
}

/// Waits until flushes of `ids` would hold up no writers, or nothing is under way that could change that, or `check` has an
/// error. Answers those whose memtables nobody else has flushed meanwhile.
pub(crate) fn wait_for_room(
    engine: &Engine,
    ids: &[ColumnFamilyId],
    check: impl Fn() -> Result<()>,
) -> Result<Vec<ColumnFamilyId>> {
    engine.write_failure()?;
    let mut left = Vec::new();
    let mut state = engine.state.lock();
    for &id in ids {
        let memtable = Arc::clone(&state.family(id)?.mem);
        loop {
            let family = state.family(id)?;
            let waits = family.imm.iter().any(|imm| Arc::ptr_eq(&imm.memtable, &memtable));
            if !waits && !Arc::ptr_eq(&family.mem, &memtable) {
                break;
            }
            if !family.flush_would_stall(&state.versions) || !state.is_busy() {
                left.push(id);
                break;
            }
            if let Some(error) = &state.background_error {
                return Err(error.clone());
            }
            if state.closing {
                return Err(ironstone_base::Error::shutdown());
            }
            check()?;
            engine.wake_workers();
            engine.wait_for_progress(&mut state);
        }
    }
    Ok(left)
}

/// Switches memtables and waits until everything that those of `ids` held is in tables.
pub(crate) fn flush_and_wait(engine: &Arc<Engine>, which: &Which, ids: &[ColumnFamilyId]) -> Result<()> {
    switch_for_flush(engine, which)?;
    wait_flushed(engine, ids)
}

/// Switches memtables for a flush that somebody asked for, and tells listeners.
pub(crate) fn switch_for_flush(engine: &Engine, which: &Which) -> Result<()> {
    engine.write_failure()?;
    let switched = engine.switch_memtables(which)?;
    let (Which::Of(ids, reason) | Which::Together(ids, reason)) = which else { return Ok(()) };
    if engine.listeners.is_empty() {
        return Ok(());
    }
    let together = matches!(which, Which::Together(..)) || engine.options().atomic_flush;
    let ids = if together { &switched } else { ids };
    let flushes: Vec<_> = {
        let state = engine.state.lock();
        let families = ids.iter().filter_map(|id| state.families.get(id));
        let info = |family: &Family| ManualFlushInfo {
            cf_id: family.data.id,
            cf_name: family.data.name.clone(),
            reason: *reason,
        };
        families.map(info).collect()
    };
    let groups = flushes.chunks(if together { flushes.len().max(1) } else { 1 });
    groups.for_each(|group| engine.listeners.tell(|listener| listener.on_manual_flush_scheduled(group)));
    Ok(())
}

/// Waits until every memtable of `ids` that is immutable now is in a table.
pub(crate) fn wait_flushed(engine: &Arc<Engine>, ids: &[ColumnFamilyId]) -> Result<()> {
    let mut state = engine.state.lock();
    let mut targets = Vec::new();
    for id in ids {
        if let Some(newest) = state.family(*id)?.imm.back() {
            targets.push((*id, Arc::clone(&newest.memtable)));
        }
    }
    loop {
        let mut waiting = false;
        for (id, memtable) in &targets {
            let Some(family) = state.families.get_mut(id) else { continue };
            if family.imm.iter().any(|imm| Arc::ptr_eq(&imm.memtable, memtable)) {
                waiting = true;
                family.flush_requested |= family.flushing.is_none();
            }
        }
        if !waiting {
            break;
        }
        if let Some(error) = &state.background_error {
            return Err(error.clone());
        }
        if state.closing {
            return Err(ironstone_base::Error::shutdown());
        }
        engine.wake_workers();
        engine.wait_for_progress(&mut state);
    }
    drop(state);
    drop(targets); // Without the lock: a memtable takes time to go.
    engine.memory.pool.release_when_idle(); // Whoever asks for a flush may be done with writing.
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::{Db, Options};
    use ironstone_base::{Error, Severity};
    use std::time::Duration;

    #[test]
    fn a_flush_that_was_asked_for_leaves_no_memory_behind() {
        let db = Db::open(&Options::in_memory(), "/db").unwrap();
        let pool = || format!("{:?}", db.engine().memory.pool);
        (0..1200u32).for_each(|key| db.put(key.to_be_bytes(), [7; 10_000]).unwrap());
        assert!(!pool().contains(" 0 lent"), "{}", pool());
        db.flush().unwrap();
        // The thread that flushed may have the memtable a moment longer.
        let is_empty = || {
            db.engine().env.clock.sleep(Duration::from_millis(1));
            pool() == "BlockPool(0 free blocks, 0 lent)"
        };
        assert!((0..30_000).any(|_| is_empty()), "{}", pool());
    }

    #[test]
    fn a_memtable_that_may_hold_part_of_a_write_becomes_no_table() {
        let db = Db::open(&Options::in_memory(), "/db").unwrap();
        db.put("a", "1").unwrap();
        let error = Error::io_message("half of it").with_severity(Severity::Unrecoverable);
        for family in db.engine().state.lock().families.values() {
            family.mem.break_off(&error);
        }
        assert_eq!(db.flush().unwrap_err(), error);
        assert!(db.live_files().is_empty());
        assert_eq!(db.put("b", "1").unwrap_err(), error);
    }
}
