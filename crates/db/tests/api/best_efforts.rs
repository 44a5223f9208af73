//! Databases that open with what is left of them (`best_efforts_recovery`).

use crate::disk::{Disk, all, all_of, get, refused};
use ironstone::vfs::FileSystem;
use ironstone::{
    Code, ColumnFamily, CompactRangeOptions, Db, IngestFiles, Options, Result, SstFileWriter, WriteOptions,
};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn best(disk: &Disk) -> Options {
    let mut options = disk.options();
    options.db.best_efforts_recovery = true;
    options
}
fn reopened(disk: &Disk) -> Result<Db> {
    disk.try_open(&best(disk))
}
fn cut(disk: &Disk, path: &Path, size: usize) {
    let bytes = disk.fs.read_all(path).unwrap();
    disk.fs.write_all_synced(path, &bytes[..size.min(bytes.len())]).unwrap();
}
fn log_says(disk: &Disk, part: &str) {
    let text = String::from_utf8(disk.fs.read_all(Path::new("/db/LOG")).unwrap()).unwrap();
    assert!(text.contains(part), "LOG does not say {part:?}:\n{text}");
}

/// Tables 1, 2, 3 of level 0, which have `a`, `b` and `c`, closed.
fn three_flushes() -> Disk {
    let disk = Disk::new();
    let db = disk.open();
    for key in ["a", "b", "c"] {
        db.put(key, "1").unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    disk
}

#[test]
fn without_its_newest_table_the_database_is_that_of_before() {
    for is_cut in [false, true] {
        let disk = three_flushes();
        let newest = &disk.tables()[2];
        if is_cut {
            cut(&disk, newest, 500)
        } else {
            disk.fs.remove(newest).unwrap()
        }
        assert!(disk.try_open(&disk.options()).is_err());
        let db = reopened(&disk).unwrap();
        assert_eq!(all(&db), "a=1 b=1");
        log_says(&disk, "of level 0");
        // It goes on, and opens without the option.
        db.put("d", "1").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        assert_eq!(all(&disk.open()), "a=1 b=1 d=1");
    }
}

#[test]
fn what_was_written_on_top_of_a_missing_table_goes_to_lost() {
    let disk = three_flushes();
    let names = disk.tables();
    disk.fs.remove(&names[1]).unwrap();
    let db = reopened(&disk).unwrap();
    assert_eq!(all(&db), "a=1");
    let lost = Path::new("/db/lost").join(names[2].file_name().unwrap());
    assert!(disk.exists(lost) && !disk.exists(&names[2]));
    log_says(&disk, "column family default: back to the state after edit");
}

#[test]
fn compacted_tables_that_are_still_there_stand_in_for_the_result() {
    let disk = Disk::new();
    let db = disk.open();
    for key in ["a", "b"] {
        db.put(key, "1").unwrap();
        db.flush().unwrap();
    }
    let inputs: Vec<_> =
        disk.tables().into_iter().map(|path| (disk.fs.read_all(&path).unwrap(), path)).collect();
    crate::disk::rewrite_all(&db);
    db.put("c", "1").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let outputs = disk.tables();
    disk.fs.remove(&outputs[0]).unwrap();
    for (bytes, path) in inputs {
        disk.fs.write_all_synced(&path, &bytes).unwrap();
    }
    assert_eq!(all(&reopened(&disk).unwrap()), "a=1 b=1");
}

#[test]
fn without_any_state_it_is_empty_and_all_tables_are_kept_aside() {
    let disk = Disk::new();
    let db = disk.open();
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    crate::disk::rewrite_all(&db);
    db.put("b", "1").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    disk.open().close().unwrap(); // The MANIFEST begins with both tables.
    disk.fs.remove(&disk.tables()[0]).unwrap();
    let db = reopened(&disk).unwrap();
    assert_eq!(all(&db), "");
    log_says(&disk, "no state of it has all of its tables");
    assert_eq!(disk.files(".sst").len(), 1, "in lost");
    db.put("c", "1").unwrap();
    db.close().unwrap();
}

#[test]
fn writes_that_are_in_the_wal_only_are_not_there_and_the_wal_is_kept() {
    let disk = Disk::new();
    let db = disk.open();
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    db.put("b", "1").unwrap();
    let disk = disk.kill();
    drop(db);
    let wal = disk.newest_in_db("0").with_extension("log");
    let wal = disk.files(".log").into_iter().max().unwrap_or(wal);
    let db = reopened(&disk).unwrap();
    assert_eq!(all(&db), "a=1");
    assert!(disk.exists(Path::new("/db/lost").join(wal.file_name().unwrap())));
    log_says(&disk, "is not replayed");
    db.put("c", "1").unwrap();
    let disk = disk.kill();
    drop(db);
    assert_eq!(all(&disk.open()), "a=1 c=1");
}

#[test]
fn current_is_not_needed() {
    for harm in ["", "MANIFEST-000000\n", "-"] {
        let disk = three_flushes();
        match harm {
            "-" => disk.fs.remove(Path::new("/db/CURRENT")).unwrap(),
            text => disk.fs.write_all_synced(Path::new("/db/CURRENT"), text.as_bytes()).unwrap(),
        }
        assert!(disk.try_open(&disk.options()).is_err());
        assert_eq!(all(&reopened(&disk).unwrap()), "a=1 b=1 c=1");
        assert!(!disk.exists("/db/lost"), "nothing was given up");
        assert_eq!(all(&disk.open()), "a=1 b=1 c=1");
    }
}

#[test]
fn a_cut_manifest_gives_a_state_that_was() {
    let disk = three_flushes();
    let manifest = disk.newest_in_db("MANIFEST-");
    let size = disk.fs.size(&manifest).unwrap() as usize;
    let (mut seen, mut refusals) = (BTreeSet::new(), 0);
    for cut_at in 1..=size {
        let disk = disk.kill();
        cut(&disk, &manifest, cut_at);
        match reopened(&disk) {
            Ok(db) => drop(seen.insert(all(&db))),
            Err(error) => {
                assert_eq!(error.code(), Code::Corruption, "{error}");
                assert!(error.to_string().contains("MANIFEST"), "{error}");
                refusals += 1;
            }
        }
    }
    let seen: Vec<_> = seen.iter().map(String::as_str).collect();
    assert_eq!(seen, ["", "a=1", "a=1 b=1", "a=1 b=1 c=1"]);
    assert!(refusals < size / 2, "only for what a MANIFEST begins with: {refusals} of {size}");
}

#[test]
fn an_older_manifest_serves_if_the_newest_is_damaged() {
    let disk = three_flushes();
    let older = disk.newest_in_db("MANIFEST-");
    let bytes = disk.fs.read_all(&older).unwrap();
    let db = disk.open();
    db.put("d", "1").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let newest = disk.newest_in_db("MANIFEST-");
    assert_ne!(newest, older);
    disk.fs.write_all_synced(&older, &bytes).unwrap();
    let mut damaged = disk.fs.read_all(&newest).unwrap();
    damaged[20] ^= 1;
    disk.fs.write_all_synced(&newest, &damaged).unwrap();
    let db = reopened(&disk).unwrap();
    assert_eq!(all(&db), "a=1 b=1 c=1");
    log_says(&disk, "not used: ");
    assert!(disk.exists(Path::new("/db/lost").join(newest.file_name().unwrap())));
    assert!(disk.newest_in_db("MANIFEST-") > newest, "its number is not used again");
}

#[test]
fn without_a_manifest_nothing_is_created_over_tables() {
    let disk = three_flushes();
    disk.fs.remove(&disk.newest_in_db("MANIFEST-")).unwrap();
    refused(reopened(&disk), Code::Corruption, "there is no MANIFEST to recover from");
    disk.fs.remove(Path::new("/db/CURRENT")).unwrap();
    let error = refused(reopened(&disk), Code::Corruption, "Db::repair");
    assert!(error.to_string().contains(".sst"), "{error}");
    assert_eq!(disk.tables().len(), 3);
    // Where nothing is, a database is created.
    assert_eq!(all(&reopened(&Disk::new()).unwrap()), "");
}

#[test]
fn a_column_family_that_is_not_listed_is_no_reason_to_go_back() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.create_missing_column_families = true;
    disk.open_families(&options, &["other"]).unwrap().close().unwrap();
    refused(reopened(&disk), Code::InvalidArgument, "Column families not opened: other");
}

