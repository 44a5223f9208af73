//! A thread that runs a benchmark, and what the threads of one run share.

use super::flags::Flags;
use super::key::{Key, KeyLayout};
use super::random::Random;
use super::rate_limit::RateLimit;
use super::stats::{Operation, ThreadStats};
use super::target::Target;
use super::value::ValueGenerator;
use ironstone::{Db, ReadOptions, Result, WriteOptions};
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use ironstone_vfs::{Clock, SystemClock};

/// How much of what one benchmark does.
#[derive(Clone, Debug)]
pub struct Amounts {
    /// How many keys are written to.
    pub num: u64,
    /// Reads of each thread.
    pub reads: u64,
    /// Writes of each thread; 0: `num`.
    pub writes: u64,
    /// Deletes of each thread.
    pub deletes: u64,
    /// Bytes of a key.
    pub key_size: usize,
    /// Bytes of a value.
    pub value_size: usize,
    /// Entries of a batch.
    pub batch_size: u64,
    /// Whether each write is synced.
    pub sync: bool,
}

impl Amounts {
    /// As `flags` ask for; benchmarks may change them.
    pub fn new(flags: &Flags) -> Self {
        let num = flags.num as u64; // Checked not to be negative.
        let or_num = |amount: i64| u64::try_from(amount).unwrap_or(num);
        Self {
            num,
            reads: or_num(flags.reads),
            writes: or_num(flags.writes),
            deletes: or_num(flags.deletes),
            key_size: flags.key_size as usize,
            value_size: flags.value_size as usize,
            batch_size: flags.batch_size as u64,
            sync: flags.sync,
        }
    }
    /// For benchmarks that read as well as write.
    pub fn reads_and_writes(&self, flags: &Flags) -> u64 {
        match (u64::try_from(flags.reads), u64::try_from(flags.writes)) {
            (Err(_), Err(_)) => self.num,
            (reads, writes) => reads.unwrap_or(0).max(writes.unwrap_or(0)),
        }
    }
}

/// What the threads of one run share.
pub struct Run<'a> {
    /// The flags.
    pub flags: &'a Flags,
    /// The database.
    pub target: &'a Target,
    /// How much to do.
    pub amounts: Amounts,
    /// How to read.
    pub read_options: ReadOptions,
    /// How to write.
    pub write_options: WriteOptions,
    /// Bytes per second that may be written.
    pub write_limit: Option<RateLimit>,
    /// Operations per second that may be read.
    pub read_limit: Option<RateLimit>,
    /// What time it is.
    pub clock: Arc<SystemClock>,
    /// Where random orders start that all threads agree on.
    pub seed: u64,
    /// How many threads there are.
    pub threads: usize,
    /// How many of them have ended. Relaxed: the writer beside them only needs to see it soon.
    pub ended: AtomicUsize,
    /// One of them failed. Relaxed: the others only need to see it soon.
    pub failed: AtomicBool,
}

/// One thread of a run.
pub struct Worker<'a> {
    /// What all share.
    pub run: &'a Run<'a>,
    /// Which one it is, from 0.
    pub index: usize,
    /// Its own random numbers.
    pub random: Random,
    /// What it counts.
    pub stats: ThreadStats,
}

impl<'a> Worker<'a> {
    /// The database.
    pub fn db(&self) -> &'a Db {
        self.run.target.db()
    }
    /// A key to fill.
    pub fn key(&self) -> Key {
        KeyLayout::new(self.run.flags, self.run.amounts.key_size).key()
    }
    /// Values to write.
    pub fn values(&self) -> Result<ValueGenerator> {
        ValueGenerator::new(self.run.flags, self.run.amounts.value_size)
    }
    /// Up to `operations`, or with `--duration` as many as it takes.
    pub fn pace(&self, operations: u64) -> Pace<'a> {
        Pace::new(self.run, operations, self.run.flags.duration.max(0) as u64)
    }
    /// Up to `operations`, whatever `--duration` says.
    pub fn untimed_pace(&self, operations: u64) -> Pace<'a> {
        Pace::new(self.run, operations, 0)
    }
    /// `count` operations are done.
    #[inline]
    pub fn finished(&mut self, count: u64, operation: Operation) {
        self.stats.finished(count, operation, self.run.target.db());
    }
    /// `reads` reads are done: now and then waits for the read rate.
    #[inline]
    pub fn hold_reads(&self, reads: u64, every: u64) {
        if let Some(limit) = &self.run.read_limit
            && reads % every == every - 1
        {
            limit.request(every);
        }
    }
    /// A random number below `--num`; with `--read_random_exp_range` some are likelier than others.
    #[inline]
    pub fn random_number(&mut self) -> u64 {
        let num = self.run.flags.num as u64;
        let range = self.run.flags.read_random_exp_range;
        if range == 0.0 {
            return self.random.below(num);
        }
        let exponential = (-self.random.fraction() * range).exp();
        // Likely numbers lie close together; the factor spreads them.
        ((exponential * num as f64) as u64).wrapping_mul(0x5bd1_e995) % num.max(1)
    }
}

/// Says when a benchmark is over.
pub struct Pace<'a> {
    run: &'a Run<'a>,
    done: u64,
    most: u64,
    /// In nanoseconds of the run's clock.
    deadline: Option<u64>,
    until_check: i64,
}

impl<'a> Pace<'a> {
    fn new(run: &'a Run<'a>, most: u64, seconds: u64) -> Self {
        let deadline = (seconds > 0).then(|| run.clock.monotonic_nanos() + seconds * 1_000_000_000);
        let until_check = i64::from(run.flags.ops_between_duration_checks);
        Self { run, done: 0, most, deadline, until_check }
    }

    /// Whether there are `count` more operations to do.
    #[inline]
    pub fn goes_on(&mut self, count: u64) -> bool {
        self.done += count;
        self.until_check -= count as i64;
        if self.until_check < 0 && self.is_over() {
            return false;
        }
        self.deadline.is_some() || self.done <= self.most
    }

    #[cold]
    fn is_over(&mut self) -> bool {
        self.until_check = i64::from(self.run.flags.ops_between_duration_checks);
        let late = self.deadline.is_some_and(|deadline| self.run.clock.monotonic_nanos() >= deadline);
        late || self.run.failed.load(Relaxed)
    }
}
