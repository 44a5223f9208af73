//! Checks the structure: arrows between crates point one way, `unsafe` stays where it is argued, and
//! nothing is in the repository that does not belong there.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Which of our crates each crate may use.
const MAY_USE: &[(&str, &[&str])] = &[
    ("ironstone-base", &[]),
    ("ironstone-vfs", &["base"]),
    ("ironstone-compress", &["base"]),
    ("ironstone-iter", &["base"]),
    ("ironstone-cache", &["base"]),
    ("ironstone-wal", &["base", "vfs", "compress"]),
    ("ironstone-memtable", &["base", "iter"]),
    ("ironstone-sst", &["base", "vfs", "compress", "cache", "iter"]),
    ("ironstone-version", &["base", "vfs", "wal"]),
    ("ironstone-compaction", &["base", "vfs", "compress", "iter", "sst", "version"]),
    (
        "ironstone",
        &["base", "vfs", "compress", "iter", "cache", "wal", "memtable", "sst", "version", "compaction"],
    ),
    // Beside the engine: nothing uses it.
    ("ironstone-remote", &["base", "vfs"]),
    ("ironstone-metrics", &[]),
    ("ironstone-encryption", &["base", "vfs"]),
    // Nobody uses it but its tests and the workspace in `fuzz/`.
    ("ironstone-fuzz", &["base", "vfs", "compress", "iter", "wal", "sst", "version", "testkit"]),
];

/// The one crate with an asynchronous runtime, and how such runtimes and their clients are called.
const ASYNC: &str = "ironstone-remote";
const RUNTIMES: &[&str] = &["tokio", "opendal", "futures", "smol", "async-std", "reqwest", "hyper"];

/// Crates that hold `unsafe`; every other one forbids it.
const UNSAFE: &[&str] = &["vfs", "cache", "memtable"];

/// Checks everything.
pub fn check() -> Result<(), String> {
    let mut findings = dependencies()?;
    findings.extend(unsafe_code()?);
    findings.extend(strangers()?);
    if findings.is_empty() { Ok(()) } else { Err(findings.join("\n")) }
}

fn output(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output =
        Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    String::from_utf8(output.stdout).map_err(|error| format!("{program}: {error}"))
}

fn dependencies() -> Result<Vec<String>, String> {
    let metadata = output("cargo", &["metadata", "--format-version", "1", "--no-deps", "--offline"])?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata).map_err(|error| error.to_string())?;
    let rules: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let mut findings = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = dependency["name"].as_str().unwrap_or_default();
            if name != ASYNC && (RUNTIMES.contains(&used) || used == ASYNC) {
                findings.push(format!("{name} may not use {used}: only {ASYNC} is asynchronous inside"));
            }
        }
        let Some(allowed) = rules.get(name) else { continue };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = dependency["name"].as_str().unwrap_or_default();
            let Some(short) = used.strip_prefix("ironstone-") else { continue };
            if dependency["kind"].is_null() && !allowed.contains(&short) {
                findings.push(format!("{name} may not use {used}"));
            }
        }
    }
    Ok(findings)
}

fn unsafe_code() -> Result<Vec<String>, String> {
    let mut findings = Vec::new();
    let crates = std::fs::read_dir("crates").map_err(|error| format!("crates: {error}"))?;
    for entry in crates {
        let path = entry.map_err(|error| error.to_string())?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let library = path.join("src/lib.rs");
        if UNSAFE.contains(&name.as_str()) || !library.exists() {
            continue;
        }
        let text = std::fs::read_to_string(&library).map_err(|error| error.to_string())?;
        if !text.contains("#![forbid(unsafe_code)]") {
            findings.push(format!("{} does not forbid unsafe code", library.display()));
        }
    }
    Ok(findings)
}

/// Words that must not be in the repository, in pieces, so that this file does not hold them.
fn strangers() -> Result<Vec<String>, String> {
    let hosts = ["crates\\.", "io|pypi\\.", "org|registry\\.npm", "js|deb\\.deb", "ian"].concat();
    let listed = output("git", &["grep", "-nIiE", &hosts, "--", ".", ":!*.lock"])?;
    let mut findings: Vec<String> =
        listed.lines().map(|line| format!("names a registry's host: {line}")).collect();
    let large = output("git", &["ls-files"])?;
    for file in large.lines().filter(|file| Path::new(file).exists()) {
        let bytes = std::fs::metadata(file).map_err(|error| error.to_string())?.len();
        if bytes > 2 << 20 {
            findings.push(format!("{file} has {bytes} bytes"));
        }
    }
    Ok(findings)
}
