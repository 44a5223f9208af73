//! The log as a stream, and its archive.

use crate::disk::{Disk, all, fresh, get, put_synced, put_unlogged, refused};
use ironstone::vfs::{FileSystem, ManualClock};
use ironstone::{
    BatchRecord, Code, Db, IngestOptions, Options, SequenceNumber, SstFileWriter, WalIterator, WriteBatch,
    WriteOptions,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn archiving(disk: &Disk) -> Options {
    let mut options = disk.options();
    options.db.wal_ttl_seconds = 3600;
    options
}

fn since(db: &Db, sequence: u64) -> WalIterator {
    db.get_updates_since(SequenceNumber(sequence)).unwrap()
}

/// What there is, as `sequence:key=value,..` with blanks between.
fn drain(updates: &mut WalIterator) -> String {
    let mut all = Vec::new();
    while let Some(update) = updates.next_update().unwrap() {
        let records = update.batch.iter().map(|record| match record.unwrap() {
            BatchRecord::Put { key, value, .. } => format!("{}={}", key.escape_ascii(), value.escape_ascii()),
            BatchRecord::Delete { key, .. } => format!("{}-", key.escape_ascii()),
            BatchRecord::LogData(blob) => format!("({})", blob.escape_ascii()),
            other => format!("{other:?}"),
        });
        let records: Vec<_> = records.collect();
        all.push(format!("{}:{}", update.sequence, records.join(",")));
    }
    all.join(" ")
}

#[test]
fn batches_come_in_order_with_their_numbers_and_log_data() {
    let (_disk, db) = fresh();
    db.put("a", "1").unwrap();
    let mut batch = WriteBatch::new();
    batch.put_log_data(b"who");
    batch.put("b", "2");
    batch.delete("a");
    db.write(&batch, &WriteOptions::default()).unwrap();
    let mut only_data = WriteBatch::new();
    only_data.put_log_data(b"mark");
    db.write(&only_data, &WriteOptions::default()).unwrap();
    db.put("c", "3").unwrap();
    assert_eq!(drain(&mut since(&db, 0)), "1:a=1 2:(who),b=2,a- 4:(mark) 4:c=3");
    assert_eq!(drain(&mut since(&db, 2)), "2:(who),b=2,a- 4:(mark) 4:c=3");
    assert_eq!(drain(&mut since(&db, 3)), "2:(who),b=2,a- 4:(mark) 4:c=3", "the batch that holds write 3");
    assert_eq!(drain(&mut since(&db, 4)), "4:(mark) 4:c=3");
    let mut tail = since(&db, 5);
    assert_eq!(drain(&mut tail), "");
    db.put("d", "4").unwrap();
    assert_eq!(drain(&mut tail), "5:d=4");
    refused(db.get_updates_since(SequenceNumber(7)), Code::NotFound, "not yet written");
}

#[test]
fn log_data_alone_comes_with_the_next_write() {
    let (_disk, db) = fresh();
    let mut only_data = WriteBatch::new();
    only_data.put_log_data(b"mark");
    db.put("a", "1").unwrap();
    db.write(&only_data, &WriteOptions::default()).unwrap();
    let mut tail = since(&db, 1);
    assert_eq!(drain(&mut tail), "1:a=1");
    db.write(&only_data, &WriteOptions::default()).unwrap();
    assert_eq!(drain(&mut tail), "");
    db.put("b", "2").unwrap();
    assert_eq!(drain(&mut tail), "2:(mark) 2:(mark) 2:b=2");
}

#[test]
fn the_stream_crosses_wals_archived_and_live_and_goes_on_after_reopening() {
    let disk = Disk::new();
    let options = archiving(&disk);
    let mut expected = Vec::new();
    for round in 0..3 {
        let db = disk.open_with(&options);
        let mut tail = since(&db, db.latest_sequence().0 + 1);
        for i in 0..5 {
            let next = db.latest_sequence().0 + 1;
            db.put(format!("k{i}"), format!("{round}")).unwrap();
            expected.push(format!("{next}:k{i}={round}"));
            if i % 2 == 0 {
                db.flush().unwrap();
            }
        }
        assert_eq!(drain(&mut tail), expected[round * 5..].join(" "));
        assert_eq!(drain(&mut since(&db, 1)), expected.join(" "));
        db.close().unwrap();
    }
    let db = disk.open_with(&options);
    assert_eq!(drain(&mut since(&db, 1)), expected.join(" "));
    let files = db.sorted_wal_files().unwrap();
    assert!(files.is_sorted_by_key(|file| file.number), "{files:?}");
    assert!(files.iter().filter(|file| file.archived).count() >= 9, "{files:?}");
    assert!(files.iter().any(|file| !file.archived), "{files:?}");
    assert!(files.iter().all(|file| disk.exists(&file.path)), "{files:?}");
    assert_eq!(files[0].start_sequence, Some(SequenceNumber(1)));
}

#[test]
fn what_is_written_to_a_wal_after_it_was_opened_is_not_passed_over_when_it_is_closed() {
    let disk = Disk::new();
    let db = disk.open_with(&archiving(&disk));
    db.put("a", "1").unwrap();
    db.put("b", "2").unwrap();
    let mut tail = since(&db, 1);
    assert_eq!(tail.next_update().unwrap().unwrap().sequence, SequenceNumber(1));
    db.put("c", "3").unwrap();
    db.flush().unwrap();
    db.put("d", "4").unwrap();
    assert_eq!(drain(&mut tail), "2:b=2 3:c=3 4:d=4");
}

#[test]
fn the_end_of_a_wal_that_reuses_an_old_file_is_found() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.recycle_log_file_num = 2;
    let db = disk.open_with(&options);
    for round in 0..6 {
        let mut tail = since(&db, db.latest_sequence().0 + 1);
        let mut expected = Vec::new();
        for i in 0..200 {
            expected.push(format!("{}:k{i}={round}", db.latest_sequence().0 + 1));
            db.put(format!("k{i}"), format!("{round}")).unwrap();
            if i % 3 == 0 {
                assert_eq!(drain(&mut tail), expected.join(" "));
                expected.clear();
            }
        }
        assert_eq!(drain(&mut tail), expected.join(" "));
        db.flush().unwrap();
        disk.wait_until("the old WAL is put aside", || db.sorted_wal_files().unwrap().len() == 1);
    }
}

