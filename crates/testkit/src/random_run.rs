//! Random operations on a database and on the model, compared all the way. One seed is one run:
//! the operations depend on nothing else.

mod behind;
mod copies;
mod from_outside;
mod heard;
mod removal;
mod shape;

use crate::model::{Change, Entries, Model};
use crate::random_options::{
    random_cuckoo_family_options, random_db_changes, random_db_options, random_family_changes,
    random_family_options, random_flat_family_options, random_thread_pool,
};
use behind::Touched;
use heard::Heard;
use ironstone::options::DbOptions;
use ironstone::{
    Code, ColumnFamily, ColumnFamilyDescriptor, ColumnFamilyOptions, CompactRangeOptions, CompactionStyle,
    Db, DbIterator, DbPath, FlushOptions, IoPriority, ReadOptions, SliceTransform, Snapshot, TableFormat,
    ThreadPool, WriteBatch, WriteOptions,
};
use ironstone_vfs::Env;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A difference between database and model, or an error where there must be none.
pub type Failure = String;

/// One run.
pub struct RandomRun {
    rng: StdRng,
    /// For the threads of the background, on which operations do not depend.
    rng_of_threads: StdRng,
    env: Env,
    dir: PathBuf,
    /// Where its tables are, if they are elsewhere.
    paths: Vec<DbPath>,
    db: Option<Db>,
    db_options: DbOptions,
    families: BTreeMap<String, ColumnFamilyOptions>,
    /// Those that never have range tombstones: their tables may be plain.
    flat: BTreeSet<String>,
    /// Those of them whose keys have one length, and their values too, and that know puts and deletes only: their tables may
    /// be cuckoo tables.
    cuckoo: BTreeSet<String>,
    /// Files from outside are ingested. Without a MANIFEST nobody knows what to do with these, so not in every run.
    ingests: bool,
    model: Model,
    /// Each with what the database held, and what had been written by then.
    snapshots: Vec<(Snapshot, Model, Touched)>,
    /// Keys of the single-delete kind that have been put and not removed since.
    put_once: BTreeSet<(String, Vec<u8>)>,
    touched: Touched,
    /// Tables were removed whose writes a WAL may still have.
    has_removed: bool,
    key_count: u32,
    trace: Vec<String>,
    next_family: u32,
    /// An iterator of an earlier moment.
    kept: Option<Walk>,
    /// Another opening, which reads the tables.
    follower: Option<Db>,
    /// Another opening, which reads tables and WALs.
    secondary: Option<Db>,
    heard: Arc<Heard>,
}

/// The names of the column families that exist, or `None` of them.
const MAX_FAMILIES: usize = 4;

impl RandomRun {
    /// A run of `seed` in `dir` of `env`, which must be empty.
    pub fn new(seed: u64, env: Env, dir: impl Into<PathBuf>) -> Result<Self, Failure> {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut rng_of_threads = StdRng::seed_from_u64(!seed);
        let dir: PathBuf = dir.into();
        let paths = paths_of(seed, &dir);
        let db_options = DbOptions {
            db_paths: paths.clone(),
            thread_pool: random_thread_pool(&mut rng_of_threads),
            ..random_db_options(&mut rng, &env)
        };
        let (mut flat, mut cuckoo) = (BTreeSet::new(), BTreeSet::new());
        let options = new_family_options(&mut rng, &paths, &mut flat, &mut cuckoo, "default");
        let families = BTreeMap::from([("default".to_owned(), options)]);
        let key_count = *[20, 200, 1000].choose(&mut rng).expect("not empty");
        let ingests = rng.random_bool(0.3);
        let mut run = Self {
            rng,
            rng_of_threads,
            env,
            dir,
            paths,
            db: None,
            db_options,
            families,
            flat,
            cuckoo,
            ingests,
            model: Model::new(),
            snapshots: Vec::new(),
            put_once: BTreeSet::new(),
            touched: Touched::default(),
            has_removed: false,
            key_count,
            trace: Vec::new(),
            next_family: 1,
            kept: None,
            follower: None,
            secondary: None,
            heard: Arc::new(Heard::new(seed.is_multiple_of(2))),
        };
        run.touched.create("default", &run.families["default"]);
        run.open()?;
        Ok(run)
    }

    /// Does `count` operations, then compares everything.
    pub fn run(&mut self, count: usize) -> Result<(), Failure> {
        for _ in 0..count {
            self.step().map_err(|failure| self.explain(&failure))?;
        }
        self.compare_all().map_err(|failure| self.explain(&failure))
    }

