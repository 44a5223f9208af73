//! What keeps a database in shape: column families, flushes, manual compaction, background errors.

use crate::background::flush::{flush_and_wait, switch_for_flush, wait_for_room};
use crate::background::manual::{self, CompactFilesOptions, CompactRangeOptions};
use crate::background::resume::resume;
use crate::column_family::ColumnFamily;
use crate::engine::State;
use crate::info_log::{info, warning};
use crate::listener::BackgroundErrorReason;
use crate::memtables::FlushReason;
use crate::open::FamilyBuilder;
use crate::options::ColumnFamilyOptions;
use crate::table_paths::make_dirs;
use crate::write::switch::Which;
use crate::{ColumnFamilyDescriptor, Db};
use ironstone_base::file_name::{self, FileKind};
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::Ordering;
use ironstone_base::{Code, ColumnFamilyId, Error, FileNumber, Result};
use ironstone_compaction::KeyRange;
use ironstone_version::{ColumnFamilyConfig, FileMetaData, UNKNOWN_FILE_CHECKSUM_FUNC_NAME};
use std::time::Duration;

/// How memtables are flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlushOptions {
    /// Return only when the tables are durable. Default true.
    pub wait: bool,
    /// Flush at once, though writers may be held up by it. Default false: wait until there is room for one more memtable and one more
    /// file of level 0, nothing is under way that would make some, or somebody else has flushed what was there.
    pub allow_write_stall: bool,
    /// Install the tables of all column families of the call in one step, as with
    /// [`atomic_flush`](crate::DbOptions::atomic_flush). Default false.
    pub force_atomic_flush: bool,
}

impl Default for FlushOptions {
    fn default() -> Self {
        Self { wait: true, allow_write_stall: false, force_atomic_flush: false }
    }
}

/// How [`Db::wait_for_compact_with`] waits. Names, meanings and defaults are RocksDB's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WaitForCompactOptions {
    /// Answer `Aborted` while background work is paused, instead of waiting until it goes on. Default false.
    pub abort_on_pause: bool,
    /// Flush all column families that are open first. Default false.
    pub flush: bool,
    /// Wait as well until files that nobody needs any more are removed, all but those that iterators and the like still hold. Default
    /// false.
    pub wait_for_purge: bool,
    /// Close the database then. Default false.
    pub close_db: bool,
    /// For how long at most, the flush included if there is one, which is not cut short; `None`, the default: as long as it takes.
    pub timeout: Option<Duration>,
}

/// The name of the function that made a table's checksum, as RocksDB reports it.
pub(crate) fn checksum_func_name(file: &FileMetaData) -> String {
    match &*file.file_checksum_func_name {
        "" => UNKNOWN_FILE_CHECKSUM_FUNC_NAME.to_owned(),
        name => name.to_owned(),
    }
}

impl Db {
    /// Creates a column family. `InvalidArgument` if the name is taken or empty.
    pub fn create_column_family(&self, name: &str, options: &ColumnFamilyOptions) -> Result<ColumnFamily> {
        self.create_column_family_of(name, options, Vec::new())
    }

    /// Creates several column families, one after the other, up to the first that cannot be. Those before it stay, and
    /// [`column_family`](Self::column_family) finds them.
    pub fn create_column_families(
        &self,
        descriptors: &[ColumnFamilyDescriptor],
    ) -> Result<Vec<ColumnFamily>> {
        let created = self.create_all(descriptors)?;
        if !created.is_empty() {
            self.note_options();
        }
        Ok(created)
    }

