//! Ribbon filter: a system of linear equations over bits, one per key, whose solution is stored.
//!
//! A key's hash gives a start slot, 128 coefficient bits for the slots from there on, and an expected
//! result. Multiplying the coefficients with the stored solution gives the result for every key that was
//! added, and for others only by chance: 2^-columns.
//!
//! ```text
//! segments  16 bytes LE each: 128 slots of one solution column
//! marker    0xfe
//! seed      u8, which of 256 hash functions made the equations solvable
//! blocks    u24 LE, at least 2; a block is 128 slots, so `columns` segments in a row
//! ```
//!
//! The number of segments is not always a multiple of the number of blocks, for finer choice of size: the
//! first `upper_start` blocks have one column less than the others.
//!
//! Paper: Dillinger and Walzer, "Ribbon filter: practically smaller than Bloom and Xor" (2021).

use super::hashes::Hashes;
use super::{TRAILER_LEN, fast_local_bloom};

pub(super) const MARKER: u8 = 0xfe;
const WIDTH: u32 = 128;
const SEGMENT_LEN: usize = size_of::<u128>();
/// Beyond this the filter would not fit its 32-bit arithmetic.
const MAX_KEYS: usize = 950_000_000;
const MAX_COLUMNS: u32 = u32::BITS;
const SEEDS: u32 = 256;
/// Below this many slots a Bloom filter may be smaller.
const SMALL_SLOTS: u32 = 1024;

/// What decides a filter's size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// One key in how many may be let through by mistake.
    pub one_in_fp_rate: f64,
    /// For keys that get a Bloom filter after all.
    pub bloom_millibits_per_key: u32,
}

enum Plan {
    Bloom,
    Ribbon { slots: u32, body_len: usize },
}

impl Settings {
    /// Length of the filter of `key_count` keys with its trailer. `first` is the hash of the first key: its
    /// bits decide how to round, so that many filters come out right on average.
    pub(super) fn space_for(self, key_count: usize, first: Option<u64>) -> usize {
        if key_count == 0 {
            return 0;
        }
        match self.plan(key_count, first) {
            Plan::Bloom => fast_local_bloom::space_for(key_count, self.bloom_millibits_per_key),
            Plan::Ribbon { body_len, .. } => body_len + TRAILER_LEN,
        }
    }

    /// Bytes that the equations of `key_count` keys take while they are solved.
    pub(super) fn solving_memory(self, key_count: usize, first: Option<u64>) -> usize {
        match self.plan(key_count, first) {
            Plan::Ribbon { slots, .. } if key_count > 0 => {
                slots as usize * (size_of::<u128>() + size_of::<u32>())
            }
            Plan::Ribbon { .. } | Plan::Bloom => 0,
        }
    }

    fn plan(self, key_count: usize, first: Option<u64>) -> Plan {
        if key_count > MAX_KEYS {
            return Plan::Bloom;
        }
        let slots = slots_for(key_count as u32);
        let body_len = self.body_len_for(slots, (first.unwrap_or(0) >> 32) as u32);
        let bloom_len = || fast_local_bloom::space_for(key_count, self.bloom_millibits_per_key);
        match slots < SMALL_SLOTS && bloom_len() < body_len + TRAILER_LEN {
            true => Plan::Bloom,
            false => Plan::Ribbon { slots, body_len },
        }
    }

    /// The segments that `slots` need for the wanted false positives, in bytes.
    fn body_len_for(self, slots: u32, rounding: u32) -> usize {
        let fp_rate = 1.0 / self.one_in_fp_rate;
        if !(self.one_in_fp_rate > 1.0 && fp_rate < 1.0) {
            return SEGMENT_LEN; // Every key is let through; a body may not be empty.
        }
        if self.one_in_fp_rate > f64::from(u32::MAX) {
            return slots as usize * size_of::<u32>();
        }
        let lower_columns = (self.one_in_fp_rate as u32).ilog2();
        let lower_fp_rate = 0.5f64.powi(lower_columns as i32); // Powers of two are exact.
        let upper_fp_rate = 0.5f64.powi(lower_columns as i32 + 1);
        let lower_portion = (fp_rate - upper_fp_rate) / (lower_fp_rate - upper_fp_rate);
        let rounding = (f64::from(rounding) + 0.5) / 4_294_967_296.0;
        let starts = f64::from(starts_of(slots));
        let upper_start = ((lower_portion * starts + rounding) / f64::from(WIDTH)) as u32;
        let blocks = slots / WIDTH;
        (blocks * lower_columns + (blocks - upper_start)) as usize * SEGMENT_LEN
    }