    fn explain(&self, failure: &str) -> Failure {
        let last = self.trace.len().saturating_sub(12);
        let mut text = failure.to_owned();
        for (name, options) in &self.families {
            let table = match options.table_format {
                TableFormat::BlockBased => options.table.to_string(),
                _ => options.to_string(),
            };
            write!(
                text,
                "\n{name}: {:?}, {:?}, in place {}, {:?}, prefix {:?}, {} levels, dynamic {}, {}, {table}",
                options.memtable_factory,
                options.memtable_rep,
                options.inplace_update_support,
                options.compression,
                options.prefix_extractor.as_ref().map(|prefix| prefix.name().to_owned()),
                options.num_levels,
                options.level_compaction_dynamic_level_bytes,
                style_of(options),
            )
            .expect("text grows");
        }
        let operations = self.trace[last..].iter().map(|line| line.chars().take(160).collect::<String>());
        format!("{text}\nlast operations:\n  {}", operations.collect::<Vec<_>>().join("\n  "))
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("open between operations")
    }

    fn open(&mut self) -> Result<(), Failure> {
        let descriptors = self
            .families
            .iter()
            .map(|(name, options)| ColumnFamilyDescriptor::new(name, options.clone()))
            .collect();
        let options = DbOptions { listeners: vec![self.heard.clone()], ..self.db_options.clone() };
        let db = Db::open_column_families(&options, &self.dir, descriptors)
            .map_err(|error| format!("open: {error}"))?;
        self.db = Some(db);
        Ok(())
    }

    fn family(&self, name: &str) -> ColumnFamily {
        self.db().column_family(name).expect("the model has only column families that exist")
    }
    fn any_family(&mut self) -> String {
        let names: Vec<String> = self.families.keys().cloned().collect();
        names.choose(&mut self.rng).expect("default always exists").clone()
    }

    /// A key that `family` may have.
    fn key_of(&mut self, family: &str) -> Vec<u8> {
        let number = self.rng.random_range(0..self.key_count);
        if self.cuckoo.contains(family) { format!("c{number:07}").into_bytes() } else { key_of(number) }
    }
    /// One that is not removed by single delete.
    fn plain_key_of(&mut self, family: &str) -> Vec<u8> {
        loop {
            let key = self.key_of(family);
            if !is_single_delete_key(&key) {
                return key;
            }
        }
    }
    fn value_of(&mut self, family: &str) -> Vec<u8> {
        let len = match self.rng.random_range(0..20) {
            _ if self.cuckoo.contains(family) => 20,
            0 => 0,
            1 => self.rng.random_range(1000..6000),
            _ => self.rng.random_range(1..120),
        };
        let byte: u8 = self.rng.random_range(b'a'..b'f');
        (0..len).map(|at| if at % 3 == 0 { self.rng.random() } else { byte }).collect()
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if self.trace.len() > 200 {
            self.trace.drain(..100);
        }
        self.trace.push(text());
    }

    fn step(&mut self) -> Result<(), Failure> {
        match self.rng.random_range(0..1000) {
            0..400 => self.write_one(),
            400..520 => self.write_batch(),
            520..690 => self.get(),
            690..697 => self.get_merge_operands(),
            697..700 => self.walk_over_families(),
            700..760 => self.multi_get(),
            760..900 => self.walk(),
            900..925 => self.take_snapshot(),
            925..945 => self.drop_snapshot(),
            945..965 => self.flush(),
            965..971 => self.compact(),
            971 => self.reshape(),
            972..980 => self.reopen(),
            980..985 => self.create_family(),
            985..988 => self.drop_family(),
            988..991 => self.scan_all(),
            991 => self.set_options(),
            992..994 => self.ingest(),
            994..996 => self.ingest_behind(),
            996 => self.remove_tables(),
            997 if self.rng.random() => self.copy_tables(),
            997 => self.remove_tables(),
            998 if self.rng.random() => self.lose_newest_tables(),
            998 => self.copy(),
            _ => match self.rng.random_range(0..8) {
                0..3 => self.follow(),
                3 => self.look_at_secondary(),
                4 => self.back_up(),
                5 => self.replicate(),
                6 => self.export(),
                _ => self.sync(),
            },
        }
    }

    /// Changes options of the open database; what makes no sense together is refused, and nothing has changed.
    fn set_options(&mut self) -> Result<(), Failure> {
        let result = if self.rng.random_bool(0.3) {
            let changes = random_db_changes(&mut self.rng);
            let bottom_threads = self.rng_of_threads.random_range(0..3);
            if !Arc::ptr_eq(&self.db_options.thread_pool, &ThreadPool::shared()) {
                self.db_options.thread_pool.set_bottom_threads(Some(bottom_threads));
            }
            self.note(|| format!("set_db_options {changes:?}, {bottom_threads} threads for the last level"));
            self.db().set_db_options(&changes)
        } else {
            let (name, mut changes) = (self.any_family(), random_family_changes(&mut self.rng));
            // Iterators would leave range tombstones.
            changes.retain(|(option, _)| {
                !self.flat.contains(&name) || *option != "min_tombstones_for_range_conversion"
            });
            self.note(|| format!("set_options of {name} {changes:?}"));
            let cf = self.family(&name);
            let before = self.db().column_family_options(&cf);
            let result = self.db().set_options_cf(&cf, &changes);
            let options = self.db().column_family_options(&cf);
            if result.is_err() && options.to_string() != before.to_string() {
                return Err(format!("{result:?}, and yet the options are now {options}"));
            }
            self.families.insert(name, options);
            result
        };
        self.db_options = DbOptions { listeners: Vec::new(), ..(*self.db().options()).clone() };
        match result {
            Err(error) if !matches!(error.code(), Code::InvalidArgument | Code::NotSupported) => {
                Err(format!("set options: {error}"))
            }
            _ => Ok(()),
        }
    }

