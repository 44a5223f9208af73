//! What a database says about itself.

use crate::disk::{DIR, Disk, fresh};
use ironstone::vfs::fault::{Fault, FaultRule};
use ironstone::vfs::{FileSystem, ManualClock, OpKind};
use ironstone::{CompactRangeOptions, CompactionStyle, Db, IngestOptions, ReadOptions, SstFileWriter};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

fn number(db: &Db, property: &str) -> u64 {
    db.int_property(&format!("rocksdb.{property}")).unwrap_or_else(|| panic!("{property}"))
}
fn text(db: &Db, property: &str) -> String {
    db.property(&format!("rocksdb.{property}")).unwrap_or_else(|| panic!("{property}"))
}
fn parts(db: &Db, property: &str) -> BTreeMap<String, String> {
    db.map_property(&format!("rocksdb.{property}")).unwrap_or_else(|| panic!("{property}"))
}
fn part(map: &BTreeMap<String, String>, key: &str) -> f64 {
    map.get(key).unwrap_or_else(|| panic!("{key} in {map:?}")).parse().unwrap()
}

/// Two tables of the same hundred keys.
fn two_tables(db: &Db) {
    for round in 0..2 {
        for key in 0..100 {
            db.put(format!("key{key:03}"), format!("{round}{}", "v".repeat(200))).unwrap();
        }
        db.flush().unwrap();
    }
}
fn compact(db: &Db) {
    let all = CompactRangeOptions::default();
    db.compact_range(&all, db.default_column_family(), None, None).unwrap();
}

#[test]
fn every_name_is_answered_and_no_other() {
    let (_disk, db) = fresh();
    two_tables(&db);
    for name in Db::property_names() {
        // Those of levels take a number behind; the age of keys is only known with FIFO compaction.
        let of_level = name.ends_with("at-level") || name.ends_with("at-temperature");
        let asked = if of_level { format!("{name}0") } else { name.clone() };
        let known = db.property(&asked).is_some();
        assert_eq!(known, name != "rocksdb.estimate-oldest-key-time", "{asked}");
        assert!(!of_level || db.property(&name).is_none(), "{name}");
    }
    for name in
        ["rocksdb.no-such", "num-snapshots", "rocksdb.", "rocksdb.num-files-at-level99", "rocksdb.statsx"]
    {
        assert_eq!(db.property(name), None, "{name}");
        assert_eq!(db.map_property(name), None, "{name}");
    }
    assert_eq!(db.map_property("rocksdb.num-snapshots"), None, "it has no parts");
}

#[test]
fn work_is_counted_on_the_level_that_it_writes_to() {
    let (_disk, db) = fresh();
    two_tables(&db);
    let flushed = parts(&db, "cfstats");
    assert_eq!(part(&flushed, "compaction.L0.NumFiles"), 2.0);
    assert_eq!(part(&flushed, "compaction.L0.CompCount"), 2.0);
    assert_eq!(part(&flushed, "compaction.L0.KeyIn"), 200.0);
    assert_eq!(part(&flushed, "compaction.L0.WriteAmp"), 1.0);
    compact(&db);
    let compacted = parts(&db, "cfstats");
    let last = (1..7).rev().find(|level| compacted.contains_key(&format!("compaction.L{level}.NumFiles")));
    let key = |name: &str| format!("compaction.L{}.{name}", last.unwrap());
    assert_eq!(part(&compacted, &key("NumFiles")), 1.0);
    assert_eq!(part(&compacted, &key("KeyIn")), 200.0);
    assert_eq!(part(&compacted, &key("KeyDrop")), 100.0);
    assert_eq!(part(&compacted, "compaction.Sum.CompCount"), 3.0);
    assert_eq!(part(&compacted, "compaction.Sum.SizeBytes"), number(&db, "total-sst-files-size") as f64);

    let table = text(&db, "cfstats");
    let row = |name: &str| -> Vec<String> {
        let line = table.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        line.split_whitespace().map(str::to_owned).collect()
    };
    let header = table.lines().find(|line| line.starts_with("Level")).unwrap();
    // The size has its unit apart, and the name of the first column stands alone.
    assert_eq!(row("Sum").len(), header.split_whitespace().count() + 1, "{table}");
    assert_eq!(row("Sum")[17], "3", "jobs: {table}");
    assert_eq!(row("Int")[17], "3", "since it was opened: {table}");
    let again = text(&db, "cfstats");
    assert!(again.lines().any(|line| line.starts_with(" Int") && line.contains("     0  ")), "{again}");
    assert_eq!(part(&parts(&db, "dbstats"), "db.user_keys_written"), 200.0);
    assert!(part(&parts(&db, "dbstats"), "db.wal_bytes_written") > 200.0 * 200.0);
}

