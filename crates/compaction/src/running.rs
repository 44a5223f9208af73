//! What runs now: the files and key ranges that a new compaction must stay away from.

use crate::plan::CompactionPlan;
use ironstone_base::sync::Arc;
use ironstone_base::{FileNumber, UserComparator};
use ironstone_version::FileMetaData;
use std::collections::{BTreeMap, HashSet};

/// Names one running compaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct CompactionId(u64);

/// What is busy because of one compaction.
#[derive(Clone, Debug)]
struct Claim {
    files: Vec<FileNumber>,
    start_level: usize,
    output_level: usize,
    smallest: Vec<u8>,
    largest: Vec<u8>,
    exclusive: bool,
    sorted_runs: usize,
}

/// The compactions of one column family that run now. Plain data: the owner keeps it under its own lock,
/// adds a plan before the work starts and removes it after the result is installed (or given up).
#[derive(Clone, Debug)]
pub struct RunningCompactions {
    comparator: UserComparator,
    next: u64,
    claims: BTreeMap<CompactionId, Claim>,
    busy: HashSet<FileNumber>,
}

impl RunningCompactions {
    /// Nothing runs.
    pub fn new(comparator: UserComparator) -> Self {
        Self { comparator, next: 0, claims: BTreeMap::new(), busy: HashSet::new() }
    }
    /// Whether nothing runs.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }
    /// How many compactions run.
    pub fn len(&self) -> usize {
        self.claims.len()
    }
    /// Whether one of them reads files of `level`.
    pub fn reads_level(&self, level: usize) -> bool {
        self.claims.values().any(|claim| claim.start_level == level && !claim.files.is_empty())
    }
    /// How many sorted runs they read: each file of level 0 is one, and each other level.
    pub fn sorted_runs(&self) -> usize {
        self.claims.values().map(|claim| claim.sorted_runs).sum()
    }
    /// Whether a compaction runs that tolerates no other.
    pub fn has_exclusive(&self) -> bool {
        self.claims.values().any(|claim| claim.exclusive)
    }
    /// Claims the inputs and the output range of `plan`.
    ///
    /// # Panics
    /// If a running compaction holds any of them: a picker that saw this value never plans so.
    pub fn add(&mut self, plan: &CompactionPlan) -> CompactionId {
        assert!(self.admits(plan), "{plan} conflicts with a running compaction");
        let (smallest, largest) = plan.user_key_range(&self.comparator);
        let claim = Claim {
            files: plan.input_files().map(|(_, file)| file.number).collect(),
            start_level: plan.start_level(),
            output_level: plan.output_level,
            smallest: smallest.to_vec(),
            largest: largest.to_vec(),
            sorted_runs: plan.sorted_runs(),
            exclusive: plan.exclusive,
        };
        self.busy.extend(&claim.files);
        let id = CompactionId(self.next);
        self.next += 1;
        self.claims.insert(id, claim);
        id
    }
    /// Claims key ranges, each of a level, for files that are brought in from outside: no compaction that is picked now
    /// writes there. They must be free, see [`Self::writes_into`], but may meet each other.
    pub fn add_ranges<'a>(
        &mut self,
        ranges: impl Iterator<Item = (usize, &'a [u8], &'a [u8])> + Clone,
    ) -> Vec<CompactionId> {
        for (level, smallest, largest) in ranges.clone() {
            assert!(!self.writes_into(level, smallest, largest), "level {level} is being written to");
        }
        ranges.map(|(level, smallest, largest)| self.add_range(level, smallest, largest)).collect()
    }
    fn add_range(&mut self, level: usize, smallest: &[u8], largest: &[u8]) -> CompactionId {
        let claim = Claim {
            files: Vec::new(),
            start_level: level,
            output_level: level,
            smallest: smallest.to_vec(),
            largest: largest.to_vec(),
            exclusive: false,
            sorted_runs: 0,
        };
        let id = CompactionId(self.next);
        self.next += 1;
        self.claims.insert(id, claim);
        id
    }
    /// Claims files that are about to leave: no compaction that is picked now reads them.
    pub fn add_files(&mut self, files: impl Iterator<Item = FileNumber>) -> CompactionId {
        let id = self.add_range(0, &[], &[]); // On level 0, where nothing conflicts.
        let claim = self.claims.get_mut(&id).expect("it was just added");
        claim.files.extend(files);
        claim.start_level = usize::MAX; // It has no place among those that wait for level 0.
        self.busy.extend(&claim.files);
        id
    }
    /// Lets go of what `id` held. Unknown ids are ignored.
    pub fn remove(&mut self, id: CompactionId) {
        if let Some(claim) = self.claims.remove(&id) {
            for number in &claim.files {
                self.busy.remove(number);
            }
        }
    }
    /// Whether `plan` may run beside what runs now.
    pub fn admits(&self, plan: &CompactionPlan) -> bool {
        if self.has_exclusive() || (plan.exclusive && !self.is_empty()) {
            return false;
        }
        let (smallest, largest) = plan.user_key_range(&self.comparator);
        !plan.input_files().any(|(_, file)| self.is_busy(file.number))
            && !self.writes_into(plan.output_level, smallest, largest)
    }
    /// Whether a running compaction reads the file `number`.
    pub fn is_busy(&self, number: FileNumber) -> bool {
        self.busy.contains(&number)
    }
    /// Whether a running compaction reads one of `files`.
    pub fn any_busy(&self, files: &[Arc<FileMetaData>]) -> bool {
        files.iter().any(|file| self.is_busy(file.number))
    }
    /// Whether a running compaction may put files into `level` that overlap `smallest..=largest` (user
    /// keys). Level 0 never conflicts: its files may overlap.
    pub fn writes_into(&self, level: usize, smallest: &[u8], largest: &[u8]) -> bool {
        level > 0
            && self.claims.values().any(|claim| {
                claim.output_level == level
                    && self.comparator.compare(&claim.smallest, largest).is_le()
                    && self.comparator.compare(&claim.largest, smallest).is_ge()
            })
    }
    /// How many running compactions start at `level`.
    pub fn starting_at(&self, level: usize) -> usize {
        self.claims.values().filter(|claim| claim.start_level == level).count()
    }
}
