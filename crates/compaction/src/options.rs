//! What decides the shape of the tree.

use crate::offpeak::DailyOffpeak;
use crate::partitioner::Partitioning;
use ironstone_base::UserComparator;
use ironstone_sst::{CompressionKind, CompressionOptions};

/// Which file of a level goes first. Numbers and names are RocksDB's (`CompactionPri`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[repr(u8)]
pub enum CompactionPriority {
    /// The largest, where deletions count as size.
    ByCompensatedSize = 0,
    /// The one whose newest entry is oldest: suits updates of a few hot key ranges.
    OldestLargestSeqFirst = 1,
    /// The one whose oldest entry is oldest: suits updates spread over all keys.
    OldestSmallestSeqFirst = 2,
    /// The one that drags along the fewest bytes of the next level per byte of its own.
    #[default]
    MinOverlappingRatio = 3,
    /// The one after the last that was compacted, in key order.
    RoundRobin = 4,
}

impl CompactionPriority {
    /// RocksDB's option value: `kMinOverlappingRatio`, ...
    pub const fn name(self) -> &'static str {
        match self {
            Self::ByCompensatedSize => "kByCompensatedSize",
            Self::OldestLargestSeqFirst => "kOldestLargestSeqFirst",
            Self::OldestSmallestSeqFirst => "kOldestSmallestSeqFirst",
            Self::MinOverlappingRatio => "kMinOverlappingRatio",
            Self::RoundRobin => "kRoundRobin",
        }
    }
    /// The priority with that number.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::ByCompensatedSize,
            1 => Self::OldestLargestSeqFirst,
            2 => Self::OldestSmallestSeqFirst,
            3 => Self::MinOverlappingRatio,
            4 => Self::RoundRobin,
            _ => return None,
        })
    }
}

/// How the tree is kept in shape. Numbers and names are RocksDB's (`CompactionStyle`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[repr(u8)]
pub enum CompactionStyle {
    /// Each level is so many times larger than the one above it.
    #[default]
    Level = 0,
    /// Sorted runs of similar size are merged: fewer rewrites, more space.
    Universal = 1,
    /// The oldest tables are dropped.
    Fifo = 2,
}

/// When universal compaction takes no further sorted run. Names are RocksDB's (`CompactionStopStyle`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[repr(u8)]
pub enum StopStyle {
    /// When the next is larger or smaller than the last one taken.
    SimilarSize = 0,
    /// When the next is larger than all that were taken.
    #[default]
    TotalSize = 1,
}

/// The options of universal compaction. Names and defaults are RocksDB's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UniversalOptions {
    /// By how many percent the next run may be larger.
    pub size_ratio: u32,
    /// At least so many runs are merged because of their sizes.
    pub min_merge_width: u32,
    /// At most so many runs are merged because of their sizes.
    pub max_merge_width: u32,
    /// Everything is merged once the runs above the oldest one have so many percent of its size.
    pub max_size_amplification_percent: u32,
    /// Outputs are compressed only as long as what is older is less than so many percent of all. -1: always.
    pub compression_size_percent: i32,
    /// How many runs there may be. -1: as `level0_file_num_compaction_trigger` says; 0: as many as the data
    /// needs.
    pub max_read_amp: i32,
    /// When to take no further run.
    pub stop_style: StopStyle,
    /// Move runs that overlap nothing instead of rewriting them.
    pub allow_trivial_move: bool,
    /// Where the size amplification is too large, merge a part of the second last run with the last if that is
    /// cheap enough.
    pub incremental: bool,
}

impl Default for UniversalOptions {
    fn default() -> Self {
        Self {
            size_ratio: 1,
            min_merge_width: 2,
            max_merge_width: u32::MAX,
            max_size_amplification_percent: 200,
            compression_size_percent: -1,
            max_read_amp: -1,
            stop_style: StopStyle::TotalSize,
            allow_trivial_move: false,
            incremental: false,
        }
    }
}

