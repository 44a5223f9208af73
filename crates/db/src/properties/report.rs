//! What the longer properties say, as text and in parts. Columns and keys are RocksDB's.

use crate::column_family::ColumnFamilyData;
use crate::engine::Engine;
use crate::listener::WriteStallCause;
use crate::read::view::LevelView;
use crate::totals::{LevelTotals, StallCounts, Totals};
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::{AtomicU64, Ordering};
use ironstone_compaction::LevelShape;
use ironstone_sst::{BlockCache, CachedBlock, TableProperties};
use ironstone_version::FileMetaData;
use std::collections::BTreeMap;
use std::fmt::Write;

type Parts = BTreeMap<String, String>;

const MB: f64 = (1 << 20) as f64;
const GB: f64 = (1 << 30) as f64;

/// What was there when the texts were asked for the last time: they show what happened since.
#[derive(Clone, Default)]
pub(crate) struct Shown {
    totals: Totals,
    at_micros: u64,
}

/// A line of the table of levels.
struct Row {
    files: usize,
    busy: usize,
    bytes: u64,
    score: f64,
    /// Of what write amplification is a multiple.
    input: u64,
    totals: LevelTotals,
}

const HEADERS: [(&str, usize); 21] = [
    ("Files", 10),
    ("Size", 10),
    ("Score", 5),
    ("Read(GB)", 8),
    ("Rn(GB)", 7),
    ("Rnp1(GB)", 8),
    ("Write(GB)", 9),
    ("WPreComp(GB)", 12),
    ("Wnew(GB)", 8),
    ("Moved(GB)", 9),
    ("W-Amp", 5),
    ("Rd(MB/s)", 8),
    ("Wr(MB/s)", 8),
    ("Comp(sec)", 9),
    ("CompMergeCPU(sec)", 17),
    ("Comp(cnt)", 9),
    ("Avg(sec)", 8),
    ("KeyIn", 7),
    ("KeyDrop", 7),
    ("Rblob(GB)", 9),
    ("Wblob(GB)", 9),
];

/// The keys of the parts, in the order of [`Row::numbers`].
const KEYS: [&str; 22] = [
    "NumFiles",
    "CompactedFiles",
    "SizeBytes",
    "Score",
    "ReadGB",
    "RnGB",
    "Rnp1GB",
    "WriteGB",
    "WPreCompGB",
    "WnewGB",
    "MovedGB",
    "WriteAmp",
    "ReadMBps",
    "WriteMBps",
    "CompSec",
    "CompMergeCPU",
    "CompCount",
    "AvgSec",
    "KeyIn",
    "KeyDrop",
    "RblobGB",
    "WblobGB",
];

impl Row {
    /// Processor time is not measured, and blob files are not there: these are 0.
    fn numbers(&self) -> [f64; 22] {
        let totals = &self.totals;
        let gb = |bytes: u64| bytes as f64 / GB;
        let read = totals.read_above + totals.read_here;
        let seconds = totals.micros as f64 / 1e6;
        let rate = |bytes: u64| if seconds > 0.0 { bytes as f64 / MB / seconds } else { 0.0 };
        [
            self.files as f64,
            self.busy as f64,
            self.bytes as f64,
            self.score,
            gb(read),
            gb(totals.read_above),
            gb(totals.read_here),
            gb(totals.written),
            gb(totals.written_raw),
            (totals.written as f64 - totals.read_here as f64) / GB,
            gb(totals.moved),
            if self.input > 0 { totals.written as f64 / self.input as f64 } else { 0.0 },
            rate(read),
            rate(totals.written),
            seconds,
            0.0,
            totals.jobs as f64,
            if totals.jobs > 0 { seconds / totals.jobs as f64 } else { 0.0 },
            totals.keys_in as f64,
            totals.keys_dropped as f64,
            0.0,
            0.0,
        ]
    }

