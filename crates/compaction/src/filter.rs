//! Compaction filters: the application's say in which values a flush or a compaction keeps.

use crate::plan::CompactionPlan;
use ironstone_base::{ColumnFamilyId, Error, Result};

/// What a compaction filter wants done with the newest value of a key, or with a merge operand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FilterDecision {
    /// Leave it.
    Keep,
    /// Put a tombstone in its place, which hides older values of the key. A merge operand is dropped, and nothing takes
    /// its place: what is older of the key shows.
    Remove,
    /// Put a single-delete tombstone in its place. Right only for keys that were put once. For a merge operand the same
    /// as [`Remove`](Self::Remove).
    Purge,
    /// Put another value in its place.
    Change(Vec<u8>),
    /// Drop every entry from this key up to that one, which stays: no tombstone takes their place, so older
    /// values that lie deeper come back, and snapshots lose them too. The same as [`Keep`](Self::Keep) if the
    /// key given is not larger. What is skipped may not be read at all.
    RemoveAndSkipUntil(Vec<u8>),
}

/// Why a table is made. Numbers are RocksDB's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum TableFileCreationReason {
    /// Memtables are written to level 0.
    Flush = 0,
    /// Tables are rewritten.
    Compaction = 1,
    /// A WAL is replayed when the database is opened.
    Recovery = 2,
    /// Anything else.
    Misc = 3,
}

/// What is known when a filter is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilterContext {
    /// Every table of the column family takes part.
    pub is_full_compaction: bool,
    /// Somebody asked for it.
    pub is_manual_compaction: bool,
    /// The highest level of the inputs; `None` for a flush.
    pub input_start_level: Option<usize>,
    /// The column family.
    pub column_family_id: ColumnFamilyId,
    /// Why tables are made.
    pub reason: TableFileCreationReason,
}

/// Sees the newest value of each key that a compaction passes, and says what becomes of it, and each merge operand. Values that a
/// snapshot still sees are not spared: they change under it.
///
/// One that is given in the options is called by several threads at once.
pub trait CompactionFilter: Send + Sync {
    /// Its name, for LOG and the OPTIONS file.
    fn name(&self) -> &str;
    /// Options of its own, as option texts have them: `name=value`, with `;` between several
    /// (`object_registry::print_options`). They stand beside its name, and are what it is made of again. Default: none.
    fn parameters(&self) -> Option<String> {
        None
    }
    /// What to do with the value of `key`. `level` is the highest level of the compaction's inputs; 0 for a
    /// flush. Called in key order.
    fn filter(&self, level: usize, key: &[u8], value: &[u8]) -> FilterDecision;
    /// What to do with a merge operand of `key`. Asked of each operand that no snapshot sees, before it is merged with
    /// others; what operands become in a flush or a compaction is not asked about, nor is a value that operands are
    /// merged with. Called in key order, newest operand first. Default: keep.
    fn filter_merge_operand(&self, _level: usize, _key: &[u8], _operand: &[u8]) -> FilterDecision {
        FilterDecision::Keep
    }
    /// Kept for compatibility: a compaction with a filter that answers false fails with `NotSupported`.
    fn ignore_snapshots(&self) -> bool {
        true
    }
}

/// Makes a filter for each thread of work that writes tables.
pub trait CompactionFilterFactory: Send + Sync {
    /// Its name, for LOG and the OPTIONS file.
    fn name(&self) -> &str;
    /// Options of its own, as option texts have them: `name=value`, with `;` between several
    /// (`object_registry::print_options`). They stand beside its name, and are what it is made of again. Default: none.
    fn parameters(&self) -> Option<String> {
        None
    }
    /// Whether tables that are made for this reason are filtered. Default: those of compactions.
    fn should_filter_table_file_creation(&self, reason: TableFileCreationReason) -> bool {
        reason == TableFileCreationReason::Compaction
    }
    /// A filter for one thread of work; `None`: it filters nothing.
    fn create(&self, context: &FilterContext) -> Option<Box<dyn CompactionFilter>>;
}

/// Where a job has its filters from.
#[derive(Clone, Copy)]
pub enum FilterSource<'a> {
    /// One for all.
    Shared(&'a dyn CompactionFilter),
    /// A new one for each part of the job.
    Factory(&'a dyn CompactionFilterFactory),
}

/// The filter of one part of a job.
pub(crate) enum PartFilter<'a> {
    Shared(&'a dyn CompactionFilter),
    Own(Box<dyn CompactionFilter>),
}

impl<'a> PartFilter<'a> {
    /// The filter for a part of a job, if `source` has one for it. A filter that is not made by a factory
    /// sees compactions only.
    pub(crate) fn new(source: Option<FilterSource<'a>>, context: &FilterContext) -> Result<Option<Self>> {
        let filter = match source {
            Some(FilterSource::Shared(filter)) if context.reason == TableFileCreationReason::Compaction => {
                Some(Self::Shared(filter))
            }
            Some(FilterSource::Factory(factory))
                if factory.should_filter_table_file_creation(context.reason) =>
            {
                factory.create(context).map(Self::Own)
            }
            _ => None,
        };
        if let Some(filter) = &filter
            && !filter.get().ignore_snapshots()
        {
            let name = filter.get().name();
            return Err(Error::not_supported(format!("compaction filter {name}: ignore_snapshots is false")));
        }
        Ok(filter)
    }
    pub(crate) fn get(&self) -> &dyn CompactionFilter {
        match self {
            Self::Shared(filter) => *filter,
            Self::Own(filter) => &**filter,
        }
    }
}

impl FilterContext {
    pub(crate) fn of_plan(plan: &CompactionPlan, column_family_id: ColumnFamilyId) -> Self {
        Self {
            is_full_compaction: plan.full,
            is_manual_compaction: plan.manual,
            input_start_level: Some(plan.start_level()),
            column_family_id,
            reason: TableFileCreationReason::Compaction,
        }
    }
}
