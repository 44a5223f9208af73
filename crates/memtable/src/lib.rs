//! Memtables: where writes live, sorted, until they are flushed to a table file.
//!
//! ```text
//!   MemTable ---- counters, kind
//!      |
//!      +-- RadixTree       bytewise orders, concurrent writers: the default
//!      +-- SkipList        any comparator, concurrent writers
//!      +-- VectorTable     bulk load: append now, sort on first read
//!      +-- CustomTable     in the order that an application's MemTableRep keeps
//!      |
//!      +-- Bloom           says no without a search, if there is one
//!      +-- Arena           owns every byte; freed at once when the memtable goes
//! ```
//! Entries are never removed or changed, so whoever borrows the memtable may borrow its bytes. In tables that update in
//! place (`in_place.rs`) values do change, and readers get copies.

mod arena;
mod bloom;
mod custom;
mod entry;
mod in_place;
mod iterator;
mod prefetch;
mod radix_tree;
mod range_tombstones;
mod skip_list;
mod table;
mod vector;

pub use arena::BlockPool;
pub use bloom::MemTableBloom;
pub use custom::{EntryId, MemTableEntries, MemTableRep, MemTableRepFactory, SearchKey};
pub use iterator::MemTableIter;
pub use table::{
    MemBytes, MemEntry, MemTable, MemTableKind, MemTableOptions, MemTableWriter, PinnedMemValue, Versions,
};
