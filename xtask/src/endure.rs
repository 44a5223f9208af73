//! Long runs that look for lost data: simulations, kills, power losses, damage beside RocksDB.

use crate::check::{run, target_dir};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PROFILE: [&str; 2] = ["--profile", "checked"];

/// Runs a `command` of cargo in `workspace`: the simulator and the scenes for loom have one each. What these have in common with the engine's is
/// built once, since all builds are in one place.
fn cargo_in(workspace: &str, command: &[&str], more: &[&str]) -> Result<(), String> {
    let (manifest, target) = (format!("{workspace}/Cargo.toml"), target_dir());
    let of = ["--manifest-path", &*manifest, "--target-dir", &*target.to_string_lossy()];
    run("cargo", &[command, &of, &PROFILE, more].concat(), &[])
}

fn lint(workspace: &str) -> Result<(), String> {
    cargo_in(workspace, &["clippy", "--all-targets"], &["--", "-D", "warnings"])
}

/// Builds the program of `workspace`, which has its name. Answers its path.
fn build(workspace: &str) -> Result<PathBuf, String> {
    cargo_in(workspace, &["build"], &[])?;
    Ok(target_dir().join("checked").join(workspace))
}

/// What the regular run does with the simulator: its lints, its own tests, and as many schedules.
pub fn regular_sim(schedules: u64) -> Result<(), String> {
    lint("sim")?;
    cargo_in("sim", &["test"], &[])?;
    let processes = processes();
    let each = (schedules / processes as u64).max(1).to_string();
    simulate(&build("sim")?, &["--runs".to_owned(), each], 0, processes, None).map(|_| ())
}

fn processes() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// `cargo xtask sim`: one process per processor if more than one seed is asked for.
pub fn sim(arguments: &[String]) -> Result<(), String> {
    let sim = build("sim")?;
    let many = arguments.iter().any(|argument| argument == "--minutes" || argument == "--runs");
    let processes = if many { processes() } else { 1 };
    let first = match arguments.iter().position(|argument| argument == "--seed") {
        Some(at) => arguments.get(at + 1).and_then(|seed| seed.parse().ok()).ok_or("--seed: a number")?,
        None => std::process::id().into(),
    };
    simulate(&sim, arguments, first, processes, None).map(|_| ())
}

/// Runs so many simulators side by side, over every seed from `first` on. Answers what they wrote to `json`.
fn simulate(
    sim: &Path,
    arguments: &[String],
    first: u64,
    processes: usize,
    json: Option<&Path>,
) -> Result<Vec<serde_json::Value>, String> {
    let mut children = Vec::new();
    for number in 0..processes {
        let mut command = Command::new(sim);
        command.args(["--seed", &(first + number as u64).to_string(), "--stride", &processes.to_string()]);
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--seed" => {
                    rest.next();
                }
                _ => {
                    command.arg(argument);
                }
            }
        }
        let report = json.map(|path| path.with_extension(format!("{number}.json")));
        if let Some(report) = &report {
            command.arg("--json").arg(report);
        }
        command.stderr(if processes > 1 { Stdio::null() } else { Stdio::inherit() });
        let child = command.spawn().map_err(|error| format!("{}: {error}", sim.display()))?;
        children.push((child, report));
    }
    let mut failed = 0;
    let mut reports = Vec::new();
    for (mut child, report) in children {
        let status = child.wait().map_err(|error| error.to_string())?;
        failed += usize::from(!status.success());
        if let (true, Some(report)) = (status.success(), report) {
            let text = std::fs::read_to_string(&report).map_err(|error| error.to_string())?;
            reports.push(serde_json::from_str(&text).map_err(|error| error.to_string())?);
            let _ = std::fs::remove_file(report);
        }
    }
    if failed > 0 { Err(format!("{failed} of {processes} simulators found something")) } else { Ok(reports) }
}

/// What the regular run does with the scenes for loom: their lints, and all of them.
pub fn regular_loom() -> Result<(), String> {
    lint("loom")?;
    loom(&[]).map(|_| ())
}

/// Runs the scenes for loom. Answers how many there were, and their executions.
pub fn loom(arguments: &[String]) -> Result<serde_json::Value, String> {
    let program = build("loom")?;
    let output = Command::new(&program)
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    if !output.status.success() {
        return Err("loom found something".to_owned());
    }
    let executions = |line: &str| line.split_once(": ")?.1.split_once(" executions")?.0.parse::<u64>().ok();
    let scenes: Vec<u64> = text.lines().filter_map(executions).collect();
    Ok(serde_json::json!({ "scenes": scenes.len(), "executions": scenes.iter().sum::<u64>(), "failures": 0 }))
}

