//! Merge operands: in every place that can hold them, for every way of reading.

use crate::disk::{DIR, Disk, all, backward, forward, refused, rewrite_all};
use ironstone::options::{LoadOptions, OptionsFile};
use ironstone::{
    Code, ColumnFamilyOptions, CompactRangeOptions, Db, ReadOptions, SubCode, WriteBatch, WriteOptions,
    merge_operators,
};

fn open(disk: &Disk, change: impl FnOnce(&mut ColumnFamilyOptions)) -> Db {
    let mut options = disk.options();
    options.cf.merge_operator = Some(merge_operators::string_append(","));
    change(&mut options.cf);
    disk.open_with(&options)
}

/// Operands upon a value, a tombstone, a range tombstone and nothing, with `between` called after each round.
fn fill(db: &Db, between: impl Fn(&Db, usize)) {
    for round in 0..4 {
        if round == 1 {
            db.put(b"value", b"v").unwrap();
            db.delete(b"deleted").unwrap();
            db.delete_range(b"range", b"rangf").unwrap();
        }
        for key in ["deleted", "none", "range", "value"] {
            db.merge(key, round.to_string()).unwrap();
        }
        between(db, round);
    }
}
const FILLED: &str = "deleted=1,2,3 none=0,1,2,3 range=1,2,3 value=v,1,2,3";

fn check(db: &Db, expected: &str) {
    assert_eq!(all(db), expected);
    let mut reversed: Vec<_> = expected.split(' ').collect();
    reversed.reverse();
    assert_eq!(backward(db.iter().unwrap()), reversed.join(" "));
    let pairs: Vec<(&str, &str)> = expected.split(' ').map(|pair| pair.split_once('=').unwrap()).collect();
    for (key, value) in &pairs {
        assert_eq!(db.get(key).unwrap().unwrap(), value.as_bytes(), "{key}");
    }
    let keys: Vec<&str> = pairs.iter().map(|(key, _)| *key).chain(["absent"]).collect();
    let found = db.multi_get(&keys);
    for ((_, value), found) in pairs.iter().zip(&found) {
        assert_eq!(found.as_ref().unwrap().as_ref().unwrap(), value.as_bytes());
    }
    assert!(matches!(found.last(), Some(Ok(None))));
}

#[test]
fn operands_in_one_memtable_are_merged_when_read() {
    let disk = Disk::new();
    let db = open(&disk, |_| {});
    fill(&db, |_, _| {});
    check(&db, FILLED);
}

#[test]
fn operands_in_all_places_are_merged_when_read() {
    for turns in 0..8 {
        let disk = Disk::new();
        let db = open(&disk, |_| {});
        fill(&db, |db, round| {
            if turns >> round & 1 == 1 {
                db.flush().unwrap();
            }
            if turns == 7 && round == 2 {
                rewrite_all(db);
            }
        });
        check(&db, FILLED);
        rewrite_all(&db);
        check(&db, FILLED);
        db.close().unwrap();
        drop(db);
        check(&open(&disk, |_| {}), FILLED);
    }
}

#[test]
fn snapshots_see_the_operands_of_their_time() {
    let disk = Disk::new();
    let db = open(&disk, |_| {});
    let snapshots = std::cell::RefCell::new(Vec::new());
    fill(&db, |db, round| {
        snapshots.borrow_mut().push(db.snapshot());
        if round % 2 == 1 {
            db.flush().unwrap();
        }
    });
    let expected = [
        "deleted=0 none=0 range=0 value=0",
        "deleted=1 none=0,1 range=1 value=v,1",
        "deleted=1,2 none=0,1,2 range=1,2 value=v,1,2",
        FILLED,
    ];
    for rewritten in [false, true] {
        if rewritten {
            rewrite_all(&db);
        }
        for (snapshot, expected) in snapshots.borrow().iter().zip(expected) {
            let at = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() };
            let iter = db.iter_cf(&at, db.default_column_family()).unwrap();
            assert_eq!(forward(iter), expected, "rewritten: {rewritten}");
            let iter = db.iter_cf(&at, db.default_column_family()).unwrap();
            let mut back: Vec<_> = expected.split(' ').collect();
            back.reverse();
            assert_eq!(backward(iter), back.join(" "));
        }
    }
    check(&db, FILLED);
}

#[test]
fn a_wal_that_is_replayed_brings_operands_back() {
    let disk = Disk::new();
    let db = open(&disk, |_| {});
    fill(&db, |_, _| {});
    check(&open(&disk.kill(), |_| {}), FILLED);
}

#[test]
fn without_an_operator_merges_are_refused_and_operands_are_an_error() {
    let disk = Disk::new();
    let db = open(&disk, |_| {});
    db.put(b"a", b"1").unwrap();
    db.merge(b"k", b"1").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    drop(db);
    let db = open(&disk, |cf| cf.merge_operator = None);
    refused(db.merge(b"k", b"2"), Code::NotSupported, "merge_operator");
    refused(db.get(b"k"), Code::InvalidArgument, "merge_operator");
    assert_eq!(db.get(b"a").unwrap().unwrap(), b"1");
    let mut iter = db.iter().unwrap();
    assert!(iter.seek(b"a").unwrap());
    refused(iter.next(), Code::InvalidArgument, "merge_operator");
}