#[test]
fn what_is_no_longer_there_is_said_so() {
    let (_disk, db) = fresh();
    put_synced(&db, "a", "1");
    let mut late = since(&db, 1);
    db.flush().unwrap();
    put_synced(&db, "b", "2");
    db.wait_for_compact().unwrap();
    _disk.wait_until("the old WAL is removed", || _disk.files(".log").len() == 1);
    let error = refused(db.get_updates_since(SequenceNumber(1)), Code::NotFound, "no longer in the log");
    assert!(error.to_string().contains("begins with 2"), "{error}");
    refused(late.next_update(), Code::NotFound, "no longer in the log");
    assert_eq!(drain(&mut since(&db, 2)), "2:b=2");
}

#[test]
fn what_went_around_the_log_is_a_gap_that_is_told_once() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    let mut tail = since(&db, 1);
    assert_eq!(drain(&mut tail), "1:a=1");
    put_unlogged(&db, "b", "2").unwrap();
    assert!(tail.next_update().unwrap().is_none());
    put_synced(&db, "c", "3");
    refused(tail.next_update(), Code::Incomplete, "writes 2 to 2 are in no log");
    assert_eq!(drain(&mut tail), "3:c=3");
    let mut writer = SstFileWriter::new(&disk.options());
    writer.open("/in.sst").unwrap();
    writer.put("x", "4").unwrap();
    writer.finish().unwrap();
    db.ingest_external_files(db.default_column_family(), &["/in.sst"], &IngestOptions::default()).unwrap();
    put_synced(&db, "d", "5");
    refused(tail.next_update(), Code::Incomplete, "writes 4 to 4 are in no log");
    assert_eq!(drain(&mut tail), "5:d=5");
    refused(since(&db, 2).next_update(), Code::Incomplete, "writes 2 to 2");
}

#[test]
fn a_killed_process_leaves_its_log_to_the_next() {
    let disk = Disk::new();
    let options = archiving(&disk);
    let db = disk.open_with(&options);
    put_synced(&db, "a", "1");
    db.put("b", "2").unwrap();
    let disk = disk.kill();
    drop(db);
    let db = disk.open_with(&archiving(&disk));
    put_synced(&db, "c", "3");
    assert_eq!(drain(&mut since(&db, 1)), "1:a=1 2:b=2 3:c=3");
    let disk = disk.lose_power();
    drop(db);
    let db = disk.open_with(&archiving(&disk));
    assert_eq!(drain(&mut since(&db, 3)), "3:c=3");
    assert_eq!(all(&db), "a=1 b=2 c=3");
}

