//! The project's own commands: `cargo xtask <command>`.
#![allow(clippy::disallowed_methods)] // They work on the repository, not on a database.

mod bench;
mod campaign;
mod check;
mod endure;
mod fuzz;
mod instructions;
mod machine;
mod mistakes;
mod page_cache;
mod peers;
mod reliability;
mod sanitize;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <command>

  test    install the oracles, then check and test everything (what .ci/run calls)
  ci      the same without installing oracles: tests that need a missing one are skipped and say so
  tidy    check which crate may use which, and what must not be in the repository
  model   the model test with more operations: cargo xtask model [OPERATIONS]
  crash   the crash test with more states: cargo xtask crash [STATES]
  sim     the simulator: cargo xtask sim [--seed S] [--minutes M | --runs N]
  loom    every schedule of small scenes, in weak memory: cargo xtask loom [--preemptions N] [SCENE ...]
  sanitize  tests under ThreadSanitizer and AddressSanitizer, recorded: cargo xtask sanitize [thread | address]
  kill    kill processes that write: cargo xtask kill [COUNT] [SEED]
  power   take the power from file systems, as root: cargo xtask power [COUNT] [SEED]
  full    let the space of file systems end, as root: cargo xtask full [COUNT] [SEED]
  damage  the same damage to our files and to RocksDB's, recorded: cargo xtask damage [--every BYTES]
  campaign     all of these for hours, recorded: cargo xtask campaign --help
  reliability  write RELIABILITY.md from the records
  remote  install servers of S3 and HDFS, and test tables on remote file systems with them
  fuzz    every fuzz target under libFuzzer, by turns: cargo xtask fuzz --help
  instructions  machine instructions of frequent operations beside the record: cargo xtask instructions [--record]
  bench   our db_bench and RocksDB's side by side: cargo xtask bench --help
  peers   Ironstone, RocksDB and other engines side by side: cargo xtask peers --help
  mistakes  whether the tests find mistakes planted in the engine: cargo xtask mistakes [--list | --only NAME,...]
";

/// A count and a seed.
fn numbers(arguments: &[String], count: u64) -> Result<(u64, u64), String> {
    let number = |index: usize, default: u64| {
        arguments
            .get(index)
            .map_or(Ok(default), |text| text.parse().map_err(|error| format!("{text}: {error}")))
    };
    Ok((number(0, count)?, number(1, u64::from(std::process::id()))?))
}

/// What `--every` says.
fn every(arguments: &[String]) -> Result<u64, String> {
    match arguments {
        [] => Ok(campaign::DAMAGE_EVERY),
        [name, bytes] if name == "--every" => bytes.parse().map_err(|error| format!("{bytes}: {error}")),
        _ => Err(USAGE.to_owned()),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rest = arguments.get(1..).unwrap_or_default();
    let result = match arguments.first().map(String::as_str) {
        Some("test") => check::install_oracles().and_then(|()| check::everything(true)),
        Some("ci") => check::everything(false),
        Some("tidy") => tidy::check(),
        Some("model") => check::long_run("model", "IRONSTONE_MODEL_OPS", rest.first()),
        Some("crash") => check::long_run("crash", "IRONSTONE_CRASH_STATES", rest.first()),
        Some("sim") => endure::sim(rest),
        Some("loom") => endure::loom(rest).map(|_| ()),
        Some("sanitize") => sanitize::run(rest).and_then(|()| reliability::write()),
        Some("kill") => numbers(rest, 200).and_then(|(count, seed)| endure::kill(count, seed).map(|_| ())),
        Some("power") => numbers(rest, 20).and_then(|(count, seed)| endure::power(count, seed).map(|_| ())),
        Some("full") => numbers(rest, 20).and_then(|(count, seed)| endure::full(count, seed).map(|_| ())),
        Some("damage") => every(rest).and_then(campaign::damage).and_then(|()| reliability::write()),
        Some("campaign") => campaign::run_all(rest),
        Some("reliability") => reliability::write(),
        Some("remote") => check::remote(),
        Some("fuzz") => fuzz::run(rest),
        Some("instructions") => instructions::check(rest),
        Some("bench") => bench::run(rest),
        Some("peers") => peers::run(rest),
        Some("mistakes") => mistakes::run(rest),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