    /// About how many keys a filter of at most `len` bytes with its trailer is meant for.
    pub(super) fn keys_for(self, len: usize) -> usize {
        let body_len = len.saturating_sub(TRAILER_LEN) & !(SEGMENT_LEN - 1);
        if self.one_in_fp_rate.is_nan() || self.one_in_fp_rate <= 1.0 {
            return MAX_KEYS;
        }
        let most_slots = body_len as f64 * 8.0 / self.bits_per_slot();
        if most_slots.is_nan() || most_slots >= f64::from(raw_slots_for(MAX_KEYS as u32)) {
            return MAX_KEYS;
        }
        let mut slots = round_up_slots(most_slots as u32);
        while slots > 0 && self.body_len_for(slots, 0) > body_len {
            slots = round_down_slots(slots - 1);
        }
        let keys = raw_keys_for(slots) as usize;
        match slots < SMALL_SLOTS {
            true => keys.max(fast_local_bloom::keys_for(len, self.bloom_millibits_per_key)),
            false => keys.min(MAX_KEYS),
        }
    }

    /// A slight underestimate of what a slot takes on average.
    fn bits_per_slot(self) -> f64 {
        if self.one_in_fp_rate >= 1.0 + f64::from(u32::MAX) {
            return f64::from(MAX_COLUMNS);
        }
        let upper_columns = 1 + (self.one_in_fp_rate as u32).ilog2();
        let upper_fp_rate = 0.5f64.powi(upper_columns as i32);
        f64::from(upper_columns) - (1.0 / self.one_in_fp_rate - upper_fp_rate) / upper_fp_rate
    }

    /// Builds the filter of `hashes`, which are not empty.
    pub(super) fn build(self, hashes: &Hashes) -> Vec<u8> {
        let first = hashes.first();
        let solved = match self.plan(hashes.len(), first) {
            Plan::Bloom => None,
            Plan::Ribbon { slots, body_len } => {
                Banding::solvable(slots, hashes, first.unwrap_or_default() as u32 % SEEDS)
                    .map(|banding| (banding, body_len))
            }
        };
        match solved {
            Some((banding, body_len)) => banding.encode(body_len),
            None => fast_local_bloom::build(hashes, self.bloom_millibits_per_key),
        }
    }
}

/// Keys for which 2^i slots are solvable with 19 of 20 seeds, by index i.
const KEYS_BY_LOG2_SLOTS: [f64; 18] = [
    0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, // Too few slots.
    248.851, 499.532, 1001.26, 2003.97, 4005.59, 8000.39, 15966.6, 31828.1, 63447.3, 126506.0,
];
/// For more slots, slots per key grow by this much with each doubling.
const OVERHEAD_PER_DOUBLING: f64 = 0.0038;
/// 1 / ln(2), cut off after the digits with which RocksDB computes sizes: more would give other sizes.
#[allow(clippy::approx_constant)]
const LOG2_FACTOR: f64 = 1.4426950409;

fn overhead_for_large(log2_slots: f64) -> f64 {
    let last = (KEYS_BY_LOG2_SLOTS.len() - 1) as f64;
    let base = (1u32 << 17) as f64 / KEYS_BY_LOG2_SLOTS[17] - last * OVERHEAD_PER_DOUBLING;
    base + log2_slots * OVERHEAD_PER_DOUBLING
}

