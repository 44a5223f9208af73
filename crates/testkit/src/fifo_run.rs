//! Random operations on a column family that drops its oldest tables, by their size and by their age, and on one beside it
//! that drops nothing and shares its WAL. One seed is one run.
//!
//! A listener hears of each drop, and up to which write it goes. So what must be there is known, but for the moments in
//! which one is under way: see [`WriteOrder`]. Whether it had to be, sizes and times say.

use crate::model::{Change, Entries, Model};
use crate::random_options::{let_oldest_go, random_db_options, random_family_options};
use crate::random_run::{Failure, compare, contents};
use crate::write_order::WriteOrder;
use ironstone::options::DbOptions;
use ironstone::{
    ColumnFamily, ColumnFamilyDescriptor, ColumnFamilyOptions, CompactRangeOptions, CompactionJobInfo,
    CompactionReason, CreateCheckpointOptions, Db, DbIterator, EventListener, FlushOptions, ReadOptions,
    Snapshot, TableFileCreationInfo, TableFileDeletionInfo, TableInfo, WriteBatch, WriteOptions,
};
use ironstone_base::sync::Mutex;
use ironstone_vfs::{Clock, Env, FileSystem, ManualClock};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The 1st of January 2026, in microseconds since 1970.
const START_MICROS: u64 = 1_767_225_600_000_000;
/// The column family that drops tables; it is not `default`, so that both are written by the same batches.
const DROPS: &str = "drops";
const KEEPS: &str = "default";

/// One batch of the column family that drops tables.
#[derive(Clone, Copy)]
struct Written {
    /// Its first sequence number: it is in a table whose newest write is this or a later one, or nothing of it had to be.
    first: u64,
    /// When it was written, in seconds since 1970.
    at: u64,
}

