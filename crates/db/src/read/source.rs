//! What an iterator is made of, and made of again when it is refreshed.

use crate::column_family::ColumnFamilyData;
use crate::engine::Engine;
use crate::read::level_iter::LevelIter;
use crate::read::level0_iter::Level0Iter;
use crate::read::range_tombstones::Covering;
use crate::read::read_options::ReadOptions;
use crate::read::timed_memtable::TimedMemTable;
use crate::read::timed_merge::TimedMerge;
use crate::read::view::SuperVersion;
use crate::trace::Tracing;
use ironstone_base::perf::PerfMetric;
use ironstone_base::sync::{Arc, Weak};
use ironstone_base::{Error, PrefixSeek, Result, SequenceNumber};
use ironstone_iter::{BoxedIterator, MergingIterator};
use ironstone_sst::ReadTier;
use ironstone_vfs::PerfTimer;

/// A column family, and how an iterator reads it.
pub(crate) struct IteratorSource {
    /// Does not keep the database open.
    engine: Weak<Engine>,
    cf: Arc<ColumnFamilyData>,
    /// The snapshot in it keeps what it sees from being compacted away.
    pub(crate) options: ReadOptions,
    pub(crate) prefix_seek: Option<Arc<PrefixSeek>>,
    pub(crate) tracing: Arc<Tracing>,
}

/// What an iterator walks: what a view holds, as of a sequence number.
pub(crate) struct Places {
    pub(crate) inner: BoxedIterator,
    pub(crate) tombstones: Covering,
    pub(crate) sequence: SequenceNumber,
    /// Keeps what `inner` reads.
    pub(crate) view: Arc<SuperVersion>,
}

impl IteratorSource {
    pub(crate) fn new(
        engine: &Arc<Engine>,
        cf: &Arc<ColumnFamilyData>,
        options: &ReadOptions,
    ) -> Result<Self> {
        if options.tailing && engine.secondary {
            return Err(Error::not_supported("tailing iterators in a secondary"));
        }
        if options.tailing && options.snapshot.is_some() {
            return Err(Error::invalid_argument("a tailing iterator reads what is new, not a snapshot"));
        }
        Ok(Self {
            engine: Arc::downgrade(engine),
            cf: Arc::clone(cf),
            prefix_seek: options
                .prefix_seek(&cf.settings().options, engine.options().prefix_seek_opt_in_only),
            options: options.clone(),
            tracing: Arc::clone(&engine.tracing),
        })
    }
    pub(crate) fn cf(&self) -> &ColumnFamilyData {
        &self.cf
    }
    /// The database, if it is still open.
    pub(crate) fn engine(&self) -> Option<Arc<Engine>> {
        self.engine.upgrade()
    }
    /// Whether it reads at a snapshot.
    pub(crate) fn has_snapshot(&self) -> bool {
        self.options.snapshot.is_some()
    }
    /// Whether reads see another view by now.
    pub(crate) fn has_moved_on(&self, view: &SuperVersion) -> bool {
        self.cf.peek().number != view.number
    }

    /// What reads see now, or what they saw at the snapshot in the options.
    pub(crate) fn places_now(&self, engine: &Engine) -> Result<Places> {
        let (view, at) = engine.consistent_view(self.options.snapshot.as_ref(), &self.cf)?;
        self.places(view, at)
    }

    /// What `view` holds, as of `at`.
    pub(crate) fn places(&self, view: Arc<SuperVersion>, at: SequenceNumber) -> Result<Places> {
        let _timer = PerfTimer::start(PerfMetric::NewTableIteratorNanos);
        let comparator = &self.cf.comparator;
        let mut children: Vec<BoxedIterator> = Vec::new();
        let mut tombstones = Covering::new(comparator.clone(), at);
        if self.options.read_tier != ReadTier::Persisted {
            for memtable in view.memtables() {
                let table = memtable.table();
                if table.has_range_tombstones() {
                    tombstones.add_empty(children.len(), memtable.empty_ranges());
                    for fragments in table.range_tombstone_fragments()? {
                        tombstones.add(children.len(), &fragments);
                    }
                }
                children.push(Box::new(TimedMemTable(table.iter_by_prefix(self.prefix_seek.clone()))));
            }
        }
        let table_options = self.options.table_options(self.prefix_seek.clone());
        // Nothing of a table for `Memtable`: not its range tombstones, either, which hide nothing that is newer.
        let levels = if self.options.read_tier == ReadTier::Memtable { &[][..] } else { &view.levels[..] };
        for (level, tables) in levels.iter().enumerate() {
            if let (0, Some(seek)) = (level, self.prefix_seek.as_ref().filter(|_| tables.tables.len() > 1)) {
                for slot in &tables.tables {
                    slot.with_reader(|reader| {
                        tombstones.add(children.len(), reader.range_fragments());
                        Ok(())
                    })?;
                }
                let (tables, options) = (Arc::clone(tables), table_options.clone());
                let iter = Level0Iter::new(tables, options, Arc::clone(seek), comparator.clone());
                children.push(Box::new(iter));
            } else if level == 0 {
                for slot in &tables.tables {
                    children.push(Box::new(slot.with_reader(|reader| {
                        tombstones.add(children.len(), reader.range_fragments());
                        Ok(reader.iter(&table_options))
                    })?));
                }
            } else if !tables.tables.is_empty() {
                let flag = tombstones.add_level(children.len(), tables);
                let (tables, options) = (Arc::clone(tables), table_options.clone());
                let iter = LevelIter::new(tables, options, comparator.clone(), flag, view.sampler.clone());
                children.push(Box::new(iter));
            }
        }
        let inner: BoxedIterator = match children.len() {
            1 => children.remove(0),
            _ => Box::new(TimedMerge(MergingIterator::new(comparator.clone(), children))),
        };
        Ok(Places { inner, tombstones, sequence: at, view })
    }
}
