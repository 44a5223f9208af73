//! Keeps the records, and makes a page of docs/benchmarks and its charts from them.

use super::chart::{self, Axes, Line};
use super::row::{COLD_MATRIX, Group, MATRIX, Part, READERS, Row, VALUE_BYTES, matrix_name};
use super::runner::ENGINES;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::PathBuf;

const DOCS: &str = "docs/benchmarks";
/// Where records have their rate, and that with settling.
const RATE: &str = "/ops_per_second";
const SETTLED: &str = "/extra/settled_ops_per_second";
const WRITES: &str = "/extra/writes_per_second";
/// What the others are compared with.
const REFERENCE: &str = "rocksdb";

const HEAD: &str = "\
# Ironstone beside other engines

Made by `cargo xtask peers` (`--help` lists what can be chosen). One driver, `crates/peers`, does the same work with the
same keys, values, threads and timer on every engine, each run in a process of its own; engines take turns, and another
one goes first in each pair. The driver is built for each engine alone; in records from before 2026-11-29 all engines were
linked into it, which showed as memory of each (beside RocksDB 5 MiB of Ironstone's). Every record of every run, with the
load of the machine before it, is in `{NAME}/*.json`.

Keys have 16 bytes, values are text that compresses to a half. Numbers are medians of the runs; *ratio* is the median of
the ratios to RocksDB, pair by pair, with its range, above 1 where the engine is faster. CPU is the time of all threads of
the process, background work and settling included, per operation. Memory is the peak of the process from its start, of
compactions from theirs; it counts the parts of mapped files that are in memory (LMDB). Latencies are in microseconds; of
scans they are left out.
";

/// A page and its records. Sets differ in how much is done, so their numbers are not to be mixed.
pub struct Set {
    /// `peers`, or with the set's name behind it.
    name: String,
}

impl Set {
    /// The set of that name; without a name the one that has all engines.
    pub fn new(name: Option<&str>) -> Self {
        Self { name: name.map_or_else(|| "peers".to_owned(), |name| format!("peers-{name}")) }
    }
    fn page(&self) -> PathBuf {
        PathBuf::from(DOCS).join(format!("{}.md", self.name))
    }
    fn directory(&self) -> PathBuf {
        PathBuf::from(DOCS).join(&self.name)
    }
    fn file_of(&self, row: &str) -> PathBuf {
        self.directory().join(format!("{row}.json"))
    }

    /// Keeps what a row came to with an engine, in the place of what was known before.
    pub fn store(&self, row: &str, engine: &str, entry: Value) -> Result<(), String> {
        let path = self.file_of(row);
        let mut file = read(&path)?.unwrap_or_else(|| json!({ "row": row, "engines": {} }));
        file["engines"][engine] = entry;
        write_json(&path, &file)
    }

    /// Keeps what the driver says about its engines.
    pub fn store_engines(&self, engines: &[Value]) -> Result<(), String> {
        let path = self.file_of("engines");
        let mut file = read(&path)?.unwrap_or_else(|| json!({}));
        for engine in engines {
            file[engine["name"].as_str().unwrap_or_default()] = engine.clone();
        }
        write_json(&path, &file)
    }
}

fn read(path: &PathBuf) -> Result<Option<Value>, String> {
    if !path.exists() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map(Some).map_err(|error| format!("{}: {error}", path.display()))
}

fn write_json(path: &PathBuf, value: &Value) -> Result<(), String> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    }
    let text = serde_json::to_string_pretty(value).map_err(|error| error.to_string())?;
    std::fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))
}

/// What a row came to with one engine.
struct Outcome<'a> {
    engine: &'static str,
    session: &'a str,
    records: Vec<&'a Value>,
}

