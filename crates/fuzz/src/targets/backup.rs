//! The meta file of a backup. The input is the file; what it names is there, as a real backup left it.
//!
//! Opening, checking, restoring and removing touch nothing outside of the two directories, and a backup that verifies
//! can be restored and opened; errors name the file.

use super::{Seed, Target};
use crate::directory::make_small;
use crate::input::MAX_INPUT;
use crate::judge::check_error;
use ironstone::{
    BackupEngine, BackupEngineOptions, CreateBackupOptions, Db, DbOptions, Options, RestoreOptions,
};
use ironstone_base::sync::OnceLock;
use ironstone_vfs::{Env, FileSystem};
use std::path::{Path, PathBuf};

pub(super) const TARGET: Target =
    Target { name: "backup", what: "the meta file of a backup", run, seeds, mutations: 20_000 };

const BACKUPS: &str = "/backups";
const META: &str = "/backups/meta/1";
/// Nobody may touch it.
const CANARY: &str = "/outside/000001.sst";

fn options(env: &Env, schema_version: u32) -> BackupEngineOptions {
    // Shared tables have names that are never the same again.
    let share_table_files = false;
    BackupEngineOptions {
        env: env.clone(),
        schema_version,
        share_table_files,
        ..BackupEngineOptions::new(BACKUPS)
    }
}

/// The files of a backup in `schema`, with one table and a WAL.
fn real_backup(schema: u32) -> Vec<(PathBuf, Vec<u8>)> {
    let env = Env::in_memory();
    let mut db_options = Options::default();
    make_small(&mut db_options.db, &mut db_options.cf);
    db_options.db.env = env.clone();
    db_options.db.create_if_missing = true;
    let failed = "memory does not fail";
    let db = Db::open(&db_options, "/db").expect(failed);
    db.put(b"in a table", b"1").expect(failed);
    db.flush().expect(failed);
    db.put(b"in a log", b"2").expect(failed);
    let mut engine = BackupEngine::open(options(&env, schema)).expect(failed);
    let create = CreateBackupOptions { app_metadata: b"by hand".to_vec(), ..CreateBackupOptions::default() };
    engine.create_backup_with(&db, &create).expect(failed);
    let mut paths: Vec<PathBuf> =
        engine.backup_files(1).expect(failed).into_iter().map(|(path, _)| path).collect();
    paths.push(META.into());
    let read = |path: PathBuf| (env.fs.read_all(&path).expect(failed), path);
    paths.into_iter().map(read).map(|(bytes, path)| (path, bytes)).collect()
}

fn files() -> &'static [(PathBuf, Vec<u8>)] {
    static FILES: OnceLock<Vec<(PathBuf, Vec<u8>)>> = OnceLock::new();
    FILES.get_or_init(|| real_backup(1))
}

fn put(fs: &dyn FileSystem, path: &Path, bytes: &[u8]) {
    fs.create_dir_all(path.parent().expect("it is in a directory")).expect("memory does not fail");
    fs.write_all_synced(path, bytes).expect("memory does not fail");
}

fn run(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(MAX_INPUT)];
    let env = Env::in_memory();
    files().iter().for_each(|(path, contents)| put(&*env.fs, path, contents));
    put(&*env.fs, Path::new(META), bytes);
    put(&*env.fs, Path::new(CANARY), b"canary");
    let mut engine = match BackupEngine::open(options(&env, 1)) {
        Ok(engine) => engine,
        Err(error) => return check_error(&error, Some("meta")),
    };
    engine.corrupt_backups().iter().for_each(|(_, error)| check_error(error, None));
    let db_options = DbOptions { env: env.clone(), ..DbOptions::default() };
    for info in engine.backups() {
        let verified = engine.verify(info.id, true).inspect_err(|error| check_error(error, None));
        let restored =
            engine.restore(info.id, &db_options, "/restored", "/restored", &RestoreOptions::default());
        match restored {
            // What was left out of a meta file is missing in the database, which says so.
            Ok(()) => {
                assert!(verified.is_ok(), "a backup that does not verify was restored");
                let mut all = Options { db: db_options.clone(), ..Options::default() };
                make_small(&mut all.db, &mut all.cf);
                if let Err(error) = Db::open(&all, "/restored") {
                    check_error(&error, None);
                }
            }
            Err(error) => check_error(&error, None),
        }
    }
    if let Err(error) = engine.delete_backup(1) {
        check_error(&error, None);
    }
    assert_eq!(
        env.fs.read_all(Path::new(CANARY)).as_deref(),
        Ok(&b"canary"[..]),
        "something outside was touched"
    );
}

fn seeds() -> Vec<Seed> {
    let meta = |schema| real_backup(schema).pop().expect("it is the last").1;
    // Checksums are of other bytes each time, too; schema 2 does without.
    let schema_1 = meta(1);
    let text = str::from_utf8(&schema_1).expect("it is text");
    let lines = text.lines().map(|line| line.split(" crc32").next().unwrap_or_default());
    let without = std::iter::once("schema_version 2.1")
        .chain(lines)
        .map(|line| format!("{line}\n"))
        .collect::<String>();
    let others: [(&str, &[u8]); 4] = [
        ("no_files", b"1700000000\n7\n0\n"),
        ("leads_out", b"1700000000\n7\n1\nprivate/1/../../../outside/000001.sst crc32 7\n"),
        ("later_schema", b"schema_version 2.7\n5\n6\nnew thing\n1\nprivate/1/CURRENT crc32 7 temp kHot size 9\n// FOOTER\nx y\n"),
        ("excluded", b"schema_version 2\n5\n6\n1\nprivate/1/CURRENT ni::excluded true\n"),
    ];
    let real = [("schema_1", schema_1), ("schema_2", meta(2)), ("without_checksums", without.into_bytes())]
        .map(|(name, bytes)| Seed::new(name, bytes));
    real.into_iter().chain(others.into_iter().map(|(name, bytes)| Seed::new(name, bytes))).collect()
}
