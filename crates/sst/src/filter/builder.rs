//! Collects the hashes of a table's keys and makes filters of them.

use ironstone_base::protection::planted::{self, Place};
use ironstone_base::{Corrupt, hash};

use super::hashes::Hashes;
use super::reader::FilterReader;
use super::{TRAILER_LEN, fast_local_bloom, legacy_bloom, ribbon};

/// Seed of the 32-bit hash of the legacy Bloom filter.
pub(super) const LEGACY_SEED: u32 = 0xbc9f_1d34;

/// Collects the keys of one table, in order, and makes its filter, or its filters one after another.
#[derive(Clone, Debug)]
pub struct FilterBuilder {
    scheme: Scheme,
    hashes: Hashes,
    /// Of the last prefix given, whether or not it was added.
    previous_prefix: Option<u64>,
    detect_construct_corruption: bool,
    /// The exclusive or of `hashes`, made as they come, if it is to be compared.
    checksum: u64,
}

#[derive(Clone, Copy, Debug)]
enum Scheme {
    FastLocalBloom { millibits_per_key: u32 },
    LegacyBloom { bits_per_key: u32 },
    Ribbon(ribbon::Settings),
}

impl FilterBuilder {
    pub(super) fn fast_local_bloom(millibits_per_key: u32) -> Self {
        Self::new(Scheme::FastLocalBloom { millibits_per_key })
    }

    pub(super) fn legacy_bloom(bits_per_key: u32) -> Self {
        Self::new(Scheme::LegacyBloom { bits_per_key })
    }

    pub(super) fn ribbon(one_in_fp_rate: f64, bloom_millibits_per_key: u32) -> Self {
        Self::new(Scheme::Ribbon(ribbon::Settings { one_in_fp_rate, bloom_millibits_per_key }))
    }

    fn new(scheme: Scheme) -> Self {
        Self {
            scheme,
            hashes: Hashes::default(),
            previous_prefix: None,
            detect_construct_corruption: false,
            checksum: 0,
        }
    }

    pub(super) fn detect_construct_corruption(mut self, on: bool) -> Self {
        self.detect_construct_corruption = on;
        self
    }

