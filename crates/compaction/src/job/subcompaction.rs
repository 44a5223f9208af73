//! One compaction in several parts, each a range of user keys, at the same time.

use crate::filter::{FilterContext, PartFilter};
use crate::iterator::{CompactionIterator, DropCounts, IteratorOptions};
use crate::job::file_times::{FileTimer, FileTimes};
use crate::job::input::{KeyRange, merged_inputs};
use crate::job::output::{CreatedFiles, Cutter, OutputSettings, OutputWriter, WrittenFiles, below_levels};
use crate::job::tombstones::KeptTombstones;
use crate::job::watch::Watch;
use crate::job::{CompactionStats, JobContext};
use crate::plan::CompactionPlan;
use ironstone_base::statistics::{IoActivity, Ticker};
use ironstone_base::sync::atomic::{AtomicBool, Ordering};
use ironstone_base::sync::{Arc, Mutex};
use ironstone_base::{Error, FragmentedTombstones, Result};
use ironstone_sst::disk_share::CompactionTurns;
use ironstone_sst::{Demand, TableReader};
use ironstone_vfs::cpu_nanos;

/// A table is cut in at most so many pieces when places for cuts are looked for.
const MAX_ANCHORS: usize = 128;

/// What one part did.
#[derive(Debug)]
pub(super) struct PartOutput {
    pub(super) written: WrittenFiles,
    pub(super) input_records: u64,
    pub(super) drops: DropCounts,
    pub(super) cpu_micros: u64,
    pub(super) rested_micros: u64,
    pub(super) file_times: Option<FileTimes>,
}

impl PartOutput {
    /// The same as a compaction of its own has it.
    fn stats(&self) -> CompactionStats {
        CompactionStats {
            input_records: self.input_records,
            output_records: self.written.records,
            output_raw_bytes: self.written.raw_bytes,
            bytes_written: self.written.files.iter().map(|file| file.file_size).sum(),
            num_output_files: self.written.files.len(),
            num_subcompactions: 1,
            cpu_micros: self.cpu_micros,
            rested_micros: self.rested_micros,
            file_times: self.file_times,
            drops: self.drops,
            ..CompactionStats::default()
        }
    }
}

/// The key ranges of the parts: about equal bytes in each, and at least a file's worth.
pub(super) fn split(
    plan: &CompactionPlan,
    context: &JobContext<'_>,
    tables: &[Arc<TableReader>],
) -> Result<Vec<KeyRange>> {
    let files_worth = plan.input_bytes() / plan.target_file_size.max(1);
    let count = plan
        .max_subcompactions
        .min(context.workers.parallelism())
        .min(files_worth.try_into().unwrap_or(usize::MAX));
    if count <= 1 || plan.output_level == 0 {
        return Ok(vec![KeyRange::default()]); // Outputs in level 0 that share an epoch must be one file.
    }
    let order = &context.comparator.user;
    let mut anchors = Vec::new();
    for table in tables {
        anchors.extend(table.anchors(MAX_ANCHORS)?);
    }
    anchors.sort_by(|(a, _), (b, _)| order.compare(a.user_key(), b.user_key()));
    let total: u64 = anchors.iter().map(|(_, bytes)| bytes).sum();

    let mut bounds: Vec<Vec<u8>> = Vec::new();
    let mut passed = 0u64;
    for (key, bytes) in &anchors {
        passed += bytes;
        let due = total / count as u64 * (bounds.len() as u64 + 1);
        let is_new = bounds.last().is_none_or(|last| order.compare(last, key.user_key()).is_lt());
        if passed >= due && is_new && bounds.len() + 1 < count {
            bounds.push(key.user_key().to_vec());
        }
    }
    let begins = std::iter::once(None).chain(bounds.iter().cloned().map(Some));
    let ends = bounds.iter().cloned().map(Some).chain(std::iter::once(None));
    Ok(begins.zip(ends).map(|(begin, end)| KeyRange { begin, end }).collect())
}

