//! How much disk tables may take, and how fast files are removed, over all databases that have the same manager.
//!
//! Removing a large file at once can keep a disk from answering reads. A file that is to go slowly gets the name
//! `000012.sst.trash` first, as RocksDB's do; whichever of the two engines opens the database next removes what is left.
//!
//! ```
//! use ironstone::{Db, Options, SstFileManager, SstFileManagerOptions};
//!
//! # fn main() -> ironstone::Result<()> {
//! let mut options = Options::in_memory();
//! let manager = SstFileManager::new(SstFileManagerOptions {
//!     rate_bytes_per_sec: 64 << 20,
//!     ..SstFileManagerOptions::default()
//! });
//! manager.set_max_allowed_space_usage(10 << 30);
//! options.db.sst_file_manager = Some(manager.clone());
//! let db = Db::open(&options, "/db")?;
//! db.put(b"iron", b"Fe")?;
//! db.flush()?;
//! assert!(manager.total_size() > 0 && !manager.is_max_allowed_space_reached());
//! # Ok(())
//! # }
//! ```

use ironstone_base::file_name::TRASH_SUFFIX;
use ironstone_base::statistics::Ticker;
use ironstone_base::sync::{Arc, Condvar, Mutex, thread};
use ironstone_base::{Error, Result, Statistics, SubCode};
use ironstone_vfs::{Clock, Env, FileSystem};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How a manager removes files.
#[derive(Clone, Debug)]
pub struct SstFileManagerOptions {
    /// So many bytes are removed each second; 0: files are removed at once.
    pub rate_bytes_per_sec: u64,
    /// While what waits to be removed exceeds this share of the tables in use, further files are removed at once.
    pub max_trash_db_ratio: f64,
    /// A larger file is cut down by so many bytes at a time, unless it has other names as well; 0: files go whole.
    pub bytes_max_delete_chunk: u64,
}

impl Default for SstFileManagerOptions {
    fn default() -> Self {
        Self { rate_bytes_per_sec: 0, max_trash_db_ratio: 0.25, bytes_max_delete_chunk: 64 << 20 }
    }
}

/// Watches the tables of the databases that are opened with it ([`DbOptions::sst_file_manager`](crate::DbOptions)).
pub struct SstFileManager {
    shared: Arc<Shared>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

struct Shared {
    chunk: u64,
    state: Mutex<State>,
    /// Something was added to the trash, or the thread is to end.
    wake: Condvar,
    /// The trash is empty.
    emptied: Condvar,
}

#[derive(Default)]
struct State {
    /// Tables in use, by path.
    tracked: HashMap<PathBuf, u64>,
    total: u64,
    /// What running compactions may add.
    reserved: u64,
    max_allowed: u64,
    compaction_buffer: u64,
    rate: u64,
    ratio: f64,
    trash: VecDeque<Trash>,
    trash_bytes: u64,
    /// How many files of the trash are being removed.
    removing: usize,
    /// Since when files have been waiting without a pause, and what was removed since.
    busy_since: Option<u64>,
    removed_since: u64,
    stop: bool,
}

struct Trash {
    env: Env,
    path: PathBuf,
    bytes: u64,
    statistics: Option<Arc<Statistics>>,
}

impl SstFileManager {
    /// A manager. Its thread ends with it; files that wait then stay until their
    /// database is opened again.
    pub fn new(options: SstFileManagerOptions) -> Arc<Self> {
        let state =
            State { rate: options.rate_bytes_per_sec, ratio: options.max_trash_db_ratio, ..State::default() };
        let shared = Shared {
            chunk: options.bytes_max_delete_chunk,
            state: Mutex::new(state),
            wake: Condvar::default(),
            emptied: Condvar::default(),
        };
        Arc::new(Self { shared: Arc::new(shared), thread: Mutex::new(None) })
    }

