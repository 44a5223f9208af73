//! Calls to the file system that fail: the n-th one of a scenario, once or from then on.
//!
//! Every write of a scenario puts one key in every column family that there is, so that a torn batch
//! shows. What a write or a flush that answered `Ok` promised must be there after a power loss, after
//! a killed process, and after the database has gone on; a write that answered with an error may be
//! there or not. Once the fault is gone, `resume` must bring an open database back, and one that could
//! not be opened must open.

use crate::random_run::Failure;
use ironstone::options::DbOptions;
use ironstone::{
    BottommostPolicy, ColumnFamilyDescriptor, ColumnFamilyOptions, CompactRangeOptions, Db, Error,
    FlushOptions, ReadOptions, WriteBatch, WriteOptions,
};
use ironstone_base::sync::atomic::{AtomicU32, Ordering};
use ironstone_base::sync::{Arc, Mutex, thread};
use ironstone_vfs::fault::{Fault, FaultError, FaultFileSystem, FaultRule};
use ironstone_vfs::mem::{CrashPolicy, MemFileSystem, SyncFailure, SyncFault};
use ironstone_vfs::{Env, OpKind, SystemClock};
use std::collections::BTreeSet;

const DIR: &str = "/db";
const FAMILIES: [&str; 2] = ["default", "second"];
const EXTRA: &str = "third";

/// What the database does while calls fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scenario {
    /// Creates a database and writes to it.
    OpenFresh,
    /// Writes without a sync.
    Put,
    /// Writes with a sync.
    PutSynced,
    /// Writes with a sync from several threads at once.
    PutTogether,
    /// Writes to a buffer of its own, and then hands that over and syncs it.
    ManualFlush,
    /// Flushes all column families.
    Flush,
    /// Rewrites all tables of a column family.
    Compaction,
    /// Fills memtables, each with a WAL of its own.
    WalSwitch,
    /// The same over old WALs.
    WalReuse,
    /// Begins a new MANIFEST with every change.
    ManifestRoll,
    /// Creates a column family and writes to it.
    CreateFamily,
    /// Drops a column family.
    DropFamily,
    /// Opens a database that has to replay WALs.
    Replay,
    /// Reads everything.
    Read,
    /// Closes the database, with data that no WAL has.
    Close,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::OpenFresh,
        Self::Put,
        Self::PutSynced,
        Self::PutTogether,
        Self::ManualFlush,
        Self::Flush,
        Self::Compaction,
        Self::WalSwitch,
        Self::WalReuse,
        Self::ManifestRoll,
        Self::CreateFamily,
        Self::DropFamily,
        Self::Replay,
        Self::Read,
        Self::Close,
    ];
}

/// What fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Injected {
    /// Call number `after`.
    Once(FaultError),
    /// Call number `after` and all that follow.
    FromThenOn(FaultError),
    /// Append number `after`, behind its first bytes: the disk is full.
    ShortWrite,
    /// Sync number `after`, of a file or a directory, and what it does to the data.
    Sync(SyncFailure),
}

/// A write, and what came of it.
#[derive(Clone, Debug)]
struct Written {
    number: u32,
    families: Vec<String>,
    accepted: bool,
    /// How many operations the file system had done when the write returned.
    returned: u64,
}

/// What was promised so far.
#[derive(Clone, Default, Debug)]
struct Ledger {
    writes: Vec<Written>,
    /// How many of `writes` are durable, as far as they were accepted.
    durable: usize,
    /// How many a killed process must not lose.
    handed_over: usize,
    /// Numbers of writes that a sync of their own made durable, whatever is between.
    synced: BTreeSet<u32>,
    /// Numbers of writes that no WAL has: only a flush keeps them.
    unlogged: BTreeSet<u32>,
}

/// A database under test.
struct Bench {
    mem: MemFileSystem,
    faults: FaultFileSystem,
    options: DbOptions,
    family_options: ColumnFamilyOptions,
    db: Option<Db>,
    ledger: Mutex<Ledger>,
    next: AtomicU32,
    /// Column families that there are.
    families: Vec<String>,
    /// Column families that may be there or not: their creation or their drop failed.
    doubtful: Vec<String>,
    first_error: Mutex<Option<Error>>,
    /// Writes come from one thread, so that their order is known.
    ordered: bool,
    /// A failed sync throws away what the system had taken: not even a killed process finds it.
    cache_is_lossy: bool,
}

