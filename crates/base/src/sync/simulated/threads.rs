//! Threads that the scheduler of the simulation runs.

pub use shuttle::thread::{JoinHandle, Scope, ScopedJoinHandle, ThreadId, current, scope, yield_now};
pub use std::hint::spin_loop;
use std::io;

/// Starts a thread, as that of the standard library.
#[derive(Default, Debug)]
pub struct Builder {
    name: Option<String>,
}

#[allow(missing_docs)] // As in the standard library.
impl Builder {
    pub fn new() -> Self {
        Self::default()
    }
    #[must_use]
    pub fn name(mut self, name: String) -> Self {
        self.name = Some(name);
        self
    }
    pub fn spawn<T, F>(self, body: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let builder = shuttle::thread::Builder::new();
        let builder = if let Some(name) = self.name { builder.name(name) } else { builder };
        builder.spawn(body)
    }
    /// Always an error: shuttle wakes the thread of a scope when the last scoped thread ends, even where it waits for
    /// something else. Callers go on alone.
    pub fn spawn_scoped<'scope, 'env, T, F>(
        self,
        _scope: &'scope Scope<'scope, 'env>,
        _body: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        Err(io::Error::other("no scoped threads in a simulation"))
    }
}