    /// Tables may take so many bytes together; 0, the default: any. Beyond it, writes fail with
    /// [`SubCode::SpaceLimit`] after the next flush or compaction, until the limit is raised; compactions that might
    /// exceed it are not begun.
    pub fn set_max_allowed_space_usage(&self, bytes: u64) {
        self.shared.state.lock().max_allowed = bytes;
    }
    /// Compactions leave so many bytes of that alone, for flushes. Default 0.
    pub fn set_compaction_buffer_size(&self, bytes: u64) {
        self.shared.state.lock().compaction_buffer = bytes;
    }
    /// Whether tables take more than they may.
    pub fn is_max_allowed_space_reached(&self) -> bool {
        let state = self.shared.state.lock();
        state.max_allowed > 0 && state.total >= state.max_allowed
    }
    /// Whether they would if every running compaction came out as large as what it reads.
    pub fn is_max_allowed_space_reached_including_compactions(&self) -> bool {
        let state = self.shared.state.lock();
        state.max_allowed > 0 && state.total + state.reserved >= state.max_allowed
    }
    /// What the tables of all open databases take, in bytes, without what waits to be removed.
    pub fn total_size(&self) -> u64 {
        self.shared.state.lock().total
    }
    /// Those tables and their sizes.
    pub fn tracked_files(&self) -> HashMap<PathBuf, u64> {
        self.shared.state.lock().tracked.clone()
    }
    /// So many bytes are removed each second; 0: at once.
    pub fn delete_rate_bytes_per_second(&self) -> u64 {
        self.shared.state.lock().rate
    }
    /// Changes it, for what waits too.
    pub fn set_delete_rate_bytes_per_second(&self, rate: u64) {
        let mut state = self.shared.state.lock();
        state.rate = rate;
        state.busy_since = None;
        self.shared.wake.notify_all();
    }
    /// See [`SstFileManagerOptions::max_trash_db_ratio`].
    pub fn max_trash_db_ratio(&self) -> f64 {
        self.shared.state.lock().ratio
    }
    /// Changes it.
    pub fn set_max_trash_db_ratio(&self, ratio: f64) {
        self.shared.state.lock().ratio = ratio;
    }
    /// What waits to be removed, in bytes.
    pub fn total_trash_size(&self) -> u64 {
        self.shared.state.lock().trash_bytes
    }
    /// Waits until nothing waits to be removed.
    pub fn wait_for_empty_trash(&self) {
        let mut state = self.shared.state.lock();
        while !state.trash.is_empty() || state.removing > 0 {
            self.shared.emptied.wait(&mut state);
        }
    }

    /// A table is in use.
    pub(crate) fn track(&self, path: PathBuf, bytes: u64) {
        let mut state = self.shared.state.lock();
        let before = state.tracked.insert(path, bytes).unwrap_or(0);
        state.total = state.total - before + bytes;
    }
    /// The tables below `dir` are not in use any more: their database closes.
    pub(crate) fn forget_below(&self, dir: &Path) {
        let mut state = self.shared.state.lock();
        state.tracked.retain(|path, _| path.parent() != Some(dir));
        state.total = state.tracked.values().sum();
    }
    /// An error if tables take more than they may.
    pub(crate) fn check_space(&self) -> Result<()> {
        let state = self.shared.state.lock();
        if state.max_allowed == 0 || state.total < state.max_allowed {
            return Ok(());
        }
        let (total, max) = (state.total, state.max_allowed);
        let what = format!("tables take {total} bytes, and may take {max} (sst_file_manager)");
        Err(Error::io_message(what).with_sub_code(SubCode::SpaceLimit))
    }
    /// Sets `bytes` aside for what a compaction may write; none if that may be too much.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: u64) -> Option<SpaceReservation> {
        let mut state = self.shared.state.lock();
        let wanted = state.total + state.reserved + bytes + state.compaction_buffer;
        if state.max_allowed > 0 && wanted > state.max_allowed {
            return None;
        }
        state.reserved += bytes;
        Some(SpaceReservation { manager: Arc::clone(self), bytes })
    }

    /// Removes a table or WAL that nothing needs, at once or in its turn.
    pub(crate) fn remove(&self, env: &Env, path: &Path, statistics: Option<&Arc<Statistics>>) -> Result<()> {
        let shared = &self.shared;
        let fs = &*env.fs;
        let bytes = {
            let mut state = shared.state.lock();
            let tracked = state.tracked.remove(path);
            state.total -= tracked.unwrap_or(0);
            let has_turn = state.rate > 0 && state.trash_bytes as f64 <= state.total as f64 * state.ratio;
            has_turn.then_some(tracked)
        };
        let count = |ticker| statistics.into_iter().for_each(|statistics| statistics.record(ticker, 1));
        let Some(bytes) = bytes else {
            count(Ticker::FilesDeletedImmediately);
            return fs.remove(path);
        };
        let mut name = path.as_os_str().to_owned();
        name.push(TRASH_SUFFIX);
        let trash = PathBuf::from(name);
        let bytes = match bytes {
            Some(bytes) => bytes,
            None => fs.size(path)?,
        };
        if fs.rename(path, &trash).is_err() {
            return fs.remove(path);
        }
        count(Ticker::FilesMarkedTrash);
        self.add_trash(Trash { env: env.clone(), path: trash, bytes, statistics: statistics.cloned() });
        Ok(())
    }
    /// Removes what an earlier opening left in the trash.
    pub(crate) fn remove_trash(&self, env: &Env, path: PathBuf) -> Result<()> {
        let fs = &*env.fs;
        let done = match self.delete_rate_bytes_per_second() {
            0 => fs.remove(&path),
            _ => fs.size(&path).map(|bytes| {
                self.add_trash(Trash { env: env.clone(), path, bytes, statistics: None });
            }),
        };
        match done {
            Err(error) if error.is_path_not_found() => Ok(()), // The manager that it waited with was faster.
            done => done,
        }
    }

