//! The cache of blocks on another medium: what it answers, and that nothing of it ever fails a read.

use crate::disk::{Disk, refused, rewrite_all};
use ironstone::statistics::Ticker;
use ironstone::vfs::fault::{FaultError, FaultRule};
use ironstone::vfs::{Env, FileSystem, OpKind};
use ironstone::{
    BlockCache, CacheOptions, Code, CompressionKind, Db, IndexType, Options, PersistentCache,
    PersistentCacheConfig, PersistentKey, ReadOptions, Result, Statistics, TableFormat, new_persistent_cache,
};
use ironstone_base::sync::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A database whose block cache holds nothing, with a persistent cache.
struct Tiered {
    disk: Disk,
    options: Options,
    statistics: Arc<Statistics>,
    tier: Arc<dyn PersistentCache>,
}

fn config(disk: &Disk, cache_size: u64, is_compressed: bool) -> PersistentCacheConfig {
    let mut config = PersistentCacheConfig::new(disk.env(), "/tier", cache_size);
    config.cache_file_size = 16 << 10;
    config.is_compressed = is_compressed;
    config
}

impl Tiered {
    fn new(cache_size: u64, is_compressed: bool) -> Self {
        let disk = Disk::new();
        let tier = new_persistent_cache(config(&disk, cache_size, is_compressed)).unwrap();
        Self::with(disk, tier)
    }
    fn with(disk: Disk, tier: Arc<dyn PersistentCache>) -> Self {
        let statistics = Arc::new(Statistics::new());
        let mut options = disk.options();
        options.db.statistics = Some(Arc::clone(&statistics));
        options.cf.compression = CompressionKind::Lz4;
        options.cf.table.block_size = 1000;
        options.cf.table.block_cache =
            Some(BlockCache::new(CacheOptions { capacity: 0, ..CacheOptions::default() }));
        options.cf.table.persistent_cache = Some(Arc::clone(&tier));
        Self { disk, options, statistics, tier }
    }
    fn open(&self) -> Db {
        self.disk.open_with(&self.options)
    }
    /// Hits and misses since the last call.
    fn counts(&self) -> (u64, u64) {
        let counts = [Ticker::PersistentCacheHit, Ticker::PersistentCacheMiss]
            .map(|ticker| self.statistics.ticker(ticker));
        self.statistics.reset();
        (counts[0], counts[1])
    }
}

/// Half of it can be compressed away.
fn value(number: usize, round: usize) -> String {
    let mut seed = (number * 31 + round) as u32;
    let mut digit = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'a' + (seed >> 24) as u8 % 26)
    };
    (0..150).map(|_| digit()).collect::<String>() + &"x".repeat(150)
}

fn fill(db: &Db, round: usize) {
    (0..300).for_each(|number| db.put(format!("key{number:04}"), value(number, round)).unwrap());
    db.flush().unwrap();
}

/// Reads everything, in each way that there is.
fn read_all(db: &Db, round: usize) {
    for number in 0..300 {
        let found = db.get(format!("key{number:04}")).unwrap().unwrap();
        assert_eq!(*found, *value(number, round).as_bytes(), "{number}");
    }
    let keys: Vec<String> = (0..300).map(|number| format!("key{number:04}")).collect();
    for (number, found) in db.multi_get(&keys).into_iter().enumerate() {
        assert_eq!(*found.unwrap().unwrap(), *value(number, round).as_bytes(), "{number}");
    }
    let entries: Vec<_> = db.iter().unwrap().entries().map(|entry| entry.unwrap()).collect();
    assert_eq!(entries.len(), 300);
    for (number, (_, found)) in entries.iter().enumerate() {
        assert_eq!(**found, *value(number, round).as_bytes(), "{number}");
    }
}

