//! The traits of files and of the file system that holds them.

use ironstone_base::sync::Arc;
use ironstone_base::{Error, Result};
use rustix::io::Errno;
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How a file will be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenHints {
    /// Bypass the page cache (`O_DIRECT`). Alignment is the implementation's business.
    pub direct: bool,
    /// Where reads will be.
    pub access: Access,
    /// How long the file is to be, if that is known: it need not be asked for. A file system that does not ask answers this as
    /// [`RandomAccessFile::size`], and fails the first [`read_at`](RandomAccessFile::read_at) up to there with `Corruption` if the
    /// file goes on. One around another, whose files have other sizes, does not pass it on as it is.
    pub size: Option<u64>,
}

impl OpenHints {
    /// Front to back, through the page cache.
    pub fn sequential() -> Self {
        Self { access: Access::Sequential, ..Self::default() }
    }
}

/// Where in a file reads will be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Access {
    /// Anywhere: nothing is to be read ahead.
    #[default]
    Random,
    /// Mostly front to back: much may be read ahead.
    Sequential,
    /// Nobody says: whoever reads the file finds out by himself.
    Unknown,
}

/// How a file will be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteOptions {
    /// Bypass the page cache (`O_DIRECT`).
    pub direct: bool,
    /// Bytes gathered before a write reaches the operating system; 0 writes at once. Files on the disk gather 128 KiB at most on the
    /// way to the page cache.
    pub buffer_bytes: usize,
    /// Start writing back in the background after each so many bytes; 0 leaves it to the kernel.
    pub bytes_per_sync: u64,
    /// Sync with `fsync` instead of `fdatasync`.
    pub full_sync: bool,
    /// Grow so far ahead, in zeros, once it is synced again and again: a sync that finds the size as it was is spared the
    /// file system's journal. [`WritableFile::close`] cuts the zeros off; a crash leaves them. 0 never does.
    pub sync_ahead: u64,
    /// Appends of a file that is not synced for a while may be stored to memory that its end is mapped to, which outlives the
    /// process as a write does, where the system and the file system have that. The file grows ahead in zeros for it, cut off and left as
    /// those of `sync_ahead`. Short files are not mapped, nor more than 64 at once. A file system that fails then ends the process (SIGBUS) where a write
    /// would be an error.
    pub mapped: bool,
    /// About how long the file will be; 0 where nobody knows. With `mapped`, a file that will be long is mapped from its start.
    pub expected_len: u64,
    /// Reserve space behind the end of a file that grows, as much again as was written and 64 MiB at most, where the file system gains by that:
    /// it looks for room once and not with each write. [`WritableFile::sync`] and [`WritableFile::close`] give back what is left; a crash before that leaves
    /// it behind the end. Not for files that are synced again and again, nor with `sync_ahead` or `mapped`.
    pub reserve: bool,
}

/// Reads a file front to back.
pub trait SequentialFile: Send {
    /// Fills `buf` from the current place; less than its length only at the end of the file.
    fn read(&mut self, buf: &mut [u8]) -> Result<usize>;
    /// Passes over `count` bytes.
    fn skip(&mut self, count: u64) -> Result<()>;
    /// Where the file is.
    fn path(&self) -> &Path;
}

/// One of many reads that go out together.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// Where to read.
    pub offset: u64,
    /// Where to put it; its length is how much.
    pub buf: &'a mut [u8],
    /// How much was read; less than `buf.len()` only at the end of the file.
    pub result: Result<usize>,
}

impl ReadRequest<'_> {
    /// Reads by itself what was too large to go along with others, at the end of the file, or failed.
    pub fn complete(&mut self, file: &dyn RandomAccessFile) {
        if !matches!(self.result, Ok(count) if count == self.buf.len()) {
            self.result = file.read_at(self.offset, self.buf);
        }
    }
}