    fn add_trash(&self, trash: Trash) {
        let mut state = self.shared.state.lock();
        state.trash_bytes += trash.bytes;
        state.trash.push_back(trash);
        self.shared.wake.notify_all();
        drop(state);
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            *thread = Some(thread::spawn_named("ironstone:trash", move || shared.empty_trash()));
        }
    }
}

impl Shared {
    fn empty_trash(&self) {
        while let Some(Trash { env, path, mut bytes, statistics }) = self.next() {
            loop {
                let part = self.remove_part(&*env.fs, &path, bytes);
                let is_last = part == bytes;
                bytes -= part;
                self.note_removed(part, is_last);
                if is_last {
                    break;
                }
                if !self.keep_pace(&*env.clock) {
                    return;
                }
            }
            if let Some(statistics) = statistics {
                statistics.record(Ticker::FilesDeletedFromTrashQueue, 1);
            }
        }
    }

    /// Waits for a file, and for its turn. None: the manager is going.
    fn next(&self) -> Option<Trash> {
        loop {
            let clock = {
                let mut state = self.state.lock();
                loop {
                    if state.stop {
                        return None;
                    }
                    if let Some(first) = state.trash.front() {
                        break Arc::clone(&first.env.clock);
                    }
                    self.wake.wait(&mut state);
                }
            };
            if !self.keep_pace(&*clock) {
                return None;
            }
            let mut state = self.state.lock();
            if let Some(next) = state.trash.pop_front() {
                state.removing += 1;
                return Some(next);
            }
        }
    }

    /// Waits until so much time has passed as what was removed may take. Answers whether to go on.
    fn keep_pace(&self, clock: &dyn Clock) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return false;
            }
            let now = clock.monotonic_nanos();
            let since = *state.busy_since.get_or_insert(now);
            if state.rate == 0 {
                return true;
            }
            let due = state.removed_since as f64 / state.rate as f64;
            let passed = Duration::from_nanos(now.saturating_sub(since)).as_secs_f64();
            if due <= passed {
                return true;
            }
            self.wake.wait_for(&mut state, Duration::from_secs_f64((due - passed).min(1.0)));
        }
    }

    /// Removes the file, or cuts a piece off its end; answers how much that was.
    fn remove_part(&self, fs: &dyn FileSystem, path: &Path, bytes: u64) -> u64 {
        if self.chunk > 0
            && bytes > self.chunk
            && matches!(fs.link_count(path), Ok(Some(1)))
            && fs.truncate(path, bytes - self.chunk).is_ok()
        {
            return self.chunk;
        }
        // What cannot be removed is tried again when its database is opened.
        let _ = fs.remove(path);
        bytes
    }

    fn note_removed(&self, bytes: u64, is_last: bool) {
        let mut state = self.state.lock();
        state.trash_bytes -= bytes;
        state.removed_since += bytes;
        if is_last {
            state.removing -= 1;
        }
        if state.trash.is_empty() && state.removing == 0 {
            self.emptied.notify_all();
        }
        if state.busy_since.is_none() {
            state.removed_since = bytes; // The rate was changed meanwhile.
        }
    }
}

impl Drop for SstFileManager {
    fn drop(&mut self) {
        self.shared.state.lock().stop = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join(); // It removes what it can and reports nothing.
        }
    }
}

impl fmt::Debug for SstFileManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SstFileManager({} bytes)", self.total_size())
    }
}

/// Space that a running compaction may take.
pub(crate) struct SpaceReservation {
    manager: Arc<SstFileManager>,
    bytes: u64,
}

impl Drop for SpaceReservation {
    fn drop(&mut self) {
        self.manager.shared.state.lock().reserved -= self.bytes;
    }
}
