//! Iterators over several column families.

use crate::disk::{Disk, refused};
use ironstone::{
    Code, ColumnFamily, ColumnFamilyOptions, Db, MultiCfIterator, ReadOptions, UserComparator, WriteOptions,
};
use std::collections::BTreeMap;

fn families(db: &Db, count: usize) -> Vec<ColumnFamily> {
    let create = |number| db.create_column_family(&format!("cf{number}"), &ColumnFamilyOptions::default());
    (0..count).map(|number| create(number).unwrap()).collect()
}

fn over(db: &Db, cfs: &[ColumnFamily]) -> MultiCfIterator {
    db.iter_over_cfs(&ReadOptions::default(), &cfs.iter().collect::<Vec<_>>()).unwrap()
}

/// The key and who has it, as `k:0=a,2=c`; `-` for nothing.
fn here(iter: &MultiCfIterator) -> String {
    assert_eq!(iter.valid(), iter.key().is_some());
    let Some(key) = iter.key() else { return "-".to_owned() };
    assert_eq!(iter.value(), iter.groups().last().map(|(_, value)| value));
    let groups: Vec<_> =
        iter.groups().map(|(cf, value)| format!("{cf}={}", String::from_utf8_lossy(value))).collect();
    format!("{}:{}", String::from_utf8_lossy(key), groups.join(","))
}

#[test]
fn a_key_of_several_column_families_comes_once() {
    let disk = Disk::new();
    let db = disk.open();
    let cfs = families(&db, 3);
    for (cf, key, value) in [(0, "b", "x"), (2, "b", "z"), (1, "a", "y"), (1, "c", "u"), (2, "c", "v")] {
        db.put_cf(&WriteOptions::default(), &cfs[cf], key, value).unwrap();
    }
    let mut iter = over(&db, &cfs);
    assert_eq!(here(&iter), "-");
    assert!(!iter.next().unwrap(), "it stands nowhere yet");
    let mut seen = Vec::new();
    let mut more = iter.seek_to_first().unwrap();
    while more {
        seen.push(here(&iter));
        more = iter.next().unwrap();
    }
    assert_eq!(seen, ["a:1=y", "b:0=x,2=z", "c:1=u,2=v"]);
    assert!(iter.seek_to_last().unwrap());
    assert_eq!(here(&iter), "c:1=u,2=v");
    assert!(iter.prev().unwrap());
    assert_eq!(here(&iter), "b:0=x,2=z");
    assert!(iter.next().unwrap());
    assert_eq!(here(&iter), "c:1=u,2=v");
    assert!(!iter.next().unwrap());
    assert_eq!(here(&iter), "-");
    // As of the moment when it was made.
    assert!(iter.seek("b").unwrap());
    db.delete_cf(&WriteOptions::default(), &cfs[0], "b").unwrap();
    assert_eq!((iter.seek("b").unwrap(), here(&iter)), (true, "b:0=x,2=z".to_owned()));
}

