//! The order of user keys, and of internal keys on top of it.

use crate::internal_key::InternalKey;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// A total order of user keys. Its name is stored in the database; opening it under another name
/// is refused. The order must never change for a name.
pub trait Comparator: Send + Sync {
    /// Names the order; names that start with `leveldb.` and `rocksdb.` belong to built-in ones.
    fn name(&self) -> &str;
    /// Options of its own, as option texts have them: `name=value`, with `;` between several
    /// (`object_registry::print_options`). They stand beside its name, and are what it is made of again. Default: none.
    fn parameters(&self) -> Option<String> {
        None
    }
    /// Compares two user keys.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering;
    /// May shorten `start` to some key in `start..limit`; leaving it alone is correct.
    fn find_shortest_separator(&self, _start: &mut Vec<u8>, _limit: &[u8]) {}
    /// May shorten `key` to some key at or after it; leaving it alone is correct.
    fn find_short_successor(&self, _key: &mut Vec<u8>) {}
    /// Whether keys of different bytes can compare equal. Hashing filters and indexes are only
    /// used where this is false.
    fn different_bytes_may_be_equal(&self) -> bool {
        true
    }
}

/// The comparator of a column family. The built-in orders are spelled out, so that the hot loops
/// compare without a virtual call.
#[derive(Clone, Default)]
pub enum UserComparator {
    /// Unsigned bytes, shorter first: `leveldb.BytewiseComparator`.
    #[default]
    Bytewise,
    /// The reverse of it: `rocksdb.ReverseBytewiseComparator`.
    ReverseBytewise,
    /// The application's own.
    Custom(Arc<dyn Comparator>),
}

impl UserComparator {
    /// The name that the database stores.
    pub fn name(&self) -> &str {
        match self {
            Self::Bytewise => "leveldb.BytewiseComparator",
            Self::ReverseBytewise => "rocksdb.ReverseBytewiseComparator",
            Self::Custom(custom) => custom.name(),
        }
    }
    /// The built-in comparator of that name.
    pub fn builtin(name: &str) -> Option<Self> {
        [Self::Bytewise, Self::ReverseBytewise].into_iter().find(|known| known.name() == name)
    }
    /// Compares two user keys.
    #[inline]
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Self::Bytewise => a.cmp(b),
            Self::ReverseBytewise => b.cmp(a),
            Self::Custom(custom) => custom.compare(a, b),
        }
    }
    /// Whether two user keys are the same key.
    #[inline]
    pub fn equal(&self, a: &[u8], b: &[u8]) -> bool {
        match self {
            Self::Custom(custom) => custom.compare(a, b).is_eq(),
            _ => a == b,
        }
    }
    /// Whether keys of different bytes can compare equal.
    pub fn different_bytes_may_be_equal(&self) -> bool {
        match self {
            Self::Custom(custom) => custom.different_bytes_may_be_equal(),
            _ => false,
        }
    }
    /// A number that never contradicts the order: `a < b` implies `prefix(a) <= prefix(b)`.
    /// Searches compare it before the keys. Custom orders answer 0.
    #[inline]
    pub fn order_prefix(&self, key: &[u8]) -> u64 {
        match self {
            Self::Bytewise => big_endian_prefix(key),
            Self::ReverseBytewise => !big_endian_prefix(key),
            Self::Custom(_) => 0,
        }
    }
    /// May shorten `start` to some key `k` with `start <= k < limit`.
    pub fn find_shortest_separator(&self, start: &mut Vec<u8>, limit: &[u8]) {
        match self {
            Self::Bytewise => shorten_between(start, limit),
            Self::ReverseBytewise => shorten_between_reverse(start, limit),
            Self::Custom(custom) => custom.find_shortest_separator(start, limit),
        }
    }
    /// May shorten `key` to some key at or after it.
    pub fn find_short_successor(&self, key: &mut Vec<u8>) {
        match self {
            Self::Bytewise => {
                if let Some(at) = key.iter().position(|&byte| byte != 0xff) {
                    key[at] += 1;
                    key.truncate(at + 1);
                }
            }
            Self::ReverseBytewise => {}
            Self::Custom(custom) => custom.find_short_successor(key),
        }
    }
}

