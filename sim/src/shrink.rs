//! Makes a failing plan smaller.

use crate::one::simulate;
use crate::plan::{Caps, Plan};

/// Schedules tried for each smaller plan: what fails under one may pass under the next.
const SCHEDULES: u64 = 12;

/// The smallest plan of `seed` found that still fails, and how it does.
pub fn shrink(seed: u64, caps: Caps, problem: String) -> (Caps, String) {
    let mut best = (caps, problem);
    let plan = Plan::new(seed, &caps);
    let most = plan.writers.iter().copied().max().unwrap_or(0);
    best.0.writers = plan.writers.len();
    best.0.batches = most;
    best.0.readers = plan.readers.len();
    best.0.chores = plan.chores.len();
    best.0.families = plan.families;
    loop {
        let now = best.0;
        let smaller = [
            Caps { writers: now.writers.saturating_sub(1).max(1), ..now },
            Caps { batches: (now.batches / 2).max(1), ..now },
            Caps { batches: now.batches.saturating_sub(1).max(1), ..now },
            Caps { readers: now.readers.saturating_sub(1), ..now },
            Caps { chores: now.chores / 2, ..now },
            Caps { chores: now.chores.saturating_sub(1), ..now },
            Caps { families: now.families.saturating_sub(1).max(1), ..now },
        ];
        let Some(found) = smaller.into_iter().filter(|caps| *caps != now).find_map(|caps| fails(seed, caps))
        else {
            return best;
        };
        best = found;
    }
}

fn fails(seed: u64, caps: Caps) -> Option<(Caps, String)> {
    (0..SCHEDULES).find_map(|schedule| {
        let caps = Caps { schedule, ..caps };
        simulate(&Plan::new(seed, &caps)).err().map(|problem| (caps, problem))
    })
}
