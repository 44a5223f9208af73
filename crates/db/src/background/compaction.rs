//! Compaction: takes plans from the picker, carries them out, installs the results.

use super::Job;
use super::abort::is_abort;
use super::job::{Inputs, Outputs, build_options, say_file_times, write_options};
use crate::column_family::ColumnFamilyData;
use crate::concurrent_task_limiter::TaskToken;
use crate::engine::{Engine, Family, State};
use crate::info_log::{info, warning};
use crate::listener::{
    BackgroundErrorReason, CompactionJobInfo, Event, Listeners, SubcompactionJobInfo, TableInfo,
};
use crate::options::VerifyOutputFlags;
use crate::sst_file_manager::SpaceReservation;
use crate::thread_list::{ListedWorkers, Operation, ThreadId, ThreadOperation, ThreadStage};
use crate::thread_pool::{BottomThreads, Duty, Seat};
use ironstone_base::statistics::{Histogram, IoActivity, Ticker};
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ironstone_base::{Code, ColumnFamilyId, Error, FileNumber, Result, SequenceNumber, Severity, SubCode};
use ironstone_compaction::{
    CompactionId, CompactionOutput, CompactionPlan, CompactionProgress, CompactionReason, CompactionStats,
    JobContext, PickContext, PlanKind, TableFileCreationReason, Wanted, pick_automatic, run_compaction,
};
use ironstone_version::{FileMetaData, Version, VersionEdit};
use std::time::Duration;

/// A table of which at least this share are tombstones is compacted soon, so that scans do not wade
/// through them and deleted data gives its space back.
pub(crate) const TOMBSTONE_MARK_RATIO: f64 = 0.5;

/// What a manual compaction answers once it was told to stop.
pub(crate) fn manual_compaction_canceled() -> Error {
    Error::new(Code::Incomplete, "manual compaction was canceled")
        .with_sub_code(SubCode::ManualCompactionPaused)
}

/// A plan that was claimed and waits to be carried out.
pub(crate) struct Claimed {
    pub(crate) data: Arc<ColumnFamilyData>,
    /// Keeps the input files.
    pub(crate) _version: Arc<Version>,
    pub(crate) plan: CompactionPlan,
    pub(crate) id: CompactionId,
    pub(crate) progress: Arc<CompactionProgress>,
    /// Keeps what it may write free.
    pub(crate) _space: Option<SpaceReservation>,
    /// Counts it where it is bounded how many run.
    pub(crate) _token: Option<TaskToken>,
}

/// Takes the most urgent compaction that can run now, if there is one, but for those that are left to the threads for the last
/// level.
pub(crate) fn next(engine: &Engine, state: &mut State) -> Option<Job> {
    if !may_begin(engine, state) {
        return None;
    }
    let claimed = pick(engine, state)?;
    Some(begin(state, claimed, Duty::Compact))
}

/// The same for a thread for the last level: takes what was left to it.
pub(crate) fn next_bottom(engine: &Engine, state: &mut State) -> Option<Job> {
    if !may_begin(engine, state) {
        return None;
    }
    state.bottom_first_until = 0; // It has come.
    let claimed = pick_bottom(engine, state)?;
    Some(begin(state, claimed, Duty::Bottom))
}

/// Whether one more compaction may run that no caller asked for.
fn may_begin(engine: &Engine, state: &State) -> bool {
    state.background_error.is_none()
        && !engine.aborts.are_wanted()
        && (state.running_automatic == 0 || state.compaction_is_pressing)
}

/// The job that carries out `claimed`, which counts as running from now on.
fn begin(state: &mut State, claimed: Claimed, duty: Duty) -> Job {
    let bottom = usize::from(duty == Duty::Bottom);
    state.running_compactions += 1;
    state.running_automatic += 1;
    state.running_bottom += bottom;
    state.jobs_changed();
    let data = Arc::clone(&claimed.data);
    Box::new(move |engine, thread| {
        let result = carry_out(engine, claimed, &[], thread);
        let mut state = engine.state.lock();
        state.running_compactions -= 1;
        state.running_automatic -= 1;
        state.running_bottom -= bottom;
        state.jobs_changed();
        if bottom == 0 {
            engine.let_bottom_come(&mut state);
        }
        if let Err(error) = result
            && !engine.cancelled.load(Ordering::Relaxed)
            && !data.is_dropped()
            && !is_abort(&error)
        {
            if error.is_retryable() && !error.is_no_space() && error.severity() < Severity::Hard {
                engine.compact_later(&mut state, error);
            } else {
                engine.stop_writes(&mut state, error, BackgroundErrorReason::Compaction);
            }
        }
        drop(state);
        engine.tell_pressure();
    })
}

