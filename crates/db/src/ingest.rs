//! Brings table files that were made elsewhere into the database.
//!
//! ```text
//! prepare  examine   bounds and properties of each file                        no lock
//!          bring in  link or copy under numbers of ours, sync, sync directory  no lock
//! commit   make room flush the memtables that the files overlap                no lock
//!          place     take sequence numbers; later writes wait to be seen       `switching`
//!                    search the deepest level that each file fits in           `switching`, manifest
//!                    commit one group of edits for all column families
//! ```
//! Between the two a [`FileIngestionHandle`] has the files: see `handle`.
//! What was written before the sequence numbers were taken is in tables where the files overlap it, so the files
//! are newer than all tables below them, and older than every entry that memtables hold of their keys. Files that are
//! ingested behind need none of this: see `behind`. Files that a database wrote keep their sequence numbers, and must
//! overlap nothing: see `generated`.

mod behind;
mod generated;
mod handle;
mod prepared;
mod replace;

pub use handle::FileIngestionHandle;
pub use prepared::PreparedFileInfo;
use replace::{ReplacedRange, memtable_overlaps};

use crate::Db;
use crate::background::flush::{flush_and_wait, wait_flushed};
use crate::background::job::write_options;
use crate::column_family::{ColumnFamily, ColumnFamilyData};
use crate::engine::{Engine, State};
use crate::file_copy::{copy_file, link_or_copy, read_through, sync_file};
use crate::info_log::{info, warning};
use crate::listener::{BackgroundErrorReason, ExternalFileIngestionInfo};
use crate::memtables::{DbMemTable, FlushReason};
use crate::parallel::in_parallel;
use crate::read::view::SuperVersion;
use crate::sst_file_writer::EXTERNAL_VERSION;
use crate::table_paths::TablePaths;
use crate::write::switch::Which;
use ironstone_base::perf::PerfMetric;
use ironstone_base::sync::Arc;
use ironstone_base::{
    Code, ColumnFamilyId, Error, FileNumber, InternalKey, InternalKeyBuf, Result, SequenceNumber,
    UserComparator, ValueType, file_name,
};
use ironstone_compaction::{CompactionId, CompactionStyle, KeyRange, LevelShape};
use ironstone_iter::InternalIterator;
use ironstone_sst::block_trace::{TableReaderCaller, TracedCall};
use ironstone_sst::properties::UNKNOWN_COLUMN_FAMILY;
use ironstone_sst::{FileChecksum, FileChecksumContext, ReadContext, TableReadOptions, TableReader};
use ironstone_version::{FileMetaData, VersionEdit};
use ironstone_vfs::{FileSystem, PerfTimer, WriteOptions};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// How files are brought in. Names, meanings and defaults are RocksDB's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IngestOptions {
    /// Link the files instead of copying them, and remove their old names once they are in. Default false.
    pub move_files: bool,
    /// Link the files instead of copying them, and leave their old names. Default false; not with `move_files`.
    pub link_files: bool,
    /// Copy files that cannot be linked, for instance from another file system. Default true.
    pub failed_move_fall_back_to_copy: bool,
    /// Snapshots that were taken before do not see the files. Default true.
    pub snapshot_consistency: bool,
    /// The entries of the files may be given a sequence number. Default true. Without, files that overlap what is
    /// there, or come while a snapshot is held, are refused.
    pub allow_global_seqno: bool,
    /// Flush memtables that the files overlap, and wait for that. Default true. Without, such files are refused.
    pub allow_blocking_flush: bool,
    /// Put the files below everything that is there, with sequence number 0: keys of theirs that were ever written are
    /// passed over, and the rest is seen at once, by snapshots as well: even keys that were first written after a snapshot
    /// was taken, which does not see that. Default false. Needs `cf_allow_ingest_behind`, which has to be
    /// on since the column family was created; the files must not overlap each other, nor tables of the last level.
    /// `snapshot_consistency`, `allow_global_seqno`, `allow_blocking_flush` and `fail_if_not_bottommost_level` are then
    /// without effect.
    ///
    /// ```
    /// use ironstone::{Db, IngestOptions, Options, SstFileWriter};
    ///
    /// let mut options = Options::in_memory();
    /// options.cf.cf_allow_ingest_behind = true;
    /// let mut writer = SstFileWriter::new(&options);
    /// writer.open("/backfill.sst")?;
    /// writer.put(b"gold", b"old")?;
    /// writer.put(b"iron", b"old")?;
    /// writer.finish()?;
    ///
    /// let db = Db::open(&options, "/db")?;
    /// db.put(b"iron", b"new")?;
    /// let behind = IngestOptions { ingest_behind: true, ..IngestOptions::default() };
    /// db.ingest_external_files(db.default_column_family(), &["/backfill.sst"], &behind)?;
    /// assert_eq!(db.get(b"iron")?.as_deref(), Some(&b"new"[..]));
    /// assert_eq!(db.get(b"gold")?.as_deref(), Some(&b"old"[..]));
    /// # Ok::<_, ironstone::Error>(())
    /// ```
    pub ingest_behind: bool,
    /// Write the sequence number into the files as well: only RocksDB before 5.16 needs that, later ones read it from the MANIFEST.
    /// Default false. A file that gets one is written once more while writes wait; the files that were handed in stay as
    /// they are.
    pub write_global_seqno: bool,
    /// With [`IngestFiles::files_checksums`], and with `file_checksum_gen_factory`: make the checksums of the files once they are
    /// here, and refuse those that differ from what was handed in. Default true. Without, what was handed in is believed as
    /// long as the factory knows the function.
    pub verify_file_checksum: bool,
    /// Read the files and check all their checksums before anything else. Default false.
    pub verify_checksums_before_ingest: bool,
    /// How many bytes of a file are read at once by that; 0, the default: one block after the other. (RocksDB: 0 is the table's
    /// `max_auto_readahead_size`.)
    pub verify_checksums_readahead_size: usize,
    /// Keep in the block cache what is read of the tables that are there, to find where the files fit. Default true. Nothing that is
    /// read of the files themselves is kept: they have no name in the cache before they are in.
    pub fill_cache: bool,
    /// `TryAgain` unless all files fit in the last level. Default false.
    pub fail_if_not_bottommost_level: bool,
    /// Take files that a database wrote, of whichever column family, too. Default false. All files of the call then keep the
    /// sequence numbers of their entries, and later writes get larger ones. So they must overlap nothing that is there,
    /// and with `snapshot_consistency` no snapshot may be held (best turn it off: snapshots see what is not newer than they
    /// are): `InvalidArgument` if not. They may overlap each other: where several hold a key, earlier ones must
    /// hold its older entries, which nobody checks (tables of a column family: deepest level first, level 0 from its oldest
    /// on). `allow_global_seqno` is without effect. `ingest_behind` takes only those whose sequence numbers are all 0.
    /// A file of an [`SstFileWriter`](crate::SstFileWriter) says 0 even after it was ingested elsewhere: the MANIFEST there
    /// has its number, so compact it before its table goes on from there.
    ///
    /// The tables of an open database are to be linked (`link_files`), not moved.
    pub allow_db_generated_files: bool,
    /// How many threads open, examine and check the files, the caller's among them. Default 1. (RocksDB opens their tables in these,
    /// which happens here when they are read.)
    pub file_opening_threads: usize,
}

