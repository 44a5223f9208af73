//! Files that come from outside.

use crate::disk::{Disk, all, fresh, get, get_in, get_with, put_synced, refused, rewrite_all, shape};
use ironstone::perf::{self, PerfMetric};
use ironstone::vfs::fault::{Fault, FaultError, FaultRule};
use ironstone::vfs::mem::CrashPolicy;
use ironstone::vfs::{Clock, FileSystem, OpKind, SystemClock};
use ironstone::{
    Code, ColumnFamily, Comparator, Db, FileChecksumContext, FileChecksumGenCrc32cFactory,
    FileChecksumGenFactory, IngestFiles, IngestOptions, Options, PreparedFileInfo, ReadOptions, Result,
    SequenceNumber, SstFileWriter, UserComparator, merge_operators,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Writes a file: `key=value` puts, `key-` deletes, `a..b` deletes a range, `key+operand` merges.
pub fn write_file(options: &Options, name: &str, entries: &str) -> PathBuf {
    let path = PathBuf::from(format!("/{name}.sst"));
    let mut writer = SstFileWriter::new(options);
    writer.open(&path).unwrap();
    for entry in entries.split(' ') {
        if let Some((begin, end)) = entry.split_once("..") {
            writer.delete_range(begin, end).unwrap();
        } else if let Some((key, operand)) = entry.split_once('+') {
            writer.merge(key, operand).unwrap();
        } else if let Some(key) = entry.strip_suffix('-') {
            writer.delete(key).unwrap();
        } else {
            let (key, value) = entry.split_once('=').unwrap();
            writer.put(key, value).unwrap();
        }
    }
    writer.finish().unwrap();
    path
}

pub fn ingest_with(disk: &Disk, db: &Db, files: &[&str], options: &IngestOptions) -> Result<()> {
    let write = |(at, entries): (usize, &&str)| write_file(&disk.options(), &format!("in{at}"), entries);
    let files: Vec<PathBuf> = files.iter().enumerate().map(write).collect();
    db.ingest_external_files(db.default_column_family(), &files, options)
}
fn ingest(disk: &Disk, db: &Db, files: &[&str]) {
    ingest_with(disk, db, files, &IngestOptions::default()).unwrap();
}

#[test]
fn a_file_goes_to_the_last_level_and_stays_after_reopening() {
    let (disk, db) = fresh();
    ingest(&disk, &db, &["a=1 b=2 c=3"]);
    assert_eq!(all(&db), "a=1 b=2 c=3");
    assert_eq!(shape(&db), [0, 0, 0, 0, 0, 0, 1]);
    assert!(disk.exists("/in0.sst"), "it was copied");
    drop(db);
    let disk = disk.lose_power();
    let db = disk.open();
    assert_eq!(all(&db), "a=1 b=2 c=3");
    rewrite_all(&db);
    assert_eq!(all(&db), "a=1 b=2 c=3");
}

#[test]
fn it_is_newer_than_what_was_written_before_and_older_than_what_comes_after() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "old");
    put_synced(&db, "x", "untouched");
    let before = db.snapshot();
    ingest(&disk, &db, &["a=file b=file c=file"]);
    put_synced(&db, "c", "new");
    assert_eq!(all(&db), "a=file b=file c=new x=untouched");
    assert_eq!(shape(&db), [2], "the memtable was flushed, and the file is above it");
    let past = ReadOptions { snapshot: Some(before), ..ReadOptions::default() };
    assert_eq!(get_with(&db, &past, db.default_column_family(), "a"), "old");
    assert_eq!(get_with(&db, &past, db.default_column_family(), "b"), "-");
    drop(db);
    let db = disk.lose_power().open();
    assert_eq!(all(&db), "a=file b=file c=new x=untouched");
    rewrite_all(&db);
    assert_eq!(all(&db), "a=file b=file c=new x=untouched");
}

#[test]
fn it_goes_between_the_keys_of_a_table() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    put_synced(&db, "z", "1");
    rewrite_all(&db);
    let last = shape(&db).len() - 1;
    ingest(&disk, &db, &["f=2 g=2"]);
    let mut expected = vec![0; last + 1];
    (expected[last], expected[0]) = (1, 1);
    assert_eq!(shape(&db), expected, "no table has its keys, but the one on the last level is around them");
    ingest(&disk, &db, &["b=3 z=3"]);
    assert_eq!(all(&db), "a=1 b=3 f=2 g=2 z=3");
    rewrite_all(&db);
    assert_eq!(all(&db), "a=1 b=3 f=2 g=2 z=3");
}

