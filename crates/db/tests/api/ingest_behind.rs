//! Files that go below everything.

use crate::disk::{Disk, all, get, get_with, put_synced, refused, rewrite_all, shape};
use crate::ingest::ingest_with;
use ironstone::{
    Code, CompactRangeOptions, CompactionStyle, Db, IngestOptions, Options, ReadOptions, SequenceNumber,
    merge_operators,
};

const STYLES: [CompactionStyle; 2] = [CompactionStyle::Level, CompactionStyle::Universal];

fn options(disk: &Disk, style: CompactionStyle) -> Options {
    let mut options = disk.options();
    options.cf.compaction_style = style;
    options.cf.cf_allow_ingest_behind = true;
    options.cf.min_tombstones_for_range_conversion = 2;
    options
}

fn behind(disk: &Disk, db: &Db, files: &[&str]) -> ironstone::Result<()> {
    ingest_with(disk, db, files, &IngestOptions { ingest_behind: true, ..IngestOptions::default() })
}

#[test]
fn only_keys_that_nobody_wrote_appear() {
    for style in STYLES {
        let disk = Disk::new();
        let db = disk.open_with(&options(&disk, style));
        for key in ["a", "b", "c", "d", "e"] {
            put_synced(&db, key, "new");
        }
        db.delete("b").unwrap();
        db.delete_range("d", "f").unwrap();
        rewrite_all(&db);
        assert_eq!(all(&db), "a=new c=new");
        let before = db.snapshot();
        behind(&disk, &db, &["a=old b=old c=old d=old dd=old e=old f=old"]).unwrap();
        db.delete("bb").unwrap(); // Still in the memtable.
        behind(&disk, &db, &["g=old h=old"]).unwrap();
        let expected = "a=new c=new f=old g=old h=old";
        assert_eq!(all(&db), expected);
        assert_eq!(get(&db, "b"), "-");
        assert_eq!(get(&db, "f"), "old");
        let past = ReadOptions { snapshot: Some(before), ..ReadOptions::default() };
        assert_eq!(get_with(&db, &past, db.default_column_family(), "f"), "old", "older than any snapshot");
        let last: Vec<_> = db.live_files().into_iter().filter(|file| file.level == 6).collect();
        assert_eq!(last.len(), 2);
        assert!(last.iter().all(|file| file.largest_sequence == SequenceNumber::ZERO));
        drop((past, db));
        let disk = disk.lose_power();
        let db = disk.open_with(&options(&disk, style));
        assert_eq!(all(&db), expected);
        rewrite_all(&db);
        assert_eq!(all(&db), expected);
        assert_eq!(shape(&db)[5..], [1, 2], "the files themselves are not rewritten");

        // Once the option is off, the last level is one like others.
        drop(db);
        let mut off = options(&disk, style);
        off.cf.cf_allow_ingest_behind = false;
        let db = disk.open_with(&off);
        rewrite_all(&db);
        assert_eq!(all(&db), expected);
        assert_eq!(shape(&db), [0, 0, 0, 0, 0, 0, 1]);
        let error = behind(&disk, &db, &["x=old"]);
        refused(error, Code::InvalidArgument, "ColumnFamily default with cf_allow_ingest_behind=false");
        drop(db);

        // Tombstones are gone now, and nobody can say which.
        let db = disk.open_with(&options(&disk, style));
        refused(behind(&disk, &db, &["b=old"]), Code::InvalidArgument, "doesn't fit at the last level");
        let to_five = CompactRangeOptions { change_level: true, target_level: Some(5), ..Default::default() };
        drop(db);
        let db = disk.open_with(&off);
        db.compact_range(&to_five, db.default_column_family(), None, None).unwrap();
        drop(db);
        let db = disk.open_with(&options(&disk, style));
        let error = refused(behind(&disk, &db, &["b=old"]), Code::InvalidArgument, "0 seqno in database");
        assert!(error.to_string().contains("of level 5"), "{error}");
        assert_eq!(all(&db), expected);
    }
}

#[test]
fn merge_operands_find_what_was_ingested_behind() {
    for style in STYLES {
        let disk = Disk::new();
        let mut options = options(&disk, style);
        options.cf.merge_operator = Some(merge_operators::string_append(","));
        let db = disk.open_with(&options);
        db.merge("a", "1").unwrap();
        db.flush().unwrap();
        db.merge("a", "2").unwrap();
        db.put("b", "1").unwrap();
        rewrite_all(&db);
        assert_eq!(all(&db), "a=1,2 b=1");
        behind(&disk, &db, &["a=0 b=0 c=0"]).unwrap();
        assert_eq!(all(&db), "a=0,1,2 b=1 c=0");
        rewrite_all(&db);
        assert_eq!(all(&db), "a=0,1,2 b=1 c=0");
    }
}

