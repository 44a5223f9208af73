//! The MANIFEST file: reading its edits, appending to it, starting a new one.
//!
//! A MANIFEST is a log (see `ironstone-wal`, legacy headers) of version edits. It opens with a
//! snapshot of everything; `CURRENT` names it only once that is durable. Each later commit appends
//! its edits and syncs.
//!
//! Two things go into it that RocksDB passes over: the snapshot's first record says how long the
//! snapshot is, and the first edit of each commit says that all before it is durable
//! ([`VersionEdit::durable_size`]). So a reader tells rot from an append that a crash interrupted.

use crate::blob_file::BlobFileGarbage;
use crate::builder::{BuiltVersion, VersionBuilder};
use crate::current::set_current;
use crate::edit::{ColumnFamilyChange, VersionEdit};
use crate::file_metadata::UNKNOWN_EPOCH;
use crate::set::{ColumnFamilyState, verify_manifest_witness};
use crate::version::Version;
use crate::wal_set::WalSet;
use ironstone_base::checksum::crc32c_extend;
use ironstone_base::statistics::Histogram;
use ironstone_base::sync::Arc;
use ironstone_base::{ColumnFamilyId, Corrupt, Error, FileNumber, Result, Statistics, file_name};
use ironstone_vfs::{ChecksumHandoff, Env, FileSystem, StatsTimer, WritableFile, WriteOptions};
use ironstone_wal::{
    Damage, LogFramer, LogRead, LogReader, ManifestWitness, Payload, ReaderOptions, Verdict,
};
use std::path::{Path, PathBuf};

/// Reads the edits of a MANIFEST one by one. For recovery and for tools.
pub struct ManifestReader {
    path: PathBuf,
    log: LogReader,
    durable_size: Option<u64>, // The largest that an edit claimed; `None` if RocksDB or LevelDB wrote it.
    torn_tail: Option<Damage>,
    finished: bool,
}

/// One edit and where it stands.
#[derive(Clone, PartialEq, Debug)]
pub struct ManifestRecord {
    /// Where its first header is.
    pub offset: u64,
    /// What it says.
    pub edit: VersionEdit,
}

impl ManifestReader {
    /// Opens the MANIFEST at `path`.
    pub fn open(fs: &dyn FileSystem, path: &Path) -> Result<Self> {
        let file = fs.open_sequential(path)?;
        // Edits carry no log number; only reused WALs need one.
        let options = ReaderOptions { payload: Payload::Other, ..ReaderOptions::default() };
        let log = LogReader::new(file, FileNumber(0), options);
        Ok(Self { path: path.to_owned(), log, durable_size: None, torn_tail: None, finished: false })
    }
    /// Where the MANIFEST is.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// What was dropped at the end: an append that was interrupted before it was durable.
    pub fn torn_tail(&self) -> Option<&Damage> {
        self.torn_tail.as_ref()
    }
    /// The offset behind the last edit.
    pub fn valid_size(&self) -> u64 {
        self.log.valid_size()
    }

    /// The next edit; `None` at the end. Damage is an error that names the file and the offset, except
    /// for the remains of an append that a crash interrupted, which are dropped.
    pub fn next_edit(&mut self) -> Result<Option<ManifestRecord>> {
        if self.finished {
            return Ok(None);
        }
        match self.log.next_record()? {
            LogRead::Record { offset } => {
                let edit =
                    VersionEdit::decode(self.log.record()).map_err(|error| error.at(&self.path, offset))?;
                if let Some(claim) = edit.durable_size {
                    self.durable_size = self.durable_size.max(Some(claim));
                    self.log.raise_synced_size(claim);
                }
                Ok(Some(ManifestRecord { offset, edit }))
            }
            LogRead::End => {
                self.finished = true;
                Ok(None)
            }
            LogRead::Damage(damage) => {
                self.finished = true;
                match self.was_never_durable(&damage)? {
                    true => self.torn_tail = Some(damage),
                    false => return Err(damage.error(&self.path)),
                }
                Ok(None)
            }
        }
    }

    /// Whether the bad bytes can only be what is left of the last commit.
    fn was_never_durable(&mut self, damage: &Damage) -> Result<bool> {
        match damage.verdict {
            Verdict::TornTail => Ok(true),
            Verdict::BitFlip | Verdict::SyncedBytes => Ok(false),
            // Pages of one append may reach the disk in any order, so valid records may follow bad
            // ones in it. Those of a later commit would say so.
            Verdict::Damaged if self.durable_size.is_some() => {
                Ok(self.largest_later_claim()? <= damage.offset)
            }
            Verdict::Damaged => Ok(false),
        }
    }

