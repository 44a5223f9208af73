//! A column family's memtables, as the database sees them.

use crate::PinnedValue;
use crate::empty_ranges::{EmptyRange, EmptyRanges};
use crate::inplace_callback::{InplaceCallback, UpdateStatus};
use crate::options::ColumnFamilyOptions;
use crate::write_buffer_manager::{Charge, STEP};
use ironstone_base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use ironstone_base::sync::{Arc, CachePadded, Mutex, OnceLock};
use ironstone_base::{ColumnFamilyId, Error, FileNumber, Protection, Result, SequenceNumber, ValueType};
use ironstone_memtable::MemTable;
use ironstone_sst::TableFormat;

/// A memtable, with what its flush has to know.
pub(crate) struct DbMemTable {
    table: Arc<MemTable>,
    cf: ColumnFamilyId,
    /// The first WAL that holds a write of this memtable; 0 while there is none. Set under the log
    /// lock and read under the state lock after a later rotation took the log lock, so Relaxed is enough.
    first_wal: AtomicU64,
    /// Whether some write in it is in no WAL. Set before the write is applied.
    unlogged: AtomicBool,
    /// Bytes from which on the memtable counts as full. Relaxed, as what follows from it.
    size_limit: AtomicUsize,
    merges: Merges,
    /// The format of the table that it becomes.
    table_format: TableFormat,
    /// Nothing is written to it, ever.
    is_closed: bool,
    /// Why a write may be in it in part. Set before that write counts as applied.
    broken: OnceLock<Error>,
    /// What a put makes of the value that is there.
    inplace_callback: Option<Arc<dyn InplaceCallback>>,
    /// Set once, by the write that fills it. Relaxed: only a hint to switch.
    full: AtomicBool,
    /// The size at which its growth is worth a look, by the sixty-fourth; that somebody should look now. Relaxed: hints.
    next_mark: AtomicUsize,
    grown: AtomicBool,
    /// How many point reads did not find their key in it and went on, about. Relaxed: a hint for the next memtable. The
    /// simulator's atomics would be a place to switch threads, at a moment that a thread's reads before this simulation decide.
    missed: CachePadded<std::sync::atomic::AtomicU64>,
    /// Whatever older memtables and tables of the column family hold has at most this sequence number; the largest
    /// number until that is known. Under the log lock, so Relaxed.
    older_end: AtomicU64,
    /// Where iterators have found nothing.
    empty: EmptyRanges,
    /// The tombstones that nobody has passed for iterators to come.
    to_pass: Mutex<ToPass>,
    /// How many range tombstones make it full; 0: any number may be in it.
    max_range_deletions: u64,
    /// What it counts as among the memtables of all databases.
    charge: Option<Charge>,
}

/// What was deleted in a memtable.
#[derive(Default)]
struct ToPass {
    /// A key that was deleted of late.
    last_deleted: Option<Vec<u8>>,
    /// How many tombstones there were when somebody last asked.
    deletes_before: u64,
}

/// A memtable takes no more range tombstones from iterators than this: each read of it asks them.
const MAX_KNOWN_RANGES: u64 = 1000;

/// The part of a memtable that a filter takes at most which nobody set up: 18 bits for each key of 16 bytes with 100 of value.
const FILTER_PART: usize = 64;
/// Bytes of filter for each entry: with more, entries with large values would be spread over more lines than the
/// processor's cache has, and each read would wait for one.
const FILTER_BYTES_PER_ENTRY: u64 = 2;
/// So few reads are not worth a filter, however few writes there are.
const FEW_MISSES: u64 = 1000;

#[cold]
fn is_closed(cf: ColumnFamilyId) -> Error {
    let what = "This column family has disallow_memtable_writes=true: files are all that it takes";
    Error::invalid_argument(format!("column family {}: {what}", cf.0))
}

