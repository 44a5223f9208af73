//! Best-efforts recovery: which of the states that a MANIFEST tells of has all of its tables.

use crate::builder::newest_first;
use crate::edit::{ColumnFamilyChange, VersionEdit};
use crate::file_metadata::FileMetaData;
use crate::manifest::{GroupBuffer, ManifestRecord};
use crate::replay::DEFAULT_COLUMN_FAMILY;
use ironstone_base::sync::Arc;
use ironstone_base::{ColumnFamilyId, FileNumber, Result};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// Looks at a table of the column family with that name, on that level: `Some(why)` if it is missing or is not the one
/// that the metadata describes.
pub type CheckTable<'a> = dyn FnMut(&str, usize, &FileMetaData) -> Result<Option<String>> + 'a;

/// A state of a column family.
#[derive(Clone, Default, Debug)]
pub(crate) struct Point {
    /// What the first so many edits of the MANIFEST add up to,
    pub edits: u64,
    /// but for these tables, the newest of level 0.
    pub without: BTreeSet<FileNumber>,
}

/// Finds for each column family the newest state that has all of its tables, or lacks only the newest ones of level 0:
/// then it is a state of an earlier time, too. Column families whose tables a group of edits changes get over that group
/// together, or none of them does.
pub(crate) struct PointsInTime<'a, 'b> {
    check: &'a mut CheckTable<'b>,
    /// What was found out about tables; a table that moves to another level is looked at once.
    checked: HashMap<FileNumber, Option<String>>,
    listed: &'a BTreeSet<String>,
    families: BTreeMap<ColumnFamilyId, Family>,
    group: GroupBuffer,
    /// The column families that a group changed, until all of them have a state behind it.
    awaited: BTreeMap<ColumnFamilyId, Option<Point>>,
    edits: u64,
    /// Without these three a state is of no use.
    has_log_number: bool,
    has_next_file: bool,
    has_last_sequence: bool,
}

struct Family {
    name: String,
    listed: bool,
    level0: HashMap<FileNumber, Arc<FileMetaData>>,
    /// Level, and why.
    missing: BTreeMap<FileNumber, (usize, String)>,
    changed_by_group: bool,
    point: Option<Point>,
}

impl<'a, 'b> PointsInTime<'a, 'b> {
    /// For a database of which the column families `listed` are opened.
    pub fn new(listed: &'a BTreeSet<String>, check: &'a mut CheckTable<'b>) -> Self {
        let default = Family::new(DEFAULT_COLUMN_FAMILY, true);
        Self {
            check,
            checked: HashMap::new(),
            listed,
            families: BTreeMap::from([(ColumnFamilyId::DEFAULT, default)]),
            group: GroupBuffer::default(),
            awaited: BTreeMap::new(),
            edits: 0,
            has_log_number: false,
            has_next_file: false,
            has_last_sequence: false,
        }
    }

    /// Takes one more record of the MANIFEST at `path` in.
    pub fn take(&mut self, record: ManifestRecord, path: &Path) -> Result<()> {
        let offset = record.offset;
        let ready = self.group.push(record).map_err(|corrupt| corrupt.at(path, offset))?;
        let changed: BTreeSet<ColumnFamilyId> = ready
            .iter()
            .filter(|record| changes_tables(&record.edit))
            .map(|r| r.edit.column_family)
            .collect();
        // A group that changes the tables of one column family is a change like others.
        let together = ready.len() > 1 && changed.len() > 1;
        if together {
            self.begin_group(changed);
        }
        for ManifestRecord { edit, offset } in ready {
            let place = || format!("{} at {offset}", path.display());
            self.apply(&edit, together).map_err(|error| error.context(place()))?;
            self.edits += 1;
        }
        Ok(())
    }

    fn begin_group(&mut self, changed: BTreeSet<ColumnFamilyId>) {
        self.save_all_good();
        // Those that never got over the last group wait on, with those of this one.
        let waiting = std::mem::take(&mut self.awaited).into_keys();
        self.awaited = waiting.chain(changed).map(|id| (id, None)).collect();
    }

