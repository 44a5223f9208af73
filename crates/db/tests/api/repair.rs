//! Databases that are made whole again from what is left of them.

use crate::disk::{DIR, Disk, all, all_of, refused, rewrite_all};
use ironstone::options::Options;
use ironstone::vfs::fault::{FaultError, FaultRule};
use ironstone::vfs::mem::CrashPolicy;
use ironstone::vfs::{FileSystem, OpKind};
use ironstone::{
    BottommostPolicy, Code, ColumnFamilyDescriptor, CompactFilesOptions, CompactRangeOptions, Comparator,
    CompressionKind, Db, DbPath, IngestOptions, RepairReport, Result, SstFileWriter,
    SstPartitionerFixedPrefix, UserComparator, WriteOptions, merge_operators,
};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn options(disk: &Disk) -> Options {
    let mut options = disk.options();
    options.db.create_missing_column_families = true;
    options.cf.merge_operator = Some(merge_operators::string_append(","));
    options.cf.level_compaction_dynamic_level_bytes = false;
    options.cf.target_file_size_base = 16 << 10;
    options.cf.compression = CompressionKind::None;
    options
}

/// The same with tables in two directories, neither of which is the database's own.
fn options_with_paths(disk: &Disk) -> Options {
    let mut options = options(disk);
    options.db.db_paths = vec![DbPath::new(FAST, 1 << 30), DbPath::new(SLOW, 0)];
    options
}

const FAST: &str = "/fast";
const SLOW: &str = "/slow";

/// Two column families, tables on three levels, and WALs with writes that no table has.
fn filled(disk: &Disk) -> Db {
    filled_with(disk, &options(disk))
}
/// The same, with the deeper levels in the last of `db_paths`.
fn filled_with(disk: &Disk, options: &Options) -> Db {
    let db = disk.open_families(options, &["other"]).unwrap();
    let target_path_id = options.db.db_paths.len().saturating_sub(1) as u32;
    let other = db.column_family("other").unwrap();
    let none = WriteOptions::default();
    for round in 0..6 {
        for key in 0..60 {
            let key = format!("key{:03}", (key * 7 + round * 13) % 100);
            db.put(&key, format!("{round}{}", "v".repeat(400))).unwrap();
            db.merge_cf(&none, &other, &key, format!("{round}")).unwrap();
        }
        db.delete_range_cf(
            &none,
            &other,
            format!("key{:03}", round * 10),
            format!("key{:03}", round * 10 + 3),
        )
        .unwrap();
        db.delete(format!("key{:03}", round * 9)).unwrap();
        if round < 5 {
            db.flush_cfs(&Default::default(), &[db.default_column_family(), &other]).unwrap();
        }
        let down = CompactRangeOptions {
            change_level: true,
            target_level: Some(3),
            target_path_id,
            bottommost_level_compaction: BottommostPolicy::Force,
            ..Default::default()
        };
        if round == 1 {
            db.compact_range(&down, db.default_column_family(), None, None).unwrap();
            db.compact_range(&down, &other, None, None).unwrap();
        } else if round == 3 {
            db.compact_range(&CompactRangeOptions::default(), &other, Some(b"key030"), Some(b"key050"))
                .unwrap();
        }
    }
    db
}

fn repair(disk: &Disk) -> Result<RepairReport> {
    repair_with(&options(disk))
}
fn repair_with(options: &Options) -> Result<RepairReport> {
    let given = ["default", "other"].map(|name| ColumnFamilyDescriptor::new(name, options.cf.clone()));
    Db::repair(&options.db, DIR, &given, None)
}

/// Everything in both column families.
fn contents(db: &Db) -> [String; 2] {
    [all(db), all_of(db, &db.column_family("other").unwrap())]
}
fn reopened(disk: &Disk) -> [String; 2] {
    reopened_with(disk, &options(disk))
}
fn reopened_with(disk: &Disk, options: &Options) -> [String; 2] {
    let db = disk.open_families(options, &["other"]).unwrap();
    db.verify_checksum().unwrap();
    let found = contents(&db);
    // And it works.
    db.put("after", "v").unwrap();
    db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None).unwrap();
    assert_eq!(db.get("after").unwrap().as_deref(), Some(&b"v"[..]));
    db.delete("after").unwrap();
    assert_eq!(contents(&db), found);
    db.close().unwrap();
    found
}
/// Oldest first.
fn manifests(disk: &Disk) -> Vec<PathBuf> {
    let files = disk.fs.all_files().into_iter();
    let mut manifests: Vec<_> =
        files.filter(|path| path.to_string_lossy().contains("/db/MANIFEST-")).collect();
    manifests.sort();
    manifests
}

