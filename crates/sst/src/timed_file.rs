//! A table file whose reads are counted and timed.

use crate::disk_share::DiskShare;
use ironstone_base::statistics::{Histogram, IoActivity, LevelHistograms, StatsLevel, Ticker};
use ironstone_base::sync::Arc;
use ironstone_base::{Result, Statistics};
use ironstone_vfs::os::RingFile;
use ironstone_vfs::{Clock, FileBytes, RandomAccessFile, ReadRequest, stopwatch};
use std::path::Path;
use std::time::Duration;

/// Notes what is read, and how long each read takes, in microseconds. Reads that are done together are timed as one.
pub(crate) struct TimedFile {
    pub file: Box<dyn RandomAccessFile>,
    /// Where waits for the disk are noted while compactions run, but for those of background work.
    pub disk_share: Option<Arc<DiskShare>>,
    pub clock: Arc<dyn Clock>,
    pub latencies: Option<Arc<LevelHistograms>>,
    pub statistics: Option<Arc<Statistics>>,
    pub level: u32,
    pub is_last_level: bool,
}

impl TimedFile {
    fn timed<T>(&self, read: impl FnOnce() -> T) -> T {
        match &self.disk_share {
            Some(share) if share.is_watched() => self.shared(share, || self.measured(read)),
            _ => self.measured(read),
        }
    }

    #[cold]
    fn shared<T>(&self, share: &DiskShare, read: impl FnOnce() -> T) -> T {
        if matches!(IoActivity::current(), IoActivity::Compaction | IoActivity::Flush) {
            return read();
        }
        let start = self.clock.monotonic_nanos();
        let result = read();
        share.note_read(self.clock.monotonic_nanos().saturating_sub(start));
        result
    }

    fn measured<T>(&self, read: impl FnOnce() -> T) -> T {
        let statistics = self.statistics.as_deref();
        if self.latencies.is_none() && !statistics.is_some_and(Statistics::timers_enabled) {
            return read();
        }
        let passed = stopwatch();
        let result = read();
        self.note_time(passed());
        result
    }

    fn note_time(&self, micros: u64) {
        if let Some(latencies) = &self.latencies {
            latencies.add(self.level, micros);
        }
        if let Some(statistics) = self.statistics.as_deref() {
            statistics.measure_time(Histogram::SstReadMicros, micros);
            match IoActivity::current().reads() {
                Some((_, true)) if !statistics.enabled(StatsLevel::ExceptTimeForMutex) => {}
                Some((histogram, _)) => statistics.measure_time(histogram, micros),
                None => {}
            }
        }
    }

    fn count(&self, read: &Result<usize>) {
        if let (Some(statistics), Ok(bytes)) = (&self.statistics, read) {
            let (count, in_bytes) = match self.is_last_level {
                true => (Ticker::LastLevelReadCount, Ticker::LastLevelReadBytes),
                false => (Ticker::NonLastLevelReadCount, Ticker::NonLastLevelReadBytes),
            };
            statistics.record(count, 1);
            statistics.record(in_bytes, *bytes as u64);
        }
    }
}

impl RandomAccessFile for TimedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let read = self.timed(|| self.file.read_at(offset, buf));
        self.count(&read);
        read
    }
    fn read_within(&self, offset: u64, buf: &mut [u8], timeout: Duration) -> Result<usize> {
        let read = self.timed(|| self.file.read_within(offset, buf, timeout));
        self.count(&read);
        read
    }
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        self.timed(|| self.file.read_many(requests));
        if let Some(statistics) = &self.statistics {
            statistics.measure(Histogram::MultigetIoBatchSize, requests.len() as u64);
        }
        requests.iter().for_each(|request| self.count(&request.result));
    }
    fn was_read(&self, micros: u64, results: &[Result<usize>]) {
        if let Some(share) = self.disk_share.as_ref().filter(|share| share.is_watched()) {
            share.note_read(micros * 1000);
        }
        self.note_time(micros);
        if let Some(statistics) = &self.statistics {
            statistics.measure(Histogram::MultigetIoBatchSize, results.len() as u64);
        }
        // What is empty is read again by itself.
        results.iter().filter(|result| !matches!(result, Ok(0))).for_each(|result| self.count(result));
    }
    fn ring_file(&self) -> Option<RingFile<'_>> {
        self.file.ring_file()
    }
    fn mapped(&self) -> Option<FileBytes> {
        self.file.mapped()
    }
    fn prefetch(&self, offset: u64, len: u64) -> bool {
        self.file.prefetch(offset, len)
    }
    fn size(&self) -> u64 {
        self.file.size()
    }
    fn path(&self) -> &Path {
        self.file.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk_share::CompactionTurns;
    use ironstone_vfs::ManualClock;

    /// A file each read of which takes a millisecond.
    struct Slow(Arc<ManualClock>);

    impl RandomAccessFile for Slow {
        fn read_at(&self, _offset: u64, buf: &mut [u8]) -> Result<usize> {
            self.0.advance(Duration::from_millis(1));
            Ok(buf.len())
        }
        fn size(&self) -> u64 {
            100
        }
        fn path(&self) -> &Path {
            Path::new("/000009.sst")
        }
    }

    #[test]
    fn waits_of_readers_are_noted_while_compactions_run_and_those_of_background_work_are_not() {
        let (share, clock) = (Arc::new(DiskShare::default()), Arc::new(ManualClock::new(0)));
        let file = TimedFile {
            file: Box::new(Slow(clock.clone())),
            disk_share: Some(share.clone()),
            clock: clock.clone(),
            latencies: None,
            statistics: None,
            level: 0,
            is_last_level: false,
        };
        let read = || assert_eq!(file.read_at(0, &mut [0; 10]), Ok(10));
        let shared: Arc<dyn Clock> = clock.clone();
        read(); // Before the compaction.
        let mut turns = CompactionTurns::start(&share, &shared);
        for activity in [IoActivity::Compaction, IoActivity::Flush] {
            let _working = activity.begin();
            (0..10).for_each(|_| read());
        }
        turns.rest();
        assert_eq!(turns.rested(), 0);
        let noted: [&dyn Fn(); 4] = [
            &read,
            &|| drop(file.read_within(0, &mut [0; 10], Duration::from_secs(1))),
            &|| file.read_many(&mut [ReadRequest { offset: 0, buf: &mut [0; 10], result: Ok(0) }]),
            &|| {
                clock.advance(Duration::from_millis(1));
                file.was_read(1000, &[Ok(10)]);
            },
        ];
        for read in noted {
            let mut turns = CompactionTurns::start(&share, &shared);
            read();
            turns.rest();
            assert_eq!(turns.rested(), 200_000);
        }
    }
}