fn keys_for_power_of_two(log2_slots: usize) -> f64 {
    match KEYS_BY_LOG2_SLOTS.get(log2_slots) {
        Some(&keys) => keys,
        None => (1u64 << log2_slots) as f64 / overhead_for_large(log2_slots as f64),
    }
}

/// Slots that `keys` need, interpolated between powers of two, before rounding to blocks.
fn raw_slots_for(keys: u32) -> u32 {
    if keys == 0 {
        return 0;
    }
    let keys = f64::from(keys);
    let mut log2_slots = (keys.ln() * LOG2_FACTOR + 0.5) as usize;
    let nearest = keys_for_power_of_two(log2_slots);
    if nearest == 0.0 {
        return 2 * WIDTH;
    }
    let (lower, upper) = if keys < nearest {
        log2_slots -= 1;
        (keys_for_power_of_two(log2_slots), nearest)
    } else {
        (nearest, keys_for_power_of_two(log2_slots + 1))
    };
    let lower_slots = (1u64 << log2_slots) as f64;
    let upper_portion = (keys - lower) / (upper - lower);
    (upper_portion * lower_slots + lower_slots + 0.999999999) as u32
}

/// The reverse of [`raw_slots_for`].
fn raw_keys_for(slots: u32) -> u32 {
    if slots == 0 {
        return 0;
    }
    let log2_slots = f64::from(slots).ln() * LOG2_FACTOR;
    let floor = log2_slots as usize;
    match KEYS_BY_LOG2_SLOTS.get(floor + 1) {
        Some(&upper) => {
            let portion = f64::from(slots) / (1u64 << floor) as f64 - 1.0;
            (portion * upper + (1.0 - portion) * KEYS_BY_LOG2_SLOTS[floor]) as u32
        }
        None => (f64::from(slots) / overhead_for_large(log2_slots)) as u32,
    }
}

fn slots_for(keys: u32) -> u32 {
    round_up_slots(raw_slots_for(keys))
}

/// Whole blocks, but never one: with a single start slot the hash would decide nothing.
fn round_up_slots(slots: u32) -> u32 {
    match slots.next_multiple_of(WIDTH) {
        WIDTH => 2 * WIDTH,
        slots => slots,
    }
}

fn round_down_slots(slots: u32) -> u32 {
    match slots - slots % WIDTH {
        WIDTH => 0,
        slots => slots,
    }
}

/// From how many slots a run of [`WIDTH`] can start.
fn starts_of(slots: u32) -> u32 {
    slots - WIDTH + 1
}

/// One of the hash functions, numbered by the seed in the trailer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seed(u32);

/// A key's hash, mixed with the seed.
#[derive(Clone, Copy)]
struct Equation(u64);

impl Seed {
    fn new(ordinal: u32) -> Self {
        let mixed = u64::from(ordinal).wrapping_mul(0xc782_19a2_3eea_dd03);
        Self((mixed ^ ((mixed & 0xf0f0_f0f0_f0f0_f0f0) >> 4)) as u32)
    }

    #[inline]
    fn equation(self, hash: u64) -> Equation {
        Equation((hash ^ u64::from(self.0)).wrapping_mul(0x6193_d459_236a_3a0d))
    }
}

impl Equation {
    #[inline]
    fn start(self, starts: u32) -> u32 {
        ((u128::from(self.0) * u128::from(starts)) >> 64) as u32
    }

    #[inline]
    fn spread(self) -> u64 {
        self.0.wrapping_mul(0xc28f_8282_2b65_0bed)
    }

    /// The lowest coefficient is always 1: it belongs to the start slot.
    #[inline]
    fn coefficients(self) -> u128 {
        let spread = self.spread();
        (u128::from(spread) << 64) | u128::from(spread ^ 0xc367_844a_6e52_731d) | 1
    }

    /// The coefficients use all bits of `spread`, the higher ones better mixed, so the result takes them
    /// from the other end.
    #[inline]
    fn result(self) -> u32 {
        self.spread().swap_bytes() as u32
    }
}

