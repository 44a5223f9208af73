//! Backups: many states of a database in one directory, tables shared between them. The directory is RocksDB's.
//!
//! ```text
//! meta/N                                   what backup N consists of; there when it is complete
//! private/N/                               CURRENT, MANIFEST, OPTIONS and WALs of backup N
//! shared_checksum/000012_sSESSION_LENGTH.sst   tables, shared by the backups that name them
//! shared/                                  the same in old directories: read, not written
//! ```

mod meta_file;
mod progress;
mod restore;

use crate::Db;
use crate::background::job::write_options;
use crate::file_copy::{copy_watched, read_through};
use crate::open::make_durable_dir;
use crate::parallel::in_parallel;
use crate::storage_files::{
    Captured, KeptFiles, LiveFilesStorageInfoOptions, StorageFile, capture, check_one_directory,
};
use crate::table_cache::TableSlot;
use ironstone_base::statistics::Ticker;
use ironstone_base::sync::Arc;
use ironstone_base::{Error, FileKind, FileNumber, Result};
use ironstone_sst::{FileChecksumContext, FileChecksumGenerator};
use ironstone_version::ManifestReader;
use ironstone_vfs::{Env, FileSystem, RateLimiter, WriteOptions};
use meta_file::{BackupFile, MetaFile};
use progress::Progress;
pub use restore::{RestoreMode, RestoreOptions};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

/// Names a backup in its directory. Later backups have larger ones.
pub type BackupId = u32;

/// Where backups are and how they are made. Names, meanings and defaults are RocksDB's.
#[derive(Clone)]
pub struct BackupEngineOptions {
    /// The directory that holds them.
    pub backup_dir: PathBuf,
    /// The file system that this directory is on, and the clock. Default: the operating system's.
    pub env: Env,
    /// Backups that have a table in common share one copy. Default true; without, each has copies of its own.
    pub share_table_files: bool,
    /// Sync what is written, so that a backup that was made survives a power failure. Default true.
    pub sync: bool,
    /// Remove all backups that are there when the engine is opened. Default false.
    pub destroy_old_data: bool,
    /// Include WALs, so that a backup has every write without a flush. Default true. Without, each backup flushes.
    pub backup_log_files: bool,
    /// Which version of meta files is written: 1, the default, or 2, which RocksDB reads since 6.19.
    pub schema_version: u32,
    /// Paces the copies that backups make; may be shared, with databases too. Default none. (RocksDB's `backup_rate_limit`
    /// is a [`GenericRateLimiter`](crate::GenericRateLimiter) of its own.) What is read to be checked is not paced.
    pub backup_rate_limiter: Option<Arc<dyn RateLimiter>>,
    /// Paces the copies that restoring makes. Default none.
    pub restore_rate_limiter: Option<Arc<dyn RateLimiter>>,
    /// How many threads copy or read files when a backup is made, restored or verified. Default 1: the caller's.
    pub max_background_operations: usize,
    /// After how many more bytes that were copied [`CreateBackupOptions::progress_callback`] is called. Default 4 MiB.
    pub callback_trigger_interval_size: u64,
}

impl BackupEngineOptions {
    /// The defaults, for backups in `backup_dir`.
    pub fn new(backup_dir: impl Into<PathBuf>) -> Self {
        Self {
            backup_dir: backup_dir.into(),
            env: Env::os(),
            share_table_files: true,
            sync: true,
            destroy_old_data: false,
            backup_log_files: true,
            schema_version: 1,
            backup_rate_limiter: None,
            restore_rate_limiter: None,
            max_background_operations: 1,
            callback_trigger_interval_size: 4 << 20,
        }
    }
}

/// How one backup is made.
#[derive(Clone, Default)]
pub struct CreateBackupOptions {
    /// Flush all memtables first instead of taking WALs along. Default false.
    pub flush_before_backup: bool,
    /// If memtables are flushed, all column families are, to one point: what was written without WAL is in all of them or in none,
    /// and so is everything in a backup without WALs ([`BackupEngineOptions::backup_log_files`]). See
    /// [`LiveFilesStorageInfoOptions::atomic_flush`]. Default false.
    pub atomic_flush: bool,
    /// Kept with the backup, for the application. Default empty.
    pub app_metadata: Vec<u8>,
    /// Chooses tables that are left out, because other directories of backups have them: the backup names them, and
    /// [`RestoreOptions::alternate_dirs`] says where they are. Asked once, with all tables that backups may share. Needs
    /// `schema_version` 2 and `share_table_files`. Default none.
    pub exclude_files_callback: Option<ExcludeFilesCallback>,
    /// Called while files are copied, each time that [`BackupEngineOptions::callback_trigger_interval_size`] more bytes were, of
    /// all files together; by the thread that copies, so by several at once if several copy. Default none.
    pub progress_callback: Option<ProgressCallback>,
}

