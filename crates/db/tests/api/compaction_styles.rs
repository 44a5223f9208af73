//! Universal and FIFO compaction, compaction filters, partitioners, and databases whose entries expire.

use crate::disk::{DIR, Disk, all, get, refused, shape, table_entries};
use ironstone::options::{LoadOptions, OptionsFile};
use ironstone::vfs::{Clock, FileSystem, ManualClock};
use ironstone::{
    Code, CompactRangeOptions, CompactionFilter, CompactionFilterFactory, CompactionStyle, Db, ExpiredReads,
    FilterContext, FilterDecision, FlushOptions, GenericRateLimiter, IoPriority, Options, PartitionRequest,
    PartitionerContext, ReadOptions, SstPartitioner, SstPartitionerFactory, SstPartitionerFixedPrefix,
    StackableDb, TableFileCreationReason, TableFormat, TtlColumnFamily, TtlDb, WriteBatch, WriteOptions,
};
use ironstone_base::sync::{Arc, Mutex};
use std::path::Path;

const DAY: u64 = 24 * 60 * 60;
/// In 2026.
const NOW: u64 = 1_780_000_000;

fn with_style(disk: &Disk, style: CompactionStyle) -> Options {
    let mut options = disk.options();
    options.cf.compaction_style = style;
    options.cf.disable_auto_compactions = false;
    options
}

fn put_and_flush(db: &Db, keys: &[&str], value: &str) {
    keys.iter().for_each(|key| db.put(key, value).unwrap());
    db.flush().unwrap();
}

fn compact(db: &Db) {
    db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None).unwrap();
}

fn manual_clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(NOW * 1_000_000))
}

fn pass(clock: &ManualClock, seconds: u64) {
    clock.set_micros(clock.now_micros() + seconds * 1_000_000);
}

// ---- universal ----

