//! The row cache: what point reads found in tables, by table and user key.
//!
//! ```text
//! table, hash of user key and sequence --> Row: sequence, user key, entries newest first
//! ```
//! A row has the entries of its key in its table from the newest one that a read sees down to the first that is no merge
//! operand; never none. A read that sees all of a table (its sequence number is at least the table's largest) shares the row
//! with all such reads; one at an older snapshot has a row of its own. Tables with range tombstones have no rows, so a row
//! answers without the table being open.

use super::get::{Found, Versioned};
use super::pinned_value::PinnedValue;
use ironstone_base::statistics::Ticker;
use ironstone_base::sync::Arc;
use ironstone_base::{SequenceNumber, Statistics, ValueType};
use ironstone_cache::{Cache, CacheKey, CacheOptions, Handle, Priority};
use ironstone_sst::{PointTarget, ReadContext, TableEntry, TableReader};
use smallvec::{SmallVec, smallvec};

/// Keeps what `get` and `multi_get` find in tables, so that they find it again without filter, index and block
/// ([`DbOptions::row_cache`](crate::DbOptions::row_cache)). Several databases may share one.
///
/// Bounded by bytes: a row is charged its key, its values and its bookkeeping. What is not found in a table is not kept,
/// nor what reads with `fill_cache` off find. Tables with range tombstones are always read themselves; `delete_range` goes
/// together with a row cache, other than in RocksDB.
///
/// ```
/// use ironstone::{CacheOptions, Db, Options, RowCache, Statistics, statistics::Ticker};
/// use std::sync::Arc;
///
/// let rows = RowCache::new(CacheOptions { capacity: 1 << 20, ..CacheOptions::default() });
/// let statistics = Arc::new(Statistics::new());
/// let mut options = Options::in_memory();
/// options.db.row_cache = Some(Arc::clone(&rows));
/// options.db.statistics = Some(Arc::clone(&statistics));
/// let db = Db::open(&options, "/db")?;
/// db.put(b"iron", b"Fe")?;
/// db.flush()?;
/// db.get(b"iron")?; // From the table,
/// db.get(b"iron")?; // and this one from the cache.
/// assert_eq!((rows.entry_count(), statistics.ticker(Ticker::RowCacheHit)), (1, 1));
/// # Ok::<_, ironstone::Error>(())
/// ```
#[derive(Debug)]
pub struct RowCache {
    rows: Arc<Cache<Row>>,
}

impl RowCache {
    /// An empty cache. `huge_pages` has no meaning: rows are on the heap.
    pub fn new(options: CacheOptions) -> Arc<Self> {
        Arc::new(Self { rows: Cache::new(CacheOptions { huge_pages: false, ..options }) })
    }
    /// Bytes that it may hold.
    pub fn capacity(&self) -> usize {
        self.rows.capacity()
    }
    /// Changes the capacity, evicting if it shrinks.
    pub fn set_capacity(&self, bytes: usize) {
        self.rows.set_capacity(bytes);
    }
    /// Bytes of all rows, those included that only values handed out keep.
    pub fn usage(&self) -> usize {
        self.rows.usage()
    }
    /// Bytes of the rows that values handed out keep.
    pub fn pinned_usage(&self) -> usize {
        self.rows.pinned_usage()
    }
    /// How many rows there are.
    pub fn entry_count(&self) -> usize {
        self.rows.entry_count()
    }
}

/// What one table says about one key.
pub(crate) struct Row {
    /// For which reads: see [`TableRows::visibility`].
    visibility: u64,
    user_key: Box<[u8]>,
    entries: SmallVec<[RowEntry; 1]>,
}

struct RowEntry {
    kind: ValueType,
    value: Box<[u8]>,
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "row of \"{}\", {} entries", self.user_key.escape_ascii(), self.entries.len())
    }
}

/// A value in a row, which it pins.
#[derive(Clone, Debug)]
pub(crate) struct RowValue {
    row: Handle<Row>,
    entry: u32,
}

impl RowValue {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.row.entries[self.entry as usize].value
    }
}

/// The rows of one table.
pub(crate) struct TableRows {
    cache: Arc<RowCache>,
    /// Names the table in the cache, and never named another one.
    table: u64,
    /// The newest entry of the table.
    largest: SequenceNumber,
    statistics: Option<Arc<Statistics>>,
}

impl TableRows {
    pub(crate) fn new(
        cache: &Arc<RowCache>,
        largest: SequenceNumber,
        statistics: Option<Arc<Statistics>>,
    ) -> Self {
        Self { cache: Arc::clone(cache), table: cache.rows.new_file_id(), largest, statistics }
    }