/// See [`CreateBackupOptions::progress_callback`].
pub type ProgressCallback = Arc<dyn Fn() + Send + Sync>;

/// See [`CreateBackupOptions::exclude_files_callback`].
pub type ExcludeFilesCallback = Arc<dyn Fn(&mut [MaybeExcludeBackupFile]) + Send + Sync>;

/// A table that may be left out of a backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MaybeExcludeBackupFile {
    /// Its path below the directory of the backups. Tables of the same path are the same in all of them.
    pub relative_file: String,
    /// To be set if it is to be left out.
    pub exclude_decision: bool,
}

impl fmt::Debug for CreateBackupOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreateBackupOptions")
            .field("flush_before_backup", &self.flush_before_backup)
            .field("atomic_flush", &self.atomic_flush)
            .field("app_metadata", &self.app_metadata)
            .field("exclude_files_callback", &self.exclude_files_callback.is_some())
            .field("progress_callback", &self.progress_callback.is_some())
            .finish()
    }
}

/// What is known about a backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackupInfo {
    /// Names it.
    pub id: BackupId,
    /// When it was made, in seconds since 1970.
    pub timestamp: u64,
    /// The bytes of all its files, shared ones included.
    pub size: u64,
    /// How many files it has.
    pub number_files: usize,
    /// The last write that is surely in it.
    pub sequence: u64,
    /// What the application gave along.
    pub app_metadata: Vec<u8>,
    /// Tables that were left out, below the directory of the backups; `size` and `number_files` are without them.
    pub excluded_files: Vec<String>,
    /// Its files, if they were asked for ([`BackupEngine::backup_info`]).
    pub file_details: Vec<BackupFileInfo>,
}

/// A file of a backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackupFileInfo {
    /// Its path below the directory of the backups.
    pub relative_filename: String,
    /// How many bytes it has.
    pub size: u64,
}

/// Makes, lists, checks, restores and removes the backups of a directory. One engine at a time may change it.
///
/// ```
/// use ironstone::{BackupEngine, BackupEngineOptions, Db, Options, RestoreOptions};
///
/// # fn main() -> ironstone::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let mut options = Options::default();
/// # options.db.create_if_missing = true;
/// let db = Db::open(&options, dir.path().join("db"))?;
/// db.put(b"iron", b"Fe")?;
/// let mut backups = BackupEngine::open(BackupEngineOptions::new(dir.path().join("backups")))?;
/// let id = backups.create_backup(&db)?;
/// db.delete(b"iron")?;
/// drop(db);
///
/// backups.verify(id, true)?;
/// let path = dir.path().join("db");
/// backups.restore(id, &options.db, &path, &path, &RestoreOptions::default())?;
/// assert!(Db::open(&options, &path)?.get(b"iron")?.is_some());
/// # Ok(())
/// # }
/// ```
pub struct BackupEngine {
    options: BackupEngineOptions,
    read_only: bool,
    backups: BTreeMap<BackupId, MetaFile>,
    corrupt: BTreeMap<BackupId, Corrupt>,
}

/// A backup that cannot be used.
struct Corrupt {
    error: Error,
    /// What its meta file names, if that could be read: it may be mended by hand.
    files: Vec<String>,
}

/// The name that the MANIFEST has for RocksDB's function of whole files.
const CRC32C: &str = "FileChecksumCrc32c";
const META: &str = "meta";
const PRIVATE: &str = "private";
const SHARED: &str = "shared";
const SHARED_CHECKSUM: &str = "shared_checksum";

