//! All column families and what is true of the database as a whole.

use crate::blob_file::BlobFileMetaData;
use crate::current::current_manifest;
use crate::edit::{ColumnFamilyChange, VersionEdit};
use crate::file_metadata::FileMetaData;
use crate::manifest::{
    CommittedChange, FailedCommit, ManifestOptions, ManifestReader, ManifestWriter, PendingCommit, Snapshot,
    Target, files_of, introduction,
};
use crate::point_in_time::Point;
use crate::replay::{self, DEFAULT_COLUMN_FAMILY, Replay};
use crate::retired::split_obsolete;
use crate::version::Version;
use crate::wal_set::{WalAddition, WalSet};
use ironstone_base::checksum::crc32c_extend;
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::{AtomicU64, Ordering};
use ironstone_base::{
    Code, ColumnFamilyId, Error, FileKind, FileNumber, InternalKeyComparator, Result, SequenceNumber,
    UserComparator, file_name,
};
use ironstone_vfs::{Env, FileSystem};
use ironstone_wal::{Damage, ManifestWitness};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

/// What a column family must be opened or created with.
#[derive(Clone, Debug)]
pub struct ColumnFamilyConfig {
    /// Its name.
    pub name: String,
    /// The order of its keys. Its name must be the one that the MANIFEST has.
    pub comparator: UserComparator,
    /// How many levels it has.
    pub num_levels: usize,
}

impl ColumnFamilyConfig {
    fn empty_version(&self) -> Arc<Version> {
        let order = InternalKeyComparator::new(self.comparator.clone());
        Arc::new(Version::empty(order, self.num_levels))
    }
}

/// How to recover.
#[derive(Clone, Debug)]
pub struct RecoverOptions {
    /// The column families to open; `default` must be among them. Those that the database does not
    /// have are not there afterwards.
    pub column_families: Vec<ColumnFamilyConfig>,
    /// Column families that are not listed are left out instead of being an error. Only for those who
    /// never commit: a new MANIFEST would lack them.
    pub allow_unlisted: bool,
}

/// A column family now.
#[derive(Clone, Debug)]
pub struct ColumnFamilyState {
    /// Its id.
    pub id: ColumnFamilyId,
    /// Its name.
    pub name: String,
    /// The order of its keys.
    pub comparator: UserComparator,
    /// WALs with smaller numbers hold nothing of it that its tables lack.
    pub log_number: FileNumber,
    /// Its tables.
    pub current: Arc<Version>,
    /// The epoch that the next flush or ingestion gets.
    pub next_epoch_number: u64,
    /// Timestamps below it are forgotten.
    pub full_history_ts_low: Option<Vec<u8>>,
    /// Whether keys carry their timestamps in tables.
    pub persist_user_defined_timestamps: Option<bool>,
}

/// What [`VersionSet::install`] changed.
#[derive(Debug, Default)]
pub struct Installed {
    /// The column families whose version is new.
    pub versions: Vec<(ColumnFamilyId, Arc<Version>)>,
    /// The column family that was created.
    pub added: Option<ColumnFamilyId>,
    /// The column family that was dropped, with its last version.
    pub dropped: Option<ColumnFamilyState>,
    /// The versions that were current before. To be dropped outside of the state lock: letting go of
    /// many files takes time.
    pub replaced: Vec<Arc<Version>>,
}

/// All column families and what is true of the database as a whole. Lives inside the state lock.
pub struct VersionSet {
    column_families: BTreeMap<ColumnFamilyId, ColumnFamilyState>,
    unlisted: BTreeMap<ColumnFamilyId, String>,
    max_column_family: u32,
    /// Handed out by adding; publishes nothing else, so Relaxed is enough.
    next_file_number: Arc<AtomicU64>,
    last_sequence: SequenceNumber,
    prev_log_number: FileNumber,
    min_log_number_to_keep: FileNumber,
    db_id: Option<String>,
    wals: WalSet,
    needed_wals: WalSet,
    manifest_number: FileNumber,
    torn_tail: Option<Damage>,

