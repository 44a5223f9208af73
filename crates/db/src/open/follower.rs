//! A database that follows one that another process writes, with a directory of its own: tables are links there, so that the
//! leader may remove them.
//!
//! ```text
//! leader's directory   CURRENT, MANIFEST   read; never written
//!                      000012.sst          or in its db_paths and cf_paths
//! own directory        000012.sst          links to the leader's tables, as long as somebody here may read them;
//!                                          copies of those on other file systems
//!                      FOLLOWER            where the leader is: whoever opens the directory next may remove these links
//!                      LOCK, LOG           as in every database
//! ```

use super::secondary::{catch_up, retry};
use super::{Mode, make_durable_dir, not_there, open};
use crate::engine::Engine;
use crate::file_copy::copy_between;
use crate::info_log::{info, warning};
use crate::options::{ColumnFamilyOptions, DbOptions};
use crate::table_paths::TablePaths;
use crate::{ColumnFamilyDescriptor, Db};
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::{AtomicU64, Ordering};
use ironstone_base::{Code, ColumnFamilyId, Error, FileKind, FileNumber, Result, file_name};
use ironstone_version::{FileMetaData, VersionSet};
use ironstone_vfs::{FileSystem, WriteOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Marks the directory of a follower.
const MARK: &str = "FOLLOWER";

/// Where a leader has its files.
#[derive(Clone)]
pub(crate) struct Leader {
    pub(crate) dir: PathBuf,
    /// The directories of the tables of column families that are opened.
    tables: BTreeMap<String, TablePaths>,
    /// The same of `default`, if nobody lists it.
    otherwise: TablePaths,
}

impl Leader {
    fn new(dir: &Path, options: &DbOptions, descriptors: &[ColumnFamilyDescriptor]) -> Self {
        let of = |options_of_family| TablePaths::of(dir, options, options_of_family);
        let named = descriptors.iter().map(|descriptor| (descriptor.name.clone(), of(&descriptor.options)));
        Self { dir: dir.to_owned(), tables: named.collect(), otherwise: of(&ColumnFamilyOptions::default()) }
    }
    fn tables_of(&self, family: &str) -> &TablePaths {
        self.tables.get(family).unwrap_or(&self.otherwise)
    }
    /// All of them, and its own.
    fn dirs(&self) -> impl Iterator<Item = &Path> {
        let tables = self.tables.values().chain([&self.otherwise]).flat_map(TablePaths::dirs);
        tables.map(PathBuf::as_path).chain([self.dir.as_path()])
    }
}

/// What a follower knows of its leader.
pub(crate) struct Follower {
    pub(crate) leader: Leader,
    /// How often in a row catching up has failed. Relaxed: only the thread that catches up uses it.
    failures: AtomicU64,
}

impl Follower {
    pub(crate) fn of(leader: &Leader) -> Self {
        Self { leader: leader.clone(), failures: AtomicU64::new(0) }
    }

    /// How long after the last attempt to catch up the next one is due.
    pub(crate) fn next_after(&self, options: &DbOptions) -> Duration {
        Duration::from_millis(match self.failures.load(Ordering::Relaxed) {
            0 => options.follower_refresh_catchup_period_ms,
            _ => options.follower_catchup_retry_wait_ms,
        })
    }
}

impl Db {
    /// Opens the database in `leader_path`, which another process may have open for writing, to read it, with the directory `path` for
    /// what this one needs: links to the leader's tables, and LOG. Nothing is written to `leader_path`. Tables on another file system
    /// than `path`, or on one without links, are copied, which takes their time and their space.
    ///
    /// `db_paths` and `cf_paths` are the leader's: they say where its tables are. The follower has all of its own in `path`, and
    /// [`options`](Self::options) of it name no such paths.
    ///
    /// It sees what was in tables when it was opened, and from then on catches up by itself: a thread of
    /// [`thread_pool`](DbOptions::thread_pool) reads the MANIFEST every `follower_refresh_catchup_period_ms`; if that fails, up to
    /// `follower_catchup_retry_count` times, `follower_catchup_retry_wait_ms` apart, and then LOG says so.
    /// [`try_catch_up_with_primary`](Self::try_catch_up_with_primary) does it at once. No WAL is read: what is not flushed is not seen,
    /// and a batch over several column families is seen as these are flushed; with `atomic_flush` of the leader, whole.
    ///
    /// Tables that the leader removes stay, for as long as somebody reads them here: `max_open_files` may be anything. Snapshots and
    /// tailing iterators are refused; iterators keep what they see. Column families that are not listed, or are created later, are not
    /// opened.
    ///
    /// # Errors
    /// `InvalidArgument` if `path` is missing and `create_if_missing` is off, if it is a directory of the leader's, or if it holds files
    /// of a database and was not made by a follower; `IoError` if another follower has it open.
    ///
    /// ```
    /// use ironstone::{Db, Options};
    ///
    /// # fn main() -> ironstone::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let mut options = Options::default();
    /// options.db.create_if_missing = true;
    /// let path = dir.path().join("leader");
    /// let leader = Db::open(&options, &path)?;
    /// let follower = Db::open_as_follower(&options.db, dir.path().join("follower"), &path, vec![])?;
    /// leader.put(b"iron", b"Fe")?;
    /// leader.flush()?;
    /// follower.try_catch_up_with_primary()?; // It would have by itself, ten seconds later.
    /// assert!(follower.get(b"iron")?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_as_follower(
        options: &DbOptions,
        path: impl AsRef<Path>,
        leader_path: impl AsRef<Path>,
        descriptors: Vec<ColumnFamilyDescriptor>,
    ) -> Result<Self> {
        let path = path.as_ref();
        let leader = Leader::new(leader_path.as_ref(), options, &descriptors);
        let (mut options, mut descriptors) = (options.clone(), descriptors);
        options.db_paths.clear();
        descriptors.iter_mut().for_each(|descriptor| descriptor.options.cf_paths.clear());
        options.best_efforts_recovery = false;
        options.persist_stats_to_disk = false;
        options.open_files_async = false;
        let fs = &*options.env.fs;
        let own = fs.absolute(path)?;
        for dir in leader.dirs() {
            if fs.absolute(dir)? == own {
                let what = format!("{}: a follower needs another directory than its leader", path.display());
                return Err(Error::invalid_argument(what));
            }
        }
        if options.create_if_missing {
            make_durable_dir(fs, path, false)?;
        }
        retry(&options, || open(&options, path, descriptors.clone(), Mode::Follower(&leader)))
    }
}

