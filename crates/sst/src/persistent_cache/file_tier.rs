//! A persistent cache in files.
//!
//! ```text
//! path/cache/000001.rc   records; written as a whole when it is full, removed as a whole, the oldest first
//! record   magic u32 LE | key 16 bytes | length u32 LE | data | checksum u64 LE, of the number of the file and all before it
//! ```
//! The file that is being filled is in memory, and so is the one that is being written. What is inserted while both are full is
//! dropped: a reader never waits for the one who writes. Opening removes the files of an earlier time: nothing says that they are
//! whole, nor what they are of.

use super::{PersistentCache, PersistentKey};
use ironstone_base::hash::hash64;
use ironstone_base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use ironstone_base::sync::{Arc, Mutex};
use ironstone_base::{Corrupt, Error, Result};
use ironstone_vfs::{Env, FileLock, OpenHints, RandomAccessFile, WriteOptions};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;

const MAGIC: u32 = 0x5243_4952;
const KEY_LEN: usize = size_of::<PersistentKey>();
const HEADER_LEN: usize = 4 + KEY_LEN + 4;
const CHECKSUM_LEN: usize = 8;

/// How a persistent cache in files works. Names are RocksDB's.
#[derive(Clone)]
pub struct PersistentCacheConfig {
    /// Files and clock.
    pub env: Env,
    /// The directory, made if it is missing. Files are in its subdirectory `cache`; no other cache may have it open.
    pub path: PathBuf,
    /// The most bytes that the files have together.
    pub cache_size: u64,
    /// The size of one file, and of what is removed at once; up to two of them are in memory. Default: a tenth of `cache_size`, at least
    /// 64 KiB, at most 8 MiB. (RocksDB: 100 MiB.)
    pub cache_file_size: u32,
    /// Keep blocks as the table file has them. Default true; without, uncompressed.
    pub is_compressed: bool,
}

impl PersistentCacheConfig {
    /// The defaults, for `cache_size` bytes in `path`.
    pub fn new(env: Env, path: impl Into<PathBuf>, cache_size: u64) -> Self {
        let cache_file_size = (cache_size / 10).clamp(64 << 10, 8 << 20) as u32;
        Self { env, path: path.into(), cache_size, cache_file_size, is_compressed: true }
    }
}

/// A cache in files, empty. Share it between column families and databases with `Arc`.
///
/// # Errors
/// `InvalidArgument` if `cache_size` is less than two files. `IoError` if the directory cannot be made or cleaned, or another cache
/// has it.
pub fn new_persistent_cache(config: PersistentCacheConfig) -> Result<Arc<dyn PersistentCache>> {
    Ok(Arc::new(BlockCacheTier::open(config)?))
}

struct BlockCacheTier {
    config: PersistentCacheConfig,
    dir: PathBuf,
    state: Mutex<State>,
    counts: Counts,
    next_id: AtomicU64,
    _lock: Box<dyn FileLock>,
}

struct State {
    places: HashMap<PersistentKey, Place>,
    /// Those on the disk, the oldest first.
    files: BTreeMap<u64, CacheFile>,
    filling: Filling,
    /// The one that is being written.
    sealed: Option<Arc<Filling>>,
    /// Those that could not be removed, with their lengths.
    doomed: VecDeque<(u64, u64)>,
    /// Bytes of `files` and `doomed`.
    on_disk: u64,
}

/// Where a record is.
#[derive(Clone, Copy)]
struct Place {
    file: u64,
    at: u32,
    len: u32,
}

struct CacheFile {
    reader: Arc<dyn RandomAccessFile>,
    len: u64,
    keys: Vec<PersistentKey>,
}

/// A file that is in memory.
#[derive(Default)]
struct Filling {
    number: u64,
    bytes: Vec<u8>,
    keys: Vec<PersistentKey>,
}

/// Where a record can be read without the lock.
enum Source {
    Memory(Vec<u8>),
    Sealed(Arc<Filling>, Place),
    File(Arc<dyn RandomAccessFile>, Place),
}

/// Relaxed, as all counts: they publish nothing.
#[derive(Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    errors: AtomicU64,
    dropped: AtomicU64,
    inserted: AtomicU64,
    bytes_inserted: AtomicU64,
    files_written: AtomicU64,
    bytes_written: AtomicU64,
    bytes_read: AtomicU64,
    hit_nanos: AtomicU64,
    miss_nanos: AtomicU64,
    write_nanos: AtomicU64,
}

