//! The same damage to databases of Ironstone and of RocksDB, each written by the engine that reads it, and what
//! becomes of it: one table with a row for each kind of file and damage, and each engine.
//!
//! Both are judged by the same rules, which know nothing of either's promises (the module `damage` knows those of
//! Ironstone, and holds it to them). Every write was synced before its file was damaged.

use super::peer::{Answer, End, HANG_SECONDS, PeerReader, PeerSample};
use super::sweep::class;
use super::{Access, Damage, Reading, Sample, Shape, kind};
use crate::model::Model;
use crate::watchdog::Watchdog;
use ironstone::WalRecoveryMode;
use ironstone_base::FileKind;
use ironstone_base::sync::atomic::{AtomicUsize, Ordering};
use ironstone_base::sync::{Mutex, thread};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What became of a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// An error, and every other answer was right.
    Error,
    /// Every answer was right.
    Correct,
    /// No error, and all answers are those of an earlier moment: writes at the end are gone.
    Older,
    /// An answer was wrong in another way: a hole in the writes, a deleted key that is back, a value that never was.
    Wrong,
    /// The process ended by a signal or a panic.
    Crash,
    /// It had to be stopped.
    Hang,
}

/// How both engines are opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settings {
    /// With the options that they have when nothing is said.
    Defaults,
    /// With every check of logs that they have.
    Strict,
}

impl Settings {
    fn name(self) -> &'static str {
        match self {
            Self::Defaults => "defaults",
            Self::Strict => "strict",
        }
    }
    fn mode(self) -> WalRecoveryMode {
        match self {
            Self::Defaults => WalRecoveryMode::PointInTimeRecovery,
            Self::Strict => WalRecoveryMode::AbsoluteConsistency,
        }
    }
    /// Of RocksDB, beside those of the shape.
    fn peer_options(self) -> &'static str {
        match self {
            Self::Defaults => "",
            Self::Strict => {
                "wal_recovery_mode=kAbsoluteConsistency;track_and_verify_wals_in_manifest=true;\
                 track_and_verify_wals=true;verify_sst_unique_id_in_manifest=true;paranoid_checks=true"
            }
        }
    }
    fn shapes(self) -> Vec<Shape> {
        match self {
            Self::Defaults => Shape::ALL.to_vec(),
            // That mode does without reused WALs.
            Self::Strict => vec![Shape::Plain, Shape::Flushed],
        }
    }
}

/// What became of the trials of one row.
#[derive(Clone, Copy, Default)]
struct Row {
    trials: u64,
    error: u64,
    correct: u64,
    older: u64,
    wrong: u64,
    crash: u64,
    hang: u64,
}

impl Row {
    fn note(&mut self, verdict: Verdict) {
        self.trials += 1;
        *match verdict {
            Verdict::Error => &mut self.error,
            Verdict::Correct => &mut self.correct,
            Verdict::Older => &mut self.older,
            Verdict::Wrong => &mut self.wrong,
            Verdict::Crash => &mut self.crash,
            Verdict::Hang => &mut self.hang,
        } += 1;
    }
}

/// By settings, file, damage and engine.
type Rows = BTreeMap<(&'static str, &'static str, &'static str, &'static str), Row>;

const OURS: &str = "Ironstone";
const THEIRS: &str = "RocksDB";

/// Runs all trials, with RocksDB through `driver` in directories below `scratch`; of most files every `every`-th
/// byte is damaged. Answers the table.
pub fn run(driver: &Path, scratch: &Path, every: u64) -> Result<serde_json::Value, String> {
    let mut rows = Rows::new();
    let mut examples = Vec::new();
    for settings in [Settings::Defaults, Settings::Strict] {
        for shape in settings.shapes() {
            try_ours(settings, shape, every, &mut rows);
            let dir = scratch.join(format!("{}-{shape:?}", settings.name()));
            try_theirs(driver, &dir, settings, shape, every, &mut rows, &mut examples)?;
        }
    }
    let rows = rows.into_iter().map(|((settings, file, damage, engine), row)| {
        serde_json::json!({ "settings": settings, "file": file, "damage": damage, "engine": engine,
            "trials": row.trials, "error": row.error, "correct": row.correct, "older": row.older,
            "wrong": row.wrong, "crash": row.crash, "hang": row.hang })
    });
    let rows: Vec<_> = rows.collect();
    Ok(serde_json::json!({ "every": every, "hang_seconds": HANG_SECONDS,
        "strict_rocksdb": Settings::Strict.peer_options(), "rows": rows, "examples": examples }))
}

