//! `ironstone demo`: loads TPC-H rows and reads them back in every way, comparing each with the same
//! row made anew.

use super::DemoArguments;
use super::lineitem::LineItems;
use super::progress::Progress;
use crate::db_bench::random::Random;
use comfy_table::presets::ASCII_FULL_CONDENSED;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use ironstone::{Db, Error, FilterPolicy, Options, ReadOptions, Result, WriteBatch, WriteOptions};
use ironstone_base::hash::xxh3_64;
use ironstone_base::sync::Arc;
use ironstone_vfs::{Clock, FileSystem, SystemClock, os::OsFileSystem};
use std::path::PathBuf;
use std::process::ExitCode;

const DEFAULT_ROWS: u64 = 1_000_000;
const ROWS_PER_BATCH: u32 = 100;
const MIB: f64 = 1_048_576.0;

/// What a set of rows comes to, in whatever order they are seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Digest {
    rows: u64,
    bytes: u64,
    /// Of the hashes of all rows, wrapping.
    sum: u64,
}

impl Digest {
    fn add(&mut self, key: &[u8], value: &[u8], scratch: &mut Vec<u8>) {
        scratch.clear();
        scratch.extend_from_slice(key);
        scratch.extend_from_slice(value);
        self.rows += 1;
        self.bytes += scratch.len() as u64;
        self.sum = self.sum.wrapping_add(xxh3_64(scratch));
    }
}

/// What the rows say when they are made anew.
struct Expected {
    all: Digest,
    /// Random rows in random order.
    sample: Vec<(String, String)>,
    /// A range of keys, the end not in it, and what is in it.
    range: (String, String),
    in_range: Digest,
}

/// A line of the final table.
struct Phase {
    name: &'static str,
    digest: Digest,
    seconds: f64,
    remark: String,
}

/// The demonstration under way.
struct Demo {
    items: LineItems,
    reads: u64,
    dir: PathBuf,
    clock: Arc<SystemClock>,
    phases: Vec<Phase>,
    differences: Vec<String>,
    /// The database in `dir` was made by this demonstration.
    created: bool,
}

/// Runs the demonstration; the exit code says whether every byte was right.
pub fn run(arguments: &DemoArguments) -> Result<ExitCode> {
    let items = match (arguments.scale, arguments.rows) {
        (Some(scale), _) if !(scale > 0.0 && scale <= 100_000.0) => {
            return Err(Error::invalid_argument(format!("--scale {scale}: not above 0, or too large")));
        }
        (Some(scale), _) => LineItems::of_scale(scale),
        (None, rows) => LineItems::first(rows.unwrap_or(DEFAULT_ROWS)),
    };
    let clock = Arc::new(SystemClock::new());
    let temporary = || std::env::temp_dir().join(format!("ironstone-demo-{}", std::process::id()));
    let dir = arguments.dir.clone().unwrap_or_else(temporary);
    let is_new = !OsFileSystem::new().exists(&dir)?;
    let mut demo = Demo::new(items, arguments.reads, dir, clock);
    println!(
        "ironstone demo: about {} rows of TPC-H lineitem into {}",
        items.expected_rows(),
        demo.dir.display()
    );
    let outcome = demo.run_phases();
    if demo.created && !arguments.keep {
        Db::destroy(&options().db, &demo.dir)?;
        if is_new && OsFileSystem::new().exists(&demo.dir)? {
            OsFileSystem::new().remove_dir(&demo.dir)?;
        }
    }
    outcome?;
    println!("{}", demo.table());
    if arguments.keep {
        println!(
            "The database is kept. Look at it: ironstone stats {0}; ironstone scan {0} --limit 3",
            demo.dir.display()
        );
    }
    if demo.differences.is_empty() {
        println!("Everything that was read is what was written.");
        return Ok(ExitCode::SUCCESS);
    }
    demo.differences.iter().for_each(|difference| eprintln!("DIFFERENT: {difference}"));
    Ok(ExitCode::FAILURE)
}

fn options() -> Options {
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.db.error_if_exists = true;
    // Small enough for a million rows to be flushed and compacted many times.
    options.cf.write_buffer_size = 8 << 20;
    options.cf.target_file_size_base = 8 << 20;
    options.cf.max_bytes_for_level_base = 32 << 20;
    options.cf.table.filter_policy = Some(FilterPolicy::bloom(10.0));
    options
}

impl Demo {
    fn new(items: LineItems, reads: u64, dir: PathBuf, clock: Arc<SystemClock>) -> Self {
        Self { items, reads, dir, clock, phases: Vec::new(), differences: Vec::new(), created: false }
    }

