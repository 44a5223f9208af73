//! Runs engines through their drivers.
//!
//! ```text
//! DRIVER write dir=PATH seed=N cfs=N keys=N rounds=A..B after=ACTIONS exit=clean|abrupt
//!              extra=FEATURE db_options=TEXT cf_options=TEXT db_paths=PATHS cf_paths=PATHS
//! DRIVER dump  dir=PATH seed=N keys=N read_only=0|1 forward_only=0|1 and those of `write` that end in options and paths
//! DRIVER hold  dir=PATH
//! DRIVER options dir=PATH
//! DRIVER repair dir=PATH and options and paths
//! DRIVER sizes dir=PATH keys=N and options and paths
//! ```
//!
//! `write` creates the database and its column families if need be and writes the rounds; ACTIONS says what
//! to do after each: `none`, `flush`, `compact` or (Ironstone only) `sync`, which syncs the WAL, separated by commas,
//! the last one for all that follow.
//! With `exit=abrupt` the process ends without closing the database, so the last writes are in the WAL only.
//! `dump` prints one line for each column family, see [`Digest::line`](crate::workload::Digest::line).
//! `hold` opens the database, prints `held`, and closes it when its input ends. `options` (RocksDB 11.8 only)
//! prints what the newest OPTIONS file says. `repair` (Ironstone and RocksDB 7.8 only) makes a database of what is in the directories.
//! `sizes` (the same two) prints one line for each column family, with about how many bytes are in each twentieth of the keys, by their
//! numbers, and in all keys; it opens the database for reading only.
//! `write` and `dump` of RocksDB 11.8 with `trace=PATH` trace to that file what they ask the database.
//! `dump` of Ironstone with `follower=PATH` reads through a follower with that directory. All print `ok` at the end,
//! or a line `error: ..` to standard error and exit with 2, or with 3 for options that the driver cannot
//! set. The options are RocksDB's option strings; PATHS, which these cannot say, are `PATH:BYTES,PATH:BYTES`.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::workload::Workload;

/// An engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// This engine, through the driver at that path.
    Ironstone(&'static str),
    /// RocksDB 7.8 through C.
    RocksDb7,
    /// RocksDB 10.4 through Python.
    RocksDb10,
    /// RocksDB 11.8 through Java.
    RocksDb11,
    /// LevelDB 1.23 through C.
    LevelDb,
}

/// The releases of RocksDB that we test with.
pub const ROCKSDBS: [Driver; 3] = [Driver::RocksDb7, Driver::RocksDb10, Driver::RocksDb11];

/// Why a driver did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It is not installed.
    Missing(String),
    /// It has no way to set an option that was asked for.
    Unable(String),
    /// The engine reported an error, or crashed.
    Failed(String),
}

/// What to write.
#[derive(Clone, Debug)]
pub struct Writes<'a> {
    /// The contents.
    pub workload: Workload,
    /// Which part of them.
    pub rounds: Range<u64>,
    /// What to do after each round.
    pub after: &'a str,
    /// End the process without closing the database.
    pub abrupt: bool,
    /// How to write.
    pub options: Options<'a>,
}

/// Option strings in RocksDB's form. `paths=PATH:BYTES,PATH:BYTES` in front, up to the first semicolon, are db_paths and cf_paths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// Of the database.
    pub db: &'a str,
    /// Of every column family.
    pub cf: &'a str,
}

