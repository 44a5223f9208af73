//! The one place where synchronisation types come from.
//!
//! Crates use these names and never `std::sync::{Mutex, RwLock, Condvar}` or `std::thread::spawn`,
//! so that a deterministic scheduler can take their place under `--cfg shuttle`.

pub use parking_lot::{
    Condvar, MappedRwLockReadGuard, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
pub use std::sync::{Arc, OnceLock, Weak};

/// Atomic types.
pub mod atomic {
    pub use std::sync::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

/// Threads.
pub mod thread {
    pub use std::thread::{Builder, JoinHandle, Thread, current, park, scope, yield_now};

    /// Starts a thread with a name that shows up in debuggers and profiles.
    ///
    /// # Panics
    /// When the operating system refuses a thread; callers that can go on without one use [`Builder`].
    #[allow(clippy::disallowed_methods)]
    pub fn spawn_named<T, F>(name: &str, body: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        Builder::new().name(name.to_owned()).spawn(body).expect("the system starts a thread")
    }
}
