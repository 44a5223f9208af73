//! RocksDB loads the OPTIONS file that Ironstone writes, and we load those that it writes, with values that are no defaults.

use ironstone::options::{LoadOptions, OptionsFile};
use ironstone::vfs::FileSystem;
use ironstone::vfs::os::OsFileSystem;
use ironstone::{ColumnFamilyDescriptor, ColumnFamilyOptions, Db, DbOptions};
use ironstone_compat::directory::{Scratch, files};
use ironstone_compat::driver::{Driver, Options, Writes, ran};
use ironstone_compat::session::{SESSIONS, Session};
use ironstone_compat::workload::Workload;
use std::collections::BTreeMap;
use std::path::Path;

const IRONSTONE: Driver = Driver::Ironstone(env!("CARGO_BIN_EXE_ironstone_driver"));

#[test]
fn rocksdb_loads_our_options() {
    let db = Scratch::new();
    let options = Options {
        db: "max_open_files=321;recycle_log_file_num=3",
        cf: "compression=kZSTD;write_buffer_size=1234567;target_file_size_base=7654321;\
             block_based_table_factory={block_size=8192;format_version=4;checksum=kxxHash64;\
             filter_policy=bloomfilter:12.5:false}",
    };
    let workload = Workload { seed: 1, cfs: 2, keys: 10 };
    let writes = Writes { workload, rounds: 0..1, after: "none", abrupt: false, options };
    IRONSTONE.write(&db.db(), &writes).expect("write the database");
    assert!(!files(&db.db(), "OPTIONS-", "").is_empty(), "there is no OPTIONS file");

    let Some(loaded) = ran(Driver::RocksDb11.stored_options(&db.db())) else { return };
    let family = "compression=ZSTD_COMPRESSION write_buffer_size=1234567 target_file_size_base=7654321 \
                  block_size=8192 format_version=4 checksum=kxxHash64 filter=true";
    assert_eq!(
        loaded,
        format!("db max_open_files=321 recycle_log_file_num=3\ncf default {family}\ncf cf1 {family}\nok\n")
    );
}

/// Options of the database and of a column family.
struct Set {
    db: &'static str,
    cf: &'static str,
}

