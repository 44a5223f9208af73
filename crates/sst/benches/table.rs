//! How fast tables are built and read: 16-byte keys, 100-byte values, nothing on disk but the page cache.
//!
//! `cargo bench -p ironstone-sst --bench table -- [build|cached|small|hash|bloom|uncached]`

use ironstone_base::sync::Arc;
use ironstone_base::{FileNumber, InternalKeyBuf, SequenceNumber, ValueType};
use ironstone_cache::{Cache, CacheOptions};
use ironstone_compress::CompressionKind;
use ironstone_iter::InternalIterator;
use ironstone_sst::*;
use ironstone_vfs::mem::MemFileSystem;
use ironstone_vfs::{FileSystem, OpenHints, WriteOptions};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::hint::black_box;
use std::path::Path;

const COUNT: u64 = 500_000;
const PATH: &str = "/bench/000001.sst";
const REPEATS: usize = 5;

fn key(i: u64) -> [u8; 16] {
    let mut key = *b"0000000000000000";
    let mut rest = i * 2;
    for place in key.iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// What this thread has used of the processor: other load on the machine does not count.
fn cpu_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The fastest of some runs, in nanoseconds per step.
fn time(name: &str, steps: u64, mut run: impl FnMut()) {
    let mut best = u64::MAX;
    for _ in 0..REPEATS {
        let start = cpu_nanos();
        run();
        best = best.min(cpu_nanos() - start);
    }
    println!("{name:<44} {:>9.1} ns", best as f64 / steps as f64);
}

fn build(
    fs: &MemFileSystem,
    table: &Arc<TableOptions>,
    compression: CompressionKind,
    values: &[u8],
) -> BuiltTable {
    build_some(fs, table, compression, values, COUNT)
}

fn build_some(
    fs: &MemFileSystem,
    table: &Arc<TableOptions>,
    compression: CompressionKind,
    values: &[u8],
    count: u64,
) -> BuiltTable {
    let options = WriteOptions { buffer_bytes: 1 << 20, ..WriteOptions::default() };
    let file = fs.create(Path::new(PATH), options).unwrap();
    let mut options = BuildOptions::new(Arc::clone(table));
    options.compression = compression;
    let mut builder = TableBuilder::new(options, file).unwrap();
    let mut target = InternalKeyBuf::new(&key(0), SequenceNumber(1), ValueType::Value);
    for i in 0..count {
        target.assign(InternalKeyBuf::new(&key(i), SequenceNumber(i), ValueType::Value).as_key());
        let at = (i as usize * 37) % (values.len() - 100);
        builder.add(target.as_key(), &values[at..at + 100]).unwrap();
    }
    builder.finish(false).unwrap()
}

fn open(fs: &MemFileSystem, table: &Arc<TableOptions>) -> Arc<TableReader> {
    let file = fs.open_random(Path::new(PATH), OpenHints::default()).unwrap();
    let size = file.size();
    Arc::new(TableReader::open(file, size, OpenOptions::new(Arc::clone(table), FileNumber(1))).unwrap())
}

fn targets(odd: bool) -> Vec<InternalKeyBuf> {
    targets_below(COUNT, odd)
}

fn targets_below(count: u64, odd: bool) -> Vec<InternalKeyBuf> {
    let mut rng = SmallRng::seed_from_u64(7);
    let one = |_| {
        let mut key = key(rng.random_range(0..count));
        key[15] += u8::from(odd);
        InternalKeyBuf::for_seek(&key, SequenceNumber::MAX)
    };
    (0..100_000).map(one).collect()
}

fn gets(name: &str, reader: &TableReader, targets: &[InternalKeyBuf], expected: bool) {
    let context = ReadContext::default();
    for target in targets {
        assert_eq!(reader.get(&context, target.as_key()).unwrap().is_some(), expected);
    }
    time(name, targets.len() as u64, || {
        for target in targets {
            black_box(reader.get(&context, target.as_key()).unwrap());
        }
    });
}

fn cache() -> Option<Arc<BlockCache>> {
    Some(Cache::new(CacheOptions { capacity: 1 << 30, ..CacheOptions::default() }))
}

fn plain() -> Arc<TableOptions> {
    Arc::new(TableOptions { block_cache: cache(), ..TableOptions::default() })
}

fn bloom() -> Arc<TableOptions> {
    let filter_policy = Some(FilterPolicy::bloom(10.0));
    Arc::new(TableOptions { block_cache: cache(), filter_policy, ..TableOptions::default() })
}

fn main() {
    let wanted = std::env::args().nth(1).filter(|arg| !arg.starts_with("--"));
    let mut rng = SmallRng::seed_from_u64(1);
    // Half of each value compresses.
    let values: Vec<u8> = (0..1 << 20).map(|i| if i % 100 < 50 { rng.random() } else { b'x' }).collect();
    let fs = MemFileSystem::volatile();
    fs.create_dir_all(Path::new("/bench")).unwrap();
    type Section = fn(&MemFileSystem, &[u8]);
    let sections: [(&str, Section); 6] = [
        ("build", bench_build),
        ("cached", bench_cached),
        ("small", bench_small),
        ("hash", bench_hash),
        ("bloom", bench_bloom),
        ("uncached", bench_uncached),
    ];
    for (name, section) in sections {
        if wanted.as_ref().is_none_or(|wanted| wanted == name) {
            section(&fs, &values);
        }
    }
}

fn bench_build(fs: &MemFileSystem, values: &[u8]) {
    let (plain, bloom) = (plain(), bloom());
    time("build, uncompressed", COUNT, || drop(black_box(build(fs, &plain, CompressionKind::None, values))));
    time("build, uncompressed, bloom", COUNT, || {
        drop(black_box(build(fs, &bloom, CompressionKind::None, values)))
    });
    for kind in [CompressionKind::Lz4, CompressionKind::Snappy, CompressionKind::Zstd] {
        time(&format!("build, {}", kind.name()), COUNT, || drop(black_box(build(fs, &plain, kind, values))));
    }
}

fn bench_cached(fs: &MemFileSystem, values: &[u8]) {
    let plain = plain();
    build(fs, &plain, CompressionKind::None, values);
    time("open, 58 MB", 1, || drop(black_box(open(fs, &plain))));
    let reader = open(fs, &plain);
    println!("memory of the reader: {} KiB", reader.memory_usage() >> 10);
    gets("get, cached, present", &reader, &targets(false), true);
    gets("get, cached, absent, no filter", &reader, &targets(true), false);
    seeks("seek, cached", &reader);
    scans("cached", &reader, &TableReadOptions::default());
}

fn bench_small(fs: &MemFileSystem, values: &[u8]) {
    const FEW: u64 = 8000;
    let plain = plain();
    build_some(fs, &plain, CompressionKind::None, values, FEW);
    let small = open(fs, &plain);
    gets("get, cached, present, 1 MB table", &small, &targets_below(FEW, false), true);
    gets("get, cached, absent, 1 MB table", &small, &targets_below(FEW, true), false);
    scans_some("1 MB table", &small, &TableReadOptions::default(), FEW);
}

fn bench_hash(fs: &MemFileSystem, values: &[u8]) {
    let hashed = Arc::new(TableOptions {
        data_block_index_type: DataBlockIndexType::BinarySearchAndHash,
        block_cache: cache(),
        ..TableOptions::default()
    });
    build(fs, &hashed, CompressionKind::None, values);
    gets("get, cached, present, block hash index", &open(fs, &hashed), &targets(false), true);
}

fn bench_bloom(fs: &MemFileSystem, values: &[u8]) {
    let bloom = bloom();
    build(fs, &bloom, CompressionKind::None, values);
    let reader = open(fs, &bloom);
    gets("get, cached, present, bloom", &reader, &targets(false), true);
    let context = ReadContext::default();
    let absent = targets(true);
    time("get, cached, absent, bloom", absent.len() as u64, || {
        for target in &absent {
            black_box(reader.get(&context, target.as_key()).unwrap());
        }
    });
}

fn bench_uncached(fs: &MemFileSystem, values: &[u8]) {
    let uncached = Arc::new(TableOptions::default());
    for compression in [CompressionKind::None, CompressionKind::Lz4, CompressionKind::Zstd] {
        build(fs, &uncached, compression, values);
        let reader = open(fs, &uncached);
        gets(&format!("get, no cache, {}", compression.name()), &reader, &targets(false)[..10_000], true);
        let options = TableReadOptions::for_compaction(2 << 20);
        scans(&format!("no cache, 2 MiB readahead, {}", compression.name()), &reader, &options);
    }
}

fn seeks(name: &str, reader: &Arc<TableReader>) {
    let mut iter = reader.iter(&TableReadOptions::default());
    let targets = targets(false);
    time(name, targets.len() as u64, || {
        for target in &targets {
            black_box(iter.seek(target.as_key()).unwrap());
        }
    });
}

fn scans(name: &str, reader: &Arc<TableReader>, options: &TableReadOptions) {
    scans_some(name, reader, options, COUNT);
}

fn scans_some(name: &str, reader: &Arc<TableReader>, options: &TableReadOptions, count: u64) {
    let mut iter = reader.iter(options);
    let mut sum = 0usize;
    time(&format!("next, {name}"), count, || {
        let mut more = iter.seek_to_first().unwrap();
        while more {
            sum += iter.key().as_bytes().len() + iter.value().len();
            more = iter.next().unwrap();
        }
    });
    time(&format!("prev, {name}"), count, || {
        let mut more = iter.seek_to_last().unwrap();
        while more {
            sum += iter.key().as_bytes().len() + iter.value().len();
            more = iter.prev().unwrap();
        }
    });
    black_box(sum);
}
