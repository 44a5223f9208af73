//! The WAL: what each write promises, what recovery does about a bad end, and what becomes of old ones.

use crate::disk::{DIR, Disk, all, fresh, get, put_synced, put_unlogged, refused, shape};
use ironstone::vfs::fault::{Fault, FaultError, FaultRule};
use ironstone::vfs::mem::CrashPolicy;
use ironstone::vfs::{FileSystem, ManualClock, OpKind};
use ironstone::{Code, Db, FileNumber, FlushOptions, Options, WalRecoveryMode, WriteBatch, WriteOptions};
use ironstone_wal::{HEADER_LEN, LogFramer, RecordKind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How many bytes of the newest WAL hold writes.
fn wal_size(db: &Db) -> u64 {
    db.sorted_wal_files().unwrap().last().unwrap().size
}

// ---- what a write promises ----

#[test]
fn an_unsynced_write_survives_the_process_and_a_synced_one_the_machine() {
    let (disk, db) = fresh();
    db.put("a", "1").unwrap();
    put_synced(&db, "b", "2");
    db.put("c", "3").unwrap();
    assert_eq!(all(&disk.kill().open()), "a=1 b=2 c=3");
    assert_eq!(all(&disk.lose_power().open()), "a=1 b=2", "a sync covers what came before");
}

#[test]
fn sync_wal_covers_every_write_that_returned() {
    let (disk, db) = fresh();
    db.put("a", "1").unwrap();
    db.put("b", "2").unwrap();
    db.sync_wal().unwrap();
    db.put("c", "3").unwrap();
    assert_eq!(all(&disk.lose_power().open()), "a=1 b=2");
}

#[test]
fn with_manual_flushing_writes_stay_in_the_process_until_they_are_flushed() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.manual_wal_flush = true;
    let db = disk.open_with(&options);
    db.put("a", "1").unwrap();
    assert_eq!(all(&db), "a=1");
    assert_eq!(all(&disk.kill().open()), "");
    db.sync_wal().unwrap();
    assert_eq!(all(&disk.kill().open()), "", "syncing does not flush");
    db.flush_wal(false).unwrap();
    assert_eq!(all(&disk.kill().open()), "a=1");
    assert_eq!(all(&disk.lose_power().open()), "");
    db.put("b", "2").unwrap();
    db.flush_wal(true).unwrap();
    assert_eq!(all(&disk.lose_power().open()), "a=1 b=2");
    put_synced(&db, "c", "3");
    assert_eq!(all(&disk.lose_power().open()), "a=1 b=2 c=3", "a synced write flushes what is buffered");
    db.put("d", "4").unwrap();
    db.close().unwrap();
    assert_eq!(all(&disk.kill().open()), "a=1 b=2 c=3 d=4", "so does closing");
}

#[test]
fn unlogged_writes_live_by_flushes_and_by_a_clean_close() {
    let (disk, db) = fresh();
    put_unlogged(&db, "a", "1").unwrap();
    assert_eq!(all(&db), "a=1");
    assert_eq!(all(&disk.kill().open()), "");
    db.flush().unwrap();
    assert_eq!(all(&disk.lose_power().open()), "a=1");
    put_unlogged(&db, "b", "2").unwrap();
    db.close().unwrap();
    drop(db);
    assert_eq!(all(&disk.lose_power().open()), "a=1 b=2");

    let mut options = disk.options();
    options.db.avoid_flush_during_shutdown = true;
    let db = disk.open_with(&options);
    put_unlogged(&db, "c", "3").unwrap();
    db.put("d", "4").unwrap();
    db.close().unwrap();
    drop(db);
    assert_eq!(all(&disk.open()), "a=1 b=2 d=4");
}

#[test]
fn an_unlogged_write_cannot_be_synced() {
    let (_disk, db) = fresh();
    let both = WriteOptions { sync: true, disable_wal: true, ..WriteOptions::default() };
    refused(db.put_cf(&both, db.default_column_family(), "k", "v"), Code::InvalidArgument, "WAL");
}

