//! A database whose entries expire: RocksDB's `DBWithTTL`, its bytes included.
//!
//! ```text
//! value           as given
//! written at      u32 LE, seconds since 1970
//! ```
//! A compaction filter removes what is expired. RocksDB's reads show it until then; ours do not, unless told
//! to. A layer, see [`StackableDb`]: it keeps a [`Db`] and changes values on their way in and out.
//! Format reference: docs/format/ttl.md.

use crate::column_family::ColumnFamily;
use crate::db::{ColumnFamilyDescriptor, Db, WriteOptions};
use crate::options::{ColumnFamilyOptions, DbOptions, Options};
use crate::read::db_iterator::DbIterator;
use crate::read::pinned_value::PinnedValue;
use crate::read::read_options::ReadOptions;
use crate::snapshot::Snapshot;
use crate::stackable_db::StackableDb;
use crate::write_batch::WriteBatch;
use ironstone_base::sync::atomic::{AtomicU32, Ordering};
use ironstone_base::sync::{Arc, Mutex};
use ironstone_base::{ColumnFamilyId, Error, MergeOperator, Result};
use ironstone_compaction::{
    CompactionFilter, CompactionFilterFactory, FilterContext, FilterDecision, TableFileCreationReason,
};
use ironstone_vfs::Clock;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::path::Path;

const TIMESTAMP_LEN: usize = 4;
/// No TTL database is older: an earlier time means that the value has no timestamp at all.
const MIN_TIMESTAMP: u32 = 1_368_146_402;
/// RocksDB keeps the time in 31 bits.
const MAX_TIMESTAMP: u32 = i32::MAX as u32;

/// What reads do about expired entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ExpiredReads {
    /// They are not there.
    #[default]
    Hidden,
    /// They are there until a compaction removes them, as in RocksDB.
    ShownUntilCompacted,
}

/// A column family to open, and for how many seconds its entries live; 0: for ever.
pub struct TtlColumnFamily {
    /// Its name and options.
    pub descriptor: ColumnFamilyDescriptor,
    /// Seconds.
    pub ttl: u32,
}

/// A database whose entries expire so many seconds after they were written. Only entries that went through it
/// can be read through it.
///
/// A compaction filter of the application's is asked about entries that are not expired, without their
/// timestamps.
///
/// ```
/// use ironstone::vfs::ManualClock;
/// use ironstone::{ExpiredReads, Options, StackableDb, TtlDb};
/// use std::{sync::Arc, time::Duration};
///
/// let clock = Arc::new(ManualClock::new(1_800_000_000_000_000)); // In the place of the system's.
/// let mut options = Options::in_memory();
/// options.db.env.clock = clock.clone();
/// let db = TtlDb::open(&options, "/db", 3600, ExpiredReads::Hidden)?;
/// db.put(b"session", b"open")?;
/// assert_eq!(db.get(b"session")?.as_deref(), Some(&b"open"[..]));
/// clock.advance(Duration::from_secs(3601));
/// assert!(db.get(b"session")?.is_none());
/// # Ok::<_, ironstone::Error>(())
/// ```
pub struct TtlDb {
    db: Db,
    clock: Arc<dyn Clock>,
    expired: ExpiredReads,
    ttls: Mutex<BTreeMap<ColumnFamilyId, Arc<AtomicU32>>>,
}

impl TtlDb {
    /// Opens the database in `path` with its one column family; entries live for `ttl` seconds, or for ever if
    /// that is 0. Errors are those of [`Db::open`].
    pub fn open(options: &Options, path: impl AsRef<Path>, ttl: u32, expired: ExpiredReads) -> Result<Self> {
        let descriptor = ColumnFamilyDescriptor::new(crate::open::DEFAULT_COLUMN_FAMILY, options.cf.clone());
        Self::open_column_families(
            &options.db,
            path,
            vec![TtlColumnFamily { descriptor, ttl }],
            expired,
            false,
        )
    }

