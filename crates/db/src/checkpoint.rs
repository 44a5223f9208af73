//! A second database with the same contents, made of links.

use crate::Db;
use crate::background::job::write_options;
use crate::file_copy::{copy_file, link_or_copy};
use crate::info_log::info;
use crate::open::make_durable_dir;
use crate::storage_files::{
    KeptFiles, LiveFilesStorageInfoOptions, StorageFile, capture, check_one_directory,
};
use ironstone_base::statistics::Ticker;
use ironstone_base::{Error, FileKind, Result, SequenceNumber};
use ironstone_vfs::FileSystem;
use std::path::{Path, PathBuf};

/// How a checkpoint is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CreateCheckpointOptions {
    /// Memtables are only flushed if the WALs have so many bytes together; smaller ones are copied. Default 0: always flush. What
    /// no WAL holds is flushed in any case.
    pub log_size_for_flush: u64,
    /// If memtables are flushed, all column families are, to one point: what was written without WAL is in all of them or in
    /// none. See [`LiveFilesStorageInfoOptions::atomic_flush`]. Default false. (RocksDB's checkpoints go by `atomic_flush` of
    /// the database alone.)
    pub atomic_flush: bool,
}

impl Db {
    /// Makes a second database in `path`, which must not exist, with every write that returned before. Answers
    /// the last of them that is surely in it. Tables are linked, or copied where they cannot be, for instance to
    /// another file system. The rest is copied: MANIFEST, OPTIONS and the end of the log, after a flush.
    ///
    /// The directory appears when it is complete and durable; after a crash there is at most `path` with `.tmp`
    /// behind it, which the next checkpoint there removes. Writes go on meanwhile.
    ///
    /// # Errors
    /// `InvalidArgument` if `path` exists. The failure that stops writes, if there is one.
    ///
    /// ```
    /// use ironstone::{Db, Options};
    ///
    /// # fn main() -> ironstone::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let mut options = Options::default();
    /// options.db.create_if_missing = true;
    /// let db = Db::open(&options, dir.path().join("db"))?;
    /// db.put(b"iron", b"Fe")?;
    /// db.checkpoint(dir.path().join("copy"))?;
    /// db.delete(b"iron")?;
    /// let copy = Db::open(&options, dir.path().join("copy"))?;
    /// assert!(copy.get(b"iron")?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<SequenceNumber> {
        self.checkpoint_with(path, 0)
    }

    /// The same, but memtables are only flushed if the WALs have `log_size_for_flush` bytes or more together. Smaller
    /// ones are copied.
    pub fn checkpoint_with(&self, path: impl AsRef<Path>, log_size_for_flush: u64) -> Result<SequenceNumber> {
        let options = CreateCheckpointOptions { log_size_for_flush, ..CreateCheckpointOptions::default() };
        self.create_checkpoint(path, &options)
    }

    /// The same with `options`.
    pub fn create_checkpoint(
        &self,
        path: impl AsRef<Path>,
        options: &CreateCheckpointOptions,
    ) -> Result<SequenceNumber> {
        let engine = self.engine();
        check_one_directory(engine, "checkpoints")?;
        let fs = &*engine.env.fs;
        let path = fs.absolute(path.as_ref())?;
        if fs.exists(&path)? {
            return Err(Error::invalid_argument(format!("{}: Directory exists", path.display())));
        }
        let parent = path.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned);
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".tmp");
        let staging = parent.join(name);
        make_durable_dir(fs, &parent, false)?;
        remove_staging(fs, &staging)?;
        let _kept = KeptFiles::of(self);
        let listing = LiveFilesStorageInfoOptions {
            wal_size_for_flush: options.log_size_for_flush,
            atomic_flush: options.atomic_flush,
        };
        let captured = capture(engine, &listing)?;
        let made = fs
            .create_dir_all(&staging)
            .and_then(|()| captured.files.iter().try_for_each(|file| self.add_to_checkpoint(file, &staging)))
            .and_then(|()| fs.open_directory(&staging)?.sync())
            .and_then(|()| fs.rename(&staging, &path));
        if let Err(error) = made {
            let _ = remove_staging(fs, &staging); // The first failure is the one to tell.
            return Err(error);
        }
        fs.open_directory(&parent)?.sync()?;
        info!(engine.log, "checkpoint {} at {}", path.display(), captured.sequence);
        Ok(captured.sequence)
    }

    fn count_copied(&self, bytes: u64) {
        self.engine().count(Ticker::CheckpointReadBytes, bytes);
        self.engine().count(Ticker::CheckpointWriteBytes, bytes);
    }

    fn add_to_checkpoint(&self, file: &StorageFile, staging: &Path) -> Result<()> {
        let engine = self.engine();
        let fs = &*engine.env.fs;
        let (from, to) = (file.path(), staging.join(&file.name));
        let writing = write_options(&engine.options());
        match &file.replacement_contents {
            Some(contents) => fs.write_all_synced(&to, contents),
            // A table is never changed, and was synced before the MANIFEST named it.
            None if matches!(file.kind, FileKind::Table(_)) => {
                let linked = link_or_copy(fs, &from, &to, file.size, writing)?;
                self.count_copied(if linked { 0 } else { file.size });
                Ok(())
            }
            None => {
                copy_file(fs, &from, &to, file.size, writing)?;
                self.count_copied(file.size);
                Ok(())
            }
        }
    }
}

/// Removes what an earlier attempt left.
pub(crate) fn remove_staging(fs: &dyn FileSystem, staging: &Path) -> Result<()> {
    if !fs.exists(staging)? {
        return Ok(());
    }
    for name in fs.list(staging)? {
        fs.remove(&staging.join(name))?;
    }
    fs.remove_dir(staging)
}
