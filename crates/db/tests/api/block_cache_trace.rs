//! Traces of the block cache.

use crate::disk::{Disk, refused};
use ironstone::TableReaderCaller::{
    Compaction, ExternalSstIngestion, Prefetch, UserGet, UserIterator, UserMultiGet,
};
use ironstone::vfs::fault::{FaultError, FaultRule};
use ironstone::vfs::{FileSystem, OpKind};
use ironstone::{
    BlockCacheTraceOptions, BlockCacheTraceReader, BlockCacheTraceRecord, Code, Db, FileTraceReader,
    FileTraceWriter, Options, ReadOptions, ReadTier, Statistics, TableReaderCaller, TracedBlock,
};

const TRACE: &str = "/block_cache.trace";

fn start(disk: &Disk, db: &Db, options: &BlockCacheTraceOptions) {
    db.start_block_cache_trace(options, Box::new(FileTraceWriter::create(&*disk.env().fs, TRACE).unwrap()))
        .unwrap();
}

fn records(disk: &Disk) -> Vec<BlockCacheTraceRecord> {
    let reader = FileTraceReader::open(&disk.fs, TRACE).unwrap();
    BlockCacheTraceReader::new(Box::new(reader)).unwrap().map(Result::unwrap).collect()
}

/// What `work` asks the block cache for.
fn traced(disk: &Disk, db: &Db, work: impl FnOnce()) -> Vec<BlockCacheTraceRecord> {
    start(disk, db, &BlockCacheTraceOptions::default());
    work();
    db.end_block_cache_trace().unwrap();
    records(disk)
}

fn put_table(db: &Db, keys: std::ops::Range<u32>) {
    for i in keys {
        db.put(format!("key{i:05}"), format!("value{i:0100}")).unwrap();
    }
    db.flush().unwrap();
}

fn with_filter(disk: &Disk, in_cache: bool) -> Options {
    let mut options = disk.options();
    options.cf.table.set("filter_policy", "bloomfilter:10").unwrap();
    options.cf.table.cache_index_and_filter_blocks = in_cache;
    options.cf.disable_auto_compactions = true;
    options
}

/// Caller, kind and whether it was there.
fn kinds(records: &[BlockCacheTraceRecord]) -> Vec<(TableReaderCaller, TracedBlock, bool)> {
    records.iter().map(|record| (record.caller, record.block_type, record.is_cache_hit)).collect()
}

#[test]
fn a_get_tells_its_blocks_and_what_was_there() {
    for counted in [false, true] {
        let disk = Disk::new();
        let mut options = with_filter(&disk, true);
        if counted {
            options.db.statistics = Some(std::sync::Arc::new(Statistics::new()));
        }
        let db = disk.open_with(&options);
        put_table(&db, 0..200);
        put_table(&db, 200..400);
        let snapshot = db.snapshot();
        db.get("key00399").unwrap();
        let records = traced(&disk, &db, || {
            assert!(db.get("key00300").unwrap().is_some());
            let options = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
            assert!(db.get_cf(&options, db.default_column_family(), "key00300").unwrap().is_some());
            assert!(db.get("key00300x").unwrap().is_none());
        });
        use TracedBlock::{Data, Filter, Index};
        let got = kinds(&records);
        // Index and filter were put there when the table was opened, by the first get.
        let one = |hit| [(UserGet, Filter, true), (UserGet, Index, true), (UserGet, Data, hit)];
        assert_eq!(got[..6], [one(false), one(true)].concat(), "{counted}");
        assert_eq!(got[6..], [(UserGet, Filter, true)], "filtered out");
        let data = &records[2];
        let internal = |key: &str| (key.len() + 8) as u64;
        assert_eq!(data.referenced_data_size, internal("key00300") + 105);
        assert!(data.referenced_key_exist_in_block && !data.no_insert && data.get_id == 1);
        assert!(data.referenced_key.starts_with(b"key00300") && data.referenced_key.len() == 16);
        // Entry 301 of all that were written, a value.
        assert_eq!(data.referenced_key[8..], ((301_u64 << 8) | 1).to_le_bytes());
        assert!(data.num_keys_in_block > 10 && data.block_size > 3000, "{data:?}");
        assert_eq!((data.cf_id, data.cf_name.as_str(), data.level), (0, "default", 0));
        let tables = db.live_files();
        assert!(tables.iter().any(|table| table.number.0 == data.sst_fd_number));
        let ids: Vec<u64> = records.iter().map(|record| record.get_id).collect();
        assert_eq!(ids, [1, 1, 1, 2, 2, 2, 3]);
        let at_snapshot: Vec<bool> =
            records.iter().map(|record| record.get_from_user_specified_snapshot).collect();
        assert_eq!(at_snapshot, [false, false, false, true, true, true, false]);
        assert_eq!(records[5].block_key, data.block_key);
        assert_ne!(records[4].block_key, data.block_key);
        assert!(records.windows(2).all(|pair| pair[0].access_timestamp <= pair[1].access_timestamp));
        // What is not traced leaves nothing behind.
        assert!(db.get("key00001").unwrap().is_some());
        assert!(traced(&disk, &db, || ()).is_empty());
    }
}

