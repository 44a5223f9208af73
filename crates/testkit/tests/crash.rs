//! Power loss at every operation, on the simulated file system.
//!
//! `IRONSTONE_CRASH_STATES` sets how many distinct images are opened (default 20,000), and
//! `IRONSTONE_SEED` replays one workload.

use ironstone_base::sync::atomic::{AtomicU64, Ordering};
use ironstone_base::sync::{Mutex, thread};
use ironstone_testkit::crash::{CrashRun, Explored};
use ironstone_testkit::record::record;
use std::collections::HashSet;

#[test]
fn no_power_loss_takes_an_acknowledged_synced_write() {
    let wanted: u64 =
        std::env::var("IRONSTONE_CRASH_STATES").map_or(20_000, |count| count.parse().expect("a number"));
    let replay: Option<u64> =
        std::env::var("IRONSTONE_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let seen = Mutex::new(HashSet::new());
    let seeds = AtomicU64::new(replay.unwrap_or(0));
    let all = Mutex::new((0, Explored::default()));
    let explore = || {
        loop {
            let seed = seeds.fetch_add(1, Ordering::Relaxed);
            let explored = CrashRun::record(seed, 60).and_then(|run| run.explore(3, &seen));
            let explored = explored.unwrap_or_else(|failure| {
                panic!("{failure}\nreplay: IRONSTONE_SEED={seed} cargo test --profile checked -p ironstone-testkit --test crash")
            });
            let (workloads, all) = &mut *all.lock();
            *workloads += 1;
            all.distinct += explored.distinct;
            all.trials += explored.trials;
            all.nested += explored.nested;
            if *workloads % 20 == 0 {
                println!("{workloads} workloads, {} distinct crash states", all.distinct);
            }
            if all.distinct >= wanted || replay.is_some() {
                break;
            }
        }
    };
    // A panic of one comes out of the scope when the others are done with theirs.
    // Half of the time each waits until the threads of its database have their turns.
    let processors = thread::processors();
    let workers = if replay.is_some() { 1 } else { 2 * processors };
    thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(explore))));
    let (workloads, Explored { distinct, trials, nested }) = all.into_inner();
    println!("{distinct} distinct crash states in {trials} trials, {nested} of interrupted recoveries");
    record(
        "crash",
        &serde_json::json!({ "trials": trials, "distinct_states": distinct, "nested": nested,
            "workloads": workloads,
            "policies": "P0 to P7", "failures": 0 }),
    );
}
