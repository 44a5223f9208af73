//! A framer with a file behind it.

use crate::framer::LogFramer;
use crate::record::{DurabilityMarker, PredecessorWal};
use ironstone_base::{Error, FileNumber, Result};
use ironstone_vfs::WritableFile;

/// Appends records to a log file. After a failed append, flush or sync nobody can say what the file
/// holds, so every later call repeats that failure: start a new log.
pub struct LogWriter {
    file: Box<dyn WritableFile>,
    framer: LogFramer,
    buffer: Vec<u8>,
    written: u64,
    failure: Option<Error>,
}

/// A buffer that one huge record blew up is given back instead of being kept.
const KEPT_BUFFER_BYTES: usize = 1 << 20;

impl LogWriter {
    /// Writes to `file` from its start. `recyclable` says whether records carry the log's number;
    /// they must if the file is a reused one.
    pub fn new(file: Box<dyn WritableFile>, log_number: FileNumber, recyclable: bool) -> Self {
        Self::continue_at(file, log_number, recyclable, 0)
    }
    /// Appends to a log that holds `size` bytes, all of them whole records.
    pub fn continue_at(
        file: Box<dyn WritableFile>,
        log_number: FileNumber,
        recyclable: bool,
        size: u64,
    ) -> Self {
        let framer = LogFramer::continue_at(log_number, recyclable, size);
        Self { file, framer, buffer: Vec::new(), written: size, failure: None }
    }

    /// Frames the concatenation of `parts` as one record into the buffer; no I/O. Answers the offset
    /// in the file where the record will begin.
    pub fn add_record(&mut self, parts: &[&[u8]]) -> u64 {
        let offset = self.size();
        self.framer.frame(parts, &mut self.buffer);
        offset
    }
    /// Frames what the WAL before this one held into the buffer.
    pub fn add_predecessor(&mut self, predecessor: &PredecessorWal) {
        self.framer.frame_predecessor(predecessor, &mut self.buffer);
    }
    /// Frames a marker into the buffer. Readers older than RocksDB 9.11.1 refuse the log.
    pub fn add_marker(&mut self, marker: &DurabilityMarker) {
        self.framer.frame_marker(marker, &mut self.buffer);
    }
    /// Frames the timestamp sizes of column families into the buffer.
    pub fn add_timestamp_sizes(&mut self, sizes: &[(u32, u16)]) {
        self.framer.frame_timestamp_sizes(sizes, &mut self.buffer);
    }

    /// How many framed bytes have not reached the file.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }
    /// The size of the log, buffered bytes included.
    pub fn size(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }
    /// Hands what is buffered to the operating system: it survives a crash of the process.
    pub fn flush(&mut self) -> Result<()> {
        self.check()?;
        let result = self.write_out();
        self.remember(result)
    }
    /// Flushes, and makes the log durable: it survives a crash of the machine.
    pub fn sync(&mut self) -> Result<()> {
        self.check()?;
        let result = self.write_out().and_then(|()| self.file.sync());
        self.remember(result)
    }
    /// Flushes and closes; does not sync.
    pub fn close(&mut self) -> Result<()> {
        self.check()?;
        let result = self.write_out().and_then(|()| self.file.close());
        self.remember(result)
    }

    /// The number of the log.
    pub fn log_number(&self) -> FileNumber {
        self.framer.log_number()
    }
    /// The file, for what has nothing to do with records (allocating space).
    pub fn file_mut(&mut self) -> &mut dyn WritableFile {
        &mut *self.file
    }
    /// Takes the writer apart: for a caller that frames and writes in different places.
    pub fn into_parts(self) -> (Box<dyn WritableFile>, LogFramer) {
        (self.file, self.framer)
    }
    /// The first failure, after which the log takes nothing more.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    fn check(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }
    fn write_out(&mut self) -> Result<()> {
        if !self.buffer.is_empty() {
            self.file.append(&self.buffer)?;
            self.written += self.buffer.len() as u64;
            self.buffer.clear();
            self.buffer.shrink_to(KEPT_BUFFER_BYTES);
        }
        self.file.flush()
    }
    fn remember(&mut self, result: Result<()>) -> Result<()> {
        if let Err(error) = &result {
            self.failure = Some(error.clone());
        }
        result
    }
}
