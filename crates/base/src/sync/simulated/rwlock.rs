//! A lock for many readers or one writer with `parking_lot`'s interface.

use std::sync::PoisonError;

pub use shuttle::sync::{RwLockReadGuard, RwLockWriteGuard};

/// A lock for many readers or one writer. A panic of its holder lets it go, as `parking_lot`'s.
#[derive(Default, Debug)]
pub struct RwLock<T: ?Sized>(shuttle::sync::RwLock<T>);

#[allow(missing_docs)] // As in parking_lot.
impl<T> RwLock<T> {
    pub const fn new(value: T) -> Self {
        Self(shuttle::sync::RwLock::new(value))
    }
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

#[allow(missing_docs)] // As in parking_lot.
impl<T: ?Sized> RwLock<T> {
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}
