//! Takes the power from a file system while the child writes to it.
//!
//! A file system on a loop device is shut down with the `FS_IOC_SHUTDOWN` call: from then on it takes nothing more,
//! and what it had not written stays unwritten. The next mount replays its journal, as after a power loss.
//!
//! A sync that is under way when the call is made may succeed and yet be lost: a program that does nothing but append
//! and call `fdatasync` sees that on ext4 and XFS (Linux 6.18) about once in a hundred calls, always with its last
//! append. So what counts is what had been reported before the call.

use super::child::{start, take_reports};
use super::mounted::{Kind, Mounted};
use super::{Logs, Syncs, WRITERS, verify};
use ironstone_base::sync::{Arc, Mutex};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// After so many losses a new database is begun.
const CYCLES: u64 = 10;

/// How a file system goes down: the flags of the call.
const GOING: [(&str, u32); 3] = [("flush", 0), ("log flushed", 1), ("nothing flushed", 2)];

/// What the losses came to.
#[derive(Clone, Copy, Default, Debug)]
pub struct Lost {
    /// Power losses.
    pub losses: u64,
    /// Writes that had been reported as durable by then.
    pub reported: u64,
    /// Whether this machine would not mount the file system: nothing was tried.
    pub unmountable: bool,
}

/// Lets the power fail `losses` times on a file system of `kind` that is made below `dir`. `shut_down` makes the
/// call on a mounted file system with the given flags.
#[allow(clippy::disallowed_methods)] // Real processes in real time.
pub fn run_losses(
    dir: &Path,
    kind: &Kind,
    losses: u64,
    seed: u64,
    shut_down: &dyn Fn(&Path, u32) -> std::io::Result<()>,
) -> Result<Lost, String> {
    let mut rng = StdRng::seed_from_u64(seed);
    let Some(mut mounted) = Mounted::make(dir, *kind)? else {
        return Ok(Lost { unmountable: true, ..Lost::default() });
    };
    let point = mounted.point();
    let database = point.join("db");
    let mut done = Lost::default();
    let mut last = [0; WRITERS];
    while done.losses < losses {
        let logs = Logs::of_cycle(done.losses / CYCLES);
        let syncs = if logs == Logs::Long { Syncs::Some } else { Syncs::All };
        if done.losses.is_multiple_of(CYCLES) {
            let _ = std::fs::remove_dir_all(&database);
            last = [0; WRITERS];
        }
        let (going, flags) = GOING[rng.random_range(0..GOING.len())];
        let number = done.losses;
        let fail = |problem: String| {
            format!("power loss {number} of seed {seed} on {} ({going}): {problem}", kind.name)
        };
        let mut child = start(&database, &last, logs, syncs).map_err(|error| fail(error.to_string()))?;
        let mut pipe = child.stdout.take().expect("piped");
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&bytes);
        let reader = std::thread::spawn(move || {
            let mut chunk = [0; 900];
            while let Ok(count @ 1..) = pipe.read(&mut chunk) {
                taken.lock().extend_from_slice(&chunk[..count]);
            }
        });
        std::thread::sleep(Duration::from_micros(rng.random_range(1_000..80_000)));
        let before = bytes.lock().clone();
        shut_down(&point, flags).map_err(|error| fail(format!("shut down: {error}")))?;
        child.kill().map_err(|error| fail(error.to_string()))?;
        child.wait().map_err(|error| fail(error.to_string()))?;
        reader.join().expect("it reads");
        let mut reported = last;
        take_reports(&before, &mut reported).map_err(fail)?;
        mounted.unmount().map_err(fail)?;
        mounted.mount().map_err(fail)?;
        last = verify(&database, logs, &reported).map_err(fail)?;
        done.losses += 1;
        done.reported += before.len() as u64 / super::child::REPORT_BYTES as u64;
    }
    mounted.remove()?;
    Ok(done)
}