    fn run_phases(&mut self) -> Result<()> {
        let db = Db::open(&options(), &self.dir)?; // Refuses a database that exists.
        self.created = true;
        let written = self.load(&db)?;
        let expected = self.make_anew(written)?;
        self.read_random(&db, &expected)?;
        self.scan_range(&db, &expected)?;
        let db = self.reopen(db)?;
        self.verify(&db, &expected)?;
        db.close()
    }

    fn load(&mut self, db: &Db) -> Result<Digest> {
        let mut written = Digest::default();
        let mut batch = WriteBatch::new();
        let mut rows = self.items.rows();
        let mut next = rows.next(); // The first one takes a second: it makes the text that all use.
        let mut progress = Progress::start("load", self.items.expected_rows(), &self.clock);
        while let Some(row) = next {
            batch.put(&row.key, &row.value);
            written.rows += 1;
            written.bytes += (row.key.len() + row.value.len()) as u64;
            rows.recycle(row);
            next = rows.next();
            if batch.count() == ROWS_PER_BATCH {
                progress.timed(|| db.write(&batch, &WriteOptions::default()))?;
                batch.clear();
                progress.update(written.rows, db);
            }
        }
        if !batch.is_empty() {
            db.write(&batch, &WriteOptions::default())?;
        }
        let stalled = progress.stalled_seconds();
        let seconds = progress.finish();
        self.end_phase("load", written, seconds, format!("writes held up {stalled:.2} s"));
        Ok(written)
    }

    /// Makes all rows anew, and picks the ones to read back.
    fn make_anew(&mut self, written: Digest) -> Result<Expected> {
        let started = self.clock.monotonic_nanos();
        let mut random = Random::new(301);
        let mut picks: Vec<u64> = (0..self.reads).map(|_| random.below(written.rows)).collect();
        picks.sort_unstable();
        let range_ends = [written.rows / 5, written.rows / 4];
        let mut bounds: Vec<String> = self
            .items
            .rows()
            .zip(0..)
            .filter(|(_, at)| range_ends.contains(at))
            .take(2)
            .map(|(row, _)| row.key)
            .collect();
        bounds.sort();
        bounds.resize(2, String::new()); // No rows, no range.
        let [begin, end] = <[String; 2]>::try_from(bounds).expect("resized to two");

        let (mut all, mut in_range) = (Digest::default(), Digest::default());
        let mut sample = Vec::with_capacity(picks.len());
        let mut picks = picks.into_iter().peekable();
        let mut scratch = Vec::new();
        let mut rows = self.items.rows();
        let mut at = 0;
        while let Some(row) = rows.next() {
            if !row.superseded {
                all.add(row.key.as_bytes(), row.value.as_bytes(), &mut scratch);
                if begin <= row.key && row.key < end {
                    in_range.add(row.key.as_bytes(), row.value.as_bytes(), &mut scratch);
                }
            }
            // A pick that fell on a superseded row goes to the next one.
            while !row.superseded && picks.next_if(|&pick| pick <= at).is_some() {
                sample.push((row.key.clone(), row.value.clone()));
            }
            at += 1;
            rows.recycle(row);
        }
        random.shuffle(&mut sample);
        let seconds = self.seconds_since(started);
        let remark = format!("{} keys have more than one row", written.rows - all.rows);
        self.end_phase("make anew", all, seconds, remark);
        Ok(Expected { all, sample, range: (begin, end), in_range })
    }

    fn read_random(&mut self, db: &Db, expected: &Expected) -> Result<()> {
        let mut progress = Progress::start("random reads", expected.sample.len() as u64, &self.clock);
        let mut read = Digest::default();
        let mut wrong = 0u64;
        for (key, value) in &expected.sample {
            let found = db.get(key)?;
            if found.as_deref() != Some(value.as_bytes()) {
                wrong += 1;
                if wrong == 1 {
                    let found = found
                        .map_or("nothing".to_owned(), |found| String::from_utf8_lossy(&found).into_owned());
                    self.differences.push(format!("key {key} should hold {value}, but holds {found}"));
                }
            }
            read.rows += 1;
            read.bytes += (key.len() + value.len()) as u64;
            if read.rows % 1024 == 0 {
                progress.update(read.rows, db);
            }
        }
        if wrong > 1 {
            self.differences.push(format!("{wrong} of {} random reads in all", read.rows));
        }
        let seconds = progress.finish();
        self.end_phase("random reads", read, seconds, format!("{wrong} wrong"));
        Ok(())
    }

