//! Tells an application what a database does in the background: flushes, compactions, stalls, failures, files.
//!
//! ```
//! use ironstone::{Db, EventListener, FlushJobInfo, Options};
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! #[derive(Default)]
//! struct FlushedBytes(AtomicU64);
//!
//! impl EventListener for FlushedBytes {
//!     fn on_flush_completed(&self, flush: &FlushJobInfo) {
//!         let bytes = flush.file.as_ref().map_or(0, |file| file.size);
//!         self.0.fetch_add(bytes, Ordering::Relaxed);
//!     }
//! }
//!
//! # fn main() -> ironstone::Result<()> {
//! let flushed = Arc::new(FlushedBytes::default());
//! let mut options = Options::default();
//! options.db.create_if_missing = true;
//! options.db.env = ironstone::vfs::Env::in_memory();
//! options.db.listeners.push(flushed.clone());
//! let db = Db::open(&options, "/db")?;
//! db.put(b"key", b"value")?;
//! db.flush()?;
//! db.close()?;
//! assert!(flushed.0.load(Ordering::Relaxed) > 0);
//! # Ok(())
//! # }
//! ```

use crate::info_log::{InfoLog, info, warning};
use crate::memtables::FlushReason;
use crate::table_paths::TablePaths;
use ironstone_base::sync::atomic::{AtomicBool, Ordering};
use ironstone_base::sync::{Arc, Mutex};
use ironstone_base::{ColumnFamilyId, Error, FileNumber, Result, SequenceNumber};
use ironstone_compaction::{CompactionReason, CompactionStats, TableFileCreationReason};
use ironstone_compress::CompressionKind;
use ironstone_version::FileMetaData;
use ironstone_vfs::Env;
use ironstone_vfs::watched::{FileOperationInfo, FileOperationType, FileOperationWatch, WatchedFileSystem};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

