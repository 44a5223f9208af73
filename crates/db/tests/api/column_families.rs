//! Column families come, go, and stay apart.

use crate::disk::{DIR, Disk, forward, fresh, get_in, refused};
use ironstone::vfs::OpKind;
use ironstone::vfs::fault::{Fault, FaultRule};
use ironstone::{
    Code, ColumnFamily, ColumnFamilyDescriptor, CompactRangeOptions, Db, EventListener, FlushOptions,
    ReadOptions, TableFileCreationInfo, TableFileCreationReason, UserComparator, WriteBatch, WriteOptions,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

fn write(db: &Db, cf: &ColumnFamily, key: &str, value: &str) {
    db.put_cf(&WriteOptions::default(), cf, key, value).unwrap();
}
fn scan(db: &Db, cf: &ColumnFamily) -> String {
    forward(db.iter_cf(&ReadOptions::default(), cf).unwrap())
}

#[test]
fn what_was_created_is_there_after_a_power_loss_and_what_was_dropped_is_not() {
    let disk = Disk::new();
    let options = disk.options();
    let db = disk.open();
    let kept = db.create_column_family("kept", &options.cf).unwrap();
    let dropped = db.create_column_family("dropped", &options.cf).unwrap();
    db.put_cf(&WriteOptions::synced(), &kept, "k", "v").unwrap();
    write(&db, &dropped, "k", "v");
    db.drop_column_family(&dropped).unwrap();

    let after = disk.lose_power();
    let names = Db::list_column_families(&after.options().db, DIR).unwrap();
    assert_eq!(names, ["default", "kept"]);
    let db = after.open_families(&options, &["kept"]).unwrap();
    assert_eq!(get_in(&db, &db.column_family("kept").unwrap(), "k"), "v");
    assert!(db.column_family("dropped").is_none());
}

#[test]
fn keys_of_different_column_families_do_not_meet() {
    let (disk, db) = fresh();
    let options = disk.options();
    let other = db.create_column_family("other", &options.cf).unwrap();
    db.put("k", "default").unwrap();
    write(&db, &other, "k", "other");
    write(&db, &other, "only", "here");
    for _ in 0..2 {
        assert_eq!(scan(&db, db.default_column_family()), "k=default");
        assert_eq!(scan(&db, &other), "k=other only=here");
        db.flush_cfs(&FlushOptions::default(), &[db.default_column_family(), &other]).unwrap();
    }
    db.delete("k").unwrap();
    assert_eq!(get_in(&db, &other, "k"), "other");
}

#[test]
fn a_batch_over_several_column_families_survives_as_a_whole() {
    let disk = Disk::new();
    let options = disk.options();
    let db = disk.open();
    let other = db.create_column_family("other", &options.cf).unwrap();
    for number in 0..5 {
        let mut batch = WriteBatch::new();
        batch.put("k", number.to_string());
        batch.put_cf(&other, "k", number.to_string());
        db.write(&batch, &WriteOptions { sync: number == 2, ..WriteOptions::default() }).unwrap();
        if number == 3 {
            // One part becomes a durable table; then the WAL of the other must be durable as well.
            db.flush_cf(&FlushOptions::default(), &other).unwrap();
        }
    }
    let after = disk.lose_power();
    let db = after.open_families(&options, &["other"]).unwrap();
    let (one, two) = (db.default_column_family().clone(), db.column_family("other").unwrap());
    assert_eq!((get_in(&db, &one, "k"), get_in(&db, &two, "k")), ("3".to_owned(), "3".to_owned()));
}

/// Going on without the end of a WAL would leave of its last batches the part that is in tables.
#[test]
fn a_damaged_wal_is_not_given_up_while_tables_hold_later_writes() {
    let (disk, db) = fresh();
    let options = disk.options();
    let other = db.create_column_family("other", &options.cf).unwrap();
    let wal = disk.newest(".log");
    for number in 0..4 {
        let mut batch = WriteBatch::new();
        batch.put("k", number.to_string());
        batch.put_cf(&other, "k", number.to_string());
        db.write(&batch, &WriteOptions::synced()).unwrap();
    }
    let end = db.sorted_wal_files().unwrap().last().unwrap().size as usize;
    db.flush_cf(&FlushOptions::default(), &other).unwrap();
    for strict in [true, false] {
        let after = disk.lose_power();
        after.fs.corrupt(&wal, |bytes| bytes[end / 2..end].fill(0x55)).unwrap();
        let mut options = options.clone();
        options.db.strict_wal_recovery = strict;
        let error = refused(after.open_families(&options, &["other"]), Code::Corruption, ".log");
        assert!(strict || error.to_string().contains("column family other hold later writes"), "{error}");
    }
}

/// The MANIFEST says that a WAL is needed, and the column family that needs it is dropped. One that was never
/// written to has not struck it off either.
#[test]
fn a_drop_takes_no_wal_away_that_the_manifest_still_counts_on() {
    let (disk, db) = fresh();
    let options = disk.options();
    db.create_column_family("idle", &options.cf).unwrap();
    let other = db.create_column_family("other", &options.cf).unwrap();
    write(&db, &other, "k", "v");
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    db.drop_column_family(&other).unwrap();
    db.close().unwrap();
    drop((db, other));
    let db = disk.open_families(&options, &["idle"]).unwrap();
    assert_eq!(get_in(&db, db.default_column_family(), "k"), "v");
}

#[test]
fn names_are_unique_and_not_empty_and_default_stays() {
    let (disk, db) = fresh();
    let options = disk.options();
    db.create_column_family("taken", &options.cf).unwrap();
    refused(db.create_column_family("taken", &options.cf), Code::InvalidArgument, "taken");
    refused(db.create_column_family("default", &options.cf), Code::InvalidArgument, "default");
    refused(db.create_column_family("", &options.cf), Code::InvalidArgument, "name");
    refused(db.drop_column_family(db.default_column_family()), Code::InvalidArgument, "default");
    let odd = "ümläut / \"quoted\" \u{1f980} with spaces";
    let cf = db.create_column_family(odd, &options.cf).unwrap();
    write(&db, &cf, "k", "v");
    db.close().unwrap();
    drop(db);
    let db = disk.open_families(&options, &["taken", odd]).unwrap();
    assert_eq!(get_in(&db, &db.column_family(odd).unwrap(), "k"), "v");
}

#[test]
fn all_must_be_named_to_open_for_writing() {
    let disk = Disk::new();
    let options = disk.options();
    let db = disk.open();
    db.create_column_family("other", &options.cf).unwrap();
    db.close().unwrap();
    drop(db);
    refused(disk.try_open(&options), Code::InvalidArgument, "other");
    let db = disk.open_read_only(&options, &[]).expect("readers may leave some out");
    assert!(db.column_family("other").is_none());
    refused(disk.open_families(&options, &["other", "third"]).map(drop), Code::InvalidArgument, "third");
    let mut creating = options.clone();
    creating.db.create_missing_column_families = true;
    let db = disk.open_families(&creating, &["other", "third"]).unwrap();
    assert!(db.column_family("third").is_some());
}

#[test]
fn a_dropped_one_answers_so_everywhere() {
    let (disk, db) = fresh();
    let options = disk.options();
    let cf = db.create_column_family("gone", &options.cf).unwrap();
    write(&db, &cf, "k", "v");
    db.drop_column_family(&cf).unwrap();
    let says = |result: ironstone::Result<()>| {
        refused(result, Code::ColumnFamilyDropped, "gone");
    };
    let read = ReadOptions::default();
    says(db.get_cf(&read, &cf, "k").map(drop));
    says(db.iter_cf(&read, &cf).map(drop));
    says(db.multi_get_cf(&read, &cf, &["k"]).remove(0).map(drop));
    says(db.put_cf(&WriteOptions::default(), &cf, "k", "v"));
    says(db.delete_cf(&WriteOptions::default(), &cf, "k"));
    says(db.flush_cf(&FlushOptions::default(), &cf));
    says(db.compact_range(&CompactRangeOptions::default(), &cf, None, None));
    assert!(db.drop_column_family(&cf).is_err(), "it can be dropped once");
    assert!(!db.key_may_exist_cf(&read, &cf, "k"));
    assert!(db.column_family("gone").is_none());
    let mut batch = WriteBatch::new();
    batch.put("mine", "1");
    batch.put_cf(&cf, "k", "v");
    assert!(db.write(&batch, &WriteOptions::default()).is_err());
    assert_eq!(get_in(&db, db.default_column_family(), "mine"), "-", "nothing of the batch is there");
    db.put("after", "drop").unwrap();
}

#[test]
fn files_of_a_dropped_one_go_when_its_last_reader_does() {
    let (disk, db) = fresh();
    let cf = db.create_column_family("gone", &disk.options().cf).unwrap();
    write(&db, &cf, "a", "1");
    db.flush_cf(&FlushOptions::default(), &cf).unwrap();
    write(&db, &cf, "b", "2");
    let table = disk.newest(".sst");
    let iter = db.iter_cf(&ReadOptions::default(), &cf).unwrap();
    db.drop_column_family(&cf).unwrap();
    drop(cf);
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    assert!(disk.exists(&table));
    assert_eq!(forward(iter), "a=1 b=2");
    disk.wait_until("the table is removed", || !disk.exists(&table));
}

#[test]
fn a_name_can_be_used_again_and_begins_empty() {
    let (disk, db) = fresh();
    let options = disk.options();
    let first = db.create_column_family("name", &options.cf).unwrap();
    write(&db, &first, "old", "1");
    db.flush_cf(&FlushOptions::default(), &first).unwrap();
    db.drop_column_family(&first).unwrap();
    let second = db.create_column_family("name", &options.cf).unwrap();
    assert_ne!(first.id(), second.id());
    write(&db, &second, "new", "2");
    assert_eq!(scan(&db, &second), "new=2");
    db.close().unwrap();
    drop(db);
    let db = disk.open_families(&options, &["name"]).unwrap();
    assert_eq!(scan(&db, &db.column_family("name").unwrap()), "new=2");
}

#[test]
fn handles_of_other_databases_and_of_earlier_openings_are_refused() {
    let (disk, db) = fresh();
    let (_other_disk, other) = fresh();
    let foreign = other.default_column_family().clone();
    let read = ReadOptions::default();
    refused(db.get_cf(&read, &foreign, "k"), Code::InvalidArgument, "another database");
    refused(
        db.put_cf(&WriteOptions::default(), &foreign, "k", "v"),
        Code::InvalidArgument,
        "another database",
    );
    refused(db.flush_cf(&FlushOptions::default(), &foreign), Code::InvalidArgument, "another database");
    let stranger = other.create_column_family("x", &disk.options().cf).unwrap();
    refused(db.drop_column_family(&stranger), Code::InvalidArgument, "another database");
    let earlier = db.default_column_family().clone();
    db.close().unwrap();
    drop(db);
    let db = disk.open();
    refused(db.get_cf(&read, &earlier, "k"), Code::InvalidArgument, "earlier opening");
}

#[test]
fn each_has_its_own_options() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.create_missing_column_families = true;
    let mut reversed = options.cf.clone();
    reversed.comparator = UserComparator::ReverseBytewise;
    let descriptors = vec![
        ColumnFamilyDescriptor::new("default", options.cf.clone()),
        ColumnFamilyDescriptor::new("reversed", reversed),
    ];
    let db = Db::open_column_families(&options.db, DIR, descriptors).unwrap();
    let cf = db.column_family("reversed").unwrap();
    for key in ["b", "a", "c"] {
        db.put(key, "").unwrap();
        write(&db, &cf, key, "");
    }
    for _ in 0..2 {
        assert_eq!(scan(&db, db.default_column_family()), "a= b= c=");
        assert_eq!(scan(&db, &cf), "c= b= a=");
        db.flush_cfs(&FlushOptions::default(), &[db.default_column_family(), &cf]).unwrap();
    }
    assert_eq!((cf.name(), db.column_family("default").unwrap().id().0), ("reversed", 0));
}