/// One run.
pub struct FifoRun {
    rng: StdRng,
    clock: Arc<ManualClock>,
    env: Env,
    dir: PathBuf,
    db: Option<Db>,
    db_options: DbOptions,
    families: BTreeMap<&'static str, ColumnFamilyOptions>,
    /// What was written to the column family that drops tables.
    order: WriteOrder,
    written: Vec<Written>,
    /// So many of its batches have surely gone.
    gone: usize,
    /// The column family beside it.
    model: Model,
    /// Each with how many batches there were, and what the other column family held.
    snapshots: Vec<(Snapshot, usize, Model)>,
    /// An iterator, and what it showed first.
    kept: Option<(DbIterator, Entries)>,
    /// Keys of the single-delete kind that have been put and not removed since.
    put_once: BTreeSet<(&'static str, Vec<u8>)>,
    heard: Arc<Heard>,
    trace: Vec<String>,
}

/// What a listener hears of tables, and of those that are dropped.
struct Heard {
    clock: Arc<ManualClock>,
    state: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    /// In bytes, by number.
    sizes: BTreeMap<u64, u64>,
    /// The newest write of tables that were merged, which may not have kept their sequence numbers.
    newest: BTreeMap<u64, u64>,
    /// The newest write of what merges that are under way read, by job: another job may take what one has made before the
    /// listener hears that it ended.
    merging: BTreeMap<u64, u64>,
    most_bytes: u64,
    ttl: u64,
    /// Up to which sequence number tables have been dropped, and are being dropped.
    dropped: u64,
    dropping: u64,
    drops: Vec<DropForAge>,
    /// What was done, in short: for reports.
    done: Vec<String>,
    wrong: Vec<String>,
}

/// One drop, because of age: all up to this write was older than `limit`, in seconds since 1970.
struct DropForAge {
    upto: u64,
    limit: u64,
}

fn number_of(path: &std::path::Path) -> u64 {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    stem.parse().unwrap_or_default()
}

impl Tables {
    fn newest_of(&self, file: &TableInfo) -> u64 {
        let merged = self.newest.get(&file.number.0).copied().unwrap_or(0);
        merged.max(file.largest_seqno.0)
    }
    fn begin(&mut self, info: &CompactionJobInfo, now: u64) {
        let newest = info.input_files.iter().map(|file| self.newest_of(file)).max().unwrap_or(0);
        self.done.push(format!("{:?} of {} tables up to {newest}", info.reason, info.input_files.len()));
        match info.reason {
            CompactionReason::FifoMaxSize => {
                let dropped: u64 = info.input_files.iter().map(|file| file.size).sum();
                let all: u64 = self.sizes.values().sum();
                // Without the last of them it would still have been too much.
                let last = info
                    .input_files
                    .iter()
                    .max_by_key(|file| self.newest_of(file))
                    .map_or(0, |file| file.size);
                if all - dropped + last <= self.most_bytes {
                    let most = self.most_bytes;
                    self.wrong
                        .push(format!("of {all} bytes {dropped} are dropped, {most} may stay: {info:?}"));
                }
            }
            CompactionReason::FifoTtl => {
                if self.ttl == 0 {
                    self.wrong.push(format!("dropped because of its age: {info:?}"));
                }
                self.drops.push(DropForAge { upto: newest, limit: now.saturating_sub(self.ttl) });
            }
            // Tables are merged, and nothing may go.
            _ => {
                self.merging.insert(info.job_id, newest);
                return;
            }
        }
        self.dropping = self.dropping.max(newest);
    }
    fn made(&mut self, file: &TableFileCreationInfo) {
        let number = number_of(&file.path);
        self.sizes.insert(number, file.size);
        if let Some(newest) = self.merging.get(&file.job_id) {
            self.newest.insert(number, *newest);
        }
    }
    fn end(&mut self, info: &CompactionJobInfo) {
        self.done.push(format!("{:?} ended: {:?}", info.reason, info.status));
        self.merging.remove(&info.job_id);
        if info.status.is_err() {
            return; // It was given up, and everything is there.
        }
        let newest = info.input_files.iter().map(|file| self.newest_of(file)).max().unwrap_or(0);
        for file in &info.input_files {
            self.sizes.remove(&file.number.0);
            self.newest.remove(&file.number.0);
        }
        if matches!(info.reason, CompactionReason::FifoMaxSize | CompactionReason::FifoTtl) {
            self.dropped = self.dropped.max(newest);
        }
    }
}

impl EventListener for Heard {
    fn on_table_file_created(&self, file: &TableFileCreationInfo) {
        if file.cf_name == DROPS && file.status.is_ok() && file.size > 0 {
            self.state.lock().made(file);
        }
    }
    fn on_table_file_deleted(&self, file: &TableFileDeletionInfo) {
        self.state.lock().sizes.remove(&file.number.0);
    }
    fn on_compaction_begin(&self, info: &CompactionJobInfo) {
        if info.cf_name == DROPS {
            self.state.lock().begin(info, self.clock.now_seconds());
        }
    }
    fn on_compaction_completed(&self, info: &CompactionJobInfo) {
        if info.cf_name == DROPS {
            self.state.lock().end(info);
        }
    }
}

impl FifoRun {
    /// A run of `seed` in `dir` of `fs`, which must be empty.
    pub fn new(seed: u64, fs: Arc<dyn FileSystem>, dir: impl Into<PathBuf>) -> Result<Self, Failure> {
        let clock = Arc::new(ManualClock::new(START_MICROS));
        let env = Env { fs, clock: clock.clone() };
        let mut run = Self {
            rng: StdRng::seed_from_u64(seed),
            clock: Arc::clone(&clock),
            env,
            dir: dir.into(),
            db: None,
            db_options: DbOptions::default(),
            families: BTreeMap::new(),
            order: WriteOrder::default(),
            written: Vec::new(),
            gone: 0,
            model: Model::new(),
            snapshots: Vec::new(),
            kept: None,
            put_once: BTreeSet::new(),
            heard: Arc::new(Heard { clock, state: Mutex::default() }),
            trace: Vec::new(),
        };
        run.open()?;
        Ok(run)
    }

