//! From flags to the engine's options. Options go by name through the engine's own tables, so that
//! what it ignores is reported and what it refuses is refused, here as everywhere.

use super::flag::Role;
use super::flags::{ENGINE_DECIDES, Flags};
use ironstone::options::{LoadOptions, OptionStruct, OptionsFile, Status};
use ironstone::statistics::StatsLevel;
use ironstone::{
    BlockCache, CacheOptions, ChecksumKind, ColumnFamilyOptions, CompactionPriority, CompressionKind,
    DataBlockIndexType, DbOptions, Error, FilterPolicy, IndexShortening, IndexType, InfoLogLevel,
    MemTableKind, PrepopulateBlockCache, Result, RowCache, SimCache, Statistics, TableFormat, ThreadPool,
    merge_operators, options, slice_transform,
};
use ironstone_base::sync::Arc;
use std::path::Path;

/// What a database is opened with.
pub struct EngineOptions {
    /// Options of the database.
    pub db: DbOptions,
    /// Options of each column family.
    pub cf: ColumnFamilyOptions,
    /// What to say about flags that the engine ignores.
    pub notes: Vec<String>,
}

impl EngineOptions {
    /// The options that `flags` ask for. The cache and the statistics in it are shared by all
    /// databases that are opened with it.
    pub fn new(flags: &Flags) -> Result<Self> {
        let mut options =
            Self { db: DbOptions::default(), cf: ColumnFamilyOptions::default(), notes: flags.notes.clone() };
        if flags.options_file.is_empty() {
            options.set_by_name(flags)?;
            options.db.max_subcompactions = in_range("subcompactions", flags.subcompactions)?;
            options.set_levels(flags)?;
            options.set_compression(flags)?;
            options.set_tables(flags)?;
        } else {
            let path = Path::new(&flags.options_file);
            let file = OptionsFile::load(&*options.db.env.fs, path, &LoadOptions::default())?;
            options.db = file.db;
            options.cf = file.column_families.into_iter().next().map(|(_, cf)| cf).unwrap_or_default();
        }
        options.set_shared(flags)?;
        Ok(options)
    }

    fn set_by_name(&mut self, flags: &Flags) -> Result<()> {
        for spec in Flags::table() {
            let given = flags.others.get(spec.name);
            let text = match spec.kind.normalize(given.map_or(spec.default, String::as_str)) {
                Some(text) => text,
                None => continue, // Values were checked when they were read.
            };
            let outcome = match spec.role {
                Role::Database(option) => set_option(&mut self.db, option, &text),
                Role::ColumnFamily(option) => set_option(&mut self.cf, option, &text),
                Role::Table(option) => set_option(&mut self.cf.table, option, &text),
                _ => continue,
            };
            match outcome {
                Ok(Outcome::Set) => {}
                Ok(Outcome::Ignored(why)) if given.is_some_and(|given| given != spec.default) => {
                    self.notes.push(format!("--{} is ignored: {why}", spec.name));
                }
                Ok(Outcome::Ignored(_)) => {}
                // A default of RocksDB's that means nothing without the feature.
                Err(_) if given.is_none_or(|given| given == spec.default) => {}
                Err(error) => return Err(Error::not_supported(format!("--{}={text}: {error}", spec.name))),
            }
        }
        Ok(())
    }

