//! Table files made outside of databases: RocksDB takes ours, and we take RocksDB's.

use ironstone::{
    ColumnFamilyDescriptor, CompactRangeOptions, CompactionStyle, Db, IngestFiles, IngestOptions, Options,
    SstFileReader, SstFileWriter,
};
use ironstone_compat::directory::Scratch;
use ironstone_compat::driver::{Driver, Options as DriverOptions, ROCKSDBS, Writes, ran, tool};
use ironstone_compat::workload::{Workload, cf_name};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const IRONSTONE: Driver = Driver::Ironstone(env!("CARGO_BIN_EXE_ironstone_driver"));
const WORKLOAD: Workload = Workload { seed: 41, cfs: 2, keys: 300 };

fn arguments(of: &[&str]) -> Vec<String> {
    of.iter().map(ToString::to_string).collect()
}

fn options() -> Options {
    let mut options = Options::default();
    options.db.create_if_missing = true;
    // Debian's RocksDB 7.8 knows format versions up to 5.
    options.cf.table.format_version = 5;
    options
}

fn write(path: &Path) {
    let mut writer = SstFileWriter::new(&options());
    writer.open(path).unwrap();
    for i in 0..3000 {
        writer.put(format!("key{i:05}"), format!("ours{i}")).unwrap();
    }
    writer.delete("old").unwrap();
    writer.delete_range("p", "q").unwrap();
    writer.finish().unwrap();
}

#[test]
fn rocksdb_reads_and_ingests_our_files() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ours.sst");
    write(&file);
    let (file, db) = (file.display().to_string(), dir.path().join("db").display().to_string());
    let Some((ok, text)) = tool("sst_dump", &arguments(&["--command=verify", &format!("--file={file}")]))
    else {
        return;
    };
    assert!(ok && !text.contains("orrupt"), "{text}");
    let (_, text) =
        tool("sst_dump", &arguments(&["--show_properties", "--command=none", &format!("--file={file}")]))
            .expect("it ran before");
    assert!(text.contains("# entries: 3002"), "{text}");
    for (key, value) in [("old", "1"), ("pz", "2"), ("key00000", "3"), ("z", "4")] {
        let put = arguments(&[&format!("--db={db}"), "--create_if_missing", "put", key, value]);
        let (ok, text) = tool("ldb", &put).expect("it ran before");
        assert!(ok, "{text}");
    }
    let (ok, text) = tool("ldb", &arguments(&[&format!("--db={db}"), "ingest_extern_sst", &file])).unwrap();
    assert!(ok && !text.contains("Failed"), "{text}");
    let (ok, text) = tool("ldb", &arguments(&[&format!("--db={db}"), "scan"])).unwrap();
    assert!(ok, "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3001, "{text}");
    assert_eq!((lines[0], lines[3000]), ("key00000 : ours0", "z : 4"));

    // And we read what came of it: a sequence number that stands in RocksDB's MANIFEST alone.
    let ours = Db::open(&options(), &db).unwrap();
    assert_eq!(ours.get("key02999").unwrap().as_deref(), Some(&b"ours2999"[..]));
    assert_eq!(ours.get("old").unwrap(), None);
    assert_eq!(ours.iter().unwrap().entries().count(), 3001);
}

#[test]
fn we_ingest_files_of_rocksdb_and_it_reads_the_database() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("theirs.sst").display().to_string();
    let scratch = dir.path().join("scratch").display().to_string();
    let put = arguments(&[&format!("--db={scratch}"), "--create_if_missing", "put", "k", "v"]);
    if tool("ldb", &put).is_none() {
        return;
    }
    let mut child = Command::new("ldb")
        .args([&format!("--db={scratch}"), "write_extern_sst", &file])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    for i in 0..1000 {
        writeln!(input, "key{i:05} ==> theirs{i}").unwrap();
    }
    drop(input);
    assert!(child.wait().unwrap().success());

    let reader = SstFileReader::open(&options(), &file).unwrap();
    reader.verify_checksum().unwrap();
    assert_eq!(reader.properties().num_entries, 1000);
    let path = dir.path().join("db");
    let db = Db::open(&options(), &path).unwrap();
    for i in (0..1000).step_by(2) {
        db.put(format!("key{i:05}"), "older").unwrap();
    }
    let ours = dir.path().join("ours.sst");
    write(&ours);
    db.ingest_external_files(db.default_column_family(), &[ours], &IngestOptions::default()).unwrap();
    db.ingest_external_files(db.default_column_family(), &[file], &IngestOptions::default()).unwrap();
    db.put("key00001", "newest").unwrap();
    db.close().unwrap();
    drop(db);
    let (ok, text) = tool("ldb", &arguments(&[&format!("--db={}", path.display()), "scan"])).unwrap();
    assert!(ok, "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3000, "{text}");
    assert_eq!(lines[..3], ["key00000 : theirs0", "key00001 : newest", "key00002 : theirs2"]);
    assert_eq!(lines[1000], "key01000 : ours1000");
}

