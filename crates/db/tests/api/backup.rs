//! Backups: many states in one directory.

use crate::disk::{DIR, Disk, all, fresh, put_synced, refused, rewrite_all};
use ironstone::vfs::fault::{Fault, FaultError, FaultRule};
use ironstone::vfs::mem::CrashPolicy;
use ironstone::vfs::{Clock, FileSystem, OpKind, SystemClock};
use ironstone::{
    BackupEngine, BackupEngineOptions, Code, CompressionKind, CreateBackupOptions, Db, FileChecksumContext,
    FileChecksumGenCrc32cFactory, FileChecksumGenFactory, FileChecksumGenerator, IoPriority, RateLimiter,
    RestoreOptions, WriteOptions,
};
use ironstone_base::checksum::crc32c;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const BACKUPS: &str = "/backups";

fn backup_options(disk: &Disk) -> BackupEngineOptions {
    let mut options = BackupEngineOptions::new(BACKUPS);
    options.env = disk.env();
    options
}
fn engine(disk: &Disk) -> BackupEngine {
    BackupEngine::open(backup_options(disk)).unwrap()
}
fn ids(engine: &BackupEngine) -> Vec<u32> {
    engine.backups().iter().map(|info| info.id).collect()
}
/// What backup `id` holds, restored to a place of its own.
fn contents(disk: &Disk, engine: &BackupEngine, id: u32) -> String {
    let path = format!("/restored{id}");
    engine.restore(id, &disk.options().db, &path, &path, &RestoreOptions::default()).unwrap();
    let db = Db::open(&disk.options(), &path).unwrap();
    let found = all(&db);
    db.close().unwrap();
    found
}
fn shared(disk: &Disk) -> Vec<PathBuf> {
    disk.files("").into_iter().filter(|path| path.starts_with("/backups/shared_checksum")).collect()
}

#[test]
fn every_state_can_be_restored() {
    let (disk, db) = fresh();
    let mut backups = engine(&disk);
    let mut expected = Vec::new();
    for round in 1..=4 {
        put_synced(&db, "k", &round.to_string());
        put_synced(&db, &format!("k{round}"), "v");
        if round % 2 == 0 {
            rewrite_all(&db);
        }
        let how = CreateBackupOptions {
            flush_before_backup: round == 3,
            app_metadata: vec![round; 2],
            ..CreateBackupOptions::default()
        };
        assert_eq!(backups.create_backup_with(&db, &how).unwrap(), u32::from(round));
        expected.push(all(&db));
    }
    drop(db);
    let disk = disk.lose_power();
    let backups = engine(&disk);
    let listed = backups.backups();
    assert_eq!(ids(&backups), [1, 2, 3, 4]);
    assert_eq!((listed[2].app_metadata.as_slice(), listed[2].sequence), (&[3, 3][..], 6));
    assert!(listed.iter().all(|info| info.size > 0 && info.number_files >= 3 && info.timestamp > 0));
    for (id, expected) in (1..).zip(&expected) {
        backups.verify(id, true).unwrap();
        assert_eq!(&contents(&disk, &backups, id), expected);
    }
    // Over the database itself, which goes on from there.
    let latest = backups.restore_latest(&disk.options().db, DIR, DIR, &RestoreOptions::default()).unwrap();
    assert_eq!(latest, 4);
    backups.restore(2, &disk.options().db, DIR, DIR, &RestoreOptions::default()).unwrap();
    let db = disk.open();
    assert_eq!(all(&db), expected[1]);
    put_synced(&db, "new", "life");
}

