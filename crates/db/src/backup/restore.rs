//! Restoring: which files a backup needs, where they are, and which of the database's own are as good.

use super::meta_file::{BackupFile, MetaFile};
use super::{BackupEngine, BackupId, SHARED_CHECKSUM, check_crc, shared_name};
use crate::background::job::write_options;
use crate::file_copy::{copy_between, read_through, sync_file};
use crate::open::make_durable_dir;
use crate::parallel::in_parallel;
use ironstone_base::sync::Arc;
use ironstone_base::{Error, FileKind, FileNumber, Result, UserComparator, file_name};
use ironstone_sst::{OpenOptions, TableOptions, TableReader};
use ironstone_vfs::{FileSystem, OpenHints, WriteOptions};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::path::Path;

/// Which files of the database that is there may stay when it is restored. Names and numbers are RocksDB's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum RestoreMode {
    /// Tables of which number, length and the session that made them are those of the backup: they are not read. For
    /// databases that are healthy, or of which files are missing. Only tables that name their session and are shared
    /// in the backup (`share_table_files`) can stay; excluded ones need not be in any directory of backups then.
    KeepLatestDbSessionIdFiles = 1,
    /// Tables whose contents are those of the backup: all are read. For databases of which a few files are damaged.
    VerifyChecksum = 2,
    /// None: everything is copied.
    #[default]
    PurgeAllFiles = 0xffff,
}

/// How a backup is restored.
#[derive(Clone, Default)]
pub struct RestoreOptions<'a> {
    /// Keep the WALs that are there, those in the archive included, to replay them over the backup: for backups
    /// without WALs of a database that has lost its tables. Default false.
    pub keep_log_files: bool,
    /// Where files are that were excluded when the backup was made, besides the directory of the backup itself.
    /// Default empty.
    pub alternate_dirs: Vec<&'a BackupEngine>,
    /// Which files may stay. Default none.
    pub mode: RestoreMode,
}

impl fmt::Debug for RestoreOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dirs: Vec<_> = self.alternate_dirs.iter().map(|engine| &engine.options.backup_dir).collect();
        f.debug_struct("RestoreOptions")
            .field("keep_log_files", &self.keep_log_files)
            .field("alternate_dirs", &dirs)
            .field("mode", &self.mode)
            .finish()
    }
}

/// A file that is needed, and who has it.
struct Wanted<'a> {
    engine: &'a BackupEngine,
    file: BackupFile,
    /// What it is called in the database.
    name: String,
}

impl BackupEngine {
    /// Makes the database in `db_dir`, with its WALs in `wal_dir`, what backup `id` holds. What a database has there
    /// goes away first, but for tables that may stay (`options.mode`); other files stay. `db_options` say which file
    /// system that is.
    ///
    /// # Errors
    /// `IoError` if the database is open. `InvalidArgument` if a file was excluded from the backup and nobody has it.
    /// Nothing was changed then. `Corruption` if a file is not what it was when it was backed up. A directory that was
    /// restored in part has no CURRENT and does not open.
    pub fn restore(
        &self,
        id: BackupId,
        db_options: &crate::DbOptions,
        db_dir: impl AsRef<Path>,
        wal_dir: impl AsRef<Path>,
        options: &RestoreOptions<'_>,
    ) -> Result<()> {
        let meta = self.with_sizes(self.find(id)?.clone())?;
        let (db_dir, wal_dir) = (db_dir.as_ref(), wal_dir.as_ref());
        let fs = &*db_options.env.fs;
        make_durable_dir(fs, db_dir, false)?;
        make_durable_dir(fs, wal_dir, false)?;
        let _lock = fs.lock(&file_name::lock(db_dir))?;
        let (wanted, missing) = self.wanted(&meta, options)?;
        if !wanted.iter().any(|wanted| FileKind::parse(&wanted.name) == Some(FileKind::Current)) {
            return Err(Error::corruption(format!("backup {id} has no CURRENT")));
        }
        let kept = self.as_good(fs, db_dir, &wanted, &missing, options.mode)?;
        let still_missing = missing.iter().filter(|path| !kept.contains_key(*path));
        if let Some(path) = still_missing.clone().next() {
            return Err(Error::invalid_argument(format!(
                "backup {id}: Excluded file {path} (one amongst {}) not found in any of {} alternate backup directories, \
                 and {} has none that may stay",
                still_missing.count(),
                options.alternate_dirs.len(),
                db_dir.display()
            )));
        }

        let kept: HashSet<String> = kept.into_values().collect();
        let writing = WriteOptions { direct: false, ..write_options(db_options) };
        if self.options.sync {
            // What is there may be a copy that never became durable.
            kept.iter().try_for_each(|name| sync_file(fs, &db_dir.join(name), writing))?;
        }
        clear(fs, db_dir, wal_dir, options.keep_log_files, &kept)?;
        let unnamed = file_name::temporary(db_dir, FileNumber(0));
        let restored: HashSet<String> = wanted.iter().map(|wanted| wanted.name.clone()).collect();
        in_parallel(self.options.max_background_operations, &wanted, |_, Wanted { engine, file, name }| {
            if !kept.contains(name) {
                let to = match FileKind::parse(name) {
                    Some(FileKind::Wal(_)) => wal_dir.join(name),
                    Some(FileKind::Current) => unnamed.clone(),
                    _ => db_dir.join(name),
                };
                let (from, size) = (engine.at(&file.path), file.size.unwrap_or(0));
                let limiter = self.options.restore_rate_limiter.as_deref();
                let source = (engine.fs(), from.as_path());
                let crc = copy_between(source, (fs, &to), size, writing, self.options.sync, limiter)?;
                check_crc(&from, file, crc)?;
            }
            Ok(())
        })?;
        let sync = |dir: &Path| if self.options.sync { fs.open_directory(dir)?.sync() } else { Ok(()) };
        for dir in [db_dir, wal_dir] {
            remove_old(fs, dir, &restored, options.keep_log_files)?;
            sync(dir)?;
        }
        fs.rename(&unnamed, &file_name::current(db_dir))?; // From here on it is a database.
        sync(db_dir)
    }