impl BackupEngine {
    /// Opens the directory, and makes it if it is not there. Backups whose files are missing or have another length
    /// are set aside, see [`corrupt_backups`](Self::corrupt_backups).
    pub fn open(options: BackupEngineOptions) -> Result<Self> {
        if options.schema_version != 1 && options.schema_version != 2 {
            let what = format!("backups with schema version {}", options.schema_version);
            return Err(Error::not_supported(what));
        }
        let mut engine =
            Self { options, read_only: false, backups: BTreeMap::new(), corrupt: BTreeMap::new() };
        for dir in ["", SHARED_CHECKSUM, PRIVATE, META] {
            make_durable_dir(engine.fs(), &engine.at(dir), false)?;
        }
        engine.load()?;
        if engine.options.destroy_old_data {
            engine.purge_old_backups(0)?;
            let corrupt: Vec<BackupId> = engine.corrupt.keys().copied().collect();
            corrupt.into_iter().try_for_each(|id| engine.delete_backup(id))?;
            engine.collect_garbage()?;
        }
        Ok(engine)
    }

    /// Opens the directory to list, verify and restore: nothing in it is changed.
    pub fn open_read_only(options: BackupEngineOptions) -> Result<Self> {
        let mut engine =
            Self { options, read_only: true, backups: BTreeMap::new(), corrupt: BTreeMap::new() };
        engine.load()?;
        Ok(engine)
    }

