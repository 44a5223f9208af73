//! Writes table files outside of any database, to be ingested into one.

use crate::background::job::write_options;
use crate::column_family::ColumnFamily;
use crate::ingest::PreparedFileInfo;
use crate::open::session_id;
use crate::options::Options;
use ironstone_base::sync::Arc;
use ironstone_base::{
    ColumnFamilyId, Error, FileNumber, InternalKeyBuf, RangeTombstone, Result, SequenceNumber, ValueType,
};
use ironstone_cache::CacheOptions;
use ironstone_compress::{CompressionKind, CompressionOptions};
use ironstone_sst::properties::{EXTERNAL_SST_GLOBAL_SEQNO, EXTERNAL_SST_VERSION, UNKNOWN_COLUMN_FAMILY};
use ironstone_sst::{BlockCache, BuildOptions, TableBuilder, TableOptions};
use std::path::{Path, PathBuf};

/// The version of external files that is written: their entries have no sequence numbers of their own.
pub(crate) const EXTERNAL_VERSION: u32 = 2;

/// What RocksDB puts where the id of the database would stand.
const DB_ID: &str = "SST Writer";

/// Writes table files that are in no database yet: entries in strictly ascending order of their keys, and
/// range deletions in any order. RocksDB takes the files as well.
///
/// All entries of a file get one sequence number when it is ingested. A range deletion therefore deletes
/// nothing of its own file. One writer may write several files, one after the other.
///
/// Files are in the format of the options' `table_factory`, which has to be that of the column family that takes them. RocksDB
/// takes cuckoo tables of this writer, which say that they are files for ingestion; those of its own writer do not, and nobody
/// takes them.
///
/// ```
/// use ironstone::{Db, IngestOptions, Options, SstFileWriter};
///
/// # fn main() -> ironstone::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let mut options = Options::default();
/// options.db.create_if_missing = true;
/// let file = dir.path().join("metals.sst");
/// let mut writer = SstFileWriter::new(&options);
/// writer.open(&file)?;
/// writer.put(b"iron", b"Fe")?;
/// writer.put(b"tin", b"Sn")?;
/// assert_eq!(writer.finish()?.num_entries, 2);
///
/// let db = Db::open(&options, dir.path().join("db"))?;
/// db.ingest_external_files(db.default_column_family(), &[file], &IngestOptions::default())?;
/// assert_eq!(db.get(b"tin")?.as_deref(), Some(&b"Sn"[..]));
/// # Ok(())
/// # }
/// ```
pub struct SstFileWriter {
    options: Options,
    column_family: Option<(ColumnFamilyId, String)>,
    /// With the number of the file it makes the table's unique id.
    session_id: String,
    next_file: u64,
    open: Option<OpenFile>,
}

struct OpenFile {
    builder: TableBuilder,
    /// Written at the end, where they are in order.
    range_tombstones: Vec<RangeTombstone>,
    info: ExternalSstFileInfo,
}

/// What a file that [`SstFileWriter`] has finished holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ExternalSstFileInfo {
    /// Where it is.
    pub file_path: PathBuf,
    /// The first key; empty if there are range deletions only.
    pub smallest_key: Vec<u8>,
    /// The last key.
    pub largest_key: Vec<u8>,
    /// Where the first range deletion begins; empty if there is none.
    pub smallest_range_del_key: Vec<u8>,
    /// Where the last range deletion ends, itself not deleted.
    pub largest_range_del_key: Vec<u8>,
    /// Its length in bytes.
    pub file_size: u64,
    /// How many entries it has, range deletions not counted.
    pub num_entries: u64,
    /// How many range deletions it has.
    pub num_range_del_entries: u64,
    /// The version of external files: 2.
    pub version: u32,
    /// The whole file's checksum; empty without `file_checksum_gen_factory`.
    pub file_checksum: Vec<u8>,
    /// The function that made it.
    pub file_checksum_func_name: String,
    /// What went wrong with collectors of properties: the file is good without those properties.
    pub collector_failures: Vec<String>,
}

