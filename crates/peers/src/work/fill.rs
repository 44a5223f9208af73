//! Works that write.

use super::{Deadline, Outcome, Plan, Work, on_threads, used};
use crate::data::{Key, Picks, Shuffle, Values, key};
use crate::engine::{Engine, Result, Session, Sink};
use crate::measure::Stopwatch;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// Records per write while a database is only prepared.
pub const LOAD_BATCH: usize = 1000;

/// How often a merge adds to each counter.
const MERGE_ROUNDS: u64 = 4;

/// A slice of `0..count` for each of the threads.
fn share(count: u64, threads: usize, index: usize) -> std::ops::Range<u64> {
    let at = |index: usize| (u128::from(count) * index as u128 / threads as u128) as u64;
    at(index)..at(index + 1)
}

/// Writes the records whose places in `order` are in `places`.
fn put_all(
    session: &mut dyn Session,
    places: std::ops::Range<u64>,
    order: impl Fn(u64) -> u64,
    batch: usize,
    values: &Values,
    watch: &mut Stopwatch,
) -> Result<()> {
    if batch <= 1 {
        for place in places {
            let number = order(place);
            session.put(&key(number), values.value(number, 0))?;
            watch.lap(1);
        }
        return Ok(());
    }
    let mut records: Vec<(Key, &[u8])> = Vec::with_capacity(batch);
    let mut place = places.start;
    while place < places.end {
        let end = places.end.min(place + batch as u64);
        records.clear();
        records.extend((place..end).map(order_record(&order, values)));
        session.put_batch(&records)?;
        watch.lap(end - place);
        place = end;
    }
    Ok(())
}

