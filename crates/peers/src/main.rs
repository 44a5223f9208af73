//! `peers`: one run of one engine, measured, in a process of its own. `cargo xtask peers` puts such runs side by side.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // It drives other engines too, through the system itself.

mod data;
mod engine;
mod measure;
mod work;

#[cfg(test)]
mod conformance;

use clap::{Args, Parser, Subcommand};
use engine::{Compression, KINDS, Setup};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use work::{Plan, Work};

#[derive(Parser)]
#[command(about = "Ironstone beside other key-value engines", version)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run one work on one engine and print one line of JSON
    Run(Box<Run>),
    /// Print the engines that are compiled in, with their versions and settings, as JSON
    Engines,
}

#[derive(Args)]
struct Run {
    /// The engine, one of those that `peers engines` prints
    #[arg(long)]
    engine: String,
    /// What to do
    #[arg(long, value_enum)]
    work: Work,
    /// Where the database is; works that fill begin by removing it
    #[arg(long)]
    dir: PathBuf,
    /// Records of the database
    #[arg(long, default_value_t = 1_000_000)]
    records: u64,
    /// Bytes of a value; keys have 16
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,
    /// Threads that work; of readwhilewriting, those that read
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// How long works last that have no end of their own
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Writes a second that writelatency and syncedwrites do at most; 0: as many as they can
    #[arg(long, default_value_t = 0.0)]
    rate: f64,
    /// Writes after which writelatency, syncedwrites, overwrite and updatecounter end, all threads together; 0: they last --seconds
    #[arg(long, default_value_t = 0)]
    writes: u64,
    /// Records that fillseq and fillrandom write at once
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Cache of the engine, where it has one, in MiB
    #[arg(long, default_value_t = 1024)]
    cache_mib: usize,
    /// Memory for what is not yet in data files, where the engine has a bound, in MiB
    #[arg(long, default_value_t = 128)]
    memory_mib: usize,
    /// Memory that all databases of the process share, cache and memtables together, in MiB; 0: see the two before
    #[arg(long, default_value_t = 0)]
    shared_mib: usize,
    /// Databases of manydatabases
    #[arg(long, default_value_t = 200)]
    databases: u64,
    /// How data is stored
    #[arg(long, value_enum, default_value = "none")]
    compression: Compression,
    /// Writes return when they would survive a power failure (syncedwrites always do that)
    #[arg(long)]
    sync: bool,
    /// Bits per key of Bloom filters; 0: none
    #[arg(long, default_value_t = 10)]
    bloom_bits: u32,
    /// Background threads
    #[arg(long, default_value_t = 2)]
    background_jobs: usize,
    /// Size of a table file in KiB; 0: what the engine thinks best
    #[arg(long, default_value_t = 0)]
    table_kib: u64,
    /// Values are counters of 8 bytes that merges add to
    #[arg(long)]
    counters: bool,
    /// Scans from a key end with its first so many bytes, and filters know those; 0: keys have no prefixes
    #[arg(long, default_value_t = 0)]
    prefix_bytes: usize,
    /// The database opens before its tables do, which is left to the background
    #[arg(long)]
    open_later: bool,
    /// More options in RocksDB's words (a=b;c={d=e}), where the engine knows those
    #[arg(long, default_value = "")]
    options: String,
    /// Do not read everything once before reads are measured
    #[arg(long)]
    cold: bool,
}

impl Run {
    fn plan(&self) -> Plan {
        Plan {
            work: self.work,
            dir: self.dir.clone(),
            records: self.records.max(1),
            value_bytes: self.value_bytes,
            threads: self.threads.max(1),
            seconds: self.seconds,
            rate: self.rate,
            writes: self.writes,
            batch: self.batch.max(1),
            warm: !self.cold,
            databases: self.databases.max(1),
        }
    }
    fn setup(&self) -> Setup {
        let record_bytes = (data::KEY_BYTES + self.value_bytes) as u64;
        Setup {
            cache_bytes: self.cache_mib << 20,
            memory_bytes: self.memory_mib << 20,
            shared_bytes: self.shared_mib << 20,
            compression: self.compression,
            sync: self.sync || self.work == Work::SyncedWrites,
            bloom_bits: self.bloom_bits,
            background_jobs: self.background_jobs,
            automatic_compaction: self.work != Work::Compact,
            table_bytes: (self.table_kib > 0).then_some(self.table_kib << 10),
            counters: self.counters,
            open_later: self.open_later,
            options: self.options.clone(),
            prefix_bytes: self.prefix_bytes.min(data::KEY_BYTES),
            data_bytes: self.records * record_bytes,
            // Works that last a given time write as much as the machine lets them.
            most_bytes: (self.records * record_bytes).saturating_mul(2).max(8 << 30),
        }
    }
}

fn main() -> ExitCode {
    let result = match CommandLine::parse().command {
        Command::Run(run) => engine::kind(&run.engine)
            .and_then(|kind| work::run(kind, &run.plan(), &run.setup()))
            .map(|record| println!("{record}")),
        Command::Engines => {
            let engine = |kind: &engine::Kind| json!({ "name": kind.name, "version": (kind.version)(), "settings": kind.settings });
            println!("{}", json!(KINDS.iter().map(engine).collect::<Vec<_>>()));
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
