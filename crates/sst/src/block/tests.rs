use super::*;
use crate::block_builder::BlockBuilder;
use crate::handle::{BlockHandle, IndexValue};
use crate::index::{FlatIndex, IndexFormat};
use crate::index_builder::IndexBlockBuilder;
use ironstone_base::perf::{self, PerfMetric};
use ironstone_base::sync::Arc;
use ironstone_base::{
    Comparator, InternalKey, InternalKeyBuf, InternalKeyComparator, SequenceNumber, ValueType,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::cell::Cell;

type Entries = Vec<(InternalKeyBuf, Vec<u8>)>;

fn entries(rng: &mut SmallRng, order: &InternalKeyComparator) -> Entries {
    let longest = [3, 8, 20, 300][rng.random_range(0..4)];
    let alphabet = [1u8, 3, 255][rng.random_range(0..3)];
    let common = vec![2; [0, 0, 7, 19, 20, 300][rng.random_range(0..6)]];
    let most = if rng.random_bool(0.05) { 1500 } else { 80 };
    let sequences = [1, 2, 300][rng.random_range(0..3)];
    let mut entries: Entries = (0..rng.random_range(0..most))
        .map(|_| {
            let mut key = common.clone();
            key.extend((0..rng.random_range(0..longest)).map(|_| rng.random_range(0..=alphabet)));
            let sequence = SequenceNumber(rng.random_range(0..sequences));
            let value = vec![7; rng.random_range(0..150)];
            (InternalKeyBuf::new(&key, sequence, ValueType::Value), value)
        })
        .collect();
    entries.sort_by(|a, b| order.compare(a.0.as_key(), b.0.as_key()));
    entries.dedup_by(|a, b| a.0 == b.0);
    entries
}

fn block_of(rng: &mut SmallRng, entries: &Entries) -> Vec<u8> {
    let mut builder = BlockBuilder::new([1, 2, 16, 1000][rng.random_range(0..4)], rng.random_bool(0.8));
    if rng.random_bool(0.5) {
        builder = builder.with_hash_index([0.3, 0.75, 2.0][rng.random_range(0..3)]);
    }
    for (key, value) in entries {
        builder.add_internal(key.as_bytes(), key.user_key().len(), value);
        assert!(!builder.is_empty());
    }
    builder.finish().clone()
}

fn orders() -> [InternalKeyComparator; 2] {
    [UserComparator::Bytewise, UserComparator::ReverseBytewise].map(InternalKeyComparator::new)
}

fn target(rng: &mut SmallRng, entries: &Entries) -> InternalKeyBuf {
    let mut key = match entries.len() {
        0 => vec![1],
        n => entries[rng.random_range(0..n)].0.user_key().to_vec(),
    };
    match rng.random_range(0..4) {
        0 => key.push(rng.random()),
        1 => drop(key.pop()),
        2 if !key.is_empty() => {
            let at = rng.random_range(0..key.len());
            key[at] = rng.random();
        }
        _ => {}
    }
    InternalKeyBuf::for_seek(&key, SequenceNumber(rng.random_range(0..310)))
}

#[test]
fn lookup_finds_what_the_entries_say() {
    let mut rng = SmallRng::seed_from_u64(1);
    for round in 0..400 {
        for order in orders() {
            let entries = entries(&mut rng, &order);
            let bytes = block_of(&mut rng, &entries);
            let block = match rng.random_bool(0.5) {
                true => Block::new(bytes).unwrap(),
                false => Block::for_cache(bytes, &order.user).unwrap(),
            };
            for _ in 0..20 {
                let target = target(&mut rng, &entries);
                let at =
                    entries.partition_point(|(key, _)| order.compare(key.as_key(), target.as_key()).is_lt());
                let found = block.lookup(&order, target.as_key(), None).unwrap();
                match (entries.get(at), found) {
                    (Some((key, value)), Lookup::Found { trailer, value_at, value_len }) => {
                        assert_eq!(key.user_key(), target.user_key());
                        assert_eq!(trailer, key.as_key().trailer());
                        assert_eq!(block.bytes()[value_at as usize..][..value_len as usize], value[..]);
                    }
                    (Some((key, _)), Lookup::Absent) => assert_ne!(key.user_key(), target.user_key()),
                    (None, Lookup::Beyond) => {}
                    (expected, found) => panic!("round {round}: {target:?}: {found:?}, not {expected:?}"),
                }
                let mut cursor = Cursor::default();
                assert_eq!(cursor.seek(&block, &order, target.as_key()).unwrap(), at < entries.len());
                if let Some((key, value)) = entries.get(at) {
                    assert_eq!((cursor.key(&block), cursor.value(&block)), (key.as_key(), &value[..]));
                }
            }
        }
    }
}

/// How searches for the keys of a block of so many bytes begin: (at the first entry, after one, unknown).
fn beginnings(common: usize, key: impl Fn(u32) -> String, bytes: usize) -> [u32; 3] {
    let mut builder = BlockBuilder::new(16, true);
    let mut keys = Vec::new();
    while builder.len() < bytes {
        let user_key = "k".repeat(common) + &key(keys.len() as u32);
        builder.add(value_key(user_key.as_bytes()).as_bytes(), &[7; 100]);
        keys.push(user_key);
    }
    let block = Block::for_cache(builder.finish().clone(), &UserComparator::Bytewise).unwrap();
    let mut counts = [0; 3];
    for key in &keys {
        match block.begin_search(key.as_bytes()).0 {
            Beginning::First => counts[0] += 1,
            Beginning::After { end, interval, matched } => {
                assert!(end > interval && matched <= key.len());
                counts[1] += 1;
            }
            Beginning::Unknown => counts[2] += 1,
        }
    }
    counts
}

#[test]
fn searches_in_blocks_of_4_kib_begin_at_hints() {
    let number = |number| format!("{number:016}");
    for common in [0, 5, 19, 20, 100, 235] {
        let [first, after, unknown] = beginnings(common, number, 4096);
        assert!((2..=6).contains(&first) && after > 25 && unknown == 0, "{common}: {first} {after}");
    }
    // More than is known of what keys begin with.
    let [first, after, unknown] = beginnings(300, number, 4096);
    assert!(first + after == 0 && unknown > 20);
    // Keys that are too short for a hint have none; the others do.
    let some_short = |number: u32| {
        if number.is_multiple_of(2) { format!("{number:02}") } else { format!("{number:02}long") }
    };
    let [_, after, unknown] = beginnings(3, some_short, 4096);
    assert!(after > 20 && unknown == 0, "{after} {unknown}");
}

#[test]
fn hints_reach_as_far_as_their_bits() {
    let number = |number| format!("{number:08}");
    let [_, after, unknown] = beginnings(0, number, 60_000);
    assert!(after > 400 && unknown == 0, "{after} {unknown}");
    let [_, after, unknown] = beginnings(0, number, 120_000);
    assert!(after > 500 && unknown > 400, "{after} {unknown}");
}

#[test]
fn a_global_sequence_number_replaces_the_stored_ones() {
    let mut builder = BlockBuilder::new(2, true);
    for key in [b"a", b"b", b"c", b"d"] {
        let key = InternalKeyBuf::new(key, SequenceNumber::ZERO, ValueType::Value);
        builder.add(key.as_bytes(), b"");
    }
    let order = &orders()[0];
    let bytes = builder.finish();
    for block in [Block::new(bytes.clone()).unwrap(), Block::for_cache(bytes.clone(), &order.user).unwrap()] {
        let lookup = |key: &[u8], sequence| {
            let target = InternalKeyBuf::for_seek(key, SequenceNumber(sequence));
            block.lookup(order, target.as_key(), Some(50)).unwrap()
        };
        assert!(matches!(lookup(b"b", 50), Lookup::Found { trailer, .. } if trailer >> 8 == 50));
        assert_eq!(lookup(b"b", 49), Lookup::Absent);
        assert_eq!(lookup(b"d", 49), Lookup::Beyond);
    }
}

#[test]
fn damaged_blocks_never_panic() {
    let mut rng = SmallRng::seed_from_u64(3);
    for _ in 0..300 {
        let order = orders()[rng.random_range(0..2)].clone();
        let entries = entries(&mut rng, &order);
        let good = block_of(&mut rng, &entries);
        for _ in 0..30 {
            let mut bytes = good.clone();
            for _ in 0..rng.random_range(1..4) {
                let at = rng.random_range(0..bytes.len());
                bytes[at] = rng.random();
            }
            if rng.random_bool(0.2) {
                bytes.truncate(rng.random_range(0..bytes.len()));
            }
            wander(&mut rng, &bytes, &order, &entries);
        }
    }
    for _ in 0..2000 {
        let bytes: Vec<u8> = (0..rng.random_range(0..60)).map(|_| rng.random_range(0..5)).collect();
        wander(&mut rng, &bytes, &orders()[0], &Entries::new());
    }
}

type Met = Vec<(Vec<u8>, Vec<u8>)>;

/// What a walk in one direction meets, and whether it ends well.
fn walk(block: &Block, backward: bool) -> (Met, Result<bool, Corrupt>) {
    let (mut cursor, mut met) = (Cursor::default(), Met::new());
    let mut moved = if backward { cursor.seek_to_last(block) } else { cursor.seek_to_first(block) };
    while moved == Ok(true) {
        met.push((cursor.key(block).as_bytes().to_vec(), cursor.value(block).to_vec()));
        moved = if backward { cursor.prev(block) } else { cursor.next(block) };
    }
    (met, moved)
}

#[test]
fn a_block_in_the_cache_has_what_it_has_in_the_file() {
    let mut rng = SmallRng::seed_from_u64(5);
    let (mut bare, mut whole) = (0, 0);
    for round in 0..3000 {
        let order = orders()[rng.random_range(0..2)].clone();
        let entries = entries(&mut rng, &order);
        let mut bytes = block_of(&mut rng, &entries);
        let damaged = round % 2 == 0;
        if damaged {
            let at = rng.random_range(0..bytes.len());
            bytes[at] ^= 1 << rng.random_range(0..8);
        }
        let Ok(in_file) = Block::new(bytes.clone()) else { continue };
        let Ok(in_cache) = Block::for_cache(bytes, &order.user) else {
            assert!(damaged, "round {round}");
            continue;
        };
        for backward in [false, true] {
            assert_eq!(walk(&in_cache, backward), walk(&in_file, backward), "round {round}");
        }
        match in_cache.is_bare() {
            true => {
                bare += 1;
                let shorter = in_file.bytes().len() - in_cache.bytes().len();
                assert!(shorter >= TRAILER_LEN * walk(&in_file, false).0.len());
            }
            false => whole += 1,
        }
    }
    assert!(bare > 500 && whole > 1000, "{bare} {whole}");
}

#[test]
fn only_a_block_of_plain_values_is_bare() {
    let block_of = |keys: &[(&str, u64, ValueType)]| {
        let mut builder = BlockBuilder::new(2, true);
        for &(key, sequence, value_type) in keys {
            let key = InternalKeyBuf::new(key.as_bytes(), SequenceNumber(sequence), value_type);
            builder.add(key.as_bytes(), b"value");
        }
        Block::for_cache(builder.finish().clone(), &UserComparator::Bytewise).unwrap()
    };
    use ValueType::{Deletion, Merge, Value};
    assert!(block_of(&[("a", 0, Value), ("ab", 0, Value), ("abc", 0, Value)]).is_bare());
    assert!(!block_of(&[("a", 0, Value), ("ab", 1, Value), ("abc", 0, Value)]).is_bare());
    assert!(!block_of(&[("a", 0, Value), ("ab", 0, Value), ("abc", 0, Deletion)]).is_bare());
    assert!(!block_of(&[("a", 0, Merge), ("ab", 0, Value)]).is_bare());
    // The second key shares a byte of the trailer before it.
    assert!(!block_of(&[("a", 0, Value), ("a\u{1}b", 0, Value)]).is_bare());
    assert!(!block_of(&[]).is_bare());
}

fn wander(rng: &mut SmallRng, bytes: &[u8], order: &InternalKeyComparator, entries: &Entries) {
    let block = match rng.random_bool(0.5) {
        true => Block::for_cache(bytes.to_vec(), &order.user),
        false => Block::new(bytes.to_vec()),
    };
    let Ok(block) = block else { return };
    let mut meta = MetaCursor::new(&block);
    while let Ok(Some(_)) = meta.next() {}
    let mut cursor = Cursor::default();
    for _ in 0..10 {
        let target = target(rng, entries);
        let target: InternalKey<'_> = target.as_key();
        let _ = block.lookup(order, target, None);
        let moved = match rng.random_range(0..5) {
            0 => cursor.seek_to_first(&block),
            1 => cursor.seek_to_last(&block),
            2 => cursor.seek(&block, order, target),
            3 if cursor.valid() => cursor.next(&block),
            _ if cursor.valid() => cursor.prev(&block),
            _ => continue,
        };
        if moved == Ok(true) {
            let _ = (cursor.key(&block).user_key().len(), cursor.value(&block).len());
        }
        assert_eq!(moved == Ok(true), cursor.valid());
    }
}

#[test]
fn features_that_are_not_built_are_refused() {
    let mut block = BlockBuilder::new(16, true).finish().clone();
    assert!(Block::new(block.clone()).unwrap().is_empty());
    for bit in [28, 30] {
        let footer = 1u32 | 1 << bit;
        let at = block.len() - 4;
        block[at..].copy_from_slice(&footer.to_le_bytes());
        assert!(Block::new(block.clone()).is_err());
    }
}

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// Bytewise, and counts how often it is asked in this thread. No prefix of a key says anything of its place.
struct Counting;

impl Comparator for Counting {
    fn name(&self) -> &str {
        "test.Counting"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        CALLS.set(CALLS.get() + 1);
        a.cmp(b)
    }
}

/// Entries of at least 256 bytes have one restart point alone in a block of 4 KiB, which says nothing of what other keys begin with.
#[test]
fn searches_in_blocks_of_large_entries_begin_at_the_entry() {
    for (entries, value_bytes) in [(1, 4000), (2, 2000), (5, 768), (9, 400), (15, 250)] {
        for first in [0u64, 250] {
            let mut builder = BlockBuilder::new(16, true);
            let keys: Vec<[u8; 16]> = (first..first + entries)
                .map(|number| {
                    let mut key = [b'0'; 16];
                    key[..8].copy_from_slice(&number.to_be_bytes());
                    key
                })
                .collect();
            for key in &keys {
                builder.add_internal(value_key(key).as_bytes(), key.len(), &vec![7; value_bytes]);
            }
            let block = Block::for_cache(builder.finish().clone(), &UserComparator::Bytewise).unwrap();
            assert_eq!(block.is_of_large_entries(), entries <= 2);
            for (at, key) in keys.iter().enumerate() {
                let (beginning, until) = block.begin_search(key);
                let Lookup::Found { value_at, value_len, .. } = found_in(&block, key) else { panic!() };
                let (begin, looks) = match beginning {
                    Beginning::First => (0, at + 1),
                    Beginning::After { end, .. } => (end, 1),
                    Beginning::Unknown => panic!("{entries} entries, number {at}"),
                };
                assert!(begin < value_at && value_at + value_len <= until, "{entries} entries, number {at}");
                if entries <= 9 {
                    assert_eq!((looks, until), (1, value_at + value_len), "{entries} entries, number {at}");
                } else {
                    assert!(until - begin <= 3 * (value_bytes as u32 + 30));
                }
            }
        }
    }
}

/// What follows a short key may begin with its trailer, and not be among what its hint has.
#[test]
fn keys_that_end_before_their_hint_are_no_places_to_begin_at() {
    for middle in [b"ab\0\x01zz", b"ab\x01\x07zz"] {
        let keys: [&[u8]; 4] = [b"aa1234", b"ab", middle, b"ac1234"];
        for (order, at) in
            [(UserComparator::Bytewise, [0, 1, 2, 3]), (UserComparator::ReverseBytewise, [3, 2, 1, 0])]
        {
            let mut builder = BlockBuilder::new(16, true);
            for key in at.map(|at| keys[at]) {
                builder.add_internal(value_key(key).as_bytes(), key.len(), b"value");
            }
            let block = Block::for_cache(builder.finish().clone(), &order).unwrap();
            let order = InternalKeyComparator::new(order);
            for key in keys {
                let target = InternalKeyBuf::for_seek(key, SequenceNumber(9));
                let found = block.lookup(&order, target.as_key(), None).unwrap();
                assert!(matches!(found, Lookup::Found { .. }), "{key:?}");
            }
        }
    }
}

fn found_in(block: &Block, user_key: &[u8]) -> Lookup {
    let target = InternalKeyBuf::for_seek(user_key, SequenceNumber(9));
    block.lookup(&InternalKeyComparator::default(), target.as_key(), None).unwrap()
}

/// The comparisons that `search` counts, and how often the comparator was asked.
fn compared<T>(search: impl FnOnce() -> T) -> (u64, u64) {
    CALLS.set(0);
    perf::reset();
    let _ = search(); // What it finds is for other tests.
    (perf::get(PerfMetric::UserKeyComparisonCount), CALLS.get())
}

fn value_key(user_key: &[u8]) -> InternalKeyBuf {
    InternalKeyBuf::new(user_key, SequenceNumber(7), ValueType::Value)
}

#[test]
fn searches_count_every_comparison_of_an_unknown_order() {
    let order = InternalKeyComparator::new(UserComparator::Custom(Arc::new(Counting)));
    let mut data = BlockBuilder::new(4, true);
    let mut index = IndexBlockBuilder::new(1, false, true);
    for number in 0..100u64 {
        let key = value_key(format!("key{number:02}").as_bytes());
        data.add_internal(key.as_bytes(), 5, b"v");
        let handle = BlockHandle { offset: number * 100, size: 90 };
        index.add(key.as_bytes(), &IndexValue { handle, first_key: &[] }, false).unwrap();
    }
    let data = Block::for_cache(data.finish().clone(), &order.user).unwrap();
    let format = IndexFormat { user_keys: false, delta_values: false, first_keys: false };
    let index = Block::new(index.finish()).unwrap();
    let index = FlatIndex::decode(&index, format, &order.user, 1 << 20).unwrap();
    for wanted in ["key00", "key30", "key305", "key99", "key999", "a"] {
        let target = InternalKeyBuf::for_seek(wanted.as_bytes(), SequenceNumber(9));
        let (counted, asked) = compared(|| data.lookup(&order, target.as_key(), None));
        assert_eq!(counted, asked, "lookup of {wanted}");
        assert!(
            (6..=10).contains(&counted),
            "{counted} for {wanted}: 25 restart points, then up to 4 entries"
        );
        let mut cursor = Cursor::default();
        let (counted, asked) = compared(|| cursor.seek(&data, &order, target.as_key()));
        assert_eq!(counted, asked, "seek of {wanted}");
        let (counted, asked) = compared(|| assert!(index.find(&order.user, target.as_key()) <= 100));
        assert_eq!(counted, asked, "search for the block of {wanted}");
        assert!((6..=7).contains(&counted), "{counted} for {wanted}");
    }
}

#[test]
fn comparisons_of_numbers_and_of_parts_of_keys_count_too() {
    let order = InternalKeyComparator::default();
    let block = |keys: &[&str]| {
        let mut builder = BlockBuilder::new(16, true);
        for key in keys {
            builder.add_internal(value_key(key.as_bytes()).as_bytes(), key.len(), b"");
        }
        Block::new(builder.finish().clone()).unwrap()
    };
    let counted = |block: &Block, wanted: &str| {
        let target = InternalKeyBuf::for_seek(wanted.as_bytes(), SequenceNumber(9));
        compared(|| block.lookup(&order, target.as_key(), None))
    };
    let keys = block(&["key-a", "key-b", "key-c", "key-d"]);
    assert_eq!(counted(&keys, "key-a"), (1, 0));
    assert_eq!(counted(&keys, "key-d"), (4, 0));
    // What shares more with the key before it than that one shares with the target needs no look.
    assert_eq!(counted(&block(&["kb1", "kb2", "kb3", "kc1"]), "kc1"), (2, 0));
    let mut builder = IndexBlockBuilder::new(1, false, false);
    for number in 0..10u8 {
        let handle = BlockHandle { offset: u64::from(number) * 100, size: 90 };
        let value = IndexValue { handle, first_key: &[] };
        builder.add(value_key(&[b'k', number * 2]).as_bytes(), &value, false).unwrap();
    }
    let format = IndexFormat { user_keys: true, delta_values: false, first_keys: false };
    let index = Block::new(builder.finish()).unwrap();
    let index = FlatIndex::decode(&index, format, &order.user, 1 << 20).unwrap();
    for (wanted, expected) in [(7, perf::probes(10)), (6, perf::probes(10) + 1)] {
        let target = InternalKeyBuf::for_seek(&[b'k', wanted], SequenceNumber(9));
        assert_eq!(compared(|| index.find(&order.user, target.as_key())), (expected, 0), "{wanted}");
    }
}
