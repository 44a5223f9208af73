//! Directories of databases that tests work on.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A place for a database that goes away with this value. The database itself is one level below, not yet
/// created.
pub struct Scratch(TempDir);

impl Scratch {
    /// A place where no database is yet.
    pub fn new() -> Self {
        Self(TempDir::new().expect("a temporary directory"))
    }

    /// A copy of the database in `source`, as it is, clean or not.
    pub fn copy_of(source: &Path) -> Self {
        let copy = Self::new();
        copy_files(source, &copy.db());
        copy
    }

    /// Like [`Self::copy_of`], with the archive of WALs.
    pub fn copy_with_archive_of(source: &Path) -> Self {
        let copy = Self::copy_of(source);
        copy_files(&source.join("archive"), &copy.db().join("archive"));
        copy
    }

    /// The database's directory.
    pub fn db(&self) -> PathBuf {
        self.0.path().join("db")
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

fn copy_files(source: &Path, dir: &Path) {
    fs::create_dir(dir).expect("create the copy");
    for entry in fs::read_dir(source).expect("read the database") {
        let path = entry.expect("read the database").path();
        if path.is_file() {
            fs::copy(&path, dir.join(path.file_name().expect("a file has a name"))).expect("copy");
        }
    }
}

/// The files in `dir` whose names start with `prefix` and end with `suffix`, in the order of names.
pub fn files(dir: &Path, prefix: &str, suffix: &str) -> Vec<PathBuf> {
    let name_fits = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(prefix) && name.ends_with(suffix)
    };
    let entries = fs::read_dir(dir).expect("read the database");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).filter(name_fits).collect();
    files.sort();
    files
}

/// Every file in `dir` with its bytes.
pub fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    files(dir, "", "").into_iter().map(|path| (path.clone(), read(&path))).collect()
}

/// Replaces the bytes of a file by what `edit` makes of them.
pub fn edit(path: &Path, edit: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = read(path);
    edit(&mut bytes);
    fs::write(path, bytes).expect("write a file of the database");
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).expect("read a file of the database")
}
