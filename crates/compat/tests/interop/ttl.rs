//! TTL databases: RocksDB's DBWithTTL and ours open what the other one wrote, go on writing, and let go what is expired.

use ironstone::merge_operators::builtin;
use ironstone::vfs::{Clock, ManualClock, SystemClock};
use ironstone::{
    CompactRangeOptions, Db, ExpiredReads, Options, StackableDb, TtlDb, WriteBatch, WriteOptions,
};
use ironstone_compat::directory::{Scratch, files};
use ironstone_compat::session::{SESSIONS, Session, hex};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const OPTIONS: &str = "merge_operator=stringappend;block_based_table_factory={format_version=5}";
const TTL: u32 = 600;
const LONG: u64 = 3_600;

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a turn writes: a put, a merge, or nothing for a deletion.
enum Change {
    Put(String),
    Merge(String),
    Delete,
}

fn changes(turn: u32) -> Vec<(String, Change)> {
    let change = |i: u32| match (i + turn) % 5 {
        0 if turn > 0 => Change::Delete,
        1 | 2 => Change::Merge(format!("m{turn}")),
        _ => Change::Put("v".repeat((i * 7 % 40) as usize) + &format!("{i} of {turn}")),
    };
    (0..60).map(|i| (format!("key{:02}", i * (turn + 3) % 60), change(i))).collect()
}

fn apply(contents: &mut Contents, turn: u32) {
    for (key, change) in changes(turn) {
        match change {
            Change::Put(value) => drop(contents.insert(key.into(), value.into())),
            Change::Delete => drop(contents.remove(key.as_bytes())),
            Change::Merge(operand) => {
                let value = contents
                    .remove(key.as_bytes())
                    .map_or_else(Vec::new, |value| [&value, &b","[..]].concat());
                contents.insert(key.into(), [&value, operand.as_bytes()].concat());
            }
        }
    }
}

fn options() -> Options {
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.cf.merge_operator = builtin("stringappend");
    options.cf.update("block_based_table_factory={format_version=5}").unwrap();
    options
}

/// Ours, at a time that is so many seconds off.
fn open_at(dir: &Path, seconds_off: i64, ttl: u32, expired: ExpiredReads) -> TtlDb {
    let mut options = options();
    let now = SystemClock::default().now_micros();
    options.db.env.clock = Arc::new(ManualClock::new(now.saturating_add_signed(seconds_off * 1_000_000)));
    TtlDb::open(&options, dir, ttl, expired).unwrap()
}

fn open(dir: &Path) -> TtlDb {
    TtlDb::open(&options(), dir, TTL, ExpiredReads::Hidden).unwrap()
}

fn entries(db: &TtlDb) -> Contents {
    let mut found = Contents::new();
    let mut iter = db.iter().unwrap();
    iter.seek_to_first().unwrap();
    while let (Some(key), Some(value)) = (iter.key(), iter.value()) {
        found.insert(key.to_vec(), value.to_vec());
        iter.next().unwrap();
    }
    for (key, value) in &found {
        assert_eq!(db.get(key).unwrap().expect("the iterator has it"), *value);
    }
    found
}

fn compact(db: &TtlDb) {
    db.flush().unwrap();
    db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None).unwrap();
}

fn write_ours(db: &TtlDb, turn: u32) {
    let mut batch = WriteBatch::new();
    for (key, change) in changes(turn) {
        match change {
            Change::Put(value) => batch.put(key, value),
            Change::Merge(operand) => batch.merge(key, operand),
            Change::Delete => batch.delete(key),
        }
    }
    db.write(&batch, &WriteOptions::default()).unwrap();
}

fn write_theirs(rocksdb: &mut Session, turn: u32) {
    let mut step = "write".to_owned();
    for (key, change) in changes(turn) {
        let key = hex(key.as_bytes());
        step += &match change {
            Change::Put(value) => format!(" put:{key}:{}", hex(value.as_bytes())),
            Change::Merge(operand) => format!(" merge:{key}:{}", hex(operand.as_bytes())),
            Change::Delete => format!(" delete:{key}"),
        };
    }
    rocksdb.run(&step);
}

fn open_theirs(rocksdb: &mut Session, dir: &Path, ttl: u32) {
    rocksdb.run(&format!("open_with_ttl {} {ttl} {OPTIONS}", dir.display()));
}

