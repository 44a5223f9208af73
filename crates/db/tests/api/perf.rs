//! What the counts of a thread say about its own reads and writes.

use crate::disk::Disk;
use ironstone::perf::{self, IoMetric, LevelMetric, PerfLevel, PerfMetric};
use ironstone::statistics::{StatsLevel, Ticker};
use ironstone::{
    CompactRangeOptions, CompactionJobInfo, Db, DbIterator, EventListener, FilterPolicy, FlushJobInfo,
    IndexType, IngestOptions, MemTableKind, Options, ReadOptions, SstFileWriter, Statistics,
    TableFileDeletionInfo, WriteOptions, merge_operators, slice_transform,
};
use ironstone_base::sync::Mutex;
use std::sync::Arc;

/// What `act` adds to each of `metrics`.
fn counted<const N: usize>(metrics: [PerfMetric; N], act: impl FnOnce()) -> [u64; N] {
    perf::reset();
    act();
    metrics.map(perf::get)
}

/// Asserts that those of `metrics` grow with `act` that are `taken`, and no others.
///
/// A clock may be coarser than one `act` takes, so it is repeated until it was seen to.
#[track_caller]
fn assert_timed<const N: usize>(metrics: [PerfMetric; N], taken: [bool; N], mut act: impl FnMut()) {
    let mut grown = || {
        act();
        metrics.map(|metric| perf::get(metric) > 0)
    };
    perf::reset();
    let enough = (0..10_000).any(|_| grown() == taken);
    assert!(enough, "{metrics:?} should be {taken:?}: {:?}", metrics.map(perf::get));
}

fn options(disk: &Disk) -> Options {
    let mut options = disk.options();
    options.cf.merge_operator = Some(merge_operators::string_append(","));
    options.cf.table.filter_policy = Some(FilterPolicy::bloom(20.0));
    options
}

/// Where many reads go on from a memtable, the next one has a filter that nobody set up.
#[test]
fn memtables_that_reads_pass_by_have_filters() {
    let disk = Disk::new();
    let db = disk.open();
    let denied = || counted([PerfMetric::BloomMemtableMissCount], || drop(db.get("missing").unwrap()));
    let fill_after = |reads: u32, single: bool, key: &str| {
        match single {
            true => (0..reads).for_each(|_| assert!(db.get("missing").unwrap().is_none())),
            false => (0..reads / 10).for_each(|_| drop(db.multi_get(&["missing"; 10]))),
        }
        db.flush().unwrap();
        db.put(key, key).unwrap();
    };
    fill_after(0, true, "a");
    assert_eq!(denied(), [0]);
    fill_after(100, true, "b");
    assert_eq!(denied(), [0], "a few reads are not worth it");
    fill_after(2000, true, "c");
    assert_eq!(denied(), [1]);
    fill_after(2000, false, "d");
    assert_eq!(denied(), [1]);
    for key in ["a", "b", "c", "d"] {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(key.as_bytes()));
    }
    fill_after(10, true, "e");
    assert_eq!(denied(), [0], "nobody reads any more");
    // Nor if many more are written than read.
    (0..20_000).for_each(|number| db.put(format!("{number}"), "").unwrap());
    fill_after(2000, true, "f");
    assert_eq!(denied(), [0]);
}

#[test]
fn a_read_of_a_key_counts_where_it_looked() {
    use PerfMetric::*;
    let disk = Disk::new();
    let db = disk.open_with(&options(&disk));
    db.put(b"old", b"12345").unwrap();
    db.put(b"zzz", b"").unwrap();
    db.flush().unwrap();
    db.put(b"new", b"123").unwrap();
    let places = [GetFromMemtableCount, BlockReadCount, BlockCacheHitCount, GetReadBytes];
    let read = |key: &'static str| counted(places, || drop(db.get(key).unwrap()));
    assert_eq!(read("new"), [1, 0, 0, 3]);
    assert_eq!(read("old"), [1, 1, 0, 5], "from the file");
    assert_eq!(read("old"), [1, 0, 1, 5], "from the block cache");
    let filters = [BloomSstHitCount, BloomSstMissCount];
    assert_eq!(counted(filters, || drop(db.get(b"old").unwrap())), [1, 0]);
    assert_eq!(counted(filters, || drop(db.get(b"ole").unwrap())), [0, 1]);
    assert_eq!(counted([MultigetReadBytes], || drop(db.multi_get(&["old", "new", "none"]))), [8]);
    let merges = || {
        db.merge(b"m", b"1").unwrap();
        db.merge(b"m", b"2").unwrap();
        assert_eq!(db.get(b"m").unwrap().unwrap(), b"1,2");
    };
    assert_eq!(counted([InternalMergePointLookupCount], merges), [2]);
}