/// How long the others wait for a thread for the last level that is on its way: much longer than that takes, where another
/// database does not get hold of it first.
const BOTTOM_COMES_WITHIN: Duration = Duration::from_millis(100);

impl Engine {
    /// If a compaction waits for a thread for the last level, and one is free: the others begin none before it has come. They
    /// would be faster, always, and where only one compaction may run at once it would never be its turn.
    fn let_bottom_come(&self, state: &mut State) {
        if state.waiting_for_bottom() > 0 && self.bottom_threads() == BottomThreads::Waiting {
            let within = u64::try_from(BOTTOM_COMES_WITHIN.as_nanos()).expect("it is short");
            state.bottom_first_until = self.env.clock.monotonic_nanos().saturating_add(within);
        }
    }

    /// How long the others begin none for that.
    pub(crate) fn until_bottom_has_come(&self, state: &State) -> Option<Duration> {
        let left = state.bottom_first_until.saturating_sub(self.env.clock.monotonic_nanos());
        (left > 0).then(|| Duration::from_nanos(left))
    }

    fn bottom_threads(&self) -> BottomThreads {
        self.seat.as_ref().map_or(BottomThreads::None, Seat::bottom_threads)
    }

    /// A compaction failed by something that may pass: nothing has changed, and it is tried again in a while. Writes go on.
    fn compact_later(&self, state: &mut State, error: Error) {
        warning!(self.log, "compaction failed, will try again: {error}");
        let counted = [
            Ticker::ErrorHandlerBgErrorCount,
            Ticker::ErrorHandlerBgIoErrorCount,
            Ticker::ErrorHandlerBgRetryableIoErrorCount,
            Ticker::ErrorHandlerAutoresumeCount,
        ];
        counted.into_iter().for_each(|ticker| self.count(ticker, 1));
        self.counters.background_errors.fetch_add(1, Ordering::Relaxed);
        self.tell_later(Event::Failed(BackgroundErrorReason::Compaction, error));
        let wait = Duration::from_micros(self.options().bgerror_resume_retry_interval).as_nanos();
        let wait = u64::try_from(wait).unwrap_or(u64::MAX);
        state.no_compaction_before = self.env.clock.monotonic_nanos().saturating_add(wait);
    }

    /// How long no compaction begins, because one failed a moment ago.
    pub(crate) fn until_next_compaction(&self, state: &State) -> Option<Duration> {
        let now = self.env.clock.monotonic_nanos();
        (now < state.no_compaction_before).then(|| Duration::from_nanos(state.no_compaction_before - now))
    }
}

