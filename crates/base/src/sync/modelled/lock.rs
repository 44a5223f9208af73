//! Locks with `parking_lot`'s interface.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Duration;

pub use loom::sync::{RwLockReadGuard, RwLockWriteGuard};

/// A mutex. A panic of its holder lets it go, as `parking_lot`'s.
#[derive(Default, Debug)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

/// A mutex that is held.
pub struct MutexGuard<'a, T> {
    mutex: &'a loom::sync::Mutex<T>,
    /// `None` only inside of the calls that let go for a while.
    held: Option<loom::sync::MutexGuard<'a, T>>,
}

#[allow(missing_docs)] // As in parking_lot.
impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: &self.0, held: Some(lock(&self.0)) }
    }
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = match self.0.try_lock() {
            Ok(held) => held,
            Err(std::sync::TryLockError::Poisoned(error)) => error.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { mutex: &self.0, held: Some(held) })
    }
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock<T>(mutex: &loom::sync::Mutex<T>) -> loom::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> MutexGuard<'_, T> {
    /// Runs `body` while the mutex is not held.
    pub fn unlocked<R>(guard: &mut Self, body: impl FnOnce() -> R) -> R {
        drop(guard.held.take());
        let result = body();
        guard.held = Some(lock(guard.mutex));
        result
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.held.as_ref().expect("held")
    }
}
impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("held")
    }
}

/// A condition variable.
#[derive(Default, Debug)]
pub struct Condvar(loom::sync::Condvar);

/// Whether a wait ended by its timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether it did.
    pub fn timed_out(self) -> bool {
        self.0
    }
}

#[allow(missing_docs)] // As in parking_lot.
impl Condvar {
    pub fn new() -> Self {
        Self(loom::sync::Condvar::new())
    }
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.held.take().expect("held");
        guard.held = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }
    /// Time does not pass in a model: nobody may count on a timeout.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> WaitTimeoutResult {
        self.wait(guard);
        WaitTimeoutResult(false)
    }
    pub fn notify_one(&self) {
        self.0.notify_one();
    }
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A lock for many readers or one writer. A panic of its holder lets it go, as `parking_lot`'s.
#[derive(Default, Debug)]
pub struct RwLock<T>(loom::sync::RwLock<T>);

#[allow(missing_docs)] // As in parking_lot.
impl<T> RwLock<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::RwLock::new(value))
    }
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
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
