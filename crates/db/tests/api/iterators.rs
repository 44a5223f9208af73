//! Iterators: order, bounds, prefixes, versions, tombstones, and what they hold on to.

use crate::disk::{Disk, all, backward, forward, fresh, here, rewrite_all};
use ironstone::vfs::OpKind;
use ironstone::{
    Code, Db, DbIterator, FlushOptions, ReadOptions, ReadTier, Snapshot, WriteOptions, slice_transform,
};

/// Puts letters, one to a memtable, a level 0 table or a table below, in turns.
fn spread(db: &Db) {
    for (at, key) in ["d", "a", "g", "b", "e", "h", "c", "f"].into_iter().enumerate() {
        db.put(key, at.to_string()).unwrap();
        match at {
            2 => {
                db.flush().unwrap();
                rewrite_all(db);
            }
            4 => db.flush().unwrap(),
            _ => {}
        }
    }
}
const SPREAD: &str = "a=1 b=3 c=6 d=0 e=4 f=7 g=2 h=5";

fn iter_with(db: &Db, change: impl FnOnce(&mut ReadOptions)) -> DbIterator {
    let mut options = ReadOptions::default();
    change(&mut options);
    db.iter_cf(&options, db.default_column_family()).unwrap()
}

fn reversed(text: &str) -> String {
    let mut parts: Vec<_> = text.split(' ').collect();
    parts.reverse();
    parts.join(" ")
}

#[test]
fn memtables_and_all_levels_are_merged_in_order() {
    let (_disk, db) = fresh();
    spread(&db);
    assert_eq!(all(&db), SPREAD);
    assert_eq!(backward(db.iter().unwrap()), reversed(SPREAD));
}

#[test]
fn entries_begin_where_the_iterator_stands_or_at_the_first() {
    let (_disk, db) = fresh();
    spread(&db);
    let keys = |iter: DbIterator| {
        let keys = iter.entries().map(|entry| String::from_utf8_lossy(&entry.unwrap().0).into_owned());
        keys.collect::<String>()
    };
    assert_eq!(keys(db.iter().unwrap()), "abcdefgh");
    let mut iter = db.iter().unwrap();
    iter.seek("f").unwrap();
    assert_eq!(keys(iter), "fgh");
    let mut iter = db.iter().unwrap();
    iter.seek("x").unwrap();
    assert_eq!(keys(iter), "");
}

#[test]
fn an_empty_database_has_no_place_to_stand() {
    let (_disk, db) = fresh();
    let mut iter = db.iter().unwrap();
    assert!(!iter.valid());
    assert!(!iter.seek_to_first().unwrap());
    assert!(!iter.seek_to_last().unwrap());
    assert!(!iter.seek("x").unwrap());
    assert!(!iter.seek_for_prev("x").unwrap());
    assert!(!iter.next().unwrap());
    assert!(!iter.prev().unwrap());
    assert_eq!((iter.key(), iter.value()), (None, None));
    iter.status().unwrap();
}

#[test]
fn seeks_land_on_the_nearest_key() {
    let (_disk, db) = fresh();
    for key in ["b", "d", "f"] {
        db.put(key, "").unwrap();
    }
    for _ in 0..2 {
        let mut iter = db.iter().unwrap();
        let mut seek = |key: &str| (iter.seek(key).unwrap(), here(&iter)).1;
        let found: Vec<_> = ["a", "b", "c", "f", "g"].map(&mut seek).to_vec();
        assert_eq!(found, ["b=", "b=", "d=", "f=", "-"]);
        let mut before = |key: &str| (iter.seek_for_prev(key).unwrap(), here(&iter)).1;
        let found: Vec<_> = ["a", "b", "c", "f", "g"].map(&mut before).to_vec();
        assert_eq!(found, ["-", "b=", "b=", "f=", "f="]);
        db.flush().unwrap();
    }
}

#[test]
fn turning_round_at_every_key_works() {
    let (_disk, db) = fresh();
    spread(&db);
    let keys: Vec<_> = SPREAD.split(' ').collect();
    let mut iter = db.iter().unwrap();
    for at in 0..keys.len() {
        iter.seek(&keys[at][..1]).unwrap();
        iter.prev().unwrap();
        assert_eq!(here(&iter), if at == 0 { "-" } else { keys[at - 1] });
        if at > 0 {
            iter.next().unwrap();
            assert_eq!(here(&iter), keys[at]);
            iter.next().unwrap();
            assert_eq!(here(&iter), *keys.get(at + 1).unwrap_or(&"-"));
        }
        iter.seek_for_prev(&keys[at][..1]).unwrap();
        iter.next().unwrap();
        assert_eq!(here(&iter), *keys.get(at + 1).unwrap_or(&"-"));
    }
}

