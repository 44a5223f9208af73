//! A database that follows one that another process writes, with a directory of its own: tables are links there, so that the
//! leader may remove them.
//!
//! ```text
//! leader's directory   CURRENT, MANIFEST   read; never written
//! own directory        000012.sst          links to the leader's tables, as long as somebody here may read them
//!                      FOLLOWER            where the leader is: whoever opens the directory next may remove these links
//!                      LOCK, LOG           as in every database
//! ```

use super::secondary::{catch_up, retry};
use super::{Mode, make_durable_dir, not_there, open};
use crate::engine::Engine;
use crate::info_log::{info, warning};
use crate::options::DbOptions;
use crate::{ColumnFamilyDescriptor, Db};
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::{AtomicU64, Ordering};
use ironstone_base::{ColumnFamilyId, Error, FileKind, FileNumber, Result, file_name};
use ironstone_version::VersionSet;
use ironstone_vfs::FileSystem;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Marks the directory of a follower.
const MARK: &str = "FOLLOWER";

/// What a follower knows of its leader.
pub(crate) struct Follower {
    /// Where it is.
    pub(crate) leader: PathBuf,
    /// How often in a row catching up has failed. Relaxed: only the thread that catches up uses it.
    failures: AtomicU64,
}

impl Follower {
    pub(crate) fn of(leader: &Path) -> Self {
        Self { leader: leader.to_owned(), failures: AtomicU64::new(0) }
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
    /// what this one needs: links to the leader's tables, and LOG. Nothing is written to `leader_path`. Both directories have to be
    /// on one file system that has links.
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
    /// `InvalidArgument` if `path` is missing and `create_if_missing` is off, if it is `leader_path`, or if it holds files of a database
    /// and was not made by a follower; `IoError` if another follower has it open. `NotSupported` with `db_paths` or `cf_paths`.
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
        let (path, leader) = (path.as_ref(), leader_path.as_ref());
        let mut options = options.clone();
        options.best_efforts_recovery = false;
        options.persist_stats_to_disk = false;
        options.open_files_async = false;
        let has_paths = |descriptor: &ColumnFamilyDescriptor| !descriptor.options.cf_paths.is_empty();
        if !options.db_paths.is_empty() || descriptors.iter().any(has_paths) {
            return Err(Error::not_supported("followers of a database with db_paths or cf_paths"));
        }
        let fs = &*options.env.fs;
        if fs.absolute(path)? == fs.absolute(leader)? {
            let what = format!("{}: a follower needs another directory than its leader", path.display());
            return Err(Error::invalid_argument(what));
        }
        if options.create_if_missing {
            make_durable_dir(fs, path, false)?;
        }
        retry(&options, || open(&options, path, descriptors.clone(), Mode::Follower(leader)))
    }
}

/// Takes the directory `path`, whose lock is held, for a follower of `leader`: what an earlier one left goes away.
pub(super) fn take_directory(fs: &dyn FileSystem, path: &Path, leader: &Path) -> Result<()> {
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
    let leader = fs.absolute(leader)?;
    fs.write_all_synced(&path.join(MARK), format!("{}\n", leader.display()).as_bytes())?;
    fs.open_directory(path)?.sync()?; // It is there before any link is.
    // A leader that was made anew may have other tables under the same names.
    let mut links = names.iter().filter(|name| table_of(name).is_some());
    links.try_for_each(|name| fs.remove(&path.join(name)))
}

/// Links the tables of `families` to `dir`, but for those that are there.
pub(super) fn link_tables<'a>(
    fs: &dyn FileSystem,
    leader: &Path,
    dir: &Path,
    versions: &VersionSet,
    families: impl IntoIterator<Item = &'a ColumnFamilyId>,
) -> Result<()> {
    let here: BTreeSet<FileNumber> = fs.list(dir)?.iter().filter_map(|name| table_of(name)).collect();
    let versions = families.into_iter().filter_map(|id| versions.column_family(*id));
    for (_, file) in versions.flat_map(|family| family.current.all_files()) {
        let number = file.number;
        if here.contains(&number) {
            continue;
        }
        match fs.link(&file_name::table(leader, number), &file_name::table(dir, number)) {
            Err(missing) if missing.is_path_not_found() => fs
                .link(&file_name::leveldb_table(leader, number), &file_name::leveldb_table(dir, number))
                .map_err(|_| missing)?,
            linked => linked?,
        }
    }
    Ok(())
}

fn table_of(name: &str) -> Option<FileNumber> {
    if let Some(FileKind::Table(number)) = FileKind::parse(name) { Some(number) } else { None }
}

/// Removes the links that nobody needs, neither the newest version nor a reader, for who holds the lock `switching`: whoever
/// catches up links tables that no version here names so far.
pub(crate) fn tidy(engine: &Engine) {
    for table in engine.place.tables.take_retired() {
        let _ = table.uncache(); // Without its index in memory, its blocks leave the cache by age.
    }
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
    info!(engine.log, "catching up with {} failed ({failures}): {error}", follower.leader.display());
    if failures < engine.options().follower_catchup_retry_count {
        return follower.failures.store(failures, Ordering::Relaxed);
    }
    warning!(engine.log, "{}: catch up unsuccessful: {error}", follower.leader.display());
    follower.failures.store(0, Ordering::Relaxed);
}
