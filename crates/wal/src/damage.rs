//! What is wrong with a log, and how sure that is.

use ironstone_base::Error;
use std::path::Path;

/// What was found where a record should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DamageKind {
    /// The file ends inside a header.
    TruncatedHeader,
    /// The file ends before the payload that the header announces.
    TruncatedPayload,
    /// The file, or what is valid of it, ends between the fragments of a record.
    MissingEnd,
    /// A header announces more than its block holds.
    BadLength,
    /// The checksum does not match.
    ChecksumMismatch,
    /// A kind that nobody knows and nobody may ignore.
    UnknownKind,
    /// A fragment without the beginning of its record.
    MissingStart,
    /// A record begins inside another one.
    UnexpectedStart,
    /// Zeros, with records after them.
    Zeros,
    /// Records from the earlier life of a reused file, with its own after them.
    OldRecords,
    /// A record that does not decompress.
    BadCompression,
    /// The file ends before the place up to which it had been synced.
    TooShort,
    /// A recyclable record in a log that does not begin with one.
    MixedHeaders,
    /// A record without data (timestamp sizes, predecessor, compression) that cannot be right.
    BadMetadata,
}

/// How the damage came about, as far as the file itself can tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// What an interrupted append leaves behind: nothing valid comes after it.
    TornTail,
    /// Not a torn tail: valid records come after it, or valid records stand where they cannot. Bytes
    /// were damaged, or never persisted while later ones were (which can happen to unsynced ones).
    Damaged,
    /// Undoing one flipped bit makes the record valid: this is rot.
    BitFlip,
    /// The bytes had been synced, by [`crate::ReaderOptions::synced_size`] or by a
    /// [`crate::DurabilityMarker`] behind them: this is rot.
    SyncedBytes,
}

impl Verdict {
    /// Whether bytes that had been written whole are bad now, so that dropping them may lose
    /// acknowledged writes.
    pub fn is_rot(self) -> bool {
        matches!(self, Self::BitFlip | Self::SyncedBytes)
    }
}

/// One flipped bit of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BitFlip {
    /// The byte's offset in the file.
    pub offset: u64,
    /// The bit in that byte, 0 being the lowest.
    pub bit: u8,
}

/// Bytes of a log that are no records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Where the bad bytes begin.
    pub offset: u64,
    /// How many bytes are passed over, up to where the reader goes on.
    pub bytes: u64,
    /// What is there.
    pub kind: DamageKind,
    /// The same in words.
    pub what: &'static str,
    /// Where checksums differ: what the header says, and what the bytes have.
    pub checksums: Option<(u32, u32)>,
    /// How sure it is.
    pub verdict: Verdict,
    /// Where the next valid record begins.
    pub later_record: Option<u64>,
    /// The bit to flip back.
    pub flipped: Option<BitFlip>,
}

impl Damage {
    /// Whether it may be the trace of an interrupted append, which recovery drops in the modes that
    /// tolerate a torn tail.
    pub fn is_torn_tail(&self) -> bool {
        self.verdict == Verdict::TornTail
    }
    /// The error that names the file, the place and what is wrong.
    pub fn error(&self, file: &Path) -> Error {
        Error::corruption_at(file, self.offset, self)
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.what)?;
        if let Some((stored, actual)) = self.checksums {
            write!(f, ": checksum is {actual:#010x}, header says {stored:#010x}")?;
        }
        write!(f, "; {} bytes lost", self.bytes)?;
        if let Some(flip) = self.flipped {
            write!(f, "; bit {} of byte {} is flipped", flip.bit, flip.offset)?;
        }
        match self.later_record {
            Some(at) => write!(f, "; valid records follow at {at}"),
            None => f.write_str("; nothing valid follows"),
        }
    }
}
