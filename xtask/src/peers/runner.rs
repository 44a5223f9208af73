//! Builds the driver and runs it.

use super::row::{Group, Row};
use crate::check::target_dir;
use crate::machine;
use crate::page_cache::FullPageCache;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The engines in the order of the page, the first being ours.
pub const ENGINES: [&str; 8] =
    ["ironstone", "rocksdb", "lmdb", "leveldb", "redb", "fjall", "wiredtiger", "berkeleydb"];

const PEERS: &str = "target/peers";

/// The driver, built for each engine alone: what is linked into a process counts as its memory, used or not.
pub struct Driver {
    programs: Vec<Program>,
    /// How long a run may take.
    pub most: Duration,
    /// Fills the memory before each run that has no limit.
    pub page_cache: Option<FullPageCache>,
}

/// A build of the driver.
struct Program {
    path: PathBuf,
    /// What it says about its engines.
    engines: Vec<Value>,
}

impl Driver {
    /// Builds what the engines need that are wanted, and their drivers. Says which engines cannot be built here.
    pub fn build(wanted: &[String]) -> Result<Self, String> {
        let script = "crates/peers/install-peers.sh";
        let status = Command::new("sh").arg(script).status().map_err(|error| format!("{script}: {error}"))?;
        if !status.success() {
            println!("{script} could not build everything; what is missing is left out");
        }
        let target = target_dir();
        let peers = std::env::var_os("IRONSTONE_PEERS").map_or_else(|| PathBuf::from(PEERS), PathBuf::from);
        let peers = std::path::absolute(&peers).map_err(|error| format!("{}: {error}", peers.display()))?;
        let there = |engine: &str| match engine {
            "rocksdb" => peers.join("rocksdb/librocksdb.a").exists(),
            "wiredtiger" => peers.join("wiredtiger/build/libwiredtiger.a").exists(),
            "leveldb" => Path::new("/usr/include/leveldb/db.h").exists(),
            "berkeleydb" => Path::new("/usr/include/db.h").exists(),
            _ => true,
        };
        let (wanted, missing): (Vec<&str>, Vec<&str>) = ENGINES
            .into_iter()
            .filter(|name| wanted.iter().any(|one| one == name))
            .partition(|name| there(name));
        missing.iter().for_each(|name| println!("{name} is left out: its library is not there"));
        let headers = compiler_headers();
        let build = |engine| build_program(engine, &target, &peers, headers.as_deref());
        Self::open(wanted.into_iter().map(build).collect::<Result<_, _>>()?)
    }

    /// Drivers that are built. The first that has an engine runs it.
    pub fn open(programs: Vec<PathBuf>) -> Result<Self, String> {
        let programs = programs.into_iter().map(Program::open).collect::<Result<_, _>>()?;
        Ok(Self { programs, most: Duration::from_secs(300), page_cache: None })
    }

    /// What the drivers say about their engines.
    pub fn engines(&self) -> Vec<Value> {
        ENGINES.iter().filter_map(|name| self.find(name)).map(|(_, engine)| engine.clone()).collect()
    }

    /// Whether it knows an engine of that name.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// The program that runs an engine, and what it says about it.
    fn find(&self, name: &str) -> Option<(&Path, &Value)> {
        self.programs.iter().find_map(|program| {
            let engine = program.engines.iter().find(|engine| engine["name"] == name)?;
            Some((&*program.path, engine))
        })
    }

    /// Runs a row with an engine on the database in `dir`, and returns what it said.
    pub fn run(&self, row: &Row, engine: &str, dir: &Path, limit: Option<&Limit>) -> Result<Value, String> {
        let (program, _) = self.find(engine).ok_or_else(|| format!("no driver has {engine}"))?;
        machine::sync()?;
        let load = load();
        let mut free = None;
        let mut command = match limit {
            None => {
                if let Some(page_cache) = &self.page_cache {
                    free = Some(page_cache.fill()? >> 20);
                }
                Command::new(program)
            }
            Some(limit) => limit.enter(program),
        };
        command.arg("run").args(["--engine", engine, "--dir"]).arg(dir).args(&row.arguments);
        let output = output_within(command, self.most)
            .map_err(|error| format!("{} with {engine}: {error}", row.name))?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{} with {engine}: {} {}", row.name, output.status, errors.trim()));
        }
        let mut record: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("{} with {engine}: {error}", row.name))?;
        record["load_before"] = json!(load);
        if let Some(free) = free {
            record["free_mib_before"] = json!(free);
        }
        Ok(record)
    }
}