#[test]
fn of_several_files_the_last_one_wins() {
    let (disk, db) = fresh();
    ingest(&disk, &db, &["a=1 b=1 c=1", "b=2 c=2", "c=3 d=3"]);
    assert_eq!(all(&db), "a=1 b=2 c=3 d=3");
    rewrite_all(&db);
    assert_eq!(all(&db), "a=1 b=2 c=3 d=3");
    let no_number = IngestOptions { allow_global_seqno: false, ..IngestOptions::default() };
    let result = ingest_with(&disk, &db, &["k=1", "k=2"], &no_number);
    refused(result, Code::InvalidArgument, "Global seqno is required");
    assert_eq!(get(&db, "k"), "-");
}

#[test]
fn range_deletions_tombstones_and_operands_take_effect() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.merge_operator = Some(merge_operators::string_append(","));
    let db = disk.open_with(&options);
    for key in ["a", "b", "c", "d", "m"] {
        put_synced(&db, key, "old");
    }
    let file = write_file(&options, "in", "b=kept d- m+more b..e");
    db.ingest_external_files(db.default_column_family(), &[file], &IngestOptions::default()).unwrap();
    assert_eq!(all(&db), "a=old b=kept m=old,more");
    let only_ranges = write_file(&options, "in2", "a..b");
    db.ingest_external_files(db.default_column_family(), &[only_ranges], &IngestOptions::default()).unwrap();
    assert_eq!(all(&db), "b=kept m=old,more");
    rewrite_all(&db);
    assert_eq!(all(&db), "b=kept m=old,more");
    put_synced(&db, "a", "again");
    assert_eq!(get(&db, "a"), "again");
}

#[test]
fn a_range_deletion_in_the_memtable_is_in_the_way_too() {
    let (disk, db) = fresh();
    (0..10).for_each(|i| put_synced(&db, &format!("b{i}"), "old"));
    rewrite_all(&db);
    db.delete_range("a", "m").unwrap();
    ingest(&disk, &db, &["c=file"]);
    assert_eq!(all(&db), "c=file", "iterators pass over what is below a range deletion that hides much");
    assert_eq!(shape(&db)[0], 2, "it lies above the range deletion");
    drop(db);
    assert_eq!(all(&disk.open()), "c=file");
}

#[test]
fn it_keeps_out_of_where_a_compaction_writes() {
    let (disk, db) = fresh();
    for value in ["1", "2"] {
        put_synced(&db, "a", value);
        put_synced(&db, "z", value);
        db.flush().unwrap();
    }
    disk.faults.arm();
    let slow = Fault::Delay(Duration::from_millis(500));
    let slow = disk.faults.add(FaultRule::new(slow).on(&[OpKind::Sync]).path(".sst"));
    std::thread::scope(|scope| {
        let compacting = scope.spawn(|| rewrite_all(&db));
        disk.wait_until("the compaction syncs its table", || slow.hits() > 0);
        ingest(&disk, &db, &["m=file"]);
        assert_eq!(shape(&db), [3], "no level is free but the first");
        compacting.join().unwrap();
    });
    disk.faults.clear();
    assert_eq!(all(&db), "a=2 m=file z=2");
    rewrite_all(&db);
    drop(db);
    assert_eq!(all(&disk.open()), "a=2 m=file z=2");
}

#[test]
fn options_that_allow_less_refuse_what_would_need_more() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    let no_flush = IngestOptions { allow_blocking_flush: false, ..IngestOptions::default() };
    refused(ingest_with(&disk, &db, &["a=2"], &no_flush), Code::InvalidArgument, "requires flush");
    ingest_with(&disk, &db, &["b=2"], &no_flush).unwrap();
    db.flush().unwrap();
    let no_number = IngestOptions { allow_global_seqno: false, ..IngestOptions::default() };
    refused(ingest_with(&disk, &db, &["a=2"], &no_number), Code::InvalidArgument, "Global seqno is required");
    let snapshot = db.snapshot();
    refused(ingest_with(&disk, &db, &["c=2"], &no_number), Code::InvalidArgument, "Global seqno is required");
    drop(snapshot);
    ingest_with(&disk, &db, &["c=2"], &no_number).unwrap();
    let zero: Vec<_> = db.live_files().iter().map(|file| file.largest_sequence).collect();
    assert!(zero.contains(&SequenceNumber(0)), "{zero:?}");
    let last_only = IngestOptions { fail_if_not_bottommost_level: true, ..IngestOptions::default() };
    refused(ingest_with(&disk, &db, &["c=3"], &last_only), Code::TryAgain, "Lmax");
    assert_eq!(all(&db), "a=1 b=2 c=2");
    let tables = disk.tables().len();
    assert_eq!(tables, db.live_files().len(), "what was refused left nothing behind");
}

