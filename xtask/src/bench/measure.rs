//! Runs a command line and reads what it printed and what it took.

use super::case::Case;
use crate::machine;
use crate::page_cache::FullPageCache;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Says what a process took (GNU time).
const TIME: &str = "/usr/bin/time";

/// What one run came to.
#[derive(Clone, Debug, Default)]
pub struct Measurement {
    /// As the line says.
    pub operations_per_second: f64,
    /// As the line says; 0 if it does not.
    pub megabytes_per_second: f64,
    /// P50, P99, P99.9 and the maximum, in microseconds, of what was timed first; 0 if nothing was.
    pub latency_micros: [f64; 4],
    /// The most memory that the process had.
    pub peak_memory_mib: f64,
    /// Of user and system.
    pub cpu_seconds: f64,
    /// What the process had written to the device.
    pub written_mib: f64,
    /// Of the whole process.
    pub wall_seconds: f64,
}

impl Measurement {
    /// The fields by name.
    pub fn to_json(&self) -> Value {
        json!({
            "operations_per_second": self.operations_per_second,
            "megabytes_per_second": self.megabytes_per_second,
            "latency_micros_p50_p99_p999_max": self.latency_micros,
            "peak_memory_mib": self.peak_memory_mib,
            "cpu_seconds": self.cpu_seconds,
            "written_mib": self.written_mib,
            "wall_seconds": self.wall_seconds,
        })
    }
}

/// Runs a case with `program` on the database in `dir`, with no memory free: where a hypervisor takes it, whoever touches it
/// first pays.
pub fn run(
    program: &Path,
    case: &Case,
    dir: &Path,
    page_cache: &FullPageCache,
) -> Result<Measurement, String> {
    machine::sync()?;
    page_cache.fill()?;
    let record = dir.with_extension("time");
    let database = dir.join("db");
    let output = Command::new(TIME)
        .args(["--quiet", "--format=%M %U %S %O %e", "--output"])
        .arg(&record)
        .arg(program)
        .args(case.flags_for(&database.to_string_lossy()))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{TIME}: {error} (the package `time`)"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} of {} failed: {}", case.name, program.display(), errors.trim()));
    }
    let record =
        std::fs::read_to_string(&record).map_err(|error| format!("{}: {error}", record.display()))?;
    let numbers: Vec<f64> = record.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let [kibibytes, user, system, blocks, wall] = numbers[..] else {
        return Err(format!("{TIME} said {record}"));
    };
    let mut measurement = if case.measured { read_line(&text)? } else { Measurement::default() };
    measurement.peak_memory_mib = kibibytes / 1024.0;
    measurement.cpu_seconds = user + system;
    measurement.written_mib = blocks / 2048.0;
    measurement.wall_seconds = wall;
    Ok(measurement)
}

/// Reads the line of the benchmark, and the distribution after it.
fn read_line(text: &str) -> Result<Measurement, String> {
    let mut lines = text.lines().skip_while(|line| !line.contains(" ops/sec "));
    let line = lines.next().ok_or_else(|| format!("no line with ops/sec in {text}"))?;
    let before = |unit: &str| {
        let word = line.split(unit).next()?.split_whitespace().next_back()?;
        word.parse::<f64>().ok()
    };
    let mut measurement = Measurement {
        operations_per_second: before(" ops/sec").ok_or_else(|| format!("no rate in {line}"))?,
        megabytes_per_second: if line.contains(" MB/s") { before(" MB/s").unwrap_or(0.0) } else { 0.0 },
        ..Measurement::default()
    };
    // ops/sec is a whole number, too coarse for the few operations of a compaction.
    if let (Some(seconds), Some(operations)) = (before(" seconds"), before(" operations"))
        && seconds > 0.0
        && operations < 1000.0
    {
        measurement.operations_per_second = operations / seconds;
    }
    let number_after = |line: &str, name: &str| -> Option<f64> {
        line.split(name).nth(1)?.split_whitespace().next()?.parse().ok()
    };
    for line in lines.take_while(|line| !line.contains(" ops/sec ")) {
        let [p50, p99, p999, max] = &mut measurement.latency_micros;
        if *max == 0.0 && line.starts_with("Min:") {
            *max = number_after(line, "Max:").unwrap_or(0.0);
        }
        if *p50 == 0.0 && line.starts_with("Percentiles:") {
            *p50 = number_after(line, "P50:").unwrap_or(0.0);
            *p99 = number_after(line, "P99:").unwrap_or(0.0);
            *p999 = number_after(line, "P99.9:").unwrap_or(0.0);
        }
    }
    Ok(measurement)
}

/// What is measured on, and how busy it is.
pub fn machine(programs: &[PathBuf; 2]) -> Result<Value, String> {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let version = Command::new(&programs[1]).arg("--version").output();
    let version = version.map_err(|error| format!("{}: {error}", programs[1].display()))?;
    let mut machine = machine::describe();
    machine["load"] = json!(format!("load before: {}", load.trim()));
    machine["theirs"] = json!(String::from_utf8_lossy(&version.stdout).trim());
    Ok(machine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read() {
        let text = "DB path: [/x]\n\
            readrandom   :       1.284 micros/op 778331 ops/sec 0.026 seconds 20000 operations;   54.1 MB/s (12572 of 20000 found)\n\n\
            Microseconds per read:\nCount: 20000 Average: 1.2853  StdDev: 1.96\nMin: 0  Median: 0.6825  Max: 177\n\
            Percentiles: P50: 0.68 P75: 1.07 P99: 2.85 P99.9: 11.67 P99.99: 93.00\n";
        let measurement = read_line(text).unwrap();
        assert_eq!(measurement.operations_per_second, 778_331.0);
        assert_eq!(measurement.megabytes_per_second, 54.1);
        assert_eq!(measurement.latency_micros, [0.68, 2.85, 11.67, 177.0]);
    }

    #[test]
    fn a_compaction_is_one_operation() {
        let text = "compact      :   37639.000 micros/op 26 ops/sec 0.038 seconds 1 operations;\n";
        assert!((read_line(text).unwrap().operations_per_second - 26.3).abs() < 0.1);
    }
}
