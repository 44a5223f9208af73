//! Asks the processor for memory ahead of use.
//!
//! # Safety argument
//! 1. A prefetch reads nothing that the program can see and never faults, whatever the address.
//! 2. The instruction belongs to SSE, which every x86-64 processor has.

#![allow(unsafe_code)]

/// Asks for the cache lines of the first `most` bytes of `items` all at once, so that reading them one after another waits once.
#[inline(always)]
pub(crate) fn prefetch<T>(items: &[T], most: usize) {
    for at in (0..most).step_by(64) {
        prefetch_line(items.as_ptr().cast::<u8>().wrapping_add(at));
    }
}

/// Asks for the cache line at an address, which may be any.
#[inline(always)]
pub(crate) fn prefetch_line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: no effect but on speed, whatever is there (1), and available (2).
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
