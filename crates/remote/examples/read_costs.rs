//! What a read costs: on the local file system, on a directory as a remote, and on an S3 server that is started for it.
//! `cargo run --release -p ironstone-remote --features s3 --example read_costs`, after `crates/remote/install-servers.sh`;
//! or, with `S3_ENDPOINT=http://host:port`, on a server that has a bucket `ironstone` for anybody.

#[path = "../tests/common/s3_server.rs"]
#[allow(dead_code)]
mod s3_server;

use ironstone_remote::opendal::{Operator, services};
use ironstone_remote::{RemoteFileSystem, RemoteOptions};
use ironstone_vfs::os::OsFileSystem;
use ironstone_vfs::{Clock, FileSystem, OpenHints, SystemClock};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

const TABLE: usize = 64 << 20;
const BLOCK: u64 = 1 << 20;
const ROUNDS: usize = 5;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The median time of a read of 4 KiB in each block, at places that differ from pass to pass, in microseconds.
fn reads(fs: &dyn FileSystem, path: &Path, pass: u64) -> Outcome<f64> {
    let (clock, file) = (SystemClock::new(), fs.open_random(path, OpenHints::default())?);
    let mut buf = [0; 4096];
    let mut times = Vec::new();
    for index in 0..TABLE as u64 / BLOCK {
        // Never one block after the other, which would be read ahead.
        let block = index * 29 % (TABLE as u64 / BLOCK);
        let offset = block * BLOCK + (pass * 77_777 + index * 4099) % (BLOCK - 4096);
        let start = clock.monotonic_nanos();
        file.read_at(offset, &mut buf)?;
        times.push((clock.monotonic_nanos() - start) as f64 / 1000.0);
    }
    Ok(median(times))
}

/// MiB in a second, front to back in pieces of 64 KiB.
fn scan(fs: &dyn FileSystem, path: &Path) -> Outcome<f64> {
    let (clock, mut file) = (SystemClock::new(), fs.open_sequential(path)?);
    let mut buf = vec![0; 64 << 10];
    while file.read(&mut buf)? > 0 {}
    Ok(TABLE as f64 / f64::from(1 << 20) / (clock.monotonic_nanos() as f64 / 1e9))
}

fn upload(fs: &dyn FileSystem, path: &Path, bytes: &[u8]) -> Outcome<f64> {
    let clock = SystemClock::new();
    fs.write_all_synced(path, bytes)?;
    Ok(TABLE as f64 / f64::from(1 << 20) / (clock.monotonic_nanos() as f64 / 1e9))
}

fn measure(name: &str, operator: &dyn Fn(&Path) -> Outcome<Operator>) -> Outcome<()> {
    let bytes: Vec<u8> =
        (0..TABLE as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 37) as u8).collect();
    let mut rows: [Vec<f64>; 7] = std::array::from_fn(|_| Vec::new());
    for _ in 0..ROUNDS {
        let dir = tempfile::tempdir_in(".")?;
        let open = |cache: &str, cache_bytes: u64| -> Outcome<RemoteFileSystem> {
            let mut options = RemoteOptions::new(dir.path().join("data"), dir.path().join(cache));
            (options.cache_bytes, options.cache_new_tables) = (cache_bytes, false);
            Ok(RemoteFileSystem::new(
                Arc::new(OsFileSystem::new()),
                operator(&dir.path().join("remote"))?,
                options,
            )?)
        };
        let path = dir.path().join("data/000001.sst");
        let fs = open("cache", 1 << 30)?;
        rows[0].push(upload(&fs, &path, &bytes)?);
        rows[1].push(reads(&fs, &path, 0)?);
        rows[2].push(reads(&fs, &path, 1)?);
        drop(fs);
        let fs = open("cache", 1 << 30)?;
        rows[3].push(reads(&fs, &path, 2)?);
        drop(fs);
        rows[4].push(scan(&open("second-cache", 1 << 30)?, &path)?);
        let fs = open("third-cache", 0)?;
        rows[5].push(reads(&fs, &path, 3)?);
        let local = dir.path().join("local");
        OsFileSystem::new().write_all_synced(&local, &bytes)?;
        rows[6].push(reads(&OsFileSystem::new(), &local, 4)?);
        fs.remove(&path)?;
    }
    let [upload, cold, cached, restarted, scan, ranged, local] = rows.map(median);
    println!("{name}: medians of {ROUNDS} rounds, table of {} MiB, blocks of 1 MiB", TABLE >> 20);
    println!("  write and sync                 {upload:>9.0} MiB/s");
    println!("  4 KiB, cold (fetches 1 MiB)    {cold:>9.1} us");
    println!("  4 KiB, cached                  {cached:>9.1} us");
    println!("  4 KiB, cached, first after a restart {restarted:>3.1} us");
    println!("  4 KiB, no cache (fetches 4 KiB) {ranged:>8.1} us");
    println!("  4 KiB, local file              {local:>9.1} us");
    println!("  front to back, cold            {scan:>9.0} MiB/s");
    Ok(())
}

fn main() -> Outcome<()> {
    measure("directory", &|path| {
        let path = path.to_str().ok_or("a path that is not UTF-8")?;
        Ok(Operator::new(services::Fs::default().root(path))?)
    })?;
    if let Ok(endpoint) = std::env::var("S3_ENDPOINT") {
        return measure(&endpoint, &|_| Ok(s3_server::operator_of(&endpoint)));
    }
    if let Some(server) = s3_server::S3Server::start() {
        measure("S3 server on this machine (moto)", &|_| Ok(server.operator()))?;
    }
    Ok(())
}
