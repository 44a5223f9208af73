//! Benchmarks that iterate.

use crate::db_bench::stats::Operation;
use crate::db_bench::worker::Worker;
use ironstone::{ColumnFamily, DbIterator, ReadOptions, Result};
use std::hint::black_box;

/// As many bytes of each value are looked at.
const LOOKED_AT: usize = 256;

/// From the first key on.
pub fn forward(worker: &mut Worker<'_>) -> Result<()> {
    let options = with_snapshot(worker);
    let mut iter = worker.db().iter_cf(&options, family(worker))?;
    let more = iter.seek_to_first();
    walk(worker, &mut iter, more, DbIterator::next)
}

/// From the last key back.
pub fn backward(worker: &mut Worker<'_>) -> Result<()> {
    let mut iter = worker.db().iter_cf(&worker.run.read_options, family(worker))?;
    let more = iter.seek_to_last();
    walk(worker, &mut iter, more, DbIterator::prev)
}

fn family<'a>(worker: &Worker<'a>) -> &'a ColumnFamily {
    &worker.run.target.families()[0]
}

fn with_snapshot(worker: &Worker<'_>) -> ReadOptions {
    let mut options = worker.run.read_options.clone();
    options.snapshot = worker.run.flags.explicit_snapshot.then(|| worker.db().snapshot());
    options
}

#[inline(always)] // So that each direction has its own loop with direct calls.
fn walk(
    worker: &mut Worker<'_>,
    iter: &mut DbIterator,
    first: Result<bool>,
    step: impl Fn(&mut DbIterator) -> Result<bool>,
) -> Result<()> {
    let reads = worker.run.amounts.reads;
    let (mut read, mut bytes) = (0, 0);
    let mut more = first.map_err(|error| error.context("iterator error"))?;
    while more && read < reads {
        bytes += iter.key().map_or(0, <[u8]>::len) + iter.value().map_or(0, <[u8]>::len);
        worker.finished(1, Operation::Read);
        read += 1;
        worker.hold_reads(read, 1024);
        more = step(iter).map_err(|error| error.context("iterator error"))?;
    }
    worker.stats.add_bytes(bytes as u64);
    Ok(())
}

/// New iterators, which are not used.
pub fn create(worker: &mut Worker<'_>) -> Result<()> {
    let mut pace = worker.pace(worker.run.amounts.reads);
    while pace.goes_on(1) {
        black_box(worker.db().iter_cf(&worker.run.read_options, family(worker))?);
        worker.finished(1, Operation::Other);
    }
    Ok(())
}

/// A new iterator, unless it is a tailing one, a seek to a random key, and some steps.
pub fn seek_random(worker: &mut Worker<'_>) -> Result<()> {
    let run = worker.run;
    let (flags, db, family) = (run.flags, worker.db(), family(worker));
    let num = flags.num as u64;
    let mut options = with_snapshot(worker);
    let (mut key, mut bound) = (worker.key(), worker.key());
    let mut looked_at = [0; LOOKED_AT];
    let (mut read, mut found, mut bytes) = (0, 0u64, 0);
    let distance = flags.max_scan_distance.unsigned_abs();
    let mut tailing = match flags.use_tailing_iterator {
        true => Some(db.iter_cf(&options, family)?),
        false => None,
    };
    let mut pace = worker.pace(run.amounts.reads);
    while pace.goes_on(1) {
        let number = worker.random.below(num);
        let target = if flags.seek_missing_prefix { key.set_missing_prefix(number) } else { key.set(number) };
        if distance > 0 {
            if flags.reverse_iterator {
                options.iterate_lower_bound = Some(bound.set(number.saturating_sub(distance)).to_vec());
            } else {
                options.iterate_upper_bound = Some(bound.set(num.min(number + distance)).to_vec());
            }
        } else if flags.auto_prefix_mode && flags.prefix_size > 0 && !flags.seek_missing_prefix {
            let mut behind = target[..flags.prefix_size as usize].to_vec();
            if let Some(last) = behind.last_mut() {
                *last = last.wrapping_add(1);
            }
            options.iterate_upper_bound = Some(behind);
        }
        let mut other;
        let iter = match &mut tailing {
            Some(iter) => iter,
            None => {
                other = db.iter_cf(&options, family)?;
                &mut other
            }
        };
        let mut more = iter.seek(target).map_err(|error| error.context("seek error"))?;
        read += 1;
        found += u64::from(iter.key() == Some(target));
        for _ in 0..flags.seek_nexts {
            let (Some(key), Some(value)) = (iter.key(), iter.value()) else { break };
            let len = value.len().min(LOOKED_AT);
            looked_at[..len].copy_from_slice(&value[..len]);
            black_box(&looked_at);
            bytes += (key.len() + value.len()) as u64;
            more = if flags.reverse_iterator { iter.prev() } else { iter.next() }
                .map_err(|error| error.context("iterator error"))?;
        }
        black_box(more);
        worker.hold_reads(read, 256);
        worker.finished(1, Operation::Seek);
    }
    worker.stats.add_bytes(bytes);
    worker.stats.add_message(&format!("({found} of {read} found)\n"));
    Ok(())
}

/// One iterator that goes round and round.
pub fn round_and_round(worker: &mut Worker<'_>) -> Result<()> {
    let options = with_snapshot(worker);
    eprintln!("num reads to do {}", worker.run.amounts.reads);
    let mut iter = worker.db().iter_cf(&options, family(worker))?;
    let mut pace = worker.pace(worker.run.amounts.reads);
    while pace.goes_on(1) {
        let moved = if iter.valid() { iter.next() } else { iter.seek_to_first() };
        moved.map_err(|error| error.context("iterator error"))?;
        worker.finished(1, Operation::Seek);
    }
    Ok(())
}