    fn fs(&self) -> &dyn FileSystem {
        &*self.options.env.fs
    }
    fn at(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.options.backup_dir.clone() } else { self.options.backup_dir.join(path) }
    }
    fn names(&self, dir: &str) -> Result<Vec<String>> {
        let path = self.at(dir);
        if self.fs().exists(&path)? { self.fs().list(&path) } else { Ok(Vec::new()) }
    }
    fn check_writable(&self) -> Result<()> {
        match self.read_only {
            true => Err(Error::not_supported("changing backups that are open for reading only")),
            false => Ok(()),
        }
    }

    fn load(&mut self) -> Result<()> {
        for name in self.names(META)? {
            let Ok(id) = name.parse::<BackupId>() else { continue };
            let bytes = self.fs().read_all(&self.at(META).join(&name))?;
            let meta = MetaFile::decode(&String::from_utf8_lossy(&bytes));
            let files =
                meta.iter().flat_map(|meta| meta.files.iter().map(|file| file.path.clone())).collect();
            match meta.and_then(|meta| self.with_sizes(meta)) {
                Ok(meta) => drop(self.backups.insert(id, meta)),
                Err(error) => {
                    let error = error.context(self.at(META).join(&name).display());
                    self.corrupt.insert(id, Corrupt { error, files });
                }
            }
        }
        Ok(())
    }

    /// Checks that each file is there in its length.
    fn with_sizes(&self, mut meta: MetaFile) -> Result<MetaFile> {
        for file in &mut meta.files {
            let path = self.at(&file.path);
            let found = self.fs().size(&path).map_err(|error| match error.is_path_not_found() {
                true => Error::corruption(format!("{} is missing", path.display())),
                false => error,
            })?;
            let expected = *file.size.get_or_insert(found);
            if expected != found {
                return Err(wrong_length(&path, found, expected));
            }
        }
        Ok(meta)
    }

    // ---- making ----

    /// Makes a backup of `db` with every write that returned before. Tables that an earlier backup has are not
    /// copied again. Writes go on meanwhile.
    pub fn create_backup(&mut self, db: &Db) -> Result<BackupId> {
        self.create_backup_with(db, &CreateBackupOptions::default())
    }

    /// The same with `options`. `InvalidArgument` if files are to be excluded and `schema_version` is 1. After an error or a crash the backups that were there are as they were; what is left
    /// of this one goes with the next [`collect_garbage`](Self::collect_garbage).
    pub fn create_backup_with(&mut self, db: &Db, options: &CreateBackupOptions) -> Result<BackupId> {
        self.check_writable()?;
        if options.exclude_files_callback.is_some() && self.options.schema_version < 2 {
            return Err(Error::invalid_argument("exclude_files_callback requires schema_version >= 2"));
        }
        check_one_directory(db.engine(), "backups")?;
        let latest = self.backups.keys().chain(self.corrupt.keys()).max();
        let id = latest.map_or(1, |latest| latest + 1);
        let private = format!("{PRIVATE}/{id}");
        if self.fs().exists(&self.at(&private))? {
            self.collect_garbage()?;
        }
        let flushes = options.flush_before_backup || !self.options.backup_log_files;
        let _kept = KeptFiles::of(db);
        let listing = LiveFilesStorageInfoOptions {
            wal_size_for_flush: if flushes { 0 } else { u64::MAX },
            atomic_flush: options.atomic_flush,
        };
        let mut captured = capture(db.engine(), &listing)?;
        if !self.options.backup_log_files {
            captured.sequence = captured.in_tables; // What was logged since stays behind.
        }
        let made = self.copy_all(db, &captured, id, options);
        match made {
            Ok(meta) => {
                self.backups.insert(id, meta);
                Ok(id)
            }
            Err(error) => {
                let _ = self.collect_garbage(); // The first failure is the one to tell.
                Err(error)
            }
        }
    }

    fn copy_all(
        &self,
        db: &Db,
        captured: &Captured,
        id: BackupId,
        options: &CreateBackupOptions,
    ) -> Result<MetaFile> {
        let mut meta = MetaFile {
            timestamp: self.options.env.clock.now_seconds(),
            sequence: captured.sequence.0,
            app_metadata: options.app_metadata.clone(),
            files: Vec::new(),
            excluded: self.excluded(db, captured, options)?,
        };
        self.fs().create_dir_all(&self.at(&format!("{PRIVATE}/{id}")))?;
        let known = self.known_files();
        let callback = options.progress_callback.as_ref();
        let progress = Progress::new(callback, self.options.callback_trigger_interval_size);
        let copies = in_parallel(self.options.max_background_operations, &captured.files, |index, file| {
            if matches!(file.kind, FileKind::Wal(_)) && !self.options.backup_log_files {
                return Ok(None);
            }
            match captured.tables.get(index) {
                Some(slot) if self.options.share_table_files => {
                    let name = shared_name_of(db, file, slot)?;
                    match meta.excluded.contains(&format!("{SHARED_CHECKSUM}/{name}")) {
                        true => Ok(None),
                        false => self.copy_shared(db, file, &name, &known, &progress).map(Some),
                    }
                }
                _ => self.copy_private(db, file, id, &progress).map(Some),
            }
        })?;
        meta.files = copies.into_iter().flatten().collect();
        let name = |suffix| format!("{PRIVATE}/{id}{suffix}");
        self.sync_dirs(&[&name(""), PRIVATE, SHARED_CHECKSUM])?;
        // From here on it is there.
        let (temporary, last) =
            (self.at(META).join(format!(".{id}.tmp")), self.at(META).join(id.to_string()));
        let mut file = self.fs().create(&temporary, WriteOptions::default())?;
        file.append(meta.encode(self.options.schema_version).as_bytes())?;
        if self.options.sync {
            file.sync()?;
        }
        file.close()?;
        self.fs().rename(&temporary, &last)?;
        self.sync_dirs(&[META])?;
        Ok(meta)
    }

    /// The shared tables that the application wants left out.
    fn excluded(&self, db: &Db, captured: &Captured, options: &CreateBackupOptions) -> Result<Vec<String>> {
        let Some(callback) =
            options.exclude_files_callback.as_ref().filter(|_| self.options.share_table_files)
        else {
            return Ok(Vec::new());
        };
        let candidate = |(file, slot): (&StorageFile, &Arc<TableSlot>)| {
            let relative_file = format!("{SHARED_CHECKSUM}/{}", shared_name_of(db, file, slot)?);
            Ok(MaybeExcludeBackupFile { relative_file, exclude_decision: false })
        };
        let shared = captured.files.iter().zip(&captured.tables);
        let mut candidates = shared.map(candidate).collect::<Result<Vec<_>>>()?;
        callback(&mut candidates);
        candidates.retain(|file| file.exclude_decision);
        Ok(candidates.into_iter().map(|file| file.relative_file).collect())
    }

    /// The files of all backups, by path.
    fn known_files(&self) -> HashMap<String, BackupFile> {
        let files = self.backups.values().flat_map(|meta| &meta.files);
        files.map(|file| (file.path.clone(), file.clone())).collect()
    }

    fn copy_private(
        &self,
        db: &Db,
        file: &StorageFile,
        id: BackupId,
        progress: &Progress<'_>,
    ) -> Result<BackupFile> {
        let path = format!("{PRIVATE}/{id}/{}", file.name);
        let crc = match &file.replacement_contents {
            None => self.copy_here(db, file, &self.at(&path), progress)?,
            Some(contents) => {
                let mut target = self.fs().create(&self.at(&path), WriteOptions::default())?;
                target.append(contents)?;
                if self.options.sync {
                    target.sync()?;
                }
                target.close()?;
                ironstone_base::checksum::crc32c(contents)
            }
        };
        Ok(BackupFile { path, crc: Some(crc), size: Some(file.size) })
    }

    fn copy_shared(
        &self,
        db: &Db,
        file: &StorageFile,
        name: &str,
        known: &HashMap<String, BackupFile>,
        progress: &Progress<'_>,
    ) -> Result<BackupFile> {
        let path = format!("{SHARED_CHECKSUM}/{name}");
        if let Some(shared) = known.get(&path) {
            if shared.size != Some(file.size) {
                return Err(wrong_length(&self.at(&path), shared.size.unwrap_or(0), file.size));
            }
            let crc = match shared.crc {
                Some(crc) => crc,
                None => read_through(self.fs(), &self.at(&path), file.size, |_| Ok(()))?,
            };
            check_with_manifest(&self.at(&path), crc32c_in_manifest(file), crc)?;
            return Ok(BackupFile { crc: Some(crc), ..shared.clone() });
        }
        let temporary = self.at(SHARED_CHECKSUM).join(format!(".{name}.tmp"));
        let crc = self.copy_here(db, file, &temporary, progress)?;
        self.fs().rename(&temporary, &self.at(&path))?;
        Ok(BackupFile { path, crc: Some(crc), size: Some(file.size) })
    }

    /// Copies a file, and compares what was read with the checksum that the MANIFEST has for all of it.
    fn copy_here(&self, db: &Db, file: &StorageFile, to: &Path, progress: &Progress<'_>) -> Result<u32> {
        let source = &*db.engine().env.fs;
        let writing = WriteOptions { direct: false, ..write_options(&db.options()) };
        let (from, limiter) = (file.path(), self.options.backup_rate_limiter.as_deref());
        let (target, sync) = ((self.fs(), to), self.options.sync);
        let mut generator = generator_of(db, file, &from);
        let crc = copy_watched((source, &from), target, file.size, writing, sync, limiter, |bytes| {
            progress.add(bytes.len() as u64);
            if let Some(generator) = &mut generator {
                generator.update(bytes);
            }
        })?;
        check_with_manifest(&from, crc32c_in_manifest(file), crc)?;
        if let Some(found) = generator.map(|generator| generator.checksum())
            && found != file.file_checksum
        {
            return Err(differs_from_manifest(&from, &found, &file.file_checksum));
        }
        db.engine().count(Ticker::BackupReadBytes, file.size);
        db.engine().count(Ticker::BackupWriteBytes, file.size);
        Ok(crc)
    }

    fn sync_dirs(&self, dirs: &[&str]) -> Result<()> {
        if !self.options.sync {
            return Ok(());
        }
        dirs.iter().try_for_each(|dir| self.fs().open_directory(&self.at(dir))?.sync())
    }

    // ---- looking ----

    /// The backups that can be restored, oldest first, without the details of their files.
    pub fn backups(&self) -> Vec<BackupInfo> {
        self.backups.iter().map(|(&id, meta)| info_of(id, meta, false)).collect()
    }

    /// What is known about one backup; with `include_file_details` about its files too. `NotFound` if there is none of that id,
    /// and what is wrong with it if it cannot be restored.
    pub fn backup_info(&self, id: BackupId, include_file_details: bool) -> Result<BackupInfo> {
        Ok(info_of(id, self.find(id)?, include_file_details))
    }

    /// The backups that cannot be restored, and why.
    pub fn corrupt_backups(&self) -> Vec<(BackupId, Error)> {
        self.corrupt.iter().map(|(&id, corrupt)| (id, corrupt.error.clone())).collect()
    }

    /// The names and lengths of a backup's files, below the backup directory.
    pub fn backup_files(&self, id: BackupId) -> Result<Vec<(PathBuf, u64)>> {
        let files = self.find(id)?.files.iter();
        Ok(files.map(|file| (self.at(&file.path), file.size.unwrap_or(0))).collect())
    }

    fn find(&self, id: BackupId) -> Result<&MetaFile> {
        if let Some(corrupt) = self.corrupt.get(&id) {
            return Err(corrupt.error.clone());
        }
        self.backups.get(&id).ok_or_else(|| Error::not_found(format!("backup {id}")))
    }

    /// Checks that a backup's files are there in their length, and with `checksums` that they hold what was written: by the
    /// checksums that the backup has, and by those of whole tables that its MANIFEST has, if they are RocksDB's CRC-32C. Tables
    /// that were left out are not looked for.
    ///
    /// # Errors
    /// `NotFound` if there is no such backup, `Corruption` naming the file that is wrong.
    pub fn verify(&self, id: BackupId, checksums: bool) -> Result<()> {
        let meta = self.with_sizes(self.find(id)?.clone())?;
        if !checksums {
            return Ok(());
        }
        let found = in_parallel(self.options.max_background_operations, &meta.files, |_, file| {
            let path = self.at(&file.path);
            let found = read_through(self.fs(), &path, file.size.unwrap_or(0), |_| Ok(()))?;
            check_crc(&path, file, found)?;
            Ok(found)
        })?;
        let stated = self.crc32c_in_manifest_of(&meta)?;
        for (file, found) in meta.files.iter().zip(found) {
            let number = restore::database_name(&file.path).ok().and_then(|name| FileKind::parse(&name));
            if let Some(FileKind::Table(number)) = number {
                check_with_manifest(&self.at(&file.path), stated.get(&number).copied(), found)?;
            }
        }
        Ok(())
    }

    /// The checksums of whole tables that the MANIFEST in a backup has, those that are CRC-32C.
    fn crc32c_in_manifest_of(&self, meta: &MetaFile) -> Result<HashMap<FileNumber, u32>> {
        let mut stated = HashMap::new();
        let is_manifest = |file: &&BackupFile| {
            let name = restore::database_name(&file.path).ok();
            matches!(name.and_then(|name| FileKind::parse(&name)), Some(FileKind::Manifest(_)))
        };
        for file in meta.files.iter().filter(is_manifest) {
            let mut edits = ManifestReader::open(self.fs(), &self.at(&file.path))?;
            while let Some(record) = edits.next_edit()? {
                for (_, table) in &record.edit.new_files {
                    let crc = crc32c_of(&table.file_checksum_func_name, &table.file_checksum);
                    stated.extend(crc.map(|crc| (table.number, crc)));
                }
            }
        }
        Ok(stated)
    }

    // ---- removing ----

    /// Removes a backup, and the files that no other one has. `NotFound` if there is none.
    pub fn delete_backup(&mut self, id: BackupId) -> Result<()> {
        self.check_writable()?;
        if !self.backups.contains_key(&id) && !self.corrupt.contains_key(&id) {
            return Err(Error::not_found(format!("backup {id}")));
        }
        self.fs().remove(&self.at(META).join(id.to_string()))?;
        // Durable before the first of its files goes: a backup that is listed is whole.
        self.sync_dirs(&[META])?;
        self.backups.remove(&id);
        self.corrupt.remove(&id);
        self.collect_garbage()
    }

    /// Removes the oldest backups, so that `keep` are left.
    pub fn purge_old_backups(&mut self, keep: usize) -> Result<()> {
        self.check_writable()?;
        let excess = self.backups.len().saturating_sub(keep);
        let old: Vec<BackupId> = self.backups.keys().copied().take(excess).collect();
        old.into_iter().try_for_each(|id| self.delete_backup(id))
    }

    /// Removes what no backup has: what was left when making or removing one was interrupted.
    pub fn collect_garbage(&mut self) -> Result<()> {
        self.check_writable()?;
        let used: HashSet<&str> = {
            let good = self.backups.values().flat_map(|meta| meta.files.iter().map(|file| &*file.path));
            let bad = self.corrupt.values().flat_map(|corrupt| corrupt.files.iter().map(|path| &**path));
            good.chain(bad).collect()
        };
        // A backup whose meta file cannot be read may have any of them.
        let unreadable = self.corrupt.values().any(|corrupt| corrupt.files.is_empty());
        for dir in [SHARED_CHECKSUM, SHARED] {
            for name in self.names(dir)? {
                let path = format!("{dir}/{name}");
                let is_unfinished = name.starts_with('.') && name.ends_with(".tmp");
                if is_unfinished || (!used.contains(&*path) && !unreadable) {
                    self.fs().remove(&self.at(&path))?;
                }
            }
        }
        for name in self.names(PRIVATE)? {
            let number = name.parse::<BackupId>().ok();
            let is_known =
                number.is_some_and(|id| self.backups.contains_key(&id) || self.corrupt.contains_key(&id));
            if is_known || (number.is_none() && !name.ends_with(".tmp")) {
                continue;
            }
            let dir = format!("{PRIVATE}/{name}");
            for file in self.names(&dir)? {
                self.fs().remove(&self.at(&format!("{dir}/{file}")))?;
            }
            self.fs().remove_dir(&self.at(&dir))?;
        }
        for name in self.names(META)?.iter().filter(|name| name.starts_with('.') && name.ends_with(".tmp")) {
            self.fs().remove(&self.at(META).join(name))?;
        }
        Ok(())
    }
}

