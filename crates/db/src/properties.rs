//! What a database says about itself, under RocksDB's property names.

pub(crate) mod report;
pub(crate) mod reset;

use crate::Db;
use crate::column_family::{ColumnFamily, ColumnFamilyData};
use crate::read::view::SuperVersion;
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::Ordering;
use ironstone_compaction::{CompactionStyle, LevelShape};
use std::collections::BTreeMap;
use std::fmt::Write;

const PREFIX: &str = "rocksdb.";
const NO_BLOBS: &str =
    "Number of blob files: 0\nTotal size of blob files: 0\nTotal size of garbage in blob files: 0\n";

/// The properties that are numbers, without the prefix.
const NUMBERS: &[&str] = &[
    "num-immutable-mem-table",
    "num-immutable-mem-table-flushed",
    "mem-table-flush-pending",
    "num-running-flushes",
    "compaction-pending",
    "num-running-compactions",
    "num-running-bottom-compactions",
    "num-running-remote-compactions",
    "num-unscheduled-compactions",
    "background-errors",
    "cur-size-active-mem-table",
    "cur-size-all-mem-tables",
    "size-all-mem-tables",
    "num-entries-active-mem-table",
    "num-entries-imm-mem-tables",
    "num-deletes-active-mem-table",
    "num-deletes-imm-mem-tables",
    "estimate-num-keys",
    "estimate-table-readers-mem",
    "is-file-deletions-enabled",
    "num-snapshots",
    "oldest-snapshot-time",
    "oldest-snapshot-sequence",
    "current-super-version-number",
    "estimate-live-data-size",
    "min-log-number-to-keep",
    "total-sst-files-size",
    "live-sst-files-size",
    "base-level",
    "estimate-pending-compaction-bytes",
    "actual-delayed-write-rate",
    "is-write-stopped",
    "block-cache-capacity",
    "block-cache-usage",
    "block-cache-pinned-usage",
    "num-live-versions",
    "min-obsolete-sst-number-to-keep",
    "obsolete-sst-files-size",
    "num-running-compaction-sorted-runs",
    "compaction-abort-count",
    "estimate-oldest-key-time",
    "num-blob-files",
    "total-blob-file-size",
    "live-blob-file-size",
    "live-blob-file-garbage-size",
];
/// The properties that are text, without the prefix. Those that end with `level` take a number behind.
const TEXTS: &[&str] = &[
    "stats",
    "cfstats",
    "cfstats-no-file-histogram",
    "cf-file-histogram",
    "cf-write-stall-stats",
    "dbstats",
    "db-write-stall-stats",
    "levelstats",
    "sstables",
    "num-files-at-level",
    "compression-ratio-at-level",
    "options-statistics",
    "aggregated-table-properties",
    "aggregated-table-properties-at-level",
    "block-cache-entry-stats",
    "fast-block-cache-entry-stats",
    "live-sst-files-size-at-temperature",
    "blob-stats",
];
/// The texts that [`Db::map_property`] knows as well, without the prefix and the number of a level.
const MAPS: &[&str] = &[
    "cfstats",
    "cf-write-stall-stats",
    "dbstats",
    "db-write-stall-stats",
    "aggregated-table-properties",
    "aggregated-table-properties-at-level",
    "block-cache-entry-stats",
    "fast-block-cache-entry-stats",
];

