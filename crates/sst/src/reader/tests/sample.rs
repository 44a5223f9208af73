//! Random tables and what they should answer.

use crate::filter::{FilterKind, FilterPolicy};
use crate::*;
use ironstone_base::checksum::ChecksumKind;
use ironstone_base::sync::Arc;
use ironstone_base::*;
use ironstone_cache::{Cache, CacheOptions};
use ironstone_compress::CompressionKind;
use ironstone_vfs::mem::MemFileSystem;
use ironstone_vfs::{FileSystem, OpenHints, WriteOptions};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::Path;

pub const PATH: &str = "/db/000007.sst";

/// A generator whose seed is printed, so that a failure can be replayed.
pub fn random(seed: u64) -> SmallRng {
    println!("seed {seed:#x}");
    SmallRng::seed_from_u64(seed)
}

pub type Entries = Vec<(InternalKeyBuf, Vec<u8>)>;

pub fn one_of<T: Clone>(rng: &mut SmallRng, all: &[T]) -> T {
    all[rng.random_range(0..all.len())].clone()
}

/// Any combination of table options.
pub fn table_options(rng: &mut SmallRng) -> TableOptions {
    let filters = [
        None,
        Some(FilterPolicy::bloom(10.0)),
        Some(FilterPolicy::ribbon(10.0, -1)),
        Some(FilterPolicy::new(FilterKind::LegacyBloom, 8.0)),
    ];
    let index_types = [
        IndexType::BinarySearch,
        IndexType::HashSearch,
        IndexType::TwoLevel,
        IndexType::BinarySearchWithFirstKey,
    ];
    let index_type = one_of(rng, &index_types);
    let extractors = [
        None,
        Some(slice_transform::fixed_prefix(3)),
        Some(slice_transform::capped_prefix(4)),
        Some(slice_transform::noop()),
    ];
    let mut prefix_extractor = one_of(rng, &extractors);
    if index_type == IndexType::HashSearch && prefix_extractor.is_none() {
        prefix_extractor = Some(slice_transform::capped_prefix(2));
    }
    let comparators = [
        UserComparator::Bytewise,
        UserComparator::Bytewise,
        UserComparator::ReverseBytewise,
        UserComparator::Custom(Arc::new(ByLength)),
    ];
    let shortenings = [
        IndexShortening::None,
        IndexShortening::ShortenSeparators,
        IndexShortening::ShortenSeparatorsAndSuccessor,
    ];
    let cache = rng.random_bool(0.6).then(|| {
        let capacity = if rng.random_bool(0.5) { 8 << 20 } else { 20 << 10 };
        Cache::new(CacheOptions { capacity, ..CacheOptions::default() })
    });
    let tiers = [PinningTier::None, PinningTier::FlushedAndSimilar, PinningTier::All];
    let bools = [false, true];
    let format = if rng.random_bool(0.7) { TableFormat::BlockBased } else { TableFormat::Plain };
    let plain = PlainOptions {
        user_key_len: 0,
        bloom_bits_per_key: one_of(rng, &[0, 1, 10]),
        hash_table_ratio: one_of(rng, &[0.0, 0.1, 0.75, 4.0]),
        index_sparseness: one_of(rng, &[0, 1, 2, 16]),
        encoding: match prefix_extractor {
            Some(_) => one_of(rng, &[PlainEncoding::Plain, PlainEncoding::Prefix]),
            None => PlainEncoding::Plain,
        },
        full_scan_mode: rng.random_bool(0.1),
        store_index_in_file: one_of(rng, &bools),
    };
    TableOptions {
        format,
        plain,
        comparator: match format {
            TableFormat::BlockBased => one_of(rng, &comparators),
            // The order by length tears the keys of a prefix apart, which the index of a plain table does not stand.
            _ => one_of(rng, &comparators[..3]),
        },
        prefix_extractor,
        block_size: one_of(rng, &[64, 300, 1024, 4096]),
        block_size_deviation: one_of(rng, &[0, 10, 50]),
        block_restart_interval: one_of(rng, &[1, 2, 7, 16, 100]),
        index_block_restart_interval: one_of(rng, &[1, 3, 16]),
        metadata_block_size: one_of(rng, &[64, 200, 1000, 4096]),
        checksum: ChecksumKind::from_byte(rng.random_range(0..5)).unwrap(),
        format_version: rng.random_range(2..=7),
        index_type,
        data_block_index_type: one_of(
            rng,
            &[DataBlockIndexType::BinarySearch, DataBlockIndexType::BinarySearchAndHash],
        ),
        filter_policy: one_of(rng, &filters),
        whole_key_filtering: one_of(rng, &bools),
        partition_filters: one_of(rng, &bools),
        decouple_partitioned_filters: one_of(rng, &bools),
        use_delta_encoding: rng.random_bool(0.8),
        enable_index_compression: one_of(rng, &bools),
        index_shortening: one_of(rng, &shortenings),
        detect_filter_construct_corruption: one_of(rng, &bools),
        verify_compression: one_of(rng, &bools),
        block_align: rng.random_bool(0.1),
        cache_index_and_filter_blocks: one_of(rng, &bools),
        pinning: MetadataPinning {
            top_level: one_of(rng, &tiers),
            partitions: one_of(rng, &tiers),
            unpartitioned: one_of(rng, &tiers),
        },
        block_cache: cache,
        initial_auto_readahead_size: one_of(rng, &[0, 100, 8 << 10]),
        max_auto_readahead_size: one_of(rng, &[0, 1000, 256 << 10]),
        num_file_reads_for_auto_readahead: one_of(rng, &[0, 2]),
        statistics: rng.random_bool(0.5).then(|| Arc::new(Statistics::new())),
        ..TableOptions::default()
    }
}

