//! The tables of a column family at one moment.

use crate::blob_file::BlobFileMetaData;
use crate::file_metadata::FileMetaData;
use crate::level_files::LevelFiles;
use ironstone_base::sync::Arc;
use ironstone_base::{FileNumber, InternalKey, InternalKeyBuf, InternalKeyComparator, Result};
use std::collections::BTreeMap;

/// The tables of a column family at one moment. Immutable; readers hold it by `Arc` and thereby keep
/// its files from being deleted.
#[derive(Clone, Debug)]
pub struct Version {
    /// The order of its keys.
    pub comparator: InternalKeyComparator,
    /// The levels; levels that an edit leaves alone are shared with the version before it.
    pub levels: Vec<Arc<LevelFiles>>,
    /// The blob files, by number.
    pub blob_files: BTreeMap<FileNumber, Arc<BlobFileMetaData>>,
    /// Where the next round-robin compaction of a level begins.
    pub compact_cursors: BTreeMap<usize, InternalKeyBuf>,
}

impl Version {
    /// A version without files.
    pub fn empty(comparator: InternalKeyComparator, num_levels: usize) -> Self {
        let levels = (0..num_levels).map(|_| Arc::default()).collect();
        Self { comparator, levels, blob_files: BTreeMap::new(), compact_cursors: BTreeMap::new() }
    }
    /// How many levels there are, empty ones included.
    pub fn num_levels(&self) -> usize {
        self.levels.len()
    }
    /// The files of a level: level 0 newest first, the others by key. Empty beyond the last level.
    pub fn files(&self, level: usize) -> &[Arc<FileMetaData>] {
        self.levels.get(level).map_or(&[], |files| files.files())
    }
    /// How many bytes a level takes.
    pub fn level_bytes(&self, level: usize) -> u64 {
        self.levels.get(level).map_or(0, |files| files.bytes())
    }
    /// How many files there are.
    pub fn num_files(&self) -> usize {
        self.levels.iter().map(|level| level.len()).sum()
    }
    /// How many bytes they take.
    pub fn total_bytes(&self) -> u64 {
        self.levels.iter().map(|level| level.bytes()).sum()
    }
    /// How many bytes would be left if nothing was there twice: those of the deepest files of each range of keys. A file that
    /// overlaps one that was counted, which is deeper or newer in level 0, is taken for a change of it.
    pub fn estimated_live_bytes(&self) -> u64 {
        let order = &self.comparator;
        let mut counted: Vec<&FileMetaData> = Vec::new(); // Disjoint, in the order of their keys.
        let mut bytes = 0;
        for file in self.levels.iter().rev().flat_map(|level| level.files()) {
            let (first, last) = (file.smallest.as_key(), file.largest.as_key());
            let at = counted.partition_point(|other| order.compare(other.largest.as_key(), first).is_lt());
            if counted.get(at).is_none_or(|next| order.compare(last, next.smallest.as_key()).is_lt()) {
                counted.insert(at, file);
                bytes += file.file_size;
            }
        }
        bytes
    }
    /// The deepest level with files.
    pub fn last_level(&self) -> Option<usize> {
        self.levels.iter().rposition(|level| !level.is_empty())
    }
    /// All files with their levels, from level 0 down.
    pub fn all_files(&self) -> impl Iterator<Item = (usize, &Arc<FileMetaData>)> {
        self.levels
            .iter()
            .enumerate()
            .flat_map(|(level, files)| files.files().iter().map(move |file| (level, file)))
    }
    /// The level and metadata of the file with that number.
    pub fn file(&self, number: FileNumber) -> Option<(usize, &Arc<FileMetaData>)> {
        self.levels.iter().enumerate().find_map(|(level, files)| {
            let index = files.position(number)?;
            Some((level, &files.files()[index]))
        })
    }

    /// The files in which the newest entry of `key`'s user key at or below its sequence number may be,
    /// in the order in which a lookup must ask them: what an earlier one answers hides the later ones.
    #[inline]
    pub fn candidates<'a>(&'a self, key: InternalKey<'a>) -> Candidates<'a> {
        Candidates { version: self, key, level: 0, index: 0 }
    }

