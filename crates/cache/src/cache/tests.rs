use super::*;
use ironstone_base::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use ironstone_base::sync::thread;

/// Counts how many of them live, and knows when it is used after its end.
struct Sentinel {
    id: u64,
    living: Arc<AtomicUsize>,
    check: u64,
}

const ALIVE: u64 = 0xa11e_a11e_a11e_a11e;

impl Sentinel {
    fn new(id: u64, living: &Arc<AtomicUsize>) -> Self {
        living.fetch_add(1, SeqCst);
        Self { id, living: Arc::clone(living), check: ALIVE ^ id }
    }
    fn id(&self) -> u64 {
        assert_eq!(self.check, ALIVE ^ self.id, "used after its end");
        self.id
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.id();
        self.check = 0;
        self.living.fetch_sub(1, SeqCst);
    }
}

const PER_ENTRY: usize = Cache::<u64>::CHARGE_PER_ENTRY;

fn cache_for(entries: usize, strict: bool) -> Arc<Cache<u64>> {
    Cache::new(CacheOptions {
        capacity: entries * (PER_ENTRY + 100),
        num_shard_bits: 0,
        strict_capacity_limit: strict,
        huge_pages: true,
        estimated_entry_charge: 0,
    })
}

fn put(cache: &Cache<u64>, key: u64) -> Handle<u64> {
    cache.insert(CacheKey(1, key), key, 100, Priority::Low).unwrap()
}

fn get(cache: &Cache<u64>, key: u64) -> Option<u64> {
    cache.get(&CacheKey(1, key)).map(|handle| *handle)
}

#[test]
fn finds_what_was_inserted() {
    let cache = cache_for(100, false);
    for key in 0..50 {
        put(&cache, key);
    }
    for key in 0..50 {
        assert_eq!(get(&cache, key), Some(key));
    }
    assert_eq!(get(&cache, 50), None);
    assert_eq!(cache.entry_count(), 50);
    assert_eq!(cache.usage(), 50 * (PER_ENTRY + 100));
    assert_eq!(cache.pinned_usage(), 0);
}

#[test]
fn evicts_to_stay_within_capacity() {
    let cache = cache_for(10, false);
    for key in 0..if cfg!(miri) { 60 } else { 1000 } {
        put(&cache, key);
        assert!(cache.usage() <= cache.capacity());
    }
    assert_eq!(cache.entry_count(), 10);
}

#[test]
fn hot_entries_survive_a_scan() {
    let cache = cache_for(100, false);
    (0..50).for_each(|key| drop(put(&cache, key)));
    for _ in 0..3 {
        (0..50).for_each(|key| assert_eq!(get(&cache, key), Some(key)));
    }
    (1000..if cfg!(miri) { 1200 } else { 3000 }).for_each(|key| drop(put(&cache, key)));
    assert_eq!((0..50).filter(|&key| cache.contains(&CacheKey(1, key))).count(), 50);
}

#[test]
fn high_priority_outlives_bottom() {
    let cache = cache_for(20, false);
    cache.insert(CacheKey(2, 0), 0, 100, Priority::High).unwrap();
    (0..19).for_each(|key| drop(put(&cache, key)));
    cache.insert(CacheKey(3, 0), 0, 100, Priority::Bottom).unwrap();
    put(&cache, 100);
    assert!(!cache.contains(&CacheKey(3, 0)));
    (200..300).for_each(|key| drop(put(&cache, key)));
    assert!(cache.contains(&CacheKey(2, 0)));
}

#[test]
fn pinned_entries_stay_and_count() {
    let cache = cache_for(4, false);
    let pins: Vec<_> = (0..4).map(|key| put(&cache, key)).collect();
    assert_eq!(cache.pinned_usage(), cache.capacity());
    // No room: it lives as long as the handle, and is not found.
    let extra = put(&cache, 9);
    assert_eq!(*extra, 9);
    assert_eq!(get(&cache, 9), None);
    assert_eq!(cache.usage(), 5 * (PER_ENTRY + 100));
    drop(extra);
    assert_eq!(cache.usage(), cache.capacity());
    assert_eq!(pins.iter().map(|pin| **pin).collect::<Vec<_>>(), [0, 1, 2, 3]);
    drop(pins);
    assert_eq!(cache.pinned_usage(), 0);
    put(&cache, 9);
    assert_eq!(get(&cache, 9), Some(9));
}

