//! Asks the processor for memory ahead of use.

use ironstone_cache::prefetch_line;

/// Asks for the cache lines of the first `most` bytes of `items` all at once, so that reading them one after another waits once.
#[inline(always)]
pub(crate) fn prefetch<T>(items: &[T], most: usize) {
    for at in (0..most).step_by(64) {
        prefetch_line(items.as_ptr().wrapping_byte_add(at));
    }
}
