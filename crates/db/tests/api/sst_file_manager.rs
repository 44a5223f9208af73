//! How much space tables may take, and how fast files go.

use crate::disk::{DIR, Disk, rewrite_all};
use ironstone::statistics::Ticker;
use ironstone::vfs::{FileSystem, ManualClock};
use ironstone::{
    Code, CompactRangeOptions, Db, Options, SstFileManager, SstFileManagerOptions, Statistics, SubCode,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

/// Options with a manager that removes `rate` bytes each second.
fn with_manager(disk: &Disk, rate: u64) -> (Options, Arc<SstFileManager>) {
    let mut options = disk.options();
    let manager = SstFileManager::new(SstFileManagerOptions {
        rate_bytes_per_sec: rate,
        max_trash_db_ratio: 1e9,
        ..Default::default()
    });
    options.db.sst_file_manager = Some(Arc::clone(&manager));
    (options, manager)
}

/// Names of tables, and of what waits to be removed.
fn names(disk: &Disk) -> (usize, usize) {
    let names = disk.fs.list(Path::new(DIR)).unwrap();
    let count = |suffix: &str| names.iter().filter(|name| name.ends_with(suffix)).count();
    (count(".sst"), count(".trash"))
}

/// Lets days pass until nothing waits.
fn empty_trash(clock: &ManualClock, disk: &Disk, manager: &SstFileManager) {
    disk.wait_until("an empty trash", || {
        clock.advance(DAY);
        manager.total_trash_size() == 0
    });
    manager.wait_for_empty_trash();
}

/// Tables whose keys overlap.
fn put_tables(db: &Db, count: usize) {
    for number in 0..count {
        db.put(format!("key{number}"), vec![b'v'; 1000]).unwrap();
        db.put(b"zzz", b"").unwrap();
        db.flush().unwrap();
    }
}

#[test]
fn files_wait_for_their_turn_and_go_in_the_end() {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000_000));
    let disk = Disk::with_clock(&clock);
    let (mut options, manager) = with_manager(&disk, 100);
    let statistics = Arc::new(Statistics::new());
    options.db.statistics = Some(Arc::clone(&statistics));
    let db = disk.open_with(&options);
    put_tables(&db, 3);
    let before = manager.total_size();
    assert_eq!(manager.tracked_files().len(), 3);
    rewrite_all(&db);
    disk.wait_until("the removal of the first", || {
        statistics.ticker(Ticker::FilesDeletedFromTrashQueue) >= 1
    });
    disk.wait_until("the others' new names", || names(&disk).0 == 1 && names(&disk).1 >= 2);
    assert_eq!(manager.tracked_files().len(), 1);
    assert!(manager.total_size() < before);
    assert!(manager.total_trash_size() > 1000, "no time has passed");
    empty_trash(&clock, &disk, &manager);
    assert_eq!((names(&disk), manager.total_trash_size()), ((1, 0), 0));
    assert_eq!(
        statistics.ticker(Ticker::FilesMarkedTrash),
        statistics.ticker(Ticker::FilesDeletedFromTrashQueue)
    );
    db.close().unwrap();
    assert_eq!(manager.total_size(), 0, "a database that is closed takes nothing from the others");
}

#[test]
fn what_waits_when_the_process_ends_goes_at_the_next_opening() {
    for manager_again in [false, true] {
        let clock = Arc::new(ManualClock::new(1_700_000_000_000_000));
        let disk = Disk::with_clock(&clock);
        let (options, manager) = with_manager(&disk, 1);
        let db = disk.open_with(&options);
        put_tables(&db, 4);
        rewrite_all(&db);
        disk.wait_until("new names", || names(&disk).0 == 1 && names(&disk).1 >= 3);
        let disk = disk.kill();
        drop((db, options, manager));
        assert!(names(&disk).1 >= 3);
        match manager_again {
            false => {
                let db = disk.open_with(&disk.options());
                assert_eq!(names(&disk), (1, 0));
                assert!(db.get(b"key0").unwrap().is_some());
            }
            true => {
                let (options, manager) = with_manager(&disk, 1000);
                let db = disk.open_with(&options);
                empty_trash(&clock, &disk, &manager);
                assert_eq!(names(&disk), (1, 0));
                assert!(db.get(b"key0").unwrap().is_some());
            }
        }
    }
}