#[test]
fn strict_limit_refuses_when_all_is_pinned() {
    let cache = cache_for(40, true);
    let mut pins: Vec<_> = (0..40).map(|key| put(&cache, key)).collect();
    let error = cache.insert(CacheKey(1, 99), 99, 100, Priority::Low).unwrap_err();
    assert_eq!((error.code(), error.sub_code()), (Code::Incomplete, SubCode::MemoryLimit));
    // One is let go: there is room for one, wherever it is.
    drop(pins.remove(17));
    put(&cache, 99);
    assert_eq!(get(&cache, 17), None);
    assert_eq!(get(&cache, 99), Some(99));
}

#[test]
fn large_and_small_entries_share_the_capacity() {
    let cache = Cache::new(CacheOptions { capacity: 4 << 20, num_shard_bits: 3, ..CacheOptions::default() });
    for round in 0..if cfg!(miri) { 1 } else { 50 } {
        let filter = cache.insert(CacheKey(1, round), round, 1 << 20, Priority::High).unwrap();
        for block in 0..500 {
            cache.insert(CacheKey(2 + round, block), block, 4096, Priority::Low).unwrap();
            assert!(cache.usage() <= cache.capacity());
        }
        assert_eq!(cache.get(&CacheKey(1, round)).as_deref(), Some(&round));
        drop(filter);
    }
}

#[test]
fn replaced_entry_lives_in_its_handles() {
    let cache = cache_for(10, false);
    let old = put(&cache, 1);
    let new = cache.insert(CacheKey(1, 1), 77, 100, Priority::Low).unwrap();
    assert_eq!((*old, *new, get(&cache, 1)), (1, 77, Some(77)));
    assert_eq!(cache.entry_count(), 1);
    drop(old);
    assert_eq!(cache.usage(), PER_ENTRY + 100);
}

#[test]
fn erased_entry_is_freed_with_its_last_handle() {
    let living = Arc::default();
    let cache = Cache::new(CacheOptions::default());
    let handle = cache.insert(CacheKey(1, 1), Sentinel::new(1, &living), 10, Priority::Low).unwrap();
    let second = handle.clone();
    cache.erase(&CacheKey(1, 1));
    assert!(cache.get(&CacheKey(1, 1)).is_none());
    drop(handle);
    assert_eq!(living.load(SeqCst), 1);
    assert_eq!(second.id(), 1);
    drop(second);
    assert_eq!((living.load(SeqCst), cache.usage()), (0, 0));
}

#[test]
fn handles_outlive_the_cache() {
    let living = Arc::default();
    let cache = Cache::new(CacheOptions::default());
    let mut handles: Vec<_> = (0..10)
        .map(|id| cache.insert(CacheKey(1, id), Sentinel::new(id, &living), 10, Priority::Low).unwrap())
        .collect();
    handles.truncate(5);
    drop(cache);
    assert_eq!(living.load(SeqCst), 5);
    assert_eq!(handles[4].id(), 4);
    drop(handles);
    assert_eq!(living.load(SeqCst), 0);
}

#[test]
fn capacity_changes_at_once() {
    let cache = cache_for(20, false);
    (0..20).for_each(|key| drop(put(&cache, key)));
    let pins: Vec<_> = (0..20).filter_map(|key| cache.get(&CacheKey(1, key))).take(10).collect();
    cache.set_capacity(5 * (PER_ENTRY + 100));
    assert_eq!(cache.usage(), 10 * (PER_ENTRY + 100));
    drop(pins);
    assert!(cache.usage() <= cache.capacity());
    cache.set_capacity(0);
    assert_eq!((cache.usage(), cache.entry_count()), (0, 0));
    assert_eq!(*put(&cache, 3), 3); // Lives in its handle alone.
    assert_eq!(cache.usage(), 0);
}

