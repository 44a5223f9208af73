//! Checksums of blocks and log records.
//!
//! ```text
//! kind       stored in a block's trailer, over the block's bytes and the compression-type byte
//! 0 none     0
//! 1 crc32c   masked CRC-32C
//! 2 xxh32    XXH32
//! 3 xxh64    low half of XXH64
//! 4 xxh3     low half of XXH3-64 of all but the last byte, xor last byte * 0x6b9083d9
//! ```
//! From table format 6 on a [`context_modifier`] is added, so that a block in the wrong place or file
//! is noticed. Format reference: docs/format/checksums.md.

use crate::hash::{xxh3_64, xxh32, xxh64};
use std::hash::Hasher;

/// Which checksum a table uses. The numbers stand in its footer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[repr(u8)]
pub enum ChecksumKind {
    /// No check at all.
    None = 0,
    /// CRC-32C, masked.
    Crc32c = 1,
    /// XXH32.
    XxHash = 2,
    /// The low half of XXH64.
    XxHash64 = 3,
    /// The low half of XXH3-64, with the last byte handled apart.
    #[default]
    Xxh3 = 4,
}

impl ChecksumKind {
    /// The kind with number `byte`, if there is one.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::None,
            1 => Self::Crc32c,
            2 => Self::XxHash,
            3 => Self::XxHash64,
            4 => Self::Xxh3,
            _ => return None,
        })
    }
    /// How option strings spell it.
    pub const fn option_name(self) -> &'static str {
        match self {
            Self::None => "kNoChecksum",
            Self::Crc32c => "kCRC32c",
            Self::XxHash => "kxxHash",
            Self::XxHash64 => "kxxHash64",
            Self::Xxh3 => "kXXH3",
        }
    }
}

/// CRC-32C of `data`.
#[inline]
pub fn crc32c(data: &[u8]) -> u32 {
    crc32c::crc32c(data)
}

/// CRC-32C of what `crc` covers followed by `data`.
#[inline]
pub fn crc32c_extend(crc: u32, data: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, data)
}

const MASK_DELTA: u32 = 0xa282_ead8;

/// How a CRC is stored next to the data it covers: a CRC of data that holds CRCs would be weak.
#[inline]
pub const fn mask_crc(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(MASK_DELTA)
}

/// The opposite of [`mask_crc`].
#[inline]
pub const fn unmask_crc(masked: u32) -> u32 {
    masked.wrapping_sub(MASK_DELTA).rotate_left(15)
}

/// The checksum of a block as its trailer stores it: over `data`, then `type_byte`. The
/// [`context_modifier`] is not in it.
#[inline]
pub fn block_checksum(kind: ChecksumKind, data: &[u8], type_byte: u8) -> u32 {
    match kind {
        ChecksumKind::None => 0,
        ChecksumKind::Crc32c => mask_crc(crc32c_extend(crc32c(data), &[type_byte])),
        ChecksumKind::XxHash => {
            let mut state = twox_hash::XxHash32::with_seed(0);
            state.write(data);
            state.write(&[type_byte]);
            state.finish_32()
        }
        ChecksumKind::XxHash64 => {
            let mut state = twox_hash::XxHash64::with_seed(0);
            state.write(data);
            state.write(&[type_byte]);
            state.finish() as u32
        }
        ChecksumKind::Xxh3 => xxh3_64(data) as u32 ^ u32::from(type_byte).wrapping_mul(0x6b90_83d9),
    }
}

/// The checksum of bytes that no type byte follows, such as a footer.
pub fn checksum(kind: ChecksumKind, data: &[u8]) -> u32 {
    match (kind, data.split_last()) {
        (ChecksumKind::None, _) | (ChecksumKind::Xxh3, None) => 0,
        (ChecksumKind::Crc32c, _) => mask_crc(crc32c(data)),
        (ChecksumKind::XxHash, _) => xxh32(data),
        (ChecksumKind::XxHash64, _) => xxh64(data) as u32,
        (ChecksumKind::Xxh3, Some((&last, body))) => block_checksum(kind, body, last),
    }
}

/// What is added (wrapping) to the checksum of the block at `offset`, for tables of format 6 and
/// later. A base of 0 means that the file does not use it: the modifier is 0 as well.
#[inline]
pub const fn context_modifier(base_context_checksum: u32, offset: u64) -> u32 {
    if base_context_checksum == 0 {
        return 0;
    }
    base_context_checksum ^ (offset as u32).wrapping_add((offset >> 32) as u32)
}

#[cfg(test)]
mod tests;
