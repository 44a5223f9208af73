//! An open database: what its threads share, and the state behind the one state lock.

use crate::PinnedValue;
use crate::background::Cleaner;
use crate::background::abort::Aborts;
use crate::background::flush::{Flushing, is_due};
use crate::background::resume::may_pass;
use crate::column_family::ColumnFamilyData;
use crate::info_log::{InfoLog, info, warning};
use crate::listener::{
    BackgroundErrorReason, Event, Listeners, WriteStallCause, WriteStallCondition, WriteStallInfo,
};
use crate::memtables::{DbMemTable, ImmutableMemTable};
use crate::open::follower::Follower;
use crate::options::{DbOptions, OptionsFile};
use crate::properties::reset::CountedSince;
use crate::settings::TablePlace;
use crate::snapshot::SnapshotList;
use crate::state_lock::StateLock;
use crate::stats_history::StatsHistory;
use crate::thread_list::{Operation, ThreadList, ThreadState};
use crate::thread_pool::Seat;
use crate::trace::{BlockCacheTracing, IoTracing, Tracing};
use crate::write::commit::{CommitPipeline, EarlierWrites, LogLevel};
use crate::write::controller::{
    Debt, LEAST_BESIDE_FLUSH, StallState, WriteController, nanos_left, part_beside_flush,
};
use crate::write::fill_rate::FillRate;
use crate::write::stalls::{DatabaseStalls, StallClock};
use crate::write::wal_lock::WalLocks;
use crate::write_buffer_manager::{MemTableMemory, WriteBufferManager};
use ironstone_base::perf::PerfMetric;
use ironstone_base::statistics::Ticker;
use ironstone_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ironstone_base::sync::{Arc, Condvar, Mutex, MutexGuard, Swap, SwapGuard};
use ironstone_base::{
    Code, ColumnFamilyId, Error, FileNumber, Result, SequenceNumber, Severity, Statistics, SubCode,
};
use ironstone_compaction::{
    CompactionId, CompactionPlan, CompactionProgress, CompactionStyle, LevelShape, PlanKind,
    RunningCompactions, sorted_run_count,
};
use ironstone_sst::{ReadContext, ReadTier};
use ironstone_version::{Installed, ManifestWriter, Version, VersionEdit, VersionSet, WalAddition};
use ironstone_vfs::{Env, FileLock, PerfTimer, TickerTimer};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

