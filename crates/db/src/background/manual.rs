//! Compactions that were asked for.

use super::compaction::{Claimed, carry_out, manual_compaction_canceled, pick_context, reserve_space};
use crate::column_family::ColumnFamily;
use crate::engine::{Engine, Family, State};
use ironstone_base::sync::atomic::{AtomicBool, Ordering};
use ironstone_base::sync::{Arc, MutexGuard};
use ironstone_base::{Code, Error, FileNumber, Result};
use ironstone_compaction::picker::manual::{ManualCompaction, NamedFilesOptions};
use ironstone_compaction::{
    BottommostPolicy, CompactionPlan, KeyRange, ManualPick, Refit, drop_file, drop_in_ranges, pick_files,
    promote_level0 as pick_promotion, refit_last_level,
};
use ironstone_compress::CompressionKind;
use ironstone_version::Version;

/// How a key range is compacted.
#[derive(Clone, Debug, Default)]
pub struct CompactRangeOptions {
    /// Whether the last level is rewritten as well.
    pub bottommost_level_compaction: BottommostPolicy,
    /// Let nothing else run in the column family meanwhile. Default false.
    pub exclusive_manual_compaction: bool,
    /// Flush at once, though writers may be held up by it. Default false: wait as
    /// [`FlushOptions::allow_write_stall`](crate::FlushOptions) says.
    pub allow_write_stall: bool,
    /// In how many key ranges each compaction may be split; `None`: as `max_subcompactions` says.
    pub max_subcompactions: Option<usize>,
    /// Afterwards give all tables of the deepest level with tables the level `target_level`. Default false.
    pub change_level: bool,
    /// Where to: `None` as far up as empty levels reach that are large enough.
    pub target_level: Option<usize>,
    /// Which of `db_paths` or `cf_paths` the tables go to, from 0. Default 0.
    pub target_path_id: u32,
    /// Stops the compaction soon after it is set; it then answers `Incomplete`.
    pub canceled: Option<Arc<AtomicBool>>,
}

/// How named files are compacted.
#[derive(Clone, Debug, Default)]
pub struct CompactFilesOptions {
    /// In how many key ranges the compaction may be split; `None`: as `max_subcompactions` says.
    pub max_subcompactions: Option<usize>,
    /// Move files that overlap nothing instead of rewriting them. Default false.
    pub allow_trivial_move: bool,
    /// By which codec the new tables are compressed; `None`: as the options of the column family say. Its parameters are theirs.
    pub compression: Option<CompressionKind>,
    /// At how many bytes a new table ends, about; `None`: one table.
    pub output_file_size_limit: Option<u64>,
    /// Stops the compaction soon after it is set; it then answers `Incomplete`.
    pub canceled: Option<Arc<AtomicBool>>,
    /// Which of `db_paths` or `cf_paths` the tables go to, from 0; `None`: where compactions by themselves would put
    /// them.
    pub output_path_id: Option<u32>,
}

/// A manual compaction, for as long as it runs or waits.
struct Manual<'a>(&'a Engine);

impl<'a> Manual<'a> {
    fn begin(engine: &'a Engine) -> Self {
        engine.state.lock().running_manual += 1;
        Self(engine)
    }
    /// What tells it to stop: the caller's flag, and that of all manual compactions.
    fn flags<'b>(&'b self, canceled: &'b Option<Arc<AtomicBool>>) -> Vec<&'b AtomicBool> {
        canceled.iter().map(|flag| &**flag).chain([&self.0.manual_is_disabled]).collect()
    }
}

impl Drop for Manual<'_> {
    fn drop(&mut self) {
        self.0.state.lock().running_manual -= 1;
        self.0.progress.notify_all();
    }
}

/// Stops manual compactions, and waits until none runs.
pub(crate) fn disable(engine: &Engine) {
    let mut state = engine.state.lock();
    state.manual_disabled += 1;
    engine.manual_is_disabled.store(true, Ordering::Relaxed);
    engine.progress.notify_all();
    while state.running_manual > 0 && !state.closing {
        engine.progress.wait(&mut state);
    }
}

/// Takes one [`disable`] back. Answers whether there was one.
pub(crate) fn enable(engine: &Engine) -> bool {
    let mut state = engine.state.lock();
    let Some(left) = state.manual_disabled.checked_sub(1) else { return false };
    state.manual_disabled = left;
    engine.manual_is_disabled.store(left > 0, Ordering::Relaxed);
    true
}

