//! A file that is mapped into memory, for reading.
//!
//! # Safety argument
//! 1. The mapping is of this value alone: nobody else knows the address, and it is unmapped once, when the value is dropped.
//! 2. Until then `len` bytes from `start` are readable: the system keeps them so, whatever becomes of the descriptor or the name.
//! 3. They are bytes, for which every value is valid, and are lent for as long as the value is borrowed.
//! 4. What is mapped are tables, which nobody writes after they are complete; the database's lock keeps other databases away. Whoever
//!    writes to one all the same, or cuts it, breaks this: reads find other bytes, or the system ends the process with SIGBUS. That is why
//!    files are mapped only on request, and the option says so.
//! 5. Reading from several threads at once needs nothing.
#![allow(unsafe_code)]

use crate::file::*;
use ironstone_base::Result;
use ironstone_base::perf::{self, IoMetric};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// The memory that a file is mapped to.
struct Mapping {
    start: NonNull<c_void>,
    len: usize,
}

// SAFETY: bytes that are only read (3, 5), and an address that any thread may unmap (1).
unsafe impl Send for Mapping {}
// SAFETY: as above (3, 5).
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a file, which has them. `len` is not 0.
    fn new(fd: BorrowedFd<'_>, len: usize) -> std::result::Result<Self, Errno> {
        let address = std::ptr::null_mut();
        // SAFETY: the system chooses a place where nothing is (1); the file is as the argument says (4).
        let start = unsafe { mmap(address, len, ProtFlags::READ, MapFlags::SHARED, fd, 0) }?;
        let start = NonNull::new(start).ok_or(Errno::NOMEM)?;
        // SAFETY: our own mapping (1, 2); the advice changes no bytes. A hint: where it is not understood, reading works all the same.
        let _ = unsafe { madvise(start.as_ptr(), len, Advice::Random) };
        Ok(Self { start, len })
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: readable bytes for as long as `self` is borrowed (2, 3), which nobody changes (4).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and lent to nobody any more (1).
        let _ = unsafe { munmap(self.start.as_ptr(), self.len) }; // Nothing can be done if it fails.
    }
}

/// A file read at any place from memory.
pub(super) struct MappedRandomAccessFile {
    bytes: FileBytes,
    path: PathBuf,
}

impl MappedRandomAccessFile {
    /// Maps a file of `size` bytes. `None` if the system does not do it: the file is empty, or larger than memory can be.
    pub(super) fn new(fd: BorrowedFd<'_>, path: &Path, size: u64) -> Option<Self> {
        let len = usize::try_from(size).ok().filter(|&len| len > 0)?;
        let mapping = Mapping::new(fd, len).ok()?;
        Some(Self { bytes: FileBytes::new(mapping), path: path.to_owned() })
    }
}

impl RandomAccessFile for MappedRandomAccessFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.bytes.get(at..)).unwrap_or_default();
        let count = rest.len().min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        perf::count_io(IoMetric::BytesRead, count as u64);
        Ok(count)
    }
    fn mapped(&self) -> Option<FileBytes> {
        Some(self.bytes.clone())
    }
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }
    fn path(&self) -> &Path {
        &self.path
    }
}
