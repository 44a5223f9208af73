//! The log as a stream: the WALs that there are, archived ones included, and the batches in them.

use crate::Db;
use crate::engine::Engine;
use crate::write::predecessor;
use crate::write_batch::{WriteBatch, sequence_of};
use ironstone_base::statistics::Ticker;
use ironstone_base::sync::Arc;
use ironstone_base::{Error, FileKind, FileNumber, Result, SequenceNumber, file_name};
use ironstone_wal::{LogForm, LogRead, LogReader, ReaderOptions};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A WAL that is there, see [`Db::sorted_wal_files`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalFile {
    /// The number in its name; later WALs have larger ones.
    pub number: FileNumber,
    /// Where it is now. A WAL that is archived moves.
    pub path: PathBuf,
    /// Whether it is in the archive: all its writes are in tables.
    pub archived: bool,
    /// How many of its bytes hold writes that were handed to the operating system.
    pub size: u64,
    /// The sequence number of its first write, or the one that its first write will get; `None` if it is empty and
    /// nothing says so.
    pub start_sequence: Option<SequenceNumber>,
}

/// A batch out of the log, see [`WalIterator`].
#[derive(Clone, Debug)]
pub struct WalUpdate {
    /// The sequence number of the batch's first write; the others follow it. A batch without writes, with
    /// [log data](WriteBatch::put_log_data) alone, has the number that the next write gets, and comes with that one, also
    /// where a stream begins with it (in RocksDB that one begins with the write).
    pub sequence: SequenceNumber,
    /// What was written.
    pub batch: WriteBatch,
}

impl WalUpdate {
    /// What to ask [`Db::get_updates_since`] for to go on behind this batch.
    pub fn next_sequence(&self) -> SequenceNumber {
        self.sequence.plus(u64::from(self.batch.count()))
    }
}

/// The batches of the log from some sequence number on, in order, see [`Db::get_updates_since`]. As long as it is there,
/// the database counts as open: drop it before opening the database again.
pub struct WalIterator {
    engine: Arc<Engine>,
    /// The sequence number of the write that comes next.
    expected: SequenceNumber,
    at: Place,
    /// Batches below it were delivered to somebody else.
    since: SequenceNumber,
    gap_reported: bool,
}

/// Where in the log.
struct Place {
    number: FileNumber,
    offset: u64,
    form: LogForm,
    /// Open between two batches that are there already.
    reader: Option<LogReader>,
    /// Whether nothing more was written to the file when it was opened: what the reader has not, nobody has.
    was_closed: bool,
}

impl Place {
    fn start_of(number: FileNumber) -> Self {
        Self { number, offset: 0, form: LogForm::default(), reader: None, was_closed: false }
    }
}

impl Db {
    /// The WALs that hold what tables lack, and those that
    /// [`wal_ttl_seconds`](crate::DbOptions::wal_ttl_seconds) and
    /// [`wal_size_limit_mb`](crate::DbOptions::wal_size_limit_mb) keep in the archive, oldest first. They may go at
    /// any time unless [`disable_file_deletions`](Self::disable_file_deletions) was called before.
    pub fn sorted_wal_files(&self) -> Result<Vec<WalFile>> {
        let engine = self.engine();
        engine.check_has_log()?;
        let mut files = Vec::new();
        let (current, current_size) = match engine.read_only {
            true => (FileNumber::LARGEST, 0), // None is being written here.
            false => engine.pipeline.current_wal_file(false)?,
        };
        for number in engine.wals()?.into_iter().filter(|number| *number <= current) {
            let Some((path, archived)) = engine.find_wal(number)? else { continue };
            let size = match engine.env.fs.size(&path) {
                _ if number == current => current_size,
                Ok(size) => size,
                Err(error) if error.is_path_not_found() => continue, // It was archived or removed just now.
                Err(error) => return Err(error),
            };
            files.push(WalFile { number, path, archived, size, start_sequence: engine.wal_start(number)? });
        }
        Ok(files)
    }

    /// The batches of the log from the one on that holds write `since`, those in the archive included: what a
    /// replica that has all writes before `since` must apply. The iterator goes on with what is written later.
    ///
    /// # Errors
    /// `NotFound` if the WAL with that write is not there any more, or if `since` is beyond the next write. See
    /// [`WalIterator::next_update`] for what comes later.
    ///
    /// ```
    /// # fn main() -> ironstone::Result<()> {
    /// # let options = ironstone::Options::in_memory();
    /// # let db = ironstone::Db::open(&options, "/db")?;
    /// let mut updates = db.get_updates_since(db.latest_sequence().plus(1))?;
    /// assert!(updates.next_update()?.is_none());
    /// db.put(b"iron", b"Fe")?;
    /// let update = updates.next_update()?.expect("it was written");
    /// assert_eq!(update.batch.count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_updates_since(&self, since: SequenceNumber) -> Result<WalIterator> {
        let engine = self.engine();
        engine.check_has_log()?;
        engine.count(Ticker::GetUpdatesSinceCalls, 1);
        let since = since.max(SequenceNumber(1));
        let visible = engine.pipeline.visible();
        if since > visible.plus(1) {
            return Err(Error::not_found(format!(
                "Requested sequence not yet written in the db: {since}, the last one is {visible}"
            )));
        }
        let mut oldest = None;
        for number in engine.wals()?.into_iter().rev() {
            let Some(start) = engine.wal_start(number)? else { continue };
            if start <= since {
                let at = Place::start_of(number);
                return Ok(WalIterator {
                    engine: Arc::clone(engine),
                    expected: since,
                    at,
                    since,
                    gap_reported: false,
                });
            }
            oldest = Some(start);
        }
        if since > visible {
            // The current WAL is empty, and nothing before it is asked for.
            let at = Place::start_of(engine.newest_wal()?);
            let engine = Arc::clone(engine);
            return Ok(WalIterator { engine, expected: since, at, since, gap_reported: false });
        }
        let oldest = oldest.map_or_else(
            || "no WAL is left".to_owned(),
            |oldest| format!("the oldest WAL that is left begins with {oldest}"),
        );
        Err(Error::not_found(format!("write {since} is no longer in the log: {oldest}")))
    }
}