type Harm = fn(&Disk);

/// Ways in which all that is not in tables and WALs can be lost.
const HARMS: [(&str, Harm); 6] = [
    ("nothing", |_| {}),
    ("no CURRENT", |disk| disk.fs.remove(Path::new("/db/CURRENT")).unwrap()),
    ("a CURRENT that names nothing", |disk| {
        disk.fs.corrupt(Path::new("/db/CURRENT"), |bytes| bytes.truncate(9)).unwrap();
    }),
    ("a MANIFEST with a hole", |disk| {
        disk.fs
            .corrupt(manifests(disk).last().unwrap(), |bytes| {
                let middle = bytes.len() / 2;
                bytes[middle..middle + 30].fill(0x55);
            })
            .unwrap();
    }),
    ("a MANIFEST with half of its bytes", |disk| {
        disk.fs.corrupt(manifests(disk).last().unwrap(), |bytes| bytes.truncate(bytes.len() / 2)).unwrap();
    }),
    ("no MANIFEST", |disk| {
        manifests(disk).iter().for_each(|path| disk.fs.remove(path).unwrap());
        disk.fs.remove(Path::new("/db/CURRENT")).unwrap();
    }),
];

#[test]
fn tables_and_wals_are_enough() {
    for kill in [false, true] {
        for (what, harm) in HARMS {
            let disk = Disk::new();
            let db = filled(&disk);
            let expected = contents(&db);
            let disk = if kill {
                // Those that are replaced and still there would count as well.
                disk.wait_until_purged(&db);
                disk.kill()
            } else {
                db.close().unwrap();
                disk
            };
            harm(&disk);
            let report = repair(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(report.wals > 0 && report.kept + report.merged > 0, "{what}: {report:?}");
            assert!(report.lost.iter().all(|(_, why)| why.contains("replaced")), "{what}: {report:?}");
            assert!(reopened(&disk) == expected, "{what}: {report:?}");
            assert!(!disk.exists("/db/repair.tmp") && !disk.exists("/db/repair.done"));
        }
    }
}

#[test]
fn what_a_repair_writes_is_read_back_if_that_is_wished() {
    let disk = Disk::new();
    let db = filled(&disk);
    let expected = contents(&db);
    drop(db);
    disk.fs.remove(Path::new("/db/CURRENT")).unwrap();
    let mut checked = options(&disk);
    checked.cf.verify_output_flags = u32::MAX;
    let report = repair_with(&checked).unwrap();
    assert!(report.wals > 0, "{report:?}");
    assert_eq!(reopened(&disk), expected);
}

/// The numbers of writes do not tell which of two tables is the newer one: only their levels did.
#[test]
fn tables_that_only_levels_put_in_order_are_merged() {
    for (harm, verify_output_flags) in [(1, 0), (5, 0), (5, u32::MAX)] {
        let disk = Disk::new();
        let db = disk.open_families(&options(&disk), &["other"]).unwrap();
        let down = |level| CompactRangeOptions {
            change_level: true,
            target_level: Some(level),
            ..Default::default()
        };
        let cf = db.default_column_family();
        for key in ["a", "m", "z"] {
            db.put(key, "oldest").unwrap();
        }
        db.flush().unwrap();
        db.compact_range(&down(5), cf, None, None).unwrap();
        let newest = |db: &Db| db.live_files().iter().map(|file| file.number).max().unwrap();
        db.put("m", "old").unwrap();
        db.merge("z", "1").unwrap();
        db.flush().unwrap();
        let old = newest(&db);
        db.compact_files(&CompactFilesOptions::default(), cf, &[old], 3).unwrap();
        let old = newest(&db);
        db.put("m", "new").unwrap();
        db.merge("z", "2").unwrap();
        db.flush().unwrap();
        db.compact_files(&CompactFilesOptions::default(), cf, &[newest(&db)], 2).unwrap();
        db.put("a", "new").unwrap();
        db.flush().unwrap();
        db.compact_files(&CompactFilesOptions::default(), cf, &[newest(&db)], 2).unwrap();
        let with_a = newest(&db);
        db.compact_files(&CompactFilesOptions::default(), cf, &[with_a, old], 3).unwrap();
        let expected = contents(&db);
        assert_eq!(expected[0], "a=new m=new z=oldest,1,2");
        let files = db.live_files();
        let mixed = files.iter().find(|file| file.level == 3).unwrap();
        let upper = files.iter().find(|file| file.level == 2).unwrap();
        assert!(
            mixed.largest_sequence > upper.largest_sequence
                && mixed.smallest_sequence < upper.smallest_sequence
        );
        db.close().unwrap();
        (HARMS[harm].1)(&disk);
        let mut checked = options(&disk);
        checked.cf.verify_output_flags = verify_output_flags;
        let report = repair_with(&checked).unwrap();
        assert_eq!(report.merged, if harm == 5 { 3 } else { 0 }, "{report:?}");
        assert_eq!(reopened(&disk), expected, "{report:?}");
    }
}

/// They have no keys in common, and may stay as they are but for versions of RocksDB that order level 0 by sequence numbers, and refuse
/// a database where those of one table lie around another's.
#[test]
fn tables_whose_sequence_numbers_lie_within_those_of_others_are_merged() {
    let disk = Disk::new();
    let mut by_letter = options(&disk);
    by_letter.cf.sst_partitioner_factory = Some(SstPartitionerFixedPrefix::factory(1));
    let db = disk.open_families(&by_letter, &["other"]).unwrap();
    let _keeps_the_numbers = db.snapshot();
    for key in ["a", "z", "zz", "aa"] {
        db.put(key, "v").unwrap();
    }
    db.flush().unwrap();
    rewrite_all(&db);
    let sequences = |db: &Db| {
        let files = db.live_files();
        files.iter().map(|file| [file.smallest_sequence.0, file.largest_sequence.0]).collect::<Vec<_>>()
    };
    assert_eq!(sequences(&db), [[1, 4], [2, 3]]);
    let expected = contents(&db);
    db.close().unwrap();
    (HARMS[5].1)(&disk);
    let report = repair(&disk).unwrap();
    assert_eq!((report.merged, report.kept), (2, 0), "{report:?}");
    assert_eq!(reopened(&disk), expected);
}

#[test]
fn a_wal_that_another_column_family_keeps_counts_once() {
    for (what, harm) in HARMS {
        let disk = Disk::new();
        let db = disk.open_families(&options(&disk), &["other"]).unwrap();
        let other = db.column_family("other").unwrap();
        db.put("a", "1").unwrap();
        db.flush().unwrap();
        db.put("b", "only in the WAL").unwrap();
        for operand in ["1", "2", "3"] {
            db.merge_cf(&WriteOptions::default(), &other, "k", operand).unwrap();
        }
        db.flush_cf(&Default::default(), &other).unwrap();
        db.merge_cf(&WriteOptions::default(), &other, "k", "4").unwrap();
        let expected = contents(&db);
        assert_eq!(expected, ["a=1 b=only in the WAL", "k=1,2,3,4"]);
        db.close().unwrap();
        harm(&disk);
        repair(&disk).unwrap();
        assert_eq!(reopened(&disk), expected, "{what}");
    }
}

#[test]
fn a_damaged_table_is_put_aside_and_the_rest_is_there() {
    for harm in [1, 5] {
        let disk = Disk::new();
        let db = filled(&disk);
        let expected = contents(&db);
        let files = db.live_files();
        db.close().unwrap();
        let bad = files
            .iter()
            .filter(|file| file.column_family == "default")
            .max_by_key(|file| file.level)
            .unwrap();
        let path = PathBuf::from(format!("{DIR}/{:06}.sst", bad.number.0));
        disk.fs.corrupt(&path, |bytes| bytes[20] ^= 0x10).unwrap();
        (HARMS[harm].1)(&disk);
        let report = repair(&disk).unwrap();
        assert_eq!(report.lost.len(), 1, "{report:?}");
        assert_eq!(report.lost[0].0, path);
        assert!(report.lost[0].1.contains("checksum is"), "{report:?}");
        let log = disk.fs.read_all(&PathBuf::from(DIR).join("LOG")).unwrap();
        let log = String::from_utf8(log).unwrap();
        assert!(report.to_string().contains(" merged, 1 left out; ") && log.contains(&report.to_string()));
        assert!(log.contains(&format!("{} is left out: ", path.display())));
        let kept = PathBuf::from(format!("{DIR}/lost/{:06}.sst", bad.number.0));
        assert!(disk.exists(&kept) && !disk.exists(&path));
        let found = reopened(&disk);
        assert!(found[1] == expected[1], "the other column family has nothing to do with it");
        let inside = |key: &str| key.as_bytes() >= &*bad.smallest && key.as_bytes() <= &*bad.largest;
        let outside = |all: &str| -> Vec<String> {
            let entries = all.split(' ').map(str::to_owned);
            entries.filter(|entry| !inside(entry.split('=').next().unwrap())).collect()
        };
        assert!(!outside(&expected[0]).is_empty());
        assert!(outside(&found[0]) == outside(&expected[0]));
    }
}

#[test]
fn a_damaged_wal_gives_what_it_can() {
    let disk = Disk::new();
    let db = filled(&disk);
    let expected = contents(&db);
    let disk = disk.kill();
    let wal = disk.newest(".log");
    disk.fs
        .corrupt(&wal, |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        })
        .unwrap();
    refused(disk.open_families(&options(&disk), &["other"]), Code::Corruption, ".log");
    repair(&disk).unwrap();
    let found = reopened(&disk);
    assert_ne!(found, expected);
    let count = |all: &[String; 2]| all.iter().map(|all| all.split(' ').count()).sum::<usize>();
    assert!(count(&found) + 3 > count(&expected), "one record is missing");
}

