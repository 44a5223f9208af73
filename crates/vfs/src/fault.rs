//! A file system that fails on request.
//!
//! ```text
//! let fs = FaultFileSystem::new(inner);
//! let rule = fs.add(FaultRule::error(FaultError::NoSpace).on(&[OpKind::Append]).path("MANIFEST").after(3));
//! // ... the fourth append to a MANIFEST fails ...
//! assert_eq!(rule.hits(), 1);
//! ```
//!
//! What is injected sits between the engine and a healthy file system: an injected failure of a sync,
//! say, leaves the data to be synced by the next. For what real systems do there, see
//! [`crate::mem::SyncFailure`].

use crate::clock::{Clock, SystemClock};
use crate::file::*;
use crate::op::OpKind;
use ironstone_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ironstone_base::sync::{Arc, RwLock};
use ironstone_base::{Error, Result};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An error that a call can be made to report.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FaultError {
    /// `EIO`
    Io,
    /// `ENOSPC`
    NoSpace,
    /// `EDQUOT`
    Quota,
    /// `EFBIG`
    FileTooBig,
    /// `EMFILE`
    TooManyOpenFiles,
    /// `EINTR`, as if nobody had tried again.
    Interrupted,
    /// `ETIMEDOUT`
    TimedOut,
    /// `EROFS`
    ReadOnly,
    /// `EACCES`
    Denied,
    /// `ENOENT`
    NotFound,
    /// `EXDEV`: the two names are on different file systems. Links report it as `NotSupported`.
    OtherDevice,
}

impl FaultError {
    fn errno(self) -> Errno {
        match self {
            Self::Io => Errno::IO,
            Self::NoSpace => Errno::NOSPC,
            Self::Quota => Errno::DQUOT,
            Self::FileTooBig => Errno::FBIG,
            Self::TooManyOpenFiles => Errno::MFILE,
            Self::Interrupted => Errno::INTR,
            Self::TimedOut => Errno::TIMEDOUT,
            Self::ReadOnly => Errno::ROFS,
            Self::Denied => Errno::ACCESS,
            Self::NotFound => Errno::NOENT,
            Self::OtherDevice => Errno::XDEV,
        }
    }

    fn on(self, kind: OpKind, path: &Path) -> Error {
        let error = Error::io(path, kind.act(), &io::Error::from(self.errno()));
        match (self, kind) {
            (Self::OtherDevice, OpKind::Link) => Error::not_supported(error.message()),
            _ => error,
        }
        .context("injected fault")
    }
}

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The call does nothing and reports this.
    Error(FaultError),
    /// A read gives at most so many bytes, as if the file ended there.
    ShortRead(usize),
    /// An append writes so many bytes and then reports the error.
    ShortWrite(usize, FaultError),
    /// An append reports success, but zeros are written in the place of the data.
    LostWrite,
    /// An append goes on with one bit changed, as if memory had failed: this one, modulo the length. What is below sees the checksum
    /// that the data had, if there is one.
    FlipWrittenBit(u64),
    /// A read succeeds with one bit changed: this one, counted from the start of what was read and
    /// modulo its length. The file itself is healthy, a second read is right.
    FlipBit(u64),
    /// A read of a [`RandomAccessFile`] succeeds with the bytes from so much further on.
    MisdirectedRead(u64),
    /// The call is made, after this long on the clock.
    Delay(Duration),
}

impl Fault {
    fn fits(self, kind: OpKind) -> bool {
        match self {
            Self::Error(_) | Self::Delay(_) => true,
            Self::ShortRead(_) | Self::FlipBit(_) | Self::MisdirectedRead(_) => kind == OpKind::Read,
            Self::ShortWrite(..) | Self::LostWrite | Self::FlipWrittenBit(_) => kind == OpKind::Append,
        }
    }
}

