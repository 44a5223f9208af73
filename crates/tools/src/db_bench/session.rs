//! One run of db_bench: opens the database, runs one benchmark after the other, prints their lines.

use super::benchmark::{Action, Benchmark, Method};
use super::engine_options::EngineOptions;
use super::environment;
use super::flags::Flags;
use super::random::Random;
use super::rate_limit::RateLimit;
use super::reporter::Reporter;
use super::stats::{Repetitions, Reporting, Summary, ThreadStats};
use super::target::{Target, default_path};
use super::worker::{Run, Worker};
use ironstone::perf::{self, PerfLevel};
use ironstone::{
    BlockCacheTraceOptions, CompactFilesOptions, CompactRangeOptions, Db, Error, FileNumber, FileTraceReader,
    FileTraceWriter, FlushOptions, ReadOptions, ReplayOptions, Replayer, Result, TraceOptions, WriteOptions,
};
use ironstone_base::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use ironstone_base::sync::{Arc, thread};
use ironstone_vfs::{Clock, SystemClock};
use std::path::PathBuf;
use std::sync::Barrier;

/// A run.
pub struct Session {
    flags: Flags,
    options: EngineOptions,
    path: PathBuf,
    clock: Arc<SystemClock>,
    seed: u64,
    /// Each thread of each benchmark has random numbers of its own.
    threads_started: u64,
    /// `None` only while it is being replaced.
    target: Option<Target>,
    /// What benchmarks ask is traced.
    is_traced: bool,
}

impl Session {
    /// Prepares a run and opens the database, which is emptied first unless it is to be kept.
    pub fn start(flags: Flags) -> Result<Self> {
        let clock = Arc::new(SystemClock::new());
        let options = EngineOptions::new(&flags)?;
        for note in &options.notes {
            eprintln!("WARNING: {note}");
        }
        let seed = match flags.seed {
            0 => {
                let seed = clock.now_micros();
                println!("Set seed to {seed} because --seed was 0");
                seed
            }
            seed => seed as u64,
        };
        let path = if flags.db.is_empty() { default_path() } else { PathBuf::from(&flags.db) };
        let mut session =
            Self { flags, options, path, clock, seed, threads_started: 0, target: None, is_traced: false };
        if !session.flags.use_existing_db {
            Db::destroy(&session.options.db, &session.path)?;
        }
        session.open()?;
        Ok(session)
    }

    /// Runs the benchmarks, prints the statistics if they are wanted, and closes the database.
    pub fn run(mut self) -> Result<()> {
        environment::print(&self.clock);
        print!("{}", environment::header(&self.flags));
        let names = self.flags.benchmarks.clone();
        let names: Vec<&str> = names.split(',').filter(|name| !name.is_empty()).collect();
        // All names are looked at first: a wrong one at the end should not cost an hour.
        names.iter().try_for_each(|name| Benchmark::parse(name, &self.flags).map(drop))?;
        self.is_traced = !self.flags.trace_file.is_empty() && !names.contains(&"replay");
        self.start_trace()?;
        for name in names {
            let benchmark = Benchmark::parse(name, &self.flags)?;
            self.run_benchmark(&benchmark)?;
        }
        if let Some(statistics) = &self.options.db.statistics {
            println!("STATISTICS:\n{statistics}");
        }
        self.end_trace()?;
        self.target.take().map_or(Ok(()), Target::close)
    }

    fn start_trace(&self) -> Result<()> {
        self.start_block_cache_trace()?;
        if !self.is_traced {
            return Ok(());
        }
        let writer = FileTraceWriter::create(&*self.options.db.env.fs, &self.flags.trace_file)?;
        self.target().db().start_trace(&TraceOptions::default(), Box::new(writer))?;
        println!("Tracing the workload to: [{}]", self.flags.trace_file);
        Ok(())
    }
    fn start_block_cache_trace(&self) -> Result<()> {
        let flags = &self.flags;
        if flags.block_cache_trace_file.is_empty() {
            return Ok(());
        }
        let not_below_0 = |name: &str, value: i64| {
            let message = || Error::invalid_argument(format!("--{name} must not be below 0"));
            u64::try_from(value).map_err(|_| message())
        };
        let frequency = i64::from(flags.block_cache_trace_sampling_frequency);
        let size = flags.block_cache_trace_max_trace_file_size_in_bytes;
        let options = BlockCacheTraceOptions {
            sampling_frequency: not_below_0("block_cache_trace_sampling_frequency", frequency)?,
            max_trace_file_size: not_below_0("block_cache_trace_max_trace_file_size_in_bytes", size)?,
        };
        let writer = FileTraceWriter::create(&*self.options.db.env.fs, &flags.block_cache_trace_file)?;
        self.target().db().start_block_cache_trace(&options, Box::new(writer))?;
        println!("Tracing block cache accesses to: [{}]", flags.block_cache_trace_file);
        Ok(())
    }
    fn end_trace(&self) -> Result<()> {
        self.target().db().end_block_cache_trace()?;
        if self.is_traced { self.target().db().end_trace() } else { Ok(()) }
    }

