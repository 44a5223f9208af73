//! The history of statistics.

use crate::disk::{DIR, Disk, all, get_in, refused};
use ironstone::statistics::Ticker;
use ironstone::{Code, Db, FlushOptions, Options, Statistics, StatsSlice, WriteOptions};
use std::sync::Arc;

#[test]
fn periods_say_what_was_done_in_them() {
    let disk = Disk::new();
    let mut options = disk.options();
    let statistics = Arc::new(Statistics::new());
    statistics.record(Ticker::NumberKeysWritten, 1_000); // Of another database, before this one.
    options.db.statistics = Some(Arc::clone(&statistics));
    options.db.stats_persist_period_sec = 1;
    let db = disk.open_with(&options);
    let began = disk.env().clock.now_seconds();
    let history = || db.stats_history(0, u64::MAX).unwrap().collect::<Vec<StatsSlice>>();
    let written = |slices: &[StatsSlice]| {
        slices.iter().map(|slice| slice.ticker(Ticker::NumberKeysWritten)).sum::<u64>()
    };
    (0..30).for_each(|key| db.put(format!("{key}"), "value").unwrap());
    disk.wait_until("a period ended", || written(&history()) == 30);
    (0..12).for_each(|key| db.put(format!("{key}"), "value").unwrap());
    disk.wait_until("another one ended", || written(&history()) == 42);

    let slices = history();
    let busy: Vec<u64> =
        slices.iter().map(|slice| slice.ticker(Ticker::NumberKeysWritten)).filter(|&n| n > 0).collect();
    assert!(busy == [30, 12] || busy.len() > 2, "{busy:?}"); // A period may end while keys are written.
    assert!(slices.windows(2).all(|pair| pair[0].time_seconds() < pair[1].time_seconds()));
    assert!(slices[0].time_seconds() >= began);
    let first = &slices[0];
    assert_eq!(first.tickers().count(), Ticker::ALL.len());
    assert!(first.tickers().any(|(name, raised)| name == "rocksdb.number.keys.written" && raised > 0));
    // From a moment on, and up to one.
    let (at, end) = (slices[1].time_seconds(), slices.last().unwrap().time_seconds() + 1);
    let between = |from, to| db.stats_history(from, to).unwrap().collect::<Vec<_>>();
    assert_eq!((between(0, end), between(at, end)), (slices.clone(), slices[1..].to_vec()));
    assert_eq!((between(0, at), between(at, at)), (slices[..1].to_vec(), vec![]));

    // Nothing is kept without room, and nothing is added without a period.
    db.set_db_options(&[("stats_history_buffer_size", "0")]).unwrap();
    disk.wait_until("the history went", || history().is_empty());
    db.set_db_options(&[("stats_persist_period_sec", "0"), ("stats_history_buffer_size", "1M")]).unwrap();
    let mut iter = db.stats_history(0, u64::MAX).unwrap();
    drop(db);
    assert!(iter.next().is_none(), "the history ends with the database");
}

#[test]
fn there_is_no_history_without_statistics() {
    let disk = Disk::new();
    assert_eq!(disk.open().stats_history(0, 1).err().unwrap().code(), Code::InvalidArgument);
}

// ---- in the database ----

const STATS: &str = "___rocksdb_stats_history___";
const FORMAT_VERSION: &str = "__persistent_stats_format_version__";
const COMPATIBLE_VERSION: &str = "__persistent_stats_compatible_version__";

fn persisting(disk: &Disk) -> Options {
    let mut options = disk.options();
    options.db.statistics = Some(Arc::new(Statistics::new()));
    options.db.stats_persist_period_sec = 1;
    options.db.persist_stats_to_disk = true;
    options
}

fn written(db: &Db) -> u64 {
    let mut history = db.stats_history(0, u64::MAX).unwrap();
    let written = history.by_ref().map(|slice| slice.ticker(Ticker::NumberKeysWritten)).sum();
    history.status().unwrap();
    written
}