static SETS: [Set; 5] = [
    Set {
        db: "max_open_files=321;max_background_jobs=5;wal_recovery_mode=kAbsoluteConsistency;WAL_ttl_seconds=77;\
             WAL_size_limit_MB=9;max_total_wal_size=123456789;bytes_per_sync=1048576;wal_bytes_per_sync=524288;\
             delayed_write_rate=8388608;max_manifest_file_size=7777777;keep_log_file_num=5;max_log_file_size=1000000;\
             stats_dump_period_sec=33;db_write_buffer_size=99999999;use_fsync=true;max_subcompactions=3;\
             avoid_flush_during_shutdown=true;info_log_level=WARN_LEVEL;compaction_readahead_size=65536;\
             table_cache_numshardbits=5;writable_file_max_buffer_size=65536",
        cf: "comparator=rocksdb.ReverseBytewiseComparator;compaction_style=kCompactionStyleUniversal;\
             compaction_options_universal={size_ratio=7;min_merge_width=3;max_merge_width=11;\
             max_size_amplification_percent=150;compression_size_percent=80;stop_style=kCompactionStopStyleSimilarSize;\
             allow_trivial_move=true;incremental=true;};merge_operator={id=StringAppendOperator;delimiter=|;};\
             prefix_extractor=rocksdb.FixedPrefix.5;compression_per_level=kNoCompression:kLZ4Compression:kZSTD;\
             bottommost_compression=kZSTD;compression=kZlibCompression;compression_opts={level=3;window_bits=-15;\
             strategy=1;max_dict_bytes=16384;zstd_max_train_bytes=65536;enabled=true;};\
             bottommost_compression_opts={level=5;enabled=true;max_dict_bytes=4096;};ttl=172800;\
             periodic_compaction_seconds=86400;write_buffer_size=7654321;max_write_buffer_number=6;\
             min_write_buffer_number_to_merge=2;level0_file_num_compaction_trigger=5;level0_slowdown_writes_trigger=25;\
             level0_stop_writes_trigger=41;max_compaction_bytes=111111111;soft_pending_compaction_bytes_limit=1234567890;\
             hard_pending_compaction_bytes_limit=12345678901;max_sequential_skip_in_iterations=4;max_successive_merges=3;\
             memtable_prefix_bloom_size_ratio=0.125;memtable_whole_key_filtering=true;arena_block_size=65536;\
             paranoid_file_checks=true;report_bg_io_stats=true;optimize_filters_for_hits=true;\
             force_consistency_checks=false;num_levels=5;sample_for_compression=20;\
             block_based_table_factory={filter_policy=bloomfilter:12.5:false;index_type=kTwoLevelIndexSearch;\
             block_size=8192;metadata_block_size=2048;partition_filters=true;cache_index_and_filter_blocks=true;\
             checksum=kCRC32c;format_version=4;data_block_index_type=kDataBlockBinaryAndHash;\
             data_block_hash_table_util_ratio=0.5;block_restart_interval=7;index_block_restart_interval=3;\
             enable_index_compression=false;whole_key_filtering=false;index_shortening=kNoShortening;\
             pin_l0_filter_and_index_blocks_in_cache=true;pin_top_level_index_and_filter=false;block_size_deviation=20;\
             read_amp_bytes_per_bit=32;verify_compression=true;max_auto_readahead_size=131072;\
             initial_auto_readahead_size=4096;num_file_reads_for_auto_readahead=3;prepopulate_block_cache=kFlushOnly;\
             optimize_filters_for_memory=false;detect_filter_construct_corruption=true;\
             cache_index_and_filter_blocks_with_high_priority=false;\
             metadata_cache_options={unpartitioned_pinning=kAll;partition_pinning=kNone;\
             top_level_index_pinning=kFlushedAndSimilar;};}",
    },
    Set {
        db: "allow_fallocate=false;manual_wal_flush=true;wal_compression=kZSTD;atomic_flush=true;\
             track_and_verify_wals_in_manifest=true;max_file_opening_threads=3;\
             wal_recovery_mode=kTolerateCorruptedTailRecords;stats_history_buffer_size=2048;stats_persist_period_sec=71;\
             log_file_time_to_roll=123;delete_obsolete_files_period_micros=12345678;paranoid_checks=false;\
             skip_stats_update_on_db_open=true;enable_thread_tracking=true;strict_bytes_per_sync=true;\
             max_bgerror_resume_count=5;bgerror_resume_retry_interval=55555;\
             file_checksum_gen_factory=FileChecksumGenCrc32cFactory;dump_malloc_stats=true;\
             manifest_preallocation_size=65536;allow_concurrent_memtable_write=false",
        cf: "compaction_style=kCompactionStyleFIFO;compaction_options_fifo={max_table_files_size=12345678;\
             allow_compaction=true;};ttl=3600;num_levels=1;memtable_factory=VectorRepFactory;merge_operator=MaxOperator;\
             prefix_extractor=rocksdb.CappedPrefix.7;compression=kSnappyCompression;write_buffer_size=1111111;\
             max_write_buffer_number=4;disable_auto_compactions=true;inplace_update_num_locks=77;\
             block_based_table_factory={filter_policy=ribbonfilter:9.5:2;format_version=5;checksum=kxxHash64;\
             index_type=kBinarySearchWithFirstKey;flush_block_policy_factory=FlushBlockEveryKeyPolicyFactory;}",
    },
    Set {
        db: "recycle_log_file_num=3;wal_recovery_mode=kSkipAnyCorruptedRecords;avoid_flush_during_recovery=true",
        cf: "compaction_pri=kOldestSmallestSeqFirst;level_compaction_dynamic_level_bytes=true;\
             target_file_size_base=3333333;target_file_size_multiplier=2;max_bytes_for_level_base=44444444;\
             max_bytes_for_level_multiplier=7.5;max_bytes_for_level_multiplier_additional=2:3:1:1;num_levels=6;\
             merge_operator=BytesXOR;prefix_extractor=rocksdb.FixedPrefix.6;sst_partitioner_factory={id=SstPartitionerFixedPrefixFactory;length=4;};\
             memtable_insert_with_hint_prefix_extractor=rocksdb.FixedPrefix.3;compression_opts={level=-3;};\
             max_write_buffer_size_to_maintain=4096;\
             compression=kZSTD;bottommost_compression=kDisableCompressionOption;\
             block_based_table_factory={no_block_cache=true;index_type=kHashSearch;checksum=kNoChecksum;format_version=3;}",
    },
    Set {
        db: "allow_mmap_reads=true;avoid_unnecessary_blocking_io=true",
        cf: "prefix_extractor=rocksdb.FixedPrefix.4;merge_operator=UInt64AddOperator;\
             table_factory={id=PlainTable;user_key_len=16;bloom_bits_per_key=8;hash_table_ratio=0.5;index_sparseness=12;\
             huge_page_tlb_size=0;encoding_type=kPrefix;full_scan_mode=true;store_index_in_file=true;}",
    },
    // What came after RocksDB 7.8.
    Set {
        db: "max_manifest_space_amp_pct=77;verify_manifest_content_on_close=true;\
             max_compaction_trigger_wakeup_seconds=4321;prefix_seek_opt_in_only=true;track_and_verify_wals=true;\
             follower_refresh_catchup_period_ms=111;follower_catchup_retry_count=3;follower_catchup_retry_wait_ms=7;\
             skip_stats_update_on_db_open=true;open_files_async=true;daily_offpeak_time_utc=23:30-03:15;\
             write_identity_file=false;enforce_single_del_contracts=false",
        cf: "strict_max_successive_merges=true;memtable_max_range_deletions=9;bottommost_file_compaction_delay=5;\
             block_protection_bytes_per_key=8;memtable_protection_bytes_per_key=8;paranoid_memory_checks=true;\
             memtable_op_scan_flush_trigger=44;memtable_avg_op_scan_flush_trigger=22;\
             memtable_verify_per_key_checksum_on_seek=true;uncache_aggressiveness=50;\
             read_triggered_compaction_threshold=0.01;target_file_size_is_upper_bound=true;verify_output_flags=3;\
             min_tombstones_for_range_conversion=6;compaction_style=kCompactionStyleUniversal;\
             compaction_options_universal={max_read_amp=5;reduce_file_locking=false;};\
             compression_opts={checksum=true;max_compressed_bytes_per_kb=700;};cf_allow_ingest_behind=true;\
             compression_per_level=kNoCompression:kZSTD;\
             block_based_table_factory={use_delta_encoding=false;decouple_partitioned_filters=false;format_version=6;\
             optimize_filters_for_memory=false;index_block_search_type=kInterpolation;uniform_cv_threshold=0.2;}",
    },
];

