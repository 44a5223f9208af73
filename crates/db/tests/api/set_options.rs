//! Options that change while the database is open.

use crate::disk::{DIR, Disk, all, forward, fresh, refused, rewrite_all};
use ironstone::options::{LoadOptions, OptionsFile};
use ironstone::vfs::fault::{FaultError, FaultRule};
use ironstone::vfs::mem::CrashPolicy;
use ironstone::vfs::{Clock, OpKind, SystemClock};
use ironstone::{
    Code, CompactRangeOptions, CompactionFilter, Db, FilterDecision, FlushOptions, ReadOptions,
    slice_transform,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn number(db: &Db, property: &str) -> u64 {
    db.int_property(&format!("rocksdb.{property}")).unwrap()
}

/// So many tables on level 0.
fn flush_tables(db: &Db, count: usize) {
    for at in 0..count {
        db.put(format!("k{at:03}"), vec![b'v'; 500]).unwrap();
        db.flush().unwrap();
    }
}

#[test]
fn what_cannot_change_is_refused_and_nothing_has_changed() {
    let (_disk, db) = fresh();
    let before = db.column_family_options(db.default_column_family()).to_string();
    for (changes, says) in [
        (&[][..], "no options"),
        (&[("write_buffer_size", "1M"), ("no_such_option", "1")], "no_such_option"),
        (&[("write_buffer_size", "1M"), ("num_levels", "4")], "num_levels cannot change"),
        (&[("write_buffer_size", "lots")], "write_buffer_size=lots"),
        (&[("write_buffer_size", "1M"), ("target_file_size_base", "0")], "target_file_size_base"),
        (&[("block_based_table_factory", "{index_type=kHashSearch}")], "prefix_extractor"),
    ] {
        refused(db.set_options(changes), Code::InvalidArgument, says);
    }
    refused(db.set_options(&[("enable_blob_files", "true")]), Code::NotSupported, "blob files");
    assert_eq!(db.column_family_options(db.default_column_family()).to_string(), before);

    let before = db.options().to_string();
    for (changes, says) in [
        (&[][..], "no options"),
        (&[("max_background_jobs", "3"), ("wal_dir", "/elsewhere")], "wal_dir cannot change"),
        (&[("max_background_jobs", "3"), ("write_buffer_size", "1M")], "no option write_buffer_size"),
    ] {
        refused(db.set_db_options(changes), Code::InvalidArgument, says);
    }
    assert_eq!(db.options().to_string(), before);
}

#[test]
fn who_may_not_change_options() {
    let (disk, db) = fresh();
    let cf = db.create_column_family("gone", &disk.options().cf).unwrap();
    db.drop_column_family(&cf).unwrap();
    let change = [("write_buffer_size", "1M")];
    refused(db.set_options_cf(&cf, &change), Code::ColumnFamilyDropped, "gone");
    let other = fresh().1;
    refused(db.set_options_cf(other.default_column_family(), &change), Code::InvalidArgument, "another");
    db.close().unwrap();
    let reader = disk.open_read_only(&disk.options(), &[]).unwrap();
    refused(reader.set_options(&change), Code::NotSupported, "reading only");
    refused(reader.set_db_options(&[("max_background_jobs", "3")]), Code::NotSupported, "reading only");
}

#[test]
fn changes_are_in_the_options_file_and_outlive_the_power() {
    let (disk, db) = fresh();
    let cf = db.create_column_family("other", &disk.options().cf).unwrap();
    db.set_options_cf(&cf, &[("write_buffer_size", "1M"), ("compression", "kZSTD")]).unwrap();
    db.set_options_cf(&cf, &[("block_based_table_factory", "{block_size=16K}")]).unwrap();
    db.set_db_options(&[("max_background_jobs", "7")]).unwrap();
    let load =
        |disk: &Disk| OptionsFile::load_latest(&disk.fs, Path::new(DIR), &LoadOptions::default()).unwrap();
    let file = load(&disk.crash(CrashPolicy::DropUnsynced));
    assert_eq!(file.db.max_background_jobs, 7);
    let other = file.column_family("other").unwrap();
    assert_eq!((other.write_buffer_size, other.table.block_size), (1 << 20, 16 << 10));
    assert_eq!(other.get("compression").as_deref(), Some("kZSTD"));
    assert_eq!(file.column_family("default").unwrap().write_buffer_size, 64 << 20);
    assert_eq!(db.options().max_background_jobs, 7);
    assert_eq!(db.column_family_options(&cf).table.block_size, 16 << 10);
}

#[test]
fn compactions_start_when_they_are_let_and_triggers_count_at_once() {
    let (_disk, db) = fresh();
    flush_tables(&db, 6);
    db.wait_for_compact().unwrap();
    assert_eq!(db.property("rocksdb.num-files-at-level0").as_deref(), Some("6"), "they were off");
    db.set_options(&[("level0_file_num_compaction_trigger", "8"), ("disable_auto_compactions", "false")])
        .unwrap();
    db.wait_for_compact().unwrap();
    assert_eq!(db.property("rocksdb.num-files-at-level0").as_deref(), Some("6"), "there are too few");
    db.set_options(&[("level0_file_num_compaction_trigger", "3")]).unwrap();
    db.wait_for_compact().unwrap();
    assert_eq!(db.property("rocksdb.num-files-at-level0").as_deref(), Some("0"));
    // And stop writers at once.
    db.set_options(&[("disable_auto_compactions", "true")]).unwrap();
    flush_tables(&db, 2);
    assert_eq!(number(&db, "is-write-stopped"), 0);
    let low = [("level0_slowdown_writes_trigger", "2"), ("level0_stop_writes_trigger", "2")];
    db.set_options(&[low[0], low[1], ("disable_auto_compactions", "false")]).unwrap();
    db.wait_for_compact().unwrap();
    assert_eq!(number(&db, "is-write-stopped"), 0, "and let them go on");
}

#[test]
fn a_smaller_write_buffer_closes_the_memtable_that_is_larger() {
    let (disk, db) = fresh();
    for at in 0..100 {
        db.put(format!("k{at:03}"), vec![b'v'; 1000]).unwrap();
    }
    db.set_options(&[("write_buffer_size", "64K")]).unwrap();
    db.put("next", "v").unwrap();
    db.put("the one after", "v").unwrap();
    disk.wait_until("it is flushed", || number(&db, "num-entries-active-mem-table") < 100);
    // And the ones after it are as small.
    db.wait_for_compact().unwrap();
    for at in 0..200 {
        db.put(format!("k{at:03}"), vec![b'w'; 1000]).unwrap();
    }
    assert!(number(&db, "cur-size-active-mem-table") < 128 << 10);
    assert!(number(&db, "total-sst-files-size") > 0);
}

#[test]
fn tables_are_written_by_the_new_options_and_old_ones_stay_readable() {
    let (_disk, db) = fresh();
    flush_tables(&db, 2);
    let describe = || db.property("rocksdb.aggregated-table-properties").unwrap();
    assert!(describe().contains("filter block size=0;"));
    db.set_options(&[
        ("block_based_table_factory", "{filter_policy=bloomfilter:10;format_version=3;block_size=100}"),
        ("compression", "kNoCompression"),
    ])
    .unwrap();
    db.put("new", "v").unwrap();
    db.flush().unwrap();
    assert!(!describe().contains("filter block size=0;"), "{}", describe());
    assert_eq!(all(&db).len(), "k000=".len() * 2 + 1000 + 1 + 1 + "new=v".len());
}

#[test]
fn another_prefix_extractor_changes_no_answer() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.prefix_extractor = Some(slice_transform::fixed_prefix(2));
    options.cf.memtable_prefix_bloom_size_ratio = 0.1;
    options.cf.table.filter_policy = Some(ironstone::FilterPolicy::bloom(10.0));
    options.cf.table.whole_key_filtering = false;
    let db = disk.open_with(&options);
    let fill = |flush: bool| {
        for key in ["aa1", "aa2", "ab1", "b", "bb1"] {
            db.put(key, "v").unwrap();
        }
        if flush {
            db.flush().unwrap();
        }
    };
    fill(true);
    fill(false);
    for extractor in ["rocksdb.FixedPrefix.1", "rocksdb.CappedPrefix.3", "nullptr", "rocksdb.FixedPrefix.2"] {
        let mut before = db.iter().unwrap();
        db.set_options(&[("prefix_extractor", extractor)]).unwrap();
        let total = ReadOptions { total_order_seek: true, ..ReadOptions::default() };
        for read in [ReadOptions::default(), total] {
            let mut after = db.iter_cf(&read, db.default_column_family()).unwrap();
            for key in ["aa1", "aa2", "ab1", "b", "bb1"] {
                for iter in [&mut before, &mut after] {
                    assert!(iter.seek(key).unwrap(), "{key} with {extractor}");
                    assert_eq!(iter.key(), Some(key.as_bytes()));
                }
                assert_eq!(db.get(key).unwrap().as_deref(), Some(&b"v"[..]));
            }
        }
        fill(extractor.ends_with('3'));
    }
}