    /// Opens the database in `path` with all of its column families, perhaps for reading only. `default` lives
    /// for ever if it is not named. Errors are those of [`Db::open_column_families`].
    pub fn open_column_families(
        options: &DbOptions,
        path: impl AsRef<Path>,
        column_families: Vec<TtlColumnFamily>,
        expired: ExpiredReads,
        read_only: bool,
    ) -> Result<Self> {
        let clock = Arc::clone(&options.env.clock);
        let mut named: BTreeMap<String, Arc<AtomicU32>> = BTreeMap::new();
        let mut descriptors = Vec::new();
        for TtlColumnFamily { mut descriptor, ttl } in column_families {
            let ttl = Arc::new(AtomicU32::new(ttl));
            expire(&mut descriptor.options, &clock, &ttl);
            named.insert(descriptor.name.clone(), ttl);
            descriptors.push(descriptor);
        }
        if !named.contains_key(crate::open::DEFAULT_COLUMN_FAMILY) {
            // Its filter has to be there too, should somebody set a TTL.
            let ttl = Arc::new(AtomicU32::new(0));
            let mut default = ColumnFamilyOptions::default();
            expire(&mut default, &clock, &ttl);
            let name = crate::open::DEFAULT_COLUMN_FAMILY;
            descriptors.push(ColumnFamilyDescriptor::new(name, default));
            named.insert(name.to_owned(), ttl);
        }
        let db = match read_only {
            true => Db::open_read_only(options, path, descriptors)?,
            false => Db::open_column_families(options, path, descriptors)?,
        };
        let mut ttls = BTreeMap::new();
        for (name, ttl) in named {
            if let Some(cf) = db.column_family(&name) {
                ttls.insert(cf.id(), ttl);
            }
        }
        Ok(Self { db, clock, expired, ttls: Mutex::new(ttls) })
    }

    /// Creates a column family whose entries live for `ttl` seconds, or for ever if that is 0.
    pub fn create_column_family(
        &self,
        name: &str,
        options: &ColumnFamilyOptions,
        ttl: u32,
    ) -> Result<ColumnFamily> {
        let ttl = Arc::new(AtomicU32::new(ttl));
        let mut options = options.clone();
        expire(&mut options, &self.clock, &ttl);
        let cf = self.db.create_column_family(name, &options)?;
        self.ttls.lock().insert(cf.id(), ttl);
        Ok(cf)
    }

    /// From now on the entries of `cf` live for `ttl` seconds after they were written, also those that are
    /// there; for ever if it is 0.
    pub fn set_ttl(&self, cf: &ColumnFamily, ttl: u32) -> Result<()> {
        self.ttl_of(cf)?.store(ttl, Ordering::Relaxed);
        Ok(())
    }
    /// For how many seconds the entries of `cf` live.
    pub fn ttl(&self, cf: &ColumnFamily) -> Result<u32> {
        Ok(self.ttl_of(cf)?.load(Ordering::Relaxed))
    }
    /// Relaxed wherever it is used: a number of its own.
    fn ttl_of(&self, cf: &ColumnFamily) -> Result<Arc<AtomicU32>> {
        self.db.check_handle(cf)?;
        let found = self.ttls.lock().get(&cf.id()).cloned();
        found.ok_or_else(|| {
            Error::invalid_argument(format!("column family {:?} was not opened with a TTL", cf.name()))
        })
    }

    /// The time, as values carry it.
    fn timestamp(&self) -> Result<u32> {
        let now = self.clock.now_seconds();
        u32::try_from(now).ok().filter(|now| (MIN_TIMESTAMP..=MAX_TIMESTAMP).contains(now)).ok_or_else(|| {
            let what = format!("the clock says {now}, which no timestamp of a TTL database can hold");
            Error::invalid_argument(what)
        })
    }

    fn reader(&self, cf: &ColumnFamily) -> Result<TtlReader> {
        let ttl = self.ttl_of(cf)?;
        Ok(TtlReader { ttl, clock: Arc::clone(&self.clock), expired: self.expired })
    }
}

/// Deletes, flushes, compactions and options are those of the database underneath. Values that are written to
/// [`base`](StackableDb::base) directly have no timestamp and cannot be read.
impl StackableDb for TtlDb {
    type Value = TtlValue;
    type Iterator = TtlIterator;

