//! Layers over a database: what changes values on their way in and out, and leaves the rest as it is.

use crate::column_family::ColumnFamily;
use crate::db::{Db, WriteOptions};
use crate::read::db_iterator::DbIterator;
use crate::read::pinned_value::PinnedValue;
use crate::read::read_options::ReadOptions;
use crate::write_batch::{BatchRecord, WriteBatch};
use crate::{CompactRangeOptions, FlushOptions, Snapshot};
use ironstone_base::{ColumnFamilyId, Result};
use std::ops::Deref;

/// A database, or a layer over one: what RocksDB's `StackableDB` is for. A layer says how batches are written and how
/// values are read; everything else follows from that, or goes to the database underneath. Code that takes any
/// `StackableDb` works with all of them: [`Db`], [`TtlDb`](crate::TtlDb) and yours.
///
/// ```
/// use ironstone::*;
///
/// /// Values are stored with all bits turned over.
/// struct Negative(Db);
///
/// fn turned(value: &[u8]) -> Vec<u8> {
///     value.iter().map(|byte| !byte).collect()
/// }
///
/// impl StackableDb for Negative {
///     type Value = Vec<u8>;
///     type Iterator = DbIterator; // Its values are as stored: a layer may bring an iterator of its own.
///
///     fn base(&self) -> &Db {
///         &self.0
///     }
///     fn write(&self, batch: &WriteBatch, options: &WriteOptions) -> Result<()> {
///         self.0.write(&batch.with_values(|_, value| turned(value))?, options)
///     }
///     fn get_cf(&self, options: &ReadOptions, cf: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
///         Ok(self.0.get_cf(options, cf, key)?.map(|value| turned(&value)))
///     }
///     fn iter_cf(&self, options: &ReadOptions, cf: &ColumnFamily) -> Result<DbIterator> {
///         self.0.iter_cf(options, cf)
///     }
/// }
///
/// /// Any of them.
/// fn first_write(db: &impl StackableDb) -> Result<bool> {
///     db.put("iron", "Fe")?;
///     db.flush()?;
///     Ok(db.get("iron")?.is_some_and(|value| *value == *b"Fe"))
/// }
///
/// # fn main() -> Result<()> {
/// let layer = Negative(Db::open(&Options::in_memory(), "/db")?);
/// assert!(first_write(&layer)?);
/// assert_eq!(layer.base().get("iron")?.as_deref(), Some(&[!b'F', !b'e'][..]));
/// # Ok(())
/// # }
/// ```
///
/// Merge operators and compaction filters see values as they are stored: a layer that changes values has to give the
/// database operators and filters that know.
pub trait StackableDb {
    /// What reads answer.
    type Value: Deref<Target = [u8]>;
    /// What walks the entries.
    type Iterator;

    // ---- what a layer says ----

