//! Prefix seeks: which filters iterators ask, and what they find whatever the filters say.

use crate::disk::{Disk, all, here, rewrite_all};
use ironstone::statistics::Ticker;
use ironstone::vfs::OpKind;
use ironstone::vfs::fault::{FaultError, FaultRule};
use ironstone::{
    Comparator, Db, DbIterator, FilterPolicy, IngestOptions, Options, ReadOptions, SliceTransform,
    SstFileWriter, Statistics, UserComparator, slice_transform,
};
use std::sync::Arc;

/// Keys of six prefixes of two letters, three of each.
const PREFIXES: [&str; 6] = ["aa", "ab", "ac", "ba", "bb", "zz"];

struct Counted {
    disk: Disk,
    options: Options,
    statistics: Arc<Statistics>,
}

impl Counted {
    fn new(extractor: Arc<dyn SliceTransform>) -> Self {
        let disk = Disk::new();
        let mut options = disk.options();
        let statistics = Arc::new(Statistics::new());
        options.db.statistics = Some(Arc::clone(&statistics));
        options.cf.prefix_extractor = Some(extractor);
        options.cf.table.filter_policy = Some(FilterPolicy::bloom(20.0));
        Self { disk, options, statistics }
    }
    fn open(&self) -> Db {
        self.disk.open_with(&self.options)
    }

    /// How often filters were asked during `act`, how often they said no, and how many blocks were looked at.
    fn count(&self, act: impl FnOnce()) -> (u64, u64, u64) {
        let tickers = [
            Ticker::BloomFilterPrefixChecked,
            Ticker::BloomFilterPrefixUseful,
            Ticker::BlockCacheDataHit,
            Ticker::BlockCacheDataMiss,
        ];
        tickers.iter().for_each(|&ticker| self.statistics.set_ticker(ticker, 0));
        act();
        let [checked, useful, hit, miss] = tickers.map(|ticker| self.statistics.ticker(ticker));
        (checked, useful, hit + miss)
    }
}

/// A table of level 0 for each prefix.
fn one_table_each(db: &Db) {
    for prefix in PREFIXES {
        put_three(db, prefix);
        db.flush().unwrap();
    }
}
fn put_three(db: &Db, prefix: &str) {
    (1..4).for_each(|number| db.put(format!("{prefix}{number}"), "").unwrap());
}

fn iter_with(db: &Db, change: impl FnOnce(&mut ReadOptions)) -> DbIterator {
    let mut options = ReadOptions::default();
    change(&mut options);
    db.iter_cf(&options, db.default_column_family()).unwrap()
}
fn bounded(lower: &str, upper: &str) -> ReadOptions {
    let bound = |key: &str| Some(key.as_bytes().to_vec()).filter(|key| !key.is_empty());
    let (lower, upper) = (bound(lower), bound(upper));
    ReadOptions { iterate_lower_bound: lower, iterate_upper_bound: upper, ..ReadOptions::default() }
}

/// The keys from `target` on.
fn from(iter: &mut DbIterator, target: &str) -> String {
    let more = iter.seek(target).unwrap();
    rest(iter, more)
}
fn rest(iter: &mut DbIterator, mut more: bool) -> String {
    let mut found = Vec::new();
    while more {
        found.push(here(iter).trim_end_matches('=').to_owned());
        more = iter.next().unwrap();
    }
    found.join(" ")
}
fn rest_back(iter: &mut DbIterator, mut more: bool) -> String {
    let mut found = Vec::new();
    while more {
        found.push(here(iter).trim_end_matches('=').to_owned());
        more = iter.prev().unwrap();
    }
    found.join(" ")
}

#[test]
fn a_seek_looks_into_the_tables_that_have_the_prefix() {
    let counted = Counted::new(slice_transform::fixed_prefix(2));
    let db = counted.open();
    one_table_each(&db);
    for same_as_start in [false, true] {
        let mut iter = iter_with(&db, |options| options.prefix_same_as_start = same_as_start);
        let counts = counted.count(|| assert_eq!(from(&mut iter, "ba"), "ba1 ba2 ba3"));
        assert_eq!(counts, (6, 5, 1), "same as start: {same_as_start}");
        let counts = counted.count(|| assert!(iter.seek_for_prev("ba~").unwrap()));
        assert_eq!(counts, (6, 5, 1), "same as start: {same_as_start}");
        let counts = counted.count(|| assert_eq!(from(&mut iter, "bc"), ""));
        assert_eq!(counts, (6, 6, 0), "same as start: {same_as_start}");
    }
}

