//! Column families that leave one database and enter another.

use crate::disk::{Disk, all, all_of, put_synced, refused, shape, table_entries};
use ironstone::vfs::fault::{FaultError, FaultRule};
use ironstone::vfs::{FileSystem, OpKind};
use ironstone::{Code, IngestOptions};
use ironstone::{
    ColumnFamilyOptions, Db, ExportedColumnFamily, ImportColumnFamilyOptions, SequenceNumber, SstFileWriter,
    UserComparator,
};
use std::path::Path;

fn import(
    db: &Db,
    disk: &Disk,
    name: &str,
    exported: &[ExportedColumnFamily],
) -> ironstone::Result<ironstone::ColumnFamily> {
    let options = disk.options().cf;
    db.create_column_family_with_import(name, &options, &ImportColumnFamilyOptions::default(), exported)
}

/// Two levels and level 0, every kind of entry, and a table that was ingested.
fn fill(db: &Db, disk: &Disk) {
    for key in ["a", "b", "c", "d"] {
        db.put(key, "old").unwrap();
    }
    db.flush().unwrap();
    crate::disk::rewrite_all(db);
    db.put("b", "new").unwrap();
    db.delete("c").unwrap();
    db.delete_range("d", "e").unwrap();
    db.flush().unwrap();
    let mut writer = SstFileWriter::new(&disk.options());
    writer.open("/external.sst").unwrap();
    writer.put(b"b", b"ingested").unwrap();
    writer.put(b"f", b"ingested").unwrap();
    writer.finish().unwrap();
    db.ingest_external_files(db.default_column_family(), &["/external.sst"], &IngestOptions::default())
        .unwrap();
    db.put("g", "last").unwrap(); // In a memtable: the export flushes it.
}
const FILLED: &str = "a=old b=ingested f=ingested g=last";

#[test]
fn what_is_imported_is_what_was_exported_after_power_loss_too() {
    let disk = Disk::new();
    let db = disk.open_with(&disk.options());
    fill(&db, &disk);
    assert_eq!(all(&db), FILLED);
    let exported = db.export_column_family(db.default_column_family(), "/exported").unwrap();
    db.put("a", "later").unwrap();
    let mut options = disk.options();
    options.db.max_background_jobs = 1;
    let other = Db::open(&options, "/other").unwrap();
    put_synced(&other, "own", "1");
    let cf = import(&other, &disk, "in", std::slice::from_ref(&exported)).unwrap();
    assert_eq!(all_of(&other, &cf), FILLED);
    let newest = exported.files.iter().map(|file| file.largest_sequence).max().unwrap();
    assert!(other.latest_sequence() >= newest, "so that later writes are newer than what came");
    other.put_cf(&ironstone::WriteOptions::synced(), &cf, "b", "newest").unwrap();
    let expected = FILLED.replace("b=ingested", "b=newest");
    assert_eq!(all_of(&other, &cf), expected);
    drop(other);
    let disk = disk.lose_power();
    let names = ["default", "in"];
    let descriptors =
        names.map(|name| ironstone::ColumnFamilyDescriptor::new(name, disk.options().cf)).to_vec();
    let other = Db::open_column_families(&disk.options().db, "/other", descriptors).unwrap();
    let cf = other.column_family("in").unwrap();
    assert_eq!(all_of(&other, &cf), expected);
    assert_eq!(all(&other), "own=1");
    other.flush_cf(&Default::default(), &cf).unwrap();
    other.compact_range(&Default::default(), &cf, None, None).unwrap();
    assert_eq!(all_of(&other, &cf), expected);
    assert!(disk.fs.exists(Path::new("/exported")).unwrap(), "copied, not moved");
}

#[test]
fn files_are_moved_if_wished_and_may_come_from_the_same_database() {
    let disk = Disk::new();
    let db = disk.open_with(&disk.options());
    fill(&db, &disk);
    let exported = db.export_column_family(db.default_column_family(), "/exported").unwrap();
    let moving = ImportColumnFamilyOptions { move_files: true };
    let cf = db.create_column_family_with_import("again", &disk.options().cf, &moving, &[exported]).unwrap();
    assert_eq!(all_of(&db, &cf), FILLED);
    assert_eq!(all(&db), FILLED);
    assert!(disk.fs.list(Path::new("/exported")).unwrap().is_empty());
}