#[test]
fn at_either_end_an_iterator_stays_there_until_it_seeks() {
    let (_disk, db) = fresh();
    spread(&db);
    let mut iter = db.iter().unwrap();
    iter.seek_to_last().unwrap();
    assert!(!iter.next().unwrap());
    assert!(!iter.next().unwrap());
    assert!(!iter.prev().unwrap(), "as in RocksDB, there is no way back but a seek");
    iter.seek("c").unwrap();
    assert_eq!(here(&iter), "c=6");
}

#[test]
fn the_lower_bound_is_in_and_the_upper_bound_is_out() {
    let (_disk, db) = fresh();
    spread(&db);
    let bounded = || {
        iter_with(&db, |options| {
            options.iterate_lower_bound = Some(b"c".to_vec());
            options.iterate_upper_bound = Some(b"f".to_vec());
        })
    };
    assert_eq!(forward(bounded()), "c=6 d=0 e=4");
    assert_eq!(backward(bounded()), "e=4 d=0 c=6");
    let mut iter = bounded();
    assert!(iter.seek("a").unwrap());
    assert_eq!(here(&iter), "c=6");
    assert!(!iter.prev().unwrap());
    assert!(!iter.seek("f").unwrap());
    assert!(!iter.seek("z").unwrap());
    assert!(iter.seek_for_prev("z").unwrap());
    assert_eq!(here(&iter), "e=4");
    assert!(!iter.next().unwrap());
    assert!(!iter.seek_for_prev("b").unwrap());
    assert!(iter.seek_for_prev("c").unwrap());
}

#[test]
fn bounds_that_cross_leave_nothing() {
    let (_disk, db) = fresh();
    spread(&db);
    let bounded = || {
        iter_with(&db, |options| {
            options.iterate_lower_bound = Some(b"f".to_vec());
            options.iterate_upper_bound = Some(b"c".to_vec());
        })
    };
    assert_eq!((forward(bounded()), backward(bounded())), (String::new(), String::new()));
    assert!(!bounded().seek("d").unwrap());
    assert!(!bounded().seek_for_prev("d").unwrap());
}

#[test]
fn an_upper_bound_cuts_between_versions_and_tombstones() {
    let (_disk, db) = fresh();
    for round in 0..3 {
        for key in ["a", "b", "c"] {
            db.put(key, round.to_string()).unwrap();
        }
    }
    db.delete("b").unwrap();
    let up_to = |key: &str| {
        let key = key.as_bytes().to_vec();
        let iter = || iter_with(&db, |options| options.iterate_upper_bound = Some(key.clone()));
        (forward(iter()), backward(iter()))
    };
    assert_eq!(up_to("c"), ("a=2".to_owned(), "a=2".to_owned()));
    assert_eq!(up_to("b"), ("a=2".to_owned(), "a=2".to_owned()));
    assert_eq!(up_to("d"), ("a=2 c=2".to_owned(), "c=2 a=2".to_owned()));
}

fn with_prefixes() -> (Disk, Db) {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.prefix_extractor = Some(slice_transform::fixed_prefix(2));
    options.cf.table.filter_policy = Some(ironstone::FilterPolicy::bloom(10.0));
    options.cf.table.whole_key_filtering = false;
    let db = disk.open_with(&options);
    for key in ["aa1", "aa2", "ab1", "ac1", "ac2", "x"] {
        db.put(key, "").unwrap();
    }
    (disk, db)
}

#[test]
fn an_iterator_may_be_kept_to_the_prefix_of_its_seek() {
    let (_disk, db) = with_prefixes();
    for when in ["in the memtable", "in a table"] {
        let mut iter = iter_with(&db, |options| options.prefix_same_as_start = true);
        let mut from = |key: &str| {
            let mut found = Vec::new();
            let mut more = iter.seek(key).unwrap();
            while more {
                found.push(here(&iter));
                more = iter.next().unwrap();
            }
            found.join(" ")
        };
        assert_eq!(from("aa"), "aa1= aa2=", "{when}");
        assert_eq!(from("aa2"), "aa2=", "{when}");
        assert_eq!(from("ab"), "ab1=", "{when}");
        assert_eq!(from("ab2"), "", "{when}");
        assert_eq!(from("ad"), "", "{when}");
        iter.seek("ac2").unwrap();
        assert!(iter.prev().unwrap());
        assert_eq!(here(&iter), "ac1=", "{when}");
        assert!(!iter.prev().unwrap(), "{when}");
        db.flush().unwrap();
    }
}