    fn largest_later_claim(&mut self) -> Result<u64> {
        let mut largest = 0;
        loop {
            match self.log.next_record()? {
                LogRead::Record { .. } => {
                    let claim =
                        VersionEdit::decode(self.log.record()).ok().and_then(|edit| edit.durable_size);
                    largest = largest.max(claim.unwrap_or(0));
                }
                LogRead::Damage(_) => {}
                LogRead::End => return Ok(largest),
            }
        }
    }
}

/// How large a MANIFEST becomes before a new one is begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ManifestLimits {
    /// At least so many bytes.
    pub max_file_size: u64,
    /// And at least so many percent more than it had when it was new.
    pub max_space_amp_pct: u32,
}

impl Default for ManifestLimits {
    fn default() -> Self {
        Self { max_file_size: 1 << 30, max_space_amp_pct: 500 }
    }
}

impl ManifestLimits {
    /// The size from which on a MANIFEST that began with `first_size` bytes takes no more. Who `waits` for the next commit is spared
    /// the new MANIFEST for a quarter more.
    pub(crate) fn of(self, first_size: u64, waits: bool) -> u64 {
        let percent = 100 + u128::from(self.max_space_amp_pct);
        let tuned = u64::try_from(u128::from(first_size) * percent / 100).unwrap_or(u64::MAX);
        let limit = tuned.max(self.max_file_size);
        if waits { limit.saturating_add(limit / 4) } else { limit }
    }
}

/// How a MANIFEST is written.
#[derive(Clone, Debug)]
pub struct ManifestOptions {
    /// When to begin a new MANIFEST.
    pub limits: ManifestLimits,
    /// Sync with `fsync` instead of `fdatasync`.
    pub full_sync: bool,
    /// Checksums go with the data to the file.
    pub checksum_handoff: bool,
    /// Record the database's id.
    pub write_db_id: bool,
    /// Where syncs are timed.
    pub statistics: Option<Arc<Statistics>>,
}

impl Default for ManifestOptions {
    fn default() -> Self {
        Self {
            limits: ManifestLimits::default(),
            full_sync: false,
            checksum_handoff: false,
            write_db_id: true,
            statistics: None,
        }
    }
}

/// Appends to the MANIFEST in force. It stands behind a lock of its own, which serializes all changes
/// and is held over all three steps of one; the state lock is not held while files are written.
/// Lock order: manifest, then state.
///
/// ```text
/// let mut manifest = self.manifest.lock();
/// let pending = self.state.lock().versions.prepare(edits, &manifest)?;
/// match manifest.commit(pending) {
///     Ok(change) => Ok(self.state.lock().versions.install(change)),
///     Err(failed) => Err(self.state.lock().versions.abandon(failed)),
/// }
/// ```
/// After a failed append or sync nobody can say what the file holds. The writer then gives that
/// MANIFEST up: the next commit starts a new one from what is installed, and until it succeeds
/// [`crate::VersionSet::live_files`] names the files of the failed commit too.
pub struct ManifestWriter {
    env: Env,
    dir: PathBuf,
    options: ManifestOptions,
    in_force: Option<InForce>,
    roll: bool,
}

struct InForce {
    number: FileNumber,
    file: Box<dyn WritableFile>,
    framer: LogFramer,
    first_size: u64, // Of what it began with.
    size: u64,       // All of it durable.
    crc: u32,
}

/// Everything that a new MANIFEST begins with.
pub(crate) struct Snapshot {
    pub manifest_number: FileNumber,
    pub db_id: Option<String>,
    pub wals: WalSet,
    pub needed_wals: WalSet,
    pub min_log_number_to_keep: FileNumber,
    pub column_families: Vec<ColumnFamilyState>,
}

/// A change that is prepared and not written. See [`ManifestWriter`].
#[must_use = "a change takes effect once it is committed and installed"]
pub struct PendingCommit {
    pub(crate) edits: Vec<VersionEdit>,
    pub(crate) bases: Vec<(ColumnFamilyId, Arc<Version>)>,
    pub(crate) added: Option<ColumnFamilyState>,
    pub(crate) manifest: Target,
}

/// Which MANIFEST a change goes to.
pub(crate) enum Target {
    InForce(FileNumber),
    New(Snapshot),
}

