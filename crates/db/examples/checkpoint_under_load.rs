//! How long writes wait while a checkpoint of a large database is made.
//!
//! ```text
//! cargo run --release -p ironstone --example checkpoint_under_load -- DIRECTORY [GIB]
//! ```
//! Loads the database (10 GiB), lets it come to rest, then writes 100 bytes at a time, one write each 100 us, through ten
//! checkpoints and as long without, and prints the longest write of each.
#![allow(clippy::disallowed_methods)] // A program of its own, with the system's clock.

use ironstone::{Db, Options};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const VALUE: usize = 4000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir: PathBuf = arguments.next().ok_or("which directory?")?.into();
    let gib: u64 = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.db.increase_parallelism(2);
    let db = Db::open(&options, dir.join("db"))?;
    let mut seed = 1_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 20
    };
    let mut value = vec![0_u8; VALUE];
    for number in 0..(gib << 30) / VALUE as u64 {
        value.chunks_mut(8).for_each(|part| part.copy_from_slice(&random().to_le_bytes()[..part.len()]));
        db.put(number.to_be_bytes(), &value)?;
    }
    db.flush()?;
    db.wait_for_compact()?;
    println!(
        "loaded {} tables, {} MiB",
        db.live_files().len(),
        db.live_files().iter().map(|file| file.size).sum::<u64>() >> 20
    );

    let stop = AtomicBool::new(false);
    for round in 0..10 {
        let took = std::thread::scope(|scope| -> Result<_, Box<dyn std::error::Error>> {
            stop.store(false, Ordering::Relaxed);
            let writer = scope.spawn(|| longest_write(&db, &stop));
            std::thread::sleep(Duration::from_millis(200));
            let start = Instant::now();
            let made = db.checkpoint(dir.join(format!("checkpoint{round}")));
            let took = start.elapsed();
            std::thread::sleep(Duration::from_millis(200));
            stop.store(true, Ordering::Relaxed);
            made?;
            Ok((took, writer.join().expect("it does not panic")?))
        })?;
        let without = std::thread::scope(|scope| {
            stop.store(false, Ordering::Relaxed);
            let writer = scope.spawn(|| longest_write(&db, &stop));
            std::thread::sleep(took.0 + Duration::from_millis(400));
            stop.store(true, Ordering::Relaxed);
            writer.join().expect("it does not panic")
        })?;
        println!(
            "checkpoint {round}: {:?}; longest write beside it {:?}, without one {without:?}",
            took.0, took.1
        );
    }
    Ok(())
}

fn longest_write(db: &Db, stop: &AtomicBool) -> ironstone::Result<Duration> {
    let mut longest = Duration::ZERO;
    let mut number = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        db.put(format!("write{number}"), [7; 100])?;
        longest = longest.max(start.elapsed());
        number += 1;
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(longest)
}
