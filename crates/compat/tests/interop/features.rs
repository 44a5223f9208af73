//! Features of RocksDB that Ironstone may not have: it refuses them by name, or does them right. It never
//! passes over them in silence.

use ironstone::vfs::FileSystem;
use ironstone::vfs::os::OsFileSystem;
use ironstone_compat::directory::{Scratch, files};
use ironstone_compat::driver::{Driver, Failure, Options, ROCKSDBS, Writes, ran};
use ironstone_compat::workload::Workload;
use std::path::PathBuf;

const IRONSTONE: Driver = Driver::Ironstone(env!("CARGO_BIN_EXE_ironstone_driver"));
const WORKLOAD: Workload = Workload { seed: 61, cfs: 1, keys: 200 };
const TABLE: &str = "block_based_table_factory={format_version=5}";

/// Lets `writer` use the feature, in the WAL and in tables, and compares what it and Ironstone read.
fn refused_or_right(writer: Driver, extra: &str, cf_options: &str) {
    let cf_options = format!("{TABLE};{cf_options}");
    let options = Options { db: "", cf: &cf_options };
    for after in ["none", "flush", "compact", "flush,none"] {
        let source = Scratch::new();
        let writes = Writes { workload: WORKLOAD, rounds: 0..2, after, abrupt: true, options };
        let Some(()) = ran(writer.write_extra(&source.db(), &writes, extra)) else { return };
        let theirs = Scratch::copy_of(&source.db());
        let expected = ran(writer.dump(&theirs.db(), WORKLOAD, options)).expect("it ran a moment ago");

        let ours = Scratch::copy_of(&source.db());
        for our_options in [Options::default(), options] {
            let found = IRONSTONE.dump(&ours.db(), WORKLOAD, our_options);
            check_refused_or(&expected, found, &format!("{extra} {cf_options}, after {after}"));
        }
        // Whatever Ironstone said, the directory is still what it was.
        let again = ran(writer.dump(&ours.db(), WORKLOAD, options)).expect("it ran a moment ago");
        assert_eq!(again, expected, "{extra} {cf_options}, after {after}: read by Ironstone in between");
    }
}

fn check_refused_or(expected: &str, found: Result<String, Failure>, what: &str) {
    match found {
        Ok(digests) => assert_eq!(digests, expected, "{what}"),
        Err(Failure::Failed(why)) => {
            let refused = ["Not implemented", "Invalid argument", "not supported"]
                .iter()
                .any(|kind| why.contains(kind));
            assert!(refused, "{what}: {why}");
            println!("refused: {why}");
        }
        Err(other) => panic!("{what}: {other:?}"),
    }
}

/// Lets each of both write in turn with the feature, and the other one go on; both must read the same.
fn both_ways(theirs: Driver, extra: &str, cf_options: &str) {
    let cf_options = format!("{TABLE};compression=kNoCompression;target_file_size_base=4096;{cf_options}");
    let options = Options { db: "", cf: &cf_options };
    for after in ["none", "flush", "compact", "flush,none,compact"] {
        for writers in [[theirs, IRONSTONE], [IRONSTONE, theirs]] {
            let scratch = Scratch::new();
            let mut digests = Vec::new();
            for turn in 0..4 {
                let rounds = turn * 2..turn * 2 + 2;
                let writes = Writes { workload: WORKLOAD, rounds, after, abrupt: turn % 2 == 0, options };
                let writer = writers[turn as usize % 2];
                let Some(()) = ran(writer.write_extra(&scratch.db(), &writes, extra)) else { return };
                let copies = [Scratch::copy_of(&scratch.db()), Scratch::copy_of(&scratch.db())];
                let [one, other] = [0, 1].map(|at| {
                    ran(writers[at].dump(&copies[at].db(), WORKLOAD, options)).expect("it ran a moment ago")
                });
                assert_eq!(one, other, "{extra} {cf_options}, after {after}, turn {turn} of {writers:?}");
                digests.push(one);
            }
            assert!(digests.windows(2).all(|pair| pair[0] != pair[1]), "each turn changes something");
        }
    }
}

#[test]
fn blocks_of_one_entry() {
    let policy = "{format_version=5;flush_block_policy_factory=FlushBlockEveryKeyPolicyFactory}";
    both_ways(Driver::RocksDb11, "none", &format!("block_based_table_factory={policy}"));
}

#[test]
fn range_tombstones() {
    both_ways(Driver::RocksDb7, "range_delete", "");
    both_ways(Driver::RocksDb7, "wide_range_delete", "");
    both_ways(Driver::RocksDb11, "range_delete", "");
}

#[test]
fn merge_operands() {
    both_ways(Driver::RocksDb7, "merge", "merge_operator=uint64add");
    both_ways(Driver::RocksDb11, "merge", "merge_operator=uint64add");
    refused_or_right(Driver::RocksDb7, "merge", "merge_operator=uint64add");
}

#[test]
fn wide_columns() {
    refused_or_right(Driver::RocksDb10, "wide_columns", "");
}

#[test]
fn values_in_blob_files() {
    refused_or_right(Driver::RocksDb7, "none", "enable_blob_files=true;min_blob_size=50");
}

#[test]
fn universal_and_fifo_compaction() {
    for style in ["kCompactionStyleUniversal", "kCompactionStyleFIFO"] {
        refused_or_right(Driver::RocksDb7, "none", &format!("compaction_style={style}"));
    }
}

