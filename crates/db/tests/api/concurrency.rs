//! Many threads at once: nothing is lost, nothing is seen early, and syncs are shared.

use crate::disk::{Disk, get};
use ironstone::vfs::OpKind;
use ironstone::vfs::fault::{Fault, FaultRule};
use ironstone::{
    CompactRangeOptions, Db, FlushOptions, Options, ReadOptions, WriteBatch, WriteOptions, merge_operators,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const WRITERS: u64 = 8;

/// Small memtables and files, so that everything goes on at once.
fn busy(disk: &Disk) -> Options {
    let mut options = disk.options();
    options.cf.disable_auto_compactions = false;
    options.cf.write_buffer_size = 32 << 10;
    options.cf.level0_file_num_compaction_trigger = 2;
    options.cf.target_file_size_base = 32 << 10;
    options.cf.max_bytes_for_level_base = 64 << 10;
    options.db.max_background_jobs = 4;
    options
}

fn number(bytes: &[u8]) -> u64 {
    String::from_utf8_lossy(bytes).split(' ').next().unwrap().parse().unwrap()
}

/// Each writer counts up under two keys of its own, in one batch, and adds a new key each time. Readers
/// check at any moment: the two are equal, they never go back, and every key below them is there.
#[test]
fn readers_see_whole_batches_in_order_while_everything_goes_on() {
    let disk = Disk::new();
    let db = disk.open_with(&busy(&disk));
    let stop = AtomicBool::new(false);
    let rounds = AtomicU64::new(0);
    let write = |writer: u64, count: u64| {
        let mut batch = WriteBatch::new();
        let value = format!("{count} {}", "x".repeat(150));
        batch.put(format!("first{writer}"), &value);
        batch.put(format!("last{writer}"), &value);
        batch.put(format!("log{writer}-{count:06}"), &value);
        batch.delete(format!("log{writer}-{:06}", count.wrapping_sub(100)));
        let sync = writer.is_multiple_of(2) && count.is_multiple_of(10);
        db.write(&batch, &WriteOptions { sync, ..WriteOptions::default() }).unwrap();
    };
    (0..WRITERS).for_each(|writer| write(writer, 0));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let write = &write;
                scope.spawn(move || (1..400).for_each(|count| write(writer, count)))
            })
            .collect();
        scope.spawn(|| {
            let mut seen = [0; WRITERS as usize];
            while !stop.load(Ordering::Relaxed) {
                check_moment(&db, &mut seen);
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            let mut seen = [0; WRITERS as usize];
            while !stop.load(Ordering::Relaxed) {
                check_scan(&db, &mut seen);
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let cf = db.default_column_family();
                db.flush_cf(&FlushOptions { wait: true, ..FlushOptions::default() }, cf).unwrap();
                db.compact_range(&CompactRangeOptions::default(), cf, Some(b"log3"), Some(b"log5")).unwrap();
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    assert!(rounds.load(Ordering::Relaxed) > 0);
    for db in [disk.kill().open_with(&busy(&disk)), db] {
        let mut seen = [399; WRITERS as usize];
        check_moment(&db, &mut seen);
        check_scan(&db, &mut seen);
        let logs = db.iter().unwrap().entries().filter(|entry| entry.as_ref().unwrap().0.starts_with(b"log"));
        assert_eq!(logs.count() as u64, WRITERS * 100);
    }
}

fn check_moment(db: &Db, seen: &mut [u64]) {
    let snapshot = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::default() };
    for (writer, seen) in seen.iter_mut().enumerate() {
        let keys = [format!("first{writer}"), format!("last{writer}")];
        let found = db.multi_get_cf(&snapshot, db.default_column_family(), &keys);
        let found: Vec<u64> = found.into_iter().map(|value| number(&value.unwrap().unwrap())).collect();
        assert_eq!(found[0], found[1], "half a batch of writer {writer}");
        assert!(found[0] >= *seen, "writer {writer} went back from {seen} to {}", found[0]);
        *seen = found[0];
        let newest = format!("log{writer}-{:06}", found[0]);
        let entry = db.get_cf(&snapshot, db.default_column_family(), &newest).unwrap();
        assert_eq!(entry.map(|value| number(&value)), Some(found[0]), "{newest}");
    }
}

/// A scan shows one moment: for each writer the newest entry of its log is what it counted up to.
fn check_scan(db: &Db, seen: &mut [u64]) {
    let mut counted = vec![None; seen.len()];
    let mut newest = vec![0; seen.len()];
    for entry in db.iter().unwrap().entries() {
        let (key, value) = entry.unwrap();
        let key = String::from_utf8_lossy(&key).into_owned();
        if let Some(writer) = key.strip_prefix("first") {
            counted[writer.parse::<usize>().unwrap()] = Some(number(&value));
        } else if let Some(writer) = key.strip_prefix("last") {
            assert_eq!(counted[writer.parse::<usize>().unwrap()], Some(number(&value)));
        } else {
            let (writer, count) = key["log".len()..].split_once('-').unwrap();
            newest[writer.parse::<usize>().unwrap()] = count.parse().unwrap();
        }
    }
    for (writer, seen) in seen.iter_mut().enumerate() {
        assert_eq!(counted[writer], Some(newest[writer]), "writer {writer}");
        assert!(newest[writer] >= *seen);
        *seen = newest[writer];
    }
}

#[test]
fn writers_that_sync_at_once_share_their_syncs() {
    let disk = Disk::new();
    // A sync that takes its time, as real ones do: the others gather behind it.
    disk.faults.arm();
    let slow = FaultRule::new(Fault::Delay(Duration::from_millis(2)));
    disk.faults.add(slow.on(&[OpKind::Sync]).path(".log").forever());
    let db = disk.open();
    let before = disk.fs.op_count();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let db = &db;
            scope.spawn(move || {
                for count in 0..25 {
                    let cf = db.default_column_family();
                    db.put_cf(&WriteOptions::synced(), cf, format!("{writer}-{count}"), "v").unwrap();
                }
            });
        }
    });
    let log = disk.fs.log().split_off(before as usize);
    let syncs = log.iter().filter(|entry| entry.kind == OpKind::Sync).count();
    assert!(syncs < 150, "{syncs} syncs for 200 writes");
    let db = disk.lose_power().open();
    assert_eq!(db.iter().unwrap().entries().count(), 200);
}

