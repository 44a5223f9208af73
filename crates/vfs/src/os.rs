//! The operating system's files.

use crate::file::*;
use ironstone_base::Result;
use std::path::{Path, PathBuf};

/// The operating system's file system.
#[derive(Debug, Default)]
pub struct OsFileSystem {}

impl OsFileSystem {
    /// The operating system's file system.
    pub fn new() -> Self {
        Self {}
    }
}

#[allow(unused_variables)]
impl FileSystem for OsFileSystem {
    fn open_sequential(&self, path: &Path) -> Result<Box<dyn SequentialFile>> { todo!() }
    fn open_random(&self, path: &Path, hints: OpenHints) -> Result<Box<dyn RandomAccessFile>> { todo!() }
    fn create(&self, path: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> { todo!() }
    fn append_to(&self, path: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> { todo!() }
    fn reuse(&self, old: &Path, new: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> { todo!() }
    fn open_directory(&self, path: &Path) -> Result<Box<dyn Directory>> { todo!() }
    fn exists(&self, path: &Path) -> Result<bool> { todo!() }
    fn list(&self, path: &Path) -> Result<Vec<String>> { todo!() }
    fn remove(&self, path: &Path) -> Result<()> { todo!() }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> { todo!() }
    fn link(&self, from: &Path, to: &Path) -> Result<()> { todo!() }
    fn create_dir_all(&self, path: &Path) -> Result<()> { todo!() }
    fn remove_dir(&self, path: &Path) -> Result<()> { todo!() }
    fn size(&self, path: &Path) -> Result<u64> { todo!() }
    fn modified_seconds(&self, path: &Path) -> Result<u64> { todo!() }
    fn free_space(&self, path: &Path) -> Result<u64> { todo!() }
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> { todo!() }
    fn absolute(&self, path: &Path) -> Result<PathBuf> { todo!() }
}
