//! Databases whose tables are not block-based: they answer as others do, beside tables of other formats, and refuse what their
//! format has no place for.

use crate::disk::{Disk, all, backward, forward, get, refused, rewrite_all};
use ironstone::{
    Code, Db, IngestOptions, Options, PlainEncoding, ReadOptions, SstFileWriter, TableFormat,
    merge_operators, slice_transform,
};

/// Options for plain tables: by prefixes of two bytes, or in total order.
fn plain(disk: &Disk, by_prefix: bool) -> Options {
    let mut options = disk.options();
    options.cf.table_format = TableFormat::Plain;
    options.cf.merge_operator = Some(merge_operators::string_append(","));
    if by_prefix {
        options.cf.prefix_extractor = Some(slice_transform::fixed_prefix(2));
    } else {
        options.cf.plain_table.hash_table_ratio = 0.0;
    }
    options
}

/// A few overlapping tables: puts, overwrites, deletions and merges.
fn fill(db: &Db) {
    for round in 0..3 {
        for number in 0..60 {
            let key = format!("{:02}/{number:03}", number % 7);
            match (number + round) % 5 {
                0 => db.delete(&key).unwrap(),
                1 => db.merge(&key, format!("m{round}")).unwrap(),
                2 if round == 2 => db.single_delete(format!("only{number}")).unwrap(),
                _ => db.put(&key, format!("v{round}.{number}")).unwrap(),
            }
        }
        db.put(format!("only{round}"), "x").unwrap();
        db.flush().unwrap();
    }
}

/// What a database with block-based tables shows after [`fill`].
fn expected() -> String {
    let disk = Disk::new();
    let mut options = plain(&disk, true);
    options.cf.table_format = TableFormat::BlockBased;
    let db = disk.open_with(&options);
    fill(&db);
    all(&db)
}

/// Of each table whether it is plain, by the number that ends it.
fn are_plain(disk: &Disk, db: &Db) -> Vec<bool> {
    const PLAIN: u64 = 0x4f34_18eb_7a8f_13b8;
    let fs = disk.env().fs;
    let is_plain = |file: &ironstone::LiveFile| {
        let bytes = fs.read_all(&file.directory.join(format!("{:06}.sst", file.number.0))).unwrap();
        bytes.last_chunk().map(|magic| u64::from_le_bytes(*magic)) == Some(PLAIN)
    };
    db.live_files().iter().map(is_plain).collect()
}

fn total_order(db: &Db) -> ironstone::DbIterator {
    let options = ReadOptions { total_order_seek: true, ..ReadOptions::default() };
    db.iter_cf(&options, db.default_column_family()).unwrap()
}

#[test]
fn plain_tables_answer_as_others_do() {
    let expected = expected();
    for by_prefix in [true, false] {
        for stored in [true, false] {
            for encoding in [PlainEncoding::Plain, PlainEncoding::Prefix] {
                if encoding == PlainEncoding::Prefix && !by_prefix {
                    continue;
                }
                let disk = Disk::new();
                let mut options = plain(&disk, by_prefix);
                options.cf.plain_table.store_index_in_file = stored;
                options.cf.plain_table.encoding_type = encoding;
                let db = disk.open_with(&options);
                fill(&db);
                assert_eq!(are_plain(&disk, &db), [true; 3]);
                assert_eq!(all(&db), expected);
                drop(db);

                let db = disk.open_with(&options);
                assert_eq!(all(&db), expected);
                assert_eq!(get(&db, "05/005"), "m1");
                rewrite_all(&db);
                assert!(are_plain(&disk, &db).iter().all(|&is_plain| is_plain));
                assert_eq!(forward(total_order(&db)), expected);
                let mut back: Vec<&str> = expected.split(' ').collect();
                back.reverse();
                assert_eq!(backward(total_order(&db)), back.join(" "));
                db.verify_checksum().unwrap();
            }
        }
    }
}

