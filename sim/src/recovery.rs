//! What comes back after the end: opened, judged, used, and opened again.

use crate::clock::SimClock;
use crate::history::{Found, History};
use crate::plan::Plan;
use crate::run::{COPIES, Opener, SOURCES, handles};
use crate::state;
use ironstone::{CompactRangeOptions, Db, FlushOptions, ReadOptions, WriteBatch, WriteOptions};
use ironstone_base::sync::Arc;
use ironstone_vfs::FileSystem;
use ironstone_vfs::mem::MemFileSystem;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

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
    copies(plan, opener, clock, &image.fork(), history)?;
    let sources = sources(&image);
    let db = opener.open(&image, clock).map_err(|error| format!("open after the end: {error}"))?;
    let first = look(&db, plan)?;
    history.check(&first, all).map_err(|problem| format!("after the end: {problem}"))?;
    let check_ingestions = |db: &Db, when: &str| {
        let there = state::ingestions(db, &handles(db, plan.families));
        let there = there.map_err(|error| format!("read {when}: {error}"))??;
        history.check_ingestions(&there).map_err(|problem| format!("{when}: {problem}"))
    };
    check_ingestions(&db, "after the end")?;

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
    same(plan, &look(&db, plan)?, &expected, "after a write")?;
    db.flush_cfs(&FlushOptions::default(), &cfs.iter().collect::<Vec<_>>()).map_err(said("flush"))?;
    same(plan, &look(&db, plan)?, &expected, "after a flush")?;
    for cf in &cfs {
        db.compact_range(&CompactRangeOptions::default(), cf, None, None).map_err(said("compact_range"))?;
    }
    same(plan, &look(&db, plan)?, &expected, "after a compaction")?;
    // All of it is in tables now.
    let follower = opener.follow(&image, clock).map_err(said("open_as_follower"))?;
    same(plan, &everything(&follower, plan)?, &expected, "in a follower")?;
    follower.close().map_err(said("closing the follower"))?;
    drop(cfs);
    db.close().map_err(said("close"))?;
    drop(db);

    // And what was synced stays, whether it was closed or lost its power a second time.
    for image in [image, synced] {
        let db = opener.open(&image, clock).map_err(|error| format!("second opening: {error}"))?;
        same(plan, &look(&db, plan)?, &expected, "at the second opening")?;
        check_ingestions(&db, "at the second opening")?;
        db.close().map_err(said("second close"))?;
        if self::sources(&image) != sources {
            return Err("files that were prepared for ingestion have changed where they came from".to_owned());
        }
    }
    Ok(())
}

/// The files that were linked or copied for ingestion.
fn sources(image: &MemFileSystem) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let files = image.all_files().into_iter().filter(|path| path.to_string_lossy().starts_with(SOURCES));
    files.map(|path| (path.clone(), image.read_all(&path).ok())).collect()
}

/// Copies that were made are there with what they held, and others are there whole or not at all.
fn copies(
    plan: &Plan,
    opener: &Opener,
    clock: &Arc<SimClock>,
    image: &MemFileSystem,
    history: &History,
) -> Result<(), String> {
    let mut dirs: BTreeSet<String> = history.copies.iter().map(|(dir, _)| dir.clone()).collect();
    for path in image.all_files() {
        let dir = path.parent().unwrap_or(&path).to_string_lossy().into_owned();
        if dir.starts_with(COPIES) && !dir.ends_with(".tmp") {
            dirs.insert(dir);
        }
    }
    for dir in dirs {
        let said = |error| format!("{dir} after the end: {error}");
        let copy = opener.open_copy(image, clock, &dir).map_err(said)?;
        let found = state::by_iterators(&copy, &handles(&copy, plan.families), &ReadOptions::default());
        let found = found.map_err(said)??;
        copy.close().map_err(said)?;
        match history.copies.iter().find(|(known, _)| *known == dir) {
            Some((_, held)) => same(plan, &found, held, &dir)?,
            None => history.check_copy(&found, &[]).map_err(|problem| format!("{dir}: {problem}"))?,
        }
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
    history.check_families(&found).map_err(|problem| format!("without logs: {problem}"))?;
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
    same(plan, &everything(&db, plan)?, &found, "at the opening after the one without logs")?;
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
    same(plan, &by_gets, &found, "by get and by iterator")?;
    Ok(found)
}

/// Whether `found` is what was `expected`, but for what the plan has dropped since.
fn same(plan: &Plan, found: &Found, expected: &Found, when: &str) -> Result<(), String> {
    match found.is_left_of(expected, plan.drops) {
        true => Ok(()),
        false => Err(format!("{when}: {found:?}, expected {expected:?}")),
    }
}
