//! Reading ahead of an iterator.

use crate::prefetch;
use ironstone_base::perf::{self, PerfMetric};
use ironstone_base::statistics::{Histogram, IoActivity, Ticker};
use ironstone_base::sync::Arc;
use ironstone_base::{Result, Statistics};
use ironstone_vfs::{PerfCpuTimer, PerfTimer, RandomAccessFile};

/// Reads blocks one after another; from some point on more than was asked for.
///
/// With a fixed size every read takes that much. Otherwise reading ahead begins after a few blocks that
/// follow each other, small, and doubles with each read; a jump starts it over.
pub(crate) struct Readahead {
    plan: Plan,
    /// The last block: one that begins where it ends, or less than a [`PAGE`] behind, continues the run, as does one that
    /// ends where it begins or so little before.
    last_at: u64,
    last_end: u64,
    goes_back: bool,
    run_len: u64,
    bytes: Vec<u8>,
    bytes_at: u64,
    /// Nothing is wanted from here on.
    limit: u64,
    /// How far the system was told to read.
    prefetched: u64,
    counts: Option<Counts>,
}

/// Where it is counted what reading ahead is good for.
struct Counts {
    statistics: Arc<Statistics>,
    use_of: Use,
}

/// Whose reads these are: RocksDB counts different things of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Scan,
    Compaction,
    Other,
}

/// Read at a time where the system reads ahead: a compaction of many files needs no more of each in memory of its own, and what it
/// has of all of them is to stay in the processor's cache until it is merged.
const CHUNK: usize = 64 << 10;
/// So much of the next block the processor is asked for.
const MOST_PREFETCHED: usize = 8 << 10;
/// Between two blocks that follow each other there is less: those that keep to pages have a gap before the next one.
const PAGE: u64 = 4096;

#[derive(Clone, Copy)]
enum Plan {
    Fixed(usize),
    Growing { next: usize, initial: usize, max: usize, after_reads: u64 },
}

impl Readahead {
    pub fn fixed(size: usize, limit: u64) -> Self {
        Self::new(Plan::Fixed(size), limit)
    }
    pub fn growing(initial: usize, max: usize, after_reads: u64, limit: u64) -> Self {
        let initial = initial.min(max);
        Self::new(Plan::Growing { next: initial, initial, max, after_reads }, limit)
    }
    fn new(plan: Plan, limit: u64) -> Self {
        Self {
            plan,
            last_at: u64::MAX,
            last_end: u64::MAX,
            goes_back: false,
            run_len: 0,
            bytes: Vec::new(),
            bytes_at: 0,
            limit,
            prefetched: 0,
            counts: None,
        }
    }

    /// Counts in `statistics`; `is_scan`: for an iterator of a user.
    pub fn counted(mut self, statistics: &Arc<Statistics>, is_scan: bool) -> Self {
        let use_of = match is_scan {
            true => Use::Scan,
            false if IoActivity::current() == IoActivity::Compaction => Use::Compaction,
            false => Use::Other,
        };
        self.counts = Some(Counts { statistics: Arc::clone(statistics), use_of });
        self
    }

    /// Does not read ahead beyond `limit`.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Takes note of a block that was found in the cache.
    pub fn pass(&mut self, offset: u64, len: usize) {
        self.count(offset, len);
    }

    fn count(&mut self, offset: u64, len: usize) {
        let end = offset + len as u64;
        let follows = |before: u64, after: u64| after.checked_sub(before).is_some_and(|gap| gap < PAGE);
        let goes_back = follows(end, self.last_at);
        let continues = if self.goes_back { goes_back } else { follows(self.last_end, offset) };
        (self.last_at, self.last_end, self.goes_back) = (offset, end, goes_back);
        self.run_len = if continues { self.run_len + 1 } else { 1 };
        if let (false, Plan::Growing { next, initial, .. }) = (continues, &mut self.plan) {
            *next = *initial;
        }
    }

    /// The `len` bytes at `offset`, if they were read ahead or it is time to do so; less than `len` at
    /// the end of the file. `None`: the caller reads just these.
    pub fn read(&mut self, file: &dyn RandomAccessFile, offset: u64, len: usize) -> Result<Option<&[u8]>> {
        self.count(offset, len);
        if self.buffered(offset, len).is_some() {
            self.count_hit(len);
        } else {
            let Some(more) = self.next_size() else {
                return Ok(None);
            };
            self.fill(file, offset, len, more)?;
        }
        let read = self.buffered(offset, len);
        if read.is_some() && !self.goes_back {
            // Whoever merges many files comes back to this one when its next block is in no cache of the processor any more.
            let next = (offset - self.bytes_at) as usize + len;
            prefetch::prefetch(&self.bytes[next..], len.min(MOST_PREFETCHED).min(self.bytes.len() - next));
        }
        Ok(read)
    }