/// The options of FIFO compaction. Names and defaults are RocksDB's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FifoOptions {
    /// The oldest tables are dropped while all take more bytes than this.
    pub max_table_files_size: u64,
    /// Merge small tables.
    pub allow_compaction: bool,
}

impl Default for FifoOptions {
    fn default() -> Self {
        Self { max_table_files_size: 1 << 30, allow_compaction: false }
    }
}

/// The options of compaction. Names and defaults are RocksDB's.
#[derive(Clone, Debug)]
pub struct CompactionOptions {
    /// How the tree is kept in shape.
    pub style: CompactionStyle,
    /// For universal compaction.
    pub universal: UniversalOptions,
    /// For FIFO compaction.
    pub fifo: FifoOptions,
    /// About how large a memtable becomes, in bytes.
    pub write_buffer_size: usize,
    /// So many files of level 0 stop writers.
    pub level0_stop_writes_trigger: usize,
    /// The order of the user keys.
    pub comparator: UserComparator,
    /// How many levels there are, level 0 included; at least 2 for levelled compaction, 1 for the others.
    pub num_levels: usize,
    /// Level 0 is due when it has so many files.
    pub level0_file_num_compaction_trigger: usize,
    /// The target of the first level below level 0.
    pub max_bytes_for_level_base: u64,
    /// How much larger each further level is.
    pub max_bytes_for_level_multiplier: f64,
    /// Extra factors per level, for static level sizes only; missing ones are 1.
    pub max_bytes_for_level_multiplier_additional: Vec<u32>,
    /// Derive the targets from the size of the last level, so that space amplification is bounded.
    pub level_compaction_dynamic_level_bytes: bool,
    /// The size that an output file of the first level is cut at.
    pub target_file_size_base: u64,
    /// How much larger the files of each further level are.
    pub target_file_size_multiplier: u32,
    /// No output file is larger than that.
    pub target_file_size_is_upper_bound: bool,
    /// Bounds one compaction, and the overlap of an output file with the level after. 0: 25 times
    /// `target_file_size_base`.
    pub max_compaction_bytes: u64,
    /// Which file of a level goes first.
    pub compaction_pri: CompactionPriority,
    /// Move a file that overlaps nothing instead of rewriting it.
    pub allow_trivial_move: bool,
    /// Data older than this many seconds is compacted down. 0: never.
    pub ttl: u64,
    /// A file older than this many seconds is rewritten. 0: never.
    pub periodic_compaction_seconds: u64,
    /// While it lasts, files that would become too old before it begins again are rewritten.
    pub daily_offpeak: Option<DailyOffpeak>,
    /// How many seconds old a file is at least that is rewritten since a snapshot was released.
    pub bottommost_file_compaction_delay: u64,
    /// The codec where nothing below says otherwise.
    pub compression: CompressionKind,
    /// The codec of level 0, then of the base level and those after it; the last entry holds for the rest.
    pub compression_per_level: Vec<CompressionKind>,
    /// The codec of the last level that holds data.
    pub bottommost_compression: Option<CompressionKind>,
    /// The parameters of the codec.
    pub compression_options: CompressionOptions,
    /// The parameters of the codec of the last level; used if `enabled`.
    pub bottommost_compression_options: CompressionOptions,
    /// How much each path may hold, the last excepted, which takes the rest: upper levels go to the first
    /// paths. Empty: there is one path.
    pub path_target_sizes: Vec<u64>,
    /// In how many key ranges one compaction may be split, to run at once.
    pub max_subcompactions: usize,
    /// Whether a compaction filter would see the entries: it keeps manual compactions from moving files.
    pub has_compaction_filter: bool,
    /// Where tables end besides.
    pub partitioning: Partitioning,
    /// Keep the last level free for files ingested behind everything: no sequence number is zeroed.
    pub allow_ingest_behind: bool,
}

