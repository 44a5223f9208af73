//! Files that are prepared first, and ingested later.

use crate::disk::{Disk, all, all_of, fresh, get, get_in, put_synced, refused, rewrite_all, shape};
use crate::ingest::{no_power_loss_parts, write_file};
use ironstone::vfs::FileSystem;
use ironstone::{Code, ColumnFamily, Db, FileIngestionHandle, IngestFiles, IngestOptions};
use std::path::PathBuf;

fn prepare(db: &Db, cf: &ColumnFamily, path: PathBuf, options: &IngestOptions) -> FileIngestionHandle {
    let files = [IngestFiles::new(cf, vec![path], options.clone())];
    db.prepare_file_ingestion(&files).unwrap()
}

fn prepare_in(disk: &Disk, db: &Db, name: &str, entries: &str) -> FileIngestionHandle {
    let path = write_file(&disk.options(), name, entries);
    prepare(db, db.default_column_family(), path, &IngestOptions::default())
}

#[test]
fn nothing_is_seen_before_the_commit_and_all_counts_as_written_then() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "before");
    let handle = prepare_in(&disk, &db, "in", "a=file b=file c=file");
    assert_eq!(handle.file_count(), 1);
    assert_eq!((disk.tables().len(), db.live_files().len()), (1, 0), "it is here, and nobody knows of it");
    put_synced(&db, "b", "between");
    assert_eq!(all(&db), "a=before b=between");
    db.flush().unwrap();
    let early = db.snapshot();
    db.commit_file_ingestion_handle(handle).unwrap();
    put_synced(&db, "c", "after");
    assert_eq!(all(&db), "a=file b=file c=after");
    let past = ironstone::ReadOptions { snapshot: Some(early), ..Default::default() };
    assert_eq!(crate::disk::get_with(&db, &past, db.default_column_family(), "b"), "between");
    assert_eq!(shape(&db), [2]);
    drop((past, db));
    let db = disk.lose_power().open();
    assert_eq!(all(&db), "a=file b=file c=after");
    rewrite_all(&db);
    assert_eq!(all(&db), "a=file b=file c=after");
}

#[test]
fn what_is_given_up_leaves_nothing_behind() {
    let (disk, db) = fresh();
    let moved = IngestOptions { move_files: true, ..IngestOptions::default() };
    let path = write_file(&disk.options(), "in", "a=1");
    for abort in [false, true] {
        let handle = prepare(&db, db.default_column_family(), path.clone(), &moved);
        assert_eq!(disk.tables().len(), 1);
        if abort {
            handle.abort()
        } else {
            drop(handle)
        }
        assert_eq!(disk.tables().len(), 0);
        assert!(disk.exists(&path), "only what goes in is moved");
    }
    let handle = prepare(&db, db.default_column_family(), path.clone(), &moved);
    db.commit_file_ingestion_handle(handle).unwrap();
    assert!(!disk.exists(&path));
    assert_eq!(all(&db), "a=1");
    refused(db.commit_file_ingestion_handles(Vec::new()), Code::InvalidArgument, "no file ingestion handles");
}

#[test]
fn handles_for_one_column_family_count_in_their_order() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.create_missing_column_families = true;
    let db = disk.open_families(&options, &["other"]).unwrap();
    let other = db.column_family("other").unwrap();
    let one = prepare_in(&disk, &db, "one", "a=1 b=1 c=1");
    let two = prepare_in(&disk, &db, "two", "b=2 c=2");
    let of_other =
        prepare(&db, &other, write_file(&disk.options(), "of_other", "k=other"), &IngestOptions::default());
    let three = prepare_in(&disk, &db, "three", "c=3 d=3");
    db.commit_file_ingestion_handles(vec![two, one, of_other, three]).unwrap();
    assert_eq!(all(&db), "a=1 b=1 c=3 d=3");
    assert_eq!(all_of(&db, &other), "k=other");
    rewrite_all(&db);
    assert_eq!(all(&db), "a=1 b=1 c=3 d=3");

    let path = write_file(&disk.options(), "four", "e=4");
    let four = prepare_in(&disk, &db, "five", "e=5");
    let differs = IngestOptions { snapshot_consistency: false, ..IngestOptions::default() };
    let five = prepare(&db, db.default_column_family(), path, &differs);
    let of_other =
        prepare(&db, &other, write_file(&disk.options(), "of_other", "l=other"), &IngestOptions::default());
    let result = db.commit_file_ingestion_handles(vec![of_other, four, five]);
    refused(result, Code::InvalidArgument, "must be prepared with the same IngestOptions");
    assert_eq!(get_in(&db, &other, "l"), "-");

    // Together they need what each alone does not.
    let unnumbered = IngestOptions { allow_global_seqno: false, ..IngestOptions::default() };
    let [six, seven] = ["six", "seven"].map(|name| {
        let path = write_file(&disk.options(), name, "f=6");
        prepare(&db, db.default_column_family(), path, &unnumbered)
    });
    refused(
        db.commit_file_ingestion_handles(vec![six, seven]),
        Code::InvalidArgument,
        "the files overlap each other",
    );
    disk.wait_until("what was refused is gone", || disk.tables().len() == db.live_files().len());
    assert_eq!(all(&db), "a=1 b=1 c=3 d=3");
}

