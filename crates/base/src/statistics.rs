//! Counters and histograms under RocksDB's names.

/// Shared counters.
#[derive(Default)]
pub struct Statistics {}