impl Outcome<'_> {
    /// The values of a field, nested ones by their path.
    fn values(&self, path: &str) -> Vec<f64> {
        self.records.iter().filter_map(|record| record.pointer(path)?.as_f64()).collect()
    }
    fn median(&self, path: &str) -> Option<f64> {
        median(&self.values(path))
    }
    /// A field in MiB, shared out among the records of the database.
    fn bytes_per_record(&self, path: &str) -> Option<f64> {
        Some(self.median(path)? * 1_048_576.0 / self.median("/records").unwrap_or(1.0))
    }
}

fn results(file: &Value) -> Vec<Outcome<'_>> {
    let of = |engine: &'static str| {
        let entry = file["engines"].get(engine)?;
        let records = entry["records"].as_array()?.iter().collect();
        Some(Outcome { engine, session: entry["session"].as_str().unwrap_or_default(), records })
    };
    ENGINES.iter().filter_map(|engine| of(engine)).collect()
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[count / 2]),
        count => Some((sorted[count / 2 - 1] + sorted[count / 2]) / 2.0),
    }
}

/// The median of the ratios to the reference, pair by pair, and their range; of the medians where runs were apart.
fn ratio(one: &Outcome<'_>, reference: &Outcome<'_>, path: &str) -> Option<(f64, f64, f64)> {
    let (ours, theirs) = (one.values(path), reference.values(path));
    if one.session != reference.session || ours.len() != theirs.len() {
        let ratio = median(&ours)? / median(&theirs)?;
        return Some((ratio, ratio, ratio));
    }
    let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    Some((median(&ratios)?, least, ratios.iter().copied().fold(0.0, f64::max)))
}

fn ratio_text(one: &Outcome<'_>, reference: Option<&Outcome<'_>>, path: &str) -> String {
    match reference.and_then(|reference| ratio(one, reference, path)) {
        None => "-".to_owned(),
        Some(_) if one.engine == REFERENCE => "1".to_owned(),
        Some((ratio, least, most)) if least == most => format!("{ratio:.2}"),
        Some((ratio, least, most)) => format!("{ratio:.2} ({least:.2} to {most:.2})"),
    }
}

/// Three digits or so.
fn number(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) if value >= 1.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.3}"),
    }
}

/// Fields of their own that some rows have, as columns.
const EXTRAS: [(&str, &str); 5] = [
    ("/extra/settled_ops_per_second", "settled, ops/s"),
    ("/extra/megabytes_per_second", "MB/s"),
    (WRITES, "writes/s"),
    ("/extra/longest_stop_seconds", "longest stop, s"),
    ("/extra/files", "files"),
];

fn table(row: &Row, file: &Value) -> String {
    let results = results(file);
    let reference = results.iter().find(|result| result.engine == REFERENCE);
    let extras: Vec<_> = EXTRAS
        .iter()
        .filter(|(path, _)| results.iter().any(|result| !result.values(path).is_empty()))
        .collect();
    let runs = results.iter().map(|result| result.records.len()).max().unwrap_or_default();
    let arguments = arguments(file).unwrap_or_else(|| row.arguments.join(" "));
    let mut text = format!("### {}\n\n`{arguments}`, runs: {runs}\n\n", row.title);
    text += "| engine | ops/s | ratio |";
    extras.iter().for_each(|(_, title)| write!(text, " {title} | ratio |").expect("a string takes all"));
    text +=
        " P50 | P99 | P99.9 | max | CPU us/op | ratio | peak MiB | written MiB | disk MiB |\n|---|---:|---|";
    extras.iter().for_each(|_| text += "---:|---|");
    text += "---:|---:|---:|---:|---:|---|---:|---:|---:|\n";
    let scans = row.name.contains("scan");
    for result in &results {
        let latency = |name: &str| {
            let path = format!("/latency_us/{name}");
            if scans { "-".to_owned() } else { number(result.median(&path)) }
        };
        let rate = number(result.median(RATE));
        write!(text, "| {} | {rate} | {} |", result.engine, ratio_text(result, reference, RATE))
            .expect("a string takes all");
        for (path, _) in &extras {
            write!(text, " {} | {} |", number(result.median(path)), ratio_text(result, reference, path))
                .expect("a string takes all");
        }
        let latencies = ["p50", "p99", "p999", "max"].map(latency).join(" | ");
        writeln!(
            text,
            " {latencies} | {} | {} | {} | {} | {} |",
            number(result.median("/cpu_us_per_op")),
            ratio_text(result, reference, "/cpu_us_per_op"),
            number(result.median("/peak_rss_mib")),
            number(result.median("/written_mib")),
            number(result.median("/disk_mib")),
        )
        .expect("a string takes all");
    }
    text + "\n"
}