#[test]
fn blocks_are_counted_by_what_they_hold() {
    use PerfMetric::*;
    let disk = Disk::new();
    let mut options = options(&disk);
    options.cf.table.cache_index_and_filter_blocks = true;
    options.cf.table.index_type = IndexType::BinarySearch;
    let db = disk.open_with(&options);
    db.put(b"k", b"v").unwrap();
    db.flush().unwrap();
    drop(db);
    perf::reset();
    let db = disk.open_with(&options);
    assert!(db.get(b"k").unwrap().is_some());
    let [index, filter, blocks] = [IndexBlockReadCount, FilterBlockReadCount, BlockReadCount].map(perf::get);
    assert_eq!((index, filter), (1, 1));
    assert!(blocks >= 3, "{}", perf::report(true));
    let bytes =
        [DataBlockReadByte, IndexBlockReadByte, FilterBlockReadByte, MetadataBlockReadByte, BlockReadByte];
    let [data, index, filter, others, all] = bytes.map(perf::get);
    assert!(data > 0 && index > 0 && filter > 0, "{}", perf::report(true));
    assert_eq!(data + index + filter + others, all);
    let hits = [BlockCacheIndexHitCount, BlockCacheFilterHitCount, BlockCacheHitCount];
    assert_eq!(counted(hits, || drop(db.get(b"k").unwrap())), [1, 1, 3]);
    let of_hits = [BlockCacheIndexReadByte, BlockCacheFilterReadByte, BlockCacheReadByte];
    let [index, filter, all] = counted(of_hits, || drop(db.get(b"k").unwrap()));
    assert!(index > 0 && filter > 0 && all > index + filter, "{index} {filter} {all}");
    let cached = db.property("rocksdb.block-cache-usage").unwrap().parse::<u64>().unwrap();
    assert!(all <= cached, "{all} of {cached}");
    perf::set_level(PerfLevel::Disable);
    assert_eq!(counted(of_hits, || drop(db.get(b"k").unwrap())), [0; 3]);
    perf::set_level(PerfLevel::default());
}

#[test]
fn iterators_count_what_they_pass_over() {
    use PerfMetric::*;
    let disk = Disk::new();
    let db = disk.open_with(&options(&disk));
    for key in ["a", "b", "b", "b", "c", "d"] {
        db.put(key, b"v").unwrap();
    }
    db.delete(b"c").unwrap();
    let mut iter = db.iter().unwrap();
    db.put(b"aa", b"later").unwrap();
    let moves = [IterSeekCount, IterNextCount, IterReadBytes];
    let walk = || {
        let (mut keys, mut more) = (Vec::new(), iter.seek_to_first().unwrap());
        while more {
            keys.extend_from_slice(iter.key().unwrap());
            more = iter.next().unwrap();
        }
        assert_eq!(keys, b"abd");
    };
    assert_eq!(counted(moves, walk), [1, 3, 6]);
    let skipped = [InternalRecentSkippedCount, InternalDeleteSkippedCount, InternalKeySkippedCount];
    let [recent, deleted, keys] = skipped.map(perf::get);
    assert_eq!((recent, deleted), (1, 1));
    assert_eq!(keys, 3 + 2 + 1, "each step, two older values of b, one of c");
    let moves = [IterSeekCount, IterPrevCount];
    let back = || {
        assert!(iter.seek_to_last().unwrap());
        assert!(iter.prev().unwrap());
    };
    assert_eq!(counted(moves, back), [1, 1]);
}

