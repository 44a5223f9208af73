//! The same types over [`shuttle`]: threads are coroutines on one thread of the system, and its scheduler
//! chooses who goes on.
//!
//! Locks, waits and threads are shuttle's. Atomics are those of the standard library in the same place and
//! size, since memtables lay them out in raw memory; at some of their operations another thread may go on.
//! So memory is sequentially consistent here: weaker orders are for loom, Miri and ThreadSanitizer to check.
//!
//! A wait with a timeout ends by it after a few turns of the others: time is up whenever the scheduler says so.

pub mod atomic;
mod lock;
mod once;
mod point;
mod rwlock;
pub(super) mod threads;

pub use lock::{Condvar, Mutex, MutexGuard, WaitTimeoutResult};
pub use once::OnceLock;
pub use point::{enter, leave, point, steps};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
