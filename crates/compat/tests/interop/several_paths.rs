//! Tables in several directories (`db_paths`, `cf_paths`): RocksDB and Ironstone write one database in turn.

use ironstone_compat::directory::{Scratch, files};
use ironstone_compat::driver::{Driver, Options, Writes, ran};
use ironstone_compat::workload::Workload;
use std::path::{Path, PathBuf};

const IRONSTONE: Driver = Driver::Ironstone(env!("CARGO_BIN_EXE_ironstone_driver"));
const WORKLOAD: Workload = Workload { seed: 83, cfs: 2, keys: 400 };
/// Levels of 16 KiB, 160 KiB and so on.
const LEVELS: &str = "compression=kNoCompression;write_buffer_size=65536;target_file_size_base=8192;\
    max_bytes_for_level_base=16384;level0_file_num_compaction_trigger=2;\
    level_compaction_dynamic_level_bytes=false;block_based_table_factory={format_version=5}";

struct Paths {
    dirs: Vec<PathBuf>,
    text: String,
}

impl Paths {
    /// For so many bytes each; the last takes the rest.
    fn new(scratch: &Scratch, name: &str) -> Self {
        let parent = scratch.db().parent().expect("below a temporary directory").to_owned();
        let sizes = [30_000, 200_000, 0];
        let dirs: Vec<PathBuf> = (0..3).map(|at| parent.join(format!("{name}{at}"))).collect();
        let texts = dirs.iter().zip(sizes).map(|(dir, size)| format!("{}:{size}", dir.display()));
        Self { text: format!("paths={};", texts.collect::<Vec<_>>().join(",")), dirs }
    }
    /// Which of them have tables.
    fn used(&self) -> Vec<bool> {
        self.dirs.iter().map(|dir| dir.is_dir() && !files(dir, "", ".sst").is_empty()).collect()
    }
}

fn no_tables_in(dir: &Path) {
    assert_eq!(files(dir, "", ".sst"), Vec::<PathBuf>::new());
}

fn in_turn(writers: [Driver; 2], of_family: bool) {
    let scratch = Scratch::new();
    let paths = Paths::new(&scratch, if of_family { "cf" } else { "db" });
    let cf = if of_family { format!("{}{LEVELS}", paths.text) } else { LEVELS.to_owned() };
    let options = Options { db: if of_family { "" } else { &paths.text }, cf: &cf };
    let mut ever = [false; 3];
    for turn in 0..6_u64 {
        let rounds = turn * 3..turn * 3 + 3;
        let writes = Writes {
            workload: WORKLOAD,
            rounds: rounds.clone(),
            after: "flush,compact,none",
            abrupt: turn % 2 == 0,
            options,
        };
        let writer = writers[turn as usize % 2];
        let Some(()) = ran(writer.write(&scratch.db(), &writes)) else { return };
        // The other one first: it recovers what the writer left.
        let expected = WORKLOAD.expected(0..rounds.end);
        for reader in [writers[(turn as usize + 1) % 2], writer] {
            let found = ran(reader.dump(&scratch.db(), WORKLOAD, options)).expect("it ran a moment ago");
            assert_eq!(found, expected, "turn {turn}: {} after {}", reader.name(), writer.name());
        }
        no_tables_in(&scratch.db());
        // Which directories have tables now depends on which compactions are done.
        ever.iter_mut().zip(paths.used()).for_each(|(ever, used)| *ever |= used);
    }
    assert!(ever.iter().filter(|used| **used).count() >= 2, "{ever:?}");
}

#[test]
fn a_database_over_several_directories_is_written_in_turn() {
    for theirs in [Driver::RocksDb7, Driver::RocksDb11] {
        in_turn([theirs, IRONSTONE], false);
        in_turn([IRONSTONE, theirs], false);
    }
}

#[test]
fn column_families_over_several_directories_are_written_in_turn() {
    in_turn([Driver::RocksDb11, IRONSTONE], true);
    in_turn([IRONSTONE, Driver::RocksDb11], true);
}

