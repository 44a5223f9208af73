//! The physical record: its header, its kinds, and the payloads of those kinds that carry no data.
//!
//! ```text
//! legacy header       checksum  u32 LE   masked CRC-32C of kind and payload
//!                     length    u16 LE   of the payload
//!                     kind      u8
//! recyclable header   checksum  u32 LE   masked CRC-32C of kind, log number and payload
//!                     length    u16 LE   of the payload
//!                     kind      u8
//!                     log       u32 LE   low half of the log's number: tells old bytes of a reused file
//! ```
//! A record never crosses a block; a block's last bytes that cannot hold a header are zeros.
//! Format reference: docs/format/wal.md.

use ironstone_base::coding::{get_fixed32, get_fixed64, put_fixed32, put_fixed64};
use ironstone_base::{Corrupt, FileNumber, SequenceNumber};

/// The unit in which a log is laid out.
pub const BLOCK_SIZE: usize = 32 << 10;
/// The length of the header of an ordinary record.
pub const HEADER_LEN: usize = 4 + 2 + 1;
/// The length of the header of a record in a file that may be reused.
pub const RECYCLABLE_HEADER_LEN: usize = HEADER_LEN + 4;
/// The longest payload of one physical record.
pub(crate) const MAX_PAYLOAD: usize = BLOCK_SIZE - HEADER_LEN;
const _: () = assert!(MAX_PAYLOAD <= u16::MAX as usize);
/// Readers pass over a record of unknown kind that has this bit.
pub(crate) const SAFE_TO_IGNORE: u8 = 1 << 7;

/// What a physical record is. Numbers are RocksDB's (`RecordType` in `db/log_format.h`), except for
/// [`RecordKind::DurabilityMarker`], which RocksDB passes over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum RecordKind {
    /// Never written: what zeroed, preallocated space decodes as.
    Zero = 0,
    Full = 1,
    First = 2,
    Middle = 3,
    Last = 4,
    RecyclableFull = 5,
    RecyclableFirst = 6,
    RecyclableMiddle = 7,
    RecyclableLast = 8,
    /// All data records after this one are compressed.
    SetCompression = 9,
    /// The timestamp sizes of column families.
    TimestampSize = 10,
    RecyclableTimestampSize = 11,
    /// What the previous WAL held; see [`PredecessorWal`].
    PredecessorWal = 130,
    RecyclablePredecessorWal = 131,
    /// Ours: how much of the log is known to be durable; see [`DurabilityMarker`].
    DurabilityMarker = 224,
}

/// Which part of a logical record a physical one holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Full,
    First,
    Middle,
    Last,
}

impl RecordKind {
    /// The kind with number `byte`, if it is known.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Zero,
            1 => Self::Full,
            2 => Self::First,
            3 => Self::Middle,
            4 => Self::Last,
            5 => Self::RecyclableFull,
            6 => Self::RecyclableFirst,
            7 => Self::RecyclableMiddle,
            8 => Self::RecyclableLast,
            9 => Self::SetCompression,
            10 => Self::TimestampSize,
            11 => Self::RecyclableTimestampSize,
            130 => Self::PredecessorWal,
            131 => Self::RecyclablePredecessorWal,
            224 => Self::DurabilityMarker,
            _ => return None,
        })
    }
    /// Whether a record of kind `byte` has the long header with the log number.
    pub const fn is_recyclable(byte: u8) -> bool {
        matches!(byte, 5..=8 | 11 | 131)
    }
    /// The length of the header of a record of kind `byte`.
    pub const fn header_len(byte: u8) -> usize {
        if Self::is_recyclable(byte) { RECYCLABLE_HEADER_LEN } else { HEADER_LEN }
    }
    pub(crate) const fn of(part: Part, recyclable: bool) -> Self {
        match (part, recyclable) {
            (Part::Full, false) => Self::Full,
            (Part::First, false) => Self::First,
            (Part::Middle, false) => Self::Middle,
            (Part::Last, false) => Self::Last,
            (Part::Full, true) => Self::RecyclableFull,
            (Part::First, true) => Self::RecyclableFirst,
            (Part::Middle, true) => Self::RecyclableMiddle,
            (Part::Last, true) => Self::RecyclableLast,
        }
    }
    /// Which part of a logical record it holds; `None` for the kinds that carry no data.
    pub(crate) const fn part(self) -> Option<Part> {
        Some(match self {
            Self::Full | Self::RecyclableFull => Part::Full,
            Self::First | Self::RecyclableFirst => Part::First,
            Self::Middle | Self::RecyclableMiddle => Part::Middle,
            Self::Last | Self::RecyclableLast => Part::Last,
            _ => return None,
        })
    }
}

