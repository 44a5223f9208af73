//! Does one operation so many times on a small database in memory, for `cargo xtask instructions`, which counts the
//! machine instructions of two such runs and divides their difference.
//!
//! ```text
//! instructions OPERATION COUNT
//! ```
#![allow(clippy::disallowed_methods)] // Not a part of the engine.

use ironstone::{BlockCache, CacheOptions, Db, FilterPolicy, Options, ReadOptions, Result, perf};
use std::process::ExitCode;

/// Records of 16 + 100 bytes, all in one table of the last level, cached.
const RECORDS: u64 = 20_000;
/// How many keys a `multi_get` has.
const KEYS: usize = 32;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(operation), Some(count)) =
        (arguments.next(), arguments.next().and_then(|text| text.parse().ok()))
    else {
        eprintln!("usage: instructions OPERATION COUNT");
        return ExitCode::FAILURE;
    };
    match run(&operation, count) {
        Ok(found) => {
            println!("{found}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"key-0000________";
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Spreads numbers over the records, always in the same order.
fn mixed(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

/// Answers what was found, so that nothing is left out as unused.
fn run(operation: &str, count: u64) -> Result<u64> {
    perf::set_level(perf::PerfLevel::Disable);
    let mut options = Options::in_memory();
    options.cf.table.block_cache =
        Some(BlockCache::new(CacheOptions { capacity: 64 << 20, ..CacheOptions::default() }));
    options.cf.table.filter_policy = Some(FilterPolicy::bloom(10.0));
    options.db.stats_dump_period_sec = 0;
    let db = Db::open(&options, "/db")?;
    for number in 0..RECORDS {
        // Every second number, so that the others are missing and yet within the table.
        db.put(key(number * 2), [number as u8; 100])?;
    }
    db.flush()?;
    db.compact_range(&Default::default(), db.default_column_family(), None, None)?;
    let mut iter = db.iter()?;
    let mut more = iter.seek_to_first()?;
    let mut found = 0;
    while more {
        found += 1;
        more = iter.next()?;
    }
    drop(iter);
    let record = |number: u64| mixed(number) % RECORDS * 2;
    match operation {
        "get" => {
            for number in 0..count {
                found += u64::from(db.get(key(record(number)))?.is_some());
            }
        }
        "get-missing" => {
            for number in 0..count {
                found += u64::from(db.get(key(record(number) + 1))?.is_some());
            }
        }
        "multi-get-32" => {
            for number in 0..count {
                let keys: Vec<_> =
                    (0..KEYS as u64).map(|at| key(record(number * KEYS as u64 + at))).collect();
                found += db.multi_get(&keys).into_iter().filter(|value| matches!(value, Ok(Some(_)))).count()
                    as u64;
            }
        }
        "seek" => {
            let mut iter = db.iter_cf(&ReadOptions::default(), db.default_column_family())?;
            for number in 0..count {
                found += u64::from(iter.seek(key(record(number)))?);
            }
        }
        "next" => {
            let mut iter = db.iter()?;
            let mut more = iter.seek_to_first()?;
            for _ in 0..count {
                more = if more { iter.next()? } else { iter.seek_to_first()? };
                found += u64::from(more);
            }
        }
        "put" => {
            for number in 0..count {
                db.put(key(record(number)), [7; 100])?;
            }
        }
        other => return Err(ironstone::Error::invalid_argument(format!("no operation {other}"))),
    }
    Ok(found)
}