/// Is told what happens. All methods do nothing unless they are overridden. Names and occasions are RocksDB's.
///
/// Methods are called on background threads, or on the thread that asked for a flush, compaction or ingestion, while
/// no lock of the database is held: they may read and write it, but must not wait for background work, which waits
/// for them. Failures, stalls and sealed memtables are told soon after, in their order, on a thread of their own. A
/// panic is logged and otherwise ignored.
#[allow(unused_variables)]
pub trait EventListener: Send + Sync {
    /// The name that it is registered under in the [`object_registry`](crate::object_registry), for OPTIONS files. Default: none, and
    /// then it is not written to them.
    fn name(&self) -> &str {
        ""
    }
    /// Options of its own, as option texts have them: `name=value`, with `;` between several
    /// (`object_registry::print_options`). They stand beside its name, and are what it is made of again. Default: none.
    fn parameters(&self) -> Option<String> {
        None
    }
    /// A flush was asked for: by a call, to compact a range or to ingest files, for a copy or for closing. With one of several column
    /// families together it names all that have something, else one.
    fn on_manual_flush_scheduled(&self, flushes: &[ManualFlushInfo]) {}
    /// Whether operations on files are to be told of: asked once, when the database is opened. Default: no, and then they cost nothing.
    fn should_be_notified_on_file_io(&self) -> bool {
        false
    }
    /// Bytes of a file were read.
    ///
    /// This and the others of files are called where files of the database are read and written, LOG excepted, by threads that wait for
    /// it and hold locks: they must not use the database.
    fn on_file_read_finish(&self, info: &FileOperationInfo<'_>) {}
    /// Bytes were handed to a file, which may gather them before it writes.
    fn on_file_write_finish(&self, info: &FileOperationInfo<'_>) {}
    /// What a file had gathered was handed to the operating system.
    fn on_file_flush_finish(&self, info: &FileOperationInfo<'_>) {}
    /// A file was made durable.
    fn on_file_sync_finish(&self, info: &FileOperationInfo<'_>) {}
    /// The operating system was asked to begin writing a part of a file back (`bytes_per_sync`).
    fn on_file_range_sync_finish(&self, info: &FileOperationInfo<'_>) {}
    /// A file was cut.
    fn on_file_truncate_finish(&self, info: &FileOperationInfo<'_>) {}
    /// A file that was written was closed.
    fn on_file_close_finish(&self, info: &FileOperationInfo<'_>) {}
    /// One of these has failed: told after it.
    fn on_io_error(&self, info: &FileOperationInfo<'_>) {}
    /// Memtables are about to be written to a table.
    fn on_flush_begin(&self, flush: &FlushJobInfo) {}
    /// They are in a table, durable and visible. Who waited for it may go on a moment before this is called.
    fn on_flush_completed(&self, flush: &FlushJobInfo) {}
    /// Tables are about to be rewritten, moved or dropped.
    fn on_compaction_begin(&self, compaction: &CompactionJobInfo) {}
    /// The new tables are written, or it failed, but no read sees them yet, and no other compaction can have the old ones. That it
    /// could not be made durable is not in `status` yet.
    fn on_compaction_pre_commit(&self, compaction: &CompactionJobInfo) {}
    /// They were, or it failed: `status` says so.
    fn on_compaction_completed(&self, compaction: &CompactionJobInfo) {}
    /// A part of a compaction that rewrites tables begins, on the thread that does it. One that is not split has one part. Several may
    /// be told of at once.
    fn on_subcompaction_begin(&self, part: &SubcompactionJobInfo) {}
    /// It has ended, on the same thread: `status` says how.
    fn on_subcompaction_completed(&self, part: &SubcompactionJobInfo) {}
    /// A table is about to be written.
    fn on_table_file_creation_started(&self, file: &TableFileCreationBriefInfo) {}
    /// It was, or could not be: `status` says so. It may not be part of the database yet, and never be.
    fn on_table_file_created(&self, file: &TableFileCreationInfo) {}
    /// A table that nobody needs any more was removed, or could not be.
    fn on_table_file_deleted(&self, file: &TableFileDeletionInfo) {}
    /// A memtable takes no more writes: another one does.
    fn on_memtable_sealed(&self, memtable: &MemTableInfo) {}
    /// A file from outside became part of the database.
    fn on_external_file_ingested(&self, file: &ExternalFileIngestionInfo) {}
    /// Something failed, and writes are stopped; or a compaction failed by something that may pass, and is tried again while writes
    /// go on. (RocksDB's listeners may change the error here, or have it forgotten: these may not, since what was written before a
    /// sync that failed is not to be trusted before [`Db::resume`](crate::Db::resume).)
    fn on_background_error(&self, reason: BackgroundErrorReason, error: &Error) {}
    /// The database will try to go on by itself after `error`, unless somebody sets `auto_recovery` to false: then no listener after that one
    /// is asked, and the database waits for [`Db::resume`](crate::Db::resume). The tries begin when this has returned.
    fn on_error_recovery_begin(&self, error: &Error, auto_recovery: &mut bool) {}
    /// Writes are taken again after `error`.
    fn on_error_recovery_completed(&self, error: &Error) {}
    /// Writes are taken again, or the database tries no more to go on by itself: too many tries failed, something worse has happened, or
    /// it is closed.
    fn on_error_recovery_end(&self, recovery: &BackgroundErrorRecoveryInfo) {}
    /// A flush or a compaction has ended, whether anything of this is different or not.
    fn on_background_job_pressure_changed(&self, pressure: &BackgroundJobPressure) {}
    /// The database begins to close; what is under way still goes on. Once, also where opening it failed in the end.
    fn on_db_shutdown_begin(&self) {}
    /// Writes to a column family begin to be slowed down or stopped, or no longer are.
    fn on_stall_conditions_changed(&self, stall: &WriteStallInfo) {}
}

/// A flush that was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ManualFlushInfo {
    /// Whose memtables.
    pub cf_id: ColumnFamilyId,
    /// Its name.
    pub cf_name: String,
    /// For what.
    pub reason: FlushReason,
}

/// A flush.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FlushJobInfo {
    /// Whose memtables.
    pub cf_id: ColumnFamilyId,
    /// Its name.
    pub cf_name: String,
    /// Counts flushes and compactions of this opening.
    pub job_id: u64,
    /// Why the newest of its memtables was closed.
    pub reason: FlushReason,
    /// How many memtables are written.
    pub num_memtables: usize,
    /// How many entries they have.
    pub num_entries: u64,
    /// The table; `None` before it is there, and where nothing was left to write.
    pub file: Option<TableInfo>,
}

/// A table of the database.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TableInfo {
    /// Where it is.
    pub path: PathBuf,
    /// The number in its name.
    pub number: FileNumber,
    /// On which level.
    pub level: usize,
    /// In bytes.
    pub size: u64,
    /// The oldest write in it.
    pub smallest_seqno: SequenceNumber,
    /// The newest write in it.
    pub largest_seqno: SequenceNumber,
}

impl TableInfo {
    pub(crate) fn of(paths: &TablePaths, level: usize, file: &FileMetaData) -> Self {
        Self {
            path: paths.of_file(file),
            number: file.number,
            level,
            size: file.file_size,
            smallest_seqno: file.smallest_seqno,
            largest_seqno: file.largest_seqno,
        }
    }
}

/// A compaction.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CompactionJobInfo {
    /// Whose tables.
    pub cf_id: ColumnFamilyId,
    /// Its name.
    pub cf_name: String,
    /// Counts flushes and compactions of this opening.
    pub job_id: u64,
    /// Why.
    pub reason: CompactionReason,
    /// The first level that tables are taken from.
    pub base_input_level: usize,
    /// The level that they go to.
    pub output_level: usize,
    /// What is taken.
    pub input_files: Vec<TableInfo>,
    /// What it became, or was to become; empty before that is there.
    pub output_files: Vec<TableInfo>,
    /// The tables are moved or dropped as they are.
    pub is_trivial: bool,
    /// How it ended; `Ok` before it has.
    pub status: Result<()>,
    /// What it read and wrote; zeros before it has ended.
    pub stats: CompactionStats,
}

/// A part of a compaction: a range of its keys.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SubcompactionJobInfo {
    /// Whose tables.
    pub cf_id: ColumnFamilyId,
    /// Its name.
    pub cf_name: String,
    /// That of the compaction.
    pub job_id: u64,
    /// Counts the parts of a compaction, from 0.
    pub subcompaction_job_id: usize,
    /// Why the compaction runs.
    pub reason: CompactionReason,
    /// The first level that tables are taken from.
    pub base_input_level: usize,
    /// The level that they go to.
    pub output_level: usize,
    /// By which codec the new tables are compressed.
    pub compression: CompressionKind,
    /// How it ended; `Ok` before it has.
    pub status: Result<()>,
    /// What it read and wrote, as far as that is known of a part; zeros before it has ended, and if it failed.
    pub stats: CompactionStats,
}

/// A table that is about to be written.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TableFileCreationBriefInfo {
    /// Whose table.
    pub cf_name: String,
    /// Counts flushes and compactions of this opening; 0 while the database is opened.
    pub job_id: u64,
    /// By what.
    pub reason: TableFileCreationReason,
    /// Where it will be.
    pub path: PathBuf,
}

/// A table that was written, or could not be.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TableFileCreationInfo {
    /// Whose table.
    pub cf_name: String,
    /// Counts flushes and compactions of this opening; 0 while the database is opened.
    pub job_id: u64,
    /// By what.
    pub reason: TableFileCreationReason,
    /// Where it is, or was to be.
    pub path: PathBuf,
    /// In bytes; 0 if it could not be written.
    pub size: u64,
    /// Whether it could be.
    pub status: Result<()>,
}

/// A table that was removed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TableFileDeletionInfo {
    /// Where it was.
    pub path: PathBuf,
    /// The number in its name.
    pub number: FileNumber,
    /// Whether it could be. What could not be removed is, when the database is opened again.
    pub status: Result<()>,
}