#[test]
fn a_flush_makes_durable_what_it_flushed() {
    let (disk, db) = fresh();
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    db.put("b", "2").unwrap();
    assert_eq!(all(&disk.lose_power().open()), "a=1");
}

// ---- recovery ----

const MODES: [WalRecoveryMode; 4] = [
    WalRecoveryMode::TolerateCorruptedTailRecords,
    WalRecoveryMode::AbsoluteConsistency,
    WalRecoveryMode::PointInTimeRecovery,
    WalRecoveryMode::SkipAnyCorruptedRecords,
];

/// What opening gives under each of [`MODES`], on a disk where `change` has been made to a WAL of four
/// synced writes; `error` if it is refused, which must be with the name of the WAL. Whether zeros follow, as a crash
/// leaves them in a WAL that is synced often, makes no difference.
fn recovered(change: impl Fn(&mut Vec<u8>, &[u64]), strict: bool) -> [String; 4] {
    let [found, before_zeros] = [false, true].map(|zeros| recovered_once(&change, strict, zeros));
    assert_eq!(found, before_zeros);
    found
}

fn recovered_once(change: &impl Fn(&mut Vec<u8>, &[u64]), strict: bool, zeros: bool) -> [String; 4] {
    MODES.map(|mode| {
        let (disk, db) = fresh();
        let wal = disk.newest(".log");
        let ends = ["a", "b", "c", "d"].map(|key| {
            put_synced(&db, key, "0123456789");
            wal_size(&db)
        });
        let disk = disk.lose_power();
        let end_of_zeros = disk.fs.size(&wal).unwrap() as usize;
        assert!(end_of_zeros > ends[3] as usize);
        let change = |bytes: &mut Vec<u8>| {
            bytes.truncate(ends[3] as usize);
            change(bytes, &ends);
            if zeros {
                bytes.resize(bytes.len().max(end_of_zeros), 0);
            }
        };
        disk.fs.corrupt(&wal, change).unwrap();
        let mut options = disk.options();
        options.db.wal_recovery_mode = mode;
        options.db.strict_wal_recovery = strict;
        match disk.try_open(&options) {
            Ok(db) => {
                let found = all(&db).replace("=0123456789", "");
                put_synced(&db, "after", "");
                drop(db);
                let mut expected: Vec<_> = found.split_whitespace().chain(["after="]).collect();
                expected.sort_unstable();
                let again = all(&disk.open_with(&options)).replace("=0123456789", "");
                assert_eq!(again, expected.join(" "), "{mode:?}");
                found
            }
            Err(error) => {
                assert!(error.is_corruption(), "{error}");
                assert!(error.to_string().contains(wal.to_str().unwrap()), "{error}");
                "error".to_owned()
            }
        }
    })
}

#[test]
fn an_undamaged_wal_is_replayed_in_every_mode() {
    let found = recovered(|_, _| {}, true);
    assert_eq!(found, ["a b c d", "a b c d", "a b c d", "a b c d"]);
}

#[test]
fn a_torn_last_record_is_dropped_except_with_absolute_consistency() {
    let cut = |bytes: &mut Vec<u8>, _: &[u64]| bytes.truncate(bytes.len() - 3);
    assert_eq!(recovered(cut, true), ["a b c", "error", "a b c", "a b c"]);
    let header_only = |bytes: &mut Vec<u8>, ends: &[u64]| bytes.truncate(ends[2] as usize + 4);
    assert_eq!(recovered(header_only, true), ["a b c", "error", "a b c", "a b c"]);
}

#[test]
fn zeros_behind_the_last_record_are_reserved_space() {
    let zeros = |bytes: &mut Vec<u8>, _: &[u64]| bytes.resize(bytes.len() + 5000, 0);
    let found = recovered(zeros, true);
    assert_eq!((&*found[0], &*found[2], &*found[3]), ("a b c d", "a b c d", "a b c d"));
}

