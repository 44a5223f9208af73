//! Filters of what is replayed from WALs.

use crate::disk::{DIR, Disk, all, all_of, fresh, get, put_synced, refused};
use ironstone::{
    BatchRecord, Code, ColumnFamilyDescriptor, ColumnFamilyId, Db, FileNumber, Options, SequenceNumber,
    WalFilter, WalProcessing, WalRecoveryMode, WriteBatch, WriteOptions,
};
use ironstone_base::sync::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

type Decide = Box<dyn Fn(&WriteBatch) -> WalProcessing + Send + Sync>;

/// Notes what it is told, and does what it was made for.
struct Filter {
    decide: Decide,
    seen: Mutex<Vec<String>>,
    families: Mutex<Vec<String>>,
}

impl WalFilter for Filter {
    fn name(&self) -> &str {
        "test.Filter"
    }
    fn column_family_log_number_map(
        &self,
        log_numbers: &BTreeMap<ColumnFamilyId, FileNumber>,
        ids: &BTreeMap<String, ColumnFamilyId>,
    ) {
        let text =
            |(name, id): (&String, &ColumnFamilyId)| format!("{name}:{} from {}", id.0, log_numbers[id]);
        *self.families.lock() = ids.iter().map(text).collect();
    }
    fn log_record_found(&self, wal: FileNumber, path: &Path, batch: &WriteBatch) -> WalProcessing {
        assert!(path.to_string_lossy().ends_with(&format!("{wal:06}.log")), "{path:?}");
        self.seen.lock().push(format!("{}:{}", batch.sequence(), keys(batch)));
        (self.decide)(batch)
    }
}

fn keys(batch: &WriteBatch) -> String {
    let key = |record| match record {
        Ok(BatchRecord::Put { key, .. }) => key.escape_ascii().to_string(),
        other => format!("{other:?}"),
    };
    batch.iter().map(key).collect::<Vec<_>>().join(",")
}

fn filter(decide: impl Fn(&WriteBatch) -> WalProcessing + Send + Sync + 'static) -> Arc<Filter> {
    Arc::new(Filter { decide: Box::new(decide), seen: Mutex::default(), families: Mutex::default() })
}

fn filtering(disk: &Disk, filter: &Arc<Filter>) -> Options {
    let mut options = disk.options();
    options.db.wal_filter = Some(filter.clone());
    options
}

/// Does `what` to the batch with key `b` and leaves the others.
fn at_b(what: WalProcessing) -> Arc<Filter> {
    filter(move |batch| match keys(batch).split(',').any(|key| key == "b") {
        true => what.clone(),
        false => WalProcessing::ContinueProcessing,
    })
}

/// A database that died with `a`, then `b` and `b2` in one batch, then `c` in its WALs; the last one in another WAL.
fn died() -> Disk {
    let (disk, db) = fresh();
    db.put("a", "1").unwrap();
    let mut batch = WriteBatch::new();
    batch.put("b", "2");
    batch.put("b2", "2");
    db.write(&batch, &WriteOptions::default()).unwrap();
    // Another column family's flush begins a new WAL.
    let other = db.create_column_family("other", &disk.options().cf).unwrap();
    db.put_cf(&WriteOptions::default(), &other, "x", "9").unwrap();
    db.flush_cf(&Default::default(), &other).unwrap();
    db.put("c", "3").unwrap();
    disk.kill()
}

fn open(disk: &Disk, options: &Options) -> ironstone::Result<Db> {
    disk.open_families(options, &["other"])
}

#[test]
fn it_sees_every_batch_and_where_column_families_are() {
    let disk = died();
    let seeing = filter(|_| WalProcessing::ContinueProcessing);
    let db = open(&disk, &filtering(&disk, &seeing)).unwrap();
    assert_eq!(*seeing.seen.lock(), ["1:a", "2:b,b2", "4:x", "5:c"]);
    let families = seeing.families.lock();
    assert_eq!(families.len(), 2);
    assert!(
        families[0].starts_with("default:0 from ") && families[1].starts_with("other:1 from "),
        "{families:?}"
    );
    assert_ne!(families[0].rsplit(' ').next(), families[1].rsplit(' ').next());
    assert_eq!(all(&db), "a=1 b=2 b2=2 c=3");
    assert_eq!(all_of(&db, &db.column_family("other").unwrap()), "x=9");
}

#[test]
fn what_it_ignores_is_gone_and_its_numbers_are_used() {
    for keep in [false, true] {
        let disk = died();
        let mut options = filtering(&disk, &at_b(WalProcessing::IgnoreCurrentRecord));
        options.db.avoid_flush_during_recovery = keep;
        let db = open(&disk, &options).unwrap();
        assert_eq!(all(&db), "a=1 c=3");
        assert_eq!(db.latest_sequence(), SequenceNumber(5));
        put_synced(&db, "d", "4");
        let disk = disk.lose_power();
        assert_eq!(
            all(&open(&disk, &disk.options()).unwrap()),
            "a=1 c=3 d=4",
            "the WAL was not kept: {keep}"
        );
    }
}

