//! Tables in several directories.

use crate::disk::{DIR, Disk, all, all_of, refused, rewrite_all};
use ironstone::options::DbOptions;
use ironstone::vfs::FileSystem;
use ironstone::vfs::mem::CrashPolicy;
use ironstone::{
    BackupEngine, BackupEngineOptions, Code, ColumnFamilyDescriptor, CompactFilesOptions,
    CompactRangeOptions, CompactionStyle, Db, DbPath, FileChecksumGenCrc32cFactory, IngestOptions, Options,
    SstFileManager, SstFileManagerOptions, SstFileWriter,
};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const KIB: u64 = 1 << 10;

fn paths(sizes: &[u64]) -> Vec<DbPath> {
    sizes.iter().enumerate().map(|(number, size)| DbPath::new(format!("/path{number}"), *size)).collect()
}

/// Levels of 16 KiB, 160 KiB and so on; the first directory takes levels 0 and 1.
fn levelled(disk: &Disk) -> Options {
    let mut options = disk.options();
    options.db.db_paths = paths(&[40 * KIB, 300 * KIB, 0]);
    options.cf.max_bytes_for_level_base = 16 * KIB;
    options.cf.target_file_size_base = 8 * KIB;
    options.cf.write_buffer_size = 16 << 10;
    options.cf.level0_file_num_compaction_trigger = 2;
    options
}

/// The directories of the tables that the database names; they are where it says.
fn directories(disk: &Disk, db: &Db) -> BTreeSet<PathBuf> {
    let files = db.live_files();
    let named = |file: &ironstone::LiveFile| file.directory.join(format!("{:06}.sst", file.number.0));
    assert!(files.iter().all(|file| disk.exists(named(file))));
    let there: BTreeSet<_> = disk.files(".sst").into_iter().collect();
    assert_eq!(there, files.iter().map(named).collect(), "nothing else is left");
    files.into_iter().map(|file| file.directory).collect()
}

fn fill(db: &Db, keys: u32) {
    for number in 0..keys {
        let value: String =
            (0..200).map(|at| char::from(b'a' + ((number * 31 + at * at) % 26) as u8)).collect();
        db.put(format!("key{:06}", number * 7919 % 100_000), value).unwrap();
    }
}

/// A database of uncompressed tables, after the compactions that are due.
fn filled_and_settled(disk: &Disk, options: &mut Options) -> Db {
    options.cf.disable_auto_compactions = false;
    options.cf.compression = ironstone::CompressionKind::None;
    let db = disk.open_with(options);
    fill(&db, 4000);
    db.flush().unwrap();
    db.wait_for_compact().unwrap();
    db
}

#[test]
fn deeper_levels_are_in_later_directories() {
    let disk = Disk::new();
    let mut options = levelled(&disk);
    let db = filled_and_settled(&disk, &mut options);
    for file in db.live_files() {
        let expected = ["/path0", "/path0", "/path1", "/path2"][file.level];
        assert_eq!(file.directory, Path::new(expected), "level {}", file.level);
    }
    disk.wait_until_purged(&db);
    assert_eq!(directories(&disk, &db).len(), 3);
    assert!(disk.fs.list(Path::new(DIR)).unwrap().iter().all(|name| !name.ends_with(".sst")));
    let before = all(&db);
    assert!(!db.column_family_options(db.default_column_family()).level_compaction_dynamic_level_bytes);
    drop(db);
    // After a loss of power as well: names in all directories are durable.
    let after = disk.lose_power();
    assert_eq!(all(&after.open_with(&options)), before);
    let read_only = after.open_read_only(&options, &[]).unwrap();
    assert_eq!(all(&read_only), before);
}

#[test]
fn larger_runs_are_in_later_directories() {
    let disk = Disk::new();
    let mut options = levelled(&disk);
    options.db.db_paths = paths(&[60 * KIB, 200 * KIB, 0]);
    options.cf.compaction_style = CompactionStyle::Universal;
    options.cf.target_file_size_base = 64 << 20; // One table for each run.
    let db = filled_and_settled(&disk, &mut options);
    let largest = db.live_files().into_iter().max_by_key(|file| file.size).unwrap();
    assert_eq!(largest.directory, Path::new("/path2"));
    db.set_options(&[("disable_auto_compactions", "true")]).unwrap();
    db.put("newest", "1").unwrap();
    db.flush().unwrap();
    let newest = db.live_files().into_iter().max_by_key(|file| file.number).unwrap();
    assert_eq!(newest.directory, Path::new("/path0"));
    let before = all(&db);
    drop(db);
    assert_eq!(all(&disk.open_with(&options)), before);
}

