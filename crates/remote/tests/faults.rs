//! Calls to the remote fail: once and for a moment, once and for good, or from some moment on.

#[path = "common/faulty.rs"]
mod faulty;
#[path = "common/places.rs"]
mod places;

use faulty::{FaultyLayer, Rule};
use ironstone::Db;
use ironstone_base::Code;
use ironstone_remote::RemoteFileSystem;
use ironstone_remote::opendal::Operator;
use ironstone_vfs::{Clock, FileSystem, OpenHints, SystemClock};
use places::{Model, compact, compare, directory, memory, open, small, small_database};
use std::path::Path;
use std::time::Duration;

fn faulty(operator: Operator) -> (Operator, FaultyLayer) {
    let layer = FaultyLayer::default();
    (operator.layer(layer.clone()), layer)
}

fn once(kinds: &'static [&'static str], from: u64) -> Rule {
    Rule { kinds, from, count: 1, temporary: false, after: false }
}

/// Writes `count` keys until something fails, which is answered. What was acknowledged is in the model.
fn write(db: &Db, model: &mut Model, round: u64, count: u64) -> Option<ironstone::Error> {
    for at in 0..count {
        let key = format!("key{:06}", (at * 7919 + round * 104_729) % 5_000).into_bytes();
        let value = format!("{round}-{at}-{}", "v".repeat(100)).into_bytes();
        if let Err(error) = db.put(&key, &value) {
            return Some(error);
        }
        model.insert(key, value);
    }
    None
}

/// One run: writes, flushes and compactions with `rule`; then the remote is healthy again, the database resumes, and
/// has everything that was acknowledged, before and after it is opened again. Answers how often the rule struck.
fn survive(dir: &Path, operator: Operator, rule: Rule) -> u64 {
    let (operator, layer) = faulty(operator);
    let fs = open(operator.clone(), small(dir));
    let options = small_database(&fs);
    let path = dir.join("data/db");
    let mut model = Model::new();
    let db = Db::open(&options, &path).unwrap();
    assert!(write(&db, &mut model, 0, 500).is_none());
    db.flush().unwrap();
    let name = format!("{rule:?}");
    layer.set(Some(rule));
    let mut errors = Vec::new();
    for round in 1..4 {
        errors.extend(write(&db, &mut model, round, 700));
        errors.extend(db.flush().err());
        errors.extend(compact(&db).err());
        // A read fails or tells the truth.
        for (key, value) in model.iter().step_by(501) {
            match db.get(key) {
                Ok(found) => assert_eq!(found.as_deref(), Some(value.as_slice()), "{name}"),
                Err(error) => errors.push(error),
            }
        }
    }
    let struck = layer.struck();
    layer.set(None);
    for error in &errors {
        assert_eq!(error.code(), Code::IoError, "{name}: {error}");
        let named = error.message().contains("injected") && error.message().contains("://");
        assert!(named, "{name}: the error names the object: {error}");
    }
    db.resume().unwrap_or_else(|error| panic!("{name}: {error}"));
    compare(&db, &model);
    assert!(write(&db, &mut model, 9, 300).is_none(), "{name}");
    db.flush().unwrap();
    compare(&db, &model);
    drop(db);
    drop((options, fs));
    let fs = open(operator.clone(), small(dir));
    let db = Db::open(&small_database(&fs), &path).unwrap_or_else(|error| panic!("{name}: {error}"));
    compare(&db, &model);
    db.verify_checksum().unwrap();
    drop(db);
    // Opening removes what nothing refers to.
    let mut quiet = small_database(&fs);
    quiet.cf.disable_auto_compactions = true;
    let db = Db::open(&quiet, &path).unwrap();
    let live = db.live_files().len();
    let mut tables: Vec<String> = fs.list(&path).unwrap();
    tables.retain(|name| name.ends_with(".sst"));
    assert_eq!(tables.len(), live, "{name}: {tables:?} are there");
    struck
}

#[test]
fn the_nth_call_fails_and_nothing_is_lost() {
    let mut struck = 0;
    for kinds in [&["write"][..], &["close"], &["stat"], &["delete"], &["read"], &[]] {
        for from in [0, 1, 2, 5, 11, 23] {
            for after in [false, true] {
                let dir = tempfile::tempdir().unwrap();
                let operator = if from % 2 == 0 { memory() } else { directory(&dir.path().join("remote")) };
                struck += survive(dir.path(), operator, Rule { after, ..once(kinds, from) });
            }
        }
    }
    assert!(struck > 40, "only {struck} calls failed");
}

#[test]
fn an_outage_loses_nothing() {
    for from in [0, 3, 10, 30] {
        let dir = tempfile::tempdir().unwrap();
        let struck = survive(
            dir.path(),
            directory(&dir.path().join("remote")),
            Rule { kinds: &[], from, count: u64::MAX, temporary: true, after: false },
        );
        assert!(struck > 2, "{struck} calls failed");
    }
}