fn pick(engine: &Engine, state: &mut State) -> Option<Claimed> {
    let moment = pick_context(engine);
    let bottom_threads = engine.bottom_threads();
    if bottom_threads == BottomThreads::None {
        take_back_from_bottom(state);
    }
    let State { families, versions, .. } = state;
    let mut due: Vec<_> =
        families.values_mut().filter(|family| family.compaction_due && family.may_compact()).collect();
    due.sort_by_key(|family| std::cmp::Reverse(family.pending_bytes));
    for family in due {
        let Some(token) = take_token(engine, family) else { continue };
        let version = Arc::clone(&versions.column_family(family.data.id)?.current);
        let mut picked = pick_of(family, &version, moment);
        let is_last = |plan: &CompactionPlan| plan.rewrites_last_level(&family.data.settings().compaction);
        let for_bottom = bottom_threads != BottomThreads::None && picked.as_ref().is_some_and(is_last);
        let was_left = std::mem::replace(&mut family.left_to_bottom, for_bottom);
        if for_bottom {
            if let Some(seat) = engine.seat.as_ref().filter(|_| !was_left) {
                seat.poke(&[Duty::Bottom]);
                if bottom_threads == BottomThreads::Waiting {
                    drop(token);
                    engine.let_bottom_come(state);
                    return None; // Looked at again once that has claimed its files.
                }
            }
            picked = pick_of(family, &version, PickContext { wanted: Wanted::AllButLastLevel, ..moment });
        }
        match picked {
            Some(plan) => match claim(engine, family, version, plan, token) {
                Ok(claimed) => return Some(claimed),
                Err(error) => {
                    info!(engine.log, "[{}] {error}", family.data.name);
                    family.compaction_due = false; // Asked again as below.
                }
            },
            // Asked again when a flush or a compaction of it has ended, when a snapshot was released that its
            // tables wait for, and from time to time, since they grow old.
            None => {
                family.compaction_due = false;
                let waits = |file: &Arc<FileMetaData>| {
                    file.largest_seqno >= moment.bottommost_threshold.max(SequenceNumber(1))
                };
                let waiting = version.all_files().map(|(_, file)| file).filter(|file| waits(file));
                if let Some(newest) = waiting.map(|file| file.largest_seqno).min() {
                    engine.snapshots.note_waiting(newest);
                }
                engine.progress.notify_all(); // `wait_for_compact` waits for this too.
            }
        }
    }
    None
}

/// What was left to the threads for the last level.
fn pick_bottom(engine: &Engine, state: &mut State) -> Option<Claimed> {
    let moment = PickContext { wanted: Wanted::LastLevel, ..pick_context(engine) };
    let State { families, versions, .. } = state;
    let mut left: Vec<_> =
        families.values_mut().filter(|family| family.left_to_bottom && family.may_compact()).collect();
    left.sort_by_key(|family| std::cmp::Reverse(family.pending_bytes));
    for family in left {
        let Some(token) = take_token(engine, family) else { continue };
        let version = Arc::clone(&versions.column_family(family.data.id)?.current);
        family.left_to_bottom = false;
        let Some(plan) = pick_of(family, &version, moment) else {
            // Something has changed since: the others look again.
            family.compaction_due = true;
            engine.wake_workers();
            continue;
        };
        match claim(engine, family, version, plan, token) {
            Ok(claimed) => {
                family.compaction_due = true; // There may be another one of the kind.
                return Some(claimed);
            }
            Err(error) => {
                info!(engine.log, "[{}] {error}", family.data.name);
                engine.progress.notify_all();
            }
        }
    }
    None
}

/// The threads for the last level are gone: what was left to them is for the others.
fn take_back_from_bottom(state: &mut State) {
    for family in state.families.values_mut().filter(|family| family.left_to_bottom) {
        family.left_to_bottom = false;
        family.compaction_due = true;
    }
}

/// Room for one more where it is bounded how many run; `None` if there is none now.
fn take_token(engine: &Engine, family: &Family) -> Option<Option<TaskToken>> {
    match &family.data.settings().options.compaction_thread_limiter {
        None => Some(None),
        Some(limiter) => limiter.take(engine.seat.as_ref()).map(Some), // Who makes room says so.
    }
}

fn pick_of(family: &mut Family, version: &Version, moment: PickContext<'_>) -> Option<CompactionPlan> {
    family.suggested.retain(|&number| version.file(number).is_some());
    let settings = family.data.settings();
    let threshold = settings.options.read_triggered_compaction_threshold;
    let often_read = if threshold > 0.0 { family.data.view().often_read(threshold) } else { Vec::new() };
    let context = PickContext { suggested: Some(&family.suggested), often_read: &often_read, ..moment };
    pick_automatic(version, &settings.compaction, &family.running, &context)
}

fn claim(
    engine: &Engine,
    family: &mut Family,
    version: Arc<Version>,
    plan: CompactionPlan,
    token: Option<TaskToken>,
) -> Result<Claimed> {
    let space = reserve_space(engine, &plan)?;
    if let Some(statistics) = &engine.statistics {
        statistics.measure(Histogram::NumFilesInSingleCompaction, plan.input_files().count() as u64);
    }
    let (id, progress) = family.claim(&plan, engine.env.clock.monotonic_nanos());
    let data = Arc::clone(&family.data);
    Ok(Claimed { data, _version: version, plan, id, progress, _space: space, _token: token })
}