/// What the threads of an open database share.
///
/// Lock order: `changing_options`, `resuming`, `switching`, manifest, state, then the pipeline's io and log locks.
pub(crate) struct Engine {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    pub(crate) wal_dir: PathBuf,
    /// Tells the open databases of this process apart.
    pub(crate) instance: u64,
    /// The options in force. Replaced as a whole under the state lock, loaded without any.
    pub(crate) options: Swap<DbOptions>,
    pub(crate) write_buffer_manager: Option<Arc<WriteBufferManager>>,
    /// How far a write goes that says nothing of it.
    pub(crate) usual_log_level: LogLevel,
    pub(crate) read_only: bool,
    /// Another process writes what is read here.
    pub(crate) secondary: bool,
    /// That process's directory is another one.
    pub(crate) follower: Option<Follower>,
    pub(crate) log: Arc<InfoLog>,
    pub(crate) listeners: Listeners,
    /// What its threads do, if that is listed.
    pub(crate) threads: Option<ThreadList>,
    pub(crate) statistics: Option<Arc<Statistics>>,
    /// Point reads are listed, counted or traced: what is not, asks for this alone. Relaxed: as `Tracing::is_on`.
    pub(crate) reads_are_watched: AtomicBool,
    pub(crate) tracing: Arc<Tracing>,
    pub(crate) io_tracing: Arc<IoTracing>,
    pub(crate) block_cache_tracing: Arc<BlockCacheTracing>,
    /// Held by who says whether reads are watched.
    pub(crate) settling_watching: Mutex<()>,
    pub(crate) pipeline: CommitPipeline,
    pub(crate) controller: WriteController,
    /// What holds writers up beside that.
    pub(crate) stalls: DatabaseStalls,
    pub(crate) snapshots: Arc<SnapshotList>,
    pub(crate) place: TablePlace,
    /// Held by who changes options.
    pub(crate) changing_options: Mutex<()>,
    /// Serializes memtable switches, whose file creation must not happen under the state lock.
    pub(crate) switching: Mutex<()>,
    /// Held by who resumes: one that comes late must not go on after another one has let writes in again.
    pub(crate) resuming: Mutex<()>,
    /// Raised by the write that fills a memtable; the next write switches it. Relaxed: a hint.
    pub(crate) switch_wanted: AtomicBool,
    /// Whether `State::running_flushes` is not 0. Relaxed: a hint.
    pub(crate) flushes_run: AtomicBool,
    /// Where in the log it is worth looking again whether the WALs are too large together. Relaxed: a hint.
    pub(crate) wal_check: AtomicU64,
    /// Raised with every failure that stops writes, so that writers need no lock to see it.
    pub(crate) writes_stopped: AtomicBool,
    pub(crate) manifest: Mutex<ManifestWriter>,
    pub(crate) state: StateLock,
    /// Where background threads are asked for; none work for a database that is only read.
    pub(crate) seat: Option<Seat>,
    /// Everybody else waits here for background work to end.
    pub(crate) progress: Condvar,
    /// What is to be tidied up; views that go away say so.
    pub(crate) cleaner: Arc<Cleaner>,
    /// Where memtables have their memory from.
    pub(crate) memory: Arc<MemTableMemory>,
    /// The newest MANIFEST when old ones were last looked for.
    pub(crate) purged_manifest: AtomicU64,
    /// The OPTIONS files that are there.
    pub(crate) options_files: Mutex<BTreeSet<FileNumber>>,
    /// Raised when jobs must end early. Pairs with the executor's polling; Relaxed suffices, since
    /// only promptness depends on it.
    pub(crate) cancelled: AtomicBool,
    /// Of the compactions of all column families.
    pub(crate) aborts: Aborts,
    /// Whether `State::manual_disabled` is not 0. Relaxed: only promptness depends on it.
    pub(crate) manual_is_disabled: AtomicBool,
    pub(crate) counters: Counters,
    pub(crate) stats_history: StatsHistory,
    pub(crate) db_id: String,
    pub(crate) session_id: String,
    /// Since it was opened, unless that was reset.
    pub(crate) counted_since: CountedSince,
    /// Held for as long as the database is open, whoever has this value then.
    pub(crate) lock: Mutex<Option<Box<dyn FileLock>>>,
}

/// Plain totals for properties and the LOG. Relaxed: statistics publish nothing.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) jobs: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) flush_bytes: AtomicU64,
    pub(crate) flush_micros: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) compaction_read_bytes: AtomicU64,
    pub(crate) compaction_write_bytes: AtomicU64,
    pub(crate) compaction_micros: AtomicU64,
    pub(crate) background_errors: AtomicU64,
    pub(crate) opened_micros: AtomicU64,
}

