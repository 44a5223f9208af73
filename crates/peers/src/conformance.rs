//! What every engine has to get right before its numbers mean anything.

use crate::data::{Key, Shuffle, Values, key, missing_key, prefixless_key};
use crate::engine::{Compression, Direction, Engine, KINDS, Kind, Scan, Session, Setup, Sink};
use crate::work::{self, Plan, Work};

const RECORDS: u64 = 20_000;

fn setup() -> Setup {
    // Small, so that data reaches files and levels.
    Setup { cache_bytes: 4 << 20, memory_bytes: 1 << 20, most_bytes: 1 << 30, ..Setup::default() }
}

fn sink() -> Sink {
    Sink { copies: Some(Vec::new()), ..Sink::default() }
}

fn scan(
    session: &mut dyn Session,
    from: Option<Key>,
    direction: Direction,
    limit: u64,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut sink = sink();
    let seen = session.scan(Scan { from: from.as_ref(), direction, limit }, &mut sink).unwrap();
    let copies = sink.copies.unwrap();
    assert_eq!(seen, copies.len() as u64);
    copies
}

/// Everything is there, with its value; nothing else is.
fn check(engine: &dyn Engine, values: &Values, generation: impl Fn(u64) -> u64) {
    let value = |number: u64| values.value(number, generation(number)).to_vec();
    let expected = |number: u64| (key(number).to_vec(), value(number));
    let mut session = engine.session().unwrap();
    for number in 0..RECORDS {
        let mut sink = sink();
        assert!(session.get(&key(number), &mut sink).unwrap(), "{number}");
        assert_eq!(sink.copies.unwrap(), [(Vec::new(), value(number))], "{number}");
    }
    for number in (0..RECORDS + 10).step_by(7) {
        assert!(!session.get(&missing_key(number), &mut sink()).unwrap(), "{number}");
    }
    assert!(!session.get(&key(RECORDS), &mut sink()).unwrap());

    let mut found = sink();
    let keys = [key(3), missing_key(3), key(RECORDS - 1), key(RECORDS), key(0)];
    assert_eq!(session.multi_get(&keys, &mut found).unwrap(), 3);
    let mut shown: Vec<Vec<u8>> = found.copies.unwrap().into_iter().map(|(_, value)| value).collect();
    let mut wanted = [3, RECORDS - 1, 0].map(value).to_vec();
    shown.sort();
    wanted.sort();
    assert_eq!(shown, wanted);

    use Direction::{Forward, Reverse};
    let all: Vec<_> = (0..RECORDS).map(expected).collect();
    assert!(scan(&mut *session, None, Forward, u64::MAX) == all, "forward");
    let backward: Vec<_> = all.iter().rev().cloned().collect();
    assert!(scan(&mut *session, None, Reverse, u64::MAX) == backward, "reverse");
    assert_eq!(scan(&mut *session, Some(key(50)), Forward, 11), all[50..61]);
    assert_eq!(scan(&mut *session, Some(missing_key(50)), Forward, 2), all[51..53]);
    assert_eq!(scan(&mut *session, Some(key(50)), Reverse, 3), [50, 49, 48].map(expected));
    assert_eq!(scan(&mut *session, Some(missing_key(50)), Reverse, 2), [50, 49].map(expected));
    assert_eq!(scan(&mut *session, Some(key(RECORDS)), Forward, 5), []);
    assert_eq!(scan(&mut *session, Some(key(RECORDS)), Reverse, 1), [expected(RECORDS - 1)]);
    assert_eq!(scan(&mut *session, Some(key(0)), Reverse, 5), [expected(0)]);
}

