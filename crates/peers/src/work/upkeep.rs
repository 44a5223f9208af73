//! Works about files as a whole.

use super::{Outcome, Plan, fill, used};
use crate::data::{KEY_BYTES, Picks, Shuffle, Values, key};
use crate::engine::{Direction, Engine, Kind, Result, Scan, Setup, Sink};
use crate::measure::{Stopwatch, Usage, forget_peak_memory, memory_mib, seconds};
use serde_json::{Map, json};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How many checkpoints are made.
const CHECKPOINTS: usize = 10;
/// How long writes go on before and after each.
const AROUND: Duration = Duration::from_millis(200);
/// Between two writes.
const PAUSE: Duration = Duration::from_micros(100);

/// Fills the database and lets it settle. Then writes new records, one each 100 us, through [`CHECKPOINTS`] checkpoints:
/// the operations are these writes. The extra fields say how long the longest of them took beside each checkpoint, and in
/// as much time without one after it.
pub fn checkpoints(engine: &dyn Engine, plan: &Plan, values: &Values) -> Result<Outcome> {
    fill::load(engine, plan, values)?;
    engine.settle()?;
    let (mut watch, mut without) = (Stopwatch::start(), Stopwatch::start());
    let (mut took, mut next) = (Vec::new(), plan.records);
    let copy = |number: usize| plan.dir.with_extension(format!("checkpoint{number}"));
    let ((), usage, seconds) = used(|| {
        for number in 0..CHECKPOINTS {
            let path = copy(number);
            if path.exists() {
                remove(&path)?;
            }
            let beside = writes_beside(engine, values, &mut next, &mut watch, || engine.checkpoint(&path))?;
            let as_long = || {
                std::thread::sleep(beside);
                Ok(())
            };
            writes_beside(engine, values, &mut next, &mut without, as_long)?;
            took.push(beside.as_secs_f64() * 1e3);
        }
        Ok(())
    })?;
    (0..CHECKPOINTS).try_for_each(|number| remove(&copy(number)))?;
    let mut extra = Map::new();
    extra.insert("without_latency_us".to_owned(), without.latencies());
    extra.insert("checkpoint_ms".to_owned(), json!(took));
    let longest = watch.latencies()["max"].as_f64().map(|micros| micros / 1e6);
    extra.insert("longest_stop_seconds".to_owned(), json!(longest));
    Ok(Outcome { watch, seconds, usage, extra })
}

fn remove(dir: &Path) -> Result<()> {
    std::fs::remove_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))
}

/// Writes records from `next` on while `act` goes on, and [`AROUND`] before and after. How long `act` took.
fn writes_beside(
    engine: &dyn Engine,
    values: &Values,
    next: &mut u64,
    watch: &mut Stopwatch,
    act: impl FnOnce() -> Result<()>,
) -> Result<Duration> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| -> Result<()> {
            let mut session = engine.session()?;
            while !done.load(Ordering::Relaxed) {
                watch.restart();
                session.put(&key(*next), values.value(*next, 0))?;
                watch.lap(1);
                *next += 1;
                std::thread::sleep(PAUSE);
            }
            Ok(())
        });
        std::thread::sleep(AROUND);
        let start = Instant::now();
        let acted = act();
        let took = start.elapsed();
        std::thread::sleep(AROUND);
        done.store(true, Ordering::Relaxed);
        writer.join().unwrap_or_else(|_| Err("the writer panicked".to_owned()))?;
        acted.map(|()| took)
    })
}

/// How often a database is opened.
const OPENINGS: usize = 5;

/// Fills without compactions, then compacts once. The one operation is the compaction, and the peak of memory is its own.
pub fn compact(engine: &dyn Engine, plan: &Plan, values: &Values) -> Result<Outcome> {
    fill::load(engine, plan, values)?;
    engine.settle()?;
    touch_page_cache(plan, 2 * plan.records * (KEY_BYTES + plan.value_bytes) as u64)?;
    forget_peak_memory()?;
    let mut watch = Stopwatch::start();
    let ((), usage, seconds) = used(|| engine.compact())?;
    watch.lap(1);
    let mut extra = Map::new();
    let megabytes = (plan.records * (KEY_BYTES + plan.value_bytes) as u64) as f64 / 1e6;
    extra.insert("megabytes_per_second".to_owned(), json!(megabytes / seconds));
    Ok(Outcome { watch, seconds, usage, extra })
}

