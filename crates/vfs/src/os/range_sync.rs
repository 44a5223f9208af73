//! Starting write-back of a part of a file.
//!
//! # Safety argument
//! 1. `sync_file_range` takes a descriptor and three integers; it reads and writes no memory of ours.
//! 2. The descriptor is borrowed for the length of the call, so it cannot be closed and reused by
//!    another file meanwhile.
#![allow(unsafe_code)]

use rustix::fd::{AsRawFd, BorrowedFd};
use std::io;

/// Asks the kernel to start writing back `len` bytes from `offset`, and does not wait.
///
/// Only the flag that starts writing is used: the flags that wait also report, and thereby use up,
/// a write-back error that the next `fdatasync` would have reported.
pub(super) fn start_write_back(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let too_far = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let (offset, len) = (i64::try_from(offset).map_err(too_far)?, i64::try_from(len).map_err(too_far)?);
    // SAFETY: integers only (1), descriptor alive (2).
    let result = unsafe { libc::sync_file_range(fd.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
