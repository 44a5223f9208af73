//! Where a block is in its file, and what an index says about it.
//!
//! ```text
//! block handle:  offset varint64 | size varint64              (size without the 5-byte trailer)
//! index value:   block handle [| first key, length-prefixed]  (whole form)
//!                size - previous size, zigzag varint64 [| first key]   (delta form: the block begins
//!                                                                       where the previous one ends)
//! ```
//! Format reference: docs/format/sst.md, "Block handles" and "Index values".

use ironstone_base::Corrupt;
use ironstone_base::coding::{
    get_length_prefixed, get_varint64, get_varsigned64, put_length_prefixed, put_varint64, put_varsigned64,
};

/// What follows each block: one byte of compression type, four of checksum.
pub const BLOCK_TRAILER_LEN: usize = 5;

/// The place of a block in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct BlockHandle {
    /// The first byte of the block.
    pub offset: u64,
    /// How many bytes it takes, compressed, without the trailer.
    pub size: u64,
}

impl BlockHandle {
    /// Points nowhere.
    pub const NULL: Self = Self { offset: 0, size: 0 };
    /// The longest encoding.
    pub const MAX_ENCODED_LEN: usize = 20;

    /// Whether it points nowhere.
    pub const fn is_null(self) -> bool {
        self.offset == 0 && self.size == 0
    }
    /// The first byte after the block's trailer.
    pub const fn end(self) -> u64 {
        self.offset.saturating_add(self.size).saturating_add(BLOCK_TRAILER_LEN as u64)
    }
    /// Appends the encoding.
    pub fn encode(self, dst: &mut Vec<u8>) {
        put_varint64(dst, self.offset);
        put_varint64(dst, self.size);
    }
    /// Reads an encoding and advances `src` past it.
    #[inline]
    pub fn decode(src: &mut &[u8]) -> Result<Self, Corrupt> {
        let mut rest = *src;
        let (Some(offset), Some(size)) = (get_varint64(&mut rest), get_varint64(&mut rest)) else {
            return Err(Corrupt("block handle: bad varint"));
        };
        *src = rest;
        Ok(Self { offset, size })
    }
}

/// What an index entry says about its block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexValue<'a> {
    /// Where the block is.
    pub handle: BlockHandle,
    /// The first internal key of the block; empty if the index does not carry it.
    pub first_key: &'a [u8],
}

impl<'a> IndexValue<'a> {
    /// Appends the encoding; the delta form if the block before is given, which must end where this
    /// one begins.
    pub fn encode(&self, dst: &mut Vec<u8>, with_first_key: bool, previous: Option<BlockHandle>) {
        match previous {
            Some(previous) => {
                debug_assert_eq!(previous.end(), self.handle.offset);
                put_varsigned64(dst, self.handle.size.wrapping_sub(previous.size) as i64);
            }
            None => self.handle.encode(dst),
        }
        if with_first_key {
            put_length_prefixed(dst, self.first_key);
        }
    }
    /// Reads one value; the delta form if the block before is given.
    #[inline]
    pub fn decode(
        src: &mut &'a [u8],
        with_first_key: bool,
        previous: Option<BlockHandle>,
    ) -> Result<Self, Corrupt> {
        let handle = match previous {
            Some(previous) => {
                let delta = get_varsigned64(src).ok_or(Corrupt("index value: bad size delta"))?;
                let size =
                    previous.size.checked_add_signed(delta).ok_or(Corrupt("index value: bad size delta"))?;
                BlockHandle { offset: previous.end(), size }
            }
            None => BlockHandle::decode(src)?,
        };
        let first_key = match with_first_key {
            true => get_length_prefixed(src).ok_or(Corrupt("index value: bad first key"))?,
            false => &[],
        };
        Ok(Self { handle, first_key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip_in_both_forms() {
        let first = BlockHandle { offset: 10, size: 300 };
        for size in [0, 1, 299, 300, 301, 1 << 40] {
            let value = IndexValue { handle: BlockHandle { offset: first.end(), size }, first_key: b"key" };
            for previous in [None, Some(first)] {
                for with_first_key in [false, true] {
                    let mut bytes = Vec::new();
                    value.encode(&mut bytes, with_first_key, previous);
                    let decoded = IndexValue::decode(&mut &bytes[..], with_first_key, previous).unwrap();
                    assert_eq!(decoded.handle, value.handle);
                    assert_eq!(decoded.first_key, if with_first_key { &b"key"[..] } else { b"" });
                    for cut in 0..bytes.len() {
                        assert!(IndexValue::decode(&mut &bytes[..cut], with_first_key, previous).is_err());
                    }
                }
            }
        }
    }
}
