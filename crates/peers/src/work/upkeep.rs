//! Works about files as a whole.

use super::{Outcome, Plan, fill, used};
use crate::data::{KEY_BYTES, Picks, Values, key};
use crate::engine::{Engine, Kind, Result, Setup, Sink};
use crate::measure::{Stopwatch, Usage, seconds};
use serde_json::{Map, json};
use std::time::Instant;

/// How often a database is opened.
const OPENINGS: usize = 5;

/// Fills without compactions, then compacts once. The one operation is the compaction.
pub fn compact(engine: &dyn Engine, plan: &Plan, values: &Values) -> Result<Outcome> {
    fill::load(engine, plan, values)?;
    engine.settle()?;
    let mut watch = Stopwatch::start();
    let ((), usage, seconds) = used(|| engine.compact())?;
    watch.lap(1);
    let mut extra = Map::new();
    let megabytes = (plan.records * (KEY_BYTES + plan.value_bytes) as u64) as f64 / 1e6;
    extra.insert("megabytes_per_second".to_owned(), json!(megabytes / seconds));
    Ok(Outcome { watch, seconds, usage, extra })
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