    fn base(&self) -> &Db {
        &self.db
    }
    /// All values of the batch get the same time. A merged value is as old as the newest of what it was made from.
    /// (RocksDB: as old as the merge itself, so that each read and compaction makes it young again.)
    fn write(&self, batch: &WriteBatch, options: &WriteOptions) -> Result<()> {
        let now = self.timestamp()?;
        self.db.write(&batch.with_values(|_, value| with_timestamp(value, now))?, options)
    }
    fn put_cf(
        &self,
        options: &WriteOptions,
        cf: &ColumnFamily,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let value = with_timestamp(value.as_ref(), self.timestamp()?);
        self.db.put_cf(options, cf, key, value)
    }
    fn delete_cf(&self, options: &WriteOptions, cf: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<()> {
        self.db.delete_cf(options, cf, key)
    }
    /// `Corruption` if the value has no timestamp.
    fn get_cf(
        &self,
        options: &ReadOptions,
        cf: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<TtlValue>> {
        let reader = self.reader(cf)?;
        reader.strip(self.db.get_cf(options, cf, key)?)
    }
    fn multi_get_cf<K: AsRef<[u8]>>(
        &self,
        options: &ReadOptions,
        cf: &ColumnFamily,
        keys: &[K],
    ) -> Vec<Result<Option<TtlValue>>> {
        let reader = match self.reader(cf) {
            Ok(reader) => reader,
            Err(error) => return keys.iter().map(|_| Err(error.clone())).collect(),
        };
        let found = self.db.multi_get_cf(options, cf, keys);
        found.into_iter().map(|value| reader.strip(value?)).collect()
    }
    fn iter_cf(&self, options: &ReadOptions, cf: &ColumnFamily) -> Result<TtlIterator> {
        let reader = self.reader(cf)?;
        Ok(TtlIterator { inner: self.db.iter_cf(options, cf)?, reader, failure: None })
    }
}

impl fmt::Debug for TtlDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TtlDb({})", self.db.path().display())
    }
}

fn with_timestamp(value: &[u8], now: u32) -> Vec<u8> {
    let mut stamped = Vec::with_capacity(value.len() + TIMESTAMP_LEN);
    stamped.extend_from_slice(value);
    stamped.extend_from_slice(&now.to_le_bytes());
    stamped
}

/// The value without its timestamp, and the timestamp.
fn split(stamped: &[u8]) -> Option<(&[u8], u32)> {
    let (value, timestamp) = stamped.split_last_chunk::<TIMESTAMP_LEN>()?;
    Some((value, u32::from_le_bytes(*timestamp)))
}

fn is_expired(timestamp: u32, ttl: u32, now: u64) -> bool {
    ttl > 0 && u64::from(timestamp) + u64::from(ttl) < now
}

/// What reads of one column family need.
#[derive(Clone)]
struct TtlReader {
    ttl: Arc<AtomicU32>,
    clock: Arc<dyn Clock>,
    expired: ExpiredReads,
}

impl TtlReader {
    /// Whether a read may show this value. `Corruption` if it has no timestamp.
    fn shows(&self, stamped: &[u8]) -> Result<bool> {
        let Some((_, timestamp)) = split(stamped) else {
            return Err(Error::corruption("a value of a TTL database is shorter than its timestamp"));
        };
        if timestamp < MIN_TIMESTAMP {
            let what =
                format!("a value of a TTL database has the timestamp {timestamp}: it was not written by one");
            return Err(Error::corruption(what));
        }
        let ttl = self.ttl.load(Ordering::Relaxed);
        Ok(self.expired == ExpiredReads::ShownUntilCompacted
            || !is_expired(timestamp, ttl, self.clock.now_seconds()))
    }
    fn strip(&self, found: Option<PinnedValue>) -> Result<Option<TtlValue>> {
        match found {
            Some(stamped) if self.shows(&stamped)? => Ok(Some(TtlValue(stamped))),
            _ => Ok(None),
        }
    }
}

/// A value where it was found, without its timestamp.
#[derive(Clone)]
pub struct TtlValue(PinnedValue);

impl TtlValue {
    /// When it was written, in seconds since 1970.
    pub fn written_at(&self) -> u32 {
        split(&self.0).map_or(0, |(_, timestamp)| timestamp)
    }
}

impl Deref for TtlValue {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        split(&self.0).map_or(&[], |(value, _)| value)
    }
}

