//! What a scraper finds.

use ironstone::vfs::{Clock, SystemClock};
use ironstone::{ColumnFamilyOptions, Db, FlushOptions, Options, Statistics, WriteOptions};
use ironstone_metrics::{DbCollector, text};
use prometheus_client::registry::Registry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

fn options() -> Options {
    let mut options = Options::in_memory();
    options.db.statistics = Some(Arc::new(Statistics::new()));
    options
}

/// The samples by name and labels; the text must be what the format allows.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let (mut samples, mut families) = (BTreeMap::new(), BTreeSet::new());
    let mut family = String::new();
    assert!(text.ends_with("# EOF\n"));
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(families.insert(name.to_owned()), "{name} appears twice");
            assert!(!name.ends_with("_total"), "the suffix is for samples: {name}");
            family = name.to_owned();
        } else if !line.starts_with('#') {
            assert!(line.starts_with(&family) && family.starts_with("ironstone_"), "{line} in {family}");
            let (name, value) = line.rsplit_once(' ').unwrap();
            let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
            assert!(samples.insert(name.to_owned(), value).is_none(), "{name} appears twice");
        }
    }
    samples
}

#[test]
fn a_stalled_database_says_why() {
    let db = Db::open(&options(), "/db").unwrap();
    let orders = db.create_column_family("orders", &ColumnFamilyOptions::default()).unwrap();
    let scrape = || parse(&text(&[("shop", &db)]).unwrap());
    let of = |name: &str, condition: &str| {
        let condition =
            if condition.is_empty() { String::new() } else { format!(",condition=\"{condition}\"") };
        format!("{name}{{database=\"shop\",column_family=\"orders\",cause=\"memtable_limit\"{condition}}}")
    };
    let before = scrape();
    assert_eq!(before[&of("ironstone_write_stall_active", "stopped")], 0.0);
    assert_eq!(before[&of("ironstone_write_stalls_total", "stopped")], 0.0, "what never happened is there");

    db.pause_background_work().unwrap();
    for _ in 0..2 {
        db.put_cf(&WriteOptions::default(), &orders, "k", "v").unwrap();
        db.flush_cf(
            &FlushOptions { wait: false, allow_write_stall: true, ..FlushOptions::default() },
            &orders,
        )
        .unwrap();
    }
    let stalled = scrape();
    let active: Vec<&String> = stalled
        .iter()
        .filter(|(name, value)| name.starts_with("ironstone_write_stall_active") && **value != 0.0)
        .map(|(name, _)| name)
        .collect();
    assert_eq!(active, [&of("ironstone_write_stall_active", "stopped")], "the cause, and no other");
    assert_eq!(stalled[r#"ironstone_is_write_stopped{database="shop"}"#], 1.0);

    std::thread::scope(|scope| {
        let writer = scope.spawn(|| db.put("patient", "v"));
        SystemClock::new().sleep(std::time::Duration::from_millis(100));
        db.continue_background_work().unwrap();
        writer.join().unwrap().unwrap();
    });
    db.wait_for_compact().unwrap();
    let after = scrape();
    assert_eq!(after[&of("ironstone_write_stall_active", "stopped")], 0.0);
    assert_eq!(after[&of("ironstone_write_stalls_total", "stopped")], 1.0);
    assert!(after[&of("ironstone_write_stall_seconds_total", "stopped")] >= 0.05);
    assert_eq!(after[&of("ironstone_write_stall_waits_total", "")], 1.0);
    assert!(after[&of("ironstone_write_stall_wait_seconds_total", "")] >= 0.02);
    for (cause, family) in [
        ("memtable_limit", "column_family=\"default\","),
        ("level0_file_limit", "column_family=\"orders\","),
        ("pending_compaction_bytes", "column_family=\"default\","),
        ("write_buffer_manager", ""),
        ("space_limit", ""),
    ] {
        let name = format!(
            "ironstone_write_stalls_total{{database=\"shop\",{family}cause=\"{cause}\",condition=\"stopped\"}}"
        );
        assert_eq!(after.get(&name), Some(&0.0), "{name}");
    }
}

#[test]
fn all_statistics_properties_and_levels_are_there() {
    let db = Arc::new(Db::open(&options(), "/db").unwrap());
    for number in 0..100 {
        db.put(format!("{number}"), "0123456789").unwrap();
    }
    db.flush().unwrap();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(DbCollector::new(&db)));
    let samples = parse(&ironstone_metrics::text_of(&registry).unwrap());
    assert_eq!(samples["ironstone_number_keys_written_total"], 100.0);
    let written =
        db.options().statistics.as_ref().unwrap().ticker(ironstone::statistics::Ticker::BytesWritten);
    assert_eq!(samples["ironstone_written_bytes_total"], written as f64);
    assert_eq!(samples["ironstone_db_flush_seconds_count"], 1.0);
    assert_eq!(samples[r#"ironstone_db_flush_seconds_bucket{le="+Inf"}"#], 1.0);
    let sum = samples["ironstone_db_flush_seconds_sum"];
    assert!(sum < 10.0, "seconds, not microseconds: {sum}"); // Else it would be some thousands.
    let buckets: Vec<f64> = samples
        .iter()
        .filter(|(name, _)| name.starts_with("ironstone_db_flush_seconds_bucket"))
        .map(|(_, value)| *value)
        .collect();
    assert!((20..40).contains(&buckets.len()), "{}", buckets.len());
    assert_eq!(samples[r#"ironstone_level_files{column_family="default",level="0"}"#], 1.0);
    assert!(samples[r#"ironstone_level_bytes{column_family="default",level="0"}"#] > 500.0);
    assert_eq!(samples[r#"ironstone_level_files{column_family="default",level="6"}"#], 0.0);
    assert_eq!(samples[r#"ironstone_estimate_num_keys{column_family="default"}"#], 100.0);
    assert_eq!(samples["ironstone_background_errors_total"], 0.0);
    assert_eq!(samples["ironstone_num_snapshots"], 0.0);
    for property in Db::property_names() {
        if db.int_property(&property).is_some_and(|number| number != u64::MAX) {
            let name = property.replace("rocksdb.", "ironstone_").replace('-', "_");
            let found = samples.keys().any(|sample| sample.starts_with(name.trim_end_matches("_bytes")));
            assert!(found, "{property}");
        }
    }
    // A database that is gone leaves the registry empty, and is not kept open by it.
    drop(db);
    assert!(parse(&ironstone_metrics::text_of(&registry).unwrap()).is_empty());
}

#[test]
fn databases_are_told_apart_and_names_are_escaped() {
    let first = Arc::new(Db::open(&options(), "/first").unwrap());
    let second = Arc::new(Db::open(&Options::in_memory(), "/second").unwrap());
    second.create_column_family("odd \"name\"\\", &ColumnFamilyOptions::default()).unwrap();
    let mut registry = Registry::default();
    let collector = DbCollector::default().with("first", &first).with("second", &second);
    registry.register_collector(Box::new(collector));
    let samples = parse(&ironstone_metrics::text_of(&registry).unwrap());
    assert!(samples.contains_key(r#"ironstone_number_keys_written_total{database="first"}"#));
    assert!(
        !samples.contains_key(r#"ironstone_number_keys_written_total{database="second"}"#),
        "without statistics"
    );
    for name in [
        r#"ironstone_num_snapshots{database="second"}"#,
        r#"ironstone_level_files{database="second",column_family="odd \"name\"\\",level="0"}"#,
    ] {
        assert_eq!(samples.get(name), Some(&0.0), "{name}");
    }
}
