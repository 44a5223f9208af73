//! One simulation, from an empty disk to the verdict about what came back.

use crate::clock::SimClock;
use crate::history::{Found, History, Shared};
use crate::plan::{Chore, Plan, Trouble};
use crate::state;
use ironstone::{
    BackupEngine, BackupEngineOptions, Code, ColumnFamily, ColumnFamilyDescriptor, ColumnFamilyOptions,
    CompactRangeOptions, CreateBackupOptions, CreateCheckpointOptions, Db, DbIterator, DbOptions, Error,
    FileIngestionHandle, FlushOptions, IngestFiles, IngestOptions, Options, ReadOptions, RestoreOptions,
    SstFileWriter, ThreadPool, WriteBatch, WriteOptions,
};
use ironstone_base::sync::{Arc, thread};
use ironstone_testkit::random_options::{random_db_changes, random_family_changes};
use ironstone_vfs::fault::FaultFileSystem;
use ironstone_vfs::mem::{CrashPolicy, MemFileSystem};
use ironstone_vfs::{Clock, Env};
use rand::Rng;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Where the database is.
pub const DIR: &str = "/db";
/// What the names of copies begin with.
pub const COPIES: &str = "/copy";
/// What the names of files begin with that are ingested in two phases.
pub const SOURCES: &str = "/phases";
/// Where a follower of the database is.
const FOLLOWER: &str = "/follower";
/// Where a secondary of the database has its LOG.
const SECONDARY: &str = "/secondary";
/// A column family that comes and goes.
const EXTRA: &str = "extra";
/// How many keys all writers share.
const SHARED_KEYS: u8 = 12;
/// How often a writer tries to go on after failures.
const TRIES: usize = 6;

/// What a simulation did.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Done {
    /// Batches written.
    pub batches: usize,
    /// Changing operations of the file system.
    pub operations: u64,
    /// Whether the power failed while the database worked.
    pub crashed: bool,
    /// Points at which another thread could have gone on.
    pub switches: u64,
    /// What tells the disk that the recovery found from others.
    pub fingerprint: u64,
}

/// What the threads of a simulation share.
struct Stage {
    plan: Plan,
    db: Db,
    opener: Arc<Opener>,
    cfs: Vec<ColumnFamily>,
    disk: MemFileSystem,
    faults: FaultFileSystem,
    clock: Arc<SimClock>,
    history: Shared,
    /// Whether manual flushing keeps accepted writes in the process.
    buffered: bool,
    /// Whether something has failed that the plan lets fail.
    failed: AtomicBool,
    /// Whether a write has.
    failing: AtomicBool,
}

/// The name of column family `number`.
pub fn family_name(number: usize) -> String {
    if number == 0 { "default".to_owned() } else { format!("family{number}") }
}

/// What a plan's databases are opened with.
pub struct Opener {
    options: DbOptions,
    families: Vec<ColumnFamilyOptions>,
    /// How many threads there are for the last level.
    bottom_threads: usize,
}

impl Opener {
    fn new(plan: &Plan, env: &Env) -> Self {
        let families = (0..plan.families).map(|number| plan.family_options(number)).collect();
        Self { options: plan.db_options(env), families, bottom_threads: plan.bottom_threads() }
    }
    /// Opens the database on `disk`.
    pub fn open(&self, disk: &MemFileSystem, clock: &Arc<SimClock>) -> ironstone::Result<Db> {
        let env = Env { fs: Arc::new(disk.clone()), clock: clock.clone() };
        self.open_in(env)
    }
    /// The same with what is left of it: no WAL is replayed.
    pub fn open_best_efforts(&self, disk: &MemFileSystem, clock: &Arc<SimClock>) -> ironstone::Result<Db> {
        let env = Env { fs: Arc::new(disk.clone()), clock: clock.clone() };
        self.open_with(DbOptions { env, best_efforts_recovery: true, ..self.options.clone() })
    }
    /// Opens the copy in `dir` for reading only.
    pub fn open_copy(&self, disk: &MemFileSystem, clock: &Arc<SimClock>, dir: &str) -> ironstone::Result<Db> {
        let env = Env { fs: Arc::new(disk.clone()), clock: clock.clone() };
        let options = DbOptions { env, thread_pool: ThreadPool::new(), ..self.options.clone() };
        Db::open_read_only(&options, dir, self.descriptors())
    }
    /// Opens a follower of the database.
    pub fn follow(&self, disk: &MemFileSystem, clock: &Arc<SimClock>) -> ironstone::Result<Db> {
        let env = Env { fs: Arc::new(disk.clone()), clock: clock.clone() };
        let pool = ThreadPool::new();
        let options = DbOptions { env, thread_pool: pool, create_if_missing: true, ..self.options.clone() };
        Db::open_as_follower(&options, FOLLOWER, DIR, self.descriptors())
    }
    /// Opens a secondary of the database.
    fn second(&self, disk: &MemFileSystem, clock: &Arc<SimClock>) -> ironstone::Result<Db> {
        let env = Env { fs: Arc::new(disk.clone()), clock: clock.clone() };
        let options = DbOptions { env, thread_pool: ThreadPool::new(), ..self.options.clone() };
        Db::open_secondary(&options, DIR, SECONDARY, self.descriptors())
    }
    fn descriptors(&self) -> Vec<ColumnFamilyDescriptor> {
        let named = self.families.iter().enumerate();
        named
            .map(|(number, options)| ColumnFamilyDescriptor::new(family_name(number), options.clone()))
            .collect()
    }
    fn open_in(&self, env: Env) -> ironstone::Result<Db> {
        self.open_with(DbOptions { env, ..self.options.clone() })
    }
    fn open_with(&self, options: DbOptions) -> ironstone::Result<Db> {
        // The pool of the process would outlive the simulation.
        let options = DbOptions { thread_pool: ThreadPool::new(), ..options };
        options.thread_pool.set_bottom_threads(Some(self.bottom_threads));
        let mut descriptors = self.descriptors();
        // It may have been created and not yet dropped.
        if Db::list_column_families(&options, DIR).is_ok_and(|names| names.iter().any(|name| name == EXTRA)) {
            descriptors.push(ColumnFamilyDescriptor::new(EXTRA, ColumnFamilyOptions::default()));
        }
        Db::open_column_families(&options, DIR, descriptors)
    }
}

