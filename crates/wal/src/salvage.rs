//! Finding out whether anything valid comes after bad bytes, and where.
//!
//! A record's payload may itself hold a copy of a log, so a header found by looking at every byte is
//! believed only if the records from there on are valid up to the end of the block and, where they
//! are write batches, newer than what was read before the damage, or, where they are compressed, frames. A block's start
//! needs no such proof: there is always a header.

use crate::compress::ZSTD_MAGIC;
use crate::header::Header;
use crate::reader::Payload;
use crate::record::{BLOCK_SIZE, HEADER_LEN, Part, RecordKind};

/// What a valid record must look like in this log.
pub(crate) struct Expectation {
    /// The low half of the log's number.
    pub log: u32,
    /// Whether data records carry it, once that is known.
    pub recyclable: Option<bool>,
    /// What records hold.
    pub payload: Payload,
    /// Whether they are compressed.
    pub compressed: bool,
    /// The sequence number that the last record read began with.
    pub last_sequence: u64,
}

/// How many bytes may be checksummed at places that look like a header by chance. Keeps a large
/// file of garbage from taking minutes.
pub(crate) const CRC_BUDGET: usize = 256 << 20;

impl Expectation {
    /// The length of the valid record at the start of `bytes`, which end with their block.
    pub fn valid_len(&self, bytes: &[u8]) -> Option<usize> {
        let header = Header::parse(bytes)?;
        if !header.kind_is_known() || header.log.is_some_and(|log| log != self.log) {
            return None;
        }
        let is_data = RecordKind::from_byte(header.kind).and_then(RecordKind::part).is_some();
        if is_data && self.recyclable.is_some_and(|recyclable| recyclable != header.log.is_some()) {
            return None;
        }
        (header.actual_crc(bytes)? == header.crc).then(|| header.total_len())
    }

    /// Finds the first place behind the bad record at the start of `block` (which ends with its
    /// block) from where on everything is valid. `true_len` is how long the record is, if that is known better than
    /// its header says.
    pub fn next_in_block(
        &self,
        block: &[u8],
        true_len: Option<usize>,
        crc_budget: &mut usize,
    ) -> Option<usize> {
        // Only the payload is bad, and the length leads to the next record.
        let announced = true_len.or_else(|| Header::parse(block).map(|header| header.total_len()));
        if let Some(at) = announced.filter(|&at| at < block.len() && self.valid_len(&block[at..]).is_some()) {
            return Some(at);
        }
        (1..block.len().saturating_sub(HEADER_LEN)).find(|&at| {
            let rest = &block[at..];
            let Some(header) = Header::parse(rest).filter(|header| header.kind_is_known()) else {
                return false;
            };
            if header.total_len() > rest.len()
                || header.total_len() > *crc_budget
                || !self.is_newer(rest, &header)
            {
                return false;
            }
            *crc_budget -= header.total_len();
            self.valid_len(rest).is_some() && self.is_valid_to_the_end(rest)
        })
    }

    /// Whether the record could follow what was read: it starts a logical record, of a later sequence.
    fn is_newer(&self, bytes: &[u8], header: &Header) -> bool {
        if !matches!(
            RecordKind::from_byte(header.kind).and_then(RecordKind::part),
            Some(Part::Full | Part::First)
        ) {
            return false;
        }
        let body = &bytes[header.len()..header.total_len()];
        if self.compressed {
            return body.starts_with(&ZSTD_MAGIC);
        }
        match (self.payload, body.first_chunk::<8>()) {
            (Payload::WriteBatch, Some(sequence)) => {
                let sequence = u64::from_le_bytes(*sequence);
                sequence >= self.last_sequence && sequence < 1 << 56
            }
            (Payload::WriteBatch, None) => false,
            (Payload::Other, _) => !body.is_empty(),
        }
    }

    fn is_valid_to_the_end(&self, mut rest: &[u8]) -> bool {
        while let Some(len) = self.valid_len(rest) {
            rest = &rest[len..];
        }
        rest.iter().all(|&byte| byte == 0)
    }
}
const _: () = assert!(CRC_BUDGET > BLOCK_SIZE);
