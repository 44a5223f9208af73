//! The types of `parking_lot` and the standard library.

pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use std::sync::OnceLock;

/// Where the simulator may let another thread go on, for atomics that it does not know.
#[inline(always)]
pub fn point() {}

/// Atomic types.
pub mod atomic {
    pub use std::sync::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

pub(super) mod threads {
    pub use std::hint::spin_loop;
    pub use std::thread::{Builder, JoinHandle, ThreadId, current, scope, yield_now};
}
