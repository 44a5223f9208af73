//! The same over the REST interface of HDFS, against a server that is started for it.

#[path = "common/places.rs"]
mod places;
#[path = "../../vfs/tests/suite/conformance.rs"]
#[allow(dead_code)]
mod suite;

use ironstone::Db;
use ironstone_remote::RemoteOptions;
use ironstone_remote::opendal::{Operator, services};
use ironstone_vfs::FileSystem;
use places::{Model, compact, compare, open, small, small_database};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

struct HdfsServer {
    child: Child,
    port: String,
}

impl HdfsServer {
    /// `None` if it is not installed, after saying so.
    fn start(dir: &Path) -> Option<Self> {
        let servers = std::env::var_os("IRONSTONE_REMOTE_SERVERS").map(PathBuf::from);
        let servers = servers.unwrap_or_else(|| {
            let own = std::env::current_exe().unwrap();
            own.ancestors().nth(3).unwrap().join("remote-servers")
        });
        let hadoop = servers.join("hadoop");
        if !hadoop.join("complete").exists() {
            assert!(
                std::env::var("IRONSTONE_REQUIRE_REMOTE_SERVERS").is_err(),
                "{} is required and not there: run crates/remote/install-servers.sh",
                hadoop.display()
            );
            println!("SKIP: {} is not there: run crates/remote/install-servers.sh", hadoop.display());
            return None;
        }
        let mut child = Command::new("java")
            .arg("-cp")
            .arg(hadoop.join("*"))
            .arg(hadoop.join("WebHdfsServer.java"))
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| line.unwrap().strip_prefix("port ").map(str::to_owned));
        let port = port.expect("the server starts");
        // It logs on: nobody must keep it from that.
        ironstone_base::sync::thread::spawn_named("hdfs-log", move || lines.for_each(drop));
        Some(Self { child, port })
    }

    fn operator(&self) -> Operator {
        ironstone_remote::opendal::install_default();
        let service = services::Webhdfs::default()
            .endpoint(&format!("http://127.0.0.1:{}", self.port))
            .user_name("ironstone")
            .root("/ironstone")
            .atomic_write_dir(".unfinished/");
        Operator::new(service).unwrap()
    }
}

impl Drop for HdfsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn tables_on_webhdfs() {
    let place = tempfile::tempdir().unwrap();
    let Some(server) = HdfsServer::start(place.path()) else { return };
    let dir = tempfile::tempdir().unwrap();
    let fs = open(server.operator(), RemoteOptions { block_bytes: 64 << 10, ..small(dir.path()) });
    let root = dir.path().join("data/files");
    fs.create_dir_all(&root).unwrap();
    // Not all of it: this service of OpenDAL writes no empty files, which tables never are.
    let error = fs.write_all_synced(&root.join("000001.sst"), b"").unwrap_err();
    assert_eq!(error.code(), ironstone_base::Code::NotSupported, "{error}");
    suite::reads_end_where_the_file_ends(&fs, &root);
    suite::a_size_that_is_said_is_proven_by_the_end(&fs, &root);
    suite::open_files_outlive_their_names(&fs, &root);
    suite::directories_come_and_go(&fs, &root);
    suite::absence_is_told_apart(&fs, &root);
    suite::second_lock_is_refused(&fs, &root);
    let (one, two) = (root.join("000001.sst"), root.join("000002.sst"));
    let data = suite::pattern(1_000_000, 1);
    fs.write_all_synced(&one, &data).unwrap();
    fs.link(&one, &two).unwrap();
    fs.rename(&two, &one).unwrap();
    assert_eq!(suite::sorted(&fs, &root), ["000001.sst"]);
    assert!(fs.read_all(&one).unwrap() == data);
    drop(fs);

    let path = dir.path().join("data/db");
    let (mut model, mut rng) = (Model::new(), StdRng::seed_from_u64(4));
    for round in 0..3 {
        let cache_bytes = [1 << 20, 0][round % 2];
        let fs = open(server.operator(), RemoteOptions { cache_bytes, ..small(dir.path()) });
        let db = Db::open(&small_database(&fs), &path).unwrap();
        compare(&db, &model);
        for at in 0..3_000 {
            let key = format!("key{:05}", rng.random_range(0..4_000)).into_bytes();
            let value = format!("{round} {at} {}", "v".repeat(150)).into_bytes();
            db.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        db.flush().unwrap();
        if round == 1 {
            compact(&db).unwrap();
        }
        compare(&db, &model);
        db.verify_checksum().unwrap();
    }
}