#[test]
fn in_total_order_no_filter_is_asked() {
    let counted = Counted::new(slice_transform::fixed_prefix(2));
    let mut db = counted.open();
    one_table_each(&db);
    let whole = all(&db).replace('=', "");
    let mut iter = iter_with(&db, |options| options.total_order_seek = true);
    let (checked, _, _) = counted.count(|| assert_eq!(from(&mut iter, "aa"), whole));
    assert_eq!(checked, 0);
    drop(iter);
    drop(db);

    let mut options = counted.options.clone();
    options.db.prefix_seek_opt_in_only = true;
    db = counted.disk.open_with(&options);
    let mut iter = db.iter().unwrap();
    let (checked, _, _) = counted.count(|| assert_eq!(from(&mut iter, "aa"), whole));
    assert_eq!(checked, 0);
    let mut iter = iter_with(&db, |options| options.prefix_same_as_start = true);
    let (checked, _, _) = counted.count(|| assert_eq!(from(&mut iter, "aa2"), "aa2 aa3"));
    assert_eq!(checked, 6, "asking for one prefix is opting in");
}

#[test]
fn prefix_same_as_start_wins_over_total_order() {
    let counted = Counted::new(slice_transform::fixed_prefix(2));
    let db = counted.open();
    one_table_each(&db);
    let both =
        |options: &mut ReadOptions| (options.total_order_seek, options.prefix_same_as_start) = (true, true);
    let mut iter = iter_with(&db, both);
    assert_eq!(counted.count(|| assert_eq!(from(&mut iter, "ab2"), "ab2 ab3")), (6, 5, 1));
}

#[test]
fn in_auto_prefix_mode_the_bound_decides() {
    let counted = Counted::new(slice_transform::fixed_prefix(2));
    let db = counted.open();
    one_table_each(&db);
    let auto = |upper: &str| {
        let options = ReadOptions { auto_prefix_mode: true, ..bounded("", upper) };
        db.iter_cf(&options, db.default_column_family()).unwrap()
    };
    let counts = counted.count(|| assert_eq!(from(&mut auto("ab3"), "ab1"), "ab1 ab2"));
    assert_eq!(counts, (6, 5, 1), "a bound with the same prefix");
    let counts = counted.count(|| assert_eq!(from(&mut auto("ac"), "ab1"), "ab1 ab2 ab3"));
    assert_eq!(counts, (6, 5, 1), "a bound that is the next prefix");
    let (checked, _, _) = counted.count(|| assert_eq!(from(&mut auto("ac2"), "ab3"), "ab3 ac1"));
    assert_eq!(checked, 0, "a bound in the next prefix");
    let (checked, _, _) = counted.count(|| assert_eq!(from(&mut auto(""), "bb3"), "bb3 zz1 zz2 zz3"));
    assert_eq!(checked, 0, "no bound");
    let (checked, _, _) = counted.count(|| {
        let mut iter = auto("ab3");
        let more = iter.seek_for_prev("ab3").unwrap();
        assert_eq!(rest_back(&mut iter, more), "ab2 ab1 aa3 aa2 aa1");
    });
    assert_eq!(checked, 0, "backward");
    // The direction changes where a filter had left tables out.
    let mut iter = auto("ac");
    assert!(iter.seek("ab1").unwrap() && iter.prev().unwrap());
    assert_eq!(here(&iter), "aa3=");
    let more = iter.next().unwrap();
    assert_eq!(rest(&mut iter, more), "ab1 ab2 ab3");
}

#[test]
fn tables_of_another_extractor_are_asked_only_within_a_bound_that_keeps_their_prefix() {
    let mut counted = Counted::new(slice_transform::fixed_prefix(1));
    let db = counted.open();
    one_table_each(&db);
    drop(db);
    for extractor in
        [slice_transform::fixed_prefix(2), slice_transform::capped_prefix(1), slice_transform::noop()]
    {
        let name = extractor.name().to_owned();
        counted.options.cf.prefix_extractor = Some(extractor);
        let db = counted.open();
        let counts = counted.count(|| {
            let mut iter = iter_with(&db, |options| options.prefix_same_as_start = true);
            assert_eq!(from(&mut iter, "ba1").split(' ').next(), Some("ba1"));
        });
        assert_eq!(counts.0, 0, "{name}");
        let counts = counted.count(|| {
            let options = ReadOptions { auto_prefix_mode: true, ..bounded("", "ba3") };
            let mut iter = db.iter_cf(&options, db.default_column_family()).unwrap();
            assert_eq!(from(&mut iter, "b"), "ba1 ba2");
        });
        assert_eq!(counts, (6, 4, 2), "{name}: by the prefixes that the tables have");
    }
    counted.options.cf.prefix_extractor = None;
    let db = counted.open();
    let (checked, _, _) = counted.count(|| {
        let options =
            ReadOptions { auto_prefix_mode: true, prefix_same_as_start: true, ..bounded("", "ba3") };
        let mut iter = db.iter_cf(&options, db.default_column_family()).unwrap();
        assert_eq!(from(&mut iter, "ac3"), "ac3 ba1 ba2");
    });
    assert_eq!(checked, 0, "without an extractor there are no prefixes");
}