#[test]
fn parts_of_a_column_family_that_do_not_meet_are_put_together() {
    let disk = Disk::new();
    let db = disk.open_with(&disk.options());
    let part = |name: &str, keys: [&str; 2]| {
        let cf = db.create_column_family(name, &disk.options().cf).unwrap();
        for key in keys {
            db.put_cf(&Default::default(), &cf, key, name).unwrap();
        }
        db.export_column_family(&cf, format!("/{name}")).unwrap()
    };
    let (low, high, across) = (part("low", ["a", "c"]), part("high", ["m", "z"]), part("across", ["b", "n"]));
    let cf = import(&db, &disk, "both", &[high.clone(), low.clone()]).unwrap();
    assert_eq!(all_of(&db, &cf), "a=low c=low m=high z=high");
    refused(import(&db, &disk, "mixed", &[low, across]), Code::InvalidArgument, "overlapping ranges");
    assert!(db.column_family("mixed").is_none());
}

#[test]
fn what_makes_no_sense_is_refused_and_leaves_nothing() {
    let disk = Disk::new();
    let db = disk.open_with(&disk.options());
    fill(&db, &disk);
    let good = db.export_column_family(db.default_column_family(), "/exported").unwrap();
    refused(
        db.export_column_family(db.default_column_family(), "/exported"),
        Code::InvalidArgument,
        "/exported: Specified export_dir exists",
    );
    db.wait_for_compact().unwrap();
    let live = shape(&db).iter().sum::<usize>();
    let in_db = || disk.tables().len();
    disk.wait_until("tables that were replaced go", || in_db() == live);
    let before = disk.files(".sst").len();
    let refuse = |what: &str, change: &dyn Fn(&mut ExportedColumnFamily, &mut ColumnFamilyOptions)| {
        let (mut exported, mut options) = (good.clone(), disk.options().cf);
        change(&mut exported, &mut options);
        let import = ImportColumnFamilyOptions::default();
        let result = db.create_column_family_with_import("bad", &options, &import, &[exported]);
        refused(result, Code::InvalidArgument, what);
        assert_eq!(disk.files(".sst").len(), before, "{what}");
    };
    refuse("The list of files to import is empty", &|exported, _| exported.files.clear());
    refuse("Comparator name mismatch", &|_, options| options.comparator = UserComparator::ReverseBytewise);
    refuse("and had 17", &|exported, _| exported.files[0].size = 17);
    refuse("there are 7 levels", &|exported, _| exported.files[0].level = 7);
    refuse("sequence numbers", &|exported, _| exported.files[0].smallest_sequence = SequenceNumber::MAX);
    refuse("not named as a table", &|exported, _| exported.files[0].path = "/exported".into());
    refuse("overlap", &|exported, _| exported.files.iter_mut().for_each(|file| file.level = 3));
    let name_taken = import(&db, &disk, "default", std::slice::from_ref(&good));
    refused(name_taken, Code::InvalidArgument, "already exists");
    assert_eq!(disk.files(".sst").len(), before);
    // A disk that fails leaves nothing either, whatever it fails at.
    for kind in [OpKind::Create, OpKind::Append, OpKind::Sync, OpKind::SyncDirectory] {
        disk.faults.arm();
        disk.faults.add(FaultRule::error(FaultError::Io).on(&[kind]));
        assert!(import(&db, &disk, "bad", std::slice::from_ref(&good)).is_err(), "{kind:?}");
        disk.faults.clear();
        let _ = db.resume();
        assert!(db.column_family("bad").is_none());
    }
    let cf = import(&db, &disk, "good", &[good]).unwrap();
    assert_eq!(all_of(&db, &cf), FILLED);
}

#[test]
fn a_column_family_is_cut_down_to_a_range() {
    let disk = Disk::new();
    let db = disk.open_with(&disk.options());
    for key in 0..100 {
        db.put(format!("{key:02}"), "v").unwrap();
        if key % 30 == 0 {
            db.flush().unwrap();
        }
    }
    db.delete_range("98", "zz").unwrap();
    let cf = db.default_column_family();
    refused(db.clip_column_family(cf, "5", "4"), Code::InvalidArgument, "clip_column_family");
    db.clip_column_family(cf, "20", "40").unwrap();
    let keys: Vec<_> = (20..40).map(|key| format!("{key:02}=v")).collect();
    assert_eq!(all(&db), keys.join(" "));
    assert_eq!(table_entries(&db), 20, "nothing else is left, tombstones included");
    db.clip_column_family(cf, "00", "99").unwrap();
    assert_eq!(all(&db), keys.join(" "));
    db.clip_column_family(cf, "x", "y").unwrap();
    assert_eq!(all(&db), "");
    db.clip_column_family(cf, "x", "y").unwrap();
}