#[test]
fn unchanged_tables_are_copied_once() {
    let (disk, db) = fresh();
    for i in 0..1000 {
        db.put(format!("key{i:04}"), "value").unwrap();
    }
    db.flush().unwrap();
    let mut backups = engine(&disk);
    backups.create_backup(&db).unwrap();
    let before = shared(&disk);
    assert_eq!(before.len(), 1);
    let name = before[0].file_name().unwrap().to_str().unwrap();
    let size = disk.fs.size(&before[0]).unwrap();
    assert!(name.contains("_s") && name.ends_with(&format!("_{size}.sst")), "{name}");
    disk.faults.reset_counts();
    disk.faults.arm();
    let rule = disk
        .faults
        .add(FaultRule::error(FaultError::Io).on(&[OpKind::Create]).path("shared_checksum").forever());
    backups.create_backup(&db).unwrap();
    assert_eq!(rule.hits(), 0);
    disk.faults.clear();
    // A second engine knows them too.
    let mut backups = engine(&disk);
    backups.create_backup(&db).unwrap();
    assert_eq!(shared(&disk), before);
    put_synced(&db, "one", "more");
    db.flush().unwrap();
    backups.create_backup(&db).unwrap();
    assert_eq!(shared(&disk).len(), 2);
}

#[test]
fn removing_a_backup_removes_what_only_it_has() {
    let (disk, db) = fresh();
    let mut backups = engine(&disk);
    for round in 0..4 {
        put_synced(&db, "k", &round.to_string());
        rewrite_all(&db); // One table, another one each time.
        backups.create_backup(&db).unwrap();
    }
    assert_eq!(shared(&disk).len(), 4);
    backups.delete_backup(2).unwrap();
    refused(backups.delete_backup(2), Code::NotFound, "backup 2");
    refused(backups.verify(2, false), Code::NotFound, "backup 2");
    assert_eq!((shared(&disk).len(), disk.exists("/backups/private/2")), (3, false));
    backups.purge_old_backups(1).unwrap();
    assert_eq!((ids(&backups), shared(&disk).len()), (vec![4], 1));
    assert_eq!(contents(&disk, &backups, 4), "k=3");
    assert_eq!(backups.create_backup(&db).unwrap(), 5, "numbers are not used again");
    disk.fs.write_all_synced(Path::new("/backups/shared_checksum/000099_sX_1.sst"), b"x").unwrap();
    disk.fs.write_all_synced(Path::new("/backups/shared_checksum/.000098_sX_1.sst.tmp"), b"x").unwrap();
    disk.fs.create_dir_all(Path::new("/backups/private/9")).unwrap();
    disk.fs.write_all_synced(Path::new("/backups/private/9/CURRENT"), b"x").unwrap();
    backups.collect_garbage().unwrap();
    assert_eq!((shared(&disk).len(), disk.exists("/backups/private/9")), (1, false));
    let destroying = BackupEngineOptions { destroy_old_data: true, ..backup_options(&disk) };
    assert!(BackupEngine::open(destroying).unwrap().backups().is_empty());
    assert!(shared(&disk).is_empty());
}

#[test]
fn damage_is_found_and_not_restored() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    db.flush().unwrap();
    let mut backups = engine(&disk);
    backups.create_backup(&db).unwrap();
    put_synced(&db, "b", "2");
    backups.create_backup(&db).unwrap();
    drop(db);
    let table = shared(&disk).remove(0);
    let good = disk.fs.read_all(&table).unwrap();
    let mut bad = good.clone();
    bad[10] ^= 1;
    disk.fs.write_all_synced(&table, &bad).unwrap();
    backups.verify(1, false).unwrap();
    let name = table.display().to_string();
    refused(backups.verify(1, true), Code::Corruption, &name);
    let result = backups.restore(1, &disk.options().db, "/r", "/r", &RestoreOptions::default());
    refused(result, Code::Corruption, &name);
    assert!(Db::open(&disk.options(), "/r").is_err(), "it is not taken for a database");
    disk.fs.write_all_synced(&table, &good).unwrap();
    assert_eq!(contents(&disk, &backups, 1), "a=1");

    // A file that is gone, or has another length.
    let wal = disk.files(".log").into_iter().find(|path| path.starts_with("/backups/private/2")).unwrap();
    disk.fs.remove(&wal).unwrap();
    refused(backups.verify(2, false), Code::Corruption, "is missing");
    let mut backups = engine(&disk);
    assert_eq!(ids(&backups), [1]);
    let corrupt = backups.corrupt_backups();
    assert_eq!(corrupt[0].0, 2);
    assert!(corrupt[0].1.to_string().contains("meta/2"), "{}", corrupt[0].1);
    refused(backups.verify(2, false), Code::Corruption, "is missing");
    backups.collect_garbage().unwrap();
    assert!(disk.exists("/backups/private/2/CURRENT"), "it may be mended by hand");
    backups.delete_backup(2).unwrap();
    assert!(backups.corrupt_backups().is_empty());
    assert_eq!(contents(&disk, &backups, 1), "a=1");
}