/// Space for what `plan` may write, where that is bounded; `CompactionTooLarge` if there is not enough.
pub(crate) fn reserve_space(engine: &Engine, plan: &CompactionPlan) -> Result<Option<SpaceReservation>> {
    let options = engine.options();
    let Some(manager) = options.sst_file_manager.as_ref().filter(|_| plan.kind == PlanKind::Rewrite) else {
        return Ok(None);
    };
    let bytes = plan.input_bytes();
    let reserved = manager.reserve(bytes);
    reserved.map(Some).ok_or_else(|| {
        engine.count(Ticker::CompactionCancelled, 1);
        let what = format!(
            "tables might exceed the space they may take (sst_file_manager) by a compaction of {bytes} bytes"
        );
        Error::new(Code::CompactionTooLarge, what)
    })
}

/// Looks again whether something is due in any column family.
pub(crate) fn look_again(engine: &Engine, state: &mut State) {
    state.families.values_mut().for_each(|family| family.compaction_due = true);
    engine.wake_workers();
}

/// What pickers must know of the moment.
pub(crate) fn pick_context(engine: &Engine) -> PickContext<'static> {
    PickContext {
        now_seconds: engine.env.clock.now_seconds(),
        bottommost_threshold: engine.snapshots.bottommost_threshold(engine.pipeline.visible()),
        compensate: None,
        suggested: None,
        often_read: &[],
        wanted: Wanted::All,
    }
}

/// Carries out a claimed plan, installs the result, and lets go of the claim, whatever happens.
pub(crate) fn carry_out(
    engine: &Engine,
    claimed: Claimed,
    cancel: &[&AtomicBool],
    thread: Option<ThreadId>,
) -> Result<()> {
    let job_id = engine.next_job();
    let operation = engine.begin_operation(thread, ThreadOperation::Compaction, &claimed.data.name);
    describe(&operation, job_id, &claimed.plan);
    let mut told = Told::begin(&engine.listeners, job_info(engine, job_id, &claimed));
    let result = match claimed.plan.kind {
        PlanKind::TrivialMove | PlanKind::Drop => {
            told.pre_commit();
            change_files(engine, &claimed, &operation)
        }
        PlanKind::Rewrite => rewrite(engine, &claimed, cancel, &operation, &mut told),
    };
    told.info.status = result.clone();
    told.pre_commit();
    let mut state = engine.state.lock();
    if let Some(family) = state.families.get_mut(&claimed.data.id) {
        family.let_go(claimed.id);
        family.compaction_due = true;
    }
    drop(state);
    if result.as_ref().is_err_and(is_abort) {
        engine.count(Ticker::CompactionAborted, 1);
    }
    drop(claimed); // Else the cleaner might find its input files held, and nobody would tell it again.
    engine.cleaner.poke();
    engine.wake_workers();
    told.listeners.tell(|listener| listener.on_compaction_completed(&told.info));
    result
}

/// A compaction, and what listeners were told of it.
struct Told<'a> {
    listeners: &'a Listeners,
    info: CompactionJobInfo,
    pre_commit: bool,
}

impl<'a> Told<'a> {
    fn begin(listeners: &'a Listeners, info: CompactionJobInfo) -> Self {
        listeners.tell(|listener| listener.on_compaction_begin(&info));
        Self { listeners, info, pre_commit: false }
    }
    /// The outputs are there, or will never be: once for each compaction, while nobody else can have its inputs.
    fn pre_commit(&mut self) {
        if !std::mem::replace(&mut self.pre_commit, true) {
            self.listeners.tell(|listener| listener.on_compaction_pre_commit(&self.info));
        }
    }
    /// What its parts have in common.
    fn part(&self, plan: &CompactionPlan) -> Option<SubcompactionJobInfo> {
        let CompactionJobInfo { cf_id, cf_name, job_id, reason, base_input_level, output_level, .. } =
            &self.info;
        (!self.listeners.is_empty()).then(|| SubcompactionJobInfo {
            cf_id: *cf_id,
            cf_name: cf_name.clone(),
            job_id: *job_id,
            subcompaction_job_id: 0,
            reason: *reason,
            base_input_level: *base_input_level,
            output_level: *output_level,
            compression: plan.compression,
            status: Ok(()),
            stats: CompactionStats::default(),
        })
    }
}

