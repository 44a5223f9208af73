//! Checkpoints: a second database, made of links.

use crate::disk::{DIR, Disk, all, fresh, get, get_in, put_synced, put_unlogged, refused, rewrite_all};
use ironstone::vfs::FileSystem;
use ironstone::vfs::fault::{FaultError, FaultRule};
use ironstone::vfs::mem::CrashPolicy;
use ironstone::{Code, ColumnFamilyDescriptor, Db, FileKind, Options, WriteBatch, WriteOptions};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const COPY: &str = "/copy";

fn open_at(disk: &Disk, path: &str) -> Db {
    Db::open(&disk.options(), path).unwrap()
}

#[test]
fn it_holds_what_was_written_before_and_lives_on_its_own() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    rewrite_all(&db);
    put_synced(&db, "b", "2");
    put_unlogged(&db, "c", "3").unwrap();
    let sequence = db.checkpoint(COPY).unwrap();
    assert_eq!(sequence, db.latest_sequence());
    db.delete("a").unwrap();
    rewrite_all(&db);
    assert!(!disk.files(".tmp").iter().any(|path| path.starts_with("/copy.tmp")));
    refused(db.checkpoint(COPY), Code::InvalidArgument, "Directory exists");
    let disk = disk.lose_power();
    let copy = open_at(&disk, COPY);
    assert_eq!(all(&copy), "a=1 b=2 c=3");
    copy.put("d", "4").unwrap();
    rewrite_all(&copy);
    assert_eq!(all(&copy), "a=1 b=2 c=3 d=4");
    drop(db);
    assert_eq!(all(&disk.open()), "b=2 c=3");
}

#[test]
fn a_small_log_is_copied_and_not_flushed() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    db.flush().unwrap();
    put_synced(&db, "b", "2");
    db.checkpoint_with(COPY, 1 << 20).unwrap();
    assert_eq!(db.live_files().len(), 1, "nothing was flushed");
    put_synced(&db, "b", "later");
    assert_eq!(all(&open_at(&disk, COPY)), "a=1 b=2");
    db.checkpoint_with("/second", 1).unwrap();
    assert_eq!(db.live_files().len(), 2, "the log is larger than one byte");
    assert_eq!(all(&open_at(&disk, "/second")), "a=1 b=later");
}

#[test]
fn what_a_manual_flush_has_not_written_is_in_it() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.manual_wal_flush = true;
    let db = disk.open_with(&options);
    db.put("a", "buffered").unwrap();
    db.checkpoint_with(COPY, u64::MAX).unwrap();
    assert_eq!(all(&open_at(&disk, COPY)), "a=buffered");
}

#[test]
fn several_column_families_and_directories_come_together() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.create_missing_column_families = true;
    options.db.wal_dir = "/wal".into();
    let db = disk.open_families(&options, &["other"]).unwrap();
    let other = db.column_family("other").unwrap();
    for round in 0..3 {
        let mut batch = WriteBatch::new();
        batch.put("k", round.to_string());
        batch.put_cf(&other, "k", round.to_string());
        db.write(&batch, &WriteOptions::default()).unwrap();
        if round < 2 {
            db.flush_cfs(&Default::default(), &[&other]).unwrap();
        }
    }
    db.checkpoint_with(COPY, u64::MAX).unwrap();
    assert!(disk.files(".log").iter().any(|path| path.starts_with(COPY)));
    let descriptors =
        ["default", "other"].map(|name| ColumnFamilyDescriptor::new(name, disk.options().cf)).to_vec();
    let copy = Db::open_column_families(&disk.options().db, COPY, descriptors).unwrap();
    assert_eq!(get(&copy, "k"), "2");
    assert_eq!(get_in(&copy, &copy.column_family("other").unwrap(), "k"), "2");
}

#[test]
fn files_are_copied_where_they_cannot_be_linked() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    disk.faults.arm();
    disk.faults.add(FaultRule::error(FaultError::OtherDevice).on(&[ironstone::vfs::OpKind::Link]).forever());
    db.checkpoint(COPY).unwrap();
    disk.faults.clear();
    drop(db);
    assert_eq!(all(&open_at(&disk.lose_power(), COPY)), "a=1");
}

