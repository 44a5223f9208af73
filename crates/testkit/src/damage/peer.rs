//! RocksDB's side of the damage table: databases that it wrote itself, damaged the same way, and read by it.
//!
//! `crates/compat/oracles/rocksdb_damage.c` writes and reads them. What goes over its pipes, a line each, with keys
//! and values in hexadecimal digits:
//!
//! ```text
//! write DIR OPTIONS      in:   put CF KEY VALUE | delete CF KEY | write | flush CF | compact CF | pause
//!                        out:  oldest-wal NUMBER, live /NAME of each table, ok
//! read SECONDS OPTIONS   in:   KEY KEY ..., then a directory for each trial
//!                        out:  open done | open error TEXT
//!                              get CF KEY none | value VALUE | error TEXT
//!                              scan CF forward|backward, entry KEY VALUE ..., scanned whole | error TEXT
//!                              end exit CODE | end signal NUMBER | end hang
//! ```

use super::steps::{Step, steps};
use super::{DIR, Damage, FAMILIES, Reading, Scan, Shape, apply, files_of};
use crate::model::{Change, Model};
use ironstone_base::FileKind;
use ironstone_vfs::FileSystem;
use ironstone_vfs::mem::MemFileSystem;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// After so long, opening and reading counts as a hang.
pub const HANG_SECONDS: u32 = 10;

/// A small database that RocksDB wrote and did not close, and what it must answer.
pub struct PeerSample {
    shape: Shape,
    fs: MemFileSystem,
    /// After each write, from the empty database on.
    states: Vec<Model>,
    keys: BTreeSet<Vec<u8>>,
}

/// How a trial ended.
pub struct Answer {
    /// What was read. Errors are only counted.
    pub(super) reading: Reading,
    /// How many errors were reported.
    pub refusals: usize,
    /// Two ways of asking for a key gave different values.
    pub ways_differ: bool,
    /// How the process ended, if not as it should.
    pub end: Option<End>,
}

/// How a process ends that should not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// By a signal, or a failure inside of it.
    Crash,
    /// It had to be stopped.
    Hang,
}

impl PeerSample {
    /// Lets `driver` make a database of `shape` in `dir`, with `more` options of the database.
    #[allow(clippy::disallowed_methods)] // Another engine, on real files.
    pub fn new(driver: &Path, dir: &Path, shape: Shape, more: &str) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", driver.display());
        let mut script = String::new();
        let mut model = Model::new();
        model.create(FAMILIES[1]);
        let (mut states, mut keys) = (vec![model.clone()], BTreeSet::new());
        for step in steps(shape) {
            if let Step::Write(changes) = &step {
                changes.iter().for_each(|change| model.apply(change));
                states.push(model.clone());
                keys.extend(changes.iter().filter_map(Change::key).map(<[u8]>::to_vec));
            }
            add_lines(&mut script, &step);
        }
        script.push_str("pause\n");
        let _ = std::fs::remove_dir_all(dir); // Whatever an earlier run has left.
        std::fs::create_dir_all(dir).map_err(failed)?;
        let mut child = Command::new(driver)
            .arg("write")
            .arg(dir)
            .arg(options(shape, more))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut input = child.stdin.take().expect("piped");
        input.write_all(script.as_bytes()).map_err(failed)?;
        drop(input);
        let output = child.wait_with_output().map_err(failed)?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() || !said.ends_with("ok\n") {
            return Err(format!("{} write: {}, {said}", driver.display(), output.status));
        }
        let fs = MemFileSystem::new();
        fs.create_dir_all(Path::new(DIR)).map_err(|error| error.to_string())?;
        for entry in std::fs::read_dir(dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_file() && is_needed(&name, &said) {
                let bytes = std::fs::read(&path).map_err(failed)?;
                let copied = fs.write_all_synced(&Path::new(DIR).join(name), &bytes);
                copied.map_err(|error| error.to_string())?;
            }
        }
        Ok(Self { shape, fs, states, keys })
    }

    /// The files of the database, LOG and LOCK left out.
    pub fn files(&self) -> Vec<PathBuf> {
        files_of(&self.fs)
    }
    /// The length of a file.
    pub fn len(&self, path: &Path) -> u64 {
        self.fs.size(path).expect("a file of the sample")
    }
    /// Which kind of database it is.
    pub fn shape(&self) -> Shape {
        self.shape
    }
    /// After each write, from the empty database on; the last one is what must be there.
    pub fn states(&self) -> &[Model] {
        &self.states
    }

    /// Puts a copy in which `path` is damaged in `dir`.
    #[allow(clippy::disallowed_methods)] // Another engine reads it.
    pub fn put(&self, dir: &Path, path: &Path, damage: &Damage) -> std::io::Result<()> {
        let fs = self.fs.fork();
        apply(&fs, path, damage);
        if dir.exists() {
            std::fs::remove_dir_all(dir)?;
        }
        std::fs::create_dir_all(dir)?;
        for file in fs.all_files() {
            let bytes = fs.read_all(&file).map_err(std::io::Error::other)?;
            std::fs::write(dir.join(file.file_name().unwrap_or_default()), bytes)?;
        }
        if *damage == Damage::Directory {
            std::fs::create_dir_all(dir.join(path.file_name().unwrap_or_default()))?;
        }
        Ok(())
    }
}

/// Whether file `name` belongs to the database: damage to what it is about to remove would prove nothing.
fn is_needed(name: &str, said: &str) -> bool {
    let oldest = said.lines().find_map(|line| line.strip_prefix("oldest-wal ")?.parse::<u64>().ok());
    match FileKind::parse(name) {
        Some(FileKind::Wal(number)) => oldest.is_none_or(|oldest| number.0 >= oldest),
        Some(FileKind::Table(_)) => said.lines().any(|line| line.strip_prefix("live /") == Some(name)),
        kind => kind.is_some(),
    }
}

