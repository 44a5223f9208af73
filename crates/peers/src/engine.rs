//! What every engine is asked to do, and which engines there are.

use crate::data::Key;
use std::fmt::Display;
use std::path::Path;

mod ironstone;

#[cfg(feature = "berkeleydb")]
mod berkeleydb;
#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "leveldb")]
mod leveldb;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "shims")]
mod shim;
#[cfg(feature = "wiredtiger")]
mod wiredtiger;

/// What failed, in words.
pub type Result<T> = std::result::Result<T, String>;

/// The words of any error.
pub fn words(error: impl Display) -> String {
    error.to_string()
}

/// What the engines store data blocks or pages as.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Compression {
    /// As they are.
    None,
    /// LZ4 where the engine has it.
    Lz4,
}

/// What each engine is opened with, in no engine's words.
#[derive(Clone, Debug)]
#[allow(dead_code)] // Each engine reads what it has a use for; Ironstone alone needs less.
pub struct Setup {
    /// Bytes of the cache of data, where the engine has one of its own.
    pub cache_bytes: usize,
    /// Bytes of memory for what is not yet in the data files, where the engine has a bound.
    pub memory_bytes: usize,
    /// Bytes that all databases of the process share, cache and memtables together, instead of the two before; 0: each has
    /// its own.
    pub shared_bytes: usize,
    /// How data is stored.
    pub compression: Compression,
    /// Whether a write returns only when it would survive a power failure.
    pub sync: bool,
    /// Bits per key of Bloom filters; 0: none.
    pub bloom_bits: u32,
    /// Background threads.
    pub background_jobs: usize,
    /// Whether compactions start by themselves.
    pub automatic_compaction: bool,
    /// The size of a table file; `None`: what the engine thinks best.
    pub table_bytes: Option<u64>,
    /// Values are counters of 8 bytes, little endian, that merges add to.
    pub counters: bool,
    /// Tables are opened in the background, after the database.
    pub open_later: bool,
    /// More options in RocksDB's words (`a=b;c={d=e}`), where the engine knows those.
    pub options: String,
    /// Scans from a key end with its first so many bytes, and filters know those; 0: keys have no prefixes.
    pub prefix_bytes: usize,
    /// Bytes of keys and values of the records, once each.
    pub data_bytes: u64,
    /// At most so many bytes of keys and values come in: for engines that map their files.
    pub most_bytes: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            cache_bytes: 1 << 30,
            memory_bytes: 128 << 20,
            shared_bytes: 0,
            compression: Compression::None,
            sync: false,
            bloom_bits: 10,
            background_jobs: 2,
            automatic_compaction: true,
            table_bytes: None,
            counters: false,
            open_later: false,
            options: String::new(),
            prefix_bytes: 0,
            data_bytes: 0,
            most_bytes: 8 << 30,
        }
    }
}

/// An open database. Dropping it closes it.
pub trait Engine: Sync {
    /// What one thread works with.
    fn session(&self) -> Result<Box<dyn Session + '_>>;
    /// Brings everything into its final place: memory to files, compactions or checkpoints to their end.
    fn settle(&self) -> Result<()>;
    /// Compacts everything once, in the calling thread or in one other.
    fn compact(&self) -> Result<()>;
    /// Makes a copy of the database in a new directory, of links where it can.
    fn checkpoint(&self, _path: &Path) -> Result<()> {
        Err("this engine's checkpoints are not measured".to_owned())
    }
    /// What the engine says about itself.
    fn statistics(&self) -> Vec<(String, String)>;
}

/// Which way a scan goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From small keys to large.
    Forward,
    /// From large keys to small.
    Reverse,
}

/// A part of the database in order.
#[derive(Clone, Copy, Debug)]
pub struct Scan<'a> {
    /// Where it begins, this key included; `None`: at the end that the direction leads away from.
    pub from: Option<&'a Key>,
    /// Which way it goes.
    pub direction: Direction,
    /// At most so many records.
    pub limit: u64,
}

