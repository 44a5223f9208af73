//! Checksums of single entries in memory: a bit that flips is an error, and never a wrong answer.
#![cfg(debug_assertions)] // Only then can bits be flipped.

use crate::disk::{Disk, all, fresh, get, refused};
use ironstone::planted::{self, Place};
use ironstone::{
    Code, ColumnFamily, Db, MemTableKind, Options, ReadOptions, SstFileWriter, WriteBatch, WriteOptions,
    merge_operators,
};

const MEMTABLE: &str = "memtable_protection_bytes_per_key";
const BLOCK: &str = "block_protection_bytes_per_key";

fn protected(disk: &Disk, kind: MemTableKind) -> Options {
    let mut options = disk.options();
    options.cf.memtable_factory = kind;
    options.cf.memtable_protection_bytes_per_key = 8;
    options.cf.merge_operator = Some(merge_operators::string_append(","));
    options
}

/// Puts it, with a bit that flips right behind it.
fn put_damaged(db: &Db, key: &str, value: &str, bit: usize) {
    planted::plant(Place::MemTable, bit);
    db.put(key, value).unwrap();
    assert!(!planted::is_waiting());
}

#[test]
fn every_flipped_bit_of_an_entry_is_an_error_of_every_read() {
    let disk = Disk::new();
    for kind in [MemTableKind::RadixTree, MemTableKind::SkipList, MemTableKind::Vector] {
        let db = disk.open_with(&protected(&disk, kind));
        for bit in 0..(5 + 8) * 8 {
            let key = format!("{kind:?}{bit:03}");
            put_damaged(&db, &key, "value", bit);
            let error = refused(db.get(&key).map(drop), Code::Corruption, MEMTABLE);
            assert!(error.to_string().contains("sequence number"), "{error}");
            let both = db.multi_get(&[key.as_str(), "other"]);
            refused(both.into_iter().next().unwrap().map(drop), Code::Corruption, MEMTABLE);
            let mut iter = db.iter().unwrap();
            refused(iter.seek(&key), Code::Corruption, MEMTABLE);
            db.put(&key, "again").unwrap();
            assert_eq!(get(&db, &key), "again", "the damaged one is not looked at");
        }
        refused(db.flush(), Code::Corruption, MEMTABLE);
        drop(db);
        assert!(all(&disk.open()).contains("RadixTree000=again"), "the log has it as it was written");
    }
}

#[test]
fn a_damaged_merge_operand_is_an_error() {
    let disk = Disk::new();
    let db = disk.open_with(&protected(&disk, MemTableKind::RadixTree));
    db.merge("k", "1").unwrap();
    planted::plant(Place::MemTable, 3);
    db.merge("k", "2").unwrap();
    db.merge("k", "3").unwrap();
    refused(db.get("k").map(drop), Code::Corruption, MEMTABLE);
}

#[test]
fn a_damaged_memtable_is_not_flushed_and_its_log_is_replayed() {
    let disk = Disk::new();
    let options = protected(&disk, MemTableKind::RadixTree);
    let db = disk.open_with(&options);
    db.put("a", "1").unwrap();
    put_damaged(&db, "b", "2", 0);
    db.put("c", "3").unwrap();
    let error = refused(db.flush(), Code::Corruption, MEMTABLE);
    println!("{error}");
    assert!(disk.files(".sst").is_empty());
    refused(db.put("d", "4"), Code::Corruption, MEMTABLE);
    assert_eq!(get(&db, "a"), "1");
    let disk = disk.kill();
    drop(db);
    assert_eq!(all(&disk.open_with(&options)), "a=1 b=2 c=3");
}

#[test]
fn without_the_option_nothing_is_stored_or_compared() {
    let (disk, db) = fresh();
    planted::plant(Place::MemTable, 0);
    db.put("a", "1").unwrap();
    assert!(planted::is_waiting());
    db.flush().unwrap();
    drop((db, disk));
}

