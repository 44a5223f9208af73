//! Opening, listing and destroying databases.

mod best_efforts;
pub(crate) mod destroy;
pub(crate) mod follower;
pub(crate) mod listings;
pub(crate) mod recover_wals;
pub(crate) mod secondary;

use crate::background::abort::Aborts;
use crate::background::{self, Cleaner};
use crate::column_family::{ColumnFamily, ColumnFamilyData};
use crate::engine::{Counters, Engine, Family, State, WalState};
use crate::info_log::{InfoLog, Rolling, info};
use crate::listener::{self, Listeners};
use crate::options::{ColumnFamilyOptions, DbOptions, Options};
use crate::properties::reset::CountedSince;
use crate::settings::{Settings, TablePlace};
use crate::snapshot::SnapshotList;
use crate::state_lock::StateLock;
use crate::stats_history::{self, StatsHistory};
use crate::table_cache::{TableCache, check_files, open_all};
use crate::table_paths::make_dirs;
use crate::thread_list::ThreadList;
use crate::trace::{BlockCacheTracing, IoTracing, Tracing};
use crate::wal_filter::Filtering;
use crate::write::commit::{CommitPipeline, LogLevel};
use crate::write::controller::WriteController;
use crate::write::stalls::DatabaseStalls;
use crate::write::switch::{create_wal, memtable_of};
use crate::write::wal_lock::WalLocks;
use crate::write_buffer_manager::{MemTableMemory, WriteBufferManager};
use crate::{ColumnFamilyDescriptor, Db};
use ironstone_base::statistics::IoActivity;
use ironstone_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ironstone_base::sync::{Arc, Condvar, Mutex, Swap, thread};
use ironstone_base::{ColumnFamilyId, Error, FileKind, FileNumber, Result, file_name};
use ironstone_sst::CompressionKind;
use ironstone_version::{
    ColumnFamilyConfig, ManifestOptions, ManifestWriter, RecoverOptions, VersionEdit, VersionSet,
    db_id_from_bits, list_column_families, read_identity, write_identity,
};
use ironstone_vfs::traced::{IoWatch, TracedFileSystem};
use ironstone_vfs::{Env, FileSystem};
use ironstone_wal::WalRecoveryMode;
use listings::Listings;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

pub(crate) const DEFAULT_COLUMN_FAMILY: &str = "default";

impl Db {
    /// Opens the database in `path` with its one column family `default`.
    ///
    /// # Errors
    /// `InvalidArgument` if it does not exist and `create_if_missing` is off, if it exists and
    /// `error_if_exists` is on, if it has further column families, or if the comparator is another one.
    /// `IoError` if somebody else has it open. `Corruption` naming file and offset if it is damaged.
    pub fn open(options: &Options, path: impl AsRef<Path>) -> Result<Self> {
        let default = ColumnFamilyDescriptor::new(DEFAULT_COLUMN_FAMILY, options.cf.clone());
        Self::open_column_families(&options.db, path, vec![default])
    }

    /// Opens the database in `path` with all of its column families. Those that do not exist are
    /// created if `create_missing_column_families` is on. `default` is always opened.
    pub fn open_column_families(
        options: &DbOptions,
        path: impl AsRef<Path>,
        descriptors: Vec<ColumnFamilyDescriptor>,
    ) -> Result<Self> {
        open(options, path.as_ref(), descriptors, Mode::ReadWrite)
    }

