//! Random operations on a column family with a compaction filter that removes, changes and skips. One seed is one run.
//!
//! What the filter does with a value or an operand follows from its first letter. Nobody knows when it is asked, so a key
//! may be as it was written or as the filter leaves it; once it was seen in one way it does not go back. After a compaction of
//! everything it is as the filter leaves it.

use crate::random_options::{random_db_options, random_family_options, random_thread_pool};
use crate::random_run::{Failure, contents};
use ironstone::options::DbOptions;
use ironstone::{
    BottommostPolicy, ColumnFamily, ColumnFamilyDescriptor, ColumnFamilyOptions, CompactRangeOptions,
    CompactionFilter, CompactionFilterFactory, CompactionStyle, Db, FilterContext, FilterDecision,
    FlushOptions, ReadOptions, Snapshot, TableFileCreationReason, WriteBatch,
};
use ironstone_vfs::{Env, FileSystem, SystemClock};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// So many keys that are put once are skipped together at most.
const GROUP: u32 = 10;

/// Removes what begins with `r`, makes `k` of a first `c`. Of keys that are put once (`z…`) it purges what begins with
/// `p`, and drops everything from one that begins with `s` to the end of its group.
struct ByLetter;

impl CompactionFilter for ByLetter {
    fn name(&self) -> &str {
        "testkit.ByLetter"
    }
    fn filter(&self, _level: usize, key: &[u8], value: &[u8]) -> FilterDecision {
        match (key.first(), value.first()) {
            (_, Some(b'r')) => FilterDecision::Remove,
            (_, Some(b'c')) => FilterDecision::Change(kept(value)),
            (Some(b'z'), Some(b'p')) => FilterDecision::Purge,
            (Some(b'z'), Some(b's')) => FilterDecision::RemoveAndSkipUntil(end_of_group(key)),
            _ => FilterDecision::Keep,
        }
    }
    fn filter_merge_operand(&self, _level: usize, _key: &[u8], operand: &[u8]) -> FilterDecision {
        match operand.first() {
            Some(b'r') => FilterDecision::Remove,
            Some(b'c') => FilterDecision::Change(kept(operand)),
            _ => FilterDecision::Keep,
        }
    }
}

/// For tables of every reason.
impl CompactionFilterFactory for ByLetter {
    fn name(&self) -> &str {
        "testkit.ByLetterFactory"
    }
    fn should_filter_table_file_creation(&self, _reason: TableFileCreationReason) -> bool {
        true
    }
    fn create(&self, _context: &FilterContext) -> Option<Box<dyn CompactionFilter>> {
        Some(Box::new(Self))
    }
}

/// `value` with `k` for its first letter.
fn kept(value: &[u8]) -> Vec<u8> {
    let mut kept = value.to_vec();
    kept[0] = b'k';
    kept
}
fn once_key(number: u32) -> Vec<u8> {
    format!("z{number:06}").into_bytes()
}
fn number_of(key: &[u8]) -> u32 {
    String::from_utf8_lossy(&key[1..]).parse().expect("a key that is put once")
}
/// The first key of the next group.
fn end_of_group(key: &[u8]) -> Vec<u8> {
    once_key((number_of(key) / GROUP + 1) * GROUP)
}

/// What a key was put and merged to, oldest first; nothing, if it is not there.
type Parts = Vec<Vec<u8>>;

fn parts_of(value: Option<&[u8]>) -> Parts {
    value.map_or_else(Vec::new, |value| value.split(|&byte| byte == b',').map(<[u8]>::to_vec).collect())
}

/// Whether the filter may have made `found` of `written`: parts have been changed, and some removed that begin with `r`, each
/// perhaps with those after it that it had been merged with.
fn may_become(written: &[Vec<u8>], found: &[Vec<u8>]) -> bool {
    let is = |part: &Vec<u8>, found: &Vec<u8>| part == found || (part[0] == b'c' && kept(part) == *found);
    // Whether the first so many of `found` may be what is left of those of `written` so far, the last of them removed or not.
    let (mut whole, mut cut) = (vec![false; found.len() + 1], vec![false; found.len() + 1]);
    whole[0] = true;
    for part in written {
        let removed: Vec<bool> =
            (0..=found.len()).map(|at| cut[at] || (part[0] == b'r' && whole[at])).collect();
        let mut next = vec![false; found.len() + 1];
        for at in 0..found.len() {
            next[at + 1] = (whole[at] || cut[at]) && is(part, &found[at]);
        }
        (whole, cut) = (next, removed);
    }
    whole[found.len()] || cut[found.len()]
}