    /// The hash that this builder stores for `key`: 64 bits, or 32 for the legacy Bloom filter.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        match self.scheme {
            Scheme::LegacyBloom { .. } => u64::from(hash::hash32(key, LEGACY_SEED)),
            Scheme::FastLocalBloom { .. } | Scheme::Ribbon(_) => hash::hash64(key, 0),
        }
    }

    /// Adds a user key, or a prefix when only prefixes are filtered. Repetitions in a row count once.
    #[inline]
    pub fn add_key(&mut self, key: &[u8]) {
        self.add_hash(self.hash(key));
    }

    /// Like [`Self::add_key`], with a hash that [`Self::hash`] gave.
    #[inline]
    pub fn add_hash(&mut self, hash: u64) {
        if self.hashes.last() != Some(hash) {
            self.keep(hash);
        }
    }

    #[inline]
    fn keep(&mut self, hash: u64) {
        if self.detect_construct_corruption {
            self.checksum ^= hash;
        }
        self.hashes.push(hash);
    }

    /// Adds a key and its prefix. Repetitions of either in a row count once, also between the two, since a
    /// key may be its own prefix.
    pub fn add_key_and_prefix(&mut self, key: &[u8], prefix: &[u8]) {
        let (key, prefix) = (self.hash(key), self.hash(prefix));
        let previous_key = self.hashes.last();
        let previous_prefix = self.previous_prefix.replace(prefix);
        // The prefix goes first, so that the last entry is always a key: a new prefix implies a new key.
        if ![Some(key), previous_key, previous_prefix].contains(&Some(prefix)) {
            self.keep(prefix);
        }
        if ![previous_key, previous_prefix].contains(&Some(key)) {
            self.keep(key);
        }
    }

    /// How many different keys and prefixes were added since the last [`Self::finish`].
    pub fn num_entries(&self) -> usize {
        self.hashes.len()
    }

    /// Whether nothing was added since the last [`Self::finish`].
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Bytes that the collected hashes take.
    pub fn memory_usage(&self) -> usize {
        self.hashes.memory_usage()
    }

    /// Bytes that [`Self::finish`] takes to solve the equations of a Ribbon filter; 0 for other kinds.
    pub fn solving_memory(&self) -> usize {
        match self.scheme {
            Scheme::Ribbon(settings) => settings.solving_memory(self.hashes.len(), self.hashes.first()),
            Scheme::FastLocalBloom { .. } | Scheme::LegacyBloom { .. } => 0,
        }
    }

    /// From now on builds Bloom filters with as many false positives in place of Ribbon filters.
    pub fn fall_back_to_bloom(&mut self) {
        if let Scheme::Ribbon(settings) = self.scheme {
            self.scheme = Scheme::FastLocalBloom { millibits_per_key: settings.bloom_millibits_per_key };
        }
    }

    /// Length of the filter of `key_count` keys, trailer included.
    pub fn space_for(&self, key_count: usize) -> usize {
        match self.scheme {
            Scheme::FastLocalBloom { millibits_per_key } => {
                fast_local_bloom::space_for(key_count, millibits_per_key)
            }
            Scheme::LegacyBloom { bits_per_key } => legacy_bloom::space_for(key_count, bits_per_key),
            Scheme::Ribbon(settings) => settings.space_for(key_count, self.hashes.first()),
        }
    }

    /// About how many keys a filter of at most `len` bytes holds; may be 0.
    pub fn keys_for(&self, len: usize) -> usize {
        match self.scheme {
            Scheme::FastLocalBloom { millibits_per_key } => {
                fast_local_bloom::keys_for(len, millibits_per_key)
            }
            Scheme::LegacyBloom { bits_per_key } => legacy_bloom::keys_for(len, bits_per_key),
            Scheme::Ribbon(settings) => settings.keys_for(len),
        }
    }

    /// After how many keys to cut a partition that should take about `partition_len` bytes; at least 1.
    pub fn keys_per_partition(&self, partition_len: usize) -> usize {
        const LARGEST_MINIMUM: usize = 100_000;
        let mut keys = self.keys_for(partition_len);
        // Less than the smallest filter of this kind: find that one.
        let mut larger = (partition_len + 4).max(16);
        while keys == 0 && larger <= LARGEST_MINIMUM {
            keys = self.keys_for(larger);
            larger += larger / 4;
        }
        keys.max(1)
    }

    /// The filter of everything added since the last call, trailer included; empty if that is nothing.
    /// The builder is then ready for the next partition. Fails only if the policy asked for verification, and hashes
    /// changed in memory, or a key is missing from the filter.
    pub fn finish(&mut self) -> Result<Vec<u8>, Corrupt> {
        self.previous_prefix = None;
        let mut hashes = std::mem::take(&mut self.hashes);
        let checksum = std::mem::take(&mut self.checksum);
        let Some(first) = hashes.first_mut() else {
            return Ok(Vec::new());
        };
        planted::flip_number(Place::FilterHashes, first);
        if self.detect_construct_corruption && hashes.iter().fold(0, |all, hash| all ^ hash) != checksum {
            return Err(Corrupt("filter construction: hashes of keys changed in memory"));
        }
        let mut filter = match self.scheme {
            Scheme::FastLocalBloom { millibits_per_key } => {
                fast_local_bloom::build(&hashes, millibits_per_key)
            }
            Scheme::LegacyBloom { bits_per_key } => legacy_bloom::build(&hashes, bits_per_key),
            Scheme::Ribbon(settings) => settings.build(&hashes),
        };
        debug_assert!(filter.len() > TRAILER_LEN);
        planted::flip(Place::Filter, &mut filter);
        if self.detect_construct_corruption {
            self.verify(&filter, &hashes)?;
        }
        hashes.clear(); // Its memory is for the next partition.
        self.hashes = hashes;
        Ok(filter)
    }

    fn verify(&self, filter: &[u8], hashes: &Hashes) -> Result<(), Corrupt> {
        let reader = FilterReader::new(filter);
        let legacy = matches!(self.scheme, Scheme::LegacyBloom { .. });
        let found = |hash| match legacy {
            true => reader.may_match_legacy_hash(filter, hash as u32),
            false => reader.may_match_hash(filter, hash),
        };
        match hashes.iter().all(found) {
            true => Ok(()),
            false => Err(Corrupt("filter construction: a key is missing from its own filter")),
        }
    }
}