#[test]
fn unknown_comparators() {
    refused_or_right(Driver::RocksDb11, "none", "comparator=rocksdb.ReverseBytewiseComparator");
}

#[test]
fn compressed_wals() {
    let options = Options { db: "wal_compression=kZSTD", cf: TABLE };
    let source = Scratch::new();
    let writes = Writes { workload: WORKLOAD, rounds: 0..2, after: "flush,none", abrupt: true, options };
    let Some(()) = ran(Driver::RocksDb7.write(&source.db(), &writes)) else { return };
    let found = IRONSTONE.dump(&source.db(), WORKLOAD, Options::default());
    check_refused_or(&WORKLOAD.expected(0..2), found, "compressed WAL");
}

/// Each side recovers the compressed WAL that the other one left behind, and leaves one itself.
#[test]
fn compressed_wals_both_ways() {
    let options = Options { db: "wal_compression=kZSTD", cf: TABLE };
    for theirs in ROCKSDBS {
        for writers in [[theirs, IRONSTONE], [IRONSTONE, theirs]] {
            let scratch = Scratch::new();
            for turn in 0..4 {
                let rounds = turn * 2..turn * 2 + 2;
                let writes = Writes { workload: WORKLOAD, rounds, after: "none", abrupt: true, options };
                // One that cannot write it reads it at least.
                if ran(writers[turn as usize % 2].write(&scratch.db(), &writes)).is_none() {
                    ran(IRONSTONE.write(&scratch.db(), &writes)).expect("it is there");
                }
                let wals = files(&scratch.db(), "0", ".log");
                let says_so = |wal: &PathBuf| OsFileSystem::new().read_all(wal).unwrap().get(6) == Some(&9);
                assert!(wals.iter().any(says_so), "{writers:?}, turn {turn}: {wals:?}");
                for reader in writers {
                    let copy = Scratch::copy_of(&scratch.db());
                    let found = ran(reader.dump(&copy.db(), WORKLOAD, Options::default()));
                    let Some(found) = found else { continue };
                    assert_eq!(found, WORKLOAD.expected(0..turn * 2 + 2), "{writers:?}, turn {turn}");
                }
            }
        }
    }
}

/// The history of statistics in the database: both sides open what has it, whether they keep one or not.
#[test]
fn persisted_statistics() {
    let keeping = Options { db: "persist_stats_to_disk=true;stats_persist_period_sec=0", cf: TABLE };
    for theirs in ROCKSDBS {
        for writers in [[theirs, IRONSTONE], [IRONSTONE, theirs]] {
            let scratch = Scratch::new();
            for turn in 0..4 {
                let options = if turn == 3 { Options { db: "", ..keeping } } else { keeping };
                let rounds = turn * 2..turn * 2 + 2;
                let writes = Writes {
                    workload: WORKLOAD,
                    rounds,
                    after: "flush,none",
                    abrupt: turn % 2 == 0,
                    options,
                };
                if ran(writers[turn as usize % 2].write(&scratch.db(), &writes)).is_none() {
                    ran(IRONSTONE.write(&scratch.db(), &writes)).expect("it is there");
                }
                let mut dumps = Vec::new();
                for (reader, options) in [theirs, IRONSTONE]
                    .iter()
                    .flat_map(|reader| [(reader, keeping), (reader, Options::default())])
                {
                    let copy = Scratch::copy_of(&scratch.db());
                    dumps.extend(ran(reader.dump(&copy.db(), WORKLOAD, options)));
                }
                assert!(dumps[0].contains("___rocksdb_stats_history___"), "{}", dumps[0]);
                let same = dumps.iter().all(|dump| *dump == dumps[0]);
                assert!(same, "{writers:?}, turn {turn}: {dumps:#?}");
            }
        }
    }
}

/// About how many bytes are in key ranges: both engines read the same from the tables of either.
#[test]
fn sizes_of_ranges_are_those_of_rocksdb() {
    let tables = "write_buffer_size=65536;target_file_size_base=32768;level0_file_num_compaction_trigger=100";
    let workload = Workload { cfs: 2, keys: 2000, ..WORKLOAD };
    for (writer, table) in [
        (Driver::RocksDb7, "format_version=5"),
        (Driver::RocksDb7, "format_version=5;index_type=kTwoLevelIndexSearch;metadata_block_size=512"),
        (IRONSTONE, "format_version=5"),
        (IRONSTONE, "format_version=5;filter_policy=bloomfilter:10;index_type=kBinarySearchWithFirstKey"),
    ] {
        let source = Scratch::new();
        let cf = format!("{tables};block_based_table_factory={{{table}}}");
        let options = Options { db: "", cf: &cf };
        let writes = Writes { workload, rounds: 0..3, after: "compact,flush", abrupt: false, options };
        let Some(()) = ran(writer.write(&source.db(), &writes)) else { return };
        let Some(theirs) = ran(Driver::RocksDb7.sizes(&source.db(), workload, options)) else { return };
        let ours = ran(IRONSTONE.sizes(&source.db(), workload, options)).expect("it is here");
        assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
        let files = files(&source.db(), "", ".sst").len() as u64;
        for (name, theirs) in theirs {
            assert!(theirs.len() == 21 && theirs.iter().filter(|size| **size > 0).count() > 15, "{theirs:?}");
            // They round a double, once for each table.
            let close = |(a, b): (&u64, &u64)| a.abs_diff(*b) <= files;
            assert!(ours[&name].iter().zip(&theirs).all(close), "{name}: {:?} and {theirs:?}", ours[&name]);
        }
    }
}