/// Most syncs of a WAL that is synced often write data and no size.
#[test]
fn a_wal_that_is_synced_often_grows_ahead_and_is_cut_when_it_is_closed() {
    for allow_fallocate in [true, false] {
        let disk = Disk::new();
        let mut options = disk.options();
        options.db.allow_fallocate = allow_fallocate;
        let db = disk.open_with(&options);
        let (first, size) = (disk.newest(".log"), |wal: &Path| disk.fs.size(wal).unwrap());
        put_synced(&db, "a", "1");
        assert_eq!(size(&first), wal_size(&db), "one sync may be all");
        put_synced(&db, "b", "2");
        assert_eq!(size(&first) > wal_size(&db), allow_fallocate);
        let ahead = size(&first);
        (0..20).for_each(|_| put_synced(&db, "c", "3"));
        assert_eq!(size(&first) == ahead, allow_fallocate, "it need not grow each time");
        for after in [disk.kill(), disk.lose_power()] {
            assert_eq!(all(&after.open_with(&options)), "a=1 b=2 c=3");
        }
        // The next WAL is told how much the last one held, not how long it was.
        let held = wal_size(&db);
        disk.faults.arm();
        let kept = disk.faults.add(FaultRule::error(FaultError::Io).on(&[OpKind::Remove]).path(".log"));
        db.flush().unwrap();
        disk.wait_until("the first WAL is closed", || size(&first) == held);
        disk.faults.clear();
        drop(kept);
        put_synced(&db, "d", "4");
        put_synced(&db, "e", "5");
        for after in [disk.kill(), disk.lose_power()] {
            assert_eq!(all(&after.open_with(&options)), "a=1 b=2 c=3 d=4 e=5");
        }
        let (second, held) = (disk.newest(".log"), wal_size(&db));
        db.close().unwrap();
        assert_eq!(size(&second), held);
    }
}

#[test]
fn a_flipped_bit_is_rot_and_refused_unless_told_otherwise() {
    let flip = |bytes: &mut Vec<u8>, ends: &[u64]| bytes[ends[1] as usize + 12] ^= 0x10;
    assert_eq!(recovered(flip, true), ["error", "error", "error", "a b d"]);
    assert_eq!(recovered(flip, false), ["error", "error", "a b", "a b d"]);
    let in_last = |bytes: &mut Vec<u8>, ends: &[u64]| bytes[ends[2] as usize + 12] ^= 0x10;
    assert_eq!(recovered(in_last, true), ["error", "error", "error", "a b c"]);
}

/// Appends a batch with a right checksum as the WAL's next record.
fn append_batch(bytes: &mut Vec<u8>, sequence: u64, garbage: &[u8]) {
    let mut batch = WriteBatch::new();
    batch.put("x", "0123456789");
    batch.put("y", "0123456789");
    let mut data = [batch.data(), garbage].concat();
    data[..8].copy_from_slice(&sequence.to_le_bytes());
    // As the records before it: with the number of the log or without.
    let recyclable = RecordKind::is_recyclable(bytes[6]);
    let number = bytes[HEADER_LEN..].first_chunk().map_or(0, |number| u32::from_le_bytes(*number));
    let mut framer = LogFramer::continue_at(FileNumber(number.into()), recyclable, bytes.len() as u64);
    framer.frame(&[&data], bytes);
}

#[test]
fn a_sequence_number_that_no_entry_can_have_is_refused() {
    for sequence in [1 << 56, (1 << 56) - 1, u64::MAX] {
        let append = |bytes: &mut Vec<u8>, _: &[u64]| append_batch(bytes, sequence, b"");
        let found = recovered(append, false);
        assert_eq!(found, ["error", "error", "error", "a b c d"], "{sequence}");
    }
}

#[test]
fn a_batch_that_is_skipped_is_skipped_whole() {
    let append = |bytes: &mut Vec<u8>, _: &[u64]| append_batch(bytes, 5, b"\xff");
    assert_eq!(recovered(append, false), ["error", "error", "error", "a b c d"]);
}

