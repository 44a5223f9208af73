//! The options of an open column family, and what follows from them.

use crate::Db;
use crate::column_family::ColumnFamily;
use crate::info_log::info;
use crate::options::{
    ColumnFamilyOptions, DbOptions, OptionError, OptionStruct, SetRules, set_by_rules, validate,
};
use crate::table_cache::{TableCache, TableOpener};
use crate::table_paths::TablePaths;
use ironstone_base::statistics::{LevelHistograms, StatsLevel};
use ironstone_base::sync::atomic::Ordering;
use ironstone_base::sync::{Arc, Mutex, OnceLock};
use ironstone_base::{Error, FileNumber, Result, Statistics, file_name};
use ironstone_cache::CacheOptions;
use ironstone_compaction::CompactionOptions;
use ironstone_sst::BlockCache;
use ironstone_sst::block_trace::BlockCacheWatch;
use ironstone_sst::disk_share::DiskShare;
use ironstone_vfs::FileSystem;
use std::path::{Path, PathBuf};

/// The options in force, with what the layers need of them. Replaced as a whole when one of them changes;
/// a job or an iterator keeps those that it began with.
pub(crate) struct Settings {
    pub(crate) options: ColumnFamilyOptions,
    /// What the compaction layer needs.
    pub(crate) compaction: CompactionOptions,
    /// How tables that nobody knows yet are opened. Those that are known keep to what they were opened with.
    pub(crate) opener: Arc<TableOpener>,
}

/// Where the tables of a database are, and who opens them.
#[derive(Clone)]
pub(crate) struct TablePlace {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) dir: PathBuf,
    pub(crate) tables: Arc<TableCache>,
    /// All directories that may hold tables: the database's own, and those that its options name.
    pub(crate) dirs: Arc<Mutex<Vec<PathBuf>>>,
    /// For the column families that have no block cache of their own. Made for the first of them.
    pub(crate) block_cache: Arc<OnceLock<Arc<BlockCache>>>,
    /// What readers and compactions know of each other.
    pub(crate) disk_share: Arc<DiskShare>,
    /// Hears of what is asked of block caches.
    pub(crate) watch: Option<Arc<dyn BlockCacheWatch>>,
}

impl TablePlace {
    pub(crate) fn new(fs: &Arc<dyn FileSystem>, dir: &Path, tables: Arc<TableCache>) -> Self {
        Self {
            fs: Arc::clone(fs),
            dir: dir.to_owned(),
            tables,
            dirs: Arc::new(Mutex::new(vec![dir.to_owned()])),
            block_cache: Arc::default(),
            disk_share: Arc::default(),
            watch: None,
        }
    }
    pub(crate) fn watched(mut self, watch: Arc<dyn BlockCacheWatch>) -> Self {
        self.watch = Some(watch);
        self
    }
    fn note(&self, paths: &TablePaths) {
        let mut dirs = self.dirs.lock();
        for dir in paths.dirs() {
            if !dirs.contains(dir) {
                dirs.push(dir.clone());
            }
        }
    }
    pub(crate) fn dirs(&self) -> Vec<PathBuf> {
        self.dirs.lock().clone()
    }
    /// Where table `number` is, whoever it belongs to, and under which of its names. Numbers are those of the database.
    pub(crate) fn find(&self, number: FileNumber) -> PathBuf {
        let dirs = self.dirs();
        let names = dirs
            .iter()
            .flat_map(|dir| [file_name::table(dir, number), file_name::leveldb_table(dir, number)]);
        let mut there = names.filter(|path| !matches!(self.fs.exists(path), Ok(false)));
        there.next().unwrap_or_else(|| file_name::table(&self.dir, number))
    }

    fn block_cache(&self) -> Arc<BlockCache> {
        Arc::clone(self.block_cache.get_or_init(|| BlockCache::new(CacheOptions::default())))
    }
}

