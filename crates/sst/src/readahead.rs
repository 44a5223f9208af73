//! Reading ahead of an iterator.

use ironstone_base::Result;
use ironstone_vfs::RandomAccessFile;

/// Reads blocks one after another; from some point on more than was asked for.
///
/// With a fixed size every read takes that much. Otherwise reading ahead begins after a few blocks that
/// adjoin each other, small, and doubles with each read; a jump starts it over.
pub(crate) struct Readahead {
    plan: Plan,
    /// The last block: one that begins where it ends continues the run, as does one that ends where it
    /// begins.
    last_at: u64,
    last_end: u64,
    goes_back: bool,
    run_len: u64,
    bytes: Vec<u8>,
    bytes_at: u64,
    /// Nothing is wanted from here on.
    limit: u64,
}

#[derive(Clone, Copy)]
enum Plan {
    Fixed(usize),
    Growing { next: usize, initial: usize, max: usize, after_reads: u64 },
}

impl Readahead {
    pub fn fixed(size: usize, limit: u64) -> Self {
        Self::new(Plan::Fixed(size), limit)
    }
    pub fn growing(initial: usize, max: usize, after_reads: u64, limit: u64) -> Self {
        let initial = initial.min(max);
        Self::new(Plan::Growing { next: initial, initial, max, after_reads }, limit)
    }
    fn new(plan: Plan, limit: u64) -> Self {
        Self { plan, last_at: u64::MAX, last_end: u64::MAX, goes_back: false, run_len: 0, bytes: Vec::new(), bytes_at: 0, limit }
    }

    /// Does not read ahead beyond `limit`.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Takes note of a block that was found in the cache.
    pub fn pass(&mut self, offset: u64, len: usize) {
        self.count(offset, len);
    }

    fn count(&mut self, offset: u64, len: usize) {
        let end = offset + len as u64;
        let goes_back = end == self.last_at;
        let continues = (offset == self.last_end && !self.goes_back) || (goes_back && self.goes_back);
        (self.last_at, self.last_end, self.goes_back) = (offset, end, goes_back);
        self.run_len = if continues { self.run_len + 1 } else { 1 };
        if let (false, Plan::Growing { next, initial, .. }) = (continues, &mut self.plan) {
            *next = *initial;
        }
    }

    /// The `len` bytes at `offset`, if they were read ahead or it is time to do so; less than `len` at
    /// the end of the file. `None`: the caller reads just these.
    pub fn read(&mut self, file: &dyn RandomAccessFile, offset: u64, len: usize) -> Result<Option<&[u8]>> {
        self.count(offset, len);
        if self.buffered(offset, len).is_none() {
            let Some(more) = self.next_size() else {
                return Ok(None);
            };
            self.fill(file, offset, len, more)?;
        }
        Ok(self.buffered(offset, len))
    }

    fn buffered(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.bytes_at)?).ok()?;
        self.bytes.get(start..start.checked_add(len)?)
    }

    fn next_size(&mut self) -> Option<usize> {
        match &mut self.plan {
            Plan::Fixed(size) => Some(*size),
            Plan::Growing { max: 0, .. } => None,
            Plan::Growing { after_reads, .. } if self.run_len <= *after_reads => None,
            Plan::Growing { next, max, .. } => {
                let size = *next;
                *next = next.saturating_mul(2).min(*max);
                Some(size)
            }
        }
    }

    fn fill(&mut self, file: &dyn RandomAccessFile, offset: u64, len: usize, more: usize) -> Result<()> {
        let wanted = match self.plan {
            Plan::Fixed(size) => size.max(len),
            Plan::Growing { .. } => len.saturating_add(more),
        };
        let end = offset + len as u64;
        let (start, end) = match self.goes_back {
            true => (end.saturating_sub(wanted as u64), end),
            false => (offset, (offset + wanted as u64).min(self.limit).max(end)),
        };
        self.bytes.resize((end - start) as usize, 0);
        self.bytes_at = start;
        let count = file.read_at(start, &mut self.bytes).inspect_err(|_| self.bytes.clear())?;
        self.bytes.truncate(count);
        if let (Plan::Fixed(size), false) = (self.plan, self.goes_back) {
            // The system reads this while the caller works on what is here.
            let rest = self.limit.saturating_sub(end).min(size as u64);
            if rest > 0 {
                file.prefetch(end, rest);
            }
        }
        Ok(())
    }
}