/// What a WAL says about the one before it (RocksDB's `track_and_verify_wals`).
///
/// ```text
/// log number  u64 LE
/// size        u64 LE   bytes written to it
/// sequence    u64 LE   the last one recorded in it
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PredecessorWal {
    /// Its number.
    pub number: FileNumber,
    /// How many bytes were written to it.
    pub size: u64,
    /// The last sequence number in it.
    pub last_sequence: SequenceNumber,
}

impl PredecessorWal {
    /// Appends the record's payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_fixed64(out, self.number.0);
        put_fixed64(out, self.size);
        put_fixed64(out, self.last_sequence.0);
    }
    /// Reads the record's payload.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut next = || get_fixed64(&mut bytes).ok_or(Corrupt("predecessor WAL record: too short"));
        Ok(Self { number: FileNumber(next()?), size: next()?, last_sequence: SequenceNumber(next()?) })
    }
}

/// A MANIFEST's number, how much of it was durable, and the CRC-32C of that much.
/// A MANIFEST that ends before `size` or whose bytes differ has lost what was promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ManifestWitness {
    /// The number in the MANIFEST's name.
    pub number: FileNumber,
    /// How many of its bytes were synced.
    pub size: u64,
    /// The CRC-32C (not masked) of those bytes.
    pub crc: u32,
}

/// Ours: "the bytes of this log before `synced_size` were durable when this was written". Damage
/// below that place is rot, never a torn write.
///
/// ```text
/// magic            "IRN1"
/// log number       u64 LE
/// synced size      u64 LE
/// last sequence    u64 LE   of the synced bytes
/// manifest number  u64 LE   0 if the marker says nothing about a MANIFEST
/// manifest size    u64 LE
/// manifest crc     u32 LE
/// ```
/// RocksDB 9.11.1 and later pass over the record; older versions call it damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DurabilityMarker {
    /// The log that it stands in: a reused file may hold old ones.
    pub log_number: FileNumber,
    /// How many bytes of the log were synced.
    pub synced_size: u64,
    /// The last sequence number among them.
    pub last_sequence: SequenceNumber,
    /// What is known about the MANIFEST.
    pub manifest: Option<ManifestWitness>,
}

impl DurabilityMarker {
    const MAGIC: [u8; 4] = *b"IRN1";

    /// Appends the record's payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let manifest = self.manifest.unwrap_or(ManifestWitness { number: FileNumber(0), size: 0, crc: 0 });
        out.extend_from_slice(&Self::MAGIC);
        put_fixed64(out, self.log_number.0);
        put_fixed64(out, self.synced_size);
        put_fixed64(out, self.last_sequence.0);
        put_fixed64(out, manifest.number.0);
        put_fixed64(out, manifest.size);
        put_fixed32(out, manifest.crc);
    }
    /// Reads the record's payload; `None` if it is somebody else's record.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(&Self::MAGIC)?;
        let src = &mut rest;
        let log_number = FileNumber(get_fixed64(src)?);
        let synced_size = get_fixed64(src)?;
        let last_sequence = SequenceNumber(get_fixed64(src)?);
        let (number, size) = (FileNumber(get_fixed64(src)?), get_fixed64(src)?);
        let crc = get_fixed32(src)?;
        let manifest = (number.0 != 0).then_some(ManifestWitness { number, size, crc });
        Some(Self { log_number, synced_size, last_sequence, manifest })
    }
}