impl Db {
    /// The names of all properties.
    pub fn property_names() -> Vec<String> {
        NUMBERS.iter().chain(TEXTS).map(|name| format!("{PREFIX}{name}")).collect()
    }
    /// A property of `default` as text; `None` for names that are unknown.
    ///
    /// ```
    /// # use ironstone::{Db, Options};
    /// # let db = Db::open(&Options::in_memory(), "/db")?;
    /// db.put(b"iron", b"Fe")?;
    /// assert_eq!(db.int_property("rocksdb.num-entries-active-mem-table"), Some(1));
    /// db.flush()?;
    /// assert_eq!(db.int_property("rocksdb.num-entries-active-mem-table"), Some(0));
    /// assert_eq!(db.property("rocksdb.num-files-at-level0").as_deref(), Some("1"));
    /// assert_eq!(db.map_property("rocksdb.aggregated-table-properties").unwrap()["num_entries"], "1");
    /// assert_eq!(db.property("rocksdb.unheard-of"), None);
    /// # Ok::<_, ironstone::Error>(())
    /// ```
    pub fn property(&self, name: &str) -> Option<String> {
        self.property_cf(self.default_column_family(), name)
    }
    /// A property of `cf` as text; `None` for names that are unknown.
    pub fn property_cf(&self, cf: &ColumnFamily, name: &str) -> Option<String> {
        if let Some(number) = self.int_property_cf(cf, name) {
            return Some(number.to_string());
        }
        let (full, name) = (name, name.strip_prefix(PREFIX)?);
        let view = cf.0.view();
        if let Some((name, level)) = of_level(name) {
            return self.level_property(&view, name, level);
        }
        match name {
            "stats" => Some(format!(
                "{}{}{}",
                self.engine().column_family_stats(&cf.0),
                file_histogram(&cf.0),
                self.engine().database_stats()
            )),
            "cfstats" => Some(self.engine().column_family_stats(&cf.0) + &file_histogram(&cf.0)),
            "cfstats-no-file-histogram" => Some(self.engine().column_family_stats(&cf.0)),
            "cf-file-histogram" => Some(file_histogram(&cf.0)),
            "dbstats" => Some(self.engine().database_stats()),
            "cf-write-stall-stats" | "db-write-stall-stats" => {
                self.map_property_cf(cf, full).map(|map| lines(&map))
            }
            "block-cache-entry-stats" | "fast-block-cache-entry-stats" => {
                self.map_property_cf(cf, full).map(|map| lines(&map))
            }
            "levelstats" => Some(level_stats(&view)),
            "sstables" => Some(tables(&view)),
            "options-statistics" => {
                Some(self.engine().statistics.as_ref().map_or_else(String::new, |s| s.to_string()))
            }
            "aggregated-table-properties" => Some(report::text_of(&report::aggregated(&view.levels))),
            "blob-stats" => Some(NO_BLOBS.to_owned()),
            _ => None,
        }
    }
    fn level_property(&self, view: &SuperVersion, name: &str, number: usize) -> Option<String> {
        if name == "live-sst-files-size-at-temperature" {
            // No file system here keeps files warm or cold: all are of temperature 0, which is unknown.
            return Some(if number == 0 { view.version.total_bytes() } else { 0 }.to_string());
        }
        let level = view.levels.get(number)?;
        Some(match name {
            "num-files-at-level" => level.files.len().to_string(),
            "compression-ratio-at-level" => report::compression_ratio(level).to_string(),
            _ => report::text_of(&report::aggregated(std::slice::from_ref(level))),
        })
    }

    /// A property of `default` in parts, under RocksDB's keys; `None` for names that are unknown or have no parts.
    pub fn map_property(&self, name: &str) -> Option<BTreeMap<String, String>> {
        self.map_property_cf(self.default_column_family(), name)
    }
    /// A property of `cf` in parts, under RocksDB's keys; `None` for names that are unknown or have no parts.
    pub fn map_property_cf(&self, cf: &ColumnFamily, name: &str) -> Option<BTreeMap<String, String>> {
        let name = name.strip_prefix(PREFIX)?;
        let view = cf.0.view();
        if let Some((name, level)) = of_level(name).filter(|(name, _)| MAPS.contains(name)) {
            debug_assert_eq!(name, "aggregated-table-properties-at-level");
            let level = std::slice::from_ref(view.levels.get(level)?);
            return Some(report::sums_of(&report::aggregated(level)));
        }
        match name {
            "cfstats" => Some(self.engine().column_family_map(&cf.0)),
            "cf-write-stall-stats" => Some(self.engine().stall_map(&cf.0)),
            "dbstats" => Some(self.engine().database_map()),
            "db-write-stall-stats" => Some(self.engine().database_stall_map()),
            "aggregated-table-properties" => Some(report::sums_of(&report::aggregated(&view.levels))),
            "block-cache-entry-stats" | "fast-block-cache-entry-stats" => {
                let settings = cf.0.settings();
                Some(report::cache_entries(settings.opener.table.block_cache.as_ref()?))
            }
            _ => None,
        }
    }

