//! Ironstone is an embedded, persistent, ordered key-value store: a log-structured merge tree that
//! reads and writes RocksDB's files.
//!
//! ```
//! use ironstone::{Db, Options, WriteBatch, WriteOptions};
//!
//! # fn main() -> ironstone::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! let mut options = Options::default();
//! options.db.create_if_missing = true;
//! let db = Db::open(&options, dir.path())?;
//!
//! let mut batch = WriteBatch::new();
//! batch.put(b"a", b"1");
//! batch.put(b"b", b"2");
//! db.write(&batch, &WriteOptions::synced())?;
//!
//! for entry in db.iter()?.entries() {
//!     let (key, value) = entry?;
//!     println!("{} = {}", key.escape_ascii(), value.escape_ascii());
//! }
//! db.close()?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod admin;
mod approximate_sizes;
mod background;
mod backup;
pub mod cassandra;
mod checkpoint;
mod column_family;
mod column_family_import;
mod column_family_metadata;
mod concurrent_task_limiter;
mod db;
mod empty_ranges;
mod engine;
mod file_copy;
mod info_log;
mod ingest;
mod inplace_callback;
mod layer_options;
mod listener;
mod memtables;
pub mod merge_operators;
pub mod object_registry;
mod open;
mod option_change_migration;
pub mod options;
mod parallel;
mod properties;
mod read;
mod repair;
mod settings;
mod snapshot;
mod sst_file_manager;
mod sst_file_reader;
mod sst_file_writer;
mod stackable_db;
mod state_lock;
mod stats_history;
mod storage_files;
mod table_cache;
mod table_iterator;
mod table_paths;
mod table_properties;
mod thread_list;
mod thread_pool;
mod totals;
mod trace;
mod ttl_db;
mod verify;
mod wal_files;
mod wal_filter;
mod write;
mod write_batch;
mod write_buffer_manager;

pub use admin::{FlushOptions, WaitForCompactOptions};
pub use approximate_sizes::{ApproximateMemTableStats, SizeApproximationOptions};
pub use background::manual::{CompactFilesOptions, CompactRangeOptions};
pub use backup::{
    BackupEngine, BackupEngineOptions, BackupFileInfo, BackupId, BackupInfo, CreateBackupOptions,
    ExcludeFilesCallback, MaybeExcludeBackupFile, ProgressCallback, RestoreMode, RestoreOptions,
};
pub use checkpoint::CreateCheckpointOptions;
pub use column_family::ColumnFamily;
pub use column_family_import::{ExportedColumnFamily, ExportedFile, ImportColumnFamilyOptions};
pub use column_family_metadata::{
    ColumnFamilyMetaData, ColumnFamilyMetaDataOptions, LevelMetaData, LiveFile,
};
pub use concurrent_task_limiter::ConcurrentTaskLimiter;
pub use db::{ColumnFamilyDescriptor, Db, FlushWalOptions, WriteOptions};
pub use info_log::InfoLogLevel;
pub use ingest::{FileIngestionHandle, IngestFiles, IngestOptions, PreparedFileInfo};
pub use inplace_callback::{InplaceCallback, UpdateStatus};
pub use listener::{
    BackgroundErrorReason, BackgroundErrorRecoveryInfo, BackgroundJobPressure, CompactionJobInfo,
    EventListener, ExternalFileIngestionInfo, FlushJobInfo, ManualFlushInfo, MemTableInfo,
    SubcompactionJobInfo, TableFileCreationBriefInfo, TableFileCreationInfo, TableFileDeletionInfo,
    TableInfo, WriteStallCause, WriteStallCondition, WriteStallInfo,
};
pub use memtables::FlushReason;
pub use open::ReadOnlyOptions;
pub use option_change_migration::{option_change_migration, option_change_migration_of};
pub use options::{
    BlockBasedTableOptions, ColumnFamilyOptions, CuckooTableOptions, DbOptions, FifoCompactionOptions, Goal,
    MetadataCacheOptions, Options, PlainTableOptions, UniversalCompactionOptions,
};
pub use read::db_iterator::{DbIterator, Entries};
pub use read::multi_cf_iterator::MultiCfIterator;
pub use read::pinned_value::PinnedValue;
pub use read::read_options::ReadOptions;
pub use read::row_cache::RowCache;
pub use repair::RepairReport;
pub use snapshot::Snapshot;
pub use sst_file_manager::{SstFileManager, SstFileManagerOptions};
pub use sst_file_reader::SstFileReader;
pub use sst_file_writer::{ExternalSstFileInfo, SstFileWriter};
pub use stackable_db::StackableDb;
pub use stats_history::{StatsHistoryIterator, StatsSlice};
pub use storage_files::{LiveFilesStorageInfoOptions, StorageFile};
pub use table_iterator::{RawEntry, TableIterator};
pub use table_paths::DbPath;
pub use thread_list::{ThreadOperation, ThreadStage, ThreadState, ThreadStatus, ThreadType};
pub use thread_pool::ThreadPool;
pub use trace::{
    BlockCacheHumanReadableTrace, BlockCacheTraceOptions, BlockCacheTraceReader, FileTraceReader,
    FileTraceWriter, IoTraceReader, IoTraceRecord, ReplayOptions, ReplayReport, Replayer, TraceOperation,
    TraceOptions, TraceReader, TraceRecord, TraceWriter,
};
pub use ttl_db::{ExpiredReads, TtlColumnFamily, TtlDb, TtlIterator, TtlValue};
pub use wal_files::{WalFile, WalIterator, WalUpdate};
pub use wal_filter::{WalFilter, WalProcessing};
pub use write::stalls::WriteStall;
pub use write::wal_lock::WalLock;
pub use write_batch::{BatchIter, BatchRecord, MAX_SLICE_BYTES, WriteBatch};
pub use write_buffer_manager::WriteBufferManager;

