//! The internal iterator: what memtables, tables, levels and merges of them have in common.
#![forbid(unsafe_code)]

mod empty;
mod merging;
mod vec;

pub use empty::EmptyIterator;
pub use merging::{Direction, MergingIterator, merge};
pub use vec::VecIterator;

use ironstone_base::{InternalKey, Result};

/// Walks entries in internal-key order (user key ascending, newest first).
///
/// Moves answer whether the iterator now stands on an entry. An error is returned by the move that
/// met it and leaves the iterator standing nowhere, so it cannot be taken for the end.
pub trait InternalIterator: Send {
    /// Whether the iterator stands on an entry.
    fn valid(&self) -> bool;
    /// Moves to the first entry.
    fn seek_to_first(&mut self) -> Result<bool>;
    /// Moves to the last entry.
    fn seek_to_last(&mut self) -> Result<bool>;
    /// Moves to the first entry at or after `target`.
    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool>;
    /// Moves to the last entry at or before `target`.
    fn seek_for_prev(&mut self, target: InternalKey<'_>) -> Result<bool>;
    /// Moves to the next entry. Call only when [`valid`](Self::valid).
    fn next(&mut self) -> Result<bool>;
    /// Moves to the previous entry. Call only when [`valid`](Self::valid).
    fn prev(&mut self) -> Result<bool>;
    /// The key stood on. Call only when [`valid`](Self::valid).
    fn key(&self) -> InternalKey<'_>;
    /// The value stood on. Call only when [`valid`](Self::valid).
    fn value(&self) -> &[u8];
    /// Of a merge that walks forward: the children from number `child` on have nothing to show before `target`.
    /// Moves those that stand before it there; others may do nothing. Call only when [`valid`](Self::valid).
    fn skip_older_children(&mut self, _child: usize, _target: InternalKey<'_>) -> Result<bool> {
        Ok(true)
    }
    /// The value stood on is of use to somebody: for those that count what reading it was good for.
    fn note_use(&mut self) {}
}

/// The methods of [`InternalIterator`] that an iterator around another, its field named, leaves to that one: everything but
/// `valid` and the seeks. A method with a default in the trait is not forgotten by those who use this.
#[macro_export]
macro_rules! leave_steps_to_iterator_below {
    ($field:tt) => {
        #[inline]
        fn next(&mut self) -> ::ironstone_base::Result<bool> {
            self.$field.next()
        }
        #[inline]
        fn prev(&mut self) -> ::ironstone_base::Result<bool> {
            self.$field.prev()
        }
        #[inline]
        fn key(&self) -> ::ironstone_base::InternalKey<'_> {
            self.$field.key()
        }
        #[inline]
        fn value(&self) -> &[u8] {
            self.$field.value()
        }
        fn skip_older_children(
            &mut self,
            child: usize,
            target: ::ironstone_base::InternalKey<'_>,
        ) -> ::ironstone_base::Result<bool> {
            self.$field.skip_older_children(child, target)
        }
        fn note_use(&mut self) {
            self.$field.note_use();
        }
    };
}

/// An iterator of any kind.
pub type BoxedIterator = Box<dyn InternalIterator>;

impl<I: InternalIterator + ?Sized> InternalIterator for Box<I> {
    #[inline]
    fn valid(&self) -> bool {
        (**self).valid()
    }
    fn seek_to_first(&mut self) -> Result<bool> {
        (**self).seek_to_first()
    }
    fn seek_to_last(&mut self) -> Result<bool> {
        (**self).seek_to_last()
    }
    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool> {
        (**self).seek(target)
    }
    fn seek_for_prev(&mut self, target: InternalKey<'_>) -> Result<bool> {
        (**self).seek_for_prev(target)
    }
    #[inline]
    fn next(&mut self) -> Result<bool> {
        (**self).next()
    }
    #[inline]
    fn prev(&mut self) -> Result<bool> {
        (**self).prev()
    }
    #[inline]
    fn key(&self) -> InternalKey<'_> {
        (**self).key()
    }
    #[inline]
    fn value(&self) -> &[u8] {
        (**self).value()
    }
    fn skip_older_children(&mut self, child: usize, target: InternalKey<'_>) -> Result<bool> {
        (**self).skip_older_children(child, target)
    }
    fn note_use(&mut self) {
        (**self).note_use();
    }
}
