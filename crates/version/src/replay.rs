//! From the edits of a MANIFEST to what they add up to.

use crate::builder::VersionBuilder;
use crate::edit::{ColumnFamilyChange, VersionEdit};
use crate::manifest::{GroupBuffer, ManifestRecord};
use crate::point_in_time::Point;
use crate::set::{ColumnFamilyConfig, ColumnFamilyState, RecoverOptions};
use crate::version::Version;
use crate::wal_set::WalSet;
use ironstone_base::sync::Arc;
use ironstone_base::{
    ColumnFamilyId, Error, FileNumber, InternalKeyComparator, Result, SequenceNumber, UserComparator,
};
use std::collections::BTreeMap;
use std::path::Path;

pub(crate) const DEFAULT_COLUMN_FAMILY: &str = "default";
/// RocksDB keeps its statistics in it, and opens it unasked.
pub(crate) const STATISTICS_COLUMN_FAMILY: &str = "___rocksdb_stats_history___";

/// What the edits read so far add up to.
pub(crate) struct Replay<'a> {
    options: &'a RecoverOptions,
    /// How far each column family follows; none: to the end.
    points: Option<BTreeMap<ColumnFamilyId, Point>>,
    edits: u64,
    group: GroupBuffer,
    column_families: BTreeMap<ColumnFamilyId, Replayed>,
    /// In the MANIFEST, and not asked for.
    pub unlisted: BTreeMap<ColumnFamilyId, String>,
    pub log_number: Option<FileNumber>,
    pub prev_log_number: FileNumber,
    pub next_file_number: Option<FileNumber>,
    pub last_sequence: Option<SequenceNumber>,
    pub max_column_family: u32,
    pub min_log_number_to_keep: FileNumber,
    pub db_id: Option<String>,
    pub wals: WalSet,
    pub needed_wals: WalSet,
}

struct Replayed {
    name: String,
    comparator: UserComparator,
    builder: VersionBuilder,
    log_number: FileNumber,
    full_history_ts_low: Option<Vec<u8>>,
    persist_user_defined_timestamps: Option<bool>,
}

impl<'a> Replay<'a> {
    pub fn new(options: &'a RecoverOptions, points: Option<BTreeMap<ColumnFamilyId, Point>>) -> Result<Self> {
        let mut replay = Self {
            options,
            points,
            edits: 0,
            group: GroupBuffer::default(),
            column_families: BTreeMap::new(),
            unlisted: BTreeMap::new(),
            log_number: None,
            prev_log_number: FileNumber(0),
            next_file_number: None,
            last_sequence: None,
            max_column_family: 0,
            min_log_number_to_keep: FileNumber(0),
            db_id: None,
            wals: WalSet::default(),
            needed_wals: WalSet::default(),
        };
        let Some(config) = replay.config_of(DEFAULT_COLUMN_FAMILY) else {
            return Err(Error::invalid_argument("Default column family not specified"));
        };
        // No edit creates it.
        replay.column_families.insert(ColumnFamilyId::DEFAULT, Replayed::new(&config));
        Ok(replay)
    }

    fn config_of(&self, name: &str) -> Option<ColumnFamilyConfig> {
        let listed = self.options.column_families.iter().find(|config| config.name == name).cloned();
        listed.or_else(|| {
            let (name, comparator) = (name.to_owned(), UserComparator::Bytewise);
            (name == STATISTICS_COLUMN_FAMILY).then_some(ColumnFamilyConfig {
                name,
                comparator,
                num_levels: 7,
            })
        })
    }

    /// Takes one more record of the MANIFEST at `path` in.
    pub fn take(&mut self, record: ManifestRecord, path: &Path) -> Result<()> {
        let offset = record.offset;
        let ready = self.group.push(record).map_err(|corrupt| corrupt.at(path, offset))?;
        for ManifestRecord { offset, edit } in ready {
            let place = || format!("{} at {offset}", path.display());
            self.apply(&edit).map_err(|error| error.context(place()))?;
            self.edits += 1;
        }
        Ok(())
    }

    fn apply(&mut self, edit: &VersionEdit) -> Result<()> {
        let id = edit.column_family;
        match &edit.column_family_change {
            Some(ColumnFamilyChange::Add(name)) => self.add(id, name)?,
            Some(ColumnFamilyChange::Drop) => self.drop_column_family(id)?,
            None => {}
        }
        let dropped = edit.column_family_change == Some(ColumnFamilyChange::Drop);
        let follows = |points: &BTreeMap<_, Point>| points.get(&id).is_some_and(|p| self.edits < p.edits);
        let follows = self.points.as_ref().is_none_or(follows);
        if let Some(state) = self.column_families.get_mut(&id) {
            state.apply(edit, follows)?;
        } else if !dropped && !self.unlisted.contains_key(&id) {
            return Err(Error::corruption("MANIFEST record referencing unknown column family"));
        }
        self.apply_to_database(edit)
    }

    fn add(&mut self, id: ColumnFamilyId, name: &str) -> Result<()> {
        let names = self.column_families.values().map(|state| &state.name).chain(self.unlisted.values());
        let known = self.column_families.contains_key(&id) || self.unlisted.contains_key(&id);
        if known || names.into_iter().any(|other| other == name) {
            return Err(Error::corruption(format!("MANIFEST adding the same column family twice: {name}")));
        }
        self.max_column_family = self.max_column_family.max(id.0);
        match self.config_of(name) {
            Some(config) => drop(self.column_families.insert(id, Replayed::new(&config))),
            None => drop(self.unlisted.insert(id, name.to_owned())),
        }
        Ok(())
    }

