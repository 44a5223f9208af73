//! Single features of plain tables. Whole tables under any options: `reader::tests`.

use super::bloom;
use super::index::{Bucket, IndexBuilder, IndexShape};
use super::row::{RowEncoder, RowFormat, RowReader};
use super::*;
use crate::options::{BuildOptions, OpenOptions, ReadContext, TableOptions, TableReadOptions};
use crate::table::{TableBuilder, TableFormat, TableReader};
use ironstone_base::{
    Code, FileNumber, InternalKeyBuf, Result, SequenceNumber, UserComparator, ValueType, slice_transform,
};
use ironstone_iter::InternalIterator;
use ironstone_vfs::mem::MemFileSystem;
use ironstone_vfs::{FileSystem, OpenHints, WriteOptions};
use std::path::Path;

const PATH: &str = "/000007.sst";

fn key(user_key: &str, sequence: u64) -> InternalKeyBuf {
    InternalKeyBuf::new(user_key.as_bytes(), SequenceNumber(sequence), ValueType::Value)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

/// The example of RocksDB's documentation of the format.
#[test]
fn keys_of_one_prefix_are_stored_without_it() {
    let format = RowFormat { encoding: PlainEncoding::Prefix, user_key_len: 0, global_sequence: None };
    let mut rows = RowEncoder::new(format, 16);
    let mut data = Vec::new();
    let keys = ["00000001", "000000021", "00000002", "0001100", "00020001"].map(|user_key| key(user_key, 0));
    let mut starts = Vec::new();
    for key in &keys {
        starts.push(data.len() as u32);
        let is_whole = rows.add(key.as_key(), &key.user_key()[..4], b"v", &mut data);
        assert_eq!(is_whole, !["000000021", "00000002"].map(str::as_bytes).contains(&key.user_key()));
    }
    let expected = [
        "08 30 30 30 30 30 30 30 31 ff 01 76",
        "44 85 30 30 30 32 31 ff 01 76",
        "84 30 30 30 32 ff 01 76",
        "07 30 30 30 31 31 30 30 ff 01 76",
        "08 30 30 30 32 30 30 30 31 ff 01 76",
    ];
    assert_eq!(hex(&data), expected.join(" "));

    let mut reader = RowReader::default();
    for (key, &at) in keys.iter().zip(&starts) {
        let row = reader.read(format, &data, at).unwrap();
        assert_eq!(reader.key(), Some(key.as_key()));
        assert_eq!(&data[row.value_at as usize..row.end as usize], b"v");
    }
    // A row that needs the one before cannot be the first.
    assert!(RowReader::default().read(format, &data, starts[1]).is_err());
    assert!(RowReader::default().read(format, &data, starts[2]).is_err());
    for cut in 0..data.len() {
        let mut reader = RowReader::default();
        let mut at = 0;
        while let Ok(row) = reader.read(format, &data[..cut], at) {
            at = row.end;
        }
        assert!(at as usize <= cut);
    }
}

#[test]
fn long_keys_have_their_size_behind_the_first_byte() {
    for len in [0usize, 1, 62, 63, 64, 190, 191, 70_000] {
        for (encoding, user_key_len) in
            [(PlainEncoding::Prefix, 0), (PlainEncoding::Plain, 0), (PlainEncoding::Plain, len as u32)]
        {
            let format = RowFormat { encoding, user_key_len, global_sequence: None };
            let key = InternalKeyBuf::new(&vec![b'k'; len], SequenceNumber(3), ValueType::Merge);
            let mut data = Vec::new();
            RowEncoder::new(format, 1).add(key.as_key(), b"", b"value", &mut data);
            let mut reader = RowReader::default();
            let row = reader.read(format, &data, 0).unwrap();
            assert_eq!(
                (reader.key(), row.end as usize),
                (Some(key.as_key()), data.len()),
                "{len} {format:?}"
            );
        }
    }
}

#[test]
fn the_index_has_the_first_row_of_each_prefix_and_some_after() {
    for ratio in [0.0, 0.5, 3.0] {
        let mut index = IndexBuilder::new(4, ratio);
        let prefixes = ["a", "b", "c", "d"];
        for (number, prefix) in prefixes.iter().enumerate() {
            for row in 0..10 {
                index.add(prefix.as_bytes(), (number as u32 * 10 + row) * 100, true).unwrap();
            }
        }
        let bytes = index.finish();
        let shape = IndexShape::decode(&bytes).unwrap();
        assert_eq!(shape.bucket_count(), if ratio == 0.0 { 1 } else { (4.0 / ratio) as u32 + 1 });
        for (number, prefix) in prefixes.iter().enumerate() {
            let Bucket::Many(offsets) = shape.bucket(&bytes, hash(prefix.as_bytes())).unwrap() else {
                panic!("three rows of {prefix} are in the index");
            };
            let found: Vec<u32> = (0..offsets.len()).map(|at| offsets.get(at)).collect();
            assert!(found.is_sorted());
            for row in [0, 4, 8] {
                assert!(found.contains(&((number as u32 * 10 + row) * 100)), "{prefix}: {found:?}");
            }
        }
        for cut in 0..bytes.len() {
            if let Ok(shape) = IndexShape::decode(&bytes[..cut]) {
                (0..20).for_each(|hash| _ = shape.bucket(&bytes[..cut], hash));
            }
        }
    }
}

#[test]
fn filters_of_both_kinds_pass_what_they_hold() {
    let hashes: Vec<u32> = (0..1000u32).map(|i| hash(&i.to_le_bytes())).collect();
    let filter = bloom::build(&hashes, 1000, 10);
    let shape = bloom::Shape::new(filter.len(), 0).unwrap();
    assert!(hashes.iter().all(|&hash| shape.may_have(&filter, hash)));
    let strangers = (1000..11_000u32).filter(|i| shape.may_have(&filter, hash(&i.to_le_bytes()))).count();
    assert!(strangers < 200, "{strangers} of 10000");
    assert_eq!(bloom::Shape::new(63, 1), None);
    assert_eq!(bloom::Shape::new(0, 0), None);
}

fn plain_table(plain: PlainOptions, prefix_len: Option<usize>) -> TableOptions {
    TableOptions {
        format: TableFormat::Plain,
        plain,
        prefix_extractor: prefix_len.map(slice_transform::fixed_prefix),
        ..TableOptions::default()
    }
}

fn build(fs: &MemFileSystem, table: TableOptions, keys: &[InternalKeyBuf]) -> Result<Arc<TableOptions>> {
    let table = Arc::new(table);
    let file = fs.create(Path::new(PATH), WriteOptions::default())?;
    let mut builder = TableBuilder::new(BuildOptions::new(Arc::clone(&table)), file)?;
    keys.iter().try_for_each(|key| builder.add(key.as_key(), key.user_key()))?;
    builder.finish(true)?;
    Ok(table)
}

fn open(fs: &MemFileSystem, table: &Arc<TableOptions>) -> Result<Arc<TableReader>> {
    let file = fs.open_random(Path::new(PATH), OpenHints::default())?;
    let size = file.size();
    TableReader::open(file, size, OpenOptions::new(Arc::clone(table), FileNumber(7))).map(Arc::new)
}

#[test]
fn tables_are_read_by_whatever_extractor_they_were_written_with() {
    let fs = MemFileSystem::new();
    let keys: Vec<_> = (0..50).map(|i| key(&format!("{}{i:02}", i / 10), 7)).collect();
    for store_index_in_file in [false, true] {
        let plain = PlainOptions { store_index_in_file, ..PlainOptions::default() };
        build(&fs, plain_table(plain, Some(1)), &keys).unwrap();
        // One of another length, none at all, and one that nobody knows by name.
        struct Unknown;
        impl SliceTransform for Unknown {
            fn name(&self) -> &str {
                "unknown"
            }
            fn transform<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
                key.get(..2)
            }
        }
        let unknown = TableOptions { prefix_extractor: Some(Arc::new(Unknown)), ..TableOptions::default() };
        for table in [plain_table(plain, Some(2)), plain_table(plain, None), unknown] {
            let reader = open(&fs, &Arc::new(table)).unwrap();
            reader.verify_checksums().unwrap();
            for key in &keys {
                let found = reader.get(&ReadContext::default(), key.as_key()).unwrap();
                assert_eq!(found.map(|entry| entry.value.to_vec()).as_deref(), Some(key.user_key()));
            }
        }
        let unknown = TableOptions { prefix_extractor: Some(Arc::new(Unknown)), ..plain_table(plain, None) };
        let fs = MemFileSystem::new();
        build(&fs, unknown, &keys).unwrap();
        let reader = open(&fs, &Arc::new(plain_table(plain, Some(2)))).unwrap();
        reader.verify_checksums().unwrap();
        for key in &keys {
            assert!(reader.get(&ReadContext::default(), key.as_key()).unwrap().is_some(), "{key:?}");
        }
    }
}

