//! Tables that a database wrote go into another one, or into another column family.

use crate::disk::{Disk, all, all_of, fresh, get, get_with, put_synced, refused, rewrite_all, shape};
use crate::ingest::write_file;
use ironstone::vfs::OpKind;
use ironstone::vfs::fault::{FaultError, FaultRule};
use ironstone::{
    Code, Db, IngestFiles, IngestOptions, Options, PreparedFileInfo, ReadOptions, Result, SequenceNumber,
    WriteOptions,
};
use std::path::PathBuf;

fn generated() -> IngestOptions {
    IngestOptions {
        allow_db_generated_files: true,
        snapshot_consistency: false,
        allow_blocking_flush: false,
        ..IngestOptions::default()
    }
}

fn source(disk: &Disk) -> Db {
    source_with(&disk.options())
}
fn source_with(options: &Options) -> Db {
    Db::open(options, "/source").unwrap()
}

/// The tables of a database: deepest level first, level 0 from the oldest on.
fn tables_of(db: &Db) -> Vec<PathBuf> {
    let mut files = db.live_files();
    files.sort_by_key(|file| (std::cmp::Reverse(file.level), file.largest_sequence));
    files.iter().map(|file| file.directory.join(format!("{:06}.sst", file.number.0))).collect()
}

fn ingest(db: &Db, files: &[PathBuf], options: &IngestOptions) -> Result<()> {
    db.ingest_external_files(db.default_column_family(), files, options)
}

/// Several levels, with entries that hide others.
fn fill(db: &Db) -> &'static str {
    for key in ["a", "b", "c", "d", "e", "f"] {
        put_synced(db, key, "1");
    }
    rewrite_all(db);
    put_synced(db, "b", "2");
    db.delete("c").unwrap();
    db.flush().unwrap();
    put_synced(db, "b", "3");
    db.delete_range("d", "f").unwrap();
    put_synced(db, "e", "3");
    db.flush().unwrap();
    "a=1 b=3 e=3 f=1"
}

#[test]
fn the_tables_of_a_database_go_into_another_one() {
    let disk = Disk::new();
    let from = source(&disk);
    let expected = fill(&from);
    assert_eq!(shape(&from), [2, 0, 0, 0, 0, 0, 1]);
    let newest = from.live_files().iter().map(|file| file.largest_sequence).max().unwrap();
    let db = disk.open();
    put_synced(&db, "x", "untouched");
    db.flush().unwrap();
    ingest(&db, &tables_of(&from), &generated()).unwrap();
    let expected = format!("{expected} x=untouched");
    assert_eq!(all(&db), expected);
    let sequences = |db: &Db| {
        let files = db.live_files().into_iter().filter(|file| file.largest != b"x");
        let mut pairs: Vec<_> = files.map(|file| (file.smallest_sequence, file.largest_sequence)).collect();
        pairs.sort();
        pairs
    };
    assert_eq!(sequences(&db), sequences(&from), "entries have kept their numbers");

    // What comes later is newer, wherever it is found.
    assert!(db.snapshot().sequence() >= newest);
    for key in ["b", "c", "e"] {
        put_synced(&db, key, "new");
    }
    db.delete_cf(&WriteOptions::synced(), db.default_column_family(), "a").unwrap();
    let expected = "b=new c=new e=new f=1 x=untouched";
    assert_eq!(all(&db), expected);
    assert_eq!(get(&db, "e"), "new");
    drop(db);
    let disk = disk.lose_power();
    let db = disk.open();
    assert_eq!(all(&db), expected);
    assert_eq!(get(&db, "a"), "-");
    rewrite_all(&db);
    assert_eq!(all(&db), expected);
    db.verify_checksum().unwrap();
}

#[test]
fn what_comes_later_is_newer_after_every_crash() {
    let disk = Disk::new();
    let from = source(&disk);
    fill(&from);
    let db = disk.open();
    put_synced(&db, "x", "1");
    db.flush().unwrap();
    ingest(&db, &tables_of(&from), &generated()).unwrap();
    put_synced(&db, "b", "new");
    let disk = disk.kill();
    drop(db);
    let db = disk.open();
    assert_eq!(get(&db, "b"), "new");
    put_synced(&db, "e", "newer");
    drop(db);
    let db = disk.lose_power().open();
    rewrite_all(&db);
    assert_eq!(all(&db), "a=1 b=new e=newer f=1 x=1");
}

