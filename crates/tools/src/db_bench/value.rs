//! Values: text that compresses to a given part of its size, cut from one long piece that is used over
//! and over.

use super::flags::Flags;
use super::random::Random;
use ironstone::{Error, Result};

/// Longer than any window of a codec, so that no value finds an earlier copy of itself.
const LEAST_BYTES: usize = 1 << 20;
/// Each so many bytes repeat their own beginning.
const FRAGMENT: usize = 100;

/// How large values are.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Sizes {
    Fixed(usize),
    Uniform {
        min: u64,
        max: u64,
    },
    /// 99.7 % within the bounds, the rest brought into them.
    Normal {
        min: f64,
        max: f64,
    },
}

/// Makes values.
#[derive(Clone, Debug)]
pub struct ValueGenerator {
    text: Box<[u8]>,
    position: usize,
    sizes: Sizes,
    /// How many percent of the values are the first bytes of `text`.
    same_percent: u64,
    random: Random,
}

impl ValueGenerator {
    /// Values as `flags` ask for; `value_size` stands for fixed sizes.
    pub fn new(flags: &Flags, value_size: usize) -> Result<Self> {
        let (min, max) = (flags.value_size_min, flags.value_size_max);
        let (sizes, largest) = match flags.value_size_distribution_type.to_ascii_lowercase().as_str() {
            "fixed" => (Sizes::Fixed(value_size), value_size),
            "uniform" => (Sizes::Uniform { min: min as u64, max: max as u64 }, max as usize),
            "normal" => (Sizes::Normal { min: f64::from(min), max: f64::from(max) }, max as usize),
            other => {
                let what =
                    format!("--value_size_distribution_type={other}: neither fixed, uniform nor normal");
                return Err(Error::invalid_argument(what));
            }
        };
        let mut random = Random::new(301);
        let text = compressible_text(&mut random, flags.compression_ratio, LEAST_BYTES.max(largest));
        Ok(Self { text, position: 0, sizes, same_percent: flags.same_value_percentage as u64, random })
    }

    /// The next value.
    #[inline]
    pub fn value(&mut self) -> &[u8] {
        let len = match self.sizes {
            Sizes::Fixed(size) => size,
            Sizes::Uniform { min, max } => (min + self.random.below(max - min + 1)) as usize,
            Sizes::Normal { min, max } => {
                self.random.normal((min + max) / 2.0, (max - min) / 6.0).clamp(min, max) as usize
            }
        };
        self.bytes(len)
    }

    /// The next `len` bytes; `len` must not be above the largest value.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> &[u8] {
        if self.same_percent > 0 && self.random.below(100) < self.same_percent {
            return &self.text[..len];
        }
        if self.position + len > self.text.len() {
            self.position = 0;
        }
        let value = &self.text[self.position..self.position + len];
        self.position += len;
        value
    }
}

/// At least `len` bytes of printable text in fragments whose random part is `ratio` of them.
fn compressible_text(random: &mut Random, ratio: f64, len: usize) -> Box<[u8]> {
    let unique = ((FRAGMENT as f64 * ratio) as usize).clamp(1, FRAGMENT);
    let mut text = Vec::with_capacity(len + FRAGMENT);
    while text.len() < len {
        let start = text.len();
        text.extend((0..unique).map(|_| b' ' + random.below(95) as u8));
        for at in start..start + FRAGMENT - unique {
            text.push(text[at]);
        }
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fragment_repeats_its_random_part() {
        let mut generator = ValueGenerator::new(&Flags::default(), 100).unwrap();
        let first = generator.value().to_vec();
        assert_eq!(first[..50], first[50..]);
        assert_ne!(first, generator.value());
    }

    #[test]
    fn sizes_keep_to_their_bounds() {
        for kind in ["uniform", "normal"] {
            let flags = Flags {
                value_size_distribution_type: kind.to_owned(),
                value_size_min: 10,
                value_size_max: 20,
                ..Flags::default()
            };
            let mut generator = ValueGenerator::new(&flags, 0).unwrap();
            let sizes: Vec<usize> = (0..1000).map(|_| generator.value().len()).collect();
            assert!(sizes.iter().all(|size| (10..=20).contains(size)), "{kind}");
            assert!(sizes.contains(&14) && sizes.contains(&16), "{kind}");
        }
    }
}