impl WalIterator {
    /// The next batch, if it has been written and readers see it; `None` means: ask again later.
    ///
    /// # Errors
    /// `NotFound` when the next WAL is gone: a replica must start from a copy of the database. `Incomplete` when
    /// the next batch does not continue the one before: the writes between did not go through the log
    /// ([`disable_wal`](crate::WriteOptions::disable_wal), a write that failed, or files that were
    /// [ingested](Db::ingest_external_files)); the call after that goes on behind them. `Corruption` for a damaged WAL.
    pub fn next_update(&mut self) -> Result<Option<WalUpdate>> {
        let mut opened = false;
        loop {
            let visible = self.engine.pipeline.visible();
            if self.at.reader.is_none() {
                if self.expected > visible {
                    return Ok(None); // Whoever asks often costs little.
                }
                // In this order: what was written before the WAL was closed is in the file that is opened then.
                self.at.was_closed = self.engine.newest_wal()? > self.at.number;
                self.open()?;
                opened = true;
            }
            let was_closed = self.at.was_closed;
            let reader = self.at.reader.as_mut().expect("it was opened");
            match reader.next_record()? {
                LogRead::Record { offset } => {
                    let record = reader.record();
                    let sequence = sequence_of(record).filter(|_| predecessor::read(record).is_none());
                    if let Some(sequence) = sequence {
                        let batch = WriteBatch::from_data(record.to_vec())?;
                        let next = sequence.plus(u64::from(batch.count()));
                        // One without writes comes with the write that follows it, whether the file was open or not.
                        if next > visible.plus(1) || sequence > visible {
                            self.pause(offset);
                            return Ok(None);
                        }
                        // Nothing that was asked for, or delivered before.
                        let is_old = next <= self.expected && (batch.count() > 0 || sequence < self.since);
                        if !is_old {
                            return self.deliver(offset, sequence, batch);
                        }
                    }
                }
                LogRead::End if was_closed => self.enter_next_wal()?,
                LogRead::Damage(damage) if was_closed => {
                    let path = self.engine.find_wal(self.at.number)?.unwrap_or_default().0;
                    if !damage.is_torn_tail() {
                        return Err(damage.error(&path));
                    }
                    // Recovery stopped here, and the next WAL continues from here; else it shows as a gap.
                    self.enter_next_wal()?;
                }
                // What is being written looks torn.
                LogRead::End | LogRead::Damage(_) => {
                    let end = reader.valid_size();
                    self.pause(end);
                    // One that was opened by an earlier call ends where the file did then.
                    if opened && self.engine.newest_wal()? <= self.at.number {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn deliver(
        &mut self,
        offset: u64,
        sequence: SequenceNumber,
        batch: WriteBatch,
    ) -> Result<Option<WalUpdate>> {
        if sequence > self.expected && !self.gap_reported {
            let (first, last) = (self.expected, SequenceNumber(sequence.0 - 1));
            self.gap_reported = true;
            self.pause(offset);
            return Err(Error::incomplete(format!(
                "writes {first} to {last} are in no log: they were not logged, failed, or came with ingested files"
            )));
        }
        self.gap_reported = false;
        let update = WalUpdate { sequence, batch };
        self.expected = self.expected.max(update.next_sequence());
        Ok(Some(update))
    }

    /// Goes on from `offset` the next time, with what the file holds then.
    fn pause(&mut self, offset: u64) {
        if let Some(reader) = self.at.reader.take() {
            self.at.form = reader.form();
        }
        self.at.offset = offset;
    }

    fn open(&mut self) -> Result<()> {
        let (number, offset, form) = (self.at.number, self.at.offset, self.at.form);
        // A WAL that is archived between the two calls is found at the second try.
        for _ in 0..2 {
            let Some((path, _)) = self.engine.find_wal(number)? else { break };
            match self.engine.env.fs.open_sequential(&path) {
                Ok(file) => {
                    let options = ReaderOptions::default();
                    let reader = match offset {
                        0 => LogReader::new(file, number, options),
                        _ => LogReader::resume(file, number, options, offset, form)?,
                    };
                    self.at.reader = Some(reader);
                    return Ok(());
                }
                Err(error) if error.is_path_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::not_found(format!(
            "WAL {number} was removed: write {} is no longer in the log",
            self.expected
        )))
    }

    fn enter_next_wal(&mut self) -> Result<()> {
        let next = self.engine.wals()?.into_iter().find(|number| *number > self.at.number);
        self.at = Place::start_of(next.map_or_else(|| self.engine.newest_wal(), Ok)?);
        Ok(())
    }
}

impl Engine {
    fn check_has_log(&self) -> Result<()> {
        match self.secondary {
            true => Err(Error::not_supported("the log of a secondary, which is its primary's")),
            false => Ok(()),
        }
    }

    /// The WAL that is being written; in a database that is open for reading only the last that there is, or 0.
    fn newest_wal(&self) -> Result<FileNumber> {
        match self.read_only {
            true => Ok(self.wals()?.pop().unwrap_or_default()),
            false => Ok(self.pipeline.current_wal().0),
        }
    }

    /// The WALs that there are, ascending. The current one is the last but for one that is being created.
    fn wals(&self) -> Result<Vec<FileNumber>> {
        // In this order: a WAL that moves to the archive meanwhile is in one of the two or in both.
        let mut wals = self.wals_in(&self.wal_dir)?;
        let recyclable = self.state.lock().recyclable.clone();
        wals.retain(|number| !recyclable.contains(number));
        let archive = file_name::archive_dir(&self.wal_dir);
        if self.env.fs.exists(&archive)? {
            wals.extend(self.wals_in(&archive)?);
        }
        Ok(wals.into_iter().collect())
    }

    fn wals_in(&self, dir: &Path) -> Result<BTreeSet<FileNumber>> {
        let names = self.env.fs.list(dir)?;
        let number = |name: &String| match FileKind::parse(name) {
            Some(FileKind::Wal(number)) => Some(number),
            _ => None,
        };
        Ok(names.iter().filter_map(number).collect())
    }

    /// Where WAL `number` is, and whether that is the archive.
    fn find_wal(&self, number: FileNumber) -> Result<Option<(PathBuf, bool)>> {
        let live = file_name::wal(&self.wal_dir, number);
        if self.env.fs.exists(&live)? {
            return Ok(Some((live, false)));
        }
        let archived = file_name::wal(&file_name::archive_dir(&self.wal_dir), number);
        Ok(self.env.fs.exists(&archived)?.then_some((archived, true)))
    }

    /// The sequence number that WAL `number` begins with, if it says so.
    fn wal_start(&self, number: FileNumber) -> Result<Option<SequenceNumber>> {
        let Some((path, _)) = self.find_wal(number)? else { return Ok(None) };
        let file = match self.env.fs.open_sequential(&path) {
            Ok(file) => file,
            Err(error) if error.is_path_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut reader = LogReader::new(file, number, ReaderOptions::default());
        match reader.next_record()? {
            LogRead::Record { .. } => Ok(sequence_of(reader.record())),
            LogRead::End | LogRead::Damage(_) => Ok(None),
        }
    }
}