struct UpToColon;

impl SliceTransform for UpToColon {
    fn name(&self) -> &str {
        "test.UpToColon"
    }
    fn transform<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        key.iter().position(|&byte| byte == b':').map(|colon| &key[..=colon])
    }
}

#[test]
fn an_extractor_of_ones_own_counts_by_its_name() {
    let mut counted = Counted::new(Arc::new(UpToColon));
    let mut db = counted.open();
    for key in ["iron:1", "iron:22", "plain", "tin:1", "zinc:1"] {
        db.put(key, "").unwrap();
        db.flush().unwrap();
    }
    for reopened in [false, true] {
        let mut iter = iter_with(&db, |options| options.prefix_same_as_start = true);
        let counts = counted.count(|| assert_eq!(from(&mut iter, "iron:"), "iron:1 iron:22"));
        assert_eq!(counts, (5, 3, 2), "{reopened}");
        let (checked, _, _) = counted.count(|| assert_eq!(from(&mut iter, "plain"), "plain tin:1 zinc:1"));
        assert_eq!(checked, 0, "{reopened}: a target without a prefix is kept to none");
        drop(iter);
        drop(db);
        db = counted.open();
    }
    drop(db);
    counted.options.cf.prefix_extractor = Some(slice_transform::fixed_prefix(2));
    let db = counted.open();
    let mut iter = iter_with(&db, |options| options.prefix_same_as_start = true);
    let (checked, _, _) = counted.count(|| assert_eq!(from(&mut iter, "ti"), "tin:1"));
    assert_eq!(checked, 0, "what its prefixes are is not known without it");
}

/// Behind a table that has not got the prefix, the next one is looked into only if it can have it.
#[test]
fn a_level_is_left_where_the_prefix_or_the_bound_is_left() {
    let mut counted = Counted::new(slice_transform::fixed_prefix(2));
    counted.options.cf.target_file_size_base = 1;
    let db = counted.open();
    PREFIXES.iter().for_each(|prefix| put_three(&db, prefix));
    db.flush().unwrap();
    rewrite_all(&db);
    assert!(db.level_shape(db.default_column_family()).iter().any(|level| level.0 > 1), "a level of tables");
    let mut iter = db.iter().unwrap();
    assert_eq!(counted.count(|| assert!(!iter.seek("ad").unwrap())), (1, 1, 0));
    let bounded = bounded("", "b");
    let mut iter = db.iter_cf(&ReadOptions { total_order_seek: true, ..bounded }, db.default_column_family());
    let iter = iter.as_mut().unwrap();
    let (_, _, near) = counted.count(|| assert_eq!(from(iter, "ac2"), "ac2 ac3"));
    iter.seek("ac3").unwrap();
    let (_, _, behind) = counted.count(|| assert!(!iter.next().unwrap()));
    assert!(near > 0 && behind == 0, "{near} {behind}");
    let more = iter.seek_to_last().unwrap();
    assert_eq!(rest_back(iter, more), "ac3 ac2 ac1 ab3 ab2 ab1 aa3 aa2 aa1");
}

/// The bounds of a table reach as far as its range tombstones, beyond the prefixes that its filter has.
#[test]
fn behind_a_table_that_only_deletes_in_the_prefix_a_level_goes_on() {
    let counted = Counted::new(slice_transform::fixed_prefix(2));
    let db = counted.open();
    let write = |path: &str, fill: &dyn Fn(&mut SstFileWriter)| {
        let mut writer = SstFileWriter::new(&counted.options);
        writer.open(path).unwrap();
        fill(&mut writer);
        writer.finish().unwrap();
        path.to_owned()
    };
    let files = [
        write("/first.sst", &|writer| {
            writer.put("aa1", "").unwrap();
            writer.delete_range("ab", "ac2").unwrap();
        }),
        write("/second.sst", &|writer| writer.put("ac3", "").unwrap()),
    ];
    db.ingest_external_files(db.default_column_family(), &files, &IngestOptions::default()).unwrap();
    let mut iter = iter_with(&db, |options| options.prefix_same_as_start = true);
    assert_eq!(counted.count(|| assert_eq!(from(&mut iter, "ac1"), "ac3")).1, 1);
}