/// A change that is durable and not installed. See [`ManifestWriter`].
#[must_use = "a durable change must be installed"]
pub struct CommittedChange {
    pub(crate) edits: Vec<VersionEdit>,
    pub(crate) versions: Vec<(ColumnFamilyId, BuiltVersion)>,
    pub(crate) added: Option<ColumnFamilyState>,
    pub(crate) new_manifest: Option<FileNumber>,
}

/// A change that failed. If it was written in part, it may or may not take effect when the database is
/// opened again; hand it to [`crate::VersionSet::abandon`].
#[must_use = "the files of a failed commit must be kept"]
#[derive(Debug)]
pub struct FailedCommit {
    /// Why.
    pub error: Error,
    /// Files that the edits add, if a MANIFEST may name them now.
    pub(crate) files: Vec<FileNumber>,
    /// The new MANIFEST, if it may be the one in force.
    pub(crate) new_manifest: Option<FileNumber>,
}

impl ManifestWriter {
    /// For the database in `dir`. The first commit starts a new MANIFEST.
    pub fn new(env: Env, dir: PathBuf, options: ManifestOptions) -> Self {
        Self { env, dir, options, in_force: None, roll: false }
    }
    /// The MANIFEST in force, its durable size and checksum: what a WAL's marker tells about it.
    /// `None` before the first commit and after a failure.
    pub fn witness(&self) -> Option<ManifestWitness> {
        self.in_force.as_ref().map(|log| ManifestWitness { number: log.number, size: log.size, crc: log.crc })
    }
    /// Reads the MANIFEST in force back: every record has its checksum and can be read, all bytes are those that were written, and
    /// CURRENT names it. `Corruption` if not. There is nothing to read while none is in force.
    pub fn verify_content(&self) -> Result<()> {
        let Some(witness) = self.witness() else { return Ok(()) };
        let (fs, path) = (&*self.env.fs, file_name::manifest(&self.dir, witness.number));
        let mut reader = ManifestReader::open(fs, &path)?;
        while reader.next_edit()?.is_some() {}
        if let Some(damage) = reader.torn_tail() {
            return Err(damage.error(&path));
        }
        let size = fs.size(&path)?;
        if size != witness.size {
            let what = format!("has {size} bytes, {} were written", witness.size);
            return Err(Error::corruption_at(&path, size.min(witness.size), what));
        }
        verify_manifest_witness(fs, &self.dir, &witness)
    }
    /// Makes the next commit start a new MANIFEST.
    pub fn roll(&mut self) {
        self.roll = true;
    }
    /// Sets when a new MANIFEST is begun.
    pub fn set_limits(&mut self, limits: ManifestLimits) {
        self.options.limits = limits;
    }
    /// Whether new MANIFESTs record the database's id.
    pub(crate) fn writes_db_id(&self) -> bool {
        self.options.write_db_id
    }
    /// The MANIFEST that the next commit is appended to; `None` if it starts a new one. `waits`: a user waits for the commit.
    pub fn takes_more(&self, waits: bool) -> Option<FileNumber> {
        let log = self.in_force.as_ref()?;
        (!self.roll && log.size < self.options.limits.of(log.first_size, waits)).then_some(log.number)
    }

    /// Step 2 of 3, without the state lock: builds and checks the versions, writes the edits, syncs.
    /// An edit that would break the order of the levels is refused before anything is written.
    pub fn commit(&mut self, pending: PendingCommit) -> Result<CommittedChange, Box<FailedCommit>> {
        let PendingCommit { mut edits, bases, added, manifest } = pending;
        let versions = build(&bases, &edits)
            .map_err(|error| Box::new(FailedCommit { error, files: Vec::new(), new_manifest: None }))?;
        let (written, new_manifest) = match manifest {
            Target::InForce(number) => (self.append(number, &mut edits), None),
            Target::New(snapshot) => (self.start_new(&snapshot, &edits), Some(snapshot.manifest_number)),
        };
        match written {
            Ok(()) => Ok(CommittedChange { edits, versions, added, new_manifest }),
            Err(error) => {
                let files = edits.iter().flat_map(files_of).collect();
                Err(Box::new(FailedCommit { error, files, new_manifest }))
            }
        }
    }

