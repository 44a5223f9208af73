//! The built-in merge operators: RocksDB and Ironstone merge in turn, on top of what the other one left in WAL and tables, and read
//! the same.
//!
//! Not here: `AggMergeOperator.v1` and `CassandraValueMergeOperator`, which no release that we test with makes from a name; its own
//! tests register them. (uint64add: `features.rs`.)

use ironstone::{CompactRangeOptions, Db, Options, WriteBatch, WriteOptions};
use ironstone_compat::directory::Scratch;
use ironstone_compat::session::{SESSIONS, Session, hex};
use std::collections::BTreeMap;
use std::path::Path;

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// An operator, its text, and operand `n`.
struct Operator {
    text: &'static str,
    operand: fn(u32) -> Vec<u8>,
}

const OPERATORS: [Operator; 7] = [
    Operator { text: "stringappend", operand: words },
    Operator { text: "{id=StringAppendOperator;delimiter=|}", operand: words },
    Operator { text: "stringappendtest", operand: words },
    Operator { text: "{id=StringAppendTESTOperator;delimiter=--}", operand: words },
    Operator { text: "put", operand: words },
    Operator { text: "max", operand: words },
    Operator { text: "bytesxor", operand: bytes },
];

/// Empty ones, and such as others begin with.
fn words(n: u32) -> Vec<u8> {
    match n % 7 {
        0 => Vec::new(),
        1 => b"w".repeat((n % 50) as usize),
        _ => format!("w{}", n * 31 % 97).into_bytes(),
    }
}

fn bytes(n: u32) -> Vec<u8> {
    (0..n * 5 % 23).map(|i| (n * 37 + i * 11) as u8).collect()
}

#[derive(Clone, Copy)]
enum Kind {
    Put,
    Merge,
    Delete,
}

/// What a batch does. Most keys get several operands in a row, some of them on top of a value or of a deletion.
fn changes(operator: &Operator, round: u32) -> Vec<(String, Kind, Vec<u8>)> {
    let change = |i: u32| {
        let kind = match (i * 3 + round) % 11 {
            0 => Kind::Put,
            1 if round > 0 => Kind::Delete,
            _ => Kind::Merge,
        };
        (format!("key{:02}", (i * 7 + round) % 20), kind, (operator.operand)(i + round * 60))
    };
    (0..60).map(change).collect()
}

fn write_theirs(rocksdb: &mut Session, operator: &Operator, round: u32) {
    let part = |(key, kind, value): (String, Kind, Vec<u8>)| {
        let (key, value) = (hex(key.as_bytes()), hex(&value));
        match kind {
            Kind::Put => format!(" put:{key}:{value}"),
            Kind::Merge => format!(" merge:{key}:{value}"),
            Kind::Delete => format!(" delete:{key}"),
        }
    };
    rocksdb.run(&format!("write{}", changes(operator, round).into_iter().map(part).collect::<String>()));
}

fn write_ours(db: &Db, operator: &Operator, round: u32) {
    let mut batch = WriteBatch::new();
    for (key, kind, value) in changes(operator, round) {
        match kind {
            Kind::Put => batch.put(key, value),
            Kind::Merge => batch.merge(key, value),
            Kind::Delete => batch.delete(key),
        }
    }
    db.write(&batch, &WriteOptions::default()).unwrap();
}

fn open(dir: &Path, cf: &str) -> Db {
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.cf.update(cf).unwrap();
    Db::open(&options, dir).unwrap()
}

fn read_ours(dir: &Path, cf: &str) -> Contents {
    let copy = Scratch::copy_of(dir);
    let db = open(&copy.db(), cf);
    let entries = db.iter().unwrap().entries();
    let found: Contents =
        entries.map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect();
    for (key, value) in &found {
        assert_eq!(db.get(key).unwrap().expect("the iterator has it"), value);
    }
    found
}

