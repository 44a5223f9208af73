//! Blocks that enter the block cache when they are written.

use crate::disk::{Disk, get, rewrite_all, shape};
use ironstone::statistics::Ticker;
use ironstone::vfs::ManualClock;
use ironstone::vfs::mem::CrashPolicy;
use ironstone::{
    BlockCache, CacheOptions, Code, CompactRangeOptions, CompressionKind, Db, FilterPolicy, IndexType,
    Options, PrepopulateBlockCache, ReadOptions, ReadTier, Statistics,
};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

const KEYS: usize = 2000;

struct Stage {
    disk: Disk,
    options: Options,
    statistics: Arc<Statistics>,
    cache: Arc<BlockCache>,
}

fn stage(mode: PrepopulateBlockCache) -> Stage {
    stage_on(Disk::new(), mode)
}

fn stage_on(disk: Disk, mode: PrepopulateBlockCache) -> Stage {
    let (statistics, cache) = (Arc::new(Statistics::new()), BlockCache::new(CacheOptions::default()));
    let mut options = disk.options();
    options.db.statistics = Some(Arc::clone(&statistics));
    options.cf.table.block_cache = Some(Arc::clone(&cache));
    options.cf.table.prepopulate_block_cache = mode;
    Stage { disk, options, statistics, cache }
}

impl Stage {
    fn open(&self) -> Db {
        self.disk.open_with(&self.options)
    }
    fn ticker(&self, ticker: Ticker) -> u64 {
        self.statistics.ticker(ticker)
    }
}

fn key(number: usize) -> String {
    format!("key{number:06}")
}

fn fill(db: &Db, value: &str) {
    (0..KEYS).for_each(|number| db.put(key(number), format!("{value}{number}").repeat(3)).unwrap());
}

fn fill_and_flush(db: &Db, value: &str) {
    fill(db, value);
    db.flush().unwrap();
}

/// Whether everything can be read without the files. Wrong values are neither.
fn is_cached(db: &Db, value: &str) -> bool {
    cached(db, value, 0..KEYS) == KEYS
}

/// How many of these keys can be.
fn cached(db: &Db, value: &str, keys: Range<usize>) -> usize {
    let options = ReadOptions { read_tier: ReadTier::BlockCache, ..ReadOptions::default() };
    let read = |number: &usize| match db.get_cf(&options, db.default_column_family(), key(*number)) {
        Ok(found) => {
            let expected = format!("{value}{number}").repeat(3);
            assert_eq!(found.as_deref(), Some(expected.as_bytes()));
            true
        }
        Err(error) => {
            assert_eq!(error.code(), Code::Incomplete, "{error}");
            false
        }
    };
    keys.filter(read).count()
}

#[test]
fn what_a_flush_wrote_is_in_the_cache() {
    use PrepopulateBlockCache::{Disable, FlushAndCompaction, FlushOnly};
    let modes = [(Disable, false), (FlushOnly, true), (FlushAndCompaction, true)];
    let codecs = [CompressionKind::None, CompressionKind::Lz4];
    for ((mode, expected), codec) in modes.into_iter().flat_map(|mode| codecs.map(|codec| (mode, codec))) {
        let mut stage = stage(mode);
        stage.options.cf.compression = codec;
        let db = stage.open();
        fill_and_flush(&db, "v");
        let blocks = db.properties_of_all_tables(db.default_column_family()).unwrap();
        let blocks = blocks.values().next().unwrap().num_data_blocks;
        let added = if expected { blocks } else { 0 };
        assert!(blocks > 10);
        assert_eq!(stage.ticker(Ticker::BlockCacheAdd), added, "{mode:?}");
        assert_eq!(stage.ticker(Ticker::BlockCacheDataAdd), added);
        assert_eq!(
            stage.ticker(Ticker::BlockCacheBytesWrite),
            stage.ticker(Ticker::BlockCacheDataBytesInsert)
        );
        assert_eq!(stage.ticker(Ticker::BlockCacheBytesWrite) > 0, expected);
        assert_eq!(is_cached(&db, "v"), expected, "{mode:?}");
        assert_eq!(stage.ticker(Ticker::BlockCacheDataMiss) == 0, expected);
        assert_eq!(get(&db, &key(7)), "v7v7v7");
    }
}

