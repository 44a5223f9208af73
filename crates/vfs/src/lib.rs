//! Files, directories, locks and the clock, behind traits, so that the whole engine can run on a
//! simulated disk.
//!
//! Three file systems stand behind [`FileSystem`]: [`os`] (the real one), [`mem`] (in memory, with a
//! crash model) and [`fault`] (wraps either and fails on request).

pub mod clock;
pub mod fault;
pub mod file;
pub mod mem;
pub mod os;

pub use clock::{Clock, ManualClock, SystemClock};
pub use file::{
    Directory, FileLock, FileSystem, OpenHints, RandomAccessFile, ReadRequest, SequentialFile, WritableFile, WriteOptions,
};

use ironstone_base::sync::Arc;

/// What a database takes from its surroundings.
#[derive(Clone)]
pub struct Env {
    /// Where the files are.
    pub fs: Arc<dyn FileSystem>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
}

impl Env {
    /// The operating system's files and clock.
    pub fn os() -> Self {
        Self { fs: Arc::new(os::OsFileSystem::new()), clock: Arc::new(SystemClock::new()) }
    }
}
