//! Versions plus edits make versions.

use crate::blob_file::{BlobFileAddition, BlobFileGarbage, BlobFileMetaData};
use crate::edit::VersionEdit;
use crate::file_metadata::{FileMetaData, UNKNOWN_EPOCH};
use crate::level_files::{LevelFiles, by_smallest};
use crate::version::Version;
use ironstone_base::sync::Arc;
use ironstone_base::{
    Error, FileNumber, FileNumberMap, InternalKeyBuf, InternalKeyComparator, Result, SequenceNumber,
};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Applies edits to a version, any number of them, at a cost that grows with the edits and with the
/// levels that they touch, not with their product.
pub struct VersionBuilder {
    base: Arc<Version>,
    changes: Vec<LevelChange>,
    /// Where the files that edits named are now; `None` for gone.
    places: FileNumberMap<Option<Place>>,
    /// Where the files of `base` are, once enough of them have been looked up.
    base_places: Option<FileNumberMap<Place>>,
    lookups: usize,
    /// Blob files that differ from those of `base`.
    blob_files: BTreeMap<FileNumber, BlobFileMetaData>,
    compact_cursors: BTreeMap<usize, InternalKeyBuf>,
    /// Files that came and went.
    passed: Vec<Arc<FileMetaData>>,
}

/// Where a file is.
#[derive(Clone, Copy)]
struct Place {
    level: usize,
    at: At,
}

#[derive(Clone, Copy)]
enum At {
    /// Of the level in the base version.
    Base(usize),
    /// Of what was added to the level.
    Added(usize),
}

#[derive(Default)]
struct LevelChange {
    removed: Vec<usize>,                   // Places in the base version, in no order.
    added: Vec<Option<Arc<FileMetaData>>>, // As edits named them, often in the order of the level; `None` for gone.
}

impl LevelChange {
    fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.added().next().is_none()
    }
    fn added(&self) -> impl Iterator<Item = &Arc<FileMetaData>> {
        self.added.iter().flatten()
    }
}

/// A new version, and what it lacks of what the one before it had.
pub struct BuiltVersion {
    /// The version, checked.
    pub version: Arc<Version>,
    /// Files that it does not hold under the same metadata any more.
    pub removed: Vec<Arc<FileMetaData>>,
    /// Blob files likewise.
    pub removed_blobs: Vec<Arc<BlobFileMetaData>>,
}

/// From so many lookups on, a map of the base version is worth building.
const MANY_LOOKUPS: usize = 32;

impl VersionBuilder {
    /// Starts from `base`.
    pub fn new(base: Arc<Version>) -> Self {
        Self {
            compact_cursors: base.compact_cursors.clone(),
            changes: Vec::new(),
            places: FileNumberMap::default(),
            base_places: None,
            lookups: 0,
            blob_files: BTreeMap::new(),
            passed: Vec::new(),
            base,
        }
    }

    /// Takes one more edit in. An edit that does not fit (a file that goes and is not there, or comes
    /// twice) is an error, and the builder is of no further use.
    pub fn apply(&mut self, edit: &VersionEdit) -> Result<()> {
        for addition in &edit.blob_file_additions {
            self.add_blob_file(addition)?;
        }
        for garbage in &edit.blob_file_garbages {
            self.add_blob_garbage(garbage)?;
        }
        for &(level, number) in &edit.deleted_files {
            self.remove(level, number)?;
        }
        self.places.reserve(edit.new_files.len());
        for (level, file) in &edit.new_files {
            self.add(*level, file)?;
        }
        for (level, key) in &edit.compact_cursors {
            self.compact_cursors.insert(*level, key.clone());
        }
        Ok(())
    }

    /// The version that results. It keeps the number of levels of the base version.
    pub fn build(self) -> Result<Arc<Version>> {
        self.build_with_removed().map(|built| built.version)
    }