    /// Replays the trace and prints a line.
    fn replay(&self, name: &str) -> Result<()> {
        let flags = &self.flags;
        if flags.trace_file.is_empty() {
            return Err(Error::invalid_argument(format!("{name} needs --trace_file")));
        }
        let reader = FileTraceReader::open(&*self.options.db.env.fs, &flags.trace_file)?;
        let target = self.target();
        let families: Vec<_> = target.families().iter().collect();
        let fast_forward = match flags.trace_replay_fast_forward {
            0.0 => f64::INFINITY,
            times => times,
        };
        let threads = usize::try_from(flags.trace_replay_threads).unwrap_or(1);
        let started = self.clock.monotonic_nanos();
        let report = Replayer::new(target.db(), &families, Box::new(reader))?
            .replay(&ReplayOptions { threads, fast_forward })?;
        let seconds = (self.clock.monotonic_nanos() - started) as f64 / 1e9;
        if let Some(failure) = &report.first_failure {
            eprintln!("{} operations of the trace failed, the first one: {failure}", report.failed);
        }
        let micros = seconds * 1e6 / (report.done.max(1)) as f64;
        println!("{name:<12} : {micros:11.3} micros/op {seconds:.3} seconds {} operations;", report.done);
        Ok(())
    }

    fn open(&mut self) -> Result<()> {
        let started = self.clock.monotonic_nanos();
        self.target = Some(Target::open(&self.flags, &self.options, &self.path)?);
        if self.flags.report_open_timing {
            println!("OpenDb:     {:.3} milliseconds", (self.clock.monotonic_nanos() - started) as f64 / 1e6);
        }
        Ok(())
    }

    fn target(&self) -> &Target {
        self.target.as_ref().expect("open between benchmarks")
    }

    fn run_benchmark(&mut self, benchmark: &Benchmark) -> Result<()> {
        if benchmark.fresh {
            if self.flags.use_existing_db {
                println!("{:<12} : skipped (--use_existing_db is true)", benchmark.name);
                return Ok(());
            }
            self.end_trace()?;
            self.target.take().map_or(Ok(()), Target::close)?;
            Db::destroy(&self.options.db, &self.path)?;
            self.open()?;
            self.start_trace()?; // As in RocksDB: the trace begins anew.
        }
        match benchmark.action {
            Action::Timed(method) => self.run_timed(benchmark, method),
            Action::Flush => {
                let families: Vec<_> = self.target().families().iter().collect();
                self.target().db().flush_cfs(&FlushOptions::default(), &families)?;
                println!("flush memtable");
                Ok(())
            }
            Action::CompactAll => {
                let options = CompactRangeOptions {
                    max_subcompactions: usize::try_from(self.flags.subcompactions).ok(),
                    ..Default::default()
                };
                let (db, families) = (self.target().db(), self.target().families());
                families.iter().try_for_each(|family| db.compact_range(&options, family, None, None))
            }
            Action::CompactLevel(level) => self.compact_level(level),
            Action::WaitForCompaction => {
                println!("waitforcompaction({}): started", self.path.display());
                self.target().db().wait_for_compact()?;
                println!("waitforcompaction({}): finished", self.path.display());
                Ok(())
            }
            Action::Property(name) => {
                println!("\n{}", self.property(name));
                Ok(())
            }
            Action::Properties(names) => {
                names.iter().for_each(|name| println!("{name}: {}", self.property(name)));
                Ok(())
            }
            Action::Replay => self.replay(&benchmark.name),
            Action::ResetStatistics => {
                if let Some(statistics) = &self.options.db.statistics {
                    statistics.reset();
                }
                Ok(())
            }
        }
    }

    fn property(&self, name: &str) -> String {
        self.target().db().property(name).unwrap_or_else(|| "(failed)".to_owned())
    }

    fn run_timed(&mut self, benchmark: &Benchmark, method: Method) -> Result<()> {
        println!("DB path: [{}]", self.path.display());
        if benchmark.warm_ups > 0 {
            println!("Warming up benchmark by running {} times", benchmark.warm_ups);
        }
        for _ in 0..benchmark.warm_ups {
            self.run_once(benchmark, method)?;
        }
        if benchmark.repetitions > 1 {
            println!("Running benchmark for {} times", benchmark.repetitions);
        }
        let mut repetitions = Repetitions::default();
        for _ in 0..benchmark.repetitions {
            repetitions.add(&self.run_once(benchmark, method)?);
            print!("{}", repetitions.report(&benchmark.name, self.flags.confidence_interval_only));
        }
        print!("{}", repetitions.report_final(&benchmark.name));
        Ok(())
    }

