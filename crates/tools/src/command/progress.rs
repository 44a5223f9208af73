//! How far it is: a bar on a terminal, a line now and then elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use ironstone::Db;
use ironstone_base::sync::Arc;
use ironstone_vfs::{Clock, SystemClock};
use std::io::{IsTerminal, stderr};
use std::time::Duration;

/// A write that takes longer than this was held up.
const STALL_NANOS: u64 = 1_000_000;
const BAR_INTERVAL_NANOS: u64 = 100_000_000;
const LINE_INTERVAL_NANOS: u64 = 1_000_000_000;

/// Shows how far a phase is.
pub struct Progress {
    name: &'static str,
    clock: Arc<SystemClock>,
    bar: Option<ProgressBar>,
    total: u64,
    started: u64,
    next_update: u64,
    stalled_nanos: u64,
}

impl Progress {
    /// Starts a phase of about `total` rows.
    pub fn start(name: &'static str, total: u64, clock: &Arc<SystemClock>) -> Self {
        let bar = stderr().is_terminal().then(|| {
            let style = "{prefix} {wide_bar:.cyan/blue} {percent}%  {msg}";
            let style = ProgressStyle::with_template(style).expect("the template is well formed");
            ProgressBar::new(total).with_style(style).with_prefix(name)
        });
        let started = clock.monotonic_nanos();
        let next_update = started + if bar.is_some() { BAR_INTERVAL_NANOS } else { LINE_INTERVAL_NANOS };
        Self { name, clock: Arc::clone(clock), bar, total, started, next_update, stalled_nanos: 0 }
    }

    /// Runs a write and notes how long it was held up.
    pub fn timed<T>(&mut self, write: impl FnOnce() -> T) -> T {
        let before = self.clock.monotonic_nanos();
        let result = write();
        let taken = self.clock.monotonic_nanos() - before;
        if taken > STALL_NANOS {
            self.stalled_nanos += taken;
        }
        result
    }

    /// `done` rows are done; says so if it is time.
    pub fn update(&mut self, done: u64, db: &Db) {
        let now = self.clock.monotonic_nanos();
        if now < self.next_update {
            return;
        }
        let seconds = (now - self.started) as f64 / 1e9;
        let rate = if seconds > 0.0 { done as f64 / seconds } else { 0.0 };
        let state = format!("{rate:.0} rows/s  {}  levels {}", self.stalls(db), levels(db));
        match &self.bar {
            Some(bar) => {
                bar.set_length(self.total.max(done));
                bar.set_position(done);
                bar.set_message(state);
                self.next_update = now + BAR_INTERVAL_NANOS;
            }
            None => {
                let percent = (done * 100).checked_div(self.total).unwrap_or(100).min(100);
                eprintln!("{:<12} {percent:>3}%  {done} rows  {state}", self.name);
                self.next_update = now + LINE_INTERVAL_NANOS;
            }
        }
    }

    fn stalls(&self, db: &Db) -> String {
        let number = |name: &str| db.int_property(name).unwrap_or(0);
        let now = match (number("rocksdb.is-write-stopped"), number("rocksdb.actual-delayed-write-rate")) {
            (0, 0) => "",
            (0, _) => ", slowed down now",
            _ => ", stopped now",
        };
        format!("stalls {:.1}s{now}", Duration::from_nanos(self.stalled_nanos).as_secs_f64())
    }

    /// Ends the phase; how many seconds it took.
    pub fn finish(self) -> f64 {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        (self.clock.monotonic_nanos() - self.started) as f64 / 1e9
    }

    /// How long writes were held up.
    pub fn stalled_seconds(&self) -> f64 {
        self.stalled_nanos as f64 / 1e9
    }
}

/// Files per level, down to the last level that has some.
fn levels(db: &Db) -> String {
    let mut files: Vec<usize> =
        db.level_shape(db.default_column_family()).into_iter().map(|(files, _)| files).collect();
    while files.len() > 1 && files.last() == Some(&0) {
        files.pop();
    }
    let files: Vec<String> = files.iter().map(usize::to_string).collect();
    files.join("/")
}
