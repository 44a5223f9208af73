//! The simulated block cache, and iterators that leave tables out.

use crate::disk::{Disk, forward};
use ironstone::statistics::Ticker;
use ironstone::vfs::fault::{Fault, FaultError, FaultRule};
use ironstone::vfs::{FileSystem, OpKind};
use ironstone::{
    BlockCache, CacheOptions, Code, CompressionKind, Db, Options, ReadOptions, SimCache, Statistics,
    TableFilter,
};
use std::path::Path;
use std::sync::Arc;

fn sized(capacity: usize) -> CacheOptions {
    CacheOptions { capacity, ..CacheOptions::default() }
}

struct Simulation {
    disk: Disk,
    simulated: Arc<SimCache>,
    statistics: Arc<Statistics>,
    db: Db,
    options: Options,
}

/// A database of 100 keys, each in a block of its own of 1000 bytes, in one table.
fn simulation(real: usize, simulated: usize) -> Simulation {
    let disk = Disk::new();
    let simulated = SimCache::new(sized(simulated));
    let statistics = Arc::new(Statistics::new());
    let mut options = disk.options();
    options.db.statistics = Some(Arc::clone(&statistics));
    options.cf.compression = CompressionKind::None;
    options.cf.table.block_size = 1000;
    options.cf.table.block_cache = Some(BlockCache::new(sized(real)));
    options.cf.table.sim_cache = Some(Arc::clone(&simulated));
    let db = disk.open_with(&options);
    (0..100).for_each(|key| db.put(format!("{key:03}"), "v".repeat(1000)).unwrap());
    db.flush().unwrap();
    simulated.reset_counters();
    statistics.reset();
    Simulation { disk, simulated, statistics, db, options }
}

impl Simulation {
    fn read_all(&self, times: usize) {
        for key in (0..times).flat_map(|_| 0..100) {
            assert!(self.db.get(format!("{key:03}")).unwrap().is_some());
        }
    }
    /// Hits and misses of the simulated cache, and hits of the real one.
    fn counts(&self) -> (u64, u64, u64) {
        let counts = (self.simulated.hits(), self.simulated.misses());
        let ticker = |ticker| self.statistics.ticker(ticker);
        assert_eq!((ticker(Ticker::SimBlockCacheHit), ticker(Ticker::SimBlockCacheMiss)), counts);
        (counts.0, counts.1, ticker(Ticker::BlockCacheHit))
    }
}

#[test]
fn a_larger_cache_is_foreseen() {
    let run = simulation(10_000, 1 << 20);
    run.read_all(3);
    let (hits, misses, real) = run.counts();
    assert_eq!((hits, misses), (200, 100));
    assert!(real < 100, "{real}");
    assert_eq!(
        run.simulated.to_string(),
        "SimCache MISSes:  100\nSimCache HITs:    200\nSimCache HITRATE: 66.67\n"
    );
    // What the real cache of that size holds is what the simulated one said.
    let large = simulation(1 << 20, 10_000);
    large.read_all(3);
    let (hits, misses, real) = large.counts();
    assert_eq!(real, 200);
    assert!(hits < 100 && hits + misses == 300, "{hits}");
    let held = large.options.cf.table.block_cache.as_ref().unwrap().usage();
    assert_eq!(run.simulated.usage(), held);
    assert!(large.simulated.usage() <= 10_000);

    run.simulated.reset_counters();
    assert_eq!((run.simulated.hits(), run.simulated.misses()), (0, 0));
    run.simulated.set_capacity(5_000);
    assert!(run.simulated.usage() <= 5_000 && run.simulated.capacity() == 5_000);
    let keys: Vec<String> = (0..100).map(|key| format!("{key:03}")).collect();
    run.db.multi_get(&keys).into_iter().for_each(|value| assert!(value.unwrap().is_some()));
    assert_eq!(run.simulated.hits() + run.simulated.misses(), 100);
}