    fn write_options(&mut self) -> WriteOptions {
        let protection_bytes_per_key = if self.rng.random_bool(0.2) { 8 } else { 0 };
        WriteOptions { sync: self.rng.random_bool(0.02), protection_bytes_per_key, ..WriteOptions::default() }
    }

    /// A change of a random key, and the call that makes it.
    fn change(&mut self) -> (Change, bool) {
        let family = self.any_family();
        let key = self.key_of(&family);
        if is_single_delete_key(&key) {
            let place = (family.clone(), key.clone());
            if self.put_once.remove(&place) {
                return (Change::Delete(family, key), true);
            }
            self.put_once.insert(place);
            let value = self.value_of(&family);
            return (Change::Put(family, key, value), false);
        }
        let change = match self.rng.random_range(0..100) {
            0..25 => Change::Delete(family, key),
            25..45 if !self.cuckoo.contains(&family) => {
                Change::Append(family, key, format!("{}", self.rng.random_range(0..1000)).into_bytes())
            }
            45..47 if !self.flat.contains(&family) => {
                let mut range = [key, self.key_of(&family)];
                range.sort();
                let [begin, mut end] = range;
                if self.rng.random_bool(0.7) {
                    end = begin.clone(); // A narrow one: a single key and those that it begins.
                    end.push(self.rng.random());
                }
                self.put_once.retain(|(of, key)| *of != family || *key < begin || *key >= end);
                Change::DeleteRange(family, begin, end)
            }
            _ => {
                let value = self.value_of(&family);
                Change::Put(family, key, value)
            }
        };
        (change, false)
    }

    fn write_one(&mut self) -> Result<(), Failure> {
        let options = self.write_options();
        let (change, single) = self.change();
        self.note(|| format!("write {change:?} single={single}"));
        let (db, family) = (self.db(), self.family(change.family()));
        let result = match &change {
            Change::Put(_, key, value) => db.put_cf(&options, &family, key, value),
            Change::Delete(_, key) if single => db.single_delete_cf(&options, &family, key),
            Change::Delete(_, key) => db.delete_cf(&options, &family, key),
            Change::Append(_, key, operand) => db.merge_cf(&options, &family, key, operand),
            Change::DeleteRange(_, begin, end) => db.delete_range_cf(&options, &family, begin, end),
        };
        result.map_err(|error| format!("write: {error}"))?;
        self.apply(&change);
        Ok(())
    }

    fn write_batch(&mut self) -> Result<(), Failure> {
        let options = self.write_options();
        let mut batch = WriteBatch::new();
        let mut changes = Vec::new();
        for _ in 0..self.rng.random_range(1..20) {
            let (change, single) = self.change();
            let cf = self.family(change.family()).id();
            match &change {
                Change::Delete(_, key) if single => batch.single_delete_in(cf, key),
                _ => change.add_to(&mut batch, cf),
            }
            changes.push(change);
        }
        if self.rng.random_bool(0.1) {
            batch.put_log_data(b"for whoever reads the log");
        }
        self.note(|| format!("batch of {}", changes.len()));
        self.db().write(&batch, &options).map_err(|error| format!("write batch: {error}"))?;
        changes.iter().for_each(|change| self.apply(change));
        Ok(())
    }

    fn apply(&mut self, change: &Change) {
        self.model.apply(change);
        self.touched.note(change);
    }

    /// Whether what an iterator shows may change under it.
    fn updates_in_place(&self, family: &str) -> bool {
        self.families[family].inplace_update_support
    }
    /// Whether a column family may be read at snapshots.
    fn has_past(&self, family: &str) -> bool {
        !self.updates_in_place(family) && self.families[family].table_format != TableFormat::Cuckoo
    }

    /// Now, or as of a snapshot.
    fn moment(&mut self, family: &str) -> (ReadOptions, Model) {
        let mut options = ReadOptions {
            fill_cache: self.rng.random_bool(0.8),
            rate_limiter_priority: self.rng.random_bool(0.1).then_some(IoPriority::User),
            ..ReadOptions::default()
        };
        let may_look_back = !self.snapshots.is_empty() && self.has_past(family);
        if may_look_back && self.rng.random_bool(0.4) {
            let at = self.rng.random_range(0..self.snapshots.len());
            options.snapshot = Some(self.snapshots[at].0.clone());
            return (options, self.snapshots[at].1.clone());
        }
        (options, self.model.clone())
    }

