//! Locking a database directory against other processes, RocksDB among them.
//!
//! The lock is a POSIX record lock (`F_SETLK`) for writing on the whole file, as RocksDB takes it.
//! Such locks have two traps, and [`TAKEN`] is there for both:
//! - the same process gets the same lock twice;
//! - closing *any* descriptor of the file lets go of the process's lock on it. So nothing in this
//!   process may so much as open a file that is locked; [`check_not_ours`] refuses.

use super::FILE_MODE;
use crate::file::{FileLock, failed};
use crate::timer::PerfTimer;
use ironstone_base::perf::PerfMetric;
use ironstone_base::sync::Mutex;
use ironstone_base::sync::atomic::{AtomicUsize, Ordering};
use ironstone_base::{Error, Result};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, FlockOperation, OFlags, Stat};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Flock, FlockType, Pid, fcntl_getlk, getpid};
use std::path::{Path, PathBuf};

/// A lock that this process, or the process that forked it, holds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holding {
    canonical: PathBuf,
    device: u64,
    inode: u64,
    /// Locks are not inherited by a forked child, but this table is.
    pid: Pid,
}

impl Holding {
    fn is_file(&self, stat: &Stat) -> bool {
        (self.device, self.inode) == (stat.st_dev, stat.st_ino)
    }
}

/// The locks of this process. Held across every act on a lock file.
static TAKEN: Mutex<Vec<Holding>> = Mutex::new(Vec::new());
/// The length of [`TAKEN`], so that opening other files does not take its mutex while nothing is
/// locked. Relaxed: an open that races with a lock of the same file is not ordered anyway.
static TAKEN_COUNT: AtomicUsize = AtomicUsize::new(0);

/// How often a lock file may vanish between opening and locking it before we give up.
const ATTEMPTS: usize = 16;

/// A held lock.
#[derive(Debug)]
pub(super) struct OsFileLock {
    /// Dropped by hand: before the entry leaves the table.
    fd: Option<OwnedFd>,
    holding: Holding,
}

impl OsFileLock {
    /// Locks `path`, whose canonical form is `canonical`, or says who holds it.
    pub(super) fn acquire(path: &Path, canonical: &Path) -> Result<Self> {
        let mut taken = TAKEN.lock();
        let pid = getpid();
        refuse_second(&taken, path, canonical, pid)?; // Before the open: closing again would unlock.
        for _ in 0..ATTEMPTS {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let fd = retry_on_intr(|| rustix::fs::open(path, flags, FILE_MODE))
                .map_err(|errno| failed(path, "While lock file: open", errno))?;
            set_lock(&fd, path)?;
            let stat =
                rustix::fs::fstat(&fd).map_err(|errno| failed(path, "While lock file: stat", errno))?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return Err(Error::io_message(format!(
                    "While lock file: {}: not a regular file",
                    path.display()
                )));
            }
            // The former holder may have removed the file after our open: then we hold a lock on
            // something that nobody else will ever find.
            let named = retry_on_intr(|| rustix::fs::stat(path));
            if !named.is_ok_and(|named| (named.st_dev, named.st_ino) == (stat.st_dev, stat.st_ino)) {
                continue;
            }
            let (device, inode) = (stat.st_dev, stat.st_ino);
            let holding = Holding { canonical: canonical.to_owned(), device, inode, pid };
            taken.retain(|other| other.pid == pid); // What a forking parent held is not ours.
            taken.push(holding.clone());
            TAKEN_COUNT.store(taken.len(), Ordering::Relaxed);
            return Ok(Self { fd: Some(fd), holding });
        }
        Err(Error::io_message(format!("While lock file: {}: it keeps being removed", path.display())))
    }
}

impl FileLock for OsFileLock {}

impl Drop for OsFileLock {
    fn drop(&mut self) {
        let _timer = PerfTimer::start(PerfMetric::EnvUnlockFileNanos);
        let mut taken = TAKEN.lock();
        self.fd = None; // Closing lets go of the lock.
        if let Some(at) = taken.iter().position(|other| *other == self.holding) {
            taken.swap_remove(at);
        }
        TAKEN_COUNT.store(taken.len(), Ordering::Relaxed);
    }
}

/// Refuses if this process holds the lock already, by this name or by another.
fn refuse_second(taken: &[Holding], path: &Path, canonical: &Path, pid: Pid) -> Result<()> {
    let stat = retry_on_intr(|| rustix::fs::stat(path)).ok();
    let same = |holding: &&Holding| {
        holding.pid == pid
            && (holding.canonical == canonical || stat.as_ref().is_some_and(|stat| holding.is_file(stat)))
    };
    if taken.iter().any(|holding| same(&holding)) {
        return Err(Error::io_message(format!(
            "lock hold by current process (pid {}): {}: No locks available",
            pid.as_raw_nonzero(),
            path.display()
        )));
    }
    Ok(())
}

fn set_lock(fd: &OwnedFd, path: &Path) -> Result<()> {
    match retry_on_intr(|| rustix::fs::fcntl_lock(fd, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => Ok(()),
        Err(errno @ (Errno::AGAIN | Errno::ACCESS)) => {
            let holder = match holder(fd) {
                Some(pid) => format!("held by process {}", pid.as_raw_nonzero()),
                None => "held by another process".to_owned(),
            };
            let cause = std::io::Error::from(errno);
            Err(Error::io_message(format!("While lock file: {}: {holder}: {cause}", path.display())))
        }
        Err(errno) => Err(failed(path, "While lock file:", errno)),
    }
}

/// Who holds a lock on the file. Unknown if it was let go meanwhile, or is in another pid namespace
/// or on another machine.
fn holder(fd: &OwnedFd) -> Option<Pid> {
    fcntl_getlk(fd.as_fd(), &Flock::from(FlockType::WriteLock)).ok()??.pid
}

/// Refuses to open a file that this process has locked: closing it again would let go of the lock.
/// Costs one load while nothing is locked, and a comparison of names otherwise.
pub(super) fn check_not_ours(path: &Path) -> Result<()> {
    if TAKEN_COUNT.load(Ordering::Relaxed) == 0 {
        return Ok(());
    }
    let taken = TAKEN.lock();
    let Some(name) = path.file_name() else { return Ok(()) };
    if !taken.iter().any(|holding| holding.canonical.file_name() == Some(name)) {
        return Ok(());
    }
    let pid = getpid();
    match retry_on_intr(|| rustix::fs::stat(path)) {
        Ok(stat) if taken.iter().any(|holding| holding.pid == pid && holding.is_file(&stat)) => {
            Err(Error::io_message(format!(
                "open {}: this process holds its lock, and closing the file would let go of it",
                path.display()
            )))
        }
        // Not ours, or not there: the open that follows will see.
        _ => Ok(()),
    }
}
