//! Every ticker and every histogram has a source, but for those of what is not built.

use crate::disk::{DIR, Disk, all, backward, put_synced, rewrite_all};
use ironstone::statistics::{Histogram, StatsLevel, Ticker};
use ironstone::vfs::fault::{Fault, FaultError, FaultRule};
use ironstone::vfs::{Clock, FileSystem, ManualClock, OpKind, SystemClock};
use ironstone::{
    BackupEngine, BackupEngineOptions, BlockCache, BottommostPolicy, CacheOptions, Code, CompactFilesOptions,
    CompactRangeOptions, CompactionFilter, CompactionStyle, CompressionKind, Db,
    FileChecksumGenCrc32cFactory, FileNumber, FilterDecision, FilterPolicy, FlushOptions, GenericRateLimiter,
    IngestOptions, IoPriority, MergeOperator, Options, PersistentCacheConfig, RateLimiterMode,
    RateLimiterOptions, ReadOptions, RowCache, SimCache, SstFileManager, SstFileManagerOptions,
    SstFileWriter, Statistics, WriteBufferManager, WriteOptions, merge_operators, new_persistent_cache,
    slice_transform,
};
use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::time::Duration;

const DAY: u64 = 86_400;

/// Options whose databases are counted in `statistics`.
fn counted(disk: &Disk, statistics: &Arc<Statistics>) -> Options {
    let mut options = disk.options();
    options.db.statistics = Some(Arc::clone(statistics));
    options
}
fn put_and_flush(db: &Db, keys: &[&str], value: &str) {
    keys.iter().for_each(|key| db.put(key, value).unwrap());
    db.flush().unwrap();
}
fn compact_to(db: &Db, level: usize) {
    let files: Vec<FileNumber> = db.live_files().iter().map(|file| file.number).collect();
    let options = CompactFilesOptions::default();
    db.compact_files(&options, db.default_column_family(), &files, level).unwrap();
}
fn moved_on(clock: &ManualClock, seconds: u64) {
    clock.set_micros(clock.now_micros() + seconds * 1_000_000);
}
fn manual() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(1_700_000_000_000_000))
}

// ---- what moves what: each is one part of the workload ----

fn point_reads(statistics: &Arc<Statistics>) {
    let disk = Disk::new();
    let mut options = counted(&disk, statistics);
    options.cf.table.filter_policy = Some(FilterPolicy::bloom(20.0));
    options.cf.merge_operator = Some(merge_operators::string_append(","));
    options.cf.compression = CompressionKind::Lz4;
    options.cf.compression_per_level = Vec::new();
    options.cf.bottommost_compression = Some(CompressionKind::Lz4);
    let rows = CacheOptions { capacity: 1 << 20, ..CacheOptions::default() };
    options.db.row_cache = Some(RowCache::new(rows));
    let db = disk.open_with(&options);
    put_and_flush(&db, &["deep", "zzz"], &"v".repeat(1000));
    compact_to(&db, 6);
    put_and_flush(&db, &["one", "zzz"], "1");
    let top: Vec<FileNumber> =
        db.live_files().iter().filter(|file| file.level == 0).map(|file| file.number).collect();
    db.compact_files(&CompactFilesOptions::default(), db.default_column_family(), &top, 1).unwrap();
    put_and_flush(&db, &["zero", "aaa"], "0");
    db.merge("merged", "1").unwrap();
    db.merge("merged", "2").unwrap();
    assert_eq!(db.multi_get(&["deep", "merged", "none"]).len(), 3);
    for key in ["deep", "one", "zero", "merged", "none", "zero-not"] {
        db.get(key).unwrap();
    }
    db.verify_checksum().unwrap();
    let since = db.latest_sequence();
    db.get_updates_since(since).unwrap();
}