impl Program {
    fn open(path: PathBuf) -> Result<Self, String> {
        let output = Command::new(&path)
            .arg("engines")
            .output()
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let engines = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("{} engines: {error}", path.display()))?;
        Ok(Self { path, engines })
    }
}

/// Builds the driver for an engine alone. Answers where it is.
fn build_program(
    engine: &str,
    target: &Path,
    peers: &Path,
    headers: Option<&str>,
) -> Result<PathBuf, String> {
    let rocksdb = peers.join("rocksdb");
    let mut command = Command::new("cargo");
    command.args(["build", "--release", "-p", "ironstone-peers"]);
    if engine != ENGINES[0] {
        command.args(["--features", engine]); // Ours is in every one.
    }
    command
        .env("IRONSTONE_PEERS", peers)
        .env("CARGO_TARGET_DIR", target)
        .env("ROCKSDB_LIB_DIR", &rocksdb)
        .env("ROCKSDB_INCLUDE_DIR", rocksdb.join("include"))
        .env("ROCKSDB_STATIC", "1");
    if let Some(directory) = headers {
        command.env("BINDGEN_EXTRA_CLANG_ARGS", format!("-I{directory}")); // libclang alone comes without headers.
    }
    let status = command.status().map_err(|error| format!("cargo: {error}"))?;
    if !status.success() {
        return Err(format!("the driver for {engine} does not build"));
    }
    let kept = target.join(format!("release/peers-{engine}"));
    std::fs::copy(target.join("release/peers"), &kept)
        .map_err(|error| format!("{}: {error}", kept.display()))?;
    Ok(kept)
}

/// Where the C compiler has its own headers.
fn compiler_headers() -> Option<String> {
    let output = Command::new("cc").arg("-print-file-name=include").output().ok()?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// How busy the machine is: the averages over 1, 5 and 15 minutes.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// What is measured on.
pub fn machine() -> Value {
    let (stops, longest) = stops(Duration::from_secs(2));
    let mut machine = machine::describe();
    machine["nice"] = json!(nice(&std::fs::read_to_string("/proc/self/stat").unwrap_or_default()));
    machine["stops_per_second"] = json!(stops.round());
    machine["longest_stop_ms"] = json!((longest.as_secs_f64() * 10_000.0).round() / 10.0);
    machine
}

/// A thread that is stopped for longer than that did not just look at the clock.
const STOP: Duration = Duration::from_micros(30);

/// How often a second the machine stops a thread that does nothing but look at the clock for `span`, and for how long at
/// most: no engine's latencies can be better than that.
fn stops(span: Duration) -> (f64, Duration) {
    let start = Instant::now();
    let (mut last, mut count, mut longest) = (start, 0, Duration::ZERO);
    while last - start < span {
        let now = Instant::now();
        let gap = now - last;
        count += u32::from(gap > STOP);
        longest = longest.max(gap);
        last = now;
    }
    (f64::from(count) / span.as_secs_f64(), longest)
}

/// The nice value in /proc/self/stat, the nineteenth field.
fn nice(stat: &str) -> i64 {
    let field = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(16));
    field.and_then(|field| field.parse().ok()).unwrap_or_default()
}

