//! Where writes begin and end, and buffers that direct I/O accepts.

/// Direct reads and writes start, end and lie in memory at multiples of this. Every common device
/// has logical blocks of 512 or 4096 bytes.
pub(super) const PAGE: usize = 4096;

/// `value` rounded down to a whole page.
pub(super) fn page_floor(value: u64) -> u64 {
    value - value % PAGE as u64
}

/// A write into the page cache ends at the next multiple of this. For more at once the kernel looks for larger runs of free pages,
/// and where the page cache fills memory it takes twice as long to find them.
pub(super) const CACHED_PIECE: usize = 128 << 10;

/// How many of `len` bytes at `offset` go into the page cache at once.
pub(super) fn cached_piece(offset: u64, len: usize) -> usize {
    len.min(CACHED_PIECE - offset as usize % CACHED_PIECE)
}

/// A block of memory that starts at a page boundary and is a whole number of pages long.
pub(super) struct AlignedBuffer {
    /// Never grown or shrunk after `new`: that could move it, and `start` would be wrong.
    bytes: Box<[u8]>,
    start: usize,
}

impl AlignedBuffer {
    /// Room for at least `capacity` bytes, all zero.
    pub(super) fn new(capacity: usize) -> Self {
        let capacity = capacity.next_multiple_of(PAGE);
        let bytes = vec![0; capacity + PAGE].into_boxed_slice();
        // The offset may be `usize::MAX` in theory ("cannot be aligned"), never so for bytes.
        let start = bytes.as_ptr().align_offset(PAGE).min(PAGE);
        Self { bytes, start }
    }
    pub(super) fn capacity(&self) -> usize {
        self.bytes.len() - PAGE
    }
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.capacity()]
    }
    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        let end = self.start + self.capacity();
        &mut self.bytes[self.start..end]
    }
}

/// Whether the memory of `buf` may be used for direct I/O at `offset` as it is.
pub(super) fn is_aligned(buf: &[u8], offset: u64) -> bool {
    let page = PAGE as u64;
    buf.as_ptr().align_offset(PAGE) == 0 && buf.len().is_multiple_of(PAGE) && offset.is_multiple_of(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_whole_pages() {
        for capacity in [0, 1, 4095, 4096, 4097, 100_000] {
            let mut buffer = AlignedBuffer::new(capacity);
            assert!(buffer.capacity() >= capacity);
            assert!(is_aligned(buffer.as_slice(), 0));
            let len = buffer.capacity();
            assert_eq!(buffer.as_mut_slice().len(), len);
        }
    }
}