    /// What a run needs, wherever the other options come from.
    fn set_shared(&mut self, flags: &Flags) -> Result<()> {
        self.db.create_if_missing = true;
        self.db.create_missing_column_families = true;
        let bottom_threads = in_range("num_bottom_pri_threads", flags.num_bottom_pri_threads)?;
        self.db.thread_pool = ThreadPool::new();
        self.db.thread_pool.set_bottom_threads(Some(bottom_threads));
        if flags.statistics {
            let statistics = Statistics::new();
            let level: u8 = in_range("stats_level", flags.stats_level)?;
            let level =
                StatsLevel::from_number(level).ok_or_else(|| bad("stats_level", flags.stats_level))?;
            statistics.set_level(level);
            self.db.statistics = Some(Arc::new(statistics));
        }
        if let Ok(capacity) = usize::try_from(flags.simcache_size) {
            let num_shard_bits = flags.cache_numshardbits;
            let simulated = CacheOptions { capacity, num_shard_bits, ..CacheOptions::default() };
            self.cf.table.sim_cache = Some(SimCache::new(simulated));
        }
        if let Some(capacity) = usize::try_from(flags.row_cache_size).ok().filter(|&bytes| bytes > 0) {
            let num_shard_bits = flags.cache_numshardbits;
            let rows = CacheOptions { capacity, num_shard_bits, ..CacheOptions::default() };
            self.db.row_cache = Some(RowCache::new(rows));
        }
        if flags.use_stderr_info_logger {
            self.db.info_log = Some(Arc::new(StderrLog));
        }
        let table = &mut self.cf.table;
        if table.filter_policy.is_none() && flags.bloom_bits > 0.0 {
            table.filter_policy = Some(match flags.use_ribbon_filter {
                true => FilterPolicy::ribbon(flags.bloom_bits, 0),
                false => FilterPolicy::bloom(flags.bloom_bits),
            });
        }
        match flags.cache_type.as_str() {
            "lru_cache" | "hyper_clock_cache" | "auto_hyper_clock_cache" | "fixed_hyper_clock_cache" => {}
            other => return Err(bad("cache_type", other)),
        }
        match usize::try_from(flags.cache_size) {
            Ok(capacity) if capacity > 0 => {
                let num_shard_bits = flags.cache_numshardbits;
                table.block_cache = Some(BlockCache::new(CacheOptions {
                    capacity,
                    num_shard_bits,
                    ..CacheOptions::default()
                }));
            }
            _ if flags.options_file.is_empty() && flags.simcache_size < 0 => table.no_block_cache = true,
            _ => {}
        }
        Ok(())
    }

    fn set_levels(&mut self, flags: &Flags) -> Result<()> {
        let cf = &mut self.cf;
        cf.memtable_factory = match flags.memtablerep.as_str() {
            "skip_list" => MemTableKind::default(),
            "vector" => MemTableKind::Vector,
            "prefix_hash" => MemTableKind::HASH_SKIP_LIST,
            "hash_linkedlist" => MemTableKind::HASH_LINK_LIST,
            other => return Err(Error::not_supported(format!("--memtablerep={other}"))),
        };
        if !flags.merge_operator.is_empty() {
            let operator = merge_operators::builtin(&flags.merge_operator);
            cf.merge_operator = Some(operator.ok_or_else(|| bad("merge_operator", &flags.merge_operator))?);
        }
        cf.compaction_pri = match flags.compaction_pri {
            0 => CompactionPriority::ByCompensatedSize,
            1 => CompactionPriority::OldestLargestSeqFirst,
            2 => CompactionPriority::OldestSmallestSeqFirst,
            3 => CompactionPriority::MinOverlappingRatio,
            4 => CompactionPriority::RoundRobin,
            other => return Err(bad("compaction_pri", other)),
        };
        if flags.ttl_seconds < ENGINE_DECIDES {
            cf.ttl = flags.ttl_seconds;
        }
        if flags.periodic_compaction_seconds < ENGINE_DECIDES {
            cf.periodic_compaction_seconds = flags.periodic_compaction_seconds;
        }
        let factors = &flags.max_bytes_for_level_multiplier_additional;
        if !factors.is_empty() {
            let factors: Option<Vec<i32>> =
                factors.split(',').map(|factor| factor.trim().parse().ok()).collect();
            cf.max_bytes_for_level_multiplier_additional = factors
                .filter(|factors| factors.len() == cf.num_levels as usize)
                .ok_or_else(|| Error::invalid_argument("--max_bytes_for_level_multiplier_additional: one whole number per level belongs there"))?;
        }
        if flags.prefix_size > 0 {
            cf.prefix_extractor = Some(slice_transform::fixed_prefix(flags.prefix_size as usize));
        }
        Ok(())
    }

