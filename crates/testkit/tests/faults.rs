//! Every call to the file system fails once, in every scenario, and then every call from it on.
//!
//! The regular run lets calls fail from then on at every third place; `IRONSTONE_FAULTS=all` takes all.

use ironstone_base::sync::atomic::{AtomicUsize, Ordering};
use ironstone_base::sync::{Mutex, thread};
use ironstone_testkit::faults::{Injected, Scenario, resume_among_writers, try_fault};
use ironstone_testkit::record::record;
use ironstone_testkit::watchdog::Watchdog;
use ironstone_vfs::fault::FaultError;
use ironstone_vfs::mem::SyncFailure;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Far longer than any trial takes.
const HANG: Duration = Duration::from_secs(60);

/// Tries places in steps of `step` until a scenario is through without its fault.
fn sweep(name: &str, injected: &[Injected]) {
    let watchdog = Watchdog::new(HANG);
    let runs: Vec<_> =
        injected.iter().flat_map(|&injected| Scenario::ALL.map(|scenario| (scenario, injected))).collect();
    let (next, places) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failures = Mutex::new(Vec::new());
    let work = || {
        while let Some(&(scenario, injected)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut trials = 0;
            for after in (0..).step_by(step(injected) as usize) {
                let name = format!("{scenario:?}, {injected:?} after {after}");
                let _watched = watchdog.watch(name.clone());
                let trial = || try_fault(scenario, injected, after);
                let outcome =
                    catch_unwind(AssertUnwindSafe(trial)).unwrap_or_else(|_| Err("panic".to_owned()));
                trials += 1;
                match outcome {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(failure) => {
                        let mut failures = failures.lock();
                        failures.push(format!("{name}: {failure}"));
                        if failures.len() > 20 {
                            return;
                        }
                    }
                }
            }
            println!("{scenario:?}, {injected:?}: {trials} places");
            places.fetch_add(trials, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    let failures = failures.into_inner();
    record(
        &format!("faults-{name}"),
        &serde_json::json!({ "scenarios": Scenario::ALL.len(), "kinds": injected.len(),
            "places": places.into_inner(), "every_place": exhaustive(), "failures": failures.len() }),
    );
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn exhaustive() -> bool {
    std::env::var("IRONSTONE_FAULTS").is_ok_and(|value| value == "all")
}
fn step(injected: Injected) -> u64 {
    if matches!(injected, Injected::FromThenOn(_)) && !exhaustive() { 3 } else { 1 }
}

#[test]
fn io_errors_lose_nothing_that_was_promised() {
    sweep("io-error", &[Injected::Once(FaultError::Io), Injected::FromThenOn(FaultError::Io)]);
}

#[test]
fn a_full_disk_loses_nothing_that_was_promised() {
    let full = FaultError::NoSpace;
    sweep("disk-full", &[Injected::Once(full), Injected::FromThenOn(full), Injected::ShortWrite]);
}

#[test]
fn refused_and_interrupted_calls_lose_nothing_that_was_promised() {
    let (refused, interrupted) = (FaultError::TooManyOpenFiles, FaultError::Interrupted);
    let injected = [
        Injected::Once(refused),
        Injected::FromThenOn(refused),
        Injected::Once(interrupted),
        Injected::FromThenOn(interrupted),
    ];
    sweep("refused", &injected);
}

#[test]
fn failed_syncs_lose_nothing_that_was_promised() {
    let failures = [SyncFailure::StaysDirty, SyncFailure::MarkedClean, SyncFailure::Reverted];
    sweep("failed-sync", &failures.map(Injected::Sync));
}

#[test]
fn writers_may_go_on_while_the_database_resumes() {
    let watchdog = Watchdog::new(HANG);
    for after in 0..8 {
        let _watched = watchdog.watch(format!("sync {after} of the log fails"));
        resume_among_writers(after)
            .unwrap_or_else(|failure| panic!("sync {after} of the log fails: {failure}"));
    }
}
