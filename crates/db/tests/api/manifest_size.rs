//! How large the MANIFEST becomes before a new one is written.

use crate::disk::{Disk, get};
use ironstone::Db;

/// How many of `flushes` flushes began a new MANIFEST.
fn begun(disk: &Disk, db: &Db, flushes: u32) -> u32 {
    let begins = |_: &u32| {
        let before = disk.newest_in_db("MANIFEST");
        db.put("a", "1").unwrap();
        db.flush().unwrap();
        disk.newest_in_db("MANIFEST") != before
    };
    (0..flushes).filter(begins).count() as u32
}

#[test]
fn a_manifest_is_not_replaced_before_it_has_grown() {
    let disk = Disk::new();
    let mut options = disk.options();
    (options.db.max_manifest_file_size, options.db.max_manifest_space_amp_pct) = (1, 0);
    let db = disk.open_with(&options);
    assert_eq!(begun(&disk, &db, 10), 10, "whatever is written is too much");
    db.set_db_options(&[("max_manifest_space_amp_pct", "500")]).unwrap();
    let tuned = begun(&disk, &db, 100);
    assert!((1..20).contains(&tuned), "{tuned}");
    db.set_db_options(&[("max_manifest_space_amp_pct", "1000000")]).unwrap();
    assert_eq!(begun(&disk, &db, 20), 0);
    db.set_db_options(&[("max_manifest_space_amp_pct", "-5")]).unwrap();
    assert_eq!(begun(&disk, &db, 5), 5);
    drop(db);
    assert_eq!(get(&disk.open_with(&options), "a"), "1");
}

#[test]
fn the_size_that_was_asked_for_is_the_least() {
    let disk = Disk::new();
    let mut options = disk.options();
    (options.db.max_manifest_file_size, options.db.max_manifest_space_amp_pct) = (1 << 20, 0);
    let db = disk.open_with(&options);
    assert_eq!(begun(&disk, &db, 20), 0);
    db.set_db_options(&[("max_manifest_file_size", "1")]).unwrap();
    assert_eq!(begun(&disk, &db, 5), 5);
}
