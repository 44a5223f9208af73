//! Options that contradict each other are refused; numbers out of range are brought into it.

use super::column_family_options::UNSET_SECONDS;
use super::{ColumnFamilyOptions, DbOptions, OptionStruct};
use crate::table_paths::paths_of;
use ironstone_base::protection::is_protection_len;
use ironstone_base::{Error, Result};
use ironstone_compaction::{CompactionStyle, DailyOffpeak};
use ironstone_sst::{CompressionKind, DataBlockIndexType, IndexType, PlainEncoding, TableFormat};

/// More levels than any key range fills.
const MAX_LEVELS: i32 = 64;

/// Path ids are 0 to 3.
const MAX_PATHS: usize = 4;

struct Rule {
    broken: bool,
    says: &'static str,
}

fn is_true<T: OptionStruct>(options: &T, name: &str) -> bool {
    super::text::get_one(options, name).is_some_and(|text| text == "true" || text == "1")
}

/// Refuses options that contradict each other: `InvalidArgument` that names them.
pub fn validate(db: &DbOptions, cf: &ColumnFamilyOptions) -> Result<()> {
    let unordered = is_true(db, "unordered_write");
    let (table, plain) = (&cf.table, &cf.plain_table);
    let is_plain = cf.table_format == TableFormat::Plain;
    let is_cuckoo = cf.table_format == TableFormat::Cuckoo;
    let ratio = cf.cuckoo_table.hash_table_ratio;
    let compressed = |kind: &CompressionKind| *kind != CompressionKind::None;
    let any_compression = if cf.compression_per_level.is_empty() {
        compressed(&cf.compression)
    } else {
        cf.compression_per_level.iter().any(compressed)
    } || cf.bottommost_compression.as_ref().is_some_and(compressed);
    let trains_without_room = [&cf.compression_opts, &cf.bottommost_compression_opts]
        .iter()
        .any(|options| options.zstd_max_train_bytes > 0 && options.max_dict_bytes == 0);
    let hashed_blocks = table.data_block_index_type == DataBlockIndexType::BinarySearchAndHash;

    let rules = [
        Rule {
            broken: db.use_direct_reads && db.allow_mmap_reads,
            says: "use_direct_reads and allow_mmap_reads exclude each other",
        },
        Rule {
            broken: db.use_direct_io_for_flush_and_compaction && is_true(db, "allow_mmap_writes"),
            says: "use_direct_io_for_flush_and_compaction and allow_mmap_writes exclude each other",
        },
        Rule {
            broken: db.use_direct_io_for_flush_and_compaction && db.writable_file_max_buffer_size == 0,
            says: "use_direct_io_for_flush_and_compaction needs writable_file_max_buffer_size above 0",
        },
        Rule { broken: db.keep_log_file_num == 0, says: "keep_log_file_num has to be above 0" },
        Rule {
            broken: unordered && !is_true(db, "allow_concurrent_memtable_write"),
            says: "unordered_write needs allow_concurrent_memtable_write",
        },
        Rule {
            broken: cf.inplace_update_support && is_true(db, "allow_concurrent_memtable_write"),
            says: "inplace_update_support needs allow_concurrent_memtable_write=false",
        },
        Rule {
            broken: cf.inplace_callback.is_some() && !cf.inplace_update_support,
            says: "inplace_callback needs inplace_update_support",
        },
        Rule {
            broken: unordered && is_true(db, "enable_pipelined_write"),
            says: "unordered_write and enable_pipelined_write exclude each other",
        },
        Rule {
            broken: db.atomic_flush && is_true(db, "enable_pipelined_write"),
            says: "atomic_flush and enable_pipelined_write exclude each other",
        },
        Rule {
            broken: !db.write_dbid_to_manifest && !db.write_identity_file,
            says: "write_dbid_to_manifest or write_identity_file has to be true",
        },
        Rule {
            broken: !(0..=MAX_LEVELS).contains(&cf.num_levels),
            says: "num_levels has to be within 0 and 64",
        },
        Rule {
            broken: !is_protection_len(cf.memtable_protection_bytes_per_key),
            says: "memtable_protection_bytes_per_key has to be 0, 1, 2, 4 or 8",
        },
        Rule {
            broken: !is_protection_len(u32::from(cf.block_protection_bytes_per_key)),
            says: "block_protection_bytes_per_key has to be 0, 1, 2, 4 or 8",
        },
        Rule {
            broken: !(cf.read_triggered_compaction_threshold >= 0.0
                && cf.read_triggered_compaction_threshold.is_finite()),
            says: "read_triggered_compaction_threshold must be >= 0.0 and finite; 0.0 turns it off",
        },
        Rule { broken: cf.target_file_size_base == 0, says: "target_file_size_base has to be above 0" },
        Rule {
            broken: trains_without_room,
            says: "compression_opts: zstd_max_train_bytes needs max_dict_bytes above 0",
        },
        Rule {
            broken: table.index_type == IndexType::HashSearch && cf.prefix_extractor.is_none(),
            says: "index_type kHashSearch needs a prefix_extractor",
        },
        Rule {
            broken: table.no_block_cache && table.cache_index_and_filter_blocks,
            says: "cache_index_and_filter_blocks and no_block_cache exclude each other",
        },
        Rule {
            broken: table.no_block_cache && table.pin_l0_filter_and_index_blocks_in_cache,
            says: "pin_l0_filter_and_index_blocks_in_cache and no_block_cache exclude each other",
        },
        Rule {
            broken: table.no_block_cache && table.block_cache.is_some(),
            says: "block_cache and no_block_cache exclude each other",
        },
        Rule {
            broken: table.no_block_cache && table.sim_cache.is_some(),
            says: "sim_cache and no_block_cache exclude each other",
        },
        Rule {
            broken: table.block_align && any_compression,
            says: "block_align and compression exclude each other",
        },
        Rule {
            broken: table.block_align && !table.block_size.is_power_of_two(),
            says: "block_align needs a block_size that is a power of 2",
        },
        Rule {
            broken: table.block_size == 0 || table.block_size > u32::MAX as usize,
            says: "block_size has to be within 1 and 4 GiB",
        },
        Rule {
            broken: hashed_blocks && table.data_block_hash_table_util_ratio <= 0.0,
            says: "data_block_index_type kDataBlockBinaryAndHash needs data_block_hash_table_util_ratio above 0",
        },
        Rule {
            broken: !(2..=7).contains(&table.format_version),
            says: "format_version has to be within 2 and 7",
        },
        Rule {
            broken: is_plain && cf.prefix_extractor.is_none() && plain.hash_table_ratio != 0.0,
            says: "PlainTable: hash_table_ratio needs a prefix_extractor; without one it has to be 0",
        },
        Rule {
            broken: is_plain && cf.prefix_extractor.is_none() && plain.encoding_type == PlainEncoding::Prefix,
            says: "PlainTable: encoding_type kPrefix needs a prefix_extractor",
        },
        Rule {
            broken: plain.hash_table_ratio < 0.0 || plain.bloom_bits_per_key < 0,
            says: "PlainTable: hash_table_ratio and bloom_bits_per_key have to be 0 or more",
        },
        Rule {
            broken: !(ratio > 0.0 && ratio <= 1.0),
            says: "CuckooTable: hash_table_ratio has to be above 0, and at most 1",
        },
        Rule {
            broken: is_cuckoo && cf.merge_operator.is_some(),
            says: "CuckooTable and merge_operator exclude each other",
        },
        Rule {
            broken: is_cuckoo && cf.comparator.different_bytes_may_be_equal(),
            says: "CuckooTable needs a comparator to which different bytes are never equal",
        },
        Rule {
            broken: !(0..=100).contains(&table.block_size_deviation),
            says: "block_size_deviation has to be within 0 and 100",
        },
    ];
    if let Some(rule) = rules.iter().find(|rule| rule.broken) {
        return Err(Error::invalid_argument(rule.says));
    }
    if let Err(what) = DailyOffpeak::parse(&db.daily_offpeak_time_utc) {
        let text = &db.daily_offpeak_time_utc;
        return Err(Error::invalid_argument(format!("daily_offpeak_time_utc: {text:?}: {what}")));
    }
    for (name, paths) in [("db_paths", &db.db_paths), ("cf_paths", &cf.cf_paths)] {
        if paths.len() > MAX_PATHS {
            return Err(Error::not_supported(format!("{name}: more than four paths")));
        }
        if paths.iter().any(|path| path.path.as_os_str().is_empty()) {
            return Err(Error::invalid_argument(format!("{name}: a path is empty")));
        }
    }
    if cf.compaction_style == CompactionStyle::Fifo && paths_of(db, cf).len() > 1 {
        let what = "more than one of db_paths or cf_paths: only with levelled and universal compaction";
        return Err(Error::not_supported(what));
    }
    let read_amp = cf.compaction_options_universal.max_read_amp;
    if cf.compaction_style == CompactionStyle::Universal
        && (read_amp < -1 || (read_amp > 0 && read_amp < cf.level0_file_num_compaction_trigger))
    {
        let what = "max_read_amp below level0_file_num_compaction_trigger, and neither -1 nor 0";
        return Err(Error::not_supported(what));
    }
    if let Some(filter) = cf.compaction_filter.as_ref().filter(|filter| !filter.ignore_snapshots()) {
        let name = filter.name();
        return Err(Error::not_supported(format!("compaction filter {name}: ignore_snapshots is false")));
    }
    codecs_are_built(cf)
}

