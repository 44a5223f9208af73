//! LMDB through the crate `heed`, which compiles it.
//!
//! # Safety argument
//! 1. `heed` asks that an environment is opened once in a process, with the same options, and that nothing else changes
//!    its files: a run opens it in a directory of its own, and drops it before it opens it again.
//! 2. `NO_SYNC` gives up what survives a power failure; no run goes on after one.

use super::{Compression, Direction, Engine, Kind, Result, Scan, Session, Setup, Sink, words};
use crate::data::Key;
use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, WithTls};
use std::ops::Bound;
use std::path::Path;

/// LMDB.
pub const KIND: Kind = Kind {
    name: "lmdb",
    version: || {
        let version = heed::lmdb_version();
        format!("{}.{}.{}", version.major, version.minor, version.patch)
    },
    open,
    settings: &[
        ("linked", "the crate `heed`, which compiles LMDB; release profile"),
        ("cache", "none of its own: the file is mapped"),
        ("memory", "none of its own"),
        (
            "tables",
            "one B+tree with pages of 4 KiB; no filters, no compression (asked for or not), no checksums",
        ),
        ("other", "no readahead where the data is larger than the cache of the others"),
        (
            "unsynced write",
            "`NO_SYNC` and `WRITE_MAP`, the nearest to it: there is no log; a commit changes the mapped file, which survives \
             the process, but after a power failure the database may be broken",
        ),
        (
            "synced write",
            "neither flag: fdatasync of the pages, then the root is written through; writers wait for each other",
        ),
        ("read", "a read transaction for each operation, values where they lie; no multi-get"),
        ("settle", "`force_sync`"),
    ],
};

fn open(path: &Path, setup: &Setup) -> Result<Box<dyn Engine>> {
    if !setup.automatic_compaction {
        return Err("a B+tree has no compactions to leave out".to_owned());
    }
    let _ = Compression::Lz4; // LMDB has none.
    let mut options = EnvOpenOptions::new();
    // Pages are half full at worst, and old ones stay until no reader needs them.
    options.map_size(usize::try_from(setup.most_bytes * 4).map_err(words)?).max_readers(200);
    let mut flags = EnvFlags::empty();
    if !setup.sync {
        flags |= EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP;
    }
    if setup.data_bytes > setup.cache_bytes as u64 {
        flags |= EnvFlags::NO_READ_AHEAD;
    }
    // SAFETY: (1), (2).
    let env = unsafe { options.flags(flags).open(path) }.map_err(words)?;
    let mut txn = env.write_txn().map_err(words)?;
    let table = env.create_database(&mut txn, None).map_err(words)?;
    txn.commit().map_err(words)?;
    Ok(Box::new(Lmdb { env: Some(env), table }))
}

struct Lmdb {
    /// Taken when it is closed.
    env: Option<Env<WithTls>>,
    table: Database<Bytes, Bytes>,
}

impl Lmdb {
    fn env(&self) -> &Env<WithTls> {
        self.env.as_ref().expect("only dropping takes it")
    }
}

impl Engine for Lmdb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(LmdbSession { env: self.env(), table: self.table }))
    }
    fn settle(&self) -> Result<()> {
        self.env().force_sync().map_err(words)
    }
    fn compact(&self) -> Result<()> {
        Err("the engine has no compaction to start".to_owned())
    }
    fn statistics(&self) -> Vec<(String, String)> {
        let stat = self.env().stat();
        vec![
            ("depth".to_owned(), stat.depth.to_string()),
            ("leaf pages".to_owned(), stat.leaf_pages.to_string()),
        ]
    }
}

impl Drop for Lmdb {
    fn drop(&mut self) {
        if let Some(env) = self.env.take() {
            env.prepare_for_closing().wait();
        }
    }
}

struct LmdbSession<'a> {
    env: &'a Env<WithTls>,
    table: Database<Bytes, Bytes>,
}

impl Session for LmdbSession<'_> {
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        let mut txn = self.env.write_txn().map_err(words)?;
        self.table.put(&mut txn, key, value).map_err(words)?;
        txn.commit().map_err(words)
    }
    fn put_batch(&mut self, records: &[(Key, &[u8])]) -> Result<()> {
        let mut txn = self.env.write_txn().map_err(words)?;
        for (key, value) in records {
            self.table.put(&mut txn, key, value).map_err(words)?;
        }
        txn.commit().map_err(words)
    }
    fn get(&mut self, key: &Key, sink: &mut Sink) -> Result<bool> {
        let txn = self.env.read_txn().map_err(words)?;
        let value = self.table.get(&txn, key).map_err(words)?;
        Ok(value.inspect(|value| sink.value(value)).is_some())
    }
    fn multi_get(&mut self, keys: &[Key], sink: &mut Sink) -> Result<usize> {
        let txn = self.env.read_txn().map_err(words)?;
        let mut found = 0;
        for key in keys {
            if let Some(value) = self.table.get(&txn, key).map_err(words)? {
                sink.value(value);
                found += 1;
            }
        }
        Ok(found)
    }
    fn scan(&mut self, scan: Scan<'_>, sink: &mut Sink) -> Result<u64> {
        let txn = self.env.read_txn().map_err(words)?;
        let limit = usize::try_from(scan.limit).unwrap_or(usize::MAX);
        let start = scan.from.map_or(Bound::Unbounded, |key| Bound::Included(&key[..]));
        let mut seen = 0;
        match scan.direction {
            Direction::Forward => {
                for record in self.table.range(&txn, &(start, Bound::Unbounded)).map_err(words)?.take(limit) {
                    let (key, value) = record.map_err(words)?;
                    sink.record(key, value);
                    seen += 1;
                }
            }
            Direction::Reverse => {
                for record in
                    self.table.rev_range(&txn, &(Bound::Unbounded, start)).map_err(words)?.take(limit)
                {
                    let (key, value) = record.map_err(words)?;
                    sink.record(key, value);
                    seen += 1;
                }
            }
        }
        Ok(seen)
    }
}