impl DbMemTable {
    pub(crate) fn new(
        table: MemTable,
        cf: ColumnFamilyId,
        options: &ColumnFamilyOptions,
        charge: Option<Charge>,
    ) -> Arc<Self> {
        let size_limit = options.write_buffer_size;
        let step = growth_step(size_limit, charge.is_some());
        Arc::new(Self {
            table: Arc::new(table),
            cf,
            first_wal: AtomicU64::new(0),
            unlogged: AtomicBool::new(false),
            size_limit: AtomicUsize::new(size_limit),
            merges: Merges::of(options),
            table_format: options.table_format,
            is_closed: options.disallow_memtable_writes,
            broken: OnceLock::new(),
            inplace_callback: options.inplace_callback.clone(),
            full: AtomicBool::new(false),
            next_mark: AtomicUsize::new(step),
            grown: AtomicBool::new(false),
            missed: Default::default(),
            older_end: AtomicU64::new(u64::MAX),
            empty: EmptyRanges::new(),
            to_pass: Mutex::default(),
            max_range_deletions: options.memtable_max_range_deletions.into(),
            charge,
        })
    }
    pub(crate) fn table(&self) -> &Arc<MemTable> {
        &self.table
    }
    pub(crate) fn cf(&self) -> ColumnFamilyId {
        self.cf
    }
    /// `InvalidArgument` if nothing may be written to it.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closed { Err(is_closed(self.cf)) } else { Ok(()) }
    }
    /// A write may be in it in part, which must not come into a table: the log has all of it.
    pub(crate) fn break_off(&self, error: &Error) {
        let _ = self.broken.set(error.clone()); // The first is as good.
    }
    /// An error if a write may be in it in part. Asked when all of its writes have been applied.
    pub(crate) fn check_whole(&self) -> Result<()> {
        self.broken.get().cloned().map_or(Ok(()), Err)
    }
    /// The first WAL that holds a write of this memtable, if any does.
    pub(crate) fn first_wal(&self) -> Option<FileNumber> {
        Some(FileNumber(self.first_wal.load(Ordering::Relaxed))).filter(|number| number.0 > 0)
    }
    /// Takes note of a write that goes into WAL `number`; numbers only grow.
    #[inline]
    pub(crate) fn note_wal(&self, number: FileNumber) {
        if self.first_wal.load(Ordering::Relaxed) == 0 {
            self.first_wal.store(number.0, Ordering::Relaxed);
        }
    }

    /// Point reads did not find their keys in it.
    pub(crate) fn note_misses(&self, count: u64) {
        self.missed.fetch_add(count, Ordering::Relaxed);
    }
    /// How many bytes of filter the next one should have: some if enough reads went by this one, since a filter makes a
    /// write some 7 % slower, and no more than goes with its size and its entries.
    pub(crate) fn filter_for_next(&self) -> usize {
        let (missed, entries) = (self.missed.load(Ordering::Relaxed), self.table.num_entries());
        let is_worth_it = missed >= FEW_MISSES && missed >= entries / 4;
        let for_size = self.table.memory_usage().min(self.size_limit()) / FILTER_PART;
        let for_entries = usize::try_from(entries * FILTER_BYTES_PER_ENTRY).unwrap_or(usize::MAX);
        if is_worth_it { for_size.min(for_entries) } else { 0 }
    }

    /// Writes go here from now on, which are newer than `last`.
    pub(crate) fn note_active(&self, last: SequenceNumber) {
        self.older_end.fetch_min(last.0, Ordering::Relaxed);
    }
    /// Adds what every read at `at` or later knows already: that there is no key of `begin..end`. Not for a number that older
    /// places may exceed, since what they have of the range would be hidden. Under the log lock. Answers whether it was done.
    /// `last` is the last number that was given to a write.
    pub(crate) fn add_known_range(
        &self,
        at: SequenceNumber,
        begin: &[u8],
        end: &[u8],
        last: SequenceNumber,
    ) -> bool {
        let is_sound = self.may_know(at, begin, end);
        if is_sound {
            self.table.add_range_tombstone(at, begin, end, None);
            if last <= at {
                self.empty.add(&self.table.comparator().user, begin, end, at);
            }
        }
        is_sound
    }
    /// The same for all that was watched. What was known before has its range tombstones; one goes over what was `unknown`.
    pub(crate) fn add_watched_range(
        &self,
        watched: &Arc<EmptyRange>,
        at: SequenceNumber,
        (begin, end): &(Vec<u8>, Vec<u8>),
    ) -> bool {
        let is_sound = self.may_know(at, begin, end);
        if is_sound {
            self.table.add_range_tombstone(at, begin, end, None);
            self.empty.keep(&self.table.comparator().user, watched, at);
        }
        is_sound
    }
    fn may_know(&self, at: SequenceNumber, begin: &[u8], end: &[u8]) -> bool {
        at.0 > self.older_end.load(Ordering::Relaxed)
            && self.table.comparator().user.compare(begin, end).is_lt()
            && self.table.num_range_tombstones() < MAX_KNOWN_RANGES
    }
    /// Where iterators have found nothing.
    pub(crate) fn empty_ranges(&self) -> &EmptyRanges {
        &self.empty
    }
    /// Whether a key was deleted of late.
    pub(crate) fn has_new_tombstones(&self) -> bool {
        self.to_pass.lock().last_deleted.is_some()
    }
    /// A key that was deleted of late, and how many were since this was asked, if at least `least` were.
    pub(crate) fn take_tombstones_to_pass(&self, least: u64) -> Option<(Vec<u8>, u64)> {
        let mut to_pass = self.to_pass.lock();
        let deletes = self.table.num_deletes();
        let new = deletes - to_pass.deletes_before;
        let key = to_pass.last_deleted.take_if(|_| new >= least)?;
        to_pass.deletes_before = deletes;
        Some((key, new))
    }

    /// Takes note of a write that goes into no WAL.
    #[inline]
    pub(crate) fn note_unlogged(&self) {
        if !self.unlogged.load(Ordering::Relaxed) {
            self.unlogged.store(true, Ordering::Relaxed);
        }
    }
    /// Whether some write in it is in no WAL.
    pub(crate) fn has_unlogged_writes(&self) -> bool {
        self.unlogged.load(Ordering::Relaxed)
    }
    /// Whether no write has it as its place, applied or not. Certain under the log lock only.
    pub(crate) fn is_untouched(&self) -> bool {
        self.table.is_empty() && self.first_wal().is_none() && !self.has_unlogged_writes()
    }

    /// Whether it bounds how many merge operands of a key it holds.
    pub(crate) fn bounds_merges(&self) -> bool {
        matches!(self.merges, Merges::AtMost(_))
    }
    /// The format of the table that it becomes.
    pub(crate) fn table_format(&self) -> TableFormat {
        self.table_format
    }
    /// What it does with merge operands.
    pub(crate) fn merges(&self) -> Merges {
        self.merges
    }
    /// Whether so many entries of `key` below `sequence` are merge operands that another one is to be merged.
    pub(crate) fn has_enough_operands(&self, key: &[u8], sequence: SequenceNumber) -> bool {
        let Merges::AtMost(limit) = self.merges else { return false };
        let older = SequenceNumber(sequence.0.saturating_sub(1));
        let newest = self.table.versions(key, older).take(limit);
        newest.take_while(|entry| entry.value_type == ValueType::Merge).count() == limit
    }

    /// Adds an entry, or a range tombstone that ends at `value`.
    #[inline]
    pub(crate) fn add(&self, sequence: SequenceNumber, kind: ValueType, key: &[u8], value: &[u8]) {
        self.add_by(sequence, kind, key, value, None, || self.table.add(sequence, kind, key, value));
    }
    /// Puts a value: over the one that is there, or as an entry of its own, as the options say. One at a time, in the order
    /// of their numbers. `existing` answers what is there below `sequence`, here and in older places. Answers whether a
    /// value was overwritten.
    #[inline(never)]
    pub(crate) fn put(
        &self,
        sequence: SequenceNumber,
        key: &[u8],
        value: &[u8],
        protection: Option<Protection>,
        existing: impl FnOnce() -> Result<Option<PinnedValue>>,
    ) -> Result<bool> {
        let kind = ValueType::Value;
        let Some(callback) = &self.inplace_callback else {
            let protection = protection.unwrap_or_else(|| Protection::new(kind, key, value));
            let add = || self.table.add_protected(sequence, kind, key, value, protection);
            return Ok(!self.add_by(sequence, kind, key, value, None, add) && self.table.updates_in_place());
        };
        if self.empty.any() {
            self.empty.note_write(&self.table.comparator().user, key, sequence);
        }
        let update = |old: &mut Vec<u8>| {
            let status = callback.update(Some(old), value);
            (status == UpdateStatus::UpdatedInPlace, status)
        };
        let new = match self.table.change_in_place(sequence, key, update)? {
            Some((UpdateStatus::Updated(new), _)) => Some(new),
            Some((UpdateStatus::UpdatedInPlace, None)) => return Ok(true),
            Some((_, grown)) => grown,
            None => {
                let mut old = existing()?.map(|value| value.to_vec());
                match callback.update(old.as_mut(), value) {
                    UpdateStatus::Updated(new) => Some(new),
                    UpdateStatus::UpdatedInPlace => old,
                    UpdateStatus::UpdateFailed => None,
                }
            }
        };
        if let Some(new) = new {
            self.add_by(sequence, kind, key, &new, None, || self.table.add_entry(sequence, kind, key, &new));
        }
        Ok(false)
    }
    /// Whether puts overwrite values.
    #[inline]
    pub(crate) fn updates_in_place(&self) -> bool {
        self.table.updates_in_place()
    }
    /// The same with the checksum that the entry has so far.
    #[inline(never)]
    pub(crate) fn add_protected(
        &self,
        sequence: SequenceNumber,
        kind: ValueType,
        key: &[u8],
        value: &[u8],
        protection: Protection,
    ) {
        let add = || self.table.add_protected(sequence, kind, key, value, protection);
        self.add_by(sequence, kind, key, value, Some(protection), add);
    }

    #[inline(always)] // Of two callers one is rare.
    fn add_by(
        &self,
        sequence: SequenceNumber,
        kind: ValueType,
        key: &[u8],
        value: &[u8],
        protection: Option<Protection>,
        add_entry: impl FnOnce() -> bool,
    ) -> bool {
        if self.empty.any() && !kind.is_tombstone() && kind != ValueType::RangeDeletion {
            self.empty.note_write(&self.table.comparator().user, key, sequence);
        }
        let mut is_new = true;
        if kind != ValueType::RangeDeletion {
            is_new = add_entry();
        } else if self.table.comparator().user.compare(key, value).is_lt() {
            self.table.add_range_tombstone(sequence, key, value, protection);
            if self.has_too_many_ranges() {
                self.full.store(true, Ordering::Relaxed);
            }
        }
        let used = self.table.memory_usage();
        if used >= self.next_mark.load(Ordering::Relaxed) {
            self.note_growth(used);
            if kind == ValueType::Deletion {
                self.to_pass.lock().last_deleted = Some(key.to_vec());
            }
        }
        is_new
    }
    #[cold]
    fn note_growth(&self, used: usize) {
        let size_limit = self.size_limit();
        let step = growth_step(size_limit, self.charge.is_some());
        if let Some(charge) = &self.charge {
            charge.grow_to(used);
        }
        self.next_mark.store((used / step + 1) * step, Ordering::Relaxed);
        self.grown.store(true, Ordering::Relaxed);
        if used >= size_limit {
            self.full.store(true, Ordering::Relaxed);
        }
    }
    fn size_limit(&self) -> usize {
        self.size_limit.load(Ordering::Relaxed)
    }
    /// Lets it count as full from `bytes` on, if that is less than before. (What it is made of may have room for no
    /// more than what was said when it was made.)
    pub(crate) fn shrink_limit(&self, bytes: usize) {
        if self.size_limit.fetch_min(bytes, Ordering::Relaxed) > bytes {
            self.next_mark.store(0, Ordering::Relaxed); // The next write looks.
        }
    }
    /// It takes no more writes.
    pub(crate) fn seal(&self) {
        if let Some(charge) = &self.charge {
            charge.seal();
        }
    }
    /// Whether it has grown by a sixty-fourth of what it may take, or less if it is counted; asks once for each.
    #[inline]
    pub(crate) fn take_grown(&self) -> bool {
        self.grown.load(Ordering::Relaxed) && self.grown.swap(false, Ordering::Relaxed)
    }
    /// How much of what it may take is used, of 1.
    pub(crate) fn fill(&self) -> f64 {
        self.table.memory_usage() as f64 / self.size_limit().max(1) as f64
    }
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }
    /// Lets it count as full: the write after the next one has it flushed.
    pub(crate) fn count_as_full(&self) {
        self.full.store(true, Ordering::Relaxed);
    }
    /// The last number that was given to a write before it took some.
    pub(crate) fn older_end(&self) -> SequenceNumber {
        SequenceNumber(self.older_end.load(Ordering::Relaxed))
    }
    /// Whether it is full for its range tombstones (`memtable_max_range_deletions`).
    pub(crate) fn has_too_many_ranges(&self) -> bool {
        self.max_range_deletions > 0 && self.table.num_range_tombstones() >= self.max_range_deletions
    }
}