#[test]
fn read_only_it_changes_nothing() {
    let disk = three_flushes();
    disk.fs.remove(&disk.tables()[2]).unwrap();
    disk.fs.remove(Path::new("/db/CURRENT")).unwrap();
    let before = disk.fs.all_files();
    let db = disk.open_read_only(&best(&disk), &[]).unwrap();
    assert_eq!(all(&db), "a=1 b=1");
    db.close().unwrap();
    assert_eq!(disk.fs.all_files(), before);
}

fn with_two_families(disk: &Disk) -> (Db, ColumnFamily) {
    let mut options = disk.options();
    options.db.create_missing_column_families = true;
    let db = disk.open_families(&options, &["other"]).unwrap();
    let other = db.column_family("other").unwrap();
    (db, other)
}

#[test]
fn column_families_go_back_each_for_itself_unless_they_were_changed_together() {
    let disk = Disk::new();
    let (db, other) = with_two_families(&disk);
    db.put("a", "1").unwrap();
    db.put_cf(&WriteOptions::default(), &other, "a", "1").unwrap();
    db.flush_cfs(&Default::default(), &[db.default_column_family(), &other]).unwrap();
    db.put("b", "1").unwrap();
    db.flush().unwrap();
    let apart = disk.kill();
    let mut requests = Vec::new();
    for (cf, name) in [(db.default_column_family(), "x"), (&other, "y")] {
        let path = PathBuf::from(format!("/{name}.sst"));
        let mut writer = SstFileWriter::new(&disk.options());
        writer.open(&path).unwrap();
        writer.put(name, "ingested").unwrap();
        writer.finish().unwrap();
        requests.push(IngestFiles::new(cf, vec![path], Default::default()));
    }
    db.ingest_external_files_of(&requests).unwrap();
    let together = disk.kill();
    drop(db);

    let open = |disk: &Disk| {
        let db = disk.open_families(&best(disk), &["other"]).unwrap();
        [all(&db), all_of(&db, &db.column_family("other").unwrap())]
    };
    let newest = apart.tables().pop().unwrap();
    apart.fs.remove(&newest).unwrap();
    assert_eq!(open(&apart), ["a=1", "a=1"]);

    for lost in together.tables().into_iter().rev().take(2) {
        let disk = together.kill();
        disk.fs.remove(&lost).unwrap();
        assert_eq!(open(&disk), ["a=1 b=1", "a=1"], "without {}", lost.display());
    }
    assert_eq!(open(&together), ["a=1 b=1 x=ingested", "a=1 y=ingested"]);
}