fn job_info(engine: &Engine, job_id: u64, claimed: &Claimed) -> CompactionJobInfo {
    let Claimed { data, plan, .. } = claimed;
    let paths = data.paths();
    let described = |level, file: &Arc<FileMetaData>| TableInfo::of(&paths, level, file);
    let (mut input_files, mut output_files) = (Vec::new(), Vec::new());
    if !engine.listeners.is_empty() {
        input_files.extend(plan.input_files().map(|(level, file)| described(level, file)));
        if plan.kind == PlanKind::TrivialMove {
            output_files.extend(plan.moved_files().map(|(_, file)| described(plan.output_level, file)));
        }
    }
    CompactionJobInfo {
        cf_id: data.id,
        cf_name: data.name.clone(),
        job_id,
        reason: plan.reason,
        base_input_level: plan.start_level(),
        output_level: plan.output_level,
        input_files,
        output_files,
        is_trivial: plan.kind != PlanKind::Rewrite,
        status: Ok(()),
        stats: CompactionStats::default(),
    }
}

/// Moves or drops the inputs: nothing is read or written.
fn change_files(engine: &Engine, claimed: &Claimed, operation: &Operation<'_>) -> Result<()> {
    let Claimed { data, plan, .. } = claimed;
    let edit = plan.edit(data.id, Vec::new());
    install(engine, data.id, edit, operation)?;
    if plan.kind == PlanKind::TrivialMove {
        data.totals.lock().note_move(plan.output_level, plan.input_bytes());
    }
    match plan.reason {
        CompactionReason::FifoMaxSize => engine.count(Ticker::FifoMaxSizeCompactions, 1),
        CompactionReason::FifoTtl => engine.count(Ticker::FifoTtlCompactions, 1),
        _ => {}
    }
    info!(engine.log, "[{}] {plan}: {}", data.name, plan.reason.name());
    Ok(())
}

