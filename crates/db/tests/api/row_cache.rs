//! The row cache: what it answers, for whom, and what it must not answer.

use crate::disk::{Disk, get, get_with, rewrite_all};
use ironstone::statistics::Ticker;
use ironstone::{
    CacheOptions, Db, IngestOptions, Options, ReadOptions, RowCache, SstFileWriter, Statistics,
    merge_operators,
};
use std::path::Path;
use std::sync::Arc;

struct Rows {
    disk: Disk,
    options: Options,
    cache: Arc<RowCache>,
    statistics: Arc<Statistics>,
}

impl Rows {
    fn new() -> Self {
        let disk = Disk::new();
        let mut options = disk.options();
        let cache = RowCache::new(CacheOptions { capacity: 1 << 20, ..CacheOptions::default() });
        let statistics = Arc::new(Statistics::new());
        options.db.row_cache = Some(Arc::clone(&cache));
        options.db.statistics = Some(Arc::clone(&statistics));
        options.cf.merge_operator = Some(merge_operators::string_append(","));
        Self { disk, options, cache, statistics }
    }
    fn open(&self) -> Db {
        self.disk.open_with(&self.options)
    }
    /// Hits and misses since the last call.
    fn counts(&self) -> (u64, u64) {
        let counts = (self.ticker(Ticker::RowCacheHit), self.ticker(Ticker::RowCacheMiss));
        self.statistics.reset();
        counts
    }
    fn ticker(&self, ticker: Ticker) -> u64 {
        self.statistics.ticker(ticker)
    }
}

fn many(db: &Db, keys: &[&str]) -> String {
    let text = |found: ironstone::Result<Option<ironstone::PinnedValue>>| match found.unwrap() {
        Some(value) => String::from_utf8(value.to_vec()).unwrap(),
        None => "-".to_owned(),
    };
    db.multi_get(keys).into_iter().map(text).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_second_read_reads_no_block() {
    let rows = Rows::new();
    let db = rows.open();
    db.put("a", "1").unwrap();
    db.put("b", "2").unwrap();
    db.delete("c").unwrap();
    db.flush().unwrap();
    rows.counts();
    assert_eq!((get(&db, "a"), rows.counts()), ("1".to_owned(), (0, 1)));
    assert_eq!(rows.cache.entry_count(), 1);
    let charged = rows.cache.usage();
    assert!(charged > 2 && charged < 300, "{charged}");
    let value = db.get("a").unwrap().unwrap();
    assert_eq!(rows.ticker(Ticker::BlockCacheDataHit) + rows.ticker(Ticker::BlockCacheDataMiss), 0);
    assert_eq!(rows.ticker(Ticker::GetHitL0), 1);
    assert_eq!((value.as_ref(), rows.counts()), (&b"1"[..], (1, 0)));
    assert!(rows.cache.pinned_usage() >= charged);
    // What is handed out stays when the cache has no room for it any more.
    rows.cache.set_capacity(0);
    assert_eq!(rows.cache.entry_count(), 0);
    assert_eq!(value, "1");
    drop(value);
    assert_eq!(rows.cache.usage(), 0);
    rows.cache.set_capacity(1 << 20);

    // Of all keys at once; what is deleted is a row, too, what is not there is none.
    assert_eq!((many(&db, &["c", "a", "zzz", "b"]), rows.counts()), ("- 1 - 2".to_owned(), (0, 3)));
    assert_eq!((many(&db, &["c", "a", "b"]), rows.counts()), ("- 1 2".to_owned(), (3, 0)));
    assert_eq!((get(&db, "c"), get(&db, "b"), rows.counts()), ("-".to_owned(), "2".to_owned(), (2, 0)));
    let careful = ReadOptions { fill_cache: false, ..ReadOptions::default() };
    db.put("d", "4").unwrap();
    db.flush().unwrap();
    let before = rows.cache.entry_count();
    assert_eq!(get_with(&db, &careful, db.default_column_family(), "d"), "4");
    assert_eq!(rows.cache.entry_count(), before);
}

#[test]
fn rows_of_a_table_say_nothing_about_another() {
    let rows = Rows::new();
    let db = rows.open();
    for value in ["1", "2", "3"] {
        db.put("a", value).unwrap();
        db.flush().unwrap();
        assert_eq!((get(&db, "a"), get(&db, "a")), (value.to_owned(), value.to_owned()));
    }
    rewrite_all(&db);
    assert_eq!((get(&db, "a"), get(&db, "a")), ("3".to_owned(), "3".to_owned()));
    db.delete("a").unwrap();
    db.flush().unwrap();
    assert_eq!((get(&db, "a"), get(&db, "a")), ("-".to_owned(), "-".to_owned()));

    // Another database with files of the same numbers, and this one again.
    let other = Rows { cache: Arc::clone(&rows.cache), ..Rows::new() };
    let mut options = other.options.clone();
    options.db.row_cache = Some(Arc::clone(&rows.cache));
    let second = other.disk.open_with(&options);
    for value in ["other 1", "other 2", "other 3"] {
        second.put("a", value).unwrap();
        second.flush().unwrap();
        assert_eq!((get(&second, "a"), get(&db, "a")), (value.to_owned(), "-".to_owned()));
    }
    drop(db);
    let db = rows.open();
    assert_eq!((get(&second, "a"), get(&db, "a")), ("other 3".to_owned(), "-".to_owned()));
}

#[test]
fn a_snapshot_has_rows_of_its_own() {
    let rows = Rows::new();
    let db = rows.open();
    db.put("b", "").unwrap();
    let before = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::default() };
    db.put("a", "1").unwrap();
    let first = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::default() };
    db.put("a", "2").unwrap();
    let second = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::default() };
    db.flush().unwrap();
    let cf = db.default_column_family();
    rows.counts();
    for round in 0..2 {
        let found = [&before, &first, &second].map(|at| get_with(&db, at, cf, "a"));
        assert_eq!(found, ["-", "1", "2"], "round {round}");
        let found = [&before, &first, &second].map(|at| db.multi_get_cf(at, cf, &["a"]).remove(0).unwrap());
        assert_eq!(
            found.map(|value| value.map(|value| value.to_vec())),
            [None, Some(b"1".to_vec()), Some(b"2".to_vec())]
        );
        assert_eq!(get(&db, "a"), "2");
    }
    // Who sees all of the table shares one row.
    assert_eq!(rows.cache.entry_count(), 2);
    assert_eq!(rows.counts(), (8, 6));
}

