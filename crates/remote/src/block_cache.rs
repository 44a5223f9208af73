//! Blocks of objects in local files, one file for each.
//!
//! ```text
//! <identity, 32 hex digits>-<block number>-<length>-<XXH3 of the content>-<serial>.block
//! <serial>.stage       a block of a table that is being written
//! ```
//!
//! The identity is a hash of the object's name, size, tag and of the block size, so that a file is never taken for
//! a block of another content. What this process wrote is believed while it runs. What an earlier one wrote is only
//! believed after its checksum has been compared, at the first read: a power loss may have torn it.

use crate::counters::Counters;
use ironstone_base::hash::xxh3_64;
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ironstone_base::{Error, Result};
use ironstone_vfs::{FileLock, FileSystem, OpenHints, RandomAccessFile, WriteOptions};
use opendal::Buffer;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use std::future::Future;
use std::path::{Path, PathBuf};

/// One block of one content of an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct BlockKey {
    pub(crate) identity: u128,
    pub(crate) index: u64,
}

/// How many files of the cache are held open.
const OPEN_FILES: usize = 256;
/// Each shard of the cache has room for so many blocks or more: a shard evicts by itself.
const LEAST_BLOCKS_PER_SHARD: u64 = 32;

/// The directory, and what is open in it.
struct CacheFiles {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    /// Read when a block is dropped: set before the cache itself is, which must keep its files. Relaxed: a
    /// late drop in another thread removes a file that is then fetched again.
    closing: AtomicBool,
    next_serial: AtomicU64,
    open: Cache<u64, Arc<dyn RandomAccessFile>>,
}

impl CacheFiles {
    fn new_serial(&self) -> u64 {
        self.next_serial.fetch_add(1, Ordering::Relaxed)
    }
}

/// A block in a file; the file is removed with it.
pub(crate) struct CachedBlock {
    files: Arc<CacheFiles>,
    name: String,
    len: u32,
    checksum: u64,
    serial: u64,
    /// Whether its content is known to be whole. Relaxed: comparing twice does no harm.
    verified: AtomicBool,
}

impl CachedBlock {
    fn path(&self) -> PathBuf {
        self.files.dir.join(&self.name)
    }

    /// Whether `buf` could be filled from `at`.
    fn read(&self, at: u32, buf: &mut [u8]) -> bool {
        self.verify()
            && self.open().and_then(|file| file.read_at(u64::from(at), buf)).is_ok_and(|n| n == buf.len())
    }

    fn open(&self) -> Result<Arc<dyn RandomAccessFile>> {
        if let Some(file) = self.files.open.get(&self.serial) {
            return Ok(file);
        }
        let file: Arc<dyn RandomAccessFile> =
            Arc::from(self.files.fs.open_random(&self.path(), OpenHints::default())?);
        self.files.open.insert(self.serial, file.clone());
        Ok(file)
    }

    fn verify(&self) -> bool {
        if self.verified.load(Ordering::Relaxed) {
            return true;
        }
        let whole = self.files.fs.read_all(&self.path());
        let good = whole
            .is_ok_and(|bytes| bytes.len() as u64 == u64::from(self.len) && xxh3_64(&bytes) == self.checksum);
        self.verified.store(good, Ordering::Relaxed);
        good
    }
}

impl Drop for CachedBlock {
    fn drop(&mut self) {
        if !self.files.closing.load(Ordering::Relaxed) {
            self.files.open.remove(&self.serial);
            let _ = self.files.fs.remove(&self.path()); // What stays is found at the next start.
        }
    }
}

#[derive(Clone)]
struct ByLength;

impl Weighter<BlockKey, Arc<CachedBlock>> for ByLength {
    fn weight(&self, _: &BlockKey, block: &Arc<CachedBlock>) -> u64 {
        u64::from(block.len)
    }
}

type Blocks = Cache<
    BlockKey,
    Arc<CachedBlock>,
    ByLength,
    DefaultHashBuilder,
    DefaultLifecycle<BlockKey, Arc<CachedBlock>>,
>;

/// What a fetch ended with.
pub(crate) enum Fetched {
    /// Somebody else had fetched it.
    Cached(Arc<CachedBlock>),
    /// The bytes of the block.
    Bytes(Buffer),
}

/// The cache. Evicts by a policy that scans do not fool (Clock-PRO), by bytes.
pub(crate) struct BlockCache {
    files: Arc<CacheFiles>,
    /// `None` if nothing is kept.
    blocks: Option<Blocks>,
    counters: Arc<Counters>,
}