/// What is done to a file of `len` bytes at `path`, one of `files`.
fn damages(shape: Shape, path: &Path, len: u64, files: &[PathBuf], every: u64) -> Vec<Damage> {
    let step = match kind(path) {
        FileKind::Options(_) => 199 * every, // Not read when a database is opened.
        FileKind::Current | FileKind::Identity => 1,
        FileKind::Manifest(_) => (every / 4).max(1), // Short, and everything hangs on it.
        _ if shape == Shape::Long => 997 * every,
        _ => every,
    };
    // A different start in each file, so that all places of a format have their turn.
    let places: Vec<u64> = (len % step..len).step_by(step as usize).collect();
    let mut damages = vec![Damage::Missing, Damage::Directory, Damage::Cut { len: 0 }];
    for &offset in &places {
        let bit = (offset / step % 8) as u8;
        damages.extend([Damage::Bit { offset, bit }, Damage::Byte { offset }, Damage::Cut { len: offset }]);
    }
    let sectors = (0..len).step_by(if shape == Shape::Long { 512 * 29 } else { 512 });
    damages.extend(sectors.map(|offset| Damage::Zeroed { offset }));
    damages.extend([1, 7, 64, 512, 4096].map(|bytes| Damage::Grown { bytes }));
    let same = |with: &&PathBuf| std::mem::discriminant(&kind(with)) == std::mem::discriminant(&kind(path));
    let others = files.iter().filter(|with| with.as_path() > path).filter(same);
    damages.extend(others.map(|with| Damage::Swapped { with: with.clone() }));
    damages
}

/// Whether damage to the file at `path` tells anything that damage to others does not: tables are checked alike
/// under all settings, and the smallest files are the same in all shapes.
fn is_tried(settings: Settings, shape: Shape, path: &Path) -> bool {
    match kind(path) {
        FileKind::Wal(_) | FileKind::Manifest(_) => true,
        FileKind::Table(_) => settings == Settings::Defaults,
        _ => settings == Settings::Defaults && shape == Shape::Plain,
    }
}

/// What is done to the files of a sample, each as long as `len` says.
fn trials(
    settings: Settings,
    shape: Shape,
    files: &[PathBuf],
    every: u64,
    len: impl Fn(&Path) -> u64,
) -> Vec<(PathBuf, Damage)> {
    let tried = files.iter().filter(|path| is_tried(settings, shape, path));
    let each = |path: &PathBuf| {
        let of_one = damages(shape, path, len(path), files, every).into_iter();
        of_one.map(|damage| (path.clone(), damage)).collect::<Vec<_>>()
    };
    tried.flat_map(each).collect()
}

/// `told` says whether there was an error; the last of `states` is what must be there.
fn judge(told: bool, reading: &Reading, states: &[&Model]) -> Verdict {
    let (last, earlier) = states.split_last().expect("there is the empty database at least");
    if reading.agrees_with(last).is_ok() {
        return if told { Verdict::Error } else { Verdict::Correct };
    }
    let is_older = earlier.iter().rev().any(|state| reading.agrees_with(state).is_ok());
    if is_older { Verdict::Older } else { Verdict::Wrong }
}

/// Runs `trials` on two threads.
fn spread<T: Sync>(trials: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let worker = || {
        while let Some(trial) = trials.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(trial);
        }
    };
    thread::scope(|scope| {
        scope.spawn(worker);
        worker();
    });
}