/// A table that is open no longer, with index and filter in the cache.
fn cached_meta_blocks(statistics: &Arc<Statistics>) {
    let disk = Disk::new();
    let cache = BlockCache::new(CacheOptions { capacity: 8 << 20, ..CacheOptions::default() });
    let mut options = counted(&disk, statistics);
    options.cf.table.block_cache = Some(Arc::clone(&cache));
    let simulated = CacheOptions { capacity: 1 << 20, ..CacheOptions::default() };
    options.cf.table.sim_cache = Some(SimCache::new(simulated));
    options.cf.table.filter_policy = Some(FilterPolicy::bloom(20.0));
    options.cf.table.cache_index_and_filter_blocks = true;
    let db = disk.open_with(&options);
    put_and_flush(&db, &["a", "b"], "1");
    compact_to(&db, 6);
    // Four threads find each block missing, since reading takes its time.
    disk.faults.arm();
    for _ in 0..3 {
        cache.clear();
        let slow = Fault::Delay(Duration::from_millis(20));
        let rule = disk.faults.add(FaultRule::new(slow).on(&[OpKind::Read]).path(".sst").forever());
        let barrier = Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    barrier.wait();
                    db.get("a").unwrap().unwrap();
                });
            }
        });
        assert!(rule.hits() > 0);
        disk.faults.clear();
    }
    cache.clear();
    db.multi_get(&["a", "b"]);
    db.get("a").unwrap();
    drop(db);

    let tiny = CacheOptions { capacity: 1, strict_capacity_limit: true, ..CacheOptions::default() };
    options.cf.table.block_cache = Some(BlockCache::new(tiny));
    options.cf.table.cache_index_and_filter_blocks = false;
    let db = disk.open_with(&options);
    assert_eq!(db.get("a").unwrap_err().code(), Code::Incomplete);
}

fn iterators(statistics: &Arc<Statistics>) {
    let disk = Disk::new();
    let mut options = counted(&disk, statistics);
    options.cf.table.filter_policy = Some(FilterPolicy::bloom(20.0));
    options.cf.prefix_extractor = Some(slice_transform::fixed_prefix(2));
    options.cf.table.whole_key_filtering = false;
    options.cf.min_tombstones_for_range_conversion = 2;
    let db = disk.open_with(&options);
    // A table on the last level and one above: each is sought with and without its filter, in vain and not.
    for level in [6, 5] {
        put_and_flush(&db, &["aa1", "aa2", "ac1", "ac2"], &level.to_string());
        let top: Vec<FileNumber> =
            db.live_files().iter().filter(|file| file.level == 0).map(|file| file.number).collect();
        db.compact_files(&CompactFilesOptions::default(), db.default_column_family(), &top, level).unwrap();
        for prefix_same_as_start in [true, false] {
            let read = ReadOptions {
                prefix_same_as_start,
                total_order_seek: !prefix_same_as_start,
                ..ReadOptions::default()
            };
            let mut iter = db.iter_cf(&read, db.default_column_family()).unwrap();
            assert!(iter.seek("aa1").unwrap());
            iter.next().unwrap();
            iter.prev().unwrap();
            assert_eq!(iter.seek("ab1").unwrap(), !prefix_same_as_start);
        }
        db.get("aa1").unwrap();
        db.get("ab1").unwrap();
        if level == 6 {
            // So that the next table is the one that shows its keys.
            db.delete("none").unwrap();
        }
    }
    // Many versions of a key are passed over at once.
    let snapshots: Vec<_> = (0..20)
        .map(|round| {
            db.put("key", round.to_string()).unwrap();
            db.snapshot()
        })
        .collect();
    let old = ReadOptions { snapshot: snapshots.first().cloned(), ..ReadOptions::default() };
    let mut iter = db.iter_cf(&old, db.default_column_family()).unwrap();
    iter.seek("key").unwrap();
    all(&db);
    backward(db.iter().unwrap());
    // A run of tombstones leaves word of itself.
    for round in 0..2 {
        for key in ["x1", "x2", "x3", "x4"] {
            db.put(key, "").unwrap();
            db.delete(key).unwrap();
        }
        db.put("x9", "").unwrap();
        let total = ReadOptions { total_order_seek: true, ..ReadOptions::default() };
        let mut iter = db.iter_cf(&total, db.default_column_family()).unwrap();
        if round == 1 {
            db.flush().unwrap(); // The memtable that it reads takes no word any more.
        }
        assert!(iter.seek("x1").unwrap());
    }
}

