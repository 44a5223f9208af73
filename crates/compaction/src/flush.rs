//! Writes memtables to a level 0 table.

use crate::filter::{FilterContext, PartFilter, TableFileCreationReason};
use crate::iterator::{BelowLevels, CompactionIterator, IteratorOptions};
use crate::job::file_times::FileTimer;
use crate::job::output::{CreatedFiles, OutputSettings, OutputWriter};
use crate::job::tombstones::KeptTombstones;
use crate::job::watch::Watch;
use crate::job::{CompactionStats, JobContext};
use ironstone_base::sync::Arc;
use ironstone_base::{Error, FragmentedTombstones, RangeTombstone, Result};
use ironstone_iter::{BoxedIterator, InternalIterator};
use ironstone_sst::{CompressionKind, CompressionOptions, Demand};
use ironstone_version::FileMetaData;
use ironstone_vfs::IoPriority;

/// What to flush.
pub struct FlushInput {
    /// The iterators of the memtables, newest first, standing anywhere.
    pub iterators: Vec<BoxedIterator>,
    /// Their range tombstones, in any order.
    pub range_tombstones: Vec<RangeTombstone>,
    /// How many entries they have together, for the check that all were read.
    pub expected_entries: Option<u64>,
    /// The epoch number of the new file: larger than that of every file in the column family.
    pub epoch_number: u64,
    /// When the oldest entry was written, in seconds since 1970; 0 if unknown.
    pub oldest_key_time: u64,
    /// When the newest entry was written, in seconds since 1970; 0 if unknown.
    pub newest_key_time: u64,
    /// Which of the column family's paths the file goes to.
    pub path_id: u32,
    /// Why the memtables are written, for the compaction filter.
    pub reason: TableFileCreationReason,
    /// The codec.
    pub compression: CompressionKind,
    /// Its parameters.
    pub compression_options: CompressionOptions,
    /// Readers want what is written: it enters the block cache at once.
    pub is_wanted: bool,
}

/// The result of a flush.
#[derive(Debug, Default)]
pub struct FlushOutput {
    /// The new level 0 file, complete and durable; `None` if nothing was left to write.
    pub file: Option<FileMetaData>,
    /// What was done.
    pub stats: CompactionStats,
}

/// Writes the entries of `input` that somebody can still see to one level 0 table. On success the file is
/// complete and durable; on failure none is left.
pub fn run_flush(input: FlushInput, context: &JobContext<'_>) -> Result<FlushOutput> {
    let start = context.env.clock.monotonic_nanos();
    let files = context.measures_files.then(FileTimer::start);
    let now = context.env.clock.now_seconds();
    let settings = OutputSettings {
        level: 0,
        path_id: input.path_id,
        bottommost: false,
        reason: input.reason,
        compression: input.compression,
        compression_options: input.compression_options,
        target_file_size: 0,
        epoch_number: input.epoch_number,
        oldest_ancester_time: if input.oldest_key_time > 0 { input.oldest_key_time } else { now },
        oldest_key_time: input.oldest_key_time,
        newest_key_time: input.newest_key_time,
        priority: IoPriority::High,
    };
    let mut merged = ironstone_iter::merge(context.comparator.clone(), input.iterators);
    merged.seek_to_first()?;
    let user = &context.comparator.user;
    let tombstones = FragmentedTombstones::for_snapshots(user, &input.range_tombstones, context.snapshots);
    let options = IteratorOptions {
        comparator: context.comparator,
        snapshots: context.snapshots,
        earliest_write_conflict: context.earliest_write_conflict,
        bottommost: false,
        enforce_single_del_contracts: context.enforce_single_del_contracts,
        end: None,
        merge_operator: context.merge_operator,
        tombstones: Some(&tombstones),
        statistics: context.statistics(),
        data_in_errors: context.build.table.data_in_errors,
    };
    let created = CreatedFiles::new(*context);
    let filter_context = FilterContext {
        is_full_compaction: false,
        is_manual_compaction: false,
        input_start_level: None,
        column_family_id: context.build.column_family_id,
        reason: input.reason,
    };
    let filter = PartFilter::new(context.filter, &filter_context)?;
    let watch = Watch { context: *context, failed: None, filter, turns: None, level: 0 };
    let mut entries = CompactionIterator::new(merged, options, BelowLevels::unknown(), watch)?;
    let kept = KeptTombstones::all(&tombstones);
    let demand = input.is_wanted.then(|| Arc::new(Demand::for_everything()));
    let written =
        OutputWriter::new(*context, &settings, &created, None, kept, demand).write_all(&mut entries)?;
    let (read, drops) = (entries.input_records(), *entries.counts());
    let input_raw_bytes = entries.input_bytes();
    let verify = context.verify_record_count && drops.skipped_ranges == 0;
    if let Some(expected) = input.expected_entries.filter(|&expected| expected != read && verify) {
        let message = format!("flush: the memtables have {expected} entries, but {read} were read");
        return Err(Error::corruption(message));
    }
    created.keep()?;

    let file = written.files.into_iter().next();
    let bytes_written = file.as_ref().map_or(0, |file| file.file_size);
    let stats = CompactionStats {
        input_records: read,
        output_records: written.records,
        input_raw_bytes,
        output_raw_bytes: written.raw_bytes,
        bytes_written,
        num_output_files: usize::from(file.is_some()),
        num_subcompactions: 1,
        micros: (context.env.clock.monotonic_nanos() - start) / 1000,
        file_times: files.map(|files| files.passed()),
        drops,
        ..CompactionStats::default()
    };
    Ok(FlushOutput { file, stats })
}
