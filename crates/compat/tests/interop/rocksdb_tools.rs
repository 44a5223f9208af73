//! RocksDB's own tools (7.8) accept what Ironstone writes.

use std::path::Path;

use ironstone::options::DbOptions;
use ironstone::vfs::os::OsFileSystem;
use ironstone::{ColumnFamilyDescriptor, Db, FileChecksum, FileChecksumGenCrc32cFactory};
use ironstone_compat::directory::{Scratch, files};
use ironstone_compat::driver::{Driver, Options, Writes, ran, tool};
use ironstone_compat::formats::FORMATS;
use ironstone_compat::workload::{Contents, Workload};

const IRONSTONE: Driver = Driver::Ironstone(env!("CARGO_BIN_EXE_ironstone_driver"));
const WORKLOAD: Workload = Workload { seed: 23, cfs: 2, keys: 400 };

/// Runs the tool, which must succeed and print no word of an error. `None` if it is not installed.
fn accepts(name: &str, arguments: &[&str]) -> Option<String> {
    let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let (succeeded, output) = tool(name, &arguments)?;
    let complains = ["Corruption", "orrupt", "rror", "Failed", "failed"];
    // `# of bloom .. failed` and the like do not occur; properties and options are printed elsewhere.
    let complaint = output.lines().find(|line| complains.iter().any(|word| line.contains(word)));
    assert!(succeeded && complaint.is_none(), "{name} {arguments:?}: {output}");
    Some(output)
}

fn written_database(format: usize, abrupt: bool) -> Scratch {
    let db = Scratch::new();
    let writes = Writes {
        workload: WORKLOAD,
        rounds: 0..4,
        after: "compact,flush,flush,none",
        abrupt,
        options: FORMATS[format].options(),
    };
    IRONSTONE.write(&db.db(), &writes).expect("write the database");
    db
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn ldb_finds_the_database_consistent() {
    for format in (0..FORMATS.len()).filter(|&format| FORMATS[format].releases.contains(&Driver::RocksDb7)) {
        let db = written_database(format, format % 2 == 0);
        let Some(output) = accepts("ldb", &[&format!("--db={}", text(&db.db())), "checkconsistency"]) else {
            return;
        };
        assert!(output.contains("OK"), "{}: {output}", FORMATS[format].name);
    }
}

#[test]
fn ldb_scans_the_same_entries() {
    let db = written_database(0, true);
    for (name, contents) in WORKLOAD.contents(0..4) {
        let copy = Scratch::copy_of(&db.db());
        let arguments =
            [&format!("--db={}", text(&copy.db())), &format!("--column_family={name}"), "--hex", "scan"];
        let Some(output) = accepts("ldb", &arguments.map(|argument| argument)) else { return };
        assert_eq!(output.lines().collect::<Vec<_>>(), scan_lines(&contents), "{name}");
    }
}

fn scan_lines(contents: &Contents) -> Vec<String> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02X}")).collect::<String>();
    contents.iter().map(|(key, value)| format!("0x{} : 0x{}", hex(key), hex(value))).collect()
}

#[test]
fn ldb_dumps_the_manifest() {
    for format in [0, 10, 11] {
        let db = written_database(format, false);
        for manifest in files(&db.db(), "MANIFEST-", "") {
            let Some(output) = accepts("ldb", &["manifest_dump", &format!("--path={}", text(&manifest))])
            else {
                return;
            };
            assert!(output.contains("cf1"), "{output}");
            assert!(output.contains("leveldb.BytewiseComparator"), "{output}");
        }
    }
}

#[test]
fn ldb_lists_column_families() {
    let db = written_database(0, false);
    let Some(output) = accepts("ldb", &["list_column_families", &format!("--db={}", text(&db.db()))]) else {
        return;
    };
    assert!(output.contains("{default, cf1}"), "{output}");
}

#[test]
fn ldb_dumps_the_wal() {
    dumps_the_wal_of(&written_database(0, true));
}

