//! Files that take the place of a key range: `atomic_replace_range`.

use crate::disk::{Disk, all, fresh, get, put_synced, refused, rewrite_all, shape};
use crate::ingest::{no_power_loss_parts, write_file};
use ironstone::{
    Code, ColumnFamily, CompactionJobInfo, CompactionStyle, Db, EventListener, IngestFiles, IngestOptions,
    KeyRange, Result,
};
use ironstone_base::sync::{Arc, Condvar, Mutex};
use std::path::PathBuf;

const ALL: KeyRange<'_> = (None, None);

fn range<'a>(begin: &'a str, end: &'a str) -> KeyRange<'a> {
    (Some(begin.as_bytes()), Some(end.as_bytes()))
}

fn inconsistent() -> IngestOptions {
    IngestOptions { snapshot_consistency: false, ..IngestOptions::default() }
}

fn files_of<'a>(cf: &'a ColumnFamily, path: PathBuf, range: KeyRange<'a>) -> IngestFiles<'a> {
    IngestFiles { atomic_replace_range: Some(range), ..IngestFiles::new(cf, vec![path], inconsistent()) }
}

fn replace(disk: &Disk, db: &Db, range: KeyRange<'_>, entries: &str) -> Result<()> {
    let path = write_file(&disk.options(), "new", entries);
    db.ingest_external_files_of(&[files_of(db.default_column_family(), path, range)])
}

/// Checks `expected` now, after a compaction and in what a power loss leaves.
fn check(disk: &Disk, db: &Db, expected: &str) {
    assert_eq!(all(db), expected);
    assert_eq!(all(&disk.lose_power().open()), expected);
    rewrite_all(db);
    assert_eq!(all(db), expected);
}

/// Waits until the only tables of the database are those that it has.
fn nothing_is_left_over(disk: &Disk, db: &Db) {
    disk.wait_until("what is obsolete is removed", || disk.tables().len() == db.live_files().len());
}

#[test]
fn all_there_is_is_replaced() {
    let (disk, db) = fresh();
    for number in 0..3 {
        put_synced(&db, "a", &number.to_string());
        put_synced(&db, &format!("k{number}"), "old");
        db.flush().unwrap();
    }
    rewrite_all(&db);
    put_synced(&db, "level0", "old");
    db.flush().unwrap();
    put_synced(&db, "memtable", "old");
    db.delete_range("n", "o").unwrap();
    replace(&disk, &db, ALL, "b=1 z=1").unwrap();
    assert_eq!(shape(&db), [0, 0, 0, 0, 0, 0, 1]);
    check(&disk, &db, "b=1 z=1");
    put_synced(&db, "later", "2");
    check(&disk, &db, "b=1 later=2 z=1");
}

#[test]
fn tables_within_the_range_leave_and_others_stay() {
    let (disk, db) = fresh();
    for key in ["a", "c", "e", "g"] {
        put_synced(&db, &format!("{key}1"), "old");
        put_synced(&db, &format!("{key}2"), "old");
        db.flush().unwrap();
    }
    assert_eq!(shape(&db), [4]);
    replace(&disk, &db, range("c1", "g1"), "d=1").unwrap();
    assert_eq!(shape(&db), [2, 0, 0, 0, 0, 0, 1], "no range tombstone is needed");
    check(&disk, &db, "a1=old a2=old d=1 g1=old g2=old");
}

#[test]
fn what_reaches_out_of_the_range_loses_what_is_in_it() {
    for style in [CompactionStyle::Level, CompactionStyle::Universal] {
        let disk = Disk::new();
        let mut options = disk.options();
        options.cf.compaction_style = style;
        let db = disk.open_with(&options);
        for key in ["a", "c", "e", "g"] {
            put_synced(&db, key, "old");
        }
        rewrite_all(&db);
        put_synced(&db, "c", "newer");
        put_synced(&db, "f", "newer");
        db.flush().unwrap();
        put_synced(&db, "d", "newest");
        put_synced(&db, "g", "newest");
        replace(&disk, &db, range("c", "g"), "c=1 e-").unwrap();
        let expected = "a=old c=1 g=newest";
        assert_eq!(all(&db), expected);
        assert_eq!(all(&disk.lose_power().open_with(&options)), expected);
        put_synced(&db, "e", "later");
        rewrite_all(&db);
        assert_eq!(all(&db), "a=old c=1 e=later g=newest");
        nothing_is_left_over(&disk, &db);
    }
}

