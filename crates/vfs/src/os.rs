//! The operating system's files.
//!
//! A file is opened without blocking and must be a regular file: a FIFO or a directory in the place
//! of a database file is an error, not a hang. Descriptors are closed on `exec`.

mod ahead;
mod aligned;
mod lock;
mod mapped;
mod mapping;
mod random;
mod range_sync;
#[cfg_attr(not(all(feature = "io_uring", target_os = "linux")), path = "os/no_ring.rs")]
mod ring;
#[cfg_attr(not(target_os = "linux"), path = "os/no_window.rs")]
mod window;
mod writable;

pub use ring::{RingFile, read_together};

use crate::file::*;
use crate::timer::PerfTimer;
use ironstone_base::perf::{IoMetric, PerfMetric};
use ironstone_base::sync::Arc;
use ironstone_base::{Error, Result};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Advice, AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::Resource;
use std::io;
use std::path::{Path, PathBuf};

/// What new files allow, before the process's mask: what RocksDB gives its own.
const FILE_MODE: Mode = Mode::from_raw_mode(0o644);
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o755);

/// The operating system's file system.
///
/// Locks belong to the process: two values of this type exclude each other as two processes do.
#[derive(Debug, Default)]
pub struct OsFileSystem {
    ahead: Arc<ahead::Ahead>,
}

impl OsFileSystem {
    /// The operating system's file system.
    pub fn new() -> Self {
        Self::default()
    }
}

impl FileSystem for OsFileSystem {
    fn open_sequential(&self, path: &Path) -> Result<Box<dyn SequentialFile>> {
        let _timer = PerfTimer::start(PerfMetric::EnvNewSequentialFileNanos);
        let (fd, _) = open_regular(path, OFlags::RDONLY)?;
        // A hint: where it is not understood, reading works all the same.
        let _ = rustix::fs::fadvise(&fd, 0, None, Advice::Sequential);
        Ok(Box::new(random::OsSequentialFile::new(fd, path)))
    }

    fn open_random(&self, path: &Path, hints: OpenHints) -> Result<Box<dyn RandomAccessFile>> {
        let _timer = PerfTimer::start(PerfMetric::EnvNewRandomAccessFileNanos);
        if hints.direct {
            let (fd, stat) = open_regular(path, OFlags::RDONLY | OFlags::DIRECT)?;
            return Ok(Box::new(random::DirectRandomAccessFile::new(fd, path, length(&stat))));
        }
        let fd = open_waitless(path, OFlags::RDONLY)?;
        let size = match hints.size {
            Some(size) => size, // Reads of what is no regular file fail, and do not wait.
            None => length(&stat_regular(&fd, path, "open")?),
        };
        let advice = match hints.access {
            Access::Random => Advice::Random,
            Access::Sequential => Advice::Sequential,
            Access::Unknown => Advice::Normal,
        };
        Ok(Box::new(random::OsRandomAccessFile::new(fd, path, size, hints.size.is_none(), advice)))
    }

    fn open_mapped(&self, path: &Path) -> Result<Option<Box<dyn RandomAccessFile>>> {
        let (fd, stat) = open_regular(path, OFlags::RDONLY)?;
        let file = mapped::MappedRandomAccessFile::new(fd.as_fd(), path, length(&stat));
        Ok(file.map(|file| Box::new(file) as Box<dyn RandomAccessFile>))
    }

    fn create(&self, path: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> {
        let _timer = PerfTimer::start(PerfMetric::EnvNewWritableFileNanos);
        let flags = OFlags::CREATE | OFlags::TRUNC;
        if options.direct {
            // Readable too: the last, partial page may have to be written again.
            let (fd, _) = open_regular(path, flags | OFlags::RDWR | OFlags::DIRECT)?;
            return Ok(Box::new(writable::DirectWritableFile::new(fd, path, options)));
        }
        // What is mapped for writing has to be readable.
        let access = if options.mapped { OFlags::RDWR } else { OFlags::WRONLY };
        let (fd, _) = open_regular(path, flags | access)?;
        Ok(Box::new(writable::OsWritableFile::of_new(fd, path, options, &self.ahead)))
    }

    fn append_to(&self, path: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> {
        if options.direct {
            let (fd, stat) = open_regular(path, OFlags::RDWR | OFlags::CREATE | OFlags::DIRECT)?;
            let file = writable::DirectWritableFile::resume(fd, path, options, length(&stat))?;
            return Ok(Box::new(file));
        }
        let (fd, stat) = open_regular(path, OFlags::WRONLY | OFlags::CREATE)?;
        Ok(Box::new(writable::OsWritableFile::new(fd, path, options, length(&stat))))
    }

    /// The file is written through the page cache even if `options.direct` is set: a direct write
    /// covers whole pages and would erase old bytes before they are overwritten.
    fn reuse(&self, old: &Path, new: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> {
        let _timer = PerfTimer::start(PerfMetric::EnvReuseWritableFileNanos);
        self.rename(old, new)?;
        let (fd, stat) = open_regular(new, OFlags::WRONLY)?;
        Ok(Box::new(writable::OsWritableFile::over(fd, new, options, length(&stat))))
    }

    fn open_directory(&self, path: &Path) -> Result<Box<dyn Directory>> {
        let _timer = PerfTimer::start(PerfMetric::EnvNewDirectoryNanos);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))
            .map_err(|errno| failed(path, "open directory", errno))?;
        Ok(Box::new(OsDirectory { fd, path: path.to_owned() }))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let _timer = PerfTimer::start(PerfMetric::EnvFileExistsNanos);
        match retry_on_intr(|| rustix::fs::stat(path)) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(errno) => Err(failed(path, "look for", errno)),
        }
    }

