//! What a thread's input and output is for.

use super::Histogram;
use std::cell::Cell;

/// What a thread reads and writes tables for. RocksDB: `Env::IOActivity`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IoActivity {
    /// Something else.
    #[default]
    Unknown,
    /// Memtables become tables.
    Flush,
    /// Tables become other tables.
    Compaction,
    /// A database is opened.
    DbOpen,
    /// A point read.
    Get,
    /// Several point reads at once.
    MultiGet,
    /// An iterator moves.
    DbIterator,
    /// All blocks are checked.
    VerifyDbChecksum,
    /// The checksums of whole files are checked.
    VerifyFileChecksums,
}

thread_local! {
    static CURRENT: Cell<IoActivity> = const { Cell::new(IoActivity::Unknown) };
    static BLOCKS_READ: Cell<BlocksRead> = const { Cell::new(BlocksRead { meta: 0, data: 0 }) };
}

/// Blocks that a thread has read from table files, where statistics are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlocksRead {
    /// Blocks of indexes and filters.
    pub meta: u64,
    /// Data blocks.
    pub data: u64,
}

impl BlocksRead {
    /// What this thread has read since the last call.
    pub fn take() -> Self {
        BLOCKS_READ.take()
    }
    /// Adds to what this thread has read.
    pub fn add(self) {
        let BlocksRead { meta, data } = BLOCKS_READ.get();
        BLOCKS_READ.set(BlocksRead { meta: meta + self.meta, data: data + self.data });
    }
}

/// The activity of a thread, until it is dropped; then it is what it was before.
#[must_use]
#[derive(Debug)]
pub struct ActivityGuard {
    before: IoActivity,
    /// It is of this thread.
    _of_thread: std::marker::PhantomData<*const ()>,
}

impl IoActivity {
    /// What this thread does now.
    pub fn current() -> Self {
        CURRENT.with(Cell::get)
    }
    /// From now on this thread does that.
    pub fn begin(self) -> ActivityGuard {
        ActivityGuard {
            before: CURRENT.with(|current| current.replace(self)),
            _of_thread: std::marker::PhantomData,
        }
    }
    /// The histogram of the times of reads of table files, and whether only those want it who want detailed timers.
    pub fn reads(self) -> Option<(Histogram, bool)> {
        match self {
            Self::Unknown => None,
            Self::Flush => Some((Histogram::FileReadFlushMicros, false)),
            Self::Compaction => Some((Histogram::FileReadCompactionMicros, false)),
            Self::DbOpen => Some((Histogram::FileReadDbOpenMicros, false)),
            Self::Get => Some((Histogram::FileReadGetMicros, true)),
            Self::MultiGet => Some((Histogram::FileReadMultigetMicros, true)),
            Self::DbIterator => Some((Histogram::FileReadDbIteratorMicros, true)),
            Self::VerifyDbChecksum => Some((Histogram::FileReadVerifyDbChecksumMicros, true)),
            Self::VerifyFileChecksums => Some((Histogram::FileReadVerifyFileChecksumsMicros, true)),
        }
    }
    /// The histogram of the times of writes to table files.
    pub fn writes(self) -> Option<Histogram> {
        match self {
            Self::Flush => Some(Histogram::FileWriteFlushMicros),
            Self::Compaction => Some(Histogram::FileWriteCompactionMicros),
            Self::DbOpen => Some(Histogram::FileWriteDbOpenMicros),
            _ => None,
        }
    }
}

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        CURRENT.with(|current| current.set(self.before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_activity_before_comes_back() {
        assert_eq!(IoActivity::current(), IoActivity::Unknown);
        let opening = IoActivity::DbOpen.begin();
        let flushing = IoActivity::Flush.begin();
        assert_eq!(IoActivity::current().writes(), Some(Histogram::FileWriteFlushMicros));
        drop(flushing);
        assert_eq!(IoActivity::current(), IoActivity::DbOpen);
        drop(opening);
        assert_eq!(IoActivity::current().reads(), None);
    }
}
