//! A file system that tells somebody of every operation on a file that has ended.

use crate::clock::Clock;
use crate::file::*;
use crate::os::RingFile;
use ironstone_base::sync::Arc;
use ironstone_base::{Error, Result};
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// What was done to a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileOperationType {
    /// Bytes were read.
    Read,
    /// Bytes were handed to the file, which may gather them before it writes.
    Append,
    /// What it had gathered was handed to the operating system.
    Flush,
    /// It was made durable.
    Sync,
    /// The operating system was asked to begin writing a part back.
    RangeSync,
    /// It was cut.
    Truncate,
    /// It was closed, after it was written.
    Close,
}

/// An operation on a file, as it has ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FileOperationInfo<'a> {
    /// What was done.
    pub operation: FileOperationType,
    /// To which file.
    pub path: &'a Path,
    /// From where in the file, for `Read`, `Append` and `RangeSync`; where it ends then, for `Truncate`; else 0.
    pub offset: u64,
    /// How many bytes: as many as were read, or were to be appended or written back; else 0.
    pub length: u64,
    /// When it began, in microseconds since 1970.
    pub start_micros: u64,
    /// How long it took. Reads that went out together each have the time of all.
    pub duration: Duration,
    /// How it ended.
    pub status: Result<(), &'a Error>,
}

/// Wants to know of operations on files.
pub trait FileOperationWatch: Send + Sync {
    /// Is told of one, by the thread that did it.
    fn finished(&self, operation: &FileOperationInfo<'_>);
}

/// Passes on every call, and tells a watch of reads, appends, flushes, syncs, cuts and closing of files. Not of what is read from mapped
/// memory, and of whole small files that are read or written in one call.
pub struct WatchedFileSystem {
    inner: Arc<dyn FileSystem>,
    told: Told,
}

impl WatchedFileSystem {
    /// Passes on to `inner`. The times are those of `clock`.
    pub fn new(
        inner: Arc<dyn FileSystem>,
        clock: Arc<dyn Clock>,
        watch: Arc<dyn FileOperationWatch>,
    ) -> Self {
        Self { inner, told: Told { watch, clock } }
    }
    fn random(&self, file: Box<dyn RandomAccessFile>) -> Box<dyn RandomAccessFile> {
        Box::new(WatchedRandomAccessFile { file, told: self.told.clone() })
    }
    fn writable(&self, file: Box<dyn WritableFile>) -> Box<dyn WritableFile> {
        Box::new(WatchedWritableFile { file, told: self.told.clone(), closed: false })
    }
}

impl fmt::Debug for WatchedFileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner, f)
    }
}

/// Who is told, and by which clock.
#[derive(Clone)]
struct Told {
    watch: Arc<dyn FileOperationWatch>,
    clock: Arc<dyn Clock>,
}

/// When an operation began, by both clocks.
#[derive(Clone, Copy)]
struct Begun {
    micros: u64,
    nanos: u64,
}

impl Told {
    fn begin(&self) -> Begun {
        Begun { micros: self.clock.now_micros(), nanos: self.clock.monotonic_nanos() }
    }
    fn duration(&self, begun: Begun) -> Duration {
        Duration::from_nanos(self.clock.monotonic_nanos() - begun.nanos)
    }
    /// An operation has ended just now.
    fn end<T>(
        &self,
        begun: Begun,
        operation: FileOperationType,
        path: &Path,
        (offset, length): (u64, u64),
        result: &Result<T>,
    ) {
        self.tell(begun, self.duration(begun), operation, path, (offset, length), result);
    }
    fn tell<T>(
        &self,
        begun: Begun,
        duration: Duration,
        operation: FileOperationType,
        path: &Path,
        (offset, length): (u64, u64),
        result: &Result<T>,
    ) {
        let (start_micros, status) = (begun.micros, result.as_ref().map(drop));
        let info = FileOperationInfo { operation, path, offset, length, start_micros, duration, status };
        self.watch.finished(&info);
    }
}

fn count(read: &Result<usize>) -> u64 {
    read.as_ref().map_or(0, |&count| count as u64)
}

impl FileSystem for WatchedFileSystem {
    crate::pass_on! { self.inner: open_directory exists list remove rename link create_dir_all remove_dir size
    modified_seconds free_space lock absolute expect_files link_count read_all write_all_synced }

