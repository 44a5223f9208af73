//! What every file system must do, and databases, over encrypted files.

#[path = "../../vfs/tests/suite/conformance.rs"]
#[allow(dead_code)] // What is asked of reused files.
mod suite;

use ironstone::vfs::fault::{Fault, FaultFileSystem, FaultRule};
use ironstone::vfs::mem::{CrashPolicy, MemFileSystem};
use ironstone::vfs::os::OsFileSystem;
use ironstone::vfs::{FileSystem, WriteOptions as FileOptions};
use ironstone::{Db, FlushOptions, Options, WriteOptions};
use ironstone_base::checksum::crc32c;
use ironstone_encryption::{Aes, BlockCipher, EncryptedFileSystem, Rot13};
use std::path::Path;
use std::sync::Arc;
use suite::check_without_reuse;

fn encrypted(
    inner: impl FileSystem + 'static,
    cipher: impl BlockCipher + 'static,
) -> Arc<EncryptedFileSystem> {
    Arc::new(EncryptedFileSystem::new(Arc::new(inner), Arc::new(cipher)).unwrap())
}
fn aes(inner: &MemFileSystem, key: u8) -> Arc<EncryptedFileSystem> {
    encrypted(inner.clone(), Aes::new(&[key; 32]).unwrap())
}

#[test]
fn encrypted_files_conform() {
    let dir = tempfile::tempdir().unwrap();
    check_without_reuse(&*encrypted(OsFileSystem::new(), Aes::new(&[1; 16]).unwrap()), dir.path());
    let fs = MemFileSystem::new();
    let root = Path::new("/root");
    fs.create_dir_all(root).unwrap();
    check_without_reuse(&*aes(&fs, 1), root);
    check_without_reuse(&*encrypted(fs, Rot13::new(10)), root);
}

#[test]
fn data_that_changed_on_its_way_is_refused_above_and_below() {
    let mem = MemFileSystem::new();
    let faults = FaultFileSystem::new(Arc::new(mem.clone()));
    let fs = encrypted(faults.clone(), Aes::new(&[1; 16]).unwrap());
    let path = Path::new("/log");
    let mut file = fs.create(path, FileOptions::default()).unwrap();
    let data: Vec<u8> = (0..200_000u32).map(|at| at as u8).collect();
    file.append_checked(&data, crc32c(&data)).unwrap();
    // What the application hands over is not what it made.
    let error = file.append_checked(&data, crc32c(&data) ^ 1).unwrap_err();
    assert!(error.is_corruption() && error.message().contains("/log at 200000"), "{error}");
    // What is encrypted changes further down.
    faults.add(FaultRule::new(Fault::FlipWrittenBit(77)));
    assert!(file.append_checked(b"more", crc32c(b"more")).unwrap_err().is_corruption());
    file.append_checked(b"more", crc32c(b"more")).unwrap();
    file.close().unwrap();
    assert_eq!(fs.read_all(path).unwrap(), [&data[..], b"more"].concat());
}

/// Zeros that the system adds would be read as noise behind the last record of a WAL.
#[test]
fn files_do_not_grow_ahead_of_what_is_written() {
    let inner = MemFileSystem::new();
    let (fs, path) = (aes(&inner, 1), Path::new("/log"));
    let options = FileOptions { sync_ahead: 1000, ..FileOptions::default() };
    for create in [true, false] {
        let mut file = if create { fs.create(path, options) } else { fs.append_to(path, options) }.unwrap();
        for _ in 0..3 {
            file.append(b"record").unwrap();
            file.sync().unwrap();
            assert_eq!(fs.size(path).unwrap(), file.size());
        }
    }
}

#[test]
fn a_reused_file_is_emptied() {
    let inner = MemFileSystem::new();
    let fs = aes(&inner, 1);
    let (old, new) = (Path::new("/old"), Path::new("/new"));
    fs.write_all_synced(old, &[1; 1000]).unwrap();
    let before = inner.read_all(old).unwrap();
    let mut file = fs.reuse(old, new, FileOptions::default()).unwrap();
    file.append(b"new").unwrap();
    file.close().unwrap();
    assert_eq!(fs.read_all(new).unwrap(), b"new");
    let after = inner.read_all(new).unwrap();
    assert!(!fs.exists(old).unwrap() && after.len() == 4096 + 3 && after[..32] != before[..32]);
}

fn options(fs: &Arc<EncryptedFileSystem>) -> Options {
    let mut options = Options::in_memory();
    options.db.env.fs = Arc::clone(fs) as Arc<dyn FileSystem>;
    options.db.recycle_log_file_num = 2;
    options
}
fn put(db: &Db, keys: std::ops::Range<u32>, options: &WriteOptions) {
    let cf = db.default_column_family();
    keys.for_each(|key| db.put_cf(options, cf, format!("key {key:05}"), format!("plaintext {key}")).unwrap());
}
/// How many keys there are, without a gap.
fn count(db: &Db) -> u32 {
    let found = (0..).take_while(|key| {
        let value = db.get(format!("key {key:05}")).unwrap();
        value.inspect(|value| assert_eq!(**value, *format!("plaintext {key}").as_bytes())).is_some()
    });
    found.count() as u32
}