impl BlockCache {
    /// A cache in `dir`, with what an earlier process left there.
    pub(crate) fn open(
        fs: Arc<dyn FileSystem>,
        dir: &Path,
        cache_bytes: u64,
        block_bytes: u32,
        counters: Arc<Counters>,
    ) -> Result<(Self, Box<dyn FileLock>)> {
        fs.create_dir_all(dir)?;
        let lock =
            fs.lock(&dir.join("LOCK")).map_err(|error| error.context("the cache of a remote file system"))?;
        let files = Arc::new(CacheFiles {
            fs,
            dir: dir.to_owned(),
            closing: AtomicBool::new(false),
            next_serial: AtomicU64::new(1),
            open: Cache::new(OPEN_FILES),
        });
        let blocks = (cache_bytes > 0).then(|| -> Result<Blocks> {
            let shards = (cache_bytes / (u64::from(block_bytes) * LEAST_BLOCKS_PER_SHARD)).clamp(1, 16);
            let options = OptionsBuilder::new()
                .estimated_items_capacity((cache_bytes / u64::from(block_bytes)).clamp(16, 1 << 20) as usize)
                .weight_capacity(cache_bytes)
                .shards(1 << shards.ilog2())
                .build()
                .map_err(|error| {
                    Error::invalid_argument(format!("remote cache of {cache_bytes} bytes: {error}"))
                })?;
            Ok(Cache::with_options(
                options,
                ByLength,
                DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            ))
        });
        let cache = Self { files, blocks: blocks.transpose()?, counters };
        cache.restore()?;
        Ok((cache, lock))
    }

    fn restore(&self) -> Result<()> {
        for name in self.files.fs.list(&self.files.dir)? {
            let Some(parsed) = parse_name(&name) else { continue };
            self.files.next_serial.fetch_max(parsed.serial().saturating_add(1), Ordering::Relaxed);
            match (parsed, &self.blocks) {
                (Name::Block { key, len, checksum, serial }, Some(blocks)) => {
                    let (files, verified) = (self.files.clone(), AtomicBool::new(false));
                    blocks
                        .insert(key, Arc::new(CachedBlock { files, name, len, checksum, serial, verified }));
                }
                _ => {
                    let _ = self.files.fs.remove(&self.files.dir.join(name)); // Of no use, and harmless.
                }
            }
        }
        Ok(())
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.blocks.is_some()
    }

    /// From now on nothing is removed.
    pub(crate) fn close(&self) {
        self.files.closing.store(true, Ordering::Relaxed);
    }

    /// Fills `buf` from `at` of a block, if the cache has it.
    pub(crate) fn read(&self, key: BlockKey, at: u32, buf: &mut [u8]) -> bool {
        let block = self.blocks.as_ref().and_then(|blocks| blocks.get(&key));
        block.is_some_and(|block| self.read_block(key, &block, at, buf))
    }

    /// Fills `buf` from `at` of `block`. Forgets it if that cannot be done.
    pub(crate) fn read_block(
        &self,
        key: BlockKey,
        block: &Arc<CachedBlock>,
        at: u32,
        buf: &mut [u8],
    ) -> bool {
        let read = block.read(at, buf);
        if !read && let Some(blocks) = &self.blocks {
            self.counters.cache_damages.add(1);
            blocks.remove_if(&key, |there| Arc::ptr_eq(there, block));
        }
        read
    }

    pub(crate) fn contains(&self, key: BlockKey) -> bool {
        self.blocks.as_ref().is_some_and(|blocks| blocks.contains_key(&key))
    }

    /// Gives a block that is there, or what `fetch` gives, which is then kept. Of several that want the same block, one
    /// fetches it.
    pub(crate) async fn get_or_fetch<F>(&self, key: BlockKey, fetch: F) -> Result<Fetched>
    where
        F: Future<Output = Result<Buffer>>,
    {
        let Some(blocks) = &self.blocks else { return fetch.await.map(Fetched::Bytes) };
        match blocks.get_value_or_guard_async(&key).await {
            Ok(block) => Ok(Fetched::Cached(block)),
            Err(guard) => {
                let bytes = fetch.await?;
                let stored = tokio::task::block_in_place(|| self.store(key, &bytes.to_bytes()));
                match stored {
                    Ok(block) => drop(guard.insert(block)), // Fails if somebody removed the key meanwhile.
                    Err(_) => self.counters.cache_failures.add(1),
                }
                Ok(Fetched::Bytes(bytes))
            }
        }
    }

    fn store(&self, key: BlockKey, bytes: &[u8]) -> Result<Arc<CachedBlock>> {
        let staged = self.stage(bytes)?;
        self.adopt(key, staged)
    }

