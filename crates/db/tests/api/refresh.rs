//! Iterators that are brought up to date: refreshed ones and tailing ones.

use crate::disk::{Disk, backward, forward, fresh, here, refused, rewrite_all};
use ironstone::{
    Code, ColumnFamily, Db, DbIterator, Options, ReadOptions, SstFileReader, WriteOptions, merge_operators,
    slice_transform,
};
use std::sync::atomic::{AtomicBool, Ordering};

fn iter_with(db: &Db, change: impl FnOnce(&mut ReadOptions)) -> DbIterator {
    let mut options = ReadOptions::default();
    change(&mut options);
    db.iter_cf(&options, db.default_column_family()).unwrap()
}
fn tailing(db: &Db) -> DbIterator {
    iter_with(db, |options| options.tailing = true)
}
fn put(db: &Db, keys: &str, value: &str) {
    keys.chars().for_each(|key| db.put(key.to_string(), value).unwrap());
}
/// Everything from `target` on.
fn from(iter: &mut DbIterator, target: &str) -> String {
    let more = iter.seek(target).unwrap();
    rest(iter, more)
}
fn first(iter: &mut DbIterator) -> String {
    let more = iter.seek_to_first().unwrap();
    rest(iter, more)
}
fn rest(iter: &mut DbIterator, mut more: bool) -> String {
    let mut found = Vec::new();
    while more {
        found.push(here(iter));
        more = iter.next().unwrap();
    }
    found.join(" ")
}

#[test]
fn a_refreshed_iterator_shows_what_was_written_since() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.merge_operator = Some(merge_operators::string_append(","));
    let db = disk.open_with(&options);
    put(&db, "abcd", "1");
    let mut iter = db.iter().unwrap();
    assert!(iter.seek("b").unwrap());
    db.put("a", "2").unwrap();
    db.delete("b").unwrap();
    db.merge("c", "2").unwrap();
    db.put("e", "2").unwrap();
    assert_eq!(first(&mut iter), "a=1 b=1 c=1 d=1");
    assert!(iter.seek("b").unwrap());
    iter.refresh().unwrap();
    assert!(!iter.valid() && !iter.next().unwrap(), "it stands nowhere");
    assert_eq!(first(&mut iter), "a=2 c=1,2 d=1 e=2");
    // Range deletions are not among the entries.
    db.delete_range("c", "e").unwrap();
    assert_eq!(first(&mut iter), "a=2 c=1,2 d=1 e=2");
    iter.refresh().unwrap();
    assert_eq!(first(&mut iter), "a=2 e=2");
    db.put("d", "3").unwrap();
    iter.refresh().unwrap();
    assert_eq!(first(&mut iter), "a=2 d=3 e=2");
    assert_eq!(backward(iter), "e=2 d=3 a=2");
}

