//! What a picker decides and the executor carries out.

use crate::options::CompactionOptions;
use crate::partitioner::{PartitionerContext, Partitioning};
use ironstone_base::sync::Arc;
use ironstone_base::{ColumnFamilyId, FileNumber, InternalKeyBuf, UserComparator};
use ironstone_sst::{CompressionKind, CompressionOptions};
use ironstone_version::{FileMetaData, VersionEdit};
use std::fmt;

/// Why a compaction runs. Numbers and names are RocksDB's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum CompactionReason {
    Unknown = 0,
    LevelL0FilesNum = 1,
    LevelMaxLevelSize = 2,
    UniversalSizeAmplification = 3,
    UniversalSizeRatio = 4,
    UniversalSortedRunNum = 5,
    FifoMaxSize = 6,
    FifoReduceNumFiles = 7,
    FifoTtl = 8,
    ManualCompaction = 9,
    FilesMarkedForCompaction = 10,
    BottommostFiles = 11,
    Ttl = 12,
    Flush = 13,
    ExternalSstIngestion = 14,
    PeriodicCompaction = 15,
    RoundRobinTtl = 18,
    RefitLevel = 19,
    ReadTriggered = 20,
}

impl CompactionReason {
    /// RocksDB's text, as in its log and event listeners.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::LevelL0FilesNum => "LevelL0FilesNum",
            Self::LevelMaxLevelSize => "LevelMaxLevelSize",
            Self::UniversalSizeAmplification => "UniversalSizeAmplification",
            Self::UniversalSizeRatio => "UniversalSizeRatio",
            Self::UniversalSortedRunNum => "UniversalSortedRunNum",
            Self::FifoMaxSize => "FIFOMaxSize",
            Self::FifoReduceNumFiles => "FIFOReduceNumFiles",
            Self::FifoTtl => "FIFOTtl",
            Self::ManualCompaction => "ManualCompaction",
            Self::FilesMarkedForCompaction => "FilesMarkedForCompaction",
            Self::BottommostFiles => "BottommostFiles",
            Self::Ttl => "Ttl",
            Self::Flush => "Flush",
            Self::ExternalSstIngestion => "ExternalSstIngestion",
            Self::PeriodicCompaction => "PeriodicCompaction",
            Self::RoundRobinTtl => "RoundRobinTtl",
            Self::RefitLevel => "RefitLevel",
            Self::ReadTriggered => "ReadTriggered",
        }
    }
}

/// What to do with the input files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlanKind {
    /// Give the files another level in the MANIFEST; no byte is read or written.
    TrivialMove,
    /// Merge the files, drop what nobody can see, write new ones.
    Rewrite,
    /// Remove the files, with all that is in them.
    Drop,
}

/// The input files of one level.
#[derive(Clone)]
pub struct LevelInputs {
    /// Where they lie.
    pub level: usize,
    /// Level 0: newest first. Other levels: by key.
    pub files: Vec<Arc<FileMetaData>>,
}

impl LevelInputs {
    /// How many bytes the files have.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.file_size).sum()
    }
}

/// One compaction: a value that borrows nothing, made under no lock.
#[derive(Clone)]
pub struct CompactionPlan {
    /// The inputs, upper level first; no level without files. At most two levels, except where
    /// files were named by the caller.
    pub inputs: Vec<LevelInputs>,
    /// Where the outputs go.
    pub output_level: usize,
    /// Which of the column family's paths the outputs go to.
    pub output_path_id: u32,
    /// For each level below the output level that has some: the files that overlap the inputs' key range.
    pub below: Vec<Vec<Arc<FileMetaData>>>,
    /// Move or rewrite.
    pub kind: PlanKind,
    /// Why.
    pub reason: CompactionReason,
    /// The score of the start level when it was picked; 0 for compactions that were asked for.
    pub score: f64,
    /// An output file is cut at about this size.
    pub target_file_size: u64,
    /// An output file is cut before it would be larger.
    pub target_file_size_is_upper_bound: bool,
    /// An output file is cut before it overlaps more than this of the grandparents.
    pub max_compaction_bytes: u64,
    /// The codec of the outputs.
    pub compression: CompressionKind,
    /// Its parameters.
    pub compression_options: CompressionOptions,
    /// Nothing older than the inputs, in their key range, lies anywhere else: tombstones have nothing left
    /// to hide, and sequence numbers may become 0.
    pub bottommost: bool,
    /// Files may be put below everything at any time, so that no tombstone ever has nothing left to hide.
    pub ingest_behind: bool,
    /// In how many key ranges the work may be split.
    pub max_subcompactions: usize,
    /// Where outputs end besides.
    pub partitioning: Partitioning,
    /// Whether every file of the column family is an input.
    pub full: bool,
    /// Whether a user asked for it.
    pub manual: bool,
    /// Whether nothing else may run in the column family at the same time.
    pub exclusive: bool,
    /// For [`CompactionPriority::RoundRobin`](crate::CompactionPriority::RoundRobin): the level and the key
    /// that the next compaction of that level starts from, to be stored with the result.
    pub compact_cursor: Option<(usize, InternalKeyBuf)>,
}

