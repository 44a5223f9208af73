//! FIFO compaction: the oldest tables are dropped, whole, when they are too old or all are too large together.
//! Everything stays in level 0. One compaction at a time: dropping is quick.

use crate::picker::Picker;
use crate::plan::{CompactionPlan, CompactionReason, LevelInputs, PlanKind};
use ironstone_base::sync::Arc;
use ironstone_version::FileMetaData;

impl Picker<'_> {
    /// The next FIFO compaction.
    pub(super) fn pick_fifo(&self) -> Option<CompactionPlan> {
        if !self.running.is_empty() {
            return None;
        }
        self.drop_expired().or_else(|| self.drop_excess()).or_else(|| self.merge_small_files())
    }

    /// The oldest files whose newest entry is older than `ttl`, if what is left is not too large: else the
    /// size decides, which drops at least as much. Deeper levels, of a tree that was of another style, go
    /// first, each as a whole: what lies in level 0 hides their values.
    fn drop_expired(&self) -> Option<CompactionPlan> {
        let ttl = self.options.ttl;
        let limit = self.context.now_seconds.checked_sub(ttl).filter(|_| ttl > 0)?;
        let deepest = self.version.last_level()?;
        if deepest > 0 {
            let files = self.version.files(deepest);
            let expired = files.iter().all(|file| (1..limit).contains(&file.file_creation_time));
            return expired.then(|| self.drop_files(deepest, files.to_vec(), CompactionReason::FifoTtl));
        }
        let files = self.version.files(0);
        let expired = |at: &usize| newest_entry_time(files, *at).is_some_and(|time| time < limit);
        let count = (0..files.len()).rev().take_while(expired).count();
        let (kept, dropped) = files.split_at(files.len() - count);
        let left: u64 = kept.iter().map(|file| file.file_size).sum();
        if dropped.is_empty() || left > self.options.fifo.max_table_files_size {
            return None;
        }
        Some(self.drop_files(0, dropped.to_vec(), CompactionReason::FifoTtl))
    }

    /// The oldest files, until the rest fits. A tree that was of another style has deeper levels, which are
    /// older: files of the deepest go first, smallest keys first, since nobody knows their age.
    fn drop_excess(&self) -> Option<CompactionPlan> {
        let most = self.options.fifo.max_table_files_size;
        let mut left = self.version.total_bytes();
        let level = self.version.last_level()?;
        let files = self.version.files(level);
        let mut drops = |file: &&Arc<FileMetaData>| {
            let drops = left > most;
            left = left.saturating_sub(file.file_size);
            drops
        };
        let dropped = match level {
            0 => files.len() - files.iter().rev().take_while(|file| drops(file)).count()..files.len(),
            _ => self.clean_cut(level, 0..files.iter().take_while(|file| drops(file)).count()),
        };
        let dropped = files[dropped].to_vec();
        (!dropped.is_empty()).then(|| self.drop_files(level, dropped, CompactionReason::FifoMaxSize))
    }

    /// The newest small files in one, if that is allowed. Only files no larger than a memtable, so that none is
    /// rewritten again and again, and none grows so large that it never expires.
    fn merge_small_files(&self) -> Option<CompactionPlan> {
        let files = self.version.files(0);
        let trigger = self.options.level0_file_num_compaction_trigger.max(2);
        if !self.options.fifo.allow_compaction || files.len() < trigger {
            return None;
        }
        let mut bytes = files[0].file_size;
        let mut bytes_per_file_saved = u64::MAX;
        let mut count = 1;
        for file in &files[1..] {
            bytes = bytes.saturating_add(file.file_size);
            let per_file = bytes / count as u64;
            if per_file > bytes_per_file_saved || bytes > self.options.max_compaction_bytes() {
                break;
            }
            bytes_per_file_saved = per_file;
            count += 1;
        }
        let most = (self.options.write_buffer_size as f64 * 1.1) as u64;
        if count < trigger || bytes_per_file_saved >= most {
            return None;
        }
        let inputs = vec![LevelInputs { level: 0, files: files[..count].to_vec() }];
        let mut plan = self.plan_of(inputs, 0, CompactionReason::FifoReduceNumFiles);
        plan.kind = PlanKind::Rewrite;
        Some(plan)
    }
}

/// A time, in seconds since 1970, that no entry of the file is newer than: when it was made, or when the first
/// entry came that went to the next newer file. `None` if nothing is known. (RocksDB reads the table's
/// properties; these bounds come from the MANIFEST, and no table has to be open.)
fn newest_entry_time(files: &[Arc<FileMetaData>], at: usize) -> Option<u64> {
    let made = files[at].file_creation_time;
    let next = at.checked_sub(1).map_or(0, |newer| files[newer].oldest_ancester_time);
    [made, next].into_iter().filter(|&time| time > 0).min()
}
