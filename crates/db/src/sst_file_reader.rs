//! Reads one table file outside of any database.

use crate::background::Cleaner;
use crate::memtables::DbMemTable;
use crate::options::Options;
use crate::read::db_iterator::{Bounds, DbIterator};
use crate::read::range_tombstones::Covering;
use crate::read::read_options::ReadOptions;
use crate::read::source::Places;
use crate::read::view::{PokeWhenDropped, SuperVersion};
use crate::write::switch::memtable_of;
use crate::write_buffer_manager::MemTableMemory;
use ironstone_base::sync::Arc;
use ironstone_base::{ColumnFamilyId, FileNumber, InternalKeyComparator, Result, SequenceNumber};
use ironstone_cache::CacheOptions;
use ironstone_sst::{BlockCache, OpenOptions, TableProperties, TableReader};
use ironstone_version::Version;
use std::path::Path;

/// Reads one table file, of [`SstFileWriter`](crate::SstFileWriter), of a database, or of RocksDB.
///
/// ```
/// use ironstone::{Options, SstFileReader, SstFileWriter};
///
/// # fn main() -> ironstone::Result<()> {
/// # let options = Options::in_memory();
/// let mut writer = SstFileWriter::new(&options);
/// writer.open("/metals.sst")?;
/// writer.put(b"iron", b"Fe")?;
/// writer.finish()?;
///
/// let reader = SstFileReader::open(&options, "/metals.sst")?;
/// reader.verify_checksum()?;
/// assert_eq!(reader.properties().num_entries, 1);
/// let (key, value) = reader.iter(&Default::default()).entries().next().unwrap()?;
/// assert_eq!((&key[..], &value[..]), (&b"iron"[..], &b"Fe"[..]));
/// # Ok(())
/// # }
/// ```
pub struct SstFileReader {
    options: Options,
    table: Arc<TableReader>,
}

impl SstFileReader {
    /// Opens the table at `path`. The comparator of `options` must be the one that it was made with.
    pub fn open(options: &Options, path: impl AsRef<Path>) -> Result<Self> {
        let file = options.db.env.fs.open_random(path.as_ref(), options.db.table_hints())?;
        let cache = || BlockCache::new(CacheOptions::default());
        let mut cf = options.cf.clone();
        cf.sanitize();
        let mut open = OpenOptions::new(Arc::new(cf.table_options(&options.db, cache, None)?), FileNumber(0));
        open.skip_filters = cf.comparator.different_bytes_may_be_equal();
        let size = file.size();
        let table = Arc::new(TableReader::open(file, size, open)?);
        let options = Options { db: options.db.clone(), cf };
        Ok(Self { options, table })
    }

    /// The keys of the table with their newest values: what is deleted is left out, merge operands are merged.
    /// `snapshot` and `tailing` in `options` are of no meaning and not looked at.
    pub fn iter(&self, options: &ReadOptions) -> DbIterator {
        let cf = &self.options.cf;
        let comparator = InternalKeyComparator::new(cf.comparator.clone());
        let mut tombstones = Covering::new(comparator.clone(), SequenceNumber::MAX);
        tombstones.add(0, self.table.range_fragments());
        let prefix_seek = options.prefix_seek(cf, self.options.db.prefix_seek_opt_in_only);
        let inner = Box::new(self.table.iter(&options.table_options(prefix_seek.clone())));
        let view = self.view(comparator);
        let places = Places { inner, tombstones, sequence: SequenceNumber::MAX, view };
        let bounds = Bounds::new(options, cf, prefix_seek);
        DbIterator::new(places, bounds, None)
    }

    /// The value of `key` in the table, its merge operands merged. Of `options`, those count that say how blocks are read.
    pub fn get(&self, options: &ReadOptions, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let key = key.as_ref();
        let options = ReadOptions {
            total_order_seek: true,
            prefix_same_as_start: false,
            iterate_lower_bound: None,
            iterate_upper_bound: None,
            readahead_size: 0,
            ..options.clone()
        };
        if !self.table.may_match(&options.context(), key)? {
            return Ok(None);
        }
        let mut iter = self.iter(&options);
        let found = iter.seek(key)? && iter.key().is_some_and(|found| self.is_same(found, key));
        Ok(iter.value().filter(|_| found).map(<[u8]>::to_vec))
    }
    /// The same of several keys, in their order.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        options: &ReadOptions,
        keys: &[K],
    ) -> Vec<Result<Option<Vec<u8>>>> {
        keys.iter().map(|key| self.get(options, key)).collect()
    }
    fn is_same(&self, a: &[u8], b: &[u8]) -> bool {
        self.options.cf.comparator.compare(a, b).is_eq()
    }

    /// The view of a column family without anything: the iterator brings its table along.
    fn view(&self, comparator: InternalKeyComparator) -> Arc<SuperVersion> {
        let cf = &self.options.cf;
        let mem: Arc<DbMemTable> =
            memtable_of(ColumnFamilyId::DEFAULT, &comparator, cf, &MemTableMemory::new(None), 0);
        Arc::new(SuperVersion {
            mem,
            imm: Vec::new(),
            levels: Vec::new(),
            version: Arc::new(Version::empty(comparator.clone(), 0)),
            comparator,
            merge_operator: cf.merge_operator.clone(),
            number: 0,
            statistics: None,
            sampler: None,
            _poke: PokeWhenDropped(Arc::<Cleaner>::default()),
        })
    }

    /// Reads the whole file and checks every checksum, the order of the keys and their number.
    pub fn verify_checksum(&self) -> Result<()> {
        self.table.verify_checksums()
    }
    pub(crate) fn table(&self) -> &Arc<TableReader> {
        &self.table
    }
    /// What the table says about itself.
    pub fn properties(&self) -> &TableProperties {
        self.table.properties()
    }
}
