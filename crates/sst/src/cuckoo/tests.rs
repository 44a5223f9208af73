//! Cuckoo tables under any options: built, read, damaged.

use super::*;
use crate::options::{BuildOptions, OpenOptions, ReadContext, TableOptions, TableReadOptions};
use crate::table::{TableBuilder, TableFormat, TableReader};
use ironstone_base::sync::Arc;
use ironstone_base::{
    Code, Comparator, FileNumber, InternalKeyBuf, Result, SequenceNumber, UserComparator, ValueType,
};
use ironstone_iter::InternalIterator;
use ironstone_vfs::mem::MemFileSystem;
use ironstone_vfs::{FileSystem, OpenHints, WriteOptions};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::path::Path;

const PATH: &str = "/000007.sst";
type Entries = Vec<(InternalKeyBuf, Vec<u8>)>;

fn options(cuckoo: CuckooOptions) -> TableOptions {
    TableOptions { format: TableFormat::Cuckoo, cuckoo, ..TableOptions::default() }
}

fn build(fs: &MemFileSystem, table: TableOptions, entries: &Entries) -> Result<Arc<TableOptions>> {
    let table = Arc::new(table);
    let file = fs.create(Path::new(PATH), WriteOptions::default())?;
    let mut builder = TableBuilder::new(BuildOptions::new(Arc::clone(&table)), file)?;
    entries.iter().try_for_each(|(key, value)| builder.add(key.as_key(), value))?;
    let estimated = builder.estimated_file_size();
    let built = builder.finish(true)?;
    assert!(estimated <= built.file_size * 3, "{estimated} expected, {} written", built.file_size);
    assert_eq!(built.smallest.as_ref(), entries.first().map(|(key, _)| key));
    assert_eq!(built.largest.as_ref(), entries.last().map(|(key, _)| key));
    Ok(table)
}

fn open(fs: &MemFileSystem, table: &Arc<TableOptions>) -> Result<Arc<TableReader>> {
    let file = fs.open_random(Path::new(PATH), OpenHints::default())?;
    let size = file.size();
    TableReader::open(file, size, OpenOptions::new(Arc::clone(table), FileNumber(7))).map(Arc::new)
}

/// Entries of one key length and one value length; `last`: as at the bottom, values with sequence number 0.
fn random_entries(rng: &mut SmallRng, count: usize, key_len: usize, last: bool) -> Entries {
    let value_len = rng.random_range(0..30);
    let mut keys = BTreeMap::new();
    for _ in 0..count {
        let key: Vec<u8> = (0..key_len).map(|_| rng.random()).collect();
        let sequence = SequenceNumber(if last { 0 } else { rng.random_range(0..1000) });
        let is_tombstone = !last && rng.random_bool(0.2);
        keys.insert(key, (sequence, is_tombstone));
    }
    let entry = |(key, (sequence, is_tombstone)): (Vec<u8>, (SequenceNumber, bool))| match is_tombstone {
        true => (InternalKeyBuf::new(&key, sequence, ValueType::Deletion), Vec::new()),
        false => {
            let value = (0..value_len).map(|_| rng.random()).collect();
            (InternalKeyBuf::new(&key, sequence, ValueType::Value), value)
        }
    };
    keys.into_iter().map(entry).collect()
}

