//! Remotes and databases for tests.
#![allow(dead_code)] // Each test uses some of it.

use ironstone::{CompactRangeOptions, Db, DbOptions, Options};
use ironstone_remote::opendal::{Operator, services};
use ironstone_remote::{RemoteFileSystem, RemoteOptions};
use ironstone_vfs::os::OsFileSystem;
use ironstone_vfs::{Env, SystemClock};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A remote in memory, gone with its last clone.
pub fn memory() -> Operator {
    Operator::new(services::Memory::default()).unwrap()
}

/// A remote that is a directory, made if it is missing.
pub fn directory(path: &Path) -> Operator {
    let path = path.to_str().unwrap();
    Operator::new(services::Fs::default().root(path).atomic_write_dir(&format!("{path}-unfinished"))).unwrap()
}

/// Small blocks and a small cache, so that a few tables are enough to fill them; short waits.
pub fn small(dir: &Path) -> RemoteOptions {
    let mut options = RemoteOptions::new(dir.join("data"), dir.join("cache"));
    options.prefix = "tests/tables".to_owned();
    options.block_bytes = 4096;
    options.cache_bytes = 256 << 10;
    options.readahead_bytes = 16 << 10;
    options.part_bytes = 64 << 10;
    options.retries = 2;
    options.min_retry_delay = Duration::from_millis(1);
    options.max_retry_delay = Duration::from_millis(5);
    options
}

pub fn open(operator: Operator, options: RemoteOptions) -> RemoteFileSystem {
    RemoteFileSystem::new(Arc::new(OsFileSystem::new()), operator, options).unwrap()
}

/// Options of a database with small memtables and tables, so that a few thousand keys make levels.
pub fn small_database(fs: &RemoteFileSystem) -> Options {
    let env = Env { fs: Arc::new(fs.clone()), clock: Arc::new(SystemClock::new()) };
    let mut options = Options {
        db: DbOptions { env, create_if_missing: true, ..DbOptions::default() },
        ..Options::default()
    };
    options.cf.write_buffer_size = 64 << 10;
    options.cf.target_file_size_base = 64 << 10;
    options.cf.max_bytes_for_level_base = 256 << 10;
    options
}

/// What a database must have.
pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

pub fn compact(db: &Db) -> ironstone::Result<()> {
    db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None)
}

pub fn compare(db: &Db, model: &Model) {
    let mut iterator = db.iter().unwrap();
    iterator.seek_to_first().unwrap();
    for (key, value) in model {
        assert_eq!((iterator.key(), iterator.value()), (Some(key.as_slice()), Some(value.as_slice())));
        iterator.next().unwrap();
    }
    assert_eq!(iterator.key(), None, "the database has no more than the model");
    iterator.status().unwrap();
}