#[test]
fn from_an_end_an_iterator_is_kept_to_the_first_prefix_that_it_meets() {
    let counted = Counted::new(slice_transform::fixed_prefix(2));
    let db = counted.open();
    one_table_each(&db);
    let mut iter = iter_with(&db, |options| options.prefix_same_as_start = true);
    let more = iter.seek_to_first().unwrap();
    assert_eq!(rest(&mut iter, more), "aa1 aa2 aa3");
    let more = iter.seek_to_last().unwrap();
    assert_eq!(rest_back(&mut iter, more), "zz3 zz2 zz1");
    // With bounds the ends are seeks, which have prefixes of their own.
    let options = ReadOptions { prefix_same_as_start: true, ..bounded("ab2", "ba2") };
    let mut iter = db.iter_cf(&options, db.default_column_family()).unwrap();
    let more = iter.seek_to_first().unwrap();
    assert_eq!(rest(&mut iter, more), "ab2 ab3");
    let more = iter.seek_to_last().unwrap();
    assert_eq!(rest_back(&mut iter, more), "ba1");
}

/// An iterator that jumps over many versions, or turns around, must not lose the tables that a seek to where it
/// then stands would leave out.
#[test]
fn from_an_end_nothing_is_left_out_however_the_iterator_gets_on() {
    let counted = Counted::new(slice_transform::fixed_prefix(2));
    let db = counted.open();
    one_table_each(&db);
    let _held: Vec<_> = (0..40)
        .map(|_| {
            put_three(&db, "ab");
            db.snapshot()
        })
        .collect();
    let whole = "aa1 aa2 aa3 ab1 ab2 ab3 ac1 ac2 ac3 ba1 ba2 ba3 bb1 bb2 bb3 zz1 zz2 zz3";
    let reversed = whole.split(' ').rev().collect::<Vec<_>>().join(" ");
    for _ in 0..2 {
        let mut iter = db.iter().unwrap();
        let more = iter.seek_to_first().unwrap();
        assert_eq!(rest(&mut iter, more), whole);
        let more = iter.seek_to_last().unwrap();
        assert_eq!(rest_back(&mut iter, more), reversed);
        iter.seek_to_first().unwrap();
        (0..4).for_each(|_| assert!(iter.next().unwrap()));
        let more = iter.prev().unwrap();
        assert_eq!(rest_back(&mut iter, more), "ab1 aa3 aa2 aa1");
        iter.seek_to_first().unwrap();
        (0..4).for_each(|_| assert!(iter.next().unwrap()));
        assert!(iter.prev().unwrap());
        let more = iter.next().unwrap();
        assert_eq!(rest(&mut iter, more), whole[whole.find("ab2").unwrap()..]);
        db.flush().unwrap();
    }
}

#[test]
fn a_table_file_is_read_by_the_same_rules() {
    let counted = Counted::new(slice_transform::fixed_prefix(2));
    let db = counted.open();
    ["aa1", "ac1"].iter().for_each(|key| db.put(key, "").unwrap());
    db.flush().unwrap();
    let file = ironstone::SstFileReader::open(&counted.options, counted.disk.newest(".sst")).unwrap();
    let counts = counted.count(|| assert!(!file.iter(&ReadOptions::default()).seek("ab").unwrap()));
    assert_eq!(counts, (1, 1, 0));
    let total = ReadOptions { total_order_seek: true, ..ReadOptions::default() };
    assert!(file.iter(&total).seek("ab").unwrap());
}

#[test]
fn a_seek_asks_the_filter_of_a_memtable_too() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.prefix_extractor = Some(slice_transform::fixed_prefix(2));
    options.cf.memtable_prefix_bloom_size_ratio = 0.1;
    let db = disk.open_with(&options);
    ["aa1", "ac1"].iter().for_each(|key| db.put(key, "").unwrap());
    let auto = |upper: &str| {
        let options = ReadOptions { auto_prefix_mode: true, ..bounded("", upper) };
        let mut iter = db.iter_cf(&options, db.default_column_family()).unwrap();
        from(&mut iter, "ab")
    };
    for when in ["in the memtable", "in an immutable one"] {
        assert!(!db.iter().unwrap().seek("ab").unwrap(), "{when}");
        assert!(!db.iter().unwrap().seek_for_prev("ab").unwrap(), "{when}");
        assert!(db.iter().unwrap().seek("ac").unwrap(), "{when}");
        let mut total = iter_with(&db, |options| options.total_order_seek = true);
        assert_eq!(from(&mut total, "ab"), "ac1", "{when}");
        assert_eq!(
            (auto("ab9"), auto("ac9"), auto("")),
            (String::new(), "ac1".into(), "ac1".into()),
            "{when}"
        );
        let mut iter = db.iter().unwrap();
        let more = iter.seek_to_first().unwrap();
        assert_eq!(rest(&mut iter, more), "aa1 ac1", "{when}");
        disk.faults.arm();
        disk.faults.add(FaultRule::error(FaultError::Io).on(&[OpKind::Create]).path(".sst").forever());
        db.flush().unwrap_err();
        assert_eq!(db.int_property("rocksdb.num-immutable-mem-table"), Some(1));
    }
}

