//! Write batches in the wire format, as the WAL has them and as applications may hand them in.
//!
//! ```text
//! shape  u8   bit 0: also write it to a database
//! batch  the rest
//! ```
//! Reading ends; what was read comes back when it is written and read again. A database takes such a batch as a
//! whole, and then has what an ordered map has, or refuses it and is unchanged.

use super::{Seed, Target};
use crate::directory;
use crate::input::{Input, MAX_INPUT};
use crate::judge::{Steps, check_error};
use ironstone::{BatchRecord, ColumnFamilyId, Db, Options, WriteBatch, WriteOptions};
use std::collections::BTreeMap;

pub(super) const TARGET: Target =
    Target { name: "write_batch", what: "write batches in the wire format", run, seeds, mutations: 8_000 };

fn run(bytes: &[u8]) {
    let mut input = Input::new(&bytes[..bytes.len().min(MAX_INPUT)]);
    let to_database = input.flag();
    let bytes = input.rest();
    let batch = match WriteBatch::from_data(bytes.to_vec()) {
        Ok(batch) => batch,
        Err(error) => {
            assert!(bytes.len() < 12, "{error}");
            return check_error(&error, None);
        }
    };
    assert_eq!(batch.data(), bytes);
    let (records, error) = read(&batch, bytes.len());
    if let Some(error) = &error {
        check_error(error, None);
    }
    check_again(&records);
    if to_database {
        check_written(&batch, &records, error.is_none());
    }
}

fn read(batch: &WriteBatch, len: usize) -> (Vec<BatchRecord<'_>>, Option<ironstone::Error>) {
    let mut steps = Steps::new("reading a batch", len);
    let mut records = Vec::new();
    let mut iter = batch.iter();
    while let Some(record) = iter.next() {
        steps.take();
        match record {
            Ok(record) => records.push(record),
            Err(error) => {
                assert!(iter.next().is_none(), "a batch goes on behind an error");
                return (records, Some(error));
            }
        }
    }
    (records, None)
}

/// Writes the records that can be written into a new batch and reads that.
fn check_again(records: &[BatchRecord<'_>]) {
    let mut again = WriteBatch::new();
    let mut expected = Vec::new();
    for record in records {
        match *record {
            BatchRecord::Put { cf, key, value } => again.put_in(cf, key, value),
            BatchRecord::Delete { cf, key } => again.delete_in(cf, key),
            BatchRecord::SingleDelete { cf, key } => again.single_delete_in(cf, key),
            BatchRecord::LogData(blob) => again.put_log_data(blob),
            BatchRecord::Merge { .. } | BatchRecord::DeleteRange { .. } | BatchRecord::Noop => continue,
        }
        expected.push(*record);
    }
    let (found, error) = read(&again, again.size_bytes());
    assert!(error.is_none(), "{error:?}");
    assert!(found == expected, "records do not come back");
}

fn check_written(batch: &WriteBatch, records: &[BatchRecord<'_>], is_whole: bool) {
    let mut options = Options::in_memory();
    directory::make_small(&mut options.db, &mut options.cf);
    let db = Db::open(&options, "/db").expect("an empty database in memory");
    db.put(b"before", b"1").expect("memory does not fail");
    let mut expected = BTreeMap::from([(b"before".to_vec(), b"1".to_vec())]);
    match db.write(batch, &WriteOptions::default()) {
        Ok(()) => {
            assert!(is_whole, "a batch was written that cannot be read");
            for record in records {
                match *record {
                    BatchRecord::Put { cf: ColumnFamilyId(0), key, value } => {
                        expected.insert(key.to_vec(), value.to_vec());
                    }
                    BatchRecord::Delete { cf: ColumnFamilyId(0), key }
                    | BatchRecord::SingleDelete { cf: ColumnFamilyId(0), key } => {
                        expected.remove(key);
                    }
                    _ => {}
                }
            }
        }
        Err(error) => check_error(&error, None),
    }
    // A single delete of what was put several times may show any of the values.
    let single = records.iter().any(|record| matches!(record, BatchRecord::SingleDelete { .. }));
    if !single {
        let found = directory::scan(&db, db.default_column_family()).expect("memory does not fail");
        assert!(found == expected, "the database has {found:?}, the map {expected:?}");
    }
    // The sequence numbers still follow each other.
    db.put(b"after", b"2").expect("a refused batch does not stop writes");
    assert_eq!(db.get(b"after").expect("memory does not fail").as_deref(), Some(&b"2"[..]));
    db.close().expect("memory does not fail");
}

fn seeds() -> Vec<Seed> {
    let mut batch = WriteBatch::new();
    batch.put(b"key", b"value");
    batch.delete(b"other");
    batch.put_in(ColumnFamilyId(7), b"elsewhere", b"v");
    batch.single_delete(b"key");
    batch.put_log_data(b"for whoever reads the log");
    let mut small = WriteBatch::new();
    small.put(b"a", b"1");
    small.put(b"b", b"");
    small.delete(b"before");
    let mut seeds = Vec::new();
    for (name, batch) in [("many", &batch), ("small", &small), ("empty", &WriteBatch::new())] {
        for to_database in [0, 1] {
            let bytes = [&[to_database][..], batch.data()].concat();
            seeds.push(Seed::new(format!("{name}_{to_database}"), bytes));
        }
    }
    // A count that is not the number of records.
    for count in [0u32, 1, 100, u32::MAX] {
        let mut bytes = [&[1][..], small.data()].concat();
        bytes[9..13].copy_from_slice(&count.to_le_bytes());
        seeds.push(Seed::new(format!("count_{count}"), bytes));
    }
    // Each type of record that there is, with something behind it.
    for kind in 0..0x20u8 {
        let bytes = [&[1][..], &[0; 8], &[1, 0, 0, 0], &[kind, 1, b'k', 1, b'v', 1, b'x']].concat();
        seeds.push(Seed::new(format!("type_{kind:02x}"), bytes));
    }
    seeds
}
