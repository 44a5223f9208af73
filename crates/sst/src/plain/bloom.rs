//! The filter of plain tables: six bits for each hash of 32 bits.
//!
//! ```text
//! no lines   the bits are spread over the whole block
//! lines      the bits of a hash are in one cache line of 64 bytes; the block is so many lines, an odd number
//! ```

const PROBES: u32 = 6;
const LINE_LEN: usize = 64;
const LINE_BITS: u32 = LINE_LEN as u32 * 8;

/// The bytes of a filter of `count` entries.
pub(super) fn build(hashes: &[u32], count: u64, bits_per_key: u32) -> Vec<u8> {
    // Places of bits have 32 bits.
    let bits = count.saturating_mul(u64::from(bits_per_key)).clamp(1, u64::from(u32::MAX) - 7);
    let mut bytes = vec![0u8; bits.div_ceil(8) as usize];
    let shape = Shape { bits: bytes.len() as u32 * 8, lines: 0 };
    for &hash in hashes {
        shape.for_each_bit(hash, |at| {
            bytes[at / 8] |= 1 << (at % 8);
            true
        });
    }
    bytes
}

/// How to ask a filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    bits: u32,
    lines: u32,
}

impl Shape {
    /// Of a filter of `len` bytes that is said to have so many lines. `None` if that cannot be.
    pub fn new(len: usize, lines: u32) -> Option<Self> {
        let bits = u32::try_from(len.checked_mul(8)?).ok().filter(|&bits| bits > 0)?;
        (lines as usize <= len / LINE_LEN).then_some(Self { bits, lines })
    }

    /// Whether something with `hash` may have been put into `filter`, which has the shape's length.
    pub fn may_have(self, filter: &[u8], hash: u32) -> bool {
        self.for_each_bit(hash, |at| filter.get(at / 8).is_none_or(|byte| byte & 1 << (at % 8) != 0))
    }

    /// Hands `visit` the places of the bits of `hash` until it answers false; answers whether it never did.
    fn for_each_bit(self, mut hash: u32, mut visit: impl FnMut(usize) -> bool) -> bool {
        let delta = hash.rotate_right(17);
        let line = if self.lines == 0 { 0 } else { hash.rotate_right(11) % self.lines };
        for _ in 0..PROBES {
            let at = match self.lines {
                0 => (hash % self.bits) as usize,
                _ => line as usize * LINE_LEN * 8 + (hash % LINE_BITS) as usize,
            };
            if !visit(at) {
                return false;
            }
            if self.lines > 0 {
                hash = hash.rotate_right(9); // So many bits say the place in the line.
            }
            hash = hash.wrapping_add(delta);
        }
        true
    }
}
