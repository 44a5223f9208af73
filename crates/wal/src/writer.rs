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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogRead, LogReader, Payload, ReaderOptions};
    use ironstone_vfs::OpKind;
    use ironstone_vfs::fault::{FaultError, FaultFileSystem, FaultRule};
    use ironstone_vfs::mem::MemFileSystem;
    use ironstone_vfs::{FileSystem, WriteOptions};
    use std::path::Path;

    fn read_back(fs: &dyn FileSystem, path: &Path, number: u64) -> Vec<Vec<u8>> {
        let options = ReaderOptions { payload: Payload::Other, ..ReaderOptions::default() };
        let mut reader = LogReader::new(fs.open_sequential(path).unwrap(), FileNumber(number), options);
        let mut records = Vec::new();
        loop {
            match reader.next_record().unwrap() {
                LogRead::Record { .. } => records.push(reader.record().to_vec()),
                LogRead::End => return records,
                LogRead::Damage(damage) => panic!("{damage}"),
            }
        }
    }

    #[test]
    fn records_reach_the_file_when_they_are_flushed() {
        let (fs, path) = (MemFileSystem::new(), Path::new("/000007.log"));
        let file = fs.create(path, WriteOptions::default()).unwrap();
        let mut log = LogWriter::new(file, FileNumber(7), true);
        let records: Vec<Vec<u8>> = (0..300).map(|index| vec![index as u8; index * 37]).collect();
        let mut sizes = Vec::new();
        for (index, record) in records.iter().enumerate() {
            assert_eq!(
                log.add_record(&[&record[..index / 2], &record[index / 2..]]),
                sizes.last().copied().unwrap_or(0)
            );
            sizes.push(log.size());
            if index % 10 == 0 {
                log.flush().unwrap();
                assert_eq!((log.buffered(), fs.size(path).unwrap()), (0, log.size()));
                assert_eq!(read_back(&fs, path, 7), records[..=index]);
            }
        }
        log.sync().unwrap();
        // Reading goes over many windows.
        assert!(log.size() > 5 * 256 * 1024);
        assert_eq!(read_back(&fs, path, 7), records);
        assert_eq!(read_back(&fs, path, 8), Vec::<Vec<u8>>::new(), "another log in a reused file");
        log.close().unwrap();
    }

    #[test]
    fn a_log_that_failed_takes_nothing_more() {
        for kind in [OpKind::Append, OpKind::Sync] {
            let fs = FaultFileSystem::new(std::sync::Arc::new(MemFileSystem::new()));
            let path = Path::new("/000007.log");
            let mut log =
                LogWriter::new(fs.create(path, WriteOptions::default()).unwrap(), FileNumber(7), false);
            log.add_record(&[b"one"]);
            log.sync().unwrap();
            fs.add(FaultRule::error(FaultError::Io).on(&[kind]));
            log.add_record(&[b"two"]);
            let failure = log.sync().unwrap_err();
            fs.clear();
            assert_eq!(log.sync(), Err(failure.clone()));
            assert_eq!(log.flush(), Err(failure.clone()));
            assert_eq!(log.close(), Err(failure.clone()));
            assert_eq!(log.failure(), Some(&failure));
        }
    }

    #[test]
    fn an_io_error_is_no_end() {
        let fs = FaultFileSystem::new(std::sync::Arc::new(MemFileSystem::new()));
        let path = Path::new("/000007.log");
        let mut log = LogWriter::new(fs.create(path, WriteOptions::default()).unwrap(), FileNumber(7), false);
        for _ in 0..100 {
            log.add_record(&[&[7; 10_000]]);
        }
        log.close().unwrap();
        fs.add(FaultRule::error(FaultError::Io).on(&[OpKind::Read]).after(1));
        let mut reader =
            LogReader::new(fs.open_sequential(path).unwrap(), FileNumber(7), ReaderOptions::default());
        let mut records = 0;
        let error = loop {
            match reader.next_record() {
                Ok(LogRead::Record { .. }) => records += 1,
                Ok(other) => panic!("{other:?}"),
                Err(error) => break error,
            }
        };
        assert!((1..100).contains(&records));
        fs.clear();
        assert_eq!(reader.next_record(), Err(error), "the reader has lost its place");
    }
}