    /// Writes `bytes` to a file that is not part of the cache yet.
    pub(crate) fn stage(&self, bytes: &[u8]) -> Result<StagedBlock> {
        let serial = self.files.new_serial();
        let len =
            u32::try_from(bytes.len()).map_err(|_| Error::invalid_argument("a block has 4 GiB or more"))?;
        let staged =
            StagedBlock { files: self.files.clone(), serial, len, checksum: xxh3_64(bytes), adopted: false };
        let mut file = self.files.fs.create(&staged.path(), WriteOptions::default())?;
        file.append(bytes)?;
        file.close()?;
        Ok(staged)
    }

    /// Names a staged file as the block `key`.
    fn adopt(&self, key: BlockKey, mut staged: StagedBlock) -> Result<Arc<CachedBlock>> {
        let (len, checksum, serial) = (staged.len, staged.checksum, staged.serial);
        let name = block_name(key, len, checksum, serial);
        self.files.fs.rename(&staged.path(), &self.files.dir.join(&name))?;
        staged.adopted = true;
        let (files, verified) = (self.files.clone(), AtomicBool::new(true));
        Ok(Arc::new(CachedBlock { files, name, len, checksum, serial, verified }))
    }

    /// Keeps a staged block.
    pub(crate) fn keep(&self, key: BlockKey, staged: StagedBlock) {
        let Some(blocks) = &self.blocks else { return };
        match self.adopt(key, staged) {
            Ok(block) => blocks.insert(key, block),
            Err(_) => self.counters.cache_failures.add(1), // It is fetched when it is wanted.
        }
    }

    /// Forgets the first `count` blocks of an object that is gone.
    pub(crate) fn forget(&self, identity: u128, count: u64) {
        if let Some(blocks) = &self.blocks {
            for index in 0..count {
                blocks.remove(&BlockKey { identity, index });
            }
        }
    }
}

/// A block of a table that is being written, in a file that goes away with this.
pub(crate) struct StagedBlock {
    files: Arc<CacheFiles>,
    serial: u64,
    len: u32,
    checksum: u64,
    adopted: bool,
}

impl StagedBlock {
    fn path(&self) -> PathBuf {
        self.files.dir.join(stage_name(self.serial))
    }
    /// A reader that works as long as the block lives.
    pub(crate) fn source(&self) -> StagedSource {
        StagedSource { fs: self.files.fs.clone(), path: self.path(), len: self.len, checksum: self.checksum }
    }
}

impl Drop for StagedBlock {
    fn drop(&mut self) {
        if !self.adopted {
            let _ = self.files.fs.remove(&self.path()); // What stays is removed at the next start.
        }
    }
}

/// Reads a staged block back.
pub(crate) struct StagedSource {
    fs: Arc<dyn FileSystem>,
    path: PathBuf,
    len: u32,
    checksum: u64,
}

impl StagedSource {
    /// The bytes that were written, or an error.
    pub(crate) fn read(&self) -> Result<Vec<u8>> {
        let bytes = self.fs.read_all(&self.path)?;
        let (len, checksum) = (bytes.len(), xxh3_64(&bytes));
        if len as u64 != u64::from(self.len) || checksum != self.checksum {
            let what = format!(
                "{len} bytes with checksum {checksum:#x} were read back, {} with {:#x} had been written",
                self.len, self.checksum
            );
            return Err(Error::corruption_at(&self.path, 0, what));
        }
        Ok(bytes)
    }
}

fn stage_name(serial: u64) -> String {
    format!("{serial:016x}.stage")
}
fn block_name(key: BlockKey, len: u32, checksum: u64, serial: u64) -> String {
    format!("{:032x}-{:08x}-{len:08x}-{checksum:016x}-{serial:016x}.block", key.identity, key.index)
}

enum Name {
    Stage { serial: u64 },
    Block { key: BlockKey, len: u32, checksum: u64, serial: u64 },
}

impl Name {
    fn serial(&self) -> u64 {
        match *self {
            Self::Stage { serial } | Self::Block { serial, .. } => serial,
        }
    }
}

/// `None` for names that the cache gives to nothing. Only names that are written exactly so are taken.
fn parse_name(name: &str) -> Option<Name> {
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    if let Some(digits) = name.strip_suffix(".stage") {
        let serial = hex(digits)?;
        return (stage_name(serial) == name).then_some(Name::Stage { serial });
    }
    let parts: Vec<&str> = name.strip_suffix(".block")?.split('-').collect();
    let [identity, index, len, checksum, serial] = parts[..] else { return None };
    let key = BlockKey { identity: u128::from_str_radix(identity, 16).ok()?, index: hex(index)? };
    let (len, checksum, serial) = (u32::try_from(hex(len)?).ok()?, hex(checksum)?, hex(serial)?);
    (block_name(key, len, checksum, serial) == name).then_some(Name::Block { key, len, checksum, serial })
}

#[cfg(test)]
mod tests;