#[test]
fn a_key_that_is_not_there_is_told_with_the_block_it_would_be_in() {
    let disk = Disk::new();
    let mut options = with_filter(&disk, false);
    options.cf.table.filter_policy = None;
    let db = disk.open_with(&options);
    put_table(&db, 0..100);
    db.delete("key00001").unwrap();
    db.flush().unwrap();
    let records = traced(&disk, &db, || {
        assert!(db.get("key00050x").unwrap().is_none());
        assert!(db.get("key00001").unwrap().is_none());
        let cached = ReadOptions { read_tier: ReadTier::BlockCache, ..ReadOptions::default() };
        assert!(db.get_cf(&cached, db.default_column_family(), "key00099").is_err());
        let passing = ReadOptions { fill_cache: false, ..ReadOptions::default() };
        assert!(db.get_cf(&passing, db.default_column_family(), "key00099").unwrap().is_some());
    });
    use TracedBlock::Data;
    // A read that may not go to the file says nothing.
    assert_eq!(kinds(&records), [(UserGet, Data, false); 3]);
    assert!(!records[0].referenced_key_exist_in_block && records[0].referenced_data_size == 0);
    assert!(records[0].referenced_key.starts_with(b"key00050x"));
    assert!(!records[1].referenced_key_exist_in_block, "a tombstone is no value");
    assert_eq!((records[2].no_insert, records[2].block_size), (true, 0));
    assert!(records[2].referenced_key_exist_in_block);
}

#[test]
fn a_multi_get_tells_each_block_once() {
    for across in [false, true] {
        let disk = Disk::new();
        let db = disk.open_with(&with_filter(&disk, false));
        put_table(&db, 0..1000);
        assert!(db.get("key00900").unwrap().is_some());
        let records = traced(&disk, &db, || {
            let keys = ["key00001", "key00002", "key00900", "key00500"];
            let found = match across {
                false => db.multi_get(&keys),
                true => {
                    let keys = keys.map(|key| (db.default_column_family(), key));
                    db.multi_get_across(&ReadOptions::default(), &keys)
                }
            };
            assert!(found.into_iter().all(|found| found.unwrap().is_some()));
        });
        let told: Vec<(String, bool)> = records
            .iter()
            .map(|record| {
                assert_eq!((record.caller, record.block_type), (UserMultiGet, TracedBlock::Data));
                assert!(record.referenced_key_exist_in_block && record.referenced_data_size == 16 + 105);
                (String::from_utf8_lossy(&record.referenced_key[..8]).into_owned(), record.is_cache_hit)
            })
            .collect();
        let expected: &[(&str, bool)] = match across {
            false => &[("key00001", false), ("key00500", false), ("key00900", true)],
            true => &[("key00001", false), ("key00002", true), ("key00900", true), ("key00500", false)],
        };
        let mut told: Vec<(&str, bool)> = told.iter().map(|(key, hit)| (key.as_str(), *hit)).collect();
        if !across {
            told.sort_unstable();
        }
        assert_eq!(told, expected);
        let ids: Vec<u64> = records.iter().map(|record| record.get_id).collect();
        assert_eq!(ids, if across { vec![1, 2, 3, 4] } else { vec![1; 3] });
    }
}