#[test]
fn files_from_outside_are_counted_apart() {
    let (disk, db) = fresh();
    let mut writer = SstFileWriter::new(&disk.options());
    writer.open("/outside.sst").unwrap();
    writer.put(b"a", b"v").unwrap();
    writer.put(b"b", b"v").unwrap();
    writer.finish().unwrap();
    db.ingest_external_files(db.default_column_family(), &["/outside.sst"], &IngestOptions::default())
        .unwrap();
    let stats = text(&db, "cfstats");
    assert!(stats.contains("AddFile(Total Files): cumulative 1, interval 1"), "{stats}");
    assert!(stats.contains("AddFile(Keys): cumulative 2, interval 2"), "{stats}");
}

#[test]
fn stalls_are_counted_by_cause() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.disable_auto_compactions = false;
    options.cf.level0_file_num_compaction_trigger = 100;
    options.cf.level0_slowdown_writes_trigger = 100;
    options.cf.level0_stop_writes_trigger = 100;
    let db = disk.open_with(&options);
    two_tables(&db);
    assert_eq!(part(&parts(&db, "cf-write-stall-stats"), "l0-file-count-limit-stops"), 0.0);
    db.pause_background_work().unwrap();
    db.set_options(&[
        ("level0_file_num_compaction_trigger", "2"),
        ("level0_slowdown_writes_trigger", "2"),
        ("level0_stop_writes_trigger", "2"),
    ])
    .unwrap();
    let stalls = parts(&db, "cf-write-stall-stats");
    assert_eq!(part(&stalls, "l0-file-count-limit-stops"), 1.0);
    assert_eq!(part(&stalls, "total-stops"), 1.0);
    assert_eq!(part(&parts(&db, "cfstats"), "io_stalls.total-stops"), 1.0);
    db.continue_background_work().unwrap();
    db.wait_for_compact().unwrap();
    assert_eq!(number(&db, "is-write-stopped"), 0);
}

#[test]
fn what_iterators_hold_and_what_is_obsolete() {
    let (disk, db) = fresh();
    two_tables(&db);
    disk.wait_until("nobody reads an old version", || number(&db, "num-live-versions") == 1);
    let iter = db.iter().unwrap();
    compact(&db);
    assert!(number(&db, "num-live-versions") >= 2);
    assert_eq!(number(&db, "obsolete-sst-files-size"), 0, "the iterator still reads them");
    db.disable_file_deletions();
    drop(iter);
    disk.wait_until("they are obsolete", || number(&db, "obsolete-sst-files-size") > 0);
    db.enable_file_deletions();
    disk.wait_until("they are gone", || number(&db, "obsolete-sst-files-size") == 0);
    assert_eq!(number(&db, "min-obsolete-sst-number-to-keep"), u64::MAX);
    assert_eq!(number(&db, "num-running-compaction-sorted-runs"), 0);
}

#[test]
fn sizes_of_what_readers_hold_and_of_what_is_there_once() {
    let (disk, db) = fresh();
    two_tables(&db);
    let sizes: Vec<u64> = db.live_files().iter().map(|file| file.size).collect();
    assert_eq!(number(&db, "live-sst-files-size"), sizes.iter().sum::<u64>());
    assert!(sizes.contains(&number(&db, "estimate-live-data-size")), "both have the same keys");
    disk.wait_until("nobody reads an old version", || number(&db, "num-live-versions") == 1);
    let iter = db.iter().unwrap();
    compact(&db);
    let [old, new] = ["total-sst-files-size", "live-sst-files-size"].map(|name| number(&db, name));
    assert_eq!(old, new + sizes.iter().sum::<u64>(), "the iterator holds the old ones");
    drop(iter);
    disk.wait_until("nobody does", || number(&db, "total-sst-files-size") == new);
    assert_eq!(number(&db, "estimate-live-data-size"), new);
    // Another range of keys is more, and a change of this one is not.
    db.put("z", vec![b'z'; 5000]).unwrap();
    db.flush().unwrap();
    let more = number(&db, "estimate-live-data-size");
    assert_eq!(more, number(&db, "live-sst-files-size"));
    db.delete_range("a", "m").unwrap();
    db.flush().unwrap();
    assert_eq!(number(&db, "estimate-live-data-size"), more);
    assert!(number(&db, "live-sst-files-size") > more);
}

