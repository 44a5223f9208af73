//! Many deleted keys in a row: what iterators leave for those that come after them, and when tables of them are compacted.

use crate::disk::{Disk, all, get, put_synced, shape, table_entries};
use ironstone::perf::{self, PerfMetric};
use ironstone::statistics::Ticker;
use ironstone::{Db, IngestOptions, Options, ReadOptions, SstFileWriter, Statistics, slice_transform};
use std::sync::Arc;
use std::time::Duration;

const KEYS: usize = 3000;

fn key(number: usize) -> String {
    format!("k{number:05}")
}

struct Counted {
    disk: Disk,
    options: Options,
    statistics: Arc<Statistics>,
}

impl Counted {
    fn new() -> Self {
        let disk = Disk::new();
        let mut options = disk.options();
        let statistics = Arc::new(Statistics::new());
        options.db.statistics = Some(Arc::clone(&statistics));
        Self { disk, options, statistics }
    }
    fn inserted(&self) -> u64 {
        self.statistics.ticker(Ticker::ReadPathRangeTombstonesInserted)
    }
}

/// Keys in a table, and all of them deleted in the memtable.
fn put_and_delete(db: &Db) {
    (0..KEYS).for_each(|number| db.put(key(number), "v").unwrap());
    db.put("z", "last").unwrap();
    db.flush().unwrap();
    (0..KEYS).for_each(|number| db.delete(key(number)).unwrap());
}

/// Reads everything, and answers how many tombstones that passed.
fn passed(db: &Db, options: &ReadOptions, expected: &str) -> u64 {
    perf::reset();
    let mut iter = db.iter_cf(options, db.default_column_family()).unwrap();
    let mut found = Vec::new();
    let mut more = iter.seek_to_first().unwrap();
    while more {
        found.push(String::from_utf8(iter.key().unwrap().to_vec()).unwrap());
        more = iter.next().unwrap();
    }
    assert_eq!(found.join(" "), expected);
    perf::get(PerfMetric::InternalDeleteSkippedCount)
}

#[test]
fn the_second_scan_does_not_pass_what_the_first_did() {
    let counted = Counted::new();
    let db = counted.disk.open_with(&counted.options);
    (0..KEYS).for_each(|number| db.put(key(number), "v").unwrap());
    db.put("z", "last").unwrap();
    db.flush().unwrap();
    let before = db.snapshot();
    (0..KEYS).for_each(|number| db.delete(key(number)).unwrap());
    let now = ReadOptions::default();
    assert_eq!(passed(&db, &now, "z"), KEYS as u64);
    assert_eq!(counted.inserted(), 1);
    assert!(passed(&db, &now, "z") < 50, "{}", perf::report(true));
    assert_eq!(counted.inserted(), 1);
    let covered = || perf::get(PerfMetric::InternalKeySkippedCount);
    assert!(covered() < 50, "{}", perf::report(true));
    // Nothing is different for anybody.
    assert_eq!(get(&db, &key(7)), "-");
    db.put(key(7), "again").unwrap();
    assert_eq!(get(&db, &key(7)), "again");
    assert!(passed(&db, &now, &format!("{} z", key(7))) < 50);
    let old = ReadOptions { snapshot: Some(before.clone()), ..ReadOptions::default() };
    let mut iter = db.iter_cf(&old, db.default_column_family()).unwrap();
    assert!(iter.seek_to_first().unwrap());
    assert_eq!(iter.entries().count(), KEYS + 1);
    db.flush().unwrap();
    assert!(db.get_cf(&old, db.default_column_family(), key(9)).unwrap().is_some());
    assert_eq!(all(&db), format!("{}=again z=last", key(7)));
    drop((old, before));
    crate::disk::rewrite_all(&db);
    assert_eq!(table_entries(&db), 2);
    drop(db);
    let db = counted.disk.lose_power().open_with(&counted.options);
    assert_eq!(all(&db), format!("{}=again z=last", key(7)));
}

