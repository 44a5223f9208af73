//! Point reads: how far they may go, what they hold, and how several agree.

use crate::disk::{Disk, fresh, get, rewrite_all};
use ironstone::statistics::Histogram;
use ironstone::vfs::OpKind;
use ironstone::vfs::fault::{FaultError, FaultRule};
use ironstone::{
    BlockCache, CacheOptions, ColumnFamily, Db, FilterPolicy, FlushOptions, PinnedValue, ReadOptions,
    ReadTier, Result, Statistics, WriteBatch, WriteOptions,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn tier(tier: ReadTier) -> ReadOptions {
    ReadOptions { read_tier: tier, ..ReadOptions::default() }
}

/// The value, `-` if there is none, `?` if the read may not go far enough.
fn said(result: Result<Option<PinnedValue>>) -> String {
    match result {
        Ok(value) => {
            value.map_or_else(|| "-".to_owned(), |value| String::from_utf8_lossy(&value).into_owned())
        }
        Err(error) if error.is_incomplete() => "?".to_owned(),
        Err(error) => panic!("{error}"),
    }
}

fn read(db: &Db, options: &ReadOptions, keys: &str) -> String {
    let cf = db.default_column_family();
    let keys: Vec<String> = keys.chars().map(String::from).collect();
    let one_by_one: String = keys.iter().map(|key| said(db.get_cf(options, cf, key))).collect();
    let together: String = db.multi_get_cf(options, cf, &keys).into_iter().map(said).collect();
    assert_eq!(one_by_one, together);
    one_by_one
}

/// `a` is deleted in the memtable, `b` is only in a table, `c` in both, `d` only in the memtable, `x` nowhere.
fn layered() -> (Disk, Db) {
    let (disk, db) = fresh();
    ["a", "b", "c"].iter().for_each(|key| db.put(key, "1").unwrap());
    db.flush().unwrap();
    drop(db);
    let db = disk.open();
    db.delete("a").unwrap();
    db.put("c", "2").unwrap();
    db.put("d", "2").unwrap();
    (disk, db)
}

#[test]
fn a_read_goes_as_far_as_its_tier_allows() {
    let (_disk, db) = layered();
    assert_eq!(read(&db, &tier(ReadTier::Memtable), "abcdx"), "-?22?");
    let cached = tier(ReadTier::BlockCache);
    assert_eq!(read(&db, &cached, "ab"), "-?", "the block has not been read");
    let uncached = ReadOptions { fill_cache: false, ..ReadOptions::default() };
    assert_eq!(read(&db, &uncached, "abcdx"), "-122-");
    assert_eq!(read(&db, &cached, "ab"), "-?", "it was read and not kept");
    assert_eq!(read(&db, &tier(ReadTier::Persisted), "abcdx"), "111--");
    assert_eq!(read(&db, &cached, "abcd"), "-122", "now it is cached");
    assert_eq!(read(&db, &ReadOptions::default(), "abcdx"), "-122-");
}

/// A thread whose reads found their keys in the oldest table looks for the next one there first: what it learns there is of no
/// other table, whatever the tables are like.
#[test]
fn what_the_oldest_table_would_have_is_not_looked_for_in_others() {
    type Change = fn(&mut ironstone::Options);
    let changes: [Change; 4] = [
        |_| {},
        |options| options.db.max_open_files = 12,
        |options| options.cf.table.cache_index_and_filter_blocks = true,
        |options| options.cf.table.no_block_cache = true,
    ];
    for change in changes {
        let disk = Disk::new();
        let mut options = disk.options();
        options.cf.table.block_size = 128;
        options.cf.table.filter_policy = Some(FilterPolicy::bloom(10.0));
        change(&mut options);
        let db = disk.open_with(&options);
        let key = |number: usize| format!("{number:04}");
        let layers = [("old", 1), ("newer", 10), ("newest", 7)];
        for (layer, step) in layers {
            (0..500).step_by(step).for_each(|number| db.put(key(number), layer).unwrap());
            db.flush().unwrap();
            if layer == "old" {
                rewrite_all(&db);
            }
        }
        let expected = |number: usize| match number {
            _ if number.is_multiple_of(7) => "newest",
            _ if number.is_multiple_of(10) => "newer",
            _ => "old",
        };
        // In the order of the numbers each of the newer tables is asked after reads that were all answered by the oldest one.
        for number in (0..500).chain((0..500).map(|number| number * 211 % 500)) {
            assert_eq!(get(&db, &key(number)), expected(number), "{number}");
            if number % 30 == 11 {
                assert_eq!(get(&db, &format!("{number:04}x")), "-");
            }
        }
    }
}

#[test]
fn column_families_share_a_block_cache_unless_they_have_their_own_or_none() {
    let (disk, db) = fresh();
    let options = disk.options().cf;
    let (mut own, mut none) = (options.clone(), options.clone());
    own.table.block_cache = Some(BlockCache::new(CacheOptions { capacity: 1 << 20, ..Default::default() }));
    none.table.no_block_cache = true;
    let shared = db.create_column_family("shared", &options).unwrap();
    let own = db.create_column_family("own", &own).unwrap();
    let none = db.create_column_family("none", &none).unwrap();
    let all = [db.default_column_family(), &shared, &own, &none];
    let numbers = |property: &str| all.map(|cf| db.int_property_cf(cf, property).unwrap());
    assert_eq!(numbers("rocksdb.block-cache-capacity"), [32 << 20, 32 << 20, 1 << 20, 0]);
    db.put_cf(&WriteOptions::default(), &shared, "k", "v").unwrap();
    db.flush_cf(&FlushOptions::default(), &shared).unwrap();
    db.get_cf(&ReadOptions::default(), &shared, "k").unwrap();
    let usage = numbers("rocksdb.block-cache-usage");
    assert!(usage[0] > 0 && usage[0] == usage[1] && usage[2..] == [0, 0], "{usage:?}");
}

#[test]
fn an_iterator_in_the_cache_says_where_it_cannot_go_on() {
    let (_disk, db) = layered();
    let mut iter = db.iter_cf(&tier(ReadTier::BlockCache), db.default_column_family()).unwrap();
    let error = iter.seek_to_first().unwrap_err();
    assert!(error.is_incomplete(), "{error}");
    assert!(!iter.valid());
    assert!(iter.status().unwrap_err().is_incomplete());
    assert!(iter.next().is_err(), "the failure stays");
    db.get("b").unwrap();
    assert!(iter.seek_to_first().unwrap(), "a seek begins anew");
    assert_eq!(iter.key(), Some(&b"b"[..]));
    iter.status().unwrap();
}

#[test]
fn an_iterator_may_leave_memtables_out() {
    let (_disk, db) = layered();
    let iter = db.iter_cf(&tier(ReadTier::Persisted), db.default_column_family()).unwrap();
    assert_eq!(crate::disk::forward(iter), "a=1 b=1 c=1");
}

#[test]
fn whether_a_key_may_exist_is_answered_from_memory_and_never_wrongly_denied() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.table.filter_policy = Some(FilterPolicy::bloom(20.0));
    let db = disk.open_with(&options);
    for number in (0..1000).step_by(2) {
        db.put(format!("{number:04}"), "v").unwrap();
    }
    let check = |when: &str| {
        let denied = (0..1000).filter(|number| !db.key_may_exist(format!("{number:04}"))).collect::<Vec<_>>();
        assert!(denied.iter().all(|number| number % 2 == 1), "{when}");
        assert!(denied.len() > 450, "{when}: a filter denies most that are not there");
    };
    check("in the memtable");
    db.flush().unwrap();
    check("in a table");
    db.delete("0000").unwrap();
    assert!(!db.key_may_exist("0000"));
}