#[test]
fn universal_compaction_merges_runs_and_keeps_every_read() {
    let disk = Disk::new();
    let options = with_style(&disk, CompactionStyle::Universal);
    let db = disk.open_with(&options);
    for round in 0..40 {
        let keys = ["a", "b", &format!("k{round:02}")];
        put_and_flush(&db, &keys, &format!("{round}"));
        db.wait_for_compact().unwrap();
        let shape = shape(&db);
        let runs =
            shape.first().copied().unwrap_or(0) + shape.iter().skip(1).filter(|files| **files > 0).count();
        assert!(runs <= 4, "{shape:?} after round {round}");
    }
    assert_eq!((get(&db, "a"), get(&db, "b")), ("39".into(), "39".into()));
    assert_eq!(db.iter().unwrap().entries().count(), 42);
    drop(db);
    let db = disk.open_with(&options);
    assert_eq!(db.iter().unwrap().entries().count(), 42);
    compact(&db);
    assert_eq!(shape(&db), [0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(table_entries(&db), 42);
}

#[test]
fn universal_compaction_with_one_level_stays_in_level_0() {
    let disk = Disk::new();
    let mut options = with_style(&disk, CompactionStyle::Universal);
    options.cf.num_levels = 1;
    let db = disk.open_with(&options);
    for round in 0..20 {
        put_and_flush(&db, &["a", &format!("k{round:02}")], &format!("{round}"));
        db.wait_for_compact().unwrap();
        assert!(shape(&db)[0] <= 4);
    }
    db.delete("a").unwrap();
    compact(&db);
    assert_eq!((shape(&db), table_entries(&db)), (vec![1], 20));
}

#[test]
fn all_sorted_runs_count_for_write_stalls_and_writers_that_are_stopped_go_on() {
    let disk = Disk::new();
    let mut options = with_style(&disk, CompactionStyle::Universal);
    options.cf.level0_file_num_compaction_trigger = 2;
    options.cf.level0_slowdown_writes_trigger = 3;
    options.cf.level0_stop_writes_trigger = 4;
    let universal = &mut options.cf.compaction_options_universal;
    (universal.min_merge_width, universal.max_merge_width) = (3, 2); // Nothing is due.
    universal.max_size_amplification_percent = u32::MAX;
    let asked = Asked::default();
    options.cf.compaction_filter = Some(Arc::new(ByValue(Arc::clone(&asked))));
    let db = disk.open_with(&options);
    put_and_flush(&db, &["a", "b"], "1");
    compact(&db);
    let compactions_wait = asked.lock();
    for value in ["2", "3", "4"] {
        assert_eq!(db.int_property("rocksdb.is-write-stopped"), Some(0));
        db.put("a", value).unwrap();
        let at_once = FlushOptions { allow_write_stall: true, ..FlushOptions::default() };
        db.flush_cf(&at_once, db.default_column_family()).unwrap();
    }
    assert_eq!(shape(&db), [3, 0, 0, 0, 0, 0, 1]);
    assert_eq!(db.int_property("rocksdb.is-write-stopped"), Some(1));
    drop(compactions_wait);
    for value in 5..30 {
        db.put("a", value.to_string()).unwrap(); // Waits until there is room.
        db.flush().unwrap();
    }
    assert_eq!(get(&db, "a"), "29");
    let log = String::from_utf8(disk.fs.read_all(&disk.newest_in_db("LOG")).unwrap()).unwrap();
    let (_, after) =
        log.split_once("[WARN] [default] writes are stopped by l0-file-count-limit: 4 sorted runs").unwrap();
    assert!(after.contains("[default] writes go on"), "{log}");
    compact(&db);
    assert_eq!(db.int_property("rocksdb.is-write-stopped"), Some(0));
    assert_eq!(db.int_property("rocksdb.estimate-pending-compaction-bytes"), Some(0));
}

/// With as many sorted runs as writers are slowed down for, and none that is to be merged, a flush would wait for ever.
#[test]
fn a_flush_does_not_wait_for_room_that_nobody_makes() {
    for style in [CompactionStyle::Universal, CompactionStyle::Fifo] {
        let disk = Disk::new();
        let mut options = with_style(&disk, style);
        options.cf.level0_file_num_compaction_trigger = 1;
        options.cf.level0_slowdown_writes_trigger = 2;
        let universal = &mut options.cf.compaction_options_universal;
        (universal.min_merge_width, universal.max_size_amplification_percent) = (100, u32::MAX);
        let db = disk.open_with(&options);
        for value in ["1", "2", "3"] {
            put_and_flush(&db, &["a", "b"], value);
        }
        assert_eq!(shape(&db), [3]);
        db.put("a", "4").unwrap();
        let together = FlushOptions { force_atomic_flush: true, ..FlushOptions::default() };
        db.flush_cfs(&together, &[db.default_column_family()]).unwrap();
        assert_eq!(shape(&db), [4]);
    }
}

#[test]
fn contradictions_of_universal_options_are_refused() {
    let disk = Disk::new();
    let mut options = with_style(&disk, CompactionStyle::Universal);
    options.cf.compaction_options_universal.max_read_amp = 2;
    refused(disk.try_open(&options), Code::NotSupported, "max_read_amp");
}

#[test]
fn universal_compaction_rewrites_what_is_thirty_days_old() {
    let clock = manual_clock();
    let disk = Disk::with_clock(&clock);
    let db = disk.open_with(&with_style(&disk, CompactionStyle::Universal));
    put_and_flush(&db, &["a"], "1");
    let before = db.live_files()[0].number;
    pass(&clock, 31 * DAY);
    put_and_flush(&db, &["b"], "2");
    db.wait_for_compact().unwrap();
    // The old table alone, if its time was noticed before the flush, or both.
    assert_eq!(shape(&db)[1..], [0, 0, 0, 0, 0, 1]);
    assert!(db.live_files().iter().all(|file| file.number != before));
    assert_eq!(all(&db), "a=1 b=2");
}

// ---- FIFO ----

#[test]
fn fifo_compaction_drops_the_oldest_tables_by_size() {
    let disk = Disk::new();
    let mut options = with_style(&disk, CompactionStyle::Fifo);
    options.cf.compaction_options_fifo.max_table_files_size = 10_000;
    let db = disk.open_with(&options);
    for round in 0..30 {
        put_and_flush(&db, &[&format!("k{round:02}")], "x");
        db.wait_for_compact().unwrap();
        let bytes: u64 = db.live_files().iter().map(|file| file.size).sum();
        assert!(bytes <= 10_000, "{bytes}");
    }
    assert_eq!((get(&db, "k00"), get(&db, "k29")), ("-".into(), "x".into()));
    assert_eq!(shape(&db).len(), 1, "all in level 0");
    let kept = all(&db);
    drop(db);
    assert_eq!(all(&disk.open_with(&options)), kept);
}

#[test]
fn fifo_compaction_drops_tables_whose_data_is_too_old() {
    let clock = manual_clock();
    let disk = Disk::with_clock(&clock);
    let mut options = with_style(&disk, CompactionStyle::Fifo);
    options.cf.ttl = 100;
    let db = disk.open_with(&options);
    put_and_flush(&db, &["a"], "1");
    pass(&clock, 60);
    put_and_flush(&db, &["b"], "2");
    pass(&clock, 60);
    put_and_flush(&db, &["c"], "3");
    db.wait_for_compact().unwrap();
    assert_eq!(all(&db), "b=2 c=3");
    pass(&clock, 1000);
    compact(&db);
    assert_eq!(all(&db), "");
}

#[test]
fn by_default_tables_grow_too_old_only_if_they_are_block_based() {
    for format in [TableFormat::BlockBased, TableFormat::Plain, TableFormat::Cuckoo] {
        for style in [CompactionStyle::Fifo, CompactionStyle::Level, CompactionStyle::Universal] {
            let clock = manual_clock();
            let disk = Disk::with_clock(&clock);
            let mut options = with_style(&disk, style);
            options.cf.table_format = format;
            options.cf.plain_table.hash_table_ratio = 0.0;
            let db = disk.open_with(&options);
            put_and_flush(&db, &["a"], "1");
            pass(&clock, 40 * DAY);
            put_and_flush(&db, &["b"], "2");
            db.wait_for_compact().unwrap();
            let goes = format == TableFormat::BlockBased && style == CompactionStyle::Fifo;
            assert_eq!(all(&db), if goes { "b=2" } else { "a=1 b=2" }, "{format:?}, {style:?}");
            let ages = db.column_family_options(db.default_column_family());
            let ages = (ages.ttl, ages.periodic_compaction_seconds);
            let limits = match (format, style) {
                (TableFormat::BlockBased, CompactionStyle::Universal) => (30 * DAY, 30 * DAY),
                (TableFormat::BlockBased, _) => (30 * DAY, 0),
                _ => (0, 0),
            };
            assert_eq!(ages, limits, "{format:?}, {style:?}");
        }
    }
}

#[test]
fn fifo_compaction_may_merge_small_tables() {
    let disk = Disk::new();
    let mut options = with_style(&disk, CompactionStyle::Fifo);
    options.cf.compaction_options_fifo.allow_compaction = true;
    let db = disk.open_with(&options);
    for round in 0..10 {
        put_and_flush(&db, &["a", &format!("k{round}")], &format!("{round}"));
    }
    db.wait_for_compact().unwrap();
    assert!(shape(&db)[0] < 5, "{:?}", shape(&db));
    assert_eq!((get(&db, "a"), db.iter().unwrap().entries().count()), ("9".into(), 11));
}

#[test]
fn tables_that_grow_old_are_noticed_without_a_write() {
    let clock = manual_clock();
    let disk = Disk::with_clock(&clock);
    let mut options = with_style(&disk, CompactionStyle::Fifo);
    options.cf.ttl = 100;
    options.db.max_compaction_trigger_wakeup_seconds = 1;
    let db = disk.open_with(&options);
    put_and_flush(&db, &["a"], "1");
    pass(&clock, 1000);
    disk.wait_until("the table goes", || all(&db).is_empty());
}

/// A database whose tables may become five days old, with a table of now, at 20:26:40.
fn with_a_table_of_five_days(disk: &Disk, style: CompactionStyle, offpeak: &str) -> Db {
    let mut options = with_style(disk, style);
    options.cf.level_compaction_dynamic_level_bytes = false;
    (options.cf.ttl, options.cf.periodic_compaction_seconds) = (0, 5 * DAY);
    options.db.max_compaction_trigger_wakeup_seconds = 1;
    options.db.daily_offpeak_time_utc = offpeak.to_owned();
    let db = disk.open_with(&options);
    put_and_flush(&db, &["a"], "1");
    db
}

fn look_for_compactions(db: &Db) {
    db.set_options(&[("disable_auto_compactions", "false")]).unwrap();
    db.wait_for_compact().unwrap();
}

fn creation_time_of_the_table(db: &Db) -> u64 {
    let properties = db.properties_of_all_tables(db.default_column_family()).unwrap();
    let times: Vec<_> = properties.values().map(|table| table.file_creation_time).collect();
    assert_eq!(times.len(), 1);
    times[0]
}

#[test]
fn in_off_peak_hours_tables_go_that_would_be_too_old_before_the_next_ones() {
    for style in [CompactionStyle::Level, CompactionStyle::Universal] {
        let clock = manual_clock();
        let disk = Disk::with_clock(&clock);
        let db = with_a_table_of_five_days(&disk, style, "20:27-20:30");
        pass(&clock, 3 * DAY + 60);
        look_for_compactions(&db);
        assert_eq!(creation_time_of_the_table(&db), NOW, "four days and a day are not more than five");
        pass(&clock, DAY - 60);
        look_for_compactions(&db);
        assert_eq!(creation_time_of_the_table(&db), NOW, "it is 20:26:40 again");
        pass(&clock, 20);
        disk.wait_until("the table is rewritten", || creation_time_of_the_table(&db) == NOW + 4 * DAY + 20);
        pass(&clock, 60);
        db.wait_for_compact().unwrap();
        assert_eq!(creation_time_of_the_table(&db), NOW + 4 * DAY + 20, "once");
    }
}

#[test]
fn off_peak_hours_change_while_the_database_is_open() {
    let clock = manual_clock();
    let disk = Disk::with_clock(&clock);
    let db = with_a_table_of_five_days(&disk, CompactionStyle::Level, "");
    pass(&clock, 4 * DAY + 60);
    db.set_db_options(&[("daily_offpeak_time_utc", "20:27-21:00")]).unwrap();
    disk.wait_until("the table is rewritten", || creation_time_of_the_table(&db) == NOW + 4 * DAY + 60);
    drop(db);
    let file = OptionsFile::load_latest(&disk.fs, Path::new(DIR), &LoadOptions::default()).unwrap();
    assert_eq!(file.db.daily_offpeak_time_utc, "20:27-21:00");
}

#[test]
fn off_peak_hours_are_two_times_of_the_day() {
    let disk = Disk::new();
    let mut options = disk.options();
    for text in ["04:30", "4-7", "24:00-01:00", "04:30-04:30", "04:30-07:60"] {
        options.db.daily_offpeak_time_utc = text.to_owned();
        refused(disk.try_open(&options), Code::InvalidArgument, "daily_offpeak_time_utc");
    }
    let db = disk.open();
    let refusal = db.set_db_options(&[("daily_offpeak_time_utc", "noon")]);
    refused(refusal, Code::InvalidArgument, "daily_offpeak_time_utc: \"noon\"");
}

#[test]
fn what_a_snapshot_held_back_goes_soon_after_its_release() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.disable_auto_compactions = false;
    let db = disk.open_with(&options);
    put_and_flush(&db, &["a", "b"], "1");
    let snapshot = db.snapshot();
    put_and_flush(&db, &["a", "b"], "2");
    compact(&db);
    db.wait_for_compact().unwrap();
    assert_eq!(table_entries(&db), 4, "both versions");
    db.put("later", "3").unwrap();
    drop(snapshot);
    disk.wait_until("the old versions go", || table_entries(&db) == 2);
}

// ---- filters ----

/// The levels and keys that a filter was asked about.
type Asked = Arc<Mutex<Vec<(usize, String)>>>;

/// Decides by the first byte of the value.
struct ByValue(Asked);

impl CompactionFilter for ByValue {
    fn name(&self) -> &str {
        "by value"
    }
    fn filter(&self, level: usize, key: &[u8], value: &[u8]) -> FilterDecision {
        self.0.lock().push((level, String::from_utf8_lossy(key).into_owned()));
        match value.first() {
            Some(b'r') => FilterDecision::Remove,
            Some(b'p') => FilterDecision::Purge,
            Some(b'c') => FilterDecision::Change(b"changed".to_vec()),
            Some(b's') => FilterDecision::RemoveAndSkipUntil(value[1..].to_vec()),
            _ => FilterDecision::Keep,
        }
    }
}

fn filtered(disk: &Disk) -> (Db, Asked) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut options = disk.options();
    options.cf.compaction_filter = Some(Arc::new(ByValue(Arc::clone(&seen))));
    (disk.open_with(&options), seen)
}