#[test]
fn steps_in_memtables_are_counted() {
    use PerfMetric::*;
    for kind in [MemTableKind::RadixTree, MemTableKind::SkipList, MemTableKind::Vector] {
        let disk = Disk::new();
        let mut options = options(&disk);
        options.cf.memtable_factory = kind;
        let db = disk.open_with(&options);
        for key in ["a", "b", "c", "d"] {
            db.put(key, b"v").unwrap();
        }
        let moves = [SeekOnMemtableCount, NextOnMemtableCount, PrevOnMemtableCount];
        let mut iter = db.iter().unwrap();
        let mut at = |act: &mut dyn FnMut(&mut DbIterator)| counted(moves, || act(&mut iter));
        assert_eq!(at(&mut |iter| assert!(iter.seek("b").unwrap())), [1, 0, 0], "{kind:?}");
        assert_eq!(at(&mut |iter| assert!(iter.next().unwrap())), [0, 1, 0]);
        assert_eq!(at(&mut |iter| assert!(!iter.seek("x").unwrap())), [1, 0, 0]);
        let [seeks, nexts, prevs] = at(&mut |iter| assert!(iter.seek_for_prev("c").unwrap()));
        assert!(seeks == 1 && nexts == 0 && prevs <= 1, "{seeks} {nexts} {prevs}");
        assert!(at(&mut |iter| assert!(iter.prev().unwrap()))[2] >= 1);
        perf::set_level(PerfLevel::Disable);
        assert_eq!(at(&mut |iter| assert!(iter.seek("a").unwrap() && iter.next().unwrap())), [0; 3]);
        perf::set_level(PerfLevel::default());
        // Once its entries are in a table, none is walked in memory.
        db.flush().unwrap();
        let walk = || {
            let mut iter = db.iter().unwrap();
            assert!(iter.seek("a").unwrap() && iter.next().unwrap());
        };
        assert_eq!(counted(moves, walk)[1..], [0, 0]);
    }
}

#[test]
fn searches_count_the_keys_that_they_compare() {
    use PerfMetric::UserKeyComparisonCount;
    let compared = |act: &mut dyn FnMut()| counted([UserKeyComparisonCount], act)[0];
    for (kind, in_memtable) in [(MemTableKind::RadixTree, 0), (MemTableKind::SkipList, 1)] {
        let disk = Disk::new();
        let mut options = options(&disk);
        options.cf.memtable_factory = kind;
        let db = disk.open_with(&options);
        db.put("k", "v").unwrap();
        let get = |key: &str| assert!(db.get(key).unwrap().is_some());
        assert_eq!(compared(&mut || get("k")), in_memtable, "{kind:?}");
        db.flush().unwrap();
        let in_one_table = compared(&mut || get("k"));
        assert!((3..=4).contains(&in_one_table), "{in_one_table}: the table, its block, its entry");
        perf::set_level(PerfLevel::Disable);
        assert_eq!(compared(&mut || get("k")), 0);
        perf::set_level(PerfLevel::default());

        for number in 0..5000 {
            db.put(format!("key{number:04}"), [b'v'; 100]).unwrap();
        }
        db.flush().unwrap();
        db.compact_range(&Default::default(), db.default_column_family(), None, None).unwrap();
        let one = compared(&mut || get("key2345"));
        // About 130 blocks of about 36 entries, of which hints say about where the key is.
        assert!((8..30).contains(&one), "{one}");
        let both = || db.multi_get(&["key2345", "key3456"]).into_iter().for_each(|got| drop(got.unwrap()));
        assert!((16..60).contains(&compared(&mut { both })));
        let mut iter = db.iter().unwrap();
        let sought = compared(&mut || assert!(iter.seek("key2345").unwrap()));
        assert!((8..30).contains(&sought), "{sought}");
        assert_eq!(compared(&mut || assert!(iter.next().unwrap())), 0, "the places are merged by numbers");
    }
}