pub use ironstone_base::checksum::ChecksumKind;
#[doc(hidden)]
pub use ironstone_base::protection::planted;
pub use ironstone_base::{
    Code, ColumnFamilyId, Comparator, Error, FileKind, FileNumber, MergeOperator, Result, SequenceNumber,
    Severity, SliceTransform, Statistics, SubCode, UserComparator, perf, slice_transform, statistics,
};
pub use ironstone_cache::CacheOptions;
pub use ironstone_compaction::{
    BottommostPolicy, CompactionFilter, CompactionFilterFactory, CompactionPriority, CompactionReason,
    CompactionStats, CompactionStyle, FileTimes, FilterContext, FilterDecision, KeyRange, PartitionRequest,
    PartitionerContext, SstPartitioner, SstPartitionerFactory, SstPartitionerFixedPrefix, StopStyle,
    TableFileCreationReason,
};
pub use ironstone_compress::{CompressionKind, CompressionOptions};
pub use ironstone_memtable::{
    EntryId, MemTableEntries, MemTableKind, MemTableRep, MemTableRepFactory, SearchKey,
};
pub use ironstone_sst::block_trace::{BlockCacheTraceRecord, TableReaderCaller, TracedBlock};
pub use ironstone_sst::{
    BlockCache, CacheUsageOptions, CollectedBlock, CollectedEntry, CollectorContext,
    CompactOnDeletionCollectorFactory, DataBlockIndexType, EntryKind, FileChecksum, FileChecksumContext,
    FileChecksumGenCrc32cFactory, FileChecksumGenFactory, FileChecksumGenerator, FilterKind, FilterPolicy,
    FlushBlockContext, FlushBlockEveryKeyPolicyFactory, FlushBlockPolicy, FlushBlockPolicyFactory,
    IndexShortening, IndexType, LsmInfoAtCreation, OpenBlock, PersistentCache, PersistentCacheConfig,
    PersistentKey, PinningTier, PlainEncoding, PrepopulateBlockCache, ReadTier, SimCache, TableFilter,
    TableFormat, TableProperties, TablePropertiesCollector, TablePropertiesCollectorFactory,
    new_persistent_cache,
};
pub use ironstone_vfs as vfs;
pub use ironstone_vfs::watched::{FileOperationInfo, FileOperationType};
pub use ironstone_vfs::{
    GenericRateLimiter, IoKind, IoPriority, RateLimiter, RateLimiterMode, RateLimiterOptions,
};
pub use ironstone_wal::WalRecoveryMode;