    /// A property that is a number, added up over all column families; `None` for names that are unknown or no numbers.
    pub fn aggregated_int_property(&self, name: &str) -> Option<u64> {
        let families: Vec<_> = {
            let state = self.engine().state.lock();
            state.families.values().map(|family| ColumnFamily(Arc::clone(&family.data))).collect()
        };
        families.iter().map(|cf| self.int_property_cf(cf, name)).sum()
    }
    /// A property of `default` as a number; `None` for names that are unknown or no numbers.
    pub fn int_property(&self, name: &str) -> Option<u64> {
        self.int_property_cf(self.default_column_family(), name)
    }
    /// A property of `cf` as a number; `None` for names that are unknown or no numbers.
    pub fn int_property_cf(&self, cf: &ColumnFamily, name: &str) -> Option<u64> {
        let name = name.strip_prefix(PREFIX)?;
        let name = *NUMBERS.iter().find(|known| **known == name)?;
        let view = cf.0.view();
        Some(match name {
            "estimate-num-keys" => estimate_keys(&view),
            "estimate-table-readers-mem" => readers_memory(&view),
            "current-super-version-number" => view.number,
            "total-sst-files-size" => cf.0.held_tables().values().map(|file| file.file_size).sum(),
            "live-sst-files-size" => view.version.total_bytes(),
            "estimate-live-data-size" => view.version.estimated_live_bytes(),
            "base-level" => LevelShape::new(&view.version, &cf.0.settings().compaction).base_level as u64,
            "cur-size-active-mem-table" => view.mem.table().memory_usage() as u64,
            "cur-size-all-mem-tables" => {
                view.memtables().map(|memtable| memtable.table().memory_usage() as u64).sum()
            }
            "size-all-mem-tables" => cf.0.held_memtable_bytes() as u64,
            "num-entries-active-mem-table" => view.mem.table().num_entries(),
            "num-entries-imm-mem-tables" => {
                view.imm.iter().map(|memtable| memtable.table().num_entries()).sum()
            }
            "num-deletes-active-mem-table" => view.mem.table().num_deletes(),
            "num-deletes-imm-mem-tables" => {
                view.imm.iter().map(|memtable| memtable.table().num_deletes()).sum()
            }
            "num-immutable-mem-table" => view.imm.len() as u64,
            // Memtables go when they are flushed, all compactions run on one kind of threads of this process, and there are no blob files.
            "num-immutable-mem-table-flushed"
            | "num-running-bottom-compactions"
            | "num-running-remote-compactions"
            | "num-blob-files"
            | "total-blob-file-size"
            | "live-blob-file-size"
            | "live-blob-file-garbage-size" => 0,
            "num-live-versions" => cf.0.live_versions() as u64,
            "estimate-oldest-key-time" => self.oldest_key_time(cf, &view)?,
            "block-cache-capacity" => {
                cf.0.settings().opener.table.block_cache.as_ref().map_or(0, |cache| cache.capacity() as u64)
            }
            "block-cache-usage" => {
                cf.0.settings().opener.table.block_cache.as_ref().map_or(0, |cache| cache.usage() as u64)
            }
            "block-cache-pinned-usage" => {
                cf.0.settings()
                    .opener
                    .table
                    .block_cache
                    .as_ref()
                    .map_or(0, |cache| cache.pinned_usage() as u64)
            }
            "background-errors" => self.engine().counters.background_errors.load(Ordering::Relaxed),
            "actual-delayed-write-rate" => self.engine().controller.state().1,
            "is-write-stopped" => u64::from(self.engine().controller.state().0),
            "compaction-abort-count" => self.engine().aborts.count() as u64,
            "num-snapshots" => self.engine().snapshots.summary().0,
            "oldest-snapshot-time" => self.engine().snapshots.summary().1.unwrap_or(0),
            "oldest-snapshot-sequence" => {
                self.engine().snapshots.summary().2.map_or(0, |sequence| sequence.0)
            }
            _ => self.state_property(cf, name)?,
        })
    }