/// The handles of all column families of `db`.
pub fn handles(db: &Db, families: usize) -> Vec<ColumnFamily> {
    (0..families).map(|number| db.column_family(&family_name(number)).expect("it was opened")).collect()
}

/// That a flush is not to be had while writes are stopped is no failure.
fn unless_stopped(flushed: ironstone::Result<()>) -> ironstone::Result<()> {
    flushed.or_else(|error| if error.code() == Code::TryAgain { Ok(()) } else { Err(error) })
}

/// Runs `plan`. Must be called inside of a simulation.
pub fn run(plan: &Plan) -> Result<Done, String> {
    let clock = Arc::new(SimClock::new());
    let disk = MemFileSystem::with_clock(clock.clone());
    let faults = FaultFileSystem::with_clock(Arc::new(disk.clone()), clock.clone());
    faults.disarm();
    let env = Env { fs: Arc::new(faults.clone()), clock: clock.clone() };
    let opener = Arc::new(Opener::new(plan, &env));
    let buffered = opener.options.manual_wal_flush;
    let db = opener.open_in(env).map_err(|error| format!("create: {error}"))?;
    let cfs = handles(&db, plan.families);
    let stage = Arc::new(Stage {
        plan: plan.clone(),
        db,
        opener: Arc::clone(&opener),
        cfs,
        disk,
        faults,
        clock: clock.clone(),
        history: Shared::of(History::of_families_that_drop(plan.drops)),
        buffered,
        failed: AtomicBool::new(false),
        failing: AtomicBool::new(false),
    });
    stage.make_trouble();
    let mut threads = Vec::new();
    for (writer, &batches) in plan.writers.iter().enumerate() {
        let stage = Arc::clone(&stage);
        threads.push(thread::spawn_named("writer", move || stage.write(writer, batches)));
    }
    for (reader, &rounds) in plan.readers.iter().enumerate() {
        let stage = Arc::clone(&stage);
        threads.push(thread::spawn_named("reader", move || stage.read(reader, rounds)));
    }
    {
        let stage = Arc::clone(&stage);
        threads.push(thread::spawn_named("chores", move || stage.do_chores()));
    }
    let mut problems = Vec::new();
    for thread in threads {
        match thread.join() {
            Ok(Ok(())) => {}
            Ok(Err(problem)) => problems.push(problem),
            Err(_) => problems.push("a thread of the workload panicked".to_owned()),
        }
    }
    if !problems.is_empty() {
        return Err(problems.join("; "));
    }
    let stage = Arc::into_inner(stage).expect("its threads are joined");
    stage.finish(&opener)
}

impl Stage {
    fn make_trouble(&self) {
        match &self.plan.trouble {
            Trouble::None => {}
            Trouble::PowerLoss(after) => self.disk.set_crash_point(self.disk.op_count() + after),
            Trouble::Fault(rule) => {
                self.faults.reset_counts();
                self.faults.add(rule.clone());
                self.faults.arm();
            }
            Trouble::Sync(fault) => self.disk.fail_sync(fault.clone()),
            Trouble::FullDisk(room) => {
                let used: u64 = self.disk.all_files().iter().filter_map(|path| self.size(path)).sum();
                self.disk.set_capacity(Some(used + room));
            }
        }
    }
    fn size(&self, path: &Path) -> Option<u64> {
        ironstone_vfs::FileSystem::size(&self.disk, path).ok()
    }
    /// What the plan has done to the disk is over; a lost power stays lost.
    fn end_trouble(&self) {
        self.faults.clear();
        self.disk.set_capacity(None);
    }

