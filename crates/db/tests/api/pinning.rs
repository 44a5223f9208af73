//! Which index and filter blocks stay in the block cache while their table is open (`metadata_cache_options`).

use crate::disk::{Disk, get, refused, rewrite_all, shape};
use ironstone::statistics::Ticker;
use ironstone::{
    BlockCache, CacheOptions, CacheUsageOptions, Code, Db, FilterPolicy, IndexType, Options, PinningTier,
    Statistics, WaitForCompactOptions,
};
use std::sync::Arc;

const TIERS: [PinningTier; 3] = [PinningTier::None, PinningTier::FlushedAndSimilar, PinningTier::All];

/// A database whose index and filter blocks are in its block cache.
struct Stage {
    disk: Disk,
    options: Options,
    cache: Arc<BlockCache>,
    statistics: Arc<Statistics>,
}

impl Stage {
    fn new(partitioned: bool) -> Self {
        let (disk, statistics) = (Disk::new(), Arc::new(Statistics::new()));
        let cache = BlockCache::new(CacheOptions::default());
        let mut options = disk.options();
        options.db.statistics = Some(Arc::clone(&statistics));
        let table = &mut options.cf.table;
        table.block_cache = Some(Arc::clone(&cache));
        table.cache_index_and_filter_blocks = true;
        table.block_size = 200;
        table.metadata_block_size = 200;
        table.filter_policy = Some(FilterPolicy::bloom(10.0));
        if partitioned {
            (table.index_type, table.partition_filters) = (IndexType::TwoLevel, true);
        }
        Self { disk, options, cache, statistics }
    }

    /// The database with one table, on level 0 or the last.
    fn filled(&self, on_level0: bool) -> Db {
        let db = self.disk.open_with(&self.options);
        (0..500).for_each(|number| db.put(key(number), "value").unwrap());
        db.flush().unwrap();
        if !on_level0 {
            rewrite_all(&db);
            wait_for_purge(&db);
        }
        assert_eq!(shape(&db)[0], usize::from(on_level0));
        db
    }

    /// How many index and as many filter blocks a read gets from the file, when all have left the cache that may.
    fn misses(&self, db: &Db) -> u64 {
        assert_eq!(get(db, &key(250)), "value"); // The table is open.
        self.cache.clear();
        self.statistics.reset();
        assert_eq!(get(db, &key(250)), "value");
        let count = |ticker| self.statistics.ticker(ticker);
        assert_eq!(count(Ticker::BlockCacheDataMiss), 1);
        assert_eq!(count(Ticker::BlockCacheIndexMiss), count(Ticker::BlockCacheFilterMiss));
        count(Ticker::BlockCacheIndexMiss)
    }
}

/// Until tables that were replaced have taken their blocks out of the cache: that pins blocks, and looks for indexes.
fn wait_for_purge(db: &Db) {
    db.wait_for_compact_with(&WaitForCompactOptions { wait_for_purge: true, ..Default::default() }).unwrap();
}

fn key(number: usize) -> String {
    format!("key{number:06}")
}

fn misses_by_tier(tier: PinningTier, on_level0: bool) -> u64 {
    match tier {
        PinningTier::None => 1,
        PinningTier::FlushedAndSimilar => u64::from(!on_level0),
        PinningTier::All => 0,
    }
}

#[test]
fn each_kind_of_block_is_held_in_the_tables_of_its_tier() {
    for (one, other, on_level0) in TIERS
        .iter()
        .flat_map(|one| TIERS.iter().flat_map(move |other| [(*one, *other, true), (*one, *other, false)]))
    {
        let expected = |tiers: &[PinningTier]| -> u64 {
            tiers.iter().map(|tier| misses_by_tier(*tier, on_level0)).sum()
        };
        let mut stage = Stage::new(true);
        let said = &mut stage.options.cf.table.metadata_cache_options;
        (said.top_level_index_pinning, said.partition_pinning) = (Some(one), Some(other));
        let misses = stage.misses(&stage.filled(on_level0));
        assert_eq!(misses, expected(&[one, other]), "{one:?}, {other:?}, level 0: {on_level0}");

        let mut stage = Stage::new(false);
        let said = &mut stage.options.cf.table.metadata_cache_options;
        (said.unpartitioned_pinning, said.partition_pinning) = (Some(one), Some(other));
        said.top_level_index_pinning = Some(other);
        assert_eq!(stage.misses(&stage.filled(on_level0)), expected(&[one]), "{one:?}, level 0: {on_level0}");
    }
}

#[test]
fn what_is_left_open_the_older_options_decide() {
    for (pin_l0, pin_top, partitioned, on_level0) in
        (0..16).map(|n| (n & 1 > 0, n & 2 > 0, n & 4 > 0, n & 8 > 0))
    {
        let mut stage = Stage::new(partitioned);
        let table = &mut stage.options.cf.table;
        table.pin_l0_filter_and_index_blocks_in_cache = pin_l0;
        table.pin_top_level_index_and_filter = pin_top;
        let by_level = u64::from(!(pin_l0 && on_level0));
        let expected = if partitioned { u64::from(!pin_top) + by_level } else { by_level };
        let said = (pin_l0, pin_top, partitioned, on_level0);
        assert_eq!(stage.misses(&stage.filled(on_level0)), expected, "{said:?}");
    }
}

