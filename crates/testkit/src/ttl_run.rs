//! Random operations through the layer whose entries expire, under a clock that the run moves. One seed is one run.
//!
//! Nobody knows when a compaction comes, so what is expired may be there or not. What is not must be there, and strict reads show
//! nothing that is; what was seen to be gone does not come back, even if the time to live grows.

use crate::random_options::{random_db_options, random_family_options, random_thread_pool};
use crate::random_run::Failure;
use ironstone::options::DbOptions;
use ironstone::{
    ColumnFamily, ColumnFamilyDescriptor, ColumnFamilyOptions, CompactRangeOptions, CompactionStyle,
    ExpiredReads, FlushOptions, ReadOptions, StackableDb, TtlColumnFamily, TtlDb, TtlValue, WriteBatch,
};
use ironstone_vfs::{Clock, Env, FileSystem, ManualClock};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const START_MICROS: u64 = 1_700_000_000_000_000;

/// What a key was put or merged to.
struct Part {
    text: Vec<u8>,
    /// When, in seconds since 1970: the clock may move within a write that is held up.
    written: RangeInclusive<u64>,
    /// It has been expired: a compaction may have taken it.
    may_be_gone: bool,
}

/// A value that was found, and when it was written.
type Value = (Vec<u8>, u64);

/// One run.
pub struct TtlRun {
    rng: StdRng,
    env: Env,
    clock: Arc<ManualClock>,
    dir: PathBuf,
    db: Option<TtlDb>,
    db_options: DbOptions,
    options: ColumnFamilyOptions,
    expired: ExpiredReads,
    /// For how many seconds entries live, now and before it was last changed: a compaction may have begun with that.
    ttls: [u32; 2],
    /// The parts of each key, oldest first.
    model: BTreeMap<Vec<u8>, Vec<Part>>,
    next_part: u32,
    trace: Vec<String>,
}

impl TtlRun {
    /// A run of `seed` in `dir` of `fs`, which must be empty.
    pub fn new(seed: u64, fs: Arc<dyn FileSystem>, dir: impl Into<PathBuf>) -> Result<Self, Failure> {
        let clock = Arc::new(ManualClock::new(START_MICROS));
        let mut run = Self {
            rng: StdRng::seed_from_u64(seed),
            env: Env { fs, clock: clock.clone() },
            clock,
            dir: dir.into(),
            db: None,
            db_options: DbOptions::default(),
            options: ColumnFamilyOptions::default(),
            expired: ExpiredReads::Hidden,
            ttls: [0, 0],
            model: BTreeMap::new(),
            next_part: 0,
            trace: Vec::new(),
        };
        run.open()?;
        Ok(run)
    }

    /// Does `count` operations, then looks at everything.
    pub fn run(&mut self, count: usize) -> Result<(), Failure> {
        for _ in 0..count {
            self.step().map_err(|failure| self.explain(&failure))?;
        }
        self.reopen().and_then(|()| self.scan()).map_err(|failure| self.explain(&failure))
    }
    fn explain(&self, failure: &str) -> Failure {
        let last = self.trace.len().saturating_sub(16);
        let (style, expired, now) = (self.options.compaction_style, self.expired, self.clock.now_seconds());
        let trace = self.trace[last..].join("\n  ");
        format!(
            "{failure}\n{style:?}, {expired:?}, at {now}, ttls {:?}\nlast operations:\n  {trace}",
            self.ttls
        )
    }
    fn note(&mut self, text: impl FnOnce() -> String) {
        if self.trace.len() > 200 {
            self.trace.drain(..100);
        }
        self.trace.push(text());
    }
    fn db(&self) -> &TtlDb {
        self.db.as_ref().expect("open between operations")
    }
    fn cf(&self) -> ColumnFamily {
        self.db().base().default_column_family().clone()
    }

    /// Opens the database, each time with other options and another time to live.
    fn open(&mut self) -> Result<(), Failure> {
        let rng = &mut self.rng;
        self.db_options = random_db_options(rng, &self.env);
        self.db_options.thread_pool = random_thread_pool(rng);
        self.db_options.rate_limiter = None; // Its time would have to go on by itself.
        self.db_options.sst_file_manager = None;
        let levels = self.options.num_levels;
        self.options = loop {
            let options = random_family_options(rng);
            if options.compaction_style != CompactionStyle::Fifo {
                break options; // It drops more than what is expired.
            }
        };
        self.options.num_levels = self.options.num_levels.max(levels).max(3);
        self.options.cf_allow_ingest_behind = false;
        self.expired = if rng.random() { ExpiredReads::Hidden } else { ExpiredReads::ShownUntilCompacted };
        let ttl = random_ttl(rng);
        self.change_ttl(ttl);
        let descriptor = ColumnFamilyDescriptor::new("default", self.options.clone());
        let families = vec![TtlColumnFamily { descriptor, ttl }];
        let db = TtlDb::open_column_families(&self.db_options, &self.dir, families, self.expired, false);
        self.db = Some(db.map_err(|error| format!("open: {error}"))?);
        Ok(())
    }