/// A key that was put once.
#[derive(Clone)]
struct Once {
    value: Vec<u8>,
    /// It was seen that the filter had removed it.
    is_gone: bool,
}

/// What the column family may hold.
#[derive(Clone, Default)]
struct Filtered {
    keys: BTreeMap<Vec<u8>, Parts>,
    once: BTreeMap<u32, Once>,
}

impl Filtered {
    /// Whether the filter may remove key `number`, for its own value or with one before it in its group.
    fn may_lose(&self, number: u32) -> bool {
        let removed = matches!(self.once[&number].value[0], b'r' | b'p');
        let group = number / GROUP * GROUP;
        removed || self.once.range(group..=number).any(|(_, once)| once.value[0] == b's')
    }
    /// Takes in what was found under `key`, if that may be.
    fn see(&mut self, key: &[u8], found: Option<&[u8]>) -> Result<(), Failure> {
        let shown = |value: &[u8]| value.escape_ascii().to_string();
        if key[0] == b'z' {
            let number = number_of(key);
            let may_lose = self.once.contains_key(&number) && self.may_lose(number);
            let Some(once) = self.once.get_mut(&number) else {
                return found.map_or(Ok(()), |_| Err(format!("{} was never put", shown(key))));
            };
            let (value, is_there) = (&once.value, found.is_some());
            let changed = value[0] == b'c' && found == Some(&kept(value));
            let is_its = found == Some(value) || changed || (!is_there && may_lose);
            if !is_its || (is_there && once.is_gone) {
                let (key, gone) = (shown(key), once.is_gone);
                return Err(format!(
                    "{key} is {:?}, it was put {}, gone before: {gone}",
                    found.map(shown),
                    shown(value)
                ));
            }
            once.is_gone |= !is_there;
            if changed {
                once.value = kept(&once.value);
            }
            return Ok(());
        }
        let (written, found) = (self.keys.entry(key.to_vec()).or_default(), parts_of(found));
        if !may_become(written, &found) {
            let [written, found] =
                [&*written, &found].map(|parts| String::from_utf8_lossy(&parts.join(&b',')).into_owned());
            return Err(format!("{} is {found}, which was never made of {written}", shown(key)));
        }
        *written = found;
        Ok(())
    }
}

/// One run.
pub struct FilteredRun {
    rng: StdRng,
    env: Env,
    dir: PathBuf,
    db: Option<Db>,
    db_options: DbOptions,
    options: ColumnFamilyOptions,
    model: Filtered,
    snapshots: Vec<(Snapshot, Filtered)>,
    next_part: u32,
    trace: Vec<String>,
}