impl fmt::Debug for UserComparator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The first 8 bytes of `key` as a number, with zeros behind a shorter one: of two such numbers the smaller one belongs to
/// the key that comes first in bytewise order, unless they are equal.
#[inline]
pub fn big_endian_prefix(key: &[u8]) -> u64 {
    if let Some(head) = key.first_chunk() {
        return u64::from_be_bytes(*head);
    }
    let len = key.len();
    let end_bit = 64 - 8 * len as u32;
    // In pieces that overlap: copying so few bytes takes longer.
    match (key.first_chunk(), key.last_chunk()) {
        (Some(head), Some(tail)) => {
            u64::from(u32::from_be_bytes(*head)) << 32 | u64::from(u32::from_be_bytes(*tail)) << end_bit
        }
        _ if len == 0 => 0,
        _ => {
            let middle = u64::from(key[len / 2]) << (56 - 8 * (len / 2));
            u64::from(key[0]) << 56 | middle | u64::from(key[len - 1]) << end_bit
        }
    }
}

fn shared_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

fn shorten_between(start: &mut Vec<u8>, limit: &[u8]) {
    let shared = shared_len(start, limit);
    let (Some(&low), Some(&high)) = (start.get(shared), limit.get(shared)) else {
        return; // One is a prefix of the other.
    };
    if low >= high {
        return;
    }
    if shared + 1 < limit.len() || low + 1 < high {
        start[shared] += 1;
        start.truncate(shared + 1);
    } else {
        // low + 1 == high and limit ends there, so low + 1 would equal limit: bump a later byte.
        let tail = start[shared + 1..].iter().position(|&byte| byte != 0xff);
        if let Some(offset) = tail {
            let at = shared + 1 + offset;
            start[at] += 1;
            start.truncate(at + 1);
        }
    }
}

fn shorten_between_reverse(start: &mut Vec<u8>, limit: &[u8]) {
    // Descending order: any key k with start >= k > limit bytewise. Cutting `start` makes it
    // smaller bytewise; one byte past the first difference keeps it above `limit`.
    let shared = shared_len(start, limit);
    if shared < limit.len() && shared + 1 < start.len() && start[shared] > limit[shared] {
        start.truncate(shared + 1);
    }
}

/// The order of internal keys: user key ascending, then newest first.
#[derive(Clone, Debug, Default)]
pub struct InternalKeyComparator {
    /// The order of the user keys.
    pub user: UserComparator,
}

impl InternalKeyComparator {
    /// The internal order over `user`.
    pub fn new(user: UserComparator) -> Self {
        Self { user }
    }
    /// Compares two internal keys.
    #[inline]
    pub fn compare(&self, a: InternalKey<'_>, b: InternalKey<'_>) -> Ordering {
        self.compare_parts(a.user_key(), a.trailer(), b)
    }
    /// As [`compare`](Self::compare), of a key whose parts are apart.
    #[inline]
    pub fn compare_parts(&self, user_key: &[u8], trailer: u64, b: InternalKey<'_>) -> Ordering {
        self.user.compare(user_key, b.user_key()).then_with(|| b.trailer().cmp(&trailer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_short_keys_end_in_zeros() {
        let key = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        for len in 0..=key.len() {
            let mut padded = [0; 8];
            padded[..len.min(8)].copy_from_slice(&key[..len.min(8)]);
            assert_eq!(big_endian_prefix(&key[..len]), u64::from_be_bytes(padded));
        }
    }
    use crate::internal_key::{InternalKeyBuf, SequenceNumber, ValueType};

    #[test]
    fn separators_lie_between() {
        let keys: Vec<Vec<u8>> = ["", "a", "ab", "abc", "abd", "ac", "b", "b\u{0}", "az", "a\u{7f}"]
            .iter()
            .map(|key| key.as_bytes().to_vec())
            .chain([vec![0xff], vec![0xff, 0xff], vec![1, 0xff, 0xff], vec![2], vec![1, 0xff, 3]])
            .collect();
        for order in [UserComparator::Bytewise, UserComparator::ReverseBytewise] {
            for start in &keys {
                let mut successor = start.clone();
                order.find_short_successor(&mut successor);
                assert!(order.compare(start, &successor).is_le());
                for limit in &keys {
                    if order.compare(start, limit).is_lt() {
                        let mut between = start.clone();
                        order.find_shortest_separator(&mut between, limit);
                        assert!(order.compare(start, &between).is_le(), "{start:?} {limit:?}");
                        assert!(order.compare(&between, limit).is_lt(), "{start:?} {limit:?}");
                        assert!(order.order_prefix(start) <= order.order_prefix(limit));
                    }
                }
            }
        }
    }

    #[test]
    fn newest_entry_of_a_key_comes_first() {
        let order = InternalKeyComparator::default();
        let key = |user: &[u8], seq| InternalKeyBuf::new(user, SequenceNumber(seq), ValueType::Value);
        assert!(order.compare(key(b"a", 2).as_key(), key(b"a", 1).as_key()).is_lt());
        assert!(order.compare(key(b"a", 1).as_key(), key(b"b", 9).as_key()).is_lt());
    }
}
