//! The outputs of a job: where a file ends and the next begins, and what its metadata says.

use crate::filter::TableFileCreationReason;
use crate::iterator::{BelowLevels, CompactionIterator};
use crate::job::JobContext;
use crate::job::tombstones::KeptTombstones;
use crate::job::watch::Watch;
use crate::partitioner::{PartitionRequest, SstPartitioner};
use crate::plan::CompactionPlan;
use ironstone_base::hash::xxh3_64;
use ironstone_base::sync::{Arc, Mutex};
use ironstone_base::{
    Error, FileNumber, InternalKey, InternalKeyBuf, Result, Statistics, UserComparator, ValueType,
};
use ironstone_iter::InternalIterator;
use ironstone_sst::{
    BuildOptions, BuiltTable, CachePriority, CompressionKind, CompressionOptions, Demand, FileChecksum,
    PrepopulateBlockCache, TableBuilder, TableReader, WarmCache, WrittenFile,
};
use ironstone_version::FileMetaData;
use ironstone_vfs::{IoKind, IoPriority, RateLimiter, WritableFile};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// What all outputs of a job have in common.
#[derive(Clone, Debug)]
pub(crate) struct OutputSettings {
    pub(crate) level: usize,
    pub(crate) path_id: u32,
    pub(crate) bottommost: bool,
    pub(crate) compression: CompressionKind,
    pub(crate) compression_options: CompressionOptions,
    pub(crate) target_file_size: u64,
    pub(crate) reason: TableFileCreationReason,
    pub(crate) epoch_number: u64,
    pub(crate) oldest_ancester_time: u64,
    pub(crate) oldest_key_time: u64,
    pub(crate) newest_key_time: u64,
    pub(crate) priority: IoPriority,
}

/// The files that a job created. Unless it succeeds, they are removed, whatever ended it.
pub(crate) struct CreatedFiles<'a> {
    context: JobContext<'a>,
    files: Mutex<Vec<(FileNumber, PathBuf)>>,
}

impl<'a> CreatedFiles<'a> {
    pub(crate) fn new(context: JobContext<'a>) -> Self {
        Self { context, files: Mutex::new(Vec::new()) }
    }
    fn note(&self, number: FileNumber, path: &Path) {
        self.files.lock().push((number, path.to_owned()));
    }
    /// Forgets one file, whose number is not used after all.
    fn discard(&self, number: FileNumber) {
        let mut files = self.files.lock();
        if let Some(at) = files.iter().position(|(noted, _)| *noted == number) {
            let (_, path) = files.swap_remove(at);
            self.remove(number, &path);
        }
    }
    fn remove(&self, number: FileNumber, path: &Path) {
        // A file that stays behind is found as obsolete later; the job's own failure is what counts.
        let _ = self.context.env.fs.remove(path);
        self.context.outputs.abandoned(number);
    }
    /// The job succeeded: makes the directory entries durable and keeps the files.
    pub(crate) fn keep(self) -> Result<()> {
        let mut directories: Vec<PathBuf> =
            self.files.lock().iter().filter_map(|(_, path)| path.parent().map(Path::to_owned)).collect();
        directories.sort();
        directories.dedup();
        for directory in directories {
            self.context.env.fs.open_directory(&directory)?.sync()?;
        }
        self.files.lock().clear();
        Ok(())
    }
}

impl Drop for CreatedFiles<'_> {
    fn drop(&mut self) {
        for (number, path) in std::mem::take(&mut *self.files.lock()) {
            self.remove(number, &path);
        }
    }
}

/// Writes a sequence of tables.
pub(crate) struct OutputWriter<'a, 'c> {
    context: JobContext<'a>,
    settings: &'c OutputSettings,
    created: &'c CreatedFiles<'a>,
    cutter: Option<Cutter<'a>>,
    tombstones: KeptTombstones<'c>,
    /// What readers want of it, if that is known.
    demand: Option<Arc<Demand>>,
    open: Option<OpenOutput>,
    /// Those before that.
    unsynced: VecDeque<UnsyncedOutput>,
    finished: Vec<FileMetaData>,
    raw_bytes: u64,
    records: u64,
}