#[test]
fn hints_find_the_entry_or_nothing_wrong() {
    let cache = cache_for(10, false);
    let hint = put(&cache, 1).hint();
    assert_eq!(cache.get_at(hint, &CacheKey(1, 1)).as_deref(), Some(&1));
    assert_eq!(cache.get_at(SlotHint::NONE, &CacheKey(1, 1)).as_deref(), Some(&1));
    for bits in [u32::MAX, 1 << 30, 77, 1 << 26] {
        assert_eq!(cache.get_at(SlotHint::from_bits(bits), &CacheKey(1, 1)).as_deref(), Some(&1));
    }
    cache.erase(&CacheKey(1, 1));
    put(&cache, 2);
    assert!(cache.get_at(hint, &CacheKey(1, 1)).is_none());
    assert_eq!(SlotHint::from_bits(hint.to_bits()), hint);
}

#[test]
fn charges_from_outside_take_room() {
    let cache = cache_for(10, false);
    (0..10).for_each(|key| drop(put(&cache, key)));
    let half = cache.capacity() / 2;
    cache.charge(half).unwrap();
    assert_eq!(cache.entry_count(), 5);
    assert_eq!(cache.pinned_usage(), half);
    cache.uncharge(half);
    cache.set_strict_capacity_limit(true);
    assert!(cache.charge(cache.capacity() + 1).is_err());
}

#[test]
fn every_entry_is_visited() {
    let cache = Cache::new(CacheOptions { num_shard_bits: 2, ..CacheOptions::default() });
    (0..100).for_each(|key| drop(put(&cache, key)));
    let mut seen = Vec::new();
    cache.for_each(|key, &value, charge| {
        assert_eq!((key.1, charge), (value, PER_ENTRY + 100));
        seen.push(value);
    });
    seen.sort_unstable();
    assert_eq!(seen, (0..100).collect::<Vec<_>>());
    assert_eq!(cache.pinned_usage(), 0);
    cache.clear();
    assert_eq!((cache.usage(), cache.entry_count()), (0, 0));
}

#[test]
fn index_grows_with_its_entries() {
    let cache = Cache::new(CacheOptions { capacity: 64 << 20, num_shard_bits: 0, ..CacheOptions::default() });
    let entries = if cfg!(miri) { 300 } else { 50_000 };
    (0..entries).for_each(|key| drop(put(&cache, key)));
    assert!((0..entries).all(|key| get(&cache, key) == Some(key)));
    (0..entries).step_by(2).for_each(|key| cache.erase(&CacheKey(1, key)));
    assert!((0..entries).all(|key| get(&cache, key).is_some() == (key % 2 == 1)));
}

/// A small generator of numbers; the tests of this crate need no better.
struct Random(u64);
impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Threads get, insert, erase, clone, hold and resize at random over few keys, so that they meet.
fn stress(threads: u64, steps: u64, strict: bool) {
    let living = Arc::new(AtomicUsize::new(0));
    let per_entry = Cache::<Sentinel>::CHARGE_PER_ENTRY + 100;
    let options = CacheOptions {
        capacity: 20 * per_entry,
        num_shard_bits: 1,
        strict_capacity_limit: strict,
        huge_pages: true,
        estimated_entry_charge: 0,
    };
    let cache = Cache::<Sentinel>::new(options);
    let work = |thread: u64| {
        let (cache, living) = (Arc::clone(&cache), Arc::clone(&living));
        move || {
            let mut random = Random(thread * 7919 + 1);
            let mut held: Vec<Handle<Sentinel>> = Vec::new();
            let mut hints = [SlotHint::NONE; 40];
            for _ in 0..steps {
                let id = random.below(40);
                let key = CacheKey(id, id);
                match random.below(20) {
                    0..8 => {
                        if let Some(handle) = cache.get_at(hints[id as usize], &key) {
                            assert_eq!(handle.id(), id);
                            hints[id as usize] = handle.hint();
                            held.push(handle);
                        }
                    }
                    8..15 => {
                        let charge = if id == 0 { 500 } else { 100 };
                        if let Ok(handle) =
                            cache.insert(key, Sentinel::new(id, &living), charge, Priority::Low)
                        {
                            assert_eq!(handle.id(), id);
                            held.push(handle);
                        }
                    }
                    15 => cache.erase(&key),
                    16 => held.extend(held.first().cloned()),
                    17 if random.below(50) == 0 => cache.set_capacity((10 + id as usize / 2) * per_entry),
                    _ => {
                        if !held.is_empty() {
                            let at = random.below(held.len() as u64) as usize;
                            held.swap_remove(at).id();
                        }
                    }
                }
                while held.len() > 6 {
                    held.swap_remove(random.below(held.len() as u64) as usize);
                }
            }
        }
    };
    let running: Vec<_> = (0..threads).map(|thread| thread::spawn_named("stress", work(thread))).collect();
    running.into_iter().for_each(|thread| thread.join().unwrap());

    assert_eq!(cache.pinned_usage(), 0);
    assert!(cache.usage() <= cache.capacity());
    let mut bytes = 0;
    cache.for_each(|key, value, charge| {
        assert_eq!(key.0, value.id());
        bytes += charge;
    });
    assert_eq!(bytes, cache.usage());
    assert_eq!(living.load(SeqCst), cache.entry_count());
    drop(cache);
    assert_eq!(living.load(SeqCst), 0);
}