#[test]
fn an_open_database_is_not_restored_over() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    let mut backups = engine(&disk);
    backups.create_backup(&db).unwrap();
    let restore = || backups.restore(1, &disk.options().db, DIR, DIR, &RestoreOptions::default());
    refused(restore(), Code::IoError, "LOCK");
    assert_eq!(all(&db), "a=1");
    disk.fs.write_all_synced(Path::new("/db/notes.txt"), b"mine").unwrap();
    drop(db);
    restore().unwrap();
    assert!(disk.exists("/db/notes.txt"));
}

#[test]
fn wals_may_stay_out_and_be_kept() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.wal_ttl_seconds = 3600;
    let db = disk.open_with(&options);
    put_synced(&db, "a", "1");
    let mut backups =
        BackupEngine::open(BackupEngineOptions { backup_log_files: false, ..backup_options(&disk) }).unwrap();
    backups.create_backup(&db).unwrap();
    assert_eq!(db.live_files().len(), 1, "it was flushed");
    put_synced(&db, "b", "2");
    db.flush().unwrap();
    put_synced(&db, "c", "3");
    drop(db);
    assert_eq!(contents(&disk, &backups, 1), "a=1");
    let keep = RestoreOptions { keep_log_files: true, ..RestoreOptions::default() };
    backups.restore(1, &disk.options().db, DIR, DIR, &keep).unwrap();
    assert_eq!(all(&disk.open()), "a=1 b=2 c=3");
}

#[test]
fn private_tables_other_schemas_and_read_only_engines() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    db.flush().unwrap();
    let own = BackupEngineOptions { share_table_files: false, schema_version: 2, ..backup_options(&disk) };
    let mut backups = BackupEngine::open(own).unwrap();
    backups.create_backup(&db).unwrap();
    backups.create_backup(&db).unwrap();
    assert!(shared(&disk).is_empty());
    assert!(disk.fs.read_all(Path::new("/backups/meta/2")).unwrap().starts_with(b"schema_version 2.1\n"));
    backups.delete_backup(1).unwrap();
    let mut reading = BackupEngine::open_read_only(backup_options(&disk)).unwrap();
    reading.verify(2, true).unwrap();
    assert_eq!(contents(&disk, &reading, 2), "a=1");
    refused(reading.create_backup(&db), Code::NotSupported, "reading only");
    refused(reading.purge_old_backups(0), Code::NotSupported, "reading only");
    let unknown = BackupEngineOptions { schema_version: 3, ..backup_options(&disk) };
    refused(BackupEngine::open(unknown).map(drop), Code::NotSupported, "schema version 3");
}

