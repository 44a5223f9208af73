//! Makes a database of what is left of one: tables and WALs, and of MANIFESTs what can be read.
//!
//! Everything new is written to `repair.tmp`, tables to that of the directory that they are for (`db_paths`, `cf_paths`): nothing
//! ever moves to another file system. When it is complete and durable, that of the database's own directory becomes `repair.done`,
//! which is the point of no return; then files only move: the new ones in, and what the database is no longer made of
//! to `lost`. A repair that was interrupted before that point has changed nothing, and after it the next one goes on.

mod hints;
pub(crate) mod tables;

use crate::background::job::{Outputs, build_options, write_options};
use crate::engine::Family;
use crate::info_log::{InfoLog, Rolling, info, warning};
use crate::listener::Listeners;
use crate::open::listings::Listings;
use crate::open::recover_wals::Recovery;
use crate::open::{DEFAULT_COLUMN_FAMILY, FamilyBuilder, session_id};
use crate::options::{ColumnFamilyOptions, DbOptions, VerifyOutputFlags};
use crate::settings::TablePlace;
use crate::table_cache::TableCache;
use crate::table_paths::{DbPath, TablePaths};
use crate::wal_filter::Filtering;
use crate::write_buffer_manager::MemTableMemory;
use crate::{ColumnFamilyDescriptor, Db};
use hints::Hints;
use ironstone_base::sync::Arc;
use ironstone_base::{
    ColumnFamilyId, Error, FileKind, FileNumber, Result, SequenceNumber, UserComparator, file_name,
};
use ironstone_compaction::{
    CompactionPlan, CompactionReason, JobContext, LevelInputs, Partitioning, PlanKind, ScopedThreads,
    TableFileCreationReason, run_compaction,
};
use ironstone_version::{
    ColumnFamilyChange, ColumnFamilyConfig, FileMetaData, ManifestOptions, ManifestReader, ManifestWriter,
    RecoverOptions, VersionEdit, VersionSet, current_manifest, set_current,
};
use ironstone_vfs::{Env, FileSystem};
use ironstone_wal::{LogFramer, WalRecoveryMode};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use tables::{Found, Readers, Table};

const BEGUN: &str = "repair.tmp";
const DONE: &str = "repair.done";
pub(crate) const LOST: &str = "lost";

/// What a repair did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RepairReport {
    /// Tables that the database is made of now, as they were.
    pub kept: usize,
    /// Tables that were merged into new ones, since nobody knows which of them are newer, or RocksDB would not.
    pub merged: usize,
    /// WALs that were replayed into tables.
    pub wals: usize,
    /// Tables that are not part of the database any more, and why. The files are in the directory's `lost`, if they were there.
    pub lost: Vec<(PathBuf, String)>,
}

/// In one line, without the names of what was left out.
impl fmt::Display for RepairReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kept, merged, wals, lost } = self;
        write!(f, "{kept} tables kept, {merged} merged, {} left out; {wals} WALs replayed", lost.len())
    }
}

/// What a repair works on.
struct Repair<'a> {
    env: &'a Env,
    options: &'a DbOptions,
    /// The same, with the places of new tables for paths.
    staging: &'a DbOptions,
    dir: &'a Path,
    wal_dir: PathBuf,
    /// All directories that may hold tables, each once, `dir` first.
    dirs: Vec<PathBuf>,
    log: Arc<InfoLog>,
    /// Nobody: the tables are not where they will be.
    listeners: Listeners,
    report: RepairReport,
}

/// A column family that is to be there.
struct Wanted {
    name: String,
    /// With the places of new tables for paths.
    options: ColumnFamilyOptions,
    /// Where its tables are.
    paths: TablePaths,
    /// WALs with smaller numbers hold nothing of it that its tables lack.
    log_number: FileNumber,
    tables: Vec<Table>,
    /// The numbers of the writes, first and last, that tables may have had which are gone.
    lost: Vec<(SequenceNumber, SequenceNumber)>,
}