fn codecs_are_built(cf: &ColumnFamilyOptions) -> Result<()> {
    let all = [cf.compression].into_iter().chain(cf.bottommost_compression);
    match all.chain(cf.compression_per_level.iter().copied()).find(|kind| !kind.is_supported()) {
        Some(kind) => Err(Error::not_supported(format!("compression {}", kind.option_name()))),
        None => Ok(()),
    }
}

/// Changes a number and notes it.
macro_rules! adjust {
    ($notes:ident, $options:ident . $field:ident, $value:expr, $why:expr) => {
        let value = $value;
        if $options.$field != value {
            let name = stringify!($field);
            $notes.push(format!("{name} is {:?} instead of {:?}: {}", value, $options.$field, $why));
            $options.$field = value;
        }
    };
}

impl DbOptions {
    /// Brings numbers into their range, as RocksDB does at opening. Returns what was changed, for LOG.
    pub fn sanitize(&mut self) -> Vec<String> {
        let mut notes = Vec::new();
        let db = self;
        if db.max_open_files != -1 {
            adjust!(notes, db.max_open_files, db.max_open_files.max(20), "at least 20 files, or -1");
        }
        if db.delayed_write_rate == 0 {
            db.delayed_write_rate = 16 << 20;
        }
        if db.wal_ttl_seconds > 0 || db.wal_size_limit_mb > 0 {
            adjust!(notes, db.recycle_log_file_num, 0, "WALs are archived");
        }
        use ironstone_wal::WalRecoveryMode::{AbsoluteConsistency, TolerateCorruptedTailRecords};
        if matches!(db.wal_recovery_mode, AbsoluteConsistency | TolerateCorruptedTailRecords) {
            // In a recycled WAL the end looks like damage, which these modes do not accept.
            adjust!(notes, db.recycle_log_file_num, 0, "wal_recovery_mode takes the end for damage");
        }
        if db.wal_compression != CompressionKind::Zstd {
            adjust!(notes, db.wal_compression, CompressionKind::None, "only kZSTD is there for WALs");
        }
        adjust!(notes, db.max_background_jobs, db.max_background_jobs.max(1), "at least one");
        adjust!(notes, db.max_subcompactions, db.max_subcompactions.max(1), "at least one");
        notes
    }
}

