//! The range tombstones of a memtable.
//!
//! ```text
//! runs:   [ 64 tombstones ] [ 8 ] [ 4 ] [ 1 ]      each cut into fragments; a read asks all of them
//! ```
//! A new tombstone is a run of its own; runs of equal size become one. So a write costs a logarithm of the
//! number of tombstones, amortised, and so does a read, whichever way the two alternate.

use ironstone_base::protection::Protection;
use ironstone_base::protection::planted::{self, Place};
use ironstone_base::sync::RwLock;
use ironstone_base::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use ironstone_base::{FragmentedTombstones, RangeTombstone, SequenceNumber, UserComparator, ValueType};
use std::sync::Arc;

/// A run: the tombstones as they were written, and as fragments.
#[derive(Clone)]
struct Run {
    tombstones: Vec<Kept>,
    fragments: Arc<FragmentedTombstones>,
    /// Whether the fragments were made of what matched its checksums.
    is_intact: bool,
}

#[derive(Clone)]
struct Kept {
    tombstone: RangeTombstone,
    /// With the sequence number; nothing to compare with if tombstones are not protected.
    protection: Option<Protection>,
}

impl Kept {
    fn is_intact(&self) -> bool {
        self.protection.is_none_or(|protection| protection == protection_of(&self.tombstone))
    }
}

/// What its checksum must be.
pub(crate) fn protection_of(tombstone: &RangeTombstone) -> Protection {
    Protection::new(ValueType::RangeDeletion, &tombstone.begin, &tombstone.end)
        .toggle_sequence(tombstone.sequence)
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

    /// Adds one, with the checksum that it came with if it is to be protected.
    pub(crate) fn add(
        &self,
        order: &UserComparator,
        mut tombstone: RangeTombstone,
        protection: Option<Protection>,
    ) {
        if protection.is_some() {
            planted::flip(Place::RangeTombstone, &mut tombstone.begin);
        }
        let bytes = 2 * (size_of::<Kept>() + tombstone.begin.len() + tombstone.end.len());
        let mut runs = self.runs.write();
        let mut merged = vec![Kept { tombstone, protection }];
        while let Some(last) = runs.last() {
            if last.tombstones.len() > merged.len().max(Self::SMALL) {
                break;
            }
            let last = runs.pop().expect("it was looked at");
            let newer = std::mem::replace(&mut merged, last.tombstones);
            merged.extend(newer);
        }
        let is_intact = merged.iter().all(Kept::is_intact);
        let mut fragments =
            FragmentedTombstones::new(order, merged.iter().map(|kept| kept.tombstone.clone()).collect());
        if protection.is_some() {
            fragments = fragments.protect();
        }
        runs.push(Run { tombstones: merged, fragments: Arc::new(fragments), is_intact });
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

    /// The newest tombstone over `key` that a read at `at` may see; zero if there is none. `None` if they are protected and
    /// the answer would rest on what is not as it was.
    pub(crate) fn covering(
        &self,
        order: &UserComparator,
        key: &[u8],
        at: SequenceNumber,
        protected: bool,
    ) -> Option<SequenceNumber> {
        let runs = self.runs.read();
        if !protected {
            return Some(
                runs.iter().map(|run| run.fragments.covering(order, key, at)).max().unwrap_or_default(),
            );
        }
        runs.iter().try_fold(SequenceNumber::ZERO, |newest, run| {
            let covering = run.is_intact.then(|| run.fragments.covering_checked(order, key, at))??;
            Some(newest.max(covering))
        })
    }

    /// The fragments of each run; `None` if they are protected, and one is not as it was.
    pub(crate) fn fragments(&self, protected: bool) -> Option<Vec<Arc<FragmentedTombstones>>> {
        let runs = self.runs.read();
        let is_sound = |run: &Run| !protected || (run.is_intact && run.fragments.is_intact());
        runs.iter().map(|run| is_sound(run).then(|| Arc::clone(&run.fragments))).collect()
    }

    /// All of them, in the order in which they were added within each run; `None` if one does not match its checksum.
    pub(crate) fn all(&self) -> Option<Vec<RangeTombstone>> {
        let runs = self.runs.read();
        let all = runs.iter().flat_map(|run| &run.tombstones);
        all.map(|kept| kept.is_intact().then(|| kept.tombstone.clone())).collect()
    }
}
