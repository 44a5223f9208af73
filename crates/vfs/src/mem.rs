//! An in-memory file system with a crash model.
//!
//! It serves twice. [`MemFileSystem::volatile`] is a fast place for databases that need not outlive
//! the process. [`MemFileSystem::new`] also knows, for every file and every directory, what would
//! survive a power loss at this moment, and makes that into a new file system:
//! [`MemFileSystem::crash`].
//!
//! The crash model, per file: a durable image, and the writes since the last sync in order. Per
//! directory: the durable names, and the changes since its last sync in order. Nothing else is
//! promised by POSIX, so nothing else is promised here: a file that was synced is lost with its name
//! unless its directory was synced too (see [`MemFileSystem::set_sync_persists_name`]), and so is a
//! directory unless its parent was.
//!
//! Every call that changes something has a number; the numbers have no gaps. They say where a crash
//! happens ([`MemFileSystem::set_crash_point`]) and what the log talks about. In the crash model
//! such calls take effect one after the other, in the order of their numbers.

mod crash;
mod image;
mod inode;
mod names;

pub use crash::CrashPolicy;

use crate::append_buffer::AppendBuffer;
use crate::checksum_handoff::check_handed_over;
use crate::clock::{Clock, SystemClock};
use crate::file::*;
use crate::op::OpKind;
use crash::Crash;
use image::Image;
use inode::{FileState, Inode, Space};
use ironstone_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ironstone_base::sync::{Arc, Mutex, MutexGuard, RwLock};
use ironstone_base::{Error, Result};
use names::{DirId, Names, Node};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// A call that changed something, or tried to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogEntry {
    /// Its number.
    pub op: u64,
    /// What it did.
    pub kind: OpKind,
    /// To what. A rename and a link log their source.
    pub path: Arc<Path>,
    /// Where in the file; 0 if that means nothing.
    pub offset: u64,
    /// How many bytes; for a truncation the new length.
    pub len: u64,
}

impl fmt::Display for LogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, kind, path, offset, len } = self;
        write!(f, "{op} {kind} {} at {offset} len {len}", path.display())
    }
}

/// What a sync that fails does to the data. Systems differ, so an engine must survive all three.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SyncFailure {
    /// F-a: an error, and the data stays to be written by the next sync.
    StaysDirty,
    /// F-b (ext4, XFS): an error, once. Readers go on seeing the new data, later syncs succeed, and
    /// the data never reaches the device.
    MarkedClean,
    /// F-c (btrfs): an error, and readers see the old data again.
    Reverted,
}

/// The order to let a sync of a file fail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyncFault {
    /// Only files whose path contains this; empty for all.
    pub path_contains: String,
    /// How many such syncs succeed before.
    pub after: u64,
    /// What the failing one does. One sync fails, and the order is carried out.
    pub failure: SyncFailure,
}

/// What is known about the past. Its mutex also puts the changing calls in one order.
#[derive(Default)]
struct Journal {
    log: Vec<LogEntry>,
    sync_faults: Vec<SyncFault>,
    /// With `capturing`: a copy of everything from before each operation.
    captures: BTreeMap<u64, MemFileSystem>,
    capturing: bool,
}

struct Shared {
    /// Whether there is a crash model.
    tracked: bool,
    clock: Arc<dyn Clock>,
    space: Arc<Space>,
    next_op: AtomicU64,
    /// The first operation that fails.
    crash_point: AtomicU64,
    crashed: AtomicBool,
    sync_persists_name: AtomicBool,
    /// Locks are taken in the order of these three: journal, names, then the state of a file.
    journal: Mutex<Journal>,
    names: RwLock<Names>,
    locks: Mutex<HashSet<PathBuf>>,
}

/// A file system in memory. Clones are the same file system; [`MemFileSystem::fork`] makes another.
#[derive(Clone)]
pub struct MemFileSystem {
    shared: Arc<Shared>,
}

impl fmt::Debug for MemFileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemFileSystem({} operations)", self.op_count())
    }
}

