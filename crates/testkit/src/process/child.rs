//! The process that writes until it is stopped.

use super::{WRITERS, batch, handles, open};
use ironstone::WriteOptions;
use ironstone_base::sync::{Arc, thread};
use std::io::{Read, Write};
use std::path::Path;

/// One report on the pipe: writer (u8) and number (u64 LE).
pub const REPORT_BYTES: usize = 9;

/// Writes to the database in `dir`, each thread from the batch after `last` on, and reports to standard output. With
/// `sync`, every write is synced. Ends with its standard input, or when a write fails.
pub fn write(dir: &Path, last: [u64; WRITERS], sync: bool) -> Result<(), String> {
    let db = Arc::new(open(dir).map_err(|error| format!("open: {error}"))?);
    let mut threads = Vec::new();
    for (writer, last) in last.into_iter().enumerate() {
        let db = Arc::clone(&db);
        threads.push(thread::spawn_named("writer", move || {
            let cfs = handles(&db);
            let options = WriteOptions { sync, ..WriteOptions::default() };
            for number in last + 1.. {
                if db.write(&batch(&cfs, writer, number), &options).is_err() {
                    return;
                }
                let mut report = [0; REPORT_BYTES];
                report[0] = writer as u8;
                report[1..].copy_from_slice(&number.to_le_bytes());
                // One write, shorter than a pipe's buffer: never torn.
                let mut out = std::io::stdout().lock();
                if out.write_all(&report).and_then(|()| out.flush()).is_err() {
                    return;
                }
            }
        }));
    }
    let mut rest = Vec::new();
    let _ = std::io::stdin().read_to_end(&mut rest);
    std::process::exit(0);
}

/// Starts this program as the child. `arguments` come before those of the child.
pub fn start(dir: &Path, last: &[u64; WRITERS], sync: bool) -> std::io::Result<std::process::Child> {
    use std::process::{Command, Stdio};
    let numbers = last.map(|number| number.to_string()).join(",");
    Command::new(std::env::current_exe()?)
        .arg("child")
        .arg(dir)
        .arg(numbers)
        .arg(if sync { "sync" } else { "nosync" })
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
}

/// Takes in what a child has reported.
pub fn take_reports(bytes: &[u8], reported: &mut [u64; WRITERS]) -> Result<(), String> {
    for report in bytes.chunks_exact(REPORT_BYTES) {
        let number = u64::from_le_bytes(*report[1..].first_chunk().expect("eight bytes"));
        let slot = reported.get_mut(usize::from(report[0])).ok_or("a report of an unknown writer")?;
        *slot = (*slot).max(number);
    }
    Ok(())
}
