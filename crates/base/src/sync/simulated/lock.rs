//! A mutex and a condition variable with `parking_lot`'s interface.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often others may go on before a wait is over by its timeout.
const TURNS: usize = 20;

/// A mutex. A panic of its holder lets it go, as `parking_lot`'s.
#[derive(Default, Debug)]
pub struct Mutex<T: ?Sized>(shuttle::sync::Mutex<T>);

/// A mutex that is held.
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a shuttle::sync::Mutex<T>,
    /// `None` only inside of the calls that let go for a while.
    held: Option<shuttle::sync::MutexGuard<'a, T>>,
}

#[allow(missing_docs)] // As in parking_lot.
impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

#[allow(missing_docs)] // As in parking_lot.
impl<T: ?Sized> Mutex<T> {
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

fn lock<T: ?Sized>(mutex: &shuttle::sync::Mutex<T>) -> shuttle::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: ?Sized> MutexGuard<'_, T> {
    /// Runs `body` while the mutex is not held.
    pub fn unlocked<R>(guard: &mut Self, body: impl FnOnce() -> R) -> R {
        drop(guard.held.take());
        let result = body();
        guard.held = Some(lock(guard.mutex));
        result
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.held.as_ref().expect("held")
    }
}
impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("held")
    }
}
impl<T: ?Sized + std::fmt::Debug> std::fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

/// A condition variable.
#[derive(Default, Debug)]
pub struct Condvar {
    inner: shuttle::sync::Condvar,
    /// Notifications so far, for waits that may time out.
    notified: AtomicU64,
}

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
    pub const fn new() -> Self {
        Self { inner: shuttle::sync::Condvar::new(), notified: AtomicU64::new(0) }
    }
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.held.take().expect("held");
        guard.held = Some(self.inner.wait(held).unwrap_or_else(PoisonError::into_inner));
    }
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> WaitTimeoutResult {
        let before = self.notified.load(Ordering::SeqCst);
        MutexGuard::unlocked(guard, || {
            for _ in 0..TURNS {
                shuttle::thread::yield_now();
                if self.notified.load(Ordering::SeqCst) != before {
                    return WaitTimeoutResult(false);
                }
            }
            WaitTimeoutResult(true)
        })
    }
    pub fn notify_one(&self) {
        self.notified.fetch_add(1, Ordering::SeqCst);
        self.inner.notify_one();
    }
    pub fn notify_all(&self) {
        self.notified.fetch_add(1, Ordering::SeqCst);
        self.inner.notify_all();
    }
}
