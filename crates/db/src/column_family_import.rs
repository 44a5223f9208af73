//! A column family leaves one database and enters another, as files.

use crate::background::job::write_options;
use crate::checkpoint::remove_staging;
use crate::column_family::ColumnFamily;
use crate::engine::Engine;
use crate::file_copy::{copy_file, link_or_copy, sync_file};
use crate::info_log::{info, warning};
use crate::open::make_durable_dir;
use crate::options::ColumnFamilyOptions;
use crate::storage_files::KeptFiles;
use crate::table_paths::{TablePaths, make_dirs};
use crate::{CompactRangeOptions, Db, FlushOptions, WriteBatch, WriteOptions};
use ironstone_base::sync::Arc;
use ironstone_base::{Error, FileKind, Result, SequenceNumber, UserComparator, file_name};
use ironstone_compaction::BottommostPolicy;
use ironstone_sst::{FileChecksum, OpenOptions, TableOptions, TableReader};
use ironstone_version::FileMetaData;
use ironstone_vfs::OpenHints;
use std::path::{Path, PathBuf};

/// What a column family was when it was exported: RocksDB's `ExportImportFilesMetaData`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ExportedColumnFamily {
    /// The order of its keys.
    pub comparator_name: String,
    /// Its tables.
    pub files: Vec<ExportedFile>,
}

/// One table of an [`ExportedColumnFamily`]: what cannot be read from the file itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportedFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its length in bytes.
    pub size: u64,
    /// The level that it lies on.
    pub level: usize,
    /// Its oldest entry.
    pub smallest_sequence: SequenceNumber,
    /// Its newest entry.
    pub largest_sequence: SequenceNumber,
    /// Of two tables of level 0 the one with the larger number is the newer.
    pub epoch_number: u64,
}

/// How a column family is imported.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ImportColumnFamilyOptions {
    /// Link the files instead of copying them (copy where that cannot be done), and remove their old names once they are
    /// in. Default false.
    pub move_files: bool,
}

