//! What a database says about itself, under RocksDB's property names.

use crate::Db;
use crate::column_family::ColumnFamily;
use crate::read::view::SuperVersion;
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::Ordering;
use ironstone_compaction::LevelShape;
use std::fmt::Write;

const PREFIX: &str = "rocksdb.";

/// The properties that are numbers, without the prefix.
const NUMBERS: &[&str] = &[
    "num-immutable-mem-table",
    "num-immutable-mem-table-flushed",
    "mem-table-flush-pending",
    "num-running-flushes",
    "compaction-pending",
    "num-running-compactions",
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
    "num-blob-files",
];
/// The properties that are text, without the prefix. Those that end with `level` take a number behind.
const TEXTS: &[&str] = &[
    "stats",
    "cfstats",
    "dbstats",
    "levelstats",
    "sstables",
    "num-files-at-level",
    "options-statistics",
    "aggregated-table-properties",
];

impl Db {
    /// The names of all properties.
    pub fn property_names() -> Vec<String> {
        NUMBERS.iter().chain(TEXTS).map(|name| format!("{PREFIX}{name}")).collect()
    }
    /// A property of `default` as text; `None` for names that are unknown.
    pub fn property(&self, name: &str) -> Option<String> {
        self.property_cf(self.default_column_family(), name)
    }
    /// A property of `cf` as text; `None` for names that are unknown.
    pub fn property_cf(&self, cf: &ColumnFamily, name: &str) -> Option<String> {
        if let Some(number) = self.int_property_cf(cf, name) {
            return Some(number.to_string());
        }
        let name = name.strip_prefix(PREFIX)?;
        if let Some(level) = name.strip_prefix("num-files-at-level") {
            let level: usize = level.parse().ok()?;
            let view = cf.0.view();
            return (level < view.version.num_levels()).then(|| view.version.files(level).len().to_string());
        }
        match name {
            "stats" => Some(format!("{}{}", self.column_family_stats(cf), self.database_stats())),
            "cfstats" => Some(self.column_family_stats(cf)),
            "dbstats" => Some(self.database_stats()),
            "levelstats" => Some(level_stats(&cf.0.view())),
            "sstables" => Some(tables(&cf.0.view())),
            "options-statistics" => {
                Some(self.engine().statistics.as_ref().map_or_else(String::new, |s| s.to_string()))
            }
            "aggregated-table-properties" => Some(aggregated(&cf.0.view())),
            _ => None,
        }
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
            "total-sst-files-size" | "live-sst-files-size" | "estimate-live-data-size" => {
                view.version.total_bytes()
            }
            "base-level" => LevelShape::new(&view.version, &cf.0.settings().compaction).base_level as u64,
            "cur-size-active-mem-table" => view.mem.table().memory_usage() as u64,
            "cur-size-all-mem-tables" | "size-all-mem-tables" => {
                view.memtables().map(|memtable| memtable.table().memory_usage() as u64).sum()
            }
            "num-entries-active-mem-table" => view.mem.table().num_entries(),
            "num-entries-imm-mem-tables" => {
                view.imm.iter().map(|memtable| memtable.table().num_entries()).sum()
            }
            "num-deletes-active-mem-table" => view.mem.table().num_deletes(),
            "num-deletes-imm-mem-tables" => {
                view.imm.iter().map(|memtable| memtable.table().num_deletes()).sum()
            }
            "num-immutable-mem-table" => view.imm.len() as u64,
            "num-immutable-mem-table-flushed" | "num-blob-files" => 0,
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
            "num-snapshots" => self.engine().snapshots.summary().0,
            "oldest-snapshot-time" => self.engine().snapshots.summary().1.unwrap_or(0),
            "oldest-snapshot-sequence" => {
                self.engine().snapshots.summary().2.map_or(0, |sequence| sequence.0)
            }
            _ => self.state_property(cf, name)?,
        })
    }

    fn state_property(&self, cf: &ColumnFamily, name: &str) -> Option<u64> {
        let state = self.engine().state.lock();
        let family = state.families.get(&cf.id())?;
        Some(match name {
            "mem-table-flush-pending" => u64::from(!family.imm.is_empty()),
            "num-running-flushes" => state.running_flushes as u64,
            "num-running-compactions" => state.running_compactions as u64,
            "compaction-pending" => u64::from(family.compaction_due),
            "is-file-deletions-enabled" => u64::from(state.deletions_disabled == 0),
            "estimate-pending-compaction-bytes" => family.pending_bytes,
            "min-log-number-to-keep" => state.oldest_needed_wal(|_| 0).unwrap_or_default().0,
            _ => return None,
        })
    }

    fn column_family_stats(&self, cf: &ColumnFamily) -> String {
        let view = cf.0.view();
        let mut text = format!("\n** Compaction Stats [{}] **\n", cf.name());
        text += "Level    Files   Size(MB)   Score\n";
        text += "---------------------------------\n";
        let shape = LevelShape::new(&view.version, &cf.0.settings().compaction);
        for (level, files) in view.version.levels.iter().enumerate() {
            if files.is_empty() {
                continue;
            }
            let target = shape.max_bytes.get(level).copied().unwrap_or(0);
            let score = if level == 0 {
                files.len() as f64
                    / cf.0.settings().compaction.level0_file_num_compaction_trigger.max(1) as f64
            } else if target > 0 && target < u64::MAX {
                files.bytes() as f64 / target as f64
            } else {
                0.0
            };
            let megabytes = files.bytes() as f64 / (1 << 20) as f64;
            writeln!(text, "  L{level:<4} {:>7} {megabytes:>10.2} {score:>7.2}", files.len())
                .expect("text grows");
        }
        let total = view.version.total_bytes() as f64 / (1 << 20) as f64;
        writeln!(text, " Sum   {:>7} {total:>10.2}", view.version.num_files()).expect("text grows");
        text
    }

    fn database_stats(&self) -> String {
        let engine = self.engine();
        let load = |counter: &ironstone_base::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let c = &engine.counters;
        let (delayed, stops, delays) = engine.controller.totals();
        let (stopped, rate) = engine.controller.state();
        let mut text = String::from("\n** DB Stats **\n");
        writeln!(
            text,
            "Flushes: {} jobs, {} bytes, {} us",
            load(&c.flushes),
            load(&c.flush_bytes),
            load(&c.flush_micros)
        )
        .expect("text grows");
        writeln!(
            text,
            "Compactions: {} jobs, {} bytes read, {} bytes written, {} us",
            load(&c.compactions),
            load(&c.compaction_read_bytes),
            load(&c.compaction_write_bytes),
            load(&c.compaction_micros)
        )
        .expect("text grows");
        writeln!(
            text,
            "Stalls: {stops} stops, {delays} delayed writes, {delayed} us waited; now {}, cause {:?}",
            if stopped { "stopped".to_owned() } else { format!("{rate} bytes/s (0: no limit)") },
            engine.controller.cause()
        )
        .expect("text grows");
        writeln!(text, "Open tables: {}", engine.place.tables.open_count()).expect("text grows");
        text
    }
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
    slots.filter_map(|slot| slot.open_reader()).map(|reader: Arc<_>| reader.memory_usage() as u64).sum()
}

fn aggregated(view: &SuperVersion) -> String {
    let (mut data, mut index, mut filter, mut raw_keys, mut raw_values, mut entries, mut blocks) =
        (0u64, 0u64, 0u64, 0u64, 0u64, 0u64, 0u64);
    for slot in view.levels.iter().flat_map(|level| &level.tables) {
        if let Ok(reader) = slot.reader() {
            let properties = reader.properties();
            data += properties.data_size;
            index += properties.index_size;
            filter += properties.filter_size;
            raw_keys += properties.raw_key_size;
            raw_values += properties.raw_value_size;
            entries += properties.num_entries;
            blocks += properties.num_data_blocks;
        }
    }
    format!(
        "# data blocks={blocks}; # entries={entries}; raw key size={raw_keys}; raw value size={raw_values}; \
         data block size={data}; index block size={index}; filter block size={filter};"
    )
}
