//! Compactions that were asked for: a key range, or files by number.

use crate::options::{CompactionOptions, CompactionStyle};
use crate::picker::{PickContext, Picker};
use crate::plan::{CompactionPlan, CompactionReason, LevelInputs, PlanKind, user_key_range};
use crate::running::RunningCompactions;
use ironstone_base::sync::Arc;
use ironstone_base::{Code, Error, FileNumber, Result};
use ironstone_version::{FileMetaData, Version};
use std::ops::Range;

/// Whether a manual compaction rewrites the last level as well. Numbers and names are RocksDB's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[repr(u8)]
pub enum BottommostPolicy {
    /// No: what comes down from above is enough.
    Skip = 0,
    /// Only if there is a compaction filter, which should see every entry; what this compaction wrote is left
    /// alone.
    #[default]
    IfHaveCompactionFilter = 1,
    /// Yes, even what this compaction wrote.
    Force = 2,
    /// Yes, but what this compaction wrote is left alone.
    ForceOptimized = 3,
}

impl BottommostPolicy {
    /// The policy with that number.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Skip,
            1 => Self::IfHaveCompactionFilter,
            2 => Self::Force,
            3 => Self::ForceOptimized,
            _ => return None,
        })
    }
}

/// What a manual compaction needs next.
#[derive(Clone, Debug)]
pub enum ManualPick {
    /// Carry this out, install it, then call [`ManualCompaction::installed`].
    Plan(Box<CompactionPlan>),
    /// Something that runs is in the way: ask again after it has ended.
    Wait,
    /// Nothing is left to do.
    Done,
}

/// Where a manual compaction is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Nothing was picked yet.
    Begin,
    /// All of the range that lay above this level is in it.
    Arrived(usize),
    /// Compacting this level into the next (level 0: into the base level).
    Down(usize),
    /// Rewriting this level, the last.
    Bottom(usize),
    /// Through.
    Done,
}

/// One step of a stage.
enum Piece {
    /// A compaction, and the user key where the stage goes on after it, if it does.
    Plan(Box<CompactionPlan>, Option<Vec<u8>>),
    Wait,
    Nothing,
}

/// A manual compaction of a key range, level by level from the first that overlaps, in pieces of about
/// `max_compaction_bytes`. Pure: the database drives it.
///
/// ```text
/// loop { match manual.next(version, ..) { Plan(plan) => run, install, manual.installed(),
///                                         Wait => until a compaction ends, Done => break } }
/// ```
#[derive(Clone, Debug)]
pub struct ManualCompaction {
    begin: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
    policy: BottommostPolicy,
    exclusive: bool,
    max_subcompactions: Option<usize>,
    /// Files from this number on are (probably) this compaction's own work.
    first_own_file: FileNumber,
    stage: Stage,
    /// Where the stage goes on: a user key.
    resume: Option<Vec<u8>>,
    /// Where to go on once the plan that was answered last is installed.
    pending: Option<(Stage, Option<Vec<u8>>)>,
}

impl ManualCompaction {
    /// Of all user keys in `begin..=end` (`None`: unbounded). `next_file_number`: the number that the next
    /// file would get.
    pub fn new(
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
        policy: BottommostPolicy,
        next_file_number: FileNumber,
    ) -> Self {
        Self {
            begin: begin.map(<[u8]>::to_vec),
            end: end.map(<[u8]>::to_vec),
            policy,
            exclusive: false,
            max_subcompactions: None,
            first_own_file: next_file_number,
            stage: Stage::Begin,
            resume: None,
            pending: None,
        }
    }
    /// Let nothing else run in the column family beside each of its compactions.
    #[must_use]
    pub fn exclusive(mut self, exclusive: bool) -> Self {
        self.exclusive = exclusive;
        self
    }
    /// Split each compaction in up to so many parts, whatever the options say.
    #[must_use]
    pub fn max_subcompactions(mut self, count: usize) -> Self {
        self.max_subcompactions = Some(count.max(1));
        self
    }
    /// Whether automatic compactions must stay away until this is done.
    pub fn is_exclusive(&self) -> bool {
        self.exclusive
    }

