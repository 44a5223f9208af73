//! A table file whose reads are counted and timed.

use ironstone_base::statistics::{Histogram, IoActivity, LevelHistograms, StatsLevel, Ticker};
use ironstone_base::sync::Arc;
use ironstone_base::{Result, Statistics};
use ironstone_vfs::os::RingFile;
use ironstone_vfs::{FileBytes, RandomAccessFile, ReadRequest, stopwatch};
use std::path::Path;
use std::time::Duration;

/// Notes what is read, and how long each read takes, in microseconds. Reads that are done together are timed as one.
pub(crate) struct TimedFile {
    pub file: Box<dyn RandomAccessFile>,
    pub latencies: Option<Arc<LevelHistograms>>,
    pub statistics: Option<Arc<Statistics>>,
    pub level: u32,
    pub is_last_level: bool,
}

impl TimedFile {
    fn timed<T>(&self, read: impl FnOnce() -> T) -> T {
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
