//! Answers whether a key may be in a table.

use ironstone_base::hash;

use super::builder::LEGACY_SEED;
use super::{TRAILER_LEN, fast_local_bloom, legacy_bloom, ribbon};

/// What a filter's trailer says: how to probe its body. Small and `Copy`: kept beside the filter's bytes,
/// which every call gets anew, so that the bytes may live in a block cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilterReader(Shape);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    /// Holds no key.
    Empty,
    /// A kind that we do not know, or settings that make no sense: every key may be there.
    Unknown,
    FastLocalBloom(fast_local_bloom::Shape),
    LegacyBloom(legacy_bloom::Shape),
    Ribbon(ribbon::Shape),
}

impl FilterReader {
    /// Reads the trailer of `filter`, the whole contents of a filter block. Any bytes are accepted.
    pub fn new(filter: &[u8]) -> Self {
        Self(match filter.split_last_chunk::<TRAILER_LEN>() {
            None | Some(([], _)) => Shape::Empty,
            Some((body, &[marker, settings @ ..])) => Shape::decode(body.len(), marker, settings),
        })
    }

    /// Whether keys must be hashed by [`Self::may_match`] because the filter has a hash of its own;
    /// [`Self::may_match_hash`] then answers `true` for every key.
    pub fn is_legacy(&self) -> bool {
        matches!(self.0, Shape::LegacyBloom(_))
    }

    /// Whether `key` may have been added to `filter`, the bytes that this reader was made from.
    #[inline]
    pub fn may_match(&self, filter: &[u8], key: &[u8]) -> bool {
        match self.0 {
            Shape::LegacyBloom(_) => self.may_match_legacy_hash(filter, hash::hash32(key, LEGACY_SEED)),
            _ => self.may_match_hash(filter, hash::hash64(key, 0)),
        }
    }

    /// Like [`Self::may_match`] for a key whose `hash64(key, 0)` is already known: a lookup hashes its key
    /// once for all the tables that it asks. `key` is used for legacy filters only.
    #[inline]
    pub fn may_match_hashed(&self, filter: &[u8], key: &[u8], hash: u64) -> bool {
        match self.0 {
            Shape::LegacyBloom(_) => self.may_match(filter, key),
            _ => self.may_match_hash(filter, hash),
        }
    }

    /// Whether the key with `hash64(key, 0) == hash` may have been added to `filter`, the bytes that this
    /// reader was made from. Always `true` for a legacy filter, see [`Self::is_legacy`].
    #[inline]
    pub fn may_match_hash(&self, filter: &[u8], hash: u64) -> bool {
        match self.0 {
            Shape::FastLocalBloom(shape) => shape.may_match(filter, hash),
            Shape::Ribbon(shape) => shape.may_match(filter, hash),
            Shape::Unknown | Shape::LegacyBloom(_) => true,
            Shape::Empty => false,
        }
    }

    /// The bytes of `filter` that [`Self::may_match_hash`] looks at, if they are few and together.
    #[inline]
    pub fn place_of_hash<'a>(&self, filter: &'a [u8], hash: u64) -> Option<&'a [u8]> {
        match self.0 {
            Shape::FastLocalBloom(shape) => shape.line(filter, hash).map(|line| &line[..]),
            _ => None,
        }
    }

    pub(super) fn may_match_legacy_hash(&self, filter: &[u8], hash: u32) -> bool {
        match self.0 {
            Shape::LegacyBloom(shape) => shape.may_match(filter, hash),
            Shape::Empty => false,
            _ => true,
        }
    }
}

impl Shape {
    fn decode(body_len: usize, marker: u8, settings: [u8; 4]) -> Self {
        let known = match marker {
            1..=127 => legacy_bloom::Shape::decode(body_len, marker, settings).map(Self::LegacyBloom),
            fast_local_bloom::MARKER => {
                fast_local_bloom::Shape::decode(body_len, settings).map(Self::FastLocalBloom)
            }
            ribbon::MARKER => ribbon::Shape::decode(body_len, settings).map(Self::Ribbon),
            _ => None,
        };
        known.unwrap_or(Self::Unknown)
    }
}