#[test]
fn tables_of_both_formats_lie_side_by_side() {
    let disk = Disk::new();
    let as_plain = plain(&disk, true);
    let mut as_blocks = as_plain.clone();
    as_blocks.cf.table_format = TableFormat::BlockBased;
    let db = disk.open_with(&as_blocks);
    fill(&db);
    drop(db);
    let db = disk.open_with(&as_plain);
    fill(&db);
    assert_eq!(are_plain(&disk, &db).iter().filter(|&&is_plain| is_plain).count(), 3);
    assert_eq!(are_plain(&disk, &db).len(), 6);
    let both = all(&db);
    drop(db);
    // Each is compacted into what the options say.
    for (options, is_plain) in [(&as_plain, true), (&as_blocks, false), (&as_plain, true)] {
        let db = disk.open_with(options);
        assert_eq!(all(&db), both);
        rewrite_all(&db);
        assert!(are_plain(&disk, &db).iter().all(|&found| found == is_plain));
        assert_eq!(all(&db), both);
    }
    // Whoever knows nothing of the options reads them, too.
    let mut options = disk.options();
    options.cf.merge_operator = Some(merge_operators::string_append(","));
    assert_eq!(all(&disk.open_with(&options)), both);
}

#[test]
fn seeks_find_the_keys_of_a_prefix_and_of_all_where_asked() {
    let disk = Disk::new();
    let db = disk.open_with(&plain(&disk, true));
    for key in ["aa1", "aa2", "bb1", "cc1"] {
        db.put(key, "").unwrap();
    }
    db.flush().unwrap();
    let mut iter = db.iter().unwrap();
    assert!(iter.seek("aa2").unwrap() && iter.key() == Some(b"aa2"));
    assert!(iter.seek("bb").unwrap() && iter.key() == Some(b"bb1"));
    // RocksDB refuses these: SeekForPrev, Prev, and a seek in total order.
    let mut iter = total_order(&db);
    assert!(iter.seek("b").unwrap() && iter.key() == Some(b"bb1"));
    assert!(iter.prev().unwrap() && iter.key() == Some(b"aa2"));
    assert!(iter.seek_for_prev("cc0").unwrap() && iter.key() == Some(b"bb1"));
    assert!(iter.seek_to_last().unwrap() && iter.key() == Some(b"cc1"));
    assert!(!iter.seek("cc2").unwrap());
    let found = db.multi_get(&["cc1", "cc", "aa1", "dd"]);
    let found: Vec<bool> = found.into_iter().map(|value| value.unwrap().is_some()).collect();
    assert_eq!(found, [true, false, true, false]);
}

#[test]
fn range_tombstones_and_files_of_other_formats_are_refused_by_name() {
    let disk = Disk::new();
    let options = plain(&disk, true);
    let db = disk.open_with(&options);
    db.put("aa", "1").unwrap();
    refused(db.delete_range("a", "b"), Code::NotSupported, "delete_range");
    assert_eq!(all(&db), "aa=1");
    db.put("ab", "2").unwrap();
    assert_eq!(all(&db), "aa=1 ab=2");

    let path = "/outside.sst";
    let mut writer = SstFileWriter::new(&options);
    writer.open(path).unwrap();
    refused(writer.delete_range("a", "b"), Code::NotSupported, "PlainTable");
    let mut of_blocks = SstFileWriter::new(&disk.options());
    of_blocks.open(path).unwrap();
    of_blocks.put("ac", "3").unwrap();
    of_blocks.finish().unwrap();
    let moved = IngestOptions { move_files: true, ..IngestOptions::default() };
    for (options, says) in [
        (&options, "BlockBasedTable, into a column family with table_factory PlainTable"),
        (&cuckoo(&disk), "CuckooTable"),
    ] {
        let cf = db.create_column_family(says, &options.cf).unwrap();
        refused(db.ingest_external_files(&cf, &[path], &moved), Code::NotSupported, says);
        assert!(disk.exists(path) && all_of(&db, &cf).is_empty());
    }
    assert_eq!(disk.files(".sst"), [std::path::PathBuf::from(path)], "what was refused left nothing behind");
    refused(db.set_options(&[("table_factory", "BlockBasedTable")]), Code::InvalidArgument, "table_factory");
    db.set_options(&[("plain_table_factory", "{index_sparseness=4}")]).unwrap();
}

#[test]
fn iterators_leave_no_range_tombstones_in_memtables_of_plain_tables() {
    let disk = Disk::new();
    let mut options = plain(&disk, false);
    options.cf.min_tombstones_for_range_conversion = 5;
    let db = disk.open_with(&options);
    for number in 0..50 {
        db.put(format!("{number:02}"), "").unwrap();
    }
    db.flush().unwrap();
    for number in 0..49 {
        db.delete(format!("{number:02}")).unwrap();
    }
    for _ in 0..3 {
        assert_eq!(all(&db), "49=");
    }
    db.flush().unwrap();
    rewrite_all(&db);
    assert_eq!(all(&db), "49=");
}

