//! The handle of an open database: what users call.

use crate::background::Workers;
use crate::column_family::{ColumnFamily, ColumnFamilyData};
use crate::engine::Engine;
use crate::listener::BackgroundErrorReason;
use crate::options::{ColumnFamilyOptions, DbOptions, Options};
use crate::read::acquire;
use crate::read::db_iterator::{Bounds, DbIterator};
use crate::read::multi_get::MultiGetLimits;
use crate::read::pinned_value::PinnedValue;
use crate::read::read_options::ReadOptions;
use crate::read::source::{IteratorSource, Places};
use crate::read::view::SuperVersion;
use crate::snapshot::Snapshot;
use crate::table_cache::TableSlot;
use crate::thread_list::ThreadOperation;
use crate::write::commit::{LogLevel, LoggedByOther};
use crate::write_batch::WriteBatch;
use ironstone_base::perf::{self, PerfMetric};
use ironstone_base::statistics::{ActivityGuard, Histogram, IoActivity, Ticker};
use ironstone_base::sync::atomic::Ordering;
use ironstone_base::sync::{Arc, Mutex, SwapGuard};
use ironstone_base::{Code, ColumnFamilyId, Error, Result, SequenceNumber, Severity, Statistics, ValueType};
use ironstone_sst::block_trace::TableReaderCaller;
use ironstone_vfs::{IoKind, IoPriority, PerfCpuTimer, PerfTimer, StatsTimer};
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;

/// A column family to open or to create: its name and its options.
#[derive(Clone)]
pub struct ColumnFamilyDescriptor {
    /// Its name.
    pub name: String,
    /// Its options.
    pub options: ColumnFamilyOptions,
}

impl ColumnFamilyDescriptor {
    /// Names a column family and its options.
    pub fn new(name: impl Into<String>, options: ColumnFamilyOptions) -> Self {
        Self { name: name.into(), options }
    }
}

/// How one write is done. The default: logged, handed to the operating system, not synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteOptions {
    /// Return only when the write, and every earlier one in the WAL, would survive a power failure.
    pub sync: bool,
    /// Do not log the write: it is lost if the process ends before its memtable is flushed.
    pub disable_wal: bool,
    /// Answer `Incomplete` instead of waiting when writes are slowed down or stopped.
    pub no_slowdown: bool,
    /// Give way: wait, or be refused with `no_slowdown`, as soon as compaction falls behind at all.
    pub low_pri: bool,
    /// Leave out what goes to column families that do not exist, since they were dropped, instead of refusing the batch. Default
    /// false.
    pub ignore_missing_column_families: bool,
    /// Wait for the [`rate_limiter`](crate::DbOptions::rate_limiter), if there is one whose mode covers writes, before the batch is
    /// written to the WAL. `None`, the default (RocksDB's `IO_TOTAL`): do not. `InvalidArgument` for others than
    /// [`IoPriority::User`], with `disable_wal`, and with `manual_wal_flush`, where [`Db::flush_wal_with`] may wait for it.
    pub rate_limiter_priority: Option<IoPriority>,
    /// 8: each write of the batch gets a checksum now, unless the batch was made with them, and keeps it on the way into the
    /// log and into memtables (see [`WriteBatch::with_protection`]). 0, the default: no checksums. Others are
    /// `InvalidArgument`.
    pub protection_bytes_per_key: usize,
}

impl WriteOptions {
    /// [`sync`](Self::sync) on.
    pub fn synced() -> Self {
        Self { sync: true, ..Self::default() }
    }
}

/// How [`Db::flush_wal_with`] flushes the WAL.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlushWalOptions {
    /// Hand it to the device as well. Default false.
    pub sync: bool,
    /// Wait for the [`rate_limiter`](crate::DbOptions::rate_limiter), at this priority, before the buffer of `manual_wal_flush` is written.
    /// `None`, the default (RocksDB's `IO_TOTAL`): do not.
    pub rate_limiter_priority: Option<IoPriority>,
}

/// An open database. Share it between threads with `Arc`, or by reference.
///
/// ```
/// use ironstone::{Db, Options};
///
/// # fn main() -> ironstone::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let mut options = Options::default();
/// options.db.create_if_missing = true;
/// let db = Db::open(&options, dir.path())?;
/// db.put(b"iron", b"Fe")?;
/// assert_eq!(db.get(b"iron")?.as_deref(), Some(&b"Fe"[..]));
/// db.delete(b"iron")?;
/// assert_eq!(db.get(b"iron")?, None);
/// db.close()?;
/// # Ok(())
/// # }
/// ```
pub struct Db {
    engine: Arc<Engine>,
    default: ColumnFamily,
    /// Taken by the first close.
    workers: Mutex<Option<Workers>>,
}