fn conforms(kind: &Kind, setup: &Setup) {
    let dir = tempfile::tempdir().unwrap();
    let values = Values::new(100);
    let engine = (kind.open)(dir.path(), setup).unwrap();
    {
        let mut session = engine.session().unwrap();
        let shuffle = Shuffle::new(RECORDS);
        let mut batch: Vec<(Key, &[u8])> = Vec::new();
        for number in (0..RECORDS).map(|place| shuffle.at(place)) {
            // Some one by one, most together.
            if number % 100 == 0 {
                session.put(&key(number), values.value(number, 0)).unwrap();
            } else {
                batch.push((key(number), values.value(number, 0)));
            }
            if batch.len() == 500 || (setup.sync && batch.len() == 100) {
                session.put_batch(&batch).unwrap();
                batch.clear();
            }
        }
        session.put_batch(&batch).unwrap();
        // What one session has shown before, it shows anew after another write.
        assert!(session.get(&key(5), &mut sink()).unwrap());
        assert_eq!(scan(&mut *session, Some(key(5)), Direction::Forward, 1)[0].1, values.value(5, 0));
        session.put(&key(5), values.value(5, 1)).unwrap();
        assert_eq!(scan(&mut *session, Some(key(5)), Direction::Forward, 1)[0].1, values.value(5, 1));
    }
    let generation = |number: u64| u64::from(number == 5);
    check(&*engine, &values, generation);
    engine.settle().unwrap();
    check(&*engine, &values, generation);
    engine.statistics();
    drop(engine);
    let engine = (kind.open)(dir.path(), setup).unwrap();
    check(&*engine, &values, generation);
}

#[test]
fn engines_keep_what_they_are_given() {
    for kind in KINDS {
        println!("{} {}", kind.name, (kind.version)());
        conforms(kind, &setup());
    }
}

#[test]
fn engines_keep_what_they_are_given_synced_and_compressed() {
    for kind in KINDS {
        let compression = if kind.name == "leveldb" { Compression::None } else { Compression::Lz4 };
        conforms(kind, &Setup { sync: true, compression, ..setup() });
    }
}

#[test]
fn readers_see_whole_values_while_a_writer_replaces_them() {
    for kind in KINDS {
        let dir = tempfile::tempdir().unwrap();
        let values = Values::new(100);
        let engine = (kind.open)(dir.path(), &setup()).unwrap();
        let write = |generation: u64| {
            let mut session = engine.session().unwrap();
            (0..200).for_each(|number| session.put(&key(number), values.value(number, generation)).unwrap());
        };
        write(0);
        std::thread::scope(|scope| {
            scope.spawn(|| (1..10).for_each(write));
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut session = engine.session().unwrap();
                    for round in 0..20_000u64 {
                        let mut sink = sink();
                        let number = round % 200;
                        assert!(session.get(&key(number), &mut sink).unwrap());
                        let value = sink.copies.unwrap().pop().unwrap().1;
                        assert!(
                            (0..10).any(|generation| value == values.value(number, generation)),
                            "{}",
                            kind.name
                        );
                    }
                });
            }
        });
    }
}

#[test]
fn every_work_runs_on_every_engine_and_says_what_it_did() {
    for kind in KINDS {
        let dir = tempfile::tempdir().unwrap();
        let plan = |work| Plan {
            work,
            dir: dir.path().join("db"),
            records: 2000,
            value_bytes: 100,
            threads: 2,
            seconds: 0.05,
            rate: 0.0,
            writes: 0,
            batch: if work == Work::FillRandom { 100 } else { 1 },
            warm: true,
            databases: 3,
        };
        for work in <Work as clap::ValueEnum>::value_variants() {
            let has_merges = ["ironstone", "rocksdb"].contains(&kind.name);
            if !has_merges && matches!(work, Work::MergeCounter | Work::PrefixScan | Work::PrefixMissing) {
                continue;
            }
            if *work == Work::Checkpoint && !has_merges {
                continue;
            }
            if *work == Work::DrainQueue && !["ironstone", "rocksdb", "leveldb"].contains(&kind.name) {
                continue;
            }
            let setup = Setup {
                sync: *work == Work::SyncedWrites,
                counters: has_merges,
                prefix_bytes: if matches!(work, Work::PrefixScan | Work::PrefixMissing) { 9 } else { 0 },
                automatic_compaction: *work != Work::Compact || kind.name == "leveldb",
                ..setup()
            };
            if *work == Work::Compact && !["ironstone", "rocksdb", "leveldb"].contains(&kind.name) {
                continue;
            }
            // Works that only read, or that go on, follow on those that fill.
            let record = work::run(kind, &plan(*work), &setup)
                .unwrap_or_else(|error| panic!("{}: {work:?}: {error}", kind.name));
            assert_eq!(record["engine"], kind.name);
            assert!(record["operations"].as_u64().unwrap() > 0, "{record}");
            assert!(record["ops_per_second"].as_f64().unwrap() > 0.0, "{record}");
            assert!(record["disk_mib"].as_f64().unwrap() > 0.0, "{record}");
            assert!(record["peak_rss_mib"].as_f64().unwrap() > 1.0, "{record}");
            assert!(
                record["latency_us"]["max"].as_f64().unwrap()
                    >= record["latency_us"]["p50"].as_f64().unwrap()
            );
            // The next works need the 2000 records that only these leave behind.
            if matches!(
                work,
                Work::SyncedWrites | Work::WriteLatency | Work::Compact | Work::DrainQueue | Work::Checkpoint
            ) {
                work::run(kind, &plan(Work::FillRandom), &setup).unwrap();
            }
        }
    }
}