#[test]
fn the_option_holds_from_the_next_memtable_on() {
    let (_disk, db) = fresh();
    db.put("a", "1").unwrap();
    db.set_options(&[(MEMTABLE, "4")]).unwrap();
    refused(db.set_options(&[(MEMTABLE, "3")]), Code::InvalidArgument, MEMTABLE);
    refused(db.set_options(&[(BLOCK, "16")]), Code::InvalidArgument, BLOCK);
    assert_eq!(get(&db, "a"), "1");
    db.flush().unwrap();
    put_damaged(&db, "b", "1", 9);
    refused(db.get("b").map(drop), Code::Corruption, MEMTABLE);
}

fn with_table(options: &Options, disk: &Disk) -> (Db, ColumnFamily) {
    let db = disk.open_with(options);
    for i in 0..300 {
        db.put(format!("key{i:04}"), format!("value{i:020}")).unwrap();
    }
    db.flush().unwrap();
    let cf = db.default_column_family().clone();
    (db, cf)
}

#[test]
fn a_flipped_bit_of_a_cached_block_is_an_error_of_every_read() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.block_protection_bytes_per_key = 1;
    options.db.paranoid_checks = false; // Tables are opened by the reads below.
    drop(with_table(&options, &disk));
    for bit in (0..4000 * 8).step_by(61) {
        let db = disk.open_with(&options);
        planted::plant(Place::DataBlock, bit);
        let key = "key0000";
        let error = refused(db.get(key).map(drop), Code::Corruption, BLOCK);
        assert!(error.to_string().contains(".sst: the cached data block at 0"), "{error}");
        refused(db.get(key).map(drop), Code::Corruption, BLOCK);
        refused(db.iter().unwrap().seek(key), Code::Corruption, BLOCK);
        let many = db.multi_get(&[key, "key0001"]);
        assert!(many.into_iter().all(|result| result.is_err_and(|error| error.code() == Code::Corruption)));
        assert!(get(&db, "key0299").starts_with("value"), "another block");
    }
    let db = disk.open_with(&options);
    planted::plant(Place::DataBlock, 100);
    let many = db.multi_get(&["key0000", "key0299"]);
    assert_eq!(many.into_iter().filter(|result| result.is_err()).count(), 1);
}

#[test]
fn a_flipped_bit_of_an_index_is_an_error() {
    for (cached, two_level) in [(false, false), (true, false), (true, true)] {
        let disk = Disk::new();
        let mut options = disk.options();
        options.cf.block_protection_bytes_per_key = 8;
        options.cf.table.cache_index_and_filter_blocks = cached;
        if two_level {
            options.cf.table.set("index_type", "kTwoLevelIndexSearch").unwrap();
            options.cf.table.metadata_block_size = 64;
        }
        options.db.paranoid_checks = false;
        drop(with_table(&options, &disk));
        let mut errors = 0;
        for bit in 0..24 {
            let db = disk.open_with(&options);
            planted::plant(Place::IndexBlock, bit);
            // What the search makes of it may lead elsewhere: but an answer that is given is right.
            for key in ["key0000", "key0150"] {
                match db.get(key) {
                    Ok(value) => assert_eq!(value.map(|v| v.len()), Some(25), "{key}, bit {bit}"),
                    Err(error) => {
                        assert!(error.to_string().contains(BLOCK), "{error}");
                        errors += 1;
                    }
                }
            }
            assert!(!planted::is_waiting());
        }
        assert!(errors >= 24, "{errors} of 24 flips");
    }
}

