//! Does again what a trace says.

use super::file::TraceReader;
use super::record::{self, TraceOperation, TraceRecord};
use crate::{ColumnFamily, Db, ReadOptions, WriteOptions};
use ironstone_base::sync::{Condvar, Mutex, thread};
use ironstone_base::{ColumnFamilyId, Error, Result};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How a trace is replayed.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// How many threads do what the trace says; with more than one, operations may overtake each other. Default 1.
    pub threads: usize,
    /// How many times as fast as it was traced; infinite: as fast as it goes. Default 1.0.
    pub fast_forward: f64,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        Self { threads: 1, fast_forward: 1.0 }
    }
}

/// What came of a replay.
#[derive(Clone, Debug, Default)]
pub struct ReplayReport {
    /// Operations that succeeded.
    pub done: u64,
    /// Operations that failed.
    pub failed: u64,
    /// The first of these failures.
    pub first_failure: Option<Error>,
}

/// Replays a trace against a database.
pub struct Replayer<'a> {
    db: &'a Db,
    families: BTreeMap<ColumnFamilyId, &'a ColumnFamily>,
    reader: Box<dyn TraceReader>,
    version: u32,
    /// When the trace began.
    began: u64,
    /// Its end was read. What follows in the file is of no meaning: an older trace may have been longer.
    ended: bool,
}

impl<'a> Replayer<'a> {
    /// Reads the header of the trace. Its column families are found by their ids among `column_families` and `default`.
    ///
    /// # Errors
    /// `Corruption` if it is no trace, or of an unknown version.
    pub fn new(
        db: &'a Db,
        column_families: &[&'a ColumnFamily],
        mut reader: Box<dyn TraceReader>,
    ) -> Result<Self> {
        let header = reader.read()?.ok_or_else(|| reader.corrupt("the trace is empty"))?;
        let version = record::version(&header).map_err(|bad| reader.corrupt(bad.0))?;
        let (began, ..) = record::parts(&header).map_err(|bad| reader.corrupt(bad.0))?;
        let all = column_families.iter().copied().chain([db.default_column_family()]);
        Ok(Self { db, families: all.map(|cf| (cf.id(), cf)).collect(), reader, version, began, ended: false })
    }

    /// The next operation of the trace; `None` at its end.
    #[allow(clippy::should_implement_trait)] // Fallible.
    pub fn next(&mut self) -> Result<Option<TraceRecord>> {
        while !self.ended
            && let Some(record) = self.reader.read()?
        {
            self.ended = record::is_end(&record);
            let found = record::decode(&record, self.version).map_err(|bad| self.reader.corrupt(bad.0))?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Does what `record` says. What is found is not looked at.
    pub fn execute(&self, record: &TraceRecord) -> Result<()> {
        execute(self.db, &self.families, record)
    }

    /// Does what is left of the trace, at its pace. Operations that fail do not end it; `Err` is about the trace
    /// itself, whose operations up to there are done then.
    pub fn replay(&mut self, options: &ReplayOptions) -> Result<ReplayReport> {
        if options.fast_forward.is_nan() || options.fast_forward <= 0.0 {
            return Err(Error::invalid_argument(format!("fast_forward is {}", options.fast_forward)));
        }
        let (db, families) = (self.db, self.families.clone());
        let (queue, report) = (Queue::default(), Mutex::new(ReplayReport::default()));
        let work = || {
            while let Some(record) = queue.take() {
                let outcome = execute(db, &families, &record);
                let report = &mut *report.lock();
                match outcome {
                    Ok(()) => report.done += 1,
                    Err(failure) => {
                        report.failed += 1;
                        report.first_failure.get_or_insert(failure);
                    }
                }
            }
        };
        let read = thread::scope(|scope| {
            for _ in 0..options.threads.max(1) {
                scope.spawn(work);
            }
            let read = self.feed(options.fast_forward, &queue);
            queue.end();
            read
        });
        read?;
        Ok(report.into_inner())
    }

    /// Hands out operations when they are due.
    fn feed(&mut self, fast_forward: f64, queue: &Queue) -> Result<()> {
        let clock = &self.db.engine().env.clock.clone();
        let start = clock.monotonic_nanos();
        while let Some(record) = self.next()? {
            let due = record.time_micros.saturating_sub(self.began) as f64 * 1_000.0 / fast_forward;
            let passed = clock.monotonic_nanos().saturating_sub(start);
            let ahead = (due as u64).saturating_sub(passed);
            if ahead > 0 {
                clock.sleep(Duration::from_nanos(ahead));
            }
            queue.put(record);
        }
        Ok(())
    }
}

fn execute(db: &Db, families: &BTreeMap<ColumnFamilyId, &ColumnFamily>, record: &TraceRecord) -> Result<()> {
    let family = |id: &ColumnFamilyId| {
        let unknown =
            || Error::invalid_argument(format!("the trace is of column family {}, which is not open", id.0));
        families.get(id).copied().ok_or_else(unknown)
    };
    match &record.operation {
        TraceOperation::Write(batch) => db.write(batch, &WriteOptions::default()),
        TraceOperation::Get { column_family, key } => {
            db.get_cf(&ReadOptions::default(), family(column_family)?, key).map(drop)
        }
        TraceOperation::Seek { column_family, key, lower_bound, upper_bound, backward } => {
            let bound = |bound: &Vec<u8>| (!bound.is_empty()).then(|| bound.clone());
            let options = ReadOptions {
                iterate_lower_bound: bound(lower_bound),
                iterate_upper_bound: bound(upper_bound),
                ..ReadOptions::default()
            };
            let mut iter = db.iter_cf(&options, family(column_family)?)?;
            if *backward { iter.seek_for_prev(key) } else { iter.seek(key) }.map(drop)
        }
        TraceOperation::MultiGet(asked) => {
            let asked = asked.iter().map(|(id, key)| Ok((family(id)?, key))).collect::<Result<Vec<_>>>()?;
            db.multi_get_across(&ReadOptions::default(), &asked)
                .into_iter()
                .try_for_each(|value| value.map(drop))
        }
    }
}

/// Operations that are due. A few wait at most: a trace may be longer than memory.
#[derive(Default)]
struct Queue {
    waiting: Mutex<(VecDeque<TraceRecord>, bool)>,
    changed: Condvar,
}

const LONGEST_QUEUE: usize = 1000;

impl Queue {
    fn put(&self, record: TraceRecord) {
        let mut waiting = self.waiting.lock();
        while waiting.0.len() >= LONGEST_QUEUE {
            self.changed.wait(&mut waiting);
        }
        waiting.0.push_back(record);
        self.changed.notify_all();
    }
    fn end(&self) {
        self.waiting.lock().1 = true;
        self.changed.notify_all();
    }
    fn take(&self) -> Option<TraceRecord> {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(record) = waiting.0.pop_front() {
                self.changed.notify_all();
                return Some(record);
            }
            if waiting.1 {
                return None;
            }
            self.changed.wait(&mut waiting);
        }
    }
}
