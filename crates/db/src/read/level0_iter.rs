//! An iterator over the overlapping tables of level 0 that opens those that a prefix seek needs.

use crate::read::view::LevelView;
use ironstone_base::prefix_seek::Direction;
use ironstone_base::sync::Arc;
use ironstone_base::{InternalKey, InternalKeyComparator, PrefixSeek, Result};
use ironstone_iter::{InternalIterator, MergingIterator};
use ironstone_sst::{TableIter, TableReadOptions};

/// Merges the tables of level 0 that their prefix filters do not rule out.
pub(crate) struct Level0Iter {
    level: Arc<LevelView>,
    /// Without prefixes: tables are chosen here.
    options: TableReadOptions,
    prefix_seek: Arc<PrefixSeek>,
    /// Of the tables that take part.
    merge: MergingIterator<TableIter>,
    /// Which ones those are, and for which way they were chosen.
    taking_part: Vec<usize>,
    direction: Direction,
    /// Iterators over other tables, for the next seek.
    idle: Vec<Option<TableIter>>,
}

impl Level0Iter {
    pub(crate) fn new(
        level: Arc<LevelView>,
        options: TableReadOptions,
        prefix_seek: Arc<PrefixSeek>,
        comparator: InternalKeyComparator,
    ) -> Self {
        let idle = level.tables.iter().map(|_| None).collect();
        Self {
            level,
            options: TableReadOptions { prefix_seek: None, ..options },
            prefix_seek,
            merge: MergingIterator::new(comparator, Vec::new()),
            taking_part: Vec::new(),
            direction: Direction::Forward,
            idle,
        }
    }

    /// Lets the tables take part that may have what a seek from `target` wants; with `None` all of them.
    fn choose(&mut self, target: Option<(InternalKey<'_>, Direction)>) -> Result<()> {
        self.direction = target.map_or(Direction::Forward, |(_, direction)| direction);
        let Self { level, options, prefix_seek, merge, taking_part, idle, .. } = self;
        let iters = merge.children_mut();
        for (at, iter) in taking_part.drain(..).zip(iters.drain(..)) {
            idle[at] = Some(iter);
        }
        for (at, slot) in level.tables.iter().enumerate() {
            slot.with_reader(|reader| {
                let (asked, is_out) = match target {
                    Some((target, direction)) => {
                        reader.is_ruled_out(&options.read, prefix_seek, target, direction)?
                    }
                    None => (false, false),
                };
                if is_out {
                    return Ok(());
                }
                let mut iter = idle[at].take().unwrap_or_else(|| reader.iter(options));
                iter.set_filter_used(asked);
                iters.push(iter);
                taking_part.push(at);
                Ok(())
            })?;
        }
        Ok(())
    }
    fn choose_all(&mut self) -> Result<()> {
        if self.is_whole() { Ok(()) } else { self.choose(None) }
    }
    fn is_whole(&self) -> bool {
        self.taking_part.len() == self.level.tables.len()
    }
}

impl InternalIterator for Level0Iter {
    #[inline]
    fn valid(&self) -> bool {
        self.merge.valid()
    }
    fn seek_to_first(&mut self) -> Result<bool> {
        self.choose_all()?;
        self.merge.seek_to_first()
    }
    fn seek_to_last(&mut self) -> Result<bool> {
        self.choose_all()?;
        self.merge.seek_to_last()
    }
    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool> {
        self.choose(Some((target, Direction::Forward)))?;
        self.merge.seek(target)
    }
    fn seek_for_prev(&mut self, target: InternalKey<'_>) -> Result<bool> {
        self.choose(Some((target, Direction::Backward)))?;
        self.merge.seek_for_prev(target)
    }
    #[inline]
    fn next(&mut self) -> Result<bool> {
        self.merge.next()
    }
    /// What rules a table out for the way forward says nothing about the way back.
    fn prev(&mut self) -> Result<bool> {
        if self.direction == Direction::Forward && !self.is_whole() {
            let here = self.merge.key().to_buf();
            self.choose(None)?;
            self.merge.seek(here.as_key())?;
        }
        self.merge.prev()
    }
    #[inline]
    fn key(&self) -> InternalKey<'_> {
        self.merge.key()
    }
    #[inline]
    fn value(&self) -> &[u8] {
        self.merge.value()
    }
    fn note_use(&mut self) {
        self.merge.note_use();
    }
}
