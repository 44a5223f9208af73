//! For structures that hand memory from one thread to another through an atomic: says to [`loom`](super) where
//! memory that is not atomic is written and read, so that it sees when the two are not ordered. Without the
//! feature `loom` nothing is left of either.

/// What begins at `start` is written, or taken away: nobody may be reading it. Call it before others get the pointer.
#[inline(always)]
pub fn wrote<T: ?Sized>(start: *const T) {
    #[cfg(feature = "loom")]
    super::modelled::wrote(start.addr());
    let _ = start;
}

/// What begins at `start` is about to be read.
#[inline(always)]
pub fn reads<T: ?Sized>(start: *const T) {
    #[cfg(feature = "loom")]
    super::modelled::reads(start.addr());
    let _ = start;
}
