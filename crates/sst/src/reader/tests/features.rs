//! Single features.

use super::sample::*;
use crate::properties::{EXTERNAL_SST_GLOBAL_SEQNO, EXTERNAL_SST_VERSION};
use crate::*;
use ironstone_base::statistics::Ticker;
use ironstone_base::sync::Arc;
use ironstone_base::*;
use ironstone_cache::{Cache, CacheOptions, Priority};
use ironstone_iter::InternalIterator;
use ironstone_vfs::{FileSystem, WriteOptions};
use std::path::Path;

fn numbered(count: u64) -> Entries {
    let key = |i| InternalKeyBuf::new(format!("key{i:06}").as_bytes(), SequenceNumber(i), ValueType::Value);
    (0..count).map(|i| (key(i), format!("value {i}").into_bytes())).collect()
}

#[test]
fn the_block_cache_tier_reads_only_what_is_cached() {
    let statistics = Arc::new(Statistics::new());
    let table = Arc::new(TableOptions {
        block_cache: Some(Cache::new(CacheOptions::default())),
        statistics: Some(Arc::clone(&statistics)),
        ..TableOptions::default()
    });
    let (fs, entries) = (new_fs(), numbered(1000));
    build(&fs, &BuildOptions::new(Arc::clone(&table)), &entries);
    let reader = open(&fs, &table).unwrap();
    let cached_only = ReadContext { read_tier: ReadTier::BlockCache, ..ReadContext::default() };
    let key = entries[500].0.as_key();
    assert!(reader.get(&cached_only, key).unwrap_err().is_incomplete());
    assert!(
        reader
            .iter(&TableReadOptions { read: cached_only, ..Default::default() })
            .seek(key)
            .unwrap_err()
            .is_incomplete()
    );
    assert_eq!(*reader.get(&ReadContext::default(), key).unwrap().unwrap().value, *b"value 500");
    assert_eq!(*reader.get(&cached_only, key).unwrap().unwrap().value, *b"value 500");
    assert_eq!(statistics.ticker(Ticker::BlockCacheDataHit), 1);
    assert_eq!(statistics.ticker(Ticker::BlockCacheDataAdd), 1);
}

#[test]
fn the_index_knows_where_the_bytes_of_large_entries_are() {
    for (value_bytes, is_large) in [(100, false), (3000, true)] {
        for (in_cache, warm) in [(false, false), (false, true), (true, false)] {
            let cache = Cache::new(CacheOptions::default());
            let table = Arc::new(TableOptions {
                block_cache: Some(Arc::clone(&cache)),
                cache_index_and_filter_blocks: in_cache,
                ..TableOptions::default()
            });
            let mut entries = numbered(400);
            entries.iter_mut().for_each(|(_, value)| value.resize(value_bytes, 7));
            let mut options = BuildOptions::new(Arc::clone(&table));
            if warm {
                options.warm_cache = Some(WarmCache { priority: Priority::Low, demand: None });
                (options.db_session_id, options.file_number) = ("SESSION".to_owned(), FileNumber(7));
            }
            let fs = new_fs();
            build(&fs, &options, &entries);
            let reader = open(&fs, &table).unwrap();
            let wanted: Vec<_> = entries.iter().step_by(40).map(|(key, _)| key).collect();
            let read = || {
                let get = |key: &&InternalKeyBuf| reader.get(&ReadContext::default(), key.as_key());
                wanted.iter().map(|key| get(key).unwrap().unwrap().value).collect::<Vec<_>>()
            };
            let check = |values: &[PinnedBytes], index: &crate::index::FlatIndex| {
                for (key, value) in wanted.iter().zip(values) {
                    let known = index.bytes_of(index.find(&UserComparator::Bytewise, key.as_key()));
                    let before = known.map(|start| value.as_ptr().addr().wrapping_sub(start.addr()));
                    assert_eq!(before.is_some(), is_large, "{value_bytes} bytes, warm: {warm}");
                    assert!(before.is_none_or(|before| before < 4096), "they are before the value");
                }
            };
            let check_all = |values: &[PinnedBytes]| match reader.block_based().unwrap().resident_index() {
                Some(index) => check(values, index),
                None => cache.for_each(|_, block, _| {
                    if let CachedBlock::Index(index) = block {
                        check(values, index);
                    }
                }),
            };
            let values = read();
            check_all(&values);
            if !in_cache {
                cache.set_capacity(0); // What was read stays where it is, and the blocks come to another place.
                cache.set_capacity(1 << 20);
                let again = read();
                assert!(values.iter().zip(&again).all(|(one, other)| one.as_ptr() != other.as_ptr()));
                check_all(&again);
            }
        }
    }
}