fn info_of(id: BackupId, meta: &MetaFile, include_file_details: bool) -> BackupInfo {
    let details = meta
        .files
        .iter()
        .filter(|_| include_file_details)
        .map(|file| BackupFileInfo { relative_filename: file.path.clone(), size: file.size.unwrap_or(0) });
    BackupInfo {
        id,
        timestamp: meta.timestamp,
        size: meta.files.iter().filter_map(|file| file.size).sum(),
        number_files: meta.files.len(),
        sequence: meta.sequence,
        app_metadata: meta.app_metadata.clone(),
        excluded_files: meta.excluded.clone(),
        file_details: details.collect(),
    }
}

/// The checksum of a whole file, if it is by RocksDB's function.
fn crc32c_of(function: &str, checksum: &[u8]) -> Option<u32> {
    let bytes = checksum.try_into().ok().filter(|_| function == CRC32C)?;
    Some(u32::from_be_bytes(bytes))
}
fn crc32c_in_manifest(file: &StorageFile) -> Option<u32> {
    crc32c_of(&file.file_checksum_func_name, &file.file_checksum)
}

/// Makes the checksum that the MANIFEST has for a file, if that is by a function of the application's that the database
/// knows.
fn generator_of(db: &Db, file: &StorageFile, path: &Path) -> Option<Box<dyn FileChecksumGenerator>> {
    let function = &*file.file_checksum_func_name;
    if file.file_checksum.is_empty() || function == CRC32C {
        return None;
    }
    let factory = db.options().file_checksum_gen_factory.clone()?;
    let generator =
        factory.create(&FileChecksumContext { file_name: path, requested_function: Some(function) });
    Some(generator).filter(|generator| generator.name() == function)
}

