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