/// A memtable that takes no more writes.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MemTableInfo {
    /// Whose.
    pub cf_name: String,
    /// How many entries it has, those left out that writers are still putting in.
    pub num_entries: u64,
    /// How many of them delete something.
    pub num_deletes: u64,
    /// The last write that it may hold.
    pub largest_seqno: SequenceNumber,
}

/// A file from outside.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ExternalFileIngestionInfo {
    /// Where to.
    pub cf_name: String,
    /// Where it came from.
    pub external_path: PathBuf,
    /// Where it is now.
    pub internal_path: PathBuf,
    /// On which level.
    pub level: usize,
    /// As which write its entries count; 0: as older than all.
    pub global_seqno: SequenceNumber,
}

/// What was under way when something failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BackgroundErrorReason {
    /// Memtables were written to a table.
    Flush,
    /// Tables were rewritten.
    Compaction,
    /// A batch was written to the WAL, or a WAL created or synced.
    WriteCallback,
    /// The MANIFEST was written for something else: a column family, a file from outside.
    ManifestWrite,
    /// A table was opened after the database was, with `open_files_async`.
    AsyncFileOpen,
    /// A background thread panicked.
    Internal,
}

impl std::fmt::Display for BackgroundErrorReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Flush => "flush",
            Self::Compaction => "compaction",
            Self::WriteCallback => "writing the WAL",
            Self::ManifestWrite => "writing the MANIFEST",
            Self::AsyncFileOpen => "opening a table",
            Self::Internal => "a background job",
        })
    }
}

