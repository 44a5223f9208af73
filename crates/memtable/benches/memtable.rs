//! Speed and size of the memtable kinds.
//!
//! ```text
//! cargo bench -p ironstone-memtable -- [--kinds radix,skiplist,vector] [--keys rand,dbb,user,seq,path]
//!     [--entries N] [--repeats N] [--writers N] [--readers N] [--insert-only]
//! ```
//! Single-thread numbers are CPU time per operation, the best of the repeats; those with several
//! threads are wall time. Keys: `rand` 16 random bytes; `dbb` db_bench's keys (8 bytes big-endian,
//! padded to 16 with `0`) in random order; `user` "user%012d" shuffled; `seq` the same ascending;
//! `path` 36 bytes, "tenant-%03d/user/%010x/item-%02d".
#![allow(clippy::disallowed_methods, missing_docs)]

use ironstone_base::internal_key::{InternalKeyBuf, SequenceNumber, ValueType};
use ironstone_base::{InternalKeyComparator, UserComparator};
use ironstone_iter::InternalIterator;
use ironstone_memtable::{MemTable, MemTableKind, MemTableOptions};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// A key of up to 47 bytes, and its length: no pointer to follow, so that only the memtable misses.
#[derive(Clone, Copy)]
struct Key {
    bytes: [u8; 47],
    len: u8,
}

impl Deref for Key {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }
}

impl Key {
    fn new(bytes: &[u8]) -> Self {
        let mut key = Self { bytes: [0; 47], len: bytes.len() as u8 };
        key.bytes[..bytes.len()].copy_from_slice(bytes);
        key
    }
}

fn seconds(clock: ClockId) -> f64 {
    let now = clock_gettime(clock);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}
fn cpu() -> f64 {
    seconds(ClockId::ThreadCPUTime)
}
fn wall() -> f64 {
    seconds(ClockId::Monotonic)
}

fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A bijection on 0..entries that looks random.
fn shuffled(entries: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..entries).collect();
    for at in (1..entries).rev() {
        numbers.swap(at as usize, (mix(at) % (at + 1)) as usize);
    }
    numbers
}

fn key(pattern: &str, number: u64) -> Key {
    let (first, second) = (mix(number), mix(!number));
    match pattern {
        "rand" => Key::new(&[first.to_be_bytes(), second.to_be_bytes()].concat()),
        "dbb" => Key::new(&[number.to_be_bytes(), *b"00000000"].concat()),
        "path" => Key::new(
            format!("tenant-{:03}/user/{:010x}/item-{:02}", first % 300, second >> 30, number % 100)
                .as_bytes(),
        ),
        _ => Key::new(format!("user{number:012}").as_bytes()),
    }
}

fn keys(pattern: &str, entries: u64, present: bool) -> Vec<Key> {
    if pattern == "seq" && present {
        return (0..entries).map(|at| key(pattern, at)).collect();
    }
    let keys = shuffled(entries).into_iter().map(|at| key(pattern, at));
    if present {
        return keys.collect();
    }
    // Absent keys lie between the present ones, as keys that only tables hold do.
    keys.map(|mut key| {
        key.bytes[key.len as usize - 1] ^= 0x40;
        key
    })
    .collect()
}

fn make(kind: MemTableKind, entries: u64) -> Arc<MemTable> {
    let options = MemTableOptions { write_buffer_size: entries as usize * 140, ..MemTableOptions::default() };
    Arc::new(MemTable::new(kind, InternalKeyComparator::new(UserComparator::Bytewise), &options))
}

const VALUE: [u8; 100] = [b'v'; 100];

fn insert(table: &MemTable, keys: &[Key], first: u64) {
    for (at, key) in keys.iter().enumerate() {
        table.add(SequenceNumber(first + at as u64), ValueType::Value, key, &VALUE);
    }
}

/// Best CPU nanoseconds per operation of each step.
#[derive(Clone, Copy)]
struct Best([f64; 8]);

fn insert_only(kind: MemTableKind, pattern: &str, entries: u64, repeats: usize) {
    let present = keys(pattern, entries, true);
    let mut best = f64::MAX;
    for _ in 0..repeats {
        let start = cpu();
        insert(&make(kind, entries), &present, 1);
        best = best.min((cpu() - start) * 1e9 / entries as f64);
    }
    println!("{:<9} {pattern:<5} {entries:>9} | ins {best:6.0}", format!("{kind:?}"));
}