#[test]
fn the_archive_is_kept_for_a_time_and_up_to_a_size() {
    let clock = Arc::new(ManualClock::new(1_000_000_000));
    let disk = Disk::with_clock(&clock);
    let db = disk.open_with(&archiving(&disk));
    let archived =
        |disk: &Disk| disk.files(".log").iter().filter(|path| path.starts_with("/db/archive")).count();
    let one_more = || {
        put_synced(&db, "k", "v");
        let before = db.sorted_wal_files().unwrap().len();
        db.flush().unwrap();
        disk.wait_until("it is archived", || {
            db.sorted_wal_files().unwrap().iter().filter(|file| !file.archived).count() == 1
        });
        before
    };
    one_more();
    one_more();
    assert_eq!(archived(&disk), 2);
    clock.advance(std::time::Duration::from_secs(3601));
    one_more();
    disk.wait_until("the old ones are removed", || archived(&disk) <= 1);
    drop(db);

    let mut options = disk.options();
    options.db.wal_size_limit_mb = 1;
    let disk = Disk::new();
    let db = disk.open_with(&options);
    for i in 0..8 {
        db.put(format!("{i}"), vec![b'x'; 300 << 10]).unwrap();
        db.flush().unwrap();
    }
    let bytes = || -> u64 {
        let files = db.sorted_wal_files().unwrap();
        // One may be removed as soon as it was listed.
        let archived = files.iter().filter(|file| file.archived);
        archived.map(|file| disk.fs.size(&file.path).unwrap_or(0)).sum()
    };
    disk.wait_until("the archive is within its limit", || bytes() <= 1 << 20);
    disk.wait_until("it is not empty", || bytes() > 600 << 10);
}

#[test]
fn a_replica_that_follows_the_stream_ends_up_equal() {
    let disk = Disk::new();
    let mut options = archiving(&disk);
    options.cf.write_buffer_size = 64 << 10;
    options.db.recycle_log_file_num = 0;
    let db = disk.open_with(&options);
    let replica_disk = Disk::new();
    let replica = replica_disk.open();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3u64)
            .map(|writer| {
                let db = &db;
                scope.spawn(move || {
                    for i in 0..2000u64 {
                        let mut batch = WriteBatch::new();
                        batch.put(format!("{writer}-{}", i % 97), format!("{i}"));
                        batch.delete(format!("{writer}-{}", i * 7 % 97));
                        batch.put_log_data(&writer.to_le_bytes());
                        db.write(&batch, &WriteOptions { sync: i % 50 == 0, ..WriteOptions::default() })
                            .unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut updates = since(&db, 1);
            loop {
                let finished = done.load(Ordering::Acquire);
                match updates.next_update().unwrap() {
                    Some(update) => {
                        assert_eq!(update.sequence, replica.latest_sequence().plus(1));
                        replica.write(&update.batch, &WriteOptions::default()).unwrap();
                    }
                    None if finished => break,
                    None => std::thread::yield_now(),
                }
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Release);
    });
    assert_eq!(replica.latest_sequence(), db.latest_sequence());
    assert_eq!(all(&replica), all(&db));
    assert_ne!(get(&db, "0-1"), "never");
}

#[test]
fn a_database_that_is_open_for_reading_only_shows_its_log_as_far_as_it_reads() {
    let disk = Disk::new();
    let db = disk.open_with(&archiving(&disk));
    put_synced(&db, "a", "1");
    db.flush().unwrap();
    put_synced(&db, "b", "2");
    db.flush().unwrap();
    db.put("c", "3").unwrap();
    let reader = disk.open_read_only(&archiving(&disk), &[]).unwrap();
    let mut updates = since(&reader, 1);
    assert_eq!(drain(&mut updates), "1:a=1 2:b=2 3:c=3");
    let mut tail = since(&reader, 4);
    // What is written beside it is not for this reader.
    db.put("d", "4").unwrap();
    db.flush().unwrap();
    db.put("e", "5").unwrap();
    assert_eq!((drain(&mut updates), drain(&mut tail)), (String::new(), String::new()));
    refused(reader.get_updates_since(SequenceNumber(5)), Code::NotFound, "not yet written");
    let names =
        |db: &Db| db.sorted_wal_files().unwrap().into_iter().map(|wal| wal.number).collect::<Vec<_>>();
    assert_eq!(names(&reader), names(&db));
    assert!(names(&db).len() >= 3);
    drop((updates, tail, reader));
    db.close().unwrap();
    drop(db);
    let reader = disk.open_read_only(&archiving(&disk), &[]).unwrap();
    assert_eq!(drain(&mut since(&reader, 2)), "2:b=2 3:c=3 4:d=4 5:e=5");

    // Without any log, there is nothing to show, and nothing is missing.
    let disk = Disk::new();
    drop(disk.open());
    disk.files(".log").iter().for_each(|wal| disk.fs.remove(wal).unwrap());
    let reader = disk.open_read_only(&disk.options(), &[]).unwrap();
    assert_eq!(reader.sorted_wal_files().unwrap().len(), 0);
    assert_eq!(drain(&mut since(&reader, 1)), "");
}
