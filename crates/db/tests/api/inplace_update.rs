//! Values that are overwritten in memtables.

use crate::disk::{DIR, Disk, all, backward, forward, get, refused};
use ironstone::statistics::Ticker;
use ironstone::vfs::OpKind;
use ironstone::vfs::fault::{FaultError, FaultRule};
use ironstone::{
    Code, ColumnFamilyDescriptor, Db, InplaceCallback, MemTableKind, Options, ReadOptions, Statistics,
    UpdateStatus, WriteBatch, WriteOptions,
};
use std::sync::Arc;

fn options(disk: &Disk) -> Options {
    let mut options = disk.options();
    options.db.set("allow_concurrent_memtable_write", "false").unwrap();
    options.cf.inplace_update_support = true;
    options
}

fn entries(db: &Db) -> u64 {
    db.property("rocksdb.num-entries-active-mem-table").unwrap().parse().unwrap()
}

#[test]
fn a_put_overwrites_a_value_that_is_not_shorter() {
    for kind in [MemTableKind::RadixTree, MemTableKind::SkipList, MemTableKind::Vector] {
        for protection in [0, 8] {
            let disk = Disk::new();
            let mut options = options(&disk);
            options.cf.memtable_factory = kind;
            options.cf.memtable_protection_bytes_per_key = protection;
            let statistics = Arc::new(Statistics::new());
            options.db.statistics = Some(statistics.clone());
            let db = disk.open_with(&options);
            let with_checksums =
                WriteOptions { protection_bytes_per_key: protection as usize, ..Default::default() };
            for value in ["long value", "same value", "short", "v"] {
                db.put_cf(&with_checksums, db.default_column_family(), b"k", value).unwrap();
                assert_eq!((get(&db, "k").as_str(), all(&db)), (value, format!("k={value}")));
                assert_eq!(backward(db.iter().unwrap()), format!("k={value}"));
                assert_eq!(db.multi_get(&[b"k"])[0].as_ref().unwrap().as_ref().unwrap(), value);
            }
            assert_eq!((entries(&db), statistics.ticker(Ticker::NumberKeysUpdated)), (1, 3));
            db.put(b"k", b"longer").unwrap();
            db.put(b"other", b"1").unwrap();
            assert_eq!((entries(&db), all(&db)), (3, "k=longer other=1".to_owned()));
            db.flush().unwrap();
            db.put(b"k", b"x").unwrap();
            assert_eq!((entries(&db), all(&db)), (1, "k=x other=1".to_owned()));
        }
    }
}

#[test]
fn what_was_deleted_since_is_not_overwritten() {
    let disk = Disk::new();
    let db = disk.open_with(&options(&disk));
    for delete in 0..3 {
        db.put(b"k", b"value").unwrap();
        match delete {
            0 => db.delete(b"k").unwrap(),
            1 => db.delete_range(b"j", b"l").unwrap(),
            _ => db.single_delete(b"k").unwrap(),
        }
        assert_eq!(all(&db), "");
        db.put(b"k", b"again").unwrap();
        assert_eq!(all(&db), "k=again");
        db.delete(b"k").unwrap();
    }
}

/// The value that was read stays what it was; an iterator shows the value of when it came there.
#[test]
fn values_that_were_read_do_not_change() {
    let disk = Disk::new();
    let db = disk.open_with(&options(&disk));
    db.put(b"k", b"old").unwrap();
    let pinned = db.get(b"k").unwrap().unwrap();
    let mut iter = db.iter().unwrap();
    assert!(iter.seek_to_first().unwrap());
    db.put(b"k", b"new").unwrap();
    assert_eq!((&*pinned, iter.value().unwrap()), (&b"old"[..], &b"old"[..]));
    drop(db);
    assert_eq!(&*pinned, b"old");
}