#[test]
fn nothing_is_left_where_older_places_may_hold_newer_entries() {
    let counted = Counted::new();
    let db = counted.disk.open_with(&counted.options);
    put_and_delete(&db);
    let snapshot = db.snapshot();
    // A write to the range goes to a table; the next memtable is newer than the snapshot.
    db.put(key(5), "newer").unwrap();
    db.flush().unwrap();
    db.put("zz", "in the memtable").unwrap();
    let old = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
    assert_eq!(passed(&db, &old, "z"), KEYS as u64);
    assert_eq!(counted.inserted(), 0);
    assert_eq!(get(&db, &key(5)), "newer");
}

fn ingest_key_5(counted: &Counted, db: &Db) {
    let mut writer = SstFileWriter::new(&counted.options);
    writer.open("/external.sst").unwrap();
    writer.put(key(5), "ingested").unwrap();
    writer.finish().unwrap();
    db.ingest_external_files(db.default_column_family(), &["/external.sst"], &IngestOptions::default())
        .unwrap();
}

#[test]
fn nothing_is_left_below_what_was_ingested() {
    let counted = Counted::new();
    let db = counted.disk.open_with(&counted.options);
    (0..KEYS).for_each(|number| db.put(key(number), "v").unwrap());
    (0..KEYS).for_each(|number| db.delete(key(number)).unwrap());
    db.flush().unwrap();
    db.put("z", "in the memtable").unwrap();
    let snapshot = db.snapshot();
    ingest_key_5(&counted, &db);
    let old = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
    passed(&db, &old, "z");
    assert_eq!(counted.inserted(), 0);
    assert_eq!(get(&db, &key(5)), "ingested");
}

#[test]
fn what_was_left_makes_room_for_what_is_ingested() {
    let counted = Counted::new();
    let db = counted.disk.open_with(&counted.options);
    put_and_delete(&db);
    passed(&db, &ReadOptions::default(), "z");
    assert_eq!(counted.inserted(), 1);
    ingest_key_5(&counted, &db);
    assert_eq!(all(&db), format!("{}=ingested z=last", key(5)));
}

#[test]
fn iterators_that_do_not_see_all_leave_nothing() {
    let mut counted = Counted::new();
    counted.options.cf.prefix_extractor = Some(slice_transform::fixed_prefix(1));
    let db = counted.disk.open_with(&counted.options);
    put_and_delete(&db);
    let by_prefix = ReadOptions::default();
    passed(&db, &by_prefix, "z");
    assert_eq!(counted.inserted(), 0);
    let all = ReadOptions { total_order_seek: true, ..ReadOptions::default() };
    passed(&db, &all, "z");
    assert_eq!(counted.inserted(), 1);
    drop(db);
    counted.options.cf.prefix_extractor = None;
    counted.options.cf.min_tombstones_for_range_conversion = 0;
    let db = counted.disk.open_with(&counted.options);
    put_and_delete(&db);
    assert!(passed(&db, &all, "z") >= KEYS as u64);
    assert_eq!(counted.inserted(), 1, "0 turns it off");
}

#[test]
fn a_table_of_tombstones_is_compacted_at_once() {
    let counted = Counted::new();
    let mut options = counted.options.clone();
    options.cf.disable_auto_compactions = false;
    options.cf.write_buffer_size = 64 << 10;
    let db = counted.disk.open_with(&options);
    (0..KEYS).for_each(|number| db.put(key(number), "v").unwrap());
    db.put("z", "last").unwrap();
    db.flush().unwrap();
    crate::disk::rewrite_all(&db);
    (0..KEYS).for_each(|number| db.delete(key(number)).unwrap());
    db.flush().unwrap();
    db.wait_for_compact().unwrap();
    assert_eq!(table_entries(&db), 1, "{:?}", shape(&db));
}