/// What the driver was told, as the records say.
fn arguments(file: &Value) -> Option<String> {
    let first = ENGINES.iter().find_map(|engine| file["engines"].get(*engine))?;
    let words: Vec<&str> = first["arguments"].as_array()?.iter().filter_map(Value::as_str).collect();
    Some(words.join(" "))
}

/// One line per row: each engine's `path` as a multiple of RocksDB's.
fn summary(rows: &[(&Row, Value)], path: &str) -> String {
    let present = |engine: &&str| rows.iter().any(|(_, file)| file["engines"].get(*engine).is_some());
    let engines: Vec<&str> = ENGINES.iter().copied().filter(|engine| present(engine)).collect();
    let mut text = format!("| | {} |\n|---|{}\n", engines.join(" | "), "---:|".repeat(engines.len()));
    let mut line = |title: &str, file: &Value, path: &str| {
        let results = results(file);
        let reference = results.iter().find(|result| result.engine == REFERENCE);
        let cell = |engine: &&str| {
            let Some(result) = results.iter().find(|result| result.engine == *engine) else {
                return "-".to_owned();
            };
            match reference.and_then(|reference| ratio(result, reference, path)) {
                Some((ratio, ..)) if *engine != REFERENCE => format!("{ratio:.2}"),
                _ => number(result.median(path)),
            }
        };
        let cells: Vec<String> = engines.iter().map(cell).collect();
        writeln!(text, "| {title} | {} |", cells.join(" | ")).expect("a string takes all");
    };
    for (row, file) in rows {
        line(&row.title, file, path);
        let settled = |result: &Outcome<'_>| !result.values(SETTLED).is_empty();
        if path == RATE && results(file).iter().any(settled) {
            line(&format!("{}, settled", row.title), file, SETTLED);
        }
    }
    text
}

/// What is drawn over the number of readers: the file's name, the title, the unit, and where records have it.
const OVER_READERS: [(&str, &str, &str, &str); 5] = [
    ("reads", "reads per second", "operations per second", RATE),
    ("writes", "writes per second", "operations per second", WRITES),
    ("p999", "P99.9 of the reads", "microseconds", "/latency_us/p999"),
    ("cpu", "processor time of an operation", "microseconds", "/cpu_us_per_op"),
    ("memory", "peak memory", "MiB", "/peak_rss_mib"),
];
/// What is drawn of the loads over the size of values, in bytes of the records that were given.
const OVER_SIZES: [(&str, &str, &str); 2] = [
    ("write-amplification", "bytes written for each byte loaded", "/written_mib"),
    ("space-amplification", "bytes on the disk for each byte loaded", "/disk_mib"),
];

