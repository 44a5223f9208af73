//! Power loss at every operation of a workload.
//!
//! The workload runs once on a file system that keeps a copy of itself from before each operation.
//! Every copy is then crashed under every policy and opened again. What came back must be the state
//! after some batch that had been issued, at or behind the last one that was acknowledged as durable,
//! the same batch in every column family.
//!
//! One column family in four drops its oldest tables when they are too large together. There the oldest batches may be missing, as
//! many as a crash finds dropped, and nothing else.
//!
//! The recovery of one image in so many is itself a workload: it loses the power at each of its operations, under
//! every policy, and what comes back then is held to the same.

use crate::model::{Change, Entries, Model};
use crate::random_options::{let_oldest_go, random_db_options, random_family_options};
use crate::random_run::{compare, contents};
use crate::write_order::WriteOrder;
use ironstone::options::DbOptions;
use ironstone::{
    ColumnFamilyDescriptor, ColumnFamilyOptions, CompactRangeOptions, Db, FlushOptions, IngestFiles,
    IngestOptions, Options, ReadOptions, SstFileWriter, WriteBatch, WriteOptions,
};
use ironstone_base::sync::Mutex;
use ironstone_vfs::mem::{CrashPolicy, MemFileSystem};
use ironstone_vfs::{Env, FileSystem, SystemClock};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FAMILIES: [&str; 2] = ["default", "second"];
/// Every batch puts its number under this key, in every column family.
const MARK: &[u8] = b"mark";
const DIR: &str = "/db";

/// One image in so many is recovered again and again, each time up to another operation.
const NESTED_ONE_IN: u64 = 400;

/// What happened when, counted in file system operations.
struct Event {
    /// Operations before the call.
    issued: u64,
    /// Operations when it returned.
    returned: u64,
    /// How many batches it made durable: all up to this number.
    durable: usize,
    /// Whether a killed process must find them too.
    written: usize,
}

/// A workload that ran, and all its moments.
pub struct CrashRun {
    fs: Arc<MemFileSystem>,
    options: DbOptions,
    /// With one column family alone, a flush need not wait until older WALs are durable.
    names: &'static [&'static str],
    families: Vec<ColumnFamilyOptions>,
    /// What was written to those that drop tables, a batch for each of `states` but the first.
    orders: BTreeMap<&'static str, WriteOrder>,
    events: Vec<Event>,
    /// `states[m]`: after the first `m` batches.
    states: Vec<Model>,
    /// When each batch was issued.
    issued: Vec<u64>,
    /// Creation of the database ended here.
    created: u64,
}

/// What exploring found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Crash images opened.
    pub trials: u64,
    /// How many of them were different from each other.
    pub distinct: u64,
    /// Images of interrupted recoveries, different ones of each recovery.
    pub nested: u64,
}

fn env(fs: MemFileSystem) -> Env {
    Env { fs: Arc::new(fs), clock: Arc::new(SystemClock::new()) }
}