impl Default for MemFileSystem {
    fn default() -> Self {
        Self::new()
    }
}

impl MemFileSystem {
    /// An empty file system with a crash model.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock::new()))
    }

    /// An empty file system with a crash model; files get their times from `clock`.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self::build(true, clock, Space::new(None), Names::new(true))
    }

    /// An empty file system without a crash model: syncs cost nothing, no second copy is kept, and
    /// files are written in parallel. [`MemFileSystem::crash`] gives what [`MemFileSystem::fork`]
    /// gives, and there is no log.
    pub fn volatile() -> Self {
        Self::build(false, Arc::new(SystemClock::new()), Space::new(None), Names::new(false))
    }

    fn build(tracked: bool, clock: Arc<dyn Clock>, space: Arc<Space>, names: Names) -> Self {
        let shared = Shared {
            tracked,
            clock,
            space,
            next_op: AtomicU64::new(0),
            crash_point: AtomicU64::new(u64::MAX),
            crashed: AtomicBool::new(false),
            sync_persists_name: AtomicBool::new(false),
            journal: Mutex::default(),
            names: RwLock::new(names),
            locks: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// How many changing calls there were: the number of the next one.
    pub fn op_count(&self) -> u64 {
        self.shared.next_op.load(Ordering::SeqCst)
    }

    /// The changing calls so far, those that failed included. Empty without a crash model.
    pub fn log(&self) -> Vec<LogEntry> {
        self.shared.journal.lock().log.clone()
    }

    /// Lets the power fail at operation `op`: that call and every call after it, reads included,
    /// fails with an I/O error and changes nothing. The state stays as it was at that moment, for
    /// [`MemFileSystem::crash`] and [`MemFileSystem::fork`].
    pub fn set_crash_point(&self, op: u64) {
        self.shared.crash_point.store(op, Ordering::SeqCst);
    }

    /// Whether the power has failed.
    pub fn crashed(&self) -> bool {
        self.shared.crashed.load(Ordering::SeqCst)
    }

    /// The file system that a machine finds when it comes back from a power loss at this moment:
    /// what survived is durable, no lock is held, and operations are numbered from 0.
    /// Everything else stays as it was set, except that no fault and no crash point is.
    pub fn crash(&self, policy: CrashPolicy, seed: u64) -> Self {
        if !self.shared.tracked {
            return self.fork();
        }
        let _order = self.shared.journal.lock();
        let names = self.shared.names.read();
        let crash = Crash::new(policy, seed, &names, garbage(&names));
        let survivors = names.with_entries(crash.surviving_entries(&names));
        let space = Space::new(self.shared.space.capacity());
        let rebuilt = survivors.copy(|inode| {
            let state = inode.state.read();
            let image = crash.surviving_image(inode.id, &state);
            let state = FileState::durable(image, state.modified_seconds);
            Arc::new(Inode::new(inode.id, Arc::new(state), &space))
        });
        self.sibling(space, rebuilt)
    }

    /// Another file system with the same content, durable and not, numbering its operations from
    /// where this one is. It has no locks, no faults, no log and no crash point; files that are
    /// open here are not open there. Copies share memory until one side writes.
    pub fn fork(&self) -> Self {
        let _order = self.shared.journal.lock();
        self.fork_ordered()
    }

    /// `fork` for those who hold the journal.
    fn fork_ordered(&self) -> Self {
        let space = Space::new(self.shared.space.capacity());
        let names = self.shared.names.read().copy(|inode| inode.share(&space));
        let fork = self.sibling(space, names);
        fork.shared.next_op.store(self.op_count(), Ordering::SeqCst);
        fork
    }

    fn sibling(&self, space: Arc<Space>, names: Names) -> Self {
        let sibling = Self::build(self.shared.tracked, self.shared.clock.clone(), space, names);
        sibling.set_sync_persists_name(self.shared.sync_persists_name.load(Ordering::Relaxed));
        sibling
    }

    /// Keeps a fork from before each operation from now on, so that one run gives the crash images
    /// of all its moments; `false` stops and forgets. Needs the crash model.
    pub fn set_capturing(&self, capturing: bool) {
        let mut journal = self.shared.journal.lock();
        journal.capturing = capturing && self.shared.tracked;
        if !capturing {
            journal.captures.clear();
        }
    }

    /// The file system as it was just before operation `op`, if it was captured: the state of a
    /// crash at `op`. It is one and the same each time; use [`MemFileSystem::crash`] on it.
    pub fn captured(&self, op: u64) -> Option<Self> {
        self.shared.journal.lock().captures.get(&op).cloned()
    }

    /// Whether a sync of a file also makes its name durable, as journalling file systems do; they
    /// commit what happened in the directory before along with it. Off at first: POSIX does not
    /// promise it.
    pub fn set_sync_persists_name(&self, persists: bool) {
        self.shared.sync_persists_name.store(persists, Ordering::Relaxed);
    }

    /// Lets a sync fail. Several orders may be waiting. Needs the crash model.
    pub fn fail_sync(&self, fault: SyncFault) {
        self.shared.journal.lock().sync_faults.push(fault);
    }

    /// The most bytes that all files together may have; a write past it does what fits and then
    /// fails with `ENOSPC`. `None` lifts the limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.space.set_capacity(bytes);
    }

    /// Changes the bytes of a file behind the back of everything, as a failing device does: at once
    /// and durably. Not an operation; it has no number, and its unsynced writes count as synced.
    pub fn corrupt(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let inode = self.find_file(path, OpKind::Append)?;
        let mut bytes = inode.state.read().current.to_vec();
        change(&mut bytes);
        let seconds = inode.state.read().modified_seconds;
        inode.replace(&bytes, seconds);
        Ok(())
    }

    /// A number that is the same for the same names and bytes: tells crash images apart. Of what
    /// readers see, that is; for an image out of [`MemFileSystem::crash`] it is all there is.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.shared.names.read().walk(|path, node| {
            path.hash(&mut hasher);
            match node {
                Node::Dir(_) => 0u8.hash(&mut hasher),
                Node::File(inode) => inode.state.read().current.to_vec().hash(&mut hasher),
            }
        });
        hasher.finish()
    }

    /// The paths of all files, in order.
    pub fn all_files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        self.shared.names.read().walk(|path, node| {
            if matches!(node, Node::File(_)) {
                files.push(path.to_owned());
            }
        });
        files.sort();
        files
    }

    fn find_file(&self, path: &Path, kind: OpKind) -> Result<Arc<Inode>> {
        self.shared.names.read().find_file(path).map_err(|errno| failed(path, kind.act(), errno))
    }

    fn find(&self, path: &Path, kind: OpKind) -> Result<Node> {
        self.shared.check_power(kind, path)?;
        self.shared.names.read().find(path).map_err(|errno| failed(path, kind.act(), errno))
    }

    fn open_to_read(&self, path: &Path, kind: OpKind) -> Result<MemReader> {
        self.shared.check_power(kind, path)?;
        Ok(MemReader {
            inode: self.find_file(path, kind)?,
            shared: self.shared.clone(),
            path: path.to_owned(),
        })
    }

    /// Does a change of names as one operation.
    fn change_names<T>(
        &self,
        kind: OpKind,
        path: &Path,
        change: impl FnOnce(&mut Names, u64) -> Result<T, Errno>,
    ) -> Result<T> {
        let op = self.begin(kind, &path.into(), 0, 0)?;
        change(&mut self.shared.names.write(), op.number).map_err(|errno| failed(path, kind.act(), errno))
    }

    fn begin<'a>(&'a self, kind: OpKind, path: &Arc<Path>, offset: u64, len: u64) -> Result<Op<'a>> {
        let capture = || self.fork_ordered();
        self.shared.begin(kind, path, offset, len, capture)
    }
}