#[test]
fn bad_bytes_in_the_middle_end_recovery_there() {
    let spoil = |bytes: &mut Vec<u8>, ends: &[u64]| bytes[ends[0] as usize..ends[1] as usize].fill(0x55);
    assert_eq!(recovered(spoil, true), ["error", "error", "a", "a c d"]);
}

#[test]
fn an_empty_wal_is_fine_in_every_mode() {
    let found = recovered(|bytes, _| bytes.clear(), true);
    assert_eq!(found, ["", "", "", ""]);
}

#[test]
fn a_wal_that_cannot_be_read_is_an_error_in_every_mode() {
    for mode in MODES {
        let (disk, db) = fresh();
        ["a", "b"].iter().for_each(|key| put_synced(&db, key, "1"));
        drop(db);
        let mut options = disk.options();
        options.db.wal_recovery_mode = mode;
        disk.faults.arm();
        let rule = FaultRule::error(FaultError::Io).on(&[OpKind::Read]).path(".log");
        disk.faults.add(rule);
        refused(disk.try_open(&options), Code::IoError, ".log");
        disk.faults.clear();
        assert_eq!(all(&disk.open_with(&options)), "a=1 b=1", "{mode:?}");
    }
}

/// A power loss takes the end of a WAL that was written while a flush ran. What is written after the
/// recovery must be found by the next one, although the MANIFEST knows of later writes than the WAL.
#[test]
fn writes_after_a_recovery_with_a_torn_tail_are_kept_when_wals_are() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.avoid_flush_during_recovery = true;
    let db = disk.open_with(&options);
    db.put("flushed", "1").unwrap();
    disk.faults.arm();
    let slow = Fault::Delay(Duration::from_millis(300));
    let rule = disk.faults.add(FaultRule::new(slow).on(&[OpKind::Sync]).path(".sst"));
    db.flush_cf(&FlushOptions { wait: false, ..FlushOptions::default() }, db.default_column_family())
        .unwrap();
    disk.wait_until("the flush syncs its table", || rule.hits() > 0);
    for number in 0..8 {
        db.put(format!("k{number}"), "0123456789").unwrap();
    }
    db.wait_for_compact().unwrap();
    let wal = disk.newest(".log");
    let disk = disk.kill();
    disk.fs.corrupt(&wal, |bytes| bytes.truncate(bytes.len() / 2 + 3)).unwrap();

    let db = disk.open_with(&options);
    let found = all(&db);
    assert!(found.contains("k2=") && !found.contains("k6="), "{found}");
    put_synced(&db, "after", "2");
    let disk = disk.lose_power();
    assert_eq!(get(&disk.open_with(&options), "after"), "2");
}

#[test]
fn recovery_flushes_unless_told_to_keep_the_wal() {
    for keep in [false, true] {
        let (disk, db) = fresh();
        put_synced(&db, "k", "v");
        let wal = disk.newest(".log");
        drop(db);
        let mut options = disk.options();
        options.db.avoid_flush_during_recovery = keep;
        let db = disk.open_with(&options);
        assert_eq!(shape(&db), if keep { vec![] } else { vec![1] });
        assert_eq!(disk.exists(&wal), keep);
        assert_eq!(all(&disk.lose_power().open()), "k=v");
        put_synced(&db, "l", "w");
        assert_eq!(all(&disk.lose_power().open_with(&options)), "k=v l=w");
    }
}

#[test]
fn recovery_flushes_memtables_that_are_full() {
    let (disk, db) = fresh();
    for number in 0..200 {
        db.put(format!("{number:03}"), "v".repeat(1000)).unwrap();
    }
    drop(db);
    let mut options = disk.options();
    options.cf.write_buffer_size = 32 << 10;
    let db = disk.open_with(&options);
    assert!(shape(&db)[0] > 3, "{:?}", shape(&db));
    assert_eq!(db.iter().unwrap().entries().count(), 200);
}