    fn open_sequential(&self, path: &Path) -> Result<Box<dyn SequentialFile>> {
        let file = self.inner.open_sequential(path)?;
        Ok(Box::new(WatchedSequentialFile { file, at: 0, told: self.told.clone() }))
    }
    fn open_random(&self, path: &Path, hints: OpenHints) -> Result<Box<dyn RandomAccessFile>> {
        self.inner.open_random(path, hints).map(|file| self.random(file))
    }
    fn open_mapped(&self, path: &Path) -> Result<Option<Box<dyn RandomAccessFile>>> {
        Ok(self.inner.open_mapped(path)?.map(|file| self.random(file)))
    }
    fn create(&self, path: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> {
        self.inner.create(path, options).map(|file| self.writable(file))
    }
    fn append_to(&self, path: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> {
        self.inner.append_to(path, options).map(|file| self.writable(file))
    }
    fn reuse(&self, old: &Path, new: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> {
        self.inner.reuse(old, new, options).map(|file| self.writable(file))
    }
    fn truncate(&self, path: &Path, size: u64) -> Result<()> {
        let begun = self.told.begin();
        let cut = self.inner.truncate(path, size);
        self.told.end(begun, FileOperationType::Truncate, path, (size, 0), &cut);
        cut
    }
}

struct WatchedSequentialFile {
    file: Box<dyn SequentialFile>,
    /// Where it stands.
    at: u64,
    told: Told,
}

impl SequentialFile for WatchedSequentialFile {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let begun = self.told.begin();
        let read = self.file.read(buf);
        let extent = (self.at, count(&read));
        self.told.end(begun, FileOperationType::Read, self.file.path(), extent, &read);
        self.at = self.at.saturating_add(extent.1);
        read
    }
    fn skip(&mut self, count: u64) -> Result<()> {
        self.file.skip(count)?;
        self.at = self.at.saturating_add(count);
        Ok(())
    }
    fn path(&self) -> &Path {
        self.file.path()
    }
}

struct WatchedRandomAccessFile {
    file: Box<dyn RandomAccessFile>,
    told: Told,
}

impl WatchedRandomAccessFile {
    fn watched(&self, offset: u64, read: impl FnOnce() -> Result<usize>) -> Result<usize> {
        let begun = self.told.begin();
        let read = read();
        self.told.end(begun, FileOperationType::Read, self.file.path(), (offset, count(&read)), &read);
        read
    }
}

impl RandomAccessFile for WatchedRandomAccessFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.watched(offset, || self.file.read_at(offset, buf))
    }
    fn read_within(&self, offset: u64, buf: &mut [u8], timeout: Duration) -> Result<usize> {
        self.watched(offset, || self.file.read_within(offset, buf, timeout))
    }
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        let begun = self.told.begin();
        self.file.read_many(requests);
        let duration = self.told.duration(begun);
        for request in requests {
            let extent = (request.offset, count(&request.result));
            let path = self.file.path();
            self.told.tell(begun, duration, FileOperationType::Read, path, extent, &request.result);
        }
    }
    /// What goes out beside the reads of other files would not be seen here.
    fn ring_file(&self) -> Option<RingFile<'_>> {
        None
    }
    fn was_read(&self, micros: u64, results: &[Result<usize>]) {
        self.file.was_read(micros, results);
    }
    fn mapped(&self) -> Option<FileBytes> {
        self.file.mapped()
    }
    fn prefetch(&self, offset: u64, len: u64) -> bool {
        self.file.prefetch(offset, len)
    }
    fn size(&self) -> u64 {
        self.file.size()
    }
    fn path(&self) -> &Path {
        self.file.path()
    }
}

struct WatchedWritableFile {
    file: Box<dyn WritableFile>,
    told: Told,
    closed: bool,
}

impl WatchedWritableFile {
    fn watched(
        &mut self,
        operation: FileOperationType,
        extent: (u64, u64),
        act: impl FnOnce(&mut dyn WritableFile) -> Result<()>,
    ) -> Result<()> {
        let begun = self.told.begin();
        let result = act(&mut *self.file);
        let duration = self.told.duration(begun);
        if let Some(RangeSync { offset, len, nanos }) = self.file.take_range_sync() {
            let took = Duration::from_nanos(nanos);
            let path = self.file.path();
            self.told.tell(begun, took, FileOperationType::RangeSync, path, (offset, len), &Ok(()));
        }
        self.told.tell(begun, duration, operation, self.file.path(), extent, &result);
        result
    }
}

