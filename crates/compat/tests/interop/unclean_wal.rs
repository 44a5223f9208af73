//! A WAL that ends in the middle, or is damaged: Ironstone recovers what RocksDB recovers, or more, or
//! refuses.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use ironstone_compat::directory::{Scratch, edit, files};
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
    unclean_after(writer, db_options, "flush,none", 0..2)
}

fn unclean_after(writer: Driver, db_options: &str, after: &str, rounds: Range<u64>) -> Option<Scratch> {
    let db = Scratch::new();
    // A table format that all releases read.
    let options = Options { db: db_options, cf: "block_based_table_factory={format_version=5}" };
    let writes = Writes { workload: WORKLOAD, rounds, after, abrupt: true, options };
    ran(writer.write(&db.db(), &writes)).map(|()| db)
}

fn newest_wal(db: &Scratch) -> PathBuf {
    files(&db.db(), "0", ".log").pop().expect("an unclean database has a WAL")
}

type Outcome = Result<String, ()>;

/// What a reader found: digests, or that it refused.
fn outcome(reader: Driver, source: &Scratch, db_options: &str) -> Option<Outcome> {
    let copy = Scratch::copy_of(&source.db());
    match reader.dump(&copy.db(), WORKLOAD, Options { db: db_options, cf: "" }) {
        Ok(digests) => Some(Ok(digests)),
        Err(Failure::Failed(_)) => Some(Err(())),
        Err(other) => ran(Err(other)),
    }
}

fn ours(source: &Scratch, db_options: &str) -> Outcome {
    outcome(IRONSTONE, source, db_options).expect("Ironstone is always there")
}

/// A copy of `source` with a damaged WAL.
fn damaged(source: &Scratch, damage: impl FnOnce(&mut Vec<u8>)) -> Scratch {
    let copy = Scratch::copy_of(&source.db());
    edit(&newest_wal(&copy), damage);
    copy
}

/// Compares what Ironstone and RocksDB recover.
fn compare(damaged: &Scratch, what: &str) {
    // Without it Ironstone refuses what cannot be a tear; RocksDB has no such mode.
    let lenient = "strict_wal_recovery=false";
    for mode in RECOVERY_MODES {
        let mode = format!("wal_recovery_mode={mode}");
        let Some(theirs) = outcome(ORACLE, damaged, &mode) else { return };
        let ours = ours(damaged, &format!("{mode};{lenient}"));
        // Two modes are vague, and Ironstone finds more in them: it keeps what follows a bad record in its
        // block, and takes zeros for a tail that was never written.
        let more =
            mode.ends_with("SkipAnyCorruptedRecords") || mode.ends_with("TolerateCorruptedTailRecords");
        // In a log whose records carry its number RocksDB takes any damage for the end, in modes that promise to
        // refuse damage too. Ironstone refuses.
        let strict = mode.ends_with("TolerateCorruptedTailRecords") || mode.ends_with("AbsoluteConsistency");
        let right = ours == theirs || (more && ours.is_ok()) || (strict && ours.is_err());
        assert!(right, "{what}, {mode}: {ours:?}, oracle {theirs:?}");
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
            let what = format!("{} cut at {cut} of {len}", writer.name());
            compare(&damaged(&source, |wal| wal.truncate(cut)), &what);
        }
        compare(&damaged(&source, |wal| wal.extend_from_slice(&[0; 4096])), "zeros at the end");
        compare(&damaged(&source, |wal| wal[len / 2..].fill(0)), "a zeroed tail");
    }
}

/// A WAL that was synced again has room ahead, in zeros.
#[test]
fn a_wal_that_grew_ahead_recovers_alike() {
    let source =
        unclean_after(IRONSTONE, "", "flush,sync,sync,none", 0..4).expect("Ironstone is always there");
    let mut written = 0;
    edit(&newest_wal(&source), |wal| {
        written = wal.iter().rposition(|&byte| byte != 0).expect("it holds writes") + 1;
        if wal.len() < written + 4096 {
            println!("SKIP: this file system reserves nothing");
        }
    });
    compare(&source, "as it is");
    for cut in [written / 2, written - 33, written - 1] {
        compare(&damaged(&source, |wal| wal[cut..].fill(0)), &format!("zeros from {cut} of {written} on"));
    }
    // What was synced or not: the last round follows the last sync, and both find it.
    let all = outcome(ORACLE, &source, "");
    assert!(all.is_none_or(|theirs| theirs == ours(&source, "")));
}