/// A disk with an open database: `a` synced and `b` not in the first WAL, `c` in the second, nothing flushed.
/// Answers the WALs and the size of the first one behind `a`.
fn two_wals(options: &Options, disk: &Disk) -> (Db, [std::path::PathBuf; 2], u64) {
    let db = disk.open_with(options);
    put_synced(&db, "a", "1");
    let first = disk.newest(".log");
    let size = disk.fs.size(&first).unwrap();
    db.put("b", "2").unwrap();
    db.pause_background_work().unwrap();
    db.flush_cf(&FlushOptions { wait: false, ..FlushOptions::default() }, db.default_column_family())
        .unwrap();
    db.put("c", "3").unwrap();
    let second = disk.newest(".log");
    assert_ne!(first, second);
    (db, [first, second], size)
}

#[test]
fn the_end_that_a_wal_lost_is_not_hidden_by_the_next_wal() {
    let disk = Disk::new();
    let (_db, [first, second], size) = two_wals(&disk.options(), &disk);
    assert_eq!(all(&disk.kill().open()), "a=1 b=2 c=3");
    for keep in [Some(size), Some(0), None] {
        for mode in MODES {
            let disk = disk.kill();
            match keep {
                Some(size) => disk.fs.corrupt(&first, |bytes| bytes.truncate(size as usize)).unwrap(),
                None => disk.fs.remove(&first).unwrap(),
            }
            let mut options = disk.options();
            options.db.wal_recovery_mode = mode;
            let before = if keep == Some(size) { "a=1" } else { "" };
            match mode {
                WalRecoveryMode::PointInTimeRecovery => {
                    let db = disk.open_with(&options);
                    assert_eq!(all(&db), before, "{keep:?}");
                    put_synced(&db, "d", "4");
                    drop(db);
                    let again = format!("{before} d=4");
                    assert_eq!(all(&disk.lose_power().open_with(&options)), again.trim(), "{keep:?}");
                }
                WalRecoveryMode::SkipAnyCorruptedRecords => {
                    let with_gap = format!("{before} c=3");
                    assert_eq!(all(&disk.open_with(&options)), with_gap.trim(), "{keep:?}");
                }
                _ => {
                    let text = format!("according to {}", second.display());
                    let error = refused(disk.try_open(&options), Code::Corruption, &text);
                    assert!(error.to_string().contains(first.to_str().unwrap()), "{error}");
                }
            }
        }
    }
}

#[test]
fn a_manifest_that_lost_its_end_is_found_out_though_nothing_was_written_since() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.wal_recovery_mode = WalRecoveryMode::AbsoluteConsistency;
    let db = disk.open_with(&options);
    put_synced(&db, "a", "1");
    db.flush().unwrap();
    put_synced(&db, "b", "2");
    db.flush().unwrap();
    let flushed = disk.kill();
    drop(db);
    let closed = disk.kill();
    drop(disk.open_with(&options));
    let mut found = 0;
    for (disk, what) in [(&flushed, "flushed"), (&closed, "closed"), (&disk, "opened again")] {
        let is_manifest = |path: &std::path::PathBuf| path.to_string_lossy().contains("MANIFEST-");
        let manifest = disk.files("").into_iter().filter(is_manifest).max().unwrap();
        let whole = disk.fs.size(&manifest).unwrap();
        for len in 0..whole {
            let disk = disk.kill();
            disk.fs.corrupt(&manifest, |bytes| bytes.truncate(len as usize)).unwrap();
            match disk.try_open(&options) {
                Ok(db) => assert_eq!(all(&db), "a=1 b=2", "{what}, {len} of {whole} bytes"),
                Err(error) => {
                    assert!(error.is_corruption(), "{what}, {len} of {whole} bytes: {error}");
                    found += 1;
                }
            }
        }
    }
    assert!(found > 500, "{found}");
}

#[test]
fn a_sync_covers_wals_that_were_closed_without_one() {
    let disk = Disk::new();
    let (db, ..) = two_wals(&disk.options(), &disk);
    assert_eq!(all(&disk.lose_power().open()), "a=1");
    put_synced(&db, "d", "4");
    assert_eq!(all(&disk.lose_power().open()), "a=1 b=2 c=3 d=4");
}