#[test]
fn pinned_values_outlive_flush_compaction_and_the_database() {
    let (_disk, db) = fresh();
    db.put("k", "old").unwrap();
    db.put("large", vec![b'x'; 100_000]).unwrap();
    let in_memtable = db.get("k").unwrap().unwrap();
    db.flush().unwrap();
    let in_table = db.get("k").unwrap().unwrap();
    let large = db.get("large").unwrap().unwrap();
    db.put("k", "new").unwrap();
    db.delete("large").unwrap();
    db.flush().unwrap();
    rewrite_all(&db);
    let clone = in_table.clone();
    let new = db.get("k").unwrap().unwrap();
    db.close().unwrap();
    drop(db);
    assert_eq!(
        (&*in_memtable, &*in_table, &*clone, &*new),
        (&b"old"[..], &b"old"[..], &b"old"[..], &b"new"[..])
    );
    assert_eq!((large.len(), large[99_999]), (100_000, b'x'));
}

#[test]
fn multi_get_takes_any_keys_in_any_order() {
    let (_disk, db) = fresh();
    for number in 0..300 {
        db.put(format!("{number:03}"), number.to_string()).unwrap();
        if number % 100 == 99 {
            db.flush().unwrap();
        }
    }
    db.put("", "empty").unwrap();
    let keys = ["250", "", "001", "nope", "250", "099", "100", "299", "000", "zzz"];
    let found: Vec<_> = db.multi_get(&keys).into_iter().map(said).collect();
    assert_eq!(found, ["250", "empty", "1", "-", "250", "99", "100", "299", "0", "-"]);
    assert!(db.multi_get::<&str>(&[]).is_empty());
}

