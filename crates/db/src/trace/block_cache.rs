//! Traces of what tables ask the block cache for, in RocksDB's format.
//!
//! ```text
//! record     time u64 LE, microseconds since 1970 | type u8 | length of the payload u32 LE | payload
//! begin      1        magic, prefixed by its length | major version u32 LE | minor version u32 LE
//! block      7 to 11  index, filter, data, dictionary, range tombstones; 14: not known
//!                     block key, prefixed | size u64 LE | column family u64 LE | its name, prefixed
//!                     level u32 LE | file number u64 LE | caller u8 | was in the cache u8 | not to be inserted u8
//!                     of point reads: their number u64 LE | at a snapshot u8 | internal key, prefixed
//!                     of those, and data blocks: size of the entry u64 LE | keys in the block u64 LE | is there u8
//! ```
//! There is no last record.

use super::TraceOptions;
use super::file::{TraceReader, TraceWriter};
use super::record::{encode, parts};
use super::version_header::VersionHeader;
use crate::{Db, ReadOptions};
use ironstone_base::coding::{
    get_fixed32, get_fixed64, get_length_prefixed, get_varint64, put_fixed32, put_fixed64,
    put_length_prefixed,
};
use ironstone_base::hash::xxh3_64;
use ironstone_base::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use ironstone_base::sync::{Arc, Mutex};
use ironstone_base::{Code, Corrupt, Error, InternalKey, InternalKeyBuf, Result, SequenceNumber};
use ironstone_sst::block_trace::{
    BlockCacheTraceRecord, BlockCacheWatch, TableReaderCaller, TracedBlock, TracedCall,
};
use ironstone_vfs::Clock;
use std::collections::HashMap;

const HEADER: VersionHeader = VersionHeader { name: "a trace of the block cache" };

/// What goes into a trace of the block cache. RocksDB: `BlockCacheTraceOptions` and `BlockCacheTraceWriterOptions`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockCacheTraceOptions {
    /// One in so many blocks goes into the trace, chosen by their keys, each with all that is asked of it. Default 1, as 0: all
    /// of them.
    pub sampling_frequency: u64,
    /// Nothing is added to a trace of more bytes. Default: 64 GiB.
    pub max_trace_file_size: u64,
}

impl Default for BlockCacheTraceOptions {
    fn default() -> Self {
        Self { sampling_frequency: 1, max_trace_file_size: 64 << 30 }
    }
}

impl From<&TraceOptions> for BlockCacheTraceOptions {
    fn from(options: &TraceOptions) -> Self {
        let TraceOptions { sampling_frequency, max_trace_file_size, .. } = *options;
        Self { sampling_frequency, max_trace_file_size }
    }
}

impl BlockCacheTraceOptions {
    fn takes(&self, block_key: &[u8]) -> bool {
        let place = u128::from(xxh3_64(block_key)) * u128::from(self.sampling_frequency);
        self.sampling_frequency <= 1 || place >> 64 == 0
    }
}

fn is_of_data_and_point_read(record: &BlockCacheTraceRecord) -> bool {
    record.block_type == TracedBlock::Data && record.caller.is_point_read()
}

/// The bytes of a record.
fn encoded(record: &BlockCacheTraceRecord) -> Vec<u8> {
    encode(record.access_timestamp, record.block_type as u8, |payload| {
        put_length_prefixed(payload, &record.block_key);
        put_fixed64(payload, record.block_size);
        put_fixed64(payload, record.cf_id);
        put_length_prefixed(payload, record.cf_name.as_bytes());
        put_fixed32(payload, record.level);
        put_fixed64(payload, record.sst_fd_number);
        payload.extend([record.caller as u8, record.is_cache_hit.into(), record.no_insert.into()]);
        if record.caller.is_point_read() {
            put_fixed64(payload, record.get_id);
            payload.push(record.get_from_user_specified_snapshot.into());
            put_length_prefixed(payload, &record.referenced_key);
        }
        if is_of_data_and_point_read(record) {
            put_fixed64(payload, record.referenced_data_size);
            put_fixed64(payload, record.num_keys_in_block);
            payload.push(record.referenced_key_exist_in_block.into());
        }
    })
}

const SHORT: Corrupt = Corrupt("a record of a trace of the block cache ends early");