#[test]
fn what_a_plain_table_has_no_place_for_is_refused_by_name() {
    let fs = MemFileSystem::new();
    let fixed = PlainOptions { user_key_len: 4, ..PlainOptions::default() };
    let error =
        build(&fs, plain_table(fixed, None), &[key("four", 1), key("seventy", 2)]).map(drop).unwrap_err();
    assert_eq!(error.code(), Code::NotSupported);
    assert!(error.message().contains("user_key_len=4") && error.message().contains(PATH), "{error}");

    let by_prefix = PlainOptions { encoding: PlainEncoding::Prefix, ..PlainOptions::default() };
    let error = build(&fs, plain_table(by_prefix, None), &[]).map(drop).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);

    let options = BuildOptions::new(Arc::new(plain_table(PlainOptions::default(), None)));
    let file = fs.create(Path::new(PATH), WriteOptions::default()).unwrap();
    let mut builder = TableBuilder::new(options, file).unwrap();
    let begin = InternalKeyBuf::new(b"a", SequenceNumber(1), ValueType::RangeDeletion);
    for error in [builder.add_range_tombstone(begin.as_key(), b"b"), builder.add(begin.as_key(), b"b")] {
        let error = error.map(drop).unwrap_err();
        assert!(error.code() == Code::NotSupported && error.message().contains("DeleteRange"), "{error}");
    }
}