#[test]
fn a_table_that_is_opened_for_scans_keeps_neither_index_nor_filter() {
    for (in_cache, index_type) in [
        (false, IndexType::BinarySearch),
        (false, IndexType::TwoLevel),
        (true, IndexType::BinarySearch),
        (true, IndexType::TwoLevel),
    ] {
        let (statistics, cache) = (Arc::new(Statistics::new()), Cache::new(CacheOptions::default()));
        let table = Arc::new(TableOptions {
            block_cache: Some(Arc::clone(&cache)),
            cache_index_and_filter_blocks: in_cache,
            pinning: MetadataPinning { partitions: PinningTier::All, ..MetadataPinning::default() },
            index_type,
            partition_filters: true,
            filter_policy: Some(FilterPolicy::bloom(10.0)),
            block_size: 200,
            statistics: Some(Arc::clone(&statistics)),
            ..TableOptions::default()
        });
        let (fs, entries) = (new_fs(), numbered(10_000));
        build(&fs, &BuildOptions::new(Arc::clone(&table)), &entries);
        let whole = open(&fs, &table).unwrap().memory_usage();
        let before = cache.usage();
        let options = OpenOptions { for_scans: true, ..OpenOptions::new(Arc::clone(&table), FileNumber(7)) };
        let reader = open_with(&fs, options).unwrap();
        let kept = reader.memory_usage();
        assert_eq!(kept < whole / 4, !in_cache, "{kept} and {whole} bytes, {index_type:?}");
        assert_eq!(cache.usage(), before, "nothing is loaded for later");
        let blocks_only = ReadContext { fill_cache: false, ..ReadContext::default() };
        let mut iter = reader.iter(&TableReadOptions { read: blocks_only, ..Default::default() });
        let (mut more, mut count) = (iter.seek_to_first().unwrap(), 0);
        while more {
            (count, more) = (count + 1, iter.next().unwrap());
        }
        assert_eq!((count, reader.memory_usage()), (entries.len(), kept));
        let looked_up = statistics.ticker(Ticker::BlockCacheIndexMiss);
        assert_eq!((cache.usage() > before, looked_up > 0), (in_cache, in_cache));
    }
}

#[test]
fn scans_read_ahead_whatever_lies_between_blocks() {
    let entries: Entries = (0..20_000)
        .map(|i| {
            let key =
                InternalKeyBuf::new(format!("key{i:013}").as_bytes(), SequenceNumber(i), ValueType::Value);
            (key, vec![i as u8; 100])
        })
        .collect();
    for (compression, block_align) in
        [(CompressionKind::None, false), (CompressionKind::None, true), (CompressionKind::Lz4, false)]
    {
        let statistics = Arc::new(Statistics::new());
        let table = Arc::new(TableOptions {
            statistics: Some(Arc::clone(&statistics)),
            block_align,
            ..TableOptions::default()
        });
        let fs = new_fs();
        let mut options = BuildOptions::new(Arc::clone(&table));
        options.compression = compression;
        build(&fs, &options, &entries);
        let reader = open(&fs, &table).unwrap();
        let blocks = reader.properties().num_data_blocks;
        for backward in [false, true] {
            let hits_before = statistics.ticker(Ticker::PrefetchHits);
            let mut iter = reader.iter(&TableReadOptions { counts_seeks: true, ..Default::default() });
            let mut more = if backward { iter.seek_to_last() } else { iter.seek_to_first() }.unwrap();
            let mut count = 0;
            while more {
                count += 1;
                more = if backward { iter.prev() } else { iter.next() }.unwrap();
            }
            assert_eq!(count, entries.len());
            let hits = statistics.ticker(Ticker::PrefetchHits) - hits_before;
            assert!(10 * hits > 8 * blocks, "{compression:?} {block_align} {backward}: {hits} of {blocks}");
        }
    }
}

#[test]
fn a_pinned_value_outlives_table_and_cache() {
    let table = Arc::new(TableOptions {
        block_cache: Some(Cache::new(CacheOptions::default())),
        ..TableOptions::default()
    });
    let (fs, entries) = (new_fs(), numbered(100));
    build(&fs, &BuildOptions::new(Arc::clone(&table)), &entries);
    let reader = open(&fs, &table).unwrap();
    let value = reader.get(&ReadContext::default(), entries[7].0.as_key()).unwrap().unwrap().value;
    drop((reader, table));
    assert_eq!(*value, *b"value 7");
}

#[test]
fn range_tombstones_come_back_and_widen_the_bounds() {
    let table = Arc::new(TableOptions::default());
    let fs = new_fs();
    let file = fs.create(Path::new(PATH), WriteOptions::default()).unwrap();
    let mut builder = TableBuilder::new(BuildOptions::new(Arc::clone(&table)), file).unwrap();
    let begin = InternalKeyBuf::new(b"a", SequenceNumber(9), ValueType::RangeDeletion);
    builder.add_range_tombstone(begin.as_key(), b"z").unwrap();
    let point = InternalKeyBuf::new(b"m", SequenceNumber(3), ValueType::Value);
    builder.add(point.as_key(), b"v").unwrap();
    let built = builder.finish(false).unwrap();
    assert_eq!(built.smallest, Some(begin));
    let end = InternalKeyBuf::new(b"z", SequenceNumber::MAX, ValueType::RangeDeletion);
    assert_eq!(built.largest, Some(end));
    assert_eq!((built.properties.num_range_deletions, built.properties.num_entries), (1, 2));
    let reader = open(&fs, &table).unwrap();
    let expected = RangeTombstone { begin: b"a".to_vec(), end: b"z".to_vec(), sequence: SequenceNumber(9) };
    assert_eq!(reader.range_tombstones(), [expected]);
    reader.verify_checksums().unwrap();
}