impl Settings {
    /// How many tombstones in a row iterators leave word of, if they may at all.
    pub(crate) fn noted_tombstone_run(&self) -> Option<u32> {
        let options = &self.options;
        // Files that are ingested behind may bring keys between the tombstones.
        let nothing_comes = !self.compaction.allow_ingest_behind;
        let may_keep = options.table_format.has_range_tombstones() && !options.disallow_memtable_writes;
        Some(options.min_tombstones_for_range_conversion)
            .filter(|&least| least > 0 && nothing_comes && may_keep)
    }
    /// Of a column family with `options` in a database with those of `db`.
    /// What is measured goes where it went with those `before`.
    pub(crate) fn new(
        options: ColumnFamilyOptions,
        db: &DbOptions,
        place: &TablePlace,
        before: Option<&Self>,
    ) -> Result<Self> {
        let has_timers = |statistics: &Arc<Statistics>| statistics.level() > StatsLevel::ExceptTimers;
        let read_latencies = match before {
            Some(before) => before.read_latencies().cloned(),
            None => db
                .statistics
                .as_ref()
                .filter(|statistics| has_timers(statistics))
                .map(|_| Arc::new(LevelHistograms::new(options.num_levels.max(1) as usize))),
        };
        let paths = TablePaths::of(&place.dir, db, &options);
        place.note(&paths);
        let mut table = options.table_options(db, || place.block_cache(), read_latencies)?;
        table.watch.clone_from(&place.watch);
        table.disk_share = Some(Arc::clone(&place.disk_share));
        let uncache_aggressiveness = match before {
            Some(before) => Arc::clone(&before.opener.uncache_aggressiveness),
            None => Arc::default(),
        };
        uncache_aggressiveness.store(options.uncache_aggressiveness, Ordering::Relaxed);
        let opener = Arc::new(TableOpener {
            fs: Arc::clone(&place.fs),
            paths,
            table: Arc::new(table),
            hints: db.table_hints(),
            mapped: db.allow_mmap_reads,
            verify_unique_id: db.verify_sst_unique_id_in_manifest,
            cache: Arc::clone(&place.tables),
            row_cache: db.row_cache.clone(),
            uncache_aggressiveness,
        });
        Ok(Self { compaction: options.compaction_options(db), opener, options })
    }

    /// How long reads of tables took, in microseconds, if that is measured.
    pub(crate) fn read_latencies(&self) -> Option<&Arc<LevelHistograms>> {
        self.opener.table.read_latencies.as_ref()
    }
}

/// Accepts only what may change while the database is open.
const LIVE: SetRules = SetRules { ignore_unknown: false, ignore_unsupported: false, mutable_only: true };

/// `options` after `changes`, or the first reason why they cannot be made.
fn changed<T: OptionStruct>(options: &T, changes: &[(&str, &str)]) -> Result<T> {
    if changes.is_empty() {
        return Err(Error::invalid_argument("no options to change"));
    }
    let mut options = options.clone();
    let set = |(name, value): &(&str, &str)| set_by_rules(&mut options, name, value, LIVE);
    changes.iter().try_for_each(set).map_err(OptionError::into_error)?;
    Ok(options)
}

impl Db {
    /// Changes options of the column family `default`, see [`set_options_cf`](Self::set_options_cf).
    pub fn set_options(&self, changes: &[(&str, &str)]) -> Result<()> {
        self.set_options_cf(self.default_column_family(), changes)
    }

