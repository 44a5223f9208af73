use ironstone_base::checksum::crc32c;
use ironstone_base::hash::hash64;

use super::*;

/// Filters that RocksDB made: for each, what went in, how long it is and its checksum.
const ROCKSDB_FILTERS: &str = include_str!("testdata/rocksdb_filters.txt");

const POLICIES: [(&str, u32); 3] =
    [("bloomfilter:10:false", 5), ("bloomfilter:10:false", 4), ("ribbonfilter:10:-1", 5)];

fn keys(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|i| format!("key{:08}", i * 7))
}

fn build(policy: &str, format_version: u32, count: usize, added: &str) -> Vec<u8> {
    let context = FilterContext { detect_construct_corruption: true, ..FilterContext::new(format_version) };
    let policy = FilterPolicy::parse(policy).unwrap().unwrap();
    let mut builder = policy.builder(&context).unwrap();
    for key in keys(count) {
        match added {
            "0" => builder.add_key(key.as_bytes()),
            "1" => builder.add_key_and_prefix(key.as_bytes(), &key.as_bytes()[..9]),
            _ => builder.add_key(&key.as_bytes()[..9]),
        }
    }
    builder.finish().unwrap()
}

fn may_match(filter: &[u8], key: &[u8]) -> bool {
    FilterReader::new(filter).may_match(filter, key)
}

#[test]
fn filters_equal_those_of_rocksdb() {
    let mut checked = 0;
    for line in ROCKSDB_FILTERS.lines().filter(|line| !line.starts_with('#')) {
        let [policy, version, count, added, len, checksum] =
            line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let filter = build(policy, version.parse().unwrap(), count.parse().unwrap(), added);
        assert_eq!(filter.len(), len.parse::<usize>().unwrap(), "{line}");
        assert_eq!(crc32c(&filter), u32::from_str_radix(checksum, 16).unwrap(), "{line}");
        checked += 1;
    }
    assert!(checked > 300, "{checked}");
}

#[test]
fn absent_keys_are_filtered_out_at_the_promised_rate() {
    for (policy, version) in POLICIES {
        let filter = build(policy, version, 20_000, "0");
        assert!(keys(20_000).all(|key| may_match(&filter, key.as_bytes())), "{policy} {version}");
        let found = (0..100_000).filter(|i| may_match(&filter, format!("no{i}").as_bytes())).count();
        assert!((500..2000).contains(&found), "{policy} {version}: {found} of 100000");
    }
}

#[test]
fn a_known_hash_gives_the_same_answer() {
    for (policy, version) in POLICIES {
        let filter = build(policy, version, 500, "0");
        let reader = FilterReader::new(&filter);
        for i in 0..5000 {
            let key = format!("key{i:08}");
            let hash = hash64(key.as_bytes(), 0);
            let expected = reader.may_match(&filter, key.as_bytes());
            assert_eq!(reader.may_match_hashed(&filter, key.as_bytes(), hash), expected);
            assert_eq!(reader.may_match_hash(&filter, hash), expected || reader.is_legacy());
        }
    }
}

#[test]
fn repetitions_count_once() {
    let mut builder = FilterPolicy::bloom(10.0).builder(&FilterContext::new(5)).unwrap();
    for (key, prefix) in [("aa1", "aa"), ("aa1", "aa"), ("aa2", "aa"), ("b", "b"), ("b", "b"), ("b1", "b")] {
        builder.add_key_and_prefix(key.as_bytes(), prefix.as_bytes());
    }
    assert_eq!(builder.num_entries(), 5); // aa, aa1, aa2, b, b1
    builder.add_key(b"b1");
    assert_eq!(builder.num_entries(), 5);
}

#[test]
fn a_builder_makes_one_partition_after_another() {
    for (policy, version) in POLICIES {
        let mut builder =
            FilterPolicy::parse(policy).unwrap().unwrap().builder(&FilterContext::new(version)).unwrap();
        assert!(builder.finish().unwrap().is_empty());
        for _ in 0..2 {
            keys(300).for_each(|key| builder.add_key(key.as_bytes()));
            assert_eq!(builder.space_for(300), build(policy, version, 300, "0").len());
            assert_eq!(builder.finish().unwrap(), build(policy, version, 300, "0"));
            assert!(builder.is_empty());
        }
    }
}

#[test]
fn partitions_are_close_to_the_wanted_size() {
    for (policy, version) in POLICIES {
        let builder =
            FilterPolicy::parse(policy).unwrap().unwrap().builder(&FilterContext::new(version)).unwrap();
        for len in [0, 1, 16, 100, 1000, 4096, 100_000] {
            let keys = builder.keys_per_partition(len);
            assert!(keys >= 1);
            if len >= 1000 {
                let space = builder.space_for(keys);
                assert!(space <= len && space * 10 > len * 8, "{policy} {version} {len}: {space}");
            }
        }
    }
}

