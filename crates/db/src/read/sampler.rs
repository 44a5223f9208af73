//! Reads that a compaction would have spared, for `read_triggered_compaction_threshold`.

use super::view::SuperVersion;
use crate::table_cache::TableSlot;
use ironstone_base::sync::atomic::{AtomicU64, Ordering};
use ironstone_base::{FileNumber, ValueType};

/// One in so many of them is counted, as so many.
pub(crate) const SAMPLE_RATE: u64 = 1024;

/// Says which reads of a column family are counted.
#[derive(Default)]
pub(crate) struct ReadSampler {
    /// How many there were. Relaxed, and not raised in one step: what gets lost makes samples rarer.
    reads: AtomicU64,
}

impl ReadSampler {
    /// Takes note of a read that `slot` did not answer.
    #[inline]
    pub(crate) fn note_wasted(&self, slot: &TableSlot) {
        let reads = self.reads.load(Ordering::Relaxed).wrapping_add(1);
        self.reads.store(reads, Ordering::Relaxed);
        if reads.is_multiple_of(SAMPLE_RATE) {
            slot.note_wasted_reads(SAMPLE_RATE);
        }
    }
    /// The same if what a seek came upon in `slot` shows nothing by itself.
    #[inline]
    pub(crate) fn note_entry(&self, kind: Option<ValueType>, slot: &TableSlot) {
        if let Some(ValueType::Deletion | ValueType::SingleDeletion | ValueType::Merge) = kind {
            self.note_wasted(slot);
        }
    }
}

impl SuperVersion {
    /// The tables with more wasted reads per byte than `threshold`, the worst first.
    pub(crate) fn often_read(&self, threshold: f64) -> Vec<FileNumber> {
        if self.sampler.is_none() {
            return Vec::new();
        }
        let files = self.levels.iter().flat_map(|level| level.files.files().iter().zip(&level.tables));
        let rated = files.map(|(file, slot)| (slot.wasted_reads_per_byte(), file.number));
        let mut often: Vec<(f64, FileNumber)> = rated.filter(|(rate, _)| *rate > threshold).collect();
        often.sort_by(|a, b| b.0.total_cmp(&a.0));
        often.into_iter().map(|(_, number)| number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Db, Options};

    #[test]
    fn one_in_so_many_counts_as_so_many_and_the_worst_come_first() {
        let mut options = Options::in_memory();
        options.cf.disable_auto_compactions = true;
        options.cf.read_triggered_compaction_threshold = 0.01;
        let db = Db::open(&options, "/db").unwrap();
        for key in ["a", "b", "c"] {
            db.put(key, "v").unwrap();
            db.flush().unwrap();
        }
        let view = db.default_column_family().0.view();
        let (sampler, tables) = (view.sampler.as_ref().unwrap(), &view.levels[0].tables);
        let numbers: Vec<FileNumber> = view.levels[0].files.files().iter().map(|file| file.number).collect();
        (0..SAMPLE_RATE - 1).for_each(|_| sampler.note_wasted(&tables[0]));
        assert!(view.often_read(0.01).is_empty());
        sampler.note_wasted(&tables[1]);
        assert_eq!(view.often_read(0.01), [numbers[1]]);
        tables[2].note_wasted_reads(10 * SAMPLE_RATE);
        assert_eq!(view.often_read(0.01), [numbers[2], numbers[1]]);
        assert_eq!(view.often_read(5.0), [numbers[2]]);
        for (kind, counts) in
            [(ValueType::Value, false), (ValueType::Deletion, true), (ValueType::Merge, true)]
        {
            let before = sampler.reads.load(Ordering::Relaxed);
            sampler.note_entry(Some(kind), &tables[0]);
            assert_eq!(sampler.reads.load(Ordering::Relaxed) - before, u64::from(counts), "{kind:?}");
        }
        db.put("d", "v").unwrap();
        db.flush().unwrap();
        let later = db.default_column_family().0.view();
        assert_eq!(later.often_read(0.01), [numbers[2], numbers[1]], "counts stay with their tables");
    }
}