    /// [`restore`](Self::restore)s the newest backup that is not corrupt, and answers which that was. `NotFound` if
    /// there is none.
    pub fn restore_latest(
        &self,
        db_options: &crate::DbOptions,
        db_dir: impl AsRef<Path>,
        wal_dir: impl AsRef<Path>,
        options: &RestoreOptions<'_>,
    ) -> Result<BackupId> {
        let latest = self.backups.keys().next_back().copied();
        let id = latest.ok_or_else(|| Error::not_found("there is no backup"))?;
        self.restore(id, db_options, db_dir, wal_dir, options)?;
        Ok(id)
    }

    /// All files of a backup with who has them, and the excluded ones that nobody has.
    fn wanted<'a>(
        &'a self,
        meta: &MetaFile,
        options: &RestoreOptions<'a>,
    ) -> Result<(Vec<Wanted<'a>>, BTreeSet<String>)> {
        let wanted = |engine: &'a BackupEngine, file: &BackupFile| {
            let name = database_name(&file.path)?;
            if FileKind::parse(&name).is_none() {
                return Err(Error::corruption(format!("{}: no database has such a file", file.path)));
            }
            Ok(Wanted { engine, file: file.clone(), name })
        };
        let mut all = meta.files.iter().map(|file| wanted(self, file)).collect::<Result<Vec<_>>>()?;
        let mut missing = BTreeSet::new();
        for path in &meta.excluded {
            let mut engines = [self].into_iter().chain(options.alternate_dirs.iter().copied());
            match engines.find_map(|engine| Some((engine, engine.known_file(path)?))) {
                Some((engine, file)) => all.push(wanted(engine, file)?),
                None => drop(missing.insert(path.clone())),
            }
        }
        Ok((all, missing))
    }

    fn known_file(&self, path: &str) -> Option<&BackupFile> {
        self.backups.values().flat_map(|meta| &meta.files).find(|file| file.path == path)
    }

    /// The tables that are there and may stay: path in the backup, name in the database.
    fn as_good(
        &self,
        fs: &dyn FileSystem,
        db_dir: &Path,
        wanted: &[Wanted<'_>],
        missing: &BTreeSet<String>,
        mode: RestoreMode,
    ) -> Result<BTreeMap<String, String>> {
        let mut kept = BTreeMap::new();
        if mode == RestoreMode::PurgeAllFiles {
            return Ok(kept);
        }
        for name in fs.list(db_dir)? {
            if !matches!(FileKind::parse(&name), Some(FileKind::Table(_))) {
                continue;
            }
            let path = db_dir.join(&name);
            // What cannot be read now is replaced.
            let Ok(size) = fs.size(&path) else { continue };
            let same_name = wanted.iter().find(|wanted| wanted.name == name);
            let stays = match mode {
                RestoreMode::VerifyChecksum => same_name
                    .filter(|wanted| wanted.file.size == Some(size) && wanted.holds_what(fs, &path, size))
                    .map(|wanted| wanted.file.path.clone()),
                _ => session_of(fs, &path, size).and_then(|session| {
                    let shared = format!("{SHARED_CHECKSUM}/{}", shared_name(&name, &session, size));
                    let is_wanted = same_name.is_some_and(|wanted| wanted.file.path == shared);
                    (is_wanted || missing.contains(&shared)).then_some(shared)
                }),
            };
            kept.extend(stays.map(|backup_path| (backup_path, name)));
        }
        Ok(kept)
    }
}

