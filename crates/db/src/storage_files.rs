//! Which files together are the database, at one moment.

use crate::Db;
use crate::admin::checksum_func_name;
use crate::background::flush::{flush_and_wait, wait_flushed};
use crate::engine::Engine;
use crate::memtables::FlushReason;
use crate::table_cache::TableSlot;
use crate::write::switch::Which;
use ironstone_base::sync::Arc;
use ironstone_base::{Code, ColumnFamilyId, Error, FileKind, Result, SequenceNumber, file_name};
use ironstone_version::UNKNOWN_FILE_CHECKSUM_FUNC_NAME;
use std::path::{Path, PathBuf};

/// A file that belongs to a copy of the database, see [`Db::live_files_storage_info`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StorageFile {
    /// The directory that it is in.
    pub directory: PathBuf,
    /// Its name there, and in the copy.
    pub name: String,
    /// What it is.
    pub kind: FileKind,
    /// How many of its bytes belong to the copy.
    pub size: u64,
    /// Whether it may grow: a copy takes `size` bytes and no more. Others may be linked.
    pub trim_to_size: bool,
    /// What a copy is to hold instead of the file's bytes.
    pub replacement_contents: Option<Vec<u8>>,
    /// The whole file's checksum, as the MANIFEST has it; empty if it has none.
    pub file_checksum: Vec<u8>,
    /// The function that made it; `Unknown` if there is none.
    pub file_checksum_func_name: String,
}

impl StorageFile {
    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    fn new(path: &Path, kind: FileKind, size: u64) -> Self {
        Self {
            directory: path.parent().unwrap_or(path).to_owned(),
            name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            kind,
            size,
            trim_to_size: false,
            replacement_contents: None,
            file_checksum: Vec::new(),
            file_checksum_func_name: UNKNOWN_FILE_CHECKSUM_FUNC_NAME.to_owned(),
        }
    }
}

/// The files of the database at one moment.
pub(crate) struct Captured {
    /// Tables first, CURRENT last.
    pub(crate) files: Vec<StorageFile>,
    /// Of the first of them, the tables.
    pub(crate) tables: Vec<Arc<TableSlot>>,
    /// Every write up to here is in them.
    pub(crate) sequence: SequenceNumber,
    /// Every write up to here is in the tables alone, if memtables were flushed.
    pub(crate) in_tables: SequenceNumber,
}

/// How the files of a copy are listed. RocksDB's options of that name; checksums of files are always told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LiveFilesStorageInfoOptions {
    /// Memtables are flushed before, if the WALs have so many bytes together, or if they hold what no WAL has. Default 0: always.
    pub wal_size_for_flush: u64,
    /// If memtables are flushed, all column families are, to one point of the order of writes: the tables have each batch in all of
    /// them or in none, whether a WAL has it or not, and nothing from behind that point. Writes that fill a memtable wait while
    /// the last part of that runs. Always so with `atomic_flush` of the database. Default false: batches without WAL may be
    /// in the tables of some column families and not of others.
    ///
    /// WALs are listed nevertheless: with them there is what was logged since, too.
    pub atomic_flush: bool,
}