struct OpenOutput {
    number: FileNumber,
    path: PathBuf,
    builder: TableBuilder,
    /// Of all keys and values, if they are to be compared.
    digest: u64,
}

/// So many outputs are written before they are synced. Their write-back has begun long before, but a sync waits for everything
/// that the disk has been given by then, and that is never little while the next output is written.
pub(crate) const MOST_UNSYNCED: usize = 16;
/// Large ones wait in fewer: a file system of remote tables keeps on the local disk what is not synced.
const MOST_UNSYNCED_BYTES: u64 = 1 << 30;

/// How many outputs of about `target_file_size` bytes are written before they are synced.
pub(crate) fn most_unsynced(target_file_size: u64) -> usize {
    (MOST_UNSYNCED_BYTES / target_file_size.max(1)).clamp(1, MOST_UNSYNCED as u64) as usize
}

/// Written, and on its way to the disk.
struct UnsyncedOutput {
    number: FileNumber,
    path: PathBuf,
    built: BuiltTable,
    file: WrittenFile,
    digest: u64,
}

impl<'a, 'c> OutputWriter<'a, 'c> {
    pub(crate) fn new(
        context: JobContext<'a>,
        settings: &'c OutputSettings,
        created: &'c CreatedFiles<'a>,
        cutter: Option<Cutter<'a>>,
        tombstones: KeptTombstones<'c>,
        demand: Option<Arc<Demand>>,
    ) -> Self {
        Self {
            context,
            settings,
            created,
            cutter,
            tombstones,
            demand,
            open: None,
            unsynced: VecDeque::new(),
            finished: Vec::new(),
            raw_bytes: 0,
            records: 0,
        }
    }

    /// Writes all of `entries`.
    pub(crate) fn write_all<I: InternalIterator>(
        mut self,
        entries: &mut CompactionIterator<'_, I, Watch<'_>>,
    ) -> Result<WrittenFiles> {
        if let Err(error) = self.fill(entries) {
            let unsynced = self.unsynced.iter().map(|output| &output.path);
            for path in unsynced.chain(self.open.iter().map(|open| &open.path)) {
                self.context.outputs.table_ends(path, Err(&error));
            }
            return Err(error);
        }
        Ok(WrittenFiles {
            files: std::mem::take(&mut self.finished),
            records: self.records,
            raw_bytes: self.raw_bytes,
        })
    }

    fn fill<I: InternalIterator>(
        &mut self,
        entries: &mut CompactionIterator<'_, I, Watch<'_>>,
    ) -> Result<()> {
        while entries.valid() {
            self.add(entries.key(), entries.value(), entries.starts_key())?;
            entries.next()?;
        }
        self.close(None)?;
        self.complete_unsynced()
    }

    /// Adds an entry. `starts_key`: it is the first of its user key, so a new file may begin here.
    #[inline]
    fn add(&mut self, key: InternalKey<'_>, value: &[u8], starts_key: bool) -> Result<()> {
        if starts_key
            && let (Some(cutter), Some(open)) = (&mut self.cutter, &self.open)
            && (cutter.cuts_before(key.user_key(), open.builder.estimated_file_size())
                || cutter.overfills(&open.builder, key, value))
        {
            self.close(Some(key.user_key()))?;
        }
        let digested = self.context.output_checks.entries;
        let open = match &mut self.open {
            Some(open) => open,
            None => self.begin(key.user_key())?,
        };
        open.builder.add(key, value)?;
        if digested {
            open.digest = digest(open.digest, key, value);
        }
        self.records += 1;
        self.raw_bytes += (key.as_bytes().len() + value.len()) as u64;
        Ok(())
    }

