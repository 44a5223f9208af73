//! The program ironstone as users call it.

use std::path::Path;
use std::process::{Command, Output};

fn ironstone(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ironstone")).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn complaint(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn make_database(dir: &Path) {
    let mut options = ironstone::Options::default();
    options.db.create_if_missing = true;
    options.cf.comparator = ironstone::UserComparator::builtin("rocksdb.ReverseBytewiseComparator").unwrap();
    let db = ironstone::Db::open(&options, dir).unwrap();
    for number in 0..10 {
        db.put(format!("key{number}"), format!("value {number}")).unwrap();
    }
    db.close().unwrap();
}

#[test]
fn a_database_is_read_and_changed_by_hand() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("db");
    make_database(&dir);
    let dir = dir.to_str().unwrap();
    assert_eq!(text(&ironstone(&["get", dir, "key3"])), "value 3\n");
    assert_eq!(text(&ironstone(&["get", dir, "0x6b657933", "--hex"])), "0x76616C75652033\n");
    assert!(text(&ironstone(&["put", dir, "key3", "new"])).is_empty());
    assert!(text(&ironstone(&["delete", dir, "key4"])).is_empty());
    // The comparator is found by its name: keys come from the largest to the smallest.
    assert_eq!(
        text(&ironstone(&["scan", dir, "--from", "key5", "--to", "key1"])),
        "key5 : value 5\nkey3 : new\nkey2 : value 2\n"
    );
    assert_eq!(text(&ironstone(&["scan", dir, "--reverse", "--limit", "2", "--keys-only"])), "key0\nkey1\n");
    let stats = text(&ironstone(&["stats", dir]));
    assert!(stats.contains("families       default") && stats.contains("estimated keys"), "{stats}");
}

#[test]
fn a_trace_of_the_block_cache_is_printed() {
    let parent = tempfile::tempdir().unwrap();
    let (dir, trace) = (parent.path().join("db"), parent.path().join("trace"));
    make_database(&dir);
    let db = ironstone::Db::open(&ironstone::Options::default(), &dir);
    assert!(db.is_err(), "another comparator");
    let mut options = ironstone::Options::default();
    options.cf.comparator = ironstone::UserComparator::builtin("rocksdb.ReverseBytewiseComparator").unwrap();
    let db = ironstone::Db::open(&options, &dir).unwrap();
    db.flush().unwrap();
    let writer = ironstone::FileTraceWriter::create(&*options.db.env.fs, &trace).unwrap();
    db.start_block_cache_trace(&Default::default(), Box::new(writer)).unwrap();
    assert!(db.get("key3").unwrap().is_some() && db.get("key4").unwrap().is_some());
    db.end_block_cache_trace().unwrap();
    db.close().unwrap();
    let printed = text(&ironstone(&["block-cache-trace", trace.to_str().unwrap()]));
    let lines: Vec<Vec<&str>> = printed.lines().map(|line| line.split(',').collect()).collect();
    assert!(lines.len() == 2 && lines.iter().all(|line| line.len() == 21), "{printed}");
    // The same data block twice, a miss and a hit, for two gets of keys that are in it.
    let members = |at: usize| (lines[0][at], lines[1][at]);
    assert_eq!((members(1), members(2), members(5)), (("1", "1"), ("9", "9"), ("default", "default")));
    assert_eq!((members(8), members(10), members(11)), (("1", "1"), ("1", "2"), ("1", "2")));
    assert_eq!((members(13), members(14)), (("0", "1"), ("1", "1")));

    ironstone::vfs::FileSystem::write_all_synced(&*options.db.env.fs, &trace, b"no trace").unwrap();
    assert!(
        complaint(&ironstone(&["block-cache-trace", trace.to_str().unwrap()])).contains("within the head")
    );
}

#[test]
fn failures_are_said_and_end_with_code_1() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("db");
    let missing = dir.to_str().unwrap();
    assert!(complaint(&ironstone(&["get", missing, "key"])).contains("no database is there"));
    assert!(!dir.exists());
    make_database(&dir);
    assert!(complaint(&ironstone(&["get", missing, "other"])).contains("NotFound: key other"));
    assert!(complaint(&ironstone(&["get", missing, "zz", "--hex"])).contains("hexadecimal"));
    assert!(complaint(&ironstone(&["scan", missing, "--column-family", "x"])).contains("no column family x"));
    assert!(complaint(&ironstone(&["nonsense"])).contains("nonsense"));
    assert!(complaint(&ironstone(&["demo", "--dir", missing])).contains("exists"));
}