    /// The version that results, and what is gone.
    pub fn build_with_removed(mut self) -> Result<BuiltVersion> {
        let num_levels = self.base.num_levels();
        if self.changes.iter().skip(num_levels).any(|change| change.added().next().is_some()) {
            return Err(Error::invalid_argument("db has more levels than options.num_levels"));
        }
        self.changes.resize_with(num_levels, LevelChange::default);
        let mut removed = std::mem::take(&mut self.passed);
        let mut version = Version {
            comparator: self.base.comparator.clone(),
            levels: self.base.levels.clone(),
            blob_files: BTreeMap::new(),
            compact_cursors: std::mem::take(&mut self.compact_cursors),
        };
        for (level, mut change) in std::mem::take(&mut self.changes).into_iter().enumerate() {
            if change.is_empty() {
                continue; // Shared with the base version.
            }
            let base = &self.base.levels[level];
            change.removed.sort_unstable();
            removed.extend(change.removed.iter().map(|&index| base.files()[index].clone()));
            let (files, added) = merge(&self.base.comparator, level, base, change);
            version.levels[level] = Arc::new(files);
            check_level(&version, level, added.as_deref())?;
        }
        let removed_blobs = self.settle_blob_files(&mut version);
        check_blob_files(&version)?;
        Ok(BuiltVersion { version: Arc::new(version), removed, removed_blobs })
    }

    /// Makes up for what MANIFESTs of LevelDB and of RocksDB before 7.10 do not say: sequence numbers,
    /// bounded by `last_sequence`, and epochs, the older data getting the smaller. Answers the version
    /// and the epoch that comes next. Only for a builder that started from nothing.
    pub(crate) fn build_recovered(mut self, last_sequence: SequenceNumber) -> Result<(Arc<Version>, u64)> {
        let files = || self.changes.iter().flat_map(LevelChange::added);
        let epochs_missing = files().any(|file| file.epoch_number == UNKNOWN_EPOCH);
        let sequences_missing = files().any(|file| file.seqnos_are_unknown());
        let next_epoch = files().map(|file| file.epoch_number).max().unwrap_or(UNKNOWN_EPOCH) + 1;
        if !epochs_missing && !sequences_missing {
            return Ok((self.build()?, next_epoch));
        }
        for file in self.changes.iter_mut().flat_map(|change| change.added.iter_mut().flatten()) {
            if file.seqnos_are_unknown() {
                let file = Arc::make_mut(file);
                (file.smallest_seqno, file.largest_seqno) = (SequenceNumber::ZERO, last_sequence);
            }
        }
        let version = self.build()?; // Level 0 in the order of its sequence numbers.
        if epochs_missing { with_epochs(&version) } else { Ok((version, next_epoch)) }
    }

    /// Takes a table of level 0 out that an edit added.
    pub(crate) fn leave_out(&mut self, number: FileNumber) -> Result<()> {
        self.remove(0, number)
    }

    fn change(&mut self, level: usize) -> &mut LevelChange {
        if self.changes.len() <= level {
            self.changes.resize_with(level + 1, LevelChange::default);
        }
        &mut self.changes[level]
    }

    fn place(&mut self, number: FileNumber) -> Option<Place> {
        if let Some(&known) = self.places.get(&number) {
            return known;
        }
        let at = |level, index| Place { level, at: At::Base(index) };
        self.lookups += 1;
        if self.lookups < MANY_LOOKUPS {
            let mut levels = self.base.levels.iter().enumerate();
            return levels.find_map(|(level, files)| Some(at(level, files.position(number)?)));
        }
        let places = self.base_places.get_or_insert_with(|| {
            let levels = self.base.levels.iter().enumerate();
            let files = levels.flat_map(|(level, files)| {
                files.numbers().iter().enumerate().map(move |(i, &n)| (level, i, n))
            });
            files.map(|(level, index, number)| (number, at(level, index))).collect()
        });
        places.get(&number).copied()
    }

    fn remove(&mut self, level: usize, number: FileNumber) -> Result<()> {
        let wrong = |how: String| {
            Err(misfit(format!("Cannot delete table file #{number} from level {level} since it is {how}")))
        };
        let place = match self.place(number) {
            Some(place) if place.level == level => place,
            Some(place) => return wrong(format!("on level {}", place.level)),
            None => return wrong("not in the LSM tree".to_owned()),
        };
        let blob_file = match place.at {
            At::Base(index) => {
                self.change(level).removed.push(index);
                self.base.files(level)[index].oldest_blob_file_number
            }
            At::Added(index) => {
                let file = self.change(level).added[index].take().expect("it was placed when it was added");
                let blob_file = file.oldest_blob_file_number;
                self.passed.push(file);
                blob_file
            }
        };
        self.places.insert(number, None);
        if let Some(blob_file) = self.blob_file(blob_file) {
            blob_file.linked_tables.remove(&number);
        }
        Ok(())
    }