    /// The database at the bottom. What is written to it directly has not gone through the layer.
    fn base(&self) -> &Db;
    /// Applies `batch` atomically.
    fn write(&self, batch: &WriteBatch, options: &WriteOptions) -> Result<()>;
    /// The value of `key` in `cf`.
    fn get_cf(
        &self,
        options: &ReadOptions,
        cf: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Self::Value>>;
    /// An iterator over `cf`.
    fn iter_cf(&self, options: &ReadOptions, cf: &ColumnFamily) -> Result<Self::Iterator>;

    // ---- what follows from it ----

    /// Sets `key` to `value` in `default`.
    fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_cf(&WriteOptions::default(), self.default_column_family(), key, value)
    }
    /// Sets `key` to `value` in `cf`.
    fn put_cf(
        &self,
        options: &WriteOptions,
        cf: &ColumnFamily,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.base().check_handle(cf)?;
        let mut batch = WriteBatch::new();
        batch.put_cf(cf, key, value);
        self.write(&batch, options)
    }
    /// Adds a merge operand to `key` in `cf`.
    fn merge_cf(
        &self,
        options: &WriteOptions,
        cf: &ColumnFamily,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.base().check_handle(cf)?;
        let mut batch = WriteBatch::new();
        batch.merge_cf(cf, key, operand);
        self.write(&batch, options)
    }
    /// Deletes `key` of `default`; fine if it does not exist.
    fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_cf(&WriteOptions::default(), self.default_column_family(), key)
    }
    /// Deletes `key` of `cf`.
    fn delete_cf(&self, options: &WriteOptions, cf: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<()> {
        self.base().check_handle(cf)?;
        let mut batch = WriteBatch::new();
        batch.delete_cf(cf, key);
        self.write(&batch, options)
    }
    /// The value of `key` in `default`.
    fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Self::Value>> {
        self.get_cf(&ReadOptions::default(), self.default_column_family(), key)
    }
    /// The values of `keys` in `cf`, all as of one moment.
    fn multi_get_cf<K: AsRef<[u8]>>(
        &self,
        options: &ReadOptions,
        cf: &ColumnFamily,
        keys: &[K],
    ) -> Vec<Result<Option<Self::Value>>> {
        let mut options = options.clone();
        options.snapshot.get_or_insert_with(|| self.snapshot());
        keys.iter().map(|key| self.get_cf(&options, cf, key)).collect()
    }
    /// An iterator over `default`, as of now.
    fn iter(&self) -> Result<Self::Iterator> {
        self.iter_cf(&ReadOptions::default(), self.default_column_family())
    }

    // ---- what goes to the database underneath ----

    /// The column family `default`.
    fn default_column_family(&self) -> &ColumnFamily {
        self.base().default_column_family()
    }
    /// The column family `name`, if it is open.
    fn column_family(&self, name: &str) -> Option<ColumnFamily> {
        self.base().column_family(name)
    }
    /// As [`Db::snapshot`].
    fn snapshot(&self) -> Snapshot {
        self.base().snapshot()
    }
    /// As [`Db::flush`].
    fn flush(&self) -> Result<()> {
        self.base().flush()
    }
    /// As [`Db::flush_cf`].
    fn flush_cf(&self, options: &FlushOptions, cf: &ColumnFamily) -> Result<()> {
        self.base().flush_cf(options, cf)
    }
    /// As [`Db::compact_range`].
    fn compact_range(
        &self,
        options: &CompactRangeOptions,
        cf: &ColumnFamily,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<()> {
        self.base().compact_range(options, cf, begin, end)
    }
    /// As [`Db::set_options`].
    fn set_options(&self, changes: &[(&str, &str)]) -> Result<()> {
        self.base().set_options(changes)
    }
    /// As [`Db::set_options_cf`].
    fn set_options_cf(&self, cf: &ColumnFamily, changes: &[(&str, &str)]) -> Result<()> {
        self.base().set_options_cf(cf, changes)
    }
    /// As [`Db::set_db_options`].
    fn set_db_options(&self, changes: &[(&str, &str)]) -> Result<()> {
        self.base().set_db_options(changes)
    }
    /// As [`Db::property_cf`].
    fn property_cf(&self, cf: &ColumnFamily, name: &str) -> Option<String> {
        self.base().property_cf(cf, name)
    }
    /// As [`Db::close`].
    fn close(&self) -> Result<()> {
        self.base().close()
    }
}

impl StackableDb for Db {
    type Value = PinnedValue;
    type Iterator = DbIterator;

    fn base(&self) -> &Db {
        self
    }
    fn write(&self, batch: &WriteBatch, options: &WriteOptions) -> Result<()> {
        self.write(batch, options)
    }
    fn get_cf(
        &self,
        options: &ReadOptions,
        cf: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<PinnedValue>> {
        self.get_cf(options, cf, key)
    }
    fn multi_get_cf<K: AsRef<[u8]>>(
        &self,
        options: &ReadOptions,
        cf: &ColumnFamily,
        keys: &[K],
    ) -> Vec<Result<Option<PinnedValue>>> {
        self.multi_get_cf(options, cf, keys)
    }
    fn iter_cf(&self, options: &ReadOptions, cf: &ColumnFamily) -> Result<DbIterator> {
        self.iter_cf(options, cf)
    }
}

impl WriteBatch {
    /// The same batch with `change` made to each value and merge operand: for layers that store values in another form.
    /// `Corruption` for damaged batches.
    pub fn with_values(
        &self,
        mut change: impl FnMut(ColumnFamilyId, &[u8]) -> Vec<u8>,
    ) -> Result<WriteBatch> {
        self.verify_checksum()?; // What is written is another batch.
        let mut changed = WriteBatch::with_capacity(self.size_bytes());
        for record in self.iter() {
            match record? {
                BatchRecord::Put { cf, key, value } => changed.put_in(cf, key, &change(cf, value)),
                BatchRecord::Delete { cf, key } => changed.delete_in(cf, key),
                BatchRecord::SingleDelete { cf, key } => changed.single_delete_in(cf, key),
                BatchRecord::LogData(blob) => changed.put_log_data(blob),
                BatchRecord::Noop => {}
                BatchRecord::Merge { cf, key, operand } => changed.merge_in(cf, key, &change(cf, operand)),
                BatchRecord::DeleteRange { cf, begin, end } => changed.delete_range_in(cf, begin, end),
            }
        }
        Ok(changed)
    }
}
