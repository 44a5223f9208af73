//! Benchmarks that change what is there.

use crate::db_bench::stats::Operation;
use crate::db_bench::worker::{Pace, Worker};
use ironstone::{Result, WriteBatch};

/// Deletes keys in order.
pub fn delete_sequential(worker: &mut Worker<'_>) -> Result<()> {
    let mut position = 0;
    let pace = worker.untimed_pace(worker.run.amounts.deletes);
    delete(worker, pace, |_| {
        position += 1;
        position - 1
    })
}

/// Deletes random keys.
pub fn delete_random(worker: &mut Worker<'_>) -> Result<()> {
    let pace = worker.pace(worker.run.amounts.deletes);
    delete(worker, pace, |worker| worker.random.below(worker.run.flags.num as u64))
}

fn delete<'a>(
    worker: &mut Worker<'a>,
    mut pace: Pace<'a>,
    mut next: impl FnMut(&mut Worker<'a>) -> u64,
) -> Result<()> {
    let run = worker.run;
    let mut key = worker.key();
    let mut batch = WriteBatch::new();
    while pace.goes_on(run.amounts.batch_size) {
        batch.clear();
        for _ in 0..run.amounts.batch_size {
            let number = next(worker);
            batch.delete_cf(run.target.family(number), key.set(number));
        }
        worker.db().write(&batch, &run.write_options).map_err(|error| error.context("del error"))?;
        worker.finished(run.amounts.batch_size, Operation::Delete);
    }
    Ok(())
}

/// Reads a random key and writes it anew.
pub fn update_random(worker: &mut Worker<'_>) -> Result<()> {
    let run = worker.run;
    let updates = run.amounts.reads_and_writes(run.flags);
    let (mut key, mut values) = (worker.key(), worker.values()?);
    let (mut found, mut bytes) = (0u64, 0);
    let mut pace = worker.pace(updates);
    while pace.goes_on(1) {
        let number = worker.random.below(run.flags.num as u64);
        let (key, family) = (key.set(number), run.target.family(number));
        let old =
            worker.db().get_cf(&run.read_options, family, key).map_err(|error| error.context("Get error"))?;
        if let Some(old) = old {
            found += 1;
            bytes += (key.len() + old.len()) as u64;
        }
        let value = values.value();
        let new_bytes = (key.len() + value.len()) as u64;
        if let Some(limit) = &run.write_limit {
            limit.request(new_bytes);
        }
        worker
            .db()
            .put_cf(&run.write_options, family, key, value)
            .map_err(|error| error.context("put error"))?;
        bytes += new_bytes;
        worker.finished(1, Operation::Update);
    }
    worker.stats.add_bytes(bytes);
    worker.stats.add_message(&format!("( updates:{updates} found:{found})"));
    Ok(())
}

/// `--readwritepercent` reads, then the rest of a hundred as writes, and again.
pub fn read_and_write_random(worker: &mut Worker<'_>) -> Result<()> {
    let run = worker.run;
    let total = run.amounts.reads_and_writes(run.flags);
    let percent = run.flags.readwritepercent as u64;
    let (mut key, mut values) = (worker.key(), worker.values()?);
    let (mut reads, mut writes, mut found, mut turn) = (0u64, 0u64, 0u64, 0);
    let mut pace = worker.pace(total);
    while pace.goes_on(1) {
        let number = worker.random.below(run.flags.num as u64);
        let (key, family) = (key.set(number), run.target.family(number));
        if turn < percent {
            let value = worker.db().get_cf(&run.read_options, family, key);
            found += u64::from(value.map_err(|error| error.context("get error"))?.is_some());
            reads += 1;
            worker.finished(1, Operation::Read);
        } else {
            let written = worker.db().put_cf(&run.write_options, family, key, values.value());
            written.map_err(|error| error.context("put error"))?;
            writes += 1;
            worker.finished(1, Operation::Write);
        }
        turn = (turn + 1) % 100;
    }
    worker.stats.add_message(&format!("( reads:{reads} writes:{writes} total:{total} found:{found})"));
    Ok(())
}

/// A random key out of those that merges go to.
fn merge_key(worker: &mut Worker<'_>) -> u64 {
    let flags = worker.run.flags;
    let keys = if flags.merge_keys < 0 { flags.num } else { flags.merge_keys };
    worker.random.below(keys.max(1) as u64)
}

/// Merges a value into random keys.
pub fn merge_random(worker: &mut Worker<'_>) -> Result<()> {
    let run = worker.run;
    let updates = run.amounts.reads_and_writes(run.flags);
    let (mut key, mut values) = (worker.key(), worker.values()?);
    let mut bytes = 0;
    let mut pace = worker.pace(updates);
    while pace.goes_on(1) {
        let number = merge_key(worker);
        let (key, value) = (key.set(number), values.value());
        let merged = worker.db().merge_cf(&run.write_options, run.target.family(number), key, value);
        merged.map_err(|error| error.context("merge error"))?;
        bytes += (key.len() + value.len()) as u64;
        worker.finished(1, Operation::Merge);
    }
    worker.stats.add_bytes(bytes);
    worker.stats.add_message(&format!("( updates:{updates})"));
    Ok(())
}

/// Reads random keys, and merges into `--mergereadpercent` of a hundred.
pub fn read_and_merge_random(worker: &mut Worker<'_>) -> Result<()> {
    let run = worker.run;
    let total = run.amounts.reads_and_writes(run.flags);
    let percent = run.flags.mergereadpercent.max(0) as u64;
    let (mut key, mut values) = (worker.key(), worker.values()?);
    let (mut reads, mut merges, mut hits, mut longest) = (0u64, 0u64, 0u64, 0);
    let mut pace = worker.pace(total);
    while pace.goes_on(1) {
        let number = merge_key(worker);
        let (key, family) = (key.set(number), run.target.family(number));
        if worker.random.below(100) < percent {
            let merged = worker.db().merge_cf(&run.write_options, family, key, values.value());
            merged.map_err(|error| error.context("merge error"))?;
            merges += 1;
            worker.finished(1, Operation::Merge);
        } else {
            let found = worker.db().get_cf(&run.read_options, family, key);
            if let Some(value) = found.map_err(|error| error.context("get error"))? {
                hits += 1;
                longest = longest.max(value.len());
            }
            reads += 1;
            worker.finished(1, Operation::Read);
        }
    }
    worker.stats.add_message(&format!(
        "(reads:{reads} merges:{merges} total:{total} hits:{hits} maxlength:{longest})"
    ));
    Ok(())
}

/// Compacts everything.
pub fn compact(worker: &mut Worker<'_>) -> Result<()> {
    let options = ironstone::CompactRangeOptions {
        bottommost_level_compaction: ironstone::BottommostPolicy::ForceOptimized,
        max_subcompactions: usize::try_from(worker.run.flags.subcompactions).ok(),
        ..Default::default()
    };
    let family = &worker.run.target.families()[0];
    worker.db().compact_range(&options, family, None, None).map_err(|error| error.context("compaction error"))
}