    /// The files of `level` that hold keys in `begin..=end` (user keys; `None` is unbounded).
    /// In level 0, where files overlap, also those that overlap these, and so on: a compaction that
    /// took a newer file without an older one of the same keys would turn the order around.
    pub fn overlapping_inputs(
        &self,
        level: usize,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Vec<Arc<FileMetaData>> {
        let Some(files) = self.levels.get(level) else {
            return Vec::new();
        };
        if level > 0 {
            let range = files.overlapping(&self.comparator, begin, end);
            return files.files()[range].to_vec();
        }
        self.overlapping_transitively(files.files(), begin, end)
    }

    fn overlapping_transitively<'a>(
        &self,
        files: &'a [Arc<FileMetaData>],
        mut begin: Option<&'a [u8]>,
        mut end: Option<&'a [u8]>,
    ) -> Vec<Arc<FileMetaData>> {
        let order = &self.comparator.user;
        let mut chosen = vec![false; files.len()];
        let mut grown = true;
        while grown {
            grown = false;
            // Bounded by the square of the number of files: every round but the last chooses one.
            for (file, chosen) in files.iter().zip(&mut chosen) {
                if *chosen || !file.overlaps(order, begin, end) {
                    continue;
                }
                (*chosen, grown) = (true, true);
                let (smallest, largest) = (file.smallest.user_key(), file.largest.user_key());
                begin =
                    begin.map(|begin| if order.compare(smallest, begin).is_lt() { smallest } else { begin });
                end = end.map(|end| if order.compare(largest, end).is_gt() { largest } else { end });
            }
        }
        files.iter().zip(chosen).filter(|&(_, chosen)| chosen).map(|(file, _)| file.clone()).collect()
    }

    /// Whether any file of `level` may hold keys in `begin..=end` (user keys; `None` is unbounded).
    pub fn range_overlaps(&self, level: usize, begin: Option<&[u8]>, end: Option<&[u8]>) -> bool {
        let Some(files) = self.levels.get(level) else {
            return false;
        };
        if level == 0 {
            return files.files().iter().any(|file| file.overlaps(&self.comparator.user, begin, end));
        }
        !files.overlapping(&self.comparator, begin, end).is_empty()
    }

    /// Checks what RocksDB's `force_consistency_checks` checks: level 0 is ordered newest first, the
    /// others by key and without overlaps, and every file has an epoch.
    pub fn check_invariants(&self) -> Result<()> {
        (0..self.levels.len()).try_for_each(|level| crate::builder::check_level(self, level, None))
    }
}

/// See [`Version::candidates`].
#[derive(Debug)]
pub struct Candidates<'a> {
    version: &'a Version,
    key: InternalKey<'a>,
    level: usize,
    index: usize, // In level 0 the next file; below it 0, or the next file if the key may go on there.
}

impl<'a> Iterator for Candidates<'a> {
    type Item = (usize, &'a Arc<FileMetaData>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let order = &self.version.comparator;
        let user_key = self.key.user_key();
        while let Some(files) = self.version.levels.get(self.level) {
            if self.level == 0 {
                while self.index < files.len() {
                    self.index += 1;
                    if files.may_hold(self.index - 1, &order.user, user_key) {
                        return Some((0, &files.files()[self.index - 1]));
                    }
                }
            } else if !files.is_empty() {
                let at = if self.index == 0 { files.find(order, self.key) } else { self.index };
                if at < files.len() && files.may_hold(at, &order.user, user_key) {
                    let file = &files.files()[at];
                    let level = self.level;
                    // One user key's entries may be cut over two files.
                    if order.user.equal(file.largest.user_key(), user_key) {
                        self.index = at + 1;
                    } else {
                        (self.level, self.index) = (level + 1, 0);
                    }
                    return Some((level, file));
                }
            }
            (self.level, self.index) = (self.level + 1, 0);
        }
        None
    }
}
