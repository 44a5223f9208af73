//! How much memory many databases in one process take that share one bound.
//!
//! ```text
//! cargo run --release -p ironstone --example many_databases -- DIRECTORY [DATABASES] [MIB] [MIB WRITTEN]
//! ```
//! Opens the databases (200) with one bound (512 MiB) on blocks, indexes, filters and memtables, writes to all of them in
//! turn (2,000 MiB), reads them, and prints the resident memory of the process.
#![allow(clippy::disallowed_methods)] // A program of its own, which asks the system about itself.

use ironstone::{Db, Goal, Options};
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir: PathBuf = arguments.next().ok_or("which directory?")?.into();
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (databases, mib, written) = (number(200)?, number(512)?, number(2000)?);

    let mut options = Options::auto(mib << 20, 2, Goal::ReadLatency);
    options.db.create_if_missing = true;
    options.db.max_open_files = 20; // Of each.
    let open = |number| Db::open(&options, dir.join(format!("{number:04}")));
    let open: Vec<Db> = (0..databases).map(open).collect::<Result<_, _>>()?;
    report(&options, "opened")?;
    const VALUE: usize = 1000;
    let records = (written << 20) / VALUE as u64;
    let mut seed = 1_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 20
    };
    let mut value = vec![0; VALUE];
    for record in 0..records {
        let random = random();
        value[..8].copy_from_slice(&random.to_le_bytes());
        open[(record % databases) as usize].put(random.to_be_bytes(), &value)?;
        if record % (records / 10).max(1) == 0 {
            report(&options, &format!("wrote {record} of {records} records"))?;
        }
    }
    for db in &open {
        let mut iter = db.iter()?;
        let mut more = iter.seek_to_first()?;
        while more {
            more = iter.next()?;
        }
    }
    report(&options, "read everything")?;
    for db in &open {
        db.wait_for_compact()?;
    }
    report(&options, "compacted")
}

fn report(options: &Options, when: &str) -> Result<(), Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let of = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        let kib = line.split_whitespace().nth(1).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        kib >> 10
    };
    println!(
        "{when}: resident {} MiB, at most so far {} MiB; the cache says {} MiB, {} of them memtables; {} threads",
        of("VmRSS"),
        of("VmHWM"),
        options.cf.table.block_cache.as_ref().map_or(0, |cache| cache.usage()) >> 20,
        options.db.write_buffer_manager.as_ref().map_or(0, |manager| manager.memory_usage()) >> 20,
        threads(&status)
    );
    Ok(())
}

fn threads(status: &str) -> &str {
    let line = status.lines().find(|line| line.starts_with("Threads:"));
    line.and_then(|line| line.split_whitespace().nth(1)).unwrap_or("?")
}
