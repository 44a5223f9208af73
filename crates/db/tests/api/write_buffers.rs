//! One bound on the memory of memtables, over column families and databases.

use crate::disk::{Disk, all};
use ironstone::{
    BlockCache, CacheOptions, Code, Db, FlushOptions, Goal, Options, ReadOptions, WriteBufferManager,
    WriteOptions,
};
use std::sync::Arc;

/// Memtables say what they have in steps of so many bytes, and one write goes on top.
const SLACK: usize = (64 << 10) + (4 << 10);

fn managed(disk: &Disk, manager: &Arc<WriteBufferManager>) -> Options {
    let mut options = disk.options();
    options.db.write_buffer_manager = Some(Arc::clone(manager));
    options
}

/// Writes `count` values of a KiB.
fn fill(db: &Db, count: usize) {
    for number in 0..count {
        db.put(format!("key{number:06}"), [b'v'; 1000]).unwrap();
    }
}

fn tables(db: &Db) -> usize {
    db.live_files().len()
}

#[test]
fn a_bound_on_all_column_families_flushes_the_largest_memtable() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.db_write_buffer_size = 512 << 10;
    let db = disk.open_with(&options);
    let other = db.create_column_family("other", &options.cf).unwrap();
    db.put_cf(&WriteOptions::default(), &other, "small", "v").unwrap();
    fill(&db, 600);
    disk.wait_until("a flush", || tables(&db) > 0);
    let manager = db.options().write_buffer_manager.clone().expect("the option makes one");
    assert_eq!(manager.buffer_size(), 512 << 10);
    assert!(db.live_files().iter().all(|file| file.column_family == "default"));
    assert_eq!(db.get_cf(&ReadOptions::default(), &other, "small").unwrap().as_deref(), Some(&b"v"[..]));
    for _ in 0..5 {
        fill(&db, 600);
        assert!(manager.mutable_memtable_memory_usage() <= (512 << 10) + SLACK);
    }
    assert_eq!(db.iter().unwrap().entries().count(), 600);
}

#[test]
fn an_idle_database_makes_room_for_a_busy_one() {
    let (idle_disk, busy_disk) = (Disk::new(), Disk::new());
    let manager = WriteBufferManager::new(1 << 20, None, false);
    let idle = idle_disk.open_with(&managed(&idle_disk, &manager));
    let busy = busy_disk.open_with(&managed(&busy_disk, &manager));
    fill(&idle, 600);
    assert_eq!(tables(&idle), 0);
    assert!(manager.memory_usage() > 500 << 10);
    fill(&busy, 400);
    idle_disk.wait_until("the idle one is flushed", || tables(&idle) == 1);
    assert_eq!(tables(&busy), 0, "its memtable is the smaller one");
    idle_disk.wait_until("memory is free", || manager.memory_usage() < 600 << 10);
    drop((idle, busy));
    assert_eq!((manager.memory_usage(), manager.mutable_memtable_memory_usage()), (0, 0));
}

#[test]
fn many_databases_stay_within_one_bound() {
    let manager = WriteBufferManager::new(2 << 20, None, true);
    let disks: Vec<Disk> = (0..20).map(|_| Disk::new()).collect();
    let dbs: Vec<Db> = disks.iter().map(|disk| disk.open_with(&managed(disk, &manager))).collect();
    let mut most = 0;
    for _ in 0..3 {
        for db in &dbs {
            fill(db, 150);
            most = most.max(manager.memory_usage());
        }
    }
    assert!(most <= (2 << 20) + SLACK, "{most}");
    assert!(most > 1 << 20, "{most}");
    assert!(dbs.iter().all(|db| db.iter().unwrap().entries().count() == 150));
}

#[test]
fn what_memtables_take_the_cache_does_not_have() {
    let disk = Disk::new();
    let cache = BlockCache::new(CacheOptions { capacity: 8 << 20, ..CacheOptions::default() });
    let manager = WriteBufferManager::new(4 << 20, Some(cache.clone()), false);
    let db = disk.open_with(&managed(&disk, &manager));
    let before = cache.usage();
    fill(&db, 1000);
    assert!(manager.memory_usage() > 900 << 10);
    assert_eq!(cache.usage() - before, manager.memory_usage());
    drop(db);
    assert_eq!(cache.usage(), before);
}

#[test]
fn writers_wait_for_memory_if_they_are_to() {
    let disk = Disk::new();
    let manager = WriteBufferManager::new(256 << 10, None, true);
    let db = disk.open_with(&managed(&disk, &manager));
    db.pause_background_work().unwrap();
    let impatient = WriteOptions { no_slowdown: true, ..WriteOptions::default() };
    let mut accepted = 0;
    let error = loop {
        let written = db.put_cf(&impatient, db.default_column_family(), format!("{accepted:05}"), [0; 1000]);
        match written {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
        assert!(accepted < 10_000, "memory never runs out");
    };
    assert_eq!(error.code(), Code::Incomplete);
    assert!(error.message().contains("write buffer manager"), "{error}");
    assert!(manager.memory_usage() <= (256 << 10) + SLACK);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| db.put("patient", "v"));
        db.continue_background_work().unwrap();
        db.flush_cf(&FlushOptions { wait: true, ..FlushOptions::default() }, db.default_column_family())
            .unwrap();
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(db.iter().unwrap().entries().count(), accepted + 1);
}