#[test]
fn options_that_make_no_plain_tables_are_refused() {
    let disk = Disk::new();
    let mut options = plain(&disk, true);
    options.cf.prefix_extractor = None;
    refused(disk.try_open(&options), Code::InvalidArgument, "hash_table_ratio");
    options.cf.plain_table.hash_table_ratio = 0.0;
    options.cf.plain_table.encoding_type = PlainEncoding::Prefix;
    refused(disk.try_open(&options), Code::InvalidArgument, "kPrefix");
    options.cf.plain_table.encoding_type = PlainEncoding::Plain;
    options.cf.plain_table.hash_table_ratio = -1.0;
    refused(disk.try_open(&options), Code::InvalidArgument, "hash_table_ratio");
}

#[test]
fn a_key_of_another_length_fails_the_flush_and_is_not_lost() {
    let disk = Disk::new();
    let mut options = plain(&disk, false);
    options.cf.plain_table.user_key_len = 2;
    let db = disk.open_with(&options);
    db.put("aa", "1").unwrap();
    db.flush().unwrap();
    db.put("long", "2").unwrap();
    let error = refused(db.flush(), Code::NotSupported, "user_key_len=2");
    assert!(error.message().contains(".sst"), "{error}");
    drop(db);
    options.cf.plain_table.user_key_len = 0;
    let db = disk.open_with(&options);
    assert_eq!(all(&db), "aa=1 long=2");
}

fn all_of(db: &Db, cf: &ironstone::ColumnFamily) -> String {
    forward(db.iter_cf(&ReadOptions { total_order_seek: true, ..ReadOptions::default() }, cf).unwrap())
}

/// Writes a file with `entries` (`key=value`, `key-` for a tombstone, `key+operand`), and ingests it.
fn ingest(db: &Db, options: &Options, entries: &str, how: &IngestOptions) -> ironstone::Result<()> {
    let mut writer = SstFileWriter::new(options);
    writer.open("/in.sst")?;
    for entry in entries.split(' ') {
        let at = entry.find(['=', '-', '+']).unwrap();
        let (key, value) = (&entry[..at], &entry[at + 1..]);
        match &entry[at..=at] {
            "=" => writer.put(key, value)?,
            "+" => writer.merge(key, value)?,
            _ => writer.delete(key)?,
        }
    }
    assert!(writer.file_size() > 0);
    writer.finish()?;
    db.ingest_external_files(db.default_column_family(), &["/in.sst"], how)
}

#[test]
fn plain_files_from_outside_count_as_written_when_they_come_in() {
    for by_prefix in [true, false] {
        for stored in [true, false] {
            let disk = Disk::new();
            let mut options = plain(&disk, by_prefix);
            options.cf.plain_table.store_index_in_file = stored;
            let db = disk.open_with(&options);
            for key in ["aa1", "aa2", "ab1", "zz1"] {
                db.put(key, "old").unwrap();
            }
            rewrite_all(&db);
            db.put("aa2", "memtable").unwrap();
            let before = db.snapshot();
            ingest(&db, &options, "aa1- aa2=file ab1+file b=file", &IngestOptions::default()).unwrap();
            db.put("b", "later").unwrap();
            let expected = "aa2=file ab1=old,file b=later zz1=old";
            assert_eq!(all(&db), expected);
            assert_eq!(get(&db, "aa2"), "file");
            let at = ReadOptions { snapshot: Some(before), total_order_seek: true, ..ReadOptions::default() };
            let past = forward(db.iter_cf(&at, db.default_column_family()).unwrap());
            assert_eq!(past, "aa1=old aa2=memtable ab1=old zz1=old");
            let value = db.get_cf(&at, db.default_column_family(), "aa1").unwrap();
            assert_eq!(value.as_deref(), Some(&b"old"[..]));
            drop(at);
            db.verify_checksum().unwrap();
            drop(db);
            let db = disk.lose_power().open_with(&options);
            assert_eq!(all(&db), "aa2=file ab1=old,file b=file zz1=old", "the last put was not synced");
            rewrite_all(&db);
            assert_eq!(all(&db), "aa2=file ab1=old,file b=file zz1=old");
        }
    }
}