impl ColumnFamilyOptions {
    /// Brings numbers into their range, as RocksDB does at opening. Returns what was changed, for LOG.
    pub fn sanitize(&mut self) -> Vec<String> {
        let mut notes = Vec::new();
        let cf = self;
        adjust!(
            notes,
            cf.write_buffer_size,
            cf.write_buffer_size.clamp(4 << 10, 64 << 30),
            "4 KiB to 64 GiB"
        );
        let ratio = cf.memtable_prefix_bloom_size_ratio.clamp(0.0, 0.25);
        adjust!(notes, cf.memtable_prefix_bloom_size_ratio, ratio, "0 to 0.25");
        adjust!(notes, cf.max_write_buffer_number, cf.max_write_buffer_number.max(2), "at least two");
        let merge = cf.min_write_buffer_number_to_merge.min(cf.max_write_buffer_number - 1).max(1);
        adjust!(notes, cf.min_write_buffer_number_to_merge, merge, "less than max_write_buffer_number");
        let levelled = cf.compaction_style == CompactionStyle::Level;
        let least = if levelled { 2 } else { 1 };
        adjust!(notes, cf.num_levels, cf.num_levels.max(least), "at least one, two with levelled compaction");
        cf.level_compaction_dynamic_level_bytes &= levelled;
        if cf.compaction_style == CompactionStyle::Fifo {
            // Dropping is quick, and needs no help from writers.
            cf.level0_slowdown_writes_trigger = i32::MAX;
            cf.level0_stop_writes_trigger = i32::MAX;
        }
        if cf.cf_allow_ingest_behind {
            notes.extend(cf.keep_last_level());
        }
        cf.sanitize_ages();
        let multiplier = cf.max_bytes_for_level_multiplier;
        let positive = if multiplier > 0.0 { multiplier } else { 1.0 };
        adjust!(notes, cf.max_bytes_for_level_multiplier, positive, "above 0");
        adjust!(notes, cf.target_file_size_multiplier, cf.target_file_size_multiplier.max(1), "at least 1");

        let trigger = cf.level0_file_num_compaction_trigger.max(1);
        adjust!(notes, cf.level0_file_num_compaction_trigger, trigger, "at least 1");
        let slowdown = cf.level0_slowdown_writes_trigger.max(trigger);
        adjust!(
            notes,
            cf.level0_slowdown_writes_trigger,
            slowdown,
            "not below level0_file_num_compaction_trigger"
        );
        let stop = cf.level0_stop_writes_trigger.max(slowdown);
        adjust!(notes, cf.level0_stop_writes_trigger, stop, "not below level0_slowdown_writes_trigger");

        let (soft, hard) = (cf.soft_pending_compaction_bytes_limit, cf.hard_pending_compaction_bytes_limit);
        if soft == 0 || (hard > 0 && soft > hard) {
            adjust!(notes, cf.soft_pending_compaction_bytes_limit, hard, "not above the hard limit");
        }
        if cf.max_compaction_bytes == 0 {
            cf.max_compaction_bytes = cf.target_file_size_base.saturating_mul(25);
        }
        let table = &mut cf.table;
        if table.index_type != IndexType::TwoLevel {
            adjust!(notes, table.partition_filters, false, "needs index_type kTwoLevelIndexSearch");
        }
        adjust!(notes, table.block_restart_interval, table.block_restart_interval.max(1), "at least 1");
        adjust!(
            notes,
            table.index_block_restart_interval,
            table.index_block_restart_interval.max(1),
            "at least 1"
        );
        notes
    }
}

