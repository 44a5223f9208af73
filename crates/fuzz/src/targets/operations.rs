//! Operations on a database, beside an ordered map.
//!
//! ```text
//! options     5 x u8
//! operations  (what u8 | key u8 | content) ...
//! ```
//! Every answer is the map's.

use super::{Seed, Target};
use crate::directory::{DIR, env, make_small};
use crate::input::{Input, MAX_INPUT};
use ironstone::options::DbOptions;
use ironstone::{
    BottommostPolicy, ColumnFamilyDescriptor, ColumnFamilyOptions, CompactRangeOptions, CompressionKind, Db,
    FilterPolicy, FlushOptions, IndexType, ReadOptions, Snapshot, WriteBatch, WriteOptions,
};
use ironstone_testkit::model::{Change, Model};
use ironstone_vfs::mem::MemFileSystem;
use std::ops::Bound;

pub(super) const TARGET: Target =
    Target { name: "operations", what: "operations beside an ordered map", run, seeds, mutations: 1_000 };

const MAX_OPERATIONS: usize = 300;

struct Run {
    db: Option<Db>,
    db_options: DbOptions,
    families: Vec<(String, ColumnFamilyOptions)>,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
    created: u32,
}

fn run(bytes: &[u8]) {
    let mut input = Input::new(&bytes[..bytes.len().min(MAX_INPUT)]);
    let (db_options, cf_options) = options(&mut input);
    let mut run = Run {
        db: None,
        db_options,
        families: vec![("default".to_owned(), cf_options)],
        model: Model::new(),
        snapshots: Vec::new(),
        created: 0,
    };
    run.open();
    for _ in 0..MAX_OPERATIONS {
        if input.is_empty() {
            break;
        }
        run.step(&mut input);
    }
    run.compare();
    run.db().close().expect("memory does not fail");
}

fn options(input: &mut Input<'_>) -> (DbOptions, ColumnFamilyOptions) {
    let (a, b) = (input.byte(), input.byte());
    let mut db = DbOptions {
        env: env(MemFileSystem::volatile()),
        create_if_missing: true,
        recycle_log_file_num: usize::from(a & 1) * 2,
        avoid_flush_during_recovery: a & 2 != 0,
        manual_wal_flush: a & 4 != 0,
        ..DbOptions::default()
    };
    let mut cf = ColumnFamilyOptions {
        compression: input.pick(&[CompressionKind::None, CompressionKind::Lz4, CompressionKind::Zstd]),
        level0_file_num_compaction_trigger: 2,
        num_levels: i32::from(b % 5) + 2,
        level_compaction_dynamic_level_bytes: b & 0x80 != 0,
        target_file_size_base: 4 << 10,
        max_bytes_for_level_base: 16 << 10,
        ..ColumnFamilyOptions::default()
    };
    make_small(&mut db, &mut cf);
    cf.write_buffer_size = 8 << 10;
    cf.table.block_size = 200;
    cf.table.index_type =
        input.pick(&[IndexType::BinarySearch, IndexType::TwoLevel, IndexType::BinarySearchWithFirstKey]);
    cf.table.filter_policy = input.pick(&[None, Some(FilterPolicy::bloom(10.0))]);
    (db, cf)
}

impl Run {
    fn open(&mut self) {
        let families = self.families.iter();
        let families = families.map(|(name, options)| ColumnFamilyDescriptor::new(name, options.clone()));
        let db = Db::open_column_families(&self.db_options, DIR, families.collect());
        self.db = Some(db.expect("memory does not fail"));
    }
    fn db(&self) -> &Db {
        self.db.as_ref().expect("open between operations")
    }
    fn family(&self, number: u8) -> (String, ironstone::ColumnFamily) {
        let name = &self.families[usize::from(number) % self.families.len()].0;
        (name.clone(), self.db().column_family(name).expect("it was opened"))
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let (what, number) = (input.byte(), input.byte());
        match what % 16 {
            0..=3 => self.write(input, number, 1),
            4 => {
                let count = usize::from(input.byte() % 30);
                self.write(input, number, count);
            }
            5 | 6 => self.get(number, what >> 4),
            7 | 8 => self.walk(input, number),
            9 => {
                if self.snapshots.len() < 4 {
                    self.snapshots.push((self.db().snapshot(), self.model.clone()));
                }
            }
            10 => drop(self.snapshots.pop()),
            11 => {
                let (_, cf) = self.family(number);
                self.db().flush_cf(&FlushOptions::default(), &cf).expect("memory does not fail");
            }
            12 => {
                let (_, cf) = self.family(number);
                let force = BottommostPolicy::Force;
                let options =
                    CompactRangeOptions { bottommost_level_compaction: force, ..Default::default() };
                self.db().compact_range(&options, &cf, None, None).expect("memory does not fail");
            }
            13 => self.reopen(),
            14 => self.create_or_drop(number),
            _ => self.compare(),
        }
    }