#[test]
fn a_database_lives_through_crashes_and_tells_nothing() {
    for policy in CrashPolicy::ALL {
        let mut disk = MemFileSystem::new();
        let mut written = 0;
        for round in 0..3 {
            let fs = aes(&disk, 9);
            let db = Db::open(&options(&fs), "/db").unwrap();
            assert_eq!(count(&db), written, "{policy:?} {round}");
            put(&db, written..written + 500, &WriteOptions::default());
            if round % 2 == 0 {
                db.flush_cfs(&FlushOptions::default(), &[db.default_column_family()]).unwrap();
            }
            put(&db, written + 500..written + 600, &WriteOptions::synced());
            written += 600;
            let crashed = disk.crash(policy, round);
            drop(db);
            disk = crashed;
        }
        let files = disk.all_files();
        assert!(files.iter().any(|path| path.extension().is_some_and(|name| name == "sst")));
        for path in files {
            let bytes = disk.read_all(&path).unwrap();
            for secret in [&b"plaintext"[..], b"key 0", b"MANIFEST-", b"rocksdb", b"leveldb"] {
                let is_there = bytes.windows(secret.len()).any(|part| part == secret);
                assert!(!is_there, "{} has {:?}", path.display(), secret.escape_ascii().to_string());
            }
        }
        // The wrong key and no key at all find nothing, and break nothing.
        assert!(Db::open(&options(&aes(&disk, 8)), "/db").is_err());
        let mut plain = Options::in_memory();
        plain.db.env.fs = Arc::new(disk.clone());
        assert!(Db::open(&plain, "/db").is_err());
        assert_eq!(count(&Db::open(&options(&aes(&disk, 9)), "/db").unwrap()), written);
    }
}

#[test]
fn files_that_end_within_their_prefix_are_empty() {
    let inner = MemFileSystem::new();
    let fs = aes(&inner, 1);
    let path = Path::new("/cut");
    for len in [0, 1, 4095] {
        inner.write_all_synced(path, &vec![7; len]).unwrap();
        assert_eq!((fs.size(path).unwrap(), fs.read_all(path).unwrap()), (0, vec![]));
        let random = fs.open_random(path, Default::default()).unwrap();
        assert_eq!((random.size(), random.read_at(0, &mut [0; 4]).unwrap()), (0, 0));
        let mut file = fs.append_to(path, FileOptions::default()).unwrap();
        file.append(b"whole").unwrap();
        file.close().unwrap();
        assert_eq!(fs.read_all(path).unwrap(), b"whole");
    }
    assert!(EncryptedFileSystem::new(Arc::new(inner), Arc::new(Rot13::new(7))).is_err());
}

/// RocksDB's tools with its test cipher, and we with ours, in one directory in turn.
#[test]
fn rocksdb_reads_and_writes_the_same_files() {
    const LDB: &str = "/usr/bin/ldb";
    if !Path::new(LDB).exists() {
        println!("skipped: {LDB} is not installed");
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("db");
    let ldb = |arguments: &[&str]| {
        let mut command = std::process::Command::new(LDB);
        command
            .arg("--fs_uri=provider=1://test;id=EncryptedFileSystem")
            .arg(format!("--db={}", dir.display()));
        let output = command.args(arguments).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{arguments:?}\n{out}\n{err}");
        out.into_owned()
    };
    ldb(&["--create_if_missing", "put", "theirs", "1"]);
    let mut options = Options::default();
    options.db.env.fs = encrypted(OsFileSystem::new(), Rot13::new(32));
    let db = Db::open(&options, &dir).unwrap();
    assert_eq!(db.get("theirs").unwrap().unwrap(), "1");
    db.put("ours in a table", "2").unwrap();
    db.flush_cfs(&FlushOptions::default(), &[db.default_column_family()]).unwrap();
    db.put("ours in the log", "3").unwrap();
    db.close().unwrap();
    assert_eq!(ldb(&["scan"]), "ours in a table : 2\nours in the log : 3\ntheirs : 1\n");
    ldb(&["put", "again", "4"]);
    ldb(&["compact"]);
    let db = Db::open(&options, &dir).unwrap();
    for (key, value) in [("again", "4"), ("theirs", "1"), ("ours in a table", "2"), ("ours in the log", "3")]
    {
        assert_eq!(db.get(key).unwrap().unwrap(), value);
    }
}

#[test]
fn encryption_and_decryption_are_timed() {
    use ironstone::perf::{self, PerfLevel, PerfMetric};
    let inner = MemFileSystem::new();
    let fs = aes(&inner, 1);
    let times = |level| {
        perf::set_level(level);
        perf::reset();
        fs.write_all_synced(Path::new("/file"), &[1; 100_000]).unwrap();
        let encrypting = perf::get(PerfMetric::EncryptDataNanos);
        assert_eq!(perf::get(PerfMetric::DecryptDataNanos), 0);
        assert_eq!(fs.read_all(Path::new("/file")).unwrap(), [1; 100_000]);
        (encrypting > 0, perf::get(PerfMetric::DecryptDataNanos) > 0)
    };
    assert_eq!(times(PerfLevel::EnableCount), (false, false));
    assert_eq!(times(PerfLevel::EnableTimeExceptForMutex), (true, true));
    perf::set_level(PerfLevel::default());
}
