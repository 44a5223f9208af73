//! Keeps results in docs/benchmarks/*.json and makes the table in docs/benchmarks.md from them.

use super::case::{Group, Kind};
use super::{Results, SIDES, describe};
use serde_json::{Value, json};
use std::path::Path;

const DIRECTORY: &str = "docs/benchmarks";
const TABLE: &str = "docs/benchmarks.md";
/// How much of RocksDB's rate, and of its memory, is asked for.
const WRITE_FLOOR: f64 = 1.4;
const READ_FLOOR: f64 = 1.0;
const MEMORY_CEILING: f64 = 1.1;

/// Writes the results of a group. Lines that were not run this time keep theirs.
pub fn store(group: &Group, results: &Results, machine: &Value) -> Result<(), String> {
    let path = Path::new(DIRECTORY).join(format!("{}.json", group.name));
    let mut cases: Vec<Value> = match std::fs::read_to_string(&path) {
        Ok(text) => {
            let old: Value =
                serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
            old["cases"].as_array().cloned().unwrap_or_default()
        }
        Err(_) => Vec::new(), // The first time.
    };
    for (case, pairs) in group.cases.iter().zip(results) {
        let mut entry = describe(case);
        entry["kind"] = json!(if case.kind == Kind::Write { "write" } else { "read" });
        entry["machine"] = machine.clone();
        for (side, name) in SIDES.iter().enumerate() {
            entry[*name] = pairs.iter().map(|pair| pair[side].to_json()).collect();
        }
        match cases.iter_mut().find(|old| old["name"] == entry["name"]) {
            Some(old) => *old = entry,
            None => cases.push(entry),
        }
    }
    let text = serde_json::to_string_pretty(&json!({ "cases": cases })).map_err(|error| error.to_string())?;
    std::fs::create_dir_all(DIRECTORY).map_err(|error| format!("{DIRECTORY}: {error}"))?;
    std::fs::write(&path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))
}

/// Makes the table from all results that there are, its rows in `order`.
pub fn write_table(order: &[String]) -> Result<(), String> {
    let files: Vec<_> = std::fs::read_dir(DIRECTORY)
        .map_err(|error| format!("{DIRECTORY}: {error}"))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    let mut rows = Vec::new();
    let mut machines = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let file: Value =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        for case in file["cases"].as_array().into_iter().flatten().filter(|case| case["measured"] == true) {
            let place = order.iter().position(|name| case["name"] == name.as_str());
            rows.push((place, row(case)));
            if !machines.contains(&case["machine"]) {
                machines.push(case["machine"].clone());
            }
        }
    }
    rows.sort();
    let rows: String = rows.into_iter().map(|(_, row)| row).collect();
    std::fs::write(TABLE, page(&rows, &machines)).map_err(|error| format!("{TABLE}: {error}"))?;
    println!("{TABLE} is up to date");
    Ok(())
}

