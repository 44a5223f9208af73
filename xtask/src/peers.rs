//! `cargo xtask peers`: Ironstone and other engines by turns, through the driver in `crates/peers`.

mod chart;
mod page;
mod row;
mod runner;

use crate::page_cache::FullPageCache;
use page::Set;
use row::Amounts;
use runner::{Driver, ENGINES};
use serde_json::{Value, json};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

const USAGE: &str = "\
usage: cargo xtask peers [options]

  --engines NAME,...     default all: ironstone,rocksdb,lmdb,leveldb,redb,fjall,wiredtiger,berkeleydb
  --works NAME,...       these rows, and those whose database they need; matrix, coldmatrix and limited
                         are all of theirs
  --pairs COUNT          how often each engine runs, default 3; the coldmatrix runs once
  --records COUNT        records of 16 + 100 bytes of the cached rows, default 1000000
  --seconds SECONDS      how long works last that have no end of their own, default 3
  --matrix-pairs COUNT   the same for the matrix, default 3
  --matrix-mb COUNT      size of the databases of the matrix, default 200
  --matrix-seconds SECONDS  how long a cell of the matrices lasts, default 1
  --limit-mib COUNT      memory of the limited rows and the coldmatrix, page cache included, default 256; the database is five times that
  --dir DIR              where databases go, default a directory for temporary files
  --driver PATH,...      drivers that are built; the first that has an engine runs it. Default: one is built for each engine
  --also ARGUMENTS       more arguments for the driver, with spaces between
  --most-seconds SECONDS  a run that takes longer is ended and left out, default 300
  --set NAME             a page and records of their own, docs/benchmarks/peers-NAME
  --full-page-cache      before each run without a limit all free memory becomes page cache, as on a machine that has
                         run for a while; the first time takes seconds for each GiB
  --page                 only make the page from the records that there are
";

/// What to do.
struct Plan {
    engines: Vec<String>,
    works: Vec<String>,
    amounts: Amounts,
    dir: PathBuf,
    drivers: Vec<PathBuf>,
    also: Vec<String>,
    most_seconds: u64,
    set: Set,
    full_page_cache: bool,
    page_only: bool,
}

/// Runs what `arguments` ask for and writes the page of the set.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let plan = Plan::parse(arguments)?;
    if !plan.page_only {
        measure(&plan)?;
    }
    page::write(&plan.set, &row::groups(&plan.amounts))
}

fn measure(plan: &Plan) -> Result<(), String> {
    let all = row::groups(&plan.amounts);
    let mut groups: Vec<_> = all.into_iter().filter_map(|group| group.up_to(&plan.works)).collect();
    for row in groups.iter_mut().flat_map(|group| &mut group.rows) {
        row.arguments.extend_from_slice(&plan.also);
    }
    if groups.is_empty() {
        return Err(format!("there is no row {}", plan.works.join(" or ")));
    }
    let _alone = alone_in(&plan.dir)?; // Before drivers are built, which takes minutes.
    let mut driver = match &*plan.drivers {
        [] => Driver::build(&plan.engines)?,
        built => Driver::open(built.to_vec())?,
    };
    driver.most = Duration::from_secs(plan.most_seconds);
    let engines: Vec<String> = plan.engines.iter().filter(|name| driver.has(name)).cloned().collect();
    let left_out: Vec<&str> =
        plan.engines.iter().filter(|name| !driver.has(name)).map(String::as_str).collect();
    if !left_out.is_empty() {
        println!("not built: {}", left_out.join(", "));
    }
    plan.set.store_engines(&driver.engines())?;
    if plan.full_page_cache {
        driver.page_cache = Some(FullPageCache::new(&plan.dir)?);
    }
    let mut machine = runner::machine();
    machine["full_page_cache"] = json!(plan.full_page_cache);
    // Records of one session may be compared pair by pair.
    let session = format!("{}-{}", seconds_since_1970(), std::process::id());
    for group in &groups {
        runner::run_group(&driver, group, &engines, &plan.dir, |row, engine, records: Vec<Value>| {
            let entry = json!({ "session": session, "machine": machine, "arguments": row.arguments, "records": records });
            plan.set.store(&row.name, engine, entry)
        })?;
    }
    Ok(())
}

/// Keeps other runs out of `dir` while the answer is held: each would remove the databases of the other, and both would measure them.
fn alone_in(dir: &Path) -> Result<File, String> {
    let path = dir.with_extension("lock");
    let of = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = std::fs::create_dir_all(dir).and_then(|()| File::create(&path)).map_err(|error| of(&error))?;
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => of(&"another run of `cargo xtask peers` has its databases there (--dir)"),
        TryLockError::Error(error) => of(&error),
    })?;
    Ok(file)
}

fn seconds_since_1970() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |span| span.as_secs())
}

impl Plan {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut plan = Self {
            engines: ENGINES.map(str::to_owned).to_vec(),
            works: Vec::new(),
            amounts: Amounts {
                records: 1_000_000,
                seconds: 3.0,
                pairs: 3,
                matrix_pairs: 3,
                matrix_mb: 200,
                matrix_seconds: 1.0,
                limit_mib: 256,
            },
            dir: std::env::temp_dir().join("ironstone-xtask-peers"),
            drivers: Vec::new(),
            also: Vec::new(),
            most_seconds: 300,
            set: Set::new(None),
            full_page_cache: false,
            page_only: false,
        };
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            let flag = match name.as_str() {
                "--page" => Some(&mut plan.page_only),
                "--full-page-cache" => Some(&mut plan.full_page_cache),
                _ => None,
            };
            if let Some(flag) = flag {
                *flag = true;
                continue;
            }
            let value = rest.next().ok_or(USAGE)?;
            let number = || value.parse::<u64>().map_err(|_| format!("{name} {value}: not a number"));
            let seconds = || value.parse::<f64>().map_err(|_| format!("{name} {value}: not a number"));
            let list = || value.split(',').map(str::to_owned).collect::<Vec<_>>();
            let amounts = &mut plan.amounts;
            match name.as_str() {
                "--engines" => plan.engines = list(),
                "--works" => plan.works = list(),
                "--pairs" => amounts.pairs = number()?.max(1) as usize,
                "--records" => amounts.records = number()?.max(1),
                "--seconds" => amounts.seconds = seconds()?,
                "--matrix-pairs" => amounts.matrix_pairs = number()?.max(1) as usize,
                "--matrix-mb" => amounts.matrix_mb = number()?.max(1),
                "--matrix-seconds" => amounts.matrix_seconds = seconds()?,
                "--limit-mib" => amounts.limit_mib = number()?.max(64),
                "--dir" => plan.dir = value.into(),
                "--most-seconds" => plan.most_seconds = number()?,
                "--set" => plan.set = Set::new(Some(value)),
                "--also" => plan.also = value.split_whitespace().map(str::to_owned).collect(),
                "--driver" => plan.drivers = list().into_iter().map(PathBuf::from).collect(),
                _ => return Err(USAGE.to_owned()),
            }
        }
        if let Some(stranger) = plan.engines.iter().find(|name| !ENGINES.contains(&name.as_str())) {
            return Err(format!("{stranger}: no engine of that name\n{USAGE}"));
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_has_a_directory() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("databases");
        let first = alone_in(&dir).unwrap();
        let refusal = alone_in(&dir).unwrap_err();
        assert!(refusal.contains("databases.lock") && refusal.contains("another run"), "{refusal}");
        drop(first);
        assert!(alone_in(&dir).is_ok());
    }
}
