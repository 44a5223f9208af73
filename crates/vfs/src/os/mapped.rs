//! A file that is mapped into memory, for reading.
//!
//! # Safety argument
//! 1. The bytes are those of a [`Mapping`], which stay for as long as it does, and can be read.
//! 2. They are bytes, for which every value is valid, and are lent for as long as the value is borrowed. Reading from several threads at once
//!    needs nothing.
//! 3. What is mapped are tables, which nobody writes after they are complete; the database's lock keeps other databases away. Whoever
//!    writes to one all the same, or cuts it, breaks this: reads find other bytes, or the system ends the process with SIGBUS. That is why
//!    files are mapped only on request, and the option says so.
#![allow(unsafe_code)]

use super::mapping::Mapping;
use crate::file::*;
use ironstone_base::Result;
use ironstone_base::perf::{self, IoMetric};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::mm::{Advice, ProtFlags, madvise};
use std::path::{Path, PathBuf};

/// A whole file, mapped.
struct WholeFile(Mapping);

impl WholeFile {
    /// Maps `len` bytes of a file, which has them. `len` is not 0.
    fn new(fd: BorrowedFd<'_>, len: usize) -> std::result::Result<Self, Errno> {
        let mapping = Mapping::new(fd, 0, len, ProtFlags::READ)?;
        // SAFETY: our own mapping (1); the advice changes no bytes. A hint: where it is not understood, reading works all the same.
        let _ = unsafe { madvise(mapping.start().as_ptr().cast(), len, Advice::Random) };
        Ok(Self(mapping))
    }
}

impl AsRef<[u8]> for WholeFile {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: readable bytes for as long as `self` is borrowed (1, 2), which nobody changes (3).
        unsafe { std::slice::from_raw_parts(self.0.start().as_ptr(), self.0.len()) }
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
        let file = WholeFile::new(fd, len).ok()?;
        Some(Self { bytes: FileBytes::new(file), path: path.to_owned() })
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