    /// Does `count` operations, then looks at everything once more.
    pub fn run(&mut self, count: usize) -> Result<(), Failure> {
        for _ in 0..count {
            self.step().map_err(|failure| self.explain(&failure))?;
        }
        let ended = self.settle().and_then(|()| self.reopen()).and_then(|()| self.scan());
        ended.map_err(|failure| self.explain(&failure))
    }

    fn explain(&self, failure: &str) -> Failure {
        let last = self.trace.len().saturating_sub(20);
        let options = &self.families[DROPS];
        let done = &self.heard.state.lock().done;
        let fifo = &options.compaction_options_fifo;
        format!(
            "{failure}\nat most {} bytes, merges {}, ttl {}, buffer {}, atomic {}; {} batches, {} gone\nlast compactions: {:?}\nlast operations:\n  {}",
            fifo.max_table_files_size,
            fifo.allow_compaction,
            options.ttl,
            options.write_buffer_size,
            self.db_options.atomic_flush,
            self.order.len(),
            self.gone,
            done.iter().rev().take(6).rev().collect::<Vec<_>>(),
            self.trace[last..].join("\n  ")
        )
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("open between operations")
    }
    fn family(&self, name: &str) -> ColumnFamily {
        self.db().column_family(name).expect("both are open")
    }
    fn descriptors(&self) -> Vec<ColumnFamilyDescriptor> {
        let families = self.families.iter();
        families.map(|(name, options)| ColumnFamilyDescriptor::new(*name, options.clone())).collect()
    }

    /// Opens the database, each time with other options.
    fn open(&mut self) -> Result<(), Failure> {
        let rng = &mut self.rng;
        self.db_options = random_db_options(rng, &self.env);
        self.db_options.rate_limiter = None; // Its time would have to go on by itself.
        self.db_options.sst_file_manager = None;
        for name in [KEEPS, DROPS] {
            let mut options = random_family_options(rng);
            options.inplace_update_support = false; // Snapshots look back.
            match name {
                DROPS => let_oldest_go(rng, &mut options),
                _ => options.num_levels = 7,
            }
            self.families.insert(name, options);
        }
        {
            let mut tables = self.heard.state.lock();
            tables.merging.clear(); // Jobs are counted anew.
            let options = &self.families[DROPS];
            (tables.most_bytes, tables.ttl) =
                (options.compaction_options_fifo.max_table_files_size, options.ttl);
        }
        let options = DbOptions { listeners: vec![self.heard.clone()], ..self.db_options.clone() };
        let db = Db::open_column_families(&options, &self.dir, self.descriptors());
        self.db = Some(db.map_err(|error| format!("open: {error}"))?);
        Ok(())
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if self.trace.len() > 200 {
            self.trace.drain(..100);
        }
        self.trace.push(text());
    }

    fn step(&mut self) -> Result<(), Failure> {
        match self.rng.random_range(0..1000) {
            0..600 => self.write(),
            600..780 => self.get(),
            780..830 => self.flush(),
            830..840 => self.compact(),
            840..880 => {
                let by = Duration::from_millis(self.rng.random_range(0..4000));
                self.note(|| format!("time goes on by {by:?}"));
                self.clock.advance(by);
                Ok(())
            }
            880..910 => self.snapshot(),
            910..955 => self.scan(),
            955..975 => self.look_at_kept(),
            975..985 => self.settle(),
            985..995 => self.reopen(),
            _ => self.copy(),
        }
    }