    /// Opens the database in `path` for reading only: no file is written, created or removed, and no
    /// lock is taken. It sees what was there when it was opened, the WALs included. Column families
    /// that are not listed stay closed.
    ///
    /// ```
    /// use ironstone::{Code, ColumnFamilyDescriptor, Db, Options};
    ///
    /// let options = Options::in_memory();
    /// let writer = Db::open(&options, "/db")?;
    /// writer.put(b"iron", b"Fe")?; // In the WAL, which is read as well.
    /// let default = ColumnFamilyDescriptor::new("default", options.cf.clone());
    /// let reader = Db::open_read_only(&options.db, "/db", vec![default])?;
    /// writer.put(b"gold", b"Au")?; // Too late.
    /// assert_eq!(reader.iter()?.entries().count(), 1);
    /// assert_eq!(reader.put(b"tin", b"Sn").unwrap_err().code(), Code::NotSupported);
    /// # Ok::<_, ironstone::Error>(())
    /// ```
    pub fn open_read_only(
        options: &DbOptions,
        path: impl AsRef<Path>,
        descriptors: Vec<ColumnFamilyDescriptor>,
    ) -> Result<Self> {
        Self::open_read_only_with(options, path, descriptors, &ReadOnlyOptions::default())
    }

    /// The same with other than the usual ways to do it.
    ///
    /// # Errors
    /// `Corruption` if there is a WAL that must not be there.
    pub fn open_read_only_with(
        options: &DbOptions,
        path: impl AsRef<Path>,
        descriptors: Vec<ColumnFamilyDescriptor>,
        how: &ReadOnlyOptions,
    ) -> Result<Self> {
        open(options, path.as_ref(), descriptors, Mode::ReadOnly(how))
    }

    /// The names of the column families of the database in `path`.
    pub fn list_column_families(options: &DbOptions, path: impl AsRef<Path>) -> Result<Vec<String>> {
        list_column_families(&*options.env.fs, path.as_ref())
    }
}

/// How a database is opened for reading only.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ReadOnlyOptions {
    /// Refuse a database with a WAL, even an empty one: everything is to be in tables, so that opening replays nothing.
    pub error_if_wal_file_exists: bool,
}

static INSTANCES: AtomicU64 = AtomicU64::new(1);