type Pairs = BTreeMap<String, String>;

/// The parts of the newest OPTIONS file that are about the database and that column family, by the word that their titles begin with.
fn sections(dir: &Path, family: &str) -> BTreeMap<String, Pairs> {
    let path = files(dir, "OPTIONS-", "").pop().expect("there is an OPTIONS file");
    let text = String::from_utf8(OsFileSystem::new().read_all(&path).expect("readable")).expect("text");
    let mut sections: BTreeMap<String, Pairs> = BTreeMap::new();
    let mut title = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix('[') {
            Some(rest) => {
                let of = rest.split('"').nth(1);
                let kind = rest.split(['/', ' ', ']']).next().unwrap_or_default();
                title = if of.is_none_or(|of| of == family) { kind.to_owned() } else { "other".to_owned() };
            }
            None => {
                let (name, value) = line.split_once('=').expect("name=value");
                sections.entry(title.clone()).or_default().insert(name.to_owned(), value.to_owned());
            }
        }
    }
    sections.retain(|title, _| title.ends_with("Options"));
    sections
}

/// The pairs of `a=1;b={c=2;d=3;};`.
fn pairs(text: &str) -> Pairs {
    let (mut pairs, mut depth, mut start) = (Pairs::new(), 0, 0);
    let text = format!("{text};");
    for (end, letter) in text.char_indices() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        if letter == ';' && depth == 0 {
            if let Some((name, value)) = text[start..end].split_once('=') {
                pairs.insert(name.to_owned(), value.to_owned());
            }
            start = end + 1;
        }
    }
    pairs
}

fn inside(text: &str) -> Option<&str> {
    text.strip_prefix('{')?.strip_suffix('}')
}

/// Whether one text of a value says what the other says: all of it, or more.
fn says(found: &str, given: &str) -> bool {
    let (found, given) = (&*found.replace('\\', ""), &*given.replace('\\', "")); // Colons are escaped in files.
    match (inside(found), inside(given)) {
        (Some(found), Some(given)) => {
            let found = pairs(found);
            pairs(given).iter().all(|(name, value)| found.get(name).is_some_and(|found| says(found, value)))
        }
        (Some(found), None) => pairs(found).get("id").is_some_and(|id| id == given),
        (None, Some(_)) => false,
        (None, None) => {
            let numbers = found.parse::<f64>().ok().zip(given.parse::<f64>().ok());
            found == given || numbers.is_some_and(|(found, given)| found == given)
        }
    }
}

/// Checks that the newest OPTIONS file in `dir` has all that the set has.
fn has(dir: &Path, set: &Set, what: &str) {
    let sections = sections(dir, "default");
    let check = |section: &str, given: &Pairs| {
        for (name, value) in given {
            let found = sections[section].get(name).map_or("", String::as_str);
            assert!(says(found, value), "{what}: {section} {name}={found} instead of {value}");
        }
    };
    check("DBOptions", &pairs(set.db));
    let mut cf = pairs(set.cf);
    let mut table = Pairs::new();
    for name in ["block_based_table_factory", "table_factory"] {
        if let Some(value) = cf.remove(name) {
            table = pairs(inside(&value).expect("a struct"));
        }
    }
    if let Some(id) = table.remove("id") {
        cf.insert("table_factory".to_owned(), id);
    }
    check("CFOptions", &cf);
    check("TableOptions", &table);
}

