//! One bound on the memory of memtables, over column families and databases.
//!
//! ```
//! use ironstone::{BlockCache, CacheOptions, Db, Options, WriteBufferManager};
//! use std::sync::Arc;
//!
//! # fn main() -> ironstone::Result<()> {
//! // 64 MiB for blocks and memtables together, of which memtables take no more than 16.
//! let cache = BlockCache::new(CacheOptions { capacity: 64 << 20, ..CacheOptions::default() });
//! let memtables = WriteBufferManager::new(16 << 20, Some(cache.clone()), false);
//! let mut options = Options::default();
//! options.db.create_if_missing = true;
//! # options.db.env = ironstone::vfs::Env::in_memory();
//! options.db.write_buffer_manager = Some(memtables.clone());
//! options.cf.table.block_cache = Some(cache);
//! let one = Db::open(&options, "/one")?;
//! let other = Db::open(&options, "/other")?;
//! one.put(b"iron", b"Fe")?;
//! other.put(b"iron", b"Fe")?;
//! assert!(memtables.memory_usage() <= memtables.buffer_size());
//! # Ok(())
//! # }
//! ```

use crate::engine::Engine;
use crate::write::switch::Which;
use ironstone_base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use ironstone_base::sync::{Arc, Condvar, Mutex, Weak};
use ironstone_base::{Error, Result};
use ironstone_cache::{ChargeTarget, MemoryBudget, MemoryRole, Reservation};
use ironstone_memtable::BlockPool;
use ironstone_sst::BlockCache;
use std::time::Duration;

/// Bounds what the memtables of all databases that are opened with it take together: before they take it all, the
/// largest one that takes writes is flushed, in whichever database it is. (RocksDB flushes in the database that is
/// being written to, and leaves the others alone.)
///
/// Memory is counted in steps of 64 KiB for each memtable, from its first write until the last reader of it has gone.
pub struct WriteBufferManager {
    buffer_size: AtomicUsize,
    allow_stall: bool,
    /// How often a writer began to wait.
    stops: AtomicU64,
    budget: Arc<MemoryBudget>,
    /// What memtables have that take writes. Relaxed, as all counts here: only decisions of size hang on it.
    active: AtomicUsize,
    members: Mutex<Vec<Weak<Engine>>>,
    /// Held by who makes room.
    relieving: Mutex<()>,
    waiting: Mutex<()>,
    freed: Condvar,
}

/// In steps of so many bytes a memtable says what it takes.
pub(crate) const STEP: usize = 64 << 10;

