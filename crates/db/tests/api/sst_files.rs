//! Table files outside of databases: the writer and the reader.

use crate::disk::{Disk, forward, refused};
use ironstone::vfs::FileSystem;
use ironstone::{Code, ReadOptions, SstFileReader, SstFileWriter, merge_operators, slice_transform};
use std::path::Path;

const FILE: &str = "/out.sst";

#[test]
fn what_is_written_is_read() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.merge_operator = Some(merge_operators::string_append(","));
    let mut writer = SstFileWriter::new(&options);
    writer.open(FILE).unwrap();
    for i in 0..1000 {
        writer.put(format!("key{i:04}"), format!("value{i}")).unwrap();
    }
    writer.merge("m", "operand").unwrap();
    writer.delete("n").unwrap();
    writer.delete_range("x", "z").unwrap();
    writer.delete_range("p", "q").unwrap();
    assert!(writer.file_size() > 0);
    let info = writer.finish().unwrap();
    assert_eq!(info.file_path, Path::new(FILE));
    assert_eq!((info.num_entries, info.num_range_del_entries, info.version), (1002, 2, 2));
    assert_eq!((&info.smallest_key[..], &info.largest_key[..]), (&b"key0000"[..], &b"n"[..]));
    assert_eq!((&info.smallest_range_del_key[..], &info.largest_range_del_key[..]), (&b"p"[..], &b"z"[..]));
    assert_eq!(info.file_size, disk.fs.size(Path::new(FILE)).unwrap());

    let reader = SstFileReader::open(&options, FILE).unwrap();
    reader.verify_checksum().unwrap();
    let properties = reader.properties();
    assert_eq!((properties.num_entries, properties.num_range_deletions), (1004, 2));
    assert_eq!(properties.user_collected["rocksdb.external_sst_file.version"], [2, 0, 0, 0]);
    assert_eq!(properties.user_collected["rocksdb.external_sst_file.global_seqno"], [0; 8]);
    assert_eq!(properties.db_id, "SST Writer");
    let found = reader.iter(&ReadOptions::default()).entries().count();
    assert_eq!(found, 1001, "all but the tombstone");
    let few = ReadOptions {
        iterate_lower_bound: Some(b"key0998".to_vec()),
        iterate_upper_bound: Some(b"n".to_vec()),
        ..ReadOptions::default()
    };
    assert_eq!(forward(reader.iter(&few)), "key0998=value998 key0999=value999 m=operand");
}

#[test]
fn single_keys_of_a_file_are_read() {
    let disk = Disk::new();
    for bits in [0, 10] {
        let mut options = disk.options();
        options.cf.merge_operator = Some(merge_operators::string_append(","));
        options.cf.prefix_extractor = Some(slice_transform::fixed_prefix(1));
        if bits > 0 {
            options.set("block_based_table_factory", "{filter_policy=bloomfilter:10}").unwrap();
        }
        let mut writer = SstFileWriter::new(&options);
        writer.open(FILE).unwrap();
        for i in 0..1000 {
            writer.put(format!("key{i:04}"), format!("value{i}")).unwrap();
        }
        writer.merge("m", "operand").unwrap();
        writer.delete("n").unwrap();
        writer.delete_range("x", "z").unwrap();
        writer.finish().unwrap();
        let reader = SstFileReader::open(&options, FILE).unwrap();
        // Bounds are for iterators.
        let read = ReadOptions {
            iterate_lower_bound: Some(b"key0500".to_vec()),
            iterate_upper_bound: Some(b"key0600".to_vec()),
            ..ReadOptions::default()
        };
        let text =
            |value: Option<Vec<u8>>| String::from_utf8(value.unwrap_or_else(|| b"-".to_vec())).unwrap();
        for i in 0..1000 {
            assert_eq!(text(reader.get(&read, format!("key{i:04}")).unwrap()), format!("value{i}"));
        }
        let keys = ["m", "n", "key0007", "key", "key00070", "a", "y", "zz"];
        let found: Vec<String> =
            reader.multi_get(&read, &keys).into_iter().map(|value| text(value.unwrap())).collect();
        assert_eq!(found, ["operand", "-", "value7", "-", "-", "-", "-", "-"]);
        drop(reader);
        disk.fs.corrupt(Path::new(FILE), |bytes| bytes[20] ^= 1).unwrap();
        let reader = SstFileReader::open(&options, FILE).unwrap();
        refused(reader.get(&read, "key0000"), Code::Corruption, FILE);
        assert_eq!(text(reader.get(&read, "key0999").unwrap()), "value999", "of another block");
    }
}

#[test]
fn keys_must_ascend_and_files_must_hold_something() {
    let disk = Disk::new();
    let mut writer = SstFileWriter::new(&disk.options());
    refused(writer.put("a", "1"), Code::InvalidArgument, "File is not opened");
    refused(writer.finish(), Code::InvalidArgument, "File is not opened");
    writer.open(FILE).unwrap();
    refused(writer.finish(), Code::InvalidArgument, "no entries");
    writer.open(FILE).unwrap();
    writer.put("b", "1").unwrap();
    refused(writer.put("b", "2"), Code::InvalidArgument, "strict ascending order");
    refused(writer.delete("a"), Code::InvalidArgument, "strict ascending order");
    refused(writer.delete_range("b", "a"), Code::InvalidArgument, "end key comes before start key");
    writer.delete_range("c", "c").unwrap();
    writer.put("c", "3").unwrap();
    assert_eq!(writer.finish().unwrap().num_range_del_entries, 0);
    let reader = SstFileReader::open(&disk.options(), FILE).unwrap();
    assert_eq!(forward(reader.iter(&ReadOptions::default())), "b=1 c=3");
}

#[test]
fn one_writer_makes_several_files_with_ids_of_their_own() {
    let disk = Disk::new();
    let mut writer = SstFileWriter::new(&disk.options());
    let mut numbers = Vec::new();
    for name in ["/1.sst", "/2.sst"] {
        writer.open(name).unwrap();
        writer.put("k", "v").unwrap();
        writer.finish().unwrap();
        let reader = SstFileReader::open(&disk.options(), name).unwrap();
        numbers.push(reader.properties().original_file_number);
        assert!(!reader.properties().db_session_id.is_empty());
    }
    assert_eq!(numbers, [1, 2]);
}

#[test]
fn damage_is_found() {
    let disk = Disk::new();
    let mut writer = SstFileWriter::new(&disk.options());
    writer.open(FILE).unwrap();
    for i in 0..1000 {
        writer.put(format!("key{i:04}"), format!("value{i}")).unwrap();
    }
    writer.finish().unwrap();
    let mut bytes = disk.fs.read_all(Path::new(FILE)).unwrap();
    bytes[100] ^= 1;
    disk.fs.write_all_synced(Path::new(FILE), &bytes).unwrap();
    let reader = SstFileReader::open(&disk.options(), FILE).unwrap();
    refused(reader.verify_checksum(), Code::Corruption, "/out.sst at 0");
}
