//! Atomics of the standard library's size, each with one of loom's behind it.

use super::registry::{cell, forget};
use std::sync::atomic as std_atomic;

pub use loom::sync::atomic::fence;
pub use std_atomic::Ordering;

/// What the load in a change has of the change's ordering.
fn of_load(order: Ordering) -> Ordering {
    match order {
        Ordering::Release => Ordering::Relaxed,
        Ordering::AcqRel => Ordering::Acquire,
        other => other,
    }
}

macro_rules! atomic {
    ($name:ident $(<$t:ident>)?, $value:ty, $to_bits:expr, $from_bits:expr) => {
        /// The type of this name in the standard library, seen by loom.
        #[derive(Debug)]
        #[repr(transparent)]
        pub struct $name $(<$t>)? (std_atomic::$name $(<$t>)?);

        impl $(<$t>)? Default for $name $(<$t>)? {
            fn default() -> Self {
                Self(std_atomic::$name::default())
            }
        }

        impl $(<$t>)? Drop for $name $(<$t>)? {
            fn drop(&mut self) {
                forget(self.address());
            }
        }

        #[allow(missing_docs)] // As in the standard library.
        impl $(<$t>)? $name $(<$t>)? {
            pub const fn new(value: $value) -> Self {
                Self(std_atomic::$name::new(value))
            }
            fn address(&self) -> usize {
                std::ptr::from_ref(self).addr()
            }
            /// The value in memory: the newest one.
            fn newest(&self) -> $value {
                self.0.load(Ordering::Relaxed)
            }
            pub fn load(&self, order: Ordering) -> $value {
                match cell(self.address(), $to_bits(self.newest())) {
                    Some(cell) => $from_bits(cell.atomic.load(order).wrapping_add(cell.base)),
                    None => self.0.load(order),
                }
            }
            pub fn store(&self, value: $value, order: Ordering) {
                if let Some(cell) = cell(self.address(), $to_bits(self.newest())) {
                    // A swap: where a store and a change race, loom 0.7 lets the change read what was before the
                    // store and still come after it, which no machine does. A store that comes after the change
                    // is another schedule. (Nothing here counts on a store to end a release sequence.)
                    cell.atomic.swap($to_bits(value).wrapping_sub(cell.base), order);
                }
                self.0.store(value, Ordering::Relaxed);
            }
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                let Some(cell) = cell(self.address(), $to_bits(self.newest())) else {
                    return self.0.swap(value, order);
                };
                let before = cell.atomic.swap($to_bits(value).wrapping_sub(cell.base), order);
                self.0.store(value, Ordering::Relaxed);
                $from_bits(before.wrapping_add(cell.base))
            }
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let Some(cell) = cell(self.address(), $to_bits(self.newest())) else {
                    return self.0.compare_exchange(current, new, success, failure);
                };
                let [old, young] = [current, new].map(|value| $to_bits(value).wrapping_sub(cell.base));
                let answer = cell.atomic.compare_exchange(old, young, success, failure);
                if answer.is_ok() {
                    self.0.store(new, Ordering::Relaxed);
                }
                answer
                    .map(|before| $from_bits(before.wrapping_add(cell.base)))
                    .map_err(|there| $from_bits(there.wrapping_add(cell.base)))
            }
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut update: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut value = self.load(fetch);
                while let Some(new) = update(value) {
                    match self.compare_exchange(value, new, set, fetch) {
                        Ok(before) => return Ok(before),
                        Err(there) => value = there,
                    }
                }
                Err(value)
            }
            pub fn get_mut(&mut self) -> &mut $value {
                forget(self.address());
                self.0.get_mut()
            }
            pub fn into_inner(self) -> $value {
                self.newest()
            }
        }
    };
}
macro_rules! arithmetic {
    ($name:ident, $value:ty, $($method:ident: $change:expr),*) => {
        #[allow(missing_docs)] // As in the standard library.
        impl $name {
            $(pub fn $method(&self, value: $value, order: Ordering) -> $value {
                let change = |there: $value| -> Option<$value> { Some($change(there, value)) };
                self.fetch_update(order, of_load(order), change).expect("there is always a new value")
            })*
        }
    };
}
macro_rules! number {
    ($name:ident, $value:ty) => {
        atomic!($name, $value, |value: $value| value as u64, |bits: u64| bits as $value);
        arithmetic!(
            $name, $value,
            fetch_add: <$value>::wrapping_add,
            fetch_sub: <$value>::wrapping_sub,
            fetch_max: Ord::max,
            fetch_min: Ord::min
        );
    };
}

number!(AtomicI64, i64);
number!(AtomicU8, u8);
number!(AtomicU32, u32);
number!(AtomicU64, u64);
number!(AtomicUsize, usize);
atomic!(AtomicBool, bool, u64::from, |bits: u64| bits & 1 == 1);
atomic!(AtomicPtr<T>, *mut T, |value: *mut T| value.expose_provenance() as u64, |bits: u64| {
    std::ptr::with_exposed_provenance_mut(bits as usize)
});
arithmetic!(AtomicBool, bool, fetch_or: std::ops::BitOr::bitor, fetch_and: std::ops::BitAnd::bitand);
arithmetic!(AtomicU8, u8, fetch_or: std::ops::BitOr::bitor, fetch_and: std::ops::BitAnd::bitand);
arithmetic!(AtomicU32, u32, fetch_or: std::ops::BitOr::bitor, fetch_and: std::ops::BitAnd::bitand);
arithmetic!(AtomicU64, u64, fetch_or: std::ops::BitOr::bitor, fetch_and: std::ops::BitAnd::bitand);
