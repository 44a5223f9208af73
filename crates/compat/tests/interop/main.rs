//! Ironstone beside RocksDB and LevelDB, by topic.
#![allow(clippy::disallowed_methods)] // As in the crate: it works with the files of other programs.

mod atomic_flush;
mod best_efforts;
mod collectors;
mod copies;
mod cross_open;
mod external_files;
mod features;
mod flat_tables;
mod golden;
mod leveldb;
mod lock;
mod log_stream;
mod merge_operators;
mod options_file;
mod oracles_agree;
mod rocksdb_tools;
mod secondary;
mod several_paths;
mod traces;
mod ttl;
mod unclean_wal;
