//! Index blocks and partitions, every format.
//!
//! ```text
//! shape     u8    bit 0 user keys; 1 delta values; 2 first keys; 3-4 order; 5 several partitions
//! data end  u16   the blocks must lie before it, in units of 16 bytes
//! blocks    the rest; with several partitions each has a length of two bytes
//! ```
//! Every block of an index that was accepted lies where data may be; searches end inside of it and separators
//! are where they say.

use super::data_block::order_of;
use super::{Seed, Target};
use crate::input::Input;
use ironstone_base::{Corrupt, InternalKey, InternalKeyBuf, SequenceNumber, UserComparator, ValueType};
use ironstone_sst::block::Block;
use ironstone_sst::block_builder::BlockBuilder;
use ironstone_sst::handle::{BlockHandle, IndexValue};
use ironstone_sst::index::{FlatIndex, IndexFormat};

pub(super) const TARGET: Target =
    Target { name: "index_block", what: "index blocks and partitions", run, seeds, mutations: 1_000_000 };

/// Keys that share nearly all of a long one take the square of the block's size once they are decoded.
const MAX_RAW: usize = 16 << 10;
const PARTITIONED: u8 = 32;

fn format_of(shape: u8) -> IndexFormat {
    IndexFormat { user_keys: shape & 1 != 0, delta_values: shape & 2 != 0, first_keys: shape & 4 != 0 }
}

fn run(bytes: &[u8]) {
    let mut input = Input::new(&bytes[..bytes.len().min(MAX_RAW)]);
    let shape = input.byte();
    let (format, order) = (format_of(shape), order_of(shape >> 3));
    let data_end = u64::from(input.u16()) * 16;
    let decoded = if shape & PARTITIONED == 0 {
        Block::new(input.rest().to_vec())
            .and_then(|block| FlatIndex::decode(&block, format, &order, data_end))
    } else {
        let mut partitions = Vec::new();
        while !input.is_empty() {
            partitions.push(Block::new(input.long().to_vec()));
        }
        FlatIndex::decode_partitions::<Corrupt>(partitions.into_iter(), format, &order, data_end)
    };
    let Ok(index) = decoded else { return };
    assert!(index.len() <= bytes.len(), "more blocks than bytes");
    for at in 0..index.len() {
        assert!(index.handle(at).end() <= data_end, "a block beyond the end of the data");
        let trailer = index.separator(at).len() - index.separator_user_key(at).len();
        assert_eq!(trailer, if format.user_keys { 0 } else { 8 });
        assert!(format.first_keys || index.first_key(at).is_none());
    }
    for at in 0..index.len().min(16) {
        let user_key = index.separator_user_key(at).to_vec();
        for user_key in [user_key.clone(), [&user_key[..], b"x"].concat(), Vec::new()] {
            let target = InternalKeyBuf::for_seek(&user_key, SequenceNumber(5));
            assert!(index.find(&order, target.as_key()) <= index.len());
        }
    }
    check_search(&index, &order);
}

/// Where the separators are in order, a search finds the first one that is not before its target.
fn check_search(index: &FlatIndex, order: &UserComparator) {
    let count = index.len();
    if !(1..count)
        .all(|at| order.compare(&index.separator_user_key(at - 1), &index.separator_user_key(at)).is_lt())
    {
        return;
    }
    for at in 0..count.min(32) {
        let target = InternalKeyBuf::new(&index.separator_user_key(at), SequenceNumber(5), ValueType::Value);
        // Of one user key, the larger trailer comes first.
        let trailer = InternalKey::from_bytes(&index.separator(at)).map(InternalKey::trailer);
        let is_before =
            !index.has_user_keys() && trailer.is_ok_and(|trailer| trailer > target.as_key().trailer());
        let expected = at + usize::from(is_before);
        assert_eq!(index.find(order, target.as_key()), expected, "of {count} blocks");
    }
}

/// An index of a few blocks as a builder writes it.
pub(super) fn sample(format: IndexFormat, restart_interval: u32) -> Vec<u8> {
    let mut builder = BlockBuilder::new(restart_interval, true);
    let mut previous: Option<BlockHandle> = None;
    for number in 0..12u64 {
        let user_key = format!("key{number:04}");
        let internal = InternalKeyBuf::new(user_key.as_bytes(), SequenceNumber(number), ValueType::Value);
        let key = if format.user_keys { user_key.as_bytes() } else { internal.as_bytes() };
        let offset = previous.map_or(0, BlockHandle::end);
        let handle = BlockHandle { offset, size: 100 + number };
        let value = IndexValue { handle, first_key: internal.as_bytes() };
        let (mut whole, mut delta) = (Vec::new(), Vec::new());
        value.encode(&mut whole, format.first_keys, None);
        if format.delta_values {
            value.encode(
                &mut delta,
                format.first_keys,
                previous.or(Some(BlockHandle::NULL)).filter(|_| previous.is_some()),
            );
            builder.add_index_entry(key, &whole, previous.is_some().then_some(&delta[..]));
        } else {
            builder.add(key, &whole);
        }
        previous = Some(handle);
    }
    builder.finish().clone()
}

fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for shape in 0..8u8 {
        for interval in [1, 4] {
            let block = sample(format_of(shape), interval);
            let bytes = [&[shape, 0xff, 0][..], &block].concat();
            seeds.push(Seed::new(format!("format_{shape}_interval_{interval}"), bytes));
        }
    }
    let block = sample(format_of(3), 4);
    let one = [&(block.len() as u16).to_le_bytes()[..], &block].concat();
    seeds.push(Seed::new("partitions", [&[3 | PARTITIONED, 0xff, 0][..], &one, &one].concat()));
    seeds.push(Seed::new("reverse", [&[0x10, 0xff, 0][..], &sample(format_of(0), 1)].concat()));
    seeds.push(Seed::new("custom", [&[0x18, 0xff, 0][..], &sample(format_of(0), 1)].concat()));
    seeds
}
