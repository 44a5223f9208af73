//! Checkpoints and backups: RocksDB opens ours, and we open RocksDB's.

use ironstone::{
    BackupEngine, BackupEngineOptions, ColumnFamilyDescriptor, CreateBackupOptions, Db,
    ImportColumnFamilyOptions, Options, ReadOptions, RestoreMode, RestoreOptions, WriteOptions,
};
use ironstone_compat::directory::files;
use ironstone_compat::driver::tool;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn options() -> Options {
    let mut options = Options::default();
    options.db.create_if_missing = true;
    // Debian's RocksDB 7.8 knows format versions up to 5.
    options.cf.table.format_version = 5;
    options
}

/// Runs `ldb` on the database in `path`; `None` if it is not installed.
fn ldb(path: &Path, arguments: &[&str]) -> Option<String> {
    let mut all = vec![format!("--db={}", path.display())];
    all.extend(arguments.iter().map(ToString::to_string));
    let (ok, text) = tool("ldb", &all)?;
    assert!(ok && !text.contains("Failed") && !text.contains("orruption"), "{all:?}: {text}");
    Some(text)
}

fn scan(path: &Path) -> Option<Vec<String>> {
    Some(ldb(path, &["scan"])?.lines().map(str::to_owned).collect())
}

/// A database with tables, a table that is shared by later states, and a log that is in no table.
fn database(path: &Path) -> Db {
    let db = Db::open(&options(), path).unwrap();
    for i in 0..500 {
        db.put(format!("key{i:04}"), format!("value{i}")).unwrap();
    }
    db.flush().unwrap();
    db.put("key0000", "from the log").unwrap();
    db
}

fn expected() -> Vec<String> {
    let mut lines: Vec<String> = (0..500).map(|i| format!("key{i:04} : value{i}")).collect();
    lines[0] = "key0000 : from the log".to_owned();
    lines
}

#[test]
fn rocksdb_opens_our_checkpoint_and_we_open_its() {
    let dir = tempfile::tempdir().unwrap();
    let db = database(&dir.path().join("db"));
    let copy = dir.path().join("copy");
    db.checkpoint_with(&copy, u64::MAX).unwrap();
    let flushed = dir.path().join("flushed");
    db.checkpoint(&flushed).unwrap();
    let Some(found) = scan(&copy) else { return };
    assert_eq!(found, expected());
    assert_eq!(scan(&flushed).unwrap(), expected());
    ldb(&flushed, &["put", "key0001", "theirs"]).unwrap();
    let theirs = dir.path().join("theirs");
    ldb(&flushed, &["checkpoint", &format!("--checkpoint_dir={}", theirs.display())]).unwrap();
    let opened = Db::open(&options(), &theirs).unwrap();
    assert_eq!(opened.get("key0001").unwrap().as_deref(), Some(&b"theirs"[..]));
    assert_eq!(opened.iter().unwrap().entries().count(), 500);
}

fn engine(dir: &Path, schema_version: u32) -> BackupEngine {
    BackupEngine::open(BackupEngineOptions { schema_version, ..BackupEngineOptions::new(dir) }).unwrap()
}

fn backup_argument(dir: &Path) -> String {
    format!("--backup_dir={}", dir.display())
}

/// What `ldb restore` makes of the newest backup.
fn restored_by_rocksdb(backups: &Path, to: &Path) -> Option<Vec<String>> {
    ldb(to, &["restore", &backup_argument(backups)])?;
    scan(to)
}

#[test]
fn rocksdb_restores_our_backups() {
    for schema in [1, 2] {
        let dir = tempfile::tempdir().unwrap();
        let backups = dir.path().join("backups");
        let db = database(&dir.path().join("db"));
        let mut ours = engine(&backups, schema);
        ours.create_backup(&db).unwrap();
        let Some(found) = restored_by_rocksdb(&backups, &dir.path().join("r1")) else { return };
        assert_eq!(found, expected());
        db.delete("key0001").unwrap();
        ours.create_backup(&db).unwrap();
        let mut later = expected();
        later.remove(1);
        assert_eq!(restored_by_rocksdb(&backups, &dir.path().join("r2")).unwrap(), later);
        assert_eq!(files(&backups.join("shared_checksum"), "", ".sst").len(), 1);
    }
}