/// Any way to build with those.
pub fn build_options(rng: &mut SmallRng, mut table: TableOptions) -> BuildOptions {
    let kinds: Vec<_> = CompressionKind::ALL.into_iter().filter(|kind| kind.is_supported()).collect();
    let compression = if table.block_align { CompressionKind::None } else { one_of(rng, &kinds) };
    table.block_size =
        if table.block_align { table.block_size.next_power_of_two() } else { table.block_size };
    let mut options = BuildOptions::new(Arc::new(table));
    options.compression = compression;
    if rng.random_bool(0.4) {
        options.compression_options.max_dict_bytes = 2000;
        options.compression_options.zstd_max_train_bytes = one_of(rng, &[0, 20_000]);
        options.compression_options.max_dict_buffer_bytes = one_of(rng, &[0, 5000]);
    }
    if rng.random_bool(0.5) {
        options.db_id = "a-database".into();
        options.db_session_id = format!("ABCDEFGHIJ{:010}", rng.random_range(0..1_000_000));
    }
    options.file_number = FileNumber(7);
    (options.level, options.is_flush) =
        one_of(rng, &[(None, false), (Some(0), true), (Some(0), false), (Some(3), false)]);
    options.user_properties = vec![("test.property".into(), vec![1, 2, 3])];
    options
}

/// Shorter keys first, then by bytes: an order that is none of the built-in ones.
struct ByLength;

impl Comparator for ByLength {
    fn name(&self) -> &str {
        "test.ByLength"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        a.len().cmp(&b.len()).then_with(|| a.cmp(b))
    }
    fn different_bytes_may_be_equal(&self) -> bool {
        false
    }
}

/// Keys that share prefixes, several entries for some, values that compress and values that do not.
pub fn entries(rng: &mut SmallRng, order: &UserComparator, count: usize) -> Entries {
    let types = [ValueType::Value, ValueType::Deletion, ValueType::Merge, ValueType::SingleDeletion];
    let mut entries = Vec::new();
    let versions = rng.random_range(1..4);
    let alphabet = one_of(rng, &[2u8, 26, 255]);
    for _ in 0..count {
        let longest = one_of(rng, &[4, 12, 40]);
        let len = rng.random_range(0..longest);
        let key: Vec<u8> = (0..len).map(|_| b'a'.wrapping_add(rng.random_range(0..alphabet))).collect();
        for _ in 0..rng.random_range(1..=versions) {
            let sequence = SequenceNumber(rng.random_range(0..1000));
            let value_type = if rng.random_bool(0.7) { ValueType::Value } else { one_of(rng, &types) };
            entries.push((InternalKeyBuf::new(&key, sequence, value_type), value(rng)));
        }
    }
    let order = InternalKeyComparator::new(order.clone());
    entries.sort_by(|a, b| order.compare(a.0.as_key(), b.0.as_key()));
    // One entry for each key and sequence number, whatever its type, as in a database.
    entries.dedup_by(|b, a| {
        let (a, b) = (a.0.as_key(), b.0.as_key());
        a.user_key() == b.user_key() && a.sequence() == b.sequence()
    });
    entries
}

fn value(rng: &mut SmallRng) -> Vec<u8> {
    let longest = one_of(rng, &[5, 50, 200, 300]);
    let len = rng.random_range(0..longest);
    match rng.random_bool(0.7) {
        true => b"a value that repeats itself ".iter().copied().cycle().take(len).collect(),
        false => (0..len).map(|_| rng.random()).collect(),
    }
}

pub fn build(fs: &MemFileSystem, options: &BuildOptions, entries: &Entries) -> BuiltTable {
    let file = fs.create(Path::new(PATH), WriteOptions::default()).unwrap();
    let mut builder = TableBuilder::new(options.clone(), file).unwrap();
    for (key, value) in entries {
        builder.add(key.as_key(), value).unwrap();
    }
    assert_eq!(builder.num_entries(), entries.len() as u64);
    builder.finish(true).unwrap()
}

pub fn new_fs() -> MemFileSystem {
    let fs = MemFileSystem::new();
    fs.create_dir_all(Path::new("/db")).unwrap();
    fs
}

pub fn open(fs: &MemFileSystem, table: &Arc<TableOptions>) -> Result<Arc<TableReader>> {
    open_with(fs, OpenOptions::new(Arc::clone(table), FileNumber(7)))
}

pub fn open_with(fs: &MemFileSystem, options: OpenOptions) -> Result<Arc<TableReader>> {
    let file = fs.open_random(Path::new(PATH), OpenHints::default())?;
    let size = file.size();
    TableReader::open(file, size, options).map(Arc::new)
}