impl WritableFile for WatchedWritableFile {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        let extent = (self.file.size(), data.len() as u64);
        self.watched(FileOperationType::Append, extent, |file| file.append(data))
    }
    fn append_checked(&mut self, data: &[u8], crc32c: u32) -> Result<()> {
        let extent = (self.file.size(), data.len() as u64);
        self.watched(FileOperationType::Append, extent, |file| file.append_checked(data, crc32c))
    }
    fn flush(&mut self) -> Result<()> {
        self.watched(FileOperationType::Flush, (0, 0), |file| file.flush())
    }
    fn sync(&mut self) -> Result<()> {
        self.watched(FileOperationType::Sync, (0, 0), |file| file.sync())
    }
    fn size(&self) -> u64 {
        self.file.size()
    }
    fn allocate(&mut self, offset: u64, len: u64) -> Result<()> {
        self.file.allocate(offset, len)
    }
    fn truncate(&mut self, size: u64) -> Result<()> {
        self.watched(FileOperationType::Truncate, (size, 0), |file| file.truncate(size))
    }
    fn close(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.closed, true) {
            return self.file.close();
        }
        self.watched(FileOperationType::Close, (0, 0), |file| file.close())
    }
    fn pause(&mut self) {
        self.file.pause();
    }
    fn take_range_sync(&mut self) -> Option<RangeSync> {
        self.file.take_range_sync()
    }
    fn path(&self) -> &Path {
        self.file.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::fault::{Fault, FaultError, FaultFileSystem, FaultRule};
    use crate::mem::MemFileSystem;
    use crate::op::OpKind;
    use ironstone_base::sync::Mutex;

    #[derive(Default)]
    struct Notebook(Mutex<Vec<String>>);
    impl FileOperationWatch for Notebook {
        fn finished(&self, info: &FileOperationInfo<'_>) {
            let FileOperationInfo { operation, offset, length, .. } = info;
            let failed = if info.status.is_err() { " failed" } else { "" };
            assert_eq!((info.path, info.start_micros), (Path::new("/f"), 77));
            self.0.lock().push(format!("{operation:?} {offset}+{length}{failed}"));
        }
    }

    fn watched() -> (FaultFileSystem, Arc<Notebook>, WatchedFileSystem) {
        let faults = FaultFileSystem::new(Arc::new(MemFileSystem::new()));
        let notebook = Arc::new(Notebook::default());
        let clock = Arc::new(ManualClock::new(77));
        let fs = WatchedFileSystem::new(Arc::new(faults.clone()), clock, notebook.clone());
        (faults, notebook, fs)
    }

    #[test]
    fn operations_are_told_with_their_place_and_end() {
        let (faults, notebook, fs) = watched();
        let path = Path::new("/f");
        let take = || std::mem::take(&mut *notebook.0.lock());
        let mut file = fs.create(path, WriteOptions::default()).unwrap();
        file.append(b"abc").unwrap();
        file.append_checked(b"defg", ironstone_base::checksum::crc32c(b"defg")).unwrap();
        file.flush().unwrap();
        file.sync().unwrap();
        file.truncate(6).unwrap();
        file.append(b"hi").unwrap();
        file.close().unwrap();
        file.close().unwrap();
        let written =
            ["Append 0+3", "Append 3+4", "Flush 0+0", "Sync 0+0", "Truncate 6+0", "Append 6+2", "Close 0+0"];
        assert_eq!(take(), written);

        let mut file = fs.open_sequential(path).unwrap();
        let mut buf = [0; 5];
        file.read(&mut buf[..2]).unwrap();
        file.skip(1).unwrap();
        file.read(&mut buf).unwrap();
        file.read(&mut buf).unwrap();
        assert_eq!(take(), ["Read 0+2", "Read 3+5", "Read 8+0"]);

        let file = fs.open_random(path, OpenHints::default()).unwrap();
        assert!(file.ring_file().is_none());
        file.read_at(6, &mut buf).unwrap();
        file.read_within(1, &mut buf, Duration::from_secs(1)).unwrap();
        let (first, second) = buf.split_at_mut(2);
        let request = |offset, buf| ReadRequest { offset, buf, result: Ok(0) };
        file.read_many(&mut [request(0, first), request(7, second)]);
        assert_eq!(take(), ["Read 6+2", "Read 1+5", "Read 0+2", "Read 7+1"]);

        for kind in [OpKind::Read, OpKind::Append, OpKind::Sync, OpKind::Truncate, OpKind::Close] {
            faults.add(FaultRule::new(Fault::Error(FaultError::Io)).on(&[kind]));
        }
        file.read_at(2, &mut buf).unwrap_err();
        let mut file = fs.append_to(path, WriteOptions::default()).unwrap();
        file.append(b"abc").unwrap_err();
        file.sync().unwrap_err();
        file.truncate(2).unwrap_err();
        file.close().unwrap_err();
        let failed = [
            "Read 2+0 failed",
            "Append 8+3 failed",
            "Sync 0+0 failed",
            "Truncate 2+0 failed",
            "Close 0+0 failed",
        ];
        assert_eq!(take(), failed);
        fs.truncate(path, 4).unwrap();
        assert_eq!(take(), ["Truncate 4+0"]);
    }
}
