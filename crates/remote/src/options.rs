//! What a remote file system is told.

use ironstone_base::{Error, Result};
use std::path::PathBuf;
use std::time::Duration;

/// Where tables go, and how they are cached, uploaded and tried again.
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// Tables in this local directory and below are remote, under their path from here. It must exist or be
    /// creatable. Tables elsewhere (checkpoints, backups, files to ingest) are local files.
    pub root: PathBuf,
    /// Stands before the names of all objects, without a `/` at the end. Empty by default: the operator's root.
    /// Databases that do not share `root` must not share a prefix.
    pub prefix: String,
    /// A local directory for cached blocks and for tables that are being written. Nothing else may use it; it is
    /// locked. What is in it may be removed while no process uses it.
    pub cache_dir: PathBuf,
    /// How many bytes of blocks are kept; default 1 GiB. 0 keeps none: every read goes to the remote.
    /// Tables that are being written come on top.
    pub cache_bytes: u64,
    /// What is read and cached at once; default 1 MiB. At least 4 KiB.
    pub block_bytes: u32,
    /// Whether the blocks of new tables go to the cache; default true.
    pub cache_new_tables: bool,
    /// How far ahead a file that is read front to back is fetched; default 4 MiB, 0 for not at all. Needs the cache.
    pub readahead_bytes: u64,
    /// Tables larger than this are uploaded in parts of this size, where the remote can; default 8 MiB.
    pub part_bytes: usize,
    /// How many parts of a table are uploaded at the same time; default 4.
    pub concurrent_parts: usize,
    /// How often a call is tried again that failed for a reason that may pass; default 5.
    pub retries: usize,
    /// The wait before the second try, which doubles each time; default 100 ms.
    pub min_retry_delay: Duration,
    /// The longest wait between tries; default 10 s.
    pub max_retry_delay: Duration,
    /// How long one try of a call without data may take; default 20 s.
    pub timeout: Duration,
    /// How long one try of a read, or of the upload of a part, may take; default 60 s.
    pub io_timeout: Duration,
    /// Threads that drive the client; default 2.
    pub io_threads: usize,
    /// Whether an object says which host uses a database; default true. See `docs/remote.md`, "One host".
    pub owner_object: bool,
}

impl RemoteOptions {
    /// The defaults.
    pub fn new(root: impl Into<PathBuf>, cache_dir: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            prefix: String::new(),
            cache_dir: cache_dir.into(),
            cache_bytes: 1 << 30,
            block_bytes: 1 << 20,
            cache_new_tables: true,
            readahead_bytes: 4 << 20,
            part_bytes: 8 << 20,
            concurrent_parts: 4,
            retries: 5,
            min_retry_delay: Duration::from_millis(100),
            max_retry_delay: Duration::from_secs(10),
            timeout: Duration::from_secs(20),
            io_timeout: Duration::from_secs(60),
            io_threads: 2,
            owner_object: true,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::invalid_argument(format!("remote file system: {what}")));
        if self.block_bytes < 4096 {
            return wrong("block_bytes must be at least 4096");
        }
        if self.prefix.starts_with('/') || self.prefix.ends_with('/') {
            return wrong("prefix must not begin or end with /");
        }
        if self.prefix.split('/').any(|part| part == "." || part == "..") {
            return wrong("prefix must not have . or .. in it");
        }
        if self.part_bytes == 0 || self.concurrent_parts == 0 || self.io_threads == 0 {
            return wrong("part_bytes, concurrent_parts and io_threads must not be 0");
        }
        if self.root.as_os_str().is_empty() || self.cache_dir.as_os_str().is_empty() {
            return wrong("root and cache_dir must be given");
        }
        Ok(())
    }
}