    fn scan_range(&mut self, db: &Db, expected: &Expected) -> Result<()> {
        let (begin, end) = &expected.range;
        let started = self.clock.monotonic_nanos();
        let options =
            ReadOptions { iterate_upper_bound: Some(end.clone().into_bytes()), ..ReadOptions::default() };
        let mut iter = db.iter_cf(&options, db.default_column_family())?;
        let (mut seen, mut scratch) = (Digest::default(), Vec::new());
        let mut more = iter.seek(begin)?;
        while let (true, Some(key), Some(value)) = (more, iter.key(), iter.value()) {
            seen.add(key, value, &mut scratch);
            more = iter.next()?;
        }
        let seconds = self.seconds_since(started);
        self.compare("range scan", seen, expected.in_range);
        self.end_phase("range scan", seen, seconds, format!("{begin} up to {end}"));
        Ok(())
    }

    fn reopen(&mut self, db: Db) -> Result<Db> {
        let started = self.clock.monotonic_nanos();
        db.close()?;
        drop(db);
        let mut options = options();
        options.db.error_if_exists = false;
        options.db.create_if_missing = false;
        let db = Db::open(&options, &self.dir)?;
        let seconds = self.seconds_since(started);
        self.end_phase("reopen", Digest::default(), seconds, String::new());
        Ok(db)
    }

    /// Reads every row in order.
    fn verify(&mut self, db: &Db, expected: &Expected) -> Result<()> {
        let mut progress = Progress::start("verify", expected.all.rows, &self.clock);
        let options = ReadOptions { fill_cache: false, ..ReadOptions::default() };
        let mut iter = db.iter_cf(&options, db.default_column_family())?;
        let (mut seen, mut scratch) = (Digest::default(), Vec::new());
        let mut more = iter.seek_to_first()?;
        while let (true, Some(key), Some(value)) = (more, iter.key(), iter.value()) {
            seen.add(key, value, &mut scratch);
            if seen.rows % 4096 == 0 {
                progress.update(seen.rows, db);
            }
            more = iter.next()?;
        }
        let seconds = progress.finish();
        self.compare("verify", seen, expected.all);
        self.end_phase("verify", seen, seconds, format!("checksum {:016x}", seen.sum));
        Ok(())
    }

    fn compare(&mut self, what: &str, seen: Digest, expected: Digest) {
        if seen != expected {
            self.differences.push(format!(
                "{what}: {} rows of {} bytes with checksum {:016x}, where {} rows of {} bytes with {:016x} belong",
                seen.rows, seen.bytes, seen.sum, expected.rows, expected.bytes, expected.sum
            ));
        }
    }

    fn seconds_since(&self, started: u64) -> f64 {
        (self.clock.monotonic_nanos() - started) as f64 / 1e9
    }

    fn end_phase(&mut self, name: &'static str, digest: Digest, seconds: f64, remark: String) {
        eprintln!("{name:<12} done: {} rows in {seconds:.2} s", digest.rows);
        self.phases.push(Phase { name, digest, seconds, remark });
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(ASCII_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(["phase", "rows", "seconds", "rows/s", "MB/s", ""]);
        for phase in &self.phases {
            let rate = |amount: f64| if phase.seconds > 0.0 { amount / phase.seconds } else { 0.0 };
            let some = |text: String| if phase.digest.rows > 0 { text } else { String::new() };
            table.add_row([
                phase.name.to_owned(),
                some(phase.digest.rows.to_string()),
                format!("{:.2}", phase.seconds),
                some(format!("{:.0}", rate(phase.digest.rows as f64))),
                some(format!("{:.1}", rate(phase.digest.bytes as f64 / MIB))),
                phase.remark.clone(),
            ]);
        }
        for column in table.column_iter_mut().skip(1).take(4) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn arguments(dir: &Path) -> DemoArguments {
        DemoArguments { dir: Some(dir.to_owned()), rows: Some(3000), scale: None, reads: 500, keep: true }
    }

    #[test]
    fn a_small_demonstration_succeeds_and_does_not_touch_a_database_that_is_there() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("demo");
        assert_eq!(run(&arguments(&dir)).unwrap(), ExitCode::SUCCESS);
        assert!(run(&DemoArguments { keep: false, ..arguments(&dir) }).is_err());
        assert!(dir.join("CURRENT").exists());
    }

    #[test]
    fn a_changed_row_is_noticed() {
        let parent = tempfile::tempdir().unwrap();
        let clock = Arc::new(SystemClock::new());
        let dir = parent.path().join("demo");
        let mut demo = Demo::new(LineItems::first(2000), 10, dir, clock);
        let db = Db::open(&options(), &demo.dir).unwrap();
        let written = demo.load(&db).unwrap();
        let expected = demo.make_anew(written).unwrap();
        db.put(&expected.sample[0].0, b"something else").unwrap();
        demo.read_random(&db, &expected).unwrap();
        demo.verify(&db, &expected).unwrap();
        assert!(demo.differences.iter().any(|difference| difference.contains("something else")));
        assert!(demo.differences.iter().any(|difference| difference.starts_with("verify")));
    }
}