    fn apply(&mut self, edit: &VersionEdit, in_group: bool) -> Result<()> {
        let id = edit.column_family;
        match &edit.column_family_change {
            Some(ColumnFamilyChange::Add(name)) => {
                let listed = self.listed.contains(name);
                self.families.insert(id, Family::new(name, listed));
            }
            Some(ColumnFamilyChange::Drop) => {
                self.families.remove(&id);
                self.awaited.remove(&id);
                self.complete_group();
            }
            None => {}
        }
        if changes_tables(edit)
            && let Some(family) = self.families.get_mut(&id).filter(|family| family.listed)
        {
            let before = family.is_good().then(|| Point { edits: self.edits, without: family.left_out() });
            family.changed_by_group |= in_group;
            for (level, number) in &edit.deleted_files {
                family.remove(*level, *number);
            }
            for (level, file) in &edit.new_files {
                let why = match self.checked.get(&file.number) {
                    Some(known) => known.clone(),
                    None => (self.check)(&family.name, *level, file)?,
                };
                self.checked.insert(file.number, why.clone());
                family.add(*level, file, why);
            }
            let lost = !family.is_good();
            if let Some(before) = before.filter(|_| lost && !in_group && self.is_usable()) {
                self.save(id, before);
            }
        }
        self.has_log_number |= edit.log_number.is_some();
        self.has_next_file |= edit.next_file_number.is_some();
        self.has_last_sequence |= edit.last_sequence.is_some();
        Ok(())
    }

    fn is_usable(&self) -> bool {
        self.has_log_number && self.has_next_file && self.has_last_sequence
    }

    /// Remembers the states of now that are good.
    fn save_all_good(&mut self) {
        if !self.is_usable() {
            return;
        }
        let good = self.families.iter().filter(|(_, family)| family.listed && family.is_good());
        let points: Vec<_> =
            good.map(|(&id, family)| (id, Point { edits: self.edits, without: family.left_out() })).collect();
        for (id, point) in points {
            self.save(id, point);
        }
    }

    fn save(&mut self, id: ColumnFamilyId, point: Point) {
        if let Some(awaited) = self.awaited.get_mut(&id) {
            *awaited = Some(point);
            self.complete_group();
        } else if let Some(family) = self.families.get_mut(&id) {
            family.point = Some(point);
        }
    }

    /// Once all that a group changed have a state behind it, these states count.
    fn complete_group(&mut self) {
        if self.awaited.values().any(Option::is_none) {
            return;
        }
        for (id, point) in std::mem::take(&mut self.awaited) {
            if let Some(family) = self.families.get_mut(&id) {
                family.point = point;
            }
        }
    }

    /// The states, and for people what is not in them. A column family without a state begins empty.
    pub fn finish(mut self) -> (BTreeMap<ColumnFamilyId, Point>, Vec<String>) {
        self.save_all_good();
        let mut notes = Vec::new();
        let mut points = BTreeMap::new();
        for (id, family) in self.families {
            if !family.listed {
                continue;
            }
            let name = &family.name;
            let point = family.point.clone().unwrap_or_default();
            if family.point.is_none() {
                notes.push(format!(
                    "column family {name}: no state of it has all of its tables, so it is empty"
                ));
            } else if point.edits < self.edits {
                let (kept, all) = (point.edits, self.edits);
                notes.push(format!("column family {name}: back to the state after edit {kept} of {all}"));
            }
            for (number, (level, why)) in &family.missing {
                notes.push(format!("column family {name}: without table #{number} of level {level}: {why}"));
            }
            if family.missing.is_empty() && point.edits < self.edits {
                notes.push(format!(
                    "column family {name}: it went back because it was changed together with one that did"
                ));
            }
            points.insert(id, point);
        }
        (points, notes)
    }
}

impl Family {
    fn new(name: &str, listed: bool) -> Self {
        Self {
            name: name.to_owned(),
            listed,
            level0: HashMap::new(),
            missing: BTreeMap::new(),
            changed_by_group: false,
            point: None,
        }
    }

    fn add(&mut self, level: usize, file: &Arc<FileMetaData>, why_not: Option<String>) {
        if level == 0 {
            self.level0.insert(file.number, Arc::clone(file));
        }
        if let Some(why) = why_not {
            self.missing.insert(file.number, (level, why));
        }
    }

    fn remove(&mut self, level: usize, number: FileNumber) {
        if level == 0 {
            self.level0.remove(&number);
        }
        self.missing.remove(&number);
    }

    /// Whether every table is there, but for the newest of level 0. After a group of edits, all must be: what is in the
    /// newest tables may belong to what other column families have.
    fn is_good(&self) -> bool {
        if self.missing.is_empty() {
            return true;
        }
        if self.changed_by_group || self.missing.values().any(|(level, _)| *level > 0) {
            return false;
        }
        let (missing, there): (Vec<_>, Vec<_>) =
            self.level0.values().partition(|file| self.missing.contains_key(&file.number));
        let oldest_missing = missing.into_iter().max_by(|a, b| newest_first(a, b));
        let newest_there = there.into_iter().min_by(|a, b| newest_first(a, b));
        oldest_missing.zip(newest_there).is_none_or(|(missing, there)| newest_first(missing, there).is_lt())
    }

    fn left_out(&self) -> BTreeSet<FileNumber> {
        self.missing.keys().copied().collect()
    }
}

fn changes_tables(edit: &VersionEdit) -> bool {
    !(edit.new_files.is_empty() && edit.deleted_files.is_empty())
}