#[test]
fn each_goes_on_with_what_the_other_one_wrote() {
    for release in SESSIONS {
        for rocksdb_first in [true, false] {
            let Some(mut rocksdb) = Session::start(release) else { return };
            let (scratch, mut expected) = (Scratch::new(), Contents::new());
            for turn in 0..6 {
                apply(&mut expected, turn);
                if (turn % 2 == 0) == rocksdb_first {
                    open_theirs(&mut rocksdb, &scratch.db(), TTL);
                    write_theirs(&mut rocksdb, turn);
                    match turn / 2 {
                        0 => {} // In the WAL alone.
                        1 => drop(rocksdb.run("flush")),
                        _ => drop(rocksdb.run("compact")),
                    }
                    rocksdb.run("close");
                } else {
                    let db = open(&scratch.db());
                    write_ours(&db, turn);
                    match turn / 2 {
                        0 => {}
                        1 => db.flush().unwrap(),
                        _ => compact(&db),
                    }
                    db.close().unwrap();
                }
                let copies = [Scratch::copy_of(&scratch.db()), Scratch::copy_of(&scratch.db())];
                assert_eq!(entries(&open(&copies[0].db())), expected, "{release:?}, turn {turn}");
                open_theirs(&mut rocksdb, &copies[1].db(), TTL);
                let theirs: Contents = rocksdb.entries().into_iter().collect();
                rocksdb.run("close");
                assert_eq!(theirs, expected, "{release:?}, turn {turn}");
            }
        }
    }
}

/// The entries of a database of one kind, with the timestamps that a TTL database sees nothing of.
fn stamped(dir: &Path) -> Contents {
    let copy = Scratch::copy_of(dir);
    let db = Db::open(&options(), copy.db()).unwrap();
    db.iter()
        .unwrap()
        .entries()
        .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
        .collect()
}

#[test]
fn rocksdb_lets_go_what_we_wrote_long_ago() {
    for release in SESSIONS {
        let Some(mut rocksdb) = Session::start(release) else { return };
        let scratch = Scratch::new();
        let long_ago = open_at(&scratch.db(), -(LONG as i64), TTL, ExpiredReads::Hidden);
        long_ago.put("old", "1").unwrap();
        long_ago.put("both", "1").unwrap();
        long_ago.flush().unwrap();
        long_ago.close().unwrap();
        let now = open(&scratch.db());
        now.put("both", "2").unwrap();
        now.put("young", "2").unwrap();
        now.close().unwrap();

        open_theirs(&mut rocksdb, &scratch.db(), TTL);
        let all = [("both", "2"), ("old", "1"), ("young", "2")];
        let found = |rocksdb: &mut Session| {
            let text = |bytes| String::from_utf8(bytes).unwrap();
            rocksdb.entries().into_iter().map(|(key, value)| (text(key), text(value))).collect::<Vec<_>>()
        };
        let owned = |all: &[(&str, &str)]| {
            all.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect::<Vec<_>>()
        };
        assert_eq!(found(&mut rocksdb), owned(&all), "{release:?}: until a compaction");
        rocksdb.run("compact");
        assert_eq!(found(&mut rocksdb), owned(&[all[0], all[2]]), "{release:?}");
        rocksdb.run("close");
        assert_eq!(stamped(&scratch.db()).len(), 2, "{release:?}");
    }
}

#[test]
fn we_let_go_what_rocksdb_wrote_long_ago() {
    for release in SESSIONS {
        let Some(mut rocksdb) = Session::start(release) else { return };
        let scratch = Scratch::new();
        let before = SystemClock::default().now_seconds();
        open_theirs(&mut rocksdb, &scratch.db(), TTL);
        rocksdb.run(&format!("write put:{}:{}", hex(b"old"), hex(b"1")));
        rocksdb.run("flush");
        rocksdb.run("close");
        let after = SystemClock::default().now_seconds();

        let db = open(&scratch.db());
        let written_at = db.get("old").unwrap().expect("it is young yet").written_at();
        assert!((before..=after).contains(&u64::from(written_at)), "{written_at} of {before}..={after}");
        db.close().unwrap();
        // It is as old as the TTL allows, and lives.
        let db = open_at(&scratch.db(), i64::from(TTL) - 60, TTL, ExpiredReads::Hidden);
        compact(&db);
        assert_eq!(db.get("old").unwrap().expect("it is young yet"), "1");
        db.close().unwrap();

        let hidden = open_at(&scratch.db(), LONG as i64, TTL, ExpiredReads::Hidden);
        assert_eq!(entries(&hidden), Contents::new());
        hidden.put("young", "2").unwrap();
        hidden.close().unwrap();
        assert_eq!(stamped(&scratch.db()).len(), 2, "nothing was compacted");
        let shown = open_at(&scratch.db(), LONG as i64, TTL, ExpiredReads::ShownUntilCompacted);
        assert_eq!(entries(&shown).len(), 2);
        compact(&shown);
        assert_eq!(entries(&shown).into_keys().collect::<Vec<_>>(), [b"young"]);
        shown.close().unwrap();
        assert_eq!(stamped(&scratch.db()).len(), 1, "{release:?}");
        assert!(!files(&scratch.db(), "", ".sst").is_empty());

        // For RocksDB it was written an hour from now, and so lives.
        open_theirs(&mut rocksdb, &scratch.db(), 1);
        rocksdb.run("compact");
        assert_eq!(rocksdb.entries(), [(b"young".to_vec(), b"2".to_vec())]);
    }
}