/// Counts the compactions that are in it at once, and holds them for a moment.
#[derive(Default)]
struct Crowd {
    inside: AtomicUsize,
    most: AtomicUsize,
}

impl CompactionFilter for Crowd {
    fn name(&self) -> &str {
        "test.Crowd"
    }
    fn filter(&self, _level: usize, _key: &[u8], _value: &[u8]) -> FilterDecision {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        SystemClock::new().sleep(Duration::from_millis(20));
        self.inside.fetch_sub(1, Ordering::SeqCst);
        FilterDecision::Keep
    }
}

#[test]
fn threads_come_and_stop_working_with_the_number_of_jobs() {
    let disk = Disk::new();
    let crowd = Arc::new(Crowd::default());
    let mut options = disk.options();
    options.db.create_missing_column_families = true;
    options.db.max_background_jobs = 2;
    options.cf.compaction_filter = Some(crowd.clone());
    // Levels 0 are full, and compactions press.
    options.cf.level0_file_num_compaction_trigger = 2;
    options.cf.level0_slowdown_writes_trigger = 3;
    let names = ["a", "b", "c"];
    let db = disk.open_families(&options, &names).unwrap();
    let rounds = |jobs: &str| {
        db.set_db_options(&[("max_background_jobs", jobs)]).unwrap();
        crowd.most.store(0, Ordering::SeqCst);
        for name in names {
            let cf = db.column_family(name).unwrap();
            db.set_options_cf(&cf, &[("disable_auto_compactions", "true")]).unwrap();
            for at in 0..4 {
                db.put_cf(&Default::default(), &cf, format!("k{at}"), "v").unwrap();
                db.put_cf(&Default::default(), &cf, "k", "v").unwrap();
                db.flush_cf(&FlushOptions::default(), &cf).unwrap();
            }
        }
        for name in names {
            let cf = db.column_family(name).unwrap();
            db.set_options_cf(&cf, &[("disable_auto_compactions", "false")]).unwrap();
        }
        db.wait_for_compact().unwrap();
        crowd.most.load(Ordering::SeqCst)
    };
    assert_eq!(rounds("2"), 1, "one thread flushes and one compacts");
    assert!(rounds("8") > 1, "several compact");
    assert_eq!(rounds("2"), 1, "the others take no more jobs");
}