fn rewrite(
    engine: &Engine,
    claimed: &Claimed,
    cancel: &[&AtomicBool],
    operation: &Operation<'_>,
    told: &mut Told<'_>,
) -> Result<()> {
    let Claimed { data, plan, .. } = claimed;
    let job_id = told.info.job_id;
    let _compacting = IoActivity::Compaction.begin();
    let started = engine.env.clock.monotonic_nanos();
    log_start(engine, job_id, data, plan);
    let snapshots = engine.snapshots_of(data);
    let (settings, options) = (data.settings(), engine.options.load_full());
    let build = build_options(data, &settings, &engine.db_id, &engine.session_id, &options);
    let next_number = || engine.new_file_number();
    let paths = data.paths();
    let gave_way = AtomicU64::new(0);
    let cancelled = || {
        engine.check_cancelled()?;
        gave_way.fetch_add(engine.give_way_to_flushes(data), Ordering::Relaxed);
        engine.check_not_aborted(data)?;
        if claimed.data.is_dropped() {
            return Err(Error::new(Code::ColumnFamilyDropped, data.name.clone()));
        }
        if cancel.iter().any(|flag| flag.load(Ordering::Relaxed)) {
            return Err(manual_compaction_canceled());
        }
        Ok(())
    };
    let context = JobContext {
        env: &engine.env,
        comparator: &data.comparator,
        tables: &Inputs { opener: &settings.opener, direct: options.reads_compactions_directly() },
        outputs: &Outputs {
            paths: &paths,
            next: &next_number,
            log: &engine.log,
            cf_name: &data.name,
            listeners: &engine.listeners,
            job_id,
            reason: TableFileCreationReason::Compaction,
            part: told.part(plan),
        },
        build: &build,
        write: write_options(&options),
        snapshots: &snapshots,
        earliest_write_conflict: None,
        merge_operator: settings.options.merge_operator.as_deref(),
        enforce_single_del_contracts: options.enforce_single_del_contracts,
        cancelled: &cancelled,
        skip_filters_at_bottom: settings.options.optimize_filters_for_hits,
        tombstone_mark_ratio: TOMBSTONE_MARK_RATIO,
        filter: settings.options.filter_source(),
        rate_limiter: options.rate_limiter.as_ref(),
        writers_wait: &|| engine.controller.holds_up_writers(),
        workers: &ListedWorkers {
            engine,
            threads: plan.max_subcompactions,
            thread_type: operation.thread_type(),
            cf_name: &data.name,
            properties: &properties_of(job_id, plan),
        },
        progress: Some(&claimed.progress),
        readahead_size: options.compaction_readahead_size,
        verify_record_count: options.compaction_verify_record_count,
        measures_files: settings.options.report_bg_io_stats,
        output_checks: settings.options.output_checks(VerifyOutputFlags::ENABLE_FOR_LOCAL_COMPACTION),
    };
    operation.stage(ThreadStage::CompactionProcessKv);
    let CompactionOutput { files, stats } = run_compaction(plan, &context)?;

    let numbers: Vec<u64> = files.iter().map(|file| file.number.0).collect();
    files.iter().for_each(|file| engine.track_table(data, file));
    told.info.output_files =
        files.iter().map(|file| TableInfo::of(&paths, plan.output_level, file)).collect();
    told.info.stats = stats.clone();
    told.pre_commit();
    let edit = plan.edit(data.id, files);
    let installed = install(engine, data.id, edit, operation);
    if installed.as_ref().is_err_and(|error| error.code() == Code::ColumnFamilyDropped) {
        numbers.iter().for_each(|&number| super::purge::remove_stray(engine, FileNumber(number)));
    }
    installed?;
    engine.check_space(BackgroundErrorReason::Compaction);
    let nanos = engine.env.clock.monotonic_nanos() - started;
    let nanos = nanos.saturating_sub(gave_way.into_inner() / stats.num_subcompactions.max(1) as u64);
    data.totals.lock().note_compaction(plan.output_level, &stats, nanos / 1000);
    count(engine, plan, &stats, nanos);
    log_end(engine, job_id, data, plan, &stats, &numbers, nanos);
    Ok(())
}

/// What the thread list says of it.
fn describe(operation: &Operation<'_>, job_id: u64, plan: &CompactionPlan) {
    operation.stage(ThreadStage::CompactionPrepare);
    operation.properties(&properties_of(job_id, plan));
}

