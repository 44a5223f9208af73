//! Column families, as everybody but the state lock sees them.

use crate::background::Cleaner;
use crate::background::abort::Aborts;
use crate::memtables::DbMemTable;
use crate::properties::report::Shown;
use crate::read::view::{LevelView, PokeWhenDropped, SuperVersion};
use crate::settings::Settings;
use crate::table_paths::TablePaths;
use crate::totals::Totals;
use crate::write_buffer_manager::MemTableMemory;
use ironstone_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ironstone_base::sync::{Arc, Mutex, Swap, SwapGuard, Weak};
use ironstone_base::{Code, ColumnFamilyId, Error, FileNumber, InternalKeyComparator, Result};
use ironstone_cache::{MemoryRole, Reservation};
use ironstone_memtable::MemTable;
use ironstone_version::{FileMetaData, Version};
use std::collections::BTreeMap;
use std::fmt;

/// A column family of an open database. Cheap to clone. Using it after the column family was
/// dropped, or with another database, is an error, not a fault.
#[derive(Clone)]
pub struct ColumnFamily(pub(crate) Arc<ColumnFamilyData>);

impl ColumnFamily {
    /// Identifies it in batches.
    pub fn id(&self) -> ColumnFamilyId {
        self.0.id
    }
    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }
}

impl fmt::Debug for ColumnFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ColumnFamily({} {:?})", self.0.id.0, self.0.name)
    }
}

pub(crate) struct ColumnFamilyData {
    pub(crate) id: ColumnFamilyId,
    pub(crate) name: String,
    /// Which open database it belongs to.
    pub(crate) instance: u64,
    pub(crate) comparator: InternalKeyComparator,
    /// Replaced under the state lock, loaded without any.
    settings: Swap<Settings>,
    /// Where its memtables have their memory from.
    pub(crate) memory: Arc<MemTableMemory>,
    pub(crate) dropped: AtomicBool,
    /// Of its compactions.
    pub(crate) aborts: Aborts,
    /// What readers see. Replaced under the state lock, loaded without any.
    view: Swap<SuperVersion>,
    installations: AtomicU64,
    cleaner: Arc<Cleaner>,
    /// What was done to it.
    pub(crate) totals: Mutex<Totals>,
    pub(crate) shown: Mutex<Shown>,
    /// Versions that somebody may still read.
    versions: Mutex<Vec<Weak<Version>>>,
    /// Memtables that somebody may still read.
    memtables: Mutex<Vec<Weak<MemTable>>>,
    /// What the metadata of the tables of the current version takes, as the block cache counts it, if it does.
    metadata_charge: Mutex<Option<Reservation>>,
}