impl Db {
    /// The files that are the database now: whoever copies them has one that opens, with every write that
    /// returned before. First all memtables are flushed, unless the WALs are smaller than `wal_size_for_flush` bytes
    /// together: then those are among the files. Writes go on meanwhile.
    ///
    /// Call [`disable_file_deletions`](Self::disable_file_deletions) before, and
    /// [`enable_file_deletions`](Self::enable_file_deletions) once they are copied.
    /// [`checkpoint`](Self::checkpoint) and [`BackupEngine`](crate::BackupEngine) do all of that.
    ///
    /// ```
    /// # fn main() -> ironstone::Result<()> {
    /// # let options = ironstone::Options::in_memory();
    /// # let db = ironstone::Db::open(&options, "/db")?;
    /// db.put(b"iron", b"Fe")?;
    /// db.disable_file_deletions();
    /// let files = db.live_files_storage_info(0)?;
    /// assert_eq!(files.iter().filter(|file| file.name.ends_with(".sst")).count(), 1);
    /// db.enable_file_deletions();
    /// # Ok(())
    /// # }
    /// ```
    pub fn live_files_storage_info(&self, wal_size_for_flush: u64) -> Result<Vec<StorageFile>> {
        let options =
            LiveFilesStorageInfoOptions { wal_size_for_flush, ..LiveFilesStorageInfoOptions::default() };
        self.live_files_storage_info_with(&options)
    }
    /// The same with `options`.
    pub fn live_files_storage_info_with(
        &self,
        options: &LiveFilesStorageInfoOptions,
    ) -> Result<Vec<StorageFile>> {
        Ok(capture(self.engine(), options)?.files)
    }
}

/// Keeps files from being removed for as long as it is there.
pub(crate) struct KeptFiles<'a>(&'a Db);

impl<'a> KeptFiles<'a> {
    pub(crate) fn of(db: &'a Db) -> Self {
        db.disable_file_deletions();
        Self(db)
    }
}

/// Copies have one directory: they would name files in others that are not theirs.
pub(crate) fn check_one_directory(engine: &Engine, what: &str) -> Result<()> {
    match engine.place.dirs().len() {
        1 => Ok(()),
        _ => Err(Error::not_supported(format!("{what} of a database with db_paths or cf_paths"))),
    }
}

impl Drop for KeptFiles<'_> {
    fn drop(&mut self) {
        self.0.enable_file_deletions();
    }
}

/// Lists the files, after a flush if `options` want one. Nothing may remove files until they are copied.
pub(crate) fn capture(engine: &Arc<Engine>, options: &LiveFilesStorageInfoOptions) -> Result<Captured> {
    if engine.read_only {
        return Err(Error::not_supported("copying a database that is open for reading only"));
    }
    engine.write_failure()?;
    let in_tables = engine.pipeline.visible();
    let atomic = options.atomic_flush || engine.options().atomic_flush;
    // No memtable is switched and no MANIFEST written meanwhile; writers go on.
    let _switching = loop {
        flush_if_wanted(engine, options.wal_size_for_flush, atomic)?;
        let switching = engine.switching.lock();
        let locked = atomic && engine.controller.is_locked();
        if !locked || to_flush(engine, options.wal_size_for_flush).is_empty() {
            break switching;
        }
    };
    if atomic {
        flush_the_rest(engine, options.wal_size_for_flush)?;
    }
    let manifest = engine.manifest.lock();
    let options_file = newest_options(engine)?;
    let mut captured =
        Captured { files: Vec::new(), tables: Vec::new(), sequence: SequenceNumber::ZERO, in_tables };
    let wals = {
        let state = engine.state.lock();
        if let Some(error) = &state.background_error {
            return Err(error.clone());
        }
        for family in state.families.values() {
            for level in &family.data.view().levels {
                for (file, slot) in level.files.files().iter().zip(&level.tables) {
                    let path = slot.path();
                    let mut table = StorageFile::new(&path, FileKind::Table(file.number), file.file_size);
                    table.file_checksum.clone_from(&file.file_checksum);
                    table.file_checksum_func_name = checksum_func_name(file);
                    captured.files.push(table);
                    captured.tables.push(Arc::clone(slot));
                }
            }
        }
        let oldest = state.versions.min_log_number();
        state.wals.range(oldest..).map(|(&number, wal)| (number, wal.bytes)).collect::<Vec<_>>()
    };
    captured.sequence = engine.pipeline.visible();
    let (current, current_size) = engine.pipeline.current_wal_file(true)?;
    let witness = manifest.witness().ok_or_else(|| Error::io_message("the MANIFEST has failed"))?;
    for table in &mut captured.files {
        as_leveldb_named_it(engine, table)?;
    }
    captured.files.extend(options_file);
    for (number, bytes) in wals {
        let size = if number == current { current_size } else { bytes };
        if size > 0 {
            let path = file_name::wal(&engine.wal_dir, number);
            captured.files.push(StorageFile {
                trim_to_size: true,
                ..StorageFile::new(&path, FileKind::Wal(number), size)
            });
        }
    }
    let path = file_name::manifest(&engine.dir, witness.number);
    captured.files.push(StorageFile {
        trim_to_size: true,
        ..StorageFile::new(&path, FileKind::Manifest(witness.number), witness.size)
    });
    let contents = format!("MANIFEST-{:06}\n", witness.number.0).into_bytes();
    let current =
        StorageFile::new(&file_name::current(&engine.dir), FileKind::Current, contents.len() as u64);
    captured.files.push(StorageFile { replacement_contents: Some(contents), ..current });
    Ok(captured)
}