#[test]
fn a_column_family_that_is_dropped_meanwhile_refuses_all() {
    let (disk, db) = fresh();
    let cf = db.create_column_family("gone", &disk.options().cf).unwrap();
    let handle = prepare(&db, &cf, write_file(&disk.options(), "in", "a=1"), &IngestOptions::default());
    let mine = prepare_in(&disk, &db, "mine", "b=1");
    db.drop_column_family(&cf).unwrap();
    let result = db.commit_file_ingestion_handles(vec![mine, handle]);
    refused(result, Code::ColumnFamilyDropped, "gone");
    assert_eq!((all(&db), disk.tables().len()), (String::new(), 0));
}

#[test]
fn handles_belong_to_one_opening() {
    let (disk, db) = fresh();
    let handle = prepare_in(&disk, &db, "in", "a=1");
    let (other_disk, other) = fresh();
    let result = other.commit_file_ingestion_handle(handle);
    refused(result, Code::InvalidArgument, "of another database");
    assert_eq!((disk.tables().len(), other_disk.tables().len()), (0, 0));

    let early = prepare_in(&disk, &db, "in", "a=1");
    let late = prepare_in(&disk, &db, "late", "b=1");
    let closed = prepare_in(&disk, &db, "closed", "c=1");
    db.close().unwrap();
    assert!(db.commit_file_ingestion_handle(closed).is_err(), "it is closed");
    drop(db);
    assert_eq!(disk.tables().len(), 3, "after the closing nobody removes files");
    let db = disk.open();
    assert_eq!(disk.tables().len(), 0, "but the next opening does");
    for key in ["x", "y", "z"] {
        put_synced(&db, key, "1");
        db.flush().unwrap();
    }
    drop(early);
    refused(db.commit_file_ingestion_handle(late), Code::InvalidArgument, "of an earlier opening");
    assert_eq!(disk.tables().len(), 3);
    drop(db);
    assert_eq!(all(&disk.open()), "x=1 y=1 z=1");
}

#[test]
fn what_was_prepared_survives_no_crash_and_what_it_was_linked_from_does() {
    for move_files in [false, true] {
        let (disk, db) = fresh();
        // The MANIFEST knows no number after this one's.
        put_synced(&db, "f", "flushed");
        db.flush().unwrap();
        let linked = IngestOptions { link_files: !move_files, move_files, ..IngestOptions::default() };
        let paths: Vec<PathBuf> =
            (0..4).map(|at| write_file(&disk.options(), &format!("in{at}"), "a=file b=file")).collect();
        let before: Vec<_> = paths.iter().map(|path| disk.fs.read_all(path).unwrap()).collect();
        let handles: Vec<_> = paths
            .iter()
            .map(|path| prepare(&db, db.default_column_family(), path.clone(), &linked))
            .collect();
        // What is replayed goes to a table, whose number must not be that of one of the links.
        put_synced(&db, "k", "logged");
        let disk = disk.kill();
        drop((handles, db));
        assert_eq!(disk.tables().len(), 5);
        let db = disk.open();
        assert_eq!(all(&db), "f=flushed k=logged");
        assert_eq!(disk.tables().len(), db.live_files().len());
        for (path, before) in paths.iter().zip(&before) {
            assert!(disk.fs.read_all(path).unwrap() == *before, "{} was overwritten", path.display());
        }
        db.ingest_external_files(db.default_column_family(), &paths[..1], &linked).unwrap();
        assert_eq!(all(&db), "a=file b=file f=flushed k=logged");
    }
}

#[test]
fn no_power_loss_lets_a_part_of_several_handles_in() {
    let ingest = |disk: &Disk, db: &Db, other: &ColumnFamily| {
        let one = prepare_in(disk, db, "d", "a=file k=file");
        let file = |name, entries| write_file(&disk.options(), name, entries);
        let of_other = prepare(db, other, file("o1", "a=file1 k=file1"), &IngestOptions::default());
        put_synced(db, "between", "1");
        let two = prepare(db, other, file("o2", "k=file2"), &IngestOptions::default());
        db.commit_file_ingestion_handles(vec![one, of_other, two]).unwrap();
    };
    no_power_loss_parts(ingest, |crashed, db, is_in, at| {
        assert!(!is_in || get(db, "between") == "1", "{at}");
        assert_eq!(crashed.tables().len(), db.live_files().len(), "{at}");
    });
}

#[test]
fn writers_go_on_while_files_are_prepared_and_committed() {
    let (disk, db) = fresh();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..300 {
                db.put("a", format!("w{round}")).unwrap();
                db.put("m", format!("w{round}")).unwrap();
            }
        });
        for round in 0..20 {
            let handles = vec![
                prepare_in(&disk, &db, "one", &format!("fa={round} n={round}")),
                prepare_in(&disk, &db, "two", &format!("a=f{round} fb={round}")),
            ];
            let given_up = prepare_in(&disk, &db, "three", "fa=wrong");
            db.commit_file_ingestion_handles(handles).unwrap();
            drop(given_up);
            assert_eq!((get(&db, "fa"), get(&db, "fb")), (round.to_string(), round.to_string()));
        }
        writer.join().unwrap();
    });
    assert_eq!(get(&db, "m"), "w299");
    drop(db);
    let db = disk.lose_power().open();
    assert_eq!(get(&db, "n"), "19");
}

#[test]
fn a_database_that_is_only_read_prepares_nothing() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    db.close().unwrap();
    let path = write_file(&disk.options(), "in", "a=2");
    let db = disk.open_read_only(&disk.options(), &[]).unwrap();
    let files = [IngestFiles::new(db.default_column_family(), vec![path], IngestOptions::default())];
    refused(db.prepare_file_ingestion(&files), Code::NotSupported, "reading only");
    assert_eq!(disk.tables().len(), 0);
}