/// Reading ahead of iterators, up to a bound.
fn readahead(statistics: &Arc<Statistics>) {
    let disk = Disk::new();
    let options = counted(&disk, statistics);
    let db = disk.open_with(&options);
    (0..2000).for_each(|number| db.put(format!("key{number:05}"), [b'v'; 100]).unwrap());
    db.flush().unwrap();
    let read = ReadOptions {
        readahead_size: 64 << 10,
        iterate_upper_bound: Some(b"key01000".to_vec()),
        ..ReadOptions::default()
    };
    let mut iter = db.iter_cf(&read, db.default_column_family()).unwrap();
    iter.seek_to_first().unwrap();
    while iter.next().unwrap() {}
    drop(iter);
    let half = db.iter_cf(&read, db.default_column_family()).unwrap().entries().take(10).count();
    assert_eq!(half, 10);
}

fn writes(statistics: &Arc<Statistics>) {
    let disk = Disk::new();
    let mut options = counted(&disk, statistics);
    options.cf.disable_auto_compactions = false;
    let db = disk.open_with(&options);
    put_synced(&db, "a", "1");
    // Writers that find their record logged by another one.
    disk.faults.arm();
    disk.faults.add(
        FaultRule::new(Fault::Delay(Duration::from_millis(2))).on(&[OpKind::Append]).path(".log").forever(),
    );
    disk.wait_until("a write that another one logs", || {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let db = &db;
                scope.spawn(move || (0..10).for_each(|n| db.put(format!("k{thread}{n}"), "v").unwrap()));
            }
        });
        statistics.ticker(Ticker::WriteDoneByOther) > 0
    });
    disk.faults.clear();
    // Writers that wait until memtables are flushed.
    db.pause_background_work().unwrap();
    for number in 0..2 {
        db.put(format!("k{number}"), "v").unwrap();
        db.flush_cf(
            &FlushOptions { wait: false, allow_write_stall: true, ..FlushOptions::default() },
            db.default_column_family(),
        )
        .unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| db.put("patient", "v").unwrap());
        SystemClock::new().sleep(Duration::from_millis(5));
        db.continue_background_work().unwrap();
    });
    // Threads that want the state at the same time.
    disk.wait_until("a thread that waits for a lock", || {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| drop(db.live_files())));
            }
        });
        statistics.ticker(Ticker::DbMutexWaitMicros) > 0
    });
}

fn updates_in_place(statistics: &Arc<Statistics>) {
    let disk = Disk::new();
    let mut options = counted(&disk, statistics);
    options.cf.inplace_update_support = true;
    options.db.set("allow_concurrent_memtable_write", "false").unwrap();
    let db = disk.open_with(&options);
    for value in ["longer", "short", "longest"] {
        db.put("k", value).unwrap();
    }
    assert_eq!(statistics.ticker(Ticker::NumberKeysUpdated), 1);
}

fn flushes(statistics: &Arc<Statistics>) {
    let disk = Disk::new();
    let mut options = counted(&disk, statistics);
    options.cf.write_buffer_size = 64 << 10;
    options.cf.paranoid_file_checks = true;
    options.cf.compression = CompressionKind::None;
    options.db.rate_limiter = Some(Arc::new(GenericRateLimiter::new(1 << 20)));
    let db = disk.open_with(&options);
    for number in 0..300 {
        db.put(format!("key{number:06}"), [b'v'; 1000]).unwrap();
        db.put("again", "").unwrap();
    }
    db.flush().unwrap();
    drop(db);

    let disk = Disk::new();
    let mut options = counted(&disk, statistics);
    options.db.write_buffer_manager = Some(WriteBufferManager::new(256 << 10, None, false));
    let db = disk.open_with(&options);
    (0..600).for_each(|number| db.put(format!("key{number:06}"), [b'v'; 1000]).unwrap());
    disk.wait_until("a flush", || !db.live_files().is_empty());
    db.put("logged", "1").unwrap();
    let killed = disk.kill();
    drop(db);
    // What the WAL has comes to a table when the database is opened.
    options.db.env = killed.env();
    options.db.write_buffer_manager = None;
    assert!(killed.open_with(&options).get("logged").unwrap().is_some());
}

/// Merges nothing.
struct Never;

impl MergeOperator for Never {
    fn name(&self) -> &str {
        "never"
    }
    fn full_merge(&self, _key: &[u8], _existing: Option<&[u8]>, _operands: &[&[u8]]) -> Option<Vec<u8>> {
        None
    }
}