    #[cold]
    fn begin(&mut self, user_key: &[u8]) -> Result<&mut OpenOutput> {
        let context = &self.context;
        let number = context.outputs.new_file_number();
        let path = context.outputs.path(number, self.settings.path_id);
        self.created.note(number, &path);
        context.outputs.table_begins(&path);
        let builder = self.new_builder(number, &path);
        let builder = builder.inspect_err(|error| context.outputs.table_ends(&path, Err(error)))?;
        if let Some(cutter) = &mut self.cutter {
            cutter.begin_file(user_key);
        }
        Ok(self.open.insert(OpenOutput { number, path, builder, digest: 0 }))
    }

    fn new_builder(&self, number: FileNumber, path: &Path) -> Result<TableBuilder> {
        let context = &self.context;
        let mut file = context.env.fs.create(path, context.write)?;
        let limiter = context.rate_limiter.filter(|limiter| limiter.mode().covers(IoKind::Write));
        if limiter.is_some() || context.progress.is_some() {
            file = Box::new(PacedFile {
                file,
                limiter: limiter.cloned(),
                progress: context.progress.cloned(),
                priority: context.priority(self.settings.priority),
                unasked: 0,
                statistics: context.build.table.statistics.clone(),
            });
        }
        TableBuilder::new(self.build_options(number), file)
    }

    fn build_options(&self, number: FileNumber) -> BuildOptions {
        let settings = self.settings;
        BuildOptions {
            compression: settings.compression,
            compression_options: settings.compression_options.clone(),
            level: u32::try_from(settings.level).ok(),
            is_flush: settings.reason == TableFileCreationReason::Flush,
            bottommost: settings.bottommost,
            warm_cache: self.warm_cache(),
            skip_filters: settings.bottommost && self.context.skip_filters_at_bottom,
            file_number: number,
            creation_time: settings.oldest_ancester_time,
            oldest_key_time: settings.oldest_key_time,
            newest_key_time: settings.newest_key_time,
            file_creation_time: self.context.env.clock.now_seconds(),
            target_file_size: settings.target_file_size,
            ..self.context.build.clone()
        }
    }

    /// How new blocks enter the block cache, if they do. Of a compaction of which all blocks do it is hard to tell which are
    /// wanted: they leave first.
    fn warm_cache(&self) -> Option<WarmCache> {
        use PrepopulateBlockCache::{FlushAndCompaction, FlushOnly};
        let all = |priority| Some(WarmCache { priority, demand: None });
        match (self.settings.reason, self.context.build.table.prepopulate_block_cache) {
            (TableFileCreationReason::Flush, FlushOnly | FlushAndCompaction) => all(CachePriority::Low),
            (TableFileCreationReason::Compaction, FlushAndCompaction) => all(CachePriority::Bottom),
            (TableFileCreationReason::Flush | TableFileCreationReason::Compaction, _) => {
                let demand = self.demand.clone()?;
                Some(WarmCache { priority: CachePriority::Low, demand: Some(demand) })
            }
            _ => None,
        }
    }

    /// Ends the open file, if there is one, with the range tombstones up to `next`, where the next file begins.
    fn close(&mut self, next: Option<&[u8]>) -> Result<()> {
        let order = &self.context.comparator.user;
        let tombstones = self.tombstones.take_before(order, next);
        if let Some(first) = tombstones.first() {
            if self.open.is_none() {
                self.begin(&first.begin)?;
            }
            let open = self.open.as_mut().expect("it was begun");
            for tombstone in &tombstones {
                let begin =
                    InternalKeyBuf::new(&tombstone.begin, tombstone.sequence, ValueType::RangeDeletion);
                open.builder.add_range_tombstone(begin.as_key(), &tombstone.end)?;
                self.raw_bytes += (tombstone.begin.len() + 8 + tombstone.end.len()) as u64;
            }
            self.records += tombstones.len() as u64;
        }
        let Some(OpenOutput { number, path, builder, digest }) = self.open.take() else {
            return Ok(());
        };
        let finished = builder.finish_unsynced();
        let (built, file) =
            finished.inspect_err(|error| self.context.outputs.table_ends(&path, Err(error)))?;
        self.unsynced.push_back(UnsyncedOutput { number, path, built, file, digest });
        let most = most_unsynced(self.settings.target_file_size);
        if self.unsynced.len() >= most { self.complete_unsynced() } else { Ok(()) }
    }