impl Db {
    /// Makes a database of the tables and WALs in `path`, whatever its MANIFEST and CURRENT are like. It must not be
    /// open. Every block is read. Column families have the options of `descriptors`, by name, and others those of
    /// `unknown`.
    ///
    /// * A MANIFEST that can be read to its end is followed, without the tables that are damaged or gone.
    /// * Else all good tables are taken that it does not call replaced. Where the numbers of their writes tell which
    ///   ones are newer, they stay as they are; else they are merged into new ones, with room for both meanwhile, and so
    ///   they are where older versions of RocksDB would refuse them side by side.
    ///   Without any MANIFEST, a table that had been replaced, and was not removed yet, may bring back what
    ///   was deleted; so may a WAL that was kept to be reused; one that was kept for another column family may merge
    ///   operands a second time; and files that were ingested with a sequence number are put aside.
    /// * WALs are replayed as with [`WalRecoveryMode::SkipAnyCorruptedRecords`].
    ///
    /// Tables are looked for in `path` and in all directories of `db_paths` and `cf_paths`, which have to be there: make an empty one
    /// in the place of one that is lost for good. They stay in the directory where they are found, whichever of these it was.
    ///
    /// What the database is not made of any more is in the subdirectory `lost` of where it was afterwards. A repair that was
    /// interrupted can be repeated, with the same paths.
    ///
    /// # Errors
    /// `InvalidArgument` for a column family without options, or with another comparator than its tables have, or with tables in
    /// none of its directories; `Corruption` for two tables of one number in two directories, unless a MANIFEST says which one
    /// counts; then nothing has changed. `IoError` if the database is open or a file cannot be read or written.
    ///
    /// ```
    /// use ironstone::{ColumnFamilyDescriptor, Db, Options};
    ///
    /// let options = Options::in_memory();
    /// let db = Db::open(&options, "/db")?;
    /// db.put(b"iron", b"Fe")?;
    /// db.flush()?;
    /// db.put(b"gold", b"Au")?; // In a WAL only.
    /// db.close()?;
    /// options.db.env.fs.remove("/db/CURRENT".as_ref())?;
    ///
    /// let default = ColumnFamilyDescriptor::new("default", options.cf.clone());
    /// let report = Db::repair(&options.db, "/db", &[default], None)?;
    /// assert_eq!((report.kept, report.wals, report.lost.len()), (1, 1, 0));
    /// assert_eq!(Db::open(&options, "/db")?.iter()?.entries().count(), 2);
    /// # Ok::<_, ironstone::Error>(())
    /// ```
    pub fn repair(
        options: &DbOptions,
        path: impl AsRef<Path>,
        descriptors: &[ColumnFamilyDescriptor],
        unknown: Option<&ColumnFamilyOptions>,
    ) -> Result<RepairReport> {
        repair(options, path.as_ref(), descriptors, unknown)
    }
}

/// Refuses a database whose repair is not complete.
pub(crate) fn check_not_interrupted(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    let done = dir.join(DONE);
    if fs.exists(&done)? {
        let what = "a repair was interrupted here: repair the database again";
        return Err(Error::corruption(format!("{}: {what}", done.display())));
    }
    Ok(())
}