#[test]
fn blocks_that_were_read_come_from_it() {
    for is_compressed in [true, false] {
        for index_type in [IndexType::BinarySearch, IndexType::TwoLevel] {
            let mut tiered = Tiered::new(4 << 20, is_compressed);
            tiered.options.cf.table.index_type = index_type;
            tiered.options.cf.table.cache_index_and_filter_blocks = true;
            let db = tiered.open();
            fill(&db, 1);
            tiered.counts();
            read_all(&db, 1);
            let (hits, misses) = tiered.counts();
            assert!(misses >= 100 && hits >= 600, "{hits} hits, {misses} misses");
            read_all(&db, 1);
            let (hits, misses) = tiered.counts();
            assert!(hits >= 900 && misses == 0, "{hits} hits, {misses} misses");
            // Another state of the database has other blocks.
            fill(&db, 2);
            read_all(&db, 2);
            rewrite_all(&db);
            read_all(&db, 2);
            db.verify_checksum().unwrap();
            drop(db);
            // The tables are the same when the database is opened again.
            let db = tiered.open();
            tiered.counts();
            read_all(&db, 2);
            let (hits, misses) = tiered.counts();
            assert!(hits >= 900 && misses <= 2, "{hits} hits, {misses} misses");
            let stats = tiered.tier.stats();
            assert!(stats[0]["persistentcache.blockcachetier.cache_hits"] > 0.0, "{stats:?}");
            assert!(tiered.tier.printable_options().contains("cache_size: 4194304"));
        }
    }
}

#[test]
fn what_was_not_to_be_kept_or_checked_does_not_enter_it() {
    let tiered = Tiered::new(4 << 20, true);
    let db = tiered.open();
    fill(&db, 1);
    let read = |options: &ReadOptions| {
        let found = db.get_cf(options, db.default_column_family(), "key0100").unwrap();
        assert_eq!(*found.unwrap(), *value(100, 1).as_bytes());
    };
    tiered.counts();
    read(&ReadOptions { fill_cache: false, ..ReadOptions::default() });
    read(&ReadOptions { verify_checksums: false, ..ReadOptions::default() });
    assert_eq!(tiered.counts(), (0, 2));
    read(&ReadOptions::default());
    read(&ReadOptions { fill_cache: false, ..ReadOptions::default() });
    assert_eq!(tiered.counts(), (1, 1));
    // A compaction reads what passes by from the files, and leaves it there.
    rewrite_all(&db);
    let (hits, _) = tiered.counts();
    assert_eq!(hits, 0);
}

#[test]
fn it_keeps_to_its_size_and_answers_right_while_files_go() {
    for is_compressed in [true, false] {
        let tiered = Tiered::new(40 << 10, is_compressed);
        let db = tiered.open();
        for round in 1..4 {
            fill(&db, round);
            read_all(&db, round);
            let files = tiered.disk.files(".rc");
            let bytes: u64 = files.iter().map(|path| tiered.disk.fs.size(path).unwrap()).sum();
            assert!(bytes <= 40 << 10 && !files.is_empty(), "{bytes} bytes in {files:?}");
        }
    }
}

#[test]
fn no_failure_of_its_files_fails_a_read() {
    for is_compressed in [true, false] {
        for kind in [OpKind::Create, OpKind::Append, OpKind::OpenRandom, OpKind::Read, OpKind::Remove] {
            let tiered = Tiered::new(40 << 10, is_compressed);
            let db = tiered.open();
            fill(&db, 1);
            tiered.disk.faults.arm();
            let rule = FaultRule::error(FaultError::Io).on(&[kind]).path(".rc").after(1).times(7);
            let rule = tiered.disk.faults.add(rule);
            (0..4).for_each(|_| read_all(&db, 1));
            assert!(rule.hits() > 0, "{kind:?}");
            tiered.disk.faults.clear();
            read_all(&db, 1);
        }
    }
}

#[test]
fn no_damage_to_its_files_is_believed() {
    for is_compressed in [true, false] {
        let tiered = Tiered::new(4 << 20, is_compressed);
        let db = tiered.open();
        fill(&db, 1);
        read_all(&db, 1);
        for (number, path) in tiered.disk.files(".rc").iter().enumerate() {
            let mut bytes = tiered.disk.fs.read_all(path).unwrap();
            match number % 3 {
                0 => bytes.iter_mut().for_each(|byte| *byte ^= 1),
                1 => bytes.truncate(bytes.len() / 2),
                _ => bytes.rotate_left(1),
            }
            let mut file = tiered.disk.fs.create(path, Default::default()).unwrap();
            file.append(&bytes).unwrap();
            file.close().unwrap();
        }
        read_all(&db, 1);
        read_all(&db, 1);
    }
}

