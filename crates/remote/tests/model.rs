//! Random operations on a database whose tables are remote, compared with a `BTreeMap`; and what databases do with files
//! beside reading and writing.

#[path = "common/places.rs"]
mod places;

use ironstone::{
    BottommostPolicy, ColumnFamilyDescriptor, CompactRangeOptions, Db, IngestOptions, Options, SstFileWriter,
    WriteBatch, WriteOptions,
};
use ironstone_base::Code;
use ironstone_remote::opendal::Operator;
use ironstone_remote::{RemoteFileSystem, RemoteOptions};
use ironstone_vfs::{Clock, FileSystem, SystemClock};
use places::{Model, compact, compare, directory, memory, open, small, small_database};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A database that is opened and closed, with a new file system each time: what the cache holds goes through a restart.
struct Run {
    rng: StdRng,
    remote: Operator,
    options: RemoteOptions,
    path: PathBuf,
    model: Model,
}

impl Run {
    fn key(&mut self) -> Vec<u8> {
        format!("key{:05}", self.rng.random_range(0..3_000)).into_bytes()
    }
    fn value(&mut self) -> Vec<u8> {
        let len = self.rng.random_range(0..300);
        (0..len).map(|_| self.rng.random_range(b'a'..=b'z')).collect()
    }

    fn step(&mut self, db: &Db) {
        match self.rng.random_range(0..1000) {
            0..600 => {
                let (key, value) = (self.key(), self.value());
                db.put(&key, &value).unwrap();
                self.model.insert(key, value);
            }
            600..750 => {
                let key = self.key();
                db.delete(&key).unwrap();
                self.model.remove(&key);
            }
            750..800 => {
                let mut batch = WriteBatch::new();
                for _ in 0..self.rng.random_range(1..20) {
                    let (key, value) = (self.key(), self.value());
                    batch.put(&key, &value);
                    self.model.insert(key, value);
                }
                db.write(&batch, &WriteOptions::default()).unwrap();
            }
            800..805 => db.flush().unwrap(),
            805..806 => compact(db).unwrap(),
            _ => {
                let key = self.key();
                assert_eq!(db.get(&key).unwrap().as_deref(), self.model.get(&key).map(Vec::as_slice));
            }
        }
    }

    fn round(&mut self, operations: usize) {
        let fs = open(self.remote.clone(), self.options.clone());
        let db = Db::open(&small_database(&fs), &self.path).unwrap();
        compare(&db, &self.model);
        for _ in 0..operations {
            self.step(&db);
        }
        compare(&db, &self.model);
        db.verify_checksum().unwrap();
    }
}

#[test]
fn random_operations_agree_with_the_model() {
    for seed in 0..6 {
        println!("seed {seed}");
        let dir = tempfile::tempdir().unwrap();
        let remote = if seed % 2 == 0 { memory() } else { directory(&dir.path().join("remote")) };
        let mut options = small(dir.path());
        options.cache_bytes = [0, 64 << 10, 4 << 20][seed as usize % 3];
        let path = dir.path().join("data/db");
        let mut run = Run { rng: StdRng::seed_from_u64(seed), remote, options, path, model: Model::new() };
        for _ in 0..5 {
            run.round(3_000);
        }
    }
}

fn fill(db: &Db, model: &mut Model, count: u32) {
    for at in 0..count {
        let (key, value) =
            (format!("key{at:05}").into_bytes(), format!("value {at} {}", "v".repeat(200)).into_bytes());
        db.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    db.flush().unwrap();
}

struct Place {
    dir: tempfile::TempDir,
    fs: RemoteFileSystem,
    options: Options,
    db: Db,
    model: Model,
}

fn filled() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let fs = open(directory(&dir.path().join("remote")), small(dir.path()));
    let options = small_database(&fs);
    let db = Db::open(&options, dir.path().join("data/db")).unwrap();
    let mut model = Model::new();
    fill(&db, &mut model, 2_000);
    Place { dir, fs, options, db, model }
}

fn local_tables(dir: &Path) -> usize {
    let names = ironstone_vfs::os::OsFileSystem::new().list(dir).unwrap();
    names.iter().filter(|name| name.ends_with(".sst")).count()
}

#[test]
fn a_checkpoint_below_the_root_is_remote_and_elsewhere_local() {
    let Place { dir, fs, options, db, model } = filled();
    let (inside, outside) = (dir.path().join("data/copy"), dir.path().join("copy"));
    db.checkpoint(&inside).unwrap();
    db.checkpoint(&outside).unwrap();
    assert_eq!(local_tables(&inside), 0);
    assert!(local_tables(&outside) > 0);
    drop(db);
    Db::destroy(&options.db, dir.path().join("data/db")).unwrap();
    assert!(!dir.path().join("data/db").exists(), "nothing stays of a destroyed database");
    compare(&Db::open(&options, &inside).unwrap(), &model);
    drop(fs);
    // The copy elsewhere needs no remote.
    let local = Options { db: ironstone::DbOptions::default(), ..Options::default() };
    compare(&Db::open(&local, &outside).unwrap(), &model);
}