/// How an attempt to go on after a failure ended.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BackgroundErrorRecoveryInfo {
    /// The failure.
    pub old_bg_error: Error,
    /// `Ok` if writes are taken again; else why it was given up.
    pub new_bg_error: Result<()>,
}

/// How busy the background of a database is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct BackgroundJobPressure {
    /// Compactions that run, and column families in which one may be due.
    pub compaction_scheduled: usize,
    /// Compactions that run, those that callers wait for included.
    pub compaction_running: usize,
    /// Of those scheduled: all that are not for the threads of the last level
    /// ([`ThreadPool::set_bottom_threads`](crate::ThreadPool::set_bottom_threads)).
    pub compaction_low_scheduled: usize,
    /// Of those that run: the same.
    pub compaction_low_running: usize,
    /// Of those scheduled: what runs on threads of the last level, and column families in which something waits for one.
    pub compaction_bottom_scheduled: usize,
    /// Of those that run: on threads of the last level.
    pub compaction_bottom_running: usize,
    /// Flushes that run or are due.
    pub flush_scheduled: usize,
    /// Flushes that run.
    pub flush_running: usize,
    /// How near writers are to being slowed down, because of files of level 0 or of bytes to compact, in the column family that is
    /// nearest: 0 far off, 100 there, more beyond.
    pub write_stall_proximity_pct: u64,
    /// Compactions use all their threads, since they begin to fall behind.
    pub compaction_speedup_active: bool,
}

/// How much writers are held up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WriteStallCondition {
    /// Not at all.
    #[default]
    Normal,
    /// They are slowed down.
    Delayed,
    /// They wait.
    Stopped,
}

/// What writers are held up by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum WriteStallCause {
    /// Memtables wait for their flush.
    MemtableLimit,
    /// Level 0 has too many files.
    L0FileCountLimit,
    /// Compaction has too many bytes to rewrite.
    PendingCompactionBytes,
    /// Memtables of several column families or databases take all that the write buffer manager gives. Of no column
    /// family: listeners are not told.
    WriteBufferManagerLimit,
    /// Tables take all the space that the `SstFileManager` allows: writes answer an error. Of no column family:
    /// listeners are told of a failure.
    SpaceLimit,
}

impl WriteStallCause {
    /// Those that are of a column family.
    pub const OF_COLUMN_FAMILY: [Self; 3] =
        [Self::MemtableLimit, Self::L0FileCountLimit, Self::PendingCompactionBytes];

    /// The name in RocksDB's properties; `space-limit` is not in them.
    pub fn name(self) -> &'static str {
        match self {
            Self::MemtableLimit => "memtable-limit",
            Self::L0FileCountLimit => "l0-file-count-limit",
            Self::PendingCompactionBytes => "pending-compaction-bytes",
            Self::WriteBufferManagerLimit => "write-buffer-manager-limit",
            Self::SpaceLimit => "space-limit",
        }
    }
}

/// A change of how much the writers of a column family are held up.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct WriteStallInfo {
    /// Whose.
    pub cf_name: String,
    /// How much before.
    pub previous: WriteStallCondition,
    /// How much now.
    pub current: WriteStallCondition,
    /// By what now.
    pub cause: Option<WriteStallCause>,
}

/// `env`, whose operations on files those of `listeners` are told of that want it.
pub(crate) fn watched(env: Env, listeners: &[Arc<dyn EventListener>], log: &Arc<InfoLog>) -> Env {
    let mut all = listeners.to_vec();
    all.retain(|listener| listener.should_be_notified_on_file_io());
    if all.is_empty() {
        return env;
    }
    let (clock, watch) = (Arc::clone(&env.clock), Arc::new(Listeners::new(&all, log)));
    Env { fs: Arc::new(WatchedFileSystem::new(env.fs, Arc::clone(&clock), watch)), clock }
}