/// Keeps what does not begin with `r`.
struct Filter;

impl CompactionFilter for Filter {
    fn name(&self) -> &str {
        "filter"
    }
    fn filter(&self, _level: usize, _key: &[u8], value: &[u8]) -> FilterDecision {
        if value.starts_with(b"r") { FilterDecision::Remove } else { FilterDecision::Keep }
    }
}

fn compactions(statistics: &Arc<Statistics>) {
    let disk = Disk::new();
    let mut options = counted(&disk, statistics);
    options.cf.compaction_filter = Some(Arc::new(Filter));
    options.cf.merge_operator = Some(Arc::new(Never));
    let db = disk.open_with(&options);
    put_and_flush(&db, &["a", "b", "m", "z"], "1");
    compact_to(&db, 6);
    put_and_flush(&db, &["a", "c", "e"], "r");
    put_and_flush(&db, &["a", "d", "e"], "2");
    db.delete("d").unwrap();
    db.delete("nowhere").unwrap();
    db.delete_range("e", "f").unwrap();
    db.merge("m", b"operand").unwrap();
    db.flush().unwrap();
    let top: Vec<FileNumber> =
        db.live_files().iter().filter(|file| file.level == 0).map(|file| file.number).collect();
    db.compact_files(&CompactFilesOptions::default(), db.default_column_family(), &top, 5).unwrap();
    rewrite_all(&db);
    drop(db);

    // In several parts.
    let disk = Disk::new();
    let mut options = counted(&disk, statistics);
    options.db.max_subcompactions = 4;
    options.cf.target_file_size_base = 16 << 10;
    options.cf.compression = CompressionKind::None;
    let db = disk.open_with(&options);
    for _ in 0..2 {
        (0..200).for_each(|number| db.put(format!("key{number:05}"), [b'v'; 1000]).unwrap());
        db.flush().unwrap();
    }
    rewrite_all(&db);
    drop(db);

    // For their files' age, and as somebody wishes.
    let clock = manual();
    let disk = Disk::with_clock(&clock);
    let mut options = counted(&disk, statistics);
    options.cf.disable_auto_compactions = false;
    options.cf.ttl = DAY;
    options.cf.level_compaction_dynamic_level_bytes = false;
    let db = disk.open_with(&options);
    put_and_flush(&db, &["a", "z"], "1");
    compact_to(&db, 3);
    put_and_flush(&db, &["a", "z"], "2");
    compact_to(&db, 6);
    put_and_flush(&db, &["a", "z"], "3");
    compact_to_second_last(&db);
    moved_on(&clock, 3 * DAY);
    put_and_flush(&db, &["k"], "4");
    db.wait_for_compact().unwrap();
    db.set_options(&[("ttl", "0"), ("periodic_compaction_seconds", "86400")]).unwrap();
    moved_on(&clock, 3 * DAY);
    put_and_flush(&db, &["l"], "5");
    db.wait_for_compact().unwrap();
    db.set_options(&[("periodic_compaction_seconds", "0")]).unwrap();
    db.wait_for_compact().unwrap();
    put_and_flush(&db, &["a", "z"], "6");
    compact_to_second_last(&db);
    db.suggest_compact_range(db.default_column_family(), None, None).unwrap();
    db.wait_for_compact().unwrap();
    drop(db);

    // First in, first out.
    for by_size in [true, false] {
        let clock = manual();
        let disk = Disk::with_clock(&clock);
        let mut options = counted(&disk, statistics);
        options.cf.compaction_style = CompactionStyle::Fifo;
        options.cf.disable_auto_compactions = false;
        match by_size {
            true => options.cf.compaction_options_fifo.max_table_files_size = 3000,
            false => options.cf.ttl = 100,
        }
        let db = disk.open_with(&options);
        for round in 0..5 {
            put_and_flush(&db, &[&format!("key{round}")], "v");
            moved_on(&clock, 200);
        }
        db.wait_for_compact().unwrap();
    }
}

/// What is on top of the last level goes to the level above it.
fn compact_to_second_last(db: &Db) {
    let top: Vec<FileNumber> =
        db.live_files().iter().filter(|file| file.level == 0).map(|file| file.number).collect();
    db.compact_files(&CompactFilesOptions::default(), db.default_column_family(), &top, 5).unwrap();
}

