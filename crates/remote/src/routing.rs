//! Which files are remote, and under which names.

use ironstone_base::sync::Arc;
use ironstone_base::{Error, FileKind, Result};
use ironstone_vfs::FileSystem;
use std::path::{Component, Path, PathBuf};

/// Tells tables below one local directory from all other files.
#[derive(Debug)]
pub(crate) struct Routing {
    local: Arc<dyn FileSystem>,
    root: PathBuf,
    /// Empty, or ends with `/`.
    prefix: String,
}

impl Routing {
    /// `root` is made if it is missing.
    pub(crate) fn new(local: Arc<dyn FileSystem>, root: &Path, prefix: &str) -> Result<Self> {
        local.create_dir_all(root)?;
        let root = local.absolute(root)?;
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Self { local, root, prefix })
    }

    pub(crate) fn is_table_name(name: &str) -> bool {
        matches!(FileKind::parse(name), Some(FileKind::Table(_)))
    }

    /// The name of the object that `path` is; `None` if it is a local file.
    pub(crate) fn table(&self, path: &Path) -> Result<Option<String>> {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Ok(None) };
        if !Self::is_table_name(name) {
            return Ok(None);
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        Ok(self.directory(parent.unwrap_or(Path::new(".")))?.map(|directory| directory + name))
    }

    /// What the names of objects in the local directory `dir` start with; `None` if its tables are local.
    pub(crate) fn directory(&self, dir: &Path) -> Result<Option<String>> {
        let absolute = self.local.absolute(dir)?;
        let Ok(below) = absolute.strip_prefix(&self.root) else { return Ok(None) };
        let mut key = self.prefix.clone();
        for part in below.components() {
            let Component::Normal(name) = part else { continue };
            let name = name.to_str().ok_or_else(|| {
                Error::invalid_argument(format!("{}: an object's name must be UTF-8", dir.display()))
            })?;
            key.push_str(name);
            key.push('/');
        }
        Ok(Some(key))
    }
}
