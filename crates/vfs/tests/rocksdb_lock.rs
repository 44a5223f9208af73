//! A live RocksDB and Ironstone keep each other out of one directory. Needs RocksDB's `ldb`.

use ironstone_vfs::os::OsFileSystem;
use ironstone_vfs::{Clock, FileSystem, SystemClock};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn ldb(dir: &Path) -> Command {
    let mut command = Command::new("ldb");
    command.arg(format!("--db={}", dir.display()));
    command
}

/// What `ldb put` says, which makes the database if need be.
fn put(dir: &Path) -> String {
    let output = ldb(dir).args(["--create_if_missing", "put", "key", "value"]).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

fn ldb_is_here() -> bool {
    let here =
        Command::new("ldb").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !here {
        println!("SKIP: no ldb (Debian: rocksdb-tools) in PATH");
    }
    here
}

#[test]
fn our_lock_keeps_rocksdb_out() {
    if !ldb_is_here() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let lock = OsFileSystem::new().lock(&dir.path().join("LOCK")).unwrap();
    let said = put(dir.path());
    assert!(said.contains("LOCK"), "{said}");
    drop(lock);
    let said = put(dir.path());
    assert!(said.contains("OK"), "{said}");
}

#[test]
fn rocksdb_keeps_us_out_and_is_named() {
    if !ldb_is_here() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    assert!(put(dir.path()).contains("OK"));
    let mut holder =
        ldb(dir.path()).arg("query").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let stdin = holder.stdin.take().unwrap();
    // Asking our own lock would take it, and keep RocksDB out, if we were faster.
    let holds = || OsFileSystem::new().read_all(Path::new("/proc/locks")).unwrap();
    let line = format!(" WRITE {} ", holder.id());
    while !String::from_utf8_lossy(&holds()).contains(&line) {
        assert!(holder.try_wait().unwrap().is_none(), "ldb ended early");
        SystemClock::new().sleep(Duration::from_millis(5));
    }

    let error = OsFileSystem::new().lock(&path).err().expect("RocksDB holds the lock");
    assert!(error.message().contains(&format!("held by process {}", holder.id())), "{error}");
    assert!(error.message().contains(path.to_str().unwrap()), "{error}");

    drop(stdin); // The end of its input ends ldb.
    holder.wait().unwrap();
    OsFileSystem::new().lock(&path).unwrap();
}