#[test]
fn files_are_moved_or_linked_if_so_wanted() {
    let (disk, db) = fresh();
    let moved = IngestOptions { move_files: true, ..IngestOptions::default() };
    ingest_with(&disk, &db, &["a=1"], &moved).unwrap();
    assert!(!disk.exists("/in0.sst"));
    let linked = IngestOptions { link_files: true, ..IngestOptions::default() };
    ingest_with(&disk, &db, &["b=1"], &linked).unwrap();
    assert!(disk.exists("/in0.sst"));
    let both = IngestOptions { link_files: true, move_files: true, ..IngestOptions::default() };
    let result = db.ingest_external_files(db.default_column_family(), &["/in0.sst"], &both);
    refused(result, Code::InvalidArgument, "can not both be true");
    drop(db);
    assert_eq!(all(&disk.lose_power().open()), "a=1 b=1");
}

#[test]
fn other_files_are_refused() {
    let (disk, db) = fresh();
    let ingest_path = |path: &Path, options: &IngestOptions| {
        db.ingest_external_files(db.default_column_family(), &[path], options)
    };
    let default = IngestOptions::default();
    assert!(ingest_path(Path::new("/none.sst"), &default).unwrap_err().is_path_not_found());
    refused(
        db.ingest_external_files(db.default_column_family(), &[] as &[&Path], &default),
        Code::InvalidArgument,
        "no files",
    );
    put_synced(&db, "a", "1");
    db.flush().unwrap();
    refused(ingest_path(&disk.newest(".sst"), &default), Code::InvalidArgument, "version not found");
    disk.fs.write_all_synced(Path::new("/bad.sst"), b"nonsense").unwrap();
    refused(ingest_path(Path::new("/bad.sst"), &default), Code::Corruption, "/bad.sst");

    let many: String = (0..2000).map(|i| format!("key{i:04}=value ")).collect();
    let path = write_file(&disk.options(), "flipped", many.trim_end());
    let mut bytes = disk.fs.read_all(&path).unwrap();
    bytes[1000] ^= 4;
    disk.fs.write_all_synced(&path, &bytes).unwrap();
    let checked = IngestOptions { verify_checksums_before_ingest: true, ..IngestOptions::default() };
    refused(ingest_path(&path, &checked), Code::Corruption, "/flipped.sst");

    let cf = db.create_column_family("other", &disk.options().cf).unwrap();
    let mut writer = SstFileWriter::for_column_family(&disk.options(), &cf);
    writer.open("/other.sst").unwrap();
    writer.put("k", "v").unwrap();
    writer.finish().unwrap();
    refused(ingest_path(Path::new("/other.sst"), &default), Code::InvalidArgument, "another column family");
    db.ingest_external_files(&cf, &["/other.sst"], &default).unwrap();
    assert_eq!(get_in(&db, &cf, "k"), "v");
    db.drop_column_family(&cf).unwrap();
    refused(db.ingest_external_files(&cf, &["/other.sst"], &default), Code::ColumnFamilyDropped, "other");
    assert_eq!(all(&db), "a=1");
}

/// Two column families, a file for each.
fn ingest_both(disk: &Disk, db: &Db) -> Result<()> {
    let other = db.column_family("other").unwrap();
    let options = IngestOptions::default();
    db.ingest_external_files_of(&[
        IngestFiles::new(
            db.default_column_family(),
            vec![write_file(&disk.options(), "d", "a=file k=file")],
            options.clone(),
        ),
        IngestFiles::new(
            &other,
            vec![
                write_file(&disk.options(), "o1", "a=file1 k=file1"),
                write_file(&disk.options(), "o2", "k=file2"),
            ],
            options,
        ),
    ])
}

