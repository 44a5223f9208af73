//! Carries out plans: reads the inputs, merges them, drops what nobody can see, writes the outputs.

pub(crate) mod file_times;
mod input;
pub(crate) mod output;
mod subcompaction;
#[cfg(test)]
mod tests;
pub(crate) mod tombstones;
pub(crate) mod watch;

use crate::filter::{FilterSource, TableFileCreationReason};
use crate::iterator::DropCounts;
use crate::plan::{CompactionPlan, PlanKind};
use file_times::FileTimes;
use ironstone_base::statistics::Histogram;
use ironstone_base::sync::atomic::{AtomicU64, Ordering};
use ironstone_base::sync::thread;
use ironstone_base::sync::{Arc, Mutex};
use ironstone_base::{
    Error, FileNumber, InternalKeyComparator, MergeOperator, Result, SequenceNumber, Statistics,
};
use ironstone_sst::{BuildOptions, Collected, TableProperties, TableReadOptions, TableReader};
use ironstone_version::FileMetaData;
use ironstone_vfs::{Env, IoKind, IoPriority, RateLimiter, StatsTimer, WriteOptions};
use output::{CreatedFiles, OutputSettings};
use std::path::{Path, PathBuf};

/// Opens input tables, from a cache or anew.
pub trait TableSource: Sync {
    /// The reader of `file`, which lies on `level`.
    fn open(&self, file: &FileMetaData, level: usize) -> Result<Arc<TableReader>>;
}

/// Names the output files and hears how the job goes.
pub trait OutputFiles: Sync {
    /// A number that was never handed out before. Until the result is installed, or the number is
    /// [abandoned](Self::abandoned), the owner must keep its clean-up from removing the file.
    fn new_file_number(&self) -> FileNumber;
    /// Where the table `number` goes.
    fn path(&self, number: FileNumber, path_id: u32) -> PathBuf;
    /// The table is complete and synced. An error fails the job: the place for a check of the output.
    fn finished(&self, _file: &FileMetaData) -> Result<()> {
        Ok(())
    }
    /// What collectors of properties made of a table that was written.
    fn collected(&self, _file: &FileMetaData, _properties: &TableProperties, _collected: &Collected) {}
    /// The number will never be installed; the file was removed, unless removing failed.
    fn abandoned(&self, _number: FileNumber) {}
    /// A table is about to be created.
    fn table_begins(&self, _path: &Path) {}
    /// It is complete and synced, or will never be, and why.
    fn table_ends(&self, _path: &Path, _result: Result<&FileMetaData, &Error>) {}
    /// A part of a compaction, counted from 0, begins on this thread.
    fn part_begins(&self, _part: usize) {}
    /// It has ended, on the same thread; what it did, if it did it.
    fn part_ends(&self, _part: usize, _result: Result<CompactionStats, &Error>) {}
}

/// Threads for the parts of one job.
pub trait Workers: Sync {
    /// How many parts can make progress at once, the caller's thread included.
    fn parallelism(&self) -> usize;
    /// Runs each task once, on any threads and in any order, and returns when all have ended.
    fn run<'env>(&self, tasks: Vec<Box<dyn FnOnce() + Send + 'env>>);
}

/// The caller's thread alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct SerialWorkers;

impl Workers for SerialWorkers {
    fn parallelism(&self) -> usize {
        1
    }
    fn run<'env>(&self, tasks: Vec<Box<dyn FnOnce() + Send + 'env>>) {
        for task in tasks {
            task();
        }
    }
}

/// Threads of its own for each job, the caller's among them.
#[derive(Clone, Copy, Debug)]
pub struct ScopedThreads(pub usize);

impl Workers for ScopedThreads {
    fn parallelism(&self) -> usize {
        self.0.max(1)
    }
    fn run<'env>(&self, tasks: Vec<Box<dyn FnOnce() + Send + 'env>>) {
        let threads = self.parallelism().min(tasks.len());
        let queue = Mutex::new(tasks.into_iter());
        let work = || {
            loop {
                let task = queue.lock().next();
                match task {
                    Some(task) => task(),
                    None => break,
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..threads {
                // Without another thread the work takes longer, that is all.
                let _ = thread::Builder::new().name("subcompaction".to_owned()).spawn_scoped(scope, work);
            }
            work();
        });
    }
}