    fn complete_unsynced(&mut self) -> Result<()> {
        while let Some(first) = self.unsynced.pop_front() {
            self.complete(first)?;
        }
        Ok(())
    }

    /// Makes a table durable, and a finished output.
    fn complete(&mut self, output: UnsyncedOutput) -> Result<()> {
        let UnsyncedOutput { number, path, built, file, digest } = output;
        let completed = file.sync().and_then(|()| self.describe(number, built, digest));
        let outputs = self.context.outputs;
        match &completed {
            Ok(Some(file)) => outputs.table_ends(&path, Ok(file)),
            Ok(None) => outputs.table_ends(&path, Err(&Error::aborted("nothing is in it"))),
            Err(error) => outputs.table_ends(&path, Err(error)),
        }
        self.finished.extend(completed?);
        Ok(())
    }

    /// The metadata of a table, which is checked if that was asked for; `None` if there is nothing in it.
    fn describe(&self, number: FileNumber, built: BuiltTable, digest: u64) -> Result<Option<FileMetaData>> {
        let (Some(smallest), Some(largest)) = (built.smallest, built.largest) else {
            self.created.discard(number); // A file begins with its first entry, so this is unusual.
            return Ok(None);
        };
        let mut file = FileMetaData::new(number, built.file_size, smallest, largest);
        file.path_id = self.settings.path_id;
        file.smallest_seqno = built.smallest_sequence;
        file.largest_seqno = built.largest_sequence;
        file.oldest_ancester_time = self.settings.oldest_ancester_time;
        file.file_creation_time = built.properties.file_creation_time;
        file.epoch_number = self.settings.epoch_number;
        file.unique_id = built.unique_id;
        file.file_checksum = built.file_checksum.checksum;
        file.file_checksum_func_name = built.file_checksum.function;
        file.tail_size = built.tail_size;
        let (entries, deletions) = (built.properties.num_entries, built.properties.num_deletions);
        let ratio = self.context.tombstone_mark_ratio;
        let is_dense = ratio > 0.0 && deletions > 0 && deletions as f64 >= entries as f64 * ratio;
        file.marked_for_compaction = is_dense || built.collected.needs_compaction;
        self.check(&file, digest)?;
        self.context.outputs.finished(&file)?;
        if !self.context.build.table.collectors.is_empty() {
            self.context.outputs.collected(&file, &built.properties, &built.collected);
        }
        Ok(Some(file))
    }

    /// Reads the table back, as far as that was asked for.
    fn check(&self, file: &FileMetaData, digest: u64) -> Result<()> {
        let checks = self.context.output_checks;
        if checks.blocks || checks.entries {
            let table = self.context.tables.open(file, self.settings.level)?;
            if checks.blocks {
                table.verify_checksums_with(&self.context.table_reads().read)?;
            }
            if checks.entries {
                self.check_entries(&table, file, digest)?;
            }
        }
        match &self.context.build.file_checksum {
            Some(factory) if checks.file_checksum && !file.file_checksum.is_empty() => {
                let path = self.context.outputs.path(file.number, file.path_id);
                let (checksum, function) = (file.file_checksum.clone(), file.file_checksum_func_name.clone());
                FileChecksum { checksum, function }.check(&*self.context.env.fs, &path, &**factory)
            }
            _ => Ok(()),
        }
    }