#[test]
fn ingested_files_need_the_manifest() {
    for (harm, kept) in [(1, true), (5, false)] {
        let disk = Disk::new();
        let db = filled(&disk);
        let mut writer = SstFileWriter::new(&options(&disk));
        writer.open("/outside.sst").unwrap();
        writer.put(b"key050", b"ingested").unwrap();
        writer.finish().unwrap();
        db.ingest_external_files(db.default_column_family(), &["/outside.sst"], &IngestOptions::default())
            .unwrap();
        assert_eq!(db.get("key050").unwrap().as_deref(), Some(&b"ingested"[..]));
        db.close().unwrap();
        (HARMS[harm].1)(&disk);
        let report = repair(&disk).unwrap();
        assert_eq!(report.lost.is_empty(), kept, "{report:?}");
        let found = reopened(&disk);
        assert_eq!(found[0].contains("key050=ingested"), kept);
        if !kept {
            assert!(report.lost[0].1.contains("ingested again"), "{report:?}");
            assert!(disk.exists(format!("{DIR}/lost/{}", report.lost[0].0.file_name().unwrap().display())));
        }
    }
}

#[test]
fn what_a_repair_must_know_it_asks_for_first() {
    let disk = Disk::new();
    let db = filled(&disk);
    let settings = options(&disk);
    refused(repair(&disk), Code::IoError, "LOCK");
    db.close().unwrap();
    let only = |cf| vec![ColumnFamilyDescriptor::new("default", cf)];
    let refused_with = |given: &[ColumnFamilyDescriptor], says: &str| {
        refused(Db::repair(&settings.db, DIR, given, None), Code::InvalidArgument, says);
    };
    refused_with(&only(settings.cf.clone()), "column family \"other\"");
    let mut reverse = settings.cf.clone();
    reverse.comparator = UserComparator::ReverseBytewise;
    let both = ["default", "other"].map(|name| ColumnFamilyDescriptor::new(name, reverse.clone()));
    refused_with(&both, "made with comparator leveldb.BytewiseComparator");
    let tables = |disk: &Disk| disk.files(".sst").len();
    assert!(tables(&disk) > 0 && !disk.exists("/db/lost"), "only LOG has changed");
    // With options for those that are not named it works.
    Db::repair(&settings.db, DIR, &[], Some(&settings.cf)).unwrap();
    reopened(&disk);
}