/// What RocksDB 7.8 has and later ones have no more: the engine passes over it.
const DROPPED: [&str; 8] = [
    "access_hint_on_compaction_start",
    "check_flush_compaction_key_order",
    "fail_if_options_file_error",
    "ignore_max_compaction_bytes_for_input",
    "level_compaction_dynamic_file_size",
    "max_write_buffer_number_to_maintain",
    "random_access_max_buffer_size",
    "skip_checking_sst_file_sizes_on_db_open",
];
/// RocksDB 7.8 takes it for false, whatever text it is given.
const UNSETTABLE: &str = "write_dbid_to_manifest";
/// Not written at our defaults, since RocksDB 7.8 opens no file that has them. Later releases then take their own.
const OUR_DEFAULTS: [(&str, &str); 2] =
    [("min_tombstones_for_range_conversion", "1000"), ("uncache_aggressiveness", "10000")];
/// RocksDB writes what it makes of 0.
const COMPUTED: &str = "arena_block_size";

/// Where RocksDB's OPTIONS file in `dir` says something else of the database and that column family than was loaded from another
/// one. It has every option that the release knows.
fn differences(dir: &Path, family: &str, loaded: &OptionsFile) -> Vec<String> {
    let cf = loaded.column_family(family).expect("it is in both");
    let of_table = |name: &str| match cf.get("table_factory").as_deref() {
        Some("PlainTable") => cf.plain_table.get(name),
        _ => cf.table.get(name),
    };
    let mut all = Vec::new();
    for (title, pairs) in sections(dir, family) {
        for (name, value) in
            pairs.iter().filter(|(name, _)| !DROPPED.contains(&&***name) && *name != UNSETTABLE)
        {
            let found = match &*title {
                "DBOptions" => loaded.db.get(name),
                "CFOptions" => cf.get(name),
                _ => of_table(name),
            };
            let found = found.unwrap_or_else(|| "unknown".to_owned());
            let is_excused =
                name == COMPUTED && found == "0" || OUR_DEFAULTS.contains(&(name, &found)) && value == "0";
            if !(is_excused || says(&found, value) || says(value, &found)) {
                all.push(format!("{title} {name}: {value} and {found}"));
            }
        }
    }
    all
}

fn load(dir: &Path, what: &str) -> OptionsFile {
    let loaded = OptionsFile::load_latest(&OsFileSystem::new(), dir, &LoadOptions::default());
    loaded.unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// The releases that know the options, with the set.
fn sets() -> impl Iterator<Item = (Driver, &'static Set, String)> {
    let knows = |release, set: &Set| release != Driver::RocksDb7 || !std::ptr::eq(set, &SETS[SETS.len() - 1]);
    let of = move |release| {
        let sets = SETS.iter().filter(move |set| knows(release, set));
        sets.map(move |set| (release, set, format!("{release:?}, {}", set.db)))
    };
    SESSIONS.into_iter().flat_map(of)
}

#[test]
fn we_load_every_value_that_rocksdb_wrote() {
    for (release, set, what) in sets() {
        let Some(mut rocksdb) = Session::start(release) else { return };
        let (theirs, ours) = (Scratch::new(), Scratch::new());
        rocksdb.run(&format!("open {} {};{}", theirs.db().display(), set.db, set.cf));
        rocksdb.run("close");
        has(&theirs.db(), set, &format!("{what}, by RocksDB"));
        let loaded = load(&theirs.db(), &what);
        assert_eq!(differences(&theirs.db(), "default", &loaded), Vec::<String>::new(), "{what}");
        // A database of that kind says the same.
        let default = ColumnFamilyDescriptor::new("default", loaded.column_families[0].1.clone());
        Db::open_column_families(&loaded.db, ours.db(), vec![default]).unwrap().close().unwrap();
        has(&ours.db(), set, &what);
    }
}

#[test]
fn rocksdb_loads_every_value_that_we_wrote() {
    for (release, set, what) in sets() {
        let Some(mut rocksdb) = Session::start(release) else { return };
        let (theirs, ours) = (Scratch::new(), Scratch::new());
        let mut db = DbOptions::from_string(set.db).unwrap();
        (db.create_if_missing, db.create_missing_column_families) = (true, true);
        let cf = ColumnFamilyOptions::from_string(set.cf).unwrap();
        let families = [("default", cf), ("second", ColumnFamilyOptions::default())];
        let families = families.map(|(name, cf)| ColumnFamilyDescriptor::new(name, cf)).to_vec();
        Db::open_column_families(&db, ours.db(), families).unwrap().close().unwrap();

        let step = format!("copy_options {} {}", ours.db().display(), theirs.db().display());
        assert_eq!(rocksdb.run(&step), ["default", "second"], "{what}");
        has(&theirs.db(), set, &what);
        let written = load(&ours.db(), &what);
        for family in ["default", "second"] {
            assert_eq!(differences(&theirs.db(), family, &written), Vec::<String>::new(), "{what}, {family}");
        }
    }
}