    fn change(&mut self, family: &'static str) -> (Change, bool) {
        let (name, number) = (family.to_owned(), self.rng.random_range(0..60));
        let len = if self.rng.random_bool(0.1) { 2000 } else { 80 };
        let len = self.rng.random_range(1..len);
        let value: Vec<u8> = (0..len).map(|_| self.rng.random_range(b'a'..=b'z')).collect();
        if number >= 50 {
            let key = format!("single{number}").into_bytes();
            let place = (family, key.clone());
            if self.put_once.remove(&place) {
                return (Change::Delete(name, key), true);
            }
            self.put_once.insert(place);
            return (Change::Put(name, key, value), false);
        }
        let key = format!("key{number:02}").into_bytes();
        let change = match self.rng.random_range(0..100) {
            0..20 => Change::Delete(name, key),
            20..35 => Change::Append(name, key, value[..value.len().min(10)].to_vec()),
            35..38 => {
                Change::DeleteRange(name, key, format!("key{:02}", self.rng.random_range(number..60)).into())
            }
            _ => Change::Put(name, key, value),
        };
        (change, false)
    }

    fn write(&mut self) -> Result<(), Failure> {
        let mut batch = WriteBatch::new();
        let (mut dropping, mut changes) = (Vec::new(), Vec::new());
        for _ in 0..self.rng.random_range(1..6) {
            let family = if self.rng.random_bool(0.8) { DROPS } else { KEEPS };
            let (change, single) = self.change(family);
            let cf = self.family(family).id();
            match &change {
                Change::Delete(_, key) if single => batch.single_delete_in(cf, key),
                _ => change.add_to(&mut batch, cf),
            }
            if family == DROPS { dropping.push(change) } else { changes.push(change) }
        }
        self.note(|| format!("batch of {} and {}", dropping.len(), changes.len()));
        let sync = self.rng.random_bool(0.05);
        let first = self.db().latest_sequence().0 + 1;
        let options = WriteOptions { sync, ..WriteOptions::default() };
        self.db().write(&batch, &options).map_err(|error| format!("write: {error}"))?;
        changes.iter().for_each(|change| self.model.apply(change));
        if !dropping.is_empty() {
            self.order.push(dropping);
            self.written.push(Written { first, at: self.clock.now_seconds() });
        }
        Ok(())
    }

    /// How many batches must have gone, and how many may have, by what was heard.
    fn heard(&mut self) -> Result<(usize, usize), Failure> {
        let mut tables = self.heard.state.lock();
        if let Some(wrong) = tables.wrong.first() {
            return Err(wrong.clone());
        }
        for DropForAge { upto, limit } in tables.drops.drain(..) {
            let young = |batch: &&Written| batch.first <= upto && batch.at >= limit;
            if let Some(batch) = self.written.iter().find(young) {
                return Err(format!(
                    "what is from before {limit} was to go, and {} went, of {}",
                    upto, batch.at
                ));
            }
        }
        let most = self.written.partition_point(|batch| batch.first <= tables.dropping);
        let least = self.written.partition_point(|batch| batch.first <= tables.dropped);
        self.gone = self.gone.max(least);
        Ok((self.gone, most))
    }

    /// Judges all that was found of the first `upto` batches, read between two moments of which `least` is the first one's.
    fn judge(&mut self, what: &str, found: &Entries, least: usize, upto: usize) -> Result<(), Failure> {
        let (_, most) = self.heard()?;
        match self.order.gone(found, least, upto) {
            Some(gone) if gone <= most.max(least) || gone >= upto && most >= upto => Ok(()),
            Some(gone) => Err(format!("{what}: {gone} batches are gone, and at most {most} were dropped")),
            None => {
                let expected = self.order.left(least);
                let differs = |key: &&Vec<u8>| found.get(*key) != expected.get(*key);
                let keys: Vec<_> = found.keys().chain(expected.keys()).filter(differs).take(4).collect();
                let keys: Vec<_> = keys.iter().map(|key| key.escape_ascii().to_string()).collect();
                Err(format!("{what}: no number of batches from {least} to {most} gone leaves this: {keys:?}"))
            }
        }
    }

