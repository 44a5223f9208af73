//! Makes writes visible in the order of their sequence numbers.

use ironstone_base::SequenceNumber;
use ironstone_base::sync::atomic::{AtomicU64, Ordering};
use ironstone_base::sync::{CachePadded, Condvar, Mutex, MutexGuard};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The end of the commit pipeline. Every range of sequence numbers that was handed out is completed
/// here exactly once, whether its write succeeded or not; the visible sequence number moves over
/// completed ranges only, so no reader sees a write before one that was ordered ahead of it.
pub(crate) struct Publisher {
    /// What readers may see. Stored (Release) after the writes up to it are in the memtables;
    /// readers load it (Acquire) before they look. Apart from the lock, so that a read costs the writer one line and not two.
    visible: CachePadded<AtomicU64>,
    queue: Mutex<Queue>,
    moved: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Completed ranges that wait for one ahead of them: (first, last).
    completed: BinaryHeap<Reverse<(u64, u64)>>,
    waiters: usize,
}

impl Publisher {
    pub(crate) fn new(visible: SequenceNumber) -> Self {
        Self { visible: AtomicU64::new(visible.0).into(), queue: Mutex::default(), moved: Condvar::new() }
    }

    /// The newest sequence number that a reader may see.
    #[inline]
    pub(crate) fn visible(&self) -> SequenceNumber {
        SequenceNumber(self.visible.load(Ordering::Acquire))
    }

    /// Completes `first..=last` and waits until it is visible.
    pub(crate) fn complete(&self, first: SequenceNumber, last: SequenceNumber) {
        let mut queue = self.queue.lock();
        if !self.note(&mut queue, first, last) {
            self.wait(&mut queue, last);
        }
    }

    /// Completes `first..=last`, which is visible as soon as everything before it is.
    pub(crate) fn complete_later(&self, first: SequenceNumber, last: SequenceNumber) {
        self.note(&mut self.queue.lock(), first, last);
    }

    /// Whether it is visible at once.
    fn note(&self, queue: &mut Queue, first: SequenceNumber, last: SequenceNumber) -> bool {
        let mut visible = self.visible.load(Ordering::Relaxed); // Only changed under the lock.
        if first.0 != visible + 1 {
            queue.completed.push(Reverse((first.0, last.0)));
            return false;
        }
        visible = last.0;
        while let Some(&Reverse((next, end))) = queue.completed.peek() {
            if next != visible + 1 {
                break;
            }
            visible = end;
            queue.completed.pop();
        }
        self.visible.store(visible, Ordering::Release); // I7: after the memtables hold the writes.
        if queue.waiters > 0 {
            self.moved.notify_all();
        }
        true
    }

    fn wait(&self, queue: &mut MutexGuard<'_, Queue>, sequence: SequenceNumber) {
        queue.waiters += 1;
        while self.visible.load(Ordering::Relaxed) < sequence.0 {
            self.moved.wait(queue);
        }
        queue.waiters -= 1;
    }

    /// Sets what readers may see, where nobody writes.
    pub(crate) fn follow(&self, sequence: SequenceNumber) {
        let _queue = self.queue.lock();
        self.visible.store(sequence.0, Ordering::Release);
    }

    /// Waits until everything up to `sequence` is visible, that is: completed by its writers.
    pub(crate) fn wait_for(&self, sequence: SequenceNumber) {
        if self.visible() >= sequence {
            return;
        }
        self.wait(&mut self.queue.lock(), sequence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironstone_base::sync::{Arc, thread};

    #[test]
    fn ranges_become_visible_in_order_whoever_finishes_first() {
        let publisher = Arc::new(Publisher::new(SequenceNumber(10)));
        let late = {
            let publisher = Arc::clone(&publisher);
            thread::spawn_named("late", move || publisher.complete(SequenceNumber(12), SequenceNumber(15)))
        };
        assert_eq!(publisher.visible(), SequenceNumber(10));
        publisher.complete(SequenceNumber(11), SequenceNumber(11));
        late.join().unwrap();
        assert_eq!(publisher.visible(), SequenceNumber(15));
    }
}