/// `ingest` is to bring in "a" and "k" of two column families. A power loss after any of its operations leaves all of them or
/// none, and a database that goes on; `also` looks at it, and is told whether they are in, and where it happened.
pub fn no_power_loss_parts(
    ingest: impl FnOnce(&Disk, &Db, &ColumnFamily),
    also: impl Fn(&Disk, &Db, bool, &str),
) {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.create_missing_column_families = true;
    let db = disk.open_families(&options, &["other"]).unwrap();
    put_synced(&db, "a", "old");
    let other = db.column_family("other").unwrap();
    db.put_cf(&ironstone::WriteOptions::synced(), &other, "a", "old").unwrap();
    disk.fs.set_capturing(true);
    let begun = disk.fs.op_count();
    ingest(&disk, &db, &other);
    put_synced(&db, "z", "later");
    let ended = disk.fs.op_count();
    drop(db);
    let mut found = [0, 0];
    for op in begun..ended {
        let Some(moment) = disk.fs.captured(op) else { continue };
        for policy in CrashPolicy::ALL {
            let at = format!("op {op}, {policy:?}");
            let crashed = Disk::of(moment.crash(policy, op));
            let db = crashed.open_families(&options, &["other"]).unwrap();
            let other = db.column_family("other").unwrap();
            let state = [get(&db, "a"), get(&db, "k"), get_in(&db, &other, "a"), get_in(&db, &other, "k")];
            let state = state.each_ref().map(String::as_str);
            let is_in = state == ["file", "file", "file1", "file2"];
            assert!(is_in || state == ["old", "-", "old", "-"], "{at}: {state:?}");
            assert!(is_in || get(&db, "z") == "-", "{at}");
            also(&crashed, &db, is_in, &at);
            found[usize::from(is_in)] += 1;
            put_synced(&db, "after", "crash");
            drop(db);
            let db = crashed.open_families(&options, &["other"]).unwrap();
            assert_eq!(get(&db, "after"), "crash");
            assert_eq!(get(&db, "k") == "file", is_in);
        }
    }
    assert!(found[0] > 20 && found[1] > 20, "{found:?}");
}

#[test]
fn no_power_loss_lets_part_of_it_in() {
    no_power_loss_parts(|disk, db, _| ingest_both(disk, db).unwrap(), |_, _, _, _| ());
}

#[test]
fn a_failure_anywhere_lets_nothing_or_all_in() {
    for kind in [OpKind::Create, OpKind::Append, OpKind::Sync, OpKind::SyncDirectory, OpKind::OpenRandom] {
        for nth in 0.. {
            let disk = Disk::new();
            let mut options = disk.options();
            options.db.create_missing_column_families = true;
            let db = disk.open_families(&options, &["other"]).unwrap();
            put_synced(&db, "a", "old");
            // The files are written on the healthy disk.
            let file = write_file(&disk.options(), "d", "a=file k=file");
            disk.faults.arm();
            let rule = disk.faults.add(FaultRule::error(FaultError::Io).on(&[kind]).after(nth));
            let result =
                db.ingest_external_files(db.default_column_family(), &[file], &IngestOptions::default());
            let failed = rule.hits() > 0;
            disk.faults.clear();
            if result.is_ok() {
                assert_eq!(get(&db, "a"), "file");
            } else {
                assert_eq!(get(&db, "a"), "old", "{kind:?} {nth}");
                db.resume().unwrap();
                put_synced(&db, "b", "goes on");
            }
            drop(db);
            let db = disk.lose_power().open_families(&options, &["other"]).unwrap();
            let found = (get(&db, "a"), get(&db, "k"));
            if result.is_ok() {
                assert_eq!(found, ("file".into(), "file".into()));
            } else {
                let (old, new) = (("old".into(), "-".into()), ("file".into(), "file".into()));
                assert!(found == old || found == new, "{kind:?} {nth}: {found:?}");
                assert_eq!(get(&db, "b"), "goes on");
            }
            if !failed {
                break;
            }
        }
    }
}

#[test]
fn writers_and_readers_go_on_meanwhile() {
    let (disk, db) = fresh();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0u64.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                for key in ["a", "m", "z"] {
                    db.put(key, format!("w{round}")).unwrap();
                }
            }
        });
        scope.spawn(|| {
            // Each ingestion sets the keys that begin with `f` to its number, and nobody else writes them.
            while !stop.load(Ordering::Relaxed) {
                let entries: Vec<_> = db.iter().unwrap().entries().map(|entry| entry.unwrap()).collect();
                let numbers = |prefix: &[u8]| -> Vec<u64> {
                    let of = entries.iter().filter(|(key, _)| key.starts_with(prefix));
                    of.map(|(_, value)| String::from_utf8_lossy(value).parse().unwrap()).collect()
                };
                let (files, after) = (numbers(b"f"), numbers(b"g"));
                assert!(files.windows(2).all(|pair| pair[0] == pair[1]), "{files:?}");
                // What was written after a file is not seen without it.
                assert!(
                    after.iter().all(|after| files.iter().all(|file| file >= after)),
                    "{files:?} {after:?}"
                );
            }
        });
        for round in 0..40 {
            ingest(
                &disk,
                &db,
                &[&format!("fa={round} fb={round} n={round}"), &format!("a=f{round} fc={round}")],
            );
            assert_eq!(get(&db, "fc"), round.to_string());
            db.put("g", round.to_string()).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    rewrite_all(&db);
    assert_eq!(get(&db, "n"), "39");
    drop(db);
    assert_eq!(get(&disk.open(), "fa"), "39");
}

