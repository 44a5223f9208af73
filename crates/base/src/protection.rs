//! Checksums of single entries while they are in memory: `protection_bytes_per_key` and its likes.
//!
//! ```text
//! part(key) ^ part(value) ^ part(kind)     an entry
//!   ^ part(column family)                  in a batch
//!   ^ part(sequence number)                in a memtable, which keeps some of the bytes
//! ```
//! A part is put in or taken out without looking at the others, so what an entry has in a memtable comes from what it had in
//! its batch, and not from bytes that may have changed on the way. Nothing of it is ever written to a file.

use crate::hash::xxh3_64;
use crate::internal_key::{SequenceNumber, ValueType};
use crate::{ColumnFamilyId, Error};

/// The checksum of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Protection(u64);

/// Bytes of a whole checksum; fewer are its first ones.
pub const PROTECTION_LEN: usize = 8;

/// Whether a checksum may have so many bytes.
pub const fn is_protection_len(bytes: u32) -> bool {
    matches!(bytes, 0 | 1 | 2 | 4 | 8)
}

const KEY: u64 = 0x9e37_79b9_7f4a_7c15;
const VALUE: u64 = 0xc2b2_ae3d_27d4_eb4f;
const KIND: u64 = 0x1656_67b1_9e37_79f9;
const COLUMN_FAMILY: u64 = 0x27d4_eb2f_1656_67c5;
const SEQUENCE: u64 = 0x8525_8bcf_4f5c_d1b3;

impl Protection {
    /// Of an entry that is not yet anywhere. For a range tombstone, `value` is its end.
    pub fn new(kind: ValueType, key: &[u8], value: &[u8]) -> Self {
        let kind = mixed(kind as u64, KIND);
        Self(mixed(xxh3_64(key), KEY) ^ mixed(xxh3_64(value), VALUE) ^ kind)
    }
    /// Puts a column family in, or takes it out.
    pub fn toggle_column_family(self, id: ColumnFamilyId) -> Self {
        Self(self.0 ^ mixed(u64::from(id.0), COLUMN_FAMILY))
    }
    /// Puts a sequence number in, or takes it out.
    pub fn toggle_sequence(self, sequence: SequenceNumber) -> Self {
        Self(self.0 ^ mixed(sequence.0, SEQUENCE))
    }
    /// The checksum.
    pub fn to_bytes(self) -> [u8; PROTECTION_LEN] {
        self.0.to_le_bytes()
    }
}

/// Each bit of `value` changes about half of the bits, and no two values become the same.
fn mixed(value: u64, seed: u64) -> u64 {
    let mut bits = value ^ seed;
    bits = (bits ^ bits >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits = (bits ^ bits >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    bits ^ bits >> 33
}

/// What is said of bytes that changed in memory.
#[cold]
pub fn changed_in_memory(what: &str, option: &str) -> Error {
    Error::corruption(format!(
        "{what} does not match its checksum ({option}): memory was changed behind the engine's back; check this machine's memory"
    ))
}

/// Bits that tests flip, at the places where memory may go bad. Only with debug assertions.
#[doc(hidden)]
pub mod planted {
    /// Where a bit is flipped.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Place {
        /// In the value, with its checksum, of an entry that goes into a memtable.
        MemTable,
        /// In the user key of an entry that goes into a memtable, which takes the place that the key had before.
        MemTableKey,
        /// In the begin of a range tombstone that goes into a memtable.
        RangeTombstone,
        /// In a data block that was read and checked.
        DataBlock,
        /// In the keys of an index block that was read and checked.
        IndexBlock,
        /// In the first of the hashes that a filter is made of.
        FilterHashes,
        /// In a filter that was made.
        Filter,
    }

    #[cfg(debug_assertions)]
    thread_local! {
        static NEXT: std::cell::Cell<Option<(Place, usize)>> = const { std::cell::Cell::new(None) };
    }

    /// Flips bit `bit` (of so many as there are) of what this thread next puts into `place`.
    #[cfg(debug_assertions)]
    pub fn plant(place: Place, bit: usize) {
        NEXT.set(Some((place, bit)));
    }
    /// Whether what was planted has not been reached.
    #[cfg(debug_assertions)]
    pub fn is_waiting() -> bool {
        NEXT.get().is_some()
    }

    /// Flips what was planted for this place.
    #[inline]
    pub fn flip(place: Place, bytes: &mut [u8]) {
        #[cfg(debug_assertions)]
        if let Some((planted, bit)) = NEXT.get()
            && planted == place
            && !bytes.is_empty()
        {
            bytes[bit / 8 % bytes.len()] ^= 1 << (bit % 8);
            NEXT.set(None);
        }
        #[cfg(not(debug_assertions))]
        let _ = (place, bytes);
    }
    /// The same of a number.
    #[inline]
    pub fn flip_number(place: Place, number: &mut u64) {
        if cfg!(debug_assertions) {
            let mut bytes = number.to_le_bytes();
            flip(place, &mut bytes);
            *number = u64::from_le_bytes(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every bit of every part matters, also to a checksum of one byte (which misses one flip in 256).
    #[test]
    fn every_bit_counts() {
        let (key, value, cf, sequence) = (*b"some key", *b"a value", 5u32, 0x12_3456u64);
        let of = |key: &[u8], value: &[u8], kind, cf, sequence| {
            let entry = Protection::new(kind, key, value);
            entry.toggle_column_family(ColumnFamilyId(cf)).toggle_sequence(SequenceNumber(sequence))
        };
        let right = of(&key, &value, ValueType::Value, cf, sequence);
        let mut wrong = vec![of(&key, &value, ValueType::Merge, cf, sequence)];
        wrong.push(of(&value, &key, ValueType::Value, cf, sequence));
        for bit in 0..64 {
            let mut key = key;
            key[bit / 8] ^= 1 << (bit % 8);
            wrong.push(of(&key, &value, ValueType::Value, cf, sequence));
        }
        for bit in 0..56 {
            let mut value = value;
            value[bit / 8] ^= 1 << (bit % 8);
            wrong.push(of(&key, &value, ValueType::Value, cf, sequence));
            wrong.push(of(&key, &value, ValueType::Value, cf, sequence ^ 1 << bit));
        }
        wrong.extend((0..32).map(|bit| of(&key, &value, ValueType::Value, cf ^ 1 << bit, sequence)));
        assert!(wrong.iter().all(|wrong| *wrong != right));
        let missed = wrong.iter().filter(|wrong| wrong.to_bytes()[0] == right.to_bytes()[0]).count();
        assert!(missed < 8, "{missed} of {}", wrong.len());
    }

    #[test]
    fn a_part_is_taken_out_again() {
        let entry = Protection::new(ValueType::Value, b"k", b"v");
        let id = ColumnFamilyId(3);
        assert_ne!(entry.toggle_column_family(id), entry);
        assert_eq!(entry.toggle_column_family(id).toggle_column_family(id), entry);
    }
}
