//! Opening, creating, locking, reading only, closing, destroying.

use crate::disk::{DIR, Disk, all, fresh, get, put_synced, refused};
use ironstone::statistics::Ticker;
use ironstone::vfs::fault::{Fault, FaultRule};
use ironstone::vfs::mem::CrashPolicy;
use ironstone::vfs::{FileSystem, OpKind, WriteOptions as FileOptions};
use ironstone::{
    BackgroundErrorReason, Code, CompactRangeOptions, Db, DbPath, EventListener, Options, ReadOnlyOptions,
    ReadOptions, Statistics, UserComparator, WriteBatch, WriteOptions,
};
use ironstone_base::sync::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

fn write_file(disk: &Disk, path: &str, bytes: &[u8]) {
    let mut file = disk.fs.create(Path::new(path), FileOptions::default()).unwrap();
    file.append(bytes).unwrap();
    file.close().unwrap();
}

#[test]
fn a_missing_database_is_only_created_when_asked_for() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.create_if_missing = false;
    refused(disk.try_open(&options), Code::InvalidArgument, "create_if_missing");
    assert_eq!(disk.fs.all_files(), Vec::<PathBuf>::new());
    disk.open().put("k", "v").unwrap();
    assert_eq!(all(&disk.open_with(&options)), "k=v");
}

#[test]
fn an_existing_database_is_refused_when_asked_for() {
    let (disk, db) = fresh();
    db.put("k", "v").unwrap();
    drop(db);
    let mut options = disk.options();
    options.db.error_if_exists = true;
    refused(disk.try_open(&options), Code::InvalidArgument, "error_if_exists");
    assert_eq!(all(&disk.open()), "k=v");
    options.db.env = disk.env();
    Db::open(&options, "/other").expect("there is none");
}

#[test]
fn a_new_database_survives_a_power_loss_in_directories_that_it_made() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.wal_dir = "/far/away/wals".into();
    let db = Db::open(&options, "/some/where/db").unwrap();
    put_synced(&db, "k", "v");
    let after = disk.lose_power();
    options.db.env = after.env();
    options.db.create_if_missing = false;
    assert_eq!(all(&Db::open(&options, "/some/where/db").unwrap()), "k=v");
}

/// A database whose CURRENT was lost is not created anew over what is left of it.
#[test]
fn nothing_is_created_over_the_files_of_a_database() {
    for (wal_dir, lost) in [("", "a table"), ("", "a WAL"), ("/wals", "a WAL elsewhere")] {
        let disk = Disk::new();
        let mut options = disk.options();
        options.db.wal_dir = wal_dir.into();
        let db = disk.open_with(&options);
        put_synced(&db, "k", "v");
        if lost == "a table" {
            db.flush().unwrap();
        }
        db.close().unwrap();
        drop(db);
        let current = disk.fs.read_all(Path::new("/db/CURRENT")).unwrap();
        disk.fs.remove(Path::new("/db/CURRENT")).unwrap();
        let before = disk.fs.fingerprint();
        refused(disk.try_open(&options), Code::Corruption, "CURRENT");
        assert_eq!(disk.fs.fingerprint(), before, "{lost}: something was changed");
        write_file(&disk, "/db/CURRENT", &current);
        assert_eq!(all(&disk.open_with(&options)), "k=v", "{lost}");
    }
    for name in ["000007.sst", "000007.log", "MANIFEST-000007", "000007.ldb", "000007.blob"] {
        let disk = Disk::new();
        disk.fs.create_dir_all(Path::new(DIR)).unwrap();
        write_file(&disk, &format!("{DIR}/{name}"), b"precious");
        let error = refused(disk.try_open(&disk.options()), Code::Corruption, "CURRENT");
        assert!(error.to_string().contains(name), "{error}");
        assert_eq!(disk.fs.read_all(Path::new(&format!("{DIR}/{name}"))).unwrap(), b"precious");
    }
}

#[test]
fn other_peoples_files_stay_and_do_not_matter() {
    let disk = Disk::new();
    disk.fs.create_dir_all(Path::new(DIR)).unwrap();
    for name in ["README", "data.txt", "1x.sst", "LOG.mine", "sst"] {
        write_file(&disk, &format!("{DIR}/{name}"), b"mine");
    }
    let db = disk.open();
    put_synced(&db, "k", "v");
    db.flush().unwrap();
    db.close().unwrap();
    drop(db);
    drop(disk.open());
    let mut options = disk.options().db;
    options.env = disk.env();
    Db::destroy(&options, DIR).unwrap();
    let left: Vec<_> = disk.fs.all_files().iter().map(|path| path.file_name().unwrap().to_owned()).collect();
    assert_eq!(left, ["1x.sst", "LOG.mine", "README", "data.txt", "sst"]);
}

