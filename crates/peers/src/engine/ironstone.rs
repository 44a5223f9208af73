//! Ironstone.

use super::{Compression, Direction, Engine, Kind, Result, Scan, Session, Setup, Sink, words};
use crate::data::Key;
use ironstone::{
    BlockCache, BottommostPolicy, CacheOptions, CompactRangeOptions, CompressionKind, DataBlockIndexType, Db,
    DbIterator, FilterPolicy, Goal, Options, ReadOptions, WriteBatch, WriteOptions, merge_operators,
    slice_transform::fixed_prefix,
};
use std::path::Path;
use std::sync::OnceLock;

/// Ironstone.
pub const KIND: Kind = Kind {
    name: "ironstone",
    version: || env!("CARGO_PKG_VERSION").to_owned(),
    open,
    settings: &[
        ("linked", "the crate, release profile of the workspace"),
        ("cache", "its block cache"),
        ("memory", "two memtables (radix tree) of half of it"),
        (
            "tables",
            "format 6, blocks of 4 KiB with hash index, full Bloom filters, filters and indexes outside the cache",
        ),
        (
            "other",
            "`bytes_per_sync` 1 MiB (256 KiB until 30 November 2026) and `compaction_readahead_size` 256 KiB (defaults), dynamic level sizes",
        ),
        ("unsynced write", "logged, handed to the operating system"),
        ("synced write", "`sync`: fdatasync of the log, shared by writers that wait"),
        ("read", "`get` of a pinned value; `multi_get`; one iterator per thread, `refresh` before every use"),
        ("settle", "`flush`, `wait_for_compact`"),
    ],
};

/// Of each database, where many share memory.
const OPEN_FILES_OF_SHARERS: i32 = 20;

fn open(path: &Path, setup: &Setup) -> Result<Box<dyn Engine>> {
    let mut options = if setup.shared_bytes > 0 {
        // Made by the first database.
        static SHARED: OnceLock<Options> = OnceLock::new();
        let bytes = setup.shared_bytes as u64;
        SHARED
            .get_or_init(|| {
                let mut options = Options::auto(bytes, setup.background_jobs as i32, Goal::ReadLatency);
                options.db.max_open_files = OPEN_FILES_OF_SHARERS;
                options
            })
            .clone()
    } else {
        let mut options = Options::default();
        options.cf.write_buffer_size = setup.memory_bytes / 2;
        let capacity = setup.cache_bytes;
        options.cf.table.block_cache =
            Some(BlockCache::new(CacheOptions { capacity, ..CacheOptions::default() }));
        options
    };
    let cf = &mut options.cf;
    cf.disable_auto_compactions = !setup.automatic_compaction;
    if !setup.automatic_compaction {
        cf.level0_slowdown_writes_trigger = 1 << 20;
        cf.level0_stop_writes_trigger = 1 << 20;
        cf.soft_pending_compaction_bytes_limit = 0;
        cf.hard_pending_compaction_bytes_limit = 0;
    }
    cf.compression = match setup.compression {
        Compression::None => CompressionKind::None,
        Compression::Lz4 => CompressionKind::Lz4,
    };
    if setup.counters {
        cf.merge_operator = Some(merge_operators::uint64_add());
    }
    if setup.prefix_bytes > 0 {
        cf.prefix_extractor = Some(fixed_prefix(setup.prefix_bytes));
    }
    options.db.open_files_async = setup.open_later;
    if let Some(bytes) = setup.table_bytes {
        cf.target_file_size_base = bytes;
    }
    let table = &mut cf.table;
    table.filter_policy = (setup.bloom_bits > 0).then(|| FilterPolicy::bloom(f64::from(setup.bloom_bits)));
    table.data_block_index_type = DataBlockIndexType::BinarySearchAndHash;
    table.format_version = 7;
    let db = &mut options.db;
    db.create_if_missing = true;
    db.max_background_jobs = setup.background_jobs as i32;
    options.update(&setup.options).map_err(words)?;
    let db = Db::open(&options, path).map_err(words)?;
    let write = WriteOptions { sync: setup.sync, ..WriteOptions::default() };
    Ok(Box::new(Ironstone { db, write, has_prefixes: setup.prefix_bytes > 0 }))
}

struct Ironstone {
    db: Db,
    write: WriteOptions,
    has_prefixes: bool,
}