    fn sync_timer(&self) -> StatsTimer<'_> {
        StatsTimer::start(self.options.statistics.as_deref(), Histogram::ManifestFileSyncMicros)
    }

    fn append(&mut self, number: FileNumber, edits: &mut [VersionEdit]) -> Result<()> {
        let Some(mut log) = self.in_force.take() else {
            return Err(Error::io_message(format!("MANIFEST-{:06} failed earlier", number.0)));
        };
        assert_eq!(log.number, number, "a commit was prepared under another hold of the manifest lock");
        // The first says it for a reader that finds this commit whole, the last closes the commit.
        let last = edits.len().saturating_sub(1);
        for index in [0, last] {
            if let Some(edit) = edits.get_mut(index) {
                edit.durable_size = Some(log.size);
            }
        }
        let mut bytes = Vec::new();
        let mut record = Vec::new();
        for edit in edits {
            record.clear();
            edit.encode(&mut record);
            log.framer.frame(&[&record], &mut bytes);
        }
        log.file.append(&bytes)?;
        let timer = self.sync_timer();
        log.file.sync()?;
        drop(timer);
        log.size += bytes.len() as u64;
        log.crc = crc32c_extend(log.crc, &bytes);
        self.in_force = Some(log); // Not reached after a failure: the file is not trusted again.
        Ok(())
    }

    fn start_new(&mut self, snapshot: &Snapshot, edits: &[VersionEdit]) -> Result<()> {
        let number = snapshot.manifest_number;
        let new = self.write_new(number, &snapshot.records(edits)).inspect_err(|_| {
            // Nothing names it, so the MANIFEST in force stays good. What is left of this one is
            // garbage, which the next start removes if this fails.
            let _ = self.env.fs.remove(&file_name::manifest(&self.dir, number));
        })?;
        self.in_force = None; // From here on either may be the one in force.
        set_current(&*self.env.fs, &self.dir, number)?;
        (self.in_force, self.roll) = (Some(new), false);
        Ok(())
    }

    /// Writes and syncs a MANIFEST that nothing names yet, directory entry included.
    fn write_new(&self, number: FileNumber, records: &[VersionEdit]) -> Result<InForce> {
        let (framer, bytes) = frame_snapshot(records);
        let options = WriteOptions { full_sync: self.options.full_sync, ..WriteOptions::default() };
        let file = self.env.fs.create(&file_name::manifest(&self.dir, number), options)?;
        let mut file = ChecksumHandoff::over(file, self.options.checksum_handoff);
        file.append(&bytes)?;
        let timer = self.sync_timer();
        file.sync()?;
        drop(timer);
        self.env.fs.open_directory(&self.dir)?.sync()?;
        let crc = crc32c_extend(0, &bytes);
        let size = bytes.len() as u64;
        Ok(InForce { number, file, framer, first_size: size, size, crc })
    }

    /// Starts the first MANIFEST of a database.
    pub(crate) fn create(&mut self, number: FileNumber, first: VersionEdit) -> Result<()> {
        let new = self.write_new(number, &[first])?;
        set_current(&*self.env.fs, &self.dir, number)?;
        self.in_force = Some(new);
        Ok(())
    }
}

/// Frames what a MANIFEST begins with. The first record tells how long all of it is.
fn frame_snapshot(records: &[VersionEdit]) -> (LogFramer, Vec<u8>) {
    let frame = |edit: &VersionEdit, framer: &mut LogFramer, bytes: &mut Vec<u8>| {
        let mut record = Vec::new();
        edit.encode(&mut record);
        framer.frame(&[&record], bytes);
    };
    let first = |durable_size: u64, framer: &mut LogFramer, bytes: &mut Vec<u8>| {
        let edit = records.first().cloned().unwrap_or_default();
        frame(&VersionEdit { durable_size: Some(durable_size), ..edit }, framer, bytes);
    };
    let (mut framer, mut bytes) = (LogFramer::new(FileNumber(0), false), Vec::new());
    first(0, &mut framer, &mut bytes);
    let first_len = bytes.len();
    records.iter().skip(1).for_each(|edit| frame(edit, &mut framer, &mut bytes));
    let mut again = Vec::new();
    first(bytes.len() as u64, &mut LogFramer::new(FileNumber(0), false), &mut again);
    assert_eq!(first_len, again.len(), "the length of the field does not depend on its value");
    bytes[..first_len].copy_from_slice(&again);
    (framer, bytes)
}

/// The files that an edit adds.
pub(crate) fn files_of(edit: &VersionEdit) -> impl Iterator<Item = FileNumber> + '_ {
    let tables = edit.new_files.iter().map(|(_, file)| file.number);
    tables.chain(edit.blob_file_additions.iter().map(|addition| addition.number))
}