/// Runs `scenario` with one fault. Answers whether the fault was met; if not, the scenario is through.
pub fn try_fault(scenario: Scenario, injected: Injected, after: u64) -> Result<bool, Failure> {
    let mut bench = Bench::new(scenario);
    bench.prepare(scenario)?;
    let syncs_before = bench.sync_count();
    let rule = match injected {
        Injected::Once(error) => Some(bench.faults.add(rule(error).after(after))),
        Injected::FromThenOn(error) => Some(bench.faults.add(rule(error).after(after).forever())),
        Injected::ShortWrite => {
            let short = FaultRule::new(Fault::ShortWrite(11, FaultError::NoSpace));
            Some(bench.faults.add(short.after(after)))
        }
        Injected::Sync(failure) => {
            bench.cache_is_lossy = failure == SyncFailure::Reverted;
            bench.mem.fail_sync(SyncFault { path_contains: String::new(), after, failure });
            None
        }
    };
    bench.run(scenario)?;
    bench.faults.clear();
    let hit = match &rule {
        Some(rule) => rule.hits() > 0,
        None => bench.sync_count() - syncs_before > after,
    };
    bench.check_first_error(injected, hit)?;
    if !hit && rule.is_none() {
        return Ok(false); // The order to fail still stands, and would strike what follows.
    }
    bench.check_survivors("right after the fault")?;
    bench.go_on(scenario)?;
    Ok(hit)
}

/// Several threads write while the log fails and while `resume` brings the database back. Loses the
/// power at moments on the way.
pub fn resume_among_writers(after: u64) -> Result<(), Failure> {
    let mut bench = Bench::new(Scenario::PutTogether);
    bench.prepare(Scenario::PutTogether)?;
    let from = bench.mem.op_count();
    bench.mem.set_capturing(true);
    let broken = FaultRule::error(FaultError::Io).on(&[OpKind::Sync]).path(".log").after(after);
    let rule = bench.faults.add(broken);
    let bench = &bench;
    let done = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut accepted = 0;
                while accepted < 8 {
                    accepted += u32::from(bench.put(WriteOptions::synced(), 40));
                }
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        while done.load(Ordering::SeqCst) < 3 {
            // Without a failure there is nothing to resume. The log only fails once.
            let resumed = bench.db().resume();
            resumed.expect("the fault is gone, and writers wait for this");
            thread::yield_now();
        }
    });
    if rule.hits() == 0 {
        return Err("the log never failed".to_owned());
    }
    bench.check_captured(from, 3)?;
    bench.check_reads(bench.db(), false)?;
    bench.check_survivors("at last")
}

fn rule(error: FaultError) -> FaultRule {
    match error {
        // Only what takes space can run out of it.
        FaultError::NoSpace => FaultRule::error(error).on_changes(),
        _ => FaultRule::error(error),
    }
}

impl Bench {
    fn new(scenario: Scenario) -> Self {
        let mem = MemFileSystem::new();
        let faults = FaultFileSystem::new(Arc::new(mem.clone()));
        let env = Env { fs: Arc::new(faults.clone()), clock: Arc::new(SystemClock::new()) };
        let small = matches!(scenario, Scenario::WalSwitch | Scenario::WalReuse);
        let options = DbOptions {
            env,
            create_if_missing: true,
            create_missing_column_families: true,
            info_log_level: ironstone::InfoLogLevel::Fatal,
            manual_wal_flush: scenario == Scenario::ManualFlush,
            recycle_log_file_num: if scenario == Scenario::WalReuse { 2 } else { 0 },
            max_manifest_file_size: if scenario == Scenario::ManifestRoll { 100 } else { 1 << 20 },
            max_manifest_space_amp_pct: 0,
            ..DbOptions::default()
        };
        let family_options = ColumnFamilyOptions {
            disable_auto_compactions: true,
            write_buffer_size: if small { 16 << 10 } else { 1 << 20 },
            ..ColumnFamilyOptions::default()
        };
        Self {
            mem,
            faults,
            options,
            family_options,
            db: None,
            ledger: Mutex::default(),
            next: AtomicU32::new(0),
            families: FAMILIES.map(str::to_owned).to_vec(),
            doubtful: Vec::new(),
            first_error: Mutex::default(),
            ordered: scenario != Scenario::PutTogether,
            cache_is_lossy: false,
        }
    }

    fn sync_count(&self) -> u64 {
        let log = self.mem.log();
        log.iter().filter(|entry| matches!(entry.kind, OpKind::Sync | OpKind::SyncDirectory)).count() as u64
    }