#[test]
fn a_filter_keeps_removes_purges_and_changes() {
    let disk = Disk::new();
    let (db, seen) = filtered(&disk);
    for (key, value) in [("a", "keep"), ("b", "remove"), ("c", "change"), ("d", "purge"), ("e", "keep")] {
        db.put(key, value).unwrap();
    }
    db.flush().unwrap();
    assert!(seen.lock().is_empty(), "flushes are not filtered");
    compact(&db);
    assert_eq!(all(&db), "a=keep c=changed e=keep");
    assert_eq!(table_entries(&db), 3);
    let keys: Vec<String> = seen.lock().iter().map(|(_, key)| key.clone()).collect();
    assert_eq!(keys, ["a", "b", "c", "d", "e"]);
}

/// Decides about merge operands only.
struct ByOperand;

impl CompactionFilter for ByOperand {
    fn name(&self) -> &str {
        "by operand"
    }
    fn filter(&self, _level: usize, _key: &[u8], _value: &[u8]) -> FilterDecision {
        FilterDecision::Keep
    }
    fn filter_merge_operand(&self, level: usize, key: &[u8], operand: &[u8]) -> FilterDecision {
        ByValue(Asked::default()).filter(level, key, operand)
    }
}

#[test]
fn a_filter_sees_merge_operands_that_no_snapshot_sees() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.compaction_filter = Some(Arc::new(ByOperand));
    options.cf.merge_operator = Some(ironstone::merge_operators::string_append(","));
    let db = disk.open_with(&options);
    // A flush merges what it can: each operand gets one of its own.
    let merge = |key: &str, operand: &str| {
        db.merge(key, operand).unwrap();
        db.flush().unwrap();
    };
    put_and_flush(&db, &["a"], "remove this? it is a value");
    for operand in ["keep", "remove", "change", "purge"] {
        merge("a", operand);
        merge("b", "remove");
    }
    compact(&db);
    assert_eq!(all(&db), "a=remove this? it is a value,keep,changed");
    merge("c", "remove 1");
    let before = db.snapshot();
    merge("c", "remove 2");
    merge("c", "keep");
    merge("d", "se");
    put_and_flush(&db, &["dd", "e"], "v");
    compact(&db);
    assert_eq!(all(&db), "a=remove this? it is a value,keep,changed c=remove 1,keep e=v");
    drop(before);
}