    /// Takes an error in: one that nothing explains is a failure.
    fn allow<T>(&self, what: &str, result: ironstone::Result<T>) -> Result<Option<T>, String> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if self.plan.may_fail() => {
                let text = error.to_string();
                if error.is_corruption() || text.contains("panic") {
                    return Err(format!("{what}: {error}"));
                }
                self.failed.store(true, Ordering::SeqCst);
                Ok(None)
            }
            Err(error) => Err(format!("{what}: {error}")),
        }
    }

    fn write(&self, writer: usize, batches: usize) -> Result<(), String> {
        let mut rng = self.plan.generator(100 + writer as u64);
        let mut tries = 0;
        // Of the keys that are its own it has one at a time, in each column family: whether that is there.
        let (mut own_key, mut is_there) = (0, vec![false; self.cfs.len()]);
        for number in 1..=batches {
            let mut batch = WriteBatch::new();
            let (mut changes, mut own) = (BTreeMap::new(), BTreeMap::new());
            for (family, cf) in self.cfs.iter().enumerate() {
                batch.put_cf(cf, state::number_key(writer), number.to_string());
                if own_key < state::OWN_KEYS && rng.random_bool(0.4) {
                    let key = state::own_key(writer, own_key);
                    let is_there = &mut is_there[family];
                    *is_there = !*is_there;
                    match *is_there {
                        true => {
                            let padding = rng.random_range(0..=self.plan.value_size);
                            batch.put_cf(cf, key, state::value((writer, number), padding));
                        }
                        false => batch.single_delete_cf(cf, key),
                    }
                    own.insert((family, own_key), *is_there);
                }
                for _ in 0..rng.random_range(0..4) {
                    let key = rng.random_range(0..SHARED_KEYS);
                    let (mut last, mut put) = (key, false);
                    let padding = rng.random_range(0..=self.plan.value_size);
                    let value = || state::value((writer, number), padding);
                    match rng.random_range(0..100) {
                        0..20 => batch.delete_cf(cf, state::shared_key(key)),
                        20..30 => {
                            last = rng.random_range(key..SHARED_KEYS);
                            batch.delete_range_cf(cf, state::shared_key(key), state::shared_key(last + 1));
                        }
                        30..50 => {
                            put = true; // The operator takes the newest operand for the value.
                            batch.merge_cf(cf, state::shared_key(key), value());
                        }
                        _ => {
                            put = true;
                            batch.put_cf(cf, state::shared_key(key), value());
                        }
                    }
                    changes.extend((key..=last).map(|key| ((family, key), put)));
                }
            }
            let one_in = self.plan.sync_one_in;
            let sync = one_in > 0 && rng.random_ratio(1, one_in);
            let options = WriteOptions { sync, disable_wal: self.plan.unlogged, ..WriteOptions::default() };
            let id = (writer, number);
            self.history.with(|history| history.issue(id, changes, own));
            let result = self.db.write(&batch, &options);
            self.history.with(|history| history.finish(id, result.is_ok(), sync));
            if self.allow("write", result)?.is_none() {
                tries += 1;
                // Nobody knows whether that put its key, so it may not be put again.
                own_key += 1;
                is_there.fill(false);
                self.maybe_lose_power();
                if tries > TRIES || self.disk.crashed() {
                    return Ok(());
                }
                if tries > 1 {
                    self.end_trouble();
                }
                self.clock.sleep(Duration::from_millis(10));
                let _ = self.allow("resume", self.db.resume())?;
            }
        }
        Ok(())
    }

    /// A write has failed: the power may go while the others go on and somebody resumes.
    fn maybe_lose_power(&self) {
        if let Some(after) = self.plan.power_too
            && !self.disk.crashed()
            && !self.failing.swap(true, Ordering::SeqCst)
        {
            self.disk.set_crash_point(self.disk.op_count() + after);
        }
    }

    fn do_chores(&self) -> Result<(), String> {
        for chore in &self.plan.chores {
            let before = self.history.with(History::tick);
            let (result, durable) = self.do_chore(*chore);
            let done = self.allow(&format!("{chore:?}"), result)?.is_some();
            if done && durable {
                self.history.with(|history| history.note_durable(before));
            }
            self.clock.sleep(Duration::from_micros(500));
        }
        Ok(())
    }

    /// Does one chore. Answers whether it makes durable what was written before, too.
    fn do_chore(&self, chore: Chore) -> (ironstone::Result<()>, bool) {
        let all: Vec<&ColumnFamily> = self.cfs.iter().collect();
        let of = |family: usize| &self.cfs[family.min(self.cfs.len() - 1)];
        let no_wait = FlushOptions { wait: false, allow_write_stall: true, ..FlushOptions::default() };
        let logged = !self.plan.unlogged;
        match chore {
            Chore::FlushAll => (self.db.flush_cfs(&FlushOptions::default(), &all), true),
            Chore::Flush(family) => (self.db.flush_cf(&FlushOptions::default(), of(family)), false),
            Chore::StartFlush(family) => (unless_stopped(self.db.flush_cf(&no_wait, of(family))), false),
            Chore::StartFlushAll => (unless_stopped(self.db.flush_cfs(&no_wait, &all)), false),
            Chore::Compact(family) => {
                (self.db.compact_range(&CompactRangeOptions::default(), of(family), None, None), false)
            }
            Chore::Suggest(family) => (self.db.suggest_compact_range(of(family), None, None), false),
            Chore::Promote(family, level) => {
                let promoted = self.db.promote_level0(of(family), level);
                // Something in the way is no failure.
                let refused = |error: &Error| error.code() == Code::InvalidArgument;
                (promoted.or_else(|error| if refused(&error) { Ok(()) } else { Err(error) }), false)
            }
            Chore::FlushWal(sync) => (self.db.flush_wal(sync), sync && logged),
            Chore::SyncWal => (self.db.sync_wal(), !self.buffered && logged),
            Chore::Pause => {
                let paused = self.db.pause_background_work();
                self.clock.sleep(Duration::from_millis(1));
                (paused.and_then(|()| self.db.continue_background_work()), false)
            }
            Chore::Abort(Some(family)) => {
                let aborted = self.db.abort_compactions(of(family));
                self.clock.sleep(Duration::from_millis(1));
                (aborted.and_then(|()| self.db.resume_compactions(of(family))), false)
            }
            Chore::Abort(None) => {
                self.db.abort_all_compactions();
                self.clock.sleep(Duration::from_millis(1));
                self.db.resume_all_compactions();
                (Ok(()), false)
            }
            Chore::CreateAndDrop => {
                let created = self.db.create_column_family(EXTRA, &ColumnFamilyOptions::default());
                (created.and_then(|cf| self.db.drop_column_family(&cf)), false)
            }
            Chore::JumpTo(micros) => {
                self.clock.jump_to(micros);
                (Ok(()), false)
            }
            Chore::SetOptions(family) => {
                let mut rng = self.plan.generator(400 + self.disk.op_count());
                let changed = match rng.random_bool(0.3) {
                    true => {
                        self.db.options().thread_pool.set_bottom_threads(Some(rng.random_range(0..3)));
                        self.db.set_db_options(&random_db_changes(&mut rng))
                    }
                    false => self.db.set_options_cf(of(family), &random_family_changes(&mut rng)),
                };
                self.clock.sleep(Duration::from_millis(5));
                // What makes no sense together is refused.
                let refused =
                    |error: &Error| matches!(error.code(), Code::InvalidArgument | Code::NotSupported);
                (changed.or_else(|error| if refused(&error) { Ok(()) } else { Err(error) }), false)
            }
            Chore::IngestBehind(family) => (self.ingest_behind(of(family)), false),
            Chore::RemoveTables(family, by_range) => (self.remove_tables(of(family), by_range), false),
            Chore::IngestInPhases => (self.ingest_in_phases(), false),
            Chore::Copy(flushes) => (self.copy(flushes), false),
            Chore::BackUp(flushes) => (self.back_up(flushes), false),
            Chore::ReadLog => (self.read_log(), false),
            Chore::Second => (self.second(), false),
            Chore::Follow => (self.follow(), false),
            Chore::LockWal => (self.lock_wal(), false),
        }
    }

    /// Brings one new key to each column family, beside those that came this way before or in their place: to all of them or to
    /// none.
    fn ingest_in_phases(&self) -> ironstone::Result<()> {
        let number = self.disk.op_count();
        let mut rng = self.plan.generator(500 + number);
        let (link_files, gives_up) = (rng.random(), rng.random_bool(0.2));
        let (by_infos, replaces) = (rng.random(), rng.random_bool(0.4));
        let (key, value) = (state::ingested_key(number), state::ingested_value(number));
        let mut prepared = Vec::new();
        for (family, cf) in self.cfs.iter().enumerate() {
            let options = Options { db: (*self.db.options()).clone(), cf: self.db.column_family_options(cf) };
            let path = format!("{SOURCES}{number}.{family}");
            let mut writer = SstFileWriter::new(&options);
            writer.open(&path)?;
            writer.put(&key, &value)?;
            let (_, info) = writer.finish_prepared()?;
            let ingest =
                IngestOptions { link_files, snapshot_consistency: !replaces, ..IngestOptions::default() };
            let files = IngestFiles {
                file_infos: if by_infos { vec![info] } else { Vec::new() },
                atomic_replace_range: replaces.then_some(state::INGESTED_KEYS),
                ..IngestFiles::new(cf, vec![path.into()], ingest)
            };
            prepared.push(self.db.prepare_file_ingestion(&[files])?);
        }
        self.clock.sleep(Duration::from_micros(rng.random_range(0..500)));
        let is_in = match gives_up {
            true => {
                drop(prepared);
                false
            }
            false => self.commit_ingestion(number, replaces, prepared)?,
        };
        for cf in &self.cfs {
            let found = self.db.get_cf(&ReadOptions::default(), cf, &key)?;
            if found.as_deref() != Some(&*value).filter(|_| is_in) {
                return Err(Error::corruption(
                    "of files that were prepared, what is seen is not what was done",
                ));
            }
        }
        let found = state::ingestions(&self.db, &self.cfs)?;
        let checked = found.and_then(|found| self.history.with(|history| history.check_ingestions(&found)));
        checked.map_err(Error::corruption)
    }

    /// Answers whether the files are in now: in the place of others they may be refused.
    fn commit_ingestion(
        &self,
        number: u64,
        replaces: bool,
        prepared: Vec<FileIngestionHandle>,
    ) -> ironstone::Result<bool> {
        self.history.with(|history| history.ingest(number, replaces));
        match self.db.commit_file_ingestion_handles(prepared) {
            Ok(()) => {
                self.history.with(|history| history.ingested(number));
                Ok(true)
            }
            // A compaction has some of the others, or by now a table reaches out of their range.
            Err(error) if replaces && matches!(error.code(), Code::InvalidArgument | Code::TryAgain) => {
                self.history.with(|history| history.refuse_ingestion(number));
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a copy, which must hold one moment after all that was accepted before.
    fn copy(&self, flushes: bool) -> ironstone::Result<()> {
        let dir = format!("{COPIES}{}", self.disk.op_count());
        let accepted = self.accepted();
        let options = CreateCheckpointOptions {
            log_size_for_flush: if flushes { 0 } else { u64::MAX },
            atomic_flush: self.plan.unlogged || flushes,
        };
        match self.db.create_checkpoint(&dir, &options) {
            Err(error) if error.code() == Code::NotSupported => return Ok(()), // With cf_paths.
            made => drop(made?),
        }
        let copy = self.opener.open_copy(&self.disk, &self.clock, &dir)?;
        let found = state::by_iterators(&copy, &handles(&copy, self.plan.families), &ReadOptions::default())?;
        copy.close()?;
        let problem = found.and_then(|found| {
            self.history.with(|history| {
                history.check_copy(&found, &accepted)?;
                history.copies.push((dir.clone(), found));
                Ok(())
            })
        });
        problem.map_err(|problem| Error::corruption(format!("{dir}: {problem}")))
    }

    /// The last batch of each writer that was accepted.
    fn accepted(&self) -> Vec<usize> {
        let writers = 0..self.plan.writers.len();
        writers.map(|writer| self.history.with(|history| history.range_of(writer).0)).collect()
    }

    /// Makes a backup, which must hold one moment after all that was accepted before.
    fn back_up(&self, flushes: bool) -> ironstone::Result<()> {
        let dir = format!("/restored{}", self.disk.op_count());
        let env = Env { fs: Arc::new(self.disk.clone()), clock: self.clock.clone() };
        let mut options = BackupEngineOptions::new("/backups");
        options.env = env.clone();
        let create = CreateBackupOptions {
            flush_before_backup: flushes,
            atomic_flush: self.plan.unlogged || flushes,
            ..CreateBackupOptions::default()
        };
        let accepted = self.accepted();
        let mut engine = BackupEngine::open(options)?;
        let id = match engine.create_backup_with(&self.db, &create) {
            Err(error) if error.code() == Code::NotSupported => return Ok(()), // With cf_paths.
            made => made?,
        };
        let db_options = DbOptions { env, ..(*self.db.options()).clone() };
        engine.restore(id, &db_options, &dir, &dir, &RestoreOptions::default())?;
        let copy = self.opener.open_copy(&self.disk, &self.clock, &dir)?;
        let found = state::by_iterators(&copy, &handles(&copy, self.plan.families), &ReadOptions::default())?;
        copy.close()?;
        let checked =
            found.and_then(|found| self.history.with(|history| history.check_copy(&found, &accepted)));
        checked.map_err(|problem| Error::corruption(format!("a backup: {problem}")))
    }

    /// Reads the log from now on, for a while: each batch begins where the one before ended, and all that readers see comes.
    fn read_log(&self) -> ironstone::Result<()> {
        if self.plan.unlogged {
            return Ok(());
        }
        // A WAL may go at any time, and what failed or was ingested is in none.
        let is_gap = |error: &Error| matches!(error.code(), Code::NotFound | Code::Incomplete);
        let mut next = self.db.latest_sequence().plus(1);
        let mut updates = match self.db.get_updates_since(next) {
            Err(error) if is_gap(&error) => return Ok(()),
            updates => updates?,
        };
        for _ in 0..4 {
            self.clock.sleep(Duration::from_micros(300));
            let seen = self.db.latest_sequence();
            loop {
                let update = match updates.next_update() {
                    Err(error) if is_gap(&error) => return Ok(()),
                    update => update?,
                };
                let Some(update) = update else { break };
                if update.sequence != next {
                    let came = update.sequence;
                    return Err(Error::corruption(format!("the log shows {came}, expected was {next}")));
                }
                next = update.next_sequence();
            }
            // Writes that failed have numbers, too, and show as a gap once there are later ones.
            if next <= seen && !self.buffered && !self.plan.may_fail() {
                return Err(Error::corruption(format!("the log ends before {next}, readers see {seen}")));
            }
        }
        Ok(())
    }

    /// Looks at a secondary, which sees what was accepted before, and never less than before.
    fn second(&self) -> ironstone::Result<()> {
        let accepted = self.accepted();
        // A write that fails may be in the log for a while.
        let may_go_back = self.plan.may_fail();
        match self.look_at_other(may_go_back, || self.opener.second(&self.disk, &self.clock)) {
            // What the primary has written in vain may be what the secondary reads.
            Err(_) if self.plan.may_fail() => Ok(()),
            looked => {
                let found =
                    looked?.map_err(|problem| Error::corruption(format!("a secondary: {problem}")))?;
                let seen = |writer: &usize| found.numbers[0].get(writer).copied().unwrap_or(0);
                let is_logged = !self.plan.unlogged && !self.buffered && !self.plan.may_fail();
                match (0..accepted.len()).find(|writer| is_logged && seen(writer) < accepted[*writer]) {
                    None => Ok(()),
                    Some(writer) => Err(Error::corruption(format!(
                        "a secondary sees batch {} of writer {writer}, {} was accepted before",
                        seen(&writer),
                        accepted[writer]
                    ))),
                }
            }
        }
    }

    /// Looks at a follower, which sees what is in tables, and never less than before.
    fn follow(&self) -> ironstone::Result<()> {
        match self.look_at_other(false, || self.opener.follow(&self.disk, &self.clock)) {
            // What the leader has written in vain may be what the follower reads.
            Err(_) if self.plan.may_fail() => Ok(()),
            looked => match looked? {
                Ok(_) => Ok(()),
                Err(problem) => Err(Error::corruption(format!("a follower: {problem}"))),
            },
        }
    }
    /// Opens another one, and looks at it twice: it sees no less then, unless it may. Answers what it saw first.
    fn look_at_other(
        &self,
        may_go_back: bool,
        open: impl FnOnce() -> ironstone::Result<Db>,
    ) -> ironstone::Result<Result<Found, String>> {
        let follower = open()?;
        let cfs = handles(&follower, self.plan.families);
        let look = || state::by_iterators(&follower, &cfs, &ReadOptions::default());
        let first = look()?;
        self.clock.sleep(Duration::from_millis(1));
        follower.try_catch_up_with_primary()?;
        let second = look()?;
        follower.close()?;
        let (first, second) = match (first, second) {
            (Ok(first), Ok(second)) => (first, second),
            (Err(problem), _) | (_, Err(problem)) => return Ok(Err(problem)),
        };
        for (family, (earlier, later)) in first.numbers.iter().zip(&second.numbers).enumerate() {
            let drops = self.plan.drops == Some(family);
            let goes_back = |(writer, number): &(&usize, &usize)| {
                !may_go_back && later.get(*writer) < Some(*number) && (later.contains_key(*writer) || !drops)
            };
            if let Some((writer, number)) = earlier.iter().find(goes_back) {
                return Ok(Err(format!(
                    "batch {number} of writer {writer} was there, and is no more: {later:?}"
                )));
            }
        }
        Ok(self.history.with(|history| {
            history.check_families(&first)?;
            history.check_families(&second)?;
            Ok(first)
        }))
    }

    /// Nothing may be written while the WAL is locked, and all that was accepted before is seen.
    fn lock_wal(&self) -> ironstone::Result<()> {
        let _locked = self.db.locked_wal()?;
        let locked_at = self.db.latest_sequence();
        self.clock.sleep(Duration::from_millis(1));
        let seen = self.db.latest_sequence();
        match seen == locked_at {
            true => Ok(()),
            false => Err(Error::corruption(format!("writes go past a locked WAL: {locked_at:?}, {seen:?}"))),
        }
    }

    /// Brings a key that nobody wrote, which is there at once, and one that was deleted, which nobody may ever see.
    fn ingest_behind(&self, cf: &ColumnFamily) -> ironstone::Result<()> {
        let options = Options { db: (*self.db.options()).clone(), cf: self.db.column_family_options(cf) };
        if !options.cf.cf_allow_ingest_behind {
            return Ok(());
        }
        let number = self.disk.op_count();
        let (hidden, new) = (state::hidden_key(number), state::brought_key(number));
        self.db.delete_cf(&WriteOptions::synced(), cf, &hidden)?;
        let path = Path::new("/behind.sst");
        let mut writer = SstFileWriter::new(&options);
        writer.open(path)?;
        writer.put(&hidden, b"")?;
        writer.put(&new, b"")?;
        writer.finish()?;
        let behind = IngestOptions { ingest_behind: true, ..IngestOptions::default() };
        match self.db.ingest_external_files(cf, &[path], &behind) {
            Err(error) if error.code() == Code::InvalidArgument => Ok(()), // No room for it.
            Err(error) => Err(error),
            Ok(()) => {
                let get = |key: &[u8]| self.db.get_cf(&ReadOptions::default(), cf, key);
                match (get(&new)?.is_some(), get(&hidden)?.is_some()) {
                    (true, false) => Ok(()),
                    (false, _) => Err(Error::corruption("a key that was ingested behind is not there")),
                    (_, true) => Err(Error::corruption("a key that was deleted has come back from behind")),
                }
            }
        }
    }

    /// Writes keys that nobody else does, and removes their tables. What is gone then may not come back.
    fn remove_tables(&self, cf: &ColumnFamily, by_range: bool) -> ironstone::Result<()> {
        let number = self.disk.op_count();
        let keys: Vec<_> = (0..6).map(|part| state::removed_key(number, part)).collect();
        for key in &keys {
            self.db.put_cf(&WriteOptions::default(), cf, key, state::removed_value())?;
        }
        let (begin, end) = (b"d".as_slice(), b"e".as_slice());
        self.db.compact_range(&CompactRangeOptions::default(), cf, Some(begin), Some(end))?;
        if by_range {
            let end = state::removed_key(number, 9);
            self.db.delete_files_in_ranges(cf, &[(Some(&keys[1]), Some(&end))], false)?;
        } else {
            let files = self.db.live_files().into_iter().filter(|file| {
                file.column_family == cf.name()
                    && file.smallest.as_slice() >= begin
                    && file.largest.as_slice() < end
            });
            for file in files {
                match self.db.delete_file(&format!("{:06}.sst", file.number.0)) {
                    Err(error) if error.code() == Code::InvalidArgument => {} // It is not the oldest, or gone.
                    result => drop(result?),
                }
            }
        }
        let is_there = |key: &Vec<u8>| {
            let value = self.db.get_cf(&ReadOptions::default(), cf, key)?;
            match value.as_deref().is_none_or(|value| value == state::removed_value()) {
                true => Ok(value.is_some()),
                false => Err(Error::corruption("a key whose tables were removed has another value")),
            }
        };
        let before = keys.iter().map(is_there).collect::<ironstone::Result<Vec<_>>>()?;
        if by_range && !before[0] {
            return Err(Error::corruption("a key before the range whose tables were removed is gone"));
        }
        self.db.compact_range(&CompactRangeOptions::default(), cf, Some(begin), Some(end))?;
        match keys.iter().map(is_there).collect::<ironstone::Result<Vec<_>>>()? == before {
            true => Ok(()),
            false => Err(Error::corruption("keys have come or gone after their tables were removed")),
        }
    }

    fn read(&self, reader: usize, rounds: usize) -> Result<(), String> {
        let mut rng = self.plan.generator(200 + reader as u64);
        let mut seen = BTreeMap::new();
        let tailing = ReadOptions { tailing: true, ..ReadOptions::default() };
        let (mut kept, mut tail) = (self.iterators(&ReadOptions::default())?, self.iterators(&tailing)?);
        for _ in 0..rounds {
            let accepted = self.accepted();
            for _ in 0..3 {
                self.read_newest(&accepted)?;
                self.read_tail(tail.as_mut().and_then(|iters| iters.first_mut()), &accepted)?;
            }
            let snapshot = self.db.snapshot();
            let options = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() };
            let kept = &mut kept;
            let mut look = |way: u32| match (way, &mut *kept) {
                (0, Some(kept)) => self.judge(state::by_refreshed(kept, &snapshot)),
                _ => self.look(&options, way == 1),
            };
            let Some(first) = look(rng.random_range(0..3))? else { continue };
            self.clock.sleep(Duration::from_micros(rng.random_range(0..300)));
            if let Some(second) = look(rng.random_range(0..3))?
                && !second.is_left_of(&first, self.plan.drops)
            {
                return Err(format!("a snapshot has changed: {first:?}, later {second:?}"));
            }
            for (writer, &accepted) in accepted.iter().enumerate() {
                let issued = self.history.with(|history| history.range_of(writer).1);
                let number = first.numbers[0].get(&writer).copied().unwrap_or(0);
                let before = seen.insert(writer, number).unwrap_or(0);
                if number < accepted.max(before) || number > issued {
                    return Err(format!(
                        "a reader sees batch {number} of writer {writer}: {accepted} was accepted and {before} seen \
                         before, {issued} issued"
                    ));
                }
            }
            if first.torn(self.plan.drops).is_some() {
                return Err(format!("a snapshot sees a batch in part: {:?}", first.numbers));
            }
        }
        Ok(())
    }

    /// Reads without a snapshot: a batch that was `accepted` before is there, whatever is flushed meanwhile.
    fn read_newest(&self, accepted: &[usize]) -> Result<(), String> {
        for (writer, &accepted) in accepted.iter().enumerate() {
            let got = self.db.get(state::number_key(writer)).map(|value| value.map(|value| value.to_vec()));
            let Some(value) = self.allow("get", got)? else { continue };
            let number =
                value.as_deref().map_or(Ok(0), |value| String::from_utf8_lossy(value).parse::<usize>());
            if number.as_ref().is_ok_and(|&number| number < accepted) || number.is_err() {
                return Err(format!(
                    "get finds batch {number:?} of writer {writer}, {accepted} was accepted before"
                ));
            }
        }
        Ok(())
    }

    fn look(&self, options: &ReadOptions, by_get: bool) -> Result<Option<Found>, String> {
        let found = if by_get {
            state::by_gets(&self.db, &self.cfs, options, self.plan.writers.len(), SHARED_KEYS)
        } else {
            state::by_iterators(&self.db, &self.cfs, options)
        };
        self.judge(found)
    }

    fn judge(&self, found: ironstone::Result<Result<Found, String>>) -> Result<Option<Found>, String> {
        match found {
            Ok(found) => Ok(Some(found?)),
            Err(error) => self.allow("read", Err(error)),
        }
    }

    /// Iterators over all column families; `None` if the disk lets nobody have them.
    fn iterators(&self, options: &ReadOptions) -> Result<Option<Vec<DbIterator>>, String> {
        let all: Vec<&ColumnFamily> = self.cfs.iter().collect();
        self.allow("iterators", self.db.iters_cf(options, &all))
    }

    /// Seeks of a tailing iterator: a batch that was `accepted` before is there.
    fn read_tail(&self, tail: Option<&mut DbIterator>, accepted: &[usize]) -> Result<(), String> {
        let Some(tail) = tail else { return Ok(()) };
        for (writer, &accepted) in accepted.iter().enumerate().filter(|(_, accepted)| **accepted > 0) {
            let key = state::number_key(writer);
            let moved = tail.seek(&key);
            if self.allow("seek", moved)?.is_none() {
                continue;
            }
            let value = tail.value().filter(|_| tail.key() == Some(&key));
            let number = value.and_then(|value| String::from_utf8_lossy(value).parse::<usize>().ok());
            if number.is_none_or(|number| number < accepted) {
                return Err(format!(
                    "a tailing iterator finds batch {number:?} of writer {writer}, {accepted} was accepted before"
                ));
            }
        }
        Ok(())
    }

    /// Ends the database as planned, opens what is left, and judges it.
    fn finish(self, opener: &Opener) -> Result<Done, String> {
        let Self { plan, db, opener: _, cfs, disk, faults, clock, history, buffered, failed, failing: _ } =
            self;
        let crashed = disk.crashed();
        disk.set_capacity(None);
        let history = history.copy();
        drop(cfs);
        let mut image = None;
        if !plan.closes && !crashed {
            image = Some(disk.crash(plan.policy, plan.policy_seed));
        }
        faults.clear();
        // A flush in the background may have met the failure, and nobody wrote after it.
        let stopped = db.background_error().is_some();
        failed.fetch_or(stopped, Ordering::SeqCst);
        let closing = db.close();
        let flushed = closing.is_ok();
        failed.fetch_or(!flushed, Ordering::SeqCst);
        if !plan.may_fail() {
            closing.map_err(|error| format!("close: {error}"))?;
        }
        // A flush syncs as well, and nobody may have been told by the end.
        let in_background = db.int_property("rocksdb.background-errors").is_none_or(|errors| errors > 0);
        drop(db);
        let (image, policy) = match image {
            Some(image) => (image, plan.policy),
            None if crashed => (disk.crash(plan.policy, plan.policy_seed), plan.policy),
            // Closed: what was accepted is with the system, and stays if only the process ends.
            None => (disk.crash(CrashPolicy::KeepAll, 0), CrashPolicy::KeepAll),
        };
        // A sync that failed may have thrown away what the system had taken.
        let lossy =
            matches!(plan.trouble, Trouble::Sync(_)) && (failed.load(Ordering::SeqCst) || in_background);
        // What manual flushing keeps in the process is handed over by a close that succeeds.
        let closed = plan.closes && !crashed && flushed;
        // What no WAL holds stays if closing could flush it.
        let kept = if plan.unlogged { closed && !stopped } else { closed || !buffered };
        let all = policy == CrashPolicy::KeepAll && !lossy && kept;
        let done = Done {
            batches: history.len(),
            operations: disk.op_count(),
            crashed,
            switches: shuttle::current::context_switches() as u64,
            fingerprint: image.fingerprint(),
        };
        crate::recovery::judge(&plan, opener, &clock, image, &history, all).map_err(|problem| {
            let log = ironstone_vfs::FileSystem::read_all(&disk.fork(), &Path::new(DIR).join("LOG"));
            format!("{problem}\n{}{}", history.text(), String::from_utf8_lossy(&log.unwrap_or_default()))
        })?;
        Ok(done)
    }
}
