//! Asks the processor for memory ahead of use.
//!
//! # Safety argument
//! 1. A prefetch reads nothing that the program can see and never faults, whatever the address.
//! 2. The instruction belongs to SSE, which every x86-64 processor has.

#![allow(unsafe_code)]

/// Asks for the cache lines of `bytes` all at once, so that reading them one after another waits once.
#[inline(always)]
pub(super) fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: no effect but on speed (1), and available (2).
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}
