//! What the public interface promises, by topic. Everything runs on a simulated disk.

mod disk;

mod backup;
mod checkpoint;
mod column_families;
mod column_family_import;
mod compaction;
mod compaction_styles;
mod comparators;
mod concurrency;
mod delete_range;
mod in_flight;
mod ingest;
mod iterators;
mod listeners;
mod merge;
mod open;
mod options;
mod perf;
mod prefix_seek;
mod properties;
mod reads;
mod refresh;
mod repair;
mod secondary;
mod set_options;
mod snapshots;
mod sst_file_manager;
mod sst_files;
mod stalls;
mod tombstone_runs;
mod verify;
mod wal;
mod wal_files;
mod write_batch;
mod write_buffers;