impl Inode {
    /// The same file in another file system, sharing its bytes until one side writes.
    fn share(&self, space: &Arc<Space>) -> Arc<Self> {
        Arc::new(Self::new(self.id, self.state.read().clone(), space))
    }
}

/// The longest file, durable or not: what a freed block is likely to have held.
fn garbage(names: &Names) -> Image {
    let mut longest = Image::default();
    for node in names.dirs.values().flat_map(|dir| dir.current.values().chain(dir.durable.values())) {
        if let Node::File(inode) = node {
            let state = inode.state.read();
            if state.current.len() > longest.len() {
                longest = state.current.clone();
            }
        }
    }
    longest
}

/// A changing call under way. In the crash model it keeps all others out.
struct Op<'a> {
    number: u64,
    journal: Option<MutexGuard<'a, Journal>>,
}

impl Op<'_> {
    /// Whether a sync of `path` is to fail, and how.
    fn sync_fault(&mut self, path: &Path) -> Option<SyncFailure> {
        let faults = &mut self.journal.as_mut()?.sync_faults;
        let path = path.to_string_lossy();
        let at = faults.iter_mut().position(|fault| {
            let hit = path.contains(&fault.path_contains);
            let now = hit && fault.after == 0;
            fault.after -= u64::from(hit && !now);
            now
        })?;
        Some(faults.swap_remove(at).failure)
    }
}

