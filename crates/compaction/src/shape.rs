//! The shape that the tree should have, and how far from it the tree is.
//!
//! With dynamic sizes the targets are counted back from the largest level, so that the last level
//! holds about nine tenths of the data whatever the amount, and space amplification stays near 1.1.
//! Levels above the *base level* stay empty.
//!
//! ```text
//! multiplier 10, base 256 MiB:   L0 -> L4 (276 MiB) -> L5 (2.76 GiB) -> L6 (27.6 GiB)   base level 4
//! ```
//! The numbers are RocksDB's, so that both engines agree on when a tree of theirs needs work.

use crate::options::CompactionOptions;
use crate::picker::PickContext;
use crate::running::RunningCompactions;
use ironstone_version::Version;

/// The target sizes of the levels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LevelShape {
    /// The level that level 0 is compacted into.
    pub base_level: usize,
    /// The target of each level in bytes. With dynamic sizes `u64::MAX` for levels above the base level.
    pub max_bytes: Vec<u64>,
    /// With dynamic sizes: the lowest level that holds data though the levels below could take it.
    pub lowest_unnecessary_level: Option<usize>,
}

/// How urgent the compaction of a level is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LevelScore {
    /// The level.
    pub level: usize,
    /// 1 and above: due.
    pub score: f64,
}

impl LevelShape {
    /// The targets for the files of `version`.
    pub fn new(version: &Version, options: &CompactionOptions) -> Self {
        if options.level_compaction_dynamic_level_bytes {
            Self::dynamic(version, options)
        } else {
            Self::fixed(options)
        }
    }

    fn fixed(options: &CompactionOptions) -> Self {
        let mut max_bytes = vec![options.max_bytes_for_level_base; options.num_levels];
        for level in 2..options.num_levels {
            let extra =
                options.max_bytes_for_level_multiplier_additional.get(level - 1).copied().unwrap_or(1);
            max_bytes[level] = multiply(
                multiply(max_bytes[level - 1], options.max_bytes_for_level_multiplier),
                f64::from(extra),
            );
        }
        Self { base_level: 1, max_bytes, lowest_unnecessary_level: None }
    }

    fn dynamic(version: &Version, options: &CompactionOptions) -> Self {
        let last = options.max_output_level();
        let sizes: Vec<u64> = (0..=last).map(|level| version.level_bytes(level)).collect();
        let mut shape = Self {
            base_level: last,
            max_bytes: vec![u64::MAX; options.num_levels],
            lowest_unnecessary_level: None,
        };
        let Some(first_non_empty) = (1..=last).find(|&level| sizes[level] > 0) else {
            return shape; // Level 0 goes straight to the last level, and nothing else is due.
        };
        // The largest level counts, and not the last: after a compaction the last may be the smaller one.
        let largest = sizes[1..].iter().copied().max().expect("there is a level below 0");
        let base_max = options.max_bytes_for_level_base;
        let base_min = divide(base_max, options.max_bytes_for_level_multiplier);

        // What each level would have to hold if the last level is to hold `largest`.
        let mut size = largest;
        for level in (first_non_empty..last).rev() {
            size = divide(size, options.max_bytes_for_level_multiplier);
            if size <= base_min && shape.lowest_unnecessary_level.is_none() {
                shape.lowest_unnecessary_level = Some(level);
            }
        }
        shape.base_level = first_non_empty;
        let base_size = if size <= base_min {
            // There are more levels than the data needs; they drain from the top.
            base_min + 1
        } else {
            while shape.base_level > 1 && size > base_max {
                shape.base_level -= 1;
                size = divide(size, options.max_bytes_for_level_multiplier);
            }
            size.clamp(1, base_max.max(1))
        };
        let mut target = base_size;
        for level in shape.base_level..=last {
            // No target below the base size: the tree would become an hourglass, with levels smaller than
            // level 0, whose scores would then keep level 0 waiting.
            shape.max_bytes[level] = target.max(base_max);
            target = multiply(target, options.max_bytes_for_level_multiplier);
        }
        shape
    }