fn try_ours(settings: Settings, shape: Shape, every: u64, rows: &mut Rows) {
    let sample = Sample::written_for(shape, settings.mode());
    let states: Vec<&Model> = sample.history.iter().chain(&sample.states).collect();
    let trials = trials(settings, shape, &sample.files(), every, |path| sample.len(path));
    let watchdog = Watchdog::new(Duration::from_secs(HANG_SECONDS.into()) * 6);
    let all = Mutex::new(rows);
    spread(&trials, |(path, damage)| {
        let _watched = watchdog.watch(format!("{shape:?} {} {damage:?}", path.display()));
        let attempt = || match sample.open_damaged(path, damage, settings.mode(), Access::ReadWrite) {
            Err(_) => Verdict::Error,
            Ok(db) => match Reading::of(&db, &sample.keys) {
                Ok(reading) => judge(!reading.errors.is_empty(), &reading, &states),
                Err(_) => Verdict::Wrong,
            },
        };
        let verdict = catch_unwind(AssertUnwindSafe(attempt)).unwrap_or(Verdict::Crash);
        let (file, what) = class(path, damage);
        all.lock().entry((settings.name(), file, what, OURS)).or_default().note(verdict);
    });
}

fn try_theirs(
    driver: &Path,
    dir: &Path,
    settings: Settings,
    shape: Shape,
    every: u64,
    rows: &mut Rows,
    examples: &mut Vec<String>,
) -> Result<(), String> {
    let sample = PeerSample::new(driver, dir, shape, settings.peer_options())?;
    let states: Vec<&Model> = sample.states().iter().collect();
    let trials = trials(settings, shape, &sample.files(), every, |path| sample.len(path));
    // A directory and a process for each thread.
    let start = |number: usize| {
        let reader = PeerReader::start(driver, &sample, settings.peer_options());
        let reader = reader.map_err(|error| format!("{}: {error}", driver.display()))?;
        Ok((reader, dir.with_extension(number.to_string())))
    };
    let readers = [0, 1].into_iter().map(start).collect::<Result<Vec<_>, String>>()?;
    let free = Mutex::new(readers);
    let all = Mutex::new((rows, examples));
    let problem = Mutex::new(None);
    spread(&trials, |(path, damage)| {
        let (mut reader, dir) = free.lock().pop().expect("one for each thread");
        let put = sample.put(&dir, path, damage).map_err(|error| format!("{}: {error}", dir.display()));
        match put.and_then(|()| reader.read(&dir)) {
            Ok(answer) => {
                let verdict = verdict(&answer, &states);
                let (file, what) = class(path, damage);
                let (rows, examples) = &mut *all.lock();
                let row = rows.entry((settings.name(), file, what, THEIRS)).or_default();
                row.note(verdict);
                if matches!(verdict, Verdict::Crash | Verdict::Hang) && row.crash + row.hang <= 3 {
                    examples.push(format!("{shape:?} {} {damage:?}: {verdict:?}", path.display()));
                }
            }
            Err(error) => *problem.lock() = Some(error),
        }
        free.lock().push((reader, dir));
    });
    match problem.into_inner() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn verdict(answer: &Answer, states: &[&Model]) -> Verdict {
    match answer.end {
        Some(End::Crash) => Verdict::Crash,
        Some(End::Hang) => Verdict::Hang,
        None if answer.ways_differ => Verdict::Wrong,
        None => judge(answer.refusals > 0, &answer.reading, states),
    }
}

/// Both engines must answer rightly before anything is damaged.
pub fn check_undamaged(driver: &Path, scratch: &Path) -> Result<(), String> {
    for settings in [Settings::Defaults, Settings::Strict] {
        for shape in settings.shapes() {
            let dir = scratch.join(format!("whole-{}-{shape:?}", settings.name()));
            let sample = PeerSample::new(driver, &dir, shape, settings.peer_options())?;
            let mut reader = PeerReader::start(driver, &sample, settings.peer_options())
                .map_err(|error| format!("{}: {error}", driver.display()))?;
            // Nothing changes when no byte is added.
            let path = &sample.files()[0];
            let put = sample.put(&dir, path, &Damage::Grown { bytes: 0 });
            put.map_err(|error| format!("{}: {error}", dir.display()))?;
            let answer = reader.read(&dir)?;
            let states: Vec<&Model> = sample.states().iter().collect();
            let verdict = verdict(&answer, &states);
            if verdict != Verdict::Correct {
                return Err(format!("undamaged, {settings:?} {shape:?}: RocksDB gives {verdict:?}"));
            }
        }
    }
    Ok(())
}