#[test]
fn at_every_power_loss_it_is_there_whole_or_not_at_all() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    db.flush().unwrap();
    put_synced(&db, "b", "2");
    disk.fs.create_dir_all(Path::new("/copy.tmp")).unwrap();
    disk.fs.write_all_synced(Path::new("/copy.tmp/000001.sst"), b"from an earlier attempt").unwrap();
    disk.fs.set_capturing(true);
    let begun = disk.fs.op_count();
    db.checkpoint_with(COPY, u64::MAX).unwrap();
    let ended = disk.fs.op_count();
    put_synced(&db, "c", "3");
    let last = disk.fs.op_count();
    drop(db);
    let mut found = 0;
    for op in begun..last {
        let Some(moment) = disk.fs.captured(op) else { continue };
        for policy in CrashPolicy::ALL {
            let crashed = Disk::of(moment.crash(policy, op));
            assert!(all(&crashed.open()).starts_with("a=1 b=2"), "op {op}, {policy:?}");
            if crashed.exists(COPY) {
                found += 1;
                assert_eq!(all(&open_at(&crashed, COPY)), "a=1 b=2", "op {op}, {policy:?}");
            } else {
                assert!(op < ended, "it had returned at op {ended}: op {op}, {policy:?}");
                let db = crashed.open();
                db.checkpoint(COPY).unwrap();
                assert!(all(&open_at(&crashed, COPY)).starts_with("a=1 b=2"));
            }
        }
    }
    assert!(found > 8, "{found}");
}

#[test]
fn a_failure_leaves_nothing_and_the_next_attempt_works() {
    for nth in 0.. {
        let (disk, db) = fresh();
        put_synced(&db, "a", "1");
        disk.faults.arm();
        let rule =
            disk.faults.add(FaultRule::error(FaultError::NoSpace).on_changes().path("copy").after(nth));
        let result = db.checkpoint(COPY);
        let hit = rule.hits() > 0;
        disk.faults.clear();
        if result.is_err() {
            assert!(!disk.exists(COPY) && !disk.exists("/copy.tmp"), "{nth}");
            db.checkpoint(COPY).unwrap();
        }
        assert_eq!(all(&open_at(&disk, COPY)), "a=1");
        put_synced(&db, "b", "goes on");
        if !hit {
            assert!(nth > 5);
            break;
        }
    }
}

#[test]
fn it_is_a_state_that_there_was_while_writers_go_on() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.create_missing_column_families = true;
    options.cf.disable_auto_compactions = false;
    options.cf.write_buffer_size = 32 << 10;
    let db = disk.open_families(&options, &["other"]).unwrap();
    let other = db.column_family("other").unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0u64.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let mut batch = WriteBatch::new();
                batch.put("mark", round.to_string());
                batch.put_cf(&other, "mark", round.to_string());
                batch.put(format!("k{}", round % 50), vec![b'x'; 200]);
                db.write(&batch, &WriteOptions::default()).unwrap();
            }
        });
        for at in 0..20u64 {
            let path = format!("/copy{at}");
            let before = get(&db, "mark");
            db.checkpoint_with(&path, if at % 2 == 0 { 0 } else { u64::MAX }).unwrap();
            let descriptors = ["default", "other"]
                .map(|name| ColumnFamilyDescriptor::new(name, options.cf.clone()))
                .to_vec();
            let copy = Db::open_column_families(&disk.options().db, &path, descriptors).unwrap();
            let found = get(&copy, "mark");
            assert_eq!(found, get_in(&copy, &copy.column_family("other").unwrap(), "mark"));
            let number = |mark: &str| mark.parse::<u64>().unwrap_or(0);
            assert!(number(&found) >= number(&before), "{found} after {before}");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn live_files_say_what_belongs_to_a_copy() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    db.flush().unwrap();
    put_synced(&db, "b", "2");
    db.disable_file_deletions();
    let files = db.live_files_storage_info(u64::MAX).unwrap();
    let kinds: Vec<_> = files.iter().map(|file| std::mem::discriminant(&file.kind)).collect();
    let expected = [
        FileKind::Table(Default::default()),
        FileKind::Options(Default::default()),
        FileKind::Wal(Default::default()),
        FileKind::Manifest(Default::default()),
        FileKind::Current,
    ];
    assert_eq!(kinds, expected.map(|kind| std::mem::discriminant(&kind)));
    for file in &files {
        assert_eq!(file.directory, Path::new(DIR));
        assert!(disk.fs.size(&file.path()).unwrap() >= file.size, "{file:?}");
        assert_eq!(file.file_checksum_func_name, "Unknown");
    }
    // All of them stay, whatever becomes of the database.
    db.delete("a").unwrap();
    rewrite_all(&db);
    assert!(files.iter().all(|file| disk.exists(file.path())));
    db.enable_file_deletions();
    disk.wait_until("the table is removed", || !disk.exists(files[0].path()));
}

#[test]
fn a_database_that_is_read_only_makes_none() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    drop(db);
    let db = disk.open_read_only(&Options::default(), &[]).unwrap();
    refused(db.checkpoint(COPY), Code::NotSupported, "reading only");
    assert_eq!(db.sorted_wal_files().unwrap().len(), 1, "its files are known all the same");
}