#[test]
fn an_interrupted_creation_can_be_repeated() {
    let disk = Disk::new();
    let db = disk.open();
    put_synced(&db, "k", "v");
    let ops = disk.fs.op_count();
    drop(db);
    for op in 0..ops {
        let disk = Disk::new();
        disk.fs.set_crash_point(op);
        let created = disk.try_open(&disk.options()).map(drop);
        for policy in [CrashPolicy::DropUnsynced, CrashPolicy::KeepAll] {
            let after = disk.crash(policy);
            let db = after.open();
            put_synced(&db, "k", "v");
            drop(db);
            assert_eq!(all(&after.open()), "k=v", "cut off at operation {op}, {created:?}");
        }
    }
}

#[test]
fn the_comparator_must_be_the_one_that_made_the_database() {
    let (disk, db) = fresh();
    db.put("k", "v").unwrap();
    drop(db);
    let mut options = disk.options();
    options.cf.comparator = UserComparator::ReverseBytewise;
    let error = refused(disk.try_open(&options), Code::InvalidArgument, "leveldb.BytewiseComparator");
    assert!(error.to_string().contains("rocksdb.ReverseBytewiseComparator"), "{error}");
    assert_eq!(all(&disk.open()), "k=v", "the failed attempt holds no lock");
}

#[test]
fn one_at_a_time_may_write() {
    let (disk, db) = fresh();
    refused(disk.try_open(&disk.options()), Code::IoError, "LOCK");
    let mut options = disk.options().db;
    options.env = disk.env();
    refused(Db::destroy(&options, DIR), Code::IoError, "LOCK");
    db.put("k", "v").unwrap();
    db.close().unwrap();
    drop(db);
    assert_eq!(all(&disk.open()), "k=v");
}

#[test]
fn of_many_that_open_at_once_one_gets_it() {
    let disk = Disk::new();
    drop(disk.open());
    let barrier = std::sync::Barrier::new(4);
    let opened = std::thread::scope(|scope| {
        let attempts: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let db = disk.try_open(&disk.options()).ok();
                    barrier.wait(); // Nobody closes before all have tried.
                    db.is_some()
                })
            })
            .collect();
        attempts.into_iter().map(|attempt| attempt.join().unwrap()).filter(|got| *got).count()
    });
    assert_eq!(opened, 1);
}

#[test]
fn reading_only_changes_nothing_at_all() {
    let (disk, db) = fresh();
    db.put("a", "flushed").unwrap();
    db.flush().unwrap();
    put_synced(&db, "b", "logged");
    db.close().unwrap();
    drop(db);
    let (ops, fingerprint) = (disk.fs.op_count(), disk.fs.fingerprint());

    let mut options = disk.options();
    options.db.error_if_exists = true; // Is for those who write.
    let db = disk.open_read_only(&options, &[]).unwrap();
    let second = disk.open_read_only(&options, &[]).expect("any number may read");
    for db in [&db, &second] {
        assert_eq!(all(db), "a=flushed b=logged");
        assert_eq!(get(db, "b"), "logged");
    }
    let cf = db.default_column_family();
    let mut batch = WriteBatch::new();
    batch.put("k", "v");
    let says = |result: ironstone::Result<()>| {
        refused(result, Code::NotSupported, "reading only");
    };
    says(db.put("k", "v"));
    says(db.delete("a"));
    says(db.write(&batch, &WriteOptions::default()));
    says(db.flush());
    says(db.compact_range(&CompactRangeOptions::default(), cf, None, None));
    says(db.create_column_family("x", &options.cf).map(drop));
    assert!(db.resume().is_err());
    says(db.flush_wal(true));
    says(db.sync_wal());
    db.close().unwrap();
    drop((db, second));
    assert_eq!(disk.fs.op_count(), ops, "{:?}", disk.fs.log().split_off(ops as usize));
    assert_eq!(disk.fs.fingerprint(), fingerprint);
}

#[test]
fn a_reader_next_to_a_writer_sees_what_was_there_and_harms_nothing() {
    let (disk, db) = fresh();
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    db.put("b", "2").unwrap();
    let reader = disk.open_read_only(&disk.options(), &[]).unwrap();
    db.put("c", "3").unwrap();
    db.flush().unwrap();
    assert_eq!(all(&reader), "a=1 b=2");
    reader.close().unwrap();
    drop(reader);
    assert_eq!(all(&db), "a=1 b=2 c=3");
    crate::disk::rewrite_all(&db);
    drop(db);
    assert_eq!(all(&disk.open()), "a=1 b=2 c=3");
}