fn number(payload: &mut &[u8]) -> Result<u64, Corrupt> {
    get_fixed64(payload).ok_or(SHORT)
}
fn bytes(payload: &mut &[u8]) -> Result<Vec<u8>, Corrupt> {
    get_length_prefixed(payload).map(<[u8]>::to_vec).ok_or(SHORT)
}
fn byte(payload: &mut &[u8]) -> Result<u8, Corrupt> {
    let (first, rest) = payload.split_first().ok_or(SHORT)?;
    *payload = rest;
    Ok(*first)
}
fn flag(payload: &mut &[u8]) -> Result<bool, Corrupt> {
    match byte(payload)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Corrupt("a record of a trace of the block cache has a flag that is neither 0 nor 1")),
    }
}

/// The record that these bytes are.
fn decoded(record: &[u8]) -> Result<BlockCacheTraceRecord, Corrupt> {
    let (access_timestamp, kind, mut payload) = parts(record)?;
    let payload = &mut payload;
    let unknown = Corrupt("a record of a trace of the block cache has an unknown type");
    let block_type = TracedBlock::from_number(kind).ok_or(unknown)?;
    let block_key = bytes(payload)?;
    let (block_size, cf_id) = (number(payload)?, number(payload)?);
    let cf_name = String::from_utf8_lossy(&bytes(payload)?).into_owned();
    let level = get_fixed32(payload).ok_or(SHORT)?;
    let sst_fd_number = number(payload)?;
    let unknown = Corrupt("a record of a trace of the block cache has an unknown caller");
    let caller = TableReaderCaller::from_number(byte(payload)?).ok_or(unknown)?;
    let mut record = BlockCacheTraceRecord {
        access_timestamp,
        block_key,
        block_type,
        block_size,
        cf_id,
        cf_name,
        level,
        sst_fd_number,
        caller,
        is_cache_hit: flag(payload)?,
        no_insert: flag(payload)?,
        get_id: 0,
        get_from_user_specified_snapshot: false,
        referenced_key: Vec::new(),
        referenced_data_size: 0,
        num_keys_in_block: 0,
        referenced_key_exist_in_block: false,
    };
    if caller.is_point_read() {
        record.get_id = number(payload)?;
        record.get_from_user_specified_snapshot = flag(payload)?;
        record.referenced_key = bytes(payload)?;
    }
    if is_of_data_and_point_read(&record) {
        record.referenced_data_size = number(payload)?;
        record.num_keys_in_block = number(payload)?;
        record.referenced_key_exist_in_block = flag(payload)?;
    }
    match payload.is_empty() {
        true => Ok(record),
        false => Err(Corrupt("a record of a trace of the block cache has bytes that mean nothing")),
    }
}

/// Reads a trace of the block cache, of Ironstone or RocksDB. A failure ends it.
pub struct BlockCacheTraceReader {
    reader: Box<dyn TraceReader>,
    version: (u32, u32),
    is_over: bool,
}

impl BlockCacheTraceReader {
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

impl Iterator for BlockCacheTraceReader {
    type Item = Result<BlockCacheTraceRecord>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let record = match self.reader.read() {
            Ok(None) => return None,
            Ok(Some(record)) => decoded(&record).map_err(|bad| self.reader.corrupt(bad.0)),
            Err(error) => Err(error),
        };
        self.is_over = record.is_err();
        Some(record)
    }
}

/// Makes the lines of RocksDB's readable trace of the block cache, which its scripts read: 21 numbers and a name, with commas between
/// them. Blocks, and the keys of point reads, get numbers from 1 on in the order in which they come.
#[derive(Default)]
pub struct BlockCacheHumanReadableTrace {
    blocks: HashMap<Vec<u8>, u64>,
    keys: HashMap<(u64, Vec<u8>), u64>,
}

