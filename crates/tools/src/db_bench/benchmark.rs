//! The benchmarks by name.

use super::flags::Flags;
use super::worker::{Amounts, Worker};
use super::workload::{beside, codec, fill, lookup, modify, scan};
use ironstone::{Error, Result};

/// What a thread of a benchmark does.
pub type Method = fn(&mut Worker<'_>) -> Result<()>;

/// What happens.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// Threads run this and are timed.
    Timed(Method),
    /// The memtables are flushed.
    Flush,
    /// Everything is compacted.
    CompactAll,
    /// The files of level 0, or of the first level below it, are compacted into the next level.
    CompactLevel(usize),
    /// Flushes and compactions come to an end.
    WaitForCompaction,
    /// This property is printed.
    Property(&'static str),
    /// These properties are printed, a line each.
    Properties(&'static [&'static str]),
    /// The statistics start anew.
    ResetStatistics,
    /// A trace is replayed.
    Replay,
}

/// A benchmark to run.
#[derive(Clone, Debug)]
pub struct Benchmark {
    /// Its name.
    pub name: String,
    /// What happens.
    pub action: Action,
    /// Whether it starts on an empty database.
    pub fresh: bool,
    /// How many threads run it.
    pub threads: usize,
    /// How much they do.
    pub amounts: Amounts,
    /// How often it is run, and how often before that without being reported in the end.
    pub repetitions: usize,
    /// How often it runs before it counts.
    pub warm_ups: usize,
}

const MEMORY: &[&str] = &[
    "rocksdb.num-immutable-mem-table",
    "rocksdb.cur-size-active-mem-table",
    "rocksdb.cur-size-all-mem-tables",
    "rocksdb.size-all-mem-tables",
    "rocksdb.num-entries-active-mem-table",
    "rocksdb.num-entries-imm-mem-tables",
];

/// RocksDB's benchmarks that need what is not built.
const UNBUILT: &[(&str, &str)] = &[
    ("approximatesizerandom", "approximate sizes"),
    ("approximatememtablestats", "approximate sizes"),
    ("appendrandom", "reads between merges"),
    ("backup", "backups"),
    ("compressreject", "this way of compressing"),
    ("fillanddeleteuniquerandom", "deletes between writes"),
    ("fillembeddedblob", "blob files"),
    ("fillembeddedentity", "wide columns"),
    ("fillseekseq", "seeks between writes"),
    ("fillseqdeterministic", "levels of a given shape"),
    ("filluniquerandomdeterministic", "levels of a given shape"),
    ("getmergeoperands", "reads of merge operands"),
    ("ingestexternalfile", "external files"),
    ("mixgraph", "modelled workloads"),
    ("multireadentity", "wide columns"),
    ("multiscan", "scans of several ranges"),
    ("multiscanrandom", "scans of several ranges"),
    ("openandcompact", "remote compactions"),
    ("randomreplacekeys", "replaced keys"),
    ("randomtransaction", "transactions"),
    ("randomwithverify", "verified random operations"),
    ("readrandomentity", "wide columns"),
    ("readrandomoperands", "reads of merge operands"),
    ("readtorowcache", "a row cache"),
    ("restore", "backups"),
    ("stats_history", "a history of statistics"),
    ("timeseries", "compaction filters"),
    ("verify", "a second database to compare with"),
    ("verifychecksum", "verification of whole databases"),
    ("verifyfilechecksums", "checksums of whole files"),
    ("xorupdaterandom", "updates in place"),
];