    /// Changes options of an open column family: RocksDB's names and texts of values, all of them or none.
    /// `docs/options.md` says which may change. They hold for what begins after the call: memtables, tables, jobs
    /// and iterators that are there keep what they were made with; but a smaller `write_buffer_size` closes the
    /// memtable that takes writes as soon as it is larger. The new values are written to the OPTIONS file;
    /// that this failed is said in LOG only.
    ///
    /// ```
    /// # use ironstone::{Db, Options};
    /// # fn main() -> ironstone::Result<()> {
    /// # let db = Db::open(&Options::in_memory(), "/db")?;
    /// db.set_options(&[
    ///     ("disable_auto_compactions", "true"),
    ///     ("block_based_table_factory", "{block_size=16K;filter_policy=bloomfilter:10}"),
    /// ])?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such option, if it cannot change while the database is open, or if the values
    /// make no sense, alone or together. `NotSupported` for what is not built.
    pub fn set_options_cf(&self, cf: &ColumnFamily, changes: &[(&str, &str)]) -> Result<()> {
        self.check_handle(cf)?;
        let engine = self.engine();
        let _changing = self.begin_change()?;
        let db = engine.options();
        let before = cf.0.settings();
        let mut options = changed(&before.options, changes)?;
        if options.table_format != before.options.table_format {
            // The open memtable takes what tables of the old format have a place for.
            let what = "table_factory cannot become one of another format while the database is open";
            return Err(Error::invalid_argument(what));
        }
        let notes = options.sanitize();
        validate(&db, &options)?;
        let settings = Settings::new(options, &db, &engine.place, Some(&before))?;
        {
            let mut state = engine.state.lock();
            let family = state.family_mut(cf.id())?;
            family.mem.shrink_limit(settings.options.write_buffer_size);
            family.compaction_due = true;
            let samples = settings.options.read_triggered_compaction_threshold > 0.0;
            cf.0.set_settings(settings);
            if samples != cf.0.view().sampler.is_some() {
                state.family(cf.id())?.install_view(&state.versions);
            }
            engine.update_stall(&mut state);
        }
        engine.wake_workers();
        let changes = text_of(changes);
        info!(engine.log, "options of column family {:?} changed: {changes}", cf.name());
        for note in notes {
            info!(engine.log, "option adjusted: {note}");
        }
        self.note_options();
        Ok(())
    }

    /// Changes options of the database as [`set_options_cf`](Self::set_options_cf) does those of a column family.
    /// More threads start at once; fewer take no more jobs.
    ///
    /// # Errors
    /// As there.
    pub fn set_db_options(&self, changes: &[(&str, &str)]) -> Result<()> {
        let engine = self.engine();
        let _changing = self.begin_change()?;
        let mut options = changed(&**engine.options(), changes)?;
        let notes = options.sanitize();
        let mut manifest = engine.manifest.lock();
        {
            let mut state = engine.state.lock();
            let renew = |family: &crate::engine::Family| {
                let known = family.data.settings();
                validate(&options, &known.options)?;
                Settings::new(known.options.clone(), &options, &engine.place, Some(&known))
            };
            let renewed = state.families.values().map(renew).collect::<Result<Vec<_>>>()?;
            for (family, settings) in state.families.values_mut().zip(renewed) {
                family.data.set_settings(settings);
                family.compaction_due = true;
            }
            engine.controller.set_floor(options.delayed_write_rate);
            let tables = &engine.place.tables;
            let replacements = tables.replacements();
            tables.set_capacity(usize::try_from(options.max_open_files).ok());
            if tables.replacements() != replacements {
                state.families.values().for_each(|family| family.install_view(&state.versions));
            }
            manifest.set_limits(options.manifest_limits());
            engine.options.store(Arc::new(options));
            engine.wal_check.store(0, Ordering::Relaxed);
            engine.update_stall(&mut state);
        }
        drop(manifest);
        self.resize_workers(&engine.options());
        engine.wake_workers();
        engine.cleaner.poke();
        info!(engine.log, "options of the database changed: {}", text_of(changes));
        for note in notes {
            info!(engine.log, "option adjusted: {note}");
        }
        self.note_options();
        Ok(())
    }

    /// One change at a time: each starts from what the one before left.
    fn begin_change(&self) -> Result<ironstone_base::sync::MutexGuard<'_, ()>> {
        if self.engine().read_only {
            return Err(Error::not_supported("changing options of a database that is open for reading only"));
        }
        Ok(self.engine().changing_options.lock())
    }
}

fn text_of(changes: &[(&str, &str)]) -> String {
    changes.iter().map(|(name, value)| format!("{name}={value};")).collect()
}
