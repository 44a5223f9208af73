//! What the public interface promises, by topic. Everything runs on a simulated disk.

mod disk;

mod column_families;
mod compaction;
mod compaction_styles;
mod comparators;
mod concurrency;
mod delete_range;
mod in_flight;
mod iterators;
mod merge;
mod open;
mod options;
mod reads;
mod snapshots;
mod stalls;
mod wal;
mod write_batch;