fn check(reader: &Arc<TableReader>, entries: &Entries, rng: &mut SmallRng) {
    reader.verify_checksums().unwrap();
    let mut iter = reader.iter(&TableReadOptions::default());
    let mut more = iter.seek_to_first().unwrap();
    for (key, value) in entries {
        assert!(more);
        assert_eq!((iter.key(), iter.value(), &*iter.pinned_value()), (key.as_key(), &value[..], &value[..]));
        more = iter.next().unwrap();
    }
    assert!(!more && !iter.valid());
    let mut more = iter.seek_to_last().unwrap();
    for (key, _) in entries.iter().rev() {
        assert!(more && iter.key() == key.as_key());
        more = iter.prev().unwrap();
    }
    assert!(!more);
    let context = ReadContext::default();
    for (number, (key, value)) in entries.iter().enumerate() {
        let found = reader.get(&context, key.as_key()).unwrap().expect("it is there");
        assert_eq!(
            (found.sequence, Ok(found.value_type)),
            (key.as_key().sequence(), key.as_key().value_type())
        );
        assert_eq!(*found.value, value[..]);
        // A read before it was written does not see it.
        if let Some(before) = key.as_key().sequence().0.checked_sub(1) {
            let target = InternalKeyBuf::for_seek(key.user_key(), SequenceNumber(before));
            assert!(reader.get(&context, target.as_key()).unwrap().is_none());
        }
        assert!(iter.seek(key.as_key()).unwrap() && iter.key() == key.as_key());
        let newest = InternalKeyBuf::for_seek(key.user_key(), SequenceNumber::MAX);
        assert!(iter.seek(newest.as_key()).unwrap() && iter.key() == key.as_key());
        let before = number.checked_sub(1).map(|number| entries[number].0.clone());
        assert_eq!(iter.seek_for_prev(newest.as_key()).unwrap(), before.is_some());
        assert!(before.is_none_or(|before| iter.key() == before.as_key()));
    }
    for _ in 0..50 {
        let absent: Vec<u8> = (0..rng.random_range(0..20)).map(|_| rng.random()).collect();
        if entries.iter().all(|(key, _)| key.user_key() != absent) {
            let target = InternalKeyBuf::for_seek(&absent, SequenceNumber::MAX);
            assert!(reader.get(&context, target.as_key()).unwrap().is_none());
        }
    }
    let anchors = reader.anchors(7).unwrap();
    assert!(anchors.len() <= 7 && anchors.is_empty() == entries.is_empty());
}

#[test]
fn what_was_built_is_read_under_any_options() {
    for seed in 0..120 {
        println!("seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let cuckoo = CuckooOptions {
            hash_table_ratio: [0.1, 0.5, 0.9, 1.0][rng.random_range(0..4)],
            max_search_depth: [0, 1, 5, 100][rng.random_range(0..4)],
            cuckoo_block_size: [0, 1, 2, 5, 20][rng.random_range(0..5)],
            identity_as_first_hash: rng.random(),
            use_module_hash: rng.random(),
        };
        let count = [0, 1, 2, 10, 100, 700][rng.random_range(0..6)];
        let (key_len, last) = ([8, 9, 15, 16][rng.random_range(0..4)], rng.random());
        let entries = random_entries(&mut rng, count, key_len, last);
        let fs = MemFileSystem::new();
        let table = match build(&fs, options(cuckoo), &entries) {
            Ok(table) => table,
            // Full tables without a way to make room may run out of hashes.
            Err(error) => {
                assert!(
                    error.code() == Code::NotSupported && error.message().contains("share their hashes"),
                    "{error}"
                );
                assert!(cuckoo.hash_table_ratio > 0.5 && cuckoo.use_module_hash, "{cuckoo:?}");
                continue;
            }
        };
        check(&open(&fs, &table).unwrap(), &entries, &mut rng);
    }
}

#[test]
fn one_entry_with_a_sequence_number_keeps_those_of_all() {
    let entry = |key: &str, sequence, kind, value: &str| {
        (InternalKeyBuf::new(key.as_bytes(), SequenceNumber(sequence), kind), value.as_bytes().to_vec())
    };
    let entries = vec![
        entry("aa", 0, ValueType::Value, "1"),
        entry("bb", 5, ValueType::Value, "2"),
        entry("cc", 7, ValueType::Deletion, ""),
        entry("dd", 0, ValueType::Value, "4"),
    ];
    let fs = MemFileSystem::new();
    let table = build(&fs, options(CuckooOptions::default()), &entries).unwrap();
    check(&open(&fs, &table).unwrap(), &entries, &mut SmallRng::seed_from_u64(2));
}

#[test]
fn the_order_of_the_comparator_is_that_of_the_walk() {
    let mut rng = SmallRng::seed_from_u64(7);
    let mut entries = random_entries(&mut rng, 200, 9, false);
    entries.reverse();
    let table =
        TableOptions { comparator: UserComparator::ReverseBytewise, ..options(CuckooOptions::default()) };
    let fs = MemFileSystem::new();
    let table = build(&fs, table, &entries).unwrap();
    let reader = open(&fs, &table).unwrap();
    let mut iter = reader.iter(&TableReadOptions::default());
    assert!(iter.seek_to_first().unwrap() && iter.key() == entries[0].0.as_key());
    reader.verify_checksums().unwrap();
}