/// At a snapshot, in both directions, while everything is written anew below it.
#[test]
fn an_iterator_that_refreshes_by_itself_shows_its_snapshot_and_lets_go_of_the_rest() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.merge_operator = Some(merge_operators::string_append(","));
    let db = disk.open_with(&options);
    put(&db, "abcdef", "1");
    db.delete("b").unwrap();
    db.merge("c", "2").unwrap();
    db.flush().unwrap();
    let change_everything = || {
        put(&db, "aabcdefg", "9");
        db.delete("d").unwrap();
        db.flush().unwrap();
        rewrite_all(&db);
        put(&db, "f", "10");
    };
    let snapshot = db.snapshot();
    let at = |refreshes: bool| {
        let mut iter = iter_with(&db, |options| {
            options.snapshot = Some(snapshot.clone());
            options.auto_refresh_iterator_with_snapshot = refreshes;
        });
        assert!(iter.seek("b").unwrap());
        iter
    };
    let mut iter = at(true);
    assert_eq!(here(&iter), "c=1,2");
    change_everything();
    assert!(iter.next().unwrap() && here(&iter) == "d=1");
    assert!(iter.prev().unwrap() && here(&iter) == "c=1,2");
    disk.wait_until("nothing old is kept", || disk.files(".sst").len() == 1);
    for expected in ["d=1", "e=1", "f=1"] {
        change_everything();
        assert!(iter.next().unwrap());
        assert_eq!(here(&iter), expected);
    }
    for expected in ["e=1", "d=1", "c=1,2", "a=1"] {
        change_everything();
        assert!(iter.prev().unwrap());
        assert_eq!(here(&iter), expected);
    }
    change_everything();
    assert!(!iter.prev().unwrap());
    change_everything();
    assert!(iter.seek_to_last().unwrap());
    assert_eq!(here(&iter), "f=1");
    change_everything();
    assert!(iter.seek_for_prev("bb").unwrap());
    assert_eq!(here(&iter), "a=1");
    drop(iter);

    // Refreshed to no snapshot, it stays at its moment.
    let mut iter = at(true);
    iter.refresh().unwrap();
    assert!(iter.seek("b").unwrap());
    assert_eq!(here(&iter), "b=9");
    db.put("bb", "11").unwrap();
    change_everything();
    assert!(iter.next().unwrap());
    assert_eq!(here(&iter), "c=9");
    drop(iter);

    // Without it, tables stay for as long as the iterator.
    let iter = at(false);
    change_everything();
    change_everything();
    assert!(disk.files(".sst").len() > 1);
    drop(iter);
    // The database may be closed before.
    let mut iter = at(true);
    change_everything();
    drop(db);
    assert!(iter.next().unwrap());
    assert_eq!(here(&iter), "d=1");
}

#[test]
fn a_refreshed_iterator_lets_go_of_what_it_read() {
    let (disk, db) = fresh();
    put(&db, "ab", "1");
    db.flush().unwrap();
    let mut iter = db.iter().unwrap();
    iter.seek_to_first().unwrap();
    put(&db, "bc", "2");
    db.flush().unwrap();
    rewrite_all(&db);
    assert!(disk.files(".sst").len() > 1, "the iterator keeps the table that it reads");
    iter.refresh().unwrap();
    disk.wait_until("the old tables are removed", || disk.files(".sst").len() == 1);
    assert_eq!(forward(iter), "a=1 b=2 c=2");
}

#[test]
fn an_iterator_goes_to_a_snapshot_and_back() {
    let (disk, db) = fresh();
    put(&db, "ab", "1");
    let old = db.snapshot();
    put(&db, "bc", "2");
    let mut iter = db.iter().unwrap();
    put(&db, "cd", "3");
    for when in ["in the memtable", "in tables"] {
        iter.refresh_at(&old).unwrap();
        assert_eq!(first(&mut iter), "a=1 b=1", "{when}");
        iter.refresh().unwrap();
        assert_eq!(first(&mut iter), "a=1 b=2 c=3 d=3", "{when}");
        db.flush().unwrap();
        rewrite_all(&db);
    }
    iter.refresh_at(&old).unwrap();
    drop(old);
    let held = || db.int_property("rocksdb.num-snapshots").unwrap();
    assert_eq!(held(), 1, "the iterator keeps its snapshot");
    rewrite_all(&db);
    assert_eq!(first(&mut iter), "a=1 b=1");

    let other = fresh().1;
    assert!(iter.seek("b").unwrap());
    refused(iter.refresh_at(&other.snapshot()), Code::InvalidArgument, "another database");
    assert_eq!((here(&iter).as_str(), held()), ("b=1", 1), "nothing has changed");
    iter.refresh().unwrap();
    assert_eq!(held(), 0);
    drop(disk);
}

