//! The block cache: charged by bytes, with handles that pin, and the accountant of memory.
//!
//! [`Cache`] holds values under a [`CacheKey`]; a [`Handle`] keeps its value alive and counted for as
//! long as it lives, even after the entry was erased or the cache dropped. [`MemoryBudget`] counts what
//! the rest of the engine holds (memtables, table readers, ...) and can charge it to a cache.

mod block_memory;
mod budget;
mod cache;

pub use block_memory::BlockBytes;
pub use budget::{ChargeTarget, MemoryBudget, MemoryRole, Reservation};
pub use cache::{Cache, CacheKey, CacheOptions, Handle, Priority, SlotHint, prefetch_line};