    /// A name that is not UTF-8 comes with replacement characters in it: it names no database file,
    /// and one foreign file must not keep a database from opening.
    fn list(&self, path: &Path) -> Result<Vec<String>> {
        let _timer = PerfTimer::start(PerfMetric::EnvGetChildrenNanos);
        let failed = |errno| failed(path, "list", errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty())).map_err(failed)?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(fd).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let _timer = PerfTimer::start(PerfMetric::EnvDeleteFileNanos);
        retry_on_intr(|| rustix::fs::unlink(path)).map_err(|errno| failed(path, "remove", errno))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let _timer = PerfTimer::start(PerfMetric::EnvRenameFileNanos);
        retry_on_intr(|| rustix::fs::rename(from, to))
            .map_err(|errno| failed(from, &format!("rename to {}:", to.display()), errno))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let _timer = PerfTimer::start(PerfMetric::EnvLinkFileNanos);
        retry_on_intr(|| rustix::fs::link(from, to)).map_err(|errno| match errno {
            Errno::XDEV | Errno::OPNOTSUPP => Error::not_supported(format!(
                "link {} to {}: {}",
                from.display(),
                to.display(),
                io::Error::from(errno)
            )),
            _ => failed(from, &format!("link to {}:", to.display()), errno),
        })
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        let _timer = PerfTimer::start(PerfMetric::EnvCreateDirIfMissingNanos);
        create_dir_all(path)
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        let _timer = PerfTimer::start(PerfMetric::EnvDeleteDirNanos);
        retry_on_intr(|| rustix::fs::rmdir(path)).map_err(|errno| failed(path, "remove directory", errno))
    }

    fn size(&self, path: &Path) -> Result<u64> {
        let _timer = PerfTimer::start(PerfMetric::EnvGetFileSizeNanos);
        Ok(length(&stat(path, "size up")?))
    }

    fn modified_seconds(&self, path: &Path) -> Result<u64> {
        let _timer = PerfTimer::start(PerfMetric::EnvGetFileModificationTimeNanos);
        // A time before 1970 (a damaged inode, a broken clock) is as old as it gets.
        Ok(u64::try_from(stat(path, "read the time of")?.st_mtime).unwrap_or(0))
    }

    fn link_count(&self, path: &Path) -> Result<Option<u64>> {
        Ok(Some(stat(path, "count the names of")?.st_nlink))
    }

    fn free_space(&self, path: &Path) -> Result<u64> {
        let space = retry_on_intr(|| rustix::fs::statvfs(path))
            .map_err(|errno| failed(path, "measure the free space of", errno))?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        let _timer = PerfTimer::start(PerfMetric::EnvLockFileNanos);
        Ok(Box::new(lock::OsFileLock::acquire(path, &self.absolute(path)?)?))
    }

    /// What does not exist yet keeps its name below the canonical form of what does.
    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        let failed = |error: io::Error| Error::io(path, "resolve", &error);
        let full = std::path::absolute(path).map_err(failed)?;
        let mut missing = Vec::new();
        let mut existing = full.as_path();
        loop {
            match existing.canonicalize() {
                Ok(mut canonical) => {
                    canonical.extend(missing.iter().rev());
                    return Ok(canonical);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    // No name means `..` or the root: neither can be carried over.
                    let (Some(parent), Some(name)) = (existing.parent(), existing.file_name()) else {
                        return Err(failed(error));
                    };
                    missing.push(name);
                    existing = parent;
                }
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// The table of a process's descriptors doubles each time that it is full. With more than one thread each time is a wait of
    /// some 10 ms, for all who open files.
    fn expect_files(&self, count: usize) {
        let limit = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(lowest) = rustix::fs::open(c"/", flags, Mode::empty()) else { return };
        let last = (lowest.as_raw_fd() as u64).saturating_add(count as u64).min(limit.saturating_sub(1));
        if let Ok(last) = i32::try_from(last) {
            let _ = rustix::io::fcntl_dupfd_cloexec(&lowest, last);
        }
    }

    fn truncate(&self, path: &Path, size: u64) -> Result<()> {
        let (fd, _) = open_regular(path, OFlags::WRONLY)?;
        retry_on_intr(|| rustix::fs::ftruncate(&fd, size)).map_err(|errno| failed(path, "truncate", errno))
    }
}

fn create_dir_all(path: &Path) -> Result<()> {
    match retry_on_intr(|| rustix::fs::mkdir(path, DIRECTORY_MODE)) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) if is_directory(path) => Ok(()),
        Err(Errno::NOENT) => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = parent.ok_or_else(|| failed(path, "create directory", Errno::NOENT))?;
            create_dir_all(parent)?; // Ends: each parent is a shorter path.
            match retry_on_intr(|| rustix::fs::mkdir(path, DIRECTORY_MODE)) {
                Err(Errno::EXIST) if is_directory(path) => Ok(()), // Somebody else was faster.
                made => made.map_err(|errno| failed(path, "create directory", errno)),
            }
        }
        Err(errno) => Err(failed(path, "create directory", errno)),
    }
}

