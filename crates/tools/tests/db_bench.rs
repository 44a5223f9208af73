//! The program db_bench as users call it.

use std::path::Path;
use std::process::{Command, Output};

const RETIRED: [&str; 3] =
    ["disable_data_sync", "max_grandparent_overlap_factor", "source_compaction_factor"];

fn run(program: &str, arguments: &[String]) -> Output {
    Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

fn ours(arguments: &[String]) -> (String, String) {
    let output = run(env!("CARGO_BIN_EXE_db_bench"), arguments);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}\n{err}");
    (out.into_owned(), err.into_owned())
}

fn flags(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn every_published_line_runs_as_it_stands() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("db");
    for line in
        include_str!("../../../docs/benchmarks/commands.tsv").lines().filter(|line| !line.starts_with('#'))
    {
        let (name, command) = line.split_once('\t').unwrap();
        let command =
            command.replace("$DB", &dir.to_string_lossy()).replace("$N", "2000").replace("$R", "2000");
        let (out, err) = ours(&flags(&command));
        assert!(out.contains(" micros/op ") && out.contains(" operations;"), "{name}\n{out}");
        for flag in RETIRED.iter().filter(|flag| command.contains(*flag)) {
            let said = err.matches(&format!("WARNING: --{flag} is ignored: RocksDB retired it")).count();
            assert_eq!(said, 1, "{name}: {flag}\n{err}");
        }
    }
}

#[test]
fn every_benchmark_runs() {
    let parent = tempfile::tempdir().unwrap();
    let benchmarks = "fillseq,fillbatch,filluniquerandom,fill100K,fillsync,fillrandom,overwrite,readseq,readreverse,\
        readrandom,readmissing,readhot,readrandomsmall,readrandomfast,readtocache,multireadrandom,newiterator,\
        seekrandom,readwhilewriting,multireadwhilewriting,readwhilescanning,seekrandomwhilewriting,\
        newiteratorwhilewriting,readrandomwriterandom,updaterandom,mergerandom,readrandommergerandom,\
        readwhilemerging,seekrandomwhilemerging,deleteseq,deleterandom,flush,compact0,compact1,\
        compact,compactall,waitforcompaction,stats,levelstats,sstables,memstats,resetstats,acquireload";
    for extra in [
        "",
        "--num_column_families=3 --batch_size=7 --statistics --histogram --seek_nexts=5 --max_scan_distance=9 \
         --row_cache_size=1000000",
    ] {
        let command = format!(
            "--benchmarks={benchmarks} --num=3000 --writes=300 --reads=300 --deletes=300 --write_buffer_size=65536 \
             --merge_operator=put --writes_per_range_tombstone=50 --max_num_range_tombstones=3 \
             --bloom_bits=10 --threads=2 --seed=7 --db={} {extra}",
            parent.path().join("db").display()
        );
        let (out, _) = ours(&flags(&command));
        let lines = out.lines().filter(|line| line.contains(" micros/op ")).count();
        assert_eq!(lines, benchmarks.split(',').count() - 10, "{out}"); // Ten are not timed.
        assert_eq!(out.contains("STATISTICS:"), !extra.is_empty());
    }
}

#[test]
fn caches_are_as_large_as_flags_say() {
    let parent = tempfile::tempdir().unwrap();
    for (flag, ticker) in [
        ("--row_cache_size=1000000", "rocksdb.row.cache.hit"),
        ("--simcache_size=1000000 --cache_size=1000", "rocksdb.sim.block.cache.hit"),
    ] {
        let command = format!(
            "--benchmarks=fillseq,flush,readrandom,readrandom --num=300 --reads=2000 --statistics {flag} --db={}",
            parent.path().join("db").display()
        );
        let (out, _) = ours(&flags(&command));
        let count = out.split(&format!("{ticker} COUNT : ")).nth(1).and_then(|rest| rest.lines().next());
        assert!(count.unwrap().parse::<u64>().unwrap() > 2000, "{flag}\n{out}");
    }
}

#[test]
fn what_a_benchmark_asks_is_traced_and_replayed() {
    let parent = tempfile::tempdir().unwrap();
    let at = |name: &str| parent.path().join(name).display().to_string();
    let common = format!("--num=500 --reads=100 --trace_file={}", at("trace"));
    let benchmarks = "fillseq,readrandom,seekrandom,multireadrandom";
    ours(&flags(&format!("--benchmarks={benchmarks} --batch_size=5 {common} --db={}", at("first"))));
    let replay = "--benchmarks=replay,readrandom --trace_replay_fast_forward=0 --trace_replay_threads=2";
    let (out, _) = ours(&flags(&format!("{replay} {common} --db={}", at("second"))));
    // 100 batches of five keys, 100 gets, 100 seeks, 20 multi-gets.
    assert!(out.contains(" 320 operations;") && out.contains("(100 of 100 found)"), "{out}");
}