impl Counters {
    /// All but the number of the last job, which names it.
    pub(crate) fn reset(&self) {
        let counts = [
            &self.flushes,
            &self.flush_bytes,
            &self.flush_micros,
            &self.compactions,
            &self.compaction_read_bytes,
            &self.compaction_write_bytes,
            &self.compaction_micros,
            &self.background_errors,
        ];
        counts.into_iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

/// Everything that the state lock guards.
pub(crate) struct State {
    pub(crate) versions: VersionSet,
    pub(crate) families: BTreeMap<ColumnFamilyId, Family>,
    /// The WALs that exist, the current one included.
    pub(crate) wals: BTreeMap<FileNumber, WalState>,
    /// Old WALs that the next ones may overwrite.
    pub(crate) recyclable: VecDeque<FileNumber>,
    /// What stops writes.
    pub(crate) background_error: Option<Error>,
    pub(crate) running_flushes: usize,
    pub(crate) running_compactions: usize,
    /// How many of them no caller asked for.
    pub(crate) running_automatic: usize,
    /// How many of these are on threads for the last level.
    pub(crate) running_bottom: usize,
    /// Until when, by the monotonic clock, the other threads begin none: one for the last level is to come first.
    pub(crate) bottom_first_until: u64,
    /// Where the numbers of files begin that running jobs may be writing; `None` if none runs.
    pub(crate) oldest_output: Option<FileNumber>,
    /// Whether several of those may run at once.
    pub(crate) compaction_is_pressing: bool,
    /// By the monotonic clock: one failed by something that may pass, and no other begins sooner.
    pub(crate) no_compaction_before: u64,
    pub(crate) wal_locks: WalLocks,
    /// How many callers keep background work from starting.
    pub(crate) paused: usize,
    /// How many callers want no manual compaction.
    pub(crate) manual_disabled: usize,
    /// How many of those run or wait, on their callers' threads.
    pub(crate) running_manual: usize,
    /// How many callers keep files from being deleted.
    pub(crate) deletions_disabled: usize,
    pub(crate) closing: bool,
}

/// A WAL that exists.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WalState {
    /// Its size when it was closed; 0 for the current one.
    pub(crate) bytes: u64,
    /// Whether it is known to be durable up to that size.
    pub(crate) synced: bool,
    /// The last sequence number that may be in it; `None` for the current one.
    pub(crate) closed_at: Option<SequenceNumber>,
}

/// What the state lock guards of a column family.
pub(crate) struct Family {
    pub(crate) data: Arc<ColumnFamilyData>,
    pub(crate) mem: Arc<DbMemTable>,
    /// Oldest first.
    pub(crate) imm: VecDeque<ImmutableMemTable>,
    /// The flush of the oldest of `imm`, if it runs.
    pub(crate) flushing: Option<Flushing>,
    /// Flush what is in `imm` even if it is little.
    pub(crate) flush_requested: bool,
    /// How much its writers are held up, as far as listeners were told.
    pub(crate) stall: StallClock,
    /// How fast its writers are where no flush slows them down.
    pub(crate) filling: FillRate,
    pub(crate) running: RunningCompactions,
    /// How many of those are compactions, and not files that are ingested.
    pub(crate) compacting: usize,
    /// The compaction that takes files out of level 0, if one runs; the last that began, if several do.
    pub(crate) draining: Option<Draining>,
    /// How many manual compactions wait until nothing else runs: automatic ones hold back for them.
    pub(crate) exclusive_waits: usize,
    /// Estimated bytes that compaction still has to rewrite.
    pub(crate) pending_bytes: u64,
    /// Files that `suggest_compact_range` named; those that are gone are taken out when a compaction is picked.
    pub(crate) suggested: BTreeSet<FileNumber>,
    /// Set when something changed that may make a compaction due; cleared by a picker that found none.
    pub(crate) compaction_due: bool,
    /// The most urgent compaction rewrites the last level, and is left to the threads for that. Nothing is claimed for it: such a
    /// thread picks it anew when it comes, so that nobody waits meanwhile for files that nothing is done with.
    pub(crate) left_to_bottom: bool,
}

/// A compaction that takes files out of level 0.
pub(crate) struct Draining {
    id: CompactionId,
    progress: Arc<CompactionProgress>,
    /// When it began, by the monotonic clock.
    since: u64,
}

impl Family {
    /// Of an open column family, with its first memtable.
    pub(crate) fn new(data: Arc<ColumnFamilyData>, mem: Arc<DbMemTable>) -> Self {
        Self {
            running: RunningCompactions::new(data.comparator.user.clone()),
            data,
            mem,
            imm: VecDeque::new(),
            flushing: None,
            flush_requested: false,
            stall: StallClock::default(),
            filling: FillRate::default(),
            exclusive_waits: 0,
            pending_bytes: 0,
            suggested: BTreeSet::new(),
            compacting: 0,
            draining: None,
            compaction_due: true,
            left_to_bottom: false,
        }
    }

    /// Shows readers the memtables and the version as they are now.
    pub(crate) fn install_view(&self, versions: &VersionSet) {
        let Some(family) = versions.column_family(self.data.id) else { return };
        let imm = self.imm.iter().rev().map(|imm| Arc::clone(&imm.memtable)).collect();
        self.data.install(Arc::clone(&self.mem), imm, Arc::clone(&family.current));
    }

    /// Whether a compaction may begin that nobody asked for.
    pub(crate) fn may_compact(&self) -> bool {
        self.exclusive_waits == 0 && !self.data.aborts.are_wanted() && self.compacts_by_itself()
    }