impl Default for IngestOptions {
    fn default() -> Self {
        Self {
            move_files: false,
            link_files: false,
            failed_move_fall_back_to_copy: true,
            snapshot_consistency: true,
            allow_global_seqno: true,
            allow_blocking_flush: true,
            ingest_behind: false,
            write_global_seqno: false,
            verify_file_checksum: true,
            verify_checksums_before_ingest: false,
            verify_checksums_readahead_size: 0,
            fill_cache: true,
            fail_if_not_bottommost_level: false,
            allow_db_generated_files: false,
            file_opening_threads: 1,
        }
    }
}

impl IngestOptions {
    fn check(&self) -> Result<()> {
        if self.move_files && self.link_files {
            return Err(Error::invalid_argument("`move_files` and `link_files` can not both be true."));
        }
        Ok(())
    }
}

/// Files for one column family, see [`Db::ingest_external_files_of`].
#[derive(Clone, Debug)]
pub struct IngestFiles<'a> {
    /// The column family that they go to.
    pub cf: &'a ColumnFamily,
    /// Where they are. If several hold the same key, the last one wins.
    pub files: Vec<PathBuf>,
    /// How they are brought in.
    pub options: IngestOptions,
    /// The checksum of each whole file, in the order of `files`, or none at all: see [`IngestOptions::verify_file_checksum`].
    /// Without `file_checksum_gen_factory` they mean nothing.
    pub files_checksums: Vec<Vec<u8>>,
    /// The name of the function that made each of them.
    pub files_checksum_func_names: Vec<String>,
    /// Remove all that is in this key range, its end excluded, in the same step: whole tables leave, and a range tombstone below the files
    /// hides what else there is of it. `(None, None)` is all there is in the column family; one bound alone is `NotSupported`. All
    /// files must lie in it (`InvalidArgument`). Snapshots lose what was there: `NotSupported` with
    /// [`snapshot_consistency`](IngestOptions::snapshot_consistency). Default: nothing is removed.
    ///
    /// `InvalidArgument` while a compaction has some of it, and if tables reach out of the range where no tombstone can be: without
    /// `allow_global_seqno`, with `allow_db_generated_files`, and in tables that have no range tombstones. `TryAgain` for such tables
    /// with `fail_if_not_bottommost_level`, and if there are some at the commit where there were none when the files were prepared.
    /// (In RocksDB there is a tombstone with universal compaction only.)
    ///
    /// ```
    /// use ironstone::{Db, IngestFiles, IngestOptions, Options, SstFileWriter};
    ///
    /// let options = Options::in_memory();
    /// let mut writer = SstFileWriter::new(&options);
    /// writer.open("/today.sst")?;
    /// writer.put(b"price/iron", b"101")?;
    /// writer.finish()?;
    ///
    /// let db = Db::open(&options, "/db")?;
    /// ["price/gold", "price/iron", "stock/iron"].iter().try_for_each(|key| db.put(key, b"100"))?;
    /// db.flush()?; // A table that reaches out of the range and appears meanwhile is `TryAgain`.
    /// let how = IngestOptions { snapshot_consistency: false, ..IngestOptions::default() };
    /// let files = IngestFiles::new(db.default_column_family(), vec!["/today.sst".into()], how);
    /// let prices = Some((Some(&b"price/"[..]), Some(&b"price0"[..])));
    /// db.ingest_external_files_of(&[IngestFiles { atomic_replace_range: prices, ..files }])?;
    /// assert!(db.get(b"price/gold")?.is_none() && db.get(b"stock/iron")?.is_some());
    /// assert_eq!(db.get(b"price/iron")?.as_deref(), Some(&b"101"[..]));
    /// # Ok::<_, ironstone::Error>(())
    /// ```
    pub atomic_replace_range: Option<KeyRange<'a>>,
    /// What [`SstFileWriter::finish_prepared`](crate::SstFileWriter::finish_prepared) answered of each file, in the order of `files`, or
    /// nothing at all: then each file is opened and looked at. It is believed, but for the file's size; with
    /// [`verify_checksums_before_ingest`](IngestOptions::verify_checksums_before_ingest) the files are read all the same.
    pub file_infos: Vec<PreparedFileInfo>,
}

