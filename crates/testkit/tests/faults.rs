//! Every call to the file system fails once, in every scenario, and then every call from it on.

use ironstone_testkit::faults::{Injected, Scenario, try_fault};
use ironstone_testkit::watchdog::Watchdog;
use ironstone_vfs::fault::FaultError;
use ironstone_vfs::mem::SyncFailure;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

#[test]
fn probe() {
    let watchdog = Watchdog::new(Duration::from_secs(20));
    let mut total = 0;
    for scenario in Scenario::ALL {
        for injected in [
            Injected::Once(FaultError::Io),
            Injected::FromThenOn(FaultError::Io),
            Injected::Once(FaultError::NoSpace),
            Injected::FromThenOn(FaultError::NoSpace),
            Injected::Sync(SyncFailure::StaysDirty),
            Injected::Sync(SyncFailure::MarkedClean),
            Injected::Sync(SyncFailure::Reverted),
        ] {
            let mut failures = Vec::new();
            let mut count = 0;
            for after in 0.. {
                let _w = watchdog.watch(format!("{scenario:?} {injected:?} after {after}"));
                let r = catch_unwind(AssertUnwindSafe(|| try_fault(scenario, injected, after))).unwrap_or_else(|_| Err("panic".into()));
                count += 1;
                match r {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(f) => { failures.push(format!("{after}: {f}")); if after > 400 { break; } }
                }
            }
            total += count;
            println!("{scenario:?} {injected:?}: {count} trials, {} failures", failures.len());
            for f in failures.iter().take(4) { println!("     {f}"); }
        }
    }
    println!("{total}");
}
