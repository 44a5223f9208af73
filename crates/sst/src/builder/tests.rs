use super::*;
use crate::BlockCache;
use crate::options::{OpenOptions, ReadContext, TableReadOptions};
use crate::table::{TableBuilder, TableReader};
use ironstone_base::FileNumber;
use ironstone_iter::InternalIterator;
use ironstone_vfs::fault::FaultFileSystem;
use ironstone_vfs::mem::MemFileSystem;
use ironstone_vfs::{FileSystem, OpenHints, WriteOptions};
use std::path::Path;

const PATH: &str = "/000009.sst";

fn key(i: u64) -> InternalKeyBuf {
    InternalKeyBuf::new(format!("key{i:08}").as_bytes(), SequenceNumber(i), ValueType::Value)
}

fn builder(fs: &dyn FileSystem, options: &BuildOptions) -> TableBuilder {
    TableBuilder::new(options.clone(), fs.create(Path::new(PATH), WriteOptions::default()).unwrap()).unwrap()
}

fn open(fs: &dyn FileSystem, table: &Arc<TableOptions>) -> Arc<TableReader> {
    let file = fs.open_random(Path::new(PATH), OpenHints::default()).unwrap();
    let size = file.size();
    Arc::new(TableReader::open(file, size, OpenOptions::new(Arc::clone(table), FileNumber(9))).unwrap())
}

#[test]
fn sizes_are_estimated_well() {
    let fs = MemFileSystem::new();
    let mut builder = builder(&fs, &BuildOptions::new(Arc::default()));
    assert!(builder.is_empty());
    for i in 0..5000 {
        builder.add(key(i).as_key(), &[b'v'; 100]).unwrap();
    }
    let (written, estimate) = (builder.file_size(), builder.estimated_file_size());
    let built = builder.finish(true).unwrap();
    assert!(written <= built.file_size && built.file_size <= estimate + estimate / 50);
    assert!(estimate <= built.file_size + built.file_size / 20, "{estimate} for {}", built.file_size);
    assert_eq!(fs.size(Path::new(PATH)).unwrap(), built.file_size);
    assert_eq!(built.properties.tail_start_offset + built.tail_size, built.file_size);
    assert_eq!(built.properties.data_size, built.properties.tail_start_offset);
}

#[test]
fn aligned_blocks_do_not_straddle_pages() {
    let fs = MemFileSystem::new();
    let table = Arc::new(TableOptions { block_align: true, ..TableOptions::default() });
    let mut builder = builder(&fs, &BuildOptions::new(Arc::clone(&table)));
    for i in 0..2000 {
        builder.add(key(i).as_key(), &[b'v'; 100]).unwrap();
    }
    builder.finish(false).unwrap();
    let reader = open(&fs, &table);
    for i in 0..2000 {
        assert_eq!(reader.approximate_offset_of(key(i).as_key()).unwrap() % 4096, 0);
    }
}

#[test]
fn a_dictionary_makes_small_blocks_smaller() {
    let fs = MemFileSystem::new();
    let table = Arc::new(TableOptions { block_size: 500, ..TableOptions::default() });
    let size_of = |dictionary| {
        let mut options = BuildOptions::new(Arc::clone(&table));
        options.compression = CompressionKind::Zstd;
        options.compression_options.max_dict_bytes = dictionary;
        options.compression_options.zstd_max_train_bytes = dictionary * 10;
        let mut builder = builder(&fs, &options);
        for i in 0..3000 {
            let value = format!("{{\"name\": \"number {i}\", \"kind\": \"sample\", \"square\": {}}}", i * i);
            builder.add(key(i).as_key(), value.as_bytes()).unwrap();
        }
        let size = builder.finish(false).unwrap().file_size;
        let reader = open(&fs, &table);
        reader.verify_checksums().unwrap();
        assert!(reader.get(&ReadContext::default(), key(77).as_key()).unwrap().is_some());
        size
    };
    assert!(size_of(4096) * 5 < size_of(0) * 4);
}

#[test]
fn a_failed_write_ends_the_building() {
    let fs = MemFileSystem::new();
    fs.set_capacity(Some(20_000));
    let fs = FaultFileSystem::new(Arc::new(fs));
    let mut builder = builder(&fs, &BuildOptions::new(Arc::default()));
    let failed = (0..10_000).find_map(|i| builder.add(key(i).as_key(), &[b'v'; 100]).err());
    assert!(failed.expect("the file system is full").is_no_space());
    assert!(builder.add(key(20_000).as_key(), b"").unwrap_err().is_no_space());
    assert!(builder.finish(true).unwrap_err().is_no_space());
}

#[test]
fn readers_share_a_cache() {
    let cache = BlockCache::new(ironstone_cache::CacheOptions::default());
    let table = Arc::new(TableOptions { block_cache: Some(Arc::clone(&cache)), ..TableOptions::default() });
    let fs = MemFileSystem::new();
    let mut builder = builder(&fs, &BuildOptions::new(Arc::clone(&table)));
    for i in 0..1000 {
        builder.add(key(i).as_key(), &[i as u8; 50]).unwrap();
    }
    builder.finish(false).unwrap();
    let (one, two) = (open(&fs, &table), open(&fs, &table));
    for reader in [&one, &two] {
        let mut iter = reader.iter(&TableReadOptions::default());
        let mut more = iter.seek_to_first().unwrap();
        while more {
            more = iter.next().unwrap();
        }
    }
    // Without a session id nobody can tell that it is the same file: each has blocks of its own.
    assert_eq!(cache.entry_count() as u64, 2 * one.properties().num_data_blocks);
}