#[test]
fn a_removed_value_hides_older_ones_and_a_skipped_range_does_not() {
    let disk = Disk::new();
    let (db, _) = filtered(&disk);
    put_and_flush(&db, &["a", "b", "c", "d", "e"], "old");
    compact(&db);
    let bottom = db.live_files()[0].number;
    db.put("a", "remove").unwrap();
    db.put("b", "sd").unwrap();
    db.put("c", "new").unwrap();
    db.put("d", "new").unwrap();
    db.flush().unwrap();
    let top = db.live_files().into_iter().find(|file| file.number != bottom).unwrap().number;
    db.compact_files(&Default::default(), db.default_column_family(), &[top], 2).unwrap();
    assert_eq!(all(&db), "b=old c=old d=new e=old");
}

#[test]
fn a_skip_that_goes_nowhere_keeps_and_one_beyond_everything_takes_all() {
    let disk = Disk::new();
    let (db, _) = filtered(&disk);
    db.put("a", "sa").unwrap();
    db.put("b", "s0").unwrap();
    db.put("x", "szz").unwrap();
    (0..2000).for_each(|n| db.put(format!("y{n:05}"), "v").unwrap());
    compact(&db);
    assert_eq!(all(&db), "a=sa b=s0");
}

#[test]
fn a_filter_does_not_spare_what_a_snapshot_sees_but_its_older_versions() {
    let disk = Disk::new();
    let (db, _) = filtered(&disk);
    put_and_flush(&db, &["a", "b"], "old");
    let before = db.snapshot();
    put_and_flush(&db, &["a"], "remove");
    let after = db.snapshot();
    compact(&db);
    let at = |snapshot: &ironstone::Snapshot| {
        let options = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() };
        db.get_cf(&options, db.default_column_family(), "a").unwrap().map(|value| value.to_vec())
    };
    assert_eq!((at(&before), at(&after)), (Some(b"old".to_vec()), None));
}

/// What the factory was asked for, and a filter that removes everything in flushes.
#[derive(Default)]
struct Factory {
    made: Mutex<Vec<FilterContext>>,
}

struct RemoveAll;
impl CompactionFilter for RemoveAll {
    fn name(&self) -> &str {
        "remove all"
    }
    fn filter(&self, _level: usize, _key: &[u8], _value: &[u8]) -> FilterDecision {
        FilterDecision::Remove
    }
}

impl CompactionFilterFactory for Factory {
    fn name(&self) -> &str {
        "test.Factory"
    }
    fn should_filter_table_file_creation(&self, _reason: TableFileCreationReason) -> bool {
        true
    }
    fn create(&self, context: &FilterContext) -> Option<Box<dyn CompactionFilter>> {
        self.made.lock().push(*context);
        (context.reason == TableFileCreationReason::Flush)
            .then(|| Box::new(RemoveAll) as Box<dyn CompactionFilter>)
    }
}

