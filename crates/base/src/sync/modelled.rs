//! The same types over [`loom`], which tries every schedule of a few threads and every value that a load may see
//! in weak memory. For the models in `loom/` alone.
//!
//! Locks and threads are loom's. Atomics have the place and the size of the standard library's, since memtables
//! and caches lay them out in raw memory; behind each one that a model touches stands one of loom's. That has the
//! value which was in memory when it was first touched, and every thread may see it: what loom judges are the
//! changes after that. [`plain`](super::plain) lets it judge reads and writes that are not atomic as well.
//!
//! What was touched must not move, and its memory not be used for something else in the same run: what stands behind
//! an address would stay there. Outside of [`model`] the atomics are those of the standard library.

pub mod atomic;
mod lock;
mod registry;
mod swap;
pub(super) mod threads;

pub use lock::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult};
pub use registry::model;
pub use std::sync::OnceLock;
pub use swap::{Swap, SwapGuard};

/// Nothing: loom knows the atomics of `base` alone.
pub fn point() {}

pub(super) use registry::{reads, wrote};