    fn open_in(&self, env: Env) -> ironstone::Result<Db> {
        let options = DbOptions { env, ..self.options.clone() };
        let mut names = self.families.clone();
        let known = Db::list_column_families(&options, DIR).unwrap_or_default();
        names.extend(self.doubtful.iter().filter(|name| known.contains(name)).cloned());
        let descriptors =
            names.iter().map(|name| ColumnFamilyDescriptor::new(name, self.family_options.clone()));
        Db::open_column_families(&options, DIR, descriptors.collect())
    }
    fn open(&self) -> ironstone::Result<Db> {
        self.open_in(self.options.env.clone())
    }
    fn db(&self) -> &Db {
        self.db.as_ref().expect("the scenario has opened it")
    }

    /// Notes an error, which is no failure of the test.
    fn note<T>(&self, result: ironstone::Result<T>) -> Option<T> {
        result.inspect_err(|error| _ = self.first_error.lock().get_or_insert_with(|| error.clone())).ok()
    }

    /// Writes one key to every column family that there is.
    fn put(&self, options: WriteOptions, value_len: usize) -> bool {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let mut batch = WriteBatch::new();
        let mut families = Vec::new();
        for name in &self.families {
            let Some(cf) = self.db().column_family(name) else { continue };
            batch.put_cf(&cf, key(number), value(number, value_len));
            families.push(name.clone());
        }
        let at = {
            let mut ledger = self.ledger.lock();
            ledger.writes.push(Written { number, families, accepted: false, returned: u64::MAX });
            if options.disable_wal {
                ledger.unlogged.insert(number);
            }
            ledger.writes.len() - 1
        };
        let accepted = self.note(self.db().write(&batch, &options)).is_some();
        let mut ledger = self.ledger.lock();
        ledger.writes[at].accepted = accepted;
        ledger.writes[at].returned = self.mem.op_count();
        if accepted && options.sync {
            ledger.synced.insert(number);
        }
        if accepted && self.ordered {
            // A sync covers what came before.
            if options.sync {
                ledger.durable = at + 1;
            }
            if options.sync || !self.options.manual_wal_flush {
                ledger.handed_over = at + 1;
            }
        }
        accepted
    }

    fn put_several(&self, count: u32, options: WriteOptions) {
        for _ in 0..count {
            self.put(options, 40);
        }
    }

    /// All accepted writes so far are durable.
    fn all_durable(&self) {
        let mut ledger = self.ledger.lock();
        ledger.durable = ledger.writes.len();
        ledger.handed_over = ledger.writes.len();
        let Ledger { writes, unlogged, .. } = &mut *ledger;
        unlogged.retain(|number| writes.iter().any(|write| write.number == *number && !write.accepted));
    }

    fn flush(&self) -> ironstone::Result<()> {
        let cfs: Vec<_> = self.families.iter().filter_map(|name| self.db().column_family(name)).collect();
        self.db().flush_cfs(&FlushOptions::default(), &cfs.iter().collect::<Vec<_>>())?;
        self.all_durable();
        Ok(())
    }

    /// What is there before anything fails.
    fn prepare(&mut self, scenario: Scenario) -> Result<(), Failure> {
        if scenario == Scenario::OpenFresh {
            return Ok(());
        }
        if scenario == Scenario::DropFamily {
            self.families.push(EXTRA.to_owned());
        }
        let healthy = |what: &str, error: Error| format!("{what} without a fault: {error}");
        self.db = Some(self.open().map_err(|error| healthy("open", error))?);
        let tables = match scenario {
            Scenario::Compaction | Scenario::Read => 3,
            Scenario::Flush | Scenario::Put | Scenario::PutSynced => 1,
            _ => 0,
        };
        for _ in 0..tables {
            self.put_several(3, WriteOptions::default());
            self.flush().map_err(|error| healthy("flush", error))?;
        }
        for number in 0..5 {
            let sync = number == 2;
            self.put(WriteOptions { sync, ..WriteOptions::default() }, 40);
        }
        match scenario {
            Scenario::Replay => {
                self.db().close().map_err(|error| healthy("close", error))?;
                self.db = None;
            }
            Scenario::Close => {
                self.put(WriteOptions { disable_wal: true, ..WriteOptions::default() }, 40);
            }
            Scenario::Read => {
                // Opened anew, so that no block is cached.
                self.flush().map_err(|error| healthy("flush", error))?;
                self.db().close().map_err(|error| healthy("close", error))?;
                self.db = None;
                self.db = Some(self.open().map_err(|error| healthy("open", error))?);
            }
            _ => {}
        }
        Ok(())
    }

