//! Where traces go and come from.

use super::record::RECORD_HEAD;
use ironstone_base::{Error, Result};
use ironstone_vfs::{FileSystem, SequentialFile, WritableFile, WriteOptions};
use std::path::Path;

/// Takes the records of a trace.
pub trait TraceWriter: Send {
    /// Takes a whole record.
    fn write(&mut self, record: &[u8]) -> Result<()>;
    /// No more records come.
    fn close(&mut self) -> Result<()>;
    /// How many bytes it took.
    fn size(&self) -> u64;
}

/// Gives the records of a trace.
pub trait TraceReader: Send {
    /// The next whole record; `None` at the end.
    fn read(&mut self) -> Result<Option<Vec<u8>>>;
    /// Says where a problem with the last record is.
    fn corrupt(&self, what: &str) -> Error;
}

/// A trace in a file. Records are handed to the operating system some at a time; a crash may cut the last one.
pub struct FileTraceWriter(Box<dyn WritableFile>);

impl FileTraceWriter {
    /// Writes to a new file, in the place of one that is there.
    pub fn create(fs: &dyn FileSystem, path: impl AsRef<Path>) -> Result<Self> {
        let options = WriteOptions { buffer_bytes: 1 << 16, ..WriteOptions::default() };
        Ok(Self(fs.create(path.as_ref(), options)?))
    }
}

impl TraceWriter for FileTraceWriter {
    fn write(&mut self, record: &[u8]) -> Result<()> {
        self.0.append(record)
    }
    fn close(&mut self) -> Result<()> {
        self.0.close()
    }
    fn size(&self) -> u64 {
        self.0.size()
    }
}

/// Reads a trace from a file.
pub struct FileTraceReader {
    file: Box<dyn SequentialFile>,
    /// Where the last record begins, and where the next one does.
    last: u64,
    next: u64,
}

impl FileTraceReader {
    /// Reads the file at `path`.
    pub fn open(fs: &dyn FileSystem, path: impl AsRef<Path>) -> Result<Self> {
        Ok(Self { file: fs.open_sequential(path.as_ref())?, last: 0, next: 0 })
    }
}

/// So much is read at once: a length in a damaged file asks for no more memory than the file has bytes.
const CHUNK: usize = 1 << 16;

impl TraceReader for FileTraceReader {
    fn read(&mut self) -> Result<Option<Vec<u8>>> {
        self.last = self.next;
        let mut record = vec![0; RECORD_HEAD];
        let count = self.file.read(&mut record)?;
        if count == 0 {
            return Ok(None);
        }
        if count < RECORD_HEAD {
            return Err(self.corrupt("the trace ends within the head of a record"));
        }
        let length = u32::from_le_bytes([record[9], record[10], record[11], record[12]]) as usize;
        while record.len() < RECORD_HEAD + length {
            let at = record.len();
            record.resize((at + CHUNK).min(RECORD_HEAD + length), 0);
            let wanted = record.len() - at;
            if self.file.read(&mut record[at..])? < wanted {
                return Err(self.corrupt("the trace ends within a record"));
            }
        }
        self.next += record.len() as u64;
        Ok(Some(record))
    }
    fn corrupt(&self, what: &str) -> Error {
        Error::corruption_at(self.file.path(), self.last, what)
    }
}
