//! Kills the child at a random moment, again and again.

use super::child::{start, take_reports};
use super::{Logs, Syncs, WRITERS, verify};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// After so many kills a new database is begun.
const CYCLES: u64 = 50;

/// What the kills came to.
#[derive(Clone, Copy, Default, Debug)]
pub struct Killed {
    /// Kills.
    pub kills: u64,
    /// Writes that had been reported by then, over all kills.
    pub reported: u64,
    /// Kills before the first report: in the opening.
    pub in_opening: u64,
}

/// Kills `kills` children that write to a database in `dir`, which must not exist.
#[allow(clippy::disallowed_methods)] // Real processes in real time.
pub fn run(dir: &Path, kills: u64, seed: u64) -> Result<Killed, String> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut done = Killed::default();
    let mut last = [0; WRITERS];
    while done.kills < kills {
        let logs = Logs::of_cycle(done.kills / CYCLES);
        if done.kills.is_multiple_of(CYCLES) {
            remove(dir)?;
            last = [0; WRITERS];
        }
        let fail =
            |problem: String| format!("kill {} of seed {seed}, {}: {problem}", done.kills, dir.display());
        let syncs = if rng.random_bool(0.2) { Syncs::All } else { Syncs::None };
        let mut child = start(dir, &last, logs, syncs).map_err(|error| fail(error.to_string()))?;
        let most = match logs {
            Logs::Long => 90_000,
            Logs::Short if rng.random_bool(0.3) => 6_000,
            Logs::Short => 30_000,
        };
        let mut pipe = child.stdout.take().expect("piped");
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.read_to_end(&mut bytes).map(|_| bytes)
        });
        std::thread::sleep(Duration::from_micros(rng.random_range(500..most)));
        child.kill().map_err(|error| fail(error.to_string()))?;
        child.wait().map_err(|error| fail(error.to_string()))?;
        let bytes = reader.join().expect("it reads").map_err(|error| fail(error.to_string()))?;
        let mut reported = last;
        take_reports(&bytes, &mut reported).map_err(fail)?;
        done.kills += 1;
        done.reported += bytes.len() as u64 / super::child::REPORT_BYTES as u64;
        done.in_opening += u64::from(bytes.is_empty());
        // Not always: the next child may be killed while it recovers from this kill.
        if !bytes.is_empty() || rng.random_bool(0.5) {
            last = verify(dir, logs, &reported).map_err(|problem| {
                format!("kill {} of seed {seed}, {}: {problem}", done.kills, dir.display())
            })?;
        }
    }
    remove(dir)?;
    Ok(done)
}

fn remove(dir: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", dir.display()))
        }
        _ => Ok(()),
    }
}