#[test]
fn we_restore_rocksdbs_backups_and_both_add_to_one_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (path, backups) = (dir.path().join("db"), dir.path().join("backups"));
    database(&path).close().unwrap();
    if ldb(&path, &["backup", &backup_argument(&backups)]).is_none() {
        return;
    }
    let tables = || files(&backups.join("shared_checksum"), "", ".sst");
    let first = tables();
    assert!(!first.is_empty());
    {
        let mut ours = engine(&backups, 1);
        let listed = ours.backups();
        assert_eq!((listed.len(), listed[0].id), (1, 1));
        ours.verify(1, true).unwrap();
        let to: PathBuf = dir.path().join("restored");
        ours.restore(1, &options().db, &to, &to, &RestoreOptions::default()).unwrap();
        let restored = Db::open(&options(), &to).unwrap();
        assert_eq!(restored.iter().unwrap().entries().count(), 500);
        assert_eq!(restored.get("key0000").unwrap().as_deref(), Some(&b"from the log"[..]));
        // A second one of the same tables, by us: they are called the same.
        let db = Db::open(&options(), &path).unwrap();
        ours.create_backup(&db).unwrap();
    }
    assert_eq!(tables(), first, "nothing was copied twice");
    assert_eq!(restored_by_rocksdb(&backups, &dir.path().join("r")).unwrap(), expected());
    // A third one by RocksDB.
    ldb(&path, &["put", "z", "last"]).unwrap();
    ldb(&path, &["backup", &backup_argument(&backups)]).unwrap();
    let mut ours = engine(&backups, 1);
    assert_eq!(ours.backups().len(), 3);
    ours.backups().iter().for_each(|info| ours.verify(info.id, true).unwrap());
    ours.purge_old_backups(1).unwrap();
    let mut later = expected();
    later.push("z : last".to_owned());
    assert_eq!(restored_by_rocksdb(&backups, &dir.path().join("r3")).unwrap(), later);
}

#[test]
fn rocksdb_opens_a_database_with_an_imported_column_family_and_we_import_its_tables() {
    let dir = tempfile::tempdir().unwrap();
    let db = database(&dir.path().join("db"));
    let exported = db.export_column_family(db.default_column_family(), dir.path().join("exported")).unwrap();
    let other = dir.path().join("other");
    let into = Db::open(&options(), &other).unwrap();
    into.put("own", "1").unwrap();
    let how = ImportColumnFamilyOptions::default();
    let cf = into.create_column_family_with_import("in", &options().cf, &how, &[exported]).unwrap();
    into.put_cf(&WriteOptions::default(), &cf, "key0001", "newer").unwrap();
    drop((cf, into));
    let Some(found) = ldb(&other, &["--column_family=in", "scan"]) else { return };
    let mut wanted = expected();
    wanted[1] = "key0001 : newer".to_owned();
    assert_eq!(found.lines().collect::<Vec<_>>(), wanted);
    // RocksDB writes and compacts; its tables then leave for another database of ours.
    ldb(&other, &["--column_family=in", "put", "key0002", "theirs"]).unwrap();
    ldb(&other, &["--column_family=in", "compact"]).unwrap();
    let families = ["default", "in"].map(|name| ColumnFamilyDescriptor::new(name, options().cf)).to_vec();
    let theirs = Db::open_column_families(&options().db, &other, families).unwrap();
    let cf = theirs.column_family("in").unwrap();
    let exported = theirs.export_column_family(&cf, dir.path().join("again")).unwrap();
    let cf = db.create_column_family_with_import("back", &options().cf, &how, &[exported]).unwrap();
    wanted[2] = "key0002 : theirs".to_owned();
    let entries = db.iter_cf(&ReadOptions::default(), &cf).unwrap().entries();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let found = entries.map(|entry| entry.map(|(key, value)| format!("{} : {}", text(&key), text(&value))));
    assert_eq!(found.collect::<ironstone::Result<Vec<_>>>().unwrap(), wanted);
}

#[test]
fn tables_that_were_left_out_are_found_by_either_in_the_same_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (path, backups) = (dir.path().join("db"), dir.path().join("backups"));
    let db = database(&path);
    let mut ours = engine(&backups, 2);
    let leave_out = CreateBackupOptions {
        exclude_files_callback: Some(Arc::new(|files| {
            assert!(!files.is_empty());
            files.iter_mut().for_each(|file| file.exclude_decision = true);
        })),
        ..CreateBackupOptions::default()
    };
    ours.create_backup(&db).unwrap();
    let without = ours.create_backup_with(&db, &leave_out).unwrap();
    assert!(!ours.backups()[1].excluded_files.is_empty());
    db.close().unwrap();
    drop((db, ours));
    let Some(restored) = restored_by_rocksdb(&backups, &dir.path().join("r")) else { return };
    assert_eq!(restored, expected());

    // What RocksDB restored is as good as the backup: only what it wrote when it read is replaced.
    let ours = engine(&backups, 2);
    for mode in [RestoreMode::KeepLatestDbSessionIdFiles, RestoreMode::VerifyChecksum] {
        let options = RestoreOptions { mode, ..RestoreOptions::default() };
        let to = dir.path().join("r");
        ours.restore(without, &self::options().db, &to, &to, &options).unwrap();
        let db = Db::open(&self::options(), &to).unwrap();
        assert_eq!(db.iter().unwrap().entries().count(), 500);
        db.close().unwrap();
    }
}
