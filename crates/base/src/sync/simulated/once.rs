//! A cell that is written once.

use super::Mutex;

/// A cell that is written once. Threads that come while it is being written wait where the scheduler sees it.
#[derive(Debug)]
pub struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    writing: Mutex<()>,
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[allow(missing_docs)] // As in the standard library.
impl<T> OnceLock<T> {
    pub const fn new() -> Self {
        Self { value: std::sync::OnceLock::new(), writing: Mutex::new(()) }
    }
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut()
    }
    pub fn set(&self, value: T) -> Result<(), T> {
        let _writing = self.writing.lock();
        self.value.set(value)
    }
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if self.value.get().is_none() {
            let _writing = self.writing.lock();
            if self.value.get().is_none() {
                let _ = self.value.set(make());
            }
        }
        self.value.get().expect("it was set")
    }
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }
}