impl BlockCacheTier {
    fn open(config: PersistentCacheConfig) -> Result<Self> {
        let file_size = u64::from(config.cache_file_size);
        if file_size <= (HEADER_LEN + CHECKSUM_LEN) as u64 || config.cache_size < 2 * file_size {
            return Err(Error::invalid_argument(format!(
                "{}: a persistent cache of {} bytes with files of {file_size}: it needs two at least",
                config.path.display(),
                config.cache_size
            )));
        }
        let dir = config.path.join("cache");
        let fs = &config.env.fs;
        fs.create_dir_all(&dir)?;
        let lock = fs.lock(&dir.join("LOCK"))?;
        for name in fs.list(&dir)?.iter().filter(|name| name.ends_with(".rc")) {
            fs.remove(&dir.join(name))?;
        }
        let state = State {
            places: HashMap::new(),
            files: BTreeMap::new(),
            filling: Filling { number: 1, ..Filling::default() },
            sealed: None,
            doomed: VecDeque::new(),
            on_disk: 0,
        };
        let (counts, next_id) = (Counts::default(), AtomicU64::new(1));
        Ok(Self { dir, state: Mutex::new(state), counts, next_id, config, _lock: lock })
    }

    fn path_of(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{number:06}.rc"))
    }

    /// Reads the record in `source` and checks it. An answer of a file that is not right is the last one of that file.
    fn read(&self, source: Source, key: &PersistentKey) -> Result<Vec<u8>> {
        match source {
            Source::Memory(record) => Ok(record),
            Source::Sealed(sealed, Place { at, len, .. }) => {
                Ok(sealed.bytes[at as usize..][..len as usize].to_vec())
            }
            Source::File(reader, Place { file, at, len }) => {
                let mut record = vec![0; len as usize];
                let count = reader.read_at(u64::from(at), &mut record)?;
                record.truncate(count);
                decode(&record, key, file).map_err(|bad| bad.at(reader.path(), u64::from(at)))?;
                Ok(record)
            }
        }
    }

    fn source(&self, key: &PersistentKey) -> Option<(u64, Source)> {
        let state = self.state.lock();
        let place = *state.places.get(key)?;
        let source = if place.file == state.filling.number {
            Source::Memory(state.filling.bytes[place.at as usize..][..place.len as usize].to_vec())
        } else if let Some(sealed) = state.sealed.as_ref().filter(|sealed| sealed.number == place.file) {
            Source::Sealed(Arc::clone(sealed), place)
        } else {
            Source::File(Arc::clone(&state.files.get(&place.file)?.reader), place)
        };
        Some((place.file, source))
    }

    /// Writes `sealed` to its file.
    fn write(&self, sealed: &Arc<Filling>) -> Result<()> {
        let begun = self.config.env.clock.monotonic_nanos();
        let written = self.make_room(sealed.bytes.len() as u64).and_then(|()| self.write_file(sealed));
        let mut state = self.state.lock();
        state.sealed = None;
        let result = match written {
            Ok(reader) => {
                let len = sealed.bytes.len() as u64;
                let keys = sealed.keys.clone();
                state.files.insert(sealed.number, CacheFile { reader: Arc::from(reader), len, keys });
                state.on_disk += len;
                self.counts.files_written.fetch_add(1, Relaxed);
                self.counts.bytes_written.fetch_add(len, Relaxed);
                Ok(())
            }
            Err(error) => {
                state.forget(sealed.number, &sealed.keys);
                self.counts.errors.fetch_add(1, Relaxed);
                Err(error)
            }
        };
        self.counts.write_nanos.fetch_add(self.config.env.clock.monotonic_nanos() - begun, Relaxed);
        result
    }

    fn write_file(&self, sealed: &Filling) -> Result<Box<dyn RandomAccessFile>> {
        let (fs, path) = (&self.config.env.fs, self.path_of(sealed.number));
        let write = || {
            let mut file = fs.create(&path, WriteOptions::default())?;
            file.append(&sealed.bytes)?;
            file.flush()?;
            file.close()?;
            fs.open_random(&path, OpenHints::default())
        };
        write().inspect_err(|_| drop(fs.remove(&path))) // The next opening tries again.
    }