    fn write(&mut self, input: &mut Input<'_>, number: u8, count: usize) {
        let mut batch = WriteBatch::new();
        for at in 0..count {
            let (name, cf) = self.family(number >> 6);
            let key = key_of(number.wrapping_add(at as u8 * 7));
            let shape = input.byte();
            let change = if shape & 3 == 3 {
                batch.delete_cf(&cf, &key);
                Change::Delete(name, key)
            } else {
                let mut value = input.take(usize::from(shape & 7)).to_vec();
                value.resize(value.len() + usize::from(shape) * 2, shape);
                batch.put_cf(&cf, &key, &value);
                Change::Put(name, key, value)
            };
            self.model.apply(&change);
        }
        let options = WriteOptions { sync: number & 32 != 0, ..WriteOptions::default() };
        self.db().write(&batch, &options).expect("memory does not fail");
    }

    /// Now, or as of a snapshot.
    fn moment(&self, number: u8) -> (ReadOptions, &Model) {
        match self.snapshots.get(usize::from(number) % 5) {
            Some((snapshot, model)) => {
                (ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() }, model)
            }
            None => (ReadOptions::default(), &self.model),
        }
    }

    fn get(&self, number: u8, moment: u8) {
        let (name, cf) = self.family(number >> 6);
        let (options, model) = self.moment(moment);
        let keys: Vec<Vec<u8>> = [0, 1, 40].iter().map(|more| key_of(number.wrapping_add(*more))).collect();
        let found = self.db().multi_get_cf(&options, &cf, &keys);
        for (key, found) in keys.iter().zip(found) {
            let expected = model.family(&name).get(key).map(Vec::as_slice);
            let one = self.db().get_cf(&options, &cf, key).expect("memory does not fail");
            assert_eq!(one.as_deref(), expected, "get {name} {}", key.escape_ascii());
            assert_eq!(found.expect("memory does not fail").as_deref(), expected, "multi_get");
        }
    }

    fn walk(&self, input: &mut Input<'_>, number: u8) {
        let (name, cf) = self.family(number >> 6);
        let shape = input.byte();
        let (mut options, model) = self.moment(shape & 7);
        options.iterate_upper_bound = (shape & 8 != 0).then(|| key_of(input.byte()));
        let in_bounds =
            |key: &[u8]| options.iterate_upper_bound.as_ref().is_none_or(|bound| key < bound.as_slice());
        let entries: crate::directory::Entries = model
            .family(&name)
            .iter()
            .filter(|(key, _)| in_bounds(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let mut iter = self.db().iter_cf(&options, &cf).expect("memory does not fail");
        let mut at: Option<Vec<u8>> = None;
        for _ in 0..input.byte() % 24 {
            let what = input.byte();
            let target = key_of(what >> 2);
            let (moved, expected) = match (what & 3, &at) {
                (0, _) => (iter.seek(&target), entries.range(target..).next()),
                (1, _) => (iter.seek_for_prev(&target), entries.range(..=target).next_back()),
                (2, Some(here)) => {
                    let after = (Bound::Excluded(here.clone()), Bound::Unbounded);
                    (iter.next(), entries.range(after).next())
                }
                (3, Some(here)) => (iter.prev(), entries.range(..here.clone()).next_back()),
                (2, None) => (iter.seek_to_first(), entries.first_key_value()),
                _ => (iter.seek_to_last(), entries.last_key_value()),
            };
            assert_eq!(moved.expect("memory does not fail"), expected.is_some());
            let found = iter.key().zip(iter.value());
            assert_eq!(found, expected.map(|(key, value)| (key.as_slice(), value.as_slice())));
            at = expected.map(|(key, _)| key.clone());
        }
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        self.db().close().expect("memory does not fail");
        self.db = None;
        self.open();
    }

    fn create_or_drop(&mut self, number: u8) {
        if number & 1 == 0 && self.families.len() < 3 {
            self.created += 1;
            let name = format!("family{}", self.created);
            let options = self.families[0].1.clone();
            self.db().create_column_family(&name, &options).expect("memory does not fail");
            self.model.create(&name);
            self.families.push((name, options));
        } else if self.families.len() > 1 {
            let (name, _) = self.families.remove(1);
            let cf = self.db().column_family(&name).expect("it was opened");
            self.db().drop_column_family(&cf).expect("memory does not fail");
            self.model.remove(&name);
            // What their families had is not asked for any more.
            self.snapshots.iter_mut().for_each(|(_, model)| model.remove(&name));
        }
    }

    fn compare(&self) {
        for (name, _) in &self.families {
            let cf = self.db().column_family(name).expect("it was opened");
            let found = crate::directory::scan(self.db(), &cf).expect("memory does not fail");
            assert!(&found == self.model.family(name), "{name} differs from the map");
        }
    }
}

fn key_of(number: u8) -> Vec<u8> {
    let number = number & 63;
    format!("{}{:02}", "k".repeat(usize::from(number % 4) + 1), number).into_bytes()
}

fn seeds() -> Vec<Seed> {
    let script: &[u8] = b"\x00\x01\x02ab\x00\x02\x05hello\x04\x03\x09\x02ab\x05world\x03\x09\x00\x0b\x00\x05\x01\x07\x01\x00\x08\
        \x00\x02\x02\x03\x03\x02\x01\x05\x00\x01\x03\x0f\x00\x0d\x00\x0e\x00\x00\x41\x02cd\x0c\x00\x0a\x00\x0f\x00";
    (0..6u8)
        .map(|number| {
            let options = [number, number << 5 | number, number, number >> 1, number & 1];
            Seed::new(format!("script_{number}"), [&options[..], script].concat())
        })
        .collect()
}
