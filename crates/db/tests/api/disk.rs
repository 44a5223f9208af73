//! A simulated disk, databases on it, and short forms of what the tests ask of them.

use ironstone::vfs::fault::FaultFileSystem;
use ironstone::vfs::mem::{CrashPolicy, MemFileSystem};
use ironstone::vfs::{Clock, Env, FileSystem, ManualClock, SystemClock};
use ironstone::{
    BottommostPolicy, ColumnFamily, ColumnFamilyDescriptor, CompactRangeOptions, Db, DbIterator, Error,
    EventListener, Options, ReadOptions, Result, TableFileDeletionInfo, ThreadPool, WriteOptions,
};
use ironstone_base::sync::{Condvar, Mutex};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where the database is on every disk.
pub const DIR: &str = "/db";

/// A disk that can lose its power and fail.
pub struct Disk {
    pub fs: MemFileSystem,
    pub faults: FaultFileSystem,
    clock: Arc<dyn Clock>,
    /// Of its own: other tests wait in their jobs.
    threads: Arc<ThreadPool>,
}

impl Disk {
    pub fn new() -> Self {
        Self::holding(MemFileSystem::new(), Arc::new(SystemClock::new()))
    }
    /// A disk whose time stands still unless it is moved.
    pub fn with_clock(clock: &Arc<ManualClock>) -> Self {
        let clock: Arc<dyn Clock> = clock.clone();
        Self::holding(MemFileSystem::with_clock(clock.clone()), clock)
    }
    /// A healthy disk with the files of `fs`.
    pub fn of(fs: MemFileSystem) -> Self {
        Self::holding(fs, Arc::new(SystemClock::new()))
    }
    fn holding(fs: MemFileSystem, clock: Arc<dyn Clock>) -> Self {
        let faults = FaultFileSystem::new(Arc::new(fs.clone()));
        faults.disarm();
        Self { fs, faults, clock, threads: ThreadPool::new() }
    }

    /// What the disk holds after a crash now.
    pub fn crash(&self, policy: CrashPolicy) -> Self {
        Self::holding(self.fs.crash(policy, 0), Arc::clone(&self.clock))
    }
    /// What the disk holds after the process was killed now.
    pub fn kill(&self) -> Self {
        self.crash(CrashPolicy::KeepAll)
    }
    /// What the disk holds after the power was lost now: only what was synced.
    pub fn lose_power(&self) -> Self {
        self.crash(CrashPolicy::DropUnsynced)
    }

    pub fn env(&self) -> Env {
        Env { fs: Arc::new(self.faults.clone()), clock: Arc::clone(&self.clock) }
    }
    /// Defaults, except that the database is created if it is missing, and only told compactions run.
    pub fn options(&self) -> Options {
        let mut options = Options::default();
        options.db.env = self.env();
        options.db.thread_pool = Arc::clone(&self.threads);
        options.db.create_if_missing = true;
        options.cf.disable_auto_compactions = true;
        options
    }
    pub fn open(&self) -> Db {
        self.open_with(&self.options())
    }
    pub fn open_with(&self, options: &Options) -> Db {
        self.try_open(options).unwrap()
    }
    pub fn try_open(&self, options: &Options) -> Result<Db> {
        let mut options = options.clone();
        options.db.env = self.env();
        Db::open(&options, DIR)
    }
    /// Opens with `default` and the column families `names`, all with the same options.
    pub fn open_families(&self, options: &Options, names: &[&str]) -> Result<Db> {
        let mut db_options = options.db.clone();
        db_options.env = self.env();
        Db::open_column_families(&db_options, DIR, descriptors(options, names))
    }
    pub fn open_read_only(&self, options: &Options, names: &[&str]) -> Result<Db> {
        let mut db_options = options.db.clone();
        db_options.env = self.env();
        Db::open_read_only(&db_options, DIR, descriptors(options, names))
    }

    /// The paths of the files whose names end in `suffix`.
    pub fn files(&self, suffix: &str) -> Vec<PathBuf> {
        let files = self.fs.all_files().into_iter();
        files.filter(|path| path.to_string_lossy().ends_with(suffix)).collect()
    }
    /// The tables in the directory of the database, in order.
    pub fn tables(&self) -> Vec<PathBuf> {
        let mut tables = self.files(".sst");
        tables.retain(|path| path.parent() == Some(Path::new(DIR)));
        tables.sort();
        tables
    }
    /// Waits until there are only those tables that `db` is made of, wherever they are.
    pub fn wait_until_purged(&self, db: &Db) {
        self.wait_until("replaced tables are gone", || self.files(".sst").len() == db.live_files().len());
    }
    /// The newest file of the database whose name begins with `prefix`.
    pub fn newest_in_db(&self, prefix: &str) -> PathBuf {
        let files = self.fs.all_files().into_iter();
        let begins = |path: &PathBuf| path.starts_with(DIR) && name_of(path).starts_with(prefix);
        files.filter(begins).max().expect("there is one")
    }
    /// The newest file whose name ends in `suffix`.
    pub fn newest(&self, suffix: &str) -> PathBuf {
        let files = self.files(suffix).into_iter();
        files.max_by_key(|path| path.file_name().map(ToOwned::to_owned)).expect("there is one")
    }
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.fs.exists(path.as_ref()).unwrap()
    }
    /// Lets time pass, on a disk whose time passes.
    pub fn clock_sleep(&self, time: Duration) {
        self.clock.sleep(time);
    }
    /// Waits until `done`, which the background brings about.
    pub fn wait_until(&self, what: &str, done: impl Fn() -> bool) {
        let clock = SystemClock::new();
        while !done() {
            assert!(clock.monotonic_nanos() < 20_000_000_000, "still not: {what}");
            clock.sleep(Duration::from_millis(1));
        }
    }
}

