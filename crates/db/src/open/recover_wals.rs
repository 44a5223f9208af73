//! Replays the WALs of an earlier opening into memtables and, when those are full, into tables.

use crate::PinnedValue;
use crate::engine::Family;
use crate::info_log::{InfoLog, info, warning};
use crate::listener::Listeners;
use crate::memtables::DbMemTable;
use crate::open::listings::Listings;
use crate::options::DbOptions;
use crate::wal_filter::{Filtered, Filtering};
use crate::write::predecessor;
use crate::write::switch::new_memtable;
use crate::write_batch::{BatchIter, BatchRecord, sequence_of};
use ironstone_base::sync::Arc;
use ironstone_base::{
    ColumnFamilyId, Corrupt, Error, FileKind, FileNumber, Result, SequenceNumber, ValueType, file_name,
};
use ironstone_sst::ReadContext;
use ironstone_version::{VersionEdit, VersionSet};
use ironstone_vfs::Env;
use ironstone_wal::{Damage, LogRead, LogReader, PredecessorWal, ReaderOptions, WalRecoveryMode};
use std::collections::BTreeMap;
use std::path::Path;

/// Answers for a write: column family, key, number and kind.
pub(crate) type IsStored<'a> = dyn Fn(ColumnFamilyId, &[u8], SequenceNumber, ValueType) -> Result<bool> + 'a;

/// What recovery works on.
pub(crate) struct Recovery<'a> {
    pub(crate) env: &'a Env,
    pub(crate) dir: &'a Path,
    pub(crate) wal_dir: &'a Path,
    pub(crate) listings: &'a mut Listings,
    pub(crate) options: &'a DbOptions,
    pub(crate) log: &'a Arc<InfoLog>,
    pub(crate) db_id: &'a str,
    pub(crate) session_id: &'a str,
    pub(crate) versions: &'a mut VersionSet,
    pub(crate) families: &'a mut BTreeMap<ColumnFamilyId, Family>,
    pub(crate) read_only: bool,
    /// Whether a table has a write already, where the MANIFEST does not say.
    pub(crate) is_stored: Option<&'a IsStored<'a>>,
    /// The first write that was replayed.
    pub(crate) first_replayed: Option<SequenceNumber>,
    /// What was flushed of column families with an `inplace_callback`, newest first, for the callback to see.
    pub(crate) flushed: BTreeMap<ColumnFamilyId, Vec<Arc<DbMemTable>>>,
    /// The tables that recovery wrote, to be installed at its end.
    pub(crate) edits: BTreeMap<ColumnFamilyId, VersionEdit>,
    pub(crate) filtering: Filtering,
    pub(crate) listeners: &'a Listeners,
}

/// What came of it.
pub(crate) struct Replayed {
    pub(crate) last_sequence: SequenceNumber,
    /// WALs whose writes are still only in memtables, with the ends of their last records.
    pub(crate) kept_wals: BTreeMap<FileNumber, u64>,
    /// The last WAL that was replayed: what the next one says was before it.
    pub(crate) last_wal: Option<PredecessorWal>,
    /// The first WAL with writes that recovery went on without.
    pub(crate) lost_wal: Option<FileNumber>,
}

impl Replayed {
    /// No WAL was read: tables have all writes up to `last_sequence`.
    pub(crate) fn nothing(last_sequence: SequenceNumber) -> Self {
        Self { last_sequence, kept_wals: BTreeMap::new(), last_wal: None, lost_wal: None }
    }
}