impl AsRef<[u8]> for TtlValue {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for TtlValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for TtlValue {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

/// Walks the entries of a TTL database. Moves as [`DbIterator`] does; expired entries are passed over, unless
/// reads show them.
pub struct TtlIterator {
    inner: DbIterator,
    reader: TtlReader,
    failure: Option<Error>,
}

impl TtlIterator {
    /// Whether it stands on an entry.
    pub fn valid(&self) -> bool {
        self.failure.is_none() && self.inner.valid()
    }
    /// The key stood on.
    pub fn key(&self) -> Option<&[u8]> {
        self.inner.key().filter(|_| self.valid())
    }
    /// The value stood on.
    pub fn value(&self) -> Option<&[u8]> {
        Some(split(self.stamped()?)?.0)
    }
    /// When the entry stood on was written, in seconds since 1970.
    pub fn written_at(&self) -> Option<u32> {
        Some(split(self.stamped()?)?.1)
    }
    fn stamped(&self) -> Option<&[u8]> {
        self.inner.value().filter(|_| self.valid())
    }
    /// Why it stands nowhere, if that is not the end.
    pub fn status(&self) -> Result<()> {
        self.failure.clone().map_or_else(|| self.inner.status(), Err)
    }
    /// Moves to the first entry.
    pub fn seek_to_first(&mut self) -> Result<bool> {
        let moved = self.inner.seek_to_first();
        self.settle(moved, DbIterator::next)
    }
    /// Moves to the last entry.
    pub fn seek_to_last(&mut self) -> Result<bool> {
        let moved = self.inner.seek_to_last();
        self.settle(moved, DbIterator::prev)
    }
    /// Moves to the first entry at or after `target`.
    pub fn seek(&mut self, target: impl AsRef<[u8]>) -> Result<bool> {
        let moved = self.inner.seek(target);
        self.settle(moved, DbIterator::next)
    }
    /// Moves to the last entry at or before `target`.
    pub fn seek_for_prev(&mut self, target: impl AsRef<[u8]>) -> Result<bool> {
        let moved = self.inner.seek_for_prev(target);
        self.settle(moved, DbIterator::prev)
    }
    /// Moves to the next entry.
    #[allow(clippy::should_implement_trait)] // Entries are lent, and a move can fail.
    pub fn next(&mut self) -> Result<bool> {
        self.status()?;
        let moved = self.inner.next();
        self.settle(moved, DbIterator::next)
    }
    /// Moves to the entry before.
    pub fn prev(&mut self) -> Result<bool> {
        self.status()?;
        let moved = self.inner.prev();
        self.settle(moved, DbIterator::prev)
    }

    /// Shows what the database holds now, as [`DbIterator::refresh`] does. It stands nowhere until the next seek.
    pub fn refresh(&mut self) -> Result<()> {
        self.inner.refresh().map(|()| self.failure = None)
    }
    /// The same for the moment of `snapshot`, which the iterator then keeps. What has expired since then is expired.
    pub fn refresh_at(&mut self, snapshot: &Snapshot) -> Result<()> {
        self.inner.refresh_at(snapshot).map(|()| self.failure = None)
    }

    /// Goes on with `step` while the entry stood on is not shown.
    fn settle(&mut self, mut moved: Result<bool>, step: fn(&mut DbIterator) -> Result<bool>) -> Result<bool> {
        self.failure = None;
        while moved.clone()? {
            let stamped = self.inner.value().unwrap_or_default();
            match self.reader.shows(stamped) {
                Ok(true) => return Ok(true),
                Ok(false) => moved = step(&mut self.inner),
                Err(error) => {
                    self.failure = Some(error.clone());
                    return Err(error);
                }
            }
        }
        Ok(false)
    }
}

/// Puts the filter that removes expired entries before the application's own.
fn expire(options: &mut ColumnFamilyOptions, clock: &Arc<dyn Clock>, ttl: &Arc<AtomicU32>) {
    options.merge_operator =
        options.merge_operator.take().map(|inner| Arc::new(TtlMerge(inner)) as Arc<dyn MergeOperator>);
    options.compaction_filter_factory = Some(Arc::new(TtlFilterFactory {
        ttl: Arc::clone(ttl),
        clock: Arc::clone(clock),
        shared: options.compaction_filter.take(),
        factory: options.compaction_filter_factory.take(),
    }));
}

/// The application's merge operator, over values without their timestamps.
struct TtlMerge(Arc<dyn MergeOperator>);

impl TtlMerge {
    /// The operands, oldest first, and the newest timestamp; `None` if one has none.
    fn split<'a>(operands: &[&'a [u8]]) -> Option<(Vec<&'a [u8]>, u32)> {
        let split: Vec<_> = operands.iter().map(|operand| split(operand)).collect::<Option<_>>()?;
        let newest = split.iter().map(|(_, timestamp)| *timestamp).max()?;
        Some((split.into_iter().map(|(operand, _)| operand).collect(), newest))
    }
}

