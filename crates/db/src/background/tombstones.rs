//! Passes runs of tombstones in memtables before somebody else has to.
//!
//! When a memtable has grown, the tombstones around a key that was deleted of late are looked at: if nothing is left between
//! them, in older places neither, iterators are told so. What lies between tombstones is read at most once.

use crate::column_family::ColumnFamilyData;
use crate::empty_ranges::EmptyRange;
use crate::engine::Engine;
use crate::memtables::DbMemTable;
use crate::read::db_iterator::{Bounds, DbIterator};
use crate::read::read_options::ReadOptions;
use crate::read::source::{IteratorSource, Places};
use ironstone_base::statistics::Ticker;
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::Ordering;
use ironstone_base::{InternalKey, InternalKeyBuf, Result, SequenceNumber, ValueType};
use ironstone_iter::InternalIterator;
use std::time::Duration;

/// Writes that have begun are waited for so often and so long.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_micros(50);
/// A walk that takes longer is given up: whoever closes the database waits for it.
const LONGEST: Duration = Duration::from_secs(1);

/// Looks at the memtables of all column families.
pub(crate) fn pass_tombstones(engine: &Arc<Engine>) {
    let families: Vec<_> = {
        let state = engine.state.lock();
        let families = state.families.values();
        families.map(|family| (Arc::clone(&family.data), Arc::clone(&family.mem))).collect()
    };
    for (cf, memtable) in families {
        let least = match cf.settings().noted_tombstone_run() {
            Some(least) if !memtable.updates_in_place() => least,
            _ => continue,
        };
        if engine.cancelled.load(Ordering::Relaxed) {
            return;
        }
        let Some((key, new)) = memtable.take_tombstones_to_pass(least.into()) else { continue };
        // What is not noted is passed by the first reader: nothing is lost by an error here.
        if let Ok(Some(noted)) = pass(engine, &cf, &memtable, &key, least.into(), new) {
            engine.count(noted, 1);
        }
    }
}

/// Passes the tombstones around `key`, of which about `new` have come. Answers what became of that, if there were enough.
fn pass(
    engine: &Arc<Engine>,
    cf: &Arc<ColumnFamilyData>,
    memtable: &Arc<DbMemTable>,
    key: &[u8],
    least: u64,
    new: u64,
) -> Result<Option<Ticker>> {
    let run = run_around(memtable, engine.pipeline.visible(), key, new * 2)?;
    let Some(run) = run.filter(|run| run.len >= least) else { return Ok(None) };
    let (begin, end) = &run.whole;
    let Some((watched, begun)) = engine.pipeline.watch_range(memtable, begin, end) else { return Ok(None) };
    let noted = pass_watched(engine, cf, memtable, &run, &watched, begun);
    if !matches!(noted, Ok(true)) {
        memtable.empty_ranges().forget(&watched);
    }
    Ok(Some(match noted? {
        true => Ticker::ReadPathRangeTombstonesInserted,
        false => Ticker::ReadPathRangeTombstonesDiscarded,
    }))
}

/// Answers whether nothing is left in what is `watched`, and that was noted. `begun`: the last write that was not watched.
fn pass_watched(
    engine: &Arc<Engine>,
    cf: &Arc<ColumnFamilyData>,
    memtable: &Arc<DbMemTable>,
    run: &Run,
    watched: &Arc<EmptyRange>,
    begun: SequenceNumber,
) -> Result<bool> {
    let clock = &engine.env.clock;
    let mut tries = 0;
    while engine.pipeline.visible() < begun {
        tries += 1;
        if tries == TRIES {
            return Ok(false);
        }
        clock.sleep(PAUSE);
    }
    let options = ReadOptions {
        iterate_upper_bound: Some(run.whole.1.clone()),
        total_order_seek: true,
        fill_cache: false,
        deadline: Duration::from_micros(clock.now_micros()) + LONGEST,
        ..ReadOptions::default()
    };
    let source = IteratorSource::new(engine, cf, &options)?;
    let places = source.places_now(engine)?;
    let at = places.sequence;
    Ok(is_empty(places, &source, &run.whole.0)?
        && engine.pipeline.add_watched_range(memtable, at, watched, &run.unknown))
}