/// Rates of readers and the writer over the number of readers, one value size a line, of the rows whose names begin with
/// `matrix`.
fn matrix_tables(set: &Set, matrix: &str) -> Result<String, String> {
    let mut text = String::new();
    let mut loads = Vec::new();
    for value_bytes in VALUE_BYTES {
        let mut files = Vec::new();
        for readers in READERS {
            if let Some(file) = read(&set.file_of(&matrix_name(matrix, value_bytes, Some(readers))))? {
                files.push((readers, file));
            }
        }
        let Some(load) = read(&set.file_of(&matrix_name(matrix, value_bytes, None)))? else { continue };
        if files.is_empty() {
            continue;
        }
        writeln!(text, "### Values of {value_bytes} bytes\n").expect("a string takes all");
        text += "| engine | load, s | user s | system s | written bytes per record | disk MiB |";
        files.iter().for_each(|(readers, _)| {
            write!(text, " {readers}: reads/s | writes/s |").expect("a string takes all")
        });
        writeln!(text, "\n|---|{}", "---:|".repeat(5 + 2 * files.len())).expect("a string takes all");
        for result in results(&load) {
            let seconds =
                result.median("/seconds").zip(result.median("/extra/settle_seconds")).map(|(a, b)| a + b);
            let fields = [
                seconds,
                result.median("/cpu_user_seconds"),
                result.median("/cpu_system_seconds"),
                result.bytes_per_record("/written_mib"),
                result.median("/disk_mib"),
            ];
            write!(text, "| {} | {} |", result.engine, fields.map(number).join(" | "))
                .expect("a string takes all");
            for (_, file) in &files {
                let results = results_of(file, result.engine);
                let at = |path: &str| number(results.as_ref().and_then(|result| result.median(path)));
                write!(text, " {} | {} |", at(RATE), at(WRITES)).expect("a string takes all");
            }
            text += "\n";
        }
        for (what, title, unit, path) in OVER_READERS {
            let title = format!("{title}, values of {value_bytes} bytes, one writer");
            let axes = Axes { title: &title, x: "readers", y: unit };
            let lines = lines_of(&files, |_, result| result.median(path));
            text += &drawn(set, &format!("{matrix}-{value_bytes}-{what}"), &axes, &lines)?;
        }
        text += "\n";
        loads.push((value_bytes, load));
    }
    if !loads.is_empty() {
        text += "### What loading writes and keeps\n";
    }
    for (what, title, path) in OVER_SIZES {
        let axes = Axes { title, x: "bytes of a value", y: "bytes" };
        let lines = lines_of(&loads, |value_bytes, result| {
            Some(result.bytes_per_record(path)? / (16 + value_bytes) as f64)
        });
        text += &drawn(set, &format!("{matrix}-{what}"), &axes, &lines)?;
    }
    Ok(text + "\n")
}

/// Draws a chart, unless there is nothing to draw, and answers what shows it on the page.
fn drawn(set: &Set, name: &str, axes: &Axes<'_>, lines: &[Line]) -> Result<String, String> {
    let there = chart::lines(&set.directory().join(format!("{name}.svg")), axes, lines)?;
    Ok(if there { format!("\n![{}]({}/{name}.svg)\n", axes.title, set.name) } else { String::new() })
}

/// Each engine's values over what stands beside the files; engines without any are left out.
fn lines_of(files: &[(u64, Value)], value: impl Fn(u64, &Outcome<'_>) -> Option<f64>) -> Vec<Line> {
    let line = |engine: &&str| {
        let point = |(x, file): &(u64, Value)| Some((*x, value(*x, &results_of(file, engine)?)?));
        Line { name: (*engine).to_owned(), points: files.iter().filter_map(point).collect() }
    };
    ENGINES.iter().map(line).filter(|line| !line.points.is_empty()).collect()
}

fn results_of<'a>(file: &'a Value, engine: &str) -> Option<Outcome<'a>> {
    results(file).into_iter().find(|result| result.engine == engine)
}

fn settings(set: &Set) -> Result<String, String> {
    let Some(engines) = read(&set.file_of("engines"))? else { return Ok(String::new()) };
    let mut text = String::from("| engine | what | how |\n|---|---|---|\n");
    for name in ENGINES {
        let Some(engine) = engines.get(name) else { continue };
        let version = engine["version"].as_str().unwrap_or_default();
        for (index, setting) in engine["settings"].as_array().into_iter().flatten().enumerate() {
            let word = |at: usize| setting[at].as_str().unwrap_or_default().to_owned();
            let first = if index == 0 { format!("{name} {version}") } else { String::new() };
            writeln!(text, "| {first} | {} | {} |", word(0), word(1)).expect("a string takes all");
        }
    }
    Ok(text)
}