#[test]
fn operands_are_a_row_down_to_what_they_stand_on() {
    let rows = Rows::new();
    let db = rows.open();
    db.put("a", "0").unwrap();
    db.flush().unwrap();
    let old = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::default() };
    for operand in ["1", "2"] {
        db.merge("a", operand).unwrap();
        db.merge("b", operand).unwrap();
    }
    let middle = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::default() };
    db.merge("a", "3").unwrap();
    db.flush().unwrap();
    db.merge("a", "4").unwrap();
    let cf = db.default_column_family();
    for round in 0..2 {
        rows.counts();
        assert_eq!(get(&db, "a"), "0,1,2,3,4");
        assert_eq!(rows.counts(), if round == 0 { (0, 2) } else { (2, 0) });
        assert_eq!((get(&db, "b"), many(&db, &["b", "a"])), ("1,2".to_owned(), "1,2 0,1,2,3,4".to_owned()));
        assert_eq!(get_with(&db, &old, cf, "a"), "0");
        assert_eq!(get_with(&db, &middle, cf, "a"), "0,1,2");
        let operands = db.get_merge_operands(&ReadOptions::default(), cf, "a", 9).unwrap();
        assert_eq!(operands, ["0", "1,2", "3", "4"]);
    }
}

#[test]
fn range_tombstones_hide_rows() {
    let rows = Rows::new();
    let db = rows.open();
    ["a", "b", "c", "d"].iter().for_each(|key| db.put(key, "old").unwrap());
    db.flush().unwrap();
    rows.counts();
    assert_eq!((many(&db, &["a", "b", "c", "d"]), rows.counts()), ("old old old old".to_owned(), (0, 4)));
    // In the memtable, in a newer table, and in the table of the entries itself.
    db.delete_range("b", "c").unwrap();
    assert_eq!((many(&db, &["a", "b", "c"]), get(&db, "b")), ("old - old".to_owned(), "-".to_owned()));
    db.flush().unwrap();
    assert_eq!((many(&db, &["a", "b", "c"]), get(&db, "b")), ("old - old".to_owned(), "-".to_owned()));
    let held = db.snapshot();
    db.put("b", "new").unwrap();
    db.put("c", "new").unwrap();
    db.delete_range("c", "d").unwrap();
    db.flush().unwrap();
    rewrite_all(&db);
    let before = rows.cache.entry_count();
    for _ in 0..2 {
        assert_eq!(many(&db, &["a", "b", "c", "d"]), "old new - old");
        assert_eq!(["a", "b", "c", "d"].map(|key| get(&db, key)), ["old", "new", "-", "old"]);
    }
    assert_eq!(rows.cache.entry_count(), before, "a table with range tombstones has no rows");
    let at = ReadOptions { snapshot: Some(held), ..ReadOptions::default() };
    assert_eq!(get_with(&db, &at, db.default_column_family(), "c"), "old");
}

#[test]
fn an_ingested_table_has_the_sequence_of_its_ingestion() {
    let rows = Rows::new();
    let db = rows.open();
    db.put("a", "old").unwrap();
    db.flush().unwrap();
    let before = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::default() };
    let path = Path::new("/outside.sst");
    let mut writer = SstFileWriter::new(&rows.options);
    writer.open(path).unwrap();
    writer.put(b"a", b"ingested").unwrap();
    writer.finish().unwrap();
    db.ingest_external_files(db.default_column_family(), &[path], &IngestOptions::default()).unwrap();
    for _ in 0..2 {
        assert_eq!(get(&db, "a"), "ingested");
        assert_eq!(get_with(&db, &before, db.default_column_family(), "a"), "old");
    }
}