/// How far a job is; may be read while it runs. The counters are statistics and publish nothing, so
/// `Relaxed` is enough for all of them.
#[derive(Debug, Default)]
pub struct CompactionProgress {
    written_bytes: AtomicU64,
    read_entries: AtomicU64,
    /// 0 until they are counted.
    all_entries: AtomicU64,
}

impl CompactionProgress {
    /// Bytes of output files written so far.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }
    /// Entries read so far.
    pub fn read_entries(&self) -> u64 {
        self.read_entries.load(Ordering::Relaxed)
    }
    /// How much of its entries a job has read, of 1. What is left when the last one was read, a sync above all, is not in it.
    pub fn done(&self) -> f64 {
        let all = self.all_entries.load(Ordering::Relaxed);
        if all == 0 { 0.0 } else { (self.read_entries() as f64 / all as f64).min(1.0) }
    }
    /// Says how many entries the job will read.
    pub fn expect(&self, entries: u64) {
        self.all_entries.store(entries, Ordering::Relaxed);
    }
    pub(crate) fn add_written(&self, bytes: u64) {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    pub(crate) fn add_read(&self, entries: u64) {
        self.read_entries.fetch_add(entries, Ordering::Relaxed);
    }
}

/// What is read back of a table that was just written. What does not pass fails the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OutputChecks {
    /// The checksums of all blocks, the order of the keys and their number.
    pub blocks: bool,
    /// All entries, which are compared with what was put in.
    pub entries: bool,
    /// The whole file's checksum, if it has one.
    pub file_checksum: bool,
}

/// What a job works with. All of it belongs to the caller.
#[derive(Clone, Copy)]
pub struct JobContext<'a> {
    /// Files and clock.
    pub env: &'a Env,
    /// The order of the keys.
    pub comparator: &'a InternalKeyComparator,
    /// Opens the inputs.
    pub tables: &'a dyn TableSource,
    /// Names the outputs.
    pub outputs: &'a dyn OutputFiles,
    /// What every output table has in common: table options, column family, ids. Level, codec, numbers and
    /// times are filled in here.
    pub build: &'a BuildOptions,
    /// Build no filter for tables with nothing older below (`optimize_filters_for_hits`).
    pub skip_filters_at_bottom: bool,
    /// How output files are written.
    pub write: WriteOptions,
    /// The snapshots that are alive, ascending. Each sees exactly what it saw before.
    pub snapshots: &'a [SequenceNumber],
    /// The oldest snapshot that transactions check write conflicts against, if any.
    pub earliest_write_conflict: Option<SequenceNumber>,
    /// What merge operands mean.
    pub merge_operator: Option<&'a dyn MergeOperator>,
    /// Whether mixing `SingleDelete` and `Delete` on one key is reported as corruption.
    pub enforce_single_del_contracts: bool,
    /// Asked every few hundred entries: an error ends the job with that error. For shutting down, paused
    /// manual compactions, dropped column families.
    pub cancelled: &'a (dyn Fn() -> Result<()> + Sync),
    /// Where compaction filters come from.
    pub filter: Option<FilterSource<'a>>,
    /// Paces the writing, and the reading if its mode says so.
    pub rate_limiter: Option<&'a Arc<dyn RateLimiter>>,
    /// Whether writers are held up at the moment: then what the job does is as urgent as what users do.
    pub writers_wait: &'a (dyn Fn() -> bool + Sync),
    /// Threads for subcompactions.
    pub workers: &'a dyn Workers,
    /// Updated while the job runs.
    pub progress: Option<&'a Arc<CompactionProgress>>,
    /// Take the times of its files ([`CompactionStats::file_times`]).
    pub measures_files: bool,
    /// How much of an input file is read at once; [`JobContext::DEFAULT_READAHEAD`] is good.
    pub readahead_size: usize,
    /// Compare the number of entries read with what the inputs' properties promise.
    pub verify_record_count: bool,
    /// What is read back of each output.
    pub output_checks: OutputChecks,
    /// Mark an output for compaction if at least this share of its entries are tombstones, so that deleted
    /// data goes away soon and scans do not wade through tombstones. 0: never.
    pub tombstone_mark_ratio: f64,
}