#[test]
fn a_reader_that_wants_no_log_refuses_a_database_with_one() {
    let disk = Disk::new();
    let db = disk.open();
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    drop(db);
    let mut how = ReadOnlyOptions::default();
    let read = |how: &ReadOnlyOptions| Db::open_read_only_with(&disk.options().db, DIR, Vec::new(), how);
    assert_eq!(all(&read(&how).unwrap()), "a=1");
    how.error_if_wal_file_exists = true;
    // It is there though nothing is in it.
    refused(read(&how).map(drop), Code::Corruption, "error_if_wal_file_exists");
    disk.files(".log").iter().for_each(|wal| disk.fs.remove(wal).unwrap());
    assert_eq!(all(&read(&how).unwrap()), "a=1");
}

#[test]
fn a_reader_of_nothing_is_refused_and_creates_nothing() {
    let disk = Disk::new();
    refused(disk.open_read_only(&disk.options(), &[]).map(drop), Code::InvalidArgument, DIR);
    assert_eq!(disk.fs.op_count(), 0);
}

#[test]
fn destroying_removes_everything_and_needs_the_database_closed() {
    let (disk, db) = fresh();
    put_synced(&db, "k", "v");
    db.flush().unwrap();
    db.close().unwrap();
    drop(db);
    let mut options = disk.options().db;
    options.env = disk.env();
    Db::destroy(&options, DIR).unwrap();
    assert_eq!(disk.fs.all_files(), Vec::<PathBuf>::new());
    assert!(!disk.exists(DIR));
    Db::destroy(&options, DIR).expect("there is nothing to do");
    assert_eq!(all(&disk.open()), "");
}

#[test]
fn what_a_crash_left_behind_is_removed_when_the_database_is_opened() {
    let (disk, db) = fresh();
    put_synced(&db, "k", "v");
    db.flush().unwrap();
    db.close().unwrap();
    drop(db);
    for name in ["000099.sst", "000001.dbtmp", "OPTIONS-000098.dbtmp", "MANIFEST-000097"] {
        write_file(&disk, &format!("{DIR}/{name}"), b"left behind");
    }
    let db = disk.open();
    for name in ["000099.sst", "000001.dbtmp", "OPTIONS-000098.dbtmp", "MANIFEST-000097"] {
        disk.wait_until(name, || !disk.exists(format!("{DIR}/{name}")));
    }
    assert_eq!(all(&db), "k=v");
}

#[test]
fn each_directory_is_listed_once_by_an_opening() {
    let (disk, db) = fresh();
    put_synced(&db, "k", "v");
    drop(db);
    disk.faults.arm();
    let db = disk.open();
    assert_eq!(disk.faults.count(OpKind::List), 1);
    db.put("l", "v").unwrap();
    db.flush().unwrap();
    disk.wait_until("the WAL of before the flush is gone", || disk.files(".log").len() == 1);
    assert_eq!(disk.faults.count(OpKind::List), 1, "there are no old MANIFESTs to look for");
    assert_eq!(all(&db), "k=v l=v");

    let disk = Disk::new();
    let mut options = disk.options();
    options.db.wal_dir = "/wal".into();
    options.db.db_log_dir = "/log".into();
    options.db.db_paths = vec![DbPath::new("/tables", 1 << 30)];
    let db = disk.open_with(&options);
    put_synced(&db, "k", "v");
    db.flush().unwrap();
    put_synced(&db, "l", "v");
    drop(db);
    disk.faults.arm();
    let db = disk.open_with(&options);
    assert_eq!(disk.faults.count(OpKind::List), 4, "of the database, of tables, WALs and LOGs");
    assert_eq!(all(&db), "k=v l=v");
}

#[test]
fn as_many_logs_are_kept_as_is_said() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.keep_log_file_num = 3;
    let logs = || {
        let mut logs = disk.files("");
        logs.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("LOG")));
        logs.sort();
        logs
    };
    let mut before = Vec::new();
    for opening in 1..=5 {
        drop(disk.open_with(&options));
        let now = logs();
        assert_eq!(now.len(), opening.min(3));
        if opening > 3 {
            assert!(!now.contains(&before[1]) && now.contains(&before[2]), "the oldest one went: {now:?}");
        }
        before = now;
    }
    let manifest =
        disk.files("").into_iter().find(|path| path.to_string_lossy().contains("MANIFEST")).unwrap();
    disk.fs.remove(&manifest).unwrap();
    for _ in 0..5 {
        disk.try_open(&options).expect_err("without a MANIFEST");
        assert_eq!(logs().len(), 3, "nor are there more if it does not open");
    }
}