#[test]
fn what_a_benchmark_asks_the_block_cache_for_is_traced() {
    use ironstone::{BlockCacheTraceReader, FileTraceReader, TableReaderCaller};
    let parent = tempfile::tempdir().unwrap();
    let at = |name: &str| parent.path().join(name).display().to_string();
    let common = format!("--num=3000 --reads=300 --db={}", at("db"));
    ours(&flags(&format!("--benchmarks=fillseq,compact {common}")));
    let count = |more: &str| {
        let trace = format!("--use_existing_db=1 --block_cache_trace_file={} {more}", at("trace"));
        let (out, _) = ours(&flags(&format!("--benchmarks=readrandom,seekrandom {trace} {common}")));
        assert!(out.contains("Tracing block cache accesses to: ["), "{out}");
        let reader = FileTraceReader::open(&*ironstone::vfs::Env::os().fs, at("trace")).unwrap();
        let records = BlockCacheTraceReader::new(Box::new(reader)).unwrap().map(Result::unwrap);
        let of = |caller| move |record: &ironstone::BlockCacheTraceRecord| record.caller == caller;
        let records: Vec<_> = records.collect();
        let gets = records.iter().filter(|record| of(TableReaderCaller::UserGet)(record)).count();
        (gets, records.iter().filter(|record| of(TableReaderCaller::UserIterator)(record)).count())
    };
    let (gets, seeks) = count("");
    assert!(gets == 300 && seeks >= 300, "{gets} {seeks}");
    let (some, _) = count("--block_cache_trace_sampling_frequency=4");
    assert!(some > 0 && some < 250, "{some}");
    let (some, none) = count("--block_cache_trace_max_trace_file_size_in_bytes=1000");
    assert!(some > 0 && some < 30 && none == 0, "{some} {none}");
}

#[test]
fn a_wrong_command_line_does_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("db");
    for (flag, complaint) in [
        ("--nonsense=1", "unknown command line flag 'nonsense'"),
        ("--benchmarks=fillseq,nonsense", "unknown benchmark 'nonsense'"),
        ("--benchmarks=backup", "needs backups"),
        ("--use_plain_table=1", "needs --prefix_size"),
        ("--compression_type=nonsense", "--compression_type=nonsense"),
    ] {
        let output =
            run(env!("CARGO_BIN_EXE_db_bench"), &[format!("--db={}", dir.display()), flag.to_owned()]);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && err.contains(complaint), "{flag}\n{err}");
    }
}

/// Reads with RocksDB's db_bench what ours wrote, and the other way round.
#[test]
fn rocksdbs_db_bench_finds_the_same_keys() {
    const THEIRS: &str = "/usr/bin/db_bench";
    if !Path::new(THEIRS).exists() {
        println!("skipped: {THEIRS} is not installed");
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    let layouts = [
        "--key_size=16",
        "--key_size=5",
        "--key_size=30 --prefix_size=12 --keys_per_prefix=10",
        "--num_column_families=3",
    ];
    for (layout, ours_first) in layouts.into_iter().flat_map(|layout| [(layout, true), (layout, false)]) {
        let common = format!(
            "--num=2000 --db={} {layout} --compression_type=snappy",
            parent.path().join("db").display()
        );
        let write = flags(&format!("--benchmarks=filluniquerandom {common}"));
        let read = flags(&format!("--benchmarks=readrandom --use_existing_db=1 {common}"));
        let (writer, reader) = (env!("CARGO_BIN_EXE_db_bench"), THEIRS);
        let (writer, reader) = if ours_first { (writer, reader) } else { (reader, writer) };
        assert!(run(writer, &write).status.success());
        let output = run(reader, &read);
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(out.contains("(2000 of 2000 found)"), "{layout} {ours_first}\n{out}");
    }
}

/// Each replays the traces of the other.
#[test]
fn rocksdbs_db_bench_replays_the_same_traces() {
    const THEIRS: &str = "/usr/bin/db_bench";
    if !Path::new(THEIRS).exists() {
        println!("skipped: {THEIRS} is not installed");
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    for (ours_first, families) in [(true, 2), (false, 1), (false, 3)] {
        let at = |name: &str| parent.path().join(format!("{name} {ours_first} {families}").replace(' ', "-"));
        let common = format!("--num=2000 --num_column_families={families} --compression_type=snappy");
        let trace = format!("--trace_file={}", at("trace").display());
        let (writer, reader) = (env!("CARGO_BIN_EXE_db_bench"), THEIRS);
        let (writer, reader) = if ours_first { (writer, reader) } else { (reader, writer) };
        let write =
            flags(&format!("--benchmarks=filluniquerandom {common} {trace} --db={}", at("first").display()));
        assert!(run(writer, &write).status.success());
        let database = format!("{common} --db={}", at("second").display());
        // Nothing is there but what the trace brings.
        assert!(run(reader, &flags(&format!("--benchmarks=flush {database}"))).status.success());
        let replay = "--benchmarks=replay,readrandom --use_existing_db=1 --trace_replay_fast_forward=1000";
        let output = run(reader, &flags(&format!("{replay} {trace} {database}")));
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(out.contains("(2000 of 2000 found)"), "{ours_first} {families}\n{out}");
    }
}