    fn set_compression(&mut self, flags: &Flags) -> Result<()> {
        self.db.wal_compression = compression_kind(&flags.wal_compression)?;
        let cf = &mut self.cf;
        let kind = compression_kind(&flags.compression_type)?;
        cf.compression = kind;
        if let Ok(first) = usize::try_from(flags.min_level_to_compress) {
            let levels = cf.num_levels as usize;
            if first > levels {
                return Err(bad("min_level_to_compress", first));
            }
            cf.compression_per_level =
                (0..levels).map(|level| if level < first { CompressionKind::None } else { kind }).collect();
        }
        let compression = &mut cf.compression_opts;
        compression.level = flags.compression_level;
        compression.max_dict_bytes = flags.compression_max_dict_bytes;
        compression.zstd_max_train_bytes = flags.compression_zstd_max_train_bytes;
        compression.parallel_threads = flags.compression_parallel_threads;
        compression.max_dict_buffer_bytes = flags.compression_max_dict_buffer_bytes;
        compression.use_zstd_dict_trainer = flags.compression_use_zstd_dict_trainer;
        Ok(())
    }

    fn set_tables(&mut self, flags: &Flags) -> Result<()> {
        let table = &mut self.cf.table;
        let checksum: u8 = in_range("checksum_type", flags.checksum_type)?;
        table.checksum = ChecksumKind::from_byte(checksum).ok_or_else(|| bad("checksum_type", checksum))?;
        table.index_shortening = match flags.index_shortening_mode {
            0 => IndexShortening::None,
            1 => IndexShortening::ShortenSeparators,
            2 => IndexShortening::ShortenSeparatorsAndSuccessor,
            other => return Err(bad("index_shortening_mode", other)),
        };
        table.prepopulate_block_cache = match flags.prepopulate_block_cache {
            0 => PrepopulateBlockCache::Disable,
            1 => PrepopulateBlockCache::FlushOnly,
            2 => PrepopulateBlockCache::FlushAndCompaction,
            other => return Err(bad("prepopulate_block_cache", other)),
        };
        table.index_type = if flags.partition_index || flags.partition_index_and_filters {
            IndexType::TwoLevel
        } else if flags.index_with_first_key {
            IndexType::BinarySearchWithFirstKey
        } else if flags.use_hash_search {
            if flags.prefix_size == 0 {
                return Err(Error::invalid_argument("--use_hash_search needs --prefix_size"));
            }
            IndexType::HashSearch
        } else {
            IndexType::BinarySearch
        };
        table.partition_filters = flags.partition_index_and_filters;
        table.data_block_index_type = if flags.use_data_block_hash_index {
            DataBlockIndexType::BinarySearchAndHash
        } else {
            DataBlockIndexType::BinarySearch
        };
        if flags.use_cuckoo_table {
            if flags.use_plain_table {
                return Err(Error::invalid_argument(
                    "--use_plain_table and --use_cuckoo_table exclude each other",
                ));
            }
            self.cf.table_format = TableFormat::Cuckoo;
            self.cf.cuckoo_table.hash_table_ratio = flags.cuckoo_hash_ratio;
            self.cf.cuckoo_table.identity_as_first_hash = flags.identity_as_first_hash;
        }
        if flags.use_plain_table {
            if flags.prefix_size == 0 {
                return Err(Error::invalid_argument("--use_plain_table needs --prefix_size"));
            }
            self.cf.table_format = TableFormat::Plain;
            let plain = &mut self.cf.plain_table;
            plain.user_key_len = in_range("key_size", flags.key_size)?;
            if flags.bloom_bits >= 0.0 {
                plain.bloom_bits_per_key = flags.bloom_bits as i32;
            }
        }
        Ok(())
    }
}

/// The codec of that name, in either case.
pub fn compression_kind(name: &str) -> Result<CompressionKind> {
    let kind = match name.to_ascii_lowercase().as_str() {
        "none" => CompressionKind::None,
        "snappy" => CompressionKind::Snappy,
        "zlib" => CompressionKind::Zlib,
        "bzip2" => CompressionKind::Bzip2,
        "lz4" => CompressionKind::Lz4,
        "lz4hc" => CompressionKind::Lz4hc,
        "zstd" => CompressionKind::Zstd,
        "xpress" => return Err(Error::not_supported("--compression_type=xpress")),
        _ => return Err(bad("compression_type", name)),
    };
    Ok(kind)
}

