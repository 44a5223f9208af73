//! What a thread counts while it runs a benchmark, and the lines that come of it.

use super::flags::Flags;
use super::reporter::Reporter;
use ironstone::Db;
use ironstone::statistics::HistogramCounts;
use ironstone_base::sync::Arc;
use ironstone_vfs::{Clock, SystemClock};
use std::fmt::Write;
use std::io::{IsTerminal, stderr};

/// What is timed together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Operation {
    Read,
    Write,
    Delete,
    Seek,
    Update,
    Merge,
    Compress,
    Uncompress,
    Crc,
    Hash,
    Other,
}

impl Operation {
    /// How many there are.
    const COUNT: usize = Self::Other as usize + 1;
    const NAMES: [&str; Self::COUNT] =
        ["read", "write", "delete", "seek", "update", "merge", "compress", "uncompress", "crc", "hash", "op"];
}

/// How a thread reports while it runs.
#[derive(Clone, Debug)]
pub struct Reporting {
    /// `--histogram`.
    pub histogram: bool,
    /// `--slow_usecs`.
    pub slow_micros: u64,
    /// `--stats_interval`; 0: rarer and rarer.
    pub interval: u64,
    /// `--stats_interval_seconds`.
    pub interval_seconds: u64,
    /// `--stats_per_interval`.
    pub engine_state: bool,
    /// `--progress_reports`.
    pub progress: bool,
}

impl Reporting {
    /// As `flags` ask for.
    pub fn new(flags: &Flags) -> Self {
        Self {
            histogram: flags.histogram,
            slow_micros: flags.slow_usecs,
            interval: flags.stats_interval.max(0) as u64,
            interval_seconds: flags.stats_interval_seconds.max(0) as u64,
            engine_state: flags.stats_per_interval > 0,
            // Without --stats_interval the lines overwrite each other, which only a terminal shows.
            progress: flags.progress_reports && (flags.stats_interval > 0 || stderr().is_terminal()),
        }
    }
}

/// What one thread counts.
pub struct ThreadStats {
    reporting: Reporting,
    clock: Arc<SystemClock>,
    reporter: Option<Arc<Reporter>>,
    thread: usize,
    started: u64,
    finished: u64,
    done: u64,
    bytes: u64,
    next_report: u64,
    last_operation: u64,
    last_report: (u64, u64),
    histograms: [Option<Box<HistogramCounts>>; Operation::COUNT],
    message: String,
    /// This thread only keeps the others company.
    left_out: bool,
}

impl ThreadStats {
    /// Starts to count. Times are in nanoseconds of `clock`.
    pub fn start(
        reporting: &Reporting,
        clock: &Arc<SystemClock>,
        reporter: Option<Arc<Reporter>>,
        thread: usize,
    ) -> Self {
        let now = clock.monotonic_nanos();
        let first_report = match reporting.interval {
            0 => 100,
            interval => interval,
        };
        Self {
            reporting: reporting.clone(),
            clock: Arc::clone(clock),
            reporter,
            thread,
            started: now,
            finished: now,
            done: 0,
            bytes: 0,
            next_report: if reporting.progress { first_report } else { u64::MAX },
            last_operation: now,
            last_report: (now, 0),
            histograms: Default::default(),
            message: String::new(),
            left_out: false,
        }
    }

    /// `count` operations are done. The clock is read only if times are wanted.
    #[inline]
    pub fn finished(&mut self, count: u64, operation: Operation, db: &Db) {
        if let Some(reporter) = &self.reporter {
            reporter.add(count);
        }
        if self.reporting.histogram {
            self.time(operation);
        }
        self.done += count;
        if self.done >= self.next_report {
            self.report_progress(db);
        }
    }

    fn time(&mut self, operation: Operation) {
        let now = self.clock.monotonic_nanos();
        let micros = (now - self.last_operation) / 1000;
        self.last_operation = now;
        self.histograms[operation as usize].get_or_insert_default().add(micros);
        if micros >= self.reporting.slow_micros && self.reporting.interval == 0 {
            eprint!("long op: {micros} micros{:30}\r", "");
        }
    }

    /// What was done up to now, a wait for instance, belongs to no operation.
    pub fn forget_time(&mut self) {
        if self.reporting.histogram {
            self.last_operation = self.clock.monotonic_nanos();
        }
    }