#[test]
fn threads_meet_on_few_keys() {
    let steps = if cfg!(miri) { 150 } else { 200_000 };
    stress(4, steps, false);
    stress(3, steps, true);
}

#[test]
fn handles_on_other_threads_outlive_the_cache() {
    for _ in 0..if cfg!(miri) { 5 } else { 2000 } {
        let living = Arc::new(AtomicUsize::new(0));
        let cache = Cache::new(CacheOptions { num_shard_bits: 0, ..CacheOptions::default() });
        let threads: Vec<_> = (0..3)
            .map(|id| {
                let handle =
                    cache.insert(CacheKey(1, id % 2), Sentinel::new(id, &living), 1, Priority::Low).unwrap();
                let cache = Arc::clone(&cache);
                thread::spawn_named("late", move || {
                    let found = cache.get(&CacheKey(1, 0));
                    cache.erase(&CacheKey(1, id));
                    drop(cache);
                    drop((found, handle.clone()));
                    handle.id()
                })
            })
            .collect();
        drop(cache);
        threads.into_iter().for_each(|thread| assert!(thread.join().unwrap() < 3));
        assert_eq!(living.load(SeqCst), 0);
    }
}

/// A way that was cleared keeps its pointer, and beside one of tag 1 it looks like another hit.
#[test]
fn a_node_that_is_free_is_not_taken_for_the_entry_that_it_had() {
    let keys: Vec<CacheKey> =
        (0..).map(|i| CacheKey(i, 7)).filter(|key| (key.hash() >> 40) & 0xff <= 1).take(4).collect();
    let cache: Arc<Cache<u64>> = Cache::new(CacheOptions { num_shard_bits: 0, ..CacheOptions::default() });
    for (value, key) in (0..).zip(&keys) {
        drop(cache.insert(*key, value, 10, Priority::Low).unwrap());
    }
    for key in &keys[1..] {
        cache.erase(key);
        cache.erase(key); // It is not there.
        assert!(!cache.contains(key) && cache.get(key).is_none());
    }
    let usage = cache.usage();
    for (value, key) in (10..).zip(&keys[1..]) {
        drop(cache.insert(*key, value, 10, Priority::Low).unwrap());
        assert_eq!(cache.get(key).map(|found| *found), Some(value));
        cache.erase(key);
    }
    assert_eq!((cache.usage(), cache.entry_count()), (usage, 1));
    assert_eq!(cache.get(&keys[0]).map(|found| *found), Some(0));
}

#[test]
fn finds_are_told_and_forgotten() {
    let cache = cache_for(100, false);
    let key = CacheKey(1, 7);
    assert_eq!(cache.finds(&key), None);
    put(&cache, 7);
    assert_eq!((cache.finds(&key), cache.finds(&key)), (Some(0), Some(0)), "to ask is no find");
    (0..2).for_each(|_| assert_eq!(get(&cache, 7), Some(7)));
    assert_eq!(cache.finds(&key), Some(2));
    assert_eq!(cache.get(&key).unwrap().retire(), 3);
    assert_eq!(cache.finds(&key), Some(0));
    cache.erase(&key);
    assert_eq!(cache.finds(&key), None);
}