#[test]
fn compactions_and_files_do_not_get_in_each_others_way() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.disable_auto_compactions = false;
    options.cf.write_buffer_size = 16 << 10;
    options.cf.target_file_size_base = 8 << 10;
    options.cf.max_bytes_for_level_base = 32 << 10;
    options.cf.level0_file_num_compaction_trigger = 2;
    let db = disk.open_with(&options);
    let mut expected = std::collections::BTreeMap::new();
    for round in 0..60u32 {
        for i in 0..100 {
            let key = format!("key{:05}", (round * 7919 + i * 104_729) % 20_000);
            db.put(&key, format!("w{round}-{i}-{}", "x".repeat(100))).unwrap();
            expected.insert(key, format!("w{round}-{i}-{}", "x".repeat(100)));
        }
        let start = (round * 311) % 19_000;
        let entries: Vec<String> = (0..50).map(|i| format!("key{:05}=f{round}", start + i * 3)).collect();
        for entry in &entries {
            let (key, value) = entry.split_once('=').unwrap();
            expected.insert(key.to_owned(), value.to_owned());
        }
        ingest(&disk, &db, &[&entries.join(" ")]);
    }
    let check = |db: &Db| {
        let found: Vec<_> = db.iter().unwrap().entries().map(|entry| entry.unwrap()).collect();
        assert_eq!(found.len(), expected.len());
        for ((key, value), (wanted_key, wanted)) in found.iter().zip(&expected) {
            assert_eq!((&key[..], &value[..]), (wanted_key.as_bytes(), wanted.as_bytes()));
        }
    };
    check(&db);
    db.wait_for_compact().unwrap();
    check(&db);
    drop(db);
    check(&disk.open_with(&options));
}

/// RocksDB's checksum of a whole file.
fn checksum_of(bytes: &[u8]) -> Vec<u8> {
    let context = FileChecksumContext { file_name: Path::new("/file"), requested_function: None };
    let mut generator = FileChecksumGenCrc32cFactory.create(&context);
    generator.update(bytes);
    generator.checksum()
}

/// The file at `path`, with `checksum` by `function`.
fn with_checksum<'a>(db: &'a Db, path: &Path, checksum: &[u8], function: &str) -> IngestFiles<'a> {
    let mut files =
        IngestFiles::new(db.default_column_family(), vec![path.to_owned()], IngestOptions::default());
    files.files_checksums.push(checksum.to_vec());
    files.files_checksum_func_names.push(function.to_owned());
    files
}

#[test]
fn checksums_that_are_handed_in_are_compared_or_believed() {
    const CRC: &str = "FileChecksumCrc32c";
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.set("file_checksum_gen_factory", "FileChecksumGenCrc32cFactory").unwrap();
    let db = disk.open_with(&options);
    let path = write_file(&disk.options(), "summed", "a=1 b=2");
    let right = checksum_of(&disk.fs.read_all(&path).unwrap());
    let wrong = [1, 2, 3, 4];
    let ingest = |files: IngestFiles<'_>| db.ingest_external_files_of(&[files]);
    refused(ingest(with_checksum(&db, &path, &wrong, CRC)), Code::Corruption, "/summed.sst");
    refused(
        ingest(with_checksum(&db, &path, &right, "Other")),
        Code::InvalidArgument,
        "checksum is by Other",
    );
    let mut unnamed = with_checksum(&db, &path, &right, CRC);
    unnamed.files_checksum_func_names.clear();
    refused(ingest(unnamed), Code::InvalidArgument, "1 checksums and 0 names");
    let mut two = with_checksum(&db, &path, &right, CRC);
    two.files.push(write_file(&disk.options(), "second", "c=3"));
    refused(ingest(two), Code::InvalidArgument, "2 files with 1 checksums");
    assert!(all(&db).is_empty() && db.live_files().is_empty());
    assert_eq!(disk.tables(), Vec::<PathBuf>::new(), "nothing is left behind");

    ingest(with_checksum(&db, &path, &right, CRC)).unwrap();
    assert_eq!(db.live_files()[0].file_checksum, right);
    db.verify_file_checksums().unwrap();
    let second = write_file(&disk.options(), "second", "c=3");
    let believed = |files: IngestFiles<'_>| {
        let options = IngestOptions { verify_file_checksum: false, ..files.options.clone() };
        ingest(IngestFiles { options, ..files })
    };
    refused(believed(with_checksum(&db, &second, &wrong, "Other")), Code::InvalidArgument, "by Other");
    believed(with_checksum(&db, &second, &wrong, CRC)).unwrap();
    let of_second = db.live_files().into_iter().find(|file| file.smallest == b"c").unwrap();
    assert_eq!(of_second.file_checksum, wrong);
    refused(db.verify_file_checksums(), Code::Corruption, "01020304");
    drop(db);

    // Without a function for them they mean nothing.
    let disk = Disk::new();
    let db = disk.open();
    let path = write_file(&disk.options(), "summed", "a=1 b=2");
    let mut files = with_checksum(&db, &path, &wrong, "Other");
    files.files_checksum_func_names.clear();
    db.ingest_external_files_of(&[files]).unwrap();
    assert!(db.live_files()[0].file_checksum.is_empty());
}