    /// Removes the oldest files until there is room for `len` bytes.
    fn make_room(&self, len: u64) -> Result<()> {
        loop {
            let (number, file_len) = {
                let mut state = self.state.lock();
                if state.on_disk + len <= self.config.cache_size {
                    return Ok(());
                }
                match state.evict() {
                    Some(file) => file,
                    None => return Err(Error::io_message("there is no room in the persistent cache")),
                }
            };
            self.remove(number, file_len)?;
        }
    }

    /// Removes a file that no place leads to any more.
    fn remove(&self, number: u64, len: u64) -> Result<()> {
        let removed = self.config.env.fs.remove(&self.path_of(number));
        let mut state = self.state.lock();
        match removed {
            Err(error) if !error.is_path_not_found() => {
                state.doomed.push_back((number, len));
                Err(error)
            }
            _ => {
                state.on_disk -= len;
                Ok(())
            }
        }
    }

    /// A file that gave a wrong answer is not asked again.
    #[cold]
    fn give_up(&self, number: u64) {
        self.counts.errors.fetch_add(1, Relaxed);
        let given_up = {
            let mut state = self.state.lock();
            let file = state.files.remove(&number);
            file.map(|file| {
                state.forget(number, &file.keys);
                file.len
            })
        };
        if let Some(len) = given_up {
            drop(self.remove(number, len)); // If it stays, it is tried again when there has to be room.
        }
    }

    fn nanos_since(&self, begun: u64) -> u64 {
        self.config.env.clock.monotonic_nanos().saturating_sub(begun)
    }
}

impl State {
    /// Takes the file that is to be removed next.
    fn evict(&mut self) -> Option<(u64, u64)> {
        if let Some(doomed) = self.doomed.pop_front() {
            return Some(doomed);
        }
        let (number, file) = self.files.pop_first()?;
        self.forget(number, &file.keys);
        Some((number, file.len))
    }

    fn forget(&mut self, number: u64, keys: &[PersistentKey]) {
        for key in keys {
            if self.places.get(key).is_some_and(|place| place.file == number) {
                self.places.remove(key);
            }
        }
    }

    /// Adds a record to the file that is being filled, which has room for it.
    fn add(&mut self, key: &PersistentKey, data: &[u8]) {
        let Filling { number, bytes, keys } = &mut self.filling;
        let at = bytes.len();
        encode(key, data, *number, bytes);
        keys.push(*key);
        // Both are less than the size of a file, a u32.
        let place = Place { file: *number, at: at as u32, len: (bytes.len() - at) as u32 };
        self.places.insert(*key, place);
    }
}

fn encode(key: &PersistentKey, data: &[u8], number: u64, out: &mut Vec<u8>) {
    let at = out.len();
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(&(data.len() as u32).to_le_bytes());
    out.extend_from_slice(data);
    let checksum = hash64(&out[at..], number);
    out.extend_from_slice(&checksum.to_le_bytes());
    debug_assert_eq!(decode(&out[at..], key, number).ok(), Some(data));
}

/// The data of `record`, which has to be that of `key` in file `number`.
fn decode<'a>(record: &'a [u8], key: &PersistentKey, number: u64) -> std::result::Result<&'a [u8], Corrupt> {
    let (checked, checksum) = record
        .split_last_chunk::<CHECKSUM_LEN>()
        .ok_or(Corrupt("cached block: the file ends within its record"))?;
    if u64::from_le_bytes(*checksum) != hash64(checked, number) {
        return Err(Corrupt("cached block: its record has another checksum"));
    }
    let data = || {
        let rest = checked.strip_prefix(&MAGIC.to_le_bytes())?.strip_prefix(key)?;
        let (len, data) = rest.split_first_chunk::<4>()?;
        (u32::from_le_bytes(*len) as usize == data.len()).then_some(data)
    };
    data().ok_or(Corrupt("cached block: another record is in its place"))
}

