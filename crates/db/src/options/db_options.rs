//! Options of a whole database.

use super::spec::option_struct;
use super::text::OptionError;
use super::value::{OptionValue, env_of};
use crate::info_log::InfoLogLevel;
use crate::listener::EventListener;
use crate::read::row_cache::RowCache;
use crate::sst_file_manager::SstFileManager;
use crate::table_paths::DbPath;
use crate::thread_pool::ThreadPool;
use crate::wal_filter::WalFilter;
use crate::write_buffer_manager::WriteBufferManager;
use ironstone_base::Statistics;
use ironstone_base::sync::Arc;
use ironstone_sst::{CompressionKind, FileChecksumGenFactory};
use ironstone_vfs::{Access, Env, GenericRateLimiter, OpenHints, RateLimiter};
use ironstone_wal::WalRecoveryMode;
use std::path::PathBuf;

/// Takes the lines that would go to LOG.
pub trait Logger: Send + Sync {
    /// One line, without time and line end.
    fn log(&self, level: InfoLogLevel, line: &str);
}

/// The name that stands for the machine's in [`DbOptions::db_host_id`].
pub const HOST_NAME: &str = "__hostname__";

option_struct! {
    /// Options of a whole database. Names, meanings and defaults are RocksDB's, unless it says otherwise.
    pub struct DbOptions, "DBOptions";
    built {
        /// Threads for flushes and compactions together: a quarter, at least one, is kept for flushes.
        max_background_jobs: i32 = 2, Mutable, V7;
        /// Threads for compactions; -1: what `max_background_jobs` leaves.
        max_background_compactions: i32 = -1, Mutable, V7;
        /// Threads for flushes; -1: from `max_background_jobs`.
        max_background_flushes: i32 = -1, Mutable, V7;
        /// In how many key ranges one compaction may be split, to run at once.
        max_subcompactions: u32 = 1, Mutable, V7;
        /// Do not flush what only the WAL does not have when closing: such writes are lost.
        avoid_flush_during_shutdown: bool = false, Mutable, V7;
        /// Do not flush memtables that recovery filled, but keep their WALs.
        avoid_flush_during_recovery: bool = false, Fixed, V7;
        /// Recovery writes memtables to tables, too, once they take what `write_buffer_manager` gives, whatever `avoid_flush_during_recovery`
        /// says.
        enforce_write_buffer_manager_during_recovery: bool = true, Fixed, Later;
        /// Bytes gathered before a write to a table file reaches the operating system: through the page cache 128 KiB at most, with direct
        /// I/O and in file systems of your own all of it.
        writable_file_max_buffer_size: usize = 1 << 20, Mutable, V7;
        /// Bytes per second that writes start from when they have to be slowed down; 0: 16 MiB.
        delayed_write_rate: u64 = 16 << 20, Mutable, V7;
        /// Memtables of all column families together take so many bytes before the largest one is flushed; 0: any. With a
        /// `write_buffer_manager`, that one decides.
        db_write_buffer_size: usize = 0, Fixed, V7;
        /// When WALs take so many bytes, the memtables that keep the oldest one alive are flushed.
        /// 0: four times what all memtables may take.
        max_total_wal_size: u64 = 0, Mutable, V7;
        /// How many table files may be open at once; -1: all of them.
        max_open_files: i32 = -1, Mutable, V7;
        /// So many threads open tables when the database is opened, or ask for their sizes if `open_files_async` leaves more for later;
        /// below 1 is 1.
        max_file_opening_threads: i32 = 16, Fixed, V7;
        /// Start writing back table files after each so many bytes. The larger, the longer reads wait behind a piece. 0 leaves it to
        /// the system, but for flushes, whose last sync writers may wait for: those start it after each MiB.
        bytes_per_sync: u64 = 1 << 20, Mutable, V7;
        /// The same for WALs.
        wal_bytes_per_sync: u64 = 0, Mutable, V7;
        /// Compactions read so many bytes of each table ahead; those of more than 16 tables that overlap share what 16 would. The
        /// larger, the longer other reads wait behind a piece; a disk that takes milliseconds for one needs more.
        compaction_readahead_size: usize = 256 << 10, Mutable, V7;
        /// A MANIFEST of so many bytes is replaced by a new one, unless `max_manifest_space_amp_pct` lets it grow further.
        max_manifest_file_size: u64 = 1 << 30, Mutable, V7;
        /// A MANIFEST is not replaced before it is by so many percent larger than it was at first. Below 0 is 0. With a
        /// `max_manifest_file_size` of 1 MiB or so it decides: at 100 about each byte is written twice, at 500 the MANIFEST is up to
        /// six times as large as need be, and at 0 each change writes it anew once it is that large. Ingestion, and creating and
        /// dropping column families, begin a new one a quarter later: somebody waits for them.
        max_manifest_space_amp_pct: i32 = 500, Mutable, Later;
        /// Closing reads the MANIFEST back and compares it with what was written. If it is not that, a new one is written.
        verify_manifest_content_on_close: bool = false, Mutable, Later;
        /// Look for tables that got too old (`ttl`, `periodic_compaction_seconds`) after so many seconds in which
        /// nothing else made compactions look; 0: never.
        max_compaction_trigger_wakeup_seconds: u64 = 43200, Mutable, Later;
        /// The hours of each day in which there is less to do, in UTC, as `04:30-07:30`, the last minute included; over midnight
        /// if they end before they begin. Files that would get too old (`periodic_compaction_seconds`) before the next day's begin are
        /// rewritten in them. If that is in less than a day, what was made in these hours waits for its time (RocksDB rewrites
        /// it over and over). Compactions are looked for when they begin, unless `max_compaction_trigger_wakeup_seconds` is 0.
        /// Empty: none.
        daily_offpeak_time_utc: String = String::new(), Mutable, Later;
        /// Write statistics to LOG after each so many seconds; 0: never.
        stats_dump_period_sec: u32 = 600, Mutable, V7;
        /// Add what statistics were raised by to their history after each so many seconds, see
        /// [`Db::stats_history`](crate::Db::stats_history); 0: never.
        stats_persist_period_sec: u32 = 600, Mutable, V7;
        /// Keep the history of statistics in the database, in its column family `___rocksdb_stats_history___`, which is made if
        /// it is missing. Nothing goes from it by itself. Where there is one it is opened, whoever asks for it or not.
        persist_stats_to_disk: bool = false, Fixed, V7;
        /// Bytes that the history of statistics takes in memory; the oldest periods go.
        stats_history_buffer_size: usize = 1 << 20, Mutable, V7;
        /// Tell the system that table files are read at random. Otherwise it reads ahead as it sees fit.
        advise_random_on_open: bool = true, Fixed, V7;
        /// Reserve disk space for files before they are written: a WAL that is synced again and again grows 1 MiB ahead,
        /// in zeros, which spares most syncs the file system's journal. One that is not synced for 1 MiB grows 32 KiB ahead on ext4, XFS and
        /// tmpfs, and records are stored to memory that its end is mapped to, which outlives the process as a write does; if such a file
        /// system fails, the process may end by SIGBUS where a write would be an error. Closing a WAL cuts the zeros off; a crash leaves them.
        /// A secondary instance of RocksDB does not look behind them for what comes later; one of Ironstone does.
        allow_fallocate: bool = true, Fixed, V7;
        /// Read table files past the page cache.
        use_direct_reads: bool = false, Fixed, V7;
        /// Write and read past the page cache in flushes and compactions.
        use_direct_io_for_flush_and_compaction: bool = false, Fixed, V7;
        /// Read past the page cache in compactions: what they read once does not push out what users read.
        use_direct_io_for_compaction_reads: bool = false, Fixed, Later;
        /// Messages of errors may show keys. Without, they say how long these are. (The property `sstables` shows keys in any case.)
        allow_data_in_errors: bool = false, Fixed, V7;
        /// Create the database if it is missing.
        create_if_missing: bool = false, Fixed, V7;
        /// Create column families that are asked for and missing.
        create_missing_column_families: bool = false, Fixed, V7;
        /// Refuse to open a database that exists.
        error_if_exists: bool = false, Fixed, V7;
        /// Flushes take all column families that have something, and install their tables in one step: also what no WAL
        /// holds is then at one point of the order of writes in all of them, whenever the database dies. `flush_cfs` does
        /// so with the column families that it is given.
        atomic_flush: bool = false, Fixed, V7;
        /// Stop at the first sign of damage instead of going on with what is left.
        paranoid_checks: bool = true, Fixed, V7;
        /// Look only whether tables are there in their sizes when the database is opened, and open them in the background
        /// afterwards: a database of 10,000 tables is there at once. A table that cannot be opened is then an error of the
        /// reads that need it, and one of the background (`BackgroundErrorReason::AsyncFileOpen`), after which nothing is
        /// written. A database that is opened for reading only opens each table at the first read of it; a secondary
        /// instance opens all at once all the same, since its primary may remove them.
        open_files_async: bool = false, Fixed, Later;
        /// Count the entries of a flush on both sides and compare.
        flush_verify_memtable_count: bool = true, Fixed, V7;
        /// Count the entries of a compaction on both sides and compare.
        compaction_verify_record_count: bool = true, Fixed, Later;
        /// Compare the unique id in each table file with that in the MANIFEST when it is opened.
        verify_sst_unique_id_in_manifest: bool = true, Fixed, V7;
        /// Sync with `fsync` instead of `fdatasync`.
        use_fsync: bool = false, Fixed, V7;
        /// How many LOG files are kept.
        keep_log_file_num: usize = 1000, Fixed, V7;
        /// How many WALs are kept to be overwritten instead of new ones created.
        recycle_log_file_num: usize = 0, Fixed, V7;
        /// A LOG of so many seconds is set aside; 0: never.
        log_file_time_to_roll: u64 = 0, Fixed, V7;
        /// A LOG of so many bytes is set aside; 0: never.
        max_log_file_size: u64 = 0, Fixed, V7;
        /// Where LOG files are; empty: in the database directory.
        db_log_dir: PathBuf = PathBuf::new(), Fixed, V7;
        /// Where WALs are; empty: in the database directory.
        wal_dir: PathBuf = PathBuf::new(), Fixed, V7;
        /// Obsolete WALs are kept in `archive/` up to so many MiB; 0 with `wal_ttl_seconds` 0: none.
        wal_size_limit_mb as "WAL_size_limit_MB": u64 = 0, Fixed, V7;
        /// Obsolete WALs are kept in `archive/` for so many seconds.
        wal_ttl_seconds as "WAL_ttl_seconds": u64 = 0, Fixed, V7;
        /// How often the database tries to go on by itself after a failure that may pass ([`Error::is_retryable`](crate::Error::is_retryable)); 0: it
        /// waits for `resume`.
        max_bgerror_resume_count: i32 = i32::MAX, Fixed, V7;
        /// Microseconds between two such tries, and after a compaction that failed so until another one begins (RocksDB: a second).
        bgerror_resume_retry_interval: u64 = 1_000_000, Fixed, V7;
        /// What recovery does about a WAL that does not end cleanly.
        wal_recovery_mode: WalRecoveryMode = WalRecoveryMode::PointInTimeRecovery, Fixed, V7;
        /// Decides about each batch that is replayed from WALs; none: all are replayed.
        wal_filter: Option<Arc<dyn WalFilter>> = None, Fixed, V7;
        /// Open with the newest state of each column family whose tables are all there, by whatever MANIFEST is there,
        /// instead of failing for a missing or cut file. A column family without such a state is empty. No WAL is
        /// replayed. What is not part of the database any more goes to its subdirectory `lost`, and LOG says why.
        /// Column families that were changed together go back together. Secondaries ignore it.
        ///
        /// ```
        /// use ironstone::{Db, Options};
        ///
        /// let mut options = Options::in_memory();
        /// let db = Db::open(&options, "/db")?;
        /// for version in ["1", "2"] {
        ///     db.put(b"page", version)?;
        ///     db.flush()?;
        /// }
        /// let newest = db.live_files().into_iter().max_by_key(|table| table.number).unwrap();
        /// db.close()?;
        /// options.db.env.fs.remove(&newest.directory.join(format!("{:06}.sst", newest.number.0)))?;
        /// assert!(Db::open(&options, "/db").is_err());
        ///
        /// options.db.best_efforts_recovery = true;
        /// let db = Db::open(&options, "/db")?;
        /// assert_eq!(db.get(b"page")?.as_deref(), Some(&b"1"[..]));
        /// # Ok::<_, ironstone::Error>(())
        /// ```
        best_efforts_recovery: bool = false, Fixed, V7;
        /// Told what happens in the background. In text `{name:name}`, of those that are registered
        /// ([`object_registry`](crate::object_registry)).
        listeners: Vec<Arc<dyn EventListener>> = Vec::new(), Fixed, Later;
        /// Of a follower: after how many milliseconds it reads the leader's MANIFEST again.
        follower_refresh_catchup_period_ms: u64 = 10_000, Fixed, Later;
        /// Of a follower: how often in a row it tries to, before LOG says that it cannot.
        follower_catchup_retry_count: u64 = 10, Fixed, Later;
        /// Of a follower: after how many milliseconds it tries again.
        follower_catchup_retry_wait_ms: u64 = 100, Fixed, Later;
        /// Hold RocksDB's WALs, too, to what they say about the ones before them; those of Ironstone always say it, and
        /// are always held to it.
        track_and_verify_wals: bool = false, Fixed, Later;
        /// Writes stay in memory until `flush_wal` is called.
        manual_wal_flush: bool = false, Fixed, V7;
        /// Compress the records of WALs: kNoCompression or kZSTD. For others there is a note in LOG, and no compression.
        wal_compression: CompressionKind = CompressionKind::None, Fixed, V7;
        /// Keep a list of what threads do, for [`Db::thread_list`](crate::Db::thread_list).
        enable_thread_tracking: bool = false, Fixed, V7;
        /// The least severe lines that go to LOG.
        info_log_level: InfoLogLevel = InfoLogLevel::Info, Fixed, V7;
        /// Write the database's id to the MANIFEST.
        write_dbid_to_manifest: bool = true, Fixed, V7;
        /// `cf_allow_ingest_behind` of all column families.
        allow_ingest_behind: bool = false, Fixed, V7;
        /// Write the database's id to IDENTITY.
        write_identity_file: bool = true, Fixed, Later;
        /// Map tables into memory instead of reading them by calls. A block that is read is copied from there, checked and cached as always;
        /// a plain or cuckoo table is used where it lies. For file systems of the operating system; others read as without. A table
        /// that somebody cuts meanwhile ends the process (SIGBUS), as with RocksDB.
        allow_mmap_reads: bool = false, Fixed, V7;
        /// What table files say about the machine that wrote them; `__hostname__`: its name.
        db_host_id: String = HOST_NAME.to_owned(), Fixed, V7;
        /// Fail a compaction that meets a single delete for a key that was written more than once.
        enforce_single_del_contracts: bool = true, Fixed, V7;
        /// Iterators find every key, as with `total_order_seek`, unless they ask for `prefix_same_as_start`.
        prefix_seek_opt_in_only: bool = false, Fixed, Later;
        /// Makes checksums of whole tables, which the MANIFEST keeps; none: there are none.
        file_checksum_gen_factory: Option<Arc<dyn FileChecksumGenFactory>> = None, Fixed, V7;
        /// Where to count; none: nowhere.
        ///
        /// ```
        /// use ironstone::statistics::{Histogram, Ticker};
        /// use ironstone::{Db, Options, Statistics};
        /// use std::sync::Arc;
        ///
        /// let statistics = Arc::new(Statistics::new());
        /// let mut options = Options::in_memory();
        /// options.db.statistics = Some(Arc::clone(&statistics));
        /// let db = Db::open(&options, "/db")?;
        /// db.put(b"iron", b"Fe")?;
        /// db.get(b"iron")?;
        /// db.get(b"gold")?;
        /// assert_eq!(statistics.ticker(Ticker::NumberKeysWritten), 1);
        /// assert_eq!(statistics.ticker(Ticker::NumberKeysRead), 2);
        /// assert_eq!(statistics.histogram(Histogram::BytesPerRead).max, 2.0);
        /// assert!(statistics.to_string().contains("rocksdb.number.keys.written COUNT : 1"));
        /// # Ok::<_, ironstone::Error>(())
        /// ```
        statistics: Option<Arc<Statistics>> = None, Fixed, Later;
    }
    rows {
        ignored("max_write_batch_group_size_bytes", "uint64", "1048576", Change::Fixed, Since::V7, "a leader takes along what waits");
        ignored("manifest_preallocation_size", "size", "4194304", Change::Fixed, Since::V7, "only speed depends on it");
        ignored("delete_obsolete_files_period_micros", "uint64", "21600000000", Change::Mutable, Since::V7, "files are removed as soon as nobody needs them");
        ignored("strict_bytes_per_sync", "bool", "false", Change::Mutable, Since::V7, "only the pace of writing back depends on it");
        ignored("optimize_manifest_for_recovery", "bool", "false", Change::Mutable, Since::Later, "only the speed of opening depends on it");
        ignored("fast_sst_open", "bool", "false", Change::Mutable, Since::Later, "only the speed of opening depends on it");
        ignored("allow_mmap_writes", "bool", "false", Change::Fixed, Since::V7, "files are written, not mapped");
        ignored("is_fd_close_on_exec", "bool", "true", Change::Fixed, Since::V7, "files are always closed on exec");
        ignored("skip_stats_update_on_db_open", "bool", "false", Change::Fixed, Since::V7, "opening reads no statistics from tables");
        ignored("use_adaptive_mutex", "bool", "false", Change::Fixed, Since::V7, "locks always spin before they sleep");
        ignored("read_io_executor_threads", "int", "1", Change::Fixed, Since::Later, "only the speed of reads depends on it");
        ignored("table_cache_numshardbits", "int", "6", Change::Fixed, Since::V7, "the table cache has its own shards");
        ignored("async_wal_precreate", "bool", "false", Change::Fixed, Since::Later, "only the speed of switching WALs depends on it");
        ignored("enable_pipelined_write", "bool", "false", Change::Fixed, Since::V7, "the one commit pipeline does it");
        ignored("unordered_write", "bool", "false", Change::Fixed, Since::V7, "the one commit pipeline promises more");
        ignored("two_write_queues", "bool", "false", Change::Fixed, Since::V7, "the one commit pipeline does it");
        ignored("allow_concurrent_memtable_write", "bool", "true", Change::Fixed, Since::V7, "every memtable takes concurrent writes");
        ignored("enable_write_thread_adaptive_yield", "bool", "true", Change::Fixed, Since::V7, "writers wait in their own way");
        ignored("write_thread_max_yield_usec", "uint64", "100", Change::Fixed, Since::V7, "writers wait in their own way");
        ignored("write_thread_slow_yield_usec", "uint64", "3", Change::Fixed, Since::V7, "writers wait in their own way");
        ignored("dump_malloc_stats", "bool", "false", Change::Fixed, Since::V7, "the allocator has no statistics");
        ignored("background_close_inactive_wals", "bool", "false", Change::Fixed, Since::Later, "only latency depends on it");
        ignored("avoid_unnecessary_blocking_io", "bool", "false", Change::Fixed, Since::V7, "only latency depends on it");
        ignored("reuse_manifest_on_open", "bool", "false", Change::Fixed, Since::Later, "only the speed of opening depends on it");
        ignored("log_readahead_size", "size", "0", Change::Fixed, Since::V7, "only the speed of opening depends on it");
        ignored("lowest_used_cache_tier", "CacheTier", "kNonVolatileBlockTier", Change::Fixed, Since::V7, "there is one tier");
        ignored("metadata_write_temperature", "Temperature", "kUnknown", Change::Fixed, Since::Later, "the file system takes no such hint");
        ignored("wal_write_temperature", "Temperature", "kUnknown", Change::Fixed, Since::Later, "the file system takes no such hint");
        ignored("track_and_verify_wals_in_manifest", "bool", "false", Change::Fixed, Since::V7, "every flush tracks the closed WALs that stay needed");
        refused("allow_2pc", "bool", &["false"], Change::Fixed, Since::V7, "two-phase commit");
        OptionSpec {
            name: "rate_limiter_bytes_per_sec",
            kind: "uint64",
            change: Change::Fixed,
            since: Since::Later,
            status: Status::Built {
                get: |options| options.rate().to_string(),
                set: |options, text| options.set_rate(text),
            },
        };
        OptionSpec {
            name: "env",
            kind: "Env",
            change: Change::Fixed,
            since: Since::Later,
            status: Status::Built {
                get: |_| "default".to_owned(), // Never written.
                set: |options, text| {
                    options.env = env_of(text)?;
                    Ok(())
                },
            },
        };
        deprecated("rate_limiter", "RateLimiter");
        deprecated("allow_os_buffer", "bool");
        deprecated("base_background_compactions", "int");
        deprecated("use_direct_writes", "bool");
        deprecated("disableDataSync", "bool");
        deprecated("disable_data_sync", "bool");
        deprecated("experimental_allow_mempurge", "bool");
        deprecated("experimental_mempurge_policy", "string");
        deprecated("experimental_mempurge_threshold", "double");
        deprecated("skip_log_error_on_recovery", "bool");
        deprecated("skip_checking_sst_file_sizes_on_db_open", "bool");
        deprecated("new_table_reader_for_compaction_inputs", "bool");
        deprecated("random_access_max_buffer_size", "size");
        deprecated("fail_if_options_file_error", "bool");
        deprecated("access_hint_on_compaction_start", "AccessHint");
        deprecated("preserve_deletes", "bool");
        deprecated("concurrent_prepare", "bool");
        deprecated("seq_per_batch", "bool");
    }
    fields {
        /// Paces the writes of flushes and compactions, and if its [`mode`](RateLimiter::mode) says so what compactions read, and reads
        /// that ask for it ([`ReadOptions::rate_limiter_priority`](crate::ReadOptions)). May be shared between databases. In text:
        /// `rate_limiter_bytes_per_sec`.
        ///
        /// ```
        /// use ironstone::vfs::{Clock, ManualClock};
        /// use ironstone::{CompressionKind, Db, GenericRateLimiter, IoPriority, Options, RateLimiter, RateLimiterOptions};
        /// use std::sync::Arc;
        ///
        /// let clock = Arc::new(ManualClock::new(0)); // In the place of the system's: waiting moves it on.
        /// let tuned = RateLimiterOptions { auto_tuned: true, ..RateLimiterOptions::default() };
        /// let limiter = Arc::new(GenericRateLimiter::with_options(1 << 20, tuned, clock.clone()));
        /// assert_eq!(limiter.bytes_per_second(), Some(512 << 10)); // It begins with one half.
        ///
        /// let mut options = Options::in_memory();
        /// options.db.rate_limiter = Some(limiter.clone());
        /// options.cf.compression = CompressionKind::None;
        /// let db = Db::open(&options, "/db")?;
        /// for key in ["a", "b"] {
        ///     db.put(key, vec![b'x'; 6 << 20])?;
        ///     db.flush()?; // With high priority, and compactions with low.
        /// }
        /// assert!(limiter.total_bytes_through(IoPriority::High) >= 12 << 20);
        /// assert!(clock.monotonic_nanos() >= 12_000_000_000);
        /// assert!(limiter.bytes_per_second() > Some(512 << 10)); // The flushes needed more.
        /// # Ok::<_, ironstone::Error>(())
        /// ```
        rate_limiter: Option<Arc<dyn RateLimiter>> = None;
        /// Bounds what memtables take, over all databases that have the same one.
        write_buffer_manager: Option<Arc<WriteBufferManager>> = None;
        /// Keeps what point reads find in tables, for all databases that have the same one.
        row_cache: Option<Arc<RowCache>> = None;
        /// Bounds the space of tables and the rate at which files are removed, over all databases that have the same one.
        sst_file_manager: Option<Arc<SstFileManager>> = None;
        /// Where tables are, at most four directories: new ones go to the first, deeper levels (larger files, with universal
        /// compaction) to those after it, by their target sizes. Empty: the database's own directory. A table that stays
        /// in one directory stays there when the sizes change. More than one with levelled and universal compaction only.
        db_paths: Vec<DbPath> = Vec::new();
        /// Files and clock. In text, where it is never written: `default`, `MockEnv` (in memory), the name of one that is registered, or
        /// `{id=CompositeEnv;file_system=name;clock=name;}` of those that are.
        ///
        /// A file system of your own that counts files, around the one in memory:
        ///
        /// ```
        /// use ironstone::vfs::mem::MemFileSystem;
        /// use ironstone::vfs::{FileSystem, WritableFile, WriteOptions};
        /// use ironstone::{Db, Options, Result};
        /// use std::path::Path;
        /// use std::sync::Arc;
        /// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
        ///
        /// #[derive(Debug)]
        /// struct Counting(MemFileSystem, AtomicU64);
        ///
        /// impl FileSystem for Counting {
        ///     fn create(&self, path: &Path, options: WriteOptions) -> Result<Box<dyn WritableFile>> {
        ///         self.1.fetch_add(1, Relaxed);
        ///         self.0.create(path, options)
        ///     }
        ///     ironstone::vfs::pass_on! { self.0: open_sequential open_random append_to reuse open_directory exists list remove
        ///         rename link create_dir_all remove_dir size modified_seconds free_space lock absolute }
        /// }
        ///
        /// let counting = Arc::new(Counting(MemFileSystem::volatile(), AtomicU64::new(0)));
        /// let mut options = Options::in_memory();
        /// options.db.env.fs = counting.clone();
        /// let db = Db::open(&options, "/db")?;
        /// db.put(b"iron", b"Fe")?;
        /// let before = counting.1.load(Relaxed);
        /// db.flush()?;
        /// assert!(counting.1.load(Relaxed) > before); // A table, and perhaps a WAL.
        /// # Ok::<_, ironstone::Error>(())
        /// ```
        env: Env = Env::os();
        /// The kinds of files whose data goes to the file system with a CRC-32C of each append
        /// ([`WritableFile::append_checked`](crate::vfs::WritableFile::append_checked)), for file systems that compare it. Those of this
        /// repository do, but for the operating system's. Files that are copied from others have none, as in RocksDB.
        checksum_handoff_file_types: ChecksumHandoffFileTypes = ChecksumHandoffFileTypes::default();
        /// The threads of the background. The default: those of the process, for all of its databases.
        thread_pool: Arc<ThreadPool> = ThreadPool::shared();
        /// Refuse to open when damage to a WAL is provably rot of bytes that had been durable, instead
        /// of going on without them: with `wal_recovery_mode` at its default only. RocksDB never does.
        strict_wal_recovery: bool = true;
        /// Takes the lines of LOG instead of the file.
        info_log: Option<Arc<dyn Logger>> = None;
    }
}

/// Kinds of files: RocksDB's `kWALFile`, `kTableFile` and `kDescriptorFile`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChecksumHandoffFileTypes {
    /// WALs.
    pub wal: bool,
    /// Tables, those of [`SstFileWriter`](crate::SstFileWriter) too.
    pub table: bool,
    /// The MANIFEST.
    pub descriptor: bool,
}

impl DbOptions {
    /// What the rate limiter lets through, in bytes per second; 0 if there is none.
    fn rate(&self) -> u64 {
        self.rate_limiter.as_ref().and_then(|limiter| limiter.bytes_per_second()).unwrap_or(0)
    }
    /// How tables are read.
    pub(crate) fn table_hints(&self) -> OpenHints {
        let access = if self.advise_random_on_open { Access::Random } else { Access::Unknown };
        OpenHints { direct: self.use_direct_reads, access, size: None }
    }
    fn set_rate(&mut self, text: &str) -> Result<(), OptionError> {
        self.rate_limiter = match u64::parse(text)? {
            0 => None,
            rate => Some(Arc::new(GenericRateLimiter::new(rate))),
        };
        Ok(())
    }
}