impl Db {
    /// Flushes `cf` and links its tables into the directory `path`, which must not exist; copies them where they cannot be
    /// linked. The directory appears when it is complete and durable. Writes go on meanwhile, and those that return after
    /// this has begun may or may not be in it.
    ///
    /// ```
    /// use ironstone::{Db, ImportColumnFamilyOptions, Options};
    ///
    /// # fn main() -> ironstone::Result<()> {
    /// # let options = Options::in_memory();
    /// let one = Db::open(&options, "/one")?;
    /// one.put(b"iron", b"Fe")?;
    /// let exported = one.export_column_family(one.default_column_family(), "/exported")?;
    ///
    /// let other = Db::open(&options, "/other")?;
    /// let how = ImportColumnFamilyOptions::default();
    /// let cf = other.create_column_family_with_import("elements", &options.cf, &how, &[exported])?;
    /// assert!(other.get_cf(&Default::default(), &cf, b"iron")?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn export_column_family(
        &self,
        cf: &ColumnFamily,
        path: impl AsRef<Path>,
    ) -> Result<ExportedColumnFamily> {
        self.check_handle(cf)?;
        let engine = self.engine();
        let fs = &*engine.env.fs;
        let path = fs.absolute(path.as_ref())?;
        if fs.exists(&path)? {
            return Err(Error::invalid_argument(format!("{}: Specified export_dir exists", path.display())));
        }
        let parent = path.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned);
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".tmp");
        let staging = parent.join(name);
        make_durable_dir(fs, &parent, false)?;
        remove_staging(fs, &staging)?;
        self.flush_cf(&FlushOptions::default(), cf)?;
        let _kept = KeptFiles::of(self);
        let version = {
            let state = engine.state.lock();
            let family = state.versions.column_family(cf.id());
            Arc::clone(&family.ok_or_else(|| dropped(cf))?.current)
        };
        let writing = write_options(&engine.options());
        let paths = cf.0.paths();
        let add = |(level, file): (usize, &Arc<FileMetaData>)| {
            if file.oldest_blob_file_number.0 != 0 {
                return Err(Error::not_supported("exporting a column family with blob files"));
            }
            let table = paths.of_file(file);
            let legacy = paths.leveldb_name_of(file);
            let from = if fs.exists(&table)? { table } else { legacy };
            let name = file_name::table(Path::new(""), file.number);
            link_or_copy(fs, &from, &staging.join(&name), file.file_size, writing)?;
            Ok(ExportedFile {
                path: path.join(name),
                size: file.file_size,
                level,
                smallest_sequence: file.smallest_seqno,
                largest_sequence: file.largest_seqno,
                epoch_number: file.epoch_number,
            })
        };
        let made = fs
            .create_dir_all(&staging)
            .and_then(|()| version.all_files().map(add).collect::<Result<Vec<_>>>())
            .and_then(|files| fs.open_directory(&staging)?.sync().map(|()| files))
            .and_then(|files| fs.rename(&staging, &path).map(|()| files));
        let files = match made {
            Ok(files) => files,
            Err(error) => {
                let _ = remove_staging(fs, &staging); // The first failure is the one to tell.
                return Err(error);
            }
        };
        fs.open_directory(&parent)?.sync()?;
        info!(engine.log, "[{}] exported {} tables to {}", cf.name(), files.len(), path.display());
        Ok(ExportedColumnFamily { comparator_name: cf.0.comparator.user.name().to_owned(), files })
    }

    /// Creates a column family with the tables of `exported`, all or nothing: of one column family, or of several whose key
    /// ranges do not meet. What is in them keeps its sequence numbers, and later writes to this database get larger ones.
    ///
    /// # Errors
    /// `InvalidArgument` if the name is taken, there are no files, the comparators differ, ranges meet that must not, or a
    /// file is not as long as it was or lies on a level that `options` do not have. `Corruption` for damaged files. The
    /// database is then as it was.
    pub fn create_column_family_with_import(
        &self,
        name: &str,
        options: &ColumnFamilyOptions,
        import: &ImportColumnFamilyOptions,
        exported: &[ExportedColumnFamily],
    ) -> Result<ColumnFamily> {
        let engine = self.engine();
        engine.write_failure()?;
        if exported.iter().all(|family| family.files.is_empty()) {
            return Err(Error::invalid_argument("The list of files to import is empty"));
        }
        for family in exported {
            if family.comparator_name != options.comparator.name() {
                return Err(Error::invalid_argument(format!(
                    "Comparator name mismatch: exported with {}, importing with {}",
                    family.comparator_name,
                    options.comparator.name()
                )));
            }
        }
        let mut ours = Vec::new();
        let created = bring_in(engine, options, import, exported, &mut ours)
            .and_then(|files| self.create_column_family_of(name, options, files));
        match created {
            Ok(cf) => {
                engine.track_tables();
                for file in exported.iter().flat_map(|family| &family.files).filter(|_| import.move_files) {
                    if let Err(error) = engine.env.fs.remove(&file.path) {
                        warning!(engine.log, "{error}"); // A name too many, nothing worse.
                    }
                }
                info!(engine.log, "[{name}] imported {} tables", ours.len());
                engine.wake_workers();
                Ok(cf)
            }
            Err(error) => {
                // After a MANIFEST that failed they may be named by it; the next opening knows.
                if engine.write_failure().is_ok() {
                    for path in ours {
                        let _ = engine.env.fs.remove(&path);
                    }
                }
                Err(error)
            }
        }
    }

    /// Deletes every entry of `cf` outside of `begin..end`, for good: the files there are rewritten without them. Writes to
    /// these ranges that come meanwhile may or may not survive.
    pub fn clip_column_family(
        &self,
        cf: &ColumnFamily,
        begin: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (begin, end) = (begin.as_ref(), end.as_ref());
        self.check_handle(cf)?;
        let order = &cf.0.comparator.user;
        if order.compare(begin, end).is_gt() {
            return Err(Error::invalid_argument("clip_column_family: the end comes before the beginning"));
        }
        self.flush_cf(&FlushOptions::default(), cf)?;
        let files: Vec<_> =
            self.live_files().into_iter().filter(|file| file.column_family == cf.name()).collect();
        let by_key = |a: &&Vec<u8>, b: &&Vec<u8>| order.compare(a, b);
        let ends = files.iter().map(|file| &file.smallest).min_by(by_key);
        let Some((first, last)) = ends.zip(files.iter().map(|file| &file.largest).max_by(by_key)) else {
            return Ok(());
        };
        let mut batch = WriteBatch::new();
        if order.compare(first, begin).is_lt() {
            batch.delete_range_in(cf.id(), first, begin);
        }
        if order.compare(end, last).is_le() {
            batch.delete_range_in(cf.id(), end, last);
            batch.delete_in(cf.id(), last); // A range does not hold its end.
        }
        if batch.count() == 0 {
            return Ok(());
        }
        self.write(&batch, &WriteOptions::default())?;
        self.flush_cf(&FlushOptions::default(), cf)?;
        let compact = CompactRangeOptions {
            bottommost_level_compaction: BottommostPolicy::Force,
            ..CompactRangeOptions::default()
        };
        self.compact_range(&compact, cf, None, Some(begin))?;
        self.compact_range(&compact, cf, Some(end), None)
    }
}

/// Links or copies the files under numbers of this database, makes them durable, and says what the MANIFEST is to say of
/// them. The paths of those that were made are in `ours`, whatever happens.
fn bring_in(
    engine: &Engine,
    options: &ColumnFamilyOptions,
    import: &ImportColumnFamilyOptions,
    exported: &[ExportedColumnFamily],
    ours: &mut Vec<PathBuf>,
) -> Result<Vec<(usize, Arc<FileMetaData>)>> {
    let fs = &*engine.env.fs;
    let writing = write_options(&engine.options());
    make_dirs(fs, &options.cf_paths)?;
    let paths = TablePaths::of(&engine.dir, &engine.options(), options);
    let dir = paths.dir(0);
    let mut all = Vec::new();
    for family in exported {
        let mut files = Vec::new();
        for file in &family.files {
            check(engine, options, file)?;
            let number = engine.new_file_number();
            let path = file_name::table(dir, number);
            ours.push(path.clone());
            if !import.move_files {
                copy_file(fs, &file.path, &path, file.size, writing)?;
            } else if link_or_copy(fs, &file.path, &path, file.size, writing)? {
                sync_file(fs, &path, writing)?;
            }
            let meta = describe(engine, options, file, number, &path)?;
            files.push((file.level, Arc::new(meta)));
        }
        check_levels(&options.comparator, &files)?;
        all.push(files);
    }
    check_ranges(&options.comparator, &all)?;
    fs.open_directory(dir)?.sync()?;
    Ok(all.into_iter().flatten().collect())
}

