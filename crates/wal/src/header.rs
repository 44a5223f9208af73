//! Taking a physical record apart.

use crate::record::{HEADER_LEN, RECYCLABLE_HEADER_LEN, RecordKind};
use ironstone_base::checksum::{crc32c, unmask_crc};

/// The header of a physical record, as it stands: nothing is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    /// The checksum that it claims, unmasked.
    pub crc: u32,
    /// The length of the payload that it claims.
    pub payload_len: usize,
    /// The number of its kind.
    pub kind: u8,
    /// The low half of the log's number, if its kind carries one.
    pub log: Option<u32>,
}

/// The checksum covers everything behind the length.
pub(crate) const CHECKED_FROM: usize = 6;

impl Header {
    /// Reads the header at the start of `bytes`; `None` if they are too few.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let head = bytes.first_chunk::<HEADER_LEN>()?;
        let kind = head[6];
        let log = match RecordKind::is_recyclable(kind) {
            true => Some(u32::from_le_bytes(*bytes[HEADER_LEN..].first_chunk()?)),
            false => None,
        };
        Some(Self {
            crc: unmask_crc(u32::from_le_bytes([head[0], head[1], head[2], head[3]])),
            payload_len: usize::from(u16::from_le_bytes([head[4], head[5]])),
            kind,
            log,
        })
    }
    /// The length of the header itself.
    pub fn len(&self) -> usize {
        if self.log.is_some() { RECYCLABLE_HEADER_LEN } else { HEADER_LEN }
    }
    /// The length of the whole record.
    pub fn total_len(&self) -> usize {
        self.len() + self.payload_len
    }
    /// The checksum of the record at the start of `bytes`; `None` if they end before it does.
    pub fn actual_crc(&self, bytes: &[u8]) -> Option<u32> {
        bytes.get(CHECKED_FROM..self.total_len()).map(crc32c)
    }
    /// Whether its kind is one that somebody writes.
    pub fn kind_is_known(&self) -> bool {
        !matches!(RecordKind::from_byte(self.kind), None | Some(RecordKind::Zero))
    }
}