/// Who does not say where the tables are does not find them, and harms nothing.
#[test]
fn without_the_paths_tables_are_missing_and_stay() {
    let scratch = Scratch::new();
    let paths = Paths::new(&scratch, "db");
    let options = Options { db: &paths.text, cf: LEVELS };
    let writes = Writes { workload: WORKLOAD, rounds: 0..3, after: "compact", abrupt: false, options };
    for writer in [Driver::RocksDb7, IRONSTONE] {
        let Some(()) = ran(writer.write(&scratch.db(), &writes)) else { return };
        let plain = Options { db: "", cf: LEVELS };
        assert!(IRONSTONE.dump(&scratch.db(), WORKLOAD, plain).is_err());
        let found = ran(writer.dump(&scratch.db(), WORKLOAD, options)).expect("it ran a moment ago");
        assert_eq!(found, WORKLOAD.expected(0..3));
        std::fs::remove_dir_all(scratch.db()).unwrap();
        paths.dirs.iter().filter(|dir| dir.exists()).for_each(|dir| std::fs::remove_dir_all(dir).unwrap());
    }
}

/// Loses the MANIFESTs, and with `moved` mixes up where the tables are.
fn harm(dir: &Path, paths: &Paths, moved: bool) {
    for name in files(dir, "MANIFEST-", "").into_iter().chain([dir.join("CURRENT")]) {
        std::fs::remove_file(name).unwrap();
    }
    let tables: Vec<_> = paths.dirs.iter().flat_map(|dir| files(dir, "", ".sst")).collect();
    for (table, to) in tables.iter().zip(paths.dirs.iter().cycle()).filter(|_| moved) {
        std::fs::rename(table, to.join(table.file_name().unwrap())).unwrap();
    }
    assert!(!moved || paths.used() == [true; 3], "{tables:?}");
}

/// One repairs what the other has written, and either reads it and goes on.
#[test]
fn databases_over_several_directories_are_repaired() {
    for (writer, repairer) in
        [(Driver::RocksDb7, IRONSTONE), (Driver::RocksDb11, IRONSTONE), (IRONSTONE, Driver::RocksDb7)]
    {
        for moved in [false, true] {
            let scratch = Scratch::new();
            let paths = Paths::new(&scratch, "db");
            let options = Options { db: &paths.text, cf: LEVELS };
            // RocksDB repairs no WAL in a directory that is none of `db_paths`, and takes old tables for new ones.
            let after = if repairer == IRONSTONE { "flush,compact,none" } else { "flush,compact,compact" };
            let abrupt = repairer == IRONSTONE;
            let writes = Writes { workload: WORKLOAD, rounds: 0..3, after, abrupt, options };
            let Some(()) = ran(writer.write(&scratch.db(), &writes)) else { return };
            harm(&scratch.db(), &paths, moved);
            assert!(IRONSTONE.dump(&scratch.db(), WORKLOAD, options).is_err());
            let Some(()) = ran(repairer.repair(&scratch.db(), options)) else { return };
            no_tables_in(&scratch.db());
            for reader in [writer, repairer, IRONSTONE] {
                let found = ran(reader.dump(&scratch.db(), WORKLOAD, options)).expect("it ran a moment ago");
                let (reader, repairer) = (reader.name(), repairer.name());
                assert_eq!(found, WORKLOAD.expected(0..3), "{reader} after {repairer}, moved: {moved}");
            }
            let more = Writes { rounds: 3..5, after: "compact", abrupt: false, ..writes };
            ran(writer.write(&scratch.db(), &more)).expect("it ran a moment ago");
            let found = ran(repairer.dump(&scratch.db(), WORKLOAD, options)).expect("it ran a moment ago");
            assert_eq!(found, WORKLOAD.expected(0..5));
        }
    }
}

/// A follower reads what RocksDB has in several directories, and leaves all of them as they are.
#[test]
fn a_follower_reads_the_tables_of_several_directories() {
    for of_family in [false, true] {
        let scratch = Scratch::new();
        let paths = Paths::new(&scratch, "leader");
        let cf = if of_family { format!("{}{LEVELS}", paths.text) } else { LEVELS.to_owned() };
        let options = Options { db: if of_family { "" } else { &paths.text }, cf: &cf };
        let own = scratch.db().with_file_name("follower");
        for rounds in [0..3, 3..6] {
            let end = rounds.end;
            let writes = Writes { workload: WORKLOAD, rounds, after: "compact", abrupt: false, options };
            let Some(()) = ran(Driver::RocksDb11.write(&scratch.db(), &writes)) else { return };
            let tables = || paths.dirs.iter().map(|dir| files(dir, "", "")).collect::<Vec<_>>();
            let before = tables();
            let found = IRONSTONE.dump_following(&scratch.db(), &own, WORKLOAD, options);
            assert_eq!(ran(found).expect("it is here"), WORKLOAD.expected(0..end));
            assert_eq!(tables(), before);
        }
    }
}
