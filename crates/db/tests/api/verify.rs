//! Checks of everything that is stored: blocks, whole files, and what was just written.

use crate::disk::{Disk, refused};
use ironstone::options::Options;
use ironstone::vfs::FileSystem;
use ironstone::{
    Code, CompactRangeOptions, Db, FileChecksumContext, FileChecksumGenCrc32cFactory, FileChecksumGenFactory,
    FileChecksumGenerator, IngestOptions, SstFileWriter,
};
use std::sync::Arc;

fn checked(disk: &Disk) -> Options {
    let mut options = disk.options();
    options.db.set("file_checksum_gen_factory", "FileChecksumGenCrc32cFactory").unwrap();
    options
}

/// A database with tables of flushes, of a compaction and from outside, in two column families.
fn filled(disk: &Disk, options: &Options) -> Db {
    let db = disk.open_with(options);
    let other = db.create_column_family("other", &options.cf).unwrap();
    for round in 0..3 {
        for key in 0..200 {
            db.put(format!("key{key:03}"), format!("{round}")).unwrap();
            db.put_cf(&Default::default(), &other, format!("key{key:03}"), format!("{round}")).unwrap();
        }
        db.flush().unwrap();
    }
    db.compact_range(&CompactRangeOptions::default(), &other, None, None).unwrap();
    let mut writer = SstFileWriter::new(options);
    writer.open("/outside.sst").unwrap();
    writer.put(b"outside", b"v").unwrap();
    let info = writer.finish().unwrap();
    assert_eq!(info.file_checksum.is_empty(), options.db.file_checksum_gen_factory.is_none());
    db.ingest_external_files(db.default_column_family(), &["/outside.sst"], &IngestOptions::default())
        .unwrap();
    db.flush_cf(&Default::default(), &other).unwrap();
    db
}

#[test]
fn every_new_table_has_a_checksum_that_outlives_the_database() {
    let disk = Disk::new();
    let options = checked(&disk);
    let db = filled(&disk, &options);
    let check = |db: &Db| {
        let files = db.live_files();
        assert!(files.len() >= 5, "{files:?}");
        for file in &files {
            assert_eq!((file.file_checksum.len(), &*file.file_checksum_func_name), (4, "FileChecksumCrc32c"));
        }
        db.verify_file_checksums().unwrap();
        db.verify_checksum().unwrap();
    };
    check(&db);
    db.close().unwrap();
    let db = disk.open_families(&options, &["other"]).unwrap();
    check(&db);
    drop(db);
    // Without a factory nobody checks, and nobody forgets.
    let db = disk.open_families(&disk.options(), &["other"]).unwrap();
    refused(db.verify_file_checksums(), Code::InvalidArgument, "file_checksum_gen_factory");
    assert!(db.live_files().iter().all(|file| file.file_checksum.len() == 4));
    db.put("new", "v").unwrap();
    db.flush().unwrap();
    drop(db);
    // Tables that have none are passed over.
    let db = disk.open_families(&options, &["other"]).unwrap();
    assert!(db.live_files().iter().any(|file| file.file_checksum.is_empty()));
    db.verify_file_checksums().unwrap();
}

#[test]
fn a_changed_byte_is_found_wherever_it_is() {
    let disk = Disk::new();
    let options = checked(&disk);
    let db = filled(&disk, &options);
    disk.fs.remove("/outside.sst".as_ref()).unwrap(); // A copy of it is in the database.
    let path = disk.newest(".sst");
    let name = path.to_string_lossy().into_owned();
    let len = disk.fs.size(&path).unwrap() as usize;
    for at in (0..len).step_by(37).chain([len - 1]) {
        disk.fs.corrupt(&path, |bytes| bytes[at] ^= 1).unwrap();
        refused(db.verify_file_checksums(), Code::Corruption, &name);
        disk.fs.corrupt(&path, |bytes| bytes[at] ^= 1).unwrap();
    }
    db.verify_file_checksums().unwrap();
    // Blocks are checked without that, too.
    disk.fs.corrupt(&path, |bytes| bytes[10] ^= 1).unwrap();
    refused(db.verify_checksum(), Code::Corruption, &name);
}

/// A function of the application: the length.
struct Length;

impl FileChecksumGenFactory for Length {
    fn name(&self) -> &str {
        "test.LengthFactory"
    }
    fn create(&self, _context: &FileChecksumContext<'_>) -> Box<dyn FileChecksumGenerator> {
        Box::new(LengthSoFar(0))
    }
}

struct LengthSoFar(u64);

impl FileChecksumGenerator for LengthSoFar {
    fn name(&self) -> &str {
        "test.Length"
    }
    fn update(&mut self, bytes: &[u8]) {
        self.0 += bytes.len() as u64;
    }
    fn checksum(&self) -> Vec<u8> {
        self.0.to_be_bytes().to_vec()
    }
}

#[test]
fn functions_of_the_application_are_told_apart() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.file_checksum_gen_factory = Some(Arc::new(Length));
    let db = filled(&disk, &options);
    for file in db.live_files() {
        assert_eq!(file.file_checksum, file.size.to_be_bytes());
        assert_eq!(file.file_checksum_func_name, "test.Length");
    }
    db.verify_file_checksums().unwrap();
    drop(db);
    options.db.file_checksum_gen_factory = Some(Arc::new(FileChecksumGenCrc32cFactory));
    let db = disk.open_families(&options, &["other"]).unwrap();
    refused(db.verify_file_checksums(), Code::InvalidArgument, "test.Length");
    // Only code can make it again.
    let unknown = options.db.set("file_checksum_gen_factory", "test.LengthFactory");
    refused(unknown, Code::NotSupported, "test.LengthFactory");
}

#[test]
fn what_was_just_written_is_read_back_if_it_is_wished() {
    let disk = Disk::new();
    let mut options = checked(&disk);
    options.cf.paranoid_file_checks = true;
    let db = filled(&disk, &options);
    db.verify_file_checksums().unwrap();
    db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None).unwrap();
    db.verify_checksum().unwrap();
}