    /// What is done while calls fail. Errors are noted; only a broken promise is a failure.
    fn run(&mut self, scenario: Scenario) -> Result<(), Failure> {
        let synced = WriteOptions::synced();
        let plain = WriteOptions::default();
        match scenario {
            Scenario::OpenFresh | Scenario::Replay => {
                self.db = self.note(self.open());
                if self.db.is_some() {
                    self.put_several(2, synced);
                }
            }
            Scenario::Put => self.put_several(3, plain),
            Scenario::PutSynced => self.put_several(3, synced),
            Scenario::PutTogether => thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| self.put_several(3, synced));
                }
            }),
            Scenario::ManualFlush => {
                for sync in [false, true] {
                    self.put_several(3, plain);
                    if self.note(self.db().flush_wal(sync)).is_some() {
                        let mut ledger = self.ledger.lock();
                        ledger.handed_over = ledger.writes.len();
                        if sync {
                            ledger.durable = ledger.writes.len();
                        }
                    }
                }
            }
            Scenario::Flush => drop(self.note(self.flush())),
            Scenario::Compaction => {
                let rewrite = CompactRangeOptions {
                    bottommost_level_compaction: BottommostPolicy::Force,
                    ..CompactRangeOptions::default()
                };
                let cf = self.db().default_column_family();
                self.note(self.db().compact_range(&rewrite, cf, None, None));
            }
            Scenario::WalSwitch | Scenario::WalReuse => {
                for number in 0..24 {
                    self.put(if number % 4 == 0 { synced } else { plain }, 3000);
                }
                self.note(self.db().wait_for_compact());
            }
            Scenario::ManifestRoll => {
                for _ in 0..2 {
                    self.put(plain, 40);
                    self.note(self.flush());
                }
            }
            Scenario::CreateFamily => {
                let created = self.note(self.db().create_column_family(EXTRA, &self.family_options));
                match created {
                    Some(_) => {
                        self.families.push(EXTRA.to_owned());
                        self.put(synced, 40);
                    }
                    None => self.doubtful.push(EXTRA.to_owned()),
                }
            }
            Scenario::DropFamily => {
                let cf = self.db().column_family(EXTRA).expect("prepared");
                let dropped = self.note(self.db().drop_column_family(&cf));
                self.families.retain(|name| name != EXTRA);
                if dropped.is_none() {
                    self.doubtful.push(EXTRA.to_owned());
                }
                self.put(synced, 40);
            }
            Scenario::Read => self.check_reads(self.db(), true)?,
            Scenario::Close => {
                let db = self.db.take().expect("prepared");
                let closed = self.note(db.close()).is_some();
                self.note_close(closed);
                drop(db);
            }
        }
        Ok(())
    }

    /// After a close a killed process loses nothing; after one that failed, what no WAL has is gone.
    fn note_close(&self, closed: bool) {
        let ledger = &mut *self.ledger.lock();
        if closed {
            ledger.handed_over = ledger.writes.len();
            ledger.unlogged.clear();
        } else {
            let gone = ledger.writes.iter_mut().filter(|write| ledger.unlogged.contains(&write.number));
            gone.for_each(|write| write.accepted = false);
        }
    }

    /// Only what was synced is there when the database is opened again.
    fn forget_unsynced(&self) {
        let Ledger { writes, durable, synced, .. } = &mut *self.ledger.lock();
        let lost = writes.iter_mut().skip(*durable).filter(|write| !synced.contains(&write.number));
        lost.for_each(|write| write.accepted = false);
    }

    /// The first error that anybody got must be the injected one, and it must say so.
    fn check_first_error(&self, injected: Injected, hit: bool) -> Result<(), Failure> {
        let Some(error) = self.first_error.lock().clone() else { return Ok(()) };
        let text = error.to_string();
        if !hit {
            return Err(format!("an error without a fault: {text}"));
        }
        if text.contains("panic") {
            return Err(text);
        }
        let (is_it, full) = match injected {
            Injected::Once(error) | Injected::FromThenOn(error) => {
                (text.contains("injected fault"), error == FaultError::NoSpace)
            }
            Injected::ShortWrite => (text.contains("injected fault"), true),
            Injected::Sync(_) => (text.contains("sync"), false),
        };
        if !is_it || !text.contains('/') {
            return Err(format!("the error does not say what failed: {text}"));
        }
        if full && !error.is_no_space() {
            return Err(format!("a full disk is reported as something else: {error:?}"));
        }
        Ok(())
    }

    /// Crashes now, in several ways, and looks at what is left.
    fn check_survivors(&self, when: &str) -> Result<(), Failure> {
        let seed = u64::from(self.next.load(Ordering::SeqCst)) + self.mem.op_count();
        let others = [CrashPolicy::SomeEntries, CrashPolicy::TornSectors, CrashPolicy::IndependentCuts];
        let other = others[seed as usize % others.len()];
        for policy in [CrashPolicy::DropUnsynced, CrashPolicy::KeepAll, other] {
            let image = self.mem.crash(policy, seed);
            self.check_image(image, policy, None)
                .map_err(|failure| format!("{when}, {policy:?}: {failure}"))?;
        }
        Ok(())
    }

    /// Opens an image of a crash, now or before operation `op`, and looks for every write.
    fn check_image(&self, image: MemFileSystem, policy: CrashPolicy, op: Option<u64>) -> Result<(), Failure> {
        let env = Env { fs: Arc::new(image), clock: Arc::new(SystemClock::new()) };
        let db = self.open_in(env).map_err(|error| format!("open after a crash: {error}"))?;
        let ledger = self.ledger.lock().clone();
        let killed = policy == CrashPolicy::KeepAll && !self.cache_is_lossy;
        let floor = match op {
            Some(_) => 0,
            None if killed => ledger.handed_over,
            None => ledger.durable,
        };
        let mut lost = None;
        for (at, write) in ledger.writes.iter().enumerate() {
            let there = self.is_there(&db, write)?;
            if !write.accepted || ledger.unlogged.contains(&write.number) {
                continue; // It may be there or not.
            }
            if there {
                match lost {
                    Some(lost) if self.ordered => {
                        return Err(format!("write {lost} is lost, but write {} is there", write.number));
                    }
                    _ => continue,
                }
            }
            let returned = op.is_none_or(|op| write.returned <= op);
            if at < floor || (returned && ledger.synced.contains(&write.number)) {
                return Err(format!("write {} is lost", write.number));
            }
            lost.get_or_insert(write.number);
        }
        Ok(())
    }

    /// Whether a write is there: in all of its column families, or in none.
    fn is_there(&self, db: &Db, write: &Written) -> Result<bool, Failure> {
        let mut found = Vec::new();
        for name in write.families.iter().filter(|name| self.families.contains(name)) {
            let cf = db.column_family(name).ok_or_else(|| format!("column family {name} is lost"))?;
            let answer = db.get_cf(&ReadOptions::default(), &cf, key(write.number));
            let answer = answer.map_err(|error| format!("get: {error}"))?;
            if answer.as_ref().is_some_and(|found| !found.starts_with(key(write.number).as_bytes())) {
                return Err(format!("write {} has another value", write.number));
            }
            found.push(answer.is_some());
        }
        // Column families are flushed one by one: of what no WAL has, some may have a part.
        if self.ledger.lock().unlogged.contains(&write.number) {
            return Ok(found.iter().all(|there| *there));
        }
        match found.iter().all(|there| *there == found[0]) {
            true => Ok(found[0]),
            false => {
                Err(format!("write {} is there in part: {found:?} of {:?}", write.number, write.families))
            }
        }
    }

    /// Every accepted write must be readable now; with `may_fail`, a read may answer with an error.
    fn check_reads(&self, db: &Db, may_fail: bool) -> Result<(), Failure> {
        let ledger = self.ledger.lock();
        let fail = |error: Error| {
            self.first_error.lock().get_or_insert(error.clone());
            if may_fail { Ok(()) } else { Err(format!("read: {error}")) }
        };
        for name in &self.families {
            let Some(cf) = db.column_family(name) else { continue };
            let mut expected = BTreeSet::new();
            for write in ledger.writes.iter().filter(|write| write.accepted && write.families.contains(name))
            {
                expected.insert(key(write.number));
                match db.get_cf(&ReadOptions::default(), &cf, key(write.number)) {
                    Ok(Some(_)) => {}
                    Ok(None) => return Err(format!("write {} is not in {name}", write.number)),
                    Err(error) => fail(error)?,
                }
            }
            let scan = || -> ironstone::Result<Vec<String>> {
                let entries = db.iter_cf(&ReadOptions::default(), &cf)?;
                let mut entries = entries;
                let mut found = Vec::new();
                let mut more = entries.seek_to_first()?;
                while more {
                    found.push(
                        String::from_utf8_lossy(entries.key().expect("stands on an entry")).into_owned(),
                    );
                    more = entries.next()?;
                }
                Ok(found)
            };
            match scan() {
                Ok(found) => {
                    if let Some(missing) = expected.iter().find(|key| !found.contains(key)) {
                        return Err(format!("a scan of {name} passes over {missing}"));
                    }
                }
                Err(error) => fail(error)?,
            }
        }
        Ok(())
    }

    /// The fault is gone: the database must go on, or open.
    fn go_on(&mut self, scenario: Scenario) -> Result<(), Failure> {
        let db = match self.db.take() {
            Some(db) => db,
            None if self.cache_is_lossy => {
                self.forget_unsynced();
                self.open().map_err(|error| format!("open after the fault is gone: {error}"))?
            }
            None => self.open().map_err(|error| format!("open after the fault is gone: {error}"))?,
        };
        self.db = Some(db);
        self.check_reads(self.db(), false)
            .map_err(|failure| format!("after the fault is gone: {failure}"))?;
        if self.db().background_error().is_some() {
            self.resume()?;
        }
        self.resolve_doubts()?;
        let accepted = self.put(WriteOptions::synced(), 40);
        let error = || self.first_error.lock().clone().map_or_else(String::new, |error| error.to_string());
        if !accepted {
            *self.first_error.lock() = None;
            let again = self.put(WriteOptions::synced(), 40);
            // A failure of the log is only noticed by the next write.
            if again || self.db().background_error().is_none() {
                return Err(format!("a write failed without a fault: {}", error()));
            }
            self.resume()?;
            if !self.put(WriteOptions::synced(), 40) {
                return Err(format!("no write after resume: {}", error()));
            }
        }
        self.check_reads(self.db(), false).map_err(|failure| format!("after resume: {failure}"))?;
        self.check_survivors("after going on")?;
        self.flush().map_err(|error| format!("flush after the fault is gone: {error}"))?;
        if scenario == Scenario::Compaction {
            let cf = self.db().default_column_family();
            let again = self.db().compact_range(&CompactRangeOptions::default(), cf, None, None);
            again.map_err(|error| format!("compaction after the fault is gone: {error}"))?;
        }
        self.check_survivors("after a flush")?;
        let db = self.db.take().expect("opened above");
        db.close().map_err(|error| format!("close after the fault is gone: {error}"))?;
        drop(db);
        self.db = Some(self.open().map_err(|error| format!("open at last: {error}"))?);
        self.check_reads(self.db(), false).map_err(|failure| format!("at last: {failure}"))
    }

    /// Brings the database back, and loses the power at every operation on the way.
    fn resume(&self) -> Result<(), Failure> {
        let from = self.mem.op_count();
        self.mem.set_capturing(true);
        let resumed = self.db().resume();
        let checked = self.check_captured(from, 1);
        resumed.map_err(|error| format!("resume: {error}"))?;
        checked?;
        self.all_durable();
        Ok(())
    }

    /// Looks at what a crash before each operation from `from` on would leave; of many, at every
    /// `step`-th. Ends the capturing.
    fn check_captured(&self, from: u64, step: usize) -> Result<(), Failure> {
        let moments: Vec<_> = (from..self.mem.op_count())
            .step_by(step)
            .filter_map(|op| self.mem.captured(op).map(|moment| (op, moment)))
            .collect();
        self.mem.set_capturing(false);
        for (op, moment) in moments {
            for policy in [CrashPolicy::DropUnsynced, CrashPolicy::KeepAll, CrashPolicy::FilePrefix] {
                let checked = self.check_image(moment.crash(policy, op), policy, Some(op));
                checked.map_err(|failure| format!("{policy:?}, {} operations on: {failure}", op - from))?;
            }
        }
        Ok(())
    }

    /// Looks whether what failed half way is there.
    fn resolve_doubts(&mut self) -> Result<(), Failure> {
        for name in std::mem::take(&mut self.doubtful) {
            if let Some(cf) = self.db().column_family(&name) {
                self.db().drop_column_family(&cf).map_err(|error| format!("drop after resume: {error}"))?;
            }
        }
        Ok(())
    }
}

fn key(number: u32) -> String {
    format!("key{number:05}")
}

fn value(number: u32, len: usize) -> Vec<u8> {
    let mut value = key(number).into_bytes();
    value.resize(len, b'.');
    value
}