/// Each key goes to the first table whose filter lets it pass, whatever its level, and their blocks are read together.
#[test]
fn a_multi_get_reads_what_all_levels_have_at_once() {
    let disk = Disk::new();
    let statistics = Arc::new(Statistics::new());
    let mut options = disk.options();
    options.db.statistics = Some(Arc::clone(&statistics));
    options.cf.table.filter_policy = Some(FilterPolicy::bloom(20.0));
    let db = disk.open_with(&options);
    let put = |level: &str| {
        for number in 0..20 {
            db.put(format!("{number:02}-{level}"), level).unwrap();
        }
        db.put("all", level).unwrap();
        db.flush().unwrap();
    };
    put("deep");
    rewrite_all(&db);
    put("old");
    db.delete_range("15-deep", "15-e").unwrap();
    put("new");
    drop(db);
    let db = disk.open_with(&options);
    statistics.reset();
    let keys = ["00-deep", "19-new", "none", "all", "05-old", "15-deep", "07-deep"];
    let found: Vec<_> = db.multi_get(&keys).into_iter().map(said).collect();
    assert_eq!(found, ["deep", "new", "-", "new", "old", "-", "deep"]);
    let sum = |histogram| {
        let data = statistics.histogram(histogram);
        (data.count, data.sum)
    };
    // The newest table has two of them, the others one and two: the deleted one goes no further than its tombstone.
    assert_eq!(sum(Histogram::SstBatchSize), (3, 5));
    assert_eq!(sum(Histogram::NumSstReadPerLevel), (2, 3), "a block of each table");
    assert_eq!(sum(Histogram::NumLevelReadPerMultiget), (1, 2));
}

#[test]
fn a_read_error_is_reported_where_it_hits_and_nothing_older_is_shown() {
    for tables in [1, 2] {
        let (disk, db) = fresh();
        db.put("k", "old").unwrap();
        db.put("other", "old").unwrap();
        db.flush().unwrap();
        rewrite_all(&db);
        db.put("k", "new").unwrap();
        if tables == 2 {
            db.delete("other").unwrap();
        }
        db.flush().unwrap();
        drop(db);
        let mut lazy = disk.options();
        lazy.db.paranoid_checks = false;
        lazy.cf.table.no_block_cache = true; // So that every read goes to the file.
        for after in 0.. {
            let db = disk.open_with(&lazy);
            disk.faults.arm();
            let rule = FaultRule::error(FaultError::Io).on(&[OpKind::Read, OpKind::OpenRandom]).path(".sst");
            let rule = disk.faults.add(rule.after(after));
            let keys = ["k", "other"];
            let other = if tables == 2 { "-" } else { "old" };
            let mut errors = 0;
            let single = keys.map(|key| db.get(key));
            let many = db.multi_get(&keys);
            for (at, answer) in single.into_iter().chain(many).enumerate() {
                match answer {
                    Ok(value) => assert_eq!(said(Ok(value)), ["new", other][at % 2]),
                    Err(error) => {
                        errors += 1;
                        assert!(error.to_string().contains(".sst"), "{error}");
                    }
                }
            }
            let hit = rule.hits() > 0;
            disk.faults.clear();
            assert_eq!(errors > 0, hit, "call {after}");
            assert_eq!(
                (get(&db, "k"), get(&db, "other")),
                ("new".to_owned(), other.to_owned()),
                "a second read works"
            );
            if !hit {
                assert!(after > 3);
                break;
            }
        }
    }
}