impl Engine for Ironstone {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(IronstoneSession { engine: self, batch: WriteBatch::new(), iterators: [None, None] }))
    }
    fn settle(&self) -> Result<()> {
        self.db.flush().map_err(words)?;
        self.db.wait_for_compact().map_err(words)
    }
    fn compact(&self) -> Result<()> {
        let options = CompactRangeOptions {
            max_subcompactions: Some(1),
            bottommost_level_compaction: BottommostPolicy::ForceOptimized,
            ..CompactRangeOptions::default()
        };
        let cf = self.db.default_column_family();
        self.db.compact_range(&options, cf, None, None).map_err(words)
    }
    fn checkpoint(&self, path: &Path) -> Result<()> {
        self.db.checkpoint(path).map(drop).map_err(words)
    }
    fn statistics(&self) -> Vec<(String, String)> {
        let shape = self.db.level_shape(self.db.default_column_family());
        let level = |(level, (files, bytes)): (usize, (usize, u64))| {
            (format!("level {level}"), format!("{files} files, {bytes} bytes"))
        };
        shape.into_iter().enumerate().filter(|(_, (files, _))| *files > 0).map(level).collect()
    }
}

struct IronstoneSession<'a> {
    engine: &'a Ironstone,
    batch: WriteBatch,
    /// Of everything, and of one prefix.
    iterators: [Option<DbIterator>; 2],
}

impl Session for IronstoneSession<'_> {
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        let Ironstone { db, write, .. } = self.engine;
        db.put_cf(write, db.default_column_family(), key, value).map_err(words)
    }
    fn put_batch(&mut self, records: &[(Key, &[u8])]) -> Result<()> {
        self.batch.clear();
        records.iter().for_each(|(key, value)| self.batch.put(key, value));
        self.engine.db.write(&self.batch, &self.engine.write).map_err(words)
    }
    fn merge(&mut self, key: &Key, operand: &[u8]) -> Result<()> {
        let Ironstone { db, write, .. } = self.engine;
        db.merge_cf(write, db.default_column_family(), key, operand).map_err(words)
    }
    fn delete(&mut self, key: &Key) -> Result<()> {
        let Ironstone { db, write, .. } = self.engine;
        db.delete_cf(write, db.default_column_family(), key).map_err(words)
    }
    fn get(&mut self, key: &Key, sink: &mut Sink) -> Result<bool> {
        let value = self.engine.db.get(key).map_err(words)?;
        Ok(value.inspect(|value| sink.value(value)).is_some())
    }
    fn multi_get(&mut self, keys: &[Key], sink: &mut Sink) -> Result<usize> {
        let mut found = 0;
        for value in self.engine.db.multi_get(keys) {
            if let Some(value) = value.map_err(words)? {
                sink.value(&value);
                found += 1;
            }
        }
        Ok(found)
    }
    fn scan(&mut self, scan: Scan<'_>, sink: &mut Sink) -> Result<u64> {
        let Ironstone { db, has_prefixes, .. } = self.engine;
        let of_prefix = *has_prefixes && scan.from.is_some();
        let iterator = match &mut self.iterators[usize::from(of_prefix)] {
            Some(iterator) => {
                iterator.refresh().map_err(words)?;
                iterator
            }
            none => {
                let read = ReadOptions {
                    prefix_same_as_start: of_prefix,
                    total_order_seek: *has_prefixes && !of_prefix,
                    ..ReadOptions::default()
                };
                none.insert(db.iter_cf(&read, db.default_column_family()).map_err(words)?)
            }
        };
        let mut valid = match (scan.direction, scan.from) {
            (Direction::Forward, None) => iterator.seek_to_first(),
            (Direction::Forward, Some(key)) => iterator.seek(key),
            (Direction::Reverse, None) => iterator.seek_to_last(),
            (Direction::Reverse, Some(key)) => iterator.seek_for_prev(key),
        }
        .map_err(words)?;
        let mut seen = 0;
        while valid && seen < scan.limit {
            if let (Some(key), Some(value)) = (iterator.key(), iterator.value()) {
                sink.record(key, value);
            }
            seen += 1;
            if seen == scan.limit {
                break;
            }
            valid = match scan.direction {
                Direction::Forward => iterator.next(),
                Direction::Reverse => iterator.prev(),
            }
            .map_err(words)?;
        }
        Ok(seen)
    }
}