#[test]
fn a_damaged_copy_is_told_by_the_checksum_that_was_handed_in() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.set("file_checksum_gen_factory", "FileChecksumGenCrc32cFactory").unwrap();
    let db = disk.open_with(&options);
    let path = write_file(&disk.options(), "summed", "a=1 b=2");
    let right = checksum_of(&disk.fs.read_all(&path).unwrap());
    // In a place that no other check covers: between the properties' names, say, is none; so flip all of them in turn.
    let good = disk.fs.read_all(&path).unwrap();
    for at in (0..good.len()).step_by(7) {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        disk.fs.write_all_synced(&path, &bytes).unwrap();
        let files = with_checksum(&db, &path, &right, "FileChecksumCrc32c");
        assert!(db.ingest_external_files_of(&[files]).is_err(), "byte {at}");
        assert!(all(&db).is_empty());
    }
}

#[test]
fn sequence_numbers_are_written_into_files_that_stay_as_they_were() {
    for (move_files, link_files) in [(false, false), (true, false), (false, true)] {
        let disk = Disk::new();
        let mut options = disk.options();
        options.db.set("file_checksum_gen_factory", "FileChecksumGenCrc32cFactory").unwrap();
        let db = disk.open_with(&options);
        put_synced(&db, "a", "old");
        let snapshot = db.snapshot();
        let path = write_file(&disk.options(), "numbered", "a=1 b=2");
        let before = disk.fs.read_all(&path).unwrap();
        let ingest = IngestOptions { write_global_seqno: true, move_files, link_files, ..Default::default() };
        db.ingest_external_files(db.default_column_family(), &[&path], &ingest).unwrap();
        assert_eq!(all(&db), "a=1 b=2");
        let at = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
        assert_eq!(get_with(&db, &at, db.default_column_family(), "a"), "old");
        assert_eq!(disk.exists("/numbered.sst"), !move_files);
        if !move_files {
            assert_eq!(disk.fs.read_all(&path).unwrap(), before);
        }
        let file = db.live_files().into_iter().find(|file| file.largest == b"b").unwrap();
        let after = disk.fs.read_all(&file.directory.join(format!("{:06}.sst", file.number.0))).unwrap();
        let changed: Vec<usize> = (0..before.len()).filter(|&at| before[at] != after[at]).collect();
        assert_eq!((before.len(), changed.len()), (after.len(), 1), "{changed:?}");
        assert_eq!(u64::from(after[changed[0]]), file.largest_sequence.0);
        assert_eq!(file.file_checksum, checksum_of(&after));
        db.verify_checksum().unwrap();
        db.verify_file_checksums().unwrap();
        assert!(disk.files(".dbtmp").is_empty());
        // What has a number is no file to ingest any more.
        disk.fs.write_all_synced(Path::new("/again.sst"), &after).unwrap();
        let again = db.ingest_external_files(db.default_column_family(), &["/again.sst"], &ingest);
        refused(again, Code::InvalidArgument, "a sequence number was written");
        drop(db);
        let disk = disk.lose_power();
        let db = disk.open_with(&options);
        assert_eq!(all(&db), "a=1 b=2");
        db.verify_file_checksums().unwrap();
    }
}

