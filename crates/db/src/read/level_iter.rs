//! An iterator over the disjoint tables of a level, which opens one at a time.

use crate::read::sampler::ReadSampler;
use crate::read::view::LevelView;
use ironstone_base::prefix_seek::Direction;
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::{AtomicBool, Ordering};
use ironstone_base::{InternalKey, InternalKeyComparator, PrefixSeek, Result};
use ironstone_iter::InternalIterator;
use ironstone_sst::{TableIter, TableReadOptions};

/// Chains the tables of a sorted level.
pub(crate) struct LevelIter {
    level: Arc<LevelView>,
    /// Without prefixes: tables are asked here.
    options: TableReadOptions,
    prefix_seek: Option<Arc<PrefixSeek>>,
    comparator: InternalKeyComparator,
    /// The table that `current` reads.
    at: usize,
    current: Option<TableIter>,
    /// The filter of the table that the last seek went to was asked.
    filter_used: bool,
    /// Raised when a table with range tombstones is opened.
    has_tombstones: Arc<AtomicBool>,
    /// Counts what seeks come upon, if that is wanted.
    sampler: Option<Arc<ReadSampler>>,
}

impl LevelIter {
    pub(crate) fn new(
        level: Arc<LevelView>,
        mut options: TableReadOptions,
        comparator: InternalKeyComparator,
        has_tombstones: Arc<AtomicBool>,
        sampler: Option<Arc<ReadSampler>>,
    ) -> Self {
        let prefix_seek = options.prefix_seek.take();
        Self {
            level,
            options,
            prefix_seek,
            comparator,
            at: 0,
            current: None,
            filter_used: false,
            has_tombstones,
            sampler,
        }
    }

    /// A seek ended at an entry of table `at`.
    #[inline]
    fn note_seek(&self) {
        if let Some(sampler) = &self.sampler {
            sampler.note_entry(self.key().value_type().ok(), &self.level.tables[self.at]);
        }
    }

    /// Opens table `at`, unless it is the one that is open.
    fn open(&mut self, at: usize) -> Result<&mut TableIter> {
        if self.at != at || self.current.is_none() {
            self.current = None;
            let options = &self.options;
            let flag = &self.has_tombstones;
            self.current = Some(self.level.tables[at].with_reader(|reader| {
                if reader.has_range_deletions() {
                    flag.store(true, Ordering::Relaxed); // One thread at a time uses the iterator.
                }
                Ok(reader.iter(options))
            })?);
            self.at = at;
        }
        let current = self.current.as_mut().expect("opened above");
        current.set_filter_used(self.filter_used);
        Ok(current)
    }

    /// Whether table `at` has nothing to show from `target` on, by its prefix filter; then it needs no iterator.
    fn is_ruled_out(&mut self, at: usize, target: InternalKey<'_>, direction: Direction) -> Result<bool> {
        let Some(seek) = &self.prefix_seek else { return Ok(false) };
        let (read, flag) = (&self.options.read, &self.has_tombstones);
        let is_out = self.level.tables[at].with_reader(|reader| {
            if reader.has_range_deletions() {
                flag.store(true, Ordering::Relaxed); // One thread at a time uses the iterator.
            }
            reader.is_ruled_out(read, seek, target, direction)
        });
        if !matches!(is_out, Ok((_, false))) {
            self.current = None;
        }
        let (asked, is_out) = is_out?;
        self.filter_used = asked;
        Ok(is_out)
    }

    /// From behind table `at - 1` to the first entry of the tables from `at` on, up to the upper bound.
    fn first_from(&mut self, mut at: usize) -> Result<bool> {
        while at < self.level.tables.len() && !self.begins_past_bound(at) {
            if self.open(at)?.seek_to_first()? {
                return Ok(true);
            }
            at += 1;
        }
        self.current = None;
        Ok(false)
    }

    /// Whether nothing in table `at` is within the upper bound.
    fn begins_past_bound(&self, at: usize) -> bool {
        let order = &self.comparator.user;
        let bound = self.options.upper_bound.as_ref();
        bound.is_some_and(|bound| order.compare(self.first_key(at), bound).is_ge())
    }
    fn first_key(&self, at: usize) -> &[u8] {
        self.level.files.files()[at].smallest.user_key()
    }

    /// Whether the table after `at`, which has nothing to show from `target` on, may have something.
    fn may_go_on(&self, at: usize, target: InternalKey<'_>) -> bool {
        let seek = self.prefix_seek.as_ref().filter(|_| at + 1 < self.level.tables.len());
        seek.is_none_or(|seek| seek.may_go_on(target.user_key(), self.first_key(at + 1)))
    }

    /// To the last entry of the tables below `end`.
    fn last_before(&mut self, mut end: usize) -> Result<bool> {
        while end > 0 {
            end -= 1;
            if self.open(end)?.seek_to_last()? {
                return Ok(true);
            }
        }
        self.current = None;
        Ok(false)
    }
}

impl InternalIterator for LevelIter {
    #[inline]
    fn valid(&self) -> bool {
        self.current.as_ref().is_some_and(InternalIterator::valid)
    }
    fn seek_to_first(&mut self) -> Result<bool> {
        self.first_from(0)
    }
    fn seek_to_last(&mut self) -> Result<bool> {
        self.last_before(self.level.tables.len())
    }
    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool> {
        let at = self.level.files.find(&self.comparator, target);
        if at == self.level.tables.len() {
            self.current = None;
            return Ok(false);
        }
        if !self.is_ruled_out(at, target, Direction::Forward)? && self.open(at)?.seek(target)? {
            self.note_seek();
            return Ok(true);
        }
        if self.may_go_on(at, target) { self.first_from(at + 1) } else { Ok(false) }
    }
    fn seek_for_prev(&mut self, target: InternalKey<'_>) -> Result<bool> {
        let at = self.level.files.find(&self.comparator, target);
        if at == self.level.tables.len() {
            return self.last_before(at);
        }
        if !self.is_ruled_out(at, target, Direction::Backward)? && self.open(at)?.seek_for_prev(target)? {
            self.note_seek();
            return Ok(true);
        }
        self.last_before(at)
    }
    #[inline]
    fn next(&mut self) -> Result<bool> {
        let current = self.current.as_mut().expect("next is called when valid");
        if current.next()? {
            return Ok(true);
        }
        self.first_from(self.at + 1)
    }
    #[inline]
    fn prev(&mut self) -> Result<bool> {
        let current = self.current.as_mut().expect("prev is called when valid");
        if current.prev()? {
            return Ok(true);
        }
        self.last_before(self.at)
    }
    #[inline]
    fn key(&self) -> InternalKey<'_> {
        self.current.as_ref().expect("key is called when valid").key()
    }
    #[inline]
    fn value(&self) -> &[u8] {
        self.current.as_ref().expect("value is called when valid").value()
    }
    fn note_use(&mut self) {
        if let Some(table) = &mut self.current {
            table.note_use();
        }
    }
}