    fn count_hit(&self, len: usize) {
        if let Some(Counts { statistics, use_of: Use::Scan }) = &self.counts {
            statistics.record(Ticker::PrefetchHits, 1);
            statistics.record(Ticker::PrefetchBytesUseful, len as u64);
        }
    }

    /// Bytes in memory that nobody came to.
    fn unused(&self) -> u64 {
        let end = self.bytes_at + self.bytes.len() as u64;
        match self.goes_back {
            true => self.last_at.clamp(self.bytes_at, end) - self.bytes_at,
            false => end - self.last_end.clamp(self.bytes_at, end),
        }
    }

    fn buffered(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.bytes_at)?).ok()?;
        self.bytes.get(start..start.checked_add(len)?)
    }

    fn next_size(&mut self) -> Option<usize> {
        match &mut self.plan {
            Plan::Fixed(size) => Some(*size),
            Plan::Growing { max: 0, .. } => None,
            Plan::Growing { after_reads, .. } if self.run_len <= *after_reads => None,
            Plan::Growing { next, max, .. } => {
                let size = *next;
                *next = next.saturating_mul(2).min(*max);
                Some(size)
            }
        }
    }

    fn fill(&mut self, file: &dyn RandomAccessFile, offset: u64, len: usize, more: usize) -> Result<()> {
        let plan = self.plan;
        let wanted = match plan {
            Plan::Fixed(size) if !self.goes_back && self.prefetch(file, offset, size as u64) => {
                size.min(CHUNK).max(len)
            }
            Plan::Fixed(size) => size.max(len),
            Plan::Growing { .. } => len.saturating_add(more),
        };
        let end = offset + len as u64;
        let (start, end) = match self.goes_back {
            true => (end.saturating_sub(wanted as u64), end),
            false => (offset, (offset + wanted as u64).min(self.limit).max(end)),
        };
        if let Some(Counts { statistics, use_of }) = &self.counts {
            let read = end - start;
            match use_of {
                Use::Scan => {
                    statistics.record(Ticker::PrefetchBytes, read);
                    if !self.goes_back && offset + wanted as u64 > end {
                        statistics.record(Ticker::ReadaheadTrimmed, 1);
                    }
                }
                Use::Compaction => statistics.measure(Histogram::CompactionPrefetchBytes, read),
                Use::Other => {}
            }
        }
        self.bytes.resize((end - start) as usize, 0);
        self.bytes_at = start;
        let timer =
            (PerfTimer::start(PerfMetric::BlockReadTime), PerfCpuTimer::start(PerfMetric::BlockReadCpuTime));
        let count = file.read_at(start, &mut self.bytes).inspect_err(|_| self.bytes.clear())?;
        drop(timer);
        let read = count as u64;
        perf::count_all([
            (PerfMetric::BlockReadCount, 1),
            (PerfMetric::BlockReadByte, read),
            (PerfMetric::DataBlockReadByte, read),
        ]);
        self.bytes.truncate(count);
        Ok(())
    }

    /// Has the system read `size` bytes and more from `offset` on, while the caller works on what it has.
    fn prefetch(&mut self, file: &dyn RandomAccessFile, offset: u64, size: u64) -> bool {
        let ahead = self.prefetched.saturating_sub(offset);
        if (size..=2 * size).contains(&ahead) || self.prefetched == self.limit && ahead > 0 {
            return true;
        }
        let from = if ahead <= 2 * size { offset.max(self.prefetched) } else { offset };
        let to = offset.saturating_add(2 * size).min(self.limit);
        let kept = to > from && file.prefetch(from, to - from);
        self.prefetched = if kept { to } else { 0 };
        kept
    }
}

