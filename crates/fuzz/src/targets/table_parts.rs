//! Tables put together from blocks of any content, with right checksums.
//!
//! ```text
//! version   u8   0 to 7, or LevelDB's
//! checksum  u8
//! cache     u8   bit 0: index and filter live in the block cache
//! parts     (role u8 | codec u8 | length u16 and bytes) ...
//! ```
//! A part takes the place of a block of a small valid table, or becomes a meta block of a name of its own: range
//! tombstones, dictionary, filters, hash index. So this target reaches the decoders of properties, metaindex
//! and the other meta blocks with any bytes. Opening and reading answer, or fail with an error that names the file.
//! If checking the whole table finds nothing, a walk returns its keys in order and as many as it claims.

use super::{Seed, Target, data_block, index_block};
use crate::input::Input;
use crate::judge::check_error;
use crate::table_image::{Assembler, PATH, open};
use ironstone::CacheOptions;
use ironstone_base::checksum::ChecksumKind;
use ironstone_base::sync::Arc;
use ironstone_base::{InternalKeyBuf, SequenceNumber, ValueType};
use ironstone_iter::InternalIterator;
use ironstone_sst::block_builder::BlockBuilder;
use ironstone_sst::handle::{BlockHandle, IndexValue};
use ironstone_sst::index::IndexFormat;
use ironstone_sst::{BlockCache, ReadContext, TableOptions, TableReadOptions, TableReader};

pub(super) const TARGET: Target = Target {
    name: "table_parts",
    what: "properties, metaindex and every other block of a table",
    run,
    seeds,
    mutations: 100_000,
};

/// Meta blocks whose content is the input's.
const META_NAMES: [&str; 10] = [
    "rocksdb.range_del",
    "rocksdb.compression_dict",
    "fullfilter.rocksdb.BuiltinBloomFilter",
    "partitionedfilter.rocksdb.BuiltinBloomFilter",
    "rocksdb.hashindex.prefixes",
    "rocksdb.hashindex.metadata",
    "filter.rocksdb.BuiltinBloomFilter",
    "rocksdb.stats",
    "rocksdb.embedded.blob.stats",
    "something.else",
];
const DATA: u8 = 0;
const INDEX: u8 = 1;
const PROPERTIES: u8 = 2;
const METAINDEX: u8 = 3;
const FIRST_META: u8 = 4;
/// A codec that means: stored as it is.
const RAW: u8 = 0;
/// What a block may become longer than in the file.
const MAX_BLOCK: usize = 4 << 20;

struct Part<'a> {
    role: u8,
    codec: u8,
    bytes: &'a [u8],
}

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let version = Some(u32::from(input.byte() % 9)).filter(|version| *version < 8);
    let kind = ChecksumKind::from_byte(input.byte() % 5).expect("there are five");
    let in_cache = input.flag();
    let mut parts = Vec::new();
    while !input.is_empty() && parts.len() < 12 {
        let role = input.byte() % (FIRST_META + META_NAMES.len() as u8);
        parts.push(Part { role, codec: input.byte(), bytes: input.long() });
    }
    let file = assemble(version, kind, &parts);
    let table = Arc::new(TableOptions {
        max_block_size: MAX_BLOCK,
        cache_index_and_filter_blocks: in_cache,
        block_cache: in_cache
            .then(|| BlockCache::new(CacheOptions { capacity: 1 << 20, ..Default::default() })),
        prefix_extractor: Some(ironstone_base::slice_transform::capped_prefix(3)),
        ..TableOptions::default()
    });
    match open(file, &table) {
        Ok(reader) => read(&reader),
        Err(error) => check_error(&error, Some(PATH)),
    }
}