    fn get(&mut self) -> Result<(), Failure> {
        let family = self.any_family();
        let key = self.key_of(&family);
        let (options, model) = if self.snapshots.is_empty() || self.rng.random_bool(0.7) {
            (ReadOptions::default(), None)
        } else {
            let (options, model) = self.moment(&family);
            (options, Some(model))
        };
        let expected = model.as_ref().unwrap_or(&self.model).family(&family).get(&key);
        let found = self.db().get_cf(&options, &self.family(&family), &key);
        let found = found.map_err(|error| format!("get {family} {}: {error}", key.escape_ascii()))?;
        if found.as_deref() != expected.map(Vec::as_slice) {
            return Err(format!(
                "get {family} {} at {:?}: found {found:?}, expected {:?}",
                key.escape_ascii(),
                options.snapshot,
                expected.map(|value| value.escape_ascii().to_string())
            ));
        }
        if expected.is_some() && !self.db().key_may_exist_cf(&options, &self.family(&family), &key) {
            return Err(format!("key_may_exist denies {family} {}", key.escape_ascii()));
        }
        Ok(())
    }

    fn multi_get(&mut self) -> Result<(), Failure> {
        let family = self.any_family();
        let keys: Vec<Vec<u8>> = (0..self.rng.random_range(1..30)).map(|_| self.key_of(&family)).collect();
        let (options, model) = self.moment(&family);
        let found = self.db().multi_get_cf(&options, &self.family(&family), &keys);
        for (key, found) in keys.iter().zip(found) {
            let expected = model.family(&family).get(key);
            let found = found.map_err(|error| format!("multi_get: {error}"))?;
            if found.as_deref() != expected.map(Vec::as_slice) {
                let key = key.escape_ascii();
                return Err(format!("multi_get {family} {key} at {:?}: found {found:?}", options.snapshot));
            }
        }
        Ok(())
    }

    /// Walks an iterator at random, beside a cursor in the model: a new one, or one that was kept from an earlier walk.
    fn walk(&mut self) -> Result<(), Failure> {
        let mut walk = match self.kept.take() {
            Some(mut kept) if self.rng.random_bool(0.7) => {
                self.bring_up_to_date(&mut kept)?;
                kept
            }
            _ => self.new_walk()?,
        };
        let mut path = Vec::new();
        for _ in 0..self.rng.random_range(1..40) {
            let Some(step) = self.random_step(&walk) else { continue };
            path.push(step.to_string());
            walk.go(&step).map_err(|failure| {
                let (family, options) = (&walk.family, &walk.options);
                format!("iterator of {family} with {options:?} after {path:?}: {failure}")
            })?;
        }
        if self.rng.random_bool(0.5) {
            self.kept = Some(walk);
        }
        Ok(())
    }

    fn new_walk(&mut self) -> Result<Walk, Failure> {
        let family = self.any_family();
        let (mut options, mut model) = self.moment(&family);
        if self.rng.random_bool(0.3) {
            options.iterate_lower_bound = Some(self.key_of(&family));
        }
        if self.rng.random_bool(0.3) {
            options.iterate_upper_bound = Some(self.key_of(&family));
        }
        options.total_order_seek = self.rng.random_bool(0.2);
        options.auto_prefix_mode = self.rng.random_bool(0.4);
        options.prefix_same_as_start = self.rng.random_bool(0.4);
        options.tailing = self.rng.random_bool(0.2);
        options.auto_refresh_iterator_with_snapshot = self.rng.random_bool(0.3);
        if options.tailing {
            (options.snapshot, model) = (None, self.model.clone());
        }
        let iter = self.db().iter_cf(&options, &self.family(&family));
        let iter = iter.map_err(|error| format!("iter: {error}"))?;
        let extractor = self.families[&family].prefix_extractor.clone();
        let total = options.total_order_seek || options.auto_prefix_mode;
        let total = total || self.db_options.prefix_seek_opt_in_only;
        let order = match &extractor {
            Some(_) if options.prefix_same_as_start => Order::WithinPrefix,
            Some(_) if !total => Order::KnownWithinPrefix,
            _ => Order::Total,
        };
        let entries = model.family(&family).clone();
        let mut walk = Walk {
            iter,
            family,
            options,
            extractor,
            order,
            entries,
            start: None,
            cursor: None,
            is_lost: false,
        };
        walk.keep_in_bounds();
        Ok(walk)
    }