#[test]
fn others_say_who_they_are() {
    let disk = Disk::new();
    let mut options = with_filter(&disk, true);
    options.cf.table.pin_top_level_index_and_filter = false;
    options.cf.table.set("index_type", "kTwoLevelIndexSearch").unwrap();
    options.cf.table.partition_filters = true;
    options.cf.table.metadata_block_size = 512;
    let db = disk.open_with(&options);
    let only = |records: &[BlockCacheTraceRecord], caller: TableReaderCaller| {
        let of: Vec<_> = records.iter().filter(|record| record.caller == caller).collect();
        assert!(!of.is_empty(), "{caller:?} in {records:?}");
        assert!(of.iter().all(|record| record.get_id == 0 && record.referenced_key.is_empty()));
        of.len() == records.len()
    };
    put_table(&db, 0..500);
    let records = traced(&disk, &db, || assert!(db.iter().unwrap().seek_to_first().unwrap()));
    // The table is opened by who needs it.
    assert!(!only(&records, Prefetch), "{records:?}");
    let records = traced(&disk, &db, || {
        let mut iter = db.iter().unwrap();
        iter.seek("key00100").unwrap();
        while iter.next().unwrap() {}
    });
    assert!(only(&records, UserIterator), "{records:?}");
    assert!(
        records.iter().any(|record| record.block_type == TracedBlock::Data && record.num_keys_in_block == 0)
    );
    assert!(records.iter().any(|record| record.block_type == TracedBlock::Index));
    put_table(&db, 100..600);
    let records = traced(&disk, &db, || {
        db.compact_range(&ironstone::CompactRangeOptions::default(), db.default_column_family(), None, None)
            .unwrap();
    });
    only(&records, Compaction);
    let data = records.iter().filter(|record| record.caller == Compaction);
    assert!(data.clone().any(|record| record.block_type == TracedBlock::Data && record.no_insert));
    let records = traced(&disk, &db, || {
        let mut writer = ironstone::SstFileWriter::new(&options);
        writer.open("/external.sst").unwrap();
        writer.put("key00200x", "value").unwrap();
        writer.finish().unwrap();
        db.ingest_external_files(db.default_column_family(), &["/external.sst"], &Default::default())
            .unwrap();
    });
    only(&records, ExternalSstIngestion);
    // Both levels of a filter are filters.
    let records = traced(&disk, &db, || assert!(db.get("key00150").unwrap().is_some()));
    let filters = records.iter().filter(|record| record.block_type == TracedBlock::Filter).count();
    assert!(filters >= 2, "{records:?}");
}

#[test]
fn samples_sizes_and_failures_bound_a_trace() {
    let disk = Disk::new();
    let db = disk.open_with(&with_filter(&disk, false));
    put_table(&db, 0..2000);
    let scan = || {
        let mut iter = db.iter().unwrap();
        iter.seek_to_first().unwrap();
        while iter.next().unwrap() {}
    };
    let all = traced(&disk, &db, || (0..2).for_each(|_| scan())).len();
    assert!(all > 40, "{all}");
    start(&disk, &db, &BlockCacheTraceOptions { sampling_frequency: 3, ..Default::default() });
    (0..2).for_each(|_| scan());
    db.end_block_cache_trace().unwrap();
    let some = records(&disk);
    assert!(some.len() > 2 && some.len() < all * 2 / 3, "{} of {all}", some.len());
    // Each block that was taken is there every time.
    let of = |key: &[u8]| some.iter().filter(|record| record.block_key == key).count();
    assert!(some.iter().all(|record| of(&record.block_key) == 2));

    start(&disk, &db, &BlockCacheTraceOptions { max_trace_file_size: 500, ..Default::default() });
    scan();
    let second = FileTraceWriter::create(&disk.fs, "/second").unwrap();
    refused(
        db.start_block_cache_trace(&BlockCacheTraceOptions::default(), Box::new(second)),
        Code::Busy,
        "already",
    );
    db.end_block_cache_trace().unwrap();
    let cut = records(&disk).len();
    assert!(cut > 2 && cut < all / 2, "{cut}");
    assert!(disk.fs.size(TRACE.as_ref()).unwrap() < 700);

    start(&disk, &db, &BlockCacheTraceOptions::default());
    disk.faults.arm();
    let full = FaultRule::error(FaultError::NoSpace).on(&[OpKind::Append, OpKind::Flush]);
    disk.faults.add(full.path("block_cache.trace").forever());
    (0..40).for_each(|_| scan());
    let ended = db.end_block_cache_trace();
    disk.faults.clear();
    assert!(ended.is_err());
    assert!(db.get("key00001").unwrap().is_some());
    db.end_block_cache_trace().unwrap();
}