#[test]
fn a_failure_while_a_sequence_number_is_written_leaves_nothing_behind() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "old");
    let ingest = IngestOptions { write_global_seqno: true, ..IngestOptions::default() };
    let path = write_file(&disk.options(), "numbered", "a=1 b=2");
    db.flush().unwrap();
    for kind in [OpKind::Create, OpKind::Append, OpKind::Sync, OpKind::Rename] {
        disk.faults.arm();
        disk.faults.add(FaultRule::error(FaultError::Io).on(&[kind]).path(".dbtmp"));
        let failed = db.ingest_external_files(db.default_column_family(), &[&path], &ingest);
        disk.faults.clear();
        assert!(failed.is_err(), "{kind:?}");
        assert_eq!(all(&db), "a=old", "{kind:?}");
        assert!(disk.files(".dbtmp").is_empty(), "{kind:?}");
        let tables = disk.tables().len();
        assert_eq!(tables, db.live_files().len(), "{kind:?}");
    }
    db.ingest_external_files(db.default_column_family(), &[&path], &ingest).unwrap();
    assert_eq!(all(&db), "a=1 b=2");
}

/// Waits, when it is asked for its name, until several threads are there, or for a while.
#[derive(Default)]
struct Meeting {
    is_on: AtomicBool,
    inside: AtomicUsize,
}

impl Comparator for Meeting {
    fn name(&self) -> &str {
        self.inside.fetch_add(1, Ordering::SeqCst);
        let clock = SystemClock::new();
        while self.is_on.load(Ordering::SeqCst) && clock.monotonic_nanos() < 2_000_000_000 {
            if self.inside.load(Ordering::SeqCst) >= 4 {
                self.is_on.store(false, Ordering::SeqCst);
            }
            clock.sleep(Duration::from_millis(1));
        }
        self.inside.fetch_sub(1, Ordering::SeqCst);
        "test.Meeting"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        a.cmp(b)
    }
}

#[test]
fn files_are_examined_by_several_threads() {
    let (disk, meeting) = (Disk::new(), Arc::<Meeting>::default());
    let mut settings = disk.options();
    settings.cf.comparator = UserComparator::Custom(meeting.clone());
    let db = disk.open_with(&settings);
    let files: Vec<PathBuf> = (0..12)
        .map(|at| write_file(&settings, &format!("part{at:02}"), &format!("a={at} k{at:02}={at}")))
        .collect();
    let options = |file_opening_threads| IngestOptions {
        file_opening_threads,
        verify_checksums_before_ingest: true,
        ..IngestOptions::default()
    };
    meeting.is_on.store(true, Ordering::SeqCst);
    db.ingest_external_files(db.default_column_family(), &files, &options(4)).unwrap();
    assert!(!meeting.is_on.load(Ordering::SeqCst), "they never were four");
    assert_eq!(get(&db, "a"), "11", "the last file wins");
    assert_eq!(db.iter().unwrap().entries().count(), 13);
    // All or nothing, whoever found what is wrong.
    disk.fs.corrupt(&files[7], |bytes| bytes[20] ^= 1).unwrap();
    let before = db.live_files().len();
    for threads in [0, 1, 3, 100] {
        let result = db.ingest_external_files(db.default_column_family(), &files, &options(threads));
        refused(result, Code::Corruption, "/part07.sst");
        assert_eq!(db.live_files().len(), before);
    }
}