/// Behind the last key of a prefix, the filter that is asked may be the one of the next keys.
#[test]
fn a_seek_back_within_a_prefix_finds_its_last_key_whatever_the_filter_is_cut_into() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.prefix_extractor = Some(slice_transform::fixed_prefix(3));
    let table = &mut options.cf.table;
    table.filter_policy = Some(ironstone::FilterPolicy::bloom(10.0));
    table.index_type = ironstone::IndexType::TwoLevel;
    table.partition_filters = true;
    (table.block_size, table.metadata_block_size) = (64, 64);
    let db = disk.open_with(&options);
    for prefix in 0..150 {
        for number in 0..3 {
            db.put(format!("{prefix:03}{number}"), "").unwrap();
        }
    }
    db.flush().unwrap();
    let mut iter = iter_with(&db, |options| options.prefix_same_as_start = true);
    for prefix in 0..150 {
        assert!(iter.seek_for_prev(format!("{prefix:03}~")).unwrap(), "{prefix}");
        assert_eq!(here(&iter), format!("{prefix:03}2="));
        assert!(iter.seek(format!("{prefix:03}")).unwrap(), "{prefix}");
        assert_eq!(here(&iter), format!("{prefix:03}0="));
    }
}

#[test]
fn in_total_order_an_iterator_crosses_prefixes() {
    let (_disk, db) = with_prefixes();
    db.flush().unwrap();
    let mut iter = iter_with(&db, |options| options.total_order_seek = true);
    iter.seek("ab2").unwrap();
    assert_eq!(here(&iter), "ac1=");
    assert_eq!(forward(iter), "aa1= aa2= ab1= ac1= ac2= x=");
    let mut iter = iter_with(&db, |options| options.total_order_seek = true);
    iter.seek_for_prev("ab0").unwrap();
    assert_eq!(here(&iter), "aa2=");
}

#[test]
fn many_versions_of_one_key_show_one() {
    let (_disk, db) = fresh();
    db.put("a", "first").unwrap();
    let mut middle = None;
    for version in 0..500 {
        db.put("k", version.to_string()).unwrap();
        if version == 250 {
            middle = Some(db.snapshot());
        }
    }
    db.put("z", "last").unwrap();
    let then = || iter_with(&db, |options| options.snapshot = middle.clone());
    for when in ["in the memtable", "in a table"] {
        assert_eq!(all(&db), "a=first k=499 z=last", "{when}");
        assert_eq!(backward(db.iter().unwrap()), "z=last k=499 a=first", "{when}");
        assert_eq!(forward(then()), "a=first k=250", "{when}");
        assert_eq!(backward(then()), "k=250 a=first", "{when}");
        db.flush().unwrap();
    }
}

#[test]
fn tombstones_are_passed_over_however_many() {
    let (_disk, db) = fresh();
    db.put("a", "1").unwrap();
    db.put("z", "1").unwrap();
    for number in 0..2000 {
        db.put(format!("k{number:05}"), "").unwrap();
    }
    db.flush().unwrap();
    for number in 0..2000 {
        let key = format!("k{number:05}");
        if number % 2 == 0 { db.delete(key).unwrap() } else { db.single_delete(key).unwrap() }
    }
    for when in ["tombstones in the memtable", "tombstones in a table"] {
        assert_eq!(all(&db), "a=1 z=1", "{when}");
        assert_eq!(backward(db.iter().unwrap()), "z=1 a=1", "{when}");
        let mut iter = db.iter().unwrap();
        iter.seek("b").unwrap();
        assert_eq!(here(&iter), "z=1", "{when}");
        iter.seek_for_prev("k01000").unwrap();
        assert_eq!(here(&iter), "a=1", "{when}");
        db.flush().unwrap();
    }
}