fn read_theirs(rocksdb: &mut Session, dir: &Path, cf: &str) -> Contents {
    let copy = Scratch::copy_of(dir);
    rocksdb.run(&format!("open {} {cf}", copy.db().display()));
    let found: Contents = rocksdb.entries().into_iter().collect();
    for (key, value) in &found {
        let answer = rocksdb.run(&format!("get {}", hex(key)));
        let value = if value.is_empty() { "-".to_owned() } else { hex(value) };
        assert_eq!(answer, [value]);
    }
    rocksdb.run("close");
    found
}

/// Writes a round on top of what is in `dir`; what is not flushed stays in the WAL.
fn turn(rocksdb: Option<&mut Session>, dir: &Path, cf: &str, operator: &Operator, round: u32, after: &str) {
    match rocksdb {
        Some(rocksdb) => {
            rocksdb.run(&format!("open {} {cf}", dir.display()));
            write_theirs(rocksdb, operator, round);
            if after != "none" {
                rocksdb.run(after);
            }
            rocksdb.run("close");
        }
        None => {
            let db = open(dir, cf);
            write_ours(&db, operator, round);
            if after != "none" {
                db.flush().unwrap();
            }
            if after == "compact" {
                compact(&db);
            }
            db.close().unwrap();
        }
    }
}

fn compact(db: &Db) {
    db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None).unwrap();
}

fn both_ways(operator: &Operator) {
    let table = "block_based_table_factory={format_version=5}";
    let on_writing = "max_successive_merges=2"; // Memtables have what was merged already.
    for release in SESSIONS {
        let Some(mut rocksdb) = Session::start(release) else { return };
        for (after, rocksdb_first, more) in [
            ("none", true, ""),
            ("none", false, on_writing),
            ("flush", true, on_writing),
            ("flush", false, ""),
            ("compact", true, ""),
            ("compact", false, on_writing),
        ] {
            let cf = format!("merge_operator={};{table};{more}", operator.text);
            let (scratch, mut before) = (Scratch::new(), Contents::new());
            for round in 0..4 {
                let is_theirs = (round % 2 == 0) == rocksdb_first;
                turn(is_theirs.then_some(&mut rocksdb), &scratch.db(), &cf, operator, round, after);
                let what =
                    format!("{release:?}, {cf}, after {after}, rocksdb_first={rocksdb_first}, round {round}");
                let ours = read_ours(&scratch.db(), &cf);
                assert_eq!(ours, read_theirs(&mut rocksdb, &scratch.db(), &cf), "{what}");
                assert!(ours != before && ours.len() > 10, "{what}: {ours:?}");
                before = ours;
            }
        }
    }
}

#[test]
fn operators_merge_what_the_other_side_left() {
    OPERATORS.iter().for_each(both_ways);
}

/// RocksDB's sortlist reads beyond the ends of what it is given, so that the process ends with the first operands that a flush has
/// put together: it must not be asked to merge. What it stores is merged here, and what was merged here is a value to it.
#[test]
fn sorted_lists_that_rocksdb_stored_are_merged() {
    let cf =
        "merge_operator=sortlist;disable_auto_compactions=true;block_based_table_factory={format_version=5}";
    for release in SESSIONS {
        let Some(mut rocksdb) = Session::start(release) else { return };
        let scratch = Scratch::new();
        rocksdb.run(&format!("open {} {cf}", scratch.db().display()));
        for list in ["5,9", "1,7,200", "-3,6"] {
            rocksdb.run(&format!("write merge:{}:{}", hex(b"list"), hex(list.as_bytes())));
            rocksdb.run("flush");
        }
        rocksdb.run(&format!("write merge:{}:{}", hex(b"one"), hex(b"4,5")));
        rocksdb.run("close");
        let expected = [("list", "-3,1,5,6,7,9,200"), ("one", "4,5")];
        let expected = expected.map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec()));
        assert_eq!(read_ours(&scratch.db(), cf), Contents::from(expected.clone()), "{release:?}");
        let db = open(&scratch.db(), cf);
        db.flush().unwrap();
        compact(&db);
        db.close().unwrap();
        assert_eq!(read_theirs(&mut rocksdb, &scratch.db(), cf), Contents::from(expected), "{release:?}");
    }
}
