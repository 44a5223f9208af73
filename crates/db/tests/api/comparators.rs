//! Keys in an order of the application's own.

use crate::disk::{Disk, all, backward, get, refused, rewrite_all};
use ironstone::{Code, Comparator, Db, Options, UserComparator, WriteBatch, WriteOptions};
use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Numbers by value, whatever their length: "007" and "7" are one key.
struct ByNumber {
    /// Whether it says so.
    admits_it: bool,
}

fn parse(key: &[u8]) -> u64 {
    String::from_utf8_lossy(key).parse().unwrap_or(u64::MAX)
}

impl Comparator for ByNumber {
    fn name(&self) -> &str {
        "test.ByNumber"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        parse(a).cmp(&parse(b))
    }
    fn different_bytes_may_be_equal(&self) -> bool {
        self.admits_it
    }
}

fn open(disk: &Disk) -> (Options, Db) {
    open_by(disk, ByNumber { admits_it: true })
}

fn open_by(disk: &Disk, order: ByNumber) -> (Options, Db) {
    let mut options = disk.options();
    options.cf.comparator = UserComparator::Custom(Arc::new(order));
    options.cf.table.filter_policy = Some(ironstone::FilterPolicy::bloom(10.0));
    options.cf.table.block_size = 64;
    let db = disk.open_with(&options);
    (options, db)
}

#[test]
fn keys_are_kept_and_found_in_that_order() {
    let disk = Disk::new();
    let (options, db) = open(&disk);
    for number in [10, 9, 100, 1, 30, 2, 77, 8] {
        db.put(number.to_string(), "v").unwrap();
        if number == 1 {
            db.flush().unwrap();
        }
    }
    let expected = "1=v 2=v 8=v 9=v 10=v 30=v 77=v 100=v";
    assert_eq!(all(&db), expected);
    db.flush().unwrap();
    rewrite_all(&db);
    assert_eq!(all(&db), expected);
    let mut iter = db.iter().unwrap();
    iter.seek("11").unwrap();
    assert_eq!(iter.key(), Some(&b"30"[..]));
    iter.seek_for_prev("29").unwrap();
    assert_eq!(iter.key(), Some(&b"10"[..]));
    let mut reversed: Vec<_> = expected.split(' ').collect();
    reversed.reverse();
    assert_eq!(backward(db.iter().unwrap()), reversed.join(" "));
    drop(iter);
    drop(db);
    assert_eq!(all(&disk.open_with(&options)), expected);
}

#[test]
fn different_bytes_may_be_one_key() {
    let disk = Disk::new();
    let (_, db) = open(&disk);
    db.put("7", "seven").unwrap();
    for when in ["in the memtable", "in a table"] {
        assert_eq!(get(&db, "007"), "seven", "{when}");
        let found = db.multi_get(&["07", "8"]);
        assert!(found[0].as_ref().unwrap().is_some(), "{when}");
        assert!(db.key_may_exist("0007"), "{when}");
        db.flush().unwrap();
    }
    db.put("007", "bond").unwrap();
    assert_eq!((get(&db, "7"), db.iter().unwrap().entries().count()), ("bond".to_owned(), 1));
    rewrite_all(&db);
    assert_eq!((get(&db, "7"), db.iter().unwrap().entries().count()), ("bond".to_owned(), 1));
    db.delete("0000007").unwrap();
    assert_eq!(get(&db, "7"), "-");
    rewrite_all(&db);
    assert_eq!(all(&db), "");
}

#[test]
fn a_filter_over_bytes_is_used_only_where_the_bytes_are_the_key() {
    let disk = Disk::new();
    let (_, db) = open_by(&disk, ByNumber { admits_it: false });
    db.put("7", "seven").unwrap();
    db.flush().unwrap();
    assert_eq!(get(&db, "007"), "-", "the filter knows other bytes");
    drop(db);
    let (_, db) = open(&disk);
    assert_eq!((get(&db, "7"), get(&db, "007")), ("seven".to_owned(), "seven".to_owned()));
}

#[test]
fn a_database_is_not_opened_in_another_order() {
    let disk = Disk::new();
    let (options, db) = open(&disk);
    db.put("1", "v").unwrap();
    db.flush().unwrap();
    drop(db);
    refused(disk.try_open(&disk.options()), Code::InvalidArgument, "test.ByNumber");
    assert_eq!(all(&disk.open_with(&options)), "1=v");
}

#[test]
fn the_reverse_of_bytes_is_built_in() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.comparator = UserComparator::ReverseBytewise;
    let db = disk.open_with(&options);
    for key in ["a", "ab", "b", ""] {
        db.put(key, "").unwrap();
    }
    for _ in 0..2 {
        assert_eq!(all(&db), "b= ab= a= =");
        let mut iter = db.iter().unwrap();
        iter.seek("aa").unwrap();
        assert_eq!(iter.key(), Some(&b"a"[..]));
        db.flush().unwrap();
    }
}

/// Bytewise, but panics on the key "panic" while told to.
struct Panicking(AtomicBool);

impl Comparator for Panicking {
    fn name(&self) -> &str {
        "test.Panicking"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let panics = self.0.load(Relaxed) && [a, b].contains(&&b"panic"[..]);
        assert!(!panics, "no order for it");
        a.cmp(b)
    }
}

/// Opens a database in whose order there is "m", and no place for "panic" until the flag is taken back.
fn open_panicking(disk: &Disk) -> (Arc<Panicking>, Options, Db) {
    let order = Arc::new(Panicking(AtomicBool::new(false)));
    let mut options = disk.options();
    options.cf.comparator = UserComparator::Custom(order.clone());
    let db = disk.open_with(&options);
    db.put("m", "1").unwrap();
    order.0.store(true, Relaxed);
    (order, options, db)
}

#[test]
fn a_comparator_that_panics_in_a_write_stops_writes_and_nobody_waits_for_it() {
    for sync in [false, true] {
        let disk = Disk::new();
        let (order, options, db) = open_panicking(&disk);
        let mut batch = WriteBatch::new();
        batch.put("a", "1");
        batch.put("panic", "1");
        let write = WriteOptions { sync, ..WriteOptions::default() };
        let message = "panic while a write was applied, which may be there in part: no order for it";
        refused(db.write(&batch, &write), Code::IoError, message);
        std::thread::scope(|scope| {
            scope.spawn(|| refused(db.put("b", "1"), Code::IoError, message));
        });
        refused(db.flush(), Code::IoError, message);
        refused(db.resume(), Code::IoError, message);
        assert!(disk.files(".sst").is_empty());
        order.0.store(false, Relaxed);
        drop(db);
        let db = disk.open_with(&options);
        assert_eq!(all(&db), "a=1 m=1 panic=1", "it was in the log");
        db.put("b", "1").unwrap();
    }
}