impl<'a> JobContext<'a> {
    /// RocksDB's `compaction_readahead_size`.
    pub const DEFAULT_READAHEAD: usize = 2 << 20;

    /// How tables are read: at the rate of the job, if that is for reads, too.
    pub(crate) fn table_reads(&self) -> TableReadOptions {
        let mut options = TableReadOptions::for_compaction(self.readahead_size);
        let limits_reads = self.rate_limiter.is_some_and(|limiter| limiter.mode().covers(IoKind::Read));
        options.read.rate_limiter_priority = limits_reads.then(|| self.priority(IoPriority::Low));
        options
    }

    /// At what priority the rate limiter is asked: `usual`, but when writers wait for such jobs. Asked for each file that is
    /// written, and for each part of a compaction for what it reads.
    pub(crate) fn priority(&self, usual: IoPriority) -> IoPriority {
        if (self.writers_wait)() { IoPriority::User } else { usual }
    }

    /// Where the job is counted: where its tables are.
    pub(crate) fn statistics(&self) -> Option<&'a Statistics> {
        self.build.table.statistics.as_deref()
    }
}

/// What a job did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactionStats {
    /// Entries read.
    pub input_records: u64,
    /// Entries written.
    pub output_records: u64,
    /// Bytes of the input files of levels above the output level.
    pub bytes_read_non_output_levels: u64,
    /// Bytes of the input files of the output level.
    pub bytes_read_output_level: u64,
    /// Bytes of the output files.
    pub bytes_written: u64,
    /// Key and value bytes of the entries read.
    pub input_raw_bytes: u64,
    /// Key and value bytes of the entries written.
    pub output_raw_bytes: u64,
    /// Input files of levels above the output level.
    pub num_input_files_in_non_output_levels: usize,
    /// Input files of the output level.
    pub num_input_files_in_output_level: usize,
    /// Output files.
    pub num_output_files: usize,
    /// In how many parts the work was split.
    pub num_subcompactions: usize,
    /// How long it took.
    pub micros: u64,
    /// How much processor time its parts took; without that of their files, where `file_times` has it.
    pub cpu_micros: u64,
    /// How long files kept its threads, with `report_bg_io_stats`.
    pub file_times: Option<FileTimes>,
    /// How long its parts left the disk to readers ([`ironstone_sst::disk_share`]).
    pub rested_micros: u64,
    /// Entries that were not written, by reason.
    pub drops: DropCounts,
}

/// The result of a compaction: install it as one version edit, then let go of the claim.
#[derive(Debug, Default)]
pub struct CompactionOutput {
    /// The new files of the output level, by key. Complete and durable, their directory entries too.
    pub files: Vec<FileMetaData>,
    /// What was done.
    pub stats: CompactionStats,
}

/// Carries `plan` out. On success the outputs are complete and durable, and the caller installs
/// [`CompactionPlan::edit`]; on failure none of them is left.
pub fn run_compaction(plan: &CompactionPlan, context: &JobContext<'_>) -> Result<CompactionOutput> {
    if plan.kind != PlanKind::Rewrite {
        return Err(Error::invalid_argument(format!("{plan}: there is nothing to run; install its edit")));
    }
    let start = context.env.clock.monotonic_nanos();
    let tables = open_inputs(plan, context)?;
    if let Some(progress) = context.progress {
        progress.expect(tables.iter().map(|table| table.properties().num_entries).sum());
    }
    let timer = (plan.max_subcompactions > 1)
        .then(|| StatsTimer::start(context.statistics(), Histogram::SubcompactionSetupTime));
    let ranges = subcompaction::split(plan, context, &tables)?;
    drop(timer);
    if let Some(statistics) = context.statistics().filter(|_| ranges.len() > 1) {
        statistics.measure(Histogram::NumSubcompactionsScheduled, ranges.len() as u64);
    }
    let settings = output_settings(plan, context, &tables);
    let tombstones = tombstones::of_inputs(plan, context, &tables);
    let created = CreatedFiles::new(*context);
    let parts = subcompaction::run(plan, context, &ranges, &tombstones, &settings, &created)?;

    let mut output = CompactionOutput::default();
    for part in parts {
        output.stats.input_records += part.input_records;
        output.stats.output_records += part.written.records;
        output.stats.output_raw_bytes += part.written.raw_bytes;
        output.stats.drops.add(&part.drops);
        output.stats.cpu_micros += part.cpu_micros;
        output.stats.rested_micros += part.rested_micros;
        if let Some(times) = &part.file_times {
            output.stats.file_times.get_or_insert_default().add(times);
        }
        output.files.extend(part.written.files);
    }
    if context.verify_record_count && output.stats.drops.skipped_ranges == 0 {
        check_record_count(plan, &tables, output.stats.input_records)?;
    }
    created.keep()?;
    count_files(plan, &tables, &mut output);
    output.stats.num_subcompactions = ranges.len();
    output.stats.micros = (context.env.clock.monotonic_nanos() - start) / 1000;
    Ok(output)
}