    /// What to do now. Asking again without [`installed`](Self::installed) in between starts the step over.
    pub fn next(
        &mut self,
        version: &Version,
        options: &CompactionOptions,
        running: &RunningCompactions,
        context: &PickContext<'_>,
    ) -> ManualPick {
        if running.has_exclusive() || (self.exclusive && !running.is_empty()) {
            return ManualPick::Wait;
        }
        let picker = Picker::new(version, options, running, context);
        match options.style {
            CompactionStyle::Level => {}
            CompactionStyle::Universal => return self.next_universal(&picker),
            CompactionStyle::Fifo => return self.next_fifo(&picker),
        }
        loop {
            let (piece, after) = match self.stage {
                Stage::Begin => {
                    self.stage = self.first_stage(&picker);
                    continue;
                }
                Stage::Arrived(level) => {
                    self.stage = self.stage_at(&picker, level);
                    self.resume = None;
                    continue;
                }
                Stage::Down(0) => (self.piece_of_level0(&picker), Stage::Arrived(picker.shape.base_level)),
                Stage::Down(level) => (self.piece(&picker, level, level + 1), Stage::Arrived(level + 1)),
                Stage::Bottom(level) => (self.piece(&picker, level, level), Stage::Done),
                Stage::Done => return ManualPick::Done,
            };
            match piece {
                Piece::Plan(mut plan, resume) => {
                    plan.exclusive = self.exclusive;
                    plan.max_subcompactions = self.max_subcompactions.unwrap_or(plan.max_subcompactions);
                    self.pending = Some((if resume.is_some() { self.stage } else { after }, resume));
                    return ManualPick::Plan(plan);
                }
                Piece::Wait => return ManualPick::Wait,
                Piece::Nothing => self.stage = after,
            }
        }
    }

    /// The plan that [`next`](Self::next) answered last is installed.
    pub fn installed(&mut self) {
        if let Some((stage, resume)) = self.pending.take() {
            self.stage = stage;
            self.resume = resume;
        }
    }

    /// Universal compaction merges everything, whatever the range.
    fn next_universal(&mut self, picker: &Picker<'_>) -> ManualPick {
        if self.stage == Stage::Done || picker.last_level().is_none() {
            return ManualPick::Done;
        }
        let Some(mut plan) = picker.all_runs(CompactionReason::ManualCompaction) else {
            return ManualPick::Wait;
        };
        plan.exclusive = self.exclusive;
        plan.max_subcompactions = self.max_subcompactions.unwrap_or(plan.max_subcompactions);
        self.pending = Some((Stage::Done, None));
        ManualPick::Plan(Box::new(plan))
    }

    /// FIFO compaction does what is due, whatever the range.
    fn next_fifo(&mut self, picker: &Picker<'_>) -> ManualPick {
        if !picker.running.is_empty() {
            return ManualPick::Wait;
        }
        match picker.pick_fifo() {
            None => ManualPick::Done,
            Some(mut plan) => {
                plan.exclusive = self.exclusive;
                plan.manual = true;
                self.pending = Some((Stage::Begin, None));
                ManualPick::Plan(Box::new(plan))
            }
        }
    }

    fn first_stage(&self, picker: &Picker<'_>) -> Stage {
        let (begin, end) = (self.begin.as_deref(), self.end.as_deref());
        let mut levels = 0..picker.options.max_output_level() + 1;
        match levels.find(|&level| picker.version.range_overlaps(level, begin, end)) {
            None => Stage::Done,
            Some(0) => Stage::Down(0),
            Some(level) => Stage::Arrived(level),
        }
    }

    fn stage_at(&self, picker: &Picker<'_>, level: usize) -> Stage {
        let last = match picker.options.level_compaction_dynamic_level_bytes {
            true => picker.options.max_output_level(),
            false => picker.last_level().unwrap_or(0),
        };
        let rewrite_bottom = match self.policy {
            BottommostPolicy::Skip => false,
            BottommostPolicy::IfHaveCompactionFilter => picker.options.has_compaction_filter,
            BottommostPolicy::Force | BottommostPolicy::ForceOptimized => true,
        };
        match level < last {
            true => Stage::Down(level),
            false if rewrite_bottom => Stage::Bottom(level),
            false => Stage::Done,
        }
    }

    /// Level 0 goes down in one piece.
    fn piece_of_level0(&self, picker: &Picker<'_>) -> Piece {
        let start = picker.version.overlapping_inputs(0, self.begin.as_deref(), self.end.as_deref());
        if start.is_empty() {
            return Piece::Nothing;
        }
        if picker.running.any_busy(&start) {
            return Piece::Wait;
        }
        match picker.with_output(0, start, picker.shape.base_level) {
            None => Piece::Wait,
            Some(draft) => Piece::Plan(
                Box::new(picker.plan(picker.grow(draft, false), CompactionReason::ManualCompaction)),
                None,
            ),
        }
    }

