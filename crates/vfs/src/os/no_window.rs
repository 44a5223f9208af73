//! Systems on which no file is mapped for writing.

use rustix::fd::OwnedFd;
use rustix::io::Errno;

pub(super) const LEN: u64 = 0;
pub(super) const FIRST_LEN: u64 = 0;

/// There is none.
pub(super) enum Window {}

impl Window {
    pub(super) fn new(_: &OwnedFd, _: u64, _: u64) -> Result<Self, Errno> {
        Err(Errno::NOSYS)
    }
    pub(super) fn ready_end(&self) -> u64 {
        match *self {}
    }
    pub(super) fn end(&self) -> u64 {
        match *self {}
    }
    pub(super) fn has_room(&self, _: u64, _: usize) -> bool {
        match *self {}
    }
    pub(super) fn is_ready(&self, _: u64, _: usize) -> bool {
        match *self {}
    }
    pub(super) fn make_more_ready(&mut self, _: &OwnedFd) -> Result<(), Errno> {
        match *self {}
    }
    pub(super) fn make_ready(&mut self, _: &OwnedFd, _: u64, _: usize) -> Result<(), Errno> {
        match *self {}
    }
    pub(super) fn store(&mut self, _: &[u8], _: u64) {
        match *self {}
    }
}