impl Shared {
    #[inline]
    fn check_power(&self, kind: OpKind, path: &Path) -> Result<()> {
        // Relaxed: it tells that the power is gone, and nothing about any data.
        if self.crashed.load(Ordering::Relaxed) { Err(power_loss(kind, path)) } else { Ok(()) }
    }

    /// Numbers a changing call, or fails if the power does.
    fn begin(
        &self,
        kind: OpKind,
        path: &Arc<Path>,
        offset: u64,
        len: u64,
        capture: impl FnOnce() -> MemFileSystem,
    ) -> Result<Op<'_>> {
        let mut journal = self.tracked.then(|| self.journal.lock());
        if self.crashed.load(Ordering::SeqCst) {
            return Err(power_loss(kind, path));
        }
        let number = self.next_op.load(Ordering::SeqCst);
        if number >= self.crash_point.load(Ordering::SeqCst) {
            self.crashed.store(true, Ordering::SeqCst);
            return Err(power_loss(kind, path));
        }
        if let Some(journal) = &mut journal {
            if journal.capturing {
                journal.captures.insert(number, capture());
            }
            journal.log.push(LogEntry { op: number, kind, path: path.clone(), offset, len });
        }
        // Without a crash model two calls may get one number; nobody asks for it then.
        self.next_op.fetch_add(1, Ordering::SeqCst);
        Ok(Op { number, journal })
    }

    fn now(&self) -> u64 {
        self.clock.now_seconds()
    }
}

#[cold]
fn power_loss(kind: OpKind, path: &Path) -> Error {
    Error::io_message(format!("{} {}: simulated power loss", kind.act(), path.display()))
}

impl FileSystem for MemFileSystem {
    fn open_sequential(&self, path: &Path) -> Result<Box<dyn SequentialFile>> {
        let reader = self.open_to_read(path, OpKind::OpenSequential)?;
        Ok(Box::new(MemSequentialFile { reader, offset: 0 }))
    }

    fn open_random(&self, path: &Path, _hints: OpenHints) -> Result<Box<dyn RandomAccessFile>> {
        let reader = self.open_to_read(path, OpKind::OpenRandom)?;
        let size = reader.inode.len();
        Ok(Box::new(MemRandomAccessFile { reader, size }))
    }

