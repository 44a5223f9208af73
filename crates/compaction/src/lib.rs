//! Flush and compaction: which files to rewrite (pure pickers), which entries to drop, and the loop
//! that rewrites them.
//!
//! ```text
//!              Version, options, what runs now
//!                            |
//!   picker (pure)            v
//!   pick_automatic, ManualCompaction, pick_files  ->  CompactionPlan
//!                                                  |
//!   job (I/O)                                      v
//!   tables -> MergingIterator -> CompactionIterator (drop rules) -> outputs -> CompactionOutput
//!   memtables ------------^                                                 `-> VersionEdit (the caller's)
//! ```
//! A picker does no I/O and takes no lock: the same version, options and running compactions give the
//! same plan. One executor runs every plan. Design: docs/design/0003-compaction.md.
#![forbid(unsafe_code)]

pub mod filter;
pub mod flush;
pub mod iterator;
pub mod job;
pub mod offpeak;
pub mod options;
pub mod partitioner;
pub mod picker;
pub mod plan;
pub mod running;
pub mod shape;
#[cfg(test)]
mod text_test;

pub use filter::{
    CompactionFilter, CompactionFilterFactory, FilterContext, FilterDecision, FilterSource,
    TableFileCreationReason,
};
pub use flush::{FlushInput, FlushOutput, run_flush};
pub use iterator::{BelowLevels, CompactionIterator, DropCounts, EntryRules, IteratorOptions, PlainRules};
pub use job::file_times::FileTimes;
pub use job::{
    CompactionOutput, CompactionProgress, CompactionStats, JobContext, OutputChecks, OutputFiles,
    ScopedThreads, SerialWorkers, TableSource, Workers, run_compaction,
};
pub use offpeak::DailyOffpeak;
pub use options::{
    CompactionOptions, CompactionPriority, CompactionStyle, FifoOptions, StopStyle, UniversalOptions,
};
pub use partitioner::{
    PartitionRequest, PartitionerContext, Partitioning, SstPartitioner, SstPartitionerFactory,
    SstPartitionerFixedPrefix,
};
pub use picker::drop_ranges::{KeyRange, drop_in_ranges};
pub use picker::manual::{
    BottommostPolicy, ManualCompaction, ManualPick, NamedFilesOptions, Refit, drop_file, pick_files,
    promote_level0, refit_last_level,
};
pub use picker::{PickContext, Wanted, needs_compaction, pick_automatic, sorted_run_count};
pub use plan::{CompactionPlan, CompactionReason, LevelInputs, PlanKind};
pub use running::{CompactionId, RunningCompactions};
pub use shape::{LevelScore, LevelShape};
