//! Reading the operating system's files.

use super::aligned::{AlignedBuffer, PAGE, is_aligned, page_floor};
use crate::file::*;
use crate::timer::{PerfCpuTimer, PerfTimer};
use ironstone_base::perf::{self, IoMetric};
use ironstone_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use ironstone_base::{Error, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{Advice, OFlags};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv, preadv2};
use std::cell::RefCell;
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

/// Reads until `buf` is full or the file ends.
#[inline]
fn read_fully(fd: &OwnedFd, path: &Path, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let _timers = (PerfTimer::io(IoMetric::ReadNanos), PerfCpuTimer::io(IoMetric::CpuReadNanos));
    let mut done = 0;
    while done < buf.len() {
        match pread(fd, &mut buf[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(read_failed(path, offset, errno)),
        }
    }
    perf::count_io(IoMetric::BytesRead, done as u64);
    Ok(done)
}

#[cold]
fn read_failed(path: &Path, offset: u64, errno: Errno) -> Error {
    failed(path, &format!("read at {offset} of"), errno)
}

/// A file read front to back through the page cache.
pub(super) struct OsSequentialFile {
    fd: OwnedFd,
    path: PathBuf,
    offset: u64,
}

impl OsSequentialFile {
    pub(super) fn new(fd: OwnedFd, path: &Path) -> Self {
        Self { fd, path: path.to_owned(), offset: 0 }
    }
}

impl SequentialFile for OsSequentialFile {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        if past_any_end(self.offset, buf) {
            return Ok(0);
        }
        let count = read_fully(&self.fd, &self.path, self.offset, buf)?;
        self.offset += count as u64;
        Ok(count)
    }
    fn skip(&mut self, count: u64) -> Result<()> {
        // Past the end is allowed, as with `lseek`; past what an offset can say, reads find the end.
        self.offset = self.offset.saturating_add(count).min(i64::MAX as u64);
        Ok(())
    }
    fn path(&self) -> &Path {
        &self.path
    }
}

/// A file read at any place through the page cache.
pub(super) struct OsRandomAccessFile {
    fd: OwnedFd,
    path: PathBuf,
    size: u64,
    /// `size` is what somebody said, and nobody has read up to there. Relaxed: it is looked at once too often at worst.
    is_unproven: AtomicBool,
    advice: Advice,
    /// The descriptor may wait, and the system has the advice. Relaxed: it is set up once too often at worst.
    is_set_up: AtomicBool,
}

impl OsRandomAccessFile {
    /// `fd` was opened without waiting. `size` is what it has, or what it is said to have.
    pub(super) fn new(fd: OwnedFd, path: &Path, size: u64, is_proven: bool, advice: Advice) -> Self {
        let (is_unproven, is_set_up) = (AtomicBool::new(!is_proven), AtomicBool::new(false));
        Self { fd, path: path.to_owned(), size, is_unproven, advice, is_set_up }
    }

    /// Reads the end of a file whose size was only said, and one byte that must not be there.
    #[cold]
    fn read_unproven_end(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (wanted, mut more) = (buf.len(), [0]);
        let timers = (PerfTimer::io(IoMetric::ReadNanos), PerfCpuTimer::io(IoMetric::CpuReadNanos));
        let read = preadv(&self.fd, &mut [IoSliceMut::new(buf), IoSliceMut::new(&mut more)], offset);
        drop(timers);
        if read == Ok(wanted) && offset + wanted as u64 == self.size {
            self.is_unproven.store(false, Relaxed);
            perf::count_io(IoMetric::BytesRead, wanted as u64);
            return Ok(wanted);
        }
        // It is shorter, it is longer, the call was interrupted, or more was asked for than there is to be.
        if read_fully(&self.fd, &self.path, self.size, &mut more)? > 0 {
            let what = format!("the file should be {} bytes long, but goes on", self.size);
            return Err(Error::corruption_at(&self.path, self.size, what));
        }
        read_fully(&self.fd, &self.path, offset, buf)
    }

    /// Whoever opens many tables reads their ends, and spares two system calls for each that is not read otherwise.
    #[inline]
    fn set_up(&self) {
        if !self.is_set_up.load(Relaxed) {
            self.set_up_now();
        }
    }

    #[cold]
    fn set_up_now(&self) {
        let _ = super::let_wait(&self.fd, OFlags::empty()); // Who reads in a ring and must not wait is told so, and reads alone.
        let _ = rustix::fs::fadvise(&self.fd, 0, None, self.advice); // A hint: where it is not understood, reading works all the same.
        self.is_set_up.store(true, Relaxed);
    }
}