/// Whatever it does, values and what is simulated are as before.
#[test]
fn a_cache_that_turns_blocks_away_is_not_noticed() {
    let run = simulation(10_000, 1 << 20);
    run.read_all(20);
    assert_eq!(run.counts().0, 1900);
    let keys: Vec<String> = (0..100).map(|key| format!("{key:03}")).collect();
    let values = run.db.multi_get(&keys);
    assert!(values.into_iter().all(|value| value.unwrap().unwrap().len() == 1000));
    let entries: Vec<_> = run.db.iter().unwrap().entries().map(Result::unwrap).collect();
    assert!(
        entries
            .iter()
            .map(|(key, value)| (&**key, value.len()))
            .eq(keys.iter().map(|key| (key.as_bytes(), 1000)))
    );
    assert_eq!((run.simulated.hits(), run.simulated.misses()), (2100, 100));
    // What comes for the first time now is turned away, and simulated all the same.
    (100..200).for_each(|key| run.db.put(format!("{key:03}"), "v".repeat(1000)).unwrap());
    run.db.flush().unwrap();
    let added = run.statistics.ticker(Ticker::BlockCacheDataAdd);
    let read_new = || (100..200).for_each(|key| assert!(run.db.get(format!("{key:03}")).unwrap().is_some()));
    read_new();
    assert!(run.statistics.ticker(Ticker::BlockCacheDataAdd) < added + 10);
    read_new();
    assert_eq!((run.simulated.hits(), run.simulated.misses()), (2200, 200));
    let (misses, added) = (Ticker::BlockCacheDataMiss, Ticker::BlockCacheDataAdd);
    let (misses, added) = (run.statistics.ticker(misses), run.statistics.ticker(added));
    assert!(added < misses / 2 && added > 200, "{added} of {misses} added");
}

#[test]
fn a_cache_that_is_not_there_is_not_simulated() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.table.sim_cache = Some(SimCache::new(sized(1000)));
    options.cf.table.no_block_cache = true;
    let refused = disk.try_open(&options).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
}

#[test]
fn the_log_has_what_was_asked_for() {
    let run = simulation(1 << 20, 1 << 20);
    let path = Path::new("/activity");
    let read = || String::from_utf8(run.disk.fs.read_all(path).unwrap()).unwrap();
    run.simulated.start_activity_log(&*run.disk.env().fs, path, 0).unwrap();
    run.db.get("000").unwrap();
    run.db.get("000").unwrap();
    run.simulated.stop_activity_log().unwrap();
    run.db.get("001").unwrap();
    let text = read();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(" - ").collect()).collect();
    assert_eq!(lines.iter().map(|line| line[0]).collect::<Vec<_>>(), ["LOOKUP", "ADD", "LOOKUP"], "{text}");
    assert!(lines.iter().all(|line| line[1] == lines[0][1] && line[1].len() == 32), "{text}");
    assert!(lines[1][2].parse::<usize>().unwrap() > 1000, "{text}");

    // It ends where it should, and with the first failure.
    run.simulated.start_activity_log(&*run.disk.env().fs, path, 100).unwrap();
    run.read_all(1);
    assert!(read().len() < 200);
    run.simulated.activity_log_status().unwrap();
    run.disk.faults.arm();
    run.disk.faults.add(
        FaultRule::new(Fault::Error(FaultError::NoSpace)).on(&[OpKind::Append]).path("activity").forever(),
    );
    run.simulated.start_activity_log(&*run.disk.env().fs, path, 0).unwrap();
    run.read_all(30);
    assert!(run.simulated.stop_activity_log().unwrap_err().to_string().contains("activity"));
}

#[test]
fn iterators_pass_over_tables_that_are_not_wanted() {
    for levels in [false, true] {
        let disk = Disk::new();
        let db = disk.open();
        for (keys, value) in [(["a", "b", "x"], "1"), (["b", "c", "d"], "22")] {
            keys.iter().for_each(|key| db.put(key, value).unwrap());
            db.flush().unwrap();
            if levels {
                crate::disk::rewrite_all(&db);
            }
        }
        db.delete_range("x", "y").unwrap();
        db.put("e", "memory").unwrap();
        let cf = db.default_column_family();
        let show = |filter: TableFilter| {
            let options = ReadOptions { table_filter: Some(filter), ..ReadOptions::default() };
            let text = forward(db.iter_cf(&options, cf).unwrap());
            let back = crate::disk::backward(db.iter_cf(&options, cf).unwrap());
            let turned: Vec<&str> = back.split(' ').rev().collect();
            assert_eq!(turned.join(" "), text);
            let mut iter = db.iter_cf(&options, cf).unwrap();
            assert_eq!(iter.seek("b").unwrap() && iter.key() == Some(b"b"), text.contains("b="), "{text}");
            text
        };
        let all = show(TableFilter::new(|_| true));
        assert_eq!(all, "a=1 b=22 c=22 d=22 e=memory");
        assert_eq!(show(TableFilter::new(|_| false)), "e=memory");
        let shorter = show(TableFilter::new(|table| table.raw_value_size == 3));
        assert_eq!(shorter, if levels { "e=memory" } else { "a=1 b=1 e=memory" });
        // Gets know of no filter.
        let options =
            ReadOptions { table_filter: Some(TableFilter::new(|_| false)), ..ReadOptions::default() };
        assert!(db.get_cf(&options, cf, "a").unwrap().is_some());
    }
}
