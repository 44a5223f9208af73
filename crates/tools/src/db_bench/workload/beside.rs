//! Benchmarks whose first thread does something else beside the others.

use super::{lookup, scan};
use crate::db_bench::rate_limit::RateLimit;
use crate::db_bench::stats::Operation;
use crate::db_bench::worker::Worker;
use ironstone::Result;
use ironstone_base::sync::atomic::Ordering::Relaxed;

/// Lookups beside a writer.
pub fn read_while_writing(worker: &mut Worker<'_>) -> Result<()> {
    if worker.index > 0 { lookup::random(worker) } else { write_meanwhile(worker) }
}
/// Batches of lookups beside a writer.
pub fn multi_read_while_writing(worker: &mut Worker<'_>) -> Result<()> {
    if worker.index > 0 { lookup::multi(worker) } else { write_meanwhile(worker) }
}
/// Seeks beside a writer.
pub fn seek_while_writing(worker: &mut Worker<'_>) -> Result<()> {
    if worker.index > 0 { scan::seek_random(worker) } else { write_meanwhile(worker) }
}
/// Lookups beside a writer that merges.
pub fn read_while_merging(worker: &mut Worker<'_>) -> Result<()> {
    if worker.index > 0 { lookup::random(worker) } else { change_meanwhile(worker, true) }
}
/// Seeks beside a writer that merges.
pub fn seek_while_merging(worker: &mut Worker<'_>) -> Result<()> {
    if worker.index > 0 { scan::seek_random(worker) } else { change_meanwhile(worker, true) }
}
/// New iterators beside a writer.
pub fn create_while_writing(worker: &mut Worker<'_>) -> Result<()> {
    if worker.index > 0 { scan::create(worker) } else { write_meanwhile(worker) }
}
/// Lookups beside an iterator that goes round and round.
pub fn read_while_scanning(worker: &mut Worker<'_>) -> Result<()> {
    if worker.index > 0 { lookup::random(worker) } else { scan::round_and_round(worker) }
}

fn write_meanwhile(worker: &mut Worker<'_>) -> Result<()> {
    change_meanwhile(worker, false)
}

/// Puts random keys, or merges into them, until the others are done; what it does is not counted.
fn change_meanwhile(worker: &mut Worker<'_>, merges: bool) -> Result<()> {
    let run = worker.run;
    let flags = run.flags;
    worker.stats.leave_out();
    let byte_limit = RateLimit::new(flags.benchmark_write_rate_limit, &run.clock);
    let write_limit = RateLimit::new(flags.writes_per_second.max(0) as u64, &run.clock);
    let num = if flags.bgwriter_num > 0 { flags.bgwriter_num } else { flags.num } as u64;
    let (mut key, mut values) = (worker.key(), worker.values()?);
    let mut written = 0;
    let mut said = false;
    loop {
        if flags.finish_after_writes && written == run.amounts.writes {
            eprintln!("Exiting the writer after {written} writes...");
            break;
        }
        if run.failed.load(Relaxed) {
            break;
        }
        if run.ended.load(Relaxed) + 1 >= run.threads {
            if !flags.finish_after_writes {
                break;
            }
            if !said {
                eprintln!(
                    "Reads are finished. Have {} more writes to do",
                    run.amounts.writes.saturating_sub(written)
                );
                said = true;
            }
        }
        let number = worker.random.below(num);
        let (key, value) = (key.set(number), values.value());
        let (db, family) = (worker.db(), run.target.family(number));
        let written_to = match merges {
            true => db.merge_cf(&run.write_options, family, key, value),
            false => db.put_cf(&run.write_options, family, key, value),
        };
        written_to.map_err(|error| error.context(if merges { "merge error" } else { "put error" }))?;
        written += 1;
        worker.stats.add_bytes((key.len() + value.len()) as u64);
        worker.finished(1, Operation::Write);
        if let Some(limit) = &byte_limit {
            limit.request((key.len() + value.len()) as u64);
        }
        if let Some(limit) = &write_limit {
            limit.request(1);
        }
    }
    Ok(())
}
