//! Column families that take files, and no writes: `disallow_memtable_writes`.

use crate::disk::{Disk, all, all_of, get_in, put_synced, refused};
use crate::ingest::write_file;
use ironstone::{
    Code, ColumnFamily, ColumnFamilyDescriptor, Db, ImportColumnFamilyOptions, IngestOptions, Options,
    ReadOptions, Result, WriteBatch, WriteOptions,
};

const SAYS: &str = "This column family has disallow_memtable_writes=true";

fn files_only(disk: &Disk) -> Options {
    let mut options = disk.options();
    options.cf.disallow_memtable_writes = true;
    options
}

/// Opens with `default` and `files`, which takes files only.
fn try_open(disk: &Disk) -> Result<Db> {
    let mut options = files_only(disk);
    options.db.create_missing_column_families = true;
    let descriptors = vec![
        ColumnFamilyDescriptor::new("default", disk.options().cf),
        ColumnFamilyDescriptor::new("files", options.cf),
    ];
    options.db.env = disk.env();
    Db::open_column_families(&options.db, crate::disk::DIR, descriptors)
}
fn open(disk: &Disk) -> (Db, ColumnFamily) {
    let db = try_open(disk).unwrap();
    let cf = db.column_family("files").unwrap();
    (db, cf)
}

fn ingest(disk: &Disk, db: &Db, cf: &ColumnFamily, name: &str, entries: &str) {
    let path = write_file(&disk.options(), name, entries);
    db.ingest_external_files(cf, &[path], &IngestOptions::default()).unwrap();
}

#[test]
fn every_kind_of_write_is_refused_and_files_come_in() {
    let disk = Disk::new();
    let (db, cf) = open(&disk);
    let write = WriteOptions::default();
    refused(db.put_cf(&write, &cf, "a", "1"), Code::InvalidArgument, SAYS);
    refused(db.delete_cf(&write, &cf, "a"), Code::InvalidArgument, SAYS);
    refused(db.single_delete_cf(&write, &cf, "a"), Code::InvalidArgument, SAYS);
    refused(db.delete_range_cf(&write, &cf, "a", "b"), Code::InvalidArgument, SAYS);
    let unlogged = WriteOptions { disable_wal: true, ..write };
    refused(db.put_cf(&unlogged, &cf, "a", "1"), Code::InvalidArgument, SAYS);
    let mut batch = WriteBatch::new();
    batch.put("mine", "1");
    batch.put_cf(&cf, "a", "1");
    refused(db.write(&batch, &WriteOptions::synced()), Code::InvalidArgument, SAYS);
    assert_eq!((all(&db), all_of(&db, &cf)), (String::new(), String::new()), "no part of the batch is there");

    put_synced(&db, "mine", "2");
    ingest(&disk, &db, &cf, "one", "a=1 b=1");
    ingest(&disk, &db, &cf, "two", "b=2 c=2");
    assert_eq!(all_of(&db, &cf), "a=1 b=2 c=2");
    db.compact_range(&Default::default(), &cf, None, None).unwrap();
    db.flush_cf(&Default::default(), &cf).unwrap();
    assert_eq!(all_of(&db, &cf), "a=1 b=2 c=2");
    drop((cf, db));
    let disk = disk.lose_power();
    let (db, cf) = open(&disk);
    assert_eq!(all_of(&db, &cf), "a=1 b=2 c=2", "what was refused is in no WAL");
    assert_eq!(all(&db), "mine=2");

    let exported = db.export_column_family(&cf, "/exported").unwrap();
    let import = ImportColumnFamilyOptions::default();
    let copy =
        db.create_column_family_with_import("copy", &files_only(&disk).cf, &import, &[exported]).unwrap();
    assert_eq!(all_of(&db, &copy), "a=1 b=2 c=2");
    refused(db.put_cf(&write, &copy, "a", "1"), Code::InvalidArgument, SAYS);
}

#[test]
fn default_takes_writes() {
    let disk = Disk::new();
    refused(
        disk.try_open(&files_only(&disk)),
        Code::InvalidArgument,
        "Default column family cannot use disallow_memtable_writes=true",
    );
    assert!(disk.files("").is_empty(), "nothing was created");
}

#[test]
fn it_is_turned_on_once_no_wal_holds_writes() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.create_missing_column_families = true;
    let db = disk.open_families(&options, &["files"]).unwrap();
    let cf = db.column_family("files").unwrap();
    db.put_cf(&WriteOptions::synced(), &cf, "a", "written").unwrap();
    let disk = disk.kill();
    drop((cf, db));
    let error = refused(try_open(&disk), Code::InvalidArgument, SAYS);
    assert!(error.to_string().contains(".log"), "{error}");

    let db = disk.open_families(&options, &["files"]).unwrap(); // That writes tables of what is replayed.
    let changed =
        db.set_options_cf(&db.column_family("files").unwrap(), &[("disallow_memtable_writes", "true")]);
    assert!(changed.is_err(), "only at opening");
    drop(db);
    let (db, cf) = open(&disk);
    assert_eq!(get_in(&db, &cf, "a"), "written");
    refused(db.put_cf(&WriteOptions::default(), &cf, "a", "1"), Code::InvalidArgument, SAYS);
    drop((cf, db));
    let db = disk.open_families(&options, &["files"]).unwrap();
    db.put_cf(&WriteOptions::default(), &db.column_family("files").unwrap(), "a", "again").unwrap();
}

#[test]
fn iterators_leave_nothing_in_its_memtable() {
    let disk = Disk::new();
    let (db, cf) = open(&disk);
    let deletes: Vec<String> = (0..3000).map(|i| format!("k{i:04}-")).collect();
    ingest(&disk, &db, &cf, "tombstones", &format!("a=1 {} z=1", deletes.join(" ")));
    for _ in 0..2 {
        assert_eq!(all_of(&db, &cf), "a=1 z=1");
    }
    let mut iter = db.iter_cf(&ReadOptions::default(), &cf).unwrap();
    assert!(iter.seek("b").unwrap());
    assert_eq!(db.int_property_cf(&cf, "rocksdb.num-entries-active-mem-table"), Some(0));
    assert_eq!(db.int_property_cf(&cf, "rocksdb.num-deletes-active-mem-table"), Some(0));
    db.flush_cf(&Default::default(), &cf).unwrap();
    assert_eq!(
        db.level_shape(&cf).iter().map(|level| level.0).sum::<usize>(),
        1,
        "there was nothing to flush"
    );
}
