//! A shared value that is replaced whole.

use super::{Arc, point};
use arc_swap::ArcSwap;

/// An [`Arc`] that many threads load without a lock and one replaces. What was loaded stays as it was.
#[derive(Debug)]
pub struct Swap<T>(ArcSwap<T>);

/// What [`Swap::load`] lends: cheaper than a counted reference, for a moment.
pub type SwapGuard<T> = arc_swap::Guard<Arc<T>>;

impl<T> Swap<T> {
    /// Starts with `value`.
    pub fn new(value: T) -> Self {
        Self(ArcSwap::from_pointee(value))
    }
    /// The newest value, or at least one that nobody has seen replaced.
    #[inline]
    pub fn load(&self) -> SwapGuard<T> {
        point();
        self.0.load()
    }
    /// The same, to be kept.
    #[inline]
    pub fn load_full(&self) -> Arc<T> {
        point();
        self.0.load_full()
    }
    /// Replaces it. What was written before is seen by whoever loads the new value.
    pub fn store(&self, value: Arc<T>) {
        self.0.store(value);
    }
}