#[test]
fn a_plain_file_goes_below_where_nothing_is_in_its_way() {
    let disk = Disk::new();
    let options = plain(&disk, true);
    let db = disk.open_with(&options);
    db.put("mm", "1").unwrap();
    db.flush().unwrap();
    ingest(&db, &options, "aa=1 ab=1", &IngestOptions::default()).unwrap();
    let last = db.live_files().iter().map(|file| file.level).max();
    assert!(last > Some(0), "{last:?}");
    ingest(&db, &options, "ab=2 mm=2", &IngestOptions::default()).unwrap();
    assert_eq!(all(&db), "aa=1 ab=2 mm=2");
    let no_number = IngestOptions { allow_global_seqno: false, ..IngestOptions::default() };
    refused(ingest(&db, &options, "ab=3", &no_number), Code::InvalidArgument, "Global seqno is required");
    ingest(&db, &options, "zz=3", &no_number).unwrap();
    assert_eq!(are_plain(&disk, &db), [true; 4]);
    assert_eq!(all(&db), "aa=1 ab=2 mm=2 zz=3");
    // Without a MANIFEST nobody knows when they came in: a repair leaves them for the application to ingest again.
    drop(db);
    disk.open_with(&options).close().unwrap();
    assert_eq!(all(&disk.open_with(&options)), "aa=1 ab=2 mm=2 zz=3");
}

#[test]
fn cuckoo_files_from_outside_count_as_written_when_they_come_in() {
    for module in [true, false] {
        let disk = Disk::new();
        let mut options = cuckoo(&disk);
        options.cf.cuckoo_table.use_module_hash = module;
        let db = disk.open_with(&options);
        for key in ["aa1", "aa2", "zz1"] {
            db.put(key, "old.").unwrap();
        }
        db.flush().unwrap();
        db.put("aa2", "mem.").unwrap();
        // All values, which are stored without sequence numbers; and with a tombstone, where they have theirs.
        ingest(&db, &options, "aa2=file b__=file", &IngestOptions::default()).unwrap();
        assert_eq!(all(&db), "aa1=old. aa2=file b__=file zz1=old.");
        ingest(&db, &options, "aa1- b__=2nd.", &IngestOptions::default()).unwrap();
        let expected = "aa2=file b__=2nd. zz1=old.";
        assert_eq!(all(&db), expected);
        assert_eq!([get(&db, "aa1"), get(&db, "b__")], ["-", "2nd."]);
        refused(ingest(&db, &options, "aa1+1", &IngestOptions::default()), Code::NotSupported, "cuckoo");
        refused(ingest(&db, &options, "a=1 aa=2", &IngestOptions::default()), Code::NotSupported, "cuckoo");
        drop(db);
        let db = disk.lose_power().open_with(&options);
        assert_eq!(all(&db), expected);
        rewrite_all(&db);
        db.verify_checksum().unwrap();
        assert_eq!(all(&db), expected);
    }
}

/// Options for cuckoo tables.
fn cuckoo(disk: &Disk) -> Options {
    let mut options = disk.options();
    options.cf.table_format = TableFormat::Cuckoo;
    options
}

/// Three overlapping rounds of keys and values of one length each.
fn fill_fixed(db: &Db) {
    for round in 0..3 {
        for number in 0..100 {
            let key = format!("key{number:03}");
            match (number + round) % 4 {
                0 => db.delete(&key).unwrap(),
                1 => {}
                _ => db.put(&key, format!("v{round}.{number:03}")).unwrap(),
            }
        }
        db.flush().unwrap();
    }
}

#[test]
fn cuckoo_tables_answer_as_others_do() {
    let disk = Disk::new();
    let db = disk.open();
    fill_fixed(&db);
    let expected = all(&db);
    for (use_module_hash, ratio) in [(true, 0.9), (false, 0.5)] {
        let disk = Disk::new();
        let mut options = cuckoo(&disk);
        options.cf.cuckoo_table.use_module_hash = use_module_hash;
        options.cf.cuckoo_table.hash_table_ratio = ratio;
        let db = disk.open_with(&options);
        fill_fixed(&db);
        assert_eq!(all(&db), expected);
        drop(db);
        let db = disk.open_with(&options);
        assert_eq!(all(&db), expected);
        let mut back: Vec<&str> = expected.split(' ').collect();
        back.reverse();
        assert_eq!(backward(db.iter().unwrap()), back.join(" "));
        rewrite_all(&db);
        db.verify_checksum().unwrap();
        for number in 0..100 {
            let key = format!("key{number:03}");
            let value = get(&db, &key);
            assert_eq!(value != "-", expected.contains(&format!("{key}={value}")), "{key}={value}");
        }
        assert_eq!(all(&db), expected);
        drop(db);
        // And back to blocks.
        let db = disk.open();
        assert_eq!(all(&db), expected);
        rewrite_all(&db);
        assert_eq!(all(&db), expected);
    }
}