    /// The next piece of `level`, which is not 0.
    fn piece(&self, picker: &Picker<'_>, level: usize, output_level: usize) -> Piece {
        let version = picker.version;
        let Some(files) = version.levels.get(level) else {
            return Piece::Nothing;
        };
        let from = self.resume.as_deref().or(self.begin.as_deref());
        let in_range = files.overlapping(&version.comparator, from, self.end.as_deref());
        let skip_own = output_level == level && self.policy != BottommostPolicy::Force;
        let is_own = |at: &usize| skip_own && files.files()[*at].number >= self.first_own_file;

        let Some(first) = in_range.clone().find(|at| !is_own(at)) else {
            return Piece::Nothing;
        };
        let mut end = first + 1;
        while end < in_range.end && !is_own(&end) && self.fits(picker, level, output_level, first..end + 1) {
            end += 1;
        }
        let Some(start) = picker.idle_clean_cut(level, first..end) else {
            return Piece::Wait;
        };
        let Some(draft) = picker.with_output(level, start, output_level) else {
            return Piece::Wait;
        };
        let draft = if output_level == level { draft } else { picker.grow(draft, false) };
        let last = draft.start.last().expect("a draft has files").number;
        let next = files.position(last).map_or(end, |at| at + 1);
        let resume = (next..in_range.end)
            .any(|at| !is_own(&at))
            .then(|| files.files()[next].smallest.user_key().to_vec());
        Piece::Plan(Box::new(picker.plan(draft, CompactionReason::ManualCompaction)), resume)
    }

    fn fits(&self, picker: &Picker<'_>, level: usize, output_level: usize, range: Range<usize>) -> bool {
        let files = &picker.version.files(level)[range];
        let mut bytes: u64 = files.iter().map(|file| file.file_size).sum();
        if let Some((low, high)) = user_key_range(&picker.version.comparator.user, files)
            && output_level != level
        {
            let below = &picker.version.files(output_level)[picker.overlap(output_level, low, high)];
            bytes += below.iter().map(|file| file.file_size).sum::<u64>();
        }
        bytes <= picker.options.max_compaction_bytes()
    }
}

/// How files that were named are compacted.
#[derive(Clone, Copy, Debug, Default)]
pub struct NamedFilesOptions {
    /// The size that output files are cut at; `None`: one file.
    pub output_file_size_limit: Option<u64>,
    /// Move the files if they overlap nothing.
    pub allow_trivial_move: bool,
    /// Split in up to so many parts; `None`: as the options say.
    pub max_subcompactions: Option<usize>,
}

/// The compaction of the files `numbers` into `output_level`, with the files that must go along: all that lie
/// between them on their levels, older files of level 0, and on every level down to the output what overlaps.
///
/// `InvalidArgument` for files that do not exist or lie below the output level, `Aborted` if something that
/// runs is in the way.
pub fn pick_files(
    version: &Version,
    options: &CompactionOptions,
    running: &RunningCompactions,
    context: &PickContext<'_>,
    numbers: &[FileNumber],
    output_level: usize,
    named: NamedFilesOptions,
) -> Result<CompactionPlan> {
    if numbers.is_empty() {
        return Err(Error::invalid_argument("Compaction must include at least one file."));
    }
    if output_level > options.max_output_level() {
        let last = options.max_output_level();
        let kept = if options.allow_ingest_behind {
            ": the level below is kept for files ingested behind"
        } else {
            ""
        };
        let message = format!(
            "compaction of named files: output level {output_level} is beyond the last, {last}{kept}"
        );
        return Err(Error::invalid_argument(message));
    }
    for &number in numbers {
        let Some((level, _)) = version.file(number) else {
            let message = format!("compaction of named files: table {number} does not exist");
            return Err(Error::invalid_argument(message));
        };
        if level > output_level {
            let message = format!(
                "Cannot compact file to up level, input file: {number} level {level} > output level {output_level}"
            );
            return Err(Error::invalid_argument(message));
        }
    }
    if running.has_exclusive() {
        return Err(Error::new(Code::Aborted, "an exclusive manual compaction is running"));
    }
    let picker = Picker::new(version, options, running, context);
    let inputs = picker.with_companions(numbers, output_level);
    for inputs in &inputs {
        if let Some(busy) = inputs.files.iter().find(|file| running.is_busy(file.number)) {
            let message =
                format!("Necessary compaction input file {} is currently being compacted.", busy.number);
            return Err(Error::new(Code::Aborted, message));
        }
    }
    let mut plan = picker.plan_of(inputs, output_level, CompactionReason::ManualCompaction);
    if !running.admits(&plan) {
        let message =
            "A running compaction is writing to the same output level(s) in an overlapping key range";
        return Err(Error::new(Code::Aborted, message));
    }
    plan.target_file_size = named.output_file_size_limit.unwrap_or(u64::MAX);
    plan.max_subcompactions = named.max_subcompactions.unwrap_or(plan.max_subcompactions);
    if !named.allow_trivial_move {
        plan.kind = PlanKind::Rewrite;
    }
    Ok(plan)
}

