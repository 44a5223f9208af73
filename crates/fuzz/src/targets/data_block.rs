//! Data blocks, every layout, under the checksum.
//!
//! ```text
//! shape   u8   bit 0: built from entries, or raw; 1-2 order; 3 restart hints; 4 global sequence number
//! raw:    the block
//! built:  restart interval u8 | hash index u8 | (key, value: length u8 and bytes) ...
//! ```
//! A raw block is walked in both directions and searched: every walk ends, every key and value lies in the
//! block. A built block gives back its entries, forwards and backwards; a seek and a lookup find what a search
//! in the list of entries finds.
//!
//! Restart keys that share nearly all of a long key let a walk backwards take the square of the block's size
//! in memory, which is why raw blocks are short here.

use super::{Seed, Target};
use crate::input::Input;
use crate::judge::Steps;
use ironstone_base::sync::Arc;
use ironstone_base::{
    Comparator, InternalKey, InternalKeyBuf, InternalKeyComparator, SequenceNumber, UserComparator, ValueType,
};
use ironstone_sst::block::{Block, Cursor, Lookup, MetaCursor};
use ironstone_sst::block_builder::BlockBuilder;
use std::cmp::Ordering;

pub(super) const TARGET: Target =
    Target { name: "data_block", what: "data blocks under the checksum", run, seeds, mutations: 1_000_000 };

const MAX_RAW: usize = 16 << 10;
const BUILT: u8 = 1;

/// Shorter keys first: an order that is none of the built-in ones.
struct ByLength;

impl Comparator for ByLength {
    fn name(&self) -> &str {
        "fuzz.ByLength"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.len().cmp(&b.len()).then_with(|| a.cmp(b))
    }
    fn different_bytes_may_be_equal(&self) -> bool {
        false
    }
}

/// The order that two bits of an input ask for.
pub(super) fn order_of(bits: u8) -> UserComparator {
    match bits & 3 {
        0 | 1 => UserComparator::Bytewise,
        2 => UserComparator::ReverseBytewise,
        _ => UserComparator::Custom(Arc::new(ByLength)),
    }
}

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let shape = input.byte();
    let order = InternalKeyComparator::new(order_of(shape >> 1));
    if shape & BUILT != 0 {
        return run_built(&mut input, shape, &order);
    }
    let raw = input.take(MAX_RAW).to_vec();
    let len = raw.len();
    let block = match shape & 8 {
        0 => Block::new(raw),
        _ => Block::for_cache(raw, &order.user),
    };
    let Ok(block) = block else { return };
    let mut steps = Steps::new("a walk through the entries of a meta block", len);
    let mut meta = MetaCursor::new(&block);
    while let Ok(Some(_)) = meta.next() {
        steps.take();
    }
    let targets = walk(&block, len);
    let global_sequence = (shape & 16 != 0).then_some(77);
    for target in &targets {
        search(&block, &order, target.as_key(), global_sequence);
    }
}

/// Walks in both directions; answers some of the keys that it met and keys near them.
fn walk(block: &Block, len: usize) -> Vec<InternalKeyBuf> {
    let mut targets = vec![InternalKeyBuf::for_seek(b"", SequenceNumber::MAX)];
    for backward in [false, true] {
        let mut steps = Steps::new("a walk through a data block", len);
        let mut cursor = Cursor::default();
        let first = if backward { cursor.seek_to_last(block) } else { cursor.seek_to_first(block) };
        let mut more = first;
        while more == Ok(true) {
            steps.take();
            assert!(cursor.valid());
            let (at, value_len) = cursor.value_range();
            assert!(at as usize + value_len as usize <= len, "a value beyond the block");
            assert_eq!(cursor.value(block).len(), value_len as usize);
            let key = cursor.key(block);
            if targets.len() < 24 {
                targets.push(key.to_buf());
                targets.push(InternalKeyBuf::for_seek(&[key.user_key(), &[0]].concat(), SequenceNumber(9)));
            }
            more = if backward { cursor.prev(block) } else { cursor.next(block) };
        }
        assert!(!cursor.valid(), "a walk that ended stands on an entry");
    }
    targets
}