/// Whoever syncs applies small batches of those that wait; large ones, merges and writes with checksums of their own are
/// applied by their threads, in between.
#[test]
fn synced_writes_of_all_kinds_are_seen_when_they_return_and_are_applied_once() {
    let disk = Disk::new();
    disk.faults.arm();
    let slow = FaultRule::new(Fault::Delay(Duration::from_micros(300)));
    disk.faults.add(slow.on(&[OpKind::Sync]).path(".log").forever());
    let mut options = busy(&disk);
    options.cf.merge_operator = Some(merge_operators::uint64_add());
    options.cf.write_buffer_size = 256 << 10;
    let db = disk.open_with(&options);
    let synced = WriteOptions::synced();
    let protected = WriteOptions { protection_bytes_per_key: 8, ..WriteOptions::synced() };
    let cf = db.default_column_family();
    std::thread::scope(|scope| {
        for thread in 0..WRITERS {
            let (db, synced, protected) = (&db, &synced, &protected);
            scope.spawn(move || {
                for count in 0..60 {
                    let (key, value) = (format!("{thread}"), format!("{count}"));
                    db.put_cf(if count % 5 == 0 { protected } else { synced }, cf, &key, &value).unwrap();
                    assert_eq!(get(db, &key), value);
                    db.merge_cf(synced, cf, "sum", 1_u64.to_le_bytes()).unwrap();
                    if (thread + count) % 4 == 0 {
                        let mut many = WriteBatch::new();
                        (0..20).for_each(|place| many.put(format!("{thread}-{place}"), &value));
                        db.write(&many, synced).unwrap();
                        assert_eq!(get(db, &format!("{thread}-19")), value);
                    }
                    if count % 7 == 0 {
                        db.delete_cf(synced, cf, &key).unwrap();
                        assert_eq!(get(db, &key), "-");
                    }
                }
            });
        }
    });
    let writes = db.latest_sequence();
    let all = |db: &Db| db.iter().unwrap().entries().collect::<Result<Vec<_>, _>>().unwrap();
    let before = all(&db);
    assert_eq!(before.iter().find(|(key, _)| **key == *b"sum").unwrap().1[..], (WRITERS * 60).to_le_bytes());
    drop(db);
    let db = disk.lose_power().open_with(&options);
    assert_eq!((all(&db), db.latest_sequence()), (before, writes));
}

#[test]
fn a_write_that_returned_is_seen_by_everybody() {
    let disk = Disk::new();
    let db = disk.open_with(&busy(&disk));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let db = &db;
            scope.spawn(move || {
                for count in 0..500 {
                    let (key, value) = (format!("{thread}"), format!("{count}"));
                    db.put(&key, &value).unwrap();
                    assert_eq!(get(db, &key), value);
                    if count % 7 == 0 {
                        db.delete(&key).unwrap();
                        assert_eq!(get(db, &key), "-");
                    }
                }
            });
        }
    });
}

#[test]
fn column_families_may_come_and_go_among_writers() {
    let disk = Disk::new();
    let options = busy(&disk);
    let db = disk.open_with(&options);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let (db, stop) = (&db, &stop);
            scope.spawn(move || {
                let mut count = 0u32;
                while !stop.load(Ordering::Relaxed) {
                    db.put(format!("{writer}-{count:06}"), "v".repeat(100)).unwrap();
                    if let Some(cf) = db.column_family("passing") {
                        // It may go between the two calls.
                        let result = db.put_cf(&WriteOptions::default(), &cf, format!("{count}"), "v");
                        assert!(result.is_ok() || db.background_error().is_none(), "{result:?}");
                    }
                    count += 1;
                }
            });
        }
        for _ in 0..25 {
            let cf = db.create_column_family("passing", &options.cf).unwrap();
            db.put_cf(&WriteOptions::default(), &cf, "k", "v").unwrap();
            let _ = db.flush_cf(&FlushOptions::default(), &cf);
            db.drop_column_family(&cf).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(db.background_error().is_none());
    db.close().unwrap();
    drop(db);
    assert_eq!(Db::list_column_families(&disk.options().db, crate::disk::DIR).unwrap(), ["default"]);
}

#[test]
fn closing_among_readers_and_writers_is_safe() {
    for _ in 0..5 {
        let disk = Disk::new();
        let db = disk.open_with(&busy(&disk));
        let accepted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        let count = accepted.load(Ordering::SeqCst);
                        match db.put(format!("{count:08}"), "v".repeat(200)) {
                            Ok(()) => drop(accepted.fetch_add(1, Ordering::SeqCst)),
                            Err(_) => break,
                        }
                        db.get(format!("{:08}", count / 2)).unwrap();
                    }
                });
            }
            while accepted.load(Ordering::SeqCst) < 300 {
                std::thread::yield_now();
            }
            db.close().unwrap();
        });
        let count = accepted.load(Ordering::SeqCst);
        drop(db);
        let db = disk.open();
        assert!(db.iter().unwrap().entries().count() as u64 * 2 >= count);
        assert_eq!(get(&db, "00000000"), "v".repeat(200));
    }
}