    fn create(&self, path: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> {
        let (space, tracked, now) = (&self.shared.space, self.shared.tracked, self.shared.now());
        let inode = self.change_names(OpKind::Create, path, |names, op| {
            let inode = names.open_or_create(path, op, space)?;
            inode.set_len(0, tracked, now)?;
            Ok(inode)
        })?;
        Ok(Box::new(MemWritableFile::new(self, inode, path, options, 0)))
    }

    fn append_to(&self, path: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> {
        let space = &self.shared.space;
        let open = |names: &mut Names, op| names.open_or_create(path, op, space);
        let inode = self.change_names(OpKind::AppendTo, path, open)?;
        let end = inode.len();
        Ok(Box::new(MemWritableFile::new(self, inode, path, options, end)))
    }

    fn reuse(&self, old: &Path, new: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> {
        let inode = self.change_names(OpKind::Reuse, old, |names, op| {
            let inode = names.find_file(old)?;
            names.rename(old, new, op)?;
            Ok(inode)
        })?;
        Ok(Box::new(MemWritableFile::new(self, inode, new, options, 0)))
    }

    fn open_directory(&self, path: &Path) -> Result<Box<dyn Directory>> {
        match self.find(path, OpKind::OpenDirectory)? {
            Node::Dir(id) => Ok(Box::new(MemDirectory { fs: self.clone(), id, path: path.into() })),
            Node::File(_) => Err(failed(path, OpKind::OpenDirectory.act(), Errno::NOTDIR)),
        }
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.shared.check_power(OpKind::Exists, path)?;
        Ok(self.shared.names.read().find(path).is_ok()) // Only absence can go wrong.
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        self.shared.check_power(OpKind::List, path)?;
        let names = self.shared.names.read();
        let dir = names.find_dir(path).and_then(|id| names.dir(id));
        let dir = dir.map_err(|errno| failed(path, OpKind::List.act(), errno))?;
        Ok(dir.current.keys().cloned().collect())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.change_names(OpKind::Remove, path, |names, op| names.remove_file(path, op))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.change_names(OpKind::Rename, from, |names, op| names.rename(from, to, op))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.change_names(OpKind::Link, from, |names, op| names.link(from, to, op))
    }

    /// Each directory that is made is an operation of its own.
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        let mut prefix = PathBuf::from("/");
        for name in names::split(path) {
            prefix.push(name);
            let found = self.shared.names.read().find(&prefix);
            match found {
                Ok(Node::Dir(_)) => self.shared.check_power(OpKind::CreateDir, path)?,
                Ok(Node::File(_)) => return Err(failed(path, OpKind::CreateDir.act(), Errno::NOTDIR)),
                Err(_) => {
                    self.change_names(OpKind::CreateDir, &prefix, |names, op| names.make_dir(&prefix, op))?;
                }
            }
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.change_names(OpKind::RemoveDir, path, |names, op| names.remove_dir(path, op))
    }

    /// A directory has no length: 0.
    fn size(&self, path: &Path) -> Result<u64> {
        match self.find(path, OpKind::Size)? {
            Node::File(inode) => Ok(inode.len()),
            Node::Dir(_) => Ok(0),
        }
    }

    /// A directory has no time: 0.
    fn modified_seconds(&self, path: &Path) -> Result<u64> {
        match self.find(path, OpKind::Modified)? {
            Node::File(inode) => Ok(inode.state.read().modified_seconds),
            Node::Dir(_) => Ok(0),
        }
    }

    fn free_space(&self, path: &Path) -> Result<u64> {
        self.find(path, OpKind::FreeSpace)?;
        Ok(self.shared.space.free())
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        let canonical = self.absolute(path)?;
        let mut locks = self.shared.locks.lock();
        if locks.contains(&canonical) {
            let shown = path.display();
            return Err(Error::io_message(format!(
                "lock hold by current process: {shown}: No locks available"
            )));
        }
        let space = &self.shared.space;
        self.change_names(OpKind::Lock, path, |names, op| names.open_or_create(path, op, space))?;
        locks.insert(canonical.clone());
        Ok(Box::new(MemLock { shared: self.shared.clone(), canonical }))
    }

    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        self.shared.check_power(OpKind::Absolute, path)?;
        let mut absolute = PathBuf::from("/");
        absolute.extend(names::split(path));
        Ok(absolute)
    }
}

/// A held lock.
struct MemLock {
    shared: Arc<Shared>,
    canonical: PathBuf,
}

impl FileLock for MemLock {}

impl Drop for MemLock {
    fn drop(&mut self) {
        self.shared.locks.lock().remove(&self.canonical);
    }
}

/// An open directory.
struct MemDirectory {
    fs: MemFileSystem,
    id: DirId,
    path: Arc<Path>,
}

impl Directory for MemDirectory {
    fn sync(&self) -> Result<()> {
        let mut op = self.fs.begin(OpKind::SyncDirectory, &self.path, 0, 0)?;
        if op.sync_fault(&self.path).is_some() {
            // Whatever was asked for: the names stay to be synced.
            return Err(failed(&self.path, OpKind::SyncDirectory.act(), Errno::IO));
        }
        self.fs.shared.names.write().sync_dir(self.id, op.number);
        Ok(())
    }
}

/// What both kinds of readers are made of.
struct MemReader {
    shared: Arc<Shared>,
    inode: Arc<Inode>,
    path: PathBuf,
}

impl MemReader {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.shared.check_power(OpKind::Read, &self.path)?;
        Ok(self.inode.state.read().current.read(offset, buf))
    }
}

struct MemSequentialFile {
    reader: MemReader,
    offset: u64,
}

impl SequentialFile for MemSequentialFile {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let count = self.reader.read(self.offset, buf)?;
        self.offset += count as u64;
        Ok(count)
    }
    fn skip(&mut self, count: u64) -> Result<()> {
        self.offset = self.offset.saturating_add(count).min(i64::MAX as u64);
        Ok(())
    }
    fn path(&self) -> &Path {
        &self.reader.path
    }
}