/// Longer keys first.
struct ByLength;

impl Comparator for ByLength {
    fn name(&self) -> &str {
        "test.ByLength"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        b.len().cmp(&a.len()).then_with(|| a.cmp(b))
    }
}

#[test]
fn comparators_of_the_application_are_used() {
    let disk = Disk::new();
    let mut settings = disk.options();
    settings.cf.comparator = UserComparator::Custom(Arc::new(ByLength));
    let db = disk.open_with(&settings);
    for round in 0..3 {
        for key in ["a", "bbb", "cc", "dddd"] {
            db.put(key, format!("{key}{round}")).unwrap();
        }
        db.flush().unwrap();
    }
    let expected = all(&db);
    db.close().unwrap();
    (HARMS[5].1)(&disk);
    refused(Db::repair(&settings.db, DIR, &[], None), Code::InvalidArgument, "test.ByLength");
    Db::repair(&settings.db, DIR, &[], Some(&settings.cf)).unwrap();
    assert_eq!(all(&disk.open_with(&settings)), expected);
}

/// Every operation of a repair fails once, and the power goes there: the next repair does it all.
#[test]
fn a_repair_that_was_interrupted_is_repeated() {
    for harm in [0, 3, 5] {
        interrupted_and_repeated(harm, options);
    }
}
#[test]
fn a_repair_of_several_directories_that_was_interrupted_is_repeated() {
    for harm in [0, 5] {
        interrupted_and_repeated(harm, options_with_paths);
    }
}

