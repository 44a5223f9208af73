//! Threads of a model.

pub use loom::hint::spin_loop;
pub use loom::thread::{Builder, JoinHandle, ThreadId, current, yield_now};