#[test]
fn what_cannot_be_refreshed_says_so_and_stays_as_it_is() {
    let (disk, db) = fresh();
    let cf = db.create_column_family("other", &disk.options().cf).unwrap();
    let put_in = |cf: &ColumnFamily| db.put_cf(&WriteOptions::default(), cf, "a", "1").unwrap();
    put_in(&cf);
    put_in(db.default_column_family());
    let mut of_dropped = db.iter_cf(&ReadOptions::default(), &cf).unwrap();
    of_dropped.seek_to_first().unwrap();
    db.drop_column_family(&cf).unwrap();
    refused(of_dropped.refresh(), Code::ColumnFamilyDropped, "other");
    assert_eq!(here(&of_dropped), "a=1");

    db.flush().unwrap();
    let file = SstFileReader::open(&disk.options(), disk.newest(".sst")).unwrap();
    let mut of_file = file.iter(&ReadOptions::default());
    refused(of_file.refresh(), Code::NotSupported, "table file");
    refused(tailing(&db).refresh(), Code::NotSupported, "tailing");
    refused(tailing(&db).refresh_at(&db.snapshot()), Code::NotSupported, "tailing");

    let (mut iter, mut tail) = (db.iter().unwrap(), tailing(&db));
    iter.seek_to_first().unwrap();
    drop(db);
    refused(iter.refresh(), Code::ShutdownInProgress, "closing");
    assert_eq!((here(&iter), first(&mut tail)), ("a=1".to_owned(), "a=1".to_owned()));
    assert_eq!(forward(disk.open().iter().unwrap()), "a=1", "an iterator does not keep the database open");
}

#[test]
fn a_tailing_iterator_shows_what_is_new_with_every_seek() {
    let (disk, db) = fresh();
    let mut iter = tailing(&db);
    assert_eq!(first(&mut iter), "");
    put(&db, "bd", "1");
    assert_eq!(first(&mut iter), "b=1 d=1");
    put(&db, "bc", "2");
    db.delete("d").unwrap();
    assert_eq!((from(&mut iter, "b"), from(&mut iter, "c")), ("b=2 c=2".to_owned(), "c=2".to_owned()));
    db.flush().unwrap();
    put(&db, "e", "3");
    assert_eq!(first(&mut iter), "b=2 c=2 e=3");
    db.delete_range("a", "c").unwrap();
    assert_eq!(first(&mut iter), "c=2 e=3");
    db.flush().unwrap();
    rewrite_all(&db);
    put(&db, "a", "4");
    assert_eq!(first(&mut iter), "a=4 c=2 e=3");
    disk.wait_until("the old tables are removed", || disk.files(".sst").len() == 1);
}

#[test]
fn a_tailing_iterator_steps_on_into_what_is_new() {
    let (disk, db) = fresh();
    put(&db, "ac", "1");
    db.flush().unwrap();
    put(&db, "be", "1");
    let mut iter = tailing(&db);
    assert!(iter.seek("b").unwrap());
    put(&db, "dg", "2");
    // It keeps to what was there when it was sent there, since a memtable could show g without d; then it looks again.
    assert_eq!(rest(&mut iter, true), "b=1 c=1 e=1 g=2", "in the memtable that it reads");
    assert_eq!(from(&mut iter, "d"), "d=2 e=1 g=2");
    db.delete("g").unwrap();

    assert!(iter.seek("c").unwrap());
    put(&db, "cdf", "3");
    db.flush().unwrap();
    rewrite_all(&db);
    assert!(iter.next().unwrap());
    assert_eq!(rest(&mut iter, true), "d=3 e=1 f=3", "in other tables by now");
    assert!(iter.seek("c").unwrap());
    db.delete("c").unwrap();
    db.flush().unwrap();
    assert!(iter.next().unwrap());
    assert_eq!(here(&iter), "d=3", "after a key that is gone");
    rewrite_all(&db);
    assert!(iter.next().unwrap());
    disk.wait_until("the old tables are removed", || disk.files(".sst").len() == 1);
    assert_eq!(rest(&mut iter, true), "e=1 f=3");
}