    fn get(&mut self) -> Result<(), Failure> {
        let number = self.rng.random_range(0..60);
        let key =
            if number < 50 { format!("key{number:02}") } else { format!("single{number}") }.into_bytes();
        let back = (self.rng.random_bool(0.3) && !self.snapshots.is_empty())
            .then(|| self.rng.random_range(0..self.snapshots.len()));
        let snapshot = back.map(|at| self.snapshots[at].0.clone());
        let upto = back.map_or(self.order.len(), |at| self.snapshots[at].1);
        let options = ReadOptions { snapshot, ..ReadOptions::default() };
        let (least, _) = self.heard()?;
        let found = self.db().get_cf(&options, &self.family(DROPS), &key);
        let found = found.map_err(|error| format!("get: {error}"))?.map(|value| value.to_vec());
        let (_, most) = self.heard()?;
        if !self.order.may_be(&key, found.as_deref(), (least, most), upto) {
            let (shown, found) = (key.escape_ascii(), found.map(|value| value.escape_ascii().to_string()));
            let changes = self.order.changes_of(&key);
            return Err(format!(
                "get {shown} of the first {upto} batches: {found:?}, {least} to {most} are gone; {changes:?}"
            ));
        }
        let held = back.map_or(&self.model, |at| &self.snapshots[at].2).family(KEEPS).get(&key);
        let beside = self.db().get_cf(&options, &self.family(KEEPS), &key);
        match beside.map_err(|error| format!("get: {error}"))?.as_deref() == held.map(Vec::as_slice) {
            true => Ok(()),
            false => Err(format!("get {} of the other column family", key.escape_ascii())),
        }
    }

    /// Reads both column families whole, now or at a snapshot.
    fn scan(&mut self) -> Result<(), Failure> {
        let back = (self.rng.random_bool(0.4) && !self.snapshots.is_empty())
            .then(|| self.rng.random_range(0..self.snapshots.len()));
        let snapshot = back.map(|at| self.snapshots[at].0.clone());
        let upto = back.map_or(self.order.len(), |at| self.snapshots[at].1);
        let options = ReadOptions { snapshot, total_order_seek: true, ..ReadOptions::default() };
        let (least, _) = self.heard()?;
        let said = |error: ironstone::Error| format!("scan: {error}");
        let mut iter = self.db().iter_cf(&options, &self.family(DROPS)).map_err(said)?;
        let found = contents(&mut iter).map_err(said)?;
        self.judge("scan", &found, least, upto)?;
        if back.is_none() && self.kept.is_none() {
            self.kept = Some((iter, found));
        }
        let model = back.map_or(&self.model, |at| &self.snapshots[at].2);
        let beside = self.db().iter_cf(&options, &self.family(KEEPS)).map_err(said)?;
        compare(beside, model, KEEPS)
    }

    /// What an iterator shows stays, whatever is dropped.
    fn look_at_kept(&mut self) -> Result<(), Failure> {
        let Some((mut iter, before)) = self.kept.take() else { return Ok(()) };
        let now = contents(&mut iter).map_err(|error| format!("an iterator that was kept: {error}"))?;
        match now == before {
            true => Ok(()),
            false => Err(format!("an iterator showed {} keys, and shows {} others", before.len(), now.len())),
        }
    }

