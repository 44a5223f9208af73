//! How long a hit takes, and how often a skewed load hits: `cargo bench -p ironstone-cache`.

use ironstone_base::sync::Arc;
use ironstone_base::sync::thread;
use ironstone_cache::{Cache, CacheKey, CacheOptions, Priority};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;

const ENTRY: usize = 8 << 10;
const CAPACITY: usize = 32768 * ENTRY;
const KEYS: u64 = 16384;
const OPERATIONS: usize = 2_000_000;

struct Random(u64);
impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Ranks by Zipf's law, scattered over the keys.
fn zipf_keys(keys: u64, skew: f64, count: usize, seed: u64) -> Vec<CacheKey> {
    let mut sums = Vec::with_capacity(keys as usize);
    let mut sum = 0.0;
    for rank in 1..=keys {
        sum += (rank as f64).powf(-skew);
        sums.push(sum);
    }
    let mut random = Random(seed);
    let rank = |fraction: f64| sums.partition_point(|&below| below < fraction * sum) as u64;
    (0..count).map(|_| rank(random.fraction()).wrapping_mul(48271) % keys).map(key).collect()
}

fn key(number: u64) -> CacheKey {
    CacheKey(number / 1000, number % 1000 * 4096)
}

fn new_cache() -> Arc<Cache<[u64; 3]>> {
    Cache::new(CacheOptions { capacity: CAPACITY, ..CacheOptions::default() })
}

fn cpu_nanos() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// Runs `body` on each thread, some times over, and prints the best CPU time per operation: other work
/// on the machine disturbs that least. Returns the hits of one round.
fn run(what: &str, threads: usize, body: impl Fn(usize) -> usize + Send + Sync + 'static) -> usize {
    let body = Arc::new(body);
    let mut best = (f64::INFINITY, 0);
    for _ in 0..5 {
        let running: Vec<_> = (0..threads)
            .map(|number| {
                let body = Arc::clone(&body);
                thread::spawn_named("bench", move || {
                    let start = cpu_nanos();
                    let hits = body(number);
                    (cpu_nanos() - start, hits)
                })
            })
            .collect();
        let rounds: Vec<_> = running.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        let nanos: f64 = rounds.iter().map(|(nanos, _)| nanos).sum();
        let hits: usize = rounds.iter().map(|(_, hits)| hits).sum();
        if nanos < best.0 {
            best = (nanos, hits);
        }
    }
    let operations = (OPERATIONS * threads) as f64;
    let hits = 100.0 * best.1 as f64 / operations;
    println!("{what}, {threads} threads: {:.1} ns CPU per operation, {hits:.1} % hits", best.0 / operations);
    best.1
}

fn main() {
    for threads in [1, 2, 4] {
        let cache = new_cache();
        let mut hints = Vec::new();
        for number in 0..KEYS {
            let handle = cache.insert(key(number), [number; 3], ENTRY, Priority::Low).expect("no limit");
            hints.push(handle.hint());
        }
        let (get, hinted) = (Arc::clone(&cache), cache);
        run("hot get", threads, move |thread| {
            let mut random = Random(thread as u64 + 1);
            (0..OPERATIONS)
                .filter(|_| {
                    let found = get.get(&key(random.next() % KEYS));
                    black_box(found.as_deref().map(|value| value[0])).is_some()
                })
                .count()
        });
        run("hot get with hint", threads, move |thread| {
            let mut random = Random(thread as u64 + 1);
            (0..OPERATIONS)
                .filter(|_| {
                    let number = random.next() % KEYS;
                    let found = hinted.get_at(hints[number as usize], &key(number));
                    black_box(found.as_deref().map(|value| value[0])).is_some()
                })
                .count()
        });

        let cache = new_cache();
        run("one key", threads, move |_| {
            (0..OPERATIONS)
                .filter(|_| {
                    black_box(cache.get(&key(7))).is_some() || {
                        drop(cache.insert(key(7), [7; 3], ENTRY, Priority::Low));
                        false
                    }
                })
                .count()
        });

        for skew in [0.99, 0.8] {
            let cache = new_cache();
            let keys: Vec<_> =
                (0..threads).map(|t| zipf_keys(131_072, skew, OPERATIONS, t as u64 + 1)).collect();
            run(&format!("zipf {skew} get or insert"), threads, move |thread| {
                keys[thread]
                    .iter()
                    .filter(|&&key| {
                        let hit = cache.get(&key).is_some();
                        if !hit {
                            drop(cache.insert(key, [key.0; 3], ENTRY, Priority::Low));
                        }
                        hit
                    })
                    .count()
            });
        }
    }
}
