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
use std::time::Duration;

/// How often it is looked whether space came back, each time after [`BETWEEN_LOOKS`]: ten seconds in all.
const LOOKS: usize = 1_000;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// What the file system may keep for itself.
const SLACK: u64 = 2 << 20;

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
    let point = mounted.point();
    let (database, filler) = (point.join("db"), point.join("filler"));
    let space = free(&point).map_err(|error| error.to_string())?;
    let mut done = Filled::default();
    while done.ends < ends {
        let number = done.ends;
        let fail = |problem: String| format!("full disk {number} of seed {seed} on {}: {problem}", kind.name);
        let room = rng.random_range(4 << 20..60 << 20);
        let filled = await_free(&point, space).and_then(|()| fill(&point, &filler, room));
        let filled = filled.map_err(|error| fail(format!("fill: {error}")))?;
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
        let left = free(&point).map_err(|error| fail(error.to_string()))?;
        std::fs::remove_file(&filler).map_err(|error| fail(error.to_string()))?;
        await_free(&point, left + filled).map_err(|error| fail(error.to_string()))?;
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

/// Leaves `room` bytes at `point`. How many it took.
#[allow(clippy::disallowed_methods)]
fn fill(point: &Path, filler: &Path, room: u64) -> std::io::Result<u64> {
    let space = statvfs(point)?;
    let len = (space.f_bavail * space.f_frsize).saturating_sub(room);
    let file = std::fs::File::create(filler)?;
    fallocate(&file, FallocateFlags::empty(), 0, len)?;
    Ok(len)
}

/// How many bytes are free, those that are reserved for the superuser among them: the child may write to them.
fn free(point: &Path) -> std::io::Result<u64> {
    let space = statvfs(point)?;
    Ok(space.f_bfree * space.f_frsize)
}

/// Waits until about so many bytes are free: xfs gives back what a removed file had some time after.
#[allow(clippy::disallowed_methods)]
fn await_free(point: &Path, bytes: u64) -> std::io::Result<()> {
    for _ in 0..LOOKS {
        if free(point)? + SLACK >= bytes {
            return Ok(());
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    Err(std::io::Error::other(format!("{} bytes of {bytes} are free after ten seconds", free(point)?)))
}
