//! A table file whose reads are timed.

use ironstone_base::Result;
use ironstone_base::statistics::LevelHistograms;
use ironstone_base::sync::Arc;
use ironstone_vfs::os::RingFile;
use ironstone_vfs::{RandomAccessFile, ReadRequest, stopwatch};
use std::path::Path;

/// Notes how long each read takes, in microseconds. Reads that are done together count as one.
pub(crate) struct TimedFile {
    pub file: Box<dyn RandomAccessFile>,
    pub latencies: Arc<LevelHistograms>,
    pub level: u32,
}

impl RandomAccessFile for TimedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let passed = stopwatch();
        let read = self.file.read_at(offset, buf);
        self.latencies.add(self.level, passed());
        read
    }
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        let passed = stopwatch();
        self.file.read_many(requests);
        self.latencies.add(self.level, passed());
    }
    /// Whoever reads through it times the reads.
    fn ring_file(&self) -> Option<RingFile<'_>> {
        self.file.ring_file()
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
