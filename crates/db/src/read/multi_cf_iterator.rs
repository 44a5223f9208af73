//! An iterator over the keys of several column families.

use crate::column_family::ColumnFamily;
use crate::db::Db;
use crate::read::db_iterator::DbIterator;
use crate::read::read_options::ReadOptions;
use ironstone_base::{Error, Result, UserComparator};
use std::cmp::Ordering;

/// Walks the keys of several column families in one order, as of one moment. A key that several of them have comes once,
/// with the value of each.
///
/// Moves answer as those of a [`DbIterator`]. (RocksDB: `NewCoalescingIterator` and `NewAttributeGroupIterator`.)
///
/// ```
/// # fn main() -> ironstone::Result<()> {
/// # use ironstone::{ColumnFamilyOptions, ReadOptions};
/// # let options = ironstone::Options::in_memory();
/// # let db = ironstone::Db::open(&options, "/db")?;
/// let names = db.create_column_family("names", &ColumnFamilyOptions::default())?;
/// let prices = db.create_column_family("prices", &ColumnFamilyOptions::default())?;
/// db.put_cf(&Default::default(), &names, "7", "nail")?;
/// db.put_cf(&Default::default(), &prices, "7", "3")?;
/// db.put_cf(&Default::default(), &prices, "8", "5")?;
/// let mut iter = db.iter_over_cfs(&ReadOptions::default(), &[&names, &prices])?;
/// assert!(iter.seek_to_first()?);
/// assert_eq!(iter.key(), Some(&b"7"[..]));
/// assert_eq!(iter.groups().collect::<Vec<_>>(), [(0, &b"nail"[..]), (1, &b"3"[..])]);
/// assert!(iter.next()?);
/// assert_eq!(iter.groups().collect::<Vec<_>>(), [(1, &b"5"[..])]);
/// assert!(!iter.next()?);
/// # Ok(())
/// # }
/// ```
pub struct MultiCfIterator {
    children: Vec<DbIterator>,
    comparator: UserComparator,
    /// The children that stand on an entry, nearest first; those at one key in the order of the column families.
    order: Vec<usize>,
    /// How many of them stand on the nearest key.
    here: usize,
    direction: Direction,
    failure: Option<Error>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

impl Db {
    /// An iterator over the keys of several column families, all as of one moment.
    ///
    /// # Errors
    /// `InvalidArgument` without a column family, and for column families that order keys differently; and what
    /// [`iter_cf`](Self::iter_cf) answers.
    pub fn iter_over_cfs(&self, options: &ReadOptions, cfs: &[&ColumnFamily]) -> Result<MultiCfIterator> {
        let Some(first) = cfs.first() else {
            return Err(Error::invalid_argument("iter_over_cfs: no column family"));
        };
        let comparator = first.0.comparator.user.clone();
        if let Some(other) = cfs.iter().find(|cf| cf.0.comparator.user.name() != comparator.name()) {
            return Err(Error::invalid_argument(format!(
                "iter_over_cfs: column family {:?} is ordered by {}, {:?} by {}",
                first.name(),
                comparator.name(),
                other.name(),
                other.0.comparator.user.name()
            )));
        }
        let children = self.iters_cf(options, cfs)?;
        let order = Vec::with_capacity(children.len());
        Ok(MultiCfIterator {
            children,
            comparator,
            order,
            here: 0,
            direction: Direction::Forward,
            failure: None,
        })
    }
}

impl MultiCfIterator {
    /// Whether the iterator stands on an entry.
    pub fn valid(&self) -> bool {
        self.here > 0
    }
    /// The key stood on; `None` when the iterator stands on nothing.
    pub fn key(&self) -> Option<&[u8]> {
        self.order.first().filter(|_| self.valid()).and_then(|&child| self.children[child].key())
    }
    /// The value of the key stood on in the last of the column families that have it, in the order in which they were named;
    /// `None` when the iterator stands on nothing.
    pub fn value(&self) -> Option<&[u8]> {
        self.groups().last().map(|(_, value)| value)
    }
    /// The values of the key stood on: the place of the column family among those that were named, and its value. Nothing
    /// when the iterator stands on nothing.
    pub fn groups(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let here = self.order[..self.here].iter();
        here.filter_map(|&child| Some((child, self.children[child].value()?)))
    }
    /// The failure of the last move, if it failed.
    pub fn status(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Moves to the first key.
    pub fn seek_to_first(&mut self) -> Result<bool> {
        self.place(Direction::Forward, DbIterator::seek_to_first)
    }
    /// Moves to the last key.
    pub fn seek_to_last(&mut self) -> Result<bool> {
        self.place(Direction::Backward, DbIterator::seek_to_last)
    }
    /// Moves to the first key at or after `target`.
    pub fn seek(&mut self, target: impl AsRef<[u8]>) -> Result<bool> {
        self.place(Direction::Forward, |child| child.seek(target.as_ref()))
    }
    /// Moves to the last key at or before `target`.
    pub fn seek_for_prev(&mut self, target: impl AsRef<[u8]>) -> Result<bool> {
        self.place(Direction::Backward, |child| child.seek_for_prev(target.as_ref()))
    }
    /// Moves to the next key; stays at the end when it is there.
    #[allow(clippy::should_implement_trait)] // Fallible, as that of `DbIterator`.
    pub fn next(&mut self) -> Result<bool> {
        self.step(Direction::Forward)
    }
    /// Moves to the key before; stays at the end when it is there.
    pub fn prev(&mut self) -> Result<bool> {
        self.step(Direction::Backward)
    }

    /// Moves every child.
    fn place(
        &mut self,
        direction: Direction,
        mut to: impl FnMut(&mut DbIterator) -> Result<bool>,
    ) -> Result<bool> {
        self.direction = direction;
        self.order.clear();
        self.here = 0;
        self.failure = None;
        for child in 0..self.children.len() {
            let stands = to(&mut self.children[child]);
            self.enter(child, stands)?;
        }
        Ok(self.settle())
    }

    fn step(&mut self, direction: Direction) -> Result<bool> {
        if self.direction != direction
            && let Some(key) = self.key().map(<[u8]>::to_vec)
        {
            // The others stand on the far side of the key.
            match direction {
                Direction::Forward => self.seek(key)?,
                Direction::Backward => self.seek_for_prev(key)?,
            };
        }
        let here: Vec<usize> = self.order.drain(..std::mem::take(&mut self.here)).collect();
        for child in here {
            let stands = match direction {
                Direction::Forward => self.children[child].next(),
                Direction::Backward => self.children[child].prev(),
            };
            self.enter(child, stands)?;
        }
        Ok(self.settle())
    }

    /// Takes a child that moved into the order, if it stands on an entry.
    fn enter(&mut self, child: usize, stands: Result<bool>) -> Result<()> {
        match stands {
            Ok(true) => {
                let at = self.order.partition_point(|&other| self.is_before(other, child));
                self.order.insert(at, child);
            }
            Ok(false) => {}
            Err(error) => {
                self.order.clear();
                self.failure = Some(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether `a` comes before `b`, on the way that the iterator goes.
    fn is_before(&self, a: usize, b: usize) -> bool {
        let order = match self.direction {
            Direction::Forward => self.compare(a, b),
            Direction::Backward => self.compare(b, a),
        };
        order.then(a.cmp(&b)).is_lt()
    }
    fn compare(&self, a: usize, b: usize) -> Ordering {
        let key = |child: usize| self.children[child].key().expect("it stands on an entry");
        self.comparator.compare(key(a), key(b))
    }

    /// Counts who stands on the nearest key.
    fn settle(&mut self) -> bool {
        let at_first = |&other: &&usize| self.compare(self.order[0], *other).is_eq();
        self.here = self.order.iter().take_while(at_first).count();
        self.valid()
    }
}