    /// Whether compactions begin without being asked for.
    fn compacts_by_itself(&self) -> bool {
        !self.data.settings().options.disable_auto_compactions
    }

    /// Claims what `plan` needs for a compaction that begins `now`, which tells how far it is.
    pub(crate) fn claim(
        &mut self,
        plan: &CompactionPlan,
        now: u64,
    ) -> (CompactionId, Arc<CompactionProgress>) {
        let (id, progress) = (self.running.add(plan), Arc::<CompactionProgress>::default());
        self.compacting += 1;
        if plan.start_level() == 0 && plan.kind == PlanKind::Rewrite {
            self.draining = Some(Draining { id, progress: Arc::clone(&progress), since: now });
        }
        (id, progress)
    }
    /// Lets go of that.
    pub(crate) fn let_go(&mut self, id: CompactionId) {
        self.running.remove(id);
        self.compacting -= 1;
        self.draining.take_if(|draining| draining.id == id);
    }

    /// What writers may have to wait for, who may fill so much of a memtable `beside_flush`.
    fn stall_state(
        &self,
        version: &Version,
        style: CompactionStyle,
        now: u64,
        beside_flush: f64,
    ) -> StallState {
        let (files, bytes) = (version.files(0).len() as u64, version.level_bytes(0));
        let left =
            |draining: &Draining| nanos_left(now.saturating_sub(draining.since), draining.progress.done());
        StallState {
            unflushed_memtables: self.imm.len(),
            active_fill: self.mem.fill(),
            flush_done: self.flushing.as_ref().map_or(0.0, |flushing| flushing.progress.done()),
            beside_flush,
            level0_files: stall_runs(version, style),
            level0_file_bytes: bytes / files.max(1),
            draining_nanos: self.draining.as_ref().and_then(left),
            pending_bytes: self.pending_bytes,
        }
    }

    /// Learns how fast writers are, and answers how much of a memtable they may fill while another is flushed.
    fn part_beside_flush(&mut self, controller: &WriteController, now: u64) -> f64 {
        let waiting = self.imm.back().map(|imm| imm.memtable.table());
        let waiting = waiting.map(|table| (table.memory_usage(), table.num_entries()));
        self.filling.note(now, self.mem.table().memory_usage(), waiting.map(|(bytes, _)| bytes));
        let writers_to_flush = controller.to_flushes(self.filling.bytes_per_second());
        let record_bytes = waiting.map_or(0.0, |(bytes, records)| bytes as f64 / records.max(1) as f64);
        part_beside_flush(writers_to_flush, record_bytes)
    }

    /// Whether a flush now would hold up writers, which it would not later.
    pub(crate) fn flush_would_stall(&self, versions: &VersionSet) -> bool {
        let Some(column_family) = versions.column_family(self.data.id) else { return false };
        let settings = self.data.settings();
        // How long a compaction still takes makes no difference, nor how fast anybody is: it is asked whether writers would have to wait at all.
        let now = self.stall_state(&column_family.current, settings.compaction.style, 0, LEAST_BESIDE_FLUSH);
        let has_writes = !self.mem.is_untouched();
        (has_writes || !self.imm.is_empty())
            && settings.options.stall_limits().flush_would_stall(now, has_writes)
    }

    /// Whether a memtable may hold writes that no WAL has.
    pub(crate) fn has_unlogged_writes(&self) -> bool {
        let mut memtables = self.imm.iter().map(|imm| &imm.memtable).chain([&self.mem]);
        memtables.any(|memtable| memtable.has_unlogged_writes())
    }

    /// The oldest WAL that holds a write which no table has.
    pub(crate) fn oldest_wal(&self) -> Option<FileNumber> {
        self.oldest_wal_without(0)
    }