#[test]
fn a_missing_table_is_noticed_when_the_database_is_opened() {
    let (disk, db) = fresh();
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    put_synced(&db, "b", "2");
    drop(db);
    let table = disk.newest(".sst");
    disk.fs.remove(&table).unwrap();
    let error = disk.try_open(&disk.options()).expect_err("paranoid_checks is on");
    assert!(error.to_string().contains(table.to_str().unwrap()), "{error}");

    let mut lenient = disk.options();
    lenient.db.paranoid_checks = false;
    let db = disk.open_with(&lenient);
    assert_eq!(get(&db, "b"), "2", "what is healthy can be read");
    assert!(db.get("a").is_err(), "and what is not is no missing key");
    let scanned = db.iter().and_then(|mut iter| iter.seek_to_first());
    assert!(scanned.unwrap_err().to_string().contains(table.to_str().unwrap()));
}

#[test]
fn a_table_that_is_not_the_one_that_was_written_is_noticed() {
    let (disk, db) = fresh();
    for key in ["a", "b"] {
        db.put(key, "v").unwrap();
        db.flush().unwrap();
    }
    drop(db);
    let tables = disk.files(".sst");
    let [first, second] = [0, 1].map(|at| disk.fs.read_all(&tables[at]).unwrap());
    assert_eq!(first.len(), second.len(), "else their sizes would tell");
    // Of the right size, and whole.
    let disk = disk.kill();
    disk.fs.corrupt(&tables[0], |bytes| *bytes = second.clone()).unwrap();
    disk.fs.corrupt(&tables[1], |bytes| *bytes = first.clone()).unwrap();
    refused(disk.try_open(&disk.options()), Code::Corruption, ".sst");
    // The right one, with something behind it.
    disk.fs.corrupt(&tables[0], |bytes| *bytes = [&first[..], b"more"].concat()).unwrap();
    disk.fs.corrupt(&tables[1], |bytes| *bytes = second.clone()).unwrap();
    refused(disk.try_open(&disk.options()), Code::Corruption, "the MANIFEST says");
    disk.fs.corrupt(&tables[0], |bytes| *bytes = first.clone()).unwrap();
    assert_eq!(all(&disk.open()), "a=v b=v");
}

/// Three tables, by age, of a database that is closed; with a key in each.
fn three_tables() -> (Disk, Vec<PathBuf>) {
    let (disk, db) = fresh();
    for key in ["a", "b", "c"] {
        db.put(key, "v").unwrap();
        db.flush().unwrap();
    }
    drop(db);
    let tables = disk.files(".sst");
    assert_eq!(tables.len(), 3);
    (disk, tables)
}

#[test]
fn tables_are_opened_after_the_database_if_that_is_wished() {
    let (disk, tables) = three_tables();
    let mut options = disk.options();
    options.db.open_files_async = true;
    let statistics = Arc::new(Statistics::new());
    options.db.statistics = Some(Arc::clone(&statistics));
    let opened = || statistics.ticker(Ticker::NoFileOpens);
    disk.faults.arm();
    let slow = Fault::Delay(Duration::from_millis(100));
    disk.faults.add(FaultRule::new(slow).on(&[OpKind::Read]).path(".sst"));
    let db = disk.open_with(&options);
    assert!(opened() < 3, "the database is there before its tables are open");
    assert_eq!(get(&db, "c"), "v", "and is read");
    drop(db); // Does not wait for the others.
    disk.faults.clear();

    let before = opened();
    let db = disk.open_with(&options);
    disk.wait_until("all tables are open", || opened() == before + 3);
    assert_eq!(all(&db), "a=v b=v c=v");
    assert_eq!(opened(), before + 3);
    db.put("d", "v").unwrap();
    drop((db, tables));

    // Nobody waits for tables that are only read.
    let before = opened();
    let db = disk.open_read_only(&options, &[]).unwrap();
    assert_eq!(opened(), before);
    assert_eq!(all(&db), "a=v b=v c=v d=v");
}

