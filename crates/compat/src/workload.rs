//! Deterministic writes, and what a database must hold after them.
//!
//! Round `r` writes `keys` times to each of `cfs` column families. Everything about write `i` follows from
//! `x = mix(seed + r * 2^48 + cf * 2^40 + i)`, wrapping. The drivers in `oracles/` say the same in their
//! languages.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

/// How many point reads a digest covers.
const LOOKUPS: u64 = 200;

/// What is written and looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Decides the contents.
    pub seed: u64,
    /// Number of column families: `default`, `cf1`, `cf2`, ..
    pub cfs: u64,
    /// Writes to each column family in each round.
    pub keys: u64,
}

/// The contents of one column family.
pub type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Key and value.
    Put(Vec<u8>, Vec<u8>),
    /// Key.
    Delete(Vec<u8>),
    /// Key, which was put exactly once.
    SingleDelete(Vec<u8>),
}

impl Workload {
    /// The writes with index `i` of a round, in order.
    pub fn operations(&self, round: u64, cf: u64, i: u64) -> Vec<Operation> {
        let x = mix(self.seed.wrapping_add(round << 48).wrapping_add(cf << 40).wrapping_add(i));
        if i % 16 == 15 {
            let put = Operation::Put(once_key(round, i), value(x));
            let again = round > 0 && i % 32 == 15;
            return match again {
                true => vec![put, Operation::SingleDelete(once_key(round - 1, i))],
                false => vec![put],
            };
        }
        let key = key((x >> 8) % (self.keys * 2));
        vec![if x.is_multiple_of(8) { Operation::Delete(key) } else { Operation::Put(key, value(x)) }]
    }

    /// What a database holds after `rounds`, which start at 0, by column family in the order of names.
    pub fn contents(&self, rounds: Range<u64>) -> BTreeMap<String, Contents> {
        let mut contents: BTreeMap<String, Contents> =
            (0..self.cfs).map(|cf| (cf_name(cf), Contents::new())).collect();
        for round in rounds {
            for cf in 0..self.cfs {
                let family = contents.get_mut(&cf_name(cf)).expect("all are there");
                for operation in (0..self.keys).flat_map(|i| self.operations(round, cf, i)) {
                    match operation {
                        Operation::Put(key, value) => family.insert(key, value),
                        Operation::Delete(key) | Operation::SingleDelete(key) => family.remove(&key),
                    };
                }
            }
        }
        contents
    }

    /// The digests that every driver must print after `rounds`.
    pub fn expected(&self, rounds: Range<u64>) -> String {
        let mut text = String::new();
        for (name, family) in self.contents(rounds) {
            let mut digest = Digest::default();
            family.iter().for_each(|(key, value)| digest.forward(key, value));
            family.iter().rev().for_each(|(key, value)| digest.backward(key, value));
            self.lookup_keys().for_each(|key| digest.lookup(family.get(&key).map(Vec::as_slice)));
            writeln!(text, "{}", digest.line(&name)).expect("a String takes everything");
        }
        text
    }

    /// The keys that a digest looks up; some exist.
    pub fn lookup_keys(&self) -> impl Iterator<Item = Vec<u8>> {
        (0..LOOKUPS).map(|i| key(mix(self.seed.wrapping_add(i)) % (self.keys * 2 + 10)))
    }
}

/// The name of column family number `cf`.
pub fn cf_name(cf: u64) -> String {
    match cf {
        0 => "default".to_owned(),
        _ => format!("cf{cf}"),
    }
}

fn mix(x: u64) -> u64 {
    let z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Keys differ in length, and some are prefixes of none and end in bytes that no text has.
fn key(number: u64) -> Vec<u8> {
    let mut key = format!("key{number:08x}").into_bytes();
    key.extend((0..number % 5).map(|_| b'x'));
    if number.is_multiple_of(7) {
        key.extend_from_slice(&[0, 0xff]);
    }
    key
}

fn once_key(round: u64, i: u64) -> Vec<u8> {
    format!("once-{round:02}-{i:06}").into_bytes()
}

/// Compressible; sometimes empty, sometimes longer than a block.
fn value(x: u64) -> Vec<u8> {
    let pattern = format!("{:016x}", mix(x)).into_bytes();
    let len = (x >> 32) % 120 + if x >> 56 == 0 { 5000 } else { 0 };
    pattern.into_iter().cycle().take(len as usize).collect()
}

/// CRC-32 sums over all keys and values in both directions, and over point reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    count: u64,
    forward: u32,
    backward: u32,
    lookups: u32,
}

impl Digest {
    /// The next entry of a scan from the first to the last.
    pub fn forward(&mut self, key: &[u8], value: &[u8]) {
        self.count += 1;
        self.forward = crc32_sized(crc32_sized(self.forward, key), value);
    }

    /// The next entry of a scan from the last to the first.
    pub fn backward(&mut self, key: &[u8], value: &[u8]) {
        self.backward = crc32_sized(crc32_sized(self.backward, key), value);
    }

    /// The answer for the next of [`Workload::lookup_keys`].
    pub fn lookup(&mut self, value: Option<&[u8]>) {
        self.lookups = match value {
            Some(value) => crc32_sized(self.lookups, value),
            None => crc32(self.lookups, &[0xff; 4]), // A length that no value has.
        };
    }

    /// What drivers print for the column family `name`.
    pub fn line(&self, name: &str) -> String {
        let Self { count, forward, backward, lookups } = self;
        format!("cf {name} count={count} forward={forward:08x} backward={backward:08x} lookups={lookups:08x}")
    }
}

fn crc32_sized(crc: u32, bytes: &[u8]) -> u32 {
    crc32(crc32(crc, &(bytes.len() as u32).to_le_bytes()), bytes)
}

/// CRC-32 as in zip files, which every language at hand has.
fn crc32(crc: u32, bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let (mut crc, mut bit) = (i as u32, 0);
            while bit < 8 {
                crc = (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
                bit += 1;
            }
            table[i] = crc;
            i += 1;
        }
        table
    };
    !bytes.iter().fold(!crc, |crc, &byte| TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_do_not_change() {
        assert_eq!(crc32(0, b"123456789"), 0xcbf4_3926);
        // What all the drivers print for these writes.
        let expected = "cf cf1 count=701 forward=77082404 backward=0e141708 lookups=882df1e6\n\
                        cf cf2 count=721 forward=e19ba887 backward=d4270b30 lookups=3fed90da\n\
                        cf default count=703 forward=f4d13873 backward=21a4cdad lookups=79198d12\n";
        assert_eq!(Workload { seed: 5, cfs: 3, keys: 500 }.expected(0..3), expected);
    }
}
