//! Finding the one flipped bit that explains a bad record.

use crate::header::{CHECKED_FROM, Header};
use crate::record::{BLOCK_SIZE, HEADER_LEN, RecordKind};
use ironstone_base::checksum::{crc32c, crc32c_extend};

/// The reversed polynomial of CRC-32C.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Finds the bit that must be flipped back to make the record at the start of `bytes` (which end with
/// its block) valid, as (byte, bit). `log` is the low half of the log's number.
///
/// A torn record passes for a flipped one with a probability of 8 * its length / 2^32.
pub(crate) fn find(bytes: &[u8], log: u32) -> Option<(usize, u8)> {
    let header = Header::parse(bytes)?;
    in_checksum_or_body(bytes, &header, log)
        .or_else(|| in_length(bytes, &header, log))
        .or_else(|| in_kind(bytes, log))
}

/// How long the record at the start of `bytes` is once that bit is flipped back.
pub(crate) fn len_without(bytes: &[u8], at: usize, bit: u8) -> Option<usize> {
    Header::parse(&flipped_head(bytes, at, bit)).map(|header| header.total_len())
}

/// The length is right: the checksum, the kind, the log number or the payload differs by a bit.
fn in_checksum_or_body(bytes: &[u8], header: &Header, log: u32) -> Option<(usize, u8)> {
    let actual = header.actual_crc(bytes)?;
    if header.kind_is_known() && header.log.is_none_or(|own| own == log) {
        for (at, bit) in bits(0..4) {
            if Header::parse(&flipped_head(bytes, at, bit))?.crc == actual {
                return Some((at, bit));
            }
        }
    }
    // A checksum is linear: a flipped bit changes it by an amount that depends on its place only.
    let difference = actual ^ header.crc;
    let mut effects: [u32; 8] = std::array::from_fn(|bit| advance(1 << bit));
    for at in (CHECKED_FROM..header.total_len()).rev() {
        if let Some(bit) = effects.iter().position(|&effect| effect == difference) {
            let repaired = Header::parse(&flipped_head(bytes, at, bit as u8))?;
            let in_form = repaired.log.is_some() == header.log.is_some();
            if in_form && repaired.kind_is_known() && repaired.log.is_none_or(|own| own == log) {
                return Some((at, bit as u8));
            }
        }
        effects = effects.map(advance);
    }
    None
}

fn in_length(bytes: &[u8], header: &Header, log: u32) -> Option<(usize, u8)> {
    if !header.kind_is_known() || header.log.is_some_and(|own| own != log) {
        return None;
    }
    bits(4..6).find(|&(at, bit)| {
        Header::parse(&flipped_head(bytes, at, bit))
            .is_some_and(|other| other.actual_crc(bytes) == Some(other.crc))
    })
}

/// A flip in the kind can change the length of the header and so what the checksum covers.
fn in_kind(bytes: &[u8], log: u32) -> Option<(usize, u8)> {
    bits(CHECKED_FROM..HEADER_LEN).find(|&(at, bit)| {
        let Some(other) = Header::parse(&flipped_head(bytes, at, bit)) else {
            return false;
        };
        let rest = bytes.get(HEADER_LEN..other.total_len());
        let crc = rest.map(|rest| crc32c_extend(crc32c(&[other.kind]), rest));
        other.kind_is_known() && other.log.is_none_or(|own| own == log) && crc == Some(other.crc)
    })
}

fn bits(bytes: std::ops::Range<usize>) -> impl Iterator<Item = (usize, u8)> {
    bytes.flat_map(|at| (0..8).map(move |bit| (at, bit)))
}

/// The first bytes of the record, with one bit of them flipped (or none, if it lies behind them).
fn flipped_head(bytes: &[u8], at: usize, bit: u8) -> Vec<u8> {
    let mut head = bytes[..bytes.len().min(RecordKind::header_len(5))].to_vec();
    if let Some(byte) = head.get_mut(at) {
        *byte ^= 1 << bit;
    }
    head
}

/// What a checksum's difference becomes when a zero byte follows.
fn advance(mut difference: u32) -> u32 {
    for _ in 0..8 {
        difference = if difference & 1 == 1 { (difference >> 1) ^ POLYNOMIAL } else { difference >> 1 };
    }
    difference
}
const _: () = assert!(BLOCK_SIZE <= 1 << 16); // The search is linear in a block: about a millisecond.