#[test]
fn a_wal_is_kept_until_every_column_family_has_flushed_it() {
    let (disk, db) = fresh();
    let other = db.create_column_family("other", &disk.options().cf).unwrap();
    db.put("k", "v").unwrap();
    write(&db, &other, "k", "v");
    let wal = disk.newest(".log");
    db.flush().unwrap();
    assert!(disk.exists(&wal), "the other one still needs it");
    db.flush_cf(&FlushOptions::default(), &other).unwrap();
    disk.wait_until("the WAL is removed", || !disk.exists(&wal));
}

#[test]
fn a_wal_goes_with_the_last_of_several_flushes_at_once() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.max_background_flushes = 2;
    let db = disk.open_with(&options);
    let other = db.create_column_family("other", &options.cf).unwrap();
    db.put("k", "v").unwrap();
    write(&db, &other, "k", "v");
    let wal = disk.newest(".log");
    // Each flush is done with its table while the other one writes the MANIFEST.
    disk.faults.arm();
    let slow = Fault::Delay(Duration::from_millis(100));
    disk.faults.add(FaultRule::new(slow).on(&[OpKind::Sync]).path("MANIFEST").forever());
    db.flush_cfs(&FlushOptions::default(), &[db.default_column_family(), &other]).unwrap();
    disk.wait_until("the WAL is removed", || !disk.exists(&wal));
}

