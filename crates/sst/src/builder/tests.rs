use super::*;
use crate::options::{OpenOptions, ReadContext, TableReadOptions};
use crate::table::{TableBuilder, TableReader};
use crate::{BlockCache, FilterPolicy};
use ironstone_base::FileNumber;
use ironstone_iter::InternalIterator;
use ironstone_vfs::fault::FaultFileSystem;
use ironstone_vfs::mem::MemFileSystem;
use ironstone_vfs::{FileSystem, OpenHints, WriteOptions};
use std::path::Path;

const PATH: &str = "/000009.sst";

fn key(i: u64) -> InternalKeyBuf {
    InternalKeyBuf::new(format!("key{i:08}").as_bytes(), SequenceNumber(i), ValueType::Value)
}

fn builder(fs: &dyn FileSystem, options: &BuildOptions) -> TableBuilder {
    TableBuilder::new(options.clone(), fs.create(Path::new(PATH), WriteOptions::default()).unwrap()).unwrap()
}

fn open(fs: &dyn FileSystem, table: &Arc<TableOptions>) -> Arc<TableReader> {
    let file = fs.open_random(Path::new(PATH), OpenHints::default()).unwrap();
    let size = file.size();
    Arc::new(TableReader::open(file, size, OpenOptions::new(Arc::clone(table), FileNumber(9))).unwrap())
}

#[test]
fn sizes_are_estimated_well() {
    let fs = MemFileSystem::new();
    let mut builder = builder(&fs, &BuildOptions::new(Arc::default()));
    assert!(builder.is_empty());
    for i in 0..5000 {
        builder.add(key(i).as_key(), &[b'v'; 100]).unwrap();
    }
    let (written, estimate) = (builder.file_size(), builder.estimated_file_size());
    let built = builder.finish(true).unwrap();
    assert!(written <= built.file_size && built.file_size <= estimate + estimate / 50);
    assert!(estimate <= built.file_size + built.file_size / 20, "{estimate} for {}", built.file_size);
    assert_eq!(fs.size(Path::new(PATH)).unwrap(), built.file_size);
    assert_eq!(built.properties.tail_start_offset + built.tail_size, built.file_size);
    assert_eq!(built.properties.data_size, built.properties.tail_start_offset);
}

/// How large a table of `count` entries is, and at most was to be before the last was added.
fn size_and_bound(options: &BuildOptions, count: u64) -> (u64, u64) {
    let fs = MemFileSystem::new();
    let mut builder = builder(&fs, options);
    let mut bound = 0;
    for i in 0..count {
        let value = i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().repeat((i % 7) as usize);
        bound = builder.file_size_bound_with(key(i).as_key(), &value);
        builder.add(key(i).as_key(), &value).unwrap();
    }
    (builder.finish(true).unwrap().file_size, bound)
}

#[test]
fn no_table_exceeds_the_bound_of_its_size() {
    let policies = [FilterPolicy::bloom(10.0), FilterPolicy::bloom(40.0), FilterPolicy::ribbon(10.0, -1)];
    let policies = [None].into_iter().chain(policies.map(Some)).collect::<Vec<_>>();
    let index_types = [IndexType::BinarySearch, IndexType::TwoLevel, IndexType::BinarySearchWithFirstKey];
    for (policy, index_type) in policies.iter().flat_map(|policy| index_types.map(|kind| (policy, kind))) {
        for (block_align, hashed) in [(false, false), (true, false), (false, true)] {
            let mut table = TableOptions { index_type, block_align, ..TableOptions::default() };
            (table.block_size, table.metadata_block_size) = (512, 256);
            table.filter_policy.clone_from(policy);
            table.partition_filters = true;
            if hashed {
                table.data_block_index_type = DataBlockIndexType::BinarySearchAndHash;
            }
            let options = BuildOptions::new(Arc::new(table));
            for count in [1, 2, 20, 300, 301, 302, 303, 304, 5000] {
                let (size, bound) = size_and_bound(&options, count);
                let what =
                    format!("{count} entries: {size} bytes, {bound} foreseen ({policy:?}, {index_type:?})");
                assert!(size <= bound, "{what}");
                assert!(bound <= size + size / 4 + 8000, "{what}");
            }
        }
    }
}

#[test]
fn aligned_blocks_do_not_straddle_pages() {
    let fs = MemFileSystem::new();
    let table = Arc::new(TableOptions { block_align: true, ..TableOptions::default() });
    let mut builder = builder(&fs, &BuildOptions::new(Arc::clone(&table)));
    for i in 0..2000 {
        builder.add(key(i).as_key(), &[b'v'; 100]).unwrap();
    }
    builder.finish(false).unwrap();
    let reader = open(&fs, &table);
    for i in 0..2000 {
        assert_eq!(reader.approximate_offset_of(key(i).as_key()).unwrap() % 4096, 0);
    }
}