enum Outcome {
    Set,
    Ignored(&'static str),
}

/// Sets one option through the engine's table.
fn set_option<T: OptionStruct>(options: &mut T, name: &str, text: &str) -> Result<Outcome> {
    let spec = T::table().iter().find(|spec| spec.name == name);
    let spec = spec.ok_or_else(|| Error::invalid_argument(format!("{} has no option {name}", T::NAME)))?;
    match &spec.status {
        Status::Built { set, .. } | Status::Alias { set, .. } => match set(options, text) {
            Ok(()) => Ok(Outcome::Set),
            Err(error) => Err(Error::invalid_argument(format!("{name}: {error}"))),
        },
        Status::Ignored { why, .. } => Ok(Outcome::Ignored(why)),
        Status::Deprecated => Ok(Outcome::Ignored("RocksDB retired the option")),
        Status::Refused { off, .. } if off.contains(&text) => Ok(Outcome::Set),
        Status::Refused { feature, .. } => Err(Error::not_supported(*feature)),
    }
}

fn bad(flag: &str, value: impl std::fmt::Display) -> Error {
    Error::invalid_argument(format!("--{flag}={value}: no value that it can have"))
}

fn in_range<T, U>(flag: &str, value: T) -> Result<U>
where
    T: Copy + std::fmt::Display,
    U: TryFrom<T>,
{
    U::try_from(value).map_err(|_| bad(flag, value))
}

/// `use_stderr_info_logger`.
struct StderrLog;

impl options::Logger for StderrLog {
    fn log(&self, _: InfoLogLevel, line: &str) {
        eprintln!("{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironstone::vfs::Env;
    use ironstone::{Db, Options};

    #[test]
    fn every_flag_of_an_option_names_one() {
        let options = EngineOptions::new(&Flags::default()).unwrap();
        assert_eq!(options.notes, Vec::<String>::new());
        for spec in Flags::table() {
            let known = match spec.role {
                Role::Database(option) => DbOptions::table().iter().any(|row| row.name == option),
                Role::ColumnFamily(option) => {
                    ColumnFamilyOptions::table().iter().any(|row| row.name == option)
                }
                Role::Table(option) => {
                    ironstone::BlockBasedTableOptions::table().iter().any(|row| row.name == option)
                }
                _ => true,
            };
            assert!(known, "{}", spec.name);
        }
    }

    #[test]
    fn levels_above_the_first_compressed_one_are_stored_raw() {
        let flags =
            Flags { min_level_to_compress: 2, compression_type: "zlib".to_owned(), ..Flags::default() };
        let options = EngineOptions::new(&flags).unwrap();
        let (none, zlib) = (CompressionKind::None, CompressionKind::Zlib);
        assert_eq!(options.cf.compression_per_level, [none, none, zlib, zlib, zlib, zlib, zlib]);
    }

    #[test]
    fn threads_for_the_last_level_come_beside_the_others() {
        for (bottom_threads, threads) in [(0, 5), (2, 7)] {
            let flags = Flags { num_bottom_pri_threads: bottom_threads, ..Flags::default() };
            let mut options = EngineOptions::new(&flags).unwrap();
            options.db.env = Env::in_memory();
            options.db.max_background_jobs = 4; // 1 to flush, 3 to compact, and 1 that cleans.
            options.db.thread_pool.set_compaction_threads(Some(3));
            let db = Db::open(&Options { db: options.db.clone(), cf: options.cf }, "/db").unwrap();
            assert_eq!(options.db.thread_pool.thread_count(), threads);
            db.close().unwrap();
        }
        assert!(EngineOptions::new(&Flags { num_bottom_pri_threads: -1, ..Flags::default() }).is_err());
    }
}
