use super::*;
use crate::block_builder::BlockBuilder;
use ironstone_base::{InternalKey, InternalKeyBuf, InternalKeyComparator, SequenceNumber, ValueType};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

type Entries = Vec<(InternalKeyBuf, Vec<u8>)>;

fn entries(rng: &mut SmallRng, order: &InternalKeyComparator) -> Entries {
    let longest = [3, 8, 20, 300][rng.random_range(0..4)];
    let alphabet = [1u8, 3, 255][rng.random_range(0..3)];
    let mut entries: Entries = (0..rng.random_range(0..80))
        .map(|_| {
            let len = rng.random_range(0..longest);
            let key: Vec<u8> = (0..len).map(|_| rng.random_range(0..=alphabet)).collect();
            let sequence = SequenceNumber(rng.random_range(0..300));
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
                false => Block::with_hints(bytes, &order.user).unwrap(),
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

#[test]
fn a_global_sequence_number_replaces_the_stored_ones() {
    let mut builder = BlockBuilder::new(2, true);
    for key in [b"a", b"b", b"c", b"d"] {
        let key = InternalKeyBuf::new(key, SequenceNumber::ZERO, ValueType::Value);
        builder.add(key.as_bytes(), b"");
    }
    let block = Block::new(builder.finish().clone()).unwrap();
    for order in orders().into_iter().take(1) {
        let lookup = |key: &[u8], sequence| {
            let target = InternalKeyBuf::for_seek(key, SequenceNumber(sequence));
            block.lookup(&order, target.as_key(), Some(50)).unwrap()
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

fn wander(rng: &mut SmallRng, bytes: &[u8], order: &InternalKeyComparator, entries: &Entries) {
    let _ = Block::with_hints(bytes.to_vec(), &order.user);
    let Ok(block) = Block::new(bytes.to_vec()) else {
        return;
    };
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