#[test]
fn times_are_taken_where_the_level_says_so() {
    use PerfMetric::*;
    let disk = Disk::new();
    let db = disk.open_with(&options(&disk));
    let times = [
        WriteWalTime,
        WriteMemtableTime,
        GetFromMemtableTime,
        SeekInternalSeekTime,
        GetCpuNanos,
        IterSeekCpuNanos,
    ];
    let work = || {
        db.put(b"k", b"v").unwrap();
        assert!(db.get(b"k").unwrap().is_some());
        assert!(db.iter().unwrap().seek(b"k").unwrap());
    };
    assert_eq!(counted(times, work), [0; 6]);
    perf::set_level(PerfLevel::EnableTimeExceptForMutex);
    assert_timed(times, [true, true, true, true, false, false], work);
    perf::set_level(PerfLevel::EnableTime);
    assert_timed(times, [true; 6], work);
    perf::set_level(PerfLevel::Disable);
    assert_eq!(counted([GetFromMemtableCount, IterSeekCount], work), [0, 0]);
}

#[test]
fn what_comes_before_and_after_the_search_of_a_read_is_timed() {
    use PerfMetric::*;
    let times =
        [GetSnapshotTime, GetFromMemtableTime, GetFromOutputFilesTime, GetPostProcessTime, GetCpuNanos];
    for statistics in [None, Some(Arc::new(Statistics::new()))] {
        let disk = Disk::new();
        let mut options = options(&disk);
        options.db.statistics = statistics;
        let db = disk.open_with(&options);
        db.put("k", "v").unwrap();
        db.flush().unwrap();
        let (reads, cf) = (ReadOptions::default(), db.default_column_family());
        let of_one: [&dyn Fn(); 2] =
            [&|| assert!(db.get("k").unwrap().is_some()), &|| drop(db.get_cf(&reads, cf, "k").unwrap())];
        let of_several: [&dyn Fn(); 2] =
            [&|| assert_eq!(db.multi_get(&["k", "none"]).iter().flatten().flatten().count(), 1), &|| {
                drop(db.multi_get_across(&reads, &[(cf, "k"), (cf, "none")]))
            }];
        for read in of_one.iter().chain(&of_several) {
            perf::set_level(PerfLevel::EnableWait);
            assert_eq!(counted(times, read), [0; 5]);
            perf::set_level(PerfLevel::EnableTimeExceptForMutex);
            assert_timed(times, [true, true, true, true, false], read);
        }
        perf::set_level(PerfLevel::EnableTime);
        for read in of_one {
            assert_timed(times, [true; 5], read);
        }
        perf::set_level(PerfLevel::EnableWait);
        assert_timed([WriteMemtableTime], [true], || db.put("k", "w").unwrap()); // As in RocksDB.
        perf::set_level(PerfLevel::default());
    }
}

#[test]
fn what_it_takes_to_have_a_block_and_to_search_it_is_timed() {
    use PerfMetric::*;
    let times = [NewTableBlockIterNanos, BlockSeekNanos];
    for index_type in [IndexType::BinarySearch, IndexType::TwoLevel] {
        let disk = Disk::new();
        let mut options = options(&disk);
        options.cf.table.index_type = index_type;
        options.cf.table.block_size = 100;
        let db = disk.open_with(&options);
        (0..50).for_each(|i| db.put(format!("key{i:02}"), "v".repeat(50)).unwrap());
        db.flush().unwrap();
        let cold = disk.open_read_only(&options, &[]).unwrap();
        let reads: [&dyn Fn(); 5] = [
            &|| drop(cold.multi_get(&["key20", "key40"])), // First: its blocks come from the file.
            &|| drop(cold.multi_get(&["key20", "key40"])),
            &|| drop(cold.get("key20").unwrap()),
            &|| assert!(cold.iter().unwrap().seek("key30").unwrap()),
            &|| assert!(cold.iter().unwrap().seek_for_prev("key30").unwrap()),
        ];
        for read in reads {
            perf::set_level(PerfLevel::EnableWait);
            assert_eq!(counted(times, read), [0, 0]);
            perf::set_level(PerfLevel::EnableTimeExceptForMutex);
            assert_timed(times, [true; 2], read);
        }
        // A walk has blocks, and searches none.
        let mut iter = cold.iter().unwrap();
        assert_timed(times, [true, false], || {
            perf::set_level(PerfLevel::EnableWait);
            assert!(iter.seek_to_first().unwrap());
            perf::set_level(PerfLevel::EnableTimeExceptForMutex);
            while iter.next().unwrap() {}
        });
        perf::set_level(PerfLevel::default());
    }
}

