//! Collectors of table properties: every table has what they collected, and they have tables compacted.

use crate::disk::{DIR, Disk, all, fresh, put_synced, refused, rewrite_all, shape};
use ironstone::vfs::FileSystem;
use ironstone::{
    Code, CollectedEntry, CollectorContext, CompactFilesOptions, CompactOnDeletionCollectorFactory,
    CompactRangeOptions, Db, EntryKind, Error, IngestOptions, LsmInfoAtCreation, Options, Result,
    SstFileReader, SstFileWriter, TableFormat, TableProperties, TablePropertiesCollector,
    TablePropertiesCollectorFactory, object_registry,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Counts what tables hold, and where they were made.
#[derive(Clone, Default)]
struct Census {
    puts: u64,
    others: u64,
    origin: String,
    /// Tables of level 0 are to be compacted.
    is_impatient: bool,
    /// It fails for every key with an `x`, and at the end, if there was one.
    is_frail: bool,
    failed: bool,
}

impl TablePropertiesCollector for Census {
    fn name(&self) -> &str {
        "Census"
    }
    fn add(&mut self, entry: &CollectedEntry<'_>) -> Result<()> {
        match entry.kind {
            EntryKind::Put => self.puts += 1,
            _ => self.others += 1,
        }
        if self.is_frail && entry.user_key.contains(&b'x') {
            self.failed = true;
            return Err(Error::invalid_argument("an x"));
        }
        Ok(())
    }
    fn finish(&mut self) -> Result<BTreeMap<String, Vec<u8>>> {
        if self.failed {
            return Err(Error::invalid_argument("there was an x"));
        }
        let text = format!("{} puts, {} others, {}", self.puts, self.others, self.origin);
        Ok(BTreeMap::from([("test.census".to_owned(), text.into_bytes())]))
    }
    fn readable_properties(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("test.puts".to_owned(), self.puts.to_string())])
    }
    fn needs_compaction(&self) -> bool {
        self.is_impatient && self.origin.starts_with("level 0")
    }
}

impl TablePropertiesCollectorFactory for Census {
    fn name(&self) -> &str {
        "Census"
    }
    fn create(&self, context: &CollectorContext) -> Option<Box<dyn TablePropertiesCollector>> {
        let level =
            context.level_at_creation.map_or_else(|| "no level".to_owned(), |at| format!("level {at}"));
        let family = context.column_family_id.map_or_else(|| "-".to_owned(), |id| id.0.to_string());
        let origin = format!("{level} of {}, family {family}", context.num_levels);
        Some(Box::new(Self { origin, ..self.clone() }))
    }
}

fn with_census(disk: &Disk, census: Census) -> Options {
    let mut options = disk.options();
    options.cf.table_properties_collector_factories = vec![Arc::new(census)];
    options
}

fn census_of(properties: &TableProperties) -> String {
    String::from_utf8(properties.user_collected["test.census"].clone()).unwrap()
}

/// What each table of each level says, with a bar between levels, up to the last that has some.
fn census(db: &Db) -> String {
    let levels = db.properties_of_tables_by_level(db.default_column_family()).unwrap();
    let of_level = |level: &BTreeMap<_, _>| level.values().map(census_of).collect::<Vec<_>>().join("; ");
    let text = levels.iter().map(of_level).collect::<Vec<_>>().join("|");
    text.trim_end_matches('|').to_owned()
}

fn log(disk: &Disk) -> String {
    String::from_utf8(disk.fs.read_all(Path::new(&format!("{DIR}/LOG"))).unwrap()).unwrap()
}