/// Compacts the keys in `begin..=end`, on the caller's thread.
pub(crate) fn compact_range(
    engine: &Arc<Engine>,
    cf: &ColumnFamily,
    begin: Option<&[u8]>,
    end: Option<&[u8]>,
    options: &CompactRangeOptions,
) -> Result<()> {
    let levels = cf.0.settings().compaction.num_levels;
    if let Some(target) = options.target_level.filter(|&target| options.change_level && target >= levels) {
        let what = format!("target level {target} exceeds the number of levels");
        return Err(Error::invalid_argument(what));
    }
    check_path(cf, options.target_path_id)?;
    let running = Manual::begin(engine);
    let cancel = running.flags(&options.canceled);
    let mut state = engine.state.lock();
    let mut manual = ManualCompaction::new(
        begin,
        end,
        options.bottommost_level_compaction,
        state.versions.next_file_number(),
    )
    .exclusive(options.exclusive_manual_compaction);
    if let Some(count) = options.max_subcompactions {
        manual = manual.max_subcompactions(count);
    }
    loop {
        check(&state, &cancel)?;
        engine.check_not_aborted(&cf.0)?;
        let context = pick_context(engine);
        let State { families, versions, .. } = &mut *state;
        let family = families.get_mut(&cf.id()).ok_or_else(|| dropped(cf))?;
        let version = versions.column_family(cf.id()).ok_or_else(|| dropped(cf))?.current.clone();
        match manual.next(&version, &family.data.settings().compaction, &family.running, &context) {
            ManualPick::Done => {
                drop((version, state));
                return if options.change_level {
                    change_level(engine, cf, options, &cancel)
                } else {
                    Ok(())
                };
            }
            ManualPick::Wait => {
                drop(version); // What becomes obsolete meanwhile must not wait for us.
                wait_for_others(engine, &mut state, cf, manual.is_exclusive());
            }
            ManualPick::Plan(mut plan) => {
                plan.set_output_path(options.target_path_id);
                let claimed = claim(engine, family, version, *plan)?;
                carry_out_unlocked(engine, &mut state, claimed, &cancel)?;
                manual.installed();
            }
        }
    }
}

/// Moves the deepest level, when nothing else runs in the column family.
fn change_level(
    engine: &Arc<Engine>,
    cf: &ColumnFamily,
    options: &CompactRangeOptions,
    cancel: &[&AtomicBool],
) -> Result<()> {
    let mut state = engine.state.lock();
    loop {
        check(&state, cancel)?;
        let context = pick_context(engine);
        let State { families, versions, .. } = &mut *state;
        let family = families.get_mut(&cf.id()).ok_or_else(|| dropped(cf))?;
        let version = versions.column_family(cf.id()).ok_or_else(|| dropped(cf))?.current.clone();
        let settings = family.data.settings();
        let compaction = &settings.compaction;
        match refit_last_level(&version, compaction, &family.running, &context, options.target_level)? {
            Refit::Done => return Ok(()),
            Refit::Wait => {
                drop(version);
                wait_for_others(engine, &mut state, cf, true);
            }
            Refit::Plan(plan) => {
                let claimed = claim(engine, family, version, *plan)?;
                return carry_out_unlocked(engine, &mut state, claimed, cancel);
            }
        }
    }
}

/// Compacts the files `numbers` into `output_level`, on the caller's thread.
pub(crate) fn compact_files(
    engine: &Arc<Engine>,
    cf: &ColumnFamily,
    numbers: &[FileNumber],
    output_level: usize,
    options: &CompactFilesOptions,
) -> Result<()> {
    options.output_path_id.map_or(Ok(()), |path_id| check_path(cf, path_id))?;
    if let Some(kind) = options.compression.filter(|kind| !kind.is_supported()) {
        return Err(Error::not_supported(format!("compression {}", kind.option_name())));
    }
    let running = Manual::begin(engine);
    let cancel = running.flags(&options.canceled);
    let mut state = engine.state.lock();
    check(&state, &cancel)?;
    engine.check_not_aborted(&cf.0)?;
    let context = pick_context(engine);
    let State { families, versions, .. } = &mut *state;
    let family = families.get_mut(&cf.id()).ok_or_else(|| dropped(cf))?;
    let version = versions.column_family(cf.id()).ok_or_else(|| dropped(cf))?.current.clone();
    let named = NamedFilesOptions {
        output_file_size_limit: options.output_file_size_limit,
        allow_trivial_move: options.allow_trivial_move,
        max_subcompactions: options.max_subcompactions,
    };
    let mut plan = pick_files(
        &version,
        &family.data.settings().compaction,
        &family.running,
        &context,
        numbers,
        output_level,
        named,
    )?;
    if let Some(path_id) = options.output_path_id {
        plan.set_output_path(path_id);
    }
    plan.compression = options.compression.unwrap_or(plan.compression);
    let claimed = claim(engine, family, version, plan)?;
    carry_out_unlocked(engine, &mut state, claimed, &cancel)
}

/// Moves the tables of level 0 to `target_level`.
pub(crate) fn promote_level0(engine: &Arc<Engine>, cf: &ColumnFamily, target_level: usize) -> Result<()> {
    let mut state = engine.state.lock();
    check(&state, &[])?;
    let context = pick_context(engine);
    let State { families, versions, .. } = &mut *state;
    let family = families.get_mut(&cf.id()).ok_or_else(|| dropped(cf))?;
    let version = versions.column_family(cf.id()).ok_or_else(|| dropped(cf))?.current.clone();
    let settings = family.data.settings();
    let options = &settings.compaction;
    let plan = pick_promotion(&version, options, &family.running, &context, target_level)?;
    let Some(plan) = plan else { return Ok(()) };
    let claimed = claim(engine, family, version, plan)?;
    carry_out_unlocked(engine, &mut state, claimed, &[])
}