/// Has the kernel touch so much memory: a file is written and removed. On a virtual machine the first touch of a page may be
/// the host's work, and take longer than the copy into it: without this, half of a compaction was such pages of the page cache.
fn touch_page_cache(plan: &Plan, bytes: u64) -> Result<()> {
    let path = plan.dir.join("touched");
    let written = std::fs::File::create(&path).and_then(|file| {
        let chunk = vec![1; 1 << 20];
        (0..bytes >> 20).try_for_each(|_| (&file).write_all(&chunk))
    });
    written.and_then(|()| std::fs::remove_file(&path)).map_err(|error| format!("{}: {error}", path.display()))
}

/// Opens the database and reads one record, again and again. Latencies are of opening and reading; closing is not timed.
pub fn open(kind: &Kind, plan: &Plan, setup: &Setup) -> Result<Outcome> {
    let mut picks = Picks::new(plan.records, 1);
    let mut watch = Stopwatch::start();
    let (mut usage, mut total) = (Usage { written: Some(0), ..Usage::default() }, 0.0);
    for _ in 0..OPENINGS {
        let mut opening = Stopwatch::start();
        let (before, start) = (Usage::now(), Instant::now());
        let engine = (kind.open)(&plan.dir, setup)?;
        let number = picks.next();
        if !engine.session()?.get(&key(number), &mut Sink::default())? {
            return Err(format!("record {number} is missing"));
        }
        opening.lap(1);
        total += seconds(start.elapsed());
        let used = Usage::now().since(before);
        usage.user += used.user;
        usage.system += used.system;
        usage.written = usage.written.zip(used.written).map(|(sum, more)| sum + more);
        watch.merge(&opening);
    }
    let mut extra = Map::new();
    extra.insert("files".to_owned(), json!(std::fs::read_dir(&plan.dir).map_or(0, Iterator::count)));
    Ok(Outcome { watch, seconds: total, usage, extra })
}

/// Fills many databases in turn, reads each once, and lets them settle. The peak of memory is what counts; the extra fields
/// say what there was after each step.
pub fn many_databases(kind: &Kind, plan: &Plan, setup: &Setup) -> Result<Outcome> {
    let values = Values::new(plan.value_bytes);
    let mut watch = Stopwatch::start();
    let mut extra = Map::new();
    let mut note = |step: &str| extra.insert(format!("rss_mib_{step}"), json!(memory_mib()));
    let ((), usage, seconds) = used(|| {
        let open = |number| (kind.open)(&plan.dir.join(format!("{number:04}")), setup);
        let engines: Vec<Box<dyn Engine>> = (0..plan.databases).map(open).collect::<Result<_>>()?;
        let mut sessions = engines.iter().map(|engine| engine.session()).collect::<Result<Vec<_>>>()?;
        note("opened");
        let shuffle = Shuffle::new(plan.records);
        for place in 0..plan.records {
            let number = shuffle.at(place);
            sessions[(place % plan.databases) as usize].put(&key(number), values.value(number, 0))?;
            watch.lap(1);
        }
        note("written");
        let (mut sink, mut found) = (Sink::default(), 0);
        drop(sessions);
        for engine in &engines {
            let all = Scan { from: None, direction: Direction::Forward, limit: u64::MAX };
            found += engine.session()?.scan(all, &mut sink)?;
        }
        if found != plan.records {
            return Err(format!("the databases have {found} records, not {}", plan.records));
        }
        note("read");
        engines.iter().try_for_each(|engine| engine.settle())?;
        note("settled");
        Ok(())
    })?;
    Ok(Outcome { watch, seconds, usage, extra })
}
