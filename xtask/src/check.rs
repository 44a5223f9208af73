//! Runs what has to pass.

use crate::tidy;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// Runs a command and says how long it took.
pub fn run(program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Result<(), String> {
    let line = format!("{program} {}", arguments.join(" "));
    eprintln!("==> {line}");
    let start = Instant::now();
    let status = Command::new(program)
        .args(arguments)
        .envs(environment.iter().copied())
        .status()
        .map_err(|error| format!("{line}: {error}"))?;
    eprintln!("<== {line}: {status} after {:.0} s", start.elapsed().as_secs_f64());
    if status.success() { Ok(()) } else { Err(format!("{line}: {status}")) }
}

/// Where cargo builds to.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}

/// Installs the RocksDB and LevelDB releases that the interop tests compare with.
pub fn install_oracles() -> Result<(), String> {
    run("bash", &["crates/compat/install-oracles.sh"], &[])
}

/// Simulations of the regular run.
const SCHEDULES: u64 = 4_000;
/// What random tests do less of in it than by themselves, unless somebody says how much: still more than what finds each planted mistake
/// (`cargo xtask mistakes`).
const SHORTER: [(&str, &str); 2] = [("IRONSTONE_CRASH_STATES", "8000"), ("IRONSTONE_MODEL_OPS", "400000")];

/// Formatting, structure, lints, then every test. With `oracles`, interop tests that cannot run fail.
pub fn everything(oracles: bool) -> Result<(), String> {
    run("cargo", &["fmt", "--all", "--check"], &[])?;
    for workspace in ["loom/Cargo.toml", "sim/Cargo.toml"] {
        run("cargo", &["fmt", "--manifest-path", workspace, "--check"], &[])?;
    }
    tidy::check()?;
    crate::reliability::check()?;
    run(
        "cargo",
        &["clippy", "--workspace", "--all-targets", "--profile", "checked", "--", "-D", "warnings"],
        &[],
    )?;
    let required = if oracles { "1" } else { "0" };
    let shorter = SHORTER.iter().filter(|(variable, _)| std::env::var_os(variable).is_none());
    let environment: Vec<_> = shorter.copied().chain([("IRONSTONE_REQUIRE_ORACLES", required)]).collect();
    run("cargo", &["test", "--workspace", "--profile", "checked"], &environment)?;
    crate::instructions::check(&[])?;
    crate::endure::regular_loom()?;
    crate::endure::regular_sim(SCHEDULES)
}

/// The tests of `crates/remote`, with servers of S3 and HDFS. The regular run has those that need no server.
pub fn remote() -> Result<(), String> {
    run("sh", &["crates/remote/install-servers.sh"], &[])?;
    let package = ["-p", "ironstone-remote", "--features", "s3,webhdfs", "--profile", "checked"];
    let lints = [&["clippy"][..], &package, &["--all-targets", "--", "-D", "warnings"]].concat();
    run("cargo", &lints, &[])?;
    let tests = [&["test"][..], &package].concat();
    run("cargo", &tests, &[("IRONSTONE_REQUIRE_REMOTE_SERVERS", "1")])
}

/// One of the random tests, with as much work as asked for.
pub fn long_run(test: &str, variable: &str, amount: Option<&String>) -> Result<(), String> {
    let amount = amount.map_or("10000000", String::as_str);
    let arguments =
        ["test", "--profile", "checked", "-p", "ironstone-testkit", "--test", test, "--", "--nocapture"];
    run("cargo", &arguments, &[(variable, amount)])
}