#[test]
fn at_every_power_loss_a_backup_is_there_whole_or_not_at_all() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    db.flush().unwrap();
    let mut backups = engine(&disk);
    backups.create_backup(&db).unwrap();
    put_synced(&db, "b", "2");
    db.flush().unwrap();
    put_synced(&db, "c", "3");
    disk.fs.set_capturing(true);
    let begun = disk.fs.op_count();
    backups.create_backup(&db).unwrap();
    let created = disk.fs.op_count();
    backups.delete_backup(1).unwrap();
    let deleted = disk.fs.op_count();
    put_synced(&db, "d", "4");
    let ended = disk.fs.op_count();
    drop(db);
    for op in begun..ended {
        let Some(moment) = disk.fs.captured(op) else { continue };
        for policy in CrashPolicy::ALL {
            let at = format!("op {op} ({begun}, {created}, {deleted}), {policy:?}");
            let crashed = Disk::of(moment.crash(policy, op));
            let mut backups = engine(&crashed);
            assert!(backups.corrupt_backups().is_empty(), "{at}: {:?}", backups.corrupt_backups());
            let found = ids(&backups);
            assert!(found.contains(&1) || op >= created, "{at}");
            assert!(found.contains(&2) || op < created, "{at}");
            assert!(!found.contains(&1) || op < deleted, "{at}");
            for id in found {
                backups.verify(id, true).unwrap_or_else(|error| panic!("{at}: {error}"));
                let expected = if id == 1 { "a=1" } else { "a=1 b=2 c=3" };
                assert_eq!(contents(&crashed, &backups, id), expected, "{at}");
            }
            backups.collect_garbage().unwrap();
            let db = crashed.open();
            let next = backups.create_backup(&db).unwrap();
            backups.verify(next, true).unwrap();
        }
    }
}

#[test]
fn at_every_power_loss_a_restored_database_is_there_whole_or_not_at_all() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    db.flush().unwrap();
    put_synced(&db, "b", "2");
    let mut backups = engine(&disk);
    backups.create_backup(&db).unwrap();
    put_synced(&db, "c", "3");
    db.close().unwrap();
    drop(db);
    disk.fs.set_capturing(true);
    let begun = disk.fs.op_count();
    backups.restore(1, &disk.options().db, DIR, DIR, &RestoreOptions::default()).unwrap();
    let ended = disk.fs.op_count();
    let mut seen = [0; 3];
    for op in begun..=ended {
        let moment = match op == ended {
            true => disk.fs.clone(),
            false => match disk.fs.captured(op) {
                Some(moment) => moment,
                None => continue,
            },
        };
        for policy in CrashPolicy::ALL {
            let crashed = Disk::of(moment.crash(policy, op));
            match Db::open(&crashed.options(), DIR) {
                Ok(db) => match &*all(&db) {
                    "a=1 b=2 c=3" => seen[0] += 1,
                    "a=1 b=2" => seen[1] += 1,
                    other => panic!("op {op}, {policy:?}: {other}"),
                },
                Err(error) => {
                    seen[2] += 1;
                    assert!(op < ended, "op {op}, {policy:?}: {error}");
                }
            }
        }
    }
    assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
}

#[test]
fn a_failure_anywhere_costs_no_other_backup() {
    for nth in 0.. {
        let (disk, db) = fresh();
        put_synced(&db, "a", "1");
        db.flush().unwrap();
        let mut backups = engine(&disk);
        backups.create_backup(&db).unwrap();
        db.put_cf(&WriteOptions::synced(), db.default_column_family(), "b", "2").unwrap();
        disk.faults.arm();
        let rule =
            disk.faults.add(FaultRule::error(FaultError::NoSpace).on_changes().path("backups").after(nth));
        let result = backups.create_backup(&db);
        let hit = rule.hits() > 0;
        disk.faults.clear();
        assert_eq!(contents(&disk, &backups, 1), "a=1");
        if result.is_err() {
            let mut backups = engine(&disk);
            let id = backups.create_backup(&db).unwrap();
            assert_eq!(contents(&disk, &backups, id), "a=1 b=2", "{nth}");
        }
        if !hit {
            assert!(nth > 5);
            break;
        }
    }
}

/// Adds up what it is asked for.
#[derive(Default)]
struct Counting(AtomicU64);