    fn check_entries(&self, table: &Arc<TableReader>, file: &FileMetaData, expected: u64) -> Result<()> {
        let mut options = self.context.table_reads();
        options.read.past_cache = true;
        let mut entries = table.iter(&options);
        let mut found = 0;
        let mut valid = entries.seek_to_first()?;
        while valid {
            found = digest(found, entries.key(), entries.value());
            valid = entries.next()?;
        }
        if found != expected {
            let path = self.context.outputs.path(file.number, file.path_id);
            let what = "the table that was just written does not read back as what was put in";
            return Err(Error::corruption_at(&path, 0, what));
        }
        Ok(())
    }
}

impl Drop for OutputWriter<'_, '_> {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            open.builder.abandon(); // `CreatedFiles` removes the file.
        }
    }
}

/// What an [`OutputWriter`] wrote.
#[derive(Debug)]
pub(crate) struct WrittenFiles {
    pub(crate) files: Vec<FileMetaData>,
    pub(crate) records: u64,
    pub(crate) raw_bytes: u64,
}

fn digest(before: u64, key: InternalKey<'_>, value: &[u8]) -> u64 {
    (before.rotate_left(7) ^ xxh3_64(key.as_bytes())).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ xxh3_64(value)
}

/// Decides where an output ends: at its target size, or where it would overlap too much of the level after,
/// so that its own next compaction stays bounded. Near its target it ends where a file of that level ends
/// too, which saves that compaction from rewriting a file for a few of its keys.
pub(crate) struct Cutter<'a> {
    order: &'a UserComparator,
    grandparents: &'a [Arc<FileMetaData>],
    target_file_size: u64,
    max_file_size: u64,
    /// No file is to be larger than the target.
    is_upper_bound: bool,
    max_compaction_bytes: u64,
    /// The grandparent that the last key was in, or before.
    at: usize,
    inside: bool,
    /// Bytes of the grandparents that the open file overlaps.
    overlapped: u64,
    /// Bounds of grandparents that lie within the open file.
    bounds: u64,
    /// The application's partitioner, and the last key that went into the open file.
    partitioner: Option<(Box<dyn SstPartitioner>, Vec<u8>)>,
}

impl<'a> Cutter<'a> {
    pub(crate) fn new(order: &'a UserComparator, plan: &'a CompactionPlan) -> Self {
        let target = plan.target_file_size;
        let grandparents = plan.grandparents();
        Self {
            order,
            grandparents,
            target_file_size: target,
            max_file_size: if grandparents.is_empty() { target } else { target.saturating_mul(2) },
            is_upper_bound: plan.target_file_size_is_upper_bound,
            max_compaction_bytes: plan.max_compaction_bytes,
            at: 0,
            inside: false,
            overlapped: 0,
            bounds: 0,
            partitioner: plan
                .partitioning
                .0
                .as_ref()
                .map(|factory| (factory.create(&plan.partitioner_context(order)), Vec::new())),
        }
    }

    /// Whether the partitioner ends the open file before `user_key`.
    #[cold]
    fn partitions_before(&mut self, user_key: &[u8], size: u64) -> bool {
        let Some((partitioner, last)) = &mut self.partitioner else { return false };
        let request = PartitionRequest {
            previous_user_key: last,
            current_user_key: user_key,
            current_output_file_size: size,
        };
        let partitions = partitioner.should_partition(&request);
        last.clear();
        last.extend_from_slice(user_key);
        partitions
    }

    /// The open file begins with `user_key`.
    fn begin_file(&mut self, user_key: &[u8]) {
        if let Some((_, last)) = &mut self.partitioner {
            last.clear();
            last.extend_from_slice(user_key);
        }
        self.pass_to(user_key);
        self.overlapped = if self.inside { self.grandparents[self.at].file_size } else { 0 };
        self.bounds = 0;
    }

