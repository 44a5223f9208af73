//! Hashes whose values are part of the on-disk formats.
//!
//! ```text
//! hash64   XXPH3: filters (format_version >= 5), partitioning of keys. A fork of a preview of XXH3:
//!          no length gives the same value as XXH3
//! hash32   Murmur-1 like: legacy bloom filters (seed 0xbc9f1d34), data block hash index and plain tables (seed 397)
//! xxh32, xxh64, xxh3_64: the published XXH functions, seed 0: block checksums
//! ```
//! Format reference: docs/format/checksums.md, "Hashes".

/// XXH32 of `data` with seed 0.
#[inline]
pub fn xxh32(data: &[u8]) -> u32 {
    twox_hash::XxHash32::oneshot(0, data)
}

/// XXH64 of `data` with seed 0.
#[inline]
pub fn xxh64(data: &[u8]) -> u64 {
    twox_hash::XxHash64::oneshot(0, data)
}

/// XXH3 (64 bits, the final one) of `data` with seed 0.
#[inline]
pub fn xxh3_64(data: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot(data)
}

/// The hash that legacy bloom filters and the data block hash index use.
pub fn hash32(data: &[u8], seed: u32) -> u32 {
    const MULTIPLIER: u32 = 0xc6a4_a793;
    let mut hash = seed ^ (data.len() as u32).wrapping_mul(MULTIPLIER);

    let (words, rest) = data.as_chunks::<4>();
    for word in words {
        hash = hash.wrapping_add(u32::from_le_bytes(*word)).wrapping_mul(MULTIPLIER);
        hash ^= hash >> 16;
    }
    if !rest.is_empty() {
        // The tail bytes count as signed: that was how the first implementation's compiler saw them.
        for (index, &byte) in rest.iter().enumerate() {
            hash = hash.wrapping_add((i32::from(byte as i8) as u32) << (8 * index));
        }
        hash = hash.wrapping_mul(MULTIPLIER);
        hash ^= hash >> 24;
    }
    hash
}

/// MurmurHash64A of `data`: what cuckoo tables that were written on x86-64 use.
pub fn murmur64a(data: &[u8], seed: u32) -> u64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mut hash = u64::from(seed) ^ (data.len() as u64).wrapping_mul(MULTIPLIER);
    let (words, rest) = data.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        word = (word ^ word >> SHIFT).wrapping_mul(MULTIPLIER);
        hash = (hash ^ word).wrapping_mul(MULTIPLIER);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(MULTIPLIER);
    hash ^ hash >> SHIFT
}

/// XXPH3 of `data`: what full filters and the hash-based parts of newer formats call the 64-bit hash.
#[inline]
pub fn hash64(data: &[u8], seed: u64) -> u64 {
    match data.len() {
        17..=128 => hash_17_to_128(data, seed),
        9..=16 => hash_9_to_16(data, seed),
        4..=8 => hash_4_to_8(data, seed),
        1..=3 => hash_1_to_3(data, seed),
        0 => multiply_fold(seed.wrapping_add(secret_u64(0)), PRIME64[1]),
        129..=240 => hash_129_to_240(data, seed),
        _ => hash_long(data, seed),
    }
}

const PRIME32: [u64; 3] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d];
const PRIME64: [u64; 5] = [
    0x9e37_79b1_85eb_ca87,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0x85eb_ca77_c2b2_ae63,
    0x27d4_eb2f_1656_67c5,
];

const SECRET_LEN: usize = 192;
/// Random bytes that the input is mixed with; the same as in the final XXH3.
static SECRET: [u8; SECRET_LEN] = *b"\
    \xb8\xfe\x6c\x39\x23\xa4\x4b\xbe\x7c\x01\x81\x2c\xf7\x21\xad\x1c\xde\xd4\x6d\xe9\x83\x90\x97\xdb\
    \x72\x40\xa4\xa4\xb7\xb3\x67\x1f\xcb\x79\xe6\x4e\xcc\xc0\xe5\x78\x82\x5a\xd0\x7d\xcc\xff\x72\x21\
    \xb8\x08\x46\x74\xf7\x43\x24\x8e\xe0\x35\x90\xe6\x81\x3a\x26\x4c\x3c\x28\x52\xbb\x91\xc3\x00\xcb\
    \x88\xd0\x65\x8b\x1b\x53\x2e\xa3\x71\x64\x48\x97\xa2\x0d\xf9\x4e\x38\x19\xef\x46\xa9\xde\xac\xd8\
    \xa8\xfa\x76\x3f\xe3\x9c\x34\x3f\xf9\xdc\xbb\xc7\xc7\x0b\x4f\x1d\x8a\x51\xe0\x4b\xcd\xb4\x59\x31\
    \xc8\x9f\x7e\xc9\xd9\x78\x73\x64\xea\xc5\xac\x83\x34\xd3\xeb\xc3\xc5\x81\xa0\xff\xfa\x13\x63\xeb\
    \x17\x0d\xdd\x51\xb7\xf0\xda\x49\xd3\x16\x55\x26\x29\xd4\x68\x9e\x2b\x16\xbe\x58\x7d\x47\xa1\xfc\
    \x8f\xf8\xb8\xd1\x7a\xd0\x31\xce\x45\xcb\x3a\x8f\x95\x16\x04\x28\xaf\xd7\xfb\xca\xbb\x4b\x40\x7e";