/// The machines that the records come from, with the range of the load before the runs.
fn machines(files: &[&Value]) -> String {
    let mut known: Vec<(Value, Vec<f64>)> = Vec::new();
    for entry in
        files.iter().flat_map(|file| file["engines"].as_object().into_iter().flat_map(|map| map.values()))
    {
        let loads = entry["records"].as_array().into_iter().flatten();
        let loads =
            loads.filter_map(|record| record["load_before"].as_str()?.split(' ').next()?.parse::<f64>().ok());
        let machine = entry["machine"].clone();
        match known.iter_mut().find(|(one, _)| *one == machine) {
            Some((_, all)) => all.extend(loads),
            None => known.push((machine, loads.collect())),
        }
    }
    let line = |(machine, loads): &(Value, Vec<f64>)| {
        let word = |name: &str| machine[name].as_str().unwrap_or_default().to_owned();
        let least = loads.iter().copied().fold(f64::INFINITY, f64::min);
        let most = loads.iter().copied().fold(0.0, f64::max);
        let stops = machine["stops_per_second"].as_f64().map_or_else(String::new, |stops| {
            let longest = &machine["longest_stop_ms"];
            format!("; a thread that looks at the clock is stopped {stops} times a second for more than 30 us, for {longest} ms at most")
        });
        let full = machine["full_page_cache"].as_bool().unwrap_or_default();
        let memory = if full { "; all free memory was page cache before each run" } else { "" };
        format!(
            "- {} x {}, {}, Linux {}; commit {}; nice {}; load of one minute before the runs {least:.1} to {most:.1}{stops}{memory}\n",
            machine["cpus"],
            word("cpu"),
            word("memory"),
            word("kernel"),
            word("commit"),
            machine["nice"].as_i64().unwrap_or_default(),
        )
    };
    known.iter().map(line).collect()
}