#[test]
fn an_iterator_shows_the_moment_of_its_creation() {
    let (_disk, db) = fresh();
    db.put("a", "1").unwrap();
    db.put("b", "1").unwrap();
    let iter = db.iter().unwrap();
    db.put("a", "2").unwrap();
    db.delete("b").unwrap();
    db.put("c", "2").unwrap();
    assert_eq!(forward(iter), "a=1 b=1");
    assert_eq!(all(&db), "a=2 c=2");
}

#[test]
fn it_stays_usable_after_flush_compaction_drop_and_close() {
    let (disk, db) = fresh();
    let cf = db.create_column_family("other", &disk.options().cf).unwrap();
    let put = |key: &str| db.put_cf(&WriteOptions::default(), &cf, key, "").unwrap();
    let flush = || db.flush_cf(&FlushOptions::default(), &cf).unwrap();
    ["a", "b"].into_iter().for_each(put);
    flush();
    ["c", "d"].into_iter().for_each(put);
    let mut iter = db.iter_cf(&ReadOptions::default(), &cf).unwrap();
    iter.seek_to_first().unwrap();
    assert_eq!(here(&iter), "a=");
    flush();
    iter.next().unwrap();
    assert_eq!(here(&iter), "b=");
    db.compact_range(&ironstone::CompactRangeOptions::default(), &cf, None, None).unwrap();
    iter.next().unwrap();
    assert_eq!(here(&iter), "c=");
    db.drop_column_family(&cf).unwrap();
    iter.next().unwrap();
    assert_eq!(here(&iter), "d=");
    db.close().unwrap();
    iter.prev().unwrap();
    assert_eq!(here(&iter), "c=");
    drop(db);
    assert_eq!(forward(iter), "a= b= c= d=");
}

#[test]
fn keys_may_be_any_bytes() {
    let (_disk, db) = fresh();
    let keys: Vec<Vec<u8>> = vec![
        vec![],
        vec![0],
        vec![0, 0],
        vec![0, 1],
        b"a".to_vec(),
        b"a\0".to_vec(),
        vec![b'x'; 10_000],
        vec![0xff],
        vec![0xff; 8],
        vec![0xff; 9],
    ];
    for (at, key) in keys.iter().enumerate().rev() {
        db.put(key, vec![at as u8; at * 700]).unwrap();
    }
    for _ in 0..2 {
        let found: Vec<_> = db.iter().unwrap().entries().collect();
        assert_eq!(found.len(), keys.len());
        for (at, entry) in found.into_iter().enumerate() {
            let (key, value) = entry.unwrap();
            assert_eq!((&*key, value.len()), (&*keys[at], at * 700));
        }
        for key in &keys {
            let mut iter = db.iter().unwrap();
            assert!(iter.seek(key).unwrap());
            assert_eq!(iter.key(), Some(&key[..]));
            assert!(iter.seek_for_prev(key).unwrap());
            assert_eq!(iter.key(), Some(&key[..]));
        }
        db.flush().unwrap();
    }
}

#[test]
fn the_ways_to_read_change_nothing_about_what_is_read() {
    let (_disk, db) = fresh();
    for number in 0..3000 {
        db.put(format!("{number:05}"), "v".repeat(number % 50)).unwrap();
        if number % 1000 == 999 {
            db.flush().unwrap();
        }
    }
    let expected = all(&db);
    let ways: [fn(&mut ReadOptions); 4] = [
        |options| options.fill_cache = false,
        |options| options.verify_checksums = false,
        |options| options.readahead_size = 64 << 10,
        |options| options.async_io = false,
    ];
    for way in ways {
        assert_eq!(forward(iter_with(&db, way)), expected);
        assert_eq!(backward(iter_with(&db, way)), reversed(&expected));
    }
}

#[test]
fn iterators_over_several_column_families_show_one_moment() {
    let (disk, db) = fresh();
    let other = db.create_column_family("other", &disk.options().cf).unwrap();
    db.put("k", "1").unwrap();
    db.put_cf(&WriteOptions::default(), &other, "k", "1").unwrap();
    let iters = db.iters_cf(&ReadOptions::default(), &[db.default_column_family(), &other]).unwrap();
    db.put("k", "2").unwrap();
    db.put_cf(&WriteOptions::default(), &other, "k", "2").unwrap();
    let found: Vec<_> = iters.into_iter().map(forward).collect();
    assert_eq!(found, ["k=1", "k=1"]);
}