fn repair(
    options: &DbOptions,
    dir: &Path,
    descriptors: &[ColumnFamilyDescriptor],
    unknown: Option<&ColumnFamilyOptions>,
) -> Result<RepairReport> {
    let mut options = options.clone();
    options.sanitize();
    options.wal_recovery_mode = WalRecoveryMode::SkipAnyCorruptedRecords;
    options.wal_filter = None;
    options.avoid_flush_during_recovery = false;
    let env = options.env.clone();
    let fs = &*env.fs;
    let of_families = descriptors.iter().map(|descriptor| &descriptor.options).chain(unknown);
    let dirs = table_dirs(fs, dir, &options, of_families)?;
    let staging = DbOptions { db_paths: staged(&options.db_paths), ..options.clone() };
    let lock = fs.lock(&file_name::lock(dir))?;
    let or_here = |other: &PathBuf| if other.as_os_str().is_empty() { dir.to_owned() } else { other.clone() };
    let rolling = Rolling { max_bytes: 0, max_seconds: 0, keep: options.keep_log_file_num };
    let log = InfoLog::open(&env, &or_here(&options.db_log_dir), options.info_log_level, rolling);
    log.remove_old(None).ok();
    let wal_dir = or_here(&options.wal_dir);
    let (listeners, report) = (Listeners::new(&[], &log), RepairReport::default());
    let (env, options, staging) = (&env, &options, &staging);
    let mut repair = Repair { env, options, staging, dir, wal_dir, dirs, log, listeners, report };
    info!(repair.log, "repairing {}", dir.display());
    if !fs.exists(&dir.join(DONE))? {
        repair.write_anew(descriptors, unknown)?;
    }
    repair.move_in()?;
    info!(repair.log, "repaired: {}", repair.report);
    drop(lock);
    Ok(repair.report)
}

/// All directories that may hold tables, each once, the database's own first.
fn table_dirs<'a>(
    fs: &dyn FileSystem,
    dir: &Path,
    options: &DbOptions,
    of_families: impl Iterator<Item = &'a ColumnFamilyOptions>,
) -> Result<Vec<PathBuf>> {
    let (mut known, mut dirs) = (vec![fs.absolute(dir)?], vec![dir.to_owned()]);
    let of_families = of_families.flat_map(|options| &options.cf_paths);
    for DbPath { path, .. } in options.db_paths.iter().chain(of_families) {
        // One that is not mounted would look as if all of its tables were lost.
        fs.list(path).map_err(|error| error.context("a repair needs all of db_paths and cf_paths"))?;
        let absolute = fs.absolute(path)?;
        if !known.contains(&absolute) {
            known.push(absolute);
            dirs.push(path.clone());
        }
    }
    Ok(dirs)
}

/// Where new tables for `paths` are written.
fn staged(paths: &[DbPath]) -> Vec<DbPath> {
    paths.iter().map(|path| DbPath::new(path.path.join(BEGUN), path.target_size)).collect()
}

fn table_number(kind: FileKind) -> Option<FileNumber> {
    if let FileKind::Table(number) = kind { Some(number) } else { None }
}