impl<'a> IngestFiles<'a> {
    /// Files without checksums and prepared information.
    pub fn new(cf: &'a ColumnFamily, files: Vec<PathBuf>, options: IngestOptions) -> Self {
        Self {
            cf,
            files,
            options,
            files_checksums: Vec::new(),
            files_checksum_func_names: Vec::new(),
            atomic_replace_range: None,
            file_infos: Vec::new(),
        }
    }

    /// The checksums that were handed in, of all files or of none.
    fn checksums(&self) -> Result<Vec<FileChecksum>> {
        let (checksums, functions) = (&self.files_checksums, &self.files_checksum_func_names);
        if checksums.len() != functions.len() || ![0, self.files.len()].contains(&checksums.len()) {
            return Err(Error::invalid_argument(format!(
                "ingesting {} files with {} checksums and {} names of functions",
                self.files.len(),
                checksums.len(),
                functions.len()
            )));
        }
        let pairs = checksums.iter().zip(functions);
        let owned = |(checksum, function): (&Vec<u8>, &String)| FileChecksum {
            checksum: checksum.clone(),
            function: function.clone(),
        };
        Ok(pairs.map(owned).collect())
    }
}

impl Db {
    /// Brings files of [`SstFileWriter`](crate::SstFileWriter), or RocksDB's, into `cf`, all or none. Their entries
    /// take effect as if they were written now; if several files hold the same key, the last one wins. Each file
    /// goes to the deepest level where nothing on it or above holds its keys, so most are never rewritten.
    ///
    /// When this returns, all of it is durable, and readers see it. While the last part of it runs (no file is
    /// copied then, but a memtable may have to be flushed) writes wait.
    ///
    /// # Errors
    /// `InvalidArgument` for files that are not of version 2 of external files, are empty, have another comparator
    /// or were made for another column family, and where `options` allow no sequence number or no flush and one is
    /// needed, and where `ingest_behind` finds no room on the last level. `NotSupported`
    /// for files to ingest behind that overlap each other, and for files of another format than the column family's
    /// `table_factory`. `Corruption` for damaged files, and for those whose checksums differ
    /// from what was handed in. The database is then as it was, and so are the files.
    pub fn ingest_external_files(
        &self,
        cf: &ColumnFamily,
        files: &[impl AsRef<Path>],
        options: &IngestOptions,
    ) -> Result<()> {
        let files = files.iter().map(|file| file.as_ref().to_owned()).collect();
        self.ingest_external_files_of(&[IngestFiles::new(cf, files, options.clone())])
    }

    /// The same for several column families: all files of all of them, or none.
    pub fn ingest_external_files_of(&self, families: &[IngestFiles<'_>]) -> Result<()> {
        let _timer = PerfTimer::start(PerfMetric::FileIngestionNanos);
        self.commit_file_ingestion_handle(self.prepare_file_ingestion(families)?)
    }
}

/// The files of one column family.
struct Job {
    data: Arc<ColumnFamilyData>,
    options: IngestOptions,
    /// In the caller's order: later ones are newer.
    files: Vec<ExternalFile>,
    /// Their checksums, if they were handed in and mean something.
    checksums: Vec<FileChecksum>,
    /// Whether two of them hold keys of the same range.
    overlap_each_other: bool,
    /// The range whose contents they replace.
    replaced: Option<ReplacedRange>,
    /// A range tombstone over it, for tables that reach out of it; one of `files` once it is needed.
    tombstone: Option<ExternalFile>,
    /// The tables that they take the place of, with their levels.
    removed: Vec<(usize, Arc<FileMetaData>)>,
    /// Key ranges that compactions keep away from meanwhile.
    claims: Vec<CompactionId>,
}

/// A file that is to be brought in.
struct ExternalFile {
    source: PathBuf,
    size: u64,
    entries: u64,
    checksum: FileChecksum,
    tail_size: u64,
    unique_id: [u64; 2],
    /// Where in it its sequence number is; 0: nowhere.
    sequence_at: u64,
    /// The oldest and the newest sequence number of its entries, if it keeps them.
    own_sequences: Option<(SequenceNumber, SequenceNumber)>,
    /// The first entry.
    smallest: Bound,
    /// The last entry, or where a range deletion ends; `RangeDeletion` with the largest sequence number then.
    largest: Bound,
    /// Its number here, once it is there.
    number: Option<FileNumber>,
    /// Where it goes.
    level: usize,
    sequence: SequenceNumber,
    /// A manifest may name it.
    committed: bool,
    /// It is the range tombstone of a range that is replaced.
    made_here: bool,
}

impl Job {
    fn examine(engine: &Engine, family: &IngestFiles<'_>) -> Result<Self> {
        let data = Arc::clone(&family.cf.0);
        let checksums = match &engine.options().file_checksum_gen_factory {
            Some(_) => family.checksums()?,
            None => Vec::new(),
        };
        let infos = &family.file_infos;
        if ![0, family.files.len()].contains(&infos.len()) {
            let what =
                format!("ingesting {} files with {} prepared informations", family.files.len(), infos.len());
            return Err(Error::invalid_argument(what));
        }
        let examine = |at: usize, path: &PathBuf| {
            let _call = TracedCall::begin(TableReaderCaller::ExternalSstIngestion); // It is of this thread.
            ExternalFile::examine(engine, &data, path, infos.get(at), &family.options)
        };
        let files = in_parallel(family.options.file_opening_threads, &family.files, examine)?;
        let options = family.options.clone();
        let mut job = Self {
            data,
            options,
            files,
            checksums,
            overlap_each_other: false,
            replaced: ReplacedRange::of(family)?,
            tombstone: None,
            removed: Vec::new(),
            claims: Vec::new(),
        };
        job.check_files_lie_within()?;
        job.compare_files()?;
        Ok(job)
    }

