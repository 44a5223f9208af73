//! The Bloom filter of a memtable. It is never stored.
//!
//! ```text
//! hash of a key    64 bits: which line, then where its probes are in the line
//! lines            64 bytes each, so that one cache miss answers
//! ```

use ironstone_base::SliceTransform;
use ironstone_base::hash::xxh3_64;
use ironstone_base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

/// The Bloom filter that a memtable is made with.
#[derive(Clone)]
pub struct MemTableBloom {
    /// How many bytes it takes; rounded up to lines of a cache.
    pub bytes: usize,
    /// Whether it holds whole keys.
    pub whole_keys: bool,
    /// It holds the prefixes that this gives keys.
    pub prefix_extractor: Option<Arc<dyn SliceTransform>>,
}

pub(crate) struct Bloom {
    lines: Box<[Line]>,
    whole_keys: bool,
    extractor: Option<Arc<dyn SliceTransform>>,
}

#[repr(align(64))]
#[derive(Default)]
struct Line([AtomicU64; 8]);

const PROBES: usize = 6;

impl Bloom {
    /// An empty filter; `None` where it would hold nothing.
    pub fn new(options: &MemTableBloom) -> Option<Self> {
        let holds_something = options.whole_keys || options.prefix_extractor.is_some();
        let count = options.bytes.div_ceil(size_of::<Line>());
        (holds_something && count > 0).then(|| Self {
            lines: (0..count).map(|_| Line::default()).collect(),
            whole_keys: options.whole_keys,
            extractor: options.prefix_extractor.clone(),
        })
    }

    pub fn memory_usage(&self) -> usize {
        size_of_val(&*self.lines)
    }
    /// Whose prefixes it holds.
    pub fn extractor(&self) -> Option<&Arc<dyn SliceTransform>> {
        self.extractor.as_ref()
    }

    /// Takes note of a key. To be called before its entry can be seen.
    pub fn add(&self, user_key: &[u8]) {
        if self.whole_keys {
            self.set(user_key);
        }
        if let Some(prefix) = self.extractor.as_ref().and_then(|extractor| extractor.transform(user_key)) {
            self.set(prefix);
        }
    }

    /// Whether the memtable may have `user_key`.
    #[inline]
    pub fn may_hold(&self, user_key: &[u8]) -> bool {
        if self.whole_keys {
            return self.may_have(user_key);
        }
        let prefix = self.extractor.as_ref().and_then(|extractor| extractor.transform(user_key));
        prefix.is_none_or(|prefix| self.may_have(prefix))
    }

    /// Whether `bytes`, a key or a prefix, may have been added.
    pub fn may_have(&self, bytes: &[u8]) -> bool {
        let (line, mut probes) = self.place(bytes);
        (0..PROBES).all(|_| {
            let (word, bit) = next_probe(&mut probes);
            line.0[word].load(Relaxed) & bit != 0
        })
    }

    /// All Relaxed: a reader looks for entries that its sequence number covers, and whatever made that number
    /// visible came after these stores in the thread that wrote the entry.
    fn set(&self, bytes: &[u8]) {
        let (line, mut probes) = self.place(bytes);
        for _ in 0..PROBES {
            let (word, bit) = next_probe(&mut probes);
            if line.0[word].load(Relaxed) & bit == 0 {
                line.0[word].fetch_or(bit, Relaxed);
            }
        }
    }

    #[inline]
    fn place(&self, bytes: &[u8]) -> (&Line, u64) {
        let hash = xxh3_64(bytes);
        let line = (u128::from(hash) * self.lines.len() as u128) >> 64;
        // The high bits have chosen the line: the probes need others.
        (&self.lines[line as usize], hash.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// Takes 9 bits: a word of a line, and a bit of it.
#[inline]
fn next_probe(probes: &mut u64) -> (usize, u64) {
    let (word, bit) = (*probes >> 61, *probes >> 55 & 63);
    *probes <<= 9;
    (word as usize, 1 << bit)
}
const _: () = assert!(PROBES * 9 <= 64);

#[cfg(test)]
mod tests {
    use super::*;
    use ironstone_base::slice_transform::fixed_prefix;

    fn bloom(bytes: usize, whole_keys: bool, prefix: Option<usize>) -> Option<Bloom> {
        Bloom::new(&MemTableBloom { bytes, whole_keys, prefix_extractor: prefix.map(fixed_prefix) })
    }

    #[test]
    fn what_was_added_is_there_and_little_else() {
        let bloom = bloom(12_500, true, None).unwrap(); // 10 bits for each key.
        let key = |number: u32| number.to_le_bytes();
        (0..10_000).for_each(|number| bloom.add(&key(number)));
        assert!((0..10_000).all(|number| bloom.may_hold(&key(number))));
        let wrong = (10_000..110_000).filter(|&number| bloom.may_hold(&key(number))).count();
        assert!(wrong < 2_500, "{wrong} of 100,000");
        assert!(bloom.memory_usage() >= 12_500 && bloom.memory_usage() < 12_600);
    }

    #[test]
    fn keys_and_prefixes_answer_for_themselves() {
        let prefixes = bloom(1000, false, Some(3)).unwrap();
        prefixes.add(b"abc1");
        prefixes.add(b"x");
        assert!(prefixes.may_hold(b"abc2") && prefixes.may_have(b"abc") && !prefixes.may_hold(b"abd1"));
        assert!(prefixes.may_hold(b"y"), "nothing is known about keys without a prefix");

        let both = bloom(1000, true, Some(3)).unwrap();
        both.add(b"abc1");
        both.add(b"x");
        assert!(both.may_hold(b"abc1") && !both.may_hold(b"abc2") && both.may_have(b"abc"));
        assert!(both.may_hold(b"x") && !both.may_hold(b"y"));
    }

    #[test]
    fn a_filter_that_holds_nothing_is_none() {
        assert!(bloom(1000, false, None).is_none());
        assert!(bloom(0, true, Some(3)).is_none());
        assert_eq!(bloom(1, true, None).unwrap().memory_usage(), 64);
    }
}
