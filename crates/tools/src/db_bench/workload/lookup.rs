//! Benchmarks that look keys up.

use crate::db_bench::key::Key;
use crate::db_bench::stats::Operation;
use crate::db_bench::worker::Worker;
use ironstone::Result;

/// Random keys, one by one.
pub fn random(worker: &mut Worker<'_>) -> Result<()> {
    let run = worker.run;
    let num = run.flags.num as u64;
    let found = match Strides::new(run.flags.multiread_stride as u64, run.amounts.batch_size, num) {
        Some(mut strides) => one_by_one(worker, |worker| strides.next(|| worker.random_number()))?,
        None => one_by_one(worker, Worker::random_number)?,
    };
    worker.stats.add_message(&format!("{found}\n"));
    Ok(())
}

/// Random keys out of the smallest one per cent.
pub fn hot(worker: &mut Worker<'_>) -> Result<()> {
    let range = (worker.run.flags.num as u64).div_ceil(100);
    let found = one_by_one(worker, |worker| worker.random.below(range))?;
    worker.stats.add_message(&found);
    Ok(())
}

/// Looks up the keys that `next` names; says how many there were.
#[inline(always)] // So that each order has its own loop with direct calls.
fn one_by_one<'a>(worker: &mut Worker<'a>, mut next: impl FnMut(&mut Worker<'a>) -> u64) -> Result<String> {
    let run = worker.run;
    let db = worker.db();
    let mut key = worker.key();
    let (mut read, mut found, mut bytes) = (0u64, 0u64, 0);
    let mut pace = worker.pace(run.amounts.reads);
    while pace.goes_on(1) {
        let number = next(worker);
        let key = key.set(number);
        read += 1;
        let value = db.get_cf(&run.read_options, run.target.family(number), key);
        if let Some(value) = value.map_err(|error| error.context("Get error"))? {
            found += 1;
            bytes += (key.len() + value.len()) as u64;
        }
        worker.hold_reads(read, 256);
        worker.finished(1, Operation::Read);
    }
    worker.stats.add_bytes(bytes);
    Ok(format!("({found} of {read} found)"))
}

/// Keys at equal distances, in runs of a batch.
struct Strides {
    stride: u64,
    run_len: u64,
    num: u64,
    number: u64,
    left: u64,
}

impl Strides {
    /// `None` for a stride of 0 or batches of one.
    fn new(stride: u64, run_len: u64, num: u64) -> Option<Self> {
        (stride > 0 && run_len > 1).then_some(Self { stride, run_len, num, number: 0, left: 0 })
    }
    /// The next number; each run starts at `start`, or so much before it that the run fits.
    fn next(&mut self, start: impl FnOnce() -> u64) -> u64 {
        if self.left == 0 {
            self.left = self.run_len;
            self.number = start().min(self.num.saturating_sub(self.run_len * self.stride));
        } else {
            self.number += self.stride;
        }
        self.left -= 1;
        self.number
    }
}

/// Random keys out of the next power of two, a hundred at a time without a look at the clock.
pub fn fast(worker: &mut Worker<'_>) -> Result<()> {
    let run = worker.run;
    let db = worker.db();
    let num = run.flags.num as u64;
    let range = num.next_power_of_two();
    let mut key = worker.key();
    let (mut read, mut found, mut missing) = (0u64, 0u64, 0u64);
    let mut pace = worker.pace(run.amounts.reads);
    loop {
        for _ in 0..100 {
            let number = worker.random.bits() & (range - 1);
            read += 1;
            missing += u64::from(number >= num);
            let value = db.get_cf(&run.read_options, run.target.family(number), key.set(number));
            found += u64::from(value.map_err(|error| error.context("Get error"))?.is_some());
        }
        if let Some(limit) = &run.read_limit {
            limit.request(100);
        }
        worker.finished(100, Operation::Read);
        if !pace.goes_on(100) {
            break;
        }
    }
    worker.stats.add_message(&format!("({found} of {read} found, issued {missing} non-exist keys)\n"));
    Ok(())
}

/// Random keys, a batch at a time.
pub fn multi(worker: &mut Worker<'_>) -> Result<()> {
    let run = worker.run;
    let db = worker.db();
    let batch = run.amounts.batch_size;
    let family = &run.target.families()[0];
    let mut keys: Vec<Key> = (0..batch).map(|_| worker.key()).collect();
    let mut strides = Strides::new(run.flags.multiread_stride as u64, batch, run.flags.num as u64);
    let (mut read, mut found, mut bytes, mut calls) = (0, 0, 0, 0);
    let mut pace = worker.pace(run.amounts.reads);
    while pace.goes_on(batch) {
        for key in &mut keys {
            key.set(match &mut strides {
                Some(strides) => strides.next(|| worker.random_number()),
                None => worker.random_number(),
            });
        }
        let values = db.multi_get_cf(&run.read_options, family, &keys);
        for (key, value) in keys.iter().zip(values) {
            if let Some(value) = value.map_err(|error| error.context("MultiGet error"))? {
                found += 1;
                bytes += (key.bytes().len() + value.len()) as u64;
            }
        }
        read += batch;
        calls += 1;
        if let Some(limit) = &run.read_limit
            && calls % 256 == 255
        {
            limit.request(256 * batch);
        }
        worker.finished(batch, Operation::Read);
    }
    worker.stats.add_bytes(bytes);
    worker.stats.add_message(&format!("({found} of {read} found)"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_stay_in_range() {
        let mut strides = Strides::new(10, 3, 100).unwrap();
        let starts = [5, 95];
        let numbers: Vec<u64> = (0..6).map(|at| strides.next(|| starts[at / 3])).collect();
        assert_eq!(numbers, [5, 15, 25, 70, 80, 90]);
        assert!(Strides::new(0, 3, 100).is_none());
    }
}