#[test]
fn modes_that_take_a_gap_for_damage_leave_none() {
    for mode in [WalRecoveryMode::TolerateCorruptedTailRecords, WalRecoveryMode::AbsoluteConsistency] {
        let disk = Disk::new();
        let mut options = disk.options();
        options.db.wal_recovery_mode = mode;
        let (_db, ..) = two_wals(&options, &disk);
        assert_eq!(all(&disk.lose_power().open_with(&options)), "a=1 b=2", "{mode:?}");
    }
}

#[test]
fn a_sync_covers_a_wal_that_recovery_kept() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.avoid_flush_during_recovery = true;
    let db = disk.open_with(&options);
    db.put("a", "1").unwrap();
    drop(db);
    let db = disk.open_with(&options);
    put_synced(&db, "b", "2");
    assert_eq!(all(&disk.lose_power().open()), "a=1 b=2");
}

// ---- where WALs are, and what becomes of them ----

#[test]
fn wals_may_have_a_directory_of_their_own() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.wal_dir = "/wals/of/db".into();
    let db = disk.open_with(&options);
    put_synced(&db, "a", "1");
    assert!(disk.files(".log").iter().all(|path| path.starts_with("/wals/of/db")));
    let after = disk.lose_power();
    let db = after.open_with(&options);
    assert_eq!(all(&db), "a=1");
    db.flush().unwrap();
    put_synced(&db, "b", "2");
    drop(db);
    assert_eq!(all(&after.open_with(&options)), "a=1 b=2");
    let mut gone = options.db.clone();
    gone.env = after.env();
    Db::destroy(&gone, DIR).unwrap();
    assert_eq!(after.fs.all_files(), Vec::<std::path::PathBuf>::new());
}

/// Switches WALs until one is written over an old one. Old ones are found by the background, so it is not
/// known with which switch that is.
fn until_a_wal_is_reused(disk: &Disk, db: &Db) {
    let reused = || disk.fs.log().iter().filter(|entry| entry.kind == OpKind::Reuse).count();
    let before = reused();
    disk.wait_until("a WAL is reused", || {
        put_synced(db, "reuse", "1");
        db.flush().unwrap();
        reused() > before
    });
}

#[test]
fn old_wals_are_reused_and_their_old_records_never_come_back() {
    let disk = Disk::new();
    let mut recycling = disk.options();
    recycling.db.recycle_log_file_num = 2;
    let plain = disk.options();
    let mut expected = std::collections::BTreeMap::new();
    for round in 0..8 {
        // With and without reuse by turns: a file may be left by the other.
        let options = if round % 3 == 2 { &plain } else { &recycling };
        let db = disk.open_with(options);
        for number in 0..20 - round * 2 {
            let (key, value) = (format!("k{number:02}"), format!("{round}"));
            put_synced(&db, &key, &value);
            expected.insert(key, value);
            if number == 8 {
                db.delete("k03").unwrap();
                expected.remove("k03");
                db.flush().unwrap();
                if options.db.recycle_log_file_num > 0 {
                    until_a_wal_is_reused(&disk, &db);
                    expected.insert("reuse".to_owned(), "1".to_owned());
                }
            }
        }
        let text: Vec<_> = expected.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(all(&db), text.join(" "));
        for policy in [CrashPolicy::KeepAll, CrashPolicy::DropUnsynced, CrashPolicy::SizeWithoutData] {
            let crashed = disk.crash(policy);
            for options in [&recycling, &plain] {
                let found = all(&Disk::crash(&crashed, CrashPolicy::KeepAll).open_with(options));
                assert_eq!(found, text.join(" "), "round {round}, {policy:?}");
            }
        }
    }
    let unlogged = put_unlogged(&disk.open_with(&recycling), "k", "v");
    refused(unlogged, Code::InvalidArgument, "recycle_log_file_num");
}