impl Benchmark {
    /// The benchmark that `text` names, `[X<repetitions>-W<warm-ups>]` perhaps behind the name.
    pub fn parse(text: &str, flags: &Flags) -> Result<Self> {
        let (name, repetitions, warm_ups) = split_repetitions(text)?;
        let mut amounts = Amounts::new(flags);
        let mut threads = flags.threads as usize;
        let mut fresh = false;
        let beside = |method, threads: &mut usize| {
            *threads += 1;
            Action::Timed(method)
        };
        let action = match name {
            "fillseq" | "fillbatch" => {
                fresh = true;
                if name == "fillbatch" {
                    amounts.batch_size = 1000;
                }
                Action::Timed(fill::sequential)
            }
            "fillrandom" => {
                fresh = true;
                Action::Timed(fill::random)
            }
            "filluniquerandom" => {
                fresh = true;
                threads = 1; // Several would write the same keys.
                Action::Timed(fill::unique_random)
            }
            "overwrite" => Action::Timed(fill::random),
            "fillsync" => {
                fresh = true;
                amounts.num /= 1000;
                amounts.sync = true;
                Action::Timed(fill::random)
            }
            "fill100K" => {
                fresh = true;
                amounts.num /= 1000;
                amounts.value_size = 100_000;
                Action::Timed(fill::random)
            }
            "readseq" => Action::Timed(scan::forward),
            "readtocache" => {
                threads = 1;
                amounts.reads = amounts.num;
                Action::Timed(scan::forward)
            }
            "readreverse" => Action::Timed(scan::backward),
            "readrandom" => Action::Timed(lookup::random),
            "readrandomsmall" => {
                amounts.reads /= 1000;
                Action::Timed(lookup::random)
            }
            "readmissing" => {
                amounts.key_size += 1; // No key is that long.
                Action::Timed(lookup::random)
            }
            "readhot" => Action::Timed(lookup::hot),
            "readrandomfast" => Action::Timed(lookup::fast),
            "multireadrandom" => {
                eprintln!("entries_per_batch = {}", amounts.batch_size);
                Action::Timed(lookup::multi)
            }
            "newiterator" => Action::Timed(scan::create),
            "newiteratorwhilewriting" => beside(beside::create_while_writing, &mut threads),
            "seekrandom" => Action::Timed(scan::seek_random),
            "seekrandomwhilewriting" => beside(beside::seek_while_writing, &mut threads),
            "readwhilewriting" => beside(beside::read_while_writing, &mut threads),
            "multireadwhilewriting" => beside(beside::multi_read_while_writing, &mut threads),
            "readwhilescanning" => beside(beside::read_while_scanning, &mut threads),
            "readrandomwriterandom" => Action::Timed(modify::read_and_write_random),
            "updaterandom" => Action::Timed(modify::update_random),
            "mergerandom" => Action::Timed(modify::merge_random),
            "readrandommergerandom" => Action::Timed(modify::read_and_merge_random),
            "readwhilemerging" => beside(beside::read_while_merging, &mut threads),
            "seekrandomwhilemerging" => beside(beside::seek_while_merging, &mut threads),
            "deleteseq" => Action::Timed(modify::delete_sequential),
            "deleterandom" => Action::Timed(modify::delete_random),
            "compact" => Action::Timed(modify::compact),
            "compactall" => Action::CompactAll,
            "compact0" => Action::CompactLevel(0),
            "compact1" => Action::CompactLevel(1),
            "flush" => Action::Flush,
            "waitforcompaction" => Action::WaitForCompaction,
            "stats" => Action::Property("rocksdb.stats"),
            "levelstats" => Action::Property("rocksdb.levelstats"),
            "sstables" => Action::Property("rocksdb.sstables"),
            "memstats" => Action::Properties(MEMORY),
            "resetstats" => Action::ResetStatistics,
            "replay" => Action::Replay,
            "crc32c" => Action::Timed(codec::crc),
            "xxhash" => Action::Timed(codec::xxhash),
            "xxhash64" => Action::Timed(codec::xxhash64),
            "xxh3" => Action::Timed(codec::xxh3),
            "acquireload" => Action::Timed(codec::acquire_load),
            "compress" => Action::Timed(codec::compress),
            "uncompress" => Action::Timed(codec::uncompress),
            _ => return Err(unknown(name)),
        };
        Ok(Self { name: name.to_owned(), action, fresh, threads, amounts, repetitions, warm_ups })
    }
}

fn unknown(name: &str) -> Error {
    match UNBUILT.iter().find(|(unbuilt, _)| *unbuilt == name) {
        Some((_, feature)) => Error::not_supported(format!("benchmark '{name}' needs {feature}")),
        None => Error::invalid_argument(format!("unknown benchmark '{name}'")),
    }
}

/// Splits `name[X3-W1]`.
fn split_repetitions(text: &str) -> Result<(&str, usize, usize)> {
    let Some((name, arguments)) = text.strip_suffix(']').and_then(|text| text.split_once('[')) else {
        return Ok((text, 1, 0));
    };
    let (mut repetitions, mut warm_ups) = (1, 0);
    for argument in arguments.split('-').filter(|argument| !argument.is_empty()) {
        let wrong = || Error::invalid_argument(format!("unknown benchmark arguments '{text}'"));
        let number = argument.get(1..).and_then(|number| number.parse().ok());
        match (argument.as_bytes()[0], number) {
            (b'X', Some(number)) => repetitions = number,
            (b'W', Some(number)) => warm_ups = number,
            _ => return Err(wrong()),
        }
    }
    Ok((name, repetitions, warm_ups))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benchmarks_are_found_by_name() {
        let flags = Flags { num: 10_000, threads: 4, ..Flags::default() };
        let parse = |name: &str| Benchmark::parse(name, &flags).unwrap();
        assert_eq!(parse("readwhilewriting").threads, 5);
        assert_eq!(parse("fillsync").amounts.num, 10);
        assert_eq!(parse("readmissing").amounts.key_size, 17);
        let repeated = parse("readseq[X3-W2]");
        assert_eq!((repeated.name.as_str(), repeated.repetitions, repeated.warm_ups), ("readseq", 3, 2));
        for name in Flags::default().benchmarks.split(',') {
            assert!(Benchmark::parse(name, &flags).is_ok(), "{name}");
        }
    }

    #[test]
    fn others_are_refused_by_name() {
        let refusal = |name: &str| Benchmark::parse(name, &Flags::default()).unwrap_err().to_string();
        assert!(refusal("fillfast").contains("unknown benchmark 'fillfast'"));
        assert!(refusal("backup").contains("benchmark 'backup' needs backups"));
        assert!(refusal("readseq[Y]").contains("readseq[Y]"));
    }
}
