//! The same over S3, against a server that is started for it.

#[path = "common/faulty.rs"]
mod faulty;
#[path = "common/places.rs"]
mod places;
#[path = "common/s3_server.rs"]
mod s3_server;
#[path = "../../vfs/tests/suite/conformance.rs"]
#[allow(dead_code)]
mod suite;

use faulty::{FaultyLayer, Rule};
use ironstone::Db;
use ironstone_base::{Code, SubCode};
use ironstone_remote::RemoteOptions;
use ironstone_vfs::{FileSystem, OpenHints, WriteOptions};
use places::{Model, compact, compare, open, small, small_database};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use s3_server::{BUCKET, S3Server};
use std::time::Duration;

#[test]
fn s3_conforms() {
    let Some(server) = S3Server::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let fs = open(server.operator(), RemoteOptions { block_bytes: 64 << 10, ..small(dir.path()) });
    let root = dir.path().join("data/db");
    fs.create_dir_all(&root).unwrap();
    suite::check_all(&fs, &root);
}

#[test]
fn large_tables_go_in_parts_that_do_not_stay_behind() {
    let Some(server) = S3Server::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let layer = FaultyLayer::default();
    let options = RemoteOptions {
        block_bytes: 1 << 20,
        part_bytes: 5 << 20,
        cache_new_tables: false,
        ..small(dir.path())
    };
    let fs = open(server.operator().layer(layer.clone()), options);
    let path = dir.path().join("data/000001.sst");
    let data = suite::pattern(17_000_003, 5);
    for kinds in [&["write"][..], &["close"]] {
        let mut file = fs.create(&path, WriteOptions::default()).unwrap();
        file.append(&data).unwrap();
        layer.set(Some(Rule { kinds, from: 0, count: 1, temporary: false, after: false }));
        file.sync().unwrap_err();
        assert_eq!(layer.struck(), 1);
        layer.set(None);
        assert!(!fs.exists(&path).unwrap());
        let uploads = server.request("GET", &format!("/{BUCKET}?uploads"));
        assert!(uploads.starts_with("HTTP/1.1 200") && !uploads.contains("<UploadId>"), "{uploads}");
    }
    fs.write_all_synced(&path, &data).unwrap();
    assert!(fs.read_all(&path).unwrap() == data);
    let head = server.request("HEAD", &format!("/{BUCKET}/tests/tables/000001.sst"));
    assert!(head.contains("-4\""), "four parts, says the tag: {head}");
    fs.link(&path, &dir.path().join("data/000002.sst")).unwrap();
    assert!(fs.read_all(&dir.path().join("data/000002.sst")).unwrap() == data);

    // Somebody replaces an object that is open: reads insist on what they opened.
    let file = fs.open_random(&path, OpenHints::default()).unwrap();
    let mut buf = [0; 10];
    assert_eq!(file.read_at(0, &mut buf).unwrap(), 10);
    let other_dir = tempfile::tempdir().unwrap();
    let other = open(server.operator(), small(other_dir.path()));
    other
        .write_all_synced(&other_dir.path().join("data/000001.sst"), &suite::pattern(17_000_003, 6))
        .unwrap();
    let error = file.read_at(9 << 20, &mut buf).unwrap_err();
    assert_eq!(error.code(), Code::IoError);
    assert!(error.message().contains("s3://ironstone/tests/tables/000001.sst"), "{error}");
}

#[test]
fn a_database_on_s3_agrees_with_the_model() {
    let Some(server) = S3Server::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data/db");
    let (mut model, mut rng) = (Model::new(), StdRng::seed_from_u64(3));
    for round in 0..4 {
        let cache_bytes = [1 << 20, 0][round % 2];
        let fs = open(server.operator(), RemoteOptions { cache_bytes, ..small(dir.path()) });
        let db = Db::open(&small_database(&fs), &path).unwrap();
        compare(&db, &model);
        for at in 0..3_000 {
            let key = format!("key{:05}", rng.random_range(0..4_000)).into_bytes();
            if rng.random_range(0..4) == 0 {
                db.delete(&key).unwrap();
                model.remove(&key);
            } else {
                let value = format!("{round} {at} {}", "v".repeat(150)).into_bytes();
                db.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        db.flush().unwrap();
        if round == 2 {
            compact(&db).unwrap();
        }
        compare(&db, &model);
        db.verify_checksum().unwrap();
    }
    // A second copy elsewhere, without the token, while the first is open.
    let fs = open(server.operator(), small(dir.path()));
    let db = Db::open(&small_database(&fs), &path).unwrap();
    let other = tempfile::tempdir().unwrap();
    let second = open(server.operator(), small(other.path()));
    let error = Db::open(&small_database(&second), other.path().join("data/db")).err().unwrap();
    assert!(error.message().contains("s3://ironstone/tests/tables/db/OWNER"), "{error}");
    compare(&db, &model);
}

#[test]
fn a_server_that_hangs_is_an_error_and_writes_resume_after_it() {
    let Some(server) = S3Server::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let limit = Duration::from_millis(500);
    let options = RemoteOptions { timeout: limit, io_timeout: limit, retries: 1, ..small(dir.path()) };
    let fs = open(server.operator(), options);
    let db = Db::open(&small_database(&fs), dir.path().join("data/db")).unwrap();
    let mut model = Model::new();
    let mut put = |db: &Db, key: &str| {
        db.put(key, "v")?;
        model.insert(key.into(), b"v".to_vec());
        Ok::<(), ironstone::Error>(())
    };
    put(&db, "before").unwrap();
    server.pause();
    put(&db, "meanwhile").unwrap();
    let error = db.flush().unwrap_err();
    assert_eq!((error.code(), error.sub_code()), (Code::IoError, SubCode::None));
    assert!(error.message().contains("timeout") && error.message().contains("s3://ironstone/"), "{error}");
    assert!(db.background_error().is_some());
    assert_eq!(put(&db, "stopped").unwrap_err().code(), Code::IoError);
    assert_eq!(db.get("meanwhile").unwrap().unwrap(), "v".as_bytes());
    db.resume().unwrap_err();
    server.go_on();
    db.resume().unwrap();
    put(&db, "after").unwrap();
    db.flush().unwrap();
    compare(&db, &model);
}
