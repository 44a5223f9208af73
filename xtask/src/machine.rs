//! What is measured on, and its coming to rest before a run.

use serde_json::{Value, json};
use std::process::Command;

/// What the machine is, for the records.
pub fn describe() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu_info = read("/proc/cpuinfo");
    let model = cpu_info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    json!({
        "cpu": model.map_or("unknown", |(_, model)| model.trim()),
        "cpus": cpu_info.lines().filter(|line| line.starts_with("processor")).count(),
        "memory": read("/proc/meminfo").lines().next().unwrap_or_default().split_whitespace().skip(1).collect::<Vec<_>>().join(" "),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "commit": crate::campaign::version(),
    })
}

/// Waits until the disk has what earlier runs wrote.
pub fn sync() -> Result<(), String> {
    let status = Command::new("sync").status().map_err(|error| format!("sync: {error}"))?;
    if status.success() { Ok(()) } else { Err("sync failed".to_owned()) }
}
