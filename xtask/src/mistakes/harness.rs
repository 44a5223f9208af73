//! The test binaries that look for mistakes.
//!
//! ```text
//! unit:<crate>   its unit tests
//! api            crates/db/tests/api
//! encryption     crates/encryption/tests
//! model, crash, faults, damage   crates/testkit/tests
//! sim, loom      the programs of these workspaces
//! ```

use super::copy::VARIABLE;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// What the tests of the testkit do less of, since they are run for every mistake.
const SHORTER: &[(&str, &str)] = &[("IRONSTONE_CRASH_STATES", "6000"), ("IRONSTONE_MODEL_OPS", "150000")];

/// The programs that are harnesses, and what they are run with.
const PROGRAMS: &[(&str, &[&str])] =
    &[("sim", &["--seed", "0", "--runs", "4000", "--no-shrink"]), ("loom", &[])];

/// A built test binary or program.
#[derive(Clone, Debug)]
pub struct Harness {
    binary: PathBuf,
    /// Where its package is.
    package: PathBuf,
    arguments: &'static [&'static str],
}

/// How a run of a harness ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Why the harness has found something; `None` if all its tests passed.
    pub found: Option<String>,
    pub seconds: f64,
}

/// How a run ended that took too long.
const HANG: &str = "hang";

/// The package of harness `name`, and its test target if that is not the library.
fn target(name: &str) -> Result<(String, Option<&str>), String> {
    match name {
        "unit:db" | "api" => Ok(("ironstone".to_owned(), (name == "api").then_some("api"))),
        "encryption" => Ok(("ironstone-encryption".to_owned(), Some("database"))),
        "model" | "crash" | "faults" | "damage" => Ok(("ironstone-testkit".to_owned(), Some(name))),
        _ => match name.strip_prefix("unit:") {
            Some(package) => Ok((format!("ironstone-{package}"), None)),
            None => Err(format!("there is no harness {name}")),
        },
    }
}

/// Whether there is a harness of this name in the repository at `root`.
#[cfg(test)]
pub fn is(root: &Path, name: &str) -> bool {
    let has = |dir: &str| root.join(dir).join("Cargo.toml").exists();
    match name.strip_prefix("unit:") {
        Some(package) => has(&format!("crates/{package}")),
        None => PROGRAMS.iter().any(|(program, _)| *program == name) || target(name).is_ok(),
    }
}

/// Builds the harnesses of these names from the copy in `source`.
pub fn build(
    source: &Path,
    target_dir: &Path,
    names: &BTreeSet<String>,
) -> Result<BTreeMap<String, Harness>, String> {
    let is_program = |name: &&String| PROGRAMS.iter().any(|(program, _)| program == name);
    let (programs, tests): (Vec<&String>, Vec<&String>) = names.iter().partition(is_program);
    let mut harnesses = BTreeMap::new();
    for name in programs {
        harnesses.insert(name.clone(), build_program(source, target_dir, name)?);
    }
    harnesses.extend(build_tests(source, target_dir, &tests)?);
    Ok(harnesses)
}

/// Builds the program of the workspace `name`.
fn build_program(source: &Path, target_dir: &Path, name: &str) -> Result<Harness, String> {
    let target_dir = target_dir.join(name);
    let package = source.join(name);
    let status = Command::new("cargo")
        .args(["build", "--profile", "checked", "--jobs", "2"])
        .current_dir(&package)
        .env("CARGO_TARGET_DIR", &target_dir)
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if !status.success() {
        return Err(format!("{name} with the mistakes does not build"));
    }
    let known = PROGRAMS.iter().find(|(program, _)| *program == name);
    let arguments = known.map(|(_, arguments)| *arguments).unwrap_or_default();
    Ok(Harness { binary: target_dir.join("checked").join(name), package, arguments })
}