#[test]
fn the_search_for_a_table_is_counted() {
    use PerfMetric::*;
    let disk = Disk::new();
    let db = disk.open_with(&options(&disk));
    // Keys of tables have gaps between them, in which nothing but the search for a table compares.
    for table in 0..10 {
        db.put(format!("k{table}a"), "v").unwrap();
        db.put(format!("k{table}c"), "v").unwrap();
        db.flush().unwrap();
        let to_bottom =
            CompactRangeOptions { change_level: true, target_level: Some(6), ..Default::default() };
        let (begin, end) = (format!("k{table}a"), format!("k{table}c"));
        let range = (Some(begin.as_bytes()), Some(end.as_bytes()));
        db.compact_range(&to_bottom, db.default_column_family(), range.0, range.1).unwrap();
    }
    assert_eq!(db.property("rocksdb.num-files-at-level6").unwrap(), "10");
    let gap = || assert!(db.get("k4d").unwrap().is_none());
    assert_eq!(counted([UserKeyComparisonCount], gap), [perf::probes(10)]);
    let gaps = || drop(db.multi_get(&["k3d", "k4d", "k8d"]));
    assert_eq!(counted([UserKeyComparisonCount], gaps), [3 * perf::probes(10)]);
    let there = || assert!(db.get("k4c").unwrap().is_some());
    assert!(counted([UserKeyComparisonCount], there)[0] > perf::probes(10));
    db.put("k0", "v").unwrap();
    db.put("k9", "v").unwrap();
    db.flush().unwrap(); // A table of level 0 is one more, whether or not it has the key.
    let below = || assert!(db.get("a").unwrap().is_none());
    assert_eq!(counted([UserKeyComparisonCount], below), [1 + perf::probes(10)]);
    perf::set_level(PerfLevel::Disable);
    assert_eq!(counted([UserKeyComparisonCount], gap), [0]);
    perf::set_level(PerfLevel::default());
}

/// What the threads of jobs say they are of.
#[derive(Default)]
struct Pools(Mutex<[Option<u64>; 3]>);

impl EventListener for Pools {
    fn on_flush_begin(&self, _: &FlushJobInfo) {
        self.0.lock()[0] = Some(perf::get_io(IoMetric::ThreadPoolId));
        perf::reset_io(); // Until its next work.
    }
    fn on_compaction_begin(&self, _: &CompactionJobInfo) {
        self.0.lock()[1] = Some(perf::get_io(IoMetric::ThreadPoolId));
    }
    fn on_table_file_deleted(&self, _: &TableFileDeletionInfo) {
        self.0.lock()[2] = Some(perf::get_io(IoMetric::ThreadPoolId));
    }
}

#[test]
fn threads_know_what_they_work_for() {
    let disk = Disk::new();
    let mut options = disk.options();
    let pools = Arc::new(Pools::default());
    options.db.listeners = vec![Arc::clone(&pools) as _];
    options.cf.disable_auto_compactions = false;
    options.cf.level0_file_num_compaction_trigger = 2;
    let db = disk.open_with(&options);
    for _ in 0..2 {
        db.put("k", "v").unwrap();
        db.flush().unwrap();
    }
    db.wait_for_compact().unwrap();
    disk.wait_until("replaced tables are gone", || pools.0.lock()[2].is_some());
    assert_eq!(*pools.0.lock(), [Some(2), Some(1), Some(2)], "high, low, high");
    assert_eq!(perf::get_io(IoMetric::ThreadPoolId), 4, "none of them");
}