impl Recovery<'_> {
    /// Replays every WAL that may hold what tables lack, oldest first.
    pub(crate) fn replay(&mut self) -> Result<Replayed> {
        let numbers = self.wal_numbers()?;
        self.check_none_missing(&numbers)?;
        self.introduce_filter();
        let mut last = self.versions.last_sequence();
        // The last write replayed: what the MANIFEST says may be newer than a whole WAL.
        let mut replayed = None;
        let mut sizes: BTreeMap<FileNumber, u64> = BTreeMap::new();
        let mut stopped: Option<Dropped> = None;
        let mut dropped = Vec::new();
        for number in numbers {
            let path = file_name::wal(self.wal_dir, number);
            if number > FileNumber::LARGEST {
                return Err(Error::corruption_at(&path, 0, "a number that no database has"));
            }
            self.versions.mark_file_number_used(number);
            if self.filtering.is_over {
                warning!(self.log, "{}: not replayed, as the WAL filter says", path.display());
                continue;
            }
            if let Some(gap) = self.gap_before(&path, number, &sizes, replayed, stopped.is_some())? {
                match self.options.wal_recovery_mode {
                    WalRecoveryMode::SkipAnyCorruptedRecords => dropped.push(gap),
                    WalRecoveryMode::PointInTimeRecovery => {
                        let at = stopped.get_or_insert(gap);
                        let path = path.display();
                        warning!(self.log, "{path}: not replayed, since recovery stopped: {}", at.error);
                        continue;
                    }
                    _ => return Err(gap.error),
                }
            }
            stopped = None;
            let (short, size) = self.replay_one(&path, number, &mut replayed)?;
            last = last.max(replayed.unwrap_or_default());
            sizes.insert(number, size);
            match self.options.wal_recovery_mode {
                WalRecoveryMode::PointInTimeRecovery => stopped = short,
                _ => dropped.extend(short),
            }
        }
        dropped.extend(stopped);
        dropped.iter().try_for_each(|dropped| self.check_not_ahead(dropped))?;
        // Once a part of a WAL is in a table, the rest must follow: replayed a second time, a single
        // delete would meet the second copy of its put and leave the first one standing. And a WAL with
        // a hole is not kept: what is written now would follow it with a gap.
        let is_whole = dropped.is_empty() && self.filtering.first_changed.is_none();
        let may_keep = self.options.avoid_flush_during_recovery && self.edits.is_empty() && is_whole;
        let keep = self.read_only || may_keep;
        if !keep {
            let ids: Vec<_> = self.families.keys().copied().collect();
            for id in ids {
                self.flush(id)?;
            }
        }
        let last_wal = sizes.last_key_value();
        let last_wal = last_wal.map(|(&number, &size)| PredecessorWal { number, size, last_sequence: last });
        let oldest = self.families.values().filter_map(Family::oldest_wal).min();
        let kept_wals = oldest.map_or_else(BTreeMap::new, |oldest| sizes.split_off(&oldest));
        let lost_wal = dropped.iter().map(|dropped| dropped.wal).chain(self.filtering.first_changed).min();
        Ok(Replayed { last_sequence: last, kept_wals, last_wal, lost_wal })
    }

    fn introduce_filter(&self) {
        let Some(filter) = &self.options.wal_filter else { return };
        info!(self.log, "WAL filter: {}", filter.name());
        let (mut log_numbers, mut ids) = (BTreeMap::new(), BTreeMap::new());
        for family in self.versions.column_families() {
            log_numbers.insert(family.id, family.log_number);
            ids.insert(family.name.clone(), family.id);
        }
        filter.column_family_log_number_map(&log_numbers, &ids);
    }

    fn wal_numbers(&mut self) -> Result<Vec<FileNumber>> {
        let min = self.versions.min_log_number();
        let previous = self.versions.prev_log_number();
        let mut numbers = self.all_wal_numbers()?;
        numbers.retain(|&number| number >= min || (previous.0 > 0 && number == previous));
        numbers.sort();
        Ok(numbers)
    }

    /// Those, too, that are in tables already.
    fn all_wal_numbers(&mut self) -> Result<Vec<FileNumber>> {
        let listing = self.listings.of(self.wal_dir)?;
        let numbers = listing.iter().filter_map(|listed| match listed.kind {
            Some(FileKind::Wal(number)) => Some(number),
            _ => None,
        });
        Ok(numbers.collect())
    }

    /// `Corruption` if there is any WAL, as RocksDB answers for `error_if_wal_file_exists`.
    pub(crate) fn check_no_wal(&mut self) -> Result<()> {
        match self.all_wal_numbers()?.first() {
            None => Ok(()),
            Some(&number) => {
                let path = file_name::wal(self.wal_dir, number);
                Err(Error::corruption_at(&path, 0, "a WAL, though error_if_wal_file_exists is set"))
            }
        }
    }

    /// WALs that the MANIFEST counts on must be there.
    fn check_none_missing(&self, numbers: &[FileNumber]) -> Result<()> {
        let min = self.versions.min_log_number();
        let mut expected = self.versions.needed_wals().filter(|wal| wal.synced_size.is_some());
        match expected.find(|wal| wal.number >= min && !numbers.contains(&wal.number)) {
            Some(wal) if self.options.wal_recovery_mode != WalRecoveryMode::SkipAnyCorruptedRecords => {
                let manifest = file_name::manifest(self.dir, self.versions.manifest_number());
                let path = file_name::wal(self.wal_dir, wal.number);
                Err(Error::corruption_at(
                    &path,
                    0,
                    format_args!(
                        "not there, but needed according to {}, which may lack its end",
                        manifest.display()
                    ),
                ))
            }
            _ => Ok(()),
        }
    }

    fn reader(&self, path: &Path, number: FileNumber) -> Result<LogReader> {
        let file = self.env.fs.open_sequential(path)?;
        let known = self.versions.needed_wals().filter(|wal| wal.number == number);
        let synced_size = known.filter_map(|wal| wal.synced_size).max().unwrap_or(0);
        Ok(LogReader::new(file, number, ReaderOptions { synced_size, ..ReaderOptions::default() }))
    }

    /// What is missing between the WALs that were replayed, of these sizes, and WAL `number`, if anything is.
    /// A WAL of Ironstone says what was before it, and one of RocksDB may. Another one, after recovery has stopped, continues only where
    /// its first write follows the last one replayed.
    fn gap_before(
        &self,
        path: &Path,
        number: FileNumber,
        sizes: &BTreeMap<FileNumber, u64>,
        replayed: Option<SequenceNumber>,
        stopped: bool,
    ) -> Result<Option<Dropped>> {
        let mut reader = self.reader(path, number)?;
        let first = match reader.next_record()? {
            LogRead::Record { .. } => Some(reader.record()),
            LogRead::End | LogRead::Damage(_) => None,
        };
        let (stated, first) = (first.and_then(predecessor::read), first.and_then(sequence_of));
        let by_rocksdb = reader.predecessor().filter(|_| self.options.track_and_verify_wals);
        let Some(before) = stated.or(by_rocksdb) else {
            let continues = replayed.is_some() && first == replayed.map(|last| last.plus(1));
            let error = || Error::corruption_at(path, 0, "does not continue where recovery stopped");
            return Ok((stopped && !continues).then(|| Dropped { wal: number, error: error() }));
        };
        let found = sizes.get(&before.number).copied();
        if before.number < self.versions.min_log_number() || found.is_some_and(|size| size >= before.size) {
            return Ok(None);
        }
        let missing = file_name::wal(self.wal_dir, before.number);
        let ends = found.map_or_else(|| "is not there".to_owned(), |size| format!("ends at {size}"));
        let error = Error::corruption_at(
            &missing,
            found.unwrap_or(0),
            format_args!("{ends}, but had {} bytes according to {}", before.size, path.display()),
        );
        Ok(Some(Dropped { wal: before.number, error }))
    }

    /// Tables must not hold writes from behind those that were dropped: a batch that went to several
    /// column families would be there in part.
    fn check_not_ahead(&self, dropped: &Dropped) -> Result<()> {
        // With holes allowed, this is one.
        if self.options.wal_recovery_mode == WalRecoveryMode::SkipAnyCorruptedRecords {
            return Ok(());
        }
        // A column family without tables was created later, and is whole.
        let mut families = self.versions.column_families();
        let ahead = families.find(|family| family.log_number > dropped.wal && family.current.num_files() > 0);
        match ahead {
            Some(family) => Err(Error::corruption(format!(
                "{}; tables of column family {} hold later writes",
                dropped.error.message(),
                family.name
            ))),
            None => Ok(()),
        }
    }

    /// A WAL continues where the one before it ended. One that begins with a write that was replayed
    /// before, or that tables have, shows the old bytes of another file: a power loss kept its size and not its
    /// data. That is a torn WAL, which this answers. Anything else means that files are not what their names say,
    /// and column families would take or leave the wrong writes.
    fn is_stale(
        &self,
        path: &Path,
        offset: u64,
        record: &[u8],
        replayed: Option<SequenceNumber>,
    ) -> Result<bool> {
        let (Some(first), Some(last)) = (sequence_of(record), replayed) else { return Ok(false) };
        if first > last || self.options.wal_recovery_mode == WalRecoveryMode::SkipAnyCorruptedRecords {
            return Ok(false);
        }
        let known =
            first <= self.versions.last_sequence() || self.first_replayed.is_some_and(|known| first >= known);
        let error = Error::corruption_at(
            path,
            offset,
            format_args!("begins with write {first}, but the WAL before it ends with {last}"),
        );
        if known && self.options.wal_recovery_mode != WalRecoveryMode::AbsoluteConsistency {
            warning!(self.log, "{error}: old bytes of another file");
            return Ok(true);
        }
        Err(error)
    }

    /// Replays one WAL. Answers what of it was dropped, and where its last good record ends.
    fn replay_one(
        &mut self,
        path: &Path,
        number: FileNumber,
        last: &mut Option<SequenceNumber>,
    ) -> Result<(Option<Dropped>, u64)> {
        let mut reader = self.reader(path, number)?;
        let mut records = 0u64;
        let mut dropped = None;
        loop {
            let offset = match reader.next_record()? {
                LogRead::Record { offset } => offset,
                LogRead::End => break,
                LogRead::Damage(damage) => {
                    let judged = self.judge(path, &damage)?;
                    // Behind the end of a reused file stand its old bytes, which may look like a record cut short.
                    if reader.is_recyclable() != Some(true) || !damage.is_torn_tail() {
                        dropped =
                            dropped.or_else(|| Some(Dropped { wal: number, error: damage.error(path) }));
                    }
                    match judged {
                        Judged::Stop => break,
                        Judged::GoOn => continue,
                    }
                }
            };
            let record = reader.record();
            if records == 0 && self.is_stale(path, offset, record, *last)? {
                let error = Error::corruption_at(path, offset, "old bytes of another WAL");
                dropped = dropped.or(Some(Dropped { wal: number, error }));
                break;
            }
            self.first_replayed = self.first_replayed.or(sequence_of(record));
            let filtered = match records == 0 && predecessor::read(record).is_some() {
                true => Ok(Filtered::Apply),
                false => self.filtering.ask(self.options, number, path, record),
            };
            let applied = match filtered.map_err(|error| locate(error, path, offset))? {
                Filtered::Apply => self.apply(record, number),
                Filtered::ApplyOther(batch, last) => {
                    self.apply(batch.data(), number).map(|applied| applied.max(last))
                }
                Filtered::Ignore(last) => fitting(last),
                Filtered::Stop => {
                    warning!(self.log, "{} at {offset}: the WAL filter ends the replay", path.display());
                    break;
                }
                Filtered::Corrupt(error)
                    if self.options.wal_recovery_mode == WalRecoveryMode::PointInTimeRecovery =>
                {
                    let error = locate(error, path, offset);
                    warning!(self.log, "recovery stops: {error}");
                    dropped = dropped.or(Some(Dropped { wal: number, error }));
                    break;
                }
                Filtered::Corrupt(error) => Err(error),
            };
            match applied.map_err(|error| locate(error, path, offset)) {
                Ok(end) => *last = Some(end).max(*last),
                Err(error) if error.is_corruption() => match self.options.wal_recovery_mode {
                    // The checksum was right, so this is what was written: no tear explains it.
                    WalRecoveryMode::SkipAnyCorruptedRecords => {
                        warning!(self.log, "record skipped: {error}");
                        dropped = dropped.or(Some(Dropped { wal: number, error }));
                    }
                    _ => return Err(error),
                },
                Err(error) => return Err(error),
            }
            records += 1;
            self.flush_full()?;
        }
        if let Some(bit) = reader.mended() {
            let what =
                "one bit is wrong in the last byte of the last record, which is taken as it was written";
            warning!(self.log, "{}", Error::corruption_at(path, bit.offset, what));
        }
        let end = last.map_or("no write so far".to_owned(), |last| format!("last sequence {last}"));
        info!(self.log, "{}: records replayed: {records}, {end}", path.display());
        Ok((dropped, reader.valid_size()))
    }

    /// What the recovery mode says about damage.
    fn judge(&self, path: &Path, damage: &Damage) -> Result<Judged> {
        let error = damage.error(path);
        warning!(self.log, "{error}");
        match self.options.wal_recovery_mode {
            WalRecoveryMode::SkipAnyCorruptedRecords => Ok(Judged::GoOn),
            WalRecoveryMode::AbsoluteConsistency => Err(error),
            WalRecoveryMode::TolerateCorruptedTailRecords => {
                if damage.is_torn_tail() {
                    Ok(Judged::GoOn)
                } else {
                    Err(error)
                }
            }
            WalRecoveryMode::PointInTimeRecovery => {
                if self.options.strict_wal_recovery && damage.verdict.is_rot() {
                    return Err(error);
                }
                Ok(Judged::Stop)
            }
        }
    }

    /// Applies one batch. Answers its last sequence number.
    fn apply(&mut self, record: &[u8], wal: FileNumber) -> Result<SequenceNumber> {
        let first = sequence_of(record).ok_or_else(|| Error::corruption("log record too small"))?;
        if self.options.wal_recovery_mode == WalRecoveryMode::SkipAnyCorruptedRecords {
            // What went to a memtable could not be taken back if the rest has to be skipped.
            check_whole(record, first)?;
        }
        let mut sequence = fitting(first)?;
        for entry in BatchIter::new(record) {
            let (cf, kind, key, value) = match entry? {
                BatchRecord::Put { cf, key, value } => (cf, ValueType::Value, key, value),
                BatchRecord::Delete { cf, key } => (cf, ValueType::Deletion, key, &[][..]),
                BatchRecord::SingleDelete { cf, key } => (cf, ValueType::SingleDeletion, key, &[][..]),
                BatchRecord::Merge { cf, key, operand } => (cf, ValueType::Merge, key, operand),
                BatchRecord::DeleteRange { cf, begin, end } => (cf, ValueType::RangeDeletion, begin, end),
                BatchRecord::LogData(_) | BatchRecord::Noop => continue,
            };
            fitting(sequence)?;
            // Column families that were dropped, or that a reader did not open, are passed over; so
            // is what their tables already have.
            let known = self.versions.column_family(cf).filter(|family| wal >= family.log_number);
            let is_stored = self.is_stored.map_or(Ok(false), |ask| ask(cf, key, sequence, kind))?;
            if let (Some(_), Some(family), false) = (known, self.families.get(&cf), is_stored) {
                family.mem.check_open()?;
                family.mem.note_wal(wal);
                match kind {
                    ValueType::Value if family.mem.updates_in_place() => {
                        let existing = || self.existing(family, key, SequenceNumber(sequence.0 - 1));
                        family.mem.put(sequence, key, value, None, existing)?;
                    }
                    _ => family.mem.add(sequence, kind, key, value),
                }
            }
            sequence = sequence.plus(1);
        }
        Ok(SequenceNumber((sequence.0).saturating_sub(1)).max(SequenceNumber(first.0.saturating_sub(1))))
    }

    /// What writes before `at` have left of a key, for an `inplace_callback`.
    fn existing(&self, family: &Family, key: &[u8], at: SequenceNumber) -> Result<Option<PinnedValue>> {
        if self.is_stored.is_some() {
            // Changes that tables have already would be made once more.
            return Err(Error::not_supported(format!(
                "repair of column family {:?}, which has an inplace_callback",
                family.data.name
            )));
        }
        let Some(known) = self.versions.column_family(family.data.id) else { return Ok(None) };
        let older = self.flushed.get(&family.data.id).cloned().unwrap_or_default();
        let view = family.data.new_view(Arc::clone(&family.mem), older, Arc::clone(&known.current));
        view.get(key, at, &ReadContext { fill_cache: false, ..ReadContext::default() })
    }

    fn flush_full(&mut self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        let full: Vec<_> = self
            .families
            .values()
            .filter(|family| family.mem.is_full())
            .map(|family| family.data.id)
            .collect();
        full.into_iter().try_for_each(|id| self.flush(id))?;
        self.make_room()
    }

    /// Keeps within what memtables of all databases may take, by writing the largest ones to tables.
    fn make_room(&mut self) -> Result<()> {
        let Some(manager) = self.options.write_buffer_manager.as_ref() else { return Ok(()) };
        if !self.options.enforce_write_buffer_manager_during_recovery {
            return Ok(());
        }
        loop {
            let filled = self.families.values().filter(|family| !family.mem.table().is_empty());
            let sizes = filled.map(|family| (family.mem.table().memory_usage(), family.data.id));
            match sizes.max() {
                Some((bytes, id)) if manager.wants_room_of(bytes) => self.flush(id)?,
                _ => return Ok(()),
            }
        }
    }

    /// Writes a column family's memtable to a table of level 0.
    fn flush(&mut self, id: ColumnFamilyId) -> Result<()> {
        let family = self.families.get_mut(&id).expect("the caller took the id from there");
        let data = &family.data;
        if family.mem.table().is_empty() {
            return Ok(());
        }
        let fresh = new_memtable(data);
        let full: Arc<DbMemTable> = std::mem::replace(&mut family.mem, fresh);
        full.seal();
        if data.settings().options.inplace_callback.is_some() {
            self.flushed.entry(id).or_default().insert(0, Arc::clone(&full));
        }
        let epoch = self.versions.new_epoch_number(id);
        let job = crate::background::flush::FlushOf {
            env: self.env,
            log: self.log,
            paths: &data.paths(),
            options: self.options,
            data,
            db_id: self.db_id,
            session_id: self.session_id,
            memtables: &[full],
            epoch,
            snapshots: &[],
            progress: None,
            cancelled: &|| Ok(()),
            writers_wait: &|| false, // There are none yet.
            reason: ironstone_compaction::TableFileCreationReason::Recovery,
            listeners: self.listeners,
            job_id: 0,
        };
        let output = job.run(&|| self.versions.new_file_number())?;
        if let Some(file) = output.file {
            info!(self.log, "recovery wrote table {} ({} bytes)", file.number, file.file_size);
            let edit = self.edits.entry(id).or_insert_with(|| VersionEdit::new(id));
            edit.add_file(0, Arc::new(file));
        }
        Ok(())
    }
}

/// Bytes of a WAL that recovery went on without.
struct Dropped {
    wal: FileNumber,
    /// What is wrong with them, and where.
    error: Error,
}

enum Judged {
    Stop,
    GoOn,
}

/// Checks that every write of a batch can be applied, as far as its bytes say.
fn check_whole(record: &[u8], first: SequenceNumber) -> Result<()> {
    let mut sequence = fitting(first)?;
    for entry in BatchIter::new(record) {
        if !matches!(entry?, BatchRecord::LogData(_) | BatchRecord::Noop) {
            sequence = fitting(sequence)?.plus(1);
        }
    }
    Ok(())
}

/// Refuses a sequence number that no entry can have, which a right checksum does not rule out.
fn fitting(sequence: SequenceNumber) -> Result<SequenceNumber> {
    match sequence <= SequenceNumber::MAX {
        true => Ok(sequence),
        false => Err(Error::corruption("a sequence number does not fit in 56 bits")),
    }
}

/// Says where a batch that cannot be applied stands.
fn locate(error: Error, path: &Path, offset: u64) -> Error {
    if error.is_corruption() {
        Corrupt("write batch").at(path, offset).context(error.message())
    } else {
        error.context(format_args!("{} at {offset}", path.display()))
    }
}