#[test]
fn a_filter_of_whole_keys_changes_no_read_and_takes_of_the_write_buffer() {
    let size_with = |ratio: f64, whole_keys: bool| {
        let disk = Disk::new();
        let mut options = disk.options();
        options.cf.write_buffer_size = 1 << 20;
        options.cf.memtable_prefix_bloom_size_ratio = ratio;
        options.cf.memtable_whole_key_filtering = whole_keys;
        let db = disk.open_with(&options);
        (0..100).for_each(|number| db.put(format!("key{number}"), "").unwrap());
        db.delete_range("key3", "key4").unwrap();
        let keys: Vec<String> = (0..200).map(|number| format!("key{number}")).collect();
        for (key, found) in keys.iter().zip(db.multi_get(&keys)) {
            let number: u32 = key[3..].parse().unwrap();
            let is_there = number < 100 && !key.starts_with("key3");
            assert_eq!(db.get(key).unwrap().is_some(), is_there, "{key}");
            assert_eq!(found.unwrap().is_some(), is_there, "{key}");
        }
        db.int_property("rocksdb.cur-size-active-mem-table").unwrap()
    };
    let plain = size_with(0.0, true);
    assert_eq!(size_with(0.1, false), plain, "without an extractor there is nothing to hold");
    assert_eq!(size_with(0.125, true), plain + (1 << 17));
    assert_eq!(size_with(7.0, true), plain + (1 << 18), "a quarter at most");
}

struct AnyCase;

impl Comparator for AnyCase {
    fn name(&self) -> &str {
        "test.AnyCase"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase())
    }
}

#[test]
fn where_keys_of_different_bytes_are_equal_no_filter_is_asked() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.comparator = UserComparator::Custom(Arc::new(AnyCase));
    options.cf.prefix_extractor = Some(slice_transform::fixed_prefix(2));
    options.cf.memtable_prefix_bloom_size_ratio = 0.1;
    options.cf.memtable_whole_key_filtering = true;
    let db = disk.open_with(&options);
    db.put("Iron", "").unwrap();
    for _ in 0..2 {
        assert!(db.get("iRON").unwrap().is_some());
        assert!(db.iter().unwrap().seek("ir").unwrap());
        db.flush().unwrap();
    }
}

#[test]
fn turning_forward_looks_for_the_prefix_of_where_it_stands() {
    let of = Counted::new(slice_transform::fixed_prefix(1));
    let db = of.open();
    // Two tables of one level; the first reaches over keys of a prefix that it has not.
    let write = |name: &str, fill: &dyn Fn(&mut SstFileWriter)| {
        let mut writer = SstFileWriter::new(&of.options);
        writer.open(name).unwrap();
        fill(&mut writer);
        writer.finish().unwrap();
    };
    write("/first.sst", &|writer| {
        writer.put("a1", "").unwrap();
        writer.delete_range("a5", "s4").unwrap();
    });
    write("/second.sst", &|writer| writer.put("s5", "").unwrap());
    let files = ["/first.sst", "/second.sst"];
    db.ingest_external_files(db.default_column_family(), &files, &IngestOptions::default()).unwrap();
    db.put("b9", "").unwrap();
    db.put("s1", "").unwrap();
    for same in [false, true] {
        let options = ReadOptions { prefix_same_as_start: same, ..ReadOptions::default() };
        let mut iter = db.iter_cf(&options, db.default_column_family()).unwrap();
        assert!(iter.seek_for_prev("s2").unwrap());
        assert_eq!(here(&iter), "s1=");
        // Behind the scenes it stands on b9 by now, whose prefix no table has.
        assert!(iter.next().unwrap(), "same prefix only: {same}");
        assert_eq!(here(&iter), "s5=");
    }
}