    fn snapshot(&mut self) -> Result<(), Failure> {
        if self.snapshots.len() < 4 {
            self.note(|| "snapshot".to_owned());
            self.snapshots.push((self.db().snapshot(), self.order.len(), self.model.clone()));
        } else {
            let at = self.rng.random_range(0..self.snapshots.len());
            self.snapshots.swap_remove(at);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.note(|| "flush".to_owned());
        let flushed = self.db().flush_cf(&FlushOptions::default(), &self.family(DROPS));
        flushed.map_err(|error| format!("flush: {error}"))
    }

    fn compact(&mut self) -> Result<(), Failure> {
        self.note(|| "compact".to_owned());
        let options = CompactRangeOptions::default();
        let compacted = self.db().compact_range(&options, &self.family(DROPS), None, None);
        compacted.map_err(|error| format!("compact_range: {error}"))
    }

    /// Waits until nothing is under way: what is left is no more than may be, and no older, and what was not dropped is there.
    fn settle(&mut self) -> Result<(), Failure> {
        let before = self.order.len();
        let (ttl, most_bytes) = {
            let tables = self.heard.state.lock();
            (tables.ttl, tables.most_bytes)
        };
        let ages = ttl > 0 && self.rng.random();
        self.note(|| format!("settle, all is too old: {ages}"));
        self.flush()?;
        if ages {
            // A table that is merged later counts as made then.
            self.db().wait_for_compact().map_err(|error| format!("wait_for_compact: {error}"))?;
            self.clock.advance(Duration::from_secs(ttl + 2));
        }
        // What is flushed now has somebody look at the others.
        let put = Change::Put(DROPS.to_owned(), b"key00".to_vec(), b"settled".to_vec());
        let first = self.db().latest_sequence().0 + 1;
        let wrote = self.db().put_cf(&WriteOptions::default(), &self.family(DROPS), b"key00", b"settled");
        wrote.map_err(|error| format!("put: {error}"))?;
        self.order.push(vec![put]);
        self.written.push(Written { first, at: self.clock.now_seconds() });
        self.flush()?;
        self.db().wait_for_compact().map_err(|error| format!("wait_for_compact: {error}"))?;
        let mut files = self.db().live_files();
        files.retain(|file| file.column_family == DROPS);
        let bytes: u64 = files.iter().map(|file| file.size).sum();
        if bytes > most_bytes {
            return Err(format!("there are {bytes} bytes, {most_bytes} may stay: {files:?}"));
        }
        let (least, most) = self.heard()?;
        if ages && self.order.left(least) != self.order.left(before) {
            return Err(format!("{least} batches are gone, and {before} were older than {ttl} s: {files:?}"));
        }
        let kept =
            if most_bytes == 1 << 50 && ttl == 0 { self.order.len() } else { self.order.len() - least };
        self.note(|| format!("{kept} batches in {} tables of {bytes} bytes", files.len()));
        match least.max(self.gone) >= most || files.is_empty() {
            true => self.scan(),
            false => Err(format!("{least} to {most} batches are gone while nothing is under way")),
        }
    }

    fn reopen(&mut self) -> Result<(), Failure> {
        self.snapshots.clear();
        self.kept = None;
        self.heard()?;
        let closes = self.db_options.manual_wal_flush || self.rng.random();
        self.note(|| format!("reopen, closed: {closes}"));
        let db = self.db.take().expect("open between operations");
        if closes {
            db.close().map_err(|error| format!("close: {error}"))?;
        }
        drop(db);
        self.heard()?;
        self.open()?;
        self.scan()
    }

    /// A checkpoint has what is left, or less.
    fn copy(&mut self) -> Result<(), Failure> {
        self.note(|| "checkpoint".to_owned());
        let path = self.dir.with_extension("copy");
        let log_size_for_flush = if self.rng.random() { 0 } else { u64::MAX };
        let options = CreateCheckpointOptions { log_size_for_flush, atomic_flush: self.rng.random() };
        let said = |error: ironstone::Error| format!("checkpoint: {error}");
        let (least, _) = self.heard()?;
        self.db().create_checkpoint(&path, &options).map_err(said)?;
        let copy = Db::open_read_only(&self.db_options, &path, self.descriptors()).map_err(said)?;
        let cf = copy.column_family(DROPS).expect("both are open");
        let all = ReadOptions { total_order_seek: true, ..ReadOptions::default() };
        let found = copy.iter_cf(&all, &cf).and_then(|mut iter| contents(&mut iter)).map_err(said)?;
        self.judge("checkpoint", &found, least, self.order.len())?;
        let beside = copy.column_family(KEEPS).expect("both are open");
        compare(copy.iter_cf(&all, &beside).map_err(said)?, &self.model, KEEPS)?;
        copy.close().map_err(said)?;
        drop(copy);
        Db::destroy(&self.db_options, &path).map_err(said)
    }
}