fn check_with_manifest(path: &Path, stated: Option<u32>, found: u32) -> Result<()> {
    match stated {
        Some(stated) if stated != found => {
            Err(differs_from_manifest(path, &found.to_be_bytes(), &stated.to_be_bytes()))
        }
        _ => Ok(()),
    }
}

#[cold]
fn differs_from_manifest(path: &Path, found: &[u8], stated: &[u8]) -> Error {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (found, stated) = (hex(found), hex(stated));
    Error::corruption_at(
        path,
        0,
        format!("the whole file's checksum is {found}, but the MANIFEST says {stated}"),
    )
}

/// The name that a table has among shared ones.
fn shared_name_of(db: &Db, file: &StorageFile, slot: &Arc<TableSlot>) -> Result<String> {
    let source = &*db.engine().env.fs;
    let session = slot.reader()?.properties().db_session_id.clone();
    if session.is_empty() {
        // Old tables do not say which opening of a database made them; then their contents tell them apart.
        let tag = read_through(source, &file.path(), file.size, |_| Ok(()))?.to_string();
        return Ok(tagged_name(&file.name, &tag, file.size));
    }
    Ok(shared_name(&file.name, &session, file.size))
}

/// The same for a table of `size` bytes that `session` made.
fn shared_name(name: &str, session: &str, size: u64) -> String {
    tagged_name(name, &format!("s{session}"), size)
}

fn tagged_name(name: &str, tag: &str, size: u64) -> String {
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, "sst"));
    format!("{stem}_{tag}_{size}.{extension}")
}

fn check_crc(path: &Path, file: &BackupFile, found: u32) -> Result<()> {
    match file.crc {
        Some(crc) if crc != found => Err(Error::corruption_at(
            path,
            0,
            format!("checksum of the whole file is {found:#010x}, the backup says {crc:#010x}"),
        )),
        _ => Ok(()),
    }
}

fn wrong_length(path: &Path, found: u64, expected: u64) -> Error {
    let what = format!("the file has {found} bytes, but should have {expected}");
    Error::corruption_at(path, found.min(expected), what)
}
