//! About how much there is in key ranges, without reading it.

use crate::Db;
use crate::column_family::ColumnFamily;
use crate::read::view::SuperVersion;
use crate::table_cache::TableSlot;
use ironstone_base::sync::Arc;
use ironstone_base::{Error, InternalKeyBuf, Result, SequenceNumber};
use ironstone_version::FileMetaData;
use std::ops::Range;

/// What [`Db::approximate_sizes`] counts. Names, meanings and defaults are RocksDB's.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SizeApproximationOptions {
    /// Count what memtables hold. Default false.
    pub include_memtables: bool,
    /// Count what tables hold. Default true.
    pub include_files: bool,
    /// If the tables that lie in a range only in part have less than this share of the bytes of those that lie in it as a whole,
    /// half of their bytes is counted, and none of them is asked where the range begins or ends in it. Default -1: all are asked.
    pub files_size_error_margin: f64,
}

impl Default for SizeApproximationOptions {
    fn default() -> Self {
        Self { include_memtables: false, include_files: true, files_size_error_margin: -1.0 }
    }
}

/// About what the memtables of a column family hold in a key range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ApproximateMemTableStats {
    /// Entries: old versions and tombstones count as well, range tombstones do not.
    pub count: u64,
    /// Bytes of their keys and values.
    pub size: u64,
}

impl Db {
    /// About how many bytes the entries of `cf` take whose keys are in each of `ranges`; of an empty range none. In tables that is
    /// what they take in the file, compressed, with their share of filters and indexes; old versions and tombstones count as well.
    /// Tables that lie in a range only in part are asked by their index, which is exact to a block.
    ///
    /// ```
    /// # use ironstone::{Db, Options, SizeApproximationOptions};
    /// # fn main() -> ironstone::Result<()> {
    /// # let db = Db::open(&Options::in_memory(), "/db")?;
    /// db.put(b"iron", b"Fe")?;
    /// db.flush()?;
    /// let ranges = [&b"a"[..]..b"j", b"j"..b"z"];
    /// let sizes = db.approximate_sizes(&SizeApproximationOptions::default(), db.default_column_family(), &ranges)?;
    /// assert!(sizes[0] > 0);
    /// assert_eq!(sizes[1], 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if `options` leave nothing to count; what opening a table or reading its index answers.
    pub fn approximate_sizes<K: AsRef<[u8]>>(
        &self,
        options: &SizeApproximationOptions,
        cf: &ColumnFamily,
        ranges: &[Range<K>],
    ) -> Result<Vec<u64>> {
        self.check_handle(cf)?;
        if !options.include_memtables && !options.include_files {
            return Err(Error::invalid_argument("sizes neither of memtables nor of files are asked for"));
        }
        let view = cf.0.view();
        let size_of = |range: &Range<K>| {
            let (begin, end) = (range.start.as_ref(), range.end.as_ref());
            let in_memory = if options.include_memtables { view.memtable_stats(begin, end).size } else { 0 };
            let in_files = match options.include_files {
                true => view.bytes_in_tables(begin, end, options.files_size_error_margin)?,
                false => 0,
            };
            Ok(in_memory + in_files)
        };
        ranges.iter().map(size_of).collect()
    }

    /// About what the memtables of `cf` hold in `range`: exact if that is little.
    pub fn approximate_memtable_stats<K: AsRef<[u8]>>(
        &self,
        cf: &ColumnFamily,
        range: Range<K>,
    ) -> Result<ApproximateMemTableStats> {
        self.check_handle(cf)?;
        Ok(cf.0.view().memtable_stats(range.start.as_ref(), range.end.as_ref()))
    }
}

impl SuperVersion {
    fn memtable_stats(&self, begin: &[u8], end: &[u8]) -> ApproximateMemTableStats {
        let mut stats = ApproximateMemTableStats::default();
        for memtable in std::iter::once(&self.mem).chain(&self.imm) {
            let table = memtable.table();
            let count = table.approximate_count(begin, end);
            stats.count += count;
            stats.size += count * (table.data_size() / table.num_entries().max(1));
        }
        stats
    }

    fn bytes_in_tables(&self, begin: &[u8], end: &[u8], margin: f64) -> Result<u64> {
        let order = &self.comparator.user;
        if order.compare(begin, end).is_ge() {
            return Ok(0);
        }
        let (mut whole, mut in_part) = (0, Vec::new());
        for (number, level) in self.levels.iter().enumerate() {
            let overlapping = match number {
                0 => 0..level.tables.len(), // They are in the order of their age.
                _ => level.files.overlapping(&self.comparator, Some(begin), Some(end)),
            };
            for at in overlapping {
                let (slot, file) = (&level.tables[at], &level.files.files()[at]);
                let (smallest, largest) = (file.smallest.user_key(), file.largest.user_key());
                let is_before = order.compare(largest, begin).is_lt();
                if is_before || order.compare(smallest, end).is_ge() {
                    continue;
                }
                let begins_inside = order.compare(smallest, begin).is_lt();
                let ends_inside = order.compare(largest, end).is_ge();
                match (begins_inside, ends_inside) {
                    (false, false) => whole += file.file_size,
                    _ => in_part.push((slot, file, begins_inside, ends_inside)),
                }
            }
        }
        let partial: u64 = in_part.iter().map(|(_, file, ..)| file.file_size).sum();
        if margin > 0.0 && (partial as f64) < whole as f64 * margin {
            return Ok(whole + partial / 2);
        }
        for (slot, file, begins_inside, ends_inside) in in_part {
            let to = if ends_inside { bytes_before(slot, file, end)? } else { file.file_size };
            let from = if begins_inside { bytes_before(slot, file, begin)? } else { 0 };
            whole += to.saturating_sub(from);
        }
        Ok(whole)
    }
}

/// About how many bytes of a table its entries before `key` take, with their share of what is there for all of them.
fn bytes_before(slot: &Arc<TableSlot>, file: &FileMetaData, key: &[u8]) -> Result<u64> {
    let reader = slot.reader()?;
    let key = InternalKeyBuf::for_seek(key, SequenceNumber::MAX);
    let offset = reader.approximate_offset_of(key.as_key())?;
    // Without properties, as in LevelDB's tables, the share of the rest is not known.
    let data_size = Some(reader.properties().data_size).filter(|size| *size > 0).unwrap_or(file.file_size);
    let bytes = u128::from(file.file_size) * u128::from(offset.min(data_size)) / u128::from(data_size.max(1));
    Ok(bytes as u64)
}