impl RandomAccessFile for OsRandomAccessFile {
    #[inline]
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if past_any_end(offset, buf) {
            return Ok(0);
        }
        if offset + (buf.len() as u64) < self.size {
            self.set_up();
        } else if self.is_unproven.load(Relaxed) {
            return self.read_unproven_end(offset, buf);
        }
        read_fully(&self.fd, &self.path, offset, buf)
    }

    /// What is in the page cache is copied; the device then fetches all the rest at once.
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        if let [only] = requests {
            only.result = self.read_at(only.offset, only.buf);
            return;
        }
        self.set_up();
        let mut missing = Vec::new();
        for (at, request) in requests.iter_mut().enumerate() {
            match self.read_cached(request.offset, request.buf) {
                Some(count) => request.result = Ok(count),
                None => missing.push(at),
            }
        }
        if missing.len() > 1 {
            // Starts the reads and does not wait for them.
            for &at in &missing {
                self.prefetch(requests[at].offset, requests[at].buf.len() as u64);
            }
        }
        for at in missing {
            let request = &mut requests[at];
            request.result = self.read_at(request.offset, request.buf);
        }
    }

    fn ring_file(&self) -> Option<super::RingFile<'_>> {
        self.set_up();
        super::RingFile::new(&self.fd, false)
    }

    fn prefetch(&self, offset: u64, len: u64) -> bool {
        // A length of 0 would mean "to the end". Failures are not reported: it is a hint.
        if let Some(len) = NonZeroU64::new(len) {
            let _ = rustix::fs::fadvise(&self.fd, offset, Some(len), Advice::WillNeed);
        }
        true
    }
    fn size(&self) -> u64 {
        self.size
    }
    fn path(&self) -> &Path {
        &self.path
    }
}

impl OsRandomAccessFile {
    /// Fills `buf` if that needs no waiting. `None` also for what needs a closer look: the end of
    /// the file, an error, a file system that cannot tell.
    fn read_cached(&self, offset: u64, buf: &mut [u8]) -> Option<usize> {
        let wanted = buf.len();
        let _timers = (PerfTimer::io(IoMetric::ReadNanos), PerfCpuTimer::io(IoMetric::CpuReadNanos));
        let read = preadv2(&self.fd, &mut [IoSliceMut::new(buf)], offset, ReadWriteFlags::NOWAIT);
        let read = read.ok().filter(|&count| count == wanted);
        perf::count_io(IoMetric::BytesRead, read.unwrap_or(0) as u64);
        read
    }
}

/// Whether `offset` (perhaps out of a damaged file) is more than the system's signed offsets can
/// say. There is no file that long, so such a read finds the end, and not an error.
#[inline]
fn past_any_end(offset: u64, buf: &[u8]) -> bool {
    offset.checked_add(buf.len() as u64).is_none_or(|end| end > i64::MAX as u64 - PAGE as u64)
}

/// A file read at any place past the page cache.
pub(super) struct DirectRandomAccessFile {
    fd: OwnedFd,
    path: PathBuf,
    size: u64,
}

/// A thread keeps a bounce buffer up to this size; larger ones are freed after use.
const KEPT_BOUNCE_BYTES: usize = 1 << 20;

thread_local! {
    static BOUNCE: RefCell<AlignedBuffer> = RefCell::new(AlignedBuffer::new(0));
}

impl DirectRandomAccessFile {
    pub(super) fn new(fd: OwnedFd, path: &Path, size: u64) -> Self {
        Self { fd, path: path.to_owned(), size }
    }

    /// Reads whole pages into aligned memory, until it is full or the file ends.
    fn read_pages(&self, offset: u64, pages: &mut [u8]) -> Result<usize> {
        let _timers = (PerfTimer::io(IoMetric::ReadNanos), PerfCpuTimer::io(IoMetric::CpuReadNanos));
        let mut done = 0;
        // The file ends within a page, so a count that is no whole number of pages was the last;
        // to read on from there would be unaligned.
        while done < pages.len() && done % PAGE == 0 {
            match pread(&self.fd, &mut pages[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(read_failed(&self.path, offset, errno)),
            }
        }
        perf::count_io(IoMetric::BytesRead, done as u64);
        Ok(done)
    }

    fn read_through(&self, bounce: &mut AlignedBuffer, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let first = page_floor(offset);
        let before = (offset - first) as usize;
        let covered = (before + buf.len()).next_multiple_of(PAGE);
        let read = self.read_pages(first, &mut bounce.as_mut_slice()[..covered])?;
        let count = read.saturating_sub(before).min(buf.len());
        buf[..count].copy_from_slice(&bounce.as_slice()[before..before + count]);
        Ok(count)
    }
}

impl RandomAccessFile for DirectRandomAccessFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if buf.is_empty() || past_any_end(offset, buf) {
            return Ok(0);
        }
        if is_aligned(buf, offset) {
            return self.read_pages(offset, buf);
        }
        let needed = buf.len() + 2 * PAGE;
        if needed > KEPT_BOUNCE_BYTES {
            return self.read_through(&mut AlignedBuffer::new(needed), offset, buf);
        }
        BOUNCE.with_borrow_mut(|bounce| {
            if bounce.capacity() < needed {
                *bounce = AlignedBuffer::new(needed.next_power_of_two());
            }
            self.read_through(bounce, offset, buf)
        })
    }
    fn ring_file(&self) -> Option<super::RingFile<'_>> {
        super::RingFile::new(&self.fd, true)
    }
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        match self.ring_file() {
            Some(file) => super::read_together(&vec![file; requests.len()], requests),
            None => requests.iter_mut().for_each(|request| request.result = Ok(0)),
        }
        requests.iter_mut().for_each(|request| request.complete(self));
    }
    fn size(&self) -> u64 {
        self.size
    }
    fn path(&self) -> &Path {
        &self.path
    }
}