#[test]
fn tables_of_every_origin_have_what_was_collected() {
    let disk = Disk::new();
    let options = with_census(&disk, Census::default());
    let db = disk.open_with(&options);
    db.put("a", "1").unwrap();
    db.put("b", "2").unwrap();
    db.delete("c").unwrap();
    db.delete_range("d", "f").unwrap();
    db.flush().unwrap();
    assert_eq!(census(&db), "2 puts, 2 others, level 0 of 7, family 0");
    rewrite_all(&db);
    assert_eq!(census(&db), "||||||2 puts, 0 others, level 6 of 7, family 0");

    let mut writer = SstFileWriter::new(&options);
    writer.open("/outside.sst").unwrap();
    writer.put("o", "1").unwrap();
    writer.delete_range("p", "q").unwrap();
    assert_eq!(writer.finish().unwrap().collector_failures, [""; 0]);
    let outside = "1 puts, 1 others, no level of 7, family -";
    let reader = SstFileReader::open(&options, "/outside.sst").unwrap();
    assert_eq!(census_of(reader.properties()), outside);
    assert_eq!(reader.properties().property_collectors_names, "[Census]");
    db.ingest_external_files(db.default_column_family(), &["/outside.sst"], &IngestOptions::default())
        .unwrap();
    assert!(census(&db).contains(outside));

    // A replayed WAL becomes a table, too.
    let other = db.create_column_family("other", &options.cf).unwrap();
    db.put_cf(&Default::default(), &other, "w", "1").unwrap();
    drop((other, db));
    let mut reopened = options.clone();
    reopened.db.avoid_flush_during_recovery = false;
    let db = disk.kill().open_families(&reopened, &["other"]).unwrap();
    let other = db.column_family("other").unwrap();
    let found = db.properties_of_all_tables(&other).unwrap();
    let found: Vec<_> = found.values().map(census_of).collect();
    assert_eq!(found, ["1 puts, 0 others, level 0 of 7, family 1"]);
}

#[test]
fn a_repair_collects() {
    let disk = Disk::new();
    let options = with_census(&disk, Census::default());
    let db = disk.open_with(&options);
    db.put("a", "1").unwrap();
    db.close().unwrap();
    disk.fs.remove(&disk.newest_in_db("MANIFEST")).unwrap();
    let disk = disk.kill();
    let mut settings = options.clone();
    settings.db.env = disk.env();
    Db::repair(&settings.db, DIR, &[], Some(&settings.cf)).unwrap();
    let db = disk.open_with(&options);
    assert_eq!(all(&db), "a=1");
    assert!(census(&db).starts_with("1 puts, 0 others, level 0 of 7, family 0"), "{}", census(&db));
}

#[test]
fn other_formats_of_tables_have_collectors() {
    for format in [TableFormat::Plain, TableFormat::Cuckoo] {
        let disk = Disk::new();
        let mut options = with_census(&disk, Census { is_impatient: true, ..Census::default() });
        options.cf.table_format = format;
        options.cf.plain_table.hash_table_ratio = 0.0;
        let db = disk.open_with(&options);
        db.put("a", "1").unwrap();
        db.put("b", "2").unwrap();
        db.flush().unwrap();
        assert_eq!(census(&db), "2 puts, 0 others, level 0 of 7, family 0");
        drop(db);
        options.cf.disable_auto_compactions = false;
        let db = disk.open_with(&options);
        db.wait_for_compact().unwrap();
        assert_eq!(shape(&db), [0, 0, 0, 0, 0, 0, 1], "{format:?}");
        assert_eq!(all(&db), "a=1 b=2");
    }
}