#[test]
fn entries_of_an_ingested_file_count_as_written_at_its_sequence_number() {
    let table = Arc::new(TableOptions::default());
    let mut options = BuildOptions::new(Arc::clone(&table));
    options.user_properties = vec![
        (EXTERNAL_SST_VERSION.into(), 2u32.to_le_bytes().to_vec()),
        (EXTERNAL_SST_GLOBAL_SEQNO.into(), 0u64.to_le_bytes().to_vec()),
    ];
    let entries: Entries = numbered(500)
        .into_iter()
        .map(|(key, value)| {
            (InternalKeyBuf::new(key.user_key(), SequenceNumber::ZERO, ValueType::Value), value)
        })
        .collect();
    let fs = new_fs();
    build(&fs, &options, &entries);
    let open_options = OpenOptions::new(table, FileNumber(7));
    let reader =
        open_with(&fs, OpenOptions { largest_sequence: Some(SequenceNumber(77)), ..open_options }).unwrap();
    let target =
        |i: usize, sequence| InternalKeyBuf::for_seek(entries[i].0.user_key(), SequenceNumber(sequence));
    let context = ReadContext::default();
    assert_eq!(reader.get(&context, target(5, 77).as_key()).unwrap().unwrap().sequence, SequenceNumber(77));
    assert!(reader.get(&context, target(5, 76).as_key()).unwrap().is_none());
    let mut iter = reader.iter(&TableReadOptions::default());
    assert!(iter.seek(target(5, 76).as_key()).unwrap());
    assert_eq!(iter.key(), InternalKeyBuf::new(b"key000006", SequenceNumber(77), ValueType::Value).as_key());
    assert!(iter.prev().unwrap());
    assert_eq!(iter.key().sequence(), SequenceNumber(77));
    assert_eq!(iter.key().user_key(), b"key000005");
    assert!(iter.seek_for_prev(target(5, 90).as_key()).unwrap());
    assert_eq!(iter.key().user_key(), b"key000004");
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let refused = |table: TableOptions| {
        let file = new_fs().create(Path::new(PATH), WriteOptions::default()).unwrap();
        TableBuilder::new(BuildOptions::new(Arc::new(table)), file).map(|_| ()).unwrap_err()
    };
    let default = TableOptions::default;
    assert_eq!(refused(TableOptions { format_version: 8, ..default() }).code(), Code::InvalidArgument);
    assert_eq!(refused(TableOptions { format_version: 1, ..default() }).code(), Code::InvalidArgument);
    assert_eq!(
        refused(TableOptions { index_type: IndexType::HashSearch, ..default() }).code(),
        Code::InvalidArgument
    );
}

#[test]
fn keys_out_of_order_are_refused() {
    let fs = new_fs();
    let file = fs.create(Path::new(PATH), WriteOptions::default()).unwrap();
    let mut builder = TableBuilder::new(BuildOptions::new(Arc::default()), file).unwrap();
    let key = |user: &[u8], sequence| InternalKeyBuf::new(user, SequenceNumber(sequence), ValueType::Value);
    builder.add(key(b"b", 5).as_key(), b"").unwrap();
    assert!(builder.add(key(b"a", 9).as_key(), b"").unwrap_err().is_corruption());
    assert!(builder.add(key(b"b", 5).as_key(), b"").unwrap_err().is_corruption());
    builder.add(key(b"b", 4).as_key(), b"").unwrap();
    builder.abandon();
}

#[test]
fn another_comparator_is_refused() {
    let (fs, table) = (new_fs(), Arc::new(TableOptions::default()));
    build(&fs, &BuildOptions::new(table), &numbered(10));
    let other = TableOptions { comparator: UserComparator::ReverseBytewise, ..TableOptions::default() };
    let error = open(&fs, &Arc::new(other)).map(|_| ()).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
}

#[test]
fn the_unique_id_tells_files_apart() {
    let (fs, table) = (new_fs(), Arc::new(TableOptions::default()));
    let mut options = BuildOptions::new(Arc::clone(&table));
    options.db_id = "7265b6eb-4e42-4aec-86a4-0dc5e73a228d".into();
    options.db_session_id = "ESKYLARFR5J4ACA1WHUT".into();
    options.file_number = FileNumber(7);
    let built = build(&fs, &options, &numbered(10));
    assert_ne!(built.unique_id, [0, 0]);
    let with_id = |id| {
        let options = OpenOptions::new(Arc::clone(&table), FileNumber(7));
        open_with(&fs, OpenOptions { expected_unique_id: Some(id), ..options }).map(|_| ())
    };
    with_id(built.unique_id).unwrap();
    assert!(with_id([1, 2]).unwrap_err().is_corruption());
}