#[test]
fn tables_that_are_opened_later_are_missed_at_once_and_judged_later() {
    let (disk, tables) = three_tables();
    let mut options = disk.options();
    options.db.open_files_async = true;
    let missing = disk.kill();
    missing.fs.remove(&tables[1]).unwrap();
    let name = tables[1].to_str().unwrap();
    let error = missing.try_open(&options).unwrap_err();
    assert!(error.is_path_not_found() && error.to_string().contains(name), "{error}");
    let short = disk.kill();
    short.fs.corrupt(&tables[1], |bytes| bytes.truncate(bytes.len() - 1)).unwrap();
    refused(short.try_open(&options), Code::Corruption, name);

    disk.fs.corrupt(&tables[1], |bytes| bytes.iter_mut().rev().take(40).for_each(|byte| *byte ^= 1)).unwrap();
    refused(disk.try_open(&disk.options()), Code::Corruption, name);
    let listener = Arc::new(Failures::default());
    options.db.listeners = vec![Arc::clone(&listener) as Arc<dyn EventListener>];
    let db = disk.open_with(&options);
    assert_eq!(get(&db, "a"), "v", "what is healthy is read");
    assert!(db.get("b").unwrap_err().to_string().contains(name));
    disk.wait_until("the background finds it", || db.put("d", "v").is_err());
    let error = db.put("d", "v").unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains(name), "{error}");
    disk.wait_until("the listener is told", || !listener.0.lock().is_empty());
    assert_eq!(*listener.0.lock(), [BackgroundErrorReason::AsyncFileOpen]);
}

#[derive(Default)]
struct Failures(Mutex<Vec<BackgroundErrorReason>>);

impl EventListener for Failures {
    fn on_background_error(&self, reason: BackgroundErrorReason, _: &ironstone::Error) {
        self.0.lock().push(reason);
    }
}

#[test]
fn the_identity_stays_and_is_restored() {
    let (disk, db) = fresh();
    let id = db.identity().to_owned();
    assert_eq!(id.len(), 36, "{id}");
    drop(db);
    for bytes in [None, Some(&b"something else"[..]), Some(b"")] {
        disk.fs.remove(Path::new("/db/IDENTITY")).unwrap();
        if let Some(bytes) = bytes {
            write_file(&disk, "/db/IDENTITY", bytes);
        }
        assert_eq!(disk.open().identity(), id);
        assert_eq!(disk.fs.read_all(Path::new("/db/IDENTITY")).unwrap(), id.as_bytes());
    }
    let (_disk, other) = fresh();
    assert_ne!(other.identity(), id);
}

#[test]
fn the_identity_survives_a_power_loss_where_nothing_else_has_it() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.write_dbid_to_manifest = false;
    let db = disk.open_with(&options);
    let id = db.identity().to_owned();
    let disk = disk.lose_power();
    assert_eq!(disk.open_with(&options).identity(), id);
}

#[test]
fn after_closing_everything_is_refused_and_nothing_breaks() {
    let (disk, db) = fresh();
    db.put("k", "v").unwrap();
    db.close().unwrap();
    db.close().expect("once is enough, twice does nothing");
    let closed = |result: ironstone::Result<()>| {
        refused(result, Code::ShutdownInProgress, "clos");
    };
    closed(db.put("k", "w"));
    closed(db.flush());
    closed(db.wait_for_compact());
    closed(db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None));
    closed(db.create_column_family("x", &disk.options().cf).map(drop));
    assert_eq!(get(&db, "k"), "v", "reading still works: nothing was taken away");
    drop(db);
    assert_eq!(get(&disk.open(), "k"), "v");
}

#[test]
fn closing_does_not_wait_for_work_that_was_paused() {
    let (disk, db) = fresh();
    db.put("k", "v").unwrap();
    crate::disk::put_unlogged(&db, "unlogged", "1").unwrap();
    db.pause_background_work().unwrap();
    let closed = db.close();
    drop(db);
    let found = all(&disk.open());
    assert!(found == "k=v unlogged=1" || (closed.is_err() && found == "k=v"), "{found}");
}

#[test]
fn logs_may_go_elsewhere() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.db_log_dir = "/logs".into();
    drop(disk.open_with(&options));
    drop(disk.open_with(&options));
    assert!(disk.files("LOG").iter().all(|path| path.starts_with("/logs")));
    assert_eq!(disk.fs.list(Path::new("/logs")).unwrap().len(), 2, "the old one is set aside");
}

#[test]
fn databases_in_memory_need_no_disk() {
    let db = Db::open(&Options::in_memory(), "/anywhere").unwrap();
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    assert_eq!(get(&db, "k"), "v");
    assert_eq!(db.get_cf(&ReadOptions::default(), db.default_column_family(), "x").unwrap(), None);
}
