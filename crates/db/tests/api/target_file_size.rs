//! Compactions cut files by their sizes.

use crate::disk::{Disk, rewrite_all};
use ironstone::{CompressionKind, Db, FilterPolicy, Options};

const TARGET: u64 = 40_000;

/// Options under which a third of a file may be filter and index.
fn options(disk: &Disk) -> Options {
    let mut options = disk.options();
    options.cf.target_file_size_base = TARGET;
    options.cf.compression = CompressionKind::None;
    options.cf.table.block_size = 200;
    options.cf.table.filter_policy = Some(FilterPolicy::bloom(40.0));
    options
}

fn fill_and_compact(db: &Db, keys: usize, value_len: impl Fn(usize) -> usize) {
    (0..keys).for_each(|number| db.put(format!("key{number:06}"), vec![b'v'; value_len(number)]).unwrap());
    db.flush().unwrap();
    rewrite_all(db);
}

/// The sizes of the files, in the order of their keys.
fn sizes(db: &Db) -> Vec<u64> {
    let mut files = db.live_files();
    files.sort_by(|a, b| a.smallest.cmp(&b.smallest));
    files.iter().map(|file| file.size).collect()
}

#[test]
fn files_keep_to_their_target_if_it_is_a_bound() {
    let disk = Disk::new();
    let mut options = options(&disk);
    let db = disk.open_with(&options);
    let of_many_lengths = |number: usize| 500 + number % 10 * 700;
    fill_and_compact(&db, 1000, of_many_lengths);
    let loose = sizes(&db);
    assert!(loose.len() > 50 && loose.iter().any(|&size| size > TARGET), "{loose:?}");

    db.set_options(&[("target_file_size_is_upper_bound", "true")]).unwrap();
    let check = |keys: usize, value_len: &dyn Fn(usize) -> usize| {
        fill_and_compact(&db, keys, value_len);
        let sizes = sizes(&db);
        assert!(sizes.len() > 5 && sizes.iter().all(|&size| size <= TARGET), "{sizes:?}");
        let (_, others) = sizes.split_last().unwrap();
        assert!(others.iter().all(|&size| size > TARGET / 2), "they are not much smaller: {sizes:?}");
    };
    check(1000, &of_many_lengths);
    check(20_000, &|_| 5);
    check(20_000, &|_| 0);
    drop(db);
    options.cf.target_file_size_is_upper_bound = true;
    let db = disk.open_with(&options);
    assert_eq!(db.iter().unwrap().entries().count(), 20_000);
}
