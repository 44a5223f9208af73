//! A file system that tells somebody of its calls, as long as somebody wants to know.

use crate::file::*;
use crate::os::RingFile;
use crate::timer::stopwatch_nanos;
use ironstone_base::sync::Arc;
use ironstone_base::{Error, Result};
use std::fmt;
use std::path::Path;

use std::time::Duration;

/// One call, as it has ended. What it is called is RocksDB's.
#[derive(Clone, Copy, Debug)]
pub struct IoCall<'a> {
    /// What was done.
    pub operation: &'static str,
    /// To what.
    pub path: &'a Path,
    /// How long it took.
    pub nanos: u64,
    /// How it failed, if it did.
    pub error: Option<&'a Error>,
    /// How many bytes were wanted.
    pub len: Option<u64>,
    /// From where in the file.
    pub offset: Option<u64>,
    /// How large the file is.
    pub file_size: Option<u64>,
}

/// Wants to know of calls.
pub trait IoWatch: Send + Sync {
    /// Whether it does now: asked before each call.
    fn is_on(&self) -> bool;
    /// Is told of a call.
    fn note(&self, call: &IoCall<'_>);
}

/// Passes on every call, and tells a watch of those that RocksDB traces: creations and openings, reads, appends, syncs,
/// sizes, cuts, removals, directories. Where nobody watches a call costs one question more.
pub struct TracedFileSystem {
    inner: Arc<dyn FileSystem>,
    watch: Arc<dyn IoWatch>,
}

impl TracedFileSystem {
    /// Passes on to `inner`.
    pub fn new(inner: Arc<dyn FileSystem>, watch: Arc<dyn IoWatch>) -> Self {
        Self { inner, watch }
    }

    fn noted<T>(&self, operation: &'static str, path: &Path, act: impl FnOnce() -> Result<T>) -> Result<T> {
        noted(&*self.watch, operation, path, Extent::default(), act)
    }
    fn writable(&self, inner: Box<dyn WritableFile>) -> Box<dyn WritableFile> {
        Box::new(TracedWritableFile { inner, watch: Arc::clone(&self.watch) })
    }
}

/// Which part of a file a call is about.
#[derive(Clone, Copy, Default)]
struct Extent {
    len: Option<u64>,
    offset: Option<u64>,
    file_size: Option<u64>,
}

impl Extent {
    fn of(offset: Option<u64>, len: u64) -> Self {
        Self { len: Some(len), offset, file_size: None }
    }
    fn size(file_size: u64) -> Self {
        Self { file_size: Some(file_size), ..Self::default() }
    }
}

#[inline]
fn noted<T>(
    watch: &dyn IoWatch,
    operation: &'static str,
    path: &Path,
    extent: Extent,
    act: impl FnOnce() -> Result<T>,
) -> Result<T> {
    if !watch.is_on() {
        return act();
    }
    let passed = stopwatch_nanos();
    let result = act();
    note(watch, operation, path, extent, passed(), result.as_ref().err());
    result
}

#[cold]
fn note(
    watch: &dyn IoWatch,
    operation: &'static str,
    path: &Path,
    extent: Extent,
    nanos: u64,
    error: Option<&Error>,
) {
    let Extent { len, offset, file_size } = extent;
    watch.note(&IoCall { operation, path, nanos, error, len, offset, file_size });
}

impl fmt::Debug for TracedFileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner, f)
    }
}

impl FileSystem for TracedFileSystem {
    crate::pass_on! { self.inner: exists rename link modified_seconds free_space lock absolute expect_files link_count
    read_all write_all_synced }