#[test]
fn concurrent_memtable_writes_and_snapshots_are_refused() {
    let disk = Disk::new();
    let mut concurrent = options(&disk);
    concurrent.db.set("allow_concurrent_memtable_write", "true").unwrap();
    refused(disk.try_open(&concurrent), Code::InvalidArgument, "allow_concurrent_memtable_write");

    let concurrent = Db::open(&Options::in_memory(), DIR).unwrap();
    let created = concurrent.create_column_family("in place", &options(&disk).cf);
    refused(created, Code::InvalidArgument, "allow_concurrent_memtable_write");

    let (plain, in_place) = (disk.options(), options(&disk));
    let families = [("default", &plain), ("in place", &in_place)];
    let families = families.map(|(name, options)| ColumnFamilyDescriptor::new(name, options.cf.clone()));
    let mut db_options = in_place.db.clone();
    db_options.create_missing_column_families = true;
    let db = Db::open_column_families(&db_options, DIR, families.to_vec()).unwrap();
    let cf = db.column_family("in place").unwrap();
    let mut iter = db.iter_cf(&ReadOptions::default(), &cf).unwrap();
    let snapshot = db.snapshot();
    let at = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() };
    let default = db.default_column_family();
    let named = "snapshots of column family \"in place\", which has inplace_update_support";
    refused(db.get_cf(&at, &cf, b"k"), Code::NotSupported, named);
    refused(db.iter_cf(&at, &cf), Code::NotSupported, named);
    refused(db.iters_cf(&at, &[default, &cf]), Code::NotSupported, named);
    refused(db.multi_get_cf(&at, &cf, &[b"k"]).remove(0), Code::NotSupported, named);
    refused(db.multi_get_across(&at, &[(default, b"k"), (&cf, b"k")]).remove(1), Code::NotSupported, named);
    refused(iter.refresh_at(&snapshot), Code::NotSupported, named);
    iter.refresh().unwrap();
    db.put(b"k", b"v").unwrap();
    assert!(db.get_cf(&at, default, b"k").unwrap().is_none());
}

#[test]
fn after_a_crash_the_newest_values_are_there() {
    let disk = Disk::new();
    let db = disk.open_with(&options(&disk));
    for round in 0..20 {
        let mut batch = WriteBatch::new();
        batch.put(b"a", format!("{:05}", 100 - round));
        batch.put(b"b", "x".repeat(20 - round));
        batch.put(b"b", "y".repeat(20 - round));
        db.write(&batch, &WriteOptions { sync: round == 12, ..WriteOptions::default() }).unwrap();
    }
    let after = disk.kill();
    assert_eq!(all(&after.open_with(&options(&after))), all(&db));
    // As others read it, who update nothing in place.
    let after = disk.lose_power();
    assert_eq!(all(&after.open()), format!("a=00088 b={}", "y".repeat(8)));
}

/// Batches of several threads put the same into two keys: one after the other, so at the end both are of one batch.
#[test]
fn writers_take_turns() {
    let disk = Disk::new();
    let db = disk.open_with(&options(&disk));
    let put = |round: usize, writer: usize| {
        let value = format!("{writer}").repeat(40 - round % 3);
        let mut batch = WriteBatch::new();
        batch.put(b"a", &value);
        batch.put(b"b", &value);
        db.write(&batch, &WriteOptions::default()).unwrap();
    };
    for round in 0..200 {
        std::thread::scope(|scope| {
            (0..3).for_each(|writer| {
                drop(scope.spawn(move || (0..3).for_each(|turn| put(round + turn, writer))))
            });
            scope.spawn(|| {
                for _ in 0..20 {
                    let value = get(&db, "b");
                    assert!(value.bytes().all(|byte| byte == value.as_bytes()[0]), "{value}");
                    let seen = forward(db.iter().unwrap());
                    let values = seen.split(' ').filter_map(|pair| pair.split_once('='));
                    values.for_each(|(_, value)| {
                        assert!(value.bytes().all(|byte| byte == value.as_bytes()[0]))
                    });
                }
            });
        });
        assert_eq!(get(&db, "a"), get(&db, "b"));
    }
}

/// Appends; a change that begins with `=` sets, `!` does nothing, `-` takes the last byte away in place.
struct Append;

impl InplaceCallback for Append {
    fn update(&self, existing: Option<&mut Vec<u8>>, delta: &[u8]) -> UpdateStatus {
        match (existing, delta) {
            (_, [b'=', value @ ..]) => UpdateStatus::Updated(value.to_vec()),
            (_, b"!") => UpdateStatus::UpdateFailed,
            (existing, b"-") => {
                existing.map(Vec::pop);
                UpdateStatus::UpdatedInPlace
            }
            (None, delta) => UpdateStatus::Updated(delta.to_vec()),
            (Some(existing), delta) => {
                existing.extend_from_slice(delta);
                UpdateStatus::UpdatedInPlace
            }
        }
    }
}