#[test]
fn they_must_overlap_nothing() {
    let disk = Disk::new();
    let from = source(&disk);
    fill(&from);
    let db = disk.open();
    put_synced(&db, "c", "mine");
    let files = tables_of(&from);
    refused(ingest(&db, &files, &generated()), Code::InvalidArgument, "requires flush");
    let flushing = IngestOptions { allow_blocking_flush: true, ..generated() };
    refused(ingest(&db, &files, &flushing), Code::InvalidArgument, "overlaps with existing data");
    assert_eq!(shape(&db), [1], "it was flushed");
    let error = refused(ingest(&db, &files, &generated()), Code::InvalidArgument, "existing data");
    assert!(error.to_string().contains("/source/"), "{error}");
    rewrite_all(&db);
    refused(ingest(&db, &files, &generated()), Code::InvalidArgument, "overlaps with existing data");
    assert_eq!(all(&db), "c=mine");
    disk.wait_until("what was refused is gone", || disk.tables().len() == db.live_files().len());

    // A tombstone is in the way as well.
    let disk = Disk::new();
    let from = source(&disk);
    fill(&from);
    let db = disk.open();
    db.delete_range("0", "b").unwrap();
    db.flush().unwrap();
    let files = tables_of(&from);
    refused(ingest(&db, &files, &generated()), Code::InvalidArgument, "overlaps with existing data");
}

#[test]
fn snapshots_are_told_of_or_see_what_is_not_newer() {
    let disk = Disk::new();
    let from = source(&disk);
    fill(&from);
    let db = disk.open();
    put_synced(&db, "x", "1");
    let held = db.snapshot();
    let consistent = IngestOptions { snapshot_consistency: true, ..generated() };
    let files = tables_of(&from);
    refused(ingest(&db, &files, &consistent), Code::InvalidArgument, "a snapshot that is held");
    ingest(&db, &files, &generated()).unwrap();
    let past = ReadOptions { snapshot: Some(held), ..ReadOptions::default() };
    let old = get_with(&db, &past, db.default_column_family(), "b");
    assert_ne!(old, "3", "written after as many writes as the snapshot saw");
    assert_eq!(get(&db, "b"), "3");
    drop((past, db));

    let other = Disk::new();
    let from = source(&other);
    let expected = fill(&from);
    let db = other.open();
    ingest(&db, &tables_of(&from), &consistent).unwrap();
    assert_eq!(all(&db), expected, "nobody holds one");
}

#[test]
fn another_column_family_gets_links_to_the_tables_of_an_open_one() {
    let (disk, db) = fresh();
    let expected = fill(&db);
    let files = tables_of(&db);
    let without = IngestOptions::default();
    let copy = db.create_column_family("copy", &disk.options().cf).unwrap();
    refused(
        db.ingest_external_files(&copy, &files, &without),
        Code::InvalidArgument,
        "External file version not found",
    );
    let linked = IngestOptions { link_files: true, ..generated() };
    db.ingest_external_files(&copy, &files, &linked).unwrap();
    assert_eq!(all_of(&db, &copy), expected);
    rewrite_all(&db);
    put_synced(&db, "b", "other");
    db.put_cf(&WriteOptions::synced(), &copy, "a", "copied").unwrap();
    assert_eq!(all_of(&db, &copy), "a=copied b=3 e=3 f=1");
    assert_eq!(all(&db), "a=1 b=other e=3 f=1");
    drop((copy, db));
    let db = disk.lose_power().open_families(&disk.options(), &["copy"]).unwrap();
    assert_eq!(all_of(&db, &db.column_family("copy").unwrap()), "a=copied b=3 e=3 f=1");
}

#[test]
fn files_of_writers_go_with_them() {
    let disk = Disk::new();
    let from = source(&disk);
    fill(&from);
    let db = disk.open();
    let mut files = vec![write_file(&disk.options(), "oldest", "0=0 g=0")];
    files.extend(tables_of(&from));
    ingest(&db, &files, &generated()).unwrap();
    assert_eq!(all(&db), "0=0 a=1 b=3 e=3 f=1 g=0");
    let zero = db.live_files().into_iter().find(|file| file.largest == b"g").unwrap();
    assert_eq!((zero.level, zero.largest_sequence), (6, SequenceNumber(0)));
    rewrite_all(&db);
    assert_eq!(all(&db), "0=0 a=1 b=3 e=3 f=1 g=0");
}

#[test]
fn handles_stack_them_as_one_call_does() {
    let disk = Disk::new();
    let from = source(&disk);
    let expected = fill(&from);
    let db = disk.open();
    let prepare = |file: PathBuf| {
        let files = [IngestFiles::new(db.default_column_family(), vec![file], generated())];
        db.prepare_file_ingestion(&files).unwrap()
    };
    let handles = tables_of(&from).into_iter().map(prepare).collect();
    db.commit_file_ingestion_handles(handles).unwrap();
    assert_eq!(all(&db), expected);
    put_synced(&db, "b", "new");
    assert_eq!(get(&db, "b"), "new");
    rewrite_all(&db);
    assert_eq!(all(&db), expected.replace("b=3", "b=new"));
}

