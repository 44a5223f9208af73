//! Sizes of key ranges, about.

use crate::disk::{DIR, Disk, fresh, refused, rewrite_all};
use ironstone::{
    ApproximateMemTableStats, Code, CompressionKind, Db, MemTableKind, Options, SizeApproximationOptions,
    TableFormat, slice_transform,
};
use std::ops::Range;

const KEYS: u64 = 4000;

fn key(number: u64) -> String {
    format!("key{number:06}")
}
fn keys(range: Range<u64>) -> Range<String> {
    key(range.start)..key(range.end)
}

/// Values of 100 bytes under `KEYS` keys, all of them on the last level, and those of a quarter on level 0 twice more.
fn filled(disk: &Disk, settings: &Options) -> Db {
    let mut settings = settings.clone();
    settings.cf.compression = CompressionKind::None;
    settings.cf.target_file_size_base = 32 << 10;
    let db = disk.open_with(&settings);
    let put = |numbers: Range<u64>| {
        for number in numbers {
            db.put(key(number), format!("{number:0100}")).unwrap();
        }
        db.flush().unwrap();
    };
    put(0..KEYS);
    rewrite_all(&db);
    put(KEYS / 4..KEYS / 2);
    put(KEYS / 4..KEYS / 2);
    db
}

const FILES: SizeApproximationOptions =
    SizeApproximationOptions { include_memtables: false, include_files: true, files_size_error_margin: -1.0 };
const MEMTABLES: SizeApproximationOptions =
    SizeApproximationOptions { include_memtables: true, include_files: false, ..FILES };

fn size(db: &Db, options: &SizeApproximationOptions, range: Range<String>) -> u64 {
    db.approximate_sizes(options, db.default_column_family(), &[range]).unwrap()[0]
}
fn file_bytes(db: &Db) -> u64 {
    db.live_files().iter().map(|file| file.size).sum()
}

#[test]
fn sizes_of_ranges_add_up_to_the_files() {
    let disk = Disk::new();
    let db = filled(&disk, &disk.options());
    let all = file_bytes(&db);
    assert!(db.live_files().len() > 10);
    assert_eq!(size(&db, &FILES, keys(0..KEYS)), all);
    assert_eq!(size(&db, &FILES, "".to_owned().."z".to_owned()), all);
    for parts in [2, 3, 7, 50] {
        let ranges: Vec<_> =
            (0..parts).map(|part| keys(KEYS * part / parts..KEYS * (part + 1) / parts)).collect();
        let sizes = db.approximate_sizes(&FILES, db.default_column_family(), &ranges).unwrap();
        let sum: u64 = sizes.iter().sum();
        // Each table rounds down once for each range.
        assert!(
            sum <= all && sum + parts * db.live_files().len() as u64 > all,
            "{sum} of {all} in {sizes:?}"
        );
        assert!(sizes.iter().all(|size| *size > 0));
    }
    // Every key is there once, those of one quarter three times.
    let unit = all as f64 / (KEYS as f64 * 1.5);
    for (numbers, times) in
        [(0..KEYS / 4, 1.0), (KEYS / 4..KEYS / 2, 3.0), (3000..3500, 1.0), (1100..1200, 3.0)]
    {
        let expected = unit * times * (numbers.end - numbers.start) as f64;
        let found = size(&db, &FILES, keys(numbers.clone())) as f64;
        let block = 3.0 * 4096.0 * 1.2;
        assert!((found - expected).abs() < expected * 0.1 + block, "{numbers:?}: {found}, not {expected}");
    }
    for nothing in [keys(10..10), key(20)..key(10), "a".to_owned().."b".to_owned(), key(KEYS).."z".to_owned()]
    {
        assert_eq!(size(&db, &FILES, nothing.clone()), 0, "{nothing:?}");
    }
    assert_eq!(size(&db, &MEMTABLES, keys(0..KEYS)), 0, "all is flushed");
    drop(db);
    let read_only = disk.open_read_only(&disk.options(), &[]).unwrap();
    assert_eq!(size(&read_only, &FILES, keys(0..KEYS)), all);
}

#[test]
fn a_margin_spares_the_tables_at_the_borders() {
    let disk = Disk::new();
    let mut settings = disk.options();
    settings.db.paranoid_checks = false; // Tables are opened when they are needed.
    drop(filled(&disk, &settings));
    let db = disk.open_with(&settings);
    let files = db.live_files();
    // From within the second table of the last level to within the last but one.
    let mut last: Vec<_> = files.iter().filter(|file| file.level > 0).collect();
    last.sort_by(|a, b| a.smallest.cmp(&b.smallest));
    let inside = |file: &ironstone::LiveFile| String::from_utf8([&file.smallest[..], b"+"].concat()).unwrap();
    let range = inside(last[1])..inside(last[last.len() - 2]);
    let whole: u64 = last[2..last.len() - 2].iter().map(|file| file.size).sum::<u64>()
        + files.iter().filter(|file| file.level == 0).map(|file| file.size).sum::<u64>();
    let borders = last[1].size + last[last.len() - 2].size;
    let within = |files_size_error_margin| SizeApproximationOptions { files_size_error_margin, ..FILES };
    let margin = borders as f64 / whole as f64;
    let opened = || db.int_property("rocksdb.estimate-table-readers-mem").unwrap();
    assert_eq!(size(&db, &within(margin * 1.01), range.clone()), whole + borders / 2);
    assert_eq!(opened(), 0, "no table was opened");
    let exact = size(&db, &FILES, range.clone());
    assert!(opened() > 0);
    // The range begins where one begins, and ends there.
    assert!(exact.abs_diff(whole + last[1].size) < 2 * 4096 + 1000, "{exact}");
    assert_eq!(size(&db, &within(margin * 0.99), range.clone()), exact);
    assert_eq!(size(&db, &within(0.0), range), exact);
}