/// A listener that lets so many tables be removed, and counts them. Closing opens it for all.
#[derive(Default)]
pub struct RemovalGate(Mutex<RemovedTables>, Condvar);

#[derive(Default)]
struct RemovedTables {
    removed: usize,
    allowed: usize,
}

impl RemovalGate {
    /// After so many, who removes the next one waits.
    pub fn open_for(&self, tables: usize) {
        self.0.lock().allowed = tables;
        self.1.notify_all();
    }
    /// How many have been removed; who removed the last may be waiting.
    pub fn removed(&self) -> usize {
        self.0.lock().removed
    }
}

impl EventListener for RemovalGate {
    fn on_table_file_deleted(&self, _file: &TableFileDeletionInfo) {
        let mut state = self.0.lock();
        state.removed += 1;
        while state.removed > state.allowed {
            self.1.wait(&mut state);
        }
    }
    fn on_db_shutdown_begin(&self) {
        self.open_for(usize::MAX);
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn descriptors(options: &Options, names: &[&str]) -> Vec<ColumnFamilyDescriptor> {
    let all = ["default"].iter().chain(names);
    all.map(|name| ColumnFamilyDescriptor::new(*name, options.cf.clone())).collect()
}

/// A disk with an open database.
pub fn fresh() -> (Disk, Db) {
    let disk = Disk::new();
    let db = disk.open();
    (disk, db)
}

/// The value of `key` as text; `-` if there is none.
pub fn get(db: &Db, key: &str) -> String {
    text(db.get(key).unwrap())
}
pub fn get_with(db: &Db, options: &ReadOptions, cf: &ColumnFamily, key: &str) -> String {
    text(db.get_cf(options, cf, key).unwrap())
}
pub fn get_in(db: &Db, cf: &ColumnFamily, key: &str) -> String {
    get_with(db, &ReadOptions::default(), cf, key)
}
fn text(value: Option<ironstone::PinnedValue>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| String::from_utf8_lossy(&value).into_owned())
}

pub fn put_synced(db: &Db, key: &str, value: &str) {
    db.put_cf(&WriteOptions::synced(), db.default_column_family(), key, value).unwrap();
}
pub fn put_unlogged(db: &Db, key: &str, value: &str) -> Result<()> {
    let unlogged = WriteOptions { disable_wal: true, ..WriteOptions::default() };
    db.put_cf(&unlogged, db.default_column_family(), key, value)
}

/// Everything from the first key on, as `key=value` with blanks between.
pub fn forward(mut iter: DbIterator) -> String {
    let mut all = Vec::new();
    let mut more = iter.seek_to_first().unwrap();
    while more {
        all.push(here(&iter));
        more = iter.next().unwrap();
    }
    all.join(" ")
}
/// The same from the last key back.
pub fn backward(mut iter: DbIterator) -> String {
    let mut all = Vec::new();
    let mut more = iter.seek_to_last().unwrap();
    while more {
        all.push(here(&iter));
        more = iter.prev().unwrap();
    }
    all.join(" ")
}
/// What the iterator stands on; `-` if nothing.
pub fn here(iter: &DbIterator) -> String {
    assert_eq!(iter.valid(), iter.key().is_some());
    let entry = iter.key().zip(iter.value());
    entry.map_or_else(
        || "-".to_owned(),
        |(key, value)| format!("{}={}", key.escape_ascii(), value.escape_ascii()),
    )
}
pub fn all(db: &Db) -> String {
    forward(db.iter().unwrap())
}

/// The same of another column family than `default`.
pub fn all_of(db: &Db, cf: &ColumnFamily) -> String {
    forward(db.iter_cf(&ReadOptions::default(), cf).unwrap())
}

/// How many tables each level has, up to the last that has some.
pub fn shape(db: &Db) -> Vec<usize> {
    let mut levels: Vec<usize> =
        db.level_shape(db.default_column_family()).iter().map(|level| level.0).collect();
    while levels.last() == Some(&0) {
        levels.pop();
    }
    levels
}

/// Rewrites all tables of `default`, the last level included.
pub fn rewrite_all(db: &Db) {
    let options = CompactRangeOptions {
        bottommost_level_compaction: BottommostPolicy::Force,
        ..CompactRangeOptions::default()
    };
    db.compact_range(&options, db.default_column_family(), None, None).unwrap();
}

/// How many entries the tables of `default` hold, tombstones and old versions included.
pub fn table_entries(db: &Db) -> u64 {
    let text = db.property("rocksdb.aggregated-table-properties").unwrap();
    let at = text.find("# entries=").expect("the property names it") + "# entries=".len();
    let digits: String = text[at..].chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// Asserts that `result` is an error of that kind which says `part`.
#[track_caller]
pub fn refused<T>(result: Result<T>, code: ironstone::Code, part: &str) -> Error {
    let error = result.err().expect("it should be refused");
    assert_eq!(error.code(), code, "{error}");
    assert!(error.to_string().contains(part), "{error:?} does not say {part:?}");
    error
}