    /// The same once the oldest `flushed` immutable memtables are in tables.
    fn oldest_wal_without(&self, flushed: usize) -> Option<FileNumber> {
        let memtables = self.imm.iter().skip(flushed).map(|imm| &imm.memtable).chain([&self.mem]);
        memtables.filter_map(|memtable| memtable.first_wal()).min()
    }
}

impl State {
    pub(crate) fn family(&self, id: ColumnFamilyId) -> Result<&Family> {
        self.families.get(&id).ok_or_else(|| dropped(id))
    }
    pub(crate) fn family_mut(&mut self, id: ColumnFamilyId) -> Result<&mut Family> {
        self.families.get_mut(&id).ok_or_else(|| dropped(id))
    }
    /// The oldest WAL that holds a write which no table has, once as many of the oldest immutable memtables
    /// of each column family as `flushed` answers are in tables; the current one if there is none.
    pub(crate) fn oldest_needed_wal(&self, flushed: impl Fn(ColumnFamilyId) -> usize) -> Option<FileNumber> {
        let oldest = |(id, family): (&ColumnFamilyId, &Family)| family.oldest_wal_without(flushed(*id));
        let current = self.wals.last_key_value().map(|(number, _)| *number);
        self.families.iter().filter_map(oldest).min().or(current)
    }
    /// Adds to `edit` what the MANIFEST is to say about the WALs once as many of the oldest immutable memtables
    /// of each column family as `flushed` answers are in tables: those that stay needed, with their durable
    /// sizes. Tables of one column family may then be ahead of what another one has only in them, so recovery
    /// must know damage in them from an end that a power loss left.
    pub(crate) fn note_wals(&self, edit: &mut VersionEdit, flushed: impl Fn(ColumnFamilyId) -> usize) {
        let Some(keep) = self.oldest_needed_wal(flushed) else { return };
        let known: Vec<_> = self.versions.needed_wals().map(|wal| wal.number).collect();
        edit.min_log_number_to_keep = Some(keep);
        let fresh = (self.wals.range(keep..))
            .filter(|(number, wal)| wal.synced && wal.bytes > 0 && !known.contains(number));
        let listed = fresh.map(|(&number, wal)| WalAddition { number, synced_size: Some(wal.bytes) });
        edit.needed_wals.extend(listed);
    }

    /// A flush or a compaction began or ended.
    pub(crate) fn jobs_changed(&mut self) {
        let runs = self.running_flushes + self.running_compactions > 0;
        let next = self.versions.next_file_number();
        self.oldest_output = runs.then(|| self.oldest_output.unwrap_or(next));
    }
    /// In how many column families a compaction may be due that nobody has taken up.
    pub(crate) fn unscheduled_compactions(&self) -> usize {
        let due = |family: &&Family| family.compaction_due && family.compacts_by_itself();
        self.families.values().filter(due).count()
    }
    /// In how many column families a compaction waits for a thread for the last level.
    pub(crate) fn waiting_for_bottom(&self) -> usize {
        let waits = |family: &&Family| family.left_to_bottom && family.may_compact();
        self.families.values().filter(waits).count()
    }
    /// Whether some flush or compaction runs or is due.
    pub(crate) fn is_busy(&self) -> bool {
        self.running_flushes + self.running_compactions > 0
            || self.families.values().any(|family| {
                (family.compacts_by_itself() && (family.compaction_due || family.left_to_bottom))
                    || family.flushing.is_some()
                    || is_due(family)
            })
    }
    /// Whether background work may not start.
    pub(crate) fn is_held(&self) -> bool {
        self.paused > 0 || self.closing
    }
}

/// How many runs that writers may have to wait for a column family has.
pub(crate) fn stall_runs(version: &Version, style: CompactionStyle) -> usize {
    match style {
        CompactionStyle::Universal => sorted_run_count(version),
        _ => version.files(0).len(),
    }
}

#[cold]
fn dropped(id: ColumnFamilyId) -> Error {
    Error::new(ironstone_base::Code::ColumnFamilyDropped, format!("column family {}", id.0))
}

impl EarlierWrites for Engine {
    /// For [`max_successive_merges`](crate::ColumnFamilyOptions::max_successive_merges): `None` if it is not to be had
    /// without reading tables, or cannot be merged; then the operand is kept, and whoever reads it is told.
    fn merged(&self, cf: ColumnFamilyId, key: &[u8], operand: &[u8], at: SequenceNumber) -> Option<Vec<u8>> {
        let data = Arc::clone(&self.state.lock().families.get(&cf)?.data);
        let settings = data.settings();
        let operator = settings.options.merge_operator.as_deref()?;
        let read_tier = match settings.options.strict_max_successive_merges {
            true => ReadTier::All,
            false => ReadTier::BlockCache,
        };
        let context = ReadContext { read_tier, ..ReadContext::default() };
        let existing = data.view().get(key, at, &context).ok()?;
        let _timer = TickerTimer::start(self.statistics.as_deref(), Ticker::MergeOperationTotalTime);
        operator.full_merge(key, existing.as_deref(), &[operand])
    }
    fn value(&self, cf: ColumnFamilyId, key: &[u8], at: SequenceNumber) -> Result<Option<PinnedValue>> {
        let data = Arc::clone(&self.state.lock().family(cf)?.data);
        // It is about to be overwritten.
        data.view().get(key, at, &ReadContext { fill_cache: false, ..ReadContext::default() })
    }
}

impl Engine {
    /// The options in force.
    #[inline]
    pub(crate) fn options(&self) -> SwapGuard<DbOptions> {
        self.options.load()
    }
    /// Says whether point reads are watched, and whether whoever holds the end of the log traces writes. Call it after a trace
    /// began or ended.
    pub(crate) fn settle_watching(&self) {
        let _settling = self.settling_watching.lock();
        let is_counted = self.threads.is_some() || self.statistics.is_some();
        let is_watched = is_counted || self.tracing.is_on() || self.block_cache_tracing.is_tracing();
        self.reads_are_watched.store(is_watched, Ordering::Relaxed);
        let in_order = self.tracing.preserves_write_order().then(|| Arc::clone(&self.tracing));
        self.pipeline.trace_in_order(in_order);
    }
    #[inline]
    pub(crate) fn count(&self, ticker: Ticker, by: u64) {
        if let Some(statistics) = &self.statistics {
            statistics.record(ticker, by);
        }
    }