fn search(
    block: &Block,
    order: &InternalKeyComparator,
    target: InternalKey<'_>,
    global_sequence: Option<u64>,
) {
    let mut cursor = Cursor::default();
    if cursor.seek(block, order, target) == Ok(true) {
        assert!(order.compare(cursor.key(block), target).is_ge(), "a seek stands before its target");
        let _ = cursor.prev(block);
    }
    if let Ok(Lookup::Found { trailer, value_at, value_len }) = block.lookup(order, target, global_sequence) {
        assert!(value_at as usize + value_len as usize <= block.bytes().len());
        assert!(trailer <= target.trailer(), "a lookup found what is newer than asked for");
    }
}

fn run_built(input: &mut Input<'_>, shape: u8, order: &InternalKeyComparator) {
    let interval = u32::from(input.byte() % 20);
    let hashed = input.flag() && !matches!(order.user, UserComparator::Custom(_));
    let mut entries: Vec<(InternalKeyBuf, Vec<u8>)> = Vec::new();
    while !input.is_empty() && entries.len() < 400 {
        let (key, value) = (input.short().to_vec(), input.short().to_vec());
        let sequence = SequenceNumber(u64::from(key.first().copied().unwrap_or(0) % 3));
        entries.push((InternalKeyBuf::new(&key, sequence, ValueType::Value), value));
    }
    entries.sort_by(|a, b| order.compare(a.0.as_key(), b.0.as_key()));
    entries.dedup_by(|b, a| a.0.as_bytes() == b.0.as_bytes());
    let mut builder = BlockBuilder::new(interval, shape & 32 == 0);
    if hashed {
        builder = builder.with_hash_index(0.75);
    }
    for (key, value) in &entries {
        builder.add_internal(key.as_bytes(), key.user_key().len(), value);
    }
    let bytes = builder.finish().clone();
    let block = Block::for_cache(bytes, &order.user).expect("a block that was built can be read");
    check_walks(&block, &entries);
    for (at, (key, value)) in entries.iter().enumerate() {
        let mut cursor = Cursor::default();
        assert_eq!(cursor.seek(&block, order, key.as_key()), Ok(true));
        assert_eq!((cursor.key(&block).as_bytes(), cursor.value(&block)), (key.as_bytes(), &value[..]));
        let Ok(Lookup::Found { trailer, value_at, value_len }) = block.lookup(order, key.as_key(), None)
        else {
            panic!("entry {at} of a built block is not found");
        };
        assert_eq!(trailer, key.as_key().trailer());
        assert_eq!(&block.bytes()[value_at as usize..][..value_len as usize], value);
        check_absent(&block, order, &entries, &[key.user_key(), b"!"].concat());
    }
}

fn check_walks(block: &Block, entries: &[(InternalKeyBuf, Vec<u8>)]) {
    let mut cursor = Cursor::default();
    let mut more = cursor.seek_to_first(block);
    for (key, value) in entries {
        assert_eq!(more, Ok(true), "a walk ends too early");
        assert_eq!((cursor.key(block).as_bytes(), cursor.value(block)), (key.as_bytes(), &value[..]));
        more = cursor.next(block);
    }
    assert_eq!(more, Ok(false));
    let mut more = cursor.seek_to_last(block);
    for (key, value) in entries.iter().rev() {
        assert_eq!(more, Ok(true), "a walk backwards ends too early");
        assert_eq!((cursor.key(block).as_bytes(), cursor.value(block)), (key.as_bytes(), &value[..]));
        more = cursor.prev(block);
    }
    assert_eq!(more, Ok(false));
}