impl PersistentCache for BlockCacheTier {
    fn insert(&self, key: &PersistentKey, data: &[u8]) -> Result<()> {
        let len = HEADER_LEN + data.len() + CHECKSUM_LEN;
        let file_size = self.config.cache_file_size as usize;
        let sealed = {
            let mut state = self.state.lock();
            if state.places.contains_key(key) {
                return Ok(());
            }
            let is_full = state.filling.bytes.len() + len > file_size;
            if len > file_size || (is_full && state.sealed.is_some()) {
                self.counts.dropped.fetch_add(1, Relaxed);
                return Ok(());
            }
            let sealed = is_full.then(|| {
                let number = state.filling.number + 1;
                let full = std::mem::replace(&mut state.filling, Filling { number, ..Filling::default() });
                Arc::clone(state.sealed.insert(Arc::new(full)))
            });
            state.add(key, data);
            sealed
        };
        self.counts.inserted.fetch_add(1, Relaxed);
        self.counts.bytes_inserted.fetch_add(data.len() as u64, Relaxed);
        sealed.map_or(Ok(()), |sealed| self.write(&sealed))
    }

    fn lookup(&self, key: &PersistentKey) -> Result<Option<Vec<u8>>> {
        let begun = self.config.env.clock.monotonic_nanos();
        let Some((number, source)) = self.source(key) else {
            self.counts.misses.fetch_add(1, Relaxed);
            self.counts.miss_nanos.fetch_add(self.nanos_since(begun), Relaxed);
            return Ok(None);
        };
        match self.read(source, key) {
            Ok(mut record) => {
                record.truncate(record.len() - CHECKSUM_LEN);
                record.drain(..HEADER_LEN);
                self.counts.hits.fetch_add(1, Relaxed);
                self.counts.bytes_read.fetch_add(record.len() as u64, Relaxed);
                self.counts.hit_nanos.fetch_add(self.nanos_since(begun), Relaxed);
                Ok(Some(record))
            }
            Err(error) => {
                self.counts.misses.fetch_add(1, Relaxed);
                self.counts.miss_nanos.fetch_add(self.nanos_since(begun), Relaxed);
                self.give_up(number);
                Err(error)
            }
        }
    }

    fn is_compressed(&self) -> bool {
        self.config.is_compressed
    }

    fn stats(&self) -> Vec<BTreeMap<String, f64>> {
        let count = |counter: &AtomicU64| counter.load(Relaxed) as f64;
        let average = |sum: &AtomicU64, of: &AtomicU64, unit: f64| match of.load(Relaxed) {
            0 => 0.0,
            of => sum.load(Relaxed) as f64 / of as f64 / unit,
        };
        let counts = &self.counts;
        let asked = count(&counts.hits) + count(&counts.misses);
        let percent = |of: &AtomicU64| if asked == 0.0 { 0.0 } else { 100.0 * count(of) / asked };
        let stats = [
            ("bytes_piplined", average(&counts.bytes_inserted, &counts.inserted, 1.0)),
            ("bytes_written", average(&counts.bytes_written, &counts.files_written, 1.0)),
            ("bytes_read", average(&counts.bytes_read, &counts.hits, 1.0)),
            ("insert_dropped", count(&counts.dropped)),
            ("cache_hits", count(&counts.hits)),
            ("cache_misses", count(&counts.misses)),
            ("cache_errors", count(&counts.errors)),
            ("cache_hits_pct", percent(&counts.hits)),
            ("cache_misses_pct", percent(&counts.misses)),
            ("read_hit_latency", average(&counts.hit_nanos, &counts.hits, 1000.0)),
            ("read_miss_latency", average(&counts.miss_nanos, &counts.misses, 1000.0)),
            ("write_latency", average(&counts.write_nanos, &counts.files_written, 1000.0)),
        ];
        vec![
            stats
                .into_iter()
                .map(|(name, value)| (format!("persistentcache.blockcachetier.{name}"), value))
                .collect(),
        ]
    }

    fn printable_options(&self) -> String {
        let PersistentCacheConfig { path, cache_size, cache_file_size, is_compressed, .. } = &self.config;
        format!(
            "persistent_cache_config.path: {}\npersistent_cache_config.cache_size: {cache_size}\n\
             persistent_cache_config.cache_file_size: {cache_file_size}\n\
             persistent_cache_config.is_compressed: {is_compressed}\n",
            path.display()
        )
    }

    fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Relaxed)
    }
}