fn check(engine: &Engine, options: &ColumnFamilyOptions, file: &ExportedFile) -> Result<()> {
    let refuse =
        |what: String| Err(Error::invalid_argument(format!("importing {}: {what}", file.path.display())));
    let name = file.path.file_name().unwrap_or_default().to_string_lossy();
    if !matches!(FileKind::parse(&name), Some(FileKind::Table(_))) {
        return refuse("it is not named as a table is".to_owned());
    }
    let size = engine.env.fs.size(&file.path)?;
    if size != file.size {
        return refuse(format!("it has {size} bytes, and had {}", file.size));
    }
    if file.level >= usize::try_from(options.num_levels).unwrap_or(1) {
        return refuse(format!(
            "it was on level {}, and there are {} levels",
            file.level, options.num_levels
        ));
    }
    if file.smallest_sequence > file.largest_sequence || file.largest_sequence >= SequenceNumber::MAX {
        return refuse("its sequence numbers make no sense".to_owned());
    }
    Ok(())
}

fn describe(
    engine: &Engine,
    options: &ColumnFamilyOptions,
    file: &ExportedFile,
    number: ironstone_base::FileNumber,
    path: &Path,
) -> Result<FileMetaData> {
    let table = TableOptions {
        comparator: options.comparator.clone(),
        no_block_cache: true,
        block_cache: None,
        ..TableOptions::default()
    };
    let mut open = OpenOptions::new(Arc::new(table), number);
    open.skip_filters = true;
    open.largest_sequence = Some(file.largest_sequence);
    let opened = engine.env.fs.open_random(path, OpenHints::sequential())?;
    let reader = Arc::new(TableReader::open(opened, file.size, open)?);
    let sequences = Some((file.smallest_sequence, file.largest_sequence));
    let meta = crate::repair::tables::describe(&reader, number, file.size, sequences)?;
    let mut meta = meta.ok_or_else(|| {
        Error::invalid_argument(format!("importing {}: it has no entries", file.path.display()))
    })?;
    meta.epoch_number = file.epoch_number;
    if let Some(factory) = &engine.options().file_checksum_gen_factory {
        let checksum = FileChecksum::of_file(&*engine.env.fs, path, &**factory, None)?;
        (meta.file_checksum, meta.file_checksum_func_name) = (checksum.checksum, checksum.function);
    }
    Ok(meta)
}

type Placed = (usize, Arc<FileMetaData>);

fn ends(file: &FileMetaData) -> (&[u8], &[u8]) {
    (file.smallest.as_key().user_key(), file.largest.as_key().user_key())
}

/// Below level 0 the tables of a level are in order.
fn check_levels(order: &UserComparator, files: &[Placed]) -> Result<()> {
    let mut deep: Vec<&Placed> = files.iter().filter(|(level, _)| *level > 0).collect();
    deep.sort_by(|(a, x), (b, y)| a.cmp(b).then_with(|| order.compare(ends(x).0, ends(y).0)));
    for pair in deep.windows(2) {
        let [(a, before), (b, after)] = pair else { continue };
        if a == b && order.compare(ends(before).1, ends(after).0).is_gt() {
            return Err(Error::invalid_argument(format!("importing: two tables of level {a} overlap")));
        }
    }
    Ok(())
}

/// Of several column families nobody could say which writes are newer.
fn check_ranges(order: &UserComparator, families: &[Vec<Placed>]) -> Result<()> {
    let range = |files: &Vec<Placed>| {
        let first = files.iter().map(|(_, file)| ends(file).0).min_by(|a, b| order.compare(a, b))?;
        let last = files.iter().map(|(_, file)| ends(file).1).max_by(|a, b| order.compare(a, b))?;
        Some((first.to_vec(), last.to_vec()))
    };
    let mut ranges: Vec<_> = families.iter().filter_map(range).collect();
    ranges.sort_by(|a, b| order.compare(&a.0, &b.0));
    if ranges.windows(2).any(|pair| order.compare(&pair[0].1, &pair[1].0).is_ge()) {
        return Err(Error::invalid_argument("CFs have overlapping ranges"));
    }
    Ok(())
}

fn dropped(cf: &ColumnFamily) -> Error {
    Error::new(ironstone_base::Code::ColumnFamilyDropped, cf.name().to_owned())
}