#[test]
fn what_a_compaction_wrote_is_there_if_that_is_asked_for() {
    use PrepopulateBlockCache::{FlushAndCompaction, FlushOnly};
    for (mode, expected) in [(FlushOnly, false), (FlushAndCompaction, true)] {
        let stage = stage(mode);
        let db = stage.open();
        fill_and_flush(&db, "v");
        fill_and_flush(&db, "w");
        rewrite_all(&db);
        assert_eq!(shape(&db), [0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(is_cached(&db, "w"), expected, "{mode:?}");
    }
}

#[test]
fn index_and_filter_blocks_are_there_too_if_readers_look_for_them() {
    use IndexType::{BinarySearch, BinarySearchWithFirstKey, TwoLevel};
    for index_type in [BinarySearch, BinarySearchWithFirstKey, TwoLevel] {
        for protection in [0, 8] {
            let mut stage = stage(PrepopulateBlockCache::FlushOnly);
            let table = &mut stage.options.cf.table;
            table.index_type = index_type;
            table.partition_filters = index_type == TwoLevel;
            table.metadata_block_size = 100;
            table.filter_policy = Some(FilterPolicy::bloom(10.0));
            table.cache_index_and_filter_blocks = true;
            stage.options.cf.block_protection_bytes_per_key = protection;
            let db = stage.open();
            fill_and_flush(&db, "v");
            assert!(stage.ticker(Ticker::BlockCacheIndexAdd) > 0);
            assert!(stage.ticker(Ticker::BlockCacheFilterAdd) > 0);
            assert!(is_cached(&db, "v"), "{index_type:?}");
            assert_eq!(get(&db, "key000000x"), "-");
            let misses = [Ticker::BlockCacheIndexMiss, Ticker::BlockCacheFilterMiss, Ticker::BlockCacheMiss];
            assert_eq!(misses.map(|ticker| stage.ticker(ticker)), [0; 3], "{index_type:?}");
            assert_eq!(db.iter().unwrap().entries().count(), KEYS);
            assert_eq!(stage.ticker(Ticker::BlockCacheMiss), 0);
        }
    }
}

#[test]
fn tables_have_blocks_of_their_own() {
    let stage = stage(PrepopulateBlockCache::FlushOnly);
    let db = stage.open();
    for (key, value) in [("a", "1"), ("b", "2"), ("c", "3")] {
        db.put(key, value).unwrap();
        db.flush().unwrap();
    }
    assert_eq!((get(&db, "a"), get(&db, "b"), get(&db, "c")), ("1".into(), "2".into(), "3".into()));
    assert_eq!(stage.ticker(Ticker::BlockCacheDataMiss), 0);
}

#[test]
fn a_table_that_is_opened_again_finds_its_blocks() {
    let stage = stage(PrepopulateBlockCache::FlushOnly);
    let db = stage.open();
    fill_and_flush(&db, "v");
    drop(db);
    let db = stage.open();
    assert!(is_cached(&db, "v"));
    // Another database with the same cache, and files of the same numbers, has blocks of its own.
    let other = stage_with_cache(&stage.cache);
    let db_of_other = other.open();
    fill_and_flush(&db_of_other, "w");
    assert!(is_cached(&db_of_other, "w") && is_cached(&db, "v"));
}

fn stage_with_cache(cache: &Arc<BlockCache>) -> Stage {
    let mut stage = stage(PrepopulateBlockCache::FlushOnly);
    stage.options.cf.table.block_cache = Some(Arc::clone(cache));
    stage
}

#[test]
fn a_cache_without_room_fails_no_flush() {
    for strict_capacity_limit in [true, false] {
        let small = CacheOptions { capacity: 1000, strict_capacity_limit, ..CacheOptions::default() };
        let cache = BlockCache::new(small);
        let stage = stage_with_cache(&cache);
        let db = stage.open();
        fill_and_flush(&db, "v");
        assert!(cache.usage() <= 1000, "{}", cache.usage());
        assert_eq!(stage.ticker(Ticker::BlockCacheAddFailures) > 0, strict_capacity_limit);
        drop(db);
        let mut options = stage.options.clone();
        options.cf.table.block_cache = None;
        assert_eq!(get(&stage.disk.open_with(&options), &key(7)), "v7v7v7");
    }
}

#[test]
fn what_recovery_wrote_is_not_in_the_cache() {
    let stage = stage(PrepopulateBlockCache::FlushAndCompaction);
    let db = stage.open();
    fill(&db, "v");
    db.sync_wal().unwrap();
    let disk = stage.disk.crash(CrashPolicy::KeepAll);
    let db = disk.open_with(&stage.options);
    assert_eq!(shape(&db), [1]);
    assert_eq!(stage.ticker(Ticker::BlockCacheDataAdd), 0);
    assert!(!is_cached(&db, "v"));
}

#[test]
fn it_changes_while_the_database_is_open() {
    let stage = stage(PrepopulateBlockCache::Disable);
    let db = stage.open();
    fill_and_flush(&db, "v");
    assert!(!is_cached(&db, "v"));
    db.set_options(&[("block_based_table_factory", "{prepopulate_block_cache=kFlushOnly}")]).unwrap();
    fill_and_flush(&db, "w");
    assert!(is_cached(&db, "w"));
    assert!(
        db.set_options(&[("block_based_table_factory", "{prepopulate_block_cache=kSometimes}")]).is_err()
    );
}

/// Once, unlike `rewrite_all`.
fn compact(db: &Db) {
    db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None).unwrap();
}

fn read(db: &Db, keys: Range<usize>) {
    keys.for_each(|number| assert_ne!(get(db, &key(number)), "-"));
}

#[test]
fn what_readers_wanted_stays_in_the_cache_through_a_compaction() {
    for codec in [CompressionKind::None, CompressionKind::Lz4] {
        let mut stage = stage(PrepopulateBlockCache::Disable);
        stage.options.cf.compression = codec;
        let db = stage.open();
        fill_and_flush(&db, "v");
        fill_and_flush(&db, "w");
        read(&db, 500..1500);
        let added = stage.ticker(Ticker::BlockCacheAdd);
        compact(&db);
        assert_eq!(shape(&db), [0, 0, 0, 0, 0, 0, 1]);
        assert!(stage.ticker(Ticker::BlockCacheAdd) > added);
        // A block has some 150 records; what is wanted is known by the block.
        assert!(cached(&db, "w", 500..1500) > 800);
        let others = cached(&db, "w", 0..500) + cached(&db, "w", 1500..KEYS);
        assert!(others < 400, "{others}");
    }
}

#[test]
fn what_nobody_wanted_enters_no_cache() {
    let stage = stage(PrepopulateBlockCache::Disable);
    let db = stage.open();
    for value in ["v", "w", "x"] {
        fill_and_flush(&db, value);
    }
    rewrite_all(&db);
    fill_and_flush(&db, "y");
    assert_eq!(stage.ticker(Ticker::BlockCacheAdd), 0);
    let tables = db.properties_of_all_tables(db.default_column_family()).unwrap();
    assert_eq!(tables.len(), 2);
    let says = |name: &String| name.contains("cache");
    assert!(!tables.values().any(|table| table.user_collected.keys().any(says)));
}

#[test]
fn what_nobody_wants_any_more_leaves_the_cache_with_the_next_compaction() {
    let stage = stage(PrepopulateBlockCache::Disable);
    let db = stage.open();
    fill_and_flush(&db, "v");
    read(&db, 0..KEYS);
    rewrite_all(&db);
    read(&db, 0..1000);
    rewrite_all(&db);
    assert_eq!(cached(&db, "v", 0..1000), 1000);
    assert!(cached(&db, "v", 1000..KEYS) < 200, "nobody had read them again");
}

#[test]
fn flushes_are_wanted_where_what_was_flushed_before_them_was() {
    for reads in [0, KEYS / 10, KEYS] {
        let stage = stage(PrepopulateBlockCache::Disable);
        let db = stage.open();
        fill_and_flush(&db, "v");
        read(&db, 0..reads);
        fill_and_flush(&db, "w");
        assert_eq!(is_cached(&db, "w"), reads == KEYS, "{reads} reads");
        // The oldest table is the one to ask, of the next level if there is none in level 0.
        if reads == KEYS {
            rewrite_all(&db);
            read(&db, 0..KEYS);
            fill_and_flush(&db, "x");
            assert!(is_cached(&db, "x"));
        }
    }
}

#[test]
fn a_table_that_is_new_says_nothing_about_the_next_flush() {
    let clock = Arc::new(ManualClock::new(1_780_000_000_000_000));
    let stage = stage_on(Disk::with_clock(&clock), PrepopulateBlockCache::Disable);
    let db = stage.open();
    fill_and_flush(&db, "v");
    rewrite_all(&db);
    read(&db, 0..KEYS);
    fill_and_flush(&db, "w");
    fill_and_flush(&db, "x");
    assert!(is_cached(&db, "x"), "nobody had time to read what was flushed before");
    fill_and_flush(&db, "y");
    clock.advance(Duration::from_secs(10));
    fill_and_flush(&db, "z");
    assert!(!is_cached(&db, "z"), "nobody reads the oldest table of level 0");
}
