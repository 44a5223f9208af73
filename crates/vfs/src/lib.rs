//! Files, directories, locks and the clock, behind traits, so that the whole engine can run on a
//! simulated disk.
//!
//! Three file systems stand behind [`FileSystem`]: [`os`] (the real one), [`mem`] (in memory, with a
//! crash model) and [`fault`] (wraps either and fails on request).
#![deny(unsafe_code)] // `moment`, `os::mapped`, `os::mapping`, `os::range_sync`, `os::ring` and `os::window` lift it, each with an argument.

mod append_buffer;
mod checksum_handoff;
pub mod clock;
pub mod fault;
pub mod file;
pub mod mem;
mod moment;
pub mod op;
pub mod os;
mod pass_on;
pub mod rate_limiter;
pub mod timer;
pub mod traced;
pub mod watched;

pub use checksum_handoff::{ChecksumHandoff, check_handed_over};
pub use clock::{Clock, ManualClock, SystemClock};
pub use file::{
    Access, Directory, FileBytes, FileLock, FileSystem, OpenHints, RandomAccessFile, RangeSync, ReadRequest,
    SequentialFile, WritableFile, WriteOptions,
};

pub use op::OpKind;
pub use rate_limiter::{
    GenericRateLimiter, IoKind, IoPriority, RateLimiter, RateLimiterMode, RateLimiterOptions,
};
pub use timer::{LevelTimer, PerfCpuTimer, PerfTimer, StatsTimer, TickerTimer, cpu_nanos, stopwatch};

pub use ironstone_base::Result;
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

    /// Files in memory, gone with the last clone of this, and the operating system's clock.
    pub fn in_memory() -> Self {
        Self { fs: Arc::new(mem::MemFileSystem::volatile()), clock: Arc::new(SystemClock::new()) }
    }
}