/// Runs all parts; their outputs in key order, or the first error.
pub(super) fn run<'a>(
    plan: &'a CompactionPlan,
    context: &JobContext<'a>,
    ranges: &[KeyRange],
    tombstones: &FragmentedTombstones,
    settings: &OutputSettings,
    created: &CreatedFiles<'a>,
) -> Result<Vec<PartOutput>> {
    let failed = AtomicBool::new(false);
    let told = |number, range| {
        context.outputs.part_begins(number);
        let output = run_part(plan, context, range, tombstones, settings, created, &failed);
        context.outputs.part_ends(number, output.as_ref().map(PartOutput::stats));
        output
    };
    if let [range] = ranges {
        return Ok(vec![told(0, range)?]);
    }
    let results: Vec<Mutex<Option<Result<PartOutput>>>> = ranges.iter().map(|_| Mutex::new(None)).collect();
    let part = |number, range, result: &Mutex<_>| {
        let output = told(number, range);
        // The others need not finish what will be thrown away. Relaxed: the flag publishes nothing.
        failed.fetch_or(output.is_err(), Ordering::Relaxed);
        *result.lock() = Some(output);
    };
    let part = &part;
    let task = |(number, (range, result))| {
        Box::new(move || part(number, range, result)) as Box<dyn FnOnce() + Send + '_>
    };
    context.workers.run(ranges.iter().zip(&results).enumerate().map(task).collect());

    let mut outputs = Vec::with_capacity(ranges.len());
    let mut stopped = None;
    for result in results {
        match result.into_inner() {
            Some(Ok(output)) => outputs.push(output),
            Some(Err(error)) if is_stopped(&error) => stopped = Some(error),
            Some(Err(error)) => return Err(error),
            None => stopped = Some(Error::io_message("a subcompaction was not run")),
        }
    }
    stopped.map_or(Ok(outputs), Err)
}

/// What a part returns that stopped because another one failed; the other one's error is the one to report.
#[cold]
pub(super) fn stopped() -> Error {
    Error::incomplete(STOPPED)
}
const STOPPED: &str = "subcompaction stopped because another one failed";

fn is_stopped(error: &Error) -> bool {
    error.is_incomplete() && error.message() == STOPPED
}

fn run_part<'a>(
    plan: &'a CompactionPlan,
    context: &JobContext<'a>,
    range: &KeyRange,
    tombstones: &FragmentedTombstones,
    settings: &OutputSettings,
    created: &CreatedFiles<'a>,
    failed: &AtomicBool,
) -> Result<PartOutput> {
    (context.cancelled)()?;
    let _compacting = IoActivity::Compaction.begin();
    let (cpu_before, files) = (cpu_nanos(), context.measures_files.then(FileTimer::start));
    let options = IteratorOptions {
        comparator: context.comparator,
        snapshots: context.snapshots,
        earliest_write_conflict: context.earliest_write_conflict,
        bottommost: plan.bottommost,
        enforce_single_del_contracts: context.enforce_single_del_contracts,
        end: range.end.as_deref(),
        merge_operator: context.merge_operator,
        tombstones: Some(tombstones),
        statistics: context.statistics(),
        data_in_errors: context.build.table.data_in_errors,
    };
    let filter =
        PartFilter::new(context.filter, &FilterContext::of_plan(plan, context.build.column_family_id))?;
    let share = context.build.table.disk_share.as_ref();
    let turns = share.map(|share| CompactionTurns::start(share, &context.env.clock));
    let watch = Watch { context: *context, failed: Some(failed), filter, turns, level: plan.start_level() };
    let demand = Arc::new(Demand::default());
    let input = merged_inputs(context, plan, range, &demand)?;
    let mut entries = CompactionIterator::new(input, options, below_levels(plan), watch)?;
    let cutter = (plan.output_level > 0).then(|| Cutter::new(&context.comparator.user, plan));
    let kept = KeptTombstones::of_compaction(plan, context, tombstones, range);
    let obsolete_ranges = kept.obsolete();
    let written =
        OutputWriter::new(*context, settings, created, cutter, kept, Some(demand)).write_all(&mut entries)?;
    let rested_micros = entries.rules().rested() / 1000;
    let (input_records, drops) =
        (entries.input_records(), DropCounts { obsolete_ranges, ..*entries.counts() });
    let mut cpu_micros = (cpu_nanos() - cpu_before) / 1000;
    if let Some(statistics) = context.statistics() {
        statistics.record(Ticker::CompactionCpuTotalTime, cpu_micros);
    }
    let file_times = files.map(|files| files.passed());
    if let Some(times) = &file_times {
        cpu_micros =
            cpu_micros.saturating_sub((times.file_cpu_write_nanos + times.file_cpu_read_nanos) / 1000);
    }
    Ok(PartOutput { written, input_records, drops, cpu_micros, rested_micros, file_times })
}
