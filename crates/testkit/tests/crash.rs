//! Power loss at every operation, on the simulated file system.
//!
//! `IRONSTONE_CRASH_STATES` sets how many distinct images are opened (default 20,000), and
//! `IRONSTONE_SEED` replays one workload.

use ironstone_testkit::crash::CrashRun;
use ironstone_testkit::record::record;
use std::collections::HashSet;

#[test]
fn no_power_loss_takes_an_acknowledged_synced_write() {
    let wanted: u64 =
        std::env::var("IRONSTONE_CRASH_STATES").map_or(20_000, |count| count.parse().expect("a number"));
    let replay: Option<u64> =
        std::env::var("IRONSTONE_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let mut seen = HashSet::new();
    let (mut distinct, mut trials, mut nested, mut workloads) = (0, 0, 0, 0);
    for seed in replay.unwrap_or(0).. {
        let explored = CrashRun::record(seed, 60).and_then(|run| run.explore(3, &mut seen));
        let explored = explored.unwrap_or_else(|failure| {
            panic!("{failure}\nreplay: IRONSTONE_SEED={seed} cargo test --profile checked -p ironstone-testkit --test crash")
        });
        workloads += 1;
        distinct += explored.distinct;
        trials += explored.trials;
        nested += explored.nested;
        if distinct >= wanted || replay.is_some() {
            break;
        }
    }
    println!("{distinct} distinct crash states in {trials} trials, {nested} of interrupted recoveries");
    record(
        "crash",
        &serde_json::json!({ "trials": trials, "distinct_states": distinct, "nested": nested,
            "workloads": workloads,
            "policies": "P0 to P7", "failures": 0 }),
    );
}
