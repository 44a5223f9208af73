//! Followers: they read the tables that another opening of the database writes, through links in a directory of their own.

use crate::disk::{DIR, Disk, all, all_of, forward, fresh, get, get_in, put_synced, refused, rewrite_all};
use ironstone::options::DbOptions;
use ironstone::vfs::fault::{FaultError, FaultRule};
use ironstone::vfs::{FileSystem, OpKind};
use ironstone::{
    Code, ColumnFamilyDescriptor, CompactRangeOptions, Db, DbPath, Options, ReadOptions, Result, WriteBatch,
    WriteOptions,
};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

const OWN: &str = "/follower";

/// It catches up when it is told to.
fn options(disk: &Disk) -> Options {
    let mut options = disk.options();
    options.db.follower_refresh_catchup_period_ms = 1 << 40;
    options
}

fn follow_with(options: &Options, names: &[&str]) -> Result<Db> {
    let all = ["default"].iter().chain(names);
    let descriptors = all.map(|name| ColumnFamilyDescriptor::new(*name, options.cf.clone())).collect();
    Db::open_as_follower(&options.db, OWN, DIR, descriptors)
}

fn follow(disk: &Disk) -> Db {
    follow_with(&options(disk), &[]).unwrap()
}

/// The tables that it has links to.
fn links(disk: &Disk) -> Vec<PathBuf> {
    disk.files(".sst").into_iter().filter(|path| path.starts_with(OWN)).collect()
}

#[test]
fn it_sees_what_is_flushed_when_it_catches_up() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    let follower = follow(&disk);
    assert_eq!(all(&follower), "", "no WAL is read");
    db.flush().unwrap();
    assert_eq!(all(&follower), "");
    follower.try_catch_up_with_primary().unwrap();
    assert_eq!((all(&follower), links(&disk).len()), ("a=1".to_owned(), 1));
    let before = follower.iter().unwrap();
    db.delete("a").unwrap();
    db.put("b", "2").unwrap();
    rewrite_all(&db);
    put_synced(&db, "c", "not flushed");
    follower.try_catch_up_with_primary().unwrap();
    assert_eq!(all(&follower), "b=2");
    assert_eq!(forward(before), "a=1", "what it stood on stays");
    assert!(disk.exists("/follower/LOG") && !disk.exists("/follower/CURRENT"));
    assert_eq!(follower.path(), Path::new(OWN));
    let mut stood_there: Vec<PathBuf> =
        disk.files("").into_iter().filter(|path| path.starts_with(DIR)).collect();
    stood_there.retain(|path| path.ends_with("FOLLOWER"));
    assert!(stood_there.is_empty(), "nothing is written to the leader's directory");
}

#[test]
fn tables_that_the_leader_removes_stay_as_long_as_somebody_reads_them() {
    let (disk, db) = fresh();
    for round in 0..4 {
        for i in 0..100 {
            db.put(format!("key{i:04}"), format!("{round}")).unwrap();
        }
        db.flush().unwrap();
    }
    let mut few = options(&disk);
    few.db.max_open_files = 1;
    let follower = follow_with(&few, &[]).unwrap();
    let tables = disk.tables();
    assert_eq!(links(&disk).len(), 4);
    rewrite_all(&db);
    disk.wait_until("the tables are removed", || tables.iter().all(|table| !disk.exists(table)));
    // They are opened again and again.
    for i in 0..100 {
        assert_eq!(get(&follower, &format!("key{i:04}")), "3");
    }
    let mut iter = follower.iter().unwrap();
    assert!(iter.seek_to_first().unwrap());
    follower.try_catch_up_with_primary().unwrap();
    assert_eq!(links(&disk).len(), 5, "the iterator needs the old ones");
    let mut count = 1;
    while iter.next().unwrap() {
        count += 1;
    }
    assert_eq!(count, 100);
    drop(iter);
    disk.wait_until("nobody needs the old links", || links(&disk).len() == 1);
    assert_eq!(follower.iter().unwrap().entries().count(), 100);
}