#[test]
fn a_bound_that_shrinks_is_kept_from_the_next_write_on() {
    let disk = Disk::new();
    let manager = WriteBufferManager::new(0, None, false);
    let db = disk.open_with(&managed(&disk, &manager));
    fill(&db, 1000);
    assert_eq!(tables(&db), 0);
    manager.set_buffer_size(128 << 10);
    fill(&db, 100);
    disk.wait_until("memory is free", || manager.memory_usage() < 256 << 10);
    assert!(all(&db).contains("key000999"));
}

#[test]
fn options_made_from_a_number_of_bytes_keep_to_it() {
    for goal in [Goal::WriteRate, Goal::ReadLatency, Goal::Space] {
        const MEMORY: u64 = 8 << 20;
        let disk = Disk::new();
        let mut options = Options::auto(MEMORY, 2, goal);
        options.db.create_if_missing = true;
        options.db.env = disk.env();
        let manager = options.db.write_buffer_manager.clone().unwrap();
        let cache = options.cf.table.block_cache.clone().unwrap();
        assert_eq!(cache.capacity() as u64, MEMORY);
        let databases = ["/one", "/two", "/three"].map(|path| Db::open(&options, path).unwrap());
        let mut most = 0;
        for number in 0..30_000_u32 {
            let db = &databases[number as usize % 3];
            db.put(number.wrapping_mul(2_654_435_761).to_be_bytes(), [number as u8; 500]).unwrap();
            if number % 100 == 0 {
                assert!(manager.memory_usage() <= manager.buffer_size() + (1 << 20), "{goal:?}");
                most = most.max(cache.usage());
            }
        }
        for db in &databases {
            db.wait_for_compact().unwrap();
            let mut iter = db.iter().unwrap();
            assert_eq!((iter.seek_to_first().unwrap(), iter.entries().count()), (true, 10_000));
            most = most.max(cache.usage());
        }
        // Pinned blocks are beside the bound: those that compactions and the iterator hold.
        assert!(most as u64 <= MEMORY + (2 << 20), "{goal:?}: {most}");
        assert!(manager.buffer_size() as u64 <= MEMORY / 2);
    }
}

#[test]
fn recovery_keeps_to_the_bound_unless_it_is_told_not_to() {
    for enforced in [true, false] {
        let disk = Disk::new();
        let db = disk.open();
        let small = db.create_column_family("small", &disk.options().cf).unwrap();
        db.put_cf(&WriteOptions::default(), &small, "a", "1").unwrap();
        fill(&db, 2000);
        assert_eq!(tables(&db), 0);
        let after = disk.kill();
        let manager = WriteBufferManager::new(512 << 10, None, false);
        let mut options = managed(&after, &manager);
        options.db.avoid_flush_during_recovery = true;
        options.db.enforce_write_buffer_manager_during_recovery = enforced;
        let db = after.open_families(&options, &["small"]).unwrap();
        let default = db.live_files().iter().filter(|file| file.column_family == "default").count();
        if enforced {
            assert!((3..20).contains(&default), "{default} tables of two megabytes");
            assert!(manager.memory_usage() <= (512 << 10) + SLACK);
            // What is left follows what is in tables.
            assert_eq!(tables(&db) - default, 1);
        } else {
            assert_eq!(tables(&db), 0);
            assert!(manager.memory_usage() > 2_000_000);
        }
        assert_eq!(db.iter().unwrap().entries().count(), 2000);
        drop(db);
        let again = after.kill();
        let db = again.open_families(&again.options(), &["small"]).unwrap();
        assert_eq!(db.iter().unwrap().entries().count(), 2000);
    }
}

#[test]
fn recovery_makes_an_idle_database_with_a_larger_memtable_give_way() {
    let (idle_disk, disk) = (Disk::new(), Disk::new());
    let db = disk.open();
    fill(&db, 200);
    let after = disk.kill();
    let manager = WriteBufferManager::new(1 << 20, None, false);
    let idle = idle_disk.open_with(&managed(&idle_disk, &manager));
    fill(&idle, 800);
    let mut options = managed(&after, &manager);
    options.db.avoid_flush_during_recovery = true;
    let db = after.open_with(&options);
    assert_eq!(tables(&db), 0, "the larger one went");
    idle_disk.wait_until("it is in a table", || tables(&idle) == 1);
    assert_eq!((db.iter().unwrap().entries().count(), idle.iter().unwrap().entries().count()), (200, 800));
}