#[test]
fn keys_at_the_ends_of_their_range_leave_a_key_for_empty_buckets() {
    let mut rng = SmallRng::seed_from_u64(1);
    for bytes in [&[0u8][..], &[0xff], &[0, 1], &[5]] {
        let entries: Entries = bytes
            .iter()
            .map(|&byte| {
                (InternalKeyBuf::new(&[byte, byte], SequenceNumber(1), ValueType::Value), vec![byte])
            })
            .collect();
        let fs = MemFileSystem::new();
        let table = build(&fs, options(CuckooOptions::default()), &entries).unwrap();
        check(&open(&fs, &table).unwrap(), &entries, &mut rng);
    }
    // All keys of one byte: none is left.
    let key = |byte: u8| InternalKeyBuf::new(&[byte], SequenceNumber(1), ValueType::Value);
    let all: Entries = (0..=255).map(|byte| (key(byte), vec![byte])).collect();
    let fs = MemFileSystem::new();
    let error = build(&fs, options(CuckooOptions::default()), &all).map(drop).unwrap_err();
    assert!(error.code() == Code::NotSupported && error.message().contains("empty buckets"), "{error}");
}

#[test]
fn what_a_cuckoo_table_has_no_place_for_is_refused_by_name() {
    let key =
        |text: &str, sequence, kind| InternalKeyBuf::new(text.as_bytes(), SequenceNumber(sequence), kind);
    let value = |text: &str| text.as_bytes().to_vec();
    let put = |text: &str, sequence| (key(text, sequence, ValueType::Value), value("value"));
    let cases: [(Entries, &str); 6] = [
        (vec![put("aa", 1), put("bbb", 2)], "a key of 3 bytes in a cuckoo table with keys of 2"),
        (vec![put("aa", 1), (key("bb", 1, ValueType::Value), value("other"))], ""),
        (vec![put("aa", 1), (key("bb", 1, ValueType::Value), value("longer"))], "a value of 6 bytes"),
        (vec![put("aa", 2), put("aa", 1)], "two entries of one key"),
        (vec![(key("aa", 1, ValueType::Merge), value("x"))], "Merge"),
        (vec![(key("aa", 1, ValueType::SingleDeletion), value(""))], "SingleDeletion"),
    ];
    for (entries, what) in cases {
        let built = build(&MemFileSystem::new(), options(CuckooOptions::default()), &entries);
        match built {
            Ok(_) => assert_eq!(what, ""),
            Err(error) => {
                assert_eq!(error.code(), Code::NotSupported, "{error}");
                assert!(
                    !what.is_empty() && error.message().contains(what) && error.message().contains(PATH),
                    "{error}"
                );
            }
        }
    }
    let identity = CuckooOptions { identity_as_first_hash: true, ..CuckooOptions::default() };
    let error =
        build(&MemFileSystem::new(), options(identity), &vec![put("short", 1)]).map(drop).unwrap_err();
    assert_eq!(error.code(), Code::NotSupported);
    for hash_table_ratio in [0.0, -1.0, 1.1, f64::NAN] {
        let cuckoo = CuckooOptions { hash_table_ratio, ..CuckooOptions::default() };
        let error = build(&MemFileSystem::new(), options(cuckoo), &Vec::new()).map(drop).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
    }
    struct Folding;
    impl Comparator for Folding {
        fn name(&self) -> &str {
            "test.Folding"
        }
        fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
            a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase())
        }
    }
    let comparator = UserComparator::Custom(Arc::new(Folding));
    let table = TableOptions { comparator, ..options(CuckooOptions::default()) };
    assert_eq!(
        build(&MemFileSystem::new(), table, &Vec::new()).map(drop).unwrap_err().code(),
        Code::NotSupported
    );
}

