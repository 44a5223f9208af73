//! The process that writes until it is stopped.

use super::{Logs, SOME, Syncs, WRITERS, batch, handles, open};
use ironstone::WriteOptions;
use ironstone_base::sync::{Arc, thread};
use std::io::{Read, Write};
use std::path::Path;

/// One report on the pipe: writer (u8) and number (u64 LE).
pub const REPORT_BYTES: usize = 9;

/// Writes to the database in `dir`, each thread from the batch after `last` on, and reports to standard output. Ends with
/// its standard input, or when a write fails.
fn write(dir: &Path, last: [u64; WRITERS], logs: Logs, syncs: Syncs) -> Result<(), String> {
    let db = Arc::new(open(dir, logs).map_err(|error| format!("open: {error}"))?);
    let mut threads = Vec::new();
    for (writer, last) in last.into_iter().enumerate() {
        let db = Arc::clone(&db);
        threads.push(thread::spawn_named("writer", move || {
            let cfs = handles(&db);
            for number in last + 1.. {
                let reported = syncs != Syncs::Some || number % SOME == 0;
                let options =
                    WriteOptions { sync: reported && syncs != Syncs::None, ..WriteOptions::default() };
                if db.write(&batch(&cfs, logs, writer, number), &options).is_err() {
                    return;
                }
                if !reported {
                    continue;
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
    thread::spawn_named("end", || {
        let mut rest = Vec::new();
        let _ = std::io::stdin().read_to_end(&mut rest);
        std::process::exit(0);
    });
    for thread in threads {
        thread.join().map_err(|_| "a writer panicked")?;
    }
    std::process::exit(0);
}

/// Does what [`start`] asked for: `arguments` are what follows the word `child`.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let [dir, numbers, logs, syncs] = arguments else { return Err("four arguments".to_owned()) };
    let numbers = numbers.split(',').map(str::parse::<u64>).collect::<Result<Vec<_>, _>>();
    let last = numbers
        .map_err(|error| error.to_string())?
        .try_into()
        .map_err(|_| "one number for each writer".to_owned())?;
    let logs = [Logs::Short, Logs::Long].into_iter().find(|one| format!("{one:?}") == *logs);
    let syncs = [Syncs::None, Syncs::All, Syncs::Some].into_iter().find(|one| format!("{one:?}") == *syncs);
    write(Path::new(dir), last, logs.ok_or("no such logs")?, syncs.ok_or("no such syncs")?)
}

/// Starts this program as the child.
pub fn start(
    dir: &Path,
    last: &[u64; WRITERS],
    logs: Logs,
    syncs: Syncs,
) -> std::io::Result<std::process::Child> {
    use std::process::{Command, Stdio};
    let numbers = last.map(|number| number.to_string()).join(",");
    Command::new(std::env::current_exe()?)
        .arg("child")
        .arg(dir)
        .arg(numbers)
        .arg(format!("{logs:?}"))
        .arg(format!("{syncs:?}"))
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
