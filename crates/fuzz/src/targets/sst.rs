//! Whole tables: what a builder wrote, damaged.
//!
//! ```text
//! options  8 x u8   format version, checksum, index, codec and dictionary, filter, block size, restart
//!                   interval, flags: 0 mend the checksums; 1 hash index in blocks; 2 partitioned filters;
//!                   3 blocks in a cache; 4 prefixes
//! patches  (offset u16 | change u8) ...; then maybe a cut
//! ```
//! Without mending, checksums must catch it: opening and reading fail, or give the right answers. With mended
//! checksums any content is possible; see `table_parts` for what must hold then.

use super::{Seed, Target, table_parts};
use crate::input::Input;
use crate::judge::check_error;
use crate::table_image::{PATH, TableImage, open};
use ironstone::CacheOptions;
use ironstone_base::checksum::ChecksumKind;
use ironstone_base::sync::Arc;
use ironstone_base::{InternalKeyBuf, SequenceNumber, ValueType, slice_transform};
use ironstone_compress::CompressionKind;
use ironstone_iter::InternalIterator;
use ironstone_sst::{
    BlockCache, BuildOptions, DataBlockIndexType, FilterKind, FilterPolicy, IndexType, ReadContext,
    TableOptions, TableReadOptions,
};

pub(super) const TARGET: Target = Target {
    name: "sst",
    what: "whole tables, damaged with and without checksums mended",
    run,
    seeds,
    mutations: 12_000,
};

pub(super) type Entries = Vec<(InternalKeyBuf, Vec<u8>)>;

const MEND: u8 = 1;
const INDEXES: [IndexType; 4] = [
    IndexType::BinarySearch,
    IndexType::HashSearch,
    IndexType::TwoLevel,
    IndexType::BinarySearchWithFirstKey,
];

pub(super) fn entries() -> Entries {
    let entry = |number: u64| {
        let user_key = format!("key{:03}{}", number / 2, "x".repeat(number as usize / 2 % 5));
        let kind = if number % 7 == 6 { ValueType::Deletion } else { ValueType::Value };
        let value = format!("value {number} {}", "v".repeat(number as usize % 30));
        (InternalKeyBuf::new(user_key.as_bytes(), SequenceNumber(500 - number), kind), value.into_bytes())
    };
    (0..70).map(entry).collect()
}