fn properties_of(job_id: u64, plan: &CompactionPlan) -> [(&'static str, u64); 4] {
    let is = |bit: u32, set: bool| u64::from(set) << bit;
    let kind =
        is(0, plan.manual) | is(1, plan.kind == PlanKind::Drop) | is(2, plan.kind == PlanKind::TrivialMove);
    [
        ("JobID", job_id),
        ("InputOutputLevel", (plan.start_level() as u64) << 32 | plan.output_level as u64),
        ("Manual/Deletion/Trivial", kind),
        ("TotalInputBytes", plan.input_bytes()),
    ]
}

fn install(engine: &Engine, id: ColumnFamilyId, edit: VersionEdit, operation: &Operation<'_>) -> Result<()> {
    operation.stage(ThreadStage::CompactionInstall);
    let installed = engine.commit_edits_of(
        Some(operation),
        |_| vec![edit],
        |state, _| {
            let State { families, versions, .. } = state;
            if let Some(family) = families.get_mut(&id) {
                family.install_view(versions);
            }
            engine.update_stall(state);
        },
    );
    // Nobody knows what the MANIFEST holds now, whatever the cause was: not a thing to try again beside writes.
    installed.map_err(|error| match error.code() {
        Code::IoError => error.with_severity(Severity::Hard),
        _ => error,
    })
}

fn count(engine: &Engine, plan: &CompactionPlan, stats: &CompactionStats, nanos: u64) {
    let read = stats.bytes_read_non_output_levels + stats.bytes_read_output_level;
    let counters = &engine.counters;
    counters.compactions.fetch_add(1, Ordering::Relaxed);
    counters.compaction_read_bytes.fetch_add(read, Ordering::Relaxed);
    counters.compaction_write_bytes.fetch_add(stats.bytes_written, Ordering::Relaxed);
    counters.compaction_micros.fetch_add(nanos / 1000, Ordering::Relaxed);
    if plan.start_level() == 0 {
        engine.controller.note_compacted(stats.bytes_read_non_output_levels, nanos);
    }
    let Some(statistics) = &engine.statistics else { return };
    let written = stats.bytes_written;
    statistics.record(Ticker::CompactReadBytes, read);
    statistics.record(Ticker::CompactWriteBytes, written);
    let of_reason = match plan.reason {
        CompactionReason::FilesMarkedForCompaction => {
            Some((Ticker::CompactReadBytesMarked, Ticker::CompactWriteBytesMarked))
        }
        CompactionReason::PeriodicCompaction => {
            Some((Ticker::CompactReadBytesPeriodic, Ticker::CompactWriteBytesPeriodic))
        }
        CompactionReason::Ttl => Some((Ticker::CompactReadBytesTtl, Ticker::CompactWriteBytesTtl)),
        _ => None,
    };
    if let Some((of_read, of_written)) = of_reason {
        statistics.record(of_read, read);
        statistics.record(of_written, written);
    }
    let drops = &stats.drops;
    let dropped = [
        (Ticker::CompactionKeyDropUser, drops.filtered + drops.filtered_operands),
        (Ticker::CompactionKeyDropNewerEntry, drops.hidden),
        (Ticker::CompactionKeyDropObsolete, drops.obsolete),
        (Ticker::CompactionKeyDropRangeDel, drops.range_deleted),
        (Ticker::CompactionRangeDelDropObsolete, drops.obsolete_ranges),
        (Ticker::CompactionOptimizedDelDropObsolete, drops.obsolete_above_bottom),
    ];
    for (ticker, count) in dropped.into_iter().filter(|(_, count)| *count > 0) {
        statistics.record(ticker, count);
    }
    statistics.measure_time(Histogram::CompactionTime, nanos / 1000);
    statistics.measure_time(Histogram::CompactionCpuTime, stats.cpu_micros);
}

fn log_start(engine: &Engine, job_id: u64, data: &ColumnFamilyData, plan: &CompactionPlan) {
    info!(engine.log, "[{}] compacting {plan}: {}, score {:.2}", data.name, plan.reason.name(), plan.score);
    let mut event = serde_json::json!({ "job": job_id, "cf_name": data.name,
        "compaction_reason": plan.reason.name(), "score": plan.score, "input_data_size": plan.input_bytes() });
    for inputs in &plan.inputs {
        let numbers: Vec<u64> = inputs.files.iter().map(|file| file.number.0).collect();
        event[format!("files_L{}", inputs.level)] = numbers.into();
    }
    engine.log.event("compaction_started", event);
}

#[allow(clippy::too_many_arguments)]
fn log_end(
    engine: &Engine,
    job_id: u64,
    data: &ColumnFamilyData,
    plan: &CompactionPlan,
    stats: &CompactionStats,
    outputs: &[u64],
    nanos: u64,
) {
    let version = Arc::clone(&data.peek().version);
    let shape: Vec<usize> = version.levels.iter().map(|level| level.len()).collect();
    let mut event = serde_json::json!({ "job": job_id, "cf_name": data.name,
        "compaction_time_micros": nanos / 1000, "output_level": plan.output_level,
        "num_output_files": outputs.len(), "output_files": outputs, "total_output_size": stats.bytes_written,
        "num_input_records": stats.input_records, "num_output_records": stats.output_records,
        "num_subcompactions": stats.num_subcompactions, "rested_for_readers_micros": stats.rested_micros,
        "lsm_state": shape });
    say_file_times(&mut event, stats.file_times.as_ref());
    engine.log.event("compaction_finished", event);
    let manual = if plan.reason == CompactionReason::ManualCompaction { " (manual)" } else { "" };
    info!(
        engine.log,
        "[{}] compacted {plan}{manual}: {} -> {} bytes, {} -> {} entries in {} us",
        data.name,
        plan.input_bytes(),
        stats.bytes_written,
        stats.input_records,
        stats.output_records,
        nanos / 1000
    );
}