struct MemRandomAccessFile {
    reader: MemReader,
    size: u64,
}

impl RandomAccessFile for MemRandomAccessFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.reader.read(offset, buf)
    }
    fn size(&self) -> u64 {
        self.size
    }
    fn path(&self) -> &Path {
        &self.reader.path
    }
}

struct MemWritableFile {
    fs: MemFileSystem,
    inode: Arc<Inode>,
    path: Arc<Path>,
    buffer: AppendBuffer,
    /// Where the buffer's first byte belongs.
    written: u64,
    sync_ahead: u64,
    /// Where the zeros end that the file was given ahead.
    end_of_zeros: u64,
    was_synced: bool,
    /// Grows ahead without a sync too, as a file that is mapped does.
    mapped: bool,
    /// But not before it is this long.
    not_mapped_before: u64,
    closed: bool,
}

/// Memory is no faster for it; so much shows what a crash leaves.
const MOST_SYNC_AHEAD: u64 = 4 << 10;
/// So much is written after a file was made or synced before its end is as that of a mapped file. One that will be twice as long is one from its start.
const MAPPED_AFTER: u64 = 8 << 10;

impl MemWritableFile {
    fn new(fs: &MemFileSystem, inode: Arc<Inode>, path: &Path, options: WriteOptions, start: u64) -> Self {
        Self {
            fs: fs.clone(),
            inode,
            path: path.into(),
            buffer: AppendBuffer::new(options.buffer_bytes),
            written: start,
            sync_ahead: options.sync_ahead.min(MOST_SYNC_AHEAD),
            end_of_zeros: 0,
            was_synced: false,
            mapped: options.mapped && start == 0 && fs.shared.tracked, // What cannot crash need not show what a crash leaves.
            not_mapped_before: if options.expected_len > 2 * MAPPED_AFTER { 0 } else { MAPPED_AFTER },
            closed: false,
        }
    }

    fn set_len(&self, kind: OpKind, size: u64) -> Result<()> {
        let _op = self.fs.begin(kind, &self.path, 0, size)?;
        let (tracked, now) = (self.fs.shared.tracked, self.fs.shared.now());
        self.inode.set_len(size, tracked, now).map_err(|errno| failed(&self.path, kind.act(), errno))
    }

