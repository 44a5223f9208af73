//! Range tombstones: what they hide, for whom, and until when.

use crate::disk::{Disk, all, backward, forward, get, refused, rewrite_all, shape, table_entries};
use ironstone::{
    Code, CompactRangeOptions, Db, FlushOptions, ReadOptions, WriteBatch, WriteOptions, merge_operators,
};

const LETTERS: &str = "abcdefghij";

fn put_all(db: &Db, value: &str) {
    for letter in LETTERS.chars() {
        db.put(letter.to_string(), value).unwrap();
    }
}

/// The letters that are there, in every way of asking.
fn letters(db: &Db, options: &ReadOptions) -> String {
    let cf = db.default_column_family();
    let iter = || db.iter_cf(options, cf).unwrap();
    let names = |text: String| text.split(' ').filter_map(|pair| pair.chars().next()).collect::<String>();
    let found = names(forward(iter()));
    let back = names(backward(iter()));
    assert_eq!(back.chars().rev().collect::<String>(), found);
    let keys: Vec<String> = LETTERS.chars().map(String::from).collect();
    let there = |key: &str| found.contains(key);
    for (key, many) in keys.iter().zip(db.multi_get_cf(options, cf, &keys)) {
        assert_eq!(db.get_cf(options, cf, key).unwrap().is_some(), there(key), "get {key}");
        assert_eq!(many.unwrap().is_some(), there(key), "multi_get {key}");
        let mut iter = iter();
        let hit = iter.seek(key).unwrap() && iter.key() == Some(key.as_bytes());
        assert_eq!(hit, there(key), "seek {key}");
        let hit = iter.seek_for_prev(key).unwrap() && iter.key() == Some(key.as_bytes());
        assert_eq!(hit, there(key), "seek_for_prev {key}");
    }
    found
}
fn now(db: &Db) -> String {
    letters(db, &ReadOptions::default())
}

#[test]
fn a_range_hides_what_is_older_wherever_it_lies() {
    // Where the values are, where the tombstone is, where a newer value is: memtable, level 0, below.
    for places in 0..27 {
        let disk = Disk::new();
        let db = disk.open();
        let settle = |place| match place {
            0 => {}
            1 => db.flush().unwrap(),
            _ => rewrite_all(&db),
        };
        put_all(&db, "old");
        settle(places % 3);
        db.delete_range("c", "g").unwrap();
        settle(places / 3 % 3);
        db.put("e", "new").unwrap();
        settle(places / 9);
        assert_eq!(now(&db), "abeghij", "places {places}");
        assert_eq!(get(&db, "e"), "new");
        rewrite_all(&db);
        assert_eq!(now(&db), "abeghij", "places {places}, rewritten");
        drop(db);
        assert_eq!(now(&disk.kill().open()), "abeghij", "places {places}, reopened");
    }
}

#[test]
fn snapshots_see_what_was_deleted_later() {
    let disk = Disk::new();
    let db = disk.open();
    let mut moments = Vec::new();
    for (round, (begin, end)) in [("b", "d"), ("a", "c"), ("f", "j"), ("a", "z")].into_iter().enumerate() {
        put_all(&db, &round.to_string());
        moments.push((db.snapshot(), LETTERS.to_owned()));
        db.delete_range(begin, end).unwrap();
        let left = LETTERS.chars().filter(|letter| {
            let letter = letter.to_string();
            letter.as_str() < begin || letter.as_str() >= end
        });
        moments.push((db.snapshot(), left.collect()));
        if round % 2 == 0 {
            db.flush().unwrap();
        }
    }
    for rewritten in 0..3 {
        for (snapshot, expected) in &moments {
            let at = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() };
            assert_eq!(letters(&db, &at), *expected, "at {snapshot:?}, rewritten {rewritten} times");
        }
        rewrite_all(&db);
    }
    drop(moments);
    rewrite_all(&db);
    rewrite_all(&db);
    assert_eq!((all(&db), table_entries(&db)), (String::new(), 0), "nothing is left to keep");
}

#[test]
fn what_a_range_hides_goes_away_with_it_at_the_bottom() {
    let disk = Disk::new();
    let db = disk.open();
    put_all(&db, "v");
    rewrite_all(&db);
    db.delete_range("b", "i").unwrap();
    db.flush().unwrap();
    assert_eq!(table_entries(&db), 11);
    db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None).unwrap();
    assert_eq!((all(&db), table_entries(&db)), ("a=v i=v j=v".to_owned(), 3));
}

