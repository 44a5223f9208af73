//! Blocks of obsolete tables leave the block cache.

use crate::disk::{Disk, RemovalGate, get, rewrite_all};
use ironstone::{BlockCache, CacheOptions, Db, FilterPolicy, IndexType, Options};
use std::sync::Arc;

struct Stage {
    disk: Disk,
    cache: Arc<BlockCache>,
    db: Db,
}

/// A database with one table of some hundred blocks, none of which is in the cache.
fn stage(uncache_aggressiveness: u32, change: impl FnOnce(&mut Options)) -> Stage {
    let (disk, cache) = (Disk::new(), BlockCache::new(CacheOptions::default()));
    let mut options = disk.options();
    options.cf.uncache_aggressiveness = uncache_aggressiveness;
    options.cf.table.block_cache = Some(Arc::clone(&cache));
    options.cf.table.block_size = 100;
    change(&mut options);
    let db = disk.open_with(&options);
    (0..1000).for_each(|number| db.put(key(number), "value").unwrap());
    db.flush().unwrap();
    Stage { disk, cache, db }
}

fn key(number: usize) -> String {
    format!("key{number:06}")
}

impl Stage {
    fn read(&self, keys: std::ops::Range<usize>) {
        keys.for_each(|number| assert_eq!(get(&self.db, &key(number)), "value"));
        assert!(self.cache.entry_count() > 0);
    }
    /// Removes all keys, and with them the tables.
    fn remove_all(&self) {
        self.db.delete_range(key(0), key(1000)).unwrap();
        rewrite_all(&self.db);
        self.disk.wait_until("there is no table", || self.disk.files(".sst").is_empty());
    }
    fn remove_all_and_wait_for_the_cache(&self) {
        self.remove_all();
        self.disk.wait_until("their blocks are gone", || self.cache.entry_count() == 0);
    }
}

#[test]
fn all_blocks_of_obsolete_tables_leave_the_cache() {
    let stage = stage(Options::default().cf.uncache_aggressiveness, |_| ());
    stage.read(0..1000);
    assert!(stage.cache.entry_count() > 100);
    stage.remove_all_and_wait_for_the_cache();
}

#[test]
fn so_do_index_and_filter_blocks() {
    for pinned in [false, true] {
        for index_type in [IndexType::BinarySearch, IndexType::TwoLevel] {
            let stage = stage(10_000, |options| {
                let table = &mut options.cf.table;
                table.cache_index_and_filter_blocks = true;
                table.pin_l0_filter_and_index_blocks_in_cache = pinned;
                table.pin_top_level_index_and_filter = pinned;
                table.filter_policy = Some(FilterPolicy::bloom(10.0));
                table.index_type = index_type;
                table.partition_filters = index_type == IndexType::TwoLevel;
                table.metadata_block_size = 200;
            });
            stage.read(0..1000);
            stage.remove_all_and_wait_for_the_cache();
        }
    }
}

#[test]
fn they_stay_if_nobody_asks_for_it() {
    let stage = stage(0, |_| ());
    stage.read(0..1000);
    let entries = stage.cache.entry_count();
    stage.remove_all();
    drop(stage.db);
    assert_eq!(stage.cache.entry_count(), entries);
}

#[test]
fn little_effort_ends_at_a_block_that_is_not_there() {
    let stage = stage(1, |_| ());
    stage.read(500..1000);
    let entries = stage.cache.entry_count();
    stage.remove_all();
    drop(stage.db);
    assert_eq!(stage.cache.entry_count(), entries);
    let stage = self::stage(10_000, |_| ());
    stage.read(500..1000);
    stage.remove_all_and_wait_for_the_cache();
}

#[test]
fn the_effort_changes_for_open_tables_too() {
    let stage = stage(0, |_| ());
    stage.read(0..1000);
    stage.db.set_options(&[("uncache_aggressiveness", "300")]).unwrap();
    stage.remove_all_and_wait_for_the_cache();
}

#[test]
fn blocks_do_not_wait_until_all_tables_before_them_are_removed() {
    let gate = Arc::new(RemovalGate::default());
    let stage = stage(10_000, |options| options.db.listeners.push(gate.clone()));
    for _ in 1..20 {
        (0..1000).for_each(|number| stage.db.put(key(number), "value").unwrap());
        stage.db.flush().unwrap();
    }
    rewrite_all(&stage.db);
    stage.disk.wait_until("the first of twenty tables is removed", || gate.removed() == 1);
    stage.read(0..1000);
    stage.db.delete_range(key(0), key(1000)).unwrap();
    rewrite_all(&stage.db);
    assert!(stage.cache.entry_count() > 0);
    gate.open_for(19);
    stage.disk.wait_until("the last of twenty tables is removed", || gate.removed() == 20);
    assert_eq!(stage.cache.entry_count(), 0);
}
