//! fjall.

use super::{Compression, Direction, Engine, Kind, Result, Scan, Session, Setup, Sink, words};
use crate::data::Key;
use fjall::config::{
    BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry, HashRatioPolicy,
};
use fjall::{CompressionType, Database, Guard, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::path::Path;
use std::time::Duration;

/// fjall.
pub const KIND: Kind = Kind {
    name: "fjall",
    version: || env!("PEERS_FJALL_VERSION").to_owned(),
    open,
    settings: &[
        ("linked", "the crate, release profile of the workspace"),
        ("cache", "its cache"),
        ("memory", "memtables of half of it"),
        ("tables", "blocks of 4 KiB with hash index (0.75), Bloom filters"),
        ("unsynced write", "journaled, `PersistMode::Buffer`: handed to the operating system"),
        ("synced write", "`PersistMode::SyncData`: fdatasync of the journal, under its lock"),
        ("read", "`get` of a shared slice; a new iterator for every scan; no multi-get"),
        ("settle", "the memtable is rotated and flushed; until no flush or compaction has run for 300 ms"),
    ],
};

fn open(path: &Path, setup: &Setup) -> Result<Box<dyn Engine>> {
    if !setup.automatic_compaction {
        return Err("fjall always compacts by itself".to_owned());
    }
    let db = Database::builder(path)
        .cache_size(setup.cache_bytes as u64)
        .worker_threads(setup.background_jobs)
        .open()
        .map_err(words)?;
    let compression = match setup.compression {
        Compression::None => CompressionType::None,
        Compression::Lz4 => CompressionType::Lz4,
    };
    let filter = match setup.bloom_bits {
        0 => FilterPolicyEntry::None,
        bits => FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(bits as f32)),
    };
    let table = db
        .keyspace("peers", || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(setup.memory_bytes as u64 / 2)
                .data_block_compression_policy(CompressionPolicy::all(compression))
                .data_block_hash_ratio_policy(HashRatioPolicy::all(0.75))
                .filter_policy(FilterPolicy::all(filter))
        })
        .map_err(words)?;
    Ok(Box::new(Fjall { db, table, sync: setup.sync }))
}

struct Fjall {
    db: Database,
    table: Keyspace,
    sync: bool,
}

impl Engine for Fjall {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(FjallSession { engine: self }))
    }
    fn settle(&self) -> Result<()> {
        self.table.rotate_memtable_and_wait().map_err(words)?;
        let done =
            || (self.db.compactions_completed(), self.db.outstanding_flushes(), self.db.active_compactions());
        let (mut before, mut quiet) = (done(), 0);
        while quiet < 3 {
            std::thread::sleep(Duration::from_millis(100));
            let now = done();
            quiet = if now == before && now.1 == 0 && now.2 == 0 { quiet + 1 } else { 0 };
            before = now;
        }
        Ok(())
    }
    fn compact(&self) -> Result<()> {
        self.table.major_compact().map_err(words)
    }
    fn statistics(&self) -> Vec<(String, String)> {
        let tables =
            format!("{}, {} of them in level 0", self.table.table_count(), self.table.l0_table_count());
        vec![("tables".to_owned(), tables)]
    }
}

struct FjallSession<'a> {
    engine: &'a Fjall,
}

impl FjallSession<'_> {
    fn see(guard: Guard, sink: &mut Sink) -> Result<()> {
        let (key, value) = guard.into_inner().map_err(words)?;
        sink.record(&key, &value);
        Ok(())
    }
}

impl Session for FjallSession<'_> {
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        self.engine.table.insert(key, value).map_err(words)?;
        if self.engine.sync { self.engine.db.persist(PersistMode::SyncData).map_err(words) } else { Ok(()) }
    }
    fn put_batch(&mut self, records: &[(Key, &[u8])]) -> Result<()> {
        let mode = if self.engine.sync { PersistMode::SyncData } else { PersistMode::Buffer };
        let mut batch = self.engine.db.batch().durability(Some(mode));
        for (key, value) in records {
            batch.insert(&self.engine.table, &key[..], *value);
        }
        batch.commit().map_err(words)
    }
    fn get(&mut self, key: &Key, sink: &mut Sink) -> Result<bool> {
        let value = self.engine.table.get(key).map_err(words)?;
        Ok(value.inspect(|value| sink.value(value)).is_some())
    }
    fn scan(&mut self, scan: Scan<'_>, sink: &mut Sink) -> Result<u64> {
        let limit = usize::try_from(scan.limit).unwrap_or(usize::MAX);
        let table = &self.engine.table;
        let mut seen = 0;
        let mut see = |guard| {
            seen += 1;
            Self::see(guard, sink)
        };
        match (scan.direction, scan.from) {
            (Direction::Forward, None) => table.iter().take(limit).try_for_each(&mut see)?,
            (Direction::Forward, Some(key)) => table.range(&key[..]..).take(limit).try_for_each(&mut see)?,
            (Direction::Reverse, None) => table.iter().rev().take(limit).try_for_each(&mut see)?,
            (Direction::Reverse, Some(key)) => {
                table.range(..=&key[..]).rev().take(limit).try_for_each(&mut see)?
            }
        }
        Ok(seen)
    }
}
