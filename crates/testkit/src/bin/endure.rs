//! Kills processes, takes the power from file systems and lets their space end while a database is written to; damages databases of
//! Ironstone and of RocksDB side by side.
//!
//! ```text
//! endure kill  COUNT SEED DIRECTORY              directory: best on tmpfs
//! endure power COUNT SEED DIRECTORY FILESYSTEM   as root; ext4-ordered, ext4-writeback or xfs
//! endure full  COUNT SEED DIRECTORY FILESYSTEM   as root; ext4-ordered, ext4-writeback, xfs or tmpfs
//! endure damage EVERY DRIVER DIRECTORY           every how many bytes; the driver of RocksDB; best on tmpfs
//! ```
//! The last line says what was done, as JSON.
#![deny(unsafe_code)] // One call lifts it.

use ironstone_testkit::damage::side_by_side;
use ironstone_testkit::process::mounted::{KINDS, missing};
use ironstone_testkit::process::{child, full, kill, power};
use rustix::ioctl;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// `FS_IOC_SHUTDOWN` of Linux: `_IOR('X', 125, __u32)`.
const SHUT_DOWN: ioctl::Opcode = ioctl::opcode::read::<u32>(b'X', 125);

#[allow(unsafe_code, clippy::disallowed_methods)]
fn shut_down(point: &Path, flags: u32) -> std::io::Result<()> {
    let directory = std::fs::File::open(point)?;
    // SAFETY: the call reads one u32 behind the pointer, which the setter holds, and keeps nothing.
    unsafe { ioctl::ioctl(&directory, ioctl::Setter::<SHUT_DOWN, u32>::new(flags)) }?;
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<String, String> {
    let at =
        |index: usize| arguments.get(index).map(String::as_str).ok_or("too few arguments; see the source");
    let number = |index| at(index)?.parse::<u64>().map_err(|error| format!("argument {index}: {error}"));
    match at(0)? {
        "child" => child::run(&arguments[1..]).map(|()| String::new()),
        "kill" => {
            let (count, seed, dir) = (number(1)?, number(2)?, PathBuf::from(at(3)?));
            let done = kill::run(&dir, count, seed)?;
            Ok(serde_json::json!({ "kills": done.kills, "seed": seed, "reported_writes": done.reported,
                "before_the_first_report": done.in_opening, "failures": 0 })
            .to_string())
        }
        what @ ("power" | "full") => {
            let (count, seed, dir) = (number(1)?, number(2)?, PathBuf::from(at(3)?));
            let name = at(4)?;
            let kind = KINDS.iter().find(|kind| kind.name == name).ok_or("no such file system")?;
            if let Some(reason) = missing(*kind) {
                return Ok(format!("SKIP {name}: {reason}"));
            }
            let (done, reported, unmountable) = if what == "full" {
                let done = full::run(&dir, kind, count, seed)?;
                (done.ends, done.reported, done.unmountable)
            } else if kind.stays() {
                let done = power::run_losses(&dir, kind, count, seed, &shut_down)?;
                (done.losses, done.reported, done.unmountable)
            } else {
                return Err(format!("{name} is gone without power"));
            };
            if unmountable {
                return Ok(format!("SKIP {name}: it cannot be mounted here"));
            }
            let counted = if what == "full" { "ends" } else { "losses" };
            Ok(serde_json::json!({ counted: done, "seed": seed, "file_system": name, "reported_writes": reported,
                "failures": 0 })
            .to_string())
        }
        "damage" => {
            let (every, driver, dir) = (number(1)?.max(1), PathBuf::from(at(2)?), PathBuf::from(at(3)?));
            side_by_side::check_undamaged(&driver, &dir)?;
            side_by_side::run(&driver, &dir, every).map(|table| table.to_string())
        }
        other => Err(format!("{other}: no such command")),
    }
}
