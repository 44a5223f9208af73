//! Bloom filter whose probes for one key all fall into one 64-byte cache line.
//!
//! ```text
//! lines     64 bytes each, at least one
//! marker    0xff
//! kind      0: this one; others are reserved
//! probes    low 5 bits: 1..=30 probes; high 3 bits: log2(line bytes) - 6, only 0 is in use
//! reserved  2 bytes, 0
//! ```
//!
//! The low half of a key's 64-bit hash picks the line. The high half, multiplied once more by the golden
//! ratio for each probe, gives a bit address within the line in its top 9 bits.

use super::hashes::Hashes;
use super::{TRAILER_LEN, fast_range_32};

pub(super) const MARKER: u8 = 0xff;
const LINE_LEN: usize = 64;
pub(super) type Line = [u8; LINE_LEN];

const MAX_BODY_LEN: usize = 0xffff_ffc0;
const MAX_PROBES: usize = 24;

/// 2^32 divided by the golden ratio.
const GOLDEN: u32 = 0x9e37_79b9;

/// Powers of [`GOLDEN`], so that the probes do not wait for one another.
const STEPS: [u32; 32] = {
    let mut steps = [1u32; 32];
    let mut i = 1;
    while i < steps.len() {
        steps[i] = steps[i - 1].wrapping_mul(GOLDEN);
        i += 1;
    }
    steps
};
const _: () = assert!(MAX_PROBES <= STEPS.len());

/// The number of probes with the fewest false positives at this size, as measured by RocksDB's authors.
pub(super) fn probes_for(millibits_per_key: u32) -> u32 {
    const LIMITS: [u32; 12] = [2080, 3580, 5100, 6640, 8300, 10070, 11720, 14001, 16050, 18300, 22001, 25501];
    match LIMITS.iter().position(|&limit| millibits_per_key <= limit) {
        Some(index) => index as u32 + 1,
        None if millibits_per_key > 50_000 => MAX_PROBES as u32,
        None => (millibits_per_key - 1) / 2000 - 1,
    }
}

/// Length of the filter of `key_count` keys with its trailer.
pub(super) fn space_for(key_count: usize, millibits_per_key: u32) -> usize {
    let bits = (key_count as u128 * u128::from(millibits_per_key)).div_ceil(1000);
    let body = bits.div_ceil(8).min(MAX_BODY_LEN as u128) as usize;
    body.next_multiple_of(LINE_LEN) + TRAILER_LEN
}

/// About how many keys a filter of `len` bytes with its trailer is meant for.
pub(super) fn keys_for(len: usize, millibits_per_key: u32) -> usize {
    let body = len.saturating_sub(TRAILER_LEN).min(MAX_BODY_LEN) & !(LINE_LEN - 1);
    (8000 * body as u64 / u64::from(millibits_per_key)) as usize
}

/// Builds the filter of `hashes`, which are not empty.
pub(super) fn build(hashes: &Hashes, millibits_per_key: u32) -> Vec<u8> {
    let probes = probes_for(millibits_per_key);
    let mut filter = vec![0; space_for(hashes.len(), millibits_per_key)];
    let body_len = filter.len() - TRAILER_LEN;
    let (body, trailer) = filter.split_at_mut(body_len);
    add_all(body.as_chunks_mut().0, hashes, probes);
    trailer.copy_from_slice(&[MARKER, 0, probes as u8, 0, 0]);
    filter
}

fn add_all(lines: &mut [Line], hashes: &Hashes, probes: u32) {
    let line_count = lines.len() as u32;
    hashes.iter().for_each(|hash| {
        let line = &mut lines[fast_range_32(hash as u32, line_count) as usize];
        for step in &STEPS[..probes as usize] {
            let (byte, mask) = bit_address((hash >> 32) as u32, *step);
            line[byte] |= mask;
        }
    });
}

fn bit_address(hash: u32, step: u32) -> (usize, u8) {
    let probe = hash.wrapping_mul(step);
    ((probe >> 26) as usize, 1 << ((probe >> 23) & 7))
}

/// How to probe one filter of this kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    line_count: u32,
    probes: u8,
}

impl Shape {
    /// `None` if the settings are reserved for a future kind.
    pub(super) fn decode(body_len: usize, settings: [u8; 4]) -> Option<Self> {
        let [kind, probes, reserved @ ..] = settings;
        let line_count = u32::try_from(body_len / LINE_LEN).ok()?;
        let known = kind == 0 && (1..=30).contains(&probes) && reserved == [0, 0] && line_count > 0;
        known.then_some(Self { line_count, probes })
    }

    /// The cache line that [`may_match`](Self::may_match) touches.
    #[inline]
    pub(super) fn line(self, filter: &[u8], hash: u64) -> Option<&Line> {
        let lines: &[Line] = filter.as_chunks().0;
        lines.get(fast_range_32(hash as u32, self.line_count) as usize)
    }

    /// Touches one cache line of `filter`.
    #[inline]
    pub(super) fn may_match(self, filter: &[u8], hash: u64) -> bool {
        let Some(line) = self.line(filter, hash) else {
            return true; // Not the filter that this shape was read from.
        };
        // No early exit: half of the probes of an absent key miss, so a branch each would be mispredicted
        // more often than it saves work.
        let mut all = 0xff;
        for step in STEPS.iter().take(usize::from(self.probes)) {
            let (byte, mask) = bit_address((hash >> 32) as u32, *step);
            all &= u8::from(line[byte] & mask != 0);
        }
        all != 0
    }
}
