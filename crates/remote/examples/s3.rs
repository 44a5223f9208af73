//! A database whose tables are in a bucket: `cargo run -p ironstone-remote --features s3 --example s3 -- BUCKET DIRECTORY`.
//!
//! The region, the endpoint (for servers that are not Amazon's) and the credentials come from the usual places:
//! `AWS_REGION`, `AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `~/.aws`, or the machine's role.

use ironstone::{Db, Options};
use ironstone_remote::opendal::{Operator, services};
use ironstone_remote::{RemoteFileSystem, RemoteOptions};
use ironstone_vfs::{Env, SystemClock, os::OsFileSystem};
use std::path::PathBuf;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bucket, directory] = &arguments[..] else { return Err("usage: s3 BUCKET DIRECTORY".into()) };
    let directory = PathBuf::from(directory);

    let mut service = services::S3::default().bucket(bucket);
    if let Ok(endpoint) = std::env::var("AWS_ENDPOINT_URL") {
        service = service.endpoint(&endpoint);
    }
    let operator = Operator::new(service)?;

    // Tables of databases below DIRECTORY/data are at s3://BUCKET/ironstone/...; their logs and MANIFESTs stay there.
    let mut remote = RemoteOptions::new(directory.join("data"), directory.join("cache"));
    remote.prefix = "ironstone".to_owned();
    remote.cache_bytes = 8 << 30;
    let fs = RemoteFileSystem::new(Arc::new(OsFileSystem::new()), operator, remote)?;

    let mut options = Options::default();
    options.db.env = Env { fs: Arc::new(fs.clone()), clock: Arc::new(SystemClock::new()) };
    options.db.create_if_missing = true;
    let db = Db::open(&options, directory.join("data/db"))?;
    let opened = db.get("opened")?.map_or(0, |count| String::from_utf8_lossy(&count).parse().unwrap_or(0));
    db.put("opened", (opened + 1u64).to_string())?;
    db.flush()?; // Uploads a table.

    println!("opened {} times", opened + 1);
    for file in db.live_files() {
        let path = db.path().join(format!("{:06}.sst", file.number.0));
        println!("{} bytes at {}", file.size, fs.uri(&path)?.unwrap_or_default());
    }
    println!("{:?}", fs.counters());
    Ok(())
}