fn page(rows: &str, machines: &[Value]) -> String {
    let mut text = String::from(
        "# Benchmarks\n\n\
         Ours against Debian's `db_bench` of RocksDB, the same flags on the same machine, by turns. Made by\n\n\
         ```\ncargo xtask bench\n```\n\n\
         (`--only NAME,...` for some of the lines; about 25 minutes and 10 GB of disk for all. `--peers` goes on\n\
         with all rows of `cargo xtask peers`, which takes hours.) The command lines are in\n\
         [benchmarks/commands.tsv](benchmarks/commands.tsv); what RocksDB 7.8 does not know of them any more is left\n\
         out on both sides, and where the defaults of the two programs differ, both are told (`cargo xtask bench\n\
         --dry-run` prints the result). Before every run the disk comes to rest and all\n\
         free memory becomes page cache, so that neither side meets memory that the hypervisor took back.\n\
         Lines with 32 threads do 4 million reads in all. Every number of every run is\n\
         in `benchmarks/*.json`.\n\n\
         What is to be reached, and what is: [benchmarks/targets.md](benchmarks/targets.md). A newer RocksDB, through one driver: [benchmarks/peers-rocksdb.md](benchmarks/peers-rocksdb.md). `cargo xtask peers`\n\
         has six more engines. With `--full-page-cache` all free memory is page cache before each run, as on a machine that has run for a while: on a virtual machine the first touch of a free page may take\n\
         its hypervisor 10 us, which is more than an engine does for a record and differs from run to run. Single figures: [benchmarks/figures.md](benchmarks/figures.md).\n\n\
         Rates are medians. The ratio is the median of the ratios of the pairs, with their range; it should be at least\n\
         1.4 for writes (Debian builds RocksDB with assertions, which slows writes down by as much) and 1.0 for reads.\n\
         Memory is the peak of the process, which should be at most 1.1 times RocksDB's. Latencies are P50 / P99 / P99.9\n\
         in microseconds.\n\n\
         | line | ours, ops/s | RocksDB, ops/s | ratio | enough | our memory, MiB | RocksDB's | enough | our latency | RocksDB's |\n\
         |---|---:|---:|---:|---|---:|---:|---|---:|---:|\n",
    );
    text += rows;
    text += "\nMeasured on\n\n";
    for machine in machines {
        let field = |name: &str| machine[name].as_str().unwrap_or_default().to_owned();
        text += &format!(
            "- {} x {}, {}, Linux {}; commit {}; {}; {}\n",
            machine["cpus"],
            field("cpu"),
            field("memory"),
            field("kernel"),
            field("commit"),
            field("theirs"),
            field("load")
        );
    }
    text
}

fn row(case: &Value) -> String {
    let values = |side: &str, field: &str| -> Vec<f64> {
        let runs = case[side].as_array().into_iter().flatten();
        runs.filter_map(|run| run[field].as_f64()).collect()
    };
    let rates = SIDES.map(|side| values(side, "operations_per_second"));
    let memory = SIDES.map(|side| median(&values(side, "peak_memory_mib")));
    let ratios: Vec<f64> = rates[0].iter().zip(&rates[1]).map(|(ours, theirs)| ours / theirs).collect();
    let ratio = median(&ratios);
    let floor = if case["kind"] == "write" { WRITE_FLOOR } else { READ_FLOOR };
    let enough = |yes: bool| if yes { "yes" } else { "**no**" };
    let latency = |side: &str| {
        let runs: Vec<&Value> = case[side].as_array().into_iter().flatten().collect();
        let of = |at: usize| {
            let field = "latency_micros_p50_p99_p999_max";
            median(&runs.iter().filter_map(|run| run[field][at].as_f64()).collect::<Vec<_>>())
        };
        if of(3) == 0.0 { "-".to_owned() } else { format!("{:.1} / {:.1} / {:.0}", of(0), of(1), of(2)) }
    };
    format!(
        "| {} | {} | {} | {ratio:.2} ({:.2} to {:.2}) | {} | {:.0} | {:.0} | {} | {} | {} |\n",
        case["name"].as_str().unwrap_or_default(),
        rate(median(&rates[0])),
        rate(median(&rates[1])),
        ratios.iter().copied().fold(f64::INFINITY, f64::min),
        ratios.iter().copied().fold(0.0, f64::max),
        enough(ratio >= floor),
        memory[0],
        memory[1],
        enough(memory[0] <= memory[1] * MEMORY_CEILING),
        latency(SIDES[0]),
        latency(SIDES[1]),
    )
}

fn rate(rate: f64) -> String {
    if rate >= 100.0 { format!("{rate:.0}") } else { format!("{rate:.3}") }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_whether_it_is_enough() {
        let run = |rate: f64, memory: f64| {
            json!({ "operations_per_second": rate, "peak_memory_mib": memory,
                "latency_micros_p50_p99_p999_max": [1.0, 2.0, 3.0, 4.0] })
        };
        let case = json!({ "name": "fillseq", "kind": "write", "ours": [run(300.0, 120.0), run(280.0, 120.0)],
            "theirs": [run(200.0, 100.0), run(200.0, 100.0)] });
        let expected = "| fillseq | 290 | 200 | 1.45 (1.40 to 1.50) | yes | 120 | 100 | **no** | 1.0 / 2.0 / 3 | 1.0 / 2.0 / 3 |\n";
        assert_eq!(row(&case), expected);
    }
}