#[test]
fn ldb_dumps_a_compressed_wal() {
    let db = Scratch::new();
    let options = Options { db: "wal_compression=kZSTD", cf: FORMATS[0].options().cf };
    let writes = Writes { workload: WORKLOAD, rounds: 0..4, after: "none", abrupt: true, options };
    IRONSTONE.write(&db.db(), &writes).expect("write the database");
    dumps_the_wal_of(&db);
}

fn dumps_the_wal_of(db: &Scratch) {
    let wals = files(&db.db(), "0", ".log");
    assert!(!wals.is_empty());
    let mut records = 0;
    for wal in wals {
        let argument = format!("--walfile={}", text(&wal));
        let Some(output) = accepts("ldb", &["dump_wal", &argument, "--header"]) else { return };
        records += output.lines().filter(|line| line.contains("PUT(")).count();
    }
    assert!(records > 0);
}

#[test]
fn sst_dump_checks_every_table() {
    for format in (0..FORMATS.len()).filter(|&format| FORMATS[format].releases.contains(&Driver::RocksDb7)) {
        let db = written_database(format, false);
        let tables = files(&db.db(), "", ".sst");
        assert!(!tables.is_empty());
        for table in tables {
            let file = format!("--file={}", text(&table));
            let Some(_) = accepts("sst_dump", &[&file, "--command=check", "--verify_checksum"]) else {
                return;
            };
            accepts("sst_dump", &[&file, "--command=verify"]);
            let properties = accepts("sst_dump", &[&file, "--command=none", "--show_properties"])
                .expect("it ran a moment ago");
            for property in ["# entries:", "data block size:", "comparator name: leveldb.BytewiseComparator"]
            {
                assert!(properties.contains(property), "{}: {properties}", FORMATS[format].name);
            }
        }
    }
}

const FILE_CHECKSUMS: Options<'_> = Options {
    db: "file_checksum_gen_factory=FileChecksumGenCrc32cFactory",
    cf: "block_based_table_factory={format_version=5}",
};

fn with_file_checksums(driver: Driver, db: &Scratch) -> Option<()> {
    let after = "compact,flush,flush";
    let writes = Writes { workload: WORKLOAD, rounds: 0..3, after, abrupt: false, options: FILE_CHECKSUMS };
    ran(driver.write(&db.db(), &writes))
}

#[test]
fn ldb_dumps_the_checksums_of_whole_files() {
    let db = Scratch::new();
    with_file_checksums(IRONSTONE, &db).expect("Ironstone is here");
    let manifest = files(&db.db(), "MANIFEST-", "").pop().expect("there is one");
    let arguments = [
        "file_checksum_dump",
        &format!("--db={}", text(&db.db())),
        &format!("--path={}", text(&manifest)),
        "--hex",
    ];
    let Some(output) = accepts("ldb", &arguments) else { return };
    let tables = files(&db.db(), "", ".sst");
    assert!(!tables.is_empty());
    for table in tables {
        let number: u64 =
            table.file_stem().and_then(|stem| stem.to_str()).expect("a number").parse().expect("one");
        let factory = FileChecksumGenCrc32cFactory;
        let checksum = FileChecksum::of_file(&OsFileSystem::new(), &table, &factory, None).expect("readable");
        let hex = checksum.checksum.iter().map(|byte| format!("{byte:02X}")).collect::<String>();
        let line = format!("{number}, {}, 0x{hex}", checksum.function);
        assert!(output.lines().any(|found| found == line), "{line} in {output}");
    }
}

#[test]
fn checksums_of_whole_files_by_rocksdb_hold() {
    for driver in [Driver::RocksDb10, Driver::RocksDb11] {
        let db = Scratch::new();
        let Some(()) = with_file_checksums(driver, &db) else { continue };
        let mut options = DbOptions::default();
        options.update(FILE_CHECKSUMS.db).expect("known");
        let families = Db::list_column_families(&options, db.db()).expect("a database");
        let families =
            families.iter().map(|name| ColumnFamilyDescriptor::new(name, Default::default())).collect();
        let opened = Db::open_read_only(&options, db.db(), families).expect("it opens");
        let all = opened.live_files();
        assert!(!all.is_empty() && all.iter().all(|file| file.file_checksum.len() == 4), "{all:?}");
        opened.verify_file_checksums().expect("they are right");
    }
}