    #[cold]
    fn report_progress(&mut self, db: &Db) {
        if self.reporting.interval == 0 {
            let step = match self.next_report {
                0..1_000 => 100,
                1_000..5_000 => 500,
                5_000..10_000 => 1_000,
                10_000..50_000 => 5_000,
                50_000..100_000 => 10_000,
                100_000..500_000 => 50_000,
                _ => 100_000,
            };
            self.next_report += step;
            eprint!("... finished {} ops{:30}\r", self.done, "");
            return;
        }
        self.next_report += self.reporting.interval;
        let now = self.clock.monotonic_nanos();
        let (last_time, last_done) = self.last_report;
        let seconds = (now - last_time) as f64 / 1e9;
        if seconds < self.reporting.interval_seconds as f64 {
            return;
        }
        let total_seconds = (now - self.started) as f64 / 1e9;
        let here = self.done - last_done;
        eprintln!(
            "{} ... thread {}: ({here},{}) ops and ({:.1},{:.1}) ops/second in ({seconds:.6},{total_seconds:.6}) seconds",
            date_and_time(self.clock.now_seconds()),
            self.thread,
            self.done,
            here as f64 / seconds,
            self.done as f64 / total_seconds,
        );
        if self.thread == 0 && self.reporting.engine_state {
            let property = |name: &str| db.property(name).unwrap_or_default();
            eprint!("{}", property("rocksdb.stats"));
            eprintln!("num-running-compactions: {}", property("rocksdb.num-running-compactions"));
            eprintln!("num-running-flushes: {}\n", property("rocksdb.num-running-flushes"));
        }
        self.last_report = (now, self.done);
    }

    /// Adds bytes that were read or written.
    pub fn add_bytes(&mut self, bytes: u64) {
        self.bytes += bytes;
    }
    /// Adds words to the end of the line.
    pub fn add_message(&mut self, message: &str) {
        append_word(&mut self.message, message);
    }
    /// Leaves this thread out of the totals.
    pub fn leave_out(&mut self) {
        self.left_out = true;
    }
    /// Stops the clock.
    pub fn stop(&mut self) {
        self.finished = self.clock.monotonic_nanos();
    }
}

/// What all threads of a benchmark counted.
pub struct Summary {
    started: u64,
    finished: u64,
    thread_nanos: u64,
    done: u64,
    bytes: u64,
    histograms: [Option<Box<HistogramCounts>>; Operation::COUNT],
    message: String,
}

impl Summary {
    /// Adds up the threads; of their messages the first is taken.
    pub fn new(threads: Vec<ThreadStats>) -> Self {
        let mut summary = Self {
            started: u64::MAX,
            finished: 0,
            thread_nanos: 0,
            done: 0,
            bytes: 0,
            histograms: Default::default(),
            message: String::new(),
        };
        for thread in threads.into_iter().filter(|thread| !thread.left_out) {
            summary.started = summary.started.min(thread.started);
            summary.finished = summary.finished.max(thread.finished);
            summary.thread_nanos += thread.finished - thread.started;
            summary.done += thread.done;
            summary.bytes += thread.bytes;
            for (sum, histogram) in summary.histograms.iter_mut().zip(thread.histograms) {
                if let Some(histogram) = histogram {
                    sum.get_or_insert_default().merge(&histogram);
                }
            }
            if summary.message.is_empty() {
                summary.message = thread.message;
            }
        }
        // Some benchmarks count nothing: one run of them is one operation.
        summary.done = summary.done.max(1);
        summary
    }

    fn seconds(&self) -> f64 {
        self.finished.saturating_sub(self.started) as f64 / 1e9
    }
    /// Operations per second, and bytes per second if bytes were counted.
    fn rates(&self) -> (f64, Option<f64>) {
        let bytes = (self.bytes > 0).then(|| self.bytes as f64 / self.seconds());
        (self.done as f64 / self.seconds(), bytes)
    }

    /// The benchmark's line, and the distributions if times were taken.
    pub fn report(&self, name: &str) -> String {
        let (operations, bytes) = self.rates();
        let mut extra = String::new();
        if let Some(bytes) = bytes {
            extra = format!("{:6.1} MB/s", bytes / MIB);
        }
        append_word(&mut extra, &self.message);
        let mut text = format!(
            "{name:<12} : {:11.3} micros/op {} ops/sec {:.3} seconds {} operations;{}{extra}\n",
            self.thread_nanos as f64 / 1e3 / self.done as f64,
            operations as u64,
            self.seconds(),
            self.done,
            if extra.is_empty() { "" } else { " " },
        );
        for (name, histogram) in Operation::NAMES.iter().zip(&self.histograms) {
            if let Some(histogram) = histogram {
                write!(text, "Microseconds per {name}:\n{histogram}\n").expect("text grows");
            }
        }
        text
    }
}

const MIB: f64 = 1_048_576.0;

fn append_word(text: &mut String, word: &str) {
    if !text.is_empty() && !word.is_empty() {
        text.push(' ');
    }
    text.push_str(word);
}

fn date_and_time(seconds: u64) -> String {
    let when = i64::try_from(seconds)
        .ok()
        .and_then(|seconds| time::OffsetDateTime::from_unix_timestamp(seconds).ok());
    when.map_or_else(String::new, |when| {
        let (hour, minute, second) = when.to_hms();
        format!(
            "{:04}/{:02}/{:02}-{hour:02}:{minute:02}:{second:02}",
            when.year(),
            u8::from(when.month()),
            when.day()
        )
    })
}

/// The rates of a benchmark that is run several times.
#[derive(Default)]
pub struct Repetitions {
    operations: Vec<f64>,
    bytes: Vec<f64>,
}

impl Repetitions {
    /// Adds a run.
    pub fn add(&mut self, summary: &Summary) {
        let (operations, bytes) = summary.rates();
        self.operations.push(operations);
        self.bytes.extend(bytes);
    }