/// A key that may be there or not: a seek must agree with the list.
fn check_absent(
    block: &Block,
    order: &InternalKeyComparator,
    entries: &[(InternalKeyBuf, Vec<u8>)],
    user_key: &[u8],
) {
    let target = InternalKeyBuf::for_seek(user_key, SequenceNumber::MAX);
    let expected = entries.iter().find(|(key, _)| order.compare(key.as_key(), target.as_key()).is_ge());
    let mut cursor = Cursor::default();
    assert_eq!(cursor.seek(block, order, target.as_key()), Ok(expected.is_some()));
    if let Some((key, _)) = expected {
        assert_eq!(cursor.key(block).as_bytes(), key.as_bytes());
    }
    if !entries.iter().any(|(key, _)| key.user_key() == user_key) {
        let found = block.lookup(order, target.as_key(), None);
        assert!(!matches!(found, Ok(Lookup::Found { .. })), "a lookup finds a key that is not there");
    }
}

/// A block of a few entries, as table builders write it.
pub(super) fn sample(restart_interval: u32, hashed: bool) -> Vec<u8> {
    let mut builder = BlockBuilder::new(restart_interval, true);
    if hashed {
        builder = builder.with_hash_index(0.75);
    }
    for number in 0..20u64 {
        let user_key = format!("key{:04}", number / 2);
        let key = InternalKeyBuf::new(user_key.as_bytes(), SequenceNumber(100 - number), ValueType::Value);
        builder.add_internal(key.as_bytes(), user_key.len(), format!("value {number}").as_bytes());
    }
    builder.finish().clone()
}

fn seeds() -> Vec<Seed> {
    let raw = |shape: u8, block: &[u8]| [&[shape][..], block].concat();
    let mut seeds = Vec::new();
    for interval in [1, 3, 16] {
        for hashed in [false, true] {
            let block = sample(interval, hashed);
            seeds.push(Seed::new(format!("interval_{interval}_hashed_{hashed}"), raw(8, &block)));
        }
    }
    seeds.push(Seed::new("reverse", raw(4, &sample(4, false))));
    seeds.push(Seed::new("custom_order_global_sequence", raw(6 | 16, &sample(4, false))));
    seeds.push(Seed::new("built", b"\x01\x03\x01\x01a\x01x\x02ab\x01y\x02ac\x00\x00\x02zz".to_vec()));
    seeds.push(Seed::new("built_reverse_hashed", b"\x05\x01\x01\x03abc\x01x\x02ab\x01y\x02ac\x00".to_vec()));
    seeds.push(Seed::new("built_custom", b"\x07\x02\x00\x03abc\x01x\x02ab\x01y\x01z\x00".to_vec()));
    seeds.extend(historic());
    seeds
}

/// Blocks with the damage that was somebody's bug once.
fn historic() -> Vec<Seed> {
    let raw = |shape: u8, block: Vec<u8>| [&[shape][..], &block].concat();
    let mut seeds = Vec::new();
    // rocksdb#14993: more buckets than there are bytes.
    for buckets in [0u16, 1, 200, u16::MAX] {
        let mut block = sample(3, true);
        let at = block.len() - 6;
        block[at..at + 2].copy_from_slice(&buckets.to_le_bytes());
        seeds.push(Seed::new(format!("rocksdb_14993_bucket_count_{buckets}"), raw(0, block)));
    }
    // rocksdb#15209: four times the number of restart points does not fit in 32 bits.
    for count in [0x0fff_ffffu32, 0x4000_0000 - 1, 0x4000_0001 & 0x0fff_ffff, 0] {
        let mut block = sample(3, false);
        let at = block.len() - 4;
        block[at..].copy_from_slice(&count.to_le_bytes());
        seeds.push(Seed::new(format!("rocksdb_15209_restart_count_{count:x}"), raw(0, block)));
    }
    // Lengths whose sum does not fit in 32 bits.
    let lengths = [0xff, 0xff, 0xff, 0xff, 0x0f];
    let huge = [&[0][..], &lengths, &lengths, &[0; 4], &[1, 0, 0, 0]].concat();
    seeds.push(Seed::new("lengths_overflow", raw(0, huge)));
    // A restart point in the middle of an entry.
    let mut block = sample(3, false);
    let at = block.len() - 8;
    block[at] = block[at].wrapping_add(3);
    seeds.push(Seed::new("restart_inside_entry", raw(8, block)));
    seeds
}