#[test]
fn files_of_a_level_share_a_range_without_overlapping() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.target_file_size_base = 4 << 10;
    options.cf.level_compaction_dynamic_level_bytes = false;
    let db = disk.open_with(&options);
    let key = |number: usize| format!("key{number:06}");
    for number in 0..400 {
        db.put(key(number), "o".repeat(100)).unwrap();
    }
    rewrite_all(&db);
    let before = db.snapshot();
    db.delete_range(key(10), key(390)).unwrap();
    for number in (0..400).step_by(4) {
        db.put(key(number), "n".repeat(100)).unwrap();
    }
    db.flush().unwrap();
    // The snapshot keeps the tombstone: it is cut where the files of the next levels are.
    rewrite_all(&db);
    assert!(shape(&db).iter().any(|&files| files > 3), "{:?}", shape(&db));
    let expected = |deleted: bool| -> Vec<String> {
        (0..400).filter(|n| !deleted || n % 4 == 0 || *n < 10 || *n >= 390).map(key).collect()
    };
    let keys = |options: &ReadOptions| -> Vec<String> {
        let iter = db.iter_cf(options, db.default_column_family()).unwrap();
        iter.entries().map(|entry| String::from_utf8(entry.unwrap().0.into()).unwrap()).collect()
    };
    let at = ReadOptions { snapshot: Some(before.clone()), ..ReadOptions::default() };
    assert_eq!(keys(&ReadOptions::default()), expected(true));
    assert_eq!(keys(&at), expected(false));
    drop((at, before));
    for number in 0..400 {
        let there = db.get(key(number)).unwrap().is_some();
        assert_eq!(there, expected(true).contains(&key(number)), "{number}");
    }
    rewrite_all(&db);
    assert_eq!(keys(&ReadOptions::default()), expected(true));
    assert_eq!(table_entries(&db), expected(true).len() as u64);
}

#[test]
fn in_a_batch_the_order_counts() {
    let disk = Disk::new();
    let db = disk.open();
    let mut batch = WriteBatch::new();
    batch.put("b", "1");
    batch.delete_range("a", "d");
    batch.put("c", "2");
    db.write(&batch, &WriteOptions::default()).unwrap();
    assert_eq!(all(&db), "c=2");
}

#[test]
fn merges_begin_anew_above_a_range() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.merge_operator = Some(merge_operators::string_append(","));
    let db = disk.open_with(&options);
    for flush in [false, true] {
        db.merge("b", "1").unwrap();
        db.delete_range("a", "c").unwrap();
        if flush {
            db.flush().unwrap();
        }
        db.merge("b", "2").unwrap();
        db.merge("b", "3").unwrap();
        assert_eq!(all(&db), "b=2,3");
        rewrite_all(&db);
        assert_eq!(all(&db), "b=2,3");
    }
}

#[test]
fn empty_ranges_do_nothing_and_reversed_ones_are_refused() {
    let disk = Disk::new();
    let db = disk.open();
    put_all(&db, "v");
    db.delete_range("c", "c").unwrap();
    refused(db.delete_range("d", "c"), Code::InvalidArgument, "the end comes before the beginning");
    assert_eq!(now(&db), LETTERS);
    db.flush().unwrap();
    assert_eq!(table_entries(&db), 10);
}

#[test]
fn a_range_alone_makes_a_table() {
    let disk = Disk::new();
    let db = disk.open();
    put_all(&db, "v");
    db.flush().unwrap();
    db.delete_range("a", "f").unwrap();
    db.flush_cf(&FlushOptions { wait: true, ..FlushOptions::default() }, db.default_column_family()).unwrap();
    assert_eq!(shape(&db), [2]);
    assert_eq!(now(&db), "fghij");
}

/// A scan of a million deleted keys must not look at each of them.
#[test]
fn a_scan_skips_what_a_range_hides() {
    let disk = Disk::new();
    let db = disk.open();
    for number in 0..20_000 {
        db.put(format!("{number:06}"), "v").unwrap();
    }
    db.flush().unwrap();
    rewrite_all(&db);
    db.delete_range("000010", "019990").unwrap();
    for turn in 0..2 {
        let mut iter = db.iter().unwrap();
        let mut count = 0;
        let mut more = iter.seek_to_first().unwrap();
        while more {
            count += 1;
            more = iter.next().unwrap();
        }
        assert_eq!(count, 20, "turn {turn}");
        db.flush().unwrap();
    }
}
