//! The history of statistics.

use crate::disk::Disk;
use ironstone::statistics::Ticker;
use ironstone::{Code, Statistics, StatsSlice};
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