    /// Finds out whether two of the files overlap, and refuses them if they must not.
    fn compare_files(&mut self) -> Result<()> {
        let mut by_key: Vec<&ExternalFile> = self.files.iter().collect();
        let order = &self.data.comparator.user;
        by_key.sort_by(|a, b| order.compare(&a.smallest.key, &b.smallest.key));
        self.overlap_each_other = by_key.windows(2).any(|pair| pair[0].overlaps(order, pair[1]));
        if self.overlap_each_other && self.options.ingest_behind {
            let what = "Files with overlapping ranges cannot be ingested with ingestion behind mode.";
            return Err(Error::not_supported(what));
        }
        let may_be_numbered = self.options.allow_global_seqno || self.options.allow_db_generated_files;
        if self.overlap_each_other && !may_be_numbered {
            return Err(Error::invalid_argument(
                "Global seqno is required, but disabled: the files overlap each other",
            ));
        }
        Ok(())
    }

    /// How many sequence numbers it needs where all up to `visible` are taken: files that overlap each other have one
    /// each, files behind none, and files that keep theirs as many as make the next write newer than they are.
    fn sequences(&self, visible: SequenceNumber) -> u64 {
        if self.options.allow_db_generated_files {
            return self.newest_entry().0.saturating_sub(visible.0);
        }
        match (self.options.ingest_behind, self.overlap_each_other, &self.tombstone) {
            (true, ..) => 0,
            (false, false, None) => 1,
            (false, _, tombstone) => self.files.len() as u64 + u64::from(tombstone.is_some()),
        }
    }

