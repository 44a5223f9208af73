//! Names and units: RocksDB's words in Prometheus' form.

use prometheus_client::registry::Unit;

/// What numbers are multiplied with to have the unit.
const MICROS: f64 = 1e-6;
const NANOS: f64 = 1e-9;

/// The name of a metric without its unit, the unit, and what brings numbers into it.
pub(crate) struct Name {
    pub(crate) name: String,
    pub(crate) unit: Option<Unit>,
    pub(crate) scale: f64,
}

/// Of a ticker or histogram, `rocksdb.db.get.micros`: units are words of the name.
pub(crate) fn of_statistic(rocksdb: &str) -> Name {
    if rocksdb == "rocksdb.db.write.stall" {
        return Name { name: prefixed("db_write_stall"), unit: Some(Unit::Seconds), scale: MICROS };
    }
    let rest = rocksdb.strip_prefix("rocksdb.").unwrap_or(rocksdb).to_lowercase();
    let mut words: Vec<&str> = rest.split(['.', '-', '_', ' ']).filter(|word| !word.is_empty()).collect();
    let mut take = |unit: &str| {
        let at = words.iter().position(|word| *word == unit);
        let per = |at: usize| words.get(at + 1) == Some(&"per"); // `bytes.per.read` is a name.
        at.filter(|at| !per(*at)).map(|at| words.remove(at)).is_some()
    };
    let (unit, scale) = if take("micros") {
        (Some(Unit::Seconds), MICROS)
    } else if take("nanos") {
        (Some(Unit::Seconds), NANOS)
    } else if take("bytes") {
        (Some(Unit::Bytes), 1.0)
    } else {
        (None, 1.0)
    };
    Name { name: prefixed(&words.join("_")), unit, scale }
}

/// Of a property, without `rocksdb.`.
pub(crate) fn of_property(property: &str) -> Name {
    let name = property.replace('-', "_");
    let unit = if property.ends_with("-time") {
        Some(Unit::Seconds)
    } else if property == "actual-delayed-write-rate" {
        return Name {
            name: prefixed(&name),
            unit: Some(Unit::Other("bytes_per_second".to_owned())),
            scale: 1.0,
        };
    } else if is_in_bytes(property) {
        Some(Unit::Bytes)
    } else {
        None
    };
    let name = match (&unit, name.strip_suffix("_bytes")) {
        (Some(Unit::Bytes), Some(rest)) => rest.to_owned(),
        _ => name,
    };
    Name { name: prefixed(&name), unit, scale: 1.0 }
}

fn is_in_bytes(property: &str) -> bool {
    ["size", "usage", "capacity", "-bytes", "readers-mem"].iter().any(|word| property.contains(word))
}

/// Properties that are of the whole database: those of other column families would say the same.
pub(crate) const OF_DATABASE: &[&str] = &[
    "num-running-flushes",
    "num-running-compactions",
    "background-errors",
    "is-file-deletions-enabled",
    "num-snapshots",
    "oldest-snapshot-time",
    "oldest-snapshot-sequence",
    "min-log-number-to-keep",
    "min-obsolete-sst-number-to-keep",
    "obsolete-sst-files-size",
    "actual-delayed-write-rate",
    "is-write-stopped",
    "compaction-abort-count",
];
/// Properties that only grow.
pub(crate) const COUNTERS: &[&str] = &["background-errors", "compaction-abort-count"];

pub(crate) fn prefixed(name: &str) -> String {
    format!("ironstone_{name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironstone::Db;
    use ironstone::statistics::{Histogram, Ticker};
    use std::collections::BTreeMap;

    fn full(name: &Name, counter: bool) -> String {
        let unit = name.unit.as_ref().map_or(String::new(), |unit| format!("_{}", unit.as_str()));
        format!("{}{unit}{}", name.name, if counter { "_total" } else { "" })
    }

    #[test]
    fn names_follow_the_conventions() {
        for (rocksdb, name, scale) in [
            ("rocksdb.block.cache.miss", "ironstone_block_cache_miss", 1.0),
            ("rocksdb.block.cache.bytes.read", "ironstone_block_cache_read_bytes", 1.0),
            ("rocksdb.db.get.micros", "ironstone_db_get_seconds", 1e-6),
            ("rocksdb.compaction.times.cpu_micros", "ironstone_compaction_times_cpu_seconds", 1e-6),
            ("rocksdb.compression.times.nanos", "ironstone_compression_times_seconds", 1e-9),
            ("rocksdb.bytes.per.read", "ironstone_bytes_per_read", 1.0),
            ("rocksdb.rate.limiter.wait.micros.read", "ironstone_rate_limiter_wait_read_seconds", 1e-6),
        ] {
            let found = of_statistic(rocksdb);
            assert_eq!((full(&found, false).as_str(), found.scale), (name, scale), "{rocksdb}");
        }
        for (property, name) in [
            ("cur-size-active-mem-table", "ironstone_cur_size_active_mem_table_bytes"),
            ("estimate-pending-compaction-bytes", "ironstone_estimate_pending_compaction_bytes"),
            ("oldest-snapshot-time", "ironstone_oldest_snapshot_time_seconds"),
            ("num-snapshots", "ironstone_num_snapshots"),
        ] {
            assert_eq!(full(&of_property(property), false), name);
        }
    }

    #[test]
    fn no_two_metrics_have_one_name() {
        let tickers = Ticker::ALL.iter().map(|ticker| ticker.name().to_owned());
        let histograms = Histogram::ALL.iter().map(|histogram| histogram.name().to_owned());
        let mut names: BTreeMap<String, String> = BTreeMap::new();
        let statistics = tickers.chain(histograms).map(|name| (full(&of_statistic(&name), false), name));
        let properties = Db::property_names()
            .into_iter()
            .map(|name| (full(&of_property(name.trim_start_matches("rocksdb.")), false), name));
        for (name, of) in statistics.chain(properties) {
            let valid =
                name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
            assert!(valid, "{of}: {name}");
            if let Some(other) = names.insert(name.clone(), of.clone()) {
                panic!("{of} and {other} are both {name}");
            }
        }
    }

    #[test]
    fn properties_that_are_named_exist() {
        let known = Db::property_names();
        for property in OF_DATABASE.iter().chain(COUNTERS) {
            assert!(known.contains(&format!("rocksdb.{property}")), "{property}");
        }
    }
}
