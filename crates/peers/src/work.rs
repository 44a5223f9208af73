//! The works: what is done to an engine, and what is said about it.

mod fill;
mod read;
mod upkeep;

use crate::data::Values;
use crate::engine::{Engine, Kind, Result, Session, Setup};
use crate::measure::{Stopwatch, Usage, anonymous_memory_mib, disk_mib, peak_memory_mib, seconds};
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
#[value(rename_all = "lower")]
pub enum Work {
    /// Fill an empty database in random order, each record once; then settle
    FillRandom,
    /// Fill an empty database in key order; then settle
    FillSeq,
    /// Overwrite random records; then settle
    Overwrite,
    /// Read random records
    ReadRandom,
    /// Look for keys that are not there, between those that are
    ReadMissing,
    /// Read 32 random records at once
    MultiGet,
    /// Go to a random record, and 10 further
    Seek,
    /// Read everything from small keys to large
    ScanForward,
    /// Read everything from large keys to small
    ScanReverse,
    /// Go to the prefix of a random record and read it to its end
    PrefixScan,
    /// Go to prefixes that no record has
    PrefixMissing,
    /// Add to each of the counters four times, by merges in random order, in an empty database; then settle
    MergeCounter,
    /// Add to random counters by reading and writing them
    UpdateCounter,
    /// Write new records into an empty database, each of which has to reach the disk
    SyncedWrites,
    /// Read random records while one thread overwrites random records
    ReadWhileWriting,
    /// Fill an empty database in random order for a given time, and look at the slowest writes
    WriteLatency,
    /// Compact once what was written without compactions, with one thread
    Compact,
    /// Fill and settle; then write a record each 100 us, through ten checkpoints and as long without
    Checkpoint,
    /// Open the database and read one record, five times
    Open,
    /// Fill in key order and settle; delete all records but the last from the first on; then find what is left, 20 times
    DrainQueue,
    /// Fill many databases of one process in turn, read everything, and let them settle
    ManyDatabases,
}

/// What a run does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The work.
    pub work: Work,
    /// Where the database is.
    pub dir: PathBuf,
    /// Records of the database.
    pub records: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Threads that work.
    pub threads: usize,
    /// How long works last that have no end of their own.
    pub seconds: f64,
    /// Writes a second that a work does at most that lasts a given time; 0: as many as it can.
    pub rate: f64,
    /// Writes after which such a work ends if all it does is to write; 0: it lasts its time.
    pub writes: u64,
    /// Records per write, where a work fills.
    pub batch: usize,
    /// Whether everything is read once before reads are measured.
    pub warm: bool,
    /// Databases, where a work has many; each has its part of the records.
    pub databases: u64,
}

/// What a work came to, beside what the process used.
pub struct Outcome {
    /// What was done, and how long each operation took.
    pub watch: Stopwatch,
    /// How long it took.
    pub seconds: f64,
    /// What the process used for it.
    pub usage: Usage,
    /// What only this work has to say.
    pub extra: Map<String, Value>,
}

/// Does it, and describes it.
pub fn run(kind: &Kind, plan: &Plan, setup: &Setup) -> Result<Value> {
    if plan.work.fills() && plan.dir.exists() {
        std::fs::remove_dir_all(&plan.dir).map_err(|error| format!("{}: {error}", plan.dir.display()))?;
    }
    std::fs::create_dir_all(&plan.dir).map_err(|error| format!("{}: {error}", plan.dir.display()))?;
    let outcome = match plan.work {
        Work::Open => upkeep::open(kind, plan, setup)?,
        Work::ManyDatabases => upkeep::many_databases(kind, plan, setup)?,
        work => {
            let engine = (kind.open)(&plan.dir, setup)?;
            let mut outcome = work.run(&*engine, plan)?;
            for (name, value) in engine.statistics() {
                outcome.extra.insert(name, value.into());
            }
            outcome
        }
    };
    Ok(record(kind, plan, setup, &outcome))
}

