//! Walks a table file entry by entry, whether a read would show them or not.

use crate::SstFileReader;
use ironstone_base::{Error, InternalKeyBuf, Result, SequenceNumber, ValueType};
use ironstone_iter::InternalIterator;
use ironstone_sst::{EntryKind, ReadContext, TableIter, TableReadOptions};

/// An entry of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RawEntry<'a> {
    /// The user key.
    pub key: &'a [u8],
    /// Which write it is: of an ingested file that of the whole file, if one was given to it.
    pub sequence: SequenceNumber,
    /// What it does to its key.
    pub kind: EntryKind,
    /// The value or the merge operand.
    pub value: &'a [u8],
}

/// Walks the entries of a table as they are stored: by key, the newest of a key first, tombstones and old versions too, but no range
/// tombstones. RocksDB's `NewTableIterator`. Moves answer whether the iterator stands on an entry then.
pub struct TableIterator {
    inner: TableIter,
}

impl TableIterator {
    /// Moves to the first entry.
    pub fn seek_to_first(&mut self) -> Result<bool> {
        self.inner.seek_to_first()
    }
    /// Moves to the last entry.
    pub fn seek_to_last(&mut self) -> Result<bool> {
        self.inner.seek_to_last()
    }
    /// Moves to the newest entry of `key`, or to the first after it.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.inner.seek(InternalKeyBuf::for_seek(key.as_ref(), SequenceNumber::MAX).as_key())
    }
    /// Moves to the oldest entry of `key`, or to the last before it.
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let oldest = InternalKeyBuf::new(key.as_ref(), SequenceNumber::ZERO, ValueType::FOR_SEEK_FOR_PREV);
        self.inner.seek_for_prev(oldest.as_key())
    }
    /// Moves to the next entry; stays where it is if it stands on none.
    #[allow(clippy::should_implement_trait)] // It lends its entries.
    pub fn next(&mut self) -> Result<bool> {
        if self.inner.valid() { self.inner.next() } else { Ok(false) }
    }
    /// Moves to the entry before; stays where it is if it stands on none.
    pub fn prev(&mut self) -> Result<bool> {
        if self.inner.valid() { self.inner.prev() } else { Ok(false) }
    }
    /// The entry that it stands on.
    pub fn entry(&self) -> Option<RawEntry<'_>> {
        self.inner.valid().then(|| {
            let key = self.inner.key();
            RawEntry {
                key: key.user_key(),
                sequence: key.sequence(),
                kind: key.value_type().map_or(EntryKind::Other, EntryKind::from),
                value: self.inner.value(),
            }
        })
    }
}

impl SstFileReader {
    /// Walks all entries of the table as they are stored. Nothing of it stays in the block cache.
    ///
    /// ```
    /// # use ironstone::{EntryKind, Options, SstFileReader, SstFileWriter};
    /// # fn main() -> ironstone::Result<()> {
    /// # let options = Options::in_memory();
    /// let mut writer = SstFileWriter::new(&options);
    /// writer.open("/metals.sst")?;
    /// writer.delete(b"tin")?;
    /// writer.finish()?;
    ///
    /// let reader = SstFileReader::open(&options, "/metals.sst")?;
    /// let mut entries = reader.table_iter();
    /// assert!(entries.seek_to_first()?);
    /// assert_eq!(entries.entry().unwrap().kind, EntryKind::Delete);
    /// assert!(!entries.next()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn table_iter(&self) -> TableIterator {
        let read = ReadContext { fill_cache: false, ..ReadContext::default() };
        TableIterator { inner: self.table().iter(&TableReadOptions { read, ..TableReadOptions::default() }) }
    }

    /// Counts the entries. `Corruption` if they are not as many as the properties of the table say, also if it has none, as tables of
    /// LevelDB.
    pub fn verify_num_entries(&self) -> Result<()> {
        let mut entries = self.table_iter();
        let mut count = 0_u64;
        let mut more = entries.seek_to_first()?;
        while more {
            count += 1;
            more = entries.next()?;
        }
        let properties = self.properties();
        let stated = properties.num_entries.saturating_sub(properties.num_range_deletions);
        if count != stated {
            let what = format!("the properties say that it has {stated} entries, and {count} were read");
            return Err(Error::corruption(format!("{}: {what}", self.table().path().display())));
        }
        Ok(())
    }
}
