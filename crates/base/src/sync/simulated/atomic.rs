//! Atomics of the standard library at whose operations another thread may go on.

use super::point::point;
use std::sync::atomic as std_atomic;
pub use std::sync::atomic::{Ordering, fence};

macro_rules! atomic {
    ($name:ident $(<$t:ident>)?, $value:ty) => {
        /// The type of this name in the standard library, with points where threads change.
        #[derive(Debug)]
        #[repr(transparent)]
        pub struct $name $(<$t>)? (std_atomic::$name $(<$t>)?);

        impl $(<$t>)? Default for $name $(<$t>)? {
            fn default() -> Self {
                Self(std_atomic::$name::default())
            }
        }

        #[allow(missing_docs)] // As in the standard library.
        impl $(<$t>)? $name $(<$t>)? {
            pub const fn new(value: $value) -> Self {
                Self(std_atomic::$name::new(value))
            }
            pub fn load(&self, order: Ordering) -> $value {
                point();
                self.0.load(order)
            }
            pub fn store(&self, value: $value, order: Ordering) {
                point();
                self.0.store(value, order);
            }
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.swap(value, order)
            }
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                point();
                self.0.compare_exchange(current, new, success, failure)
            }
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                point();
                self.0.compare_exchange_weak(current, new, success, failure)
            }
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                update: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                point();
                self.0.fetch_update(set, fetch, update)
            }
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }
        }
    };
}
macro_rules! arithmetic {
    ($name:ident, $value:ty, $($method:ident),*) => {
        #[allow(missing_docs)] // As in the standard library.
        impl $name {
            $(pub fn $method(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.$method(value, order)
            })*
        }
    };
}

atomic!(AtomicBool, bool);
atomic!(AtomicI64, i64);
atomic!(AtomicU8, u8);
atomic!(AtomicU32, u32);
atomic!(AtomicU64, u64);
atomic!(AtomicUsize, usize);
atomic!(AtomicPtr<T>, *mut T);
arithmetic!(AtomicBool, bool, fetch_or, fetch_and);
arithmetic!(AtomicI64, i64, fetch_add, fetch_sub, fetch_max, fetch_min);
arithmetic!(AtomicU8, u8, fetch_add, fetch_sub, fetch_or, fetch_and, fetch_max, fetch_min);
arithmetic!(AtomicU32, u32, fetch_add, fetch_sub, fetch_or, fetch_and, fetch_max, fetch_min);
arithmetic!(AtomicU64, u64, fetch_add, fetch_sub, fetch_or, fetch_and, fetch_max, fetch_min);
arithmetic!(AtomicUsize, usize, fetch_add, fetch_sub, fetch_or, fetch_and, fetch_max, fetch_min);
