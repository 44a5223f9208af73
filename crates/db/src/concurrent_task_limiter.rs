//! One bound on how many compactions run at once, over column families and databases.
//!
//! ```
//! use ironstone::{ConcurrentTaskLimiter, Db, Options};
//! use std::sync::Arc;
//!
//! # fn main() -> ironstone::Result<()> {
//! let limiter = ConcurrentTaskLimiter::new("archives", Some(1));
//! let mut options = Options::in_memory();
//! options.cf.compaction_thread_limiter = Some(Arc::clone(&limiter));
//! let db = Db::open(&options, "/db")?;
//! db.put(b"iron", b"Fe")?;
//! limiter.set_max_outstanding_tasks(Some(4)); // At night.
//! assert_eq!(limiter.outstanding_tasks(), 0);
//! # db.close()
//! # }
//! ```

use crate::thread_pool::{Duty, Seat};
use ironstone_base::sync::{Arc, Mutex};
use std::fmt;

/// Bounds how many compactions of the column families that have it run at once, in whichever databases these are
/// ([`compaction_thread_limiter`](crate::ColumnFamilyOptions::compaction_thread_limiter)). Those that callers wait for are counted, and
/// are not held back.
pub struct ConcurrentTaskLimiter {
    name: String,
    tasks: Mutex<Tasks>,
}

#[derive(Default)]
struct Tasks {
    most: Option<usize>,
    running: usize,
    /// Who found no room.
    waiting: Vec<Seat>,
}

impl Tasks {
    fn has_room(&self) -> bool {
        self.most.is_none_or(|most| self.running < most)
    }
    /// Those that wait, if there is room: they are to be told.
    fn take_waiting(&mut self) -> Vec<Seat> {
        if self.has_room() { std::mem::take(&mut self.waiting) } else { Vec::new() }
    }
}

impl ConcurrentTaskLimiter {
    /// Lets so many run at once; `None`: as many as there are threads, `Some(0)`: none.
    pub fn new(name: impl Into<String>, max_outstanding_tasks: Option<usize>) -> Arc<Self> {
        let tasks = Tasks { most: max_outstanding_tasks, ..Tasks::default() };
        Arc::new(Self { name: name.into(), tasks: Mutex::new(tasks) })
    }
    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// How many may run at once.
    pub fn max_outstanding_tasks(&self) -> Option<usize> {
        self.tasks.lock().most
    }
    /// Changes that. What runs goes on.
    pub fn set_max_outstanding_tasks(&self, limit: Option<usize>) {
        let mut tasks = self.tasks.lock();
        tasks.most = limit;
        let wake = tasks.take_waiting();
        drop(tasks);
        poke(&wake);
    }
    /// How many run.
    pub fn outstanding_tasks(&self) -> usize {
        self.tasks.lock().running
    }

    /// Room for one more. If there is none, `seat` is poked once there may be.
    pub(crate) fn take(self: &Arc<Self>, seat: Option<&Seat>) -> Option<TaskToken> {
        let mut tasks = self.tasks.lock();
        if tasks.has_room() {
            tasks.running += 1;
            return Some(TaskToken(Arc::clone(self)));
        }
        if let Some(seat) = seat.filter(|seat| !tasks.waiting.contains(seat)) {
            tasks.waiting.push(seat.clone());
        }
        None
    }
    /// Counts one more, whether there is room or not.
    pub(crate) fn take_anyway(self: &Arc<Self>) -> TaskToken {
        self.tasks.lock().running += 1;
        TaskToken(Arc::clone(self))
    }
}

impl fmt::Debug for ConcurrentTaskLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tasks = self.tasks.lock();
        write!(f, "ConcurrentTaskLimiter({:?}, {} of {:?})", self.name, tasks.running, tasks.most)
    }
}

fn poke(seats: &[Seat]) {
    seats.iter().for_each(|seat| seat.poke(&[Duty::Compact, Duty::Bottom]));
}

/// The room of one task, for as long as it lives.
pub(crate) struct TaskToken(Arc<ConcurrentTaskLimiter>);

impl Drop for TaskToken {
    fn drop(&mut self) {
        let mut tasks = self.0.tasks.lock();
        tasks.running -= 1;
        let wake = tasks.take_waiting();
        drop(tasks);
        poke(&wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_taken_given_back_and_changed() {
        let limiter = ConcurrentTaskLimiter::new("two", Some(2));
        let (first, second) = (limiter.take(None), limiter.take(None));
        assert!(first.is_some() && second.is_some() && limiter.take(None).is_none());
        let third = limiter.take_anyway();
        assert_eq!(limiter.outstanding_tasks(), 3);
        drop(first);
        assert!(limiter.take(None).is_none(), "two still run");
        drop(third);
        assert!(limiter.take(None).is_some());
        limiter.set_max_outstanding_tasks(Some(0));
        assert!(limiter.take(None).is_none());
        limiter.set_max_outstanding_tasks(None);
        let many: Vec<_> = (0..100).map(|_| limiter.take(None).unwrap()).collect();
        assert_eq!(format!("{limiter:?}"), "ConcurrentTaskLimiter(\"two\", 101 of None)");
        drop((many, second));
        assert_eq!(limiter.outstanding_tasks(), 0);
    }
}