#[test]
fn random_moves_find_what_a_map_has() {
    let disk = Disk::new();
    let db = disk.open();
    let cfs = families(&db, 4);
    let mut model: BTreeMap<String, BTreeMap<usize, String>> = BTreeMap::new();
    let mut state = 7_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for number in 0..400 {
        let (cf, key) = (random(4) as usize, format!("{:03}", random(200)));
        db.put_cf(&WriteOptions::default(), &cfs[cf], &key, number.to_string()).unwrap();
        model.entry(key).or_default().insert(cf, number.to_string());
        if number == 200 {
            db.flush().unwrap();
        }
    }
    let shown = |entry: Option<(&String, &BTreeMap<usize, String>)>| {
        entry.map_or_else(
            || "-".to_owned(),
            |(key, groups)| {
                let groups: Vec<_> = groups.iter().map(|(cf, value)| format!("{cf}={value}")).collect();
                format!("{key}:{}", groups.join(","))
            },
        )
    };
    let mut iter = over(&db, &cfs);
    let mut at: Option<String> = None;
    for step in 0..3000 {
        let target = format!("{:03}", random(210));
        let expected = match (random(6), &at) {
            (0, _) => {
                iter.seek(&target).unwrap();
                model.range(target..).next()
            }
            (1, _) => {
                iter.seek_for_prev(&target).unwrap();
                model.range(..=target).next_back()
            }
            (2 | 3, Some(key)) => {
                iter.next().unwrap();
                model.range(key.clone()..).nth(1)
            }
            (_, Some(key)) => {
                iter.prev().unwrap();
                model.range(..key.clone()).next_back()
            }
            (2, None) => {
                iter.seek_to_first().unwrap();
                model.first_key_value()
            }
            (_, None) => {
                iter.seek_to_last().unwrap();
                model.last_key_value()
            }
        };
        assert_eq!(here(&iter), shown(expected), "step {step}");
        at = expected.map(|(key, _)| key.clone());
    }
}

#[test]
fn bounds_hold_in_each_column_family() {
    let disk = Disk::new();
    let db = disk.open();
    let cfs = families(&db, 2);
    for key in ["a", "b", "c", "d"] {
        db.put_cf(&WriteOptions::default(), &cfs[0], key, "0").unwrap();
        db.put_cf(&WriteOptions::default(), &cfs[1], key, "1").unwrap();
    }
    let options = ReadOptions {
        iterate_lower_bound: Some(b"b".to_vec()),
        iterate_upper_bound: Some(b"d".to_vec()),
        ..ReadOptions::default()
    };
    let mut iter = db.iter_over_cfs(&options, &[&cfs[1], &cfs[0]]).unwrap();
    iter.seek_to_first().unwrap();
    assert_eq!(here(&iter), "b:0=1,1=0", "numbered as they were named");
    iter.seek_to_last().unwrap();
    assert_eq!(here(&iter), "c:0=1,1=0");
    assert!(!iter.next().unwrap());
}

#[test]
fn column_families_in_other_orders_are_refused() {
    let disk = Disk::new();
    let db = disk.open();
    let reverse =
        ColumnFamilyOptions { comparator: UserComparator::ReverseBytewise, ..ColumnFamilyOptions::default() };
    let reverse = db.create_column_family("reverse", &reverse).unwrap();
    let default = db.default_column_family();
    let refusal = |cfs: &[&ColumnFamily], what| {
        refused(db.iter_over_cfs(&ReadOptions::default(), cfs).map(drop), Code::InvalidArgument, what);
    };
    refusal(&[], "no column family");
    refusal(&[default, &reverse], "\"reverse\" by rocksdb.ReverseBytewiseComparator");
}

#[test]
fn a_damaged_table_stops_the_iterator() {
    let disk = Disk::new();
    let options = disk.options();
    let db = disk.open_with(&options);
    let cfs = families(&db, 2);
    for key in 0..2000_u32 {
        db.put_cf(&WriteOptions::default(), &cfs[(key % 2) as usize], key.to_be_bytes(), [7; 100]).unwrap();
    }
    db.flush_cfs(&ironstone::FlushOptions::default(), &[&cfs[0], &cfs[1]]).unwrap();
    disk.fs.corrupt(&disk.files(".sst")[0], |bytes| bytes[5000] ^= 1).unwrap();
    let mut iter = over(&db, &cfs);
    let mut keys = 0;
    let failed = loop {
        match if keys == 0 { iter.seek_to_first() } else { iter.next() } {
            Ok(true) => keys += 1,
            Ok(false) => panic!("it came to the end"),
            Err(error) => break error,
        }
    };
    assert_eq!(failed.code(), Code::Corruption);
    assert!(keys > 10 && keys < 1900);
    assert_eq!(here(&iter), "-");
    assert_eq!(iter.status().unwrap_err().code(), Code::Corruption);
}