/// An open directory.
#[derive(Debug)]
struct OsDirectory {
    fd: OwnedFd,
    path: PathBuf,
}

impl Directory for OsDirectory {
    fn sync(&self) -> Result<()> {
        match retry_on_intr(|| rustix::fs::fsync(&self.fd)) {
            // File systems that cannot sync a directory say so with EINVAL; they give no more than
            // they give, and there is nothing else to call.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(errno) => Err(failed(&self.path, "sync directory", errno)),
        }
    }
}

/// Opens a regular file without ever waiting for somebody at the other end of a FIFO.
fn open_regular(path: &Path, flags: OFlags) -> Result<(OwnedFd, Stat)> {
    let fd = open_waitless(path, flags)?;
    let stat = stat_regular(&fd, path, act(flags))?;
    let_wait(&fd, flags & OFlags::DIRECT).map_err(|errno| failed(path, "set up", errno))?;
    Ok((fd, stat))
}

/// What opening a file with `flags` is called.
fn act(flags: OFlags) -> &'static str {
    if flags.contains(OFlags::CREATE) { "create" } else { "open" }
}

/// What the system says about an open file, if it is a regular one.
fn stat_regular(fd: &OwnedFd, path: &Path, act: &str) -> Result<Stat> {
    let stat = rustix::fs::fstat(fd).map_err(|errno| failed(path, "stat", errno))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Error::io_message(format!("{act} {}: not a regular file", path.display())));
    }
    Ok(stat)
}

/// Asynchronous reads of a descriptor that must not wait would fail on a page-cache miss.
fn let_wait(fd: &OwnedFd, lasting: OFlags) -> rustix::io::Result<()> {
    rustix::fs::fcntl_setfl(fd, lasting)
}

/// Opens whatever file it is, with a descriptor that must not wait, which reads of one thread do not mind.
fn open_waitless(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    let _timer = PerfTimer::io(IoMetric::OpenNanos);
    lock::check_not_ours(path)?;
    let waitless = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
    match retry_on_intr(|| rustix::fs::open(path, waitless, FILE_MODE)) {
        // Another process has a lease on it, which only a waiting open breaks. FIFOs have none.
        Err(Errno::AGAIN) => retry_on_intr(|| rustix::fs::open(path, flags | OFlags::CLOEXEC, FILE_MODE)),
        opened => opened,
    }
    .map_err(|errno| failed(path, act(flags), errno))
}

fn stat(path: &Path, act: &str) -> Result<Stat> {
    retry_on_intr(|| rustix::fs::statat(CWD, path, AtFlags::empty()))
        .map_err(|errno| failed(path, act, errno))
}

fn is_directory(path: &Path) -> bool {
    stat(path, "").is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// Sizes of regular files are never negative.
fn length(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// What `statfs` calls ext2, ext3 and ext4.
const EXT: u64 = 0xef53;

/// Which file system a file is on, in the numbers of the system's `statfs`.
fn file_system_type(fd: &OwnedFd) -> Option<u64> {
    rustix::fs::fstatfs(fd).ok().map(|stat| stat.f_type as u64)
}

#[cfg(test)]
mod tests;
