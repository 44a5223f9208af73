//! Tables with many tombstones close together are compacted soon.

use super::{CollectedEntry, CollectorContext, EntryKind};
use super::{TablePropertiesCollector, TablePropertiesCollectorFactory};
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use ironstone_base::{Error, Result};
use std::collections::BTreeMap;

/// Asks for a compaction of tables with at least `deletion_trigger` tombstones among any `sliding_window_size` entries in a row, or
/// with at least `deletion_ratio` tombstones among all, if the file has `min_file_size` bytes. Range tombstones are
/// entries, but none that count as deletions.
///
/// RocksDB's, of the same name and text. Its parameters may change at any time; a table keeps to those that there were when it was
/// begun.
#[derive(Debug, Default)]
pub struct CompactOnDeletionCollectorFactory {
    // Each is read by itself, and publishes nothing: `Relaxed` is enough.
    sliding_window_size: AtomicUsize,
    deletion_trigger: AtomicUsize,
    /// The bits of an `f64`.
    deletion_ratio: AtomicU64,
    min_file_size: AtomicU64,
}

impl CompactOnDeletionCollectorFactory {
    /// RocksDB's name of the factory.
    pub const NAME: &'static str = "CompactOnDeletionCollector";

    /// With a window of 0 entries there is no window, and with a ratio of 0 or less, or above 1, no ratio. A window is
    /// rounded up to a multiple of 128 entries.
    pub fn new(
        sliding_window_size: usize,
        deletion_trigger: usize,
        deletion_ratio: f64,
        min_file_size: u64,
    ) -> Self {
        let factory = Self::default();
        factory.set_window_size(sliding_window_size);
        factory.set_deletion_trigger(deletion_trigger);
        factory.set_deletion_ratio(deletion_ratio);
        factory.set_min_file_size(min_file_size);
        factory
    }
    /// The same, to be put into the options.
    pub fn factory(window: usize, trigger: usize, ratio: f64, min_file_size: u64) -> Arc<Self> {
        Arc::new(Self::new(window, trigger, ratio, min_file_size))
    }

    /// Sets the parameter `name` from its text: `window_size`, `deletion_trigger`, `deletion_ratio` or `min_file_size`.
    pub fn set(&self, name: &str, text: &str) -> Result<()> {
        let wrong = || Error::invalid_argument(format!("{}: {name}={text} is no number", Self::NAME));
        match name {
            "window_size" => self.set_window_size(text.parse().map_err(|_| wrong())?),
            "deletion_trigger" => self.set_deletion_trigger(text.parse().map_err(|_| wrong())?),
            "deletion_ratio" => self.set_deletion_ratio(text.parse().map_err(|_| wrong())?),
            "min_file_size" => self.set_min_file_size(text.parse().map_err(|_| wrong())?),
            _ => return Err(Error::invalid_argument(format!("{} has no option {name}", Self::NAME))),
        }
        Ok(())
    }
    /// Changes the length of the window, in entries.
    pub fn set_window_size(&self, entries: usize) {
        self.sliding_window_size.store(entries, Ordering::Relaxed);
    }
    /// Changes how many tombstones of a window are too many.
    pub fn set_deletion_trigger(&self, tombstones: usize) {
        self.deletion_trigger.store(tombstones, Ordering::Relaxed);
    }
    /// Changes which share of tombstones is too many.
    pub fn set_deletion_ratio(&self, ratio: f64) {
        self.deletion_ratio.store(ratio.to_bits(), Ordering::Relaxed);
    }
    /// Changes which tables are too small, in bytes.
    pub fn set_min_file_size(&self, bytes: u64) {
        self.min_file_size.store(bytes, Ordering::Relaxed);
    }
    /// The length of the window, in entries.
    pub fn window_size(&self) -> usize {
        self.sliding_window_size.load(Ordering::Relaxed)
    }
    /// How many tombstones of a window are too many.
    pub fn deletion_trigger(&self) -> usize {
        self.deletion_trigger.load(Ordering::Relaxed)
    }
    /// Which share of tombstones is too many.
    pub fn deletion_ratio(&self) -> f64 {
        f64::from_bits(self.deletion_ratio.load(Ordering::Relaxed))
    }
    /// Tables of fewer bytes are left alone.
    pub fn min_file_size(&self) -> u64 {
        self.min_file_size.load(Ordering::Relaxed)
    }
}