/// The bytes of a whole file, in memory for as long as this or a clone of it lives.
#[derive(Clone)]
pub struct FileBytes(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl FileBytes {
    /// The bytes that `owner` answers, which must always be the same.
    pub fn new(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self(Arc::new(owner))
    }
}

impl Deref for FileBytes {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl fmt::Debug for FileBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

/// Reads a file at any place, from any thread.
pub trait RandomAccessFile: Send + Sync {
    /// Fills `buf` from `offset`; less than its length only at the end of the file.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;
    /// As [`read_at`](Self::read_at), and answers `TimedOut` once `timeout` has passed, where the file can tell: files of the
    /// operating system cannot, and take the time that they take.
    fn read_within(&self, offset: u64, buf: &mut [u8], _timeout: Duration) -> Result<usize> {
        self.read_at(offset, buf)
    }
    /// Does all `requests`, at once where the system can; each carries its own result.
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        for request in requests {
            request.result = self.read_at(request.offset, request.buf);
        }
    }
    /// What [`read_together`](crate::os::read_together) knows the file by, so that its reads go out beside those
    /// of other files; `None` if it has to be read by itself.
    fn ring_file(&self) -> Option<crate::os::RingFile<'_>> {
        None
    }
    /// Notes that [`read_together`](crate::os::read_together) did reads of it, in so many microseconds: for files that count.
    fn was_read(&self, _micros: u64, _results: &[Result<usize>]) {}
    /// All of the file, if it is mapped into memory.
    fn mapped(&self) -> Option<FileBytes> {
        None
    }
    /// Says that `len` bytes at `offset` will be wanted soon. A hint: failures are not reported. Answers
    /// whether the system keeps what it reads for it.
    fn prefetch(&self, _offset: u64, _len: u64) -> bool {
        false
    }
    /// The length of the file when it was opened.
    fn size(&self) -> u64;
    /// Where the file is.
    fn path(&self) -> &Path;
}

/// Appends to a file. Dropping it without [`WritableFile::close`] loses what is still buffered.
pub trait WritableFile: Send {
    /// Adds `data` at the end (for a reused file: at the place after the last append).
    fn append(&mut self, data: &[u8]) -> Result<()>;
    /// The same with the CRC-32C of `data` (`checksum_handoff_file_types`). A file that compares them answers `Corruption` to data that
    /// changed on its way, and does not write it; one that cannot passes over the checksum. One that stands before another hands it on.
    fn append_checked(&mut self, data: &[u8], _crc32c: u32) -> Result<()> {
        self.append(data)
    }
    /// Hands everything buffered to the operating system: it survives a crash of the process.
    fn flush(&mut self) -> Result<()>;
    /// Flushes, and makes the data and the size durable: they survive a crash of the machine.
    /// After a failure the file must not be trusted again, whatever a later call says.
    fn sync(&mut self) -> Result<()>;
    /// Where the next append goes: how many bytes were appended, plus what a file opened with
    /// [`FileSystem::append_to`] had before.
    fn size(&self) -> u64;
    /// Reserves disk space for `len` bytes from `offset` without changing the size. A hint.
    fn allocate(&mut self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }
    /// Cuts the file to `size` bytes (or pads it with zeros); the next append goes there.
    fn truncate(&mut self, size: u64) -> Result<()>;
    /// Gives back memory that only further appends need: there will be few, or none.
    fn pause(&mut self) {}
    /// Flushes and closes; does not sync. Fine to call twice; nothing else may follow.
    fn close(&mut self) -> Result<()>;
    /// What the operating system was asked to begin writing back since this was last called
    /// ([`bytes_per_sync`](WriteOptions::bytes_per_sync)): for who tells of it.
    fn take_range_sync(&mut self) -> Option<RangeSync> {
        None
    }
    /// Where the file is.
    fn path(&self) -> &Path;
}

/// A part of a file that the operating system was asked to begin writing back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeSync {
    /// Where it begins.
    pub offset: u64,
    /// How many bytes it has.
    pub len: u64,
    /// How long asking took.
    pub nanos: u64,
}

impl RangeSync {
    /// With what was asked for before, if there is something: the one goes on where the other ends.
    pub(crate) fn after(self, before: Option<Self>) -> Self {
        let Some(before) = before else { return self };
        Self { offset: before.offset, len: before.len + self.len, nanos: before.nanos + self.nanos }
    }
}

/// What a [`WritableFile`] leaves to the one that it stands before, its field `file`: all but the way of the data.
#[macro_export]
macro_rules! leave_to_file_below {
    () => {
        fn size(&self) -> u64 {
            self.file.size()
        }
        fn allocate(&mut self, offset: u64, len: u64) -> ::ironstone_base::Result<()> {
            self.file.allocate(offset, len)
        }
        fn truncate(&mut self, size: u64) -> ::ironstone_base::Result<()> {
            self.file.truncate(size)
        }
        fn pause(&mut self) {
            self.file.pause();
        }
        fn close(&mut self) -> ::ironstone_base::Result<()> {
            self.file.close()
        }
        fn take_range_sync(&mut self) -> ::std::option::Option<$crate::RangeSync> {
            self.file.take_range_sync()
        }
        fn path(&self) -> &::std::path::Path {
            self.file.path()
        }
    };
}