    pub(crate) fn next_job(&self) -> u64 {
        self.counters.jobs.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Makes the edits that `make` finds due when it is their turn durable and visible, one atomic group: no other edit
    /// gets between. `update` runs under the state lock, together with the installation. `operation` waits for its turn.
    pub(crate) fn commit_edits_of<T>(
        &self,
        operation: Option<&Operation<'_>>,
        make: impl FnOnce(&State) -> Vec<VersionEdit>,
        update: impl FnOnce(&mut State, Installed) -> T,
    ) -> Result<T> {
        let tell = |state| operation.inspect(|operation| operation.state(state));
        tell(ThreadState::MutexWait);
        let mut manifest = self.manifest.lock();
        tell(ThreadState::Unknown);
        let pending = {
            let state = self.state.lock();
            let edits = make(&state);
            state.versions.prepare(edits, &manifest)?
        };
        match manifest.commit(pending) {
            Ok(change) => {
                let mut state = self.state.lock();
                let installed = state.versions.install(change);
                Ok(update(&mut state, installed))
            }
            Err(failed) => Err(self.state.lock().versions.abandon(failed)),
        }
    }

    /// Looks at how far the column families are behind, and sets the writers' rate.
    pub(crate) fn update_stall(&self, state: &mut State) {
        let State { families, versions, .. } = state;
        let time = self.env.clock.monotonic_nanos();
        let mut debts = Vec::new();
        let mut pressing = false;
        for family in families.values_mut() {
            let Some(column_family) = versions.column_family(family.data.id) else { continue };
            let settings = family.data.settings();
            let (version, compaction) = (&column_family.current, &settings.compaction);
            // Only levelled compaction has a shape that bytes could be missing from.
            let levelled = compaction.style == CompactionStyle::Level;
            family.pending_bytes = match levelled {
                true => LevelShape::new(version, compaction).pending_compaction_bytes(version, compaction),
                false => 0,
            };
            let beside_flush = family.part_beside_flush(&self.controller, time);
            let now = family.stall_state(version, compaction.style, time, beside_flush);
            let limits = settings.options.stall_limits();
            let behind: Vec<_> = limits.debts(family.data.id, now).collect();
            self.note_stall(&family.data, &mut family.stall, &family.running, now, &behind);
            debts.extend(behind);
            pressing |= limits.is_pressing(now);
        }
        let waits_for_compaction =
            |debt: &Debt| debt.cause != WriteStallCause::MemtableLimit && debt.amount >= 1.0;
        self.place.disk_share.set_urgent(debts.iter().any(waits_for_compaction));
        self.controller.set_debts(debts);
        if pressing && !state.compaction_is_pressing {
            self.wake_workers();
            self.progress.notify_all();
        }
        state.compaction_is_pressing = pressing;
    }

    /// Tells listeners if the writers of a column family are held up in another way than before, and LOG if they stand still or go
    /// on.
    fn note_stall(
        &self,
        data: &ColumnFamilyData,
        stall: &mut StallClock,
        running: &RunningCompactions,
        state: StallState,
        debts: &[Debt],
    ) {
        let worst = debts.iter().max_by(|a, b| a.amount.total_cmp(&b.amount));
        let current = match worst {
            None => WriteStallCondition::Normal,
            Some(debt) if debt.amount < 1.0 => WriteStallCondition::Delayed,
            Some(_) => WriteStallCondition::Stopped,
        };
        let cause = worst.map(|debt| debt.cause);
        if cause.is_none() && stall.condition == WriteStallCondition::Normal {
            return;
        }
        let now = self.env.clock.monotonic_nanos();
        let Some(previous) = stall.turn(current, cause, now, &data.totals) else { return };
        if let Some(cause) = cause {
            let compacts = u64::from(running.reads_level(0));
            let mut totals = data.totals.lock();
            let counts = totals.stalls_mut(cause);
            let (count, during) = match current {
                WriteStallCondition::Stopped => (&mut counts.stops, &mut counts.stops_during_compaction),
                _ => (&mut counts.delays, &mut counts.delays_during_compaction),
            };
            (*count, *during) = (*count + 1, *during + compacts);
        }
        if previous != current {
            let cf_name = data.name.clone();
            match (current, cause) {
                (WriteStallCondition::Stopped, Some(cause)) => warning!(
                    self.log,
                    "[{cf_name}] writes are stopped by {}: {} sorted runs for readers to look into, {} memtables to flush, {} bytes to compact",
                    cause.name(),
                    state.level0_files,
                    state.unflushed_memtables,
                    state.pending_bytes
                ),
                _ if previous == WriteStallCondition::Stopped => info!(self.log, "[{cf_name}] writes go on"),
                _ => {}
            }
            self.tell_later(Event::Stalls(WriteStallInfo { cf_name, previous, current, cause }));
        }
    }

    /// Lets listeners know of what happened under a lock.
    pub(crate) fn tell_later(&self, event: Event) {
        if self.listeners.note(event) {
            self.cleaner.poke();
        }
    }

    /// Tells them. No lock may be held.
    pub(crate) fn tell_listeners(&self) {
        if self.listeners.deliver() {
            self.cleaner.resume_later();
        }
    }

    pub(crate) fn flush_begins(&self, state: &mut State) {
        state.running_flushes += 1;
        state.jobs_changed();
        self.flushes_run.store(true, Ordering::Relaxed);
    }
    pub(crate) fn flush_ended(&self, state: &mut State) {
        state.running_flushes -= 1;
        state.jobs_changed();
        self.flushes_run.store(state.running_flushes > 0, Ordering::Relaxed);
    }

    /// Waits until background work has got on. How long is counted where time under locks is wanted.
    pub(crate) fn wait_for_progress(&self, state: &mut MutexGuard<'_, State>) {
        let _timer = PerfTimer::lock(PerfMetric::DbConditionWaitNanos);
        self.progress.wait(state);
    }

    /// Waits while a flush runs, unless compaction is behind itself or a compaction of `data` is to stop, and answers for
    /// how many nanoseconds: writers wait for a flush sooner than for a compaction.
    pub(crate) fn give_way_to_flushes(&self, data: &ColumnFamilyData) -> u64 {
        if !self.flushes_run.load(Ordering::Relaxed) {
            return 0;
        }
        let started = self.env.clock.monotonic_nanos();
        let mut state = self.state.lock();
        let waits = |state: &State| {
            state.running_flushes > 0
                && !state.compaction_is_pressing
                && !state.closing
                && !self.is_aborted(data)
        };
        while waits(&state) {
            self.wait_for_progress(&mut state);
        }
        self.env.clock.monotonic_nanos() - started
    }

    /// A memtable has grown: writers slow down with the last one that there is room for, and somebody looks at its tombstones.
    pub(crate) fn note_growth(&self) {
        if let Some(manager) = &self.write_buffer_manager {
            manager.relieve();
        }
        let mut state = self.state.lock();
        let last = |family: &Family| {
            family.imm.len() + 1 >= family.data.settings().options.stall_limits().max_write_buffer_number
        };
        if state.families.values().any(|family| !family.imm.is_empty() && last(family)) {
            self.update_stall(&mut state);
        }
        let has_deletes = state.families.values().any(|family| family.mem.has_new_tombstones());
        drop(state);
        if has_deletes {
            self.cleaner.pass_tombstones();
        }
    }

    /// The largest memtable that takes writes, and how many bytes it has; `None` if nothing can be flushed.
    pub(crate) fn largest_memtable(&self) -> Option<(usize, ColumnFamilyId)> {
        let state = self.state.lock();
        if state.closing || self.read_only || state.background_error.is_some() {
            return None;
        }
        let sizes = state.families.values().map(|family| (family.mem.table().memory_usage(), family.data.id));
        sizes.max()
    }
    /// Flushes what is immutable of a column family, even if it is little.
    pub(crate) fn request_flush(&self, cf: ColumnFamilyId) {
        if let Some(family) = self.state.lock().families.get_mut(&cf) {
            family.flush_requested |= !family.imm.is_empty();
        }
        self.wake_workers();
    }

    /// Writes down the options that are in force, and removes what is older than the file before.
    pub(crate) fn write_options_file(&self) -> Result<()> {
        let (number, families) = {
            let state = self.state.lock();
            let families: Vec<_> = state.families.values().map(|family| Arc::clone(&family.data)).collect();
            (state.versions.new_file_number(), families)
        };
        let all: Vec<_> = families.iter().map(|data| data.settings()).collect();
        let named = families.iter().zip(&all).map(|(data, settings)| (data.name.as_str(), &settings.options));
        OptionsFile::save(&*self.env.fs, &self.dir, number, &self.options(), named)?;
        self.options_files.lock().insert(number);
        crate::background::purge::remove_old_options(self);
        Ok(())
    }

    /// An error once background jobs must end.
    pub(crate) fn check_cancelled(&self) -> Result<()> {
        if self.cancelled.load(Ordering::Relaxed) { Err(Error::shutdown()) } else { Ok(()) }
    }

    /// Records a failure that stops writes. The first of the most severe ones stays until `resume`.
    pub(crate) fn stop_writes(&self, state: &mut State, error: Error, reason: BackgroundErrorReason) {
        self.counters.background_errors.fetch_add(1, Ordering::Relaxed);
        self.count(Ticker::ErrorHandlerBgErrorCount, 1);
        if matches!(error.code(), Code::IoError) {
            self.count(Ticker::ErrorHandlerBgIoErrorCount, 1);
        }
        let error =
            if error.severity() < Severity::Hard { error.with_severity(Severity::Hard) } else { error };
        warning!(self.log, "{reason} failed, writes are stopped: {error}");
        self.tell_later(Event::Failed(reason, error.clone()));
        if may_pass(&error) {
            self.count(Ticker::ErrorHandlerBgRetryableIoErrorCount, 1);
        }
        if may_pass(&error) && self.options().max_bgerror_resume_count > 0 {
            self.count(Ticker::ErrorHandlerAutoresumeCount, 1);
            // Listeners may be against it: then the tries begin when they were asked.
            if self.listeners.is_empty() {
                self.cleaner.resume_later();
            }
            self.tell_later(Event::WillTryAgain(error.clone()));
        }
        if state.background_error.as_ref().is_none_or(|known| known.severity() < error.severity()) {
            state.background_error = Some(error);
        }
        if state.background_error.as_ref().is_some_and(|error| error.sub_code() == SubCode::SpaceLimit) {
            self.stalls.space_ended(self.env.clock.monotonic_nanos());
        }
        self.writes_stopped.store(true, Ordering::Release);
        self.controller.release();
        self.progress.notify_all();
    }

    /// The failure that stops writes.
    pub(crate) fn write_failure(&self) -> Result<()> {
        if !self.writes_stopped.load(Ordering::Acquire) {
            return Ok(());
        }
        let state = self.state.lock();
        if state.closing {
            return Err(Error::shutdown());
        }
        state.background_error.clone().map_or(Ok(()), Err)
    }
}