    /// 0 for reads that see all of the table; for the others their sequence number and 1.
    fn visibility(&self, at: SequenceNumber) -> u64 {
        if at >= self.largest { 0 } else { at.0 + 1 }
    }

    fn key(&self, target: PointTarget<'_>, visibility: u64) -> CacheKey {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        CacheKey(self.table, target.hash.to_bits() ^ visibility.wrapping_mul(ODD))
    }

    /// The row that answers `target`. Counted, as hit or miss.
    pub(super) fn find(&self, target: PointTarget<'_>) -> Option<FoundRow> {
        let visibility = self.visibility(target.key.sequence());
        let row = self.cache.rows.get(&self.key(target, visibility));
        // Two keys of one hash take each other's place.
        let row = row.filter(|row| row.visibility == visibility && *row.user_key == *target.key.user_key());
        if let Some(statistics) = &self.statistics {
            statistics.record(if row.is_some() { Ticker::RowCacheHit } else { Ticker::RowCacheMiss }, 1);
        }
        row.map(FoundRow)
    }

    /// Keeps the newest entry of a key, unless it is an operand: then older ones belong to the row.
    pub(super) fn keep_newest(
        &self,
        context: &ReadContext,
        table: &TableReader,
        target: PointTarget<'_>,
        entry: &TableEntry,
    ) {
        if Self::may_keep(context, table) && ends_row(entry.value_type) {
            self.insert(target, smallvec![RowEntry { kind: entry.value_type, value: (*entry.value).into() }]);
        }
    }

    /// Whether a read may leave a row of `table`.
    fn may_keep(context: &ReadContext, table: &TableReader) -> bool {
        context.fill_cache && !table.has_range_deletions()
    }

    fn insert(&self, target: PointTarget<'_>, entries: SmallVec<[RowEntry; 1]>) {
        let visibility = self.visibility(target.key.sequence());
        let row = Row { visibility, user_key: target.key.user_key().into(), entries };
        let values: usize = row.entries.iter().map(|entry| entry.value.len()).sum();
        let spilled = if row.entries.spilled() { row.entries.capacity() * size_of::<RowEntry>() } else { 0 };
        let charge = row.user_key.len() + values + spilled;
        // A cache without room is no reason for a read to fail.
        let _ = self.cache.rows.insert(self.key(target, visibility), row, charge, Priority::Low);
    }
}

/// Whether an entry hides all that are older, so that a row needs none of them.
fn ends_row(kind: ValueType) -> bool {
    matches!(kind, ValueType::Value | ValueType::Deletion | ValueType::SingleDeletion)
}

/// A row that is there.
pub(super) struct FoundRow(Handle<Row>);

impl FoundRow {
    /// What the table says about the key, as a point read of it does.
    pub(super) fn newest(self) -> Found {
        match self.0.entries[0].kind {
            ValueType::Value => Found::Value(PinnedValue::in_row(RowValue { row: self.0, entry: 0 })),
            ValueType::Merge => Found::Operand,
            _ => Found::Deleted,
        }
    }
    /// All its entries, newest first.
    pub(super) fn entries(&self) -> impl Iterator<Item = Versioned> {
        self.0.entries.iter().zip(0..).map(|(entry, number)| {
            let value = PinnedValue::in_row(RowValue { row: self.0.clone(), entry: number });
            Versioned { kind: entry.kind, value }
        })
    }
}

/// Gathers the row of a key while its entries are visited.
pub(super) struct RowInMaking<'a> {
    rows: &'a TableRows,
    entries: SmallVec<[RowEntry; 1]>,
}

impl<'a> RowInMaking<'a> {
    /// `None` if the read may leave no row.
    pub(super) fn new(
        rows: Option<&'a TableRows>,
        context: &ReadContext,
        table: &TableReader,
    ) -> Option<Self> {
        let rows = rows.filter(|_| TableRows::may_keep(context, table))?;
        Some(Self { rows, entries: SmallVec::new() })
    }
    /// Takes the next older entry.
    pub(super) fn add(&mut self, kind: ValueType, value: &[u8]) {
        self.entries.push(RowEntry { kind, value: value.into() });
    }
    /// Keeps the row if it has all that belongs to it: down to an entry that hides the rest, or the last one
    /// (`is_last`).
    pub(super) fn finish(self, target: PointTarget<'_>, is_last: bool) {
        if self.entries.last().is_some_and(|oldest| is_last || ends_row(oldest.kind)) {
            self.rows.insert(target, self.entries);
        }
    }
}