impl FileOperationWatch for Listeners {
    fn finished(&self, info: &FileOperationInfo<'_>) {
        self.tell(|listener| {
            match info.operation {
                FileOperationType::Read => listener.on_file_read_finish(info),
                FileOperationType::Append => listener.on_file_write_finish(info),
                FileOperationType::Flush => listener.on_file_flush_finish(info),
                FileOperationType::Sync => listener.on_file_sync_finish(info),
                FileOperationType::RangeSync => listener.on_file_range_sync_finish(info),
                FileOperationType::Truncate => listener.on_file_truncate_finish(info),
                FileOperationType::Close => listener.on_file_close_finish(info),
            }
            if info.status.is_err() {
                listener.on_io_error(info);
            }
        });
    }
}

/// What happened while a lock was held.
pub(crate) enum Event {
    Sealed(MemTableInfo),
    Failed(BackgroundErrorReason, Error),
    WillTryAgain(Error),
    Recovered(Error),
    NotRecovered(BackgroundErrorRecoveryInfo),
    Stalls(WriteStallInfo),
}

/// The listeners of a database.
pub(crate) struct Listeners {
    all: Vec<Arc<dyn EventListener>>,
    log: Arc<InfoLog>,
    waiting: Mutex<Vec<Event>>,
    /// Whether they know that it closes. Relaxed: says nothing of anything else.
    shutdown_told: AtomicBool,
}

impl Listeners {
    pub(crate) fn new(all: &[Arc<dyn EventListener>], log: &Arc<InfoLog>) -> Self {
        let (all, log) = (all.to_vec(), Arc::clone(log));
        Self { all, log, waiting: Mutex::default(), shutdown_told: AtomicBool::new(false) }
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
    /// Calls all of them. No lock may be held.
    pub(crate) fn tell(&self, call: impl Fn(&dyn EventListener)) {
        for listener in &self.all {
            if catch_unwind(AssertUnwindSafe(|| call(&**listener))).is_err() {
                warning!(self.log, "an event listener panicked");
            }
        }
    }
    /// Tells that the database closes, the first time. No lock may be held.
    pub(crate) fn tell_shutdown(&self) {
        if !self.shutdown_told.swap(true, Ordering::Relaxed) {
            self.tell(|listener| listener.on_db_shutdown_begin());
        }
    }
    /// Keeps an event until locks are let go of. Answers whether somebody is to be told.
    pub(crate) fn note(&self, event: Event) -> bool {
        if self.is_empty() {
            return false;
        }
        self.waiting.lock().push(event);
        true
    }
    /// Tells what was kept. No lock may be held. Answers whether tries to go on are to begin: somebody was told of them, and nobody
    /// was against it.
    pub(crate) fn deliver(&self) -> bool {
        if self.is_empty() {
            return false;
        }
        let tries = Cell::new(false);
        let events = std::mem::take(&mut *self.waiting.lock());
        for event in &events {
            if let Event::WillTryAgain(error) = event {
                tries.set(self.may_try_again(error));
            }
            self.tell(|listener| match event {
                Event::Sealed(memtable) => listener.on_memtable_sealed(memtable),
                Event::Failed(reason, error) => listener.on_background_error(*reason, error),
                Event::WillTryAgain(_) => {}
                Event::Recovered(error) => {
                    listener.on_error_recovery_completed(error);
                    let (old_bg_error, new_bg_error) = (error.clone(), Ok(()));
                    listener
                        .on_error_recovery_end(&BackgroundErrorRecoveryInfo { old_bg_error, new_bg_error });
                }
                Event::NotRecovered(info) => listener.on_error_recovery_end(info),
                Event::Stalls(info) => listener.on_stall_conditions_changed(info),
            });
        }
        tries.get()
    }
    fn may_try_again(&self, error: &Error) -> bool {
        let wanted = Cell::new(true);
        self.tell(|listener| {
            if wanted.get() {
                let mut auto_recovery = true;
                listener.on_error_recovery_begin(error, &mut auto_recovery);
                wanted.set(auto_recovery);
            }
        });
        if !wanted.get() {
            info!(self.log, "a listener wants no tries to go on after: {error}");
        }
        wanted.get()
    }
}