    fn print(&self, out: &mut String, name: &str) {
        let [
            files,
            busy,
            bytes,
            score,
            read,
            rn,
            rnp1,
            written,
            raw,
            new,
            moved,
            amplification,
            read_rate,
            rate,
            ..,
        ] = self.numbers();
        let totals = &self.totals;
        let seconds = totals.micros as f64 / 1e6;
        let average = if totals.jobs > 0 { seconds / totals.jobs as f64 } else { 0.0 };
        let (keys_in, dropped) = (short(totals.keys_in), short(totals.keys_dropped));
        writeln!(
            out,
            "{name:>4} {files:>6}/{busy:<3} {:>10} {score:>5.1} {read:>8.1} {rn:>7.1} {rnp1:>8.1} {written:>9.1} \
             {raw:>12.1} {new:>8.1} {moved:>9.1} {amplification:>5.1} {read_rate:>8.1} {rate:>8.1} {seconds:>9.2} \
             {:>17.2} {:>9} {average:>8.3} {keys_in:>7} {dropped:>7} {:>9.1} {:>9.1}",
            size(bytes),
            0.0,
            totals.jobs,
            0.0,
            0.0
        )
        .expect("text grows");
    }
}

fn size(bytes: f64) -> String {
    let units = ["B", "KB", "MB", "GB", "TB", "PB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    format!("{value:.2} {}", units[unit])
}

fn short(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..10_000_000 => format!("{}K", count / 1000),
        10_000_000..10_000_000_000 => format!("{}M", count / 1_000_000),
        _ => format!("{}G", count / 1_000_000_000),
    }
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Engine {
    fn uptime_micros(&self) -> u64 {
        self.env.clock.monotonic_nanos().saturating_sub(load(&self.counted_since.nanos)) / 1000
    }

    fn written_keys(&self) -> u64 {
        self.pipeline.visible().0.saturating_sub(load(&self.counted_since.sequence))
    }
    fn log_bytes(&self) -> u64 {
        self.pipeline.log_end().saturating_sub(load(&self.counted_since.log_bytes))
    }

    /// The lines of levels that hold or held something, and that of all together.
    fn rows(&self, cf: &ColumnFamilyData, totals: &Totals) -> (Vec<(usize, Row)>, Row) {
        let (view, settings) = (cf.view(), cf.settings());
        let shape = LevelShape::new(&view.version, &settings.compaction);
        let running = self.state.lock().families.get(&cf.id).map(|family| family.running.clone());
        let busy = |level: usize| {
            let is_busy = |file: &&Arc<FileMetaData>| {
                running.as_ref().is_some_and(|running| running.is_busy(file.number))
            };
            view.version.files(level).iter().filter(is_busy).count()
        };
        let mut rows = Vec::new();
        for (level, files) in view.version.levels.iter().enumerate() {
            let done = totals.level(level);
            if files.is_empty() && done.jobs == 0 && done.moved == 0 {
                continue;
            }
            let target = shape.max_bytes.get(level).copied().unwrap_or(0);
            let score = if level == 0 {
                files.len() as f64 / settings.compaction.level0_file_num_compaction_trigger.max(1) as f64
            } else if target > 0 && target < u64::MAX {
                files.bytes() as f64 / target as f64
            } else {
                0.0
            };
            let input = if level == 0 { totals.flushed + totals.added[0] } else { done.read_above };
            let row = Row {
                files: files.len(),
                busy: busy(level),
                bytes: files.bytes(),
                score,
                input,
                totals: done,
            };
            rows.push((level, row));
        }
        let all = Row {
            files: view.version.num_files(),
            busy: rows.iter().map(|(_, row)| row.busy).sum(),
            bytes: view.version.total_bytes(),
            score: 0.0,
            input: totals.flushed + totals.added[0],
            totals: totals.sum(),
        };
        (rows, all)
    }

    pub(super) fn column_family_map(&self, cf: &ColumnFamilyData) -> Parts {
        let totals = cf.totals.lock().clone();
        let (rows, all) = self.rows(cf, &totals);
        let mut map = Parts::new();
        let mut put = |name: String, row: &Row| {
            for (key, value) in KEYS.iter().zip(row.numbers()) {
                map.insert(format!("compaction.{name}.{key}"), format!("{value:.6}"));
            }
        };
        rows.iter().for_each(|(level, row)| put(format!("L{level}"), row));
        put("Sum".to_owned(), &all);
        map.extend(self.stall_map(cf).into_iter().map(|(key, value)| (format!("io_stalls.{key}"), value)));
        map
    }

    pub(super) fn column_family_stats(&self, cf: &ColumnFamilyData) -> String {
        let totals = cf.totals.lock().clone();
        let now = self.uptime_micros();
        let before =
            std::mem::replace(&mut *cf.shown.lock(), Shown { totals: totals.clone(), at_micros: now });
        let (rows, all) = self.rows(cf, &totals);
        let mut out = format!("\n** Compaction Stats [{}] **\nLevel ", cf.name);
        let mut width = 6;
        for (name, columns) in HEADERS {
            write!(out, "{name:>columns$} ").expect("text grows");
            width += columns + 1;
        }
        writeln!(out, "\n{}", "-".repeat(width)).expect("text grows");
        rows.iter().for_each(|(level, row)| row.print(&mut out, &format!("L{level}")));
        all.print(&mut out, "Sum");
        let since = totals.sum() - before.totals.sum();
        // Both may have been reset between.
        let flushed = totals.flushed.saturating_sub(before.totals.flushed);
        let added = totals.added[0].saturating_sub(before.totals.added[0]);
        let interval = Row { files: 0, busy: 0, bytes: 0, score: 0.0, input: flushed + added, totals: since };
        interval.print(&mut out, "Int");
        let gb = |bytes: u64| bytes as f64 / GB;
        let (seconds, interval_seconds) = (now as f64 / 1e6, (now - before.at_micros.min(now)) as f64 / 1e6);
        writeln!(out, "\nUptime(secs): {seconds:.1} total, {interval_seconds:.1} interval")
            .expect("text grows");
        let line = |out: &mut String, what: &str, total: u64, before: u64| {
            let since = total.saturating_sub(before);
            writeln!(out, "{what}: cumulative {total}, interval {since}").expect("text grows");
        };
        for (what, total, since) in [("Flush", totals.flushed, flushed), ("AddFile", totals.added[0], added)]
        {
            let (total, since) = (gb(total), gb(since));
            writeln!(out, "{what}(GB): cumulative {total:.3}, interval {since:.3}").expect("text grows");
        }
        let names = ["AddFile(Total Files)", "AddFile(L0 Files)", "AddFile(Keys)"];
        for (at, name) in names.iter().enumerate() {
            line(&mut out, name, totals.added[at + 1], before.totals.added[at + 1]);
        }
        for (what, done, seconds) in
            [("Cumulative", all.totals, seconds), ("Interval", since, interval_seconds)]
        {
            let read = done.read_above + done.read_here;
            let rate = |bytes: u64| if seconds > 0.0 { bytes as f64 / MB / seconds } else { 0.0 };
            writeln!(
                out,
                "{what} compaction: {:.2} GB write, {:.2} MB/s write, {:.2} GB read, {:.2} MB/s read, {:.1} seconds",
                gb(done.written),
                rate(done.written),
                gb(read),
                rate(read),
                done.micros as f64 / 1e6
            )
            .expect("text grows");
        }
        let stalls = self.stall_map(cf);
        let stalls = stalls.iter().map(|(key, value)| format!("{key}: {value}")).collect::<Vec<_>>();
        writeln!(out, "Write Stall (count): {}", stalls.join(", ")).expect("text grows");
        out
    }

    /// How often writers of the column family began to be slowed down and to be stopped, by cause.
    pub(super) fn stall_map(&self, cf: &ColumnFamilyData) -> Parts {
        let totals = cf.totals.lock();
        let mut map = Parts::new();
        let mut sum = StallCounts::default();
        for cause in WriteStallCause::OF_COLUMN_FAMILY {
            let counts = totals.stalls(cause);
            sum.delays += counts.delays;
            sum.stops += counts.stops;
            map.insert(format!("{}-delays", cause.name()), counts.delays.to_string());
            map.insert(format!("{}-stops", cause.name()), counts.stops.to_string());
            if cause == WriteStallCause::L0FileCountLimit {
                let name = cause.name();
                let during =
                    [("delays", counts.delays_during_compaction), ("stops", counts.stops_during_compaction)];
                for (what, count) in during {
                    let key = format!("cf-{name}-{what}-with-ongoing-compaction");
                    map.insert(key, count.to_string());
                }
            }
        }
        map.insert("total-delays".to_owned(), sum.delays.to_string());
        map.insert("total-stops".to_owned(), sum.stops.to_string());
        map
    }
    pub(super) fn database_stall_map(&self) -> Parts {
        let manager = self.write_buffer_manager.as_ref();
        let stops = manager.map_or(0, |manager| manager.stops());
        Parts::from([("write-buffer-manager-limit-stops".to_owned(), stops.to_string())])
    }

    pub(super) fn database_map(&self) -> Parts {
        let (delayed, ..) = self.controller.totals();
        let mut map = self.database_stall_map();
        map.extend([
            ("db.uptime".to_owned(), (self.uptime_micros() / 1_000_000).to_string()),
            ("db.wal_bytes_written".to_owned(), self.log_bytes().to_string()),
            ("db.user_keys_written".to_owned(), self.written_keys().to_string()),
            ("db.user_write_stall_micros".to_owned(), delayed.to_string()),
        ]);
        map
    }

    pub(super) fn database_stats(&self) -> String {
        let c = &self.counters;
        let (delayed, stops, delays) = self.controller.totals();
        let (stopped, rate) = self.controller.state();
        let keys = self.written_keys();
        let now = if stopped { "stopped".to_owned() } else { format!("{rate} bytes/s (0: no limit)") };
        format!(
            "\n** DB Stats **\nUptime(secs): {:.1} total\nCumulative writes: {keys} keys, {:.2} GB of WAL\n\
             Flushes: {} jobs, {} bytes, {} us\n\
             Compactions: {} jobs, {} bytes read, {} bytes written, {} us\n\
             Stalls: {stops} stops, {delays} delayed writes, {delayed} us waited; now {now}, cause {:?}\n\
             Open tables: {}\n",
            self.uptime_micros() as f64 / 1e6,
            self.log_bytes() as f64 / GB,
            load(&c.flushes),
            load(&c.flush_bytes),
            load(&c.flush_micros),
            load(&c.compactions),
            load(&c.compaction_read_bytes),
            load(&c.compaction_write_bytes),
            load(&c.compaction_micros),
            self.controller.cause(),
            self.place.tables.open_count(),
        )
    }

    /// Everything that the LOG is told from time to time.
    pub(crate) fn dump_stats(&self) {
        let families: Vec<_> = {
            let state = self.state.lock();
            state.families.values().map(|family| Arc::clone(&family.data)).collect()
        };
        let families: String = families.iter().map(|cf| self.column_family_stats(cf)).collect();
        let statistics = self.statistics.as_ref().map_or_else(String::new, |s| format!("\n{s}"));
        let text = format!("{}{families}{statistics}", self.database_stats());
        crate::info_log::info!(self.log, "------- DUMPING STATS -------{text}");
    }
}

/// Entries per kind of block. Everything in the cache is looked at.
pub(super) fn cache_entries(cache: &BlockCache) -> Parts {
    const ROLES: [&str; 3] = ["data-block", "index-block", "filter-block"];
    let mut counts = [(0u64, 0u64); 3];
    cache.for_each(|_, block, charge| {
        let role = match block {
            CachedBlock::Data(_) => 0,
            CachedBlock::Index(_) => 1,
            CachedBlock::Filter(_) => 2,
        };
        counts[role].0 += 1;
        counts[role].1 += charge as u64;
    });
    let capacity = cache.capacity();
    let mut map = Parts::from([
        ("id".to_owned(), format!("{:p}", std::ptr::from_ref(cache))),
        ("capacity".to_owned(), capacity.to_string()),
        ("secs_for_last_collection".to_owned(), "0".to_owned()),
        ("secs_since_last_collection".to_owned(), "0".to_owned()),
    ]);
    for (role, (count, bytes)) in ROLES.iter().zip(counts) {
        map.insert(format!("count.{role}"), count.to_string());
        map.insert(format!("bytes.{role}"), bytes.to_string());
        let percent = 100.0 * bytes as f64 / capacity.max(1) as f64;
        map.insert(format!("percent.{role}"), format!("{percent:.6}"));
    }
    map
}

/// Keys and values before compression by the bytes of the files; -1 for a level without open tables.
pub(super) fn compression_ratio(level: &LevelView) -> f64 {
    let (mut raw, mut file) = (0u64, 0u64);
    for slot in &level.tables {
        if let Some(reader) = slot.open_reader() {
            let properties = reader.properties();
            raw += properties.raw_key_size + properties.raw_value_size;
            file += slot.file_size();
        }
    }
    if file == 0 { -1.0 } else { raw as f64 / file as f64 }
}

/// Sums over the tables of `levels`, as far as these can be opened.
pub(super) fn aggregated(levels: &[Arc<LevelView>]) -> TableProperties {
    let mut sum = TableProperties::default();
    for slot in levels.iter().flat_map(|level| &level.tables) {
        let Ok(reader) = slot.reader() else { continue };
        sum.add(reader.properties());
    }
    sum
}

/// The sums in parts.
pub(super) fn sums_of(sum: &TableProperties) -> Parts {
    sum.sums().into_iter().map(|(name, value)| (name.to_owned(), value.to_string())).collect()
}

/// The same as RocksDB prints it, without what is not added up.
pub(super) fn text_of(sum: &TableProperties) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        let _ = write!(text, "{name}={value}; "); // Writing to a string does not fail.
    };
    let average = |bytes: u64| format!("{:.6}", bytes as f64 / sum.num_entries.max(1) as f64);
    line("# data blocks", &sum.num_data_blocks);
    line("# data blocks compression rejected", &sum.num_data_blocks_compression_rejected);
    line("# data blocks compression bypassed", &sum.num_data_blocks_compression_bypassed);
    line("# uniform blocks", &sum.num_uniform_blocks);
    line("# entries", &sum.num_entries);
    line("# deletions", &sum.num_deletions);
    line("# merge operands", &sum.num_merge_operands);
    line("# range deletions", &sum.num_range_deletions);
    line("raw key size", &sum.raw_key_size);
    line("raw average key size", &average(sum.raw_key_size));
    line("raw value size", &sum.raw_value_size);
    line("raw average value size", &average(sum.raw_value_size));
    line("data block size", &sum.data_size);
    line("data uncompressed size", &sum.uncompressed_data_size);
    let (user_keys, deltas) = (sum.index_key_is_user_key, sum.index_value_is_delta_encoded);
    line(&format!("index block size (user-key? {user_keys}, delta-value? {deltas})"), &sum.index_size);
    if sum.index_partitions != 0 {
        line("# index partitions", &sum.index_partitions);
        line("top-level index size", &sum.top_level_index_size);
    }
    line("filter block size", &sum.filter_size);
    line("# entries for filter", &sum.num_filter_entries);
    line(
        "(estimated) table size",
        &sum.data_size.saturating_add(sum.index_size).saturating_add(sum.filter_size),
    );
    line("slow compression estimated data size", &sum.slow_compression_estimated_data_size);
    line("fast compression estimated data size", &sum.fast_compression_estimated_data_size);
    text
}