/// Builds the test binaries of these names.
fn build_tests(
    source: &Path,
    target_dir: &Path,
    names: &[&String],
) -> Result<BTreeMap<String, Harness>, String> {
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut command = Command::new("cargo");
    command.args(["test", "--no-run", "--profile", "checked", "--message-format", "json", "--lib"]);
    command.args(["--jobs", "2"]);
    let mut packages = BTreeSet::new();
    for name in names {
        let (package, test) = target(name)?;
        if packages.insert(package.clone()) {
            command.args(["-p", &package]);
        }
        if let Some(test) = test {
            command.args(["--test", test]);
        }
    }
    command.current_dir(source).env("CARGO_TARGET_DIR", target_dir).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("cargo: {error}"))?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut binaries = BTreeMap::new();
    for message in messages {
        if message["message"]["level"] == "error" {
            eprintln!("{}", message["message"]["rendered"].as_str().unwrap_or_default());
        }
        let Some(binary) = message["executable"].as_str() else { continue };
        let Some(manifest) = message["manifest_path"].as_str() else { continue };
        let package = Path::new(manifest).parent().unwrap_or(source).to_owned();
        let kind = message["target"]["kind"][0].as_str().unwrap_or_default();
        let test = if kind == "test" { message["target"]["name"].as_str() } else { None };
        let crate_name = package.file_name().map(|name| name.to_string_lossy().into_owned());
        let key = test.map_or_else(|| format!("unit:{}", crate_name.unwrap_or_default()), str::to_owned);
        binaries.insert(key, Harness { binary: binary.into(), package, arguments: &[] });
    }
    if !output.status.success() {
        return Err("the copy with the mistakes does not build".to_owned());
    }
    let find = |name: &&String| {
        let built = binaries.get(*name).cloned().ok_or_else(|| format!("{name} was not built"))?;
        Ok(((*name).clone(), built))
    };
    names.iter().map(find).collect()
}

impl Harness {
    /// Runs its tests with `mistake` chosen (none if it is empty), up to the first that fails, for at most
    /// `limit`. What they print goes to `log`.
    pub fn run(&self, mistake: &str, limit: Duration, log: &Path) -> Result<Ended, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.binary.display());
        let log = File::create(log).map_err(failed)?;
        let start = Instant::now();
        let mut child = Command::new(&self.binary)
            .args(self.arguments)
            .current_dir(&self.package)
            .env("CARGO_MANIFEST_DIR", &self.package)
            .env(VARIABLE, mistake)
            .envs(SHORTER.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.try_clone().map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        let failures = watch(&mut child, log);
        let found = match failures.recv_timeout(limit) {
            Ok(test) => Some(test),
            Err(RecvTimeoutError::Timeout) => Some(HANG.to_owned()),
            Err(RecvTimeoutError::Disconnected) => None,
        };
        // A failure without a mistake is waited for, since the tests tell about it at their end.
        if found.as_deref().is_some_and(|found| !mistake.is_empty() || found == HANG) {
            let _ = child.kill(); // It may have ended by itself.
        }
        let status = child.wait().map_err(failed)?;
        let found = found.or_else(|| (!status.success()).then(|| format!("{status}")));
        Ok(Ended { found, seconds: start.elapsed().as_secs_f64() })
    }
}

/// Sends the names of tests that fail, as they do, until the tests have ended.
fn watch(child: &mut Child, mut log: File) -> Receiver<String> {
    let (send, receive) = channel();
    let stdout = child.stdout.take().expect("it is piped");
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let _ = writeln!(log, "{line}"); // Only for whoever looks into a miss.
            if let Some(test) = failed_part(&line) {
                let _ = send.send(test.to_owned()); // Nobody listens after the first.
            }
        }
    });
    receive
}

/// What has failed, if `line` says that: a test, a scene of loom, a seed of the simulator.
fn failed_part(line: &str) -> Option<&str> {
    let test = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"));
    let scene = || line.split_once(": FAILED").map(|(scene, _)| scene);
    test.or_else(scene)
        .or_else(|| line.split_once(':').map(|(seed, _)| seed).filter(|seed| seed.starts_with("seed ")))
}

/// How long a harness may take that takes `control` seconds without a mistake.
pub fn limit(control: f64) -> Duration {
    Duration::from_secs_f64(control * 5.0 + 30.0)
}

/// The harnesses by name, with the seconds that each takes without a mistake.
pub type Controlled = Arc<BTreeMap<String, (Harness, f64)>>;