    /// The same without a new OPTIONS file, which whoever calls this has to see to, unless it fails.
    pub(crate) fn create_all<'d>(
        &self,
        descriptors: impl IntoIterator<Item = &'d ColumnFamilyDescriptor>,
    ) -> Result<Vec<ColumnFamily>> {
        let mut created = Vec::new();
        let result = descriptors.into_iter().try_for_each(|descriptor| {
            created.push(self.create_one(&descriptor.name, &descriptor.options, Vec::new())?);
            Ok(())
        });
        if result.is_err() && !created.is_empty() {
            self.note_options();
        }
        result.map(|()| created)
    }

    /// Creates one with `files` in it from the beginning, each on a level.
    pub(crate) fn create_column_family_of(
        &self,
        name: &str,
        options: &ColumnFamilyOptions,
        files: Vec<(usize, Arc<FileMetaData>)>,
    ) -> Result<ColumnFamily> {
        let created = self.create_one(name, options, files)?;
        self.note_options();
        Ok(created)
    }

    fn create_one(
        &self,
        name: &str,
        options: &ColumnFamilyOptions,
        files: Vec<(usize, Arc<FileMetaData>)>,
    ) -> Result<ColumnFamily> {
        let engine = self.engine();
        engine.write_failure()?;
        let mut options = options.clone();
        options.sanitize();
        options.sanitize_for(&engine.options());
        crate::options::validate(&engine.options(), &options)?;
        let options = &options;
        if name.is_empty() {
            return Err(Error::invalid_argument("a column family must have a name"));
        }
        make_dirs(&*engine.env.fs, &options.cf_paths)?;
        let config = ColumnFamilyConfig {
            name: name.to_owned(),
            comparator: options.comparator.clone(),
            num_levels: options.num_levels as usize,
        };
        let newest = files.iter().map(|(_, file)| file.largest_seqno).max().unwrap_or_default();
        let mut manifest = engine.manifest.lock();
        let pending = {
            let state = engine.state.lock();
            if state.versions.column_family_named(name).is_some() {
                return Err(Error::invalid_argument(format!("Column family already exists: {name}")));
            }
            let (wal, _) = engine.pipeline.current_wal();
            state.versions.prepare_create(&config, wal, files, &manifest)?
        };
        let created = match manifest.commit(pending) {
            Ok(change) => {
                let mut state = engine.state.lock();
                let State { versions, families, .. } = &mut *state;
                let installed = versions.install(change);
                let id = installed.added.expect("the change created one");
                let builder = FamilyBuilder {
                    options: &engine.options(),
                    instance: engine.instance,
                    place: &engine.place,
                    cleaner: &engine.cleaner,
                    memory: &engine.memory,
                };
                let family = builder.build(id, options, name, versions)?;
                engine.pipeline.pass(newest);
                engine.pipeline.set_active(id, Arc::clone(&family.mem));
                let handle = ColumnFamily(Arc::clone(&family.data));
                families.insert(id, family);
                handle
            }
            Err(failed) => {
                let mut state = engine.state.lock();
                let error = state.versions.abandon(failed);
                engine.stop_writes(&mut state, error.clone(), BackgroundErrorReason::ManifestWrite);
                return Err(error);
            }
        };
        drop(manifest);
        info!(engine.log, "created column family {name:?} (id {})", created.id().0);
        Ok(created)
    }

    /// The OPTIONS file is for those who open the database without options of their own: that it
    /// could not be written is said in LOG, and takes nothing back that is durable.
    pub(crate) fn note_options(&self) {
        if let Err(error) = self.engine().write_options_file() {
            warning!(self.engine().log, "OPTIONS file: {error}");
        }
    }

    /// Drops a column family. Its files go once nobody reads them; handles answer `ColumnFamilyDropped`.
    pub fn drop_column_family(&self, cf: &ColumnFamily) -> Result<()> {
        self.drop_column_families(&[cf])
    }

    /// Drops several column families, one after the other, up to the first that cannot be. Those before it are gone.
    pub fn drop_column_families(&self, cfs: &[&ColumnFamily]) -> Result<()> {
        let mut dropped = 0;
        let result = cfs.iter().try_for_each(|cf| {
            self.drop_one(cf)?;
            dropped += 1;
            Ok(())
        });
        if dropped > 0 {
            self.note_options();
        }
        result
    }

    fn drop_one(&self, cf: &ColumnFamily) -> Result<()> {
        let engine = self.engine();
        engine.write_failure()?;
        if cf.id() == ColumnFamilyId::DEFAULT {
            return Err(Error::invalid_argument("Can't drop default column family"));
        }
        if cf.0.instance != engine.instance {
            return Err(Error::invalid_argument("the column family is of another database"));
        }
        let mut manifest = engine.lock_with_open_wal(&engine.manifest)?;
        let pending = engine.state.lock().versions.prepare_drop(cf.id(), &manifest)?;
        match manifest.commit(pending) {
            Ok(change) => {
                let mut state = engine.state.lock();
                state.versions.install(change);
                cf.0.dropped.store(true, Ordering::Release);
                engine.pipeline.remove_active(cf.id());
                state.families.remove(&cf.id());
                engine.update_stall(&mut state);
            }
            Err(failed) => {
                let mut state = engine.state.lock();
                let error = state.versions.abandon(failed);
                engine.stop_writes(&mut state, error.clone(), BackgroundErrorReason::ManifestWrite);
                return Err(error);
            }
        }
        drop(manifest);
        info!(engine.log, "dropped column family {:?}", cf.name());
        engine.progress.notify_all();
        engine.cleaner.poke();
        Ok(())
    }

    /// Writes the memtable of `default` to a table, and waits until it is durable.
    pub fn flush(&self) -> Result<()> {
        self.flush_cf(&FlushOptions::default(), self.default_column_family())
    }
    /// Writes the memtable of `cf` to a table.
    pub fn flush_cf(&self, options: &FlushOptions, cf: &ColumnFamily) -> Result<()> {
        self.flush_cfs(options, &[cf])
    }
    /// Writes the memtables of several column families to tables: one after the other, or with
    /// [`force_atomic_flush`](FlushOptions::force_atomic_flush) and with `atomic_flush` all of them or none. A flush that is not waited
    /// for answers `TryAgain` while writes are stopped.
    pub fn flush_cfs(&self, options: &FlushOptions, cfs: &[&ColumnFamily]) -> Result<()> {
        cfs.iter().try_for_each(|cf| self.check_handle(cf))?;
        let engine = self.engine();
        engine.write_failure()?;
        if !options.wait && engine.controller.state().0 {
            let what =
                "Writes have been stopped, thus unable to perform manual flush. Please try again later";
            return Err(Error::new(Code::TryAgain, what));
        }
        let mut ids: Vec<_> = cfs.iter().map(|cf| cf.id()).collect();
        if !options.allow_write_stall {
            let left = wait_for_room(engine, &ids, || Ok(()))?;
            if left.is_empty() {
                return Ok(());
            }
            if !options.force_atomic_flush && !engine.options().atomic_flush {
                ids = left;
            }
        }
        let which = match options.force_atomic_flush {
            true => Which::Together(ids.clone(), FlushReason::Manual),
            false => Which::Of(ids.clone(), FlushReason::Manual),
        };
        if options.wait {
            return flush_and_wait(engine, &which, &ids);
        }
        switch_for_flush(engine, &which)?;
        let mut state = engine.state.lock();
        for id in ids {
            let family = state.family_mut(id)?;
            family.flush_requested |= !family.imm.is_empty();
        }
        engine.wake_workers();
        Ok(())
    }

    /// Compacts the keys of `cf` in `begin..=end` (`None`: unbounded) down to the last level that has
    /// some, on this thread. Flushes first; when, [`allow_write_stall`](CompactRangeOptions::allow_write_stall) says.
    ///
    /// ```
    /// # use ironstone::{Db, Options};
    /// # let db = Db::open(&Options::in_memory(), "/db")?;
    /// # let cf = db.default_column_family();
    /// for value in ["1", "2", "3"] {
    ///     db.put(b"key", value)?;
    ///     db.flush()?;
    /// }
    /// assert_eq!(db.live_files().len(), 3);
    /// db.compact_range(&Default::default(), cf, Some(b"a"), Some(b"z"))?;
    /// assert_eq!(db.live_files().len(), 1);
    /// assert_eq!(db.level_shape(cf)[0].0, 0);
    /// # Ok::<_, ironstone::Error>(())
    /// ```
    pub fn compact_range(
        &self,
        options: &CompactRangeOptions,
        cf: &ColumnFamily,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<()> {
        self.check_handle(cf)?;
        let engine = self.engine();
        let check = || engine.check_not_aborted(&cf.0);
        check()?;
        if options.allow_write_stall || !wait_for_room(engine, &[cf.id()], check)?.is_empty() {
            let which = Which::Of(vec![cf.id()], FlushReason::ManualCompaction);
            flush_and_wait(engine, &which, &[cf.id()])?;
        }
        manual::compact_range(engine, cf, begin, end, options)
    }
    /// Compacts the tables `files` of `cf` into `output_level`, on this thread.
    ///
    /// ```
    /// use ironstone::{Db, Options};
    ///
    /// let mut options = Options::in_memory();
    /// options.cf.disable_auto_compactions = true; // They have levels of their own in mind.
    /// let db = Db::open(&options, "/db")?;
    /// for value in ["1", "2"] {
    ///     db.put(b"key", value)?;
    ///     db.flush()?;
    /// }
    /// let all: Vec<_> = db.live_files().iter().map(|table| table.number).collect();
    /// db.compact_files(&Default::default(), db.default_column_family(), &all, 3)?;
    /// let tables = db.live_files();
    /// assert_eq!((tables.len(), tables[0].level), (1, 3));
    /// # Ok::<_, ironstone::Error>(())
    /// ```
    pub fn compact_files(
        &self,
        options: &CompactFilesOptions,
        cf: &ColumnFamily,
        files: &[FileNumber],
        output_level: usize,
    ) -> Result<()> {
        self.check_handle(cf)?;
        manual::compact_files(self.engine(), cf, files, output_level, options)
    }

    /// Stops the compactions that callers wait for (`compact_range`, `compact_files`), and waits until none runs; what they wrote so
    /// far is removed. Until [`enable_manual_compaction`](Self::enable_manual_compaction) was called as often they answer
    /// `Incomplete` with the subcode `ManualCompactionPaused`, as do those that were stopped. What runs by itself goes on.
    pub fn disable_manual_compaction(&self) {
        manual::disable(self.engine());
    }
    /// Takes one [`disable_manual_compaction`](Self::disable_manual_compaction) back. `InvalidArgument` if there was none.
    pub fn enable_manual_compaction(&self) -> Result<()> {
        match manual::enable(self.engine()) {
            true => Ok(()),
            false => Err(Error::invalid_argument("manual compaction is not disabled")),
        }
    }

    /// Asks for the tables of `cf` with keys in `begin..=end` (`None`: unbounded) to be compacted when there is
    /// time, and does not wait: all that do not lie on the last level with tables. Forgotten at closing.
    pub fn suggest_compact_range(
        &self,
        cf: &ColumnFamily,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<()> {
        self.check_handle(cf)?;
        let engine = self.engine();
        let mut state = engine.state.lock();
        let State { families, versions, .. } = &mut *state;
        let (Some(family), Some(versions)) = (families.get_mut(&cf.id()), versions.column_family(cf.id()))
        else {
            return Err(Error::new(Code::ColumnFamilyDropped, format!("column family {:?}", cf.name())));
        };
        let version = &versions.current;
        for level in 0..version.last_level().unwrap_or(0) {
            let files = version.overlapping_inputs(level, begin, end);
            family.suggested.extend(files.iter().map(|file| file.number));
        }
        family.compaction_due = true;
        engine.wake_workers();
        Ok(())
    }

    /// Moves all tables of level 0 of `cf` to `target_level` as they are: for tables that were loaded in order.
    /// `InvalidArgument` if they overlap each other, if one is being compacted, or if a level from 1 to
    /// `target_level` has tables or does not exist.
    pub fn promote_level0(&self, cf: &ColumnFamily, target_level: usize) -> Result<()> {
        self.check_handle(cf)?;
        manual::promote_level0(self.engine(), cf, target_level)
    }

    /// Removes the file `name` with all that is in it: RocksDB's `DeleteFile`, which it has given up since. A table,
    /// `000012.sst`, has to be what is oldest in its column family: on the last level that has tables, and there the
    /// oldest if that is level 0. A WAL has to be in the archive: `archive/000003.log`. Answers whether it was removed;
    /// a table that a compaction reads is left to it. (RocksDB does not tell.)
    ///
    /// # Errors
    /// `InvalidArgument` for other names, tables that do not exist, and those that are not the oldest: what is below
    /// them would come back. `NotSupported` for WALs that are not archived. `IOError` for an archived WAL that does not
    /// exist.
    pub fn delete_file(&self, name: &str) -> Result<bool> {
        let engine = self.engine();
        engine.write_failure()?;
        let relative = name.trim_start_matches('/');
        let (archived, file) = match relative.strip_prefix("archive/") {
            Some(file) => (true, file.trim_start_matches('/')),
            None => (false, relative),
        };
        match (FileKind::parse(file), archived) {
            (Some(FileKind::Table(number)), false) => manual::delete_table(engine, number),
            (Some(FileKind::Wal(_)), true) => {
                let path = file_name::archive_dir(&engine.wal_dir).join(file);
                engine.env.fs.remove(&path)?;
                info!(engine.log, "deleted {}", path.display());
                Ok(true)
            }
            (Some(FileKind::Wal(_)), false) => {
                Err(Error::not_supported(format!("{name}: Delete only supported for archived logs")))
            }
            _ => Err(Error::invalid_argument(format!(
                "{name:?}: Invalid file name: neither a table nor an archived WAL"
            ))),
        }
    }

    /// Removes the tables of `cf` below level 0 whose keys all lie in one of `ranges`, with all that is in them and without
    /// reading them: RocksDB's `DeleteFilesInRanges`. `None` as a bound is unbounded; keys that are a range's end belong
    /// to it if `include_end`. Answers how many tables went.
    ///
    /// Keys of the ranges may stay: in memtables, on level 0, in tables that reach out of the ranges or that a compaction
    /// reads. Snapshots lose what was in the tables. A table stays as well if one below it that stays overlaps it, so
    /// that no key gets an older value back. (RocksDB removes it.) What `max_successive_merges` has merged in a memtable with
    /// values of such tables, a crash before its flush takes back to the operands alone.
    ///
    /// ```
    /// # use ironstone::{Db, Options};
    /// # let db = Db::open(&Options::in_memory(), "/db")?;
    /// # let cf = db.default_column_family();
    /// for month in ["2024-11", "2024-12", "2025-01"] {
    ///     db.put(month, b"...")?;
    ///     db.flush()?;
    /// }
    /// db.promote_level0(cf, 6)?; // Tables of level 0 would stay.
    /// let year: ironstone::KeyRange<'_> = (Some(b"2024"), Some(b"2025"));
    /// assert_eq!(db.delete_files_in_ranges(cf, &[year], false)?, 2);
    /// assert_eq!(db.iter()?.entries().count(), 1);
    /// # Ok::<_, ironstone::Error>(())
    /// ```
    pub fn delete_files_in_ranges(
        &self,
        cf: &ColumnFamily,
        ranges: &[KeyRange<'_>],
        include_end: bool,
    ) -> Result<usize> {
        self.check_handle(cf)?;
        self.engine().write_failure()?;
        manual::delete_tables_in(self.engine(), cf, ranges, include_end)
    }

    /// Waits until no flush and no compaction runs or is due. While background work is paused it does not wait.
    pub fn wait_for_compact(&self) -> Result<()> {
        self.wait_until_idle(|paused| Ok(!paused), None, false)
    }

    /// The same as `options` say; while background work is paused it waits.
    ///
    /// # Errors
    /// `Aborted` if background work is paused and `abort_on_pause` is on, `TimedOut` after `timeout`; with `close_db`, the database
    /// stays open then. Otherwise what stops writes, and what flushing and closing answer.
    pub fn wait_for_compact_with(&self, options: &WaitForCompactOptions) -> Result<()> {
        let engine = self.engine();
        let now = || Duration::from_nanos(engine.env.clock.monotonic_nanos());
        let deadline = options.timeout.map(|timeout| now().saturating_add(timeout));
        if options.flush {
            self.flush_cfs(&FlushOptions::default(), &self.column_families().iter().collect::<Vec<_>>())?;
        }
        let goes_on = |paused| match paused && options.abort_on_pause {
            true => Err(Error::new(Code::Aborted, "background work is paused")),
            false => Ok(true),
        };
        self.wait_until_idle(goes_on, deadline, false)?;
        if options.wait_for_purge {
            let _awaited = engine.cleaner.poke_and_await(); // What became obsolete by now is removed by what begins then.
            self.wait_until_idle(goes_on, deadline, true)?;
        }
        if options.close_db { self.close() } else { Ok(()) }
    }

    /// Waits until no flush and no compaction runs or is due, and, if it `purges`, no removal of files. `goes_on` says, by whether
    /// background work is paused, whether to wait.
    fn wait_until_idle(
        &self,
        goes_on: impl Fn(bool) -> Result<bool>,
        deadline: Option<Duration>,
        purges: bool,
    ) -> Result<()> {
        let engine = self.engine();
        let mut state = engine.state.lock();
        loop {
            if let Some(error) = &state.background_error {
                return Err(error.clone());
            }
            if state.closing {
                return Err(Error::shutdown());
            }
            let busy =
                state.is_busy() || (purges && engine.cleaner.is_cleaning(state.deletions_disabled == 0));
            if !goes_on(state.paused > 0)? || !busy {
                return Ok(());
            }
            engine.wake_workers();
            let Some(deadline) = deadline else {
                engine.wait_for_progress(&mut state);
                continue;
            };
            let now = Duration::from_nanos(engine.env.clock.monotonic_nanos());
            let Some(left) = deadline.checked_sub(now).filter(|left| !left.is_zero()) else {
                return Err(Error::new(Code::TimedOut, "background work is not done"));
            };
            engine.progress.wait_for(&mut state, left);
        }
    }

    /// Lets no flush and no compaction start until [`continue_background_work`](Self::continue_background_work)
    /// was called as often, and waits for those that run.
    ///
    /// ```
    /// # use ironstone::{Db, FlushOptions, Options, WaitForCompactOptions};
    /// # let db = Db::open(&Options::in_memory(), "/db")?;
    /// # let cf = db.default_column_family();
    /// db.pause_background_work()?;
    /// db.put(b"iron", b"Fe")?;
    /// db.flush_cf(&FlushOptions { wait: false, ..FlushOptions::default() }, cf)?;
    /// let impatient = WaitForCompactOptions { abort_on_pause: true, ..WaitForCompactOptions::default() };
    /// assert!(db.wait_for_compact_with(&impatient).is_err());
    /// assert!(db.live_files().is_empty()); // Nothing is flushed,
    ///
    /// db.continue_background_work()?;
    /// db.wait_for_compact()?;
    /// assert_eq!(db.live_files().len(), 1); // and now it is.
    /// # Ok::<_, ironstone::Error>(())
    /// ```
    pub fn pause_background_work(&self) -> Result<()> {
        let engine = self.engine();
        let mut state = engine.state.lock();
        state.paused += 1;
        while state.running_flushes + state.running_compactions > 0 {
            engine.wait_for_progress(&mut state);
        }
        Ok(())
    }
    /// Takes one [`pause_background_work`](Self::pause_background_work) back.
    pub fn continue_background_work(&self) -> Result<()> {
        let engine = self.engine();
        let mut state = engine.state.lock();
        state.paused = state
            .paused
            .checked_sub(1)
            .ok_or_else(|| Error::invalid_argument("background work is not paused"))?;
        engine.wake_workers();
        Ok(())
    }

    /// The failure that stops writes, if there is one.
    pub fn background_error(&self) -> Option<Error> {
        self.engine().state.lock().background_error.clone()
    }

    /// Tries to go on after a failure that stopped writes: gives up the WAL, whose end nobody can be
    /// sure of, and writes everything that memtables hold to tables. If that works, every write that
    /// was acknowledged is there, and writes are taken again. After a failure that may pass
    /// ([`Error::is_retryable`]) the database tries this by itself, every [`bgerror_resume_retry_interval`](crate::DbOptions::bgerror_resume_retry_interval).
    pub fn resume(&self) -> Result<()> {
        resume(self.engine())
    }

    /// For each level of `cf` how many tables it has and how many bytes they take.
    pub fn level_shape(&self, cf: &ColumnFamily) -> Vec<(usize, u64)> {
        let view = cf.0.view();
        view.version.levels.iter().map(|level| (level.len(), level.bytes())).collect()
    }
    /// Keeps obsolete files from being removed until [`enable_file_deletions`](Self::enable_file_deletions)
    /// was called as often.
    pub fn disable_file_deletions(&self) {
        self.engine().state.lock().deletions_disabled += 1;
    }
    /// Takes one [`disable_file_deletions`](Self::disable_file_deletions) back.
    pub fn enable_file_deletions(&self) {
        let mut state = self.engine().state.lock();
        state.deletions_disabled = state.deletions_disabled.saturating_sub(1);
        drop(state);
        self.engine().cleaner.poke();
    }
}
