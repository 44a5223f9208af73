//! The Bloom filter of table format versions below 5: a 32-bit hash, double hashing within a cache line.
//!
//! ```text
//! lines       `line_count` lines of a power of two bytes: the writer's cache line, 64 on most machines
//! probes      u8, 1..=127
//! line_count  u32 LE
//! ```

use super::TRAILER_LEN;
use super::hashes::Hashes;

const LINE_LEN: usize = 64;
const LINE_BITS: u32 = LINE_LEN as u32 * 8;
/// Bit counts were computed in 32 bits; this much leaves room for rounding up.
const MAX_BITS: u64 = 0xffff_0000;

fn probes_for(bits_per_key: u32) -> u8 {
    ((f64::from(bits_per_key) * 0.69) as u8).clamp(1, 30) // 0.69 is about ln(2).
}

fn line_count_for(key_count: usize, bits_per_key: u32) -> u32 {
    if key_count == 0 {
        return 0;
    }
    let bits = (key_count as u64).saturating_mul(u64::from(bits_per_key)).min(MAX_BITS) as u32;
    // An odd number of lines makes the remainder depend on more bits of the hash.
    (bits.div_ceil(LINE_BITS)) | 1
}

/// Length of the filter of `key_count` keys with its trailer.
pub(super) fn space_for(key_count: usize, bits_per_key: u32) -> usize {
    line_count_for(key_count, bits_per_key) as usize * LINE_LEN + TRAILER_LEN
}

/// How many keys a filter of at most `len` bytes with its trailer is meant for.
pub(super) fn keys_for(len: usize, bits_per_key: u32) -> usize {
    let bits = (len as u64).saturating_mul(8).min(MAX_BITS);
    let most = bits / u64::from(bits_per_key) + 1;
    (1..=most as usize).rev().find(|&keys| space_for(keys, bits_per_key) <= len).unwrap_or(0)
}

/// Builds the filter of `hashes` (32 bits each), which are not empty.
pub(super) fn build(hashes: &Hashes, bits_per_key: u32) -> Vec<u8> {
    let probes = probes_for(bits_per_key);
    let line_count = line_count_for(hashes.len(), bits_per_key);
    let mut filter = vec![0; space_for(hashes.len(), bits_per_key)];
    let (lines, _) = filter.as_chunks_mut::<LINE_LEN>();
    hashes.iter().for_each(|hash| {
        let hash = hash as u32;
        let line = &mut lines[(hash % line_count) as usize];
        for bit in bits_of(hash, probes, LINE_BITS - 1) {
            line[bit / 8] |= 1 << (bit % 8);
        }
    });
    let trailer = filter.len() - TRAILER_LEN;
    filter[trailer] = probes;
    filter[trailer + 1..].copy_from_slice(&line_count.to_le_bytes());
    filter
}

/// The bit addresses within a line that `hash` sets.
#[inline]
fn bits_of(hash: u32, probes: u8, mask: u32) -> impl Iterator<Item = usize> {
    let delta = hash.rotate_right(17);
    (0..u32::from(probes)).map(move |i| (hash.wrapping_add(delta.wrapping_mul(i)) & mask) as usize)
}

/// How to probe one filter of this kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    line_count: u32,
    line_len: u32,
    probes: u8,
}

impl Shape {
    /// `None` if the lines do not fill the body.
    pub(super) fn decode(body_len: usize, probes: u8, settings: [u8; 4]) -> Option<Self> {
        let line_count = u32::from_le_bytes(settings);
        let body_len = u32::try_from(body_len).ok()?;
        let line_len = body_len.checked_div(line_count)?;
        let fits = line_len.is_power_of_two() && line_len.checked_mul(line_count) == Some(body_len);
        // Half a GiB per line is no cache line; the limit keeps bit addresses in 32 bits.
        (fits && line_len < 1 << 29).then_some(Self { line_count, line_len, probes })
    }

    /// Touches one line of `filter`.
    pub(super) fn may_match(self, filter: &[u8], hash: u32) -> bool {
        let start = (hash % self.line_count) as usize * self.line_len as usize;
        let Some(line) = filter.get(start..start + self.line_len as usize) else {
            return true; // Not the filter that this shape was read from.
        };
        bits_of(hash, self.probes, self.line_len * 8 - 1).all(|bit| line[bit / 8] & (1 << (bit % 8)) != 0)
    }
}
