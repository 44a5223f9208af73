//! The log format that WAL and MANIFEST share: a file of 32 KiB blocks that hold checksummed,
//! fragmented records.
//!
//! [`LogFramer`] turns records into bytes and does no I/O; [`LogWriter`] is a framer with a file
//! behind it. [`LogReader`] gives the records back and tells four ends apart: the file simply ends,
//! its last record is torn, its bytes are damaged, or the device failed. What to do about them
//! (see [`WalRecoveryMode`]) is the caller's policy.
//!
//! Format reference: docs/format/wal.md.
#![forbid(unsafe_code)]

mod bit_flip;
mod compress;
mod damage;
mod decompress;
mod framer;
mod header;
mod reader;
mod record;
mod salvage;
mod window;
mod writer;

pub use compress::RecordCompressor;
pub use damage::{BitFlip, Damage, DamageKind, Verdict};
pub use framer::LogFramer;
pub use reader::{LogForm, LogRead, LogReader, Payload, ReaderOptions};
pub use record::{
    BLOCK_SIZE, DurabilityMarker, HEADER_LEN, ManifestWitness, PredecessorWal, RECYCLABLE_HEADER_LEN,
    RecordKind,
};
pub use writer::LogWriter;

/// What recovery does about a WAL that does not end cleanly. Numbers are RocksDB's (`WALRecoveryMode`).
/// I/O errors fail recovery in every mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[repr(u8)]
pub enum WalRecoveryMode {
    /// An incomplete record at the end of any WAL is dropped; everything else fails.
    TolerateCorruptedTailRecords = 0,
    /// Anything but a clean end fails.
    AbsoluteConsistency = 1,
    /// Recovery stops at the first bad record and keeps what came before it.
    #[default]
    PointInTimeRecovery = 2,
    /// Bad records are skipped. The result may have holes.
    SkipAnyCorruptedRecords = 3,
}

impl WalRecoveryMode {
    /// The mode of that number.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::TolerateCorruptedTailRecords,
            1 => Self::AbsoluteConsistency,
            2 => Self::PointInTimeRecovery,
            3 => Self::SkipAnyCorruptedRecords,
            _ => return None,
        })
    }
}