/// When to let what go wrong. A new rule strikes once, at the first call that it can apply to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultRule {
    fault: Fault,
    /// Empty for all.
    kinds: Vec<OpKind>,
    path_contains: String,
    after: u64,
    times: u64,
}

impl FaultRule {
    /// Once, on any call, at any path.
    pub fn new(fault: Fault) -> Self {
        Self { fault, kinds: Vec::new(), path_contains: String::new(), after: 0, times: 1 }
    }
    /// A rule that lets calls report `error`.
    pub fn error(error: FaultError) -> Self {
        Self::new(Fault::Error(error))
    }
    /// Only calls of these kinds.
    #[must_use]
    pub fn on(mut self, kinds: &[OpKind]) -> Self {
        self.kinds = kinds.to_vec();
        self
    }
    /// Only calls that change something.
    #[must_use]
    pub fn on_changes(mut self) -> Self {
        self.kinds = OpKind::ALL.iter().copied().filter(|kind| kind.changes()).collect();
        self
    }
    /// Only paths that contain `part`. A rename, a link and a reuse are known by both their paths.
    #[must_use]
    pub fn path(mut self, part: impl Into<String>) -> Self {
        self.path_contains = part.into();
        self
    }
    /// Let so many matching calls pass first: `after(n)` strikes the call number n, from 0.
    #[must_use]
    pub fn after(mut self, count: u64) -> Self {
        self.after = count;
        self
    }
    /// Strike so many calls in a row.
    #[must_use]
    pub fn times(mut self, count: u64) -> Self {
        self.times = count;
        self
    }
    /// Strike every matching call from then on.
    #[must_use]
    pub fn forever(self) -> Self {
        self.times(u64::MAX)
    }

    fn matches(&self, kind: OpKind, paths: &[&Path]) -> bool {
        self.fault.fits(kind)
            && (self.kinds.is_empty() || self.kinds.contains(&kind))
            && (self.path_contains.is_empty()
                || paths.iter().any(|path| path.to_string_lossy().contains(&self.path_contains)))
    }
}

#[derive(Debug)]
struct ActiveRule {
    rule: FaultRule,
    /// Calls that matched.
    seen: AtomicU64,
    /// Calls that were struck.
    hits: AtomicU64,
}

/// Tells what became of a rule.
#[derive(Clone, Debug)]
pub struct RuleHandle(Arc<ActiveRule>);

impl RuleHandle {
    /// How many calls matched, struck or not.
    pub fn seen(&self) -> u64 {
        self.0.seen.load(Ordering::SeqCst)
    }
    /// How many calls were struck.
    pub fn hits(&self) -> u64 {
        self.0.hits.load(Ordering::SeqCst)
    }
}

struct Shared {
    inner: Arc<dyn FileSystem>,
    clock: Arc<dyn Clock>,
    /// Relaxed loads: whoever arms or disarms while others use the file system takes what comes.
    armed: AtomicBool,
    counts: [AtomicU64; OpKind::COUNT],
    rules: RwLock<Vec<Arc<ActiveRule>>>,
}

/// Wraps a file system; passes everything on, counts it, and lets calls fail as the rules say.
/// Clones are the same file system. Starts armed and without rules.
#[derive(Clone)]
pub struct FaultFileSystem {
    shared: Arc<Shared>,
}

impl fmt::Debug for FaultFileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultFileSystem({:?})", self.shared.inner)
    }
}

impl FaultFileSystem {
    /// Wraps `inner`; delays take real time.
    pub fn new(inner: Arc<dyn FileSystem>) -> Self {
        Self::with_clock(inner, Arc::new(SystemClock::new()))
    }

    /// Wraps `inner`; delays take time on `clock`.
    pub fn with_clock(inner: Arc<dyn FileSystem>, clock: Arc<dyn Clock>) -> Self {
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        let (armed, rules) = (AtomicBool::new(true), RwLock::default());
        Self { shared: Arc::new(Shared { inner, clock, armed, counts, rules }) }
    }