    /// Follows the grandparents to `user_key`, and counts the bounds passed. Keys must not go back.
    #[inline]
    fn pass_to(&mut self, user_key: &[u8]) -> u64 {
        let mut passed = 0;
        while let Some(file) = self.grandparents.get(self.at) {
            if !self.inside {
                if self.order.compare(user_key, file.smallest.user_key()).is_lt() {
                    break;
                }
                self.inside = true;
                self.overlapped = self.overlapped.saturating_add(file.file_size);
                passed += 1;
            }
            if self.order.compare(user_key, file.largest.user_key()).is_le() {
                break;
            }
            self.inside = false;
            self.at += 1;
            passed += 1;
        }
        passed
    }

    /// Whether the entry would make the open file too large.
    #[inline]
    fn overfills(&self, open: &TableBuilder, key: InternalKey<'_>, value: &[u8]) -> bool {
        self.is_upper_bound && open.file_size_bound_with(key, value) > self.target_file_size
    }

    /// Whether the open file, of about `size` bytes, ends before `user_key`.
    #[inline]
    fn cuts_before(&mut self, user_key: &[u8], size: u64) -> bool {
        if self.partitioner.is_some() && self.partitions_before(user_key, size) {
            return true;
        }
        if size >= self.max_file_size {
            return true;
        }
        if self.grandparents.is_empty() {
            return false;
        }
        let (before, was_inside) = (self.overlapped, self.inside);
        let passed = self.pass_to(user_key);
        if passed == 0 {
            return false;
        }
        self.bounds += passed;
        // The overlap counts the file that begins at `user_key` already: that one must still fit.
        if self.overlapped.saturating_add(size) > self.max_compaction_bytes {
            return true;
        }
        // A grandparent that lies wholly between two keys is one that the file can leave out altogether.
        let skipped = self.overlapped - before;
        if passed >= if was_inside { 3 } else { 2 } && skipped > self.target_file_size / 8 {
            return true;
        }
        // The more bounds were let pass, the closer to its target the file is taken to be.
        let percent = 50 + (self.bounds * 5).min(40);
        size >= self.target_file_size / 100 * percent
    }
}

/// Asks the rate limiter before it writes.
struct PacedFile {
    file: Box<dyn WritableFile>,
    limiter: Option<Arc<dyn RateLimiter>>,
    progress: Option<Arc<crate::job::CompactionProgress>>,
    priority: IoPriority,
    /// Bytes that were written without asking: small appends are asked for together.
    unasked: u64,
    statistics: Option<Arc<Statistics>>,
}

impl PacedFile {
    const CHUNK: u64 = 64 << 10;

    fn ask(&mut self) {
        if self.unasked > 0
            && let Some(limiter) = &self.limiter
        {
            limiter.request_counted(self.unasked, self.priority, self.statistics.as_deref(), IoKind::Write);
        }
        self.unasked = 0;
    }

    fn begin_append(&mut self, bytes: u64) {
        self.unasked += bytes;
        if self.unasked >= Self::CHUNK {
            self.ask();
        }
        if let Some(progress) = &self.progress {
            progress.add_written(bytes);
        }
    }
}

impl WritableFile for PacedFile {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.begin_append(data.len() as u64);
        self.file.append(data)
    }
    fn append_checked(&mut self, data: &[u8], crc32c: u32) -> Result<()> {
        self.begin_append(data.len() as u64);
        self.file.append_checked(data, crc32c)
    }
    fn flush(&mut self) -> Result<()> {
        self.ask();
        self.file.flush()
    }
    fn sync(&mut self) -> Result<()> {
        self.ask();
        self.file.sync()
    }
    ironstone_vfs::leave_to_file_below!();
}

/// The levels below the output of `plan`, for asking whether a key may lie there.
pub(crate) fn below_levels(plan: &CompactionPlan) -> BelowLevels<'_> {
    if plan.output_level == 0 || plan.ingest_behind {
        BelowLevels::unknown()
    } else {
        BelowLevels::new(&plan.below)
    }
}