/// Whether there is nothing from `begin` up to the bound that is in the options of `source`.
fn is_empty(places: Places, source: &IteratorSource, begin: &[u8]) -> Result<bool> {
    let bounds = Bounds::new(&source.options, &source.cf().settings().options, None);
    let mut iter = DbIterator::new(places, bounds, None);
    Ok(!iter.seek(begin)?)
}

/// Keys that a memtable knows nothing but tombstones of.
#[derive(PartialEq, Eq, Debug)]
struct Run {
    /// What is known already counted in: the keys from the first until the second, which may be the last tombstone.
    whole: (Vec<u8>, Vec<u8>),
    /// What is not known yet.
    unknown: (Vec<u8>, Vec<u8>),
    /// How many tombstones there are in that.
    len: u64,
}

/// The run around `key` as of `at`, with at most `most` tombstones on each side.
fn run_around(memtable: &DbMemTable, at: SequenceNumber, key: &[u8], most: u64) -> Result<Option<Run>> {
    let order = &memtable.table().comparator().user;
    let known = memtable.empty_ranges().of_reads_at(at);
    let known = || known.iter().map(|(range, _)| &**range);
    if known().any(|range| range.holds(order, key)) {
        return Ok(None);
    }
    let before = known().filter(|range| order.compare(range.end(), key).is_le());
    let before = before.max_by(|one, two| order.compare(one.end(), two.end()));
    let after = known().filter(|range| order.compare(key, range.begin()).is_lt());
    let after = after.min_by(|one, two| order.compare(one.begin(), two.begin()));

    let mut iter = memtable.table().iter();
    let mut len = 0;
    let mut last = Vec::new();
    iter.seek(InternalKeyBuf::for_seek(key, at).as_key())?;
    let met_after = loop {
        // Of each key the newest entry comes first.
        if !iter.valid() || len == most {
            break None;
        }
        let entry = iter.key();
        if let Some(after) = after.filter(|range| order.compare(range.begin(), entry.user_key()).is_le()) {
            break Some(after);
        }
        let is_older = len > 0 && order.equal(entry.user_key(), &last);
        if entry.sequence() <= at && !is_older {
            if !entry.value_type().is_ok_and(ValueType::is_tombstone) {
                break None;
            }
            len += 1;
            last.clear();
            last.extend_from_slice(entry.user_key());
        }
        iter.next()?;
    };
    if len == 0 {
        return Ok(None); // It was written again.
    }

    let mut first = key.to_vec();
    let mut passed = 0;
    // Of each key the newest entry comes last.
    let mut candidate: Option<(Vec<u8>, bool)> = None;
    iter.seek_for_prev(InternalKeyBuf::for_seek(key, SequenceNumber::MAX).as_key())?;
    let met_before = loop {
        let entry = iter.valid().then(|| iter.key());
        let is_same = |entry: &InternalKey<'_>| {
            candidate.as_ref().is_some_and(|(key, _)| order.equal(entry.user_key(), key))
        };
        if !entry.as_ref().is_some_and(is_same) {
            match candidate.take() {
                Some((_, false)) => break None,
                Some((key, true)) => {
                    first = key;
                    passed += 1;
                }
                None => {}
            }
        }
        let Some(entry) = entry.filter(|_| passed < most) else { break None };
        if let Some(before) = before.filter(|range| order.compare(entry.user_key(), range.end()).is_lt()) {
            break Some(before);
        }
        if entry.sequence() <= at {
            let key = candidate.take().map_or_else(|| entry.user_key().to_vec(), |(key, _)| key);
            candidate = Some((key, entry.value_type().is_ok_and(ValueType::is_tombstone)));
        }
        iter.prev()?;
    };
    let unknown_begin = met_before.map_or(&*first, EmptyRange::end);
    let unknown_end = met_after.map_or(&*last, EmptyRange::begin);
    let begin = met_before.map_or(&*first, EmptyRange::begin);
    let end = met_after.map_or(&*last, EmptyRange::end);
    Ok(Some(Run {
        whole: (begin.to_vec(), end.to_vec()),
        unknown: (unknown_begin.to_vec(), unknown_end.to_vec()),
        len: len + passed,
    }))
}