impl Driver {
    /// The engine's name and release.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ironstone(_) => "ironstone",
            Self::RocksDb7 => "rocksdb-7.8",
            Self::RocksDb10 => "rocksdb-10.4",
            Self::RocksDb11 => "rocksdb-11.8",
            Self::LevelDb => "leveldb-1.23",
        }
    }

    fn program(self) -> Result<PathBuf, Failure> {
        match self {
            Self::Ironstone(path) => Ok(PathBuf::from(path)),
            Self::RocksDb7 => oracle("rocksdb_driver"),
            Self::RocksDb10 => oracle("rocksdict_driver"),
            Self::RocksDb11 => oracle("rocksjava_driver"),
            Self::LevelDb => oracle("leveldb_driver"),
        }
    }

    /// Writes to the database in `dir`.
    pub fn write(self, dir: &Path, writes: &Writes<'_>) -> Result<(), Failure> {
        self.write_extra(dir, writes, "none")
    }

    /// Like [`Self::write`], and uses a feature that the workload does not have after each round:
    /// `range_delete`, `wide_range_delete`, `merge` or `wide_columns`.
    pub fn write_extra(self, dir: &Path, writes: &Writes<'_>, extra: &str) -> Result<(), Failure> {
        let mut command = self.write_command(dir, writes)?;
        command.arg(format!("extra={extra}"));
        self.run(command).map(drop)
    }

    /// Like [`Self::write`], with a trace of it in the file `trace`; [`Self::RocksDb11`] only.
    pub fn write_traced(self, dir: &Path, writes: &Writes<'_>, trace: &Path) -> Result<(), Failure> {
        let mut command = self.write_command(dir, writes)?;
        command.arg(format!("trace={}", trace.display()));
        self.run(command).map(drop)
    }

    /// Starts to write and kills the process after `time`, whatever it is doing then.
    pub fn write_killed(self, dir: &Path, writes: &Writes<'_>, time: Duration) -> Result<(), Failure> {
        let mut command = self.write_command(dir, writes)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| self.failed(&error.to_string()))?;
        std::thread::sleep(time);
        child.kill().and_then(|()| child.wait()).map(drop).map_err(|error| self.failed(&error.to_string()))
    }

    fn write_command(self, dir: &Path, writes: &Writes<'_>) -> Result<Command, Failure> {
        let Workload { seed, cfs, keys } = writes.workload;
        let Range { start, end } = writes.rounds;
        let mut command = self.command("write", dir, writes.options)?;
        command.args([format!("seed={seed}"), format!("cfs={cfs}"), format!("keys={keys}")]);
        command.args([format!("rounds={start}..{end}"), format!("after={}", writes.after)]);
        command.arg(format!("exit={}", if writes.abrupt { "abrupt" } else { "clean" }));
        Ok(command)
    }

    /// The digests of what `dir` holds. Opens it for reading and writing, so it recovers what was unclean.
    pub fn dump(self, dir: &Path, workload: Workload, options: Options<'_>) -> Result<String, Failure> {
        self.dump_as(dir, workload, options, false)
    }

    /// Like [`Self::dump`], but walks forward only where that is all that there is: what is said of the way back is all zeros.
    pub fn dump_forward(
        self,
        dir: &Path,
        workload: Workload,
        options: Options<'_>,
    ) -> Result<String, Failure> {
        let mut command = self.dump_command(dir, workload, options, false)?;
        command.arg("forward_only=1");
        let output = self.run(command)?;
        Ok(without_way_back(output.strip_suffix("ok\n").unwrap_or(&output)))
    }

    /// Like [`Self::dump`], but opens the directory for reading only.
    pub fn dump_read_only(
        self,
        dir: &Path,
        workload: Workload,
        options: Options<'_>,
    ) -> Result<String, Failure> {
        self.dump_as(dir, workload, options, true)
    }

    /// Like [`Self::dump`], with a trace of it in the file `trace`; [`Self::RocksDb11`] only.
    pub fn dump_traced(
        self,
        dir: &Path,
        workload: Workload,
        options: Options<'_>,
        trace: &Path,
    ) -> Result<String, Failure> {
        let mut command = self.dump_command(dir, workload, options, false)?;
        command.arg(format!("trace={}", trace.display()));
        let output = self.run(command)?;
        Ok(output.strip_suffix("ok\n").unwrap_or(&output).to_owned())
    }

    fn dump_as(
        self,
        dir: &Path,
        workload: Workload,
        options: Options<'_>,
        read_only: bool,
    ) -> Result<String, Failure> {
        let output = self.run(self.dump_command(dir, workload, options, read_only)?)?;
        Ok(output.strip_suffix("ok\n").unwrap_or(&output).to_owned())
    }

    fn dump_command(
        self,
        dir: &Path,
        workload: Workload,
        options: Options<'_>,
        read_only: bool,
    ) -> Result<Command, Failure> {
        let mut command = self.command("dump", dir, options)?;
        command.arg(format!("read_only={}", u8::from(read_only)));
        command.args([format!("seed={}", workload.seed), format!("keys={}", workload.keys)]);
        Ok(command)
    }

    /// Like [`Self::dump`], by a follower of `dir` with the directory `own`; [`Self::Ironstone`] only.
    pub fn dump_following(
        self,
        dir: &Path,
        own: &Path,
        workload: Workload,
        options: Options<'_>,
    ) -> Result<String, Failure> {
        let mut command = self.dump_command(dir, workload, options, false)?;
        command.arg(format!("follower={}", own.display()));
        let output = self.run(command)?;
        Ok(output.strip_suffix("ok\n").unwrap_or(&output).to_owned())
    }

    /// Makes a database of what is left in `dir` and in the paths of `options`; [`Self::Ironstone`] and [`Self::RocksDb7`] only.
    pub fn repair(self, dir: &Path, options: Options<'_>) -> Result<(), Failure> {
        self.run(self.command("repair", dir, options)?).map(drop)
    }

    /// For each column family about how many bytes its tables have in each twentieth of the numbered keys, and in all keys;
    /// [`Self::Ironstone`] and [`Self::RocksDb7`] only.
    pub fn sizes(
        self,
        dir: &Path,
        workload: Workload,
        options: Options<'_>,
    ) -> Result<BTreeMap<String, Vec<u64>>, Failure> {
        let mut command = self.command("sizes", dir, options)?;
        command.args(["read_only=1".to_owned(), format!("keys={}", workload.keys)]);
        let output = self.run(command)?;
        let line = |line: &str| {
            let mut words = line.strip_prefix("cf ")?.split(' ');
            let name = words.next()?.to_owned();
            Some((name, words.map(|word| word.parse().ok()).collect::<Option<_>>()?))
        };
        Ok(output.lines().filter_map(line).collect())
    }

    /// Some of what the newest OPTIONS file in `dir` says; [`Self::RocksDb11`] only.
    pub fn stored_options(self, dir: &Path) -> Result<String, Failure> {
        self.run(self.command("options", dir, Options::default())?)
    }

    /// Opens `dir` and keeps it open until the value is dropped.
    pub fn hold(self, dir: &Path) -> Result<Held, Failure> {
        let mut command = self.command("hold", dir, Options::default())?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| self.failed(&error.to_string()))?;
        let mut first_line = String::new();
        let output = child.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut first_line).map_err(|error| self.failed(&error.to_string()))?;
        let mut held = Held(child);
        match first_line.trim_end() {
            "held" => Ok(held),
            _ => Err(self.failed(&held.errors())),
        }
    }

    fn command(self, name: &str, dir: &Path, options: Options<'_>) -> Result<Command, Failure> {
        let mut command = Command::new(self.program()?);
        command.arg(name).arg(format!("dir={}", dir.display()));
        for (of, text) in [("db", options.db), ("cf", options.cf)] {
            let (paths, rest) = match text.strip_prefix("paths=") {
                Some(text) => text.split_once(';').unwrap_or((text, "")),
                None => ("", text),
            };
            command.arg(format!("{of}_options={rest}"));
            if !paths.is_empty() {
                command.arg(format!("{of}_paths={paths}"));
            }
        }
        Ok(command)
    }

    fn run(self, mut command: Command) -> Result<String, Failure> {
        let output =
            command.stdin(Stdio::null()).output().map_err(|error| self.failed(&error.to_string()))?;
        let (text, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        match output.status.code() {
            Some(0) if text.ends_with("ok\n") => Ok(text.into_owned()),
            Some(3) => Err(Failure::Unable(format!("{}: {}", self.name(), errors.trim_end()))),
            code => Err(self.failed(&format!("exit code {code:?}: {}{}", text, errors.trim_end()))),
        }
    }

    fn failed(self, what: &str) -> Failure {
        Failure::Failed(format!("{}: {what}", self.name()))
    }
}