    fn add(&mut self, level: usize, file: &Arc<FileMetaData>) -> Result<()> {
        let number = file.number;
        if let Some(Place { level: actual, .. }) = self.place(number) {
            return Err(misfit(format!(
                "Cannot add table file #{number} to level {level} since it is already in the LSM tree on level {actual}"
            )));
        }
        let added = &mut self.change(level).added;
        let place = Place { level, at: At::Added(added.len()) };
        added.push(Some(file.clone()));
        self.places.insert(number, Some(place));
        if let Some(blob_file) = self.blob_file(file.oldest_blob_file_number) {
            blob_file.linked_tables.insert(number);
        }
        Ok(())
    }

    /// A blob file, to be changed.
    fn blob_file(&mut self, number: FileNumber) -> Option<&mut BlobFileMetaData> {
        if !self.blob_files.contains_key(&number) {
            let base = self.base.blob_files.get(&number)?;
            self.blob_files.insert(number, BlobFileMetaData::clone(base));
        }
        self.blob_files.get_mut(&number)
    }

    fn add_blob_file(&mut self, addition: &BlobFileAddition) -> Result<()> {
        let number = addition.number;
        if self.blob_file(number).is_some() {
            return Err(misfit(format!("Blob file #{number} already added")));
        }
        let addition = addition.clone();
        let file = BlobFileMetaData {
            addition,
            garbage_count: 0,
            garbage_bytes: 0,
            linked_tables: Default::default(),
        };
        self.blob_files.insert(number, file);
        Ok(())
    }

    fn add_blob_garbage(&mut self, garbage: &BlobFileGarbage) -> Result<()> {
        let number = garbage.number;
        let Some(file) = self.blob_file(number) else {
            return Err(misfit(format!("Blob file #{number} not found")));
        };
        file.garbage_count = file.garbage_count.saturating_add(garbage.garbage_count);
        file.garbage_bytes = file.garbage_bytes.saturating_add(garbage.garbage_bytes);
        if file.garbage_count > file.addition.blob_count || file.garbage_bytes > file.addition.blob_bytes {
            return Err(misfit(format!("Garbage overflow for blob file #{number}")));
        }
        Ok(())
    }

    /// Blob files leave by themselves: those below the oldest that a table refers to, and those that no
    /// table names as its oldest and that hold nothing but garbage.
    fn settle_blob_files(&mut self, version: &mut Version) -> Vec<Arc<BlobFileMetaData>> {
        let mut files = self.base.blob_files.clone();
        let mut removed = Vec::new();
        for (number, file) in std::mem::take(&mut self.blob_files) {
            removed.extend(files.insert(number, Arc::new(file)));
        }
        let oldest = files.iter().find(|(_, file)| !file.linked_tables.is_empty()).map(|(&number, _)| number);
        let is_needed = |number: FileNumber, file: &BlobFileMetaData| {
            let all_garbage = file.garbage_count >= file.addition.blob_count;
            oldest.is_some_and(|oldest| number >= oldest) && !(file.linked_tables.is_empty() && all_garbage)
        };
        files.retain(|&number, file| {
            let keep = is_needed(number, file);
            if !keep {
                removed.push(file.clone());
            }
            keep
        });
        version.blob_files = files;
        removed
    }
}

fn misfit(message: String) -> Error {
    Error::corruption(message)
}

/// A level after a change, and the places of the files that are new in it where the rest is in order.
fn merge(
    order: &InternalKeyComparator,
    level: usize,
    base: &LevelFiles,
    change: LevelChange,
) -> (LevelFiles, Option<Vec<usize>>) {
    let added = change.added.into_iter().flatten();
    if level > 0 {
        let mut added: Vec<_> = added.collect();
        added.sort_by(|a, b| by_smallest(order, a, b));
        let (files, places) = base.changed(order, &change.removed, added);
        return (files, Some(places));
    }
    let kept =
        base.files().iter().enumerate().filter(|(index, _)| change.removed.binary_search(index).is_err());
    let mut files: Vec<_> = kept.map(|(_, file)| file.clone()).chain(added).collect();
    match files.iter().any(|file| file.epoch_number == UNKNOWN_EPOCH) {
        true => files.sort_by(|a, b| newest_first_by_sequence(a, b)),
        false => files.sort_by(|a, b| newest_first(a, b)),
    }
    (LevelFiles::new(order, files), None)
}

