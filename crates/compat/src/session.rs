//! RocksDB in a process that takes one step after the other, so that a test can act between them while the database is open.
//!
//! A step is a line of words; keys, values and data are hexadecimal digits, and OPTIONS is RocksDB's option string.
//!
//! ```text
//! open DIR OPTIONS                       creates the database if need be
//! open_with_ttl DIR SECONDS OPTIONS      the same, with RocksDB's DBWithTTL
//! open_secondary DIR OWN_DIR OPTIONS
//! catch_up                               of a secondary, with its primary
//! write put:KEY:VALUE merge:KEY:VALUE delete:KEY log:DATA ..     one batch
//! flush | compact | close
//! get KEY                                -> the value, if there is one
//! scan                                   -> KEY:VALUE ..
//! latest_sequence                        -> a number
//! updates SEQUENCE                       -> SEQUENCE:BATCH .., what the log iterator shows from there on
//! copy_options DIR TO                    creates a database with the options that are stored in DIR -> its column families
//! ```
//! An answer is the line `answer` with the words behind the arrow, and a line `ok` or `error ..`.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::driver::{Driver, oracle, ran};

/// The releases of RocksDB that take steps.
pub const SESSIONS: [Driver; 2] = [Driver::RocksDb7, Driver::RocksDb11];

/// A process of RocksDB. It closes its database and ends with this value.
pub struct Session {
    name: &'static str,
    child: Child,
    steps: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Session {
    /// Starts the process; `None` if it is not installed and the test should go on without it.
    #[track_caller]
    pub fn start(release: Driver) -> Option<Self> {
        let program = match release {
            Driver::RocksDb7 => "rocksdb_session_7",
            Driver::RocksDb11 => "rocksdb_session_11",
            other => panic!("{} takes no steps", other.name()),
        };
        let mut command = Command::new(ran(oracle(program))?);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it is there");
        let steps = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        Some(Self { name: release.name(), child, steps, answers })
    }

    /// Takes a step: the words of the answer, or the error.
    #[track_caller]
    pub fn ask(&mut self, step: &str) -> Result<Vec<String>, String> {
        let steps = self.steps.as_mut().expect("open until it is dropped");
        writeln!(steps, "{step}").expect("it takes steps");
        let (answer, end) = (self.line(step), self.line(step));
        let words = answer.strip_prefix("answer").expect("the first line of an answer").split_whitespace();
        match end.strip_prefix("error ") {
            Some(error) => Err(format!("{}: {step}: {error}", self.name)),
            None => Ok(words.map(str::to_owned).collect()),
        }
    }

    /// Takes a step that has to succeed: the words of the answer.
    #[track_caller]
    pub fn run(&mut self, step: &str) -> Vec<String> {
        self.ask(step).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Every entry that there is.
    #[track_caller]
    pub fn entries(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let entry = |text: &String| {
            let (key, value) = text.split_once(':').expect("a key and a value");
            (unhex(key), unhex(value))
        };
        self.run("scan").iter().map(entry).collect()
    }

    #[track_caller]
    fn line(&mut self, step: &str) -> String {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line).expect("it can be read");
        assert!(read > 0, "{} ended at the step {step}", self.name);
        line.trim_end().to_owned()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.steps.take()); // Its input ends, so it closes the database.
        let _ = self.child.wait(); // Nothing to do if it is gone already.
    }
}

/// Bytes as a step has them.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // Writing to a string never fails.
        text
    })
}

/// The bytes that an answer has; `-` is none.
pub fn unhex(text: &str) -> Vec<u8> {
    let digits = text.trim_start_matches('-').as_bytes();
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("ASCII");
        u8::from_str_radix(pair, 16).expect("hexadecimal digits")
    };
    digits.chunks(2).map(byte).collect()
}
