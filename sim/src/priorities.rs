//! Threads by priority: the first in rank that can goes on, and at a few moments the one that runs becomes the last.
//!
//! This is probabilistic concurrency testing, which finds what takes few untimely interruptions, each perhaps for long. It
//! is not shuttle's: that learns from a first execution, without any interruption, how long the others will be, and
//! here each execution is the only one of its plan.

use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use std::collections::{BTreeSet, HashMap};

/// The logarithm of how many choices the longest simulations have.
const LONGEST_LOG2: f64 = 14.0;

/// See the head of the file.
pub struct Priorities {
    rng: StdRng,
    seed: u64,
    ran: bool,
    /// The smallest goes first.
    ranks: HashMap<TaskId, u64>,
    /// Behind all others.
    last: u64,
    steps: u64,
    /// At these choices the thread that runs becomes the last.
    changes: BTreeSet<u64>,
}

impl Priorities {
    /// A schedule that follows from `seed`, with so many changes.
    pub fn new(seed: u64, changes: usize) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        // As many in the first hundred choices as in the last thousands: nobody knows how long this will be.
        let changes = (0..changes).map(|_| rng.random_range(0.0..LONGEST_LOG2).exp2() as u64).collect();
        Self { rng, seed, ran: false, ranks: HashMap::new(), last: u64::MAX >> 1, steps: 0, changes }
    }

    fn put_last(&mut self, task: TaskId) {
        self.last += 1;
        self.ranks.insert(task, self.last);
    }
}

impl Scheduler for Priorities {
    fn new_execution(&mut self) -> Option<Schedule> {
        let first = !std::mem::replace(&mut self.ran, true);
        first.then(|| Schedule::new(self.seed))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        for task in runnable {
            let rank = self.rng.next_u64() >> 2;
            self.ranks.entry(task.id()).or_insert(rank);
        }
        if runnable.len() > 1 {
            self.steps += 1;
            if let Some(current) = current
                && (is_yielding || self.changes.contains(&self.steps))
            {
                self.put_last(current);
            }
        }
        runnable.iter().map(|task| task.id()).min_by_key(|task| self.ranks[task])
    }

    fn next_u64(&mut self) -> u64 {
        self.rng.next_u64()
    }
}