#[test]
fn writes_go_on_by_themselves_after_an_outage() {
    let dir = tempfile::tempdir().unwrap();
    let (operator, layer) = faulty(memory());
    let fs = open(operator, small(dir.path()));
    let mut options = small_database(&fs);
    options.db.bgerror_resume_retry_interval = 10_000;
    let db = Db::open(&options, dir.path().join("data/db")).unwrap();
    let mut model = Model::new();
    assert!(write(&db, &mut model, 0, 500).is_none());
    db.flush().unwrap();
    layer.set(Some(Rule {
        kinds: &["write", "close"],
        from: 0,
        count: u64::MAX,
        temporary: true,
        after: false,
    }));
    let error = (1..10).find_map(|round| write(&db, &mut model, round, 700).or_else(|| db.flush().err()));
    let error = error.expect("no table can be written");
    assert!(error.is_retryable() && error.message().contains("injected"), "{error}");
    assert!(db.background_error().is_some());
    layer.set(None);
    let clock = SystemClock::new();
    while db.background_error().is_some() {
        assert!(clock.monotonic_nanos() < 60_000_000_000, "nobody resumes");
        clock.sleep(Duration::from_millis(1));
    }
    assert!(write(&db, &mut model, 10, 300).is_none());
    db.flush().unwrap();
    compare(&db, &model);

    // What is refused is refused the next time, too: somebody has to look after it. (It is to be the flush, not what
    // is still being compacted.)
    db.wait_for_compact().unwrap();
    layer.set(Some(Rule { kinds: &["close"], from: 0, count: 1, temporary: false, after: false }));
    assert!(write(&db, &mut model, 11, 100).is_none());
    let error = db.flush().unwrap_err();
    assert!(!error.is_retryable(), "{error}");
    clock.sleep(Duration::from_millis(50));
    assert!(db.background_error().is_some());
    db.resume().unwrap();
    compare(&db, &model);
}

#[test]
fn failures_that_pass_are_not_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let (operator, layer) = faulty(memory());
    let fs = open(operator, small(dir.path()));
    let options = small_database(&fs);
    let db = Db::open(&options, dir.path().join("data/db")).unwrap();
    let mut model = Model::new();
    for round in 0..30 {
        // Two tries more are allowed.
        layer.set(Some(Rule { kinds: &[], from: round % 7, count: 2, temporary: true, after: false }));
        assert!(write(&db, &mut model, round, 100).is_none());
        db.flush().unwrap();
    }
    layer.set(None);
    assert!(fs.counters().retries > 20, "{:?}", fs.counters());
    compare(&db, &model);
}

fn write_table(fs: &RemoteFileSystem, path: &Path, bytes: &[u8]) {
    fs.write_all_synced(path, bytes).unwrap();
}

#[test]
fn a_failed_upload_leaves_no_object_and_a_file_that_refuses() {
    for kinds in [&["write"][..], &["close"], &["stat"]] {
        let dir = tempfile::tempdir().unwrap();
        let (operator, layer) = faulty(directory(&dir.path().join("remote")));
        let fs = open(operator, small(dir.path()));
        let path = dir.path().join("data/000001.sst");
        for len in [100, 300_000] {
            let mut file = fs.create(&path, ironstone_vfs::WriteOptions::default()).unwrap();
            file.append(&vec![7; len]).unwrap();
            layer.set(Some(once(kinds, 0)));
            let error = file.sync().unwrap_err();
            assert!(error.message().contains("injected"), "{error}");
            layer.set(None);
            for later in [file.sync(), file.append(b"x"), file.close(), file.flush()] {
                assert!(later.unwrap_err().message().contains("an earlier call failed"));
            }
            drop(file);
            // Where only the last question failed, the object is there, in full.
            assert_eq!(fs.exists(&path).unwrap(), kinds == ["stat"]);
            fs.remove(&path).unwrap();
        }
    }
}

#[test]
fn a_failed_read_is_an_error_and_the_next_one_is_right() {
    let dir = tempfile::tempdir().unwrap();
    let (operator, layer) = faulty(memory());
    let mut options = small(dir.path());
    options.cache_new_tables = false;
    let fs = open(operator, options);
    let path = dir.path().join("data/000001.sst");
    let data: Vec<u8> = (0..100_000u32).map(|at| (at / 7) as u8).collect();
    write_table(&fs, &path, &data);
    let file = fs.open_random(&path, OpenHints::default()).unwrap();
    let mut buf = vec![0; 20_000];
    layer.set(Some(Rule { count: u64::MAX, ..once(&["read"], 2) }));
    let error = file.read_at(1_000, &mut buf).unwrap_err();
    for part in ["read", "000001.sst", "tests/tables/000001.sst", "injected"] {
        assert!(error.message().contains(part), "{error}");
    }
    assert_eq!(error.code(), Code::IoError);
    layer.set(None);
    assert_eq!(file.read_at(1_000, &mut buf).unwrap(), 20_000);
    assert!(buf == data[1_000..21_000]);
}
