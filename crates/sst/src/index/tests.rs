use super::*;
use crate::handle::IndexValue;
use crate::index_builder::IndexBlockBuilder;
use ironstone_base::sync::Arc;
use ironstone_base::{Comparator, InternalKeyBuf, InternalKeyComparator, SequenceNumber, ValueType};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const DATA_END: u64 = 1 << 40;

fn separators(rng: &mut SmallRng, order: &InternalKeyComparator, user_keys: bool) -> Vec<InternalKeyBuf> {
    let prefix = ["", "user", "a much longer prefix that all keys share"][rng.random_range(0..3)];
    let mut keys: Vec<InternalKeyBuf> = (0..rng.random_range(0..200))
        .map(|_| {
            let tail: Vec<u8> = (0..rng.random_range(0..12)).map(|_| rng.random_range(0..4)).collect();
            let sequence = if user_keys { 0 } else { rng.random_range(0..5) };
            InternalKeyBuf::new(
                &[prefix.as_bytes(), &tail].concat(),
                SequenceNumber(sequence),
                ValueType::Value,
            )
        })
        .collect();
    keys.sort_by(|a, b| order.compare(a.as_key(), b.as_key()));
    keys.dedup();
    keys
}

/// An order that prefixes cannot tell.
struct ShortFirst;

impl Comparator for ShortFirst {
    fn name(&self) -> &str {
        "short-first"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.len().cmp(&b.len()).then_with(|| a.cmp(b))
    }
}

#[test]
fn find_agrees_with_a_linear_search() {
    let mut rng = SmallRng::seed_from_u64(5);
    for _ in 0..300 {
        let custom = UserComparator::Custom(Arc::new(ShortFirst));
        let user = [UserComparator::Bytewise, UserComparator::ReverseBytewise, custom]
            [rng.random_range(0..3)]
        .clone();
        let order = InternalKeyComparator::new(user.clone());
        let format =
            IndexFormat { user_keys: rng.random(), delta_values: rng.random(), first_keys: rng.random() };
        let keys = separators(&mut rng, &order, format.user_keys);
        let mut block =
            IndexBlockBuilder::new(rng.random_range(1..5), format.delta_values, !format.user_keys);
        let mut handles = Vec::new();
        let mut offset = 0;
        let largest = [100, 5000, 70_000, u64::from(u32::MAX)][rng.random_range(0..4)];
        for key in &keys {
            let handle = BlockHandle { offset, size: rng.random_range(0..largest) };
            offset = handle.end() + [0, 3000][rng.random_range(0..2)];
            handles.push(handle);
            block
                .add(key.as_bytes(), &IndexValue { handle, first_key: key.as_bytes() }, format.first_keys)
                .unwrap();
        }
        let block = Block::new(block.finish()).unwrap();
        let index = FlatIndex::decode(&block, format, &user, DATA_END).unwrap();
        assert_eq!(index.len(), keys.len());
        for (at, key) in keys.iter().enumerate() {
            assert_eq!(index.handle(at), handles[at]);
            assert_eq!(*index.separator_user_key(at), *key.user_key());
            assert!(format.user_keys || *index.separator(at) == *key.as_bytes());
            assert!(index.ends_with(&user, at, key.user_key()));
            assert_eq!(index.first_key(at).is_some(), format.first_keys);
        }
        for _ in 0..50 {
            let mut target = match keys.len() {
                0 => b"user".to_vec(),
                n => keys[rng.random_range(0..n)].user_key().to_vec(),
            };
            match rng.random_range(0..4) {
                0 => target.push(rng.random()),
                1 => drop(target.pop()),
                2 => target.insert(0, rng.random()),
                _ => {}
            }
            let target = InternalKeyBuf::for_seek(&target, SequenceNumber(rng.random_range(0..6)));
            let expected = keys.partition_point(|key| match format.user_keys {
                true => user.compare(key.user_key(), target.user_key()).is_lt(),
                false => order.compare(key.as_key(), target.as_key()).is_lt(),
            });
            assert_eq!(index.find(&user, target.as_key()), expected, "{target:?}");
        }
    }
}

#[test]
fn blocks_outside_of_the_file_are_refused() {
    let mut block = IndexBlockBuilder::new(1, false, false);
    let key = InternalKeyBuf::new(b"key", SequenceNumber(1), ValueType::Value);
    let handle = BlockHandle { offset: 100, size: 50 };
    block.add(key.as_bytes(), &IndexValue { handle, first_key: &[] }, false).unwrap();
    let block = Block::new(block.finish()).unwrap();
    let format = IndexFormat { user_keys: true, delta_values: false, first_keys: false };
    let decode =
        |end| FlatIndex::decode(&block, format, &UserComparator::Bytewise, end).map(|index| index.len());
    assert_eq!(decode(155), Ok(1));
    assert!(decode(154).is_err());
}