impl Repair<'_> {
    fn fs(&self) -> &dyn FileSystem {
        &*self.env.fs
    }
    /// The files of one kind in `dir`, by number.
    fn numbers(
        &self,
        dir: &Path,
        number: impl Fn(FileKind) -> Option<FileNumber>,
    ) -> Result<BTreeSet<FileNumber>> {
        let names = self.fs().list(dir)?;
        Ok(names.iter().filter_map(|name| number(FileKind::parse(name)?)).collect())
    }

    /// In which directories there are tables of which numbers.
    fn tables(&self) -> Result<BTreeMap<FileNumber, Vec<PathBuf>>> {
        let mut tables: BTreeMap<FileNumber, Vec<PathBuf>> = BTreeMap::new();
        for dir in &self.dirs {
            for number in self.numbers(dir, table_number)? {
                tables.entry(number).or_default().push(dir.clone());
            }
        }
        Ok(tables)
    }

    /// The directories of a column family with `options`, under the names that `dirs` has for them.
    fn paths_of(&self, options: &ColumnFamilyOptions) -> Result<TablePaths> {
        let known: Vec<PathBuf> =
            self.dirs.iter().map(|dir| self.fs().absolute(dir)).collect::<Result<_>>()?;
        let paths = TablePaths::of(self.dir, self.options, options);
        let name = |dir: &PathBuf| {
            let absolute = self.fs().absolute(dir)?;
            let at = known.iter().position(|known| *known == absolute);
            Ok(self.dirs[at.expect("`dirs` has all of them")].clone())
        };
        paths.dirs().iter().map(name).collect()
    }

    fn lose(&mut self, path: &Path, why: impl fmt::Display) {
        warning!(self.log, "{} is left out: {why}", path.display());
        self.report.lost.push((path.to_owned(), why.to_string()));
    }

    /// Writes the repaired database, as far as it is new, to a directory of its own.
    fn write_anew(
        &mut self,
        descriptors: &[ColumnFamilyDescriptor],
        unknown: Option<&ColumnFamilyOptions>,
    ) -> Result<()> {
        let begun = self.dir.join(BEGUN);
        for dir in &self.dirs {
            remove_all(self.fs(), &dir.join(BEGUN))?; // Of a repair that did not come to its end.
        }
        let tables = self.tables()?;
        let here = tables.keys().copied().collect();
        let hints = Hints::read(self.fs(), self.dir, &self.wal_dir, &here, &self.log)?;
        let mut wanted = self.families(&tables, &hints, descriptors, unknown)?;
        for dir in &self.dirs {
            self.fs().create_dir_all(&dir.join(BEGUN))?;
        }

        let is_any = |kind| match kind {
            FileKind::Table(n) | FileKind::Wal(n) | FileKind::Manifest(n) | FileKind::Options(n) => Some(n),
            _ => None,
        };
        let mut used = self.numbers(self.dir, is_any)?;
        used.append(&mut self.numbers(&self.wal_dir, is_any)?);
        used.extend(tables.keys());
        let next = used.last().map_or(1, |number| number.0).max(hints.next_file_number.0) + 1;
        for family in wanted.values_mut() {
            family.order_tables(hints.is_complete);
        }
        let ambiguous: HashSet<_> = if hints.is_complete {
            HashSet::new()
        } else {
            wanted.iter().filter(|(_, family)| family.is_ambiguous()).map(|(id, _)| *id).collect()
        };
        let (mut versions, mut manifest) = self.begin_manifest(&begun, &hints, &wanted, &ambiguous, next)?;

        let place = TablePlace::new(&self.env.fs, &begun, TableCache::new(None)); // Of new tables.
        let cleaner = Arc::default();
        let memory = MemTableMemory::new(None);
        let builder = FamilyBuilder {
            options: self.staging,
            instance: 0,
            place: &place,
            cleaner: &cleaner,
            memory: &memory,
        };
        let mut families = BTreeMap::new();
        for (id, family) in &wanted {
            families.insert(*id, builder.build(*id, &family.options, &family.name, &versions)?);
        }
        let session = session_id(self.env);
        let db_id = versions.db_id().unwrap_or_default().to_owned();
        let (edits, last_sequence) =
            self.replay_wals(&begun, &hints, &wanted, &mut versions, &mut families, (&db_id, &session))?;

        let mut edits = edits;
        for id in &ambiguous {
            let fresh = edits.remove(id).unwrap_or_else(|| VersionEdit::new(*id));
            let merged = self.merge(&wanted[id], &families[id], fresh, &versions, (&db_id, &session))?;
            edits.insert(*id, merged);
        }
        let next = versions.new_file_number();
        for id in wanted.keys() {
            let edit = edits.entry(*id).or_insert_with(|| VersionEdit::new(*id));
            edit.log_number = Some(next);
            edit.last_sequence = Some(last_sequence);
            edit.min_log_number_to_keep = Some(next);
        }
        versions.raise_last_sequence(last_sequence);
        versions.log_and_apply(&mut manifest, edits.into_values().collect())?;
        drop(manifest);
        for dir in &self.dirs {
            self.fs().open_directory(&dir.join(BEGUN))?.sync()?;
            self.fs().open_directory(dir)?.sync()?;
        }
        self.fs().rename(&begun, &self.dir.join(DONE))?;
        self.fs().open_directory(self.dir)?.sync()
    }

    /// The column families that there are to be, with the tables that are good.
    fn families(
        &mut self,
        tables: &BTreeMap<FileNumber, Vec<PathBuf>>,
        hints: &Hints,
        descriptors: &[ColumnFamilyDescriptor],
        unknown: Option<&ColumnFamilyOptions>,
    ) -> Result<BTreeMap<ColumnFamilyId, Wanted>> {
        let mut wanted: BTreeMap<ColumnFamilyId, Wanted> = BTreeMap::new();
        let options_of = |name: &str| -> Result<(ColumnFamilyOptions, TablePaths)> {
            let given = descriptors.iter().find(|given| given.name == name).map(|given| &given.options);
            let fallback = unknown
                .cloned()
                .or_else(|| (name == DEFAULT_COLUMN_FAMILY).then(ColumnFamilyOptions::default));
            let Some(mut options) = given.cloned().or(fallback) else {
                return Err(Error::invalid_argument(format!(
                    "column family {name:?}: a repair needs its options, or some for unknown ones"
                )));
            };
            options.sanitize();
            options.sanitize_for(self.options);
            crate::options::validate(self.options, &options)?;
            let paths = self.paths_of(&options)?;
            options.cf_paths = staged(&options.cf_paths);
            Ok((options, paths))
        };
        let add = |wanted: &mut BTreeMap<_, _>, id: ColumnFamilyId, name: &str, log_number| -> Result<()> {
            if let std::collections::btree_map::Entry::Vacant(place) = wanted.entry(id) {
                let (options, paths) = options_of(name)?;
                let (name, tables) = (name.to_owned(), Vec::new());
                place.insert(Wanted { name, options, paths, log_number, tables, lost: Vec::new() });
            }
            Ok(())
        };
        let of_default = hints.log_number(ColumnFamilyId::DEFAULT);
        add(&mut wanted, ColumnFamilyId::DEFAULT, DEFAULT_COLUMN_FAMILY, of_default)?;
        for (id, family) in &hints.families {
            add(&mut wanted, *id, &family.name, hints.log_number(*id))?;
        }
        let given = descriptors.iter().map(|given| &given.options).chain(unknown);
        let given = given.map(|options| options.comparator.clone());
        let comparators: Vec<UserComparator> = given.collect();
        let mut found = Vec::new();
        let mut lost = Vec::new();
        let paths: HashMap<_, _> = wanted.iter().map(|(id, family)| (*id, family.paths.clone())).collect();
        // Where a MANIFEST has a table.
        let stated = |number: FileNumber| -> Option<&Path> {
            let (id, _, file) = hints.files.get(&number)?;
            Some(paths.get(id)?.dir(file.path_id))
        };
        for (&number, dirs) in tables {
            let dir: &Path = match (&dirs[..], stated(number)) {
                ([only], _) => only,
                (several, Some(stated)) if several.iter().any(|dir| dir == stated) => stated,
                ([first, ..], _) if hints.obsolete(number).is_some() => first,
                ([first, second, ..], _) => {
                    let (first, second) = (file_name::table(first, number), second.display());
                    let what =
                        format!("{second} has one of this number too, and nothing says which one counts");
                    return Err(Error::corruption(format!("{}: {what}", first.display())));
                }
                ([], _) => continue,
            };
            match tables::examine(self.env, dir, number, hints, &comparators) {
                Ok(Found::Obsolete(why)) => lost.push((dir, number, None, why.to_owned(), false)),
                Ok(Found::Table { family, family_name, table }) => {
                    add(&mut wanted, family, &family_name, FileNumber(0))?;
                    found.push((dir, family, table));
                }
                Err(error) if error.is_corruption() => {
                    lost.push((dir, number, hints.family_of(number), error.to_string(), true));
                }
                Err(error) => return Err(error),
            }
        }
        let gone = hints.files.iter().filter(|(number, _)| !tables.contains_key(number));
        let why = || "a MANIFEST names it and it is not there, unless it was replaced later".to_owned();
        lost.extend(gone.map(|(number, (id, ..))| {
            (stated(*number).unwrap_or(self.dir), *number, Some(*id), why(), false)
        }));
        // Two names for one id, or two ids for one name, and nobody knows which is right.
        let mut names = BTreeSet::new();
        if let Some(twice) = wanted.values().find(|family| !names.insert(&family.name)) {
            let what =
                format!("two column families are called {:?}: nothing says which is which", twice.name);
            return Err(Error::corruption(format!("{}: {what}", self.dir.display())));
        }
        for (dir, id, mut table) in found {
            let family = wanted.get_mut(&id).expect("it was added above");
            tables::check_comparator(&family.options, &family.name, &table)?;
            tables::set_path(family, &mut table, dir)?;
            family.tables.push(table);
        }
        for (dir, number, id, why, matters) in lost {
            self.lose(&file_name::table(dir, number), why);
            // A table that cannot be read does not say whose it was: it may have been anybody's.
            let whose: Vec<_> = id.map_or_else(|| wanted.keys().copied().collect(), |id| vec![id]);
            let writes = hints.files.get(&number).map(|(.., file)| (file.smallest_seqno, file.largest_seqno));
            for id in whose.iter().filter(|_| matters) {
                if let Some(family) = wanted.get_mut(id) {
                    family.lost.push(writes.unwrap_or((SequenceNumber::ZERO, SequenceNumber::MAX)));
                }
            }
        }
        Ok(wanted)
    }

    /// A MANIFEST in `begun` with the tables that stay as they are.
    fn begin_manifest(
        &mut self,
        begun: &Path,
        hints: &Hints,
        wanted: &BTreeMap<ColumnFamilyId, Wanted>,
        ambiguous: &HashSet<ColumnFamilyId>,
        next: u64,
    ) -> Result<(VersionSet, ManifestWriter)> {
        let all = wanted.values().flat_map(|family| &family.tables);
        let last_sequence = all.map(|table| table.meta.largest_seqno).max().unwrap_or_default();
        let mut edits = Vec::new();
        for (id, family) in wanted {
            let mut edit = VersionEdit::new(*id);
            edit.comparator = Some(family.options.comparator.name().to_owned());
            edit.log_number = Some(if !family.lost.is_empty() { FileNumber(0) } else { family.log_number });
            if *id == ColumnFamilyId::DEFAULT {
                edit.db_id = hints.db_id.clone();
                edit.prev_log_number = Some(FileNumber(0));
                edit.next_file_number = Some(FileNumber(next));
                edit.last_sequence = Some(last_sequence.max(hints.last_sequence));
                edit.max_column_family = wanted.keys().last().map(|id| id.0.max(hints.max_column_family));
            } else {
                edit.column_family_change = Some(ColumnFamilyChange::Add(family.name.clone()));
            }
            edits.push(edit);
            if ambiguous.contains(id) {
                continue;
            }
            self.report.kept += family.tables.len();
            let mut edit = VersionEdit::new(*id);
            for table in &family.tables {
                edit.add_file(table.level, Arc::clone(&table.meta));
            }
            edits.push(edit);
        }
        let (mut framer, mut bytes) = (LogFramer::new(FileNumber(1), false), Vec::new());
        for edit in edits {
            let mut encoded = Vec::new();
            edit.encode(&mut encoded);
            framer.frame(&[&encoded], &mut bytes);
        }
        self.fs().write_all_synced(&file_name::manifest(begun, FileNumber(1)), &bytes)?;
        set_current(self.fs(), begun, FileNumber(1))?;
        let config = |family: &Wanted| ColumnFamilyConfig {
            name: family.name.clone(),
            comparator: family.options.comparator.clone(),
            num_levels: (family.options.num_levels as usize).max(family.levels()),
        };
        let recover =
            RecoverOptions { column_families: wanted.values().map(config).collect(), allow_unlisted: false };
        let options =
            ManifestOptions { write_db_id: self.options.write_dbid_to_manifest, ..Default::default() };
        VersionSet::recover(self.env, begun, recover, options)
    }

    /// Writes what only WALs hold to tables in `begun`. Answers the edits that add them, and the last write.
    fn replay_wals(
        &mut self,
        begun: &Path,
        hints: &Hints,
        wanted: &BTreeMap<ColumnFamilyId, Wanted>,
        versions: &mut VersionSet,
        families: &mut BTreeMap<ColumnFamilyId, Family>,
        (db_id, session): (&str, &str),
    ) -> Result<(BTreeMap<ColumnFamilyId, VersionEdit>, SequenceNumber)> {
        let is_wal = |kind| if let FileKind::Wal(number) = kind { Some(number) } else { None };
        self.report.wals = self.numbers(&self.wal_dir, is_wal)?.len();
        let is_stored = |id: ColumnFamilyId, key: &[u8], sequence, kind| match wanted.get(&id) {
            // The MANIFEST says from which WAL on nothing is in tables.
            Some(family) if hints.is_complete && family.lost.is_empty() => Ok(false),
            Some(family) => family.stores(key, sequence, kind),
            None => Ok(false),
        };
        let mut recovery = Recovery {
            env: self.env,
            dir: begun,
            wal_dir: &self.wal_dir,
            listings: &mut Listings::new(&self.env.fs),
            options: self.staging,
            log: &self.log,
            db_id,
            session_id: session,
            versions,
            families,
            read_only: false,
            is_stored: Some(&is_stored),
            first_replayed: None,
            flushed: BTreeMap::new(),
            edits: BTreeMap::new(),
            filtering: Filtering::default(),
            listeners: &self.listeners,
        };
        let replayed = recovery.replay()?;
        Ok((recovery.edits, replayed.last_sequence))
    }

    /// Merges all tables of a column family, and those of `fresh`, into new ones.
    fn merge(
        &mut self,
        wanted: &Wanted,
        family: &Family,
        fresh: VersionEdit,
        versions: &VersionSet,
        (db_id, session): (&str, &str),
    ) -> Result<VersionEdit> {
        let (data, settings) = (&family.data, family.data.settings());
        let options = &settings.opener.table;
        let paths = data.paths();
        let mut readers = Readers { env: self.env, paths: &paths, options, known: HashMap::new() };
        let mut files: Vec<Arc<FileMetaData>> = Vec::new();
        for table in &wanted.tables {
            readers.known.insert(table.meta.number, Arc::clone(&table.reader));
            files.push(Arc::clone(&table.meta));
        }
        for (_, file) in &fresh.new_files {
            readers.known.insert(file.number, tables::open(self.env, &paths.of_file(file), options, file)?);
            files.push(Arc::clone(file));
        }
        files.sort_by_key(|file| std::cmp::Reverse((file.largest_seqno, file.number)));
        self.report.merged += wanted.tables.len();
        let output_level = settings.compaction.max_output_level();
        let (compression, compression_options) =
            settings.compaction.compression_of_level(output_level, 0, true);
        let bytes = files.iter().map(|file| file.file_size).fold(0, u64::saturating_add);
        let plan = CompactionPlan {
            inputs: vec![LevelInputs { level: 0, files }],
            output_level,
            output_path_id: settings.compaction.output_path(output_level, bytes),
            below: Vec::new(),
            kind: PlanKind::Rewrite,
            reason: CompactionReason::ManualCompaction,
            score: 0.0,
            target_file_size: settings.compaction.target_file_size_base,
            target_file_size_is_upper_bound: settings.compaction.target_file_size_is_upper_bound,
            max_compaction_bytes: u64::MAX,
            compression,
            compression_options,
            bottommost: !settings.compaction.allow_ingest_behind,
            ingest_behind: settings.compaction.allow_ingest_behind,
            max_subcompactions: 1,
            partitioning: Partitioning::default(),
            full: true,
            manual: true,
            exclusive: true,
            compact_cursor: None,
        };
        let build = build_options(data, &settings, db_id, session, self.options);
        let numbers = versions.file_numbers();
        let next = || numbers.next();
        let context = JobContext {
            env: self.env,
            comparator: &data.comparator,
            tables: &readers,
            outputs: &Outputs {
                paths: &paths,
                next: &next,
                log: &self.log,
                cf_name: &data.name,
                listeners: &self.listeners,
                job_id: 0,
                reason: TableFileCreationReason::Compaction,
                part: None,
            },
            build: &build,
            write: write_options(self.options),
            snapshots: &[],
            earliest_write_conflict: None,
            merge_operator: settings.options.merge_operator.as_deref(),
            enforce_single_del_contracts: false,
            cancelled: &|| Ok(()),
            skip_filters_at_bottom: false,
            tombstone_mark_ratio: 0.0,
            filter: None,
            rate_limiter: self.options.rate_limiter.as_ref(),
            writers_wait: &|| false,
            workers: &ScopedThreads(1),
            progress: None,
            readahead_size: self.options.compaction_readahead_size,
            verify_record_count: false,
            measures_files: false,
            output_checks: settings.options.output_checks(VerifyOutputFlags::ENABLE_FOR_LOCAL_COMPACTION),
        };
        let output = run_compaction(&plan, &context)?;
        let mut edit = VersionEdit::new(data.id);
        for (at, mut file) in output.files.into_iter().enumerate() {
            file.epoch_number = at as u64 + 1; // They do not overlap: any order is right.
            edit.add_file(output_level, Arc::new(file));
        }
        Ok(edit)
    }

    /// Moves the new files in and the others out. Can be done any number of times.
    fn move_in(&mut self) -> Result<()> {
        let (fs, done) = (self.fs(), self.dir.join(DONE));
        let number = current_manifest(fs, &done)?;
        let fresh = file_name::manifest(&done, number);
        let manifest = file_name::manifest(self.dir, number);
        if fs.exists(&fresh)? {
            fs.rename(&fresh, &manifest)?;
        }
        let mut live = HashSet::new();
        let mut reader = ManifestReader::open(fs, &manifest)?;
        while let Some(record) = reader.next_edit()? {
            live.extend(record.edit.new_files.iter().map(|(_, file)| file.number));
        }
        for dir in &self.dirs {
            let new = if dir == self.dir { done.clone() } else { dir.join(BEGUN) };
            if !fs.exists(&new)? {
                continue; // It was emptied and removed below.
            }
            for table in self.numbers(&new, table_number)? {
                if live.contains(&table) {
                    fs.rename(&file_name::table(&new, table), &file_name::table(dir, table))?;
                }
            }
            fs.open_directory(dir)?.sync()?;
        }
        let here = self.tables()?;
        if let Some(missing) = live.iter().find(|table| !here.contains_key(table)) {
            let what =
                format!("table {missing} is in none of the directories: go on with the paths of before");
            return Err(Error::corruption(format!("{}: {what}", manifest.display())));
        }
        set_current(fs, self.dir, number)?;
        for from in self.dirs.iter().chain([&self.wal_dir]) {
            let has_tables_only = from != self.dir && *from != self.wal_dir;
            let is_old = |name: &String| match FileKind::parse(name) {
                Some(FileKind::Table(table)) => !live.contains(&table),
                Some(FileKind::Manifest(other)) => !has_tables_only && other != number,
                Some(FileKind::Wal(_)) => !has_tables_only,
                _ => false,
            };
            let old: Vec<String> = fs.list(from)?.into_iter().filter(is_old).collect();
            if old.is_empty() {
                continue;
            }
            let lost = from.join(LOST); // A rename does not leave the file system.
            fs.create_dir_all(&lost)?;
            old.iter().try_for_each(|name| fs.rename(&from.join(name), &lost.join(name)))?;
            fs.open_directory(&lost)?.sync()?;
            fs.open_directory(from)?.sync()?;
        }
        for dir in self.dirs.iter().filter(|dir| *dir != self.dir) {
            remove_all(fs, &dir.join(BEGUN))?;
        }
        let begun = self.dir.join(BEGUN);
        fs.rename(&done, &begun)?; // What is left of it is removed now or by the next repair.
        let dir = fs.open_directory(self.dir)?;
        dir.sync()?;
        remove_all(fs, &begun)?;
        dir.sync()
    }
}

/// Removes a directory with the files in it, if it is there.
fn remove_all(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    if !fs.exists(dir)? {
        return Ok(());
    }
    for name in fs.list(dir)? {
        fs.remove(&dir.join(name))?;
    }
    fs.remove_dir(dir)
}