#[test]
fn several_files_of_a_range_stack_above_its_tombstone() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "old");
    put_synced(&db, "m", "old");
    put_synced(&db, "z", "old");
    db.flush().unwrap();
    let file = |name, entries| write_file(&disk.options(), name, entries);
    let files = IngestFiles {
        files: vec![file("one", "b=1 c=1"), file("two", "c=2"), file("three", "y=3")],
        options: IngestOptions { move_files: true, ..inconsistent() },
        ..files_of(db.default_column_family(), "/one.sst".into(), range("b", "z"))
    };
    db.ingest_external_files_of(&[files]).unwrap();
    check(&disk, &db, "a=old b=1 c=2 y=3 z=old");
    assert!(!disk.exists("/one.sst"));
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let (disk, db) = fresh();
    let cf = db.default_column_family();
    for key in ["a", "m", "z"] {
        put_synced(&db, key, "old");
    }
    db.flush().unwrap();
    let path = write_file(&disk.options(), "in", "c=1 d=1");
    let with = |range, options: IngestOptions| {
        db.ingest_external_files_of(&[IngestFiles { options, ..files_of(cf, path.clone(), range) }])
    };
    let inside = range("b", "n");
    let consistent = IngestOptions::default();
    refused(with(inside, consistent), Code::NotSupported, "snapshot_consistency");
    refused(with((Some(b"b"), None), inconsistent()), Code::NotSupported, "one bound");
    refused(with(range("n", "n"), inconsistent()), Code::InvalidArgument, "greater than start");
    refused(with(range("b", "d"), inconsistent()), Code::InvalidArgument, "does not contain all files");
    refused(with(range("c1", "n"), inconsistent()), Code::InvalidArgument, "does not contain all files");
    let numberless = IngestOptions { allow_global_seqno: false, ..inconsistent() };
    refused(with(inside, numberless), Code::InvalidArgument, "partially overlaps");
    let generated = IngestOptions { allow_db_generated_files: true, ..inconsistent() };
    refused(with(inside, generated), Code::InvalidArgument, "partially overlaps");
    let bottommost = IngestOptions { fail_if_not_bottommost_level: true, ..inconsistent() };
    refused(with(inside, bottommost), Code::TryAgain, "partially overlaps");
    put_synced(&db, "e", "old");
    let without_flush = IngestOptions { allow_blocking_flush: false, ..inconsistent() };
    refused(with(inside, without_flush.clone()), Code::InvalidArgument, "requires flush");
    let handle = |range| db.prepare_file_ingestion(&[files_of(cf, path.clone(), range)]).unwrap();
    let two = vec![handle(inside), handle(inside)];
    refused(db.commit_file_ingestion_handles(two), Code::NotSupported, "atomic_replace_range");
    check(&disk, &db, "a=old e=old m=old z=old");
    nothing_is_left_over(&disk, &db);
    put_synced(&db, "n", "outside");
    with(inside, without_flush).unwrap();
    check(&disk, &db, "a=old c=1 d=1 n=outside z=old");

    let mut behind = disk.options();
    behind.cf.cf_allow_ingest_behind = true;
    let family = db.create_column_family("behind", &behind.cf).unwrap();
    let options = IngestOptions { ingest_behind: true, ..inconsistent() };
    let files = IngestFiles { options, ..files_of(&family, path.clone(), inside) };
    refused(db.ingest_external_files_of(&[files]), Code::InvalidArgument, "ingest_behind");
}

/// Tables that reach out of the range are known when the files are prepared, or the caller tries again.
#[test]
fn a_table_that_comes_after_the_files_were_prepared() {
    let (disk, db) = fresh();
    let cf = db.default_column_family();
    let path = write_file(&disk.options(), "in", "c=1");
    let handle = || db.prepare_file_ingestion(&[files_of(cf, path.clone(), range("b", "n"))]).unwrap();
    let early = handle();
    put_synced(&db, "a", "old");
    put_synced(&db, "m", "old");
    db.flush().unwrap();
    refused(db.commit_file_ingestion_handle(early), Code::TryAgain, "retry");
    let late = handle();
    rewrite_all(&db);
    db.commit_file_ingestion_handle(late).unwrap();
    check(&disk, &db, "a=old c=1");
    // And one that was not needed in the end leaves nothing behind.
    let early = handle();
    replace(&disk, &db, ALL, "x=1").unwrap();
    db.commit_file_ingestion_handle(early).unwrap();
    check(&disk, &db, "c=1 x=1");
    nothing_is_left_over(&disk, &db);
}

/// Keeps compactions from going on.
#[derive(Default)]
struct Gate(Mutex<(bool, bool)>, Condvar);

impl EventListener for Gate {
    fn on_compaction_begin(&self, _info: &CompactionJobInfo) {
        let mut state = self.0.lock();
        state.0 = true;
        while !state.1 {
            self.1.wait(&mut state);
        }
    }
}

#[test]
fn what_a_compaction_rewrites_is_not_replaced() {
    let (disk, gate) = (Disk::new(), Arc::new(Gate::default()));
    let mut options = disk.options();
    options.db.listeners.push(gate.clone());
    let db = disk.open_with(&options);
    for round in 0..2 {
        put_synced(&db, "c", &round.to_string());
        put_synced(&db, "d", &round.to_string());
        db.flush().unwrap();
    }
    std::thread::scope(|scope| {
        let compaction = scope.spawn(|| rewrite_all(&db));
        disk.wait_until("the compaction has begun", || gate.0.lock().0);
        for range in [ALL, range("b", "n")] {
            refused(replace(&disk, &db, range, "e=1"), Code::InvalidArgument, "pending compaction");
        }
        gate.0.lock().1 = true;
        gate.1.notify_all();
        compaction.join().unwrap();
    });
    replace(&disk, &db, range("b", "n"), "e=1").unwrap();
    check(&disk, &db, "e=1");
}

#[test]
fn no_power_loss_lets_a_part_of_a_replacement_in() {
    no_power_loss_parts(
        |disk, db, other| {
            let file = |name, entries| write_file(&disk.options(), name, entries);
            put_synced(db, "gone", "1"); // Between the two, in one table with what stays.
            put_synced(db, "zz", "stays");
            db.flush().unwrap();
            db.ingest_external_files_of(&[
                files_of(db.default_column_family(), file("d", "a=file k=file"), range("a", "z")),
                files_of(other, file("o", "a=file1 k=file2"), ALL),
            ])
            .unwrap();
        },
        |_, db, is_in, at| {
            assert!(!is_in || (get(db, "gone"), get(db, "zz")) == ("-".into(), "stays".into()), "{at}");
        },
    );
}