#[test]
fn ignoring_the_last_batch_uses_its_numbers_too() {
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    put_synced(&db, "b", "2");
    let disk = disk.kill();
    let db = disk.open_with(&filtering(&disk, &at_b(WalProcessing::IgnoreCurrentRecord)));
    assert_eq!((all(&db).as_str(), db.latest_sequence()), ("a=1", SequenceNumber(2)));
}

#[test]
fn a_batch_is_replaced_by_one_of_no_more_writes() {
    let mut fewer = WriteBatch::new();
    fewer.put("b", "changed");
    let disk = died();
    let db = open(&disk, &filtering(&disk, &at_b(WalProcessing::Replace(fewer.clone())))).unwrap();
    assert_eq!((all(&db).as_str(), db.latest_sequence()), ("a=1 b=changed c=3", SequenceNumber(5)));

    let mut more = fewer;
    more.put("b2", "");
    more.put("b3", "");
    let disk = died();
    let error = open(&disk, &filtering(&disk, &at_b(WalProcessing::Replace(more))));
    let error = refused(error, Code::NotSupported, "the WAL filter test.Filter makes 3 writes of 2");
    assert!(error.message().contains(".log at "), "{error}");
    assert_eq!(all(&open(&disk, &disk.options()).unwrap()), "a=1 b=2 b2=2 c=3", "nothing has changed");
}

#[test]
fn when_it_stops_all_that_follows_is_discarded() {
    for mode in [WalRecoveryMode::PointInTimeRecovery, WalRecoveryMode::AbsoluteConsistency] {
        let disk = died();
        let stopping = at_b(WalProcessing::StopReplay);
        let mut options = filtering(&disk, &stopping);
        options.db.wal_recovery_mode = mode;
        let db = open(&disk, &options).unwrap();
        assert_eq!(*stopping.seen.lock(), ["1:a", "2:b,b2"]);
        assert_eq!(all(&db), "a=1");
        put_synced(&db, "d", "4");
        let disk = disk.lose_power();
        assert_eq!(all(&open(&disk, &disk.options()).unwrap()), "a=1 d=4");
    }
}

#[test]
fn what_it_calls_damaged_is_judged_by_the_recovery_mode() {
    for (mode, expected) in [
        (WalRecoveryMode::TolerateCorruptedTailRecords, None),
        (WalRecoveryMode::AbsoluteConsistency, None),
        (WalRecoveryMode::PointInTimeRecovery, Some("a=1")),
        (WalRecoveryMode::SkipAnyCorruptedRecords, Some("a=1 c=3")),
    ] {
        let (disk, db) = fresh();
        ["a", "b", "c"].iter().zip(["1", "2", "3"]).for_each(|(key, value)| put_synced(&db, key, value));
        let disk = disk.kill();
        let mut options = filtering(&disk, &at_b(WalProcessing::CorruptedRecord));
        options.db.wal_recovery_mode = mode;
        match (disk.try_open(&options), expected) {
            (Ok(db), Some(expected)) => assert_eq!(all(&db), expected, "{mode:?}"),
            (opened, None) => {
                let error = refused(opened, Code::Corruption, "the WAL filter test.Filter calls it damaged");
                assert!(error.message().contains(".log"), "{error}");
            }
            (Err(error), Some(_)) => panic!("{mode:?}: {error}"),
        }
    }
}

#[test]
fn readers_have_it_and_secondaries_do_without() {
    let disk = died();
    let options = filtering(&disk, &at_b(WalProcessing::IgnoreCurrentRecord));
    assert_eq!(all(&disk.open_read_only(&options, &["other"]).unwrap()), "a=1 c=3");
    let descriptors = ["default", "other"].map(|name| ColumnFamilyDescriptor::new(name, options.cf.clone()));
    let secondary = Db::open_secondary(&options.db, DIR, "/secondary", descriptors.to_vec()).unwrap();
    assert_eq!(get(&secondary, "b"), "2");
    assert_eq!(all(&open(&disk, &disk.options()).unwrap()), "a=1 b=2 b2=2 c=3", "reading changes nothing");
}

#[test]
fn archived_wals_do_not_show_what_was_ignored() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.wal_ttl_seconds = 3600;
    let db = disk.open_with(&options);
    put_synced(&db, "a", "1");
    put_synced(&db, "b", "2");
    let disk = disk.kill();
    options.db.wal_filter = Some(at_b(WalProcessing::IgnoreCurrentRecord));
    let db = disk.open_with(&options);
    assert!(
        disk.files(".log").iter().all(|path| !path.starts_with("/db/archive")),
        "{:?}",
        disk.files(".log")
    );
    refused(db.get_updates_since(SequenceNumber(1)).map(drop), Code::NotFound, "");
}
