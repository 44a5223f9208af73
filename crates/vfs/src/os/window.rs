//! Memory that the end of a growing file is mapped to: what is written there is in the file, without a system call.
//!
//! # Safety argument
//! 1. The bytes are those of a [`Mapping`], which stay for as long as it does, and whose address nobody else knows.
//! 2. Those up to `ready` may be written: the file reaches up to there before `ready` is moved on. Each store is checked against it.
//! 3. Nobody holds a reference to the bytes; other descriptors of the file may read them at any time, as they may beside `pwrite`.
//! 4. Whoever cuts the file meanwhile makes a store a SIGBUS, which ends the process, and so does a file system that fails, if the page was
//!    written back since its zeros were made. The database's lock keeps other databases away, and this one drops the window before it cuts
//!    or syncs the file.
#![allow(unsafe_code)]

use super::aligned::{CACHED_PIECE, cached_piece, page_floor};
use super::mapping::Mapping;
use super::{EXT, file_system_type};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{Errno, pwrite, retry_on_intr};
use rustix::mm::{Advice, ProtFlags, madvise};
use std::sync::atomic::{Ordering, compiler_fence};

/// How much of a file is mapped at a time. It counts as memory of the process.
pub(super) const LEN: u64 = 1 << 20;
/// The same of the first of a file that is mapped from its start: its writer makes that ready himself.
pub(super) const FIRST_LEN: u64 = 128 << 10;
/// The file grows by so much in zeros while a write waits for it: the kernel makes large pages for it.
const STEP: usize = 32 << 10;
static ZEROS: [u8; CACHED_PIECE] = [0; CACHED_PIECE];

/// A part of a file, mapped.
pub(super) struct Window {
    mapping: Mapping,
    /// Where in the file it begins: at a page.
    at: u64,
    /// How much of it there is in the file, and in memory.
    ready: usize,
}

impl Window {
    /// Maps `len` bytes of the file, which is open for reading too and ends at `end`, from the page of `end` on. It has no bytes ahead yet.
    pub(super) fn new(fd: &OwnedFd, end: u64, len: u64) -> Result<Self, Errno> {
        if !sets_space_aside(fd) {
            return Err(Errno::OPNOTSUPP);
        }
        let at = page_floor(end);
        let mapping = Mapping::new(fd.as_fd(), at, len as usize, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok(Self { mapping, at, ready: 0 })
    }

    /// Where what is mapped ends, at a page.
    pub(super) fn end(&self) -> u64 {
        self.at + self.mapping.len() as u64
    }

    /// Up to where the file has bytes.
    pub(super) fn ready_end(&self) -> u64 {
        self.at + self.ready as u64
    }

    /// Whether `len` bytes at `offset` are within what is mapped.
    pub(super) fn has_room(&self, offset: u64, len: usize) -> bool {
        offset >= self.at && offset + len as u64 <= self.end()
    }

    /// Whether `len` bytes at `offset` may be stored.
    pub(super) fn is_ready(&self, offset: u64, len: usize) -> bool {
        offset >= self.at && offset + len as u64 <= self.ready_end()
    }

    /// Sees to it that `len` bytes at `offset`, where the written part of the file ends, may be stored; there is [room](Self::has_room) for
    /// them. After an error the file may have grown up to a step.
    pub(super) fn make_ready(&mut self, fd: &OwnedFd, offset: u64, len: usize) -> Result<(), Errno> {
        self.grow(fd, offset, offset + len as u64, STEP)
    }

    /// Another piece of it, where nothing was written yet.
    pub(super) fn make_more_ready(&mut self, fd: &OwnedFd) -> Result<(), Errno> {
        let ready = self.ready_end();
        self.grow(fd, ready, ready + 1, CACHED_PIECE)
    }

    /// Has the file grow behind `offset` by `step` bytes at a time until it reaches `needed`.
    fn grow(&mut self, fd: &OwnedFd, offset: u64, needed: u64, step: usize) -> Result<(), Errno> {
        while self.ready_end() < needed {
            let (from, to) = (self.ready, (self.ready + step).min(self.mapping.len()));
            let mut zeros_at = offset.max(self.ready_end());
            let end = self.at + to as u64;
            while zeros_at < end {
                let zeros = &ZEROS[..cached_piece(zeros_at, (end - zeros_at) as usize)];
                match retry_on_intr(|| pwrite(fd, zeros, zeros_at))? {
                    0 => return Err(Errno::IO),
                    count => zeros_at += count as u64,
                }
            }
            // SAFETY: `from..to` lies within the mapping, whose end `to` does not pass (1). The advice changes
            // no bytes: it does what the first store to each page would.
            unsafe {
                madvise(self.mapping.start().as_ptr().add(from).cast(), to - from, Advice::LinuxPopulateWrite)
            }?;
            self.ready = to;
        }
        Ok(())
    }

    /// Stores `data` at `offset`, which is [ready](Self::make_ready). All at once, as far as anybody sees who reads zeros as nothing:
    /// the first 8 bytes that are not zeros come last, so a process that is killed in between leaves no half of a record.
    pub(super) fn store(&mut self, data: &[u8], offset: u64) {
        let zeros = data.iter().take_while(|&&byte| byte == 0).count(); // The file has them.
        let data = &data[zeros..];
        let at = (offset + zeros as u64 - self.at) as usize;
        assert!(offset >= self.at && at + data.len() <= self.ready, "a store outside of what is mapped");
        // SAFETY: `at` and what follows are within the mapping (2).
        let to = unsafe { self.mapping.start().as_ptr().add(at) };
        let Some((first, rest)) = data.split_first_chunk::<8>() else {
            // SAFETY: as above; `data` is not in a mapping that nobody else knows (1).
            unsafe { to.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
            return;
        };
        // SAFETY: as above.
        unsafe { to.add(8).copy_from_nonoverlapping(rest.as_ptr(), rest.len()) };
        compiler_fence(Ordering::Release); // The processor completes what it began in order, whoever is killed.
        // SAFETY: as above, for 8 bytes wherever they lie.
        unsafe { to.cast::<u64>().write_unaligned(u64::from_ne_bytes(*first)) };
    }
}

/// Whether a full disk is an error of the zeros on the file system of `fd`: space for a page is set aside when a system call first writes it. Others
/// may ask for space again at each store, for which there is no error but a signal.
fn sets_space_aside(fd: &OwnedFd) -> bool {
    const XFS: u64 = 0x5846_5342;
    const TMPFS: u64 = 0x0102_1994;
    file_system_type(fd).is_some_and(|found| [EXT, XFS, TMPFS].contains(&found))
}