    /// Runs all threads of a benchmark and prints its line.
    fn run_once(&mut self, benchmark: &Benchmark, method: Method) -> Result<Summary> {
        let perf_level = u8::try_from(self.flags.perf_level).ok().and_then(PerfLevel::from_number);
        let perf_level = perf_level.ok_or_else(|| {
            Error::invalid_argument(format!("perf_level: {} is not from 1 to 6", self.flags.perf_level))
        })?;
        let first_seed = self.seed.wrapping_add(self.threads_started);
        self.threads_started += benchmark.threads as u64;
        let flags = &self.flags;
        let reporting = Reporting::new(flags);
        let file_reports = match u64::try_from(flags.report_interval_seconds).unwrap_or(0) {
            0 => None,
            seconds => {
                let fs = &*self.options.db.env.fs;
                Some(Reporter::start(fs, flags.report_file.as_ref(), seconds, &self.clock)?)
            }
        };
        let run = Run {
            flags,
            target: self.target(),
            amounts: benchmark.amounts.clone(),
            read_options: read_options(flags),
            write_options: WriteOptions {
                sync: benchmark.amounts.sync,
                disable_wal: flags.disable_wal,
                protection_bytes_per_key: flags.write_batch_protection_bytes_per_key as usize,
                ..Default::default()
            },
            write_limit: RateLimit::new(flags.benchmark_write_rate_limit, &self.clock),
            read_limit: RateLimit::new(flags.benchmark_read_rate_limit, &self.clock),
            clock: Arc::clone(&self.clock),
            seed: self.seed,
            threads: benchmark.threads,
            ended: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
        };
        let barrier = Barrier::new(benchmark.threads);
        let body = |index: usize| {
            perf::set_level(perf_level);
            barrier.wait();
            let reporter = file_reports.as_ref().map(|reporting| reporting.reporter());
            let stats = ThreadStats::start(&reporting, &run.clock, reporter, index);
            let random = Random::new(first_seed.wrapping_add(index as u64 + 1));
            let mut worker = Worker { run: &run, index, random, stats };
            let result = method(&mut worker);
            if perf_level > PerfLevel::Disable {
                worker.stats.add_message(&format!("PERF_CONTEXT:\n{}", perf::report(false)));
            }
            worker.stats.stop();
            run.failed.fetch_or(result.is_err(), Relaxed);
            run.ended.fetch_add(1, Relaxed);
            result.map(|()| worker.stats)
        };
        let results: Vec<Result<ThreadStats>> = thread::scope(|scope| {
            let body = &body;
            let start = |index| {
                let builder = thread::Builder::new().name(format!("bench {index}"));
                builder.spawn_scoped(scope, move || body(index)).expect("the system starts a thread")
            };
            let threads: Vec<_> = (0..benchmark.threads).map(start).collect();
            threads.into_iter().map(|thread| thread.join().expect("benchmarks return errors")).collect()
        });
        let summary = Summary::new(results.into_iter().collect::<Result<_>>()?);
        print!("{}", summary.report(&benchmark.name));
        Ok(summary)
    }

    /// Compacts the files of level 0, or of the first level below it that has some, into the next
    /// level that has some.
    fn compact_level(&self, from: usize) -> Result<()> {
        let db = self.target().db();
        for _ in 0..COMPACTION_ATTEMPTS {
            let Some((level, files, next_level)) = self.files_to_compact(from) else { return Ok(()) };
            println!("compact{from} found {} files to compact from L{level} to L{next_level}", files.len());
            let family = db.default_column_family();
            match db.compact_files(&CompactFilesOptions::default(), family, &files, next_level) {
                Ok(()) => return Ok(()),
                // An automatic compaction has taken one of the files; afterwards there are others.
                Err(error) => eprintln!("compact{from} failed: {error}"),
            }
            db.wait_for_compact()?;
        }
        Err(Error::incomplete(format!("compact{from}: automatic compactions always come first")))
    }

    /// The level, its files, and the next level.
    fn files_to_compact(&self, from: usize) -> Option<(usize, Vec<FileNumber>, usize)> {
        let files = self.target().db().live_files();
        let files = || files.iter().filter(|file| file.column_family == "default");
        let is_wanted = |level: usize| if from == 0 { level == 0 } else { level > 0 };
        let Some(level) = files().map(|file| file.level).filter(|&level| is_wanted(level)).min() else {
            println!("compact{from} found 0 files to compact");
            return None;
        };
        let Some(next_level) = files().map(|file| file.level).filter(|&other| other > level).min() else {
            println!("compact{from} found no data beyond L{level}");
            return None;
        };
        let numbers = files().filter(|file| file.level == level).map(|file| file.number).collect();
        Some((level, numbers, next_level))
    }
}

/// How often `compact0` and `compact1` try against automatic compactions.
const COMPACTION_ATTEMPTS: usize = 100;

fn read_options(flags: &Flags) -> ReadOptions {
    let default = ReadOptions::default();
    ReadOptions {
        verify_checksums: flags.verify_checksum,
        total_order_seek: flags.total_order_seek,
        auto_prefix_mode: flags.auto_prefix_mode,
        prefix_same_as_start: flags.prefix_same_as_start,
        tailing: flags.use_tailing_iterator,
        readahead_size: flags.readahead_size.max(0) as usize,
        async_io: flags.async_io || default.async_io,
        ..default
    }
}
