//! Secondaries: ours follows a live RocksDB, and RocksDB's follows us. What the primary did is seen after catching up, from
//! its WAL, its MANIFEST and its tables.

use ironstone::{ColumnFamilyDescriptor, CompactRangeOptions, Db, Options, WriteBatch, WriteOptions};
use ironstone_compat::directory::Scratch;
use ironstone_compat::driver::Driver;
use ironstone_compat::session::{SESSIONS, Session, hex};
use std::collections::BTreeMap;
use std::path::Path;

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;
const SMALL: &str = "block_based_table_factory={format_version=5}";

/// What a primary does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Write(u32),
    Flush,
    Compact,
    /// Close the database and open it again: with another MANIFEST, and WALs that are replayed.
    Reopen,
}
use Deed::{Compact, Flush, Reopen, Write};

const DEEDS: [Deed; 21] = [
    Write(0),
    Write(1),
    Flush,
    Write(2),
    Flush,
    Compact,
    Write(3),
    Write(4),
    Reopen,
    Write(5),
    Flush,
    Write(6),
    Compact,
    Reopen,
    Write(7),
    Write(8),
    Write(9),
    Write(10),
    Write(11),
    Flush,
    Write(12),
];

/// The puts and deletions of a batch. Some values are longer than a block of the log.
fn changes(round: u32) -> Vec<(String, Option<String>)> {
    let value = |i: u32| match (i * 5 + round) % 7 {
        0 if round > 0 => None,
        1 if i.is_multiple_of(4) => Some(format!("{round} {i} ").repeat(8_000)),
        _ => Some(format!("{i} of {round}")),
    };
    (0..40).map(|i| (format!("key{:03}", i * (round + 1) % 70), value(i))).collect()
}

fn apply(contents: &mut Contents, deed: Deed) {
    let Write(round) = deed else { return };
    for (key, value) in changes(round) {
        match value {
            Some(value) => contents.insert(key.into(), value.into()),
            None => contents.remove(key.as_bytes()),
        };
    }
}

fn entries(db: &Db) -> Contents {
    let entries = db.iter().unwrap().entries();
    entries.map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

fn same(found: &Contents, expected: &Contents, what: &str) {
    let short = |contents: &Contents| {
        let cut = |bytes: &[u8]| bytes[..bytes.len().min(12)].escape_ascii().to_string();
        contents.iter().map(|(key, value)| format!("{}={}", cut(key), cut(value))).collect::<Vec<_>>()
    };
    assert!(found == expected, "{what}: {:?} instead of {:?}", short(found), short(expected));
}

fn options() -> Options {
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.cf.update(SMALL).unwrap();
    options
}

/// RocksDB as the primary.
fn do_theirs(primary: &mut Session, dir: &Path, deed: Deed) {
    match deed {
        Write(round) => {
            let change = |(key, value): (String, Option<String>)| match value {
                Some(value) => format!(" put:{}:{}", hex(key.as_bytes()), hex(value.as_bytes())),
                None => format!(" delete:{}", hex(key.as_bytes())),
            };
            primary.run(&format!("write{}", changes(round).into_iter().map(change).collect::<String>()));
        }
        Flush => drop(primary.run("flush")),
        Compact => drop(primary.run("compact")),
        Reopen => {
            primary.run("close");
            primary.run(&format!("open {} {SMALL}", dir.display()));
        }
    }
}

fn do_ours(primary: &mut Option<Db>, options: &Options, dir: &Path, deed: Deed, how: &WriteOptions) {
    let db = primary.as_ref().expect("it is open");
    match deed {
        Write(round) => {
            let mut batch = WriteBatch::new();
            for (key, value) in changes(round) {
                match value {
                    Some(value) => batch.put(key, value),
                    None => batch.delete(key),
                }
            }
            db.write(&batch, how).unwrap();
        }
        Flush => db.flush().unwrap(),
        Compact => {
            db.flush().unwrap();
            db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None)
                .unwrap();
        }
        Reopen => {
            db.close().unwrap();
            *primary = None;
            *primary = Some(Db::open(options, dir).unwrap());
        }
    }
}

#[test]
fn ours_follows_a_live_rocksdb() {
    for release in SESSIONS {
        let Some(mut primary) = Session::start(release) else { return };
        let (scratch, logs) = (Scratch::new(), Scratch::new());
        let dir = scratch.db();
        primary.run(&format!("open {} {SMALL}", dir.display()));
        let default = ColumnFamilyDescriptor::new("default", options().cf);
        let secondary = Db::open_secondary(&options().db, &dir, logs.db(), vec![default]).unwrap();
        let mut expected = Contents::new();
        for (at, deed) in DEEDS.into_iter().enumerate() {
            let what = format!("{release:?}, {deed:?} at {at}");
            do_theirs(&mut primary, &dir, deed);
            same(&entries(&secondary), &expected, &format!("{what}, not caught up"));
            apply(&mut expected, deed);
            secondary.try_catch_up_with_primary().unwrap();
            same(&entries(&secondary), &expected, &what);
            let theirs: Contents = primary.entries().into_iter().collect();
            same(&theirs, &expected, &what);
        }
    }
}

/// RocksDB's secondary follows us: how many of our writes it did not see as soon as it had caught up. All that is in tables
/// it must see.
fn missed_by(release: Driver, options: &Options, how: &WriteOptions) -> Option<usize> {
    let mut secondary = Session::start(release)?;
    let (scratch, logs) = (Scratch::new(), Scratch::new());
    let dir = scratch.db();
    let mut primary = Some(Db::open(options, &dir).unwrap());
    let open = format!("open_secondary {} {} max_open_files=-1", dir.display(), logs.db().display());
    secondary.run(&open);
    let (mut expected, mut missed) = (Contents::new(), 0);
    for (at, deed) in DEEDS.into_iter().enumerate() {
        let what = format!("{release:?}, {deed:?} at {at}");
        do_ours(&mut primary, options, &dir, deed, how);
        apply(&mut expected, deed);
        secondary.run("catch_up");
        let found: Contents = secondary.entries().into_iter().collect();
        match deed {
            Write(_) if found != expected => missed += 1,
            Write(_) => {}
            _ => same(&found, &expected, &what),
        }
        same(&entries(primary.as_ref().unwrap()), &expected, &what);
    }
    // One that is opened now sees all.
    let mut late = Session::start(release)?;
    late.run(&open);
    same(&late.entries().into_iter().collect(), &expected, &format!("{release:?}, opened at the end"));
    Some(missed)
}

#[test]
fn a_secondary_of_rocksdb_follows_us() {
    for release in SESSIONS {
        for (allow_fallocate, sync) in [(false, false), (false, true), (true, false)] {
            let mut options = options();
            options.db.allow_fallocate = allow_fallocate;
            let how = WriteOptions { sync, ..WriteOptions::default() };
            let Some(missed) = missed_by(release, &options, &how) else { return };
            assert_eq!(missed, 0, "{release:?}, allow_fallocate={allow_fallocate}, sync={sync}");
        }
    }
}

/// By default a WAL that is synced again and again grows ahead, in zeros. RocksDB's secondary goes on behind them, and so sees
/// what is written there once it is in tables: see `allow_fallocate`.
#[test]
fn a_secondary_of_rocksdb_sees_in_tables_what_it_missed_in_zeros() {
    for release in SESSIONS {
        let how = WriteOptions { sync: true, ..WriteOptions::default() };
        let Some(missed) = missed_by(release, &options(), &how) else { return };
        assert!(missed > 0, "{release:?}: allow_fallocate says that some are missed");
    }
}
