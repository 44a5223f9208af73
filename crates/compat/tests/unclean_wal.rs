//! A WAL that ends in the middle, or is damaged: Ironstone recovers what RocksDB recovers.

use std::fs;
use std::path::PathBuf;

use ironstone_compat::directory::{Scratch, files};
use ironstone_compat::driver::{Driver, Failure, Options, Writes, ran};
use ironstone_compat::workload::Workload;

const IRONSTONE: Driver = Driver::Ironstone(env!("CARGO_BIN_EXE_ironstone_driver"));
const WORKLOAD: Workload = Workload { seed: 31, cfs: 2, keys: 150 };
const RECOVERY_MODES: [&str; 4] = [
    "kTolerateCorruptedTailRecords",
    "kAbsoluteConsistency",
    "kPointInTimeRecovery",
    "kSkipAnyCorruptedRecords",
];

/// A database whose second round is in the WAL only.
fn unclean_database(writer: Driver, db_options: &str) -> Option<Scratch> {
    let db = Scratch::new();
    // A table format that all releases read.
    let options = Options { db: db_options, cf: "block_based_table_factory={format_version=5}" };
    let writes = Writes { workload: WORKLOAD, rounds: 0..2, after: "flush,none", abrupt: true, options };
    ran(writer.write(&db.db(), &writes)).map(|()| db)
}

fn newest_wal(db: &Scratch) -> PathBuf {
    files(&db.db(), "0", ".log").pop().expect("an unclean database has a WAL")
}

/// What a reader found: digests, or that it refused.
fn outcome(reader: Driver, source: &Scratch, mode: &str) -> Option<Result<String, ()>> {
    let copy = Scratch::copy_of(&source.db());
    let db_options = format!("wal_recovery_mode={mode}");
    match reader.dump(&copy.db(), WORKLOAD, Options { db: &db_options, cf: "" }) {
        Ok(digests) => Some(Ok(digests)),
        Err(Failure::Failed(_)) => Some(Err(())),
        Err(other) => ran(Err(other)),
    }
}

/// Damages a copy of `source` by `damage`, which gets the WAL's bytes, and compares what both recover.
fn compare(source: &Scratch, oracle: Driver, what: &str, damage: impl Fn(&mut Vec<u8>)) {
    let damaged = Scratch::copy_of(&source.db());
    let wal = newest_wal(&damaged);
    let mut bytes = fs::read(&wal).expect("read the WAL");
    damage(&mut bytes);
    fs::write(&wal, bytes).expect("write the WAL");
    for mode in RECOVERY_MODES {
        if let Some(expected) = outcome(oracle, &damaged, mode) {
            let found = outcome(IRONSTONE, &damaged, mode).expect("Ironstone is always there");
            assert_eq!(found, expected, "{what}, {mode}, oracle {}", oracle.name());
        }
    }
}

/// The fastest oracle; the releases do not differ here.
const ORACLE: Driver = Driver::RocksDb7;

#[test]
fn torn_tails_recover_alike() {
    for (writer, db_options) in [(ORACLE, ""), (IRONSTONE, ""), (ORACLE, "recycle_log_file_num=2")] {
        let Some(source) = unclean_database(writer, db_options) else { continue };
        let len = fs::metadata(newest_wal(&source)).expect("the WAL is there").len() as usize;
        for cut in [0, 1, 6, 7, 8, len / 3, len / 2, len - 33, len - 8, len - 7, len - 1] {
            compare(&source, ORACLE, &format!("{} cut at {cut} of {len}", writer.name()), |wal| {
                wal.truncate(cut);
            });
        }
        compare(&source, ORACLE, "zeros at the end", |wal| wal.extend_from_slice(&[0; 4096]));
        compare(&source, ORACLE, "a zeroed tail", |wal| wal[len / 2..].fill(0));
    }
}

#[test]
fn damage_in_the_middle_recovers_alike() {
    for writer in [ORACLE, IRONSTONE] {
        let Some(source) = unclean_database(writer, "") else { continue };
        let len = fs::metadata(newest_wal(&source)).expect("the WAL is there").len() as usize;
        for offset in [0, 3, 4, 6, 7, 15, 19, 30, len / 2, len - 20] {
            compare(&source, ORACLE, &format!("{} bit flipped at {offset}", writer.name()), |wal| {
                wal[offset] ^= 0x10;
            });
        }
    }
}