/// About how many rows of a [`Banding`] stay in a core's cache.
const ROWS_IN_CACHE: u32 = 1 << 15;

/// The equations grouped by their start row, [`ROWS_IN_CACHE`] rows to a group.
fn order_by_start(equations: impl Iterator<Item = Equation> + Clone, starts: u32) -> Vec<Equation> {
    let group_of = |equation: Equation| (equation.start(starts) / ROWS_IN_CACHE) as usize;
    let mut lens = vec![0usize; starts.div_ceil(ROWS_IN_CACHE) as usize];
    equations.clone().for_each(|equation| lens[group_of(equation)] += 1);
    let mut next: Vec<usize> = Vec::with_capacity(lens.len());
    let count = lens.iter().fold(0, |start, len| {
        next.push(start);
        start + len
    });
    let mut ordered = vec![Equation(0); count];
    for equation in equations {
        let place = &mut next[group_of(equation)];
        ordered[*place] = equation;
        *place += 1;
    }
    ordered
}

/// The equations in echelon form: row i has its first coefficient at slot i, or is all zero.
struct Banding {
    ordinal_seed: u32,
    coefficients: Vec<u128>,
    results: Vec<u32>,
}

impl Banding {
    /// Tries seed after seed, beginning at `first_seed`. `None` if no seed makes the equations solvable.
    fn solvable(slots: u32, hashes: &Hashes, first_seed: u32) -> Option<Self> {
        let rows = slots as usize;
        let mut banding =
            Self { ordinal_seed: first_seed, coefficients: vec![0; rows], results: vec![0; rows] };
        for attempt in 0..SEEDS {
            if attempt > 0 {
                banding.coefficients.fill(0);
                banding.results.fill(0);
            }
            banding.ordinal_seed = (first_seed + attempt) % SEEDS;
            if banding.add_all(hashes) {
                return Some(banding);
            }
        }
        None
    }

    fn add_all(&mut self, hashes: &Hashes) -> bool {
        let seed = Seed::new(self.ordinal_seed);
        let starts = starts_of(self.coefficients.len() as u32);
        let mut equations = hashes.iter().map(|hash| seed.equation(hash));
        if starts <= ROWS_IN_CACHE {
            equations.all(|equation| self.add(equation, starts))
        } else {
            // The order of the equations does not change the solution, see `encode`.
            let ordered = order_by_start(equations, starts);
            ordered.into_iter().all(|equation| self.add(equation, starts))
        }
    }

    /// Eliminates known rows from the equation until a free row takes it. `false` if it contradicts them.
    #[inline]
    fn add(&mut self, equation: Equation, starts: u32) -> bool {
        let mut row = equation.start(starts) as usize;
        let (mut coefficients, mut result) = (equation.coefficients(), equation.result());
        while self.coefficients[row] != 0 {
            coefficients ^= self.coefficients[row];
            result ^= self.results[row];
            if coefficients == 0 {
                return result == 0; // A repetition says nothing new.
            }
            let zeros = coefficients.trailing_zeros();
            row += zeros as usize;
            coefficients >>= zeros;
        }
        self.coefficients[row] = coefficients;
        self.results[row] = result;
        true
    }

    /// Solves the equations from the last slot to the first and writes the solution with its trailer. Which
    /// rows are free is a property of the equations, not of the order in which they came, and the solution
    /// is zero there, so there is only one.
    fn encode(&self, body_len: usize) -> Vec<u8> {
        let blocks = self.coefficients.len() as u32 / WIDTH;
        let mut filter = vec![0; body_len + TRAILER_LEN];
        let layout = Layout::new(body_len, blocks);
        let (segments, _) = filter.as_chunks_mut::<SEGMENT_LEN>();
        let mut columns = [0u128; MAX_COLUMNS as usize];
        for block in (0..blocks).rev() {
            let (first, count) = layout.segments_of(block);
            let columns = &mut columns[..count];
            self.solve_block(block, columns);
            for (segment, column) in segments[first..first + count].iter_mut().zip(columns) {
                *segment = column.to_le_bytes();
            }
        }
        let trailer = &mut filter[body_len..];
        let [low, middle, high, _] = blocks.to_le_bytes();
        trailer.copy_from_slice(&[MARKER, self.ordinal_seed as u8, low, middle, high]);
        filter
    }