/// A leader with tables in its own directory, in two of `db_paths` and in one of `cf_paths`, and what opens it.
fn in_several_directories(disk: &Disk) -> (Db, DbOptions, Vec<ColumnFamilyDescriptor>) {
    let mut settings = options(disk);
    settings.db.create_missing_column_families = true;
    settings.db.db_paths = vec![DbPath::new("/fast", 1 << 20), DbPath::new("/slow", 0)];
    let mut own = settings.cf.clone();
    own.cf_paths = vec![DbPath::new(DIR, 0)];
    let families = vec![
        ColumnFamilyDescriptor::new("default", settings.cf.clone()),
        ColumnFamilyDescriptor::new("own", own),
    ];
    let db = Db::open_column_families(&settings.db, DIR, families.clone()).unwrap();
    (db, settings.db, families)
}

fn write_to_all_directories(db: &Db, value: &str) {
    let (default, own) = (db.default_column_family(), db.column_family("own").unwrap());
    for key in ["a", "b"] {
        db.put(key, value).unwrap();
        db.put_cf(&WriteOptions::default(), &own, key, value).unwrap();
    }
    db.flush_cfs(&Default::default(), &[default, &own]).unwrap();
    let slow = CompactRangeOptions { target_path_id: 1, ..CompactRangeOptions::default() };
    db.compact_range(&slow, default, None, None).unwrap();
    db.put("c", value).unwrap();
    db.flush().unwrap();
}

#[test]
fn tables_of_the_leader_may_be_in_several_directories() {
    for copied in [false, true] {
        let disk = Disk::new();
        let (db, settings, families) = in_several_directories(&disk);
        write_to_all_directories(&db, "1");
        let directories: BTreeSet<_> = db.live_files().into_iter().map(|file| file.directory).collect();
        assert_eq!(directories, [DIR, "/fast", "/slow"].map(PathBuf::from).into());
        if copied {
            let links = FaultRule::error(FaultError::OtherDevice).on(&[OpKind::Link]).forever();
            disk.faults.add(links);
            disk.faults.arm();
        }
        let of_leader = || -> BTreeSet<PathBuf> {
            disk.fs.all_files().into_iter().filter(|path| !path.starts_with(OWN)).collect()
        };
        let before = of_leader();
        let follower = Db::open_as_follower(&settings, OWN, DIR, families).unwrap();
        let own = follower.column_family("own").unwrap();
        let contents = || (all(&follower), all_of(&follower, &own));
        assert_eq!(contents(), ("a=1 b=1 c=1".to_owned(), "a=1 b=1".to_owned()));
        assert_eq!(links(&disk).len(), 3);
        assert!(
            of_leader().is_subset(&before),
            "obsolete files of the leader go in the background, none comes"
        );
        assert_eq!(follower.options().db_paths, vec![]);
        // What the leader removes, the follower has.
        write_to_all_directories(&db, "2");
        rewrite_all(&db);
        disk.wait_until("tables are removed", || {
            before.iter().filter(|path| !path.starts_with(DIR)).all(|path| !disk.exists(path))
        });
        let mut few = follower.iter().unwrap();
        assert!(few.seek_to_first().unwrap());
        assert_eq!(contents(), ("a=1 b=1 c=1".to_owned(), "a=1 b=1".to_owned()));
        follower.try_catch_up_with_primary().unwrap();
        assert_eq!(contents(), ("a=2 b=2 c=2".to_owned(), "a=2 b=2".to_owned()));
        assert!(follower.live_files().iter().all(|file| file.directory == Path::new(OWN)));
        drop(few);
        disk.wait_until("only what is needed is there", || links(&disk).len() == db.live_files().len());
        assert!(disk.files(".dbtmp").is_empty());
    }
}

#[test]
fn a_copy_that_was_not_completed_is_no_table() {
    let disk = Disk::new();
    let (db, settings, families) = in_several_directories(&disk);
    write_to_all_directories(&db, "1");
    let follower = Db::open_as_follower(&settings, OWN, DIR, families.clone()).unwrap();
    write_to_all_directories(&db, "2");
    disk.faults.add(FaultRule::error(FaultError::OtherDevice).on(&[OpKind::Link]).forever());
    disk.faults.add(FaultRule::error(FaultError::Io).on(&[OpKind::Append]).path("/follower/0"));
    disk.faults.arm();
    refused(follower.try_catch_up_with_primary(), Code::IoError, ".dbtmp");
    assert_eq!(all(&follower), "a=1 b=1 c=1");
    assert!(disk.files(".dbtmp").is_empty());
    follower.try_catch_up_with_primary().unwrap();
    assert_eq!(all(&follower), "a=2 b=2 c=2");
    drop(follower);
    // One that a crash left behind goes away.
    let left = Path::new("/follower/000099.dbtmp");
    disk.fs.write_all_synced(left, b"half").unwrap();
    let follower = Db::open_as_follower(&settings, OWN, DIR, families).unwrap();
    assert!(!disk.exists(left));
    assert_eq!(all(&follower), "a=2 b=2 c=2");
}

