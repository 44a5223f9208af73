//! Reads that go to the device together, through io_uring.
//!
//! # Safety argument
//! 1. The kernel writes only into a ring's `slab`: heap memory that never moves, and that is leaked
//!    rather than freed while a read into it may be under way ([`Ring::drop`]).
//! 2. While reads are under way nothing of ours refers to the slab: `complete` takes its address
//!    first and touches it again only after the last completion; if it gives up before, the ring is
//!    never used again.
//! 3. Every read lies inside the slab: `Wave::add` hands out disjoint ranges below its capacity.
//! 4. The descriptors are borrowed until all reads were submitted; from then on the kernel keeps the
//!    files open itself. What was not submitted dies with the ring.
#![allow(unsafe_code)]

use super::aligned::{AlignedBuffer, PAGE, page_floor};
use crate::file::ReadRequest;
use crate::timer::{PerfCpuTimer, PerfTimer};
use io_uring::{IoUring, opcode, types};
use ironstone_base::perf::{self, IoMetric};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::cell::RefCell;
use std::io;
use std::mem::ManuallyDrop;

/// The most reads that are under way at once, per thread.
const DEPTH: usize = 64;
/// The most bytes that are under way at once, per thread.
const SLAB_BYTES: usize = 1 << 20;
/// Larger reads keep the device busy by themselves.
const LARGEST: usize = SLAB_BYTES / 4;

/// A file whose reads can go out beside those of others.
#[derive(Clone, Copy, Debug)]
pub struct RingFile<'a> {
    fd: BorrowedFd<'a>,
    /// It is read past the page cache, in whole pages.
    is_direct: bool,
}

impl<'a> RingFile<'a> {
    pub(super) fn new(fd: &'a OwnedFd, is_direct: bool) -> Option<Self> {
        Some(Self { fd: fd.as_fd(), is_direct })
    }
}

/// A read into a part of the slab, for the request of this number.
struct SlabRead {
    request: usize,
    fd: RawFd,
    offset: u64,
    slab_at: usize,
    len: usize,
    /// Bytes read; negative for an error.
    result: i32,
}

/// The reads that go out together.
#[derive(Default)]
struct Wave {
    reads: Vec<SlabRead>,
    used: usize,
}

impl Wave {
    /// `false` if there is no more room.
    fn add(&mut self, request: usize, fd: RawFd, (offset, len): (u64, usize)) -> bool {
        if self.reads.len() == DEPTH || self.used + len > SLAB_BYTES {
            return false;
        }
        self.reads.push(SlabRead { request, fd, offset, slab_at: self.used, len, result: 0 });
        self.used += len.next_multiple_of(PAGE);
        true
    }
}

struct Ring {
    ring: IoUring,
    slab: ManuallyDrop<AlignedBuffer>,
    /// Whether the kernel may still write to the slab.
    busy: bool,
}

impl Drop for Ring {
    fn drop(&mut self) {
        if !self.busy {
            // SAFETY: no read is under way (1), and nobody uses it after this.
            unsafe { ManuallyDrop::drop(&mut self.slab) }
        }
    }
}

thread_local! {
    /// `None` where the kernel has no io_uring, forbids it, or let it fail.
    static RING: RefCell<Option<Ring>> = RefCell::new(Ring::new().ok());
}

impl Ring {
    fn new() -> io::Result<Self> {
        let ring = IoUring::new(DEPTH as u32)?;
        Ok(Self { ring, slab: ManuallyDrop::new(AlignedBuffer::new(SLAB_BYTES)), busy: false })
    }

    /// Does all reads of `wave`. After an error the ring must not be used again.
    fn complete(&mut self, wave: &mut Wave) -> io::Result<()> {
        let slab = self.slab.as_mut_slice().as_mut_ptr();
        self.busy = true;
        for (at, read) in wave.reads.iter().enumerate() {
            assert!(read.slab_at + read.len <= SLAB_BYTES);
            // SAFETY: inside the slab (3).
            let to = unsafe { slab.add(read.slab_at) };
            let read = opcode::Read::new(types::Fd(read.fd), to, read.len as u32).offset(read.offset);
            // SAFETY: the memory outlives the read (1) and is not touched meanwhile (2); the
            // descriptor is valid until submission (4).
            let pushed = unsafe { self.ring.submission().push(&read.build().user_data(at as u64)) };
            pushed.map_err(|_| io::Error::other("more reads than the ring has room for"))?;
        }
        let mut left = wave.reads.len();
        while left > 0 {
            match self.ring.submit_and_wait(left) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            for done in self.ring.completion() {
                wave.reads[done.user_data() as usize].result = done.result();
                left -= 1;
            }
        }
        self.busy = false;
        Ok(())
    }
}

/// Does what it can of `requests`, each of the file at its place in `files`, and sets their results. The others
/// get a count of 0, and so does what failed or ended early: the caller reads those again, one by one.
///
/// # Panics
/// If there are not as many files as requests.
pub fn read_together(files: &[RingFile<'_>], requests: &mut [ReadRequest<'_>]) {
    assert_eq!(files.len(), requests.len());
    requests.iter_mut().for_each(|request| request.result = Ok(0));
    if requests.len() < 2 {
        return;
    }
    RING.with_borrow_mut(|ring| {
        let mut next = 0;
        while next < requests.len() {
            let Some(usable) = ring else { return };
            let mut wave = Wave::default();
            next = fill(&mut wave, files, requests, next);
            let timers = (PerfTimer::io(IoMetric::ReadNanos), PerfCpuTimer::io(IoMetric::CpuReadNanos));
            if usable.complete(&mut wave).is_err() {
                *ring = None;
                return;
            }
            drop(timers);
            let read = wave.reads.iter().map(|read| u64::try_from(read.result).unwrap_or(0)).sum();
            perf::count_io(IoMetric::BytesRead, read);
            copy_out(&wave, usable.slab.as_slice(), requests);
        }
    });
}

/// Puts requests from number `next` on into `wave`, until it is full. Returns the first left over.
fn fill(wave: &mut Wave, files: &[RingFile<'_>], requests: &[ReadRequest<'_>], next: usize) -> usize {
    for (number, (file, request)) in files.iter().zip(requests).enumerate().skip(next) {
        let Some(range) = range(*file, request) else { continue };
        if !wave.add(number, file.fd.as_raw_fd(), range) {
            return number;
        }
    }
    requests.len()
}

/// Where the read of a request begins, and how long it is; `None` if it is not to go along.
fn range(file: RingFile<'_>, request: &ReadRequest<'_>) -> Option<(u64, usize)> {
    let first = if file.is_direct { page_floor(request.offset) } else { request.offset };
    let before = (request.offset - first) as usize;
    let wanted = request.buf.len().checked_add(before)?;
    let len = if file.is_direct { wanted.checked_next_multiple_of(PAGE)? } else { wanted };
    let end = first.checked_add(len as u64)?;
    (!request.buf.is_empty() && len <= LARGEST && end <= i64::MAX as u64).then_some((first, len))
}

fn copy_out(wave: &Wave, slab: &[u8], requests: &mut [ReadRequest<'_>]) {
    for read in &wave.reads {
        let request = &mut requests[read.request];
        let before = (request.offset - read.offset) as usize;
        let got = usize::try_from(read.result).unwrap_or(0);
        if got >= before + request.buf.len() {
            let from = read.slab_at + before;
            request.buf.copy_from_slice(&slab[from..from + request.buf.len()]);
            request.result = Ok(request.buf.len());
        }
    }
}
