//! The long campaign: every harness with far more work than the regular run, and what came of it, recorded.

use crate::{check::run, endure, reliability, sanitize};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const USAGE: &str = "\
usage: cargo xtask campaign [--scale S] [--only NAME,NAME...] [--seed N]

  Runs the harnesses with S times the work of a full campaign (default 1: about three hours on two processors),
  records what they did in docs/reliability, and writes RELIABILITY.md.
  Names: crash, damage, faults, model, sim, loom, sanitize, kill, power, full
";

/// Where results are kept.
pub const RECORDS: &str = "docs/reliability";

/// Runs what `arguments` say.
pub fn run_all(arguments: &[String]) -> Result<(), String> {
    let (mut scale, mut only, mut seed) = (1.0f64, Vec::new(), 1_000_000u64);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let value = rest.next().ok_or(USAGE)?;
        match argument.as_str() {
            "--scale" => scale = value.parse().map_err(|_| USAGE)?,
            "--only" => only = value.split(',').map(str::to_owned).collect(),
            "--seed" => seed = value.parse().map_err(|_| USAGE)?,
            _ => return Err(USAGE.to_owned()),
        }
    }
    let wanted = |name: &str| only.is_empty() || only.iter().any(|one| one == name);
    let scaled = |count: f64| ((count * scale) as u64).max(1);
    std::fs::create_dir_all(RECORDS).map_err(|error| format!("{RECORDS}: {error}"))?;
    let mut failed = Vec::new();
    let mut attempt = |name: &str, job: &dyn Fn() -> Result<(), String>| {
        if wanted(name)
            && let Err(error) = job()
        {
            failed.push(format!("{name}: {error}"));
        }
    };
    attempt("crash", &|| test("crash", ("IRONSTONE_CRASH_STATES", &scaled(1_000_000.0).to_string())));
    attempt("damage", &|| {
        test("damage", ("IRONSTONE_DAMAGE", if scale >= 0.2 { "all" } else { "usual" }))?;
        damage((DAMAGE_EVERY as f64 / scale).ceil() as u64)
    });
    attempt("faults", &|| test("faults", ("IRONSTONE_FAULTS", "all")));
    attempt("model", &|| test("model", ("IRONSTONE_MODEL_OPS", &scaled(10_000_000.0).to_string())));
    attempt("sim", &|| timed("sim", || endure::recorded_sim(30.0 * scale, seed)));
    attempt("loom", &|| timed("loom", || endure::loom(&[])));
    attempt("sanitize", &|| sanitize::run(&[]));
    attempt("kill", &|| timed("kill", || endure::kill(scaled(20_000.0), seed)));
    attempt("power", &|| {
        timed("power", || endure::power(scaled(1_667.0), seed).map(|kinds| json!({ "kinds": kinds })))
    });
    attempt("full", &|| {
        timed("full", || endure::full(scaled(200.0), seed).map(|kinds| json!({ "kinds": kinds })))
    });
    reliability::write()?;
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// Which bytes are damaged in a full campaign: one in so many.
pub const DAMAGE_EVERY: u64 = 16;

/// The damage table of both engines.
pub fn damage(every: u64) -> Result<(), String> {
    let start = Instant::now();
    match endure::damage(every)? {
        Some(table) => keep("damage", table, start.elapsed().as_secs()),
        None => Ok(()),
    }
}

/// Runs a test of the testkit, which records what it did, and says in the records what they are of. Several may run
/// at the same time.
fn test(name: &str, (variable, amount): (&str, &str)) -> Result<(), String> {
    let fresh = std::env::current_dir().map_err(|error| error.to_string())?.join("target/records").join(name);
    let _ = std::fs::remove_dir_all(&fresh);
    std::fs::create_dir_all(&fresh).map_err(|error| error.to_string())?;
    let directory = fresh.to_string_lossy().into_owned();
    let start = Instant::now();
    let arguments =
        ["test", "--profile", "checked", "-p", "ironstone-testkit", "--test", name, "--", "--nocapture"];
    run("cargo", &arguments, &[(variable, amount), ("IRONSTONE_RECORD", &directory)])?;
    let seconds = start.elapsed().as_secs();
    let entries = std::fs::read_dir(&fresh).map_err(|error| error.to_string())?;
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
        let figures: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        keep(&path.file_stem().unwrap_or_default().to_string_lossy(), figures, seconds)?;
    }
    Ok(())
}

fn timed(name: &str, job: impl FnOnce() -> Result<Value, String>) -> Result<(), String> {
    let start = Instant::now();
    let figures = job()?;
    keep(name, figures, start.elapsed().as_secs())
}

fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().ok();
    output.map_or_else(String::new, |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The commit, and `-dirty` if anything but records and lock files is not as it was committed.
pub fn version() -> String {
    let others = [".", ":!docs", ":!RELIABILITY.md", ":!*Cargo.lock"];
    let changed =
        said("git", &[&["status", "--porcelain", "--untracked-files=no", "--"][..], &others].concat());
    let commit = said("git", &["rev-parse", "--short=9", "HEAD"]);
    if changed.is_empty() { commit } else { commit + "-dirty" }
}

/// The date, UTC.
pub fn today() -> String {
    said("date", &["-u", "+%Y-%m-%d"])
}

/// Writes a record, with what it is of.
pub fn keep(name: &str, mut figures: Value, seconds: u64) -> Result<(), String> {
    figures["seconds"] = seconds.into();
    figures["commit"] = version().into();
    figures["date"] = today().into();
    let path = Path::new(RECORDS).join(format!("{name}.json"));
    std::fs::write(&path, format!("{figures:#}\n")).map_err(|error| format!("{}: {error}", path.display()))
}