#[test]
fn compactions_that_are_asked_for_name_their_directory() {
    let disk = Disk::new();
    let options = levelled(&disk);
    let db = disk.open_with(&options);
    let put = |value: &str| {
        db.put("a", value).unwrap();
        db.put("b", value).unwrap();
        db.flush().unwrap();
    };
    put("1");
    assert_eq!(directories(&disk, &db), [PathBuf::from("/path0")].into());
    let to = |target_path_id| CompactRangeOptions { target_path_id, ..CompactRangeOptions::default() };
    let compact =
        |options: &CompactRangeOptions| db.compact_range(options, db.default_column_family(), None, None);
    compact(&to(2)).unwrap();
    disk.wait_until("old tables are removed", || disk.files(".sst").len() == 1);
    assert_eq!(
        directories(&disk, &db),
        [PathBuf::from("/path2")].into(),
        "nothing is just moved to another level"
    );
    refused(compact(&to(3)), Code::InvalidArgument, "Invalid target path ID: 3");
    put("2");
    let files: Vec<_> = db.live_files().iter().map(|file| file.number).collect();
    let named = |output_path_id| CompactFilesOptions { output_path_id, ..CompactFilesOptions::default() };
    let level = db.live_files().iter().map(|file| file.level).max().unwrap();
    let compact = |path| db.compact_files(&named(path), db.default_column_family(), &files, level);
    refused(compact(Some(4)), Code::InvalidArgument, "path ID");
    compact(Some(1)).unwrap();
    disk.wait_until("old tables are removed", || disk.files(".sst").len() == 1);
    assert_eq!(directories(&disk, &db), [PathBuf::from("/path1")].into());
    assert_eq!(all(&db), "a=2 b=2");
}

#[test]
fn column_families_have_directories_of_their_own() {
    let disk = Disk::new();
    let options = disk.options();
    let db = disk.open_with(&options);
    let mut own = options.cf.clone();
    own.cf_paths = vec![DbPath::new("/deep/own", 0)];
    let cf = db.create_column_family("own", &own).unwrap();
    db.put_cf(&ironstone::WriteOptions::default(), &cf, "k", "v").unwrap();
    db.put("k", "w").unwrap();
    db.flush_cfs(&ironstone::FlushOptions::default(), &[&cf, db.default_column_family()]).unwrap();
    assert_eq!(directories(&disk, &db), [PathBuf::from(DIR), PathBuf::from("/deep/own")].into());
    let mut writer = SstFileWriter::new(&options);
    writer.open("/in.sst").unwrap();
    writer.put("i", "1").unwrap();
    writer.finish().unwrap();
    db.ingest_external_files(&cf, &["/in.sst"], &IngestOptions::default()).unwrap();
    disk.fs.remove(Path::new("/in.sst")).unwrap();
    assert_eq!(directories(&disk, &db).len(), 2);
    assert_eq!(all_of(&db, &cf), "i=1 k=v");
    let descriptors = || {
        vec![
            ColumnFamilyDescriptor::new("default", options.cf.clone()),
            ColumnFamilyDescriptor::new("own", own.clone()),
        ]
    };
    drop((cf, db));
    let after = disk.lose_power();
    let db_options = DbOptions { env: after.env(), ..options.db.clone() };
    let db = Db::open_column_families(&db_options, DIR, descriptors()).unwrap();
    let cf = db.column_family("own").unwrap();
    assert_eq!((all(&db), all_of(&db, &cf)), ("k=w".to_owned(), "i=1 k=v".to_owned()));
    // A stranger in any of them is removed at opening; what is no table stays.
    drop((cf, db));
    for name in ["/deep/own/000999.sst", "/deep/own/000998.log", "/deep/own/CURRENT"] {
        after.fs.write_all_synced(Path::new(name), b"x").unwrap();
    }
    let db = Db::open_column_families(&db_options, DIR, descriptors()).unwrap();
    assert!(!after.exists("/deep/own/000999.sst"));
    assert!(after.exists("/deep/own/000998.log") && after.exists("/deep/own/CURRENT"));
    let cf = db.column_family("own").unwrap();
    db.drop_column_family(&cf).unwrap();
    drop(cf);
    after.wait_until("its tables are removed", || {
        after.files(".sst").iter().all(|path| path.starts_with(DIR))
    });
    drop(db);
    Db::destroy_column_families(&db_options, DIR, &descriptors()).unwrap();
    assert_eq!(after.files(".sst"), Vec::<PathBuf>::new());
    assert!(after.exists("/deep/own/CURRENT"));
}