#[test]
fn a_table_much_larger_than_a_memtable_is_none_of_a_flush() {
    let mut stage = Stage::new(false);
    stage
        .options
        .cf
        .table
        .set("metadata_cache_options", "{unpartitioned_pinning=kFlushedAndSimilar}")
        .unwrap();
    let db = stage.filled(true);
    let size = db.live_files()[0].size as usize;
    assert_eq!(stage.misses(&db), 0);
    drop(db);
    for (write_buffer_size, expected) in [(size.div_ceil(3) * 2 + 2, 0), (size / 3 * 2 - 2, 1)] {
        let mut options = stage.options.clone();
        options.cf.write_buffer_size = write_buffer_size;
        let db = stage.disk.open_with(&options);
        assert_eq!(db.column_family_options(db.default_column_family()).write_buffer_size, write_buffer_size);
        assert_eq!(stage.misses(&db), expected, "{size} bytes, {write_buffer_size}");
    }
}

#[test]
fn reads_and_iterators_find_everything_through_blocks_that_are_held() {
    let mut stage = Stage::new(true);
    stage.options.cf.table.set("metadata_cache_options", "{partition_pinning=kAll}").unwrap();
    let db = stage.filled(false);
    stage.cache.clear();
    assert!((0..500).all(|number| get(&db, &key(number)) == "value"));
    assert!(db.get("key").unwrap().is_none() && db.get("key000250x").unwrap().is_none());
    let mut iter = db.iter().unwrap();
    let mut more = iter.seek_to_last().unwrap();
    for number in (0..500).rev() {
        assert!(more && iter.key() == Some(key(number).as_bytes()), "{number}");
        more = iter.prev().unwrap();
    }
    assert!(!more);
    assert_eq!(db.iter().unwrap().entries().count(), 500);
}

#[test]
fn partitions_that_are_held_are_let_go_with_their_table() {
    let pinned = |partitions| {
        let mut stage = Stage::new(true);
        stage.options.cf.table.metadata_cache_options.partition_pinning = Some(partitions);
        let db = stage.filled(false);
        assert_eq!(get(&db, &key(250)), "value"); // The table is open.
        let pinned = stage.cache.pinned_usage();
        drop(db);
        assert_eq!(stage.cache.pinned_usage(), 0);
        pinned
    };
    let (without, with) = (pinned(PinningTier::None), pinned(PinningTier::All));
    assert!(without > 0 && with > 2 * without, "{without} bytes without partitions, {with} with them");
}

#[test]
fn its_text_is_that_of_rocksdb() {
    let mut table = Options::default().cf.table;
    let print = |table: &ironstone::BlockBasedTableOptions| table.get("metadata_cache_options").unwrap();
    let default =
        "{unpartitioned_pinning=kFallback;partition_pinning=kFallback;top_level_index_pinning=kFallback;}";
    assert_eq!(print(&table), default);
    table.set("metadata_cache_options", "{top_level_index_pinning=kNone;partition_pinning=kAll}").unwrap();
    table.set("metadata_cache_options", "{unpartitioned_pinning=kFlushedAndSimilar;}").unwrap();
    assert_eq!(
        print(&table),
        "{unpartitioned_pinning=kFlushedAndSimilar;partition_pinning=kAll;top_level_index_pinning=kNone;}"
    );
    table.set("metadata_cache_options", default).unwrap();
    assert_eq!(table.metadata_cache_options.partition_pinning, None);
    for wrong in ["{partition_pinning=kSome}", "{data_pinning=kAll}"] {
        refused(table.set("metadata_cache_options", wrong), Code::InvalidArgument, "pinning");
    }
}

#[test]
fn metadata_of_files_counts_towards_the_cache_as_long_as_they_are_there() {
    let disk = Disk::new();
    let cache = BlockCache::new(CacheOptions { capacity: 8 << 20, ..CacheOptions::default() });
    let mut options = disk.options();
    options.cf.table.block_cache = Some(Arc::clone(&cache));
    options.cf.table.cache_usage_options =
        CacheUsageOptions { file_metadata: true, ..CacheUsageOptions::default() };
    options.cf.disable_auto_compactions = true;
    let db = disk.open_with(&options);
    let mut before = cache.usage();
    let mut each = Vec::new();
    for n in 0..8 {
        db.put(format!("{n}{}", "k".repeat(200)), "value").unwrap(); // Keys that do not fit into the struct.
        db.flush().unwrap();
        each.push(cache.usage() - before);
        before = cache.usage();
    }
    assert!(each.iter().all(|&bytes| bytes > 500 && bytes == each[0]), "{each:?}");
    let eight = cache.usage();
    rewrite_all(&db);
    assert_eq!(cache.usage(), eight - 7 * each[0], "one file is left");
    db.close().unwrap();
    drop(db);
    let db = disk.open_with(&options);
    assert_eq!(cache.usage(), eight - 7 * each[0], "known from the opening on");
    db.close().unwrap();
    drop(db);
    cache.clear();
    assert_eq!(cache.usage(), 0);
}
