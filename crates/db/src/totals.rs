//! What was done to a column family since it was opened: for properties and the LOG.

use crate::listener::WriteStallCause;
use ironstone_compaction::CompactionStats;
use std::ops::{AddAssign, Sub};

/// What flushes and compactions did whose output went to one level.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct LevelTotals {
    /// Bytes of input files of levels above.
    pub(crate) read_above: u64,
    /// Bytes of input files of the level.
    pub(crate) read_here: u64,
    pub(crate) written: u64,
    /// Keys and values of what was written, before compression.
    pub(crate) written_raw: u64,
    /// Bytes of files that were moved as they were.
    pub(crate) moved: u64,
    pub(crate) micros: u64,
    pub(crate) jobs: u64,
    pub(crate) keys_in: u64,
    pub(crate) keys_dropped: u64,
}

impl LevelTotals {
    fn fields(&mut self) -> [&mut u64; 9] {
        [
            &mut self.read_above,
            &mut self.read_here,
            &mut self.written,
            &mut self.written_raw,
            &mut self.moved,
            &mut self.micros,
            &mut self.jobs,
            &mut self.keys_in,
            &mut self.keys_dropped,
        ]
    }
}

impl AddAssign for LevelTotals {
    fn add_assign(&mut self, mut other: Self) {
        for (field, more) in self.fields().into_iter().zip(other.fields()) {
            *field += *more;
        }
    }
}

impl Sub for LevelTotals {
    type Output = Self;
    fn sub(mut self, mut earlier: Self) -> Self {
        for (field, less) in self.fields().into_iter().zip(earlier.fields()) {
            *field = field.saturating_sub(*less);
        }
        self
    }
}

/// How often writers of a column family began to be slowed down and to be stopped for a cause.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct StallCounts {
    pub(crate) delays: u64,
    pub(crate) stops: u64,
    /// Of those, while a compaction of level 0 ran.
    pub(crate) delays_during_compaction: u64,
    pub(crate) stops_during_compaction: u64,
    /// For how long they were slowed down.
    pub(crate) delayed_nanos: u64,
    /// For how long they were stopped.
    pub(crate) stopped_nanos: u64,
}

/// All that of one column family.
#[derive(Clone, Default, Debug)]
pub(crate) struct Totals {
    levels: Vec<LevelTotals>,
    /// Bytes that flushes wrote.
    pub(crate) flushed: u64,
    /// Of files from outside: bytes, files, files that went to level 0, entries.
    pub(crate) added: [u64; 4],
    stalls: [StallCounts; WriteStallCause::OF_COLUMN_FAMILY.len()],
}

impl Totals {
    /// Those of a level.
    pub(crate) fn level(&self, level: usize) -> LevelTotals {
        self.levels.get(level).copied().unwrap_or_default()
    }
    fn level_mut(&mut self, level: usize) -> &mut LevelTotals {
        if self.levels.len() <= level {
            self.levels.resize(level + 1, LevelTotals::default());
        }
        &mut self.levels[level]
    }
    /// Those of all levels together.
    pub(crate) fn sum(&self) -> LevelTotals {
        let mut sum = LevelTotals::default();
        self.levels.iter().for_each(|level| sum += *level);
        sum
    }
    /// Those of stalls for one cause, which is one of a column family's.
    pub(crate) fn stalls(&self, cause: WriteStallCause) -> StallCounts {
        self.stalls[cause as usize]
    }
    pub(crate) fn stalls_mut(&mut self, cause: WriteStallCause) -> &mut StallCounts {
        &mut self.stalls[cause as usize]
    }

    pub(crate) fn note_flush(&mut self, bytes: u64, records: u64, micros: u64) {
        self.flushed += bytes;
        let flush =
            LevelTotals { written: bytes, micros, jobs: 1, keys_in: records, ..LevelTotals::default() };
        *self.level_mut(0) += flush;
    }
    pub(crate) fn note_compaction(&mut self, output_level: usize, stats: &CompactionStats, micros: u64) {
        let compaction = LevelTotals {
            read_above: stats.bytes_read_non_output_levels,
            read_here: stats.bytes_read_output_level,
            written: stats.bytes_written,
            written_raw: stats.output_raw_bytes,
            moved: 0,
            micros,
            jobs: 1,
            keys_in: stats.input_records,
            keys_dropped: stats.input_records.saturating_sub(stats.output_records),
        };
        *self.level_mut(output_level) += compaction;
    }
    pub(crate) fn note_move(&mut self, output_level: usize, bytes: u64) {
        self.level_mut(output_level).moved += bytes;
    }
    pub(crate) fn note_added(&mut self, level: usize, bytes: u64, entries: u64) {
        let one = [bytes, 1, u64::from(level == 0), entries];
        self.added.iter_mut().zip(one).for_each(|(total, more)| *total += more);
    }
}