/// By how much a memtable grows before somebody looks.
fn growth_step(size_limit: usize, is_counted: bool) -> usize {
    let step = (size_limit / 64).max(1);
    if is_counted { step.min(STEP) } else { step }
}

/// What a memtable does with merge operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Merges {
    /// There is no operator for them.
    Refused,
    Kept,
    /// So many in a row are kept; one more is merged with what is there.
    AtMost(usize),
}

impl Merges {
    pub(crate) fn of(options: &ColumnFamilyOptions) -> Self {
        match (&options.merge_operator, options.max_successive_merges) {
            (None, _) => Self::Refused,
            (Some(_), 0) => Self::Kept,
            (Some(_), limit) => Self::AtMost(limit),
        }
    }
}

/// Memtables that wait for their flush, newest first, and how far that has come.
#[derive(Clone)]
pub(crate) struct ImmutableMemTable {
    pub(crate) memtable: Arc<DbMemTable>,
    /// Everything up to here that went into it has been applied once this is visible.
    pub(crate) last_sequence: SequenceNumber,
    /// The WAL that was started when the memtable was switched: older ones are not needed for it.
    pub(crate) next_wal: FileNumber,
    pub(crate) reason: FlushReason,
    /// Its table is to be installed together with those of all memtables that were switched with it.
    pub(crate) atomic: bool,
}