impl Db {
    pub(crate) fn start(engine: Arc<Engine>) -> Self {
        let default = {
            let state = engine.state.lock();
            let family = state.families.get(&ColumnFamilyId::DEFAULT).expect("every database has it");
            ColumnFamily(Arc::clone(&family.data))
        };
        let workers = engine.seat.clone().map(|seat| Workers::start(&engine, seat));
        Self { engine, default, workers: Mutex::new(workers) }
    }
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
    /// Asks for as many threads as `options` say.
    pub(crate) fn resize_workers(&self, options: &DbOptions) {
        if let Some(workers) = &*self.workers.lock() {
            workers.options_changed(&self.engine, options);
        }
    }

    /// Opens `slots` in the background.
    pub(crate) fn open_tables(&self, slots: Vec<Arc<TableSlot>>) {
        if let Some(workers) = &mut *self.workers.lock() {
            workers.open_tables(&self.engine, slots);
        }
    }

    /// The column family `default`.
    pub fn default_column_family(&self) -> &ColumnFamily {
        &self.default
    }
    /// Where the database is.
    pub fn path(&self) -> &Path {
        &self.engine.dir
    }
    /// The options in force: what the database was opened with, and what
    /// [`set_db_options`](Self::set_db_options) changed since.
    pub fn options(&self) -> Arc<DbOptions> {
        self.engine.options.load_full()
    }
    /// The options in force of a column family.
    pub fn column_family_options(&self, cf: &ColumnFamily) -> ColumnFamilyOptions {
        cf.0.settings().options.clone()
    }
    /// The database's id, the same since it was created.
    pub fn identity(&self) -> &str {
        &self.engine.db_id
    }
    /// The id of this opening: 20 characters, in no other one, and in the properties of the tables that it writes
    /// ([`db_session_id`](crate::TableProperties::db_session_id)).
    pub fn session_id(&self) -> &str {
        &self.engine.session_id
    }

    // ---- writes ----