fn options(input: &mut Input<'_>) -> (BuildOptions, u8) {
    let format_version = u32::from(input.byte() % 5) + 2;
    let checksum = ChecksumKind::from_byte(input.byte() % 5).expect("there are five");
    let index_type = input.pick(&INDEXES);
    let codec = input.byte();
    let filter_policy = match input.byte() % 4 {
        0 => None,
        1 => Some(FilterPolicy::bloom(10.0)),
        2 => Some(FilterPolicy::ribbon(10.0, -1)),
        _ => Some(FilterPolicy::new(FilterKind::LegacyBloom, 8.0)),
    };
    let block_size = input.pick(&[200, 64, 1000, 100_000]);
    let block_restart_interval = u32::from(input.byte() % 20);
    let flags = input.byte();
    let hashed = flags & 2 != 0;
    let with_prefix = flags & 16 != 0 || index_type == IndexType::HashSearch;
    let table = TableOptions {
        format_version,
        checksum,
        index_type,
        filter_policy,
        block_size,
        block_restart_interval,
        metadata_block_size: 100,
        data_block_index_type: if hashed {
            DataBlockIndexType::BinarySearchAndHash
        } else {
            DataBlockIndexType::BinarySearch
        },
        partition_filters: flags & 4 != 0,
        block_cache: (flags & 8 != 0)
            .then(|| BlockCache::new(CacheOptions { capacity: 1 << 20, ..Default::default() })),
        cache_index_and_filter_blocks: flags & 8 != 0,
        prefix_extractor: with_prefix.then(|| slice_transform::capped_prefix(5)),
        max_block_size: 4 << 20,
        ..TableOptions::default()
    };
    let mut build = BuildOptions::new(Arc::new(table));
    let kinds = [
        CompressionKind::None,
        CompressionKind::Lz4,
        CompressionKind::Zstd,
        CompressionKind::Snappy,
        CompressionKind::Zlib,
        CompressionKind::Bzip2,
    ];
    build.compression = kinds[usize::from(codec) % kinds.len()];
    build.compression_options.max_dict_bytes = if codec & 0x80 != 0 { 200 } else { 0 };
    (build, flags)
}

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (options, flags) = options(&mut input);
    let (table, entries) = (Arc::clone(&options.table), entries());
    let mut image = TableImage::build(options, &entries);
    let pristine = image.bytes.clone();
    while !input.is_empty() {
        let (at, change) = (usize::from(input.u16()), input.byte());
        let len = image.bytes.len();
        image.bytes[at % len] ^= change;
        // Lengths are rarely hit by chance, so the last patch may cut instead.
        if input.is_empty() && change == 0 {
            image.bytes.truncate(at % len);
        }
    }
    let changed = (0..image.bytes.len()).filter(|&at| image.bytes[at] != pristine[at]).collect::<Vec<_>>();
    let cut = image.bytes.len() < pristine.len();
    if flags & MEND != 0 {
        image.mend();
    }
    // Three changed bytes cannot make another content fit a checksum. Old footers have none.
    let checked = table.checksum != ChecksumKind::None && flags & MEND == 0;
    let covered = table.format_version >= 6 || changed.iter().all(|&at| at < image.footer_at);
    let must_be_right = changed.is_empty() && !cut || checked && covered && changed.len() <= 3;
    let mut reader = match open(image.bytes, &table) {
        Ok(reader) => reader,
        Err(error) => {
            assert!(cut || !changed.is_empty(), "an undamaged table: {error}");
            return check_error(&error, Some(PATH));
        }
    };
    if must_be_right {
        check_answers(&mut reader, &entries);
    }
    table_parts::read(&reader);
}

/// Whatever is no error must be right.
pub(super) fn check_answers(reader: &mut Arc<ironstone_sst::TableReader>, entries: &Entries) {
    let check = |error: &ironstone::Error| check_error(error, Some(PATH));
    let mut iter = reader.iter(&TableReadOptions::default());
    let mut more = iter.seek_to_first();
    for (key, value) in entries {
        match &more {
            Ok(true) => assert_eq!((iter.key(), iter.value()), (key.as_key(), &value[..])),
            Ok(false) => panic!("a walk ends before its end"),
            Err(error) => {
                check(error);
                break;
            }
        }
        more = iter.next();
    }
    assert!(!matches!(more, Ok(true)), "a walk goes on beyond its end");
    for (key, value) in entries {
        match reader.get(&ReadContext::default(), key.as_key()) {
            Ok(found) => assert_eq!(found.as_ref().map(|entry| &entry.value[..]), Some(&value[..])),
            Err(error) => check(&error),
        }
    }
}

fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for version in 0..5u8 {
        for index in 0..4u8 {
            let options = [version, index + 1, index, version, version % 4, index % 3, 3, index << 1 | 16];
            let patches = [40, 1, 0x10, 200, 3, 0x80];
            let name = format!("version_{}_index_{index}", version + 2);
            seeds.push(Seed::new(name, [&options[..], &patches].concat()));
        }
    }
    for (number, flags) in [1u8, 3, 5, 9, 11, 31].into_iter().enumerate() {
        let options = [number as u8, 1, number as u8, 0, number as u8, 0, 2, flags];
        let patches = [[7, 0, 4], [0x80, 2, 0xff], [1, 5, 1]].concat();
        seeds.push(Seed::new(format!("mended_{flags}"), [&options[..], &patches].concat()));
    }
    for codec in 1..6u8 {
        let options = [3, 4, 0, codec | 0x80, 1, 2, 16, 1];
        seeds.push(Seed::new(format!("mended_codec_{codec}"), [&options[..], &[9, 0, 2]].concat()));
    }
    seeds.push(Seed::new("whole", vec![4, 4, 2, 2, 1, 0, 4, 12]));
    seeds.push(Seed::new("cut", vec![3, 1, 0, 0, 1, 0, 4, 0, 0x11, 3, 0]));
    seeds
}