impl FilteredRun {
    /// A run of `seed` in `dir` of `fs`, which must be empty.
    pub fn new(seed: u64, fs: Arc<dyn FileSystem>, dir: impl Into<PathBuf>) -> Result<Self, Failure> {
        let mut run = Self {
            rng: StdRng::seed_from_u64(seed),
            env: Env { fs, clock: Arc::new(SystemClock::new()) },
            dir: dir.into(),
            db: None,
            db_options: DbOptions::default(),
            options: ColumnFamilyOptions::default(),
            model: Filtered::default(),
            snapshots: Vec::new(),
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
        let ended = self.reopen().and_then(|()| self.compact_all()).and_then(|()| self.scan());
        ended.map_err(|failure| self.explain(&failure))
    }
    fn explain(&self, failure: &str) -> Failure {
        let last = self.trace.len().saturating_sub(16);
        let (style, levels) = (self.options.compaction_style, self.options.num_levels);
        let by_factory = self.options.compaction_filter_factory.is_some();
        let trace = self.trace[last..].join("\n  ");
        format!("{failure}\n{style:?}, {levels} levels, factory {by_factory}\nlast operations:\n  {trace}")
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("open between operations")
    }
    fn cf(&self) -> ColumnFamily {
        self.db().default_column_family().clone()
    }
    fn note(&mut self, text: impl FnOnce() -> String) {
        if self.trace.len() > 200 {
            self.trace.drain(..100);
        }
        self.trace.push(text());
    }

    /// Opens the database, each time with other options.
    fn open(&mut self) -> Result<(), Failure> {
        let rng = &mut self.rng;
        self.db_options = random_db_options(rng, &self.env);
        self.db_options.thread_pool = random_thread_pool(rng);
        let levels = self.options.num_levels;
        self.options = loop {
            let options = random_family_options(rng);
            if options.compaction_style != CompactionStyle::Fifo {
                break options; // It would not rewrite everything.
            }
        };
        let options = &mut self.options;
        options.num_levels = options.num_levels.max(levels).max(3);
        options.inplace_update_support = false; // Snapshots look back.
        options.cf_allow_ingest_behind = false;
        (options.compaction_filter, options.compaction_filter_factory) = (None, None);
        match rng.random_range(0..5) {
            0 => {}
            1 | 2 => options.compaction_filter = Some(Arc::new(ByLetter)),
            _ => options.compaction_filter_factory = Some(Arc::new(ByLetter)),
        }
        let descriptor = ColumnFamilyDescriptor::new("default", self.options.clone());
        let db = Db::open_column_families(&self.db_options, &self.dir, vec![descriptor]);
        self.db = Some(db.map_err(|error| format!("open: {error}"))?);
        Ok(())
    }

    fn step(&mut self) -> Result<(), Failure> {
        match self.rng.random_range(0..1000) {
            0..600 => self.write(),
            600..850 => self.get(),
            850..890 => self.scan(),
            890..920 => self.snapshot(),
            920..960 => {
                self.note(|| "flush".to_owned());
                let flushed = self.db().flush_cf(&FlushOptions::default(), &self.cf());
                flushed.map_err(|error| format!("flush: {error}"))
            }
            960..985 => self.compact_some(),
            985..990 => self.compact_all(),
            _ => self.reopen(),
        }
    }

    fn part(&mut self) -> Vec<u8> {
        self.next_part += 1;
        let letter = [b'k', b'k', b'c', b'r'][self.rng.random_range(0..4)];
        let len = if self.rng.random_bool(0.1) { 1500 } else { self.rng.random_range(0..60) };
        let mut part = format!("{}{}", char::from(letter), self.next_part).into_bytes();
        part.resize(part.len() + len, b'-');
        part
    }

    fn write(&mut self) -> Result<(), Failure> {
        let mut batch = WriteBatch::new();
        for _ in 0..self.rng.random_range(1..5) {
            let number = self.rng.random_range(0..60);
            let key = format!("key{number:02}").into_bytes();
            match self.rng.random_range(0..100) {
                0..15 => {
                    batch.delete(&key);
                    self.model.keys.remove(&key);
                }
                15..45 => {
                    let part = self.part();
                    batch.merge(&key, &part);
                    self.model.keys.entry(key).or_default().push(part);
                }
                45..48 => {
                    let end = format!("key{:02}", self.rng.random_range(number..70)).into_bytes();
                    batch.delete_range(&key, &end);
                    self.model.keys.retain(|other, _| *other < key || *other >= end);
                }
                48..70 => {
                    let number = self.model.once.len() as u32;
                    let letter = *b"kkkkkkcrps".get(self.rng.random_range(0..10)).expect("there are ten");
                    let mut value = format!("{}{number}", char::from(letter)).into_bytes();
                    value.resize(value.len() + self.rng.random_range(0..100), b'.');
                    batch.put(once_key(number), &value);
                    self.model.once.insert(number, Once { value, is_gone: false });
                }
                _ => {
                    let part = self.part();
                    batch.put(&key, &part);
                    self.model.keys.insert(key, vec![part]);
                }
            }
        }
        self.note(|| format!("batch of {}", batch.count()));
        self.db().write(&batch, &Default::default()).map_err(|error| format!("write: {error}"))
    }

    /// Now, or at a snapshot.
    fn moment(&mut self) -> (ReadOptions, Option<usize>) {
        let back = (self.rng.random_bool(0.3) && !self.snapshots.is_empty())
            .then(|| self.rng.random_range(0..self.snapshots.len()));
        let snapshot = back.map(|at| self.snapshots[at].0.clone());
        (ReadOptions { snapshot, total_order_seek: true, ..ReadOptions::default() }, back)
    }
    fn model_at(&mut self, back: Option<usize>) -> &mut Filtered {
        match back {
            Some(at) => &mut self.snapshots[at].1,
            None => &mut self.model,
        }
    }

    fn get(&mut self) -> Result<(), Failure> {
        let (options, back) = self.moment();
        let most = self.model.once.len() as u32;
        let key = match self.rng.random_bool(0.4) && most > 0 {
            true => once_key(self.rng.random_range(0..most)),
            false => format!("key{:02}", self.rng.random_range(0..60)).into_bytes(),
        };
        let found = self.db().get_cf(&options, &self.cf(), &key).map_err(|error| format!("get: {error}"))?;
        self.model_at(back)
            .see(&key, found.as_deref())
            .map_err(|failure| format!("get at {back:?}: {failure}"))
    }

    fn scan(&mut self) -> Result<(), Failure> {
        let (options, back) = self.moment();
        let iter = self.db().iter_cf(&options, &self.cf());
        let found =
            iter.and_then(|mut iter| contents(&mut iter)).map_err(|error| format!("scan: {error}"))?;
        let model = self.model_at(back);
        let mut keys: BTreeSet<Vec<u8>> = model.keys.keys().chain(found.keys()).cloned().collect();
        keys.extend(model.once.keys().map(|number| once_key(*number)));
        for key in keys {
            let seen = model.see(&key, found.get(&key).map(Vec::as_slice));
            seen.map_err(|failure| format!("scan at {back:?}: {failure}"))?;
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<(), Failure> {
        if self.snapshots.len() < 3 {
            self.note(|| "snapshot".to_owned());
            self.snapshots.push((self.db().snapshot(), self.model.clone()));
        } else {
            let at = self.rng.random_range(0..self.snapshots.len());
            self.snapshots.swap_remove(at);
        }
        Ok(())
    }

    fn compact_some(&mut self) -> Result<(), Failure> {
        let mut range = [0, 0].map(|_| format!("key{:02}", self.rng.random_range(0..60)).into_bytes());
        range.sort();
        let [begin, end] = &range;
        let end = self.rng.random_bool(0.7).then_some(end.as_slice());
        self.note(|| "compact some".to_owned());
        let compacted =
            self.db().compact_range(&CompactRangeOptions::default(), &self.cf(), Some(begin), end);
        compacted.map_err(|error| format!("compact_range: {error}"))
    }

    /// Compacts everything. No key has a value then that the filter does not keep, if there is one; what was merged by that is
    /// asked about the next time.
    fn compact_all(&mut self) -> Result<(), Failure> {
        self.note(|| "compact all".to_owned());
        self.snapshots.clear();
        let options = CompactRangeOptions {
            bottommost_level_compaction: BottommostPolicy::Force,
            ..CompactRangeOptions::default()
        };
        for _ in 0..2 {
            let compacted = self.db().compact_range(&options, &self.cf(), None, None);
            compacted.map_err(|error| format!("compact_range: {error}"))?;
        }
        self.scan()?;
        if self.options.compaction_filter.is_none() && self.options.compaction_filter_factory.is_none() {
            return Ok(());
        }
        let merged = self.model.keys.iter().filter_map(|(key, parts)| Some((key.clone(), parts.first()?[0])));
        let once = self.model.once.iter().filter(|(_, once)| !once.is_gone);
        let once = once.map(|(number, once)| (once_key(*number), once.value[0]));
        let is_left_over = |(key, letter): &(Vec<u8>, u8)| {
            matches!(letter, b'c' | b'r') || (key[0] == b'z' && *letter != b'k')
        };
        match merged.chain(once).find(is_left_over) {
            None => Ok(()),
            Some((key, letter)) => {
                let (key, letter) = (key.escape_ascii(), char::from(letter));
                Err(format!("{key} begins with {letter} after a compaction of everything"))
            }
        }
    }

    fn reopen(&mut self) -> Result<(), Failure> {
        self.snapshots.clear();
        let closes = self.db_options.manual_wal_flush || self.rng.random();
        self.note(|| format!("reopen, closed: {closes}"));
        let db = self.db.take().expect("open between operations");
        if closes {
            db.close().map_err(|error| format!("close: {error}"))?;
        }
        drop(db);
        self.open()?;
        self.scan()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_changes_parts_and_removes_some_with_those_that_were_merged_to_them() {
        let may = |written: &str, found: &str| {
            let [written, found] =
                [written, found].map(|text| parts_of((!text.is_empty()).then_some(text.as_bytes())));
            may_become(&written, &found)
        };
        for (written, found) in [
            ("", ""),
            ("k1", "k1"),
            ("c1", "k1"),
            ("c1", "c1"),
            ("r1", ""),
            ("r1", "r1"),
            ("k1,r2,k3", "k1,k3"),
            ("k1,r2,k3", "k1"),
            ("r1,k2,c3", "k2,k3"),
            ("r1,k2,c3", ""),
            ("c1,r2", "k1"),
        ] {
            assert!(may(written, found), "{written} to {found}");
        }
        for (written, found) in [
            ("", "k1"),
            ("k1", ""),
            ("k1", "c1"),
            ("k1,k2", "k1"),
            ("k1,r2,k3", "k3"),
            ("k1,k2,r3", "k1"),
            ("c1,k2", "k2"),
            ("r1", "k1"),
            ("k1,k2", "k2,k1"),
        ] {
            assert!(!may(written, found), "{written} to {found}");
        }
    }
}