impl CompactionPlan {
    /// Lets the outputs go to another path. Files that would have been moved and lie elsewhere are rewritten.
    pub fn set_output_path(&mut self, path_id: u32) {
        self.output_path_id = path_id;
        if self.kind == PlanKind::TrivialMove && self.input_files().any(|(_, file)| file.path_id != path_id) {
            self.kind = PlanKind::Rewrite;
        }
    }
    /// Whether it writes files of the last level that compactions write to, if there are several: work that no writer waits for.
    pub fn rewrites_last_level(&self, options: &CompactionOptions) -> bool {
        self.kind == PlanKind::Rewrite
            && self.output_level > 0
            && self.output_level == options.max_output_level()
    }
    /// The upper level.
    pub fn start_level(&self) -> usize {
        self.inputs.first().map_or(self.output_level, |inputs| inputs.level)
    }
    /// All input files with their levels.
    pub fn input_files(&self) -> impl Iterator<Item = (usize, &Arc<FileMetaData>)> {
        self.inputs.iter().flat_map(|inputs| inputs.files.iter().map(|file| (inputs.level, file)))
    }
    /// The files of the first level below the output level that overlap: an output file is cut before it
    /// overlaps too many bytes of them.
    pub fn grandparents(&self) -> &[Arc<FileMetaData>] {
        self.below.first().map_or(&[], Vec::as_slice)
    }
    /// How many sorted runs the inputs are: each file of level 0 is one, and each other level.
    pub fn sorted_runs(&self) -> usize {
        let runs = |inputs: &LevelInputs| if inputs.level == 0 { inputs.files.len() } else { 1 };
        self.inputs.iter().filter(|inputs| !inputs.files.is_empty()).map(runs).sum()
    }
    /// The bytes of all input files.
    pub fn input_bytes(&self) -> u64 {
        self.inputs.iter().map(LevelInputs::bytes).sum()
    }
    /// The edit that installs the plan: `outputs` are what it made, and are not looked at for a trivial move.
    pub fn edit(&self, column_family: ColumnFamilyId, outputs: Vec<FileMetaData>) -> VersionEdit {
        let outputs: Vec<Arc<FileMetaData>> = match self.kind {
            PlanKind::TrivialMove => self.moved_files().map(|(_, file)| file.clone()).collect(),
            PlanKind::Drop => Vec::new(),
            PlanKind::Rewrite => outputs.into_iter().map(Arc::new).collect(),
        };
        VersionEdit {
            column_family,
            deleted_files: match self.kind {
                PlanKind::TrivialMove => {
                    self.moved_files().map(|(level, file)| (level, file.number)).collect()
                }
                _ => self.input_files().map(|(level, file)| (level, file.number)).collect(),
            },
            new_files: outputs.into_iter().map(|file| (self.output_level, file)).collect(),
            compact_cursors: self.compact_cursor.iter().cloned().collect(),
            ..VersionEdit::default()
        }
    }
    /// The inputs that a trivial move moves: those that lie on another level.
    pub fn moved_files(&self) -> impl Iterator<Item = (usize, &Arc<FileMetaData>)> {
        self.input_files().filter(|(level, _)| *level != self.output_level)
    }
    /// Whether `number` is an input.
    pub fn contains(&self, number: FileNumber) -> bool {
        self.input_files().any(|(_, file)| file.number == number)
    }
    /// What a partitioner is told.
    pub(crate) fn partitioner_context<'a>(&'a self, comparator: &UserComparator) -> PartitionerContext<'a> {
        let (smallest_user_key, largest_user_key) = self.user_key_range(comparator);
        PartitionerContext {
            is_full_compaction: self.full,
            is_manual_compaction: self.manual,
            output_level: self.output_level,
            smallest_user_key,
            largest_user_key,
        }
    }
    /// Whether the partitioner lets the inputs be moved as they are.
    pub(crate) fn partitioner_lets_move(&self, comparator: &UserComparator) -> bool {
        let ranges = self.input_files().map(|(_, file)| (file.smallest.user_key(), file.largest.user_key()));
        self.partitioning.lets_move(&self.partitioner_context(comparator), ranges)
    }
    /// The smallest and the largest user key of the inputs.
    pub fn user_key_range(&self, comparator: &UserComparator) -> (&[u8], &[u8]) {
        user_key_range(comparator, self.input_files().map(|(_, file)| file)).expect("a plan has input files")
    }
}

/// The smallest and the largest user key of `files`; `None` if there are none.
pub(crate) fn user_key_range<'a>(
    comparator: &UserComparator,
    files: impl IntoIterator<Item = &'a Arc<FileMetaData>>,
) -> Option<(&'a [u8], &'a [u8])> {
    files.into_iter().fold(None, |range, file| {
        let (first, last) = (file.smallest.user_key(), file.largest.user_key());
        Some(match range {
            None => (first, last),
            Some((low, high)) => (
                if comparator.compare(first, low).is_lt() { first } else { low },
                if comparator.compare(last, high).is_gt() { last } else { high },
            ),
        })
    })
}

impl fmt::Display for CompactionPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for inputs in &self.inputs {
            write!(f, "L{} [", inputs.level)?;
            for (at, file) in inputs.files.iter().enumerate() {
                let space = if at > 0 { " " } else { "" };
                write!(f, "{space}{}", file.number)?;
            }
            f.write_str("] ")?;
        }
        write!(f, "-> L{}", self.output_level)?;
        match self.kind {
            PlanKind::Rewrite => Ok(()),
            PlanKind::TrivialMove => f.write_str(" (move)"),
            PlanKind::Drop => f.write_str(" (drop)"),
        }
    }
}

impl fmt::Debug for CompactionPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} {}", self.reason.name())
    }
}
