//! Restores that leave tables where they are, and backups of which tables are elsewhere.

use crate::disk::{DIR, Disk, all, fresh, put_synced, refused};
use ironstone::vfs::FileSystem;
use ironstone::vfs::fault::{FaultError, FaultRule};
use ironstone::vfs::mem::CrashPolicy;
use ironstone::{
    BackupEngine, BackupEngineOptions, Code, CreateBackupOptions, Db, IoPriority, RateLimiter, RestoreMode,
    RestoreOptions, Result,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Adds up what restoring copies.
#[derive(Default)]
struct Copied(AtomicU64);

impl RateLimiter for Copied {
    fn request(&self, bytes: u64, _priority: IoPriority) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

struct Backups {
    disk: Disk,
    copied: Arc<Copied>,
}

impl Backups {
    fn open(&self, dir: &str, schema_version: u32) -> BackupEngine {
        let mut options = BackupEngineOptions::new(dir);
        options.env = self.disk.env();
        options.schema_version = schema_version;
        options.restore_rate_limiter = Some(self.copied.clone());
        BackupEngine::open(options).unwrap()
    }
    /// Restores to the place of the database, and answers how many bytes were copied.
    fn restore(&self, engine: &BackupEngine, id: u32, options: &RestoreOptions<'_>) -> Result<u64> {
        self.copied.0.store(0, Ordering::Relaxed);
        engine.restore(id, &self.disk.options().db, DIR, DIR, options)?;
        Ok(self.copied.0.load(Ordering::Relaxed))
    }
    fn contents(&self) -> String {
        let db = self.disk.open();
        let found = all(&db);
        db.close().unwrap();
        found
    }
}

fn mode(mode: RestoreMode) -> RestoreOptions<'static> {
    RestoreOptions { mode, ..RestoreOptions::default() }
}

/// One table of forty thousand bytes for each of `keys`.
fn fill(db: &Db, keys: [&str; 2]) {
    for key in keys {
        db.put(format!("{key}1"), noise(40_000)).unwrap();
        put_synced(db, key, "v");
        db.flush().unwrap();
    }
}
fn with_two_tables() -> (Backups, Db) {
    let (disk, db) = fresh();
    fill(&db, ["a", "b"]);
    (Backups { disk, copied: Arc::default() }, db)
}
/// The same, with a backup, and what it holds.
fn backed_up() -> (Backups, Db, BackupEngine, String) {
    let (of, db) = with_two_tables();
    let mut backups = of.open("/backups", 1);
    backups.create_backup(&db).unwrap();
    let expected = all(&db);
    (of, db, backups, expected)
}
/// Bytes that no codec makes shorter.
fn noise(len: u32) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}
/// Changes a byte of the value that fills `table`.
fn damage(disk: &Disk, table: &Path) {
    let mut bytes = disk.fs.read_all(table).unwrap();
    bytes[5000] ^= 1;
    disk.fs.write_all_synced(table, &bytes).unwrap();
}

#[test]
fn tables_that_are_there_are_not_copied_again() {
    let (of, db, backups, expected) = backed_up();
    put_synced(&db, "later", "lost");
    db.flush().unwrap();
    drop(db);
    let whole = of.restore(&backups, 1, &RestoreOptions::default()).unwrap();
    assert!(whole > 80_000, "everything by default: {whole}");
    assert_eq!(of.contents(), expected);
    for by in [RestoreMode::KeepLatestDbSessionIdFiles, RestoreMode::VerifyChecksum] {
        let copied = of.restore(&backups, 1, &mode(by)).unwrap();
        assert!(copied < 20_000, "{by:?}: {copied}");
        assert_eq!(of.contents(), expected);
        // A table that is missing comes back.
        of.disk.fs.remove(&of.disk.tables()[0]).unwrap();
        let copied = of.restore(&backups, 1, &mode(by)).unwrap();
        assert!((40_000..60_000).contains(&copied), "{by:?}: {copied}");
        assert_eq!(of.contents(), expected);
        // So does one that is shorter than it should be.
        let table = of.disk.tables()[1].clone();
        let bytes = of.disk.fs.read_all(&table).unwrap();
        of.disk.fs.write_all_synced(&table, &bytes[..bytes.len() - 1]).unwrap();
        let copied = of.restore(&backups, 1, &mode(by)).unwrap();
        assert!((40_000..60_000).contains(&copied), "{by:?}: {copied}");
        assert_eq!(of.contents(), expected);
    }
    assert_eq!(of.disk.lose_power().tables().len(), 2, "what was later is gone");
}

