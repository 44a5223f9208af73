//! Inputs near other inputs, the same for the same seed.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// No input gets longer than this.
const MAX_LEN: usize = 8 << 10;
/// Numbers at which code changes its mind.
const INTERESTING: [u64; 16] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0x8000,
    0xffff,
    0x0fff_ffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 56,
    (1 << 56) - 1,
    1 << 63,
    u64::MAX,
];

/// Draws one mutation after another.
pub struct Mutator<'a> {
    rng: SmallRng,
    inputs: &'a [Vec<u8>],
}

impl<'a> Mutator<'a> {
    /// Of `inputs`; each target has numbers of its own.
    pub fn new(seed: u64, target: &str, inputs: &'a [Vec<u8>]) -> Self {
        let seed = ironstone_base::hash::hash64(target.as_bytes(), seed);
        Self { rng: SmallRng::seed_from_u64(seed), inputs }
    }

    fn any(&mut self) -> &'a [u8] {
        &self.inputs[self.rng.random_range(0..self.inputs.len())]
    }

    /// The next one: an input changed in one to four ways.
    pub fn next(&mut self) -> Vec<u8> {
        let mut bytes = self.any().to_vec();
        for _ in 0..self.rng.random_range(1..5) {
            self.change(&mut bytes);
        }
        bytes.truncate(MAX_LEN);
        bytes
    }

    /// A place in `bytes`, their end included. The beginning, where options stand, has its turn often.
    fn place(&mut self, bytes: &[u8]) -> usize {
        let end = if self.rng.random_bool(0.2) { bytes.len().min(12) } else { bytes.len() };
        self.rng.random_range(0..=end)
    }

    fn change(&mut self, bytes: &mut Vec<u8>) {
        let at = self.place(bytes);
        match self.rng.random_range(0..8) {
            0 | 1 => {
                let bit = self.rng.random_range(0..8);
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << bit);
            }
            2 => {
                let value: u8 = self.rng.random();
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = value);
            }
            3 => bytes.truncate(at),
            4 => {
                let count = self.rng.random_range(1..9);
                let value: u8 = self.rng.random();
                bytes.splice(at..at, std::iter::repeat_n(value, count));
            }
            5 => {
                let end = (at + self.rng.random_range(1..9)).min(bytes.len());
                bytes.drain(at..end);
            }
            6 => self.put_number(bytes, at),
            _ => {
                let other = self.any();
                let from = self.rng.random_range(0..=other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
        }
    }

    /// An interesting number, fixed or as a varint, over what is there or in front of it.
    fn put_number(&mut self, bytes: &mut Vec<u8>, at: usize) {
        let number = INTERESTING[self.rng.random_range(0..INTERESTING.len())];
        let mut encoded = Vec::new();
        match self.rng.random_range(0..4) {
            0 => encoded.extend_from_slice(&(number as u16).to_le_bytes()),
            1 => encoded.extend_from_slice(&(number as u32).to_le_bytes()),
            2 => encoded.extend_from_slice(&number.to_le_bytes()),
            _ => ironstone_base::coding::put_varint64(&mut encoded, number),
        }
        let over = if self.rng.random_bool(0.7) { encoded.len() } else { 0 };
        let end = (at + over).min(bytes.len());
        bytes.splice(at..end, encoded);
    }
}