impl RateLimiter for Counting {
    fn request(&self, bytes: u64, priority: IoPriority) {
        assert_eq!(priority, IoPriority::Low);
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[test]
fn copies_are_paced_and_what_is_there_is_not_copied_again() {
    let (disk, db) = fresh();
    for key in 0..100 {
        db.put(format!("{key:03}"), [b'v'; 1000]).unwrap();
    }
    db.flush().unwrap();
    let (making, restoring) = (Arc::new(Counting::default()), Arc::new(Counting::default()));
    let mut options = backup_options(&disk);
    options.backup_rate_limiter = Some(making.clone());
    options.restore_rate_limiter = Some(restoring.clone());
    let mut backups = BackupEngine::open(options).unwrap();
    let tables = db.live_files().iter().map(|file| file.size).sum::<u64>();
    let how = CreateBackupOptions { flush_before_backup: true, ..CreateBackupOptions::default() };
    backups.create_backup_with(&db, &how).unwrap();
    let first = making.0.swap(0, Ordering::Relaxed);
    assert!(first > tables, "{first} bytes, of which tables {tables}");
    let id = backups.create_backup_with(&db, &how).unwrap();
    let second = making.0.load(Ordering::Relaxed);
    assert_eq!(second, first - tables, "of unchanged tables nothing");
    contents(&disk, &backups, id);
    // CURRENT is written, not copied, when the backup is made.
    let current = backups.backup_files(id).unwrap();
    let current = current.iter().find(|(path, _)| path.ends_with("CURRENT")).unwrap().1;
    assert_eq!(restoring.0.load(Ordering::Relaxed), first + current);
}

/// Waits in each copy until as many threads copy as there may be.
#[test]
fn several_threads_copy_and_say_how_far_they_are() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.compression = CompressionKind::None;
    let db = disk.open_with(&options);
    for table in 0..8 {
        db.put(format!("key{table}"), vec![b'v'; 10_000]).unwrap();
        db.flush().unwrap();
    }
    let (calls, interval) = (Arc::new(AtomicU64::new(0)), 1000);
    let mut parallel = backup_options(&disk);
    parallel.max_background_operations = 4;
    parallel.callback_trigger_interval_size = interval;
    let mut backups = BackupEngine::open(parallel).unwrap();
    // Each copy takes its time, and several of them take it at once.
    disk.faults.arm();
    let slow = Fault::Delay(Duration::from_millis(50));
    disk.faults.add(FaultRule::new(slow).on(&[OpKind::Sync]).path(".sst.tmp").forever());
    let counted = Arc::clone(&calls);
    let how = CreateBackupOptions {
        progress_callback: Some(Arc::new(move || _ = counted.fetch_add(1, Ordering::SeqCst))),
        ..CreateBackupOptions::default()
    };
    let clock = SystemClock::new();
    let start = clock.monotonic_nanos();
    let id = backups.create_backup_with(&db, &how).unwrap();
    assert!(clock.monotonic_nanos() - start < 8 * 50_000_000, "one after the other it takes longer");
    disk.faults.clear();

    let info = backups.backup_info(id, true).unwrap();
    let copied: u64 =
        info.file_details.iter().filter(|f| f.relative_filename != "private/1/CURRENT").map(|f| f.size).sum();
    assert_eq!(calls.load(Ordering::SeqCst), copied / interval);
    backups.verify(id, true).unwrap();
    assert_eq!(contents(&disk, &backups, id), all(&db));

    // What one of them meets is the answer, and nothing of the backup is left.
    db.put("more", "v").unwrap();
    db.flush().unwrap();
    // Of the database's own files, the last WAL may just be removed.
    let in_backups = || disk.files("").into_iter().filter(|path| !path.starts_with(DIR)).collect::<Vec<_>>();
    let before = in_backups();
    disk.faults.add(FaultRule::error(FaultError::NoSpace).on(&[OpKind::Append]).path("backups/private/2"));
    refused(backups.create_backup(&db), Code::IoError, "private/2");
    assert_eq!(in_backups(), before);
    disk.faults.clear();
    assert_eq!(backups.create_backup(&db).unwrap(), 2);
}

#[test]
fn the_files_of_a_backup_are_told_if_asked_for() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    db.flush().unwrap();
    let mut backups = engine(&disk);
    let id = backups.create_backup(&db).unwrap();
    assert!(backups.backups()[0].file_details.is_empty());
    assert!(backups.backup_info(id, false).unwrap().file_details.is_empty());
    let info = backups.backup_info(id, true).unwrap();
    assert_eq!(info.file_details.len(), info.number_files);
    assert_eq!(info.file_details.iter().map(|file| file.size).sum::<u64>(), info.size);
    for file in &info.file_details {
        let path = Path::new(BACKUPS).join(&file.relative_filename);
        assert_eq!(disk.fs.size(&path).unwrap(), file.size, "{}", file.relative_filename);
    }
    refused(backups.backup_info(7, true), Code::NotFound, "7");
}