impl SstFileWriter {
    /// A writer of files for a column family with `options`, whichever that will be. Files are as those of
    /// the last level: compressed by `bottommost_compression`, or `compression` where that is not set.
    pub fn new(options: &Options) -> Self {
        let session_id = session_id(&options.db.env);
        Self { options: options.clone(), column_family: None, session_id, next_file: 1, open: None }
    }
    /// A writer of files for `cf` of an open database, and no other column family.
    pub fn for_column_family(options: &Options, cf: &ColumnFamily) -> Self {
        let column_family = Some((cf.id(), cf.name().to_owned()));
        Self { column_family, ..Self::new(options) }
    }

    /// Begins a file, over one that is there. A file that was begun before and not finished is given up.
    pub fn open(&mut self, path: impl AsRef<Path>) -> Result<()> {
        if let Some(unfinished) = self.open.take() {
            unfinished.builder.abandon();
        }
        let path = path.as_ref();
        let file = self.options.db.env.fs.create(path, write_options(&self.options.db))?;
        let builder = TableBuilder::new(self.build_options()?, file)?;
        self.next_file += 1;
        let info = ExternalSstFileInfo {
            file_path: path.to_owned(),
            version: EXTERNAL_VERSION,
            ..ExternalSstFileInfo::default()
        };
        self.open = Some(OpenFile { builder, range_tombstones: Vec::new(), info });
        Ok(())
    }

    fn table_options(&self) -> Result<TableOptions> {
        let mut cf = self.options.cf.clone();
        cf.sanitize();
        crate::options::validate(&self.options.db, &cf)?;
        let cache = || BlockCache::new(CacheOptions::default()); // Nothing is cached.
        cf.table_options(&self.options.db, cache, None)
    }

    fn build_options(&self) -> Result<BuildOptions> {
        let table = Arc::new(self.table_options()?);
        let merge_operator = self.options.cf.merge_operator.as_ref();
        let (compression, compression_options) = self.compression();
        let now = self.options.db.env.clock.now_seconds();
        let (id, name) = match &self.column_family {
            Some((id, name)) => (*id, name.clone()),
            None => (ColumnFamilyId(UNKNOWN_COLUMN_FAMILY as u32), String::new()),
        };
        Ok(BuildOptions {
            compression,
            compression_options,
            column_family_id: id,
            column_family_name: name,
            db_id: DB_ID.to_owned(),
            db_session_id: self.session_id.clone(),
            db_host_id: self.options.db.host_id(),
            file_number: FileNumber(self.next_file),
            creation_time: 0, // Of the data, which is the application's to know.
            file_creation_time: now,
            user_properties: vec![
                (EXTERNAL_SST_VERSION.to_owned(), EXTERNAL_VERSION.to_le_bytes().to_vec()),
                (EXTERNAL_SST_GLOBAL_SEQNO.to_owned(), 0u64.to_le_bytes().to_vec()),
            ],
            merge_operator_name: merge_operator.map_or("nullptr", |op| op.name()).to_owned(),
            file_checksum: self.options.db.file_checksum_gen_factory.clone(),
            checksum_handoff: self.options.db.checksum_handoff_file_types.table,
            ..BuildOptions::new(table)
        })
    }

    fn compression(&self) -> (CompressionKind, CompressionOptions) {
        let cf = &self.options.cf;
        match (cf.bottommost_compression, cf.compression_per_level.last()) {
            (Some(bottommost), _) if cf.bottommost_compression_opts.enabled => {
                (bottommost, cf.bottommost_compression_opts.clone())
            }
            (Some(kind), _) | (None, Some(&kind)) => (kind, cf.compression_opts.clone()),
            (None, None) => (cf.compression, cf.compression_opts.clone()),
        }
    }