    /// MANIFESTs of failed commits that may be in force.
    doubtful_manifests: BTreeSet<FileNumber>,
    /// Files that MANIFESTs of failed commits may name.
    doubtful_files: HashSet<FileNumber>,
    retired_tables: Vec<Arc<FileMetaData>>,
    retired_blobs: Vec<Arc<BlobFileMetaData>>,
}

/// Hands out file numbers without the state lock.
#[derive(Clone, Debug)]
pub struct FileNumbers(Arc<AtomicU64>);

impl FileNumbers {
    /// A number for a new file. Never handed out again.
    #[allow(clippy::should_implement_trait)] // An iterator would look finite.
    pub fn next(&self) -> FileNumber {
        FileNumber(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

impl VersionSet {
    /// Creates a database in `dir`: MANIFEST-000001, then CURRENT. Refuses a directory that holds
    /// tables, WALs or MANIFESTs of a database, whose CURRENT may have got lost; what an earlier
    /// creation left behind when it was interrupted is replaced.
    pub fn create_new(
        env: &Env,
        dir: &Path,
        default: ColumnFamilyConfig,
        db_id: Option<String>,
        options: ManifestOptions,
    ) -> Result<(Self, ManifestWriter)> {
        const FIRST: FileNumber = FileNumber(1);
        refuse_database(&*env.fs, dir, FIRST)?;
        let state = ColumnFamilyState::new(ColumnFamilyId::DEFAULT, &default, FileNumber(0));
        let mut first = introduction(&state);
        first.db_id = db_id.clone().filter(|_| options.write_db_id);
        first.log_number = Some(FileNumber(0));
        first.prev_log_number = Some(FileNumber(0));
        first.next_file_number = Some(FileNumber(FIRST.0 + 1));
        first.last_sequence = Some(SequenceNumber::ZERO);
        let mut manifest = ManifestWriter::new(env.clone(), dir.to_owned(), options);
        manifest.create(FIRST, first)?;
        let set = Self {
            column_families: BTreeMap::from([(state.id, state)]),
            unlisted: BTreeMap::new(),
            max_column_family: 0,
            next_file_number: Arc::new(AtomicU64::new(FIRST.0 + 1)),
            last_sequence: SequenceNumber::ZERO,
            prev_log_number: FileNumber(0),
            min_log_number_to_keep: FileNumber(0),
            db_id,
            wals: WalSet::default(),
            needed_wals: WalSet::default(),
            manifest_number: FIRST,
            torn_tail: None,
            doubtful_manifests: BTreeSet::new(),
            doubtful_files: HashSet::new(),
            retired_tables: Vec::new(),
            retired_blobs: Vec::new(),
        };
        Ok((set, manifest))
    }

    /// Reads CURRENT and the MANIFEST that it names. The first commit starts a new MANIFEST.
    ///
    /// Fails with `PathNotFound` if there is no CURRENT, and with `Corruption`, naming the file and the
    /// offset, if anything that was durable is damaged. Writes nothing.
    pub fn recover(
        env: &Env,
        dir: &Path,
        recover: RecoverOptions,
        options: ManifestOptions,
    ) -> Result<(Self, ManifestWriter)> {
        let manifest_number = current_manifest(&*env.fs, dir)?;
        let reader = open_current(&*env.fs, dir, manifest_number)?;
        let set = Self::read(reader, manifest_number, &recover, None)?;
        Ok((set, ManifestWriter::new(env.clone(), dir.to_owned(), options)))
    }

    /// What the MANIFEST behind `reader` says, with each column family at its point.
    pub(crate) fn read(
        mut reader: ManifestReader,
        manifest_number: FileNumber,
        recover: &RecoverOptions,
        points: Option<BTreeMap<ColumnFamilyId, Point>>,
    ) -> Result<Self> {
        let path = reader.path().to_owned();
        let mut replay = Replay::new(recover, points)?;
        while let Some(record) = reader.next_edit()? {
            replay.take(record, &path)?;
        }
        let torn_tail = reader.torn_tail().cloned();
        let column_families = replay.finish().map_err(|error| match &torn_tail {
            Some(damage) => error.context(damage).context(path.display()),
            None => error.context(path.display()),
        })?;

        let largest_file = column_families
            .values()
            .flat_map(|state| {
                let tables = state.current.all_files().map(|(_, file)| file.number);
                tables.chain(state.current.blob_files.keys().copied())
            })
            .chain([manifest_number, replay.prev_log_number, replay.log_number.unwrap_or_default()])
            .max();
        let next_file = replay.next_file_number.map_or(0, |number| number.0);
        let next_file = next_file.max(largest_file.map_or(0, |number| number.0.saturating_add(1)));
        // A WAL with a smaller number would not be replayed.
        let next_file = next_file.max(replay.min_log_number_to_keep.0);
        if next_file > FileNumber::LARGEST.0 {
            let what = format!("{}: file numbers up to {next_file}, which no database has", path.display());
            return Err(Error::corruption(what));
        }
        Ok(Self {
            column_families,
            max_column_family: replay.max_column_family,
            next_file_number: Arc::new(AtomicU64::new(next_file)),
            last_sequence: replay.last_sequence.unwrap_or_default(),
            prev_log_number: replay.prev_log_number,
            min_log_number_to_keep: replay.min_log_number_to_keep,
            db_id: replay.db_id.take(),
            wals: std::mem::take(&mut replay.wals),
            needed_wals: std::mem::take(&mut replay.needed_wals),
            unlisted: std::mem::take(&mut replay.unlisted),
            manifest_number,
            torn_tail,
            doubtful_manifests: BTreeSet::new(),
            doubtful_files: HashSet::new(),
            retired_tables: Vec::new(),
            retired_blobs: Vec::new(),
        })
    }

    /// Step 1 of 3, under the state lock: takes down what `edits` start from. `manifest` is the locked
    /// writer that they go to; see [`ManifestWriter`] for the whole sequence.
    ///
    /// Several edits become an atomic group: all of them take effect, or none. Edits of column families
    /// that were dropped meanwhile are left out; if none is left, the error says `ColumnFamilyDropped`.
    /// Without edits, the numbers of the database are recorded (for a new MANIFEST, say).
    pub fn prepare(&self, edits: Vec<VersionEdit>, manifest: &ManifestWriter) -> Result<PendingCommit> {
        self.prepare_for(edits, manifest, false)
    }
    /// The same for an operation that a user waits for: a new MANIFEST is rather begun by others.
    pub fn prepare_in_foreground(
        &self,
        edits: Vec<VersionEdit>,
        manifest: &ManifestWriter,
    ) -> Result<PendingCommit> {
        self.prepare_for(edits, manifest, true)
    }
    fn prepare_for(
        &self,
        mut edits: Vec<VersionEdit>,
        manifest: &ManifestWriter,
        waits: bool,
    ) -> Result<PendingCommit> {
        if edits.is_empty() {
            edits.push(VersionEdit::default());
        }
        let name_of = |id: ColumnFamilyId| format!("column family {} is not there", id.0);
        let first = edits[0].column_family;
        edits.retain(|edit| self.column_families.contains_key(&edit.column_family));
        if edits.is_empty() {
            return Err(Error::new(Code::ColumnFamilyDropped, name_of(first)));
        }
        let mut bases = BTreeMap::new();
        for edit in &edits {
            if edit.column_family_change.is_some() {
                return Err(Error::invalid_argument("column families come and go in commits of their own"));
            }
            if !wal_changes_stand_alone(edit) {
                return Err(Error::invalid_argument("WALs are added or deleted by edits of their own"));
            }
            let state = &self.column_families[&edit.column_family];
            if edit.log_number.is_some_and(|number| number < state.log_number) {
                return Err(Error::invalid_argument(format!(
                    "the log number of column family {} would go back from {}",
                    state.name, state.log_number
                )));
            }
            if changes_files(edit) {
                bases.insert(edit.column_family, state.current.clone());
            }
        }
        self.pending(edits, bases.into_iter().collect(), None, manifest, waits)
    }

    /// Step 1 of creating a column family, which gets the next id, whose first WAL is `log_number`, and which begins with
    /// `files`, each on a level.
    pub fn prepare_create(
        &self,
        config: &ColumnFamilyConfig,
        log_number: FileNumber,
        files: Vec<(usize, Arc<FileMetaData>)>,
        manifest: &ManifestWriter,
    ) -> Result<PendingCommit> {
        if config.name.is_empty() {
            return Err(Error::invalid_argument("a column family needs a name"));
        }
        if self.column_family_named(&config.name).is_some() {
            return Err(Error::invalid_argument(format!("Column family already exists: {}", config.name)));
        }
        let Some(id) = self.max_column_family.checked_add(1).map(ColumnFamilyId) else {
            return Err(Error::not_supported("more column families than there are ids"));
        };
        let mut state = ColumnFamilyState::new(id, config, log_number);
        let mut edit = introduction(&state);
        edit.log_number = Some(log_number);
        edit.max_column_family = Some(id.0);
        let (mut edits, mut bases) = (vec![edit], Vec::new());
        if !files.is_empty() {
            let mut edit = VersionEdit::new(id);
            for (level, file) in files {
                state.next_epoch_number = state.next_epoch_number.max(file.epoch_number.saturating_add(1));
                edit.add_file(level, file);
            }
            edits.push(edit);
            bases.push((id, Arc::clone(&state.current)));
        }
        self.pending(edits, bases, Some(state), manifest, true)
    }

    /// Step 1 of dropping a column family.
    pub fn prepare_drop(&self, id: ColumnFamilyId, manifest: &ManifestWriter) -> Result<PendingCommit> {
        if id == ColumnFamilyId::DEFAULT {
            return Err(Error::invalid_argument("Can't drop default column family"));
        }
        if !self.column_families.contains_key(&id) {
            return Err(Error::invalid_argument("Column family already dropped!"));
        }
        let mut edit = VersionEdit::new(id);
        edit.column_family_change = Some(ColumnFamilyChange::Drop);
        edit.max_column_family = Some(self.max_column_family);
        self.pending(vec![edit], Vec::new(), None, manifest, true)
    }

    /// Completes `edits` with the numbers of the database, which every record carries.
    fn pending(
        &self,
        mut edits: Vec<VersionEdit>,
        bases: Vec<(ColumnFamilyId, Arc<Version>)>,
        added: Option<ColumnFamilyState>,
        manifest: &ManifestWriter,
        waits: bool,
    ) -> Result<PendingCommit> {
        if !self.unlisted.is_empty() {
            return Err(Error::invalid_argument(
                "column families were left out, so nothing may be committed",
            ));
        }
        let target = match manifest.takes_more(waits) {
            Some(number) => Target::InForce(number),
            None => Target::New(self.snapshot(manifest)),
        };
        if let (Target::New(_), Some(first)) = (&target, edits.first_mut()) {
            first.max_column_family =
                first.max_column_family.max(Some(self.max_column_family)).filter(|&max| max > 0);
        }
        // The numbers of files that are brought in need not come from us.
        let next_of_files =
            edits.iter().flat_map(files_of).max().map_or(0, |number| number.0.saturating_add(1));
        let mut last_sequence = self.last_sequence;
        let count = edits.len();
        for (index, edit) in edits.iter_mut().enumerate() {
            let of_files = edit.new_files.iter().map(|(_, file)| file.largest_seqno).max();
            last_sequence =
                last_sequence.max(of_files.unwrap_or_default()).max(edit.last_sequence.unwrap_or_default());
            edit.last_sequence = Some(last_sequence);
            edit.prev_log_number = edit.prev_log_number.or(Some(self.prev_log_number));
            // Taken here, so that it is behind the number of a new MANIFEST.
            edit.next_file_number = Some(self.next_file_number().max(FileNumber(next_of_files)));
            edit.remaining_in_group = (count > 1).then_some((count - 1 - index) as u32);
        }
        Ok(PendingCommit { edits, bases, added, manifest: target })
    }

    fn snapshot(&self, manifest: &ManifestWriter) -> Snapshot {
        Snapshot {
            manifest_number: self.new_file_number(),
            db_id: self.db_id.clone().filter(|_| manifest.writes_db_id()),
            wals: self.wals.clone(),
            needed_wals: self.needed_wals.clone(),
            min_log_number_to_keep: self.min_log_number_to_keep,
            column_families: self.column_families.values().cloned().collect(),
        }
    }

    /// Step 3 of 3, under the state lock: makes a durable change visible.
    pub fn install(&mut self, change: CommittedChange) -> Installed {
        let CommittedChange { edits, versions, added, new_manifest } = change;
        if let Some(number) = new_manifest {
            // It is durable that this one is in force, so no other can be, and nothing else is named.
            self.manifest_number = number;
            self.doubtful_manifests.clear();
            self.doubtful_files.clear();
        }
        let mut installed = Installed { added: added.as_ref().map(|state| state.id), ..Installed::default() };
        if let Some(state) = added {
            self.max_column_family = self.max_column_family.max(state.id.0);
            self.column_families.insert(state.id, state);
        }
        for (id, built) in versions {
            let Some(state) = self.column_families.get_mut(&id) else {
                continue; // Cannot be: changes are serialized, and `prepare` saw it.
            };
            installed.replaced.push(std::mem::replace(&mut state.current, built.version.clone()));
            installed.versions.push((id, built.version));
            self.retired_tables.extend(built.removed);
            self.retired_blobs.extend(built.removed_blobs);
        }
        for edit in &edits {
            self.take_numbers(edit);
            if edit.column_family_change == Some(ColumnFamilyChange::Drop) {
                installed.dropped = self.column_families.remove(&edit.column_family);
            }
        }
        if let Some(state) = &installed.dropped {
            self.retired_tables.extend(state.current.all_files().map(|(_, file)| file.clone()));
            self.retired_blobs.extend(state.current.blob_files.values().cloned());
        }
        installed
    }

    fn take_numbers(&mut self, edit: &VersionEdit) {
        for addition in &edit.wal_additions {
            // A WAL that is created twice is refused when it is read; there is nothing to undo here.
            let _ = self.wals.add(addition);
        }
        if let Some(number) = edit.wal_deletion {
            self.wals.delete_before(number);
        }
        self.needed_wals.take(edit.min_log_number_to_keep, &edit.needed_wals);
        let next_file = edit.next_file_number.unwrap_or_default();
        self.next_file_number.fetch_max(next_file.0, Ordering::Relaxed);
        self.last_sequence = self.last_sequence.max(edit.last_sequence.unwrap_or_default());
        self.prev_log_number = edit.prev_log_number.unwrap_or(self.prev_log_number);
        self.min_log_number_to_keep =
            self.min_log_number_to_keep.max(edit.min_log_number_to_keep.unwrap_or_default());
        if let Some(id) = &edit.db_id {
            self.db_id = Some(id.clone());
        }
        if let Some(state) = self.column_families.get_mut(&edit.column_family) {
            state.log_number = state.log_number.max(edit.log_number.unwrap_or_default());
            if edit.full_history_ts_low.is_some() {
                state.full_history_ts_low.clone_from(&edit.full_history_ts_low);
            }
        }
    }

    /// Step 3 after a failure, under the state lock: takes note of the files that a MANIFEST may name
    /// now. They count as live until a later commit has started a new MANIFEST. Answers the error.
    #[allow(clippy::boxed_local)] // As `commit` hands it out.
    pub fn abandon(&mut self, failed: Box<FailedCommit>) -> Error {
        self.doubtful_files.extend(failed.files);
        self.doubtful_manifests.extend(failed.new_manifest);
        failed.error
    }

    /// All three steps, for callers that may hold the state across I/O (recovery, tools, tests).
    pub fn log_and_apply(
        &mut self,
        manifest: &mut ManifestWriter,
        edits: Vec<VersionEdit>,
    ) -> Result<Installed> {
        let pending = self.prepare(edits, manifest)?;
        self.commit(manifest, pending)
    }
    /// Steps 2 and 3, for the same callers.
    pub fn commit(&mut self, manifest: &mut ManifestWriter, pending: PendingCommit) -> Result<Installed> {
        match manifest.commit(pending) {
            Ok(change) => Ok(self.install(change)),
            Err(failed) => Err(self.abandon(failed)),
        }
    }

    /// The column families that are open, by id.
    pub fn column_families(&self) -> impl Iterator<Item = &ColumnFamilyState> {
        self.column_families.values()
    }
    /// A column family by id.
    pub fn column_family(&self, id: ColumnFamilyId) -> Option<&ColumnFamilyState> {
        self.column_families.get(&id)
    }
    /// A column family by name.
    pub fn column_family_named(&self, name: &str) -> Option<&ColumnFamilyState> {
        self.column_families.values().find(|state| state.name == name)
    }
    /// Column families that [`RecoverOptions::allow_unlisted`] left out.
    pub fn unlisted(&self) -> &BTreeMap<ColumnFamilyId, String> {
        &self.unlisted
    }
    /// The largest column family id ever used.
    pub fn max_column_family(&self) -> u32 {
        self.max_column_family
    }
    /// The epoch of a flush or an ingestion that starts now. Take it when the memtables are picked:
    /// of two files of level 0 the one with the larger epoch is the newer.
    ///
    /// # Panics
    /// If there is no such column family.
    pub fn new_epoch_number(&mut self, id: ColumnFamilyId) -> u64 {
        let state = self.column_families.get_mut(&id).expect("the caller holds an open column family");
        state.next_epoch_number += 1;
        state.next_epoch_number - 1
    }

    /// Hands out file numbers without the state lock.
    pub fn file_numbers(&self) -> FileNumbers {
        FileNumbers(self.next_file_number.clone())
    }
    /// A number for a new file. Never handed out again.
    pub fn new_file_number(&self) -> FileNumber {
        self.file_numbers().next()
    }
    /// The number that the next file gets.
    pub fn next_file_number(&self) -> FileNumber {
        FileNumber(self.next_file_number.load(Ordering::Relaxed))
    }
    /// Keeps `number` from being handed out: a file has it.
    pub fn mark_file_number_used(&self, number: FileNumber) {
        self.next_file_number.fetch_max(number.0.saturating_add(1), Ordering::Relaxed);
    }
    /// The newest write that tables hold, or held, by the MANIFEST.
    pub fn last_sequence(&self) -> SequenceNumber {
        self.last_sequence
    }
    /// Makes the next commit record `sequence`, if it is larger. Commits take the sequence numbers of
    /// the files that they add into account by themselves.
    pub fn raise_last_sequence(&mut self, sequence: SequenceNumber) {
        self.last_sequence = self.last_sequence.max(sequence);
    }
    /// LevelDB's second WAL, which is replayed first; 0 for none.
    pub fn prev_log_number(&self) -> FileNumber {
        self.prev_log_number
    }
    /// WALs below it are needed by nobody, prepared transactions included, as far as edits said so.
    pub fn min_log_number_to_keep(&self) -> FileNumber {
        self.min_log_number_to_keep
    }
    /// WALs below it hold nothing that tables lack, as far as the MANIFEST says.
    pub fn min_log_number(&self) -> FileNumber {
        let of_families = self.column_families.values().map(|state| state.log_number).min();
        of_families.unwrap_or_default().max(self.min_log_number_to_keep)
    }
    /// The database's id, if the MANIFEST has it.
    pub fn db_id(&self) -> Option<&str> {
        self.db_id.as_deref()
    }
    /// Sets the id that the next MANIFEST records.
    pub fn set_db_id(&mut self, id: String) {
        self.db_id = Some(id);
    }
    /// The WALs that the MANIFEST keeps track of.
    pub fn wals(&self) -> &WalSet {
        &self.wals
    }
    /// The WALs that must be there, with their durable sizes: those of `wals`, and those that flushes of
    /// Ironstone left behind.
    pub fn needed_wals(&self) -> impl Iterator<Item = WalAddition> + '_ {
        self.needed_wals.iter().chain(self.wals.iter())
    }
    /// What recovery dropped at the end of the MANIFEST: an append that was interrupted.
    pub fn torn_tail(&self) -> Option<&Damage> {
        self.torn_tail.as_ref()
    }
    /// The MANIFEST in force.
    pub fn manifest_number(&self) -> FileNumber {
        self.manifest_number
    }
    /// MANIFESTs that must stay: the one in force, and after failures those that may be.
    pub fn live_manifests(&self) -> BTreeSet<FileNumber> {
        self.doubtful_manifests.iter().copied().chain([self.manifest_number]).collect()
    }

    /// Every table and blob file that must stay: those of the current versions, those of older
    /// versions that were not taken as obsolete yet, and those of failed commits. Files that are being
    /// written are not among them.
    pub fn live_files(&self) -> HashSet<FileNumber> {
        let mut live = self.doubtful_files.clone();
        for state in self.column_families.values() {
            state.current.levels.iter().for_each(|level| live.extend(level.numbers()));
            live.extend(state.current.blob_files.keys());
        }
        live.extend(self.retired_tables.iter().map(|file| file.number));
        live.extend(self.retired_blobs.iter().map(|file| file.addition.number));
        live
    }
    /// The bytes of those tables that no version holds any more and nobody has taken yet.
    pub fn obsolete_bytes(&self) -> u64 {
        let free = self.retired_tables.iter().filter(|file| Arc::strong_count(file) == 1);
        free.map(|file| file.file_size).sum()
    }
    /// Tables that no version holds any more. They are the caller's to delete, and not named again.
    pub fn take_obsolete_files(&mut self) -> Vec<Arc<FileMetaData>> {
        let candidates = std::mem::take(&mut self.retired_tables);
        let (obsolete, held) = split_obsolete(
            candidates,
            |file| file.number,
            |number| {
                self.doubtful_files.contains(&number)
                    || self.column_families.values().any(|state| state.current.file(number).is_some())
            },
        );
        self.retired_tables = held;
        obsolete
    }
    /// Blob files likewise.
    pub fn take_obsolete_blob_files(&mut self) -> Vec<Arc<BlobFileMetaData>> {
        let candidates = std::mem::take(&mut self.retired_blobs);
        let (obsolete, held) = split_obsolete(
            candidates,
            |file| file.addition.number,
            |number| {
                self.doubtful_files.contains(&number)
                    || self
                        .column_families
                        .values()
                        .any(|state| state.current.blob_files.contains_key(&number))
            },
        );
        self.retired_blobs = held;
        obsolete
    }
}

impl ColumnFamilyState {
    fn new(id: ColumnFamilyId, config: &ColumnFamilyConfig, log_number: FileNumber) -> Self {
        Self {
            id,
            name: config.name.clone(),
            comparator: config.comparator.clone(),
            log_number,
            current: config.empty_version(),
            next_epoch_number: 1,
            full_history_ts_low: None,
            persist_user_defined_timestamps: None,
        }
    }
}

fn changes_files(edit: &VersionEdit) -> bool {
    !(edit.new_files.is_empty()
        && edit.deleted_files.is_empty()
        && edit.compact_cursors.is_empty()
        && edit.blob_file_additions.is_empty()
        && edit.blob_file_garbages.is_empty())
}

/// RocksDB takes nothing else from an edit that adds WALs or deletes them, and only one of the two.
fn wal_changes_stand_alone(edit: &VersionEdit) -> bool {
    let (adds, deletes) = (!edit.wal_additions.is_empty(), edit.wal_deletion.is_some());
    let other = changes_files(edit)
        || edit.log_number.is_some()
        || edit.comparator.is_some()
        || edit.full_history_ts_low.is_some();
    !(adds && deletes) && !((adds || deletes) && other)
}

/// Opens the MANIFEST that CURRENT names.
fn open_current(fs: &dyn FileSystem, dir: &Path, number: FileNumber) -> Result<ManifestReader> {
    let path = file_name::manifest(dir, number);
    ManifestReader::open(fs, &path).map_err(|error| match error.is_path_not_found() {
        true => Error::corruption_at(
            &file_name::current(dir),
            0,
            format!("it names MANIFEST-{:06}, which does not exist", number.0),
        ),
        false => error,
    })
}

/// A directory without CURRENT may hold a database that lost it. Creating one over it would delete
/// everything.
fn refuse_database(fs: &dyn FileSystem, dir: &Path, first: FileNumber) -> Result<()> {
    for name in fs.list(dir)? {
        let interrupted_creation = Some(FileKind::Manifest(first));
        match FileKind::parse(&name) {
            kind if kind == interrupted_creation => {}
            Some(FileKind::Current) => {
                return Err(Error::invalid_argument(format!("{} exists", dir.join(name).display())));
            }
            Some(FileKind::Wal(_) | FileKind::Table(_) | FileKind::Blob(_) | FileKind::Manifest(_)) => {
                return Err(Error::corruption(format!(
                    "{} belongs to a database whose CURRENT is missing; not creating another one over it",
                    dir.join(name).display()
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The names of a database's column families, by id. Reads CURRENT and the MANIFEST.
pub fn list_column_families(fs: &dyn FileSystem, dir: &Path) -> Result<Vec<String>> {
    let mut reader = open_current(fs, dir, current_manifest(fs, dir)?)?;
    let path = reader.path().to_owned();
    replay::names(|| reader.next_edit(), &path)
}

/// Checks that the MANIFEST still has what was durable of it when `witness` was written: a database
/// must not come back older than it was.
pub fn verify_manifest_witness(fs: &dyn FileSystem, dir: &Path, witness: &ManifestWitness) -> Result<()> {
    let in_force = current_manifest(fs, dir)?;
    if in_force > witness.number {
        return Ok(()); // A later one took its place.
    }
    let path = file_name::manifest(dir, in_force);
    if in_force < witness.number {
        let what = format!("CURRENT names it although MANIFEST-{:06} had taken its place", witness.number.0);
        return Err(Error::corruption_at(&path, 0, what));
    }
    let mut file = fs.open_sequential(&path)?;
    let mut chunk = vec![0; 64 << 10];
    let (mut left, mut crc) = (witness.size, 0);
    while left > 0 {
        let want = chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let count = file.read(&mut chunk[..want])?;
        if count == 0 {
            let what = format!("the MANIFEST ends here, {} bytes of it had been synced", witness.size);
            return Err(Error::corruption_at(&path, witness.size - left, what));
        }
        crc = crc32c_extend(crc, &chunk[..count]);
        left -= count as u64;
    }
    if crc != witness.crc {
        let what = format!(
            "the checksum of its first {} bytes is {crc:#010x}, and was {:#010x} when they were synced",
            witness.size, witness.crc
        );
        return Err(Error::corruption_at(&path, 0, what));
    }
    Ok(())
}

/// The name of the column family that every database has.
pub const DEFAULT_COLUMN_FAMILY_NAME: &str = DEFAULT_COLUMN_FAMILY;

#[cfg(test)]
mod tests;