impl Drop for Readahead {
    fn drop(&mut self) {
        if let Some(Counts { statistics, .. }) = self.counts.as_ref().filter(|_| !self.bytes.is_empty()) {
            statistics.measure(Histogram::PrefetchedBytesDiscarded, self.unused());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironstone_base::sync::Mutex;
    use std::path::Path;

    /// A file of bytes that count up, which notes what is read; 1 << 32 is added to what is prefetched,
    /// if it does that.
    struct Counting(Mutex<Vec<(u64, usize)>>, bool);

    impl RandomAccessFile for Counting {
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
            self.0.lock().push((offset, buf.len()));
            buf.iter_mut().zip(offset..).for_each(|(byte, at)| *byte = at as u8);
            Ok(buf.len())
        }
        fn prefetch(&self, offset: u64, len: u64) -> bool {
            if self.1 {
                self.0.lock().push(((1 << 32) + offset, len as usize));
            }
            self.1
        }
        fn size(&self) -> u64 {
            1 << 20
        }
        fn path(&self) -> &Path {
            Path::new("/counting")
        }
    }

    /// Reads blocks of 100 bytes at `offsets` and answers what was read from the file for it.
    fn reads(readahead: Readahead, offsets: impl Iterator<Item = u64>) -> Vec<(u64, usize)> {
        reads_of(Counting(Mutex::new(Vec::new()), false), readahead, offsets)
    }
    fn reads_of(
        file: Counting,
        mut readahead: Readahead,
        offsets: impl Iterator<Item = u64>,
    ) -> Vec<(u64, usize)> {
        for offset in offsets {
            match readahead.read(&file, offset, 100).unwrap() {
                Some(bytes) => {
                    let expected: Vec<u8> = (offset..offset + 100).map(|at| at as u8).collect();
                    assert_eq!(bytes, expected);
                }
                None => file.0.lock().push((offset, 100)),
            }
        }
        file.0.into_inner()
    }

    #[test]
    fn reading_ahead_starts_late_and_grows() {
        let readahead = || Readahead::growing(150, 400, 2, 100_000);
        let forward = reads(readahead(), (0..14).map(|i| i * 100));
        assert_eq!(forward, [(0, 100), (100, 100), (200, 250), (400, 400), (800, 500), (1300, 500)]);
        let jumps = reads(readahead(), (0..5).map(|i| i * (100 + PAGE)));
        assert!(jumps.iter().all(|&(_, len)| len == 100));
    }

    #[test]
    fn blocks_that_keep_to_pages_follow_each_other() {
        let readahead = |after| Readahead::growing(500, 500, after, 1 << 20);
        for stride in [140, 4096] {
            let forward = reads(readahead(2), (0..9).map(|i| i * stride));
            assert_eq!(forward[..3], [(0, 100), (stride, 100), (2 * stride, 600)]);
            let back = reads(readahead(1), (0..9).rev().map(|i| 9000 + i * stride));
            let end = 9000 + 8 * stride;
            assert_eq!(back[..3], [(end, 100), (end - stride, 100), (end - 2 * stride - 500, 600)]);
        }
    }

    #[test]
    fn walking_back_reads_what_lies_before() {
        let back = reads(Readahead::growing(150, 400, 1, 100_000), (0..10).rev().map(|i| 5000 + i * 100));
        assert_eq!(back, [(5900, 100), (5800, 100), (5550, 250), (5200, 400), (4700, 500)]);
        let fixed = reads(Readahead::fixed(1000, 100_000), (0..30).rev().map(|i| 5000 + i * 100));
        assert_eq!(fixed, [(7900, 1000), (6900, 1000), (5900, 1000), (4900, 1000)]);
    }

    #[test]
    fn where_the_system_reads_ahead_little_is_read_at_a_time() {
        let file = Counting(Mutex::new(Vec::new()), true);
        let size = 2 * CHUNK as u64;
        let found =
            reads_of(file, Readahead::fixed(size as usize, 7 * CHUNK as u64), (0..15_000).map(|i| i * 100));
        let (told, read): (Vec<_>, Vec<_>) = found.into_iter().partition(|(at, _)| *at >= 1 << 32);
        assert!(read.iter().all(|&(_, len)| len <= CHUNK), "{read:?}");
        assert!(told.len() <= 6, "{told:?}");
        let adjoin = |pair: &[(u64, usize)]| pair[0].0 + pair[0].1 as u64 == pair[1].0;
        assert!(told.windows(2).all(adjoin), "all of it, once: {told:?}");
    }

    #[test]
    fn it_is_counted_what_reading_ahead_is_good_for() {
        let statistics = Arc::new(Statistics::new());
        let count = |ticker| statistics.ticker(ticker);
        let scan = Readahead::fixed(1000, 1250).counted(&statistics, true);
        reads(scan, (0..11).map(|i| i * 100));
        // Ten blocks of the first thousand bytes, one of the 250 that are left.
        assert_eq!((count(Ticker::PrefetchHits), count(Ticker::PrefetchBytesUseful)), (9, 900));
        assert_eq!((count(Ticker::PrefetchBytes), count(Ticker::ReadaheadTrimmed)), (1250, 1));
        let discarded = statistics.histogram(Histogram::PrefetchedBytesDiscarded);
        assert_eq!((discarded.count, discarded.sum), (1, 150));

        let _compacting = IoActivity::Compaction.begin();
        let compaction = Readahead::fixed(1000, 1000).counted(&statistics, false);
        reads(compaction, (0..10).map(|i| i * 100));
        let prefetched = statistics.histogram(Histogram::CompactionPrefetchBytes);
        assert_eq!((prefetched.count, prefetched.sum), (1, 1000));
        assert_eq!(count(Ticker::PrefetchBytes), 1250, "of scans only");
        assert_eq!(statistics.histogram(Histogram::PrefetchedBytesDiscarded).sum, 150);
    }

    #[test]
    fn nothing_is_read_beyond_the_limit() {
        let fixed = reads(Readahead::fixed(1000, 1250), (0..14).map(|i| i * 100));
        assert_eq!(fixed, [(0, 1000), (1000, 250), (1200, 100), (1300, 100)]);
    }
}