    /// Moves the end of the file ahead if the bytes to be synced have reached it.
    fn grow_ahead(&mut self) -> Result<()> {
        let again = std::mem::replace(&mut self.was_synced, true);
        if self.sync_ahead == 0 || !again || self.written < self.inode.len() {
            return Ok(());
        }
        let end = self.written + self.sync_ahead;
        match self.set_len(OpKind::Allocate, end) {
            Ok(()) => self.end_of_zeros = end,
            Err(error) if error.is_no_space() => self.sync_ahead = 0,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The zeros that a file has ahead while its end is mapped. Where there is no room for them it is not.
    fn grow_mapped(&mut self) {
        if !self.mapped || self.written < self.not_mapped_before.max(self.inode.len()) {
            return;
        }
        let end = self.written + MOST_SYNC_AHEAD;
        match self.set_len(OpKind::Allocate, end) {
            Ok(()) => self.end_of_zeros = end,
            Err(_) => self.mapped = false,
        }
    }

    fn check_open(&self) -> Result<()> {
        if self.closed {
            return Err(Error::io_message(format!("write to {}: already closed", self.path.display())));
        }
        Ok(())
    }
}

/// Writes `data` at `*written` as one operation, and moves it on.
fn write_out(
    fs: &MemFileSystem,
    inode: &Inode,
    path: &Arc<Path>,
    written: &mut u64,
    data: &[u8],
) -> Result<()> {
    let _op = fs.begin(OpKind::Append, path, *written, data.len() as u64)?;
    let (tracked, now) = (fs.shared.tracked, fs.shared.now());
    inode.write(*written, data, tracked, now).map_err(|errno| failed(path, OpKind::Append.act(), errno))?;
    *written += data.len() as u64;
    Ok(())
}

impl WritableFile for MemWritableFile {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.check_open()?;
        let Self { fs, inode, path, buffer, written, .. } = self;
        buffer.append(data, |bytes| write_out(fs, inode, path, written, bytes))?;
        self.grow_mapped();
        Ok(())
    }

    fn append_checked(&mut self, data: &[u8], crc32c: u32) -> Result<()> {
        self.check_open()?;
        check_handed_over(&self.path, self.size(), data, crc32c)?;
        self.append(data)
    }

    fn flush(&mut self) -> Result<()> {
        self.check_open()?;
        let Self { fs, inode, path, buffer, written, .. } = self;
        buffer.flush(|bytes| write_out(fs, inode, path, written, bytes))
    }

    fn sync(&mut self) -> Result<()> {
        self.flush()?;
        self.not_mapped_before = self.written + MAPPED_AFTER;
        self.grow_ahead()?;
        let mut op = self.fs.begin(OpKind::Sync, &self.path, 0, self.written)?;
        let Some(failure) = op.sync_fault(&self.path) else {
            self.fs.make_durable(&self.inode);
            return Ok(());
        };
        match failure {
            SyncFailure::StaysDirty => {}
            SyncFailure::MarkedClean => {
                let mut state = self.inode.state.write();
                let state = Arc::make_mut(&mut state);
                state.pending.clear();
                state.lost = true;
            }
            SyncFailure::Reverted => self.inode.revert(),
        }
        Err(failed(&self.path, OpKind::Sync.act(), Errno::IO))
    }

    fn size(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn allocate(&mut self, offset: u64, len: u64) -> Result<()> {
        self.check_open()?;
        self.fs.begin(OpKind::Allocate, &self.path, offset, len)?;
        Ok(()) // Memory needs no reservation.
    }

    fn truncate(&mut self, size: u64) -> Result<()> {
        self.flush()?;
        self.set_len(OpKind::Truncate, size)?;
        (self.written, self.end_of_zeros, self.not_mapped_before) = (size, 0, size + MAPPED_AFTER);
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        let mut closed = self.flush();
        if closed.is_ok() && self.end_of_zeros > self.written {
            closed = self.set_len(OpKind::Truncate, self.written);
        }
        self.closed = true;
        closed
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl MemFileSystem {
    /// What a sync does. The caller's operation keeps others out.
    fn make_durable(&self, inode: &Inode) {
        if !self.shared.tracked {
            return;
        }
        Arc::make_mut(&mut inode.state.write()).sync();
        if self.shared.sync_persists_name.load(Ordering::Relaxed) {
            self.shared.names.write().sync_names_of(inode);
        }
    }
}

#[cfg(test)]
mod tests;
