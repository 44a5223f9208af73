//! What listeners are told of operations on files.

use crate::disk::{Disk, all, put_synced, rewrite_all};
use ironstone::vfs::fault::{FaultError, FaultRule};
use ironstone::vfs::{FileSystem, OpKind};
use ironstone::{CompressionKind, Db, EventListener, FileOperationInfo, Options};
use ironstone_base::sync::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Writes down which operations there were on which kinds of files.
#[derive(Default)]
struct Notebook {
    wants: bool,
    panics: bool,
    seen: Mutex<BTreeSet<String>>,
    appended: Mutex<u64>,
}

impl Notebook {
    fn wanting() -> Arc<Self> {
        Arc::new(Self { wants: true, ..Self::default() })
    }
    fn note(&self, what: &str, info: &FileOperationInfo<'_>) {
        let name = info.path.file_name().unwrap().to_string_lossy();
        let kind = ["MANIFEST", "OPTIONS", "LOG"].into_iter().find(|kind| name.starts_with(kind));
        let kind = kind.unwrap_or_else(|| name.split('.').next_back().unwrap());
        let failed = if info.status.is_err() { ", failed" } else { "" };
        self.seen.lock().insert(format!("{what} {kind}{failed}"));
        assert!(!self.panics, "a listener's mistake");
    }
    fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.seen.lock())
    }
    #[track_caller]
    fn expect(&self, wanted: &[&str]) {
        let seen = self.take();
        assert!(wanted.iter().all(|line| seen.contains(*line)), "{wanted:?} in {seen:?}");
    }
}

impl EventListener for Notebook {
    fn should_be_notified_on_file_io(&self) -> bool {
        self.wants
    }
    fn on_file_read_finish(&self, info: &FileOperationInfo<'_>) {
        self.note("read", info);
    }
    fn on_file_write_finish(&self, info: &FileOperationInfo<'_>) {
        if info.path.to_string_lossy().ends_with(".sst") {
            let mut appended = self.appended.lock();
            *appended = if info.offset == 0 { 0 } else { *appended };
            assert_eq!(info.offset, *appended);
            *appended += info.length;
        }
        self.note("write", info);
    }
    fn on_file_flush_finish(&self, info: &FileOperationInfo<'_>) {
        self.note("flush", info);
    }
    fn on_file_sync_finish(&self, info: &FileOperationInfo<'_>) {
        self.note("sync", info);
    }
    fn on_file_range_sync_finish(&self, info: &FileOperationInfo<'_>) {
        self.note("range sync", info);
    }
    fn on_file_truncate_finish(&self, info: &FileOperationInfo<'_>) {
        self.note("truncate", info);
    }
    fn on_file_close_finish(&self, info: &FileOperationInfo<'_>) {
        self.note("close", info);
    }
    fn on_io_error(&self, info: &FileOperationInfo<'_>) {
        assert!(info.status.is_err());
        self.note(&format!("error of {:?}", info.operation), info);
    }
}

fn open(disk: &Disk, listeners: &[&Arc<Notebook>]) -> Db {
    let mut options = disk.options();
    for listener in listeners {
        options.db.listeners.push(Arc::<Notebook>::clone(listener));
    }
    disk.open_with(&options)
}

#[test]
fn operations_on_files_are_told_to_who_wants_it() {
    let disk = Disk::new();
    let (notebook, deaf) = (Notebook::wanting(), Arc::new(Notebook::default()));
    let db = open(&disk, &[&notebook, &deaf]);
    notebook.expect(&["write MANIFEST", "sync MANIFEST"]);
    put_synced(&db, "a", "1");
    notebook.expect(&["write log", "sync log"]);
    db.flush().unwrap();
    notebook.expect(&["write sst", "sync sst", "close sst", "write MANIFEST", "sync MANIFEST"]);
    let size = disk.fs.size(&disk.newest(".sst")).unwrap();
    assert_eq!(*notebook.appended.lock(), size, "all of it, in order");
    assert_eq!(all(&db), "a=1");
    notebook.expect(&["read sst"]);
    db.close().unwrap();
    notebook.take();
    let db = open(&disk, &[&notebook, &deaf]);
    notebook.expect(&["read MANIFEST", "read log"]);
    assert_eq!(all(&db), "a=1");
    db.close().unwrap();
    assert!(!notebook.take().iter().any(|line| line.ends_with("LOG")), "it is where listeners are told of");
    assert_eq!(deaf.take(), BTreeSet::new());
}

/// Files in memory have no write-back.
#[test]
fn write_back_of_flushes_is_begun_before_they_end() {
    let dir = tempfile::tempdir().unwrap();
    let notebook = Notebook::wanting();
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.db.bytes_per_sync = 0;
    options.db.listeners.push(Arc::<Notebook>::clone(&notebook));
    options.cf.compression = CompressionKind::None;
    options.cf.disable_auto_compactions = true;
    let db = Db::open(&options, dir.path()).unwrap();
    for round in 0..2 {
        (0..30).for_each(|key: u8| db.put([key], vec![round; 100_000]).unwrap());
        db.flush().unwrap();
        notebook.expect(&["range sync sst", "sync sst"]);
    }
    rewrite_all(&db);
    let seen = notebook.take();
    assert!(seen.contains("sync sst"), "{seen:?}");
    assert!(!seen.contains("range sync sst"), "nobody waits for a compaction: {seen:?}");
    db.close().unwrap();
}

#[test]
fn failures_of_files_are_told_as_such_too() {
    let disk = Disk::new();
    let notebook = Notebook::wanting();
    let db = open(&disk, &[&notebook]);
    put_synced(&db, "a", "1");
    db.flush().unwrap();
    notebook.take();
    disk.faults.arm();
    disk.faults.add(FaultRule::error(FaultError::Io).on(&[OpKind::Read]).path(".sst"));
    db.get("a").unwrap_err();
    notebook.expect(&["read sst, failed", "error of Read sst, failed"]);
    disk.faults.add(FaultRule::error(FaultError::Io).on(&[OpKind::Sync]).path(".log"));
    db.put_cf(&ironstone::WriteOptions::synced(), db.default_column_family(), "a", "2").unwrap_err();
    notebook.expect(&["write log", "sync log, failed", "error of Sync log, failed"]);
}

#[test]
fn a_listener_that_panics_at_every_operation_harms_nobody() {
    let disk = Disk::new();
    let (panicking, after) =
        (Arc::new(Notebook { wants: true, panics: true, ..Notebook::default() }), Notebook::wanting());
    let db = open(&disk, &[&panicking, &after]);
    put_synced(&db, "a", "1");
    db.flush().unwrap();
    rewrite_all(&db);
    assert_eq!(all(&db), "a=1");
    db.close().unwrap();
    assert!(!panicking.take().is_empty());
    after.expect(&["write log", "write sst", "read sst"]);
    assert_eq!(all(&disk.open()), "a=1");
}