impl ColumnFamilyOptions {
    /// Brings numbers into the range that options of the database leave.
    pub(crate) fn sanitize_for(&mut self, db: &DbOptions) -> Vec<String> {
        let (mut notes, cf) = (Vec::new(), self);
        if db.allow_ingest_behind {
            notes.extend(cf.keep_last_level());
        }
        if paths_of(db, cf).len() > 1 {
            let what = "there is more than one of db_paths or cf_paths";
            adjust!(notes, cf.level_compaction_dynamic_level_bytes, false, what);
        }
        if db.atomic_flush {
            // A column family that waits for more would be behind the others.
            adjust!(notes, cf.min_write_buffer_number_to_merge, 1, "atomic_flush is on");
        }
        notes
    }

    /// Makes sure that there is a level to spare for files that are ingested behind, which is asked for by an option
    /// of the column family or of the database.
    fn keep_last_level(&mut self) -> Vec<String> {
        let (mut notes, cf) = (Vec::new(), self);
        if cf.compaction_style != CompactionStyle::Fifo {
            adjust!(notes, cf.num_levels, cf.num_levels.max(3), "files ingested behind have the last level");
        }
        notes
    }

    /// How old files may become, where that depends on other options.
    fn sanitize_ages(&mut self) {
        let filtered = self.compaction_filter.is_some() || self.compaction_filter_factory.is_some();
        let periodic = &mut self.periodic_compaction_seconds;
        if self.table_format != TableFormat::BlockBased {
            // RocksDB knows no ages of other tables, and opens no database whose options ask for them.
            self.ttl = if self.ttl == THIRTY_DAYS { 0 } else { self.ttl };
            *periodic = if *periodic == UNSET_SECONDS { 0 } else { *periodic };
        }
        let unset = *periodic == UNSET_SECONDS;
        match self.compaction_style {
            CompactionStyle::Level if unset && filtered => *periodic = THIRTY_DAYS,
            CompactionStyle::Universal => {
                if unset {
                    *periodic = THIRTY_DAYS;
                }
                // Both say how old a file may become: the stricter one counts.
                *periodic = match (*periodic, self.ttl) {
                    (0, ttl) => ttl,
                    (periodic, 0) => periodic,
                    (periodic, ttl) => periodic.min(ttl),
                };
            }
            _ if unset => *periodic = 0,
            _ => {}
        }
    }
}

