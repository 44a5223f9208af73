//! Traces of the calls to the file system, in RocksDB's format.
//!
//! ```text
//! record     time u64 LE, nanoseconds | type u8 | length of the payload u32 LE | payload
//! begin      1    see `version_header.rs`
//! call       12   present u64 LE: bit n says that number n of these is there: 0 file size, 1 length, 2 offset
//!                 operation, prefixed | nanoseconds that it took u64 LE | status, prefixed | file name, prefixed
//!                 the numbers that are there, u64 LE each
//!                 more u64 LE: bit 0 says that the id of a request follows, prefixed
//! ```
//! The time of the first record is in microseconds since 1970; those of calls are by the monotonic clock. There is no last one.

use super::TraceOptions;
use super::file::{TraceReader, TraceWriter};
use super::record::{RECORD_HEAD, encode, kind, parts};
use super::version_header::VersionHeader;
use crate::Db;
use ironstone_base::coding::{get_fixed64, get_length_prefixed, put_fixed64, put_length_prefixed};
use ironstone_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use ironstone_base::sync::{Arc, Mutex};
use ironstone_base::{Code, Corrupt, Error, Result};
use ironstone_vfs::Clock;
use ironstone_vfs::traced::{IoCall, IoWatch};

const HEADER: VersionHeader = VersionHeader { name: "an I/O trace" };

/// A call to the file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IoTraceRecord {
    /// When it had ended, in nanoseconds by the monotonic clock.
    pub time_nanos: u64,
    /// What it was, by RocksDB's names: `Append`, `Read`, `NewWritableFile` and others.
    pub operation: String,
    /// How long it took.
    pub latency_nanos: u64,
    /// `OK`, or how it failed.
    pub status: String,
    /// The file, without its directory.
    pub file_name: String,
    /// How large the file is.
    pub file_size: Option<u64>,
    /// How many bytes were wanted; of `Truncate`: are left.
    pub len: Option<u64>,
    /// From where in the file.
    pub offset: Option<u64>,
    /// What the application called the request.
    pub request_id: Option<String>,
}

impl IoTraceRecord {
    fn encode(&self) -> Vec<u8> {
        encode(self.time_nanos, kind::IO, |payload| {
            let numbers = [self.file_size, self.len, self.offset];
            let present = numbers.iter().enumerate().map(|(bit, number)| u64::from(number.is_some()) << bit);
            put_fixed64(payload, present.sum());
            put_length_prefixed(payload, self.operation.as_bytes());
            put_fixed64(payload, self.latency_nanos);
            put_length_prefixed(payload, self.status.as_bytes());
            put_length_prefixed(payload, self.file_name.as_bytes());
            numbers.into_iter().flatten().for_each(|number| put_fixed64(payload, number));
            put_fixed64(payload, u64::from(self.request_id.is_some()));
            if let Some(id) = &self.request_id {
                put_length_prefixed(payload, id.as_bytes());
            }
        })
    }

    fn decode(record: &[u8]) -> Result<Self, Corrupt> {
        const SHORT: Corrupt = Corrupt("a record of an I/O trace ends early");
        let (time_nanos, kind, mut payload) = parts(record)?;
        let payload = &mut payload;
        if kind != kind::IO {
            return Err(Corrupt("a record of an I/O trace is of another type"));
        }
        let text = |payload: &mut &[u8]| -> Result<String, Corrupt> {
            let bytes = get_length_prefixed(payload).ok_or(SHORT)?;
            Ok(String::from_utf8_lossy(bytes).into_owned())
        };
        let present = get_fixed64(payload).ok_or(SHORT)?;
        if present >= 1 << 3 {
            return Err(Corrupt("a record of an I/O trace has numbers that nobody knows"));
        }
        let operation = text(payload)?;
        let latency_nanos = get_fixed64(payload).ok_or(SHORT)?;
        let (status, file_name) = (text(payload)?, text(payload)?);
        let mut number = |bit: u64| match present & (1 << bit) {
            0 => Ok(None),
            _ => get_fixed64(payload).ok_or(SHORT).map(Some),
        };
        let (file_size, len, offset) = (number(0)?, number(1)?, number(2)?);
        let request_id = match get_fixed64(payload).ok_or(SHORT)? {
            0 => None,
            1 => Some(text(payload)?),
            _ => return Err(Corrupt("a record of an I/O trace has members that nobody knows")),
        };
        if !payload.is_empty() {
            return Err(Corrupt("a record of an I/O trace has bytes that mean nothing"));
        }
        let record = Self {
            time_nanos,
            operation,
            latency_nanos,
            status,
            file_name,
            file_size,
            len,
            offset,
            request_id,
        };
        Ok(record)
    }
}

