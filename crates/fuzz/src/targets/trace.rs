//! Traces of queries, of I/O and of the block cache.
//!
//! ```text
//! kind  u8   by 3: 0 queries, 1 I/O, 2 the block cache; bit 7: the right head goes before
//! file  the rest
//! ```
//! A trace is read up to its end or to the first damage, which is told with the file and where; after that there is nothing. What was
//! read of the block cache can be printed, one line with 21 parts.

use super::{Seed, Target};
use crate::input::{Input, MAX_INPUT};
use crate::judge::{Steps, check_error};
use ironstone::vfs::{FileSystem, ManualClock};
use ironstone::{
    BlockCacheHumanReadableTrace, BlockCacheTraceOptions, BlockCacheTraceReader, Db, Error, FileTraceReader,
    FileTraceWriter, IoTraceReader, Options, Replayer, TraceOperation, TraceOptions,
};
use ironstone_base::sync::Arc;
use ironstone_vfs::mem::MemFileSystem;
use std::cell::OnceCell;
use std::path::Path;

pub(super) const TARGET: Target = Target {
    name: "trace",
    what: "traces of queries, I/O and the block cache",
    run,
    seeds,
    mutations: 60_000,
};

const PATH: &str = "/some.trace";
const MAGIC: &str = "feedcafedeadbeef";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Queries,
    Io,
    BlockCache,
}

/// The first record of a trace.
fn head(kind: Kind) -> Vec<u8> {
    let payload = match kind {
        Kind::Queries => {
            format!("{MAGIC}\tTrace Version: 0.2\tRocksDB Version: 11.12\tFormat: x\n").into_bytes()
        }
        Kind::Io | Kind::BlockCache => {
            [&[16][..], MAGIC.as_bytes(), &11_u32.to_le_bytes(), &12_u32.to_le_bytes()].concat()
        }
    };
    [&1_u64.to_le_bytes()[..], &[1], &(payload.len() as u32).to_le_bytes(), &payload].concat()
}

thread_local! {
    /// A trace of queries is read on behalf of a database, which is asked nothing.
    static DATABASE: OnceCell<Db> = const { OnceCell::new() };
}

fn run(bytes: &[u8]) {
    let mut input = Input::new(&bytes[..bytes.len().min(MAX_INPUT)]);
    let shape = input.byte();
    let kind = [Kind::Queries, Kind::Io, Kind::BlockCache][usize::from(shape % 0x80 % 3)];
    let mut file = if shape & 0x80 != 0 { head(kind) } else { Vec::new() };
    file.extend_from_slice(input.rest());
    let fs = MemFileSystem::volatile();
    fs.write_all_synced(Path::new(PATH), &file).expect("a write to memory");
    let reader = || Box::new(FileTraceReader::open(&fs, PATH).expect("it is there"));
    let most = file.len() / 13 + 1;
    match kind {
        Kind::Queries => read_queries(reader(), most),
        Kind::Io => {
            let trace = IoTraceReader::new(reader());
            read_all(trace, most, |record| assert!(record.operation.len() <= file.len()));
        }
        Kind::BlockCache => {
            let mut readable = BlockCacheHumanReadableTrace::default();
            let trace = BlockCacheTraceReader::new(reader());
            read_all(trace, most, |record| {
                let line = readable.line(&record);
                assert_eq!(line.split(',').count(), 21, "{line}");
                assert!(!line.contains('\n'));
            });
        }
    }
}

fn judge(error: &Error) {
    check_error(error, Some(PATH));
    assert!(error.is_corruption(), "of a file in memory: {error}");
}

fn read_all<T>(
    trace: Result<impl Iterator<Item = Result<T, Error>>, Error>,
    most: usize,
    mut look: impl FnMut(T),
) {
    let mut trace = match trace {
        Ok(trace) => trace,
        Err(error) => return judge(&error),
    };
    let mut steps = Steps::new("a trace", most);
    while let Some(record) = trace.next() {
        steps.take();
        match record {
            Ok(record) => look(record),
            Err(error) => {
                judge(&error);
                assert!(trace.next().is_none(), "a trace goes on after damage");
                return;
            }
        }
    }
}