const THIRTY_DAYS: u64 = 30 * 24 * 60 * 60;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    #[test]
    fn contradictions_name_both_options() {
        let cases = [
            ("use_direct_reads=true;allow_mmap_reads=true", ["use_direct_reads", "allow_mmap_reads"]),
            ("unordered_write=true;enable_pipelined_write=1", ["unordered_write", "enable_pipelined_write"]),
            ("atomic_flush=true;enable_pipelined_write=true", ["atomic_flush", "enable_pipelined_write"]),
            ("inplace_update_support=true", ["inplace_update_support", "allow_concurrent_memtable_write"]),
            ("index_type=kHashSearch", ["index_type", "prefix_extractor"]),
            ("no_block_cache=true;cache_index_and_filter_blocks=true", ["no_block_cache", "cache_index"]),
            ("block_align=true;compression=kZSTD", ["block_align", "compression"]),
            ("compression_opts={zstd_max_train_bytes=1k}", ["zstd_max_train_bytes", "max_dict_bytes"]),
            ("write_dbid_to_manifest=false;write_identity_file=false", ["write_dbid", "write_identity"]),
        ];
        for (text, names) in cases {
            let options = Options::from_string(text).unwrap();
            let error = validate(&options.db, &options.cf).unwrap_err().to_string();
            assert!(
                error.starts_with("Invalid argument: ") && names.iter().all(|name| error.contains(name)),
                "{error}"
            );
        }
        let options = Options::default();
        validate(&options.db, &options.cf).unwrap();
        let options = Options::from_string("compression=kXpressCompression").unwrap();
        assert!(validate(&options.db, &options.cf).unwrap_err().to_string().contains("kXpressCompression"));
    }

    #[test]
    fn presets_are_valid() {
        let mut options = Options::default();
        options.prepare_for_bulk_load();
        options.db.increase_parallelism(8);
        validate(&options.db, &options.cf).unwrap();
        assert_eq!((options.db.sanitize(), options.cf.sanitize()), (vec![], vec![]));
        let mut cf = ColumnFamilyOptions::default();
        cf.optimize_level_style_compaction(512 << 20).optimize_for_point_lookup(64);
        validate(&options.db, &cf).unwrap();
        assert_eq!(cf.sanitize(), Vec::<String>::new());
        assert_eq!(cf.get("write_buffer_size").as_deref(), Some("134217728"));
        assert_eq!((cf.memtable_prefix_bloom_size_ratio, cf.memtable_whole_key_filtering), (0.02, true));
    }

    #[test]
    fn numbers_come_into_range() {
        let mut options = Options::from_string(
            "level0_slowdown_writes_trigger=-1;max_write_buffer_number=1;num_levels=1;max_open_files=3;\
             recycle_log_file_num=4;wal_recovery_mode=kAbsoluteConsistency;partition_filters=true",
        )
        .unwrap();
        assert_eq!(options.db.sanitize().len(), 2);
        let notes = options.cf.sanitize();
        assert_eq!(notes.len(), 4, "{notes:?}");
        assert_eq!((options.db.max_open_files, options.db.recycle_log_file_num), (20, 0));
        assert_eq!((options.cf.level0_slowdown_writes_trigger, options.cf.num_levels), (4, 2));
        assert_eq!(notes[0], "max_write_buffer_number is 2 instead of 1: at least two");
    }
}
