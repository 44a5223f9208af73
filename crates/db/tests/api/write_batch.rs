//! Batches: all or nothing, in order.

use crate::disk::{Disk, all, fresh, get, refused};
use ironstone::{Code, ColumnFamilyId, WriteBatch, WriteOptions};

#[test]
fn later_records_of_a_batch_win() {
    let (disk, db) = fresh();
    let mut batch = WriteBatch::new();
    batch.put("a", "1");
    batch.delete("a");
    batch.put("b", "1");
    batch.put("b", "2");
    batch.delete("c");
    batch.put("c", "3");
    batch.put("d", "4");
    batch.single_delete("d");
    db.write(&batch, &WriteOptions::default()).unwrap();
    assert_eq!(all(&db), "b=2 c=3");
    assert_eq!(db.latest_sequence().0, 8, "each record has a number of its own");
    let after = disk.kill();
    assert_eq!(all(&after.open()), "b=2 c=3");
}

#[test]
fn rolled_back_records_are_not_written() {
    let (_disk, db) = fresh();
    let mut batch = WriteBatch::new();
    batch.put("a", "1");
    batch.set_save_point();
    batch.put("b", "1");
    batch.delete("a");
    batch.rollback_to_save_point().unwrap();
    batch.put("c", "1");
    db.write(&batch, &WriteOptions::default()).unwrap();
    assert_eq!(all(&db), "a=1 c=1");
    refused(batch.rollback_to_save_point(), Code::NotFound, "save point");
}

#[test]
fn an_empty_batch_and_one_of_log_data_change_nothing_and_can_be_synced() {
    let (disk, db) = fresh();
    db.put("k", "v").unwrap();
    let before = db.latest_sequence();
    db.write(&WriteBatch::new(), &WriteOptions::synced()).unwrap();
    let mut batch = WriteBatch::new();
    batch.put_log_data(b"for whoever reads the log");
    db.write(&batch, &WriteOptions::synced()).unwrap();
    assert_eq!(db.latest_sequence(), before);
    let db = disk.lose_power().open();
    assert_eq!(all(&db), "k=v");
}

#[test]
fn a_batch_can_be_written_again_and_reused() {
    let (_disk, db) = fresh();
    let mut batch = WriteBatch::new();
    batch.put("k", "1");
    db.write(&batch, &WriteOptions::default()).unwrap();
    db.put("k", "2").unwrap();
    db.write(&batch, &WriteOptions::default()).unwrap();
    assert_eq!(get(&db, "k"), "1");
    batch.clear();
    batch.put("other", "3");
    db.write(&batch, &WriteOptions::default()).unwrap();
    assert_eq!(all(&db), "k=1 other=3");
}

#[test]
fn a_batch_from_its_own_bytes_is_the_same() {
    let (_disk, db) = fresh();
    let mut batch = WriteBatch::new();
    batch.put("a", "1");
    batch.delete("b");
    let copy = WriteBatch::from_data(batch.data().to_vec()).unwrap();
    assert_eq!(copy.count(), 2);
    let mut both = WriteBatch::new();
    both.put("b", "2");
    both.append(&copy);
    db.write(&both, &WriteOptions::default()).unwrap();
    assert_eq!(all(&db), "a=1");
}

/// What cannot be applied is refused before anything is logged: no reopening ever meets it.
#[test]
fn a_batch_that_cannot_be_applied_leaves_no_trace() {
    let (disk, db) = fresh();
    let options = WriteOptions::default();
    let mut unknown = WriteBatch::new();
    unknown.put("mine", "1");
    unknown.put_in(ColumnFamilyId(77), b"k", b"v");
    refused(db.write(&unknown, &options), Code::InvalidArgument, "77");

    let mut good = WriteBatch::new();
    good.put("mine", "1");
    good.put("second", "2");
    for len in 12..good.size_bytes() {
        let cut = WriteBatch::from_data(good.data()[..len].to_vec()).unwrap();
        assert!(db.write(&cut, &options).is_err(), "cut at {len}");
    }
    assert!(WriteBatch::from_data(good.data()[..11].to_vec()).is_err());
    let mut miscounted = good.data().to_vec();
    miscounted[8] = 7;
    let miscounted = WriteBatch::from_data(miscounted).unwrap();
    refused(db.write(&miscounted, &options), Code::Corruption, "write batch");

    let record = |kind: u8| {
        let mut bytes = vec![0; 12];
        bytes[8] = 1;
        bytes.extend([kind, 1, b'k', 1, b'v']);
        WriteBatch::from_data(bytes).unwrap()
    };
    refused(db.write(&record(0x02), &options), Code::NotSupported, "merge");
    refused(db.write(&record(0x11), &options), Code::NotSupported, "blob files");
    refused(db.write(&record(0x7e), &options), Code::Corruption, "write batch");

    assert_eq!(all(&db), "");
    db.put("k", "v").unwrap();
    drop(db);
    assert_eq!(all(&disk.open()), "k=v");
}

#[test]
fn a_batch_may_be_larger_than_a_memtable_and_a_wal_block() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.write_buffer_size = 16 << 10;
    let db = disk.open_with(&options);
    let mut batch = WriteBatch::new();
    for number in 0..1000 {
        batch.put(format!("k{number:04}"), "v".repeat(200));
    }
    batch.put("large", vec![7; 100_000]);
    db.write(&batch, &WriteOptions::synced()).unwrap();
    let killed = disk.lose_power();
    for db in [db, killed.open_with(&options)] {
        assert_eq!(get(&db, "k0999"), "v".repeat(200));
        assert_eq!(db.get("large").unwrap().unwrap().len(), 100_000);
        db.put("after", "1").unwrap();
        db.flush().unwrap();
        assert_eq!(db.iter().unwrap().entries().count(), 1002);
    }
}
