//! The file system.

use crate::cipher::BlockCipher;
use crate::file::{Random, Sequential, Writable};
use crate::stream::{PREFIX, Stream, new_prefix};
use ironstone_base::sync::Arc;
use ironstone_base::{Error, Result};
use ironstone_vfs::{FileSystem, OpenHints, RandomAccessFile, SequentialFile, WritableFile, WriteOptions};
use std::path::Path;

/// Stores files in another file system, encrypted. All of them: CURRENT, MANIFEST, LOG and OPTIONS too. Files that were
/// written there without it are not readable through it.
///
/// A file that ends within its prefix (the machine lost power before any of it was synced) has no contents. A file that
/// is reused ([`FileSystem::reuse`]) is emptied: old bytes under the stream of new ones would give both away.
#[derive(Debug)]
pub struct EncryptedFileSystem {
    inner: Arc<dyn FileSystem>,
    cipher: Arc<dyn BlockCipher>,
}

impl EncryptedFileSystem {
    /// Encrypts with `cipher` what goes to `inner`. `InvalidArgument` if the blocks of the cipher have less than 8 or more
    /// than 2048 bytes.
    pub fn new(inner: Arc<dyn FileSystem>, cipher: Arc<dyn BlockCipher>) -> Result<Self> {
        match cipher.block_size() {
            8..=2048 => Ok(Self { inner, cipher }),
            size => {
                Err(Error::invalid_argument(format!("a cipher has blocks of 8 to 2048 bytes, not of {size}")))
            }
        }
    }

    fn stream(&self, prefix: &[u8]) -> Option<Stream> {
        (prefix.len() == PREFIX).then(|| Stream::new(&self.cipher, prefix))
    }

    /// Begins an empty file.
    fn begin(&self, mut inner: Box<dyn WritableFile>) -> Result<Box<dyn WritableFile>> {
        let prefix = new_prefix()?;
        inner.append(&prefix)?;
        inner.flush()?; // Who opens the file from now on can read what follows.
        let stream = Stream::new(&self.cipher, &prefix);
        Ok(Box::new(Writable { inner, stream, scratch: Vec::new() }))
    }

    /// The prefix of the file at `path`; shorter if the file is.
    fn prefix_of(&self, path: &Path) -> Result<Vec<u8>> {
        let mut prefix = vec![0; PREFIX];
        let count = self.inner.open_sequential(path)?.read(&mut prefix)?;
        prefix.truncate(count);
        Ok(prefix)
    }
}

/// What the system adds as zeros would read as noise.
fn without_zeros(options: WriteOptions) -> WriteOptions {
    WriteOptions { sync_ahead: 0, mapped: false, ..options }
}

impl FileSystem for EncryptedFileSystem {
    ironstone_vfs::pass_on! { self.inner: open_directory exists list remove rename link create_dir_all
    remove_dir modified_seconds free_space lock absolute expect_files link_count }

    fn open_sequential(&self, path: &Path) -> Result<Box<dyn SequentialFile>> {
        let mut inner = self.inner.open_sequential(path)?;
        let mut prefix = vec![0; PREFIX];
        let count = inner.read(&mut prefix)?;
        Ok(Box::new(Sequential { inner, stream: self.stream(&prefix[..count]), at: 0 }))
    }
    fn open_random(&self, path: &Path, hints: OpenHints) -> Result<Box<dyn RandomAccessFile>> {
        // The file is longer than what is in it.
        let inner = self.inner.open_random(path, OpenHints { size: None, ..hints })?;
        let mut prefix = vec![0; PREFIX];
        let count = inner.read_at(0, &mut prefix)?;
        Ok(Box::new(Random { inner, stream: self.stream(&prefix[..count]) }))
    }
    fn create(&self, path: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> {
        self.begin(self.inner.create(path, without_zeros(options))?)
    }
    fn append_to(&self, path: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> {
        let prefix = match self.inner.exists(path)? {
            true => self.prefix_of(path)?,
            false => Vec::new(),
        };
        let mut inner = self.inner.append_to(path, without_zeros(options))?;
        match self.stream(&prefix) {
            Some(stream) => Ok(Box::new(Writable { inner, stream, scratch: Vec::new() })),
            None => {
                inner.truncate(0)?;
                self.begin(inner)
            }
        }
    }
    fn reuse(&self, old: &Path, new: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> {
        self.inner.rename(old, new)?;
        self.create(new, options)
    }
    fn size(&self, path: &Path) -> Result<u64> {
        Ok(self.inner.size(path)?.saturating_sub(PREFIX as u64))
    }
}