/// Waits for a process, and ends it if it takes too long.
fn output_within(mut command: Command, most: Duration) -> Result<Output, String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let start = Instant::now();
    // It prints less than a pipe holds, so it never waits for being read.
    while child.try_wait().map_err(|error| error.to_string())?.is_none() {
        if start.elapsed() > most {
            child.kill().and_then(|()| child.wait()).map_err(|error| error.to_string())?;
            return Err(format!("ended after {} s", most.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().map_err(|error| error.to_string())
}

/// A control group with a bound on memory, page cache included. Removed when dropped.
pub struct Limit {
    group: PathBuf,
}

impl Limit {
    /// One with so many MiB, or why there is none.
    pub fn new(mib: u64) -> Result<Self, String> {
        let own = std::fs::read_to_string("/proc/self/cgroup")
            .map_err(|error| format!("/proc/self/cgroup: {error}"))?;
        let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let path = own_group(&own, unified).ok_or("this process is in no group for memory")?;
        let (root, file) = if unified {
            ("/sys/fs/cgroup", "memory.max")
        } else {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        };
        let group =
            PathBuf::from(format!("{root}{path}")).join(format!("ironstone-peers-{}", std::process::id()));
        std::fs::create_dir(&group).map_err(|error| format!("{}: {error}", group.display()))?;
        let limit = Self { group };
        let bound = limit.group.join(file);
        std::fs::write(&bound, (mib << 20).to_string())
            .map_err(|error| format!("{}: {error}", bound.display()))?;
        if unified {
            // Where there is no swap, there is no such file.
            let _ = std::fs::write(limit.group.join("memory.swap.max"), "0");
        }
        Ok(limit)
    }
    /// A command that runs `program` in the group.
    fn enter(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg("echo $$ > \"$0\" && exec \"$@\"")
            .arg(self.group.join("cgroup.procs"))
            .arg(program);
        command
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        // It is empty by now; if not, it stays, and the next run has a group of its own.
        let _ = std::fs::remove_dir(&self.group);
    }
}

/// The group that accounts for this process' memory, from /proc/self/cgroup.
fn own_group(text: &str, unified: bool) -> Option<&str> {
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let wanted =
            if unified { number == "0" } else { controllers.split(',').any(|name| name == "memory") };
        wanted.then(|| path.trim_end_matches('/'))
    })
}

/// Runs a group with all engines by turns. Each row has, for each engine, a record per pair.
pub fn run_group(
    driver: &Driver,
    group: &Group,
    engines: &[String],
    dir: &Path,
    mut store: impl FnMut(&Row, &str, Vec<Value>) -> Result<(), String>,
) -> Result<(), String> {
    let limit = match group.limit_mib.map(Limit::new).transpose() {
        Ok(limit) => limit,
        Err(reason) => {
            println!(
                "rows with limited memory are skipped: {reason} (they need root and a memory controller)"
            );
            return Ok(());
        }
    };
    let mut records = vec![vec![Vec::new(); engines.len()]; group.rows.len()];
    let mut failed = vec![false; engines.len()];
    for pair in 0..group.pairs {
        for (row, records) in group.rows.iter().zip(&mut records) {
            for turn in 0..engines.len() {
                let index = (turn + pair) % engines.len(); // Another one goes first each time.
                let database = dir.join(&engines[index]);
                if !failed[index] {
                    match driver.run(row, &engines[index], &database, limit.as_ref()) {
                        Ok(record) => {
                            println!("{}", line(&row.name, pair, &record));
                            records[index].push(record);
                        }
                        Err(error) => {
                            println!("{error}");
                            // Rows that follow go on with its database.
                            failed[index] = std::ptr::eq(row, &raw const group.rows[0]);
                        }
                    }
                }
                // Databases of two engines may need more room than there is.
                if group.rows.last().is_some_and(|last| std::ptr::eq(row, last)) && database.exists() {
                    std::fs::remove_dir_all(&database)
                        .map_err(|error| format!("{}: {error}", database.display()))?;
                }
            }
        }
    }
    for (row, records) in group.rows.iter().zip(records) {
        for (engine, records) in engines.iter().zip(records) {
            if !records.is_empty() {
                store(row, engine, records)?;
            }
        }
    }
    Ok(())
}

fn line(name: &str, pair: usize, record: &Value) -> String {
    let number = |field: &str| record[field].as_f64().unwrap_or_default();
    format!(
        "{name:<24} {} {:<10} {:>11.1} ops/s  {:>8.3} us CPU/op  {:>6.0} MiB  load {}",
        pair + 1,
        record["engine"].as_str().unwrap_or_default(),
        number("ops_per_second"),
        number("cpu_us_per_op"),
        number("peak_rss_mib"),
        record["load_before"].as_str().unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_takes_too_long_is_ended() {
        let command = |seconds: &str| {
            let mut command = Command::new("sleep");
            command.arg(seconds);
            command
        };
        assert!(output_within(command("0"), Duration::from_secs(20)).unwrap().status.success());
        let error = output_within(command("60"), Duration::from_millis(50)).unwrap_err();
        assert_eq!(error, "ended after 0 s");
    }

    #[test]
    fn the_nice_value_is_read() {
        let stat = "7 (a b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 20 -15 1 0 99";
        assert_eq!(nice(stat), -15);
    }

    #[test]
    fn the_own_group_is_found_in_both_worlds() {
        let text = "4:memory:/a/b\n1:cpu,cpuacct:/\n0::/c/\n";
        assert_eq!(own_group(text, false), Some("/a/b"));
        assert_eq!(own_group(text, true), Some("/c"));
        assert_eq!(own_group("1:cpu:/\n", false), None);
        assert_eq!(own_group("0::/\n", true), Some(""));
    }
}
