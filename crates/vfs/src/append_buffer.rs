//! The buffer in front of a file that is appended to.

use ironstone_base::Result;

/// Gathers small appends into writes of `capacity` bytes; 0 passes everything through.
#[derive(Debug)]
pub(crate) struct AppendBuffer {
    /// Shorter than `capacity`, except that both may be 0.
    bytes: Vec<u8>,
    capacity: usize,
}

impl AppendBuffer {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { bytes: Vec::new(), capacity }
    }
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds `data`; what does not fit goes to `write`, in order. After an error the buffer is of no use.
    #[inline]
    pub(crate) fn append(&mut self, data: &[u8], write: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        if data.len() < self.capacity - self.bytes.len() {
            self.gather(data);
            return Ok(());
        }
        self.append_past_end(data, write)
    }

    /// Adds what fits. The buffer grows with what comes, and to no more than it can hold.
    #[inline]
    fn gather(&mut self, data: &[u8]) {
        let room = self.bytes.capacity();
        if data.len() > room - self.bytes.len() && 2 * room > self.capacity {
            self.bytes.reserve_exact(self.capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(data);
    }

    fn append_past_end(&mut self, mut data: &[u8], mut write: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        if !self.bytes.is_empty() {
            // Filled up to the brim first, so that writes start and end at multiples of its size.
            let (head, tail) = data.split_at(self.capacity - self.bytes.len());
            self.gather(head);
            self.flush(&mut write)?;
            data = tail;
        }
        let kept = data.len().checked_rem(self.capacity).unwrap_or(0);
        let (through, kept) = data.split_at(data.len() - kept);
        if !through.is_empty() {
            write(through)?; // Large data does not pass through the buffer.
        }
        self.gather(kept);
        Ok(())
    }

    /// Gives everything gathered to `write`.
    pub(crate) fn flush(&mut self, mut write: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        write(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }

    /// Gives back its memory if nothing is gathered.
    pub(crate) fn release(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_no_more_memory_than_it_can_hold() {
        let mut buffer = AppendBuffer::new(1000);
        for len in (1..300).chain([999, 1000, 1001, 3]) {
            buffer.append(&[7; 1001][..len], |_| Ok(())).unwrap();
            assert!(buffer.bytes.capacity() <= 1000, "{} bytes", buffer.bytes.capacity());
        }
        let gathered = buffer.len();
        buffer.release();
        assert!(gathered > 0 && buffer.len() == gathered, "what is gathered stays");
        buffer.flush(|_| Ok(())).unwrap();
        buffer.release();
        assert_eq!(buffer.bytes.capacity(), 0);
        buffer.append(&[7; 10], |_| Ok(())).unwrap();
        assert_eq!(buffer.len(), 10);
    }

    #[test]
    fn writes_are_whole_multiples_of_the_capacity_and_lose_nothing() {
        for capacity in [0, 1, 3, 8] {
            let (mut buffer, mut written, mut all) = (AppendBuffer::new(capacity), Vec::new(), Vec::new());
            for len in [0, 1, 2, 7, 8, 9, 17, 1, 1, 1, 30] {
                let data: Vec<u8> = (0..len).map(|at| at as u8).collect();
                all.extend_from_slice(&data);
                let write = |bytes: &[u8]| {
                    assert!(capacity == 0 || bytes.len().is_multiple_of(capacity), "{} bytes", bytes.len());
                    written.extend_from_slice(bytes);
                    Ok(())
                };
                buffer.append(&data, write).unwrap();
                assert_eq!(written.len() + buffer.len(), all.len());
                assert!(buffer.len() <= capacity.saturating_sub(1));
            }
            let write = |bytes: &[u8]| {
                written.extend_from_slice(bytes);
                Ok(())
            };
            buffer.flush(write).unwrap();
            assert_eq!(written, all);
        }
    }
}
