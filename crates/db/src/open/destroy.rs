//! Removes a database.

use crate::options::DbOptions;
use crate::{ColumnFamilyDescriptor, Db};
use ironstone_base::{Error, FileKind, Result, file_name};
use std::path::{Path, PathBuf};

impl Db {
    /// Removes the database in `path`: every file that a database has there, in its WAL and LOG
    /// directories and in its archive, and the directories if nothing else is left in them. Other
    /// files stay. Refused while the database is open. Fine if there is none.
    pub fn destroy(options: &DbOptions, path: impl AsRef<Path>) -> Result<()> {
        Self::destroy_column_families(options, path, &[])
    }

    /// The same with the tables that column families have in the `cf_paths` of `descriptors`.
    pub fn destroy_column_families(
        options: &DbOptions,
        path: impl AsRef<Path>,
        descriptors: &[ColumnFamilyDescriptor],
    ) -> Result<()> {
        let path = path.as_ref();
        let fs = &*options.env.fs;
        if !fs.exists(path)? {
            return Ok(());
        }
        let lock = fs.lock(&file_name::lock(path))?;
        let mut dirs: Vec<PathBuf> = vec![path.to_owned()];
        for other in [&options.wal_dir, &options.db_log_dir] {
            if !other.as_os_str().is_empty() && !dirs.contains(other) {
                dirs.push(other.clone());
            }
        }
        let archives: Vec<_> = dirs.iter().map(|dir| file_name::archive_dir(dir)).collect();
        dirs.extend(archives);
        let mut first_failure: Option<Error> = None;
        let mut note = |result: Result<()>| {
            if let Err(error) = result
                && !error.is_path_not_found()
            {
                first_failure.get_or_insert(error);
            }
        };
        for dir in dirs.iter().filter(|dir| fs.exists(dir).unwrap_or(false)) {
            for name in fs.list(dir)? {
                match FileKind::parse(&name) {
                    Some(FileKind::Lock) | None => {}
                    Some(_) => note(fs.remove(&dir.join(name))),
                }
            }
        }
        let own = descriptors.iter().flat_map(|descriptor| &descriptor.options.cf_paths);
        let paths: Vec<_> = options.db_paths.iter().chain(own).map(|path| &path.path).collect();
        for dir in paths.iter().filter(|dir| !dirs.contains(dir) && fs.exists(dir).unwrap_or(false)) {
            for name in fs.list(dir)? {
                if matches!(FileKind::parse(&name), Some(FileKind::Table(_) | FileKind::Trash)) {
                    note(fs.remove(&dir.join(name)));
                }
            }
        }
        dirs.splice(0..0, paths.into_iter().cloned());
        drop(lock);
        note(fs.remove(&file_name::lock(path)));
        for dir in dirs.iter().rev() {
            // A directory that holds something else stays; that is no failure.
            let _ = fs.remove_dir(dir);
        }
        first_failure.map_or(Ok(()), Err)
    }
}