fn assemble(version: Option<u32>, kind: ChecksumKind, parts: &[Part<'_>]) -> Vec<u8> {
    let mut table = Assembler::new(version, kind);
    let mut named: Vec<(&str, BlockHandle)> = Vec::new();
    let add = |table: &mut Assembler, role: u8, default: &[u8]| {
        let part = parts.iter().find(|part| part.role == role);
        let (bytes, codec) = part.map_or((default, RAW), |part| (part.bytes, part.codec));
        table.add(bytes, codec)
    };
    let data = add(&mut table, DATA, &data_block::sample(4, false));
    let index = add(&mut table, INDEX, &index_of(data));
    let properties = add(&mut table, PROPERTIES, &properties_block(data));
    named.push(("rocksdb.properties", properties));
    if version.is_some_and(|version| version >= 6) {
        named.push(("rocksdb.index", index));
    }
    for (role, name) in (FIRST_META..).zip(META_NAMES) {
        if let Some(part) = parts.iter().find(|part| part.role == role) {
            named.push((name, table.add(part.bytes, part.codec)));
        }
    }
    let metaindex = match parts.iter().find(|part| part.role == METAINDEX) {
        Some(part) => part.bytes.to_vec(),
        None => metaindex_block(&named),
    };
    table.finish(&metaindex, index)
}

/// An index with one block.
fn index_of(data: BlockHandle) -> Vec<u8> {
    let key = InternalKeyBuf::new(b"zzz", SequenceNumber::ZERO, ValueType::Value);
    let mut value = Vec::new();
    IndexValue { handle: data, first_key: &[] }.encode(&mut value, false, None);
    let mut builder = BlockBuilder::new(1, true);
    builder.add(key.as_bytes(), &value);
    builder.finish().clone()
}

fn metaindex_block(named: &[(&str, BlockHandle)]) -> Vec<u8> {
    let mut named = named.to_vec();
    named.sort_by_key(|(name, _)| *name);
    let mut builder = BlockBuilder::new(1, true);
    for (name, handle) in named {
        let mut value = Vec::new();
        handle.encode(&mut value);
        builder.add(name.as_bytes(), &value);
    }
    builder.finish().clone()
}

fn properties_block(data: BlockHandle) -> Vec<u8> {
    let mut builder = BlockBuilder::new(u32::MAX, true);
    for (name, value) in [
        ("rocksdb.block.based.table.index.type", &[0, 0, 0, 0][..]),
        ("rocksdb.comparator", b"leveldb.BytewiseComparator"),
        ("rocksdb.data.size", &[data.end() as u8 | 0x80, (data.end() >> 7) as u8]),
        ("rocksdb.num.data.blocks", &[1]),
        ("rocksdb.num.entries", &[20]),
    ] {
        builder.add(name.as_bytes(), value);
    }
    builder.finish().clone()
}

/// Reads in every way.
pub(super) fn read(reader: &Arc<TableReader>) {
    let check = |error: &ironstone::Error| check_error(error, Some(PATH));
    let whole = reader.verify_checksums().inspect_err(check).is_ok();
    let _ = reader.properties().listing();
    let _ = reader.anchors(3).inspect_err(check);
    let mut iter = reader.iter(&TableReadOptions::default());
    let keys = walk(&mut iter, whole, reader);
    let mut steps = 0;
    let mut more = iter.seek_to_last().inspect_err(check).unwrap_or(false);
    while more && steps < MAX_STEPS {
        let _ = (iter.key().to_buf(), iter.value().len());
        more = iter.prev().inspect_err(check).unwrap_or(false);
        steps += 1;
    }
    let absent = InternalKeyBuf::for_seek(b"key0003x", SequenceNumber::MAX);
    let context = ReadContext::default();
    for key in keys.iter().take(24).chain([&absent]) {
        let target = InternalKeyBuf::for_seek(key.user_key(), SequenceNumber::MAX);
        let target = target.as_key();
        let _ =
            reader.get(&context, target).map(|found| found.map(|entry| entry.value.len())).inspect_err(check);
        let _ = reader.visit(&context, target, &mut |entry| !entry.value.is_empty()).inspect_err(check);
        let _ = iter.seek(target).inspect_err(check);
        let _ = iter.seek_for_prev(target).inspect_err(check);
        let _ = reader.prefix_may_match(&context, target).inspect_err(check);
        let _ = reader.approximate_offset_of(target).inspect_err(check);
    }
}

/// Index entries may all name one block, so a walk may take the square of the file's size in steps. That blocks
/// and indexes end is for their own targets to show.
const MAX_STEPS: usize = 20_000;

fn walk(iter: &mut impl InternalIterator, whole: bool, reader: &Arc<TableReader>) -> Vec<InternalKeyBuf> {
    let mut keys: Vec<InternalKeyBuf> = Vec::new();
    let mut more = iter.seek_to_first();
    while let Ok(true) = more {
        let _ = iter.value().len();
        if keys.len() >= MAX_STEPS {
            return keys;
        }
        keys.push(iter.key().to_buf());
        more = iter.next();
    }
    assert!(!iter.valid());
    match more {
        Err(error) => {
            check_error(&error, Some(PATH));
            assert!(!whole, "a table without a fault cannot be walked: {error}");
        }
        Ok(_) if whole => {
            let user = ironstone_base::UserComparator::Bytewise;
            let order = ironstone_base::InternalKeyComparator::new(user);
            let in_order = keys.is_sorted_by(|a, b| order.compare(a.as_key(), b.as_key()).is_lt());
            assert!(
                in_order || reader.global_sequence().is_some(),
                "keys of a checked table are out of order"
            );
        }
        Ok(_) => {}
    }
    keys
}

fn seeds() -> Vec<Seed> {
    let part = |role: u8, codec: u8, bytes: &[u8]| {
        [&[role, codec][..], &(bytes.len() as u16).to_le_bytes(), bytes].concat()
    };
    let mut seeds = Vec::new();
    for version in 0..9u8 {
        seeds.push(Seed::new(format!("version_{version}"), vec![version, 1, 0]));
    }
    let plain = IndexFormat { user_keys: false, delta_values: false, first_keys: false };
    let handle = BlockHandle { offset: 0, size: data_block::sample(4, false).len() as u64 };
    let blocks: [(&str, u8, Vec<u8>); 6] = [
        ("data", DATA, data_block::sample(1, true)),
        ("index", INDEX, index_block::sample(plain, 4)),
        ("properties", PROPERTIES, properties_block(handle)),
        ("metaindex", METAINDEX, metaindex_block(&[("rocksdb.properties", handle)])),
        ("range_del", FIRST_META, range_tombstones()),
        ("dictionary", FIRST_META + 1, b"words and words".to_vec()),
    ];
    for (name, role, block) in &blocks {
        for version in [2u8, 5, 6] {
            let bytes = [&[version, 4, version & 1][..], &part(*role, 0, block)].concat();
            seeds.push(Seed::new(format!("{name}_{version}"), bytes));
        }
    }
    let filter = [&[0x55; 64][..], &[0xff, 0, 6, 0, 0]].concat();
    seeds.push(Seed::new("full_filter", [&[5, 1, 1][..], &part(FIRST_META + 2, 0, &filter)].concat()));
    let top = index_of(handle);
    seeds.push(Seed::new("partitioned_filter", [&[5, 1, 0][..], &part(FIRST_META + 3, 0, &top)].concat()));
    // rocksdb#15208: the sum of a prefix's first block and the number of its blocks does not fit in 32 bits.
    let metadata = [3, 0xff, 0xff, 0xff, 0xff, 0x0f, 0xff, 0xff, 0xff, 0xff, 0x0f];
    let hashed = [part(FIRST_META + 4, 0, b"abc"), part(FIRST_META + 5, 0, &metadata)].concat();
    seeds.push(Seed::new("rocksdb_15208_prefix_index_overflow", [&[5, 1, 0][..], &hashed].concat()));
    // A data block of a few bytes that claims to become four GiB.
    let claim = [0xff, 0xff, 0xff, 0xff, 0x0f, 0x28, 0xb5, 0x2f, 0xfd];
    seeds.push(Seed::new("claims_4_gib", [&[5, 1, 0][..], &part(DATA, 7, &claim)].concat()));
    seeds
}

fn range_tombstones() -> Vec<u8> {
    let mut builder = BlockBuilder::new(1, true);
    let begin = InternalKeyBuf::new(b"key0002", SequenceNumber(7), ValueType::RangeDeletion);
    builder.add(begin.as_bytes(), b"key0004");
    builder.finish().clone()
}