#[test]
fn a_factory_hears_what_is_made_and_why() {
    let disk = Disk::new();
    let factory = Arc::new(Factory::default());
    let mut options = disk.options();
    options.cf.compaction_filter_factory = Some(factory.clone());
    let db = disk.open_with(&options);
    put_and_flush(&db, &["a"], "1");
    assert_eq!(all(&db), "", "removed by the flush");
    compact(&db);
    db.put("b", "2").unwrap();
    drop(db);
    let db = disk.open_with(&options);
    assert_eq!(all(&db), "b=2");
    let made = factory.made.lock();
    let reasons: Vec<_> = made.iter().map(|context| (context.reason, context.input_start_level)).collect();
    use TableFileCreationReason::{Compaction, Flush, Recovery};
    assert_eq!(reasons, [(Flush, None), (Compaction, Some(0)), (Recovery, None)]);
    assert!(made[1].is_full_compaction && made[1].is_manual_compaction && !made[0].is_manual_compaction);
    assert_eq!(made[1].column_family_id, db.default_column_family().id());
}

#[test]
fn a_filter_that_asks_for_snapshots_is_refused() {
    struct Careful;
    impl CompactionFilter for Careful {
        fn name(&self) -> &str {
            "careful"
        }
        fn filter(&self, _level: usize, _key: &[u8], _value: &[u8]) -> FilterDecision {
            FilterDecision::Keep
        }
        fn ignore_snapshots(&self) -> bool {
            false
        }
    }
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.compaction_filter = Some(Arc::new(Careful));
    refused(disk.try_open(&options), Code::NotSupported, "careful");
}

#[test]
fn names_of_filters_are_in_the_options_file_and_find_their_objects() {
    let disk = Disk::new();
    let mut options = with_style(&disk, CompactionStyle::Universal);
    options.cf.num_levels = 3;
    options.cf.compaction_options_universal.size_ratio = 7;
    options.cf.compaction_options_universal.max_read_amp = 9;
    options.cf.compaction_options_fifo.max_table_files_size = 12345;
    options.cf.compaction_filter_factory = Some(Arc::new(Factory::default()));
    options.cf.sst_partitioner_factory = Some(SstPartitionerFixedPrefix::factory(3));
    drop(disk.open_with(&options));
    let path = Path::new(DIR);
    let strict = OptionsFile::load_latest(&disk.fs, path, &LoadOptions::default());
    refused(strict, Code::NotSupported, "test.Factory");
    let factories: Vec<Arc<dyn CompactionFilterFactory>> = vec![Arc::new(Factory::default())];
    let load = LoadOptions { compaction_filter_factories: factories, ..LoadOptions::default() };
    let file = OptionsFile::load_latest(&disk.fs, path, &load).unwrap();
    let cf = file.column_family("default").unwrap();
    assert_eq!(cf.compaction_style, CompactionStyle::Universal);
    let universal = &cf.compaction_options_universal;
    assert_eq!((cf.num_levels, universal.size_ratio, universal.max_read_amp), (3, 7, 9));
    assert_eq!(cf.compaction_options_fifo.max_table_files_size, 12345);
    assert_eq!(cf.periodic_compaction_seconds, 30 * DAY);
    assert_eq!(cf.compaction_filter_factory.as_ref().unwrap().name(), "test.Factory");
    let text = cf.get("sst_partitioner_factory").unwrap();
    assert_eq!(text, "{length=3;id=SstPartitionerFixedPrefixFactory;}");
}

// ---- partitioners, suggestions, promotions ----

#[test]
fn tables_end_where_the_prefix_changes() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.sst_partitioner_factory = Some(SstPartitionerFixedPrefix::factory(1));
    let db = disk.open_with(&options);
    put_and_flush(&db, &["a1", "a2", "b1", "c1", "c2", "", "c"], "1");
    compact(&db);
    let files = db.live_files();
    let mut bounds: Vec<_> =
        files.iter().map(|file| (file.smallest.as_slice(), file.largest.as_slice())).collect();
    bounds.sort();
    let expected: [(&[u8], &[u8]); 4] = [(b"", b""), (b"a1", b"a2"), (b"b1", b"b1"), (b"c", b"c2")];
    assert_eq!(bounds, expected);
    assert_eq!(db.iter().unwrap().entries().count(), 7);
}

#[test]
fn a_partitioner_hears_keys_in_order_and_keeps_tables_from_being_moved() {
    #[derive(Default)]
    struct Watching(Arc<Mutex<Vec<String>>>);
    impl SstPartitioner for Watching {
        fn should_partition(&mut self, request: &PartitionRequest<'_>) -> bool {
            let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
            let line = format!("{}-{}", text(request.previous_user_key), text(request.current_user_key));
            self.0.lock().push(line);
            request.current_user_key == b"c"
        }
        fn can_do_trivial_move(&mut self, _smallest: &[u8], _largest: &[u8]) -> bool {
            false
        }
    }
    impl SstPartitionerFactory for Watching {
        fn name(&self) -> &str {
            "watching"
        }
        fn create(&self, context: &PartitionerContext<'_>) -> Box<dyn SstPartitioner> {
            assert!(context.output_level > 0 && context.smallest_user_key <= context.largest_user_key);
            Box::new(Self(Arc::clone(&self.0)))
        }
    }
    let disk = Disk::new();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let mut options = disk.options();
    options.cf.sst_partitioner_factory = Some(Arc::new(Watching(Arc::clone(&heard))));
    let db = disk.open_with(&options);
    put_and_flush(&db, &["a", "b", "c", "d"], "1");
    compact(&db);
    assert_eq!(*heard.lock(), ["a-b", "b-c", "c-d"]);
    assert_eq!(shape(&db), [0, 0, 0, 0, 0, 0, 2]);
}

