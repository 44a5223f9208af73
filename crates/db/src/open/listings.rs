//! What is in the directories of a database while it is opened.

use ironstone_base::sync::Arc;
use ironstone_base::{FileKind, Result};
use ironstone_vfs::FileSystem;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A name in a directory.
pub(crate) struct Listed {
    pub(crate) name: String,
    /// What file it is, if it is one of a database.
    pub(crate) kind: Option<FileKind>,
}

/// The names in a directory.
pub(crate) type Listing = Arc<[Listed]>;

/// Lists each directory once, when it is first asked for.
///
/// Of use under LOCK, before any job begins: nobody but the opening itself makes or removes files of the database then. What
/// it makes after a listing is nothing that anybody looks for in one: who asks for tables, WALs, or old logs and options
/// wants to know of those that are left from before. What it removes or renames may still be listed.
pub(crate) struct Listings {
    fs: Arc<dyn FileSystem>,
    dirs: BTreeMap<PathBuf, Listing>,
}

impl Listings {
    pub(crate) fn new(fs: &Arc<dyn FileSystem>) -> Self {
        Self { fs: Arc::clone(fs), dirs: BTreeMap::new() }
    }

    /// What is in `dir`, or was when it was first asked for.
    pub(crate) fn of(&mut self, dir: &Path) -> Result<Listing> {
        if let Some(listing) = self.dirs.get(dir) {
            return Ok(Arc::clone(listing));
        }
        let listed = |name: String| Listed { kind: FileKind::parse(&name), name };
        let listing: Listing = self.fs.list(dir)?.into_iter().map(listed).collect();
        self.dirs.insert(dir.to_owned(), Arc::clone(&listing));
        Ok(listing)
    }
}