fn appending(disk: &Disk) -> Options {
    let mut options = options(disk);
    options.cf.inplace_callback = Some(Arc::new(Append));
    options
}

#[test]
fn a_callback_decides_what_a_put_makes_of_the_value() {
    let disk = Disk::new();
    let options = appending(&disk);
    let db = disk.open_with(&options);
    let put = |delta: &str, value: &str, number: u64| {
        db.put(b"k", delta).unwrap();
        assert_eq!((get(&db, "k").as_str(), entries(&db)), (value, number), "after {delta}");
    };
    put("!", "-", 0);
    put("-", "-", 0);
    put("ab", "ab", 1);
    put("!", "ab", 1);
    put("-", "a", 1);
    put("bc", "abc", 2);
    put("-", "ab", 2);
    put("=xyz", "xyz", 3);
    db.delete(b"k").unwrap();
    put("new", "new", 5);
    db.flush().unwrap();
    put("er", "newer", 1);
    put("-", "newe", 1);
    db.flush().unwrap();
    put("!", "newe", 0);
    put("-", "new", 1);
    // The log has the changes, which are made again.
    let after = disk.kill();
    let again = after.open_with(&options);
    assert_eq!(all(&again), "k=new");
    again.put(b"k", b"est").unwrap();
    again.close().unwrap();
    assert_eq!(all(&after.open_with(&options)), "k=newest");
}

/// Recovery writes tables in between, and the changes behind them find what these hold.
#[test]
fn changes_are_made_again_over_what_recovery_has_flushed() {
    let disk = Disk::new();
    let mut options = appending(&disk);
    options.cf.write_buffer_size = 1 << 20;
    let db = disk.open_with(&options);
    db.put(b"k", b"0").unwrap();
    db.flush().unwrap();
    for round in 1..40 {
        db.put(b"k", format!("{round}")).unwrap();
        db.put(format!("filler {round}"), vec![b'f'; 1000]).unwrap();
    }
    let (value, seen) = (get(&db, "k"), all(&db));
    assert!(value.starts_with("0123") && value.ends_with("3839"));
    let after = disk.kill();
    let mut small = options.clone();
    small.cf.write_buffer_size = 4 << 10;
    assert_eq!(all(&after.open_read_only(&small, &[]).unwrap()), seen);
    let other = ironstone::Db::open_secondary(
        &ironstone::options::DbOptions { env: after.env(), ..small.db.clone() },
        DIR,
        "/secondary",
        vec![ColumnFamilyDescriptor::new("default", small.cf.clone())],
    )
    .unwrap();
    assert_eq!(all(&other), seen);
    other.try_catch_up_with_primary().unwrap();
    assert_eq!(all(&other), seen);
    drop(other);
    let again = after.open_with(&small);
    assert!(again.live_files().len() > 2, "recovery wrote tables");
    assert_eq!(all(&again), seen);
}

/// The log has the change, and nobody could make it: writes stop, and the next opening makes it.
#[test]
fn a_change_whose_value_cannot_be_read_stops_writes() {
    let disk = Disk::new();
    let mut options = appending(&disk);
    options.cf.table.no_block_cache = true;
    let db = disk.open_with(&options);
    db.put(b"k", b"a").unwrap();
    db.flush().unwrap();
    drop(db);
    let db = disk.open_with(&options);
    disk.faults.add(FaultRule::error(FaultError::Io).on(&[OpKind::Read]).path(".sst").forever());
    disk.faults.arm();
    refused(db.put(b"k", b"b"), Code::IoError, ".sst");
    disk.faults.disarm();
    refused(db.put(b"k", b"c"), Code::IoError, ".sst");
    drop(db);
    assert_eq!(all(&disk.open_with(&options)), "k=ab");
}

#[test]
fn repair_refuses_to_make_changes_twice() {
    let disk = Disk::new();
    let options = appending(&disk);
    let db = disk.open_with(&options);
    db.put(b"k", b"a").unwrap();
    drop(db);
    let families = [ColumnFamilyDescriptor::new("default", options.cf.clone())];
    refused(Db::repair(&options.db, DIR, &families, None), Code::NotSupported, "inplace_callback");
    assert_eq!(all(&disk.open_with(&options)), "k=a");
}
