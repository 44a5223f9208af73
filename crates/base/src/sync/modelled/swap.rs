//! A shared value that is replaced whole: in place of `arc_swap`, a number that loom knows and the values behind it.

use super::atomic::{AtomicUsize, Ordering};
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// An [`Arc`] that many threads load without a lock and one replaces.
///
/// A load may see an older value for as long as somebody holds that one, which is more than `arc_swap` allows; it
/// acquires, and a store releases, which is the least that `arc_swap` promises.
#[derive(Debug)]
pub struct Swap<T> {
    /// Which of `values` is the newest.
    newest: AtomicUsize,
    values: Mutex<Values<T>>,
}

#[derive(Debug)]
struct Values<T> {
    all: Vec<Weak<T>>,
    newest: Arc<T>,
}

/// What [`Swap::load`] lends.
#[derive(Debug)]
pub struct SwapGuard<T>(Arc<T>);

impl<T> Deref for SwapGuard<T> {
    type Target = Arc<T>;
    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

#[allow(missing_docs)] // As over `arc_swap`.
impl<T> Swap<T> {
    pub fn new(value: T) -> Self {
        let newest = Arc::new(value);
        let values = Values { all: vec![Arc::downgrade(&newest)], newest };
        Self { newest: AtomicUsize::new(0), values: Mutex::new(values) }
    }
    pub fn load(&self) -> SwapGuard<T> {
        SwapGuard(self.load_full())
    }
    pub fn load_full(&self) -> Arc<T> {
        let seen = self.value(self.newest.load(Ordering::Acquire));
        // A change sees the newest number, and acquires that one.
        seen.or_else(|| self.value(self.newest.fetch_add(0, Ordering::AcqRel)))
            .expect("the newest value is there")
    }
    fn value(&self, number: usize) -> Option<Arc<T>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner).all[number].upgrade()
    }
    pub fn store(&self, value: Arc<T>) {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        values.all.push(Arc::downgrade(&value));
        let number = values.all.len() - 1;
        let old = std::mem::replace(&mut values.newest, value);
        drop(values); // The next line may let another thread go on.
        self.newest.store(number, Ordering::Release);
        drop(old);
    }
}
