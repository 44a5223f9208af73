//! A simulated block cache: what hit rate another capacity would have.

use crate::cached_block::BlockCache;
use ironstone_base::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use ironstone_base::sync::{Arc, Mutex};
use ironstone_base::{Error, Result, Statistics, statistics::Ticker};
use ironstone_cache::{Cache, CacheKey, CacheOptions, Priority};
use ironstone_vfs::{FileSystem, WritableFile, WriteOptions};
use std::path::Path;

/// A cache of keys without blocks beside a block cache (the option `sim_cache` of tables): it is told of all that the block cache is asked for and
/// counts what a block cache of its own capacity would have had. It takes about 60 bytes for each block that it stands for.
///
/// Blocks are charged what the block cache charges them, and evicted by the same rules. What is found in the block cache and
/// not here enters here, so a capacity below that of the block cache is simulated as well as one above it.
pub struct SimCache {
    keys: Arc<Cache<()>>,
    /// Relaxed, as all counts: they publish nothing.
    hits: AtomicU64,
    misses: AtomicU64,
    /// Whether `activity` has a file. Relaxed: a look-up more or less at either end of the log.
    is_logging: AtomicBool,
    activity: Mutex<Activity>,
}

/// The log of what the cache was asked.
#[derive(Default)]
struct Activity {
    file: Option<Box<dyn WritableFile>>,
    /// 0: any.
    max_bytes: u64,
    /// The first failure ends the log.
    status: Option<Error>,
}

impl SimCache {
    /// Simulates a block cache with these options; `huge_pages` has no meaning.
    pub fn new(options: CacheOptions) -> Arc<Self> {
        Arc::new(Self {
            keys: Cache::new(CacheOptions { huge_pages: false, ..options }),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            is_logging: AtomicBool::new(false),
            activity: Mutex::default(),
        })
    }

    /// Bytes that the simulated cache may hold.
    pub fn capacity(&self) -> usize {
        self.keys.capacity()
    }
    /// Changes the simulated capacity, evicting if it shrinks.
    pub fn set_capacity(&self, bytes: usize) {
        self.keys.set_capacity(bytes);
    }
    /// Bytes that the simulated cache holds.
    pub fn usage(&self) -> usize {
        self.keys.usage()
    }
    /// How often the simulated cache had what was asked for.
    pub fn hits(&self) -> u64 {
        self.hits.load(Relaxed)
    }
    /// How often it had not.
    pub fn misses(&self) -> u64 {
        self.misses.load(Relaxed)
    }
    /// Hits and misses are 0 again; those in statistics stay.
    pub fn reset_counters(&self) {
        self.hits.store(0, Relaxed);
        self.misses.store(0, Relaxed);
    }

    /// Writes a line for each look-up (`LOOKUP - <key>`) and each block that enters the block cache (`ADD - <key> -
    /// <bytes>`) to a new file, as RocksDB's does; the key, file and offset, in hexadecimal digits. It ends with
    /// [`stop_activity_log`](Self::stop_activity_log), at the first failure, or with `max_bytes`; 0: any. A log that is
    /// being written ends first.
    pub fn start_activity_log(&self, fs: &dyn FileSystem, path: &Path, max_bytes: u64) -> Result<()> {
        let mut activity = self.activity.lock();
        self.end_log(&mut activity);
        let options = WriteOptions { buffer_bytes: 1 << 16, ..WriteOptions::default() };
        *activity = Activity { file: Some(fs.create(path, options)?), max_bytes, status: None };
        self.is_logging.store(true, Relaxed);
        Ok(())
    }
    /// Ends the log, if there is one. The first failure of writing it.
    pub fn stop_activity_log(&self) -> Result<()> {
        let mut activity = self.activity.lock();
        self.end_log(&mut activity);
        activity.status.clone().map_or(Ok(()), Err)
    }
    /// The first failure of writing the log.
    pub fn activity_log_status(&self) -> Result<()> {
        self.activity.lock().status.clone().map_or(Ok(()), Err)
    }

    fn end_log(&self, activity: &mut Activity) {
        self.is_logging.store(false, Relaxed);
        if let Some(mut file) = activity.file.take() {
            let closed = file.close();
            activity.status = activity.status.take().or(closed.err());
        }
    }

    fn log(&self, line: impl FnOnce() -> String) {
        if !self.is_logging.load(Relaxed) {
            return;
        }
        let mut activity = self.activity.lock();
        let Activity { file: Some(file), max_bytes, .. } = &mut *activity else { return };
        let written = file.append(line().as_bytes());
        let is_full = *max_bytes > 0 && file.size() >= *max_bytes;
        activity.status = written.err();
        if is_full || activity.status.is_some() {
            self.end_log(&mut activity);
        }
    }

    /// The block cache was asked for `key`. `in_cache`: what the block was charged there, if it was there, and its priority.
    pub(crate) fn look_up(
        &self,
        key: &CacheKey,
        in_cache: Option<(usize, Priority)>,
        statistics: Option<&Statistics>,
    ) {
        let is_hit = self.keys.get(key).is_some();
        let (count, ticker) = match is_hit {
            true => (&self.hits, Ticker::SimBlockCacheHit),
            false => (&self.misses, Ticker::SimBlockCacheMiss),
        };
        count.fetch_add(1, Relaxed);
        if let Some(statistics) = statistics {
            statistics.record(ticker, 1);
        }
        if let Some((charge, priority)) = in_cache.filter(|_| !is_hit) {
            self.insert(*key, charge, priority);
        }
        self.log(|| format!("LOOKUP - {:016X}{:016X}\n", key.0, key.1));
    }

    /// A block enters the block cache.
    pub(crate) fn add(&self, key: CacheKey, charge: usize, priority: Priority) {
        if !self.keys.contains(&key) {
            self.insert(key, charge, priority);
        }
        self.log(|| format!("ADD - {:016X}{:016X} - {charge}\n", key.0, key.1));
    }

    fn insert(&self, key: CacheKey, charge: usize, priority: Priority) {
        // The block cache counts its bookkeeping, which is more than ours.
        let more = BlockCache::CHARGE_PER_ENTRY.saturating_sub(Cache::<()>::CHARGE_PER_ENTRY);
        // A block that finds no room is not there the next time: that is what a cache does.
        let _ = self.keys.insert(key, (), charge + more, priority);
    }

    /// A block will not be asked for again.
    pub(crate) fn erase(&self, key: &CacheKey) {
        self.keys.erase(key);
    }
}

impl Drop for SimCache {
    fn drop(&mut self) {
        let mut activity = std::mem::take(self.activity.get_mut());
        self.end_log(&mut activity);
    }
}

/// As RocksDB prints it.
impl std::fmt::Display for SimCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (hits, misses) = (self.hits(), self.misses());
        let rate = if hits + misses == 0 { 0.0 } else { hits as f64 * 100.0 / (hits + misses) as f64 };
        writeln!(f, "SimCache MISSes:  {misses}\nSimCache HITs:    {hits}\nSimCache HITRATE: {rate:.2}")
    }
}

impl std::fmt::Debug for SimCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimCache")
            .field("keys", &self.keys)
            .field("hits", &self.hits())
            .finish_non_exhaustive()
    }
}
