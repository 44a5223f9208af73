//! How fast writers fill memtables, where no flush is under way.

/// Of one column family. Learns from each memtable that was full before anything slowed its writers down, from the end of the flush before it on.
#[derive(Default, Debug)]
pub(crate) struct FillRate {
    /// Since when no memtable waits for its flush, and how many bytes the one that takes writes had then.
    since: Option<Since>,
    /// Bytes per second; 0 before the first memtable was full.
    rate: f64,
}

#[derive(Clone, Copy, Debug)]
struct Since {
    nanos: u64,
    filled: usize,
}

/// So much of a memtable at least says how fast it was filled.
const LEAST_PART: usize = 20;

impl FillRate {
    /// At the time `now`, of the monotonic clock, the memtable that takes writes has `filled` bytes, and the last of those that wait for their
    /// flush `waiting`, if one does.
    pub(crate) fn note(&mut self, now: u64, filled: usize, waiting: Option<usize>) {
        let Some(full) = waiting else {
            self.since.get_or_insert(Since { nanos: now, filled });
            return;
        };
        if let Some(since) = self.since.take()
            && let bytes = full.saturating_sub(since.filled)
            && bytes > full / LEAST_PART
        {
            self.rate = smoothed(self.rate, bytes as u64, now.saturating_sub(since.nanos));
        }
    }

    /// Bytes per second, as lately measured; 0 if that is not known.
    pub(crate) fn bytes_per_second(&self) -> f64 {
        self.rate
    }
}

/// The rate `before`, 0 if there is none yet, with one more measurement.
pub(crate) fn smoothed(before: f64, bytes: u64, nanos: u64) -> f64 {
    let sample = bytes as f64 * 1e9 / nanos.max(1) as f64;
    if before == 0.0 { sample } else { 0.7 * before + 0.3 * sample }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;
    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn what_is_filled_while_nothing_is_flushed_counts() {
        let mut rate = FillRate::default();
        rate.note(5 * SECOND, 0, None);
        rate.note(6 * SECOND, 40 * MIB, None);
        assert_eq!(rate.bytes_per_second(), 0.0);
        rate.note(7 * SECOND, 0, Some(64 * MIB));
        assert_eq!(rate.bytes_per_second(), 32.0 * MIB as f64, "64 MiB in two seconds");
        rate.note(8 * SECOND, 30 * MIB, Some(64 * MIB));
        rate.note(9 * SECOND, 62 * MIB, None);
        rate.note(10 * SECOND, 0, Some(64 * MIB));
        assert_eq!(rate.bytes_per_second(), 32.0 * MIB as f64, "2 MiB say little");
        rate.note(11 * SECOND, 22 * MIB, None);
        rate.note(12 * SECOND, 0, Some(64 * MIB));
        assert_eq!(rate.bytes_per_second().round(), (0.7 * 32.0 + 0.3 * 42.0) * MIB as f64);
    }
}
