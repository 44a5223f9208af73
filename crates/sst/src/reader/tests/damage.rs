//! Damaged files: an error that names file and offset, or the right answer.

use super::sample::*;
use crate::*;
use ironstone_base::checksum::ChecksumKind;
use ironstone_base::sync::Arc;
use ironstone_base::*;
use ironstone_compress::CompressionKind;
use ironstone_iter::InternalIterator;
use ironstone_vfs::mem::MemFileSystem;
use ironstone_vfs::{FileSystem, WriteOptions};
use std::path::Path;

/// Reads everything there is; any answer that is not an error must be the right one.
fn read_all(fs: &MemFileSystem, table: &Arc<TableOptions>, entries: &Entries) -> Result<()> {
    let reader = open(fs, table)?;
    let mut iter = reader.iter(&TableReadOptions::default());
    let mut more = iter.seek_to_first()?;
    let mut count = 0;
    while more {
        assert_eq!((iter.key(), iter.value()), (entries[count].0.as_key(), &entries[count].1[..]));
        count += 1;
        more = iter.next()?;
    }
    assert_eq!(count, entries.len());
    for (key, value) in entries {
        let found = reader.get(&ReadContext::default(), key.as_key())?.expect("it is there");
        assert_eq!(*found.value, value[..]);
    }
    reader.verify_checksums()?;
    let options = OpenOptions { for_scans: true, ..OpenOptions::new(Arc::clone(table), FileNumber(7)) };
    open_with(fs, options)?.iter(&TableReadOptions::default()).seek_to_first().map(drop)
}

fn small_table(
    seed: u64,
    format_version: u32,
    index_type: IndexType,
) -> (MemFileSystem, BuildOptions, Entries) {
    let mut rng = random(seed);
    let table = TableOptions {
        block_size: 300,
        metadata_block_size: 100,
        format_version,
        index_type,
        checksum: if format_version.is_multiple_of(2) { ChecksumKind::Xxh3 } else { ChecksumKind::Crc32c },
        filter_policy: Some(FilterPolicy::bloom(10.0)),
        partition_filters: true,
        prefix_extractor: Some(slice_transform::capped_prefix(2)),
        ..TableOptions::default()
    };
    let entries = entries(&mut rng, &UserComparator::Bytewise, 25);
    let mut options = BuildOptions::new(Arc::new(table));
    options.compression = CompressionKind::Lz4;
    options.compression_options.max_dict_bytes = 200;
    let fs = new_fs();
    build(&fs, &options, &entries);
    (fs, options, entries)
}

fn overwrite(fs: &MemFileSystem, bytes: &[u8]) {
    let mut file = fs.create(Path::new(PATH), WriteOptions::default()).unwrap();
    file.append(bytes).unwrap();
    file.close().unwrap();
}

fn assert_names_the_place(error: &Error) {
    let text = error.to_string();
    assert!(text.contains(PATH), "{text}");
    let known = [Code::Corruption, Code::NotSupported, Code::InvalidArgument];
    assert!(known.contains(&error.code()), "{text}");
    if error.is_corruption() {
        assert!(text.contains(&format!("{PATH} at ")), "{text}");
    }
}

fn kinds() -> Vec<(u32, IndexType)> {
    vec![
        (2, IndexType::BinarySearch),
        (4, IndexType::HashSearch),
        (5, IndexType::TwoLevel),
        (6, IndexType::BinarySearchWithFirstKey),
    ]
}

#[test]
fn every_flipped_byte_is_noticed_or_does_no_harm() {
    for (version, index_type) in kinds() {
        let (fs, options, entries) = small_table(0xf11b, version, index_type);
        let bytes = fs.read_all(Path::new(PATH)).unwrap();
        read_all(&fs, &options.table, &entries).unwrap();
        let mut unnoticed = 0;
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            overwrite(&fs, &damaged);
            match read_all(&fs, &options.table, &entries) {
                Ok(()) => unnoticed += 1,
                Err(error) => assert_names_the_place(&error),
            }
        }
        // Padding of the footer, and fields that were not needed.
        assert!(unnoticed <= 60, "version {version}: {unnoticed} of {} bytes may change", bytes.len());
    }
}

#[test]
fn a_file_that_ends_early_is_noticed() {
    for (version, index_type) in kinds() {
        let (fs, options, entries) = small_table(0xc07, version, index_type);
        let bytes = fs.read_all(Path::new(PATH)).unwrap();
        for len in 0..bytes.len() {
            overwrite(&fs, &bytes[..len]);
            let error = read_all(&fs, &options.table, &entries).unwrap_err();
            assert_names_the_place(&error);
        }
    }
}

#[test]
fn without_checksums_damage_never_panics() {
    for (version, index_type) in kinds() {
        let mut rng = random(0xbad + u64::from(version));
        let table = TableOptions {
            checksum: ChecksumKind::None,
            format_version: version,
            index_type,
            block_size: 200,
            metadata_block_size: 80,
            filter_policy: Some(FilterPolicy::ribbon(8.0, -1)),
            partition_filters: true,
            prefix_extractor: Some(slice_transform::fixed_prefix(1)),
            data_block_index_type: DataBlockIndexType::BinarySearchAndHash,
            ..TableOptions::default()
        };
        let entries = entries(&mut rng, &UserComparator::Bytewise, 30);
        let mut options = BuildOptions::new(Arc::new(table));
        options.compression = if version == 2 { CompressionKind::Zstd } else { CompressionKind::None };
        let fs = new_fs();
        build(&fs, &options, &entries);
        let bytes = fs.read_all(Path::new(PATH)).unwrap();
        for at in 0..bytes.len() {
            for change in [1, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= change;
                overwrite(&fs, &damaged);
                wander(&fs, &options.table, &entries);
            }
        }
    }
}

