//! Asking the processor for memory before it is needed.
//!
//! # Safety argument
//! 1. A prefetch is a hint. It reads nothing that the program can see, and cannot fault, whatever
//!    the address.

use std::ptr::NonNull;

/// The unit in which memory comes, on the processors that we care about most.
pub(crate) const CACHE_LINE: usize = 64;

/// Asks for the first `len` bytes at `pointer`, up to a few cache lines.
#[inline]
pub(crate) fn prefetch(pointer: NonNull<u8>, len: usize) {
    prefetch_lines(pointer.as_ptr(), len.div_ceil(CACHE_LINE).min(4));
}

/// Asks for so many cache lines at `pointer`.
#[inline]
pub(crate) fn prefetch_lines(pointer: *const u8, lines: usize) {
    for line in 0..lines {
        prefetch_line(pointer.wrapping_add(line * CACHE_LINE));
    }
}

/// Asks for the cache line at an address, which may be any.
#[inline]
pub(crate) fn prefetch_line(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint (1).
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