/// What a database is opened for.
#[derive(Clone, Copy)]
pub(crate) enum Mode<'a> {
    ReadWrite,
    ReadOnly(&'a ReadOnlyOptions),
    /// To read what another process writes, with a LOG of its own in that directory.
    Secondary(&'a Path),
    /// To read the tables that another process writes there, by links.
    Follower(&'a follower::Leader),
}

pub(crate) fn open(
    options: &DbOptions,
    path: &Path,
    mut descriptors: Vec<ColumnFamilyDescriptor>,
    mode: Mode<'_>,
) -> Result<Db> {
    let read_only = !matches!(mode, Mode::ReadWrite);
    let mut options = options.clone();
    let mut notes = options.sanitize();
    if options.db_write_buffer_size > 0 && options.write_buffer_manager.is_none() {
        options.write_buffer_manager =
            Some(WriteBufferManager::new(options.db_write_buffer_size, None, false));
    }
    let io_tracing = IoTracing::new(&options.env.clock);
    let block_cache_tracing = BlockCacheTracing::new(&options.env.clock);
    let traced =
        TracedFileSystem::new(Arc::clone(&options.env.fs), Arc::clone(&io_tracing) as Arc<dyn IoWatch>);
    let env = Env { fs: Arc::new(traced), clock: Arc::clone(&options.env.clock) };
    if !descriptors.iter().any(|descriptor| descriptor.name == DEFAULT_COLUMN_FAMILY) {
        descriptors
            .insert(0, ColumnFamilyDescriptor::new(DEFAULT_COLUMN_FAMILY, ColumnFamilyOptions::default()));
    }
    // Opened where it is there, with options of its own, whoever lists it or not.
    let lists_stats = descriptors.iter().any(|descriptor| descriptor.name == stats_history::COLUMN_FAMILY);
    descriptors.retain(|descriptor| descriptor.name != stats_history::COLUMN_FAMILY);
    descriptors.push(stats_history::descriptor());
    for descriptor in &mut descriptors {
        notes.extend(descriptor.options.sanitize());
        notes.extend(descriptor.options.sanitize_for(&options));
        crate::options::validate(&options, &descriptor.options)?;
        if descriptor.name == DEFAULT_COLUMN_FAMILY && descriptor.options.disallow_memtable_writes {
            let what = "Default column family cannot use disallow_memtable_writes=true";
            return Err(Error::invalid_argument(what));
        }
    }
    let started = env.clock.monotonic_nanos();
    let or_here = |dir: &PathBuf| if dir.as_os_str().is_empty() { path.to_owned() } else { dir.clone() };
    let wal_dir = or_here(&options.wal_dir);
    let log_dir = or_here(&options.db_log_dir);

    // Where MANIFEST and WALs are read.
    let source = if let Mode::Follower(leader) = mode { &leader.dir } else { path };
    let lock = if let Mode::Follower(leader) = mode {
        let lock = env.fs.lock(&file_name::lock(path)).map_err(|error| not_there(error, path))?;
        follower::take_directory(&*env.fs, path, leader)?;
        Some(lock)
    } else if read_only {
        None
    } else {
        if options.create_if_missing {
            let creates = !env.fs.exists(&file_name::current(path))?;
            for dir in [path, &wal_dir, &log_dir] {
                make_durable_dir(&*env.fs, dir, creates)?;
            }
        }
        Some(env.fs.lock(&file_name::lock(path)).map_err(|error| not_there(error, path))?)
    };
    crate::repair::check_not_interrupted(&*env.fs, source)?;
    // What a secondary reads is another process's to recover.
    let best_efforts = options.best_efforts_recovery && !matches!(mode, Mode::Secondary(_));
    let exists = if best_efforts {
        VersionSet::has_manifest(&*env.fs, path).map_err(|error| not_there(error, path))?
    } else {
        env.fs.exists(&file_name::current(source))?
    };
    if exists && options.error_if_exists && !read_only {
        return Err(Error::invalid_argument(format!("{}: exists (error_if_exists is true)", path.display())));
    }
    if !exists {
        refuse_to_create(&env, source, &wal_dir, &options, read_only)?;
    }
    let mut listings = Listings::new(&env.fs);
    let log = if let Mode::ReadOnly(_) = mode {
        InfoLog::none(&env)
    } else {
        let log_dir = if let Mode::Secondary(dir) = mode { dir } else { &log_dir };
        let rolling = Rolling {
            max_bytes: options.max_log_file_size,
            max_seconds: options.log_file_time_to_roll,
            keep: options.keep_log_file_num,
        };
        InfoLog::open(&env, log_dir, options.info_log_level, rolling)
    };
    info!(log, "Ironstone {} opens {}", env!("CARGO_PKG_VERSION"), path.display());

    for note in &notes {
        info!(log, "option adjusted: {note}");
    }
    let listeners = Listeners::new(&options.listeners, &log);
    let env = listener::watched(env, &options.listeners, &log); // LOG is beside it, where their mistakes are told.

    let _opening = options.statistics.is_some().then(|| IoActivity::DbOpen.begin());
    let manifest_options = ManifestOptions {
        limits: options.manifest_limits(),
        full_sync: options.use_fsync,
        checksum_handoff: options.checksum_handoff_file_types.descriptor,
        write_db_id: options.write_dbid_to_manifest,
        statistics: options.statistics.clone(),
    };
    let config = |descriptor: &ColumnFamilyDescriptor| ColumnFamilyConfig {
        name: descriptor.name.clone(),
        comparator: descriptor.options.comparator.clone(),
        num_levels: descriptor.options.num_levels as usize,
    };
    let tables = TableCache::new(usize::try_from(options.max_open_files).ok());
    let place = TablePlace::new(&env.fs, path, tables).watched(Arc::clone(&block_cache_tracing) as _);
    if !read_only {
        make_dirs(&*env.fs, &options.db_paths)?;
        descriptors.iter().try_for_each(|descriptor| make_dirs(&*env.fs, &descriptor.options.cf_paths))?;
    }
    let mut aside = None;
    let recover = || {
        if !exists {
            let default = descriptors.iter().find(|d| d.name == DEFAULT_COLUMN_FAMILY).map(config);
            let default = default.expect("added above");
            let id = db_id_from_bits(random_bits(&env));
            return VersionSet::create_new(&env, path, default, Some(id), manifest_options);
        }
        let recover = RecoverOptions {
            column_families: descriptors.iter().map(config).collect(),
            allow_unlisted: read_only,
        };
        if !best_efforts {
            return VersionSet::recover(&env, source, recover, manifest_options);
        }
        let (versions, manifest, lost) =
            best_efforts::recover(&options, &place, &descriptors, &recover, manifest_options, &log)?;
        aside = Some(lost);
        Ok((versions, manifest))
    };
    // Only who has LOCK knows that what was listed before the MANIFEST was read is still all there is.
    let recovered = thread::scope(|scope| {
        // What cannot be listed is listed again for those who need it, who say so. Of many tables this takes as long as the MANIFEST.
        match (read_only, exists) {
            (true, _) => {}
            (false, true) => _ = scope.spawn(|| listings.of(path)),
            (false, false) => _ = listings.of(path),
        }
        recover()
    });
    let listing = if read_only { None } else { listings.of(&log_dir).ok() };
    log.remove_old(listing.as_deref()).ok(); // However many times it fails to open.
    let (mut versions, manifest) = recovered?;
    let db_id = identity(&env, source, &mut versions, read_only, options.write_identity_file)?;

    // The pipeline starts on a WAL that is only created once the old ones have been replayed.
    let instance = INSTANCES.fetch_add(1, Ordering::Relaxed);
    let works = !read_only || matches!(mode, Mode::Follower(_));
    let seat = works.then(|| options.thread_pool.seat());
    let cleaner = Arc::new(Cleaner::new(seat.clone()));
    let memory = MemTableMemory::new(options.write_buffer_manager.as_ref());
    let session_id = session_id(&env);
    info!(log, "database {db_id}, session {session_id}");
    let builder =
        FamilyBuilder { options: &options, instance, place: &place, cleaner: &cleaner, memory: &memory };
    let mut families = BTreeMap::new();
    for family in versions.column_families() {
        let Some(descriptor) = descriptors.iter().find(|descriptor| descriptor.name == family.name) else {
            continue;
        };
        families.insert(family.id, builder.build(family.id, &descriptor.options, &family.name, &versions)?);
    }
    if let Mode::Follower(leader) = mode {
        follower::link_tables(&*env.fs, leader, path, &versions, families.keys())?;
    }
    let mut open_later = Vec::new();
    if options.paranoid_checks {
        let views: Vec<_> = families.values().map(|family| family.data.view()).collect();
        let levels = views.iter().flat_map(|view| &view.levels);
        let slots: Vec<_> = levels.flat_map(|level| level.tables.iter().cloned()).collect();
        if options.open_files_async {
            check_files(&slots, options.max_file_opening_threads)?;
            open_later = slots;
        } else {
            open_all(&slots, options.max_file_opening_threads)?;
        }
    }

    if !read_only {
        pass_stray_tables(&mut listings, &place, &versions)?;
    }
    let mut recovery = recover_wals::Recovery {
        env: &env,
        dir: path,
        wal_dir: &wal_dir,
        listings: &mut listings,
        options: &options,
        log: &log,
        db_id: &db_id,
        session_id: &session_id,
        versions: &mut versions,
        families: &mut families,
        read_only,
        is_stored: None,
        first_replayed: None,
        flushed: BTreeMap::new(),
        edits: BTreeMap::new(),
        filtering: Filtering::default(),
        listeners: &listeners,
    };
    if let Mode::ReadOnly(ReadOnlyOptions { error_if_wal_file_exists: true }) = mode {
        recovery.check_no_wal()?;
    }
    let replayed = match &mut aside {
        None if matches!(mode, Mode::Follower(_)) => {
            recover_wals::Replayed::nothing(secondary::last_sequence_of(recovery.versions))
        }
        Some(aside) => best_efforts::pass_over_wals(&options, &wal_dir, recovery.versions, aside, &log)?,
        None => recovery.replay()?,
    };
    let edits = recovery.edits;
    let last_sequence = replayed.last_sequence;

    let wal_number = versions.new_file_number();
    let mut wals: BTreeMap<FileNumber, WalState> = BTreeMap::new();
    let (wal_file, recycled) = if read_only {
        (Box::new(NoFile(PathBuf::from("(read-only)"))) as Box<dyn ironstone_vfs::WritableFile>, false)
    } else {
        let wal = create_wal(&env, &wal_dir, wal_number, None, 0, &options)?;
        (wal.file, wal.recycled)
    };
    let mut manifest = manifest;
    if !read_only {
        // Whoever wrote them may not have synced them, and what is synced from now on stands on them.
        for number in replayed.kept_wals.keys() {
            let path = file_name::wal(&wal_dir, *number);
            let mut file = env.fs.append_to(&path, ironstone_vfs::WriteOptions::default())?;
            file.sync()?;
            file.close()?;
        }
        install_recovered(&mut versions, &mut manifest, &families, edits, wal_number, &replayed)?;
        for (&number, &bytes) in &replayed.kept_wals {
            wals.insert(number, WalState { bytes, synced: true, closed_at: Some(last_sequence) });
        }
        wals.insert(wal_number, WalState::default());
    }
    for family in families.values() {
        family.install_view(&versions);
    }
    memory.pool.release_when_idle(); // Of what was replayed: a database that is only read needs none.

    let directory = env.fs.open_directory(if read_only { path } else { &wal_dir })?;
    // These modes take a gap between two WALs for damage.
    let gaps_are_damage = matches!(
        options.wal_recovery_mode,
        WalRecoveryMode::AbsoluteConsistency | WalRecoveryMode::TolerateCorruptedTailRecords
    );
    let pipeline =
        CommitPipeline::new(last_sequence, wal_number, wal_file, recycled, directory, gaps_are_damage)
            .compressing(!read_only && options.wal_compression == CompressionKind::Zstd)
            .counted(options.statistics.as_ref());
    if let (false, Some(before)) = (read_only, &replayed.last_wal) {
        pipeline.begin_after(before)?;
        if pipeline.syncs_before_next() {
            pipeline.sync_log()?;
        }
    }
    for family in families.values() {
        pipeline.set_active(family.data.id, Arc::clone(&family.mem));
    }
    let statistics = options.statistics.clone();
    let engine = Arc::new(Engine {
        env: env.clone(),
        dir: path.to_owned(),
        wal_dir,
        instance,
        read_only,
        secondary: matches!(mode, Mode::Secondary(_) | Mode::Follower(_)),
        follower: if let Mode::Follower(leader) = mode { Some(follower::Follower::of(leader)) } else { None },
        statistics: statistics.clone(),
        controller: WriteController::new(options.delayed_write_rate, options.statistics.clone()),
        stalls: DatabaseStalls::default(),
        listeners,
        reads_are_watched: AtomicBool::new(options.enable_thread_tracking || options.statistics.is_some()),
        tracing: Tracing::new(&env.clock),
        io_tracing,
        block_cache_tracing,
        settling_watching: Mutex::new(()),
        threads: options.enable_thread_tracking.then(ThreadList::default),
        write_buffer_manager: options.write_buffer_manager.clone(),
        usual_log_level: if options.manual_wal_flush { LogLevel::Buffered } else { LogLevel::Written },
        options: Swap::new(options),
        log,
        pipeline,
        snapshots: SnapshotList::new(&cleaner),
        place,
        resuming: Mutex::new(()),
        changing_options: Mutex::new(()),
        switching: Mutex::new(()),
        switch_wanted: AtomicBool::new(false),
        flushes_run: AtomicBool::new(false),
        wal_check: AtomicU64::new(0),
        writes_stopped: AtomicBool::new(read_only),
        manifest: Mutex::new(manifest),
        state: StateLock::new(
            State {
                versions,
                families,
                wals,
                recyclable: VecDeque::new(),
                background_error: read_only
                    .then(|| Error::not_supported("writing to a database that is open for reading only")),
                running_flushes: 0,
                running_compactions: 0,
                running_automatic: 0,
                running_bottom: 0,
                bottom_first_until: 0,
                oldest_output: None,
                compaction_is_pressing: false,
                no_compaction_before: 0,
                paused: 0,
                wal_locks: WalLocks::default(),
                manual_disabled: 0,
                running_manual: 0,
                deletions_disabled: 0,
                closing: false,
            },
            statistics,
        ),
        seat,
        progress: Condvar::new(),
        cleaner,
        memory,
        purged_manifest: AtomicU64::new(0),
        options_files: Mutex::default(),
        cancelled: AtomicBool::new(false),
        aborts: Aborts::default(),
        manual_is_disabled: AtomicBool::new(false),
        counters: Counters::default(),
        stats_history: StatsHistory::default(),
        db_id,
        session_id,
        counted_since: CountedSince {
            nanos: AtomicU64::new(started),
            sequence: AtomicU64::new(last_sequence.0),
            log_bytes: AtomicU64::new(0),
        },
        lock: Mutex::new(lock),
    });
    if !read_only {
        // Before any job starts: what jobs are writing, no version names yet.
        background::purge::remove_strangers(&engine, &mut listings, replayed.lost_wal, aside.as_ref())?;
    }
    let db = Db::start(Arc::clone(&engine));
    if !open_later.is_empty() {
        db.open_tables(open_later);
    }
    let wanted = descriptors.iter().filter(|d| d.name != stats_history::COLUMN_FAMILY || lists_stats);
    let mut missing = wanted.filter(|descriptor| db.column_family(&descriptor.name).is_none());
    if !read_only {
        engine.track_tables();
        if let Some(manager) = &engine.write_buffer_manager {
            manager.join(&engine);
        }
        if engine.options().create_missing_column_families {
            db.create_all(missing)?;
        } else if let Some(missing) = missing.next() {
            return Err(unknown_column_family(&missing.name));
        }
        if engine.options().persist_stats_to_disk {
            db.prepare_stats_family()?;
        }
        engine.write_options_file()?;
        engine.update_stall(&mut engine.state.lock());
    } else if let Some(missing) = missing.next() {
        return Err(unknown_column_family(&missing.name));
    }
    let micros = (env.clock.monotonic_nanos() - started) / 1000;
    engine.counters.opened_micros.store(micros, Ordering::Relaxed);
    info!(engine.log, "opened in {micros} us: last sequence {last_sequence}, WAL {wal_number}");
    Ok(db)
}

/// Passes over the numbers of all tables that are there. One that a crash left behind may be a link to a file of somebody
/// else's, prepared for ingestion: a new table under its number would overwrite that.
fn pass_stray_tables(listings: &mut Listings, place: &TablePlace, versions: &VersionSet) -> Result<()> {
    for dir in place.dirs() {
        for listed in &*listings.of(&dir)? {
            if let Some(FileKind::Table(number)) = listed.kind
                && number.0 <= FileNumber::LARGEST.0 / 2
            {
                versions.mark_file_number_used(number);
            }
        }
    }
    Ok(())
}

fn unknown_column_family(name: &str) -> Error {
    Error::invalid_argument(format!(
        "Column family not found: {name} (create_missing_column_families is false)"
    ))
}

fn not_there(error: Error, path: &Path) -> Error {
    if error.is_path_not_found() {
        return Error::invalid_argument(format!(
            "{}: does not exist (create_if_missing is false)",
            path.display()
        ));
    }
    error
}

/// Makes `dir` with its missing parents. Their names are durable then: no sync of a file in them, and
/// none of theirs, would make them so. With `all`, that holds for directories that are there already,
/// which an earlier attempt may have made.
pub(crate) fn make_durable_dir(fs: &dyn FileSystem, dir: &Path, all: bool) -> Result<()> {
    let dir = fs.absolute(dir)?;
    let mut missing = 0;
    for ancestor in dir.ancestors() {
        if fs.exists(ancestor)? {
            break;
        }
        missing += 1;
    }
    fs.create_dir_all(&dir)?;
    let parents = dir.ancestors().skip(1).enumerate();
    for (depth, parent) in parents.take_while(|(depth, _)| all || *depth < missing) {
        match fs.open_directory(parent) {
            Ok(directory) => directory.sync()?,
            Err(error) if depth < missing => return Err(error),
            Err(_) => {} // Where we may not even look, nothing was made.
        }
    }
    Ok(())
}

/// There is no CURRENT. A database is created only where there is none: with any file of a database
/// left, its CURRENT was lost, and creating over it would destroy what can still be saved.
fn refuse_to_create(
    env: &Env,
    path: &Path,
    wal_dir: &Path,
    options: &DbOptions,
    read_only: bool,
) -> Result<()> {
    let mut names = match env.fs.list(path) {
        Ok(names) => names,
        Err(error) => return Err(not_there(error, path)),
    };
    if wal_dir != path && env.fs.exists(wal_dir)? {
        names.extend(env.fs.list(wal_dir)?);
    }
    let remains = names.iter().find(|name| {
        matches!(
            FileKind::parse(name),
            Some(FileKind::Manifest(_) | FileKind::Table(_) | FileKind::Wal(_) | FileKind::Blob(_))
        )
    });
    if let Some(name) = remains {
        // A creation that was interrupted leaves MANIFEST-000001 and nothing else; nothing was
        // acknowledged then.
        let only_first_manifest = names.iter().all(|name| {
            !matches!(FileKind::parse(name), Some(FileKind::Table(_) | FileKind::Wal(_) | FileKind::Blob(_)))
                && FileKind::parse(name).is_none_or(|kind| !matches!(kind, FileKind::Manifest(n) if n.0 > 1))
        });
        if !only_first_manifest {
            let missing = match options.best_efforts_recovery {
                true => "there is no MANIFEST to recover from",
                false => "CURRENT is missing (best_efforts_recovery does without it)",
            };
            return Err(Error::corruption(format!(
                "{}: {missing}, but {name} is there: the database is not created anew over it; Db::repair makes one of \
                 what tables hold",
                path.display()
            )));
        }
    }
    if read_only || !options.create_if_missing {
        return Err(Error::invalid_argument(format!(
            "{}: does not exist (create_if_missing is false)",
            path.display()
        )));
    }
    Ok(())
}

/// The database's id: from IDENTITY, from the MANIFEST, or a new one, written where it is missing.
fn identity(
    env: &Env,
    path: &Path,
    versions: &mut VersionSet,
    read_only: bool,
    write_file: bool,
) -> Result<String> {
    let from_file = match read_identity(&*env.fs, path) {
        Ok(id) => Some(id),
        Err(error) if error.is_path_not_found() => None,
        Err(error) if versions.db_id().is_none() => return Err(error),
        Err(_) => None, // The MANIFEST knows better.
    };
    let known = versions.db_id().map(str::to_owned);
    let id = known.or_else(|| from_file.clone()).unwrap_or_else(|| db_id_from_bits(random_bits(env)));
    if !read_only {
        if write_file && from_file.as_deref() != Some(&id) {
            let written = write_identity(&*env.fs, path, &id);
            written.map_err(|error| error.context(file_name::identity(path).display()))?;
        }
        if versions.db_id().is_none() {
            versions.set_db_id(id.clone());
        }
    }
    Ok(id)
}

/// 128 bits that two databases hardly share.
fn random_bits(env: &Env) -> u128 {
    let seed = [env.clock.now_micros(), env.clock.monotonic_nanos(), env.clock.entropy()];
    let bytes: Vec<u8> = seed.iter().flat_map(|word| word.to_le_bytes()).collect();
    let high = ironstone_base::hash::xxh3_64(&bytes);
    let low = ironstone_base::hash::xxh64(&bytes);
    (u128::from(high) << 64) | u128::from(low)
}

/// Names one opening of the database: 20 characters of base 36, as RocksDB's.
pub(crate) fn session_id(env: &Env) -> String {
    let mut bits = random_bits(env);
    let mut id = String::new();
    for _ in 0..20 {
        let digit = (bits % 36) as u8;
        id.push(char::from(if digit < 10 { b'0' + digit } else { b'A' + digit - 10 }));
        bits /= 36;
    }
    id
}

/// Makes what recovery flushed durable and visible, and says from which WAL on nothing is in tables.
fn install_recovered(
    versions: &mut VersionSet,
    manifest: &mut ManifestWriter,
    families: &BTreeMap<ColumnFamilyId, Family>,
    mut edits: BTreeMap<ColumnFamilyId, VersionEdit>,
    wal_number: FileNumber,
    replayed: &recover_wals::Replayed,
) -> Result<()> {
    for family in families.values() {
        let edit = edits.entry(family.data.id).or_insert_with(|| VersionEdit::new(family.data.id));
        let oldest = family.oldest_wal().filter(|wal| replayed.kept_wals.contains_key(wal));
        edit.log_number = Some(oldest.unwrap_or(wal_number));
        edit.last_sequence = Some(replayed.last_sequence);
        edit.prev_log_number = Some(FileNumber(0));
    }
    versions.raise_last_sequence(replayed.last_sequence);
    let mut edits: Vec<_> = edits.into_values().collect();
    if let Some(edit) = edits.first_mut() {
        edit.min_log_number_to_keep = Some(replayed.kept_wals.keys().next().copied().unwrap_or(wal_number));
    }
    // Nobody goes on with RocksDB's own list, which would soon be wrong.
    if versions.wals().iter().next().is_some() {
        edits.insert(0, VersionEdit { wal_deletion: Some(wal_number), ..VersionEdit::default() });
    }
    versions.log_and_apply(manifest, edits)?;
    Ok(())
}

/// Makes the in-memory side of a column family.
pub(crate) struct FamilyBuilder<'a> {
    pub(crate) options: &'a DbOptions,
    pub(crate) instance: u64,
    pub(crate) place: &'a TablePlace,
    pub(crate) cleaner: &'a Arc<Cleaner>,
    pub(crate) memory: &'a Arc<MemTableMemory>,
}

impl FamilyBuilder<'_> {
    pub(crate) fn build(
        &self,
        id: ColumnFamilyId,
        options: &ColumnFamilyOptions,
        name: &str,
        versions: &VersionSet,
    ) -> Result<Family> {
        let family = versions.column_family(id).expect("the caller found it there");
        let comparator = ironstone_base::InternalKeyComparator::new(options.comparator.clone());
        let mem = memtable_of(id, &comparator, options, self.memory, 0);
        let data = ColumnFamilyData::new(
            id,
            name,
            self.instance,
            Settings::new(options.clone(), self.options, self.place, None)?,
            Arc::clone(self.memory),
            Arc::clone(&mem),
            Arc::clone(&family.current),
            Arc::clone(self.cleaner),
        );
        Ok(Family::new(data, mem))
    }
}

/// Stands where the WAL would be in a database that never writes one.
struct NoFile(PathBuf);

impl ironstone_vfs::WritableFile for NoFile {
    fn append(&mut self, _data: &[u8]) -> Result<()> {
        Err(Error::not_supported("writing to a database that is open for reading only"))
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
    fn size(&self) -> u64 {
        0
    }
    fn truncate(&mut self, _size: u64) -> Result<()> {
        Ok(())
    }
    fn close(&mut self) -> Result<()> {
        Ok(())
    }
    fn path(&self) -> &Path {
        &self.0
    }
}

impl Db {
    /// All column families that are open.
    pub fn column_families(&self) -> Vec<ColumnFamily> {
        let state = self.engine().state.lock();
        state.families.values().map(|family| ColumnFamily(Arc::clone(&family.data))).collect()
    }
    /// The column family `name`, if it is open.
    pub fn column_family(&self, name: &str) -> Option<ColumnFamily> {
        let state = self.engine().state.lock();
        let found = state.families.values().find(|family| family.data.name == name);
        found.map(|family| ColumnFamily(Arc::clone(&family.data)))
    }
}