/// Simulations of so many minutes on every processor, as one record.
pub fn recorded_sim(minutes: f64, first: u64) -> Result<serde_json::Value, String> {
    let sim = build("sim")?;
    let processes = processes();
    let arguments = ["--minutes".to_owned(), minutes.to_string()];
    let path = target_dir().join("sim-report");
    let reports = simulate(&sim, &arguments, first, processes, Some(&path))?;
    let sum = |field: &str| reports.iter().filter_map(|report| report[field].as_u64()).sum::<u64>();
    Ok(serde_json::json!({
        "first_seed": first, "minutes": minutes, "processes": processes, "schedules": sum("schedules"),
        "batches": sum("batches"), "operations": sum("operations"), "power_losses": sum("power_losses"),
        "distinct_images": sum("distinct_images"), "failures": 0,
    }))
}

/// Builds and runs `endure` with `arguments`. Answers its last line; `None` where this machine cannot run it.
fn endure(arguments: &[&str]) -> Result<Option<serde_json::Value>, String> {
    let build = [&["build", "-p", "ironstone-testkit", "--bin", "endure"][..], &PROFILE].concat();
    run("cargo", &build, &[])?;
    let program = target_dir().join("checked/endure");
    eprintln!("==> {} {}", program.display(), arguments.join(" "));
    let output = Command::new(&program)
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    if !output.status.success() {
        return Err(format!("endure {}: failed", arguments.join(" ")));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_default();
    println!("{line}");
    if line.starts_with("SKIP") {
        return Ok(None);
    }
    serde_json::from_str(line).map(Some).map_err(|error| format!("{line}: {error}"))
}

/// A directory in memory for `purpose`, not yet there.
fn scratch(purpose: &str) -> PathBuf {
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    base.join(format!("ironstone-{purpose}-{}", std::process::id()))
}

/// Kills processes that write to a database in memory.
pub fn kill(count: u64, seed: u64) -> Result<serde_json::Value, String> {
    let dir = scratch("kill");
    let report = endure(&["kill", &count.to_string(), &seed.to_string(), &dir.to_string_lossy()])?;
    report.ok_or_else(|| "it is never skipped".to_owned())
}

/// Takes the power from each kind of file system.
pub fn power(count: u64, seed: u64) -> Result<Vec<serde_json::Value>, String> {
    on_file_systems("power", &["ext4-ordered", "ext4-writeback", "xfs"], count, seed)
}

/// Lets the space of each kind of file system end.
pub fn full(count: u64, seed: u64) -> Result<Vec<serde_json::Value>, String> {
    on_file_systems("full", &["ext4-ordered", "ext4-writeback", "xfs", "tmpfs"], count, seed)
}

fn on_file_systems(
    what: &str,
    kinds: &[&str],
    count: u64,
    seed: u64,
) -> Result<Vec<serde_json::Value>, String> {
    let mut reports = Vec::new();
    for kind in kinds {
        let dir = std::env::temp_dir().join(format!("ironstone-{what}-{}", std::process::id()));
        let report = endure(&[what, &count.to_string(), &seed.to_string(), &dir.to_string_lossy(), kind]);
        let _ = std::fs::remove_dir_all(&dir);
        reports.extend(report?);
    }
    Ok(reports)
}

/// The directory that `crates/compat/install-oracles.sh` fills.
fn oracles() -> PathBuf {
    let given = std::env::var_os("IRONSTONE_ORACLES").map(PathBuf::from);
    given.unwrap_or_else(|| target_dir().join("oracles"))
}

/// The release of RocksDB that the driver of the damage table is made of: it is in the name of the package.
fn peer_release(oracles: &Path) -> Option<String> {
    let names =
        std::fs::read_dir(oracles).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| Some(name.strip_prefix("rocksdbjni-")?.strip_suffix(".jar")?.to_owned())).max()
}

/// Damages databases of Ironstone and of RocksDB, every so many bytes of each file. `None` where there is no RocksDB.
pub fn damage(every: u64) -> Result<Option<serde_json::Value>, String> {
    let oracles = oracles();
    let driver = oracles.join("rocksdb_damage");
    let Some(release) = peer_release(&oracles).filter(|_| driver.exists()) else {
        println!("SKIP damage beside RocksDB: {} is not there, see install-oracles.sh", driver.display());
        return Ok(None);
    };
    let dir = scratch("damage");
    let report = endure(&["damage", &every.to_string(), &driver.to_string_lossy(), &dir.to_string_lossy()]);
    let _ = std::fs::remove_dir_all(&dir);
    let mut report = report?.ok_or("it is never skipped")?;
    report["rocksdb"] = release.into();
    Ok(Some(report))
}