/// Written with values of `value_len` bytes: of the data blocks the part that crosses a page which it would not have to, of
/// the file the part that is padding, and the table's properties.
fn shape(value_len: usize, table: TableOptions, compression: CompressionKind) -> (f64, f64, TableProperties) {
    let (fs, table) = (MemFileSystem::new(), Arc::new(table));
    let mut options = BuildOptions::new(Arc::clone(&table));
    options.compression = compression;
    let mut builder = builder(&fs, &options);
    for i in 0..20_000 {
        builder.add(key(i).as_key(), &vec![b'v'; value_len]).unwrap();
    }
    let properties = builder.finish(false).unwrap().properties;
    let reader = open(&fs, &table);
    reader.verify_checksums().unwrap();
    let mut iter = reader.iter(&TableReadOptions::default());
    let mut more = iter.seek_to_first().unwrap();
    let mut count = 0;
    while more {
        assert_eq!(iter.key(), key(count).as_key());
        assert!(reader.get(&ReadContext::default(), key(count).as_key()).unwrap().is_some());
        count += 1;
        more = iter.next().unwrap();
    }
    assert_eq!(count, 20_000);
    let mut starts: Vec<u64> =
        (0..20_000).map(|i| reader.approximate_offset_of(key(i).as_key()).unwrap()).collect();
    starts.dedup();
    let crosses = |start: &&u64| !start.is_multiple_of(PAGE_SIZE as u64);
    let crossing = starts.iter().filter(crosses).count() as f64 / starts.len() as f64;
    let stored = properties.uncompressed_data_size + properties.num_data_blocks * BLOCK_TRAILER_LEN as u64;
    (crossing, 1.0 - stored as f64 / properties.data_size as f64, properties)
}

#[test]
fn blocks_of_small_entries_keep_to_pages() {
    let pages = |block_size| TableOptions { block_size, ..TableOptions::default() };
    for (block_size, value_len) in [(4096, 20), (4096, 100), (4096, 200), (16384, 100)] {
        let (crossing, padding, properties) = shape(value_len, pages(block_size), CompressionKind::None);
        assert_eq!(crossing, 0.0, "blocks of {block_size}, values of {value_len}");
        assert!(padding > 0.0 && padding < 1.0 / 16.0, "{padding}");
        assert_eq!(properties.index_value_is_delta_encoded, 0);
    }
    // Where that cost more than it saves, blocks lie side by side.
    let (crossing, padding, properties) = shape(1500, pages(4096), CompressionKind::None);
    assert!(crossing > 0.5 && padding < 0.02, "{crossing}, {padding}");
    assert_eq!(properties.index_value_is_delta_encoded, 1);
    for (block_size, compression) in [(4096, CompressionKind::Lz4), (4000, CompressionKind::None)] {
        let (_, padding, properties) = shape(100, pages(block_size), compression);
        assert_eq!(properties.index_value_is_delta_encoded, 1);
        assert!(compression == CompressionKind::Lz4 || padding == 0.0, "{padding}");
    }
}

#[test]
fn partitioned_indexes_and_filters_stand_gaps_between_blocks() {
    let table = TableOptions {
        index_type: IndexType::TwoLevel,
        partition_filters: true,
        metadata_block_size: 512,
        filter_policy: Some(FilterPolicy::bloom(10.0)),
        ..TableOptions::default()
    };
    for value_len in [100, 400, 1500] {
        let (_, padding, properties) = shape(value_len, table.clone(), CompressionKind::None);
        assert!(properties.index_partitions > 1 && padding < 1.0 / 16.0);
    }
}

#[test]
fn a_dictionary_makes_small_blocks_smaller() {
    let fs = MemFileSystem::new();
    let table = Arc::new(TableOptions { block_size: 500, ..TableOptions::default() });
    let size_of = |dictionary| {
        let mut options = BuildOptions::new(Arc::clone(&table));
        options.compression = CompressionKind::Zstd;
        options.compression_options.max_dict_bytes = dictionary;
        options.compression_options.zstd_max_train_bytes = dictionary * 10;
        let mut builder = builder(&fs, &options);
        for i in 0..3000 {
            let value = format!("{{\"name\": \"number {i}\", \"kind\": \"sample\", \"square\": {}}}", i * i);
            builder.add(key(i).as_key(), value.as_bytes()).unwrap();
        }
        let size = builder.finish(false).unwrap().file_size;
        let reader = open(&fs, &table);
        reader.verify_checksums().unwrap();
        assert!(reader.get(&ReadContext::default(), key(77).as_key()).unwrap().is_some());
        size
    };
    assert!(size_of(4096) * 5 < size_of(0) * 4);
}

#[test]
fn a_failed_write_ends_the_building() {
    let fs = MemFileSystem::new();
    fs.set_capacity(Some(20_000));
    let fs = FaultFileSystem::new(Arc::new(fs));
    let mut builder = builder(&fs, &BuildOptions::new(Arc::default()));
    let failed = (0..10_000).find_map(|i| builder.add(key(i).as_key(), &[b'v'; 100]).err());
    assert!(failed.expect("the file system is full").is_no_space());
    assert!(builder.add(key(20_000).as_key(), b"").unwrap_err().is_no_space());
    assert!(builder.finish(true).unwrap_err().is_no_space());
}