fn one_thread(kind: MemTableKind, pattern: &str, entries: u64, repeats: usize) {
    let present = keys(pattern, entries, true);
    let absent = keys(pattern, entries, false);
    // Not in the order of insertion, which is the order in memory.
    let probes: Vec<Key> = (0..entries).map(|at| present[(mix(at) % entries) as usize]).collect();
    let mut best = Best([f64::MAX; 8]);
    let mut per_entry = 0.0;
    for _ in 0..repeats {
        let mut step = 0;
        let mut note = |start: f64, operations: u64| {
            best.0[step] = best.0[step].min((cpu() - start) * 1e9 / operations as f64);
            step += 1;
        };
        let start = cpu();
        let table = make(kind, entries);
        insert(&table, &present, 1);
        note(start, entries);
        per_entry = table.memory_usage() as f64 / entries as f64;
        let start = cpu();
        table.mark_read_only(); // The vector kind sorts.
        note(start, entries);

        let start = cpu();
        for key in &probes {
            assert!(black_box(table.get(key, SequenceNumber::MAX)).is_some());
        }
        note(start, entries);

        let start = cpu();
        let found = absent.iter().filter(|key| table.get(key, SequenceNumber::MAX).is_some()).count();
        assert!(found < entries as usize / 10);
        note(start, entries);

        let mut iter = table.iter();
        for forward in [true, false] {
            let start = cpu();
            let mut sum = 0;
            let mut more = if forward { iter.seek_to_first() } else { iter.seek_to_last() }.unwrap();
            while more {
                sum += iter.key().as_bytes()[0] as u64 + iter.value()[7] as u64;
                more = if forward { iter.next() } else { iter.prev() }.unwrap();
            }
            black_box(sum);
            note(start, entries);
        }

        let seeks = entries / 4;
        let start = cpu();
        for probe in &probes[..seeks as usize] {
            let target = InternalKeyBuf::for_seek(probe, SequenceNumber::MAX);
            let mut more = iter.seek(target.as_key()).unwrap();
            for _ in 0..10 {
                if more {
                    black_box(iter.value()[7]);
                    more = iter.next().unwrap();
                }
            }
        }
        note(start, seeks);

        drop(iter);
        let start = cpu();
        drop(table);
        note(start, 1_000_000);
    }
    let [insert, sort, hit, miss, scan, back, seek, drop] = best.0;
    println!(
        "{:<9} {pattern:<5} {entries:>9} | ins {insert:6.0} sort {sort:4.0} hit {hit:6.0} miss {miss:6.0} scan {scan:6.1} back {back:6.1} seek+10 {seek:6.0} | {per_entry:6.1} B/entry drop {drop:5.2} ms",
        format!("{kind:?}")
    );
}

/// Writers fill the table while readers look up what was written.
fn threads(kind: MemTableKind, pattern: &str, entries: u64, writers: u64, readers: u64, repeats: usize) {
    let present = keys(pattern, entries, true);
    let (mut best_write, mut best_read) = (0.0f64, 0.0f64);
    for _ in 0..repeats {
        let table = make(kind, entries);
        let written: Vec<AtomicU64> = (0..writers).map(|_| AtomicU64::new(0)).collect();
        let (done, reads) = (AtomicBool::new(false), AtomicU64::new(0));
        let share = entries / writers;
        let start = wall();
        let mut finished = 0.0;
        std::thread::scope(|scope| {
            let (table, written, done, reads, present) = (&table, &written, &done, &reads, &present);
            let handles: Vec<_> = (0..writers)
                .map(|writer| {
                    scope.spawn(move || {
                        // Interleaved, so that writers meet in ascending patterns.
                        for at in 0..share {
                            let index = at * writers + writer;
                            let key = &present[index as usize];
                            table.add(SequenceNumber(index + 1), ValueType::Value, key, &VALUE);
                            written[writer as usize].store(at + 1, Relaxed);
                        }
                    })
                })
                .collect();
            for reader in 0..readers {
                scope.spawn(move || {
                    let mut count = 0u64;
                    while !done.load(Relaxed) {
                        let writer = mix(count ^ reader) % writers;
                        let limit = written[writer as usize].load(Relaxed);
                        if limit > 0 {
                            let index = mix(count + reader * 77) % limit * writers + writer;
                            let key = &present[index as usize];
                            assert!(black_box(table.get(key, SequenceNumber::MAX)).is_some());
                        }
                        count += 1;
                    }
                    reads.fetch_add(count, Relaxed);
                });
            }
            for handle in handles {
                handle.join().unwrap();
            }
            finished = wall() - start;
            done.store(true, Relaxed);
        });
        best_write = best_write.max((share * writers) as f64 / finished / 1e6);
        best_read = best_read.max(reads.load(Relaxed) as f64 / finished / 1e6);
    }
    println!(
        "{:<9} {pattern:<5} {entries:>9} | {writers} writers {best_write:6.2} M/s   {readers} readers {best_read:6.2} M/s",
        format!("{kind:?}")
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str, default: &str| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)).map_or(default, String::as_str).to_owned()
    };
    let number = |name: &str, default: &str| option(name, default).parse::<u64>().expect("a number");
    let (entries, repeats) = (number("--entries", "450000"), number("--repeats", "3") as usize);
    let (writers, readers) = (number("--writers", "0"), number("--readers", "0"));
    for pattern in option("--keys", "rand,dbb,user,seq,path").split(',') {
        for name in option("--kinds", "radix,skiplist,vector").split(',') {
            let kind = match name {
                "radix" => MemTableKind::RadixTree,
                "skiplist" => MemTableKind::SkipList,
                "vector" => MemTableKind::Vector,
                other => panic!("no kind {other}"),
            };
            if arguments.iter().any(|argument| argument == "--insert-only") {
                insert_only(kind, pattern, entries, repeats);
            } else if writers == 0 {
                one_thread(kind, pattern, entries, repeats);
            } else {
                threads(kind, pattern, entries, writers, readers, repeats);
            }
        }
    }
}