#[test]
fn properties_are_found_by_key_ranges() {
    let disk = Disk::new();
    let options = with_census(&disk, Census::default());
    let db = disk.open_with(&options);
    for (first, last) in [("a", "c"), ("d", "f"), ("g", "i")] {
        db.put(first, "1").unwrap();
        db.put(last, "1").unwrap();
        db.flush().unwrap();
    }
    let cf = db.default_column_family();
    let found = |ranges: &[(Option<&str>, Option<&str>)]| {
        let ranges: Vec<_> =
            ranges.iter().map(|(a, b)| (a.map(str::as_bytes), b.map(str::as_bytes))).collect();
        db.properties_of_tables_in_ranges(cf, &ranges).unwrap().len()
    };
    assert_eq!(found(&[]), 0);
    assert_eq!(found(&[(None, None)]), 3);
    assert_eq!(found(&[(Some("b"), Some("b"))]), 1);
    assert_eq!(found(&[(Some("c"), Some("d"))]), 2, "the ends belong to it");
    assert_eq!(found(&[(Some("cc"), Some("cd"))]), 0);
    assert_eq!(found(&[(None, Some("a")), (Some("i"), None)]), 2);
    assert_eq!(found(&[(Some("b"), Some("e")), (Some("e"), Some("h"))]), 3, "each table once");
    let all = db.properties_of_all_tables(cf).unwrap();
    assert_eq!(all.len(), 3);
    assert!(all.keys().all(|path| disk.exists(path)), "{:?}", all.keys());
    // Readable forms are for LOG.
    assert!(log(&disk).contains(r#""test.puts":"2""#), "{}", log(&disk));
}

#[test]
fn a_collector_has_tables_compacted() {
    let disk = Disk::new();
    let mut options = with_census(&disk, Census { is_impatient: true, ..Census::default() });
    let db = disk.open_with(&options);
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    assert_eq!(shape(&db), [1], "no compaction runs by itself");
    drop(db);
    // The mark is in the MANIFEST.
    options.cf.table_properties_collector_factories.clear();
    options.cf.disable_auto_compactions = false;
    let db = disk.open_with(&options);
    db.wait_for_compact().unwrap();
    assert_eq!(shape(&db), [0, 0, 0, 0, 0, 0, 1]);
    // Without the collector a table waits for others.
    db.put("b", "2").unwrap();
    db.flush().unwrap();
    db.wait_for_compact().unwrap();
    assert_eq!(shape(&db), [1, 0, 0, 0, 0, 0, 1]);
    assert_eq!(all(&db), "a=1 b=2");
}

#[test]
fn a_collector_that_fails_costs_its_properties_only() {
    let disk = Disk::new();
    let options = with_census(&disk, Census { is_frail: true, ..Census::default() });
    let db = disk.open_with(&options);
    db.put("a", "1").unwrap();
    db.put("x1", "2").unwrap();
    db.put("x2", "3").unwrap();
    db.flush().unwrap();
    assert_eq!(all(&db), "a=1 x1=2 x2=3");
    let cf = db.default_column_family();
    let has_census = |properties: &TableProperties| properties.user_collected.contains_key("test.census");
    assert!(!db.properties_of_all_tables(cf).unwrap().values().any(has_census));
    let lines = log(&disk);
    assert!(lines.contains("add failed 2 times, first with: Invalid argument: an x"), "{lines}");
    assert!(lines.contains("finish failed: Invalid argument: there was an x"), "{lines}");
    db.delete("x1").unwrap();
    db.delete("x2").unwrap();
    rewrite_all(&db);
    assert!(db.properties_of_all_tables(cf).unwrap().values().all(has_census));

    let mut writer = SstFileWriter::new(&options);
    writer.open("/outside.sst").unwrap();
    writer.put("x", "1").unwrap();
    let failures = writer.finish().unwrap().collector_failures;
    assert_eq!(failures.len(), 2, "{failures:?}");
    SstFileReader::open(&options, "/outside.sst").unwrap().verify_checksum().unwrap();
}

#[test]
fn tombstones_close_together_have_a_table_compacted() {
    let disk = Disk::new();
    let factory = CompactOnDeletionCollectorFactory::factory(128, 5, 0.0, 0);
    let mut options = disk.options();
    options.cf.disable_auto_compactions = false;
    options.cf.table_properties_collector_factories = vec![factory.clone()];
    let db = disk.open_with(&options);
    let write = |tombstones: u32| {
        (0..100).for_each(|key| db.put(format!("k{key:03}"), "v").unwrap());
        (0..tombstones).for_each(|key| db.delete(format!("d{key:03}")).unwrap());
        db.flush().unwrap();
        db.wait_for_compact().unwrap();
    };
    write(4);
    assert_eq!(shape(&db), [1]);
    write(5);
    assert_eq!(shape(&db), [0, 0, 0, 0, 0, 0, 1], "the first goes along");
    // Parameters change while the database is open.
    factory.set_deletion_trigger(6);
    write(5);
    assert_eq!(shape(&db), [1, 0, 0, 0, 0, 0, 1]);
    factory.set_deletion_ratio(0.04);
    write(5);
    assert_eq!(shape(&db), [0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(db.iter().unwrap().entries().count(), 100);
}

#[test]
fn collectors_are_options_in_text() {
    let text = "{{id=CompactOnDeletionCollector;window_size=1000;deletion_trigger=7;deletion_ratio=0.500000;\
                min_file_size=9;}:census\\:1}";
    object_registry::register("census:1", |_: &str| {
        Ok(Arc::new(Census::default()) as Arc<dyn TablePropertiesCollectorFactory>)
    });
    let mut options = Options::default();
    options.cf.set("table_properties_collectors", text).unwrap();
    let factories = &options.cf.table_properties_collector_factories;
    assert_eq!(
        factories.iter().map(|factory| factory.name()).collect::<Vec<_>>(),
        ["CompactOnDeletionCollector", "Census"]
    );
    let printed = options.cf.get("table_properties_collectors").unwrap();
    assert_eq!(printed, text.replace("census\\:1", "Census"));
    // RocksDB's forms of one, of one without options, and of none.
    for (form, expected) in [
        ("{{id=CompactOnDeletionCollector;min_file_size=9;}}", 9),
        ("{id=CompactOnDeletionCollector;min_file_size=8;}", 8),
        ("CompactOnDeletionCollector", 0),
    ] {
        options.cf.set("table_properties_collectors", form).unwrap();
        let printed = options.cf.get("table_properties_collectors").unwrap();
        assert!(printed.contains(&format!("min_file_size={expected};}}}}")), "{form}: {printed}");
        let again = Options::from_string(&format!("table_properties_collectors={printed}")).unwrap();
        assert_eq!(again.cf.get("table_properties_collectors").unwrap(), printed);
    }
    options.cf.set("table_properties_collectors", "nullptr").unwrap();
    assert_eq!(options.cf.get("table_properties_collectors").as_deref(), Some(""));
    let set = |text: &str| Options::default().cf.set("table_properties_collectors", text);
    refused(set("Nobody"), Code::NotSupported, "collector of table properties Nobody");
    refused(set("{id=CompactOnDeletionCollector;colour=1}"), Code::InvalidArgument, "colour");

    // They come back with the OPTIONS file.
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.set("table_properties_collectors", "{id=CompactOnDeletionCollector;window_size=128}").unwrap();
    disk.open_with(&options).close().unwrap();
    let loaded =
        ironstone::options::OptionsFile::load_latest(&disk.fs, Path::new(DIR), &Default::default()).unwrap();
    let loaded = loaded.column_family("default").unwrap().get("table_properties_collectors").unwrap();
    assert!(loaded.contains("window_size=128;"), "{loaded}");
}

#[test]
fn manual_compactions_of_some_keys_collect_per_table() {
    let disk = Disk::new();
    let mut options = with_census(&disk, Census::default());
    options.cf.target_file_size_base = 4 << 10;
    options.cf.set("compression", "kNoCompression").unwrap();
    let db = disk.open_with(&options);
    (0..200).for_each(|key| db.put(format!("{key:03}"), "v".repeat(100)).unwrap());
    db.flush().unwrap();
    db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None).unwrap();
    rewrite_all(&db);
    let tables = db.properties_of_all_tables(db.default_column_family()).unwrap();
    assert!(tables.len() > 2, "{}", census(&db));
    for properties in tables.values() {
        let expected = format!("{} puts, 0 others, level 6 of 7, family 0", properties.num_entries);
        assert_eq!(census_of(properties), expected);
    }
}

#[test]
fn samples_for_compression_are_taken_from_then_on() {
    let disk = Disk::new();
    let db = disk.open();
    let estimates = || {
        (0..1000).for_each(|key| db.put(format!("{key:05}"), "v".repeat(100)).unwrap());
        db.flush().unwrap();
        let tables = db.properties_of_all_tables(db.default_column_family()).unwrap();
        let newest = tables.into_values().next_back().unwrap();
        (
            newest.slow_compression_estimated_data_size,
            newest.fast_compression_estimated_data_size,
            newest.uncompressed_data_size,
        )
    };
    let (slow, fast, _) = estimates();
    assert_eq!((slow, fast), (0, 0));
    db.set_options(&[("sample_for_compression", "1")]).unwrap();
    let (slow, fast, uncompressed) = estimates();
    assert!(0 < slow && slow < fast && fast < uncompressed / 2, "{slow} {fast} {uncompressed}");
    let sums = db.map_property("rocksdb.aggregated-table-properties").unwrap();
    assert_eq!(sums["slow_compression_estimated_data_size"], slow.to_string());
    db.set_options(&[("sample_for_compression", "0")]).unwrap();
    assert_eq!(estimates().0, 0);
}

/// Where the tables of each level were made.
fn made_at(db: &Db) -> Vec<Vec<LsmInfoAtCreation>> {
    let levels = db.properties_of_tables_by_level(db.default_column_family()).unwrap();
    let levels = levels.iter().map(|tables| tables.values().map(TableProperties::lsm_info).collect());
    levels.filter(|tables: &Vec<_>| !tables.is_empty()).collect()
}

#[test]
fn tables_say_where_in_the_tree_they_were_made() {
    let at = |level, is_bottommost| LsmInfoAtCreation::Applicable { level: Some(level), is_bottommost };
    let (disk, db) = fresh();
    put_synced(&db, "a", "1");
    put_synced(&db, "z", "1");
    db.flush().unwrap();
    assert_eq!(made_at(&db), [[at(0, false)]]);
    rewrite_all(&db);
    assert_eq!(made_at(&db), [[at(6, true)]]);
    let tables = db.properties_of_all_tables(db.default_column_family()).unwrap();
    let listed: BTreeMap<_, _> = tables.into_values().flat_map(|table| table.listing()).collect();
    assert_eq!(listed["rocksdb.lsm.info.at.creation"], 0x206.to_string());
    for value in ["2", "3"] {
        put_synced(&db, "b", value);
        db.flush().unwrap();
    }
    let upper: Vec<_> =
        db.live_files().iter().filter(|file| file.level == 0).map(|file| file.number).collect();
    db.compact_files(&CompactFilesOptions::default(), db.default_column_family(), &upper, 4).unwrap();
    assert_eq!(made_at(&db), [[at(4, false)], [at(6, true)]]);
    put_synced(&db, "c", "4");
    let disk = disk.kill();
    let db = disk.open();
    assert_eq!(made_at(&db), [[at(0, false)], [at(4, false)], [at(6, true)]], "by a recovery");
    rewrite_all(&db);
    let mut writer = SstFileWriter::new(&disk.options());
    writer.open("/in.sst").unwrap();
    writer.put("d", "5").unwrap();
    writer.finish().unwrap();
    db.ingest_external_files(db.default_column_family(), &["/in.sst"], &IngestOptions::default()).unwrap();
    assert_eq!(
        made_at(&db).concat().iter().filter(|info| **info == LsmInfoAtCreation::NotApplicable).count(),
        1
    );
    rewrite_all(&db);
    assert_eq!(made_at(&db), [[at(6, true)]]);

    let mut options = disk.options();
    options.cf.table_format = TableFormat::Plain;
    options.cf.plain_table.hash_table_ratio = 0.0;
    let plain = db.create_column_family("plain", &options.cf).unwrap();
    db.put_cf(&Default::default(), &plain, "a", "1").unwrap();
    db.flush_cf(&Default::default(), &plain).unwrap();
    let tables = db.properties_of_all_tables(&plain).unwrap();
    assert!(tables.values().all(|table| table.lsm_info() == LsmInfoAtCreation::Unknown));
}