fn read_queries(reader: Box<FileTraceReader>, most: usize) {
    DATABASE.with(|database| {
        let db = database.get_or_init(|| Db::open(&Options::in_memory(), "/db").expect("in memory"));
        let mut replayer = match Replayer::new(db, &[], reader) {
            Ok(replayer) => replayer,
            Err(error) => return judge(&error),
        };
        let mut steps = Steps::new("a trace", most);
        loop {
            match replayer.next() {
                Ok(None) => return,
                Ok(Some(record)) => {
                    steps.take();
                    if let TraceOperation::Write(batch) = &record.operation {
                        let _ = batch.count(); // What is no batch is damage, and no record.
                    }
                }
                Err(error) => return judge(&error),
            }
        }
    });
}

fn seeds() -> Vec<Seed> {
    let mut options = Options::in_memory();
    options.cf.table.cache_index_and_filter_blocks = true;
    options.db.env.clock = Arc::new(ManualClock::new(1_000_000));
    let fs = Arc::clone(&options.db.env.fs);
    let db = Db::open(&options, "/db").expect("in memory");
    let writer = |name: &str| Box::new(FileTraceWriter::create(&*fs, name).expect("in memory"));
    let of_io = Arc::new(MemFileSystem::volatile());
    db.start_trace(&TraceOptions::default(), writer("/queries")).expect("it is new");
    let io = FileTraceWriter::create(&*of_io, "/io").expect("in memory");
    db.start_io_trace(&TraceOptions::default(), Box::new(io)).expect("it is new");
    let blocks = BlockCacheTraceOptions::default();
    db.start_block_cache_trace(&blocks, writer("/blocks")).expect("it is new");
    for key in ["a", "b", "c"] {
        db.put(key, "value").expect("in memory");
    }
    db.flush().expect("in memory");
    db.get("b").expect("in memory");
    db.multi_get(&["a", "c", "d"]);
    db.iter().and_then(|mut iter| iter.seek("b")).expect("in memory");
    db.end_trace().and_then(|()| db.end_io_trace()).expect("in memory");
    db.end_block_cache_trace().expect("in memory");
    let bytes = |fs: &dyn FileSystem, name: &str| fs.read_all(Path::new(name)).expect("in memory");
    let all = [
        ("queries", 0, bytes(&*fs, "/queries")),
        ("io", 1, bytes(&*of_io, "/io")),
        ("block_cache", 2, bytes(&*fs, "/blocks")),
    ];
    let mut seeds = Vec::new();
    for (name, number, trace) in all {
        seeds.push(Seed::new(name, [&[number][..], &trace].concat()));
        let kind = [Kind::Queries, Kind::Io, Kind::BlockCache][usize::from(number)];
        // 0x80 plus what is the number by 3.
        let second = trace.get(head_len(&trace)..).unwrap_or_default();
        debug_assert_eq!(head(kind)[8], 1);
        seeds.push(Seed::new(format!("{name}_without_head"), [&[0x80 + number][..], second].concat()));
    }
    let old = b"\x01\0\0\0\0\0\0\0\x01\x24\0\0\0feedcafedeadbeef\tTrace Version: 0.1\t";
    let get = b"\x02\0\0\0\0\0\0\0\x04\x08\0\0\0\0\0\0\0\x03key";
    seeds.push(Seed::new("old_queries", [&[0][..], old, get].concat()));
    seeds
}

fn head_len(trace: &[u8]) -> usize {
    trace
        .get(9..13)
        .and_then(|len| len.try_into().ok())
        .map_or(0, |len| 13 + u32::from_le_bytes(len) as usize)
}
