//! Every byte of every file of a small database damaged once, and what reading it then gives.

use ironstone::WalRecoveryMode;
use ironstone_base::FileKind;
use ironstone_testkit::damage::{Damage, Outcome, Sample, Shape, kind};
use ironstone_testkit::watchdog::Watchdog;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

struct Trial<'a> {
    sample: &'a Sample,
    path: PathBuf,
    damage: Damage,
    mode: WalRecoveryMode,
}

#[derive(Default)]
struct Row {
    trials: u64,
    error: u64,
    correct: u64,
    tolerated: u64,
    failures: Vec<String>,
}

#[test]
fn probe() {
    let samples: Vec<Sample> = Shape::ALL.into_iter().map(Sample::new).collect();
    let mut trials = Vec::new();
    for sample in &samples {
        for path in sample.files() {
            let len = sample.len(&path);
            println!("{:?} {} {len}", sample.shape(), path.display());
            for offset in 0..len {
                for damage in [
                    Damage::Bit { offset, bit: (offset % 8) as u8 },
                    Damage::Byte { offset },
                    Damage::Cut { len: offset },
                ] {
                    if offset % 3 == 0 {
                        trials.push(Trial {
                            sample,
                            path: path.clone(),
                            damage,
                            mode: WalRecoveryMode::PointInTimeRecovery,
                        });
                    }
                }
            }
        }
    }
    let next = AtomicUsize::new(0);
    let watchdog = Watchdog::new(Duration::from_secs(30));
    let rows = std::sync::Mutex::new(BTreeMap::<String, Row>::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(trial) = trials.get(at) else { break };
                    let what =
                        format!("{:?} {} {}", trial.sample.shape(), trial.path.display(), trial.damage);
                    let _watched = watchdog.watch(what.clone());
                    let run = || trial.sample.try_damage(&trial.path, &trial.damage, trial.mode);
                    let outcome = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("panic".into()));
                    let name = match kind(&trial.path) {
                        FileKind::Wal(_) => "WAL",
                        FileKind::Table(_) => "SST",
                        FileKind::Manifest(_) => "MANIFEST",
                        FileKind::Current => "CURRENT",
                        FileKind::Identity => "IDENTITY",
                        FileKind::Options(_) => "OPTIONS",
                        _ => "other",
                    };
                    let dk = format!("{:?}", trial.damage);
                    let dk = dk.split(' ').next().unwrap();
                    let mut rows = rows.lock().unwrap();
                    let row = rows.entry(format!("{:?} {name} {dk}", trial.sample.shape())).or_default();
                    row.trials += 1;
                    match outcome {
                        Ok(Outcome::Error) => row.error += 1,
                        Ok(Outcome::Correct) => row.correct += 1,
                        Ok(Outcome::Tolerated) => row.tolerated += 1,
                        Err(f) => row.failures.push(format!("{what}: {f}")),
                    }
                }
            });
        }
    });
    for (name, row) in rows.into_inner().unwrap() {
        println!(
            "{name:30} trials {:6} error {:6} correct {:6} tolerated {:6} failures {}",
            row.trials,
            row.error,
            row.correct,
            row.tolerated,
            row.failures.len()
        );
        for f in row.failures.iter().take(3) {
            println!("      {}", f.chars().take(300).collect::<String>());
        }
    }
}