/// `digests` with zeros for the ways back.
pub fn without_way_back(digests: &str) -> String {
    let line = |line: &str| {
        let words = line.split(' ').map(|word| match word.starts_with("backward=") {
            true => "backward=00000000",
            false => word,
        });
        words.collect::<Vec<_>>().join(" ") + "\n"
    };
    digests.lines().map(line).collect()
}

/// A process that has a database open.
pub struct Held(Child);

impl Held {
    fn errors(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut errors) = self.0.stderr.take() {
            let _ = errors.read_to_string(&mut text); // What came so far is enough.
        }
        text
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.0.stdin.take()); // Its input ends, so it closes the database.
        let _ = self.0.wait(); // Nothing to do if it is gone already.
    }
}

/// The program of that name, if `install-oracles.sh` has built it.
pub(crate) fn oracle(name: &str) -> Result<PathBuf, Failure> {
    let path = oracles().join(name);
    match path.exists() {
        true => Ok(path),
        false => Err(Failure::Missing(format!("{} is not there, see install-oracles.sh", path.display()))),
    }
}

/// The directory that `install-oracles.sh` fills.
fn oracles() -> PathBuf {
    if let Some(oracles) = env::var_os("IRONSTONE_ORACLES") {
        return oracles.into();
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    env::var_os("CARGO_TARGET_DIR").map_or(workspace.join("target"), PathBuf::from).join("oracles")
}

/// The value, or `None` if the driver could not do this and the test should go on without it. Panics if the
/// engine failed, or if it is missing and `IRONSTONE_REQUIRE_ORACLES=1`.
#[track_caller]
pub fn ran<T>(result: Result<T, Failure>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(Failure::Failed(why)) => panic!("{why}"),
        Err(Failure::Missing(why)) => {
            skip(&why);
            None
        }
        Err(Failure::Unable(why)) => {
            println!("not applicable: {why}");
            None
        }
    }
}

/// Prints that something was not tested because a program is missing, or panics if that is not allowed.
#[track_caller]
pub fn skip(why: &str) {
    let required = env::var("IRONSTONE_REQUIRE_ORACLES").is_ok_and(|value| value == "1");
    assert!(!required, "IRONSTONE_REQUIRE_ORACLES=1, but {why}");
    println!("SKIP {why}");
}

/// Runs a command-line tool of RocksDB 7.8: what it printed to both outputs, and whether it succeeded.
/// `None` if it is not installed.
#[track_caller]
pub fn tool(name: &str, arguments: &[String]) -> Option<(bool, String)> {
    match Command::new(name).args(arguments).stdin(Stdio::null()).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            Some((output.status.success(), text.into_owned()))
        }
        Err(error) => {
            skip(&format!("{name} does not run ({error}), see install-oracles.sh"));
            None
        }
    }
}
