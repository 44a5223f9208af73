//! Reads: views, point lookups and iterators.

pub(crate) mod acquire;
pub(crate) mod db_iterator;
mod demand;
pub(crate) mod get;
mod iterator_counts;
pub(crate) mod level0_iter;
pub(crate) mod level_iter;
mod merging;
pub(crate) mod multi_cf_iterator;
pub(crate) mod multi_get;
pub(crate) mod pinned_value;
pub(crate) mod range_tombstones;
pub(crate) mod read_options;
pub(crate) mod row_cache;
pub(crate) mod sampler;
mod scan_trigger;
pub(crate) mod source;
mod timed_memtable;
mod timed_merge;
pub(crate) mod view;