#[test]
fn wals_that_grow_too_large_flush_the_memtables_that_need_them() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.max_total_wal_size = 64 << 10;
    let db = disk.open_with(&options);
    let quiet = db.create_column_family("quiet", &options.cf).unwrap();
    db.put_cf(&WriteOptions::default(), &quiet, "k", "v").unwrap();
    for number in 0..200 {
        db.put(format!("{number:03}"), "v".repeat(1000)).unwrap();
    }
    db.wait_for_compact().unwrap();
    assert!(db.level_shape(&quiet)[0].0 > 0, "the WAL with its one write was kept alive by it");
    let bytes = || disk.files(".log").iter().map(|path| disk.fs.size(path).unwrap_or(0)).sum::<u64>();
    disk.wait_until("old WALs are removed", || bytes() < 200 << 10);
}

fn archive(disk: &Disk) -> Vec<String> {
    let names = disk.fs.list(Path::new("/db/archive")).unwrap_or_default();
    let mut names: Vec<_> = names.into_iter().filter(|name| name.ends_with(".log")).collect();
    names.sort();
    names
}

/// Writes and flushes, so that a WAL of about `bytes` becomes obsolete.
fn retire_wal(disk: &Disk, db: &Db, bytes: usize) {
    let before = disk.newest(".log");
    db.put("k", vec![b'v'; bytes]).unwrap();
    db.flush().unwrap();
    disk.wait_until("the WAL is moved", || !disk.exists(&before));
}

#[test]
fn obsolete_wals_are_archived_for_their_time() {
    let clock = Arc::new(ManualClock::new(1_000_000_000_000));
    let disk = Disk::with_clock(&clock);
    let mut options = disk.options();
    options.db.wal_ttl_seconds = 100;
    let db = disk.open_with(&options);
    retire_wal(&disk, &db, 10);
    let first = archive(&disk);
    assert_eq!(first.len(), 1);
    clock.advance(Duration::from_secs(60));
    retire_wal(&disk, &db, 10);
    assert_eq!(archive(&disk).len(), 2);
    clock.advance(Duration::from_secs(60));
    retire_wal(&disk, &db, 10);
    disk.wait_until("the first is too old", || archive(&disk).len() == 2);
    assert!(!archive(&disk).contains(&first[0]));
    // A clock that goes back makes nothing old.
    clock.set_micros(1_000_000);
    retire_wal(&disk, &db, 10);
    assert_eq!(archive(&disk).len(), 3);
    db.close().unwrap();
    drop(db);
    assert_eq!(disk.open_with(&options).get("k").unwrap().unwrap().len(), 10);
}

#[test]
fn the_archive_is_kept_to_its_size() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.wal_size_limit_mb = 1;
    let db = disk.open_with(&options);
    for _ in 0..5 {
        retire_wal(&disk, &db, 400 << 10);
    }
    disk.wait_until("the oldest are removed", || archive(&disk).len() == 2);
}

#[test]
fn sizes_and_times_of_other_options_do_not_matter_when_reopened() {
    let disk = Disk::new();
    let changes: [fn(&mut Options); 5] = [
        |options| options.db.wal_ttl_seconds = 10,
        |options| options.db.recycle_log_file_num = 3,
        |options| options.db.manual_wal_flush = true,
        |options| options.db.avoid_flush_during_recovery = true,
        |options| options.db.wal_bytes_per_sync = 100,
    ];
    let mut expected = Vec::new();
    for (round, change) in changes.iter().cycle().take(15).enumerate() {
        let mut options = disk.options();
        change(&mut options);
        let db = disk.open_with(&options);
        assert_eq!(all(&db), expected.join(" "));
        expected.push(format!("k{round:02}=v"));
        db.put(format!("k{round:02}"), "v").unwrap();
        if round % 4 == 3 {
            db.flush().unwrap();
        }
        db.close().unwrap();
    }
}

