//! `cargo xtask sanitize`: the tests of what has `unsafe` or threads under ThreadSanitizer and AddressSanitizer.
//!
//! The standard library is built with the sanitizer too (`-Zbuild-std`): what it synchronizes is seen. `rustix` goes
//! through the C library: of its own system calls ThreadSanitizer would not see that an address is mapped anew.

use crate::campaign::keep;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const USAGE: &str = "\
usage: cargo xtask sanitize [thread | address]

  Needs a nightly toolchain with rust-src. Both sanitizers if none is named; what came of it is recorded then.";

const HOST: &str = "x86_64-unknown-linux-gnu";
/// Tests of libraries, and of these targets.
const PACKAGES: [&str; 6] = [
    "ironstone-memtable",
    "ironstone-cache",
    "ironstone-vfs",
    "ironstone-sst",
    "ironstone",
    "ironstone-testkit",
];
const TARGETS: [&str; 2] = ["api", "model"];
/// Everything is slower by five to fifteen times.
const MODEL_OPERATIONS: &str = "20000";

struct Sanitizer {
    name: &'static str,
    /// What a report starts with.
    report: &'static str,
}

const SANITIZERS: [Sanitizer; 2] = [
    Sanitizer { name: "thread", report: "WARNING: ThreadSanitizer" },
    Sanitizer { name: "address", report: "ERROR: AddressSanitizer" },
];

/// Runs what `arguments` ask for.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let chosen = match arguments {
        [] => None,
        [name] if SANITIZERS.iter().any(|sanitizer| sanitizer.name == name) => Some(name),
        _ => return Err(USAGE.to_owned()),
    };
    if !has_sources() {
        println!(
            "SKIP sanitizers: no nightly toolchain with rust-src (rustup +nightly component add rust-src)"
        );
        return Ok(());
    }
    let start = Instant::now();
    let mut all = Vec::new();
    for sanitizer in SANITIZERS.iter().filter(|sanitizer| chosen.is_none_or(|name| sanitizer.name == name)) {
        all.push(sanitizer.test()?);
    }
    if chosen.is_none() {
        keep("sanitize", json!({ "sanitizers": all }), start.elapsed().as_secs())?;
    }
    let bad = all.iter().filter(|one| one["reports"] != 0 || one["failed"] != 0).count();
    if bad == 0 {
        Ok(())
    } else {
        Err("a sanitizer or a test has found something: see target/sanitize".to_owned())
    }
}

fn has_sources() -> bool {
    let sysroot = Command::new("rustc")
        .args(["+nightly", "--print", "sysroot"])
        .env_remove("RUSTUP_TOOLCHAIN")
        .output();
    let sysroot = sysroot.ok().filter(|output| output.status.success());
    let sysroot = sysroot.map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    sysroot.is_some_and(|sysroot| sysroot.join("lib/rustlib/src/rust/library/std").is_dir())
}

impl Sanitizer {
    fn test(&self) -> Result<Value, String> {
        let dir = Path::new("target/sanitize");
        std::fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let log = dir.join(format!("{}.log", self.name));
        let mut command = Command::new("cargo");
        command.args([
            "test",
            "-Zbuild-std",
            "--target",
            HOST,
            "--profile",
            "checked",
            "--no-fail-fast",
            "--lib",
        ]);
        command.args(PACKAGES.iter().flat_map(|package| ["-p", package]));
        command.args(TARGETS.iter().flat_map(|target| ["--test", target]));
        command
            .env("RUSTFLAGS", format!("-Zsanitizer={} --cfg=rustix_use_libc", self.name))
            .env("CARGO_TARGET_DIR", dir.join(self.name))
            // The toolchain of this very command must not choose the compiler of that one.
            .env("RUSTUP_TOOLCHAIN", "nightly")
            .env("IRONSTONE_MODEL_OPS", MODEL_OPERATIONS)
            .env("TSAN_OPTIONS", "second_deadlock_stack=1")
            .stdin(Stdio::null());
        eprintln!("==> {command:?}");
        let start = Instant::now();
        let output = command.output().map_err(|error| format!("cargo: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        std::fs::write(&log, &*text).map_err(|error| format!("{}: {error}", log.display()))?;
        let count = |word: &str| {
            let results = text.lines().filter_map(|line| line.strip_prefix("test result: "));
            let counts = results.flat_map(|line| line.split(['.', ';']).map(str::trim));
            counts.filter_map(|part| part.strip_suffix(word)?.trim().parse::<u64>().ok()).sum::<u64>()
        };
        let (passed, failed) = (count("passed"), count("failed"));
        let reports = text.lines().filter(|line| line.contains(self.report)).count();
        println!(
            "{}: {passed} tests passed, {failed} failed, {reports} reports; {}",
            self.name,
            log.display()
        );
        if passed == 0 || (!output.status.success() && failed == 0 && reports == 0) {
            return Err(format!(
                "the tests under the {} sanitizer did not run: see {}",
                self.name,
                log.display()
            ));
        }
        Ok(json!({ "sanitizer": self.name, "passed": passed, "failed": failed, "reports": reports,
            "packages": PACKAGES, "model_operations": MODEL_OPERATIONS, "seconds": start.elapsed().as_secs() }))
    }
}