#[test]
fn suggested_tables_are_compacted_when_there_is_time() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.disable_auto_compactions = false;
    let db = disk.open_with(&options);
    let cf = db.default_column_family();
    put_and_flush(&db, &["a", "m"], "1");
    compact(&db);
    put_and_flush(&db, &["a"], "2");
    db.wait_for_compact().unwrap();
    assert_eq!(shape(&db), [1, 0, 0, 0, 0, 0, 1]);
    db.suggest_compact_range(cf, Some(b"x"), None).unwrap();
    db.wait_for_compact().unwrap();
    assert_eq!(shape(&db), [1, 0, 0, 0, 0, 0, 1], "none of its keys");
    db.suggest_compact_range(cf, Some(b"a"), Some(b"b")).unwrap();
    db.wait_for_compact().unwrap();
    assert_eq!(shape(&db), [0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(all(&db), "a=2 m=1");
}

#[test]
fn level_0_is_promoted_if_nothing_overlaps() {
    let disk = Disk::new();
    let db = disk.open();
    let cf = db.default_column_family();
    db.promote_level0(cf, 3).unwrap();
    put_and_flush(&db, &["a", "b"], "1");
    put_and_flush(&db, &["c", "d"], "2");
    refused(db.promote_level0(cf, 0), Code::InvalidArgument, "Invalid target level");
    refused(db.promote_level0(cf, 7), Code::InvalidArgument, "does not exist");
    db.promote_level0(cf, 3).unwrap();
    assert_eq!(shape(&db), [0, 0, 0, 2]);
    put_and_flush(&db, &["a", "d"], "3");
    refused(db.promote_level0(cf, 3), Code::InvalidArgument, "must be empty");
    put_and_flush(&db, &["a"], "4");
    refused(db.promote_level0(cf, 2), Code::InvalidArgument, "overlapping");
    assert_eq!(all(&db), "a=4 b=1 c=2 d=3");
    drop(db);
    assert_eq!(all(&disk.open()), "a=4 b=1 c=2 d=3");
}

#[test]
fn the_number_of_levels_changes_with_the_level_of_the_tables() {
    let disk = Disk::new();
    let db = disk.open();
    let refit = |db: &Db, target_level| {
        let options =
            CompactRangeOptions { change_level: true, target_level, ..CompactRangeOptions::default() };
        db.compact_range(&options, db.default_column_family(), None, None)
    };
    refit(&db, None).unwrap();
    put_and_flush(&db, &["a", "b"], "1");
    put_and_flush(&db, &["b", "c"], "2");
    refit(&db, Some(2)).unwrap();
    assert_eq!((shape(&db), all(&db)), (vec![0, 0, 1], "a=1 b=2 c=2".into()));
    refused(refit(&db, Some(7)), Code::InvalidArgument, "exceeds");
    drop(db);
    // Three levels are enough now.
    let mut options = disk.options();
    options.cf.num_levels = 3;
    let db = disk.open_with(&options);
    assert_eq!(all(&db), "a=1 b=2 c=2");
    refit(&db, Some(0)).unwrap();
    assert_eq!(shape(&db), [1]);
    drop(db);
    let mut one = with_style(&disk, CompactionStyle::Universal);
    one.cf.num_levels = 1;
    assert_eq!(all(&disk.open_with(&one)), "a=1 b=2 c=2");
    let db = disk.open();
    refit(&db, None).unwrap();
    assert_eq!((shape(&db), all(&db)), (vec![0, 1], "a=1 b=2 c=2".into()));
    refit(&db, Some(6)).unwrap();
    assert_eq!(shape(&db), [0, 0, 0, 0, 0, 0, 1]);
    options.cf.num_levels = 6;
    drop(db);
    refused(disk.try_open(&options), Code::InvalidArgument, "more levels");
}

// ---- entries that expire ----

fn ttl_db(disk: &Disk, ttl: u32, expired: ExpiredReads) -> TtlDb {
    let mut options = disk.options();
    options.db.env = disk.env();
    TtlDb::open(&options, DIR, ttl, expired).unwrap()
}

fn ttl_all(db: &TtlDb) -> (String, String) {
    let mut iter = db.iter().unwrap();
    let show = |iter: &ironstone::TtlIterator| {
        let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap()).into_owned();
        format!("{}={}", text(iter.key()), text(iter.value()))
    };
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    let mut valid = iter.seek_to_first().unwrap();
    while valid {
        forward.push(show(&iter));
        valid = iter.next().unwrap();
    }
    valid = iter.seek_to_last().unwrap();
    while valid {
        backward.insert(0, show(&iter));
        valid = iter.prev().unwrap();
    }
    (forward.join(" "), backward.join(" "))
}

