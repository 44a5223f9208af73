//! What the counts of a thread say about its own reads and writes.

use crate::disk::Disk;
use ironstone::perf::{self, PerfLevel, PerfMetric};
use ironstone::{FilterPolicy, IndexType, Options, WriteOptions, merge_operators};
use std::sync::Arc;

/// What `act` adds to each of `metrics`.
fn counted<const N: usize>(metrics: [PerfMetric; N], act: impl FnOnce()) -> [u64; N] {
    perf::reset();
    act();
    metrics.map(perf::get)
}

fn options(disk: &Disk) -> Options {
    let mut options = disk.options();
    options.cf.merge_operator = Some(merge_operators::string_append(","));
    options.cf.table.filter_policy = Some(FilterPolicy::bloom(20.0));
    options
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
    assert_eq!(counted(times, work).map(|nanos| nanos > 0), [true, true, true, true, false, false]);
    perf::set_level(PerfLevel::EnableTime);
    assert_eq!(counted(times, work).map(|nanos| nanos > 0), [true; 6]);
    perf::set_level(PerfLevel::Disable);
    assert_eq!(counted([GetFromMemtableCount, IterSeekCount], work), [0, 0]);
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