fn interrupted_and_repeated(harm: usize, options: fn(&Disk) -> Options) {
    let disk = Disk::new();
    let db = filled_with(&disk, &options(&disk));
    let expected = contents(&db);
    db.close().unwrap();
    (HARMS[harm].1)(&disk);
    let original = disk.kill();
    let mut failures = 0;
    for operation in 0.. {
        let disk = original.kill();
        disk.faults.clear();
        let kinds = [
            OpKind::Create,
            OpKind::Append,
            OpKind::Sync,
            OpKind::Rename,
            OpKind::Remove,
            OpKind::SyncDirectory,
        ];
        let rule = disk.faults.add(FaultRule::error(FaultError::Io).on(&kinds).after(operation));
        disk.faults.arm();
        let result = repair_with(&options(&disk));
        disk.faults.disarm();
        if rule.hits() == 0 {
            result.unwrap();
            break;
        }
        failures += u64::from(result.is_err());
        for policy in [CrashPolicy::KeepAll, CrashPolicy::DropUnsynced] {
            let disk = disk.crash(policy);
            // Until then it does not open, or it is whole and no repair goes on from where it was.
            let is_under_way = disk.exists("/db/repair.done");
            if let Ok(db) = disk.open_families(&options(&disk), &["other"]) {
                assert!(!is_under_way, "operation {operation}, {policy:?}");
                assert!(contents(&db) == expected, "operation {operation}, {policy:?}");
                drop(db);
            } else {
                repair_with(&options(&disk))
                    .unwrap_or_else(|error| panic!("operation {operation}, {policy:?}: {error}"));
            }
            assert!(reopened_with(&disk, &options(&disk)) == expected, "operation {operation}, {policy:?}");
        }
    }
    assert!(failures > 30, "{failures}");
}

/// The tables that the database is made of, as it says.
fn tables_of(db: &Db) -> BTreeSet<PathBuf> {
    let path = |file: ironstone::LiveFile| file.directory.join(format!("{:06}.sst", file.number.0));
    db.live_files().into_iter().map(path).collect()
}
/// A database with tables in both directories, which is closed; its options, what it holds, and its tables.
fn closed_in_two_directories() -> (Disk, Options, [String; 2], BTreeSet<PathBuf>) {
    let disk = Disk::new();
    let settings = options_with_paths(&disk);
    let db = filled_with(&disk, &settings);
    disk.wait_until_purged(&db);
    let (expected, tables) = (contents(&db), tables_of(&db));
    assert!([FAST, SLOW].iter().all(|dir| tables.iter().any(|table| table.starts_with(dir))));
    db.close().unwrap();
    (disk, settings, expected, tables)
}
fn copy(disk: &Disk, from: &Path, to: &Path) {
    disk.fs.write_all_synced(to, &disk.fs.read_all(from).unwrap()).unwrap();
}
fn names_with(disk: &Disk, part: &str) -> Vec<PathBuf> {
    disk.fs.all_files().into_iter().filter(|path| path.to_string_lossy().contains(part)).collect()
}