    /// When the oldest key was written, as far as tables say; only FIFO compaction that merges nothing keeps that apart.
    fn oldest_key_time(&self, cf: &ColumnFamily, view: &SuperVersion) -> Option<u64> {
        let settings = cf.0.settings();
        let fifo = settings.options.compaction_style == CompactionStyle::Fifo;
        if !fifo || settings.options.compaction_options_fifo.allow_compaction {
            return None;
        }
        let times = view.version.all_files().map(|(_, file)| file.oldest_ancester_time);
        times.filter(|time| *time > 0).min()
    }

    fn state_property(&self, cf: &ColumnFamily, name: &str) -> Option<u64> {
        let state = self.engine().state.lock();
        let family = state.families.get(&cf.id())?;
        Some(match name {
            "mem-table-flush-pending" => u64::from(crate::background::flush::is_pending(family)),
            "num-running-flushes" => state.running_flushes as u64,
            "num-running-compactions" => state.running_compactions as u64,
            "num-unscheduled-compactions" => state.unscheduled_compactions() as u64,
            "num-running-compaction-sorted-runs" => family.running.sorted_runs() as u64,
            "obsolete-sst-files-size" => state.versions.obsolete_bytes(),
            "min-obsolete-sst-number-to-keep" => state.oldest_output.map_or(u64::MAX, |number| number.0),
            "compaction-pending" => u64::from(family.compaction_due || family.left_to_bottom),
            "is-file-deletions-enabled" => u64::from(state.deletions_disabled == 0),
            "estimate-pending-compaction-bytes" => family.pending_bytes,
            "min-log-number-to-keep" => state.oldest_needed_wal(|_| 0).unwrap_or_default().0,
            _ => return None,
        })
    }
}

/// Splits `num-files-at-level3` in name and number.
fn of_level(name: &str) -> Option<(&'static str, usize)> {
    let of_levels =
        TEXTS.iter().filter(|known| known.ends_with("at-level") || known.ends_with("at-temperature"));
    of_levels.filter_map(|known| Some((*known, name.strip_prefix(known)?.parse().ok()?))).next()
}

/// A map as text: a pair in each line.
fn lines(map: &BTreeMap<String, String>) -> String {
    map.iter().map(|(key, value)| format!("{key}: {value}\n")).collect()
}

fn level_stats(view: &SuperVersion) -> String {
    let mut text = String::from("Level Files Size(MB)\n--------------------\n");
    for (level, files) in view.version.levels.iter().enumerate() {
        let megabytes = (files.bytes() as f64 / (1 << 20) as f64).round();
        writeln!(text, "{level:>3} {:>8} {megabytes:>8.0}", files.len()).expect("text grows");
    }
    text
}

fn tables(view: &SuperVersion) -> String {
    let mut text = String::new();
    for (level, files) in view.version.levels.iter().enumerate() {
        writeln!(text, "--- level {level} --- version# {} ---", view.number).expect("text grows");
        for file in files.files() {
            writeln!(text, " {}:{}[{:?} .. {:?}]", file.number, file.file_size, file.smallest, file.largest)
                .expect("text grows");
        }
    }
    text
}

fn estimate_keys(view: &SuperVersion) -> u64 {
    let mut entries = 0u64;
    let mut deletions = 0u64;
    for memtable in view.memtables() {
        entries += memtable.table().num_entries();
        deletions += memtable.table().num_deletes();
    }
    for slot in view.levels.iter().flat_map(|level| &level.tables) {
        // An estimate: a table that cannot be opened now says so when it is read.
        if let Ok(reader) = slot.reader() {
            entries += reader.properties().num_entries;
            deletions += reader.properties().num_deletions;
        }
    }
    entries.saturating_sub(deletions.saturating_mul(2))
}

fn readers_memory(view: &SuperVersion) -> u64 {
    let slots = view.levels.iter().flat_map(|level| &level.tables);
    slots.map(|slot| slot.memory_usage() as u64).sum()
}

/// How long reads of table files took, by level: RocksDB's text.
fn file_histogram(data: &ColumnFamilyData) -> String {
    let mut text = format!("\n** File Read Latency Histogram By Level [{}] **\n", data.name);
    let settings = data.settings();
    for (level, counts) in settings.read_latencies().map(|all| all.filled()).unwrap_or_default() {
        text += &format!("** Level {level} read latency histogram (micros):\n{counts}\n");
    }
    text
}
