//! Checks of everything that is stored: blocks, whole files, and what was just written.

use crate::disk::{Disk, all, refused};
use ironstone::options::{Options, VerifyOutputFlags};
use ironstone::vfs::fault::{Fault, FaultRule};
use ironstone::vfs::{FileSystem, OpKind};
use ironstone::{
    Code, CompactRangeOptions, Db, FileChecksumContext, FileChecksumGenCrc32cFactory, FileChecksumGenFactory,
    FileChecksumGenerator, IngestOptions, PrepopulateBlockCache, SstFileWriter,
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

const WHAT: u32 =
    VerifyOutputFlags::BLOCK_CHECKSUM | VerifyOutputFlags::ITERATION | VerifyOutputFlags::FILE_CHECKSUM;

/// Two tables, and the first block of the next one is lost on its way to the disk.
fn about_to_lose_a_block(flags: u32, paranoid: bool) -> (Disk, Db) {
    about_to_lose_a_block_that_is_cached(flags, paranoid, PrepopulateBlockCache::Disable)
}

fn about_to_lose_a_block_that_is_cached(
    flags: u32,
    paranoid: bool,
    cached: PrepopulateBlockCache,
) -> (Disk, Db) {
    let disk = Disk::new();
    let mut options = checked(&disk);
    options.cf.table.prepopulate_block_cache = cached;
    options.cf.verify_output_flags = flags;
    options.cf.paranoid_file_checks = paranoid;
    let db = disk.open_with(&options);
    for value in ["1", "2"] {
        db.put("a", value).unwrap();
        db.put("b", value).unwrap();
        db.flush().unwrap();
    }
    disk.faults.arm();
    disk.faults.add(FaultRule::new(Fault::LostWrite).on(&[OpKind::Append]).path(".sst"));
    (disk, db)
}

#[test]
fn what_is_read_back_is_not_what_is_in_the_cache() {
    use PrepopulateBlockCache::{Disable, FlushAndCompaction};
    let flags = VerifyOutputFlags::ENABLE_FOR_LOCAL_COMPACTION | VerifyOutputFlags::ITERATION;
    for cached in [Disable, FlushAndCompaction] {
        let (disk, db) = about_to_lose_a_block_that_is_cached(flags, false, cached);
        assert_eq!(all(&db), "a=2 b=2", "readers want it");
        let everything = CompactRangeOptions::default();
        let compacted = db.compact_range(&everything, db.default_column_family(), None, None);
        disk.faults.disarm();
        refused(compacted, Code::Corruption, "block");
    }
}

#[test]
fn flags_say_what_is_read_back_after_compactions() {
    let compaction = VerifyOutputFlags::ENABLE_FOR_LOCAL_COMPACTION;
    for (flags, paranoid, found) in [
        (0, false, None),
        (WHAT, false, None),
        (compaction, false, None),
        (WHAT | VerifyOutputFlags::ENABLE_FOR_REMOTE_COMPACTION, false, None),
        (WHAT | VerifyOutputFlags::ENABLE_FOR_FLUSH, false, None),
        (compaction | VerifyOutputFlags::BLOCK_CHECKSUM, false, Some("block")),
        (compaction | VerifyOutputFlags::ITERATION, false, Some("block")),
        (compaction | VerifyOutputFlags::FILE_CHECKSUM, false, Some("the whole file's checksum is")),
        (VerifyOutputFlags::ALL, false, Some("block")),
        (0, true, Some("block")),
    ] {
        let (disk, db) = about_to_lose_a_block(flags, paranoid);
        let compacted =
            db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None);
        disk.faults.disarm();
        match found {
            Some(says) => {
                refused(compacted, Code::Corruption, says);
                assert_eq!((all(&db).as_str(), disk.files(".sst").len()), ("a=2 b=2", 2), "{flags:#x}");
                db.verify_checksum().unwrap();
            }
            None => {
                compacted.unwrap();
                refused(db.verify_checksum(), Code::Corruption, ".sst");
            }
        }
    }
}

#[test]
fn flags_say_what_is_read_back_after_flushes() {
    let flush = VerifyOutputFlags::ENABLE_FOR_FLUSH;
    for (flags, paranoid, found) in [
        (WHAT | VerifyOutputFlags::ENABLE_FOR_LOCAL_COMPACTION, false, None),
        (flush, false, None),
        (flush | VerifyOutputFlags::BLOCK_CHECKSUM, false, Some("block")),
        (flush | VerifyOutputFlags::ITERATION, false, Some("block")),
        (flush | VerifyOutputFlags::FILE_CHECKSUM, false, Some("the whole file's checksum is")),
        (VerifyOutputFlags::ALL, false, Some("block")),
        (0, true, Some("block")),
    ] {
        let (disk, db) = about_to_lose_a_block(flags, paranoid);
        db.put("c", "3").unwrap();
        let flushed = db.flush();
        disk.faults.disarm();
        let Some(says) = found else {
            flushed.unwrap();
            refused(db.verify_checksum(), Code::Corruption, ".sst");
            continue;
        };
        refused(flushed, Code::Corruption, says);
        drop(db);
        // The WAL has it still.
        let db = disk.kill().open();
        assert_eq!(all(&db), "a=2 b=2 c=3", "{flags:#x}");
        db.verify_checksum().unwrap();
    }
}

#[test]
fn flags_change_while_the_database_is_open() {
    let (disk, db) = about_to_lose_a_block(0, false);
    db.set_options(&[("verify_output_flags", "1025")]).unwrap();
    let compacted = db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None);
    disk.faults.disarm();
    refused(compacted, Code::Corruption, "block");
}