/// A plain table of each way to store keys and index.
fn plain_tables() -> Vec<(MemFileSystem, Arc<TableOptions>, Entries)> {
    let mut tables = Vec::new();
    for (number, encoding) in [PlainEncoding::Plain, PlainEncoding::Prefix].into_iter().enumerate() {
        for store_index_in_file in [false, true] {
            let plain = PlainOptions {
                encoding,
                store_index_in_file,
                index_sparseness: 3,
                hash_table_ratio: 2.0,
                ..PlainOptions::default()
            };
            let table = TableOptions {
                format: TableFormat::Plain,
                plain,
                prefix_extractor: Some(slice_transform::capped_prefix(1)),
                ..TableOptions::default()
            };
            let entries = entries(&mut random(0x91a1 + number as u64), &UserComparator::Bytewise, 20);
            let options = BuildOptions::new(Arc::new(table));
            let fs = new_fs();
            build(&fs, &options, &entries);
            tables.push((fs, options.table, entries));
        }
    }
    tables
}

#[test]
fn damaged_plain_tables_never_panic_and_errors_name_the_place() {
    for (fs, table, entries) in plain_tables() {
        let bytes = fs.read_all(Path::new(PATH)).unwrap();
        read_all(&fs, &table, &entries).unwrap();
        for at in 0..bytes.len() {
            for change in [1, 0x40, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= change;
                overwrite(&fs, &damaged);
                wander(&fs, &table, &entries);
                let reader = open(&fs, &table);
                if let Err(error) = reader.and_then(|reader| reader.verify_checksums()) {
                    assert_names_the_place(&error);
                }
            }
        }
        for len in 0..bytes.len() {
            overwrite(&fs, &bytes[..len]);
            assert_names_the_place(&open(&fs, &table).map(drop).unwrap_err());
        }
    }
}

#[test]
fn damage_to_lengths_and_order_of_a_plain_table_is_found_when_it_is_opened() {
    let key =
        |i: u64| InternalKeyBuf::new(format!("{i:02}").as_bytes(), SequenceNumber(i + 1), ValueType::Value);
    let entries: Entries = (0..20).map(|i| (key(i), vec![b'v'; 10])).collect();
    let plain = PlainOptions { hash_table_ratio: 0.0, ..PlainOptions::default() };
    let table = Arc::new(TableOptions { format: TableFormat::Plain, plain, ..TableOptions::default() });
    let fs = new_fs();
    build(&fs, &BuildOptions::new(Arc::clone(&table)), &entries);
    let bytes = fs.read_all(Path::new(PATH)).unwrap();
    // A row: one byte for the key's length, 2 of user key, 8 of trailer, 1 for the value's length, 10 of value.
    const ROW: usize = 22;
    assert_eq!(open(&fs, &table).unwrap().properties().data_size, 20 * ROW as u64);
    for (at, to, what) in [
        (19 * ROW, 0x7f, "its key reaches beyond the data"),
        (5 * ROW + 1, b'9', "keys are out of order"),
        (5 * ROW + 3, 0x0f, "unknown value type"),
        (5 * ROW + 11, 0x7f, "beyond the data"),
        (19 * ROW + 11, 11, "its value reaches beyond the data"),
    ] {
        let mut damaged = bytes.clone();
        damaged[at] = to;
        overwrite(&fs, &damaged);
        // The value's length may lead into the middle of a row, where anything may be found to be wrong.
        let error = open(&fs, &table).map(drop).unwrap_err();
        assert!(error.is_corruption(), "{error}");
        assert!(at == 5 * ROW + 11 || error.to_string().contains(what), "{at}: {error}");
        assert_names_the_place(&error);
    }
}

/// Reads in every way and takes any answer.
fn wander(fs: &MemFileSystem, table: &Arc<TableOptions>, entries: &Entries) {
    let Ok(reader) = open(fs, table) else {
        return;
    };
    let _ = reader.verify_checksums();
    let _ = reader.anchors(3);
    let mut iter = reader.iter(&TableReadOptions::default());
    let mut steps = 0;
    let mut more = iter.seek_to_first().unwrap_or(false);
    while more && steps < 1000 {
        let _ = (iter.key().to_buf(), iter.value().len());
        more = iter.next().unwrap_or(false);
        steps += 1;
    }
    more = iter.seek_to_last().unwrap_or(false);
    while more && steps < 2000 {
        let _ = (iter.key().to_buf(), iter.value().len());
        more = iter.prev().unwrap_or(false);
        steps += 1;
    }
    for (key, _) in entries {
        let _ = reader
            .get(&ReadContext::default(), key.as_key())
            .map(|found| found.map(|entry| entry.value.len()));
        let _ = reader.visit(&ReadContext::default(), key.as_key(), &mut |_| true);
        let _ = iter.seek(key.as_key());
        let _ = iter.seek_for_prev(key.as_key());
    }
}