    /// Adds `key` with `value`. `InvalidArgument` unless `key` comes after the last one.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.add(ValueType::Value, key.as_ref(), value.as_ref())
    }
    /// Adds a merge operand for `key`.
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.add(ValueType::Merge, key.as_ref(), operand.as_ref())
    }
    /// Adds a tombstone: the database that takes the file deletes `key`.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(ValueType::Deletion, key.as_ref(), &[])
    }
    /// Adds a range deletion: the database that takes the file deletes the keys of `begin..end`, but for
    /// those of this file. `InvalidArgument` if `end` comes before `begin`; nothing if they are equal. `NotSupported` for files
    /// whose `table_factory` has no range deletions.
    pub fn delete_range(&mut self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<()> {
        let (begin, end) = (begin.as_ref(), end.as_ref());
        let order = &self.options.cf.comparator;
        let file = self.open.as_mut().ok_or_else(not_open)?;
        let format = self.options.cf.table_format;
        if !format.has_range_tombstones() {
            let path = file.info.file_path.display();
            let what = format!("{path}: delete_range in a file of table_factory {}", format.name());
            return Err(Error::not_supported(what));
        }
        match order.compare(begin, end) {
            std::cmp::Ordering::Greater => {
                return Err(Error::invalid_argument("end key comes before start key"));
            }
            std::cmp::Ordering::Equal => return Ok(()),
            std::cmp::Ordering::Less => {}
        }
        let info = &mut file.info;
        let first = info.num_range_del_entries == 0;
        if first || order.compare(begin, &info.smallest_range_del_key).is_lt() {
            info.smallest_range_del_key = begin.to_vec();
        }
        if first || order.compare(end, &info.largest_range_del_key).is_gt() {
            info.largest_range_del_key = end.to_vec();
        }
        info.num_range_del_entries += 1;
        let sequence = SequenceNumber::ZERO;
        file.range_tombstones.push(RangeTombstone { begin: begin.to_vec(), end: end.to_vec(), sequence });
        Ok(())
    }

    fn add(&mut self, kind: ValueType, key: &[u8], value: &[u8]) -> Result<()> {
        let order = &self.options.cf.comparator;
        let file = self.open.as_mut().ok_or_else(not_open)?;
        let info = &mut file.info;
        if info.num_entries > 0 && order.compare(key, &info.largest_key).is_le() {
            return Err(Error::invalid_argument(format!(
                "{}: Keys must be added in strict ascending order: {} after {}",
                info.file_path.display(),
                self.options.db.data_in_errors().user_key(key),
                self.options.db.data_in_errors().user_key(&info.largest_key)
            )));
        }
        let entry = InternalKeyBuf::new(key, SequenceNumber::ZERO, kind);
        file.builder.add(entry.as_key(), value)?;
        if info.num_entries == 0 {
            info.smallest_key = key.to_vec();
        }
        info.largest_key.clear();
        info.largest_key.extend_from_slice(key);
        info.num_entries += 1;
        Ok(())
    }

    /// About how many bytes the file has so far; 0 if none is open.
    pub fn file_size(&self) -> u64 {
        self.open.as_ref().map_or(0, |file| file.builder.file_size())
    }

    /// Completes the file and syncs it. Its name becomes durable with its directory, which is the caller's to
    /// sync; ingesting the file does not need that.
    ///
    /// `InvalidArgument` if nothing was added.
    pub fn finish(&mut self) -> Result<ExternalSstFileInfo> {
        let OpenFile { mut builder, mut range_tombstones, mut info } =
            self.open.take().ok_or_else(not_open)?;
        if info.num_entries + info.num_range_del_entries == 0 {
            builder.abandon();
            return Err(Error::invalid_argument("Cannot create sst file with no entries"));
        }
        let order = &self.options.cf.comparator;
        range_tombstones.sort_by(|a, b| order.compare(&a.begin, &b.begin));
        for tombstone in &range_tombstones {
            let begin = InternalKeyBuf::new(&tombstone.begin, SequenceNumber::ZERO, ValueType::RangeDeletion);
            builder.add_range_tombstone(begin.as_key(), &tombstone.end)?;
        }
        let built = builder.finish(true)?;
        info.file_size = built.file_size;
        info.file_checksum = built.file_checksum.checksum;
        info.file_checksum_func_name = built.file_checksum.function;
        info.collector_failures = built.collected.failures;
        Ok(info)
    }

    /// The same, and answers what ingestion of the file need not find out again: see
    /// [`IngestFiles::file_infos`](crate::IngestFiles::file_infos). The file is opened for that.
    pub fn finish_prepared(&mut self) -> Result<(ExternalSstFileInfo, PreparedFileInfo)> {
        let info = self.finish()?;
        let fs = &*self.options.db.env.fs;
        let prepared = PreparedFileInfo::of_file(fs, &info.file_path, &self.table_options()?)?;
        Ok((info, prepared))
    }
}

fn not_open() -> Error {
    Error::invalid_argument("File is not opened")
}