    /// The wrapped file system.
    pub fn inner(&self) -> &Arc<dyn FileSystem> {
        &self.shared.inner
    }

    /// Adds a rule. All rules see every call; of those that strike, the oldest says what happens,
    /// after all delays.
    pub fn add(&self, rule: FaultRule) -> RuleHandle {
        let active = Arc::new(ActiveRule { rule, seen: AtomicU64::new(0), hits: AtomicU64::new(0) });
        self.shared.rules.write().push(active.clone());
        RuleHandle(active)
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.shared.rules.write().clear();
    }

    /// Passes everything on, uncounted, for the cost of one load per call. Rules stay.
    pub fn disarm(&self) {
        self.shared.armed.store(false, Ordering::Relaxed);
    }

    /// Counts and strikes again.
    pub fn arm(&self) {
        self.shared.armed.store(true, Ordering::Relaxed);
    }

    /// How many calls of `kind` there were while armed.
    pub fn count(&self, kind: OpKind) -> u64 {
        self.shared.counts[kind as usize].load(Ordering::Relaxed)
    }

    /// How many calls there were while armed.
    pub fn total(&self) -> u64 {
        OpKind::ALL.iter().map(|&kind| self.count(kind)).sum()
    }

    /// Starts counting from 0. The counts of rules go on.
    pub fn reset_counts(&self) {
        self.shared.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

impl Shared {
    /// Lets a call to `paths` go ahead, perhaps with a fault for the caller to carry out.
    #[inline]
    fn check(&self, kind: OpKind, paths: &[&Path]) -> Result<Option<Fault>> {
        if self.armed.load(Ordering::Relaxed) { self.check_rules(kind, paths) } else { Ok(None) }
    }

    #[cold]
    fn check_rules(&self, kind: OpKind, paths: &[&Path]) -> Result<Option<Fault>> {
        self.counts[kind as usize].fetch_add(1, Ordering::Relaxed);
        let mut struck = None;
        let mut delay = Duration::ZERO;
        for active in self.rules.read().iter().filter(|active| active.rule.matches(kind, paths)) {
            let number = active.seen.fetch_add(1, Ordering::SeqCst);
            let ordinal = number.checked_sub(active.rule.after);
            if ordinal.is_none_or(|ordinal| ordinal >= active.rule.times) {
                continue;
            }
            active.hits.fetch_add(1, Ordering::SeqCst);
            match active.rule.fault {
                Fault::Delay(wait) => delay += wait,
                fault => struck = struck.or(Some(fault)),
            }
        }
        if delay > Duration::ZERO {
            self.clock.sleep(delay);
        }
        match struck {
            Some(Fault::Error(error)) => Err(error.on(kind, paths[0])),
            fault => Ok(fault),
        }
    }
}

impl FaultFileSystem {
    /// For calls that have no data to spoil.
    fn check(&self, kind: OpKind, paths: &[&Path]) -> Result<()> {
        self.shared.check(kind, paths).map(drop)
    }

    fn wrap(&self, inner: Box<dyn WritableFile>) -> Box<dyn WritableFile> {
        Box::new(FaultWritableFile { inner, shared: self.shared.clone() })
    }
}

impl FileSystem for FaultFileSystem {
    fn open_sequential(&self, path: &Path) -> Result<Box<dyn SequentialFile>> {
        self.check(OpKind::OpenSequential, &[path])?;
        let inner = self.shared.inner.open_sequential(path)?;
        Ok(Box::new(FaultSequentialFile { inner, shared: self.shared.clone() }))
    }
    fn open_random(&self, path: &Path, hints: OpenHints) -> Result<Box<dyn RandomAccessFile>> {
        self.check(OpKind::OpenRandom, &[path])?;
        let inner = self.shared.inner.open_random(path, hints)?;
        Ok(Box::new(FaultRandomAccessFile { inner, shared: self.shared.clone() }))
    }
    fn create(&self, path: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> {
        self.check(OpKind::Create, &[path])?;
        Ok(self.wrap(self.shared.inner.create(path, options)?))
    }
    fn append_to(&self, path: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> {
        self.check(OpKind::AppendTo, &[path])?;
        Ok(self.wrap(self.shared.inner.append_to(path, options)?))
    }
    fn reuse(&self, old: &Path, new: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> {
        self.check(OpKind::Reuse, &[old, new])?;
        Ok(self.wrap(self.shared.inner.reuse(old, new, options)?))
    }
    fn open_directory(&self, path: &Path) -> Result<Box<dyn Directory>> {
        self.check(OpKind::OpenDirectory, &[path])?;
        let inner = self.shared.inner.open_directory(path)?;
        Ok(Box::new(FaultDirectory { inner, path: path.to_owned(), shared: self.shared.clone() }))
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        self.check(OpKind::Exists, &[path])?;
        self.shared.inner.exists(path)
    }
    fn list(&self, path: &Path) -> Result<Vec<String>> {
        self.check(OpKind::List, &[path])?;
        self.shared.inner.list(path)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.check(OpKind::Remove, &[path])?;
        self.shared.inner.remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.check(OpKind::Rename, &[from, to])?;
        self.shared.inner.rename(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.check(OpKind::Link, &[from, to])?;
        self.shared.inner.link(from, to)
    }
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.check(OpKind::CreateDir, &[path])?;
        self.shared.inner.create_dir_all(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.check(OpKind::RemoveDir, &[path])?;
        self.shared.inner.remove_dir(path)
    }
    fn size(&self, path: &Path) -> Result<u64> {
        self.check(OpKind::Size, &[path])?;
        self.shared.inner.size(path)
    }
    fn modified_seconds(&self, path: &Path) -> Result<u64> {
        self.check(OpKind::Modified, &[path])?;
        self.shared.inner.modified_seconds(path)
    }
    fn link_count(&self, path: &Path) -> Result<Option<u64>> {
        self.shared.inner.link_count(path)
    }
    fn free_space(&self, path: &Path) -> Result<u64> {
        self.check(OpKind::FreeSpace, &[path])?;
        self.shared.inner.free_space(path)
    }
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.check(OpKind::Lock, &[path])?;
        self.shared.inner.lock(path)
    }
    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        self.check(OpKind::Absolute, &[path])?;
        self.shared.inner.absolute(path)
    }
}

struct FaultDirectory {
    inner: Box<dyn Directory>,
    path: PathBuf,
    shared: Arc<Shared>,
}

impl Directory for FaultDirectory {
    fn sync(&self) -> Result<()> {
        self.shared.check(OpKind::SyncDirectory, &[&self.path])?;
        self.inner.sync()
    }
}

/// Reads with `read`, as far as the fault lets it, and spoils what was read as the fault says.
fn read_with(
    fault: Option<Fault>,
    buf: &mut [u8],
    read: impl FnOnce(&mut [u8]) -> Result<usize>,
) -> Result<usize> {
    match fault {
        Some(Fault::ShortRead(len)) => {
            let len = len.min(buf.len());
            read(&mut buf[..len])
        }
        Some(Fault::FlipBit(bit)) => {
            let count = read(buf)?;
            if count > 0 {
                let bit = bit % (count as u64 * 8);
                buf[(bit / 8) as usize] ^= 1 << (bit % 8);
            }
            Ok(count)
        }
        _ => read(buf),
    }
}

struct FaultSequentialFile {
    inner: Box<dyn SequentialFile>,
    shared: Arc<Shared>,
}

impl SequentialFile for FaultSequentialFile {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let fault = self.shared.check(OpKind::Read, &[self.inner.path()])?;
        read_with(fault, buf, |buf| self.inner.read(buf))
    }
    fn skip(&mut self, count: u64) -> Result<()> {
        self.inner.skip(count)
    }
    fn path(&self) -> &Path {
        self.inner.path()
    }
}

struct FaultRandomAccessFile {
    inner: Box<dyn RandomAccessFile>,
    shared: Arc<Shared>,
}

impl RandomAccessFile for FaultRandomAccessFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let fault = self.shared.check(OpKind::Read, &[self.inner.path()])?;
        let offset = match fault {
            Some(Fault::MisdirectedRead(by)) => offset.wrapping_add(by),
            _ => offset,
        };
        read_with(fault, buf, |buf| self.inner.read_at(offset, buf))
    }
    fn read_within(&self, offset: u64, buf: &mut [u8], timeout: Duration) -> Result<usize> {
        match self.shared.armed.load(Ordering::Relaxed) {
            true => self.read_at(offset, buf),
            false => self.inner.read_within(offset, buf, timeout),
        }
    }
    /// Every request is a call of its own while rules apply.
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        if !self.shared.armed.load(Ordering::Relaxed) {
            return self.inner.read_many(requests);
        }
        for request in requests {
            request.result = self.read_at(request.offset, request.buf);
        }
    }
    fn ring_file(&self) -> Option<crate::os::RingFile<'_>> {
        if self.shared.armed.load(Ordering::Relaxed) { None } else { self.inner.ring_file() }
    }
    fn prefetch(&self, offset: u64, len: u64) -> bool {
        self.inner.prefetch(offset, len)
    }
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn path(&self) -> &Path {
        self.inner.path()
    }
}