#[test]
fn tables_that_touch_at_the_end_of_a_range_deletion_share_a_level() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.target_file_size_base = 2000;
    let from = source_with(&options);
    let held = from.snapshot();
    (0..100).for_each(|i| put_synced(&from, &format!("k{i:02}"), &"v".repeat(200)));
    let kept = from.snapshot(); // So that the range deletion does not go.
    from.delete_range("k05", "k95").unwrap();
    (10..20).for_each(|i| put_synced(&from, &format!("k{i:02}"), "new"));
    rewrite_all(&from);
    let expected = all(&from);
    let files = tables_of(&from);
    assert!(files.len() > 3, "{}", files.len());
    let db = disk.open();
    let last_only = IngestOptions { fail_if_not_bottommost_level: true, ..generated() };
    ingest(&db, &files, &last_only).unwrap();
    assert_eq!(all(&db), expected);
    assert_eq!(shape(&db), [0, 0, 0, 0, 0, 0, files.len()]);
    rewrite_all(&db);
    assert_eq!(all(&db), expected);
    drop((held, kept));
}

#[test]
fn behind_go_only_those_without_sequence_numbers() {
    let disk = Disk::new();
    let from = source(&disk);
    put_synced(&from, "a", "old");
    put_synced(&from, "b", "old");
    from.flush().unwrap();
    let mut options = disk.options();
    options.cf.cf_allow_ingest_behind = true;
    let db = disk.open_with(&options);
    put_synced(&db, "a", "new");
    let behind = IngestOptions { ingest_behind: true, ..generated() };
    let result = ingest(&db, &tables_of(&from), &behind);
    refused(result, Code::InvalidArgument, "no file with sequence numbers of its own but 0");
    rewrite_all(&from); // At the bottom they are 0.
    ingest(&db, &tables_of(&from), &behind).unwrap();
    assert_eq!(all(&db), "a=new b=old");
}

#[test]
fn fifo_compaction_keeps_what_comes_in_level_0() {
    let disk = Disk::new();
    let from = source(&disk);
    let expected = fill(&from);
    let mut options = disk.options();
    options.cf.compaction_style = ironstone::CompactionStyle::Fifo;
    let db = disk.open_with(&options);
    ingest(&db, &tables_of(&from), &generated()).unwrap();
    assert_eq!(all(&db), expected);
    assert_eq!(shape(&db), [3]);
    let more = write_file(&disk.options(), "more", "y=1 z=1");
    ingest(&db, std::slice::from_ref(&more), &IngestOptions::default()).unwrap();
    assert_eq!(shape(&db), [4]);
    let newest = db.live_files().into_iter().find(|file| file.largest == b"z").unwrap();
    assert!(newest.largest_sequence > SequenceNumber(0));
    let last_only = IngestOptions { fail_if_not_bottommost_level: true, ..IngestOptions::default() };
    refused(ingest(&db, &[more], &last_only), Code::TryAgain, "Lmax");
}

/// What a database knows of its tables, and these need not be opened; of files that it ingested it knows more than they say.
#[test]
fn a_database_says_of_its_tables_what_ingestion_has_to_know() {
    let disk = Disk::new();
    let from = source(&disk);
    let expected = fill(&from);
    let newer = write_file(&disk.options(), "newer", "a=file d=file");
    from.ingest_external_files(from.default_column_family(), &[newer], &IngestOptions::default()).unwrap();
    let expected = expected.replace("a=1 b=3", "a=file b=3 d=file");
    assert_eq!(all(&from), expected);
    let tables = tables_of(&from);
    let sent: Vec<Vec<u8>> =
        tables.iter().map(|path| from.prepared_file_info(path).unwrap().to_bytes()).collect();
    let file_infos: Vec<_> = sent.iter().map(|bytes| PreparedFileInfo::from_bytes(bytes).unwrap()).collect();
    let db = disk.open();
    let cf = db.default_column_family();
    let options = IngestOptions { link_files: true, ..generated() };
    disk.faults.add(
        FaultRule::error(FaultError::Io).on(&[OpKind::OpenRandom, OpKind::Read]).path("/source").forever(),
    );
    disk.faults.arm();
    let files = IngestFiles { file_infos, ..IngestFiles::new(cf, tables.clone(), options) };
    db.ingest_external_files_of(&[files]).unwrap();
    disk.faults.clear();
    assert_eq!(all(&db), expected);
    drop(db);
    let db = disk.lose_power().open();
    assert_eq!(all(&db), expected);
    rewrite_all(&db);
    db.verify_checksum().unwrap();
    assert_eq!(all(&db), expected);

    let name = tables[0].file_name().unwrap();
    for path in
        [PathBuf::from("/elsewhere").join(name), "/source/000999.sst".into(), "/source/CURRENT".into()]
    {
        let says = format!("{} is no table of this database", path.display());
        refused(from.prepared_file_info(path), Code::InvalidArgument, &says);
    }
    rewrite_all(&from);
    refused(from.prepared_file_info(&tables[0]), Code::InvalidArgument, "no table of this database");
}