    /// Sets `key` to `value`.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_cf(&WriteOptions::default(), &self.default, key, value)
    }
    /// Deletes `key`; fine if it does not exist.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_cf(&WriteOptions::default(), &self.default, key)
    }
    /// Deletes `key`, which was put at most once since its last delete. Cheaper than
    /// [`delete`](Self::delete); which entry survives is undefined if the key was put more often.
    ///
    /// ```
    /// # use ironstone::{Db, Options};
    /// # let db = Db::open(&Options::in_memory(), "/db")?;
    /// db.put(b"order/1", b"open")?;
    /// db.single_delete(b"order/1")?;
    /// assert!(db.get(b"order/1")?.is_none());
    /// // Put and tombstone meet in the flush, and both are gone. A `delete` would have left its tombstone.
    /// db.flush()?;
    /// assert!(db.live_files().is_empty());
    /// # Ok::<_, ironstone::Error>(())
    /// ```
    pub fn single_delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.single_delete_cf(&WriteOptions::default(), &self.default, key)
    }
    /// Sets `key` to `value` in `cf`.
    pub fn put_cf(
        &self,
        options: &WriteOptions,
        cf: &ColumnFamily,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.write_one(options, cf, |batch| batch.put_in(cf.id(), key.as_ref(), value.as_ref()))
    }
    /// Deletes `key` in `cf`; fine if it does not exist.
    pub fn delete_cf(&self, options: &WriteOptions, cf: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<()> {
        self.write_one(options, cf, |batch| batch.delete_in(cf.id(), key.as_ref()))
    }
    /// [`single_delete`](Self::single_delete) in `cf`.
    pub fn single_delete_cf(
        &self,
        options: &WriteOptions,
        cf: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.write_one(options, cf, |batch| batch.single_delete_in(cf.id(), key.as_ref()))
    }

    /// Merges `operand` into the value of `key`, by the column family's
    /// [`merge_operator`](ColumnFamilyOptions::merge_operator).
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.merge_cf(&WriteOptions::default(), &self.default, key, operand)
    }
    /// Merges `operand` into the value of `key` in `cf`.
    pub fn merge_cf(
        &self,
        options: &WriteOptions,
        cf: &ColumnFamily,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.write_one(options, cf, |batch| batch.merge_in(cf.id(), key.as_ref(), operand.as_ref()))
    }
    /// Deletes the keys of `begin..end`, at the price of one write. `InvalidArgument` if `end` comes before
    /// `begin`.
    ///
    /// ```
    /// use ironstone::{Db, Options, ReadOptions};
    ///
    /// let db = Db::open(&Options::in_memory(), "/db")?;
    /// (0..100).try_for_each(|number| db.put(format!("user{number:02}"), b"here"))?;
    /// let before = db.snapshot();
    /// db.delete_range(b"user20", b"user90")?;
    /// assert_eq!(db.iter()?.entries().count(), 30);
    /// assert!(db.get(b"user20")?.is_none());
    /// assert!(db.get(b"user90")?.is_some()); // The end stays.
    ///
    /// let past = ReadOptions { snapshot: Some(before), ..ReadOptions::default() };
    /// assert!(db.get_cf(&past, db.default_column_family(), b"user20")?.is_some());
    /// # Ok::<_, ironstone::Error>(())
    /// ```
    pub fn delete_range(&self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<()> {
        self.delete_range_cf(&WriteOptions::default(), &self.default, begin, end)
    }
    /// Deletes the keys of `begin..end` in `cf`.
    pub fn delete_range_cf(
        &self,
        options: &WriteOptions,
        cf: &ColumnFamily,
        begin: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.write_one(options, cf, |batch| batch.delete_range_in(cf.id(), begin.as_ref(), end.as_ref()))
    }

    fn write_one(
        &self,
        options: &WriteOptions,
        cf: &ColumnFamily,
        fill: impl FnOnce(&mut WriteBatch),
    ) -> Result<()> {
        self.check_handle(cf).or_else(|error| match error.code() {
            Code::ColumnFamilyDropped if options.ignore_missing_column_families => Ok(()),
            _ => Err(error),
        })?;
        thread_local! {
            /// Reused, so that a write of one key does not allocate.
            static BATCH: std::cell::RefCell<WriteBatch> = std::cell::RefCell::new(WriteBatch::new());
        }
        BATCH.with(|batch| {
            // A user's `AsRef` may write to the database itself; then this batch is taken.
            let Ok(mut batch) = batch.try_borrow_mut() else {
                let mut own = WriteBatch::new();
                fill(&mut own);
                return self.write(&own, options);
            };
            batch.clear();
            fill(&mut batch);
            let result = self.write(&batch, options);
            batch.shrink();
            result
        })
    }

    /// Applies `batch` atomically: after a crash either all of it is there or none of it.
    pub fn write(&self, batch: &WriteBatch, options: &WriteOptions) -> Result<()> {
        if self.engine.tracing.is_on() {
            self.engine.tracing.write(batch, false);
        }
        match &self.engine.statistics {
            None => self.engine.write_batch(batch, options),
            Some(statistics) => self.write_counted(batch, options, statistics),
        }
    }

    /// As [`write`](Self::write), with statistics.
    #[cold]
    #[inline(never)]
    fn write_counted(
        &self,
        batch: &WriteBatch,
        options: &WriteOptions,
        statistics: &Arc<Statistics>,
    ) -> Result<()> {
        let bytes = batch.size_bytes() as u64;
        let timer = StatsTimer::start(Some(statistics), Histogram::DbWrite);
        LoggedByOther::take();
        self.engine.write_batch(batch, options)?;
        drop(timer);
        let done_by = if LoggedByOther::take() { Ticker::WriteDoneByOther } else { Ticker::WriteDoneBySelf };
        statistics.record(done_by, 1);
        statistics.record(Ticker::NumberKeysWritten, u64::from(batch.count()));
        statistics.record(Ticker::BytesWritten, bytes);
        statistics.measure(Histogram::BytesPerWrite, bytes);
        if !options.disable_wal {
            statistics.record(Ticker::WriteWithWal, 1);
            statistics.record(Ticker::WalFileBytes, bytes);
        }
        Ok(())
    }

    /// Hands what the log buffers to the operating system, and with `sync` to the device. Needed
    /// with `manual_wal_flush` only; with `sync` it covers every write that returned before.
    pub fn flush_wal(&self, sync: bool) -> Result<()> {
        self.flush_wal_with(&FlushWalOptions { sync, ..FlushWalOptions::default() })
    }
    /// The same as `options` say.
    pub fn flush_wal_with(&self, options: &FlushWalOptions) -> Result<()> {
        self.check_has_wal()?;
        if let Some(priority) = options.rate_limiter_priority {
            self.engine.pace_wal(self.engine.pipeline.buffered_bytes(), priority);
        }
        self.engine.note_wal_failure(self.engine.pipeline.flush_log(options.sync))
    }
    /// Makes every write durable that was handed to the operating system. Does not flush the buffer
    /// of `manual_wal_flush`.
    pub fn sync_wal(&self) -> Result<()> {
        self.check_has_wal()?;
        self.engine.note_wal_failure(self.engine.pipeline.sync_written())
    }

    pub(crate) fn check_has_wal(&self) -> Result<()> {
        if self.engine.read_only { self.engine.write_failure() } else { Ok(()) }
    }

    // ---- reads ----

    /// The value of `key`, pinned where it is.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<PinnedValue>> {
        if self.engine.reads_are_watched.load(Ordering::Relaxed) {
            return self.get_watched(&ReadOptions::default(), &self.default, key.as_ref());
        }
        if perf::is_timing() {
            return self.get_timed(&ReadOptions::default(), &self.default, key.as_ref());
        }
        let context = ironstone_sst::ReadContext::default();
        let (view, at) = acquire::for_one_key(self.default.0.views(), || Ok(self.engine.pipeline.visible()))?;
        self.find(&view, key.as_ref(), at, &context)
    }
    /// The value of `key` in `cf`, pinned where it is.
    pub fn get_cf(
        &self,
        options: &ReadOptions,
        cf: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<PinnedValue>> {
        self.check_handle(cf)?;
        if self.engine.reads_are_watched.load(Ordering::Relaxed) {
            return self.get_watched(options, cf, key.as_ref());
        }
        if perf::is_timing() {
            return self.get_timed(options, cf, key.as_ref());
        }
        let (view, at) = acquire::for_one_key(cf.0.views(), || self.read_sequence(options, cf))?;
        self.find(&view, key.as_ref(), at, &options.context())
    }
    /// As [`get_cf`](Self::get_cf), in the list of what threads do, in statistics and traces.
    #[cold]
    fn get_watched(
        &self,
        options: &ReadOptions,
        cf: &ColumnFamily,
        key: &[u8],
    ) -> Result<Option<PinnedValue>> {
        let _listed = self.listed(ThreadOperation::Get, &cf.0.name);
        if self.engine.tracing.is_on() {
            self.engine.tracing.get(cf.id(), key);
        }
        let statistics = self.engine.statistics.as_deref();
        let _timer = StatsTimer::start(statistics, Histogram::DbGet);
        let _reading = statistics.map(|_| IoActivity::Get.begin());
        let _cpu_timer = PerfCpuTimer::start(PerfMetric::GetCpuNanos);
        let (view, at) = self.acquire_timed(options, cf)?;
        let tracing = &self.engine.block_cache_tracing;
        let call = tracing.point_read(TableReaderCaller::UserGet, options, Some((key, at)));
        let found = match statistics {
            None if call.is_none() => view.get(key, at, &options.context()),
            _ => view.get_watched(key, at, &options.context(), statistics),
        };
        drop(call);
        let _post_timer = PerfTimer::start(PerfMetric::GetPostProcessTime);
        drop(view);
        count_bytes(&found);
        if let Some(statistics) = statistics {
            statistics.record(Ticker::NumberKeysRead, 1);
            if let Ok(value) = &found {
                let bytes = value.as_ref().map_or(0, |value| value.len() as u64);
                if value.is_some() {
                    statistics.record(Ticker::BytesRead, bytes);
                }
                statistics.measure(Histogram::BytesPerRead, bytes);
            }
        }
        found
    }
    /// As [`get_cf`](Self::get_cf), with times of its steps.
    #[cold]
    #[inline(never)]
    fn get_timed(&self, options: &ReadOptions, cf: &ColumnFamily, key: &[u8]) -> Result<Option<PinnedValue>> {
        let _cpu_timer = PerfCpuTimer::start(PerfMetric::GetCpuNanos);
        let (view, at) = self.acquire_timed(options, cf)?;
        let found = view.get(key, at, &options.context());
        let _timer = PerfTimer::start(PerfMetric::GetPostProcessTime);
        drop(view);
        count_bytes(&found);
        found
    }
    fn acquire_timed(
        &self,
        options: &ReadOptions,
        cf: &ColumnFamily,
    ) -> Result<(SwapGuard<SuperVersion>, SequenceNumber)> {
        let _timer = PerfTimer::start(PerfMetric::GetSnapshotTime);
        acquire::for_one_key(cf.0.views(), || self.read_sequence(options, cf))
    }
    /// Without times.
    fn find(
        &self,
        view: &SuperVersion,
        key: &[u8],
        at: SequenceNumber,
        context: &ironstone_sst::ReadContext,
    ) -> Result<Option<PinnedValue>> {
        let found = view.get_untimed(key, at, context);
        count_bytes(&found);
        found
    }
    /// The merge operands of `key`, oldest first, not merged; a value below them comes first. At most `limit`,
    /// else `Incomplete`.
    ///
    /// ```
    /// use ironstone::{Db, Options, ReadOptions, merge_operators::string_append};
    ///
    /// let mut options = Options::in_memory();
    /// options.cf.merge_operator = Some(string_append(","));
    /// let db = Db::open(&options, "/db")?;
    /// db.put(b"colours", b"red")?;
    /// db.merge(b"colours", b"green")?;
    /// db.merge(b"colours", b"blue")?;
    ///
    /// let cf = db.default_column_family();
    /// let operands = db.get_merge_operands(&ReadOptions::default(), cf, b"colours", 3)?;
    /// assert!(operands.iter().map(|operand| &operand[..]).eq([&b"red"[..], b"green", b"blue"]));
    /// assert!(db.get_merge_operands(&ReadOptions::default(), cf, b"colours", 2).is_err());
    /// assert_eq!(db.get(b"colours")?.as_deref(), Some(&b"red,green,blue"[..]));
    /// # Ok::<_, ironstone::Error>(())
    /// ```
    pub fn get_merge_operands(
        &self,
        options: &ReadOptions,
        cf: &ColumnFamily,
        key: impl AsRef<[u8]>,
        limit: usize,
    ) -> Result<Vec<PinnedValue>> {
        self.check_handle(cf)?;
        if self.engine.tracing.is_on() {
            self.engine.tracing.get(cf.id(), key.as_ref());
        }
        let (view, at) = acquire::for_one_key(cf.0.views(), || self.read_sequence(options, cf))?;
        let tracing = &self.engine.block_cache_tracing;
        let _call = tracing.point_read(TableReaderCaller::UserGet, options, Some((key.as_ref(), at)));
        let mut newest_first = Vec::new();
        view.visit_versions(key.as_ref(), at, &options.context(), &mut |entry| {
            match entry.kind {
                ValueType::Merge | ValueType::Value => newest_first.push(entry.value),
                _ => return ControlFlow::Break(()),
            }
            if entry.kind == ValueType::Merge { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if newest_first.len() > limit {
            let count = newest_first.len();
            return Err(Error::incomplete(format!("the key has {count} merge operands, more than {limit}")));
        }
        newest_first.reverse();
        Ok(newest_first)
    }
    /// The values of `keys`, all as of one moment.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<PinnedValue>>> {
        self.multi_get_cf(&ReadOptions::default(), &self.default, keys)
    }
    /// The values of `keys` in `cf`, all as of one moment.
    pub fn multi_get_cf<K: AsRef<[u8]>>(
        &self,
        options: &ReadOptions,
        cf: &ColumnFamily,
        keys: &[K],
    ) -> Vec<Result<Option<PinnedValue>>> {
        let _listed = self.listed(ThreadOperation::MultiGet, &cf.0.name);
        let _watched = self.begin_multi_get();
        let snapshot_timer = PerfTimer::start(PerfMetric::GetSnapshotTime);
        if self.engine.tracing.is_on() {
            self.engine.tracing.multi_get(keys.iter().map(|key| (cf.id(), key.as_ref())));
        }
        let snapshot = options.snapshot.as_ref();
        match self.check_handle(cf).and_then(|()| self.engine.consistent_view(snapshot, &cf.0)) {
            Ok((view, at)) => {
                drop(snapshot_timer);
                let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
                let tracing = &self.engine.block_cache_tracing;
                let _call = tracing.point_read(TableReaderCaller::UserMultiGet, options, None);
                let found = match options.limits_multi_get() {
                    false => view.multi_get(&keys, at, &options.context()),
                    true => view.multi_get_within(&keys, at, options, &*self.engine.env.clock),
                };
                self.count_multi_get(&found);
                found
            }
            Err(error) => keys.iter().map(|_| Err::<_, Error>(Error::clone(&error))).collect(),
        }
    }
    /// The values of keys of several column families, all as of one moment.
    pub fn multi_get_across<K: AsRef<[u8]>>(
        &self,
        options: &ReadOptions,
        keys: &[(&ColumnFamily, K)],
    ) -> Vec<Result<Option<PinnedValue>>> {
        let _listed = self.listed(ThreadOperation::MultiGet, "");
        let _watched = self.begin_multi_get();
        let snapshot_timer = PerfTimer::start(PerfMetric::GetSnapshotTime);
        if self.engine.tracing.is_on() {
            self.engine.tracing.multi_get(keys.iter().map(|(cf, key)| (cf.id(), key.as_ref())));
        }
        let (views, at) = match self.consistent_views(options, keys.iter().map(|(cf, _)| *cf)) {
            Ok(consistent) => consistent,
            Err(error) => return keys.iter().map(|_| Err(error.clone())).collect(),
        };
        drop(snapshot_timer);
        let context = options.context();
        let keys = keys.iter().zip(views);
        let get = |((_, key), view): (&(&ColumnFamily, K), Arc<SuperVersion>)| {
            let (key, tracing) = (key.as_ref(), &self.engine.block_cache_tracing);
            let call = tracing.point_read(TableReaderCaller::UserMultiGet, options, Some((key, at)));
            match &self.engine.statistics {
                None if call.is_none() => view.get(key, at, &context),
                statistics => view.get_watched(key, at, &context, statistics.as_deref()),
            }
        };
        let found: Vec<_> = match options.limits_multi_get() {
            false => keys.map(get).collect(),
            true => {
                let mut limits = MultiGetLimits::new(options, &*self.engine.env.clock);
                keys.map(|key| limits.check().and_then(|()| limits.take(get(key)))).collect()
            }
        };
        self.count_multi_get(&found);
        found
    }

    fn begin_multi_get(&self) -> Option<(StatsTimer<'_>, ActivityGuard)> {
        let statistics = self.engine.statistics.as_deref()?;
        let timer = StatsTimer::start(Some(statistics), Histogram::DbMultiget);
        Some((timer, IoActivity::MultiGet.begin()))
    }
    fn count_multi_get(&self, found: &[Result<Option<PinnedValue>>]) {
        let _timer = PerfTimer::start(PerfMetric::GetPostProcessTime);
        let bytes = bytes_of(found);
        perf::count(PerfMetric::MultigetReadBytes, bytes);
        if let Some(statistics) = &self.engine.statistics {
            let values = found.iter().flatten().flatten().count();
            statistics.record(Ticker::NumberMultigetCalls, 1);
            statistics.record(Ticker::NumberMultigetKeysRead, found.len() as u64);
            statistics.record(Ticker::NumberMultigetKeysFound, values as u64);
            statistics.record(Ticker::NumberMultigetBytesRead, bytes);
            statistics.measure(Histogram::BytesPerMultiget, bytes);
        }
    }

    fn consistent_views<'a>(
        &self,
        options: &ReadOptions,
        cfs: impl Iterator<Item = &'a ColumnFamily> + Clone,
    ) -> Result<(Vec<Arc<SuperVersion>>, SequenceNumber)> {
        cfs.clone().try_for_each(|cf| self.check_handle(cf))?;
        let families = cfs.clone().map(|cf| &*cf.0);
        acquire::of_one_moment(cfs.map(|cf| cf.0.views()), || {
            self.engine.read_sequence(options.snapshot.as_ref(), families.clone())
        })
    }

    /// Whether `key` may exist, from memory alone. Never wrong on the side of no.
    pub fn key_may_exist(&self, key: impl AsRef<[u8]>) -> bool {
        self.key_may_exist_cf(&ReadOptions::default(), &self.default, key)
    }
    /// Whether `key` may exist in `cf`, from memory alone. Never wrong on the side of no.
    pub fn key_may_exist_cf(&self, options: &ReadOptions, cf: &ColumnFamily, key: impl AsRef<[u8]>) -> bool {
        if self.check_handle(cf).is_err() {
            return false;
        }
        acquire::for_one_key(cf.0.views(), || self.read_sequence(options, cf))
            .is_ok_and(|(view, at)| view.may_exist(key.as_ref(), at))
    }

    /// An iterator over `default`, as of now.
    pub fn iter(&self) -> Result<DbIterator> {
        self.iter_cf(&ReadOptions::default(), &self.default)
    }
    /// An iterator over `cf`.
    pub fn iter_cf(&self, options: &ReadOptions, cf: &ColumnFamily) -> Result<DbIterator> {
        self.check_handle(cf)?;
        let source = IteratorSource::new(&self.engine, &cf.0, options)?;
        let places = source.places_now(&self.engine)?;
        Ok(self.iterator(source, places))
    }
    /// Iterators over several column families, all as of one moment.
    pub fn iters_cf(&self, options: &ReadOptions, cfs: &[&ColumnFamily]) -> Result<Vec<DbIterator>> {
        let (views, at) = self.consistent_views(options, cfs.iter().copied())?;
        let open = |(cf, view): (&&ColumnFamily, _)| {
            let source = IteratorSource::new(&self.engine, &cf.0, options)?;
            let places = source.places(view, at)?;
            Ok(self.iterator(source, places))
        };
        cfs.iter().zip(views).map(open).collect()
    }
    fn iterator(&self, source: IteratorSource, places: Places) -> DbIterator {
        let settings = source.cf().settings();
        let bounds = Bounds::new(&source.options, &settings.options, source.prefix_seek.clone());
        let mut iterator = DbIterator::new(places, bounds, Some(source));
        if settings.options.memtable_op_scan_flush_trigger > 0 {
            iterator.flush_after_scans(&settings.options);
        }
        iterator
    }

    /// The database as of now, for [`ReadOptions::snapshot`]. Not for reads of column families with
    /// [`inplace_update_support`](crate::ColumnFamilyOptions::inplace_update_support), which have no moments.
    pub fn snapshot(&self) -> Snapshot {
        let engine = &self.engine;
        engine.snapshots.take(|| engine.pipeline.visible(), engine.env.clock.now_seconds())
    }
    /// The newest write that readers see.
    pub fn latest_sequence(&self) -> SequenceNumber {
        self.engine.pipeline.visible()
    }

    fn read_sequence(&self, options: &ReadOptions, cf: &ColumnFamily) -> Result<SequenceNumber> {
        self.engine.read_sequence(options.snapshot.as_ref(), [&*cf.0])
    }

    pub(crate) fn check_handle(&self, cf: &ColumnFamily) -> Result<()> {
        let data: &ColumnFamilyData = &cf.0;
        if data.instance != self.engine.instance {
            return Err(Error::invalid_argument(format!(
                "column family {:?} is of another database, or of an earlier opening",
                data.name
            )));
        }
        data.check_not_dropped()
    }

    // ---- the end ----

    /// Flushes what no WAL holds (unless `avoid_flush_during_shutdown`), waits for background work and
    /// closes. Iterators and snapshots that are still held stay usable. Dropping the handle does the
    /// same, but hides errors. A second call does nothing.
    pub fn close(&self) -> Result<()> {
        let Some(workers) = self.workers.lock().take() else {
            self.engine.listeners.tell_shutdown(); // Of a database that is only read.
            return Ok(());
        };
        crate::background::close(&self.engine, workers)
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            crate::info_log::warning!(self.engine.log, "closing failed: {error}");
        }
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Db({})", self.engine.dir.display())
    }
}