/// A file of which enough is known is linked without being looked at.
#[test]
fn what_a_writer_says_of_its_file_need_not_be_found_out() {
    let (disk, db) = fresh();
    let cf = db.default_column_family();
    let write = |name: &str, key: &str| {
        let mut writer = SstFileWriter::new(&disk.options());
        writer.open(name).unwrap();
        writer.put(key, "1").unwrap();
        writer.delete_range("x", "y").unwrap();
        writer.finish_prepared().unwrap()
    };
    let (first, second) = (write("/first.sst", "a"), write("/second.sst", "b"));
    assert_eq!((first.0.num_entries, first.0.smallest_key.as_slice()), (1, &b"a"[..]));
    db.put("x1", "old").unwrap();
    let options = IngestOptions { link_files: true, ..IngestOptions::default() };
    let files = |infos: &[&PreparedFileInfo]| IngestFiles {
        file_infos: infos.iter().map(|&info| info.clone()).collect(),
        ..IngestFiles::new(cf, vec!["/first.sst".into(), "/second.sst".into()], options.clone())
    };
    disk.faults.arm();
    let unreadable = FaultRule::error(FaultError::Io).on(&[OpKind::Read]);
    for name in ["/first.sst", "/second.sst"] {
        disk.faults.add(unreadable.clone().path(name).forever());
    }
    refused(db.ingest_external_files_of(&[files(&[])]), Code::IoError, "first.sst");
    let verified = IngestOptions { verify_checksums_before_ingest: true, ..options.clone() };
    let read = IngestFiles { options: verified, ..files(&[&first.1, &second.1]) };
    refused(db.ingest_external_files_of(&[read]), Code::IoError, "first.sst");
    refused(db.ingest_external_files_of(&[files(&[&first.1])]), Code::InvalidArgument, "1 prepared");
    db.ingest_external_files_of(&[files(&[&first.1, &second.1])]).unwrap();
    disk.faults.clear();
    assert_eq!(all(&db), "a=1 b=1");
    drop(db);
    let db = disk.lose_power().open();
    assert_eq!(all(&db), "a=1 b=1");
    rewrite_all(&db);
    db.verify_checksum().unwrap();
    assert_eq!(all(&db), "a=1 b=1");
}

#[test]
fn what_is_said_of_a_file_must_fit_it_and_the_column_family() {
    let (disk, db) = fresh();
    let mut options = disk.options();
    options.cf.comparator = UserComparator::ReverseBytewise;
    let other = db.create_column_family("other", &options.cf).unwrap();
    let prepare = |options: &Options, name: &str, value: &str| {
        let mut writer = SstFileWriter::new(options);
        writer.open(name).unwrap();
        writer.put("a", value).unwrap();
        writer.finish_prepared().unwrap().1
    };
    let ingest = |cf: &ColumnFamily, info: &PreparedFileInfo| {
        let files = IngestFiles::new(cf, vec!["/file.sst".into()], IngestOptions::default());
        db.ingest_external_files_of(&[IngestFiles { file_infos: vec![info.clone()], ..files }])
    };
    let info = prepare(&disk.options(), "/file.sst", "1");
    refused(ingest(&other, &info), Code::InvalidArgument, "another comparator");
    let longer = prepare(&disk.options(), "/longer.sst", "a longer value");
    refused(ingest(db.default_column_family(), &longer), Code::InvalidArgument, "its size");
    ingest(db.default_column_family(), &info).unwrap();
    assert_eq!(all(&db), "a=1");
}

#[test]
fn files_are_checked_in_reads_as_large_as_is_wished() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.table.block_size = 256;
    let write = || {
        let mut writer = SstFileWriter::new(&options);
        writer.open("/large.sst").unwrap();
        (0..2000).for_each(|key| writer.put(format!("{key:06}"), "v".repeat(50)).unwrap());
        writer.finish().unwrap();
    };
    let ingest = |db: &Db, verify_checksums_readahead_size| {
        let checked = IngestOptions {
            verify_checksums_before_ingest: true,
            verify_checksums_readahead_size,
            ..IngestOptions::default()
        };
        db.ingest_external_files(db.default_column_family(), &["/large.sst"], &checked)
    };
    let reads = |readahead| {
        let db = Db::open(&options, format!("/db{readahead}")).unwrap();
        perf::reset();
        ingest(&db, readahead).unwrap();
        perf::get(PerfMetric::BlockReadCount)
    };
    write();
    let (one_by_one, large) = (reads(0), reads(64 << 10));
    assert!(large + 400 < one_by_one && large < 50, "{large} and {one_by_one} reads");
    // What is read ahead is checked as well.
    disk.fs.corrupt(Path::new("/large.sst"), |bytes| bytes[5000] ^= 1).unwrap();
    let db = disk.open_with(&options);
    refused(ingest(&db, 64 << 10), Code::Corruption, "/large.sst at");
}

#[test]
fn what_is_read_to_find_a_place_stays_in_the_block_cache_if_that_is_wished() {
    for fill_cache in [true, false] {
        let (disk, db) = fresh();
        put_synced(&db, "a", "1");
        put_synced(&db, "z", "1");
        db.flush().unwrap();
        let options = IngestOptions { fill_cache, ..IngestOptions::default() };
        ingest_with(&disk, &db, &["m=1"], &options).unwrap();
        perf::reset();
        assert_eq!(get(&db, "a"), "1");
        let from_disk = perf::get(PerfMetric::BlockReadCount);
        assert_eq!(from_disk, u64::from(!fill_cache));
    }
}