/// The move of all files of level 0 to `target_level`, where they must not overlap each other and no level down
/// to there may have files.
///
/// `InvalidArgument` if that is not so, if there is no such level or it is kept for files ingested behind, or if a compaction of level 0 runs.
pub fn promote_level0(
    version: &Version,
    options: &CompactionOptions,
    running: &RunningCompactions,
    context: &PickContext<'_>,
    target_level: usize,
) -> Result<Option<CompactionPlan>> {
    let refuse = |message: &str| Err(Error::invalid_argument(message));
    if target_level < 1 {
        return refuse("Invalid target level");
    }
    if target_level >= version.num_levels() {
        return refuse("Target level does not exist");
    }
    if target_level > options.max_output_level() {
        return refuse("Target level is kept for files ingested behind");
    }
    let files = version.files(0);
    if running.any_busy(files) || running.has_exclusive() {
        return refuse("PromoteL0 called during L0 compaction");
    }
    let user = &version.comparator.user;
    let overlaps = |(at, file): (usize, &Arc<FileMetaData>)| {
        let (low, high) = (Some(file.smallest.user_key()), Some(file.largest.user_key()));
        files[..at].iter().any(|other| other.overlaps(user, low, high))
    };
    if files.iter().enumerate().any(overlaps) {
        return refuse("L0 has overlapping files");
    }
    if (1..=target_level).any(|level| !version.files(level).is_empty()) {
        return refuse("All levels up to target_level must be empty");
    }
    if files.is_empty() {
        return Ok(None);
    }
    let picker = Picker::new(version, options, running, context);
    let inputs = vec![LevelInputs { level: 0, files: files.to_vec() }];
    let mut plan = picker.plan_of(inputs, target_level, CompactionReason::ManualCompaction);
    plan.kind = PlanKind::TrivialMove;
    if !running.admits(&plan) {
        return refuse("PromoteL0 called while a compaction writes to the target level");
    }
    Ok(Some(plan))
}

/// The removal of the table `number` with all that is in it, which must be what is oldest: on the last level with files,
/// and the oldest of level 0 if that is it. `None` if a compaction reads it or writes beside it.
///
/// `InvalidArgument` if there is no such table or if it is not the oldest.
pub fn drop_file(
    version: &Version,
    options: &CompactionOptions,
    running: &RunningCompactions,
    context: &PickContext<'_>,
    number: FileNumber,
) -> Result<Option<CompactionPlan>> {
    let refuse = |what: String| Err(Error::invalid_argument(format!("table {number}: {what}")));
    let Some((level, _)) = version.file(number) else {
        return refuse("File not found".to_owned());
    };
    let files = version.files(level);
    let Some(at) = files.iter().position(|file| file.number == number) else {
        return refuse("File not found".to_owned());
    };
    let picker = Picker::new(version, options, running, context);
    if running.is_busy(number) || running.has_exclusive() {
        return Ok(None);
    }
    // What is older would come back.
    if let Some(last) = version.last_level().filter(|&last| last > level) {
        return refuse(format!("File not in last level: it is on level {level}, and level {last} has files"));
    }
    if level == 0 && at + 1 < files.len() {
        let older = files.len() - at - 1;
        return refuse(format!("File in level 0, but not oldest: {older} are older"));
    }
    if level > 0 && picker.clean_cut(level, at..at + 1) != (at..at + 1) {
        return refuse("a file beside it holds entries of the same key".to_owned());
    }
    let plan = picker.drop_files(level, vec![files[at].clone()], CompactionReason::ManualCompaction);
    Ok(running.admits(&plan).then_some(plan))
}