fn space_and_removal(statistics: &Arc<Statistics>) {
    let clock = manual();
    let disk = Disk::with_clock(&clock);
    let mut options = counted(&disk, statistics);
    let manager = SstFileManager::new(SstFileManagerOptions {
        rate_bytes_per_sec: 100,
        max_trash_db_ratio: 1e9,
        ..Default::default()
    });
    options.db.sst_file_manager = Some(Arc::clone(&manager));
    let db = disk.open_with(&options);
    put_and_flush(&db, &["a", "z"], "1");
    put_and_flush(&db, &["a", "z"], "2");
    manager.set_max_allowed_space_usage(manager.total_size() + 1);
    let compacted = db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None);
    assert_eq!(compacted.unwrap_err().code(), Code::CompactionTooLarge);
    manager.set_max_allowed_space_usage(0);
    rewrite_all(&db);
    disk.wait_until("an empty trash", || {
        clock.advance(Duration::from_secs(DAY));
        statistics.ticker(Ticker::FilesDeletedFromTrashQueue) > 0 && manager.total_trash_size() == 0
    });
    manager.set_delete_rate_bytes_per_second(0);
    put_and_flush(&db, &["a", "z"], "3");
    rewrite_all(&db);
    disk.wait_until("a removal at once", || statistics.ticker(Ticker::FilesDeletedImmediately) > 0);
}

fn failures(statistics: &Arc<Statistics>) {
    let disk = Disk::new();
    let options = counted(&disk, statistics);
    let db = disk.open_with(&options);
    db.put("a", "1").unwrap();
    disk.faults.arm();
    disk.faults.add(FaultRule::error(FaultError::NoSpace).on(&[OpKind::Create]).path(".sst").times(1));
    db.flush().unwrap_err();
    disk.wait_until("going on by itself", || {
        statistics.ticker(Ticker::ErrorHandlerAutoresumeSuccessCount) > 0
    });
    put_and_flush(&db, &["b"], "1");
    rewrite_all(&db);
    let table = PathBuf::from(format!("{DIR}/{:06}.sst", db.live_files()[0].number.0));
    drop(db);
    disk.fs.corrupt(&table, |bytes| bytes[4] ^= 1).unwrap();
    let mut options = options;
    options.db.max_open_files = 10; // Else opening the database would find it.
    disk.open_with(&options).get("a").unwrap_err();
    // The footer's magic number is its end.
    disk.fs.corrupt(&table, |bytes| *bytes.last_mut().unwrap() ^= 1).unwrap();
    let opened = disk.try_open(&options);
    assert!(opened.and_then(|db| db.get("a").map(drop)).is_err());
}

fn copies_and_files(statistics: &Arc<Statistics>) {
    let disk = Disk::new();
    let mut options = counted(&disk, statistics);
    options.db.file_checksum_gen_factory = Some(Arc::new(FileChecksumGenCrc32cFactory));
    let db = disk.open_with(&options);
    put_and_flush(&db, &["a", "b"], "1");
    db.verify_file_checksums().unwrap();
    db.checkpoint("/checkpoint").unwrap();
    let mut backups = BackupEngineOptions::new("/backups");
    backups.env = disk.env();
    BackupEngine::open(backups).unwrap().create_backup(&db).unwrap();
    let mut writer = SstFileWriter::new(&options);
    writer.open("/in.sst").unwrap();
    writer.put("x", "1").unwrap();
    writer.finish().unwrap();
    db.ingest_external_files(db.default_column_family(), &["/in.sst"], &IngestOptions::default()).unwrap();
    let unlogged = WriteOptions { disable_wal: true, ..WriteOptions::default() };
    db.put_cf(&unlogged, db.default_column_family(), "c", "1").unwrap();
}