#[test]
fn only_verifying_finds_a_damaged_table() {
    let (of, db, backups, expected) = backed_up();
    drop(db);
    let table = of.disk.tables()[0].clone();
    damage(&of.disk, &table);
    let bad = of.disk.fs.read_all(&table).unwrap();
    of.restore(&backups, 1, &mode(RestoreMode::KeepLatestDbSessionIdFiles)).unwrap();
    assert_eq!(of.disk.fs.read_all(&table).unwrap(), bad, "nobody looked into it");
    let copied = of.restore(&backups, 1, &mode(RestoreMode::VerifyChecksum)).unwrap();
    assert!((40_000..60_000).contains(&copied), "{copied}");
    assert_eq!(of.contents(), expected);
}

#[test]
fn a_table_of_another_session_with_the_same_number_is_replaced() {
    let (of, db, backups, expected) = backed_up();
    drop(db);
    // Another database, whose tables have the same numbers and lengths.
    let other = Disk::new();
    let db = other.open();
    fill(&db, ["x", "y"]);
    drop(db);
    for by in [RestoreMode::KeepLatestDbSessionIdFiles, RestoreMode::VerifyChecksum] {
        for (table, theirs) in of.disk.tables().iter().zip(other.tables()) {
            assert_eq!(table, &theirs);
            of.disk.fs.write_all_synced(table, &other.fs.read_all(&theirs).unwrap()).unwrap();
        }
        let copied = of.restore(&backups, 1, &mode(by)).unwrap();
        assert!(copied > 80_000, "{by:?}: {copied}");
        assert_eq!(of.contents(), expected);
    }
}

/// Leaves out what the directory `elsewhere` has.
fn excluding(elsewhere: &BackupEngine) -> CreateBackupOptions {
    let known: Vec<String> = elsewhere
        .backups()
        .iter()
        .flat_map(|info| elsewhere.backup_files(info.id).unwrap())
        .map(|(path, _)| path.strip_prefix("/elsewhere").unwrap().display().to_string())
        .collect();
    CreateBackupOptions {
        exclude_files_callback: Some(Arc::new(move |files| {
            for file in files {
                assert!(!file.exclude_decision && file.relative_file.starts_with("shared_checksum/"));
                file.exclude_decision = known.contains(&file.relative_file);
            }
        })),
        ..CreateBackupOptions::default()
    }
}

