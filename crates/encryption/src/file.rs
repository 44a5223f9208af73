//! Files whose contents are encrypted.

use crate::stream::{PREFIX, Stream};
use ironstone_base::Result;
use ironstone_base::checksum::crc32c;
use ironstone_base::perf::PerfMetric;
use ironstone_vfs::{
    PerfTimer, RandomAccessFile, RangeSync, ReadRequest, SequentialFile, WritableFile, check_handed_over,
};
use std::path::Path;
use std::time::Duration;

/// Where a place of the contents is in the file.
fn beyond_prefix(offset: u64) -> u64 {
    offset.saturating_add(PREFIX as u64)
}

/// Decrypts what was read at `offset` of the contents.
fn decrypt(stream: &Stream, offset: u64, data: &mut [u8]) {
    let _timer = PerfTimer::start(PerfMetric::DecryptDataNanos);
    stream.apply(offset, data);
}

pub(crate) struct Sequential {
    pub(crate) inner: Box<dyn SequentialFile>,
    /// None: the file ends within its prefix, so it has no contents.
    pub(crate) stream: Option<Stream>,
    pub(crate) at: u64,
}

impl SequentialFile for Sequential {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let Some(stream) = &self.stream else { return Ok(0) };
        let count = self.inner.read(buf)?;
        decrypt(stream, self.at, &mut buf[..count]);
        self.at += count as u64;
        Ok(count)
    }
    fn skip(&mut self, count: u64) -> Result<()> {
        if self.stream.is_none() {
            return Ok(());
        }
        self.inner.skip(count)?;
        self.at = self.at.saturating_add(count);
        Ok(())
    }
    fn path(&self) -> &Path {
        self.inner.path()
    }
}

pub(crate) struct Random {
    pub(crate) inner: Box<dyn RandomAccessFile>,
    pub(crate) stream: Option<Stream>,
}

impl RandomAccessFile for Random {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let Some(stream) = &self.stream else { return Ok(0) };
        let count = self.inner.read_at(beyond_prefix(offset), buf)?;
        decrypt(stream, offset, &mut buf[..count]);
        Ok(count)
    }
    fn read_within(&self, offset: u64, buf: &mut [u8], timeout: Duration) -> Result<usize> {
        let Some(stream) = &self.stream else { return Ok(0) };
        let count = self.inner.read_within(beyond_prefix(offset), buf, timeout)?;
        decrypt(stream, offset, &mut buf[..count]);
        Ok(count)
    }
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        let Some(stream) = &self.stream else {
            requests.iter_mut().for_each(|request| request.result = Ok(0));
            return;
        };
        let offsets: Vec<u64> = requests.iter().map(|request| request.offset).collect();
        requests.iter_mut().for_each(|request| request.offset = beyond_prefix(request.offset));
        self.inner.read_many(requests);
        for (request, offset) in requests.iter_mut().zip(offsets) {
            request.offset = offset;
            if let Ok(count) = request.result {
                decrypt(stream, request.offset, &mut request.buf[..count]);
            }
        }
    }
    fn prefetch(&self, offset: u64, len: u64) -> bool {
        self.inner.prefetch(beyond_prefix(offset), len)
    }
    fn size(&self) -> u64 {
        self.inner.size().saturating_sub(PREFIX as u64)
    }
    fn path(&self) -> &Path {
        self.inner.path()
    }
}

pub(crate) struct Writable {
    pub(crate) inner: Box<dyn WritableFile>,
    pub(crate) stream: Stream,
    /// What is appended, encrypted.
    pub(crate) scratch: Vec<u8>,
}

/// So much is encrypted at a time.
const CHUNK: usize = 1 << 16;

impl Writable {
    /// Leaves `part`, which is to be appended, encrypted in `scratch`.
    fn encrypt(&mut self, part: &[u8]) {
        let _timer = PerfTimer::start(PerfMetric::EncryptDataNanos);
        self.scratch.clear();
        self.scratch.extend_from_slice(part);
        self.stream.apply(self.size(), &mut self.scratch);
    }
}

impl WritableFile for Writable {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        for part in data.chunks(CHUNK) {
            self.encrypt(part);
            self.inner.append(&self.scratch)?;
        }
        Ok(())
    }
    /// What goes on has other bytes, and another checksum.
    fn append_checked(&mut self, data: &[u8], expected: u32) -> Result<()> {
        check_handed_over(self.path(), self.size(), data, expected)?;
        for part in data.chunks(CHUNK) {
            self.encrypt(part);
            self.inner.append_checked(&self.scratch, crc32c(&self.scratch))?;
        }
        Ok(())
    }
    fn flush(&mut self) -> Result<()> {
        self.inner.flush()
    }
    fn sync(&mut self) -> Result<()> {
        self.inner.sync()
    }
    fn size(&self) -> u64 {
        self.inner.size().saturating_sub(PREFIX as u64)
    }
    fn allocate(&mut self, offset: u64, len: u64) -> Result<()> {
        self.inner.allocate(beyond_prefix(offset), len)
    }
    /// Zeros are contents as others: they are appended.
    fn truncate(&mut self, size: u64) -> Result<()> {
        let mut missing = size.saturating_sub(self.size());
        if missing == 0 {
            return self.inner.truncate(beyond_prefix(size));
        }
        while missing > 0 {
            let now = missing.min(CHUNK as u64);
            self.append(&vec![0; now as usize])?;
            missing -= now;
        }
        Ok(())
    }
    fn close(&mut self) -> Result<()> {
        self.inner.close()
    }
    fn take_range_sync(&mut self) -> Option<RangeSync> {
        let range = self.inner.take_range_sync()?;
        Some(RangeSync { offset: range.offset.saturating_sub(PREFIX as u64), ..range })
    }
    fn path(&self) -> &Path {
        self.inner.path()
    }
}