fn atomic_flushes(statistics: &Arc<Statistics>) {
    let atomic = |disk: &Disk| {
        let mut options = counted(disk, statistics);
        options.db.atomic_flush = true;
        options
    };
    let disk = Disk::new();
    let mut options = atomic(&disk);
    options.cf.write_buffer_size = 64 << 10;
    options.cf.memtable_max_range_deletions = 1;
    let db = disk.open_with(&options);
    (0..300).for_each(|number| db.put(format!("key{number:06}"), [b'v'; 1000]).unwrap());
    db.flush().unwrap();
    db.delete_range("a", "b").unwrap();
    db.put("key", "value").unwrap();
    db.wait_for_compact().unwrap();

    let disk = Disk::new();
    let mut options = atomic(&disk);
    options.db.db_write_buffer_size = 256 << 10;
    let db = disk.open_with(&options);
    (0..600).for_each(|number| db.put(format!("key{number:06}"), [b'v'; 1000]).unwrap());
    disk.wait_until("a flush", || !db.live_files().is_empty());
}

struct TakesItsTime(std::sync::atomic::AtomicBool);

impl CompactionFilter for TakesItsTime {
    fn name(&self) -> &str {
        "TakesItsTime"
    }
    fn filter(&self, _level: usize, _key: &[u8], _value: &[u8]) -> FilterDecision {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
        SystemClock::new().sleep(Duration::from_millis(1));
        FilterDecision::Keep
    }
}

fn aborted_compactions(statistics: &Arc<Statistics>) {
    let disk = Disk::new();
    let mut options = counted(&disk, statistics);
    let filter = Arc::new(TakesItsTime(false.into()));
    options.cf.compaction_filter = Some(filter.clone());
    let db = disk.open_with(&options);
    (0..10_000).for_each(|number| db.put(format!("key{number:06}"), "").unwrap());
    let whole = CompactRangeOptions {
        bottommost_level_compaction: BottommostPolicy::Force,
        ..CompactRangeOptions::default()
    };
    std::thread::scope(|scope| {
        let compacting = scope.spawn(|| db.compact_range(&whole, db.default_column_family(), None, None));
        disk.wait_until("a compaction", || filter.0.load(std::sync::atomic::Ordering::SeqCst));
        db.abort_all_compactions();
        compacting.join().unwrap().unwrap_err();
    });
}

/// A table whose tail is longer than its MANIFEST says: blocks of it are read one by one.
fn long_tails(statistics: &Arc<Statistics>) {
    let disk = Disk::new();
    let mut options = counted(&disk, statistics);
    options.cf.compression = CompressionKind::None;
    let mut writer = SstFileWriter::new(&options);
    writer.open("/in.sst").unwrap();
    (0..20_000).for_each(|n| writer.put(format!("{n:0200}"), [b'v'; 100]).unwrap());
    writer.finish().unwrap();
    let reader = ironstone::SstFileReader::open(&options, "/in.sst").unwrap();
    assert_eq!(reader.properties().num_entries, 20_000);
}

/// Reads that wait for a rate limiter, and blocks that come from a persistent cache.
fn limited_reads(statistics: &Arc<Statistics>) {
    let disk = Disk::new();
    let mut options = counted(&disk, statistics);
    let reads = RateLimiterOptions { mode: RateLimiterMode::ReadsOnly, ..RateLimiterOptions::default() };
    let limiter = GenericRateLimiter::with_options(20_000, reads, Arc::clone(&disk.env().clock));
    options.db.rate_limiter = Some(Arc::new(limiter));
    options.cf.compression = CompressionKind::None;
    options.cf.table.no_block_cache = true;
    let tier = PersistentCacheConfig::new(disk.env(), "/tier", 1 << 20);
    options.cf.table.persistent_cache = Some(new_persistent_cache(tier).unwrap());
    let db = disk.open_with(&options);
    put_and_flush(&db, &["a"], &"x".repeat(3000));
    let limited = ReadOptions { rate_limiter_priority: Some(IoPriority::User), ..ReadOptions::default() };
    for _ in 0..2 {
        db.get_cf(&limited, db.default_column_family(), "a").unwrap().unwrap();
    }
}

