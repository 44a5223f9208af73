//! Snapshots: sequence numbers that compaction must keep readable.

use crate::background::Cleaner;
use ironstone_base::SequenceNumber;
use ironstone_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ironstone_base::sync::{Arc, Mutex};
use std::collections::BTreeMap;
use std::fmt;

/// The snapshots that are held, in order.
pub(crate) struct SnapshotList {
    /// Whether any snapshot was ever let go of. Relaxed: only a hint that some data may go.
    released: AtomicBool,
    /// No table that waits for the release of a snapshot has its newest entry before this. Relaxed: a hint.
    waiting: AtomicU64,
    /// Whether a release may have set such a table free. Relaxed: a hint.
    freed: AtomicBool,
    cleaner: Arc<Cleaner>,
    held: Mutex<BTreeMap<SequenceNumber, Held>>,
}

#[derive(Default)]
struct Held {
    count: usize,
    since_seconds: u64,
}

impl SnapshotList {
    /// No snapshots. `cleaner` is woken when a release sets a table free.
    pub(crate) fn new(cleaner: &Arc<Cleaner>) -> Arc<Self> {
        Arc::new(Self {
            released: AtomicBool::new(false),
            waiting: AtomicU64::new(u64::MAX),
            freed: AtomicBool::new(false),
            cleaner: Arc::clone(cleaner),
            held: Mutex::default(),
        })
    }
    /// A table whose newest entry is this waits for the release of snapshots.
    pub(crate) fn note_waiting(&self, newest: SequenceNumber) {
        self.waiting.fetch_min(newest.0, Ordering::Relaxed);
    }
    /// Whether a release may have set a table free since this was last asked.
    pub(crate) fn take_freed(&self) -> bool {
        self.freed.swap(false, Ordering::Relaxed)
    }
    /// Holds what is visible now. `visible` is asked under the list's lock, so that a compaction
    /// that looks at the list afterwards either sees the snapshot or only works on what it sees anyway.
    pub(crate) fn take(
        self: &Arc<Self>,
        visible: impl FnOnce() -> SequenceNumber,
        now_seconds: u64,
    ) -> Snapshot {
        let mut held = self.held.lock();
        let sequence = visible();
        let entry = held.entry(sequence).or_default();
        entry.count += 1;
        if entry.count == 1 {
            entry.since_seconds = now_seconds;
        }
        Snapshot(Arc::new(Inner { sequence, list: Arc::clone(self) }))
    }
    /// Entries older than this are held back by no snapshot any more; 0 if none ever was.
    pub(crate) fn bottommost_threshold(&self, visible: SequenceNumber) -> SequenceNumber {
        if !self.released.load(Ordering::Relaxed) {
            return SequenceNumber::ZERO;
        }
        self.held.lock().keys().next().copied().unwrap_or(visible)
    }
    /// The held sequence numbers, ascending.
    pub(crate) fn sequences(&self) -> Vec<SequenceNumber> {
        self.held.lock().keys().copied().collect()
    }
    /// How many snapshots are held, and since when the oldest is.
    pub(crate) fn summary(&self) -> (u64, Option<u64>, Option<SequenceNumber>) {
        let held = self.held.lock();
        let count = held.values().map(|entry| entry.count as u64).sum();
        let oldest = held.first_key_value();
        (count, oldest.map(|(_, entry)| entry.since_seconds), oldest.map(|(sequence, _)| *sequence))
    }
}

/// The database as of the moment when it was taken, for [`ReadOptions::snapshot`](crate::ReadOptions).
/// Cheap to clone; let go of when the last clone is dropped. Not kept over a reopening.
#[derive(Clone)]
pub struct Snapshot(Arc<Inner>);

struct Inner {
    sequence: SequenceNumber,
    list: Arc<SnapshotList>,
}

impl Snapshot {
    /// The newest write that the snapshot sees.
    pub fn sequence(&self) -> SequenceNumber {
        self.0.sequence
    }
    pub(crate) fn belongs_to(&self, list: &Arc<SnapshotList>) -> bool {
        Arc::ptr_eq(&self.0.list, list)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut held = self.list.held.lock();
        if let Some(entry) = held.get_mut(&self.sequence) {
            entry.count -= 1;
            if entry.count == 0 {
                held.remove(&self.sequence);
                self.list.released.store(true, Ordering::Relaxed);
                let oldest = held.keys().next().map_or(u64::MAX, |oldest| oldest.0);
                drop(held);
                if self.list.waiting.load(Ordering::Relaxed) < oldest {
                    self.list.waiting.store(u64::MAX, Ordering::Relaxed);
                    self.list.freed.store(true, Ordering::Relaxed);
                    self.list.cleaner.poke();
                }
            }
        }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot({})", self.0.sequence)
    }
}