    /// `columns` holds the solution for the block above on entry, for this block on return.
    fn solve_block(&self, block: u32, columns: &mut [u128]) {
        let rows = (block * WIDTH) as usize..((block + 1) * WIDTH) as usize;
        for (coefficients, result) in self.coefficients[rows.clone()].iter().zip(&self.results[rows]).rev() {
            for (column, bit) in columns.iter_mut().zip(0..) {
                let above = *column << 1;
                let sum = (above & coefficients).count_ones() ^ (result >> bit);
                *column = above | u128::from(sum & 1);
            }
        }
    }
}

/// Which segments belong to which block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Layout {
    upper_columns: u32,
    /// Blocks before this one have one column less.
    upper_start: u32,
}

impl Layout {
    fn new(body_len: usize, blocks: u32) -> Self {
        let segments = (body_len / SEGMENT_LEN) as u64;
        let blocks = u64::from(blocks);
        let upper_columns = segments.div_ceil(blocks);
        if upper_columns > u64::from(MAX_COLUMNS) {
            return Self { upper_columns: MAX_COLUMNS, upper_start: 0 };
        }
        let upper_start = upper_columns * blocks - segments;
        Self { upper_columns: upper_columns as u32, upper_start: upper_start as u32 }
    }

    /// The first segment and the number of them.
    #[inline]
    fn segments_of(self, block: u32) -> (usize, usize) {
        let first = block as usize * self.upper_columns as usize - block.min(self.upper_start) as usize;
        let less = u32::from(block < self.upper_start);
        (first, (self.upper_columns - less) as usize)
    }
}

/// How to probe one filter of this kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    starts: u32,
    seed: Seed,
    layout: Layout,
}

impl Shape {
    /// `None` if the number of blocks is impossible.
    pub(super) fn decode(body_len: usize, settings: [u8; 4]) -> Option<Self> {
        let [ordinal_seed, low, middle, high] = settings;
        let blocks = u32::from_le_bytes([low, middle, high, 0]);
        if blocks < 2 || u32::try_from(body_len).is_err() {
            return None;
        }
        let seed = Seed::new(u32::from(ordinal_seed));
        Some(Self { starts: starts_of(blocks * WIDTH), seed, layout: Layout::new(body_len, blocks) })
    }

    /// Touches the segments of one block, or of two in a row.
    #[inline]
    pub(super) fn may_match(self, filter: &[u8], hash: u64) -> bool {
        let equation = self.seed.equation(hash);
        let start = equation.start(self.starts);
        let (first, columns) = self.layout.segments_of(start / WIDTH);
        let segments: &[[u8; SEGMENT_LEN]] = filter.as_chunks().0;
        let shift = start % WIDTH;
        // Without a shift the run lies within one block, and the last block has none after it.
        let (lower, upper) = match shift {
            0 => (segments.get(first..first + columns), segments.get(first..first + columns)),
            _ => (segments.get(first..first + columns), segments.get(first + columns..first + 2 * columns)),
        };
        let (Some(lower), Some(upper)) = (lower, upper) else {
            return true; // Not the filter that this shape was read from.
        };
        let coefficients = equation.coefficients();
        let lower_mask = coefficients << shift;
        let upper_mask = coefficients.checked_shr(WIDTH - shift).unwrap_or(0);
        lower.iter().zip(upper).zip(0..).all(|((lower, upper), column)| {
            let sum = (u128::from_le_bytes(*lower) & lower_mask) ^ (u128::from_le_bytes(*upper) & upper_mask);
            sum.count_ones() & 1 == (equation.result() >> column) & 1
        })
    }
}