#[test]
fn tables_of_several_directories_stay_where_they_are() {
    for (what, harm) in HARMS {
        let (disk, settings, expected, tables) = closed_in_two_directories();
        // What somebody else has there stays; a table that nobody needs does not.
        for name in ["000998.log", "CURRENT", "MANIFEST-000001"] {
            disk.fs.write_all_synced(&Path::new(SLOW).join(name), b"of somebody else").unwrap();
        }
        disk.fs.write_all_synced(Path::new("/slow/000999.sst"), b"no table").unwrap();
        harm(&disk);
        let report = repair_with(&settings).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(report.wals > 0 && report.kept + report.merged == tables.len(), "{what}: {report:?}");
        let is_stray = |path: &Path| path == Path::new("/slow/000999.sst");
        assert!(report.lost.iter().any(|(path, _)| is_stray(path)), "{what}: {report:?}");
        let fine = |(path, why): &(PathBuf, String)| is_stray(path) || why.contains("replaced");
        assert!(report.lost.iter().all(fine), "{what}: {report:?}");
        assert!(disk.exists("/slow/lost/000999.sst"));
        for name in ["000998.log", "CURRENT", "MANIFEST-000001"] {
            assert!(disk.exists(Path::new(SLOW).join(name)), "{what}: {name}");
        }
        let db = disk.open_families(&settings, &["other"]).unwrap();
        if report.merged == 0 {
            assert!(tables_of(&db).is_superset(&tables), "{what}");
        }
        assert!(tables_of(&db).iter().all(|path| disk.exists(path)), "{what}");
        drop(db);
        assert!(reopened_with(&disk, &settings) == expected, "{what}: {report:?}");
        assert_eq!(names_with(&disk, "/repair."), Vec::<PathBuf>::new(), "{what}");
        assert!(disk.files(".sst").iter().all(|path| !path.starts_with(DIR)), "{what}");
    }
}

#[test]
fn a_directory_that_is_not_there_is_missed_before_anything_changes() {
    let disk = Disk::new();
    let settings = options_with_paths(&disk);
    let db = filled_with(&disk, &settings);
    let slow: Vec<PathBuf> = tables_of(&db).into_iter().filter(|path| path.starts_with(SLOW)).collect();
    db.close().unwrap();
    for name in disk.fs.list(Path::new(SLOW)).unwrap() {
        disk.fs.remove(&Path::new(SLOW).join(name)).unwrap();
    }
    disk.fs.remove_dir(Path::new(SLOW)).unwrap();
    let before = disk.fs.all_files();
    let error = refused(repair_with(&settings), Code::IoError, SLOW);
    assert!(error.is_path_not_found(), "{error:?}");
    assert_eq!(disk.fs.all_files(), before);
    // The same for the directories of column families.
    let mut own = options(&disk);
    own.cf.cf_paths = vec![DbPath::new("/nowhere", 0)];
    refused(repair_with(&own), Code::IoError, "/nowhere");
    assert_eq!(disk.fs.all_files(), before);
    // Who knows that it is lost for good says so.
    disk.fs.create_dir_all(Path::new(SLOW)).unwrap();
    let report = repair_with(&settings).unwrap();
    let lost: BTreeSet<&PathBuf> = report.lost.iter().map(|(path, _)| path).collect();
    assert!(slow.iter().all(|path| lost.contains(path)), "{report:?}");
    reopened_with(&disk, &settings);
}

#[test]
fn tables_that_went_to_another_directory_are_found_there() {
    for (harm, leveldb) in [(0, false), (1, true), (5, false)] {
        let (disk, settings, expected, tables) = closed_in_two_directories();
        for table in tables.iter().filter(|table| table.starts_with(SLOW)) {
            let mut to = Path::new(FAST).join(table.file_name().unwrap());
            if leveldb {
                to.set_extension("ldb");
            }
            disk.fs.rename(table, &to).unwrap();
        }
        let opened = disk.open_families(&settings, &["other"]).map(drop);
        assert!(opened.is_err(), "they are not where the MANIFEST says");
        (HARMS[harm].1)(&disk);
        let report = repair_with(&settings).unwrap();
        assert_eq!((report.kept + report.merged, report.lost.len()), (tables.len(), 0), "{report:?}");
        let db = disk.open_families(&settings, &["other"]).unwrap();
        let here: BTreeSet<_> = db.live_files().into_iter().map(|file| file.directory).collect();
        assert!(report.merged > 0 || here == [PathBuf::from(FAST)].into(), "{here:?}");
        drop(db);
        assert!(reopened_with(&disk, &settings) == expected, "{harm}: {report:?}");
    }
}

