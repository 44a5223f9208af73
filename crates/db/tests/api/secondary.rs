//! Secondaries: they read what another opening of the database writes.

use crate::disk::{
    DIR, Disk, all, forward, fresh, get, get_in, put_synced, put_unlogged, refused, rewrite_all,
};
use ironstone::options::DbOptions;
use ironstone::vfs::traced::{IoCall, IoWatch, TracedFileSystem};
use ironstone::{Code, ColumnFamilyDescriptor, Db, ReadOptions, Result, WriteBatch, WriteOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const LOG: &str = "/secondary";

fn secondary(disk: &Disk, names: &[&str]) -> Result<Db> {
    secondary_with(disk, names, |_| {})
}

fn secondary_with(disk: &Disk, names: &[&str], change: impl FnOnce(&mut DbOptions)) -> Result<Db> {
    let mut options = disk.options();
    change(&mut options.db);
    let all = ["default"].iter().chain(names);
    let descriptors = all.map(|name| ColumnFamilyDescriptor::new(*name, options.cf.clone())).collect();
    Db::open_secondary(&options.db, DIR, LOG, descriptors)
}

#[test]
fn it_sees_what_is_there_when_it_catches_up() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    let reader = secondary(&disk, &[]).unwrap();
    assert_eq!(all(&reader), "a=1");
    db.put("b", "2").unwrap();
    assert_eq!(all(&reader), "a=1");
    let before = reader.iter().unwrap();
    reader.try_catch_up_with_primary().unwrap();
    assert_eq!(all(&reader), "a=1 b=2");
    assert_eq!(reader.latest_sequence(), db.latest_sequence());
    db.delete_range("a", "b").unwrap();
    rewrite_all(&db);
    db.put("c", "3").unwrap();
    put_unlogged(&db, "d", "nobody knows of it").unwrap();
    reader.try_catch_up_with_primary().unwrap();
    assert_eq!(all(&reader), "b=2 c=3");
    db.flush().unwrap();
    reader.try_catch_up_with_primary().unwrap();
    assert_eq!(all(&reader), "b=2 c=3 d=nobody knows of it");
    assert_eq!(forward(before), "a=1", "what it stood on stays");
    reader.try_catch_up_with_primary().unwrap();
    assert_eq!(all(&reader), all(&db));
    assert!(disk.exists("/secondary/LOG"));
}

#[test]
fn tables_that_the_primary_removes_stay_readable() {
    let (disk, db) = fresh();
    for i in 0..500 {
        db.put(format!("key{i:04}"), "x".repeat(100)).unwrap();
    }
    db.flush().unwrap();
    let reader = secondary(&disk, &[]).unwrap();
    let tables = disk.files(".sst");
    for i in 0..500 {
        db.put(format!("key{i:04}"), "y").unwrap();
    }
    rewrite_all(&db);
    disk.wait_until("the table is removed", || !disk.exists(&tables[0]));
    assert!(reader.iter().unwrap().entries().all(|entry| entry.unwrap().1.len() == 100));
    reader.try_catch_up_with_primary().unwrap();
    // Those that it has only caught up with, too.
    let tables = disk.files(".sst");
    db.put("key0000", "again").unwrap();
    rewrite_all(&db);
    disk.wait_until("the tables are removed", || tables.iter().all(|table| !disk.exists(table)));
    let lens: Vec<_> = reader.iter().unwrap().entries().map(|entry| entry.unwrap().1.len()).collect();
    assert_eq!(lens, [1; 500]);
}

#[test]
fn no_option_leaves_tables_closed_that_the_primary_may_remove() {
    let (disk, db) = fresh();
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    let unopened = |options: &mut DbOptions| {
        (options.open_files_async, options.paranoid_checks, options.max_open_files) = (true, false, 20);
    };
    let reader = secondary_with(&disk, &[], unopened).unwrap();
    let tables = disk.files(".sst");
    db.put("a", "2").unwrap();
    rewrite_all(&db);
    disk.wait_until("the table is removed", || !disk.exists(&tables[0]));
    assert_eq!(all(&reader), "a=1");
}

/// Has the primary write to a table what is in a WAL, and remove that, when the MANIFEST has been read.
struct FlushesBehind {
    primary: Arc<Db>,
    disk: Arc<Disk>,
    left: AtomicUsize,
}

impl IoWatch for FlushesBehind {
    fn is_on(&self) -> bool {
        true
    }
    fn note(&self, call: &IoCall<'_>) {
        let is_manifest = call.operation == "Read" && call.path.to_string_lossy().contains("MANIFEST");
        let take = |left: usize| left.checked_sub(1);
        if is_manifest && self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok() {
            let wals = self.disk.files(".log");
            self.primary.flush().unwrap();
            self.disk.wait_until("the WAL is removed", || !self.disk.exists(&wals[0]));
        }
    }
}

