//! The blocks of a log that are in memory.

use crate::record::BLOCK_SIZE;
use ironstone_base::Result;
use ironstone_vfs::SequentialFile;

/// Blocks read at a time.
const READ_BYTES: usize = 8 * BLOCK_SIZE;

/// A run of whole blocks of a file, the last of which may be cut short by the file's end. Only moves
/// forward.
pub(crate) struct Window {
    source: Option<Box<dyn SequentialFile>>, // None once the file's end has been read.
    bytes: Vec<u8>,
    offset: u64, // Of the first byte in the file; a multiple of BLOCK_SIZE.
}

impl Window {
    pub fn of_file(source: Box<dyn SequentialFile>) -> Self {
        Self { source: Some(source), bytes: Vec::new(), offset: 0 }
    }
    /// `source` stands at `offset` of its file, the beginning of a block.
    pub fn of_file_at(source: Box<dyn SequentialFile>, offset: u64) -> Self {
        assert!(offset.is_multiple_of(BLOCK_SIZE as u64), "offset {offset} is inside of a block");
        Self { source: Some(source), bytes: Vec::new(), offset }
    }
    pub fn of_bytes(bytes: Vec<u8>) -> Self {
        Self { source: None, bytes, offset: 0 }
    }
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
    /// Flips a bit of what is in memory.
    pub fn flip(&mut self, at: usize, bit: u8) {
        self.bytes[at] ^= 1 << bit;
    }
    /// The offset in the file of the byte at `at`.
    pub fn file_offset(&self, at: usize) -> u64 {
        self.offset + at as u64
    }
    /// The end of the block that holds `at`, or of the file.
    pub fn block_end(&self, at: usize) -> usize {
        ((at / BLOCK_SIZE + 1) * BLOCK_SIZE).min(self.bytes.len())
    }
    /// Whether the byte at `at` lies in a block that the file's end cuts short.
    pub fn is_cut_short(&self, at: usize) -> bool {
        self.bytes.len() < (at / BLOCK_SIZE + 1) * BLOCK_SIZE
    }

    /// Reads the first blocks, and answers `at`, or the end if the file ends before it.
    pub fn fill_to(&mut self, at: usize) -> Result<usize> {
        self.advance()?;
        Ok(at.min(self.bytes.len()))
    }

    /// Reads the blocks that follow, dropping those that are here; whether there are any. The places
    /// of the new ones begin at 0 again.
    pub fn advance(&mut self) -> Result<bool> {
        let Some(source) = &mut self.source else {
            self.offset += self.bytes.len() as u64;
            self.bytes.clear();
            return Ok(false);
        };
        self.offset += self.bytes.len() as u64;
        self.bytes.resize(READ_BYTES, 0);
        let count = match source.read(&mut self.bytes) {
            Ok(count) => count,
            Err(error) => {
                self.bytes.clear();
                return Err(error);
            }
        };
        self.bytes.truncate(count);
        if count < READ_BYTES {
            self.source = None;
        }
        Ok(count > 0)
    }
}