struct FaultWritableFile {
    inner: Box<dyn WritableFile>,
    shared: Arc<Shared>,
}

impl FaultWritableFile {
    fn check(&self, kind: OpKind) -> Result<Option<Fault>> {
        self.shared.check(kind, &[self.inner.path()])
    }

    fn append_faulty(&mut self, data: &[u8], crc32c: Option<u32>) -> Result<()> {
        match self.check(OpKind::Append)? {
            Some(Fault::ShortWrite(len, error)) => {
                self.inner.append(&data[..len.min(data.len())])?;
                self.inner.flush()?; // It is in the file, not in a buffer that may be dropped.
                Err(error.on(OpKind::Append, self.inner.path()))
            }
            Some(Fault::LostWrite) => self.inner.append(&vec![0; data.len()]),
            Some(Fault::FlipWrittenBit(bit)) if !data.is_empty() => {
                let mut flipped = data.to_vec();
                let bit = bit % (8 * data.len() as u64);
                flipped[(bit / 8) as usize] ^= 1 << (bit % 8);
                append_to(&mut *self.inner, &flipped, crc32c)
            }
            _ => append_to(&mut *self.inner, data, crc32c),
        }
    }
}

fn append_to(file: &mut dyn WritableFile, data: &[u8], crc32c: Option<u32>) -> Result<()> {
    match crc32c {
        Some(crc32c) => file.append_checked(data, crc32c),
        None => file.append(data),
    }
}

impl WritableFile for FaultWritableFile {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.append_faulty(data, None)
    }
    fn append_checked(&mut self, data: &[u8], crc32c: u32) -> Result<()> {
        self.append_faulty(data, Some(crc32c))
    }
    fn flush(&mut self) -> Result<()> {
        self.check(OpKind::Flush)?;
        self.inner.flush()
    }
    fn sync(&mut self) -> Result<()> {
        self.check(OpKind::Sync)?;
        self.inner.sync()
    }
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn allocate(&mut self, offset: u64, len: u64) -> Result<()> {
        self.check(OpKind::Allocate)?;
        self.inner.allocate(offset, len)
    }
    fn truncate(&mut self, size: u64) -> Result<()> {
        self.check(OpKind::Truncate)?;
        self.inner.truncate(size)
    }
    fn close(&mut self) -> Result<()> {
        self.check(OpKind::Close)?;
        self.inner.close()
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

#[cfg(test)]
mod tests;
