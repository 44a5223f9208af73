//! A file: what readers see, what would survive a power loss, and the writes in between.

use super::image::Image;
use ironstone_base::sync::atomic::{AtomicU64, Ordering};
use ironstone_base::sync::{Arc, RwLock};
use rustix::io::Errno;

/// A write that is not durable yet.
#[derive(Clone, Debug)]
pub(super) enum Pending {
    Write { offset: u64, data: Arc<[u8]> },
    SetLen(u64),
}

/// The state of a file. A copy of the whole file system shares it until one side changes.
#[derive(Clone, Default, Debug)]
pub(super) struct FileState {
    /// What readers see (the page cache).
    pub(super) current: Image,
    /// What the device has for certain. Not kept without a crash model.
    pub(super) durable: Image,
    /// What leads from `durable` to `current`, in order; unless `lost`.
    pub(super) pending: Vec<Pending>,
    /// Whether a failed sync dropped writes from `pending` which `current` still shows.
    pub(super) lost: bool,
    /// When it was last written.
    pub(super) modified_seconds: u64,
}

impl FileState {
    /// A file that is durable as it is.
    pub(super) fn durable(image: Image, modified_seconds: u64) -> Self {
        let (current, durable) = (image.clone(), image);
        Self { current, durable, modified_seconds, ..Self::default() }
    }

    /// Makes every write durable that was not lost.
    pub(super) fn sync(&mut self) {
        if !self.lost {
            self.durable = self.current.clone();
            self.pending.clear();
            return;
        }
        for pending in self.pending.drain(..) {
            pending.apply(&mut self.durable);
        }
    }
}

impl Pending {
    pub(super) fn apply(&self, image: &mut Image) {
        match self {
            Self::Write { offset, data } => image.write(*offset, data),
            Self::SetLen(len) => image.set_len(*len),
        }
    }
}

/// The bytes that the files of one file system take, and the most that they may.
#[derive(Debug)]
pub(super) struct Space {
    used: AtomicU64,
    capacity: AtomicU64,
}

/// More than a test's disk ever holds, and a number that adding to does not overflow.
const UNLIMITED: u64 = 1 << 60;
/// A longer file is refused, as every real file system refuses some length.
const MAX_FILE_BYTES: u64 = 1 << 36;

impl Space {
    pub(super) fn new(capacity: Option<u64>) -> Arc<Self> {
        Arc::new(Self { used: AtomicU64::new(0), capacity: AtomicU64::new(capacity.unwrap_or(UNLIMITED)) })
    }
    pub(super) fn capacity(&self) -> Option<u64> {
        Some(self.capacity.load(Ordering::Relaxed)).filter(|&capacity| capacity != UNLIMITED)
    }
    pub(super) fn set_capacity(&self, capacity: Option<u64>) {
        self.capacity.store(capacity.unwrap_or(UNLIMITED), Ordering::Relaxed);
    }
    pub(super) fn free(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed).saturating_sub(self.used.load(Ordering::Relaxed))
    }
    /// Takes up to `wanted` bytes and says how many it got. A counter alone: Relaxed is enough.
    fn claim(&self, wanted: u64) -> u64 {
        let capacity = self.capacity.load(Ordering::Relaxed);
        let claim = |used: u64| Some(used + wanted.min(capacity.saturating_sub(used)));
        let (Ok(used) | Err(used)) = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim);
        wanted.min(capacity.saturating_sub(used))
    }
    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A file, apart from its names.
#[derive(Debug)]
pub(super) struct Inode {
    /// The same in every copy of the file system, so that a seed makes the same choices.
    pub(super) id: u64,
    pub(super) state: RwLock<Arc<FileState>>,
    space: Arc<Space>,
}

impl Inode {
    pub(super) fn new(id: u64, state: Arc<FileState>, space: &Arc<Space>) -> Self {
        space.used.fetch_add(state.current.len(), Ordering::Relaxed);
        Self { id, state: RwLock::new(state), space: space.clone() }
    }

    pub(super) fn len(&self) -> u64 {
        self.state.read().current.len()
    }

    /// Writes what fits on the disk; an error if that is not all. With `tracked` the write is
    /// pending until a sync.
    pub(super) fn write(&self, offset: u64, data: &[u8], tracked: bool, now: u64) -> Result<(), Errno> {
        let mut state = self.state.write();
        let state = Arc::make_mut(&mut state);
        let end =
            offset.checked_add(data.len() as u64).filter(|&end| end <= MAX_FILE_BYTES).ok_or(Errno::FBIG)?;
        let growth = end.saturating_sub(state.current.len());
        let missing = growth - self.space.claim(growth);
        let fitting = &data[..data.len() - missing.min(data.len() as u64) as usize];
        if missing > data.len() as u64 {
            self.space.give_back(growth - missing); // Not even the gap before the data fits.
        } else {
            state.current.write(offset, fitting);
            if tracked && !fitting.is_empty() {
                state.pending.push(Pending::Write { offset, data: fitting.into() });
            }
        }
        state.modified_seconds = now;
        if missing == 0 { Ok(()) } else { Err(Errno::NOSPC) }
    }

    pub(super) fn set_len(&self, len: u64, tracked: bool, now: u64) -> Result<(), Errno> {
        let mut state = self.state.write();
        let state = Arc::make_mut(&mut state);
        if len > MAX_FILE_BYTES {
            return Err(Errno::FBIG);
        }
        let before = state.current.len();
        let growth = len.saturating_sub(before);
        let claimed = self.space.claim(growth);
        if claimed < growth {
            self.space.give_back(claimed);
            return Err(Errno::NOSPC);
        }
        self.space.give_back(before.saturating_sub(len));
        state.current.set_len(len);
        state.modified_seconds = now;
        if tracked && len != before {
            state.pending.push(Pending::SetLen(len));
        }
        Ok(())
    }

    /// Replaces the whole content; it is durable at once.
    pub(super) fn replace(&self, bytes: &[u8], now: u64) {
        let mut state = self.state.write();
        let (before, after) = (state.current.len(), bytes.len() as u64);
        self.space.used.fetch_add(after, Ordering::Relaxed);
        self.space.give_back(before);
        *state = Arc::new(FileState::durable(Image::from_bytes(bytes), now));
    }

    /// What a failed sync leaves behind when the cache is thrown away: the durable bytes alone.
    pub(super) fn revert(&self) {
        let mut state = self.state.write();
        let state = Arc::make_mut(&mut state);
        self.space.used.fetch_add(state.durable.len(), Ordering::Relaxed);
        self.space.give_back(state.current.len());
        state.current = state.durable.clone();
        state.pending.clear();
        state.lost = false;
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        self.space.give_back(self.len());
    }
}
