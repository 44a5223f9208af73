//! The last bytes of a table: where the metaindex is, and how to read the rest.
//!
//! ```text
//! LevelDB's magic, 48 bytes                 RocksDB's magic, 53 bytes
//!                                           checksum kind   u8
//! handles         40 bytes                  handles         40 bytes
//! magic           u64 LE                    format version  u32 LE
//!                                           magic           u64 LE
//!
//! handles, versions 0 to 5:                 handles, versions 6 and 7:
//! metaindex       2 varint64                extended magic  3e 00 7a 00
//! index           2 varint64                footer checksum u32 LE  of all 53 bytes, these 4 as zeros,
//! padding         zeros                                             plus the context modifier
//!                                           base context    u32 LE  not 0
//!                                           metaindex size  u32 LE  it ends where the footer begins
//!                                           reserved        16 bytes, ignored
//!                                           reserved        8 bytes, must be zeros
//! ```
//! LevelDB's magic means format version 0 and CRC-32C. From version 6 on the index is named in the
//! metaindex. Format reference: docs/format/sst.md, "Footer".

use crate::handle::{BLOCK_TRAILER_LEN, BlockHandle};
use ironstone_base::Corrupt;
use ironstone_base::checksum::{ChecksumKind, checksum, context_modifier};
use ironstone_base::coding::{get_fixed32, get_fixed64};

/// Ends block-based tables of RocksDB.
pub const MAGIC: u64 = 0x88e2_41b7_85f4_cff7;
/// Ends tables of LevelDB, and RocksDB's oldest.
pub const LEVELDB_MAGIC: u64 = 0xdb47_7524_8b80_fb57;
/// The newest format version that can be read.
pub const MAX_FORMAT_VERSION: u32 = 7;
/// The first format version with checksums that depend on file and offset.
pub const FIRST_CONTEXT_VERSION: u32 = 6;
/// The first version whose tables name the compression manager.
pub const FIRST_COMPRESSION_MANAGER_VERSION: u32 = 7;

/// Bytes of a footer with [`LEVELDB_MAGIC`].
pub const LEVELDB_FOOTER_LEN: usize = HANDLES_LEN + 8;
/// Bytes of a footer with [`MAGIC`].
pub const FOOTER_LEN: usize = 1 + HANDLES_LEN + 4 + 8;
const HANDLES_LEN: usize = 2 * BlockHandle::MAX_ENCODED_LEN;
const EXTENDED_MAGIC: [u8; 4] = [0x3e, 0x00, 0x7a, 0x00];
/// Where the footer's own checksum is.
const CHECKSUM_AT: usize = 1 + EXTENDED_MAGIC.len();

/// What the footer says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Footer {
    /// The version of the format: 0 to 7.
    pub format_version: u32,
    /// Whether the file ends with LevelDB's magic.
    pub leveldb_magic: bool,
    /// How the blocks are checked.
    pub checksum: ChecksumKind,
    /// What checksums are mixed with; 0 before version 6.
    pub base_context_checksum: u32,
    /// The metaindex block.
    pub metaindex: BlockHandle,
    /// The index block; null from version 6 on.
    pub index: BlockHandle,
}