/// Reads a trace of I/O, of Ironstone or RocksDB. A failure ends it.
pub struct IoTraceReader {
    reader: Box<dyn TraceReader>,
    version: (u32, u32),
    is_over: bool,
}

impl IoTraceReader {
    /// Reads what `reader` gives.
    ///
    /// # Errors
    /// What `reader` says about the first record; `Corruption` if that is not the beginning of such a trace.
    pub fn new(mut reader: Box<dyn TraceReader>) -> Result<Self> {
        let first = reader.read()?.unwrap_or_default();
        let version = HEADER.version(&first).map_err(|bad| reader.corrupt(&bad))?;
        Ok(Self { reader, version, is_over: false })
    }
    /// The major and minor version of the RocksDB that wrote it, or whose format it has.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }
}

impl Iterator for IoTraceReader {
    type Item = Result<IoTraceRecord>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let record = match self.reader.read() {
            Ok(None) => return None,
            Ok(Some(record)) => IoTraceRecord::decode(&record).map_err(|bad| self.reader.corrupt(bad.0)),
            Err(error) => Err(error),
        };
        self.is_over = record.is_err();
        Some(record)
    }
}

/// The trace of the I/O of a database, if one is being written.
pub(crate) struct IoTracing {
    clock: Arc<dyn Clock>,
    /// Relaxed: a call more or less at either end of a trace.
    is_on: AtomicBool,
    tracer: Mutex<Option<IoTracer>>,
}

struct IoTracer {
    max_bytes: u64,
    writer: Box<dyn TraceWriter>,
    /// Ends the trace.
    failure: Option<Error>,
}

impl IoTracing {
    pub(crate) fn new(clock: &Arc<dyn Clock>) -> Arc<Self> {
        let clock = Arc::clone(clock);
        Arc::new(Self { clock, is_on: AtomicBool::new(false), tracer: Mutex::default() })
    }
}

impl IoWatch for IoTracing {
    #[inline]
    fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }
    #[cold]
    fn note(&self, call: &IoCall<'_>) {
        let Some(tracer) = &mut *self.tracer.lock() else { return };
        if tracer.failure.is_some() || tracer.writer.size() > tracer.max_bytes {
            return;
        }
        let file_name = call.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let record = IoTraceRecord {
            time_nanos: self.clock.monotonic_nanos(), // Under the lock, so that times ascend.
            operation: call.operation.to_owned(),
            latency_nanos: call.nanos,
            status: call.error.map_or_else(|| "OK".to_owned(), ToString::to_string),
            file_name,
            file_size: call.file_size,
            len: call.len,
            offset: call.offset,
            request_id: None,
        };
        tracer.failure = tracer.writer.write(&record.encode()).err();
    }
}

impl Db {
    /// Begins a trace of I/O: from now on calls to the file system go to `writer`, with their times and results, until
    /// [`end_io_trace`](Self::end_io_trace). The format is RocksDB's, as are the names of calls; `Sync` is there, too. Of
    /// `options` the largest size counts. `writer` must not write through the database's file system. A failure of it ends the
    /// trace and nothing else.
    ///
    /// # Errors
    /// `Busy` if such a trace is being written; what `writer` says about the first record.
    pub fn start_io_trace(&self, options: &TraceOptions, mut writer: Box<dyn TraceWriter>) -> Result<()> {
        let tracing = &self.engine().io_tracing;
        let mut tracer = tracing.tracer.lock();
        if tracer.is_some() {
            return Err(Error::new(Code::Busy, "a trace of I/O is being written already"));
        }
        writer.write(&HEADER.record(tracing.clock.now_micros()))?;
        *tracer = Some(IoTracer { max_bytes: options.max_trace_file_size, writer, failure: None });
        tracing.is_on.store(true, Relaxed);
        Ok(())
    }

