//! A part of a file that is mapped into memory.
//!
//! # Safety argument
//! 1. The mapping is of this value alone: nobody else knows the address, and it is unmapped once, when the value is dropped.
//! 2. Until then `len` bytes from `start` are the process's: the system keeps them so, whatever becomes of the descriptor or the name.
//! 3. Making and unmapping touches none of them. Whoever reads or writes them argues for that himself, and any thread may.
#![allow(unsafe_code)]

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ptr::NonNull;

/// The memory that a part of a file is mapped to, shared with whoever else has the file.
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: an address that any thread may use and unmap (1, 3).
unsafe impl Send for Mapping {}
// SAFETY: as above; what is done through it is argued for where it is done (3).
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a file from `at` on, which is where a page begins. `len` is not 0.
    pub(super) fn new(fd: BorrowedFd<'_>, at: u64, len: usize, access: ProtFlags) -> Result<Self, Errno> {
        // SAFETY: the system chooses a place where nothing is (1); nothing is touched (3).
        let start = unsafe { mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, fd, at) }?;
        Ok(Self { start: NonNull::new(start.cast()).ok_or(Errno::NOMEM)?, len })
    }
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and lent to nobody any more (1).
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) }; // Nothing can be done if it fails.
    }
}