#[test]
fn batches_keep_their_checksums_through_save_points_and_appending() {
    let (_disk, db) = fresh();
    let cf = db.default_column_family();
    let mut plain = WriteBatch::new();
    plain.put("plain", "1");
    let mut batch = WriteBatch::with_protection(8).unwrap();
    batch.put_cf(cf, "a", "1");
    batch.set_save_point();
    batch.delete("b");
    batch.single_delete("c");
    batch.rollback_to_save_point().unwrap();
    batch.put_log_data(b"log");
    batch.delete_range("x", "y");
    batch.append(&plain);
    batch.append(&batch.clone());
    batch.verify_checksum().unwrap();
    assert_eq!(batch.count(), 6);
    db.write(&batch, &WriteOptions::default()).unwrap();
    assert_eq!(all(&db), "a=1 plain=1");
    batch.clear();
    batch.put("again", "1");
    db.write(&batch, &WriteOptions::default()).unwrap();

    let guarded = |bytes| WriteOptions { protection_bytes_per_key: bytes, ..WriteOptions::default() };
    db.put_cf(&guarded(8), cf, "b", "2").unwrap();
    db.write(&plain, &guarded(8)).unwrap();
    for bytes in [1, 4, 16] {
        refused(db.put_cf(&guarded(bytes), cf, "c", "3"), Code::InvalidArgument, "has to be 0 or 8");
        refused(WriteBatch::with_protection(bytes), Code::InvalidArgument, "has to be 0 or 8");
    }
    assert_eq!(all(&db), "a=1 again=1 b=2 plain=1");
    assert!(db.get_cf(&ReadOptions::default(), cf, "c").unwrap().is_none());
}

/// Each bit of where a range tombstone begins: whatever rests on it is an error, and the log has it as it was.
#[test]
fn a_flipped_bit_of_a_range_tombstone_is_an_error() {
    for bit in 0..8 {
        let disk = Disk::new();
        let options = protected(&disk, MemTableKind::RadixTree);
        let db = disk.open_with(&options);
        for key in ["a", "k", "z"] {
            db.put(key, "1").unwrap();
        }
        db.delete_range("x", "z").unwrap();
        assert_eq!(all(&db), "a=1 k=1 z=1");
        planted::plant(Place::RangeTombstone, bit);
        db.delete_range("j", "l").unwrap();
        assert!(!planted::is_waiting());
        refused(db.get("k").map(drop), Code::Corruption, "a range tombstone does not match its checksum");
        refused(db.multi_get(&["k"]).remove(0).map(drop), Code::Corruption, MEMTABLE);
        refused(db.iter().map(drop), Code::Corruption, MEMTABLE);
        db.delete_range("b", "c").unwrap(); // Put together with the damaged one, which it does not heal.
        refused(db.get("k").map(drop), Code::Corruption, MEMTABLE);
        refused(db.flush(), Code::Corruption, MEMTABLE);
        let disk = disk.kill();
        drop(db);
        assert_eq!(all(&disk.open_with(&options)), "a=1 z=1");
    }
}

#[test]
fn a_range_tombstone_keeps_the_checksum_of_its_batch() {
    let disk = Disk::new();
    let db = disk.open_with(&protected(&disk, MemTableKind::RadixTree));
    let with_checksums = WriteOptions { protection_bytes_per_key: 8, ..WriteOptions::default() };
    for number in 0..30 {
        let (begin, end) = (format!("b{number:02}"), format!("c{number:02}"));
        db.put(&begin, "1").unwrap();
        db.delete_range_cf(&with_checksums, db.default_column_family(), begin, end).unwrap();
    }
    db.put("z", "1").unwrap();
    assert_eq!((all(&db).as_str(), get(&db, "b05").as_str(), get(&db, "z").as_str()), ("z=1", "-", "1"));
    db.flush().unwrap();
    assert_eq!(all(&db), "z=1");
}

/// Without checksums: a key that changed stands where it does not belong.
#[test]
fn keys_out_of_order_are_an_error_with_paranoid_memory_checks() {
    for kind in [MemTableKind::RadixTree, MemTableKind::SkipList] {
        for paranoid in [false, true] {
            let disk = Disk::new();
            let mut options = disk.options();
            options.cf.memtable_factory = kind;
            options.cf.paranoid_memory_checks = paranoid;
            let db = disk.open_with(&options);
            for key in ["a", "b", "d", "e"] {
                db.put(key, "1").unwrap();
            }
            planted::plant(Place::MemTableKey, 4); // c becomes s.
            db.put("c", "1").unwrap();
            assert!(!planted::is_waiting());
            if !paranoid {
                assert_eq!(get(&db, "c"), "-");
                continue;
            }
            let what = "is out of order (paranoid_memory_checks)";
            refused(db.get("c").map(drop), Code::Corruption, what);
            refused(db.multi_get(&["c"]).remove(0).map(drop), Code::Corruption, what);
            refused(db.iter().unwrap().seek("c"), Code::Corruption, what);
            let mut iter = db.iter().unwrap();
            let mut forward = iter.seek_to_first();
            while forward.as_ref().is_ok_and(|more| *more) {
                forward = iter.next();
            }
            refused(forward, Code::Corruption, what);
            let mut backward = iter.seek_to_last();
            while backward.as_ref().is_ok_and(|more| *more) {
                backward = iter.prev();
            }
            refused(backward, Code::Corruption, what);
            assert_eq!(get(&db, "a"), "1");
            refused(db.flush(), Code::Corruption, what);
        }
    }
}

