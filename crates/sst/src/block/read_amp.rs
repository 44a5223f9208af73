//! How much of the blocks that are read anybody looks at: an estimate of read amplification.

use ironstone_base::Statistics;
use ironstone_base::statistics::Ticker;
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::{AtomicU64, Ordering};

/// What has been looked at of one block, a bit for every few bytes. Counts in the statistics each bit once, however often the
/// entry is read while the block is in memory.
pub(super) struct ReadAmp {
    bits: Box<[AtomicU64]>,
    /// A bit stands for 2 to the power of this bytes: for the one of them at `sampled`.
    power: u32,
    sampled: u32,
    statistics: Arc<Statistics>,
}

impl ReadAmp {
    /// For a block of `len` bytes, which are counted as read. `bytes_per_bit` is rounded down to a power of two; `salt` decides
    /// which byte of each group is looked at, so that no place in entries is preferred.
    pub fn new(len: usize, bytes_per_bit: u32, salt: u64, statistics: &Arc<Statistics>) -> Self {
        statistics.record(Ticker::ReadAmpTotalReadBytes, len as u64);
        let power = bytes_per_bit.max(1).ilog2();
        let bits = (len >> power) + 1;
        Self {
            bits: (0..bits.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            power,
            sampled: (salt & ((1 << power) - 1)) as u32,
            statistics: Arc::clone(statistics),
        }
    }

    /// Bytes `start..end` are looked at.
    pub fn mark(&self, start: u32, end: u32) {
        let first_at_or_after = |at: u32| {
            let group = (1_u64 << self.power) - 1;
            ((u64::from(at) + group - u64::from(self.sampled)) >> self.power) as usize
        };
        let mut found = 0;
        for bit in first_at_or_after(start)..first_at_or_after(end) {
            let Some(word) = self.bits.get(bit / 64) else { break };
            // Relaxed: the bits publish nothing, and each change of one is seen by one caller.
            let before = word.fetch_or(1 << (bit % 64), Ordering::Relaxed);
            found += u64::from(before >> (bit % 64) & 1 == 0);
        }
        if found > 0 {
            self.statistics.record(Ticker::ReadAmpEstimateUsefulBytes, found << self.power);
        }
    }

    pub fn memory_usage(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_counts_once_and_groups_by_their_sampled_byte() {
        for (bytes_per_bit, salt) in [(1, 0), (2, 1), (7, 3), (32, 0), (32, 31), (32, 17)] {
            let statistics = Arc::new(Statistics::new());
            let useful = || statistics.ticker(Ticker::ReadAmpEstimateUsefulBytes);
            let read = ReadAmp::new(4096, bytes_per_bit, salt, &statistics);
            assert_eq!((useful(), statistics.ticker(Ticker::ReadAmpTotalReadBytes)), (0, 4096));
            read.mark(100, 100);
            assert_eq!(useful(), 0);
            read.mark(64, 128); // Whole groups: exact, whichever byte is sampled.
            assert_eq!(useful(), 64, "{bytes_per_bit}");
            read.mark(64, 128);
            read.mark(70, 90);
            assert_eq!(useful(), 64);
            for at in (0..4096).step_by(16) {
                read.mark(at, at + 16); // Entries that adjoin: nothing twice, nothing left out.
            }
            assert_eq!(useful(), 4096, "{bytes_per_bit} {salt}");
        }
    }
}
