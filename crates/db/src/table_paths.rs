//! Where the tables of a column family are.

use crate::options::{ColumnFamilyOptions, DbOptions};
use ironstone_base::sync::Arc;
use ironstone_base::{FileNumber, Result, file_name};
use ironstone_version::FileMetaData;
use ironstone_vfs::FileSystem;
use std::path::{Path, PathBuf};

/// A directory for tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DbPath {
    /// Made if it is missing. No other database may have its tables there.
    pub path: PathBuf,
    /// How many bytes of tables it is meant to hold. What the last directory of a list says does not matter: it takes the
    /// rest.
    pub target_size: u64,
}

impl DbPath {
    /// The directory `path` for `target_size` bytes.
    pub fn new(path: impl Into<PathBuf>, target_size: u64) -> Self {
        Self { path: path.into(), target_size }
    }
}

/// The directories of a column family's tables, by the path ids in the MANIFEST. There is at least one.
#[derive(Clone, Debug)]
pub(crate) struct TablePaths(Arc<[PathBuf]>);

impl TablePaths {
    /// One directory for all.
    pub(crate) fn single(dir: &Path) -> Self {
        Self(Arc::from([dir.to_owned()]))
    }
    /// Of a column family with options `cf` in the database in `dir`: its own, those of the database, or `dir`.
    pub(crate) fn of(dir: &Path, db: &DbOptions, cf: &ColumnFamilyOptions) -> Self {
        match paths_of(db, cf) {
            [] => Self::single(dir),
            paths => Self(paths.iter().map(|path| path.path.clone()).collect()),
        }
    }
    pub(crate) fn dirs(&self) -> &[PathBuf] {
        &self.0
    }
    /// The directory with the id `path_id`; the last one for ids that are too large, as in RocksDB.
    pub(crate) fn dir(&self, path_id: u32) -> &Path {
        &self.0[(path_id as usize).min(self.0.len() - 1)]
    }
    pub(crate) fn table(&self, number: FileNumber, path_id: u32) -> PathBuf {
        file_name::table(self.dir(path_id), number)
    }
    pub(crate) fn of_file(&self, file: &FileMetaData) -> PathBuf {
        self.table(file.number, file.path_id)
    }
    /// The name that LevelDB gave it.
    pub(crate) fn leveldb_name_of(&self, file: &FileMetaData) -> PathBuf {
        file_name::leveldb_table(self.dir(file.path_id), file.number)
    }
}

impl FromIterator<PathBuf> for TablePaths {
    fn from_iter<T: IntoIterator<Item = PathBuf>>(dirs: T) -> Self {
        Self(dirs.into_iter().collect())
    }
}

/// The paths of a column family, by its own options or those of the database; none if neither names any.
pub(crate) fn paths_of<'a>(db: &'a DbOptions, cf: &'a ColumnFamilyOptions) -> &'a [DbPath] {
    if cf.cf_paths.is_empty() { &db.db_paths } else { &cf.cf_paths }
}

/// Makes the directories that are missing.
pub(crate) fn make_dirs(fs: &dyn FileSystem, paths: &[DbPath]) -> Result<()> {
    paths.iter().try_for_each(|path| crate::open::make_durable_dir(fs, &path.path, false))
}