/// An open directory.
pub trait Directory: Send + Sync {
    /// Makes the entries (created, renamed, removed names) durable.
    fn sync(&self) -> Result<()>;
}

/// Held while a database is open; let go of when dropped.
pub trait FileLock: Send + Sync {}

/// A file system. Every error names the path and the act.
pub trait FileSystem: Send + Sync + fmt::Debug {
    /// Opens an existing file to read it front to back.
    fn open_sequential(&self, path: &Path) -> Result<Box<dyn SequentialFile>>;
    /// Opens an existing file to read it anywhere.
    fn open_random(&self, path: &Path, hints: OpenHints) -> Result<Box<dyn RandomAccessFile>>;
    /// Opens an existing file that nobody will change to read it anywhere from memory that it is mapped to. `None` if that cannot be
    /// done here, as in file systems that are not the operating system's: [`open_random`](Self::open_random) does it in another way.
    ///
    /// Whoever changes or cuts the file all the same while it is mapped makes reads find other bytes, or ends the process (SIGBUS).
    fn open_mapped(&self, _path: &Path) -> Result<Option<Box<dyn RandomAccessFile>>> {
        Ok(None)
    }
    /// Creates a file, or empties the one that is there.
    fn create(&self, path: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>>;
    /// Opens a file to append to it, keeping what is there; creates it if missing.
    fn append_to(&self, path: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>>;
    /// Renames `old` to `new` and opens it to overwrite from its start, keeping its old bytes
    /// until they are overwritten (WAL recycling).
    fn reuse(&self, old: &Path, new: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>>;
    /// Opens a directory.
    fn open_directory(&self, path: &Path) -> Result<Box<dyn Directory>>;
    /// Whether something is at `path`. Errors other than absence are reported.
    fn exists(&self, path: &Path) -> Result<bool>;
    /// The names (not paths) in a directory, in no order, without `.` and `..`.
    fn list(&self, path: &Path) -> Result<Vec<String>>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Renames a file, replacing what is at `to`.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Makes a second name for a file. `NotSupported` across file systems.
    fn link(&self, from: &Path, to: &Path) -> Result<()>;
    /// Makes a directory and its missing parents; fine if it exists.
    fn create_dir_all(&self, path: &Path) -> Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> Result<()>;
    /// The length of a file.
    fn size(&self, path: &Path) -> Result<u64>;
    /// When a file was last written, in seconds since 1970.
    fn modified_seconds(&self, path: &Path) -> Result<u64>;
    /// How many bytes can still be written below `path`.
    fn free_space(&self, path: &Path) -> Result<u64>;
    /// Locks `path` (created if missing) against every other process, RocksDB included, and
    /// against a second lock in this one; refuses at once if it is held.
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>>;
    /// The path in its one canonical form, for telling whether two are the same place.
    fn absolute(&self, path: &Path) -> Result<PathBuf>;

    /// Up to so many more files are about to be open at once. A hint: room is made for them at once, where that takes as long as for
    /// one.
    fn expect_files(&self, _count: usize) {}
    /// How many names the file has; `None` if that cannot be told.
    fn link_count(&self, _path: &Path) -> Result<Option<u64>> {
        Ok(None)
    }
    /// Cuts the file at `path` to `size` bytes, or pads it with zeros. Does not sync.
    fn truncate(&self, path: &Path, size: u64) -> Result<()> {
        let mut file = self.append_to(path, WriteOptions::default())?;
        file.truncate(size)?;
        file.close()
    }
    /// Reads a whole (small) file.
    fn read_all(&self, path: &Path) -> Result<Vec<u8>> {
        let mut file = self.open_sequential(path)?;
        let mut bytes = Vec::new();
        let mut chunk = vec![0; 64 << 10];
        loop {
            let count = file.read(&mut chunk)?;
            if count == 0 {
                return Ok(bytes);
            }
            bytes.extend_from_slice(&chunk[..count]);
        }
    }
    /// Writes a whole (small) file and syncs it. The directory entry is the caller's to sync.
    fn write_all_synced(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let mut file = self.create(path, WriteOptions::default())?;
        file.append(bytes)?;
        file.sync()?;
        file.close()
    }
}

/// What the system, or what stands in for it, said about `act` on `path`.
#[cold]
pub(crate) fn failed(path: &Path, act: &str, errno: Errno) -> Error {
    Error::io(path, act, &std::io::Error::from(errno))
}
