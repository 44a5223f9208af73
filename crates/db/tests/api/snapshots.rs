//! Snapshots: the past stays readable, and only as long as somebody holds it.

use crate::disk::{Disk, backward, forward, fresh, get, get_with, refused, rewrite_all, table_entries};
use ironstone::{Code, Db, ReadOptions, Snapshot};

fn at(snapshot: &Snapshot) -> ReadOptions {
    ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() }
}

fn all_at(db: &Db, snapshot: &Snapshot) -> String {
    let scan = || db.iter_cf(&at(snapshot), db.default_column_family()).unwrap();
    let found = forward(scan());
    let mut reversed: Vec<_> = found.split(' ').collect();
    reversed.reverse();
    assert_eq!(backward(scan()), reversed.join(" "));
    found
}

#[test]
fn the_past_stays_readable_through_writes_flush_and_compaction() {
    let (_disk, db) = fresh();
    db.put("a", "1").unwrap();
    db.put("b", "1").unwrap();
    let first = db.snapshot();
    db.put("a", "2").unwrap();
    db.delete("b").unwrap();
    db.put("c", "2").unwrap();
    let second = db.snapshot();
    db.delete("a").unwrap();
    let check = |when: &str| {
        assert_eq!(all_at(&db, &first), "a=1 b=1", "{when}");
        assert_eq!(all_at(&db, &second), "a=2 c=2", "{when}");
        assert_eq!(get_with(&db, &at(&first), db.default_column_family(), "b"), "1", "{when}");
        assert_eq!(get_with(&db, &at(&second), db.default_column_family(), "b"), "-", "{when}");
        let found = db.multi_get_cf(&at(&first), db.default_column_family(), &["c", "a"]);
        assert!(found[0].as_ref().unwrap().is_none(), "{when}");
        assert_eq!(found[1].as_ref().unwrap().as_deref(), Some(&b"1"[..]), "{when}");
        assert_eq!(get(&db, "a"), "-", "{when}");
    };
    check("in the memtable");
    db.flush().unwrap();
    check("flushed");
    rewrite_all(&db);
    check("compacted");
}

#[test]
fn compaction_keeps_one_version_for_each_snapshot_and_drops_the_rest() {
    let (_disk, db) = fresh();
    let mut snapshots = Vec::new();
    for version in 0..10 {
        db.put("k", version.to_string()).unwrap();
        if version % 3 == 0 {
            snapshots.push(db.snapshot());
        }
    }
    db.flush().unwrap();
    assert_eq!(table_entries(&db), 4, "versions 0, 3, 6 and 9, which is the newest as well");
    snapshots.truncate(2);
    rewrite_all(&db);
    assert_eq!(table_entries(&db), 3);
    snapshots.clear();
    rewrite_all(&db);
    assert_eq!(table_entries(&db), 1);
    assert_eq!(get(&db, "k"), "9");
}

#[test]
fn a_clone_holds_on_after_the_original_is_gone() {
    let (_disk, db) = fresh();
    db.put("k", "old").unwrap();
    let original = db.snapshot();
    let clone = original.clone();
    drop(original);
    db.put("k", "new").unwrap();
    db.flush().unwrap();
    rewrite_all(&db);
    assert_eq!(all_at(&db, &clone), "k=old");
    assert_eq!(db.int_property("rocksdb.num-snapshots"), Some(1));
    assert_eq!(db.int_property("rocksdb.oldest-snapshot-sequence"), Some(clone.sequence().0));
    drop(clone);
    assert_eq!(db.int_property("rocksdb.num-snapshots"), Some(0));
}

#[test]
fn an_iterator_holds_the_snapshot_that_it_was_made_with() {
    let (_disk, db) = fresh();
    db.put("k", "old").unwrap();
    let snapshot = db.snapshot();
    let iter = db.iter_cf(&at(&snapshot), db.default_column_family()).unwrap();
    drop(snapshot);
    db.put("k", "new").unwrap();
    db.flush().unwrap();
    rewrite_all(&db);
    assert_eq!(forward(iter), "k=old");
}

#[test]
fn a_snapshot_of_an_empty_database_stays_empty() {
    let (_disk, db) = fresh();
    let empty = db.snapshot();
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    rewrite_all(&db);
    assert_eq!(all_at(&db, &empty), "");
    assert_eq!(empty.sequence().0, 0);
}

#[test]
fn snapshots_of_other_databases_and_of_earlier_openings_are_refused() {
    let (disk, db) = fresh();
    db.put("k", "v").unwrap();
    let (_other_disk, other) = fresh();
    let foreign = other.snapshot();
    let cf = db.default_column_family();
    refused(db.get_cf(&at(&foreign), cf, "k"), Code::InvalidArgument, "snapshot");
    refused(db.iter_cf(&at(&foreign), cf).map(drop), Code::InvalidArgument, "snapshot");
    let found = db.multi_get_cf(&at(&foreign), cf, &["k"]);
    assert!(found[0].is_err());

    let earlier = db.snapshot();
    db.close().unwrap();
    drop(db);
    let db = disk.open();
    refused(db.get_cf(&at(&earlier), db.default_column_family(), "k"), Code::InvalidArgument, "snapshot");
}

#[test]
fn a_snapshot_may_outlive_the_database() {
    let disk = Disk::new();
    let snapshot = {
        let db = disk.open();
        db.put("k", "v").unwrap();
        db.snapshot()
    };
    drop(snapshot);
    assert_eq!(get(&disk.open(), "k"), "v");
}
