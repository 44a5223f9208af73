//! Keys and values: the same for every engine, and made from a number alone, so that whoever reads a record can check it.

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

/// Bytes of a key.
pub const KEY_BYTES: usize = 16;
/// Bytes of a key.
pub type Key = [u8; KEY_BYTES];

/// The key of `number`, as RocksDB's db_bench makes it: 8 bytes, big endian, then the digit 0.
#[inline]
pub fn key(number: u64) -> Key {
    padded(number, b'0')
}

/// A key between that of `number` and the next, which no record has.
#[inline]
pub fn missing_key(number: u64) -> Key {
    padded(number, b'1')
}

/// A key between that of `number` and the next, the first nine bytes of which no record has.
#[inline]
pub fn prefixless_key(number: u64) -> Key {
    let mut key = missing_key(number);
    key[8] = b'1';
    key
}

#[inline]
fn padded(number: u64, last: u8) -> Key {
    let mut key = [b'0'; KEY_BYTES];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key[KEY_BYTES - 1] = last;
    key
}

/// Bytes of text, longer than any window of a codec, so that no value finds an earlier copy of itself.
const TEXT_BYTES: usize = 1 << 20;
/// Each so many bytes are half as many random ones, twice: values compress to a half, as those of db_bench do.
const FRAGMENT: usize = 100;

/// All values that there are.
#[derive(Clone, Debug)]
pub struct Values {
    text: Box<[u8]>,
    value_bytes: usize,
    starts: u64,
}

impl Values {
    /// Values of so many bytes.
    pub fn new(value_bytes: usize) -> Self {
        let mut random = SmallRng::seed_from_u64(301);
        let mut text = Vec::with_capacity(TEXT_BYTES + value_bytes + FRAGMENT);
        while text.len() < TEXT_BYTES + value_bytes {
            let start = text.len();
            text.extend((0..FRAGMENT / 2).map(|_| random.random_range(b' '..=b'~')));
            text.extend_from_within(start..);
        }
        Self { text: text.into(), value_bytes, starts: (TEXT_BYTES / FRAGMENT) as u64 }
    }

    /// The value of `number` after `generation` overwrites.
    #[inline]
    pub fn value(&self, number: u64, generation: u64) -> &[u8] {
        let start = below(mix(number ^ generation.rotate_left(40)), self.starts) as usize * FRAGMENT;
        &self.text[start..start + self.value_bytes]
    }
}

/// Spreads bits over all bits (SplitMix64).
#[inline]
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// From 64 random bits to a number below `bound`.
#[inline]
fn below(bits: u64, bound: u64) -> u64 {
    ((u128::from(bits) * u128::from(bound)) >> 64) as u64
}

/// Record numbers, all as likely as each other, with repetitions.
#[derive(Debug)]
pub struct Picks {
    random: SmallRng,
    records: u64,
}

impl Picks {
    /// Numbers below `records`; each `seed` gives its own sequence.
    pub fn new(records: u64, seed: u64) -> Self {
        Self { random: SmallRng::seed_from_u64(mix(seed)), records: records.max(1) }
    }
    /// The next number.
    #[inline]
    pub fn next(&mut self) -> u64 {
        below(self.random.random(), self.records)
    }
}

/// All numbers below a bound once each, in an order that looks random: a Feistel network over the next power of four,
/// which is walked on while it leaves the bound.
#[derive(Clone, Copy, Debug)]
pub struct Shuffle {
    count: u64,
    half_bits: u32,
}

impl Shuffle {
    /// The numbers below `count`.
    pub fn new(count: u64) -> Self {
        let bits = 64 - count.saturating_sub(1).leading_zeros();
        Self { count, half_bits: bits.div_ceil(2).max(1) }
    }
    /// What stands at `position`, which must be below the count.
    #[inline]
    pub fn at(&self, position: u64) -> u64 {
        let mut number = position;
        loop {
            number = self.permute(number);
            if number < self.count {
                return number;
            }
        }
    }
    #[inline]
    fn permute(&self, number: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for round in 0..4u64 {
            (left, right) = (right, left ^ (mix(right | (round + 1) << 56) & mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_their_numbers_and_missing_ones_lie_between() {
        let mut keys: Vec<Key> = [0, 1, 255, 256, u64::MAX].map(key).to_vec();
        keys.insert(2, missing_key(1));
        assert!(keys.is_sorted());
        assert_eq!(&key(0x0102)[..], b"\0\0\0\0\0\0\x01\x0200000000");
        assert_eq!(&missing_key(0x0102)[..], b"\0\0\0\0\0\0\x01\x0200000001");
    }

    #[test]
    fn a_shuffle_has_every_number_once_and_not_in_order() {
        for count in [1, 2, 3, 16, 17, 1000, 4096, 5000] {
            let shuffle = Shuffle::new(count);
            let order: Vec<u64> = (0..count).map(|position| shuffle.at(position)).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert!(sorted.iter().copied().eq(0..count), "{count}");
            // In a random order about half of the neighbours rise.
            let rises = order.windows(2).filter(|pair| pair[0] < pair[1]).count() as f64;
            assert!(count < 1000 || (rises / count as f64 - 0.5).abs() < 0.05, "{count}: {rises} rises");
        }
    }

    #[test]
    fn values_repeat_half_of_themselves_and_differ_from_each_other() {
        let values = Values::new(100);
        let value = values.value(7, 0);
        assert_eq!(value[..50], value[50..]);
        assert_eq!(value, Values::new(100).value(7, 0));
        assert_ne!(value, values.value(8, 0));
        assert_ne!(value, values.value(7, 1));
        let long = Values::new(4000);
        assert!((0..100_000).all(|number| long.value(number, 3).len() == 4000));
    }

    #[test]
    fn picks_reach_every_record_alike() {
        let mut picks = Picks::new(10, 1);
        let mut seen = [0; 10];
        (0..10_000).for_each(|_| seen[picks.next() as usize] += 1);
        assert!(seen.iter().all(|&count| (800..1200).contains(&count)), "{seen:?}");
    }
}
