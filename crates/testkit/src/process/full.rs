//! Lets the space of a file system end while the child writes to it.
//!
//! The child's writes must fail with an error, which is the end of the child: no signal may be. When there is space again,
//! what was reported must be there.

use super::child::{start, take_reports};
use super::mounted::{Kind, Mounted};
use super::{Logs, Syncs, WRITERS, verify};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use std::io::Read;
use std::path::Path;

/// What it came to.
#[derive(Clone, Copy, Default, Debug)]
pub struct Filled {
    /// How often the space ended.
    pub ends: u64,
    /// Writes that had been reported by then.
    pub reported: u64,
    /// Whether this machine would not mount the file system: nothing was tried.
    pub unmountable: bool,
}

/// Lets the space end `ends` times on a file system of `kind` that is made below `dir`, for a new database each time.
#[allow(clippy::disallowed_methods)] // Real processes and files.
pub fn run(dir: &Path, kind: &Kind, ends: u64, seed: u64) -> Result<Filled, String> {
    let mut rng = StdRng::seed_from_u64(seed);
    let Some(mounted) = Mounted::make(dir, *kind)? else {
        return Ok(Filled { unmountable: true, ..Filled::default() });
    };
    let (database, filler) = (mounted.point().join("db"), mounted.point().join("filler"));
    let mut done = Filled::default();
    while done.ends < ends {
        let number = done.ends;
        let fail = |problem: String| format!("full disk {number} of seed {seed} on {}: {problem}", kind.name);
        let room = rng.random_range(4 << 20..60 << 20);
        fill(&mounted.point(), &filler, room).map_err(|error| fail(format!("fill: {error}")))?;
        let none = [0; WRITERS];
        let mut child =
            start(&database, &none, Logs::Long, Syncs::None).map_err(|error| fail(error.to_string()))?;
        let mut bytes = Vec::new();
        let mut pipe = child.stdout.take().expect("piped");
        pipe.read_to_end(&mut bytes).map_err(|error| fail(error.to_string()))?;
        let ended = child.wait().map_err(|error| fail(error.to_string()))?;
        if !ended.success() {
            return Err(fail(format!("the process ended by {ended}")));
        }
        std::fs::remove_file(&filler).map_err(|error| fail(error.to_string()))?;
        let mut reported = none;
        take_reports(&bytes, &mut reported).map_err(fail)?;
        verify(&database, Logs::Long, &reported).map_err(fail)?;
        std::fs::remove_dir_all(&database).map_err(|error| fail(error.to_string()))?;
        done.ends += 1;
        done.reported += bytes.len() as u64 / super::child::REPORT_BYTES as u64;
    }
    mounted.remove()?;
    Ok(done)
}

/// Leaves `room` bytes at `point`.
#[allow(clippy::disallowed_methods)]
fn fill(point: &Path, filler: &Path, room: u64) -> std::io::Result<()> {
    let space = statvfs(point)?;
    let free = space.f_bavail * space.f_frsize;
    let file = std::fs::File::create(filler)?;
    fallocate(&file, FallocateFlags::empty(), 0, free.saturating_sub(room))?;
    Ok(())
}
