//! Benchmarks that write.

use crate::db_bench::flags::Flags;
use crate::db_bench::key::Key;
use crate::db_bench::random::Random;
use crate::db_bench::stats::Operation;
use crate::db_bench::worker::Worker;
use ironstone::{Result, WriteBatch};
use std::collections::VecDeque;

/// In which order keys are written.
enum Order {
    Sequential,
    Random,
    /// Each key once.
    Shuffled(Vec<u64>),
}

/// Keys in order.
pub fn sequential(worker: &mut Worker<'_>) -> Result<()> {
    write(worker, Order::Sequential)
}

/// Random keys.
pub fn random(worker: &mut Worker<'_>) -> Result<()> {
    write(worker, Order::Random)
}

/// Every key once, in random order; with `--overwrite_probability` some again soon after.
pub fn unique_random(worker: &mut Worker<'_>) -> Result<()> {
    let mut numbers: Vec<u64> = (0..worker.run.amounts.num).collect();
    Random::new(worker.run.seed).shuffle(&mut numbers);
    write(worker, Order::Shuffled(numbers))
}

/// The keys written last, to choose from again.
struct RecentKeys {
    probability: f64,
    capacity: usize,
    numbers: VecDeque<u64>,
}

impl RecentKeys {
    /// One of them, or what `fresh` says.
    fn pick(&mut self, random: &mut Random, fresh: impl FnOnce() -> u64) -> u64 {
        if !self.numbers.is_empty() && random.fraction() < self.probability {
            return self.numbers[random.below(self.numbers.len() as u64) as usize];
        }
        let number = fresh();
        if self.numbers.len() == self.capacity {
            self.numbers.pop_front();
        }
        self.numbers.push_back(number);
        number
    }
}

/// When ranges of keys are deleted between the writes.
struct Ranges<'a> {
    flags: &'a Flags,
    /// After so many writes.
    next: u64,
    left: i64,
}

impl<'a> Ranges<'a> {
    fn new(flags: &'a Flags) -> Self {
        let next = flags.writes_before_delete_range.max(0) + flags.writes_per_range_tombstone.max(0);
        Self { flags, next: next as u64, left: flags.max_num_range_tombstones }
    }
    /// Whether one is due after `done` writes, and how many keys it has.
    fn due(&mut self, done: u64) -> Option<u64> {
        let every = self.flags.writes_per_range_tombstone;
        if every <= 0 || self.left <= 0 || done < self.next {
            return None;
        }
        self.next = done + every as u64;
        self.left -= 1;
        Some(self.flags.range_tombstone_width.max(0) as u64)
    }
}

/// Deletes `width` keys from a random one on.
fn delete_range(worker: &mut Worker<'_>, key: &mut Key, width: u64) -> Result<()> {
    let run = worker.run;
    let begin = worker.random.below(run.amounts.num);
    let family = run.target.family(begin);
    if run.flags.expand_range_tombstones {
        let mut batch = WriteBatch::new();
        (begin..begin + width).for_each(|number| batch.delete_cf(family, key.set(number)));
        return worker.db().write(&batch, &run.write_options);
    }
    let first = key.set(begin).to_vec();
    worker.db().delete_range_cf(&run.write_options, family, first, key.set(begin + width))
}

fn write(worker: &mut Worker<'_>, order: Order) -> Result<()> {
    let run = worker.run;
    let (flags, amounts, db) = (run.flags, &run.amounts, worker.db());
    let keys = amounts.num;
    let mut writes = if amounts.writes == 0 { keys } else { amounts.writes };
    let mut recent = None;
    if let Order::Shuffled(_) = order {
        if flags.overwrite_probability > 0.0 {
            let capacity = flags.overwrite_window_size as usize;
            let probability = flags.overwrite_probability;
            recent = Some(RecentKeys { probability, capacity, numbers: VecDeque::new() });
        }
        writes = writes.min(keys);
    }
    if keys != flags.num as u64 {
        worker.stats.add_message(&format!("({keys} ops)"));
    }
    if keys == 0 {
        return Ok(());
    }
    let mut key = worker.key();
    let mut values = worker.values()?;
    let mut batch = WriteBatch::new();
    let mut bytes = 0;
    let mut position = 0;
    let mut ranges = Ranges::new(flags);
    let mut done = 0;
    let several_families = run.target.families().len() > 1;
    let mut pace = match order {
        Order::Random => worker.pace(writes),
        _ => worker.untimed_pace(writes),
    };
    while pace.goes_on(amounts.batch_size) {
        batch.clear();
        let mut batch_bytes = 0;
        for _ in 0..amounts.batch_size {
            let number = match &order {
                Order::Random => worker.random.below(keys),
                Order::Sequential => {
                    position += 1;
                    position - 1
                }
                Order::Shuffled(numbers) => {
                    let mut fresh = || {
                        let number = numbers[position as usize % numbers.len()];
                        position += 1;
                        number
                    };
                    match &mut recent {
                        Some(recent) => recent.pick(&mut worker.random, fresh),
                        None => fresh(),
                    }
                }
            };
            let (key, value) = (key.set(number), values.value());
            if several_families {
                batch.put_cf(run.target.family(number), key, value);
            } else {
                batch.put(key, value);
            }
            batch_bytes += (key.len() + value.len()) as u64;
        }
        if let Some(limit) = &run.write_limit {
            limit.request(batch_bytes);
            worker.stats.forget_time();
        }
        db.write(&batch, &run.write_options).map_err(|error| error.context("put error"))?;
        bytes += batch_bytes;
        done += amounts.batch_size;
        if let Some(range) = ranges.due(done) {
            delete_range(worker, &mut key, range).map_err(|error| error.context("range deletion error"))?;
        }
        worker.finished(amounts.batch_size, Operation::Write);
    }
    worker.stats.add_bytes(bytes);
    Ok(())
}