#[test]
fn seeks_and_tables_are_timed() {
    use PerfMetric::*;
    let disk = Disk::new();
    let mut options = options(&disk);
    options.db.max_open_files = 20;
    let db = disk.open_with(&options);
    for level in [3, 0] {
        db.put(format!("of level {level}"), b"v").unwrap();
        db.flush().unwrap();
        if level > 0 {
            let to_level =
                CompactRangeOptions { change_level: true, target_level: Some(level), ..Default::default() };
            db.compact_range(&to_level, db.default_column_family(), None, None).unwrap();
        }
    }
    drop(db);
    let seek = |db: &Db, act: fn(&mut ironstone::DbIterator) -> bool| assert!(act(&mut db.iter().unwrap()));
    let times =
        [NewTableIteratorNanos, SeekInternalSeekTime, SeekChildSeekTime, SeekMinHeapTime, SeekMaxHeapTime];
    let forward: [fn(&mut ironstone::DbIterator) -> bool; 2] =
        [|iter| iter.seek("of").unwrap(), |iter| iter.seek_to_first().unwrap()];
    let backward: [fn(&mut ironstone::DbIterator) -> bool; 2] =
        [|iter| iter.seek_for_prev("z").unwrap(), |iter| iter.seek_to_last().unwrap()];
    let db = disk.open_with(&options);
    assert_eq!(counted(times, || seek(&db, forward[0])), [0; 5]);
    assert_eq!(counted([SeekChildSeekCount], || seek(&db, forward[0])), [3], "a memtable and two tables");
    perf::set_level(PerfLevel::EnableTimeExceptForMutex);
    for act in forward {
        assert_timed(times, [true, true, true, true, false], || seek(&db, act));
        assert_timed([FindNextUserEntryTime], [true], || seek(&db, act));
    }
    for act in backward {
        assert_timed(times, [true, true, true, false, true], || seek(&db, act));
    }
    let in_memtables = [SeekOnMemtableTime, SeekOnMemtableCount];
    for act in [forward, backward] {
        assert_timed(in_memtables, [true; 2], || seek(&db, act[0]));
        let [nanos, count] = counted(in_memtables, || seek(&db, act[0]));
        assert!(nanos <= perf::get(SeekChildSeekTime) && count == 1, "{nanos} for {count}");
        assert_eq!(counted(in_memtables, || seek(&db, act[1])), [0, 0], "to an end");
    }
    perf::set_level(PerfLevel::EnableWait);
    assert_eq!(counted(in_memtables, || seek(&db, forward[0])), [0, 1], "times are not taken");
    perf::set_level(PerfLevel::EnableTimeExceptForMutex);

    let of_levels =
        || [0, 1, 2, 3].map(|level| perf::get_at_level(LevelMetric::GetFromTableNanos, level) > 0);
    perf::reset();
    assert!(db.get("of level 3").unwrap().is_some());
    assert_eq!(of_levels(), [false; 4], "levels are not counted apart");
    perf::enable_by_level();
    for (level, of_both) in [(3, [false, false, false, true]), (0, [true, false, false, true])] {
        let key = format!("of level {level}");
        assert!((0..10_000).any(|_| db.get(&key).unwrap().is_some() && of_levels() == of_both), "{key}");
    }
    assert!(perf::report(true).contains("get_from_table_nanos = "), "{}", perf::report(true));
    perf::set_level(PerfLevel::EnableCount);
    perf::reset();
    assert!(db.get("of level 3").unwrap().is_some());
    assert_eq!(of_levels(), [false; 4], "times are not taken");
    perf::clear_by_level();

    perf::set_level(PerfLevel::EnableTimeAndCpuTimeExceptForMutex);
    let reads = ReadOptions { fill_cache: false, ..ReadOptions::default() };
    let cold = disk.open_read_only(&options, &[]).unwrap();
    let read = || drop(cold.get_cf(&reads, cold.default_column_family(), "of level 3").unwrap());
    assert_timed([BlockReadCpuTime], [true], read);
    perf::set_level(PerfLevel::EnableCount);
}