impl Default for CompactionOptions {
    fn default() -> Self {
        Self {
            style: CompactionStyle::Level,
            universal: UniversalOptions::default(),
            fifo: FifoOptions::default(),
            write_buffer_size: 64 << 20,
            level0_stop_writes_trigger: 36,
            comparator: UserComparator::Bytewise,
            num_levels: 7,
            level0_file_num_compaction_trigger: 4,
            max_bytes_for_level_base: 256 << 20,
            max_bytes_for_level_multiplier: 10.0,
            max_bytes_for_level_multiplier_additional: Vec::new(),
            level_compaction_dynamic_level_bytes: true,
            target_file_size_base: 64 << 20,
            target_file_size_multiplier: 1,
            target_file_size_is_upper_bound: false,
            max_compaction_bytes: 0,
            compaction_pri: CompactionPriority::MinOverlappingRatio,
            allow_trivial_move: true,
            ttl: 0,
            periodic_compaction_seconds: 0,
            daily_offpeak: None,
            bottommost_file_compaction_delay: 0,
            compression: CompressionKind::Snappy,
            compression_per_level: Vec::new(),
            bottommost_compression: None,
            compression_options: CompressionOptions::default(),
            bottommost_compression_options: CompressionOptions::default(),
            path_target_sizes: Vec::new(),
            max_subcompactions: 1,
            has_compaction_filter: false,
            partitioning: Partitioning::default(),
            allow_ingest_behind: false,
        }
    }
}