    fn drop_column_family(&mut self, id: ColumnFamilyId) -> Result<()> {
        if id == ColumnFamilyId::DEFAULT {
            return Err(Error::corruption("MANIFEST - dropping the default column family"));
        }
        let was_open = self.column_families.remove(&id).is_some();
        if !was_open && self.unlisted.remove(&id).is_none() {
            return Err(Error::corruption("MANIFEST - dropping non-existing column family"));
        }
        Ok(())
    }

    fn apply_to_database(&mut self, edit: &VersionEdit) -> Result<()> {
        for addition in &edit.wal_additions {
            self.wals.add(addition).map_err(|corrupt| Error::corruption(corrupt.0))?;
        }
        if let Some(number) = edit.wal_deletion {
            self.wals.delete_before(number);
        }
        self.needed_wals.take(edit.min_log_number_to_keep, &edit.needed_wals);
        self.log_number = self.log_number.max(edit.log_number);
        self.prev_log_number = edit.prev_log_number.unwrap_or(self.prev_log_number);
        self.next_file_number = self.next_file_number.max(edit.next_file_number);
        self.last_sequence = self.last_sequence.max(edit.last_sequence);
        self.max_column_family = self.max_column_family.max(edit.max_column_family.unwrap_or(0));
        self.min_log_number_to_keep =
            self.min_log_number_to_keep.max(edit.min_log_number_to_keep.unwrap_or_default());
        if let Some(id) = &edit.db_id {
            self.db_id = Some(id.clone());
        }
        Ok(())
    }

    /// Checks that nothing is missing, and builds the versions.
    pub fn finish(&mut self) -> Result<BTreeMap<ColumnFamilyId, ColumnFamilyState>> {
        let missing: Vec<&str> = [
            ("log_file_number", self.log_number.is_none()),
            ("next_file_number", self.next_file_number.is_none()),
            ("last_sequence", self.last_sequence.is_none()),
        ]
        .iter()
        .filter_map(|&(name, missing)| missing.then_some(name))
        .collect();
        if !missing.is_empty() {
            return Err(Error::corruption(format!("no {} entry in MANIFEST", missing.join(", "))));
        }
        if !self.unlisted.is_empty() && !self.options.allow_unlisted {
            let names: Vec<&str> = self.unlisted.values().map(String::as_str).collect();
            return Err(Error::invalid_argument(format!("Column families not opened: {}", names.join(", "))));
        }
        let last_sequence = self.last_sequence.unwrap_or_default();
        let mut states = BTreeMap::new();
        for (id, mut replayed) in std::mem::take(&mut self.column_families) {
            let point = self.points.as_ref().and_then(|points| points.get(&id));
            for &number in point.iter().flat_map(|point| &point.without) {
                replayed.builder.leave_out(number)?;
            }
            let (current, next_epoch_number) = replayed.builder.build_recovered(last_sequence)?;
            states.insert(
                id,
                ColumnFamilyState {
                    id,
                    name: replayed.name,
                    comparator: replayed.comparator,
                    log_number: replayed.log_number,
                    current,
                    next_epoch_number,
                    full_history_ts_low: replayed.full_history_ts_low,
                    persist_user_defined_timestamps: replayed.persist_user_defined_timestamps,
                },
            );
        }
        Ok(states)
    }
}

impl Replayed {
    fn new(config: &ColumnFamilyConfig) -> Self {
        let order = InternalKeyComparator::new(config.comparator.clone());
        Self {
            name: config.name.clone(),
            comparator: config.comparator.clone(),
            builder: VersionBuilder::new(Arc::new(Version::empty(order, config.num_levels))),
            log_number: FileNumber(0),
            full_history_ts_low: None,
            persist_user_defined_timestamps: None,
        }
    }

    fn apply(&mut self, edit: &VersionEdit, with_files: bool) -> Result<()> {
        if let Some(name) = edit.comparator.as_deref().filter(|&name| name != self.comparator.name()) {
            let ours = self.comparator.name();
            return Err(Error::invalid_argument(format!(
                "{ours}: does not match existing comparator {name}"
            )));
        }
        if with_files {
            self.builder.apply(edit)?;
        }
        // RocksDB has written smaller ones after larger ones; the larger is right.
        self.log_number = self.log_number.max(edit.log_number.unwrap_or_default());
        if edit.full_history_ts_low.is_some() {
            self.full_history_ts_low.clone_from(&edit.full_history_ts_low);
        }
        self.persist_user_defined_timestamps =
            edit.persist_user_defined_timestamps.or(self.persist_user_defined_timestamps);
        Ok(())
    }
}

/// The names of the column families that the edits of a MANIFEST leave, by id.
pub(crate) fn names(
    mut next: impl FnMut() -> Result<Option<ManifestRecord>>,
    path: &Path,
) -> Result<Vec<String>> {
    let mut names = BTreeMap::from([(ColumnFamilyId::DEFAULT, DEFAULT_COLUMN_FAMILY.to_owned())]);
    let mut group = GroupBuffer::default();
    while let Some(record) = next()? {
        let offset = record.offset;
        for record in group.push(record).map_err(|corrupt| corrupt.at(path, offset))? {
            let id = record.edit.column_family;
            let fits = match record.edit.column_family_change {
                Some(ColumnFamilyChange::Add(name)) => names.insert(id, name).is_none(),
                Some(ColumnFamilyChange::Drop) => names.remove(&id).is_some(),
                None => true,
            };
            if !fits {
                let what = "a column family is added twice, or dropped without having been added";
                return Err(Error::corruption_at(path, record.offset, what));
            }
        }
    }
    Ok(names.into_values().collect())
}