    /// Ends the trace of I/O.
    ///
    /// # Errors
    /// `InvalidArgument` if there is none; the first failure of its writer.
    pub fn end_io_trace(&self) -> Result<()> {
        let tracing = &self.engine().io_tracing;
        tracing.is_on.store(false, Relaxed);
        let tracer = tracing.tracer.lock().take();
        let mut tracer = tracer.ok_or_else(|| Error::invalid_argument("no trace of I/O is being written"))?;
        let closed = tracer.writer.close();
        tracer.failure.map_or(closed, Err)
    }
}

const _: () = assert!(RECORD_HEAD == 8 + 1 + 4);

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(numbers: [Option<u64>; 3], request_id: Option<&str>) -> IoTraceRecord {
        let [file_size, len, offset] = numbers;
        IoTraceRecord {
            time_nanos: 7,
            operation: "Read".to_owned(),
            latency_nanos: 900,
            status: "OK".to_owned(),
            file_name: "000012.sst".to_owned(),
            file_size,
            len,
            offset,
            request_id: request_id.map(str::to_owned),
        }
    }

    #[test]
    fn what_is_written_is_read_and_damage_is_told() {
        for numbers in [[None; 3], [Some(1), None, None], [None, Some(2), Some(3)], [Some(4); 3]] {
            for id in [None, Some("request")] {
                let record = sample(numbers, id);
                let bytes = record.encode();
                assert_eq!(IoTraceRecord::decode(&bytes), Ok(record));
                for len in 0..bytes.len() {
                    assert!(IoTraceRecord::decode(&bytes[..len]).is_err(), "{len}");
                }
                assert!(IoTraceRecord::decode(&[&bytes[..], b"x"].concat()).is_err());
                for at in 8..bytes.len() {
                    let mut changed = bytes.clone();
                    changed[at] ^= 0x81;
                    let _ = IoTraceRecord::decode(&changed); // Whatever it says, it says it.
                }
            }
        }
        let mut unknown = sample([None; 3], None).encode();
        unknown[RECORD_HEAD] = 8;
        assert!(IoTraceRecord::decode(&unknown).is_err());
        let head = HEADER.record(5);
        assert!((0..head.len()).all(|len| HEADER.version(&head[..len]).is_err()));
        assert!(HEADER.version(&sample([None; 3], None).encode()).is_err());
    }

    /// By hand, from the format.
    #[test]
    fn the_bytes_are_rocksdbs() {
        let record = sample([None, Some(0x2000), Some(0x10)], None);
        let expected = [
            &b"\x07\0\0\0\0\0\0\0\x0c\x46\0\0\0\x06\0\0\0\0\0\0\0\x04Read\x84\x03\0\0\0\0\0\0"[..],
            b"\x02OK\x0a000012.sst\0\x20\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        ];
        let bytes = record.encode();
        let mut expected = expected.concat();
        expected[9] = (expected.len() - RECORD_HEAD) as u8;
        assert_eq!(bytes, expected);
    }

    /// A put, a flush and reads.
    #[test]
    fn a_trace_of_rocksdb_is_read_and_would_be_written_alike() {
        let mut rest = &include_bytes!("../../testdata/rocksdb-7.8.3-io.trace")[..];
        let mut records = Vec::new();
        while !rest.is_empty() {
            let len = u32::from_le_bytes(*rest[9..].first_chunk().unwrap()) as usize;
            let (record, after) = rest.split_at(RECORD_HEAD + len);
            records.push(record);
            rest = after;
        }
        assert_eq!(HEADER.version(records[0]), Ok((7, 8)));
        let decoded: Vec<_> =
            records[1..].iter().map(|record| IoTraceRecord::decode(record).unwrap()).collect();
        for (record, bytes) in decoded.iter().zip(&records[1..]) {
            assert_eq!(record.encode(), *bytes, "{record:?}");
        }
        let has = |operation: &str, file: &str| {
            decoded.iter().any(|record| record.operation == operation && record.file_name == file)
        };
        assert!(
            has("Append", "000004.log")
                && has("NewWritableFile", "000008.log")
                && has("Append", "000009.sst")
        );
        assert!(has("Prefetch", "000009.sst") && decoded.iter().all(|record| record.status == "OK"));
        let prefetch = decoded.iter().find(|record| record.operation == "Prefetch").unwrap();
        assert_eq!((prefetch.file_size, prefetch.len, prefetch.offset), (None, Some(0x3ef), Some(0)));
    }
}
