//! Compaction: what it moves, what it drops, and what it must keep.

use crate::disk::{Disk, RemovalGate, all, fresh, get, refused, rewrite_all, shape, table_entries};
use ironstone::vfs::fault::{Fault, FaultError, FaultRule};
use ironstone::vfs::{Clock, ManualClock, OpKind, SystemClock};
use ironstone::{
    BottommostPolicy, Code, CompactFilesOptions, CompactRangeOptions, CompressionKind, Db, FileNumber,
    FilterPolicy, FlushOptions, Options, SubCode, WaitForCompactOptions,
};
use ironstone_base::statistics::{Histogram, Statistics, Ticker};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn compact(db: &Db, begin: Option<&str>, end: Option<&str>) {
    let (begin, end) = (begin.map(str::as_bytes), end.map(str::as_bytes));
    db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), begin, end).unwrap();
}

fn put_and_flush(db: &Db, keys: &[&str], value: &str) {
    keys.iter().for_each(|key| db.put(key, value).unwrap());
    db.flush().unwrap();
}

fn numbers(db: &Db) -> Vec<FileNumber> {
    let mut numbers: Vec<_> = db.live_files().iter().map(|file| file.number).collect();
    numbers.sort();
    numbers
}

#[test]
fn a_whole_range_goes_down_to_the_last_level() {
    let (_disk, db) = fresh();
    for value in ["1", "2", "3"] {
        put_and_flush(&db, &["a", "b", value], value);
    }
    assert_eq!(shape(&db), [3]);
    compact(&db, None, None);
    assert_eq!(shape(&db), [0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(all(&db), "1=1 2=2 3=3 a=3 b=3");
    assert_eq!(table_entries(&db), 5, "older versions are gone");
}

#[test]
fn memtables_are_flushed_first() {
    let (_disk, db) = fresh();
    db.put("k", "v").unwrap();
    compact(&db, None, None);
    assert_eq!(db.int_property("rocksdb.num-entries-active-mem-table"), Some(0));
    assert_eq!(shape(&db), [0, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn an_empty_range_and_an_empty_database_are_no_work() {
    let (_disk, db) = fresh();
    compact(&db, None, None);
    compact(&db, Some("a"), Some("z"));
    put_and_flush(&db, &["m"], "1");
    let before = numbers(&db);
    compact(&db, Some("x"), Some("z"));
    compact(&db, Some("z"), Some("a"));
    assert_eq!(numbers(&db), before);
}

#[test]
fn only_tables_in_the_range_are_touched() {
    let (_disk, db) = fresh();
    put_and_flush(&db, &["a", "b"], "1");
    compact(&db, None, None);
    put_and_flush(&db, &["m", "n"], "1");
    compact(&db, Some("m"), None);
    let low: Vec<_> = db.live_files().into_iter().filter(|file| file.largest < b"c".to_vec()).collect();
    put_and_flush(&db, &["m", "n"], "2");
    compact(&db, Some("k"), Some("z"));
    assert!(numbers(&db).contains(&low[0].number));
    assert_eq!(all(&db), "a=1 b=1 m=2 n=2");
}

#[test]
fn a_table_that_overlaps_nothing_is_moved_and_not_rewritten() {
    let (_disk, db) = fresh();
    put_and_flush(&db, &["a", "b"], "1");
    let before = numbers(&db);
    let skip = CompactRangeOptions {
        bottommost_level_compaction: BottommostPolicy::Skip,
        ..CompactRangeOptions::default()
    };
    db.compact_range(&skip, db.default_column_family(), None, None).unwrap();
    assert_eq!(numbers(&db), before, "the same file");
    assert_eq!(shape(&db), [0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(all(&db), "a=1 b=1");
}

#[test]
fn forced_the_last_level_is_rewritten() {
    let (_disk, db) = fresh();
    put_and_flush(&db, &["a", "b"], "1");
    compact(&db, None, None);
    let before = numbers(&db);
    rewrite_all(&db);
    assert_ne!(numbers(&db), before);
    assert_eq!(all(&db), "a=1 b=1");
}

#[test]
fn named_files_are_compacted_to_the_level_that_is_asked_for() {
    let (_disk, db) = fresh();
    put_and_flush(&db, &["a", "c"], "1");
    put_and_flush(&db, &["b", "d"], "2");
    put_and_flush(&db, &["x"], "3");
    let inputs = &numbers(&db)[..2];
    let options = CompactFilesOptions::default();
    let cf = db.default_column_family();
    db.compact_files(&options, cf, inputs, 3).unwrap();
    assert_eq!(shape(&db), [1, 0, 0, 1]);
    assert_eq!(all(&db), "a=1 b=2 c=1 d=2 x=3");
    refused(db.compact_files(&options, cf, &[FileNumber(999)], 3), Code::InvalidArgument, "999");
    refused(db.compact_files(&options, cf, &numbers(&db), 99), Code::InvalidArgument, "level");
    refused(db.compact_files(&options, cf, &[], 1), Code::InvalidArgument, "");
    assert_eq!(all(&db), "a=1 b=2 c=1 d=2 x=3");
}

#[test]
fn named_files_become_tables_as_they_are_asked_for() {
    let (_disk, db) = fresh();
    let cf = db.default_column_family();
    let fill = |db: &Db| {
        for number in 0..2000 {
            db.put(format!("key{number:06}"), format!("{number:0200}")).unwrap();
        }
        db.flush().unwrap();
    };
    let ask = |compression, output_file_size_limit| {
        fill(&db);
        let named =
            CompactFilesOptions { compression, output_file_size_limit, ..CompactFilesOptions::default() };
        db.compact_files(&named, cf, &numbers(&db), 2).unwrap();
        let tables = db.properties_of_all_tables(cf).unwrap();
        tables.into_values().map(|properties| properties.compression_name).collect::<Vec<_>>()
    };
    assert_eq!(ask(None, None), ["LZ4"], "one table, as the options say");
    assert_eq!(ask(Some(CompressionKind::Zstd), None), ["ZSTD"]);
    let parts = ask(Some(CompressionKind::None), Some(64 << 10));
    assert!((6..9).contains(&parts.len()) && parts.iter().all(|part| part == "NoCompression"), "{parts:?}");
    assert!(db.live_files().iter().all(|file| file.size < 80 << 10));
    assert_eq!(db.iter().unwrap().entries().count(), 2000);
    let unbuilt =
        CompactFilesOptions { compression: Some(CompressionKind::Xpress), ..CompactFilesOptions::default() };
    let refusal = db.compact_files(&unbuilt, cf, &numbers(&db), 2);
    refused(refusal, Code::NotSupported, "compression kXpressCompression");
    fill(&db);
}

#[test]
fn tombstones_go_at_the_bottom_and_not_before() {
    let (_disk, db) = fresh();
    put_and_flush(&db, &["a", "b", "c"], "1");
    compact(&db, None, None);
    db.delete("b").unwrap();
    db.flush().unwrap();
    assert_eq!(table_entries(&db), 4);
    // One level down, above what it hides: it must stay.
    let top = db.live_files().into_iter().find(|file| file.level == 0).unwrap().number;
    db.compact_files(&CompactFilesOptions::default(), db.default_column_family(), &[top], 3).unwrap();
    assert_eq!(shape(&db), [0, 0, 0, 1, 0, 0, 1]);
    assert_eq!((table_entries(&db), all(&db)), (4, "a=1 c=1".to_owned()));
    compact(&db, None, None);
    assert_eq!((table_entries(&db), all(&db)), (2, "a=1 c=1".to_owned()));
    // Everything deleted: no table is left.
    ["a", "c"].iter().for_each(|key| db.delete(key).unwrap());
    compact(&db, None, None);
    assert_eq!((shape(&db), all(&db)), (vec![], String::new()));
}

#[test]
fn a_single_delete_goes_with_its_put() {
    let (_disk, db) = fresh();
    put_and_flush(&db, &["k", "other"], "1");
    db.single_delete("k").unwrap();
    db.flush().unwrap();
    compact(&db, None, None);
    assert_eq!((table_entries(&db), all(&db)), (1, "other=1".to_owned()));
}

#[test]
fn at_the_bottom_sequence_numbers_become_zero_once_no_snapshot_needs_them() {
    let (_disk, db) = fresh();
    put_and_flush(&db, &["a"], "1");
    let snapshot = db.snapshot();
    put_and_flush(&db, &["a", "b"], "2");
    rewrite_all(&db);
    let sequences = |db: &Db| {
        let file = db.live_files().pop().unwrap();
        (file.smallest_sequence.0, file.largest_sequence.0)
    };
    assert_eq!(sequences(&db), (0, 3), "the newest versions are still told apart from the snapshot's");
    drop(snapshot);
    rewrite_all(&db);
    assert_eq!(sequences(&db), (0, 0));
    assert_eq!(all(&db), "a=2 b=2");
    // A new write is newer than 0.
    db.put("a", "3").unwrap();
    assert_eq!(get(&db, "a"), "3");
}

fn automatic(change: impl FnOnce(&mut Options)) -> (Disk, Db) {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.disable_auto_compactions = false;
    options.cf.level0_file_num_compaction_trigger = 2;
    change(&mut options);
    let db = disk.open_with(&options);
    (disk, db)
}

#[test]
fn level_0_is_compacted_when_it_has_enough_files() {
    let (_disk, db) = automatic(|_| {});
    put_and_flush(&db, &["a", "b"], "1");
    db.wait_for_compact().unwrap();
    assert_eq!(shape(&db), [1]);
    put_and_flush(&db, &["a", "b"], "2");
    db.wait_for_compact().unwrap();
    assert_eq!(shape(&db)[0], 0);
    assert_eq!(all(&db), "a=2 b=2");
}

#[test]
fn switched_off_nothing_is_compacted_until_told() {
    let (_disk, db) = automatic(|options| options.cf.disable_auto_compactions = true);
    for _ in 0..6 {
        put_and_flush(&db, &["a", "b"], "1");
    }
    db.wait_for_compact().unwrap();
    assert_eq!(shape(&db), [6]);
    compact(&db, None, None);
    assert_eq!(shape(&db), [0, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn many_levels_hold_what_was_written() {
    let (disk, db) = automatic(|options| {
        options.cf.write_buffer_size = 16 << 10;
        options.cf.target_file_size_base = 16 << 10;
        options.cf.max_bytes_for_level_base = 64 << 10;
        options.cf.max_bytes_for_level_multiplier = 3.0;
        options.cf.level_compaction_dynamic_level_bytes = false;
        options.cf.compression = ironstone::CompressionKind::None;
        options.db.max_subcompactions = 2;
    });
    let key = |number: u32| format!("k{:05}", number.wrapping_mul(7919) % 4000);
    let mut expected = std::collections::BTreeMap::new();
    for number in 0..8000 {
        if number % 5 == 4 {
            db.delete(key(number / 2)).unwrap();
            expected.remove(&key(number / 2));
        } else {
            db.put(key(number), format!("{number}{}", "v".repeat(100))).unwrap();
            expected.insert(key(number), format!("{number}{}", "v".repeat(100)));
        }
    }
    db.flush().unwrap();
    db.wait_for_compact().unwrap();
    assert!(shape(&db).len() > 2, "{:?}", shape(&db));
    let check = |db: &Db| {
        let found = db.iter().unwrap().entries().map(|entry| entry.unwrap());
        assert!(found.eq(
            expected.iter().map(|(key, value)| (Box::from(key.as_bytes()), Box::from(value.as_bytes())))
        ));
        for number in (0..8000).step_by(37) {
            assert_eq!(get(db, &key(number)), *expected.get(&key(number)).unwrap_or(&"-".to_owned()));
        }
    };
    check(&db);
    check(&disk.lose_power().open());
    db.close().unwrap();
    drop(db);
    let db = disk.open();
    check(&db);
    let live: Vec<_> = db.live_files().iter().map(|file| format!("{:06}.sst", file.number.0)).collect();
    let on_disk = disk.files(".sst");
    assert!(on_disk.iter().all(|path| live.iter().any(|name| path.ends_with(name))), "{on_disk:?} {live:?}");
}

#[test]
fn replaced_tables_are_removed_when_nobody_reads_them() {
    let (disk, db) = fresh();
    put_and_flush(&db, &["a"], "1");
    put_and_flush(&db, &["a"], "2");
    let old = disk.files(".sst");
    let iter = db.iter().unwrap();
    rewrite_all(&db);
    assert!(old.iter().all(|path| disk.exists(path)), "the iterator needs them");
    drop(iter);
    disk.wait_until("they are removed", || !old.iter().any(|path| disk.exists(path)));
}

#[test]
fn files_are_kept_while_deletions_are_disabled() {
    let (disk, db) = fresh();
    put_and_flush(&db, &["a"], "1");
    put_and_flush(&db, &["a"], "2");
    let old = disk.files(".sst");
    db.disable_file_deletions();
    db.disable_file_deletions();
    rewrite_all(&db);
    db.enable_file_deletions();
    db.put("b", "1").unwrap();
    db.flush().unwrap();
    SystemClock::new().sleep(Duration::from_millis(50)); // Removing goes on in the background.
    assert!(old.iter().all(|path| disk.exists(path)));
    db.enable_file_deletions();
    disk.wait_until("they are removed", || !old.iter().any(|path| disk.exists(path)));
}

#[test]
fn a_cancelled_compaction_changes_nothing() {
    let (_disk, db) = fresh();
    put_and_flush(&db, &["a"], "1");
    put_and_flush(&db, &["a"], "2");
    let before = numbers(&db);
    let options = CompactRangeOptions {
        canceled: Some(Arc::new(AtomicBool::new(true))),
        ..CompactRangeOptions::default()
    };
    let error = db.compact_range(&options, db.default_column_family(), None, None);
    let error = refused(error, Code::Incomplete, "cancel");
    assert_eq!(error.sub_code(), SubCode::ManualCompactionPaused);
    assert_eq!(numbers(&db), before);
    db.put("b", "1").expect("it is no failure of the database");
    compact(&db, None, None);
}

/// A table that cannot be read must never be compacted as if it held nothing.
#[test]
fn a_read_error_stops_a_compaction_and_loses_nothing() {
    for after in 0..20 {
        let (disk, db) = fresh();
        for value in ["1", "2", "3"] {
            put_and_flush(&db, &["a", "b", value], value);
        }
        db.close().unwrap();
        drop(db);
        let db = disk.open();
        disk.faults.arm();
        let rule = FaultRule::error(FaultError::Io).on(&[OpKind::Read, OpKind::OpenRandom]).path(".sst");
        let rule = disk.faults.add(rule.after(after));
        let result =
            db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None);
        let hit = rule.hits() > 0;
        disk.faults.clear();
        assert_eq!(result.is_err(), hit, "read {after}: {result:?}");
        if let Err(error) = result {
            assert!(error.to_string().contains(".sst"), "{error}");
        }
        assert_eq!(all(&db), "1=1 2=2 3=3 a=3 b=3", "read {after}");
        if !hit {
            assert!(after > 0);
            return;
        }
        compact(&db, None, None);
        assert_eq!(all(&db), "1=1 2=2 3=3 a=3 b=3", "read {after}");
    }
    panic!("the compaction never got through");
}

#[test]
fn compactions_share_the_tables_that_readers_have_open_and_leave_filters_of_others_alone() {
    /// How many tables a compaction of three opens, and the most that is read of the end of one.
    fn opened(readers_have_them: bool, change: fn(&mut Options)) -> (u64, u64) {
        let disk = Disk::new();
        let mut options = disk.options();
        let statistics = Arc::new(Statistics::new());
        options.db.statistics = Some(Arc::clone(&statistics));
        options.cf.table.filter_policy = Some(FilterPolicy::bloom(100.0));
        options.cf.disable_auto_compactions = true;
        change(&mut options);
        let db = disk.open_with(&options);
        for value in ["1", "2", "3"] {
            (0..10_000).for_each(|key| db.put(format!("{key:05}"), value).unwrap());
            db.flush().unwrap();
        }
        let count = || all(&db).split(' ').count();
        if readers_have_them {
            assert_eq!(count(), 10_000);
        }
        let opened = || statistics.ticker(Ticker::NoFileOpens);
        let most_read = || statistics.histogram(Histogram::TableOpenPrefetchTailReadBytes).max as u64;
        let before = opened();
        assert_eq!(before, if readers_have_them { 3 } else { 0 });
        compact(&db, None, None);
        let answer = (opened() - before, most_read());
        assert_eq!(
            statistics.ticker(Ticker::TableOpenPrefetchTailMiss),
            0,
            "nothing else is read of a table"
        );
        assert_eq!(db.int_property("rocksdb.estimate-table-readers-mem").unwrap(), 0, "it left none open");
        assert_eq!((get(&db, "00000").as_str(), count()), ("3", 10_000));
        assert!(most_read() > 10_000 * 100 / 8, "readers have its filter");
        answer
    }
    let (opened_anew, read) = opened(false, |_| {});
    assert_eq!(opened_anew, 3);
    assert!(read <= 64 << 10, "the filter is left alone: {read}");
    assert_eq!(opened(true, |_| {}).0, 0);
    assert!(opened(true, |options| options.db.use_direct_io_for_compaction_reads = true).0 >= 3);
    assert!(opened(true, |options| options.db.use_direct_io_for_flush_and_compaction = true).0 >= 3);
}

/// A flush that is asked for is over when its memtables are in tables, however soon it began, and one of
/// nothing is over at once.
#[test]
fn waiting_ends_after_flushes_that_nobody_waited_for() {
    let (disk, db) = fresh();
    let request = || {
        db.flush_cf(&FlushOptions { wait: false, ..FlushOptions::default() }, db.default_column_family())
            .unwrap()
    };
    request();
    db.wait_for_compact().unwrap();
    disk.faults.arm();
    let slow = Fault::Delay(Duration::from_millis(50));
    let rule = disk.faults.add(FaultRule::new(slow).on(&[OpKind::Sync]).path(".sst").forever());
    for round in 1..=3 {
        db.put("k", round.to_string()).unwrap();
        request();
        disk.wait_until("the flush syncs its table", || rule.hits() >= round);
        request();
        db.wait_for_compact().unwrap();
        assert_eq!(shape(&db), [round as usize]);
    }
}

#[test]
fn background_work_can_be_paused() {
    let (_disk, db) = automatic(|options| options.cf.max_write_buffer_number = 8);
    db.pause_background_work().unwrap();
    for number in 0..3 {
        db.put("a", number.to_string()).unwrap();
        db.flush_cf(&FlushOptions { wait: false, ..FlushOptions::default() }, db.default_column_family())
            .unwrap();
    }
    assert_eq!(shape(&db), Vec::<usize>::new());
    assert!(db.int_property("rocksdb.num-immutable-mem-table").unwrap() > 0);
    db.continue_background_work().unwrap();
    db.wait_for_compact().unwrap();
    assert_eq!(db.int_property("rocksdb.num-immutable-mem-table"), Some(0));
    assert_eq!(get(&db, "a"), "2");
    refused(db.continue_background_work(), Code::InvalidArgument, "paused");
}

/// A compaction that cannot read one of its inputs, at each place once, says so and takes nothing away.
#[test]
fn a_read_error_ends_a_compaction_and_loses_nothing() {
    for after in 0.. {
        let disk = Disk::new();
        let mut options = disk.options();
        options.cf.table.block_size = 128;
        options.cf.table.no_block_cache = true;
        options.cf.compression = ironstone::CompressionKind::None;
        options.db.compaction_readahead_size = 256;
        let db = disk.open_with(&options);
        for value in ["old", "new"] {
            for number in 0..60 {
                db.put(format!("{number:03}"), format!("{value}{}", "v".repeat(50))).unwrap();
            }
            db.flush().unwrap();
        }
        let expected = all(&db);
        disk.faults.arm();
        let broken = FaultRule::error(FaultError::Io).on(&[OpKind::Read]).path(".sst").after(after);
        let broken = disk.faults.add(broken);
        let compacted =
            db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None);
        let hit = broken.hits() > 0;
        disk.faults.clear();
        assert_eq!(all(&db), expected, "read {after}");
        if !hit {
            compacted.unwrap();
            assert!(after > 3, "{after} reads");
            break;
        }
        refused(compacted, Code::IoError, ".sst");
        drop(db);
        assert_eq!(all(&disk.open_with(&options)), expected, "read {after}");
    }
}

#[test]
fn waiting_for_compactions_has_its_limits() {
    let disk = Disk::new();
    let mut settings = disk.options();
    settings.cf.disable_auto_compactions = false;
    settings.cf.level0_file_num_compaction_trigger = 2;
    let db = disk.open_with(&settings);
    let wait = WaitForCompactOptions::default();
    db.wait_for_compact_with(&wait).unwrap();
    db.pause_background_work().unwrap();
    let soon = Some(Duration::from_millis(5));
    db.wait_for_compact_with(&WaitForCompactOptions { timeout: soon, ..wait }).expect("nothing is due");
    let refusal = db.wait_for_compact_with(&WaitForCompactOptions { abort_on_pause: true, ..wait });
    refused(refusal, Code::Aborted, "paused");
    db.continue_background_work().unwrap();

    put_and_flush(&db, &["a", "b"], "1");
    db.put("a", "2").unwrap();
    db.wait_for_compact_with(&WaitForCompactOptions { flush: true, ..wait }).unwrap();
    assert!(db.live_files().iter().all(|file| file.level > 0), "the flush made one due");
    // What is due while nothing may run.
    db.pause_background_work().unwrap();
    let other = db.create_column_family("other", &settings.cf).unwrap();
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| {
            db.put_cf(&Default::default(), &other, "k", "v").unwrap();
            db.flush_cf(&FlushOptions::default(), &other)
        });
        disk.wait_until("the flush is due", || {
            db.int_property_cf(&other, "rocksdb.mem-table-flush-pending") == Some(1)
        });
        let refusal = db.wait_for_compact_with(&WaitForCompactOptions { timeout: soon, ..wait });
        refused(refusal, Code::TimedOut, "not done");
        let closing = WaitForCompactOptions { timeout: soon, close_db: true, ..wait };
        refused(db.wait_for_compact_with(&closing), Code::TimedOut, "not done");
        let waiting = scope.spawn(|| db.wait_for_compact_with(&wait));
        disk.clock_sleep(Duration::from_millis(5));
        assert!(!waiting.is_finished(), "it waits until background work goes on");
        db.continue_background_work().unwrap();
        waiting.join().unwrap().unwrap();
        flush.join().unwrap().unwrap();
    });
    drop(other);
    db.put("c", "unflushed").unwrap();
    db.wait_for_compact_with(&WaitForCompactOptions { close_db: true, ..wait }).unwrap();
    refused(db.put("d", "1"), Code::ShutdownInProgress, "");
    refused(db.wait_for_compact_with(&wait), Code::ShutdownInProgress, "");
    let db = disk.open_families(&settings, &["other"]).unwrap();
    assert_eq!(all(&db), "a=2 b=1 c=unflushed");
}

/// A database of which one of twenty obsolete tables has been removed; the next ones wait for the gate.
fn removing_twenty_tables() -> (Disk, Arc<RemovalGate>, Db) {
    let (disk, gate) = (Disk::new(), Arc::new(RemovalGate::default()));
    let mut options = disk.options();
    options.db.listeners.push(gate.clone());
    let db = disk.open_with(&options);
    for value in 0..20 {
        put_and_flush(&db, &["a", "b"], &value.to_string());
    }
    rewrite_all(&db);
    disk.wait_until("the first table is removed", || gate.removed() == 1);
    (disk, gate, db)
}

#[test]
fn what_waits_for_its_turn_is_kept_while_deletions_are_disabled() {
    let (disk, gate, db) = removing_twenty_tables();
    db.disable_file_deletions();
    let kept = disk.files(".sst");
    gate.open_for(usize::MAX);
    let wait = WaitForCompactOptions { wait_for_purge: true, ..WaitForCompactOptions::default() };
    db.wait_for_compact_with(&wait).unwrap();
    assert_eq!(disk.files(".sst"), kept);
    db.enable_file_deletions();
    disk.wait_until_purged(&db);
}

#[test]
fn closing_removes_what_waits_for_its_turn() {
    let (disk, _gate, db) = removing_twenty_tables();
    assert!(disk.files(".sst").len() > 1);
    db.close().unwrap();
    assert_eq!(disk.files(".sst").len(), 1);
}

#[test]
fn whoever_wishes_it_waits_until_obsolete_files_are_gone() {
    let (disk, gate) = (Disk::new(), Arc::new(RemovalGate::default()));
    let mut options = disk.options();
    options.db.listeners.push(gate.clone());
    let db = disk.open_with(&options);
    for value in ["1", "2", "3"] {
        put_and_flush(&db, &["a", "b"], value);
    }
    rewrite_all(&db);
    disk.wait_until("the first table is removed", || gate.removed() == 1);
    let wait = WaitForCompactOptions { wait_for_purge: true, ..WaitForCompactOptions::default() };
    let soon = Some(Duration::from_millis(5));
    let refusal = db.wait_for_compact_with(&WaitForCompactOptions { timeout: soon, ..wait });
    refused(refusal, Code::TimedOut, "not done");
    db.wait_for_compact().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| db.wait_for_compact_with(&wait));
        disk.clock_sleep(Duration::from_millis(5));
        assert!(!waiting.is_finished());
        gate.open_for(usize::MAX);
        waiting.join().unwrap().unwrap();
    });
    assert_eq!((disk.files(".sst").len(), db.live_files().len()), (1, 1));
    // What somebody holds is not waited for, and what is let go of is.
    let iter = db.iter().unwrap();
    put_and_flush(&db, &["a"], "4");
    rewrite_all(&db);
    db.wait_for_compact_with(&wait).unwrap();
    assert_eq!(disk.files(".sst").len(), 2);
    drop(iter);
    db.wait_for_compact_with(&WaitForCompactOptions { close_db: true, ..wait }).unwrap();
    assert_eq!(disk.files(".sst").len(), 1);
}

/// What a snapshot kept goes once it is released, but not from tables that are younger than is wished.
#[test]
fn tables_of_released_snapshots_wait_until_they_are_old_enough() {
    let clock = Arc::new(ManualClock::new(1_000_000_000));
    let disk = Disk::with_clock(&clock);
    let mut options = disk.options();
    options.cf.disable_auto_compactions = false;
    options.cf.bottommost_file_compaction_delay = 100;
    let db = disk.open_with(&options);
    db.put("k", "1").unwrap();
    let snapshot = db.snapshot();
    db.put("k", "2").unwrap();
    rewrite_all(&db);
    assert_eq!(table_entries(&db), 2);
    drop(snapshot);
    let look_again = |key: &str| {
        db.put(key, "v").unwrap();
        db.flush().unwrap();
        db.wait_for_compact().unwrap();
    };
    clock.sleep(Duration::from_secs(50));
    look_again("y");
    assert_eq!(table_entries(&db), 3, "it is too young");
    clock.sleep(Duration::from_secs(51));
    look_again("z");
    assert_eq!(table_entries(&db), 3, "one version is left");
    assert_eq!(all(&db), "k=2 y=v z=v");
    // Without a delay it goes at once.
    db.put("k", "3").unwrap();
    let snapshot = db.snapshot();
    db.put("k", "4").unwrap();
    rewrite_all(&db);
    assert_eq!(table_entries(&db), 4);
    db.set_options(&[("bottommost_file_compaction_delay", "0")]).unwrap();
    db.put("newer", "v").unwrap();
    drop(snapshot);
    disk.wait_until("it is rewritten", || table_entries(&db) == 3);
}
