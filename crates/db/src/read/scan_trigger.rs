//! Flushes that iterators ask for: they have passed over too much in the memtable that takes writes
//! (`memtable_op_scan_flush_trigger`, `memtable_avg_op_scan_flush_trigger`).

use crate::memtables::DbMemTable;
use crate::options::ColumnFamilyOptions;
use ironstone_base::SequenceNumber;
use ironstone_base::sync::Arc;

/// What an iterator has passed over in a memtable.
pub(super) struct ScanTrigger {
    memtable: Arc<DbMemTable>,
    /// So many hidden entries in one move, or none, once it was asked.
    per_move: Option<u64>,
    /// So many on average of the moves from one seek to the next, if they are `per_move` together.
    average: Option<u64>,
    /// Since the last seek.
    hidden: u64,
    moves: u64,
}

impl ScanTrigger {
    /// `None` if nothing triggers a flush.
    pub(super) fn new(options: &ColumnFamilyOptions, memtable: &Arc<DbMemTable>) -> Option<Box<Self>> {
        let wanted = |number: u32| Some(u64::from(number)).filter(|number| *number > 0);
        let per_move = wanted(options.memtable_op_scan_flush_trigger)?;
        Some(Box::new(Self {
            memtable: Arc::clone(memtable),
            per_move: Some(per_move),
            average: wanted(options.memtable_avg_op_scan_flush_trigger),
            hidden: 0,
            moves: 1,
        }))
    }

    /// Entries that are newer are in the memtable, or were brought in beside it.
    pub(super) fn older_end(&self) -> SequenceNumber {
        self.memtable.older_end()
    }

    /// A seek passed over `hidden` entries.
    pub(super) fn note_seek(&mut self, hidden: u64) {
        self.look_at_average();
        (self.hidden, self.moves) = (0, 1);
        self.look_at(hidden);
    }
    /// A step passed over `hidden` entries.
    pub(super) fn note_step(&mut self, hidden: u64) {
        self.moves += 1;
        self.look_at(hidden);
    }

    fn look_at(&mut self, hidden: u64) {
        self.hidden += hidden;
        if self.per_move.is_some_and(|most| hidden >= most) {
            self.ask_for_flush();
        }
    }
    fn look_at_average(&mut self) {
        if let (Some(least), Some(average)) = (self.per_move, self.average)
            && self.hidden >= least
            && self.hidden >= self.moves.saturating_mul(average)
        {
            self.ask_for_flush();
        }
    }
    /// Once is enough.
    fn ask_for_flush(&mut self) {
        self.memtable.count_as_full();
        (self.per_move, self.average) = (None, None);
    }
}

impl Drop for ScanTrigger {
    fn drop(&mut self) {
        self.look_at_average();
    }
}