#[test]
fn copies_checks_and_managers_know_the_directories() {
    let disk = Disk::new();
    let mut options = levelled(&disk);
    let manager = SstFileManager::new(SstFileManagerOptions::default());
    options.db.sst_file_manager = Some(Arc::clone(&manager));
    options.db.file_checksum_gen_factory = Some(Arc::new(FileChecksumGenCrc32cFactory));
    let db = disk.open_with(&options);
    for value in ["1", "2"] {
        db.put("a", value).unwrap();
        db.put("b", value).unwrap();
        db.flush().unwrap();
        let to = CompactRangeOptions { target_path_id: 1, ..CompactRangeOptions::default() };
        db.compact_range(&to, db.default_column_family(), None, None).unwrap();
    }
    db.put("a", "3").unwrap();
    db.flush().unwrap();
    disk.wait_until("old tables are removed", || disk.files(".sst").len() == 2);
    assert_eq!(directories(&disk, &db).len(), 2);
    assert_eq!(
        manager.tracked_files().into_keys().collect::<BTreeSet<_>>(),
        disk.files(".sst").into_iter().collect()
    );
    db.verify_file_checksums().unwrap();
    db.verify_checksum().unwrap();
    let stored = db.live_files_storage_info(u64::MAX).unwrap();
    assert!(stored.iter().all(|file| disk.exists(file.path())));
    refused(db.checkpoint("/copy"), Code::NotSupported, "checkpoints of a database with db_paths");
    let mut backups = BackupEngineOptions::new("/backups");
    backups.env = disk.env();
    let made = BackupEngine::open(backups).unwrap().create_backup(&db);
    refused(made, Code::NotSupported, "backups of a database with db_paths");
    let secondary = Db::open_secondary(&options.db, DIR, "/secondary", vec![]).unwrap();
    assert_eq!(all(&secondary), "a=3 b=2");
    drop((secondary, db));
    assert!(manager.tracked_files().is_empty());
    Db::destroy(&options.db, DIR).unwrap();
    assert_eq!(disk.files(".sst"), Vec::<PathBuf>::new());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.db_paths = paths(&[1, 2, 3, 4, 5]);
    refused(disk.try_open(&options), Code::NotSupported, "db_paths: more than four paths");
    options.db.db_paths = vec![DbPath::new("", 1)];
    refused(disk.try_open(&options), Code::InvalidArgument, "db_paths: a path is empty");
    options.db.db_paths = paths(&[1, 2]);
    options.cf.compaction_style = CompactionStyle::Fifo;
    refused(disk.try_open(&options), Code::NotSupported, "only with levelled and universal");
    // One alone is fine.
    options.db.db_paths = paths(&[1]);
    let db = disk.open_with(&options);
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    rewrite_all(&db);
    assert_eq!(db.live_files()[0].directory, Path::new("/path0"));
}

#[test]
fn a_power_loss_at_any_operation_loses_nothing() {
    let run = |disk: &Disk| {
        let Ok(db) = disk.try_open(&levelled(disk)) else { return 0 };
        let mut synced = 0;
        for number in 1..=4 {
            if db.put("n", number.to_string()).is_err() || db.flush().is_err() {
                break;
            }
            synced = number;
            let to =
                CompactRangeOptions { target_path_id: number as u32 % 3, ..CompactRangeOptions::default() };
            let _ = db.compact_range(&to, db.default_column_family(), None, None);
        }
        synced
    };
    let disk = Disk::new();
    run(&disk);
    for operation in (0..disk.fs.op_count()).step_by(2) {
        let disk = Disk::new();
        disk.fs.set_crash_point(operation);
        let synced = run(&disk);
        for policy in [CrashPolicy::DropUnsynced, CrashPolicy::KeepAll] {
            let after = disk.crash(policy);
            let db = after.open_with(&levelled(&after));
            let found =
                db.get("n").unwrap().map_or(0, |value| std::str::from_utf8(&value).unwrap().parse().unwrap());
            assert!(found >= synced, "power lost at {operation}, {policy:?}: {found} instead of {synced}");
        }
    }
}
