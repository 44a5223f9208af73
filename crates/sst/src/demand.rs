//! What readers want of the blocks that a job writes anew.
//!
//! A compaction takes blocks away that readers had in the block cache, and leaves the same records in blocks that are in no cache:
//! the next read of each goes to its file. So whoever reads tables for a job tells by the cache which of their blocks readers
//! wanted, and what is written of those enters the cache at once.

use ironstone_base::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Whether readers want what a job is about to write. One thread tells, and writes; relaxed, since it decides about speed only.
#[derive(Debug, Default)]
pub struct Demand {
    /// A bit for each of the last blocks that were read for the job, the lowest for the last one: whether readers wanted it.
    wanted: AtomicU32,
}

impl Demand {
    /// A block that is full has records of the last block that was read, and of the one before.
    const RECENT: u32 = 0b11;

    /// They want all of it.
    pub fn for_everything() -> Self {
        Self { wanted: AtomicU32::new(u32::MAX) }
    }
    /// Another block was read.
    pub(crate) fn note(&self, is_wanted: bool) {
        self.wanted.store(self.wanted.load(Relaxed) << 1 | u32::from(is_wanted), Relaxed);
    }
    /// Whether a block is wanted that is full now.
    pub(crate) fn is_there(&self) -> bool {
        self.wanted.load(Relaxed) & Self::RECENT != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_wanted_if_one_of_the_last_two_blocks_was() {
        let demand = Demand::default();
        let noted = [false, true, false, false, true, true, false, false];
        let wanted = noted.map(|is_wanted| {
            demand.note(is_wanted);
            demand.is_there()
        });
        assert_eq!(wanted, [false, true, true, false, true, true, true, false]);
        assert!(Demand::for_everything().is_there() && !Demand::default().is_there());
    }
}
