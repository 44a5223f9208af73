//! Works that read.

use super::{Outcome, Plan, Work, fill, on_threads, used};
use crate::data::{Key, Picks, Values, key, missing_key, prefixless_key};
use crate::engine::{Direction, Engine, Result, Scan, Session, Sink};
use crate::measure::Stopwatch;
use serde_json::{Map, json};
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Keys of one multi-get.
const KEYS_AT_ONCE: usize = 32;
/// Records after the one that a seek finds.
const STEPS: u64 = 10;
/// How long random reads go on before they are measured.
const WARM_UP: Duration = Duration::from_secs(1);

/// Reads everything in order, then random records for a while, so that caches have what they can hold.
fn warm_up(engine: &dyn Engine, plan: &Plan) -> Result<()> {
    if !plan.warm {
        return Ok(());
    }
    let mut session = engine.session()?;
    let mut sink = Sink::default();
    let all = Scan { from: None, direction: Direction::Forward, limit: u64::MAX };
    let found = session.scan(all, &mut sink)?;
    if found != plan.records {
        return Err(format!("the database has {found} records, not {}: fill it first", plan.records));
    }
    let mut picks = Picks::new(plan.records, 0x99);
    let start = Instant::now();
    while start.elapsed() < WARM_UP {
        session.get(&key(picks.next()), &mut sink)?;
    }
    black_box(sink);
    Ok(())
}

/// How often what is left of a drained queue is looked for.
const LOOKS: usize = 20;

/// Fills, deletes all records but the last, and looks for that one from the first key on. The operations are the looks.
pub fn drained(engine: &dyn Engine, plan: &Plan, values: &Values) -> Result<Outcome> {
    fill::load_in_order(engine, plan, values)?;
    engine.settle()?;
    let mut session = engine.session()?;
    let (mut watch, mut extra) = (Stopwatch::start(), Map::new());
    let ((), usage, all_seconds) = used(|| {
        let ((), _, delete_seconds) =
            used(|| (0..plan.records - 1).try_for_each(|number| session.delete(&key(number))))?;
        extra.insert("delete_seconds".to_owned(), json!(delete_seconds));
        watch.restart();
        for look in 0..LOOKS {
            let start = Instant::now();
            let mut sink = Sink::default();
            let all = Scan { from: Some(&key(0)), direction: Direction::Forward, limit: u64::MAX };
            let found = session.scan(all, &mut sink)?;
            watch.lap(1);
            if found != 1 {
                return Err(format!("{found} records are left, not 1"));
            }
            if look == 0 {
                extra.insert("first_look_us".to_owned(), json!(start.elapsed().as_secs_f64() * 1e6));
            }
        }
        Ok(())
    })?;
    let deletes = extra["delete_seconds"].as_f64().unwrap_or_default();
    Ok(Outcome { watch, seconds: all_seconds - deletes, usage, extra })
}

/// One operation on random records. How many records it was about.
type Operation = fn(&mut dyn Session, &mut Picks, &mut Sink) -> Result<u64>;

fn read_random(session: &mut dyn Session, picks: &mut Picks, sink: &mut Sink) -> Result<u64> {
    let number = picks.next();
    match session.get(&key(number), sink)? {
        true => Ok(1),
        false => Err(format!("record {number} is missing")),
    }
}

fn read_missing(session: &mut dyn Session, picks: &mut Picks, sink: &mut Sink) -> Result<u64> {
    let number = picks.next();
    match session.get(&missing_key(number), sink)? {
        false => Ok(1),
        true => Err(format!("there is a record after {number} that nobody wrote")),
    }
}

fn multi_get(session: &mut dyn Session, picks: &mut Picks, sink: &mut Sink) -> Result<u64> {
    let keys: [Key; KEYS_AT_ONCE] = std::array::from_fn(|_| key(picks.next()));
    match session.multi_get(&keys, sink)? {
        KEYS_AT_ONCE => Ok(KEYS_AT_ONCE as u64),
        found => Err(format!("{found} of {KEYS_AT_ONCE} records were found")),
    }
}

fn seek(session: &mut dyn Session, picks: &mut Picks, sink: &mut Sink) -> Result<u64> {
    let from = key(picks.next());
    let scan = Scan { from: Some(&from), direction: Direction::Forward, limit: STEPS + 1 };
    match session.scan(scan, sink)? {
        0 => Err("a seek to a record found nothing".to_owned()),
        _ => Ok(1),
    }
}

fn prefix_scan(session: &mut dyn Session, picks: &mut Picks, sink: &mut Sink) -> Result<u64> {
    let from = key(picks.next());
    match session.scan(Scan { from: Some(&from), direction: Direction::Forward, limit: u64::MAX }, sink)? {
        0 => Err("a prefix has lost its record".to_owned()),
        _ => Ok(1),
    }
}