/// Holds whoever wrote a table until it may go on.
struct Gate {
    reason: TableFileCreationReason,
    reached: Barrier,
    passed: Barrier,
    used: AtomicBool,
}

impl EventListener for Gate {
    fn on_table_file_created(&self, table: &TableFileCreationInfo) {
        if table.reason == self.reason && !self.used.swap(true, Ordering::SeqCst) {
            self.reached.wait();
            self.passed.wait();
        }
    }
}

#[test]
fn tables_that_were_written_for_a_column_family_that_is_gone_are_removed() {
    for reason in [TableFileCreationReason::Flush, TableFileCreationReason::Compaction] {
        let disk = Disk::new();
        let gate = Arc::new(Gate {
            reason,
            reached: Barrier::new(2),
            passed: Barrier::new(2),
            used: AtomicBool::new(reason == TableFileCreationReason::Compaction),
        });
        let mut options = disk.options();
        options.db.listeners = vec![gate.clone()];
        let db = disk.open_with(&options);
        let cf = db.create_column_family("gone", &options.cf).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..2 {
                    if db.put_cf(&Default::default(), &cf, "k", round.to_string()).is_err() {
                        return;
                    }
                    let _ = db.flush_cf(&FlushOptions::default(), &cf); // It may be gone by now.
                }
                gate.used.store(false, Ordering::SeqCst);
                let rewritten = db.compact_range(&CompactRangeOptions::default(), &cf, None, None);
                refused(rewritten, Code::ColumnFamilyDropped, "column family");
            });
            gate.reached.wait();
            assert!(!disk.files(".sst").is_empty());
            db.drop_column_family(&cf).unwrap();
            gate.passed.wait();
        });
        drop(cf);
        disk.wait_until("its tables are gone", || disk.files(".sst").is_empty());
    }
}

