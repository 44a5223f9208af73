//! Random operations under random options against an ordered map.
//!
//! `IRONSTONE_MODEL_OPS` sets how many operations there are in all (default one million), and
//! `IRONSTONE_SEED` replays one run.

use ironstone_testkit::fifo_run::FifoRun;
use ironstone_testkit::filtered_run::FilteredRun;
use ironstone_testkit::random_run::RandomRun;
use ironstone_testkit::record::record;
use ironstone_testkit::ttl_run::TtlRun;
use ironstone_vfs::{Env, SystemClock, mem::MemFileSystem};
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

const OPS_PER_RUN: usize = 5_000;
/// One takes some seconds.
const LONGEST_RUN: Duration = Duration::from_secs(300);

fn run(seed: u64) {
    let fs = Arc::new(MemFileSystem::volatile());
    let result = match seed % 12 {
        3 => FifoRun::new(seed, fs, "/db").and_then(|mut run| run.run(OPS_PER_RUN)),
        7 => FilteredRun::new(seed, fs, "/db").and_then(|mut run| run.run(OPS_PER_RUN)),
        11 => TtlRun::new(seed, fs, "/db").and_then(|mut run| run.run(OPS_PER_RUN)),
        _ => {
            let env = Env { fs, clock: Arc::new(SystemClock::new()) };
            RandomRun::new(seed, env, "/db").and_then(|mut run| run.run(OPS_PER_RUN))
        }
    };
    if let Err(failure) = result {
        panic!(
            "{failure}\nreplay: IRONSTONE_SEED={seed} cargo test --profile checked -p ironstone-testkit --test model"
        );
    }
}

#[test]
fn random_operations_agree_with_the_model() {
    if let Ok(seed) = std::env::var("IRONSTONE_SEED") {
        return run(seed.parse().expect("IRONSTONE_SEED is a number"));
    }
    let ops: usize =
        std::env::var("IRONSTONE_MODEL_OPS").map_or(1_000_000, |ops| ops.parse().expect("a number"));
    let runs = (ops / OPS_PER_RUN).max(1) as u64;
    let next = AtomicU64::new(0);
    let figures = serde_json::json!({ "operations": ops, "runs": runs, "failures": 0 });
    let (sender, steps) = mpsc::channel();
    std::thread::scope(|scope| {
        for steps in [sender.clone(), sender] {
            let next = &next;
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= runs {
                        break;
                    }
                    steps.send(Step::Begins(seed)).expect("somebody listens");
                    run(seed);
                    steps.send(Step::Ended(seed)).expect("somebody listens");
                }
            });
        }
        scope.spawn(move || watch(&steps));
    });
    record("model", &figures);
}

enum Step {
    Begins(u64),
    Ended(u64),
}

/// Ends the process if nothing gets on: a run that hangs has no other way to say so.
fn watch(steps: &mpsc::Receiver<Step>) {
    let mut running = BTreeSet::new();
    loop {
        match steps.recv_timeout(LONGEST_RUN) {
            Ok(Step::Begins(seed)) => _ = running.insert(seed),
            Ok(Step::Ended(seed)) => _ = running.remove(&seed),
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let what =
                    format!("runs of the seeds {running:?} hang: none of them ended for {LONGEST_RUN:?}\n");
                let _ = std::io::stderr().write_all(what.as_bytes()); // Past the harness, which would not print it.
                std::process::exit(1);
            }
        }
    }
}