#[test]
fn tables_that_another_directory_has_are_left_out_and_found_again() {
    let (of, db) = with_two_tables();
    let mut elsewhere = of.open("/elsewhere", 1);
    elsewhere.create_backup(&db).unwrap();
    put_synced(&db, "c", "v");
    db.flush().unwrap();
    let expected = all(&db);

    let mut old = of.open("/old", 1);
    let result = old.create_backup_with(&db, &excluding(&elsewhere));
    refused(result, Code::InvalidArgument, "exclude_files_callback requires schema_version >= 2");
    let mut backups = of.open("/backups", 2);
    backups.create_backup_with(&db, &excluding(&elsewhere)).unwrap();
    drop((db, backups));
    let backups = of.open("/backups", 2);
    let info = &backups.backups()[0];
    assert_eq!(info.excluded_files.len(), 2);
    assert!(info.size < 20_000, "{info:?}");
    backups.verify(1, true).unwrap();

    let error = of.restore(&backups, 1, &RestoreOptions::default());
    let error = refused(error, Code::InvalidArgument, "(one amongst 2) not found in any of 0 alternate");
    assert!(info.excluded_files.iter().any(|path| error.to_string().contains(path)), "{error}");
    assert_eq!(of.contents(), expected, "nothing was touched");

    let with = RestoreOptions { alternate_dirs: vec![&old, &elsewhere], ..RestoreOptions::default() };
    assert!(of.restore(&backups, 1, &with).unwrap() > 80_000);
    assert_eq!(of.contents(), expected);
    // What is in the database itself is as good, if sessions may be trusted.
    let copied = of.restore(&backups, 1, &mode(RestoreMode::KeepLatestDbSessionIdFiles)).unwrap();
    assert!(copied < 20_000, "{copied}");
    assert_eq!(of.contents(), expected);
    of.disk.fs.remove(&of.disk.tables()[0]).unwrap();
    let error = of.restore(&backups, 1, &mode(RestoreMode::KeepLatestDbSessionIdFiles));
    refused(error, Code::InvalidArgument, "(one amongst 1)");
    let with = RestoreOptions { alternate_dirs: vec![&elsewhere], mode: RestoreMode::VerifyChecksum, ..with };
    let copied = of.restore(&backups, 1, &with).unwrap();
    assert!((40_000..60_000).contains(&copied), "{copied}");
    assert_eq!(of.contents(), expected);
}

#[test]
fn a_later_backup_of_the_same_directory_may_have_what_was_left_out() {
    let (of, db) = with_two_tables();
    let mut backups = of.open("/backups", 2);
    let all_out: CreateBackupOptions = CreateBackupOptions {
        exclude_files_callback: Some(Arc::new(|files| {
            files.iter_mut().for_each(|file| file.exclude_decision = true);
        })),
        ..CreateBackupOptions::default()
    };
    let expected = all(&db);
    backups.create_backup_with(&db, &all_out).unwrap();
    backups.create_backup(&db).unwrap();
    drop(db);
    of.restore(&backups, 1, &RestoreOptions::default()).unwrap();
    assert_eq!(of.contents(), expected);
    backups.delete_backup(2).unwrap();
    let error = of.restore(&backups, 1, &RestoreOptions::default());
    refused(error, Code::InvalidArgument, "(one amongst 2)");
}

#[test]
fn a_restore_that_fails_or_loses_its_power_leaves_nothing_that_opens_in_part() {
    let (of, db, _, expected) = backed_up();
    put_synced(&db, "later", "lost");
    db.flush().unwrap();
    let before = all(&db);
    drop(db);
    for by in [RestoreMode::KeepLatestDbSessionIdFiles, RestoreMode::VerifyChecksum] {
        let mut worked = 0;
        for after in 0..100 {
            let disk = Disk::of(of.disk.fs.crash(CrashPolicy::KeepAll, 0));
            disk.fs.remove(&disk.tables()[0]).unwrap();
            let of = Backups { disk, copied: Arc::default() };
            let backups = of.open("/backups", 1);
            of.disk.faults.add(FaultRule::error(FaultError::Io).after(after));
            of.disk.faults.arm();
            let restored = of.restore(&backups, 1, &mode(by));
            of.disk.faults.disarm();
            let disk = of.disk.lose_power();
            let mut options = disk.options();
            options.db.create_if_missing = false;
            match disk.try_open(&options) {
                Ok(db) => {
                    let found = all(&db);
                    assert!(found == expected || (restored.is_err() && found == before), "{by:?} {after}");
                }
                Err(error) => assert!(restored.is_err(), "{by:?} {after}: {error}"),
            }
            worked += usize::from(restored.is_ok());
        }
        assert!((1..90).contains(&worked), "{by:?}: {worked}");
    }
}