#[test]
fn several_are_created_and_dropped_up_to_the_first_that_cannot_be() {
    let disk = Disk::new();
    let db = disk.open();
    let options_files =
        || disk.files("").iter().filter(|path| path.to_string_lossy().contains("OPTIONS")).max().cloned();
    let describe = |names: &[&str]| -> Vec<_> {
        names.iter().map(|name| ColumnFamilyDescriptor::new(*name, disk.options().cf)).collect()
    };
    let created = db.create_column_families(&describe(&["a", "b"])).unwrap();
    assert_eq!(created.iter().map(ColumnFamily::name).collect::<Vec<_>>(), ["a", "b"]);
    let before = options_files();
    refused(
        db.create_column_families(&describe(&["c", "a", "d"])),
        Code::InvalidArgument,
        "already exists: a",
    );
    assert!(options_files() > before, "c is in OPTIONS");
    let c = db.column_family("c").expect("it came before the one that failed");
    assert!(db.column_family("d").is_none(), "it came after it");
    let before = options_files();
    refused(db.create_column_families(&describe(&["a"])), Code::InvalidArgument, "already exists: a");
    assert_eq!(options_files(), before, "nothing has changed");

    let (a, b) = (&created[0], &created[1]);
    let default = db.default_column_family();
    refused(db.drop_column_families(&[a, default, b]), Code::InvalidArgument, "default");
    assert!(db.column_family("a").is_none() && db.column_family("b").is_some());
    write(&db, b, "k", "v");
    db.drop_column_families(&[b, &c]).unwrap();
    assert_eq!(Db::list_column_families(&disk.options().db, DIR).unwrap(), ["default"]);
    db.create_column_families(&[]).unwrap();
    db.drop_column_families(&[]).unwrap();
}

/// What a batch writes to a column family that was dropped is left out where that is wished; the rest is written, with the sequence
/// numbers that it has in the log.
#[test]
fn writes_to_what_was_dropped_are_ignored_if_they_may_be() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.memtable_protection_bytes_per_key = 8;
    let db = disk.open_with(&options);
    let dropped = db.create_column_family("dropped", &options.cf).unwrap();
    let kept = db.create_column_family("kept", &options.cf).unwrap();
    let mut batch = WriteBatch::new();
    batch.put("a", "1");
    batch.put_cf(&dropped, "a", "lost");
    batch.delete_cf(&dropped, "a");
    batch.delete_range_cf(&dropped, "a", "b");
    batch.put_cf(&kept, "a", "2");
    db.drop_column_family(&dropped).unwrap();
    let strict = WriteOptions::default();
    refused(db.write(&batch, &strict), Code::InvalidArgument, "does not exist or was dropped");
    refused(db.put_cf(&strict, &dropped, "k", "v"), Code::ColumnFamilyDropped, "dropped");
    assert_eq!(db.latest_sequence().0, 0);
    for protection_bytes_per_key in [0, 8] {
        let before = db.latest_sequence().0;
        let lenient = WriteOptions {
            ignore_missing_column_families: true,
            protection_bytes_per_key,
            ..WriteOptions::default()
        };
        db.write(&batch, &lenient).unwrap();
        assert_eq!(db.latest_sequence().0, before + 5);
        db.put_cf(&lenient, &dropped, "k", "v").unwrap();
        db.put_cf(&lenient, &kept, "b", "3").unwrap();
    }
    let check = |db: &Db| {
        let kept = db.column_family("kept").unwrap();
        assert_eq!((scan(db, db.default_column_family()), scan(db, &kept)), ("a=1".into(), "a=2 b=3".into()));
    };
    check(&db);
    let other = Disk::new().open();
    let lenient = WriteOptions { ignore_missing_column_families: true, ..strict };
    refused(other.put_cf(&lenient, &kept, "k", "v"), Code::InvalidArgument, "another database");
    check(&disk.kill().open_families(&options, &["kept"]).unwrap());
}