#[test]
fn logging_ingestion_and_waits_are_timed() {
    use PerfMetric::*;
    let disk = Disk::new();
    let options = options(&disk);
    perf::set_level(PerfLevel::EnableTimeExceptForMutex);
    perf::reset();
    perf::reset_io();
    let db = disk.open_with(&options);
    assert!(perf::get(EnvNewLoggerNanos) > 0 && perf::get_io(IoMetric::LoggerNanos) > 0);

    let mut writer = SstFileWriter::new(&options);
    writer.open("/outside.sst").unwrap();
    writer.put("k", "v").unwrap();
    writer.finish().unwrap();
    let ingest = || {
        let cf = db.default_column_family();
        db.ingest_external_files(cf, &["/outside.sst"], &IngestOptions::default()).unwrap();
    };
    let [all, blocking] = counted([FileIngestionNanos, FileIngestionBlockingLiveWritesNanos], ingest);
    assert!(0 < blocking && blocking < all, "{blocking} of {all}");

    let flush = || {
        db.put("k", "w").unwrap();
        db.flush().unwrap();
    };
    assert_eq!(counted([DbConditionWaitNanos], flush), [0], "times under locks are not taken");
    perf::set_level(PerfLevel::EnableTime);
    // The flush may be done before anybody waits for it.
    assert!((0..1000).any(|_| counted([DbConditionWaitNanos], flush)[0] > 0));
    perf::set_level(PerfLevel::default());
}

#[test]
fn threads_count_for_themselves() {
    let disk = Disk::new();
    let db = Arc::new(disk.open_with(&options(&disk)));
    db.put_cf(&WriteOptions::default(), db.default_column_family(), b"k", b"value").unwrap();
    perf::reset();
    let other = Arc::clone(&db);
    let theirs = std::thread::Builder::new()
        .spawn(move || {
            assert!(other.get(b"k").unwrap().is_some());
            perf::get(PerfMetric::GetReadBytes)
        })
        .unwrap();
    assert_eq!(theirs.join().unwrap(), 5);
    assert_eq!(perf::get(PerfMetric::GetReadBytes), 0);
}

/// `deep` lies on level 6, `top` on level 0.
fn two_levels(disk: &Disk, options: &Options) -> Db {
    let db = disk.open_with(options);
    for key in ["aa1", "deep", "zz1"] {
        db.put(key, "12345").unwrap();
    }
    db.flush().unwrap();
    let to_bottom = CompactRangeOptions { change_level: true, target_level: Some(6), ..Default::default() };
    db.compact_range(&to_bottom, db.default_column_family(), None, None).unwrap();
    for key in ["aa2", "top", "zz2"] {
        db.put(key, "12345").unwrap();
    }
    db.flush().unwrap();
    drop(db);
    disk.open_with(options) // Tables know the level that they were opened on.
}

#[test]
fn each_level_is_counted_apart_if_that_is_wanted() {
    use LevelMetric::*;
    let disk = Disk::new();
    let db = two_levels(&disk, &options(&disk));
    let counts = |level: u32, act: &dyn Fn()| {
        perf::reset();
        act();
        let metrics = [
            BloomFilterUseful,
            BloomFilterFullPositive,
            BloomFilterFullTruePositive,
            UserKeyReturnCount,
            BlockCacheHitCount,
            BlockCacheMissCount,
        ];
        metrics.map(|metric| perf::get_at_level(metric, level))
    };
    let get = |key: &'static str| move |db: &Db| drop(db.get(key).unwrap());
    assert_eq!(counts(0, &|| get("top")(&db)), [0; 6], "not asked for");
    perf::enable_by_level();
    assert_eq!(counts(0, &|| get("top")(&db)), [0, 1, 1, 1, 1, 0]);
    assert_eq!(counts(6, &|| get("top")(&db)), [0; 6], "it was not reached");
    assert_eq!(counts(0, &|| get("deep")(&db)), [1, 0, 0, 0, 0, 0]);
    assert_eq!(counts(6, &|| get("deep")(&db)), [0, 1, 1, 1, 1, 0], "read by the line before");
    assert_eq!(counts(6, &|| drop(db.multi_get(&["deep", "top", "aaa"]))), [1, 1, 1, 1, 1, 0]);
    assert_eq!(perf::get_at_level(UserKeyReturnCount, 0), 1);
    let report = perf::report(true);
    assert!(report.contains("bloom_filter_useful = 2@level0, 1@level6"), "{report}");
    perf::set_level(PerfLevel::Disable);
    assert_eq!(counts(0, &|| get("top")(&db)), [0; 6], "the level of all counts holds for these");
    perf::set_level(PerfLevel::default());
    let cold = disk.open_read_only(&options(&disk), &[]).unwrap();
    assert_eq!(counts(6, &|| get("deep")(&cold)), [0, 1, 1, 1, 0, 1], "from the file");
    perf::disable_by_level();
    assert_eq!(counts(0, &|| get("top")(&db)), [0; 6]);
    perf::clear_by_level();
}