    fn has_bytes(&self) -> bool {
        self.bytes.len() == self.operations.len()
    }

    /// The line after each run from the second on.
    pub fn report(&self, name: &str, intervals: bool) -> String {
        let runs = self.operations.len();
        if runs < 2 {
            return String::new();
        }
        let (operations, bytes) = (Sample::new(&self.operations), Sample::new(&self.bytes));
        match (intervals, self.has_bytes()) {
            (false, false) => format!("{name} [AVG {runs} runs] : {} ops/sec\n", operations.whole()),
            (false, true) => {
                format!(
                    "{name} [AVG {runs} runs] : {} ops/sec; {} MB/sec\n",
                    operations.whole(),
                    bytes.mebi()
                )
            }
            (true, has_bytes) => {
                let (low, high) = operations.interval();
                let mut line =
                    format!("{name} [CI95 {runs} runs] : ({}, {}) ops/sec", low as i64, high as i64);
                if has_bytes {
                    let (low, high) = bytes.interval();
                    write!(line, "; ({:.1}, {:.1}) MB/sec", low / MIB, high / MIB).expect("text grows");
                }
                line + "\n"
            }
        }
    }

    /// The lines after the last run.
    pub fn report_final(&self, name: &str) -> String {
        let runs = self.operations.len();
        if runs < 2 {
            return String::new();
        }
        let (operations, bytes) = (Sample::new(&self.operations), Sample::new(&self.bytes));
        let millis = if operations.mean > 0.0 { 1000.0 / operations.mean } else { 0.0 };
        let (average, middle) = (operations.whole(), operations.median as i64);
        if self.has_bytes() {
            format!(
                "\n{name} [AVG    {runs} runs] : {average} ops/sec; {millis:.3} ms/op; {} MB/sec\n\
                 {name} [MEDIAN {runs} runs] : {middle} ops/sec; {:6.1} MB/sec\n",
                bytes.mebi(),
                bytes.median / MIB
            )
        } else {
            format!(
                "\n{name} [AVG    {runs} runs] : {average} ops/sec; {millis:.3} ms/op\n\
                 {name} [MEDIAN {runs} runs] : {middle} ops/sec\n"
            )
        }
    }
}

/// Mean, median and the half width of the 95 % confidence interval, normal distribution assumed.
struct Sample {
    mean: f64,
    median: f64,
    half_width: f64,
}

impl Sample {
    fn new(values: &[f64]) -> Self {
        let count = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (squares / (count - 1.0).max(1.0)).sqrt();
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() {
            0 => 0.0,
            odd if odd % 2 == 1 => sorted[middle],
            _ => (sorted[middle] + sorted[middle - 1]) / 2.0,
        };
        Self { mean, median, half_width: 1.959_964 * deviation / count.sqrt() }
    }
    fn interval(&self) -> (f64, f64) {
        (self.mean - self.half_width, self.mean + self.half_width)
    }
    fn whole(&self) -> String {
        format!("{} (± {})", self.mean as i64, self.half_width as i64)
    }
    fn mebi(&self) -> String {
        format!("{:6.1} (± {:.1})", self.mean / MIB, self.half_width / MIB)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(done: u64, bytes: u64, message: &str) -> Summary {
        Summary {
            started: 1_000_000_000,
            finished: 3_345_000_000,
            thread_nanos: 2_345_000_000,
            done,
            bytes,
            histograms: Default::default(),
            message: message.to_owned(),
        }
    }

    #[test]
    fn the_line_is_rocksdbs() {
        let line = summary(1_000_000, 116_000_000, "").report("fillrandom");
        let expected = "fillrandom   :       2.345 micros/op 426439 ops/sec 2.345 seconds 1000000 operations;   47.2 MB/s\n";
        assert_eq!(line, expected);
        let line = summary(1000, 0, "(999 of 1000 found)").report("seekrandom");
        let expected = "seekrandom   :    2345.000 micros/op 426 ops/sec 2.345 seconds 1000 operations; (999 of 1000 found)\n";
        assert_eq!(line, expected);
        let line = summary(1, 0, "").report("compact");
        assert_eq!(line, "compact      : 2345000.000 micros/op 0 ops/sec 2.345 seconds 1 operations;\n");
    }

    #[test]
    fn repetitions_are_averaged() {
        let repetitions = Repetitions { operations: vec![90.0, 110.0, 130.0], bytes: vec![] };
        assert_eq!(repetitions.report("x", false), "x [AVG 3 runs] : 110 (± 22) ops/sec\n");
        assert_eq!(repetitions.report("x", true), "x [CI95 3 runs] : (87, 132) ops/sec\n");
        let expected =
            "\nx [AVG    3 runs] : 110 (± 22) ops/sec; 9.091 ms/op\nx [MEDIAN 3 runs] : 110 ops/sec\n";
        assert_eq!(repetitions.report_final("x"), expected);
    }

    #[test]
    fn times_are_written_out() {
        assert_eq!(date_and_time(1_795_302_380), "2026/11/21-23:06:20");
    }
}