    /// The scores of all levels but the last that compactions write, most urgent first; among equals the upper level.
    /// Files that are being compacted do not count.
    pub fn scores(
        &self,
        version: &Version,
        options: &CompactionOptions,
        running: &RunningCompactions,
        context: &PickContext<'_>,
    ) -> Vec<LevelScore> {
        let mut scores = Vec::with_capacity(options.num_levels);
        // Bytes that compactions will soon push down into the level looked at.
        let mut coming_down = 0.0;
        for level in 0..options.max_output_level() {
            let total = version.level_bytes(level);
            let idle: u64 = version
                .files(level)
                .iter()
                .filter(|file| !running.is_busy(file.number))
                .map(|file| context.size_of(file))
                .sum();
            let score = if level == 0 {
                self.level0_score(version, options, running, context, idle)
            } else {
                self.lower_score(level, options, idle, coming_down)
            };
            coming_down += match level {
                0 => total,
                _ if self.is_unnecessary(level) => total,
                _ => total.saturating_sub(self.max_bytes[level]),
            } as f64;
            scores.push(LevelScore { level, score });
        }
        scores.sort_by(|a, b| b.score.total_cmp(&a.score)); // Stable: the upper level stays first.
        scores
    }

    fn level0_score(
        &self,
        version: &Version,
        options: &CompactionOptions,
        running: &RunningCompactions,
        context: &PickContext<'_>,
        idle: u64,
    ) -> f64 {
        let idle_count = version.files(0).iter().filter(|file| !running.is_busy(file.number)).count();
        let by_count = idle_count as f64 / options.level0_file_num_compaction_trigger.max(1) as f64;
        let base = options.max_bytes_for_level_base.max(1);
        if !options.level_compaction_dynamic_level_bytes {
            return by_count.max(idle as f64 / base as f64);
        }
        let mut score = by_count;
        if idle >= base {
            score = score.max(1.01); // The debt estimate counts it as due, so it must be.
        }
        let base_target = self.max_bytes[self.base_level];
        if idle > base_target {
            // Weighed against the base level, so that neither starves the other.
            let base_bytes: u64 =
                version.files(self.base_level).iter().map(|file| context.size_of(file)).sum();
            score = score.max(idle as f64 / base_bytes.max(base_target) as f64);
        }
        if score > 1.0 { score * SCORE_SCALE } else { score }
    }

    fn lower_score(&self, level: usize, options: &CompactionOptions, idle: u64, coming_down: f64) -> f64 {
        let target = self.max_bytes[level] as f64;
        if !options.level_compaction_dynamic_level_bytes || idle < self.max_bytes[level] {
            let score = idle as f64 / target.max(1.0);
            return if idle > 0 && self.is_unnecessary(level) {
                score.max(self.drain_score(level))
            } else {
                score
            };
        }
        // A level about to receive a lot can wait: what comes down would only be rewritten with it.
        let score = idle as f64 / (target + coming_down).max(1.0) * SCORE_SCALE;
        if self.is_unnecessary(level) { score.max(self.drain_score(level)) } else { score }
    }

    /// Unnecessary levels drain, the upper ones first, but after a level 0 that is due.
    fn drain_score(&self, level: usize) -> f64 {
        let lowest = self.lowest_unnecessary_level.expect("asked for unnecessary levels only");
        SCORE_SCALE * (1.001 + 0.001 * (lowest - level) as f64)
    }

    fn is_unnecessary(&self, level: usize) -> bool {
        level > 0 && self.lowest_unnecessary_level.is_some_and(|lowest| level <= lowest)
    }

    /// About how many bytes must be compacted until every level has its size: RocksDB's
    /// `estimate-pending-compaction-bytes`.
    pub fn pending_compaction_bytes(&self, version: &Version, options: &CompactionOptions) -> u64 {
        let level0_bytes = version.level_bytes(0);
        let level0_due = version.files(0).len() >= options.level0_file_num_compaction_trigger
            || level0_bytes >= options.max_bytes_for_level_base;
        let (mut pending, mut coming_down) = if level0_due { (level0_bytes, level0_bytes) } else { (0, 0) };
        for level in self.base_level..options.max_output_level() {
            let own = version.level_bytes(level);
            if level == self.base_level && level0_due {
                pending = pending.saturating_add(own);
            }
            let size = own.saturating_add(coming_down);
            coming_down = size.saturating_sub(self.max_bytes[level]);
            let next = version.level_bytes(level + 1);
            if coming_down > 0 && next > 0 {
                // Each byte that goes down rewrites its share of the next level as well.
                let fan_out = next as f64 / size as f64 + 1.0;
                pending = pending.saturating_add((coming_down as f64 * fan_out) as u64);
            }
        }
        pending
    }
}

/// Scores above 1 are multiplied by this with dynamic sizes, which leaves room to lower a score and still
/// have it due.
const SCORE_SCALE: f64 = 10.0;

/// `value * factor`, at most `u64::MAX`.
fn multiply(value: u64, factor: f64) -> u64 {
    (value as f64 * factor) as u64 // `as` saturates.
}

fn divide(value: u64, divisor: f64) -> u64 {
    if divisor > 0.0 { (value as f64 / divisor) as u64 } else { value }
}
