//! What MANIFESTs still say.

use crate::info_log::{InfoLog, warning};
use ironstone_base::sync::Arc;
use ironstone_base::{ColumnFamilyId, FileKind, FileNumber, Result, SequenceNumber, file_name};
use ironstone_version::{ColumnFamilyChange, FileMetaData, ManifestReader, VersionEdit, current_manifest};
use ironstone_vfs::FileSystem;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

fn wals(names: &[String]) -> HashSet<FileNumber> {
    let number = |name: &String| match FileKind::parse(name) {
        Some(FileKind::Wal(number)) => Some(number),
        _ => None,
    };
    names.iter().filter_map(number).collect()
}

/// The edits of all MANIFESTs together, as far as these can be read, oldest first. What was deleted once is never
/// needed again, since numbers are not used twice.
#[derive(Default)]
pub(super) struct Hints {
    /// Whether the MANIFEST in force was read to its end, and what it counts on is there.
    pub(super) is_complete: bool,
    pub(super) families: BTreeMap<ColumnFamilyId, FamilyHint>,
    dropped: HashSet<ColumnFamilyId>,
    /// Whose table it is, on which level, and what there is to know about it.
    pub(super) files: HashMap<FileNumber, (ColumnFamilyId, usize, Arc<FileMetaData>)>,
    deleted: HashSet<FileNumber>,
    pub(super) db_id: Option<String>,
    pub(super) last_sequence: SequenceNumber,
    pub(super) next_file_number: FileNumber,
    pub(super) max_column_family: u32,
    min_log_number_to_keep: FileNumber,
}

pub(super) struct FamilyHint {
    pub(super) name: String,
    log_number: FileNumber,
}

impl Hints {
    /// `here`: the tables that are there.
    pub(super) fn read(
        fs: &dyn FileSystem,
        dir: &Path,
        wal_dir: &Path,
        here: &HashSet<FileNumber>,
        log: &Arc<InfoLog>,
    ) -> Result<Self> {
        let names = fs.list(dir)?;
        let number = |name: &String| match FileKind::parse(name) {
            Some(FileKind::Manifest(number)) => Some(number),
            _ => None,
        };
        let mut numbers: Vec<FileNumber> = names.iter().filter_map(number).collect();
        numbers.sort();
        // A newer one than CURRENT says may never have been in force. Without CURRENT the newest one was, or was about
        // to be, and all that it names was durable before it.
        let current = current_manifest(fs, dir).ok();
        let newest = current.or(numbers.last().copied());
        numbers.retain(|number| newest.is_some_and(|newest| *number <= newest));
        let mut hints = Self::default();
        for number in numbers {
            let mut all = Self { deleted: hints.deleted, files: hints.files, ..Self::default() };
            let is_whole = all.take_all(fs, &file_name::manifest(dir, number), log)?;
            // Whatever an older MANIFEST had and this one has not, is gone.
            if is_whole && newest == Some(number) {
                let listed = Self::listed_in(fs, &file_name::manifest(dir, number))?;
                let wals = wals(&fs.list(wal_dir)?);
                let oldest = match all.min_log_number_to_keep {
                    FileNumber(0) => all.families.values().map(|family| family.log_number).min(),
                    kept => Some(kept),
                };
                // It may have lost its end, without a trace in itself: then what it counts on may be gone.
                all.is_complete =
                    listed.is_subset(here) && oldest.is_some_and(|oldest| wals.contains(&oldest));
                if all.is_complete {
                    all.files.retain(|number, _| listed.contains(number));
                } else {
                    warning!(
                        log,
                        "{} counts on files that are gone",
                        file_name::manifest(dir, number).display()
                    );
                }
            }
            hints = all;
        }
        Ok(hints)
    }

    /// The tables that the MANIFEST at `path` itself ends with.
    fn listed_in(fs: &dyn FileSystem, path: &Path) -> Result<HashSet<FileNumber>> {
        let mut alone = Self::default();
        let mut reader = ManifestReader::open(fs, path)?;
        while let Some(record) = reader.next_edit()? {
            alone.take(record.edit);
        }
        Ok(alone.files.into_keys().collect())
    }

    /// Takes the edits of a MANIFEST up to the first that is damaged. Answers whether none is.
    fn take_all(&mut self, fs: &dyn FileSystem, path: &Path, log: &Arc<InfoLog>) -> Result<bool> {
        let mut reader = ManifestReader::open(fs, path)?;
        loop {
            match reader.next_edit() {
                Ok(Some(record)) => self.take(record.edit),
                // A commit that was interrupted was never in force.
                Ok(None) => return Ok(self.next_file_number.0 > 0),
                Err(error) if error.is_corruption() => {
                    warning!(log, "read up to here: {error}");
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn take(&mut self, edit: VersionEdit) {
        let id = edit.column_family;
        match edit.column_family_change {
            Some(ColumnFamilyChange::Add(name)) => {
                self.families.insert(id, FamilyHint { name, log_number: FileNumber(0) });
            }
            Some(ColumnFamilyChange::Drop) => {
                self.families.remove(&id);
                self.dropped.insert(id);
                let of_others = |_: &FileNumber, (owner, ..): &mut (ColumnFamilyId, usize, _)| *owner != id;
                self.files.retain(of_others);
            }
            None => {}
        }
        for (_, number) in edit.deleted_files {
            self.files.remove(&number);
            self.deleted.insert(number);
        }
        for (level, file) in edit.new_files {
            self.deleted.remove(&file.number); // It only moved to another level.
            self.files.insert(file.number, (id, level, file));
        }
        if let Some(number) = edit.log_number {
            let default = || FamilyHint { name: "default".to_owned(), log_number: number };
            if id == ColumnFamilyId::DEFAULT {
                self.families.entry(id).or_insert_with(default);
            }
            if let Some(family) = self.families.get_mut(&id) {
                family.log_number = number;
            }
        }
        self.db_id = edit.db_id.or(self.db_id.take());
        self.last_sequence = self.last_sequence.max(edit.last_sequence.unwrap_or_default());
        self.next_file_number = self.next_file_number.max(edit.next_file_number.unwrap_or_default());
        self.min_log_number_to_keep =
            self.min_log_number_to_keep.max(edit.min_log_number_to_keep.unwrap_or_default());
        self.max_column_family = self.max_column_family.max(edit.max_column_family.unwrap_or(0));
    }

    /// WALs with smaller numbers hold nothing of it that its tables lack. (Nor do others, maybe, if the end is missing.)
    pub(super) fn log_number(&self, id: ColumnFamilyId) -> FileNumber {
        self.families.get(&id).map_or(FileNumber(0), |family| family.log_number)
    }
    pub(super) fn family_of(&self, table: FileNumber) -> Option<ColumnFamilyId> {
        self.files.get(&table).map(|(id, ..)| *id)
    }

    /// Why a table is not needed, if it is not.
    pub(super) fn obsolete(&self, table: FileNumber) -> Option<&'static str> {
        if self.deleted.contains(&table) {
            return Some("it had been replaced by others");
        }
        (self.is_complete && !self.files.contains_key(&table)).then_some("the MANIFEST does not name it")
    }
    pub(super) fn is_dropped(&self, id: ColumnFamilyId) -> bool {
        self.dropped.contains(&id)
    }
}