impl MergeOperator for TtlMerge {
    fn name(&self) -> &str {
        "TtlMergeOperator"
    }
    fn full_merge(&self, key: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let (operands, newest) = Self::split(operands)?;
        let existing = match existing {
            Some(stamped) => Some(split(stamped)?),
            None => None,
        };
        let newest = existing.map_or(newest, |(_, timestamp)| newest.max(timestamp));
        let merged = self.0.full_merge(key, existing.map(|(value, _)| value), &operands)?;
        Some(with_timestamp(&merged, newest))
    }
    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let (operands, newest) = Self::split(operands)?;
        Some(with_timestamp(&self.0.partial_merge(key, &operands)?, newest))
    }
    fn allow_single_operand(&self) -> bool {
        self.0.allow_single_operand()
    }
    fn should_merge(&self, operands: &[&[u8]]) -> bool {
        Self::split(operands).is_some_and(|(operands, _)| self.0.should_merge(&operands))
    }
}

struct TtlFilterFactory {
    ttl: Arc<AtomicU32>,
    clock: Arc<dyn Clock>,
    shared: Option<Arc<dyn CompactionFilter>>,
    factory: Option<Arc<dyn CompactionFilterFactory>>,
}

impl CompactionFilterFactory for TtlFilterFactory {
    fn name(&self) -> &str {
        "TtlCompactionFilterFactory"
    }
    fn should_filter_table_file_creation(&self, reason: TableFileCreationReason) -> bool {
        let inner = self.shared.is_none().then_some(self.factory.as_ref()).flatten();
        reason == TableFileCreationReason::Compaction
            || inner.is_some_and(|factory| factory.should_filter_table_file_creation(reason))
    }
    fn create(&self, context: &FilterContext) -> Option<Box<dyn CompactionFilter>> {
        let inner = match (&self.shared, &self.factory) {
            (Some(filter), _) => Inner::Shared(Arc::clone(filter)),
            (None, Some(factory)) if factory.should_filter_table_file_creation(context.reason) => {
                factory.create(context).map_or(Inner::None, Inner::Own)
            }
            _ => Inner::None,
        };
        Some(Box::new(TtlFilter {
            ttl: self.ttl.load(Ordering::Relaxed),
            now: self.clock.now_seconds(),
            inner,
        }))
    }
}

/// The application's filter.
enum Inner {
    None,
    Shared(Arc<dyn CompactionFilter>),
    Own(Box<dyn CompactionFilter>),
}

struct TtlFilter {
    ttl: u32,
    /// When the compaction began: what expires meanwhile can wait for the next.
    now: u64,
    inner: Inner,
}

impl CompactionFilter for TtlFilter {
    fn name(&self) -> &str {
        "TtlCompactionFilter"
    }
    fn filter(&self, level: usize, key: &[u8], stamped: &[u8]) -> FilterDecision {
        // What has no timestamp is nothing to expire; reads report it.
        let Some((value, timestamp)) = split(stamped) else { return FilterDecision::Keep };
        if timestamp >= MIN_TIMESTAMP && is_expired(timestamp, self.ttl, self.now) {
            return FilterDecision::Remove;
        }
        let inner: &dyn CompactionFilter = match &self.inner {
            Inner::None => return FilterDecision::Keep,
            Inner::Shared(filter) => &**filter,
            Inner::Own(filter) => &**filter,
        };
        match inner.filter(level, key, value) {
            FilterDecision::Change(value) => FilterDecision::Change(with_timestamp(&value, timestamp)),
            decision => decision,
        }
    }
    fn ignore_snapshots(&self) -> bool {
        match &self.inner {
            Inner::None => true,
            Inner::Shared(filter) => filter.ignore_snapshots(),
            Inner::Own(filter) => filter.ignore_snapshots(),
        }
    }
}