#[test]
fn what_cuckoo_tables_have_no_place_for_is_refused_before_it_is_written() {
    let disk = Disk::new();
    let options = cuckoo(&disk);
    let mut merging = options.clone();
    merging.cf.merge_operator = Some(merge_operators::string_append(","));
    refused(disk.try_open(&merging), Code::InvalidArgument, "merge_operator");
    let db = disk.open_with(&options);
    db.put("aa", "1").unwrap();
    refused(db.merge("aa", "2"), Code::NotSupported, "merge");
    refused(db.single_delete("aa"), Code::NotSupported, "single_delete");
    refused(db.delete_range("a", "b"), Code::NotSupported, "delete_range");
    let at = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::default() };
    refused(db.get_cf(&at, db.default_column_family(), "aa"), Code::NotSupported, "one entry of each key");
    refused(db.iter_cf(&at, db.default_column_family()), Code::NotSupported, "one entry of each key");
    // A snapshot that nobody may read at keeps no second entry of a key, which a table would have no place for.
    db.put("aa", "3").unwrap();
    db.flush().unwrap();
    db.put("aa", "4").unwrap();
    db.put("bb", "5").unwrap();
    db.flush().unwrap();
    rewrite_all(&db);
    assert_eq!(all(&db), "aa=4 bb=5");
}

#[test]
fn a_value_of_another_length_fails_the_flush_and_is_not_lost() {
    let disk = Disk::new();
    let db = disk.open_with(&cuckoo(&disk));
    db.put("aa", "1").unwrap();
    db.put("bb", "22").unwrap();
    refused(db.flush(), Code::NotSupported, "a value of 2 bytes in a cuckoo table with values of 1");
    drop(db);
    assert_eq!(all(&disk.open()), "aa=1 bb=22");
}

#[test]
fn mapped_tables_answer_as_others_do() {
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.cf.merge_operator = Some(merge_operators::string_append(","));
    options.cf.prefix_extractor = Some(slice_transform::fixed_prefix(2));
    let expected = expected();
    for format in [TableFormat::BlockBased, TableFormat::Plain] {
        let dir = tempfile::tempdir().unwrap();
        options.cf.table_format = format;
        options.db.allow_mmap_reads = false;
        let db = Db::open(&options, dir.path()).unwrap();
        fill(&db);
        let memory =
            |db: &Db| db.property("rocksdb.estimate-table-readers-mem").unwrap().parse::<u64>().unwrap();
        assert_eq!(all(&db), expected);
        let unmapped = memory(&db);
        db.close().unwrap();

        options.db.allow_mmap_reads = true;
        let db = Db::open(&options, dir.path()).unwrap();
        assert_eq!(all(&db), expected);
        let values = db.multi_get(&["05/005", "none"]);
        assert_eq!(values[0].as_ref().unwrap().as_deref(), Some(&b"m1"[..]));
        if format == TableFormat::Plain {
            // It is not held in memory a second time.
            assert!(memory(&db) < unmapped, "{} {unmapped}", memory(&db));
        }
        // What was read stays, though its table goes.
        let kept = db.get("05/005").unwrap().unwrap();
        rewrite_all(&db);
        assert_eq!(all(&db), expected);
        assert_eq!(*kept, *b"m1");
        db.close().unwrap();

        // A block that changed on the disk is found by its checksum, as if it were read.
        if format == TableFormat::BlockBased {
            let fs = ironstone::vfs::Env::os().fs;
            let name = fs.list(dir.path()).unwrap().into_iter().find(|name| name.ends_with(".sst")).unwrap();
            let path = dir.path().join(name);
            let mut bytes = fs.read_all(&path).unwrap();
            bytes[20] ^= 1;
            fs.write_all_synced(&path, &bytes).unwrap();
            let db = Db::open(&options, dir.path()).unwrap();
            let error = refused(db.get("00/000"), Code::Corruption, "checksum");
            assert!(error.message().contains(".sst"), "{error}");
        }
    }
}
