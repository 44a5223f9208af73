//! Tables and archived WALs that are removed by name.

use crate::disk::{Disk, all, fresh, put_synced, refused, rewrite_all, shape};
use ironstone::{Code, CompactFilesOptions, CompactRangeOptions, Db, FlushOptions};

/// The name of the only table with `key` in its range.
fn table_with(db: &Db, key: &str) -> String {
    let mut files = db.live_files();
    files.retain(|file| {
        file.smallest.as_slice() <= key.as_bytes() && key.as_bytes() <= file.largest.as_slice()
    });
    assert_eq!(files.len(), 1, "{files:?}");
    format!("{:06}.sst", files[0].number.0)
}

fn flushed(db: &Db, key: &str) {
    put_synced(db, key, "1");
    db.flush().unwrap();
}

#[test]
fn only_the_oldest_table_goes() {
    let (disk, db) = fresh();
    ["a", "b", "c"].iter().for_each(|key| flushed(&db, key));
    let of = |key| table_with(&db, key);
    let (oldest, newest) = (of("a"), of("c"));
    refused(db.delete_file(&newest), Code::InvalidArgument, "File in level 0, but not oldest: 2 are older");
    assert!(db.delete_file(&format!("/{oldest}")).unwrap());
    assert_eq!(all(&db), "b=1 c=1");
    refused(db.delete_file(&oldest), Code::InvalidArgument, "File not found");
    rewrite_all(&db);
    flushed(&db, "d");
    let error = refused(db.delete_file(&of("d")), Code::InvalidArgument, "File not in last level");
    assert!(error.to_string().contains("it is on level 0, and level 6 has files"), "{error}");
    assert!(db.delete_file(&of("b")).unwrap());
    assert_eq!(all(&db), "d=1");
    assert_eq!(shape(&db), [1]);
    drop(db);
    assert_eq!(all(&disk.lose_power().open()), "d=1");
}

#[test]
fn it_is_of_any_column_family() {
    let (_disk, db) = fresh();
    flushed(&db, "a");
    let other = db.create_column_family("other", &ironstone::ColumnFamilyOptions::default()).unwrap();
    db.put_cf(&Default::default(), &other, "x", "1").unwrap();
    db.flush_cf(&FlushOptions::default(), &other).unwrap();
    assert!(db.delete_file(&table_with(&db, "x")).unwrap());
    assert_eq!(db.get_cf(&Default::default(), &other, "x").unwrap(), None);
    assert_eq!(all(&db), "a=1");
}

#[test]
fn only_archived_wals_go() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.wal_ttl_seconds = 1000;
    let db = disk.open_with(&options);
    flushed(&db, "a");
    disk.wait_until("a WAL is archived", || {
        disk.files(".log").iter().any(|path| path.to_string_lossy().contains("archive"))
    });
    let wal = |archived: bool| {
        let mut wals = disk.files(".log");
        wals.retain(|path| path.to_string_lossy().contains("archive") == archived);
        wals[0].file_name().unwrap().to_string_lossy().into_owned()
    };
    let (live, old) = (wal(false), wal(true));
    refused(db.delete_file(&live), Code::NotSupported, "Delete only supported for archived logs");
    assert!(db.delete_file(&format!("/archive/{old}")).unwrap());
    refused(db.delete_file(&format!("archive/{old}")), Code::IoError, &old);
    for name in
        ["CURRENT", "../000001.sst", "archive/../000001.log", "archive/000001.sst", "", "MANIFEST-000001"]
    {
        refused(db.delete_file(name), Code::InvalidArgument, "Invalid file name");
    }
    drop(db);
    let reader = disk.open_read_only(&disk.options(), &[]).unwrap();
    refused(reader.delete_file("000009.sst"), Code::NotSupported, "");
}

#[test]
fn a_table_that_moved_keeps_its_name() {
    let (_disk, db) = fresh();
    flushed(&db, "a");
    let table = table_with(&db, "a");
    let options = CompactRangeOptions::default();
    db.compact_range(&options, db.default_column_family(), None, None).unwrap();
    assert_eq!(shape(&db), [0, 0, 0, 0, 0, 0, 1]);
    assert!(db.delete_file(&table).unwrap());
    assert_eq!(all(&db), "");
}

/// One table for each of `keys`, on `level`.
fn tables_on(db: &Db, level: usize, keys: &[&str], value: &str) {
    for key in keys {
        put_synced(db, key, value);
        db.flush().unwrap();
        let newest = db.live_files().into_iter().map(|file| file.number).max().unwrap();
        let options = CompactFilesOptions::default();
        db.compact_files(&options, db.default_column_family(), &[newest], level).unwrap();
    }
}

fn remove(db: &Db, ranges: &[(Option<&str>, Option<&str>)], include_end: bool) -> usize {
    let ranges: Vec<_> =
        ranges.iter().map(|(begin, end)| (begin.map(str::as_bytes), end.map(str::as_bytes))).collect();
    db.delete_files_in_ranges(db.default_column_family(), &ranges, include_end).unwrap()
}

#[test]
fn tables_within_ranges_go() {
    let (disk, db) = fresh();
    tables_on(&db, 6, &["a", "b", "c", "d", "e", "f", "g"], "1");
    put_synced(&db, "c", "2");
    db.flush().unwrap();
    assert_eq!(remove(&db, &[(Some("b"), Some("c")), (Some("f"), None)], false), 3);
    assert_eq!(all(&db), "a=1 c=2 d=1 e=1", "level 0 is left alone, and the end of a range");
    assert_eq!(remove(&db, &[(Some("c"), Some("d"))], true), 2);
    assert_eq!(remove(&db, &[(Some("c"), Some("d"))], true), 0);
    assert_eq!(all(&db), "a=1 c=2 e=1");
    drop(db);
    let db = disk.lose_power().open();
    assert_eq!(all(&db), "a=1 c=2 e=1");
    assert_eq!(remove(&db, &[(None, None)], true), 2);
    assert_eq!(all(&db), "c=2");
}

#[test]
fn no_older_value_comes_back() {
    let (_disk, db) = fresh();
    for key in ["a", "m", "z"] {
        put_synced(&db, key, "old");
    }
    db.flush().unwrap();
    rewrite_all(&db);
    tables_on(&db, 3, &["m"], "new");
    tables_on(&db, 2, &["p"], "new");
    // The table of all three keys reaches out of the range, so the new m stays above it.
    assert_eq!(remove(&db, &[(Some("b"), Some("n"))], true), 0);
    assert_eq!(all(&db), "a=old m=new p=new z=old");
    // From the bottom up: with it goes what is above.
    assert_eq!(remove(&db, &[(Some("a"), Some("z"))], true), 3);
    assert_eq!(all(&db), "");
}

#[test]
fn a_table_that_reaches_out_of_the_range_stays() {
    let (_disk, db) = fresh();
    let snapshots: Vec<_> = (0..3)
        .map(|i| {
            put_synced(&db, "k", &i.to_string());
            db.snapshot()
        })
        .collect();
    put_synced(&db, "l", "1");
    db.flush().unwrap();
    rewrite_all(&db);
    assert_eq!(remove(&db, &[(Some("k"), Some("k"))], true), 0);
    assert_eq!(remove(&db, &[(Some("k"), Some("l"))], true), 1);
    drop(snapshots);
    assert_eq!(all(&db), "");
}
