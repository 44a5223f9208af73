//! Which of loom's atomics stands behind which address.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// More than any model touches. They are made before its threads, so that all of these may use them.
const CELLS: usize = 256;

/// What stands behind one atomic: it has `base` when the cell has 0.
#[derive(Clone)]
pub(super) struct Cell {
    pub atomic: Rc<AtomicU64>,
    pub base: u64,
    turn: Rc<AtomicU64>,
}

impl Cell {
    /// Call it before each access. To find the schedules that differ, loom 0.7 compares an access with the last one
    /// alone, and a load with no other load: where a thread loads and then stores, it does not see that the store
    /// could have come before another thread's load. Changes of the same atomic it never misses; this one, relaxed
    /// and of nothing, orders nothing.
    fn take_turn(&self) {
        self.turn.fetch_add(0, Ordering::Relaxed);
    }
}

/// The state of one run of a model. All of its threads run on one thread of the system.
struct Registry {
    cells: HashMap<usize, Cell>,
    free: Vec<Rc<AtomicU64>>,
    /// By address: when what lies there was written.
    plain: HashMap<usize, Rc<UnsafeCell<()>>>,
}

thread_local! {
    static REGISTRY: RefCell<Option<Registry>> = const { RefCell::new(None) };
}

/// Runs `body`, one schedule of a model; call it inside of loom.
pub fn model(body: impl FnOnce()) {
    let free = (0..CELLS).map(|_| Rc::new(AtomicU64::new(0))).collect();
    let registry = Registry { cells: HashMap::new(), free, plain: HashMap::new() };
    REGISTRY.set(Some(registry)); // A run that failed may have left its own.
    body();
    drop(REGISTRY.take());
}

/// The cell behind `address`, where `value` lies; `None` outside of a model.
pub(super) fn cell(address: usize, value: u64) -> Option<Cell> {
    REGISTRY
        .with_borrow_mut(|registry| {
            let Registry { cells, free, .. } = registry.as_mut()?;
            let mut take = || free.pop().expect("the model touches too many atomics");
            let make = || Cell { atomic: take(), base: value, turn: take() };
            Some(cells.entry(address).or_insert_with(make).clone())
        })
        .inspect(Cell::take_turn)
}

/// What is at `address` goes, or is changed by its only owner.
pub(super) fn forget(address: usize) {
    // After the end of the thread nothing is registered.
    let _ = REGISTRY.try_with(|registry| {
        if let Ok(mut registry) = registry.try_borrow_mut()
            && let Some(registry) = registry.as_mut()
        {
            registry.cells.remove(&address);
        }
    });
}

/// See [`plain`](crate::sync::plain).
pub(in crate::sync) fn wrote(address: usize) {
    let written = REGISTRY.with_borrow_mut(|registry| {
        let make = || Rc::new(UnsafeCell::new(()));
        Some(registry.as_mut()?.plain.entry(address).or_insert_with(make).clone())
    });
    if let Some(written) = written {
        written.with_mut(|_| ()); // Loom ends the run if somebody may be reading.
    }
}

/// See [`plain`](crate::sync::plain).
pub(in crate::sync) fn reads(address: usize) {
    let written = REGISTRY.with_borrow(|registry| registry.as_ref()?.plain.get(&address).cloned());
    if let Some(written) = written {
        written.with(|_| ()); // Loom ends the run if this read and the write are not ordered.
    }
}