impl WriteBufferManager {
    /// Memtables take up to `buffer_size` bytes; 0: they are counted and not bounded. With a `cache`, what they take is
    /// taken off its capacity, so that `capacity` bounds both. With `allow_stall`, writers wait while memtables take
    /// all of `buffer_size`, and the bound is a hard one but for the writes under way.
    pub fn new(buffer_size: usize, cache: Option<Arc<BlockCache>>, allow_stall: bool) -> Arc<Self> {
        let budget = match cache {
            Some(cache) => MemoryBudget::charged_to(0, cache as Arc<dyn ChargeTarget>),
            None => MemoryBudget::new(0),
        };
        Arc::new(Self {
            buffer_size: AtomicUsize::new(buffer_size),
            allow_stall,
            stops: AtomicU64::new(0),
            budget,
            active: AtomicUsize::new(0),
            members: Mutex::default(),
            relieving: Mutex::default(),
            waiting: Mutex::default(),
            freed: Condvar::default(),
        })
    }
    /// What memtables may take, in bytes; 0: anything.
    pub fn buffer_size(&self) -> usize {
        self.buffer_size.load(Ordering::Relaxed)
    }
    /// Changes it. The next write that lets a memtable grow acts on it.
    pub fn set_buffer_size(&self, bytes: usize) {
        self.buffer_size.store(bytes, Ordering::Relaxed);
        self.freed.notify_all();
    }
    /// Whether writers wait while all is taken.
    pub fn allow_stall(&self) -> bool {
        self.allow_stall
    }
    /// What memtables take, in bytes, those included that are being flushed or still read.
    pub fn memory_usage(&self) -> usize {
        self.budget.usage()
    }
    /// What those take that take writes.
    pub fn mutable_memtable_memory_usage(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// How often a writer began to wait.
    pub(crate) fn stops(&self) -> u64 {
        self.stops.load(Ordering::Relaxed)
    }
    pub(crate) fn join(&self, engine: &Arc<Engine>) {
        let mut members = self.members.lock();
        members.retain(|member| member.strong_count() > 0);
        members.push(Arc::downgrade(engine));
    }

    /// The rule is RocksDB's: seven eighths are in memtables that take writes, or all is taken, and half of it there.
    fn should_flush(&self) -> bool {
        let (size, active) = (self.buffer_size(), self.mutable_memtable_memory_usage());
        size > 0 && (active > size - size / 8 || (self.is_exceeded() && active >= size / 2))
    }
    fn is_exceeded(&self) -> bool {
        let size = self.buffer_size();
        size > 0 && self.memory_usage() >= size
    }

    /// Has the largest memtables flushed until the rest is within the bound. No lock may be held. What fails is
    /// known to the database in which it fails.
    pub(crate) fn relieve(&self) {
        if !self.should_flush() {
            return;
        }
        let Some(_relieving) = self.relieving.try_lock() else { return };
        while self.should_flush() {
            let members: Vec<_> = self.members.lock().iter().filter_map(Weak::upgrade).collect();
            let largest = members.iter().filter_map(|engine| Some((engine.largest_memtable()?, engine)));
            let Some(((_, cf), engine)) = largest.max_by_key(|((bytes, _), _)| *bytes) else { return };
            let before = self.mutable_memtable_memory_usage();
            let switched = engine.switch_memtables(&Which::Largest(cf));
            if switched.is_err() || self.mutable_memtable_memory_usage() >= before {
                return; // It is not to be had now; the next growth asks again.
            }
            engine.request_flush(cf);
        }
    }

    /// Whether the largest memtable of a database that is being recovered, and is no member yet, is to go, which takes `bytes`.
    /// Where a member has a larger one, that goes first.
    pub(crate) fn wants_room_of(&self, bytes: usize) -> bool {
        if !self.should_flush() {
            return false;
        }
        let members: Vec<_> = self.members.lock().iter().filter_map(Weak::upgrade).collect();
        if members.iter().filter_map(|engine| engine.largest_memtable()).any(|(larger, _)| larger > bytes) {
            self.relieve();
        }
        self.should_flush()
    }

    /// Waits while all is taken, if that is wanted.
    pub(crate) fn admit(&self, engine: &Engine, no_slowdown: bool) -> Result<()> {
        const LOOK_AGAIN: Duration = Duration::from_millis(10);
        if !self.allow_stall || !self.is_exceeded() {
            return Ok(());
        }
        if no_slowdown {
            return Err(Error::incomplete(
                "writes are stalled: memtables take all that the write buffer manager gives",
            ));
        }
        self.stops.fetch_add(1, Ordering::Relaxed);
        let _waits = engine.stalls.wait_for_buffer(engine);
        self.relieve();
        let mut waiting = self.waiting.lock();
        while self.is_exceeded() {
            engine.check_may_wait()?;
            self.freed.wait_for(&mut waiting, LOOK_AGAIN);
        }
        Ok(())
    }
}

/// Where the memtables of a database have their memory from.
pub(crate) struct MemTableMemory {
    pub(crate) pool: Arc<BlockPool>,
    manager: Option<Arc<WriteBufferManager>>,
}

impl MemTableMemory {
    pub(crate) fn new(manager: Option<&Arc<WriteBufferManager>>) -> Arc<Self> {
        Arc::new(Self { pool: BlockPool::new(), manager: manager.cloned() })
    }
    /// What a new memtable counts itself with.
    pub(crate) fn charge(&self) -> Option<Charge> {
        self.manager.clone().map(Charge::new)
    }
}

/// What one memtable counts as.
pub(crate) struct Charge {
    manager: Arc<WriteBufferManager>,
    held: Mutex<Held>,
}

struct Held {
    reservation: Reservation,
    /// It takes writes.
    active: bool,
}

impl Charge {
    fn new(manager: Arc<WriteBufferManager>) -> Self {
        let reservation = manager.budget.reserve_unconditionally(MemoryRole::Memtable, 0);
        Self { manager, held: Mutex::new(Held { reservation, active: true }) }
    }
    /// It takes `bytes` now; less than before is not believed.
    pub(crate) fn grow_to(&self, bytes: usize) {
        let mut held = self.held.lock();
        let more = bytes.saturating_sub(held.reservation.bytes());
        if more > 0 {
            held.reservation.set(bytes);
            if held.active {
                self.manager.active.fetch_add(more, Ordering::Relaxed);
            }
        }
    }
    /// It takes no more writes, but for those under way.
    pub(crate) fn seal(&self) {
        let mut held = self.held.lock();
        if std::mem::take(&mut held.active) {
            self.manager.active.fetch_sub(held.reservation.bytes(), Ordering::Relaxed);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.seal();
        self.held.lock().reservation.set(0);
        self.manager.freed.notify_all();
    }
}