#[test]
fn closing_says_so_when_buffered_writes_are_lost() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.manual_wal_flush = true;
    let db = disk.open_with(&options);
    db.put("a", "1").unwrap();
    disk.faults.arm();
    disk.faults.add(FaultRule::error(FaultError::NoSpace).on(&[OpKind::Append]).path(".log"));
    refused(db.flush_wal(false), Code::IoError, ".log");
    refused(db.close(), Code::IoError, ".log");
    drop(db);
    assert_eq!(all(&disk.open_with(&options)), "");

    // The same when the log was given up, and its writes did not come to tables.
    let db = disk.open_with(&options);
    db.put("a", "1").unwrap();
    disk.faults.add(FaultRule::error(FaultError::NoSpace).on(&[OpKind::Append]).path(".log"));
    let full =
        disk.faults.add(FaultRule::error(FaultError::NoSpace).on(&[OpKind::Create]).path(".sst").forever());
    refused(db.flush_wal(false), Code::IoError, ".log");
    refused(db.resume(), Code::IoError, ".sst");
    assert!(full.hits() > 0);
    // The log that came after it is healthy, but does not cover them.
    refused(db.flush_wal(true), Code::IoError, ".log");
    refused(db.sync_wal(), Code::IoError, ".log");
    refused(db.close(), Code::IoError, ".log");
}

/// A flush that is under way when the log is given up must not become durable alone: the WAL that holds the other
/// column family's part of its writes was closed without a sync.
#[test]
fn a_flush_under_way_does_not_outrun_a_log_that_is_given_up() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.create_missing_column_families = true;
    let db = disk.open_families(&options, &["second"]).unwrap();
    let second = db.column_family("second").unwrap();
    let mut batch = ironstone::WriteBatch::new();
    batch.put(b"a", b"1");
    batch.put_cf(&second, b"a", b"1");
    db.write(&batch, &WriteOptions::default()).unwrap();
    disk.faults.arm();
    let slow = Fault::Delay(Duration::from_millis(300));
    let rule = disk.faults.add(FaultRule::new(slow).on(&[OpKind::Sync]).path(".sst"));
    db.flush_cf(&FlushOptions { wait: false, ..FlushOptions::default() }, db.default_column_family())
        .unwrap();
    disk.wait_until("the flush syncs its table", || rule.hits() > 0);
    disk.faults.add(FaultRule::error(FaultError::NoSpace).on(&[OpKind::Append]).path(".log"));
    refused(db.put("b", "2"), Code::IoError, ".log");
    disk.fs.set_capturing(true);
    let from = disk.fs.op_count();
    db.resume().unwrap();
    let to = disk.fs.op_count();
    for moment in (from..to).filter_map(|op| disk.fs.captured(op)) {
        let after = Disk::of(moment.crash(CrashPolicy::DropUnsynced, 0));
        let db = after.open_families(&after.options(), &["second"]).unwrap();
        let second = db.column_family("second").unwrap();
        assert_eq!(get(&db, "a"), crate::disk::get_in(&db, &second, "a"));
    }
}

/// What a WAL says was before it is durable before the flush that lets go of the older one.
#[test]
fn modes_that_refuse_gaps_know_a_manifest_that_lost_a_flush_after_a_power_loss() {
    for mode in [WalRecoveryMode::AbsoluteConsistency, WalRecoveryMode::TolerateCorruptedTailRecords] {
        let disk = Disk::new();
        let mut options = disk.options();
        options.db.wal_recovery_mode = mode;
        let db = disk.open_with(&options);
        put_synced(&db, "k", "v");
        let manifest = disk.newest_in_db("MANIFEST-");
        let before = disk.fs.size(&manifest).unwrap();
        db.flush().unwrap();
        let old_wal_is_gone = || disk.files(".log").len() == 1;
        disk.wait_until("the old WAL is removed", old_wal_is_gone);
        let lost = disk.lose_power();
        assert_eq!(all(&lost.open_with(&options)), "k=v");
        let cut = disk.lose_power();
        let old = cut.files(".log").into_iter().min().unwrap();
        cut.fs.remove(&old).unwrap(); // For good, as it is once the directory was synced.
        cut.fs.corrupt(&manifest, |bytes| bytes.truncate(before as usize)).unwrap();
        refused(cut.try_open(&options), Code::Corruption, ".log");
    }
}