impl BlockCacheHumanReadableTrace {
    /// The line of a record, without its end.
    pub fn line(&mut self, record: &BlockCacheTraceRecord) -> String {
        let next = self.blocks.len() as u64 + 1;
        let block = *self.blocks.entry(record.block_key.clone()).or_insert(next);
        let internal = InternalKey::from_bytes(&record.referenced_key).ok();
        let internal = internal.filter(|_| record.caller.is_point_read());
        let key = internal.map_or(0, |key| {
            let next = self.keys.len() as u64 + 1;
            *self.keys.entry((record.sst_fd_number, key.user_key().to_vec())).or_insert(next)
        });
        // RocksDB's guess for its users that begin keys so.
        let first_bytes = record.referenced_key.first_chunk().filter(|_| record.caller.is_point_read());
        let table = first_bytes.map_or(0, |bytes| u64::from(u32::from_le_bytes(*bytes)) + 1);
        let sequence = match record.get_from_user_specified_snapshot {
            true => internal.map_or(0, |key| key.sequence().0 + 1),
            false => 0,
        };
        let mut parts = [
            record.access_timestamp.to_string(),
            block.to_string(),
            (record.block_type as u8).to_string(),
            record.block_size.to_string(),
            record.cf_id.to_string(),
            record.cf_name.clone(),
            record.level.to_string(),
            record.sst_fd_number.to_string(),
            (record.caller as u8).to_string(),
            u8::from(record.no_insert).to_string(),
            record.get_id.to_string(),
            key.to_string(),
            record.referenced_data_size.to_string(),
            u8::from(record.is_cache_hit).to_string(),
            u8::from(record.referenced_key_exist_in_block).to_string(),
            record.num_keys_in_block.to_string(),
            table.to_string(),
            sequence.to_string(),
            record.block_key.len().to_string(),
            record.referenced_key.len().to_string(),
            block_offset(&record.block_key).to_string(),
        ];
        parts[5].retain(|c| c != ',' && c != '\n'); // It would be read as two.
        parts.join(",")
    }
}

/// The last varint64 of a block's key, which is its offset in the keys of this library.
fn block_offset(mut key: &[u8]) -> u64 {
    std::iter::from_fn(|| get_varint64(&mut key)).last().unwrap_or(0)
}

/// The trace of the block cache of a database, if one is being written.
pub(crate) struct BlockCacheTracing {
    clock: Arc<dyn Clock>,
    /// Relaxed: a block more or less at either end of a trace.
    is_on: Arc<AtomicBool>,
    /// The next number of a point read; 0 is none.
    next_get_id: AtomicU64,
    tracer: Mutex<Option<BlockCacheTracer>>,
}

struct BlockCacheTracer {
    options: BlockCacheTraceOptions,
    writer: Box<dyn TraceWriter>,
    /// Ends the trace.
    failure: Option<Error>,
}

impl BlockCacheTracing {
    pub(crate) fn new(clock: &Arc<dyn Clock>) -> Arc<Self> {
        let (clock, is_on) = (Arc::clone(clock), Arc::new(AtomicBool::new(false)));
        Arc::new(Self { clock, is_on, next_get_id: AtomicU64::new(1), tracer: Mutex::default() })
    }
    #[inline]
    pub(crate) fn is_tracing(&self) -> bool {
        self.is_on.load(Relaxed)
    }
    /// From now on this thread reads `key` at `at`, or several keys, if there is a trace.
    #[inline]
    pub(crate) fn point_read(
        &self,
        caller: TableReaderCaller,
        options: &ReadOptions,
        key: Option<(&[u8], SequenceNumber)>,
    ) -> Option<TracedCall> {
        self.is_tracing().then(|| self.begin_point_read(caller, options, key))
    }
    #[cold]
    fn begin_point_read(
        &self,
        caller: TableReaderCaller,
        options: &ReadOptions,
        key: Option<(&[u8], SequenceNumber)>,
    ) -> TracedCall {
        let id = match self.next_get_id.fetch_add(1, Relaxed) {
            0 => self.next_get_id.fetch_add(1, Relaxed),
            id => id,
        };
        let key = key.map(|(key, at)| InternalKeyBuf::for_seek(key, at));
        let key = key.as_ref().map(InternalKeyBuf::as_key);
        TracedCall::point_read(caller, id, options.snapshot.is_some(), key)
    }
}

impl BlockCacheWatch for BlockCacheTracing {
    fn is_on(&self) -> &Arc<AtomicBool> {
        &self.is_on
    }
    #[cold]
    fn note(&self, mut record: BlockCacheTraceRecord) {
        let Some(tracer) = &mut *self.tracer.lock() else { return };
        if tracer.failure.is_some()
            || !tracer.options.takes(&record.block_key)
            || tracer.writer.size() > tracer.options.max_trace_file_size
        {
            return;
        }
        record.access_timestamp = self.clock.now_micros(); // Under the lock, so that times ascend.
        tracer.failure = tracer.writer.write(&encoded(&record)).err();
    }
}