#[test]
fn memtables_that_readers_hold_count_until_they_let_go() {
    let (disk, db) = fresh();
    let [active, current, all] =
        ["cur-size-active-mem-table", "cur-size-all-mem-tables", "size-all-mem-tables"];
    for key in 0..100 {
        db.put(format!("key{key:03}"), vec![b'v'; 1000]).unwrap();
    }
    let before = number(&db, active);
    assert!(before >= 100_000 && number(&db, all) == before && number(&db, current) == before);
    let iter = db.iter().unwrap();
    let pinned = db.get("key001").unwrap().unwrap();
    db.flush().unwrap();
    assert_eq!(number(&db, current), number(&db, active));
    assert_eq!(number(&db, all), number(&db, active) + before);
    drop(iter);
    assert_eq!(pinned.len(), 1000);
    assert_eq!(number(&db, all), number(&db, active) + before, "the value lies in it");
    drop(pinned);
    disk.wait_until("nobody holds it", || number(&db, all) == number(&db, active));
}

#[test]
fn a_flush_is_pending_while_none_has_taken_what_is_enough_for_one() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.min_write_buffer_number_to_merge = 2;
    options.cf.max_write_buffer_number = 5;
    options.cf.write_buffer_size = 64 << 10;
    let db = disk.open_with(&options);
    let pending = || number(&db, "mem-table-flush-pending");
    let fill = || {
        let before = number(&db, "num-immutable-mem-table");
        let mut at = 0;
        while number(&db, "num-immutable-mem-table") == before {
            db.put(format!("key{at:05}"), vec![b'v'; 1000]).unwrap();
            at += 1;
        }
    };
    db.pause_background_work().unwrap();
    fill();
    assert_eq!(pending(), 0, "two are written together");
    fill();
    assert_eq!(pending(), 1);
    let slow = FaultRule::new(Fault::Delay(Duration::from_millis(300)));
    let rule = disk.faults.add(slow.on(&[OpKind::Sync]).path(".sst"));
    disk.faults.arm();
    db.continue_background_work().unwrap();
    disk.wait_until("a flush has taken them", || rule.hits() > 0 || number(&db, "num-running-flushes") == 1);
    assert_eq!((pending(), number(&db, "num-immutable-mem-table")), (0, 2));
    disk.wait_until("they are in a table", || number(&db, "num-immutable-mem-table") == 0);
}

#[test]
fn the_block_cache_by_kind_of_block() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.table.cache_index_and_filter_blocks = true;
    options.cf.table.filter_policy = Some(ironstone::FilterPolicy::bloom(10.0));
    let db = disk.open_with(&options);
    two_tables(&db);
    db.get("key050").unwrap();
    let entries = parts(&db, "block-cache-entry-stats");
    assert_eq!(part(&entries, "count.data-block"), 1.0);
    assert!(part(&entries, "count.index-block") > 0.0 && part(&entries, "count.filter-block") > 0.0);
    let bytes: f64 =
        ["data", "index", "filter"].map(|kind| part(&entries, &format!("bytes.{kind}-block"))).iter().sum();
    assert_eq!(bytes, number(&db, "block-cache-usage") as f64);
    assert_eq!(part(&entries, "capacity"), number(&db, "block-cache-capacity") as f64);
}

#[test]
fn tables_of_a_level() {
    let (_disk, db) = fresh();
    two_tables(&db);
    let level0 = parts(&db, "aggregated-table-properties-at-level0");
    assert_eq!(part(&level0, "num_entries"), 200.0);
    assert_eq!(level0, parts(&db, "aggregated-table-properties"));
    let uncompressed = part(&level0, "uncompressed_data_size");
    assert!(uncompressed > 2.0 * part(&level0, "data_size"), "{level0:?}");
    let shown = text(&db, "aggregated-table-properties-at-level0");
    let first = "# data blocks=";
    assert!(shown.starts_with(first) && shown.contains("# entries=200; "), "{shown}");
    assert!(shown.contains(&format!("data uncompressed size={uncompressed}; ")), "{shown}");
    assert_eq!(level0.len(), 19, "as many as RocksDB adds up");
    assert!(text(&db, "aggregated-table-properties-at-level1").contains("# entries=0;"));
    assert!(text(&db, "compression-ratio-at-level0").parse::<f64>().unwrap() > 2.0);
    assert_eq!(text(&db, "compression-ratio-at-level1"), "-1");
    let all = number(&db, "total-sst-files-size").to_string();
    assert_eq!(text(&db, "live-sst-files-size-at-temperature0"), all);
    assert_eq!(text(&db, "live-sst-files-size-at-temperature4"), "0");
}