/// Tables of a deeper level that cannot be read in the middle, at each place once.
#[test]
fn a_scan_that_cannot_read_a_table_says_so_and_passes_over_nothing() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.table.no_block_cache = true;
    options.cf.table.block_size = 128;
    options.cf.target_file_size_base = 1 << 10;
    options.cf.compression = ironstone::CompressionKind::None;
    let db = disk.open_with(&options);
    for number in 0..60 {
        db.put(format!("{number:03}"), "v".repeat(50)).unwrap();
    }
    rewrite_all(&db);
    let tables = db.live_files().len();
    assert!(tables > 2, "{tables} tables");
    disk.faults.arm();
    let read_all = |back: bool| -> Result<usize> {
        let mut iter = db.iter_cf(&ReadOptions::default(), db.default_column_family())?;
        let mut more = if back { iter.seek_to_last()? } else { iter.seek_to_first()? };
        let mut count = 0;
        while more {
            count += 1;
            more = if back { iter.prev()? } else { iter.next()? };
        }
        Ok(count)
    };
    for back in [false, true] {
        for after in 0.. {
            let rule = FaultRule::error(FaultError::Io).on(&[OpKind::Read]).path(".sst").after(after);
            let rule = disk.faults.add(rule);
            let found = read_all(back);
            let hit = rule.hits() > 0;
            disk.faults.clear();
            disk.faults.arm();
            match found {
                Ok(count) => assert_eq!((count, hit), (60, false), "read {after} failed unnoticed"),
                Err(error) => assert!(error.to_string().contains(".sst"), "{error}"),
            }
            if !hit {
                assert!(after > 3, "{after} reads");
                break;
            }
        }
    }
}

/// Writers change two column families in one batch each, while memtables are switched all the time;
/// readers must never see half a batch.
#[test]
fn reads_across_column_families_see_whole_batches() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.write_buffer_size = 16 << 10;
    options.cf.disable_auto_compactions = false;
    let db = disk.open_with(&options);
    let other = db.create_column_family("other", &options.cf).unwrap();
    let both: [&ColumnFamily; 2] = [db.default_column_family(), &other];
    let stop = AtomicBool::new(false);
    let write = |number: u32| {
        let mut batch = WriteBatch::new();
        for cf in both {
            batch.put_cf(cf, "k", number.to_string());
            batch.put_cf(cf, "filler", "x".repeat(500));
        }
        db.write(&batch, &WriteOptions::default()).unwrap();
    };
    write(0);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let (mut rounds, mut last) = (0u32, 0u32);
                    while !stop.load(Ordering::Relaxed) {
                        // Others between the two, so that a switch may well come between them.
                        let [first, last_cf] = both;
                        let mut keys = vec![(first, "k")];
                        keys.extend(std::iter::repeat_n((first, "-"), 200));
                        keys.push((last_cf, "k"));
                        let found = db.multi_get_across(&ReadOptions::default(), &keys);
                        let ends = [&found[0], &found[keys.len() - 1]];
                        let found = ends.map(|value| said(value.clone()).parse::<u32>().unwrap());
                        assert_eq!(found[0], found[1]);
                        assert!(found[0] >= last, "time does not go back");
                        last = found[0];
                        let iters = db.iters_cf(&ReadOptions::default(), &both).unwrap();
                        let values: Vec<_> = iters
                            .into_iter()
                            .map(|mut iter| (iter.seek("k").unwrap(), iter.value().map(<[u8]>::to_vec)))
                            .collect();
                        assert_eq!(values[0], values[1]);
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        (1..1500).for_each(write);
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            assert!(reader.join().unwrap() > 0);
        }
    });
}