#[test]
fn it_catches_up_by_itself() {
    let (disk, db) = fresh();
    let mut often = disk.options();
    often.db.follower_refresh_catchup_period_ms = 5;
    often.db.follower_catchup_retry_wait_ms = 1;
    often.db.follower_catchup_retry_count = 3;
    let follower = follow_with(&often, &[]).unwrap();
    for round in 0..5 {
        db.put("a", round.to_string()).unwrap();
        db.flush().unwrap();
        disk.wait_until("the follower sees it", || get(&follower, "a") == round.to_string());
    }
    // What fails is tried again, and LOG says so.
    disk.faults.arm();
    let rule = FaultRule::error(FaultError::Io).on(&[OpKind::Link]).forever();
    let rule = disk.faults.add(rule);
    db.put("a", "last").unwrap();
    db.flush().unwrap();
    disk.wait_until("it has failed some times", || rule.hits() > 6);
    assert_eq!(get(&follower, "a"), "4");
    let log = String::from_utf8(disk.fs.read_all(Path::new("/follower/LOG")).unwrap()).unwrap();
    assert!(log.contains("catch up unsuccessful"), "{log}");
    disk.faults.clear();
    disk.wait_until("the follower sees it", || get(&follower, "a") == "last");
    follower.close().unwrap();
    db.put("a", "later").unwrap();
    db.flush().unwrap();
    assert_eq!(get(&follower, "a"), "last", "it follows no longer");
}

#[test]
fn opened_again_it_begins_anew() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    db.flush().unwrap();
    let follower = follow(&disk);
    let error = refused(follow_with(&options(&disk), &[]).map(drop), Code::IoError, "LOCK");
    assert!(error.message().contains(OWN), "{error}");
    drop(follower);
    assert_eq!(links(&disk).len(), 1);
    rewrite_all(&db);
    put_synced(&db, "b", "2");
    rewrite_all(&db);
    let follower = follow(&disk.kill());
    assert_eq!(all(&follower), "a=1 b=2");
    drop(follower);
}

#[test]
fn another_leader_in_the_place_of_the_old_one_has_its_own_tables() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    db.flush().unwrap();
    assert_eq!(all(&follow(&disk)), "a=1");
    let old = links(&disk);
    drop(db);
    Db::destroy(&disk.options().db, DIR).unwrap();
    let db = disk.open();
    put_synced(&db, "a", "another");
    db.flush().unwrap();
    assert_eq!(all(&follow(&disk)), "a=another");
    assert_eq!(links(&disk), old, "they have the same names");
}

#[test]
fn what_it_cannot_do_it_refuses() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    db.flush().unwrap();
    let follower = follow(&disk);
    refused(follower.put("b", "2"), Code::NotSupported, "reading only");
    refused(follower.flush(), Code::NotSupported, "reading only");
    let past = ReadOptions { snapshot: Some(follower.snapshot()), ..ReadOptions::default() };
    let found = follower.get_cf(&past, follower.default_column_family(), "a").map(drop);
    refused(found, Code::NotSupported, "snapshots of a secondary");
    drop(follower);
    refused(follow_with(&options(&disk), &["none"]).map(drop), Code::InvalidArgument, "none");

    let open = |path: &str, leader: &str, options: &Options| {
        Db::open_as_follower(&options.db, path, leader, vec![]).map(drop)
    };
    refused(open(DIR, DIR, &options(&disk)), Code::InvalidArgument, "another directory than its leader");
    refused(open("/own", "/nowhere", &options(&disk)), Code::InvalidArgument, "/nowhere");
    let mut not_created = options(&disk);
    not_created.db.create_if_missing = false;
    refused(open("/missing", DIR, &not_created), Code::InvalidArgument, "/missing");
    let mut elsewhere = options(&disk);
    elsewhere.db.db_paths = vec![DbPath::new("/tables", 1)];
    refused(open("/tables", DIR, &elsewhere), Code::InvalidArgument, "another directory than its leader");
    refused(open("/own", DIR, &elsewhere), Code::IoError, "/tables/0");
    // Directories that are somebody else's stay as they are.
    let other = Db::open(&disk.options(), "/other").unwrap();
    other.close().unwrap();
    refused(open("/other", DIR, &options(&disk)), Code::InvalidArgument, "no follower made it");
    disk.fs.create_dir_all(Path::new("/files")).unwrap();
    disk.fs.write_all_synced(Path::new("/files/000007.sst"), b"of the application").unwrap();
    refused(open("/files", DIR, &options(&disk)), Code::InvalidArgument, "000007.sst");
    assert!(disk.exists("/files/000007.sst") && disk.exists("/other/CURRENT"));
}

