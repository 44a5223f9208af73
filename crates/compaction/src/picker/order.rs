//! In which order the files of a level below 0 are tried.

use crate::options::CompactionPriority;
use crate::picker::Picker;
use ironstone_version::FileMetaData;
use std::cmp::Reverse;

impl Picker<'_> {
    /// The positions of the files of `level`, best first.
    pub(super) fn files_by_priority(&self, level: usize) -> Vec<usize> {
        let files = self.version.files(level);
        let mut order: Vec<usize> = (0..files.len()).collect();
        // The sorts are stable, and the files are in key order: among equals, smaller keys go first, which
        // lets a trivial move take neighbours along.
        match self.options.compaction_pri {
            CompactionPriority::ByCompensatedSize => {
                order.sort_by_key(|&at| Reverse(self.context.size_of(&files[at])));
            }
            CompactionPriority::OldestLargestSeqFirst => order.sort_by_key(|&at| files[at].largest_seqno),
            CompactionPriority::OldestSmallestSeqFirst => order.sort_by_key(|&at| files[at].smallest_seqno),
            CompactionPriority::MinOverlappingRatio => {
                let ratios = self.overlapping_ratios(level);
                order.sort_by_key(|&at| (Reverse(self.context.is_marked(&files[at])), ratios[at]));
            }
            CompactionPriority::RoundRobin => {
                if let Some(cursor) = self.version.compact_cursors.get(&level) {
                    let starts_before = |file: &ironstone_base::sync::Arc<FileMetaData>| {
                        self.version.comparator.compare(file.smallest.as_key(), cursor.as_key()).is_lt()
                    };
                    order.rotate_left(files.partition_point(starts_before) % files.len().max(1));
                }
            }
        }
        order
    }

    /// For each file of `level`: 1024ths of bytes of the next level that would be rewritten with each byte of
    /// the file, less for files that come near their TTL.
    fn overlapping_ratios(&self, level: usize) -> Vec<u64> {
        let order = &self.version.comparator;
        let next = self.version.files(level + 1);
        let boost = TtlBoost::new(self, level);
        let mut first = 0; // The first file of the next level that does not end before the file looked at.
        let ratio = |file: &FileMetaData| {
            first += next[first..].partition_point(|below| {
                order.compare(below.largest.as_key(), file.smallest.as_key()).is_lt()
            });
            let overlapping: u64 = next[first..]
                .iter()
                .take_while(|below| order.compare(below.smallest.as_key(), file.largest.as_key()).is_lt())
                .map(|below| below.file_size)
                .sum();
            overlapping.saturating_mul(1024) / self.context.size_of(file).max(1) / boost.factor(file)
        };
        self.version.files(level).iter().map(|file| &**file).map(ratio).collect()
    }
}

/// Lets files win that come near their TTL, so that not all of them expire at once. It begins at half the
/// TTL; the lower the level, the earlier.
struct TtlBoost {
    now: u64,
    start_age: u64,
    step: u64,
}

impl TtlBoost {
    const OFF: Self = Self { now: 0, start_age: u64::MAX, step: 1 };
    const STEPS: u64 = 16;

    fn new(picker: &Picker<'_>, level: usize) -> Self {
        let ttl = picker.options.ttl;
        let last = picker.last_level().unwrap_or(0);
        if ttl == 0 || level == 0 || level >= last {
            return Self::OFF;
        }
        let range = (ttl / 32 * 31).saturating_sub(ttl / 2) >> (last - level).min(63);
        Self {
            now: picker.context.now_seconds,
            start_age: ttl / 2 + range,
            step: (range / Self::STEPS).max(1),
        }
    }

    fn factor(&self, file: &FileMetaData) -> u64 {
        let age = self.now.saturating_sub(file.oldest_ancester_time);
        if file.oldest_ancester_time == 0 || age <= self.start_age {
            return 1;
        }
        (age - self.start_age) / self.step + 1
    }
}
