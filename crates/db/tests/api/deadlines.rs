//! Reads that must be done in time: `deadline`, and what a multi-get may find (`value_size_soft_limit`).

use crate::disk::{DIR, Disk, refused};
use ironstone::vfs::{Clock, ManualClock};
use ironstone::{Code, Db, Options, PinnedValue, ReadOptions, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

const NOW: u64 = 1_700_000_000_000_000;

fn until(micros: u64) -> ReadOptions {
    ReadOptions { deadline: Duration::from_micros(micros), ..ReadOptions::default() }
}

fn key(i: usize) -> String {
    format!("key{i:03}")
}

/// A database whose tables hold 100 keys, one in a block, none of them in the cache.
fn blocks(options: &mut Options, disk: &Disk) -> Db {
    options.cf.table.block_size = 1;
    let db = disk.open_with(options);
    for i in 0..100 {
        db.put(key(i), "x".repeat(10)).unwrap();
    }
    db.flush().unwrap();
    db
}

/// What happened to each key: `+` found, `-` missing, `t` timed out, `a` aborted.
fn fates(found: &[Result<Option<PinnedValue>>]) -> String {
    let fate = |found: &Result<Option<PinnedValue>>| match found {
        Ok(Some(_)) => '+',
        Ok(None) => '-',
        Err(error) if error.code() == Code::TimedOut => 't',
        Err(error) if error.code() == Code::Aborted => 'a',
        Err(error) => panic!("{error}"),
    };
    found.iter().map(fate).collect()
}

#[test]
fn no_block_is_read_after_the_deadline() {
    let clock = Arc::new(ManualClock::new(NOW));
    let disk = Disk::with_clock(&clock);
    let db = blocks(&mut disk.options(), &disk);
    let cf = db.default_column_family();
    db.put("fresh", "in the memtable").unwrap();

    assert!(db.get_cf(&until(NOW + 1), cf, key(1)).unwrap().is_some(), "there is time");
    let error = refused(db.get_cf(&until(NOW), cf, key(2)), Code::TimedOut, "the deadline passed before");
    assert!(error.message().contains(".sst at "), "{error}");
    assert!(db.get_cf(&until(NOW - 5), cf, "fresh").unwrap().is_some(), "memory answers");
    assert!(db.get_cf(&until(NOW - 5), cf, key(1)).unwrap().is_some(), "the cache answers");
    assert!(db.get_cf(&until(NOW - 5), cf, "no such key").unwrap().is_none(), "no table may hold it");
    assert!(db.get(key(2)).unwrap().is_some());

    refused(db.get_merge_operands(&until(NOW), cf, key(3), 1), Code::TimedOut, "deadline");
    assert!(db.key_may_exist_cf(&until(NOW), cf, key(4)), "never wrong on the side of no");
}

#[test]
fn an_iterator_keeps_its_deadline() {
    for readahead_size in [0, 1] {
        let clock = Arc::new(ManualClock::new(NOW));
        let disk = Disk::with_clock(&clock);
        let db = blocks(&mut disk.options(), &disk);
        let cf = db.default_column_family();
        let options = ReadOptions { readahead_size, ..until(NOW + 10) };
        let mut iter = db.iter_cf(&options, cf).unwrap();
        assert!(iter.seek(key(10)).unwrap());
        assert!(iter.next().unwrap());
        clock.set_micros(NOW + 10);
        assert_eq!(iter.key(), Some(key(11).as_bytes()), "what it stands on stays");
        refused(iter.next(), Code::TimedOut, ".sst at ");
        assert!(!iter.valid());
        refused(iter.status(), Code::TimedOut, "deadline");
        refused(iter.seek(key(50)), Code::TimedOut, "deadline");
        refused(iter.seek_for_prev(key(60)), Code::TimedOut, "deadline");
        assert!(iter.seek(key(10)).unwrap(), "the cache has the block");
        assert!(iter.status().is_ok());
        clock.set_micros(NOW);
        assert!(iter.seek(key(50)).unwrap(), "it is the clock that counts");
    }
}

#[test]
fn opening_an_iterator_within_a_partitioned_index_times_out() {
    let clock = Arc::new(ManualClock::new(NOW));
    let disk = Disk::with_clock(&clock);
    let mut options = disk.options();
    options.cf.table.index_type = ironstone::IndexType::TwoLevel;
    options.cf.table.metadata_block_size = 128;
    options.cf.table.cache_index_and_filter_blocks = true;
    let db = blocks(&mut options, &disk);
    let cf = db.default_column_family();
    refused(db.get_cf(&until(NOW), cf, key(50)), Code::TimedOut, "deadline");
    refused(db.iter_cf(&until(NOW), cf).and_then(|mut iter| iter.seek(key(50))), Code::TimedOut, "deadline");
    assert!(db.get(key(50)).unwrap().is_some());
    assert!(db.get_cf(&until(NOW), cf, key(50)).unwrap().is_some());
}

/// A clock that goes on by one microsecond each time that the thread of the test looks at it.
#[derive(Debug)]
struct TickingClock(AtomicU64, ThreadId);

impl Clock for TickingClock {
    fn now_micros(&self) -> u64 {
        let step = u64::from(std::thread::current().id() == self.1);
        self.0.fetch_add(step, Ordering::SeqCst)
    }
    fn monotonic_nanos(&self) -> u64 {
        self.0.load(Ordering::SeqCst) * 1000
    }
    fn sleep(&self, _duration: Duration) {
        std::thread::yield_now();
    }
}

#[test]
fn a_multi_get_answers_what_there_is_time_for() {
    let disk = Disk::new();
    let clock = Arc::new(TickingClock(AtomicU64::new(NOW), std::thread::current().id()));
    let mut options = disk.options();
    options.db.env.clock = clock.clone();
    options.cf.table.block_size = 1;
    let db = Db::open(&options, DIR).unwrap();
    let cf = db.default_column_family();
    let now = || clock.0.load(Ordering::SeqCst);
    // Backwards, so that the order of the keys is not that in which they are asked for.
    let keys: Vec<String> = (0..100).rev().map(key).collect();
    let fates_in_order = |options: &ReadOptions| {
        let found = db.multi_get_cf(options, cf, &keys);
        fates(&found).chars().rev().collect::<String>()
    };
    keys.iter().for_each(|key| db.put(key, "x").unwrap());
    // In memory: the clock is looked at before each 32.
    assert_eq!(fates_in_order(&until(now())), "t".repeat(100));
    assert_eq!(fates_in_order(&until(now() + 2)), "+".repeat(64) + &"t".repeat(36));
    assert_eq!(fates_in_order(&until(now() + 4)), "+".repeat(100));
    db.flush().unwrap();
    // From files: before each read as well. One look for the batch, five for blocks.
    assert_eq!(fates_in_order(&until(now() + 6)), "+".repeat(5) + &"t".repeat(95));
    // Now the cache has those: the looks are for others.
    assert_eq!(fates_in_order(&until(now() + 6)), "+".repeat(10) + &"t".repeat(90));
    assert_eq!(fates_in_order(&until(now() + 1000)), "+".repeat(100));

    let across: Vec<_> = keys.iter().map(|key| (cf, key)).collect();
    let found = db.multi_get_across(&until(now() + 3), &across);
    assert_eq!(fates(&found), "+".repeat(3) + &"t".repeat(97), "one look for each, in the order asked");
}

#[test]
fn a_multi_get_finds_no_more_than_it_may() {
    let disk = Disk::new();
    let db = blocks(&mut disk.options(), &disk);
    let cf = db.default_column_family();
    let up_to = |value_size_soft_limit| ReadOptions { value_size_soft_limit, ..ReadOptions::default() };
    // 10 bytes each: the limit is passed with the sixth.
    let keys: Vec<String> = [7, 500, 3, 1, 90, 2, 4, 5, 600, 6].map(key).to_vec();
    let fates_up_to = |limit| fates(&db.multi_get_cf(&up_to(limit), cf, &keys));
    assert_eq!(fates_up_to(u64::MAX), "+-++++++-+");
    assert_eq!(fates_up_to(50), "aa++a+++a+");
    assert_eq!(fates_up_to(60), "+a++a+++a+");
    assert_eq!(fates_up_to(0), "aaa+aaaaaa", "the first is answered whatever its size");
    let error = db.multi_get_cf(&up_to(15), cf, &keys).remove(0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Operation aborted: multi-get: value_size_soft_limit: the keys before have 20 bytes, more than 15"
    );

    // Whoever asks again for what was left out gets all of it.
    let (mut left, mut rounds) = ((0..100).map(key).collect::<Vec<_>>(), 0);
    while !left.is_empty() {
        let found = db.multi_get_cf(&up_to(95), cf, &left);
        let fates = fates(&found);
        left = left
            .into_iter()
            .zip(fates.chars())
            .filter(|(_, fate)| *fate == 'a')
            .map(|(key, _)| key)
            .collect();
        rounds += 1;
    }
    assert_eq!(rounds, 10);

    let across: Vec<_> = keys.iter().map(|key| (cf, key)).collect();
    assert_eq!(fates(&db.multi_get_across(&up_to(25), &across)), "+-++aaaaaa");
}