#[inline]
fn count_bytes(found: &Result<Option<PinnedValue>>) {
    if let Ok(Some(value)) = found {
        perf::count(PerfMetric::GetReadBytes, value.len() as u64);
    }
}

fn bytes_of(found: &[Result<Option<PinnedValue>>]) -> u64 {
    found.iter().flatten().flatten().map(|value| value.len() as u64).sum()
}

impl Engine {
    /// What [`Db::write`] does, uncounted.
    #[inline]
    pub(crate) fn write_batch(&self, batch: &WriteBatch, options: &WriteOptions) -> Result<()> {
        let level = self.log_level(options)?;
        self.write_failure()?;
        if self.switch_wanted.load(Ordering::Relaxed) {
            let _timer = PerfTimer::start(PerfMetric::WriteSchedulingFlushesCompactionsTime);
            self.switch_memtables(&crate::write::switch::Which::Due)?;
        }
        if let Some(manager) = &self.write_buffer_manager {
            manager.admit(self, options.no_slowdown)?;
        }
        let bytes = batch.size_bytes() as u64;
        if options.low_pri {
            self.wait_for_compaction_to_catch_up(options.no_slowdown)?;
        }
        let computed = match options.protection_bytes_per_key {
            0 => None,
            bytes => {
                crate::write_batch::check_protection_bytes(bytes)?;
                batch.protection().is_none().then(|| batch.new_protection()).transpose()?
            }
        };
        let protection = batch.protection().or(computed.as_deref());
        if let Some(priority) = options.rate_limiter_priority {
            self.check_paced(options, priority)?;
            self.pace_wal(bytes, priority);
        }
        let ignore_missing = options.ignore_missing_column_families;
        let committed = loop {
            let abort = || self.check_may_wait();
            self.controller.admit(bytes, options.no_slowdown, &*self.env.clock, abort)?;
            // `None`: the WAL was locked in between.
            if let Some(committed) =
                self.pipeline.write(batch, level, ignore_missing, protection, self).transpose()
            {
                break committed;
            }
        };
        match committed {
            Ok(committed) => {
                if committed.memtable_full || committed.wal_end > self.wal_check.load(Ordering::Relaxed) {
                    self.switch_wanted.store(true, Ordering::Relaxed);
                }
                if committed.memtable_grown {
                    self.note_growth();
                }
                if committed.updated > 0 {
                    self.count(Ticker::NumberKeysUpdated, committed.updated);
                }
                Ok(())
            }
            Err(error) if error.severity() >= Severity::Fatal || self.pipeline.failure().is_some() => {
                self.note_wal_failure(Err(error))
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) fn note_wal_failure(&self, result: Result<()>) -> Result<()> {
        result.inspect_err(|error| {
            self.stop_writes(&mut self.state.lock(), error.clone(), BackgroundErrorReason::WriteCallback);
        })
    }

    fn log_level(&self, options: &WriteOptions) -> Result<LogLevel> {
        match (options.disable_wal, options.sync) {
            (true, true) => Err(Error::invalid_argument("sync writes has to enable WAL.")),
            (true, false) if self.options().recycle_log_file_num > 0 => Err(Error::invalid_argument(
                "disable_wal cannot be used with recycle_log_file_num: stale records could be replayed",
            )),
            (true, false) => Ok(LogLevel::None),
            (false, true) => Ok(LogLevel::Synced),
            (false, false) => Ok(self.usual_log_level),
        }
    }

    /// Whether a write with `options` may wait for the rate limiter at `priority`.
    #[cold]
    fn check_paced(&self, options: &WriteOptions, priority: IoPriority) -> Result<()> {
        if priority != IoPriority::User {
            return Err(Error::invalid_argument("rate_limiter_priority of a write: only User is allowed"));
        }
        if options.disable_wal || self.usual_log_level == LogLevel::Buffered {
            return Err(Error::invalid_argument(
                "rate_limiter_priority of a write needs a WAL that it goes to at once: disable_wal and manual_wal_flush off",
            ));
        }
        Ok(())
    }

    /// Returns when `bytes` may be written to the WAL. Called without a lock, so that only who asks for it waits.
    #[cold]
    fn pace_wal(&self, bytes: u64, priority: IoPriority) {
        if let Some(limiter) = self.options().rate_limiter.as_ref().filter(|_| bytes > 0) {
            limiter.pace(bytes, priority, self.statistics.as_deref(), IoKind::Write);
        }
    }

    /// For writes that give way: waits while compaction is behind.
    fn wait_for_compaction_to_catch_up(&self, no_slowdown: bool) -> Result<()> {
        loop {
            let (stopped, rate) = self.controller.state();
            if !stopped && rate == 0 {
                return Ok(());
            }
            if no_slowdown {
                return Err(Error::incomplete("low priority write: compaction is behind"));
            }
            self.check_may_wait()?;
            self.env.clock.sleep(std::time::Duration::from_millis(1));
        }
    }
}

impl Options {
    /// Options for a database that lives in memory and is created on opening: for tests and caches.
    pub fn in_memory() -> Self {
        let mut options = Self::default();
        options.db.create_if_missing = true;
        options.db.env = ironstone_vfs::Env {
            fs: Arc::new(ironstone_vfs::mem::MemFileSystem::volatile()),
            clock: Arc::new(ironstone_vfs::SystemClock::new()),
        };
        options
    }
}
