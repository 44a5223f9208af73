//! The one place where synchronisation types come from.
//!
//! Crates use these names and never `std::sync::{Mutex, RwLock, Condvar}` or `std::thread::spawn`. With the
//! feature `simulation` (of the simulator alone) a deterministic scheduler stands behind them: of all threads
//! one runs at a time, and a seed decides which one goes on wherever they meet. With the feature `loom` (of the
//! models alone) loom stands there, which tries all schedules and all that weak memory may show.

#[cfg(feature = "loom")]
mod modelled;
#[cfg(not(any(feature = "simulation", feature = "loom")))]
mod native;
pub mod plain;
#[cfg(all(feature = "simulation", not(feature = "loom")))]
mod simulated;
#[cfg(not(feature = "loom"))]
mod swap;

/// Keeps what threads write apart from what others read: alone on its lines of the processor's cache.
pub use crossbeam_utils::CachePadded;
#[cfg(feature = "loom")]
pub use modelled::*;
#[cfg(not(any(feature = "simulation", feature = "loom")))]
pub use native::*;
#[cfg(all(feature = "simulation", not(feature = "loom")))]
pub use simulated::*;
pub use std::sync::{Arc, Weak};
#[cfg(not(feature = "loom"))]
pub use swap::{Swap, SwapGuard};

/// Threads.
pub mod thread {
    #[cfg(feature = "loom")]
    pub use super::modelled::threads::*;
    #[cfg(not(any(feature = "simulation", feature = "loom")))]
    pub use super::native::threads::*;
    #[cfg(all(feature = "simulation", not(feature = "loom")))]
    pub use super::simulated::threads::*;

    /// How many processors the process may use, 1 if the system does not say. Asked once: the answer is in several files
    /// of control groups, and a database needs it whenever it is opened.
    pub fn processors() -> usize {
        static PROCESSORS: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
        *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
    }

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