#[test]
fn iterators_over_chosen_tables_leave_nothing() {
    let counted = Counted::new();
    let db = counted.disk.open_with(&counted.options);
    put_and_delete(&db);
    db.flush().unwrap();
    db.put(format!("{}x", key(5)), "between").unwrap();
    db.flush().unwrap();
    db.put("zz", "in the memtable").unwrap();
    // Only the table of that one key has no tombstones.
    let options = ReadOptions {
        table_filter: Some(ironstone::TableFilter::new(|properties| {
            properties.num_deletions > 0 || properties.num_entries > 1
        })),
        ..ReadOptions::default()
    };
    passed(&db, &options, "z zz");
    assert_eq!(counted.inserted(), 0);
    assert_eq!(get(&db, &format!("{}x", key(5))), "between");
}

/// Puts `keys` keys into a table and deletes them, one after the other from the first on, until `times` runs of tombstones were
/// noted in the background. Answers how many were deleted, and how many when the last but two was noted.
fn delete_until_noted(db: &Db, counted: &Counted, keys: usize, times: usize) -> (usize, usize) {
    (0..keys).for_each(|number| db.put(long_key(number), "v").unwrap());
    db.put("z", "last").unwrap();
    db.flush().unwrap();
    let (mut number, mut noted_at) = (0, Vec::new());
    while noted_at.len() < times {
        assert!(number < keys, "noted after {noted_at:?}");
        db.delete(long_key(number)).unwrap();
        number += 1;
        if number % 500 == 0 {
            counted.disk.clock_sleep(Duration::from_millis(1));
        }
        if counted.inserted() > noted_at.len() as u64 {
            noted_at.push(number);
        }
    }
    (number, noted_at[times - 3])
}

fn long_key(number: usize) -> String {
    format!("k{number:063}")
}

#[test]
fn the_first_scan_finds_what_was_passed_in_the_background() {
    let mut counted = Counted::new();
    counted.options.cf.write_buffer_size = 4 << 20;
    let db = counted.disk.open_with(&counted.options);
    let (deleted, skipped) = delete_until_noted(&db, &counted, 100_000, 5);
    let keys =
        ReadOptions { iterate_upper_bound: Some(long_key(deleted).into_bytes()), ..ReadOptions::default() };
    let before = db.snapshot();
    // Of what nobody has passed yet there is a tombstone and the key that it hides.
    let unknown = (deleted - skipped) as u64;
    let found = passed(&db, &keys, "");
    assert!(found <= unknown + 50, "{found} of {deleted}, not {skipped}");
    let hidden = || perf::get(PerfMetric::InternalKeySkippedCount);
    assert!(hidden() <= unknown + 50, "{}", perf::report(true));
    // What is written behind it changes nothing.
    db.put("zz", "later").unwrap();
    db.delete(long_key(1)).unwrap();
    assert!(passed(&db, &keys, "") <= found + 50, "{}", perf::report(true));
    assert!(hidden() <= found + 50, "{}", perf::report(true));
    // What is written to it is seen, by those who may see it.
    let again = long_key(7);
    put_synced(&db, &again, "again");
    passed(&db, &keys, &again);
    let old = ReadOptions { snapshot: Some(before), ..keys };
    passed(&db, &old, "");
    drop(old);
    drop(db);
    let db = counted.disk.lose_power().open_with(&counted.options);
    assert_eq!(get(&db, &again), "again");
    assert_eq!(get(&db, &long_key(8)), "-");
    assert_eq!(get(&db, "z"), "last");
}

#[test]
fn nothing_is_noted_in_the_background_where_a_key_is_left() {
    let mut counted = Counted::new();
    counted.options.cf.write_buffer_size = 4 << 20;
    let db = counted.disk.open_with(&counted.options);
    let live = |number: usize| format!("{}x", long_key(number));
    (0..100).for_each(|number| db.put(live(number * 200), "v").unwrap());
    db.flush().unwrap();
    let discarded = || counted.statistics.ticker(Ticker::ReadPathRangeTombstonesDiscarded);
    let mut number = 0;
    while discarded() == 0 {
        assert!(number < 100_000);
        db.delete(long_key(number)).unwrap();
        number += 1;
    }
    assert_eq!(counted.inserted(), 0);
    let mut iter = db.iter_cf(&ReadOptions::default(), db.default_column_family()).unwrap();
    assert!(iter.seek_to_first().unwrap());
    assert_eq!(iter.entries().count(), 100);
}
