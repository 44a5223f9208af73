//! Keeps a second database equal to a live one: the leader sends the batches of its log through a pipe, the follower,
//! a process of its own, applies them.
//!
//! ```text
//! cargo run --release --example follower -- [DIRECTORY [SECONDS]]
//! ```
//! The follower begins with a checkpoint of the leader. Then each message is a sequence number and a length, both
//! u64 LE, and a batch. At its end the pipe is closed, and both sides print a digest of all that they hold. Half-way the
//! follower is killed and started again: it goes on behind what it had written.
#![allow(clippy::disallowed_methods)] // No simulator runs this.

use ironstone::{Db, Options, Result, WriteBatch, WriteOptions};
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const WRITERS: u64 = 4;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next();
    let done = match first.as_deref() {
        Some("--follow") => follow(Path::new(&arguments.next().expect("a directory"))),
        _ => {
            let scratch = tempfile::tempdir().expect("a temporary directory");
            let dir = first.map_or_else(|| scratch.path().to_owned(), PathBuf::from);
            let seconds = arguments.next().map_or(2.0, |text| text.parse().expect("seconds"));
            lead(&dir, Duration::from_secs_f64(seconds))
        }
    };
    done.expect("the follower example");
}

fn options() -> Options {
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.db.wal_ttl_seconds = 3600; // A follower may be away for an hour.
    options.cf.write_buffer_size = 1 << 20; // So that the log goes over many files.
    options
}

fn lead(dir: &Path, time: Duration) -> Result<()> {
    let db = Db::open(&options(), dir.join("leader"))?;
    db.put("written", "before the follower was there")?;
    let copy = dir.join("follower");
    db.checkpoint(&copy)?;

    let stop = AtomicBool::new(false);
    let (sent, mut follower) = std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, stop) = (&db, &stop);
            scope.spawn(move || write(db, stop, writer));
        }
        let result = feed_for(&db, &copy, time);
        stop.store(true, Ordering::Relaxed);
        result
    })?;
    let sent = sent + send(&db, &mut follower, || true)?;

    let ours = digest(&db)?;
    let theirs = follower.finish();
    println!("leader:   {ours}\nfollower: {theirs}\n{sent} batches sent");
    assert_eq!(ours, theirs);
    Ok(())
}

fn feed_for(db: &Db, copy: &Path, time: Duration) -> Result<(u64, Follower)> {
    let started = Instant::now();
    let mut follower = start(copy);
    let sent = send(db, &mut follower, || started.elapsed() >= time / 2)?;
    follower.process.kill().expect("kill the follower");
    follower.process.wait().expect("wait for the follower");
    let mut follower = start(copy);
    let sent = sent + send(db, &mut follower, || started.elapsed() >= time)?;
    Ok((sent, follower))
}

fn write(db: &Db, stop: &AtomicBool, writer: u64) {
    for i in 0u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let mut batch = WriteBatch::new();
        batch.put(format!("{writer}/{}", i % 5000), format!("{i}").repeat(10));
        batch.delete(format!("{writer}/{}", i * 7919 % 5000));
        if i % 1000 == 999 {
            batch.delete_range(format!("{writer}/1"), format!("{writer}/2"));
        }
        batch.put_log_data(format!("writer {writer}").as_bytes());
        db.write(&batch, &WriteOptions { sync: i % 500 == 0, ..WriteOptions::default() }).expect("write");
    }
}

/// Sends what the follower lacks, until `enough` and nothing is left. Answers how many batches that was.
fn send(db: &Db, follower: &mut Follower, enough: impl Fn() -> bool) -> Result<u64> {
    let mut updates = db.get_updates_since(ironstone::SequenceNumber(follower.next))?;
    let mut sent = 0;
    loop {
        let last_round = enough();
        while let Some(update) = updates.next_update()? {
            follower.send(update.sequence.0, &update.batch);
            follower.next = update.next_sequence().0;
            sent += 1;
            if !last_round && enough() {
                break;
            }
        }
        follower.input.flush().expect("the follower is there");
        if last_round {
            return Ok(sent);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

struct Follower {
    process: Child,
    input: BufWriter<std::process::ChildStdin>,
    output: BufReader<std::process::ChildStdout>,
    /// The first write that it lacks.
    next: u64,
}

fn start(dir: &Path) -> Follower {
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(program);
    command.arg("--follow").arg(dir).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = command.spawn().expect("start the follower");
    let input = BufWriter::new(process.stdin.take().expect("it is piped"));
    let mut output = BufReader::new(process.stdout.take().expect("it is piped"));
    let mut next = [0; 8];
    output.read_exact(&mut next).expect("the follower says where it is");
    Follower { process, input, output, next: u64::from_le_bytes(next) }
}

impl Follower {
    fn send(&mut self, sequence: u64, batch: &WriteBatch) {
        let data = batch.data();
        let length = data.len() as u64;
        let parts = [&sequence.to_le_bytes()[..], &length.to_le_bytes(), data];
        parts.iter().try_for_each(|part| self.input.write_all(part)).expect("the follower is there");
    }

    fn finish(mut self) -> String {
        drop(self.input);
        let mut text = String::new();
        self.output.read_to_string(&mut text).expect("the follower's digest");
        assert!(self.process.wait().expect("wait for the follower").success());
        text.trim_end().to_owned()
    }
}

fn follow(dir: &Path) -> Result<()> {
    let db = Db::open(&options(), dir)?;
    let mut output = std::io::stdout();
    let next = db.latest_sequence().plus(1);
    output.write_all(&next.0.to_le_bytes()).and_then(|()| output.flush()).expect("the leader is there");
    let mut input = BufReader::new(std::io::stdin());
    loop {
        let (mut sequence, mut length) = ([0; 8], [0; 8]);
        match input.read_exact(&mut sequence) {
            Err(end) if end.kind() == ErrorKind::UnexpectedEof => break,
            read => read.expect("read the pipe"),
        }
        input.read_exact(&mut length).expect("read the pipe");
        let mut data = vec![0; u64::from_le_bytes(length) as usize];
        input.read_exact(&mut data).expect("read the pipe");
        let batch = WriteBatch::from_data(data)?;
        // Equal sequence numbers mean that nothing is missing, and nothing applied twice.
        assert_eq!(db.latest_sequence().plus(1).0, u64::from_le_bytes(sequence));
        db.write(&batch, &WriteOptions::default())?;
    }
    println!("{}", digest(&db)?);
    Ok(())
}

/// The last sequence number, the number of keys, and a hash of keys and values.
fn digest(db: &Db) -> Result<String> {
    let (mut keys, mut hash) = (0u64, 0xcbf2_9ce4_8422_2325_u64);
    for entry in db.iter()?.entries() {
        let (key, value) = entry?;
        keys += 1;
        for &byte in key.iter().chain(&[0]).chain(value.iter()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    Ok(format!("write {}, {keys} keys, {hash:016x}", db.latest_sequence()))
}