    /// Refreshes an iterator that was kept, or leaves it at the moment that it shows.
    fn bring_up_to_date(&mut self, walk: &mut Walk) -> Result<(), Failure> {
        let in_place = self.updates_in_place(&walk.family);
        let (refreshed, model) = match self.rng.random_range(0..4) {
            _ if walk.options.tailing => {
                if walk.iter.refresh().is_ok() {
                    return Err("a tailing iterator lets itself be refreshed".to_owned());
                }
                (Ok(()), &self.model)
            }
            0 if !in_place => return Ok(()),
            1 if self.has_past(&walk.family) && !self.snapshots.is_empty() => {
                let (snapshot, model, _) = self.snapshots.choose(&mut self.rng).expect("not empty");
                (walk.iter.refresh_at(snapshot), model)
            }
            _ => (walk.iter.refresh(), &self.model),
        };
        refreshed.map_err(|error| format!("refresh: {error}"))?;
        walk.entries = model.family(&walk.family).clone();
        walk.keep_in_bounds();
        (walk.cursor, walk.is_lost) = (None, false);
        Ok(())
    }

    fn random_step(&mut self, walk: &Walk) -> Option<Step> {
        let step = match self.rng.random_range(0..10) {
            0 => Step::First,
            1 => Step::Last,
            2 => Step::Seek(self.key_of(&walk.family)),
            3 => Step::SeekForPrev(self.key_of(&walk.family)),
            4..7 => Step::Next,
            _ => Step::Prev,
        };
        let is_seek = !matches!(step, Step::Next | Step::Prev);
        (is_seek || (walk.cursor.is_some() && !walk.is_lost)).then_some(step)
    }

