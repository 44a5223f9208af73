//! `cargo xtask bench`: our db_bench and RocksDB's, same flags, by turns.

mod case;
mod measure;
mod report;

use crate::check::target_dir;
use crate::page_cache::FullPageCache;
use case::{Case, Group};
use measure::Measurement;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;

const USAGE: &str = "\
usage: cargo xtask bench [options]

  --n COUNT          keys of the published lines, default 2000000
  --small-n COUNT    keys of the lines with 16 + 100 bytes, default 5000000
  --reads COUNT      reads of the lines with 32 threads, all together, default 4000000
  --pairs COUNT      how often each side runs, default 3
  --only NAME,...    these lines, and those whose database they need
  --dir DIR          where databases go, default a directory for temporary files
  --ours PATH        our db_bench, default: built now
  --theirs PATH      RocksDB's db_bench, default /usr/bin/db_bench
  --dry-run          print the command lines
  --peers            then all rows of `cargo xtask peers` with its defaults: the focused set and the matrices, over
                     all engines; hours
";

/// What to do.
struct Plan {
    keys: u64,
    small_keys: u64,
    reads: u64,
    pairs: usize,
    only: Vec<String>,
    dir: PathBuf,
    ours: Option<PathBuf>,
    theirs: PathBuf,
    dry_run: bool,
    peers: bool,
}

/// The two sides.
pub(crate) const SIDES: [&str; 2] = ["ours", "theirs"];

/// Runs what `arguments` ask for and writes docs/benchmarks.md.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let plan = Plan::parse(arguments)?;
    let groups = case::groups(plan.keys, plan.small_keys, plan.reads)?;
    let order: Vec<String> =
        groups.iter().flat_map(|group| &group.cases).map(|case| case.name.clone()).collect();
    let unknown = plan.only.iter().find(|name| !groups.iter().any(|group| group.has(name)));
    if let Some(name) = unknown {
        return Err(format!("there is no line {name}"));
    }
    let groups: Vec<Group> = groups.into_iter().filter_map(|group| group.up_to(&plan.only)).collect();
    if plan.dry_run {
        let cases = groups.iter().flat_map(|group| &group.cases);
        cases.for_each(|case| println!("{}\tdb_bench {}", case.name, case.flags_for("$DB").join(" ")));
        return Ok(());
    }
    let programs = [plan.ours.clone().map_or_else(build, Ok)?, plan.theirs.clone()];
    let machine = measure::machine(&programs)?;
    let page_cache = FullPageCache::new(&plan.dir)?;
    println!("{}", machine["load"].as_str().unwrap_or_default());
    for group in &groups {
        let results = run_group(&plan, group, &programs, &page_cache)?;
        report::store(group, &results, &machine)?;
    }
    report::write_table(&order)?;
    if plan.peers { crate::peers::run(&[]) } else { Ok(()) }
}

impl Plan {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut plan = Self {
            keys: 2_000_000,
            small_keys: 5_000_000,
            reads: 4_000_000,
            pairs: 3,
            only: Vec::new(),
            dir: std::env::temp_dir().join("ironstone-xtask-bench"),
            ours: None,
            theirs: "/usr/bin/db_bench".into(),
            dry_run: false,
            peers: false,
        };
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            let flag = match name.as_str() {
                "--dry-run" => Some(&mut plan.dry_run),
                "--peers" => Some(&mut plan.peers),
                _ => None,
            };
            if let Some(flag) = flag {
                *flag = true;
                continue;
            }
            let value = rest.next().ok_or(USAGE)?;
            let number = || value.parse::<u64>().map_err(|_| format!("{name} {value}: not a number"));
            match name.as_str() {
                "--n" => plan.keys = number()?,
                "--small-n" => plan.small_keys = number()?,
                "--reads" => plan.reads = number()?,
                "--pairs" => plan.pairs = number()?.max(1) as usize,
                "--only" => plan.only = value.split(',').map(str::to_owned).collect(),
                "--dir" => plan.dir = value.into(),
                "--ours" => plan.ours = Some(value.into()),
                "--theirs" => plan.theirs = value.into(),
                _ => return Err(USAGE.to_owned()),
            }
        }
        Ok(plan)
    }
}

/// Builds our db_bench.
fn build() -> Result<PathBuf, String> {
    let arguments = ["build", "--release", "-p", "ironstone-tools", "--bin", "db_bench"];
    let status = Command::new("cargo").args(arguments).status().map_err(|error| format!("cargo: {error}"))?;
    if !status.success() {
        return Err("our db_bench does not build".to_owned());
    }
    Ok(target_dir().join("release/db_bench"))
}

/// What each case of a group came to: for each pair, ours and theirs.
pub(crate) type Results = Vec<Vec<[Measurement; 2]>>;

/// Runs a group as often as asked for. Who goes first changes from pair to pair.
fn run_group(
    plan: &Plan,
    group: &Group,
    programs: &[PathBuf; 2],
    page_cache: &FullPageCache,
) -> Result<Results, String> {
    let mut results: Results = group.cases.iter().map(|_| Vec::new()).collect();
    for pair in 0..plan.pairs {
        let dirs = SIDES.map(|side| plan.dir.join(side));
        dirs.iter().try_for_each(|dir| remove(dir))?;
        for (case, results) in group.cases.iter().zip(&mut results) {
            let mut measured: [Option<Measurement>; 2] = [None, None];
            for turn in 0..2 {
                let side = (turn + pair) % 2;
                measured[side] = Some(measure::run(&programs[side], case, &dirs[side], page_cache)?);
            }
            let [Some(ours), Some(theirs)] = measured else { return Err("both sides have run".to_owned()) };
            if case.measured {
                println!(
                    "{:<24} pair {} ours {:>9.0} theirs {:>9.0} ops/s  ratio {:.2}   memory {:>5.0} and {:>5.0} MB",
                    case.name,
                    pair + 1,
                    ours.operations_per_second,
                    theirs.operations_per_second,
                    ours.operations_per_second / theirs.operations_per_second,
                    ours.peak_memory_mib,
                    theirs.peak_memory_mib,
                );
            }
            results.push([ours, theirs]);
        }
        dirs.iter().try_for_each(|dir| remove(dir))?;
    }
    Ok(results)
}

fn remove(dir: &std::path::Path) -> Result<(), String> {
    if dir.exists() {
        std::fs::remove_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    }
    std::fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))
}

/// How a case is written down.
fn describe(case: &Case) -> Value {
    json!({ "name": case.name, "flags": case.flags_for("$DB"), "measured": case.measured })
}
