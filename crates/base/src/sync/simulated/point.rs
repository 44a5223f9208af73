//! Where another thread may go on, besides locks.

use std::cell::Cell;

/// The state of one simulation, which runs on one thread of the system.
#[derive(Clone, Copy)]
struct Points {
    /// One in so many atomic operations; 0 outside of a simulation.
    one_in: u64,
    random: u64,
    steps: u64,
}

thread_local! {
    static POINTS: Cell<Points> = const { Cell::new(Points { one_in: 0, random: 0, steps: 0 }) };
}

/// From now on one in `one_in` atomic operations lets another thread go on. Call it inside of a simulation.
pub fn enter(seed: u64, one_in: u64) {
    POINTS.set(Points { one_in: one_in.max(1), random: seed | 1, steps: 0 });
}
/// Atomic operations are nothing but that again.
pub fn leave() {
    POINTS.set(Points { one_in: 0, ..POINTS.get() });
}
/// How many atomic operations there were since [`enter`].
pub fn steps() -> u64 {
    POINTS.get().steps
}

/// Lets another thread go on, now and then.
#[inline]
pub fn point() {
    let mut points = POINTS.get();
    if points.one_in == 0 {
        return;
    }
    points.steps += 1;
    points.random ^= points.random << 13;
    points.random ^= points.random >> 7;
    points.random ^= points.random << 17;
    POINTS.set(points);
    if points.random.is_multiple_of(points.one_in) && !std::thread::panicking() {
        shuttle::thread::sleep(std::time::Duration::ZERO); // What shuttle calls a bare switch.
    }
}
