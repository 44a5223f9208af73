//! What comes back after the end: opened, judged, used, and opened again.

use crate::clock::SimClock;
use crate::history::{Found, History};
use crate::plan::Plan;
use crate::run::{Opener, handles};
use crate::state;
use ironstone::{CompactRangeOptions, Db, FlushOptions, ReadOptions, WriteBatch, WriteOptions};
use ironstone_base::sync::Arc;
use ironstone_vfs::mem::MemFileSystem;

/// Opens `image` and checks it against `history`: every accepted batch must be there (`all`), or every durable
/// one. Then the database must go on working, and what it did must stay.
pub fn judge(
    plan: &Plan,
    opener: &Opener,
    clock: &Arc<SimClock>,
    image: MemFileSystem,
    history: &History,
    all: bool,
) -> Result<(), String> {
    let image = match plan.nested {
        Some(operation) => interrupted(plan, opener, clock, image, operation),
        None => image,
    };
    without_logs(plan, opener, clock, &image.fork(), history)?;
    let db = opener.open(&image, clock).map_err(|error| format!("open after the end: {error}"))?;
    let first = look(&db, plan)?;
    history.check(&first, all).map_err(|problem| format!("after the end: {problem}"))?;

    // It goes on working.
    let cfs = handles(&db, plan.families);
    let mut batch = WriteBatch::new();
    for cf in &cfs {
        batch.put_cf(cf, state::number_key(99), "1");
    }
    let said = |what: &'static str| move |error| format!("{what} after the recovery: {error}");
    db.write(&batch, &WriteOptions::synced()).map_err(said("write"))?;
    let synced = image.crash(plan.policy, plan.policy_seed ^ 1);
    let mut expected = first;
    expected.numbers.iter_mut().for_each(|numbers| {
        numbers.insert(99, 1);
    });
    same(&look(&db, plan)?, &expected, "after a write")?;
    db.flush_cfs(&FlushOptions::default(), &cfs.iter().collect::<Vec<_>>()).map_err(said("flush"))?;
    same(&look(&db, plan)?, &expected, "after a flush")?;
    for cf in &cfs {
        db.compact_range(&CompactRangeOptions::default(), cf, None, None).map_err(said("compact_range"))?;
    }
    same(&look(&db, plan)?, &expected, "after a compaction")?;
    drop(cfs);
    db.close().map_err(said("close"))?;
    drop(db);

    // And what was synced stays, whether it was closed or lost its power a second time.
    for image in [image, synced] {
        let db = opener.open(&image, clock).map_err(|error| format!("second opening: {error}"))?;
        same(&look(&db, plan)?, &expected, "at the second opening")?;
        db.close().map_err(said("second close"))?;
    }
    Ok(())
}

/// Opens `image` with `best_efforts_recovery`: each column family is as some flush has left it, each batch is there or
/// not as far as that column family goes, and it goes on from there.
fn without_logs(
    plan: &Plan,
    opener: &Opener,
    clock: &Arc<SimClock>,
    image: &MemFileSystem,
    history: &History,
) -> Result<(), String> {
    let said = |what: &'static str| move |error| format!("{what} without logs: {error}");
    let db = opener.open_best_efforts(image, clock).map_err(said("open"))?;
    let cfs = handles(&db, plan.families);
    // What hides what was ingested behind may be in a log.
    let mut found = everything(&db, plan).map_err(|problem| format!("without logs: {problem}"))?;
    for (numbers, shared) in found.numbers.iter().zip(&found.shared) {
        if let Some((writer, number)) =
            numbers.iter().find(|(writer, number)| **number > history.range_of(**writer).1)
        {
            return Err(format!("without logs: batch {number} of writer {writer} was never issued"));
        }
        let is_torn =
            |(writer, number): &(usize, usize)| numbers.get(writer).is_none_or(|last| last < number);
        if let Some(id) = shared.values().find(|id| is_torn(id)) {
            return Err(format!(
                "without logs: batch {id:?} is there in part of a column family, of {numbers:?}"
            ));
        }
    }
    if plan.unlogged {
        history.check(&found, false).map_err(|problem| format!("without logs: {problem}"))?;
    }
    let mut batch = WriteBatch::new();
    for cf in &cfs {
        batch.put_cf(cf, state::number_key(99), "1");
    }
    db.write(&batch, &WriteOptions::synced()).map_err(said("write"))?;
    drop(cfs);
    db.close().map_err(said("close"))?;
    drop(db);
    found.numbers.iter_mut().for_each(|numbers| {
        numbers.insert(99, 1);
    });
    let db = opener.open(image, clock).map_err(said("second opening"))?;
    same(&everything(&db, plan)?, &found, "at the opening after the one without logs")?;
    db.close().map_err(said("second close"))
}

/// A recovery of `image` that loses its power at `operation`, and what that leaves.
fn interrupted(
    plan: &Plan,
    opener: &Opener,
    clock: &Arc<SimClock>,
    image: MemFileSystem,
    operation: u64,
) -> MemFileSystem {
    image.set_crash_point(operation);
    if let Ok(db) = opener.open(&image, clock) {
        let _ = db.close();
    }
    image.crash(plan.policy, plan.policy_seed ^ 2)
}

fn look(db: &Db, plan: &Plan) -> Result<Found, String> {
    let found = everything(db, plan)?;
    let shows_through = state::nothing_shows_through(db, &handles(db, plan.families));
    shows_through.map_err(|error| format!("read after the end: {error}"))??;
    Ok(found)
}

fn everything(db: &Db, plan: &Plan) -> Result<Found, String> {
    let cfs = handles(db, plan.families);
    let options = ReadOptions::default();
    let said = |error| format!("read after the end: {error}");
    let found = state::by_iterators(db, &cfs, &options).map_err(said)??;
    let by_gets = state::by_gets(db, &cfs, &options, 100, 32).map_err(said)??;
    same(&by_gets, &found, "by get and by iterator")?;
    Ok(found)
}

fn same(one: &Found, other: &Found, when: &str) -> Result<(), String> {
    if one == other { Ok(()) } else { Err(format!("{when}: {one:?}, expected {other:?}")) }
}