#[test]
fn readers_share_a_cache() {
    let cache = BlockCache::new(ironstone_cache::CacheOptions::default());
    let table = Arc::new(TableOptions { block_cache: Some(Arc::clone(&cache)), ..TableOptions::default() });
    let fs = MemFileSystem::new();
    let mut builder = builder(&fs, &BuildOptions::new(Arc::clone(&table)));
    for i in 0..1000 {
        builder.add(key(i).as_key(), &[i as u8; 50]).unwrap();
    }
    builder.finish(false).unwrap();
    let (one, two) = (open(&fs, &table), open(&fs, &table));
    for reader in [&one, &two] {
        let mut iter = reader.iter(&TableReadOptions::default());
        let mut more = iter.seek_to_first().unwrap();
        while more {
            more = iter.next().unwrap();
        }
    }
    // Without a session id nobody can tell that it is the same file: each has blocks of its own.
    assert_eq!(cache.entry_count() as u64, 2 * one.properties().num_data_blocks);
}

#[test]
fn ribbon_filters_are_for_tables_from_their_level_on_and_flushes_come_before_all() {
    let is_ribbon = |policy: FilterPolicy, level, is_flush, has_levels| {
        let fs = MemFileSystem::new();
        let table = TableOptions { filter_policy: Some(policy), has_levels, ..TableOptions::default() };
        let options = BuildOptions { level, is_flush, ..BuildOptions::new(Arc::new(table)) };
        let mut builder = builder(&fs, &options);
        (0..2000).for_each(|i| builder.add(key(i).as_key(), b"v").unwrap());
        builder.finish(false).unwrap();
        let reader = open(&fs, &options.table);
        let (_, filter) = reader
            .meta_blocks()
            .iter()
            .find(|(name, _)| name.starts_with(FULL_FILTER_PREFIX))
            .unwrap()
            .clone();
        let file = fs.read_all(Path::new(PATH)).unwrap();
        match file[(filter.offset + filter.size) as usize - 5] {
            0xff => false, // Where legacy filters have the number of probes.
            0xfe => true,
            other => panic!("{other:#x} is the kind of no filter"),
        }
    };
    let ribbon = |before| FilterPolicy::ribbon(10.0, before);
    assert!(!is_ribbon(ribbon(0), Some(0), true, true), "a flush");
    assert!(is_ribbon(ribbon(0), Some(0), false, true), "a table of level 0 that is no flush");
    assert!(is_ribbon(ribbon(-1), Some(0), true, true));
    assert!(!is_ribbon(ribbon(3), Some(2), false, true) && is_ribbon(ribbon(3), Some(3), false, true));
    assert!(is_ribbon(ribbon(3), None, false, true), "a file from outside may go to the bottom");
    assert!(is_ribbon(ribbon(3), Some(0), true, false), "levels without age");
    assert!(!is_ribbon(ribbon(i32::MAX), Some(0), true, false));
}

#[test]
fn comparing_with_the_length_of_what_is_common_is_the_same_order() {
    let users: [&[u8]; 9] =
        [b"", b"a", b"ab", b"abcdefgh", b"abcdefghi", b"abcdefgi", b"b", b"\xff", b"a\x01\x05\0\0\0\0\0\0x"];
    let keys: Vec<InternalKeyBuf> = users
        .iter()
        .flat_map(|user| {
            [1, 5, 0x0101].map(|at| InternalKeyBuf::new(user, SequenceNumber(at), ValueType::Value))
        })
        .collect();
    for user in [UserComparator::Bytewise, UserComparator::ReverseBytewise] {
        let order = InternalKeyComparator::new(user);
        for (a, b) in keys.iter().flat_map(|a| keys.iter().map(move |b| (a.as_key(), b.as_key()))) {
            let common = a.as_bytes().iter().zip(b.as_bytes()).take_while(|(x, y)| x == y).count();
            assert_eq!(super::compare_and_match(&order, a, b), (order.compare(a, b), common), "{a:?} {b:?}");
        }
    }
}

#[test]
fn version_7_names_the_compression_manager_and_the_codecs_used() {
    let name = |format_version, compression, value: &[u8]| {
        let fs = MemFileSystem::new();
        let table = Arc::new(TableOptions { format_version, ..TableOptions::default() });
        let mut builder =
            builder(&fs, &BuildOptions { compression, ..BuildOptions::new(Arc::clone(&table)) });
        builder.add(key(1).as_key(), value).unwrap();
        builder.finish(true).unwrap();
        let reader = open(&fs, &table);
        let found = reader.get(&ReadContext::default(), key(1).as_key()).unwrap().unwrap();
        assert_eq!(&*found.value, value);
        reader.properties().compression_name.clone()
    };
    assert_eq!(name(6, CompressionKind::Lz4, &[b'v'; 1000]), "LZ4");
    assert_eq!(name(7, CompressionKind::None, &[b'v'; 1000]), ";;");
    assert_eq!(name(7, CompressionKind::Lz4, &[b'v'; 1000]), "BuiltinV2;04;");
    assert_eq!(name(7, CompressionKind::Zstd, &[b'v'; 1000]), "BuiltinV2;07;");
    assert_eq!(name(7, CompressionKind::Zstd, b"too short to gain"), "BuiltinV2;;");
}