    fn take_snapshot(&mut self) -> Result<(), Failure> {
        if self.snapshots.len() < 6 {
            self.note(|| "snapshot".to_owned());
            self.snapshots.push((self.db().snapshot(), self.model.clone(), self.touched.clone()));
        }
        Ok(())
    }
    fn drop_snapshot(&mut self) -> Result<(), Failure> {
        if !self.snapshots.is_empty() {
            let at = self.rng.random_range(0..self.snapshots.len());
            self.snapshots.swap_remove(at);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let family = self.any_family();
        let options = FlushOptions {
            wait: self.rng.random_bool(0.7),
            allow_write_stall: self.rng.random_bool(0.3),
            force_atomic_flush: self.rng.random_bool(0.2),
        };
        self.note(|| format!("flush {family}: {options:?}"));
        let flushed = match options.force_atomic_flush {
            true => self.db().flush_cfs(&options, &self.db().column_families().iter().collect::<Vec<_>>()),
            false => self.db().flush_cf(&options, &self.family(&family)),
        };
        match flushed {
            // Writes are stopped.
            Err(error) if error.code() == Code::TryAgain && !options.wait => Ok(()),
            flushed => flushed.map_err(|error| format!("flush: {error}")),
        }
    }

    fn compact(&mut self) -> Result<(), Failure> {
        let family = self.any_family();
        let mut range = [self.key_of(&family), self.key_of(&family)];
        range.sort();
        let whole = self.rng.random_bool(0.5);
        self.note(|| format!("compact {family}, whole: {whole}"));
        let [begin, end] = &range;
        let (begin, end) = if whole { (None, None) } else { (Some(begin.as_slice()), Some(end.as_slice())) };
        let options = CompactRangeOptions::default();
        let result = self.db().compact_range(&options, &self.family(&family), begin, end);
        result.map_err(|error| format!("compact_range: {error}"))
    }

    /// Closes (or drops) the database and opens it with other options.
    fn reopen(&mut self) -> Result<(), Failure> {
        self.snapshots.clear();
        self.kept = None;
        (self.follower, self.secondary) = (None, None);
        let mut harm = self.rng.random_range(0..20);
        if harm == 1 && self.db_options.recycle_log_file_num > 0 {
            harm = 0; // Old WALs stay, and only a MANIFEST says that they are old.
        }
        if harm == 1 && (self.touched.has_ingested() || self.has_removed) {
            harm = 0; // Only a MANIFEST says where they lie, and which writes of a WAL are to stay away.
        }
        if harm == 1 {
            self.flush_for_loss_of_manifest()?;
        }
        let db = self.db.take().expect("open between operations");
        if self.db_options.manual_wal_flush || self.rng.random_bool(0.5) {
            db.close().map_err(|error| format!("close: {error}"))?;
        }
        drop(db);
        self.heard.check()?;
        self.db_options = random_db_options(&mut self.rng, &self.env);
        self.db_options.thread_pool = random_thread_pool(&mut self.rng_of_threads);
        self.db_options.db_paths.clone_from(&self.paths);
        let levels: BTreeMap<String, i32> =
            self.families.iter().map(|(name, options)| (name.clone(), options.num_levels)).collect();
        for (name, options) in &mut self.families {
            let behind = options.cf_allow_ingest_behind && self.rng.random_bool(0.8);
            let random: fn(&mut StdRng) -> ColumnFamilyOptions =
                match (self.cuckoo.contains(name), self.flat.contains(name)) {
                    (true, _) => random_cuckoo_family_options,
                    (false, true) => random_flat_family_options,
                    (false, false) => random_family_options,
                };
            *options = fitting(&mut self.rng, &self.paths, random);
            options.cf_allow_ingest_behind |= behind;
            let least = if options.cf_allow_ingest_behind { 3 } else { 1 };
            options.num_levels = options.num_levels.max(levels[name]).max(least);
            if !options.cf_allow_ingest_behind {
                self.touched.forget(name);
            }
        }
        if harm < 2 {
            self.lose_manifest(harm == 1)
                .and_then(|()| self.repair())
                .map_err(|error| format!("repair: {error}"))?;
        }
        self.note(|| format!("reopen, repaired: {}", harm < 2));
        self.open()?;
        if harm < 2 || self.rng.random_bool(0.3) { self.compare_all() } else { Ok(()) }
    }

    /// Without a MANIFEST only tables know of column families, and nobody knows how much of a WAL that several of these
    /// share is in the tables of each.
    fn flush_for_loss_of_manifest(&mut self) -> Result<(), Failure> {
        if self.families.len() == 1 && !self.db().live_files().is_empty() {
            return Ok(());
        }
        let families: Vec<_> = self.families.keys().map(|name| self.family(name)).collect();
        let flushed = self.db().flush_cfs(&FlushOptions::default(), &families.iter().collect::<Vec<_>>());
        flushed.map_err(|error| format!("flush: {error}"))
    }
    /// Removes CURRENT and, if `all`, every MANIFEST.
    fn lose_manifest(&self, all: bool) -> ironstone::Result<()> {
        let fs = &self.env.fs;
        for name in fs.list(&self.dir)? {
            if name == "CURRENT" || (all && name.starts_with("MANIFEST-")) {
                fs.remove(&self.dir.join(name))?;
            }
        }
        Ok(())
    }
    fn repair(&self) -> ironstone::Result<()> {
        let families = self.families.iter();
        let families: Vec<_> =
            families.map(|(name, options)| ColumnFamilyDescriptor::new(name, options.clone())).collect();
        let report = Db::repair(&self.db_options, &self.dir, &families, None)?;
        // What had been replaced is all that may be left out.
        match report
            .lost
            .iter()
            .find(|(_, why)| !["replaced", "dropped", "not name"].iter().any(|fine| why.contains(fine)))
        {
            Some((path, why)) => {
                Err(ironstone::Error::corruption(format!("{} was lost: {why}", path.display())))
            }
            None => Ok(()),
        }
    }

    fn create_family(&mut self) -> Result<(), Failure> {
        if self.families.len() >= MAX_FAMILIES {
            return Ok(());
        }
        let name = format!("family{}", self.next_family);
        self.next_family += 1;
        let options = new_family_options(&mut self.rng, &self.paths, &mut self.flat, &mut self.cuckoo, &name);
        self.note(|| format!("create {name}"));
        self.db().create_column_family(&name, &options).map_err(|error| format!("create: {error}"))?;
        self.touched.create(&name, &options);
        self.families.insert(name.clone(), options);
        self.model.create(&name);
        Ok(())
    }

    fn drop_family(&mut self) -> Result<(), Failure> {
        let name = self.any_family();
        if name == "default" {
            return Ok(());
        }
        self.note(|| format!("drop {name}"));
        self.snapshots.clear(); // They would show the column family that is gone.
        self.kept = None;
        let handle = self.family(&name);
        self.db().drop_column_family(&handle).map_err(|error| format!("drop: {error}"))?;
        if self.db().get_cf(&ReadOptions::default(), &handle, b"k").is_ok() {
            return Err("a dropped column family answers".to_owned());
        }
        self.families.remove(&name);
        self.model.remove(&name);
        self.touched.remove(&name);
        self.put_once.retain(|(family, _)| *family != name);
        Ok(())
    }

    fn scan_all(&mut self) -> Result<(), Failure> {
        let family = self.any_family();
        let (options, model) = self.moment(&family);
        self.compare_family(&family, &options, &model)
    }

    fn sync(&mut self) -> Result<(), Failure> {
        self.db().flush_wal(true).map_err(|error| format!("flush_wal: {error}"))
    }

    fn compare_all(&mut self) -> Result<(), Failure> {
        let names: Vec<String> = self.families.keys().cloned().collect();
        for name in names {
            self.compare_family(&name, &ReadOptions::default(), &self.model)?;
        }
        Ok(())
    }

    /// Compares a whole column family, forward and backward.
    fn compare_family(&self, family: &str, options: &ReadOptions, model: &Model) -> Result<(), Failure> {
        let iter =
            self.db().iter_cf(options, &self.family(family)).map_err(|error| format!("iter: {error}"))?;
        compare(iter, model, family)
    }
}

/// An iterator, and where it must stand.
struct Walk {
    iter: DbIterator,
    family: String,
    options: ReadOptions,
    extractor: Option<Arc<dyn SliceTransform>>,
    order: Order,
    /// What it must show, within its bounds.
    entries: Entries,
    /// The prefix of the last seek target.
    start: Option<Vec<u8>>,
    cursor: Option<Vec<u8>>,
    /// It has left the prefix: what it shows is not known until the next seek.
    is_lost: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Total,
    /// It ends where the prefix ends.
    WithinPrefix,
    /// Beyond the prefix anything may be there.
    KnownWithinPrefix,
}

enum Step {
    First,
    Last,
    Seek(Vec<u8>),
    SeekForPrev(Vec<u8>),
    Next,
    Prev,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::First => f.write_str("first"),
            Self::Last => f.write_str("last"),
            Self::Seek(target) => write!(f, "seek {}", target.escape_ascii()),
            Self::SeekForPrev(target) => write!(f, "seek_for_prev {}", target.escape_ascii()),
            Self::Next => f.write_str("next"),
            Self::Prev => f.write_str("prev"),
        }
    }
}

