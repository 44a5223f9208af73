//! How many machine instructions the most frequent operations take, beside what was recorded: unlike seconds, they are the
//! same on a busy machine.

use crate::check::{run, target_dir};
use std::collections::BTreeMap;
use std::process::Command;

const RECORD: &str = "docs/benchmarks/instructions.json";
/// What `crates/testkit/src/bin/instructions.rs` does, and how often in the shorter of two runs.
const OPERATIONS: [(&str, u64); 6] = [
    ("get", 5_000),
    ("get-missing", 5_000),
    ("multi-get-32", 200),
    ("next", 15_000),
    ("put", 5_000),
    ("seek", 5_000),
];
/// More than so many percent away from the record is a failure, in both directions: a record that is too large would let
/// the next change pass.
const TOLERANCE: f64 = 5.0;

/// Counts, and compares with the record, or makes it anew with `--record`.
pub fn check(arguments: &[String]) -> Result<(), String> {
    let records = match arguments {
        [] => false,
        [flag] if flag == "--record" => true,
        _ => return Err("usage: cargo xtask instructions [--record]".to_owned()),
    };
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("SKIP instruction counts: valgrind is not installed");
        return Ok(());
    }
    run("cargo", &["build", "--release", "-p", "ironstone-testkit", "--bin", "instructions"], &[])?;
    let counted = std::thread::scope(|scope| {
        let count =
            |(operation, count): (&'static str, u64)| (operation, scope.spawn(move || of(operation, count)));
        let all: Vec<_> = OPERATIONS.into_iter().map(count).collect();
        let join = |(operation, thread): (&str, std::thread::ScopedJoinHandle<'_, Result<u64, String>>)| {
            Ok((operation.to_owned(), thread.join().expect("it does not panic")?))
        };
        all.into_iter().map(join).collect::<Result<BTreeMap<_, _>, String>>()
    })?;
    if records {
        let text = serde_json::to_string_pretty(&counted).map_err(|error| error.to_string())? + "\n";
        return std::fs::write(RECORD, text).map_err(|error| format!("{RECORD}: {error}"));
    }
    let text = std::fs::read_to_string(RECORD).map_err(|error| format!("{RECORD}: {error}"))?;
    let recorded: BTreeMap<String, u64> =
        serde_json::from_str(&text).map_err(|error| format!("{RECORD}: {error}"))?;
    let mut far = Vec::new();
    for (operation, count) in &counted {
        let before = *recorded.get(operation).ok_or_else(|| format!("{RECORD} has no {operation}"))?;
        let percent = (*count as f64 / before as f64 - 1.0) * 100.0;
        eprintln!("{operation:14} {count:8} instructions, recorded {before:8}, {percent:+.1} %");
        if percent.abs() > TOLERANCE {
            far.push(operation.as_str());
        }
    }
    match far.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "{}: more than {TOLERANCE} % from {RECORD}. If that is what the change is for, say so in it and run \
             `cargo xtask instructions --record`.",
            far.join(", ")
        )),
    }
}

/// The instructions of one operation.
fn of(operation: &str, count: u64) -> Result<u64, String> {
    let (short, long) = (total(operation, count)?, total(operation, 3 * count)?);
    Ok(long.saturating_sub(short) / (2 * count))
}

/// Those of a whole run.
fn total(operation: &str, count: u64) -> Result<u64, String> {
    let binary = target_dir().join("release/instructions");
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(binary)
        .args([operation, &count.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|line| line.contains("I ") && line.contains("refs:"));
    let digits: Option<String> = line
        .and_then(|line| line.rsplit(':').next())
        .map(|number| number.chars().filter(char::is_ascii_digit).collect());
    match digits.and_then(|digits| digits.parse().ok()) {
        Some(count) if output.status.success() => Ok(count),
        _ => Err(format!("valgrind instructions {operation} {count}: {}\n{text}", output.status)),
    }
}