#[test]
fn files_from_outside_are_ingested() {
    let Place { dir, options, db, mut model, .. } = filled();
    for (at, moved) in [(0, false), (1, true)] {
        let path = dir.path().join(format!("outside{at}.sst"));
        let mut writer = SstFileWriter::new(&options);
        writer.open(&path).unwrap();
        let (key, value) = (format!("new{at}").into_bytes(), b"ingested".to_vec());
        writer.put(&key, &value).unwrap();
        writer.finish().unwrap();
        let ingestion = IngestOptions { move_files: moved, ..IngestOptions::default() };
        db.ingest_external_files(db.default_column_family(), &[&path], &ingestion).unwrap();
        model.insert(key, value);
        assert_eq!(path.exists(), !moved);
    }
    assert_eq!(local_tables(&dir.path().join("data/db")), 0);
    compare(&db, &model);
}

#[test]
fn tables_without_a_manifest_are_repaired() {
    let Place { dir, options, db, model, .. } = filled();
    drop(db);
    let path = dir.path().join("data/db");
    let os = ironstone_vfs::os::OsFileSystem::new();
    for name in os.list(&path).unwrap() {
        if name.starts_with("MANIFEST") || name == "CURRENT" {
            os.remove(&path.join(name)).unwrap();
        }
    }
    Db::repair(&options.db, &path, &[], Some(&options.cf)).unwrap();
    compare(&Db::open(&options, &path).unwrap(), &model);
}

#[test]
fn a_database_moves_to_a_remote_by_being_compacted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data/db");
    let mut model = Model::new();
    let mut local = Options::default();
    local.db.create_if_missing = true;
    fill(&Db::open(&local, &path).unwrap(), &mut model, 2_000);
    assert!(local_tables(&path) > 0);
    let fs = open(memory(), small(dir.path()));
    let db = Db::open(&small_database(&fs), &path).unwrap();
    compare(&db, &model);
    fill(&db, &mut model, 500);
    let all = CompactRangeOptions {
        bottommost_level_compaction: BottommostPolicy::Force,
        ..CompactRangeOptions::default()
    };
    db.compact_range(&all, db.default_column_family(), None, None).unwrap();
    compare(&db, &model);
    // The background removes them.
    let clock = SystemClock::new();
    while local_tables(&path) > 0 {
        assert!(clock.monotonic_nanos() < 20_000_000_000, "{} local tables are left", local_tables(&path));
        clock.sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_secondary_with_a_cache_of_its_own_follows() {
    let Place { dir, db, mut model, .. } = filled();
    let mut options = small(dir.path());
    options.cache_dir = dir.path().join("secondary-cache");
    let fs = open(directory(&dir.path().join("remote")), options);
    let options = small_database(&fs);
    let path = dir.path().join("data/db");
    let families = || vec![ColumnFamilyDescriptor::new("default", options.cf.clone())];
    compare(&Db::open_read_only(&options.db, &path, families()).unwrap(), &model);
    let secondary = Db::open_secondary(&options.db, &path, dir.path().join("secondary"), families()).unwrap();
    compare(&secondary, &model);
    db.put("later", "x").unwrap();
    model.insert(b"later".to_vec(), b"x".to_vec());
    db.flush().unwrap();
    compact(&db).unwrap();
    secondary.try_catch_up_with_primary().unwrap();
    compare(&secondary, &model);
    assert!(fs.counters().reads > 0);
}

#[test]
fn two_copies_of_a_database_are_told_apart() {
    let Place { dir, fs, options, db, model } = filled();
    let path = dir.path().join("data/db");
    drop(db);
    // Another host has a copy of the local files, but not of the token.
    let other = dir.path().join("other/db");
    let os = ironstone_vfs::os::OsFileSystem::new();
    os.create_dir_all(&other).unwrap();
    for name in os.list(&path).unwrap() {
        if name != "LOCK" && name != ".remote-owner" {
            os.write_all_synced(&other.join(&name), &os.read_all(&path.join(&name)).unwrap()).unwrap();
        }
    }
    let mut second = small(dir.path());
    second.root = dir.path().join("other");
    second.cache_dir = dir.path().join("other-cache");
    let second = open(directory(&dir.path().join("remote")), second);
    let db = Db::open(&options, &path).unwrap();
    let error = Db::open(&small_database(&second), &other).err().unwrap();
    assert_eq!(error.code(), Code::IoError);
    for part in ["lock", "other/db", "tests/tables/db/OWNER", "host ", "process "] {
        assert!(error.message().contains(part), "{error}");
    }
    // A crash: the owner's object stays, and the token tells that it is our own.
    drop(db);
    let lock = fs.lock(&path.join("LOCK")).unwrap();
    let owner = dir.path().join("remote/tests/tables/db/OWNER");
    let text = os.read_all(&owner).unwrap();
    drop(lock);
    assert!(!owner.exists());
    // Somebody removed it by hand, and another host took its place: it is not ours to remove.
    let lock = fs.lock(&path.join("LOCK")).unwrap();
    os.write_all_synced(&owner, b"another token\nhost elsewhere\n").unwrap();
    drop(lock);
    assert!(owner.exists());
    assert!(Db::open(&options, &path).err().unwrap().message().contains("host elsewhere"));
    os.write_all_synced(&owner, &text).unwrap();
    compare(&Db::open(&options, &path).unwrap(), &model);
    assert!(!owner.exists());
    compare(&Db::open(&small_database(&second), &other).unwrap(), &model);
}
