use super::*;
use crate::cached_block::BlockCache;
use crate::filter::FilterPolicy;
use crate::options::{BuildOptions, OpenOptions, ReadContext};
use crate::table::{TableBuilder, TableReader};
use ironstone_base::{Code, FileNumber, InternalKeyBuf, SequenceNumber, SubCode, ValueType};
use ironstone_cache::CacheOptions;
use ironstone_compress::CompressionKind;
use ironstone_vfs::mem::MemFileSystem;
use ironstone_vfs::{FileSystem, OpenHints, WriteOptions};
use std::path::Path;

const PATH: &str = "/000009.sst";
const KEYS: u64 = 20_000;

fn cache(capacity: usize, strict_capacity_limit: bool) -> Arc<BlockCache> {
    BlockCache::new(CacheOptions { capacity, strict_capacity_limit, ..CacheOptions::default() })
}

fn table(cache: &Arc<BlockCache>, cache_usage: CacheUsageOptions, policy: FilterPolicy) -> TableOptions {
    let (block_cache, filter_policy) = (Some(Arc::clone(cache)), Some(policy));
    TableOptions { block_cache, filter_policy, cache_usage, ..TableOptions::default() }
}

const FILTERS: CacheUsageOptions = CacheUsageOptions {
    compression_dictionary_building_buffer: false,
    filter_construction: true,
    block_based_table_reader: false,
    file_metadata: false,
};

fn key(n: u64) -> InternalKeyBuf {
    InternalKeyBuf::new(format!("key{n:08}").as_bytes(), SequenceNumber(1), ValueType::Value)
}

/// Builds a table of [`KEYS`] keys and answers what of the cache is used after each thousand of them.
fn build(fs: &MemFileSystem, table: &Arc<TableOptions>, options: BuildOptions) -> Vec<usize> {
    let cache = table.block_cache.as_ref().unwrap();
    let file = fs.create(Path::new(PATH), WriteOptions::default()).unwrap();
    let mut builder = TableBuilder::new(options, file).unwrap();
    let mut used = Vec::new();
    for n in 0..KEYS {
        builder.add(key(n).as_key(), format!("value {n:030}").as_bytes()).unwrap();
        if n % 1000 == 999 {
            used.push(cache.usage());
        }
    }
    builder.finish(true).unwrap();
    used
}

fn open(fs: &MemFileSystem, table: &Arc<TableOptions>) -> ironstone_base::Result<TableReader> {
    let file = fs.open_random(Path::new(PATH), OpenHints::default()).unwrap();
    let size = file.size();
    TableReader::open(file, size, OpenOptions::new(Arc::clone(table), FileNumber(9)))
}

#[test]
fn keys_of_a_filter_count_until_it_is_built() {
    let (fs, cache) = (MemFileSystem::new(), cache(64 << 20, false));
    let with = Arc::new(table(&cache, FILTERS, FilterPolicy::bloom(10.0)));
    let used = build(&fs, &with, BuildOptions::new(Arc::clone(&with)));
    assert!(used.is_sorted() && *used.last().unwrap() >= 8 * (KEYS as usize - 1000), "{used:?}");
    assert_eq!(cache.usage(), 0);
    let without = Arc::new(table(&cache, CacheUsageOptions::default(), FilterPolicy::bloom(10.0)));
    let used = build(&fs, &without, BuildOptions::new(Arc::clone(&without)));
    assert_eq!(used.iter().max(), Some(&0));
}

#[test]
fn a_full_cache_makes_bloom_filters_of_ribbon_filters() {
    let fs = MemFileSystem::new();
    let filter_size = |cache: &Arc<BlockCache>, policy: FilterPolicy| {
        let table = Arc::new(table(cache, FILTERS, policy));
        build(&fs, &table, BuildOptions::new(Arc::clone(&table)));
        let reader = open(&fs, &table).unwrap();
        let found =
            (0..KEYS).all(|n| reader.get(&ReadContext::default(), key(n).as_key()).unwrap().is_some());
        assert!(found);
        cache.clear(); // Of the blocks that were read.
        assert_eq!(cache.usage(), 0);
        reader.properties().filter_size
    };
    let (roomy, tight) = (cache(64 << 20, true), cache(256 << 10, true));
    let (ribbon, bloom) = (|| FilterPolicy::ribbon(10.0, -1), || FilterPolicy::bloom(10.0));
    let small = filter_size(&roomy, ribbon());
    let large = filter_size(&roomy, bloom());
    assert!(small < large * 8 / 10, "{small} {large}");
    assert_eq!(filter_size(&tight, ribbon()), large);
}

#[test]
fn blocks_kept_for_a_dictionary_count_and_a_full_cache_ends_the_wait() {
    let fs = MemFileSystem::new();
    let build_with = |cache: &Arc<BlockCache>| {
        let table = Arc::new(table(cache, CacheUsageOptions::default(), FilterPolicy::bloom(10.0)));
        let mut options = BuildOptions::new(Arc::clone(&table));
        options.compression = CompressionKind::Zstd;
        options.compression_options.max_dict_bytes = 4000;
        let used = build(&fs, &table, options);
        assert_eq!(cache.usage(), 0);
        let reader = open(&fs, &table).unwrap();
        assert!(reader.get(&ReadContext::default(), key(77).as_key()).unwrap().is_some());
        used
    };
    let all = build_with(&cache(64 << 20, true));
    assert!(all.is_sorted() && *all.last().unwrap() > 500_000, "{all:?}");
    let some = build_with(&cache(200 << 10, true));
    let most = *some.iter().max().unwrap();
    assert!((100_000..=200 << 10).contains(&most), "{some:?}");
    assert_eq!(*some.last().unwrap(), 0, "nothing is kept any more: {some:?}");
}

#[test]
fn open_tables_count_and_one_that_is_too_much_is_not_opened() {
    let usage = CacheUsageOptions { block_based_table_reader: true, ..CacheUsageOptions::default() };
    let (fs, roomy) = (MemFileSystem::new(), cache(64 << 20, true));
    let options = Arc::new(table(&roomy, usage, FilterPolicy::bloom(10.0)));
    build(&fs, &options, BuildOptions::new(Arc::clone(&options)));
    assert_eq!(roomy.usage(), 0);
    let reader = open(&fs, &options).unwrap();
    assert_eq!(roomy.usage(), reader.memory_usage());
    assert!(reader.memory_usage() > KEYS as usize, "index and filter");
    let second = open(&fs, &options).unwrap();
    assert_eq!(roomy.usage(), reader.memory_usage() + second.memory_usage());
    drop((reader, second));
    assert_eq!(roomy.usage(), 0);

    let tight = Arc::new(table(&cache(16 << 10, true), usage, FilterPolicy::bloom(10.0)));
    let error = open(&fs, &tight).err().unwrap();
    assert_eq!((error.code(), error.sub_code()), (Code::Incomplete, SubCode::MemoryLimit), "{error}");
    assert!(error.to_string().contains(PATH), "{error}");
    assert_eq!(tight.block_cache.as_ref().unwrap().usage(), 0);
    let lax = Arc::new(table(&cache(16 << 10, false), usage, FilterPolicy::bloom(10.0)));
    let reader = open(&fs, &lax).unwrap();
    assert_eq!(lax.block_cache.as_ref().unwrap().usage(), reader.memory_usage());
}