    fn open_sequential(&self, path: &Path) -> Result<Box<dyn SequentialFile>> {
        let inner = self.noted("NewSequentialFile", path, || self.inner.open_sequential(path))?;
        Ok(Box::new(TracedSequentialFile { inner, watch: Arc::clone(&self.watch) }))
    }
    fn open_random(&self, path: &Path, hints: OpenHints) -> Result<Box<dyn RandomAccessFile>> {
        let inner = self.noted("NewRandomAccessFile", path, || self.inner.open_random(path, hints))?;
        Ok(Box::new(TracedRandomAccessFile { inner, watch: Arc::clone(&self.watch) }))
    }
    fn open_mapped(&self, path: &Path) -> Result<Option<Box<dyn RandomAccessFile>>> {
        let inner = self.noted("NewRandomAccessFile", path, || self.inner.open_mapped(path))?;
        Ok(inner.map(|inner| {
            Box::new(TracedRandomAccessFile { inner, watch: Arc::clone(&self.watch) })
                as Box<dyn RandomAccessFile>
        }))
    }
    fn create(&self, path: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> {
        let inner = self.noted("NewWritableFile", path, || self.inner.create(path, options))?;
        Ok(self.writable(inner))
    }
    fn append_to(&self, path: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> {
        let inner = self.noted("ReopenWritableFile", path, || self.inner.append_to(path, options))?;
        Ok(self.writable(inner))
    }
    fn reuse(&self, old: &Path, new: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> {
        let inner = self.noted("ReuseWritableFile", new, || self.inner.reuse(old, new, options))?;
        Ok(self.writable(inner))
    }
    fn open_directory(&self, path: &Path) -> Result<Box<dyn Directory>> {
        self.noted("NewDirectory", path, || self.inner.open_directory(path))
    }
    fn list(&self, path: &Path) -> Result<Vec<String>> {
        self.noted("GetChildren", path, || self.inner.list(path))
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.noted("DeleteFile", path, || self.inner.remove(path))
    }
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.noted("CreateDirIfMissing", path, || self.inner.create_dir_all(path))
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.noted("DeleteDir", path, || self.inner.remove_dir(path))
    }
    fn size(&self, path: &Path) -> Result<u64> {
        if !self.watch.is_on() {
            return self.inner.size(path);
        }
        let passed = stopwatch_nanos();
        let size = self.inner.size(path);
        let extent = size.as_ref().map_or_else(|_| Extent::default(), |&size| Extent::size(size));
        note(&*self.watch, "GetFileSize", path, extent, passed(), size.as_ref().err());
        size
    }
    fn truncate(&self, path: &Path, size: u64) -> Result<()> {
        noted(&*self.watch, "Truncate", path, Extent::size(size), || self.inner.truncate(path, size))
    }
}

struct TracedSequentialFile {
    inner: Box<dyn SequentialFile>,
    watch: Arc<dyn IoWatch>,
}

impl SequentialFile for TracedSequentialFile {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        if !self.watch.is_on() {
            return self.inner.read(buf);
        }
        let passed = stopwatch_nanos();
        let read = self.inner.read(buf);
        // As many as there were.
        let extent = Extent::of(None, read.as_ref().map_or(0, |&count| count as u64));
        note(&*self.watch, "Read", self.inner.path(), extent, passed(), read.as_ref().err());
        read
    }
    fn skip(&mut self, count: u64) -> Result<()> {
        self.inner.skip(count)
    }
    fn path(&self) -> &Path {
        self.inner.path()
    }
}

struct TracedRandomAccessFile {
    inner: Box<dyn RandomAccessFile>,
    watch: Arc<dyn IoWatch>,
}

impl RandomAccessFile for TracedRandomAccessFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let extent = Extent::of(Some(offset), buf.len() as u64);
        noted(&*self.watch, "Read", self.inner.path(), extent, || self.inner.read_at(offset, buf))
    }
    fn read_within(&self, offset: u64, buf: &mut [u8], timeout: Duration) -> Result<usize> {
        let extent = Extent::of(Some(offset), buf.len() as u64);
        let read = || self.inner.read_within(offset, buf, timeout);
        noted(&*self.watch, "Read", self.inner.path(), extent, read)
    }
    /// Each request is a call of its own, and all have the time that they took together.
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        if !self.watch.is_on() {
            return self.inner.read_many(requests);
        }
        let passed = stopwatch_nanos();
        self.inner.read_many(requests);
        let nanos = passed();
        for request in requests {
            let extent = Extent::of(Some(request.offset), request.buf.len() as u64);
            note(&*self.watch, "MultiRead", self.inner.path(), extent, nanos, request.result.as_ref().err());
        }
    }
    fn ring_file(&self) -> Option<RingFile<'_>> {
        // What goes out beside the reads of other files is not seen here.
        if self.watch.is_on() { None } else { self.inner.ring_file() }
    }
    fn was_read(&self, micros: u64, results: &[Result<usize>]) {
        self.inner.was_read(micros, results);
    }
    fn mapped(&self) -> Option<FileBytes> {
        self.inner.mapped()
    }
    fn prefetch(&self, offset: u64, len: u64) -> bool {
        if !self.watch.is_on() {
            return self.inner.prefetch(offset, len);
        }
        let passed = stopwatch_nanos();
        let kept = self.inner.prefetch(offset, len);
        note(&*self.watch, "Prefetch", self.inner.path(), Extent::of(Some(offset), len), passed(), None);
        kept
    }
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn path(&self) -> &Path {
        self.inner.path()
    }
}

struct TracedWritableFile {
    inner: Box<dyn WritableFile>,
    watch: Arc<dyn IoWatch>,
}

impl TracedWritableFile {
    #[inline]
    fn noted(
        &mut self,
        operation: &'static str,
        extent: Extent,
        act: impl FnOnce(&mut dyn WritableFile) -> Result<()>,
    ) -> Result<()> {
        if !self.watch.is_on() {
            return act(&mut *self.inner);
        }
        let passed = stopwatch_nanos();
        let result = act(&mut *self.inner);
        note(&*self.watch, operation, self.inner.path(), extent, passed(), result.as_ref().err());
        result
    }
}

impl WritableFile for TracedWritableFile {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.noted("Append", Extent::of(None, data.len() as u64), |file| file.append(data))
    }
    fn append_checked(&mut self, data: &[u8], crc32c: u32) -> Result<()> {
        let extent = Extent::of(None, data.len() as u64);
        self.noted("Append", extent, |file| file.append_checked(data, crc32c))
    }
    fn flush(&mut self) -> Result<()> {
        self.inner.flush()
    }
    fn sync(&mut self) -> Result<()> {
        self.noted("Sync", Extent::default(), |file| file.sync())
    }
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn allocate(&mut self, offset: u64, len: u64) -> Result<()> {
        self.inner.allocate(offset, len)
    }
    fn truncate(&mut self, size: u64) -> Result<()> {
        self.noted("Truncate", Extent::of(None, size), |file| file.truncate(size))
    }
    fn close(&mut self) -> Result<()> {
        self.noted("Close", Extent::default(), |file| file.close())
    }
    fn pause(&mut self) {
        self.inner.pause();
    }
    fn take_range_sync(&mut self) -> Option<RangeSync> {
        self.inner.take_range_sync()
    }
    fn path(&self) -> &Path {
        self.inner.path()
    }
}