#[test]
fn seeks_are_counted_by_what_the_filter_says_and_for_the_last_level_apart() {
    let disk = Disk::new();
    let mut options = options(&disk);
    options.cf.prefix_extractor = Some(slice_transform::fixed_prefix(2));
    let statistics = Arc::new(Statistics::default());
    options.db.statistics = Some(Arc::clone(&statistics));
    let db = two_levels(&disk, &options);
    let seek = |key: &str| {
        use Ticker::*;
        let all = [
            LastLevelSeekFiltered,
            LastLevelSeekFilterMatch,
            LastLevelSeekData,
            NonLastLevelSeekFiltered,
            NonLastLevelSeekFilterMatch,
            NonLastLevelSeekData,
        ];
        let before = all.map(|ticker| statistics.ticker(ticker));
        db.iter().unwrap().seek(key).unwrap();
        let mut after = all.map(|ticker| statistics.ticker(ticker));
        after.iter_mut().zip(before).for_each(|(after, before)| *after -= before);
        after
    };
    assert_eq!(seek("aa0"), [0, 1, 1, 0, 1, 1]);
    assert_eq!(seek("de"), [0, 1, 1, 1, 0, 0]);
    assert_eq!(seek("to"), [1, 0, 0, 0, 1, 1]);
    assert_eq!(seek("mm"), [1, 0, 0, 1, 0, 0]);
    let whole = ReadOptions { total_order_seek: true, ..ReadOptions::default() };
    let before = statistics.ticker(Ticker::NonLastLevelSeekFilterMatch);
    db.iter_cf(&whole, db.default_column_family()).unwrap().seek("aa0").unwrap();
    assert_eq!(statistics.ticker(Ticker::NonLastLevelSeekFilterMatch), before, "no filter was asked");
}

#[test]
fn times_of_file_reads_are_shown_by_level() {
    let disk = Disk::new();
    let mut options = options(&disk);
    let name = "rocksdb.cf-file-histogram";
    let db = two_levels(&disk, &options);
    assert_eq!(db.property(name).unwrap(), "\n** File Read Latency Histogram By Level [default] **\n");
    drop(db);
    let statistics = Arc::new(Statistics::default());
    options.db.statistics = Some(Arc::clone(&statistics));
    let db = disk.open_with(&options);
    db.get("deep").unwrap();
    db.set_options(&[("disable_auto_compactions", "true")]).unwrap();
    let text = db.property(name).unwrap();
    for level in [
        "** Level 0 read latency histogram (micros):\nCount: ",
        "** Level 6 read latency histogram (micros):\nCount: ",
    ] {
        assert!(text.contains(level), "{text}");
    }
    assert!(db.property("rocksdb.cfstats").unwrap().ends_with(&text));
    assert!(db.property("rocksdb.stats").unwrap().contains("File Read Latency Histogram"));
    assert!(!db.property("rocksdb.cfstats-no-file-histogram").unwrap().contains("File Read Latency"));
    drop(db);
    statistics.set_level(StatsLevel::ExceptTimers);
    let db = disk.open_with(&options);
    assert!(!db.property(name).unwrap().contains("Level 0"), "nothing is timed");
}