impl CompactionOptions {
    /// The bound of one compaction in bytes, the default filled in.
    pub fn max_compaction_bytes(&self) -> u64 {
        match self.max_compaction_bytes {
            0 => self.target_file_size_base.saturating_mul(25),
            set => set,
        }
    }
    /// The path that the files of a compaction go to, which reads `bytes` and writes to `level`.
    pub fn output_path(&self, level: usize, bytes: u64) -> u32 {
        match self.style {
            CompactionStyle::Universal => self.path_of_size(bytes),
            _ => self.path_of_level(level),
        }
    }
    /// The path that files of `level` go to: the first that can take its level and all above it, at their
    /// targets.
    pub fn path_of_level(&self, level: usize) -> u32 {
        let Some(last) = self.path_target_sizes.len().checked_sub(1) else {
            return 0;
        };
        let (mut path, mut left) = (0, self.path_target_sizes[0]);
        let (mut at, mut level_size) = (0, self.max_bytes_for_level_base); // Level 0 is taken to be as large as level 1.
        while path < last {
            if level_size > left {
                path += 1;
                left = self.path_target_sizes[path];
            } else if at == level {
                break;
            } else {
                left -= level_size;
                if at > 0 {
                    level_size = (level_size as f64 * self.max_bytes_for_level_multiplier) as u64;
                }
                at += 1;
            }
        }
        path as u32
    }
    /// The path that a file of `bytes` goes to with universal compaction: the first that has room for it, and with those
    /// before it for as much as may be written before it is merged again.
    pub fn path_of_size(&self, bytes: u64) -> u32 {
        let Some((_, but_last)) = self.path_target_sizes.split_last() else { return 0 };
        let rest = 100u64.saturating_sub(u64::from(self.universal.size_ratio));
        let to_come = (u128::from(bytes) * u128::from(rest) / 100) as u64;
        let mut before = 0u64;
        for (path, &target) in but_last.iter().enumerate() {
            if target > bytes && before.saturating_add(target - bytes) > to_come {
                return path as u32;
            }
            before = before.saturating_add(target);
        }
        but_last.len() as u32
    }
    /// The codec and its parameters for files that a compaction puts into `level`. `bottommost`: no level
    /// below holds files.
    pub fn compression_of_level(
        &self,
        level: usize,
        base_level: usize,
        bottommost: bool,
    ) -> (CompressionKind, CompressionOptions) {
        let options = match self.bottommost_compression_options.enabled && bottommost {
            true => &self.bottommost_compression_options,
            false => &self.compression_options,
        };
        let kind = match (self.bottommost_compression, self.compression_per_level.last()) {
            (Some(kind), _) if bottommost => kind,
            (_, Some(&last)) => {
                let index = if level == 0 { 0 } else { (level + 1).saturating_sub(base_level) };
                self.compression_per_level.get(index).copied().unwrap_or(last)
            }
            _ => self.compression,
        };
        (kind, options.clone())
    }
    /// The codec and its parameters for files that a flush writes.
    pub fn compression_of_flush(&self) -> (CompressionKind, CompressionOptions) {
        let (kind, options) = self.compression_of_level(0, 1, false);
        // What is young is a small part of all, and will be rewritten soon.
        let plain = self.style == CompactionStyle::Universal && self.universal.compression_size_percent >= 0;
        (if plain { CompressionKind::None } else { kind }, options)
    }
    /// The last level that a compaction may write.
    pub fn max_output_level(&self) -> usize {
        let last = self.num_levels.max(1) - 1;
        if self.allow_ingest_behind { last.saturating_sub(1) } else { last }
    }
    /// The size that files of `level` are cut at.
    pub(crate) fn target_file_size(&self, level: usize, base_level: usize) -> u64 {
        // RocksDB counts from the base level with dynamic levels and from level 0 without, and lets the
        // first two of the count have the base size.
        let dynamic = self.level_compaction_dynamic_level_bytes && level >= base_level;
        if level == 0 && self.style != CompactionStyle::Level {
            return u64::MAX; // A sorted run in level 0 is one file.
        }
        let index = if dynamic { level - base_level } else { level };
        let steps = index.saturating_sub(1);
        let multiplier = u64::from(self.target_file_size_multiplier.max(1));
        (0..steps).fold(self.target_file_size_base.max(1), |size, _| size.saturating_mul(multiplier))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_paths(sizes: &[u64]) -> CompactionOptions {
        CompactionOptions {
            path_target_sizes: sizes.to_vec(),
            max_bytes_for_level_base: 100,
            max_bytes_for_level_multiplier: 10.0,
            ..CompactionOptions::default()
        }
    }

    #[test]
    fn a_level_goes_to_the_first_path_that_takes_it_and_those_above() {
        let paths =
            |sizes: &[u64]| (0..5).map(|level| with_paths(sizes).path_of_level(level)).collect::<Vec<_>>();
        assert_eq!(paths(&[]), [0; 5]);
        assert_eq!(paths(&[1]), [0; 5]);
        assert_eq!(
            paths(&[200, 0]),
            [0, 0, 1, 1, 1],
            "levels 0 and 1 are taken to be as large as each other"
        );
        assert_eq!(paths(&[199, 0]), [0, 1, 1, 1, 1]);
        assert_eq!(paths(&[1200, 10_000, 0]), [0, 0, 0, 1, 2]);
        assert_eq!(
            paths(&[50, 100, 1000, 1]),
            [1, 2, 3, 3, 3],
            "what is too small for level 0 is passed over"
        );
    }

    #[test]
    fn a_run_goes_to_the_first_path_that_takes_it_and_what_comes_before_it_is_merged_again() {
        let paths = |sizes: &[u64]| [1, 100, 500, 5000].map(|bytes| with_paths(sizes).path_of_size(bytes));
        assert_eq!(paths(&[]), [0; 4]);
        assert_eq!(paths(&[1]), [0; 4]);
        // 100 leave room for 99 more (size_ratio is 1) from 200 on.
        assert_eq!(paths(&[200, 0]), [0, 0, 1, 1]);
        assert_eq!(paths(&[199, 0]), [0, 1, 1, 1]);
        // What the first path has room for counts for the second.
        assert_eq!(paths(&[199, 801, 0]), [0, 1, 1, 2]);
        assert_eq!(paths(&[199, 795, 0]), [0, 1, 2, 2]);
        assert_eq!(paths(&[u64::MAX, u64::MAX, 0]), [0; 4]);
    }
}