#[test]
fn an_expired_entry_is_never_read_and_a_compaction_removes_it() {
    let clock = manual_clock();
    let disk = Disk::with_clock(&clock);
    let db = ttl_db(&disk, 100, ExpiredReads::Hidden);
    db.put("a", "1").unwrap();
    pass(&clock, 60);
    db.put("b", "2").unwrap();
    let mut batch = WriteBatch::new();
    batch.put("c", "3");
    batch.put("d", "4");
    batch.delete("d");
    db.write(&batch, &WriteOptions::default()).unwrap();
    assert_eq!(ttl_all(&db), ("a=1 b=2 c=3".into(), "a=1 b=2 c=3".into()));
    pass(&clock, 40);
    assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"1"[..]), "exactly as old as it may become");
    pass(&clock, 1);
    assert_eq!(db.get("a").unwrap(), None);
    assert_eq!(ttl_all(&db), ("b=2 c=3".into(), "b=2 c=3".into()));
    let cf = db.default_column_family();
    let many = db.multi_get_cf(&ReadOptions::default(), cf, &["a", "b"]);
    assert_eq!(many[0].as_ref().unwrap().as_deref(), None);
    assert_eq!(many[1].as_ref().unwrap().as_ref().unwrap(), &b"2"[..]);
    assert_eq!(db.base().get("a").unwrap().unwrap().len(), 5, "still there");
    db.base().flush().unwrap();
    compact(db.base());
    assert_eq!(db.base().get("a").unwrap(), None);
    // A longer life is for those that are still there.
    db.set_ttl(cf, 0).unwrap();
    pass(&clock, 100 * DAY);
    assert_eq!((db.ttl(cf).unwrap(), ttl_all(&db).0), (0, "b=2 c=3".into()));
    let mut iter = db.iter().unwrap();
    assert!(iter.seek("bb").unwrap() && iter.key() == Some(&b"c"[..]));
    assert!(iter.seek_for_prev("bb").unwrap() && iter.written_at() == Some((NOW + 60) as u32));
}

#[test]
fn expired_entries_are_shown_until_compacted_if_that_is_wanted() {
    let clock = manual_clock();
    let disk = Disk::with_clock(&clock);
    let db = ttl_db(&disk, 100, ExpiredReads::ShownUntilCompacted);
    db.put("a", "1").unwrap();
    pass(&clock, 1000);
    assert_eq!(ttl_all(&db).0, "a=1");
    compact(db.base());
    assert_eq!(ttl_all(&db).0, "");
}

#[test]
fn values_end_in_the_time_as_rocksdb_writes_it() {
    let disk = Disk::with_clock(&manual_clock());
    let db = ttl_db(&disk, 0, ExpiredReads::Hidden);
    db.put("k", "v").unwrap();
    let mut stamped = b"v".to_vec();
    stamped.extend_from_slice(&(NOW as u32).to_le_bytes());
    assert_eq!(db.base().get("k").unwrap().unwrap(), stamped);
    assert_eq!(db.get("k").unwrap().unwrap().written_at(), NOW as u32);
    // What was not written by a TTL database is no value of one.
    db.base().put("short", "abc").unwrap();
    db.base().put("zeros", [0; 8]).unwrap();
    for key in ["short", "zeros"] {
        refused(db.get(key), Code::Corruption, "timestamp");
    }
    let mut iter = db.iter().unwrap();
    assert!(iter.seek_to_first().unwrap());
    assert!(iter.next().is_err() && iter.status().is_err() && !iter.valid());
    db.base().flush().unwrap();
    compact(db.base());
    assert_eq!(db.base().get("short").unwrap().unwrap(), b"abc"[..], "nothing is lost");
}

#[test]
fn a_clock_that_no_timestamp_can_hold_stops_writes() {
    let clock = manual_clock();
    let disk = Disk::with_clock(&clock);
    let db = ttl_db(&disk, 100, ExpiredReads::Hidden);
    for seconds in [0, 1 << 31] {
        clock.set_micros(seconds * 1_000_000);
        refused(db.put("k", "v"), Code::InvalidArgument, "timestamp");
    }
}

#[test]
fn column_families_have_their_own_ttl_and_the_own_filter_sees_plain_values() {
    let clock = manual_clock();
    let disk = Disk::with_clock(&clock);
    let mut options = disk.options();
    options.db.env = disk.env();
    options.db.create_missing_column_families = true;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut other = options.cf.clone();
    other.compaction_filter = Some(Arc::new(ByValue(Arc::clone(&seen))));
    let other = ironstone::ColumnFamilyDescriptor::new("other", other);
    let families = vec![TtlColumnFamily { descriptor: other, ttl: 50 }];
    let db = TtlDb::open_column_families(&options.db, DIR, families, ExpiredReads::Hidden, false).unwrap();
    let other = db.base().column_family("other").unwrap();
    let third = db.create_column_family("third", &options.cf, 10).unwrap();
    for cf in [db.default_column_family(), &other, &third] {
        db.put_cf(&WriteOptions::default(), cf, "a", "change me").unwrap();
    }
    db.base().flush_cfs(&FlushOptions::default(), &[&other]).unwrap();
    db.base().compact_range(&CompactRangeOptions::default(), &other, None, None).unwrap();
    let get = |cf| db.get_cf(&ReadOptions::default(), cf, "a").unwrap().map(|value| value.to_vec());
    assert_eq!(get(&other), Some(b"changed".to_vec()));
    pass(&clock, 20);
    assert_eq!((get(&third), get(&other)), (None, Some(b"changed".to_vec())));
    pass(&clock, 40);
    assert_eq!((get(&other), get(db.default_column_family())), (None, Some(b"change me".to_vec())));
}