#[test]
fn too_much_trash_is_removed_at_once() {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000_000));
    let disk = Disk::with_clock(&clock);
    let (options, manager) = with_manager(&disk, 1);
    let db = disk.open_with(&options);
    manager.set_max_trash_db_ratio(0.0);
    put_tables(&db, 4);
    rewrite_all(&db);
    disk.wait_until("the removal of all but one and what was first", || {
        let (tables, trash) = names(&disk);
        tables == 1 && trash <= 1
    });
}

#[test]
fn writes_stop_when_tables_take_too_much_and_go_on_when_they_may() {
    let disk = Disk::new();
    let (mut options, manager) = with_manager(&disk, 0);
    options.db.max_bgerror_resume_count = 0; // Not by itself.
    let db = disk.open_with(&options);
    put_tables(&db, 1);
    manager.set_max_allowed_space_usage(manager.total_size() + 500);
    db.put(b"more", vec![b'v'; 1000]).unwrap();
    let _ = db.flush(); // The table is there, and the failure noted behind it.
    disk.wait_until("the failure", || db.put(b"again", b"").is_err());
    let error = db.put(b"again", b"").unwrap_err();
    assert_eq!((error.code(), error.sub_code()), (Code::IoError, SubCode::SpaceLimit));
    assert!(error.to_string().contains("sst_file_manager"), "{error}");
    assert!(manager.is_max_allowed_space_reached());
    assert!(db.get(b"more").unwrap().is_some(), "reads go on, and nothing is lost");
    assert_eq!(db.resume().unwrap_err().sub_code(), SubCode::SpaceLimit);
    manager.set_max_allowed_space_usage(1 << 30);
    db.resume().unwrap();
    db.put(b"again", b"").unwrap();
}

#[test]
fn writes_go_on_by_themselves_when_the_limit_is_raised() {
    let disk = Disk::new();
    let (mut options, manager) = with_manager(&disk, 0);
    options.db.bgerror_resume_retry_interval = 1000;
    let db = disk.open_with(&options);
    manager.set_max_allowed_space_usage(1);
    db.put(b"more", b"").unwrap();
    let _ = db.flush();
    disk.wait_until("the failure", || db.put(b"again", b"").is_err());
    manager.set_max_allowed_space_usage(0);
    disk.wait_until("recovery", || db.put(b"again", b"").is_ok());
}

#[test]
fn compactions_that_might_take_too_much_are_not_begun() {
    let disk = Disk::new();
    let (mut options, manager) = with_manager(&disk, 0);
    let statistics = Arc::new(Statistics::new());
    options.db.statistics = Some(Arc::clone(&statistics));
    options.cf.disable_auto_compactions = false;
    options.cf.level0_file_num_compaction_trigger = 4;
    let db = disk.open_with(&options);
    put_tables(&db, 3);
    manager.set_max_allowed_space_usage(manager.total_size() * 3 / 2);
    let error = db
        .compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None)
        .unwrap_err();
    assert_eq!(error.code(), Code::CompactionTooLarge, "{error}");
    put_tables(&db, 1); // One more makes it four files, and an automatic compaction is due.
    disk.wait_until("its refusal", || statistics.ticker(Ticker::CompactionCancelled) >= 2);
    db.wait_for_compact().unwrap();
    assert_eq!(statistics.ticker(Ticker::CompactionCancelled), 2, "asked once, not over and over");
    manager.set_max_allowed_space_usage(0);
    rewrite_all(&db);
    assert_eq!(db.live_files().len(), 1);
}

#[test]
fn tables_of_a_checkpoint_are_not_cut_with_their_other_names() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.db.create_if_missing = true;
    let manager = SstFileManager::new(SstFileManagerOptions {
        rate_bytes_per_sec: 1 << 30,
        max_trash_db_ratio: 1e9,
        bytes_max_delete_chunk: 64,
    });
    options.db.sst_file_manager = Some(Arc::clone(&manager));
    let db = Db::open(&options, dir.path().join("db")).unwrap();
    put_tables(&db, 2);
    db.checkpoint(dir.path().join("copy")).unwrap();
    rewrite_all(&db);
    put_tables(&db, 2);
    rewrite_all(&db); // These have no second name, and go bit by bit.
    db.close().unwrap();
    manager.wait_for_empty_trash();
    options.db.sst_file_manager = None;
    let copy = Db::open(&options, dir.path().join("copy")).unwrap();
    copy.verify_checksum().unwrap();
    assert_eq!(copy.get(b"key1").unwrap().unwrap(), vec![b'v'; 1000]);
    let names = options.db.env.fs.list(&dir.path().join("db")).unwrap();
    assert!(!names.iter().any(|name| name.ends_with(".trash")), "{names:?}");
}