impl Footer {
    /// The bytes that end a file, for a footer that begins at `offset`.
    ///
    /// From version 6 on the metaindex must end where the footer begins and be smaller than 4 GiB.
    pub fn encode(&self, offset: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FOOTER_LEN);
        if !self.leveldb_magic {
            bytes.push(self.checksum as u8);
        }
        let handles_at = bytes.len();
        if self.format_version >= FIRST_CONTEXT_VERSION {
            let size = u32::try_from(self.metaindex.size).expect("the caller bounds the metaindex");
            bytes.extend_from_slice(&EXTENDED_MAGIC);
            bytes.extend_from_slice(&[0; 4]);
            bytes.extend_from_slice(&self.base_context_checksum.to_le_bytes());
            bytes.extend_from_slice(&size.to_le_bytes());
        } else {
            self.metaindex.encode(&mut bytes);
            self.index.encode(&mut bytes);
        }
        bytes.resize(handles_at + HANDLES_LEN, 0);
        if self.leveldb_magic {
            bytes.extend_from_slice(&LEVELDB_MAGIC.to_le_bytes());
        } else {
            bytes.extend_from_slice(&self.format_version.to_le_bytes());
            bytes.extend_from_slice(&MAGIC.to_le_bytes());
        }
        if self.format_version >= FIRST_CONTEXT_VERSION {
            let sum = footer_checksum(&bytes, self.checksum, self.base_context_checksum, offset);
            bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        }
        debug_assert_eq!(Self::decode(&bytes, offset + bytes.len() as u64), Ok(*self));
        bytes
    }

    /// Reads the footer at the end of `tail`, the last bytes of a file of `file_size` bytes: at least
    /// [`FOOTER_LEN`] of them, or all if there are fewer.
    pub fn decode(tail: &[u8], file_size: u64) -> Result<Self, Corrupt> {
        let Some((_, magic)) = tail.split_last_chunk::<8>() else {
            return Err(Corrupt("footer: the file is too short to be an SST"));
        };
        match u64::from_le_bytes(*magic) {
            MAGIC => Self::decode_rocksdb(tail, file_size),
            LEVELDB_MAGIC => Self::decode_leveldb(tail),
            _ => Err(Corrupt("footer: not an SST (bad magic)")),
        }
    }

    fn decode_leveldb(tail: &[u8]) -> Result<Self, Corrupt> {
        let Some((_, footer)) = tail.split_last_chunk::<LEVELDB_FOOTER_LEN>() else {
            return Err(Corrupt("footer: the file is too short to be an SST"));
        };
        let mut handles = &footer[..HANDLES_LEN];
        Ok(Self {
            format_version: 0,
            leveldb_magic: true,
            checksum: ChecksumKind::Crc32c,
            base_context_checksum: 0,
            metaindex: BlockHandle::decode(&mut handles)?,
            index: BlockHandle::decode(&mut handles)?,
        })
    }

    fn decode_rocksdb(tail: &[u8], file_size: u64) -> Result<Self, Corrupt> {
        let Some((_, footer)) = tail.split_last_chunk::<FOOTER_LEN>() else {
            return Err(Corrupt("footer: the file is too short to be an SST"));
        };
        let mut version = &footer[1 + HANDLES_LEN..];
        let format_version = get_fixed32(&mut version).unwrap_or(u32::MAX);
        if format_version > MAX_FORMAT_VERSION {
            return Err(Corrupt("footer: the format version is newer than 7, the newest that is supported"));
        }
        let checksum = ChecksumKind::from_byte(footer[0]).ok_or(Corrupt("footer: unknown checksum kind"))?;
        let mut handles = &footer[1..1 + HANDLES_LEN];
        if format_version >= FIRST_CONTEXT_VERSION {
            return Self::decode_with_context(footer, format_version, checksum, file_size);
        }
        Ok(Self {
            format_version,
            leveldb_magic: false,
            checksum,
            base_context_checksum: 0,
            metaindex: BlockHandle::decode(&mut handles)?,
            index: BlockHandle::decode(&mut handles)?,
        })
    }

    fn decode_with_context(
        footer: &[u8; FOOTER_LEN],
        format_version: u32,
        kind: ChecksumKind,
        file_size: u64,
    ) -> Result<Self, Corrupt> {
        const SHORT: Corrupt = Corrupt("footer: the file is too short to be an SST");
        let offset = file_size.checked_sub(FOOTER_LEN as u64).ok_or(SHORT)?;
        let Some((magic, mut rest)) = footer[1..1 + HANDLES_LEN].split_first_chunk::<4>() else {
            return Err(SHORT);
        };
        if *magic != EXTENDED_MAGIC {
            return Err(Corrupt("footer: bad extended magic"));
        }
        let stored = get_fixed32(&mut rest).ok_or(SHORT)?;
        let base_context_checksum = get_fixed32(&mut rest).ok_or(SHORT)?;
        let metaindex_size = u64::from(get_fixed32(&mut rest).ok_or(SHORT)?);
        if base_context_checksum == 0 {
            return Err(Corrupt("footer: the base of the context checksums is 0"));
        }
        // Without a checksum kind there is still the context in the stored value.
        if stored != footer_checksum(footer, kind, base_context_checksum, offset) {
            return Err(Corrupt("footer: checksum mismatch"));
        }
        let mut must_be_zero = &rest[16..];
        if get_fixed64(&mut must_be_zero) != Some(0) {
            return Err(Corrupt("footer: the file uses a feature that is newer than this reader"));
        }
        let metaindex_at = offset.checked_sub(BLOCK_TRAILER_LEN as u64 + metaindex_size);
        let metaindex_at = metaindex_at.ok_or(Corrupt("footer: the metaindex is larger than the file"))?;
        Ok(Self {
            format_version,
            leveldb_magic: false,
            checksum: kind,
            base_context_checksum,
            metaindex: BlockHandle { offset: metaindex_at, size: metaindex_size },
            index: BlockHandle::NULL,
        })
    }
}

fn footer_checksum(footer: &[u8], kind: ChecksumKind, base: u32, offset: u64) -> u32 {
    let mut cleared = footer.to_vec();
    cleared[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    checksum(kind, &cleared).wrapping_add(context_modifier(base, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footers() -> Vec<(Footer, u64)> {
        let offset = 100_000;
        let metaindex = BlockHandle { offset: offset - 5 - 77, size: 77 };
        let index = BlockHandle { offset: 1234, size: 999 };
        let mut all = Vec::new();
        for checksum in (0..=4).filter_map(ChecksumKind::from_byte) {
            for format_version in 0..=MAX_FORMAT_VERSION {
                let context = format_version >= FIRST_CONTEXT_VERSION;
                all.push(Footer {
                    format_version,
                    leveldb_magic: false,
                    checksum,
                    base_context_checksum: if context { 0x1234_5678 } else { 0 },
                    metaindex,
                    index: if context { BlockHandle::NULL } else { index },
                });
            }
        }
        let checksum = ChecksumKind::Crc32c;
        all.push(Footer { checksum, format_version: 0, leveldb_magic: true, ..all[0] });
        all.into_iter().map(|footer| (footer, offset)).collect()
    }

    #[test]
    fn footers_round_trip_and_every_prefix_is_refused() {
        for (footer, offset) in footers() {
            let bytes = footer.encode(offset);
            let end = offset + bytes.len() as u64;
            assert_eq!(Footer::decode(&bytes, end), Ok(footer));
            for cut in 0..bytes.len() {
                assert!(Footer::decode(&bytes[..cut], offset + cut as u64).is_err());
            }
        }
    }

    #[test]
    fn with_context_checksums_every_flipped_byte_is_noticed() {
        for (footer, offset) in footers() {
            if footer.format_version < 6 || footer.checksum == ChecksumKind::None {
                continue;
            }
            let bytes = footer.encode(offset);
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x55;
                assert!(Footer::decode(&damaged, offset + bytes.len() as u64).is_err(), "{at}");
            }
            // The same bytes at another place are not a footer.
            assert!(Footer::decode(&bytes, offset + 1 + bytes.len() as u64).is_err());
        }
    }
}