#[test]
fn nothing_matches_an_empty_filter() {
    for filter in [&b""[..], b"\xff\0\x06\0\0"] {
        assert!(!may_match(filter, b"key"));
        assert!(!FilterReader::new(filter).may_match_hash(filter, 7));
    }
}

#[test]
fn reserved_settings_match_everything() {
    let reserved: [&[u8]; 7] = [
        &[0, 0, 0, 0, 0],       // No probes.
        &[0xfd, 0, 6, 0, 0],    // A future marker.
        &[0xff, 1, 6, 0, 0],    // A future kind of Bloom filter.
        &[0xff, 0, 0x26, 0, 0], // Lines of 128 bytes.
        &[0xff, 0, 6, 1, 0],    // Perhaps a seed.
        &[0xfe, 0, 1, 0, 0],    // A single block.
        &[6, 3, 0, 0, 0],       // Lines that do not fill the body.
    ];
    for trailer in reserved {
        let filter = [&[0; 64], trailer].concat();
        assert!(may_match(&filter, b"key"), "{trailer:?}");
    }
}

#[test]
fn legacy_lines_of_other_machines_are_read() {
    for line_len in [32usize, 128, 256] {
        let mut filter = vec![0xff; line_len * 3];
        filter.push(6);
        filter.extend_from_slice(&3u32.to_le_bytes());
        assert!(may_match(&filter, b"key"));
        filter[..line_len * 3].fill(0);
        assert!(!may_match(&filter, b"key"));
    }
}

/// Whatever the bytes are, there is an answer, also when the reader was made from other bytes.
#[test]
fn any_bytes_are_answered() {
    for (policy, version) in POLICIES {
        let filter = build(policy, version, 260, "0");
        for len in 0..filter.len() {
            probe_all(&filter[..len], &filter);
        }
        for i in 0..filter.len() {
            for bit in 0..8 {
                let mut damaged = filter.clone();
                damaged[i] ^= 1 << bit;
                probe_all(&damaged, &filter[..filter.len() - 50]);
            }
        }
    }
    for trailer in 0..=255u8 {
        for settings in [[0; 4], [255; 4], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 128], [0, 2, 0, 0]] {
            let mut filter = vec![trailer; 160];
            filter.extend_from_slice(&[&[trailer][..], &settings].concat());
            probe_all(&filter, &[]);
        }
    }
}

fn probe_all(filter: &[u8], other: &[u8]) {
    let reader = FilterReader::new(filter);
    for key in keys(20) {
        reader.may_match(filter, key.as_bytes());
        reader.may_match(other, key.as_bytes());
    }
    for hash in [0, 1, u64::MAX, 1 << 63, 0xffff_ffff, !0xffff_ffff] {
        reader.may_match_hash(filter, hash);
    }
}

/// What changes in memory while a filter is made is noticed, or changes no answer for a key.
#[test]
#[cfg(debug_assertions)]
fn flipped_bits_in_construction_are_told() {
    use ironstone_base::protection::planted::{self, Place};
    for (policy, version) in POLICIES {
        let made = |detect: bool| {
            let context =
                FilterContext { detect_construct_corruption: detect, ..FilterContext::new(version) };
            let mut builder = FilterPolicy::parse(policy).unwrap().unwrap().builder(&context).unwrap();
            keys(40).for_each(|key| builder.add_key(key.as_bytes()));
            let made = builder.finish();
            assert!(!planted::is_waiting());
            // The next filter of the same builder has nothing of it.
            keys(40).for_each(|key| builder.add_key(key.as_bytes()));
            assert!(builder.finish().is_ok());
            made
        };
        let has_all = |filter: &[u8]| keys(40).all(|key| may_match(filter, key.as_bytes()));
        for bit in 0..64 {
            planted::plant(Place::FilterHashes, bit);
            let error = made(true).unwrap_err();
            assert!(error.0.contains("changed in memory"), "{policy} {version} {bit}: {error:?}");
            planted::plant(Place::FilterHashes, bit);
            made(false).unwrap();
        }
        let (mut told, mut missed) = (0, 0);
        for bit in 0..600 {
            planted::plant(Place::Filter, bit);
            match made(true) {
                Ok(filter) => assert!(has_all(&filter), "{policy} {version} {bit}"),
                Err(error) => {
                    assert!(error.0.contains("missing from its own filter"), "{error:?}");
                    told += 1;
                }
            }
            planted::plant(Place::Filter, bit);
            missed += usize::from(!has_all(&made(false).unwrap()));
        }
        assert!(told > 50 && told == missed, "{policy} {version}: {told} told, {missed} to be told");
    }
}
