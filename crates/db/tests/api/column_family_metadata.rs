//! What is known of tables without reading them, and of the opening that wrote them.

use crate::disk::{Disk, all, fresh, refused, rewrite_all};
use ironstone::vfs::{FileSystem, ManualClock};
use ironstone::{Code, ColumnFamilyMetaDataOptions, CompactRangeOptions, Db, LiveFile};
use std::sync::Arc;
use std::time::Duration;

fn table(db: &Db, keys: [&str; 2]) {
    keys.iter().for_each(|key| db.put(key, "v").unwrap());
    db.flush().unwrap();
}

/// The levels with the first keys of the tables that are chosen.
fn chosen(db: &Db, start: Option<&str>, limit: Option<&str>, level: Option<usize>) -> String {
    let options = ColumnFamilyMetaDataOptions {
        start: start.map(str::as_bytes),
        limit: limit.map(str::as_bytes),
        level,
    };
    let metadata = db.column_family_metadata(db.default_column_family(), &options).unwrap();
    assert_eq!(metadata.name, "default");
    let files: Vec<&LiveFile> = metadata.levels.iter().flat_map(|level| &level.files).collect();
    assert_eq!(metadata.file_count, files.len());
    assert_eq!(metadata.size, files.iter().map(|file| file.size).sum::<u64>());
    let level = |level: &ironstone::LevelMetaData| {
        assert_eq!(level.size, level.files.iter().map(|file| file.size).sum::<u64>());
        assert!(level.files.iter().all(|file| file.level == level.level));
        let keys: Vec<_> = level.files.iter().map(|file| String::from_utf8_lossy(&file.smallest)).collect();
        format!("L{}: {}", level.level, keys.join(" "))
    };
    metadata.levels.iter().map(level).collect::<Vec<_>>().join(", ")
}

#[test]
fn tables_are_chosen_by_keys_and_level() {
    let (_disk, db) = fresh();
    assert_eq!(chosen(&db, None, None, None), "");
    table(&db, ["m", "p"]);
    table(&db, ["a", "c"]);
    let cf = db.default_column_family();
    db.compact_range(&CompactRangeOptions::default(), cf, None, None).unwrap();
    let last = db.live_files()[0].level;
    table(&db, ["b", "f"]);
    table(&db, ["e", "h"]);
    table(&db, ["x", "z"]);
    assert!(last > 0);
    let both = |of_0: &str, of_last: &str| format!("L0: {of_0}, L{last}: {of_last}");
    assert_eq!(chosen(&db, None, None, None), both("x e b", "a m"));
    assert_eq!(chosen(&db, None, None, Some(0)), "L0: x e b");
    assert_eq!(chosen(&db, None, None, Some(last)), format!("L{last}: a m"));
    assert_eq!(chosen(&db, None, None, Some(last - 1)), "");
    assert_eq!(chosen(&db, None, None, Some(99)), "");
    assert_eq!(chosen(&db, Some("n"), None, None), both("x", "m"));
    assert_eq!(chosen(&db, Some("c"), Some("c"), None), both("e b", "a"), "what overlaps goes along");
    assert_eq!(chosen(&db, None, Some("a"), None), format!("L{last}: a"), "both ends belong to it");
    assert_eq!(chosen(&db, Some("p"), Some("w"), None), format!("L{last}: m"));
    assert_eq!(chosen(&db, Some("q"), Some("w"), None), "");
    assert_eq!(chosen(&db, Some("x"), None, Some(last)), "");
    let all_of_it = db.live_files();
    let options = ColumnFamilyMetaDataOptions::default();
    let metadata = db.column_family_metadata(cf, &options).unwrap();
    let listed: Vec<LiveFile> = metadata.levels.into_iter().flat_map(|level| level.files).collect();
    assert_eq!(listed, all_of_it);
    let other = db.create_column_family("other", &db.column_family_options(cf)).unwrap();
    db.drop_column_family(&other).unwrap();
    refused(db.column_family_metadata(&other, &options), Code::ColumnFamilyDropped, "other");
}

#[test]
fn the_oldest_table_says_when_it_was_made() {
    let clock = Arc::new(ManualClock::new(5_000_000_000));
    let disk = Disk::with_clock(&clock);
    let db = disk.open();
    assert_eq!(db.creation_time_of_oldest_file().unwrap(), None);
    table(&db, ["a", "b"]);
    clock.advance(Duration::from_secs(10));
    let other = db.create_column_family("other", &disk.options().cf).unwrap();
    db.put_cf(&ironstone::WriteOptions::default(), &other, "k", "v").unwrap();
    db.flush_cf(&ironstone::FlushOptions::default(), &other).unwrap();
    assert_eq!(db.creation_time_of_oldest_file().unwrap(), Some(5000));
    rewrite_all(&db);
    assert_eq!(db.creation_time_of_oldest_file().unwrap(), Some(5010));
    clock.advance(Duration::from_secs(10));
    rewrite_all(&db);
    assert_eq!(db.creation_time_of_oldest_file().unwrap(), Some(5010), "that of the other column family");
    db.drop_column_family(&other).unwrap();
    assert_eq!(db.creation_time_of_oldest_file().unwrap(), Some(5020));
}

#[test]
fn a_session_is_known_by_its_tables_and_its_log() {
    let (disk, db) = fresh();
    let session = db.session_id().to_owned();
    assert_eq!(session.len(), 20);
    table(&db, ["a", "b"]);
    let cf = db.default_column_family();
    let properties = db.properties_of_all_tables(cf).unwrap();
    assert!(properties.values().all(|table| table.db_session_id == session && table.db_id == db.identity()));
    db.close().unwrap();
    let log = disk.fs.read_all(&disk.newest_in_db("LOG")).unwrap();
    assert!(String::from_utf8_lossy(&log).contains(&session));
    let again = disk.open();
    assert_ne!(again.session_id(), session);
    assert_eq!((all(&again).as_str(), again.identity()), ("a=v b=v", db.identity()));
}
