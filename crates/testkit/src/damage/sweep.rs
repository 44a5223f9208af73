//! Many trials, on all cores, and the table of what became of them.

use super::{Access, Damage, Outcome, Sample, kind};
use crate::watchdog::Watchdog;
use ironstone::WalRecoveryMode;
use ironstone_base::FileKind;
use ironstone_base::sync::atomic::{AtomicUsize, Ordering};
use ironstone_base::sync::{Mutex, thread};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Far longer than any trial takes.
const HANG: Duration = Duration::from_secs(60);

/// One damage to one file.
pub struct Trial<'a> {
    /// Of which database.
    pub sample: &'a Sample,
    /// Which file.
    pub path: PathBuf,
    /// What is done to it.
    pub damage: Damage,
    /// What recovery does about damaged WALs.
    pub mode: WalRecoveryMode,
    /// How the database is opened.
    pub access: Access,
}

/// The kind of file and the kind of damage.
pub(super) fn class(path: &Path, damage: &Damage) -> (&'static str, &'static str) {
    let file = match kind(path) {
        FileKind::Wal(_) => "WAL",
        FileKind::Table(_) => "SST",
        FileKind::Manifest(_) => "MANIFEST",
        FileKind::Current => "CURRENT",
        FileKind::Identity => "IDENTITY",
        FileKind::Options(_) => "OPTIONS",
        _ => "other",
    };
    let damage = match damage {
        Damage::Bit { .. } => "one bit",
        Damage::Byte { .. } => "one byte",
        Damage::Zeroed { .. } => "zeroed sector",
        Damage::Cut { .. } => "cut",
        Damage::Grown { .. } => "garbage behind",
        Damage::Missing => "missing",
        Damage::Directory => "a directory",
        Damage::Swapped { .. } => "swapped",
    };
    (file, damage)
}

impl Trial<'_> {
    /// The kind of file and the kind of damage.
    pub fn class(&self) -> (&'static str, &'static str) {
        class(&self.path, &self.damage)
    }

    fn run(&self) -> Result<Outcome, String> {
        let run = || self.sample.try_damage(&self.path, &self.damage, self.mode, self.access);
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("panic".to_owned()))
    }
}

impl fmt::Display for Trial<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sample, path, damage, mode, access } = self;
        write!(f, "{:?} {} {damage:?} under {mode:?}, {access:?}", sample.shape(), path.display())
    }
}

/// What became of the trials of one class.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row {
    /// How many trials there were.
    pub trials: u64,
    /// Errors that name the file, and the place where there is one.
    pub error: u64,
    /// Trials in which every answer was right.
    pub correct: u64,
    /// Trials in which writes at the end of a log were gone without an error.
    pub tolerated: u64,
}

/// What became of all trials.
#[derive(Default)]
pub struct Table {
    rows: BTreeMap<(&'static str, &'static str), Row>,
    /// Broken promises.
    pub failures: Vec<String>,
}

impl Table {
    /// Runs `trials`.
    pub fn of(trials: &[Trial<'_>]) -> Self {
        let watchdog = Watchdog::new(HANG);
        let table = Mutex::new(Self::default());
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(trial) = trials.get(next.fetch_add(1, Ordering::Relaxed)) {
                let watched = watchdog.watch(trial.to_string());
                let outcome = trial.run();
                drop(watched);
                table.lock().note(trial, outcome);
            }
        };
        thread::scope(|scope| {
            scope.spawn(work);
            work();
        });
        table.into_inner()
    }

    fn note(&mut self, trial: &Trial<'_>, outcome: Result<Outcome, String>) {
        let row = self.rows.entry(trial.class()).or_default();
        row.trials += 1;
        match outcome {
            Ok(Outcome::Error) => row.error += 1,
            Ok(Outcome::Correct) => row.correct += 1,
            Ok(Outcome::Tolerated) => row.tolerated += 1,
            Err(broken) => self.failures.push(format!("{trial}: {broken}")),
        }
    }

    /// The rows: kind of file, kind of damage, what became of it.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, &'static str, Row)> + '_ {
        self.rows.iter().map(|(&(file, damage), &row)| (file, damage, row))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| file     | damage         | trials |  error | correct | tolerated |")?;
        writeln!(f, "|----------|----------------|-------:|-------:|--------:|----------:|")?;
        for (file, damage, row) in self.rows() {
            let Row { trials, error, correct, tolerated } = row;
            writeln!(
                f,
                "| {file:<8} | {damage:<14} | {trials:>6} | {error:>6} | {correct:>7} | {tolerated:>9} |"
            )?;
        }
        Ok(())
    }
}