/// Drops the table `number`. Answers whether: not while a compaction has it.
pub(crate) fn delete_table(engine: &Arc<Engine>, number: FileNumber) -> Result<bool> {
    let mut state = engine.state.lock();
    check(&state, &[])?;
    let context = pick_context(engine);
    let State { families, versions, .. } = &mut *state;
    for family in families.values_mut() {
        let Some(of_family) = versions.column_family(family.data.id) else { continue };
        let version = of_family.current.clone();
        if version.file(number).is_none() {
            continue;
        }
        let compaction = &family.data.settings().compaction;
        let Some(plan) = drop_file(&version, compaction, &family.running, &context, number)? else {
            return Ok(false);
        };
        let claimed = claim(engine, family, version, plan)?;
        return carry_out_unlocked(engine, &mut state, claimed, &[]).map(|()| true);
    }
    Err(Error::invalid_argument(format!("table {number}: File not found")))
}

/// Drops the tables of `cf` below level 0 whose keys all lie in one of `ranges`. Answers how many.
pub(crate) fn delete_tables_in(
    engine: &Arc<Engine>,
    cf: &ColumnFamily,
    ranges: &[KeyRange<'_>],
    include_end: bool,
) -> Result<usize> {
    let mut count = 0;
    let mut state = engine.state.lock();
    loop {
        check(&state, &[])?;
        let context = pick_context(engine);
        let State { families, versions, .. } = &mut *state;
        let (Some(family), Some(of_family)) = (families.get_mut(&cf.id()), versions.column_family(cf.id()))
        else {
            return Err(dropped(cf));
        };
        let version = of_family.current.clone();
        let compaction = &family.data.settings().compaction;
        let plan = drop_in_ranges(&version, compaction, &family.running, &context, ranges, include_end);
        let Some(plan) = plan else { return Ok(count) };
        count += plan.input_files().count();
        let claimed = claim(engine, family, version, plan)?;
        carry_out_unlocked(engine, &mut state, claimed, &[])?;
    }
}

fn check_path(cf: &ColumnFamily, path_id: u32) -> Result<()> {
    match path_id as usize >= cf.0.paths().dirs().len() {
        true => Err(Error::invalid_argument(format!("Invalid target path ID: {path_id}"))),
        false => Ok(()),
    }
}

fn claim(
    engine: &Engine,
    family: &mut Family,
    version: Arc<Version>,
    plan: CompactionPlan,
) -> Result<Claimed> {
    let space = reserve_space(engine, &plan)?;
    let (id, progress) = family.claim(&plan, engine.env.clock.monotonic_nanos());
    let data = Arc::clone(&family.data);
    let token =
        data.settings().options.compaction_thread_limiter.as_ref().map(|limiter| limiter.take_anyway());
    Ok(Claimed { data, _version: version, plan, id, progress, _space: space, _token: token })
}

/// Carries out a claimed plan on this thread, which lets go of the state meanwhile.
fn carry_out_unlocked(
    engine: &Arc<Engine>,
    state: &mut MutexGuard<'_, State>,
    claimed: Claimed,
    cancel: &[&AtomicBool],
) -> Result<()> {
    state.running_compactions += 1;
    state.jobs_changed();
    let result = MutexGuard::unlocked(state, || carry_out(engine, claimed, cancel, None));
    state.running_compactions -= 1;
    state.jobs_changed();
    engine.progress.notify_all();
    if !engine.listeners.is_empty() {
        MutexGuard::unlocked(state, || engine.tell_pressure());
    }
    result
}

/// Waits until other work has ended; if `exclusive`, none of the column family is started until then.
fn wait_for_others(engine: &Engine, state: &mut MutexGuard<'_, State>, cf: &ColumnFamily, exclusive: bool) {
    let exclusive = usize::from(exclusive);
    if let Some(family) = state.families.get_mut(&cf.id()) {
        family.exclusive_waits += exclusive;
    }
    engine.wait_for_progress(state);
    if let Some(family) = state.families.get_mut(&cf.id()) {
        family.exclusive_waits -= exclusive;
    }
    engine.wake_workers();
}

/// Whether to go on.
fn check(state: &State, cancel: &[&AtomicBool]) -> Result<()> {
    if let Some(error) = &state.background_error {
        return Err(error.clone());
    }
    if state.closing {
        return Err(Error::shutdown());
    }
    match cancel.iter().any(|flag| flag.load(Ordering::Relaxed)) {
        true => Err(manual_compaction_canceled()),
        false => Ok(()),
    }
}

fn dropped(cf: &ColumnFamily) -> Error {
    Error::new(Code::ColumnFamilyDropped, format!("column family {:?}", cf.name()))
}