impl Walk {
    fn keep_in_bounds(&mut self) {
        let (lower, upper) = (&self.options.iterate_lower_bound, &self.options.iterate_upper_bound);
        self.entries.retain(|key, _| {
            lower.as_ref().is_none_or(|lower| key >= lower) && upper.as_ref().is_none_or(|upper| key < upper)
        });
    }
    fn prefix(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.extractor.as_ref().and_then(|extractor| extractor.transform(key)).map(<[u8]>::to_vec)
    }

    /// Takes a step on both sides and compares where they stand.
    fn go(&mut self, step: &Step) -> Result<(), Failure> {
        let moved = match step {
            Step::First => self.iter.seek_to_first(),
            Step::Last => self.iter.seek_to_last(),
            Step::Seek(target) => self.iter.seek(target),
            Step::SeekForPrev(target) => self.iter.seek_for_prev(target),
            Step::Next => self.iter.next(),
            Step::Prev => self.iter.prev(),
        };
        if self.options.tailing && matches!(step, Step::Last | Step::SeekForPrev(_) | Step::Prev) {
            self.cursor = None;
            return match moved {
                Err(error) if error.code() == Code::NotSupported => Ok(()),
                other => Err(format!("a tailing iterator went backward: {other:?}")),
            };
        }
        let valid = moved.map_err(|error| error.to_string())?;
        let expected = self.expected(step);
        let found = self.iter.key().map(<[u8]>::to_vec);
        let is_outside = |key: Option<&Vec<u8>>| {
            self.start.is_some() && key.is_none_or(|key| self.prefix(key) != self.start)
        };
        if self.order == Order::KnownWithinPrefix && is_outside(expected.as_ref()) {
            if !is_outside(found.as_ref()) {
                return Err(format!("on {:?}, which is not there", found.map(|key| escaped(&key))));
            }
            self.is_lost = true;
            return Ok(());
        }
        if valid != expected.is_some() || found != expected {
            let [found, expected] = [found, expected].map(|key| key.map(|key| escaped(&key)));
            return Err(format!("on {found:?}, expected {expected:?}"));
        }
        if self.iter.value() != expected.as_ref().map(|key| self.entries[key].as_slice()) {
            return Err("wrong value".to_owned());
        }
        (self.cursor, self.is_lost) = (expected, false);
        Ok(())
    }

    /// Where the iterator must stand after `step`, if nothing but the prefix that it is kept to is in its way.
    fn expected(&mut self, step: &Step) -> Option<Vec<u8>> {
        let (lower, upper) =
            (self.options.iterate_lower_bound.clone(), self.options.iterate_upper_bound.clone());
        let here = || self.cursor.clone().expect("steps are taken from somewhere");
        let range = match step {
            Step::First => (lower.clone().map_or(Bound::Unbounded, Bound::Included), Bound::Unbounded),
            Step::Seek(target) => (Bound::Included(target.clone()), Bound::Unbounded),
            Step::Next => (Bound::Excluded(here()), Bound::Unbounded),
            Step::Last => (Bound::Unbounded, Bound::Unbounded),
            Step::SeekForPrev(target) => (Bound::Unbounded, Bound::Included(target.clone())),
            Step::Prev => (Bound::Unbounded, Bound::Excluded(here())),
        };
        let mut keys = self.entries.range(range).map(|(key, _)| key.clone());
        let is_forward = matches!(step, Step::First | Step::Seek(_) | Step::Next);
        let key = if is_forward { keys.next() } else { keys.next_back() };
        drop(keys);
        match step {
            Step::Next | Step::Prev => {}
            Step::Seek(target) | Step::SeekForPrev(target) => self.start = self.prefix(target),
            Step::First | Step::Last => {
                // From a bound it is a seek; from an end the first key found decides, if the iterator keeps to it.
                let bound = if is_forward { lower } else { upper };
                let found = key.as_ref().filter(|_| self.order == Order::WithinPrefix);
                let start = bound.as_ref().or(found).and_then(|key| self.prefix(key));
                self.start = start;
            }
        }
        let is_ended = self.order == Order::WithinPrefix && self.start.is_some();
        key.filter(|key| !is_ended || self.prefix(key) == self.start)
    }
}