impl Drop for BlockCacheTier {
    /// Nobody will read them again.
    fn drop(&mut self) {
        let state = self.state.lock();
        let numbers = state.files.keys().copied().chain(state.doomed.iter().map(|(number, _)| *number));
        for path in numbers.map(|number| self.path_of(number)) {
            let _ = self.config.env.fs.remove(&path); // Or the next opening does.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironstone_base::Code;
    use ironstone_vfs::fault::{FaultError, FaultFileSystem, FaultRule};
    use ironstone_vfs::mem::MemFileSystem;
    use ironstone_vfs::{FileSystem, OpKind, SystemClock};
    use std::path::Path;

    const FILE_SIZE: u32 = 4096;

    fn key(number: u64) -> PersistentKey {
        let mut key = [7; KEY_LEN];
        key[8..].copy_from_slice(&number.to_le_bytes());
        key
    }
    fn data(number: u64) -> Vec<u8> {
        vec![number as u8; 900 + number as usize % 7]
    }

    struct Rig {
        fs: MemFileSystem,
        faults: FaultFileSystem,
    }

    impl Rig {
        fn new() -> Self {
            let fs = MemFileSystem::new();
            let faults = FaultFileSystem::new(Arc::new(fs.clone()));
            Self { fs, faults }
        }
        fn config(&self, cache_size: u64) -> PersistentCacheConfig {
            let env = Env { fs: Arc::new(self.faults.clone()), clock: Arc::new(SystemClock::new()) };
            PersistentCacheConfig {
                cache_file_size: FILE_SIZE,
                ..PersistentCacheConfig::new(env, "/tier", cache_size)
            }
        }
        fn open(&self, cache_size: u64) -> BlockCacheTier {
            BlockCacheTier::open(self.config(cache_size)).unwrap()
        }
        fn files(&self) -> Vec<String> {
            let mut names = self.fs.list(Path::new("/tier/cache")).unwrap();
            names.retain(|name| name.ends_with(".rc"));
            names.sort();
            names
        }
        fn bytes(&self) -> u64 {
            self.files().iter().map(|name| self.fs.size(&Path::new("/tier/cache").join(name)).unwrap()).sum()
        }
    }

    fn has(tier: &BlockCacheTier, number: u64) -> bool {
        match tier.lookup(&key(number)) {
            Ok(Some(found)) => {
                assert_eq!(found, data(number), "{number}");
                true
            }
            _ => false,
        }
    }

    #[test]
    fn what_was_inserted_is_found_and_the_oldest_files_go() {
        let rig = Rig::new();
        let tier = rig.open(5 * u64::from(FILE_SIZE));
        for number in 0..100 {
            tier.insert(&key(number), &data(number)).unwrap();
            assert!(has(&tier, number), "the newest is there, in memory or not");
            assert!(rig.bytes() <= 5 * u64::from(FILE_SIZE));
        }
        let there: Vec<u64> = (0..100).filter(|number| has(&tier, *number)).collect();
        // Four records are in a file; five files and the one in memory.
        assert!((20..=24).contains(&there.len()), "{there:?}");
        assert_eq!(there.last(), Some(&99));
        assert!(there.windows(2).all(|pair| pair[0] + 1 == pair[1]), "the newest: {there:?}");
        let stats = &tier.stats()[0];
        let stat = |name: &str| stats[&format!("persistentcache.blockcachetier.{name}")];
        assert!(stat("cache_hits") > 100.0 && stat("cache_misses") > 70.0 && stat("cache_errors") == 0.0);
        assert!((stat("cache_hits_pct") + stat("cache_misses_pct") - 100.0).abs() < 1e-6);
        // What is there already, and what fits in no file.
        let files = rig.files();
        tier.insert(&key(99), b"other").unwrap();
        tier.insert(&key(1000), &vec![1; FILE_SIZE as usize]).unwrap();
        assert!(has(&tier, 99) && !has(&tier, 1000) && rig.files() == files);
        assert_eq!(tier.stats()[0]["persistentcache.blockcachetier.insert_dropped"], 1.0);
    }

    #[test]
    fn opened_again_it_is_empty() {
        let rig = Rig::new();
        let tier = rig.open(1 << 20);
        (0..50).for_each(|number| tier.insert(&key(number), &data(number)).unwrap());
        assert!(rig.files().len() > 5);
        assert!(BlockCacheTier::open(rig.config(1 << 20)).is_err(), "one at a time");
        drop(tier);
        assert!(rig.files().is_empty());
        // After a crash they are still there.
        rig.fs.write_all_synced(Path::new("/tier/cache/000002.rc"), b"old").unwrap();
        rig.fs.write_all_synced(Path::new("/tier/cache/other"), b"stays").unwrap();
        let tier = rig.open(1 << 20);
        assert!(rig.files().is_empty() && (0..50).all(|number| !has(&tier, number)));
        assert!(rig.fs.exists(Path::new("/tier/cache/other")).unwrap());
        let small = BlockCacheTier::open(PersistentCacheConfig { path: "/small".into(), ..rig.config(5000) });
        assert_eq!(small.map(drop).unwrap_err().code(), Code::InvalidArgument);
    }

    #[test]
    fn a_file_that_changed_is_not_trusted_and_not_asked_again() {
        for at in [0, 3, 10, 21, 500, 920, 4000] {
            let rig = Rig::new();
            let tier = rig.open(1 << 20);
            (0..9).for_each(|number| tier.insert(&key(number), &data(number)).unwrap());
            let path = Path::new("/tier/cache/000001.rc");
            let mut bytes = rig.fs.read_all(path).unwrap();
            let Some(byte) = bytes.get_mut(at) else { continue };
            *byte ^= 0x10;
            rig.fs.write_all_synced(path, &bytes).unwrap();
            let found: Vec<bool> = (0..9).map(|number| has(&tier, number)).collect();
            // The records before the damage may have been found; from then on none of that file.
            assert!(found[4..].iter().all(|&found| found), "{at}: {found:?}");
            assert!((0..4).all(|number| !has(&tier, number)), "{at}");
            assert_eq!(tier.stats()[0]["persistentcache.blockcachetier.cache_errors"], 1.0, "{at}");
            assert!(!rig.fs.exists(path).unwrap());
        }
    }

    #[test]
    fn a_file_that_was_cut_or_belongs_elsewhere_is_not_trusted() {
        let rig = Rig::new();
        let tier = rig.open(1 << 20);
        (0..13).for_each(|number| tier.insert(&key(number), &data(number)).unwrap());
        let path = |number: u64| PathBuf::from(format!("/tier/cache/{number:06}.rc"));
        let (first, second) = (rig.fs.read_all(&path(1)).unwrap(), rig.fs.read_all(&path(2)).unwrap());
        rig.fs.write_all_synced(&path(1), &first[..100]).unwrap();
        rig.fs.write_all_synced(&path(2), &first).unwrap();
        assert!((0..8).all(|number| !has(&tier, number)));
        assert!((8..13).all(|number| has(&tier, number)));
        assert!(second.len() > 3000);
    }

    #[test]
    fn failures_cost_what_they_hit_and_nothing_else() {
        for kind in [OpKind::Create, OpKind::Append, OpKind::OpenRandom, OpKind::Remove, OpKind::Read] {
            let rig = Rig::new();
            let tier = rig.open(5 * u64::from(FILE_SIZE));
            let (mut failed, mut found) = (0, 0);
            let rule = rig.faults.add(FaultRule::error(FaultError::Io).on(&[kind]).after(2).times(3));
            for number in 0..200 {
                failed += usize::from(tier.insert(&key(number), &data(number)).is_err());
                found += usize::from(has(&tier, number));
                if number >= 10 {
                    has(&tier, number - 9);
                }
                assert!(rig.bytes() <= 5 * u64::from(FILE_SIZE), "{kind:?}");
            }
            assert!(rule.hits() > 0, "{kind:?}");
            assert!(found > 180, "{kind:?}: {found}");
            assert!(kind == OpKind::Read || failed > 0, "{kind:?}");
            let there = (0..200).filter(|number| has(&tier, *number)).count();
            assert!(there >= 16, "it recovers from {kind:?}: {there}");
        }
    }

    #[test]
    fn readers_and_writers_get_along() {
        let rig = Rig::new();
        let tier = rig.open(8 * u64::from(FILE_SIZE));
        std::thread::scope(|scope| {
            for start in 0..4u64 {
                let tier = &tier;
                scope.spawn(move || {
                    for number in (start * 1000..).take(300) {
                        tier.insert(&key(number), &data(number)).unwrap();
                        let _found = (0..4000).step_by(97).filter(|number| has(tier, *number)).count();
                    }
                });
            }
        });
        assert_eq!(tier.stats()[0]["persistentcache.blockcachetier.cache_errors"], 0.0);
        assert!(rig.bytes() <= 8 * u64::from(FILE_SIZE));
    }
}
