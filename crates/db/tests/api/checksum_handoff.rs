//! Data goes to the file system with checksums, which finds out what memory did to it on the way.

use crate::disk::{Disk, all, put_synced, refused};
use ironstone::options::{ChecksumHandoffFileTypes, Options};
use ironstone::vfs::OpKind;
use ironstone::vfs::fault::{Fault, FaultRule};
use ironstone::{
    Code, CompactRangeOptions, Db, FileTraceWriter, GenericRateLimiter, SstFileReader, SstFileWriter,
    TraceOptions,
};
use std::sync::Arc;

fn handing_over(disk: &Disk, types: ChecksumHandoffFileTypes) -> Options {
    let mut options = disk.options();
    options.db.checksum_handoff_file_types = types;
    // Files stand before files.
    options.db.set("file_checksum_gen_factory", "FileChecksumGenCrc32cFactory").unwrap();
    options.db.rate_limiter = Some(Arc::new(GenericRateLimiter::new(1 << 30)));
    options
}

const NONE: ChecksumHandoffFileTypes =
    ChecksumHandoffFileTypes { wal: false, table: false, descriptor: false };

/// From now on one bit of the next append to a file of that name is another one.
fn flip(disk: &Disk, name: &str) {
    disk.faults.clear();
    disk.faults.arm();
    disk.faults.add(FaultRule::new(Fault::FlipWrittenBit(100)).on(&[OpKind::Append]).path(name));
}

fn trace(disk: &Disk, db: &Db) {
    let writer = FileTraceWriter::create(&disk.fs, "/io.trace").unwrap();
    db.start_io_trace(&TraceOptions::default(), Box::new(writer)).unwrap();
}

#[test]
fn tables_are_refused_that_change_on_their_way() {
    for traced in [false, true] {
        for table in [true, false] {
            let disk = Disk::new();
            let db = disk.open_with(&handing_over(&disk, ChecksumHandoffFileTypes { table, ..NONE }));
            if traced {
                trace(&disk, &db);
            }
            for value in ["1", "2"] {
                db.put("a", value).unwrap();
                db.flush().unwrap();
            }
            flip(&disk, ".sst");
            let all_keys = CompactRangeOptions::default();
            let compacted = db.compact_range(&all_keys, db.default_column_family(), None, None);
            disk.faults.disarm();
            if table {
                refused(compacted, Code::Corruption, "was handed over with");
                assert_eq!(all(&db), "a=2");
                db.verify_checksum().unwrap();
            } else {
                compacted.unwrap();
                refused(db.verify_checksum(), Code::Corruption, ".sst");
            }
        }
    }
}

#[test]
fn flushes_fail_whose_tables_change_on_their_way() {
    let disk = Disk::new();
    let db = disk.open_with(&handing_over(&disk, ChecksumHandoffFileTypes { table: true, ..NONE }));
    db.put("a", "1").unwrap();
    flip(&disk, ".sst");
    refused(db.flush(), Code::Corruption, "was handed over with");
    disk.faults.disarm();
    drop(db);
    assert_eq!(all(&disk.kill().open()), "a=1", "the WAL has it");
}

#[test]
fn writes_fail_whose_record_changes_on_its_way_to_the_wal() {
    for wal in [true, false] {
        let disk = Disk::new();
        let db = disk.open_with(&handing_over(&disk, ChecksumHandoffFileTypes { wal, ..NONE }));
        put_synced(&db, "a", "1");
        flip(&disk, ".log");
        let put = db.put("b", "2");
        disk.faults.disarm();
        drop(db);
        let found = all(&disk.kill().try_open(&tolerant(&disk)).unwrap());
        if wal {
            refused(put, Code::Corruption, ".log");
            assert_eq!(found, "a=1", "what was refused is not there");
        } else {
            put.unwrap();
            assert_ne!(found, "a=1 b=2", "nobody knew");
        }
    }
}

/// Opens whatever the WAL has lost.
fn tolerant(disk: &Disk) -> Options {
    let mut options = disk.options();
    options.db.strict_wal_recovery = false;
    options
}

#[test]
fn manifests_are_given_up_that_change_on_their_way() {
    let types = ChecksumHandoffFileTypes { descriptor: true, ..NONE };
    let disk = Disk::new();
    let db = disk.open_with(&handing_over(&disk, types));
    db.put("a", "1").unwrap();
    flip(&disk, "MANIFEST");
    refused(db.flush(), Code::Corruption, "MANIFEST");
    disk.faults.disarm();
    db.resume().unwrap();
    db.put("b", "2").unwrap();
    db.flush().unwrap();
    drop(db);
    assert_eq!(all(&disk.lose_power().open()), "a=1 b=2");

    let disk = Disk::new();
    let db = disk.open_with(&handing_over(&disk, NONE));
    db.put("a", "1").unwrap();
    flip(&disk, "MANIFEST");
    db.flush().unwrap();
}

#[test]
fn files_of_the_writer_are_refused_that_change_on_their_way() {
    for table in [true, false] {
        let disk = Disk::new();
        let options = handing_over(&disk, ChecksumHandoffFileTypes { table, ..NONE });
        let mut writer = SstFileWriter::new(&options);
        writer.open("/outside.sst").unwrap();
        writer.put("a", "1").unwrap();
        flip(&disk, ".sst");
        let finished = writer.finish();
        disk.faults.disarm();
        if table {
            refused(finished, Code::Corruption, "/outside.sst at 0");
        } else {
            finished.unwrap();
            let reader = SstFileReader::open(&disk.options(), "/outside.sst").unwrap();
            refused(reader.verify_checksum(), Code::Corruption, "/outside.sst");
        }
    }
}

#[test]
fn a_database_with_all_checksums_works() {
    let disk = Disk::new();
    let types = ChecksumHandoffFileTypes { wal: true, table: true, descriptor: true };
    let mut options = handing_over(&disk, types);
    options.db.recycle_log_file_num = 2;
    for round in 0..3 {
        let db = disk.open_with(&options);
        for key in 0..200 {
            db.put(format!("key{key:03}"), format!("{round}")).unwrap();
        }
        db.flush().unwrap();
        put_synced(&db, "last", &round.to_string());
        db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None).unwrap();
        db.verify_checksum().unwrap();
        db.verify_file_checksums().unwrap();
        drop(db);
    }
    let db = disk.lose_power().open();
    assert_eq!(db.iter().unwrap().entries().count(), 201);
}
