//! What the tables of a column family say about themselves, and what collectors of properties added.

use crate::Db;
use crate::column_family::ColumnFamily;
use crate::read::view::LevelView;
use ironstone_base::Result;
use ironstone_compaction::KeyRange;
use ironstone_sst::TableProperties;
use ironstone_version::FileMetaData;
use std::collections::BTreeMap;
use std::path::PathBuf;

impl Db {
    /// The properties of all tables of `cf`, by path. Opens those that are not open.
    pub fn properties_of_all_tables(&self, cf: &ColumnFamily) -> Result<BTreeMap<PathBuf, TableProperties>> {
        Ok(self.properties_of_tables_by_level(cf)?.into_iter().flatten().collect())
    }
    /// The same for each level, level 0 first.
    pub fn properties_of_tables_by_level(
        &self,
        cf: &ColumnFamily,
    ) -> Result<Vec<BTreeMap<PathBuf, TableProperties>>> {
        self.properties_of(cf, |_| true)
    }
    /// The properties of the tables whose key ranges meet one of `ranges`, the ends of which belong to them.
    pub fn properties_of_tables_in_ranges(
        &self,
        cf: &ColumnFamily,
        ranges: &[KeyRange<'_>],
    ) -> Result<BTreeMap<PathBuf, TableProperties>> {
        let order = &cf.0.comparator.user;
        let meets = |file: &FileMetaData, &(begin, end): &KeyRange<'_>| {
            begin.is_none_or(|begin| order.compare(begin, file.largest.user_key()).is_le())
                && end.is_none_or(|end| order.compare(file.smallest.user_key(), end).is_le())
        };
        let found = self.properties_of(cf, |file| ranges.iter().any(|range| meets(file, range)))?;
        Ok(found.into_iter().flatten().collect())
    }

    fn properties_of(
        &self,
        cf: &ColumnFamily,
        wanted: impl Fn(&FileMetaData) -> bool,
    ) -> Result<Vec<BTreeMap<PathBuf, TableProperties>>> {
        self.check_handle(cf)?;
        let view = cf.0.view(); // Its tables stay meanwhile.
        let of_level = |level: &LevelView| -> Result<BTreeMap<PathBuf, TableProperties>> {
            let mut found = BTreeMap::new();
            for (slot, file) in level.tables.iter().zip(level.files.files()) {
                if wanted(file) {
                    self.engine().check_cancelled()?;
                    found.insert(slot.path(), slot.reader()?.properties().clone());
                }
            }
            Ok(found)
        };
        view.levels.iter().map(|level| of_level(level)).collect()
    }
}
