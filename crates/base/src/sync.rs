//! The one place where synchronisation types come from.
//!
//! Crates use these names and never `std::sync::{Mutex, RwLock, Condvar}` or `std::thread::spawn`. With the
//! feature `simulation` (of the simulator alone) a deterministic scheduler stands behind them: of all threads
//! one runs at a time, and a seed decides which one goes on wherever they meet.

#[cfg(not(feature = "simulation"))]
mod native;
#[cfg(feature = "simulation")]
mod simulated;

#[cfg(not(feature = "simulation"))]
pub use native::*;
#[cfg(feature = "simulation")]
pub use simulated::*;
pub use std::sync::{Arc, Weak};

/// Threads.
pub mod thread {
    #[cfg(not(feature = "simulation"))]
    pub use super::native::threads::*;
    #[cfg(feature = "simulation")]
    pub use super::simulated::threads::*;

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