fn add_lines(script: &mut String, step: &Step) {
    // A string takes whatever is written.
    let _ = match step {
        Step::Write(changes) => {
            for change in changes {
                let _ = match change {
                    Change::Put(cf, key, value) => writeln!(script, "put {cf} {} {}", hex(key), hex(value)),
                    Change::Delete(cf, key) => writeln!(script, "delete {cf} {}", hex(key)),
                    Change::Append(cf, key, operand) => {
                        writeln!(script, "merge {cf} {} {}", hex(key), hex(operand))
                    }
                    Change::DeleteRange(cf, begin, end) => {
                        writeln!(script, "delete_range {cf} {} {}", hex(begin), hex(end))
                    }
                };
            }
            writeln!(script, "write")
        }
        Step::Flush(which) => which.iter().try_for_each(|&cf| writeln!(script, "flush {}", FAMILIES[cf])),
        Step::Rewrite(cf) => writeln!(script, "pause\ncompact {}", FAMILIES[*cf]),
        Step::BeginUnflushed => Ok(()),
    };
}

/// What the options of a sample of `shape` are in RocksDB's words.
fn options(shape: Shape, more: &str) -> String {
    let own = match shape {
        Shape::Rich => {
            "compression=kZSTD;block_based_table_factory={format_version=6;block_size=512;metadata_block_size=128;\
             filter_policy=bloomfilter:10:false;index_type=kTwoLevelIndexSearch;partition_filters=true}"
        }
        Shape::Recycled => "recycle_log_file_num=2",
        Shape::Plain | Shape::Flushed | Shape::Long => "",
    };
    let all = ["disable_auto_compactions=true", "merge_operator=stringappend", own, more];
    all.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(";")
}

/// A process that reads damaged databases of one shape, each in a child of its own.
pub struct PeerReader {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl PeerReader {
    /// Starts one that reads copies of `sample` with `more` options of the database.
    #[allow(clippy::disallowed_methods)] // Another engine's process.
    pub fn start(driver: &Path, sample: &PeerSample, more: &str) -> std::io::Result<Self> {
        let mut child = Command::new(driver)
            .args(["read", &HANG_SECONDS.to_string(), &options(sample.shape, more)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null()) // Where assertions and exceptions go.
            .spawn()?;
        let mut input = child.stdin.take().expect("piped");
        let absent: [&[u8]; 2] = [b"absent", b"zzz"];
        let keys = sample.keys.iter().map(Vec::as_slice).chain(absent).map(hex);
        writeln!(input, "{}", keys.collect::<Vec<_>>().join(" "))?;
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Ok(Self { child, input: Some(input), output })
    }

    /// Reads everything in `dir`. An error is one of this process, not of the database.
    pub fn read(&mut self, dir: &Path) -> Result<Answer, String> {
        let failed = |error: std::io::Error| format!("the reading process: {error}");
        let input = self.input.as_mut().expect("it is taken at the end");
        writeln!(input, "{}", dir.display()).and_then(|()| input.flush()).map_err(failed)?;
        let mut answer = Answer { reading: Reading::default(), refusals: 0, ways_differ: false, end: None };
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line).map_err(failed)? == 0 {
                return Err("the reading process has ended".to_owned());
            }
            let text = line.trim_end();
            if let Some(end) = text.strip_prefix("end ") {
                answer.end = match end {
                    "exit 0" => None,
                    "hang" => Some(End::Hang),
                    _ => Some(End::Crash),
                };
                return Ok(answer);
            }
            let _ = answer.take(text); // Half a line says nothing: the child crashed while it wrote.
        }
    }
}

impl Drop for PeerReader {
    fn drop(&mut self) {
        drop(self.input.take()); // It ends with its input.
        let _ = self.child.wait(); // Nothing to do if it is gone already.
    }
}

impl Answer {
    /// Takes in a line; `None` for one that says nothing, or that a crash has cut.
    fn take(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.splitn(5, ' ').collect();
        match words[..] {
            ["open" | "scanned", "error", ..] | ["get", _, _, "error", ..] => self.refusals += 1,
            ["get", cf, key, "none"] => self.found(cf, unhex(key)?, None),
            ["get", cf, key, "value"] => self.found(cf, unhex(key)?, Some(Vec::new())),
            ["get", cf, key, "value", value] => self.found(cf, unhex(key)?, Some(unhex(value)?)),
            ["scan", cf, direction] => self.reading.scans.push(Scan {
                family: cf.to_owned(),
                backward: direction == "backward",
                entries: Vec::new(),
                whole: false,
            }),
            ["entry", key, value] => {
                self.reading.scans.last_mut()?.entries.push((unhex(key)?, unhex(value)?));
            }
            ["entry", key] => self.reading.scans.last_mut()?.entries.push((unhex(key)?, Vec::new())),
            ["scanned", "whole"] => self.reading.scans.last_mut()?.whole = true,
            _ => return None,
        }
        Some(())
    }

    /// A key is asked for twice, in two ways; a wrong answer stays in.
    fn found(&mut self, cf: &str, key: Vec<u8>, value: Option<Vec<u8>>) {
        let found = self.reading.found.entry(cf.to_owned()).or_default();
        match found.get(&key) {
            Some(before) if *before != value => self.ways_differ = true,
            _ => drop(found.insert(key, value)),
        }
    }
}

fn hex(bytes: impl AsRef<[u8]>) -> String {
    let mut text = String::new();
    for byte in bytes.as_ref() {
        let _ = write!(text, "{byte:02x}"); // A string takes whatever is written.
    }
    text
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}