#[test]
fn an_entry_that_was_retired_leaves_before_those_that_were_found() {
    let cache = cache_for(100, false);
    for key in 0..100 {
        put(&cache, key);
        get(&cache, key);
    }
    for key in 0..50 {
        cache.get(&CacheKey(1, key)).unwrap().retire();
    }
    (100..140).for_each(|key| drop(put(&cache, key)));
    let stayed = |keys: std::ops::Range<u64>| keys.filter(|key| cache.contains(&CacheKey(1, *key))).count();
    assert_eq!(stayed(50..100), 50);
    assert!(stayed(0..50) < 15, "{}", stayed(0..50));
}

/// A cache with room for so many blocks of 4 KiB.
fn cache_of_blocks(blocks: u64) -> Arc<Cache<u64>> {
    let capacity = blocks as usize * (4096 + PER_ENTRY);
    Cache::new(CacheOptions { capacity, num_shard_bits: 3, ..CacheOptions::default() })
}

/// Looks for each number and adds what is not there: all of it, or what the cache admits. Which percentages of `looks` found it
/// and added it.
fn found_and_added(cache: &Cache<u64>, looks: &[u64], asks: bool) -> (f64, f64) {
    let (mut found, mut added) = (0, 0);
    for &number in looks {
        let key = CacheKey(1, number);
        if cache.get(&key).is_some() {
            found += 1;
        } else if !asks || cache.admits(&key, 4096) {
            added += 1;
            drop(cache.insert(key, number, 4096, Priority::Low).unwrap());
        }
    }
    let percent = |count: u64| 100.0 * count as f64 / looks.len() as f64;
    (percent(found), percent(added))
}

/// A percent more or less is found then, if not much more, and most of the work of adding is spared where it would be in vain.
#[test]
#[cfg_attr(miri, ignore = "two million looks")]
fn newcomers_are_turned_away_while_few_are_found_again() {
    const BLOCKS: u64 = 2000;
    const LOOKS: u64 = 150_000;
    let mut random = Random(1);
    let mut looks = |of: &mut dyn FnMut(u64, &mut Random) -> u64| -> Vec<u64> {
        (0..LOOKS).map(|at| of(at, &mut random)).collect()
    };
    // Of twenty times as many blocks the first few are looked for far more often than the others.
    let skewed = |random: &mut Random| {
        let share = random.below(1 << 20) as f64 / f64::from(1 << 20);
        ((20 * BLOCKS) as f64).powf(share) as u64
    };
    let in_order = |at: u64| (1 << 40) + at / 30;
    // What is looked for, the most that is added, how much more is found at least.
    let patterns: [(&str, Vec<u64>, f64, f64); 7] = [
        ("anywhere in 20 times as much", looks(&mut |_, random| random.below(20 * BLOCKS)), 14.0, -0.5),
        ("anywhere in twice as much", looks(&mut |_, random| random.below(2 * BLOCKS)), 55.0, -1.0),
        ("some more often", looks(&mut |_, random| skewed(random)), 12.0, -0.5),
        ("round and round twice as much", looks(&mut |at, _| at % (2 * BLOCKS)), 5.0, 38.0),
        ("30 times each, in order", looks(&mut |at, _| in_order(at)), 4.0, -0.1),
        (
            "anywhere, then in order",
            looks(&mut |at, random| if at < LOOKS / 2 { random.below(20 * BLOCKS) } else { in_order(at) }),
            13.0,
            -0.8,
        ),
        (
            "what fits, another each time",
            looks(&mut |at, random| ((at / 15_000) << 32) + random.below(BLOCKS / 10 * 8)),
            26.0,
            -1.0,
        ),
    ];
    for (name, looks, most_added, more_found) in patterns {
        let (found_of_all, _) = found_and_added(&cache_of_blocks(BLOCKS), &looks, false);
        let (found, added) = found_and_added(&cache_of_blocks(BLOCKS), &looks, true);
        assert!(added <= most_added, "{name}: {added:.1} % added");
        assert!(found >= found_of_all + more_found, "{name}: {found:.1} % found, of all {found_of_all:.1}");
    }
}

/// As long as nothing would have to leave for it.
#[test]
fn a_cache_with_room_admits_all() {
    let cache = cache_of_blocks(2000);
    let looks: Vec<u64> = (0..1900).collect();
    assert_eq!(found_and_added(&cache, &looks, true), (0.0, 100.0));
    assert_eq!(cache.entry_count(), 1900);
}
