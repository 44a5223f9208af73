//! Options of the compaction styles that are not levelled.

use super::spec::option_struct;
use super::table_options::MetadataCacheOptions;
use super::text::{self, OptionError};
use super::value::OptionValue;
use ironstone_compaction::{FifoOptions, StopStyle, UniversalOptions};

option_struct! {
    /// Options of universal compaction. Names, meanings and defaults are RocksDB's.
    ///
    /// ```
    /// use ironstone::{CompactionStyle, Db, Options};
    ///
    /// let mut options = Options::in_memory();
    /// options.cf.compaction_style = CompactionStyle::Universal;
    /// options.cf.level0_file_num_compaction_trigger = 4; // With so many sorted runs,
    /// options.cf.compaction_options_universal.max_size_amplification_percent = 1000;
    /// options.cf.compaction_options_universal.max_merge_width = 3; // at most so many are merged.
    /// let db = Db::open(&options, "/db")?;
    /// for number in 0..4 {
    ///     db.put(b"key", format!("{number}"))?;
    ///     db.flush()?;
    /// }
    /// db.wait_for_compact()?;
    /// let runs: usize = db.level_shape(db.default_column_family()).iter().map(|(tables, _bytes)| tables).sum();
    /// assert_eq!(runs, 2); // Levelled compaction would have left one.
    /// # Ok::<_, ironstone::Error>(())
    /// ```
    pub struct UniversalCompactionOptions, "CompactionOptionsUniversal";
    built {
        /// By how many percent the next sorted run may be larger than those above it together.
        size_ratio: u32 = 1, Mutable, V7;
        /// At least so many sorted runs are merged because of their sizes or their number.
        min_merge_width: u32 = 2, Mutable, V7;
        /// At most so many sorted runs are merged because of their sizes or their number.
        max_merge_width: u32 = u32::MAX, Mutable, V7;
        /// Everything is merged once the sorted runs above the oldest one have so many percent of its size.
        max_size_amplification_percent: u32 = 200, Mutable, V7;
        /// Outputs are compressed only while what is older is less than so many percent of all; -1: always.
        compression_size_percent: i32 = -1, Mutable, V7;
        /// How many sorted runs there may be; -1: `level0_file_num_compaction_trigger`; 0: as many as the
        /// data needs.
        max_read_amp: i32 = -1, Mutable, Later;
        /// When no further sorted run is taken.
        stop_style: StopStyle = StopStyle::TotalSize, Mutable, V7;
        /// Move sorted runs that overlap nothing instead of rewriting them.
        allow_trivial_move: bool = false, Mutable, V7;
        /// Where the sorted runs above the oldest one are too large, merge a part of the last two runs if that is cheap
        /// enough, and everything only if it is not. Bounded by `max_compaction_bytes`.
        incremental: bool = false, Mutable, V7;
    }
    rows {
        ignored("reduce_file_locking", "bool", "true", Change::Mutable, Since::Later, "no compaction waits for a thread with its files claimed");
    }
    fields {}
}

option_struct! {
    /// Options of FIFO compaction. Names, meanings and defaults are RocksDB's.
    ///
    /// ```
    /// use ironstone::{CompactionStyle, CompressionKind, Db, Options};
    ///
    /// let mut options = Options::in_memory();
    /// options.cf.compaction_style = CompactionStyle::Fifo;
    /// options.cf.compression = CompressionKind::None;
    /// options.cf.compaction_options_fifo.max_table_files_size = 100_000;
    /// let db = Db::open(&options, "/db")?;
    /// for day in ["monday", "tuesday", "wednesday"] {
    ///     db.put(day, vec![b'x'; 40_000])?;
    ///     db.flush()?;
    /// }
    /// db.wait_for_compact()?;
    /// assert!(db.get(b"monday")?.is_none()); // Its table was dropped as it was.
    /// assert!(db.get(b"tuesday")?.is_some() && db.get(b"wednesday")?.is_some());
    /// # Ok::<_, ironstone::Error>(())
    /// ```
    pub struct FifoCompactionOptions, "CompactionOptionsFIFO";
    built {
        /// The oldest tables are dropped while all take more bytes than this.
        max_table_files_size: u64 = 1 << 30, Mutable, V7;
        /// Merge small tables into one.
        allow_compaction: bool = false, Mutable, V7;
    }
    rows {
        ignored("age_for_warm", "uint64", "0", Change::Mutable, Since::V7, "the file system takes no such hint");
        refused("file_temperature_age_thresholds", "list of FileTemperatureAge", &["", "{}"], Change::Mutable, Since::Later, "tiered storage");
        ignored("allow_trivial_copy_when_change_temperature", "bool", "false", Change::Mutable, Since::Later, "only tiered storage uses it");
        ignored("trivial_copy_buffer_size", "uint64", "4096", Change::Mutable, Since::Later, "only tiered storage uses it");
        refused("max_data_files_size", "uint64", &["0"], Change::Mutable, Since::Later, "blob files");
        refused("use_kv_ratio_compaction", "bool", &["false"], Change::Mutable, Since::Later, "blob files");
        deprecated("ttl", "uint64");
    }
    fields {}
}

impl UniversalCompactionOptions {
    pub(crate) fn layer(&self) -> UniversalOptions {
        UniversalOptions {
            size_ratio: self.size_ratio,
            min_merge_width: self.min_merge_width,
            max_merge_width: self.max_merge_width,
            max_size_amplification_percent: self.max_size_amplification_percent,
            compression_size_percent: self.compression_size_percent,
            max_read_amp: self.max_read_amp,
            stop_style: self.stop_style,
            allow_trivial_move: self.allow_trivial_move,
            incremental: self.incremental,
        }
    }
}

impl FifoCompactionOptions {
    pub(crate) fn layer(&self) -> FifoOptions {
        FifoOptions {
            max_table_files_size: self.max_table_files_size,
            allow_compaction: self.allow_compaction,
        }
    }
}

/// `{a=b;c=d;}`. Setting changes only what the text names.
macro_rules! nested_values {
    ($($type:ty = $kind:literal,)*) => { $(
        impl OptionValue for $type {
            const KIND: &'static str = $kind;
            fn parse(text: &str) -> Result<Self, OptionError> {
                let mut options = Self::default();
                options.set(text)?;
                Ok(options)
            }
            fn print(&self) -> String {
                text::print_nested(self)
            }
            fn set(&mut self, text: &str) -> Result<(), OptionError> {
                let mut changed = self.clone();
                text::set_nested(&mut changed, text)?;
                *self = changed;
                Ok(())
            }
        }
    )* };
}
nested_values! {
    UniversalCompactionOptions = "CompactionOptionsUniversal",
    FifoCompactionOptions = "CompactionOptionsFIFO",
    MetadataCacheOptions = "MetadataCacheOptions",
}
