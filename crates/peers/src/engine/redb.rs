//! redb.

use super::{Direction, Engine, Kind, Result, Scan, Session, Setup, Sink, words};
use crate::data::Key;
use redb::{Builder, Database, Durability, ReadOnlyTable, ReadableDatabase as _, TableDefinition};
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("peers");

/// Unsynced, one of so many commits is durable all the same: until then redb frees no page.
const DURABLE_EVERY: u64 = 10_000;

/// redb.
pub const KIND: Kind = Kind {
    name: "redb",
    version: || env!("PEERS_REDB_VERSION").to_owned(),
    open,
    settings: &[
        ("linked", "the crate, release profile of the workspace"),
        ("cache", "cache and memory together are its cache"),
        ("tables", "one B-tree table with pages of 4 KiB; no filters, no compression (asked for or not)"),
        (
            "unsynced write",
            "`Durability::None`, the nearest to it: there is no log; one commit in 10,000 is durable, and a process that ends \
             before loses what came after the last of those",
        ),
        ("synced write", "`Durability::Immediate`: fdatasync; writers wait for each other"),
        ("read", "a read transaction for each operation, values where they lie in the cache; no multi-get"),
        ("settle", "a durable commit"),
    ],
};

fn open(path: &Path, setup: &Setup) -> Result<Box<dyn Engine>> {
    if !setup.automatic_compaction {
        return Err("a B-tree has no compactions to leave out".to_owned());
    }
    let mut builder = Builder::new();
    builder.set_cache_size(setup.cache_bytes + setup.memory_bytes);
    let db = builder.create(path.join("peers.redb")).map_err(words)?;
    let engine = Redb { db, sync: setup.sync, commits: AtomicU64::new(0) };
    engine.write(&[], true)?;
    Ok(Box::new(engine))
}

struct Redb {
    db: Database,
    sync: bool,
    commits: AtomicU64,
}

impl Redb {
    fn write(&self, records: &[(&[u8], &[u8])], durable: bool) -> Result<()> {
        let mut txn = self.db.begin_write().map_err(words)?;
        if !durable {
            txn.set_durability(Durability::None).map_err(words)?;
        }
        {
            let mut table = txn.open_table(TABLE).map_err(words)?;
            for (key, value) in records {
                table.insert(key, value).map_err(words)?;
            }
        }
        txn.commit().map_err(words)
    }
    fn write_as_asked(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        // Counts, and orders nothing.
        let count = self.commits.fetch_add(1, Ordering::Relaxed);
        self.write(records, self.sync || count % DURABLE_EVERY == DURABLE_EVERY - 1)
    }
    fn table(&self) -> Result<ReadOnlyTable<&'static [u8], &'static [u8]>> {
        self.db.begin_read().map_err(words)?.open_table(TABLE).map_err(words)
    }
}

impl Engine for Redb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(RedbSession { engine: self }))
    }
    fn settle(&self) -> Result<()> {
        self.write(&[], true)
    }
    fn compact(&self) -> Result<()> {
        Err("the engine has no compaction to start".to_owned())
    }
    fn statistics(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}

struct RedbSession<'a> {
    engine: &'a Redb,
}

impl Session for RedbSession<'_> {
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        self.engine.write_as_asked(&[(key, value)])
    }
    fn put_batch(&mut self, records: &[(Key, &[u8])]) -> Result<()> {
        let records: Vec<(&[u8], &[u8])> = records.iter().map(|(key, value)| (&key[..], *value)).collect();
        self.engine.write_as_asked(&records)
    }
    fn get(&mut self, key: &Key, sink: &mut Sink) -> Result<bool> {
        let value = self.engine.table()?.get(&key[..]).map_err(words)?;
        Ok(value.inspect(|value| sink.value(value.value())).is_some())
    }
    fn multi_get(&mut self, keys: &[Key], sink: &mut Sink) -> Result<usize> {
        let table = self.engine.table()?;
        let mut found = 0;
        for key in keys {
            if let Some(value) = table.get(&key[..]).map_err(words)? {
                sink.value(value.value());
                found += 1;
            }
        }
        Ok(found)
    }
    fn scan(&mut self, scan: Scan<'_>, sink: &mut Sink) -> Result<u64> {
        let table = self.engine.table()?;
        let start = scan.from.map_or(Bound::Unbounded, |key| Bound::Included(&key[..]));
        let bounds = match scan.direction {
            Direction::Forward => (start, Bound::Unbounded),
            Direction::Reverse => (Bound::Unbounded, start),
        };
        let mut range = table.range::<&[u8]>(bounds).map_err(words)?;
        let mut seen = 0;
        while seen < scan.limit {
            let next = if scan.direction == Direction::Forward { range.next() } else { range.next_back() };
            let Some(record) = next else { break };
            let (key, value) = record.map_err(words)?;
            sink.record(key.value(), value.value());
            seen += 1;
        }
        Ok(seen)
    }
}
