//! `cargo xtask fuzz`: the fuzz targets under libFuzzer with AddressSanitizer, by turns.

mod report;

use report::Outcome;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const USAGE: &str = "\
usage: cargo xtask fuzz [options]

  --minutes M        for how long each target runs, default 2
  --target NAME,...  these targets
  --reseed           write the seeds that the real writers make, and stop
  --no-report        leave docs/reliability/fuzz.json alone

Needs a nightly toolchain and a C++ compiler. What it found interesting is kept in fuzz/corpus, inputs that fail in
fuzz/artifacts.";

const HOST: &str = "x86_64-unknown-linux-gnu";
/// Where the binaries go: away from what cargo builds without a sanitizer.
const BUILD_DIR: &str = "fuzz/target";
/// What cargo-fuzz passes as well: coverage counters, comparisons that are traced, AddressSanitizer.
const FLAGS: [&str; 9] = [
    "-Zsanitizer=address",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cdebug-assertions",
    "-Coverflow-checks",
    "--cfg=fuzzing",
];
/// An input that takes longer counts as a hang.
const TIMEOUT_SECONDS: u32 = 30;
/// More than all targets need, far less than a length that nobody checked asks for.
const RSS_LIMIT_MIB: u32 = 3072;

struct Plan {
    minutes: f64,
    targets: Vec<String>,
    report: bool,
}

/// Runs what `arguments` ask for.
pub fn run(arguments: &[String]) -> Result<(), String> {
    if arguments.iter().any(|argument| argument == "--reseed") {
        let test = ["test", "--profile", "checked", "-p", "ironstone-fuzz", "--test", "replay", "seeds_of"];
        return crate::check::run("cargo", &test, &[("REWRITE", "1")]);
    }
    let plan = Plan::parse(arguments)?;
    let commit = crate::campaign::version(); // Before they are built: the run takes long, and work goes on meanwhile.
    let programs = build()?;
    let mut outcomes = Vec::new();
    for target in &plan.targets {
        let outcome = fuzz(target, &commit, &programs.join(target), plan.minutes)?;
        println!("{outcome}");
        outcomes.push(outcome);
        if plan.report {
            report::write(&outcomes)?; // After each one, so that an interrupted run leaves its figures.
            crate::reliability::write()?;
        }
    }
    match outcomes.iter().filter(|outcome| outcome.crashes > 0).count() {
        0 => Ok(()),
        failed => Err(format!("{failed} targets failed; their inputs are in fuzz/artifacts")),
    }
}

impl Plan {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut plan = Self { minutes: 2.0, targets: all_targets()?, report: true };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--minutes" => {
                    plan.minutes = value()?.parse().map_err(|error| format!("--minutes: {error}"))?
                }
                "--target" => plan.targets = value()?.split(',').map(str::to_owned).collect(),
                "--no-report" => plan.report = false,
                _ => return Err(USAGE.to_owned()),
            }
        }
        let known = all_targets()?;
        match plan.targets.iter().find(|target| !known.contains(target)) {
            Some(target) => Err(format!("there is no fuzz target {target}")),
            None => Ok(plan),
        }
    }
}

/// Every target, in the order of `fuzz/Cargo.toml`.
fn all_targets() -> Result<Vec<String>, String> {
    let manifest =
        std::fs::read_to_string("fuzz/Cargo.toml").map_err(|error| format!("fuzz/Cargo.toml: {error}"))?;
    let binaries = manifest.split("[[bin]]").skip(1);
    Ok(binaries.filter_map(|binary| binary.split('"').nth(1)).map(str::to_owned).collect())
}

/// Builds the binaries; answers where they are.
fn build() -> Result<PathBuf, String> {
    let has = |program: &str, arguments: &[&str]| {
        let silent =
            Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
        silent.is_ok_and(|status| status.success())
    };
    if !has("cargo", &["+nightly", "--version"]) {
        return Err("fuzzing needs a nightly toolchain: rustup toolchain install nightly".to_owned());
    }
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    if !has(&compiler, &["--version"]) {
        return Err(format!("fuzzing needs a C++ compiler for libFuzzer, and {compiler} does not run"));
    }
    let dir = std::env::var("IRONSTONE_FUZZ_TARGET_DIR").unwrap_or_else(|_| BUILD_DIR.to_owned());
    // With a target named, build scripts and macros are built without the flags.
    let arguments =
        ["+nightly", "build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", HOST];
    // The toolchain of this very command must not choose the compiler of that one.
    let environment =
        [("RUSTFLAGS", &*FLAGS.join(" ")), ("CARGO_TARGET_DIR", &dir), ("RUSTUP_TOOLCHAIN", "nightly")];
    crate::check::run("cargo", &arguments[1..], &environment)?;
    Ok(Path::new(&dir).join(HOST).join("release"))
}

/// Runs one target.
fn fuzz(target: &str, commit: &str, program: &Path, minutes: f64) -> Result<Outcome, String> {
    let (corpus, artifacts) = (format!("fuzz/corpus/{target}"), format!("fuzz/artifacts/{target}/"));
    for dir in [&corpus, &artifacts] {
        std::fs::create_dir_all(dir).map_err(|error| format!("{dir}: {error}"))?;
    }
    let started = Instant::now();
    let output = Command::new(program)
        .args([
            format!("-max_total_time={}", (minutes * 60.0).ceil()),
            format!("-timeout={TIMEOUT_SECONDS}"),
            format!("-rss_limit_mb={RSS_LIMIT_MIB}"),
            format!("-artifact_prefix={artifacts}"),
            "-print_final_stats=1".to_owned(),
            corpus,
            format!("fuzz/seeds/{target}"),
        ])
        .env("ASAN_OPTIONS", "detect_odr_violation=0")
        .output()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let log = format!("{artifacts}log");
    std::fs::write(&log, &*text).map_err(|error| format!("{log}: {error}"))?;
    Ok(Outcome::parse(target, commit, &text, started.elapsed().as_secs_f64(), output.status.success()))
}
