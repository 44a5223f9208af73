//! Table files outside of databases: the writer and the reader.

use crate::disk::{Disk, forward, refused};
use ironstone::vfs::FileSystem;
use ironstone::{
    Code, ReadOptions, SstFileReader, SstFileWriter, TableIterator, merge_operators, slice_transform,
};
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

#[test]
fn all_entries_of_a_table_are_shown_as_they_are_stored() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.merge_operator = Some(merge_operators::string_append(","));
    let db = disk.open_with(&options);
    db.put("a", "1").unwrap();
    let _old = db.snapshot();
    db.put("a", "2").unwrap();
    db.delete("b").unwrap();
    db.merge("c", "+").unwrap();
    db.single_delete("d").unwrap();
    db.delete_range("x", "z").unwrap();
    db.put("e", "5").unwrap();
    db.flush().unwrap();
    let reader = SstFileReader::open(&options, disk.newest(".sst")).unwrap();
    let mut iter = reader.table_iter();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let here = |iter: &TableIterator| {
        iter.entry().map(|entry| {
            format!("{}@{} {:?} {}", text(entry.key), entry.sequence.0, entry.kind, text(entry.value))
        })
    };
    let stored = ["a@2 Put 2", "a@1 Put 1", "b@3 Delete ", "c@4 Merge +", "d@5 SingleDelete ", "e@7 Put 5"];
    assert_eq!(here(&iter), None);
    let mut shown = Vec::new();
    let mut more = iter.seek_to_first().unwrap();
    while more {
        shown.extend(here(&iter));
        more = iter.next().unwrap();
    }
    assert_eq!(shown, stored);
    assert!(!iter.next().unwrap() && !iter.prev().unwrap() && iter.entry().is_none(), "it stands nowhere");
    shown.clear();
    let mut more = iter.seek_to_last().unwrap();
    while more {
        shown.extend(here(&iter));
        more = iter.prev().unwrap();
    }
    shown.reverse();
    assert_eq!(shown, stored);
    for (key, from, back) in [
        ("a", Some("a@2 Put 2"), Some("a@1 Put 1")),
        ("aa", Some("b@3 Delete "), Some("a@1 Put 1")),
        ("", Some("a@2 Put 2"), None),
        ("y", None, Some("e@7 Put 5")),
    ] {
        assert_eq!(iter.seek(key).unwrap(), from.is_some());
        assert_eq!(here(&iter).as_deref(), from, "{key:?}");
        assert_eq!(iter.seek_for_prev(key).unwrap(), back.is_some());
        assert_eq!(here(&iter).as_deref(), back, "{key:?}");
    }
    reader.verify_num_entries().unwrap();
}

#[test]
fn a_wrong_number_of_entries_is_found() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.set("block_based_table_factory", "{checksum=kNoChecksum}").unwrap();
    let mut writer = SstFileWriter::new(&options);
    writer.open(FILE).unwrap();
    (0..1000).for_each(|i| writer.put(format!("key{i:04}"), "v").unwrap());
    writer.delete_range("x", "z").unwrap();
    writer.finish().unwrap();
    SstFileReader::open(&options, FILE).unwrap().verify_num_entries().unwrap();
    // 1001 as a varint, behind the name of the property.
    let says = b"entries\xe9\x07";
    let change = |bytes: &mut Vec<u8>| {
        let at = bytes.windows(says.len()).position(|window| window == says).expect("it says so");
        bytes[at + says.len() - 2] += 1;
    };
    disk.fs.corrupt(Path::new(FILE), change).unwrap();
    let reader = SstFileReader::open(&options, FILE).unwrap();
    let error = refused(reader.verify_num_entries(), Code::Corruption, FILE);
    assert!(error.message().contains("1001 entries, and 1000 were read"), "{error}");
}