#[test]
fn memtables_count_if_that_is_wished() {
    for kind in [MemTableKind::RadixTree, MemTableKind::SkipList, MemTableKind::Vector] {
        let disk = Disk::new();
        let mut settings = disk.options();
        settings.cf.memtable_factory = kind;
        let db = disk.open_with(&settings);
        let stats = |range| db.approximate_memtable_stats(db.default_column_family(), range).unwrap();
        assert_eq!(stats(keys(0..KEYS)), ApproximateMemTableStats::default());
        for number in 0..KEYS {
            db.put(key(number * 7919 % KEYS), [b'v'; 100]).unwrap();
        }
        assert_eq!(stats(keys(100..150)).count, 50, "few are counted");
        assert_eq!(stats(keys(10..10)).count, 0);
        assert_eq!(stats(key(20)..key(10)).count, 0);
        for numbers in [0..KEYS, 0..KEYS / 2, 1000..3000, 3500..KEYS] {
            let expected = (numbers.end - numbers.start) as f64;
            let ApproximateMemTableStats { count, size: bytes } = stats(keys(numbers.clone()));
            assert!((count as f64 - expected).abs() < KEYS as f64 * 0.15, "{kind:?}, {numbers:?}: {count}");
            assert!((100 * count..130 * count).contains(&bytes), "{kind:?}: {bytes} for {count}");
            assert_eq!(size(&db, &MEMTABLES, keys(numbers.clone())), bytes);
            assert_eq!(size(&db, &FILES, keys(numbers)), 0);
        }
        let before = size(&db, &MEMTABLES, keys(0..KEYS));
        db.flush().unwrap();
        let both = SizeApproximationOptions { include_memtables: true, ..FILES };
        assert_eq!(size(&db, &both, keys(0..KEYS)), file_bytes(&db));
        for number in 0..10 {
            db.put(key(number), [b'v'; 100]).unwrap();
        }
        assert_eq!(stats(keys(0..KEYS)).count, 10);
        assert!(size(&db, &both, keys(0..KEYS)) > file_bytes(&db) + 1000);
        assert!(before > 100 * KEYS / 2);
    }
}

#[test]
fn tables_of_every_format_are_asked() {
    for format in [TableFormat::Plain, TableFormat::Cuckoo] {
        let disk = Disk::new();
        let mut settings = disk.options();
        settings.cf.table_format = format;
        settings.cf.prefix_extractor =
            (format == TableFormat::Plain).then(|| slice_transform::fixed_prefix(3));
        let db = disk.open_with(&settings);
        for number in 0..KEYS {
            db.put(key(number), format!("{number:0100}")).unwrap();
        }
        db.flush().unwrap();
        let all = file_bytes(&db);
        assert_eq!(size(&db, &FILES, keys(0..KEYS)), all, "{format:?}");
        let quarter = size(&db, &FILES, keys(1000..2000));
        assert!(quarter.abs_diff(all / 4) < all / 20, "{format:?}: {quarter} of {all}");
    }
}

#[test]
fn nothing_to_count_and_strange_column_families_are_refused() {
    let (disk, db) = fresh();
    let neither = SizeApproximationOptions { include_files: false, ..FILES };
    let ask =
        |db: &Db, options: &SizeApproximationOptions, cf| db.approximate_sizes(options, cf, &[keys(0..1)]);
    refused(ask(&db, &neither, db.default_column_family()), Code::InvalidArgument, "neither");
    let cf = db.create_column_family("gone", &disk.options().cf).unwrap();
    db.drop_column_family(&cf).unwrap();
    refused(ask(&db, &FILES, &cf), Code::ColumnFamilyDropped, "gone");
    refused(db.approximate_memtable_stats(&cf, keys(0..1)), Code::ColumnFamilyDropped, "gone");
    // What cannot be read is said.
    for number in 0..KEYS {
        db.put(key(number), "v").unwrap();
    }
    db.flush().unwrap();
    drop((cf, db));
    let table = disk.newest(".sst");
    disk.fs.corrupt(&table, |bytes| bytes.truncate(bytes.len() - 7)).unwrap();
    let mut settings = disk.options();
    settings.db.paranoid_checks = false;
    let db = Db::open(&settings, DIR).unwrap();
    assert!(size(&db, &FILES, "a".to_owned().."z".to_owned()) > 0, "the MANIFEST knows");
    let result = db.approximate_sizes(&FILES, db.default_column_family(), &[keys(1..2)]);
    refused(result, Code::Corruption, &table.to_string_lossy());
}