#[test]
fn operands_that_cannot_be_merged_are_kept() {
    let disk = Disk::new();
    let lists = || Some(merge_operators::sort_list());
    let db = open(&disk, |cf| cf.merge_operator = lists());
    db.put(b"k", b"1").unwrap();
    db.flush().unwrap();
    db.merge(b"k", b"no number").unwrap();
    db.merge(b"k", b"3").unwrap();
    for _ in 0..2 {
        refused(
            db.get(b"k"),
            Code::Corruption,
            "MergeSortOperator could not merge 2 operands of <a key of 1 bytes>",
        );
        assert_eq!(db.get(b"other").unwrap(), None);
        rewrite_all(&db);
    }
    let all = db.get_merge_operands(&ReadOptions::default(), db.default_column_family(), b"k", 3).unwrap();
    assert_eq!(all, [&b"1"[..], b"no number", b"3"]);
    db.close().unwrap();
    drop(db);
    // Another operator can.
    let db = open(&disk, |_| {});
    assert_eq!(db.get(b"k").unwrap().unwrap(), b"1,no number,3");
}

#[test]
fn operands_can_be_read_unmerged() {
    let disk = Disk::new();
    let db = open(&disk, |_| {});
    fill(&db, |db, round| {
        if round == 1 {
            db.flush().unwrap();
        }
    });
    let operands = |key: &str, limit| {
        db.get_merge_operands(&ReadOptions::default(), db.default_column_family(), key, limit)
    };
    // What stood together in a memtable is one operand, or one value, in the table.
    assert_eq!(operands("none", 3).unwrap(), [&b"0,1"[..], b"2", b"3"]);
    assert_eq!(operands("value", 3).unwrap(), [&b"v,1"[..], b"2", b"3"]);
    assert_eq!(operands("deleted", 3).unwrap(), [b"1", b"2", b"3"]);
    assert_eq!(operands("range", 3).unwrap(), [b"1", b"2", b"3"]);
    assert!(operands("absent", 3).unwrap().is_empty());
    refused(operands("none", 2), Code::Incomplete, "3 merge operands");
}

#[test]
fn many_operands_of_a_key_do_not_pile_up_in_a_memtable() {
    for strict in [false, true] {
        let disk = Disk::new();
        let db = open(&disk, |cf| {
            cf.max_successive_merges = 3;
            cf.strict_max_successive_merges = strict;
        });
        db.put(b"k", b"v").unwrap();
        db.flush().unwrap();
        if !strict {
            db.get(b"k").unwrap(); // Then it is in the block cache.
        }
        let mut batch = WriteBatch::new();
        for number in 0..10 {
            batch.merge(b"k", number.to_string());
        }
        db.write(&batch, &WriteOptions::default()).unwrap();
        assert_eq!(db.get(b"k").unwrap().unwrap(), b"v,0,1,2,3,4,5,6,7,8,9");
        let options = ReadOptions::default();
        let operands = db.get_merge_operands(&options, db.default_column_family(), b"k", 100).unwrap();
        assert!(operands.len() <= 4, "{operands:?}");
    }
}

#[test]
fn compaction_leaves_one_entry_of_many_operands() {
    let disk = Disk::new();
    let db = open(&disk, |_| {});
    for round in 0..5 {
        for key in 0..100 {
            db.merge(format!("{key:03}"), round.to_string()).unwrap();
        }
        db.flush().unwrap();
    }
    db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None).unwrap();
    let operands = db.get_merge_operands(&ReadOptions::default(), db.default_column_family(), b"007", 9);
    assert_eq!(operands.unwrap(), [b"0,1,2,3,4"]);
}

#[test]
fn the_options_file_names_the_operator() {
    let disk = Disk::new();
    let db = open(&disk, |cf| cf.merge_operator = Some(merge_operators::string_append("::")));
    db.merge(b"k", b"a").unwrap();
    db.merge(b"k", b"b").unwrap();
    db.close().unwrap();
    drop(db);
    let loaded = OptionsFile::load_latest(&disk.fs, DIR.as_ref(), &LoadOptions::default()).unwrap();
    let family = &loaded.column_families[0].1;
    let operator = family.merge_operator.as_ref().unwrap();
    assert_eq!(operator.name(), "StringAppendOperator");
    assert_eq!(operator.full_merge(b"", None, &[b"a", b"b"]).unwrap(), b"a::b");
}

/// A value that was made of more operands than it should be is answered, and says so.
#[test]
fn many_operands_are_told() {
    let disk = Disk::new();
    let db = open(&disk, |_| {});
    db.put("key", "0").unwrap();
    db.put("whole", "0").unwrap();
    db.flush().unwrap();
    let cf = db.default_column_family();
    let limited =
        |threshold| ReadOptions { merge_operand_count_threshold: threshold, ..ReadOptions::default() };
    for count in 1..=3 {
        db.merge("key", count.to_string()).unwrap();
        for threshold in [None, Some(0), Some(1), Some(2), Some(3)] {
            let options = limited(threshold);
            let exceeded = threshold.is_some_and(|threshold| count > threshold);
            let expected = if exceeded { SubCode::MergeOperandThresholdExceeded } else { SubCode::None };
            let mut found = vec![db.get_cf(&options, cf, "key").unwrap().unwrap()];
            found.extend(db.multi_get_cf(&options, cf, &["key"]).remove(0).unwrap());
            for value in found {
                assert_eq!((value.merge_operand_count(), value.sub_code(&options)), (count, expected));
                assert_eq!(value.len(), 1 + 2 * count, "it is there all the same");
            }
        }
    }
    let whole = db.get_cf(&limited(Some(0)), cf, "whole").unwrap().unwrap();
    assert_eq!(whole.sub_code(&limited(Some(0))), SubCode::None);
    rewrite_all(&db);
    let merged = db.get_cf(&limited(Some(0)), cf, "key").unwrap().unwrap();
    assert_eq!(merged.sub_code(&limited(Some(0))), SubCode::None, "compaction has merged them");
}