/// The 8 secret bytes at `offset`. Every caller passes a constant, so this folds to one.
#[inline(always)]
const fn secret_u64(offset: usize) -> u64 {
    word(&SECRET, offset)
}

/// The 8 bytes of `bytes` at `offset`, little-endian. The caller's length class keeps it in bounds.
#[inline(always)]
const fn word(bytes: &[u8], offset: usize) -> u64 {
    match bytes.split_at(offset).1.first_chunk::<8>() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => panic!("the length class guarantees 8 bytes here"),
    }
}

/// The two halves of the 128-bit product, xored.
#[inline(always)]
fn multiply_fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[inline(always)]
fn avalanche(mut hash: u64) -> u64 {
    hash ^= hash >> 37;
    hash = hash.wrapping_mul(PRIME64[2]);
    hash ^ (hash >> 32)
}

#[inline(always)]
fn hash_1_to_3(data: &[u8], seed: u64) -> u64 {
    let (len, secret) = (data.len(), secret_u64(0) & 0xffff_ffff);
    let bytes = [data[0], data[len >> 1], data[len - 1], len as u8];
    let keyed = u64::from(u32::from_le_bytes(bytes)) ^ secret.wrapping_add(seed);
    avalanche(keyed.wrapping_mul(PRIME64[0]))
}

#[inline(always)]
fn hash_4_to_8(data: &[u8], seed: u64) -> u64 {
    let (Some(head), Some(tail)) = (data.first_chunk::<4>(), data.last_chunk::<4>()) else {
        unreachable!("4 bytes or more");
    };
    let both = u64::from(u32::from_le_bytes(*head)) | u64::from(u32::from_le_bytes(*tail)) << 32;
    let keyed = both ^ secret_u64(0).wrapping_add(seed);
    let mixed = (keyed ^ (keyed >> 51)).wrapping_mul(PRIME32[0]).wrapping_add(data.len() as u64);
    avalanche((mixed ^ (mixed >> 47)).wrapping_mul(PRIME64[1]))
}

#[inline(always)]
fn hash_9_to_16(data: &[u8], seed: u64) -> u64 {
    let (Some(head), Some(tail)) = (data.first_chunk::<8>(), data.last_chunk::<8>()) else {
        unreachable!("8 bytes or more");
    };
    let low = u64::from_le_bytes(*head) ^ secret_u64(0).wrapping_add(seed);
    let high = u64::from_le_bytes(*tail) ^ secret_u64(8).wrapping_sub(seed);
    let sum = low.wrapping_add(high).wrapping_add(data.len() as u64);
    avalanche(sum.wrapping_add(multiply_fold(low, high)))
}

/// Mixes 16 bytes of input with 16 bytes of the secret.
#[inline(always)]
fn mix_16(piece: &[u8; 16], secret_offset: usize, seed: u64) -> u64 {
    multiply_fold(
        word(piece, 0) ^ secret_u64(secret_offset).wrapping_add(seed),
        word(piece, 8) ^ secret_u64(secret_offset + 8).wrapping_sub(seed),
    )
}

/// The 16 bytes at `offset`.
#[inline(always)]
fn piece(data: &[u8], offset: usize) -> &[u8; 16] {
    data[offset..].first_chunk().expect("the length class guarantees 16 bytes here")
}