impl Work {
    /// Whether it begins with an empty database.
    fn fills(self) -> bool {
        use Work::{
            Checkpoint, Compact, DrainQueue, FillRandom, FillSeq, ManyDatabases, MergeCounter, SyncedWrites,
            WriteLatency,
        };
        matches!(
            self,
            FillRandom
                | FillSeq
                | MergeCounter
                | SyncedWrites
                | WriteLatency
                | Checkpoint
                | Compact
                | DrainQueue
                | ManyDatabases
        )
    }
    fn run(self, engine: &dyn Engine, plan: &Plan) -> Result<Outcome> {
        let values = Values::new(plan.value_bytes);
        match self {
            Self::FillRandom | Self::FillSeq => fill::fill(engine, plan, &values),
            Self::Overwrite => fill::overwrite(engine, plan, &values),
            Self::SyncedWrites => fill::synced(engine, plan, &values),
            Self::WriteLatency => fill::latency(engine, plan, &values),
            Self::DrainQueue => read::drained(engine, plan, &values),
            Self::MergeCounter => fill::merge_counters(engine, plan),
            Self::UpdateCounter => fill::update_counters(engine, plan),
            Self::ReadRandom
            | Self::ReadMissing
            | Self::MultiGet
            | Self::Seek
            | Self::PrefixScan
            | Self::PrefixMissing => read::points(engine, plan),
            Self::ScanForward | Self::ScanReverse => read::scans(engine, plan),
            Self::ReadWhileWriting => read::while_writing(engine, plan, &values),
            Self::Checkpoint => upkeep::checkpoints(engine, plan, &values),
            Self::Compact => upkeep::compact(engine, plan, &values),
            Self::Open | Self::ManyDatabases => Err("not a work on one open database".to_owned()),
        }
    }
    /// Its name on the command line.
    fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self).map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

fn record(kind: &Kind, plan: &Plan, setup: &Setup, outcome: &Outcome) -> Value {
    let operations = outcome.watch.operations();
    let cpu = outcome.usage.user + outcome.usage.system;
    let mut record = json!({
        "engine": kind.name,
        "version": (kind.version)(),
        "work": plan.work.name(),
        "records": plan.records,
        "value_bytes": plan.value_bytes,
        "threads": plan.threads,
        "batch": plan.batch,
        "cache_mib": setup.cache_bytes >> 20,
        "memory_mib": setup.memory_bytes >> 20,
        "shared_mib": setup.shared_bytes >> 20,
        "compression": format!("{:?}", setup.compression).to_lowercase(),
        "sync": setup.sync,
        "operations": operations,
        "seconds": outcome.seconds,
        "ops_per_second": operations as f64 / outcome.seconds,
        "latency_us": outcome.watch.latencies(),
        "cpu_user_seconds": outcome.usage.user,
        "cpu_system_seconds": outcome.usage.system,
        "cpu_us_per_op": cpu * 1e6 / operations.max(1) as f64,
        "peak_rss_mib": peak_memory_mib(),
        "anonymous_mib_at_end": anonymous_memory_mib(),
        "written_mib": outcome.usage.written.map(|bytes| bytes as f64 / 1_048_576.0),
        "disk_mib": disk_mib(&plan.dir),
    });
    record["extra"] = Value::Object(outcome.extra.clone());
    record
}

/// Until when a work lasts.
#[derive(Clone, Copy)]
struct Deadline(Instant);

impl Deadline {
    fn after(span: f64) -> Self {
        Self(Instant::now() + Duration::from_secs_f64(span))
    }
    #[inline]
    fn is_before(self, now: Instant) -> bool {
        self.0 <= now
    }
}

/// What a thread does: it is told which one it is and how long to go on.
type Task<'a> = &'a (dyn Fn(usize, &mut dyn Session, Deadline, &mut Stopwatch) -> Result<()> + Sync);

/// Runs a task on so many threads at once; each has its own session. They start together.
fn on_threads(engine: &dyn Engine, threads: usize, span: f64, task: Task<'_>) -> Result<(Stopwatch, f64)> {
    let ready = Barrier::new(threads);
    let work = |index: usize| -> Result<(Stopwatch, Instant, Instant)> {
        let session = engine.session();
        ready.wait(); // Before an error is looked at, or the others would wait for ever.
        let mut session = session?;
        let start = Instant::now();
        let mut watch = Stopwatch::start();
        task(index, &mut *session, Deadline::after(span), &mut watch)?;
        Ok((watch, start, Instant::now()))
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|index| scope.spawn(move || work(index))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".to_owned())))
            .collect()
    });
    let mut all = Stopwatch::start();
    let mut times: Vec<(Instant, Instant)> = Vec::new();
    for result in results {
        let (watch, start, end) = result?;
        all.merge(&watch);
        times.push((start, end));
    }
    let start = times.iter().map(|(start, _)| *start).min();
    let end = times.iter().map(|(_, end)| *end).max();
    Ok((all, start.zip(end).map_or(0.0, |(start, end)| seconds(end - start))))
}

/// Measures what `act` uses.
fn used<T>(act: impl FnOnce() -> Result<T>) -> Result<(T, Usage, f64)> {
    let (before, start) = (Usage::now(), Instant::now());
    let result = act()?;
    Ok((result, Usage::now().since(before), seconds(start.elapsed())))
}