/// What giving all files of a level another level needs.
#[derive(Clone, Debug)]
pub enum Refit {
    /// Install this.
    Plan(Box<CompactionPlan>),
    /// Something runs: ask again after it has ended.
    Wait,
    /// They lie where they should.
    Done,
}

/// The move of all files of the deepest level with files to `target_level`, up or down. `None`: as far up as
/// empty levels reach whose target size they fit.
///
/// `InvalidArgument` if there is no such level or it is kept for files ingested behind, `NotSupported` if a level on the way has files, `Aborted` if
/// several files would come to level 0, or files of level 0 overlap.
pub fn refit_last_level(
    version: &Version,
    options: &CompactionOptions,
    running: &RunningCompactions,
    context: &PickContext<'_>,
    target_level: Option<usize>,
) -> Result<Refit> {
    if let Some(target) = target_level.filter(|&target| target >= version.num_levels()) {
        return Err(Error::invalid_argument(format!("target level {target} exceeds the number of levels")));
    }
    if let Some(target) = target_level.filter(|&target| target > options.max_output_level()) {
        return Err(Error::invalid_argument(format!(
            "target level {target} is kept for files ingested behind"
        )));
    }
    let picker = Picker::new(version, options, running, context);
    let Some(level) = picker.last_level() else { return Ok(Refit::Done) };
    if !running.is_empty() {
        return Ok(Refit::Wait);
    }
    let target = target_level.unwrap_or_else(|| picker.highest_fitting_level(level));
    if target == level {
        return Ok(Refit::Done);
    }
    let files = version.files(level);
    let mut on_the_way = if target > level { level + 1..target + 1 } else { target..level };
    if on_the_way.any(|level| !version.files(level).is_empty()) {
        let what = "Levels between source and target are not empty for a move.";
        return Err(Error::not_supported(what));
    }
    if target == 0 && files.len() > 1 {
        let what = format!("{} files of level {level} cannot all go to level 0", files.len());
        return Err(Error::new(Code::Aborted, what));
    }
    let inputs = vec![LevelInputs { level, files: files.to_vec() }];
    if level == 0 && !picker.are_disjoint(&inputs) {
        return Err(Error::new(Code::Aborted, "files of level 0 overlap"));
    }
    let mut plan = picker.plan_of(inputs, target, CompactionReason::RefitLevel);
    (plan.kind, plan.exclusive) = (PlanKind::TrivialMove, true);
    Ok(Refit::Plan(Box::new(plan)))
}

impl Picker<'_> {
    /// The highest level that the files of `level` fit, with nothing between.
    fn highest_fitting_level(&self, level: usize) -> usize {
        let bytes = self.version.level_bytes(level);
        let empty = (1..level).rev().take_while(|&above| self.version.files(above).is_empty());
        empty.take_while(|&above| self.shape.max_bytes[above] >= bytes).last().unwrap_or(level)
    }

    /// The files `numbers` and what must go along with them into `output_level`.
    fn with_companions(&self, numbers: &[FileNumber], output_level: usize) -> Vec<LevelInputs> {
        let mut inputs: Vec<LevelInputs> = Vec::new();
        for level in 0..=output_level {
            let files = self.version.files(level);
            let named = |file: &Arc<FileMetaData>| numbers.contains(&file.number);
            let mut range = match (files.iter().position(named), files.iter().rposition(named)) {
                (Some(first), Some(last)) => first..last + 1,
                _ => 0..0,
            };
            if level == 0 {
                if output_level > 0 && !range.is_empty() {
                    range.end = files.len(); // Newest first: what follows is older.
                }
            } else {
                // The outputs span all inputs, so what lies between named files of two levels goes along,
                // too.
                let chosen = inputs.iter().flat_map(|inputs| &inputs.files).chain(&files[range.clone()]);
                if let Some((low, high)) = user_key_range(&self.version.comparator.user, chosen) {
                    let overlap = self.overlap(level, low, high);
                    range = match (range.is_empty(), overlap.is_empty()) {
                        (true, _) => overlap,
                        (_, true) => range,
                        _ => range.start.min(overlap.start)..range.end.max(overlap.end),
                    };
                }
                range = self.clean_cut(level, range);
            }
            if !range.is_empty() {
                inputs.push(LevelInputs { level, files: files[range].to_vec() });
            }
        }
        inputs
    }
}