/// Why a memtable was closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FlushReason {
    /// It was full.
    WriteBufferFull,
    /// It had as many range tombstones as it may have.
    MemtableMaxRangeDeletions,
    /// The memtables of all databases together took too much.
    WriteBufferManager,
    /// The WALs together were too large.
    WalFull,
    /// Its WAL was given up.
    ErrorRecovery,
    /// Somebody asked for it.
    Manual,
    /// Its keys are to be compacted.
    ManualCompaction,
    /// Files are ingested over its keys.
    ExternalFileIngestion,
    /// The files of the database are copied.
    GetLiveFiles,
    /// The database closes.
    Shutdown,
}

impl FlushReason {
    /// RocksDB's words.
    pub fn name(self) -> &'static str {
        match self {
            Self::WriteBufferFull => "Write Buffer Full",
            Self::MemtableMaxRangeDeletions => "Memtable Max Range Deletions",
            Self::WriteBufferManager => "Write Buffer Manager",
            Self::WalFull => "WAL Full",
            Self::ErrorRecovery => "Error Recovery",
            Self::Manual => "Manual Flush",
            Self::ManualCompaction => "Manual Compaction",
            Self::ExternalFileIngestion => "External File Ingestion",
            Self::GetLiveFiles => "Get Live Files",
            Self::Shutdown => "Shut down",
        }
    }
}