fn escaped(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}

/// All that `iter` shows, from its first key on.
pub fn contents(iter: &mut DbIterator) -> ironstone::Result<Entries> {
    let mut entries = Entries::new();
    let mut more = iter.seek_to_first()?;
    while more {
        entries.extend(iter.key().map(<[u8]>::to_vec).zip(iter.value().map(<[u8]>::to_vec)));
        more = iter.next()?;
    }
    Ok(entries)
}

/// Compares what `iter` walks over with a column family of the model, forward and backward.
pub fn compare(mut iter: DbIterator, model: &Model, family: &str) -> Result<(), Failure> {
    let describe = |what: &str, found: Option<&[u8]>, expected: Option<&Vec<u8>>| {
        let found = found.map(|key| key.escape_ascii().to_string());
        let expected = expected.map(|key| key.escape_ascii().to_string());
        format!("{what} scan of {family}: on {found:?}, expected {expected:?}")
    };
    let mut expected = model.family(family).iter();
    let mut more = iter.seek_to_first().map_err(|error| format!("scan: {error}"))?;
    loop {
        let want = expected.next();
        if iter.key() != want.map(|(key, _)| key.as_slice())
            || iter.value() != want.map(|(_, v)| v.as_slice())
        {
            return Err(describe("forward", iter.key(), want.map(|(key, _)| key)));
        }
        if !more {
            break;
        }
        more = iter.next().map_err(|error| format!("scan: {error}"))?;
    }
    let mut expected = model.family(family).iter().rev();
    let mut more = iter.seek_to_last().map_err(|error| format!("scan: {error}"))?;
    loop {
        let want = expected.next();
        if iter.key() != want.map(|(key, _)| key.as_slice())
            || iter.value() != want.map(|(_, v)| v.as_slice())
        {
            return Err(describe("backward", iter.key(), want.map(|(key, _)| key)));
        }
        if !more {
            return Ok(());
        }
        more = iter.prev().map_err(|error| format!("scan: {error}"))?;
    }
}

/// The directories of tables, several in one run of six.
fn paths_of(seed: u64, dir: &Path) -> Vec<DbPath> {
    let path = |(at, size): (usize, u64)| DbPath::new(dir.with_extension(format!("path{at}")), size);
    let sizes: &[u64] = if seed % 6 == 1 { &[20_000, 100_000, 0] } else { &[] };
    sizes.iter().copied().enumerate().map(path).collect()
}

/// Options by `random` that a database with tables in `paths` takes.
fn fitting(
    rng: &mut StdRng,
    paths: &[DbPath],
    random: fn(&mut StdRng) -> ColumnFamilyOptions,
) -> ColumnFamilyOptions {
    loop {
        let options = random(rng);
        if paths.len() < 2 || options.compaction_style != CompactionStyle::Fifo {
            return options;
        }
    }
}

/// Options of a new column family, which may be noted as one of `flat`, and of `cuckoo` too.
fn new_family_options(
    rng: &mut StdRng,
    paths: &[DbPath],
    flat: &mut BTreeSet<String>,
    cuckoo: &mut BTreeSet<String>,
    name: &str,
) -> ColumnFamilyOptions {
    if !rng.random_bool(0.35) {
        return fitting(rng, paths, random_family_options);
    }
    flat.insert(name.to_owned());
    if rng.random_bool(0.7) {
        return fitting(rng, paths, random_flat_family_options);
    }
    cuckoo.insert(name.to_owned());
    fitting(rng, paths, random_cuckoo_family_options)
}

/// Key number `number`: some are prefixes of others, one is empty, lengths differ.
/// What shapes the tree of a column family.
fn style_of(options: &ColumnFamilyOptions) -> String {
    let incremental = options.compaction_options_universal.incremental;
    let behind = options.cf_allow_ingest_behind;
    format!("{:?}, incremental {incremental}, behind {behind}", options.compaction_style)
}

fn key_of(number: u32) -> Vec<u8> {
    match number % 7 {
        0 => format!("k{:03}", number / 7).into_bytes(),
        1 => format!("k{:03}\0tail", number / 7).into_bytes(),
        2 => format!("s{number:05}").into_bytes(),
        3 => number.to_be_bytes().to_vec(),
        4 => vec![0xff; (number / 7) as usize % 30],
        5 => format!("user{:012}{}", number, "x".repeat(number as usize % 40)).into_bytes(),
        _ => format!("{number}").into_bytes(),
    }
}

/// Keys that are put at most once between removals, and removed by single delete only.
fn is_single_delete_key(key: &[u8]) -> bool {
    key.first() == Some(&b's')
}