fn order_record<'a>(
    order: &'a impl Fn(u64) -> u64,
    values: &'a Values,
) -> impl Fn(u64) -> (Key, &'a [u8]) + 'a {
    move |place| {
        let number = order(place);
        (key(number), values.value(number, 0))
    }
}

/// Fills the database, then settles. The rate is that of the writes; the extra fields have that of both together.
pub fn fill(engine: &dyn Engine, plan: &Plan, values: &Values) -> Result<Outcome> {
    let shuffle = Shuffle::new(plan.records);
    let in_order = plan.work == Work::FillSeq;
    let order = |place: u64| if in_order { place } else { shuffle.at(place) };
    let writes = || {
        on_threads(engine, plan.threads, 0.0, &|index, session, _, watch| {
            put_all(session, share(plan.records, plan.threads, index), order, plan.batch, values, watch)
        })
    };
    then_settle(engine, writes)
}

/// Tells one of the threads after each of its writes whether that is enough: it has done its part of the plan's, or the time is up.
fn enough_writes(plan: &Plan, thread: usize, deadline: Deadline) -> impl FnMut(Instant) -> bool {
    let part = share(plan.writes, plan.threads, thread);
    let (counted, mut left) = (plan.writes > 0, part.end - part.start);
    move |now| {
        left = left.saturating_sub(1);
        if counted { left == 0 } else { deadline.is_before(now) }
    }
}

/// Overwrites random records for the time given or so many times, then settles.
pub fn overwrite(engine: &dyn Engine, plan: &Plan, values: &Values) -> Result<Outcome> {
    then_settle(engine, || {
        on_threads(engine, plan.threads, plan.seconds, &|index, session, deadline, watch| {
            let enough = enough_writes(plan, index, deadline);
            overwrite_until(session, plan.records, index as u64, values, watch, enough)
        })
    })
}

/// Overwrites random records until `enough` says so, one by one.
pub fn overwrite_until(
    session: &mut dyn Session,
    records: u64,
    seed: u64,
    values: &Values,
    watch: &mut Stopwatch,
    mut enough: impl FnMut(Instant) -> bool,
) -> Result<()> {
    let mut picks = Picks::new(records, 0x77 + seed);
    let mut generation = 1;
    loop {
        let number = picks.next();
        session.put(&key(number), values.value(number, generation))?;
        generation += 1;
        if enough(watch.lap(1)) {
            return Ok(());
        }
    }
}

/// Adds 1 to each counter [`MERGE_ROUNDS`] times, in random order and without reading, then settles.
pub fn merge_counters(engine: &dyn Engine, plan: &Plan) -> Result<Outcome> {
    let shuffle = Shuffle::new(plan.records);
    then_settle(engine, || {
        on_threads(engine, plan.threads, 0.0, &|index, session, _, watch| {
            for place in share(plan.records * MERGE_ROUNDS, plan.threads, index) {
                session.merge(&key(shuffle.at(place % plan.records)), &1u64.to_le_bytes())?;
                watch.lap(1);
            }
            Ok(())
        })
    })
}

/// Adds 1 to random counters for the time given or so many times, by reading and writing them, then settles. Threads may overwrite each
/// other's additions.
pub fn update_counters(engine: &dyn Engine, plan: &Plan) -> Result<Outcome> {
    then_settle(engine, || {
        on_threads(engine, plan.threads, plan.seconds, &|index, session, deadline, watch| {
            let mut picks = Picks::new(plan.records, 0x66 + index as u64);
            let mut sink = Sink { copies: Some(Vec::new()), ..Sink::default() };
            let mut enough = enough_writes(plan, index, deadline);
            loop {
                let key = key(picks.next());
                session.get(&key, &mut sink)?;
                let found = sink.copies.as_mut().and_then(Vec::pop).map(|(_, value)| value);
                let count = found.and_then(|value| value.try_into().ok()).map_or(0, u64::from_le_bytes);
                session.put(&key, &(count + 1).to_le_bytes())?;
                if enough(watch.lap(1)) {
                    return Ok(());
                }
            }
        })
    })
}

fn then_settle(engine: &dyn Engine, writes: impl FnOnce() -> Result<(Stopwatch, f64)>) -> Result<Outcome> {
    let (((watch, write_seconds), settle_seconds), usage, _) = used(|| {
        let written = writes()?;
        let ((), _, settle_seconds) = used(|| engine.settle())?;
        Ok((written, settle_seconds))
    })?;
    let mut extra = Map::new();
    extra.insert("settle_seconds".to_owned(), json!(settle_seconds));
    let settled = watch.operations() as f64 / (write_seconds + settle_seconds);
    extra.insert("settled_ops_per_second".to_owned(), json!(settled));
    Ok(Outcome { watch, seconds: write_seconds, usage, extra })
}

/// New records in random order, one by one, for the time given or so many, at the plan's rate if it has one. Each thread has its
/// own.
fn new_records(engine: &dyn Engine, plan: &Plan, values: &Values) -> Result<(Stopwatch, f64)> {
    // More places than any run gets to.
    let shuffle = Shuffle::new(1 << 40);
    on_threads(engine, plan.threads, plan.seconds, &|index, session, deadline: Deadline, watch| {
        let mut place = (index as u64) << 32;
        let mut enough = enough_writes(plan, index, deadline);
        let mut pace = (plan.rate > 0.0).then(|| Pace::start(plan.rate / plan.threads as f64));
        loop {
            let number = shuffle.at(place);
            session.put(&key(number), values.value(number, 0))?;
            place += 1;
            let now = watch.lap(1);
            if enough(now) {
                return Ok(());
            }
            if pace.as_mut().is_some_and(|pace| pace.wait(now)) {
                watch.restart();
            }
        }
    })
}

/// A rate of operations.
struct Pace {
    start: Instant,
    nanos_each: f64,
    done: u64,
}

impl Pace {
    /// How far ahead of the rate an operation may be: sleeping for less costs more than it is worth.
    const AHEAD: Duration = Duration::from_millis(1);

    fn start(per_second: f64) -> Self {
        Self { start: Instant::now(), nanos_each: 1e9 / per_second, done: 0 }
    }
    /// Counts an operation that ended `now`, and sleeps if the next ones are not due yet. Returns whether it slept.
    /// After a stop, operations follow each other until the rate is reached again.
    fn wait(&mut self, now: Instant) -> bool {
        self.done += 1;
        let due = self.start + Duration::from_nanos((self.done as f64 * self.nanos_each) as u64);
        let ahead = due.saturating_duration_since(now);
        let sleeps = ahead >= Self::AHEAD;
        if sleeps {
            std::thread::sleep(ahead);
        }
        sleeps
    }
}

/// Synced writes; the engine was opened for them.
pub fn synced(engine: &dyn Engine, plan: &Plan, values: &Values) -> Result<Outcome> {
    let ((watch, seconds), usage, _) = used(|| new_records(engine, plan, values))?;
    Ok(Outcome { watch, seconds, usage, extra: Map::new() })
}

/// How long writes take, and the longest that one was held up.
pub fn latency(engine: &dyn Engine, plan: &Plan, values: &Values) -> Result<Outcome> {
    let ((watch, seconds), usage, _) = used(|| new_records(engine, plan, values))?;
    let mut extra = Map::new();
    let longest = watch.latencies()["max"].as_f64().map(|micros| micros / 1e6);
    extra.insert("longest_stop_seconds".to_owned(), longest.map_or(Value::Null, Value::from));
    Ok(Outcome { watch, seconds, usage, extra })
}

/// Fills the database with the plan's records in random order, in large batches, without looking at the time.
pub fn load(engine: &dyn Engine, plan: &Plan, values: &Values) -> Result<()> {
    let shuffle = Shuffle::new(plan.records);
    load_by(engine, plan, values, |place| shuffle.at(place))
}

/// The same in key order.
pub fn load_in_order(engine: &dyn Engine, plan: &Plan, values: &Values) -> Result<()> {
    load_by(engine, plan, values, |place| place)
}

fn load_by(engine: &dyn Engine, plan: &Plan, values: &Values, order: impl Fn(u64) -> u64) -> Result<()> {
    let mut session = engine.session()?;
    let mut unwatched = Stopwatch::start();
    put_all(&mut *session, 0..plan.records, order, LOAD_BATCH, values, &mut unwatched)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_everything_once() {
        for (count, threads) in [(10, 3), (0, 2), (1, 4), (u64::MAX, 7)] {
            let shares: Vec<_> = (0..threads).map(|index| share(count, threads, index)).collect();
            assert_eq!(shares[0].start, 0);
            assert_eq!(shares[threads - 1].end, count);
            assert!(shares.windows(2).all(|pair| pair[0].end == pair[1].start));
        }
    }
}
