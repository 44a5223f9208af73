//! Benchmarks of checksums, compression and the machine, without the database.

use crate::db_bench::engine_options::compression_kind;
use crate::db_bench::stats::Operation;
use crate::db_bench::worker::Worker;
use ironstone::{CompressionOptions, Result};
use ironstone_base::checksum::crc32c;
use ironstone_base::hash::{xxh3_64, xxh32, xxh64};
use ironstone_base::sync::atomic::{AtomicU64, Ordering};
use ironstone_compress::{Compressor, Decompressor};
use std::hint::black_box;

const MIB: u64 = 1 << 20;
/// Checksums go over so much.
const HASHED_BYTES: u64 = 5000 * MIB;
/// Codecs go over so much.
const CODED_BYTES: u64 = 1024 * MIB;
/// The framing of blocks that both tools time.
const FORMAT_VERSION: u32 = 2;

/// CRC-32C of blocks.
pub fn crc(worker: &mut Worker<'_>) -> Result<()> {
    hash(worker, Operation::Crc, |data| u64::from(crc32c(data)))
}
/// XXH32 of blocks.
pub fn xxhash(worker: &mut Worker<'_>) -> Result<()> {
    hash(worker, Operation::Hash, |data| u64::from(xxh32(data)))
}
/// XXH64 of blocks.
pub fn xxhash64(worker: &mut Worker<'_>) -> Result<()> {
    hash(worker, Operation::Hash, xxh64)
}
/// XXH3 of blocks.
pub fn xxh3(worker: &mut Worker<'_>) -> Result<()> {
    hash(worker, Operation::Hash, xxh3_64)
}

fn hash(worker: &mut Worker<'_>, operation: Operation, function: impl Fn(&[u8]) -> u64) -> Result<()> {
    let data = vec![b'x'; block_size(worker)];
    let mut bytes = 0;
    while bytes < HASHED_BYTES {
        black_box(function(black_box(&data)));
        bytes += data.len() as u64;
        worker.finished(1, operation);
    }
    worker.stats.add_bytes(bytes);
    worker.stats.add_message(&format!("({} per op)", data.len()));
    Ok(())
}

fn block_size(worker: &Worker<'_>) -> usize {
    let given = worker.run.flags.others.get("block_size").and_then(|text| text.parse().ok());
    given.filter(|&size: &usize| size > 0).unwrap_or(4096)
}

/// Loads with acquire ordering, a thousand at a time.
pub fn acquire_load(worker: &mut Worker<'_>) -> Result<()> {
    let place = AtomicU64::new(1);
    worker.stats.add_message("(each op is 1000 loads)");
    for _ in 0..100_000 {
        for _ in 0..1000 {
            black_box(black_box(&place).load(Ordering::Acquire));
        }
        worker.finished(1, Operation::Other);
    }
    Ok(())
}

fn compressor(worker: &Worker<'_>) -> Result<Compressor> {
    let options = CompressionOptions { level: worker.run.flags.compression_level, ..Default::default() };
    Compressor::new(compression_kind(&worker.run.flags.compression_type)?, &options, None)
}

/// Compresses one block over and over.
pub fn compress(worker: &mut Worker<'_>) -> Result<()> {
    let mut codec = compressor(worker)?;
    let input = worker.values()?.bytes(block_size(worker)).to_vec();
    let mut output = Vec::with_capacity(2 * input.len());
    let (mut bytes, mut produced) = (0, 0);
    while bytes < CODED_BYTES {
        output.clear();
        if !codec.compress(&input, &mut output, FORMAT_VERSION)? {
            worker.stats.add_message("(compression failure)");
            return Ok(());
        }
        produced += output.len() as u64;
        bytes += input.len() as u64;
        worker.finished(1, Operation::Compress);
    }
    worker.stats.add_message(&format!("(output: {:.1}%)", produced as f64 * 100.0 / bytes as f64));
    worker.stats.add_bytes(bytes);
    Ok(())
}

/// Decompresses one block over and over.
pub fn uncompress(worker: &mut Worker<'_>) -> Result<()> {
    let mut codec = compressor(worker)?;
    let input = worker.values()?.bytes(block_size(worker)).to_vec();
    let mut compressed = Vec::new();
    if !codec.compress(&input, &mut compressed, FORMAT_VERSION)? {
        worker.stats.add_message("(compression failure)");
        return Ok(());
    }
    let decompressor = Decompressor::new(None);
    let mut bytes = 0;
    while bytes < CODED_BYTES {
        let mut output = Vec::new(); // As for a block that goes into the cache.
        let done =
            decompressor.decompress(codec.kind(), &compressed, FORMAT_VERSION, input.len(), &mut output);
        if done.is_err() {
            worker.stats.add_message("(decompression failure)");
            return Ok(());
        }
        black_box(&output);
        bytes += input.len() as u64;
        worker.finished(1, Operation::Uncompress);
    }
    worker.stats.add_bytes(bytes);
    Ok(())
}
