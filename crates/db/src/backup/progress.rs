//! Tells how far the copying of a backup has come.

use super::ProgressCallback;
use ironstone_base::sync::atomic::{AtomicU64, Ordering};

/// Counts what all threads copy.
pub(super) struct Progress<'a> {
    callback: Option<&'a ProgressCallback>,
    interval: u64,
    /// Relaxed: it publishes nothing.
    copied: AtomicU64,
}

impl<'a> Progress<'a> {
    pub(super) fn new(callback: Option<&'a ProgressCallback>, interval: u64) -> Self {
        Self { callback, interval: interval.max(1), copied: AtomicU64::new(0) }
    }
    /// So many more bytes were copied.
    pub(super) fn add(&self, bytes: u64) {
        let Some(callback) = self.callback else { return };
        let before = self.copied.fetch_add(bytes, Ordering::Relaxed);
        let due = (before + bytes) / self.interval - before / self.interval;
        (0..due).for_each(|_| callback());
    }
}