/// A table of `keys` as an external file, opened with that number as its largest in the MANIFEST.
fn external(plain: PlainOptions, keys: &[InternalKeyBuf], largest: Option<u64>) -> Result<Arc<TableReader>> {
    let fs = MemFileSystem::new();
    let table = Arc::new(plain_table(plain, Some(1)));
    let version = (crate::properties::EXTERNAL_SST_VERSION.to_owned(), 2u32.to_le_bytes().to_vec());
    let number = (crate::properties::EXTERNAL_SST_GLOBAL_SEQNO.to_owned(), vec![0; 8]);
    let options =
        BuildOptions { user_properties: vec![version, number], ..BuildOptions::new(Arc::clone(&table)) };
    let mut builder = TableBuilder::new(options, fs.create(Path::new(PATH), WriteOptions::default())?)?;
    keys.iter().try_for_each(|key| builder.add(key.as_key(), b"v"))?;
    builder.finish(true)?;
    let file = fs.open_random(Path::new(PATH), OpenHints::default())?;
    let (size, mut options) = (file.size(), OpenOptions::new(table, FileNumber(7)));
    options.largest_sequence = largest.map(SequenceNumber);
    TableReader::open(file, size, options).map(Arc::new)
}

#[test]
fn all_rows_of_an_external_file_have_the_sequence_number_of_the_manifest() {
    let of = |user_key: &str, kind| InternalKeyBuf::new(user_key.as_bytes(), SequenceNumber::ZERO, kind);
    let keys =
        [of("aa", ValueType::Value), of("ab", ValueType::Deletion), of("ac", ValueType::Merge), key("b", 0)];
    for encoding in [PlainEncoding::Plain, PlainEncoding::Prefix] {
        let plain = PlainOptions { encoding, ..PlainOptions::default() };
        for (largest, expected) in [(Some(70), 70), (Some(0), 0), (None, 0)] {
            let reader = external(plain, &keys, largest).unwrap();
            assert_eq!(reader.global_sequence(), Some(SequenceNumber(expected)));
            reader.verify_checksums().unwrap();
            let mut iter = reader.iter(&TableReadOptions::default());
            let mut more = iter.seek_to_first().unwrap();
            for key in &keys {
                assert!(more && iter.key().user_key() == key.user_key());
                assert_eq!(iter.key().sequence(), SequenceNumber(expected));
                assert_eq!(iter.key().value_type(), key.as_key().value_type());
                more = iter.next().unwrap();
            }
            assert!(!more);
            let get = |at| {
                let target = InternalKeyBuf::for_seek(b"ab", SequenceNumber(at));
                reader.get(&ReadContext::default(), target.as_key()).unwrap().map(|found| found.value_type)
            };
            assert_eq!(get(expected), Some(ValueType::Deletion));
            assert_eq!(get(69), if expected == 70 { None } else { Some(ValueType::Deletion) });
        }
    }
    let too_large = external(PlainOptions::default(), &keys, Some(1 << 56)).map(drop).unwrap_err();
    assert!(too_large.code() == Code::Corruption && too_large.message().contains(PATH), "{too_large}");
}