fn open_tables(db: &Db) -> usize {
    let stats = db.property("rocksdb.dbstats").unwrap();
    let line = stats.lines().find_map(|line| line.strip_prefix("Open tables: ")).unwrap().to_owned();
    line.parse().unwrap()
}

#[test]
fn a_bound_on_open_tables_holds_from_now_on() {
    let (_disk, db) = fresh();
    flush_tables(&db, 50);
    let open = || open_tables(&db);
    let everything = all(&db);
    assert_eq!(open(), 50);
    let memory = number(&db, "estimate-table-readers-mem");
    db.set_db_options(&[("max_open_files", "20")]).unwrap();
    assert!(open() <= 20, "{}", open());
    assert_eq!(all(&db), everything);
    assert!(open() <= 20, "{}", open());
    let bounded = number(&db, "estimate-table-readers-mem");
    assert!(bounded > 0 && bounded <= memory * 20 / 50, "{bounded} bytes of {memory}");
    db.set_db_options(&[("max_open_files", "-1")]).unwrap();
    assert_eq!(all(&db), everything);
    assert_eq!(open(), 50);
    db.set_db_options(&[("max_open_files", "30")]).unwrap();
    assert!(open() <= 30, "{}", open());
}

/// 50 tables, one of them on the last level, opened by a compaction that then failed.
fn left_open_by_a_compaction() -> (Disk, Db) {
    let (disk, db) = fresh();
    for at in 0..50 {
        ["a", "z"].iter().for_each(|key| db.put(key, at.to_string()).unwrap());
        db.flush().unwrap();
        if at == 0 {
            rewrite_all(&db);
        }
    }
    assert_eq!((open_tables(&db), number(&db, "estimate-table-readers-mem")), (0, 0));
    disk.faults.arm();
    let failing = FaultRule::error(FaultError::Io).on(&[OpKind::Read]).path(".sst");
    let failing = disk.faults.add(failing.after(50)); // The first is that of a block, after the ends of all.
    let range = CompactRangeOptions::default();
    assert!(db.compact_range(&range, db.default_column_family(), None, None).is_err());
    assert!(failing.hits() > 0);
    disk.faults.clear();
    assert_eq!(open_tables(&db), 50);
    (disk, db)
}