/// Makes the page and the charts from all records that there are.
pub fn write(set: &Set, groups: &[Group]) -> Result<(), String> {
    let mut parts: Vec<(Part, Vec<(&Row, Value)>)> =
        [Part::Cached, Part::Matrix, Part::Limited, Part::ColdMatrix].map(|part| (part, Vec::new())).into();
    for group in groups {
        for row in &group.rows {
            if let Some(file) = read(&set.file_of(&row.name))? {
                let part = parts.iter_mut().find(|(part, _)| *part == group.part).map(|(_, rows)| rows);
                part.into_iter().for_each(|rows| rows.push((row, file.clone())));
            }
        }
    }
    let mut text = HEAD.replace("{NAME}", &set.name);
    let all: Vec<&Value> = parts.iter().flat_map(|(_, rows)| rows).map(|(_, file)| file).collect();
    writeln!(text, "\nMeasured on\n\n{}", machines(&all)).expect("a string takes all");
    for (part, rows) in parts.iter().filter(|(_, rows)| !rows.is_empty()) {
        match part {
            Part::Cached => {
                text +=
                    "## In short\n\nOperations per second of RocksDB, and the others as multiples of it.\n\n";
                text += &summary(rows, RATE);
                text += "\nProcessor time per operation, in microseconds, as multiples in the same way; less is better.\n\n";
                text += &summary(rows, "/cpu_us_per_op");
                text += "\nPeak memory in MiB, in the same way.\n\n";
                text += &summary(rows, "/peak_rss_mib");
                text += "\n## Cached\n\nThe database fits into the cache of each engine; before reads everything is read once.\n\n";
                rows.iter().for_each(|(row, file)| text += &table(row, file));
            }
            Part::Matrix => {
                text += "## Readers beside a writer\n\nRandom reads by 1 to 64 threads while one more overwrites random records, unsynced, after a load in\n\
                         batches of 1000, for six sizes of values.\n\n";
                text += &matrix_tables(set, MATRIX)?;
            }
            Part::Limited => {
                text += "## Five times the memory\n\nA control group bounds the memory of each process, page cache included.\n\n";
                rows.iter().for_each(|(row, file)| text += &table(row, file));
            }
            Part::ColdMatrix => {
                text += "## Readers beside a writer, five times the memory\n\nAs above, but a control group bounds the memory of each process, page cache included, to a fifth of the\n\
                         database. An engine whose load took too long is missing.\n\n";
                text += &matrix_tables(set, COLD_MATRIX)?;
            }
        }
    }
    text += "## How each engine is set up\n\n\
             The same for all: cache and memory for writes as large as asked for, no compression, 10 bits per key of Bloom\n\
             filters and two background threads where the engine has them, block or page checksums checked by those that have\n\
             them. A synced write is durable when it returns: `strace` counts one fdatasync per synced write of one thread in\n\
             each engine. An unsynced write is in the operating system's hands when it returns, but for redb (see there); LMDB\n\
             and redb have no log. All use the C library's allocator.\n\n";
    text += &settings(set)?;
    let page = set.page();
    std::fs::write(&page, text).map_err(|error| format!("{}: {error}", page.display()))?;
    println!("{} is up to date", page.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Value {
        let run = |rate: f64, cpu: f64| {
            json!({ "ops_per_second": rate, "cpu_us_per_op": cpu, "peak_rss_mib": 100.0, "disk_mib": 5.0,
                "latency_us": { "p50": 1.0, "p99": 2.0, "p999": 3.0, "max": 4.0 } })
        };
        json!({ "row": "x", "engines": {
            "ironstone": { "session": "a", "arguments": ["--work", "x"], "records": [run(300.0, 1.0), run(500.0, 1.0), run(400.0, 1.0)] },
            "rocksdb": { "session": "a", "records": [run(100.0, 2.0), run(200.0, 2.0), run(200.0, 4.0)] },
            "lmdb": { "session": "b", "records": [run(50.0, 2.0)] },
        } })
    }

    #[test]
    fn ratios_are_taken_pair_by_pair_within_a_session() {
        let file = file();
        let results = results(&file);
        let of = |index: usize| ratio(&results[index], &results[1], "/ops_per_second").unwrap();
        assert_eq!(of(0), (2.5, 2.0, 3.0));
        assert_eq!(of(1), (1.0, 1.0, 1.0));
        assert_eq!(of(2), (0.25, 0.25, 0.25));
    }

    #[test]
    fn a_table_has_a_line_per_engine() {
        let row = Row { name: "x".to_owned(), title: "an x".to_owned(), arguments: Vec::new() };
        let text = table(&row, &file());
        assert!(text.contains("### an x\n\n`--work x`, runs: 3\n"), "{text}");
        let ours = "| ironstone | 400 | 2.50 (2.00 to 3.00) | 1.0 | 2.0 | 3.0 | 4.0 | 1.0 | 0.50 (0.25 to 0.50) | 100 | - | 5.0 |\n";
        assert!(text.contains(ours), "{text}");
        assert!(text.contains("| rocksdb | 200 | 1 |") && text.contains("| lmdb | 50.0 | 0.25 |"), "{text}");
    }

    #[test]
    fn the_summary_gives_rates_of_rocksdb_and_multiples_of_them() {
        let row = Row { name: "x".to_owned(), title: "an x".to_owned(), arguments: Vec::new() };
        let text = summary(&[(&row, file())], RATE);
        assert!(text.starts_with("| | ironstone | rocksdb | lmdb |\n"), "{text}");
        assert!(text.ends_with("| an x | 2.50 | 200 | 0.25 |\n"), "{text}");
    }
}