#[test]
fn properties_are_those_that_rocksdb_writes() {
    let fs = MemFileSystem::new();
    let plain = PlainOptions {
        user_key_len: 3,
        encoding: PlainEncoding::Prefix,
        store_index_in_file: true,
        ..PlainOptions::default()
    };
    let keys = [key("aaa", 1), key("aab", 0), key("bbb", 3)];
    let table = build(&fs, plain_table(plain, Some(1)), &keys).unwrap();
    let reader = open(&fs, &table).unwrap();
    let properties = reader.properties();
    assert_eq!((properties.fixed_key_len, properties.format_version, properties.num_data_blocks), (3, 1, 1));
    assert_eq!((properties.num_entries, properties.raw_key_size, properties.raw_value_size), (3, 33, 9));
    assert_eq!(properties.prefix_extractor_name, "rocksdb.FixedPrefix.1");
    let own = |name: &str| properties.user_collected[name].clone();
    assert_eq!(own("rocksdb.plain.table.encoding.type"), [1, 0, 0, 0]);
    assert_eq!(own("rocksdb.plain.table.bloom.version"), b"1");
    assert_eq!(own("rocksdb.plain.table.bloom.numblocks"), [0]);
    let bytes = fs.read_all(Path::new(PATH)).unwrap();
    assert_eq!(bytes.last_chunk(), Some(&LEGACY_MAGIC.to_le_bytes()));
}

#[test]
fn a_filter_asked_by_a_prefix_ends_the_seek() {
    let fs = MemFileSystem::new();
    let keys: Vec<_> = (0..30).map(|i| key(&format!("{i:02}"), 5)).collect();
    let table = build(&fs, plain_table(PlainOptions::default(), Some(2)), &keys).unwrap();
    let reader = open(&fs, &table).unwrap();
    let extractor = table.prefix_extractor.clone().unwrap();
    let seek = ironstone_base::PrefixSeek::of_target(extractor, UserComparator::Bytewise, None);
    let options = TableReadOptions { prefix_seek: Some(Arc::clone(&seek)), ..TableReadOptions::default() };
    let mut iter = reader.iter(&options);
    let mut find = |user_key: &str| {
        seek.note_seek(Some(user_key.as_bytes()));
        iter.seek(InternalKeyBuf::for_seek(user_key.as_bytes(), SequenceNumber::MAX).as_key()).unwrap()
    };
    assert!(find("07"));
    let strangers = (0..100).filter(|i| find(&format!("0x{i}"))).count();
    assert_eq!(strangers, 0, "all of one prefix, which is not there");
    // Without the filter the seek finds what comes after.
    let mut iter = reader.iter(&TableReadOptions::default());
    assert!(iter.seek(InternalKeyBuf::for_seek(b"0x", SequenceNumber::MAX).as_key()).unwrap());
    assert_eq!(iter.key(), keys[10].as_key());
}
