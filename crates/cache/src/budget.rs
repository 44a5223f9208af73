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
        let mut reservation = Reservation { budget: Arc::clone(self), role, bytes: 0, charged: 0 };
        reservation.grow(bytes)?;
        Ok(reservation)
    }

    /// Counts `bytes` for `role` even past the limit: for memory that exists already.
    pub fn reserve_unconditionally(self: &Arc<Self>, role: MemoryRole, bytes: usize) -> Reservation {
        let mut reservation = Reservation { budget: Arc::clone(self), role, bytes: 0, charged: 0 };
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

    fn count(&self, role: MemoryRole, bytes: usize) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
        self.by_role[role as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    fn count_within_limit(&self, role: MemoryRole, bytes: usize) -> Result<()> {
        let limit = self.limit();
        // Relaxed: the numbers publish nothing but themselves.
        let fits = |held: usize| held.checked_add(bytes).filter(|&sum| limit == 0 || sum <= limit);
        match self.total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => {
                self.by_role[role as usize].fetch_add(bytes, Ordering::Relaxed);
                Ok(())
            }
            Err(held) => Err(over_limit(role, bytes, held, limit)),
        }
    }

    fn uncount(&self, role: MemoryRole, bytes: usize) {
        self.total.fetch_sub(bytes, Ordering::Relaxed);
        self.by_role[role as usize].fetch_sub(bytes, Ordering::Relaxed);
    }

    fn charge_target(&self, bytes: usize) -> Result<()> {
        self.target.as_ref().map_or(Ok(()), |target| target.charge(bytes))
    }

    fn uncharge_target(&self, bytes: usize) {
        if let Some(target) = self.target.as_ref().filter(|_| bytes > 0) {
            target.uncharge(bytes);
        }
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
    /// How much of it the target was charged: less than `bytes` after it refused.
    charged: usize,
}

impl Reservation {
    /// How much it holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes `more` bytes, or fails and changes nothing.
    pub fn grow(&mut self, more: usize) -> Result<()> {
        self.budget.count_within_limit(self.role, more)?;
        self.budget.charge_target(more).inspect_err(|_| self.budget.uncount(self.role, more))?;
        self.bytes += more;
        self.charged += more;
        Ok(())
    }

    /// Makes it hold exactly `bytes`, even past the limit.
    pub fn set(&mut self, bytes: usize) {
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            self.budget.count(self.role, more);
            // A target that refuses is not charged; the memory exists all the same.
            if self.budget.charge_target(more).is_ok() {
                self.charged += more;
            }
        } else {
            self.budget.uncount(self.role, self.bytes - bytes);
            self.budget.uncharge_target(self.charged.saturating_sub(bytes));
            self.charged = self.charged.min(bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cache, CacheOptions};

    #[test]
    fn reservations_come_and_go() {
        let budget = MemoryBudget::new(100);
        let mut one = budget.reserve(MemoryRole::Memtable, 60).unwrap();
        let error = budget.reserve(MemoryRole::Wal, 41).err().unwrap();
        assert_eq!((error.code(), error.sub_code()), (Code::Incomplete, SubCode::MemoryLimit));
        assert!(one.grow(41).is_err());
        one.grow(40).unwrap();
        assert_eq!((budget.usage(), one.bytes(), budget.is_exceeded()), (100, 100, false));
        let past = budget.reserve_unconditionally(MemoryRole::Wal, 5);
        assert_eq!((budget.usage_of(MemoryRole::Wal), budget.is_exceeded()), (5, true));
        one.set(10);
        assert_eq!(budget.usage(), 15);
        drop((one, past));
        assert_eq!(MemoryRole::ALL.map(|role| budget.usage_of(role)), [0; MemoryRole::ALL.len()]);
        assert_eq!(budget.usage(), 0);
    }

    #[test]
    fn a_cache_makes_room_for_what_is_reserved() {
        let options = CacheOptions { capacity: 10_000, num_shard_bits: 0, ..CacheOptions::default() };
        let cache: Arc<Cache<u8>> = Cache::new(options);
        let budget = MemoryBudget::charged_to(0, Arc::clone(&cache) as Arc<dyn ChargeTarget>);
        let mut memtable = budget.reserve(MemoryRole::Memtable, 4000).unwrap();
        assert_eq!(cache.usage(), 4000);
        cache.set_strict_capacity_limit(true);
        assert!(memtable.grow(7000).is_err());
        assert_eq!((budget.usage(), cache.usage()), (4000, 4000));
        memtable.set(11_000); // The cache refuses to be charged for the rest.
        assert_eq!((budget.usage(), cache.usage()), (11_000, 4000));
        memtable.set(5000);
        assert_eq!((budget.usage(), cache.usage()), (5000, 4000));
        memtable.set(3000);
        assert_eq!((budget.usage(), cache.usage()), (3000, 3000));
        drop(memtable);
        assert_eq!((budget.usage(), cache.usage()), (0, 0));
    }
}