impl TablePropertiesCollectorFactory for CompactOnDeletionCollectorFactory {
    fn name(&self) -> &str {
        Self::NAME
    }
    fn parameters(&self) -> Option<String> {
        Some(format!(
            "window_size={};deletion_trigger={};deletion_ratio={:.6};min_file_size={}",
            self.window_size(),
            self.deletion_trigger(),
            self.deletion_ratio(),
            self.min_file_size(),
        ))
    }
    fn create(&self, _context: &CollectorContext) -> Option<Box<dyn TablePropertiesCollector>> {
        let ratio = self.deletion_ratio();
        Some(Box::new(CompactOnDeletion {
            window: Window::new(self.window_size()),
            trigger: self.deletion_trigger(),
            ratio: Some(ratio).filter(|&ratio| ratio > 0.0 && ratio <= 1.0),
            min_file_size: self.min_file_size(),
            file_size: 0,
            entries: 0,
            tombstones: 0,
            needs_compaction: false,
        }))
    }
}

struct CompactOnDeletion {
    window: Option<Window>,
    trigger: usize,
    ratio: Option<f64>,
    min_file_size: u64,
    /// When the last entry came.
    file_size: u64,
    entries: u64,
    tombstones: u64,
    needs_compaction: bool,
}

impl TablePropertiesCollector for CompactOnDeletion {
    fn name(&self) -> &str {
        CompactOnDeletionCollectorFactory::NAME
    }
    fn add(&mut self, entry: &CollectedEntry<'_>) -> Result<()> {
        if self.needs_compaction {
            return Ok(());
        }
        let is_tombstone = matches!(entry.kind, EntryKind::Delete | EntryKind::SingleDelete);
        self.entries += 1;
        self.tombstones += u64::from(is_tombstone);
        self.file_size = entry.file_size;
        if let Some(window) = &mut self.window {
            window.add(is_tombstone);
            // The file may have become large enough since.
            self.needs_compaction = window.most >= self.trigger && self.file_size >= self.min_file_size;
        }
        Ok(())
    }
    fn finish(&mut self) -> Result<BTreeMap<String, Vec<u8>>> {
        if let Some(ratio) = self.ratio.filter(|_| self.entries > 0 && self.file_size >= self.min_file_size) {
            self.needs_compaction |= self.tombstones as f64 / self.entries as f64 >= ratio;
        }
        Ok(BTreeMap::new())
    }
    fn needs_compaction(&self) -> bool {
        self.needs_compaction
    }
}

const BUCKETS: usize = 128;

/// Counts tombstones among the last entries, bucket by bucket, in a ring.
struct Window {
    bucket_len: usize,
    tombstones: [usize; BUCKETS],
    bucket: usize,
    in_bucket: usize,
    in_window: usize,
    /// The most that there were at once.
    most: usize,
}

impl Window {
    fn new(entries: usize) -> Option<Self> {
        (entries > 0).then(|| Self {
            bucket_len: entries.div_ceil(BUCKETS),
            tombstones: [0; BUCKETS],
            bucket: 0,
            in_bucket: 0,
            in_window: 0,
            most: 0,
        })
    }

    fn add(&mut self, is_tombstone: bool) {
        if self.in_bucket == self.bucket_len {
            self.bucket = (self.bucket + 1) % BUCKETS;
            self.in_window -= std::mem::take(&mut self.tombstones[self.bucket]);
            self.in_bucket = 0;
        }
        self.in_bucket += 1;
        if is_tombstone {
            self.tombstones[self.bucket] += 1;
            self.in_window += 1;
            self.most = self.most.max(self.in_window);
        }
    }
}