impl Db {
    /// Begins a trace of the block cache: from now on each block that a table asks it for goes to `writer`, with who asked and
    /// whether it was there, until [`end_block_cache_trace`](Self::end_block_cache_trace). The format is RocksDB's. Blocks that a
    /// table holds itself are not asked for, and not part of it. A failure of `writer` ends the trace and nothing else.
    ///
    /// # Errors
    /// `Busy` if such a trace is being written; what `writer` says about the first record.
    pub fn start_block_cache_trace(
        &self,
        options: &BlockCacheTraceOptions,
        mut writer: Box<dyn TraceWriter>,
    ) -> Result<()> {
        let engine = self.engine();
        let tracing = &engine.block_cache_tracing;
        let mut tracer = tracing.tracer.lock();
        if tracer.is_some() {
            return Err(Error::new(Code::Busy, "a trace of the block cache is being written already"));
        }
        writer.write(&HEADER.record(tracing.clock.now_micros()))?;
        *tracer = Some(BlockCacheTracer { options: options.clone(), writer, failure: None });
        tracing.next_get_id.store(1, Relaxed);
        tracing.is_on.store(true, Relaxed);
        drop(tracer);
        engine.settle_watching();
        Ok(())
    }

    /// Ends the trace of the block cache, if there is one.
    ///
    /// # Errors
    /// The first failure of its writer.
    pub fn end_block_cache_trace(&self) -> Result<()> {
        let engine = self.engine();
        let tracing = &engine.block_cache_tracing;
        let mut held = tracing.tracer.lock();
        let Some(mut tracer) = held.take() else { return Ok(()) };
        tracing.is_on.store(false, Relaxed);
        drop(held);
        engine.settle_watching();
        let closed = tracer.writer.close();
        tracer.failure.map_or(closed, Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::record::RECORD_HEAD;
    use ironstone_base::coding::put_varint64;

    fn sample(block_type: TracedBlock, caller: TableReaderCaller) -> BlockCacheTraceRecord {
        let reads_key = caller.is_point_read();
        let reads_data = reads_key && block_type == TracedBlock::Data;
        let mut block_key = Vec::new();
        put_varint64(&mut block_key, u64::MAX);
        put_varint64(&mut block_key, 4711);
        BlockCacheTraceRecord {
            access_timestamp: 9,
            block_key,
            block_type,
            block_size: 4096,
            cf_id: 2,
            cf_name: "family".to_owned(),
            level: 5,
            sst_fd_number: 12,
            caller,
            is_cache_hit: true,
            no_insert: false,
            get_id: if reads_key { 77 } else { 0 },
            get_from_user_specified_snapshot: reads_key,
            referenced_key: if reads_key { b"\x04\0\0\0\x01\x06\0\0\0\0\0\0".to_vec() } else { Vec::new() },
            referenced_data_size: if reads_data { 100 } else { 0 },
            num_keys_in_block: if reads_data { 33 } else { 0 },
            referenced_key_exist_in_block: reads_data,
        }
    }

    fn samples() -> Vec<BlockCacheTraceRecord> {
        let kinds = (7..=11).map(|number| TracedBlock::from_number(number).unwrap());
        let callers = || (1..=14).map(|number| TableReaderCaller::from_number(number).unwrap());
        kinds.flat_map(|kind| callers().map(move |caller| sample(kind, caller))).collect()
    }

    #[test]
    fn what_is_written_is_read_and_damage_is_told() {
        assert_eq!(HEADER.version(&HEADER.record(5)), Ok((11, 12)));
        for record in samples() {
            let bytes = encoded(&record);
            assert_eq!(decoded(&bytes), Ok(record));
            for len in 0..bytes.len() {
                assert!(decoded(&bytes[..len]).is_err(), "{len}");
            }
            assert!(decoded(&[&bytes[..], b"x"].concat()).is_err());
            for at in 8..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 0x81;
                let _ = decoded(&changed); // Whatever it says, it says it.
            }
        }
        assert!(TracedBlock::from_number(13).is_none() && TracedBlock::from_number(6).is_none());
        assert!(TableReaderCaller::from_number(0).is_none() && TableReaderCaller::from_number(15).is_none());
    }

    /// As `BlockCacheTraceWriterImpl` lays out a record.
    #[test]
    fn bytes_are_those_of_the_format() {
        let record = sample(TracedBlock::Data, TableReaderCaller::UserGet);
        let mut expected = 9_u64.to_le_bytes().to_vec();
        expected.push(9);
        let mut payload = vec![12];
        payload.extend(&record.block_key);
        payload.extend(4096_u64.to_le_bytes());
        payload.extend(2_u64.to_le_bytes());
        payload.extend(b"\x06family");
        payload.extend(5_u32.to_le_bytes());
        payload.extend(12_u64.to_le_bytes());
        payload.extend([1, 1, 0]);
        payload.extend(77_u64.to_le_bytes());
        payload.push(1);
        payload.extend(b"\x0c\x04\0\0\0\x01\x06\0\0\0\0\0\0");
        payload.extend(100_u64.to_le_bytes());
        payload.extend(33_u64.to_le_bytes());
        payload.push(1);
        expected.extend((payload.len() as u32).to_le_bytes());
        assert_eq!(expected.len(), RECORD_HEAD);
        expected.extend(payload);
        assert_eq!(encoded(&record), expected);
    }

    /// The records of a whole trace.
    fn records_of(mut rest: &[u8]) -> Vec<&[u8]> {
        let mut records = Vec::new();
        while !rest.is_empty() {
            let len = u32::from_le_bytes(*rest[9..].first_chunk().unwrap()) as usize;
            let (record, after) = rest.split_at(RECORD_HEAD + len);
            records.push(record);
            rest = after;
        }
        records
    }

    /// Gets, and multi-gets of four keys, of Debian's db_bench.
    #[test]
    fn traces_of_rocksdb_are_read_and_would_be_written_alike() {
        let gets = &include_bytes!("../../testdata/rocksdb-7.8.3-block-cache-get.trace")[..];
        let multi_gets = &include_bytes!("../../testdata/rocksdb-7.8.3-block-cache-multi-get.trace")[..];
        let [gets, multi_gets] = [gets, multi_gets].map(|trace| {
            let records = records_of(trace);
            assert_eq!(HEADER.version(records[0]), Ok((7, 8)));
            let decoded = records[1..].iter().map(|record| decoded(record).unwrap());
            let decoded: Vec<BlockCacheTraceRecord> = decoded.collect();
            for (record, bytes) in decoded.iter().zip(&records[1..]) {
                assert_eq!(encoded(record), *bytes, "{record:?}");
            }
            decoded
        });
        assert_eq!((gets.len(), multi_gets.len()), (15, 11));
        for (at, record) in gets.iter().enumerate() {
            let kind = [TracedBlock::Filter, TracedBlock::Index, TracedBlock::Data][at % 3];
            assert_eq!((record.caller, record.block_type), (TableReaderCaller::UserGet, kind));
            assert_eq!((record.get_id, record.level, record.sst_fd_number), (at as u64 / 3 + 1, 1, 10));
        }
        let data = &gets[2];
        assert_eq!((data.block_size, data.num_keys_in_block, data.referenced_data_size), (4144, 64, 84));
        assert!(data.referenced_key_exist_in_block && !data.is_cache_hit && gets[14].is_cache_hit);
        assert!(multi_gets.iter().all(|record| record.caller == TableReaderCaller::UserMultiGet));
        assert_eq!(multi_gets[2].block_type, TracedBlock::Unknown);
        let mut readable = BlockCacheHumanReadableTrace::default();
        let line = gets.iter().map(|record| readable.line(record)).nth(2).unwrap();
        assert!(
            line.starts_with(&format!(
                "{},3,9,4144,0,default,1,10,1,0,1,1,84,0,1,64,",
                data.access_timestamp
            ))
        );
    }

    #[test]
    fn readable_lines_have_what_rocksdb_prints() {
        let mut trace = BlockCacheHumanReadableTrace::default();
        let mut record = sample(TracedBlock::Data, TableReaderCaller::UserGet);
        assert_eq!(
            trace.line(&record),
            "9,1,9,4096,2,family,5,12,1,0,77,1,100,1,1,33,5,7,12,12,4711",
            "{record:?}"
        );
        record.block_key.push(1);
        record.referenced_key[0] = 5;
        record.get_from_user_specified_snapshot = false;
        assert_eq!(trace.line(&record), "9,2,9,4096,2,family,5,12,1,0,77,2,100,1,1,33,6,0,13,12,1");
        let other = sample(TracedBlock::Index, TableReaderCaller::Compaction);
        assert_eq!(trace.line(&other), "9,1,7,4096,2,family,5,12,10,0,0,0,0,1,0,0,0,0,12,0,4711");
    }

    #[test]
    fn samples_are_chosen_by_key() {
        let key = |n: u64| n.to_le_bytes();
        for frequency in [0, 1] {
            let all = BlockCacheTraceOptions { sampling_frequency: frequency, ..Default::default() };
            assert!((0..100).all(|n| all.takes(&key(n))));
        }
        let some = BlockCacheTraceOptions { sampling_frequency: 10, ..Default::default() };
        let taken = (0..10_000).filter(|n| some.takes(&key(*n))).count();
        assert!((800..1200).contains(&taken), "{taken}");
        assert_eq!(taken, (0..10_000).filter(|n| some.takes(&key(*n))).count());
    }
}