#[inline(always)]
fn hash_17_to_128(data: &[u8], seed: u64) -> u64 {
    let len = data.len();
    let mut sum = (len as u64).wrapping_mul(PRIME64[0]);
    // Pairs of pieces from both ends, towards the middle, where they may overlap.
    let mut add_pair = |index: usize| {
        let (front, back) = (piece(data, 16 * index), piece(data, len - 16 * (index + 1)));
        sum = sum.wrapping_add(mix_16(front, 32 * index, seed));
        sum = sum.wrapping_add(mix_16(back, 32 * index + 16, seed));
    };
    add_pair(0);
    if len > 32 {
        add_pair(1);
    }
    if len > 64 {
        add_pair(2);
    }
    if len > 96 {
        add_pair(3);
    }
    avalanche(sum)
}

#[inline(never)]
fn hash_129_to_240(data: &[u8], seed: u64) -> u64 {
    let (pieces, _) = data.as_chunks::<16>();
    let (first, more) = pieces.split_at(8);
    let mut sum = (data.len() as u64).wrapping_mul(PRIME64[0]);
    for (index, piece) in first.iter().enumerate() {
        sum = sum.wrapping_add(mix_16(piece, 16 * index, seed));
    }
    sum = avalanche(sum);
    for (index, piece) in more.iter().enumerate() {
        sum = sum.wrapping_add(mix_16(piece, 16 * index + 3, seed));
    }
    avalanche(sum.wrapping_add(mix_16(piece(data, data.len() - 16), 119, seed)))
}

const STRIPE_LEN: usize = 64;
const LANES: usize = STRIPE_LEN / 8;
/// Each stripe of a round uses the secret 8 bytes further on.
const STRIPES_PER_ROUND: usize = (SECRET_LEN - STRIPE_LEN) / 8;

#[inline(never)]
fn hash_long(data: &[u8], seed: u64) -> u64 {
    let secret = seeded_secret(seed);
    let mut lanes =
        [PRIME32[2], PRIME64[0], PRIME64[1], PRIME64[2], PRIME64[3], PRIME32[1], PRIME64[4], PRIME32[0]];
    let (stripes, rest) = data.as_chunks::<STRIPE_LEN>();
    for round in stripes.chunks(STRIPES_PER_ROUND) {
        for (index, stripe) in round.iter().enumerate() {
            accumulate(&mut lanes, stripe, &secret, 8 * index);
        }
        if round.len() == STRIPES_PER_ROUND {
            scramble(&mut lanes, &secret);
        }
    }
    if !rest.is_empty() {
        let last = data.last_chunk::<STRIPE_LEN>().expect("long inputs have a whole stripe");
        accumulate(&mut lanes, last, &secret, SECRET_LEN - STRIPE_LEN - 7);
    }

    let mut sum = (data.len() as u64).wrapping_mul(PRIME64[0]);
    let (pairs, _) = lanes.as_chunks::<2>();
    for (index, [a, b]) in pairs.iter().enumerate() {
        let offset = 11 + 16 * index;
        sum = sum.wrapping_add(multiply_fold(a ^ word(&secret, offset), b ^ word(&secret, offset + 8)));
    }
    avalanche(sum)
}

fn seeded_secret(seed: u64) -> [u8; SECRET_LEN] {
    let mut secret = SECRET;
    let (words, _) = secret.as_chunks_mut::<8>();
    for (index, bytes) in words.iter_mut().enumerate() {
        let add = if index % 2 == 0 { seed } else { seed.wrapping_neg() };
        *bytes = u64::from_le_bytes(*bytes).wrapping_add(add).to_le_bytes();
    }
    secret
}

#[inline(always)]
fn accumulate(lanes: &mut [u64; LANES], stripe: &[u8; STRIPE_LEN], secret: &[u8; SECRET_LEN], offset: usize) {
    for (index, lane) in lanes.iter_mut().enumerate() {
        let value = word(stripe, 8 * index);
        let keyed = value ^ word(secret, offset + 8 * index);
        *lane = lane.wrapping_add(value).wrapping_add((keyed & 0xffff_ffff) * (keyed >> 32));
    }
}

#[inline(always)]
fn scramble(lanes: &mut [u64; LANES], secret: &[u8; SECRET_LEN]) {
    for (index, lane) in lanes.iter_mut().enumerate() {
        let key = word(secret, SECRET_LEN - STRIPE_LEN + 8 * index);
        *lane = (*lane ^ (*lane >> 47) ^ key).wrapping_mul(PRIME32[0]);
    }
}

#[cfg(test)]
pub(crate) mod tests;
