//! Small databases in memory, and reading all that they have.

use ironstone::options::DbOptions;
use ironstone::{
    BlockCache, CacheOptions, ChecksumKind, ColumnFamilyDescriptor, ColumnFamilyOptions, Db, FlushOptions,
    ReadOptions, WriteBatch, WriteOptions,
};
use ironstone_base::sync::{Arc, OnceLock};
use ironstone_vfs::mem::MemFileSystem;
use ironstone_vfs::{Env, FileSystem, SystemClock};
use std::collections::BTreeMap;
use std::path::PathBuf;

pub(crate) const DIR: &str = "/db";
pub(crate) const FAMILIES: [&str; 2] = ["default", "second"];

/// The entries of one column family, by walking it.
pub(crate) type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// Lets a database take little memory and few threads.
pub(crate) fn make_small(db: &mut DbOptions, cf: &mut ColumnFamilyOptions) {
    db.max_background_jobs = 2;
    cf.write_buffer_size = 64 << 10;
    cf.table.block_cache =
        Some(BlockCache::new(CacheOptions { capacity: 1 << 20, ..CacheOptions::default() }));
}

pub(crate) fn env(fs: MemFileSystem) -> Env {
    Env { fs: Arc::new(fs), clock: Arc::new(SystemClock::new()) }
}

/// What kind of directory it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    /// Tables carry no checksums: bytes of their blocks may be anything.
    pub unchecked_tables: bool,
    /// WALs are made to be reused.
    pub recycled: bool,
}

/// Options that open a directory of `shape`.
pub(crate) fn options(shape: Shape, fs: MemFileSystem) -> (DbOptions, Vec<ColumnFamilyDescriptor>) {
    let mut db = DbOptions {
        env: env(fs),
        create_if_missing: true,
        create_missing_column_families: true,
        recycle_log_file_num: if shape.recycled { 2 } else { 0 },
        ..DbOptions::default()
    };
    let mut cf = ColumnFamilyOptions { disable_auto_compactions: true, ..ColumnFamilyOptions::default() };
    make_small(&mut db, &mut cf);
    cf.table.block_size = 300;
    if shape.unchecked_tables {
        cf.table.checksum = ChecksumKind::None;
    }
    (db, FAMILIES.map(|name| ColumnFamilyDescriptor::new(name, cf.clone())).to_vec())
}

/// A small database of `shape`: tables of both column families, and writes that only the WAL has.
pub(crate) fn sample(shape: Shape) -> MemFileSystem {
    static SAMPLES: [OnceLock<MemFileSystem>; 4] = [const { OnceLock::new() }; 4];
    let at = usize::from(shape.unchecked_tables) + 2 * usize::from(shape.recycled);
    SAMPLES[at].get_or_init(|| make(shape)).fork()
}

fn make(shape: Shape) -> MemFileSystem {
    let fs = MemFileSystem::volatile();
    let (db_options, families) = options(shape, fs.clone());
    let db = Db::open_column_families(&db_options, DIR, families).expect("an empty directory in memory");
    for number in 0..60u32 {
        if number == 25 || number == 40 {
            let both: Vec<_> = FAMILIES.iter().filter_map(|name| db.column_family(name)).collect();
            // The second time the WAL stays needed by the other one.
            let which = if number == 25 { &both[..] } else { &both[..1] };
            let flushed = db.flush_cfs(&FlushOptions::default(), &which.iter().collect::<Vec<_>>());
            flushed.expect("memory does not fail");
        }
        let mut batch = WriteBatch::new();
        for name in FAMILIES {
            let cf = db.column_family(name).expect("it was opened");
            let key = format!("key{:03}", number * 17 % 41);
            batch.put_cf(&cf, &key, format!("{name} {number} {}", "v".repeat(number as usize % 20)));
            if number % 9 == 8 {
                batch.delete_cf(&cf, format!("key{:03}", (number - 4) * 17 % 41));
            }
        }
        db.write(&batch, &WriteOptions::default()).expect("memory does not fail");
    }
    // As a process that was killed leaves it.
    let left = fs.fork();
    drop(db);
    left
}

/// The files of a directory that mean something, in order of their names.
pub(crate) fn files(fs: &MemFileSystem) -> Vec<PathBuf> {
    let is_of_use = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name != "LOCK" && !name.starts_with("LOG")
    };
    fs.all_files().into_iter().filter(is_of_use).collect()
}

/// Every entry of `cf`, or the error that the walk met.
pub(crate) fn scan(db: &Db, cf: &ironstone::ColumnFamily) -> ironstone::Result<Entries> {
    walk(db, cf, true)
}

/// The same of tables whose bytes nothing vouches for: unless `in_order`, keys may come in any order.
pub(crate) fn walk(db: &Db, cf: &ironstone::ColumnFamily, in_order: bool) -> ironstone::Result<Entries> {
    let mut entries = Entries::new();
    let mut iter = db.iter_cf(&ReadOptions::default(), cf)?;
    let mut more = iter.seek_to_first()?;
    while more {
        let (key, value) = iter.key().zip(iter.value()).expect("it stands on an entry");
        if let Some((last, _)) = entries.last_key_value() {
            assert!(last.as_slice() < key || !in_order, "an iterator goes back: {last:?}, {key:?}");
        }
        entries.insert(key.to_vec(), value.to_vec());
        more = iter.next()?;
    }
    Ok(entries)
}

/// How many bytes all files have.
pub(crate) fn total_len(fs: &MemFileSystem) -> u64 {
    fs.all_files().iter().filter_map(|path| fs.size(path).ok()).sum()
}
