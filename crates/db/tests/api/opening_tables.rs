//! How tables are opened when the database is.

use crate::disk::{DIR, Disk};
use ironstone::vfs::{Access, FileSystem, OpenHints, RandomAccessFile};
use ironstone::{Db, Options, Result};
use ironstone_base::sync::Mutex;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};

/// Notes who opens tables, and for which reads, who sizes them up, and how many were expected.
#[derive(Debug)]
struct Opened {
    inner: Arc<dyn FileSystem>,
    tables: Mutex<Vec<(ThreadId, Access)>>,
    sized_up: Mutex<Vec<ThreadId>>,
    expected: AtomicUsize,
}

fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "sst")
}

impl FileSystem for Opened {
    ironstone::vfs::pass_on! { self.inner: open_sequential create append_to reuse open_directory exists list
    remove rename link create_dir_all remove_dir modified_seconds free_space lock absolute }

    fn open_random(&self, path: &Path, hints: OpenHints) -> Result<Box<dyn RandomAccessFile>> {
        if is_table(path) {
            self.tables.lock().push((thread::current().id(), hints.access));
        }
        self.inner.open_random(path, hints)
    }

    fn size(&self, path: &Path) -> Result<u64> {
        if is_table(path) {
            self.sized_up.lock().push(thread::current().id());
        }
        self.inner.size(path)
    }

    fn expect_files(&self, count: usize) {
        self.expected.store(count, Ordering::Relaxed);
    }
}

const TABLES: usize = 100;

/// A database of so many tables, opened as `change` says, and what its file system noted until then.
fn opening(change: impl FnOnce(&mut Options)) -> (Db, Arc<Opened>) {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.disable_auto_compactions = true;
    let db = disk.open_with(&options);
    for number in 0..TABLES {
        db.put(format!("{number:03}"), "v").unwrap();
        db.flush().unwrap();
    }
    drop(db);
    let files = Arc::new(Opened {
        inner: Arc::clone(&options.db.env.fs),
        tables: Mutex::default(),
        sized_up: Mutex::default(),
        expected: AtomicUsize::new(0),
    });
    options.db.env.fs = Arc::clone(&files) as _;
    change(&mut options);
    (Db::open(&options, DIR).unwrap(), files)
}

/// Who opened the tables.
fn opened(change: impl FnOnce(&mut Options)) -> Vec<(ThreadId, Access)> {
    let (db, files) = opening(change);
    let tables = std::mem::take(&mut *files.tables.lock());
    assert_eq!(tables.len(), TABLES);
    for number in 0..TABLES {
        assert_eq!(db.get(format!("{number:03}")).unwrap().as_deref(), Some(&b"v"[..]));
    }
    assert!(files.tables.lock().is_empty(), "they were open");
    tables
}

#[test]
fn as_many_threads_open_tables_as_is_said() {
    let threads = |count| {
        let tables = opened(|options| options.db.max_file_opening_threads = count);
        tables.into_iter().map(|(thread, _)| thread).collect::<HashSet<_>>()
    };
    for count in [i32::MIN, 0, 1] {
        assert_eq!(threads(count), HashSet::from([thread::current().id()]), "{count}");
    }
    assert!(threads(3).len() <= 3);
}

#[test]
fn tables_are_read_at_random_unless_nobody_says_so() {
    let accesses = |random| {
        let tables = opened(|options| options.db.advise_random_on_open = random);
        tables.into_iter().map(|(_, access)| access).collect::<Vec<_>>()
    };
    assert_eq!(accesses(true), [Access::Random; TABLES]);
    assert_eq!(accesses(false), [Access::Unknown; TABLES]);
}

#[test]
fn the_file_system_hears_how_many_tables_will_be_open() {
    let expected = |bound, later| {
        let (db, files) = opening(|options| {
            (options.db.max_open_files, options.db.open_files_async) = (bound, later);
        });
        drop(db); // Waits for who opens them.
        files.expected.load(Ordering::Relaxed)
    };
    assert_eq!(expected(-1, false), TABLES);
    assert_eq!(expected(-1, true), TABLES);
    assert_eq!(expected(30, false), 30, "no more are open at once");
}

#[test]
fn sizes_are_asked_for_by_as_many_threads() {
    let threads = |count| {
        let (_db, files) = opening(|options| {
            (options.db.max_file_opening_threads, options.db.open_files_async) = (count, true);
        });
        let sized_up = files.sized_up.lock().clone();
        assert_eq!(sized_up.len(), TABLES);
        sized_up.into_iter().collect::<HashSet<_>>()
    };
    assert_eq!(threads(1), HashSet::from([thread::current().id()]));
    assert!(threads(3).len() <= 3);
}

/// With files of the operating system, whose sizes nobody asks for when they are opened.
#[test]
fn tables_of_other_sizes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.db.create_if_missing = true;
    let fs = Arc::clone(&options.db.env.fs);
    let db = Db::open(&options, dir.path()).unwrap();
    db.put("a", "v").unwrap();
    db.flush().unwrap();
    drop(db);
    let name = fs.list(dir.path()).unwrap().into_iter().find(|name| is_table(Path::new(name))).unwrap();
    let table = dir.path().join(name);
    let whole = fs.read_all(&table).unwrap();
    let size = whole.len();
    for (other, later) in
        [(size - 1, false), (size + 1, false), (0, false), (size - 1, true), (size + 1, true)]
    {
        let mut bytes = whole.clone();
        bytes.resize(other, 0);
        fs.write_all_synced(&table, &bytes).unwrap();
        options.db.open_files_async = later;
        let error = Db::open(&options, dir.path()).unwrap_err();
        assert!(error.is_corruption(), "{error}");
        let expected = format!("table has {other} bytes, but the MANIFEST says {size}");
        let text = error.to_string();
        assert!(text.contains(&expected) && text.contains(table.to_str().unwrap()), "{text}");
    }
    fs.write_all_synced(&table, &whole).unwrap();
    assert_eq!(Db::open(&options, dir.path()).unwrap().get("a").unwrap().as_deref(), Some(&b"v"[..]));
}