/// Whatever is lost, what opens is what was there once: of each column family, after one of its changes.
#[test]
fn every_loss_leads_to_a_state_that_was() {
    let disk = Disk::new();
    let (db, other) = with_two_families(&disk);
    let families = [db.default_column_family().clone(), other];
    let mut states: [BTreeSet<String>; 2] = [[String::new()].into(), [String::new()].into()];
    let none = WriteOptions::default();
    for round in 0..14u64 {
        for (index, cf) in families.iter().enumerate() {
            for i in 0..6u64 {
                let key = (i * 7 + round * 5 + index as u64) % 20;
                db.put_cf(&none, cf, format!("k{key:02}"), format!("{round}")).unwrap();
            }
            db.delete_cf(&none, cf, format!("k{:02}", (round * 3) % 20)).unwrap();
            db.flush_cf(&Default::default(), cf).unwrap();
            states[index].insert(all_of(&db, cf));
            if (round + index as u64).is_multiple_of(5) {
                db.compact_range(&CompactRangeOptions::default(), cf, None, None).unwrap();
            }
        }
    }
    db.close().unwrap();
    let names = disk.tables();
    assert!(names.len() > 6, "{names:?}");
    let mut partial = 0;
    for mask in 1..(1u32 << names.len().min(9)) {
        let disk = disk.kill();
        // The newest tables, in all combinations.
        for (bit, name) in names.iter().rev().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1) {
            if bit % 2 == 0 { disk.fs.remove(name).unwrap() } else { cut(&disk, name, 100) }
        }
        let db = disk.open_families(&best(&disk), &["other"]).unwrap();
        for (index, name) in ["default", "other"].iter().enumerate() {
            let found = all_of(&db, &db.column_family(name).unwrap());
            assert!(states[index].contains(&found), "losses {mask:#b}: {name} holds {found}");
            partial += usize::from(!found.is_empty());
        }
        assert_eq!(get(&db, "none"), "-");
        db.close().unwrap();
        disk.open_families(&disk.options(), &["other"]).unwrap().close().unwrap();
    }
    assert!(partial > 100, "hardly anything was left: {partial}");
}