#[test]
fn damage_never_panics_and_errors_name_the_file() {
    for last in [false, true] {
        let mut rng = SmallRng::seed_from_u64(3);
        let entries = random_entries(&mut rng, 12, 8, last);
        let fs = MemFileSystem::new();
        let cuckoo = CuckooOptions { cuckoo_block_size: 2, ..CuckooOptions::default() };
        let table = build(&fs, options(cuckoo), &entries).unwrap();
        let bytes = fs.read_all(Path::new(PATH)).unwrap();
        let overwrite = |bytes: &[u8]| {
            let mut file = fs.create(Path::new(PATH), WriteOptions::default()).unwrap();
            file.append(bytes).unwrap();
            file.close().unwrap();
        };
        let names = |error: ironstone_base::Error| {
            assert!(error.to_string().contains(PATH), "{error}");
        };
        for at in 0..bytes.len() {
            for change in [1, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= change;
                overwrite(&damaged);
                let reader = match open(&fs, &table) {
                    Ok(reader) => reader,
                    Err(error) => {
                        names(error);
                        continue;
                    }
                };
                let _ = reader.verify_checksums().map_err(names);
                let _ = reader.anchors(3).map_err(names);
                let mut iter = reader.iter(&TableReadOptions::default());
                let mut more = iter.seek_to_first().map_err(names).unwrap_or(false);
                while more {
                    let _ = (iter.key().to_buf(), iter.value().len());
                    more = iter.next().map_err(names).unwrap_or(false);
                }
                for (key, _) in &entries {
                    let _ = reader.get(&ReadContext::default(), key.as_key()).map_err(names);
                    let _ = iter.seek_for_prev(key.as_key()).map_err(names);
                }
            }
        }
        for len in 0..bytes.len() {
            overwrite(&bytes[..len]);
            names(open(&fs, &table).map(drop).unwrap_err());
        }
        // A key that changed does not lie where its hashes lead.
        let mut damaged = bytes.clone();
        let key = entries[5].0.user_key();
        let at = bytes.windows(key.len()).position(|window| window == key).unwrap();
        damaged[at + 3] ^= 0x10;
        overwrite(&damaged);
        let error = open(&fs, &table).unwrap().verify_checksums().unwrap_err();
        assert!(error.is_corruption(), "{error}");
    }
}

#[test]
fn all_buckets_of_an_external_file_have_the_sequence_number_of_the_manifest() {
    let version = (crate::properties::EXTERNAL_SST_VERSION.to_owned(), 2u32.to_le_bytes().to_vec());
    let number = (crate::properties::EXTERNAL_SST_GLOBAL_SEQNO.to_owned(), vec![0; 8]);
    for kind_of_second in [ValueType::Value, ValueType::Deletion] {
        let fs = MemFileSystem::new();
        let table = Arc::new(options(CuckooOptions::default()));
        let own = vec![version.clone(), number.clone()];
        let build = BuildOptions { user_properties: own, ..BuildOptions::new(Arc::clone(&table)) };
        let file = fs.create(Path::new(PATH), WriteOptions::default()).unwrap();
        let mut builder = TableBuilder::new(build, file).unwrap();
        for (user_key, kind, value) in [("key1", ValueType::Value, "v"), ("key2", kind_of_second, "v")] {
            let key = InternalKeyBuf::new(user_key.as_bytes(), SequenceNumber::ZERO, kind);
            builder.add(key.as_key(), value.as_bytes()).unwrap();
        }
        builder.finish(true).unwrap();
        let file = fs.open_random(Path::new(PATH), OpenHints::default()).unwrap();
        let (size, mut opening) = (file.size(), OpenOptions::new(table, FileNumber(7)));
        opening.largest_sequence = Some(SequenceNumber(70));
        let reader = Arc::new(TableReader::open(file, size, opening).unwrap());
        reader.verify_checksums().unwrap();
        let mut iter = reader.iter(&TableReadOptions::default());
        assert!(iter.seek_to_last().unwrap());
        assert_eq!(
            (iter.key().sequence(), iter.key().value_type()),
            (SequenceNumber(70), Ok(kind_of_second))
        );
        for (at, is_there) in [(69, false), (70, true)] {
            let target = InternalKeyBuf::for_seek(b"key1", SequenceNumber(at));
            let found = reader.get(&ReadContext::default(), target.as_key()).unwrap();
            assert_eq!(found.map(|found| found.sequence), is_there.then_some(SequenceNumber(70)));
        }
    }
}