/// One table of one block with 20 values of 100 bytes, of which one is read, and then all.
fn read_amplification(statistics: &Arc<Statistics>) {
    let disk = Disk::new();
    let mut options = counted(&disk, statistics);
    options.cf.table.read_amp_bytes_per_bit = 1;
    let db = disk.open_with(&options);
    let keys: Vec<String> = (0..20).map(|i| format!("key{i:02}")).collect();
    put_and_flush(&db, &keys.iter().map(String::as_str).collect::<Vec<_>>(), &"v".repeat(100));
    let count = || {
        [Ticker::ReadAmpEstimateUsefulBytes, Ticker::ReadAmpTotalReadBytes]
            .map(|ticker| statistics.ticker(ticker))
    };
    let [useful, total] = count();
    for _ in 0..2 {
        assert!(db.get("key07").unwrap().is_some());
    }
    let [useful_by_get, total_by_get] = count();
    assert_eq!(useful_by_get - useful, 100, "the value, once");
    assert!((2000..3000).contains(&(total_by_get - total)), "one block: {}", total_by_get - total);
    let mut iter = db.iter().unwrap();
    let mut more = iter.seek_to_first().unwrap();
    while more {
        assert_eq!(iter.value().map(<[u8]>::len), Some(100));
        more = iter.next().unwrap();
    }
    let [useful_by_all, total_by_all] = count();
    assert_eq!(total_by_all, total_by_get, "the block is in the cache");
    let entries = useful_by_all - useful;
    assert!(
        entries > 2000 && entries < total_by_all - total,
        "all entries, but no restart points: {entries}"
    );
}

/// Whoever adds a ticker or a histogram is told here that it needs a source, or has to say why it has none.
#[test]
fn all_tickers_and_histograms_move_unless_their_feature_is_not_built() {
    let statistics = Arc::new(Statistics::new());
    statistics.set_level(StatsLevel::All);
    let parts: [fn(&Arc<Statistics>); 17] = [
        point_reads,
        cached_meta_blocks,
        iterators,
        readahead,
        writes,
        updates_in_place,
        flushes,
        atomic_flushes,
        compactions,
        aborted_compactions,
        space_and_removal,
        failures,
        copies_and_files,
        long_tails,
        read_amplification,
        limited_reads,
        bad_manifests,
    ];
    parts.iter().for_each(|part| part(&statistics));
    let mut wrong = Vec::new();
    for &ticker in Ticker::ALL {
        let moved = statistics.ticker(ticker) > 0;
        if moved == ticker.unbuilt().is_some() {
            wrong.push(format!("{} = {}", ticker.name(), statistics.ticker(ticker)));
        }
    }
    for &histogram in Histogram::ALL {
        let count = statistics.histogram(histogram).count;
        if (count > 0) == histogram.unbuilt().is_some() {
            wrong.push(format!("{} has {count} values", histogram.name()));
        }
    }
    assert!(wrong.is_empty(), "without a source, or counted although unbuilt: {wrong:#?}");
}

/// A MANIFEST that changed on the disk, as closing finds.
fn bad_manifests(statistics: &Arc<Statistics>) {
    let disk = Disk::new();
    let mut options = counted(&disk, statistics);
    options.db.verify_manifest_content_on_close = true;
    let db = disk.open_with(&options);
    let path = disk.newest_in_db("MANIFEST");
    let mut bytes = disk.fs.read_all(&path).unwrap();
    bytes[20] ^= 1;
    disk.fs.write_all_synced(&path, &bytes).unwrap();
    db.close().unwrap();
}

#[test]
fn levels_switch_off_what_they_name() {
    let workload = |level| {
        let statistics = Arc::new(Statistics::new());
        statistics.set_level(level);
        [point_reads, iterators].iter().for_each(|part| part(&statistics));
        statistics
    };
    let has_tickers = |statistics: &Statistics| statistics.ticker(Ticker::NumberKeysRead) > 0;
    let filled = |statistics: &Statistics| -> Vec<Histogram> {
        Histogram::ALL.iter().copied().filter(|&of| statistics.histogram(of).count > 0).collect()
    };
    let is_time = |of: &Histogram| of.name().ends_with("micros") || of.name().ends_with("nanos");
    let detailed = [
        Histogram::CompressionTimesNanos,
        Histogram::DecompressionTimesNanos,
        Histogram::FileReadGetMicros,
        Histogram::FileReadDbIteratorMicros,
    ];

    let nothing = workload(StatsLevel::DisableAll);
    assert!(Ticker::ALL.iter().all(|&ticker| nothing.ticker(ticker) == 0) && filled(&nothing).is_empty());
    let tickers = workload(StatsLevel::ExceptHistogramOrTimers);
    assert!(has_tickers(&tickers) && filled(&tickers).is_empty());
    let sizes = workload(StatsLevel::ExceptTimers);
    assert!(has_tickers(&sizes) && filled(&sizes).contains(&Histogram::BytesPerRead));
    assert!(!filled(&sizes).iter().any(is_time), "{:?}", filled(&sizes));
    let times = workload(StatsLevel::ExceptDetailedTimers);
    assert!(filled(&times).contains(&Histogram::DbGet) && filled(&times).contains(&Histogram::SstReadMicros));
    assert!(!filled(&times).iter().any(|of| detailed.contains(of)), "{:?}", filled(&times));
    let all_but_locks = workload(StatsLevel::ExceptTimeForMutex);
    assert!(detailed.iter().all(|of| filled(&all_but_locks).contains(of)), "{:?}", filled(&all_but_locks));
}