    /// Notes what a compaction may have taken by now.
    fn note_expired(&mut self) {
        let (now, ttls) = (self.clock.now_seconds(), self.ttls);
        for part in self.model.values_mut().flatten() {
            part.may_be_gone |= ttls.iter().any(|&ttl| is_expired(*part.written.start(), ttl, now));
        }
    }
    fn change_ttl(&mut self, ttl: u32) {
        self.note_expired();
        self.ttls = [ttl, self.ttls[0]];
        self.note_expired();
    }

    fn step(&mut self) -> Result<(), Failure> {
        match self.rng.random_range(0..1000) {
            0..450 => self.write(),
            450..700 => self.get(),
            700..780 => self.multi_get(),
            780..830 => self.scan(),
            830..900 => {
                let by = Duration::from_millis(self.rng.random_range(0..8000));
                self.note(|| format!("{by:?} later"));
                self.clock.advance(by);
                self.note_expired();
                Ok(())
            }
            900..920 => {
                let ttl = random_ttl(&mut self.rng);
                self.note(|| format!("entries live for {ttl} s"));
                let set = self.db().set_ttl(&self.cf(), ttl);
                self.change_ttl(ttl);
                set.map_err(|error| format!("set_ttl: {error}"))
            }
            920..960 => {
                self.note(|| "flush".to_owned());
                let flushed = self.db().base().flush_cf(&FlushOptions::default(), &self.cf());
                flushed.map_err(|error| format!("flush: {error}"))
            }
            960..990 => {
                self.note(|| "compact".to_owned());
                let options = CompactRangeOptions::default();
                let compacted = self.db().base().compact_range(&options, &self.cf(), None, None);
                compacted.map_err(|error| format!("compact_range: {error}"))
            }
            _ => self.reopen(),
        }
    }

    fn any_key(&mut self) -> Vec<u8> {
        format!("key{:02}", self.rng.random_range(0..60)).into_bytes()
    }
    fn text(&mut self) -> Vec<u8> {
        self.next_part += 1;
        let len = if self.rng.random_bool(0.1) { 1500 } else { self.rng.random_range(0..60) };
        let mut text = format!("p{}", self.next_part).into_bytes();
        text.resize(text.len() + len, b'-');
        text
    }

    fn write(&mut self) -> Result<(), Failure> {
        let mut batch = WriteBatch::new();
        let mut changes: Vec<(Vec<u8>, bool, Option<Vec<u8>>)> = Vec::new();
        for _ in 0..self.rng.random_range(1..5) {
            let key = self.any_key();
            let (merges, text) = match self.rng.random_range(0..100) {
                0..15 => (false, None),
                15..50 => (true, Some(self.text())),
                _ => (false, Some(self.text())),
            };
            match &text {
                None => batch.delete(&key),
                Some(text) if merges => batch.merge(&key, text),
                Some(text) => batch.put(&key, text),
            }
            changes.push((key, merges, text));
        }
        self.note(|| format!("batch of {}", batch.count()));
        let began = self.clock.now_seconds();
        self.db().write(&batch, &Default::default()).map_err(|error| format!("write: {error}"))?;
        let written = began..=self.clock.now_seconds();
        for (key, merges, text) in changes {
            let parts = self.model.entry(key).or_default();
            if !merges {
                parts.clear();
            }
            parts.extend(text.map(|text| Part { text, written: written.clone(), may_be_gone: false }));
        }
        Ok(())
    }

    fn get(&mut self) -> Result<(), Failure> {
        let (key, began) = (self.any_key(), self.clock.now_seconds());
        let found = self.db().get_cf(&ReadOptions::default(), &self.cf(), &key);
        self.see(&key, shown(found.map_err(|error| format!("get: {error}"))?), began)
    }