#[test]
fn a_wal_that_goes_behind_its_back_is_no_loss() {
    for at_opening in [true, false] {
        let (disk, db) = fresh();
        let (disk, db) = (Arc::new(disk), Arc::new(db));
        put_synced(&db, "a", "1");
        let (left, primary) = (AtomicUsize::new(0), Arc::clone(&db));
        let watch = Arc::new(FlushesBehind { primary, disk: Arc::clone(&disk), left });
        let fs = Arc::clone(&disk.options().db.env.fs);
        let traced = Arc::new(TracedFileSystem::new(fs, Arc::clone(&watch) as Arc<dyn IoWatch>));
        let open = || secondary_with(&disk, &[], |options| options.env.fs = traced.clone());
        if at_opening {
            watch.left.store(1, Ordering::SeqCst);
            assert_eq!(all(&open().unwrap()), "a=1");
        } else {
            let reader = open().unwrap();
            db.put("b", "2").unwrap();
            watch.left.store(1, Ordering::SeqCst);
            reader.try_catch_up_with_primary().unwrap();
            assert_eq!(all(&reader), "a=1 b=2");
        }
        assert_eq!(watch.left.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn what_it_cannot_do_it_refuses() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    let reader = secondary(&disk, &[]).unwrap();
    refused(reader.put("b", "2"), Code::NotSupported, "reading only");
    refused(reader.checkpoint("/copy"), Code::NotSupported, "reading only");
    let past = ReadOptions { snapshot: Some(reader.snapshot()), ..ReadOptions::default() };
    refused(
        reader.get_cf(&past, reader.default_column_family(), "a").map(drop),
        Code::NotSupported,
        "snapshots of a secondary",
    );
    refused(db.try_catch_up_with_primary(), Code::NotSupported, "no secondary");
    refused(secondary(&disk, &["none"]).map(drop), Code::InvalidArgument, "none");
    assert!(Db::open_secondary(&disk.options().db, "/nowhere", LOG, vec![]).is_err());
}

#[test]
fn column_families_come_when_they_are_opened_and_go_when_they_are_dropped() {
    let (disk, db) = fresh();
    let cf = db.create_column_family("one", &disk.options().cf).unwrap();
    db.put_cf(&WriteOptions::default(), &cf, "a", "1").unwrap();
    let reader = secondary(&disk, &["one"]).unwrap();
    let seen = reader.column_family("one").unwrap();
    assert_eq!(get_in(&reader, &seen, "a"), "1");
    let two = db.create_column_family("two", &disk.options().cf).unwrap();
    db.put_cf(&WriteOptions::default(), &two, "a", "2").unwrap();
    db.drop_column_family(&cf).unwrap();
    put_synced(&db, "b", "3");
    reader.try_catch_up_with_primary().unwrap();
    assert_eq!(all(&reader), "b=3");
    assert!(reader.column_family("one").is_none() && reader.column_family("two").is_none());
    refused(reader.get_cf(&ReadOptions::default(), &seen, "a").map(drop), Code::ColumnFamilyDropped, "one");
}

#[test]
fn a_primary_that_is_killed_and_comes_back_is_followed_on() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    let reader = secondary(&disk, &[]).unwrap();
    db.close().unwrap();
    drop(db);
    for round in 0..3 {
        let db = disk.open();
        put_synced(&db, &format!("b{round}"), "2");
        reader.try_catch_up_with_primary().unwrap();
        assert_eq!(all(&reader), all(&db));
    }
    reader.try_catch_up_with_primary().unwrap();
    assert_eq!(all(&reader), "a=1 b0=2 b1=2 b2=2");
}

#[test]
fn under_load_it_always_sees_a_state_that_there_was() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.create_missing_column_families = true;
    options.cf.disable_auto_compactions = false;
    options.cf.write_buffer_size = 32 << 10;
    options.cf.target_file_size_base = 16 << 10;
    options.cf.max_bytes_for_level_base = 64 << 10;
    options.db.max_manifest_file_size = 4 << 10;
    options.db.max_manifest_space_amp_pct = 50;
    let db = disk.open_families(&options, &["other"]).unwrap();
    let other = db.column_family("other").unwrap();
    let reader = secondary(&disk, &["other"]).unwrap();
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
                batch.delete(format!("k{}", (round + 25) % 50));
                db.write(&batch, &WriteOptions::default()).unwrap();
            }
        });
        let mut last = 0;
        for _ in 0..60 {
            let before = get(&db, "mark").parse::<u64>().unwrap_or(0);
            reader.try_catch_up_with_primary().unwrap();
            let seen = reader.column_family("other").unwrap();
            let mark = get(&reader, "mark");
            assert_eq!(mark, get_in(&reader, &seen, "mark"));
            let mark = mark.parse::<u64>().unwrap_or(0);
            assert!(mark >= before && mark >= last, "{mark} after {before} and {last}");
            // The keys that are there follow from the mark.
            for entry in reader.iter().unwrap().entries() {
                let (key, value) = entry.unwrap();
                if key.starts_with(b"k") {
                    let round: u64 = String::from_utf8_lossy(&value).parse().unwrap();
                    assert!(round <= mark && round + 25 > mark, "{round} at {mark}");
                }
            }
            last = mark;
        }
        stop.store(true, Ordering::Relaxed);
    });
    reader.try_catch_up_with_primary().unwrap();
    assert_eq!(all(&reader), all(&db));
}