/// 4 KiB of data have 17 bytes of index where keys are numbers, and 64 KiB 25.
#[test]
fn an_index_takes_little_memory() {
    for (block_size, most) in [(4 << 10, 18), (64 << 10, 25)] {
        let bytes = bytes_of_numbered(10_000, block_size);
        assert!(bytes < 10_000 * most, "{bytes} bytes for 10,000 blocks of {block_size}");
    }
}

#[test]
fn places_of_bytes_are_those_of_the_block_noted_last() {
    let (index, [one, other]) = (index_of_numbered(100, 4 << 10), [[7u8; 8], [8; 8]]);
    let before = index.memory_usage();
    let note = |at, slot, bytes: Option<&[u8; 8]>| {
        index.note_place(at, SlotHint::from_bits(slot), || bytes.map(|bytes| &bytes[..]));
    };
    note(3, 1, None);
    assert_eq!((index.bytes_of(3), index.memory_usage()), (None, before), "no block has any");
    note(50, 2, Some(&one));
    assert_eq!((index.bytes_of(50), index.bytes_of(49)), (Some(one.as_ptr()), None));
    assert_eq!(index.memory_usage(), before + 100 * 8);
    note(50, 2, Some(&other));
    assert_eq!(index.bytes_of(50), Some(other.as_ptr()), "it came to the same entry of the cache again");
    note(50, 2, None);
    assert_eq!(index.bytes_of(50), None);
    (0..100).for_each(|at| index.prefetch_bytes(at));
}

/// The memory of an index of so many blocks, whose keys are numbers.
fn bytes_of_numbered(count: u64, block_size: u64) -> u64 {
    index_of_numbered(count, block_size).memory_usage() as u64
}

fn index_of_numbered(count: u64, block_size: u64) -> FlatIndex {
    let mut block = IndexBlockBuilder::new(1, true, false);
    for number in 0..count {
        let key = InternalKeyBuf::new(
            format!("{:016}", number * 35).as_bytes(),
            SequenceNumber(1),
            ValueType::Value,
        );
        let handle = BlockHandle { offset: number * block_size, size: block_size - 5 };
        block.add(key.as_bytes(), &IndexValue { handle, first_key: &[] }, false).unwrap();
    }
    let format = IndexFormat { user_keys: true, delta_values: true, first_keys: false };
    FlatIndex::decode(&Block::new(block.finish()).unwrap(), format, &UserComparator::Bytewise, DATA_END)
        .unwrap()
}

#[test]
fn blocks_out_of_order_keep_their_places() {
    let mut rng = SmallRng::seed_from_u64(7);
    for _ in 0..200 {
        let mut block = IndexBlockBuilder::new(1, false, false);
        let most = [300, 70_000, 1 << 33][rng.random_range(0..3)];
        let handles: Vec<_> = (0..rng.random_range(1..100))
            .map(|_| BlockHandle { offset: rng.random_range(0..most), size: rng.random_range(0..5000) })
            .collect();
        for (number, &handle) in handles.iter().enumerate() {
            let key =
                InternalKeyBuf::new(format!("{number:06}").as_bytes(), SequenceNumber(1), ValueType::Value);
            block.add(key.as_bytes(), &IndexValue { handle, first_key: &[] }, false).unwrap();
        }
        let block = Block::new(block.finish()).unwrap();
        let format = IndexFormat { user_keys: true, delta_values: false, first_keys: false };
        let index = FlatIndex::decode(&block, format, &UserComparator::Bytewise, DATA_END).unwrap();
        let found: Vec<_> = (0..index.len()).map(|at| index.handle(at)).collect();
        assert_eq!(found, handles);
    }
}

#[test]
fn damaged_index_blocks_never_panic() {
    let mut rng = SmallRng::seed_from_u64(6);
    for _ in 0..20_000 {
        let mut bytes: Vec<u8> = (0..rng.random_range(0..60)).map(|_| rng.random_range(0..30)).collect();
        bytes.extend_from_slice(&0u32.to_le_bytes());
        bytes.extend_from_slice(&1u32.to_le_bytes());
        let format =
            IndexFormat { user_keys: rng.random(), delta_values: rng.random(), first_keys: rng.random() };
        let Ok(block) = Block::new(bytes) else {
            continue;
        };
        if let Ok(index) = FlatIndex::decode(&block, format, &UserComparator::Bytewise, DATA_END) {
            let target = InternalKeyBuf::for_seek(&[rng.random()], SequenceNumber(1));
            let at = index.find(&UserComparator::Bytewise, target.as_key());
            assert!(at <= index.len());
            for at in 0..index.len() {
                let _ = (index.handle(at), index.first_key(at));
            }
        }
    }
}