impl CrashRun {
    /// Runs `steps` random steps of `seed`.
    pub fn record(seed: u64, steps: usize) -> Result<Self, String> {
        let mut rng = StdRng::seed_from_u64(seed);
        let fs = MemFileSystem::new();
        fs.set_capturing(true);
        let env = Env { fs: Arc::new(fs.clone()), clock: Arc::new(SystemClock::new()) };
        let mut options = random_db_options(&mut rng, &env);
        options.manual_wal_flush = rng.random_bool(0.2);
        let names: &[_] = if rng.random_bool(0.3) { &FAMILIES[..1] } else { &FAMILIES };
        let mut orders = BTreeMap::new();
        let mut random_options = |name: &&'static str| {
            let mut options = random_family_options(&mut rng);
            if rng.random_bool(0.25) {
                let_oldest_go(&mut rng, &mut options);
                options.ttl = 0; // Time goes on beside the workload.
                options.compaction_options_fifo.max_table_files_size = rng.random_range(6_000..15_000);
                orders.insert(*name, WriteOrder::default());
            }
            options
        };
        let families: Vec<ColumnFamilyOptions> = names.iter().map(&mut random_options).collect();
        let mut model = Model::new();
        names.iter().skip(1).for_each(|name| model.create(name));
        let mut run = Self {
            fs: Arc::new(fs),
            options,
            names,
            families,
            orders,
            events: Vec::new(),
            states: vec![model],
            issued: Vec::new(),
            created: 0,
        };
        let mut db = run.open(&run.options).map_err(|error| format!("create: {error}"))?;
        run.created = run.fs.op_count();
        for _ in 0..steps {
            match rng.random_range(0..100) {
                0..82 => run.write(&db, &mut rng)?,
                82..88 => run.call(|run| run.states.len() - 1, || db.flush_wal(true))?,
                88..93 => {
                    let cfs: Vec<_> =
                        names.iter().map(|name| db.column_family(name).expect("open")).collect();
                    run.call(
                        |run| run.states.len() - 1,
                        || db.flush_cfs(&FlushOptions::default(), &cfs.iter().collect::<Vec<_>>()),
                    )?;
                }
                93..95 => run.ingest(&db, &mut rng)?,
                95..97 => {
                    let name = names.choose(&mut rng).expect("not empty");
                    let cf = db.column_family(name).expect("open");
                    run.call(|_| 0, || db.compact_range(&CompactRangeOptions::default(), &cf, None, None))?;
                }
                _ => {
                    db.close().map_err(|error| format!("close: {error}"))?;
                    drop(db);
                    db = run.open(&run.options).map_err(|error| format!("reopen: {error}"))?;
                }
            }
        }
        db.close().map_err(|error| format!("close: {error}"))?;
        Ok(run)
    }

    fn descriptors(&self) -> Vec<ColumnFamilyDescriptor> {
        let named = self.names.iter().zip(&self.families);
        named.map(|(name, options)| ColumnFamilyDescriptor::new(*name, options.clone())).collect()
    }

    fn open(&self, options: &DbOptions) -> ironstone::Result<Db> {
        Db::open_column_families(options, DIR, self.descriptors())
    }

    fn call(
        &mut self,
        durable: impl FnOnce(&Self) -> usize,
        call: impl FnOnce() -> ironstone::Result<()>,
    ) -> Result<(), String> {
        let issued = self.fs.op_count();
        let durable = durable(self);
        call().map_err(|error| format!("call: {error}"))?;
        self.events.push(Event { issued, returned: self.fs.op_count(), durable, written: durable });
        Ok(())
    }

    fn write(&mut self, db: &Db, rng: &mut StdRng) -> Result<(), String> {
        let number = self.states.len();
        let mut model = self.states[number - 1].clone();
        let mut batch = WriteBatch::new();
        for &name in self.names {
            let cf = db.column_family(name).expect("open");
            let mark = Change::Put(name.to_owned(), MARK.to_vec(), number.to_string().into_bytes());
            mark.add_to(&mut batch, cf.id());
            let mut changes = vec![mark];
            for _ in 0..rng.random_range(0..6) {
                let number = rng.random_range(0..100);
                let key = format!("key{number:03}").into_bytes();
                let name = name.to_owned();
                let change = match rng.random_range(0..100) {
                    0..20 => Change::Delete(name, key),
                    20..30 => Change::Append(name, key, vec![rng.random_range(b'a'..=b'z')]),
                    30..35 => {
                        let end = number + rng.random_range(1..20);
                        Change::DeleteRange(name, key, format!("key{end:03}").into_bytes())
                    }
                    _ => {
                        let value = vec![rng.random_range(b'a'..=b'z'); rng.random_range(0..400)];
                        Change::Put(name, key, value)
                    }
                };
                change.add_to(&mut batch, cf.id());
                changes.push(change);
            }
            changes.iter().for_each(|change| model.apply(change));
            if let Some(order) = self.orders.get_mut(name) {
                order.push(changes);
            }
        }
        let sync = rng.random_bool(0.3);
        let issued = self.fs.op_count();
        self.issued.push(issued);
        self.states.push(model);
        db.write(&batch, &WriteOptions { sync, ..WriteOptions::default() })
            .map_err(|error| format!("write: {error}"))?;
        let written = if self.options.manual_wal_flush && !sync { 0 } else { number };
        let durable = if sync { number } else { 0 };
        self.events.push(Event { issued, returned: self.fs.op_count(), durable, written });
        Ok(())
    }

    /// A batch that comes as files, one for each column family. All memtables hold the mark, so they are flushed
    /// before: nothing that was written earlier may be lost where the files are there.
    fn ingest(&mut self, db: &Db, rng: &mut StdRng) -> Result<(), String> {
        let number = self.states.len();
        let mut model = self.states[number - 1].clone();
        let issued = self.fs.op_count();
        let failed = |error: ironstone::Error| format!("ingest: {error}");
        self.fs.create_dir_all(Path::new("/files")).map_err(failed)?;
        let cfs: Vec<_> = self.names.iter().map(|name| db.column_family(name).expect("open")).collect();
        let mut jobs = Vec::new();
        for (cf, options) in cfs.iter().zip(&self.families) {
            let mut entries = BTreeMap::from([(MARK.to_vec(), number.to_string().into_bytes())]);
            for _ in 0..rng.random_range(0..6) {
                let key = format!("key{:03}", rng.random_range(0..100)).into_bytes();
                entries.insert(key, vec![rng.random_range(b'a'..=b'z'); rng.random_range(0..400)]);
            }
            let options = Options { db: self.options.clone(), cf: options.clone() };
            let mut writer = SstFileWriter::for_column_family(&options, cf);
            let path = PathBuf::from(format!("/files/{number}-{}.sst", cf.name()));
            writer.open(&path).map_err(failed)?;
            let mut changes = Vec::new();
            for (key, value) in entries {
                writer.put(&key, &value).map_err(failed)?;
                changes.push(Change::Put(cf.name().to_owned(), key, value));
            }
            writer.finish().map_err(failed)?;
            changes.iter().for_each(|change| model.apply(change));
            if let Some(order) = self.orders.get_mut(cf.name()) {
                order.push(changes);
            }
            let options = IngestOptions { move_files: rng.random_bool(0.5), ..IngestOptions::default() };
            jobs.push(IngestFiles::new(cf, vec![path], options));
        }
        self.issued.push(issued);
        self.states.push(model);
        db.ingest_external_files_of(&jobs).map_err(failed)?;
        self.events.push(Event { issued, returned: self.fs.op_count(), durable: number, written: number });
        Ok(())
    }

    /// How many operations the workload took.
    pub fn op_count(&self) -> u64 {
        self.fs.op_count()
    }

    /// Crashes at every operation under P0 to P2 once and under each random policy with `seeds` seeds.
    /// `seen` carries the fingerprints of images over several runs, which may go on at the same time.
    pub fn explore(&self, seeds: u64, seen: &Mutex<HashSet<u64>>) -> Result<Explored, String> {
        let mut explored = Explored::default();
        // The same image may come back at a later moment, when more has been promised.
        let mut held_to: HashMap<u64, Option<usize>> = HashMap::new();
        for op in 0..self.op_count() {
            let Some(moment) = self.fs.captured(op) else { continue };
            for policy in CrashPolicy::ALL {
                let tries = if policy.is_random() { seeds } else { 1 };
                for seed in 0..tries {
                    let image = moment.crash(policy, seed ^ (op << 8));
                    explored.trials += 1;
                    let fingerprint = image.fingerprint();
                    explored.distinct += u64::from(seen.lock().insert(fingerprint));
                    let promised = self.promised(op, policy);
                    if held_to.get(&fingerprint).is_some_and(|before| promised <= *before) {
                        continue;
                    }
                    held_to.insert(fingerprint, promised);
                    let place =
                        |failure| format!("crash at operation {op}, {policy:?}, seed {seed}: {failure}");
                    if fingerprint.is_multiple_of(NESTED_ONE_IN) {
                        explored.nested += self.explore_recovery(op, policy, &image.fork()).map_err(place)?;
                    }
                    self.verify(op, policy, image).map_err(place)?;
                }
            }
        }
        Ok(explored)
    }

    /// Crashes the recovery of `image`, which a crash at operation `op` left, at every one of its operations.
    /// Answers how many different images that gave.
    fn explore_recovery(&self, op: u64, policy: CrashPolicy, image: &MemFileSystem) -> Result<u64, String> {
        let first = image.op_count();
        image.set_capturing(true);
        let options = DbOptions { env: env(image.clone()), ..self.options.clone() };
        drop(self.open(&options)); // One that cannot be opened is judged by `verify`.
        let mut seen = HashSet::new();
        for again in first..image.op_count() {
            let Some(moment) = image.captured(again) else { continue };
            for second in CrashPolicy::ALL {
                let image = moment.crash(second, again);
                if !seen.insert((image.fingerprint(), second == CrashPolicy::KeepAll)) {
                    continue;
                }
                // What only the system had is safe when both times only the process ended.
                let keeps_all = [policy, second] == [CrashPolicy::KeepAll; 2];
                let policy = if keeps_all { policy } else { CrashPolicy::DropUnsynced };
                self.verify(op, policy, image).map_err(|failure| {
                    format!("its recovery crashed at operation {again}, {second:?}: {failure}")
                })?;
            }
        }
        image.set_capturing(false);
        Ok(seen.len() as u64)
    }

    /// How many batches must survive a crash at operation `op`. `None`: not even the database was there.
    fn promised(&self, op: u64, policy: CrashPolicy) -> Option<usize> {
        let killed = policy == CrashPolicy::KeepAll;
        let returned = self.events.iter().filter(|event| event.returned <= op);
        let batches = returned.map(|event| if killed { event.written } else { event.durable }).max();
        (op >= self.created).then(|| batches.unwrap_or(0))
    }

    /// Opens a crash image and checks what came back.
    pub fn verify(&self, op: u64, policy: CrashPolicy, image: MemFileSystem) -> Result<(), String> {
        let promised = self.promised(op, policy);
        let ceiling = self.issued.iter().filter(|&&issued| issued <= op).count();
        let options = DbOptions { env: env(image), ..self.options.clone() };
        let db = match self.open(&options) {
            Ok(db) => db,
            Err(_) if promised.is_none() => return Ok(()),
            Err(error) => return Err(format!("open: {error}")),
        };
        self.check(&db, promised.unwrap_or(0), ceiling)?;
        // It goes on working, and what it did stays.
        let mut batch = WriteBatch::new();
        batch.put(b"after", b"crash");
        let synced = WriteOptions::synced();
        db.write(&batch, &synced).map_err(|error| format!("write after recovery: {error}"))?;
        drop(db);
        let db = self.open(&options).map_err(|error| format!("second open: {error}"))?;
        let found = db.get(b"after").map_err(|error| format!("get: {error}"))?;
        // The table that it is in now may be too large all by itself.
        let may_go = found.is_none() && self.orders.contains_key("default");
        if found.as_deref() != Some(b"crash") && !may_go {
            return Err("a write after recovery is gone at the second opening".to_owned());
        }
        Ok(())
    }

    fn check(&self, db: &Db, floor: usize, ceiling: usize) -> Result<(), String> {
        let all = ReadOptions { total_order_seek: true, ..ReadOptions::default() };
        let mut at = None;
        let mut found = BTreeMap::new();
        for &name in self.names {
            let cf = db.column_family(name).expect("open");
            let mark = match self.orders.contains_key(name) {
                // A second look might find less.
                true => {
                    let mut iter = db.iter_cf(&all, &cf).map_err(|error| format!("iter: {error}"))?;
                    let entries = contents(&mut iter).map_err(|error| format!("scan: {error}"))?;
                    let mark = entries.get(MARK).cloned();
                    found.insert(name, entries);
                    mark
                }
                false => {
                    let mark = db.get_cf(&all, &cf, MARK).map_err(|error| format!("get: {error}"))?;
                    mark.map(|mark| mark.to_vec())
                }
            };
            if mark.is_none() && found.get(name).is_some_and(Entries::is_empty) {
                continue; // Every batch may have gone.
            }
            let number: usize = match &mark {
                None => 0,
                Some(mark) => String::from_utf8_lossy(mark).parse().map_err(|_| "the mark is no number")?,
            };
            if *at.get_or_insert(number) != number {
                return Err(format!("{name} is at batch {number}, the others at {at:?}"));
            }
        }
        let at = at.unwrap_or(ceiling); // Where nothing is left, nothing tells.
        if at < floor || at > ceiling {
            return Err(format!("recovered batch {at}, promised at least {floor}, issued {ceiling}"));
        }
        for &name in self.names {
            if let Some(order) = self.orders.get(name) {
                let found = &found[name];
                if order.gone(found, 0, at).is_none() {
                    let count = found.len();
                    return Err(format!("{name} has {count} keys that no last batches of {at} leave"));
                }
                continue;
            }
            let cf = db.column_family(name).expect("open");
            let iter = db.iter_cf(&ReadOptions::default(), &cf).map_err(|error| format!("iter: {error}"))?;
            compare(iter, &self.states[at], name)?;
        }
        Ok(())
    }

    /// The first operation of the call that operation `op` belongs to, for reports.
    pub fn call_of(&self, op: u64) -> Option<u64> {
        self.events.iter().rev().find(|event| event.issued <= op).map(|event| event.issued)
    }

    /// Where the database is.
    pub fn dir() -> &'static Path {
        Path::new(DIR)
    }
}