/// The column families to flush for a copy; none if it does without a flush.
fn to_flush(engine: &Engine, wal_size_for_flush: u64) -> Vec<ColumnFamilyId> {
    let state = engine.state.lock();
    let closed: u64 = state.wals.values().map(|wal| wal.bytes).sum();
    // What no WAL holds would not be in the copy.
    let unlogged = state.families.values().any(|family| family.has_unlogged_writes());
    let is_large = closed + engine.pipeline.current_wal().1 >= wal_size_for_flush;
    let wanted = unlogged || (is_large && !state.wal_locks.is_locked());
    if wanted { state.families.keys().copied().collect() } else { Vec::new() }
}

fn flush_if_wanted(engine: &Arc<Engine>, wal_size_for_flush: u64, atomic: bool) -> Result<()> {
    loop {
        let ids = to_flush(engine, wal_size_for_flush);
        if ids.is_empty() {
            return Ok(());
        }
        let which = match atomic {
            true => Which::Together(ids.clone(), FlushReason::GetLiveFiles),
            false => Which::Of(ids.clone(), FlushReason::GetLiveFiles),
        };
        match flush_and_wait(engine, &which, &ids) {
            Err(error) if error.code() == Code::ColumnFamilyDropped => {} // One of them: what is left is flushed.
            done => return done,
        }
    }
}

/// Flushes what was written while all column families were flushed together, for who holds the lock `switching` from here until the
/// tables are listed: a memtable that anybody else switched since, and a flush of it alone, would part the column families.
fn flush_the_rest(engine: &Arc<Engine>, wal_size_for_flush: u64) -> Result<()> {
    loop {
        let ids = to_flush(engine, wal_size_for_flush);
        if ids.is_empty() {
            return Ok(());
        }
        engine.switch_reserving(&Which::Together(ids.clone(), FlushReason::GetLiveFiles), 0)?;
        match wait_flushed(engine, &ids) {
            Err(error) if error.code() == Code::ColumnFamilyDropped => {}
            done => return done,
        }
    }
}

fn as_leveldb_named_it(engine: &Engine, table: &mut StorageFile) -> Result<()> {
    let FileKind::Table(number) = table.kind else { return Ok(()) };
    let legacy = file_name::leveldb_table(&table.directory, number);
    if !engine.env.fs.exists(&table.path())? && engine.env.fs.exists(&legacy)? {
        table.name = legacy.file_name().unwrap_or_default().to_string_lossy().into_owned();
    }
    Ok(())
}

fn newest_options(engine: &Engine) -> Result<Option<StorageFile>> {
    let names = engine.env.fs.list(&engine.dir)?;
    let number = |name: &String| match FileKind::parse(name) {
        Some(FileKind::Options(number)) => Some(number),
        _ => None,
    };
    let Some(newest) = names.iter().filter_map(number).max() else { return Ok(None) };
    let path = file_name::options(&engine.dir, newest);
    let size = engine.env.fs.size(&path)?;
    Ok(Some(StorageFile::new(&path, FileKind::Options(newest), size)))
}
