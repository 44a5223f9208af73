//! Databases that are brought into the shape of other options.

use crate::disk::{DIR, Disk, all, refused, shape};
use ironstone::{
    Code, ColumnFamilyDescriptor, CompactionStyle, Db, Options, option_change_migration,
    option_change_migration_of,
};

fn options(disk: &Disk, style: CompactionStyle, levels: i32, dynamic: bool) -> Options {
    let mut options = disk.options();
    options.cf.compaction_style = style;
    options.cf.num_levels = levels;
    options.cf.level_compaction_dynamic_level_bytes = dynamic;
    options.cf.target_file_size_base = 8 << 10;
    options.cf.compaction_options_fifo.max_table_files_size = 1 << 40;
    options
}

/// Tables on several levels, overwritten and deleted keys, and writes that are in the log only.
fn fill(db: &Db, levels: i32) {
    for round in 0..4 {
        for number in 0..60 {
            db.put(format!("key{number:03}"), format!("{round}").repeat(400)).unwrap();
        }
        db.delete(format!("key{round:03}")).unwrap();
        db.flush().unwrap();
        if round == 1 && levels > 1 {
            db.compact_range(&Default::default(), db.default_column_family(), None, None).unwrap();
        }
    }
    db.put("in the log", "1").unwrap();
}

#[test]
fn every_style_and_number_of_levels_becomes_every_other() {
    use CompactionStyle::{Fifo, Level, Universal};
    let kinds = [
        (Level, 7, true),
        (Level, 7, false),
        (Level, 3, true),
        (Level, 2, false),
        (Universal, 7, false),
        (Universal, 3, false),
        (Universal, 1, false),
        (Fifo, 1, false),
    ];
    let mut unfit = 0;
    for from in kinds {
        for to in kinds {
            let disk = Disk::new();
            let [old, new] =
                [from, to].map(|(style, levels, dynamic)| options(&disk, style, levels, dynamic));
            let db = disk.open_with(&old);
            fill(&db, from.1);
            let (before, deepest) = (all(&db), shape(&db).len());
            drop(db);
            if deepest > to.1 as usize {
                unfit += 1;
                assert!(Disk::of(disk.fs.fork()).try_open(&new).is_err(), "{from:?} to {to:?} as it is");
            }
            option_change_migration(DIR, &old, &new).unwrap();
            let db = disk.open_with(&new);
            assert_eq!(all(&db), before, "{from:?} to {to:?}");
            let shape = shape(&db);
            match to {
                _ if from.0 == Fifo || from.1 == 1 => {
                    assert_eq!(shape.len(), 1, "{from:?} to {to:?}: {shape:?}")
                }
                (Fifo, ..) => assert_eq!(shape, [1], "{from:?} to {to:?}"),
                (Level, levels, true) => {
                    assert_eq!(shape.len(), levels as usize, "{from:?} to {to:?}: {shape:?}")
                }
                (Level, _, false) => {
                    assert_eq!((shape.len(), shape[0]), (2, 0), "{from:?} to {to:?}: {shape:?}")
                }
                (Universal, levels, _) => {
                    assert!(shape.len() <= levels as usize, "{from:?} to {to:?}: {shape:?}")
                }
            }
            db.put("more", "1").unwrap();
            db.flush().unwrap();
            db.compact_range(&Default::default(), db.default_column_family(), None, None).unwrap();
            assert_eq!(all(&db), format!("{before} more=1"), "{from:?} to {to:?}");
            drop(db);
            disk.lose_power().open_with(&new).close().unwrap();
        }
    }
    assert!(unfit > 10, "{unfit}");
}

#[test]
fn each_column_family_becomes_what_it_is_to_become() {
    let disk = Disk::new();
    let seven = options(&disk, CompactionStyle::Level, 7, true);
    let db = disk
        .open_families(
            &{
                let mut all = seven.clone();
                all.db.create_missing_column_families = true;
                all
            },
            &["b"],
        )
        .unwrap();
    let b = db.column_family("b").unwrap();
    for key in ["x", "y"] {
        db.put(key, "1").unwrap();
        db.put_cf(&Default::default(), &b, key, "2").unwrap();
    }
    for cf in [db.default_column_family(), &b] {
        db.compact_range(&Default::default(), cf, None, None).unwrap();
    }
    drop((b, db));
    let two = options(&disk, CompactionStyle::Level, 2, false);
    let family = |name: &str, options: &Options| ColumnFamilyDescriptor::new(name, options.cf.clone());
    let old = [family("default", &seven), family("b", &seven)];
    let differ = [family("default", &seven)];
    refused(
        option_change_migration_of(DIR, &seven.db, &old, &differ),
        Code::InvalidArgument,
        "column families [\"default\", \"b\"] before, [\"default\"] after",
    );
    let new = [family("default", &seven), family("b", &two)];
    option_change_migration_of(DIR, &seven.db, &old, &new).unwrap();
    let db = Db::open_column_families(&seven.db, DIR, new.to_vec()).unwrap();
    let b = db.column_family("b").unwrap();
    assert_eq!((all(&db).as_str(), crate::disk::all_of(&db, &b).as_str()), ("x=1 y=1", "x=2 y=2"));
    let levels = |cf| db.level_shape(cf).iter().filter(|level| level.0 > 0).count();
    assert_eq!((db.level_shape(&b).len(), levels(&b), levels(db.default_column_family())), (2, 1, 1));
}