#[test]
fn column_families_come_when_they_are_opened_and_go_when_they_are_dropped() {
    let (disk, db) = fresh();
    let cf = db.create_column_family("one", &disk.options().cf).unwrap();
    let unlisted = db.create_column_family("unlisted", &disk.options().cf).unwrap();
    for cf in [&cf, &unlisted] {
        db.put_cf(&WriteOptions::default(), cf, "a", "1").unwrap();
        db.flush_cf(&Default::default(), cf).unwrap();
    }
    let follower = follow_with(&options(&disk), &["one"]).unwrap();
    assert_eq!(links(&disk).len(), 1);
    let seen = follower.column_family("one").unwrap();
    assert_eq!(get_in(&follower, &seen, "a"), "1");
    db.drop_column_family(&cf).unwrap();
    follower.try_catch_up_with_primary().unwrap();
    assert!(follower.column_family("one").is_none());
    let found = follower.get_cf(&ReadOptions::default(), &seen, "a").map(drop);
    refused(found, Code::ColumnFamilyDropped, "one");
    drop(seen);
    disk.wait_until("its link is removed", || links(&disk).is_empty());
}

#[test]
fn under_load_it_always_sees_a_state_that_there_was() {
    let disk = Disk::new();
    let mut busy = disk.options();
    busy.db.create_missing_column_families = true;
    busy.db.atomic_flush = true;
    busy.db.max_manifest_file_size = 4 << 10;
    busy.db.max_manifest_space_amp_pct = 50;
    busy.cf.disable_auto_compactions = false;
    busy.cf.write_buffer_size = 32 << 10;
    busy.cf.target_file_size_base = 16 << 10;
    busy.cf.max_bytes_for_level_base = 64 << 10;
    let db = disk.open_families(&busy, &["other"]).unwrap();
    let other = db.column_family("other").unwrap();
    let mut often = busy.clone();
    often.db.follower_refresh_catchup_period_ms = 2;
    often.db.follower_catchup_retry_wait_ms = 1;
    let follower = follow_with(&often, &["other"]).unwrap();
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
                batch.put(format!("k{}", round % 50), format!("{round:0200}"));
                db.write(&batch, &WriteOptions::default()).unwrap();
            }
        });
        let seen = follower.column_family("other").unwrap();
        let read = |cf: &ironstone::ColumnFamily| {
            let mark = get_in(&follower, cf, "mark");
            if mark == "-" { 0 } else { mark.parse::<u64>().unwrap() }
        };
        let (mut last, mut last_older, mut states) = (0, 0, 0);
        for _ in 0..100_000 {
            let older = read(&seen);
            let mark = read(follower.default_column_family());
            assert!(mark >= older && older >= last_older && mark >= last, "{mark}, {older} after {last}");
            states += u64::from(mark != last);
            (last, last_older) = (mark, older);
            if states > 30 {
                break;
            }
            disk.clock_sleep(std::time::Duration::from_micros(300));
        }
        stop.store(true, Ordering::Relaxed);
        assert!(states > 3, "{states} states were seen");
    });
    db.flush_cfs(&Default::default(), &[db.default_column_family(), &other]).unwrap();
    db.wait_for_compact().unwrap();
    follower.try_catch_up_with_primary().unwrap();
    assert_eq!(all(&follower), all(&db));
    disk.wait_until("only what is needed is linked", || {
        let _ = follower.try_catch_up_with_primary();
        links(&disk).len() == db.live_files().len()
    });
}