/// One thread's access. Every operation sees all that was written before it began.
pub trait Session {
    /// Writes one record.
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()>;
    /// Writes records, all or none of them.
    fn put_batch(&mut self, records: &[(Key, &[u8])]) -> Result<()>;
    /// Adds a number, 8 bytes little endian, to the counter at `key`, which begins as 0, without reading it.
    fn merge(&mut self, _key: &Key, _operand: &[u8]) -> Result<()> {
        Err("the engine has no merge operators".to_owned())
    }
    /// Deletes a record.
    fn delete(&mut self, _key: &Key) -> Result<()> {
        Err("this engine's deletes are not measured".to_owned())
    }
    /// Shows the value of `key` to `sink`. Whether there is one.
    fn get(&mut self, key: &Key, sink: &mut Sink) -> Result<bool>;
    /// Shows the values of those of `keys` that there are, as of one moment where the engine can. How many there are.
    fn multi_get(&mut self, keys: &[Key], sink: &mut Sink) -> Result<usize> {
        let mut found = 0;
        for key in keys {
            found += usize::from(self.get(key, sink)?);
        }
        Ok(found)
    }
    /// Shows records in order. How many.
    fn scan(&mut self, scan: Scan<'_>, sink: &mut Sink) -> Result<u64>;
}

/// Where values that were read go. It looks at both ends of each, so that whatever the engine has to do for them is done.
#[derive(Debug, Default)]
pub struct Sink {
    /// Bytes seen.
    pub bytes: u64,
    /// Depends on what was seen.
    pub mix: u64,
    /// Where copies go, in tests.
    pub copies: Option<Vec<(Vec<u8>, Vec<u8>)>>,
}

impl Sink {
    /// Sees a value.
    #[inline]
    pub fn value(&mut self, value: &[u8]) {
        self.record(&[], value);
    }
    /// Sees a record.
    #[inline]
    pub fn record(&mut self, key: &[u8], value: &[u8]) {
        self.bytes += (key.len() + value.len()) as u64;
        if let [first, .., last] = value {
            self.mix = self.mix.wrapping_add(u64::from(*first) << 8 | u64::from(*last));
        }
        if let Some(last) = key.last() {
            self.mix = self.mix.wrapping_add(u64::from(*last));
        }
        if let Some(copies) = &mut self.copies {
            copies.push((key.to_vec(), value.to_vec()));
        }
    }
}

/// Opens a database.
pub type Open = fn(&Path, &Setup) -> Result<Box<dyn Engine>>;

/// An engine that is compiled in.
pub struct Kind {
    /// What it is called here.
    pub name: &'static str,
    /// Its version, with that of what it is linked with.
    pub version: fn() -> String,
    /// Opens a database, and creates it if it is not there.
    pub open: Open,
    /// How it is set up, as rows of the table in the docs: what, how.
    pub settings: &'static [(&'static str, &'static str)],
}

/// The engines that are compiled in, Ironstone first.
pub const KINDS: &[Kind] = &[
    ironstone::KIND,
    #[cfg(feature = "rocksdb")]
    rocksdb::KIND,
    #[cfg(feature = "lmdb")]
    lmdb::KIND,
    #[cfg(feature = "leveldb")]
    leveldb::KIND,
    #[cfg(feature = "redb")]
    redb::KIND,
    #[cfg(feature = "fjall")]
    fjall::KIND,
    #[cfg(feature = "wiredtiger")]
    wiredtiger::KIND,
    #[cfg(feature = "berkeleydb")]
    berkeleydb::KIND,
];

/// The engine of that name.
pub fn kind(name: &str) -> Result<&'static Kind> {
    let known = || KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ");
    KINDS
        .iter()
        .find(|kind| kind.name == name)
        .ok_or_else(|| format!("{name}: not compiled in; there are {}", known()))
}