    /// Whether a memtable holds something in the range of a file that was written before `below`.
    fn overlaps_memtables(&self, state: &State, below: SequenceNumber) -> Result<bool> {
        let family = state.family(self.data.id)?;
        for memtable in family.imm.iter().map(|imm| &imm.memtable).chain([&family.mem]) {
            if let Some(range) = &self.replaced {
                if memtable_overlaps(&self.data.comparator.user, memtable, range.bounds(), below)? {
                    return Ok(true);
                }
                continue; // The files lie in it.
            }
            for file in &self.files {
                if file.overlaps_memtable(&self.data.comparator.user, memtable, below)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn report(&self, engine: &Engine) {
        for file in &self.files {
            let number = file.number.unwrap_or_default();
            info!(
                engine.log,
                "[{}] ingested {} as table {number} ({} bytes) on level {} at {}",
                self.data.name,
                file.source.display(),
                file.size,
                file.level,
                file.sequence
            );
            let info = ExternalFileIngestionInfo {
                cf_name: self.data.name.clone(),
                external_path: file.source.clone(),
                internal_path: self.data.paths().table(number, 0),
                level: file.level,
                global_seqno: file.sequence,
            };
            if let Some(manager) = &engine.options().sst_file_manager {
                manager.track(info.internal_path.clone(), file.size);
            }
            if !file.made_here {
                engine.listeners.tell(|listener| listener.on_external_file_ingested(&info));
            }
        }
    }

    /// A name that cannot be removed is one too many, nothing worse.
    fn remove_sources(&self, engine: &Engine) {
        for file in self.files.iter().filter(|file| self.options.move_files && !file.made_here) {
            if let Err(error) = engine.env.fs.remove(&file.source) {
                warning!(engine.log, "{error}");
            }
        }
    }
}

impl ExternalFile {
    fn examine(
        engine: &Engine,
        data: &ColumnFamilyData,
        path: &Path,
        info: Option<&PreparedFileInfo>,
        options: &IngestOptions,
    ) -> Result<Self> {
        let refuse =
            |what: &str| Err(Error::invalid_argument(format!("ingesting {}: {what}", path.display())));
        let open = || prepared::open(&*engine.env.fs, path, &data.settings().opener.table);
        let verify = |reader: &Arc<TableReader>| {
            reader.verify_checksums_ahead(&ReadContext::default(), options.verify_checksums_readahead_size)
        };
        let keeps_sequences = options.allow_db_generated_files;
        let info = match info {
            Some(info) => {
                if options.verify_checksums_before_ingest {
                    verify(&open()?)?;
                }
                if engine.env.fs.size(path)? != info.size {
                    return refuse("its size is not what its prepared information says");
                }
                if info.comparator != data.comparator.user.name() {
                    return refuse("it was made with another comparator");
                }
                info.clone()
            }
            None => {
                let reader = open()?;
                if options.verify_checksums_before_ingest {
                    verify(&reader)?;
                }
                PreparedFileInfo::of(&reader, keeps_sequences)?
            }
        };
        let (format, wanted) = (info.format, data.settings().options.table_format);
        if format != wanted {
            // RocksDB would not read the column family any more.
            let (path, format, wanted) = (path.display(), format.name(), wanted.name());
            let what =
                format!("ingesting {path}, a {format}, into a column family with table_factory {wanted}");
            return Err(Error::not_supported(what));
        }
        match info.version.as_ref().and_then(|bytes| bytes.first_chunk::<4>()) {
            None if keeps_sequences && info.version.is_none() => {} // A database wrote it.
            None => return refuse("External file version not found: no SstFileWriter made it"),
            Some(version) if u32::from_le_bytes(*version) != EXTERNAL_VERSION => {
                return refuse("it is not of version 2 of external files");
            }
            Some(_) if info.global_sequence.as_ref().is_none_or(|bytes| bytes[..] != [0; 8]) => {
                return refuse("a sequence number was written into it");
            }
            Some(_) => {}
        }
        let family = info.column_family;
        if !keeps_sequences && family != UNKNOWN_COLUMN_FAMILY && family != u64::from(data.id.0) {
            return refuse("it was made for another column family");
        }
        let Some((smallest, largest)) = info.bounds else {
            return refuse("File contain no entries");
        };
        if smallest.compare(&largest, &data.comparator.user).is_gt() {
            return refuse("its last entry comes before its first one");
        }
        let own_sequences = info.own_sequences.filter(|_| keeps_sequences);
        if options.ingest_behind && own_sequences.is_some_and(|(_, newest)| newest > SequenceNumber::ZERO) {
            return refuse("ingest_behind takes no file with sequence numbers of its own but 0");
        }
        Ok(Self {
            source: path.to_owned(),
            size: info.size,
            entries: info.entries,
            checksum: FileChecksum::default(),
            sequence_at: info.sequence_at,
            own_sequences,
            tail_size: info.tail_size,
            unique_id: info.unique_id,
            smallest,
            largest,
            number: None,
            level: 0,
            sequence: SequenceNumber::ZERO,
            committed: false,
            made_here: false,
        })
    }

    /// `found`, unless another checksum was handed in.
    fn compared(
        &self,
        found: FileChecksum,
        given: Option<&FileChecksum>,
        factory: &str,
    ) -> Result<FileChecksum> {
        let Some(given) = given else { return Ok(found) };
        let path = self.source.display();
        if found.function != given.function {
            return Err(Error::invalid_argument(format!(
                "ingesting {path}: its checksum is by {}, but {factory} makes those of {}",
                given.function, found.function
            )));
        }
        if found.checksum != given.checksum {
            let (found, given) = (hex(&found.checksum), hex(&given.checksum));
            let what = format!("the whole file's checksum is {found}, but {given} was handed in with it");
            return Err(Error::corruption_at(&self.source, 0, what));
        }
        Ok(found)
    }

    /// Writes its sequence number into it: into a file of its own, in the place of what was brought in, which may be a link.
    fn write_sequence(&mut self, engine: &Engine, paths: &TablePaths) -> Result<()> {
        if self.sequence_at == 0 {
            let what = "it has no place for a sequence number, which write_global_seqno is to put there";
            return Err(Error::invalid_argument(format!("ingesting {}: {what}", self.source.display())));
        }
        let (fs, options) = (&*engine.env.fs, engine.options());
        let number = self.number.expect("it was brought in before");
        let (path, temporary) = (paths.table(number, 0), file_name::temporary(paths.dir(0), number));
        let written = self.write_copy(fs, &path, &temporary, write_options(&options));
        let replaced = written.and_then(|()| fs.rename(&temporary, &path));
        if let Err(error) = replaced {
            if let Err(left_over) = fs.remove(&temporary) {
                warning!(engine.log, "{left_over}"); // The next opening tries again.
            }
            return Err(error);
        }
        fs.open_directory(paths.dir(0))?.sync()?;
        if let Some(factory) = &options.file_checksum_gen_factory {
            let function = Some(self.checksum.function.as_str());
            self.checksum = FileChecksum::of_file(fs, &path, &**factory, function)?;
        }
        Ok(())
    }

    /// Copies it from `path` to `to`, with its sequence number, and syncs the copy.
    fn write_copy(&self, fs: &dyn FileSystem, path: &Path, to: &Path, options: WriteOptions) -> Result<()> {
        let mut target = fs.create(to, options)?;
        let mut at = 0;
        read_through(fs, path, self.size, |chunk| {
            let mut chunk = chunk.to_vec();
            for (place, byte) in (self.sequence_at..).zip(self.sequence.0.to_le_bytes()) {
                if let Some(there) = place.checked_sub(at).and_then(|place| chunk.get_mut(place as usize)) {
                    *there = byte;
                }
            }
            at += chunk.len() as u64;
            target.append(&chunk)
        })?;
        target.sync()?;
        target.close()
    }

    /// Whether the ranges meet. Where a range deletion ends one, that key is not in it.
    fn overlaps(&self, order: &UserComparator, other: &Self) -> bool {
        !self.ends_before(order, other) && !other.ends_before(order, self)
    }
    fn ends_before(&self, order: &UserComparator, other: &Self) -> bool {
        match order.compare(&self.largest.key, &other.smallest.key) {
            Ordering::Equal => self.ends_with_range_deletion(),
            ordering => ordering.is_lt(),
        }
    }
    fn ends_with_range_deletion(&self) -> bool {
        self.largest.kind == ValueType::RangeDeletion
    }

    fn overlaps_memtable(
        &self,
        order: &UserComparator,
        memtable: &Arc<DbMemTable>,
        below: SequenceNumber,
    ) -> Result<bool> {
        let table = memtable.table();
        if table.is_empty() {
            return Ok(false);
        }
        let (smallest, largest) = (&self.smallest.key, &self.largest.key);
        let mut entries = table.iter();
        let mut more = entries.seek(InternalKeyBuf::for_seek(smallest, SequenceNumber::MAX).as_key())?;
        while more && order.compare(entries.key().user_key(), largest).is_le() {
            if entries.key().sequence() < below {
                return Ok(true);
            }
            more = entries.next()?;
        }
        Ok(table.range_tombstones()?.iter().any(|tombstone| {
            tombstone.sequence < below
                && order.compare(&tombstone.begin, largest).is_le()
                && order.compare(smallest, &tombstone.end).is_lt()
        }))
    }

    /// Whether a level holds something of its range: the bounds of a table alone do not say so.
    fn overlaps_level(
        &self,
        job: &Job,
        order: &UserComparator,
        view: &SuperVersion,
        level: usize,
    ) -> Result<bool> {
        let (smallest, largest) = (&self.smallest.key, &self.largest.key);
        let tables = &view.levels[level];
        let files = tables.files.files().iter().zip(&tables.tables);
        let options = TableReadOptions {
            read: ReadContext { fill_cache: job.options.fill_cache, ..ReadContext::default() },
            ..TableReadOptions::default()
        };
        let is_in_range =
            |file: &FileMetaData| file.overlaps(order, Some(smallest), Some(largest)) && !job.leaves(file);
        for (_, slot) in files.filter(|(file, _)| is_in_range(file)) {
            let reader = slot.reader()?;
            let mut entries = reader.iter(&options);
            let target = InternalKeyBuf::for_seek(smallest, SequenceNumber::MAX);
            if entries.seek(target.as_key())? && order.compare(entries.key().user_key(), largest).is_le() {
                return Ok(true);
            }
            let mut tombstones = reader.range_tombstones().iter();
            if tombstones.any(|tombstone| {
                order.compare(&tombstone.begin, largest).is_le()
                    && order.compare(smallest, &tombstone.end).is_lt()
            }) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn metadata(&self, epoch: u64, now: u64) -> FileMetaData {
        let number = self.number.expect("it was brought in before");
        let key_of = |bound: &Bound| {
            let is_open_end = bound.sequence == SequenceNumber::MAX;
            let sequence =
                if self.own_sequences.is_some() || is_open_end { bound.sequence } else { self.sequence };
            InternalKeyBuf::new(&bound.key, sequence, bound.kind)
        };
        let (smallest, largest) = (key_of(&self.smallest), key_of(&self.largest));
        let (smallest_seqno, largest_seqno) = self.own_sequences.unwrap_or((self.sequence, self.sequence));
        FileMetaData {
            smallest_seqno,
            largest_seqno,
            oldest_ancester_time: now,
            file_creation_time: now,
            epoch_number: epoch,
            unique_id: self.unique_id,
            tail_size: self.tail_size,
            file_checksum: self.checksum.checksum.clone(),
            file_checksum_func_name: self.checksum.function.clone(),
            ..FileMetaData::new(number, self.size, smallest, largest)
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where a table begins or ends.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Bound {
    key: Vec<u8>,
    sequence: SequenceNumber,
    kind: ValueType,
}

impl Bound {
    fn of_entry(key: InternalKey<'_>, reader: &TableReader) -> Result<Self> {
        let kind = key.value_type().map_err(|bad| Error::corruption_at(reader.path(), 0, bad.0))?;
        Ok(Self { key: key.user_key().to_vec(), sequence: key.sequence(), kind })
    }
    /// The order of entries: of one key the newest comes first, and of one sequence number the largest type.
    fn compare(&self, other: &Self, order: &UserComparator) -> Ordering {
        let rank = |bound: &Self| (bound.sequence, bound.kind as u8);
        order.compare(&self.key, &other.key).then_with(|| rank(other).cmp(&rank(self)))
    }
}

/// The first and the last entry of a table, range tombstones included.
fn bounds(reader: &Arc<TableReader>) -> Result<Option<(Bound, Bound)>> {
    let order = reader.comparator();
    let mut entries = reader.iter(&TableReadOptions::default());
    let mut found = None;
    if entries.seek_to_first()? {
        let first = Bound::of_entry(entries.key(), reader)?;
        entries.seek_to_last()?;
        found = Some((first, Bound::of_entry(entries.key(), reader)?));
    }
    for tombstone in reader.range_tombstones() {
        let kind = ValueType::RangeDeletion;
        let begin = Bound { key: tombstone.begin.clone(), sequence: tombstone.sequence, kind };
        // An end comes before the entries of its key.
        let end = Bound { key: tombstone.end.clone(), sequence: SequenceNumber::MAX, kind };
        found = Some(match found {
            None => (begin, end),
            Some((first, last)) => {
                let first = if begin.compare(&first, order).is_lt() { begin } else { first };
                let last = if end.compare(&last, order).is_gt() { end } else { last };
                (first, last)
            }
        });
    }
    Ok(found)
}

/// Links or copies the files under numbers of this database, and makes them durable, names included.
fn bring_in(engine: &Engine, jobs: &mut [Job]) -> Result<()> {
    let fs = &*engine.env.fs;
    let writing = write_options(&engine.options());
    let mut dirs = BTreeSet::new();
    for job in jobs {
        let paths = job.data.paths();
        dirs.insert(paths.dir(0).to_owned());
        for file in &mut job.files {
            let number = engine.new_file_number();
            file.number = Some(number);
            let path = paths.table(number, 0);
            let options = &job.options;
            if !options.move_files && !options.link_files {
                copy_file(fs, &file.source, &path, file.size, writing)?;
            } else if options.failed_move_fall_back_to_copy {
                if link_or_copy(fs, &file.source, &path, file.size, writing)? {
                    sync_file(fs, &path, writing)?;
                }
            } else {
                fs.link(&file.source, &path)?;
                sync_file(fs, &path, writing)?;
            }
        }
    }
    dirs.iter().try_for_each(|dir| fs.open_directory(dir)?.sync())
}

/// Makes the checksums of files that were brought in, and compares them with those that were handed in.
fn check_sums(engine: &Engine, jobs: &mut [Job]) -> Result<()> {
    let options = engine.options();
    let Some(factory) = &options.file_checksum_gen_factory else { return Ok(()) };
    for job in jobs {
        let paths = job.data.paths();
        for (at, file) in job.files.iter_mut().enumerate() {
            let path = paths.table(file.number.expect("it was brought in before"), 0);
            let given = job.checksums.get(at);
            let function = given.map(|given| given.function.as_str());
            let is_checked = given.is_none() || job.options.verify_file_checksum;
            let found = match (is_checked, given) {
                (false, Some(given)) => {
                    let context = FileChecksumContext { file_name: &path, requested_function: function };
                    FileChecksum { function: factory.create(&context).name().to_owned(), ..given.clone() }
                }
                _ => FileChecksum::of_file(&*engine.env.fs, &path, &**factory, function)?,
            };
            file.checksum = file.compared(found, given, factory.name())?;
        }
    }
    Ok(())
}

/// What was brought in and is named by no MANIFEST goes away again.
fn remove_ours(engine: &Engine, jobs: &[Job]) {
    let of_job = |job: &Job| {
        let (paths, files) = (job.data.paths(), job.files.iter().chain(&job.tombstone));
        let files = files.filter(|file| !file.committed);
        files.filter_map(|file| Some(paths.table(file.number?, 0))).collect::<Vec<_>>()
    };
    for path in jobs.iter().flat_map(of_job) {
        if let Err(error) = engine.env.fs.remove(&path)
            && !error.is_path_not_found()
        {
            warning!(engine.log, "{error}"); // The next opening tries again.
        }
    }
}

/// The column families whose memtables hold something older than `below` in the range of a file.
fn overlapping(engine: &Engine, jobs: &[Job], below: SequenceNumber) -> Result<Vec<ColumnFamilyId>> {
    let state = engine.state.lock();
    let mut ids = Vec::new();
    for job in jobs.iter().filter(|job| !job.options.ingest_behind) {
        if job.overlaps_memtables(&state, below)? {
            if !job.options.allow_blocking_flush {
                return Err(Error::invalid_argument("External file requires flush"));
            }
            ids.push(job.data.id);
        }
    }
    Ok(ids)
}

fn place(engine: &Arc<Engine>, jobs: &mut [Job]) -> Result<()> {
    if jobs.iter().all(|job| job.options.ingest_behind) {
        let _switching = engine.lock_with_open_wal(&engine.switching)?;
        return commit(engine, jobs, SequenceNumber::ZERO); // Older than everything: nobody has to wait.
    }
    // Most of what is in the way goes while everybody can still write.
    let ids = overlapping(engine, jobs, SequenceNumber::MAX)?;
    if !ids.is_empty() {
        flush_and_wait(engine, &Which::Of(ids.clone(), FlushReason::ExternalFileIngestion), &ids)?;
    }
    // From here on no memtable is switched but by us: a flush that took writes from behind the reserved numbers
    // would wait for us, and we for it.
    let _switching = engine.lock_with_open_wal(&engine.switching)?;
    let visible = engine.pipeline.visible();
    let count = jobs.iter().map(|job| job.sequences(visible)).max().unwrap_or(0).max(1);
    let mut reserved = engine.pipeline.reserve_beside_log(count)?;
    let _timer = PerfTimer::start(PerfMetric::FileIngestionBlockingLiveWritesNanos);
    engine.pipeline.wait_applied(SequenceNumber(reserved.first.0 - 1));
    let ids = overlapping(engine, jobs, reserved.first)?;
    if !ids.is_empty() {
        drop(reserved);
        let which = Which::Exactly(ids.clone());
        let (_, taken) = engine.switch_reserving(&which, count)?;
        let dropped = || Error::new(Code::ColumnFamilyDropped, "ingesting into it");
        reserved = taken.ok_or_else(dropped)?; // All of them were dropped meanwhile.
        wait_flushed(engine, &ids)?;
    }
    let result = commit(engine, jobs, reserved.first);
    drop(reserved); // Now readers see it, and what was written since.
    result
}

/// Finds a level for each file, and makes them durable and visible.
fn commit(engine: &Engine, jobs: &mut [Job], first: SequenceNumber) -> Result<()> {
    let mut manifest = engine.manifest.lock();
    // Under that lock no version changes, so tables may be read without the state lock.
    jobs.iter_mut().try_for_each(Job::find_replaced)?;
    let mut fits = Vec::new();
    for job in jobs.iter() {
        fits.push(search_levels(job)?);
    }
    for (job, fits) in jobs.iter_mut().zip(&fits) {
        job.number(engine, fits, first)?;
    }
    let mut state = engine.state.lock();
    if let Some(error) = &state.background_error {
        return Err(error.clone());
    }
    if state.closing {
        return Err(Error::shutdown());
    }
    let now = engine.env.clock.now_seconds();
    let snapshots_held = !engine.snapshots.sequences().is_empty();
    let edits: Result<Vec<_>> = jobs
        .iter_mut()
        .zip(fits)
        .map(|(job, fits)| job.edit(&mut state, fits, snapshots_held, now))
        .collect();
    let pending = edits.and_then(|edits| state.versions.prepare_in_foreground(edits, &manifest));
    let pending = pending.inspect_err(|_| let_go(&mut state, jobs))?;
    drop(state);
    let committed = manifest.commit(pending);
    let mut state = engine.state.lock();
    let_go(&mut state, jobs);
    for file in jobs.iter_mut().flat_map(|job| &mut job.files) {
        file.committed = true; // Or a MANIFEST that failed may name it.
    }
    match committed {
        Ok(change) => {
            let _installed = state.versions.install(change);
            let State { families, versions, .. } = &mut *state;
            for job in jobs.iter() {
                if let Some(family) = families.get_mut(&job.data.id) {
                    let mut totals = job.data.totals.lock();
                    job.files.iter().for_each(|file| totals.note_added(file.level, file.size, file.entries));
                    drop(totals);
                    family.compaction_due = true;
                    family.install_view(versions);
                }
            }
            engine.update_stall(&mut state);
            Ok(())
        }
        Err(failed) => {
            let error = state.versions.abandon(failed);
            engine.stop_writes(&mut state, error.clone(), BackgroundErrorReason::ManifestWrite);
            Err(error)
        }
    }
}

fn let_go(state: &mut State, jobs: &mut [Job]) {
    for job in jobs {
        if let Some(family) = state.families.get_mut(&job.data.id) {
            job.claims.drain(..).for_each(|claim| family.running.remove(claim));
        }
    }
}

/// Where a file may lie as far as tables are concerned.
struct Fits {
    /// Ascending; empty if level 0 is the only place.
    levels: Vec<usize>,
    /// Some table holds keys of its range, or it is to be as if one did.
    overlaps: bool,
}

fn search_levels(job: &Job) -> Result<Vec<Fits>> {
    if job.options.ingest_behind {
        let last = job.level_behind()?;
        return Ok(job.files.iter().map(|_| Fits { levels: vec![last], overlaps: false }).collect());
    }
    let view = job.data.view();
    let order = &job.data.comparator.user;
    let compaction = &job.data.settings().compaction;
    let base = LevelShape::new(&view.version, compaction).base_level;
    let is_fifo = compaction.style == CompactionStyle::Fifo;
    let search = |file: &ExternalFile| {
        // FIFO compaction drops deeper levels first: there new files would go before old ones.
        let mut fits = Fits { levels: Vec::new(), overlaps: is_fifo && file.own_sequences.is_none() };
        for level in (0..view.levels.len()).filter(|&level| level == 0 || level >= base) {
            if file.overlaps_level(job, order, &view, level)? {
                fits.overlaps = true;
                break;
            }
            let (begin, end) = (Some(&file.smallest.key[..]), Some(&file.largest.key[..]));
            let stays = |table: &Arc<FileMetaData>| !job.leaves(table) && table.overlaps(order, begin, end);
            let is_taken =
                view.version.range_overlaps(level, begin, end) && view.version.files(level).iter().any(stays);
            if level > 0 && !is_fifo && !is_taken {
                fits.levels.push(level);
            }
        }
        Ok(fits)
    };
    job.files.iter().map(search).collect()
}

impl Job {
    /// Chooses the sequence number of each file, and writes it there if that is wished.
    fn number(&mut self, engine: &Engine, fits: &[Fits], first: SequenceNumber) -> Result<()> {
        let paths = self.data.paths();
        for (at, (file, fits)) in self.files.iter_mut().zip(fits).enumerate() {
            let needs_sequence = fits.overlaps || self.overlap_each_other;
            // A snapshot may be taken at any moment, so with snapshot consistency there is always a number.
            let numbered = !self.options.ingest_behind
                && !self.options.allow_db_generated_files
                && self.options.allow_global_seqno
                && (self.options.snapshot_consistency || needs_sequence);
            file.sequence = match (numbered, self.overlap_each_other) {
                (false, _) => SequenceNumber::ZERO,
                (true, false) => first,
                (true, true) => first.plus(at as u64),
            };
            if self.options.write_global_seqno && file.sequence > SequenceNumber::ZERO {
                file.write_sequence(engine, &paths)?;
            }
        }
        Ok(())
    }

    /// Chooses levels, and keeps compactions away from these places.
    fn edit(
        &mut self,
        state: &mut State,
        fits: Vec<Fits>,
        snapshots_held: bool,
        now: u64,
    ) -> Result<VersionEdit> {
        let State { families, versions, .. } = state;
        let dropped = || Error::new(Code::ColumnFamilyDropped, format!("column family {:?}", self.data.name));
        let family = families.get_mut(&self.data.id).ok_or_else(dropped)?;
        self.check_not_compacting(family)?;
        let order = self.data.comparator.user.clone();
        let last_level = self.data.view().levels.len().saturating_sub(1);
        let mut edit = VersionEdit::new(self.data.id);
        self.removed.iter().for_each(|(level, table)| edit.delete_file(*level, table.number));
        for (at, fits) in fits.into_iter().enumerate() {
            let (before, rest) = self.files.split_at_mut(at);
            let file = &mut rest[0];
            // Above the files of this group that it overlaps: those are older.
            let ceiling =
                before.iter().filter(|other| other.overlaps(&order, file)).map(|other| other.level).min();
            let (smallest, largest) = (&file.smallest.key, &file.largest.key);
            let free = |level: &&usize| {
                ceiling.is_none_or(|ceiling| **level < ceiling)
                    && !family.running.writes_into(**level, smallest, largest)
            };
            file.level = fits.levels.iter().rev().find(free).copied().unwrap_or(0);
            let behind = self.options.ingest_behind;
            let generated = self.options.allow_db_generated_files;
            if self.options.fail_if_not_bottommost_level && !behind && file.level != last_level {
                return Err(Error::new(
                    Code::TryAgain,
                    "Files cannot be ingested to Lmax. Please make sure key range of Lmax does not overlap with files to ingest.",
                ));
            }
            let needs_sequence = fits.overlaps || (self.overlap_each_other && !generated);
            let needs_consistency = self.options.snapshot_consistency && snapshots_held;
            if !behind && (needs_sequence || needs_consistency) {
                if generated {
                    return Err(generated::refusal(&file.source, fits.overlaps));
                }
                if !self.options.allow_global_seqno {
                    return Err(Error::invalid_argument("Global seqno is required, but disabled"));
                }
            }
            let epoch = if behind { behind::EPOCH } else { versions.new_epoch_number(self.data.id) };
            edit.add_file(file.level, Arc::new(file.metadata(epoch, now)));
        }
        let files = self.files.iter();
        let ranges = files.map(|file| (file.level, &*file.smallest.key, &*file.largest.key));
        self.claims = family.running.add_ranges(ranges);
        if !self.removed.is_empty() {
            let leaving = self.removed.iter().map(|(_, table)| table.number);
            self.claims.push(family.running.add_files(leaving));
        }
        Ok(edit)
    }
}
