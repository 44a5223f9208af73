//! What a database counts and measures, in Prometheus' conventions.
//!
//! [`DbCollector`] is a collector for a registry of the crate `prometheus-client`: it looks at databases when they are
//! scraped, and costs nothing in between. [`text`] is the answer of an endpoint, for applications without a registry.
//!
//! | metrics | labels | from |
//! |---|---|---|
//! | `ironstone_<ticker>_total`, `ironstone_<histogram>` | | statistics, if [`DbOptions::statistics`] is set |
//! | `ironstone_<property>` | `column_family`, for those that are of one | properties that are numbers |
//! | `ironstone_level_files`, `ironstone_level_bytes` | `column_family`, `level` | the tree |
//! | `ironstone_write_stall_active` | `column_family`, `cause`, `condition` | [`Db::write_stalls`] |
//! | `ironstone_write_stalls_total`, `ironstone_write_stall_seconds_total` | `column_family`, `cause`, `condition` | |
//! | `ironstone_write_stall_waits_total`, `ironstone_write_stall_wait_seconds_total` | `column_family`, `cause` | |
//!
//! Names are RocksDB's, with `_` for what Prometheus does not allow, and with units behind: times are in seconds and
//! sizes in bytes (`rocksdb.block.cache.bytes.read` is `ironstone_block_cache_read_bytes_total`). Histograms without values
//! are left out. With several databases in one collector each has a label `database`.
//!
//! Causes of stalls are `memtable_limit`, `level0_file_limit` and `pending_compaction_bytes`, each of a column family, and
//! `write_buffer_manager` and `space_limit`, which have no label `column_family`. Conditions are `delayed` and `stopped`.
//!
//! ```
//! use ironstone::{Db, Options};
//!
//! # fn main() -> ironstone::Result<()> {
//! let db = Db::open(&Options::in_memory(), "/db")?;
//! let answer = ironstone_metrics::text(&[("orders", &db)]).expect("text grows");
//! assert!(answer.contains(r#"ironstone_write_stall_active{database="orders",column_family="default",cause="memtable_limit",condition="stopped"} 0"#));
//! # Ok(())
//! # }
//! ```
//!
//! [`DbOptions::statistics`]: ironstone::DbOptions
#![forbid(unsafe_code)]

mod families;
mod names;

use families::Source;
use ironstone::Db;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::{Arc, Weak};

/// The content type of [`text`], for HTTP.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Describes databases when its registry is scraped. One collector takes all databases of a registry: in two, the same
/// metrics would appear twice. Databases that were dropped are left out.
///
/// ```
/// # use std::sync::Arc;
/// # fn main() -> ironstone::Result<()> {
/// # let db = Arc::new(ironstone::Db::open(&ironstone::Options::in_memory(), "/db")?);
/// let mut registry = prometheus_client::registry::Registry::default();
/// registry.register_collector(Box::new(ironstone_metrics::DbCollector::new(&db)));
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct DbCollector {
    databases: Vec<(Option<String>, Weak<Db>)>,
}

impl DbCollector {
    /// Of one database, without a label.
    pub fn new(db: &Arc<Db>) -> Self {
        Self { databases: vec![(None, Arc::downgrade(db))] }
    }
    /// Of several: `name` is the label `database`, and has to be a different one for each.
    #[must_use]
    pub fn with(mut self, name: &str, db: &Arc<Db>) -> Self {
        self.databases.push((Some(name.to_owned()), Arc::downgrade(db)));
        self
    }
}

impl fmt::Debug for DbCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.databases.iter().map(|(name, _)| name)).finish()
    }
}

impl Collector for DbCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let alive: Vec<_> =
            self.databases.iter().filter_map(|(name, db)| Some((name.clone(), db.upgrade()?))).collect();
        let sources = alive.iter().map(|(name, db)| Source { name: name.clone(), db });
        families::encode(&sources.collect::<Vec<_>>(), encoder)
    }
}

/// Everything about `databases`, each with a name, in the OpenMetrics text format.
pub fn text(databases: &[(&str, &Db)]) -> Result<String, fmt::Error> {
    let mut out = String::new();
    let sources = databases.iter().map(|(name, db)| Source { name: Some((*name).to_owned()), db });
    families::encode_text(&sources.collect::<Vec<_>>(), &mut out)?;
    Ok(out)
}

/// As [`text`], of a registry: for applications that register more than a [`DbCollector`].
pub fn text_of(registry: &Registry) -> Result<String, fmt::Error> {
    let mut out = String::new();
    prometheus_client::encoding::text::encode(&mut out, registry)?;
    Ok(out)
}