#[test]
fn a_tailing_iterator_keeps_to_its_bounds_and_prefix() {
    let disk = Disk::new();
    let mut options: Options = disk.options();
    options.cf.prefix_extractor = Some(slice_transform::fixed_prefix(1));
    options.cf.memtable_prefix_bloom_size_ratio = 0.1;
    let db = disk.open_with(&options);
    let mut bounded = iter_with(&db, |options| {
        options.tailing = true;
        options.total_order_seek = true;
        options.iterate_lower_bound = Some(b"b".to_vec());
        options.iterate_upper_bound = Some(b"d".to_vec());
    });
    let mut of_prefix =
        iter_with(&db, |options| (options.tailing, options.prefix_same_as_start) = (true, true));
    for _ in 0..2 {
        ["a1", "b1", "c1", "c2", "d1"].iter().for_each(|key| db.put(key, "").unwrap());
        assert_eq!(first(&mut bounded), "b1= c1= c2=");
        assert_eq!(from(&mut of_prefix, "c"), "c1= c2=");
        assert!(of_prefix.seek("c1").unwrap());
        db.flush().unwrap();
        db.put("c3", "").unwrap();
        assert_eq!(rest(&mut of_prefix, true), "c1= c2= c3=");
        assert_eq!(from(&mut bounded, "c2"), "c2= c3=");
        db.delete("c3").unwrap();
    }
}

#[test]
fn a_tailing_iterator_goes_forward_only() {
    let (disk, db) = fresh();
    put(&db, "ab", "1");
    let mut iter = tailing(&db);
    let moves: [fn(&mut DbIterator) -> ironstone::Result<bool>; 3] =
        [DbIterator::prev, DbIterator::seek_to_last, |iter| iter.seek_for_prev("b")];
    for go in moves {
        assert!(iter.seek("b").unwrap());
        refused(go(&mut iter), Code::NotSupported, "tailing iterator backward");
        assert!(!iter.valid());
        refused(iter.status(), Code::NotSupported, "tailing iterator backward");
    }
    assert_eq!(first(&mut iter), "a=1 b=1");

    let open = |change: fn(&mut ReadOptions, &Db)| {
        let mut options = ReadOptions { tailing: true, ..ReadOptions::default() };
        change(&mut options, &db);
        db.iter_cf(&options, db.default_column_family()).map(drop)
    };
    let at_snapshot = |options: &mut ReadOptions, db: &Db| options.snapshot = Some(db.snapshot());
    refused(open(at_snapshot), Code::InvalidArgument, "tailing iterator reads");
    let secondary = Db::open_secondary(
        &disk.options().db,
        crate::disk::DIR,
        "/secondary",
        vec![ironstone::ColumnFamilyDescriptor::new("default", disk.options().cf)],
    )
    .unwrap();
    let options = ReadOptions { tailing: true, ..ReadOptions::default() };
    let of_secondary = secondary.iter_cf(&options, secondary.default_column_family()).map(drop);
    refused(of_secondary, Code::NotSupported, "tailing iterators in a secondary");
}

/// Keys come in order, so whoever has seen one must have seen all before it.
#[test]
fn a_tailing_iterator_follows_a_writer_without_a_gap() {
    const COUNT: u64 = 30_000;
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.write_buffer_size = 64 << 10;
    options.cf.disable_auto_compactions = false;
    let db = disk.open_with(&options);
    let done = AtomicBool::new(false);
    let write = || {
        (0..COUNT).for_each(|number| db.put(number.to_be_bytes(), "").unwrap());
        done.store(true, Ordering::Release);
    };
    let follow = || {
        let mut iter = tailing(&db);
        let mut next: u64 = 0;
        loop {
            let is_last = done.load(Ordering::Acquire);
            let mut more = iter.seek(next.to_be_bytes()).unwrap();
            while more {
                assert_eq!(iter.key(), Some(&next.to_be_bytes()[..]));
                next += 1;
                more = iter.next().unwrap();
            }
            if is_last {
                return next;
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(write);
        assert_eq!(follow(), COUNT);
    });
}