#[test]
fn numbers_are_added_up_over_column_families() {
    let (disk, db) = fresh();
    let cf = db.create_column_family("other", &disk.options().cf).unwrap();
    db.put("a", "v").unwrap();
    db.put_cf(&Default::default(), &cf, "a", "v").unwrap();
    db.put_cf(&Default::default(), &cf, "b", "v").unwrap();
    assert_eq!(db.aggregated_int_property("rocksdb.num-entries-active-mem-table"), Some(3));
    assert_eq!(db.aggregated_int_property("rocksdb.stats"), None);
}

#[test]
fn fifo_compaction_knows_its_oldest_key() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.compaction_style = CompactionStyle::Fifo;
    let db = disk.open_with(&options);
    two_tables(&db);
    let oldest = number(&db, "estimate-oldest-key-time");
    let now = disk.env().clock.now_seconds();
    assert!(oldest > 0 && oldest <= now && now - oldest < 1000, "{oldest} at {now}");
}

#[test]
fn the_log_is_told_from_time_to_time() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.stats_dump_period_sec = 0;
    let db = disk.open_with(&options);
    two_tables(&db);
    db.iter_cf(&ReadOptions::default(), db.default_column_family()).unwrap();
    let log =
        || String::from_utf8_lossy(&disk.fs.read_all(format!("{DIR}/LOG").as_ref()).unwrap()).into_owned();
    assert!(!log().contains("DUMPING STATS"));
    db.set_db_options(&[("stats_dump_period_sec", "1")]).unwrap();
    disk.wait_until("statistics are in LOG", || log().contains("DUMPING STATS"));
    let log = log();
    for part in ["** DB Stats **", "** Compaction Stats [default] **", "Cumulative compaction"] {
        assert!(log.contains(part), "{part} in {log}");
    }
}

#[test]
fn counts_begin_anew_when_they_are_reset() {
    let disk = Disk::with_clock(&Arc::new(ManualClock::new(0)));
    let db = disk.open();
    two_tables(&db);
    disk.clock_sleep(Duration::from_secs(100));
    assert_eq!(part(&parts(&db, "cfstats"), "compaction.L0.CompCount"), 2.0);
    assert_eq!(part(&parts(&db, "dbstats"), "db.uptime"), 100.0);
    disk.fs.set_capacity(Some(0));
    db.put("full", "v".repeat(10_000)).unwrap_err(); // More than a log may have ahead.
    disk.fs.set_capacity(None);
    assert_eq!(number(&db, "background-errors"), 1);
    db.reset_stats();
    assert_eq!(number(&db, "background-errors"), 0);
    let map = parts(&db, "cfstats");
    assert_eq!(part(&map, "compaction.L0.CompCount"), 0.0);
    assert_eq!(part(&map, "compaction.L0.NumFiles"), 2.0, "they are still there");
    let map = parts(&db, "dbstats");
    let counted = ["db.uptime", "db.user_keys_written", "db.wal_bytes_written", "db.user_write_stall_micros"];
    assert_eq!(counted.map(|key| part(&map, key)), [0.0; 4]);
    assert!(text(&db, "dbstats").contains("Flushes: 0 jobs, 0 bytes, 0 us"));
    assert!(text(&db, "stats").contains("Uptime(secs): 0.0 total, 0.0 interval"));
    db.resume().unwrap();
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    disk.clock_sleep(Duration::from_secs(7));
    let map = parts(&db, "dbstats");
    assert_eq!((part(&map, "db.uptime"), part(&map, "db.user_keys_written")), (7.0, 1.0));
    assert!(part(&map, "db.wal_bytes_written") > 0.0 && part(&map, "db.wal_bytes_written") < 1000.0);
    assert_eq!(part(&parts(&db, "cfstats"), "compaction.L0.KeyIn"), 1.0);
}

#[test]
fn compactions_that_wait_and_those_that_may_not_run_are_counted() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.disable_auto_compactions = false;
    let db = disk.open_with(&options);
    db.wait_for_compact().unwrap();
    let counts = || ["num-unscheduled-compactions", "compaction-abort-count"].map(|name| number(&db, name));
    assert_eq!(counts(), [0, 0]);
    db.abort_all_compactions();
    db.abort_all_compactions();
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    assert_eq!(counts(), [1, 2], "due once it may be looked for");
    db.resume_all_compactions();
    assert_eq!(counts(), [1, 1]);
    db.resume_all_compactions();
    db.wait_for_compact().unwrap();
    assert_eq!(counts(), [0, 0]);
    let none = ["num-running-bottom-compactions", "num-running-remote-compactions"];
    assert_eq!(none.map(|name| number(&db, name)), [0, 0]);
}