/// Wherever the process was, in a flush or a compaction too, both find the same.
#[test]
fn a_killed_process_leaves_what_both_recover() {
    let cf = "write_buffer_size=32768;target_file_size_base=32768;max_bytes_for_level_base=65536;\
              level0_file_num_compaction_trigger=2;block_based_table_factory={format_version=5}";
    let workload = Workload { keys: 4000, ..WORKLOAD };
    for (writer, db) in [(IRONSTONE, ""), (ORACLE, ""), (IRONSTONE, "recycle_log_file_num=2")] {
        for millis in [60, 130, 250, 400] {
            let options = Options { db, cf };
            let writes = Writes { workload, rounds: 0..9, after: "none", abrupt: true, options };
            let source = Scratch::new();
            let time = Duration::from_millis(millis);
            let Some(()) = ran(writer.write_killed(&source.db(), &writes, time)) else { break };
            let Some(theirs) = outcome(ORACLE, &source, "") else { break };
            let what = format!("{} {db} killed after {millis} ms", writer.name());
            if files(&source.db(), "CURRENT", "").is_empty() {
                println!("{what}: before there was a database");
                continue;
            }
            assert_eq!(ours(&source, ""), theirs, "{what}");
            println!("{what}: {theirs:?}");
        }
    }
}

/// RocksDB 11 writes what was before a WAL into the next one, if asked, and Ironstone holds it to that.
#[test]
fn an_emptied_wal_of_rocksdb_is_missed() {
    let writer = Driver::RocksDb11;
    let tracked = "track_and_verify_wals=true";
    let cf = "write_buffer_size=65536;max_write_buffer_number=20;min_write_buffer_number_to_merge=19";
    let options = Options { db: tracked, cf };
    let workload = Workload { keys: 2000, ..WORKLOAD };
    let writes = Writes { workload, rounds: 0..2, after: "none", abrupt: true, options };
    let source = Scratch::new();
    let Some(()) = ran(writer.write(&source.db(), &writes)) else { return };
    let wals = files(&source.db(), "0", ".log");
    assert!(wals.len() > 2, "{wals:?}");
    let Some(theirs) = outcome(writer, &source, tracked) else { return };
    assert!(theirs.is_ok());
    assert_eq!(ours(&source, tracked), theirs);
    for missing in &wals[..wals.len() - 1] {
        let strict = format!("{tracked};wal_recovery_mode=kAbsoluteConsistency");
        let damaged = Scratch::copy_of(&source.db());
        let path = damaged.db().join(missing.file_name().expect("it is a file"));
        edit(&path, Vec::clear);
        assert_eq!(outcome(writer, &damaged, &strict), Some(Err(())), "{missing:?}");
        assert_eq!(ours(&damaged, &strict), Err(()), "{missing:?}");
        assert!(ours(&damaged, "").is_ok(), "{missing:?}");
    }
}

#[test]
fn damage_in_the_middle_recovers_alike_or_is_refused() {
    for writer in [ORACLE, IRONSTONE] {
        let Some(source) = unclean_database(writer, "") else { continue };
        let len = fs::metadata(newest_wal(&source)).expect("the WAL is there").len() as usize;
        for offset in [0, 3, 4, 6, 7, 15, 19, 30, len / 2, len - 20] {
            let what = format!("{} bit flipped at {offset} of {len}", writer.name());
            let damaged = damaged(&source, |wal| wal[offset] ^= 0x10);
            // RocksDB reads damage in our logs, whose records carry the log's number, by other rules.
            if writer == ORACLE {
                compare(&damaged, &what);
            }
            // By default no damage passes in silence while whole records follow it.
            if offset < len / 2 {
                assert_eq!(ours(&damaged, ""), Err(()), "{what}");
            }
        }
    }
}