/// Takes the directory `path`, whose lock is held, for a follower of `leader`: what an earlier one left goes away.
pub(super) fn take_directory(fs: &dyn FileSystem, path: &Path, leader: &Leader) -> Result<()> {
    let names = fs.list(path).map_err(|error| not_there(error, path))?;
    let is_ours = names.iter().any(|name| name == MARK);
    let stranger = names.iter().find(|name| match FileKind::parse(name) {
        Some(FileKind::Table(_)) => !is_ours,
        Some(FileKind::Current | FileKind::Manifest(_) | FileKind::Wal(_) | FileKind::Blob(_)) => true,
        _ => false,
    });
    if let Some(name) = stranger {
        let path = path.display();
        let what = format!(
            "{path}: {name} is there, and no follower made it: a follower needs a directory of its own"
        );
        return Err(Error::invalid_argument(what));
    }
    let leader = fs.absolute(&leader.dir)?;
    fs.write_all_synced(&path.join(MARK), format!("{}\n", leader.display()).as_bytes())?;
    fs.open_directory(path)?.sync()?; // It is there before any link is.
    // A leader that was made anew may have other tables under the same names.
    let is_part = |name: &str| matches!(FileKind::parse(name), Some(FileKind::Temporary(_)));
    let mut links = names.iter().filter(|name| table_of(name).is_some() || is_ours && is_part(name));
    links.try_for_each(|name| fs.remove(&path.join(name)))
}