    fn multi_get(&mut self) -> Result<(), Failure> {
        let keys: Vec<Vec<u8>> = (0..self.rng.random_range(1..10)).map(|_| self.any_key()).collect();
        let began = self.clock.now_seconds();
        let found = self.db().multi_get_cf(&ReadOptions::default(), &self.cf(), &keys);
        for (key, found) in keys.iter().zip(found) {
            self.see(key, shown(found.map_err(|error| format!("multi_get: {error}"))?), began)?;
        }
        Ok(())
    }

    /// Walks over all, forward or backward.
    fn scan(&mut self) -> Result<(), Failure> {
        let began = self.clock.now_seconds();
        let forward = self.rng.random();
        let mut found = self.walk(forward).map_err(|error| format!("scan: {error}"))?;
        let keys: Vec<Vec<u8>> = (0..60).map(|number| format!("key{number:02}").into_bytes()).collect();
        for key in keys {
            let value = found.remove(&key);
            self.see(&key, value, began).map_err(|failure| format!("scan, forward {forward}: {failure}"))?;
        }
        match found.keys().next() {
            None => Ok(()),
            Some(key) => Err(format!("{} was never written", key.escape_ascii())),
        }
    }
    fn walk(&self, forward: bool) -> ironstone::Result<BTreeMap<Vec<u8>, Value>> {
        let options = ReadOptions { total_order_seek: true, ..ReadOptions::default() };
        let mut iter = self.db().iter_cf(&options, &self.cf())?;
        let mut found = BTreeMap::new();
        let mut more = if forward { iter.seek_to_first()? } else { iter.seek_to_last()? };
        while more {
            if let (Some(key), Some(value), Some(at)) = (iter.key(), iter.value(), iter.written_at()) {
                found.insert(key.to_vec(), (value.to_vec(), u64::from(at)));
            }
            more = if forward { iter.next()? } else { iter.prev()? };
        }
        Ok(found)
    }

    /// Takes in what a read that began at `began` found under `key`, if that may be.
    fn see(&mut self, key: &[u8], found: Option<Value>, began: u64) -> Result<(), Failure> {
        self.note_expired();
        let parts = self.model.entry(key.to_vec()).or_default();
        let wrong = |parts: &[Part], what: &str| {
            let lines = parts.iter().map(|part| {
                let number = part.text.split(|byte| *byte == b'-').next().unwrap_or_default();
                format!("{} of {:?}, may be gone: {}", number.escape_ascii(), part.written, part.may_be_gone)
            });
            let parts = lines.collect::<Vec<_>>().join("; ");
            Err(format!("{} {what}, written: {parts}", key.escape_ascii()))
        };
        let Some((value, at)) = found else {
            if !parts.iter().all(|part| part.may_be_gone) {
                return wrong(parts, "is not there");
            }
            if self.expired == ExpiredReads::ShownUntilCompacted {
                parts.clear();
            }
            return Ok(());
        };
        let texts: Vec<&[u8]> = value.split(|byte| *byte == b',').collect();
        let is_found = |part: &Part| texts.contains(&&*part.text);
        let (left, gone): (Vec<Part>, Vec<Part>) = std::mem::take(parts).into_iter().partition(is_found);
        *parts = left;
        if parts.iter().map(|part| &*part.text).ne(texts.iter().copied()) {
            return wrong(parts, &format!("is {}", value.escape_ascii()));
        }
        if let Some(part) = gone.iter().find(|part| !part.may_be_gone) {
            return wrong(parts, &format!("lacks {}", part.text.escape_ascii()));
        }
        let newest = parts.last().expect("a value has a part");
        if !newest.written.contains(&at) {
            return wrong(parts, &format!("is said to be of {at}"));
        }
        if self.expired == ExpiredReads::Hidden && is_expired(at, self.ttls[0], began) {
            return wrong(parts, "is there, and expired");
        }
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), Failure> {
        let closes = self.db_options.manual_wal_flush || self.rng.random();
        self.note(|| format!("reopen, closed: {closes}"));
        let db = self.db.take().expect("open between operations");
        if closes {
            db.base().close().map_err(|error| format!("close: {error}"))?;
        }
        drop(db);
        self.open()?;
        self.scan()
    }
}

/// 0, for ever, as well.
fn random_ttl(rng: &mut StdRng) -> u32 {
    if rng.random_bool(0.2) { 0 } else { rng.random_range(1..60) }
}

fn is_expired(written: u64, ttl: u32, now: u64) -> bool {
    ttl > 0 && written + u64::from(ttl) < now
}

fn shown(found: Option<TtlValue>) -> Option<Value> {
    found.map(|value| (value.to_vec(), u64::from(value.written_at())))
}