#[test]
fn of_two_tables_of_one_number_the_manifest_knows_which_one_counts() {
    for harm in [1, 5] {
        let (disk, settings, expected, tables) = closed_in_two_directories();
        let slow = tables.into_iter().find(|path| path.starts_with(SLOW)).unwrap();
        let other = Path::new(FAST).join(slow.file_name().unwrap());
        copy(&disk, &slow, &other);
        disk.fs.corrupt(&other, |bytes| bytes[20] ^= 1).unwrap();
        (HARMS[harm].1)(&disk);
        if harm == 5 {
            let before = disk.files(".sst");
            refused(repair_with(&settings), Code::Corruption, &other.to_string_lossy());
            assert_eq!(disk.files(".sst"), before);
            disk.fs.remove(&other).unwrap();
        }
        let report = repair_with(&settings).unwrap();
        assert_eq!(report.lost, vec![], "{report:?}");
        assert_eq!(disk.exists(&slow), report.merged == 0, "{report:?}");
        assert!(reopened_with(&disk, &settings) == expected, "{report:?}");
    }
}

#[test]
fn column_families_have_their_tables_in_their_own_directories() {
    for (what, harm) in HARMS {
        let disk = Disk::new();
        let settings = options(&disk);
        let mut own = settings.cf.clone();
        own.cf_paths = vec![DbPath::new("/own0", 0), DbPath::new("/own1", 0)];
        let families = || {
            vec![
                ColumnFamilyDescriptor::new("default", settings.cf.clone()),
                ColumnFamilyDescriptor::new("other", own.clone()),
            ]
        };
        let open = |disk: &Disk| {
            let db_options = ironstone::DbOptions { env: disk.env(), ..settings.db.clone() };
            Db::open_column_families(&db_options, DIR, families())
        };
        let db = open(&disk).unwrap();
        let other = db.column_family("other").unwrap();
        for round in 0..3 {
            for cf in [db.default_column_family(), &other] {
                db.put_cf(&WriteOptions::default(), cf, "k", format!("{round}")).unwrap();
                db.merge_cf(&WriteOptions::default(), cf, "m", format!("{round}")).unwrap();
                if round < 2 {
                    db.flush_cf(&Default::default(), cf).unwrap();
                }
            }
        }
        let expected = contents(&db);
        drop((other, db));
        harm(&disk);
        if what == "nothing" {
            // A table in a directory that is not its column family's: the options are not those that it was written with.
            let table = disk.files(".sst").into_iter().find(|path| path.starts_with("/own0")).unwrap();
            let elsewhere = Path::new(DIR).join(table.file_name().unwrap());
            disk.fs.rename(&table, &elsewhere).unwrap();
            let before = disk.files(".sst");
            let refusal = Db::repair(&settings.db, DIR, &families(), None);
            refused(refusal, Code::InvalidArgument, &elsewhere.to_string_lossy());
            assert_eq!(disk.files(".sst"), before);
            disk.fs.rename(&elsewhere, &Path::new("/own1").join(table.file_name().unwrap())).unwrap();
        }
        Db::repair(&settings.db, DIR, &families(), None).unwrap_or_else(|error| panic!("{what}: {error}"));
        let db = open(&disk).unwrap();
        assert_eq!(contents(&db), expected, "{what}");
        for file in db.live_files() {
            let is_own = file.directory.starts_with("/own0") || file.directory.starts_with("/own1");
            assert_eq!(is_own, file.column_family == "other", "{what}: {file:?}");
        }
    }
}

#[test]
fn wals_of_another_directory_are_put_aside_there() {
    let disk = Disk::new();
    let mut settings = options(&disk);
    settings.db.wal_dir = "/wals".into();
    let db = filled_with(&disk, &settings);
    let expected = contents(&db);
    db.close().unwrap();
    repair_with(&settings).unwrap();
    let wals = disk.files(".log");
    assert!(!wals.is_empty() && wals.iter().all(|path| path.starts_with("/wals/lost")), "{wals:?}");
    assert!(reopened_with(&disk, &settings) == expected);
}
