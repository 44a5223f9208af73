//! Flushes that iterators ask for: `memtable_op_scan_flush_trigger` and `memtable_avg_op_scan_flush_trigger`.

use crate::disk::{Disk, shape};
use ironstone::{ColumnFamilyOptions, Db, ReadOptions};

fn open(change: impl FnOnce(&mut ColumnFamilyOptions)) -> (Disk, Db) {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.memtable_op_scan_flush_trigger = 20;
    change(&mut options.cf);
    let db = disk.open_with(&options);
    (disk, db)
}

/// So many tombstones before `key`.
fn delete_before(db: &Db, key: &str, count: usize) {
    for number in 0..count {
        db.delete(format!("{key}-{number:03}")).unwrap();
    }
    db.put(format!("{key}x"), "v").unwrap();
}

/// How many tables there are after the writes that would flush a full memtable.
fn tables_after_writes(db: &Db) -> usize {
    db.put("z1", "v").unwrap();
    db.put("z2", "v").unwrap();
    db.wait_for_compact().unwrap();
    shape(db).first().copied().unwrap_or(0)
}

fn scan(db: &Db) -> usize {
    let mut iter = db.iter().unwrap();
    let (mut more, mut count) = (iter.seek_to_first().unwrap(), 0);
    while more {
        count += 1;
        more = iter.next().unwrap();
    }
    count
}

#[test]
fn one_move_over_many_hidden_entries_has_the_memtable_flushed() {
    for (count, tables) in [(19, 0), (20, 1)] {
        let (_disk, db) = open(|_| {});
        delete_before(&db, "a", count);
        assert!(db.iter().unwrap().seek("a").unwrap());
        assert_eq!(tables_after_writes(&db), tables, "a seek over {count}");

        let (_disk, db) = open(|_| {});
        db.put("a", "v").unwrap();
        delete_before(&db, "b", count);
        let mut iter = db.iter().unwrap();
        assert!(iter.seek("a").unwrap() && iter.next().unwrap());
        assert_eq!(tables_after_writes(&db), tables, "a step over {count}");
    }
}

#[test]
fn without_the_option_nothing_is_flushed_and_tables_do_not_count() {
    let (_disk, db) = open(|options| options.memtable_op_scan_flush_trigger = 0);
    delete_before(&db, "a", 100);
    scan(&db);
    assert_eq!(tables_after_writes(&db), 0);
    db.set_options(&[("memtable_op_scan_flush_trigger", "20")]).unwrap();
    scan(&db);
    assert_eq!(tables_after_writes(&db), 1, "it holds for iterators that are made from then on");
    // What is in a table is not in a memtable.
    scan(&db);
    assert_eq!(tables_after_writes(&db), 1);
    // Nor what moves backward pass over.
    delete_before(&db, "c", 50);
    assert!(db.iter().unwrap().seek_for_prev("c-999").unwrap());
    assert_eq!(tables_after_writes(&db), 1);
    let tailing = ReadOptions { tailing: true, ..ReadOptions::default() };
    assert!(db.iter_cf(&tailing, db.default_column_family()).unwrap().seek("c").unwrap());
    assert_eq!(tables_after_writes(&db), 1);
}

#[test]
fn overwritten_values_count() {
    let (_disk, db) = open(|options| options.memtable_avg_op_scan_flush_trigger = 1);
    for round in 0..4 {
        for key in 0..10 {
            db.put(format!("k{key}"), round.to_string()).unwrap();
        }
    }
    assert_eq!(scan(&db), 10);
    assert_eq!(tables_after_writes(&db), 1, "three of each key");
}

#[test]
fn many_moves_over_some_hidden_entries_count_on_average() {
    for (average, tables) in [(0, 0), (3, 1), (9, 0)] {
        let (_disk, db) = open(|options| options.memtable_avg_op_scan_flush_trigger = average);
        for key in ["a", "b", "c", "d", "e"] {
            delete_before(&db, key, 5);
        }
        assert_eq!(scan(&db), 5);
        assert_eq!(tables_after_writes(&db), tables, "25 in five moves, {average} are asked for");
    }
    // A seek begins anew.
    let (_disk, db) = open(|options| options.memtable_avg_op_scan_flush_trigger = 3);
    for key in ["a", "b", "c", "d", "e"] {
        delete_before(&db, key, 5);
    }
    let mut iter = db.iter().unwrap();
    for key in ["a", "b", "c", "d", "e"] {
        assert!(iter.seek(key).unwrap());
    }
    drop(iter);
    assert_eq!(tables_after_writes(&db), 0);
}

#[test]
fn an_iterator_that_is_refreshed_counts_in_the_memtable_of_now() {
    let (_disk, db) = open(|_| {});
    db.put("a", "v").unwrap();
    let mut iter = db.iter().unwrap();
    assert!(iter.seek("a").unwrap());
    db.flush().unwrap();
    delete_before(&db, "b", 30);
    assert!(!iter.next().unwrap(), "it does not see them");
    assert_eq!(tables_after_writes(&db), 1);
    iter.refresh().unwrap();
    assert!(iter.seek("b").unwrap());
    assert_eq!(tables_after_writes(&db), 2);
}
