//! One plan under its schedule.

use crate::plan::{Caps, Plan, Schedule};
use crate::priorities::Priorities;
use crate::run::{self, Done};
use shuttle::scheduler::{RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::OnceLock;

/// A simulation that goes on for longer does not end.
const MAX_SWITCHES: usize = 30_000_000;
const STACK_BYTES: usize = 2 << 20;

/// Brings about what happens once in a process, such as first uses of thread-local values: the simulations after it
/// are the same whether others went before them or not.
pub fn warm_up() {
    for seed in 0..8 {
        let _ = simulate(&Plan::new(seed, &Caps::default()));
    }
}

/// Runs `plan`. A failure says what was wrong.
pub fn simulate(plan: &Plan) -> Result<Done, String> {
    match plan.schedule {
        Schedule::Random => under(RandomScheduler::new_from_seed(plan.schedule_seed, 1), plan),
        Schedule::Priorities(changes) => under(Priorities::new(plan.schedule_seed, changes), plan),
    }
}

fn under(scheduler: impl Scheduler + 'static, plan: &Plan) -> Result<Done, String> {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(MAX_SWITCHES);
    config.silence_warnings = true;
    let outcome: Arc<OnceLock<Result<Done, String>>> = Arc::default();
    let (said, own) = (Arc::clone(&outcome), plan.clone());
    let body = move || {
        ironstone_base::sync::enter(own.schedule_seed, own.one_in);
        let result = run::run(&own);
        ironstone_base::sync::leave();
        let _ = said.set(result);
    };
    let ran = catch_unwind(AssertUnwindSafe(|| Runner::new(scheduler, config).run(body)));
    ironstone_base::sync::leave();
    match (ran, outcome.get()) {
        (Ok(_), Some(result)) => result.clone(),
        (Ok(_), None) => Err("the simulation did not run".to_owned()),
        (Err(panic), _) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(text.unwrap_or_else(|| "a panic".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Trouble;

    /// Without that, no failure could be replayed. (File sizes and bytes may differ: ids are drawn from addresses.)
    #[test]
    fn a_seed_always_gives_the_same_simulation() {
        warm_up();
        for seed in 0..50 {
            let plan = Plan::new(seed, &Caps::default());
            if matches!(plan.trouble, Trouble::FullDisk(_)) {
                continue; // When it is full depends on how long the LOG is, which names each thread of the process.
            }
            let (one, other) = (simulate(&plan).unwrap(), simulate(&plan).unwrap());
            assert_eq!(
                (one.batches, one.operations, one.switches),
                (other.batches, other.operations, other.switches),
                "seed {seed}"
            );
        }
    }
}