impl ColumnFamilyData {
    /// Where its tables are.
    pub(crate) fn paths(&self) -> TablePaths {
        self.settings().opener.paths.clone()
    }
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        id: ColumnFamilyId,
        name: &str,
        instance: u64,
        settings: Settings,
        memory: Arc<MemTableMemory>,
        mem: Arc<DbMemTable>,
        version: Arc<Version>,
        cleaner: Arc<Cleaner>,
    ) -> Arc<Self> {
        let comparator = InternalKeyComparator::new(settings.options.comparator.clone());
        let versions = Mutex::new(vec![Arc::downgrade(&version)]);
        let memtables = Mutex::new(vec![Arc::downgrade(mem.table())]);
        let metadata_charge = settings.opener.table.reserve_in_cache(MemoryRole::FileMetadata);
        let view = build_view(mem, Vec::new(), version, None, &settings, &comparator, 0, &cleaner);
        let new = Self {
            id,
            name: name.to_owned(),
            instance,
            comparator,
            settings: Swap::new(settings),
            memory,
            dropped: AtomicBool::new(false),
            aborts: Aborts::default(),
            view: Swap::new(view),
            installations: AtomicU64::new(0),
            cleaner,
            totals: Mutex::default(),
            shown: Mutex::default(),
            versions,
            memtables,
            metadata_charge: Mutex::new(metadata_charge),
        };
        new.charge_metadata(&new.view.load().version);
        Arc::new(new)
    }

    fn charge_metadata(&self, version: &Version) {
        if let Some(charge) = &mut *self.metadata_charge.lock() {
            charge.set(version.all_files().map(|(_, file)| file.memory_usage()).sum());
        }
    }

    /// A view of these memtables, of which those of `imm` come newest first, and tables. Nobody else sees it.
    pub(crate) fn new_view(
        &self,
        mem: Arc<DbMemTable>,
        imm: Vec<Arc<DbMemTable>>,
        version: Arc<Version>,
    ) -> SuperVersion {
        let old = self.view();
        build_view(
            mem,
            imm,
            version,
            Some(&old),
            &self.settings(),
            &self.comparator,
            old.number,
            &self.cleaner,
        )
    }

    /// The options in force.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }
    /// Replaces them. Called under the state lock.
    pub(crate) fn set_settings(&self, settings: Settings) {
        self.settings.store(Arc::new(settings));
    }
    /// What a read sees now, for a moment.
    #[inline]
    pub(crate) fn peek(&self) -> SwapGuard<SuperVersion> {
        self.view.load()
    }
    /// What a read sees now, to be kept.
    pub(crate) fn view(&self) -> Arc<SuperVersion> {
        self.view.load_full()
    }
    /// Where that comes from.
    pub(crate) fn views(&self) -> &Swap<SuperVersion> {
        &self.view
    }
    /// How many versions somebody still reads, the current one included.
    pub(crate) fn live_versions(&self) -> usize {
        self.versions.lock().iter().filter(|version| version.strong_count() > 0).count()
    }
    /// The tables of all of them, each once.
    pub(crate) fn held_tables(&self) -> BTreeMap<FileNumber, Arc<FileMetaData>> {
        let versions: Vec<_> = self.versions.lock().iter().filter_map(Weak::upgrade).collect();
        let files = versions.iter().flat_map(|version| version.all_files());
        files.map(|(_, file)| (file.number, Arc::clone(file))).collect()
    }
    /// How much memory memtables take, those included that were flushed and that somebody still reads.
    pub(crate) fn held_memtable_bytes(&self) -> usize {
        let memtables = self.memtables.lock();
        memtables.iter().filter_map(Weak::upgrade).map(|memtable| memtable.memory_usage()).sum()
    }
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    pub(crate) fn check_not_dropped(&self) -> Result<()> {
        match self.is_dropped() {
            true => Err(Error::new(Code::ColumnFamilyDropped, format!("column family {:?}", self.name))),
            false => Ok(()),
        }
    }

    /// Replaces what reads see. Called under the state lock.
    pub(crate) fn install(&self, mem: Arc<DbMemTable>, imm: Vec<Arc<DbMemTable>>, version: Arc<Version>) {
        let number = self.installations.fetch_add(1, Ordering::Relaxed) + 1;
        let old = self.view.load();
        if !Arc::ptr_eq(&old.version, &version) {
            let mut versions = self.versions.lock();
            versions.retain(|version| version.strong_count() > 0);
            versions.push(Arc::downgrade(&version));
            drop(versions);
            self.charge_metadata(&version);
        }
        if !Arc::ptr_eq(old.mem.table(), mem.table()) {
            let mut memtables = self.memtables.lock();
            memtables.retain(|memtable| memtable.strong_count() > 0);
            memtables.push(Arc::downgrade(mem.table()));
        }
        let (settings, comparator) = (self.settings.load(), &self.comparator);
        let view = build_view(mem, imm, version, Some(&old), &settings, comparator, number, &self.cleaner);
        self.view.store(Arc::new(view));
    }
}

#[allow(clippy::too_many_arguments)]
fn build_view(
    mem: Arc<DbMemTable>,
    imm: Vec<Arc<DbMemTable>>,
    version: Arc<Version>,
    old: Option<&SuperVersion>,
    settings: &Settings,
    comparator: &InternalKeyComparator,
    number: u64,
    cleaner: &Arc<Cleaner>,
) -> SuperVersion {
    let level = |(index, files)| {
        LevelView::build(files, index, &settings.opener, old.and_then(|old| old.levels.get(index)))
    };
    let merge_operator = settings.options.merge_operator.clone();
    let levels = version.levels.iter().enumerate().map(level).collect();
    let (comparator, _poke) = (comparator.clone(), PokeWhenDropped(Arc::clone(cleaner)));
    let statistics = settings.opener.table.statistics.clone();
    let samples = settings.options.read_triggered_compaction_threshold > 0.0;
    let sampler = samples.then(|| old.and_then(|old| old.sampler.clone()).unwrap_or_default());
    SuperVersion { mem, imm, levels, version, comparator, merge_operator, number, statistics, sampler, _poke }
}