impl Wanted<'_> {
    /// Whether the file at `path` has the contents of this one.
    fn holds_what(&self, fs: &dyn FileSystem, path: &Path, size: u64) -> bool {
        let whole = |fs: &dyn FileSystem, path: &Path| read_through(fs, path, size, |_| Ok(())).ok();
        let expected = self.file.crc.or_else(|| whole(self.engine.fs(), &self.engine.at(&self.file.path)));
        expected.is_some() && whole(fs, path) == expected
    }
}

/// Which opening of a database made a table; `None` if it does not say, cannot be read, or has an order of the
/// application's own.
fn session_of(fs: &dyn FileSystem, path: &Path, size: u64) -> Option<String> {
    [UserComparator::Bytewise, UserComparator::ReverseBytewise].into_iter().find_map(|comparator| {
        let file = fs.open_random(path, OpenHints::default()).ok()?;
        let table =
            TableOptions { comparator, block_cache: None, no_block_cache: true, ..TableOptions::default() };
        let mut open = OpenOptions::new(Arc::new(table), FileNumber(0));
        open.skip_filters = true;
        let reader = TableReader::open(file, size, open).ok()?;
        let session = &reader.properties().db_session_id;
        (!session.is_empty()).then(|| session.clone())
    })
}

/// What a backup's file is called in the database: tables in the shared directory have more in their names.
pub(super) fn database_name(path: &str) -> Result<String> {
    let (dir, name) =
        path.rsplit_once('/').ok_or_else(|| Error::corruption(format!("{path}: no such file")))?;
    if dir != SHARED_CHECKSUM {
        return Ok(name.to_owned());
    }
    match (name.split_once('_'), name.rsplit_once('.')) {
        (Some((stem, _)), Some((_, extension))) => Ok(format!("{stem}.{extension}")),
        _ => Err(Error::corruption(format!("{path}: not the name of a shared table"))),
    }
}

/// Removes the files of the database that is there, CURRENT first, but for the tables `kept`. MANIFESTs and WALs stay, so that nobody takes the
/// directory for an empty one and creates a database in it.
fn clear(
    fs: &dyn FileSystem,
    db_dir: &Path,
    wal_dir: &Path,
    keep_wals: bool,
    kept: &HashSet<String>,
) -> Result<()> {
    let current = file_name::current(db_dir);
    if fs.exists(&current)? {
        fs.remove(&current)?;
        fs.open_directory(db_dir)?.sync()?;
    }
    let archive = file_name::archive_dir(wal_dir);
    for dir in [db_dir, wal_dir, &archive] {
        for name in if fs.exists(dir)? { fs.list(dir)? } else { Vec::new() } {
            match FileKind::parse(&name) {
                Some(FileKind::Wal(_)) if dir == archive && keep_wals => {
                    fs.rename(&dir.join(&name), &wal_dir.join(&name))?;
                }
                Some(FileKind::Wal(_)) if dir == archive => fs.remove(&dir.join(&name))?,
                None
                | Some(FileKind::Lock | FileKind::InfoLog | FileKind::Manifest(_) | FileKind::Wal(_)) => {}
                Some(_) if dir == db_dir && kept.contains(&name) => {}
                Some(_) => fs.remove(&dir.join(&name))?,
            }
        }
    }
    Ok(())
}

/// Removes MANIFESTs and WALs of the database that was there before.
fn remove_old(fs: &dyn FileSystem, dir: &Path, restored: &HashSet<String>, keep_wals: bool) -> Result<()> {
    for name in fs.list(dir)? {
        let is_old = match FileKind::parse(&name) {
            Some(FileKind::Wal(_)) => !keep_wals,
            Some(FileKind::Manifest(_)) => true,
            _ => false,
        };
        if is_old && !restored.contains(&name) {
            fs.remove(&dir.join(name))?;
        }
    }
    Ok(())
}