#[test]
fn a_verification_reads_the_files_below_it() {
    let tiered = Tiered::new(4 << 20, true);
    let db = tiered.open();
    fill(&db, 1);
    read_all(&db, 1);
    let path = tiered.disk.newest(".sst");
    let mut bytes = tiered.disk.fs.read_all(&path).unwrap();
    bytes[100] ^= 1;
    drop(db);
    tiered.disk.fs.write_all_synced(&path, &bytes).unwrap();
    let db = tiered.open();
    read_all(&db, 1);
    let error = refused(db.verify_checksum(), Code::Corruption, "checksum");
    assert!(error.message().contains(".sst"), "{error}");
}

#[test]
fn several_databases_share_one() {
    let tiered = Tiered::new(4 << 20, true);
    let others: Vec<Db> = ["/one", "/two"].map(|path| Db::open(&tiered.options, path).unwrap()).into();
    for (round, db) in others.iter().enumerate() {
        fill(db, round);
    }
    for _ in 0..2 {
        for (round, db) in others.iter().enumerate() {
            read_all(db, round);
        }
    }
    let (hits, misses) = tiered.counts();
    assert!(hits > misses, "{hits} hits, {misses} misses");
}

/// One of the application: in memory, and wrong now and then.
#[derive(Default)]
struct Odd {
    blocks: Mutex<HashMap<PersistentKey, Vec<u8>>>,
    calls: AtomicU64,
}

impl PersistentCache for Odd {
    fn insert(&self, key: &PersistentKey, data: &[u8]) -> Result<()> {
        self.blocks.lock().insert(*key, data.to_vec());
        Err(ironstone::Error::io_message("it says so, and yet keeps it"))
    }
    fn lookup(&self, key: &PersistentKey) -> Result<Option<Vec<u8>>> {
        let found = self.blocks.lock().get(key).cloned();
        Ok(match (self.calls.fetch_add(1, Ordering::Relaxed) % 4, found) {
            (0, Some(mut block)) => {
                block[0] ^= 1;
                Some(block)
            }
            (1, Some(block)) => Some(block[1..].to_vec()),
            (2, _) => return Err(ironstone::Error::io_message("not now")),
            (_, found) => found,
        })
    }
    fn is_compressed(&self) -> bool {
        true
    }
    fn stats(&self) -> Vec<BTreeMap<String, f64>> {
        Vec::new()
    }
    fn printable_options(&self) -> String {
        String::new()
    }
    fn new_id(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }
}

#[test]
fn one_that_answers_what_was_never_there_is_not_believed() {
    let odd = Arc::new(Odd::default());
    let tiered = Tiered::with(Disk::new(), odd.clone());
    let db = tiered.open();
    fill(&db, 1);
    (0..3).for_each(|_| read_all(&db, 1));
    let (hits, misses) = tiered.counts();
    assert!(hits > 100 && misses > 100, "{hits} hits, {misses} misses");
    assert!(!odd.blocks.lock().is_empty());
}

#[test]
fn without_one_nothing_is_asked_and_plain_tables_have_no_use_for_it() {
    let mut tiered = Tiered::new(1 << 20, true);
    tiered.options.cf.table.persistent_cache = None;
    let db = tiered.open();
    fill(&db, 1);
    read_all(&db, 1);
    assert_eq!(tiered.counts(), (0, 0));
    drop(db);
    tiered.options.cf.table.persistent_cache = Some(Arc::clone(&tiered.tier));
    tiered.options.cf.table_format = TableFormat::Plain;
    tiered.options.cf.plain_table.hash_table_ratio = 0.0;
    let db = Db::open(&tiered.options, "/plain").unwrap();
    fill(&db, 1);
    read_all(&db, 1);
    assert_eq!(tiered.counts(), (0, 0));
}

#[test]
fn it_works_on_the_operating_systems_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = PersistentCacheConfig::new(Env::os(), dir.path().join("tier"), 1 << 20);
    config.cache_file_size = 64 << 10;
    let tier = new_persistent_cache(config.clone()).unwrap();
    assert!(new_persistent_cache(config).is_err(), "one at a time");
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.cf.table.no_block_cache = true;
    options.cf.compression = CompressionKind::None;
    options.cf.table.persistent_cache = Some(Arc::clone(&tier));
    let db = Db::open(&options, dir.path().join("db")).unwrap();
    fill(&db, 1);
    read_all(&db, 1);
    read_all(&db, 1);
    let stats = tier.stats();
    assert!(stats[0]["persistentcache.blockcachetier.cache_hits"] > 500.0, "{stats:?}");
    assert!(std::fs::exists(Path::new(&dir.path().join("tier/cache/000001.rc"))).unwrap());
}