#[test]
fn works_that_only_write_end_after_as_many_writes_as_they_are_told() {
    for kind in KINDS.iter().filter(|kind| ["ironstone", "rocksdb"].contains(&kind.name)) {
        let dir = tempfile::tempdir().unwrap();
        let plan = |work, writes| Plan {
            work,
            dir: dir.path().join("db"),
            records: 1000,
            value_bytes: 8,
            threads: 3,
            seconds: 3600.0,
            rate: 0.0,
            writes,
            batch: 1,
            warm: true,
            databases: 1,
        };
        let setup = Setup { counters: true, ..setup() };
        work::run(kind, &plan(Work::FillRandom, 7), &setup).unwrap();
        for work in [Work::Overwrite, Work::UpdateCounter, Work::WriteLatency, Work::SyncedWrites] {
            let record = work::run(kind, &plan(work, 100), &setup).unwrap();
            assert_eq!(record["operations"], 100, "{}: {work:?}", kind.name);
        }
    }
}

#[test]
fn counters_count_every_addition() {
    for kind in KINDS.iter().filter(|kind| ["ironstone", "rocksdb"].contains(&kind.name)) {
        let dir = tempfile::tempdir().unwrap();
        let plan = |work| Plan {
            work,
            dir: dir.path().join("db"),
            records: 3000,
            value_bytes: 8,
            threads: 1,
            seconds: 0.05,
            rate: if work == Work::WriteLatency { 50_000.0 } else { 0.0 },
            writes: 0,
            batch: 1,
            warm: true,
            databases: 1,
        };
        let setup = Setup { counters: true, ..setup() };
        let mut additions = 0;
        for work in [Work::MergeCounter, Work::UpdateCounter] {
            additions += work::run(kind, &plan(work), &setup).unwrap()["operations"].as_u64().unwrap();
            let engine = (kind.open)(&plan(work).dir, &setup).unwrap();
            let all = scan(&mut *engine.session().unwrap(), None, Direction::Forward, u64::MAX);
            assert_eq!(all.len(), 3000);
            let count = |(_, value): &(Vec<u8>, Vec<u8>)| u64::from_le_bytes(value[..].try_into().unwrap());
            assert_eq!(all.iter().map(count).sum::<u64>(), additions, "{}: {work:?}", kind.name);
        }
    }
}

#[test]
fn scans_of_a_prefix_end_with_it() {
    for kind in KINDS.iter().filter(|kind| ["ironstone", "rocksdb"].contains(&kind.name)) {
        let dir = tempfile::tempdir().unwrap();
        let engine = (kind.open)(dir.path(), &Setup { prefix_bytes: 9, ..setup() }).unwrap();
        let mut session = engine.session().unwrap();
        (0..100).for_each(|number| session.put(&key(number), b"value").unwrap());
        session.put(&missing_key(7), b"value").unwrap();
        for settled in [false, true] {
            let forward = |session: &mut dyn Session, from| {
                scan(session, Some(from), Direction::Forward, u64::MAX).len()
            };
            assert_eq!(forward(&mut *session, key(7)), 2);
            assert_eq!(forward(&mut *session, key(8)), 1);
            assert_eq!(forward(&mut *session, prefixless_key(8)), 0);
            assert_eq!(scan(&mut *session, None, Direction::Forward, u64::MAX).len(), 101);
            if !settled {
                engine.settle().unwrap();
            }
        }
    }
}