#[test]
fn an_iterator_over_memtables_only_passes_over_tables_and_what_they_delete() {
    let (disk, db) = fresh();
    let memtables = |db: &Db| iter_with(db, |options| options.read_tier = ReadTier::Memtable);
    spread(&db);
    assert_eq!(forward(memtables(&db)), "c=6 f=7 h=5");
    assert_eq!(backward(memtables(&db)), "h=5 f=7 c=6");
    let mut iterator = memtables(&db);
    let reads = disk.faults.count(OpKind::Read);
    iterator.seek(b"d").unwrap();
    assert_eq!(iterator.key(), Some(&b"f"[..]));
    iterator.seek_for_prev(b"e").unwrap();
    assert_eq!((iterator.key(), disk.faults.count(OpKind::Read)), (Some(&b"c"[..]), reads));

    // What is deleted in a memtable is not there, whatever a table has.
    db.delete("c").unwrap();
    db.delete("a").unwrap();
    db.delete_range("e", "g").unwrap();
    assert_eq!(forward(memtables(&db)), "h=5");
    assert_eq!(all(&db), "b=3 d=0 g=2 h=5");
    let before = db.snapshot();
    db.put("e", "8").unwrap();
    let at = |snapshot: &Snapshot| {
        iter_with(&db, |options| {
            options.read_tier = ReadTier::Memtable;
            options.snapshot = Some(snapshot.clone());
        })
    };
    assert_eq!((forward(memtables(&db)), forward(at(&before))), ("e=8 h=5".into(), "h=5".into()));

    db.flush().unwrap();
    assert_eq!(forward(memtables(&db)), "");
    // The range tombstone is in a table now.
    db.put("f", "9").unwrap();
    assert_eq!(forward(memtables(&db)), "f=9");
}

#[test]
fn a_move_gives_up_after_too_many_entries() {
    for flushed in [false, true] {
        let disk = Disk::new();
        let mut settings = disk.options();
        settings.cf.min_tombstones_for_range_conversion = 0;
        let db = disk.open_with(&settings);
        for number in 0..300 {
            db.put(format!("key{number:03}"), "v").unwrap();
        }
        let before = db.snapshot();
        for number in (100..200).chain((200..300).step_by(2)) {
            db.delete(format!("key{number:03}")).unwrap();
        }
        if flushed {
            db.flush().unwrap();
        }
        let iter = |max_skippable_internal_keys| {
            let options = ReadOptions { max_skippable_internal_keys, ..ReadOptions::default() };
            db.iter_cf(&options, db.default_column_family()).unwrap()
        };
        let mut few = iter(20);
        let mut count = u32::from(few.seek_to_first().unwrap());
        let error = loop {
            match few.next() {
                Ok(more) => count += u32::from(more),
                Err(error) => break error,
            }
        };
        assert_eq!((error.code(), count), (Code::Incomplete, 100), "{error}");
        assert!(error.to_string().contains("Too many internal keys skipped"));
        assert!(!few.valid() && few.status().is_err());
        assert_eq!(few.seek("key150").unwrap_err().code(), Code::Incomplete);
        // From there on no gap is that large.
        assert!(few.seek("key201").unwrap());
        let mut rest = 1;
        while few.next().unwrap() {
            rest += 1;
        }
        assert_eq!(rest, 50);
        few.status().unwrap();
        // Backward.
        assert!(few.seek_to_last().unwrap());
        let mut rest = 1;
        let error = loop {
            match few.prev() {
                Ok(more) => rest += u32::from(more),
                Err(error) => break error,
            }
        };
        assert_eq!((error.code(), rest), (Code::Incomplete, 50), "{error}");
        assert_eq!(few.seek_for_prev("key180").unwrap_err().code(), Code::Incomplete);
        assert!(few.seek_for_prev("key050").unwrap());
        // 101 tombstones in a row, with the values that they hide; backward also the entry stood on.
        assert_eq!(forward(iter(202)), forward(iter(0)));
        assert_eq!(backward(iter(203)), backward(iter(0)));
        // What is hidden by nothing is not passed over.
        let past = ReadOptions {
            snapshot: Some(before.clone()),
            max_skippable_internal_keys: 2,
            ..ReadOptions::default()
        };
        let found = db.iter_cf(&past, db.default_column_family()).unwrap();
        assert_eq!(found.entries().filter(|entry| entry.is_ok()).count(), 300);
    }
}