#[test]
fn a_bound_holds_for_tables_that_a_compaction_opened_and_left() {
    let (_disk, db) = left_open_by_a_compaction();
    let memory = number(&db, "estimate-table-readers-mem");
    assert!(memory > 0);
    let everything = all(&db);
    assert_eq!(open_tables(&db), 100, "readers have their own");
    assert!(number(&db, "estimate-table-readers-mem") > memory);
    db.set_db_options(&[("max_open_files", "20")]).unwrap();
    assert!(open_tables(&db) <= 20, "{}", open_tables(&db));
    assert_eq!(all(&db), everything);
    rewrite_all(&db);
    assert_eq!(all(&db), everything);
    assert_eq!(open_tables(&db), 1);
}

#[test]
fn tables_of_views_from_before_a_bound_do_not_count() {
    for bounded in [true, false] {
        let (_disk, db) = left_open_by_a_compaction();
        let mut before = db.iter().unwrap();
        db.set_db_options(&[("max_open_files", "20")]).unwrap();
        assert_eq!(open_tables(&db), 0);
        if !bounded {
            db.set_db_options(&[("max_open_files", "-1")]).unwrap();
        }
        before.seek_to_first().unwrap(); // It opens what is below level 0 no sooner than this.
        assert_eq!(before.key(), Some(&b"a"[..]));
        drop(before);
        assert_eq!(open_tables(&db), 0, "what it opened is gone with it");
        assert_eq!(all(&db), "a=49 z=49");
        assert_eq!(open_tables(&db), if bounded { 20 } else { 50 });
    }
}

#[test]
fn who_reads_when_a_bound_on_open_tables_comes_reads_on() {
    let (disk, db) = fresh();
    flush_tables(&db, 50);
    let everything = all(&db);
    let mut iter = db.iter().unwrap();
    iter.seek_to_first().unwrap();
    db.set_db_options(&[("max_open_files", "20")]).unwrap();
    rewrite_all(&db);
    assert_eq!(forward(iter), everything, "of tables that are gone");
    assert_eq!(all(&db), everything);
    // The tables that were open without a bound go with their last reader.
    disk.wait_until_purged(&db);
    assert_eq!(open_tables(&db), db.live_files().len());
}

#[test]
fn a_bound_on_wals_makes_memtables_flush() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.create_missing_column_families = true;
    let db = disk.open_families(&options, &["quiet"]).unwrap();
    let quiet = db.column_family("quiet").unwrap();
    db.put_cf(&Default::default(), &quiet, "k", "v").unwrap();
    let fill = || (0..100).for_each(|at| db.put(format!("k{at}"), vec![b'v'; 1000]).unwrap());
    fill();
    assert_eq!(db.int_property_cf(&quiet, "rocksdb.num-entries-active-mem-table"), Some(1));
    db.set_db_options(&[("max_total_wal_size", "20000")]).unwrap();
    fill();
    db.wait_for_compact().unwrap();
    assert_eq!(db.int_property_cf(&quiet, "rocksdb.num-entries-active-mem-table"), Some(0));
}
