//! What a read sees: memtables and tables as of one moment, reached without a lock.

use crate::background::Cleaner;
use crate::column_family::ColumnFamilyData;
use crate::engine::Engine;
use crate::memtables::DbMemTable;
use crate::read::acquire;
use crate::read::sampler::ReadSampler;
use crate::snapshot::Snapshot;
use crate::table_cache::{TableOpener, TableSlot};
use ironstone_base::statistics::Ticker;
use ironstone_base::sync::Arc;
use ironstone_base::{
    Error, InternalKey, InternalKeyComparator, MergeOperator, PrefixSeek, Result, SequenceNumber, Statistics,
};
use ironstone_sst::KeyHash;
use ironstone_version::{LevelFiles, Version};

/// Memtables and version of a column family, from one installation to the next. Readers hold it
/// for as long as they read; what only they still need goes away with it.
pub(crate) struct SuperVersion {
    pub(crate) mem: Arc<DbMemTable>,
    /// Newest first.
    pub(crate) imm: Vec<Arc<DbMemTable>>,
    pub(crate) version: Arc<Version>,
    pub(crate) levels: Vec<Arc<LevelView>>,
    pub(crate) comparator: InternalKeyComparator,
    pub(crate) merge_operator: Option<Arc<dyn MergeOperator>>,
    /// Counts installations.
    pub(crate) number: u64,
    /// Where reads are counted.
    pub(crate) statistics: Option<Arc<Statistics>>,
    /// Which reads count for `read_triggered_compaction_threshold`, if any do.
    pub(crate) sampler: Option<Arc<ReadSampler>>,
    /// The last field: it is dropped when the others no longer hold a file.
    pub(crate) _poke: PokeWhenDropped,
}

impl SuperVersion {
    /// Asks for the memory that a seek to `target` will need first, of all tables at once, so that going to one after the other
    /// waits once: what filters look at for its prefix, if `seek` asks them, or else where the cache has the blocks.
    pub(crate) fn prefetch_for_seek(&self, seek: Option<&PrefixSeek>, target: InternalKey<'_>) {
        let prefix = seek.and_then(|seek| seek.asked_for(target.user_key())).map(KeyHash::of);
        let ask = |table: &TableSlot| match prefix {
            Some(prefix) => table.prefetch(prefix),
            None => _ = table.likely_block(target, true),
        };
        for (number, level) in self.levels.iter().enumerate().filter(|(_, level)| !level.tables.is_empty()) {
            if number == 0 {
                level.tables.iter().for_each(|table| ask(table));
            } else if let Some(table) = level.tables.get(level.files.find(&self.comparator, target)) {
                ask(table);
            }
        }
    }
}

impl Drop for SuperVersion {
    fn drop(&mut self) {
        if let Some(statistics) = &self.statistics {
            statistics.record(Ticker::NumberSuperversionCleanups, 1);
        }
    }
}

/// Lets somebody look for files that nobody needs any more.
pub(crate) struct PokeWhenDropped(pub(crate) Arc<Cleaner>);

impl Drop for PokeWhenDropped {
    fn drop(&mut self) {
        self.0.poke();
    }
}

impl Engine {
    /// A view, and a number that covers nothing but what the view has.
    pub(crate) fn consistent_view(
        &self,
        snapshot: Option<&Snapshot>,
        cf: &ColumnFamilyData,
    ) -> Result<(Arc<SuperVersion>, SequenceNumber)> {
        let views = std::iter::once(cf.views());
        let (mut views, at) = acquire::of_one_moment(views, || self.read_sequence(snapshot, [cf]))?;
        Ok((views.remove(0), at))
    }

    /// The newest write that a read sees: now, or as of a snapshot.
    pub(crate) fn read_sequence<'a>(
        &self,
        snapshot: Option<&Snapshot>,
        of: impl IntoIterator<Item = &'a ColumnFamilyData>,
    ) -> Result<SequenceNumber> {
        match snapshot {
            None => Ok(self.pipeline.visible()),
            Some(_) if self.secondary => {
                Err(Error::not_supported("snapshots of a secondary: the primary does not know of them"))
            }
            Some(snapshot) if snapshot.belongs_to(&self.snapshots) => {
                let refuse = |cf: &ColumnFamilyData, why: &str| {
                    let what = format!("snapshots of column family {:?}, which has {why}", cf.name);
                    Err(Error::not_supported(what))
                };
                for cf in of {
                    let view = cf.peek();
                    if view.mem.updates_in_place() {
                        return refuse(cf, "inplace_update_support");
                    }
                    if view.mem.table_format().has_one_entry_per_key() {
                        return refuse(cf, "a table_factory that keeps one entry of each key");
                    }
                }
                Ok(snapshot.sequence())
            }
            Some(_) => Err(Error::invalid_argument("the snapshot is of another database")),
        }
    }
}

/// The tables of a level, in the order of its files. Level 0: newest first, overlapping. Deeper: in
/// key order, disjoint.
pub(crate) struct LevelView {
    pub(crate) files: Arc<LevelFiles>,
    pub(crate) tables: Vec<Arc<TableSlot>>,
    /// [`TableCache::replacements`](crate::table_cache::TableCache::replacements) when they were taken.
    replacements: u64,
}

impl LevelView {
    /// The view of a level with `files`; `old` is taken as it is if nothing changed.
    pub(crate) fn build(
        files: &Arc<LevelFiles>,
        level: usize,
        opener: &Arc<TableOpener>,
        old: Option<&Arc<Self>>,
    ) -> Arc<Self> {
        let replacements = opener.cache.replacements();
        if let Some(old) = old
            && Arc::ptr_eq(&old.files, files)
            && old.replacements == replacements
        {
            return Arc::clone(old);
        }
        let level = u32::try_from(level).expect("levels are few");
        let tables = files.files().iter().map(|file| opener.cache.slot(file, level, opener)).collect();
        Arc::new(Self { files: Arc::clone(files), tables, replacements })
    }
}
