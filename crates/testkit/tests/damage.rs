//! Every byte of every file of small databases damaged, and what reading them then gives.
//!
//! The regular run flips every byte once (those of OPTIONS and of the long files in steps) and takes
//! lengths in steps; `IRONSTONE_DAMAGE=all` takes every bit of every byte and every length, of OPTIONS in
//! one database, and of the WALs that are long for the sake of their blocks near the borders of these (in
//! steps elsewhere: they are payload). Tables of the results go to standard output.
//!
//! What is tolerated, and why (the module `damage` says what each is held to):
//!
//! * One bit of a WAL: nothing. Undoing the flip proves that the record had been whole.
//! * More of a WAL: bad bytes look like pages that a power loss kept from the disk, and the format of
//!   RocksDB before 9.11 has no room for a mark of what had been synced. Open goes on without them, as
//!   RocksDB's default does, unless tables of another column family hold later writes.
//! * A WAL or a MANIFEST that is cut, or of which the last append is bad: nothing says that it was longer, unless
//!   the MANIFEST lists the WAL, or a WAL is missing that its end had struck off. (What would say more: marks in
//!   the WAL of what was durable elsewhere, in the format of RocksDB 9.11 and later.)

use ironstone::WalRecoveryMode;
use ironstone_base::FileKind;
use ironstone_testkit::damage::sweep::{Table, Trial};
use ironstone_testkit::damage::{Access, Damage, Sample, Shape, kind};
use ironstone_testkit::record::record;
use ironstone_testkit::watchdog::Watchdog;
use std::path::{Path, PathBuf};
use std::time::Duration;

const DEFAULT_MODE: WalRecoveryMode = WalRecoveryMode::PointInTimeRecovery;

fn exhaustive() -> bool {
    std::env::var("IRONSTONE_DAMAGE").is_ok_and(|value| value == "all")
}

/// Whether the place is of a kind that stands in another file a hundred times.
fn is_repetition(sample: &Sample, path: &Path, place: u64) -> bool {
    const BLOCK: u64 = 32 * 1024;
    match kind(path) {
        FileKind::Options(_) => sample.shape() != Shape::Plain, // Never read when a database is opened.
        FileKind::Wal(_) if sample.shape() == Shape::Long => (place + 64) % BLOCK > 128,
        _ => false,
    }
}

/// Places in a file: every one, or so many of its kind that a run is short; `usual` is the step where
/// nothing else is said.
fn places(sample: &Sample, path: &Path, usual: u64) -> Vec<u64> {
    let len = sample.len(path);
    let seldom = match kind(path) {
        FileKind::Options(_) => 199,
        FileKind::Current | FileKind::Identity => 1,
        FileKind::Wal(_) | FileKind::Table(_) if sample.shape() == Shape::Long => 997,
        _ => usual,
    };
    // A different start in each file, so that all places of a format have their turn.
    let start = (path.as_os_str().len() as u64 + len) % seldom;
    let in_turn = |place: &u64| place % seldom == start;
    let mut places: Vec<_> = (0..len).collect();
    places.retain(|place| in_turn(place) || exhaustive() && !is_repetition(sample, path, *place));
    places
}

fn trials<'a>(
    samples: &'a [Sample],
    mode: WalRecoveryMode,
    access: Access,
    damages: impl Fn(&'a Sample, &Path) -> Vec<Damage>,
) -> Vec<Trial<'a>> {
    let mut trials = Vec::new();
    for sample in samples {
        for path in sample.files() {
            let damages = damages(sample, &path);
            trials.extend(damages.into_iter().map(|damage| Trial {
                sample,
                path: path.clone(),
                damage,
                mode,
                access,
            }));
        }
    }
    trials
}

fn flips_in_steps(sample: &Sample, path: &Path, step: u64) -> Vec<Damage> {
    let bits = |offset| match exhaustive() {
        true => (0..8).map(|bit| Damage::Bit { offset, bit }).collect(),
        false => vec![Damage::Bit { offset, bit: (offset / step % 8) as u8 }],
    };
    let places = places(sample, path, step).into_iter();
    places.flat_map(|offset| [bits(offset), vec![Damage::Byte { offset }]].concat()).collect()
}

fn flips(sample: &Sample, path: &Path) -> Vec<Damage> {
    flips_in_steps(sample, path, 1)
}

fn cuts(sample: &Sample, path: &Path) -> Vec<Damage> {
    places(sample, path, 11).into_iter().map(|len| Damage::Cut { len }).collect()
}

fn check(title: &str, table: &Table, may_tolerate: impl Fn(&str, &str) -> bool) {
    println!("{title}\n{table}");
    let rows = table.rows().map(|(file, damage, row)| {
        serde_json::json!({ "file": file, "damage": damage, "trials": row.trials, "error": row.error,
            "correct": row.correct, "tolerated": row.tolerated })
    });
    let name = title.to_lowercase().replace([' ', ','], "_");
    record(
        &format!("damage-{name}"),
        &serde_json::json!({ "title": title, "every_bit": exhaustive(), "rows": rows.collect::<Vec<_>>(),
            "failures": table.failures.len() }),
    );
    let shown: Vec<_> = table.failures.iter().take(10).map(String::as_str).collect();
    assert!(shown.is_empty(), "{} promises broken:\n{}", table.failures.len(), shown.join("\n"));
    for (file, damage, row) in table.rows() {
        assert!(
            row.tolerated == 0 || may_tolerate(file, damage),
            "{file}, {damage}: {} tolerated",
            row.tolerated
        );
    }
}