/// A key that changed and still stands in order: a search for what it was finds nothing, unless it compares checksums.
#[test]
fn searches_compare_the_checksums_on_their_way_if_asked() {
    for kind in [MemTableKind::RadixTree, MemTableKind::SkipList, MemTableKind::Vector] {
        for on_seek in [false, true] {
            let disk = Disk::new();
            let mut options = protected(&disk, kind);
            options.cf.memtable_verify_per_key_checksum_on_seek = on_seek;
            let db = disk.open_with(&options);
            db.put("a", "1").unwrap();
            planted::plant(Place::MemTableKey, 8); // cc becomes cb.
            db.put("cc", "1").unwrap();
            db.put("d", "1").unwrap();
            match on_seek {
                false => assert_eq!(get(&db, "cc"), "-"),
                true => drop(refused(db.get("cc").map(drop), Code::Corruption, MEMTABLE)),
            }
            refused(db.iter().unwrap().seek("b"), Code::Corruption, MEMTABLE);
        }
    }
}

/// All checks at once find nothing where nothing is wrong.
#[test]
fn checks_of_order_and_checksums_find_nothing_wrong() {
    for kind in [MemTableKind::RadixTree, MemTableKind::SkipList, MemTableKind::Vector] {
        let disk = Disk::new();
        let mut options = protected(&disk, kind);
        options.cf.paranoid_memory_checks = true;
        options.cf.memtable_verify_per_key_checksum_on_seek = true;
        let db = disk.open_with(&options);
        for number in 0..300 {
            let key = format!("{}", number * 7 % 101);
            match number % 5 {
                0 => db.delete(&key).unwrap(),
                1 => db.merge(&key, "m").unwrap(),
                _ => db.put(&key, number.to_string()).unwrap(),
            }
            db.get(&key).unwrap();
            db.get(format!("{key}0")).unwrap();
            db.iter().unwrap().seek_for_prev(&key).unwrap();
        }
        let before = all(&db);
        assert_eq!(crate::disk::backward(db.iter().unwrap()).split(' ').count(), before.split(' ').count());
        db.flush().unwrap();
        assert_eq!(all(&db), before);
    }
}

#[test]
fn a_filter_that_lacks_a_key_is_not_written() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.table.set("filter_policy", "bloomfilter:10").unwrap();
    options.cf.table.detect_filter_construct_corruption = true;
    options.cf.table.set("index_type", "kTwoLevelIndexSearch").unwrap();
    for partitioned in [false, true] {
        options.cf.table.partition_filters = partitioned;
        for place in [Place::FilterHashes, Place::Filter] {
            let mut writer = SstFileWriter::new(&options);
            writer.open("/filtered.sst").unwrap();
            (0..50).for_each(|i| writer.put(format!("key{i:02}").as_bytes(), b"value").unwrap());
            // Whatever bit of a filter is one: some of these.
            let error = (0..64).find_map(|bit| {
                planted::plant(place, bit);
                let error = writer.finish().err();
                if error.is_none() {
                    writer = SstFileWriter::new(&options);
                    writer.open("/filtered.sst").unwrap();
                    (0..50).for_each(|i| writer.put(format!("key{i:02}").as_bytes(), b"value").unwrap());
                }
                error
            });
            let error = error.expect("no flip was told");
            assert_eq!(error.code(), Code::Corruption);
            assert!(
                error.to_string().contains("/filtered.sst")
                    && error.to_string().contains("filter construction"),
                "{error}"
            );
        }
    }
}
