//! Filters of tables: the legacy Bloom filter, the cache-local one and Ribbon.
//!
//! ```text
//! shape  u8   bit 0: built from keys, or raw
//! raw:   key count u8 | keys (length u8 and bytes) ... | the filter
//! built: kind u8 | bits per key u8 | keys ...
//! ```
//! Any bytes are a filter. The ways of asking agree with each other, and a filter that was built has every
//! key that it was given.

use super::{Seed, Target};
use crate::input::Input;
use ironstone_base::hash::hash64;
use ironstone_sst::filter::{FilterContext, TRAILER_LEN};
use ironstone_sst::{FilterKind, FilterPolicy, FilterReader};

pub(super) const TARGET: Target =
    Target { name: "filter", what: "Bloom and Ribbon filters", run, seeds, mutations: 1_000_000 };

const KINDS: [FilterKind; 5] = [
    FilterKind::LegacyBloom,
    FilterKind::FastLocalBloom,
    FilterKind::Standard128Ribbon,
    FilterKind::Bloom,
    FilterKind::Ribbon { bloom_before_level: 0 },
];

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    if input.byte() & 1 != 0 {
        return run_built(&mut input);
    }
    let count = input.byte() % 32;
    let keys: Vec<&[u8]> = (0..count).map(|_| input.short()).collect();
    let filter = input.rest();
    let reader = FilterReader::new(filter);
    for key in keys {
        let hash = hash64(key, 0);
        let answer = reader.may_match(filter, key);
        assert_eq!(reader.may_match_hashed(filter, key, hash), answer);
        assert!(reader.may_match_hash(filter, hash) == answer || reader.is_legacy());
        assert!(filter.len() > TRAILER_LEN || !answer, "a filter without a body has a key");
        // A reader made from other bytes may answer anything, but must answer.
        let _ = reader.may_match(&filter[..filter.len() / 2], key);
    }
}

fn run_built(input: &mut Input<'_>) {
    let policy = FilterPolicy::new(input.pick(&KINDS), f64::from(input.byte()) / 8.0);
    let context = FilterContext { detect_construct_corruption: true, ..FilterContext::new(5) };
    let Some(mut builder) = policy.builder(&context) else { return };
    let mut keys = Vec::new();
    while !input.is_empty() && keys.len() < 1000 {
        keys.push(input.short());
    }
    keys.iter().for_each(|key| builder.add_key(key));
    let filter = builder.finish().expect("the filter has its keys");
    let reader = FilterReader::new(&filter);
    for key in keys {
        assert!(reader.may_match(&filter, key), "a filter denies a key that it was given");
    }
}

fn seeds() -> Vec<Seed> {
    let keys: Vec<Vec<u8>> = (0..12u8).map(|number| vec![b'k', number]).collect();
    let listed: Vec<u8> = keys.iter().flat_map(|key| [&[key.len() as u8][..], key].concat()).collect();
    let mut seeds = Vec::new();
    for (number, kind) in KINDS.iter().enumerate() {
        let mut builder = FilterPolicy::new(*kind, 10.0).builder(&FilterContext::new(5)).expect("it builds");
        keys.iter().for_each(|key| builder.add_key(key));
        let filter = builder.finish().expect("nothing to detect");
        let raw = [&[0, keys.len() as u8][..], &listed, &filter].concat();
        seeds.push(Seed::new(format!("raw_{number}"), raw));
        seeds.push(Seed::new(format!("built_{number}"), [&[1, number as u8, 80][..], &listed].concat()));
    }
    for marker in [0u8, 1, 30, 127, 128, 0xfd, 0xfe, 0xff] {
        for settings in [[0; 4], [0xff; 4], [1, 2, 0, 0], [0, 6, 0, 0]] {
            let filter = [&[0x55; 64][..], &[marker], &settings].concat();
            let raw = [&[0, 2, 1, b'a', 2, b'b', b'c'][..], &filter].concat();
            let name = format!("trailer_{marker:02x}_{:02x}{:02x}", settings[0], settings[1]);
            seeds.push(Seed::new(name, raw));
        }
    }
    seeds
}