/// Adds up bytes: a checksum of the application's own.
struct Sums;

impl FileChecksumGenFactory for Sums {
    fn name(&self) -> &str {
        "Sums"
    }
    fn create(&self, _context: &FileChecksumContext<'_>) -> Box<dyn FileChecksumGenerator> {
        Box::new(Sum(0))
    }
}

struct Sum(u64);

impl FileChecksumGenerator for Sum {
    fn name(&self) -> &str {
        "sum"
    }
    fn update(&mut self, bytes: &[u8]) {
        self.0 += bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    }
    fn checksum(&self) -> Vec<u8> {
        self.0.to_le_bytes().to_vec()
    }
}

#[test]
fn a_table_that_is_not_what_the_manifest_says_is_not_backed_up() {
    let factories: [Arc<dyn FileChecksumGenFactory>; 2] =
        [Arc::new(FileChecksumGenCrc32cFactory), Arc::new(Sums)];
    for factory in factories {
        let disk = Disk::new();
        let mut options = disk.options();
        options.db.file_checksum_gen_factory = Some(factory);
        let db = disk.open_with(&options);
        put_synced(&db, "a", "1");
        db.flush().unwrap();
        let mut backups = engine(&disk);
        backups.create_backup(&db).unwrap();
        put_synced(&db, "b", "1");
        db.flush().unwrap();
        let newest = db.live_files().iter().map(|file| file.number.0).max().unwrap();
        let table = PathBuf::from(format!("{DIR}/{newest:06}.sst"));
        disk.fs.corrupt(&table, |bytes| bytes[10] ^= 1).unwrap();
        let error = refused(backups.create_backup(&db), Code::Corruption, "the MANIFEST says");
        assert!(error.to_string().contains(&format!("{newest:06}.sst")), "{error}");
        assert_eq!(ids(&backups), [1]);
        disk.fs.corrupt(&table, |bytes| bytes[10] ^= 1).unwrap();
        assert_eq!(backups.create_backup(&db).unwrap(), 2);
    }
}

/// A table in the backup that was exchanged, its checksum in the meta file too.
#[test]
fn verification_believes_the_manifest_more_than_the_meta_file() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.file_checksum_gen_factory = Some(Arc::new(FileChecksumGenCrc32cFactory));
    let db = disk.open_with(&options);
    put_synced(&db, "a", "1");
    db.flush().unwrap();
    let mut backups = engine(&disk);
    let id = backups.create_backup(&db).unwrap();
    backups.verify(id, true).unwrap();
    let table = shared(&disk).remove(0);
    let crc = |disk: &Disk| crc32c(&disk.fs.read_all(&table).unwrap()).to_string();
    let good = crc(&disk);
    disk.fs.corrupt(&table, |bytes| bytes[10] ^= 1).unwrap();
    let meta = Path::new(BACKUPS).join("meta/1");
    let text = String::from_utf8(disk.fs.read_all(&meta).unwrap()).unwrap();
    assert!(text.contains(&good));
    disk.fs.write_all_synced(&meta, text.replace(&good, &crc(&disk)).as_bytes()).unwrap();
    let backups = engine(&disk);
    backups.verify(id, false).unwrap();
    refused(backups.verify(id, true), Code::Corruption, "the MANIFEST says");
    // Nor is it taken for the table when another backup is made.
    let mut backups = backups;
    refused(backups.create_backup(&db), Code::Corruption, "shared_checksum");
}