fn build(
    bases: &[(ColumnFamilyId, Arc<Version>)],
    edits: &[VersionEdit],
) -> Result<Vec<(ColumnFamilyId, BuiltVersion)>> {
    let mut versions = Vec::with_capacity(bases.len());
    for (id, base) in bases {
        let mut builder = VersionBuilder::new(base.clone());
        for edit in edits.iter().filter(|edit| edit.column_family == *id) {
            if let Some((_, file)) =
                edit.new_files.iter().find(|(_, file)| file.epoch_number == UNKNOWN_EPOCH)
            {
                return Err(Error::corruption(format!("table file #{} has no epoch number", file.number)));
            }
            builder.apply(edit)?;
        }
        versions.push((*id, builder.build_with_removed()?));
    }
    Ok(versions)
}

impl Snapshot {
    /// The records of a new MANIFEST: the snapshot, then `edits`, which it does not hold yet.
    fn records(&self, edits: &[VersionEdit]) -> Vec<VersionEdit> {
        let mut records = vec![VersionEdit { db_id: self.db_id.clone(), ..VersionEdit::default() }];
        // RocksDB looks at one kind of WAL change per record.
        let wal_additions: Vec<_> = self.wals.iter().collect();
        if !wal_additions.is_empty() {
            records.push(VersionEdit { wal_additions, ..VersionEdit::default() });
        }
        // Without it, the addition of a deleted WAL that is recorded late would bring the WAL back.
        let wal_deletion = Some(self.wals.min_to_keep()).filter(|&number| number > FileNumber(0));
        if wal_deletion.is_some() {
            records.push(VersionEdit { wal_deletion, ..VersionEdit::default() });
        }
        let needed_wals: Vec<_> = self.needed_wals.iter().collect();
        if !needed_wals.is_empty() {
            records.push(VersionEdit { needed_wals, ..VersionEdit::default() });
        }
        for state in &self.column_families {
            records.push(introduction(state));
            records.push(self.contents(state));
        }
        records.extend_from_slice(edits);
        records
    }

    /// Everything about a column family that edits of its own recorded.
    fn contents(&self, state: &ColumnFamilyState) -> VersionEdit {
        let mut edit = VersionEdit::new(state.id);
        let version = &state.current;
        edit.new_files = version.all_files().map(|(level, file)| (level, file.clone())).collect();
        edit.compact_cursors =
            version.compact_cursors.iter().map(|(&level, key)| (level, key.clone())).collect();
        for (&number, file) in &version.blob_files {
            edit.blob_file_additions.push(file.addition.clone());
            let (garbage_count, garbage_bytes) = (file.garbage_count, file.garbage_bytes);
            if garbage_count > 0 {
                edit.blob_file_garbages.push(BlobFileGarbage { number, garbage_count, garbage_bytes });
            }
        }
        edit.log_number = Some(state.log_number);
        edit.full_history_ts_low = state.full_history_ts_low.clone();
        if state.id == ColumnFamilyId::DEFAULT && self.min_log_number_to_keep > FileNumber(0) {
            edit.min_log_number_to_keep = Some(self.min_log_number_to_keep);
        }
        edit
    }
}

/// The edit that creates a column family, or that names the comparator of `default`.
pub(crate) fn introduction(state: &ColumnFamilyState) -> VersionEdit {
    let mut edit = VersionEdit::new(state.id);
    if state.id != ColumnFamilyId::DEFAULT {
        edit.column_family_change = Some(ColumnFamilyChange::Add(state.name.clone()));
    }
    edit.comparator = Some(state.comparator.name().to_owned());
    edit.persist_user_defined_timestamps = state.persist_user_defined_timestamps;
    edit
}

/// Puts the edits of atomic groups together.
#[derive(Default)]
pub(crate) struct GroupBuffer {
    group: Vec<ManifestRecord>,
}

impl GroupBuffer {
    /// Takes the next record in and answers those that take effect now.
    pub fn push(&mut self, record: ManifestRecord) -> Result<Vec<ManifestRecord>, Corrupt> {
        const BAD: Corrupt = Corrupt("corrupted atomic group");
        let expected = self.group.last().map(|last| last.edit.remaining_in_group.unwrap_or(0).checked_sub(1));
        match (expected, record.edit.remaining_in_group) {
            (None, None) => return Ok(vec![record]),
            (None, Some(_)) => {}
            (Some(expected), remaining) if expected == remaining && expected.is_some() => {}
            (Some(_), _) => return Err(BAD),
        }
        let is_last = record.edit.remaining_in_group == Some(0);
        self.group.push(record);
        Ok(if is_last { std::mem::take(&mut self.group) } else { Vec::new() })
    }
}