fn prefix_missing(session: &mut dyn Session, picks: &mut Picks, sink: &mut Sink) -> Result<u64> {
    let from = prefixless_key(picks.next());
    match session.scan(Scan { from: Some(&from), direction: Direction::Forward, limit: u64::MAX }, sink)? {
        0 => Ok(1),
        found => Err(format!("{found} records were found in a prefix that nobody wrote")),
    }
}

/// Random reads of one kind for the time given.
pub fn points(engine: &dyn Engine, plan: &Plan) -> Result<Outcome> {
    warm_up(engine, plan)?;
    let operation: Operation = match plan.work {
        Work::ReadMissing => read_missing,
        Work::MultiGet => multi_get,
        Work::Seek => seek,
        Work::PrefixScan => prefix_scan,
        Work::PrefixMissing => prefix_missing,
        _ => read_random,
    };
    let ((watch, seconds), usage, _) = used(|| {
        on_threads(engine, plan.threads, plan.seconds, &|index, session, deadline, watch| {
            let (mut picks, mut sink) = (Picks::new(plan.records, index as u64), Sink::default());
            loop {
                let count = operation(session, &mut picks, &mut sink)?;
                if deadline.is_before(watch.lap(count)) {
                    black_box(sink);
                    return Ok(());
                }
            }
        })
    })?;
    Ok(Outcome { watch, seconds, usage, extra: Map::new() })
}

/// Reads everything in order, again and again until the time is up; no scan is cut short. Latencies are of whole scans.
pub fn scans(engine: &dyn Engine, plan: &Plan) -> Result<Outcome> {
    warm_up(engine, plan)?;
    let direction = if plan.work == Work::ScanReverse { Direction::Reverse } else { Direction::Forward };
    let ((watch, seconds), usage, _) = used(|| {
        on_threads(engine, plan.threads, plan.seconds, &|_, session, deadline, watch| {
            let mut sink = Sink::default();
            loop {
                let found = session.scan(Scan { from: None, direction, limit: u64::MAX }, &mut sink)?;
                if found != plan.records {
                    return Err(format!("a scan found {found} of {} records", plan.records));
                }
                if deadline.is_before(watch.lap(found)) {
                    black_box(sink);
                    return Ok(());
                }
            }
        })
    })?;
    Ok(Outcome { watch, seconds, usage, extra: Map::new() })
}

/// Random reads by all threads while one more thread overwrites random records as fast as it can. Operations are reads.
pub fn while_writing(engine: &dyn Engine, plan: &Plan, values: &Values) -> Result<Outcome> {
    warm_up(engine, plan)?;
    let reads = AtomicU64::new(0);
    let readers_left = AtomicU64::new(plan.threads as u64);
    let over = AtomicBool::new(false);
    let writer = Mutex::new(None);
    let read = Mutex::new(Stopwatch::start());
    let ((_, seconds), usage, _) = used(|| {
        on_threads(engine, plan.threads + 1, plan.seconds, &|index, session, deadline, watch| {
            if index == plan.threads {
                let done = overwrite(session, plan, values, watch, &over);
                // Taken apart from the reads.
                let own = std::mem::replace(watch, Stopwatch::start());
                *writer.lock().map_err(crate::engine::words)? = Some(own);
                return done;
            }
            let (mut picks, mut sink) = (Picks::new(plan.records, index as u64), Sink::default());
            let outcome = loop {
                match read_random(session, &mut picks, &mut sink) {
                    Ok(_) if deadline.is_before(watch.lap(1)) => break Ok(()),
                    Ok(_) => {}
                    Err(error) => break Err(error),
                }
            };
            reads.fetch_add(watch.operations(), Ordering::Relaxed); // Read after the threads have ended.
            read.lock().map_err(crate::engine::words)?.merge(watch);
            if readers_left.fetch_sub(1, Ordering::Relaxed) == 1 {
                over.store(true, Ordering::Relaxed); // Says nothing about other data.
            }
            black_box(sink);
            outcome
        })
    })?;
    let mut extra = Map::new();
    let writer = writer.into_inner().map_err(crate::engine::words)?.ok_or("the writer has not run")?;
    extra.insert("writes_per_second".to_owned(), json!(writer.operations() as f64 / seconds));
    extra.insert("write_latency_us".to_owned(), writer.latencies());
    let watch = read.into_inner().map_err(crate::engine::words)?;
    Ok(Outcome { watch, seconds, usage, extra })
}

fn overwrite(
    session: &mut dyn Session,
    plan: &Plan,
    values: &Values,
    watch: &mut Stopwatch,
    over: &AtomicBool,
) -> Result<()> {
    fill::overwrite_until(session, plan.records, 0, values, watch, |_| over.load(Ordering::Relaxed))
}