/// Readers may pass over checksums; wrong bytes may then be taken for right ones, but not for ever.
#[test]
fn scans_without_checksums_come_to_an_end() {
    for shape in [Shape::Plain, Shape::Rich] {
        let sample = Sample::new(shape);
        let watchdog = Watchdog::new(Duration::from_secs(60));
        for path in sample.files().into_iter().filter(|path| matches!(kind(path), FileKind::Table(_))) {
            for offset in 0..sample.len(&path) {
                let damages = (0..8).step_by(3).map(|bit| Damage::Bit { offset, bit });
                for damage in damages.chain([Damage::Byte { offset }]) {
                    let what = format!("{shape:?} {} {damage:?}", path.display());
                    let _watched = watchdog.watch(what.clone());
                    sample.scan_unchecked(&path, &damage).unwrap_or_else(|why| panic!("{what}: {why}"));
                }
            }
        }
    }
}

fn samples() -> Vec<Sample> {
    Shape::ALL.into_iter().map(Sample::new).collect()
}

#[test]
fn flipped_bits_are_found() {
    let samples = samples();
    let table = Table::of(&trials(&samples, DEFAULT_MODE, Access::ReadWrite, flips));
    check("Flipped", &table, |file, damage| (file == "WAL" || file == "MANIFEST") && damage == "one byte");
}

#[test]
fn zeroed_sectors_are_found_or_lose_the_end_of_a_log() {
    let sectors = |sample: &Sample, path: &Path| {
        (0..sample.len(path)).step_by(512).map(|offset| Damage::Zeroed { offset }).collect()
    };
    let samples = samples();
    let table = Table::of(&trials(&samples, DEFAULT_MODE, Access::ReadWrite, sectors));
    check("Zeroed", &table, |file, _| file == "WAL" || file == "MANIFEST");
}

#[test]
fn readers_that_may_not_write_find_the_same() {
    let samples = [Sample::new(Shape::Plain), Sample::new(Shape::Rich)];
    let both = |sample: &Sample, path: &Path| [flips_in_steps(sample, path, 11), cuts(sample, path)].concat();
    let table = Table::of(&trials(&samples, DEFAULT_MODE, Access::ReadOnly, both));
    check("Flipped or cut, opened for reading only", &table, |file, damage| {
        (file == "WAL" || file == "MANIFEST") && damage != "one bit"
    });
}

/// Everything else that can become of a file as a whole.
#[test]
fn lost_and_exchanged_files_are_found() {
    let whole = |sample: &Sample, path: &Path| {
        let mut damages = vec![Damage::Missing, Damage::Cut { len: 0 }, Damage::Directory];
        damages.extend([1, 7, 64, 512, 4096, 65_536].map(|bytes| Damage::Grown { bytes }));
        let others = sample.files().into_iter().filter(|with| with > path);
        let same =
            |with: &PathBuf| std::mem::discriminant(&kind(with)) == std::mem::discriminant(&kind(path));
        damages.extend(others.filter(same).map(|with| Damage::Swapped { with }));
        damages
    };
    let samples = samples();
    let trials = trials(&samples, DEFAULT_MODE, Access::ReadWrite, whole);
    let table = Table::of(&trials);
    check("Lost and exchanged", &table, |file, damage| match damage {
        "cut" => file == "WAL" || file == "MANIFEST",
        "missing" | "swapped" => file == "WAL",
        _ => false,
    });
}

#[test]
fn each_recovery_mode_keeps_its_promise() {
    let samples = [Sample::new(Shape::Plain), Sample::new(Shape::Long)]; // Not with reused WALs: see the options.
    let wals = |sample: &Sample, path: &Path| match kind(path) {
        FileKind::Wal(_) => [flips_in_steps(sample, path, 11), cuts(sample, path)].concat(),
        _ => Vec::new(),
    };
    use WalRecoveryMode::*;
    for mode in [TolerateCorruptedTailRecords, AbsoluteConsistency, SkipAnyCorruptedRecords] {
        let table = Table::of(&trials(&samples, mode, Access::ReadWrite, wals));
        check(&format!("{mode:?}"), &table, |_, damage| match mode {
            TolerateCorruptedTailRecords => damage == "one byte" || damage == "cut",
            AbsoluteConsistency => damage == "cut",
            _ => true,
        });
        if mode == SkipAnyCorruptedRecords {
            assert!(table.rows().all(|(_, _, row)| row.error == 0), "damaged records are to be skipped");
        }
    }
}

#[test]
fn cut_files_are_found_or_lose_their_end() {
    let samples = samples();
    let table = Table::of(&trials(&samples, DEFAULT_MODE, Access::ReadWrite, cuts));
    check("Cut", &table, |file, _| file == "WAL" || file == "MANIFEST");
}
