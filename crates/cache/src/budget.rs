//! One accountant for memory: who holds how much, and whether more may be taken.

use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::{AtomicUsize, Ordering};
use ironstone_base::{Code, Error, Result, SubCode};

/// What memory is used for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum MemoryRole {
    /// Memtables, their arenas included.
    Memtable,
    /// Blocks in the block cache.
    BlockCache,
    /// Open tables: index, filter and properties held outside the cache.
    TableReader,
    /// Filters under construction.
    FilterConstruction,
    /// Buffers for the building of compression dictionaries.
    CompressionDictionary,
    /// Buffers of flush and compaction.
    Compaction,
    /// Buffers of the WAL.
    Wal,
    /// File metadata in versions.
    FileMetadata,
    /// Everything else.
    Other,
}

impl MemoryRole {
    /// All roles, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Memtable,
        Self::BlockCache,
        Self::TableReader,
        Self::FilterConstruction,
        Self::CompressionDictionary,
        Self::Compaction,
        Self::Wal,
        Self::FileMetadata,
        Self::Other,
    ];

    /// The role in words, for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memtable => "memtable",
            Self::BlockCache => "block cache",
            Self::TableReader => "table reader",
            Self::FilterConstruction => "filter construction",
            Self::CompressionDictionary => "compression dictionary",
            Self::Compaction => "compaction",
            Self::Wal => "wal",
            Self::FileMetadata => "file metadata",
            Self::Other => "other",
        }
    }
}

/// Something whose capacity shrinks by what others hold; a [`crate::Cache`] is one.
pub trait ChargeTarget: Send + Sync {
    /// Takes `bytes` off the capacity, making room if that can be done. Fails only under a strict limit.
    fn charge(&self, bytes: usize) -> Result<()>;
    /// Gives `bytes` back.
    fn uncharge(&self, bytes: usize);
}

/// Counts memory by role, against a limit. Cheap to share; one may serve every database of a process.
#[derive(Default)]
pub struct MemoryBudget {
    limit: AtomicUsize, // 0: none.
    total: AtomicUsize,
    by_role: [AtomicUsize; MemoryRole::ALL.len()],
    target: Option<Arc<dyn ChargeTarget>>,
}

impl MemoryBudget {
    /// A budget of `limit` bytes; 0 counts without limiting.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit: AtomicUsize::new(limit), ..Self::default() })
    }

    /// A budget whose reservations also shrink `target`, usually the block cache.
    pub fn charged_to(limit: usize, target: Arc<dyn ChargeTarget>) -> Arc<Self> {
        Arc::new(Self { limit: AtomicUsize::new(limit), target: Some(target), ..Self::default() })
    }

    /// Counts `bytes` for `role` until the reservation is dropped.
    /// `Incomplete` with subcode `MemoryLimit` if that would pass the limit.
    pub fn reserve(self: &Arc<Self>, role: MemoryRole, bytes: usize) -> Result<Reservation> {
        self.take(role, bytes)?;
        Ok(Reservation { budget: Arc::clone(self), role, bytes })
    }

    /// Counts `bytes` for `role` even past the limit: for memory that exists already.
    pub fn reserve_unconditionally(self: &Arc<Self>, role: MemoryRole, bytes: usize) -> Reservation {
        let mut reservation = Reservation { budget: Arc::clone(self), role, bytes: 0 };
        reservation.set(bytes);
        reservation
    }

    /// Bytes held in all roles.
    pub fn usage(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Bytes held in `role`.
    pub fn usage_of(&self, role: MemoryRole) -> usize {
        self.by_role[role as usize].load(Ordering::Relaxed)
    }

    /// The limit; 0 is none.
    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit; what is held stays.
    pub fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Whether more is held than the limit allows.
    pub fn is_exceeded(&self) -> bool {
        let limit = self.limit();
        limit != 0 && self.usage() > limit
    }

    fn take(&self, role: MemoryRole, bytes: usize) -> Result<()> {
        let limit = self.limit();
        // Relaxed: the numbers publish nothing but themselves.
        let fits = |held: usize| held.checked_add(bytes).filter(|&sum| limit == 0 || sum <= limit);
        if let Err(held) = self.total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            return Err(over_limit(role, bytes, held, limit));
        }
        if let Some(target) = &self.target {
            target.charge(bytes).inspect_err(|_| {
                self.total.fetch_sub(bytes, Ordering::Relaxed);
            })?;
        }
        self.by_role[role as usize].fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn give_back(&self, role: MemoryRole, bytes: usize) {
        self.total.fetch_sub(bytes, Ordering::Relaxed);
        self.by_role[role as usize].fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cold]
fn over_limit(role: MemoryRole, bytes: usize, held: usize, limit: usize) -> Error {
    let message = format!("memory budget: {bytes} bytes for {} on top of {held}, limit {limit}", role.name());
    Error::new(Code::Incomplete, message).with_sub_code(SubCode::MemoryLimit)
}

/// Bytes counted in a [`MemoryBudget`]; dropping gives them back.
pub struct Reservation {
    budget: Arc<MemoryBudget>,
    role: MemoryRole,
    bytes: usize,
}

impl Reservation {
    /// How much it holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes `more` bytes, or fails and changes nothing.
    pub fn grow(&mut self, more: usize) -> Result<()> {
        self.budget.take(self.role, more)?;
        self.bytes += more;
        Ok(())
    }

    /// Makes it hold exactly `bytes`, even past the limit.
    pub fn set(&mut self, bytes: usize) {
        if bytes <= self.bytes {
            self.shrink(self.bytes - bytes);
            return;
        }
        let more = bytes - self.bytes;
        self.budget.total.fetch_add(more, Ordering::Relaxed);
        self.budget.by_role[self.role as usize].fetch_add(more, Ordering::Relaxed);
        self.bytes = bytes;
    }

    fn shrink(&mut self, less: usize) {
        self.budget.give_back(self.role, less);
        self.bytes -= less;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}
