//! Varints and fixed-width little-endian integers, the way LevelDB and RocksDB write them.
//!
//! Decoders take `&mut &[u8]`, advance it past what they read, and answer `None` when the input
//! ends early or the number is too large; they never panic.

/// The longest varint32.
pub const MAX_VARINT32_LEN: usize = 5;
/// The longest varint64.
pub const MAX_VARINT64_LEN: usize = 10;

/// Appends `value` in 4 bytes.
pub fn put_fixed32(dst: &mut Vec<u8>, value: u32) {
    dst.extend_from_slice(&value.to_le_bytes());
}
/// Appends `value` in 8 bytes.
pub fn put_fixed64(dst: &mut Vec<u8>, value: u64) {
    dst.extend_from_slice(&value.to_le_bytes());
}
/// Appends `value` in 1 to 5 bytes.
#[inline]
pub fn put_varint32(dst: &mut Vec<u8>, value: u32) {
    put_varint64(dst, u64::from(value));
}
/// Appends `value` in 1 to 10 bytes.
#[inline]
pub fn put_varint64(dst: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        dst.push((value as u8) | 0x80);
        value >>= 7;
    }
    dst.push(value as u8);
}
/// Appends the zigzag form of `value` (small magnitudes are short).
pub fn put_varsigned64(dst: &mut Vec<u8>, value: i64) {
    put_varint64(dst, ((value as u64) << 1) ^ ((value >> 63) as u64));
}
/// Appends a varint32 length and the bytes.
#[inline]
pub fn put_length_prefixed(dst: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).expect("callers bound keys and values to 4 GiB");
    put_varint32(dst, len);
    dst.extend_from_slice(bytes);
}

/// Reads 4 bytes.
#[inline]
pub fn get_fixed32(src: &mut &[u8]) -> Option<u32> {
    let (head, tail) = src.split_first_chunk::<4>()?;
    *src = tail;
    Some(u32::from_le_bytes(*head))
}
/// Reads 8 bytes.
#[inline]
pub fn get_fixed64(src: &mut &[u8]) -> Option<u64> {
    let (head, tail) = src.split_first_chunk::<8>()?;
    *src = tail;
    Some(u64::from_le_bytes(*head))
}
/// Reads a varint of at most 32 bits.
#[inline]
pub fn get_varint32(src: &mut &[u8]) -> Option<u32> {
    // The common case: one byte.
    let (&first, tail) = src.split_first()?;
    if first < 0x80 {
        *src = tail;
        return Some(u32::from(first));
    }
    let mut rest = *src;
    let value = u32::try_from(get_varint64(&mut rest)?).ok()?;
    (src.len() - rest.len() <= MAX_VARINT32_LEN).then(|| {
        *src = rest;
        value
    })
}
/// Reads a varint of at most 64 bits.
#[inline]
pub fn get_varint64(src: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (index, &byte) in src.iter().enumerate().take(MAX_VARINT64_LEN) {
        let bits = u64::from(byte & 0x7f);
        if index == 9 && bits > 1 {
            return None;
        }
        value |= bits << (7 * index);
        if byte < 0x80 {
            *src = &src[index + 1..];
            return Some(value);
        }
    }
    None
}
/// Reads a zigzag varint.
pub fn get_varsigned64(src: &mut &[u8]) -> Option<i64> {
    let raw = get_varint64(src)?;
    Some(((raw >> 1) as i64) ^ -((raw & 1) as i64))
}
/// Reads a varint32 length and that many bytes.
#[inline]
pub fn get_length_prefixed<'a>(src: &mut &'a [u8]) -> Option<&'a [u8]> {
    let mut rest = *src;
    let len = get_varint32(&mut rest)? as usize;
    let (head, tail) = rest.split_at_checked(len)?;
    *src = tail;
    Some(head)
}
/// How many bytes the varint of `value` takes.
pub const fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_and_refuse_every_prefix() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                put_varint64(&mut bytes, value);
                assert_eq!(bytes.len(), varint_len(value), "{value}");
                assert_eq!(get_varint64(&mut bytes.as_slice()), Some(value));
                for cut in 0..bytes.len() {
                    assert_eq!(get_varint64(&mut &bytes[..cut]), None);
                }
                let narrow = get_varint32(&mut bytes.as_slice());
                assert_eq!(narrow, u32::try_from(value).ok(), "{value}");
            }
        }
    }

    #[test]
    fn overlong_varints_are_refused() {
        assert_eq!(get_varint64(&mut [0xff; 10].as_slice()), None);
        assert_eq!(get_varint64(&mut [0xff; 11].as_slice()), None);
        let mut seven = [0x80, 0x80, 0x80, 0x80, 0x80, 0].as_slice();
        assert_eq!(get_varint32(&mut seven), None);
    }

    #[test]
    fn signed_varints_round_trip() {
        for value in [0, 1, -1, 63, -64, i64::MAX, i64::MIN] {
            let mut bytes = Vec::new();
            put_varsigned64(&mut bytes, value);
            assert_eq!(get_varsigned64(&mut bytes.as_slice()), Some(value));
        }
    }

    #[test]
    fn a_length_beyond_the_input_reads_nothing() {
        let mut bytes = [200u8, 1, b'a'].as_slice();
        assert_eq!(get_length_prefixed(&mut bytes), None);
        assert_eq!(bytes.len(), 3);
    }
}
