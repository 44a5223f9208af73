//! The seeded simulator: the whole engine, threads included, on a disk in memory that loses its power, fails
//! and fills up, under a scheduler whose every choice follows from a seed.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods)] // Around the simulations there is real time.

mod clock;
mod history;
mod one;
mod plan;
mod priorities;
mod recovery;
mod run;
mod shrink;
mod state;

use clap::Parser;
use plan::{Caps, Plan};
use std::collections::HashSet;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A simulation takes milliseconds; one that takes so long hangs.
const HANG_SECONDS: u64 = 180;

/// Simulates the engine: threads, power losses, faults, and what comes back.
#[derive(Parser, Debug)]
struct Arguments {
    /// The first seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Goes on with the next seeds for so long.
    #[arg(long)]
    minutes: Option<f64>,
    /// Goes on with so many seeds.
    #[arg(long)]
    runs: Option<u64>,
    /// The distance between two seeds, for several of these at once.
    #[arg(long, default_value_t = 1)]
    stride: u64,
    /// Writes what was done here, as JSON.
    #[arg(long)]
    json: Option<std::path::PathBuf>,
    /// Does not make a failing plan smaller.
    #[arg(long)]
    no_shrink: bool,
    /// Prints what was written and the LOG of a failing simulation.
    #[arg(long)]
    log: bool,
    /// Prints each plan.
    #[arg(long)]
    verbose: bool,
    #[arg(long, default_value_t = Caps::default().writers, hide = true)]
    writers: usize,
    #[arg(long, default_value_t = Caps::default().batches, hide = true)]
    batches: usize,
    #[arg(long, default_value_t = Caps::default().readers, hide = true)]
    readers: usize,
    #[arg(long, default_value_t = Caps::default().chores, hide = true)]
    chores: usize,
    #[arg(long, default_value_t = Caps::default().families, hide = true)]
    families: usize,
    #[arg(long, default_value_t = 0, hide = true)]
    schedule: u64,
}

/// What was done over all seeds.
#[derive(Default)]
struct Totals {
    runs: u64,
    batches: usize,
    operations: u64,
    switches: u64,
    power_losses: u64,
    images: HashSet<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let caps = Caps {
        writers: arguments.writers,
        batches: arguments.batches,
        readers: arguments.readers,
        chores: arguments.chores,
        families: arguments.families,
        schedule: arguments.schedule,
    };
    let first = arguments.seed.unwrap_or_else(|| {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs().wrapping_mul(1_000_003))
    });
    let start = Instant::now();
    let more = |totals: &Totals| match (arguments.minutes, arguments.runs) {
        (Some(minutes), _) => start.elapsed() < Duration::from_secs_f64(minutes * 60.0),
        (None, Some(runs)) => totals.runs < runs,
        (None, None) => totals.runs < 1,
    };
    watch();
    one::warm_up();
    let mut totals = Totals::default();
    let mut seed = first;
    while more(&totals) {
        let plan = Plan::new(seed, &caps);
        if arguments.verbose {
            eprintln!("{plan:#?}");
        }
        RUNNING.store(seed, Ordering::SeqCst);
        STARTED.store(BEGIN.elapsed().as_secs() + 1, Ordering::SeqCst);
        match one::simulate(&plan) {
            Ok(done) => {
                totals.batches += done.batches;
                totals.operations += done.operations;
                totals.switches += done.switches;
                totals.power_losses += u64::from(done.crashed);
                totals.images.insert(done.fingerprint);
                if arguments.verbose {
                    eprintln!("{done:?}");
                }
            }
            Err(problem) => {
                let problem = first_line(problem, arguments.log);
                println!("seed {seed}: {problem}");
                println!("again: cargo xtask sim --seed {seed}{caps}");
                if !arguments.no_shrink {
                    STARTED.store(0, Ordering::SeqCst);
                    let (caps, problem) = shrink::shrink(seed, caps, problem);
                    let problem = first_line(problem, arguments.log);
                    println!("smaller: cargo xtask sim --seed {seed}{caps}\n  {problem}");
                }
                return ExitCode::FAILURE;
            }
        }
        totals.runs += 1;
        seed = seed.wrapping_add(arguments.stride);
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} schedules from seed {first} in {seconds:.0} s: {} batches, {} file operations, {} power losses at work, \
         {} distinct images recovered; no failure",
        totals.runs,
        totals.batches,
        totals.operations,
        totals.power_losses,
        totals.images.len()
    );
    if let Some(path) = &arguments.json {
        let report = serde_json::json!({
            "first_seed": first, "stride": arguments.stride, "schedules": totals.runs, "seconds": seconds,
            "batches": totals.batches, "operations": totals.operations, "switches": totals.switches, "power_losses": totals.power_losses,
            "distinct_images": totals.images.len(), "failures": 0,
        });
        if let Err(error) = std::fs::write(path, format!("{report:#}\n")) {
            eprintln!("{}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// A failure brings along what was written and the database's LOG.
fn first_line(problem: String, all: bool) -> String {
    if all { problem } else { problem.lines().next().unwrap_or_default().to_owned() }
}

static RUNNING: AtomicU64 = AtomicU64::new(0);
/// When the simulation that runs was started, in seconds from the beginning plus 1; 0 for none.
static STARTED: AtomicU64 = AtomicU64::new(0);
static BEGIN: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);

/// Ends the process with a report when a simulation hangs: nobody else could tell.
fn watch() {
    let _ = BEGIN.elapsed();
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let started = STARTED.load(Ordering::SeqCst);
            if started > 0 && BEGIN.elapsed().as_secs() > started + HANG_SECONDS {
                let seed = RUNNING.load(Ordering::SeqCst);
                println!("seed {seed}: hangs for {HANG_SECONDS} s\nagain: cargo xtask sim --seed {seed}");
                std::process::exit(1);
            }
        }
    });
}