#[test]
fn gaps_between_tombstones_stay_open() {
    let disk = Disk::new();
    let db = disk.open_with(&options(&disk, CompactionStyle::Level));
    for i in 0..40 {
        db.put(format!("k{i:02}"), "v").unwrap();
        db.delete(format!("k{i:02}")).unwrap();
    }
    assert_eq!(all(&db), "", "an iterator passes the run");
    behind(&disk, &db, &["k05=hidden k05x=old"]).unwrap();
    assert_eq!(all(&db), "k05x=old");
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_nothing_behind() {
    let disk = Disk::new();
    let db = disk.open_with(&options(&disk, CompactionStyle::Universal));
    behind(&disk, &db, &["b=1 d=1"]).unwrap();
    let error = refused(behind(&disk, &db, &["c=2"]), Code::InvalidArgument, "doesn't fit at the last level");
    assert!(error.to_string().contains("/in0.sst") && error.to_string().contains("of level 6"), "{error}");
    refused(behind(&disk, &db, &["p=2 r=2", "q=2"]), Code::NotSupported, "overlapping ranges");
    behind(&disk, &db, &["a=1", "e=1"]).unwrap();
    assert_eq!(all(&db), "a=1 b=1 d=1 e=1");
    let tables = disk.tables().len();
    assert_eq!(tables, db.live_files().len());
}

#[test]
fn with_fifo_compaction_they_are_dropped_first() {
    let disk = Disk::new();
    let mut options = options(&disk, CompactionStyle::Fifo);
    options.cf.num_levels = 2;
    options.cf.disable_auto_compactions = false;
    options.cf.compaction_options_fifo.allow_compaction = true;
    options.cf.level0_file_num_compaction_trigger = 2;
    let db = disk.open_with(&options);
    for key in ["a", "b"] {
        put_synced(&db, key, "new");
        db.flush().unwrap();
    }
    db.delete("c").unwrap();
    db.flush().unwrap();
    db.wait_for_compact().unwrap();
    assert_eq!(shape(&db), [1], "small files became one");
    let before = db.snapshot();
    behind(&disk, &db, &["a=old c=old d=old"]).unwrap();
    assert_eq!(shape(&db), [1, 1]);
    assert_eq!(all(&db), "a=new b=new d=old", "the tombstone is still there");
    let past = ReadOptions { snapshot: Some(before), ..ReadOptions::default() };
    assert_eq!(get_with(&db, &past, db.default_column_family(), "d"), "old", "older than any snapshot");
    refused(behind(&disk, &db, &["b=2 c=2"]), Code::InvalidArgument, "doesn't fit at the last level");
    drop((past, db));
    let disk = disk.lose_power();
    let db = disk.open_with(&options);
    assert_eq!(all(&db), "a=new b=new d=old");
    db.delete("e").unwrap();
    db.flush().unwrap();
    db.wait_for_compact().unwrap();
    behind(&disk, &db, &["e=old f=old"]).unwrap();
    assert_eq!(all(&db), "a=new b=new d=old f=old");
    assert_eq!(shape(&db), [1, 2]);
    let newest = db.live_files().into_iter().filter(|file| file.level == 0);
    options.cf.compaction_options_fifo.max_table_files_size = newest.map(|file| file.size).sum();
    drop(db);

    let db = disk.open_with(&options);
    db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None).unwrap();
    assert_eq!(shape(&db), [1], "what lies behind goes first");
    assert_eq!(all(&db), "a=new b=new");
    drop(db);

    let disk = Disk::new();
    options.cf.num_levels = 1;
    let db = disk.open_with(&options);
    refused(behind(&disk, &db, &["a=1"]), Code::InvalidArgument, "there is no level below level 0");
}

#[test]
fn there_are_three_levels_at_least() {
    for by_database in [false, true] {
        let disk = Disk::new();
        let mut options = options(&disk, CompactionStyle::Universal);
        options.cf.num_levels = 1;
        options.db.allow_ingest_behind = by_database;
        options.cf.cf_allow_ingest_behind = !by_database;
        let db = disk.open_with(&options);
        put_synced(&db, "a", "new");
        let created = db.create_column_family("other", &options.cf).unwrap();
        assert_eq!(db.level_shape(&created).len(), 3);
        behind(&disk, &db, &["a=old b=old"]).unwrap();
        rewrite_all(&db);
        assert_eq!(all(&db), "a=new b=old");
        assert_eq!(shape(&db), [0, 1, 1]);
    }
}
