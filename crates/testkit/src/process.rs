//! Real processes on real files: a child writes, the parent kills it, takes the power away or lets the space end, and then
//! looks at what is there.
//!
//! Each of the child's threads writes batches with growing numbers. A batch puts its number under the key `w<t>` and
//! under a key that later batches use again, in every column family. The child reports a batch over a pipe when its
//! write has returned; so what was reported must be there, nothing may be missing before what is there, and no
//! batch may be there in part.

pub mod child;
pub mod full;
pub mod kill;
pub mod mounted;
pub mod power;

use ironstone::options::DbOptions;
use ironstone::{
    ColumnFamily, ColumnFamilyDescriptor, ColumnFamilyOptions, CompressionKind, Db, ReadOptions, Result,
    WriteBatch,
};
use std::path::Path;

/// How many threads write.
pub const WRITERS: usize = 3;
/// How many keys a thread uses by turns.
const SLOTS: u64 = 40;
const FAMILIES: [&str; 2] = ["default", "second"];

/// How long the logs of a database get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Logs {
    /// Some KiB: everything is small, so that flushes and compactions are always under way.
    Short,
    /// Many MiB between two syncs: the end of such a log is written through memory.
    Long,
}

impl Logs {
    /// Those of the `cycle`-th database of a run: every fourth has long ones, the second is the first of them.
    fn of_cycle(cycle: u64) -> Self {
        if cycle % 4 == 1 { Self::Long } else { Self::Short }
    }
    fn write_buffer_size(self) -> usize {
        match self {
            Self::Short => 16 << 10,
            Self::Long => 64 << 20,
        }
    }
}

/// When what the child writes is synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syncs {
    /// At no write.
    None,
    /// At each.
    All,
    /// At each [`SOME`]th of a writer, and only these are reported.
    Some,
}
/// See [`Syncs::Some`].
const SOME: u64 = 300;

/// Opens the database in `dir`.
pub fn open(dir: &Path, logs: Logs) -> Result<Db> {
    let options = DbOptions {
        create_if_missing: true,
        create_missing_column_families: true,
        max_background_jobs: 3,
        max_manifest_file_size: 4000,
        max_manifest_space_amp_pct: 50,
        recycle_log_file_num: 1,
        ..DbOptions::default()
    };
    let family = ColumnFamilyOptions {
        write_buffer_size: logs.write_buffer_size(),
        target_file_size_base: 16 << 10,
        max_bytes_for_level_base: 64 << 10,
        level0_file_num_compaction_trigger: 2,
        compression: CompressionKind::Lz4,
        ..ColumnFamilyOptions::default()
    };
    let descriptors = FAMILIES.map(|name| ColumnFamilyDescriptor::new(name, family.clone()));
    Db::open_column_families(&options, dir, descriptors.to_vec())
}

fn handles(db: &Db) -> Vec<ColumnFamily> {
    FAMILIES.iter().map(|name| db.column_family(name).expect("it was opened")).collect()
}
fn number_key(writer: usize) -> String {
    format!("w{writer}")
}
fn slot_key(writer: usize, number: u64) -> String {
    format!("s{writer}.{:03}", number % SLOTS)
}
fn slot_value(logs: Logs, number: u64) -> String {
    let longer = if logs == Logs::Long { 16 } else { 1 };
    format!("{number}.{}", "v".repeat((number * 37 % 600 * longer) as usize))
}

/// Batch `number` of a writer.
fn batch(cfs: &[ColumnFamily], logs: Logs, writer: usize, number: u64) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for cf in cfs {
        batch.put_cf(cf, number_key(writer), number.to_string());
        batch.put_cf(cf, slot_key(writer, number), slot_value(logs, number));
    }
    batch
}

/// What the database in `dir` must hold, and what it holds: the last batch of each writer. `reported` are the last
/// ones whose writes returned, `issued` the last that can have been begun.
pub fn verify(
    dir: &Path,
    logs: Logs,
    reported: &[u64; WRITERS],
) -> std::result::Result<[u64; WRITERS], String> {
    let db = open(dir, logs).map_err(|error| format!("open: {error}"))?;
    let cfs = handles(&db);
    let options = ReadOptions::default();
    let said = |error| format!("read: {error}");
    let mut found = [0; WRITERS];
    for (writer, found) in found.iter_mut().enumerate() {
        let mut numbers = Vec::new();
        for cf in &cfs {
            let value = db.get_cf(&options, cf, number_key(writer)).map_err(said)?;
            let text = value.map(|value| String::from_utf8_lossy(&value).into_owned());
            let number = text.map_or(Ok(0), |text| text.parse::<u64>());
            numbers.push(number.map_err(|_| format!("the number of writer {writer} is none"))?);
        }
        if numbers.iter().any(|number| *number != numbers[0]) {
            return Err(format!("a batch of writer {writer} is there in part: {numbers:?}"));
        }
        *found = numbers[0];
        // The pipe may hold the report of one batch less than returned, never more.
        if *found < reported[writer] {
            return Err(format!(
                "writer {writer}: batch {} was reported, {found} is the last there",
                reported[writer]
            ));
        }
    }
    for cf in &cfs {
        let mut expected: Vec<(String, String)> = Vec::new();
        for (writer, &last) in found.iter().enumerate().filter(|(_, last)| **last > 0) {
            expected.push((number_key(writer), last.to_string()));
            let first = last.saturating_sub(SLOTS - 1).max(1);
            expected
                .extend((first..=last).map(|number| (slot_key(writer, number), slot_value(logs, number))));
        }
        expected.sort();
        let mut iter = db.iter_cf(&options, cf).map_err(said)?;
        let mut at = 0;
        let mut more = iter.seek_to_first().map_err(said)?;
        while more {
            let wanted = expected.get(at).map(|(key, value)| (key.as_bytes(), value.as_bytes()));
            let found = iter.key().zip(iter.value());
            if wanted != found {
                let key = String::from_utf8_lossy(iter.key().unwrap_or_default()).into_owned();
                return Err(format!("{}: {key} is not what was written; expected {wanted:?}", cf.name()));
            }
            at += 1;
            more = iter.next().map_err(said)?;
        }
        if at < expected.len() {
            return Err(format!("{}: {} is gone", cf.name(), expected[at].0));
        }
    }
    drop(cfs);
    db.close().map_err(|error| format!("close: {error}"))?;
    Ok(found)
}