#[test]
fn periods_in_the_database_outlive_it() {
    let disk = Disk::new();
    let db = disk.open_with(&persisting(&disk));
    let began = disk.env().clock.now_seconds();
    (0..30).for_each(|key| db.put(format!("{key}"), "value").unwrap());
    disk.wait_until("a period ended", || written(&db) == 30);
    let slice =
        db.stats_history(0, u64::MAX).unwrap().find(|slice| slice.ticker(Ticker::NumberKeysWritten) > 0);
    let slice = slice.unwrap();
    assert!(slice.time_seconds() >= began);
    assert_eq!(slice.tickers().count(), Ticker::ALL.len());

    // RocksDB's keys and values.
    let stats = db.column_family(STATS).unwrap();
    let key = format!("{:010}#rocksdb.number.keys.written", slice.time_seconds());
    assert_eq!(get_in(&db, &stats, &key), slice.ticker(Ticker::NumberKeysWritten).to_string());
    assert_eq!(
        (get_in(&db, &stats, FORMAT_VERSION).as_str(), get_in(&db, &stats, COMPATIBLE_VERSION).as_str()),
        ("1", "1")
    );
    assert_eq!(all(&db).split(' ').count(), 30, "nothing of it elsewhere");

    // Whoever opens the database has the column family, whether listed or not, asked for or not.
    let disk = disk.kill();
    let mut options = persisting(&disk);
    options.db.stats_persist_period_sec = 0;
    let kept = |options: &Options, names: &[&str]| written(&disk.open_families(options, names).unwrap());
    assert_eq!(kept(&options, &[]), 30);
    assert_eq!(kept(&options, &[STATS]), 30);
    let reader = disk.open_read_only(&options, &[]).unwrap();
    assert_eq!(written(&reader), 30);
    drop(reader);
    let plain = disk.open();
    assert!(plain.column_family(STATS).is_some());
    drop(plain);
    assert_eq!(
        Db::list_column_families(&options.db, DIR).unwrap(),
        ["default", STATS],
        "as RocksDB lists it"
    );
    options.db.statistics = None;
    assert_eq!(kept(&options, &[]), 30, "what is there can be read without statistics");
}

#[test]
fn a_history_of_another_version_is_made_anew() {
    for (format, compatible, stays) in
        [("1", "1", true), ("2", "1", true), ("2", "2", false), ("", "1", false), ("1", "x", false)]
    {
        let disk = Disk::new();
        let mut options = persisting(&disk);
        options.db.stats_persist_period_sec = 0;
        let db = disk.open_with(&options);
        let stats = db.column_family(STATS).unwrap();
        let put = |key: &str, value: &str| db.put_cf(&WriteOptions::default(), &stats, key, value).unwrap();
        put("1700000000#rocksdb.number.keys.written", "7");
        put(FORMAT_VERSION, format);
        put(COMPATIBLE_VERSION, compatible);
        drop(db);
        let db = disk.open_with(&options);
        assert_eq!(written(&db), if stays { 7 } else { 0 }, "{format:?} {compatible:?}");
        let stats = db.column_family(STATS).unwrap();
        assert_eq!(get_in(&db, &stats, FORMAT_VERSION), if stays { format } else { "1" });
    }
}

#[test]
fn what_others_wrote_is_shown_and_what_is_no_number_is_told() {
    let disk = Disk::new();
    let mut options = persisting(&disk);
    options.db.stats_persist_period_sec = 0;
    let db = disk.open_with(&options);
    let stats = db.column_family(STATS).unwrap();
    let put = |key: &str, value: &str| db.put_cf(&WriteOptions::default(), &stats, key, value).unwrap();
    put("1700000000#rocksdb.new.ticker", "5");
    put("1700000000#rocksdb.number.keys.read", "6");
    put("1700000009#rocksdb.number.keys.read", "7");
    let slices: Vec<StatsSlice> = db.stats_history(0, u64::MAX).unwrap().collect();
    assert_eq!(
        slices.iter().map(StatsSlice::time_seconds).collect::<Vec<_>>(),
        [1_700_000_000, 1_700_000_009]
    );
    assert!(slices[0].tickers().any(|found| found == ("rocksdb.new.ticker", 5)));
    assert_eq!(slices[0].ticker(Ticker::NumberKeysRead), 6);
    let between = |from, to| db.stats_history(from, to).unwrap().count();
    assert_eq!(
        (between(0, 1_700_000_009), between(1_700_000_001, u64::MAX), between(u64::MAX - 1, u64::MAX)),
        (1, 1, 0)
    );
    put("1700000005#rocksdb.number.keys.read", "many");
    let mut history = db.stats_history(0, u64::MAX).unwrap();
    assert_eq!(history.by_ref().count(), 1);
    refused(history.status(), Code::Corruption, "1700000005#rocksdb.number.keys.read is many, not a number");
}

#[test]
fn the_history_does_not_keep_wals() {
    let disk = Disk::new();
    let mut options = persisting(&disk);
    options.db.stats_persist_period_sec = 0;
    let db = disk.open_with(&options);
    let stats = db.column_family(STATS).unwrap();
    let other = db.create_column_family("other", &options.cf).unwrap();
    db.put("a", "1").unwrap();
    db.put_cf(&WriteOptions::default(), &other, "a", "1").unwrap();
    db.flush_cf(&FlushOptions::default(), &other).unwrap();
    let tables_of = |cf| db.level_shape(cf).iter().map(|level| level.0).sum::<usize>();
    assert_eq!(tables_of(&stats), 0, "another column family keeps the WAL as well");
    db.flush().unwrap();
    disk.wait_until("it is flushed, too: it alone would keep the WAL", || tables_of(&stats) == 1);
    disk.wait_until("the first WAL is removed", || disk.files(".log").len() == 1);
}