/// Links the tables of `families` to `dir`, but for those that are there.
pub(super) fn link_tables<'a>(
    fs: &dyn FileSystem,
    leader: &Leader,
    dir: &Path,
    versions: &VersionSet,
    families: impl IntoIterator<Item = &'a ColumnFamilyId>,
) -> Result<()> {
    let here: BTreeSet<FileNumber> = fs.list(dir)?.iter().filter_map(|name| table_of(name)).collect();
    for family in families.into_iter().filter_map(|id| versions.column_family(*id)) {
        let paths = leader.tables_of(&family.name);
        for (_, file) in family.current.all_files().filter(|(_, file)| !here.contains(&file.number)) {
            match link_table(fs, &paths.of_file(file), &file_name::table(dir, file.number), file) {
                Err(missing) if missing.is_path_not_found() => {
                    let own = file_name::leveldb_table(dir, file.number);
                    link_table(fs, &paths.leveldb_name_of(file), &own, file).map_err(|_| missing)?;
                }
                linked => linked?,
            }
        }
    }
    Ok(())
}

/// Links a table, or copies it where that cannot be. A copy has its name once it is whole.
fn link_table(fs: &dyn FileSystem, from: &Path, to: &Path, file: &FileMetaData) -> Result<()> {
    match fs.link(from, to) {
        Err(error) if error.code() == Code::NotSupported => {}
        linked => return linked,
    }
    let part = to.with_extension("dbtmp");
    let options = WriteOptions::default();
    let copied = copy_between((fs, from), (fs, &part), file.file_size, options, false, None);
    let copied = copied.and_then(|_| fs.rename(&part, to));
    copied.inspect_err(|_| drop(fs.remove(&part))) // Whoever takes the directory next removes it else.
}

fn table_of(name: &str) -> Option<FileNumber> {
    if let Some(FileKind::Table(number)) = FileKind::parse(name) { Some(number) } else { None }
}

/// Removes the links that nobody needs, neither the newest version nor a reader, for who holds the lock `switching`: whoever
/// catches up links tables that no version here names so far.
pub(crate) fn tidy(engine: &Engine) {
    engine.place.tables.uncache_retired();
    if let Err(error) = remove_unneeded(engine) {
        warning!(engine.log, "{error}"); // The next time tries again.
    }
}

fn remove_unneeded(engine: &Engine) -> Result<()> {
    let mut needed: BTreeSet<FileNumber> = engine.place.tables.in_use();
    needed.extend(engine.state.lock().versions.live_files());
    for name in engine.env.fs.list(&engine.dir)? {
        let Some(number) = table_of(&name).filter(|number| !needed.contains(number)) else { continue };
        engine.place.tables.forget(number);
        match engine.env.fs.remove(&engine.dir.join(&name)) {
            Err(error) if !error.is_path_not_found() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// What a thread of the background does from time to time.
pub(crate) fn catch_up_in_background(engine: &Arc<Engine>, follower: &Follower) {
    let caught_up = {
        let _one_at_a_time = engine.switching.lock();
        catch_up(engine)
    };
    let Err(error) = caught_up else {
        follower.failures.store(0, Ordering::Relaxed);
        return;
    };
    let failures = follower.failures.load(Ordering::Relaxed) + 1;
    info!(engine.log, "catching up with {} failed ({failures}): {error}", follower.leader.dir.display());
    if failures < engine.options().follower_catchup_retry_count {
        return follower.failures.store(failures, Ordering::Relaxed);
    }
    warning!(engine.log, "{}: catch up unsuccessful: {error}", follower.leader.dir.display());
    follower.failures.store(0, Ordering::Relaxed);
}
