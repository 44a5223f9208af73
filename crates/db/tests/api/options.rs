//! The OPTIONS file that every opening leaves, and options that make no sense.

use crate::disk::{DIR, Disk, all, fresh, refused};
use ironstone::options::{LoadOptions, OptionsFile};
use ironstone::vfs::FileSystem;
use ironstone::{Code, CompactRangeOptions, CompressionKind, Error, Options, SstFileWriter};
use std::path::Path;

fn load(disk: &Disk) -> OptionsFile {
    OptionsFile::load_latest(&disk.fs, Path::new(DIR), &LoadOptions::default()).unwrap()
}

type Change = fn(&mut Options);

#[test]
fn what_a_database_was_opened_with_is_in_its_newest_file() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.max_background_jobs = 5;
    options.cf.write_buffer_size = 123 << 10;
    options.cf.compression = CompressionKind::Zstd;
    let db = disk.open_with(&options);
    let mut other = options.cf.clone();
    other.table.block_size = 12345;
    db.create_column_family("other", &other).unwrap();
    let file = load(&disk);
    assert_eq!(file.db.max_background_jobs, 5);
    let default = file.column_family("default").unwrap();
    assert_eq!((default.write_buffer_size, default.compression), (123 << 10, CompressionKind::Zstd));
    assert_eq!(file.column_family("other").unwrap().table.block_size, 12345);
    let cf = db.column_family("other").unwrap();
    db.drop_column_family(&cf).unwrap();
    assert!(load(&disk).column_family("other").is_none());
}

#[test]
fn the_file_survives_a_power_loss_and_old_ones_are_removed() {
    let disk = Disk::new();
    for jobs in 1..6 {
        let mut options = disk.options();
        options.db.max_background_jobs = jobs;
        drop(disk.open_with(&options));
    }
    assert_eq!(load(&disk.lose_power()).db.max_background_jobs, 5);
    let kept = disk.fs.all_files().iter().filter(|path| path.to_string_lossy().contains("OPTIONS-")).count();
    assert_eq!(kept, 2, "as RocksDB");
}

#[test]
fn two_files_are_left_whoever_writes_them() {
    let (disk, db) = fresh();
    drop(db);
    let kept = || {
        let mut kept = disk.fs.all_files();
        kept.retain(|path| path.to_string_lossy().contains("OPTIONS-"));
        kept.sort();
        kept
    };
    let before = kept().pop().unwrap();
    let mut options = disk.options();
    options.db.create_missing_column_families = true;
    let error = disk.open_families(&options, &["a", "b", ""]).map(drop).expect_err("a family without a name");
    assert!(error.to_string().contains("must have a name"), "{error}");
    let after = kept();
    assert!(after.len() == 2 && after[0] == before, "one for all families that were made: {after:?}");
    let written = load(&disk);
    let names: Vec<_> = written.column_families.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["default", "a", "b"], "those before the one that could not be made stay");
    let db = disk.open_families(&options, &["a", "b", "c", "d"]).unwrap();
    assert!(kept().len() == 2 && kept()[0] == after[1], "one for all families that an opening makes");
    let newest = kept().pop().unwrap();
    db.disable_file_deletions();
    for size in ["1M", "2M", "3M"] {
        db.set_options(&[("write_buffer_size", size)]).unwrap();
    }
    assert_eq!(kept().len(), 5, "none goes while nothing may be removed");
    db.enable_file_deletions();
    db.set_options(&[("write_buffer_size", "4M")]).unwrap();
    let left = kept();
    assert!(left.len() == 2 && !left.contains(&newest), "{left:?}");
}

#[test]
fn a_lost_or_damaged_file_does_not_keep_a_database_closed() {
    let (disk, db) = fresh();
    db.put("k", "v").unwrap();
    drop(db);
    for spoil in [true, false] {
        for path in disk.fs.all_files() {
            if path.to_string_lossy().contains("OPTIONS-") {
                match spoil {
                    true => disk.fs.corrupt(&path, |bytes| bytes[20..60].fill(0)).unwrap(),
                    false => disk.fs.remove(&path).unwrap(),
                }
            }
        }
        assert_eq!(all(&disk.open()), "k=v");
    }
    load(&disk);
}

#[test]
fn options_that_make_no_sense_are_refused_before_anything_is_touched() {
    let changes: [(Change, &str); 2] = [
        (|options| options.cf.table.format_version = 99, "format_version"),
        (|options| options.cf.compression = CompressionKind::Xpress, "kXpressCompression"),
    ];
    for (change, name) in changes {
        let disk = Disk::new();
        let mut options = disk.options();
        change(&mut options);
        let error = disk.try_open(&options).expect_err(name);
        assert!(error.to_string().contains(name), "{error}");
        assert!(!disk.exists("/db/CURRENT"), "{name}: a database was made");
    }
    let (disk, db) = fresh();
    let mut wrong = disk.options().cf;
    wrong.table.format_version = 99;
    refused(db.create_column_family("x", &wrong), Code::InvalidArgument, "format_version");
    assert!(db.column_family("x").is_none());
}

#[test]
fn messages_of_errors_show_keys_only_if_they_may() {
    for allowed in [false, true] {
        let disk = Disk::new();
        let mut options = disk.options();
        options.db.allow_data_in_errors = allowed;
        let db = disk.open_with(&options);
        let check = |error: Error, what: &str| {
            let text = error.to_string();
            assert!(text.contains(what), "{text}");
            assert_eq!(
                (text.contains("s3cret"), text.contains("<a key of 6 bytes>")),
                (allowed, !allowed),
                "{text}"
            );
        };
        // Mixing these is a mistake, which compactions find.
        db.delete("s3cret").unwrap();
        let snapshot = db.snapshot();
        db.flush().unwrap();
        db.single_delete("s3cret").unwrap();
        db.flush().unwrap();
        drop(snapshot);
        let all = CompactRangeOptions::default();
        let result = db.compact_range(&all, db.default_column_family(), None, None);
        check(result.unwrap_err(), "found SingleDelete above Delete");
        let mut writer = SstFileWriter::new(&options);
        writer.open("/table").unwrap();
        writer.put("x", "1").unwrap();
        check(writer.put("s3cret", "2").unwrap_err(), "strict ascending order");
        // What is the caller's alone is not repeated.
        let text = db.delete_range("s3cret", "a").unwrap_err().to_string();
        assert!(!text.contains("s3cret"), "{text}");
    }
}