/// Where a key was found, and how much that was.
#[test]
fn reads_are_counted_where_they_end() {
    let statistics = Arc::new(Statistics::new());
    let disk = Disk::new();
    let db = disk.open_with(&counted(&disk, &statistics));
    put_and_flush(&db, &["deep"], "12345");
    compact_to(&db, 2);
    put_and_flush(&db, &["one"], "1234");
    let top: Vec<FileNumber> =
        db.live_files().iter().filter(|file| file.level == 0).map(|file| file.number).collect();
    db.compact_files(&CompactFilesOptions::default(), db.default_column_family(), &top, 1).unwrap();
    put_and_flush(&db, &["zero"], "123");
    db.put("new", "12").unwrap();
    db.put("gone", "").unwrap();
    db.delete("gone").unwrap();
    let places = [
        Ticker::MemtableHit,
        Ticker::MemtableMiss,
        Ticker::GetHitL0,
        Ticker::GetHitL1,
        Ticker::GetHitL2AndUp,
    ];
    let found = |read: &dyn Fn()| {
        statistics.reset();
        read();
        places.map(|ticker| statistics.ticker(ticker))
    };
    assert_eq!(found(&|| drop(db.get("new"))), [1, 0, 0, 0, 0]);
    assert_eq!(found(&|| drop(db.get("gone"))), [1, 0, 0, 0, 0], "a tombstone is found too");
    assert_eq!(found(&|| drop(db.get("zero"))), [0, 1, 1, 0, 0]);
    assert_eq!(found(&|| drop(db.get("one"))), [0, 1, 0, 1, 0]);
    assert_eq!(found(&|| drop(db.get("deep"))), [0, 1, 0, 0, 1]);
    assert_eq!(found(&|| drop(db.get("none"))), [0, 1, 0, 0, 0]);
    let bytes = statistics.histogram(Histogram::BytesPerRead);
    assert_eq!((bytes.count, bytes.sum), (1, 0), "what is not found has no bytes");
    let all = ["new", "gone", "zero", "one", "deep", "none"];
    assert_eq!(found(&|| drop(db.multi_get(&all))), [2, 4, 1, 1, 1]);
    let counts =
        [Ticker::NumberMultigetKeysRead, Ticker::NumberMultigetKeysFound, Ticker::NumberMultigetBytesRead];
    assert_eq!(counts.map(|ticker| statistics.ticker(ticker)), [6, 4, 14]);

    // Of an iterator, when it goes.
    statistics.reset();
    let mut iter = db.iter().unwrap();
    assert!(iter.seek("deep").unwrap());
    while iter.next().unwrap() {}
    assert_eq!(statistics.ticker(Ticker::NumberDbNext), 0);
    drop(iter);
    let counts = [
        Ticker::NumberDbSeek,
        Ticker::NumberDbSeekFound,
        Ticker::NumberDbNext,
        Ticker::NumberDbNextFound,
        Ticker::NoIteratorCreated,
        Ticker::NoIteratorDeleted,
        Ticker::IterBytesRead,
    ];
    // deep=12345 new=12 one=1234 zero=123
    assert_eq!(counts.map(|ticker| statistics.ticker(ticker)), [1, 1, 4, 3, 1, 1, 28]);
}