#[test]
fn a_merged_entry_is_as_old_as_its_newest_operand() {
    let clock = manual_clock();
    let disk = Disk::with_clock(&clock);
    let mut options = disk.options();
    options.db.env = disk.env();
    options.set("merge_operator", "stringappend").unwrap();
    let db = TtlDb::open(&options, DIR, 100, ExpiredReads::Hidden).unwrap();
    let cf = db.default_column_family();
    let write = WriteOptions::default();
    db.put("a", "1").unwrap();
    pass(&clock, 60);
    let mut batch = WriteBatch::new();
    batch.merge("a", "2");
    batch.delete_range("x", "z");
    db.write(&batch, &write).unwrap();
    pass(&clock, 60);
    assert_eq!(ttl_all(&db).0, "a=1,2");
    db.base().flush().unwrap();
    compact(db.base());
    assert_eq!((ttl_all(&db).0, ttl_all(&db).1), ("a=1,2".into(), "a=1,2".into()));
    pass(&clock, 41);
    assert_eq!(db.get("a").unwrap(), None, "no compaction makes it young again");
    db.merge_cf(&write, cf, "b", "3").unwrap();
    db.merge_cf(&write, cf, "b", "4").unwrap();
    assert_eq!(db.get("b").unwrap().unwrap(), b"3,4"[..]);
    compact(db.base());
    assert_eq!(ttl_all(&db).0, "b=3,4");
}

#[test]
fn iterators_of_a_ttl_database_are_refreshed_and_its_options_change() {
    let clock = manual_clock();
    let disk = Disk::with_clock(&clock);
    let db = ttl_db(&disk, 100, ExpiredReads::Hidden);
    db.put("a", "1").unwrap();
    let before = db.snapshot();
    let mut iter = db.iter().unwrap();
    pass(&clock, 60);
    db.put("b", "2").unwrap();
    assert!(!iter.seek("b").unwrap());
    iter.refresh().unwrap();
    assert!(!iter.valid() && iter.seek("b").unwrap());
    iter.refresh_at(&before).unwrap();
    assert!(!iter.seek("b").unwrap() && iter.seek("a").unwrap());
    pass(&clock, 60);
    iter.refresh_at(&before).unwrap();
    assert!(!iter.seek("a").unwrap(), "older than it may become, whatever the snapshot");
    // A failure does not outlive the refresh.
    db.base().put("short", "abc").unwrap();
    iter.refresh().unwrap();
    assert!(iter.seek("s").is_err() && iter.status().is_err());
    db.base().delete("short").unwrap();
    iter.refresh().unwrap();
    assert!(iter.status().is_ok() && iter.seek("b").unwrap());

    db.set_options(&[("write_buffer_size", "64K")]).unwrap();
    db.set_db_options(&[("max_background_jobs", "3")]).unwrap();
    let cf = db.default_column_family();
    assert_eq!(db.base().column_family_options(cf).write_buffer_size, 64 << 10);
    assert_eq!(db.base().options().max_background_jobs, 3);
    refused(db.set_options_cf(cf, &[("num_levels", "3")]), Code::InvalidArgument, "num_levels");
    pass(&clock, 100);
    compact(db.base());
    assert_eq!(db.base().get("b").unwrap(), None, "the filter is still there");
}

#[test]
fn code_for_any_layer_works_with_all() {
    fn work<D: StackableDb>(db: &D) -> Vec<Option<Vec<u8>>> {
        let cf = db.default_column_family();
        db.put("a", "1").unwrap();
        db.merge_cf(&WriteOptions::default(), cf, "b", "2").unwrap();
        db.put("c", "3").unwrap();
        db.delete("c").unwrap();
        db.flush().unwrap();
        let found = db.multi_get_cf(&ReadOptions::default(), cf, &["a", "b", "c"]);
        found.into_iter().map(|value| value.unwrap().map(|value| value.to_vec())).collect()
    }
    let (plain, layered) = (Disk::with_clock(&manual_clock()), Disk::with_clock(&manual_clock()));
    let mut options = plain.options();
    options.set("merge_operator", "stringappend").unwrap();
    let expected = [Some(b"1".to_vec()), Some(b"2".to_vec()), None];
    assert_eq!(work(&plain.open_with(&options)), expected);
    options.db.env = layered.env();
    let db = TtlDb::open(&options, DIR, 100, ExpiredReads::Hidden).unwrap();
    assert_eq!(work(&db), expected);
    assert_eq!(db.base().get("a").unwrap().unwrap().len(), 5);
}

// ---- rate limiter ----

#[test]
fn databases_share_a_rate_limiter_and_every_byte_asks_it() {
    let (first, second) = (Disk::new(), Disk::new());
    let limiter = Arc::new(GenericRateLimiter::new(100 << 20));
    let open = |disk: &Disk| {
        let mut options = disk.options();
        options.db.rate_limiter = Some(limiter.clone());
        disk.open_with(&options)
    };
    let (one, other) = (open(&first), open(&second));
    put_and_flush(&one, &["a", "b"], "1");
    let flushed = limiter.total_bytes_through(IoPriority::High);
    assert_eq!(flushed, one.live_files()[0].size);
    put_and_flush(&other, &["a", "b"], "1");
    assert_eq!(limiter.total_bytes_through(IoPriority::High), flushed + other.live_files()[0].size);
    assert_eq!(limiter.total_bytes_through(IoPriority::Low), 0);
    put_and_flush(&one, &["a"], "2");
    compact(&one);
    assert_eq!(limiter.total_bytes_through(IoPriority::Low), one.live_files()[0].size);
}

#[test]
fn a_rate_can_be_given_as_text_and_is_not_written_down() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.set("rate_limiter_bytes_per_sec", "8M").unwrap();
    assert_eq!(options.get("rate_limiter_bytes_per_sec").as_deref(), Some("8388608"));
    drop(disk.open_with(&options));
    let file = OptionsFile::load_latest(&disk.fs, Path::new(DIR), &LoadOptions::default()).unwrap();
    assert!(file.db.rate_limiter.is_none());
    options.set("rate_limiter_bytes_per_sec", "0").unwrap();
    assert!(options.db.rate_limiter.is_none());
}
