//! The range tombstones of a memtable.
//!
//! ```text
//! runs:   [ 64 tombstones ] [ 8 ] [ 4 ] [ 1 ]      each cut into fragments; a read asks all of them
//! ```
//! A new tombstone is a run of its own; runs of equal size become one. So a write costs a logarithm of the
//! number of tombstones, amortised, and so does a read, whichever way the two alternate.

use ironstone_base::sync::RwLock;
use ironstone_base::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use ironstone_base::{FragmentedTombstones, RangeTombstone, SequenceNumber, UserComparator};
use std::sync::Arc;

/// A run: the tombstones as they were written, and as fragments.
#[derive(Clone)]
struct Run {
    tombstones: Vec<RangeTombstone>,
    fragments: Arc<FragmentedTombstones>,
}

#[derive(Default)]
pub(crate) struct RangeTombstones {
    runs: RwLock<Vec<Run>>,
    /// How many tombstones there are; 0 is what makes reads pass by. Relaxed: a reader that may see a
    /// tombstone learned its sequence number from a publication that came after this was raised.
    count: AtomicU64,
    bytes: AtomicUsize,
}

impl RangeTombstones {
    /// Runs up to this size are merged without a thought; larger ones only with their like.
    const SMALL: usize = 4;

    pub(crate) fn add(&self, order: &UserComparator, tombstone: RangeTombstone) {
        let bytes = 2 * (size_of::<RangeTombstone>() + tombstone.begin.len() + tombstone.end.len());
        let mut runs = self.runs.write();
        let mut merged = vec![tombstone];
        while let Some(last) = runs.last() {
            if last.tombstones.len() > merged.len().max(Self::SMALL) {
                break;
            }
            let last = runs.pop().expect("it was looked at");
            let newer = std::mem::replace(&mut merged, last.tombstones);
            merged.extend(newer);
        }
        let fragments = Arc::new(FragmentedTombstones::new(order, merged.clone()));
        runs.push(Run { tombstones: merged, fragments });
        self.count.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    pub(crate) fn memory_usage(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// The newest tombstone over `key` that a read at `at` may see; zero if there is none.
    pub(crate) fn covering(&self, order: &UserComparator, key: &[u8], at: SequenceNumber) -> SequenceNumber {
        let runs = self.runs.read();
        runs.iter().map(|run| run.fragments.covering(order, key, at)).max().unwrap_or_default()
    }

    /// The fragments of each run.
    pub(crate) fn fragments(&self) -> Vec<Arc<FragmentedTombstones>> {
        self.runs.read().iter().map(|run| Arc::clone(&run.fragments)).collect()
    }

    /// All of them, in the order in which they were added within each run.
    pub(crate) fn all(&self) -> Vec<RangeTombstone> {
        self.runs.read().iter().flat_map(|run| run.tombstones.iter().cloned()).collect()
    }
}