#[test]
fn either_reads_what_the_other_ingested_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let at = format!("--db={}", path.display());
    let mut options = options();
    options.db.allow_ingest_behind = true; // RocksDB 7.8 does not know the column family's option.
    options.cf.compaction_style = CompactionStyle::Universal;
    let file = |name: &str, entries: &[(&str, &str)]| {
        let file = dir.path().join(name);
        let mut writer = SstFileWriter::new(&options);
        writer.open(&file).unwrap();
        entries.iter().for_each(|(key, value)| writer.put(key, value).unwrap());
        writer.finish().unwrap();
        file
    };
    let behind = IngestOptions { ingest_behind: true, ..IngestOptions::default() };
    let db = Db::open(&options, &path).unwrap();
    db.put("b", "new").unwrap();
    db.delete("c").unwrap();
    db.delete("x").unwrap();
    db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None).unwrap();
    let ours = file("ours.sst", &[("a", "old"), ("b", "old"), ("c", "old"), ("d", "old")]);
    db.ingest_external_files(db.default_column_family(), &[ours], &behind).unwrap();
    db.close().unwrap();
    drop(db);

    let load = "--try_load_options";
    let Some((ok, text)) = tool("ldb", &arguments(&[&at, load, "scan"])) else { return };
    assert!(ok, "{text}");
    assert_eq!(text.lines().collect::<Vec<_>>(), ["a : old", "b : new", "d : old"], "{text}");
    let (ok, text) = tool("ldb", &arguments(&[&at, load, "checkconsistency"])).unwrap();
    assert!(ok && text.contains("OK"), "{text}");

    let theirs = file("theirs.sst", &[("x", "old"), ("y", "old")]).display().to_string();
    let ingest = arguments(&[&at, load, "ingest_extern_sst", "--ingest_behind", &theirs]);
    let (ok, text) = tool("ldb", &ingest).unwrap();
    assert!(ok && text.contains("external SST files ingested"), "{text}");
    let db = Db::open(&options, &path).unwrap();
    let keys = || db.iter().unwrap().entries().map(|entry| entry.unwrap().0.to_vec()).collect::<Vec<_>>();
    assert_eq!(keys(), [b"a", b"b", b"d", b"y"], "x was deleted");
    db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None).unwrap();
    assert_eq!(keys(), [b"a", b"b", b"d", b"y"]);
    assert_eq!(db.get("b").unwrap().as_deref(), Some(&b"new"[..]));
}

/// Opens the database of the workload that is at `dir`, or is created there.
fn open_workload(dir: &Path) -> Db {
    let mut options = options();
    options.db.create_missing_column_families = true;
    options.cf.disable_auto_compactions = true;
    let named = |cf| ColumnFamilyDescriptor::new(cf_name(cf), options.cf.clone());
    Db::open_column_families(&options.db, dir, (0..WORKLOAD.cfs).map(named).collect()).unwrap()
}

#[test]
fn tables_of_a_database_of_rocksdb_go_into_one_of_ours() {
    for driver in ROCKSDBS.into_iter().chain([IRONSTONE]) {
        let source = Scratch::new();
        let writes = |rounds, after| Writes {
            workload: WORKLOAD,
            rounds,
            after,
            abrupt: false,
            options: DriverOptions::default(),
        };
        if ran(driver.write(&source.db(), &writes(0..5, "flush,compact,flush"))).is_none() {
            continue;
        }
        let (from, target) = (open_workload(&source.db()), Scratch::new());
        let to = open_workload(&target.db());
        let mut tables = from.live_files();
        // As RocksDB says: the deepest level first, and level 0 from the oldest on.
        tables.sort_by_key(|table| (std::cmp::Reverse(table.level), table.largest_sequence));
        let mut handles = Vec::new();
        for table in &tables {
            let options = IngestOptions {
                allow_db_generated_files: true,
                snapshot_consistency: false,
                link_files: true,
                ..IngestOptions::default()
            };
            let path = table.directory.join(format!("{:06}.sst", table.number.0));
            let cf = to.column_family(&table.column_family).unwrap();
            let files = [IngestFiles::new(&cf, vec![path], options)];
            handles.push(to.prepare_file_ingestion(&files).unwrap());
        }
        assert!(handles.len() >= 6, "{} tables, on several levels", handles.len());
        to.commit_file_ingestion_handles(handles).unwrap();
        for cf in (0..WORKLOAD.cfs).map(cf_name) {
            let count = |db: &Db| {
                let cf = db.column_family(&cf).unwrap();
                db.iter_cf(&ironstone::ReadOptions::default(), &cf).unwrap().entries().count()
            };
            assert_eq!(count(&to), count(&from), "{driver:?} {cf}");
        }
        to.close().unwrap();
        drop((from, to));
        // It is a database as any other, for RocksDB, too, and what comes later is newer.
        let mut rounds = 5;
        for next in [IRONSTONE, driver] {
            let Some(found) = ran(next.dump(&target.db(), WORKLOAD, DriverOptions::default())) else {
                continue;
            };
            assert_eq!(found, WORKLOAD.expected(0..rounds), "{driver:?}, read by {next:?}");
            ran(next.write(&target.db(), &writes(rounds..rounds + 1, "flush"))).expect("it wrote before");
            rounds += 1;
            let found = ran(next.dump(&target.db(), WORKLOAD, DriverOptions::default()));
            assert_eq!(found.unwrap(), WORKLOAD.expected(0..rounds), "{driver:?}, written by {next:?}");
        }
    }
}
