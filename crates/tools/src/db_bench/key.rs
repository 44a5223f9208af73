//! Keys, byte for byte those of RocksDB's db_bench, so that either tool reads the other's databases.
//!
//! ```text
//! without keys_per_prefix   number (8 bytes, big endian) | '0' ...
//! with keys_per_prefix      number % prefixes (as the number) | '0' ... | number | '0' ...
//!                           `--- prefix_size -----------------------'
//! ```
//! A number that has less room than 8 bytes loses its high bytes.

use super::flags::Flags;

/// How a number becomes a key.
#[derive(Clone, Copy, Debug)]
pub struct KeyLayout {
    key_size: usize,
    prefix_size: usize,
    /// How many prefixes there are; 0: keys have no prefix of their own.
    prefixes: u64,
}

impl KeyLayout {
    /// The layout that `flags` ask for, with keys of `key_size` bytes.
    pub fn new(flags: &Flags, key_size: usize) -> Self {
        let prefixes = match flags.keys_per_prefix {
            0 => 0,
            per_prefix => (flags.num / per_prefix).max(1) as u64,
        };
        Self { key_size, prefix_size: flags.prefix_size as usize, prefixes }
    }

    /// A key to fill.
    pub fn key(&self) -> Key {
        Key { layout: *self, bytes: vec![b'0'; self.key_size].into() }
    }
}

/// The bytes of a key, to be used again and again.
#[derive(Clone, Debug)]
pub struct Key {
    layout: KeyLayout,
    /// What no number reaches stays '0'.
    bytes: Box<[u8]>,
}

impl Key {
    /// Makes it the key of `number`.
    #[inline]
    pub fn set(&mut self, number: u64) -> &[u8] {
        if self.layout.prefixes == 0 {
            put_number(&mut self.bytes, number);
        } else {
            let (prefix, rest) = self.bytes.split_at_mut(self.layout.prefix_size);
            put_number(prefix, number % self.layout.prefixes);
            put_number(rest, number);
        }
        &self.bytes
    }

    /// Makes it a key near that of `number` whose prefix no key has. The layout must have a prefix of
    /// more than 8 bytes.
    pub fn set_missing_prefix(&mut self, number: u64) -> &[u8] {
        self.set(number);
        self.bytes[8] = b'1'; // There is a '0' in all keys.
        &self.bytes
    }

    /// Its bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[inline]
fn put_number(room: &mut [u8], number: u64) {
    let digits = number.to_be_bytes();
    match room.first_chunk_mut::<8>() {
        Some(chunk) => *chunk = digits,
        None => room.copy_from_slice(&digits[8 - room.len()..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(flags: &Flags, key_size: usize, number: u64) -> Vec<u8> {
        KeyLayout::new(flags, key_size).key().set(number).to_vec()
    }

    #[test]
    fn a_number_is_padded_or_cut() {
        let flags = Flags::default();
        assert_eq!(key(&flags, 10, 0x0102), b"\0\0\0\0\0\0\x01\x0200");
        assert_eq!(key(&flags, 2, 0x010203), b"\x02\x03");
    }

    #[test]
    fn a_prefix_comes_first() {
        let flags = Flags { num: 100, keys_per_prefix: 10, prefix_size: 9, ..Flags::default() };
        assert_eq!(key(&flags, 18, 0x17), b"\0\0\0\0\0\0\0\x030\0\0\0\0\0\0\0\x170");
        let short = Flags { prefix_size: 2, ..flags };
        assert_eq!(key(&short, 4, 0x17), b"\0\x03\0\x17");
    }
}