fn newest_first_by_sequence(a: &FileMetaData, b: &FileMetaData) -> Ordering {
    let key = |file: &FileMetaData| (file.largest_seqno, file.smallest_seqno, file.number);
    key(b).cmp(&key(a))
}
/// The order of level 0.
pub(crate) fn newest_first(a: &FileMetaData, b: &FileMetaData) -> Ordering {
    b.epoch_number.cmp(&a.epoch_number).then_with(|| newest_first_by_sequence(a, b))
}

/// Gives every file a new epoch: one for each level from the bottom up, then one for each file of level 0.
fn with_epochs(version: &Version) -> Result<(Arc<Version>, u64)> {
    let mut next = UNKNOWN_EPOCH + 1;
    let mut version = version.clone();
    for level in (0..version.num_levels()).rev() {
        let mut files = version.files(level).to_vec();
        for file in files.iter_mut().rev() {
            Arc::make_mut(file).epoch_number = next;
            next += u64::from(level == 0);
        }
        next += u64::from(level > 0 && !files.is_empty());
        version.levels[level] = Arc::new(LevelFiles::new(&version.comparator, files));
    }
    version.check_invariants()?;
    Ok((Arc::new(version), next))
}

/// Checks the order of a level: everywhere, or around the files at `added` if the others are known to
/// be in order. Messages hold no keys.
pub(crate) fn check_level(version: &Version, level: usize, added: Option<&[usize]>) -> Result<()> {
    let files = version.files(level);
    let by_epoch = level == 0 && files.iter().all(|file| file.epoch_number != UNKNOWN_EPOCH);
    let check = |index: usize| {
        check_bounds(version, level, &files[index])?;
        match files.get(index + 1) {
            Some(next) if level == 0 => check_newest_first(version, by_epoch, &files[index], next),
            Some(next) => check_disjoint(version, level, &files[index], next),
            None => Ok(()),
        }
    };
    match added {
        None => (0..files.len()).try_for_each(check),
        Some(added) => {
            let mut unchecked = 0; // From here on.
            for &index in added {
                let from = unchecked.max(index.saturating_sub(1));
                (from..=index).try_for_each(check)?;
                unchecked = index + 1;
            }
            Ok(())
        }
    }
}

fn disorder<T>(what: String) -> Result<T> {
    Err(misfit(format!("force_consistency_checks: VersionBuilder: {what}")))
}

fn check_bounds(version: &Version, level: usize, file: &FileMetaData) -> Result<()> {
    match version.comparator.compare(file.smallest.as_key(), file.largest.as_key()).is_gt() {
        true => disorder(format!("L{level} file #{} ends before it begins", file.number)),
        false => Ok(()),
    }
}

fn check_disjoint(version: &Version, level: usize, a: &FileMetaData, b: &FileMetaData) -> Result<()> {
    let order = &version.comparator;
    if by_smallest(order, a, b).is_ge() {
        return disorder(format!(
            "L{level} files are not sorted properly: files #{}, #{}",
            a.number, b.number
        ));
    }
    if order.compare(a.largest.as_key(), b.smallest.as_key()).is_ge() {
        return disorder(format!(
            "L{level} has overlapping ranges: file #{} vs. file #{}",
            a.number, b.number
        ));
    }
    Ok(())
}

fn check_newest_first(version: &Version, by_epoch: bool, a: &FileMetaData, b: &FileMetaData) -> Result<()> {
    let order = &version.comparator;
    let sorted = if by_epoch { newest_first(a, b) } else { newest_first_by_sequence(a, b) };
    if sorted.is_ge() {
        return disorder(format!("L0 files are not sorted properly: files #{}, #{}", a.number, b.number));
    }
    let intersect = order.compare(a.smallest.as_key(), b.largest.as_key()).is_le()
        && order.compare(b.smallest.as_key(), a.largest.as_key()).is_le();
    if by_epoch && a.epoch_number == b.epoch_number && intersect {
        return disorder(format!(
            "L0 files of same epoch number but overlapping range #{}, #{}, epoch number: {}",
            a.number, b.number, a.epoch_number
        ));
    }
    Ok(())
}

fn check_blob_files(version: &Version) -> Result<()> {
    for (number, file) in &version.blob_files {
        if file.garbage_count >= file.addition.blob_count {
            return Err(misfit(format!(
                "force_consistency_checks: VersionBuilder: Blob file #{number} consists entirely of garbage"
            )));
        }
    }
    Ok(())
}