/// Opens all inputs, so that what cannot be compacted is refused before anything is written.
fn open_inputs(plan: &CompactionPlan, context: &JobContext<'_>) -> Result<Vec<Arc<TableReader>>> {
    let open = |(level, file): (usize, &Arc<FileMetaData>)| context.tables.open(file, level);
    plan.input_files().map(open).collect()
}

fn output_settings(
    plan: &CompactionPlan,
    context: &JobContext<'_>,
    tables: &[Arc<TableReader>],
) -> OutputSettings {
    let newest = tables.iter().map(|table| table.properties().newest_key_time);
    let all_known = newest.clone().all(|time| time > 0);
    let oldest = plan.input_files().map(|(_, file)| file.oldest_ancester_time).filter(|&time| time > 0).min();
    OutputSettings {
        level: plan.output_level,
        path_id: plan.output_path_id,
        bottommost: plan.bottommost,
        reason: TableFileCreationReason::Compaction,
        compression: plan.compression,
        compression_options: plan.compression_options.clone(),
        target_file_size: plan.target_file_size,
        epoch_number: plan.input_files().map(|(_, file)| file.epoch_number).min().unwrap_or_default(),
        oldest_ancester_time: oldest.unwrap_or_else(|| context.env.clock.now_seconds()),
        oldest_key_time: 0,
        newest_key_time: newest.max().filter(|_| all_known).unwrap_or(0),
        priority: IoPriority::Low,
    }
}

/// An entry that was read twice, or never, would otherwise go unnoticed: what was read must be what the
/// inputs' properties count.
fn check_record_count(plan: &CompactionPlan, tables: &[Arc<TableReader>], read: u64) -> Result<()> {
    if tables.iter().any(|table| table.properties().num_entries == 0) {
        return Ok(()); // A table of LevelDB's does not say.
    }
    let count = |table: &Arc<TableReader>| {
        let properties = table.properties();
        properties.num_entries.saturating_sub(properties.num_range_deletions)
    };
    let expected: u64 = tables.iter().map(count).sum();
    if expected != read {
        let message = format!("compaction {plan}: the inputs have {expected} entries, but {read} were read");
        return Err(Error::corruption(message));
    }
    Ok(())
}

fn count_files(plan: &CompactionPlan, tables: &[Arc<TableReader>], output: &mut CompactionOutput) {
    let stats = &mut output.stats;
    for inputs in &plan.inputs {
        if inputs.level == plan.output_level {
            stats.bytes_read_output_level += inputs.bytes();
            stats.num_input_files_in_output_level += inputs.files.len();
        } else {
            stats.bytes_read_non_output_levels += inputs.bytes();
            stats.num_input_files_in_non_output_levels += inputs.files.len();
        }
    }
    let raw = |table: &Arc<TableReader>| table.properties().raw_key_size + table.properties().raw_value_size;
    stats.input_raw_bytes = tables.iter().map(raw).sum();
    stats.num_output_files = output.files.len();
    stats.bytes_written = output.files.iter().map(|file| file.file_size).sum();
}
